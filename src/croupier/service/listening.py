"""What a web server does about clients that break the rules: half-sent requests and unread answers end, connections are limited."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn import Server as WebServer
from uvicorn.protocols.http.h11_impl import H11Protocol

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


class ImpatientProtocol(H11Protocol):
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
        """Close in time: what is being closed waits for the client to read."""
        super().on_response_complete()
        self._close_in_time()

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


class Seldom(logging.Filter):
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
