"""Regressors trained in rounds: Huber's loss and quantiles, for targets in a declared range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from ..invalid import numbers_or_nan
from ..problem import Huber, Loss, Pinball
from ..validation import ArgumentError, real
from .linear import LinearModel
from .parameters import documented
from .private import Floats
from .target_ranges import require_numbers


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """Targets clipped to a declared range and scaled to [-1, 1] for training; predictions in the target's own units."""

    target_range: tuple[float, float] | None = None
    radius: float | None = 2.0

    _numeric_target = True

    def _declare_target(self, y: NDArray[Any] | None) -> None:
        how = "Pass (low, high) that you can defend without having seen the data; targets outside are clipped to it."
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

    def _scale(self, intercept: bool | None = None) -> tuple[float, float]:
        """Middle and half-width of the range; without an intercept, about 0. As the parameters say, unless it is given."""
        low, high = self.target_range_
        centred = self.fit_intercept if intercept is None else intercept
        return ((low + high) / 2, (high - low) / 2) if centred else (0.0, max(abs(low), abs(high)))

    def _set_weights(self, weights: Floats, intercepts: Floats) -> None:
        middle, half = self._scale(bool(self.constant_))  # of the fit, whatever was set since
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
    `target_range`, `feature_range`, `feature_norm` and `radius` are taken as public and never read off the data, but with
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
        remedy = "Give the residual from which on the loss is linear, as a fraction of the width of target_range."
        width = self.target_range_[1] - self.target_range_[0]
        return Huber(kappa=real("kappa", self.kappa, above=0, remedy=remedy) * width / self._scale()[1])


@documented("coef_", "intercept_", "target_range_", "feature_norm_", "schedule_", "result_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleQuantileRegressor(LinearRegressor):
    """A quantile of a bounded target, the median unless told otherwise, from people who keep their records.

    Algorithm: AC-SA on the Moreau envelope of the pinball loss.

    Choose it for medians, and for two quantiles that make a prediction interval (which are two fits, and cost two budgets).

    Guarantee
    ---------
    (epsilon, delta) for each user, for the model and everything the analyzer saw while it was made (`guarantee_`, `explain()`).
    `target_range`, `feature_range`, `feature_norm` and `radius` are taken as public and never read off the data, but with
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
