"""Clients as they are: each asks for the task and the round over TLS and sends its report, over one connection or two."""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import track

from croupier.service.net.database import Database
from croupier.service.net.http import Server
from croupier.service.shuffler import rounds as shuffler_tables

from .sending import Delivery, request_of
from .sizes import Sizes
from .world import world


def clients(sizes: Sizes) -> dict[str, Any]:
    """What a client costs the shuffler by connections, and how long enrolling takes."""
    rows = []
    for kept in track((False, True), description="clients"):
        with world(sizes.strangers, tls=True) as there:
            before = there.shuffler.cpu_seconds()
            jobs = list(zip(there.tokens, there.bodies, strict=True))
            seconds = _sent(there.shuffler.url, there.shuffler.ca, jobs, kept)
            spent = there.shuffler.cpu_seconds() - before
            complete = there.trained.wait(60)
        rows.append(
            {
                "connections_a_client": 1 if kept else 2,
                "clients": sizes.strangers,
                "a_second": sizes.strangers / seconds,
                "shuffler_cpu_a_client": spent / sizes.strangers,
                "batch_arrived": complete,
            }
        )
    return {"rows": rows, "enrolled": sizes.enrolled, "enrolling_seconds": _enrolling(sizes.enrolled)}


def _sent(url: str, ca: Path | None, jobs: list[tuple[str, bytes]], kept: bool, threads: int = 8) -> float:
    """Seconds until all clients have answered, sent by another process."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=_send, args=(url, ca, jobs, kept, threads, out))
    process.start()
    try:
        return float(out.get(timeout=900))
    finally:
        process.kill()
        process.join()


def _send(url: str, ca: Path | None, jobs: list[tuple[str, bytes]], kept: bool, threads: int, out: Any) -> None:
    left, lock = iter(jobs), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                job = next(left, None)
            if job is None:
                return
            token, body = job
            server, known = Server(url, ca=ca), {"Authorization": f"Bearer {token}"}
            for path, brought in (("/v1/start", None), ("/v1/report", body)):
                server.send(path, brought, known)
                if not kept:
                    server.close()
            server.close()

    begun = time.perf_counter()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    out.put(time.perf_counter() - begun)


def _enrolling(count: int) -> float:
    """Seconds to enrol so many clients, as `croupier serve enrol` does."""
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as folder:
        kept = Database(f"sqlite:///{folder}/shuffler.db", shuffler_tables.SHUFFLER)
        begun = time.perf_counter()
        for first in range(0, count, shuffler_tables.TOGETHER):
            shuffler_tables.enrol_all(
                kept, [shuffler_tables.new_name() for _ in range(min(shuffler_tables.TOGETHER, count - first))]
            )
        seconds = time.perf_counter() - begun
        kept.close()
    return seconds


def visit(url: str, ca: Path | None, jobs: list[tuple[str, bytes]], threads: int, flags: Any, out: Any) -> None:
    """Every job is a client of its own: a new connection, by two or three requests, whichever the shuffler has."""
    left, lock, refusals = iter(range(len(jobs))), threading.Lock(), dict[int, int]()
    at, waits = [0.0] * len(jobs), [0.0] * len(jobs)
    host, port = url.split("://")[1].split(":")
    secure = None if ca is None else ssl.create_default_context(cafile=ca)
    known = ["/v1/start"] if _has_start(url, secure) else ["/v1/task", "/v1/round"]
    begun, cpu = time.perf_counter(), time.process_time()

    def asked(connection: Any, path: str, token: str) -> int:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        return _answered(connection, head.encode())

    def work() -> None:
        while True:
            with lock:
                job = next(left, None)
            if job is None:
                return
            token, body = jobs[job]
            sent = time.perf_counter()
            with socket.create_connection((host, int(port)), timeout=60) as plain, ExitStack() as stack:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = (
                    plain if secure is None else stack.enter_context(secure.wrap_socket(plain, server_hostname="localhost"))
                )
                status = [asked(connection, path, token) for path in known]
                status.append(_answered(connection, request_of(token, body)))
            at[job], waits[job] = time.perf_counter() - begun, time.perf_counter() - sent
            for one in status:
                if one != 200:
                    with lock:
                        refusals[one] = refusals.get(one, 0) + 1

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    out.put(Delivery(at, waits, 0, refusals, time.process_time() - cpu))


def _has_start(url: str, secure: ssl.SSLContext | None) -> bool:
    """Whether one answer holds task and round, as clients of this version ask for."""
    try:
        urllib.request.urlopen(f"{url}/v1/start", timeout=60, context=secure).close()
    except urllib.error.HTTPError as refusal:
        return refusal.code != 404
    return True


def _answered(connection: Any, request: bytes) -> int:
    """The status of the answer, all of which is read."""
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        if not (part := connection.recv(1 << 16)):
            raise ConnectionError
        answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    lower = head.lower()
    length = int(lower.split(b"\r\ncontent-length:", 1)[1].split(b"\r\n", 1)[0]) if b"\r\ncontent-length:" in lower else 0
    read = len(body)
    while read < length:
        if not (part := connection.recv(1 << 16)):
            raise ConnectionError
        read += len(part)
    return int(head[9:12])
