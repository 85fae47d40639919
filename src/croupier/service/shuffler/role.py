"""The rounds that a shuffler has opened, each read and verified once."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from ...protocol import SecureRandom
from ..analyzer.population import fewest
from ..net import database as tables
from ..net.database import Database
from ..wire.documents import ARRIVALS, Document, End, WireError, heard, refusal
from ..wire.outcomes import Accepted, Arrivals, ParsedReport, RefusedError
from ..wire.task import Lot, SecretRounds, Task, TaskRound, report_of
from ..wire.transports import ENCAPSULATED, TRANSPORTS, SealedReport
from .rounds import (
    Releases,
    accept_reports,
    any_reservation_left,
    draw_lots,
    forget_batch,
    lots_of,
    make_batch,
    reserve,
    state_of,
    who_answered,
    who_has_reservations,
    who_is_drawn,
)

# Rounds that are kept as they were read.
ROUNDS_REMEMBERED = 8


def open_round(connection: Connection, task_round: TaskRound, document: Document, now: float) -> None:
    """Write down a round that takes reports from `now` on; the same again changes nothing."""
    rounds = tables.rounds.c
    same = (rounds.id == task_round.id) | (rounds.number == task_round.number)
    known = connection.execute(select(rounds.id, rounds.document).where(same)).first()
    if known is None:
        values = {
            "id": task_round.id,
            "number": task_round.number,
            "document": document.to_bytes(),
            "digest": document.digest.hex(),
        }
        connection.execute(insert(tables.rounds).values(**values, state="open", arrived=0, opened=now))
    elif known.id != task_round.id:
        raise WireError(
            f"a second round {task_round.number}: one was opened before, which the analyzer has forgotten. Its users are not asked "
            "again. Bring the analyzer's database and journal back from after that round, or begin a new task"
        )
    elif known.document != document.to_bytes():
        raise WireError("a round that was opened with other words")


class KnownRounds:
    """Rounds by the digests of their documents."""

    def __init__(self, store: Database, analyzer: Ed25519PublicKey) -> None:
        self._store, self._analyzer = store, analyzer
        self._read: dict[bytes, TaskRound] = {}

    def read(self, document: Document, task: Task) -> TaskRound:
        """A round of the task, read once."""
        digest = document.digest
        task_round = self._read.get(digest) or TaskRound.read(document, task, self._analyzer)
        if digest not in self._read:
            self._read = dict(list(self._read.items())[1 - ROUNDS_REMEMBERED :]) | {digest: task_round}
        return task_round

    def of_report(self, digest: bytes, task: Task) -> TaskRound:
        """The round that a report is about."""
        return self._read.get(digest) or self.read(self._document(digest), task)

    def _document(self, digest: bytes) -> Document:
        with self._store.look() as connection:
            rounds = tables.rounds.c
            known = connection.execute(select(rounds.document).where(rounds.digest == digest.hex())).scalar()
            if known is None:
                now = connection.execute(select(rounds.id).where(rounds.state == "open")).scalar()
                raise RefusedError(400, "a report for another round") if now else RefusedError(409, "no round takes reports now")
        return Document.from_bytes(known)


# Rounds of secret lots at the shuffler: filled up with blanks to their public size, and ended on time, whoever came.

log = logging.getLogger("croupier")
# Seconds by which the system's clock may move between two looks before that is logged and counted as a step.
CLOCK_TOLERANCE = 2.0


class RoundClock:
    """The clock by which rounds open and end: it goes on evenly, whoever sets the system's clock.

    It is the system's clock when a machine first serves this database after it was booted, plus the seconds since. What was taken
    for the time then is in the database: processes that start again, and all of one machine, have one clock. After a boot it is
    read off the system's clock anew, and is never earlier than the last round's opening.
    """

    def __init__(self, store: Database) -> None:
        self._boot, self.jumps = _boot(), 0
        clocks, query = tables.clocks, select(tables.clocks.c.zero).where(tables.clocks.c.boot == self._boot)
        with store.begin() as connection:
            zero = connection.execute(query).scalar()
            if zero is None:
                last = connection.execute(select(func.max(tables.rounds.c.opened))).scalar()
                zero = max(time.time(), last or 0.0) - _since_boot()
                dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
                connection.execute(dialect.insert(clocks).values(boot=self._boot, zero=zero).on_conflict_do_nothing())
                zero = connection.execute(query).scalar_one()  # another process may have been faster
        self._zero = float(zero)
        self._ahead = time.time() - self.now()  # the system's clock

    def now(self) -> float:
        """Seconds since 1970, as far as this clock knows."""
        return self._zero + _since_boot()

    def look(self) -> None:
        """Log and count a step of the system's clock since the last look."""
        ahead = time.time() - self.now()
        if abs(step := ahead - self._ahead) > CLOCK_TOLERANCE:
            self.jumps += 1
            log.warning("the system's clock was set %s by %.1f s; rounds go by the time since boot", _way(step), abs(step))
        self._ahead = ahead


def _way(step: float) -> str:
    return "forward" if step > 0 else "back"


def _boot() -> str:
    """A name for this boot of the machine; where the system has none, for this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"process {secrets.token_hex(16)}"


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Blanks:
    """Blank reports for the round that is open: as many as a round has in all, so that making them says nothing of who came.

    They are in memory alone. A process that starts again makes others, with coins of their own: none of the first was used.
    """

    def __init__(self) -> None:
        self._round, self._reports = "", list[SealedReport]()

    def of(self, task: Task, task_round: TaskRound, document: Document) -> Sequence[SealedReport]:
        """Those of the round, made where they are not here yet: a client's report of a zero vector each."""
        if self._round != task_round.id:
            nothing, coins = np.zeros(task.problem.dim), SecureRandom()
            size = task_round.phase_of(task).plan.users
            self._reports = [report_of(task, task_round, document, nothing, coins) for _ in range(size)]
            self._round = task_round.id
        return self._reports

    def end(
        self,
        store: Database,
        lock: threading.Lock,
        key: Ed25519PrivateKey,
        task: Task,
        task_round: TaskRound,
        document: Document,
        clock: RoundClock,
    ) -> None:
        """Make the batch of the round if its time is over: reports of its lot, and blanks for all who did not come."""
        blanks = self.of(task, task_round, document)
        with store.look() as connection:
            opened = state_of(connection, task_round.id).opened
        if task.secret is None or clock.now() < task.secret.ends(opened):
            return
        with lock, store.begin() as connection:
            if state_of(connection, task_round.id, to_change=True).state != "open":
                return
            make_batch(connection, task, task_round, key, clock.now(), blanks)
        self._round, self._reports = "", []  # a blank is used once
        store.wipe()


def due_batch(store: Database, secret: SecretRounds | None, now: float) -> tuple[str, bytes] | None:
    """A round's id and its batch, which is to be forwarded; with secret lots not before its time."""
    rounds = tables.rounds.c
    query = select(rounds.id, rounds.batch, rounds.opened).where(rounds.state == "made").order_by(rounds.number)
    with store.look() as connection:
        row = connection.execute(query).first()
    early = row is not None and secret is not None and now < secret.leaves(row.opened)
    return None if row is None or early else (row.id, row.batch)


def told_lots(store: Database, task: Task, clients: Sequence[str], now: float) -> list[Lot | RefusedError]:
    """What each of these clients is told of its lot."""
    if task.secret is None:
        return [RefusedError(404, "a task without secret lots")] * len(clients)
    rounds = tables.rounds.c
    with store.look() as connection:
        last = connection.execute(select(rounds.number, rounds.opened).order_by(rounds.number.desc())).first()
        drawn = lots_of(connection, clients)
    number, opened = (last.number, last.opened) if last is not None else (1, now)
    apart = task.secret.leaves(0.0)  # between the openings of two rounds, at the least

    def wait(lot: int) -> float:
        return min(max(0.0, opened + (lot - number) * apart - now), task.schedule.rounds * apart)

    return [Lot(drawn[client], wait(drawn[client])) if client in drawn else Lot(None) for client in clients]


def hidden_among(task: Task) -> int:
    """The fewest users that a batch of the task may hold: honest ones by its plans, and with secret lots those that are usual."""
    counts = [phase.plan.honest_users for phase in task.schedule.phases]
    return min([*counts, *[int(phase.lots.users_in_round) for phase in task.schedule.phases if phase.lots is not None]])


# A task's end in the two roles: the analyzer declares it and waits until the shuffler knows, the shuffler keeps it for clients.


class ShufflerEnding:
    """The shuffler's side."""

    def __init__(self, store: Database, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey) -> None:
        self._store, self._key, self._analyzer = store, key, analyzer

    def document(self) -> Document | None:
        """Return the analyzer's signed end."""
        return self._store.end()

    def take(self, document: Document, task: Task) -> tuple[End, Document]:
        """Keep the task's end for clients; it is on disk when this returns."""
        end = End.read(document, task.id, self._analyzer)
        self._store.keep_end(document)
        return end, heard(task.id, self._key)

    def refusal(self, document: Document, problem: WireError) -> Document | None:
        """Return why a task is not served, for its analyzer."""
        return refusal(document, str(problem), self._analyzer, self._key)


# The shuffler: takes one sealed report of each enrolled client, and forwards a whole batch, once, in an order that says nothing.
#
# It cannot read reports, and the analyzer never learns who sent one. What it remembers of a forwarded batch is who took part.

# Seconds for which a token that was looked up is known: after them, one that was struck out is refused.
_KNOWN = 30.0


class ShufflerRole:
    """The role, without a network: `open` a round of the analyzer's, `receive` reports, `waiting_batch` is the one to forward.

    Guarantee
    ---------
    A batch is forwarded in uniformly random order, has at least as many reports as its plan counts on, and holds at most one report
    of each client. When it is written, the reports are deleted in the same transaction; where reports are checked, when the one sum
    over those that are not left out is written. With secret lots it has all reports of the plan, blanks among them, at its time.
    """

    def __init__(self, store: Database, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey, *, smallest: int = 2) -> None:
        self.store, self._key, self._analyzer, self._smallest = store, key, analyzer, smallest
        self.ending = ShufflerEnding(store, key, analyzer)
        self.task: Task | None = None
        self.document: Document | None = None  # the task's
        self._lock = threading.Lock()  # what comes to one process is counted one after the other
        self._following = threading.Lock()
        self._blanks = Blanks()
        self.clock = RoundClock(store)
        self._tokens: dict[str, tuple[str, float]] = {}  # whose, and until when that is known
        self._rounds = KnownRounds(store, analyzer)
        self.releases = Releases(store, key, analyzer)
        if (document := store.task()) is not None:
            self.take_task(document)

    @property
    def public_key(self) -> Ed25519PublicKey:
        """The key that batches are verified with."""
        return self._key.public_key()

    def take_task(self, document: Document) -> Task:
        """Serve this task from now on."""
        task = Task.read(document, self._analyzer)
        if task.shuffler.public_bytes_raw() != self.public_key.public_bytes_raw():
            raise WireError("a task for another shuffler")
        smallest = hidden_among(task)
        if smallest < self._smallest:
            raise WireError(f"a task with batches of {smallest} users; this shuffler makes none of less than {self._smallest}")
        with self.store.begin() as connection:
            if self.store.keep_task(connection, task.id, document):
                draw_lots(connection, task)
        self.task, self.document = task, document
        return task

    def follow(self) -> None:
        """Serve the task that another process on this database has taken; do nothing where there is none yet."""
        with self._following:  # plans are certified again once, whoever asks meanwhile
            if self.task is None and (document := self.store.task()) is not None:
                self.take_task(document)

    def open(self, document: Document) -> TaskRound:
        """Take reports for this round, unless it is known already."""
        task_round = TaskRound.read(document, self._serving, self._analyzer)
        with self.store.begin() as connection:
            open_round(connection, task_round, document, self.clock.now())
        return task_round

    def current(self) -> Document | None:
        """Return the round that takes reports, as its signed document."""
        with self.store.look() as connection:
            stored = connection.execute(select(tables.rounds.c.document).where(tables.rounds.c.state == "open")).scalar()
        return None if stored is None else Document.from_bytes(stored)

    def rounds_for(self, clients: Sequence[str]) -> list[Document | None]:
        """Return for each client the round that takes its report, and keep a place in it for a while."""
        if self.task is None or (document := self.current()) is None:
            return [None] * len(clients)
        task_round = self._rounds.read(document, self.task)
        enough = fewest(self.task, task_round.phase_of(self.task))
        with self._lock:
            with self.store.look() as connection:
                state = state_of(connection, task_round.id)
                drawn = who_is_drawn(connection, task_round, clients)
                wanted = drawn - who_answered(connection, self.task, task_round, clients)
                waited = who_has_reservations(connection, task_round.id, wanted, self.clock.now())
            if (secret := self.task.secret) is not None:  # nobody is waited for: the round ends on time
                offered = state.state == "open" and self.clock.now() < secret.offered(state.opened, self.task.pace)
                return [document if offered and (secret.cover or client in wanted) else None for client in clients]
            ends = state.state != "open" or (self._is_late(state) and state.arrived >= enough)
            new = set() if ends else wanted - waited
            if new:
                with self.store.begin() as connection:
                    reserve(connection, task_round.id, sorted(new), self.clock.now())
        return [document if client in waited | new else None for client in clients]

    def lots_for(self, clients: Sequence[str]) -> list[Lot | RefusedError]:
        """Return for each client the round that is its secret lot. Nobody else is told."""
        return told_lots(self.store, self._serving, clients, self.clock.now())

    def _is_late(self, state: Any) -> bool:
        patience = self._serving.patience
        return patience is not None and self.clock.now() >= state.opened + patience

    def clients_of(self, tokens: Sequence[str]) -> list[str | RefusedError]:
        """Return whose tokens they are."""
        now, keys = time.monotonic(), [tables.hash_of(token) for token in tokens]
        unknown = [key for key in keys if self._tokens.get(key, ("", 0.0))[1] <= now]
        names = tables.clients_of(self.store, unknown)
        self._tokens |= {key: (client, now + _KNOWN) for key, client in names.items()}
        known = [self._tokens.get(key, ("", 0.0)) for key in keys]
        return [client if until > now else RefusedError(401, "not an enrolled client's token") for client, until in known]

    def arrivals(self) -> Arrivals | None:
        """Return how the round that takes reports stands: numbers that anybody may know."""
        if self.task is None or self.task.secret is not None or (document := self.current()) is None:
            return None
        task_round = self._rounds.read(document, self.task)
        phase = task_round.phase_of(self.task)
        with self.store.look() as connection:
            here = state_of(connection, task_round.id).arrived
        return Arrivals(task_round.number, here, phase.plan.users, fewest(self.task, phase))

    def said(self, arrivals: Arrivals) -> Document:
        """Return how a round stands as a signed document, for the analyzer."""
        values = {"task": self._serving.id, "round": arrivals.round, "arrived": arrivals.arrived}
        return Document.signed(ARRIVALS, values, self._key)

    def receive(self, client: str, body: bytes) -> Accepted:
        """Take a client's report, which is on disk when this returns."""
        [outcome] = self.receive_all([(client, body)])
        if isinstance(outcome, RefusedError):
            raise outcome
        return outcome

    def receive_all(self, reports: Sequence[tuple[str, bytes]]) -> list[Accepted | RefusedError]:
        """Take reports of several clients in one transaction. Each hears what it would have heard by itself."""
        read = [self._well_shaped(client, body) for client, body in reports]
        good = [report for report in read if isinstance(report, ParsedReport)]
        with self._lock:
            try:
                outcomes = iter(self._write(good))
            except IntegrityError:  # another process has taken one of them in between: each by itself
                outcomes = iter([self._written_alone(report) for report in good])
        return [next(outcomes) if isinstance(report, ParsedReport) else report for report in read]

    def _well_shaped(self, client: str, body: bytes) -> ParsedReport | RefusedError:
        try:
            task, report = self._serving, SealedReport.from_bytes(body)
            task_round = self._rounds.of_report(report.round, task)
            plan, transport = task_round.phase_of(task).plan, TRANSPORTS[task.transport]
            transport.check_shape(report, report.round, plan)
            if len(body) != transport.report_length(plan) + task.token_bytes:
                raise WireError(f"a report {'without' if task.token_bytes else 'with'} a token, where the task has another length")
        except WireError as problem:
            return RefusedError(400, str(problem))
        except RefusedError as refusal:
            return refusal
        return ParsedReport(client, body, task_round, plan, report.sealed.reshape(-1)[:ENCAPSULATED].tobytes().hex())

    def _written_alone(self, report: ParsedReport) -> Accepted | RefusedError:
        try:
            return self._write([report])[0]
        except IntegrityError:
            return RefusedError(409, "this client has taken part already")

    def _write(self, reports: Sequence[ParsedReport]) -> list[Accepted | RefusedError]:
        """What becomes of each. The last report of a round and its batch are one transaction: no crash leaves a round that is full
        and takes more."""
        outcomes: dict[int, Accepted | RefusedError] = {}
        with self.store.begin() as connection:
            for task_round in {report.round.id: report.round for report in reports}.values():
                here = {place: report for place, report in enumerate(reports) if report.round.id == task_round.id}
                outcomes |= accept_reports(connection, self._serving, task_round, here, self._key, self.clock.now())
        if any(isinstance(outcome, Accepted) and outcome.arrived == outcome.wanted for outcome in outcomes.values()):
            self.store.wipe()
        return [outcomes[place] for place in range(len(reports))]

    def close_late(self) -> None:
        """End a round that has waited long enough, has enough reports and waits for no promised one; or whose time is over."""
        task = self.task
        if task is None or (task.patience is None and task.secret is None) or (document := self.current()) is None:
            return
        task_round = self._rounds.read(document, task)
        if task.secret is not None:
            self._blanks.end(self.store, self._lock, self._key, task, task_round, document, self.clock)
            return
        enough = fewest(task, task_round.phase_of(task))
        with self._lock:
            with self.store.begin() as connection:
                state = state_of(connection, task_round.id, to_change=True)
                waits = (
                    state.arrived < enough
                    or not self._is_late(state)
                    or any_reservation_left(connection, task_round.id, self.clock.now())
                )
                if state.state != "open" or waits:
                    return
                make_batch(connection, task, task_round, self._key, self.clock.now())
            self.store.wipe()

    def waiting_batch(self) -> tuple[str, bytes] | None:
        """Return a batch that is to be forwarded."""
        return due_batch(self.store, self.task.secret if self.task else None, self.clock.now())

    def oldest_batch(self) -> float | None:
        """Return for how long a batch, or a released sum, has been waiting to reach the analyzer."""
        rounds, since = tables.rounds.c, tables.unforwarded.c.since
        query = select(func.min(func.coalesce(since, rounds.opened))).outerjoin_from(tables.rounds, tables.unforwarded)
        with self.store.look() as connection:
            oldest = connection.execute(query.where(rounds.state.in_(["made", "summed"]))).scalar()
        return None if oldest is None else max(0.0, self.clock.now() - oldest)

    def forwarded(self, round_id: str, state: str = "forwarded") -> None:
        """Forget a batch that the analyzer has, or has refused for good."""
        with self.store.begin() as connection:
            forget_batch(connection, self._serving, round_id, state)
        self.store.wipe()

    @property
    def _serving(self) -> Task:
        if self.task is None:
            raise RefusedError(503, "no task yet")
        return self.task
