"""A loss in which classes count differently, by public weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError, real
from .loss import Floats, Loss


@dataclass(frozen=True)
class Weighted(Loss):
    """A loss of labels, each user's times the weight of its class.

    Parameters
    ----------
    loss : Loss
        A loss of two classes (targets -1 and +1), or `Multinomial`.
    weights : tuple of float
        One positive weight for each class, in the order of the labels 0, 1, ...: public, never read off the data.

    Raises
    ------
    ArgumentError
        Where the loss has no classes, or there is not one positive weight for each.

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

    def _of(self, targets: Floats) -> Floats:
        """Each user's weight, from its target as the loss has it: +1 or -1, or a 1 in the place of its class."""
        if self.loss.outputs > 1:
            return np.asarray(targets @ np.asarray(self.weights))
        return np.where(targets > 0, self.weights[1], self.weights[0])

    def _times(self, weights: Floats, slopes: Any) -> Floats:
        return np.asarray(slopes * (weights if np.ndim(slopes) == 1 else weights[:, np.newaxis]))
