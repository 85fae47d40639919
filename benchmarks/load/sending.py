"""The sender: another process, with connections that stay open. One thread and bare sockets, to cost little itself."""

from __future__ import annotations

import heapq
import multiprocessing
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .world import World

# Seconds after which something that was refused or broke is sent again, and after which an answer is missed.
_AGAIN, _MISSED = 0.05, 30.0
# Refusals after which the run is given up.
_MOST_REFUSALS = 100_000


@dataclass(frozen=True)
class Delivery:
    """What became of the reports: when each was acknowledged (seconds since the first), how long each took, what went wrong."""

    acknowledged: list[float]
    waits: list[float]
    broken: int  # connections that broke, to be made anew
    refusals: dict[int, int]
    cpu_seconds: float


class _Sender:
    """One connection, which sends one report after the other and waits for each answer."""

    def __init__(self, address: tuple[str, int], secure: ssl.SSLContext | None) -> None:
        self._address, self._secure = address, secure
        self.socket: socket.socket | None = None
        self.job = -1
        self.sent, self._answer = 0.0, b""

    def send(self, job: int, request: bytes) -> None:
        """Begin; `OSError` where the connection breaks."""
        self.job, self.sent, self._answer = job, time.perf_counter(), b""
        if self.socket is None:
            plain = socket.create_connection(self._address, timeout=_MISSED)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket = plain if self._secure is None else self._secure.wrap_socket(plain, server_hostname="localhost")
        self.socket.sendall(request)

    def received(self) -> int | None:
        """The status of the answer; None while it is not all here. `OSError` where the connection is closed."""
        assert self.socket is not None
        if not (part := self.socket.recv(1 << 16)):
            raise ConnectionError
        self._answer += part
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        if not blank:
            return None
        lower = head.lower()
        at = lower.find(b"\r\ncontent-length:")
        length = 0 if at < 0 else int(lower[at + 17 :].split(b"\r\n", 1)[0])
        if b"\r\nconnection: close" in lower:
            self.close()
        return int(head[9:12]) if len(body) >= length else None

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def request_of(token: str, body: bytes) -> bytes:
    """The bytes of one POST of a report."""
    head = f"POST /v1/report HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class _Deliverer:
    """Sends requests over several connections, each until it is acknowledged."""

    def __init__(self, requests: list[bytes], flags: Any) -> None:
        self._requests, self._flags, self._left = requests, flags, iter(range(len(requests)))
        self._later = list[tuple[float, int, _Sender]]()  # what is sent again, by when
        self._ready, self._busy = selectors.DefaultSelector(), 0
        self.broken, self.refusals = 0, dict[int, int]()
        self.at, self.waits = [0.0] * len(requests), [0.0] * len(requests)

    def run(self, senders: list[_Sender]) -> None:
        """Until all are acknowledged."""
        self._begun = time.perf_counter()
        for sender in senders:
            self._busy += 1
            self._next(sender)
        while self._busy:
            wait = max(0.0, self._later[0][0] - time.perf_counter()) if self._later else None
            for key, _ in self._ready.select(wait):
                self._hear(key.data)
            while self._later and self._later[0][0] <= time.perf_counter():
                _, job, sender = heapq.heappop(self._later)
                self._send(sender, job)

    def _next(self, sender: _Sender) -> None:
        job = next(self._left, None)
        if job is None:
            self._busy -= 1
        else:
            self._send(sender, job)

    def _send(self, sender: _Sender, job: int) -> None:
        before = sender.socket
        try:
            sender.send(job, self._requests[job])
        except OSError:
            self._break(sender, before)
        else:
            if sender.socket is not before and sender.socket is not None:
                self._ready.register(sender.socket, selectors.EVENT_READ, sender)

    def _hear(self, sender: _Sender) -> None:
        before, job = sender.socket, sender.job
        try:
            status = sender.received()
        except OSError:
            self._break(sender, before)
            return
        if status is None:
            return
        if sender.socket is None and before is not None:  # the server closes it
            self._ready.unregister(before)
        now = time.perf_counter()
        if status == 200:
            self._flags[job] = 1
            self.at[job], self.waits[job] = now - self._begun, now - sender.sent
            self._next(sender)
            return
        self.refusals[status] = self.refusals.get(status, 0) + 1
        if sum(self.refusals.values()) > _MOST_REFUSALS:
            os._exit(1)
        self._again(sender)  # 503 until a shuffler that was started anew has its task; anything else is a fault, and is reported

    def _break(self, sender: _Sender, known: socket.socket | None) -> None:
        self.broken += 1
        if known is not None:
            self._ready.unregister(known)
        sender.close()
        self._again(sender)

    def _again(self, sender: _Sender) -> None:
        heapq.heappush(self._later, (time.perf_counter() + _AGAIN, sender.job, sender))


def deliver(url: str, ca: Path | None, jobs: list[tuple[str, bytes]], connections: int, flags: Any, out: Any) -> None:
    """Send every report until it is acknowledged, over so many connections. `flags` says at any time which were."""
    host, port = url.split("://")[1].split(":")
    secure = None if ca is None else ssl.create_default_context(cafile=ca)
    cpu, deliverer = time.process_time(), _Deliverer([request_of(token, body) for token, body in jobs], flags)
    deliverer.run([_Sender((host, int(port)), secure) for _ in range(connections)])
    out.put(Delivery(deliverer.at, deliverer.waits, deliverer.broken, deliverer.refusals, time.process_time() - cpu))


@contextmanager
def delivering(there: World, connections: int) -> Iterator[tuple[Any, Any, Callable[[], Delivery]]]:
    """A process that sends everything: which reports are acknowledged by now, the process, and a call that waits for its end."""
    context = multiprocessing.get_context("spawn")
    flags = context.RawArray("b", len(there.bodies))
    out = context.Queue()
    jobs = list(zip(there.tokens, there.bodies, strict=True))
    process = context.Process(target=deliver, args=(there.shuffler.url, there.shuffler.ca, jobs, connections, flags, out))
    process.start()
    try:
        yield flags, process, partial(out.get, timeout=900)
    finally:
        process.kill()
        process.join()
