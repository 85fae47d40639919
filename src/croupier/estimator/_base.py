"""What all estimators that have users share: one template of a fit, the fits that are counted, and what they mean in words."""

from __future__ import annotations

import copy
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from ..arithmetic import ConstantBeside
from ..optimizer.result import Round
from ..population import ArrayPopulation, Population, Query
from ..population.population import require_population
from ..privacy import Guarantee, SumPlan
from ..privacy import _statements as words
from ..privacy._ledger import BudgetExceededError
from ..privacy._statements import factor_up, round_down, round_up
from ..privacy.guarantee import Neighbours
from ..privacy.plan import Calibration, default_delta
from ..statistics._holdout import Part
from ..statistics.asking import plan_for
from ..validation import (
    ArgumentError,
    Found,
    Invalid,
    RecordError,
    blanks,
    finite_rows,
    is_missing,
    numbers_or_nan,
    one_by_one,
    real,
    whole,
    zeroed,
)
from ._rounds import Ready
from .account import BudgetWarning, PrivacyAccount, epsilon_text
from .files import JsonModel, Promise, require_range
from .warnings import PublicDataWarning, WeakPrivacyWarning, warn_caller

Floats = NDArray[np.float64]
# An epsilon beyond which a promise is hardly one: odds may change by a factor of 22 000.
_WEAK_EPSILON = 10.0
_NO_PROMISE = 100.0
NOTHING_READ_OFF: tuple[str, ...] = ()
_NOT_RECORDED: str | None = None


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

    read_off_data_ = NOTHING_READ_OFF
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

    # The template of a fit. What a kind of estimator says of itself:
    #
    #   _declare_target, _declare_rows   the public facts, as declared or read off public data
    #   _rows, _targets                  what each user does to its own record, by these facts
    #   _plan                            the schedule: of rounds, of one round, or of groups
    #   _prepared                        checks records against the plan, and gives what will ask
    #   _set_coefficients                what is learned from what was released

    def fit(self, X: Any, y: Any, groups: Any = None, *, checkpoint: str | os.PathLike[str] | None = None, **refused: Any) -> Self:
        """Learn from users' rows and their labels or targets, privately.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            The rows.
        y : array-like of shape (rows,)
            Their labels or targets; of ShuffleLinearRegression also of shape (rows, targets).
        groups : array-like of shape (rows,), optional
            Whose the rows are: those with the same entry are one user. Default: every row is a user.
        checkpoint : path-like, optional
            A file that records the run, so that the same fit can resume if it is interrupted. For training in rounds.
        **refused : object
            `sample_weight` is refused with the reason, anything else as unknown.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            If a parameter or a record is not valid. Nobody was asked, nothing was spent.
        BudgetExceededError
            If `account` has no room for this fit.
        """
        self._forget()
        self._warn_of_undeclared()
        X, y = self._validated(X, y)
        if self.invalid == "blank":  # nothing is read off what may be blank
            self._declare(X.shape[1])
        else:
            self._declare(X.shape[1], X, y)
        population = self._population(*self._sent(X, y), groups, refused)
        with self._charged(population, None, checkpoint) as run:
            return self._learn(run)

    def fit_population(
        self,
        population: Population,
        features: int,
        *,
        schedule: Any = None,
        read_off: tuple[str, ...] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        on_round: Callable[[Round], None] | None = None,
    ) -> Self:
        """Learn from people whose records are not in memory. Public facts must be declared.

        Parameters
        ----------
        population : Population
            The people, wherever they are; their records are rows and targets as `records` makes them.
        features : int
            Columns of X, without the constant.
        schedule : object, optional
            What `plan` gave for these people, so that it is not planned again. It has to keep what the parameters promise.
        read_off : tuple of str, optional
            Public facts that were taken from the data anyway; the guarantee says that it does not cover them.
        checkpoint : path-like, optional
            As in `fit`.
        on_round : callable, optional
            Called after each round of training, after the estimator's `callbacks`; what it raises ends training as theirs does.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            As in `fit`, and for what is not a population, or a schedule that does not keep the promise.
        """
        with self._begun(population, features, schedule=schedule, read_off=read_off, checkpoint=checkpoint) as run:
            return self._learn(run, on_round)

    def records(self, X: Any, y: Any) -> tuple[Any, NDArray[Any] | Any]:
        """Do what each user does to its own record, by public facts alone.

        Parameters
        ----------
        X : ndarray or sparse array of shape (rows, features)
            Rows, unscaled.
        y : array-like of shape (rows,)
            Labels or targets, unscaled; of ShuffleLinearRegression also of shape (rows, targets).

        Returns
        -------
        tuple of arrays
            Rows scaled down, with the constant beside them, and targets as the estimator asks about them; several targets are
            columns beside the rows, and the second entry is None. Zeros for an invalid record and counts as blank.

        Raises
        ------
        ArgumentError
            If a public fact was not declared, or a record is not valid and `invalid` is "refuse".
        """
        rows, targets = self._declared(X.shape[1])._sent(X, y)
        return rows.toarray() if isinstance(rows, ConstantBeside) else rows, targets

    def plan(
        self,
        users: int,
        features: int,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        turnout: float | None = None,
    ) -> Any:
        """Return what a fit would ask, and under which guarantee, from public facts alone. No data is touched.

        Parameters
        ----------
        users : int
            Number of people.
        features : int
            Columns of X, without the constant.
        checkpoint : path-like, optional
            That of the fit: where there is a choice, a run that can resume from a file is trained in rounds.
        turnout : float, optional
            Of a deployed task, which is trained in rounds, too: the fraction of users that would come whichever round they draw.

        Returns
        -------
        Schedule, SumPlan or GroupPlans
            The rounds of training; the one round in which everybody is asked; or one round in each of several groups. It has
            `guarantee`, and `fit_population` takes it.

        Raises
        ------
        ArgumentError
            If a parameter is outside its range, or a public fact was not declared.
        """
        declared = self._declared(features)
        declared.check_request(users)
        return declared._plan(users, checkpoint=checkpoint, turnout=turnout)

    @contextmanager
    def _begun(
        self,
        population: Population,
        features: int,
        *,
        schedule: Any = None,
        read_off: tuple[str, ...] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        part: Part | None = None,
    ) -> Iterator[Ready]:
        """A fit of people whose records are not in memory that is checked and charged: what is left is to ask, by `_learn`."""
        self._forget()
        require_population(population)
        self._warn_of_undeclared()
        self._declare(features)
        self.check_request(population.users)
        self.read_off_data_ = read_off
        with self._charged(population, schedule, checkpoint, part) as run:
            yield run

    @contextmanager
    def _charged(
        self, population: Population, schedule: Any, checkpoint: str | os.PathLike[str] | None, part: Part | None = None
    ) -> Iterator[Ready]:
        """Plan, check records, charge: in this order, and before anybody is asked."""
        users = population.users
        if schedule is None:
            schedule = self._plan(users, checkpoint=checkpoint, turnout=getattr(population, "turnout", None))
            if getattr(population, "counts_blanks", False):
                schedule = schedule.with_bounded_blanks()
        else:
            self._require_promise(schedule, users)
        self._warn_of_plan(schedule, users)
        if self.random_state is None:
            warn_of_watchers(schedule.guarantee, self._delta(users))
        with self._prepared(population, schedule, checkpoint) as run:  # its records are checked
            self._charge(population, schedule.guarantee, run.name, part)  # it is written down, or refused
            yield run

    def _learn(self, run: Ready, on_round: Callable[[Round], None] | None = None) -> Self:
        """Ask, and learn from what was released."""
        self.__dict__.update(run.ask(on_round))
        self._set_coefficients()
        self.promise_ = self._promise()
        self._warn_of_result()  # last: where warnings are errors, what was paid for is there all the same
        return self

    def _declared(self, features: int) -> Self:
        """A copy that has its public facts, from the parameters alone."""
        declared = copy.copy(self)
        declared._declare(features)
        return declared

    def _declare(self, features: int, X: Any = None, y: Any = None) -> None:
        """Set the public facts: as declared, or read off X and y where that is public."""
        remedy = "Count the columns without the constant. If products of columns are sent, more would be too many."
        self.n_features_in_ = whole("features", features, at_least=1, at_most=self._most_features, remedy=remedy)
        self._declare_target(y)
        self._declare_rows(X)

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X and y as arrays; what may be blank is not looked at."""
        options: dict[str, Any] = {"dtype": (np.float64, np.float32), "ensure_min_samples": 2}
        if self.invalid == "blank":
            X = validated(self, X, **options)
            return X, self._column(X, y)
        if self._target_checks.get("y_numeric"):
            require_numbers(np.asarray(y))
        X, y = checked_rows(self, X, y, **options, **self._target_checks)
        return X, y

    def _column(self, X: Any, y: Any) -> NDArray[Any]:
        """y as a column as long as X, values not looked at."""
        column: NDArray[Any] = column_or_1d(one_by_one(y))
        check_consistent_length(X, column)
        return column

    def _sent(self, X: Any, y: Any) -> tuple[Any, NDArray[Any] | None]:
        """What each user does to its own record, by facts that are set.

        Where records may be blank, one that is not valid is a row of zeros, the intercept's constant too, with target 0: its loss
        has gradient 0 whatever the weights are, and its products are 0. Of a person with several rows each bad one is such a row.
        The person's vector is the mean over all its rows; no row's vector is longer than the bound, so the mean is not, and it is
        clipped to the bound all the same.
        """
        if self.invalid != "blank":
            return self._joined(self._rows(X), self._targets(np.asarray(y)))
        X = numbers_or_nan(X)
        finite, targets = finite_rows(X), np.asarray(self._targets(y), dtype=np.float64)  # NaN for what is no target
        valid = finite & finite_rows(targets.reshape(len(targets), -1))
        return self._joined(zeroed(self._rows(zeroed(X, finite)), valid), zeroed(targets, valid))

    def _joined(self, rows: Any, targets: NDArray[Any]) -> tuple[Any, NDArray[Any] | None]:
        """Records as a population has them."""
        return rows, targets

    _target_checks: ClassVar[dict[str, Any]] = {}  # of validate_data, for y
    _most_features: ClassVar[int | None] = None

    @abstractmethod
    def _declare_target(self, y: NDArray[Any] | None) -> None:
        """Set the attributes that hold public facts about the target: as declared, or read off y."""

    @abstractmethod
    def _declare_rows(self, X: Any) -> None:
        """The same of rows."""

    @abstractmethod
    def _rows(self, X: Any) -> Any:
        """Rows as they are sent, by these facts."""

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels or targets as they are sent; where records may be blank, NaN for what is none."""

    @abstractmethod
    def _plan(self, users: int, *, checkpoint: Any = None, turnout: float | None = None) -> Any:
        """What `plan` returns, by facts that are set."""

    @abstractmethod
    def _prepared(self, population: Population, planned: Any, checkpoint: Any) -> AbstractContextManager[Ready]:
        """Records checked; what will ask."""

    @abstractmethod
    def _set_coefficients(self) -> None:
        """What is learned, from what was released: no more than that and public facts."""

    @abstractmethod
    def _check_plans(self, planned: Any) -> None:
        """Refuse plans for other vectors than the estimator's own: their certificates are not about what is sent."""

    def _warn_of_undeclared(self) -> None:
        """Warn where nothing is declared of what should be."""

    def _warn_of_plan(self, planned: Any, users: int) -> None:
        """Warn of what follows from the plan and the number of users, before anybody is asked."""

    def _warn_of_result(self) -> None:
        """Warn of what follows from what was released."""

    def _require_promise(self, planned: Any, users: int) -> None:
        """Refuse a plan that was made for something else than the parameters say."""
        guarantee, remedy = getattr(planned, "guarantee", None), "Pass what plan(users, features) of this estimator returned."
        if not isinstance(guarantee, Guarantee):
            raise ArgumentError("schedule", type(planned).__name__, "what plan(users, features) gives", remedy)
        kept = guarantee.delta(self.epsilon) <= self._delta(users) and guarantee.neighbours == self.neighbours
        if not kept or guarantee.honest > self.honest * (1 + 1e-9):
            stated = f"epsilon = {self.epsilon}, delta = {self._delta(users)}, honest = {self.honest}, {self.neighbours}"
            raise ArgumentError("schedule", str(guarantee), f"one that keeps {stated}", remedy)
        self._check_plans(planned)

    def check_learned(self) -> None:
        """Refuse learned numbers that do not follow from what was released beside them, and plans for other vectors."""
        if not {"result_", "estimate_", "rounds_"} & set(vars(self)):
            return
        self._check_plans(self._planned())
        again = copy.copy(self)
        again._set_coefficients()
        for stored, derived in zip(self._learned(), again._learned(), strict=True):
            if stored.shape != derived.shape or not np.isfinite(stored).all() or not np.allclose(stored, derived, rtol=1e-9):
                raise ArgumentError("coef_", stored.shape, "what follows from the release next to it", "Do not use this file.")

    def _learned(self) -> tuple[NDArray[np.float64], ...]:
        """What `check_learned` compares."""
        return np.asarray(self.coef_), np.asarray(self.intercept_)

    def _planned(self) -> Any:
        """The plan under which it was asked."""
        return self.rounds_.planned if "rounds_" in vars(self) else self.plan_

    def _released(self) -> Any:
        """What the fit released: a training result, one round's sum, or those of groups."""
        for name in ("result_", "estimate_", "rounds_"):
            if name in vars(self):
                return vars(self)[name]
        raise AttributeError(f"this {type(self).__name__} is not fitted")

    @property
    def n_users_(self) -> int:
        """How many people the fit counted."""
        return int(self._released().users)

    @property
    def guarantee_(self) -> Guarantee | Any:  # None if seeded; Any, as in typeshed, spares a test where it never is
        """What the fit reveals about one user; None if it was seeded."""
        return self._covering(self._released().guarantee)

    def _population(self, X: Any, y: Any, groups: Any, refused: dict[str, Any]) -> ArrayPopulation:
        """The people behind the rows: one each, or one per distinct label in `groups`."""
        if refused.pop("sample_weight", None) is not None:
            raise ArgumentError(
                "sample_weight",
                Found("is given"),
                "left out",
                "A weight multiplies what one person can change, so the noise would have to grow for everybody with the largest "
                "weight, which would have to be public. Several rows of one person belong together with groups=.",
            )
        if refused:
            raise TypeError(f"fit() got an unexpected keyword argument {next(iter(refused))!r}")
        population = ArrayPopulation(X, y, groups=groups, invalid=self.invalid)
        self.check_request(population.users)
        return population

    def check_request(self, users: int) -> None:
        """Refuse, before anybody is asked, what no fit on this many users can promise.

        Parameters
        ----------
        users : int
            Number of people.

        Raises
        ------
        ArgumentError
            If there are fewer than 2, or a parameter is outside its range.
        """
        if users < 2:
            raise ArgumentError("users", users, "at least 2", "A single person cannot be hidden.")
        blanks(self.invalid)
        if not isinstance(self.data_is_public, bool):
            raise ArgumentError("data_is_public", self.data_is_public, "True or False", "True gives up part of the guarantee.")
        remedy = "1 is a strong promise, 4 a moderate one. At 100 there is no privacy left; use scikit-learn directly."
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
        real("honest", self.honest, above=0, at_most=1, remedy="State the fraction of users that you trust to add their noise.")
        remedy = f"delta = 1 / users would allow publishing a person's record; {round_down(0.01 / users, 1)} is a careful choice."
        if real("delta", self._delta(users), above=0, below=1, remedy=remedy) >= 1 / users:
            raise ArgumentError("delta", self.delta, f"less than 1 / users = {round_down(1 / users)}", remedy)

    def _delta(self, users: int) -> float:
        """The delta of a fit on this many users: as given, or the default."""
        return default_delta(users) if self.delta is None else self.delta

    def _charge(self, population: Population, guarantee: Guarantee, run: str | None = None, part: Part | None = None) -> None:
        """Write the fit down before anybody is asked, for the part of the people that is; say what the careful want to hear."""
        name, seeded = type(self).__name__, self.random_state is not None or not population.private
        if self.epsilon > _WEAK_EPSILON:
            text = f"epsilon = {round_up(self.epsilon)}: the odds of what can be concluded about a person may change by a factor of"
            warn_caller(f"{text} {factor_up(self.epsilon, 1)}; epsilon {words.SCALE}", WeakPrivacyWarning)
        promised = None if seeded else guarantee
        self.unit_ = unit = population.unit
        if self.account is not None:
            self.account.charge(name, population.users, promised, run, unit=unit, part=part)
            return
        which, total = None, ""
        try:
            if not self._family.fits:
                self._family._delta = self._delta(population.users)  # that of the first fit, fixed before it asks anybody
            fits = self._family.charge(name, population.users, promised, run, unit=unit)
            if fits > 1 and fits.bit_count() == 1:  # the 2nd, 4th, 8th, ...: a search of a hundred fits stays readable
                which = f"fit {fits} of it and its clones"
                total = f"; together {epsilon_text(self._family.spent())} at delta = {round_up(self._family.delta)}"
                total += self._family.watched_text()
        except (BudgetExceededError, ArgumentError):
            which = "earlier fits, in another process, of another unit (row, person) or with other neighbours, are not counted here"
            self._own_account = PrivacyAccount(delta=self._delta(population.users))
            self._own_account.charge(name, population.users, promised, run, unit=unit)
        if which and not seeded:
            warn_caller(
                f"{name}: {which}. Every fit on the same people spends more budget{total}. Tuning on private data is paid for: "
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
                "given, because it would otherwise be taken from the data",
                f"{how} If the data is public, data_is_public=True takes it from the data.",
            )
        warn_caller(f"{name} is taken from the data, which no guarantee covers, because data_is_public=True", PublicDataWarning)
        self.read_off_data_ = (*self.read_off_data_, name)
        return read()

    def _covering(self, guarantee: Guarantee | None) -> Guarantee | None:
        """The guarantee, saying what it does not cover."""
        if guarantee is None or not self.read_off_data_:
            return guarantee
        return replace(guarantee, theorem=f"{guarantee.theorem}, except for {', '.join(self.read_off_data_)} taken from the data")

    @abstractmethod
    def _asked_how(self) -> tuple[str, str]:
        """The interactivity, and in words how often users are asked."""

    def _watched(self, delta: float) -> str:
        """What a fit with secret lots leaves to an attacker who knows when each user answered; empty if there are none."""
        return ""

    def _meaning(self) -> list[str]:
        """What the learned numbers are, where that needs saying: lines of `explain`."""
        return []

    def _speaks_for(self) -> list[str]:
        """For which class coefficients speak, where there are classes and a fit: a line of `explain`."""
        return []

    def _promise(self) -> Promise:
        """What the fit promised; before it, what it will promise."""
        fitted: Promise | None = vars(self).get("promise_")
        users = getattr(self, "n_users_", 2)  # before a fit: the usual delta
        return fitted or Promise(self.epsilon, self._delta(users), self.honest, self.neighbours, self.invalid)

    def __str__(self) -> str:
        return self._in_a_line(with_watched=True)

    def _in_a_line(self, with_watched: bool) -> str:
        stated = self._promise()
        promise = words.brief(stated.epsilon, stated.delta, stated.neighbours)
        promise += f", {self._asked_how()[0]}, honest: {words.crowd(stated.honest, 'users')}"
        if not hasattr(self, "promise_"):
            return f"{type(self).__name__} (not fitted): {promise}"
        if with_watched and (watched := self._watched(stated.delta)):
            promise += f"; secret lots, and to an attacker who also knows when each user answered: {watched}"
        notes = "" if self.guarantee_ else f"; NOT PRIVATE ({self._why_not_private()})"
        notes += f"; taken from the data and not covered: {', '.join(self.read_off_data_)}" if self.read_off_data_ else ""
        return f"{type(self).__name__} of {self.n_users_} users: {promise}{notes}"

    def _why_not_private(self) -> str:
        return words.SEEDED if self.random_state is not None else words.STAND_IN

    def explain(self) -> str:
        """Say in plain words who could learn what about whom, and what is assumed.

        Returns
        -------
        str
            Of a fitted estimator what it reveals; before, what it would.

        Raises
        ------
        ArgumentError
            If epsilon or delta is outside its range.
        """
        return "\n".join([self._in_a_line(with_watched=False), "", *self._explained()])

    def _explained(self) -> list[str]:
        """The lines of `explain` below its head, which names the class: what `croupier show` prints."""
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
        return [
            *alarms,
            promise.headline,
            *([promise.if_watched] if promise.watched else []),
            f"A user is one person: one row, or all rows declared to be theirs. {self._asked_how()[1]}",
            promise.meaning,
            promise.guess,
            words.IN_GENERAL,
            f"Assumptions about the shuffler. {words.SHUFFLER}",
            *([f"Assumptions about the lots. {words.LOTS}"] if promise.watched else []),
            f"Assumptions about the others. {promise.crowd}",
            words.RECORDS.get(stated.invalid, words.RECORDS["refuse"]),
            words.MACHINES,
            words.PUBLIC,
            words.ONCE,
            *self._speaks_for(),
            *self._meaning(),
        ]


# Above this epsilon an attacker who knows when each person answered is promised next to nothing: docs/choosing.md.
WATCHED_EPSILON = 20.0


def is_weak_if_watched(guarantee: Guarantee, delta: float) -> bool:
    """Whether secret lots promise little to an attacker who knows them."""
    watched = guarantee.if_watched
    return guarantee.watched is not None and (watched.slack >= delta or watched.epsilon(delta) > WATCHED_EPSILON)


def warn_of_watchers(guarantee: Guarantee, delta: float) -> None:
    """Warn of such a guarantee, from the plan and before anybody is asked."""
    if not is_weak_if_watched(guarantee, delta):
        return
    known = words.watched_line(guarantee, delta)
    little = f": above {WATCHED_EPSILON:g} there is little protection" if guarantee.if_watched.slack < delta else ""
    warn_caller(
        f"to an attacker who also knows when each person answered, this fit has {known}{little}. "
        f'If others can see when answers arrive, use interactivity="full" '
        "(--interactivity full), which has one figure for both and sends more bits; with few people it is less accurate "
        "(docs/choosing.md). Or ask more people. Nobody was asked yet.",
        WeakPrivacyWarning,
    )


def require_numbers(y: NDArray[Any]) -> None:
    """Refuse texts that are no numbers, as what they are: as numbers, they would be missing ones."""
    if y.dtype.kind not in "OUS":
        return
    texts, numbers = y.ravel().tolist(), np.ravel(numbers_or_nan(y))
    for text, number in zip(texts, numbers.tolist(), strict=True):
        if number != number and not is_missing(text):  # noqa: PLR0124  (NaN)
            remedy = "A regressor needs numbers; for classes there is ShuffleLogisticRegression. Nobody was asked."
            raise RecordError("y", text, "a number in every entry", remedy)


_GAPS = {
    True: 'Pass invalid="blank", which counts such a row as a blank; or fill in a value that you can state without these rows, as '
    "no guarantee covers an imputer that learns from them. Nobody was asked.",
    False: "A prediction needs a number in every column: fill in a value that you can state without the training data.",
}
_TEXT = (
    "Text needs public levels: a Schema and fit_table encode such columns, or OneHotEncoder(categories=[...]) with every category "
    "given (docs/estimators.md, Text columns)."
)


def checked_rows(estimator: Any, X: Any, *y: Any, reset: bool = True, **options: Any) -> Any:
    """X, or X and y, as `validate_data` gives them; what is no finite number is refused with a remedy that a guarantee covers.

    scikit-learn's own advice is an imputer, which learns from the rows.
    """
    try:
        return validate_data(estimator, X, *y, accept_sparse="csr", reset=reset, **options)
    except ValueError as error:
        found = re.search(r"Input (\S+) contains (NaN|infinity)", str(error))
        if not found and "could not convert string to float" not in str(error):
            raise
    # outside of what caught it: scikit-learn's advice is not shown, and no trace leads back to a record
    if found:
        raise RecordError(found[1], Found(f"contains {found[2]}"), "finite in every entry", _GAPS[reset])
    raise RecordError("X", Found("contains text"), "a number in every entry", _TEXT)


def validated(estimator: Any, X: Any, **options: Any) -> Any:
    """X as `validate_data` gives it, with NaN for every value that is not a finite number."""
    if hasattr(X, "iloc"):  # a data frame keeps the names of its columns
        X = type(X)(numbers_or_nan(X), columns=X.columns)
    elif not hasattr(X, "tocsr"):
        X = numbers_or_nan(X)
    return validate_data(estimator, X, accept_sparse="csr", ensure_all_finite=False, **options)


# One private round for an estimator.


def plan_once(estimator: PrivateEstimator, query: Query, users: int) -> SumPlan:
    """Plan the round by the estimator's parameters. No data is touched."""
    return plan_for(
        query,
        users,
        epsilon=estimator.epsilon,
        delta=estimator._delta(users),
        honest=estimator.honest,
        neighbours=estimator.neighbours,
        calibration=estimator.calibration,
    )


def check_once(plan: SumPlan, query: Query) -> None:
    """Refuse a plan that is certified for vectors of another range than the query's."""
    if not isinstance(plan, SumPlan):
        raise ArgumentError("schedule", type(plan).__name__, "the plan of one round", "Pass what plan() returned.")
    require_range(plan, query.dim, query.norm, min(query.diameter, 2 * query.norm))
