"""The Gaussian yardstick: hockey-stick divergence of N(mu, 1) from N(0, 1), and its inverses.

    deltaG(eps; mu) = Phi(-eps/mu + mu/2) - exp(eps) Phi(-eps/mu - mu/2)

(Balle and Wang 2018; Dong, Roth and Su 2019). Every function rounds to the safe side: deltas and epsilons up, admissible
mu down.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.special import erf, log_ndtr

from ..validation import real

# Relative error allowed for the two tail probabilities; their own error is far smaller (tests compare with 50 digits).
_TAIL_ERROR = 1e-12
_BISECTIONS = 200


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Compute deltaG(epsilon; mu), the smallest delta such that mu-Gaussian privacy implies (epsilon, delta)."""
    if mu < 0 or math.isnan(mu) or math.isnan(epsilon):
        raise ValueError(f"no Gaussian divergence for epsilon = {epsilon}, mu = {mu}")
    if mu == 0:
        return max(0.0, -math.expm1(epsilon)) if epsilon < 0 else 0.0
    if math.isinf(mu):
        return 1.0
    mu = max(mu, 1e-150)  # more than asked for is safe, and epsilon / mu stays finite
    if epsilon == 0:
        return min(1.0, float(erf(mu / math.sqrt(8))) * (1 + _TAIL_ERROR))
    upper = math.exp(float(log_ndtr(-epsilon / mu + mu / 2)))
    lower = math.exp(min(0.0, epsilon + float(log_ndtr(-epsilon / mu - mu / 2))))
    return min(1.0, max(0.0, upper - lower) + _TAIL_ERROR * (upper + lower))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Find the largest mu whose Gaussian divergence at `epsilon` is at most `delta` (a root of deltaG), by bisection."""
    real("epsilon", epsilon, above=0, remedy="Choose the privacy loss you promise; 1 is a common value.")
    real("delta", delta, above=0, below=1, remedy="Choose delta well below 1 / users; 1e-6 is a common value.")
    return _largest_mu(float(epsilon), float(delta))


@lru_cache(maxsize=1024)
def _largest_mu(epsilon: float, delta: float) -> float:
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if gaussian_delta(epsilon, middle) <= delta else (low, middle)
    return low


def central_noise_std(epsilon: float, delta: float, sensitivity: float, rounds: int = 1) -> float:
    """Compute the noise of the central analytic Gaussian mechanism (Balle and Wang 2018) per coordinate and round.

    This is the limit we compare with: a trusted curator who adds N(0, std^2) to each coordinate of the sum.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for all rounds together.
    sensitivity : float
        l2 distance that one user can move the sum by, in units of the data.
    rounds : int, default 1
        The rounds that a user takes part in.

    Returns
    -------
    float
        The standard deviation, in units of the data.

    Examples
    --------
    >>> round(central_noise_std(1.0, 1e-6, 2.0), 2)
    8.45
    """
    return sensitivity / gaussian_mu(epsilon, delta) * math.sqrt(rounds)
