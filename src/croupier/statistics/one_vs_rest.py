"""Scores of more than two classes: each class against the rest, and the log-loss, from coordinates beside the confusion matrix.

A person sends for each class k the cell (bin of the probability of k, whether k is the label) by a square root of prefix sums, and
min(loss, CAP) / CAP with its square, loss = -log(probability of the label). No entry is negative, and the squares add up to at most
RANKS + LOSS + SQUARE. Of RANKS the class that is the label has the most (`rank_weights`): its people are the fewest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .binned import BinnedArea
from .error_bars import Score
from .prefix_sums import known_total, unit_root

Floats = NDArray[np.float64]
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

    Parameters
    ----------
    counts : ndarray of shape (classes, 2 * bins)
        For each class, noisy counts of people in bins of its probability: those of other classes, then those of this class.
    covariance : ndarray of shape (2 * bins, 2 * bins)
        Covariance of the noise in each row of `counts`; rows are independent.
    users : int
        How many people answered.
    classes : tuple
        The labels.
    losses : tuple of (float, float)
        Noisy means of the loss and of its square, the loss divided by its cap.
    loss_std : float
        Standard deviation of the noise in the first of them.

    Attributes
    ----------
    areas : dict of object to Score
        AUC of each class against the rest.
    auc : Score
        Their mean.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import OneVsRest
    >>> counts = np.array([[60.0, 0, 0, 30], [50, 10, 0, 30], [40, 20, 10, 20]])
    >>> scores = OneVsRest(counts, np.eye(4), 90, ("a", "b", "c"), (0.1, 0.02), 0.01)
    >>> [round(area.value, 3) for area in scores.areas.values()], round(scores.auc.value, 3)
    ([1.0, 0.917, 0.667], 0.861)
    """

    counts: Floats
    covariance: Floats
    users: int
    classes: tuple[Any, ...]
    losses: tuple[float, float]
    loss_std: float

    @classmethod
    def read(cls, sums: Floats, noise_std: float, users: int, classes: tuple[Any, ...], bins: int) -> OneVsRest:
        """What the noisy sum of `class_vectors` says.

        Parameters
        ----------
        sums : ndarray
            The noisy sum.
        noise_std : float
            Standard deviation of the noise in each entry.
        users : int
            How many people answered.
        classes : tuple
            The labels.
        bins : int
            Bins of each probability.

        Returns
        -------
        OneVsRest
            Counts by least squares, with the known number of people imposed on each class.
        """
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
        """Return the log-loss, beside that of the classes' shares as probabilities.

        Parameters
        ----------
        shares : ndarray of shape (classes,)
            Shares of the classes.

        Returns
        -------
        Score
            Losses above the cap count as the cap.
        """
        mean, square = self.losses
        spread = max(square - min(max(mean, 0.0), 1.0) ** 2, 0.0) / self.users
        return Score(CAP * mean, CAP * math.sqrt(self.loss_std**2 + spread), float(-(shares @ np.log(shares))), 0, CAP)
