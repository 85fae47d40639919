"""P_SGD (Algorithm 3) and P_GD (Algorithm 5): projected descent along private mean gradients, iterates averaged.

They differ in who answers: new users in every round, or all users in every round. Both step against the gradient (the printed
sign is an erratum, docs/deviations.md).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Oracle = Callable[[Floats], Floats]


def descent(oracle: Oracle, project: Callable[[Floats], Floats], start: Floats, rounds: int, step: float) -> Floats:
    """Run projected descent and return the average of its points.

    Parameters
    ----------
    oracle : function
        From a point to the private mean gradient there; called once a round.
    project : function
        From a point to the nearest point of the domain.
    start : ndarray
        The first point.
    rounds : int
        T, how many rounds.
    step : float
        How far one round goes along a gradient.

    Returns
    -------
    ndarray
        The average of theta_0 .. theta_(T-1), where theta_t = project(theta_(t-1) - step * oracle(theta_(t-1))).

    Examples
    --------
    >>> import numpy as np
    >>> point = descent(lambda theta: theta - 1, lambda theta: theta, np.zeros(2), 1000, 0.5)
    >>> bool(np.allclose(point, 1, atol=0.01))
    True
    """
    theta = start
    average = np.zeros_like(start)
    for t in range(rounds):
        average += (theta - average) / (t + 1)
        theta = project(theta - step * oracle(theta))
    return average
