"""Regressions whose coefficients come with standard errors, p-values and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, hstack, issparse
from scipy.special import expit
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ..optimizer import Result, Schedule
from ..population import Population, Query
from ..privacy import NoCertificateError, SumPlan
from ..privacy import _statements as words
from ..problem.problem import clip_rows, with_constant
from ..protocol import SumEstimate
from ..statistics import Moments
from ..statistics._newton import Newton
from ..statistics._zoom import Seen, Zoom, ZoomLogit
from ..statistics.moments import (
    Coefficients,
    LeastSquares,
    MomentSums,
    checked_groups,
    explained,
    least_squares,
    noise_edge,
    seen_from,
)
from ..validation import ArgumentError, numbers_or_nan, one_by_one, one_of, whole
from ._base import check_once, plan_once
from ._parameters import documented
from ._rounds import GroupPlans, Ready, group_rounds, one_round, plan_groups, require_once
from ._rows import DeclaredClasses, Floats, LinearRows, checked_ranges, range_of
from ._zooming import APPROXIMATE, HOPELESS, check_zoom, expected, plan_zoom, seen_in, zoom_of, zoom_rounds
from .intervals import (
    FORECAST_FIRST,
    RESIDUAL,
    CutResidualsWarning,
    FarRowsWarning,
    RegressionTable,
    WidthForecast,
    check_coef_bound,
    least_spread,
    shown,
    slope_half_width,
)
from .warnings import warn_caller

METHODS = ("auto", "rounds", "moments")
_METHODS_REMEDY = "'moments' asks at once, 'rounds' in eight secret rounds, 'auto' takes the one whose forecast is narrower."
# The share of people whose residual is cut from which on a fit warns.
_MANY_CUT = 0.01


@dataclass(kw_only=True, eq=False, repr=False)
class IntervalModel(LinearRows):
    """A linear model whose coefficients have standard errors: rows are sent at most 1 long, the constant included."""

    coef_bound: float | None = None
    method: Literal["auto", "rounds", "moments"] = "auto"

    _rule: ClassVar[type[Zoom]] = Zoom

    def _declare_rows(self, X: Any) -> None:
        super()._declare_rows(X)
        check_coef_bound(self.coef_bound)
        one_of("method", self.method, METHODS, _METHODS_REMEDY)

    def _rows(self, X: Any) -> Any:
        length = math.hypot(1.0, self.constant_)
        rows, scale = clip_rows(self._scaled(X), self.feature_norm_), 1 / (self.feature_norm_ * length)
        rows = rows if scale == 1 else rows * scale
        return with_constant(rows, self.constant_ / length) if self.constant_ else rows

    def _columns(self) -> int:
        return self.n_features_in_ + bool(self.constant_)

    def _sent_units(self, columns: int) -> Floats:
        """What to multiply weights of sent rows by to have those of scaled rows, the intercept's last."""
        length = math.hypot(1.0, self.constant_)
        scale = np.full(columns, 1 / (self.feature_norm_ * length))
        return np.append(scale, self.constant_ / length) if self.constant_ else scale

    def _unit_matrix(self, columns: Sequence[int]) -> Floats:
        """The linear map from coefficients of sent rows to those of columns as they come, the intercept's last."""
        middle, half = (part[list(columns)] for part in self._centres())
        scale = self._sent_units(len(columns))
        matrix = np.diag(scale)
        matrix[: len(columns), : len(columns)] /= half
        if self.constant_:
            matrix[-1, :-1] = -(scale[:-1] * middle / half)
        return matrix

    def _std_in_units(self, solution: Coefficients, target_unit: float = 1.0) -> Floats:
        """Standard errors in the units of the data, the intercept's last."""
        if self.feature_range_ is None:
            return np.asarray(solution.std * (target_unit * self._sent_units(self.n_features_in_)))
        return solution.combined(target_unit * self._unit_matrix(range(self.n_features_in_))).std

    def forecast(self, users: int, features: int, *, schedule: Any = None) -> WidthForecast:
        """Forecast how wide intervals will be, from public facts alone. No data is touched.

        Parameters
        ----------
        users : int
            Number of people to ask.
        features : int
            Columns of X, without the constant.
        schedule : object, optional
            What `plan` gave for them, so that it is not planned again.

        Returns
        -------
        WidthForecast
            To be printed. It takes columns for independent and evenly spread over their ranges; a target for evenly spread, with
            half of its variance explained; both classes for about equally frequent. With method="auto" it has both methods'
            figures.

        Raises
        ------
        ArgumentError
            If a parameter is out of range, or a public fact was not declared.
        """
        return self._declared(features)._forecast(self.plan(users, features) if schedule is None else schedule)

    def _forecast(self, planned: Any) -> WidthForecast:
        if isinstance(planned, Schedule):
            forecast = self._forecast_rounds(zoom_of(self._rule, self._columns(), planned))
        else:
            forecast = self._forecast_moments(planned)
        return replace(forecast, other_half_width=self._other_half_width(forecast))

    def _other_half_width(self, forecast: WidthForecast) -> float | None:
        """With method="auto": the forecast by the method that was not taken; None if there is no other."""
        if self.method != "auto" or self._no_rounds():
            return None
        if forecast.method == "moments":
            return self._forecast_rounds(self._hoped(forecast.users)).half_width
        try:
            return self._forecast_moments(self._plan_moments(forecast.users)).half_width
        except NoCertificateError:
            return None

    def _hoped(self, users: int) -> Zoom:
        """About the rule of rounds."""
        return expected(self._rule, self._columns(), users, **self._stated(users))

    def _stated(self, users: int) -> dict[str, Any]:
        delta = self._delta(users)
        return {"epsilon": self.epsilon, "delta": delta, "honest": self.honest, "neighbours": self.neighbours}

    def _forecast_moments(self, planned: Any) -> WidthForecast:
        raise NotImplementedError

    def _alone(self, users: int) -> float:
        """The forecast's half-width of a slope's interval without privacy, on all people."""
        raise NotImplementedError

    def _forecast_rounds(self, zoom: Zoom) -> WidthForecast:
        half = math.inf if zoom.hidden >= HOPELESS else zoom.width * self._alone(zoom.users)
        kind = "logistic" if zoom.logistic else "linear"
        facts = (kind, zoom.users, self.n_features_in_, self.epsilon, half)
        return WidthForecast(*facts, 0.0, method="rounds", ratio=zoom.width, approximate=zoom.hidden >= APPROXIMATE)

    def _widths(self) -> list[str]:
        """What is to be said of the intervals: the forecast, and what rounds have shown."""
        if not hasattr(self, "promise_"):
            return [FORECAST_FIRST]
        caveat = self._caveat() if self._in_rounds else ""
        how = [] if self.method == "auto" else [f'Asked by the method "{"rounds" if self._in_rounds else "moments"}".']
        asked = copy(self)  # by what was promised, whatever was set since
        asked.set_params(**{name: getattr(self.promise_, name) for name in ("epsilon", "delta", "honest", "neighbours")})
        return [*how, str(asked._forecast(self._planned())), *([caveat] if caveat else [])]

    def _warn_of_plan(self, planned: Any, users: int) -> None:
        self._forecast(planned).warn()

    # Which way: one round of moments (for a logistic model in three groups), or secret rounds that zoom in.

    def _plan(self, users: int, *, checkpoint: Any = None, turnout: float | None = None) -> Any:
        refused = self._no_rounds()
        if self.method == "rounds" and refused:
            raise ArgumentError("method", self.method, f"'moments' or 'auto' {refused}", _METHODS_REMEDY)
        if self.method == "moments" or refused:
            return self._plan_moments(users)
        promise, columns = self._stated(users), self._columns()
        if self.method == "rounds" or checkpoint is not None:  # a run that can resume from a file has rounds
            return plan_zoom(self._rule, columns, users, turnout=turnout, **promise)
        moments = self._plan_moments(users)
        hoped = self._forecast_rounds(self._hoped(users))
        if hoped.half_width >= self._forecast_moments(moments).half_width:
            return moments
        try:
            return plan_zoom(self._rule, columns, users, turnout=turnout, **promise)
        except NoCertificateError:
            return moments

    def _plan_moments(self, users: int) -> Any:
        raise NotImplementedError

    def _no_rounds(self) -> str:
        """Why there can be no secret rounds, in words; empty if there can."""
        return "" if self.calibration == "tight" else "beside another calibration than 'tight'"

    def _prepared(self, population: Population, planned: Any, checkpoint: Any) -> AbstractContextManager[Ready]:
        if not isinstance(planned, Schedule):
            require_once(checkpoint)
            return self._prepared_moments(population, planned)
        zoom = zoom_of(self._rule, self._columns(), planned)
        return zoom_rounds(zoom, population, planned, self.random_state, checkpoint, self._facts())

    def _prepared_moments(self, population: Population, planned: Any) -> AbstractContextManager[Ready]:
        raise NotImplementedError

    def _facts(self) -> dict[str, Any]:
        """What a checkpoint tells runs apart by: how records become rows and targets."""
        ranges = None if self.feature_range_ is None else self.feature_range_.tolist()
        target = [str(label) for label in self.classes_] if hasattr(self, "classes_") else self.target_range_
        return {"rows": [self.feature_norm_, self.constant_, ranges], "target": target}

    def _check_plans(self, planned: Any) -> None:
        if isinstance(planned, Schedule):
            check_zoom(self._rule, self._columns(), planned)
        else:
            self._check_moments(planned)

    def _check_moments(self, planned: Any) -> None:
        raise NotImplementedError

    @property
    def schedule_(self) -> Schedule:
        """Where it was made in rounds: the schedule that was run."""
        result: Result = self.result_
        return result.schedule

    @property
    def _in_rounds(self) -> bool:
        return "result_" in vars(self)

    def _planned(self) -> Any:
        return self.schedule_ if self._in_rounds else super()._planned()

    def _watched(self, delta: float) -> str:
        return words.watched_line(self.guarantee_ or self.schedule_.guarantee, delta) if self._in_rounds else ""

    def _seen(self) -> tuple[Zoom, list[Seen]]:
        """The rule, and what the rounds showed."""
        zoom = zoom_of(self._rule, self._columns(), self.schedule_)
        return zoom, seen_in(zoom, self.result_.history)

    def _zoomed(self, bounds: Floats | None) -> Coefficients:
        zoom, seen = self._seen()
        return zoom.estimate(seen, bounds)

    def _caveat(self) -> str:
        """What is to be said of intervals from rounds, if anything."""
        result: Result = self.result_
        if result.stopped:
            return f"Cut short after {result.rounds} of {result.schedule.rounds} rounds: no coefficient is decided."
        few = "With so few people for so many columns, these intervals are approximate; in trials they held the truth less often."
        said = [few if self._seen()[0].hidden >= APPROXIMATE else "", self._far_rows()]
        return " ".join(text for text in said if text)

    def _far_rows(self) -> str:
        """A sentence about rows that may own a coefficient and were weighed down; empty where there are none."""
        zoom, seen = self._seen()
        share = zoom.owned_by_few(seen)
        if share is None:
            return ""
        return (
            f"About {100 * share:.2g} % of rows are far from the others in a direction in which columns hardly vary, as those of a "
            f"rare level are, and were weighed down: these intervals are approximate, and in trials held the truth less often."
        )

    def _warn_of_result(self) -> None:
        """Warn where few rows may own a coefficient: rounds then fit the others."""
        if self._in_rounds and not self.result_.stopped and (far := self._far_rows()):
            warn_caller(f"{far} Narrower feature ranges, or fewer columns that say the same, cure that.", FarRowsWarning)

    def _asked_how(self) -> tuple[str, str]:
        if self._in_rounds or ("promise_" not in vars(self) and self.method == "rounds"):
            how = "Each user is asked once, in a secret round drawn at random, for a noisy sum of products of its features and of"
            return "eight secret rounds", f"{how} the residual that earlier rounds' weights leave."
        if "promise_" not in vars(self) and self.method == "auto":
            how = "Each user is asked once: all in the same way at once, or each in one of eight secret rounds"
            return "asked once", f"{how}, whichever is forecast to have narrower intervals."
        return self._asked_by_moments()

    def _asked_by_moments(self) -> tuple[str, str]:
        raise NotImplementedError

    def _table(self, solution: Coefficients, columns: Sequence[int], level: float, **more: Any) -> RegressionTable:
        """The table of coefficients in the units of the data."""
        stated = self._promise()
        promise = words.brief(stated.epsilon, stated.delta, stated.neighbours)
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        return RegressionTable(
            names=(*(str(names[column]) for column in columns), *(["(intercept)"] if self.constant_ else [])),
            **shown(solution, level),
            users=self.n_users_,
            promise=promise if self.guarantee_ else f"NOT PRIVATE ({self._why_not_private()})",
            **more,
        )


# Linear regression in one round: from the second moments of rows and targets.

_IN_ROUNDS = "Least squares in eight secret rounds"
_RANGE = "Pass (low, high) that you can justify without having seen the data; targets outside are clipped to it."


@documented(
    "coef_",
    "intercept_",
    "std_",
    "intercept_std_",
    "target_range_",
    "feature_norm_",
    "plan_",
    "estimate_",
    "schedule_",
    "result_",
)
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLinearRegression(MultiOutputMixin, RegressorMixin, IntervalModel):  # type: ignore[misc]
    """Linear regression with standard errors and intervals, from people who keep their records.

    Algorithm, method="moments": one private sum of each user's second moments (x x', x y, y^2), by its diameter; least squares
    from it, eigenvalues raised to half the edge of the noise. Standard errors count sampling, for residuals of one variance, and
    the privacy noise together (docs/statistics-theory.md). method="rounds": eight secret rounds ask moments, scores and squared
    scores, in the coordinates, about the weights and at the scale of residuals that earlier rounds found; intervals are
    narrower, and robust against residuals of several variances. Where the data do not decide a coefficient its interval is
    (-inf, inf), or what `coef_bound` leaves; `forecast` says before anybody is asked how wide intervals will be.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw. `target_range`, `feature_range`,
    `feature_norm` and `exclusive` are treated as public and never taken from the data, except with data_is_public=True. In rounds
    it rests on secret lots; one round of moments keeps it even against an attacker who knows when each user answered.

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
    Least squares in ..., 20,000 people; epsilon = 1...
    """

    target_range: ArrayLike | None = None
    exclusive: Sequence[Sequence[int]] = ()

    _target_checks: ClassVar[dict[str, Any]] = {"multi_output": True, "y_numeric": True}

    def _declare_target(self, y: NDArray[Any] | None) -> None:
        read = None if y is None else lambda: range_of(y)
        self.target_range_ = checked_ranges(self._read_off("target_range", self.target_range, _RANGE, read), _RANGE)

    def _declare_rows(self, X: Any) -> None:
        super()._declare_rows(X)
        if self.feature_range_ is None:
            return
        low, high = self.feature_range_.T
        moved = (self._centres()[0] != 0) | (low > 0) | (high < 0)
        for column in (int(column) for group in self.exclusive for column in group):
            if column < len(moved) and moved[column]:
                remedy = "A 0 has to stay 0 for columns of which at most one is not: use (-1, 1) for those of a one-hot category."
                stated = tuple(self.feature_range_[column].tolist())
                raise ArgumentError(f"feature_range[{column}]", stated, "(-high, high) for columns in exclusive", remedy)

    def _column(self, X: Any, y: Any) -> NDArray[Any]:
        check_consistent_length(X, y)
        return one_by_one(y)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """In [-1, 1], one column per target."""
        if self.invalid == "blank":
            y = np.asarray(numbers_or_nan(y), dtype=np.float64)
            y = np.where(np.isfinite(y), y, np.nan)
        several = y.ndim == 2 and y.shape[1] > 1
        if several != (len(self.target_range_) > 1) or (several and y.shape[1] != len(self.target_range_)):
            allowed = f"{len(self.target_range_)} column(s), as target_range has pairs"
            raise ArgumentError("y.shape", y.shape, allowed, "Declare one pair per target.")
        columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        middles, halves = np.array([self._scale(target) for target in range(len(self.target_range_))]).T
        return np.asarray((np.clip(columns, *np.array(self.target_range_).T) - middles) / halves)

    def _joined(self, rows: Any, targets: NDArray[Any]) -> tuple[Any, NDArray[Any] | None]:
        """One target is the population's; several are columns beside the rows."""
        if targets.shape[1] == 1:
            return rows, targets[:, 0]
        return (hstack([rows, csr_array(targets)], format="csr") if issparse(rows) else np.hstack([rows, targets])), None

    def predict(self, X: Any) -> Floats:
        """Return <coef_, x> + intercept_ for every row x.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows,) or (rows, targets)
            In the targets' own units.
        """
        return self._scores(X)

    def intervals(self, level: float = 0.95, *, target: int = 0, columns: Sequence[int] | None = None) -> Floats:
        """Return intervals for the coefficients. All follows from what was released: no privacy is spent.

        Parameters
        ----------
        level : float, default 0.95
            The intervals' coverage.
        target : int, default 0
            Which of the declared targets.
        columns : sequence of int, optional
            Columns of X to regress on; default: all. From one round of moments alone.

        Returns
        -------
        ndarray of shape (coefficients, 2)
            Low and high ends, the intercept's last: (-inf, inf) where the data do not decide a coefficient and `coef_bound` is not
            given.
        """
        return self.summary(level, target=target, columns=columns).intervals

    def summary(self, level: float = 0.95, *, target: int = 0, columns: Sequence[int] | None = None) -> RegressionTable:
        """Return coefficients with standard errors, p-values and intervals, from what was released: no privacy is spent.

        Parameters
        ----------
        level : float, default 0.95
            The intervals' coverage.
        target : int, default 0
            Which of the declared targets.
        columns : sequence of int, optional
            Columns of X to regress on; default: all. From one round of moments alone.

        Returns
        -------
        RegressionTable
            To be read or printed.

        Raises
        ------
        ArgumentError
            For a target or a column that there is not, or some of the columns of a model that was made in rounds.
        """
        check_is_fitted(self)
        whole("target", target, at_least=0, at_most=len(self.target_range_) - 1, remedy="Count the declared targets from 0.")
        remedy = "Count the columns of X from 0, each at most once."
        last = self.n_features_in_ - 1
        regressors = list(range(last + 1)) if columns is None else list(columns)
        regressors = [whole("columns", column, at_least=0, at_most=last, remedy=remedy) for column in regressors]
        if len(set(regressors)) != len(regressors) or not regressors:
            raise ArgumentError("columns", columns, "different columns, at least one", remedy)
        middle, half = self._scale(target)
        shift = np.append(np.zeros(len(regressors)), middle) if self.constant_ else 0.0
        if self._in_rounds:
            if regressors != list(range(last + 1)):
                remedy = "One round of moments answers that, too: method='moments'."
                raise ArgumentError("columns", columns, "all, of a model that was made in rounds", remedy)
            solution, (zoom, seen) = self._zoomed(self._bounds(regressors, target)), self._seen()
            r2, r2_std = zoom.explained(seen, self.constant_ / math.hypot(1.0, self.constant_)) if self.constant_ else (None, None)
            table = solution.combined(half * self._unit_matrix(regressors), shift)
            return self._table(table, regressors, level, r2=r2, r2_std=r2_std, method=_IN_ROUNDS, caveat=self._caveat())
        solution, moments = self._solved(target, regressors)
        r2, r2_std = self._r2(solution, moments, target)
        # in the target's own units, so that p-values are of the coefficients that are shown
        return self._table(solution.combined(half * self._unit_matrix(regressors), shift), regressors, level, r2=r2, r2_std=r2_std)

    def _warn_of_result(self) -> None:
        """Warn where many residuals were cut: rounds then answer another question than least squares do."""
        super()._warn_of_result()
        if not self._in_rounds or self.result_.stopped:
            return
        zoom, seen = self._seen()
        share, noise = zoom.odd_share(seen)
        if share - 2 * noise > _MANY_CUT:
            text = f"about {100 * share:.2g} % of people have a residual beyond {zoom.deviations:.2g} standard deviations"
            remedy = "it counts as that long: where residuals are skewed, the intercept is biased. method='moments' cuts none."
            warn_caller(f"{text}; {remedy}", CutResidualsWarning)

    def _no_rounds(self) -> str:
        return super()._no_rounds() or ("for several targets" if len(self.target_range_) > 1 else "")

    def _alone(self, users: int) -> float:
        return 1.96 * math.sqrt(RESIDUAL * 3 / users)  # columns evenly over [-1, 1]

    def _forecast_moments(self, planned: Any) -> WidthForecast:
        plan: SumPlan = planned
        blank = SumEstimate(sum=np.zeros(plan.dim), users=plan.users, noise_std=plan.noise_std, guarantee=None)
        moments, slopes = self._query().decode(blank), self.n_features_in_
        scale = math.sqrt(slopes) * math.hypot(1.0, self.constant_)  # sent values are within 1 / scale, evenly
        variance = 1 / (3 * scale**2)
        # a target evenly over [-1, 1] has variance 1/3: half of it is left, half is variance |coef|^2
        noise = moments.products_std**2 + moments.matrix_std**2 / 2 * (1 + 1 / slopes) / (6 * variance)
        threshold = seen_from(moments.edge, moments.matrix_std)
        half = slope_half_width(variance, moments.edge, threshold, slopes=slopes, residual=RESIDUAL, users=plan.users, noise=noise)
        return WidthForecast(
            "linear", plan.users, slopes, self.epsilon, half / scale, least_spread(variance, moments.edge, threshold, slopes)
        )

    def _check_moments(self, planned: Any) -> None:
        check_once(planned, self._query())

    def _asked_by_moments(self) -> tuple[str, str]:
        return "one round", "Each user is asked once, for the noisy sum of products of its features and targets."

    def _meaning(self) -> list[str]:
        return self._widths()

    def _plan_moments(self, users: int) -> SumPlan:
        return plan_once(self, self._query(), users)

    def _prepared_moments(self, population: Population, planned: Any) -> AbstractContextManager[Ready]:
        return one_round(self._query(), population, planned, self.random_state)

    def _query(self) -> Moments:
        return Moments(self._columns(), len(self.target_range_), exclusive=checked_groups(self.exclusive, self.n_features_in_))

    def _scale(self, target: int) -> tuple[float, float]:
        """Middle and half-width of the target's range; without an intercept, about 0."""
        low, high = self.target_range_[target]
        return ((low + high) / 2, (high - low) / 2) if self.constant_ else (0.0, max(abs(low), abs(high)))

    def _solved(self, target: int, columns: Sequence[int]) -> tuple[LeastSquares, MomentSums]:
        with_intercept = [*columns, *([self.n_features_in_] if self.constant_ else [])]
        moments = self._query().decode(self.estimate_).of(with_intercept)
        return least_squares(moments, target, bounds=self._bounds(columns, target)), moments

    def _bounds(self, columns: Sequence[int], target: int) -> Floats | None:
        """What coef_bound means for the coefficients of rows as they are sent.

        The intercept needs no declaration: a line of least squares goes through the means, so at the middles of the columns it is
        at most half of the target's range and the slopes times the mean row away from the target's middle. Slopes of scaled columns
        are at most coef_bound times half a range, and a scaled row is at most feature_norm long.
        """
        if self.coef_bound is None:
            return None
        half, widths = self._scale(target)[1], self._centres()[1][list(columns)]
        bounds = self.coef_bound * widths
        if self.constant_:
            bounds = np.append(bounds, half + self.coef_bound * float(np.linalg.norm(widths)) * self.feature_norm_)
        return np.asarray(bounds / (half * self._sent_units(len(columns))))

    def _set_coefficients(self) -> None:
        weights, intercepts, width = [], [], self.n_features_in_
        for target in range(len(self.target_range_)):
            middle, half = self._scale(target)
            coef = self._coefficients(target).coef * (half * self._sent_units(width))
            weights.append(coef[:width])
            intercepts.append(coef[width] + middle if self.constant_ else 0.0)
        every, middles = self._in_columns_units(np.array(weights), np.array(intercepts))
        several = len(weights) > 1
        self.coef_, self.intercept_ = every if several else every[0], middles if several else float(middles[0])

    def _coefficients(self, target: int) -> Coefficients:
        """Those of rows as they are sent, on all columns."""
        every = range(self.n_features_in_)
        return self._zoomed(self._bounds(every, target)) if self._in_rounds else self._solved(target, every)[0]

    def _errors(self) -> Floats:
        """Standard errors of all coefficients, the intercept's last, in the units of the data: one row per target."""
        solutions = [self._coefficients(target) for target in range(len(self.target_range_))]
        return np.array([self._std_in_units(solution, self._scale(target)[1]) for target, solution in enumerate(solutions)])

    @property
    def std_(self) -> Floats:
        """Standard errors of coef_; infinity if the data do not decide a coefficient and `coef_bound` is not given."""
        errors = self._errors()[:, : self.n_features_in_]
        return errors if len(self.target_range_) > 1 else errors[0]

    @property
    def intercept_std_(self) -> Floats | float:
        """Standard error of the intercept; 0 without one."""
        errors = self._errors()[:, -1] * bool(self.constant_)
        return errors if len(self.target_range_) > 1 else float(errors[0])

    def _r2(self, solution: LeastSquares, moments: MomentSums, target: int) -> tuple[float | None, float | None]:
        """The share that is explained, with its standard error; None without an intercept."""
        return (
            explained(solution, moments, target, self.constant_ / math.hypot(1.0, self.constant_))
            if self.constant_
            else (None, None)
        )


# Logistic regression with standard errors and intervals: three groups of people, one private round each.

# The fewest people that three groups can be made of.
FEWEST = 8
# Mean of p(1 - p) that a forecast takes for granted: a little less than 1/4, its largest.
_CURVED = 0.2


@documented("coef_", "intercept_", "std_", "intercept_std_", "classes_", "feature_norm_", "rounds_", "schedule_", "result_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleLogit(DeclaredClasses, IntervalModel):
    """Logistic regression of two classes with standard errors and intervals, from people who keep their records.

    Algorithm, method="moments": everybody is in one of three groups, drawn at random, and is asked once. A quarter sends second
    moments, for a start; a quarter and then half send what a Newton step needs: p(1 - p) x x', (y - p) x and (y - p)^2 x x'.
    method="rounds": eight secret rounds ask the same in the coordinates and about the weights that earlier rounds found. Standard
    errors count sampling (robustly, by the sandwich) and the privacy noise together (docs/statistics-theory.md). Where the data do
    not decide a coefficient its interval is (-inf, inf), or what `coef_bound` leaves; `forecast` says before anybody is asked how
    wide intervals will be.

    Choose it where coefficients are wanted; ShuffleLogisticRegression where labels and probabilities are, or columns are many.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw: the worst of the three groups, or all secret
    rounds together. `classes`, `feature_range` and `feature_norm` are treated as public and never taken from the data, except with
    data_is_public=True. In rounds it rests on secret lots; groups keep it even against an attacker who knows when each user
    answered.

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
    Logistic regression in ..., 20,000 people; epsilon = 2...
    """

    _most_features: ClassVar[int | None] = 900
    _rule: ClassVar[type[Zoom]] = ZoomLogit

    def decision_function(self, X: Any) -> Floats:
        """Return the log-odds of the second class.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

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
        coef, intercept = self._scaled_weights()
        return np.asarray(self._taken(X) @ coef[0] + intercept[0])

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
        (solution, settled), every = self._solution(), range(self.n_features_in_)
        solution = solution.combined(self._unit_matrix(every))
        if self.coef_bound is not None and solution.limits is not None:  # declared of the units of the data
            solution = replace(solution, limits=np.clip(solution.limits, -self.coef_bound, self.coef_bound))
        how = "eight secret rounds" if self._in_rounds else "three groups"
        said = {
            "method": f"Logistic regression in {how}",
            "of": f"log-odds of {self.classes_[1]} against {self.classes_[0]}",
            "caveat": self._caveat() if self._in_rounds else "",
        }
        return self._table(solution, every, level, r2=None, settled=settled, **said)

    def _alone(self, users: int) -> float:
        return 1.96 * math.sqrt(3 / (_CURVED * users))

    def _forecast_moments(self, planned: Any) -> WidthForecast:
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
        whole("users", users, at_least=FEWEST, remedy="Three groups of people are needed.")

    def _check_moments(self, planned: Any) -> None:
        for plan, query in zip(planned.plans, self._shapes(), strict=True):
            check_once(plan, query)

    @property
    def std_(self) -> Floats:
        """Standard errors of coef_; infinity if the data do not decide a coefficient and `coef_bound` is not given."""
        return self._std_in_units(self._solution()[0])[np.newaxis, : self.n_features_in_]

    @property
    def intercept_std_(self) -> Floats:
        """Standard error of the intercept; 0 without one."""
        return self._std_in_units(self._solution()[0])[-1:] * bool(self.constant_)

    def _asked_by_moments(self) -> tuple[str, str]:
        how = "Each user is asked once, in one of three groups drawn at random"
        return "three groups", f"{how}, for the noisy sum of products of its features and label."

    def _meaning(self) -> list[str]:
        return [
            "If labels follow a logistic model, coefficients and intercept estimate its parameters (log-odds per unit of a "
            "feature, for rows within the declared norm); standard errors are for sampling and noise together.",
            *self._widths(),
        ]

    def _declare_target(self, y: NDArray[Any] | None) -> None:
        self._declare_classes(y)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(2.0 * self._class_indices(y) - 1.0)  # NaN where a label that is none counts as blank

    def _shapes(self) -> tuple[Query, ...]:
        """What the three groups are asked, except for the weights."""
        anywhere = Newton((0.0,) * self._columns())
        return Moments(self._columns()), anywhere, anywhere

    def _plan_moments(self, users: int) -> GroupPlans:
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

    def _prepared_moments(self, population: Population, planned: Any) -> AbstractContextManager[Ready]:
        first, test = self._shapes()[0], Newton((0.0,) * self._columns()).test
        return group_rounds(planned, (lambda _: first, self._next, self._next), test, population, self.random_state)

    def _next(self, estimates: Sequence[SumEstimate]) -> Newton:
        """What the next group is asked: a Newton step from where the earlier ones led."""
        # labels are -1 and 1: least squares gives tanh(score / 2) to first order, half the score
        weights = 2 * least_squares(Moments(self._columns()).decode(estimates[0])).coef
        for estimate in estimates[1:]:
            weights = Newton(tuple(weights.tolist())).decode(estimate).step().coef
        return Newton(tuple(weights.tolist()))

    def _solution(self) -> tuple[Coefficients, bool]:
        """The coefficients, and whether the last step was as short as noise explains: otherwise nothing is decided."""
        if self._in_rounds:
            zoom, seen = self._seen()
            step, settled = zoom.estimate(seen, self._bounds()), zoom.settled(seen)
        else:
            *earlier, last = self.rounds_.estimates
            sums = self._next(earlier).decode(last)
            step = sums.step(self._bounds())
            settled = sums.settled(step)
        if settled:
            return step, True
        return replace(step, determined=np.zeros_like(step.determined), bias=np.full(len(step.coef), np.inf)), False

    def _bounds(self) -> Floats | None:
        """What coef_bound means for the coefficients of rows as they are sent; the intercept is then that at the middles."""
        if self.coef_bound is None:
            return None
        middle, half = self._centres()
        bounds = self.coef_bound * np.append(half, [1 + float(np.abs(middle).sum())] * bool(self.constant_))
        return np.asarray(bounds / self._sent_units(self.n_features_in_))

    def _set_coefficients(self) -> None:
        coef = self._solution()[0].coef * self._sent_units(self.n_features_in_)
        intercept = coef[-1:] if self.constant_ else np.zeros(1)
        self.coef_, self.intercept_ = self._in_columns_units(coef[np.newaxis, : self.n_features_in_], intercept)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
