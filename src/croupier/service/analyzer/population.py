"""The analyzer: users behind a shuffler, as an optimizer sees them. It publishes rounds, and opens the batches that come."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import Column, Connection, ForeignKey, Integer, LargeBinary, String, Table, func, insert, select, update

from ...optimizer.phases import Phase, Schedule
from ...population.population import Question, Test
from ...privacy import SumPlan
from ...privacy._crowd import exclusions_in_batch, honest_in_batch, honest_total
from ...privacy._statements import exact
from ...protocol import Counts, SumEstimate, VectorSum
from ...protocol.randomness import Secret
from ...validation import ArgumentError
from ..net.database import Database, Result, role_tables
from ..wire.documents import Document, End, Exclusions, WireError, refusal_reason, require_heard, sha256
from ..wire.enrolment import PREFIX_BYTES, is_token
from ..wire.task import Answered, RoundLostError, Task, TaskRound, TooManyBadReportsError, fewest, most_excluded
from ..wire.transports import TRANSPORTS, Release, SealedBatch, block_digest

# The analyzer's tables: rounds and their counts, and nobody. Where rounds have blocks, each block has a row of its own with the
# round's key; the document, which may be long, is in the first one's.

ANALYZER = role_tables()
asked = Table(
    "asked",
    ANALYZER,
    Column("id", String, primary_key=True),
    Column("number", Integer, nullable=False, unique=True),  # of the lot: that of the round, where it has no blocks
    Column("document", LargeBinary, nullable=False),
    Column("key", LargeBinary),  # dropped with the answer
    Column("ones", String),
    Column("users", Integer),
    Column("batch", LargeBinary),  # arrived, and not yet opened
    Column("spoiled", String),  # what was found in the batch: the end of the task
)

# What was found in a round's batch, and the list of exclusions as it was signed: written before it is said.
found = Table(
    "found",
    ANALYZER,
    Column("round", ForeignKey("asked.id"), primary_key=True),
    Column("bad", Integer, nullable=False),  # reports that are left out, or envelopes that count as a zero
    Column("exclusions", LargeBinary),  # the signed list, of a transport whose reports are checked
    Column("share", LargeBinary),  # the analyzer's share of the sum of the others, until the shuffler's is here
    Column("dropped", String),  # why nothing was made of the round's sum
)

# Tokens that were counted, by the digest of their random part, and in which round.
spent = Table(
    "spent",
    ANALYZER,
    Column("token", String, primary_key=True),
    Column("round", ForeignKey("asked.id"), nullable=False),
)


# Room for bad reports.


def no_room(task: Task) -> str | None:
    """Say that one bad report ends a task, where that is so, and from which size of a round it is not."""
    schedule = task.schedule
    tight = [phase for phase in schedule.phases if not room(task, phase)]
    if not tight:
        return None
    line = f"One bad report ends the task: the plan of a round of {tight[0].batch:,} has no room for any."
    if schedule.honest == 1:
        return f"{line} With honest below 1 there is room for some."
    if tight[0].lots is not None:
        return f"{line} Fewer rounds, or more users, leave room for some."
    alone = tight[0].batch == task.users  # everybody is in the round: more people are a larger round
    enough = next((size for size in range(2, 10_000) if _would_leave_room(size, size if alone else task.users, schedule)), None)
    more = f"rounds of {enough:,} and more" if enough is not None and (alone or enough <= task.users) else "fewer rounds"
    return f"{line} With honest = {exact(schedule.honest)}, {more} leave room for some."


def room(task: Task, phase: Phase) -> int:
    """Count the users of a round who may send what is bad before the task ends."""
    return TRANSPORTS[task.transport].most_cheats(phase.plan.users, phase.plan, most_excluded(task, phase))


def _would_leave_room(batch: int, users: int, schedule: Schedule) -> bool:
    """Whether such rounds would be planned with E of at least 1, as `Budget.honest_of` and `StatisticQuery.schedule` plan them."""
    if batch > users:
        return False
    chance = schedule.shortfall
    held = honest_in_batch(users, schedule.honest, batch, chance) if chance else honest_total(batch, schedule.honest)
    return exclusions_in_batch(users, schedule.honest, batch, held) > 0


# Who is counted in a round of a task with an enroller: whoever brings a token of this task and slot that was not used before.

# Tokens that are looked up together.
_TOGETHER = 500


class Admission:
    """Counts the tokens of one batch, each once, over all batches of the task. Nothing is written down before `spend`.

    Guarantee
    ---------
    The reports that are admitted in all rounds of a slot are of different people whom the task's enroller has signed tokens for: a
    token that is forged, of another task or slot, or used before, in this batch or an earlier one, admits nobody.
    """

    def __init__(self, store: Database, task: Task, task_round: TaskRound) -> None:
        self._task, self._round, self._slot = task, task_round.batch, task.token_slot(task_round)
        self._used: dict[str, None] = {}
        with store.look() as connection:
            query = select(spent.c.token).where(spent.c.round != task_round.batch)
            self._earlier = set(connection.execute(query).scalars()) if task.enroller is not None else set[str]()

    def admits(self, token: bytes) -> bool:
        """Count a token."""
        if self._task.enroller is None:
            return not token
        name = hashlib.sha256(token[:PREFIX_BYTES]).hexdigest()
        if name in self._used or name in self._earlier or not is_token(token, self._task.id, self._task.enroller, self._slot):
            return False
        self._used[name] = None
        return True

    def spend(self, connection: Connection) -> None:
        """Write down the tokens that were counted, in the transaction that writes down what came of the batch."""
        names = list(self._used)
        for start in range(0, len(names), _TOGETHER):
            rows = [{"token": name, "round": self._round} for name in names[start : start + _TOGETHER]]
            connection.execute(insert(spent), rows)


# What the analyzer makes of a batch: counts, or a signed list of the reports that are left out, and then one sum over the rest.
#
# Each is written down in one transaction before anything is said, and a round's key goes with it: the same batch after a crash has
# the same list, and no batch is opened for two.

log = logging.getLogger("croupier")
_SHORT = "fewer people came to it than the task counts on (turnout), and there are no more blanks"
_IMPOSSIBLE = "counts that no users could have sent: a report was not made by the protocol"


def open_batch(
    store: Database,
    task: Task,
    task_round: TaskRound,
    data: bytes,
    private: X25519PrivateKey,
    key: Ed25519PrivateKey,
    pool: Executor | None,
) -> None:
    """Open a batch, and write down what it is: counts, a list of exclusions, or more bad reports than the task can bear."""
    phase = task_round.phase_of(task)
    batch = SealedBatch.from_bytes(data, phase.plan.bits_per_coordinate, task.shuffler)
    admission, transport = Admission(store, task, task_round), TRANSPORTS[task.transport]
    secret = transport.analyzer_secret(private, task.shuffler, batch.round)
    verdict = transport.check(batch, phase.plan, private, pool, admission.admits, secret)
    finding: dict[str, Any] = {"bad": verdict.bad}
    values: dict[str, Any] = {"users": batch.users - len(verdict.places)}
    if transport.checked:
        finding["exclusions"] = Exclusions(task.id, task_round.batch, sha256(data), verdict.places).document(key).to_bytes()
    if verdict.cheats > (most := transport.most_cheats(batch.users, phase.plan, most_excluded(task, phase))):
        short = task.enroller is not None and task.secret is not None and verdict.bad == batch.users
        values = {"spoiled": _SHORT if short else transport.spoiled(verdict, batch.users, most)}
    elif verdict.share is not None:
        finding["share"] = verdict.share.astype("<u8").tobytes()
    elif verdict.counts is not None:
        values["ones"] = json.dumps(verdict.counts.ones.tolist())
    if verdict.bad:
        log.warning("round %d: bad %s: %d", task_round.number, transport.bad_words, verdict.bad)
    with store.begin() as connection:
        connection.execute(insert(found).values(round=task_round.batch, **finding))
        admission.spend(connection)
        here = asked.c.id == task_round.batch
        connection.execute(update(asked).where(here).values(**values, key=None, batch=None))
        if "spoiled" in values:  # the round's other blocks are not opened
            connection.execute(update(asked).values(key=None, batch=None))
    store.wipe()


def exclusions_of(store: Database, round_id: str) -> Document | None:
    """Return the signed list of the reports that are left out of a round."""
    with store.look() as connection:
        stored = connection.execute(select(found.c.exclusions).where(found.c.round == round_id)).scalar()
    return None if stored is None else Document.from_bytes(stored)


def take_release(store: Database, task: Task, task_round: TaskRound, release: Release) -> None:
    """Write down the counts of a round: the shuffler's sum less the analyzer's share. The first release counts, others do
    nothing."""
    phase, transport = task_round.phase_of(task), TRANSPORTS[task.transport]
    with store.begin() as connection:
        query = select(found.c.exclusions, found.c.share, asked.c.users).join_from(found, asked)
        row = connection.execute(query.where(found.c.round == task_round.batch)).first()
        if row is None or row.exclusions is None or not transport.carries(release):
            raise WireError("a release of no list of exclusions")
        if Document.from_bytes(row.exclusions).digest != release.exclusions:
            raise WireError("a release of another list of exclusions")
        if row.share is None:
            return  # it is here, or the round was given up
        if release.users != row.users:
            raise WireError("a release of another shape than the task's")
        counts = transport.counts(release, np.frombuffer(row.share, "<u8").astype(np.uint64), phase.plan)
        here = found.c.round == task_round.batch
        dropped = None if counts is not None else _IMPOSSIBLE
        if dropped:
            log.error("round %d is a step of length 0: %s", task_round.number, dropped)
        connection.execute(update(found).where(here).values(share=None, dropped=dropped))
        ones = json.dumps(None if counts is None else counts.ones.tolist())
        connection.execute(update(asked).where(asked.c.id == task_round.batch).values(ones=ones))
    store.wipe()


def estimate_of(ones: str, users: int, plan: SumPlan, document: Document, block: int = 0) -> SumEstimate:
    """Estimate the sum from a round's counts as they were written down, or a block's part of it; what was dropped is 0."""
    counts = json.loads(ones)
    if counts is None:  # what is said of the users is that no users could have sent it
        return SumEstimate(sum=np.zeros(plan.dim), users=users, noise_std=plan.noise_std_for(users), guarantee=plan.guarantee)
    protocol = VectorSum(plan, seed=document.digest, block=block)
    return protocol.analyze(Counts(np.array(counts, dtype=np.int64), users, private=True))


# A task's end in the two roles: the analyzer declares it and waits until the shuffler knows, the shuffler keeps it for clients.


class AnalyzerEnding:
    """The analyzer's side."""

    def __init__(self, task: Task, store: Database, key: Ed25519PrivateKey) -> None:
        self._task, self._store, self._key = task, store, key
        self._heard = threading.Event()
        self.refusal: str | None = None

    def declare(self, rounds: int, reason: str | None = None) -> Document:
        """Write down that the task has ended."""
        document = End(self._task.id, rounds, reason).document(self._key)
        self._store.keep_end(document)
        return document

    def document(self) -> Document | None:
        """Return the signed end."""
        return self._store.end()

    def hear(self, data: bytes) -> None:
        """Take the shuffler's word that it knows of the end."""
        require_heard(Document.from_bytes(data), self._task.id, self._task.shuffler)
        if self._store.end_heard(now=True):
            self._heard.set()

    def refuse(self, data: bytes) -> None:
        """Take the shuffler's word that it does not serve the task, and log it once."""
        reason = refusal_reason(Document.from_bytes(data), self._task.id, self._task.shuffler)
        if reason != self.refusal:
            log.error("the shuffler does not serve the task: %s", reason)
        self.refusal = reason

    def wait(self, seconds: float, stopped: threading.Event) -> bool:
        """Wait until the shuffler knows of the end."""
        left = seconds
        if self._store.end_heard():  # by an earlier process
            self._heard.set()
        while left > 0 and not stopped.is_set() and not self._heard.wait(min(0.2, left)):
            left -= 0.2
        return self._heard.is_set()


class RemotePopulation:
    """Users behind a shuffler, as an optimizer sees them: a `Population` whose `answer` publishes a round and waits for its batch.

    Every step is on disk before it is acted upon: a round before it is published, a batch before the shuffler forgets it, counts
    before the optimizer sees them. If a process that is gone has asked the same question before, it is the same round, and its
    answer is the one that came.

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
        self._lots: dict[bytes, int] = {}  # by what their reports are bound to, of the rounds that were looked at
        self._looked = 0  # the last lot of those

    @property
    def users(self) -> int:
        """How many users the task asks."""
        return self.task.users

    @property
    def longest_bodies(self) -> tuple[int, int]:
        """Bytes of the longest batch, and of the longest release."""
        return self.task.most_batch_bytes(), self.task.most_release_bytes()

    @property
    def turnout(self) -> float:
        """The fraction of users that is relied on to come to their round, where lots are secret."""
        lots = self.task.schedule.phases[0].lots
        return 1.0 if lots is None else lots.turnout

    @property
    def counts_blanks(self) -> bool:
        """Whether somebody else than the shuffler counts the blanks of a round."""
        return self.task.enroller is not None and self.task.secret is not None

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Do nothing: records are where nobody can look at them. Devices check their own."""
        return None

    def answer(self, question: Question) -> SumEstimate:
        """Publish the round, wait for its batch, and estimate the sum from its counts.

        The blocks of a round are asked for one after the other: the first question publishes it for all of them.
        """
        blocks = question.plan.blocks
        # blocks have coins of their own, and share their rotation
        secret = question.secret if blocks == 1 else Secret(question.rotation, private=False)
        round_id = secret.derive("name of the round").key[:16].hex()
        name = self._insist(partial(self._publish, round_id, question))
        while (estimate := self._insist(partial(self._estimate, name, question))) is None:
            if (batch := self._insist(partial(self._batch, name))) is not None:
                self._insist(partial(self._open, name, batch))
        if (lost := self._insist(self._lost)) is not None:
            raise lost
        return replace(estimate, guarantee=question.promised(estimate.guarantee))

    def _insist(self, do: Callable[[], Result]) -> Result:
        """A database that is restarted does not end a run: every step is done again if need be."""
        return self.store.insist(do, lambda: self._stopped)

    def current(self) -> Document | None:
        """Return the round that is waited for, as its signed document."""
        columns = asked.c
        with self.store.look() as connection:
            last = connection.execute(select(func.max(columns.number))).scalar()
            if last is None:
                return None
            lots = self.task.lots_of(self.task.lot(last)[0])  # rounds are asked one after the other: no other one is open
            open_ones = columns.key.is_not(None) & columns.ones.is_(None) & columns.batch.is_(None) & columns.spoiled.is_(None)
            here = columns.number >= lots[0]
            waits = connection.execute(select(columns.number).where(here & open_ones).limit(1)).scalar() is not None
            return self._document(connection, last) if waits else None

    def _document(self, connection: Connection, lot: int) -> Document:
        """The document of the round that a lot is of."""
        first = self.task.lots_of(self.task.lot(lot)[0])[0]
        return Document.from_bytes(connection.execute(select(asked.c.document).where(asked.c.number == first)).scalar_one())

    def spoiled(self) -> str | None:
        """Return why the task has ended before its time: a batch had too many bad reports, or a question has no answer."""
        columns = asked.c
        with self.store.look() as connection:
            row = connection.execute(select(columns.number, columns.spoiled).where(columns.spoiled.is_not(None))).first()
        if row is not None:
            return str(TooManyBadReportsError(self.task.lot(row.number)[0], row.spoiled))
        return None if (lost := self._lost()) is None else str(lost)

    def _lost(self) -> RoundLostError | None:
        """The end of a question that had a round of counts that no users could have sent. A sum of 0 would be a false answer."""
        if not self.task.query.once:
            return None
        query = select(asked.c.number, found.c.dropped).join_from(found, asked)
        with self.store.look() as connection:
            row = connection.execute(query.where(found.c.dropped.is_not(None))).first()
        return None if row is None else RoundLostError(row.number, row.dropped, self.task.transport)

    def waiting(self) -> TaskRound | None:
        """Return the round that is waited for, read from its document."""
        document = self.current()
        return None if document is None else TaskRound.read(document, self.task, self._key.public_key())

    def answered(self, after: int = 0) -> list[Answered]:
        """Return the rounds that were answered, in order: what they released, and nothing else."""
        columns, first = asked.c, 1 if after == 0 else self.task.lots_of(after)[-1] + 1
        with self.store.look() as connection:
            query = select(columns.number, columns.document, columns.ones, columns.users, found.c.bad, found.c.dropped)
            query = query.outerjoin_from(asked, found).where(columns.ones.is_not(None) & (columns.number >= first))
            rows = connection.execute(query.order_by(columns.number)).all()
        rounds = []
        for number, blocks in groupby(rows, key=lambda row: self.task.lot(row.number)[0]):
            parts = list(blocks)
            document = Document.from_bytes(parts[0].document)
            phase = TaskRound.read(document, self.task, self._key.public_key()).phase
            planned = self.task.round_phases[phase - 1]
            if len(parts) < planned.plan.blocks:  # the others are on their way
                break
            estimates = [estimate_of(part.ones, part.users, planned.plan, document, n) for n, part in enumerate(parts)]
            total = len(parts) * np.sum([estimate.sum for estimate in estimates], axis=0)
            mean = estimates[0].mean if planned.lots is None else total / planned.mean_of
            users, bad = min(part.users for part in parts), sum(part.bad or 0 for part in parts)
            dropped = next((part.dropped for part in parts if part.dropped), None)
            rounds.append(Answered(number, phase, users, float(np.linalg.norm(mean)), bad, dropped))
        return rounds

    def take(self, data: bytes) -> None:
        """Take a batch from the shuffler: it is checked, and on disk when this returns. Whoever waits for it opens it.

        The same batch again changes nothing.
        """
        task_round = self._named(data[16:48])
        phase, plan = task_round.phase_of(self.task), task_round.phase_of(self.task).plan
        batch = SealedBatch.from_bytes(data, plan.bits_per_coordinate, self.task.shuffler)
        enough = fewest(self.task, phase) <= batch.users <= plan.users
        if not enough or not TRANSPORTS[self.task.transport].fits(batch, plan, self.task.token_bytes):
            raise WireError("a batch of another shape than the task's")
        here, columns = asked.c.id == task_round.batch, asked.c
        with self._arrived, self.store.begin() as connection:
            first = columns.key.is_not(None) & columns.batch.is_(None)
            connection.execute(update(asked).where(here & first).values(batch=data))
            self._arrived.notify_all()

    def exclusions(self, round_id: str) -> Document | None:
        """Return the signed list of the reports that are left out of a round, or a block of it."""
        return exclusions_of(self.store, round_id)

    def take_release(self, data: bytes) -> None:
        """Take the shuffler's sum over the reports that are not left out: the round's counts are on disk when this returns.

        The same again, or another one, changes nothing.
        """
        task_round = self._named(data[16:48])
        with self._arrived:
            take_release(self.store, self.task, task_round, Release.from_bytes(data, self.task.shuffler))
            self._arrived.notify_all()

    def _batch(self, name: str) -> bytes | None:
        """The round's, once it has arrived; None once its counts are here."""
        columns = asked.c
        query = select(columns.number, columns.batch, columns.spoiled, columns.ones).where(columns.id == name)
        with self._arrived:
            while True:
                with self.store.look() as connection:
                    row = connection.execute(query).one()
                if row.spoiled is not None:
                    raise TooManyBadReportsError(self.task.lot(row.number)[0], row.spoiled)
                if row.batch is not None or row.ones is not None:
                    return None if row.batch is None else bytes(row.batch)
                if self._stopped:
                    raise KeyboardInterrupt
                self._arrived.wait(timeout=1.0)

    def _open(self, name: str, data: bytes) -> None:
        """Write down what is in the batch: its counts, or which reports are left out. Either way its key goes."""
        here = asked.c.id == name
        with self.store.look() as connection:
            number, private = connection.execute(select(asked.c.number, asked.c.key).where(here)).one()
            document = self._document(connection, number)
        if private is None:  # it was opened: the database was gone before it could say so
            return
        task_round = self._part(document, number)
        open_batch(self.store, self.task, task_round, data, X25519PrivateKey.from_private_bytes(private), self._key, self._pool)

    def wait_until(self, moment: float) -> None:
        """Wait until a moment, in seconds since 1970, or until this is stopped."""
        with self._arrived:
            while not self._stopped and (left := moment - time.time()) > 0:
                self._arrived.wait(timeout=min(left, 60.0))  # by the clock of the day, which may be set
        if self._stopped:
            raise KeyboardInterrupt

    def stop(self) -> None:
        """Let `answer` end: nothing is lost, since all of it is on disk."""
        with self._arrived:
            self._stopped = True
            self._arrived.notify_all()

    def _publish(self, round_id: str, question: Question) -> str:
        """Ask in a round, unless it was asked in; returns the name of the batch that answers the question."""
        phase, theta, coordinates = self.task.asked_in(question.number, question.plan, question.query)
        private, about = X25519PrivateKey.generate(), (self.task.id, round_id, question.number, phase)
        task_round = TaskRound(*about, theta, private.public_key(), coordinates=coordinates)
        parts = task_round.parts(self.task)
        with self.store.begin() as connection:
            if connection.execute(select(asked.c.id).where(asked.c.id == parts[0].batch)).scalar() is not None:
                return parts[question.block].batch
            number = int(connection.execute(select(func.count()).select_from(asked)).scalar_one()) + 1
            if number != parts[0].lot(self.task):
                remedy = "Go on with the run that asked the others; another run needs a task and a store of its own."
                done = number - 1 and self.task.lot(number - 1)[0]
                raise ArgumentError("question.number", question.number, f"{done + 1}, the task's next round", remedy)
            document, key = task_round.document(self._key).to_bytes(), private.private_bytes_raw()
            lots = zip(parts, self.task.lots_of(question.number), strict=True)
            rows = [{"id": part.batch, "number": lot, "key": key, "document": b""} for part, lot in lots]
            rows[0]["document"] = document
            connection.execute(insert(asked), rows)
        return parts[question.block].batch

    def _estimate(self, name: str, question: Question) -> SumEstimate | None:
        with self.store.look() as connection:
            row = connection.execute(select(asked.c.ones, asked.c.users, asked.c.number).where(asked.c.id == name)).one()
            if row.ones is None:
                return None
            document = self._document(connection, row.number)
        return estimate_of(row.ones, row.users, question.plan, document, question.block)

    def _part(self, document: Document, lot: int) -> TaskRound:
        """The round of a document, with the block that a lot is of where there are any."""
        task_round = TaskRound.read(document, self.task, self._key.public_key())
        return task_round.parts(self.task)[self.task.lots_of(task_round.number).index(lot)]

    def _named(self, digest: bytes) -> TaskRound:
        """What a batch is about, by what its reports are bound to: the round that is waited for, or one before, and the block."""
        with self.store.look() as connection:
            if digest not in self._lots:
                self._look_for_lots(connection)
            if (lot := self._lots.get(digest)) is None:
                raise WireError("a batch of no round of this task")
            return self._part(self._document(connection, lot), lot)

    def _look_for_lots(self, connection: Connection) -> None:
        """Learn the lots of rounds that were asked since the last look; each document is read once, as it never changes."""
        last = connection.execute(select(func.max(asked.c.number))).scalar() or 0
        while self._looked < last:
            lots = self.task.lots_of(self.task.lot(self._looked + 1)[0])
            digest = self._document(connection, lots[0]).digest
            self._lots |= {block_digest(digest, self.task.lot(lot)[1]): lot for lot in lots}
            self._looked = lots[-1]
