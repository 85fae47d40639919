"""A shuffler as one process or several: they share its address and its database, and one of them leads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

import typer

from ..service.analyzer.task_file import public_key
from ..validation import ArgumentError
from .progress import Stopped
from .tasks import serve_hosting_shuffler

# Seconds after which a process that has ended is replaced, at most where they end again and again, and for how long all of them may
# take to start.
_PAUSE, _LONGEST_PAUSE, _START = 0.5, 10.0, 60.0


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
    from .serve import _opened  # noqa: PLC0415

    kept = _opened(options.database, SHUFFLER)
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
    from ..service.net.server import Served  # noqa: PLC0415
    from ..service.shuffler.app import add_page, allow_origins, shuffler_app  # noqa: PLC0415
    from ..service.shuffler.invitations import add_claims  # noqa: PLC0415
    from ..service.shuffler.relay import AnalyzerRelay  # noqa: PLC0415
    from .serve import _until_stopped  # noqa: PLC0415

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
    with _until_stopped() as stopped, served, errands:
        if ready is None:
            typer.echo(f"shuffler on {served.url}")
        else:
            ready.release()
        stopped.wait()


def serve_shufflers(options: ShufflerOptions, processes: int) -> None:
    """Several processes on one port. One that ends or is killed is replaced; all end with this one."""
    from .serve import _until_stopped  # noqa: PLC0415

    if not hasattr(socket, "SO_REUSEPORT"):
        raise ArgumentError("--processes", processes, "1 on this system", "This system cannot share a port between processes.")
    if options.analyzer:
        opened_role(options).store.close()  # what is wrong is said once, before anything is started
    with closing(_reserved(options)) as port, _until_stopped() as stopped:
        shared = replace(options, port=port.getsockname()[1], shared=True)
        context = multiprocessing.get_context("spawn")
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
    one: BaseProcess = context.Process(target=_one_of_several, args=(options, ready, os.getpid()), daemon=True)
    one.start()
    return one


def _wait_for(ready: Semaphore, running: list[BaseProcess], stopped: threading.Event) -> None:
    deadline = time.monotonic() + _START
    while not ready.acquire(timeout=0.2):
        if stopped.is_set() or not all(one.is_alive() for one in running) or time.monotonic() > deadline:
            raise Stopped("a process of the shuffler did not start", 1)


def _one_of_several(options: ShufflerOptions, ready: Semaphore, parent: int) -> None:
    from .serve import _end_with  # noqa: PLC0415

    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
