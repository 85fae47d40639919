"""What runs on a device: check the promise, answer once, and let nothing but sealed noise leave. Import it as `croupier.client`."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import ArrayLike, NDArray

from ...invalid import numbers_or_nan, one_by_one
from ...protocol import SecureRandom
from ...protocol.randomness import RandomSource
from ...validation import ArgumentError, Found
from ..net.http import Server, ServerError, require_private_way
from ..wire.documents import Document, End, WireError
from ..wire.outcomes import RefusedTaskError, Sent
from ..wire.task import Lot, Task, TaskRound, report_of
from ..wire.tokens import slot_of
from .budget import DeviceBudget
from .policy import MAX_EPSILON_IF_WATCHED, MAX_REPORT_BYTES, ClientPolicy
from .state import Memory, Wallet

# A user's mean gradient, computed on its device: refused or blanked where a record is not valid, in a thread of its own.

# What an error says in place of a record's value: errors may travel, to whoever collects an app's.
NOT_SHOWN = Found("has a value that is not shown")
Records = Callable[[], tuple[ArrayLike, Any]]
T = TypeVar("T")


def checked_mean(task: Task, task_round: TaskRound, records: Records) -> NDArray[np.float64]:
    """The mean of the records' gradients; a record that is not valid is refused by an error that says nothing of it."""
    X, y = records()
    refusal: tuple[str, str, str] | None = None
    try:
        mean = task_round.gradient(task, np.atleast_2d(np.asarray(X, dtype=np.float64)), np.atleast_1d(np.asarray(y)))
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
        mean = task_round.gradient(task, rows, np.atleast_1d(one_by_one(y)))
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

    def computed() -> NDArray[np.float64] | None:
        return blanked_mean(task, task_round, records) if task.blanks else checked_mean(task, task_round, records)

    if due is None:
        return computed()
    gradient = run_in_thread(computed)
    wait_for([gradient], timeout=max(0.0, due - time.monotonic()))
    if not gradient.done():
        return None
    value = gradient.result()
    sleep_until(due)
    return value


def sleep_until(moment: float) -> None:
    """Sleep until a moment on the monotonic clock, or not at all if it has passed."""
    time.sleep(max(0.0, moment - time.monotonic()))


# The status of a report whose round has ended.
TOO_LATE = 410


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
        In a task with secret lots, the weakest promise that is accepted to somebody who also knows when each user answered;
        infinity demands none.
    ca : path-like, optional
        A file of certificates to trust instead of the system's.
    timeout : float, default 30
        Seconds after which the shuffler is out of reach.
    at_once : bool, default False
        Answer as soon as the gradient is ready. The time of an answer then depends on the records: for made-up people alone.
    budget : DeviceBudget or path-like, optional
        The ledger of everything that the owner's devices have answered, and its limit; a file in `folder` unless given. All clients
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
    demands : Demands
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
            task = Task.read(Document.from_bytes(self._sent("/v1/task")), self._key)
            self.demands.check(task)
            self.budget.require(answered=self._memory.has_answered())
            self.budget.check(task.id, task.schedule.guarantee)
            self._task = task
        return self._task

    def round(self) -> tuple[Document, TaskRound] | None:
        """The round that takes a report of this user now, if there is one; the shuffler keeps a place in it for a minute.

        Returns
        -------
        tuple of (Document, TaskRound) or None
            As it was signed, and as it was read.
        """
        task = self.task()
        data = self._sent("/v1/round", headers=self._authorized)
        if not data:
            return None
        document = Document.from_bytes(data)
        return document, TaskRound.read(document, task, self._key)

    def lot(self) -> Lot:
        """The round that this user is asked in, as the shuffler tells it alone, in a task with secret lots.

        Returns
        -------
        Lot
            With how long it is until then at the least.

        Raises
        ------
        RefusedTaskError
            It is another one than was told before: lots are drawn once.
        WireError
            It is none of the task's rounds.
        """
        task = self.task()
        told = Lot.from_bytes(self._sent("/v1/lot", headers=self._authorized))
        if told.round is not None and told.round > task.schedule.rounds:
            raise WireError(f"a lot of round {told.round}, where the task has {task.schedule.rounds}")
        self._memory.keep_lot(task.id, told.round)
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
            Where the noise comes from; the system's secure source unless given.

        Returns
        -------
        Sent or None
            None where there is nothing to answer, or it was answered before.
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
            Where the noise comes from; the system's secure source unless given.

        Returns
        -------
        Sent or None
            None where there is nothing to answer, or it was answered before.

        Raises
        ------
        RefusedTaskError
            The task is not about tables.
        ArgumentError
            A record does not fit the schema; nothing was sent. Its text holds nothing of a record. Not in a task that blanks.
        """
        from .records import reader_of  # noqa: PLC0415  (tables are not needed for rows)

        if (reader := reader_of(self.task())) is None:
            raise RefusedTaskError("the task is not about tables: give rows to take_part. Nothing was sent.")
        return self.answer(partial(reader.of_records, records), random=random)

    def answer(self, records: Records, *, random: RandomSource | None = None) -> Sent | None:
        """Answer the present round with the rows and targets that `records` returns, read in a thread of their own.

        The report is on disk, and counted, before it is sent, so that a retry sends the same bytes: it is one answer, however
        often it is sent and whatever is heard of it. Also where the shuffler says that it came too late: that may not be true.

        Parameters
        ----------
        records : callable
            Returns this user's rows and targets. May take its time: the report leaves when it is due.
        random : RandomSource, optional
            Where the noise comes from; the system's secure source unless given.

        Returns
        -------
        Sent or None
            None where there is nothing to answer, or it was answered before.

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
            lot = self._covered_lot(task)
            if (now := self.round()) is None:
                return None
            came = time.monotonic()
            document, task_round = now
            cover = task.secret is not None and task.secret.cover and lot != task_round.number
            slot = f"{task.id}-cover-{task_round.number}" if cover else f"{task.id}-{task.slot(task_round.id)}"
            if any(entry["slot"] == slot for entry in self._memory.entries()):
                return None
            new = {"slot": slot, "task": task.id, "round": task_round.number, "phase": task_round.phase}
            if cover:  # nothing of the records, and coins of its own: a second report of a record would be a second release
                gradient, random, new["cover"] = None, SecureRandom(), True
            else:
                self._require_room(task, task_round)
                gradient = mean_when_due(task, task_round, records, None if self._at_once else came + task.pace / 2)
            blank, due = gradient is None and not cover, came + task.pace
            report = self._report(document, task_round, task, np.zeros(task.problem.dim) if gradient is None else gradient, random)
            if not cover:
                self._charge(task)
            self._memory.count(new)
            if task.enroller is not None:  # before the report: a token that is in one is in no other, whatever is killed when
                Wallet(self._memory.folder, task).forget(slot_of(task, task_round))
            waiting = self._memory.folder / f"{slot}.report"
            self._memory.write(waiting, report)
        elif "-cover-" not in waiting.name:  # it counts from when it is sent
            self._charge(task, again=True)
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

    def _covered_lot(self, task: Task) -> int | None:
        """In a task with cover, this user's round; asked for once."""
        if task.secret is None or not task.secret.cover:
            return None
        known = self._memory.lot(task.id)
        return self.lot().round if known is None else known[0]

    def _report(
        self, document: Document, task_round: TaskRound, task: Task, gradient: NDArray[np.float64], random: RandomSource
    ) -> bytes:
        token = b"" if task.enroller is None else Wallet(self._memory.folder, task).token(slot_of(task, task_round))
        return report_of(task, task_round, document, gradient, random, token).to_bytes()

    def _charge(self, task: Task, *, again: bool = False) -> None:
        """On the owner's ledger, before anything leaves."""
        analyzer = self._key.public_bytes_raw().hex()
        self.budget.charge(task.id, task.name, analyzer, task.schedule.guarantee, again=again)

    def _require_room(self, task: Task, task_round: TaskRound) -> None:
        """Refuse a round beyond those that the phase's plan covers, whatever the analyzer says."""
        plan = task_round.phase_of(task).plan
        answers = self._memory.answers(task.id)
        elsewhere = [entry for entry in answers if entry["phase"] != task_round.phase]
        if elsewhere or len(answers) >= plan.rounds:
            raise RefusedTaskError(f"the task asks more often than its plan covers ({plan.rounds} rounds). Nothing was sent.")

    @property
    def _authorized(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _sent(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        return self._server.send(path, body, headers)
