"""P_AGD (Algorithm 4): the accelerated stochastic approximation AC-SA of Lan (2012) along private mean gradients.

alpha_t = 2/(t+1) and L_t = damping / t (erratum 3). `damping` is t L_t, constant in t: 2 beta + (sigma/D) sqrt(T(T+1)(2T+1)/6)
gives the bound that `schedule` states. With `paper`, the printed alpha_t = 2/(t+2) and L_t = damping / (t+1) are used instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Oracle = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Iterate:
    """Where AC-SA stands before round t: theta_t and theta^ag_t."""

    t: int
    theta: Floats
    aggregate: Floats

    def middle(self, paper: bool = False) -> Floats:
        """theta^md_t, the point at which round t asks for the gradient (line 3)."""
        alpha = 2 / (self.t + 1 + paper)
        return alpha * self.theta + (1 - alpha) * self.aggregate

    def step(self, gradient: Floats, project: Callable[[Floats], Floats], damping: float, paper: bool = False) -> Iterate:
        """Lines 5 and 6: theta_{t+1} minimises <g, .> + L_t/2 |. - theta_t|^2 over the domain, then theta^ag_{t+1}."""
        alpha = 2 / (self.t + 1 + paper)
        theta = project(self.theta - (self.t + paper) / damping * gradient)
        return replace(self, t=self.t + 1, theta=theta, aggregate=alpha * theta + (1 - alpha) * self.aggregate)


def acsa(
    oracle: Oracle, project: Callable[[Floats], Floats], start: Floats, rounds: int, damping: float, *, paper: bool = False
) -> Floats:
    """Run AC-SA and return its last aggregate.

    Parameters
    ----------
    oracle : function
        From a point to the private mean gradient there; called once per round.
    project : function
        From a point to the nearest point of the domain.
    start : ndarray
        The first point.
    rounds : int
        T, how many rounds.
    damping : float
        t L_t: the larger, the shorter the steps.
    paper : bool, default False
        Whether the paper's printed steps are taken.

    Returns
    -------
    ndarray
        theta^ag_(T+1).

    Examples
    --------
    >>> import numpy as np
    >>> point = acsa(lambda theta: theta - 1, lambda theta: theta, np.zeros(2), 50, 2.0)
    >>> bool(np.allclose(point, 1, atol=0.01))
    True
    """
    iterate = Iterate(1, start, start)
    for _ in range(rounds):
        iterate = iterate.step(oracle(iterate.middle(paper)), project, damping, paper)
    return iterate.aggregate


# P_SGD (Algorithm 3) and P_GD (Algorithm 5): projected descent along private mean gradients, iterates averaged.
#
# They differ in who answers: new users in every round, or all users in every round. Both step against the gradient (the printed
# sign is an erratum, docs/deviations.md).

# Standard deviations of the product of two gradients of noise: below minus this many, it is not noise that turns them.
_TURNED = 5.0


def descent(
    oracle: Oracle,
    project: Callable[[Floats], Floats],
    start: Floats,
    rounds: int,
    step: float,
    *,
    tail: bool = False,
    momentum: float = 0.0,
    noise: float = 0.0,
) -> Floats:
    """Run projected descent and return the average of its points.

    Parameters
    ----------
    oracle : function
        From a point to the private mean gradient there; called once per round.
    project : function
        From a point to the nearest point of the domain.
    start : ndarray
        The first point.
    rounds : int
        T, how many rounds.
    step : float
        How far one round goes along a gradient.
    tail : bool, default False
        Whether to average the later half of the points alone, which has forgotten the start.
    momentum : float, default 0.0
        Nesterov's: the part of the last move that is made again, before the gradient is asked for.
    noise : float, default 0.0
        With momentum: the standard deviation of a gradient's length. Where a gradient turns against the one before, by more than
        noise explains and by most of its length, steps are too long: they are halved, and the last move is forgotten.

    Returns
    -------
    ndarray
        The average of theta_0 .. theta_(T-1), where theta_t = project(theta_(t-1) - step * oracle(theta_(t-1))); with `tail`, of
        those theta_1 .. theta_T whose t is above T / 2.

    Examples
    --------
    >>> import numpy as np
    >>> point = descent(lambda theta: theta - 1, lambda theta: theta, np.zeros(2), 1000, 0.5)
    >>> bool(np.allclose(point, 1, atol=0.01))
    True
    """
    theta, move, last = start, np.zeros_like(start), np.zeros_like(start)
    average, kept = np.zeros_like(start), 0
    least = -_TURNED * noise**2 / math.sqrt(start.size)
    for t in range(rounds):
        before, ahead = theta, theta + momentum * move
        gradient = oracle(ahead)
        product, lengths = float(gradient @ last), float(np.linalg.norm(gradient) * np.linalg.norm(last))
        turned = bool(momentum) and product < min(least, -lengths / 2)
        step = step / 2 if turned else step
        theta = project(ahead - step * gradient)
        move, last = (theta - before) * (not turned), gradient
        if not tail or t >= rounds // 2:
            kept += 1
            average += ((theta if tail else before) - average) / kept
    return average
