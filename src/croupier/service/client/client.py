"""What runs on a device: check the promise, answer once, and let nothing but sealed noise leave. Import it as `croupier.client`."""

from __future__ import annotations

import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import ArrayLike, NDArray

from ...privacy import Guarantee
from ...privacy._statements import exact, round_up, watched_line
from ...protocol import SecureRandom
from ...protocol.randomness import RandomSource
from ...validation import ArgumentError, Found, numbers_or_nan, one_by_one, real, whole
from ..net.http import Server, ServerError, require_private_way
from ..wire.documents import Document, End, WireError
from ..wire.queries import NOT_SHOWN
from ..wire.task import MAX_EPSILON_IF_WATCHED, Lot, RefusedTaskError, Sent, Start, Task, TaskRound, report_of
from .budget import DeviceBudget
from .state import Memory, Wallet

# What a client demands of a task before it answers: promises that it computes itself, work that it can do, the right enroller.

# How long a report it makes, unless it says otherwise: one of these takes some ten seconds to prove or to seal on a slow machine.
MAX_REPORT_BYTES = 4_000_000


@dataclass(frozen=True)
class ClientPolicy:
    """The weakest promises that are accepted for everything a task will ask, and what else a task has to be."""

    epsilon: float  # of the whole task
    delta: float  # both figures are stated at it
    epsilon_if_watched: float  # with secret lots: to an attacker who also knows when each user answered. Infinity demands nothing
    report_bytes: int = MAX_REPORT_BYTES  # how long a report may be
    enroller: str | None = None  # the address of the only enroller that may see the invitation; None leaves it to the task

    @classmethod
    def of(
        cls,
        max_epsilon: float,
        max_delta: float,
        max_epsilon_if_watched: float,
        max_report_bytes: int = MAX_REPORT_BYTES,
        enroller: str | None = None,
    ) -> Self:
        """Take what a client's owner says."""
        remedy = "It is the largest epsilon that you accept for the whole task."
        watched = max_epsilon_if_watched
        if watched != math.inf:
            inf = "It is the largest epsilon that you accept against an attacker who also knows when you answered; inf: any."
            watched = real("max_epsilon_if_watched", watched, above=0, remedy=inf)
        epsilon = real("max_epsilon", max_epsilon, above=0, remedy=remedy)
        delta = real("max_delta", max_delta, above=0, below=1, remedy=remedy)
        longest = whole("max_report_bytes", max_report_bytes, at_least=1, remedy="It is the longest report that you send.")
        if enroller is not None:
            require_private_way(enroller, "enroller")
        return cls(epsilon, delta, watched, longest, enroller)

    def check(self, task: Task) -> None:
        """Refuse a task that promises less, asks for longer reports, or has another enroller."""
        self._check_enroller(task)
        self._check_reports(task)
        promise = task.schedule.guarantee
        if promise.neighbours != "replace-one":
            raise RefusedTaskError(
                f"the task promises for {promise.neighbours} neighbours; 'replace-one' is demanded. Nothing was sent."
            )
        epsilon, watched = self._epsilon(promise), self._epsilon(promise.if_watched)
        if epsilon <= self.epsilon and (promise.watched is None or watched <= self.epsilon_if_watched):
            return
        if promise.watched is None:
            raise RefusedTaskError(
                f"the task reveals epsilon = {round_up(epsilon)} at delta = {exact(self.delta)}, more than the "
                f"{exact(self.epsilon)} that is allowed here. Nothing was sent."
            )
        allowed = "any" if self.epsilon_if_watched == math.inf else exact(self.epsilon_if_watched)
        raise RefusedTaskError(
            f"{self.figures(task)}; allowed here are {exact(self.epsilon)} (max_epsilon) and {allowed} (max_epsilon_if_watched). "
            "Nothing was sent."
        )

    def _check_enroller(self, task: Task) -> None:
        """An invitation is for one enroller: whoever gets it at another address can use it in this user's place."""
        named = None if task.enroller is None else task.enroller.address
        if self.enroller is not None and (named is None or named.rstrip("/") != self.enroller.rstrip("/")):
            said = "has no enroller" if named is None else f"names the enroller {named}"
            raise RefusedTaskError(f"the task {said}; {self.enroller} is demanded (enroller). Nothing was sent.")

    def _check_reports(self, task: Task) -> None:
        """A report is made before it is sent, whatever that takes: the task says how long it is."""
        longest = task.most_report_bytes()
        if longest > self.report_bytes:
            raise RefusedTaskError(
                f"the task asks for reports of {longest:,} bytes by {task.transport}, more than the {self.report_bytes:,} that are "
                "allowed here (max_report_bytes). Nothing was sent."
            )

    def figures(self, task: Task) -> str:
        """Say what the whole task reveals at the demanded delta."""
        promise = task.schedule.guarantee
        line = f"the task reveals epsilon = {round_up(self._epsilon(promise))} at delta = {exact(self.delta)}"
        if promise.watched is None:
            return line
        watched = watched_line(promise, self.delta)
        known = "an attacker who also knows when each user answered, even if the shuffler tells"
        return f"{line} with secret lots, {self._between(task)}and to {known}, {watched}"

    def _between(self, task: Task) -> str:
        """With blocks, what is left to whoever knows when each user answered, and not the block."""
        lots = task.schedule.phases[0].lots
        if lots is None or task.blocks == 1:
            return ""
        epsilon = self._epsilon(task.schedule.with_shortfall(lots.if_timing_known))
        said = f"epsilon {round_up(epsilon)}" if epsilon < math.inf else "no promise"
        return f"to one who knows when each user answered but not its block {said}, "

    def _epsilon(self, promise: Guarantee) -> float:
        return promise.epsilon(self.delta) if promise.slack < self.delta else math.inf


# A user's mean gradient, computed on its device: refused or blanked where a record is not valid, in a thread of its own.

Records = Callable[[], tuple[ArrayLike, Any]]
T = TypeVar("T")


def checked_mean(task: Task, task_round: TaskRound, records: Records) -> NDArray[np.float64]:
    """The mean of the records' gradients; a record that is not valid is refused by an error that says nothing of it."""
    X, y = records()
    refusal: tuple[str, str, str] | None = None
    try:
        mean = task_round.vector(task, np.atleast_2d(np.asarray(X, dtype=np.float64)), np.atleast_1d(np.asarray(y)))
        if np.isfinite(mean).all():
            return mean
    except ArgumentError as problem:
        refusal = problem.name, problem.allowed, problem.remedy
    except (TypeError, ValueError):
        pass
    # Outside of what caught it: no trace leads back to an error that quotes a record.
    name, allowed, remedy = refusal or ("X, y", "finite numbers", "Impute what is missing.")
    raise ArgumentError(name, NOT_SHOWN, allowed, f"{remedy} Nothing was sent.")


def blanked_mean(task: Task, task_round: TaskRound, records: Records) -> NDArray[np.float64] | None:
    """The same where a record that is not valid has gradient 0."""
    with suppress(Exception):
        X, y = records()
        rows = np.atleast_2d(np.asarray(numbers_or_nan(X), dtype=np.float64))
        mean = task_round.vector(task, rows, np.atleast_1d(one_by_one(y)))
        if np.isfinite(mean).all():
            return mean
    return None


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """What a thread of its own makes of the work. The process ends without waiting for it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as problem:  # for whoever asks for the result
            future.set_exception(problem)

    threading.Thread(target=run, name="records", daemon=True).start()
    return future


def mean_when_due(task: Task, task_round: TaskRound, records: Records, due: float | None) -> NDArray[np.float64] | None:
    """The mean of the records' gradients, when it is due and no sooner."""
    return when_due(lambda: (blanked_mean if task.blanks else checked_mean)(task, task_round, records), due)


def when_due(compute: Callable[[], T], due: float | None) -> T | None:
    """What is computed, when it is due and no sooner; None if it is not ready by then."""
    if due is None:
        return compute()
    computed = run_in_thread(compute)
    wait_for([computed], timeout=max(0.0, due - time.monotonic()))
    if not computed.done():
        return None
    value = computed.result()
    sleep_until(due)
    return value


def sleep_until(moment: float) -> None:
    """Sleep until a moment on the monotonic clock, or not at all if it has passed."""
    time.sleep(max(0.0, moment - time.monotonic()))


# The status of a report whose round has ended, and of whatever cannot be answered now.
TOO_LATE, NOT_NOW = 410, 503
# Seconds for which a round waits for a client that was told of it, less what a report may be on its way.
KEPT_SECONDS = 50.0


class Client:
    """One user. `folder` is its memory: which rounds it has answered, and a report until the shuffler has it.

    Parameters
    ----------
    shuffler : str
        Its address: https, or http on this machine alone.
    token : str
        What the user was enrolled with.
    analyzer_key : str
        64 hex digits, known from elsewhere than the shuffler.
    folder : path-like
        Where is remembered what was answered.
    max_epsilon : float, default 1.0
        The weakest promise that the user accepts for everything the task will ask.
    max_delta : float, default 1e-6
        At this delta.
    max_epsilon_if_watched : float, default 10
        In a task with secret lots, the weakest promise that is accepted to an attacker who also knows when each user answered;
        infinity demands none.
    ca : path-like, optional
        A file of certificates to trust instead of the system's.
    timeout : float, default 30
        Seconds after which the shuffler is out of reach.
    at_once : bool, default False
        Answer as soon as the gradient is ready. The time of an answer then depends on the records: for synthetic data alone.
    budget : DeviceBudget or path-like, optional
        The ledger of everything that the owner's devices have answered, and its limit; default: a file in `folder`. All clients
        of one owner should share one.
    invitation : str, optional
        What the task's enroller knows this person by, where the task has one.
    enroller_ca : path-like, optional
        A file of certificates to trust for the enroller instead of the system's.
    enroller : str, optional
        The enroller's address, known from elsewhere than the task: a task that names another, or none, is refused.
    max_report_bytes : int, default 4 000 000
        The longest report that is made. To make one takes time in proportion, which the task alone would set.

    Attributes
    ----------
    budget : DeviceBudget
        The ledger.
    demands : ClientPolicy
        The weakest promises that are accepted.

    Guarantee
    ---------
    Nothing is sent that would take what all tasks on the ledger may learn beyond its limit (`DeviceBudget`).

    Unless `at_once`, a report leaves the task's `pace` after the round came, whatever the records are and however long it takes to
    read them: what is not ready in half of that time is answered by a blank report, that of a user whose gradient is 0.
    """

    def __init__(
        self,
        shuffler: str,
        token: str,
        analyzer_key: str,
        *,
        folder: str | os.PathLike[str],
        max_epsilon: float = 1.0,
        max_delta: float = 1e-6,
        max_epsilon_if_watched: float = MAX_EPSILON_IF_WATCHED,
        ca: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        at_once: bool = False,
        budget: DeviceBudget | str | os.PathLike[str] | None = None,
        invitation: str | None = None,
        enroller_ca: str | os.PathLike[str] | None = None,
        enroller: str | None = None,
        max_report_bytes: int = MAX_REPORT_BYTES,
    ) -> None:
        self._token = token.strip()
        if not re.fullmatch(r"[!-~]+", self._token):
            raise ArgumentError("token", Found("has other characters"), "letters, digits and signs", "Copy it as it was printed.")
        try:
            self._key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(analyzer_key))
        except ValueError:
            remedy = "Ask the analyzer's operator for it; do not take it from the shuffler."
            raise ArgumentError("analyzer_key", analyzer_key, "64 hex digits", remedy) from None
        require_private_way(shuffler)
        self._memory = Memory(Path(folder).expanduser())
        self.demands = ClientPolicy.of(max_epsilon, max_delta, max_epsilon_if_watched, max_report_bytes, enroller)
        self._server = Server(shuffler, ca=ca, timeout=timeout)
        self._task: Task | None = None
        self._start: tuple[Start | None, float] = None, 0.0  # what came with the task and was not used yet, and when
        self._at_once = at_once
        self._invitation, self._enroller_ca, self._timeout = invitation, enroller_ca, timeout
        self.budget = budget if isinstance(budget, DeviceBudget) else DeviceBudget(budget or self._memory.folder / "budget.json")

    def task(self) -> Task:
        """The task, its signature and its promise checked here, not believed.

        Returns
        -------
        Task
            What is trained and how.

        Raises
        ------
        RefusedTaskError
            It is not as is demanded (`demands`), or would take its owner beyond the limit on the ledger.
        WireError
            It is not signed by the analyzer, or cannot be proved.
        ServerError
            The shuffler refused, or could not be reached.
        """
        if self._task is None:
            start = self._begun()
            task = Task.read(start.task, self._key)
            self.demands.check(task)
            self.budget.require(answered=self._memory.has_answered())
            self.budget.check(task.id, task.schedule.guarantee)
            self._task, self._start = task, (start, time.monotonic())
        return self._task

    def _begun(self) -> Start:
        """All that is asked before an answer, in one request; the task alone where the shuffler has no such answer, or refuses."""
        try:
            return Start.from_bytes(self._sent("/v1/start", headers=self._authorized))
        except ServerError as refusal:
            if refusal.status is None or refusal.status == NOT_NOW:
                raise
        return Start(Document.from_bytes(self._sent("/v1/task")))

    def round(self) -> tuple[Document, TaskRound] | None:
        """The round that takes a report of this user now, if there is one; the shuffler keeps a place in it for a minute.

        Returns
        -------
        tuple of (Document, TaskRound) or None
            As it was signed, and as it was read.
        """
        task = self.task()
        (start, then), self._start = self._start, (None, 0.0)
        document = None if start is None else start.round  # it does not end without this user for a while
        if document is None or time.monotonic() + task.pace > then + KEPT_SECONDS:
            data = self._sent("/v1/round", headers=self._authorized)
            document = Document.from_bytes(data) if data else None
        return None if document is None else (document, TaskRound.read(document, task, self._key))

    def open_round(self) -> int | None:
        """The number of the round that takes reports now, whoever's it is, by the analyzer's signed word.

        Returns
        -------
        int or None
            None if no round is open.
        """
        task, data = self.task(), self._sent("/v1/round")
        return TaskRound.read(Document.from_bytes(data), task, self._key).number if data else None

    def lot(self) -> Lot:
        """The round that this user is asked in, as the shuffler tells it alone, in a task with secret lots.

        Returns
        -------
        Lot
            With how long it is until then at the least, and in a task with blocks the block that the user sends.

        Raises
        ------
        RefusedTaskError
            It is another one than was told before: lots are drawn once.
        WireError
            It is none of the task's rounds, or blocks.
        """
        task = self.task()
        (start, then), self._start = self._start, (None, 0.0)
        told = None if start is None else start.lot
        if told is None:
            told = Lot.from_bytes(self._sent("/v1/lot", headers=self._authorized))
        else:
            told = replace(told, wait=max(0.0, told.wait - (time.monotonic() - then)))
        place = None
        if told.round is not None:
            if told.round > task.schedule.rounds:
                raise WireError(f"a lot of round {told.round}, where the task has {task.schedule.rounds}")
            places = task.lots_of(told.round)
            if (told.block is None) != (len(places) == 1) or (told.block or 0) >= len(places):
                raise WireError(f"a lot of block {told.block}, where the round has {len(places)}")
            place = places[told.block or 0]
        self._memory.keep_lot(task.id, place)
        return told

    def collect(self) -> None:
        """Get this user's tokens from the task's enroller: all of them at once, at a time that does not depend on records.

        Where the task has no enroller, or the tokens are here, nothing is sent.

        Raises
        ------
        ArgumentError
            There is no invitation, or the enroller does not take it.
        WireError
            What the enroller answers is not signed by its keys.
        ServerError
            The enroller could not be reached, or says to come later.
        """
        task = self.task()
        if task.enroller is not None:
            require_private_way(task.enroller.address, "enroller")
            server = Server(task.enroller.address, ca=self._enroller_ca, timeout=self._timeout)
            Wallet(self._memory.folder, task).collect(server, self._invitation)

    def ended(self) -> End | None:
        """Whether the task has ended, by the analyzer's signed word.

        Returns
        -------
        End or None
            None while it goes on, as far as the shuffler knows.

        Raises
        ------
        WireError
            What the shuffler shows is not the analyzer's.
        """
        data = self._sent("/v1/end")
        return End.read(Document.from_bytes(data), self.task().id, self._key) if data else None

    def answered(self) -> int:
        """How many answers to the task are in the ledger, whatever was heard of them; cover is none.

        Returns
        -------
        int
            At most as many as the task's plan covers.
        """
        task = self.task()
        return len(self._memory.answers(task.id))

    def waits(self) -> bool:
        """Whether a report is here that the shuffler is not known to have.

        Returns
        -------
        bool
            `answer` sends it again.
        """
        return any(self._memory.folder.glob(f"{self.task().id}-*.report"))

    def take_part(self, X: ArrayLike, y: Any, *, random: RandomSource | None = None) -> Sent | None:
        """Answer the present round with this user's rows: `answer` for rows that are here.

        Parameters
        ----------
        X, y : array-like
            The user's rows and their targets; one row may be given as a vector.
        random : RandomSource, optional
            Where the noise comes from; default: the system's secure source.

        Returns
        -------
        Sent or None
            None if there is nothing to answer, or it was answered before.
        """
        return self.answer(lambda: (X, y), random=random)

    def take_part_with(
        self, records: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, random: RandomSource | None = None
    ) -> Sent | None:
        """Answer the present round with this user's records, by the columns of the task's schema: `answer` for a table's task.

        Parameters
        ----------
        records : mapping or sequence of mappings
            One record or several, each with a value for every column of the schema and its target.
        random : RandomSource, optional
            Where the noise comes from; default: the system's secure source.

        Returns
        -------
        Sent or None
            None if there is nothing to answer, or it was answered before.

        Raises
        ------
        RefusedTaskError
            The task is not about tables.
        ArgumentError
            A record does not fit the schema; nothing was sent. Its text holds nothing of a record. Not in a task that blanks.
        """
        query = self.task().query
        if query.columns is None:
            raise RefusedTaskError("the task is not about tables: give rows to take_part. Nothing was sent.")
        return self.answer(partial(query.read_records, records), random=random)

    def answer(self, records: Records, *, random: RandomSource | None = None) -> Sent | None:
        """Answer the present round with the rows and targets that `records` returns, read in a thread of their own.

        The report is on disk, and counted, before it is sent, so that a retry sends the same bytes: it is one answer, however
        often it is sent and whatever is heard of it. Also where the shuffler says that it came too late: that may not be true.

        Parameters
        ----------
        records : callable
            Returns this user's rows and targets. May take its time: the report leaves when it is due.
        random : RandomSource, optional
            Where the noise comes from; default: the system's secure source.

        Returns
        -------
        Sent or None
            None if there is nothing to answer, or it was answered before.

        Raises
        ------
        ArgumentError
            The loss cannot take these records; nothing was sent. Its text holds nothing of a record. Not in a task that blanks
            records that are not valid: there such a record has gradient 0, and an answer is sent.
        """
        task = self.task()
        with self._memory.alone():
            return self._answer(task, records, random or SecureRandom())

    def _answer(self, task: Task, records: Records, random: RandomSource) -> Sent | None:
        waiting = next(iter(sorted(self._memory.folder.glob(f"{task.id}-*.report"))), None)
        first_time, blank, due = waiting is None, False, 0.0
        if waiting is None:
            self.collect()
            lot = self._lot(task)
            if (now := self.round()) is None:
                return None
            came = time.monotonic()
            document, task_round = now
            cover = task.secret is not None and task.secret.cover and lot not in task.lots_of(task_round.number)
            task_round = self._part(task, task_round, lot, cover)
            slot = f"{task.id}-cover-{task_round.number}" if cover else f"{task.id}-{task.slot(task_round)}"
            if any(entry["slot"] == slot for entry in self._memory.entries()):
                return None
            new = {"slot": slot, "task": task.id, "round": task_round.number, "phase": task_round.phase}
            if cover:  # nothing of the records, and coins of its own: a second report of a record would be a second release
                gradient, random, new["cover"] = None, SecureRandom(), True
            else:
                self._require_room(task, task_round)
                gradient, kept = self._vector(task, task_round, records, None if self._at_once else came + task.pace / 2)
                new |= kept
            blank, due = gradient is None and not cover, came + task.pace
            report = self._report(
                document, task_round, task, np.zeros(task_round.phase_of(task).plan.dim) if gradient is None else gradient, random
            )
            self._write_down(task, new)
            if task.enroller is not None:  # before the report: a token that is in one is in no other, whatever is killed when
                Wallet(self._memory.folder, task).forget(task.token_slot(task_round))
            waiting = self._memory.folder / f"{slot}.report"
            self._memory.write(waiting, report)
        elif not self._memory.covers(waiting.stem):  # it counts from when it is sent
            self._write_down(task)
        entry = next((known for known in self._memory.entries() if known["slot"] == waiting.stem), None)
        if entry is None:  # somebody has lost the ledger: of the report it is known only that it may have been sent
            entry = {"slot": waiting.stem, "task": task.id, "round": 0, "phase": 0}
            self._memory.count(entry)
        body = waiting.read_bytes()
        if not self._at_once:
            sleep_until(due)
        try:
            self._sent("/v1/report", body, self._authorized)
        except ServerError as refusal:
            if refusal.status == TOO_LATE:
                waiting.unlink()
            raise
        waiting.unlink()
        return Sent(entry["round"], first_time, blank, bool(entry.get("cover")))

    def _vector(
        self, task: Task, task_round: TaskRound, records: Records, due: float | None
    ) -> tuple[NDArray[np.float64] | None, dict[str, Any]]:
        """What is answered, None if that is a blank, and what is kept with the answer.

        Where devices remember, it is one coordinate of a vector over all rounds. Records that are not ready in time do not count
        then, whatever they are; what has counted before does.
        """
        query: Any = task.query_of(task_round.phase)
        if not query.remembers:
            return mean_when_due(task, task_round, records, due), {}
        kept = [entry["counted"] for entry in self._memory.answers(task.id)]
        before = max(kept, key=lambda one: one["until"], default=None)
        read = when_due(records, due)
        counted = query.counted(query.no_rows("")[0] if read is None else read[0], task_round.number, before)
        return np.array([query.coordinate(counted["days"], task_round.number)]), {"counted": counted}

    def _lot(self, task: Task) -> int | None:
        """In a task with cover or blocks, this user's lot, by its place among all; asked for once."""
        if task.secret is None or not (task.secret.cover or task.blocks > 1):
            return None
        if self._memory.lot(task.id) is None:
            self.lot()
        known = self._memory.lot(task.id)
        return None if known is None else known[0]

    def _part(self, task: Task, task_round: TaskRound, lot: int | None, cover: bool) -> TaskRound:
        """The round with the block that is sent: the lot's, or as cover one that is drawn afresh."""
        parts, places = task_round.parts(task), task.lots_of(task_round.number)
        if len(parts) == 1:
            return task_round
        if lot not in places and not cover:
            raise WireError(f"round {task_round.number}, which is not this user's lot, wants an answer: lots are drawn once")
        return secrets.choice(parts) if cover or lot is None else parts[places.index(lot)]

    def _report(
        self, document: Document, task_round: TaskRound, task: Task, gradient: NDArray[np.float64], random: RandomSource
    ) -> bytes:
        token = b"" if task.enroller is None else Wallet(self._memory.folder, task).token(task.token_slot(task_round))
        return report_of(task, task_round, document, gradient, random, token).to_bytes()

    def _write_down(self, task: Task, new: dict[str, Any] | None = None) -> None:
        """Before anything leaves: what is new in the client's memory, and all but cover on the owner's ledger."""
        if new and new.get("cover"):
            self._memory.count(new)
            return
        remember = partial(self._memory.count, new) if new else None
        analyzer = self._key.public_bytes_raw().hex()
        self.budget.charge(task.id, task.name, analyzer, task.schedule.guarantee, again=new is None, remember=remember)

    def _require_room(self, task: Task, task_round: TaskRound) -> None:
        """Refuse a round beyond those that the phase's plan covers, whatever the analyzer says, or where answers were forgotten."""
        most = task.query_of(task_round.phase).most_answers(task_round.phase_of(task))
        answers = self._memory.answers(task.id)
        charged = sum(entry.answers for entry in self.budget.entries() if entry.task == task.id)
        if len(answers) < charged:
            raise RefusedTaskError(
                f"{self._memory.folder / 'ledger.jsonl'} remembers {len(answers)} of the {charged} answers to this task that "
                f"{self.budget.path} counts: another one could reveal more than is promised. Restore the file, or use the "
                "folder that has answered; if it is lost, leave this task. Other tasks can be answered. Nothing was sent."
            )
        elsewhere = [entry for entry in answers if entry["phase"] != task_round.phase]
        if elsewhere or len(answers) >= most:
            raise RefusedTaskError(f"the task asks more often than its plan covers ({most} rounds). Nothing was sent.")

    @property
    def _authorized(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _sent(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        return self._server.send(path, body, headers)
