"""The shuffler: takes one sealed report of each enrolled client, and forwards a whole batch, once, in an order that says nothing.

It cannot read reports, and the analyzer never learns who sent one. What it remembers of a forwarded batch is who took part.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ..privacy import SumPlan
from ..protocol import SecureRandom
from . import store as tables
from .store import Store
from .task import Round, Task
from .transport import check_shape, shuffled
from .wire import ARRIVALS, Document, Report, WireError


class RefusedError(Exception):
    """A request that is not granted: an HTTP status, and a reason that is fit for whoever asked."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Taken:
    """That a report was taken, and how many there are now of how many."""

    arrived: int
    wanted: int


@dataclass(frozen=True)
class Arrivals:
    """How many reports the present round has, of how many, and the fewest that it can end with."""

    round: int
    arrived: int
    wanted: int
    minimum: int


class Shuffler:
    """The role, without a network: `open` a round of the analyzer's, `receive` reports, `made` is the batch to forward.

    `smallest` is the fewest users that it lets hide in one batch: a task with a smaller one is refused.
    """

    def __init__(self, store: Store, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey, *, smallest: int = 2) -> None:
        self.store, self._key, self._analyzer, self._smallest = store, key, analyzer, smallest
        self.task: Task | None = None
        self._lock = threading.Lock()  # reports of one process are counted one after the other

    @property
    def public_key(self) -> Ed25519PublicKey:
        return self._key.public_key()

    def take_task(self, document: Document) -> Task:
        """Serve this task from now on: the analyzer's signature, ours as its shuffler, and batches that we can honour."""
        task = Task.read(document, self._analyzer)
        if task.shuffler.public_bytes_raw() != self.public_key.public_bytes_raw():
            raise WireError("a task for another shuffler")
        smallest = min(phase.plan.honest_users for phase in task.schedule.phases)
        if smallest < self._smallest:
            raise WireError(f"a task with batches of {smallest} users; this shuffler makes none of less than {self._smallest}")
        if self.task is not None and self.task.id != task.id:
            raise WireError("another task than the one that is being served")
        self.task = task
        return task

    def open(self, document: Document) -> Round:
        """Take reports for this round, unless it is known already."""
        made = Round.read(document, self._serving, self._analyzer)
        with self.store.begin() as connection:
            known = connection.execute(select(tables.rounds.c.document).where(tables.rounds.c.id == made.id)).scalar()
            if known is None:
                values = {"id": made.id, "number": made.number, "document": document.to_bytes(), "state": "open"}
                connection.execute(insert(tables.rounds).values(**values, opened=time.time()))
            elif known != document.to_bytes():
                raise WireError("a round that was opened with other words")
        return made

    def current(self) -> Document | None:
        """The round that takes reports."""
        with self.store.begin() as connection:
            found = connection.execute(select(tables.rounds.c.document).where(tables.rounds.c.state == "open")).scalar()
        return None if found is None else Document.from_bytes(found)

    def arrivals(self) -> Arrivals | None:
        """How the round that takes reports stands: numbers that anybody may know."""
        if self.task is None or (document := self.current()) is None:
            return None
        made = Round.read(document, self.task, self._analyzer)
        plan = made.phase_of(self.task).plan
        with self.store.begin() as connection:
            return Arrivals(made.number, tables.count(connection, made.id), plan.users, plan.honest_users)

    def said(self, arrivals: Arrivals) -> Document:
        """The same for the analyzer, signed."""
        values = {"task": self._serving.id, "round": arrivals.round, "arrived": arrivals.arrived}
        return Document.signed(ARRIVALS, values, self._key)

    def receive(self, client: str, body: bytes) -> Taken:
        """Take a client's report, on disk when this returns. The same bytes again are taken once; others are refused."""
        try:
            report = Report.from_bytes(body)
            document = self._document(report.round)
            made = Round.read(document, self._serving, self._analyzer)
            plan = made.phase_of(self._serving).plan
            check_shape(report, self._serving.transport, document.digest, plan)
        except WireError as problem:
            raise RefusedError(400, str(problem)) from None
        with self._lock:
            arrived = self._written(client, made, body, plan)
            if arrived == plan.users:
                self.store.wipe()
        return Taken(arrived, plan.users)

    def _document(self, digest: bytes) -> Document:
        """That of the round that a report is about."""
        now = self.current()
        if now is not None and now.digest == digest:
            return now
        with self.store.begin() as connection:
            documents = connection.execute(select(tables.rounds.c.document)).scalars().all()
        known = next((found for found in map(Document.from_bytes, documents) if found.digest == digest), None)
        if known is None:
            raise RefusedError(400, "a report for another round") if now else RefusedError(409, "no round takes reports now")
        return known

    def _written(self, client: str, made: Round, body: bytes, plan: SumPlan) -> int:
        """How many reports there are with this one; 0 where it was counted in a round that has ended. The last report of a round
        and its batch are one transaction: no crash leaves a round that is full and takes more."""
        here = (tables.reports.c.round == made.id) & (tables.reports.c.client == client)
        slot = self._serving.slot(made.id)
        with self.store.begin() as connection:
            state = connection.execute(select(tables.rounds.c.state).where(tables.rounds.c.id == made.id)).scalar()
            if state != "open":
                if self._has_taken_part(connection, client, slot):
                    return 0
                raise RefusedError(410, "the round has ended")
            before = connection.execute(select(tables.reports.c.body).where(here)).scalar()
            if before is None:
                self._take_part(connection, client, slot)
                connection.execute(insert(tables.reports).values(round=made.id, client=client, body=body))
            elif before != body:
                raise RefusedError(409, "another report of this client is here already; a retry sends the same bytes")
            arrived = tables.count(connection, made.id)
            if arrived >= plan.users:
                self._make(connection, made)
            return arrived

    @staticmethod
    def _has_taken_part(connection: Connection, client: str, slot: str) -> bool:
        here = (tables.taken_part.c.slot == slot) & (tables.taken_part.c.client == client)
        return connection.execute(select(tables.taken_part.c.client).where(here)).scalar() is not None

    @staticmethod
    def _take_part(connection: Connection, client: str, slot: str) -> None:
        try:
            connection.execute(insert(tables.taken_part).values(slot=slot, client=client))
        except IntegrityError:
            raise RefusedError(409, "this client has taken part already") from None

    def close_late(self) -> None:
        """End a round that has waited long enough and has as many reports as its plan counts on."""
        if self.task is None or self.task.patience is None or (document := self.current()) is None:
            return
        made = Round.read(document, self.task, self._analyzer)
        enough = made.phase_of(self.task).plan.honest_users
        with self._lock:
            with self.store.begin() as connection:
                opened = connection.execute(select(tables.rounds.c.opened).where(tables.rounds.c.id == made.id)).scalar_one()
                if tables.count(connection, made.id) < enough or time.time() < opened + self.task.patience:
                    return
                self._make(connection, made)
            self.store.wipe()

    def _make(self, connection: Connection, made: Round) -> None:
        """The batch of a full round: permuted, signed, and written in place of the reports, so that no link to people is left."""
        here = tables.reports.c.round == made.id
        bodies = connection.execute(select(tables.reports.c.body).where(here).order_by(tables.reports.c.client)).scalars().all()
        batch = shuffled([Report.from_bytes(body) for body in bodies], SecureRandom()).to_bytes(self._key)
        connection.execute(update(tables.rounds).where(tables.rounds.c.id == made.id).values(state="made", batch=batch))
        connection.execute(delete(tables.reports).where(here))

    def made(self) -> tuple[str, bytes] | None:
        """A batch that is to be forwarded, and its round's name."""
        with self.store.begin() as connection:
            query = select(tables.rounds.c.id, tables.rounds.c.batch).where(tables.rounds.c.state == "made")
            found = connection.execute(query.order_by(tables.rounds.c.number)).first()
        return None if found is None else (found.id, found.batch)

    def forwarded(self, round_id: str) -> None:
        """The analyzer has it: forget it."""
        with self.store.begin() as connection:
            forgotten = update(tables.rounds).where(tables.rounds.c.id == round_id).values(state="forwarded", batch=None)
            connection.execute(forgotten)
        self.store.wipe()

    @property
    def _serving(self) -> Task:
        if self.task is None:
            raise RefusedError(503, "no task yet")
        return self.task
