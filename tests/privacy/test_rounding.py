"""Figures as text are never on the unsafe side, whatever the figure: floats read back against exact decimals."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from croupier.privacy import Guarantee
from croupier.privacy._statements import Claim, crowd, exact, factor_up, loss, one_in, percent_up, round_down, round_up

losses = st.floats(min_value=1e-320, max_value=1e300)
shares = st.floats(min_value=1e-12, max_value=1.0)


@given(losses, st.integers(1, 6))
@example(1e-6, 4)
@example(0.30000000000000004, 4)
@example(5e-324, 3)
def test_a_loss_is_rounded_up_and_a_lower_bound_down(value, digits):
    up, down = float(round_up(value, digits)), float(round_down(value, digits))
    assert down <= value <= up
    assert up <= value * (1 + 1.01 * 10.0 ** (1 - digits)) or value < 1e-300


@given(shares, st.integers(1, 6))
@example(0.0149, 1)
@example(0.0149, 4)
@example(1 / 3, 4)
@example(0.07, 4)
@example(np.nextafter(1.0, 0), 4)
def test_an_assumption_is_rounded_up(share, digits):
    text = percent_up(share, digits)
    assert text.endswith(" %")
    assert Decimal(repr(float(share))) * 100 <= Decimal(text[:-2]) <= 100


@given(st.floats(min_value=0.0, max_value=700.0), st.integers(1, 6))
@example(0.0, 3)
@example(1.0, 4)
@example(1e-50, 3)
def test_a_factor_is_rounded_up(epsilon, digits):
    with localcontext(prec=60):
        truth = Decimal(repr(epsilon)).exp()
        printed = Decimal(factor_up(epsilon, digits).replace(",", ""))
        assert truth <= printed <= truth * (1 + Decimal("1.01") * Decimal(10) ** (1 - digits))


@given(st.floats(min_value=1e-30, max_value=0.5))
def test_one_in_so_many_is_no_rarer_than_the_probability(delta):
    text = one_in(delta)
    assert 1 / Decimal(text.removeprefix("1 in ").replace(",", "")) >= Decimal(repr(delta)) * (1 - Decimal("1e-25"))


@given(losses)
def test_a_choice_is_printed_as_it_is(value):
    assert float(exact(value)) == value


@pytest.mark.parametrize(
    ("value", "text"), [(np.float64(0.1), "0.1"), (1, "1"), ("much", "'much'"), (None, "None"), (True, "True")]
)
def test_a_parameter_that_is_no_number_is_printed_as_it_is(value, text):
    assert loss(value) == text


def test_figures_that_are_not_finite():
    assert (round_up(math.inf), round_down(math.inf), round_up(0.0)) == ("inf", "inf", "0")


@pytest.mark.parametrize(
    ("honest", "text"),
    [
        (0.0149, "at least 1.49 % of all users"),
        (1 / 3, "at least 33.34 % of all users"),
        (0.9, "at least 90 % of all users"),
        (0.9999999, "all users"),
        (1.0, "all users"),
    ],
)
def test_honest_fractions_as_words(honest, text):
    assert crowd(honest, "users") == text


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-6, 1e-2])
def test_the_guess_from_one_pair_is_no_smaller_than_that_of_the_whole_guarantee(mu, delta):
    """Two routes: the total variation distance of the guarantee, and the bound that one (epsilon, delta) gives."""
    guarantee = Guarantee(mu=mu, theorem="test")
    epsilon = guarantee.epsilon(delta)
    by_pair, by_guarantee = Claim.of(epsilon, delta).guess, Claim.of(epsilon, delta, guarantee).guess
    truth = 0.5 + math.erf(mu / math.sqrt(8)) / 2
    assert truth <= by_guarantee <= truth * (1 + 1e-9)
    assert by_guarantee <= by_pair <= 1
    # Attained: a mechanism that tells the record with probability delta, and answers at random with odds e^epsilon otherwise.
    odds = math.exp(epsilon)
    assert by_pair == pytest.approx(delta + (1 - delta) * odds / (1 + odds), rel=1e-9)
