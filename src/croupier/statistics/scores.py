"""Scores of a model from noisy counts, with error bars for sampling and privacy noise together, beside the best constant answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """One score with its error bar.

    No figure is beyond `low` or `high`, between which such a score always is: noise alone would take it there. That brings an
    estimate nearer to the truth, so an interval about it covers at least as often.

    Parameters
    ----------
    value : float
        The estimate.
    std : float
        Its standard error, for sampling of people and privacy noise together.
    baseline : float or None
        The score of the best constant answer; None where that is not known.
    low, high : float
        Between which such a score always is.

    Attributes
    ----------
    interval : tuple of (float, float)
        The 95 per cent confidence interval.

    Examples
    --------
    >>> from croupier.statistics import Score
    >>> low, high = Score(0.8, 0.01, baseline=0.5).interval
    >>> round(low, 3), round(high, 3)
    (0.78, 0.82)
    """

    value: float
    std: float
    baseline: float | None
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self._inside(self.value))
        if self.baseline is not None:
            object.__setattr__(self, "baseline", self._inside(self.baseline))

    @property
    def interval(self) -> tuple[float, float]:
        """95 per cent, within the range."""
        return self._inside(self.value - 1.96 * self.std), self._inside(self.value + 1.96 * self.std)

    def _inside(self, number: float) -> float:
        return min(max(number, self.low), self.high)


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Counts of a classifier's answers, cell by cell, and the scores that follow.

    Parameters
    ----------
    counts : ndarray of shape (cells,)
        Noisy counts. For two classes: the score bins of the first label, then those of the second. For more: (predicted, true), row
        by row.
    covariance : ndarray of shape (cells, cells)
        Covariance of the noise in `counts`.
    users : int
        How many people answered.
    right : ndarray of shape (cells,)
        +1 for the cells of right answers, -1 for the others.
    classes : tuple
        The labels.
    edges : ndarray or None
        Ends of the score bins; None for more than two classes.
    probabilities : bool
        Whether scores are probabilities.

    Attributes
    ----------
    confusion : ndarray of shape (classes, classes)
        Noisy counts of (true, predicted).
    confusion_std : ndarray of shape (classes, classes)
        Standard deviation of the privacy noise in `confusion`.
    roc : tuple of (ndarray, ndarray)
        False and true positive rates, for two classes.
    calibration : ndarray of shape (bins, 4)
        For two classes, one row per score bin: its middle, people in it, share of the second class, standard error of that share.
    scores : dict of str to Score
        Accuracy and balanced accuracy; for two classes AUC, and log-loss where scores are probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import CellCounts
    >>> right = np.array([1.0, -1.0, -1.0, 1.0])
    >>> cells = CellCounts(np.array([40.0, 10.0, 10.0, 40.0]), np.eye(4), 100, right, (0, 1), None, probabilities=False)
    >>> cells.scores["accuracy"].value, cells.confusion.tolist()
    (0.8, [[40.0, 10.0], [10.0, 40.0]])
    """

    counts: Floats
    covariance: Floats
    users: int
    right: Floats
    classes: tuple[Any, ...]
    edges: Floats | None
    probabilities: bool

    @cached_property
    def confusion(self) -> Floats:
        """Counts of (true, predicted), as scikit-learn has them; noise included."""
        k = len(self.classes)
        if self.edges is None:
            return self.counts.reshape(k, k).T
        halves = self.counts.reshape(2, 2, -1).sum(axis=2)
        return np.asarray(halves)

    @property
    def confusion_std(self) -> Floats:
        """Standard deviation of the privacy noise in `confusion`."""
        k = len(self.classes)
        if self.edges is None:
            return np.sqrt(np.maximum(self.covariance.diagonal(), 0)).reshape(k, k).T
        block = np.kron(np.eye(4), np.ones(len(self.counts) // 4))
        return np.sqrt(np.maximum((block @ self.covariance @ block.T).diagonal(), 0)).reshape(2, 2)

    @property
    def roc(self) -> tuple[Floats, Floats]:
        """False and true positive rates at the edges of the score bins, from the highest score down; each rate at least 0."""
        first, second = (np.concatenate([[0.0], np.cumsum(part[::-1])]) for part in np.maximum(self.counts, 0).reshape(2, -1))
        return first / max(first[-1], 1e-9), second / max(second[-1], 1e-9)

    @property
    def calibration(self) -> Floats:
        """One row per score bin: its middle, people in it, share of the second class, standard error of that share."""
        first, second = self.counts.reshape(2, -1)
        people = first + second
        bins = len(first)
        share = np.where(people > 0, np.clip(second / np.where(people > 0, people, 1.0), 0, 1), np.nan)
        errors = []
        for b in range(bins):
            gradient = np.zeros(2 * bins)
            gradient[b], gradient[bins + b] = -share[b], 1 - share[b]
            noise = gradient @ self.covariance @ gradient if people[b] > 0 else np.nan
            sampling = share[b] * (1 - share[b])
            errors.append(np.sqrt(max(noise, 0.0) / people[b] ** 2 + sampling / people[b]) if people[b] > 0 else np.nan)
        return np.column_stack([self._middles, people, share, errors])

    @cached_property
    def scores(self) -> dict[str, Score]:
        """Accuracy and balanced accuracy; for two classes AUC, and log-loss where scores are probabilities."""
        n, confusion = self.users, self.confusion
        sizes = np.maximum(confusion.sum(axis=1), 1.0)
        largest = float(sizes.max()) / n
        accuracy = float(n + self.right @ self.counts) / (2 * n)
        inside = min(max(accuracy, 0.0), 1.0)
        scores = {"accuracy": Score(accuracy, self._std(self.right / (2 * n), inside * (1 - inside) / n), largest, 0, 1)}
        recall = confusion.diagonal() / sizes
        spread = float(np.sum(np.clip(recall, 0, 1) * (1 - np.clip(recall, 0, 1)) / sizes)) / len(sizes) ** 2
        scores["balanced accuracy"] = Score(
            float(recall.mean()), self._std(self._balanced_gradient(recall, sizes), spread), 1 / len(sizes), 0, 1
        )
        if self.edges is not None:
            scores["AUC"] = self._auc()
        if self.probabilities:
            scores["log-loss"] = self._log_loss(sizes)
        return scores

    @property
    def _middles(self) -> Floats:
        edges = np.zeros(1) if self.edges is None else self.edges
        return np.asarray((edges[1:] + edges[:-1]) / 2)

    def _std(self, gradient: Floats, sampling: float) -> float:
        """Of a score whose gradient in the counts this is: the noise's part, and that of having asked these people."""
        return math.sqrt(max(float(gradient @ self.covariance @ gradient), 0.0) + sampling)

    def _balanced_gradient(self, recall: Floats, sizes: Floats) -> Floats:
        k = len(self.classes)
        if self.edges is None:
            gradient = (np.eye(k) - recall) / sizes  # (predicted, true)
        else:
            half = len(self.counts) // 4
            gradient = np.repeat(((np.eye(2) - recall[:, np.newaxis]) / sizes[:, np.newaxis]), half, axis=1)
        return np.asarray(gradient.ravel() / k)

    def _auc(self) -> Score:
        first, second = self.counts.reshape(2, -1)
        sizes = max(float(first.sum()), 1.0), max(float(second.sum()), 1.0)
        below = (np.cumsum(first) - first / 2) / sizes[0]  # share of the first class that a score of this bin beats
        above = 1 - (np.cumsum(second) - second / 2) / sizes[1]
        auc = float(second @ below) / sizes[1]
        gradient = np.concatenate([(above - auc) / sizes[0], (below - auc) / sizes[1]])
        # DeLong, Delong and Clarke-Pearson 1988: the variance of the placements of either class
        shares = [np.maximum(part, 0) / max(float(np.maximum(part, 0).sum()), 1e-9) for part in (first, second)]
        spread = sum(
            float(share @ place**2 - (share @ place) ** 2) / size
            for share, place, size in zip(shares, (above, below), sizes, strict=True)
        )
        return Score(auc, self._std(gradient, max(spread, 0.0)), 0.5, 0, 1)

    def _log_loss(self, sizes: Floats) -> Score:
        """By the middles of the bins."""
        losses = np.concatenate([-np.log1p(-self._middles), -np.log(self._middles)])
        loss = float(losses @ self.counts) / self.users
        spread = max(float(losses**2 @ self.counts) / self.users - loss**2, 0.0) / self.users
        shares = sizes / sizes.sum()
        constant, worst = float(-(shares @ np.log(shares))), float(losses.max())
        return Score(loss, self._std(losses / self.users, spread), constant, 0, worst)


@dataclass(frozen=True, eq=False)
class Errors:
    """A regressor's mean errors.

    They follow from the noisy means of |r|, r^2, r^4, y, y^2 and "y at most the prediction", where errors r and targets y are in
    units of the target's range.

    Parameters
    ----------
    means : ndarray of shape (6,)
        The noisy means.
    noise : ndarray of shape (6,)
        Standard deviations of their noise.
    users : int
        How many people answered.
    width : float
        Width of the target's range.
    quantile : float or None
        The quantile that the regressor predicts; None where it predicts something else.

    Attributes
    ----------
    scores : dict of str to Score
        MAE, MSE, R^2 and the share of targets at or below the prediction.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import Errors
    >>> means = np.array([0.1, 0.02, 0.001, 0.5, 0.3, 0.5])
    >>> errors = Errors(means, np.full(6, 0.001), users=1_000, width=10.0, quantile=None)
    >>> errors.scores["MAE"].value, errors.scores["MSE"].value
    (1.0, 2.0)
    """

    means: Floats
    noise: Floats
    users: int
    width: float
    quantile: float | None

    @cached_property
    def scores(self) -> dict[str, Score]:
        """MAE, MSE and R^2 in the target's unit, beside the mean as answer; the share of targets at or below the prediction."""
        size, square, fourth, mean, second, below = map(float, self.means)
        size_noise, square_noise, _, mean_noise, second_noise, below_noise = map(float, self.noise)
        variance, w, n = max(second - mean**2, 1e-12), self.width, self.users
        spread, inside = max(fourth - square**2, 0.0) / n, min(max(below, 0.0), 1.0)
        ratio = square / variance  # R^2 = 1 - ratio; d ratio = (d square - ratio (d second - 2 mean d mean)) / variance
        noise = math.hypot(square_noise, ratio * second_noise, 2 * ratio * mean * mean_noise) / variance
        return {
            "MAE": Score(w * size, w * math.sqrt(size_noise**2 + max(square - size**2, 0.0) / n), None, 0, w),
            "MSE": Score(w**2 * square, w**2 * math.sqrt(square_noise**2 + spread), w**2 * variance, 0, w**2),
            "R^2": Score(1 - ratio, math.sqrt(noise**2 + spread / variance**2), 0.0, high=1),
            "at or below": Score(below, math.sqrt(below_noise**2 + inside * (1 - inside) / n), self.quantile, 0, 1),
        }
