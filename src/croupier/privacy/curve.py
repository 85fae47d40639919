"""Power curves: how well a pair of hypotheses can be told apart, as a polygon with safely rounded vertices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]

# Relative error allowed for an interpolation, a product and a difference of vertices; their own errors are far below.
_ARITHMETIC = 1e-12
# Absolute and relative error allowed for differences of normal quantiles.
_QUANTILES = 1e-9


@dataclass(frozen=True, eq=False)
class PowerCurve:
    """An upper bound on the power of every test of one hypothesis against another, given its level.

    The bound is the polygon through (levels, powers), from level 0 to (1, 1). It is 1 - f, where f is the trade-off function.

    Parameters
    ----------
    levels : numpy.ndarray of float64
        Ascending, rounded down.
    powers : numpy.ndarray of float64
        Ascending, rounded up.
    """

    levels: Floats
    powers: Floats

    def delta(self, epsilon: float) -> float:
        """Compute the hockey-stick divergence: a polygon is farthest from a line at one of its vertices.

        Parameters
        ----------
        epsilon : float
            The privacy loss, at most 700.

        Returns
        -------
        float
            The divergence, rounded up; at most 1.
        """
        gaps = self.powers * (1 + _ARITHMETIC) - math.exp(epsilon) * (1 - _ARITHMETIC) * self.levels
        return min(1.0, max(0.0, float(np.max(gaps))))

    def after(self, first: PowerCurve) -> PowerCurve:
        """Join two steps: a test of level a has at most first(a) under the middle, and so self(first(a)) at the end.

        Parameters
        ----------
        first : PowerCurve
            The step that is taken first.

        Returns
        -------
        PowerCurve
            A bound on the power of both steps together.
        """
        corners = np.interp(first.powers * (1 + _ARITHMETIC), self.levels, self.powers) * (1 + _ARITHMETIC)
        preimages = np.interp(self.levels, first.powers, first.levels, left=0.0) * (1 - _ARITHMETIC)
        start = float(corners[0])
        levels = np.concatenate([first.levels, preimages])
        powers = np.concatenate([corners, np.maximum(self.powers, start)])
        return PowerCurve(levels, np.minimum(powers, 1.0))

    def gaussian(self, slack: float) -> float:
        """Find a mu whose Gaussian power curve, raised by `slack`, lies on or above this one at every level.

        It is enough to look at the vertices: between them this curve is its chord, and the Gaussian one is above its own.

        Parameters
        ----------
        slack : float
            How far the Gaussian curve is raised, at least 0.

        Returns
        -------
        float
            The mu, rounded up; infinite where the power at level 0 exceeds the slack.
        """
        needed = self.powers - slack
        telling = needed > 0
        if not telling.any():
            return 0.0
        levels, needed = self.levels[telling], needed[telling]
        if np.any(levels <= 0):
            return math.inf
        quantiles = ndtri(np.minimum(needed, 1.0)), ndtri(np.minimum(levels, 1.0))
        inside = (needed < 1.0) & (levels < 1.0)  # at level 1 every power is allowed
        if np.any((needed >= 1.0) & (levels < 1.0)):
            return math.inf
        if not inside.any():
            return 0.0
        largest = float(np.max(quantiles[0][inside] - quantiles[1][inside]))
        return max(0.0, largest + _QUANTILES * (1 + abs(largest)))
