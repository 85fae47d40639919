"""Theorem L by several routes: brackets, simulation, one round, another package, exact enumeration, 50-digit arithmetic."""

from __future__ import annotations

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from oracles import count_law, hockey_stick, normal_cdf
from scipy.fft import irfft, rfft
from scipy.special import ndtr

from croupier.privacy import ArgumentError, Guarantee, certify
from croupier.privacy import allocation as module
from croupier.privacy.allocation import Allocation, PowerCurve
from croupier.privacy.gaussian import gaussian_delta

RELATIONS = ("replace-one", "zero-out")
# (epsilon, rounds, noise) at delta = 1e-6, replace-one: found by importance-sampled simulation before this code was written
SIMULATED = [(1.0, 20, 2.0242), (0.1, 135, 6.2889), (1.0, 5, 3.8354), (2.0, 50, 1.0245)]


# --- bracket: another lattice, rounded the other way -------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def contracted_sum(mu, rounds, points, side):
    """S / T with every X replaced by its mean over a cell, which is moved to the lattice downwards or upwards (side = -1 or 1).

    Means over cells lower every convex function, moving down every increasing one and moving up every decreasing one, so that
    this gives lower bounds of E (L - c)+ (down) and of E (c - L)+ (up). Where the mean is within `near` of the lattice all of S
    is moved by that much in place of a step; what is left out lowers both.
    """
    lowest = math.exp(-6.2 * mu - mu * mu / 2)
    top = math.exp(6.2 * mu + mu * mu / 2) + rounds + 6 * math.sqrt(math.expm1(mu * mu) * rounds)
    step = (top - rounds * lowest) / points
    first = max(1, math.floor(lowest / step))
    edges = (np.log((first - 0.5 + np.arange(points + 1)) * step) + mu * mu / 2) / mu

    def cells(z):
        return np.where(z[1:] < 0, np.diff(ndtr(z)), -np.diff(ndtr(-z)))

    law, mean, near = cells(edges), cells(edges - mu), 2e-4 * mu / math.sqrt(rounds)
    law[law < 1e-25] = 0
    kept = law > 0
    distance = np.zeros(points)
    distance[kept] = np.abs(mean[kept] / law[kept] - (first + np.flatnonzero(kept)) * step)
    far = distance > near
    moved = np.roll(np.where(far, law, 0), side)
    moved[0 if side > 0 else -1] = 0  # what went round
    law = np.where(far, 0, law) + moved
    weights = np.maximum(irfft(rfft(law.astype(np.longdouble)) ** rounds, points), 0).astype(float)
    return (rounds * first + np.arange(points)) * step / rounds + side * near, weights


def lower_orders(mu, rounds, epsilon, points):
    """Lower bounds of H(B | P) and H(P | B)."""
    (low, of_low), (high, of_high) = (contracted_sum(mu, rounds, points, side) for side in (-1, 1))
    factor = math.exp(epsilon)
    return (of_high * np.maximum(1 - factor * high, 0)).sum(), (of_low * np.maximum(low - factor, 0)).sum()


def lower_delta(mu, rounds, epsilon, neighbours, points):
    if neighbours == "zero-out":
        return max(lower_orders(mu, rounds, epsilon, points))
    (low, of_low), (high, of_high) = (contracted_sum(mu, rounds, points, side) for side in (-1, 1))
    factor = math.exp(epsilon)
    levels, powers = np.cumsum(of_low[::-1]), np.cumsum((of_low * low)[::-1])
    return (np.interp(np.cumsum(of_high), levels, powers) - factor * np.cumsum(of_high * high)).max()


@pytest.mark.parametrize(
    ("epsilon", "rounds", "mu", "neighbours", "points"),
    [
        (1.0, 2, 0.1667, "replace-one", 1 << 17),
        (1.0, 20, 1 / 2.0242, "replace-one", 1 << 17),
        (0.1, 135, 1 / 6.2889, "replace-one", 1 << 17),
        (2.0, 50, 1 / 1.0245, "replace-one", 1 << 19),
        (1.0, 5, 0.53, "zero-out", 1 << 17),
        (1.0, 20, 0.75, "zero-out", 1 << 17),
        (0.1, 135, 0.28, "zero-out", 1 << 17),
    ],
)
def test_both_roundings_bracket_delta_within_one_per_cent(epsilon, rounds, mu, neighbours, points):
    lower = lower_delta(mu, rounds, epsilon, neighbours, points)
    upper = Allocation(mu=mu, rounds=rounds).delta(epsilon, neighbours)
    assert 1e-8 < lower <= upper <= 1.01 * lower


# --- simulation --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "rounds", "noise"), SIMULATED)
def test_simulated_noise_gives_the_delta_it_was_made_for(epsilon, rounds, noise):
    assert Allocation(mu=1 / noise, rounds=rounds).delta(epsilon, "replace-one") == pytest.approx(1e-6, rel=0.01)


@pytest.mark.parametrize(("epsilon", "rounds", "mu"), [(1.0, 20, 0.75), (0.5, 5, 0.6), (2.0, 50, 1.2)])
def test_importance_sampling_agrees(epsilon, rounds, mu):
    """E_P (1 - e^eps / L)+ with one round pushed further. Six standard errors: a false alarm in 1e8 runs, for one seed."""
    rng = np.random.default_rng(20260116)
    samples, pushed = 200_000, mu + 2.0
    z = rng.standard_normal((samples, rounds))
    z[:, 0] += pushed
    ratio = np.exp(mu * z - mu * mu / 2).sum(1)
    weight = ratio / np.exp(pushed * z - pushed * pushed / 2).sum(1)
    terms = np.maximum(1 - math.exp(epsilon) * rounds / ratio, 0) * weight
    error = terms.std() / math.sqrt(samples)
    upper, _ = (curve.delta(epsilon) for curve in module.power_curves(mu, rounds)[::-1])
    assert error < 0.03 * upper
    assert abs(terms.mean() - upper) <= 6 * error + 0.005 * upper


def test_simulated_curve_of_replace_one_agrees():
    """Both steps of the curve from one sample under B. Its sums have standard errors below 5e-4: over ten of them are allowed."""
    mu, rounds, epsilon, samples = 0.8, 4, 0.3, 2_000_000
    rng = np.random.default_rng(7)
    ratio = np.sort(np.exp(mu * rng.standard_normal((samples, rounds)) - mu * mu / 2).mean(1))
    levels, powers = np.arange(1, samples + 1) / samples, np.cumsum(ratio[::-1]) / samples
    first = np.cumsum(ratio) / samples
    simulated = (np.interp(levels, levels, powers) - math.exp(epsilon) * first).max()
    assert Allocation(mu=mu, rounds=rounds).delta(epsilon, "replace-one") == pytest.approx(simulated, abs=0.008)


# --- one round, more rounds, another package ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_one_round_is_the_plain_gaussian(epsilon):
    one = Allocation(mu=0.4, rounds=1)
    assert one.delta(epsilon, "replace-one") == gaussian_delta(epsilon, 0.8)
    assert one.delta(epsilon, "zero-out") == gaussian_delta(epsilon, 0.4)


@pytest.mark.parametrize(("neighbours", "factor"), [("replace-one", 2), ("zero-out", 1)])
def test_lattice_of_one_round_gives_the_plain_gaussian(neighbours, factor):
    """The lattice itself, which one round does not need."""
    curves = module.relation_curves(*module.power_curves(0.4, 1), neighbours)
    for epsilon in (0.1, 1.0, 2.5):
        exact = gaussian_delta(epsilon, 0.4 * factor)
        assert exact * (1 - 1e-9) <= max(curve.delta(epsilon) for curve in curves) <= exact * 1.005 + 1e-8


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_more_rounds_and_less_mu_reveal_less(neighbours):
    deltas = [Allocation(mu=0.9, rounds=rounds).delta(0.4, neighbours) for rounds in (1, 2, 5, 20, 63, 64, 65)]
    assert deltas == sorted(deltas, reverse=True)
    deltas = [Allocation(mu=mu, rounds=10).delta(0.4, neighbours) for mu in (0.4, 0.5, 0.7, 1.1)]
    assert deltas == sorted(deltas)
    worse = Allocation(mu=0.3, rounds=9).worse_of(Allocation(mu=0.2, rounds=4))
    assert worse == Allocation(mu=0.3, rounds=4)


@pytest.mark.filterwarnings("ignore")
def test_an_independent_package_brackets_epsilon():
    package = pytest.importorskip("PLD_accounting")
    upper, lower = package.gaussian_allocation_epsilon_range(delta=1e-4, sigma=1 / 0.9, num_steps=10)
    allocation = Allocation(mu=0.9, rounds=10)
    guarantee = Guarantee(mu=0.0, theorem="Theorem L", neighbours="zero-out", allocations=(allocation,))
    assert lower <= guarantee.epsilon(1e-4) <= upper
    assert upper <= 1.1 * lower


def test_cut_and_uncut_lattices_agree(monkeypatch):
    """From 64 rounds on sums far below the mean are charged, not followed; the bounds must be the same where both are good."""
    cut = Allocation(mu=0.45, rounds=100).delta(0.3, "replace-one")
    module._curves.cache_clear()
    monkeypatch.setattr(module, "_MANY", 10**9)
    assert Allocation(mu=0.45, rounds=100).delta(0.3, "replace-one") == pytest.approx(cut, rel=1e-3)
    module._curves.cache_clear()


# --- exact enumeration of the protocol ---------------------------------------------------------------------------------------


def transcripts(rounds, blank, choose):
    """The exact law of the counts of all rounds, for a user whose report in a round has the law `choose(counts so far)`."""
    laws = []
    for lot in range(rounds):
        law = np.ones(1)
        histories = [()]
        for now in range(rounds):
            step = [choose(history) if now == lot else blank for history in histories]
            law = np.concatenate([probability * part for probability, part in zip(law, step, strict=True)])
            histories = [(*history, count) for history in histories for count in range(blank.size)]
        laws.append(law)
    return np.mean(laws, axis=0)


@pytest.mark.parametrize(
    ("rounds", "trials", "levels", "directions"),
    [
        (2, 40, 3, [(-1.0,), (1.0,)]),
        (2, 24, 2, [(-1.0,), (1.0,)]),
        (3, 16, 2, [(-1.0,), (1.0,)]),
        (2, 16, 2, [(1.0, 0.0), (-0.6, 0.8)]),
    ],
)
@pytest.mark.parametrize("epsilon", [0.2, 0.6, 1.0])
def test_no_adaptive_run_of_the_lattice_protocol_exceeds_the_bound(rounds, trials, levels, directions, epsilon):
    """Noise Bin(trials, 1/2) in one or two coordinates. Vectors of later rounds depend on the counts before, in bad ways."""
    size, dim = trials + levels + 2, len(directions[0])

    def report(direction):
        laws = [count_law(trials, 0.5, levels / 2 * (1 + part), size) for part in direction]
        return functools.reduce(np.multiply.outer, laws).ravel()

    blank, ends = report((0.0,) * dim), [report(direction) for direction in directions]
    certificate = certify(trials, 0.5, shift=levels / 2, reach=levels, dim=dim, tail=0.02)
    middle = trials / 2 + levels / 2

    def turned(history):
        return sum(outcome // size ** (dim - 1) for outcome in history) > middle * len(history)

    strategies = [
        lambda history, end=end, turn=turn: ends[end ^ int(turn and turned(history))]
        for end, turn in itertools.product((0, 1), (False, True))
    ]
    allocation = Allocation(mu=certificate.mu, rounds=rounds)
    laws = [transcripts(rounds, blank, choose) for choose in strategies]
    blanks = functools.reduce(np.multiply.outer, [blank] * rounds).ravel()
    zero_out = max(max(hockey_stick(law, blanks, epsilon), hockey_stick(blanks, law, epsilon)) for law in laws)
    replace_one = max(hockey_stick(first, second, epsilon) for first in laws for second in laws)
    windows = rounds * dim * certificate.tau
    assert 0 < zero_out <= allocation.delta(epsilon, "zero-out") + windows
    assert 0 < replace_one <= allocation.delta(epsilon, "replace-one") + 2 * windows
    if (epsilon, trials) == (0.2, 40):  # and the bound is not far from it
        assert replace_one >= 0.5 * allocation.delta(epsilon, "replace-one")


# --- composition -------------------------------------------------------------------------------------------------------------


def merged_pair(mu, rounds, groups):
    """(B, P) of a pair that Theorem L's can be turned into: outcomes of a fine lattice, merged; both sum to at most 1."""
    values, weights = contracted_sum(mu, rounds, 1 << 16, -1)
    group = np.searchsorted(np.cumsum(weights), np.linspace(0, 1, groups)[1:-1])
    blank = np.add.reduceat(weights, np.unique(np.concatenate([[0], group])))
    report = np.add.reduceat(weights * values, np.unique(np.concatenate([[0], group])))
    return blank, report


def test_fresh_lots_compose_below_the_gaussians_and_the_same_lots_do_not():
    mu, rounds, epsilon = 0.75, 2, 1.0
    blank, report = merged_pair(mu, rounds, 1500)
    fresh = hockey_stick(np.multiply.outer(report, report), np.multiply.outer(blank, blank), epsilon)
    allocation = Allocation(mu=mu, rounds=rounds)
    guarantee = Guarantee(mu=0.0, neighbours="zero-out", theorem="Theorem L", allocations=(allocation,))
    composed = guarantee.compose(guarantee)
    assert composed.allocations == (allocation, allocation) == guarantee.repeated(2).allocations
    assert fresh <= composed.delta(epsilon)
    same = allocation.same_lots(allocation)
    exact_same = lower_delta(math.sqrt(2) * mu, rounds, epsilon, "zero-out", 1 << 17)
    assert fresh * 1.1 < exact_same <= same.delta(epsilon, "zero-out") <= exact_same * 1.01  # 0.063 against 0.075


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_dominating_gaussian_is_above_the_curve_at_every_epsilon_in_both_orders(neighbours):
    allocation = Allocation(mu=0.6, rounds=12)
    lower = {epsilon: lower_delta(0.6, 12, epsilon, neighbours, 1 << 15) for epsilon in np.linspace(0, 6, 25)}
    for slack in (1e-3, 1e-6, 1e-9):
        mu = allocation.gaussian(neighbours, slack)
        assert 0 < mu <= allocation.known(neighbours)
        assert all(delta <= gaussian_delta(epsilon, mu) + slack for epsilon, delta in lower.items())


def test_composition_with_a_plain_run_is_above_simulation():
    """Zero-out, one allocation and one plain Gaussian; six standard errors (a false alarm in 1e8)."""
    mu, rounds, plain, epsilon = 0.8, 6, 0.5, 0.5
    rng = np.random.default_rng(3)
    z = rng.standard_normal((400_000, rounds + 1))
    z[:, 0] += mu
    z[:, -1] += plain
    loss = np.log(np.exp(mu * z[:, :-1] - mu * mu / 2).mean(1)) + plain * z[:, -1] - plain * plain / 2
    terms = np.maximum(-np.expm1(epsilon - loss), 0)
    lots = Guarantee(mu=0.0, neighbours="zero-out", theorem="L", allocations=(Allocation(mu=mu, rounds=rounds),))
    both = lots.compose(Guarantee(mu=plain, neighbours="zero-out", theorem="B"))
    exact, error = terms.mean(), terms.std() / math.sqrt(terms.size)
    assert exact - 6 * error <= both.delta(epsilon) <= 1.3 * exact
    known = Guarantee(mu=math.hypot(mu, plain), neighbours="zero-out", theorem="B")
    assert both.delta(epsilon) < known.delta(epsilon)


# --- errors ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.4])
def test_the_law_of_one_round_is_below_x_in_the_increasing_concave_order(mu):
    """E (c - X')+ >= E (c - X)+ at lattice points, to 50 digits, X' with all that its weights lack at 0; and close to it."""
    lattice = module._lattice(mu, 20, 6.0, 1 << 14)
    law = module._one_round(mu, lattice)
    assert law.min() >= 0
    with mpmath.workdps(50):
        step = mpmath.mpf(lattice.step)
        weights = [mpmath.mpf(float(weight)) for weight in law]
        lacking = 1 - mpmath.fsum(weights)
        assert 0 <= lacking < 1e-11
        places = [(lattice.start + i) * step for i in range(law.size)]
        mean = mpmath.fsum(weight * place for weight, place in zip(weights, places, strict=True))
        assert 0 <= 1 - mean < 1e-8
        for at in np.unique(np.geomspace(1, law.size - 1, 12).astype(int)):
            c = places[at]
            ours = lacking * c + mpmath.fsum(weights[i] * (c - places[i]) for i in range(at))
            z = (mpmath.log(c) + mpmath.mpf(mu) ** 2 / 2) / mpmath.mpf(mu)
            exact = c * normal_cdf(z) - normal_cdf(z - mpmath.mpf(mu))
            assert exact <= ours * (1 + mpmath.mpf(10) ** -12) + c * mpmath.mpf("1e-13") * law.size
            assert ours <= exact + c * 1e-10 + step


@pytest.mark.parametrize("rounds", [2, 20, 1000])
def test_errors_of_the_transform_stay_within_what_is_charged(rounds):
    """Weights in float64 against weights in longer floats: no weight that is kept is above the better one."""
    longer = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps / 100
    if not longer:
        pytest.skip("no longer floats on this machine")
    lattice = module._lattice(0.5, rounds, 6.0, 1 << 17)
    law = module._one_round(0.5, lattice).astype(np.longdouble)
    better = np.roll(irfft(module._power(rfft(law), rounds), lattice.points), rounds * lattice.start - lattice.first)
    ratios, weights, _ = module._likelihood_ratio(0.5, rounds, 6.0, 1 << 17)
    kept = np.round(ratios * rounds / lattice.step / (1 - 1e-13)).astype(int) - lattice.first
    assert np.all(weights <= better[kept])
    assert better.sum() - weights.sum() < 1e-9


@pytest.mark.parametrize(("mu", "rounds", "epsilon"), [(0.6, 3, 1.0), (0.6, 100, 0.2), (1.2, 20, 1.5), (1.2, 2, 2.0)])
@pytest.mark.parametrize("depth", [-0.5, 0.5, 2.0, 4.0])
def test_short_and_coarse_lattices_are_charged_for_what_they_leave_out(mu, rounds, epsilon, depth):
    both, orders = lower_delta(mu, rounds, epsilon, "replace-one", 1 << 16), lower_orders(mu, rounds, epsilon, 1 << 16)
    for points in (1 << 6, 1 << 10, 1 << 15):
        curves = module.power_curves(mu, rounds, depth=depth, most_points=points)
        assert all(lower <= curve.delta(epsilon) for lower, curve in zip(orders, curves, strict=True))
        (through_blanks,) = module.relation_curves(*curves, "replace-one")
        assert both <= through_blanks.delta(epsilon)


def test_a_power_curve_is_safe_at_its_vertices():
    curve = PowerCurve(np.array([0.0, 0.1, 1.0]), np.array([0.01, 0.4, 1.0]))
    assert curve.delta(0.0) == pytest.approx(0.3)
    assert curve.gaussian(0.005) == math.inf
    mu = curve.gaussian(0.02)
    powers = ndtr(np.array([-1.2815515655446004]) + mu) + 0.02
    assert powers[0] >= 0.4
    both = curve.after(curve)
    assert both.delta(0.0) == pytest.approx(0.4 + 0.6 * 0.3 / 0.9 - 0.1)


@pytest.mark.parametrize(("mu", "rounds"), [(0.0, 3), (-1.0, 3), (math.nan, 3), (0.5, 0), (0.5, 2.5), (0.5, 10**7)])
def test_impossible_allocations_are_refused(mu, rounds):
    with pytest.raises(ArgumentError):
        Allocation(mu=mu, rounds=rounds)


def test_lots_of_different_runs_are_not_the_same():
    with pytest.raises(ArgumentError):
        Allocation(mu=0.5, rounds=3).same_lots(Allocation(mu=0.5, rounds=4))


@pytest.mark.parametrize("mu", [1e-300, 1e-12, 1e-9])
@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
def test_a_mu_that_is_next_to_nothing_is_at_most_that_of_a_known_lot(mu, neighbours):
    allocation = Allocation(mu=mu, rounds=20)
    known = allocation.known(neighbours)
    for epsilon in (0.0, 1e-10, 1.0):
        assert 0 <= allocation.delta(epsilon, neighbours) <= gaussian_delta(epsilon, known)
    assert 0 <= allocation.gaussian(neighbours, 1e-14) <= known
