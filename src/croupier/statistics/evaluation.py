"""How good a model is on people who were not trained on, in one private round: the queries, and what is read from their sums.

A classifier's cells are (score bin, label) for two classes, (predicted, true) for more. A user sends its cell, for two classes by a
square root of prefix sums, and whether the prediction is right. Both are linear in the counts of cells, and the number of users is
known, so least squares gives the counts, and every score with the covariance of its noise. docs/statistics.md has the ranges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..protocol import SumEstimate
from ..validation import ArgumentError, RecordError
from .prefix_sums import known_total, unit_root
from .query import finite, require_numbers
from .scores import CellCounts, Errors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Weight of "right or wrong" in a classifier's vector: accuracy is what is looked at first.
RIGHT = math.sqrt(0.2)
BINS = 40
# Weights of a regressor's six numbers: the squared error is what is looked at first, and the smallest.
WEIGHTS = np.array([0.5, 1.0, 0.25, 0.5, 0.5, 0.3])


@runtime_checkable
class RangedModel(Protocol):
    """A regressor that declares the range of its target: (low, high), or one pair per target."""

    target_range_: Any


@runtime_checkable
class QuantileModel(Protocol):
    """A regressor that predicts a quantile of the target."""

    quantile: float


@dataclass(frozen=True)
class Classification:
    """The cells of a classifier's answers, and whether they are right.

    The vector is (sqrt(1 - w^2) v, w r), v a vector of length at most 1 without negative entries for the cell, r = +-1 for right or
    wrong: norm 1, and two are at most sqrt(2 (1 - w^2) + 4 w^2) apart. An answer that is not finite is sent as zero.
    """

    model: Any
    bins: int = BINS

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The model's classes."""
        return np.asarray(self.model.classes_)

    @property
    def binary(self) -> bool:
        """Whether there are two classes, so that answers have a score."""
        return len(self.classes) == 2

    @property
    def probabilities(self) -> bool:
        """Whether the score is a probability."""
        return hasattr(self.model, "predict_proba")

    @cached_property
    def edges(self) -> Floats:
        """Of score bins in [0, 1]: finer at the ends, one edge at 1/2."""
        edges = np.sin(np.linspace(0, np.pi / 2, self.bins + 1)) ** 2
        edges[self.bins // 2] = 0.5  # as computed it is less, and a score of 1/2, which predicts the first class, lay above it
        return np.asarray(edges)

    @property
    def cells(self) -> int:
        return 2 * self.bins if self.binary else len(self.classes) ** 2

    @cached_property
    def right(self) -> Floats:
        """+1 for the cells of right answers, -1 for the others. Cells of label 0 come first, then of label 1."""
        if self.binary:
            above = np.arange(self.bins) >= self.bins // 2
            return np.concatenate([np.where(above, -1.0, 1.0), np.where(above, 1.0, -1.0)])
        return np.where(np.eye(len(self.classes), dtype=bool).ravel(), 1.0, -1.0)

    @cached_property
    def measured(self) -> Floats:
        """What is sent of each cell, in columns: linear in the counts of cells."""
        block = unit_root(self.bins) if self.binary else np.eye(self.cells)
        parts = np.kron(np.eye(2), block) if self.binary else block
        return np.vstack([math.sqrt(1 - RIGHT**2) * parts, RIGHT * self.right])

    norm = 1.0
    diameter = math.sqrt(2 * (1 - RIGHT**2) + 4 * RIGHT**2)

    @property
    def dim(self) -> int:
        return self.cells + 1

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse labels that the model does not know, and rows that it cannot score."""
        if y is None:
            raise ArgumentError("data", "X alone", "(X, y)", "Pass the true labels.")
        known = np.isin(np.asarray(y), self.classes)
        if not known.all():
            odd = np.asarray(y)[~known][:1].tolist()[0]
            raise RecordError(
                "y", odd, f"one of the model's classes {self.classes.tolist()}", "Drop such people; nobody was asked."
            )
        _require_scores((self.cell_of(X, y) >= 0).all())

    def __call__(self, X: Any, y: Any) -> Floats:
        cells = self.cell_of(X, y)
        vectors = self.measured.T[np.maximum(cells, 0)]
        return finite(np.where((cells >= 0)[:, np.newaxis], vectors, 0.0))

    def cell_of(self, X: Any, y: Any) -> Integers:
        """The cell of every record; -1 where the label is not known or the score is not a number."""
        label = np.searchsorted(self.classes, y)
        label = np.where(np.isin(y, self.classes), np.minimum(label, len(self.classes) - 1), -1)
        if not self.binary:
            said = np.asarray(self.model.predict(X))
            answer = np.minimum(np.searchsorted(self.classes, said), len(self.classes) - 1)
            return np.where((label < 0) | (self.classes[answer] != said), -1, answer * len(self.classes) + label)
        score = self.model.predict_proba(X)[:, 1] if self.probabilities else expit(self.model.decision_function(X))
        place = np.clip(np.searchsorted(self.edges, score, side="left") - 1, 0, self.bins - 1)
        return np.where((label < 0) | np.isnan(score), -1, label * self.bins + place)

    def decode(self, estimate: SumEstimate) -> CellCounts:
        """Counts of cells by least squares, with the known number of people imposed, and the covariance of their noise."""
        counts, covariance = known_total(self.measured, estimate.sum, estimate.noise_std, estimate.users)
        return CellCounts(
            counts=counts,
            covariance=covariance,
            users=estimate.users,
            right=self.right,
            classes=tuple(self.classes.tolist()),
            edges=self.edges if self.binary else None,
            probabilities=self.binary and self.probabilities,
        )


@dataclass(frozen=True)
class Regression:
    """A regressor's errors: |r|, r^2, r^4, y, y^2 and whether y is at most the prediction, each in [0, 1] times its weight.

    r is the error divided by the width of the target's range, predictions and targets clipped to it. Two vectors differ by at most
    the weight in each coordinate: norm and diameter are the length of the weights.
    """

    model: Any
    low: float
    high: float

    dim = len(WEIGHTS)
    norm = float(np.linalg.norm(WEIGHTS))
    diameter = norm

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records without targets."""
        if y is None:
            raise ArgumentError("data", "X alone", "(X, y)", "Pass the true targets.")
        require_numbers(y)
        _require_scores(not np.isnan(np.asarray(self.model.predict(X), dtype=np.float64)).any())

    def __call__(self, X: Any, y: Any) -> Floats:
        width = self.high - self.low
        target = (np.clip(np.asarray(y, dtype=np.float64), self.low, self.high) - self.low) / width
        answer = (np.clip(np.asarray(self.model.predict(X), dtype=np.float64), self.low, self.high) - self.low) / width
        error = np.abs(target - answer)
        numbers = [error, error**2, error**4, target, target**2, (target <= answer).astype(np.float64)]
        known = ~(np.isnan(target) | np.isnan(answer))
        return finite(np.column_stack(numbers) * WEIGHTS) * known[:, np.newaxis]

    def decode(self, estimate: SumEstimate) -> Errors:
        """Mean errors in the target's unit."""
        quantile = self.model.quantile if isinstance(self.model, QuantileModel) else None
        means, noise = estimate.mean / WEIGHTS, estimate.mean_noise_std / WEIGHTS
        return Errors(means, noise, estimate.users, self.high - self.low, quantile)


def _require_scores(all_there: Any) -> None:
    """Refuse a model that answers some rows with what is no score: counted as nothing, they would bias the others' scores."""
    if not all_there:
        remedy = "Mend the model, or drop rows that it cannot score; nobody was asked."
        raise RecordError("model", "no number for some row", "one that scores every row", remedy)
