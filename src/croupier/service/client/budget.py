"""A device's budget: what all tasks of all analyzers may learn about its owner within any period, counted before anything is sent.

One file for all processes of an owner. It holds the owner's limit and one entry a task. A filter decides (docs/accounting.md,
section 4): caps on the squares of mu and on slacks, not a sum of epsilons. The period is a sliding window of length P, by the
device's clock: a task counts from its first answer until P after its last one. Its whole guarantee counts, and an answer that would
take the tasks that count beyond a cap is refused before it is sent.

Claim. Fix any interval I = [a, a + P) beforehand. All that tasks learn whose first answer is in I, in I and later, is (epsilon,
delta)-private for replacing the owner's records in these tasks, given everything before a. Proof. Let s in I be the moment at
which the last of these tasks gave its first answer. Every other one answered first in I and before s, so its last answer up to
then is not before a > s - P: it counted at s. So these tasks together kept the caps on every path, and Theorem F applies from a
on. A single task beyond a cap that keeps the limit by itself was taken only where nothing else counted, which is decided before
anything of I is released, and nothing was taken after it while it counted.

An interval of length k P is covered by k of length P. Where rounds compose one by one (no secret lots), the same holds for all
answers that leave the device in I: each was checked when it left, and the last check in I counted every task with an answer in I.
A limit that its owner changes, not because of what was released, holds as the larger of the two for intervals that have both in
them. The sum of everything is the odometer at the limit's delta, another promise than the limit, and is printed apart. A clock
that is set forward lets entries go early; one that is set back frees nothing, since entries of the future count, and no answer is
written down as earlier than one before it.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...files import create_private, lock, write_whole
from ...privacy import Guarantee
from ...privacy._filter import COMMON_DELTA, Limit, spent
from ...privacy._statements import exact, round_up
from ...validation import ArgumentError, real
from ..wire.documents import cleaned
from ..wire.task import RefusedTaskError

FORMAT, VERSION = "croupier device budget", 1
_LAST_MOMENT = 253402300799.0  # the end of the year 9999
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}
# Seconds for which a process waits for another one that writes the file.
_PATIENCE = 30.0


@dataclass(frozen=True)
class BudgetLimit(Limit):
    """What an owner allows all tasks together to learn within any period.

    `epsilon`, `delta`: The promise for all tasks that are begun within one period. `seconds`: The length of a period. `caps`: On
    squares of mu and on slacks: what keeps the promise, whatever is chosen after looking at what. By default those of the promise.
    """

    seconds: float

    def __post_init__(self) -> None:
        remedy = "State how much all tasks together may learn about you within one period."
        real("budget epsilon", self.epsilon, above=0, remedy=remedy)
        real("budget delta", self.delta, above=0, below=1, remedy=remedy)
        real("period", self.seconds, above=0, remedy="Use days, hours or weeks, such as 365d.")
        super().__post_init__()

    def __str__(self) -> str:
        return f"epsilon = {exact(self.epsilon)} at delta = {exact(self.delta)} within any {period_text(self.seconds)}"


# What `croupier join` and the page take unless the owner says otherwise.
DEFAULT_LIMIT = BudgetLimit(4.0, 1e-5, 365 * _SECONDS["d"])


@dataclass(frozen=True)
class BudgetEntry:
    """One task on a device's ledger.

    `task`: The task's id. `name`: What the analyzer calls it. `analyzer`: The analyzer's public key, 64 hex digits. `guarantee`:
    What the whole task may learn, as the device has certified it. `first`, `last`: When the first and the last answer to it was
    written down, in seconds since 1970. `answers`: How many answers were written down.
    """

    task: str
    name: str
    analyzer: str
    guarantee: Guarantee
    first: float
    last: float
    answers: int


class DeviceBudget:
    """The ledger of a device's owner, and the limit if there is one.

    Parameters
    ----------
    path : path-like
        Its file, the same for all clients of one owner.
    clock : callable, default time.time
        Seconds since 1970.

    Attributes
    ----------
    path : Path
        The file.

    Guarantee
    ---------
    Take any period of the limit's length that was fixed beforehand, by the device's clock. All that the tasks learn that are begun
    within it, then and later, is together (epsilon, delta)-differentially private for replacing the owner's records, however each
    task is chosen after looking at what others released: docs/accounting.md, section 4. Refusals follow from plans and times, which
    are public.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = Path(path).expanduser(), clock

    def limit(self) -> BudgetLimit | None:
        """The owner's limit.

        Returns
        -------
        BudgetLimit or None
            None if tasks are counted without one.
        """
        return self._read()[0]

    def entries(self) -> list[BudgetEntry]:
        """All tasks that were answered, in the order of their first answers.

        Returns
        -------
        list of BudgetEntry
            One entry a task.
        """
        return sorted(self._read()[1], key=lambda entry: entry.first)

    def allow(self, limit: BudgetLimit) -> BudgetLimit | None:
        """Remember a limit, for every later answer of every process.

        Parameters
        ----------
        limit : BudgetLimit
            The owner's word. Where it is larger than the one before, a period that began before has the larger one.

        Returns
        -------
        BudgetLimit or None
            The limit before.
        """
        with self._alone():
            before, entries = self._read()
            self._write(limit, entries)
        return before

    def check(self, task: str, guarantee: Guarantee, *, besides: Sequence[tuple[str, Guarantee]] = ()) -> None:
        """Refuse a task that there is no room for, and write nothing down.

        Parameters
        ----------
        task : str
            The task's id.
        guarantee : Guarantee
            What the whole task may learn.
        besides : sequence of (str, Guarantee), optional
            Tasks that are to be answered besides, and what each may learn: they count as if they had been.

        Raises
        ------
        RefusedTaskError
            If the limit would not be kept.
        """
        limit, entries = self._read()
        if limit is not None:
            known, now = {entry.task for entry in self.counted(limit, entries)}, self._clock()
            planned = [BudgetEntry(other, "", "", learns, now, now, 0) for other, learns in besides if other not in known]
            self._require(limit, [*entries, *planned], task, guarantee)

    def charge(
        self,
        task: str,
        name: str,
        analyzer: str,
        guarantee: Guarantee,
        *,
        again: bool = False,
        remember: Callable[[], None] | None = None,
    ) -> None:
        """Write an answer to a task down, before it is sent, or refuse. It is on the disk when this returns.

        Parameters
        ----------
        task : str
            The task's id. All of its answers are one entry, which counts from the first answer until a period after the last.
        name : str
            What the analyzer calls it.
        analyzer : str
            The analyzer's public key.
        guarantee : Guarantee
            What the whole task may learn.
        again : bool, default False
            Whether the same bytes were written down before: they are no other answer.
        remember : callable, optional
            Writes the answer into the client's own memory. Called once there is room and before the ledger counts it: whatever is
            killed when, a memory that has fewer answers than the ledger has lost some.

        Raises
        ------
        RefusedTaskError
            If the limit would not be kept. Nothing was written down.
        """
        with self._alone():
            limit, entries = self._read()
            if limit is not None:
                self._require(limit, entries, task, guarantee)
            known = next((one for one in entries if one.task == task), None)
            now = max([self._clock(), *(one.last for one in entries)])  # with a clock set back it would cease to count too soon
            entry = known or BudgetEntry(task, name, analyzer, guarantee, now, now, 0)
            entry = replace(entry, last=max(entry.last, now), answers=entry.answers + (not again or known is None))
            if remember is not None:
                remember()
            # in its old place: the first entry fixes the odometer's first cap, also where two began at the same moment
            self._write(limit, [entry if one is known else one for one in entries] + ([] if known else [entry]))

    def counted(self, limit: BudgetLimit, entries: Sequence[BudgetEntry]) -> list[BudgetEntry]:
        """The entries that count now: those with an answer within the last period, and later by the clock where it was set back.

        Parameters
        ----------
        limit : BudgetLimit
            With the length of the period.
        entries : sequence of BudgetEntry
            All entries.

        Returns
        -------
        list of BudgetEntry
            Some of them.
        """
        begun = self._clock() - limit.seconds
        return [entry for entry in entries if entry.last > begun]

    def spent(self, *, watched: bool = False) -> float:
        """An epsilon for everything that was ever answered, which holds whenever one looks (the odometer of section 4).

        Parameters
        ----------
        watched : bool, default False
            Whether it is to hold to an observer of arrival times, too, who knows everybody's lot.

        Returns
        -------
        float
            At the limit's delta, or 1e-6 where there is no limit; infinite if slacks are beyond a quarter of it.
        """
        limit, _ = self._read()
        return spent([entry.guarantee for entry in self.entries()], limit.delta if limit else COMMON_DELTA, watched=watched)

    def to_dict(self) -> dict[str, Any]:
        """The ledger as plain JSON values; privacy figures are text, rounded up.

        Returns
        -------
        dict
            `limit` with the parts of it that are used, `tasks`, and the `epsilon` of everything at `delta`, with
            `epsilon if watched`, which holds to an observer of arrival times, too.
        """
        limit, entries = self._read()[0], self.entries()
        now = [] if limit is None else self.counted(limit, entries)
        delta = limit.delta if limit else COMMON_DELTA
        used = None if limit is None else limit.use([entry.guarantee for entry in now])
        return {
            "limit": None
            if limit is None or used is None
            else {
                "epsilon": exact(limit.epsilon),
                "delta": exact(limit.delta),
                "period": period_text(limit.seconds),
                "used of mu^2": round_up(used[0]),
                "used of slack": round_up(used[1]),
            },
            "tasks": [
                {
                    "task": entry.task,
                    "name": cleaned(entry.name),
                    "analyzer": entry.analyzer,
                    "first": _moment(entry.first),
                    "last": _moment(entry.last),
                    "answers": entry.answers,
                    "epsilon": round_up(_epsilon(entry.guarantee, delta)),
                    "epsilon if watched": round_up(_epsilon(entry.guarantee.if_watched, delta)),
                    "delta": exact(delta),
                    "counts": limit is not None and entry in now,
                }
                for entry in entries
            ],
            "epsilon": round_up(self.spent()),
            "epsilon if watched": round_up(self.spent(watched=True)),
            "delta": exact(delta),
        }

    def _require(self, limit: BudgetLimit, entries: Sequence[BudgetEntry], task: str, guarantee: Guarantee) -> None:
        """Refuse unless all that count now, with this task, keep the limit."""
        others = [entry for entry in self.counted(limit, entries) if entry.task != task]
        before = next((entry.guarantee for entry in entries if entry.task == task), guarantee)
        together = [before, *(entry.guarantee for entry in others)]
        if limit.keeps(together):
            return
        squares, slacks = limit.use(together)
        which = "squares of mu" if squares > 1 else "slacks"
        raise RefusedTaskError(
            f"with this task, what {len(others) + 1} tasks may learn within any {period_text(limit.seconds)} is beyond the owner's "
            f"limit, epsilon = {exact(limit.epsilon)} at delta = {exact(limit.delta)}: their {which} would be "
            f"{round_up(max(squares, slacks))} times the cap on them. {_room(limit, before, others)} Nothing was sent."
        )

    def require(self, answered: bool) -> None:
        """Refuse where the ledger is gone: without it the owner's limit would be, too.

        Parameters
        ----------
        answered : bool
            Whether this device remembers that it has answered a task, which a ledger must know of.

        Raises
        ------
        ArgumentError
            If there is no ledger but its lock, or a task was answered.
        """
        # the ledger is written before the lock, and never deleted: a lock without a ledger is what somebody left of it
        if self.path.exists() or not (self._lock.exists() or answered):
            return
        left = f"; {self._lock} and what was answered would count as nothing" if self._lock.exists() else ""
        remedy = "Restore it: without it your limit is gone, and your earlier answers are not counted. If it is lost, "
        remedy += "delete its lock, if there is one, and start a new ledger: croupier join --budget-epsilon EPSILON, alone."
        raise ArgumentError("budget file", str(self.path), f"present, because tasks were answered with it{left}", remedy)

    @property
    def _lock(self) -> Path:
        return self.path.with_suffix(".lock")

    def _read(self) -> tuple[BudgetLimit | None, list[BudgetEntry]]:
        if not self.path.exists():
            self.require(answered=False)
            return None, []
        try:
            return _parsed(self.path.read_text(encoding="utf-8"))
        except (ValueError, KeyError, TypeError, AttributeError):
            remedy = "Restore it: without it you might reveal more than you allow."
            raise ArgumentError("budget file", str(self.path), f"a {FORMAT} of version {VERSION}", remedy) from None

    def _write(self, limit: BudgetLimit | None, entries: Sequence[BudgetEntry]) -> None:
        terms = None if limit is None else {name: getattr(limit, name) for name in ("epsilon", "delta", "seconds")}
        tasks = [asdict(entry) | {"guarantee": entry.guarantee.to_dict()} for entry in entries]
        text = json.dumps({"format": FORMAT, "version": VERSION, "limit": terms, "tasks": tasks}, indent=1) + "\n"
        try:
            if _parsed(text) != (limit, list(entries)):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            remedy = "It was not written, because it could not be read back; nothing was sent. Report this as a bug."
            raise ArgumentError(
                "budget entry", [asdict(entry) for entry in entries][-1:], "made of texts and numbers", remedy
            ) from None
        write_whole(self.path, text.encode(), private=True)

    def _begin(self) -> None:
        """Make an empty ledger before there is a lock, unless another process has made one."""
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.{threading.get_ident()}.draft")
        empty = (json.dumps({"format": FORMAT, "version": VERSION, "limit": None, "tasks": []}) + "\n").encode()
        write_whole(draft, empty, private=True)
        try:
            with suppress(FileExistsError):
                try:
                    os.link(draft, self.path)
                except PermissionError:  # a file system without links, as sticks have
                    create_private(self.path, empty)
        finally:
            draft.unlink()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process after the other; the lock is a file beside the ledger, which is replaced whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._lock.exists() and not self.path.exists():
            self._begin()
        with self._lock.open("a") as file:
            deadline = time.monotonic() + _PATIENCE
            while True:
                try:
                    lock(file.fileno())
                    break
                except OSError:
                    if time.monotonic() >= deadline:
                        remedy = "Wait until the other process ends."
                        raise ArgumentError("budget file", str(self.path), "used by one process at a time", remedy) from None
                    time.sleep(0.05)
            yield


def _parsed(text: str) -> tuple[BudgetLimit | None, list[BudgetEntry]]:
    """A ledger's text, every value of the type that it must have."""
    values = json.loads(text)
    if (values["format"], values["version"]) != (FORMAT, VERSION):
        raise ValueError
    limit = values["limit"] and BudgetLimit(**values["limit"])
    entries = [BudgetEntry(**one | {"guarantee": Guarantee.from_dict(one["guarantee"])}) for one in values["tasks"]]
    for entry in entries:
        if not all(isinstance(word, str) for word in (entry.task, entry.name, entry.analyzer)):
            raise ValueError
        if not 0 <= entry.first <= entry.last < _LAST_MOMENT or type(entry.answers) is not int or entry.answers < 0:
            raise ValueError
    return limit, entries


def period_of(text: str, name: str = "--period") -> float:
    """Return the seconds of a period that a person wrote: `365d`, `12h`, `4w`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip())
    if found is None or float(found[1]) <= 0:
        raise ArgumentError(name, text, "a positive number followed by h, d or w", "Write 365d for a year.")
    return float(found[1]) * _SECONDS[found[2]]


def period_text(seconds: float) -> str:
    """Return a period in days, or in hours where it is shorter than a day."""
    return f"{seconds / _SECONDS['d']:g} days" if seconds >= _SECONDS["d"] else f"{seconds / _SECONDS['h']:g} hours"


def _room(limit: BudgetLimit, asked: Guarantee, others: Sequence[BudgetEntry]) -> str:
    """When there will be room, if nothing else is answered until then."""
    waiting = sorted(others, key=lambda entry: entry.last)
    for left in range(1, len(waiting) + 1):
        if max(limit.use([asked, *(entry.guarantee for entry in waiting[left:])])) <= 1:
            moment = waiting[left - 1].last + limit.seconds
            return f"There is room for it after {_moment(moment) if moment < _LAST_MOMENT else 'the year 9999'}."
    return "It is beyond the limit by itself."


def _epsilon(guarantee: Guarantee, delta: float) -> float:
    return guarantee.epsilon(delta) if guarantee.slack < delta else float("inf")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
