"""Losses for classification: functions of the margin, and the cross-entropy of several classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax, wrightomega

from ..validation import ArgumentError, RecordError, real, whole
from .loss import NEWTON_STEPS, Floats, Loss, numbers_of


class _Margin(Loss):
    """Losses of the margin m = y z, y in {-1, +1}; labels 0 and -1 mean the first class, 1 the second."""

    def targets(self, y: NDArray[np.generic]) -> Floats:
        labels = numbers_of(y)
        known = self._takes(labels)
        if not known.all():
            raise RecordError(
                "y", float(labels[~known][0]), "0 or 1 (or -1 or 1) for a binary loss", "Map your two classes to these."
            )
        return np.asarray(2.0 * (labels == 1) - 1.0)

    def _takes(self, numbers: Floats) -> NDArray[np.bool_]:
        return np.asarray((numbers == 1) | (numbers == 0) | (numbers == -1))


@dataclass(frozen=True)
class Logistic(_Margin):
    """The logistic loss log(1 + exp(-y z)), for binary classification with probabilities.

    Labels are 0 and 1, or -1 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Logistic
    >>> loss = Logistic()
    >>> loss.slope(np.array([0.0]), loss.targets(np.array([1]))).tolist()
    [-0.5]
    """

    curvature = 0.25

    @property
    def usual_curvature(self) -> float:
        return 0.05  # p (1 - p) is about 0.1 for a useful model, and half of the features' energy lies in one direction

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.logaddexp(0.0, -targets * scores)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(-targets * expit(-targets * scores))

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        # margin w at the prox solves w = m + q s(-w), s the sigmoid; the root lies in [m, m + q]
        margin = targets * scores
        # and, as s(-w) <= exp(-w), no further than m + omega(log q - m), omega + log omega the identity
        low, high = margin.copy(), margin + np.minimum(q, wrightomega(np.log(q) - margin))
        w = high
        for _ in range(NEWTON_STEPS):
            excess = w - margin - q * expit(-w)
            low, high = np.where(excess < 0, w, low), np.where(excess < 0, high, w)
            step = w - excess / (1 + q * expit(w) * expit(-w))
            moved = np.where((step >= low) & (step <= high), step, (low + high) / 2)
            near = np.abs(moved - w) <= 1e-15 * (1 + np.abs(w))
            if near.all():
                break
            w = np.where(near, w, moved)  # who has arrived stays, however long others take
        return np.asarray(-targets * expit(-w))

    def slope_bound(self, score_bound: float) -> float:
        return float(expit(score_bound))

    def capped_slope(self, scores: Floats, targets: Floats, limits: Floats) -> Floats:
        # the slopes of the two labels are as long as s and 1 - s: the longer one decides for both
        longest = expit(np.abs(scores))
        return np.asarray(-targets * expit(-targets * scores) * np.minimum(1.0, limits / longest))


@dataclass(frozen=True)
class Hinge(_Margin):
    """The support vector machine's loss max(0, 1 - y z), nonsmooth at y z = 1.

    Labels are 0 and 1, or -1 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Hinge
    >>> loss = Hinge()
    >>> loss.value(np.array([0.5, 2.0]), loss.targets(np.array([1, 1]))).tolist()
    [0.5, 0.0]
    >>> loss.curvature is None
    True
    """

    @property
    def usual_curvature(self) -> float:
        return 0.2  # four users in ten per unit of margin, and half of the features' energy in one direction

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.maximum(0.0, 1 - targets * scores)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.where(targets * scores < 1, -targets, 0.0)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return -targets * np.clip(1 - targets * scores, 0, q) / q

    def slope_bound(self, score_bound: float) -> float:
        return 1.0


@dataclass(frozen=True)
class SmoothedHinge(_Margin):
    """The hinge, with a parabola of width `width` where it is nonsmooth: its curvature is 1 / width.

    Labels are 0 and 1, or -1 and 1.

    Parameters
    ----------
    width : float, default 0.5
        Above 0. A small one is close to the hinge and strongly curved.

    Raises
    ------
    ArgumentError
        If width is not above 0.

    Examples
    --------
    >>> from croupier.problem import SmoothedHinge
    >>> SmoothedHinge(width=0.25).curvature
    4.0
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        remedy = "Small is close to the hinge and strongly curved; 0.5 is usual."
        object.__setattr__(self, "width", real("width", self.width, above=0, remedy=remedy))

    @property
    def curvature(self) -> float:  # type: ignore[override]
        return 1 / self.width

    def value(self, scores: Floats, targets: Floats) -> Floats:
        gap = np.maximum(0.0, 1 - targets * scores)
        curved = np.minimum(gap, self.width)
        return curved / self.width * (gap - curved / 2)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return -targets * np.clip((1 - targets * scores) / self.width, 0, 1)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return -targets * np.clip((1 - targets * scores) / (self.width + q), 0, 1)

    def slope_bound(self, score_bound: float) -> float:
        return min(1.0, (1 + score_bound) / self.width)


@dataclass(frozen=True)
class SquaredHinge(_Margin):
    """The squared hinge max(0, 1 - y z)^2 / 2. Its slope is bounded only where the scores are.

    Labels are 0 and 1, or -1 and 1.

    Examples
    --------
    >>> from croupier.problem import SquaredHinge
    >>> SquaredHinge().slope_bound(score_bound=3.0)
    4.0
    """

    curvature = 1.0

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.maximum(0.0, 1 - targets * scores) ** 2 / 2

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return -targets * np.maximum(0.0, 1 - targets * scores)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return -targets * np.maximum(0.0, 1 - targets * scores) / (1 + q)

    def slope_bound(self, score_bound: float) -> float:
        return 1 + score_bound


@dataclass(frozen=True)
class Multinomial(Loss):
    """The cross-entropy of the softmax over the classes 0 to classes - 1, for classification with probabilities.

    theta holds one row of weights per class, flattened.

    Parameters
    ----------
    classes : int, default 2
        The number of classes, at least 2. It is public, never counted in the data.

    Raises
    ------
    ArgumentError
        If classes is not a whole number of at least 2.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Multinomial
    >>> loss = Multinomial(classes=4)
    >>> loss.slope(np.zeros((1, 4)), loss.targets(np.array([2]))).tolist()
    [[0.25, 0.25, -0.75, 0.25]]
    """

    classes: int = 2
    curvature = 0.5  # largest eigenvalue of diag(p) - p p'

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", whole("classes", self.classes, at_least=2, remedy="State the number of classes."))

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.classes

    @property
    def usual_curvature(self) -> float:
        return 0.2 / self.classes  # 1 / classes at theta = 0, and then as for Logistic

    def targets(self, y: NDArray[np.generic]) -> Floats:
        labels = numbers_of(y)
        odd = labels[~self._takes(labels)]
        if odd.size:
            allowed = f"a whole number from 0 to {self.classes - 1}"
            raise RecordError("y", float(odd[0]), allowed, "Map your classes to these, or declare more classes.")
        return np.eye(self.classes)[labels.astype(np.int64)]

    def _takes(self, numbers: Floats) -> NDArray[np.bool_]:
        return np.asarray((numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < self.classes))

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(-np.sum(targets * log_softmax(scores, axis=-1), axis=-1))

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(softmax(scores, axis=-1) - targets)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        # w minimises |w - scores|^2 / 2 + q (logsumexp(w) - w_y), so q p_j = omega(scores_j + k) for j != y and q p_y =
        # omega(scores_y + q + k), omega + log omega the identity. One k per user makes the p_j add up: Newton on a convex
        # increasing function, from the right. omega(q + a) - q is a - log omega(q + a), which does not cancel for large q.
        q, scores = q[:, np.newaxis], scores - np.max(scores, axis=-1, keepdims=True)
        right = targets > 0
        k = np.log(q) - np.max(np.where(right, scores, scores - q), axis=-1, keepdims=True)
        for _ in range(NEWTON_STEPS):
            omega = wrightomega(np.where(right, scores + q, scores) + k)
            surplus = np.where(right, np.where(omega < 1, omega - q, scores + k - np.log(np.maximum(omega, 1))), omega)
            step = np.sum(surplus, axis=-1, keepdims=True) / np.sum(omega / (1 + omega), axis=-1, keepdims=True)
            near = np.abs(step) <= 1e-15 * (1 + np.abs(k))
            if near.all():
                break
            k = np.where(near, k, k - step)  # who has arrived stays, however long others take
        wrong = np.where(right, 0.0, wrightomega(scores + k) / q)
        return np.asarray(wrong - targets * np.sum(wrong, axis=-1, keepdims=True))

    def slope_bound(self, score_bound: float) -> float:
        # |p - e_y|^2 <= (1 - p_y)^2 + (1 - p_y) max p_j over j != y, and no score exceeds another by more than sqrt(2) |scores|
        apart, others = math.sqrt(2) * score_bound, math.log(self.classes - 1)
        wrong = float(expit(apart + others))
        return math.sqrt(wrong * (wrong + min(wrong, float(expit(apart - others)))))

    def capped_slope(self, scores: Floats, targets: Floats, limits: Floats) -> Floats:
        p = softmax(scores, axis=-1)
        factors = np.minimum(1.0, limits / _longest(p))
        return np.asarray((p - targets) * factors[:, np.newaxis])


# Losses whose gradients need no clipping, and whose minimiser is still that of the logistic loss: coefficients of the model.
#
# Clipping a logistic gradient to half its bound shortens those of people whose label the model did not expect, and no others:
# scores are then no log-odds. Here both labels' gradients are shortened alike, by a factor that depends on the row and the weights
# alone. At the true parameters of a logistic model the mean gradient is still 0 for every row, and no gradient is longer than the
# steepest at theta = 0 (docs/optimizer-theory.md, "The capped loss").


@dataclass(frozen=True)
class CappedLogistic(Logistic):
    """A loss of the margin m = y z with the logistic loss's minimiser and half its slope: (1 - m) / 2 below 0, exp(-m) / 2 above.

    Labels are 0 and 1, or -1 and 1. It is convex. Where a label is 1 with probability p, its mean is least at z = log(p / (1 - p)):
    for z > 0 the mean's slope is (1 - p) / 2 - p exp(-z) / 2.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import CappedLogistic
    >>> loss = CappedLogistic()
    >>> loss.slope(np.array([-3.0, 0.0]), np.array([1.0, 1.0])).tolist(), loss.slope_bound(50.0)
    ([-0.5, -0.5], 0.5)
    """

    curvature = 0.5

    @property
    def usual_curvature(self) -> float:
        # (1 - p) / 2 for a useful model, and half of the energy in one direction; where p is 1/2 at most people, steps still settle
        return 0.08

    def value(self, scores: Floats, targets: Floats) -> Floats:
        margin = targets * scores
        return np.asarray(np.where(margin < 0, (1 - margin) / 2, np.exp(-np.maximum(margin, 0.0)) / 2))

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(-targets * np.exp(-np.maximum(targets * scores, 0.0)) / 2)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        # margin w at the prox: w - m = q exp(-w) / 2 (omega + log omega is the identity), or w = m + q / 2 where that is below 0
        with np.errstate(over="ignore"):
            return np.asarray(-targets * np.minimum(0.5, wrightomega(np.log(q / 2) - targets * scores) / q))

    def slope_bound(self, score_bound: float) -> float:
        return 0.5


@dataclass(frozen=True)
class CappedMultinomial(Multinomial):
    """The cross-entropy of the softmax, its slope p - e_y scaled down to the length that it has at most at theta = 0.

    The factor is b / max(b, max_k |p - e_k|), b = sqrt(1 - 1 / classes): the same for every label, so that the mean slope at the
    true probabilities is 0. `value` is the cross-entropy itself. The slopes are no longer its derivative, nor that of another
    function; no bound on the loss is stated for them.

    Parameters
    ----------
    classes : int, default 2
        The number of classes, at least 2. It is public, never counted in the data.

    Raises
    ------
    ArgumentError
        If classes is not a whole number of at least 2.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import CappedMultinomial
    >>> loss = CappedMultinomial(classes=4)
    >>> far = loss.slope(np.array([[9.0, 0.0, 0.0, 0.0]]), loss.targets(np.array([2])))
    >>> bool(np.linalg.norm(far) <= loss.slope_bound(50.0)), round(loss.slope_bound(50.0), 3)
    (True, 0.866)
    """

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.asarray(super().slope(scores, targets) * self._factor(scores))

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return np.asarray(super().prox_slope(scores, targets, q) * self._factor(scores))

    def slope_bound(self, score_bound: float) -> float:
        return math.sqrt(1 - 1 / self.classes)

    def _factor(self, scores: Floats) -> Floats:
        """The same for every label; an envelope's slope is no longer than the loss's own at the same scores."""
        bound = math.sqrt(1 - 1 / self.classes)
        return np.asarray((bound / np.maximum(bound, _longest(softmax(scores, axis=-1))))[:, np.newaxis])


def _longest(p: Floats) -> Floats:
    """The length of p - e_k, for the class k for which it is longest."""
    return np.asarray(np.sqrt(np.maximum(np.sum(p**2, axis=-1) - 2 * np.min(p, axis=-1) + 1, 0.0)))


# A loss in which classes count differently, by public weights.


@dataclass(frozen=True)
class Weighted(Loss):
    """A loss of labels, each user's times the weight of its class.

    Parameters
    ----------
    loss : Loss
        A loss of two classes (targets -1 and +1), or `Multinomial`.
    weights : tuple of float
        One positive weight for each class, in the order of the labels 0, 1, ...: public, never taken from the data.

    Notes
    -----
    With w the largest weight, a slope is at most w times as steep as the loss's own, and the curvature at most w times as large;
    `slope_bound` and `curvature` say so, and privacy follows from the first. The Moreau envelope of w f at beta has the slope
    w g(q w), g(q) being that of f: minimising w f(u) + (u - z)^2 / (2 q) is minimising f(u) + (u - z)^2 / (2 q w).

    Examples
    --------
    >>> from croupier.problem import Logistic, Weighted
    >>> loss = Weighted(Logistic(), weights=(0.1, 1.0))
    >>> loss.slope_bound(50.0), loss.curvature
    (1.0, 0.25)
    """

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        remedy = "Give one positive weight for each class, in the order of the labels."
        try:
            weights = tuple(real("weights", weight, above=0, at_most=1e6, remedy=remedy) for weight in self.weights)
        except TypeError:
            raise ArgumentError("weights", self.weights, "a tuple of numbers", remedy) from None
        object.__setattr__(self, "weights", weights)
        if not isinstance(self.loss, Loss) or len(self.weights) != self._classes():
            raise ArgumentError("weights", self.weights, "one for each class of a loss that has classes", remedy)

    def _classes(self) -> int:
        """How many labels the loss takes; 0 where its targets are numbers of any kind."""
        if self.loss.outputs > 1:
            return self.loss.outputs
        takes = self.loss.valid(np.array([0.0, 0.5, 1.0]))
        return 2 if takes.tolist() == [True, False, True] else 0

    @property
    def outputs(self) -> int:  # type: ignore[override]
        return self.loss.outputs

    @property
    def curvature(self) -> float | None:  # type: ignore[override]
        return None if self.loss.curvature is None else max(self.weights) * self.loss.curvature

    @property
    def usual_curvature(self) -> float | None:
        usual = self.loss.usual_curvature
        return None if usual is None else self._usual_weight * usual

    @property
    def _usual_weight(self) -> float:
        """The mean weight of users if weights make up for how rare classes are: the harmonic mean."""
        return len(self.weights) / sum(1 / weight for weight in self.weights)

    def targets(self, y: NDArray[np.generic]) -> Floats:
        return self.loss.targets(y)

    def valid(self, y: NDArray[np.generic]) -> NDArray[np.bool_]:
        return self.loss.valid(y)

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return self._of(targets) * self.loss.value(scores, targets)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return self._times(self._of(targets), self.loss.slope(scores, targets))

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        weights = self._of(targets)
        return self._times(weights, self.loss.prox_slope(scores, targets, q * weights))

    def slope_bound(self, score_bound: float) -> float:
        return max(self.weights) * self.loss.slope_bound(score_bound)

    def capped_slope(self, scores: Floats, targets: Floats, limits: Floats) -> Floats:
        # with the largest weight within the limit, and the factor the same for every label
        capped = self.loss.capped_slope(scores, targets, limits / max(self.weights))
        return self._times(self._of(targets), capped)

    def _of(self, targets: Floats) -> Floats:
        """Each user's weight, from its target as the loss has it: +1 or -1, or a 1 in the place of its class."""
        if self.loss.outputs > 1:
            return np.asarray(targets @ np.asarray(self.weights))
        return np.where(targets > 0, self.weights[1], self.weights[0])

    def _times(self, weights: Floats, slopes: Any) -> Floats:
        return np.asarray(slopes * (weights if np.ndim(slopes) == 1 else weights[:, np.newaxis]))
