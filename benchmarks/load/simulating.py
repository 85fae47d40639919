"""Very many people through the real roles: their databases and state machines, with a virtual clock and no sockets.

Everybody arrives once at a random moment, as fast as a million within an hour. What comes within a quarter of a second is one
transaction, as it is while another one waits for the disk. One in a hundred sends its report twice; one in a thousand then tries
another one. Reports are sealed for real; their counts are drawn here, so that the sum of each round is known exactly.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from rich.progress import Progress
from sqlalchemy import select

import croupier as cr
from croupier.optimizer.training import run
from croupier.protocol.randomness import KeyedRandom
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.net.database import Database
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.shuffler.rounds import SHUFFLER, lots
from croupier.service.wire.documents import Document
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.reports import count_width, packed_bytes
from croupier.service.wire.task import Accepted, RefusedError, Task, TaskRound
from croupier.service.wire.transports import SealedReport, seal_seed, seed_info

from .sizes import Sizes
from .world import enrolled

# How many come per second of the virtual clock, a million within an hour; and seconds in which what comes is one transaction.
_A_SECOND, _TOGETHER = 278.0, 0.25
_BEGIN = 1.8e9  # seconds since 1970


class VirtualClock:
    """A clock that is set."""

    jumps = 0

    def __init__(self) -> None:
        self.seconds = _BEGIN

    def now(self) -> float:
        """The time."""
        return self.seconds

    def look(self) -> None:
        """Nobody sets the system's clock."""


class Simulation:
    """A task of many people, both roles, and what was sent."""

    def __init__(
        self, folder: Path, people: int, rounds: int, dim: int = 2, seed: int = 0, pool: ProcessPoolExecutor | None = None
    ) -> None:
        self._pool = pool
        problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=dim, radius=5.0))
        about: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-8, "rounds": rounds, "rotation": False, "lots": "open"}
        self._schedule = cr.schedule(problem, people, **about)
        self._problem, self._rng, self.rounds = problem, np.random.default_rng(seed), self._schedule.rounds
        key, analyzer = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        self._key = analyzer
        self.task = Task("masked-sum", people, TrainingQuery(problem), self._schedule, key.public_key())
        url = f"sqlite:///{folder / 'shuffler.db'}"
        enrolled(url, people)
        self.store = Database(url, SHUFFLER)
        self.shuffler, self.clock = ShufflerRole(self.store, key, analyzer.public_key()), VirtualClock()
        self.shuffler.clock = self.clock  # type: ignore[assignment]
        self.shuffler.take_task(self.task.document(analyzer))
        analyzer_store = Database(f"sqlite:///{folder / 'analyzer.db'}", analyzer_tables.ANALYZER)
        self.population = RemotePopulation(self.task, analyzer_store, analyzer)
        self.seconds = dict.fromkeys(("clients", "taking", "forwarding", "analyzer"), 0.0)
        self.refused = self.twice = self.sent = self.bytes = 0
        self.expected, self.documents = list[list[int]](), 0

    def run(self, progress: Any = lambda users: None) -> None:
        """Every round, one after the other."""
        thread = threading.Thread(target=self._train, daemon=True)
        thread.start()
        for _ in range(self.rounds):
            while (document := self.population.current()) is None or self.shuffler.rounds.last_opened() == self._number(document):
                if not thread.is_alive():
                    raise RuntimeError("the analyzer has ended")
                time.sleep(0.002)
            self._round(document, progress)
        thread.join()

    def _number(self, document: Document) -> tuple[int, float] | None:
        """What `last_opened` says where this round is open already."""
        last = self.shuffler.rounds.last_opened()
        number = TaskRound.read(document, self.task, self._key.public_key()).number
        return last if last is not None and last[0] == number else (-1, 0.0)

    def _train(self) -> None:
        with suppress(KeyboardInterrupt):
            run(self._problem, self.population, self._schedule, start=np.zeros(self._problem.domain.dim))

    def _round(self, document: Document, progress: Any) -> None:
        """Those who were drawn come, each in its own time; then what the shuffler's errands do."""
        task_round, started = self.shuffler.open(document), self.shuffler.document
        self.documents = len(document.to_bytes()) + len(b"" if started is None else started.to_bytes())
        here = lots.c.first <= task_round.number, lots.c.last >= task_round.number
        with self.store.look() as connection:
            names = list(connection.execute(select(lots.c.client).where(*here)).scalars())
        self._rng.shuffle(names)
        times = np.sort(self._rng.uniform(0, len(names) / _A_SECOND, len(names)))
        groups = np.split(np.arange(len(names)), np.flatnonzero(np.diff(times // _TOGETHER)) + 1)
        total, opened = np.zeros(task_round.phase_of(self.task).plan.coordinates, np.int64), self.clock.seconds
        plan, key = task_round.phase_of(self.task).plan, task_round.key.public_bytes_raw()
        drawn = [self._rng.integers(0, plan.bits_per_coordinate + 1, (len(group), plan.coordinates)) for group in groups]
        about = (key, document.digest, count_width(plan), plan.bits_per_coordinate)
        made = (self._pool.map if self._pool else map)(_reports, [(counts, *about) for counts in drawn])
        for group, counts, (bodies, seconds) in zip(groups, drawn, made, strict=True):
            self.clock.seconds = opened + times[group[-1]]
            self.seconds["clients"] += seconds
            self._arrive([names[who] for who in group.tolist()], bodies)
            total += counts.sum(axis=0)
            progress(len(group))
        self.expected.append(total.tolist())
        self._errands()

    def _arrive(self, names: list[str], bodies: list[bytes]) -> None:
        """A transaction's worth of people."""
        reports = list(zip(names, bodies, strict=True))
        again = [report for report in reports if self._rng.uniform() < 0.01]
        others = [(name, bodies[0][:48] + os.urandom(len(body) - 49) + b"\0") for name, body in again if self._rng.uniform() < 0.1]
        begun = time.process_time()
        outcomes = self.shuffler.receive_all([*reports, *again, *others])
        self._spent("taking", begun)
        taken = outcomes[: len(names) + len(again)]
        if not all(isinstance(outcome, Accepted) for outcome in taken):
            raise RuntimeError("a report was not taken")
        self.refused += sum(isinstance(outcome, RefusedError) for outcome in outcomes[len(taken) :])
        self.twice, self.sent = self.twice + len(again), self.sent + len(names)
        self.bytes += sum(map(len, bodies))

    def _errands(self) -> None:
        """Batch, exclusions and release, as the relay brings them."""
        begun = time.process_time()
        waiting = self.shuffler.waiting_batch()
        assert waiting is not None
        name, batch = waiting
        self.population.take(batch)
        self.shuffler.forwarded(name)
        while (exclusions := self.population.exclusions(name)) is None:
            time.sleep(0.002)
        self._spent("analyzer", begun)
        begun = time.process_time()
        self.shuffler.exclude(exclusions)
        release = self.shuffler.waiting_release()
        assert release is not None
        self._spent("forwarding", begun)
        self.population.take_release(release[1])
        self.shuffler.released(name)

    def _spent(self, what: str, begun: float) -> None:
        self.seconds[what] += time.process_time() - begun

    def found(self) -> dict[str, Any]:
        """What came of the rounds so far."""
        return {
            "people": self.sent,
            "rounds": len(self.expected),
            "sums_are_exact": self.counted() == self.expected,
            "sent_twice": self.twice,
            "others_refused": self.refused,
            "bytes_a_report": self.bytes / self.sent,
            "document_bytes": self.documents,  # what a client is sent
            "database_bytes": Path(self.store.engine.url.database or "").stat().st_size,
            "virtual_seconds": self.clock.seconds - _BEGIN,
            "cpu": self.seconds,
        }

    def counted(self) -> list[list[int]]:
        """What the analyzer has of every round, in order."""
        asked = analyzer_tables.asked
        with self.population.store.look() as connection:
            rows = (
                connection.execute(select(asked.c.ones).where(asked.c.ones.is_not(None)).order_by(asked.c.number)).scalars().all()
            )
        return [json.loads(row) for row in rows]


def _reports(work: tuple[np.ndarray, bytes, bytes, int, int]) -> tuple[list[bytes], float]:
    """Sealed reports of these counts, and the seconds that they took."""
    (counts, key, *about), begun = work, time.process_time()
    public = X25519PublicKey.from_public_bytes(key)
    return [_report(row, public, *about) for row in counts.tolist()], time.process_time() - begun


def _report(counts: list[int], key: X25519PublicKey, digest: bytes, width: int, messages: int) -> bytes:
    """A report by the words of docs/protocol.md: counts and masks as one long number each."""
    seed, length = os.urandom(32), packed_bytes(len(counts), width)
    stream = int.from_bytes(KeyedRandom(seed, private=True).draw_bytes(length), "little")
    most = (1 << width) - 1
    number = sum((count + (stream >> (place * width)) & most) << (place * width) for place, count in enumerate(counts))
    envelope = seal_seed(seed, key, seed_info("masked-sum", digest))
    packed = np.frombuffer(number.to_bytes(length, "little"), np.uint8)
    return SealedReport("masked-sum", digest, len(counts), messages, envelope, packed, width).to_bytes()


def simulate(sizes: Sizes) -> dict[str, Any]:
    """The whole task; seconds are of the processor. Devices' reports are sealed in processes of their own."""
    begun, context = time.perf_counter(), multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="croupier-load-") as name,
        ProcessPoolExecutor(os.cpu_count(), context) as pool,
        Progress() as shown,
    ):
        simulation = Simulation(Path(name), sizes.simulated, sizes.simulated_rounds, pool=pool)
        bar = shown.add_task("people", total=sizes.simulated)
        simulation.run(lambda users: shown.advance(bar, users))
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of both roles
        return simulation.found() | {"seconds": time.perf_counter() - begun, "peak_bytes": peak}
