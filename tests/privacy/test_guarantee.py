"""A guarantee must be an upper bound however it is asked, composed, compared, printed or sent."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from decimal import Decimal

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import exact_gaussian_delta, hockey_stick

from croupier.privacy import ArgumentError, Guarantee, plan_lots
from croupier.privacy._statements import round_up
from croupier.privacy.gaussian import gaussian_delta

thorough = settings(max_examples=150, deadline=None, derandomize=True)
quick = settings(max_examples=40, deadline=None, derandomize=True)
ROUNDING = 1e-8  # how far above the exact value a bound may be


def gaussian(mu=0.5, **fields):
    return Guarantee(mu=mu, theorem="accounting Theorem B", **fields)


def responses(epsilon, rounds=1, **fields):
    return Guarantee(mu=0.0, theorem="paper Theorem 3.2", pure_epsilon=epsilon, pure_rounds=rounds, **fields)


def randomized_response(epsilon):
    """(P, Q): a bit told truly with probability e^eps / (1 + e^eps), where the bit is 0 and where it is 1."""
    truth = 1 / (1 + math.exp(-epsilon))
    return np.array([truth, 1 - truth]), np.array([1 - truth, truth])


def several_responses(epsilons):
    """(P, Q) of independent randomized responses, every sequence of answers enumerated."""
    pairs = [randomized_response(epsilon) for epsilon in epsilons]
    return tuple(functools.reduce(np.multiply.outer, laws).ravel() for laws in zip(*pairs, strict=True))


GUARANTEES = st.builds(
    Guarantee,
    mu=st.just(0.0) | st.floats(1e-6, 4),
    slack=st.floats(0, 0.1),
    honest=st.floats(0.1, 1),
    theorem=st.sampled_from(["accounting Theorem B", "paper Theorem 3.2"]),
    pure_epsilon=st.sampled_from([0.0, 0.05, 0.7, 3.0]),
    pure_rounds=st.integers(0, 12),
)


# --- asking ------------------------------------------------------------------------------------------------------------


def test_delta_is_slack_plus_the_gaussian_divergence():
    exact = exact_gaussian_delta(1, 0.5)
    assert 1e-4 + exact <= gaussian(slack=1e-4).delta(1) <= 1e-4 + exact + 1e-11


@thorough
@given(guarantee=GUARANTEES, epsilon=st.floats(0, 30))
def test_delta_lies_between_slack_and_one(guarantee, epsilon):
    assert guarantee.slack <= guarantee.delta(epsilon) <= 1


@thorough
@given(guarantee=GUARANTEES, exponent=st.floats(-12, -0.5))
def test_epsilon_inverts_delta_on_the_safe_side(guarantee, exponent):
    delta = guarantee.slack + 10**exponent
    epsilon = guarantee.epsilon(delta)
    assert guarantee.delta(epsilon) <= delta
    assert epsilon == 0 or guarantee.delta(epsilon * (1 - 1e-9)) > delta


def test_epsilon_below_the_slack_is_refused():
    with pytest.raises(ArgumentError, match=r"delta = 1e-06 .* greater than 1.*e-05, the slack of this guarantee"):
        gaussian(slack=1e-5).epsilon(1e-6)


def test_a_guarantee_without_a_promise_asks_for_no_larger_delta():
    watched = plan_lots(epsilon=1.0, delta=1e-6, users=1_000, rounds=50, dim=15, norm=1.0).guarantee.if_watched
    with pytest.raises(ArgumentError, match=r"guarantee promises nothing: its slack is 1; .* more users"):
        watched.epsilon(1e-6)


def test_pure_epsilon_is_promised_at_its_own_slack():
    """An (epsilon, delta) statement comes back as it went in."""
    guarantee = responses(1.5, slack=1e-6)
    assert guarantee.delta(1.5) == 1e-6
    assert 1.5 * (1 - 1e-6) <= guarantee.epsilon(1e-6) <= 1.5 * (1 + 1e-11)


# --- randomized responses: the exact composition of (epsilon, delta) statements ----------------------------------------


@quick
@given(rounds=st.integers(1, 10), pure=st.floats(0.01, 3), share=st.floats(0, 1.1))
def test_composed_responses_match_the_enumeration_of_all_answers(rounds, pure, share):
    epsilon = share * rounds * pure
    exact = hockey_stick(*several_responses([pure] * rounds), epsilon)
    assert exact - 1e-15 <= responses(pure, rounds).delta(epsilon) <= exact * (1 + ROUNDING) + 1e-15


@pytest.mark.parametrize(("rounds", "pure", "epsilon"), [(100, 0.05, 1.0), (1_000, 0.01, 1.0), (20_000, 0.002, 1.0)])
def test_many_responses_are_right_to_50_digits_and_never_below(rounds, pure, epsilon):
    with mpmath.workdps(50):
        weight, exact = (1 + mpmath.exp(-mpmath.mpf(pure))) ** -rounds, mpmath.mpf(0)
        for wrong in range(rounds + 1):
            loss = (rounds - 2 * wrong) * mpmath.mpf(pure)
            if loss <= epsilon:
                break
            exact += weight * (1 - mpmath.exp(epsilon - loss))
            weight *= mpmath.mpf(rounds - wrong) / (wrong + 1) * mpmath.exp(-mpmath.mpf(pure))
        assert exact <= responses(pure, rounds).delta(epsilon) <= exact * (1 + mpmath.mpf(ROUNDING))


def test_many_responses_agree_with_dp_accounting():
    pair = [dict(enumerate(np.log(law).tolist())) for law in randomized_response(0.1)]
    composed = privacy_loss_distribution.from_two_probability_mass_functions(
        *pair, value_discretization_interval=1e-5, pessimistic_estimate=False
    ).self_compose(200)
    for epsilon in (0.5, 2.0, 5.0):
        library = composed.get_delta_for_epsilon(epsilon)
        assert library * (1 - 1e-9) <= responses(0.1, 200).delta(epsilon) <= library * 1.05


@quick
@given(mu=st.floats(0.1, 3), pure=st.floats(0.05, 2), rounds=st.integers(1, 4), epsilon=st.floats(0, 8))
def test_gaussian_and_responses_together_match_integration(mu, pure, rounds, epsilon):
    """The joint law's hockey-stick divergence, summed over answers and integrated over the Gaussian."""
    x = np.linspace(-9, 9 + mu, 40_001)
    shifted, standard = (np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi) for m in (mu, 0))
    first, second = several_responses([pure] * rounds)
    excess = first[:, np.newaxis] * shifted - math.exp(epsilon) * second[:, np.newaxis] * standard
    integral = np.trapezoid(np.maximum(excess, 0), x, axis=1).sum()
    bound = Guarantee(mu=mu, theorem="both", pure_epsilon=pure, pure_rounds=rounds).delta(epsilon)
    assert bound == pytest.approx(integral, rel=1e-5, abs=1e-8)


# --- composing and comparing -------------------------------------------------------------------------------------------


def test_gaussians_compose_in_squares_and_slacks_add():
    together = gaussian(0.3, slack=1e-7).compose(gaussian(0.4, slack=2e-7), gaussian(1.2))
    assert 1.3 <= together.mu <= 1.3 * (1 + ROUNDING)
    assert together.slack == pytest.approx(3e-7, rel=1e-12)


def test_composed_gaussians_agree_with_dp_accounting():
    parts = [
        privacy_loss_distribution.from_gaussian_mechanism(
            1 / mu, value_discretization_interval=1e-4, pessimistic_estimate=False, use_connect_dots=False
        )
        for mu in (0.3, 0.4, 0.5)
    ]
    library = functools.reduce(lambda x, y: x.compose(y), parts)
    ours = gaussian(0.3).compose(gaussian(0.4), gaussian(0.5))
    for epsilon in (0.5, 1.0, 3.0):
        assert library.get_delta_for_epsilon(epsilon) <= ours.delta(epsilon) <= 1.02 * library.get_delta_for_epsilon(epsilon)


@quick
@given(epsilons=st.lists(st.floats(0.01, 2), min_size=2, max_size=6), share=st.floats(0, 1))
def test_responses_of_different_epsilon_are_bounded_by_the_largest(epsilons, share):
    epsilon = share * sum(epsilons)
    first, *others = [responses(e) for e in epsilons]
    exact = hockey_stick(*several_responses(epsilons), epsilon)
    assert first.compose(*others).delta(epsilon) >= exact - 1e-15


@thorough
@given(guarantee=GUARANTEES, rounds=st.integers(1, 9), epsilon=st.floats(0, 20))
def test_repeating_is_composing_with_itself(guarantee, rounds, epsilon):
    repeated = guarantee.repeated(rounds).delta(epsilon)
    composed = guarantee.compose(*[guarantee] * (rounds - 1)).delta(epsilon)
    assert repeated == pytest.approx(composed, rel=1e-6, abs=1e-12)


@thorough
@given(guarantees=st.lists(GUARANTEES, min_size=2, max_size=4), epsilon=st.floats(0, 20))
def test_the_worst_of_disjoint_batches_bounds_every_one_of_them(guarantees, epsilon):
    worst = guarantees[0].worst_of(*guarantees[1:])
    assert all(worst.delta(epsilon) >= guarantee.delta(epsilon) - 1e-11 for guarantee in guarantees)


@thorough
@given(guarantees=st.lists(GUARANTEES, min_size=2, max_size=4), epsilon=st.floats(0, 20))
def test_a_composition_bounds_every_part_and_the_worst_of_them(guarantees, epsilon):
    composed = guarantees[0].compose(*guarantees[1:]).delta(epsilon)
    assert all(composed >= guarantee.delta(epsilon) - 1e-11 for guarantee in guarantees)


@pytest.mark.parametrize("how", ["compose", "worst_of"])
def test_the_strongest_assumption_on_honesty_is_kept(how):
    """A bound that needs 90 per cent honest users is not to be had from 50 per cent by putting it beside another."""
    assert getattr(gaussian(honest=0.5), how)(gaussian(honest=0.9)).honest == 0.9


@pytest.mark.parametrize("how", ["compose", "worst_of"])
def test_different_relations_are_refused(how):
    with pytest.raises(ArgumentError, match=r"neighbours = \['replace-one', 'zero-out'\] .* the same for all"):
        getattr(gaussian(), how)(gaussian(neighbours="zero-out"))


def test_every_theorem_used_is_named():
    both = gaussian().compose(responses(0.1), gaussian())
    assert "accounting Theorem B" in both.theorem
    assert "paper Theorem 3.2" in both.theorem
    assert gaussian().compose(gaussian()).theorem == "accounting Theorem B"


def test_slack_is_capped_at_one():
    assert gaussian(slack=0.4).repeated(5).slack == 1
    assert gaussian(slack=0.4).compose(gaussian(slack=0.7)).slack == 1
    assert gaussian(slack=0.4).repeated(5).delta(3) == 1


@pytest.mark.parametrize("rounds", [0, -1, 1.5, None, True, "3"])
def test_a_bad_number_of_rounds_is_refused(rounds):
    with pytest.raises(ArgumentError, match=r"rounds = .* whole number of at least 1"):
        gaussian().repeated(rounds)


# --- printing and sending ----------------------------------------------------------------------------------------------


@thorough
@given(value=st.just(0.0) | st.floats(1e-300, 1e12), digits=st.integers(1, 8))
@example(value=1e-6, digits=4)
@example(value=0.1 + 0.2, digits=4)
def test_a_printed_figure_is_never_below_the_figure(value, digits):
    printed = round_up(value, digits)
    assert float(printed) >= value
    assert Decimal(printed) <= Decimal(value) * (1 + Decimal(10) ** (1 - digits))


@thorough
@given(guarantee=GUARANTEES)
def test_json_round_trip_gives_an_equal_guarantee(guarantee):
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


@pytest.mark.parametrize("value", [1e-5, 1e-6, 1e-7, 0.1, 0.3, 1.0, 0.2345])
def test_a_figure_of_few_digits_is_printed_as_it_was_written(value):
    """Who asked for 1e-5 should not read 1.001e-05, though the nearest float is a hair above 1e-5."""
    assert float(round_up(value)) == value


def test_text_shows_figures_rounded_up_relation_honesty_and_theorem():
    text = str(gaussian(0.123456, slack=1.00001e-7, neighbours="zero-out", honest=0.75))
    epsilon = gaussian(0.123456, slack=1.00001e-7).epsilon(1e-6)
    assert text == (
        f"({round_up(epsilon)}, 1e-06)-differentially private for zero-out neighbours, if at least 75 % of all users follow the "
        "protocol; by accounting Theorem B (mu = 0.1235, slack = 1.001e-07)"
    )
    assert str(responses(1.23456, 3)).endswith("(3 x epsilon = 1.235, slack = 0)")


@pytest.mark.parametrize(
    ("slack", "delta"),
    [(0.0, "1e-06"), (5e-7, "1e-06"), (5.01e-7, "1e-05"), (1e-3, "0.01"), (0.04, "0.1"), (0.2, None), (1.0, None)],
)
def test_text_leads_with_an_epsilon_at_a_delta_that_leaves_room_for_the_slack(slack, delta):
    text = str(gaussian(0.5, slack=slack))
    if delta is None:
        assert text.startswith("no promise at any delta of use")
    else:
        epsilon = gaussian(0.5, slack=slack).epsilon(float(delta))
        assert text.startswith(f"({round_up(epsilon)}, {delta})-differentially private")


def test_text_of_many_responses_is_quick_and_no_smaller_than_optimal_composition():
    few, many = responses(0.001, 1000), responses(0.001, 1001)
    lead = float(str(many).split(",")[0].strip("("))
    assert lead >= many.epsilon(1e-6) >= few.epsilon(1e-6)
    assert str(responses(0.001, 10**8)).startswith("(1.001e+05, 1e-06)")


def test_a_guarantee_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        gaussian().mu = 0.1


@pytest.mark.parametrize("change", [{"extra": 1}, {"mu": None}])
def test_json_of_another_shape_is_refused(change):
    values = {**gaussian().to_dict(), **change}
    with pytest.raises(ArgumentError):
        Guarantee.from_json(json.dumps(values))
    with pytest.raises(ArgumentError, match="slack"):
        Guarantee.from_dict({name: value for name, value in gaussian().to_dict().items() if name != "slack"})
    with pytest.raises(ArgumentError, match="a JSON object"):
        Guarantee.from_json("[]")


BAD_FIELDS = [
    ("mu", -1.0),
    ("mu", math.nan),
    ("mu", math.inf),
    ("mu", None),
    ("mu", "small"),
    ("mu", True),
    ("slack", -1e-9),
    ("slack", 1.5),
    ("slack", math.nan),
    ("honest", 0),
    ("honest", 1.01),
    ("neighbours", "add-remove"),
    ("theorem", ""),
    ("theorem", None),
    ("pure_epsilon", -0.1),
    ("pure_rounds", -1),
    ("pure_rounds", 1.5),
]


@pytest.mark.parametrize(("name", "value"), BAD_FIELDS)
def test_a_bad_field_is_refused_by_name_and_value(name, value):
    with pytest.raises(ArgumentError) as error:
        Guarantee(**{"mu": 0.5, "theorem": "a theorem", name: value})
    assert str(error.value).startswith(f"{name} = {value!r} is not allowed: it must be ")


@pytest.mark.parametrize(("name", "value"), [("mu", -1.0), ("slack", -1.0), ("pure_epsilon", -1.0)])
def test_the_allowed_range_is_told_in_plain_numbers(name, value):
    """Zero is allowed, and that is what the message should say: not "greater than -4.94066e-324"."""
    with pytest.raises(ArgumentError) as error:
        Guarantee(**{"mu": 0.5, "theorem": "a theorem", name: value})
    assert "e-324" not in str(error.value)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf, None, "one"])
def test_delta_at_a_bad_epsilon_is_refused(epsilon):
    with pytest.raises(ArgumentError, match="epsilon = "):
        gaussian().delta(epsilon)


@pytest.mark.parametrize("delta", [0, 1, -1e-6, math.nan, None])
def test_epsilon_at_a_bad_delta_is_refused(delta):
    with pytest.raises(ArgumentError, match="delta = "):
        gaussian().epsilon(delta)


def test_delta_of_a_gaussian_guarantee_is_the_yardstick_itself():
    assert gaussian(0.7).delta(2.0) == gaussian_delta(2.0, 0.7)
