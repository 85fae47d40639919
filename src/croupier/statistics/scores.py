"""Scores of a model from noisy counts, with error bars for sampling and privacy noise together, beside the best constant answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .binned import BinnedArea, bin_shares
from .error_bars import Score
from .one_vs_rest import OneVsRest
from .quantile_bins import QuantileBins

Floats = NDArray[np.float64]


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
        Whether the scores of two classes are probabilities.
    one_vs_rest : OneVsRest, optional
        For more than two classes with probabilities: each class against the rest, and the log-loss.

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
        Accuracy and balanced accuracy; AUC and log-loss where there are probabilities, AUC of two classes also from margins. AUC of
        more classes is the mean of each against the rest.

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
    one_vs_rest: OneVsRest | None = None

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
        return bin_shares(self.counts, self.covariance, self._middles)

    @cached_property
    def scores(self) -> dict[str, Score]:
        """Accuracy and balanced accuracy; AUC and log-loss where there are probabilities, AUC of two classes also from margins."""
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
        if self.one_vs_rest is not None:
            scores["AUC"] = self.one_vs_rest.auc
            scores["log-loss"] = self.one_vs_rest.log_loss(sizes / sizes.sum())
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
        area = BinnedArea.of(self.counts)
        return Score(area.value, self._std(area.gradient, sum(area.spreads)), 0.5, 0, 1)

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
    bins : QuantileBins, optional
        Of a quantile regressor: shares at or below, by bins of the prediction.

    Attributes
    ----------
    scores : dict of str to Score
        MAE, MSE, R^2 and the share of targets at or below the prediction.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import Errors
    >>> means = np.array([0.1, 0.02, 0.001, 0.5, 0.3, 0.5])
    >>> errors = Errors(means, np.full(6, 0.001), users=1_000, width=10.0)
    >>> errors.scores["MAE"].value, errors.scores["MSE"].value
    (1.0, 2.0)
    """

    means: Floats
    noise: Floats
    users: int
    width: float
    bins: QuantileBins | None = None

    @cached_property
    def scores(self) -> dict[str, Score]:
        """MAE, MSE and R^2 in the target's unit, beside the mean as answer; the share of targets at or below the prediction."""
        size, square, fourth, mean, second, below = map(float, self.means)
        size_noise, square_noise, _, mean_noise, second_noise, below_noise = map(float, self.noise)
        variance, w, n = max(second - mean**2, 1e-12), self.width, self.users
        spread, inside = max(fourth - square**2, 0.0) / n, min(max(below, 0.0), 1.0)
        ratio = square / variance  # R^2 = 1 - ratio; d ratio = (d square - ratio (d second - 2 mean d mean)) / variance
        noise = math.hypot(square_noise, ratio * second_noise, 2 * ratio * mean * mean_noise) / variance
        at_or_below = Score(below, math.sqrt(below_noise**2 + inside * (1 - inside) / n), None, 0, 1)
        return {
            "MAE": Score(w * size, w * math.sqrt(size_noise**2 + max(square - size**2, 0.0) / n), None, 0, w),
            "MSE": Score(w**2 * square, w**2 * math.sqrt(square_noise**2 + spread), w**2 * variance, 0, w**2),
            "R^2": Score(1 - ratio, math.sqrt(noise**2 + spread / variance**2), 0.0, high=1),
            "at or below": at_or_below if self.bins is None else self.bins.overall,
        }
