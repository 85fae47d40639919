"""Theorem B against the exact laws: no (N, p, position, shift, epsilon) may exceed what the certificate promises."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import (
    binomial_law,
    exact_binomial,
    exact_delta,
    exact_gaussian_delta,
    exact_normal_score,
    normal_density,
)
from scipy.special import ndtri
from scipy.stats import binom

from croupier.privacy import ArgumentError, NoCertificateError, certificate, certify
from croupier.privacy.certificate import BLOCK_LOOSENESS, MAX_TRIALS, SLOPE_MARGIN, presume
from croupier.privacy.gaussian import gaussian_delta

thorough = settings(max_examples=300, deadline=None, derandomize=True)
quick = settings(max_examples=60, deadline=None, derandomize=True)
# What summing a law of a few hundred floats may be off by.
ROUNDING = 1e-13

PROBABILITIES = st.just(0.5) | st.floats(0.02, 0.98)
POSITIONS = st.floats(0, 20) | st.integers(0, 40).map(lambda k: k / 2)
SHIFTS = st.floats(0.01, 1) | st.floats(0.1, 12) | st.integers(1, 24).map(lambda k: k / 2)
SIGNED = st.floats(-6, 6) | st.integers(-12, 12).map(lambda k: k / 2)
EPSILONS = st.just(0.0) | st.floats(0, 15)
TAILS = st.floats(-12, -0.4).map(lambda exponent: 10**exponent)


def certify_or_skip(trials, probability, shifts, tail):
    shift, reach = math.hypot(*shifts), max(1, math.ceil(max(abs(s) for s in shifts)))
    try:
        return certify(trials, probability, shift=shift, reach=reach, dim=len(shifts), tail=tail)
    except NoCertificateError:
        assume(False)


def promised(found, dim, epsilon):
    return gaussian_delta(epsilon, found.mu) + dim * found.tau


# --- against exact laws ------------------------------------------------------------------------------------------------


@thorough
@given(trials=st.integers(2, 300), probability=PROBABILITIES, position=POSITIONS, shift=SHIFTS, epsilon=EPSILONS, tail=TAILS)
@example(trials=300, probability=0.5, position=0.0, shift=4.0, epsilon=1.0, tail=1e-9)
@example(trials=300, probability=0.02, position=0.5, shift=0.5, epsilon=0.3, tail=1e-2)
@example(trials=40, probability=0.9, position=0.25, shift=1.5, epsilon=0.5, tail=0.3)
def test_one_coordinate_never_exceeds_the_certificate(trials, probability, position, shift, epsilon, tail):
    """d = 1, real positions and shifts, both directions, every outcome enumerated."""
    found = certify_or_skip(trials, probability, [shift], tail)
    exact = exact_delta(trials, probability, [position], [shift], epsilon)
    assert exact <= promised(found, 1, epsilon) + ROUNDING


@quick
@given(
    trials=st.integers(20, 150),
    probability=PROBABILITIES,
    moves=st.lists(st.tuples(st.floats(0, 3), SIGNED), min_size=2, max_size=2),
    epsilon=EPSILONS,
    tail=TAILS,
)
@example(trials=150, probability=0.5, moves=[(0.0, 2.5), (0.5, -2.5)], epsilon=1.0, tail=1e-8)
def test_two_coordinates_never_exceed_the_certificate(trials, probability, moves, epsilon, tail):
    """d = 2, shifts of any sign, the product law enumerated."""
    positions, shifts = zip(*moves, strict=True)
    assume(any(shifts))
    found = certify_or_skip(trials, probability, shifts, tail)
    assert exact_delta(trials, probability, positions, shifts, epsilon) <= promised(found, 2, epsilon) + ROUNDING


@quick
@given(
    trials=st.integers(10, 50),
    probability=st.just(0.5) | st.floats(0.1, 0.9),
    moves=st.lists(
        st.tuples(st.floats(0, 2), st.sampled_from([-1.5, -1.0, -0.5, 0.0, 0.3, 0.5, 1.0, 2.0])), min_size=3, max_size=3
    ),
    epsilon=st.floats(0, 8),
    tail=st.floats(-6, -1).map(lambda exponent: 10**exponent),
)
@example(trials=50, probability=0.5, moves=[(0.0, 0.5), (0.5, 0.5), (0.25, -0.5)], epsilon=0.5, tail=1e-5)
def test_three_coordinates_never_exceed_the_certificate(trials, probability, moves, epsilon, tail):
    """d = 3, the product law enumerated."""
    positions, shifts = zip(*moves, strict=True)
    assume(any(shifts))
    found = certify_or_skip(trials, probability, shifts, tail)
    assert exact_delta(trials, probability, positions, shifts, epsilon) <= promised(found, 3, epsilon) + ROUNDING


@thorough
@given(
    trials=st.integers(10, 300), probability=PROBABILITIES, shift=SHIFTS, tail=TAILS, where=st.lists(st.floats(0, 1), min_size=8)
)
def test_scores_rise_by_at_most_step_times_distance_plus_bulge(trials, probability, shift, tail, where):
    """Steps (i) to (iii) of the proof and Lemma C, at real points: zt(x) - zt(x - s) <= min(ct s, c s + kappa)."""
    found = certify_or_skip(trials, probability, [shift], tail)
    x = found.low + shift + np.array(where) * (found.high - found.low - shift)
    law = binomial_law(trials, probability)
    lower, upper = np.cumsum(law), 1 - np.cumsum(law[::-1])[::-1]  # F(y), and F(y - 1) summed from the other tail
    lower = np.where(lower < 0.5, lower, np.append(upper[1:], 1.0))
    scores = [ndtri(np.interp(points, np.arange(trials + 1), lower)) for points in (x, x - shift)]
    known = np.abs(scores).max(axis=0) < 6  # beyond, 1 - F has lost its digits
    bound = min(found.slope * shift, found.step * shift + found.bulge)
    assert np.all((scores[0] - scores[1])[known] <= bound * (1 + 1e-6) + 1e-7)


def test_the_certificate_is_close_to_the_truth():
    """Not only safe but tight: for a farthest pair of neighbours mu is within 2 per cent of S / std, delta within 40."""
    found = certify(2_000, 0.5, shift=5, reach=5, dim=1, tail=1e-9)
    exact = exact_delta(2_000, 0.5, [0.0], [5.0], 1.0)
    assert found.mu <= 1.02 * 5 / math.sqrt(2_000 / 4)
    assert exact <= promised(found, 1, 1.0) <= 1.4 * exact


# --- the constants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trials", "probability"), [(60, 0.5), (400, 0.5), (300, 0.2)])
def test_constants_agree_with_50_digits(trials, probability):
    """c, ct, kappa, mu and tau of the window, recomputed from their definitions in 50-digit arithmetic."""
    shift, reach, dim = 2.5, 3, 7
    found = certify(trials, probability, shift=shift, reach=reach, dim=dim, tail=1e-4)
    F, f = exact_binomial(found.low, found.high - found.low, trials, probability)
    with mpmath.workdps(50):
        guesses = ndtri([float(q) for q in F])
        z = [exact_normal_score(q, guess) for q, guess in zip(F, guesses, strict=True)]
        c = max(b - a for a, b in itertools.pairwise(z))
        ct = max(f[i] / min(normal_density(z[i - 1]), normal_density(z[i])) for i in range(1, len(z)))
        Z = max(abs(z[0]), abs(z[-1]))
        kappa = min(c * (1 - c / ct), ct**2 * max(Z, 2 * c) / 8)
        mu = min(ct * shift, c * shift + kappa * mpmath.sqrt(dim))
        tau = max(F[1] + 1 - F[-reach - 2], F[reach + 1] + 1 - F[-2])
    assert found.step == pytest.approx(float(c), rel=1e-9)
    assert found.slope == pytest.approx(float(ct), rel=1e-9)
    assert c * (1 - mpmath.mpf(SLOPE_MARGIN)) <= found.step * (1 + SLOPE_MARGIN)
    for figure, exact in ((found.bulge, kappa), (found.mu, mu), (found.tau, tau)):
        assert exact <= figure <= exact * (1 + mpmath.mpf(10) ** -6)


@pytest.mark.parametrize(("trials", "expected"), [(400, 1.037), (4_000, 1.0034), (40_000, 1.0003)])
def test_fair_noise_is_as_good_as_a_gaussian_of_nearly_its_own_width(trials, expected):
    """c times the standard deviation, as tabulated in the accounting (tail 1e-12, reach 0.24 standard deviations)."""
    std = math.sqrt(trials / 4)
    reach = round(0.24 * std)
    found = certify(trials, 0.5, shift=reach, reach=reach, dim=1, tail=1e-12)
    assert found.step * std == pytest.approx(expected, abs=5e-4 if trials == 400 else 5e-5)


def test_skewed_noise_is_dearer():
    trials = round(1000 / 0.09)
    std = math.sqrt(trials * 0.09)
    assert certify(trials, 0.1, shift=8, reach=8, dim=1, tail=1e-12).step * std == pytest.approx(1.07, abs=5e-3)


@quick
@given(trials=st.integers(50, 5_000), probability=PROBABILITIES, reach=st.integers(1, 10), tail=TAILS)
def test_what_the_window_loses_is_within_the_tail_asked_for(trials, probability, reach, tail):
    found = certify_or_skip(trials, probability, [float(reach)], tail)
    assert 0 < found.tau <= tail
    assert 0 <= found.low < found.high - reach
    assert found.high <= trials - 1
    lost = (
        binom.cdf(found.low + 1, trials, probability) + binom.sf(found.high - reach - 1, trials, probability),
        binom.cdf(found.low + reach + 1, trials, probability) + binom.sf(found.high - 1, trials, probability),
    )
    assert found.tau >= max(lost)


@quick
@given(trials=st.integers(200, 3_000), probability=st.floats(0.2, 0.8), shift=st.floats(0.5, 5), dim=st.integers(1, 500))
def test_mu_grows_with_shift_and_dim_and_is_mirrored_in_probability(trials, probability, shift, dim):
    def mu(s, d, p):
        return certify(trials, p, shift=s, reach=6, dim=d, tail=1e-6).mu

    here = mu(shift, dim, probability)
    assert mu(shift * 1.1, dim, probability) >= here
    assert mu(shift, dim + 50, probability) >= here
    assert mu(shift, dim, 1 - probability) == pytest.approx(here, rel=0.02)  # windows may differ by a point


# --- floating point ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trials", "probability", "scores"),
    [
        (10**5, 0.5, (-8, -2, 3)),
        (10**7, 0.3, (-8, -3)),
        (10**9, 0.002, (4,)),
        (10**12, 61 / 2**24, (-8,)),
        (10**12, 1e-6, (-12,)),
    ],
)
def test_scipys_binomial_is_right_to_well_below_the_margin(trials, probability, scores):
    """pmf, cdf and sf against 50 digits: relative errors below a hundredth of SLOPE_MARGIN where windows are scanned."""
    std = math.sqrt(trials * probability * (1 - probability))
    for score in scores:
        y = int(trials * probability + score * std)
        if score < 0:
            (exact, *_), (exact_f, *_) = exact_binomial(y, 0, trials, probability)
            tail = binom.cdf(y, trials, probability)
        else:  # P(Bin(N, p) > y) = P(Bin(N, 1 - p) <= N - y - 1), with 1 - p exact
            with mpmath.workdps(60):
                (exact, *_), _ = exact_binomial(trials - y - 1, 0, trials, 1 - mpmath.mpf(probability))
                _, (exact_f, *_) = exact_binomial(y, 0, trials, probability)
            tail = binom.sf(y, trials, probability)
        assert abs(tail / exact - 1) < SLOPE_MARGIN / 100
        assert abs(binom.pmf(y, trials, probability) / exact_f - 1) < SLOPE_MARGIN / 100


@pytest.mark.parametrize("probability", [0.5, 0.3])
def test_scipys_pmf_is_right_to_a_tenth_of_the_margin_at_the_most_trials_allowed(probability):
    std = math.sqrt(MAX_TRIALS * probability * (1 - probability))
    for score in (-9, 0, 9):
        y = int(MAX_TRIALS * probability + score * std)
        with mpmath.workdps(60):
            p, n = mpmath.mpf(probability), MAX_TRIALS
            log_f = mpmath.loggamma(n + 1) - mpmath.loggamma(y + 1) - mpmath.loggamma(n - y + 1)
            exact = mpmath.exp(log_f + y * mpmath.log(p) + (n - y) * mpmath.log(1 - p))
        assert abs(binom.pmf(y, MAX_TRIALS, probability) / exact - 1) < SLOPE_MARGIN / 10


@pytest.mark.parametrize(
    ("trials", "probability", "score"),
    [(10**7, 0.5, -8), (10**7, 0.3, -5), (10**7, 0.3, -25), (10**12, 2e-6, -8), (10**12, 2e-6, -0.5), (4_000, 0.5, -35)],
)
def test_steps_and_slopes_are_right_to_well_below_the_margin(trials, probability, score):
    """Differences of neighbouring scores lose digits: at the widest scanned windows fewer than the margin covers."""
    low = int(trials * probability + score * math.sqrt(trials * probability * (1 - probability)))
    F, f = exact_binomial(low, 2, trials, probability)
    step, slope, extreme = certificate._scan(trials, probability, low, low + 2)
    with mpmath.workdps(50):
        z = [exact_normal_score(q, certificate.ndtri_exp(float(mpmath.log(q)))) for q in F]
        exact_step = max(z[1] - z[0], z[2] - z[1])
        exact_slope = max(f[i] / min(normal_density(z[i - 1]), normal_density(z[i])) for i in (1, 2))
    assert abs(step / exact_step - 1) < SLOPE_MARGIN / 4
    assert abs(slope / exact_slope - 1) < SLOPE_MARGIN / 100
    assert extreme == pytest.approx(float(max(abs(x) for x in z)), rel=1e-12)


# --- wide windows, bounded in blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trials", "probability", "reach"),
    [(400, 0.5, 3), (40_000, 0.5, 24), (40_000, 0.03, 9), (10**6, 0.9, 70), (10**6, 0.5, 5_000)],
)
def test_the_block_bound_is_never_below_the_scan(monkeypatch, trials, probability, reach):
    arguments = {"shift": reach, "reach": reach, "dim": 10, "tail": 1e-10}
    scanned = certify(trials, probability, **arguments)
    monkeypatch.setattr(certificate, "SCAN_POINTS", 1)
    bounded = certify.__wrapped__(trials, probability, **arguments)
    assert (bounded.low, bounded.high, bounded.tau) == (scanned.low, scanned.high, scanned.tau)
    assert math.isnan(bounded.step)
    assert bounded.slope >= scanned.slope * (1 - 1e-12)
    assert bounded.mu >= scanned.mu


@pytest.mark.parametrize(("trials", "reach"), [(5 * 10**7, 800), (4 * 10**8, 2_400)])
def test_the_block_bound_is_loose_by_less_than_half_a_per_cent_where_it_is_used(monkeypatch, trials, reach):
    arguments = {"shift": reach, "reach": reach, "dim": 10, "tail": 1e-10}
    bounded = certify(trials, 0.5, **arguments)
    assert math.isnan(bounded.step)
    monkeypatch.setattr(certificate, "SCAN_POINTS", 10**7)
    scanned = certify.__wrapped__(trials, 0.5, **arguments)
    assert scanned.slope <= bounded.slope <= scanned.slope * (1 + BLOCK_LOOSENESS + 3e-3)
    assert scanned.mu <= bounded.mu <= 1.005 * scanned.mu


def test_scanning_in_chunks_changes_nothing(monkeypatch):
    whole = certify(10**6, 0.4, shift=50, reach=50, dim=3, tail=1e-9)
    monkeypatch.setattr(certificate, "_CHUNK", 97)
    assert certify(10**6, 0.4, shift=50, reach=50, dim=3, tail=1e-9) == whole


@pytest.mark.parametrize(
    ("trials", "probability", "reach"), [(300, 0.5, 3), (4_000, 0.5, 15), (4_000, 0.1, 8), (10**5, 0.46, 39), (10**5, 0.02, 20)]
)
def test_the_searchs_guess_is_what_the_full_scan_finds(trials, probability, reach):
    arguments = {"shift": reach, "reach": reach, "dim": 100, "tail": 1e-10}
    assert presume(trials, probability, **arguments) == pytest.approx(certify(trials, probability, **arguments).mu, rel=1e-8)


def test_the_most_trials_allowed_are_certified():
    found = certify(MAX_TRIALS, 0.5, shift=200, reach=200, dim=100, tail=1e-10)
    assert found.mu == pytest.approx(200 / math.sqrt(MAX_TRIALS / 4), rel=5e-3)


@pytest.mark.parametrize("tail", [1e-15, 1e-17, 1e-30, 1e-100])
@pytest.mark.parametrize("trials", [4_000, 20_000])
def test_tiny_tails_are_certified_as_well(trials, tail):
    """A small delta shared among many coordinates and rounds: the upper quantile must not be lost where 1 - tail = 1."""
    std = math.sqrt(trials / 4)
    reach = round(0.2 * std)
    found = certify(trials, 0.5, shift=reach, reach=reach, dim=1, tail=tail)
    assert found.tau <= tail
    assert found.mu == pytest.approx(reach / std, rel=0.2)
    assert trials - 1 - found.high == pytest.approx(found.low, abs=3)  # fair noise: a window about the middle


@pytest.mark.parametrize("tail", [1e-15, 1e-17, 1e-100])
@pytest.mark.parametrize("trials", [10**6, 4 * 10**8])
def test_a_search_finds_its_way_with_tiny_tails(trials, tail):
    """The same for windows that would be bounded in blocks: a window up to the last trial would take terabytes of blocks."""
    std = math.sqrt(trials / 4)
    reach = round(0.2 * std)
    assert presume(trials, 0.5, shift=reach, reach=reach, dim=1, tail=tail) == pytest.approx(reach / std, rel=0.05)


# --- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trials", "probability", "reach", "tail", "message"),
    [
        (3, 0.5, 5, 1e-3, "too narrow to hide a difference of 5"),
        (100, 0.5, 30, 1e-6, "leaves the window"),
        (1, 0.5, 1, 0.5, "too narrow"),
        (1_000, 1e-4, 1, 1e-6, "leaves the window"),
        (MAX_TRIALS + 1, 0.5, 1, 1e-6, "more than the 1000000000000"),
        (10**6, 0.5, 20_000, 1e-6, "beyond floating point"),
    ],
)
def test_noise_that_cannot_hide_the_difference_gets_no_certificate(trials, probability, reach, tail, message):
    with pytest.raises(NoCertificateError, match=message):
        certify(trials, probability, shift=reach, reach=reach, dim=1, tail=tail)


def test_the_guess_is_infinite_where_there_is_no_certificate():
    assert presume(3, 0.5, shift=5, reach=5, dim=1, tail=1e-3) == math.inf
    assert presume(MAX_TRIALS + 1, 0.5, shift=5, reach=5, dim=1, tail=1e-3) == math.inf


@pytest.mark.parametrize("broken", [math.nan, 0.0, 1.0])
def test_a_tail_that_cannot_be_computed_gets_no_certificate(monkeypatch, broken):
    monkeypatch.setattr(certificate, "_cdf", lambda y, n, p: np.where(np.size(y) > 2, broken, binom.cdf(y, n, p)))
    with pytest.raises(NoCertificateError, match="beyond floating point"):
        certify(1_000, 0.5, shift=2, reach=2, dim=1, tail=1e-6)


def test_unchecked_quantiles_and_masses_are_those_of_scipys_public_functions():
    for trials, probability in ((20, 0.5), (10_000, 0.3), (10**11, 0.5)):
        y = np.unique(np.linspace(0, trials, 9).astype(np.int64))
        assert np.array_equal(
            certificate._binom_pmf(y.astype(float), float(trials), probability), binom.pmf(y, trials, probability)
        )
        for tail in (1e-14, 1e-6):
            assert certificate._binom_ppf(tail, float(trials), probability) == binom.ppf(tail, trials, probability)


@pytest.mark.parametrize("broken", [math.nan, 0.0, math.inf])
def test_a_pmf_that_cannot_be_computed_gets_no_certificate(monkeypatch, broken):
    monkeypatch.setattr(certificate, "_binom_pmf", lambda y, n, p: np.full(np.shape(y), broken))
    for points in (certificate.SCAN_POINTS, 1):
        monkeypatch.setattr(certificate, "SCAN_POINTS", points)
        with pytest.raises(NoCertificateError, match="could not be computed"):
            certify(1_000, 0.5, shift=2, reach=2, dim=1, tail=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("trials", 0, "whole number of at least 1"),
        ("trials", 10.5, "whole number of at least 1"),
        ("probability", 0, "greater than 0 and less than 1"),
        ("probability", 1, "greater than 0 and less than 1"),
        ("probability", math.nan, "greater than 0 and less than 1"),
        ("shift", 0, "greater than 0"),
        ("shift", math.inf, "greater than 0"),
        ("reach", 0, "whole number of at least 1"),
        ("reach", 1.5, "whole number of at least 1"),
        ("dim", 0, "whole number of at least 1"),
        ("dim", None, "whole number of at least 1"),
        ("tail", 0, "greater than 0 and less than 1"),
        ("tail", 1, "greater than 0 and less than 1"),
        ("tail", "small", "greater than 0 and less than 1"),
    ],
)
def test_a_bad_argument_is_refused_by_name_value_and_range(name, value, allowed):
    arguments = {"trials": 1_000, "probability": 0.5, "shift": 2.0, "reach": 2, "dim": 1, "tail": 1e-6, name: value}
    with pytest.raises(ArgumentError) as error:
        certify(arguments.pop("trials"), arguments.pop("probability"), **arguments)
    assert str(error.value).startswith(f"{name} = {value!r} is not allowed: it must be ")
    assert allowed in str(error.value)


def test_the_oracles_agree_with_each_other():
    """A Gaussian-like binomial's exact divergence is near the 50-digit Gaussian one: the second route is itself checked."""
    exact = exact_delta(3_000, 0.5, [0.0], [10.0], 1.0)
    mu = 10 / math.sqrt(3_000 / 4)
    assert exact == pytest.approx(float(exact_gaussian_delta(1, mu)), rel=0.02)
