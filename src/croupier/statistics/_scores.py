"""Scores of a model from noisy counts, with error bars for sampling and privacy noise together, beside the best constant answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .histogram import Score, known_total, unit_root

# What follows from noisy counts of two kinds of people in bins: shares of the second kind, and the area under the ROC curve.

Floats = NDArray[np.float64]


def bin_shares(counts: Floats, covariance: Floats, middles: Floats) -> Floats:
    """One row per bin: its middle, people in it, share of the second kind, standard error of that share.

    `counts` has the bins of the first kind, then those of the second. Share and error are NaN where noise leaves nobody.
    """
    first, second = counts.reshape(2, -1)
    people = first + second
    bins = len(first)
    share = np.where(people > 0, np.clip(second / np.where(people > 0, people, 1.0), 0, 1), np.nan)
    errors = []
    for b in range(bins):
        gradient = np.zeros(2 * bins)
        gradient[b], gradient[bins + b] = -share[b], 1 - share[b]
        noise = gradient @ covariance @ gradient if people[b] > 0 else np.nan
        sampling = share[b] * (1 - share[b])
        errors.append(np.sqrt(max(noise, 0.0) / people[b] ** 2 + sampling / people[b]) if people[b] > 0 else np.nan)
    return np.column_stack([middles, people, share, errors])


@dataclass(frozen=True, eq=False)
class BinnedArea:
    """An area under the ROC curve, its gradient in the counts, and the variance that either kind of people brings by sampling."""

    value: float
    gradient: Floats
    spreads: tuple[float, float]

    @classmethod
    def of(cls, counts: Floats) -> BinnedArea:
        """Of the bins of the first kind, then those of the second, scores rising."""
        first, second = counts.reshape(2, -1)
        sizes = max(float(first.sum()), 1.0), max(float(second.sum()), 1.0)
        below = (np.cumsum(first) - first / 2) / sizes[0]  # share of the first kind that a score of this bin beats
        above = 1 - (np.cumsum(second) - second / 2) / sizes[1]
        area = float(second @ below) / sizes[1]
        gradient = np.concatenate([(above - area) / sizes[0], (below - area) / sizes[1]])
        # DeLong, Delong and Clarke-Pearson 1988: the variance of the placements of either kind
        shares = [np.maximum(part, 0) / max(float(np.maximum(part, 0).sum()), 1e-9) for part in (first, second)]
        spreads = [
            float(share @ place**2 - (share @ place) ** 2) / size
            for share, place, size in zip(shares, (above, below), sizes, strict=True)
        ]
        return cls(area, gradient, (max(spreads[0], 0.0), max(spreads[1], 0.0)))

    def noise(self, covariance: Floats) -> float:
        """Variance of the area, by noise with this covariance in the counts."""
        return max(float(self.gradient @ covariance @ self.gradient), 0.0)


# Scores of more than two classes: each class against the rest, and the log-loss, from coordinates beside the confusion matrix.
#
# A person sends for each class k the cell (bin of the probability of k, whether k is the label) by a square root of prefix sums,
# and min(loss, CAP) / CAP with its square, loss = -log(probability of the label). No entry is negative, and the squares add up to
# at most RANKS + LOSS + SQUARE. Of RANKS the class that is the label has the most (`rank_weights`): its people are the fewest.

Integers = NDArray[np.int64]
# Squared weights: of all classes' cells together, of the log-loss, and of its square, which its error bar alone needs.
RANKS, LOSS, SQUARE = 0.55, 0.13, 0.01
# Weight of "right or wrong": even so its noise is small beside that of having asked these people.
RIGHT_OF_SEVERAL = math.sqrt(0.15)
# The loss of a probability of 0.0009; larger ones count as that.
CAP = 7.0


def rank_weights(classes: int) -> tuple[float, float]:
    """Squared weights of a person's cell for a class that is not the label, and for that which is: they add up to RANKS.

    AUC of a class has the noise of both kinds' shares, each over the number of its people: of k classes of one size n / k and
    n (k - 1) / k. One person is k - 1 times of the first kind and once of the second, so the least noise is that of weights
    1 to (k - 1)^(3/2). The rule is public, whatever sizes classes have.
    """
    own = (classes - 1) ** 1.5
    share = RANKS / (classes - 1 + own)
    return share, own * share


def class_cells(bins: int, classes: int) -> Floats:
    """What is sent of one class's cells, in columns: score bins of other labels, then of this one."""
    return np.asarray(np.kron(np.diag(np.sqrt(rank_weights(classes))), unit_root(bins)), dtype=np.float64)


def class_vectors(probabilities: Floats, label: Integers, edges: Floats) -> Floats:
    """The coordinates of people with these probabilities (one column per class) and labels (numbers of classes)."""
    users, classes = probabilities.shape
    bins = len(edges) - 1
    place = np.clip(np.searchsorted(edges, probabilities, side="left") - 1, 0, bins - 1)
    cell = place + bins * (label[:, np.newaxis] == np.arange(classes))
    ranks = class_cells(bins, classes).T[cell].reshape(users, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.clip(-np.log(np.clip(probabilities[np.arange(users), label], 0, 1)) / CAP, 0, 1)
    return np.column_stack([ranks, math.sqrt(LOSS) * loss, math.sqrt(SQUARE) * loss**2])


def joint_spread(others: Floats, own: Floats) -> float:
    """Upper bound on the standard deviation of the sum of areas, from the variances that each class's two kinds of people bring.

    For one person standard deviations add up at most. People of different labels are different people, so that over labels
    variances add up: those of label j bring at most (sqrt(own_j) + sum_(k != j) sqrt(v_kj))^2, v_kj their part of others_k.
    The parts are not known, but by Cauchy-Schwarz the squares of the sums over k are at most (classes - 1) sum_k others_k.
    """
    rest = min(float(np.sqrt(others).sum()), math.sqrt((len(others) - 1) * others.sum()))
    return min(float(np.sqrt(others + own).sum()), math.sqrt(own.sum()) + rest)


@dataclass(frozen=True, eq=False)
class OneVsRest:
    """Each class against the rest, and the log-loss.

    `counts` (classes, 2 * bins): For each class, noisy counts of people in bins of its probability: those of other classes, then
    those of this class. `covariance` (2 * bins, 2 * bins): Covariance of the noise in each row of `counts`; rows are independent.
    `users`: How many people answered. `classes`: The labels. `losses`: Noisy means of the loss and of its square, the loss divided
    by its cap. `loss_std`: Standard deviation of the noise in the first of them. `areas`: AUC of each class against the rest.
    `auc`: Their mean.
    """

    counts: Floats
    covariance: Floats
    users: int
    classes: tuple[Any, ...]
    losses: tuple[float, float]
    loss_std: float

    @classmethod
    def read(cls, sums: Floats, noise_std: float, users: int, classes: tuple[Any, ...], bins: int) -> OneVsRest:
        """What the noisy sum of `class_vectors` says."""
        cells = class_cells(bins, len(classes))
        read = [known_total(cells, part, noise_std, users) for part in sums[:-2].reshape(len(classes), -1)]
        losses = float(sums[-2]) / (math.sqrt(LOSS) * users), float(sums[-1]) / (math.sqrt(SQUARE) * users)
        loss_std = noise_std / (math.sqrt(LOSS) * users)
        return cls(np.array([counts for counts, _ in read]), read[0][1], users, classes, losses, loss_std)

    @cached_property
    def _parts(self) -> list[BinnedArea]:
        return [BinnedArea.of(counts) for counts in self.counts]

    @property
    def areas(self) -> dict[Any, Score]:
        """AUC of each class against the rest."""
        return {
            label: Score(area.value, math.sqrt(area.noise(self.covariance) + sum(area.spreads)), 0.5, 0, 1)
            for label, area in zip(self.classes, self._parts, strict=True)
        }

    @property
    def auc(self) -> Score:
        """The mean of all classes' AUC. Its error bar is a bound: the same people are in all of them."""
        k = len(self.classes)
        noise = sum(area.noise(self.covariance) for area in self._parts) / k**2
        others, own = np.array([area.spreads for area in self._parts]).T
        mean = sum(score.value for score in self.areas.values()) / k
        return Score(mean, math.sqrt(noise + (joint_spread(others, own) / k) ** 2), 0.5, 0, 1)

    def log_loss(self, shares: Floats) -> Score:
        """Return the log-loss, beside that of the classes' shares as probabilities."""
        mean, square = self.losses
        spread = max(square - min(max(mean, 0.0), 1.0) ** 2, 0.0) / self.users
        return Score(CAP * mean, CAP * math.sqrt(self.loss_std**2 + spread), float(-(shares @ np.log(shares))), 0, CAP)


# Calibration of a quantile regressor: the share of people at or below the prediction, by bins of the prediction.
#
# A person sends the one-hot vector of (bin of the prediction, whether the target is at most the prediction) times WEIGHT: two such
# vectors are at most sqrt(2) WEIGHT apart.

Flags = NDArray[np.bool_]
# Equal bins of the declared range, and the weight of a cell: the other numbers get 12 per cent more noise than without cells.
BINS, WEIGHT = 10, 0.5
# A share with a larger standard error says nothing.
TOLD = 0.25


def cell_vectors(answer: Floats, below: Flags) -> Floats:
    """The cells of predictions, in [0, 1], and of whether the target is at or below: one-hot, times the weight."""
    place = np.clip((np.nan_to_num(answer) * BINS).astype(np.int64), 0, BINS - 1)
    return WEIGHT * np.eye(2 * BINS)[place + BINS * below]


@dataclass(frozen=True, eq=False)
class QuantileBins:
    """Shares of people at or below a predicted quantile, by bins of the prediction.

    `counts` (2 * bins,): Noisy counts of people in bins of the prediction: those above it, then those at or below. `covariance` (2
    * bins, 2 * bins): Covariance of the noise in `counts`. `users`: How many people answered. `quantile`: The quantile that is
    predicted. `edges` (bins + 1,): Ends of the bins, in the target's unit. `overall`: The share of all people at or below; its
    baseline is the quantile. `calibration` (bins, 4): One row per bin: its middle, people in it, share at or below, standard error
    of that share. `told` (bins,): Bins whose share is distinguishable from noise: the others hold nobody, or too few.
    """

    counts: Floats
    covariance: Floats
    users: int
    quantile: float
    edges: Floats

    @classmethod
    def read(
        cls, sums: Floats, weight: float, noise_std: float, users: int, quantile: float, ends: tuple[float, float]
    ) -> QuantileBins:
        """What a noisy sum says: first the number of people at or below times `weight`, then the sum of `cell_vectors`."""
        measured = np.vstack([weight * np.repeat([0.0, 1.0], BINS), WEIGHT * np.eye(2 * BINS)])
        counts, covariance = known_total(measured, sums, noise_std, users)
        return cls(counts, covariance, users, quantile, np.linspace(*ends, BINS + 1))

    @property
    def overall(self) -> Score:
        """The share of all people at or below."""
        half = len(self.counts) // 2
        share = float(self.counts[half:].sum()) / self.users
        noise = max(float(self.covariance[half:, half:].sum()), 0.0) / self.users**2
        inside = min(max(share, 0.0), 1.0)
        return Score(share, math.sqrt(noise + inside * (1 - inside) / self.users), self.quantile, 0, 1)

    @property
    def calibration(self) -> Floats:
        """One row per bin: its middle, people in it, share at or below, standard error of that share."""
        return bin_shares(self.counts, self.covariance, (self.edges[1:] + self.edges[:-1]) / 2)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the calibration in plain JSON types."""
        return [
            {
                "low": low,
                "high": high,
                "people": people,
                "share": None if math.isnan(share) else share,
                "std": None if math.isnan(std) else std,
            }
            for (low, high), (_, people, share, std) in zip(pairwise(self.edges.tolist()), self.calibration.tolist(), strict=True)
        ]

    @property
    def told(self) -> Flags:
        """Bins whose share is distinguishable from noise: the others hold nobody, or too few."""
        rows = self.calibration
        return np.asarray(np.isfinite(rows).all(axis=1) & (rows[:, 3] < TOLD))

    def __str__(self) -> str:
        lines = [f"{'prediction':<24} {'people':>9}    at or below, {self.quantile:g} if calibrated"]
        for (low, high), (_, people, share, std), told in zip(
            pairwise(self.edges.tolist()), self.calibration.tolist(), self.told.tolist(), strict=True
        ):
            ends = Score(share, std, None, 0, 1).interval
            words = f"{share:.3f}    {ends[0]:.3f} .. {ends[1]:.3f}" if told else "too few people to tell"
            lines.append(f"{f'{low:.4g} .. {high:.4g}':<24} {people:>9,.0f}    {words}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Counts of a classifier's answers, cell by cell, and the scores that follow.

    `counts` (cells,): Noisy counts. For two classes: the score bins of the first label, then those of the second. For more:
    (predicted, true), row by row. `covariance` (cells, cells): Covariance of the noise in `counts`. `users`: How many people
    answered. `right` (cells,): +1 for the cells of right answers, -1 for the others. `classes`: The labels. `edges`: Ends of the
    score bins; None for more than two classes. `probabilities`: Whether the scores of two classes are probabilities. `one_vs_rest`:
    For more than two classes with probabilities: each class against the rest, and the log-loss. `confusion` (classes, classes):
    Noisy counts of (true, predicted). `confusion_std` (classes, classes): Standard deviation of the privacy noise in `confusion`.
    `roc`: False and true positive rates, for two classes. `calibration` (bins, 4): For two classes, one row per score bin: its
    middle, people in it, share of the second class, standard error of that share. `scores`: Accuracy and balanced accuracy; AUC and
    log-loss where there are probabilities, AUC of two classes also from margins. AUC of more classes is the mean of each against
    the rest.
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

    `means` (6,): The noisy means. `noise` (6,): Standard deviations of their noise. `users`: How many people answered. `width`:
    Width of the target's range. `bins`: Of a quantile regressor: shares at or below, by bins of the prediction. `scores`: MAE, MSE,
    R^2 and the share of targets at or below the prediction.
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
