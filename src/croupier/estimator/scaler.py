"""Standardising with means and variances that were learned privately."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array, issparse
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..population import Population, Query
from ..privacy import SumPlan, plan_sum
from ..privacy.plan import MOST_COORDINATES
from ..problem.problem import clip_rows
from ..protocol import SumEstimate
from ..validation import ArgumentError, Found, finite_rows, real, zeroed
from ._base import PrivateEstimator, checked_rows, validated
from ._parameters import documented
from ._rounds import Ready, one_round, require_once
from ._rows import RANGES, Floats, centres, checked_ranges_of_features
from .files import require_range

# A variance this many of its noise's standard deviations from 0 can be told from that of a constant column.
_TELLING = 3.0
# Squared diameter of the curve (u, 2 u^2 - 1) over [-1, 1], (71 + 8 sqrt 2) / 16 (docs/statistics-theory.md), and its squared norm.
_CURVE_DIAMETER, _CURVE_NORM = (71 + 8 * math.sqrt(2)) / 16, 2.0


@dataclass(frozen=True, eq=False)
class ColumnMoments(Query):
    """(u, 2 u^2 - 1) per feature, u the feature scaled from its declared range to [-1, 1]; zero for a row that is not finite.

    `middle`, `half` (features,): Middle and half the width of the declared ranges. `blanks`: Whether rows that are not finite are
    its own, and count as zeros. `dim`: Coordinates of a vector. `norm`: Bound on the l2 norm of a vector: u^2 + (2 u^2 - 1)^2 is at
    most 2 for each feature. `diameter`: Bound on the l2 distance of two vectors (docs/statistics-theory.md), for any records.
    """

    middle: Floats
    half: Floats
    blanks: bool = False

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse rows of another length than there are ranges."""
        if X.shape[1] != len(self.middle):
            raise ArgumentError("X.shape", X.shape, f"(users, {len(self.middle)})", "State how many features there are.")

    @property
    def dim(self) -> int:
        """Two for each feature."""
        return 2 * len(self.middle)

    @property
    def norm(self) -> float:
        """The root of 2 for each feature."""
        return math.sqrt(_CURVE_NORM * len(self.middle))

    @property
    def diameter(self) -> float:
        """0.802 of twice the norm."""
        return math.sqrt(_CURVE_DIAMETER * len(self.middle))

    def __call__(self, X: Any, y: Any) -> Floats:
        """Give one vector per row."""
        valid = finite_rows(X)  # where blanks are refused, all are
        u = np.clip((zeroed(X, valid) - self.middle) / self.half, -1, 1)
        return np.asarray(zeroed(np.hstack([u, 2 * u**2 - 1]), valid))

    def decode(self, estimate: SumEstimate) -> tuple[Floats, Floats]:
        """Means and variances in the columns' units, a variance at least what can be told from 0."""
        mean, doubled = np.split(np.clip(estimate.mean, -1, 1), 2)
        floor = _TELLING * estimate.mean_noise_std * np.sqrt(4 * mean**2 + 0.25)  # of (1 + doubled) / 2 - mean^2, to first order
        return self.middle + self.half * mean, self.half**2 * np.maximum((1 + doubled) / 2 - mean**2, floor)


@documented("mean_", "var_", "scale_", "plan_", "estimate_")
@dataclass(kw_only=True, eq=False, repr=False)
class ShuffleScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Features of mean 0 and variance 1, from people who keep their records.

    Algorithm: one private vector sum of (u, 2 u^2 - 1) per feature, u the feature scaled from `feature_range` to [-1, 1], with
    noise for how far two such vectors can be apart; a variance that cannot be told from 0 under the noise is raised to where it
    could, so a constant column becomes small numbers, not large ones.

    Choose it where units differ and no published figures say by how much; where they do, a FunctionTransformer costs nothing.

    Guarantee
    ---------
    (epsilon, delta) for each user, for means and variances. `feature_range` is treated as public and never taken from the data,
    except with data_is_public=True. It adds to the guarantee of the model that follows: `total_guarantee(pipeline)`.

    References
    ----------
    Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization", ICLR 2022, Theorem 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleScaler
    >>> X = np.random.default_rng(0).normal(loc=[40, 5], scale=[10, 1], size=(5000, 2))
    >>> scaler = ShuffleScaler(epsilon=0.5, feature_range=[(0, 100), (0, 10)]).fit(X)
    >>> bool(np.abs(scaler.transform(X).mean(axis=0)).max() < 0.3), scaler.guarantee_.delta(0.5) <= 1e-6
    (True, True)
    """

    feature_range: ArrayLike | None = None
    with_mean: bool = True
    with_std: bool = True
    norm: float | None = None

    def fit(self, X: Any, y: Any = None, groups: Any = None, **refused: Any) -> Self:
        """Learn means and variances of users' rows privately, in one round.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            The rows.
        y : object, optional
            Ignored; pipelines pass it.
        groups : array-like of shape (rows,), optional
            The user of each row: rows with the same entry belong to one user. Default: every row is a user.
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
        return super().fit(X, y, groups, **refused)

    def _validated(self, X: Any, y: Any) -> tuple[Any, Any]:
        return self._checked(X, reset=True), None

    def _sent(self, X: Any, y: Any) -> tuple[Any, None]:
        return X, None  # its query knows ranges, and what is blank

    def _declare_target(self, y: Any) -> None:
        """There is none."""

    def _declare_rows(self, X: Any) -> None:
        declared = self._read_off("feature_range", self.feature_range, RANGES, None if X is None else lambda: _range_of(X))
        self.feature_range_ = checked_ranges_of_features(declared, self.n_features_in_)

    def _rows(self, X: Any) -> Any:
        return X

    def _targets(self, y: Any) -> Any:
        return y

    def _query(self) -> ColumnMoments:
        return ColumnMoments(*centres(self.feature_range_), blanks=self.invalid == "blank")

    def _plan(self, users: int, *, checkpoint: Any = None, turnout: float | None = None) -> SumPlan:
        moments = self._query()
        return plan_sum(
            epsilon=self.epsilon,
            delta=self._delta(users),
            users=users,
            dim=moments.dim,
            norm=moments.norm,
            diameter=self._diameter(moments),
            honest=self.honest,
            neighbours=self.neighbours,
            calibration=self.calibration,
        )

    def _prepared(self, population: Population, planned: Any, checkpoint: Any) -> AbstractContextManager[Ready]:
        require_once(checkpoint)
        return one_round(self._query(), population, planned, self.random_state)

    def _set_coefficients(self) -> None:
        self.mean_, self.var_ = self._query().decode(self.estimate_)
        self.scale_ = np.sqrt(self.var_)

    def _learned(self) -> tuple[Floats, ...]:
        middle, half = centres(self.feature_range_)
        return (self.mean_ - middle) / half, self.var_ / half**2, self.scale_ / half

    def _check_plans(self, planned: Any) -> None:
        asked = self._query()
        require_range(planned, asked.dim, asked.norm, self._diameter(asked))

    def transform(self, X: Any) -> Any:
        """Standardise rows by the means and variances that were learned.

        Parameters
        ----------
        X : array-like or sparse array of shape (rows, features)
            The rows.

        Returns
        -------
        ndarray or sparse array
            (x - mean_) / scale_, longer rows scaled down to `norm` where that is given.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        factors = 1 / self.scale_ if self.with_std else np.ones(self.n_features_in_)
        scaled = csr_array(X @ diags_array(factors)) if issparse(X) else (X - (self.mean_ if self.with_mean else 0)) * factors
        return (
            scaled
            if self.norm is None
            else clip_rows(scaled, real("norm", self.norm, above=0, remedy="Leave it out for no limit."))
        )

    def _checked(self, X: Any, *, reset: bool) -> Any:
        if issparse(X) and self.with_mean:
            remedy = "Subtracting a mean makes zeros dense: use with_mean=False."
            raise ArgumentError("X", Found("is sparse"), "dense where with_mean=True", remedy)
        options: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": 2 if reset else 1, "reset": reset}
        if self.invalid == "blank":  # gaps go on to the next step, which counts their rows as blank
            numbers = validated(self, X, **options)
            finite = finite_rows(numbers)
            return numbers if finite.all() or issparse(numbers) else np.where(finite[:, np.newaxis], numbers, np.nan)
        return checked_rows(self, X, **options)

    def _diameter(self, moments: ColumnMoments) -> float | None:
        """The diameter that the plan counts on, where a proof knows what to do with it; None for twice the norm."""
        return moments.diameter if self.calibration == "tight" and moments.dim <= MOST_COORDINATES else None

    def _asked_how(self) -> tuple[str, str]:
        return "one round", "Each user is asked once, for the noisy sum of its features and their squares."

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.with_mean
        return tags


def _range_of(X: Any) -> NDArray[np.float64]:
    low, high = (
        np.asarray(end.toarray() if issparse(end) else end, dtype=np.float64).ravel() for end in (X.min(axis=0), X.max(axis=0))
    )
    return np.column_stack([low, np.where(high > low, high, low + 1)])
