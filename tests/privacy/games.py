"""Games against figures that are printed while mechanisms run: exact values, by dynamic programming and by quadrature.

Nothing here calls the code under test. Mechanisms are Gaussians, and ones that tell all with a small probability and else nothing:
both meet their guarantee exactly. The value of a game is the largest over strategies of E_P[(1 - e^claim Q/P)_+], the delta that
the claimed epsilons would have needed.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad
from scipy.signal import fftconvolve
from scipy.special import ndtr
from scipy.stats import norm


def optimal_stopping(mus, claims):
    """Rounds of N(mu, 1) against N(0, 1), stopped after any of them: `claims[t]` is the epsilon printed after t + 1 rounds."""
    total = math.sqrt(sum(mu**2 for mu in mus))
    step = total / 2000
    losses = np.arange(-round(12 * total / step), round(14 * total / step) + 1) * step  # log P/Q of what was seen
    value = _gain(losses, claims[-1])
    for t in range(len(mus) - 1, -1, -1):
        near = np.arange(-round(10 * mus[t] / step), round(10 * mus[t] / step) + 1) * step
        weights = norm.pdf(near, mus[t] ** 2 / 2, mus[t]) * step  # of the next loss, under P
        ends = np.concatenate([np.full(len(near), value[0]), value, np.full(len(near), value[-1])])
        value = fftconvolve(ends, weights[::-1], mode="same")[len(near) : -len(near)]
        if t:
            value = np.maximum(value, _gain(losses, claims[t - 1]))
    return float(value[np.searchsorted(losses, -step / 2)])


def _gain(losses, epsilon):
    return np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0)))


def gaussian_value(loss, mu):
    """Hockey-stick divergence of N(mu, 1) from N(0, 1) at a real epsilon, from scipy's cdf alone; of equal laws where mu is 0."""
    if mu == 0:
        return max(0.0, -math.expm1(loss)) if loss < 0 else 0.0
    return float(ndtr(mu / 2 - loss / mu) - math.exp(loss) * ndtr(-mu / 2 - loss / mu))


def slack_value(loss, slack):
    """The same of a mechanism that tells all with probability `slack`, and nothing otherwise."""
    return slack + (1 - slack) * gaussian_value(loss, 0.0)


def branching(epsilon, mu, border, low, high):
    """First N(mu, 1) against N(0, 1); then the value `low(loss)` where the outcome was below `border`, else `high(loss)`.

    The two are functions of the epsilon that is left, after what the first outcome told.
    """

    def value(x, of):
        return norm.pdf(x - mu) * of(epsilon - (mu * x - mu**2 / 2))

    parts = [(-12.0, border, low), (border, border + 12.0, high)]
    return sum(quad(value, start, end, (of,), epsabs=1e-16, epsrel=1e-9, limit=500)[0] for start, end, of in parts)
