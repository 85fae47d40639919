"""The shuffler: takes one sealed report of each enrolled client, and forwards a whole batch, once, in an order that says nothing.

It cannot read reports, and the analyzer never learns who sent one. What it remembers of a forwarded batch is who took part.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy.exc import IntegrityError

from ...privacy import SumPlan
from ...protocol import SecureRandom
from ..net.database import Database, hash_of
from ..wire.documents import ARRIVALS, Document, End, WireError, acknowledgement, refusal
from ..wire.task import Accepted, Arrivals, Lot, ParsedReport, RefusedError, Start, Task, TaskRound, fewest, report_of
from ..wire.transports import ENCAPSULATED, REPORT_HEAD, TRANSPORTS, SealedReport
from .rounds import (
    PROMISED,
    Rounds,
    RoundState,
    blanks_at_hand,
    clients_of,
    clock_zero,
    draw_lots,
    first_round,
    keep_blanks,
    lots_of,
    missing_blanks,
    nobody_took_part,
    reserve,
    state_of,
    who_answered,
    who_has_reservations,
    who_is_drawn,
)

# Rounds that are kept as they were read.
ROUNDS_REMEMBERED = 8
# Rounds of secret lots: filled up with blanks to their public size, and ended on time, regardless of who came.

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
        self.jumps = 0
        self._zero = clock_zero(store, _boot(), time.time(), _since_boot())
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
    """Blank reports for the round that is open: as many as it has in all, for each of its blocks, so that making them says nothing
    of who came.

    They are in memory alone. A process that starts again makes others, with coins of their own: none of the first was used. Where
    an enroller counts them, the last ones have its tokens; the first have random bytes in their place, and are good for nothing but
    to say that too few people came.
    """

    def __init__(self) -> None:
        self._round, self._reports = "", list[list[SealedReport]]()

    def of(
        self, task: Task, task_round: TaskRound, document: Document, counted: Sequence[Sequence[bytes]]
    ) -> Sequence[Sequence[SealedReport]]:
        """Those of the round, made where they are not here yet: a client's report of a zero vector each, with these tokens; a list
        for each block."""
        if self._round != task_round.id:
            plan, coins, made = task_round.phase_of(task).plan, SecureRandom(), list[list[SealedReport]]()
            for part, some in zip(task_round.parts(task), counted, strict=True):
                tokens = [*(os.urandom(task.token_bytes) for _ in range(plan.users - len(some))), *some]
                made.append([report_of(task, part, document, np.zeros(plan.dim), coins, token) for token in tokens])
            self._round, self._reports = task_round.id, made
        return self._reports

    def end(
        self, role: ShufflerRole, lock: threading.Lock, task: Task, task_round: TaskRound, document: Document, opened: float
    ) -> None:
        """Make the batches of the round if its time is over: reports of a lot, and blanks for all who did not come."""
        parts, still_open, counted = task_round.parts(task), role.rounds.open_batches(), list[list[bytes]]()
        for part in parts:
            # of a batch that was made before a crash the tokens are gone, and its blanks are not used
            tokens = blanks_at_hand(role.store, task, task.token_slot(part)) if part.batch in still_open else []
            if tokens is None:
                return  # the enroller is waited for, regardless of who came
            counted.append(tokens)
        blanks, rounds, now = self.of(task, task_round, document, counted), role.rounds, role.clock.now()
        if task.secret is None or now < task.secret.ends(opened):
            return
        for part, some in zip(parts, blanks, strict=True):
            with lock:
                rounds.close_with_blanks(task, part, some, now)
        self._round, self._reports = "", []  # a blank is used once


def hidden_among(task: Task) -> int:
    """The fewest users that a batch of the task may hold: honest ones by its plans, and with secret lots those that are usual."""
    counts = [phase.plan.honest_users for phase in task.schedule.phases]
    return min([*counts, *[phase.lots.users // phase.lots.lots for phase in task.schedule.phases if phase.lots is not None]])


class _Shape(NamedTuple):
    """What a report with a known head, header and digest of the round, has to be: nothing else of it can be bad."""

    round: TaskRound  # with the block, where there are any
    plan: SumPlan
    length: int  # all of its bytes
    used_bits: int  # of its last byte


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

    def __init__(
        self,
        store: Database,
        key: Ed25519PrivateKey,
        analyzer: Ed25519PublicKey,
        *,
        smallest: int = 2,
        people: Database | None = None,  # whose tokens are taken, where that is another database than the task's
    ) -> None:
        self.store, self._key, self._analyzer, self._smallest = store, key, analyzer, smallest
        self._people = people or store
        self.task: Task | None = None
        self.document: Document | None = None  # the task's
        self._longest: int | None = None  # bytes of a report
        self._lock = threading.Lock()  # what comes to one process is counted one after the other
        self._following = threading.Lock()
        self._blanks = Blanks()
        self._all_blanks = ""  # the task whose blanks all have tokens, or had
        self.clock = RoundClock(store)
        self._tokens: dict[str, tuple[str, float]] = {}  # whose, and until when that is known
        self.rounds = Rounds(store, key, analyzer)
        self._shapes: dict[bytes, _Shape] = {}  # by the first bytes of reports that were good
        self._open: tuple[bytes, Document] | None = None  # the open round, as it is stored and as it was read
        self._told: Start | None = None  # what clients were last told at first
        self._read: dict[bytes, TaskRound] = {}  # rounds that were read and verified, by the digests of their documents
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
            raise WireError(
                f"a task with batches of {smallest} users; this shuffler makes none of less than {self._smallest}: start it with "
                f"--smallest {smallest}, or plan fewer rounds or more users"
            )
        with self.store.begin() as connection:
            if self.store.keep_task(connection, task.id, document):
                draw_lots(connection, task)
        self.task, self.document, self._longest = task, document, None
        return task

    def follow(self) -> None:
        """Serve the task that another process on this database has taken; do nothing where there is none yet."""
        with self._following:  # plans are certified again once, whoever asks meanwhile
            if self.task is None and (document := self.store.task()) is not None:
                self.take_task(document)

    def open(self, document: Document) -> TaskRound:
        """Take reports for this round, unless it is known already."""
        task_round = TaskRound.read(document, self._serving, self._analyzer)
        self.rounds.open(self._serving, task_round, document, self.clock.now())
        return task_round

    def collect_blanks(self, ask: Callable[[str, bytes], bytes]) -> bool:
        """Get tokens for the next blanks that have none; `ask` sends a body to an enroller's address. False: none are missing."""
        task = self.task
        if task is None or task.enroller is None or self._all_blanks == task.id:
            return False
        if (missing := missing_blanks(self.store, task)) is None:
            self._all_blanks = task.id
            return False
        slot, part, requests = missing
        answer = ask(task.enroller.address, requests.for_blanks(part, self._key, task.enroller))
        keep_blanks(self.store, slot, part, requests.tokens(answer, task.id, task.enroller))
        return True

    def is_ready_for(self, document: Document) -> bool:
        """Return whether a round can begin: its blanks have what they need."""
        task = self._serving
        parts = self._round(document, task).parts(task)
        first = task.secret is not None and task.enroller is not None and not self.rounds.is_known(parts[0].batch)
        return not first or all(blanks_at_hand(self.store, task, task.token_slot(part)) is not None for part in parts)

    def current(self) -> Document | None:
        """Return the round that takes reports, as its signed document."""
        row = self.rounds.first(RoundState.OPEN)
        return None if row is None else self._document(row.document)

    def _document(self, stored: bytes) -> Document:
        """The document of the open round, read once; another thread may read that of the next round meanwhile."""
        known = self._open
        if known is None or known[0] != stored:
            known = self._open = stored, Document.from_bytes(stored)
        return known[1]

    def _round(self, document: Document, task: Task) -> TaskRound:
        """A round of the task, read once."""
        digest = document.digest
        task_round = self._read.get(digest) or TaskRound.read(document, task, self._analyzer)
        if digest not in self._read:
            self._read = dict(list(self._read.items())[1 - ROUNDS_REMEMBERED :]) | {digest: task_round}
        return task_round

    def rounds_for(self, clients: Sequence[str]) -> list[Document | None]:
        """Return for each client the round that takes its report, and keep a place in it for a while."""
        if self.task is None or (document := self.current()) is None:
            return [None] * len(clients)
        task_round = self._round(document, self.task)
        enough = fewest(self.task, task_round.phase_of(self.task))
        with self._lock:
            with self.store.look() as connection:
                state = state_of(connection, task_round.parts(self.task)[0].batch)
                drawn = who_is_drawn(connection, self.task, task_round, clients)
                wanted = drawn - who_answered(connection, self.task, task_round, clients)
                waited = who_has_reservations(connection, task_round.id, wanted, self.clock.now())
            if (secret := self.task.secret) is not None:  # nobody is waited for: the round ends on time
                offered = state.state == RoundState.OPEN and self.clock.now() < secret.offered(state.opened, self.task.pace)
                return [document if offered and (secret.cover or client in wanted) else None for client in clients]
            ends = state.state != RoundState.OPEN or (self._is_late(state) and state.arrived >= enough)
            new = set() if ends else wanted - waited
            if new and self.task.patience is not None:  # otherwise a round waits for everybody
                with self.store.begin() as connection:
                    reserve(connection, task_round.id, sorted(new), self.clock.now())
        return [document if client in waited | new else None for client in clients]

    def starts_for(self, clients: Sequence[str]) -> list[Start | RefusedError]:
        """Return for each client what it asks for before it answers: the task, and its secret lot or, where that needs no place,
        its round.

        A client that has not seen the task yet may refuse it, so that nothing waits for it. A round is told all the same where it
        cannot end without the client for as long as a place would be kept.
        """
        task, document, now = self._serving, self.document, self.clock.now()
        if document is None:
            raise RefusedError(503, "no task yet")
        if task.secret is not None:
            return [lot if isinstance(lot, RefusedError) else Start(document, lot=lot) for lot in self.lots_for(clients)]
        with self.store.look() as connection:
            row = first_round(connection, RoundState.OPEN)
            if row is None:
                return [Start(document)] * len(clients)
            current = self._document(row.document)
            task_round = self._round(current, task)
            wanted = who_is_drawn(connection, task, task_round, clients) - who_answered(connection, task, task_round, clients)
        stays = task.patience is None or now + PROMISED < row.opened + task.patience
        told, nothing = self._told, Start(document)
        if told is None or told.task is not document or told.round is not current:
            told = self._told = Start(document, current)
        return [told if stays and client in wanted else nothing for client in clients]

    def lots_for(self, clients: Sequence[str]) -> list[Lot | RefusedError]:
        """Return for each client the round, and the block, that is its secret lot. Nobody else is told."""
        task, now = self._serving, self.clock.now()
        if task.secret is None:
            return [RefusedError(404, "a task without secret lots")] * len(clients)
        last, opened = self.rounds.last_opened() or (1, now)
        open_round, _ = task.lot(last)
        apart = task.secret.leaves(0.0)  # between the openings of two rounds, at the least
        with self.store.look() as connection:
            drawn = lots_of(connection, clients)

        def told(place: int) -> Lot:
            number, block = task.lot(place)
            return Lot(number, min(max(0.0, opened + (number - open_round) * apart - now), task.schedule.rounds * apart), block)

        return [told(drawn[client]) if client in drawn else Lot(None) for client in clients]

    def _is_late(self, state: Any) -> bool:
        patience = self._serving.patience
        return patience is not None and self.clock.now() >= state.opened + patience

    def clients_of(self, tokens: Sequence[str]) -> list[str | RefusedError]:
        """Return whose tokens they are."""
        now, keys = time.monotonic(), [hash_of(token) for token in tokens]
        unknown = [key for key in keys if self._tokens.get(key, ("", 0.0))[1] <= now]
        names = clients_of(self._people, unknown)
        self._tokens |= {key: (client, now + _KNOWN) for key, client in names.items()}
        known = [self._tokens.get(key, ("", 0.0)) for key in keys]
        return [client if until > now else RefusedError(401, "not an enrolled client's token") for client, until in known]

    def arrivals(self) -> Arrivals | None:
        """Return how the round that takes reports stands: numbers that anybody may know."""
        if self.task is None or self.task.secret is not None or (document := self.current()) is None:
            return None
        task_round = self._round(document, self.task)
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
                outcomes = iter(self.rounds.accept(self._serving, good, self.clock.now()) if good else [])
            except IntegrityError:  # another process has taken one of them in between: each by itself
                outcomes = iter([self._accepted_alone(report) for report in good])
        return [next(outcomes) if isinstance(report, ParsedReport) else report for report in read]

    def _well_shaped(self, client: str, body: bytes) -> ParsedReport | RefusedError:
        known = self._shapes.get(body[:REPORT_HEAD])
        if known is not None and len(body) == known.length and not body[-1] >> known.used_bits:
            return ParsedReport(client, body, known.round, known.plan, body[REPORT_HEAD : REPORT_HEAD + ENCAPSULATED].hex())
        try:
            task, report = self._serving, SealedReport.from_bytes(body)
            known_round = self._read.get(report.round) if task.blocks == 1 else None  # blocks have digests of their own
            task_round = known_round or self._named(report.round, task)
            plan, transport = task_round.phase_of(task).plan, TRANSPORTS[task.transport]
            transport.check_shape(report, report.round, plan)
            if len(body) != transport.report_length(plan) + task.token_bytes:
                raise WireError(f"a report {'without' if task.token_bytes else 'with'} a token, where the task has another length")
        except WireError as problem:
            return RefusedError(400, str(problem))
        except RefusedError as refusal:
            return refusal
        shape = _Shape(task_round, plan, len(body), report.dim * report.width % 8 or 8)
        kept = list(self._shapes.items())[1 - ROUNDS_REMEMBERED * task.blocks :]
        self._shapes = dict(kept) | {body[:REPORT_HEAD]: shape}
        return ParsedReport(client, body, task_round, plan, report.sealed.reshape(-1)[:ENCAPSULATED].tobytes().hex())

    def _named(self, digest: bytes, task: Task) -> TaskRound:
        """The round that reports are bound to by this digest, with its block where there are any."""
        document, lot = self.rounds.named(digest)
        task_round = self._round(document, task)
        return task_round.parts(task)[task.lots_of(task_round.number).index(lot)]

    def _accepted_alone(self, report: ParsedReport) -> Accepted | RefusedError:
        try:
            return self.rounds.accept(self._serving, [report], self.clock.now())[0]
        except IntegrityError:
            return RefusedError(409, "this client has taken part already")

    def close_late(self) -> None:
        """End a round that has waited long enough, has enough reports and waits for no promised one; or whose time is over."""
        task = self.task
        if task is None or (task.patience is None and task.secret is None) or (row := self.rounds.first(RoundState.OPEN)) is None:
            return
        task_round = self._round(document := Document.from_bytes(row.document), task)
        if task.secret is not None:
            self._blanks.end(self, self._lock, task, task_round, document, row.opened)
            return
        with self._lock:
            self.rounds.close(task, task_round, fewest(task, task_round.phase_of(task)), self.clock.now())

    def waiting_batch(self) -> tuple[str, bytes] | None:
        """Return a round's id and its batch, which is to be forwarded; with secret lots not before its time."""
        row, secret = self.rounds.first(RoundState.MADE), self.task.secret if self.task else None
        early = row is not None and secret is not None and self.clock.now() < secret.leaves(row.opened)
        return None if row is None or row.batch is None or early else (row.id, row.batch)

    def oldest_batch(self) -> float | None:
        """Return for how long a batch, or a released sum, has been waiting to reach the analyzer."""
        oldest = self.rounds.oldest_unforwarded()
        return None if oldest is None else max(0.0, self.clock.now() - oldest)

    def forwarded(self, round_id: str) -> None:
        """Forget a batch that the analyzer has. Where reports are checked, its exclusions are waited for."""
        self.rounds.delivered(self._serving, round_id)

    def refused(self, round_id: str) -> None:
        """Forget a batch that the analyzer has refused for good."""
        self.rounds.refuse(round_id)

    def awaiting_exclusions(self) -> str | None:
        """Return the round whose exclusions are waited for."""
        row = self.rounds.first(RoundState.CHECKED)
        return None if row is None else row.id

    def exclude(self, document: Document) -> None:
        """Keep the analyzer's list of exclusions, and write down the sum of all other reports."""
        self.rounds.exclude(self._serving, document)

    def waiting_release(self) -> tuple[str, bytes] | None:
        """Return a round's id and its sum, which the analyzer is not known to have."""
        row = self.rounds.first(RoundState.SUMMED)
        return None if row is None or row.batch is None else (row.id, row.batch)

    def released(self, round_id: str) -> None:
        """Forget a sum that the analyzer has."""
        self.rounds.release_delivered(round_id)

    def most_report_bytes(self) -> int:
        """Return the length of the longest report of the task."""
        if self._longest is None:
            self._longest = self._serving.most_report_bytes()
        return self._longest

    # The task's end, which the analyzer declares, and why a task is not served.

    def end(self) -> Document | None:
        """Return the analyzer's signed end of the task."""
        return self.store.end()

    def take_end(self, document: Document) -> tuple[End, Document]:
        """Keep the task's end for clients; it is on disk when this returns. Returns it, and that it was heard."""
        end = End.read(document, self._serving.id, self._analyzer)
        self.store.keep_end(document)
        return end, acknowledgement(self._serving.id, self._key)

    def nobody_came(self) -> bool:
        """Return whether no client has sent a report in the whole task.

        Of secret lots, too: it says nothing of anybody's round, and where it is true there is nobody whom it could be about. It is
        for this shuffler's operator, not for the analyzer.
        """
        return nobody_took_part(self.store)

    def refusal(self, document: Document, problem: WireError) -> Document | None:
        """Return why a task is not served, for its analyzer."""
        return refusal(document, str(problem), self._analyzer, self._key)

    @property
    def _serving(self) -> Task:
        if self.task is None:
            raise RefusedError(503, "no task yet")
        return self.task
