"""Certificates for trying things out: a self-signed one for this machine. Real ones come from whoever runs the network."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from fastapi import FastAPI
from uvicorn import Server as WebServer
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...files import create_private, write_whole
from ...validation import ArgumentError

_DAYS = 30


def development_certificate(folder: Path) -> tuple[Path, Path]:
    """Certificate and key for localhost, made anew where there are none or they have run out."""
    certificate, key = folder / "dev-certificate.pem", folder / "dev-key.pem"
    now = datetime.datetime.now(datetime.UTC)
    if certificate.exists() and x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc > now:
        return certificate, key
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "croupier development")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    encoded = private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(key, encoded, private=True)
    write_whole(certificate, signed.public_bytes(serialization.Encoding.PEM))
    return certificate, key


# What a web server does about clients that break the rules: half-sent requests and unread answers end, connections are limited.

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Seconds for a request's head; its body has so many more, and so many bytes a second.
HEAD_SECONDS, BODY_SECONDS, BYTES_A_SECOND = 20.0, 20.0, 20_000
# Seconds in which a client takes what the server has to send, at that many bytes a second on top.
WRITE_SECONDS = 20.0
# Seconds for which an idle connection is kept: a client's longest pace, and a little.
KEEP_SECONDS = 40
# Descriptors that are not for connections: databases, logs, the listening socket.
_OTHERS = 64
# Connections, at most, whatever the system allows.
_MOST = 1 << 16
# Seconds after which a line that is logged again and again is logged again.
_QUIET = 60.0
# Different lines that are remembered.
_LINES = 1000


class TimeoutProtocol(H11Protocol):
    """A connection that is dropped if a request does not arrive in time, an answer is not read in time, or there are too many."""

    most_connections = 1 << 30
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None  # runs while the client does not take what is sent
    _in_head = True
    _before: Any = None  # the cycle of the request before the one that is arriving

    def connection_made(self, transport: Any) -> None:
        """Start the clock, or hang up."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # whatever the client does not take, `pause_writing` hears of
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._await(HEAD_SECONDS, head=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop()
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the clock for what the client has not taken."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Stop it: the client has taken everything. A connection that is being closed still has to end."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._taken()

    def on_response_complete(self) -> None:
        """Close in time: what is being closed waits for the client to read, what was answered too soon for the rest of its body."""
        unread = self.cycle.more_body
        super().on_response_complete()
        self._close_in_time()
        if unread:
            self._await(BODY_SECONDS, head=False)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, in time."""
        super().timeout_keep_alive_handler()
        self._close_in_time()

    def send_400_response(self, msg: str) -> None:
        """Close after a refusal, in time."""
        super().send_400_response(msg)
        self._close_in_time()

    def _close_in_time(self) -> None:
        if self.transport.is_closing():
            self._await_reader()

    def _await_reader(self) -> None:
        if self._unread is None and self in self.connections:
            seconds = WRITE_SECONDS + self.transport.get_write_buffer_size() / BYTES_A_SECOND
            self._unread = self.loop.call_later(seconds, self._hang_up)

    def _taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def data_received(self, data: bytes) -> None:
        """Stop the clock when a request is there as a whole; a body has more time than a head."""
        if self._timer is None and (self.cycle is None or not self.cycle.more_body):
            self._before = self.cycle
            self._await(HEAD_SECONDS, head=True)
        super().data_received(data)
        if self._timer is None or self.cycle is self._before:
            return
        if not self.cycle.more_body:
            self._stop()
        elif self._in_head:
            self._await(BODY_SECONDS + self._declared() / BYTES_A_SECOND, head=False)

    def _declared(self) -> int:
        """The body's length as the head says it."""
        length = dict(self.cycle.scope["headers"]).get(b"content-length", b"0")
        return int(length) if length.isdigit() and len(length) < 13 else 0

    def _await(self, seconds: float, *, head: bool) -> None:
        self._stop()
        self._timer, self._in_head = self.loop.call_later(seconds, self._hang_up), head

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hang_up(self) -> None:
        self._timer = None
        self.transport.abort()


class ClosingServer(WebServer):
    """A web server that hangs up on whoever is still connected when it has ended, in the middle of a request, say."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as usual, then close what is left."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0.01)  # the loop closes them in its next turns


def room_for_connections() -> int:
    """How many connections a process may have open and never run out of descriptors; the system's limit is raised first."""
    if resource is None:
        return 1 << 30
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else max(1, soft - _OTHERS)


class RateLimitedLog(logging.Filter):
    """Lets a line that comes again and again through once a minute, with how often it came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, int]] = {}  # when a line was last let through, how many were not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is let through."""
        now, key = self._clock(), (record.name, record.getMessage()[:80])
        when, held = self._known.get(key, (-math.inf, 0))
        if now < when + _QUIET:
            self._known[key] = when, held + 1
            return False
        if len(self._known) >= _LINES:
            self._known.clear()
        self._known[key] = now, 0
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} times more since it was last said)", ()
        return True


# A loop in a thread of its own that only its owner ends: it survives every exception, backs off, and says how it is.

log = logging.getLogger("croupier")
# Seconds for which one step may run, and for which a loop may fail again and again, before it is not healthy.
STUCK_SECONDS, FAILING_SECONDS = 600.0, 60.0


class TurnOutcome(Enum):
    """What came of a turn: all done; not done since somebody else is out of reach or refuses; failed by our own fault."""

    DONE = "done"
    WAITING = "waiting"
    FAILED = "failed"


class Loop:
    """Takes a turn again and again until it is stopped.

    A turn that raises is a failed one. After turns that were not done it waits longer each time, up to `longest` seconds.
    """

    def __init__(self, name: str, turn: Callable[[], TurnOutcome], *, pause: float, longest: float) -> None:
        self.name, self._turn, self._pause, self._longest = name, turn, pause, longest
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = time.monotonic()
        self._succeeded: float | None = None
        self._failing: float | None = None  # since when
        self._step: tuple[str, float] | None = None  # what runs now, and since when
        self._causes: dict[str, str] = {}  # why a step last failed

    def start(self) -> None:
        """Begin."""
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End after the present turn."""
        self._stopping.set()
        self._thread.join()

    def step(self, name: str) -> None:
        """Note that the turn has come to this step, so that one which never ends is found."""
        self._step = name, time.monotonic()

    def note(self, step: str, level: int, cause: str) -> None:
        """Log why a step failed, once: again only if the cause is another one, or it has worked in between."""
        if self._causes.get(step) != cause:
            self._causes[step] = cause
            log.log(level, "%s", cause)

    def worked(self, step: str) -> None:
        """Note that a step was done."""
        if self._causes.pop(step, None) is not None:
            log.info("%s: %s works again", self.name, step)

    def since_success(self) -> float:
        """Seconds since a turn was all done, or since the start where none was."""
        return time.monotonic() - (self._started if self._succeeded is None else self._succeeded)

    def trouble(self) -> str:
        """Why the loop is not healthy: dead, stuck, or failing for a while; empty where it is."""
        now, step, failing = time.monotonic(), self._step, self._failing
        if not self._stopping.is_set() and not self._thread.is_alive():
            return f"{self.name}: the loop is dead"
        if step is not None and now > step[1] + STUCK_SECONDS:
            return f"{self.name}: stuck in {step[0]} for {now - step[1]:.0f} s"
        if failing is not None and now > failing + FAILING_SECONDS:
            return f"{self.name}: failing for {now - failing:.0f} s ({'; '.join(self._causes.values())})"
        return ""

    def said(self) -> str:
        """How it is, in one line."""
        when = f"last succeeded {self.since_success():.0f} s ago" if self._succeeded is not None else "has not succeeded yet"
        causes = "; ".join(self._causes.values())
        return f"{self.name}: {when}{f' ({causes})' if causes else ''}"

    def _run(self) -> None:
        pause = self._pause
        while not self._stopping.wait(pause):
            self.step("a turn")
            try:
                outcome = self._turn()
            except Exception as problem:  # whatever it is, there is a next turn
                self.note("a turn", logging.ERROR, f"{self.name}: {type(problem).__name__}")
                outcome = TurnOutcome.FAILED
            else:
                self.worked("a turn")
            self._step = None
            if outcome is TurnOutcome.DONE:
                self._succeeded = time.monotonic()
            self._failing = (self._failing or time.monotonic()) if outcome is TurnOutcome.FAILED else None
            pause = self._pause if outcome is TurnOutcome.DONE else min(2 * pause, self._longest)


# The roles as processes: a web server each, the shuffler's errands to the analyzer, and keys on disk.

# Seconds between the shuffler's errands, at most where one of them fails again and again, and how long one may take.
_PAUSE, _LONGEST_PAUSE, _TIMEOUT = 0.2, 5.0, 60.0
# Seconds between two words on arrivals, if the number is another one, and if it is the same.
_NEWS, _NO_NEWS = 1.0, 10.0


def signing_key(folder: Path) -> Ed25519PrivateKey:
    """The role's key, made on first use, in a file for its owner alone."""
    file = folder / "signing.key"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists():
        create_private(file, f"{Ed25519PrivateKey.generate().private_bytes_raw().hex()}\n".encode())
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text().strip()))
    except ValueError:
        raise ArgumentError("signing.key", str(file), "64 hex digits", "Bring the file back; a new key is a new role.") from None


class Served:
    """A web server in a thread of its own; use it as a context. Port 0 takes one that is free."""

    def __init__(
        self,
        app: FastAPI,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: tuple[Path, Path] | None = None,
        shared: bool = False,
    ) -> None:
        certificate, key = (None, None) if tls is None else map(os.fspath, tls)
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=5,
            timeout_keep_alive=KEEP_SECONDS,
            http=TimeoutProtocol,
            ws="none",
        )
        TimeoutProtocol.most_connections = room_for_connections()
        self._app, self._server, self._host = app, ClosingServer(config), host
        self._scheme = "http" if tls is None else "https"
        sockets = [shared_socket(host, port)] if shared else None  # otherwise the server opens its own
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), name=app.title, daemon=True)

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"{self._scheme}://{self._host}:{port}"

    def __enter__(self) -> Served:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise OSError(f"the port on {self._host} could not be opened")
            threading.Event().wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._app.state.stopping = True  # streams of events end by themselves
        self._server.should_exit = True
        self._thread.join()


def shared_socket(host: str, port: int) -> socket.socket:
    """A bound socket whose port other processes of this user may open too; whoever listens gets a part of the connections."""
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        opened.bind(address)
    except OSError:
        opened.close()
        raise
    return opened
