"""What has been spent on the same people: every fit of an estimator and of its clones, added up."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from ..privacy import Guarantee, round_up
from ..privacy.filter import GaussianBound, first_cap, gaussian_bound, odometer
from ..privacy.ledger import BudgetExceededError
from ..validation import ArgumentError, one_of, real
from .account_file import UNITS, Limit, Spent, Terms, append, read

# How far figures of one run may be apart that two processors computed.
_AGAIN = 1 + 1e-9


class BudgetWarning(UserWarning):
    """The same people's data is used for more than one fit, and nobody said that this is being counted."""


class PrivacyAccount:
    """Counts what all fits on one group of people reveal together. Give the same account to every estimator that sees them.

    Clones share it, so a grid search is counted fit by fit, and everybody as if they took part in each: an upper bound for
    cross-validation. Scores on held-out people are releases too, and not counted here: whoever publishes them publishes something
    about the data.

    Guarantee
    ---------
    With `epsilon`, all fits together are (epsilon, delta)-differentially private, however each is chosen after looking at those
    before it: a fit that would not keep this is refused before it asks anybody. (A filter: caps on the squares of mu and on slacks
    are fixed before the first fit. A first fit that keeps the limit by itself, but not the caps, is taken, and is the last.)
    Without, `spent` is an epsilon that holds whenever one stops. Both by accounting, section 4.

    Parameters
    ----------
    path : path, optional
        A file that other processes and later days charge as well. Its first line fixes the limit for all of them: another one is
        refused, none takes over the file's. Without a path the account lives in this process, and refuses to be charged in another
        (n_jobs above 1).
    epsilon : float, optional
        What these people are promised altogether; without it there is no limit.
    delta : float
        The delta of that promise, and of `spent`.

    Attributes
    ----------
    fits : tuple of Spent
        Every fit so far.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import PrivacyAccount, ShuffleLogisticRegression
    >>> account = PrivacyAccount(epsilon=2.0, delta=1e-5)
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> for epsilon in (0.5, 1.0):
    ...     model = ShuffleLogisticRegression(epsilon=epsilon, classes=[False, True], account=account).fit(X, X[:, 0] > 0)
    >>> len(account.fits), account.spent() < 1.5
    (2, True)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, epsilon: float | None = None, delta: float = 1e-6) -> None:
        self.path = None if path is None else Path(path).absolute()
        remedy = "Give the total that these people are promised, or leave epsilon out to count without a limit."
        self.epsilon = None if epsilon is None else real("epsilon", epsilon, above=0, remedy=remedy)
        self.delta = real("delta", delta, above=0, below=1, remedy=remedy)
        self._terms: Terms | None = None
        self._fits: list[Spent] = []
        self._lock = threading.Lock()
        self._home: int | None = os.getpid()

    @property
    def fits(self) -> tuple[Spent, ...]:
        """Every fit so far, in order."""
        return tuple(self._state()[1])

    @property
    def elsewhere(self) -> bool:
        """Whether this is a copy, in another process or out of a pickle, whose charges nobody would see."""
        return self.path is None and self._home != os.getpid()

    def spent(self, delta: float | None = None) -> float:
        """An epsilon for everything so far, which holds whenever one stops, whatever was chosen after looking at what.

        It is more than the sum of fits that were fixed beforehand would have: 5 % for one fit, 10 to 40 % for more. For such fits
        `Guarantee.compose` has the sum.

        Guarantee
        ---------
        Let e be this figure at the moment at which one stops. For neighbours P, Q and every event E, P(E) <= E_Q[e^e; E] + delta.

        Parameters
        ----------
        delta : float, optional
            The account's own unless given; to be fixed beforehand.

        Returns
        -------
        float
            0 before the first fit; infinite where none can be promised: a fit was seeded, or slacks exceed a quarter of delta.
        """
        terms, fits = self._state()
        bounds = _bounds(fits)
        if terms is None or not fits:
            return 0.0
        return float("inf") if bounds is None else odometer(bounds, self.delta if delta is None else delta, terms.first_cap)

    def spent_if_watched(self, delta: float | None = None) -> float:
        """An epsilon for everything so far to somebody who also knows when each user answered, in fits with secret lots.

        Parameters
        ----------
        delta : float, optional
            The account's own unless given; to be fixed beforehand.

        Returns
        -------
        float
            As `spent`, of `guarantee.if_watched` of every fit; the same figure, but for its first cap, where no lots were secret.

        Guarantee
        ---------
        As of `spent`. The first cap is that of the first fit's own `if_watched`, which its plan fixes before anybody is asked. A
        limit (`epsilon`) is about `spent` alone.

        Examples
        --------
        >>> from croupier.estimator import PrivacyAccount
        >>> from croupier.privacy import plan_lots
        >>> account = PrivacyAccount()
        >>> plan = plan_lots(epsilon=1.0, delta=1e-7, users=10_000, rounds=20, dim=5)
        >>> account.charge("a fit", 10_000, plan.guarantee), account.spent() < account.spent_if_watched()
        (1, True)
        """
        fits = self._state()[1]
        bounds = _bounds(fits, watched=True)
        if not fits or bounds is None:
            return 0.0 if not fits else float("inf")
        return odometer(bounds, self.delta if delta is None else delta, first_cap(bounds[0]))

    @property
    def has_secret_lots(self) -> bool:
        """Whether a fit had secret lots, so that `spent_if_watched` says more than `spent`."""
        return any(fit.guarantee is not None and fit.guarantee.watched is not None for fit in self._state()[1])

    def watched_text(self, delta: float | None = None) -> str:
        """Say what is left to somebody who also knows when each user answered.

        Parameters
        ----------
        delta : float, optional
            The account's own unless given.

        Returns
        -------
        str
            To be put after another figure; empty where no lots were secret.
        """
        if not self.has_secret_lots:
            return ""
        return f"; to somebody who also knows when each user answered {_epsilon_text(self.spent_if_watched(delta))}"

    def charge(self, what: str, users: int, guarantee: Guarantee | None, run: str | None = None, *, unit: str = "row") -> int:
        """Write down a fit before it asks anybody, or refuse. A run that is written down already is not charged again.

        Parameters
        ----------
        what : str
            The estimator.
        users : int
            On how many users.
        guarantee : Guarantee or None
            None where it is seeded.
        run : str, optional
            The run's name.
        unit : str
            Whom the guarantee protects: "row", "person" or "user", as in `Spent`.

        Returns
        -------
        int
            How many fits there are now.

        Raises
        ------
        BudgetExceededError
            Where the limit would not be kept, or the account lives in another process.
        ArgumentError
            Where the fit protects another unit or has other neighbours than those before it, or the file has another limit; or
            where the run is written down with a stronger guarantee than this one.
        """
        if self.elsewhere:
            raise BudgetExceededError(
                "this account lives in another process, where a charge made here would not be seen; nobody was asked. "
                "Use n_jobs=1, or give the account a file: PrivacyAccount(path)."
            )
        one_of("unit", unit, UNITS, "Say whom the guarantee protects.")
        spent = Spent(what, users, guarantee, run or uuid.uuid4().hex, unit)
        bound = gaussian_bound(guarantee) if guarantee else None
        with self._lock:
            terms, fits = self._state()
            if terms is None:
                self._begin(bound)
            known = [earlier.run for earlier in fits]
            if spent.run in known:
                _require_same(fits[known.index(spent.run)], spent)
                self._refuse_beyond(fits[: known.index(spent.run) + 1])  # it may have been cut off before it was refused
                return len(fits)
            if self.path is None:
                self._refuse_beyond([*self._fits, spent])
                self._fits.append(spent)
                return len(self._fits)
            # First written, then checked, then taken back if too much: two processes at once can both be refused, never both pass.
            entry = {"what": what, "users": users, "guarantee": guarantee and guarantee.to_dict(), "run": spent.run, "unit": unit}
            number = uuid.uuid4().hex
            append(self.path, {"id": number} | entry)
            try:
                self._refuse_beyond(now := self._state()[1])
            except Exception:
                append(self.path, {"cancelled": number})
                raise
            return len(now)

    def _state(self) -> tuple[Terms | None, list[Spent]]:
        """The terms, once there are any, and the fits."""
        if self.path is None:
            return self._terms, self._fits
        terms, fits = read(self.path)
        there = terms.limit if terms else None
        if terms and self.epsilon is not None and (there is None or (there.epsilon, there.delta) != (self.epsilon, self.delta)):
            remedy = "A limit is fixed before the first fit. Leave epsilon out to take over the file's."
            allowed = f"as in {self.path}, which has {there or 'no limit'}"
            raise ArgumentError("epsilon, delta", (self.epsilon, self.delta), allowed, remedy)
        return terms, fits

    def _begin(self, bound: GaussianBound | None) -> None:
        """Fix the terms, before anything is released: those of the account, and the odometer's first cap by the first fit."""
        self._terms = Terms(Limit.of(self.epsilon, self.delta), first_cap(bound))
        if self.path is not None:
            append(self.path, self._terms.to_dict())

    def _refuse_beyond(self, fits: Sequence[Spent]) -> None:
        """Refuse the last of these fits if they are not of one kind, or do not keep the limit together."""
        terms, bounds = self._state()[0], _bounds(fits)
        for name, kinds in (
            ("unit", {fit.unit for fit in fits}),
            ("neighbours", {fit.guarantee.neighbours for fit in fits if fit.guarantee}),
        ):
            _require_one(name, kinds)
        limit = terms.limit if terms else None
        if limit is None:
            return
        promise = f"with this fit, {len(fits)} on this account, the {limit} would not hold"
        if bounds is None:
            raise BudgetExceededError(f"{promise}: one of them is seeded. Nobody was asked. Leave random_state out.")
        squares, slacks = limit.caps.use(bounds)
        alone = fits[0].guarantee if len(fits) == 1 else None
        if max(squares, slacks) <= 1 or (alone and alone.delta(limit.epsilon) <= limit.delta):
            return
        remedy = "Fit with a smaller epsilon" if squares > 1 else "Fit with a smaller delta"
        raise BudgetExceededError(
            f"{promise}: the squares of mu would be {round_up(squares)} times its cap on them, the slacks {round_up(slacks)} times "
            f"theirs. Nobody was asked. {remedy}, or stop here."
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
        terms, fits = self._state()
        limit, bounds = terms.limit if terms else Limit.of(self.epsilon, self.delta), _bounds(fits)
        if bounds is None:
            return f"{len(fits)} fits, NOT PRIVATE together (one was seeded, or on a stand-in); {limit or 'no limit'}"
        if limit is None:
            together = f"together epsilon = {round_up(self.spent())} at delta = {round_up(self.delta)}"
            return f"{len(fits)} fits, {together}{self.watched_text()}; no limit"
        squares, slacks = limit.caps.use(bounds)
        used = f"used {round_up(squares)} of its mu^2 and {round_up(slacks)} of its slack"
        return f"{len(fits)} fits within the {limit}; {used}{self.watched_text()}"


def total_guarantee(model: Any, *, public_steps: tuple[str, ...] = ()) -> Guarantee | None:
    """Return what a fitted pipeline reveals altogether: the guarantees of its steps, composed.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted.
    public_steps : tuple of str, optional
        Names of steps of other libraries that were fitted on public data only.

    Returns
    -------
    Guarantee or None
        Of all steps together; None where a step was seeded.

    Raises
    ------
    ArgumentError
        For a step of another library that learns from data, since nothing bounds what it reveals, unless `public_steps` names it;
        and for steps that saw different numbers of users.

    Examples
    --------
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
    units: set[str | None] = set()
    for name, step in _steps(model):
        if hasattr(type(step), "guarantee_"):
            guarantees.append(step.guarantee_)
            users[name] = step.n_users_
            units.add(step.unit_)
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
    _require_one("unit_", units)
    return _composed(guarantees)


def _steps(model: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(model, Pipeline):
        yield type(model).__name__, model
        return
    for name, step in model.steps:
        if step is not None and step != "passthrough":
            yield from _steps(step) if isinstance(step, Pipeline) else [(name, step)]


def _bounds(fits: Sequence[Spent], *, watched: bool = False) -> list[GaussianBound] | None:
    """What a filter counts of each; None where one has no guarantee."""
    guarantees = [fit.guarantee for fit in fits]
    if None in guarantees:
        return None
    return [gaussian_bound(guarantee.if_watched if watched else guarantee) for guarantee in guarantees if guarantee]


def _epsilon_text(epsilon: float) -> str:
    return "no promise" if epsilon == float("inf") else f"epsilon = {round_up(epsilon)}"


def _require_same(written: Spent, again: Spent) -> None:
    """Refuse a run by a name that was written down for one that reveals less: what is more would not be counted."""
    remedy = "Give every run a name of its own; only one that goes on from a checkpoint has the same."
    (before,), (now,) = _bounds([written]) or (None,), _bounds([again]) or (None,)
    if written.unit != again.unit or (before and not (now and now.mu <= before.mu * _AGAIN and now.slack <= before.slack * _AGAIN)):
        raise ArgumentError("run", again.run, "that of a run with the same guarantee, or a new one", remedy)


def _require_one(name: str, kinds: set[Any]) -> None:
    """Refuse fits that protect different things: one figure would be true for the smallest of them only."""
    if len(kinds) > 1:
        remedy = "Pass groups= to every fit, or to none, and plan all with the same neighbours; or use an account for each."
        raise ArgumentError(name, sorted(map(str, kinds)), "the same in all fits that are counted together", remedy)


def _composed(guarantees: list[Guarantee | None]) -> Guarantee | None:
    known = [guarantee for guarantee in guarantees if guarantee is not None]
    together = known[0].compose(*known[1:]) if known else None
    return together if len(known) == len(guarantees) else None
