"""The processes of roles: the log of what operators did, databases, certificates and signals; and those of a shuffler."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from ..files import append, lock
from ..service.analyzer.task_file import public_key
from ..validation import ArgumentError
from .terminal import Stopped

# The log of what operators did: a JSON object a line in the role's folder, written before the act, with no name of any person.
# Clients appear by the handles that `croupier serve` gave them; secrets never do.
ACTS = "audit.jsonl"


def record_act(folder: Path, act: str, **facts: Any) -> None:
    """Write down that an operator does something. On disk when this returns: what cannot be logged is not done."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = json.dumps({"at": at, "by": _operator(), "act": act, **facts}).encode() + b"\n"
    file = folder / ACTS
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        append(handle, line, file)
    finally:
        os.close(handle)


def _operator() -> str:
    """The account that runs the command, by the system's word and not the environment's; behind sudo also who called it."""
    try:
        import pwd  # noqa: PLC0415

        name = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows, or an account without a name
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    behind = os.environ.get("SUDO_USER")
    return f"{name} (sudo by {behind})" if behind and name == "root" else name


# What every role needs.


@contextmanager
def running_alone(folder: Path, role: str) -> Iterator[None]:
    """A role's folder, for one command at a time that runs the role: the lock is gone with its process, killed even. Commands that
    only look after the role do not take it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / f"{role}.lock").open("a") as file:
        try:
            lock(file.fileno())
        except BlockingIOError:
            remedy = "Stop that one first, or use another folder." + (
                " --processes N runs several processes that share the work." if role == "shuffler" else ""
            )
            raise ArgumentError("--dir", str(folder), f"a folder in which no {role} is running", remedy) from None
        yield


DatabaseUrl = Annotated[
    str | None, typer.Option(envvar="CROUPIER_DATABASE", help="Database URL. Default: SQLite in the role's folder.")
]
_NOT_LEAKED = "ignore:resource_tracker:UserWarning"  # as an option of Python's, which its helpers are started with
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def workers_context(*preloaded: str) -> Any:
    """How a role starts processes. On Linux they are forked from a bare process that has imported these modules once: a worker
    starts in milliseconds instead of seconds of processor time, and shares the memory of what was imported."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    if _NOT_LEAKED not in sys.warnoptions:  # where the parent is killed, a helper removes its semaphores, and calls them leaked
        sys.warnoptions.append(_NOT_LEAKED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preloaded))
    return context


def end_with_parent() -> None:
    """A worker ends when the process that asked for it is gone, even if killed; or that which forked it, without which the first
    takes it for dead, and replaces it."""
    parent, forked_by = multiprocessing.parent_process(), os.getppid()

    def watch() -> None:
        while parent is not None and parent.is_alive() and os.getppid() == forked_by:
            parent.join(1.0)
        os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends us
    threading.Thread(target=watch, daemon=True).start()


class until_stopped:  # noqa: N801  (a context, used like a function)
    """Waits for Ctrl-C or a request to terminate, and reports it. Meanwhile there is a log, which has Python's warnings too."""

    def __init__(self, also: Any = None) -> None:
        self._event, self._also = threading.Event(), also
        self._before: dict[int, Any] = {}
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> threading.Event:
        from ..service.net.server import RateLimitedLog, name_task  # noqa: PLC0415

        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        handler.addFilter(name_task)  # first: the same line of two tasks is two lines
        handler.addFilter(RateLimitedLog())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # its start is not worth four lines beside the role's key
        self._warnings.__enter__()
        warnings.simplefilter("always", UserWarning)  # of every task, not of the first; the log says a line once a minute
        warnings.showwarning = lambda message, *_, **__: logging.getLogger("croupier").warning("%s", message)
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self._event

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._event.set()
        if self._also is not None:
            self._also()

    def __exit__(self, *_: object) -> None:
        self._warnings.__exit__(None, None, None)
        for number, handler in self._before.items():
            signal.signal(number, handler)


class JsonLines(logging.Formatter):
    """One JSON object per line. It never contains anything about a client: the web servers log no requests."""

    def format(self, record: logging.LogRecord) -> str:
        at = self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
        line = {"at": at, "level": record.levelname, "from": record.name, "said": record.getMessage()}
        if record.exc_info and (problem := record.exc_info[1]) is not None:  # its text may hold what was to be written
            where = traceback.extract_tb(problem.__traceback__)[-1:]
            line["cause"] = " ".join([type(problem).__name__, *[f"{Path(one.filename).name}:{one.lineno}" for one in where]])
        return json.dumps(line)


def tls_files(
    folder: Path, host: str, certificate: Path | None, key: Path | None, dev: bool, behind_proxy: bool
) -> tuple[Path, Path] | None:
    from ..service.net.server import development_certificate  # noqa: PLC0415

    if behind_proxy:
        if dev or certificate is not None or key is not None:
            remedy = "Remove --dev, --certificate and --private-key: TLS is the proxy's job."
            raise ArgumentError("--behind-proxy", True, "left out if the role terminates TLS itself", remedy)
        return None
    if dev:
        return development_certificate(folder)
    if certificate is not None and key is not None:
        return _readable_pair(certificate, key)
    if certificate is not None or key is not None or host not in LOOPBACK:
        remedy = "Use --certificate and --private-key, --behind-proxy, or --dev to try things out on this machine."
        raise ArgumentError("--certificate", certificate, f"given with --private-key to listen on {host}", remedy)
    return None


def _readable_pair(certificate: Path, key: Path) -> tuple[Path, Path]:
    """The two files, checked before anything is opened."""
    for option, file in (("--certificate", certificate), ("--private-key", key)):
        try:
            file.read_bytes()
        except OSError as problem:
            raise ArgumentError(option, str(file), f"a PEM file that can be read ({problem.strerror})", "Check the path.") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as problem:
        reason = getattr(problem, "reason", None) or "it cannot be read"
        remedy = "Use the certificate with its chain, and its own private key without a password."
        raise ArgumentError(
            "--certificate", str(certificate), f"a PEM certificate that fits --private-key ({reason})", remedy
        ) from None
    return certificate, key


def check_authority(option: str, file: Path | None) -> None:
    """Refuse a file of certificates to trust that cannot be used, before anything waits for a server in vain."""
    try:
        if file is not None:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except OSError as problem:
        reason = "no certificate in it" if isinstance(problem, ssl.SSLError) else problem.strerror
        remedy = "Name a PEM file; a role started with --dev has dev-certificate.pem in its folder."
        raise ArgumentError(option, str(file), f"a file of certificates ({reason})", remedy) from None


def check_port(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on, before anything else is begun."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, OverflowError):
        raise ArgumentError(
            "--host", host, f"an address of this machine, with port {port}", "0.0.0.0 listens on all addresses."
        ) from None
    with socket.socket(family, kind, protocol) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(address)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            remedy = (
                "Another process uses it; choose another port, or stop that process."
                if problem.errno == errno.EADDRINUSE
                else ("Ports below 1024 need special permission." if problem.errno == errno.EACCES else "Check --host too.")
            )
            raise ArgumentError("--port", port, f"one that can be opened on {host} ({reason})", remedy) from None


_DATABASE = 30.0  # seconds in which a database server may start


def opened(url: str, tables: Any) -> Any:
    """A database and its tables. One that does not answer may be starting, as after a boot: it is given a while."""
    from sqlalchemy.exc import OperationalError, SQLAlchemyError  # noqa: PLC0415

    from ..service.net.database import Database  # noqa: PLC0415

    last = time.monotonic() + (0.0 if url.startswith("sqlite") else _DATABASE)
    try:
        while True:
            try:
                return Database(url, tables)
            except OperationalError:
                if time.monotonic() > last:
                    raise
                time.sleep(0.5)
    except (SQLAlchemyError, ImportError, RuntimeError, ValueError) as problem:
        reason = str(problem).splitlines()[0] if isinstance(problem, RuntimeError | ImportError) else type(problem).__name__
        allowed = f"a database that can be opened ({reason})"
        shown = re.sub(r"//[^@/]*@", "//...@", url)  # a password may be in it
        raise ArgumentError("--database", shown, allowed, "For PostgreSQL: postgresql+psycopg://user@host/name.") from None


def existing_database(folder: Path, name: str) -> str:
    """The database of a role that has one already."""
    if not (folder / f"{name}.db").is_file():
        remedy = f"Use the --dir of croupier serve {name}, or its --database."
        raise ArgumentError("--dir", str(folder), f"a {name}'s folder, which contains {name}.db", remedy)
    return sqlite_url(folder, name)


def sqlite_url(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"sqlite:///{(folder / name).absolute()}.db"


# A shuffler as one process or several: they share its address and its database, and one of them leads.

# Seconds after which a process that has ended is replaced, at most where they end again and again, and for how long all of them may
# take to start: a process that fails ends at once, so this only ends one that hangs, and a busy machine is slow.
_PAUSE, _LONGEST_PAUSE, _START = 0.5, 10.0, 600.0


@dataclass(frozen=True)
class ShufflerOptions:
    """What a shuffler's processes are started with; it travels to them."""

    folder: Path
    database: str
    analyzer: str  # empty if many tasks are served, which the registry names
    analyzer_key: str
    host: str
    port: int
    tls: tuple[Path, Path] | None
    ca: Path | None
    smallest: int
    page: bool = False
    origins: tuple[str, ...] = ()
    enroller_ca: Path | None = None
    limited: bool = True  # requests without a token, per address
    address_header: str | None = None
    shared: bool = False  # several processes listen on the port
    honest: float | None = None  # the share of enrolled people that is honest
    keep_days: float = 30.0  # for which an ended task is kept
    private_enrollers: bool = False  # of tasks that analyzers add by token


def opened_role(options: ShufflerOptions) -> Any:
    """The shuffler's role on its database."""
    from ..service.net.server import signing_key  # noqa: PLC0415
    from ..service.shuffler.role import ShufflerRole  # noqa: PLC0415
    from ..service.shuffler.rounds import SHUFFLER  # noqa: PLC0415
    from ..service.wire.documents import WireError  # noqa: PLC0415

    kept = opened(options.database, SHUFFLER)
    try:
        analyzer = public_key("--analyzer-key", options.analyzer_key)
        return ShufflerRole(kept, signing_key(options.folder), analyzer, smallest=options.smallest)
    except WireError as problem:
        remedy = "Use the options with which it was started, or a new folder."
        allowed = f"a folder whose task can be served ({problem})"
        raise ArgumentError("--dir", str(options.folder), allowed, remedy) from None


def serve_shuffler(options: ShufflerOptions, ready: Semaphore | None = None) -> None:
    """One process, until it is stopped."""
    from ..service.net.limits import limit_addresses  # noqa: PLC0415
    from ..service.net.server import Served, settle  # noqa: PLC0415
    from ..service.shuffler.app import (  # noqa: PLC0415
        add_claims,
        add_page,
        allow_origins,
        shuffler_app,
    )
    from ..service.shuffler.relay import AnalyzerRelay  # noqa: PLC0415

    if not options.analyzer:
        serve_hosting_shuffler(options, None if ready is None else ready.release)
        return
    role = opened_role(options)
    errands = AnalyzerRelay(role, options.analyzer, ca=options.ca, enroller_ca=options.enroller_ca)
    web = shuffler_app(role, errands.loop)
    if options.page:
        add_page(web, lambda: role.task.enroller.address if role.task and role.task.enroller else None)
    add_claims(web, role)
    allow_origins(web, list(options.origins))
    if options.limited:
        limit_addresses(web, header=options.address_header)
    served = Served(web, host=options.host, port=options.port, tls=options.tls, shared=options.shared)
    with until_stopped() as stopped, served, errands:
        settle()
        if ready is None:
            typer.echo(f"shuffler on {served.url}")
        else:
            ready.release()
        stopped.wait()


def serve_shufflers(options: ShufflerOptions, processes: int) -> None:
    """Several processes on one port. One that ends or is killed is replaced; all end with this one."""

    if not hasattr(socket, "SO_REUSEPORT"):
        raise ArgumentError("--processes", processes, "1 on this system", "This system cannot share a port between processes.")
    if options.analyzer:
        opened_role(options).store.close()  # what is wrong is said once, before anything is started
    with closing(_reserved(options)) as port, until_stopped() as stopped:
        shared = replace(options, port=port.getsockname()[1], shared=True)
        context = workers_context(__name__, "croupier.service.shuffler.host")
        ready = context.Semaphore(0)
        running = [_started(context, shared, ready) for _ in range(processes)]
        try:
            for _ in range(processes):
                _wait_for(ready, running, stopped)
            scheme = "http" if options.tls is None else "https"
            typer.echo(f"shuffler on {scheme}://{options.host}:{shared.port}")
            pause = _PAUSE
            while not stopped.wait(pause):
                dead = [place for place, one in enumerate(running) if not one.is_alive()]
                pause = min(2 * pause, _LONGEST_PAUSE) if dead else _PAUSE  # a database that is away ends new ones at once
                for place in dead:
                    with suppress(OSError):  # no process or memory left: later
                        running[place] = _started(context, shared, ready)
        finally:
            for one in running:
                one.terminate()
            for one in running:
                one.join(15)


def _started(context: Any, options: ShufflerOptions, ready: Semaphore) -> BaseProcess:
    one: BaseProcess = context.Process(target=_one_of_several, args=(options, ready), daemon=True)
    one.start()
    return one


def _wait_for(ready: Semaphore, running: list[BaseProcess], stopped: threading.Event) -> None:
    deadline = time.monotonic() + _START
    while not ready.acquire(timeout=0.2):
        if stopped.is_set() or not all(one.is_alive() for one in running) or time.monotonic() > deadline:
            raise Stopped("a process of the shuffler did not start", 1)


def _one_of_several(options: ShufflerOptions, ready: Semaphore) -> None:
    end_with_parent()
    serve_shuffler(options, ready)


def _reserved(options: ShufflerOptions) -> socket.socket:
    """The port, kept for our processes; nobody connects to this socket, which does not listen."""
    from ..service.net.server import shared_socket  # noqa: PLC0415

    try:
        return shared_socket(options.host, options.port)
    except OSError as problem:
        raise ArgumentError(
            "--port", options.port, f"one that can be opened ({problem.strerror})", "Choose another port."
        ) from None


def serve_hosting_shuffler(options: Any, ready: Callable[[], None] | None) -> None:
    """A shuffler of many tasks, until it is stopped: one process of it."""
    from ..service.net.limits import limit_addresses  # noqa: PLC0415
    from ..service.net.registry import Keyring, front_app  # noqa: PLC0415
    from ..service.net.server import Loop, Served, settle  # noqa: PLC0415
    from ..service.shuffler.app import (  # noqa: PLC0415
        add_claims,
        add_page,
        allow_origins,
        shuffler_app,
    )
    from ..service.shuffler.host import ShufflerHost  # noqa: PLC0415
    from ..service.shuffler.role import ShufflerRole  # noqa: PLC0415
    from ..service.wire.documents import hex_of  # noqa: PLC0415

    def app_of(role: ShufflerRole, loop: Loop) -> Any:
        web = shuffler_app(role, loop)
        if options.page:
            add_page(web, lambda: role.task.enroller.address if role.task and role.task.enroller else None)
        allow_origins(web, list(options.origins))
        return web

    limits: dict[str, Any] = {"smallest": options.smallest, "honest": options.honest, "keep_days": options.keep_days}
    limits |= {"enroller_ca": options.enroller_ca, "private_enrollers": options.private_enrollers}
    with until_stopped() as stopped, ShufflerHost(options.folder, options.database, app=app_of, **limits) as hosted:
        web = front_app("croupier shuffler", hosted, hosted.people, partial(record_act, options.folder))
        if options.page:
            add_page(web)
        add_claims(web, hosted)
        allow_origins(web, list(options.origins))
        if options.limited:
            limit_addresses(web, header=options.address_header)
        with Served(web, host=options.host, port=options.port, tls=options.tls, shared=options.shared) as served:
            settle()
            if ready is None:
                typer.echo(f"shuffler on {served.url}")
                typer.echo(f"key {hex_of(Keyring(options.folder).current)}")
            else:
                ready()
            stopped.wait()
