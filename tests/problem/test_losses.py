"""Losses against differences, the definition of a subgradient, a numerical minimiser and high precision."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from croupier import ArgumentError
from croupier.problem import (
    Absolute,
    CappedLogistic,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Multinomial,
    Pinball,
    SmoothedHinge,
    Squared,
    SquaredHinge,
)

BINARY = [Logistic(), CappedLogistic(), Hinge(), SmoothedHinge(width=0.3), SquaredHinge()]
REGRESSION = [Squared(target_bound=2.0), Huber(kappa=0.7), Pinball(quantile=0.2), Absolute(), EpsilonInsensitive(width=0.3)]
SCALAR = BINARY + REGRESSION
SMOOTH = [loss for loss in SCALAR if loss.curvature is not None]
BOUNDED = [loss for loss in SCALAR if not isinstance(loss, Squared | SquaredHinge)]

quick = settings(derandomize=True, deadline=None, max_examples=16)
scores = st.floats(-6, 6) | st.sampled_from([-1e3, -1.0, 0.0, 1.0, 1e3])
log_q = st.floats(-12, 8)


def named(losses):
    return pytest.mark.parametrize("loss", losses, ids=lambda loss: type(loss).__name__)


def targets_for(loss, u):
    """A target made of u in [-1, 1]."""
    return float(np.sign(u) or 1.0) if loss in BINARY else 2.0 * u


def one(method, *numbers):
    """A loss's method at one user."""
    return float(method(*(np.array([float(number)]) for number in numbers))[0])


def reference_multinomial(row, label, q, digits=60):
    """p - e_y at the prox, to many digits: q p_i = omega(score_i + q [i = y] + k), k by Newton's iteration."""
    with mpmath.workdps(digits):
        q, raised = (
            mpmath.mpf(float(q)),
            [mpmath.mpf(float(s)) + (mpmath.mpf(float(q)) if i == label else 0) for i, s in enumerate(row)],
        )

        def mass(k):
            return [mpmath.lambertw(mpmath.exp(u + k)).real for u in raised]

        k = q + mpmath.log(q) - max(raised)  # the sum is convex in k and too large here: Newton comes down to the root
        for _ in range(40):
            step = (sum(mass(k)) - q) / sum(w / (1 + w) for w in mass(k))
            k -= step
            if abs(step) < mpmath.mpf(10) ** (-digits // 2):
                break
        return [float(w / q - (i == label)) for i, w in enumerate(mass(k))]


def reference_logistic(margin, q, digits=60):
    """sigmoid(-w), w = margin + q sigmoid(-w), to many digits by bisection."""
    with mpmath.workdps(digits):
        margin, q = mpmath.mpf(margin), mpmath.mpf(q)
        low, high = margin, margin + min(q, abs(margin) + mpmath.log(1 + q))
        for _ in range(int(3.4 * digits)):
            middle = (low + high) / 2
            low, high = (middle, high) if middle - margin < q / (1 + mpmath.exp(middle)) else (low, middle)
        return float(1 / (1 + mpmath.exp(low)))


# --- slopes ------------------------------------------------------------------------------------------------------------


@named(SMOOTH)
@quick
@given(z=scores, u=st.floats(-1, 1))
def test_slope_is_the_derivative(loss, z, u):
    y, step = targets_for(loss, u), 1e-5 * max(1.0, abs(z))
    difference = (one(loss.value, z + step, y) - one(loss.value, z - step, y)) / (2 * step)
    rounding = 1e-15 * one(loss.value, z, y) / step
    assert abs(difference - one(loss.slope, z, y)) <= loss.curvature * step + rounding + 1e-9


@named(SCALAR)
@quick
@given(z=scores, other=scores, u=st.floats(-1, 1))
def test_slope_is_a_subgradient(loss, z, other, u):
    y = targets_for(loss, u)
    tangent = one(loss.value, z, y) + one(loss.slope, z, y) * (other - z)
    assert one(loss.value, other, y) >= tangent - 1e-12 * (1 + abs(tangent) + (1 + abs(z)) * abs(other - z))


@pytest.mark.parametrize("y", [-1.5, 0.0, 2.0])
@named(REGRESSION)
def test_residual_losses_are_zero_at_the_target_and_nowhere_negative(loss, y):
    z = np.linspace(-4, 4, 81)
    assert one(loss.value, y, y) == 0
    assert np.all(loss.value(z, np.full(81, y)) >= 0)


def test_values_by_hand():
    assert one(Logistic().value, 0, 1) == pytest.approx(math.log(2))
    assert one(Hinge().value, -0.5, 1) == 1.5
    assert one(SmoothedHinge(width=0.5).value, 0.75, 1) == pytest.approx(0.0625)
    assert one(SmoothedHinge(width=0.5).value, -1, 1) == pytest.approx(1.75)
    assert one(SquaredHinge().value, -1, 1) == 2
    assert one(Squared().value, 1.5, 0.5) == 0.5
    assert one(Huber(kappa=2).value, 1, 0) == 0.5
    assert one(Huber(kappa=2).value, 5, 0) == 8
    assert one(Pinball(quantile=0.9).value, 0, 1) == pytest.approx(0.9)
    assert one(Pinball(quantile=0.9).value, 1, 0) == pytest.approx(0.1)
    assert one(EpsilonInsensitive(width=0.5).value, 2, 0) == 1.5
    assert Multinomial(classes=4).value(np.zeros((1, 4)), np.eye(4)[[2]])[0] == pytest.approx(math.log(4))


def test_the_pinball_minimiser_is_the_quantile():
    y = np.arange(1.0, 101.0)
    loss = Pinball(quantile=0.2)
    candidates = np.linspace(0, 101, 1011)
    best = candidates[np.argmin([loss.value(np.full(100, z), y).sum() for z in candidates])]
    assert 20 <= best <= 21


@named([*SCALAR, SmoothedHinge(width=2.5)])
@pytest.mark.parametrize("bound", [0.0, 0.4, 3.0, 50.0])
def test_slope_bound_holds_and_is_attained(loss, bound):
    z = np.repeat(np.linspace(-bound, bound, 401), 5)
    # targets at the ends of what is allowed: labels, [-target_bound, target_bound], or anywhere
    far = 1.0 if loss not in REGRESSION else 2.0 if isinstance(loss, Squared) else 1e3
    y = np.tile(np.where(np.linspace(-1, 1, 5) < 0, -far, far), 401)
    steepest = np.max(np.abs(loss.slope(z, y)))
    assert steepest <= loss.slope_bound(bound) * (1 + 1e-15)
    assert steepest >= loss.slope_bound(bound) * (1 - 1e-12)


@named(BOUNDED)
def test_bounded_slopes_stay_bounded_without_a_score_bound(loss):
    assert math.isfinite(loss.slope_bound(math.inf))
    assert np.max(np.abs(loss.slope(np.array([-1e3, 1e3, -1e3, 1e3]), np.array([1.0, 1.0, -1.0, -1.0])))) == pytest.approx(
        loss.slope_bound(math.inf)
    )


@named([Squared(), SquaredHinge()])
def test_unbounded_slopes_say_so(loss):
    assert loss.slope_bound(math.inf) == math.inf


@named(SMOOTH)
def test_curvature_holds_and_is_attained(loss):
    z = np.linspace(-3, 3, 6001)
    for y in (-1.0, 1.0):
        change = np.abs(np.diff(loss.slope(z, np.full(z.shape, y)))) / np.diff(z)
        assert np.max(change) <= loss.curvature * (1 + 1e-9)
        assert np.max(change) >= loss.curvature * (1 - 1e-3)


@named([loss for loss in SCALAR if loss.curvature is None])
def test_losses_without_curvature_have_a_kink(loss):
    z = np.linspace(-3, 3, 6002)
    assert np.max(np.abs(np.diff(loss.slope(z, np.ones(z.shape))))) >= 0.9


# --- Moreau envelopes --------------------------------------------------------------------------------------------------


@named(SCALAR)
@quick
@given(z=scores, other=scores, u=st.floats(-1, 1), exponent=log_q)
def test_prox_satisfies_its_optimality_condition(loss, z, other, u, exponent):
    """g is the envelope's slope if and only if g is a subgradient of the loss at w = z - q g."""
    q, y = 10.0**exponent, targets_for(loss, u)
    g = one(loss.prox_slope, z, y, q)
    w = z - q * g
    tangent = one(loss.value, w, y) + g * (other - w)
    # w is rounded: to 1e-15 (|z| + q |g|), along which the loss changes by its slope
    assert one(loss.value, other, y) >= tangent - 1e-12 * (1 + abs(z) + q * abs(g)) * (1 + abs(z))


@named(SCALAR)
@pytest.mark.parametrize("q", [1e-3, 0.3, 4.0, 100.0])
@pytest.mark.parametrize("z", [-2.3, 0.4, 0.95, 5.0])
def test_prox_agrees_with_a_numerical_minimiser(loss, q, z):
    y = targets_for(loss, 0.37)
    width = q * loss.slope_bound(abs(z)) + 1.0
    found = minimize_scalar(
        lambda w: one(loss.value, w, y) + (w - z) ** 2 / (2 * q),
        bounds=(z - width, z + width),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert z - q * one(loss.prox_slope, z, y, q) == pytest.approx(found.x, abs=2e-6 * (1 + width))


def envelope(loss, z, y, q):
    w = z - q * one(loss.prox_slope, z, y, q)
    return one(loss.value, w, y) + (z - w) ** 2 / (2 * q)


@named(SCALAR)
@quick
@given(z=st.floats(-6, 6), u=st.floats(-1, 1), exponent=st.floats(-1, 3))
def test_prox_slope_is_the_derivative_of_the_envelope(loss, z, u, exponent):
    q, y, step = 10.0**exponent, targets_for(loss, u), 1e-5
    difference = (envelope(loss, z + step, y, q) - envelope(loss, z - step, y, q)) / (2 * step)
    assert abs(difference - one(loss.prox_slope, z, y, q)) <= step / q + 1e-8  # the envelope is 1/q-smooth


@named(SCALAR)
@quick
@given(z=st.floats(-6, 6), u=st.floats(-1, 1), exponent=st.floats(-6, 6))
def test_envelope_lies_below_by_at_most_half_q_slope_squared(loss, z, u, exponent):
    q, y = 10.0**exponent, targets_for(loss, u)
    f, smoothed, slope = one(loss.value, z, y), envelope(loss, z, y, q), one(loss.slope, z, y)
    assert smoothed <= f * (1 + 1e-12) + 1e-12
    assert f <= smoothed * (1 + 1e-12) + q * slope**2 / 2 + 1e-12


@named(SCALAR)
@quick
@given(z=scores, other=scores, u=st.floats(-1, 1), exponent=log_q)
def test_envelope_is_convex_smooth_and_no_steeper(loss, z, other, u, exponent):
    q, y = 10.0**exponent, targets_for(loss, u)
    g, h = one(loss.prox_slope, z, y, q), one(loss.prox_slope, other, y, q)
    assert (g - h) * (z - other) >= -1e-12 * abs(z - other)
    assert abs(g - h) <= abs(z - other) / q * (1 + 1e-9) + 1e-12 * (1 + abs(g))
    assert abs(g) <= loss.slope_bound(abs(z)) * (1 + 1e-12)


@named(SCALAR)
def test_a_tiny_q_gives_the_slope_without_overflow(loss):
    z, y = np.array([-1e3, -2.2, 0.3, 5.0, 1e3]), np.ones(5)
    for q in (np.finfo(np.float64).tiny, 1e-200, 1e-30):
        assert loss.prox_slope(z, y, np.full(5, q)) == pytest.approx(loss.slope(z, y), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("margin", [-1e3, -30.0, -1.0, 0.0, 1.0, 5.0, 600.0])
def test_logistic_prox_to_many_digits(margin):
    q = np.array([1e-300, 1e-30, 1e-8, 1e-2, 1.0, 30.0, 1e4, 1e8, 1e10, 1e15, 1e18, 1e100, 1e300])
    for y in (-1.0, 1.0):
        ours = Logistic().prox_slope(np.full(q.shape, y * margin), np.full(q.shape, y), q)
        assert -y * ours == pytest.approx(np.array([reference_logistic(margin, value) for value in q]), rel=2e-12, abs=0)


# --- several classes ---------------------------------------------------------------------------------------------------


def test_two_classes_are_logistic():
    difference = np.linspace(-40, 40, 33)
    y = np.arange(33) % 2
    pairs = np.column_stack([np.zeros(33), difference])
    loss, binary = Multinomial(classes=2), Logistic()
    assert loss.value(pairs, loss.targets(y)) == pytest.approx(binary.value(difference, binary.targets(y)), abs=1e-14)
    assert loss.slope(pairs, loss.targets(y))[:, 1] == pytest.approx(binary.slope(difference, binary.targets(y)), abs=1e-14)
    for q in (1e-6, 0.7, 1e6):  # moving two scores apart by 1 moves each by 1/2: twice the q
        ours = loss.prox_slope(pairs, loss.targets(y), np.full(33, q))
        assert ours[:, 1] == pytest.approx(
            binary.prox_slope(difference, binary.targets(y), np.full(33, 2 * q)), rel=1e-10, abs=1e-15
        )
        assert ours[:, 0] == pytest.approx(-ours[:, 1])


@quick
@given(row=st.lists(scores, min_size=3, max_size=3), label=st.integers(0, 2))
def test_multinomial_slope_is_the_gradient(row, label):
    loss, z = Multinomial(classes=3), np.array([row])
    targets, step = loss.targets(np.array([label])), 1e-5 * (1 + np.max(np.abs(row)))
    nudges = step * np.eye(3)
    difference = (loss.value(z + nudges, np.repeat(targets, 3, 0)) - loss.value(z - nudges, np.repeat(targets, 3, 0))) / (2 * step)
    assert np.max(np.abs(difference - loss.slope(z, targets)[0])) <= loss.curvature * step + 1e-9


@quick
@given(row=st.lists(scores, min_size=4, max_size=4), label=st.integers(0, 3), exponent=log_q)
def test_multinomial_prox_satisfies_its_optimality_condition(row, label, exponent):
    loss, z, q = Multinomial(classes=4), np.array([row]), 10.0**exponent
    targets = loss.targets(np.array([label]))
    g = loss.prox_slope(z, targets, np.array([q]))
    # the score at the prox is rounded to 1e-15 (|z| + q |g|), and the slope is 1/2-Lipschitz in it
    rounding = 1e-13 * (1 + np.max(np.abs(row)) + q * np.max(np.abs(g)))
    assert g == pytest.approx(loss.slope(z - q * g, targets), abs=rounding)
    assert np.linalg.norm(g) <= np.linalg.norm(loss.slope(z, targets)) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("q", [1e-30, 1e-2, 1.0, 30.0, 1e8, 1e12])
def test_multinomial_prox_to_many_digits(q):
    loss, labels = Multinomial(classes=4), np.array([0, 1, 2, 3])
    z = np.array([[0.1, 0.2, -0.3, 0.0], [3.0, -25.0, 17.0, 8.0], [0.0, 0.0, 0.0, 0.0], [-6.0, 1.0, 2.0, 2.0]])
    ours = loss.prox_slope(z, loss.targets(labels), np.full(4, q))
    digits = 60 + int(abs(math.log10(q)))
    for i in range(4):
        assert ours[i] == pytest.approx(np.array(reference_multinomial(z[i], labels[i], q, digits)), rel=1e-12, abs=0)


def test_multinomial_prox_agrees_with_a_numerical_minimiser():
    loss, rng = Multinomial(classes=5), np.random.default_rng(1)
    z, q = 3 * rng.normal(size=(4, 5)), np.array([0.01, 1.0, 20.0, 300.0])
    targets = loss.targets(np.array([0, 4, 2, 2]))
    ours = z - q[:, None] * loss.prox_slope(z, targets, q)
    for i in range(4):
        found = minimize(
            lambda w, i=i: q[i] * loss.value(w[None], targets[i : i + 1])[0] + np.sum((w - z[i]) ** 2) / 2,
            z[i],
            jac=lambda w, i=i: q[i] * loss.slope(w[None], targets[i : i + 1])[0] + w - z[i],
            tol=1e-12,
        )
        assert ours[i] == pytest.approx(found.x, abs=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("bound", [0.0, 0.5, 2.0, 40.0, math.inf])
def test_multinomial_slope_bound_holds(classes, bound):
    loss, rng = Multinomial(classes=classes), np.random.default_rng(2)
    reach = min(bound, 1e3)
    z = rng.normal(size=(2000, classes))
    z[:, 0] -= np.abs(z[:, 0]) * rng.random(2000) * 4
    z[0] = 0
    z[0, :2] = -1, 1
    z *= reach / np.linalg.norm(z, axis=1, keepdims=True)
    steepest = np.max(np.linalg.norm(loss.slope(z, loss.targets(np.zeros(2000))), axis=1))
    assert steepest <= loss.slope_bound(bound) * (1 + 1e-12)
    if classes == 2 or bound >= 40:
        assert steepest >= loss.slope_bound(bound) * (1 - 1e-9)
    assert loss.slope_bound(bound) <= math.sqrt(2)


def test_multinomial_curvature_holds_and_is_attained():
    loss, rng = Multinomial(classes=4), np.random.default_rng(3)
    p = rng.dirichlet(np.full(4, 0.3), size=500)
    p[0] = 0.5, 0.5, 0, 0
    top = np.array([np.linalg.eigvalsh(np.diag(row) - np.outer(row, row))[-1] for row in p])
    assert np.max(top) == pytest.approx(loss.curvature)


def test_no_users_is_no_gradient():
    none = np.zeros(0)
    for loss in SCALAR:
        assert loss.prox_slope(none, none, none).shape == (0,)
    assert Multinomial(classes=3).prox_slope(np.zeros((0, 3)), np.zeros((0, 3)), none).shape == (0, 3)


@pytest.mark.parametrize("classes", [2, 6])
def test_extreme_scores_of_several_classes_stay_finite(classes):
    loss, rng = Multinomial(classes=classes), np.random.default_rng(4)
    for size in (1e3, 1e8):
        z = size * rng.choice([-1.0, 0.0, 1.0], size=(60, classes))
        targets = loss.targets(rng.integers(0, classes, 60))
        for q in (1e-300, 1e-9, 1.0, 1e9, 1e300):
            g = loss.prox_slope(z, targets, np.full(60, q))
            assert np.all(np.isfinite(g))
            assert np.all(np.abs(g) <= 1 + 1e-14 * size)
            assert np.sum(g, axis=1) == pytest.approx(np.zeros(60), abs=1e-12)


# --- targets and parameters --------------------------------------------------------------------------------------------


@named(BINARY)
def test_labels_of_two_classes(loss):
    assert loss.targets(np.array([0, 1, 1])).tolist() == [-1, 1, 1]
    assert loss.targets(np.array([-1, 1])).tolist() == [-1, 1]
    assert loss.targets(np.array([True, False])).tolist() == [1, -1]
    assert loss.targets([1.0, 0.0]).tolist() == [1, -1]


@named(BINARY)
@pytest.mark.parametrize(
    ("y", "shown"), [([0, 2], "2.0"), ([0.5], "0.5"), ([math.nan, 1], "nan"), ([math.inf], "inf"), (["no", "yes"], "no")]
)
def test_other_labels_are_refused_with_the_label(loss, y, shown):
    with pytest.raises(ArgumentError, match=r"^y = ") as error:
        loss.targets(np.array(y))
    assert shown in str(error.value)
    assert "it must be" in str(error.value)


def test_targets_are_clipped_to_the_bound():
    assert Squared(target_bound=2).targets(np.array([-9, 1.5, 2.5])).tolist() == [-2, 1.5, 2]


@named(REGRESSION)
@pytest.mark.parametrize("y", [[1.0, math.nan], [math.inf], ["a"], [None, "b"]])
def test_targets_that_are_no_numbers_are_refused(loss, y):
    with pytest.raises(ArgumentError, match=r"^y = "):
        loss.targets(np.array(y))


def test_class_numbers():
    loss = Multinomial(classes=3)
    assert loss.outputs == 3
    assert loss.targets(np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    for y in ([3], [-1], [0.5], [math.nan], [math.inf], ["two"]):
        with pytest.raises(ArgumentError, match=r"^y = "):
            loss.targets(np.array(y))
    with pytest.raises(ArgumentError, match=r"y = 3\.0 .* whole number from 0 to 2"):
        loss.targets(np.array([0, 3]))


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (SmoothedHinge, "width", [0, -1]),
        (EpsilonInsensitive, "width", [0, -0.1]),
        (Squared, "target_bound", [0, -1]),
        (Huber, "kappa", [0, -2]),
        (Pinball, "quantile", [0, 1, -0.1, 1.1]),
    ],
)
def test_parameters_out_of_range_are_refused(kind, name, values):
    for value in [*values, math.nan, math.inf, "0.5", True, None]:
        with pytest.raises(ArgumentError, match=f"^{name} = ") as error:
            kind(**{name: value})
        assert repr(value) in str(error.value)
        assert "greater than 0" in str(error.value)


@pytest.mark.parametrize("value", [1, 0, -3, 2.5, "2", None, True])
def test_fewer_than_two_classes_are_refused(value):
    with pytest.raises(ArgumentError, match=r"^classes = .* whole number of at least 2"):
        Multinomial(classes=value)


def test_losses_are_values():
    assert Huber(kappa=2) == Huber(kappa=2.0)
    assert len({Huber(kappa=2), Huber(kappa=2.0), Huber(), Logistic(), Logistic()}) == 3
    assert Multinomial(classes=3.0).outputs == 3
    with pytest.raises(AttributeError):
        Huber().kappa = 3.0


def test_a_whole_number_beyond_floats_is_refused_like_any_target_that_is_no_number():
    with pytest.raises(ArgumentError, match="numbers, one per user"):
        Squared().targets(np.array([0, 10**400], dtype=object))
