"""Private scores of models on 10 000 people of a million: how far they are from those of all, and how often their bars cover."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, ndtri, softmax
from sklearn.metrics import roc_auc_score

import croupier as cr
from croupier.statistics._scores import Errors

from ..surrogate import SurrogatePopulation
from .judging import POINTS_AT

DELTA, PEOPLE, ASKED = 1e-6, 1_000_000, 10_000
# Rounds at an epsilon, and at the one whose errors are judged: an error is then known to 2 per cent.
ROUNDS, JUDGED_ROUNDS, QUICK_ROUNDS = 300, 1_000, 50
EPSILONS = (0.1, POINTS_AT, 1.0)
# Bins of a prediction that fewer people are in are left out of the figures.
LEAST_SHARE = 0.05


class TwoClasses:
    """A model that knows the probabilities."""

    name = "two classes"
    classes_ = np.array([False, True])
    features = 1

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """The probabilities of all classes."""
        p = expit(2.5 * X[:, 0] - 0.5)
        return np.column_stack([1 - p, p])

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The likeliest class."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def labels(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The truth."""
        places = (self.predict_proba(X).cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
        return self.classes_[np.minimum(places, len(self.classes_) - 1)]


class ThreeClasses(TwoClasses):
    """The same of three classes, of 25 to 41 per cent of the people."""

    name = "three classes"
    classes_ = np.array(["a", "b", "c"])
    features = 2

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """The probabilities of all classes."""
        centres = np.array([[0.0, 1.5], [1.5, -0.5], [-1.5, -0.5]])
        return np.asarray(softmax(1.4 * X @ centres.T - 0.7 * np.arange(3), axis=1))


class Quantile:
    """A model that knows the 80 per cent quantile of a target whose spread depends on the features."""

    name, features = "a quantile", 1
    quantile, target_range_ = 0.8, (-4.0, 6.0)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The quantile."""
        return np.asarray(X[:, 0] + (0.5 + 0.25 * np.abs(X[:, 0])) * ndtri(self.quantile))

    def labels(self, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The truth."""
        return np.asarray(X[:, 0] + (0.5 + 0.25 * np.abs(X[:, 0])) * rng.normal(size=len(X)))


def evaluations(quick: bool) -> list[dict[str, Any]]:
    """Root mean square errors of scores in points, sampling included, and the share of 95 % bars that cover."""
    return [row for model in (TwoClasses(), ThreeClasses(), Quantile()) for row in rows(model, quick)]


def rows(model: Any, quick: bool) -> list[dict[str, Any]]:
    """The scores of one model at every epsilon."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(PEOPLE, model.features))
    y = model.labels(X, rng)
    truth = _truth(model, X, y)
    found = []
    for epsilon in EPSILONS:
        errors: dict[str, list[float]] = {name: [] for name in truth}
        inside: dict[str, list[bool]] = {name: [] for name in truth}
        for seed in range(QUICK_ROUNDS if quick else JUDGED_ROUNDS if epsilon == POINTS_AT else ROUNDS):
            some = rng.integers(len(X), size=ASKED)
            people = SurrogatePopulation(X[some], y[some])
            scores = _scores(cr.evaluate(model, people, epsilon=epsilon, delta=DELTA, seed=seed))
            for name, exact in truth.items():
                for (value, low, high), right in zip(scores[name], exact, strict=True):
                    if np.isfinite(right):
                        errors[name].append(value - right)
                        inside[name].append(low <= right <= high)
        for name in truth:
            points = 100 * float(np.sqrt(np.mean(np.square(errors[name]))))
            row = {"model": model.name, "epsilon": epsilon, "score": name, "rmse_points": points}
            found.append(row | {"covered": float(np.mean(inside[name]))})
    return found


def _truth(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """What scores are on the whole population; of bins of a prediction, NaN where few people are in one."""
    answers = model.predict(X)
    if isinstance(model, Quantile):
        low, high = model.target_range_
        place = np.clip(((np.clip(answers, low, high) - low) / (high - low) * 10).astype(int), 0, 9)
        below = np.clip(y, low, high) <= np.clip(answers, low, high)
        shares = [float(below[place == b].mean()) if np.mean(place == b) > LEAST_SHARE else float("nan") for b in range(10)]
        return {"at or below": [float(below.mean())], "at or below, by bins": shares}
    p = model.predict_proba(X)
    auc = roc_auc_score(y, p[:, 1]) if len(model.classes_) == 2 else roc_auc_score(y, p, multi_class="ovr")
    return {"accuracy": [float(np.mean(answers == y))], "AUC": [float(auc)]}


def _scores(evaluation: cr.statistics.Evaluation) -> dict[str, list[tuple[float, float, float]]]:
    """Value and ends of the bar of each score, and of each bin of a prediction."""
    found = {name: [(score.value, *score.interval)] for name, score in evaluation.scores.items()}
    counts = evaluation.counts
    if isinstance(counts, Errors) and counts.bins is not None:
        rows = counts.bins.calibration
        found["at or below, by bins"] = [(share, share - 1.96 * std, share + 1.96 * std) for *_, share, std in rows]
    return found
