"""How good a model is on people who were not trained on, in one private round: the queries, and what is read from their sums.

A classifier's cells are (score bin, label) for two classes, (predicted, true) for more. A user sends its cell, for two classes by a
square root of prefix sums, and whether the prediction is right. Both are linear in the counts of cells, and the number of users is
known, so least squares gives the counts, and every score with the covariance of its noise. Of more than two classes with
probabilities it also sends what `one_vs_rest` says. docs/statistics.md has the ranges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..protocol import SumEstimate
from ..validation import ArgumentError, Found, RecordError
from .one_vs_rest import LOSS, RANKS, RIGHT_OF_SEVERAL, SQUARE, OneVsRest, class_vectors
from .prefix_sums import scored_total, unit_root
from .quantile_bins import BINS as QUANTILE_BINS
from .quantile_bins import WEIGHT as CELL
from .quantile_bins import QuantileBins, cell_vectors
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

    The vector is (sqrt(1 - w^2) v, w r), v a vector of length at most 1 without negative entries, r = +-1 for right or wrong: norm
    1, and two are at most sqrt(2 (1 - w^2) + 4 w^2) apart. v is the cell; of more than two classes with probabilities the cell and
    `class_vectors`, which have their shares of its squared length. An answer that is not finite is sent as zero.
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

    @property
    def one_vs_rest(self) -> bool:
        """Whether there are more than two classes, and probabilities of them."""
        return not self.binary and self.probabilities

    @property
    def weight(self) -> float:
        """Of "right or wrong", w."""
        return RIGHT_OF_SEVERAL if self.one_vs_rest else RIGHT

    @cached_property
    def edges(self) -> Floats:
        """Of score bins in [0, 1]: finer at the ends, one edge where the model decides."""
        edges = np.sin(np.linspace(0, np.pi / 2, self.bins + 1)) ** 2
        edges[self.bins // 2] = 0.5  # as computed it is less, and a score of 1/2, which predicts the first class, lay above it
        if self.threshold != 0.5:  # as many bins on either side of where the model decides
            middle = self.bins // 2
            edges[: middle + 1] *= 2 * self.threshold
            edges[middle:] = 1 - 2 * (1 - self.threshold) * (1 - edges[middle:])
            edges[middle] = self.threshold
        return np.asarray(edges)

    @cached_property
    def threshold(self) -> float:
        """The score above which the model says the second class: 1/2, or one that it states as scikit-learn's do."""
        for name in ("best_threshold_", "threshold"):
            stated = getattr(self.model, name, None)
            if isinstance(stated, Real) and not isinstance(stated, bool):
                score = float(stated) if self.probabilities else float(expit(float(stated)))
                return score if 0.01 < score < 0.99 else 0.5
        return 0.5

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
        others = RANKS + LOSS + SQUARE if self.one_vs_rest else 0.0
        return np.vstack([math.sqrt(1 - self.weight**2 - others) * parts, self.weight * self.right])

    norm = 1.0

    @property
    def diameter(self) -> float:
        return math.sqrt(2 * (1 - self.weight**2) + 4 * self.weight**2)

    @property
    def dim(self) -> int:
        return self.cells + 1 + (2 * self.bins * len(self.classes) + 2 if self.one_vs_rest else 0)

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse labels that the model does not know, and rows that it cannot score."""
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y)", "Pass the true labels.")
        known = np.isin(np.asarray(y), self.classes)
        if not known.all():
            odd = np.asarray(y)[~known][:1].tolist()[0]
            raise RecordError(
                "y", odd, f"one of the model's classes {self.classes.tolist()}", "Drop such people; nobody was asked."
            )
        _require_scores((self.cell_of(X, y) >= 0).all())
        if self.one_vs_rest:
            _require_scores(not np.isnan(self._class_probabilities(X)).any())

    def __call__(self, X: Any, y: Any) -> Floats:
        cells = self.cell_of(X, y)
        vectors = self.measured.T[np.maximum(cells, 0)]
        if self.one_vs_rest:
            probabilities = self._class_probabilities(X)
            cells = np.where(np.isnan(probabilities).any(axis=1), -1, cells)
            label = np.maximum(cells, 0) % len(self.classes)
            vectors = np.hstack([vectors, class_vectors(probabilities, label, self.edges)])
        return finite(np.where((cells >= 0)[:, np.newaxis], vectors, 0.0))

    def cell_of(self, X: Any, y: Any) -> Integers:
        """The cell of every record; -1 where the label is not known or the score is not a number."""
        label = np.where(np.isin(y, self.classes), self._places(y), -1)
        if not self.binary:
            said = _one_a_row("predict", self.model.predict(X), len(label))
            answer = self._places(said)
            return np.where((label < 0) | (self.classes[answer] != said), -1, answer * len(self.classes) + label)
        score = self._class_probabilities(X)[:, 1] if self.probabilities else expit(self._margins(X))
        place = np.clip(np.searchsorted(self.edges, score, side="left") - 1, 0, self.bins - 1)
        # on the side of what the model says: it may decide elsewhere than where its scores are alike
        half, said = self.bins // 2, _one_a_row("predict", self.model.predict(X), len(label)) == self.classes[1]
        place = np.where(said, np.maximum(place, half), np.minimum(place, half - 1))
        return np.where((label < 0) | np.isnan(score), -1, label * self.bins + place)

    def _class_probabilities(self, X: Any) -> Floats:
        """One column per class."""
        found, shape = _numbers("predict_proba", self.model.predict_proba(X)), (np.shape(X)[0], len(self.classes))
        if found.shape != shape:
            _refuse_answers("predict_proba", f"an array of shape {found.shape}", f"{shape}: a row per record, a column per class")
        return found

    def _margins(self, X: Any) -> Floats:
        return _one_a_row("decision_function", _numbers("decision_function", self.model.decision_function(X)), np.shape(X)[0])

    def _places(self, labels: Any) -> Integers:
        """Where labels stand among the classes, in whatever order the model has them; any place for others."""
        order = np.argsort(self.classes)
        found = np.searchsorted(self.classes, labels, sorter=order)
        return np.asarray(order[np.minimum(found, len(order) - 1)])

    def decode(self, estimate: SumEstimate) -> CellCounts:
        """Counts of cells by least squares, with the known number of people imposed, and the covariance of their noise.

        Of devices some may have sent zero, having no score: where that is beyond doubt, only the others are counted.
        """
        first, rest = np.split(np.asarray(estimate.sum), [self.cells + 1])
        counts, covariance, scored = scored_total(self.measured, first, estimate.noise_std, estimate.users)
        classes = tuple(self.classes.tolist())
        return CellCounts(
            counts=counts,
            covariance=covariance,
            users=scored,
            right=self.right,
            classes=classes,
            edges=self.edges if self.binary else None,
            probabilities=self.binary and self.probabilities,
            one_vs_rest=OneVsRest.read(rest, estimate.noise_std, scored, classes, self.bins) if self.one_vs_rest else None,
        )


@dataclass(frozen=True)
class Regression:
    """A regressor's errors: |r|, r^2, r^4, y, y^2 and whether y is at most the prediction, each in [0, 1] times its weight.

    r is the error divided by the width of the target's range, predictions and targets clipped to it. Two vectors differ by at most
    the weight in each coordinate: norm and diameter are the length of the weights. Of a quantile regressor it also sends the
    `cell_vectors` of weight c: they add c^2 to the squared norm, and 2 c^2 to the squared diameter.
    """

    model: Any
    low: float
    high: float

    @cached_property
    def quantile(self) -> float | None:
        """The quantile that the model predicts; None where it predicts something else."""
        declared = self.model.quantile if isinstance(self.model, QuantileModel) else None
        return float(declared) if isinstance(declared, Real) and 0 < float(declared) < 1 else None

    @property
    def dim(self) -> int:
        return len(WEIGHTS) + (0 if self.quantile is None else 2 * QUANTILE_BINS)

    @property
    def norm(self) -> float:
        return math.hypot(*WEIGHTS, 0.0 if self.quantile is None else CELL)

    @property
    def diameter(self) -> float:
        return math.hypot(*WEIGHTS, 0.0 if self.quantile is None else math.sqrt(2) * CELL)

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records without targets."""
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y)", "Pass the true targets.")
        require_numbers(y)
        _require_scores(not np.isnan(self._answers(X)).any())

    def __call__(self, X: Any, y: Any) -> Floats:
        width = self.high - self.low
        target = (np.clip(np.asarray(y, dtype=np.float64), self.low, self.high) - self.low) / width
        answer = (np.clip(self._answers(X), self.low, self.high) - self.low) / width
        error = np.abs(target - answer)
        below = target <= answer
        vectors = np.column_stack([error, error**2, error**4, target, target**2, below.astype(np.float64)]) * WEIGHTS
        if self.quantile is not None:
            vectors = np.hstack([vectors, cell_vectors(answer, below)])
        known = ~(np.isnan(target) | np.isnan(answer))
        return finite(vectors) * known[:, np.newaxis]

    def _answers(self, X: Any) -> Floats:
        return _one_a_row("predict", _numbers("predict", self.model.predict(X)), np.shape(X)[0])

    def decode(self, estimate: SumEstimate) -> Errors:
        """Mean errors in the target's unit; of a quantile regressor also its calibration."""
        numbers, bins = len(WEIGHTS), None
        if self.quantile is not None:
            sums, ends = np.asarray(estimate.sum)[numbers - 1 :], (self.low, self.high)
            bins = QuantileBins.read(sums, WEIGHTS[-1], estimate.noise_std, estimate.users, self.quantile, ends)
        means, noise = estimate.mean[:numbers] / WEIGHTS, estimate.mean_noise_std / WEIGHTS
        return Errors(means, noise, estimate.users, self.high - self.low, bins)


def _numbers(method: str, found: Any) -> Floats:
    """What a model answers, as numbers."""
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        _refuse_answers(method, "something that is no number", "numbers")


def _one_a_row(method: str, found: Any, rows: int) -> NDArray[Any]:
    """What a model answers, one entry for each record; a single column is one, too."""
    answers = np.asarray(found)
    if answers.shape not in ((rows,), (rows, 1)):
        _refuse_answers(method, f"an array of shape {answers.shape}", f"({rows},): an entry per record")
    return answers.reshape(rows)


def _refuse_answers(method: str, found: str, allowed: str) -> NoReturn:
    """Refuse a model that answers in another shape than it should."""
    remedy = "Mend the model; nobody was asked, and nothing was spent."
    raise ArgumentError(f"model.{method}(X)", found, allowed, remedy)


def _require_scores(all_there: Any) -> None:
    """Refuse a model that answers some rows with what is no score: counted as nothing, they would bias the others' scores."""
    if not all_there:
        remedy = "Mend the model, or drop rows that it cannot score; nobody was asked."
        raise RecordError("model", Found("has no number for some row"), "one that scores every row", remedy)
