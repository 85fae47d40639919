"""Second routes for the tests of the accounting: exact laws, exact divergences, 50-digit arithmetic, privacy loss distributions.

Nothing here calls the code under test. Small laws are made by convolution, large ones by scipy, reference values by mpmath.
"""

from __future__ import annotations

import functools
import math

import mpmath
import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import binom

DIGITS = 50


# --- 50-digit arithmetic -----------------------------------------------------------------------------------------------


def normal_cdf(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def normal_density(x):
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


def exact_gaussian_delta(epsilon, mu):
    """Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), correct to 50 digits: more are carried, as the terms may cancel."""
    with mpmath.workdps(2 * DIGITS + int(abs(epsilon) / 2)):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return normal_cdf(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * normal_cdf(-epsilon / mu - mu / 2)


def exact_normal_score(tail_probability, guess):
    """Phi^-1 of a probability to 50 digits, by Newton's iteration from a guess that is right to a few digits."""
    with mpmath.workdps(DIGITS + 20):
        x = mpmath.mpf(guess)
        for _ in range(6):
            x -= (normal_cdf(x) - tail_probability) / normal_density(x)
        return x


def exact_binomial(first, count, trials, probability):
    """(F(first), ..., F(first + count)) and the same of f, for a binomial, by summing the pmf to 50 digits."""
    with mpmath.workdps(DIGITS + 20):
        p = mpmath.mpf(probability)
        odds = p / (1 - p)
        log_f = mpmath.loggamma(trials + 1) - mpmath.loggamma(first + 1) - mpmath.loggamma(trials - first + 1)
        term = f_first = mpmath.exp(log_f + first * mpmath.log(p) + (trials - first) * mpmath.log(1 - p))
        total, y = mpmath.mpf(0), first
        while y >= 0 and term > total * mpmath.mpf(10) ** -DIGITS:
            total += term
            term *= mpmath.mpf(y) / ((trials - y + 1) * odds)
            y -= 1
        cdf, pmf = [total], [f_first]
        for y in range(first + 1, first + count + 1):
            pmf.append(pmf[-1] * (trials - y + 1) * odds / y)
            cdf.append(cdf[-1] + pmf[-1])
        return cdf, pmf


# --- exact laws --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def binomial_law(trials, probability):
    """The pmf of Bin(trials, probability) on 0..trials, by adding one coin at a time: sums of positive numbers only."""
    law = np.ones(1)
    for _ in range(trials):
        law = np.convolve(law, [1 - probability, probability])
    return law


def rounded_law(position):
    """(floor(a), [1 - frac(a), frac(a)]): the law of floor(a) + Bernoulli(frac(a))."""
    whole = math.floor(position)
    return whole, np.array([1 - (position - whole), position - whole])


def count_law(trials, probability, position, size):
    """The law on 0..size-1 of floor(a) + Bernoulli(frac a) + Bin(trials, p): one user at a >= 0, and all the noise."""
    whole, coin = rounded_law(position)
    law = np.zeros(size)
    law[whole : whole + trials + 2] = np.convolve(binomial_law(trials, probability), coin)
    return law


def hockey_stick(first, second, epsilon):
    """sum (P - e^eps Q)+, the exact delta at epsilon of P against Q."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def exact_delta(trials, probability, positions, shifts, epsilon):
    """The larger of the two directions' deltas for users at `positions` and `positions + shifts`, every outcome enumerated."""
    positions, others = np.asarray(positions, float), np.asarray(positions, float) + np.asarray(shifts, float)
    lowest = np.floor(np.minimum(positions, others))  # moving both alike moves the outcomes, not the divergence
    positions, others = positions - lowest, others - lowest
    size = trials + 3 + math.ceil(max(positions.max(), others.max()))
    laws = [functools.reduce(np.multiply.outer, (count_law(trials, probability, a, size) for a in x)) for x in (positions, others)]
    return max(hockey_stick(*laws, epsilon), hockey_stick(*laws[::-1], epsilon))


# --- privacy loss distributions ----------------------------------------------------------------------------------------


def _large_law(trials, probability, position, outcomes):
    whole, coin = rounded_law(position)
    y = outcomes - whole
    return coin[0] * binom.pmf(y, trials, probability) + coin[1] * binom.pmf(y - 1, trials, probability)


def loss_distribution(trials, probability, position, shift, *, optimistic, interval=1e-5):
    """dp_accounting's privacy loss distribution of one coordinate whose real encoding moves from a to a + s.

    Outcomes beyond 14 standard deviations are left out: their mass is below 1e-40.
    """
    std = math.sqrt(trials * probability * (1 - probability))
    centre = trials * probability + position
    low = max(0, math.floor(centre + min(shift, 0) - 14 * std - 2))
    high = math.ceil(centre + max(shift, 0) + 14 * std + 2)
    outcomes = np.arange(low, high + 1)
    first, second = (_large_law(trials, probability, a, outcomes) for a in (position, position + shift))
    common = (first > 0) & (second > 0)
    first, second = (dict(enumerate(np.log(law[common]).tolist())) for law in (first, second))
    return privacy_loss_distribution.from_two_probability_mass_functions(
        first, second, pessimistic_estimate=not optimistic, value_discretization_interval=interval, symmetric=False
    )


def composed_delta(trials, probability, moves, epsilon, *, optimistic, interval=1e-5):
    """delta at epsilon of many independent coordinates; `moves` lists (position, shift, how many coordinates)."""
    parts = []
    for position, shift, times in moves:
        one = loss_distribution(trials, probability, position, shift, optimistic=optimistic, interval=interval)
        parts.append(one.self_compose(times) if times > 1 else one)
    whole = functools.reduce(lambda x, y: x.compose(y), parts)
    return float(whole.get_delta_for_epsilon(epsilon))
