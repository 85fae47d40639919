"""The analyzer: runs an optimizer over users it never sees. It publishes rounds, and opens batches that its shuffler forwards."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import func, insert, select, update

from ..optimizer.minimize import Gradients
from ..optimizer.phases import objective_of
from ..population import Question
from ..population.population import Test
from ..privacy import SumPlan
from ..protocol import Counts, SumEstimate, VectorSum
from ..validation import ArgumentError
from . import store as tables
from .store import Store
from .task import Round, Task
from .transport import opened
from .wire import Batch, Document, WireError


@dataclass(frozen=True)
class Answered:
    """A round that was answered: its number and phase, how many users, and the length of their private mean gradient."""

    number: int
    phase: int
    users: int
    length: float


class RemotePopulation:
    """Users behind a shuffler, as an optimizer sees them: a `Population` whose `answer` publishes a round and waits for its batch.

    Every step is on disk before it is acted upon: a round before it is published, counts before the optimizer sees them. A
    question that was asked before, by a process that is gone, is the same round, and its answer the one that came. `pool` shares
    the work of opening envelopes.
    """

    def __init__(self, task: Task, store: Store, key: Ed25519PrivateKey, *, pool: Executor | None = None) -> None:
        self.task, self.store, self._key, self._pool = task, store, key, pool
        self.document = task.document(key)
        self._arrived = threading.Condition()
        self._taking = threading.Lock()  # a batch that is sent again while it is being opened waits, and is old then
        self._stopped = False

    @property
    def users(self) -> int:
        return self.task.users

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Nothing: records are where nobody can look at them. Devices check their own."""
        return None

    def answer(self, question: Question) -> SumEstimate:
        """Publish the round, wait for its batch, and estimate the sum from its counts."""
        query = question.query
        if not isinstance(query, Gradients):
            raise ArgumentError("question.query", type(query).__name__, "gradients of the task's problem", "Use minimize.")
        name = question.secret.derive("name of the round").key[:16].hex()
        with self._arrived:
            self._publish(name, query, question.plan)
            while (counts := self._counts(name)) is None:
                if self._stopped:
                    raise KeyboardInterrupt
                self._arrived.wait(timeout=1.0)
        return VectorSum(question.plan).analyze(counts)

    def current(self) -> Document | None:
        """The round that is waited for."""
        with self.store.begin() as connection:
            found = connection.execute(select(tables.asked.c.document).where(tables.asked.c.ones.is_(None))).scalar()
        return None if found is None else Document.from_bytes(found)

    def waiting(self) -> Round | None:
        """The round that is waited for, read."""
        document = self.current()
        return None if document is None else Round.read(document, self.task, self._key.public_key())

    def answered(self, after: int = 0) -> list[Answered]:
        """The rounds beyond number `after` that were answered, in order: what they released, and nothing else."""
        asked = tables.asked.c
        with self.store.begin() as connection:
            query = select(asked.number, asked.document, asked.ones, asked.users).where(asked.ones.is_not(None))
            found = connection.execute(query.where(asked.number > after).order_by(asked.number)).all()
        rounds = []
        for number, document, ones, users in found:
            phase = Round.read(Document.from_bytes(document), self.task, self._key.public_key()).phase
            counts = Counts(np.array(json.loads(ones), dtype=np.int64), users, private=True)
            mean = VectorSum(self.task.schedule.phases[phase - 1].plan).analyze(counts).mean
            rounds.append(Answered(number, phase, users, float(np.linalg.norm(mean))))
        return rounds

    def take(self, data: bytes) -> None:
        """A batch from the shuffler: opened, and its counts written down. The same batch again changes nothing."""
        with self._taking:
            self._take(data, self._document(data[16:48]))

    def _take(self, data: bytes, document: Document) -> None:
        made = Round.read(document, self.task, self._key.public_key())
        plan = made.phase_of(self.task).plan
        batch = Batch.from_bytes(data, plan.bits_per_coordinate, self.task.shuffler)
        if batch.transport != self.task.transport or batch.dim != plan.dim or not plan.honest_users <= batch.users <= plan.users:
            raise WireError("a batch of another shape than the task's")
        with self.store.begin() as connection:
            private = connection.execute(select(tables.asked.c.key).where(tables.asked.c.id == made.id)).scalar_one()
        if private is None:  # it was taken before: the shuffler did not hear that it had arrived
            return
        counts = opened(batch, plan, X25519PrivateKey.from_private_bytes(private), self._pool)
        with self._arrived, self.store.begin() as connection:
            values = {"ones": json.dumps(counts.ones.tolist()), "users": counts.users, "key": None}
            connection.execute(update(tables.asked).where(tables.asked.c.id == made.id).values(**values))
            self._arrived.notify_all()
        self.store.wipe()

    def stop(self) -> None:
        """Let `answer` end: nothing is lost, since all of it is on disk."""
        with self._arrived:
            self._stopped = True
            self._arrived.notify_all()

    def _publish(self, name: str, query: Gradients, plan: SumPlan) -> None:
        phase = self._phase_of(query, plan)
        with self.store.begin() as connection:
            if connection.execute(select(tables.asked.c.id).where(tables.asked.c.id == name)).scalar() is not None:
                return
            number = int(connection.execute(select(func.count()).select_from(tables.asked)).scalar_one()) + 1
            private = X25519PrivateKey.generate()
            made = Round(self.task.id, name, number, phase, query.theta, private.public_key())
            values = {"id": name, "number": number, "document": made.document(self._key).to_bytes()}
            connection.execute(insert(tables.asked).values(**values, key=private.private_bytes_raw()))

    def _phase_of(self, query: Gradients, plan: SumPlan) -> int:
        """The phase, counted from 1, that asks under this plan and descends on this objective."""
        for number, phase in enumerate(self.task.schedule.phases, start=1):
            if phase.plan == plan and objective_of(self.task.problem, phase) == query.objective:
                return number
        raise ArgumentError("question", str(plan), "a round of the task's schedule", "Run the schedule of the task.")

    def _counts(self, name: str) -> Counts | None:
        with self.store.begin() as connection:
            query = select(tables.asked.c.ones, tables.asked.c.users).where(tables.asked.c.id == name)
            found = connection.execute(query).one()
        return None if found.ones is None else Counts(np.array(json.loads(found.ones), dtype=np.int64), found.users, private=True)

    def _document(self, digest: bytes) -> Document:
        """That of the round that a batch is about: the one that is waited for, or one before, under its own plan."""
        with self.store.begin() as connection:
            documents = connection.execute(select(tables.asked.c.document)).scalars().all()
        known = next((found for found in map(Document.from_bytes, documents) if found.digest == digest), None)
        if known is None:
            raise WireError("a batch of no round of this task")
        return known
