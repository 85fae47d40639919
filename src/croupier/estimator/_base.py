"""What all estimators that have users share: a budget, the fits that are counted, and what they mean in words."""

from __future__ import annotations

import math
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from ..invalid import Invalid, blanks, finite_rows, is_missing, known_place, numbers_or_nan, one_by_one, zeroed
from ..population import ArrayPopulation, Population
from ..privacy import Guarantee, SumPlan, default_delta
from ..privacy import _statements as words
from ..privacy._ledger import BudgetExceededError
from ..privacy._rounding import factor_up, round_down, round_up
from ..privacy.guarantee import Neighbours
from ..privacy.plan import Calibration
from ..problem import Loss
from ..problem.classification import Weighted
from ..problem.problem import clip_rows, with_constant
from ..protocol import SumEstimate
from ..statistics import Moments
from ..statistics.asking import answered, plan_for
from ..validation import ArgumentError, Found, RecordError, real, whole
from .account import BudgetWarning, PrivacyAccount, epsilon_text
from .files import JsonModel, Promise, require_range

Floats = NDArray[np.float64]
# An epsilon beyond which a promise is hardly one: odds may change by a factor of 22 000.
_WEAK_EPSILON = 10.0
_NO_PROMISE = 100.0
NOTHING_READ_OFF: tuple[str, ...] = ()
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
                total = f"; together {epsilon_text(self._family.spent())} at delta = {round_up(self._family.delta)}"
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


# Labels of declared classes, which are public facts: never counted in the data.

_HOW = "Pass all labels that may occur, for example classes=[0, 1], whether or not they occur in this data."


@dataclass(kw_only=True, eq=False, repr=False)
class DeclaredClasses(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """An estimator of labels that its parameter `classes` lists."""

    classes: Sequence[Any] | NDArray[Any] | None = None

    def _declare_classes(self, y: NDArray[Any] | None) -> None:
        """Set `classes_`: as declared, or read off the labels where the data is public."""
        if y is not None:
            check_classification_targets(y)
        declared = np.asarray(self._read_off("classes", self.classes, _HOW, None if y is None else lambda: np.unique(y)))
        self.classes_ = np.unique(declared)
        if declared.ndim != 1 or len(self.classes_) != declared.size or len(self.classes_) < 2:
            raise ArgumentError("classes", declared.tolist(), "a list of at least two classes, each once", _HOW)
        if len(self.classes_) > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            remedy = "Only binary classification is supported. Use ShuffleLogisticRegression for more classes."
            raise ArgumentError("classes", declared.tolist(), "two classes here", remedy)

    def _class_indices(self, y: NDArray[Any]) -> NDArray[Any]:
        """The place of each label among the classes; NaN for one that is none, where such records count as blank."""
        if y.dtype.kind == self.classes_.dtype.kind != "O":
            index = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
            index = np.where(self.classes_[index] == y, index, -1)
        else:  # by Python's equality
            place = {label: index for index, label in enumerate(self.classes_.tolist())}
            index = np.array([known_place(place, label) for label in y.tolist()])
        if self.invalid == "blank":
            return np.where(index < 0, np.nan, index)
        if (index < 0).any():
            odd = y[index < 0][:1].tolist()[0]
            raise RecordError("y", odd, f"one of the declared classes {self.classes_.tolist()}", "Declare it; nobody was asked.")
        return index


# Ranges of targets: as declared, or as public data has them.


def checked_ranges(declared: Any, remedy: str) -> tuple[tuple[float, float], ...]:
    """Return one pair per target, or refuse what is none."""
    try:
        ranges = np.atleast_2d(np.asarray(declared, dtype=np.float64))
    except (TypeError, ValueError):
        ranges = np.zeros((1, 0))
    pairs = ranges.ndim == 2 and ranges.shape[1] == 2
    if not pairs or not (np.abs(ranges) < 1e100).all() or not (ranges[:, 0] < ranges[:, 1]).all():
        raise ArgumentError("target_range", declared, "(low, high) with low < high, or one such pair per target", remedy)
    return tuple((float(low), float(high)) for low, high in ranges)


def require_numbers(y: NDArray[Any]) -> None:
    """Refuse texts that are no numbers, as what they are: as numbers, they would be missing ones."""
    if y.dtype.kind not in "OUS":
        return
    texts, numbers = y.ravel().tolist(), np.ravel(numbers_or_nan(y))
    for text, number in zip(texts, numbers.tolist(), strict=True):
        if number != number and not is_missing(text):  # noqa: PLR0124  (NaN)
            remedy = "A regressor needs numbers; for classes there is ShuffleLogisticRegression. Nobody was asked."
            raise RecordError("y", text, "a number in every entry", remedy)


def range_of(y: NDArray[Any]) -> list[tuple[float, float]]:
    """Smallest and largest of every target; a constant one gets some width."""
    columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    return [
        (float(low), float(max(high, low + 1e-9 * max(1.0, abs(low)))))
        for low, high in zip(columns.min(0), columns.max(0), strict=True)
    ]


# Estimators with invalid="blank": data as scikit-learn wants it but for single values, and blanks where these are not valid.
#
# A blank is a row of zeros, the intercept's constant too, with target 0: its loss has gradient 0 whatever the weights are. Of a
# person with several rows each bad one is such a row. The person's vector is the mean over all its rows; no row's vector is longer
# than the bound, so the mean is not, and it is clipped to the bound all the same.

# What is the same for whoever may be blank: no arithmetic with NaN or infinity, which would warn.
Maker = Callable[[Any], Any]


def validated(estimator: Any, X: Any, **options: Any) -> Any:
    """X as `validate_data` gives it, with NaN for every value that is not a finite number."""
    if hasattr(X, "iloc"):  # a data frame keeps the names of its columns
        X = type(X)(numbers_or_nan(X), columns=X.columns)
    elif not hasattr(X, "tocsr"):
        X = numbers_or_nan(X)
    return validate_data(estimator, X, accept_sparse="csr", ensure_all_finite=False, **options)


def target_column(X: Any, y: Any) -> NDArray[Any]:
    """y as a column as long as X, values not looked at."""
    column: NDArray[Any] = column_or_1d(one_by_one(y))
    check_consistent_length(X, column)
    return column


def blanked(X: Any, y: NDArray[Any], rows: Maker, targets: Maker) -> tuple[Any, NDArray[np.float64]]:
    """What `rows` and `targets` make of the valid records, and rows of zeros with target 0 for the others.

    `targets` gives NaN for what is no target.
    """
    X = numbers_or_nan(X)
    finite, values = finite_rows(X), np.asarray(targets(y), dtype=np.float64)
    valid = finite & np.isfinite(values)
    return zeroed(rows(zeroed(X, finite)), valid), zeroed(values, valid)


# What every user does to its own row by public facts: columns from their ranges to [-1, 1], long rows scaled down, a constant.

RANGES = "Pass (low, high) for all features or one pair per feature; values outside are clipped to it."


def checked_ranges_of_features(declared: Any, features: int) -> Floats:
    """Return one pair per feature, or refuse what is none."""
    try:
        ranges = np.broadcast_to(np.asarray(declared, dtype=np.float64), (features, 2))
    except (TypeError, ValueError):
        ranges = np.zeros((1, 2))
    # narrower ones would have squares of 0
    if not (np.all(np.abs(ranges) < 1e100) and np.all(ranges[:, 1] - ranges[:, 0] > 1e-100)):
        raise ArgumentError("feature_range", declared, f"(low, high), or {features} such pairs, low < high", RANGES)
    return ranges.copy()


def centres(ranges: Floats, centred: bool = True) -> tuple[Floats, Floats]:
    """Middles and half-widths of ranges; not centred, those of the ranges about 0 that hold them."""
    low, high = ranges.T
    return ((low + high) / 2, (high - low) / 2) if centred else (np.zeros(len(ranges)), np.abs(ranges).max(axis=1))


def scaled_columns(X: Any, ranges: Floats, centred: bool) -> Any:
    """Clip every column to its range and scale it to [-1, 1]; a map of each row alone."""
    middle, half = centres(ranges, centred)
    low, high = ranges.T
    if not issparse(X):
        scaled = np.clip(X, low, high)  # float64, whatever X is
        scaled -= middle
        scaled /= half
        return scaled.astype(np.float32) if X.dtype == np.float32 else scaled
    odd = np.flatnonzero((middle != 0) | (low > 0) | (high < 0))
    if len(odd):
        remedy = "Sparse rows need ranges whose middle is 0, such as (-5, 5), so that zeros stay zeros; or pass a dense array."
        column = int(odd[0])
        raise ArgumentError(f"feature_range[{column}]", tuple(ranges[column].tolist()), "(-high, high) for sparse rows", remedy)
    sparse = X.copy()
    sparse.sum_duplicates()
    columns = sparse.indices
    entries = np.clip(sparse.data, low[columns], high[columns]) / half[columns]
    sparse.data = entries.astype(np.float32) if X.dtype == np.float32 else entries
    return sparse


def sent_rows(X: Any, norm: float, constant: float) -> Any:
    """Scale rows down to a length of at most 1, the constant included."""
    length = math.hypot(1.0, constant)
    rows, scale = clip_rows(X, norm), 1 / (norm * length)
    rows = rows if scale == 1 else rows * scale
    return with_constant(rows, constant / length) if constant else rows


def coefficient_units(columns: int, norm: float, constant: float) -> Floats:
    """Say what to multiply weights of such rows by to have those of rows as they come, the intercept's last."""
    length = math.hypot(1.0, constant)
    scale = np.full(columns, 1 / (norm * length))
    return np.append(scale, constant / length) if constant else scale


# Public weights of classes.

_REMEDY = (
    "Say how much a class counts by what everybody may know: class_weight={'ill': 10} if about one person in eleven is ill. "
    "'balanced' would count the classes in the data, which no guarantee covers."
)


def weighted_loss(loss: Loss, class_weight: Any, classes: NDArray[Any]) -> Loss:
    """The loss with public weights of classes, scaled so that the largest is 1.

    A weight multiplies a user's gradient. Since no weight is above 1, no gradient is longer than the loss's own bound: noise and
    guarantee are those of the loss without weights.
    """
    if class_weight is None:
        return loss
    if not isinstance(class_weight, dict):
        raise ArgumentError("class_weight", class_weight, "a dict from declared classes to public weights", _REMEDY)
    labels = classes.tolist()
    for label, weight in class_weight.items():
        if label not in labels:
            raise ArgumentError(
                "class_weight", label, f"about the declared classes {labels}", "Check the class's spelling and type."
            )
        real(f"class_weight[{label!r}]", weight, above=0, at_most=1e6, remedy="To leave a class out, drop its people beforehand.")
    weights = [float(class_weight.get(label, 1.0)) for label in labels]
    return Weighted(loss, tuple(weight / max(weights) for weight in weights))


# One private round for an estimator: planned by its parameters, charged to its account, then asked.


def plan_once(estimator: PrivateEstimator, query: Moments, users: int) -> SumPlan:
    """Plan the round. No data is touched."""
    return plan_for(
        query,
        users,
        epsilon=estimator.epsilon,
        delta=estimator._delta(users),
        honest=estimator.honest,
        neighbours=estimator.neighbours,
        calibration=estimator.calibration,
    )


def ask_once(estimator: PrivateEstimator, query: Moments, population: Population, plan: SumPlan) -> SumEstimate:
    """Check records, write the round down on the account, and ask everybody."""
    population.prepare(query.check_records)
    estimator._charge(population, plan.guarantee)
    return answered(query, population, plan, estimator.random_state)


def check_once(plan: SumPlan, query: Moments) -> None:
    """Refuse a plan in a file that is certified for vectors of another range than the query's."""
    require_range(plan, query.dim, query.norm, min(query.diameter, 2 * query.norm))
