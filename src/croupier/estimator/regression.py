"""Regressors trained in rounds: Huber's loss and quantiles, for targets in a declared range."""

from __future__ import annotations

import copy
import math
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.base import RegressorMixin

from ..optimizer import Schedule
from ..optimizer._rules import LEAST_ROUNDS, MOST_COLUMNS
from ..optimizer.planning import METHODS
from ..population import Population
from ..privacy import NoCertificateError, SumPlan
from ..problem import Huber, Loss, Pinball, Squared
from ..protocol import SumEstimate
from ..statistics import Moments
from ..statistics.moments import MomentSums, raised_spectrum
from ..validation import ArgumentError, Found, numbers_or_nan, one_of, real
from ._base import check_once, plan_once, require_numbers
from ._linear import LinearModel
from ._parameters import documented
from ._rounds import Ready, one_round, require_once
from ._rows import Floats
from .warnings import MostlyNoiseWarning, warn_caller, warn_of_few_people, warn_of_pressing


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Targets clipped to a declared range and scaled to [-1, 1] for training; predictions in the target's own units."""

    target_range: tuple[float, float] | None = None
    radius: float | None = 2.0

    _target_checks: ClassVar[dict[str, Any]] = {"y_numeric": True}

    def _declare_target(self, y: NDArray[Any] | None) -> None:
        how = "Pass (low, high) that you can justify without having seen the data; targets outside are clipped to it."
        read = None if y is None else lambda: (float(y.min()), float(y.max()))
        declared = self._read_off("target_range", self.target_range, how, read)
        try:
            low, high = (real("target_range", end, above=-1e100, below=1e100, remedy=how) for end in declared)
        except (TypeError, ValueError):
            low = high = 0.0
        if not low < high:
            raise ArgumentError("target_range", declared, "(low, high) with low < high", how)
        self.target_range_ = (low, high)

    def _targets(self, y: NDArray[Any]) -> NDArray[Any]:
        low, high = self.target_range_
        middle, half = self._scale()
        if self.invalid != "blank":
            require_numbers(y)
        y = numbers_or_nan(y)
        if self.invalid == "blank":
            y = np.where(np.isfinite(y), y, np.nan)
        return np.asarray((np.clip(y, low, high) - middle) / half)

    def _scale(self) -> tuple[float, float]:
        """Middle and half-width of the range; without an intercept, about 0."""
        low, high = self.target_range_
        return ((low + high) / 2, (high - low) / 2) if self.constant_ else (0.0, max(abs(low), abs(high)))

    def _set_weights(self, weights: Floats, intercepts: Floats) -> None:
        middle, half = self._scale()
        self.coef_, self.intercept_ = weights[0] * half, float(middle + half * intercepts[0])

    def predict(self, X: Any) -> Floats:
        """Return <coef_, x> + intercept_ for every row x.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            Rows; clipped to feature_range and scaled down to feature_norm, as in training.

        Returns
        -------
        ndarray of shape (rows,)
            In the target's own units.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        return self._scores(X)


@documented("coef_", "intercept_", "target_range_", "feature_norm_", "schedule_", "result_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleHuberRegressor(LinearRegressor):
    """The mean of a bounded target without the pull of outliers, from people who keep their records.

    Algorithm: AC-SA on Huber's loss: squared for residuals up to `kappa` times the width of
    target_range, linear beyond. (scikit-learn calls its threshold epsilon; that is taken.)

    Choose it for most regression: nobody's gradient exceeds kappa, so the noise is small.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw while it was made (`guarantee_`, `explain()`).
    `target_range`, `feature_range`, `feature_norm` and `radius` are treated as public and never taken from the data, except with
    data_is_public=True.

    References
    ----------
    Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Theorems 4.3 and 4.8.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleHuberRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2)) / 1.5
    >>> model = ShuffleHuberRegressor(epsilon=2.0, target_range=(0, 100)).fit(X, 50 + 30 * X[:, 0])
    >>> bool(abs(model.predict([[0.5, 0.0]])[0] - 65) < 15)
    True
    """

    kappa: float = 0.1

    def _loss(self) -> Loss:
        remedy = "State the residual beyond which the loss is linear, as a fraction of the width of target_range."
        width = self.target_range_[1] - self.target_range_[0]
        return Huber(kappa=real("kappa", self.kappa, above=0, remedy=remedy) * width / self._scale()[1])


@documented("coef_", "intercept_", "target_range_", "feature_norm_", "schedule_", "result_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleQuantileRegressor(LinearRegressor):
    """A quantile of a bounded target, the median by default, from people who keep their records.

    Algorithm: AC-SA on the Moreau envelope of the pinball loss.

    Choose it for medians, and for two quantiles that make a prediction interval (which are two fits, and cost two budgets).

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw while it was made (`guarantee_`, `explain()`).
    `target_range`, `feature_range`, `feature_norm` and `radius` are treated as public and never taken from the data, except with
    data_is_public=True.

    References
    ----------
    Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Theorem 4.7.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleQuantileRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 1))
    >>> model = ShuffleQuantileRegressor(epsilon=2.0, quantile=0.5, target_range=(0, 100)).fit(X, 50 + 30 * X[:, 0])
    >>> bool(abs(model.predict([[0.5]])[0] - 65) < 10)
    True
    """

    quantile: float = 0.5

    def _loss(self) -> Loss:
        return Pinball(quantile=self.quantile)


# Ridge regression: from one round of second moments, or trained in rounds, whichever is better by a public rule.

# The rule, from `python -m benchmarks ridge_choice`: moments where the noise's edge is at most this many mean eigenvalues.
LARGEST_EDGE = {"sequential": 1.0, "full": 0.25}
_MOST_COLUMNS = 128
# In rounds, unless a radius is given: steps of plain rounds are in proportion to it, others only end within it.
_RADIUS, _WHITENED_RADIUS = 2.0, 50.0
# What rounds alone have: parameters, and their values where nothing is asked of them.
_OF_ROUNDS = {
    "rounds": None,
    "clip": None,
    "curvature": None,
    "max_inflation": None,
    "rule": "practical",
    "lots": "auto",
    "callbacks": (),
}


@dataclass(frozen=True)
class _LongMoments(Moments):
    """Second moments of rows that are up to `length` long, as the problems of rounds have them: of the rows divided by it."""

    length: float = 1.0

    def _records(self, X: Any, y: Any) -> tuple[Floats, Floats]:
        return super()._records(X if self.length == 1 else X * (1 / self.length), y)


@documented("coef_", "intercept_", "target_range_", "feature_norm_", "method_", "plan_", "estimate_", "schedule_", "result_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleRidge(LinearRegressor):
    """The mean of a bounded target, by least squares, from people who keep their records.

    Algorithm: the minimum over weights of at most `radius` of the mean over users of (prediction - target)^2 / 2 + (l2 / 2)
    |weights|^2, rows and target scaled to norm 1 and [-1, 1]; scikit-learn's Ridge(alpha) on such rows is l2 = alpha / users.
    Either everybody sends second moments once, and the noisy equations are solved with eigenvalues raised to the edge of the noise;
    or it is trained in rounds. method="auto" takes rounds that begin with second moments and descend on whitened rows
    (rule="whitened") wherever it can: sequential, with secret lots, without l2, for at most 600 columns. Otherwise, it takes one
    round of moments for at most 128 columns with the constant, where the edge of their noise is at most 1 (with
    interactivity="full" 1/4) of the mean eigenvalue that rows of norm 1 can have, and AC-SA in rounds elsewhere, and where
    something is asked for that only rounds have. All of that follows from public facts, and no data is touched.

    Choose it where the mean is wanted; where coefficients are to have standard errors, ShuffleLinearRegression; where targets do
    not fill their range, ShuffleHuberRegressor, which needs less noise.

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw while it was made (`guarantee_`, `explain()`).
    `target_range`, `feature_range`, `feature_norm` and `radius` are treated as public and never taken from the data, except with
    data_is_public=True.

    References
    ----------
    Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Theorems 4.3 and 4.8.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleRidge
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(20_000, 2)) / 1.5
    >>> model = ShuffleRidge(epsilon=2.0, target_range=(0, 100)).fit(X, 50 + 30 * X[:, 0])
    >>> model.method_, bool(abs(model.predict([[0.5, 0.0]])[0] - 65) < 5)
    ('rounds', True)
    """

    radius: float | None = None

    def _loss(self) -> Loss:
        return Squared(target_bound=1.0)

    def method_for(self, users: int, features: int) -> str:
        """Return which way a fit would take, by public facts alone; no data is touched.

        Parameters
        ----------
        users : int
            Number of people.
        features : int
            Columns of X, without the constant.

        Returns
        -------
        str
            "moments" or "rounds".

        Raises
        ------
        ArgumentError
            If a parameter is outside its range, or method="moments" is combined with an option that only rounds have.
        """
        return "rounds" if isinstance(self.plan(users, features), Schedule) else "moments"

    def check_learned(self) -> None:
        """Refuse coefficients that do not follow from what was released, and a plan for vectors of another range."""
        if {"result_", "estimate_"} <= set(vars(self)):
            raise ArgumentError(
                "result_", Found("is given"), "left out beside estimate_: one way was taken", "Do not use this file."
            )
        super().check_learned()

    def _check_plans(self, planned: Any) -> None:
        if isinstance(planned, SumPlan):
            check_once(planned, self._query())
        else:
            super()._check_plans(planned)

    @property
    def method_(self) -> str:
        """Which was taken: "moments" or "rounds"."""
        return "moments" if "estimate_" in vars(self) else "rounds" if self.result_ else ""

    def __getattr__(self, name: str) -> Any:
        if name in ("result_", "schedule_") and "estimate_" in vars(self):
            text = "it was made from one round of moments, of which there are plan_ and estimate_; method='rounds' has result_"
            raise AttributeError(f"this {type(self).__name__} has no result_ and no schedule_: {text}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _plan(self, users: int, *, checkpoint: Any = None, turnout: float | None = None) -> Any:
        plan = self._moments_plan(users, checkpoint=checkpoint, deployed=turnout is not None)
        return super()._plan(users, checkpoint=checkpoint, turnout=turnout) if plan is None else plan

    def _planned(self) -> Any:
        return self.plan_ if "estimate_" in vars(self) else super()._planned()

    def _prepared(self, population: Population, planned: Any, checkpoint: Any) -> AbstractContextManager[Ready]:
        if isinstance(planned, Schedule):
            return super()._prepared(population, planned, checkpoint)
        require_once(checkpoint)
        self.solved_with_ = (real("l2", self.l2, at_least=0, remedy="0 is none."), self.radius)  # whatever is set later
        return one_round(self._query(), population, planned, self.random_state)

    def _warn_of_plan(self, planned: Any, users: int) -> None:
        if isinstance(planned, Schedule):
            super()._warn_of_plan(planned, users)
            return
        ratio = self._edge_ratio(planned, self._query())
        warn_of_few_people(users, self._query().features, self.epsilon)
        if ratio > LARGEST_EDGE[self.interactivity]:
            text = (
                f"the edge of the noise is {ratio:.2g} mean eigenvalues of the rows: in what was measured, method='rounds' is then"
            )
            warn_caller(f"{text} better. The guarantee holds, but the model may say little.", MostlyNoiseWarning)

    def _warn_of_result(self) -> None:
        if "result_" in vars(self):
            super()._warn_of_result()
        elif self.radius is not None and float(np.linalg.norm(self._theta())) >= self._radius() * (1 - 1e-9):
            warn_of_pressing(self._radius())

    def _moments_plan(self, users: int, *, checkpoint: Any = None, deployed: bool = False) -> SumPlan | None:
        """The plan of one round of moments; None if rounds are to be taken. No data is touched."""
        remedy = "'auto' takes one round of moments, or training in rounds, whichever is better."
        algorithms = dict.fromkeys(chain(*METHODS.values()))
        one_of("method", self.method, ("auto", "moments", "rounds", *algorithms), remedy)
        remedy = "'sequential' asks each user once, 'full' asks all users in every round."
        interactivity = one_of("interactivity", self.interactivity, tuple(LARGEST_EDGE), remedy)
        self._problem()  # refuses a radius or l2 that is none
        if self.method not in ("auto", "moments"):
            return None
        of_rounds = self._of_rounds()
        of_rounds |= {} if checkpoint is None else {"checkpoint": os.fspath(checkpoint)}
        of_rounds |= {"population": "a deployed task"} if deployed or self._exclusions else {}
        if self.method == "moments":
            for name, value in of_rounds.items():
                raise ArgumentError(name, value, "left out with method='moments'", "Only rounds have it: use method='rounds'.")
            return plan_once(self, self._query(), users)
        if of_rounds or self._columns() > _MOST_COLUMNS or self._whitens():
            return None
        try:
            plan = plan_once(self, self._query(), users)
        except NoCertificateError:
            return None
        return plan if self._edge_ratio(plan, self._query()) <= LARGEST_EDGE[interactivity] else None

    def _of_rounds(self) -> dict[str, Any]:
        """The parameters that ask for what only rounds have; an empty list of callbacks asks for nothing."""
        given = {name: getattr(self, name) for name in _OF_ROUNDS} | {"callbacks": self.callbacks or ()}
        of_rounds = {name: value for name, value in given.items() if value != _OF_ROUNDS[name]}
        return of_rounds | ({} if self.calibration == "tight" else {"calibration": self.calibration})

    def _columns(self) -> int:
        return self.n_features_in_ + bool(self.constant_)

    def _query(self) -> _LongMoments:
        return _LongMoments(self._columns(), length=math.hypot(1.0, self.constant_))

    @staticmethod
    def _edge_ratio(plan: SumPlan, query: Moments) -> float:
        """The edge of the noise, over the mean eigenvalue of rows of norm 1: their eigenvalues add up to 1."""
        silent = SumEstimate(sum=np.zeros(query.dim), users=plan.users, noise_std=plan.noise_std, guarantee=None)
        return query.decode(silent).edge * query.features

    def _theta(self) -> Floats:
        if "estimate_" not in vars(self):
            return super()._theta()
        length, (l2, radius) = math.hypot(1.0, self.constant_), self.solved_with_
        bound = math.inf if radius is None else radius * length
        return _solved(self._query().decode(self.estimate_), l2 / length**2, bound) / length

    def _radius(self) -> float:
        if self.radius is None:
            return _WHITENED_RADIUS if self._whitens() else _RADIUS
        return super()._radius()

    def _whitens(self) -> bool:
        """Whether rounds begin with second moments (rule R): by public facts alone, regardless of who takes part."""
        asked = (self.rule in ("practical", "whitened"), self.method in ("auto", "rounds"), self.interactivity == "sequential")
        few = self.rounds is not None and self.rounds < LEAST_ROUNDS and self.rule != "whitened"
        usual = not few and self.lots != "open" and self.calibration == "tight" and self._stages and not self.l2
        free = self.rule == "whitened" or (self.clip is None and self.curvature is None and self._columns() <= MOST_COLUMNS)
        return all(asked) and usual and free

    def _algorithm(self) -> str:
        return "auto" if self.method == "rounds" else self.method

    def _asked_how(self) -> tuple[str, str]:
        if "estimate_" in vars(self) or ("result_" not in vars(self) and self.method == "moments"):
            return "one round", "Each user is asked once, for the noisy sum of products of its features and target."
        return super()._asked_how()

    def _meaning(self) -> list[str]:
        if "estimate_" in vars(self):
            ratio = self._edge_ratio(self.plan_, self._query())
            rule = f"the edge of its noise is {ratio:.2g} mean eigenvalues of the rows"
            limit = (
                "" if self.method == "moments" else f", and up to {LARGEST_EDGE[self.interactivity]:g} it was measured to be better"
            )
            made = f"Made from one round of second moments: {rule}{limit}."
            return [f'{made} The option method, set to "rounds", trains by gradients instead.']
        chosen = super()._meaning()
        if self.method != "auto" or (chosen and any(phase.share is not None for phase in self.schedule_.phases)):
            return chosen
        if not chosen:
            return [
                "Either everybody is asked once, for second moments, or training goes in rounds: whichever is better by a public "
                "rule. It needs the number of users, and is decided before anybody is asked."
            ]
        return [f"Trained in rounds: {self._why_rounds()}.", *chosen]

    def _why_rounds(self) -> str:
        """Of a fit that took rounds by itself: by what it promised then, whatever was set since."""
        asked = copy.copy(self)
        asked.set_params(**{name: getattr(self.promise_, name) for name in ("epsilon", "delta", "honest", "neighbours")})
        asked.set_params(interactivity=self.schedule_.interactivity)
        return asked._why_rounds_now()

    def _why_rounds_now(self) -> str:
        if self._columns() > _MOST_COLUMNS:
            return f"moments of {self._columns()} columns are too many, the rule goes up to {_MOST_COLUMNS}"
        try:
            needed = self._moments_plan(self.n_users_) is not None or bool(self._of_rounds())
            ratio = 0.0 if needed else self._edge_ratio(plan_once(self, self._query(), self.n_users_), self._query())
        except NoCertificateError:
            return "no plan of one round of moments can be certified"
        if needed:
            return "an option was given that only rounds have"
        limit = LARGEST_EDGE[self.interactivity]
        return f"the edge of the noise of one round of moments is {ratio:.2g} mean eigenvalues of the rows, above {limit:g}"


def _solved(moments: MomentSums, l2: float, bound: float) -> Floats:
    """Minimise w'Aw / 2 - b'w + l2 |w|^2 / 2 over |w| <= bound, eigenvalues of A raised to the edge of its noise."""
    _, vectors, raised = raised_spectrum(moments.matrix, 2 * moments.edge)
    turned, curvatures = vectors.T @ moments.products[:, 0], raised + l2

    def excess(more: float) -> float:
        return float(np.linalg.norm(turned / (curvatures + more))) - bound

    if excess(0.0) > 0:  # on the sphere: a multiplier of the constraint, at most |b| / bound
        curvatures = curvatures + brentq(excess, 0.0, float(np.linalg.norm(turned)) / bound, xtol=1e-14)
    return np.asarray(vectors @ (turned / curvatures))
