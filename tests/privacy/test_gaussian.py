"""The Gaussian yardstick: right to 50 digits, on the safe side, and in agreement with dp_accounting."""

from __future__ import annotations

import math

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import common, privacy_loss_mechanism
from dp_accounting.pld.accountant import get_smallest_gaussian_noise
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import exact_gaussian_delta

from croupier.privacy import ArgumentError, central_noise_std
from croupier.privacy.gaussian import gaussian_delta, gaussian_mu

thorough = settings(max_examples=200, deadline=None, derandomize=True)
EPSILONS = st.floats(-30, 120)
MUS = st.floats(-7, 4).map(math.exp)


@thorough
@given(epsilon=EPSILONS, mu=MUS)
@example(epsilon=1.0, mu=0.2)
@example(epsilon=0.0, mu=1e-3)
@example(epsilon=1e-12, mu=1e-3)
@example(epsilon=700.0, mu=30.0)
@example(epsilon=-5.0, mu=0.5)
def test_delta_is_never_below_the_50_digit_value_and_close_to_it(epsilon, mu):
    exact = exact_gaussian_delta(epsilon, mu)
    computed = gaussian_delta(epsilon, mu)
    assert computed >= exact - mpmath.mpf(10) ** -300  # below this, floating point has only zero
    assert computed <= exact + mpmath.mpf(10) ** -11


@settings(thorough, max_examples=60)
@given(ratio=st.floats(3, 30), mu=MUS)
def test_small_deltas_are_right_to_many_digits(ratio, mu):
    """In the tail, where privacy is decided, the relative error counts: it is at most that of the two terms."""
    epsilon = mu * ratio + mu * mu / 2
    exact = exact_gaussian_delta(epsilon, mu)
    if exact > mpmath.mpf(10) ** -290:
        assert exact <= gaussian_delta(epsilon, mu) <= exact * (1 + 1e-10 * (1 + 1 / mu**2))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("mu", [0.05, 0.2, 1.0, 4.0])
def test_delta_agrees_with_dp_accounting(epsilon, mu):
    mechanism = privacy_loss_mechanism.GaussianPrivacyLoss(standard_deviation=1 / mu)
    assert gaussian_delta(epsilon, mu) == pytest.approx(mechanism.get_delta_for_epsilon(epsilon), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "mu", "delta"),
    [(0.0, 0.0, 0.0), (3.0, 0.0, 0.0), (-1.0, 0.0, 1 - math.exp(-1)), (2.0, math.inf, 1.0), (0.0, 1e3, 1.0)],
)
def test_delta_at_the_ends_of_its_range(epsilon, mu, delta):
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, abs=1e-15)


@thorough
@given(epsilon=st.floats(0, 20), mu=st.floats(0.01, 10), factor=st.floats(1.001, 3))
def test_delta_grows_with_mu_and_falls_with_epsilon(epsilon, mu, factor):
    assert gaussian_delta(epsilon, mu * factor) >= gaussian_delta(epsilon, mu)
    assert gaussian_delta(epsilon * factor, mu) <= gaussian_delta(epsilon, mu) + 1e-11


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, -0.1), (1.0, math.nan), (math.nan, 1.0)])
def test_delta_of_nonsense_is_refused(epsilon, mu):
    with pytest.raises(ValueError, match="no Gaussian divergence"):
        gaussian_delta(epsilon, mu)


@thorough
@given(epsilon=st.floats(math.log(0.01), math.log(300)).map(math.exp), exponent=st.floats(-250, -0.05))
def test_mu_is_the_root_on_its_safe_side(epsilon, exponent):
    """The 50-digit delta of gaussian_mu is at most what was asked; a little more mu exceeds it."""
    delta = 10**exponent
    mu = gaussian_mu(epsilon, delta)
    assert exact_gaussian_delta(epsilon, mu) <= delta
    assert exact_gaussian_delta(epsilon, mu * (1 + 1e-7)) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (1.0, 1e-10), (4.0, 1e-6), (10.0, 1e-3)])
def test_mu_agrees_with_dp_accounting(epsilon, delta):
    assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6)


def test_central_noise_is_8_449_at_epsilon_1_delta_1e_6_sensitivity_2():
    """Four routes: the code, a 50-digit root, and two functions of dp_accounting."""
    with mpmath.workdps(50):
        root = mpmath.findroot(lambda mu: exact_gaussian_delta(1, mu) * 10**6 - 1, (0.2, 0.3), solver="anderson", tol=1e-40)
    ours = central_noise_std(1, 1e-6, 2)
    assert round(ours, 3) == 8.449
    assert ours == pytest.approx(float(2 / root), rel=1e-9)
    assert ours >= 2 / root  # the safe side
    assert ours == pytest.approx(2 * dp_accounting.get_sigma_gaussian(1.0, 1e-6), rel=1e-6)
    target = common.DifferentialPrivacyParameters(1.0, 1e-6)
    assert ours == pytest.approx(get_smallest_gaussian_noise(target, num_queries=1, sensitivity=2), rel=1e-6)


def test_central_noise_scales_with_sensitivity_and_root_of_rounds():
    one = central_noise_std(2, 1e-5, 1)
    assert central_noise_std(2, 1e-5, 3) == pytest.approx(3 * one, rel=1e-12)
    target = common.DifferentialPrivacyParameters(2.0, 1e-5)
    by_library = get_smallest_gaussian_noise(target, num_queries=7, sensitivity=1)
    assert central_noise_std(2, 1e-5, 1, rounds=7) == pytest.approx(by_library, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, None, "much", True])
def test_mu_for_a_bad_epsilon_is_refused(epsilon):
    with pytest.raises(ArgumentError, match=r"epsilon = .* must be a finite number greater than 0"):
        gaussian_mu(epsilon, 1e-6)


@pytest.mark.parametrize("delta", [0, 1, 1.5, -1e-9, math.nan, None, "little", True])
def test_mu_for_a_bad_delta_is_refused(delta):
    with pytest.raises(ArgumentError, match=r"delta = .* must be a finite number greater than 0 and less than 1"):
        gaussian_mu(1.0, delta)
