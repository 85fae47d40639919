"""Lemma D and Theorem E of docs/accounting.md, section 3: a table in ball arithmetic, and exact laws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from oracles import binomial_law, count_law, hockey_stick, loss_distribution
from scipy.fft import irfft, rfft
from scipy.special import ndtr, ndtri

from croupier.privacy import NoCertificateError, SumPlan, certify, plan_sum
from croupier.privacy import certificate as module
from croupier.privacy._allocation import Allocation, _power_at, power_curves
from croupier.privacy.gaussian import gaussian_delta

# Noise, S and d of a rotated plan with two levels and one noise bit; mu of the exact law, which is S / sd, Theorem E's and B's.
ROTATED = {"trials": 3332, "probability": 0.5, "shift": 13.2, "reach": 2, "dim": 8192, "tail": 1e-15}


def curve(first, second):
    """Vertices (level, power) of all tests of one law against another, by the likelihood ratio."""
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(first > 0, second / first, np.inf))
    return np.cumsum(first[order]), np.cumsum(second[order])


# --- the lemma ---------------------------------------------------------------------------------------------------------------


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


# --- the table ---------------------------------------------------------------------------------------------------------------


def test_the_table_has_a_factor_for_every_octave_and_length():
    assert tuple(module._BENDS) == module.BEND_LENGTHS
    assert all(len(row) == module.LAST_OCTAVE - module.FIRST_OCTAVE + 1 for row in module._BENDS.values())
    assert all(1 < factor < 1.1 for row in module._BENDS.values() for factor in row)


@pytest.mark.parametrize(("digits", "octave", "length"), [(31, -6, 512), (16, -16, 512), (25, -12, 2048), (20, -12, 8192)])
def test_factors_are_proved_in_ball_arithmetic(digits, octave, length):
    proof = pytest.importorskip("croupier.privacy._proof")
    factor = proof.bend_factor(Fraction(digits, 32) * Fraction(2) ** octave, length)
    assert factor <= module._BENDS[length][octave - module.FIRST_OCTAVE] <= factor + 0.01


@pytest.mark.parametrize(("k", "length"), [(1.5e-4, 8192), (3e-3, 512)])
def test_the_power_curve_of_bent_scores_is_near_the_table_from_below(k, length):
    """Another route: losses in cells of z, moved down to a lattice, so that powers are too small; two hundredths of mu at most."""
    points, spread = 1 << 17, k * math.sqrt(2 * length)
    step = 60 * spread / points
    z = np.linspace(-9, 9, 400_001)
    middle, mass = (z[1:] + z[:-1]) / 2, np.diff(ndtr(z))
    loss = np.where(middle > 0, -math.log1p(-k) - middle**2 * (k - k * k / 2), -math.log1p(k) + middle**2 * (k + k * k / 2))
    place = np.floor(loss / step).astype(int)
    # the mean that moving down loses is given back to all at once
    given_back = length * float(np.sum(mass * (loss - place * step)))
    law = np.zeros(points)
    np.add.at(law, place % points, mass)
    weights = np.maximum(np.fft.fftshift(irfft(rfft(law.astype(np.longdouble)) ** length, points)).astype(float), 0)
    losses = (np.arange(points) - points // 2) * step + given_back
    powers, levels = np.cumsum(weights[::-1]), np.cumsum((weights * np.exp(-losses))[::-1])
    telling = (levels > 1e-9) & (levels < 1 - 1e-9) & (powers < 1 - 1e-9)
    needed = float(np.max(ndtri(powers[telling]) - ndtri(levels[telling])))
    bent, nu = module.bend(k, length)
    assert bent >= k
    assert 0.9 * nu <= needed <= nu


@pytest.mark.parametrize("least", [1e-9, 2.0**-17, 2.0**-17 * 1.001, 1.9e-4, 31.5 / 32 * 2.0**-10, 2.0**-6 * 31 / 32])
def test_a_bend_is_rounded_up_to_five_digits(least):
    k, nu = module.bend(least, 700)
    assert least <= k <= max(least * 17 / 16, 2.0**-17)
    digits, _ = math.frexp(k)
    assert digits * 32 == int(digits * 32)
    assert nu >= k * math.sqrt(2 * 1024)


def test_there_is_no_bend_beyond_the_table():
    assert module.bend(2.0**-6, 600) is None
    assert module.bend(1e-4, module.BEND_LENGTHS[-1] + 1) is None
    assert module.bend(1e-4, 1) == module.bend(1e-4, module.BEND_LENGTHS[0])


# --- certificates ------------------------------------------------------------------------------------------------------------


def test_many_coordinates_and_few_noise_bits_are_certified_by_theorem_e():
    by_b, by_e = certify(**ROTATED), certify(**ROTATED, spare=1e-11)
    assert (by_b.theorem, by_b.residue, by_b.bend) == ("B", 0, 0)
    assert (by_e.theorem, by_e.residue) == ("E", 1e-12)
    assert (by_b.low, by_b.high, by_b.tau, by_b.step) == (by_e.low, by_e.high, by_e.tau, by_e.step)
    exact = ROTATED["shift"] / math.sqrt(ROTATED["trials"] / 4)
    assert exact < by_e.mu < 0.95 * by_b.mu
    k = by_e.slope**2 / 8
    assert by_e.mu == pytest.approx(by_e.step * 13.2 + 2 * by_e.step * k * math.sqrt(8192) + by_e.bend, rel=1e-4)


def test_small_gains_are_left_to_theorem_b():
    """Fifty bits at (10 000, 100) and such: all plans that the documents print."""
    few = certify(30_000, 0.5, shift=47.0, reach=47, dim=100, tail=1e-10, spare=1e-9)
    assert few == certify(30_000, 0.5, shift=47.0, reach=47, dim=100, tail=1e-10)
    assert certify(**ROTATED, spare=0.9e-12).theorem == "B"
    assert plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=1000).theorem == "accounting Theorem B"


def test_exact_losses_of_many_equal_coordinates_are_below():
    """Lower bounds of the exact delta: 8192 coordinates, each moved by the same part of a level."""
    found = certify(**ROTATED, spare=1e-11)
    one = loss_distribution(3332, 0.5, 0.3, ROTATED["shift"] / math.sqrt(8192), optimistic=True)
    every = one.self_compose(8192)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        exact = every.get_delta_for_epsilon(epsilon)
        assert 0 < exact <= gaussian_delta(epsilon, found.mu) + 8192 * found.tau + found.residue
    assert every.get_delta_for_epsilon(1.0) > 0.4 * gaussian_delta(1.0, found.mu)


@pytest.mark.parametrize(("trials", "probability", "dim"), [(60, 0.5, 1), (60, 0.3, 1), (24, 0.5, 2), (30, 0.5, 3)])
def test_no_test_of_a_small_round_exceeds_theorem_e(trials, probability, dim):
    """Enumerated laws, with the factor of as many coordinates (of four for three) proved for the k at hand; both orders."""
    proof = pytest.importorskip("croupier.privacy._proof")
    closest = 0.0
    for whole, part in itertools.product((0.0, 0.4), (0.25, 0.6, 1.0)):
        moves = [part / math.sqrt(dim)] * dim
        found = certify(trials, probability, shift=part, reach=1, dim=dim, tail=0.02)
        k = Fraction(math.ceil(found.slope**2 / 8 * 4096), 4096)
        length = 1 << (dim - 1).bit_length()
        nu = proof.bend_factor(k, length) * float(k) * math.sqrt(2 * length)
        mu = found.step * part + 2 * found.step * float(k) * math.sqrt(dim) + nu
        laws = []
        for moved in (0.0, 1.0):
            law = np.ones(1)
            for move in moves:
                law = np.multiply.outer(law, count_law(trials, probability, whole + moved * move, trials + 4)).ravel()
            laws.append(law)
        for first, second in (laws, laws[::-1]):
            levels, powers = curve(first, second)
            bound = ndtr(ndtri(np.clip(levels, 0, 1)) + mu) + 1e-12 + dim * found.tau
            assert np.all(powers <= bound + 1e-12)
            closest = max(closest, float(np.max((powers / bound)[levels > 1e-3])))
    assert closest > 0.5


# --- plans and lots ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_plan():
    """Unrotated, with more levels than it would have: few noise bits and many coordinates."""
    return plan_sum(epsilon=2.0, delta=1e-6, users=3332, dim=8192, max_bits=14, rotation=None)


def test_a_plan_says_which_theorem_it_rests_on(long_plan):
    assert long_plan.theorem == "accounting Theorem E"
    assert "Theorem E" in str(long_plan)
    assert long_plan.certified_delta <= 1e-6
    assert SumPlan.from_json(long_plan.to_json()) == long_plan
    certificate = certify(
        long_plan.noise_bits * 3332, long_plan.noise_probability, shift=long_plan.levels, reach=long_plan.levels, dim=8192,
        tail=1e-8 / 8192, spare=1e-9,
    )  # fmt: skip
    assert long_plan.slack == 8192 * certificate.tau + 1e-12
    assert long_plan.mu == certificate.mu


def test_a_plan_by_theorem_e_is_proved(long_plan):
    proof = pytest.importorskip("croupier.privacy._proof")
    proved = long_plan.prove()
    assert proved.delta.upper <= long_plan.certified_delta
    assert 0 < float(proved.bend.upper) <= float(proved.mu.lower)
    assert proved.to_dict()["certificate"] == "croupier accounting Theorem E"
    with pytest.raises(NoCertificateError, match="bend"):
        proof._proved_bend(proof.arb(0.5), 8192)


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
@pytest.mark.parametrize(("mu", "rounds"), [(0.3, 2), (0.8, 50), (1.5, 20), (3.0, 1000)])
def test_the_few_lines_around_a_level_are_those_of_the_whole_curve(mu, rounds, neighbours):
    for level in (module.RESIDUE, 1e-9):
        whole = max(float(np.interp(level, curve.levels, curve.powers)) for curve in power_curves(mu, rounds, neighbours))
        assert _power_at(mu, rounds, neighbours, level) == whole


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
@pytest.mark.parametrize("residue", [1e-3, 0.02])
def test_a_residue_is_carried_through_the_lots(neighbours, residue):
    """Exact laws of one and two rounds, coarsened, and moved by the residue in the worst ways that were found."""
    mu, edges = 0.8, ndtri(np.linspace(0, 1, 13))
    blank, up, down = (np.diff(ndtr(edges - shift)) for shift in (0.0, mu, -mu))
    for rounds in (1, 2):
        laws = []
        for report in (blank, up, down):
            parts = [[report if now == lot else blank for now in range(rounds)] for lot in range(rounds)]
            laws.append(np.mean([np.multiply.outer(*part).ravel() if rounds == 2 else part[0] for part in parts], axis=0))
        allocation = Allocation(mu=mu, rounds=rounds)
        slack = allocation.given_up(residue, neighbours)
        assert slack >= residue
        first, second = (laws[1], laws[2]) if neighbours == "replace-one" else (laws[1], laws[0])
        for epsilon in (0.0, 0.5, 1.5):
            bound = allocation.delta(epsilon, neighbours) + slack
            for one, other, blanks in ((first, second, False), (second, first, neighbours == "zero-out")):
                assert hockey_stick(*moved(one, other, residue, blanks), epsilon) <= bound + 1e-12


def moved(one, other, residue, blanks):
    """`one` with the residue on an outcome of its own, unless it is that of blanks; `other` with less where that tells most."""
    last = np.append(one, 0.0) if blanks else np.append(one * (1 - residue), residue)
    left, less = residue, other.copy()
    for place in np.argsort(other / one):
        taken = min(left, less[place])
        less[place] -= taken
        left -= taken
    return last, np.append(less, 0.0)


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
def test_a_residue_is_bounded_where_a_curve_has_lines_of_very_large_epsilon(neighbours):
    """Above epsilon 709 no double holds a line's slope. More noise is no worse, and no test has a power above 1."""
    found = [Allocation(mu=mu, rounds=10).given_up(1e-12, neighbours) for mu in (5.0, 30.0, 40.0)]
    assert 1e-12 < found[0] < 0.5 < found[1] <= found[2] <= 1 + 1e-9
