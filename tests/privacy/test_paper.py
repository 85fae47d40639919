"""The paper's own calibration: its printed constants, its limits, and whether its claims hold by other routes."""

from __future__ import annotations

import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import binomial_law, exact_delta, hockey_stick

from croupier.privacy import ArgumentError, SumPlan, certify, plan_scalar_sum, plan_sum
from croupier.privacy._paper import MAX_ALPHA, MAX_EPSILON
from croupier.privacy.gaussian import gaussian_delta

VECTOR = {"epsilon": 1.0, "delta": 1e-6, "users": 10_000, "dim": 100, "calibration": "paper"}
SCALAR = {"epsilon": 1.0, "delta": 1e-6, "users": 100, "calibration": "paper"}


def printed_parameters(epsilon, delta, users, dim, norm, *, scalar=False):
    """(g, b, p) from the text of Lemma 3.1 and of the proof of Theorem 3.2, in 50 digits."""
    with mpmath.workdps(50):
        epsilon, delta = mpmath.mpf(epsilon), mpmath.mpf(delta)
        width_root = 2 * mpmath.mpf(repr(norm)) * mpmath.sqrt(users)  # 0.05 is meant, not the float next to it
        if scalar:
            g = mpmath.ceil(max(width_root, 1))
        else:
            g = mpmath.ceil(max(width_root, mpmath.sqrt(dim), 4))
            gamma = delta / (dim + 1)
            epsilon, delta = epsilon / (18 * mpmath.sqrt(mpmath.log(1 / gamma))), gamma
        bound = 180 * g**2 * mpmath.log(2 / delta) / (epsilon**2 * users)
        b = mpmath.floor(bound) + 1
        return int(g), int(b), bound / (2 * b)


# --- printed constants -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "dim", "bits", "inflation"),
    [
        (1_000, 100, 84_196_047, 537),
        (10_000, 100, 82_222_840, 537),
        (10_000, 1_000, 103_543_894, 602),
        (100_000, 100, 82_364_901, 537),
    ],
)
def test_bits_and_noise_of_the_table_in_the_accounting(users, dim, bits, inflation):
    plan = plan_sum(**{**VECTOR, "users": users, "dim": dim})
    assert plan.bits_per_coordinate == bits
    assert round(plan.inflation) == inflation
    assert plan.certified_delta == plan.delta
    assert plan.theorem == "paper Theorem 3.2"
    assert plan.mu is None


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    epsilon=st.floats(0.05, 15),
    delta=st.floats(-12, -0.35).map(lambda exponent: 10**exponent),
    users=st.integers(1, 10**6),
    dim=st.integers(1, 10**4),
    norm=st.floats(0.01, 10),
)
def test_vector_parameters_are_the_printed_ones(epsilon, delta, users, dim, norm):
    plan = plan_sum(epsilon=epsilon, delta=delta, users=users, dim=dim, norm=norm, calibration="paper")
    g, b, p = printed_parameters(epsilon, delta, users, dim, norm)
    assert plan.levels == g
    assert plan.noise_bits == pytest.approx(b, abs=1, rel=1e-12)
    assert plan.noise_probability == pytest.approx(float(p), rel=1e-9, abs=1 / b)
    assert plan.noise_probability < 0.5


@pytest.mark.parametrize(("users", "width", "epsilon"), [(100, 1.0, 1.0), (1_000, 0.3, 0.5), (50, 20.0, 4.0)])
def test_scalar_parameters_are_those_of_lemma_3_1(users, width, epsilon):
    plan = plan_scalar_sum(epsilon=epsilon, delta=1e-6, users=users, width=width, calibration="paper")
    g, b, p = printed_parameters(epsilon, 1e-6, users, 1, width / 2, scalar=True)
    assert (plan.levels, plan.noise_bits) == (g, b)
    assert plan.noise_probability == pytest.approx(float(p), rel=1e-12)
    assert plan.theorem == "paper Lemma 3.1"


@pytest.mark.parametrize("norm", [1e-3, 0.5, 100.0])
def test_scaled_data_make_the_parameters_free_of_units(norm):
    scaled = plan_sum(**{**VECTOR, "calibration": "paper-scaled"}, norm=norm)
    assert scaled.levels == 100  # ceil(max(sqrt(n), sqrt(d), 4)) at n = 10 000
    printed = plan_sum(**VECTOR, norm=0.5)  # the printed g is for an interval of width 2 * norm
    assert (scaled.levels, scaled.noise_bits, scaled.noise_probability) == (
        printed.levels,
        printed.noise_bits,
        printed.noise_probability,
    )


def test_fewer_honest_users_take_the_noise_of_gamma_epsilon():
    """Claim A.3: noise for epsilon gives epsilon / gamma where a fraction gamma is honest, so it is made for gamma epsilon."""
    robust = plan_sum(**VECTOR, honest=0.5)
    stronger = plan_sum(**{**VECTOR, "epsilon": 0.5})
    assert (robust.levels, robust.noise_bits) == (stronger.levels, stronger.noise_bits)
    assert robust.pure_epsilon == 1.0
    assert robust.certified_delta <= 1e-6
    assert "Claim A.3" in robust.theorem


@pytest.mark.parametrize("rounds", [2, 10, 100])
def test_rounds_take_the_split_of_algorithm_5(rounds):
    epsilon = 1 / (2 * math.sqrt(2 * rounds * math.log(1e6)))
    plan = plan_sum(**VECTOR, rounds=rounds)
    one = plan_sum(**{**VECTOR, "epsilon": epsilon, "delta": 1e-6 / (rounds + 1)})
    assert (plan.levels, plan.noise_bits) == (one.levels, one.noise_bits)
    assert plan.pure_epsilon == pytest.approx(epsilon, rel=1e-14)
    assert plan.slack == pytest.approx(1e-6 * rounds / (rounds + 1), rel=1e-14)
    assert plan.certified_delta <= plan.delta


# --- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 15.01}, "epsilon = 15.01 is not allowed: it must be at most 15 in the paper's calibration"),
        ({"delta": 0.5}, "delta = 0.5 is not allowed: it must be below 1/2"),
        ({"honest": 0.33}, "honest = 0.33 is not allowed: it must be at least 1/3"),
        ({"honest": 0.5, "epsilon": 2.01}, "epsilon = 2.01 is not allowed: it must be at most 2"),
        ({"neighbours": "zero-out"}, "neighbours = 'zero-out' is not allowed: it must be 'replace-one'"),
        ({"max_bits": 100}, "max_bits = 100 is not allowed: it must be left out"),
    ],
)
@pytest.mark.parametrize("calibration", ["paper", "paper-scaled"])
def test_what_the_paper_does_not_cover_is_refused(change, message, calibration):
    with pytest.raises(ArgumentError) as error:
        plan_sum(**{**VECTOR, "calibration": calibration, **change})
    assert str(error.value).startswith(message)
    assert error.value.remedy


def test_the_limits_themselves_are_allowed():
    assert plan_sum(**{**VECTOR, "epsilon": MAX_EPSILON}).certified_delta <= 1e-6
    assert plan_sum(**{**VECTOR, "epsilon": 3.0}, honest=1 / 3).certified_delta <= 1e-6


def test_the_step_of_lemma_3_1_holds_up_to_the_limit_on_alpha_and_fails_beyond():
    """ln((1 + a) / (1 - a)) <= 3 a."""
    a = np.linspace(1e-6, MAX_ALPHA, 10_001)
    assert np.all(np.log1p(a) - np.log1p(-a) <= 3 * a)
    beyond = MAX_ALPHA + 2e-4
    assert math.log((1 + beyond) / (1 - beyond)) > 3 * beyond


def test_the_counterexample_to_lemma_3_1_is_refused():
    """n = 100, Delta = 0.1, epsilon = 15: g = b = 1 and p = 0.058 as printed, and the true delta is 2 500 times the claim."""
    g, b, p = printed_parameters(15, 1e-6, 100, 1, 0.05, scalar=True)
    assert (g, b) == (1, 1)
    assert float(p) == pytest.approx(0.058, abs=5e-4)
    assert exact_delta(100 * b, float(p), [0.0], [1.0], 15.0) == pytest.approx(2.5e-3, rel=0.02)
    with pytest.raises(ArgumentError, match=r"epsilon = 15.0 .* at most 2.57\d* for 1 levels \(Lemma 3.1's proof"):
        plan_scalar_sum(epsilon=15, delta=1e-6, users=100, width=0.1, calibration="paper")


def test_the_split_of_algorithm_5_is_refused_where_it_fails():
    """With delta = 0.01 it fails for very many rounds: what is left for the tail, delta / (T + 1), is then too little."""
    with pytest.raises(ArgumentError, match=r"delta = 0.01 .* smaller for 100000 rounds .*split of epsilon does not hold"):
        plan_sum(epsilon=15, delta=0.01, users=1_000, dim=10, rounds=100_000, calibration="paper")
    with pytest.raises(ArgumentError, match=r"delta = 0.1 .* smaller for 1000 rounds"):
        plan_sum(epsilon=15, delta=0.1, users=1_000, dim=10, rounds=1_000, calibration="paper")
    assert plan_sum(epsilon=15, delta=0.01, users=1_000, dim=10, rounds=1_000, calibration="paper").certified_delta <= 0.01


@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(1.0, 1e-6, 10), (15.0, 0.01, 12), (5.0, 1e-3, 8)])
def test_where_the_split_is_accepted_all_answers_enumerated_stay_within_delta(epsilon, delta, rounds):
    """The worst mechanism of each round's (epsilon, delta) is a randomized response that fails outright with its delta."""
    plan = plan_sum(epsilon=epsilon, delta=delta, users=100, dim=2, rounds=rounds, calibration="paper")
    truth = 1 / (1 + math.exp(-plan.pure_epsilon))
    wrong = binomial_law(rounds, 1 - truth)  # how many answers are false, under either neighbour
    sound = hockey_stick(wrong, wrong[::-1], epsilon)
    failing = -math.expm1(rounds * math.log1p(-delta / (rounds + 1)))
    assert failing + (1 - failing) * sound <= delta
    assert failing + (1 - failing) * sound <= plan.certified_delta * (1 + 1e-12)


# --- other routes to the claims ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"users": 1_000},
        {"users": 1_000, "dim": 1_000, "calibration": "paper-scaled"},
        {"users": 1_000, "honest": 0.5},
        {"users": 100, "epsilon": 15.0, "delta": 0.4, "dim": 4},
        {"users": 100, "rounds": 5, "epsilon": 3.0},
    ],
)
def test_paper_plans_pass_our_own_certificate_with_room_to_spare(asked):
    """Theorem B knows nothing of the paper's proof: at a hundredth of delta it confirms what the plan claims."""
    plan = plan_sum(**{**VECTOR, **asked})
    found = certify(
        plan.noise_bits * plan.honest_users,
        plan.noise_probability,
        shift=plan.levels,
        reach=plan.levels,
        dim=plan.dim,
        tail=1e-3 * plan.delta / (plan.dim * plan.rounds),
    )
    proved = gaussian_delta(plan.epsilon, found.mu * math.sqrt(plan.rounds)) + plan.rounds * plan.dim * found.tau
    assert proved <= plan.delta / 100


@pytest.mark.parametrize(
    "asked",
    [
        {"epsilon": 10.0, "delta": 1e-3},
        {"epsilon": 15.0, "delta": 0.4, "width": 0.8},
        {"epsilon": 2.57, "delta": 1e-6, "width": 0.05},
        {"epsilon": 5.15, "delta": 0.3, "users": 25, "width": 0.3},
        {"epsilon": 2.0, "delta": 0.1, "honest": 0.4, "users": 10},
        {"epsilon": 1.5, "delta": 0.2, "honest": 0.5, "users": 4, "width": 0.4},
    ],
)
def test_the_exact_divergence_of_a_small_scalar_plan_is_below_its_claim(asked):
    """Every outcome enumerated for the farthest and some nearer neighbours, up to the very limit on epsilon / (3 g)."""
    plan = plan_scalar_sum(**{**SCALAR, **asked})
    trials = plan.noise_bits * math.ceil(plan.honest * plan.users)
    assert trials <= 6_000
    shifts = {1.0, 0.5, plan.levels / 2, plan.levels - 0.25, float(plan.levels)}
    worst = max(exact_delta(trials, plan.noise_probability, [0.0], [s], plan.epsilon) for s in shifts if 0 < s <= plan.levels)
    assert worst <= plan.certified_delta
    assert plan.certified_delta <= plan.delta


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    epsilon=st.floats(1, 15),
    delta=st.floats(-6, -0.35).map(lambda exponent: 10**exponent),
    users=st.integers(1, 60),
    width=st.floats(0.01, 1),
    honest=st.just(1.0) | st.floats(0.34, 1),
)
def test_no_small_scalar_plan_exceeds_its_claim(epsilon, delta, users, width, honest):
    try:
        plan = plan_scalar_sum(epsilon=epsilon, delta=delta, users=users, width=width, honest=honest, calibration="paper")
    except ArgumentError:
        assume(False)
    trials = plan.noise_bits * math.ceil(plan.honest * plan.users * (1 - 1e-15))
    assume(trials <= 3_000)
    assert exact_delta(trials, plan.noise_probability, [0.0], [float(plan.levels)], plan.epsilon) <= plan.delta


# --- plans that were changed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"noise_bits": 1_000}, {"levels": 10}, {"noise_probability": 0.4}, {"norm": 2.0}, {"dim": 50}])
def test_parameters_other_than_the_printed_ones_are_refused(change):
    values = plan_sum(**VECTOR).to_dict()
    with pytest.raises(ArgumentError, match=r"levels, noise_bits, noise_probability = .* under the paper's calibration"):
        SumPlan.from_json(json.dumps({**values, **change}))


def test_a_smaller_pure_epsilon_does_not_get_through():
    """Refused, or replaced by what the theorem says: never believed."""
    plan = plan_sum(**VECTOR)
    try:
        again = SumPlan.from_json(json.dumps({**plan.to_dict(), "pure_epsilon": 0.01}))
    except ArgumentError:
        return
    assert again == plan
