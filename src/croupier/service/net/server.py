"""What every role's web server has: health and metrics, limits on what clients may do, a background loop, keys and certificates."""

from __future__ import annotations

import asyncio
import datetime
import gc
import ipaddress
import logging
import math
import os
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import formatdate
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Server as WebServer

from ... import __version__
from ...files import create_private, write_whole
from ...validation import ArgumentError
from ..wire.documents import MOST_DOCUMENT_BYTES, Document, WireError
from ..wire.task import RefusedError
from .database import Database, cause_of
from .http import BINARY, FOR_GOOD
from .limits import AddressLimit

try:  # the parser in C, a fifth of the time
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Protocol
except ImportError:  # without httptools: the same rules, and every request by the app
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol  # type: ignore[assignment]

_DAYS = 30


def development_certificate(folder: Path) -> tuple[Path, Path]:
    """Certificate and key for localhost, made anew where there are none or they have run out."""
    certificate, key = folder / "dev-certificate.pem", folder / "dev-key.pem"
    now = datetime.datetime.now(datetime.UTC)
    if certificate.exists() and x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc > now:
        return certificate, key
    private = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: of two authorities of one name, only the first is looked at.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"croupier development {secrets.token_hex(4)}")])
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

# Seconds for a request's head; its body has so many more, and so many bytes per second.
HEAD_SECONDS, BODY_SECONDS, BYTES_A_SECOND = 20.0, 20.0, 20_000
# Seconds in which a client takes what the server has to send, at that many bytes per second on top.
WRITE_SECONDS = 20.0
# Bytes of a request's head, at most.
_MOST_HEAD = 1 << 16
# Bytes of a body that are kept before anybody asks for it.
_MOST_UNASKED = 1 << 16
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


class _NobodyWaits:
    """In the place of the event that a request's application waits for."""

    def set(self) -> None:
        """Do nothing."""


class DirectRequest:
    """A request that is answered by a function, without an application in between; it stands where uvicorn has its cycle."""

    __slots__ = (
        "_connection",
        "_held",
        "_secure",
        "_then",
        "address",
        "authorized",
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "most",
        "response_complete",
        "scope",
        "token",
        "too_long",
    )
    message_event = _NobodyWaits()

    def __init__(
        self,
        connection: TimeoutProtocol,
        headers: list[tuple[bytes, bytes]],
        token: str | None,
        *,
        address: str | None = None,
        secure: bool,
    ) -> None:
        self._connection, self.scope, self._secure = connection, {"headers": headers}, secure
        self.address = address  # whom it is counted for, by its head; None: nobody
        self.token, self.authorized = token or "", token is not None
        self.keep_alive = connection.parser.should_keep_alive()
        self.body, self.too_long, self._held = bytearray(), False, False
        self.more_body, self.response_complete, self.disconnected = True, False, False
        self._then: Callable[[bytes], None] | None = None
        self.most: int | None = None  # bytes of a body

    def limit(self, most: int) -> None:
        """Say how long a body may be; one that says itself that it is longer is not waited for."""
        self.most = most
        if max(len(self.body), _declared(self.scope["headers"])) > most:
            self.too_long, self.body = True, bytearray()
            self._let_go()

    def read(self, then: Callable[[bytes], None]) -> None:
        """Go on with the body when all of it is here; one that is longer than its limit is refused at once."""
        self._then = then
        self._let_go()
        self._read_on()

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            self._connection.flow.resume_reading()

    def take(self, part: bytes) -> None:
        """Keep what has come, as far as it can be a body; `most` is not known before anybody has looked at the head.

        Before anybody has asked for the body, little of it is kept: the rest is not read from the network.
        """
        if self.most is not None and len(self.body) + len(part) > self.most:
            self.too_long, self.body = True, bytearray()
        elif not self.too_long:
            self.body += part
            if self._then is None and len(self.body) > _MOST_UNASKED and not self._held:
                self._held = True
                self._connection.flow.pause_reading()
        self._read_on()

    def end(self) -> None:
        """Note that the body is here."""
        self.more_body = False
        self._read_on()

    def _read_on(self) -> None:
        if self._then is None or self.response_complete:
            return
        if self.too_long:
            self.answer(413, f"more than {self.most} bytes\n".encode(), _TEXT)
        elif not self.more_body:
            then, self._then = self._then, None
            then(bytes(self.body))

    def answer(self, status: int, body: bytes = b"", kind: bytes = BINARY.encode()) -> None:
        """Send the answer, unless whoever asked is gone."""
        if self.response_complete or self.disconnected:
            return
        close = b"" if self.keep_alive else b"connection: close\r\n"
        head = _direct_head(status, kind, self._secure)
        self._connection.transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (head, close, len(body), body))
        self.response_complete, self.body, self._then = True, bytearray(), None
        if not self.keep_alive:
            self._connection.transport.close()
        self._connection.on_response_complete()

    def refuse(self, problem: Exception) -> int:
        """Say why there is no answer, as the app would; returns the status."""
        status, reason = 500, "Internal Server Error"
        if isinstance(problem, RefusedError):
            status, reason = problem.status, f"{problem}\n"
        elif isinstance(problem, (SQLAlchemyError, OSError)):
            status, reason = 503, f"{_UNUSABLE}\n"
            _log_unusable(problem)
        else:
            log.error("a request was not served: %s", type(problem).__name__)
        if status == 401 and self.authorized:
            self._connection.count_wrong_token(self.address)
        self.answer(status, reason.encode(), _TEXT)
        return status


_TEXT = b"text/plain; charset=utf-8"
DirectRoute = Callable[[DirectRequest], None]


@dataclass(frozen=True)
class DirectRoutes:
    """What is answered directly: by method and path, from the request's head on, where the role is ready for it.

    The app has the same paths. It answers whatever is not as usual: without a token, from another origin, with a query, behind
    another request on the same connection, or where the client does not read what it is sent.
    """

    routes: dict[tuple[bytes, bytes], DirectRoute]
    ready: Callable[[], bool]


def _declared(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """A body's length as its head says it."""
    length = dict(headers).get(b"content-length", b"0")
    return int(length) if length.isdigit() and len(length) < 30 else 0


@lru_cache(maxsize=64)
def _direct_head(status: int, kind: bytes, secure: bool) -> bytes:
    lines = [b"HTTP/1.1 %d %b" % (status, HTTPStatus(status).phrase.encode()), b"content-type: " + kind]
    lines += [name + b": " + value for name, value in careful_headers(secure)]
    return b"\r\n".join([*lines, b""])


class TimeoutProtocol(_Protocol):
    """A connection that is dropped if a request does not arrive in time, an answer is not read in time, or there are too many.

    What an app has as `state.direct` is answered without it: most of a short request's time was the framework's.
    """

    most_connections = 1 << 30
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None  # runs while the client does not take what is sent
    _in_head = True
    _head_here = False  # of the request that is arriving: what looks like more of it are trailers, and nobody's word
    _head_bytes = 0
    _before: Any = None  # the cycle of the request before the one that is arriving
    _usual, _secure = True, False  # of the head that is arriving
    _token: str | None = None  # none without any Authorization, empty with another one
    _begun: DirectRoute | None = None  # of a direct request whose head is here and which was not looked at yet

    def connection_made(self, transport: Any) -> None:
        """Start the clock, or hang up."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # whatever the client does not take, `pause_writing` hears of
        state = getattr(self.config.app, "state", None)
        self._direct: DirectRoutes | None = getattr(state, "direct", None)
        self._limit: AddressLimit | None = getattr(state, "limit", None)
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._await(HEAD_SECONDS, head=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop()
        self._taken()
        super().connection_lost(exc)

    # A request on a direct path, by the callbacks of httptools.

    def on_message_begin(self) -> None:
        """Know nothing of a new head."""
        self._usual, self._secure, self._token = True, self.scheme == "https", None
        self._head_here = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note what a direct answer depends on."""
        if self._head_here:
            return
        super().on_header(name, value)
        name = name.lower()
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            self._usual, self._token = self._usual and self._token is None, token if kind == "Bearer" else ""
        elif name == b"x-forwarded-proto":
            self._secure = self._secure or value == b"https"
        elif name in (b"origin", b"expect", b"upgrade"):
            self._usual = False

    def on_headers_complete(self) -> None:
        """Answer directly where that is possible; otherwise by the app."""
        self._head_here = True
        free = (self.cycle is None or self.cycle.response_complete) and not self.pipeline and not self.flow.write_paused
        if free and self._usual and self._direct is not None:
            route = self._direct.routes.get((self.parser.get_method(), self.url))
            address = None if self._limit is None else self._limit.address_of(self.client, self.headers)
            usual = route is not None and self.parser.get_http_version() == "1.1" and self._direct.ready()
            if usual and self._admits(address):
                request = DirectRequest(self, self.headers, self._token, address=address, secure=self._secure)
                self.cycle, self._begun = request, route  # type: ignore[assignment]
                return
        super().on_headers_complete()

    def _admits(self, address: str | None) -> bool:
        """Whether the address may ask; if not, the app says so. Without a token the app would count it, and is left to."""
        if self._limit is None or address is None:
            return True
        return self._token is not None and self._limit.admits(address, has_token=True)

    def count_wrong_token(self, address: str | None) -> None:
        """Count a request with a token that nobody was given."""
        if self._limit is not None and address is not None:
            self._limit.count_wrong(address)

    def on_body(self, body: bytes) -> None:
        """Give a part of the body to whoever reads it."""
        if isinstance(self.cycle, DirectRequest):
            if not self.cycle.response_complete:
                self.cycle.take(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Say that the body is here."""
        if isinstance(self.cycle, DirectRequest):
            self.cycle.end()
            self._begin()
        else:
            super().on_message_complete()
            self.cycle.more_body = False  # also where it was answered before

    def _begin(self) -> None:
        """Answer the direct request whose head is here; its body is as far as it has come."""
        route, self._begun = self._begun, None
        if route is not None:
            route(self.cycle)  # type: ignore[arg-type]

    # The clocks.

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
            self._before, self._head_bytes = self.cycle, 0
        super().data_received(data)
        self._begin()
        if self.cycle is self._before:  # the head is not here yet
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD:
                self._hang_up()
            elif self._timer is None and not self.transport.is_closing():
                self._await(HEAD_SECONDS, head=True)
        elif not self.cycle.more_body:
            self._stop()
        elif self._timer is None or self._in_head:
            self._await(
                BODY_SECONDS + min(_declared(self.cycle.scope["headers"]), MOST_DOCUMENT_BYTES) / BYTES_A_SECOND, head=False
            )

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


# The task that a thread or a request is about, by its name in a role of many tasks; empty elsewhere.
TASK: ContextVar[str] = ContextVar("task", default="")


def _prefix() -> str:
    return f"task {name}: " if (name := TASK.get()) else ""


def name_task(record: logging.LogRecord) -> bool:
    """Put the task's name before a line of the log: a filter that lets everything through."""
    if TASK.get():
        record.msg, record.args = f"{_prefix()}{record.getMessage()}", ()
    return True


class RateLimitedLog(logging.Filter):
    """Lets a line that comes again and again through once a minute, with how often it came."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._known: dict[tuple[str, str, str], tuple[float, int]] = {}  # when a line was last let through, how many were not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is let through."""
        now, key = self._clock(), (record.name, TASK.get(), record.getMessage().removeprefix(_prefix())[:80])
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

    def stopping(self) -> bool:
        """Let it end after the present turn, and say whether that is still going on."""
        self._stopping.set()
        return self._thread.is_alive()

    def slow_down(self, pause: float) -> None:
        """Wait so many seconds between two turns from now on."""
        self._pause = pause

    def causes(self) -> str:
        """Why steps last failed; empty if none did."""
        return "; ".join(list(self._causes.values()))

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
        """Why the loop is not healthy: dead, stuck, or failing for a while; empty if it is."""
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
            pause = self._pause if outcome is TurnOutcome.DONE else max(self._pause, min(2 * pause, self._longest))


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
        raise ArgumentError("signing.key", str(file), "64 hex digits", "Restore the file; a new key is a new role.") from None


def settle() -> None:
    """Leave what is here out of every later search for garbage: modules have a million objects, and stay."""
    gc.collect()
    gc.freeze()


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
        config.load()
        if config.ssl is not None:  # no tickets: they cost a fifth of a handshake, and a connection says nothing of an earlier one
            config.ssl.num_tickets = 0
            config.ssl.options |= ssl.OP_NO_TICKET
        TimeoutProtocol.most_connections = room_for_connections()
        self._app, self._server, self._host, self._port = app, ClosingServer(config), host, port
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
                remedy = "The log says why; if another process uses it, stop that one or take another port."
                raise ArgumentError("--port", self._port, f"one that can be opened on {self._host}", remedy)
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


# The app of a role: binary bodies, and every refusal with a reason.

# Seconds after which a database that does not answer is not healthy.
_SLOW = 10.0


class Allowance:
    """How often a client may ask: `burst` requests at once, and `a_second` of them after that."""

    def __init__(self, a_second: float = 2.0, burst: int = 20) -> None:
        self._rate, self._burst, self._lock = a_second, burst, threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # requests left, and when that was so

    def take(self, client: str) -> None:
        now = time.monotonic()
        with self._lock:
            left, then = self._left.get(client, (float(self._burst), now))
            left = min(self._burst, left + (now - then) * self._rate)
            if left < 1:
                raise RefusedError(429, "too many requests; wait a little")
            self._left[client] = left - 1, now


def role_app(
    title: str, store: Database, loop: Loop | None = None, said: Callable[[], list[str]] | None = None
) -> tuple[FastAPI, CollectorRegistry]:
    """An app that tells its health: `loop` is the role's background loop, `said` what else there is to say of it, in lines."""
    app, registry = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None), CollectorRegistry()
    if loop is not None:
        since = Gauge("croupier_loop_seconds_since_success", "Since a loop last did all it had to", ["loop"], registry=registry)
        since.labels(loop.name).set_function(loop.since_success)
        healthy = Gauge("croupier_loop_healthy", "1 unless a loop is dead, stuck or failing", ["loop"], registry=registry)
        healthy.labels(loop.name).set_function(lambda: float(not loop.trouble()))

    def looked() -> tuple[str, list[str]]:
        trouble = "; ".join(filter(None, [store.trouble(), loop.trouble() if loop else ""]))
        lines = [loop.said()] if loop else []
        if trouble or said is None:
            return trouble, lines
        try:
            return "", lines + said()
        except SQLAlchemyError:  # the connection may be of a database server that was restarted since: by a new one
            with suppress(SQLAlchemyError):
                return "", lines + said()
        return "the database cannot be read", lines

    @app.get("/healthz")
    async def health() -> Response:
        trouble, lines = f"the database has not answered for {_SLOW:g} s", [loop.said()] if loop else []
        with anyio.move_on_after(_SLOW):
            trouble, lines = await anyio.to_thread.run_sync(looked, abandon_on_cancel=True)
        first = f"not ok: {trouble}" if trouble else "ok"
        answer = refusal_answer(503 if trouble else 200, "\n".join([first, *lines]))
        answer.headers["Date"] = formatdate(usegmt=True)  # whoever looks from outside compares clocks
        answer.headers["Croupier-Role"] = title.removeprefix("croupier ")
        return answer

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await run_in_threadpool(generate_latest, registry), media_type="text/plain; version=0.0.4")

    app.add_exception_handler(SQLAlchemyError, _unusable)
    app.add_exception_handler(OSError, _unusable)
    app.add_middleware(Careful)
    return app, registry


_UNUSABLE = "nothing can be written now; try again later"


async def _unusable(request: Request, problem: Exception) -> Response:
    """Nothing was written, since the disk is full or the database is away: the log has the cause, the sender comes again later."""
    _log_unusable(problem)
    return refusal_answer(503, _UNUSABLE)


def _log_unusable(problem: Exception) -> None:
    cause = cause_of(problem) if isinstance(problem, SQLAlchemyError) else f"{type(problem).__name__}: {problem}"[:200]
    log.error("a request was not served: %s", cause)


def careful_headers(secure: bool) -> list[tuple[bytes, bytes]]:
    """What every answer has: take it for what it says it is, keep it nowhere, come by https alone; and the version."""
    headers = [
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"croupier-version", __version__.encode()),
    ]
    return [*headers, (b"strict-transport-security", b"max-age=31536000")] if secure else headers


class Careful:
    """Adds `careful_headers` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *careful_headers(scope.get("scheme") == "https")]
            await send(message)

        await self._app(scope, receive, sent)


async def read_body(request: Request, most: int) -> bytes:
    """The body, refused as soon as it is longer than anything can be."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 20 or int(declared) > most:
        raise RefusedError(413, f"more than {most} bytes")
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > most:
            raise RefusedError(413, f"more than {most} bytes")
        parts.append(part)
    return b"".join(parts)


async def hand_over(request: Request, most: int, take: Callable[[bytes], None]) -> Response:
    """Give the body to whoever takes it. What is not as it should be will never be: said by us, not by something in between."""
    try:
        await run_in_threadpool(take, await read_body(request, most))
    except RefusedError as refusal:
        return refusal_answer(refusal.status, str(refusal))
    except WireError as problem:
        answer = refusal_answer(400, str(problem))
        answer.headers[FOR_GOOD] = "yes"
        return answer
    return Response(status_code=200)


def document_answer(document: Document | None) -> Response:
    return Response(document.to_bytes() if document else b"", media_type=BINARY)


def refusal_answer(status: int, reason: str) -> Response:
    return Response(reason + "\n", status_code=status, media_type="text/plain")


def bearer_token(request: Request) -> str:
    """Return the token that a request brings; none is empty."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind == "Bearer" else ""
