"""The analyzer: runs an optimizer over users it never sees. It publishes rounds, and opens batches that its shuffler forwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import func, insert, select, update

from ..optimizer._gradients import Gradients
from ..optimizer.phases import objective_of
from ..population import Question
from ..population.population import Test
from ..privacy import SumPlan
from ..protocol import SumEstimate
from ..validation import ArgumentError
from . import store as tables
from .committing import estimate_of, exclusions_of, look_into, take_release
from .documents import Document, WireError
from .exclusions import Release
from .finishing import AnalyzerEnding
from .margin import fewest
from .outcomes import Answered, LostError, SpoiledError
from .queries import AskedQuery
from .store import Database, Result
from .task import Task, TaskRound
from .wire import SealedBatch, batch_bytes


class RemotePopulation:
    """Users behind a shuffler, as an optimizer sees them: a `Population` whose `answer` publishes a round and waits for its batch.

    Every step is on disk before it is acted upon: a round before it is published, a batch before the shuffler forgets it, counts
    before the optimizer sees them. If a process that is gone has asked the same question before, it is the same round, and its
    answer is the one that came.

    Parameters
    ----------
    task : Task
        What is trained and how.
    store : Database
        The analyzer's database.
    key : Ed25519PrivateKey
        The analyzer's key, which signs the task and its rounds.
    pool : Executor, optional
        Shares the work of opening envelopes.

    Attributes
    ----------
    users : int
        How many users the task asks.
    private : bool
        True: devices add the plan's noise.
    unit : str
        "person": a client has all rows of whoever runs it.
    turnout : float
        The fraction of users that is counted on to come to their round, where lots are secret.
    document : Document
        The signed task.
    ending : AnalyzerEnding
        Where the task's end is declared.

    Guarantee
    ---------
    That of the task's schedule, under the assumptions in docs/threat-model.md. A batch is opened once, and then its key is
    deleted.
    """

    private = True  # devices add the plan's noise
    unit = "person"  # a client has all rows of whoever runs it

    def __init__(self, task: Task, store: Database, key: Ed25519PrivateKey, *, pool: Executor | None = None) -> None:
        self.task, self.store, self._key, self._pool = task, store, key, pool
        self.document = task.document(key)
        self.ending = AnalyzerEnding(task, store, key)
        with store.begin() as connection:
            store.keep_task(connection, task.id, self.document)
        self.page: str | None = None  # the answer to a question, as a page, once there is one
        self._arrived = threading.Condition()
        self._stopped = False

    @property
    def users(self) -> int:
        """How many users the task asks."""
        return self.task.users

    @property
    def turnout(self) -> float:
        """The fraction of users that is counted on to come to their round, where lots are secret."""
        lots = self.task.schedule.phases[0].lots
        return 1.0 if lots is None else lots.turnout

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Do nothing: records are where nobody can look at them. Devices check their own.

        Parameters
        ----------
        test : callable
            Not used.
        key : bytes, optional
            Not used.

        Returns
        -------
        None
            No digest: the analyzer cannot see the records.
        """
        return None

    def answer(self, question: Question) -> SumEstimate:
        """Publish the round, wait for its batch, and estimate the sum from its counts.

        Parameters
        ----------
        question : Question
            A round of the task's schedule.

        Returns
        -------
        SumEstimate
            The noisy sum, with its guarantee.

        Raises
        ------
        ArgumentError
            Where the question is not the task's next round; nothing was published.
        SpoiledError
            Where the batch has more bad reports than the task can bear.
        LostError
            Where the task asks one question, and nothing could be made of its round.
        KeyboardInterrupt
            After `stop`.
        """
        query, asked = question.query, self.task.problem
        if not isinstance(query, Gradients) and not (isinstance(asked, AskedQuery) and asked.asks(query)):
            raise ArgumentError("question.query", type(query).__name__, "gradients of the task's problem", "Use minimize.")
        name = question.secret.derive("name of the round").key[:16].hex()
        self._insist(partial(self._publish, name, question))
        while (estimate := self._insist(partial(self._estimate, name, question.plan))) is None:
            if (batch := self._insist(partial(self._batch, name))) is not None:
                self._insist(partial(self._open, name, batch))
        if (lost := self._insist(self._lost)) is not None:
            raise lost
        return replace(estimate, guarantee=question.promised(estimate.guarantee))

    def _insist(self, do: Callable[[], Result]) -> Result:
        """A database that is restarted does not end a run: every step is done again if need be."""
        return self.store.insist(do, lambda: self._stopped)

    def current(self) -> Document | None:
        """Return the round that is waited for, as its signed document.

        Returns
        -------
        Document or None
            None where no round is waited for.
        """
        columns = tables.asked.c
        with self.store.look() as connection:
            open_ones = columns.key.is_not(None) & columns.ones.is_(None) & columns.batch.is_(None) & columns.spoiled.is_(None)
            query = select(columns.document).where(open_ones)
            stored = connection.execute(query).scalar()
        return None if stored is None else Document.from_bytes(stored)

    def spoiled(self) -> str | None:
        """Return why the task has ended before its time: a batch had too many bad reports, or a question has no answer.

        Returns
        -------
        str or None
            The reason; None where the task goes on, or has ended well.
        """
        columns = tables.asked.c
        with self.store.look() as connection:
            row = connection.execute(select(columns.number, columns.spoiled).where(columns.spoiled.is_not(None))).first()
        if row is not None:
            return str(SpoiledError(row.number, row.spoiled))
        return None if (lost := self._lost()) is None else str(lost)

    def _lost(self) -> LostError | None:
        """The end of a question whose only round had counts that no users could have sent. A sum of 0 would be a false answer."""
        if not isinstance(self.task.problem, AskedQuery):
            return None
        found = tables.found.c
        query = select(tables.asked.c.number, found.dropped).join_from(tables.found, tables.asked)
        with self.store.look() as connection:
            row = connection.execute(query.where(found.dropped.is_not(None))).first()
        return None if row is None else LostError(row.number, row.dropped, self.task.transport)

    def waiting(self) -> TaskRound | None:
        """Return the round that is waited for, read from its document.

        Returns
        -------
        TaskRound or None
            None where no round is waited for.
        """
        document = self.current()
        return None if document is None else TaskRound.read(document, self.task, self._key.public_key())

    def answered(self, after: int = 0) -> list[Answered]:
        """Return the rounds that were answered, in order: what they released, and nothing else.

        Parameters
        ----------
        after : int, default 0
            Only rounds beyond this number.

        Returns
        -------
        list of Answered
            One entry per round.
        """
        columns = tables.asked.c
        with self.store.look() as connection:
            query = select(
                columns.number, columns.document, columns.ones, columns.users, tables.found.c.bad, tables.found.c.dropped
            )
            query = query.outerjoin_from(tables.asked, tables.found).where(columns.ones.is_not(None) & (columns.number > after))
            rows = connection.execute(query.order_by(columns.number)).all()
        rounds = []
        for number, document, ones, users, bad, dropped in rows:
            phase = TaskRound.read(Document.from_bytes(document), self.task, self._key.public_key()).phase
            planned = self.task.schedule.phases[phase - 1]
            estimate = estimate_of(ones, users, planned.plan)
            mean = estimate.mean if planned.lots is None else estimate.sum / planned.mean_of
            rounds.append(Answered(number, phase, users, float(np.linalg.norm(mean)), bad or 0, dropped))
        return rounds

    def take(self, data: bytes) -> None:
        """Take a batch from the shuffler: it is checked, and on disk when this returns. Whoever waits for it opens it.

        The same batch again changes nothing.

        Parameters
        ----------
        data : bytes
            The signed batch.

        Raises
        ------
        WireError
            Where the batch is not signed by the task's shuffler, is of no round of this task, or has another shape.
        """
        task_round = TaskRound.read(self._document(data[16:48]), self.task, self._key.public_key())
        phase, plan = task_round.phase_of(self.task), task_round.phase_of(self.task).plan
        batch = SealedBatch.from_bytes(data, plan.bits_per_coordinate, self.task.shuffler)
        enough = fewest(self.task, phase) <= batch.users <= plan.users
        if batch.transport != self.task.transport or batch.dim != plan.dim or not enough:
            raise WireError("a batch of another shape than the task's")
        without = batch_bytes(batch.transport, batch.dim, batch.users, plan.bits_per_coordinate)
        if len(data) != without + batch.users * self.task.token_bytes:
            raise WireError("a batch of another shape than the task's")
        here, columns = tables.asked.c.id == task_round.id, tables.asked.c
        with self._arrived, self.store.begin() as connection:
            first = columns.key.is_not(None) & columns.batch.is_(None)
            connection.execute(update(tables.asked).where(here & first).values(batch=data))
            self._arrived.notify_all()

    def exclusions(self, round_id: str) -> Document | None:
        """Return the signed list of the reports that are left out of a round.

        Parameters
        ----------
        round_id : str
            The round's id.

        Returns
        -------
        Document or None
            None where the round's batch is not checked yet.
        """
        return exclusions_of(self.store, round_id)

    def take_release(self, data: bytes) -> None:
        """Take the shuffler's sum over the reports that are not left out: the round's counts are on disk when this returns.

        The same again, or another one, changes nothing.

        Parameters
        ----------
        data : bytes
            The signed release.

        Raises
        ------
        WireError
            Where it is not signed by the task's shuffler, or is of another round, another list or another shape.
        """
        task_round = TaskRound.read(self._document(data[16:48]), self.task, self._key.public_key())
        with self._arrived:
            take_release(self.store, self.task, task_round, Release.from_bytes(data, self.task.shuffler))
            self._arrived.notify_all()

    def _batch(self, name: str) -> bytes | None:
        """The round's, once it has arrived; None once its counts are here."""
        columns = tables.asked.c
        query = select(columns.number, columns.batch, columns.spoiled, columns.ones).where(columns.id == name)
        with self._arrived:
            while True:
                with self.store.look() as connection:
                    row = connection.execute(query).one()
                if row.spoiled is not None:
                    raise SpoiledError(row.number, row.spoiled)
                if row.batch is not None or row.ones is not None:
                    return None if row.batch is None else bytes(row.batch)
                if self._stopped:
                    raise KeyboardInterrupt
                self._arrived.wait(timeout=1.0)

    def _open(self, name: str, data: bytes) -> None:
        """Write down what is in the batch: its counts, or which reports are left out. Either way its key goes."""
        here = tables.asked.c.id == name
        with self.store.look() as connection:
            document, private = connection.execute(select(tables.asked.c.document, tables.asked.c.key).where(here)).one()
        if private is None:  # it was opened: the database was gone before it could say so
            return
        task_round = TaskRound.read(Document.from_bytes(document), self.task, self._key.public_key())
        look_into(self.store, self.task, task_round, data, X25519PrivateKey.from_private_bytes(private), self._key, self._pool)

    def stop(self) -> None:
        """Let `answer` end: nothing is lost, since all of it is on disk."""
        with self._arrived:
            self._stopped = True
            self._arrived.notify_all()

    def _publish(self, name: str, question: Question) -> None:
        phase = self._phase_of(question)
        theta = question.query.theta if isinstance(question.query, Gradients) else np.zeros(self.task.problem.dim)
        with self.store.begin() as connection:
            if connection.execute(select(tables.asked.c.id).where(tables.asked.c.id == name)).scalar() is not None:
                return
            number = int(connection.execute(select(func.count()).select_from(tables.asked)).scalar_one()) + 1
            if number != question.number:
                remedy = "Go on with the run that asked the others; another run needs a task and a store of its own."
                raise ArgumentError("question.number", question.number, f"{number}, the task's next round", remedy)
            private = X25519PrivateKey.generate()
            task_round = TaskRound(self.task.id, name, number, phase, theta, private.public_key())
            values = {"id": name, "number": number, "document": task_round.document(self._key).to_bytes()}
            connection.execute(insert(tables.asked).values(**values, key=private.private_bytes_raw()))

    def _phase_of(self, question: Question) -> int:
        """The phase, counted from 1, that has the question's round, asks under its plan and descends on its objective."""
        query, problem = question.query, self.task.problem
        for number, phase in enumerate(self.task.schedule.phases, start=1):
            mine = question.number in self.task.rounds_of(number) and phase.plan == question.plan
            if isinstance(problem, AskedQuery):
                if mine:
                    return number
            elif mine and isinstance(query, Gradients) and objective_of(problem, phase) == query.objective:
                return number
        raise ArgumentError("question", str(question.plan), "a round of the task's schedule", "Run the schedule of the task.")

    def _estimate(self, name: str, plan: SumPlan) -> SumEstimate | None:
        with self.store.look() as connection:
            query = select(tables.asked.c.ones, tables.asked.c.users).where(tables.asked.c.id == name)
            row = connection.execute(query).one()
        return None if row.ones is None else estimate_of(row.ones, row.users, plan)

    def _document(self, digest: bytes) -> Document:
        """That of the round that a batch is about: the one that is waited for, or one before, under its own plan."""
        with self.store.look() as connection:
            documents = connection.execute(select(tables.asked.c.document)).scalars().all()
        known = next((document for document in map(Document.from_bytes, documents) if document.digest == digest), None)
        if known is None:
            raise WireError("a batch of no round of this task")
        return known
