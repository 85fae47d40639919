"""Other ways to a private mean of vectors of length at most 1, each by its published accounting, for replace-one neighbours.

Nothing here is run on data: these are the formulas that benchmarks/sum.py compares with. Where a choice is left it is the one that
suits the mechanism best. tests/benchmarks/test_mechanisms.py checks every formula by a second route.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import betainc, gammaln
from scipy.stats import binom

Floats = NDArray[np.float64]
# Skellam's theorem is for whole orders, the discrete Gaussian's for all.
WHOLE_ORDERS = np.unique(np.concatenate([np.arange(2, 513), np.geomspace(513, 1e6, 300).astype(int)])).astype(float)
REAL_ORDERS = np.unique(np.concatenate([np.linspace(1.05, 30, 580), WHOLE_ORDERS]))
# beta of conditional rounding, as in both papers' experiments: a rounded vector that is too long is drawn again
ROUND_AGAIN = math.exp(-1 / 2)
BISECTIONS = 60


def epsilon_of(orders: Floats, divergences: Floats, delta: float) -> float:
    """Least epsilon at delta that Renyi divergences imply (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    bounds = divergences + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(0.0, float(np.min(bounds)))


# --- secure aggregation ---------------------------------------------------------------------------------------------------------


def padded(dim: int) -> int:
    """Coordinates after flattening by a random Hadamard rotation: the next power of two."""
    return 1 << (dim - 1).bit_length()


def rounded_norm(length: float, dim: int) -> float:
    """l2 norm that a vector of this length may have after conditional random rounding to whole numbers (Kairouz et al. 2021)."""
    tail = math.sqrt(2 * math.log(1 / ROUND_AGAIN))
    return min(length + math.sqrt(dim), math.sqrt(length**2 + dim / 4 + tail * (length + math.sqrt(dim) / 2)))


def skellam_divergences(orders: Floats, shift: float, dim: int, variance: float) -> Floats:
    """Renyi divergences of Skellam noise of this variance in each coordinate, shifted by whole numbers of l2 norm at most `shift`.

    Agarwal, Kairouz and Liu 2021, Corollary 3.6. The l1 norm is at most sqrt(dim) times the l2 norm, and, of whole numbers, at
    most its square.
    """
    taxi = min(math.sqrt(dim) * shift, shift**2)
    beyond = np.minimum(((2 * orders - 1) * shift**2 + 6 * taxi) / (4 * variance**2), 3 * taxi / (2 * variance))
    return np.asarray(orders * shift**2 / (2 * variance) + beyond)


def discrete_gaussian_divergences(orders: Floats, shift: float, dim: int, variance: float, users: int) -> Floats:
    """The same for a sum of `users` discrete Gaussians of parameter sigma^2 = variance / users each.

    Kairouz, Liu and Steinke 2021, Proposition 14, for sigma >= 1/2. tau bounds how far the sum is from a discrete Gaussian.
    """
    sigma2 = variance / users
    if sigma2 < 1 / 4:
        return np.full_like(orders, math.inf)
    tau = 10 * _sum_of_tails(2 * math.pi**2 * sigma2, users)
    taxi = min(math.sqrt(dim) * shift, shift**2)
    ratio = shift / math.sqrt(variance)
    by_distance = orders / 2 * ratio**2 + tau * dim
    by_taxi = orders / 2 * (ratio**2 + 2 * taxi / math.sqrt(variance) * tau + tau**2 * dim)
    by_norm = orders / 2 * (ratio + tau * math.sqrt(dim)) ** 2
    return np.asarray(np.minimum(np.minimum(by_distance, by_taxi), by_norm))


def _sum_of_tails(rate: float, users: int) -> float:
    """sum over k = 1 .. users - 1 of exp(-rate k / (k + 1)); beyond 4 096, blocks by their largest term."""
    starts, sizes = _blocks(users)
    return float(np.sum(sizes * np.exp(-rate * starts / (starts + 1))))


@lru_cache
def _blocks(users: int) -> tuple[Floats, Floats]:
    exact = np.arange(1, min(users, 4097), dtype=float)
    later = np.unique(np.geomspace(4097, users, 400).astype(int))[:-1].astype(float) if users > 4097 else np.empty(0)
    starts = np.concatenate([exact, later])
    return starts, np.diff(np.append(starts, users))


@dataclass(frozen=True)
class Aggregated:
    """A plan of secure aggregation: `step` of the grid, noise `variance` of the sum in squared steps, `bits` per coordinate.

    `error` is the root mean squared l2 error of the mean: noise, rounding (at most 1/4 a coordinate and user, as if rounding were
    never conditional, which it is) and wrapping round the modulus.
    """

    bits: int
    dim: int
    step: float
    variance: float
    error: float

    @property
    def bits_per_user(self) -> int:
        """Whole numbers modulo 2^bits; keys and shares of masks come on top."""
        return self.bits * padded(self.dim)


Divergences = Callable[[Floats, float, int, float, int], Floats]
SKELLAM: tuple[Floats, Divergences] = (
    WHOLE_ORDERS,
    lambda a, shift, dim, variance, _: skellam_divergences(a, shift, dim, variance),
)
DISCRETE_GAUSSIAN: tuple[Floats, Divergences] = (REAL_ORDERS, discrete_gaussian_divergences)


def aggregated(noise: tuple[Floats, Divergences], epsilon: float, delta: float, users: int, dim: int, bits: int) -> Aggregated:
    """The plan with the least error at this many bits: the step is chosen for it.

    Flattened by a random rotation a coordinate of the sum is sub-Gaussian with variance at most (users / sqrt(padded dim))^2.
    Neighbours replace a vector: each is rounded to a norm of at most rounded_norm, so their difference is at most twice as long.
    """

    def at(log_step: float) -> Aggregated:
        step = math.exp(log_step)
        variance = least_variance(noise, epsilon, delta, users, padded(dim), 2 * rounded_norm(1 / step, padded(dim)))
        spread = variance + users / 4
        wrapped = wrap_error(2.0**bits, math.sqrt(spread + (users / step) ** 2 / padded(dim)))
        return Aggregated(bits, dim, step, variance, step * math.sqrt(dim * (spread + wrapped)) / users)

    # where the range is 1 to 60 standard deviations of the sum of equal vectors
    least = math.log(2 * users / math.sqrt(padded(dim)) / 2.0**bits)
    grid = [at(point) for point in np.linspace(least, least + math.log(60), 40)]
    best = min(range(len(grid)), key=lambda i: grid[i].error)
    around = [math.log(grid[i].step) for i in (max(0, best - 1), min(len(grid) - 1, best + 1))]
    return at(minimize_scalar(lambda point: at(point).error, bounds=around, method="bounded", options={"xatol": 1e-4}).x)


def least_variance(noise: tuple[Floats, Divergences], epsilon: float, delta: float, users: int, dim: int, shift: float) -> float:
    """Least variance of the sum, in squared steps, that is (epsilon, delta)-private for this shift; rounded up."""
    orders, divergences = noise

    def holds(variance: float) -> bool:
        return epsilon_of(orders, divergences(orders, shift, dim, variance, users), delta) <= epsilon

    high = 1.0
    while not holds(high):
        high *= 4
    low = 0.0 if high == 1.0 else high / 4
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if high - low < 1e-6 * high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def wrap_error(modulus: float, std: float) -> float:
    """Mean squared error, at most, of a sub-Gaussian number taken modulo `modulus` about 0: j moduli where it is beyond j - 1/2."""
    j = np.arange(1, 9)
    return float(modulus**2 * np.sum((2 * j - 1) * np.minimum(1.0, 2 * np.exp(-(((j - 0.5) * modulus / std) ** 2) / 2))))


def enough_bits(
    noise: tuple[Floats, Divergences], epsilon: float, delta: float, users: int, dim: int, excess: float = 1.05
) -> Aggregated:
    """The fewest bits whose error is within `excess` of what very many bits would give."""
    limit = excess * aggregated(noise, epsilon, delta, users, dim, 60).error
    low, high = 1, 60
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if aggregated(noise, epsilon, delta, users, dim, middle).error <= limit else (middle, high)
    return aggregated(noise, epsilon, delta, users, dim, high)


# --- one message a user ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivUnit:
    """PrivUnit (Bhowmick et al. 2018): a point of a cap {v: <v, u> >= height} about the unit vector u, or, seldom, outside it.

    The density is e^epsilon times as high within. `mean` is E<v, u>: users send v / mean, which is unbiased.
    """

    dim: int
    epsilon: float
    height: float

    @property
    def cap(self) -> float:
        """The cap's share of the sphere."""
        return float(betainc((self.dim - 1) / 2, 1 / 2, 1 - self.height**2)) / 2

    @property
    def inside(self) -> float:
        """Chance to send a point of the cap."""
        return math.exp(self.epsilon) * self.cap / (1 + math.expm1(self.epsilon) * self.cap)

    @property
    def mean(self) -> float:
        # of <v, u> over the cap, v uniform on the sphere: the integral of c t (1 - t^2)^((d - 3) / 2) from height to 1
        log_c = gammaln(self.dim / 2) - gammaln((self.dim - 1) / 2) - math.log(math.pi) / 2
        moment = math.exp(float(log_c) + (self.dim - 1) / 2 * math.log1p(-(self.height**2))) / (self.dim - 1)
        return moment * math.expm1(self.epsilon) / (1 + math.expm1(self.epsilon) * self.cap)

    def error(self, users: int) -> float:
        """Root mean squared l2 error of the mean of unit vectors."""
        return math.sqrt((1 / self.mean**2 - 1) / users)


@lru_cache
def priv_unit(epsilon: float, dim: int) -> PrivUnit:
    """PrivUnit at its best height: optimal among all unbiased randomizers of unit vectors (Asi, Feldman and Talwar 2022)."""

    def loss(height: float) -> float:
        return -PrivUnit(dim, epsilon, height).mean

    grid = np.linspace(0, 1, 400, endpoint=False)
    best = int(np.argmin([loss(height) for height in grid]))
    around = (grid[max(0, best - 1)], grid[best + 1] if best + 1 < len(grid) else 1 - 1e-9)
    found = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-9}).x
    return PrivUnit(dim, epsilon, min(float(found), float(grid[best]), key=loss))


def clones_delta(local_epsilon: float, epsilon: float, users: int) -> float:
    """delta at `epsilon` of shuffled messages of an epsilon_0-private randomizer, an upper bound.

    Feldman, McMillan and Talwar, Hiding Among the Clones (2021), Theorem 3.2: no more than of (A + B, C + 1 - A - B) with
    B ~ Bernoulli(a) against Bernoulli(1 - a), a = e^epsilon_0 / (e^epsilon_0 + 1), A ~ Bin(C, 1/2), C ~ Bin(users - 1,
    e^-epsilon_0). The sharper bound of their paper of 2023 has an erratum: it does not hold for every randomizer.
    """
    a = 1 / (1 + math.exp(-local_epsilon))
    clones = binom(users - 1, math.exp(-local_epsilon))
    reach = 9 * clones.std() + 40
    low, high = max(0, math.floor(clones.mean() - reach)), min(users - 1, math.ceil(clones.mean() + reach))
    c = np.arange(low, high + 1)
    # given C = c the likelihood ratio grows with x = A + B: it is above e^epsilon from `first` on
    first = np.floor((c + 1) * (a - 1 / (1 + math.exp(epsilon))) / (2 * a - 1)) + 1
    half = binom(c, 0.5)
    at_least, at_least_less_one = half.sf(first - 1), half.sf(first - 2)
    growth = math.exp(epsilon)
    deltas = (a - growth * (1 - a)) * at_least_less_one + ((1 - a) - growth * a) * at_least
    outside = clones.cdf(low - 1) + clones.sf(high)
    return float(np.sum(clones.pmf(c) * np.clip(deltas, 0.0, 1.0)) + outside)


def local_epsilon_for(epsilon: float, delta: float, users: int) -> float:
    """Largest epsilon_0 whose shuffled messages are (epsilon, delta)-private by `clones_delta`; at least epsilon; rounded down."""
    low, high = epsilon, epsilon + math.log(users) + 1
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if clones_delta(middle, epsilon, users) <= delta else (low, middle)
    return low
