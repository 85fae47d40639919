"""What secret lots mean for a schedule: which noise to expect, and what rounds of random sizes cost (docs/optimizer.md).

Every user is in one of T rounds. A round's sum is divided by the public n / T, not by the number of users that drew it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

# Rounds that a schedule chooses at most: beyond them a round's noise hardly falls any more.
MOST_ROUNDS = 1000
# How much of the closed form is lost in the tails that delta is about: fitted to certified figures, within 7 % of them.
_TAILS = 0.08


def expected_mu(alone: float, rounds: int) -> float:
    """About the mu that a round may have, for choosing a schedule. What is run is certified in full by `plan_lots`.

    Parameters
    ----------
    alone : the mu of a report against a blank that one known round may have.
    rounds : T.

    Returns
    -------
    float : mu with (e^(mu^2) - 1) / T = alone^2, which gives the likelihood ratio of T secret rounds the variance of one known
        round, less what its longer tail costs.

    Examples
    --------
    >>> 0.45 < expected_mu(0.117, 20) < 0.51  # the certified one is 0.48
    True
    """
    spread = math.log1p(rounds * alone**2)
    return max(alone, math.sqrt(spread) / (1 + _TAILS * spread))


@lru_cache(maxsize=1 << 14)
def drift(rounds: int, accelerated: bool) -> float:
    """What it costs that later rounds make up for earlier ones, in units of L times the diameter / sqrt(users).

    Parameters
    ----------
    rounds : T. accelerated : whether round t has AC-SA's weight, 2 t / (T (T + 1)), or the same as all.

    Returns
    -------
    float : the weighted sum of sqrt((t - 1) / (T - t + 1)); at most 2.36 with AC-SA's weights, and pi / 2 with equal ones.
    """
    t = np.arange(1, rounds + 1)
    weights = 2 * t / (rounds * (rounds + 1)) if accelerated else 1 / rounds
    return float(np.sum(weights * np.sqrt((t - 1) / (rounds - t + 1))))


@lru_cache(maxsize=1 << 14)
def spread(rounds: int) -> float:
    """The variance of AC-SA's gradients, relative to that of rounds whose users are independent of earlier rounds' users.

    Parameters
    ----------
    rounds : T.

    Returns
    -------
    float : the mean of 1 + (t - 1) / (T (T - t + 1)) with weights t^2; 1 + O(log T / T).
    """
    t = np.arange(1, rounds + 1)
    return float(1 + np.average((t - 1) / (rounds * (rounds - t + 1)), weights=t.astype(np.float64) ** 2))
