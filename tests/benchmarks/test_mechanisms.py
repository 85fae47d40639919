"""benchmarks/sum/mechanisms.py by second routes: enumeration, integration, simulation, dp_accounting."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import hadamard
from scipy.special import betaincinv, ive, logsumexp
from scipy.stats import binom, chi2, norm

from benchmarks.sum import mechanisms
from croupier.report.baselines import _sphere_radius

DELTA = 1e-6


# --- one message ----------------------------------------------------------------------------------------------------------------


def projection(dim):
    """The density of <v, u>, v uniform on the sphere."""
    total = quad(lambda t: (1 - t * t) ** ((dim - 3) / 2), -1, 1)[0]
    return lambda t: (1 - t * t) ** ((dim - 3) / 2) / total


@pytest.mark.parametrize(("dim", "epsilon", "height"), [(5, 1.0, 0.2), (10, 4.0, 0.5), (100, 0.25, 0.0), (100, 6.0, 0.3)])
def test_priv_unit_by_integration(dim, epsilon, height):
    unit, density = mechanisms.PrivUnit(dim, epsilon, height), projection(dim)
    assert unit.cap == pytest.approx(quad(density, height, 1)[0], rel=1e-9)
    within, without = unit.inside / unit.cap, (1 - unit.inside) / (1 - unit.cap)
    assert math.log(within / without) == pytest.approx(epsilon, rel=1e-9)  # the density ratio, which is its privacy
    mean = within * quad(lambda t: t * density(t), height, 1)[0] + without * quad(lambda t: t * density(t), -1, height)[0]
    assert unit.mean == pytest.approx(mean, rel=1e-7)


def sampled(unit, rng, count):
    """<v, u> by the inverse of its distribution function, then a uniform direction orthogonal to u = e_1."""
    inside = rng.random(count) < unit.inside
    above = np.where(inside, rng.random(count) * unit.cap, unit.cap + rng.random(count) * (1 - unit.cap))  # P(<v, u> >= t)
    half = np.minimum(above, 1 - above)
    t = np.sqrt(1 - betaincinv((unit.dim - 1) / 2, 1 / 2, 2 * half)) * np.where(above < 0.5, 1, -1)
    rest = rng.normal(size=(count, unit.dim - 1))
    rest *= np.sqrt(1 - t**2)[:, np.newaxis] / np.linalg.norm(rest, axis=1, keepdims=True)
    return np.column_stack([t, rest])


@pytest.mark.parametrize(("dim", "epsilon"), [(5, 1.0), (20, 4.0)])
def test_priv_unit_by_simulation(dim, epsilon):
    unit, count = mechanisms.priv_unit(epsilon, dim), 200_000
    points = sampled(unit, np.random.default_rng(0), count)
    assert np.allclose(np.linalg.norm(points, axis=1), 1)
    inside = points[:, 0] >= unit.height
    # a binomial share within 5.5 standard errors, and dim + 1 means of numbers in -1..1 by Hoeffding: false alarm below 1e-6
    assert abs(inside.mean() - unit.inside) < 5.5 * math.sqrt(unit.inside * (1 - unit.inside) / count)
    reach = math.sqrt(2 * math.log(2 * (dim + 1) / 5e-7) / count)
    estimates = points / unit.mean
    assert abs(points[:, 0].mean() - unit.mean) < reach
    assert np.abs(points[:, 1:].mean(axis=0)).max() < reach
    squared = np.sum((estimates - np.eye(dim)[0]) ** 2, axis=1)
    assert squared.mean() == pytest.approx(unit.error(1) ** 2, rel=6 * squared.std() / math.sqrt(count) / squared.mean())


@pytest.mark.parametrize(("dim", "epsilon"), [(10, 0.25), (10, 4.0), (100, 1.0), (1000, 9.0)])
def test_priv_unit_has_the_best_height_and_beats_the_half_sphere(dim, epsilon):
    best = mechanisms.priv_unit(epsilon, dim)
    others = [mechanisms.PrivUnit(dim, epsilon, height).mean for height in np.linspace(-0.99, 0.99, 1000)]
    assert best.mean >= max(others) * (1 - 1e-9)
    half = mechanisms.PrivUnit(dim, epsilon, 0.0)  # Duchi, Jordan and Wainwright's, as croupier plan --compare has it
    assert half.mean == pytest.approx(1 / _sphere_radius(epsilon, dim), rel=1e-9)
    assert best.error(100) == pytest.approx(best.error(1) / 10)


def hockey_stick(first, second, epsilon):
    return sum(max(0.0, first[key] - math.exp(epsilon) * second.get(key, 0.0)) for key in first)


def clone_pair(local_epsilon, users):
    """Both laws of Theorem 3.2, added up outcome by outcome."""
    a, laws = math.exp(local_epsilon) / (math.exp(local_epsilon) + 1), ({}, {})
    for c in range(users):
        for x, b in product(range(c + 1), (0, 1)):
            weight = binom.pmf(c, users - 1, math.exp(-local_epsilon)) * binom.pmf(x, c, 0.5)
            for law, chance in zip(laws, (a, 1 - a), strict=True):
                key = (x + b, c + 1 - x - b)
                law[key] = law.get(key, 0.0) + weight * (chance if b else 1 - chance)
    return laws


@pytest.mark.parametrize(("local_epsilon", "users"), [(1.0, 8), (2.0, 30), (3.0, 60)])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_clones_by_enumeration(local_epsilon, users, share):
    epsilon = share * local_epsilon
    first, second = clone_pair(local_epsilon, users)
    assert sum(first.values()) == pytest.approx(1)
    found = mechanisms.clones_delta(local_epsilon, epsilon, users)
    assert found == pytest.approx(hockey_stick(first, second, epsilon), rel=1e-9, abs=1e-14)


def test_clones_by_dp_accounting():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    first, second = clone_pair(2.0, 60)
    logs = ({key: math.log(value) for key, value in law.items() if value > 0} for law in (first, second))
    loss = pld.from_two_probability_mass_functions(*logs, value_discretization_interval=1e-4)
    for epsilon in (0.3, 0.8, 1.5):
        assert mechanisms.clones_delta(2.0, epsilon, 60) == pytest.approx(loss.get_delta_for_epsilon(epsilon), rel=2e-3, abs=1e-9)


@pytest.mark.parametrize("others", ["first", "third"])
@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0])
def test_clones_bound_shuffled_randomized_response_among_three(others, epsilon):
    """Exactly: the histogram of 12 users who answer by 3-ary randomized response, one of whom changes from 0 to 1."""
    local_epsilon, users = 1.5, 12
    truth, lie = math.exp(local_epsilon), 1.0
    answers = np.full((3, 3), lie) + (truth - lie) * np.eye(3)
    answers /= truth + 2

    def histogram(rows):
        law = {(0, 0, 0): 1.0}
        for row in rows:
            grown = {}
            for key, weight in law.items():
                for place in range(3):
                    after = tuple(count + (place == i) for i, count in enumerate(key))
                    grown[after] = grown.get(after, 0.0) + weight * answers[row][place]
            law = grown
        return law

    rest = [0 if others == "first" else 2] * (users - 1)
    exact = hockey_stick(histogram([0, *rest]), histogram([1, *rest]), epsilon)
    assert 0 < exact <= mechanisms.clones_delta(local_epsilon, epsilon, users)


def test_clones_give_nothing_beyond_the_local_epsilon_and_more_with_more_users():
    assert mechanisms.clones_delta(2.0, 2.0, 1000) < 1e-12
    found = [mechanisms.local_epsilon_for(1.0, DELTA, users) for users in (10, 10**3, 10**4, 10**5)]
    assert found == sorted(found)
    assert found[0] >= 1.0
    for users, local_epsilon in zip((10**3, 10**4, 10**5), found[1:], strict=True):
        assert (
            mechanisms.clones_delta(local_epsilon, 1.0, users) <= DELTA < mechanisms.clones_delta(local_epsilon + 1e-6, 1.0, users)
        )


def test_amplified_epsilon_is_below_the_published_closed_form():
    """Theorem 3.1 of Hiding Among the Clones, for epsilon_0 <= ln(n / (16 ln(2 / delta)))."""
    for users, local_epsilon in ((10**4, 1.0), (10**5, 2.0), (10**6, 4.0)):
        assert local_epsilon <= math.log(users / (16 * math.log(2 / DELTA)))
        growth = math.exp(local_epsilon)
        closed = math.log(
            1 + (growth - 1) / (growth + 1) * (8 * math.sqrt(growth * math.log(4 / DELTA)) / math.sqrt(users) + 8 * growth / users)
        )
        assert mechanisms.clones_delta(local_epsilon, closed, users) <= DELTA


# --- secure aggregation ---------------------------------------------------------------------------------------------------------


def divergence(law, shift, order):
    """Renyi divergence of a law on whole numbers from itself shifted; points that only one of them has are far in the tail."""
    logs = np.log(law[law > 1e-280])
    first, second = logs[shift:], logs[:-shift]
    return float(logsumexp(order * first + (1 - order) * second)) / (order - 1)


def skellam_law(variance, reach):
    return ive(np.arange(-reach, reach + 1), variance)  # e^-variance I_k(variance)


def discrete_gaussian_law(sigma, reach):
    law = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    return law / law.sum()


@pytest.mark.parametrize(("variance", "shift"), [(4.0, 1), (30.0, 3), (200.0, 10), (50.0, 1)])
@pytest.mark.parametrize("order", [2.0, 5.0, 12.0])
def test_skellam_by_enumeration(variance, shift, order):
    law = skellam_law(variance, int(60 * math.sqrt(variance)))
    exact = divergence(law, shift, order)
    stated = mechanisms.skellam_divergences(np.array([order]), float(shift), 1, variance)[0]
    gaussian = order * shift**2 / (2 * variance)
    assert 0.6 * gaussian < exact <= stated  # heavier tails than the Gaussian's make it a little less than the Gaussian's
    # two coordinates: divergences add up, the l2 norm is sqrt(2) times as long
    assert 2 * exact <= mechanisms.skellam_divergences(np.array([order]), math.sqrt(2) * shift, 2, variance)[0] * (1 + 1e-12)


@pytest.mark.parametrize(("sigma", "users"), [(0.5, 2), (0.6, 4), (1.0, 3), (1.5, 6)])
@pytest.mark.parametrize(("shift", "order"), [(1, 2.0), (2, 1.5), (3, 6.0)])
def test_sum_of_discrete_gaussians_by_enumeration(sigma, users, shift, order):
    one = discrete_gaussian_law(sigma, int(34 * sigma))
    law = one
    for _ in range(users - 1):
        law = np.convolve(law, one)
    exact = divergence(law, shift, order)
    stated = mechanisms.discrete_gaussian_divergences(np.array([order]), float(shift), 1, users * sigma**2, users)[0]
    assert exact <= stated * (1 + 1e-9)
    if sigma == 1.5:  # tau is nothing, and both are the Gaussian's
        assert stated == pytest.approx(order * shift**2 / (2 * users * sigma**2), rel=1e-6)
        assert exact == pytest.approx(stated, rel=1e-6)


def test_discrete_gaussians_below_half_a_step_are_refused():
    assert np.isinf(mechanisms.discrete_gaussian_divergences(np.array([2.0]), 1.0, 1, 10 * 0.49**2, 10)).all()


@pytest.mark.parametrize("users", [2, 100, 4097, 4098, 30_000, 200_000])
def test_sum_of_tails_is_never_below_the_true_one(users):
    for rate in (0.5, 5.0, 40.0):
        k = np.arange(1, users, dtype=float)
        exact = float(np.sum(np.exp(-rate * k / (k + 1))))
        assert exact * (1 - 1e-12) <= mechanisms._sum_of_tails(rate, users) <= exact * (1 + 1e-4)


@pytest.mark.parametrize("noise", [mechanisms.SKELLAM, mechanisms.DISCRETE_GAUSSIAN], ids=["skellam", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
def test_epsilon_by_dp_accounting_and_least_variance(noise, epsilon):
    accounting = pytest.importorskip("dp_accounting")
    orders, divergences = noise
    variance = mechanisms.least_variance(noise, epsilon, DELTA, 1000, 128, 200.0)
    found, _ = accounting.rdp.compute_epsilon(orders, divergences(orders, 200.0, 128, variance, 1000), DELTA)
    assert found == pytest.approx(epsilon, rel=1e-5)
    assert found <= epsilon * (1 + 1e-9)
    gaussian = accounting.calibrate_dp_mechanism(  # exact accounting of a Gaussian cannot need more
        accounting.pld.PLDAccountant, accounting.GaussianDpEvent, epsilon, DELTA, tol=1e-4
    )
    assert 200.0 * gaussian * 0.999 < math.sqrt(variance) < 200.0 * gaussian * 1.12


def test_wrapping_by_integration():
    for modulus, std in ((8.0, 1.0), (3.0, 1.0), (20.0, 1.7)):
        j = np.arange(1, 200)
        exact = modulus**2 * np.sum((2 * j - 1) * 2 * norm.sf((j - 0.5) * modulus / std))
        assert exact <= mechanisms.wrap_error(modulus, std)
    assert mechanisms.wrap_error(20.0, 1.0) < 1e-18


def rounded(rng, vectors, limit):
    """Conditional random rounding: drawn again until short enough."""
    out = np.empty_like(vectors)
    for i, vector in enumerate(vectors):
        while True:
            out[i] = np.floor(vector) + (rng.random(len(vector)) < vector - np.floor(vector))
            if np.linalg.norm(out[i]) <= limit:
                break
    return out


def test_aggregation_from_end_to_end():
    """Rotation, conditional rounding, Skellam noise, modulus and back, on equal vectors, which fill the modulus most."""
    users, dim, runs = 200, 10, 60
    plan = mechanisms.aggregated(mechanisms.SKELLAM, 1.0, DELTA, users, dim, 12)
    size, rng = mechanisms.padded(dim), np.random.default_rng(3)
    assert size == 16
    limit = mechanisms.rounded_norm(1 / plan.step, size)
    truth = np.zeros(size)
    truth[:dim] = 1 / math.sqrt(dim)
    squares = []
    for _ in range(runs):
        rotation = hadamard(size) / math.sqrt(size) * rng.choice([-1.0, 1.0], size=size)
        sent = rounded(rng, np.tile(rotation @ truth / plan.step, (users, 1)), limit)
        assert np.linalg.norm(sent, axis=1).max() <= limit
        noise = rng.poisson(plan.variance / 2, size=size) - rng.poisson(plan.variance / 2, size=size)
        total = (sent.sum(axis=0) + noise + 2**11) % 2**12 - 2**11
        squares.append(np.sum((rotation.T @ total * plan.step / users - truth)[:dim] ** 2))
    # coordinates are nearly Gaussian; rounding costs less than at its worst, so only a band: chi-square at 1e-6, and a tenth below
    low, high = chi2.ppf([5e-7, 1 - 5e-7], runs * dim) / (runs * dim)
    assert 0.9**2 * low < np.mean(squares) / plan.error**2 < high
    assert plan.bits_per_user == 12 * 16


def test_more_bits_never_hurt_and_enough_are_enough():
    errors = [mechanisms.aggregated(mechanisms.SKELLAM, 1.0, DELTA, 10**4, 100, bits).error for bits in (12, 16, 20, 30, 60)]
    assert all(after <= before * (1 + 1e-3) for before, after in pairwise(errors))
    enough = mechanisms.enough_bits(mechanisms.SKELLAM, 1.0, DELTA, 10**4, 100)
    assert enough.error <= 1.05 * errors[-1]
    assert mechanisms.aggregated(mechanisms.SKELLAM, 1.0, DELTA, 10**4, 100, enough.bits - 1).error > 1.05 * errors[-1]
