"""Regressions whose coefficients come with standard errors, p-values and intervals."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, hstack, issparse
from scipy.special import expit
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from ..invalid import finite_rows, numbers_or_nan, zeroed
from ..population import Population
from ..population.population import require_population
from ..privacy import Guarantee, SumPlan
from ..privacy import _statements as words
from ..problem.problem import clip_rows, row_norms
from ..protocol import SumEstimate
from ..statistics import Moments
from ..statistics.moments import Coefficients, LeastSquares, MomentSums, explained, least_squares, noise_edge, seen_from
from ..statistics.newton import Newton
from ..statistics.query import Statistic
from ..validation import ArgumentError, real, whole
from ._base import (
    DeclaredClasses,
    Floats,
    PrivateEstimator,
    ask_once,
    blanked,
    check_once,
    checked_ranges,
    coefficient_units,
    plan_once,
    range_of,
    require_numbers,
    sent_rows,
    target_column,
    validated,
)
from ._parameters import documented
from ._rounds import GroupPlans, GroupRounds, ask_groups, plan_groups
from .files import require_range
from .intervals import FORECAST_FIRST, RegressionTable, WidthForecast, check_coef_bound, least_spread, shown, slope_half_width
from .warnings import warn_of_undeclared_norm

# Linear regression in one round, with standard errors and intervals: from the second moments of rows and targets.

_RANGE = "Pass (low, high) that you can defend without having seen the data; targets outside are clipped to it."
_NORM = "Pass a length that you can defend without having seen the data; longer rows are scaled down to it."


def _norm_of(declared: Any) -> Any:
    """The declared norm; 1 where nothing is declared, of which `fit` warns."""
    return 1.0 if isinstance(declared, str) and declared == "auto" else declared


@documented("coef_", "intercept_", "std_", "intercept_std_", "target_range_", "feature_norm_", "plan_", "estimate_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLinearRegression(MultiOutputMixin, RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression with standard errors and intervals, in one round, from people who keep their records.

    Algorithm: one private sum of each user's second moments (x x', x y, y^2), by its diameter; least squares from it, eigenvalues
    raised to half the edge of the noise. Standard errors count sampling, for residuals of one variance, and the privacy noise
    together (docs/statistics.md). Where the data do not decide a coefficient its interval is (-inf, inf), or what `coef_bound`
    leaves; `forecast` says before anybody is asked how wide intervals will be.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw. `target_range`, `feature_norm` and `exclusive`
    are taken as public and never read off the data, but with data_is_public=True.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLinearRegression
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2)) / 1.5
    >>> noise = np.random.default_rng(1).normal(scale=5, size=20_000)
    >>> model = ShuffleLinearRegression(epsilon=1.0, target_range=(0, 100), feature_norm=1.0)
    >>> model = model.fit(X, 50 + 30 * X[:, 0] + noise)
    >>> low, high = model.intervals(0.999)[0]
    >>> bool(low < 30 < high < low + 20)
    True
    >>> print(model.summary())  # doctest: +ELLIPSIS
    Least squares in one private round, 20,000 people; epsilon = 1...
    """

    target_range: ArrayLike | None = None
    feature_norm: float | Literal["auto"] | None = "auto"
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    exclusive: Sequence[Sequence[int]] = ()
    coef_bound: float | None = None

    def fit(self, X: Any, y: Any, groups: Any = None, **refused: Any) -> Self:
        """Ask users for the moments of their rows and targets, once.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            The rows.
        y : array-like of shape (rows,) or (rows, targets)
            Their targets.
        groups : array-like of shape (rows,), optional
            Whose the rows are: those with the same entry are one user. Every row is a user unless given.
        **refused : object
            `sample_weight` is refused with the reason, anything else as unknown.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            Where a parameter or a record is not valid. Nobody was asked, nothing was spent.
        """
        self._forget()
        warn_of_undeclared_norm(self.feature_norm)
        if self.invalid == "blank":
            X = validated(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
            rows, targets = self.records(X, y)
            self._declare(None, None)
            return self._train(self._population(rows, targets, groups, refused))
        require_numbers(np.asarray(y))
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2,
        )
        self._declare(lambda: float(max(row_norms(X.astype(np.float64)).max(), 1e-12)), lambda: range_of(y))
        self._check_targets(y)
        return self._train(self._population(*self._sent(X, y), groups, refused))

    def _check_targets(self, y: NDArray[Any]) -> None:
        """Refuse another number of targets than there are ranges."""
        several = y.ndim == 2 and y.shape[1] > 1
        if several != (len(self.target_range_) > 1) or (several and y.shape[1] != len(self.target_range_)):
            allowed = f"{len(self.target_range_)} column(s), as target_range has pairs"
            raise ArgumentError("y.shape", y.shape, allowed, "Declare one pair per target.")

    def fit_population(self, population: Population, features: int, *, read_off: tuple[str, ...] = ()) -> Self:
        """Ask people whose records are not in memory. Public facts must be declared.

        Parameters
        ----------
        population : Population
            The people, wherever they are; their records are as `records` makes them.
        features : int
            Columns of X, without the constant.
        read_off : tuple of str, optional
            Public facts that were read off the data all the same; the guarantee says that it does not cover them.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            As in `fit`, and for what is not a population.
        """
        self._forget()
        require_population(population)
        warn_of_undeclared_norm(self.feature_norm)
        self.n_features_in_ = whole("features", features, at_least=1, remedy="Count the columns without the constant.")
        self._declare(None, None)
        self.check_request(population.users)
        self.read_off_data_ = read_off
        return self._train(population)

    def records(self, X: Any, y: Any) -> tuple[Any, NDArray[Any] | None]:
        """Do what each user does to its own record, by public facts alone.

        Parameters
        ----------
        X : ndarray or sparse array of shape (rows, features)
            Rows as they come.
        y : array-like of shape (rows,) or (rows, targets)
            Targets as they come.

        Returns
        -------
        tuple
            Rows of norm at most 1 with their constant, and targets in [-1, 1]; several targets are columns beside the rows, and the
            second entry is None. Zeros for a record that is not valid and counts as blank.
        """
        declared = copy.copy(self)
        declared.n_features_in_ = X.shape[1]
        declared._declare(None, None)
        if self.invalid != "blank":
            return declared._sent(X, np.asarray(y))
        targets = np.asarray(numbers_or_nan(y), dtype=np.float64)
        check_consistent_length(X, targets)
        declared._check_targets(targets)
        X = numbers_or_nan(X)
        finite, told = finite_rows(X), finite_rows(targets.reshape(len(targets), -1))
        rows, column = declared._sent(zeroed(X, finite), zeroed(targets, told))
        return zeroed(rows, finite & told), None if column is None else zeroed(column, finite & told)

    def predict(self, X: Any) -> Floats:
        """Return <coef_, x> + intercept_ for every row x.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; longer ones are scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows,) or (rows, targets)
            In the targets' own units.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        return np.asarray(clip_rows(X, self.feature_norm_) @ self.coef_.T + self.intercept_)

    def intervals(self, level: float = 0.95, *, target: int = 0, columns: Sequence[int] | None = None) -> Floats:
        """Return intervals for the coefficients. All follows from the one round: no privacy is spent.

        Parameters
        ----------
        level : float, default 0.95
            The intervals' coverage.
        target : int, default 0
            Which of the declared targets.
        columns : sequence of int, optional
            Columns of X to regress on; all unless given.

        Returns
        -------
        ndarray of shape (coefficients, 2)
            Low and high ends, the intercept's last: (-inf, inf) where the data do not decide a coefficient and `coef_bound` is not
            given.
        """
        return self.summary(level, target=target, columns=columns).intervals

    def summary(self, level: float = 0.95, *, target: int = 0, columns: Sequence[int] | None = None) -> RegressionTable:
        """Return coefficients with standard errors, p-values and intervals. All follows from the one round: no privacy is spent.

        Parameters
        ----------
        level : float, default 0.95
            The intervals' coverage.
        target : int, default 0
            Which of the declared targets.
        columns : sequence of int, optional
            Columns of X to regress on; all unless given.

        Returns
        -------
        RegressionTable
            To be read or printed.

        Raises
        ------
        ArgumentError
            For a target or a column that there is not.
        """
        check_is_fitted(self)
        whole("target", target, at_least=0, at_most=len(self.target_range_) - 1, remedy="Count the declared targets from 0.")
        remedy = "Count the columns of X from 0, each at most once."
        last = self.n_features_in_ - 1
        regressors = list(range(last + 1)) if columns is None else list(columns)
        regressors = [whole("columns", column, at_least=0, at_most=last, remedy=remedy) for column in regressors]
        if len(set(regressors)) != len(regressors) or not regressors:
            raise ArgumentError("columns", columns, "different columns, at least one", remedy)
        solution, moments = self._solved(target, regressors)
        scale, shift = self._units(len(regressors), target)
        names = tuple(getattr(self, "feature_names_in_", [f"x{column}" for column in range(last + 1)]))
        stated = self._promise()
        promise = words.brief(stated.epsilon, stated.delta, stated.neighbours)
        # in the target's own units, so that p-values are of the coefficients that are shown
        r2, r2_std = self._r2(solution, moments, target)
        return RegressionTable(
            names=(*(str(names[column]) for column in regressors), *(["(intercept)"] if self.constant_ else [])),
            **shown(solution.combined(np.diag(scale), shift), level),
            r2=r2,
            r2_std=r2_std,
            users=self.n_users_,
            promise=promise if self.guarantee_ else f"NOT PRIVATE ({self._why_not_private()})",
        )

    def forecast(self, users: int, features: int) -> WidthForecast:
        """Forecast how wide intervals will be, from public facts alone. No data is touched.

        Parameters
        ----------
        users : int
            How many people would be asked.
        features : int
            Columns of X, without the constant.

        Returns
        -------
        WidthForecast
            To be printed. It takes the target for evenly spread over its range and half of its variance for explained.

        Raises
        ------
        ArgumentError
            Where a parameter is out of range, or a public fact was not declared.
        """
        declared = copy.copy(self)
        declared.n_features_in_ = whole("features", features, at_least=1, remedy="Count the columns without the constant.")
        declared._declare(None, None)
        declared.check_request(users)
        return declared._forecast(plan_once(declared, declared._query(), users))

    def _forecast(self, plan: SumPlan) -> WidthForecast:
        blank = SumEstimate(sum=np.zeros(plan.dim), users=plan.users, noise_std=plan.noise_std, guarantee=None)
        moments, slopes = self._query().decode(blank), self.n_features_in_
        scale = math.sqrt(slopes) * math.hypot(1.0, self.constant_)  # sent values are within 1 / scale, evenly
        variance = 1 / (3 * scale**2)
        # a target evenly over [-1, 1] has variance 1/3: half of it is left, half is variance |coef|^2
        noise = moments.products_std**2 + moments.matrix_std**2 / 2 * (1 + 1 / slopes) / (6 * variance)
        threshold = seen_from(moments.edge, moments.matrix_std)
        half = slope_half_width(variance, moments.edge, threshold, slopes=slopes, residual=1 / 6, users=plan.users, noise=noise)
        return WidthForecast(
            "linear", plan.users, slopes, self.epsilon, half / scale, least_spread(variance, moments.edge, threshold, slopes)
        )

    def check_learned(self) -> None:
        """Refuse coefficients that do not follow from the round beside them, and a plan for vectors of another range."""
        if "estimate_" not in vars(self):
            return
        check_once(self.plan_, self._query())
        again = copy.copy(self)
        again._set_coefficients()
        for name in ("coef_", "intercept_"):
            stored, derived = np.asarray(getattr(self, name)), np.asarray(getattr(again, name))
            if stored.shape != derived.shape or not np.allclose(stored, derived, rtol=1e-9):
                raise ArgumentError(name, stored.shape, "what follows from the round beside it", "Do not use this file.")

    @property
    def n_users_(self) -> int:
        """How many people were asked."""
        return self.estimate_.users

    @property
    def guarantee_(self) -> Guarantee | Any:
        """What the round reveals about one user; None where it was seeded."""
        return self._covering(self.estimate_.guarantee)

    def _asked_how(self) -> tuple[str, str]:
        return "one round", "Each user is asked once, for the noisy sum of products of its features and targets."

    def _meaning(self) -> list[str]:
        return [str(self._forecast(self.plan_)) if hasattr(self, "plan_") else FORECAST_FIRST]

    def _train(self, population: Population) -> Self:
        query = self._query()
        self.plan_ = plan_once(self, query, population.users)
        self._forecast(self.plan_).warn()
        self.estimate_ = ask_once(self, query, population, self.plan_)
        self._set_coefficients()
        self.promise_ = self._promise()
        return self

    def _query(self) -> Moments:
        columns = self.n_features_in_ + bool(self.constant_)
        groups = tuple(map(tuple, self.exclusive))
        return Moments(columns, len(self.target_range_), exclusive=groups)

    def _declare(self, read_norm: Callable[[], float] | None, read_range: Callable[[], Any] | None) -> None:
        """Set the public facts: as declared, or read off the data where that is public."""
        self.feature_norm_ = real(
            "feature_norm",
            self._read_off("feature_norm", _norm_of(self.feature_norm), _NORM, read_norm),
            above=1e-100,
            at_most=1e100,
            remedy=_NORM,
        )
        declared = self._read_off("target_range", self.target_range, _RANGE, read_range)
        self.target_range_ = checked_ranges(declared, _RANGE)
        remedy = "It is the constant beside a row of norm 1; 1 is usual. Use fit_intercept=False for no intercept."
        scaling = real("intercept_scaling", self.intercept_scaling, above=0, at_most=1e6, remedy=remedy)
        check_coef_bound(self.coef_bound)
        self.constant_ = scaling if self.fit_intercept else 0.0

    def _scale(self, target: int) -> tuple[float, float]:
        """Middle and half-width of the target's range; without an intercept, about 0."""
        low, high = self.target_range_[target]
        return ((low + high) / 2, (high - low) / 2) if self.constant_ else (0.0, max(abs(low), abs(high)))

    def _sent(self, X: Any, y: NDArray[Any]) -> tuple[Any, NDArray[Any] | None]:
        """Rows of norm at most 1 with their constant, targets in [-1, 1]; several targets are columns beside the rows."""
        rows = sent_rows(X, self.feature_norm_, self.constant_)
        scales = [self._scale(target) for target in range(len(self.target_range_))]
        columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        middles, halves = np.array(scales).T
        targets = (np.clip(columns, *np.array(self.target_range_).T) - middles) / halves
        if len(scales) == 1:
            return rows, targets[:, 0]
        return (hstack([rows, csr_array(targets)], format="csr") if issparse(rows) else np.hstack([rows, targets])), None

    def _solved(self, target: int, columns: Sequence[int]) -> tuple[LeastSquares, MomentSums]:
        with_intercept = [*columns, *([self.n_features_in_] if self.constant_ else [])]
        moments = self._query().decode(self.estimate_).of(with_intercept)
        return least_squares(moments, target, bounds=self._bounds(len(columns), target)), moments

    def _bounds(self, columns: int, target: int) -> Floats | None:
        """What coef_bound means for the coefficients of rows as they are sent.

        The intercept needs no declaration: a line of least squares goes through the means, so it is at most half of the target's
        range and the slopes times the mean row away from the middle, whose entries add up to sqrt(columns) feature_norm at most.
        """
        if self.coef_bound is None:
            return None
        scale, _ = self._units(columns, target)
        bounds = np.full(len(scale), float(self.coef_bound))
        if self.constant_:
            bounds[-1] = self._scale(target)[1] + self.coef_bound * math.sqrt(columns) * self.feature_norm_
        return bounds / scale

    def _units(self, columns: int, target: int) -> tuple[Floats, Floats]:
        """What to multiply coefficients by, and to add to them, to have them in the units of the data."""
        middle, half = self._scale(target)
        scale = half * coefficient_units(columns, self.feature_norm_, self.constant_)
        return scale, np.append(np.zeros(columns), middle) if self.constant_ else np.zeros(columns)

    def _set_coefficients(self) -> None:
        every, several, width = (
            self._every(lambda solution: solution.coef, shifted=True),
            len(self.target_range_) > 1,
            self.n_features_in_,
        )
        middles = every[:, width] if self.constant_ else np.zeros(len(every))
        self.coef_ = every[:, :width] if several else every[0, :width]
        self.intercept_ = middles if several else float(middles[0])

    def _every(self, part: Callable[[LeastSquares], Floats], *, shifted: bool = False) -> Floats:
        """Something about all coefficients, the intercept's last, in the units of the data: one row per target."""
        rows = []
        for target in range(len(self.target_range_)):
            scale, shift = self._units(self.n_features_in_, target)
            rows.append(part(self._solved(target, range(self.n_features_in_))[0]) * scale + shifted * shift)
        return np.array(rows)

    @property
    def std_(self) -> Floats:
        """Standard errors of coef_; infinity where the data do not decide a coefficient and `coef_bound` is not given."""
        errors = self._every(lambda solution: solution.std)[:, : self.n_features_in_]
        return errors if len(self.target_range_) > 1 else errors[0]

    @property
    def intercept_std_(self) -> Floats | float:
        """Standard error of the intercept; 0 without one."""
        errors = self._every(lambda solution: solution.std)[:, -1] * bool(self.constant_)
        return errors if len(self.target_range_) > 1 else float(errors[0])

    def _r2(self, solution: LeastSquares, moments: MomentSums, target: int) -> tuple[float | None, float | None]:
        """The share that is explained, with its standard error; None without an intercept."""
        return (
            explained(solution, moments, target, self.constant_ / math.hypot(1.0, self.constant_))
            if self.constant_
            else (None, None)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# Logistic regression with standard errors and intervals: three groups of people, one private round each.

_FEWEST = 8
# Mean of p(1 - p) that a forecast takes for granted: a little less than 1/4, its largest.
_CURVED = 0.2


@documented("coef_", "intercept_", "std_", "intercept_std_", "classes_", "feature_norm_", "rounds_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLogit(DeclaredClasses):
    """Logistic regression of two classes with standard errors and intervals, from people who keep their records.

    Algorithm: everybody is in one of three groups, drawn at random, and is asked once. A quarter sends second moments, for a start;
    a quarter and then half send what a Newton step needs: p(1 - p) x x', (y - p) x and (y - p)^2 x x'. Standard errors count
    sampling (robustly, by the sandwich) and the privacy noise together (docs/statistics.md). Where the data do not decide a
    coefficient its interval is (-inf, inf), or what `coef_bound` leaves; `forecast` says before anybody is asked how wide
    intervals will be.

    Choose it where coefficients are wanted; ShuffleLogisticRegression where labels and probabilities are, or columns are many.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw: the worst of the three groups. `classes` and
    `feature_norm` are taken as public and never read off the data, but with data_is_public=True.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLogit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2)) / 1.5
    >>> y = rng.random(20_000) < 1 / (1 + np.exp(-2 * X[:, 0]))
    >>> model = ShuffleLogit(epsilon=2.0, classes=[False, True], feature_norm=1.0).fit(X, y)
    >>> low, high = model.intervals(0.999999)[0]
    >>> bool(low < 2 < high)
    True
    >>> print(model.summary())  # doctest: +ELLIPSIS
    Logistic regression in three groups, 20,000 people; epsilon = 2...
    """

    feature_norm: float | Literal["auto"] | None = "auto"
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    coef_bound: float | None = None

    def fit(self, X: Any, y: Any, groups: Any = None, **refused: Any) -> Self:
        """Ask every user once, in one of three groups.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            The rows.
        y : array-like of shape (rows,)
            Their labels.
        groups : array-like of shape (rows,), optional
            Whose the rows are: those with the same entry are one user. Every row is a user unless given.
        **refused : object
            `sample_weight` is refused with the reason, anything else as unknown.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            Where a parameter or a record is not valid. Nobody was asked, nothing was spent.
        """
        self._forget()
        warn_of_undeclared_norm(self.feature_norm)
        if self.invalid == "blank":
            X = validated(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
            rows, targets = self.records(X, target_column(X, y))
            self._declare(X.shape[1], None, None)
            return self._train(self._population(rows, targets, groups, refused))
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=(np.float64, np.float32), ensure_min_samples=2)
        self._declare(X.shape[1], y, lambda: float(max(row_norms(X.astype(np.float64)).max(), 1e-12)))
        return self._train(self._population(self._rows(X), self._targets(y), groups, refused))

    def fit_population(self, population: Population, features: int, *, read_off: tuple[str, ...] = ()) -> Self:
        """Ask people whose records are not in memory. Public facts must be declared.

        Parameters
        ----------
        population : Population
            The people, wherever they are; their records are as `records` makes them.
        features : int
            Columns of X, without the constant.
        read_off : tuple of str, optional
            Public facts that were read off the data all the same; the guarantee says that it does not cover them.

        Returns
        -------
        self
            Fitted.

        Raises
        ------
        ArgumentError
            As in `fit`, and for what is not a population.
        """
        self._forget()
        require_population(population)
        warn_of_undeclared_norm(self.feature_norm)
        self._declare(features, None, None)
        self.check_request(population.users)
        self.read_off_data_ = read_off
        return self._train(population)

    def records(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Do what each user does to its own record, by public facts alone.

        Parameters
        ----------
        X : ndarray or sparse array of shape (rows, features)
            Rows as they come.
        y : array-like of shape (rows,)
            Labels as they come.

        Returns
        -------
        tuple of arrays
            Rows of norm at most 1 with their constant, and -1 or 1; zeros for a record that is not valid and counts as blank.

        Raises
        ------
        ArgumentError
            Where a public fact was not declared, or a record is not valid and `invalid` is "refuse".
        """
        declared = copy.copy(self)
        declared._declare(X.shape[1], None, None)
        if self.invalid == "blank":
            return blanked(X, y, declared._rows, declared._targets)
        return declared._rows(X), declared._targets(np.asarray(y))

    def decision_function(self, X: Any) -> Floats:
        """Return the log-odds of the second class.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; longer ones are scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows,)
            <coef_, x> + intercept_ for every row x.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        return np.asarray(clip_rows(X, self.feature_norm_) @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likelier class.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows.

        Returns
        -------
        ndarray of shape (rows,)
            One of `classes_` for every row.
        """
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of both classes.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows.

        Returns
        -------
        ndarray of shape (rows, 2)
            In the order of `classes_`.
        """
        scores = self.decision_function(X)
        return np.column_stack([expit(-scores), expit(scores)])

    def intervals(self, level: float = 0.95) -> Floats:
        """Return intervals for the coefficients. No privacy is spent.

        Parameters
        ----------
        level : float, default 0.95
            The intervals' coverage.

        Returns
        -------
        ndarray of shape (coefficients, 2)
            Low and high ends, the intercept's last: (-inf, inf) where the data do not decide a coefficient and `coef_bound` is not
            given.
        """
        return self.summary(level).intervals

    def summary(self, level: float = 0.95) -> RegressionTable:
        """Return coefficients with standard errors, p-values and intervals. No privacy is spent.

        Parameters
        ----------
        level : float, default 0.95
            The intervals' coverage.

        Returns
        -------
        RegressionTable
            To be read or printed.
        """
        check_is_fitted(self)
        (solution, settled), scale = self._solution(), self._units()
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        stated = self._promise()
        promise = words.brief(stated.epsilon, stated.delta, stated.neighbours)
        return RegressionTable(
            names=(*map(str, names), *(["(intercept)"] if self.constant_ else [])),
            **shown(solution.combined(np.diag(scale)), level),
            r2=None,
            users=self.n_users_,
            promise=promise if self.guarantee_ else f"NOT PRIVATE ({self._why_not_private()})",
            method="Logistic regression in three groups",
            settled=settled,
        )

    def forecast(self, users: int, features: int) -> WidthForecast:
        """Forecast how wide intervals will be, from public facts alone. No data is touched.

        Parameters
        ----------
        users : int
            How many people would be asked.
        features : int
            Columns of X, without the constant.

        Returns
        -------
        WidthForecast
            To be printed. It takes both classes for about equally frequent.

        Raises
        ------
        ArgumentError
            Where a parameter is out of range, or a public fact was not declared.
        """
        declared = copy.copy(self)
        declared._declare(features, None, None)
        declared.check_request(users)
        return declared._forecast(declared._planned(users))

    def _forecast(self, planned: GroupPlans) -> WidthForecast:
        plan, slopes = planned.plans[-1], self.n_features_in_
        blank = SumEstimate(sum=np.zeros(plan.dim), users=plan.users, noise_std=plan.noise_std, guarantee=None)
        sums = self._shapes()[-1].decode(blank)
        scale = math.sqrt(slopes) * math.hypot(1.0, self.constant_)  # sent values are within 1 / scale, evenly
        variance = _CURVED / (3 * scale**2)
        edge = noise_edge(sums.curvature_variance)
        threshold = seen_from(edge, sums.curvature_std)
        half = slope_half_width(variance, edge, threshold, slopes=slopes, residual=1.0, users=plan.users, noise=sums.slope_std**2)
        return WidthForecast(
            "logistic", planned.users, slopes, self.epsilon, half / scale, least_spread(variance, edge, threshold, slopes)
        )

    def check_request(self, users: int) -> None:  # as of every estimator
        super().check_request(users)
        whole("users", users, at_least=_FEWEST, remedy="Three groups of people are needed.")

    def check_learned(self) -> None:
        """Refuse coefficients that do not follow from the rounds beside them, and plans for vectors of another range."""
        if "rounds_" not in vars(self):
            return
        for plan, query in zip(self.rounds_.planned.plans, self._shapes(), strict=True):
            require_range(plan, query.dim, query.norm, min(query.diameter, 2 * query.norm))
        again = copy.copy(self)
        again._set_coefficients()
        for name in ("coef_", "intercept_"):
            stored, derived = np.asarray(getattr(self, name)), np.asarray(getattr(again, name))
            if stored.shape != derived.shape or not np.allclose(stored, derived, rtol=1e-9):
                raise ArgumentError(name, stored.shape, "what follows from the rounds beside it", "Do not use this file.")

    @property
    def n_users_(self) -> int:
        """How many people were asked."""
        return self.rounds_.users

    @property
    def guarantee_(self) -> Guarantee | Any:
        """What the rounds reveal about one user; None where they were seeded."""
        return self._covering(self.rounds_.guarantee)

    @property
    def std_(self) -> Floats:
        """Standard errors of coef_; infinity where the data do not decide a coefficient and `coef_bound` is not given."""
        return np.asarray((self._solved().std * self._units())[np.newaxis, : self.n_features_in_])

    @property
    def intercept_std_(self) -> Floats:
        """Standard error of the intercept; 0 without one."""
        return np.asarray((self._solved().std * self._units())[-1:] * bool(self.constant_))

    def _asked_how(self) -> tuple[str, str]:
        how = "Each user is asked once, in one of three groups drawn at random"
        return "three groups", f"{how}, for the noisy sum of products of its features and label."

    def _meaning(self) -> list[str]:
        return [
            "If labels follow a logistic model, coef_ and intercept_ estimate its parameters (log-odds per unit of a feature, for "
            "rows of at most feature_norm); summary() has their standard errors, for sampling and noise together.",
            str(self._forecast(self.rounds_.planned)) if hasattr(self, "rounds_") else FORECAST_FIRST,
        ]

    def _declare(self, features: int, y: NDArray[Any] | None, read_norm: Callable[[], float] | None) -> None:
        """Set the public facts: as declared, or read off the data where that is public."""
        self.n_features_in_ = whole("features", features, at_least=1, at_most=900, remedy="Products of more columns are too many.")
        self._declare_classes(y)
        norm = self._read_off("feature_norm", _norm_of(self.feature_norm), _NORM, read_norm)
        self.feature_norm_ = real("feature_norm", norm, above=1e-100, at_most=1e100, remedy=_NORM)
        remedy = "It is the constant beside a row of norm 1; 1 is usual. Use fit_intercept=False for no intercept."
        scaling = real("intercept_scaling", self.intercept_scaling, above=0, at_most=1e6, remedy=remedy)
        check_coef_bound(self.coef_bound)
        self.constant_ = scaling if self.fit_intercept else 0.0

    def _rows(self, X: Any) -> Any:
        return sent_rows(X, self.feature_norm_, self.constant_)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(2.0 * self._class_indices(y) - 1.0)  # NaN where a label that is none counts as blank

    def _columns(self) -> int:
        return self.n_features_in_ + bool(self.constant_)

    def _shapes(self) -> tuple[Statistic, ...]:
        """What the three groups are asked, but for the weights."""
        anywhere = Newton((0.0,) * self._columns())
        return Moments(self._columns()), anywhere, anywhere

    def _planned(self, users: int) -> GroupPlans:
        quarter = users // 4
        return plan_groups(
            self._shapes(),
            (quarter, quarter, users - 2 * quarter),
            epsilon=self.epsilon,
            delta=self._delta(users),
            honest=self.honest,
            neighbours=self.neighbours,
            calibration=self.calibration,
        )

    def _train(self, population: Population) -> Self:
        shapes, planned = self._shapes(), self._planned(population.users)
        self._forecast(planned).warn()
        population.prepare(Newton((0.0,) * self._columns()).check_records)
        self._charge(population, planned.guarantee)
        questions = (lambda _: shapes[0], self._next, self._next)
        self.rounds_: GroupRounds = ask_groups(planned, questions, population, self.random_state)
        self._set_coefficients()
        self.promise_ = self._promise()
        return self

    def _next(self, estimates: Sequence[SumEstimate]) -> Newton:
        """What the next group is asked: a Newton step from where the earlier ones led."""
        # labels are -1 and 1: least squares gives tanh(score / 2) to first order, half the score
        weights = 2 * least_squares(Moments(self._columns()).decode(estimates[0])).coef
        for estimate in estimates[1:]:
            weights = Newton(tuple(weights.tolist())).decode(estimate).step().coef
        return Newton(tuple(weights.tolist()))

    def _solved(self) -> Coefficients:
        return self._solution()[0]

    def _solution(self) -> tuple[Coefficients, bool]:
        """The coefficients, and whether the last step was as short as noise explains: otherwise nothing is decided."""
        *earlier, last = self.rounds_.estimates
        sums = self._next(earlier).decode(last)
        bounds = None if self.coef_bound is None else self.coef_bound / self._units()
        step = sums.step(bounds)
        if sums.settled(step):
            return step, True
        return replace(step, determined=np.zeros_like(step.determined), bias=np.full(len(step.coef), np.inf)), False

    def _units(self) -> Floats:
        return coefficient_units(self.n_features_in_, self.feature_norm_, self.constant_)

    def _set_coefficients(self) -> None:
        coef = self._solved().coef * self._units()
        self.coef_ = coef[np.newaxis, : self.n_features_in_]
        self.intercept_ = coef[-1:] if self.constant_ else np.zeros(1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags
