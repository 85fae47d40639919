"""What has been spent on the same people: every fit of an estimator and of its clones, added up."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..privacy import Guarantee, round_up
from ..privacy._filter import GaussianBound, first_cap, gaussian_bound
from ..privacy._ledger import BudgetExceededError
from ..statistics.holdout import Part
from ..validation import ArgumentError, one_of, real
from .account_file import COMMON_DELTA, UNITS, Limit, Spent, Terms, append, read
from .account_sums import (
    bounds_of,
    epsilon_text,
    figures,
    keep,
    kinds,
    parts_text,
    promises,
    require_few_splits,
    spent_by,
    use,
    use_text,
)

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
    Without, `spent` is an epsilon that holds whenever one stops. Both by accounting, section 4, for every user: where people were
    set aside, fits on those and fits on the others are not added up, since nobody is in both (`of_part`). The limit and `spent` are
    two promises, each at delta. Which is smaller depends on when one stops, so the smaller of the two holds at 2 delta only. Texts
    and `to_dict` have one of them: the limit where there is one.

    Parameters
    ----------
    path : path, optional
        A file that other processes and later days charge as well. Its first line fixes the limit for all of them: another one is
        refused, none takes over the file's. Without a path the account lives in this process, and refuses to be charged in another
        (n_jobs above 1).
    epsilon : float, optional
        What these people are promised altogether; without it there is no limit.
    delta : float, optional
        The delta of that promise, and of `spent`: fixed before the first fit, as the limit is. Default: the file's, or 1e-6 for a
        new account.

    Attributes
    ----------
    fits : tuple of Spent
        Every fit so far.
    part : Part or None
        The part of the people that fits on this account are about; None for everybody.

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

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, epsilon: float | None = None, delta: float | None = None
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        remedy = "Give the total that these people are promised, or leave epsilon out to count without a limit."
        self.epsilon = None if epsilon is None else real("epsilon", epsilon, above=0, remedy=remedy)
        self._delta = None if delta is None else real("delta", delta, above=0, below=1, remedy=remedy)
        self._terms: Terms | None = None
        self._fits: list[Spent] = []
        self._lock = threading.Lock()
        self._home: int | None = os.getpid()
        self.part: Part | None = None
        self._whole: PrivacyAccount = self

    def of_part(self, part: Part) -> PrivacyAccount:
        """Return the same account for fits on a part of the people: those who were set aside, or the others.

        Fits on the two sides of one split are not added up; those on everybody, and those of different splits, are.

        Parameters
        ----------
        part : Part
            `Description.part` for those who were set aside and asked, `Description.rest` for the others. Fits have to be on exactly
            these people: by places, their number is checked.

        Returns
        -------
        PrivacyAccount
            To be given to estimators that see only this part. It counts on this account, and knows what it knows.

        Raises
        ------
        ArgumentError
            Where this is no part.

        Examples
        --------
        >>> import numpy as np, croupier as cr
        >>> from croupier.estimator import PrivacyAccount, ShuffleScaler
        >>> X, account = np.random.default_rng(0).normal(size=(20_000, 1)), PrivacyAccount()
        >>> seen = cr.describe(X, {"x": (-9, 9)}, epsilon=1.0, delta=1e-6, share=0.1, account=account)
        >>> scaler = ShuffleScaler(epsilon=1.0, feature_range=(-5, 5), account=account.of_part(seen.rest)).fit(X[~seen.asked])
        >>> len(account.fits), account.spent() < 1.1
        (2, True)
        """
        if not isinstance(part, Part):
            raise ArgumentError("part", part, "a Part", "Take it from a description: description.part or description.rest.")
        view = PrivacyAccount.__new__(PrivacyAccount)
        vars(view).update(vars(self._whole), part=part)
        return view

    @property
    def fits(self) -> tuple[Spent, ...]:
        """Every fit so far, in order."""
        return tuple(self._state()[1])

    @property
    def delta(self) -> float:
        """The delta of every figure: fixed before the first fit, since one that is chosen after looking proves nothing."""
        terms = self._state()[0]
        return terms.delta if terms else self._delta or COMMON_DELTA

    @property
    def elsewhere(self) -> bool:
        """Whether this is a copy, in another process or out of a pickle, whose charges nobody would see."""
        return self.path is None and self._home != os.getpid()

    def spent(self, part: Part | None = None) -> float:
        """An epsilon for everything so far, which holds whenever one stops, whatever was chosen after looking at what.

        It is more than the sum of fits that were fixed beforehand would have: 5 % for one fit, 10 to 40 % for more. For such fits
        `Guarantee.compose` has the sum.

        Guarantee
        ---------
        Let e be this figure at the moment at which one stops. For neighbours P, Q and every event E, P(E) <= E_Q[e^e; E] + delta,
        with the account's delta. A limit is a promise of its own: the smaller of the two holds at 2 delta.

        Parameters
        ----------
        part : Part, optional
            For people in this part. Default: for everybody.

        Returns
        -------
        float
            0 before the first fit; infinite where none can be promised: a fit was seeded, or slacks exceed a quarter of delta.
        """
        terms, fits = self._state()
        if terms is None or not fits:
            return 0.0
        return spent_by(kinds(fits, part), terms, fits, watched=False)

    def spent_if_watched(self) -> float:
        """An epsilon for everything so far to somebody who also knows when each user answered, in fits with secret lots.

        Returns
        -------
        float
            As `spent`, of `guarantee.if_watched` of every fit; never less than `spent`.

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
        terms, fits = self._state()
        if terms is None or not fits:
            return 0.0
        return max(self.spent(), spent_by(kinds(fits), terms, fits, watched=True))

    @property
    def has_secret_lots(self) -> bool:
        """Whether a fit had secret lots, so that `spent_if_watched` says more than `spent`."""
        return any(fit.guarantee is not None and fit.guarantee.watched is not None for fit in self._state()[1])

    def watched_text(self) -> str:
        """Say what is left to somebody who also knows when each user answered.

        Returns
        -------
        str
            To be put after another figure; empty where no lots were secret.
        """
        if not self.has_secret_lots:
            return ""
        return f"; to somebody who also knows when each user answered {epsilon_text(promises(self)[1])}"

    def charge(
        self,
        what: str,
        users: int,
        guarantee: Guarantee | None,
        run: str | None = None,
        *,
        unit: str = "row",
        part: Part | None = None,
    ) -> int:
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
        part : Part, optional
            The part of the people that is asked; that of this account (`of_part`) unless given.

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
            where the run is written down with a stronger guarantee than this one, or the users are not those of the part.
        """
        if self._whole is not self:
            return self._whole.charge(what, users, guarantee, run, unit=unit, part=self.part if part is None else part)
        if self.elsewhere:
            raise BudgetExceededError(
                "this account lives in another process, where a charge made here would not be seen; nobody was asked. "
                "Use n_jobs=1, or give the account a file: PrivacyAccount(path)."
            )
        one_of("unit", unit, UNITS, "Say whom the guarantee protects.")
        if part is not None:
            part.require(users, unit)
        spent = Spent(what, users, guarantee, run or uuid.uuid4().hex, unit, part)
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
            number = uuid.uuid4().hex
            append(self.path, {"id": number} | spent.to_dict())
            try:
                self._refuse_beyond(now := self._state()[1])
            except Exception:
                append(self.path, {"cancelled": number})
                raise
            return len(now)

    def _state(self) -> tuple[Terms | None, list[Spent]]:
        """The terms, once there are any, and the fits."""
        if self.path is None:
            return self._whole._terms, self._whole._fits
        terms, fits = read(self.path)
        there = terms.limit if terms else None
        if terms and (self.epsilon not in (None, there and there.epsilon) or self._delta not in (None, terms.delta)):
            remedy = "Both are fixed before the first fit. Leave epsilon and delta out to take over the file's."
            allowed = f"as in {self.path}, which has {there or f'no limit, delta = {round_up(terms.delta)}'}"
            raise ArgumentError("epsilon, delta", (self.epsilon, self._delta), allowed, remedy)
        return terms, fits

    def _begin(self, bound: GaussianBound | None) -> None:
        """Fix the terms, before anything is released: those of the account, and the odometer's first cap by the first fit."""
        self._terms = Terms(Limit.of(self.epsilon, self.delta), first_cap(bound), self.delta)
        if self.path is not None:
            append(self.path, self._terms.to_dict())

    def _refuse_beyond(self, fits: Sequence[Spent]) -> None:
        """Refuse the last of these fits if they are not of one kind, or do not keep the limit together."""
        terms = self._state()[0]
        require_few_splits(fits)
        for name, found in (
            ("unit", {fit.unit for fit in fits}),
            ("neighbours", {fit.guarantee.neighbours for fit in fits if fit.guarantee}),
        ):
            require_one(name, found)
        limit = terms.limit if terms else None
        if limit is None:
            return
        promise = f"with this fit, {len(fits)} on this account, the {limit} would not hold"
        used = use(limit, fits)
        if used is None:
            raise BudgetExceededError(f"{promise}: one of them is seeded. Nobody was asked. Leave random_state out.")
        if all(keep(limit, asked) for asked in kinds(fits) if asked):
            return
        squares, slacks = used
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

    @property
    def limit(self) -> Limit | None:
        """What everybody is promised altogether; None where fits are counted without a limit."""
        terms = self._state()[0]
        return terms.limit if terms else Limit.of(self.epsilon, self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Return what is counted, for whom, and what it comes to, in plain JSON types.

        Returns
        -------
        dict
            "fits", each with its guarantee and part; "epsilon" at "delta", which is that of the limit where there is one, and else
            what was spent, and "epsilon_if_watched", None where nothing is promised; "limit", with the parts of its caps that are
            used; and "parts", with the same of each side of a split.
        """
        return figures(self)

    def __str__(self) -> str:
        fits, limit = self._state()[1], self.limit
        if any(fit.guarantee is None for fit in fits):
            seeded = "NOT PRIVATE together (one was seeded, or on a stand-in)"
            return f"{len(fits)} fits, {seeded}; {limit or 'no limit'}{parts_text(self)}"
        if limit is None:
            together = f"together epsilon = {round_up(self.spent())} at delta = {round_up(self.delta)}"
            return f"{len(fits)} fits, {together}{self.watched_text()}; no limit{parts_text(self)}"
        used = use_text(use(limit, fits) or (0.0, 0.0))
        return f"{len(fits)} fits within the {limit}; {used}{self.watched_text()}{parts_text(self)}"


def _require_same(written: Spent, again: Spent) -> None:
    """Refuse a run by a name that was written down for one that reveals less: what is more would not be counted."""
    remedy = "Give every run a name of its own; only one that goes on from a checkpoint has the same."
    (before,), (now,) = bounds_of([written]) or (None,), bounds_of([again]) or (None,)
    if (written.unit, written.part) != (again.unit, again.part) or (
        before and not (now and now.mu <= before.mu * _AGAIN and now.slack <= before.slack * _AGAIN)
    ):
        raise ArgumentError("run", again.run, "that of a run with the same guarantee, or a new one", remedy)


def require_one(name: str, kinds: set[Any]) -> None:
    """Refuse fits that protect different things: one figure would be true for the smallest of them only."""
    if len(kinds) > 1:
        remedy = "Pass groups= to every fit, or to none, and plan all with the same neighbours; or use an account for each."
        raise ArgumentError(name, sorted(map(str, kinds)), "the same in all fits that are counted together", remedy)
