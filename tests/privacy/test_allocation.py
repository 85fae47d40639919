"""Theorem L by several routes: quadrature, brackets, simulation, another package, exact enumeration, 50-digit arithmetic."""

from __future__ import annotations

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from oracles import count_law, hockey_stick, normal_cdf
from scipy.fft import irfft, rfft
from scipy.special import ndtr, ndtri

from croupier.privacy import ArgumentError, Guarantee, certify
from croupier.privacy import _allocation as module
from croupier.privacy._allocation import Allocation, PowerCurve
from croupier.privacy.gaussian import gaussian_delta

RELATIONS = ("replace-one", "zero-out")
ORDERS = ("antipodal", "report against blank", "blank against report")
# (epsilon, rounds, noise) at delta = 1e-6, replace-one, found before this code was written
NOISES = [(1.0, 20, 1.900), (1.0, 50, 1.249), (1.0, 100, 1.002), (4.0, 20, 0.774), (0.1, 135, 6.250), (1.0, 5, 3.780)]


def variable(order, mu, epsilon):
    """The W of an order, as the routine has it."""
    factor = math.exp(epsilon)
    a, b, g = {ORDERS[0]: (1.0, 0.0, factor), ORDERS[1]: (1.0, -factor, 0.0), ORDERS[2]: (0.0, 1.0, factor)}[order]
    return module._Variable(mu, epsilon, a, b, g)


def values(order, mu, epsilon, z):
    """The same W, written down anew."""
    rising, falling, factor = np.exp(mu * z - mu * mu / 2), np.exp(-mu * z - mu * mu / 2), math.exp(epsilon)
    return {ORDERS[0]: rising - factor * falling, ORDERS[1]: rising - factor, ORDERS[2]: 1 - factor * falling}[order]


def divergence(order, mu, rounds, epsilon):
    found = module.divergences(mu, rounds, epsilon, "replace-one" if order == ORDERS[0] else "zero-out")
    return found[1] if order == ORDERS[2] else found[0]


# --- two rounds: quadrature --------------------------------------------------------------------------------------------------


def two_rounds(order, mu, epsilon):
    """E (W_1 + W_2)_+ / 2: trapezoids over z_1, the inner mean in closed form at the z_2 from which the sum is positive."""
    z, factor, half = np.linspace(-14, 14, 200_001), math.exp(epsilon), mu * mu / 2
    w = values(order, mu, epsilon, z)
    with np.errstate(divide="ignore", invalid="ignore"):
        if order == ORDERS[0]:
            border = (np.arcsinh(-w * math.exp(half - epsilon / 2) / 2) + epsilon / 2) / mu
            inner = ndtr(mu - border) - factor * ndtr(-mu - border) + w * ndtr(-border)
        elif order == ORDERS[1]:
            border = np.where(factor > w, (np.log(np.maximum(factor - w, 0)) + half) / mu, -np.inf)
            inner = ndtr(mu - border) + (w - factor) * ndtr(-border)
        else:
            border = np.where(w > -1, -(np.log(np.maximum(1 + w, 0) / factor) + half) / mu, np.inf)
            inner = (1 + w) * ndtr(-border) - factor * ndtr(-mu - border)
    inner = np.where(np.isfinite(inner), inner, 0)
    return float((np.exp(-z * z / 2) * inner).sum() * (z[1] - z[0]) / math.sqrt(2 * math.pi)) / 2


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.5), (0.3, 1.0), (1.0, 0.0), (1.0, 1.0), (1.0, 4.0), (1.5, 6.0), (2.0, 10.0)])
def test_two_rounds_agree_with_quadrature(order, mu, epsilon):
    exact = two_rounds(order, mu, epsilon)
    assert exact * (1 - 1e-9) <= divergence(order, mu, 2, epsilon) <= exact * 1.001 + 4 * variable(order, mu, epsilon).doubt


# --- bracket: another lattice, rounded down ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def lower_bound(order, mu, rounds, epsilon, points=1 << 17):
    """E (W_1 + ... + W_T)_+ / T from below, in longer floats, without a tilt.

    W is replaced by its mean over cells, which lowers every convex function, and by the middle of the cell less `near`, which
    is at most the mean. High values are lowered, low ones are left out, and so are cells of next to no probability. The
    lattice is so long that no sum comes around from below.
    """
    factor, deep = math.exp(epsilon), -4.0
    lowest = {ORDERS[0]: float(values(ORDERS[0], mu, epsilon, deep)), ORDERS[1]: -factor, ORDERS[2]: 1.0 - rounds}[order]
    lowest = max(lowest, float(values(order, mu, epsilon, -8.0)))
    highest = min(float(values(order, mu, epsilon, mu + 6.0)), 3 * factor * rounds)
    step = (-rounds * lowest + highest + rounds) / (points - 2)
    first, last = math.ceil(lowest / step), math.floor(highest / step)
    grid = np.linspace(-9.0, mu + 7.0, 200_001)
    edges = np.interp((np.arange(first, last + 2) - 0.5) * step, values(order, mu, epsilon, grid), grid)

    def cells(shift):
        z = edges + shift
        return np.where(z[1:] < 0, np.diff(ndtr(z)), -np.diff(ndtr(-z)))

    law, rising, falling = cells(0.0), cells(-mu), cells(mu)
    mean = {ORDERS[0]: rising - factor * falling, ORDERS[1]: rising - factor * law, ORDERS[2]: law - factor * falling}[order]
    law = np.where(law > 1e-17, law, 0)
    middles = np.arange(first, last + 1) * step
    near = max(0.0, float(np.max((middles - mean / np.maximum(law, 1e-300))[law > 0]))) + 1e-9 * step
    law[-1] += ndtr(-edges[-1]) * (1 - 1e-9)
    weights = irfft(rfft(np.pad(law, (0, points - law.size)).astype(np.longdouble)) ** rounds, points).astype(float)
    sums = (rounds * first + np.arange(points)) * step - rounds * near
    return float((np.maximum(weights - 1e-19, 0) * np.maximum(sums, 0)).sum()) / rounds


@pytest.mark.parametrize(
    ("order", "epsilon", "rounds", "mu"),
    [
        ("antipodal", 1.0, 2, 0.25),
        ("antipodal", 1.0, 20, 0.53),
        ("antipodal", 0.5, 10, 0.25),
        ("antipodal", 4.0, 20, 1.29),
        ("report against blank", 1.0, 5, 0.53),
        ("report against blank", 1.0, 20, 0.75),
        ("report against blank", 2.0, 20, 1.1),
        ("blank against report", 0.2, 20, 0.4),
        ("blank against report", 1.0, 5, 1.0),
    ],
)
def test_rounding_the_other_way_brackets_delta(order, epsilon, rounds, mu):
    lower = lower_bound(order, mu, rounds, epsilon)
    assert 1e-9 < lower <= divergence(order, mu, rounds, epsilon) <= 1.02 * lower


# --- simulation --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "rounds", "noise"), NOISES)
def test_stated_noise_gives_the_delta_it_was_made_for(epsilon, rounds, noise):
    assert Allocation(mu=1 / noise, rounds=rounds).delta(epsilon, "replace-one") == pytest.approx(1e-6, rel=0.02)


@pytest.mark.parametrize(
    ("order", "epsilon", "rounds", "mu"),
    [
        ("antipodal", 1.0, 20, 0.75),
        ("antipodal", 2.0, 50, 1.12),
        ("antipodal", 4.0, 20, 1.292),
        ("antipodal", 8.0, 20, 1.875),
        ("report against blank", 1.0, 20, 0.75),
        ("report against blank", 2.0, 50, 1.2),
        ("report against blank", 7.0, 20, 2.0),
    ],
)
def test_importance_sampling_agrees(order, epsilon, rounds, mu):
    """One random coordinate is shifted, and terms are divided by the mixture's density. Six standard errors: 1e-8 for a seed."""
    rng = np.random.default_rng(20260116)
    samples, shifts, shares = 150_000, np.array([0.0, mu, mu + 1.5, mu + 3.0]), np.array([0.1, 0.3, 0.4, 0.2])
    z = rng.standard_normal((samples, rounds))
    z[np.arange(samples), rng.integers(0, rounds, samples)] += rng.choice(shifts, samples, p=shares)
    density = sum(share * np.exp(shift * z - shift * shift / 2).mean(1) for share, shift in zip(shares, shifts, strict=True))
    terms = np.maximum(values(order, mu, epsilon, z).mean(1), 0) / density
    error, upper = terms.std() / math.sqrt(samples), divergence(order, mu, rounds, epsilon)
    assert error < 0.05 * upper
    assert terms.mean() - 6 * error <= upper <= terms.mean() + 6 * error + 0.02 * upper


# --- one round, more rounds, both orders, another package --------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_one_round_is_the_plain_gaussian(epsilon):
    one = Allocation(mu=0.4, rounds=1)
    assert one.delta(epsilon, "replace-one") == gaussian_delta(epsilon, 0.8)
    assert one.delta(epsilon, "zero-out") == gaussian_delta(epsilon, 0.4)


@pytest.mark.parametrize(("order", "factor"), [(ORDERS[0], 2), (ORDERS[1], 1), (ORDERS[2], 1)])
def test_lattice_of_one_round_gives_the_plain_gaussian(order, factor):
    """The lattice itself, which one round does not need. It is cut at e^epsilon T, where one round still loses a little."""
    for epsilon in (0.1, 1.0, 2.5):
        exact = gaussian_delta(epsilon, 0.4 * factor)
        one = variable(order, 0.4, epsilon)
        bound = min(module._bound(one, 1, depth, 1 << 16)[0] for depth in (6.0, 9.0))
        assert exact * (1 - 1e-9) <= bound
        assert order == ORDERS[1] or bound <= exact * 1.005 + 4 * one.doubt


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_more_rounds_and_less_mu_reveal_less(neighbours):
    deltas = [Allocation(mu=0.9, rounds=rounds).delta(0.4, neighbours) for rounds in (1, 2, 5, 20, 63, 200)]
    assert deltas == sorted(deltas, reverse=True)
    deltas = [Allocation(mu=mu, rounds=10).delta(0.4, neighbours) for mu in (0.4, 0.5, 0.7, 1.1)]
    assert deltas == sorted(deltas)
    worse = Allocation(mu=0.3, rounds=9).worse_of(Allocation(mu=0.2, rounds=4))
    assert worse == Allocation(mu=0.3, rounds=4)


@pytest.mark.parametrize(("mu", "rounds", "epsilon"), [(0.53, 20, 1.0), (1.3, 20, 4.0), (0.3, 3, 0.2)])
def test_going_through_the_blank_is_never_better(mu, rounds, epsilon):
    """Levels e^-s: a test of level a has at most g(a) under blanks, and at most g'(g(a)) under the other report."""
    to_blank, from_blank = module.power_curves(mu, rounds, "zero-out")[::-1]
    levels = np.concatenate([np.geomspace(1e-12, 1, 4000), to_blank.levels])
    middle = np.interp(levels, to_blank.levels, to_blank.powers)
    through = (np.interp(middle, from_blank.levels, from_blank.powers) - math.exp(epsilon) * levels).max()
    assert Allocation(mu=mu, rounds=rounds).delta(epsilon, "replace-one") <= through * 1.001


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("delta", "mu", "rounds"), [(1e-4, 0.9, 10), (1e-5, 2.0, 20)])
def test_an_independent_package_brackets_epsilon(delta, mu, rounds):
    package = pytest.importorskip("PLD_accounting")
    upper, lower = package.gaussian_allocation_epsilon_range(delta=delta, sigma=1 / mu, num_steps=rounds)
    allocation = Allocation(mu=mu, rounds=rounds)
    guarantee = Guarantee(mu=0.0, theorem="Theorem L", neighbours="zero-out", allocations=(allocation,))
    assert lower <= guarantee.epsilon(delta) <= upper
    assert upper <= 1.1 * lower


def test_large_epsilons_are_resolved():
    """One lattice for both orders gave 10.0; PLD_accounting has 6.990 to 7.018."""
    guarantee = Guarantee(mu=0.0, theorem="L", neighbours="zero-out", allocations=(Allocation(mu=2.0, rounds=20),))
    assert 6.99 < guarantee.epsilon(1e-5) < 7.004
    assert guarantee.delta(guarantee.epsilon(1e-5)) <= 1e-5


# --- games of finitely many outcomes -----------------------------------------------------------------------------------------


def reports(rng, blank, mu):
    """A report's law whose pair with `blank` is a post-processing of (N(0, 1), N(mu, 1)): outcomes are intervals, in any order."""
    order = rng.permutation(blank.size)
    ends = ndtri(np.clip(np.concatenate([[0.0], np.cumsum(blank[order])]), 0, 1))
    law = np.empty(blank.size)
    law[order] = np.diff(ndtr(ends - mu))
    return law


def game(rng, rounds, outcomes, mu):
    """The transcripts' laws under two strategies: each round's blank and both reports' laws depend on all outcomes before it."""
    histories = [(1.0, np.ones(rounds), np.ones(rounds))]  # probability with blanks, ratios by lot
    for now in range(rounds):
        following = []
        for weight, first, second in histories:
            blank = rng.dirichlet(np.full(outcomes, rng.choice([0.3, 1.0, 5.0])))
            ratios = [reports(rng, blank, mu) / np.maximum(blank, 1e-300) for _ in range(2)]
            for outcome in range(outcomes):
                raised = [ratio.copy() for ratio in (first, second)]
                for ratio, law in zip(raised, ratios, strict=True):
                    ratio[now] = law[outcome]
                following.append((weight * blank[outcome], *raised))
        histories = following
    weights, first, second = (np.array([history[part] for history in histories]) for part in range(3))
    return weights, weights * first.mean(1), weights * second.mean(1)


@pytest.mark.parametrize(("rounds", "outcomes"), [(1, 12), (2, 8), (3, 5)])
def test_no_adaptive_game_exceeds_the_bound(rounds, outcomes):
    """Both reports' laws are bounded against the blank alone, whatever they have to do with each other."""
    rng = np.random.default_rng(rounds)
    closest = 0.0
    for mu, epsilon in itertools.product((0.4, 1.0, 2.0), (0.0, 0.5, 2.0)):
        both, one = (Allocation(mu=mu, rounds=rounds).delta(epsilon, relation) for relation in RELATIONS)
        for _ in range(12):
            blanks, first, second = game(rng, rounds, outcomes, mu)
            found = hockey_stick(first, second, epsilon)
            assert found <= both * (1 + 1e-9)
            assert max(hockey_stick(first, blanks, epsilon), hockey_stick(blanks, first, epsilon)) <= one * (1 + 1e-9)
            closest = max(closest, found / both)
    assert closest > 0.5


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


@pytest.mark.parametrize("epsilon", [0.2, 0.6, 1.0])
def test_no_opening_in_blocks_exceeds_the_bound(epsilon):
    """Two sums of an opening come out together; the round after them asks what both say. A lot is one of the three sums.

    A block's certificate and the other question's are of different shifts and noise: the larger mu holds for all.
    """
    parts = [(24, 2), (16, 2)]  # trials and levels of a block, and of the round after them
    sizes = [trials + levels + 2 for trials, levels in parts]
    certificates = [certify(trials, 0.5, shift=levels / 2, reach=levels, dim=1, tail=0.02) for trials, levels in parts]

    def report(part, value):
        trials, levels = parts[part]
        return count_law(trials, 0.5, levels / 2 * (1 + value), sizes[part])

    blank, after = report(0, 0.0), report(1, 0.0)
    first, second = np.meshgrid(np.arange(sizes[0]), np.arange(sizes[0]), indexing="ij")
    high = first + second > parts[0][0] + parts[0][1]

    def law(values, turn):
        """Of all three sums, for somebody whose blocks are `values` and who answers +-1 after them."""
        blocks = [report(0, value) for value in values]
        quiet = np.multiply.outer(np.multiply.outer(blank, blank), after)
        told = [np.multiply.outer(np.multiply.outer(blocks[0], blank), after), np.multiply.outer(np.outer(blank, blocks[1]), after)]
        later = np.where(high[..., np.newaxis], report(1, turn), report(1, -turn))
        told.append(np.multiply.outer(blank, blank)[..., np.newaxis] * later)
        return np.mean(told, axis=0).ravel(), quiet.ravel()

    laws = [law(values, turn) for values in itertools.product((-1.0, 1.0), repeat=2) for turn in (-1.0, 1.0)]
    allocation = Allocation(mu=max(one.mu for one in certificates), rounds=3)
    windows = 2 * certificates[0].tau + certificates[1].tau
    zero_out = max(max(hockey_stick(law, quiet, epsilon), hockey_stick(quiet, law, epsilon)) for law, quiet in laws)
    replace_one = max(hockey_stick(one, other, epsilon) for (one, _), (other, _) in itertools.permutations(laws, 2))
    assert 0 < zero_out <= allocation.delta(epsilon, "zero-out") + windows
    assert replace_one > (0.2 * allocation.delta(epsilon, "replace-one") if epsilon == 0.2 else 0)
    assert replace_one <= allocation.delta(epsilon, "replace-one") + 2 * windows


# --- composition -------------------------------------------------------------------------------------------------------------


def merged_pair(mu, rounds, groups):
    """(B, P) that Theorem L's pair can be turned into, roughly: outcomes of a sample under B, merged by their ratio."""
    rng = np.random.default_rng(11)
    ratio = np.sort(np.exp(mu * rng.standard_normal((400_000, rounds)) - mu * mu / 2).mean(1))
    report = np.array([part.sum() for part in np.array_split(ratio, groups)]) / ratio.size
    return np.full(groups, 1 / groups), report


def test_fresh_lots_compose_below_the_gaussians_and_the_same_lots_do_not():
    mu, rounds, epsilon = 0.75, 2, 1.0
    blank, report = merged_pair(mu, rounds, 1000)
    fresh = hockey_stick(np.multiply.outer(report, report), np.multiply.outer(blank, blank), epsilon)
    allocation = Allocation(mu=mu, rounds=rounds)
    guarantee = Guarantee(mu=0.0, neighbours="zero-out", theorem="Theorem L", allocations=(allocation,))
    composed = guarantee.compose(guarantee)
    assert composed.allocations == (allocation, allocation) == guarantee.repeated(2).allocations
    assert fresh <= composed.delta(epsilon)
    same = allocation.same_lots(allocation)
    exact_same = two_rounds(ORDERS[1], math.sqrt(2) * mu, epsilon)
    assert fresh * 1.1 < exact_same <= same.delta(epsilon, "zero-out") <= exact_same * 1.01  # 0.063 against 0.075


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_dominating_gaussian_is_above_the_curve_at_every_epsilon_in_both_orders(neighbours):
    allocation = Allocation(mu=0.6, rounds=12)
    orders = ORDERS[:1] if neighbours == "replace-one" else ORDERS[1:]
    lower = [(epsilon, lower_bound(order, 0.6, 12, epsilon, 1 << 15)) for order in orders for epsilon in np.linspace(0, 5, 11)]
    for slack in (1e-3, 1e-6, 1e-9):
        mu = allocation.gaussian(neighbours, slack)
        assert 0 < mu <= allocation.known(neighbours)
        assert all(delta <= gaussian_delta(epsilon, mu) + slack for epsilon, delta in lower)


def test_lines_of_a_curve_are_above_the_powers_of_gaussian_tests():
    """Of one round, whose power is known at every level; the curve is a polygon a little above it."""
    one = [gaussian_delta(epsilon, 0.8) for epsilon in np.linspace(0, 6, 60)]
    slopes = np.exp(np.linspace(0, 6, 60))
    curve = module._envelope(np.concatenate([slopes, 1 / slopes]), np.concatenate([one, 1 - 1 / slopes + one / slopes]))
    assert np.all(np.diff(curve.levels) > 0)
    assert np.all(np.diff(curve.powers) >= 0)
    levels = np.concatenate([np.geomspace(1e-9, 1, 500), curve.levels[1:-1]])
    bound, exact = np.interp(levels, curve.levels, curve.powers), ndtr(ndtri(levels) + 0.8)
    assert np.all(exact <= bound)
    assert np.all(bound <= np.min(one) + exact * 1.01)
    assert 0.8 <= curve.gaussian(1e-5) * 1.001 <= 0.83


def test_an_envelope_is_the_least_of_its_lines():
    rng = np.random.default_rng(5)
    for _ in range(200):
        slopes = rng.exponential(size=9) ** 3
        heights = np.maximum(rng.random(9) ** 2, 1 - slopes)  # a test of level 1 has power 1
        curve, levels = module._envelope(slopes, heights), rng.random(50)
        least = np.minimum((heights[:, None] + slopes[:, None] * levels).min(0), 1)
        found = np.interp(levels, curve.levels, curve.powers)
        assert np.all(found >= least)
        assert np.all(found <= least + 1e-9)


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


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("mu", "epsilon"), [(0.05, 0.1), (0.5, 1.0), (1.9, 6.0)])
def test_the_law_of_one_round_is_above_w_in_the_increasing_convex_order(order, mu, epsilon):
    """E (W' - s)_+ >= E (W - s)_+ at lattice points and between, to 50 digits, but for what is charged; and close to it."""
    one = variable(order, mu, epsilon)
    top = 1.0 if order == ORDERS[2] else float(values(order, mu, epsilon, mu + 6.0))
    bottom = float(max(values(order, mu, epsilon, -6.0), -4 * math.exp(epsilon)))
    step = math.ldexp(math.ceil(math.ldexp((top - bottom) / 500, 20)), -20)
    start, end = math.floor(bottom / step), math.ceil(top / step)
    places = np.arange(start, end + 1) * step
    law, charge = module._lattice_law(one, start, end, step)
    assert law.min() >= 0
    with mpmath.workdps(50):
        a, b, g, m = (mpmath.mpf(number) for number in (one.a, one.b, one.g, mu))
        assert mpmath.fsum(map(mpmath.mpf, law)) >= 1
        for at in np.linspace(0, places.size - 1, 9).astype(int):
            for s in (mpmath.mpf(places[at]), mpmath.mpf(places[at]) - mpmath.mpf(step) / 3):
                ours = charge + mpmath.fsum(mpmath.mpf(w) * (p - s) for w, p in zip(law, places, strict=True) if p > s)
                if a and g:
                    z = (mpmath.asinh(s * mpmath.exp((m * m - mpmath.mpf(epsilon)) / 2) / 2) + mpmath.mpf(epsilon) / 2) / m
                elif a:
                    z = (mpmath.log(s - b) + m * m / 2) / m if s > b else -mpmath.inf
                else:
                    z = -(mpmath.log((b - s) / g) + m * m / 2) / m if s < b else mpmath.inf
                exact = a * normal_cdf(m - z) + (b - s) * normal_cdf(-z) - g * normal_cdf(-z - m)
                assert exact <= ours + one.doubt * (a + abs(b) + g)
                assert ours <= exact + step / 4 * (1 + 1e-6) + 1e-9 * (1 + abs(float(s)))


@pytest.mark.parametrize("rounds", [2, 20, 1000])
def test_errors_of_the_transform_stay_within_what_is_charged(rounds):
    """Weights in float64 against weights in longer floats: none is below the better one."""
    longer = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps / 100
    if not longer:
        pytest.skip("no longer floats on this machine")
    rng = np.random.default_rng(2)
    for law in (rng.dirichlet(np.full(1 << 14, 0.01)), rng.dirichlet(np.exp(-np.linspace(0, 300, 1 << 14)) + 1e-9)):
        spectrum = rfft(law.astype(np.longdouble))
        better = irfft(module._power(spectrum, rounds), law.size)
        ours = module._convolved(law, rounds)
        assert np.all(ours >= better)
        assert np.max(ours - better) < 1e-10


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("mu", "rounds", "epsilon"), [(0.6, 3, 1.0), (0.6, 100, 0.2), (1.2, 20, 1.5), (1.2, 2, 2.0)])
def test_short_and_coarse_lattices_are_charged_for_what_they_leave_out(order, mu, rounds, epsilon):
    lower = lower_bound(order, mu, rounds, epsilon, 1 << 16)
    one = variable(order, mu, epsilon)
    for depth, points in itertools.product((-0.5, 0.5, 2.0, 4.0), (1 << 6, 1 << 10, 1 << 14)):
        assert lower <= module._bound(one, rounds, depth, points)[0]


@pytest.mark.parametrize("change", [("_GENTLE", 0.1), ("_GENTLE", 1.0), ("_GENTLE", 2.0), ("_REACH", 3.0), ("_REACH_DOWN", 0.5)])
@pytest.mark.parametrize("order", ORDERS)
def test_any_tilt_and_any_window_are_safe(order, change, monkeypatch):
    monkeypatch.setattr(module, *change)
    for mu, rounds, epsilon in ((0.6, 3, 1.0), (1.2, 20, 1.5)):
        bound, _ = module._bound(variable(order, mu, epsilon), rounds, 6.0, 1 << 12)
        assert lower_bound(order, mu, rounds, epsilon, 1 << 16) <= bound


def test_a_power_curve_is_safe_at_its_vertices():
    curve = PowerCurve(np.array([0.0, 0.1, 1.0]), np.array([0.01, 0.4, 1.0]))
    assert curve.gaussian(0.005) == math.inf
    mu = curve.gaussian(0.02)
    powers = ndtr(np.array([-1.2815515655446004]) + mu) + 0.02
    assert powers[0] >= 0.4


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
