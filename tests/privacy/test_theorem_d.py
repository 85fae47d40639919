"""Lemma D and Theorem D of docs/accounting.md, section 3, against exact laws. No plan relies on them yet."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from oracles import binomial_law, composed_delta, exact_delta
from scipy.special import ndtri
from scipy.stats import norm

from croupier.privacy import certify
from croupier.privacy.gaussian import gaussian_delta


def theorem_d(found, shift, dim, epsilon):
    """The statement as it is printed, minimised over a grid of lambda and eps1; `found` has c, ct and tau."""
    k = found.slope**2 / 8
    mu = found.step * shift + 2 * found.step * k * math.sqrt(dim)
    best = 1.0
    for lam in np.geomspace(0.5, 0.99 / (2 * k + k * k), 100):
        first = -lam * math.log1p(-k) - math.log1p(lam * (2 * k - k * k)) / 2
        second = -lam * math.log1p(k) - math.log1p(-lam * (2 * k + k * k)) / 2
        moment = dim * (np.logaddexp(first, second) - math.log(2))
        for given_up in np.geomspace(1e-12, 0.3, 60):
            taken = (moment - math.log(given_up)) / lam
            if taken >= 0:
                best = min(best, given_up + math.exp(taken) * gaussian_delta(epsilon - taken, mu))
    return best + dim * found.tau


@pytest.mark.parametrize(("trials", "probability"), [(30, 0.5), (60, 0.5), (60, 0.2), (300, 0.35), (300, 0.9)])
def test_lemma_d_at_real_points(trials, probability):
    """Every part of a step and many places, with either end's score."""
    found = certify(trials, probability, shift=1.0, reach=1, dim=1, tail=1e-2 if trials < 100 else 1e-6)
    x = np.linspace(found.low + 1, found.high, 4001)[:, np.newaxis]
    r = np.linspace(0.01, 1, 100)
    law = binomial_law(trials, probability)
    below = np.cumsum(law)
    upper, lower = (ndtri(np.interp(points, np.arange(trials + 1), below)) for points in (np.broadcast_to(x, (4001, 100)), x - r))
    c, k = found.step, found.slope**2 / 8
    for z in (upper, lower):
        assert np.all(upper - lower <= c * r + k * (np.abs(z) + 2 * c) + 1e-7)
    # and it is no idle bound: a twentieth of what it allows beyond c r would be wrong
    assert np.any(upper - lower > c * r + 0.05 * k * (np.abs(upper) + 2 * c))


def test_the_moment_is_that_of_the_loss():
    """M by quadrature of exp(lambda loss) under N(0, 1), the loss from the two densities."""
    k, lam = 0.01, 7.0
    z = (np.arange(-240_000, 240_000) + 0.5) * 5e-5  # the middles of cells: the loss jumps at 0
    scaled = np.where(z > 0, 1 - k, 1 + k)
    loss = norm.logpdf(z) - (np.log(scaled) + norm.logpdf(scaled * z))
    by_quadrature = float(np.sum(np.exp(lam * loss) * norm.pdf(z)) * 5e-5)
    first = (1 - k) ** -lam * (1 + lam * (2 * k - k * k)) ** -0.5
    second = (1 + k) ** -lam * (1 - lam * (2 * k + k * k)) ** -0.5
    assert (first + second) / 2 == pytest.approx(by_quadrature, rel=1e-6)


@pytest.mark.parametrize(("trials", "probability", "tail"), [(60, 0.5, 1e-5), (150, 0.3, 1e-4), (120, 0.5, 1e-6)])
def test_theorem_d_in_few_coordinates_by_enumeration(trials, probability, tail):
    for shifts in [(1.5,), (0.5, 0.5), (1.0, -0.5), (2.2, 0.3)]:
        shift, reach = math.hypot(*shifts), math.ceil(max(map(abs, shifts)))
        found = certify(trials, probability, shift=shift, reach=reach, dim=len(shifts), tail=tail)
        for positions, epsilon in itertools.product(itertools.product((0.0, 0.5), repeat=len(shifts)), (0.0, 0.3, 1.0)):
            exact = exact_delta(trials, probability, positions, shifts, epsilon)
            assert exact <= theorem_d(found, shift, len(shifts), epsilon)


@pytest.mark.parametrize(("levels", "noise_bits", "probability"), [(5, 3, 0.2734375), (7, 4, 0.4453125)])
def test_theorem_d_in_a_hundred_coordinates_is_between_the_truth_and_theorem_b(levels, noise_bits, probability):
    """Against dp_accounting's distributions of the worst directions that are known, at n = 1 000."""
    trials = 1_000 * noise_bits
    found = certify(trials, probability, shift=float(levels), reach=levels, dim=100, tail=1e-10)
    ours = theorem_d(found, float(levels), 100, 1.0)
    each = levels / 10
    directions = [[(0.0, each, 100)], [(2.0, -each, 100)], [(0.5, each, 100)], [(0.0, float(levels), 1)]]
    truth = max(composed_delta(trials, probability, moves, 1.0, optimistic=False, interval=1e-4) for moves in directions)
    assert truth <= ours
    assert ours < 0.6 * (gaussian_delta(1.0, found.mu) + 100 * found.tau)
