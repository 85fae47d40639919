"""Losses for regression: functions of the residual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..validation import real
from .loss import Floats, Loss

# Users per unit of residual, for targets that fill [-1, 1] and residuals of a tenth; an intercept puts all energy in one direction.
_RESIDUALS_AT_JUMP = 4.0


class _Residual(Loss):
    """Losses of the residual r = z - y."""


@dataclass(frozen=True)
class Squared(_Residual):
    """The squared loss (z - y)^2 / 2 for targets in [-target_bound, target_bound].

    Targets beyond the bound are clipped to it on the user's side.

    Parameters
    ----------
    target_bound : float, default 1.0
        A public bound on abs(y), above 0.

    Raises
    ------
    ArgumentError
        If target_bound is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Squared
    >>> loss = Squared(target_bound=2.0)
    >>> loss.targets(np.array([1.0, 5.0])).tolist(), loss.slope_bound(score_bound=3.0)
    ([1.0, 2.0], 5.0)
    """

    target_bound: float = 1.0
    curvature = 1.0

    def __post_init__(self) -> None:
        remedy = "State a public bound on abs(y)."
        object.__setattr__(self, "target_bound", real("target_bound", self.target_bound, above=0, remedy=remedy))

    def targets(self, y: NDArray[np.generic]) -> Floats:
        return np.clip(super().targets(y), -self.target_bound, self.target_bound)

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return (scores - targets) ** 2 / 2

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return scores - targets

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return (scores - targets) / (1 + q)

    def slope_bound(self, score_bound: float) -> float:
        return score_bound + self.target_bound


@dataclass(frozen=True)
class Huber(_Residual):
    """The Huber loss, squared for residuals up to `kappa` and linear beyond: for regression that outliers cannot pull.

    Parameters
    ----------
    kappa : float, default 1.0
        The residual, above 0, beyond which the loss is linear. It bounds the slope.

    Raises
    ------
    ArgumentError
        If kappa is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Huber
    >>> Huber(kappa=1.0).value(np.array([1.0, 3.0]), np.zeros(2)).tolist()
    [0.5, 2.5]
    """

    kappa: float = 1.0
    curvature = 1.0

    def __post_init__(self) -> None:
        remedy = "State the residual beyond which the loss is linear."
        object.__setattr__(self, "kappa", real("kappa", self.kappa, above=0, remedy=remedy))

    def value(self, scores: Floats, targets: Floats) -> Floats:
        size = np.abs(scores - targets)
        curved = np.minimum(size, self.kappa)
        return curved * (size - curved / 2)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.clip(scores - targets, -self.kappa, self.kappa)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return np.clip((scores - targets) / (1 + q), -self.kappa, self.kappa)

    def slope_bound(self, score_bound: float) -> float:
        return self.kappa


@dataclass(frozen=True)
class Pinball(_Residual):
    """The quantile loss: its minimiser predicts the `quantile`-quantile of the target. It is nonsmooth at z = y.

    Parameters
    ----------
    quantile : float, default 0.5
        Between 0 and 1, both excluded; 0.5 is the median.

    Raises
    ------
    ArgumentError
        If quantile is not between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Pinball
    >>> Pinball(quantile=0.75).value(np.array([1.0, -1.0]), np.zeros(2)).tolist()
    [0.25, 0.75]
    """

    quantile: float = 0.5

    def __post_init__(self) -> None:
        remedy = "0.5 is the median."
        object.__setattr__(self, "quantile", real("quantile", self.quantile, above=0, below=1, remedy=remedy))

    @property
    def usual_curvature(self) -> float:
        return _RESIDUALS_AT_JUMP

    def value(self, scores: Floats, targets: Floats) -> Floats:
        residual = scores - targets
        return np.maximum((1 - self.quantile) * residual, -self.quantile * residual)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.where(scores > targets, 1 - self.quantile, -self.quantile)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return np.clip(scores - targets, -self.quantile * q, (1 - self.quantile) * q) / q

    def slope_bound(self, score_bound: float) -> float:
        return max(self.quantile, 1 - self.quantile)


@dataclass(frozen=True)
class Absolute(_Residual):
    """The absolute loss abs(z - y), for median regression. It is nonsmooth at z = y.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Absolute
    >>> Absolute().slope(np.array([3.0, -2.0]), np.zeros(2)).tolist()
    [1.0, -1.0]
    """

    @property
    def usual_curvature(self) -> float:
        return 2 * _RESIDUALS_AT_JUMP

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.abs(scores - targets)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        return np.sign(scores - targets)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        return np.clip(scores - targets, -q, q) / q

    def slope_bound(self, score_bound: float) -> float:
        return 1.0


@dataclass(frozen=True)
class EpsilonInsensitive(_Residual):
    """The loss max(0, abs(z - y) - width) of support vector regression. It is nonsmooth at abs(z - y) = width.

    Parameters
    ----------
    width : float, default 0.1
        Residuals up to this size, above 0, cost nothing. Elsewhere it is called epsilon, a name that is taken here.

    Raises
    ------
    ArgumentError
        If width is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import EpsilonInsensitive
    >>> EpsilonInsensitive(width=0.5).value(np.array([0.25, 2.0]), np.zeros(2)).tolist()
    [0.0, 1.5]
    """

    width: float = 0.1

    def __post_init__(self) -> None:
        remedy = "Residuals up to the width cost nothing; Absolute has width 0."
        object.__setattr__(self, "width", real("width", self.width, above=0, remedy=remedy))

    @property
    def usual_curvature(self) -> float:
        return 2 * _RESIDUALS_AT_JUMP  # two such places

    def value(self, scores: Floats, targets: Floats) -> Floats:
        return np.maximum(0.0, np.abs(scores - targets) - self.width)

    def slope(self, scores: Floats, targets: Floats) -> Floats:
        residual = scores - targets
        return np.where(np.abs(residual) > self.width, np.sign(residual), 0.0)

    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        residual = scores - targets
        return np.sign(residual) * np.clip(np.abs(residual) - self.width, 0, q) / q

    def slope_bound(self, score_bound: float) -> float:
        return 1.0
