"""The parties of `croupier demo --deployed`: three roles as processes of their own, and all clients in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..service.client import Client
from ..service.http import ServerError
from ..service.records import Reader
from ..service.task import Task
from ..table.datasets import patients
from .progress import Stopped

# Clients that talk at the same time, seconds between two looks for a new round, and how long anything may take.
_TALKING, PAUSE, _PATIENCE = 8, 0.05, 120.0
_RETRIED = (None, 429, 503)


class Role:
    """A role as a process of its own, on a free port of this machine; gone when the context is left."""

    def __init__(self, name: str, folder: Path, *arguments: Any) -> None:
        self.name, self._log = name, folder / f"{name}.log"
        command = [sys.executable, "-c", "from croupier.cli import main; main()", "serve", name, "--dev", "--port", "0"]
        self._command = [*command, *map(str, arguments)]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Role:
        with self._log.open("w") as log:
            # In a session of its own: Ctrl-C is for us, and we stop it.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()  # "analyzer on https://127.0.0.1:..."
            if " on " not in line:
                raise self._failed("did not start")
        except BaseException:
            self.__exit__()
            raise
        self.url = line.split(" on ")[1].strip()
        return self

    def check(self) -> None:
        """Refuse to wait for a role that has ended."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise self._failed("ended")

    def wait(self) -> None:
        """Until it ends by itself."""
        assert self._process is not None
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise self._failed("does not end") from None
        if code:
            raise self._failed("ended")

    def _failed(self, how: str) -> Stopped:
        said = self._log.read_text().strip().splitlines()
        return Stopped(f"the {self.name} {how}: {said[-1] if said else 'it said nothing'}", 1)

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        try:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        finally:  # also after a second Ctrl-C
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


class Training:
    """All clients answer every round, a few of them at a time, each over connections of its own."""

    def __init__(self, clients: list[Client], *roles: Role) -> None:
        self._clients, self._roles = clients, roles
        self._stopping = threading.Event()
        self._deadline = time.monotonic() + _PATIENCE

    def run(self, rounds: int, console: Console, shown: bool) -> Task:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} reports"))
        pool = ThreadPoolExecutor(_TALKING)
        try:
            with Progress(*columns, TimeElapsedColumn(), console=console, disable=not shown, transient=True) as bar:
                shown_task = bar.add_task("starting", total=len(self._clients) * rounds)
                task = self._task()
                bar.update(shown_task, description="tokens")
                for _ in pool.map(self._collect, self._clients):
                    pass
                people = patients(len(self._clients), seed=0)
                X, y = Reader(task.records).of_pieces([people], "people")  # as each client does with its own record
                for number in range(1, rounds + 1):
                    self._wait_for(number)
                    bar.update(shown_task, description=f"round {number}/{rounds}")
                    for _ in pool.map(self._answer, self._clients, X, y):
                        bar.advance(shown_task)
            return task
        finally:
            self._stopping.set()
            pool.shutdown(cancel_futures=True)

    def _task(self) -> Task:
        while True:
            try:
                return self._clients[0].task()
            except ServerError as problem:
                self._later(problem)

    def _wait_for(self, number: int) -> None:
        """Until the shuffler takes reports of this round. One client looks for all of them."""
        while True:
            try:
                now = self._clients[0].round()
                if now is not None and now[1].number == number:
                    return
                self._later(None)
            except ServerError as problem:
                self._later(problem)

    def _collect(self, client: Client) -> None:
        self._until_done(client.collect)

    def _answer(self, client: Client, x: NDArray[Any], y: Any) -> None:
        self._until_done(lambda: client.take_part(x, y))

    def _until_done(self, step: Callable[[], object]) -> None:
        while not self._stopping.is_set():
            try:
                step()
                self._deadline = time.monotonic() + _PATIENCE  # it moves
                return
            except ServerError as problem:
                self._later(problem)

    def _later(self, problem: ServerError | None) -> None:
        """Wait a little, unless waiting will not help."""
        for role in self._roles:
            role.check()
        if problem is not None and problem.status not in _RETRIED:
            raise Stopped(f"a server says {problem.status}: {problem}", 1)
        if time.monotonic() > self._deadline:
            raise Stopped(f"nothing moved for {_PATIENCE:.0f} seconds" + (f": {problem}" if problem else ""), 1)
        self._stopping.wait(PAUSE)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """A request to terminate cleans up like Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def loopback_unproxied() -> Iterator[None]:
    """A proxy that the environment names cannot reach this machine's own addresses: do not ask it."""
    before = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    os.environ |= dict.fromkeys(before, "127.0.0.1,localhost")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
