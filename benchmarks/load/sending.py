"""Whoever sends: another process, with connections that stay open."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .world import World


@dataclass(frozen=True)
class Delivery:
    """What became of the reports: when each was acknowledged (seconds since the first), how long each took, what went wrong."""

    acknowledged: list[float]
    waits: list[float]
    broken: int  # connections that broke, to be made anew
    refusals: dict[int, int]
    cpu_seconds: float


def deliver(url: str, ca: Path | None, jobs: list[tuple[str, bytes]], connections: int, flags: Any, out: Any) -> None:
    """Send every report until it is acknowledged, over so many connections. `flags` says at any time which were."""
    jobs_left = iter(range(len(jobs)))
    lock, broken, refusals = threading.Lock(), [0], dict[int, int]()
    at, waits = [0.0] * len(jobs), [0.0] * len(jobs)
    host, port = url.split("://")[1].split(":")
    begun = time.perf_counter()

    def connected() -> http.client.HTTPConnection:
        if ca is None:
            return http.client.HTTPConnection(host, int(port), timeout=30)
        return http.client.HTTPSConnection(host, int(port), timeout=30, context=ssl.create_default_context(cafile=ca))

    def work() -> None:
        connection = connected()
        while True:
            with lock:
                job = next(jobs_left, None)
            if job is None:
                connection.close()
                return
            token, body = jobs[job]
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
            while not flags[job]:
                sent = time.perf_counter()
                try:
                    connection.request("POST", "/v1/report", body, headers)
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException):
                    connection.close()
                    connection = connected()
                    with lock:
                        broken[0] += 1
                    time.sleep(0.05)
                    continue
                now = time.perf_counter()
                if answer.status == 200:
                    flags[job] = 1
                    at[job], waits[job] = now - begun, now - sent
                else:  # 503 until a shuffler that was started anew has its task; anything else is a fault, and is reported
                    with lock:
                        refusals[answer.status] = refusals.get(answer.status, 0) + 1
                        if sum(refusals.values()) > 100_000:
                            os._exit(1)
                    time.sleep(0.05)

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put(Delivery(at, waits, broken[0], refusals, time.process_time()))


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
