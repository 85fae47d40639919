"""plan_sum: what was asked for is met, proved, and confirmed by routes that do not use the proof."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import binomial_law, composed_delta, exact_delta, rounded_law

from croupier.privacy import ArgumentError, NoCertificateError, SumPlan, central_noise_std, certify, plan_scalar_sum, plan_sum
from croupier.privacy.gaussian import gaussian_delta
from croupier.privacy.plan import SumRequest

USUAL = {"epsilon": 1.0, "delta": 1e-6, "users": 1_000, "dim": 10}
# How far a float computation of a law may be off.
ROUNDING = 1e-12


def noise_trials(plan):
    """The noise bits that the guarantee counts on."""
    return plan.noise_bits * plan.honest_users


@pytest.fixture(scope="module")
def usual():
    return plan_sum(**USUAL)


# --- figures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "dim", "max_inflation", "bits"),
    [
        (10_000, 100, 1.05, 50),
        (1_000, 100, 1.05, 32),
        (10_000, 1_000, 1.05, 55),
        (100_000, 100, 1.05, 133),
        (10_000, 100, 1.2, 22),
        (1_000, 100, 1.2, 11),
        (10_000, 1_000, 1.2, 23),
        (100_000, 100, 1.2, 62),
        (10_000, 100, 1.5, 12),
        (1_000, 100, 1.5, 8),
        (10_000, 1_000, 1.5, 14),
        (100_000, 100, 1.5, 35),
    ],
)
def test_bits_of_the_table_in_the_accounting(users, dim, max_inflation, bits):
    plan = plan_sum(epsilon=1, delta=1e-6, users=users, dim=dim, max_inflation=max_inflation)
    assert plan.bits_per_coordinate <= bits
    assert plan.inflation <= max_inflation
    assert plan.certified_delta <= 1e-6
    assert round(plan.central_noise_std, 3) == 8.449


def test_the_default_inflation_is_1_05(usual):
    assert usual.max_inflation == 1.05
    assert 1 < usual.inflation <= 1.05


def test_figures_follow_from_the_parameters():
    plan = plan_sum(**USUAL, norm=3.0, honest=0.7, rounds=2, neighbours="zero-out")
    assert plan.honest_users == 700
    assert plan.bits_per_coordinate == plan.levels + plan.noise_bits
    assert plan.bits_per_user == plan.bits_per_coordinate * plan.dim
    assert plan.central_noise_std == central_noise_std(1.0, 1e-6, 3.0, rounds=2)
    assert plan.inflation == plan.noise_std / plan.central_noise_std
    assert plan.noise_std_for(4 * plan.users) == pytest.approx(2 * plan.noise_std)


def test_noise_std_is_that_of_the_exact_law():
    """The variance of the estimate, from the enumerated law of the sum of all users' counts at their worst position."""
    plan = plan_sum(epsilon=2.0, delta=1e-4, users=15, dim=2, norm=2.5, max_inflation=1.3)
    law = np.ones(1)
    for _ in range(plan.users):
        _, coin = rounded_law(0.5)
        law = np.convolve(np.convolve(law, coin), binomial_law(plan.noise_bits, plan.noise_probability))
    counts = np.arange(law.size)
    variance = law @ counts**2 - (law @ counts) ** 2
    assert plan.noise_std == pytest.approx(2 * plan.norm / plan.levels * math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize("norm", [1e-3, 1.0, 7.5, 1e6])
def test_bits_do_not_depend_on_the_unit_of_the_data(usual, norm):
    plan = plan_sum(**USUAL, norm=norm)
    assert (plan.levels, plan.noise_bits, plan.noise_probability) == (usual.levels, usual.noise_bits, usual.noise_probability)
    assert plan.noise_std == pytest.approx(norm * usual.noise_std)
    assert plan.inflation == pytest.approx(usual.inflation)


def test_a_scalar_plan_is_that_of_a_one_dimensional_vector_of_half_the_width():
    scalar = plan_scalar_sum(epsilon=1, delta=1e-6, users=500, width=10.0)
    vector = plan_sum(epsilon=1, delta=1e-6, users=500, dim=1, norm=5.0)
    assert scalar.scalar
    assert dataclasses.replace(scalar, scalar=False) == vector


def certified(request, levels, noise_bits, probability):
    """Whether Theorem B proves the request of these parameters."""
    try:
        found = certify(
            noise_bits * request.honest_users,
            probability,
            shift=request.encoded_shift(levels),
            reach=request.encoded_reach(levels),
            dim=request.dim,
            tail=0.01 * request.delta / request.dim,
        )
    except NoCertificateError:
        return False
    return gaussian_delta(request.epsilon, found.mu) + request.dim * found.tau <= request.delta


def test_fewest_bits_by_brute_force():
    """Of all parameters with fewer bits, those quiet enough have no proof, not even at the largest such probability."""
    asked = {"epsilon": 2.0, "delta": 1e-5, "users": 200, "dim": 5, "max_inflation": 1.2}
    plan, request = plan_sum(**asked), SumRequest(**asked)
    limit = request.max_inflation * request.central_noise_std
    for levels in range(1, plan.bits_per_coordinate):
        for noise_bits in range(1, plan.bits_per_coordinate - levels):
            quiet = [k / 64 for k in range(1, 33) if request.noise_std_with(levels, noise_bits, k / 64, 200) <= limit]
            assert not quiet or not certified(request, levels, noise_bits, max(quiet))
    assert certified(request, plan.levels, plan.noise_bits, plan.noise_probability)


# --- every request is met ----------------------------------------------------------------------------------------------

REQUESTS = st.fixed_dictionaries(
    {
        "epsilon": st.sampled_from([0.1, 0.5, 1.0, 3.0, 8.0, 20.0]),
        "delta": st.sampled_from([1e-10, 1e-6, 1e-3, 0.1]),
        "users": st.sampled_from([1, 7, 100, 3_000, 200_000]),
        "dim": st.sampled_from([1, 2, 30, 1_000]),
        "norm": st.sampled_from([0.01, 1.0, 40.0]),
        "honest": st.sampled_from([1.0, 0.9, 0.5, 0.01]),
        "rounds": st.sampled_from([1, 2, 25]),
        "neighbours": st.sampled_from(["replace-one", "zero-out"]),
    }
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(asked=REQUESTS, max_inflation=st.sampled_from([1.03, 1.1, 1.5, 3.0]))
@example(
    asked={**USUAL, "norm": 1.0, "honest": 0.5, "rounds": 25, "neighbours": "zero-out"},
    max_inflation=1.05,
)
def test_a_plan_meets_its_request(asked, max_inflation):
    """certified delta and inflation within what was asked; the guarantee proved anew from the parameters alone."""
    plan = plan_sum(**asked, max_inflation=max_inflation, rotation=None)
    assert plan.certified_delta <= plan.delta
    assert plan.noise_std_for(plan.honest_users) <= max_inflation * plan.central_noise_std * (1 + 1e-12)
    assert plan.honest_users >= asked["honest"] * asked["users"] * (1 - 1e-12)
    S, K = (plan.levels, plan.levels) if plan.neighbours == "replace-one" else (plan.levels / 2, math.ceil(plan.levels / 2))
    tail = 0.01 * plan.delta / (plan.dim * plan.rounds)
    spare = 0.001 * plan.delta / plan.rounds
    found = certify(noise_trials(plan), plan.noise_probability, shift=S, reach=K, dim=plan.dim, tail=tail, spare=spare)
    assert plan.theorem == f"accounting Theorem {found.theorem}"
    assert plan.mu >= found.mu * math.sqrt(plan.rounds)
    assert plan.slack >= (found.tau * plan.dim + found.residue) * plan.rounds * (1 - 1e-12)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(asked=REQUESTS, max_bits=st.sampled_from([2, 5, 20, 100, 3_000]))
def test_a_plan_within_max_bits_meets_its_request_or_names_the_bits_needed(asked, max_bits):
    plan, error = plan_or_error(**asked, max_bits=max_bits)
    if error:
        assert error.name == "max_bits"
        needed = int(error.allowed.removeprefix("at least ").split()[0])
        assert needed > max_bits
        max_bits, plan = needed, plan_sum(**asked, max_bits=needed)
    assert plan.bits_per_coordinate <= max_bits
    assert plan.certified_delta <= plan.delta


def plan_or_error(**asked):
    try:
        return plan_sum(**asked), None
    except ArgumentError as error:
        return None, error


def test_a_plan_is_found_where_hiding_is_not_monotone_in_the_probability():
    """The bisection for the smallest p ended above every quiet one here, and planning stopped with a bare StopIteration."""
    plan = plan_sum(
        epsilon=4.505151996672794,
        delta=1e-8,
        users=195,
        dim=21,
        norm=0.125,
        neighbours="zero-out",
        max_inflation=1.6,
        rotation=None,
    )
    assert plan.guarantee.delta(plan.epsilon) <= plan.delta
    assert plan.noise_std <= 1.6 * plan.central_noise_std


@pytest.mark.parametrize(("users", "dim"), [(1_000, 10), (10_000, 100), (30, 3)])
def test_more_bits_never_mean_more_noise(users, dim):
    """max_bits asks for the least noise within that many bits; a search over whole numbers finds it to a part in a thousand."""
    noise = []
    for max_bits in range(2, 60):
        try:
            noise.append(plan_sum(epsilon=1, delta=1e-6, users=users, dim=dim, max_bits=max_bits).noise_std)
        except ArgumentError:
            assert not noise  # too few bits come first
    assert len(noise) > 40
    assert all(later <= earlier * (1 + 1e-3) for earlier, later in itertools.pairwise(noise))


def test_the_noise_within_max_bits_nearly_falls_to_the_central_one():
    """Loosely, whatever the order of single steps: from 3 times the curator's noise to 2 per cent above it."""
    few, many = (plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=100, max_bits=bits) for bits in (6, 200))
    assert many.inflation < 1.02 < few.inflation < 3


@pytest.mark.parametrize(
    "asked",
    [
        {"delta": 1e-9, "dim": 1_000, "rounds": 100},
        {"delta": 1e-10, "dim": 10_000},
        {"delta": 1e-14, "dim": 1},
    ],
)
def test_a_small_delta_shared_by_many_coordinates_and_rounds_can_be_planned(asked):
    plan = plan_sum(epsilon=1, users=10_000, **asked)
    assert plan.certified_delta <= plan.delta
    assert plan.inflation <= 1.05


# --- independent routes to the certified delta -------------------------------------------------------------------------


def moves_at(plan, pattern, position, share=1.0):
    """Shifts of l2 norm at most S = share * g over the coordinates: all in one, spread equally, half-integers, both signs."""
    S, dim = share * plan.levels, plan.dim
    if pattern == "one coordinate":
        return [(position, S, 1)]
    if pattern == "spread equally":
        return [(position, S / math.sqrt(dim), dim)]
    if pattern == "half-integers":
        step = math.ceil(S / math.sqrt(dim) - 0.5) + 0.5
        return [(position, step, math.floor((S / step) ** 2))]
    step = S / math.sqrt(dim)
    return [(position, step, dim // 2), (position + step, -step, dim - dim // 2)]


PATTERNS = ["one coordinate", "spread equally", "half-integers", "both signs"]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("users", "dim"), [(1_000, 100), (10_000, 100)])
def test_privacy_loss_distributions_stay_below_the_certified_delta(users, dim, pattern):
    """dp_accounting composed over coordinates, its errors both ways: the true delta lies between the two estimates."""
    plan = plan_sum(epsilon=1, delta=1e-6, users=users, dim=dim, rotation=None)
    moves = moves_at(plan, pattern, position=0.5)
    low, high = (
        composed_delta(noise_trials(plan), plan.noise_probability, moves, 1.0, optimistic=optimistic, interval=2e-5)
        for optimistic in (True, False)
    )
    assert low <= high <= plan.certified_delta
    assert low > 0.5 * plan.certified_delta  # and the certificate is not far above


@pytest.mark.parametrize("pattern", ["one coordinate", "spread equally"])
@pytest.mark.parametrize(
    ("asked", "share"),
    [
        ({"rounds": 6}, 1.0),
        ({"honest": 0.6}, 1.0),
        ({"neighbours": "zero-out"}, 0.5),
        ({"rounds": 3, "honest": 0.35, "neighbours": "zero-out"}, 0.5),
        ({"epsilon": 4.0, "delta": 1e-4, "max_inflation": 1.1}, 1.0),
        ({"max_bits": 9}, 1.0),
    ],
)
def test_privacy_loss_distributions_confirm_rounds_honesty_and_zero_out(asked, share, pattern):
    """All rounds composed, only the noise of ceil(honest * users) counted, S = g / 2 for zero-out (from g / 2 to 0 or g)."""
    asked = {"epsilon": 1.0, "delta": 1e-6, "users": 1_000, "dim": 20, **asked}
    plan = plan_sum(**asked)
    trials = plan.noise_bits * math.ceil(plan.honest * plan.users)
    start = plan.levels / 2 if plan.neighbours == "zero-out" else 0.0
    moves = [(a, s, times * plan.rounds) for a, s, times in moves_at(plan, pattern, start, share)]
    delta = composed_delta(trials, plan.noise_probability, moves, plan.epsilon, optimistic=True, interval=2e-5)
    assert 0.1 * plan.certified_delta < delta <= plan.certified_delta  # and the certificate says something


@pytest.mark.parametrize(
    ("asked", "relation"),
    [
        ({"epsilon": 3.0, "delta": 1e-3, "users": 40, "max_inflation": 1.5}, "replace-one"),
        ({"epsilon": 6.0, "delta": 0.05, "users": 10, "max_inflation": 2.0}, "replace-one"),
        ({"epsilon": 1.0, "delta": 1e-4, "users": 50, "honest": 0.5, "max_inflation": 2.0}, "replace-one"),
        ({"epsilon": 2.0, "delta": 1e-3, "users": 30, "max_inflation": 1.3}, "zero-out"),
    ],
)
def test_exact_enumeration_of_small_plans_stays_below_the_certified_delta(asked, relation):
    """One coordinate, every pair of positions on a grid of quarter levels, every outcome enumerated."""
    plan = plan_sum(dim=1, neighbours=relation, **asked)
    g = plan.levels
    grid = np.unique(np.concatenate([np.arange(0, min(g, 3), 0.25), [g / 2, g - 0.75, g - 0.5, g]]))
    pairs = [(g / 2, x) for x in grid] if relation == "zero-out" else [(a, b) for a in grid for b in grid if a < b]
    trials = plan.noise_bits * math.ceil(plan.honest * plan.users)
    worst = max(exact_delta(trials, plan.noise_probability, [a], [b - a], plan.epsilon) for a, b in pairs if a != b)
    assert 0 < worst <= plan.certified_delta + ROUNDING


# --- sending -----------------------------------------------------------------------------------------------------------

ARGUMENTS = {
    "epsilon",
    "delta",
    "users",
    "dim",
    "norm",
    "honest",
    "rounds",
    "neighbours",
    "calibration",
    "max_inflation",
    "max_bits",
}
FIGURES = {
    "levels",
    "noise_bits",
    "noise_probability",
    "honest_users",
    "neighbours",
    "bits_per_coordinate",
    "bits_per_user",
    "noise_std",
    "central_noise_std",
    "inflation",
    "certified_delta",
    "mu",
}


def test_json_has_every_argument_and_every_figure(usual):
    values = json.loads(usual.to_json())
    assert set(values) >= ARGUMENTS | FIGURES
    for name in (ARGUMENTS | FIGURES) & set(values):
        assert values[name] == getattr(usual, name)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"honest": 0.4, "rounds": 3, "norm": 0.3},
        {"neighbours": "zero-out", "max_bits": 12},
        {"calibration": "paper"},
        {"calibration": "paper-scaled", "rounds": 4},
    ],
)
def test_json_round_trip_gives_an_equal_plan(asked):
    plan = plan_sum(**{**USUAL, **asked})
    again = SumPlan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert hash(again) == hash(plan)


def test_scalar_round_trip_gives_an_equal_plan():
    for calibration in ("tight", "paper", "paper-scaled"):
        plan = plan_scalar_sum(epsilon=1, delta=1e-6, users=100, width=3.0, calibration=calibration)
        assert SumPlan.from_json(plan.to_json()) == plan


def test_a_plan_is_frozen(usual):
    with pytest.raises(dataclasses.FrozenInstanceError):
        usual.noise_bits = 1


FORGERIES = {
    "fewer noise bits": {"noise_bits": 1},
    "more levels": {"levels": 200},
    "smaller probability": {"noise_probability": 0.01},
    "smaller mu": {"mu": 0.01},
    "no mu": {"mu": None},
    "smaller slack": {"slack": 0.0},
    "smaller epsilon": {"epsilon": 0.5},
    "smaller delta": {"delta": 1e-9},
    "fewer users": {"users": 10},
    "fewer honest users": {"honest": 0.1},
    "more rounds": {"rounds": 10},
    "more coordinates": {"dim": 10**6},
    "another relation and its smaller mu": {"neighbours": "zero-out", "levels": 28, "mu": 0.1},
    "another calibration": {"calibration": "paper"},
    "noise beyond the certificate": {"noise_bits": 10**18},
    "levels beyond the noise": {"levels": 10**18},
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_plan_is_refused(usual, forged):
    with pytest.raises((ArgumentError, NoCertificateError)):
        SumPlan.from_json(json.dumps({**usual.to_dict(), **forged}))


@pytest.mark.parametrize("users", [100, 10_000])
def test_a_scalar_plan_of_many_coordinates_is_refused(users):
    """Lemma 3.1 speaks of one coordinate: with `dim` raised afterwards the plan has no proof."""
    scalar = plan_scalar_sum(epsilon=1, delta=1e-6, users=users, calibration="paper")
    with pytest.raises(ArgumentError):
        SumPlan.from_json(json.dumps({**scalar.to_dict(), "dim": 100}))


def test_forged_figures_are_replaced_by_computed_ones(usual):
    forged = {"certified_delta": 1e-30, "honest_users": 10**9, "noise_std": 0.0, "inflation": 0.5, "bits_per_user": 1}
    again = SumPlan.from_json(json.dumps({**usual.to_dict(), **forged}))
    assert again == usual
    assert again.to_dict() == usual.to_dict()


def test_a_theorem_made_up_is_replaced_by_the_one_that_holds(usual):
    assert SumPlan.from_json(json.dumps({**usual.to_dict(), "theorem": "trust me"})).theorem == "accounting Theorem B"


@pytest.mark.parametrize("name", ["mu", "slack", "noise_probability", "levels", "noise_bits", "epsilon", "scalar"])
def test_a_field_of_the_wrong_type_is_refused(usual, name):
    with pytest.raises(ArgumentError):
        SumPlan.from_json(json.dumps({**usual.to_dict(), name: "a lot"}))


def test_whole_numbers_written_as_floats_are_read_as_whole(usual):
    """Some JSON writers have no integers."""
    values = {**usual.to_dict(), "levels": float(usual.levels), "noise_bits": float(usual.noise_bits), "users": float(usual.users)}
    again = SumPlan.from_json(json.dumps(values))
    assert again == usual
    assert isinstance(again.levels, int)


@pytest.mark.parametrize("change", [{"surprise": 1}, {"levels": None}])
def test_json_of_another_shape_is_refused(usual, change):
    with pytest.raises(ArgumentError):
        SumPlan.from_json(json.dumps({**usual.to_dict(), **change}))


def test_json_without_a_field_is_refused_by_its_name(usual):
    values = usual.to_dict()
    del values["mu"]
    with pytest.raises(ArgumentError, match="mu"):
        SumPlan.from_dict(values)
    with pytest.raises(ArgumentError, match="a JSON object"):
        SumPlan.from_json("[]")


def test_text_tells_the_guarantee_the_bits_and_the_noise(usual):
    text = str(usual)
    assert text.startswith("(1, 1e-06)-DP sum of 1000 x 10 at norm 1: ")
    for part in (f"{usual.levels} levels", f"{usual.noise_bits} noise bits", "x central", "replace-one", "accounting Theorem B"):
        assert part in text


# --- bad arguments -----------------------------------------------------------------------------------------------------

POSITIVE = "a finite number and greater than 0"
COUNT = "a whole number of at least 1"
BAD = {
    "epsilon": (POSITIVE, [0, -1, math.nan, math.inf, -math.inf, None, "much", True, [1.0]]),
    "delta": (f"{POSITIVE} and less than 1", [0, 1, 1.5, -1e-6, math.nan, math.inf, None, "little", False]),
    "users": (COUNT, [0, -5, 3.5, math.nan, math.inf, None, "many", "10", True]),
    "dim": (COUNT, [0, -1, 2.5, math.nan, math.inf, None, "3", True]),
    "norm": ("a finite number", [0, -1.0, math.nan, math.inf, None, "long", True]),
    "honest": (f"{POSITIVE} and at most 1", [0, -0.1, 1.1, math.nan, math.inf, None, "most", True]),
    "rounds": (COUNT, [0, -1, 1.5, math.nan, None, "2", True]),
    "max_inflation": ("a finite number and greater than 1", [1, 0.9, 0, -2, math.nan, math.inf, None, "low", True]),
    "max_bits": ("a whole number of at least 2", [1, 0, -3, 2.5, math.nan, math.inf, "9", True]),
    "neighbours": ("one of 'replace-one', 'zero-out'", ["add-remove", "", None, 1, True]),
    "calibration": ("one of 'tight', 'paper', 'paper-scaled'", ["loose", "", None, 0]),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, values) in BAD.items() for value in values])
def test_a_bad_argument_is_refused_by_name_value_and_range(name, value):
    with pytest.raises(ArgumentError) as error:
        plan_sum(**{**USUAL, name: value})
    message = str(error.value)
    assert message.startswith(f"{name} = {value!r} is not allowed: it must be {BAD[name][0]}")
    assert (error.value.name, error.value.allowed) == (name, error.value.allowed)
    assert message.endswith(error.value.remedy)
    assert error.value.remedy


@pytest.mark.parametrize("name", ["epsilon", "users"])
def test_a_whole_number_beyond_floating_point_is_refused(name):
    with pytest.raises(ArgumentError, match=f"^{name} = "):
        plan_sum(**{**USUAL, name: 10**400})


@pytest.mark.parametrize(("name", "value"), [("epsilon", "1"), ("delta", "1e-6"), ("norm", "2"), ("honest", "0.5")])
def test_a_number_in_quotes_is_not_a_number(name, value):
    """Text that looks like a number is refused for real arguments as it is for whole ones."""
    with pytest.raises(ArgumentError, match=f"{name} = '{value}'"):
        plan_sum(**{**USUAL, name: value})


@pytest.mark.parametrize("width", [0, -1.0, math.nan, math.inf, None, "wide", True, "3"])
def test_a_bad_width_is_refused(width):
    with pytest.raises(ArgumentError) as error:
        plan_scalar_sum(epsilon=1, delta=1e-6, users=100, width=width)
    assert str(error.value).startswith(f"width = {width!r} is not allowed: it must be {POSITIVE}")


def test_whole_floats_count_as_whole_numbers(usual):
    assert plan_sum(**{**USUAL, "users": 1e3, "dim": 10.0}) == usual


def test_more_users_than_the_certificate_covers_are_refused():
    with pytest.raises(ArgumentError):
        plan_sum(epsilon=1, delta=1e-6, users=10**13, dim=1)


def test_an_inflation_too_small_to_reach_is_refused_with_what_to_do():
    with pytest.raises(ArgumentError, match=r"max_inflation = 1.0001 .* within reach.*Allow more noise"):
        plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=10, max_inflation=1.0001)
