"""How the rounds of a run look: between which lengths noise alone would lie."""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.stats import chi2

from ..privacy import SumPlan

# The share of the lengths of noise alone that a band holds.
BAND = 0.95


def noise_norms(plan: SumPlan, users: int, mean_of: float | None = None) -> tuple[float, float]:
    """Between which lengths the noise of a mean gradient lies: dim independent coordinates, close to Gaussian.

    `users` are the reports of a round, and `mean_of` is what their sum was divided by: `Phase.mean_of`, or the users.
    """
    std = plan.noise_std_for(users) / (mean_of or users)
    low, high = _unit_norms(plan.dim)
    return std * low, std * high


@lru_cache(maxsize=16)
def _unit_norms(dim: int) -> tuple[float, float]:
    ends = chi2.ppf([(1 - BAND) / 2, (1 + BAND) / 2], dim)
    return math.sqrt(ends[0]), math.sqrt(ends[1])
