"""The shuffler: takes one sealed report of each enrolled client, and forwards a whole batch, once, in an order that says nothing.

It cannot read reports, and the analyzer never learns who sent one. What it remembers of a forwarded batch is who took part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import BindParameter, Connection, Integer, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ..privacy import SumPlan
from ..protocol import SecureRandom, permutation
from . import store as tables
from .places import Places
from .store import Database
from .task import Task, TaskRound
from .transport import check_shape, shuffled
from .wire import ARRIVALS, Document, SealedReport, WireError

# Seconds for which a token that was looked up is known: after them, one that was struck out is refused.
_KNOWN = 30.0
# Rounds that are kept as they were read.
_ROUNDS_KEPT = 8

_NAMES: BindParameter[Any] = bindparam("names", expanding=True)
_AMONG_REPORTS = select(tables.reports.c.client, tables.reports.c.body).where(
    (tables.reports.c.round == bindparam("round")) & tables.reports.c.client.in_(_NAMES)
)
_AMONG_ANSWERED = select(tables.taken_part.c.client).where(
    (tables.taken_part.c.slot == bindparam("slot")) & tables.taken_part.c.client.in_(_NAMES)
)
_AMONG_LOTS = select(tables.lots.c.client).where(
    bindparam("round", type_=Integer).between(tables.lots.c.first, tables.lots.c.last) & tables.lots.c.client.in_(_NAMES)
)


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
class Written:
    """A report that has the right shape: whose, of which round, under which plan."""

    client: str
    body: bytes
    round: TaskRound
    plan: SumPlan


@dataclass(frozen=True)
class Arrivals:
    """How many reports the present round has, of how many, and the fewest that it can end with."""

    round: int
    arrived: int
    wanted: int
    minimum: int


class ShufflerRole:
    """The role, without a network: `open` a round of the analyzer's, `receive` reports, `waiting_batch` is the one to forward.

    `smallest` is the fewest users that it lets hide in one batch: a task with a smaller one is refused.
    """

    def __init__(self, store: Database, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey, *, smallest: int = 2) -> None:
        self.store, self._key, self._analyzer, self._smallest = store, key, analyzer, smallest
        self.task: Task | None = None
        self.document: Document | None = None  # the task's
        self._lock = threading.Lock()  # what comes to one process is counted one after the other
        with store.look() as connection:
            kept = tables.places.c
            promised = connection.execute(select(kept.round, kept.client, kept.until)).all()
        self._places = Places([(row.round, row.client, row.until) for row in promised])
        self._tokens: dict[str, tuple[str, float]] = {}  # whose, and until when that is known
        self._read: dict[bytes, TaskRound] = {}  # rounds that were read, by digest
        if (document := store.task()) is not None:
            self.take_task(document)

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
        with self.store.begin() as connection:
            if self.store.keep_task(connection, task.id, document):
                self._draw_lots(connection, task)
        self.task, self.document = task, document
        return task

    @staticmethod
    def _draw_lots(connection: Connection, task: Task) -> None:
        """Who is asked in which rounds, uniformly at random; clients that are left over, or are enrolled later, are not asked.

        The proof is about batches that are chosen without a look at the data. When a client comes may depend on its records, so
        that it must not decide who is in a batch: neither the client itself nor those who come after it. A share of honest users is
        one of the task's users: then these have to be all who are enrolled.
        """
        names = connection.execute(select(tables.clients.c.id).order_by(tables.clients.c.id)).scalars().all()
        if len(names) < task.users or (len(names) > task.users and task.schedule.honest < 1):
            remedy = "enrol them first" if len(names) < task.users else "whoever is one too many could be none of the honest share"
            raise WireError(f"a task for {task.users} users, drawn by lot, where {len(names)} are enrolled: {remedy}")
        seats: list[range] = []
        for number, phase in enumerate(task.schedule.phases, start=1):
            rounds = task.rounds_of(number)
            whole = [rounds] if task.schedule.interactivity == "full" else [range(one, one + 1) for one in rounds]
            seats += [some for some in whole for _ in range(phase.batch)]
        order = permutation(SecureRandom(), len(names)).tolist()
        drawn = [{"client": names[who], "first": some[0], "last": some[-1]} for who, some in zip(order, seats, strict=False)]
        connection.execute(insert(tables.lots), drawn)

    def open(self, document: Document) -> TaskRound:
        """Take reports for this round, unless it is known already."""
        task_round = TaskRound.read(document, self._serving, self._analyzer)
        with self.store.begin() as connection:
            known = connection.execute(select(tables.rounds.c.document).where(tables.rounds.c.id == task_round.id)).scalar()
            if known is None:
                values = {
                    "id": task_round.id,
                    "number": task_round.number,
                    "document": document.to_bytes(),
                    "digest": document.digest.hex(),
                }
                connection.execute(insert(tables.rounds).values(**values, state="open", arrived=0, opened=time.time()))
            elif known != document.to_bytes():
                raise WireError("a round that was opened with other words")
        return task_round

    def current(self) -> Document | None:
        """The round that takes reports."""
        with self.store.look() as connection:
            stored = connection.execute(select(tables.rounds.c.document).where(tables.rounds.c.state == "open")).scalar()
        return None if stored is None else Document.from_bytes(stored)

    def rounds_for(self, clients: Sequence[str]) -> list[Document | None]:
        """For each client the round that takes its report, with a place in it for a while; None where there is none for it."""
        if self.task is None or (document := self.current()) is None:
            return [None] * len(clients)
        task_round = self._round(document)
        plan = task_round.phase_of(self.task).plan
        with self._lock:
            with self.store.look() as connection:
                state = self._state(connection, task_round.id)
                wanted = self._drawn(connection, task_round, set(clients)) - self._answered(connection, task_round, set(clients))
            ends = state.state != "open" or (self._is_late(state) and state.arrived >= plan.honest_users)
            promised = {client: self._places.promise(task_round.id, client, ends=ends) for client in clients if client in wanted}
            rows = [{"round": task_round.id, "client": client, "until": until} for client, until in promised.items() if until]
            if rows:
                with self.store.begin() as connection:
                    self._forget_places(connection, [client for client, until in promised.items() if until])
                    connection.execute(insert(tables.places), rows)
        return [document if promised.get(client) else None for client in clients]

    @staticmethod
    def _forget_places(connection: Connection, clients: Sequence[str]) -> None:
        connection.execute(delete(tables.places).where(tables.places.c.client.in_(clients)))

    def _is_late(self, state: Any) -> bool:
        patience = self._serving.patience
        return patience is not None and time.time() >= state.opened + patience

    def clients_of(self, tokens: Sequence[str]) -> list[str | RefusedError]:
        """Whose tokens they are."""
        now, keys = time.monotonic(), [tables.hash_of(token) for token in tokens]
        unknown = [key for key in keys if self._tokens.get(key, ("", 0.0))[1] <= now]
        names = tables.clients_of(self.store, unknown)
        self._tokens |= {key: (client, now + _KNOWN) for key, client in names.items()}
        known = [self._tokens.get(key, ("", 0.0)) for key in keys]
        return [client if until > now else RefusedError(401, "not an enrolled client's token") for client, until in known]

    def arrivals(self) -> Arrivals | None:
        """How the round that takes reports stands: numbers that anybody may know."""
        if self.task is None or (document := self.current()) is None:
            return None
        task_round = self._round(document)
        plan = task_round.phase_of(self.task).plan
        with self.store.look() as connection:
            return Arrivals(task_round.number, self._state(connection, task_round.id).arrived, plan.users, plan.honest_users)

    def said(self, arrivals: Arrivals) -> Document:
        """The same for the analyzer, signed."""
        values = {"task": self._serving.id, "round": arrivals.round, "arrived": arrivals.arrived}
        return Document.signed(ARRIVALS, values, self._key)

    def receive(self, client: str, body: bytes) -> Taken:
        """Take a client's report, on disk when this returns. The same bytes again are taken once; others are refused."""
        [outcome] = self.receive_all([(client, body)])
        if isinstance(outcome, RefusedError):
            raise outcome
        return outcome

    def receive_all(self, reports: Sequence[tuple[str, bytes]]) -> list[Taken | RefusedError]:
        """Take reports of several clients in one transaction: what each would have heard by itself."""
        read = [self._well_shaped(client, body) for client, body in reports]
        good = [report for report in read if isinstance(report, Written)]
        with self._lock:
            try:
                outcomes = iter(self._write(good))
            except IntegrityError:  # another process has taken one of them in between: each by itself
                outcomes = iter([self._written_alone(report) for report in good])
        return [next(outcomes) if isinstance(report, Written) else report for report in read]

    def _well_shaped(self, client: str, body: bytes) -> Written | RefusedError:
        try:
            task, report = self._serving, SealedReport.from_bytes(body)
            task_round = self._read.get(report.round) or self._round(self._document(report.round))
            plan = task_round.phase_of(task).plan
            check_shape(report, task.transport, report.round, plan)
        except WireError as problem:
            return RefusedError(400, str(problem))
        except RefusedError as refusal:
            return refusal
        return Written(client, body, task_round, plan)

    def _round(self, document: Document) -> TaskRound:
        """A round of ours, read once."""
        digest = document.digest
        task_round = self._read.get(digest) or TaskRound.read(document, self._serving, self._analyzer)
        if digest not in self._read:
            self._read = dict(list(self._read.items())[1 - _ROUNDS_KEPT :]) | {digest: task_round}
        return task_round

    def _document(self, digest: bytes) -> Document:
        """That of the round that a report is about."""
        with self.store.look() as connection:
            rounds = tables.rounds.c
            known = connection.execute(select(rounds.document).where(rounds.digest == digest.hex())).scalar()
            if known is None:
                now = connection.execute(select(rounds.id).where(rounds.state == "open")).scalar()
                raise RefusedError(400, "a report for another round") if now else RefusedError(409, "no round takes reports now")
        return Document.from_bytes(known)

    def _written_alone(self, report: Written) -> Taken | RefusedError:
        try:
            return self._write([report])[0]
        except IntegrityError:
            return RefusedError(409, "this client has taken part already")

    def _write(self, reports: Sequence[Written]) -> list[Taken | RefusedError]:
        """What becomes of each. The last report of a round and its batch are one transaction: no crash leaves a round that is full
        and takes more."""
        outcomes: dict[int, Taken | RefusedError] = {}
        with self.store.begin() as connection:
            for task_round in {report.round.id: report.round for report in reports}.values():
                here = {place: report for place, report in enumerate(reports) if report.round.id == task_round.id}
                outcomes |= self._taken(connection, task_round, here)
        for place, outcome in outcomes.items():
            if isinstance(outcome, Taken):  # on disk by now
                self._places.used(reports[place].client)
        if any(isinstance(outcome, Taken) and outcome.arrived == outcome.wanted for outcome in outcomes.values()):
            self.store.wipe()
        return [outcomes[place] for place in range(len(reports))]

    def _taken(self, connection: Connection, task_round: TaskRound, reports: dict[int, Written]) -> dict[int, Taken | RefusedError]:
        """Those of one round. A report hears how many there are with it; 0 where it was counted in a round that has ended."""
        slot, wanted = self._serving.slot(task_round.id), task_round.phase_of(self._serving).plan.users
        names = {report.client for report in reports.values()}
        state = self._state(connection, task_round.id, to_change=True)
        here = connection.execute(_AMONG_REPORTS, {"round": task_round.id, "names": list(names)}).all()
        kept = {row.client: row.body for row in here}
        answered = self._answered(connection, task_round, names)
        drawn = self._drawn(connection, task_round, names)
        arrived, new, outcomes = int(state.arrived), [], dict[int, Taken | RefusedError]()
        for place, report in reports.items():
            client, body = report.client, report.body
            if state.state != "open" or arrived == wanted:
                outcomes[place] = Taken(0, wanted) if client in answered else RefusedError(410, "the round has ended")
            elif kept.get(client) == body:
                outcomes[place] = Taken(arrived, wanted)
            elif client in kept:
                outcomes[place] = RefusedError(409, "another report of this client is here; a retry sends the same bytes")
            elif client in answered:
                outcomes[place] = RefusedError(409, "this client has taken part already")
            elif client not in drawn:
                outcomes[place] = RefusedError(409, "this client's lot is not this round")
            else:
                arrived += 1
                kept[client] = body
                answered.add(client)
                new.append(report)
                outcomes[place] = Taken(arrived, wanted)
        if new:
            connection.execute(insert(tables.taken_part), [{"slot": slot, "client": report.client} for report in new])
            rows = [{"round": task_round.id, "client": report.client, "body": report.body} for report in new]
            connection.execute(insert(tables.reports), rows)
            self._forget_places(connection, [report.client for report in new])
            connection.execute(update(tables.rounds).where(tables.rounds.c.id == task_round.id).values(arrived=arrived))
            if arrived == wanted:
                self._make(connection, task_round)
        return outcomes

    @staticmethod
    def _state(connection: Connection, round_id: str, *, to_change: bool = False) -> Any:
        rounds = tables.rounds.c
        query = select(rounds.state, rounds.arrived, rounds.opened).where(rounds.id == round_id)
        return connection.execute(query.with_for_update() if to_change else query).one()

    def _answered(self, connection: Connection, task_round: TaskRound, names: set[str]) -> set[str]:
        """Who of them has taken part: in the task, or in this round."""
        slot = {"slot": self._serving.slot(task_round.id), "names": list(names)}
        return set(connection.execute(_AMONG_ANSWERED, slot).scalars())

    def _drawn(self, connection: Connection, task_round: TaskRound, names: set[str]) -> set[str]:
        """Who of them may answer the round: those whose lot it is."""
        return set(connection.execute(_AMONG_LOTS, {"round": task_round.number, "names": list(names)}).scalars())

    def close_late(self) -> None:
        """End a round that has waited long enough, has as many reports as its plan counts on, and waits for no promised one."""
        if self.task is None or self.task.patience is None or (document := self.current()) is None:
            return
        task_round = self._round(document)
        enough = task_round.phase_of(self.task).plan.honest_users
        with self._lock:
            with self.store.begin() as connection:
                state = self._state(connection, task_round.id, to_change=True)
                waits = state.arrived < enough or not self._is_late(state) or self._places.any_left(task_round.id)
                if state.state != "open" or waits:
                    return
                self._make(connection, task_round)
            self.store.wipe()

    def _make(self, connection: Connection, task_round: TaskRound) -> None:
        """The batch of a full round: permuted, signed, and written in place of the reports, so that no link to people is left."""
        here = tables.reports.c.round == task_round.id
        bodies = connection.execute(select(tables.reports.c.body).where(here).order_by(tables.reports.c.client)).scalars().all()
        batch = shuffled([SealedReport.from_bytes(body) for body in bodies], SecureRandom()).to_bytes(self._key)
        connection.execute(update(tables.rounds).where(tables.rounds.c.id == task_round.id).values(state="made", batch=batch))
        connection.execute(delete(tables.reports).where(here))
        connection.execute(delete(tables.places))

    def waiting_batch(self) -> tuple[str, bytes] | None:
        """A batch that is to be forwarded, and its round's name."""
        with self.store.look() as connection:
            query = select(tables.rounds.c.id, tables.rounds.c.batch).where(tables.rounds.c.state == "made")
            row = connection.execute(query.order_by(tables.rounds.c.number)).first()
        return None if row is None else (row.id, row.batch)

    def forwarded(self, round_id: str, state: str = "forwarded") -> None:
        """The analyzer has it, or has refused it for good: forget it."""
        with self.store.begin() as connection:
            forgotten = update(tables.rounds).where(tables.rounds.c.id == round_id).values(state=state, batch=None)
            connection.execute(forgotten)
        self.store.wipe()

    @property
    def _serving(self) -> Task:
        if self.task is None:
            raise RefusedError(503, "no task yet")
        return self.task
