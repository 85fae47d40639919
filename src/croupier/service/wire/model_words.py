"""A model in the words of a task that asks how good it is; apart from `queries`, as it says nothing of tasks.

What its answers are made of, and nothing of how it was trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from ...arithmetic import row_dots
from ...estimator import ShuffleLogisticRegression, ShuffleQuantileRegressor
from ...estimator.classification import log_odds
from ...problem.classification import Weighted
from ...problem.problem import clip_rows, row_norms
from ...table import Schema, TableModel
from ...table._encode import Encoder
from ...validation import ArgumentError, one_of, real

Floats = NDArray[np.float64]
_REFUSE = "Do not take part: ask the analyzer's operator."
ANSWERS = ("probabilities", "margins", "numbers")


@dataclass(frozen=True)
class LinearScores:
    """<coef, x> + intercept for rows scaled down to a length, each output by itself: the same in every language."""

    coef: Floats
    intercept: Floats
    feature_norm: float

    def scores(self, X: Any) -> Floats:
        """Return the scores of rows."""
        rows = clip_rows(np.asarray(X, dtype=np.float64), self.feature_norm)
        return np.column_stack([row_dots(rows, weights) for weights in self.coef]) + self.intercept


@dataclass(frozen=True)
class MarginModel(LinearScores):
    """A classifier of two classes whose scores are no probabilities."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of rows."""
        return self.scores(X)[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest score."""
        scores = self.scores(X)
        return np.asarray(self.classes_[(scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)])


@dataclass(frozen=True)
class ProbabilityModel(MarginModel):
    """A classifier with probabilities."""

    clipped: tuple[float, float, Floats] | None = None  # gradients: to which norm, the constant beside a row, classes' weights

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likelier of two classes, the first where they are alike; of more the class of the largest score."""
        two = len(self.classes_) == 2
        return np.asarray(self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)]) if two else super().predict(X)

    def predict_proba(self, X: Any) -> Floats:
        """Return one probability per row and class."""
        scores = self.scores(X)
        if self.clipped is not None:
            norm, constant, weights = self.clipped
            rows = clip_rows(np.asarray(X, dtype=np.float64), self.feature_norm)
            lengths = np.hypot(row_norms(rows) / self.feature_norm, constant)
            scores = log_odds(scores, lengths, weights, norm).reshape(len(scores), -1)
        if scores.shape[1] > 1:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])


@dataclass(frozen=True)
class NumberModel(LinearScores):
    """A regressor."""

    target_range_: tuple[float, float]
    quantile: float | None  # that it predicts; None if it predicts something else

    def predict(self, X: Any) -> Floats:
        """Return the predictions of rows."""
        return self.scores(X)[:, 0]


def model_to_dict(model: TableModel) -> dict[str, Any]:
    """Return what a client needs to know of a model to score it, except for its schema."""
    estimator = model.estimator
    proba = hasattr(estimator, "predict_proba")
    words: dict[str, Any] = {
        "answers": ("probabilities" if proba else "margins") if model.classifies else "numbers",
        "coef": np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64)).tolist(),
        "intercept": np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)).tolist(),
        "feature_norm": float(estimator.feature_norm_),
    }
    if isinstance(estimator, ShuffleQuantileRegressor):
        words["quantile"] = float(estimator.quantile)
    if isinstance(estimator, ShuffleLogisticRegression) and not estimator.capped_:
        loss = estimator._loss()
        weights = loss.weights if isinstance(loss, Weighted) else [1.0] * len(estimator.classes_)
        norm = estimator.schedule_.phases[-1].plan.norm
        words["clipped"] = {"norm": float(norm), "constant": float(estimator.constant_), "weights": list(map(float, weights))}
    return words


def model_from_dict(words: Any, schema: Schema) -> ProbabilityModel | MarginModel | NumberModel:
    """Return the model that words mean."""
    if not isinstance(words, dict) or "answers" not in words:
        raise ArgumentError("model", type(words).__name__, "an object with its answers", _REFUSE)
    answers = one_of("model.answers", words["answers"], ANSWERS, _REFUSE)
    optional = {"quantile"} if answers == "numbers" else {"clipped"} if answers == "probabilities" else set()
    needed = {"answers", "coef", "intercept", "feature_norm"}
    if not needed <= set(words) <= needed | optional:
        raise ArgumentError("model", sorted(words), f"of the words {', '.join(sorted(needed))}", _REFUSE)
    classes, ends = schema.target.classes, schema.target.range
    outputs = 1 if classes is None or len(classes) == 2 else len(classes)
    if (ends is not None) != (answers == "numbers") or (answers == "margins" and outputs > 1):
        raise ArgumentError("model.answers", answers, "those of the schema's target", _REFUSE)
    coef = _matrix("model.coef", words["coef"], outputs, len(Encoder(schema).names))
    (intercept,) = _matrix("model.intercept", [words["intercept"]], 1, outputs)
    norm = real("model.feature_norm", words["feature_norm"], above=1e-100, at_most=1e100, remedy=_REFUSE)
    if ends is not None:
        quantile = words.get("quantile")
        if "quantile" in words:
            quantile = real("model.quantile", quantile, above=0, below=1, remedy=_REFUSE)
        return NumberModel(coef, intercept, norm, ends, quantile)
    labels: NDArray[Any] = np.unique(np.asarray(classes))
    if answers == "margins":
        return MarginModel(coef, intercept, norm, labels)
    return ProbabilityModel(coef, intercept, norm, labels, _clipped(words["clipped"], len(labels)) if "clipped" in words else None)


def _clipped(words: Any, classes: int) -> tuple[float, float, Floats]:
    if not isinstance(words, dict) or set(words) != {"norm", "constant", "weights"}:
        raise ArgumentError("model.clipped", type(words).__name__, "an object of norm, constant and weights", _REFUSE)
    (weights,) = _matrix("model.clipped.weights", [words["weights"]], 1, classes)
    if not ((weights > 0) & (weights <= 1)).all():
        raise ArgumentError("model.clipped.weights", weights.tolist(), "above 0 and at most 1", _REFUSE)
    norm = real("model.clipped.norm", words["norm"], above=1e-100, below=1e100, remedy=_REFUSE)
    return norm, real("model.clipped.constant", words["constant"], at_least=0, at_most=1e6, remedy=_REFUSE), weights


def _matrix(name: str, values: Any, rows: int, columns: int) -> Floats:
    """Numbers in so many rows and columns; texts and truth values are none."""
    lists = (
        isinstance(values, list) and len(values) == rows and all(isinstance(row, list) and len(row) == columns for row in values)
    )
    if not lists:
        raise ArgumentError(name, type(values).__name__, f"{rows} lists of {columns} numbers", _REFUSE)
    return np.array([[real(name, entry, above=-1e100, below=1e100, remedy=_REFUSE) for entry in row] for row in values])
