"""What users do to their own records by public facts: declared classes and ranges, columns scaled, long rows cut, a constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..problem import Loss
from ..problem.classification import Weighted
from ..problem.problem import clip_rows, row_norms
from ..validation import ArgumentError, RecordError, known_place, real
from ._base import PrivateEstimator, checked_rows
from .warnings import warn_of_undeclared_rows

Floats = NDArray[np.float64]

# Labels of declared classes, which are public facts: never counted in the data.

_HOW = "Pass all labels that may occur, for example classes=[0, 1], whether or not they occur in this data."


@dataclass(kw_only=True, eq=False, repr=False)
class DeclaredClasses(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """An estimator of labels that its parameter `classes` lists."""

    classes: Sequence[Any] | NDArray[Any] | None = None

    def _declare_classes(self, y: NDArray[Any] | None) -> None:
        """Set `classes_`: as declared, or read off the labels where the data is public."""
        if y is not None and y.dtype.kind not in "biu":  # whole numbers are classes, whichever they are
            check_classification_targets(y)
        declared = np.asarray(self._read_off("classes", self.classes, _HOW, None if y is None else lambda: np.unique(y)))
        self.classes_ = np.unique(declared)
        if declared.ndim != 1 or len(self.classes_) != declared.size or len(self.classes_) < 2:
            raise ArgumentError("classes", declared.tolist(), "a list of at least two classes, each once", _HOW)
        if len(self.classes_) > 2 and not self.__sklearn_tags__().classifier_tags.multi_class:
            remedy = "Only binary classification is supported. Use ShuffleLogisticRegression for more classes."
            raise ArgumentError("classes", declared.tolist(), "two classes here", remedy)

    def _speaks_for(self) -> list[str]:
        if (classes := getattr(self, "classes_", None)) is None:
            return []
        names = [str(name) for name in classes]
        some = ", ".join(names[:12]) + ("" if len(names) <= 12 else f" and {len(names) - 12} more")
        rule = f"A positive coefficient speaks for {names[1]}, a negative one for {names[0]}"
        if len(names) > 2:
            rule = "Each class has its own coefficients, and a positive one speaks for it"
        return [f"Classes are sorted: {some}. {rule}."]

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
            raise RecordError(
                "y",
                odd,
                f"one of the declared classes {self.classes_.tolist()}",
                "Declare every class; nobody was asked.",
            )
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


def range_of(y: NDArray[Any]) -> list[tuple[float, float]]:
    """Smallest and largest of every target; a constant one gets some width."""
    columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    return [
        (float(low), float(max(high, low + 1e-9 * max(1.0, abs(low)))))
        for low, high in zip(columns.min(0), columns.max(0), strict=True)
    ]


# What every user does to its own row by public facts: columns from their ranges to [-1, 1], long rows scaled down, a constant.

RANGES = "Pass (low, high) for all features or one pair per feature; values outside are clipped to it."


def checked_ranges_of_features(declared: Any, features: int) -> Floats:
    """Return one pair per feature, or refuse what is none."""
    try:
        given = np.asarray(declared, dtype=np.float64)
        # a list of one pair is not one pair for all: columns would be scaled by a range that was meant for another one
        ranges = np.zeros((1, 2)) if given.ndim == 2 and len(given) != features else np.broadcast_to(given, (features, 2))
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


_NO_RANGE: Floats | None = None  # as in models of files that know of none
_NORM = "Pass a length that you can justify without having seen the data; longer rows are scaled down to it."


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRows(PrivateEstimator):
    """A linear model of rows that are scaled by public ranges and cut to a public norm, with a constant for the intercept."""

    feature_norm: float | Literal["auto"] | None = "auto"
    feature_range: ArrayLike | None = None
    fit_intercept: bool = True
    intercept_scaling: float = 1.0

    feature_range_ = _NO_RANGE

    def _warn_of_undeclared(self) -> None:
        warn_of_undeclared_rows(self.feature_norm, self.feature_range)

    def _declare_rows(self, X: Any) -> None:
        """Set `constant_`, `feature_range_` and `feature_norm_`: as declared, or the norm read off the scaled rows."""
        remedy = "It is the constant beside a row of norm 1; 1 is usual. Use fit_intercept=False for no intercept."
        scaling = real("intercept_scaling", self.intercept_scaling, above=0, at_most=1e6, remedy=remedy)
        self.constant_ = scaling if self.fit_intercept else 0.0
        ranges = self.feature_range
        self.feature_range_ = None if ranges is None else checked_ranges_of_features(ranges, self.n_features_in_)
        norm = self.feature_norm
        if isinstance(norm, str) and norm == "auto":  # columns in [-1, 1] make no longer rows than that
            norm = 1.0 if ranges is None else math.sqrt(self.n_features_in_)
        read = None if X is None else lambda: float(max(row_norms(self._scaled(X.astype(np.float64))).max(), 1e-12))
        norm = self._read_off("feature_norm", norm, _NORM, read)
        self.feature_norm_ = real("feature_norm", norm, above=1e-100, at_most=1e100, remedy=_NORM)

    def _scaled(self, X: Any) -> Any:
        """Rows with every column from its declared range to [-1, 1]; as they come where none is declared."""
        return X if self.feature_range_ is None else scaled_columns(X, self.feature_range_, bool(self.constant_))

    def _taken(self, X: Any) -> Any:
        """Rows as they were in training, except for the constant and a factor: scaled by the ranges, then down to the norm."""
        rows = checked_rows(self, X, dtype=(np.float64, np.float32), reset=False)
        return clip_rows(self._scaled(rows), self.feature_norm_)

    def _centres(self) -> tuple[Floats, Floats]:
        """Middles and half-widths by which columns were scaled; 0 and 1 where no range is declared."""
        if self.feature_range_ is None:
            return np.zeros(self.n_features_in_), np.ones(self.n_features_in_)
        return centres(self.feature_range_, bool(self.constant_))

    def _in_columns_units(self, weights: Floats, intercepts: Floats) -> tuple[Floats, Floats]:
        """Weights and intercepts of scaled rows as those of rows as they come."""
        if self.feature_range_ is None:
            return weights, intercepts
        middle, half = self._centres()
        weights = weights / half
        return weights, intercepts - weights @ middle

    def _scaled_weights(self) -> tuple[Floats, Any]:
        """What `_taken` rows are multiplied by, and what is added: coef_ and intercept_ where no range is declared."""
        if self.feature_range_ is None:
            return self.coef_, self.intercept_
        middle, half = self._centres()
        return self.coef_ * half, self.intercept_ + self.coef_ @ middle

    def _scores(self, X: Any) -> Floats:
        """<coef_, x> + intercept_ for rows within feature_range and scaled down to feature_norm, as they were in training."""
        check_is_fitted(self)
        coef, intercept = self._scaled_weights()
        return np.asarray(self._taken(X) @ coef.T + intercept)

    def _learned(self) -> tuple[NDArray[np.float64], ...]:
        return tuple(np.asarray(part, dtype=np.float64) for part in self._scaled_weights())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# Public weights of classes.

_REMEDY = (
    "Weight a class by public knowledge: class_weight={'ill': 10} if about one person in eleven is ill. "
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
