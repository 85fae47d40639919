"""Losses whose gradients need no clipping, and whose minimiser is still that of the logistic loss: coefficients of the model.

Clipping a logistic gradient to half its bound shortens those of people whose label the model did not expect, and no others: scores
are then no log-odds. Here both labels' gradients are shortened alike, by a factor that depends on the row and the weights alone. At
the true parameters of a logistic model the mean gradient is still 0 for every row, and no gradient is longer than the steepest at
theta = 0 (docs/optimizer.md, "The capped loss").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax, wrightomega

from .classification import Logistic, Multinomial
from .loss import Floats


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
        Where classes is no whole number of at least 2.

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
        p = softmax(scores, axis=-1)
        longest = np.sqrt(np.maximum(np.sum(p**2, axis=-1) - 2 * np.min(p, axis=-1) + 1, 0.0))
        bound = math.sqrt(1 - 1 / self.classes)
        return np.asarray((bound / np.maximum(bound, longest))[:, np.newaxis])
