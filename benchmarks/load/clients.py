"""Clients as they are: each asks for the task and the round over TLS and sends its report, over one connection or three."""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rich.progress import track

from croupier.service.net import database as tables
from croupier.service.net.database import Database
from croupier.service.net.http import Server

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
                "connections_a_client": 1 if kept else 3,
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
            for path, brought in (("/v1/task", None), ("/v1/round", None), ("/v1/report", body)):
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
        kept = Database(f"sqlite:///{folder}/shuffler.db", tables.SHUFFLER)
        begun = time.perf_counter()
        for first in range(0, count, tables.TOGETHER):
            tables.enrol_all(kept, [tables.new_name() for _ in range(min(tables.TOGETHER, count - first))])
        seconds = time.perf_counter() - begun
        kept.close()
    return seconds
