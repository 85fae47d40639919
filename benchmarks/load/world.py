"""A shuffler in a process of its own, and what it needs around it."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import insert

import croupier as cr
from croupier.optimizer.training import run
from croupier.protocol import SecureRandom, VectorSum
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.net import database as tables
from croupier.service.net.database import Database
from croupier.service.net.server import Served, development_certificate, signing_key
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.wire.documents import Document
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS

from .sizes import DIM

CLI = [sys.executable, "-c", "from croupier.cli import main; main()", "serve"]


@dataclass(frozen=True)
class Placed:
    """Where a shuffler keeps what it has, as how many processes it runs, and how many coordinates it is asked about."""

    database: str
    processes: int
    dim: int = DIM


class Shuffling:
    """A shuffler as a process of its own that can be killed and started again where it was; use it as a context."""

    def __init__(
        self,
        folder: Path,
        analyzer: str,
        analyzer_key: str,
        *,
        tls: bool = False,
        ca: Path | None = None,
        placed: Placed | None = None,
    ) -> None:
        self.folder, self.starts = folder, 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        options = ["--dir", folder, "--analyzer", analyzer, "--analyzer-key", analyzer_key, "--port", self.port, "--smallest", 2]
        self._command = [*CLI, "shuffler", *map(str, options), *(["--dev"] if tls else []), *(["--ca", str(ca)] if ca else [])]
        if placed is not None:
            self._command += ["--database", placed.database, "--processes", str(placed.processes)]
        self.ca = development_certificate(folder)[0] if tls else None
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it has its task and takes reports."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.starts += 1
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError):
                if got(self.url + "/v1/task", self.ca) and got(self.url + "/v1/round", self.ca):
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the shuffler did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()  # of several processes the others end by themselves
        self.process.wait()

    def cpu_seconds(self) -> float:
        """Of the present process, so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Shuffling:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def got(url: str, ca: Path | None = None) -> bytes:
    """What a GET of this address answers."""
    secure = None if ca is None else ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(url, timeout=10, context=secure) as answer:
        data: bytes = answer.read()
    return data


@dataclass
class World:
    """One open round of a task, an analyzer in this process, a shuffler in its own, and reports that wait to be sent."""

    shuffler: Shuffling
    population: RemotePopulation
    clients: list[str]
    tokens: list[str]
    bodies: list[bytes]
    ones: np.ndarray  # of all reports together
    made_in: float  # seconds for all reports, one process
    trained: threading.Event = field(default_factory=threading.Event)


@contextmanager
def world(
    reports: int, tls: bool = False, placed: Placed | None = None, *, transport: str = "masked-sum", dim: int = DIM
) -> Iterator[World]:
    """A round of so many users."""
    dim = dim if placed is None else placed.dim
    folder = Path(tempfile.mkdtemp(prefix="croupier-load-"))
    try:
        problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=dim, radius=5.0))
        one_round = cr.schedule(
            problem, reports, epsilon=1.0, delta=1e-6, rounds=1, method="acsa", interactivity="full", rotation=False
        )
        role_key = signing_key(folder / "shuffler")
        analyzer_key = Ed25519PrivateKey.generate()
        task = Task(transport, reports, TrainingQuery(problem), one_round, role_key.public_key())
        population = RemotePopulation(task, Database(f"sqlite:///{folder / 'analyzer.db'}", analyzer_tables.ANALYZER), analyzer_key)
        trained = threading.Event()

        def train() -> None:
            with suppress(KeyboardInterrupt):
                run(problem, population, one_round, start=np.zeros(dim))
                trained.set()

        url = f"sqlite:///{folder / 'shuffler' / 'shuffler.db'}" if placed is None else placed.database
        clients, tokens = enrolled(url, reports)
        thread = threading.Thread(target=train, daemon=True)
        thread.start()
        while (document := population.current()) is None:
            time.sleep(0.01)
        bodies, ones, seconds = sealed_reports(document, task, analyzer_key, reports)
        public = analyzer_key.public_key().public_bytes_raw().hex()
        with (
            Served(analyzer_app(population)) as served,
            _shuffling(folder / "shuffler", served.url, public, tls, placed) as shuffler,
        ):
            yield World(shuffler, population, clients, tokens, bodies, ones, seconds, trained)
            population.stop()
            thread.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shuffling(folder: Path, analyzer: str, key: str, tls: bool, placed: Placed | None) -> Shuffling:
    return Shuffling(folder, analyzer, key, tls=tls, placed=placed)


def enrolled(database: str, count: int) -> tuple[list[str], list[str]]:
    """Clients at a shuffler that is not running, all in one transaction."""
    kept = Database(database, shuffler_tables.SHUFFLER)
    names = [f"client-{number:06}" for number in range(count)]
    tokens = [f"token-{number:06}-{os.urandom(16).hex()}" for number in range(count)]
    with kept.begin() as connection:
        rows = [{"id": name, "token_hash": tables.hash_of(token)} for name, token in zip(names, tokens, strict=True)]
        connection.execute(insert(shuffler_tables.clients), rows)
    kept.close()
    return names, tokens


def sealed_reports(document: Document, task: Task, key: Ed25519PrivateKey, count: int) -> tuple[list[bytes], np.ndarray, float]:
    """Reports of random vectors, the sum of their bits, and how long it took."""
    opened_round = TaskRound.read(document, task, key.public_key())
    plan = opened_round.phase_of(task).plan
    protocol, source, rng = VectorSum(plan), SecureRandom(), np.random.default_rng(0)
    dim = task.query.dim
    bodies, ones = [], np.zeros(dim, dtype=np.int64)
    begun = time.perf_counter()
    for _ in range(count):
        vector = rng.normal(size=dim)
        bits = protocol.randomize(plan.norm * vector / np.linalg.norm(vector), source)
        ones += bits.bits.sum(axis=1, dtype=np.int64)
        bodies.append(TRANSPORTS[task.transport].seal(bits, plan, document.digest, opened_round.key).to_bytes())
    return bodies, ones, time.perf_counter() - begun
