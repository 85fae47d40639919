"""What all estimators that have users share: a budget, the fits that are counted, and what they mean in words."""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from ..invalid import Invalid, blanks
from ..population import ArrayPopulation, Population
from ..privacy import Guarantee, default_delta, round_up
from ..privacy import _statements as words
from ..privacy._ledger import BudgetExceededError
from ..privacy._rounding import factor_up, round_down
from ..privacy.guarantee import Neighbours
from ..privacy.plan import Calibration
from ..validation import ArgumentError, Found, real, whole
from .account import BudgetWarning, PrivacyAccount
from .files import JsonModel, Promise

Floats = NDArray[np.float64]
# An epsilon beyond which a promise is hardly one: odds may change by a factor of 22 000.
_WEAK_EPSILON = 10.0
_NO_PROMISE = 100.0
_NOTHING: tuple[str, ...] = ()
_NOT_RECORDED: str | None = None


class PublicDataWarning(UserWarning):
    """A fact that the guarantee takes as public was read off the data, because data_is_public=True says so."""


class WeakPrivacyWarning(UserWarning):
    """epsilon is so large that the guarantee says little."""


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(JsonModel, BaseEstimator, ABC):  # type: ignore[misc]
    """What every estimator that has users does before and after it asks them; `parameters` explains the fields."""

    epsilon: float = 1.0
    delta: float | None = None
    honest: float = 1.0
    neighbours: Neighbours = "replace-one"
    calibration: Calibration = "tight"
    random_state: int | None = None
    account: PrivacyAccount | None = None
    data_is_public: bool = False
    invalid: Invalid = "refuse"

    read_off_data_ = _NOTHING
    unit_ = _NOT_RECORDED  # whom the guarantee protects, as in `Spent`

    def __sklearn_clone__(self) -> Self:
        """A clone that counts on the same account, so that a search over clones is noticed."""
        clone: Self = super().__sklearn_clone__()
        clone._own_account = self._family
        return clone

    @property
    def _family(self) -> PrivacyAccount:
        """The account of this estimator and its clones, for those who have not given one."""
        own: PrivacyAccount = self.__dict__.setdefault("_own_account", PrivacyAccount())
        return own

    def _forget(self) -> None:
        """Drop what an earlier fit learned, so that a failed one leaves no model whose promise is another's."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _population(self, X: Any, y: Any, groups: Any, refused: dict[str, Any]) -> ArrayPopulation:
        """The people behind the rows: one each, or one per distinct label in `groups`."""
        if refused.pop("sample_weight", None) is not None:
            raise ArgumentError(
                "sample_weight",
                Found("is given"),
                "left out",
                "A weight multiplies what one person can change, so the noise would have to grow for everybody with the largest "
                "weight, which would have to be public. Several rows of one person belong together through groups=.",
            )
        if refused:
            raise TypeError(f"fit() got an unexpected keyword argument {next(iter(refused))!r}")
        population = ArrayPopulation(X, y, groups=groups, invalid=self.invalid)
        self.check_request(population.users)
        return population

    def check_request(self, users: int) -> None:
        """Refuse, before anybody is asked, what no fit on so many users can promise.

        Parameters
        ----------
        users : int
            How many people there are.

        Raises
        ------
        ArgumentError
            Where there are fewer than 2, or a parameter is outside its range.
        """
        if users < 2:
            raise ArgumentError("groups", Found(f"has {users} user"), "at least 2 users", "One person alone has nowhere to hide.")
        blanks(self.invalid)
        if not isinstance(self.data_is_public, bool):
            raise ArgumentError("data_is_public", self.data_is_public, "True or False", "True gives up part of the guarantee.")
        remedy = "1 is a strong promise, 4 a moderate one. At 100 none is left: scikit-learn's own estimators are then more honest."
        real("epsilon", self.epsilon, above=0, at_most=_NO_PROMISE, remedy=remedy)
        if self.random_state is not None:
            whole(
                "random_state",
                self.random_state,
                at_least=0,
                remedy="Leave it out: a seed makes the fit reproducible, NOT private.",
            )
        if not isinstance(self.account, PrivacyAccount | None):
            raise ArgumentError("account", self.account, "a PrivacyAccount", "For a file: PrivacyAccount(path).")
        real("honest", self.honest, above=0, at_most=1, remedy="Give the fraction of users that you trust to add their noise.")
        remedy = f"delta = 1 / users would allow publishing somebody's record; {round_down(0.01 / users, 1)} is a careful choice."
        real("delta", self._delta(users), above=0, below=1 / users, remedy=remedy)

    def _delta(self, users: int) -> float:
        """The delta of a fit on so many users: as given, or the default."""
        return default_delta(users) if self.delta is None else self.delta

    def _charge(self, population: Population, guarantee: Guarantee, run: str | None = None) -> None:
        """Write the fit down before anybody is asked, and say what a careful person would want to hear."""
        name, seeded = type(self).__name__, self.random_state is not None or not population.private
        if self.epsilon > _WEAK_EPSILON:
            text = f"epsilon = {round_up(self.epsilon)}: the odds of what can be concluded about a person may change by a factor of"
            warn_caller(f"{text} {factor_up(self.epsilon, 1)}; epsilon {words.SCALE}", WeakPrivacyWarning)
        promised = None if seeded else guarantee
        self.unit_ = unit = population.unit
        if self.account is not None:
            self.account.charge(name, population.users, promised, run, unit=unit)
            return
        which, total = None, ""
        try:
            if not self._family.fits:
                self._family._delta = self._delta(population.users)  # that of the first fit, fixed before it asks anybody
            fits = self._family.charge(name, population.users, promised, run, unit=unit)
            if fits > 1 and fits.bit_count() == 1:  # the 2nd, 4th, 8th, ...: a search of a hundred fits stays readable
                which = f"fit {fits} of it and its clones"
                total = f"; together epsilon = {round_up(self._family.spent())} at delta = {round_up(self._family.delta)}"
                total += self._family.watched_text()
        except (BudgetExceededError, ArgumentError):
            which = "earlier fits, in another process, of another unit (row, person) or with other neighbours, are not counted here"
            self._own_account = PrivacyAccount(delta=self._delta(population.users))
            self._own_account.charge(name, population.users, promised, run, unit=unit)
        if which and not seeded:
            warn_caller(
                f"{name}: {which}. Every fit on the same people spends budget anew{total}. Tuning on private data is paid for: "
                f"give account=PrivacyAccount() to count it (or one account each, if the fits saw different people). Scores on "
                f"held-out people are releases that no account covers.",
                BudgetWarning,
            )

    def _read_off(self, name: str, value: Any, how: str, read: Callable[[], Any] | None) -> Any:
        """A public fact: as declared, or read off the data where that was declared to be public and the data is at hand."""
        if value is not None:
            return value
        if not self.data_is_public or read is None:
            raise ArgumentError(
                name,
                None,
                "given, since it would have to be read off the data",
                f"{how} If the data may be seen by everyone, data_is_public=True reads it off.",
            )
        warn_caller(f"{name} is read off the data, which no guarantee covers, since data_is_public=True", PublicDataWarning)
        self.read_off_data_ = (*self.read_off_data_, name)
        return read()

    def _covering(self, guarantee: Guarantee | None) -> Guarantee | None:
        """The guarantee, saying what it does not cover."""
        if guarantee is None or not self.read_off_data_:
            return guarantee
        return replace(guarantee, theorem=f"{guarantee.theorem}, but for {', '.join(self.read_off_data_)} read off the data")

    @property
    @abstractmethod
    def guarantee_(self) -> Guarantee | Any:  # None where seeded; Any, as in typeshed, spares a test where it never is
        """What the fit reveals about one user; None where it was seeded."""

    @abstractmethod
    def _asked_how(self) -> tuple[str, str]:
        """The interactivity, and in words how often users are asked."""

    def _watched(self, delta: float) -> str:
        """What a fit with secret lots leaves to somebody who knows when each user answered; empty where there are none."""
        return ""

    def _meaning(self) -> list[str]:
        """What the learned numbers are, where that needs saying: lines of `explain`."""
        return []

    def _promise(self) -> Promise:
        """What the fit promised; before it, what it will promise."""
        fitted: Promise | None = vars(self).get("promise_")
        users = getattr(self, "n_users_", 2)  # before a fit: the usual delta
        return fitted or Promise(self.epsilon, self._delta(users), self.honest, self.neighbours, self.invalid)

    def __str__(self) -> str:
        stated = self._promise()
        promise = words.brief(stated.epsilon, stated.delta, stated.neighbours)
        promise += f", {self._asked_how()[0]}, honest: {words.crowd(stated.honest, 'users')}"
        if not hasattr(self, "promise_"):
            return f"{type(self).__name__} (not fitted): {promise}"
        if watched := self._watched(stated.delta):
            promise += f"; secret lots, and to somebody who also knows when each user answered: {watched}"
        notes = "" if self.guarantee_ else f"; NOT PRIVATE ({self._why_not_private()})"
        notes += f"; read off the data and not covered: {', '.join(self.read_off_data_)}" if self.read_off_data_ else ""
        return f"{type(self).__name__} of {self.n_users_} users: {promise}{notes}"

    def _why_not_private(self) -> str:
        return f"{words.SEEDED}, by random_state" if self.random_state is not None else words.STAND_IN

    def explain(self) -> str:
        """Say in plain words who could learn what about whom, and what is assumed.

        Returns
        -------
        str
            Of a fitted estimator what it reveals; before, what it would.

        Raises
        ------
        ArgumentError
            Where epsilon or delta is outside its range.
        """
        stated, fitted = self._promise(), hasattr(self, "promise_")
        epsilon = real("epsilon", stated.epsilon, above=0, at_most=_NO_PROMISE, remedy=f"{words.SCALE}.")
        delta = real("delta", stated.delta, above=0, below=1, remedy="Choose it well below 1 / users; 1e-6 is a common value.")
        guarantee = self.guarantee_ if fitted else None
        promise = words.PromiseWords(
            claim=words.Claim.of(epsilon, delta, guarantee),
            neighbours=stated.neighbours,
            honest=stated.honest,
            kept=guarantee is not None if fitted else self.random_state is None,
            watched=self._watched(delta),
        )
        alarms = [] if promise.kept else [words.not_private(self._why_not_private())]
        alarms += [words.not_covered(self.read_off_data_)] if self.read_off_data_ else []
        lines = [
            str(self),
            "",
            *alarms,
            promise.headline,
            *([promise.if_watched] if promise.watched else []),
            f"A user is one person: one row, or all rows that fit(groups=...) gave the same label. {self._asked_how()[1]}",
            promise.meaning,
            promise.guess,
            words.IN_GENERAL,
            f"Assumed of the shuffler. {words.SHUFFLER}",
            *([f"Assumed of the lots. {words.LOTS}"] if promise.watched else []),
            f"Assumed of the others. {promise.crowd}",
            words.RECORDS.get(stated.invalid, words.RECORDS["refuse"]),
            words.MACHINES,
            words.PUBLIC,
            words.ONCE,
            *self._meaning(),
        ]
        return "\n".join(lines)


def warn_caller(text: str, category: type[Warning]) -> None:
    """A warning about the line that called us, however deep in this package we are."""
    level = 2
    while level < 20 and sys._getframe(level - 1).f_globals.get("__name__", "").startswith("croupier."):
        level += 1
    warnings.warn(text, category, stacklevel=level)
