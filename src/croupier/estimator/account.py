"""What has been spent on the same people: every fit of an estimator and of its clones, added up."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from ..privacy import Guarantee, round_up
from ..privacy.ledger import BudgetExceededError
from ..validation import ArgumentError, real


class BudgetWarning(UserWarning):
    """The same people's data is used for more than one fit, and nobody said that this is being counted."""


@dataclass(frozen=True)
class Spent:
    """One fit: what was fitted, on how many users, under which guarantee; None where its randomness was seeded.

    `run` names the run: a fit that goes on from a checkpoint is the same run, and is counted once.
    """

    what: str
    users: int
    guarantee: Guarantee | None
    run: str


class PrivacyAccount:
    """Counts what all fits on one group of people reveal together. Give the same account to every estimator that sees them.

    Clones share it, so a grid search is counted fit by fit. `guarantee` composes all of them as if everybody took part in each,
    which is an upper bound for cross-validation. With `epsilon` and `delta`, a fit that would exceed them is refused before it
    asks anybody. With `path`, the account is a file that other processes and later days charge as well; without, it lives in
    this process only, and refuses to be charged in another (n_jobs above 1).

    Scores on held-out people are releases too, and not counted here: whoever publishes them publishes something about the data.

    >>> import numpy as np
    >>> from croupier.estimator import PrivacyAccount, ShuffleLogisticRegression
    >>> account = PrivacyAccount(epsilon=2.0, delta=1e-5)
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> for epsilon in (0.5, 1.0):
    ...     model = ShuffleLogisticRegression(epsilon=epsilon, classes=[False, True], account=account).fit(X, X[:, 0] > 0)
    >>> len(account.fits), account.spent(1e-6) < 1.5
    (2, True)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, epsilon: float | None = None, delta: float = 1e-6) -> None:
        self.path = None if path is None else Path(path).absolute()
        remedy = "Give the total that these people are promised, or leave epsilon out to count without a limit."
        self.epsilon = None if epsilon is None else real("epsilon", epsilon, above=0, remedy=remedy)
        self.delta = real("delta", delta, above=0, below=1, remedy=remedy)
        self._fits: list[Spent] = []
        self._lock = threading.Lock()
        self._home: int | None = os.getpid()

    @property
    def fits(self) -> tuple[Spent, ...]:
        """Every fit so far, in order."""
        return tuple(self._fits) if self.path is None else tuple(_read(self.path))

    @property
    def guarantee(self) -> Guarantee | None:
        """For a user who took part in all fits; None where there was none, or where one was seeded and so not private."""
        return _composed([spent.guarantee for spent in self.fits])

    @property
    def elsewhere(self) -> bool:
        """Whether this is a copy, in another process or out of a pickle, whose charges nobody would see."""
        return self.path is None and self._home != os.getpid()

    def spent(self, delta: float | None = None) -> float:
        """The epsilon of everything so far, at `delta` (the account's own unless given); infinite where none can be promised."""
        guarantee, delta = self.guarantee, self.delta if delta is None else delta
        if guarantee is None:
            return float("inf") if self.fits else 0.0
        return guarantee.epsilon(delta) if delta > guarantee.slack else float("inf")

    def charge(self, what: str, users: int, guarantee: Guarantee | None, run: str | None = None) -> int:
        """Write down a fit before it asks anybody, or refuse; returns how many fits there are now.

        A run that is written down already is not charged again.
        """
        if self.elsewhere:
            raise BudgetExceededError(
                "this account lives in another process, where a charge made here would not be seen; nobody was asked. "
                "Use n_jobs=1, or give the account a file: PrivacyAccount(path)."
            )
        spent = Spent(what, users, guarantee, run or uuid.uuid4().hex)
        with self._lock:
            fits = self.fits
            known = [earlier.run for earlier in fits]
            if spent.run in known:
                self._refuse_beyond(list(fits[: known.index(spent.run) + 1]))  # it may have been cut off before it was refused
                return len(fits)
            if self.path is None:
                self._refuse_beyond([*self._fits, spent])
                self._fits.append(spent)
                return len(self._fits)
            # First written, then checked, then taken back if too much: two processes at once can both be refused, never both pass.
            entry = {"what": what, "users": users, "guarantee": guarantee and guarantee.to_dict(), "run": spent.run}
            number = uuid.uuid4().hex
            _append(self.path, {"id": number} | entry)
            try:
                self._refuse_beyond(now := list(_read(self.path)))
            except Exception:
                _append(self.path, {"cancelled": number})
                raise
            return len(now)

    def _refuse_beyond(self, fits: list[Spent]) -> None:
        if self.epsilon is None:
            _composed([fits[0].guarantee, fits[-1].guarantee])  # refuses to mix neighbouring relations
            return
        together = _composed([spent.guarantee for spent in fits])
        delta = 1.0 if together is None else together.delta(self.epsilon)
        if delta > self.delta:
            raise BudgetExceededError(
                f"with this fit, {len(fits)} on this account, the promise (epsilon = {round_up(self.epsilon)}, "
                f"delta = {round_up(self.delta)}) would not hold: delta would be {round_up(delta)}. Nobody was asked. "
                f"Fit with a smaller epsilon, or stop here."
            )

    # A clone counts on the same account, and so does a copy in this process; one that leaves it knows that it is a copy.
    def __sklearn_clone__(self) -> PrivacyAccount:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyAccount:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"} | {"_home": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __str__(self) -> str:
        fits, limit = (
            self.fits,
            "no limit" if self.epsilon is None else f"limit epsilon = {round_up(self.epsilon)}, delta = {round_up(self.delta)}",
        )
        if fits and self.guarantee is None:
            return f"{len(fits)} fits, NOT PRIVATE together (one was seeded, or on a stand-in); {limit}"
        return f"{len(fits)} fits, together epsilon = {round_up(self.spent())} at delta = {round_up(self.delta)}; {limit}"


def total_guarantee(model: Any, *, public_steps: tuple[str, ...] = ()) -> Guarantee | None:
    """What a fitted pipeline reveals altogether: the guarantees of its steps, composed.

    None where a step was seeded. A step of another library that learns from data is refused, since nothing bounds what it
    reveals; name it in `public_steps` if it was fitted on public data only.

    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from croupier.estimator import ShuffleLogisticRegression, ShuffleScaler, total_guarantee
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> scaler = ShuffleScaler(epsilon=0.5, feature_range=(-4, 4))
    >>> model = make_pipeline(scaler, ShuffleLogisticRegression(classes=[False, True])).fit(X, X[:, 0] > 0)
    >>> round(total_guarantee(model).epsilon(1e-6), 1)
    1.1
    """
    guarantees: list[Guarantee | None] = []
    users: dict[str, int] = {}
    for name, step in _steps(model):
        if hasattr(type(step), "guarantee_"):
            guarantees.append(step.guarantee_)
            users[name] = step.n_users_
        elif name not in public_steps and get_tags(step).requires_fit:
            raise ArgumentError(
                f"step {name!r}",
                type(step).__name__,
                "one of croupier's, or one that learns nothing from the data",
                f"Its fit is not covered by any guarantee. Use ShuffleScaler, or, if it saw public data only, "
                f"public_steps=({name!r},).",
            )
    if len(set(users.values())) > 1:
        raise ArgumentError("n_users_", users, "the same in all steps", "Pass groups= to every step, so that all count people.")
    return _composed(guarantees)


def _steps(model: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(model, Pipeline):
        yield type(model).__name__, model
        return
    for name, step in model.steps:
        if step is not None and step != "passthrough":
            yield from _steps(step) if isinstance(step, Pipeline) else [(name, step)]


def _composed(guarantees: list[Guarantee | None]) -> Guarantee | None:
    known = [guarantee for guarantee in guarantees if guarantee is not None]
    together = known[0].compose(*known[1:]) if known else None
    return together if len(known) == len(guarantees) else None


def _append(path: Path, entry: dict[str, Any]) -> None:
    line = (json.dumps(entry) + "\n").encode()
    if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        line = b"\n" + line  # a line that was cut off stays one line, and is refused when read
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(file, line) != len(line):
            raise OSError(f"the account {path} could not be written in full; nobody was asked")
        os.fsync(file)
    finally:
        os.close(file)


def _read(path: Path) -> Iterator[Spent]:
    entries = [_entry(path, *numbered) for numbered in enumerate(path.read_text().splitlines(), start=1)] if path.exists() else []
    cancelled = {entry["cancelled"] for entry in entries if "cancelled" in entry}
    for entry in entries:
        if "id" in entry and entry["id"] not in cancelled:
            guarantee = entry["guarantee"] and Guarantee.from_dict(entry["guarantee"])
            yield Spent(entry["what"], entry["users"], guarantee, entry.get("run", entry["id"]))


def _entry(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        remedy = "A fit was cut off while it was written down: count it as spent, and mend the line by hand."
        raise ArgumentError(f"{path}, line {number}", "not JSON", "a whole entry", remedy) from None
    return entry
