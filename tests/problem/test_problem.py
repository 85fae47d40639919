"""Problems: gradients, constants, prox and envelope in theta space, each against a second route; and the checker of constants."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

from croupier import ArgumentError
from croupier.arithmetic import LinearVectors, row_dots, row_squares
from croupier.problem import (
    Absolute,
    Ball,
    Box,
    CustomProblem,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Multinomial,
    Pinball,
    Problem,
    Simplex,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    WholeSpace,
    check,
)
from croupier.problem.problem import Smoothed
from croupier.protocol._encoding import clip_to_ball

BINARY = [Logistic(), Hinge(), SmoothedHinge(width=0.3), SquaredHinge()]
REGRESSION = [Squared(target_bound=2.0), Huber(kappa=0.7), Pinball(quantile=0.2), Absolute(), EpsilonInsensitive(width=0.3)]
SEVERAL = Multinomial(classes=3)
LOSSES = [*BINARY, *REGRESSION, SEVERAL]
# a kinked loss is the largest of these lines a z + b
PIECES = {
    Hinge: lambda loss, y: [(0, 0), (-y, 1)],
    Absolute: lambda loss, y: [(1, -y), (-1, y)],
    Pinball: lambda loss, y: [(1 - loss.quantile, -(1 - loss.quantile) * y), (-loss.quantile, loss.quantile * y)],
    EpsilonInsensitive: lambda loss, y: [(0, 0), (1, -y - loss.width), (-1, y - loss.width)],
}
FEATURES, NORM, RADIUS = 3, 1.7, 2.5

quick = settings(derandomize=True, deadline=None, max_examples=10)
seeds = st.integers(0, 2**32 - 1)
by_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
by_l2 = pytest.mark.parametrize("l2", [0.0, 0.4])


def make(loss, l2=0.0, domain=Ball, norm=NORM):
    dim = FEATURES * loss.outputs
    center = tuple(np.linspace(-0.5, 1.0, dim))
    domains = {Ball: lambda: Ball(dim, RADIUS, center), Box: lambda: Box(dim, -1.0, 0.5), Simplex: lambda: Simplex(dim, 2.0)}
    return Problem(loss=loss, domain=domains[domain](), feature_norm=norm, l2=l2)


def draw(problem, rng, users=12):
    """A point of the domain and records: some rows of full length, some longer, one zero; extreme and tame targets."""
    X = rng.normal(size=(users, problem.features))
    X *= (problem.feature_norm * rng.choice([0.01, 0.5, 1.0, 1.0, 3.0], size=users) / np.linalg.norm(X, axis=1))[:, None]
    X[0] = 0
    if isinstance(problem.loss, Logistic | Hinge | SmoothedHinge | SquaredHinge):
        y = rng.choice([-1.0, 1.0], size=users)
    elif isinstance(problem.loss, Multinomial):
        y = rng.integers(0, problem.loss.classes, users)
    else:
        y = rng.choice([0.3, 1.0, 100.0], size=users) * rng.uniform(-2, 2, size=users)
    theta = problem.domain.project(problem.domain.start() + rng.choice([0.3, 3.0]) * rng.normal(size=problem.dim))
    return theta, X, y


def envelope(problem, theta, X, y, beta):
    """Each user's envelope, at the prox that `problem` gives."""
    near = problem.prox(theta, X, y, beta)
    at_prox = np.array([problem.losses(near[i], X[i : i + 1], y[i : i + 1])[0] for i in range(len(X))])
    return at_prox + beta / 2 * np.sum((theta - near) ** 2, axis=1)


# --- gradients ---------------------------------------------------------------------------------------------------------


@by_loss
@by_l2
def test_gradients_are_central_differences(loss, l2):
    problem, rng = make(loss, l2), np.random.default_rng(0)
    for _ in range(3):
        theta, X, y = draw(problem, rng)  # at random points no kink is near
        steps = 1e-6 * np.eye(problem.dim)
        differences = [(problem.losses(theta + e, X, y) - problem.losses(theta - e, X, y)) / 2e-6 for e in steps]
        assert problem.gradients(theta, X, y) == pytest.approx(np.column_stack(differences), abs=2e-5)


@by_loss
@by_l2
@quick
@given(seed=seeds)
def test_gradients_are_subgradients(loss, l2, seed):
    problem, rng = make(loss, l2), np.random.default_rng(seed)
    theta, X, y = draw(problem, rng)
    other = draw(problem, rng)[0]
    tangent = problem.losses(theta, X, y) + problem.gradients(theta, X, y) @ (other - theta) + l2 / 2 * np.sum((other - theta) ** 2)
    assert np.all(problem.losses(other, X, y) >= tangent - 1e-10 * (1 + np.abs(tangent)))


# --- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [Ball, Box, Simplex])
@by_loss
@quick
@given(seed=seeds, l2=st.sampled_from([0.0, 0.4]))
def test_constants_are_never_violated(loss, domain, seed, l2):
    problem, rng = make(loss, l2, domain), np.random.default_rng(seed)
    theta, X, y = draw(problem, rng)
    other = theta + rng.choice([1e-3, 1.0]) * (draw(problem, rng)[0] - theta)
    there, here = problem.gradients(theta, X, y), problem.gradients(other, X, y)
    assert np.max(np.linalg.norm(there, axis=1)) <= problem.lipschitz * (1 + 1e-12)
    gap = np.linalg.norm(theta - other)
    if problem.smoothness is not None:
        assert np.max(np.linalg.norm(there - here, axis=1)) <= problem.smoothness * gap + 1e-11
    assert np.min((there - here) @ (theta - other)) >= problem.strong_convexity * gap**2 - 1e-11


@pytest.mark.parametrize("loss", [*BINARY, *REGRESSION], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("domain", [Ball, Box])
@by_l2
def test_lipschitz_is_attained(loss, l2, domain):
    """Theta as long as the domain allows, a row of full length along it, the label or target that it is most wrong about."""
    problem = make(loss, l2, domain)
    if domain is Ball:
        center = np.array(problem.domain.center)
        theta = center * (1 + RADIUS / np.linalg.norm(center))
    else:
        theta = np.full(problem.dim, -1.0)
    assert np.linalg.norm(theta) == pytest.approx(problem.domain.norm_bound)
    assert problem.domain.project(theta) == pytest.approx(theta)
    x = NORM * theta / np.linalg.norm(theta)
    X, y = np.array([x, x, -x, -x]), np.array([1.0, -1.0, 1.0, -1.0]) * (1 if loss in BINARY else 1e3)
    assert np.max(np.linalg.norm(problem.gradients(theta, X, y), axis=1)) == pytest.approx(problem.lipschitz, rel=1e-12)


def test_lipschitz_of_two_classes_is_attained():
    problem = Problem(loss=Multinomial(classes=2), domain=Ball(2, 0.8), feature_norm=1.5)
    theta = 0.8 * np.array([1.0, -1.0]) / math.sqrt(2)
    assert np.linalg.norm(problem.gradients(theta, [[1.5]], [1])) == pytest.approx(problem.lipschitz, rel=1e-12)
    wide = Problem(loss=Multinomial(classes=2), domain=Ball(2, 80.0), feature_norm=1.5)
    assert wide.lipschitz == pytest.approx(1.5 * math.sqrt(2))


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.curvature], ids=lambda loss: type(loss).__name__)
@by_l2
def test_smoothness_and_strong_convexity_are_attained(loss, l2):
    problem = Problem(loss=loss, domain=Ball(FEATURES * loss.outputs, 100.0), feature_norm=NORM, l2=l2)
    x = np.array([NORM, 0.0, 0.0])
    if isinstance(loss, Multinomial):
        along = np.kron([1.0, -1.0, 0.0], x) / (NORM * math.sqrt(2))
        theta = np.kron([0.0, 0.0, -20.0], x)  # the third class is all but out
    else:
        along = x / NORM
        theta = (0.0 if isinstance(loss, Logistic) else 0.9 / NORM) * along  # where the curvature is
    step, y = 1e-4 * along, [1.0]
    change = (problem.gradients(theta + step, [x], y) - problem.gradients(theta - step, [x], y))[0] / 2e-4
    assert np.linalg.norm(change) == pytest.approx(problem.smoothness, rel=1e-6)
    across = np.zeros(problem.dim)
    across[1] = 1.0
    change = (problem.gradients(theta + across, [x], y) - problem.gradients(theta, [x], y))[0] @ across
    assert change == pytest.approx(problem.strong_convexity, abs=1e-12)


def test_the_whole_space_needs_a_bounded_slope():
    space = WholeSpace(dim=4, distance=3.0)
    assert Problem(loss=Logistic(), domain=space).lipschitz == 1
    assert Problem(loss=Hinge(), domain=space, feature_norm=2.0).lipschitz == 2
    for refused in ({"loss": Squared()}, {"loss": SquaredHinge()}, {"loss": Logistic(), "l2": 0.1}):
        with pytest.raises(ArgumentError, match=r"^domain = WholeSpace.* bounded"):
            Problem(domain=space, **refused)


# --- prox and Moreau envelopes -----------------------------------------------------------------------------------------


def numerical_prox(problem, theta, x, y, beta):
    """argmin of one user's loss + beta/2 |. - theta|^2: BFGS, or for kinks SLSQP on the epigraph of the largest line."""
    loss, l2 = problem.loss, problem.l2
    if type(loss) not in PIECES:
        return minimize(
            lambda p: problem.losses(p, [x], [y])[0] + beta / 2 * np.sum((p - theta) ** 2),
            theta,
            jac=lambda p: problem.gradients(p, [x], [y])[0] + beta * (p - theta),
            method="BFGS",
            options={"gtol": 1e-10},
        ).x
    lines = PIECES[type(loss)](loss, y)
    begin = np.append(theta, problem.losses(theta, [x], [y])[0])
    return minimize(
        lambda p: p[-1] + l2 / 2 * p[:-1] @ p[:-1] + beta / 2 * np.sum((p[:-1] - theta) ** 2),
        begin,
        jac=lambda p: np.append(l2 * p[:-1] + beta * (p[:-1] - theta), 1.0),
        constraints=[
            {"type": "ineq", "fun": lambda p, a=a, b=b: p[-1] - a * (p[:-1] @ x) - b, "jac": lambda p, a=a: np.append(-a * x, 1.0)}
            for a, b in lines
        ],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 300},
    ).x[:-1]


@by_loss
@by_l2
@pytest.mark.parametrize("beta", [0.05, 1.0, 30.0])
def test_prox_agrees_with_a_numerical_minimiser(loss, l2, beta):
    problem, rng = make(loss, l2), np.random.default_rng(5)
    theta, X, y = draw(problem, rng, users=5)
    X *= np.minimum(1, NORM / np.maximum(1e-9, np.linalg.norm(X, axis=1)))[:, None]
    y = np.clip(y, -2, 2)
    near = problem.prox(theta, X, y, beta)
    for i in range(5):
        assert near[i] == pytest.approx(numerical_prox(problem, theta, X[i], y[i], beta), abs=3e-5)


@by_loss
@quick
@given(seed=seeds, exponent=st.floats(-3, 5), l2=st.sampled_from([0.0, 0.4]))
def test_prox_is_no_worse_than_points_around_it(loss, seed, exponent, l2):
    problem, rng, beta = make(loss, l2), np.random.default_rng(seed), 10.0**exponent
    theta, X, y = draw(problem, rng, users=4)
    near = problem.prox(theta, X, y, beta)
    best = envelope(problem, theta, X, y, beta)
    for size in (1e-3, 0.1, 3.0):
        for i in range(4):
            p = near[i] + size * rng.normal(size=problem.dim)
            there = problem.losses(p, X[i : i + 1], y[i : i + 1])[0] + beta / 2 * np.sum((theta - p) ** 2)
            assert there >= best[i] - 1e-10 * (1 + abs(best[i]))


@by_loss
@quick
@given(seed=seeds, exponent=st.floats(-6, 6), l2=st.sampled_from([0.0, 0.4]))
def test_moreau_gradient_is_beta_times_the_way_to_the_prox(loss, seed, exponent, l2):
    problem, rng, beta = make(loss, l2), np.random.default_rng(seed), 10.0**exponent
    theta, X, y = draw(problem, rng)
    gradients = problem.moreau_gradients(theta, X, y, beta)
    near = problem.prox(theta, X, y, beta)
    assert gradients == pytest.approx(beta * (theta - near), rel=1e-9, abs=1e-13 * max(1.0, beta))
    assert np.all(problem.smoothed(beta).gradients(theta, X, y) == gradients)
    if loss.curvature is not None:  # and it is the gradient at the prox
        for i in range(len(X)):
            assert gradients[i] == pytest.approx(problem.gradients(near[i], X[i : i + 1], y[i : i + 1])[0], rel=1e-6, abs=1e-6)


@by_loss
@by_l2
@pytest.mark.parametrize("beta", [0.02, 1.0, 50.0])
def test_moreau_gradient_is_the_derivative_of_the_envelope(loss, l2, beta):
    problem, rng = make(loss, l2), np.random.default_rng(6)
    theta, X, y = draw(problem, rng, users=6)
    steps = 1e-5 * np.eye(problem.dim)
    differences = [(envelope(problem, theta + e, X, y, beta) - envelope(problem, theta - e, X, y, beta)) / 2e-5 for e in steps]
    assert problem.moreau_gradients(theta, X, y, beta) == pytest.approx(np.column_stack(differences), abs=1e-5 * beta + 1e-7)


@pytest.mark.parametrize("domain", [Ball, Box, Simplex])
@by_loss
@quick
@given(seed=seeds, exponent=st.floats(-3, 5), l2=st.sampled_from([0.0, 0.4]))
def test_lemma_on_the_envelope(loss, domain, seed, exponent, l2):
    """Below the loss by at most L^2 / (2 beta); gradients of norm at most L, not 2L (erratum 4); convex, beta-smooth."""
    problem, rng, beta = make(loss, l2, domain), np.random.default_rng(seed), 10.0**exponent
    smoothed = problem.smoothed(beta)
    theta, X, y = draw(problem, rng)
    other = theta + rng.choice([1e-2, 1.0]) * (draw(problem, rng)[0] - theta)
    f, below = problem.losses(theta, X, y), envelope(problem, theta, X, y, beta)
    rounding = 1e-10 * (1 + np.abs(f))
    assert np.all(below <= f + rounding)
    assert np.all(f <= below + smoothed.bias + rounding)
    there, here = smoothed.gradients(theta, X, y), smoothed.gradients(other, X, y)
    assert np.max(np.linalg.norm(there, axis=1)) <= smoothed.lipschitz * (1 + 1e-9)
    gap = np.linalg.norm(theta - other)
    assert np.max(np.linalg.norm(there - here, axis=1)) <= smoothed.smoothness * gap * (1 + 1e-9) + 1e-11
    assert np.min((there - here) @ (theta - other)) >= smoothed.strong_convexity * gap**2 * (1 - 1e-9) - 1e-11


@by_l2
def test_smoothed_constants_are_attained(l2):
    problem = Problem(loss=Absolute(), domain=Ball(2, 3.0), l2=l2)
    smoothed, theta, X = problem.smoothed(7.0), np.array([0.01, 0.0]), np.array([[1.0, 0.0]])
    change = smoothed.gradients(theta, X, [0.0]) - smoothed.gradients(-theta, X, [0.0])
    assert np.linalg.norm(change) == pytest.approx(7.0 * 0.02)
    aside = np.array([0.0, 0.5])
    change = smoothed.gradients(aside, X, [0.0]) - smoothed.gradients(-aside, X, [0.0])
    assert change[0] @ aside * 2 == pytest.approx(smoothed.strong_convexity)
    if l2 == 0:
        below = envelope(problem, np.array([2.0, 0.0]), X, np.array([0.0]), 7.0)[0]
        assert 2.0 - below == pytest.approx(smoothed.bias)
    assert (smoothed.domain, smoothed.dim, smoothed.lipschitz) == (problem.domain, 2, problem.lipschitz)


@by_loss
@by_l2
def test_a_zero_row_moves_nothing_but_the_regulariser(loss, l2):
    problem, beta = make(loss, l2), 3.0
    theta = problem.domain.start() + 0.5
    X, y = np.zeros((1, FEATURES)), np.ones(1)
    assert problem.gradients(theta, X, y)[0] == pytest.approx(l2 * theta)
    assert problem.prox(theta, X, y, beta)[0] == pytest.approx(theta * beta / (beta + l2))
    assert problem.moreau_gradients(theta, X, y, beta)[0] == pytest.approx(beta * l2 / (beta + l2) * theta)


@by_loss
@by_l2
def test_a_huge_beta_gives_the_gradient(loss, l2):
    problem, rng = make(loss, l2), np.random.default_rng(7)
    theta, X, y = draw(problem, rng)
    for beta in (1e12, 1e100, 1e300):
        assert problem.moreau_gradients(theta, X, y, beta) == pytest.approx(problem.gradients(theta, X, y), rel=1e-9, abs=1e-9)
        assert problem.prox(theta, X, y, beta) == pytest.approx(np.tile(theta, (len(X), 1)))


@by_loss
def test_a_tiny_beta_gives_a_minimiser(loss):
    """beta -> 0: the envelope falls to the least loss, here 0 (as a limit for the logistic losses), and prox reaches it."""
    problem, rng = make(loss), np.random.default_rng(8)
    theta, X, y = draw(problem, rng)
    X, y = X[1:], y[1:]  # a zero row has no say
    assert np.max(np.abs(problem.moreau_gradients(theta, X, y, 1e-9))) <= 1e-5
    near = problem.prox(theta, X, y, 1e-9)
    least = [problem.losses(near[i], X[i : i + 1], y[i : i + 1])[0] for i in range(len(X))]
    assert np.max(least) <= 1e-3


@by_loss
def test_extreme_scores_stay_finite(loss):
    """Scores of 1e3 and more, with warnings as errors."""
    problem = Problem(loss=loss, domain=Ball(FEATURES * loss.outputs, 1e6), feature_norm=10.0)
    rng = np.random.default_rng(9)
    _, X, y = draw(problem, rng)
    for size in (1e2, 1e5):
        theta = size * rng.normal(size=problem.dim)
        assert np.all(np.isfinite(problem.losses(theta, X, y)))
        assert np.all(np.isfinite(problem.gradients(theta, X, y)))
        for beta in (1e-12, 1e-3, 1e3, 1e12):
            gradients = problem.moreau_gradients(theta, X, y, beta)
            assert np.max(np.linalg.norm(gradients, axis=1)) <= problem.lipschitz * (1 + 1e-9)


@pytest.mark.parametrize("beta", [0, -1.0, math.nan, math.inf, "1", None])
def test_beta_must_be_positive(beta):
    problem = make(Hinge())
    for ask in (problem.smoothed, lambda b: problem.prox(np.zeros(3), np.ones((1, 3)), [1], b), lambda b: Smoothed(problem, b)):
        with pytest.raises(ArgumentError, match=r"^beta = .* greater than 0"):
            ask(beta)


# --- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0001, 1e3, 1e200, 1e307])
def test_long_rows_are_scaled_down(size):
    problem = make(Squared())
    theta, unit = np.array([1.0, -2.0, 0.5]), np.array([0.6, -0.8, 0.0])
    scaled = problem.gradients(theta, [size * NORM * unit, unit], [1.0, 1.0])
    assert scaled == pytest.approx(problem.gradients(theta, [NORM * unit, unit], [1.0, 1.0]))


def test_short_rows_and_the_callers_arrays_are_left_alone():
    problem = make(Squared())
    X, y, theta = np.array([[0.1, 0.2, 0.3], [100.0, 0.0, 0.0]]), np.array([0.0, 9.0]), np.ones(3)
    problem.gradients(theta, X, y)
    problem.moreau_gradients(theta, X, y, 2.0)
    assert X.tolist() == [[0.1, 0.2, 0.3], [100.0, 0.0, 0.0]]
    assert y.tolist() == [0.0, 9.0]
    assert problem.gradients(theta, X, y)[0] == pytest.approx(0.6 * X[0])


def test_lists_whole_numbers_and_no_users_are_taken():
    problem = make(Logistic())
    assert problem.gradients(np.zeros(3), [[1, 0, 0]], [True]).tolist() == [[-0.5, 0.0, 0.0]]
    assert problem.gradients(np.zeros(3), np.zeros((0, 3)), np.zeros(0)).shape == (0, 3)
    assert problem.moreau_gradients(np.zeros(3), np.zeros((0, 3)), np.zeros(0), 1.0).shape == (0, 3)


def test_classes_have_a_row_of_weights_each():
    problem, rng = make(SEVERAL), np.random.default_rng(10)
    theta, X, y = draw(problem, rng, users=4)
    X /= 10
    weights = theta.reshape(3, FEATURES)
    p = np.exp(X @ weights.T) / np.sum(np.exp(X @ weights.T), axis=1, keepdims=True)
    assert problem.losses(theta, X, y) == pytest.approx(-np.log(p[np.arange(4), y]))
    expected = (p - np.eye(3)[y])[:, :, None] * X[:, None, :]
    assert problem.gradients(theta, X, y) == pytest.approx(expected.reshape(4, -1))


@pytest.mark.parametrize("X", [np.ones(3), np.ones((2, 4)), np.ones((2, 3, 1)), 1.0, None])
def test_rows_must_have_the_right_shape(X):
    with pytest.raises(ArgumentError, match=r"^X\.shape = .*\(users, 3\)"):
        make(Logistic()).gradients(np.zeros(3), X, [1, 1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rows_must_be_finite(bad):
    X = np.ones((2, 3))
    X[1, 2] = bad
    with pytest.raises(ArgumentError, match=rf"^X = {bad} .* finite"):
        make(Logistic()).gradients(np.zeros(3), X, [1, 1])


def test_rows_must_be_numbers():
    with pytest.raises(ArgumentError, match=r"^X = .* a table of numbers"):
        make(Logistic()).gradients(np.zeros(3), [["a", "b", "c"]], [1])
    with pytest.raises(ArgumentError, match=r"^X = .* a table of numbers"):
        make(Logistic()).gradients(np.zeros(3), [[1, 2, 3], [4, 5]], [1, 0])


@by_loss
@pytest.mark.parametrize("y", [None, 1, [1], [1, 1, 1], [[1], [1]], [[1, 1]]])
def test_targets_must_be_one_per_row(loss, y):
    problem = make(loss)
    for ask in (problem.losses, problem.gradients, lambda *a: problem.prox(*a, 1.0)):
        with pytest.raises(ArgumentError, match=r"^y\.shape = .*\(2,\)"):
            ask(np.zeros(problem.dim), np.ones((2, 3)), y)


# --- construction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1", None, 1e200])
def test_feature_norm_must_be_positive(value):
    with pytest.raises(ArgumentError, match=r"^feature_norm = .* greater than 0") as error:
        Problem(loss=Logistic(), domain=Ball(3, 1.0), feature_norm=value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "1", None])
def test_l2_must_not_be_negative(value):
    with pytest.raises(ArgumentError, match=r"^l2 = .* at least 0"):
        Problem(loss=Logistic(), domain=Ball(3, 1.0), l2=value)


def test_loss_and_domain_must_fit():
    with pytest.raises(ArgumentError, match=r"^domain\.dim = 7 .* multiple of the loss's 3 outputs"):
        Problem(loss=SEVERAL, domain=Ball(7, 1.0))
    with pytest.raises(ArgumentError, match=r"^loss = .* a Loss"):
        Problem(loss=Logistic, domain=Ball(7, 1.0))
    with pytest.raises(ArgumentError, match=r"^domain = 7 .* a Domain"):
        Problem(loss=Logistic(), domain=7)
    assert Problem(loss=SEVERAL, domain=Ball(6, 1.0)).features == 2


GOOD = {"gradient": lambda theta, X, y: theta - X, "domain": Ball(2, 1.0), "lipschitz": 3.0}


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("lipschitz", 0, "greater than 0"),
        ("lipschitz", math.nan, "greater than 0"),
        ("lipschitz", math.inf, "finite"),
        ("smoothness", 0, "greater than 0"),
        ("smoothness", -1.0, "greater than 0"),
        ("strong_convexity", -1.0, "at least 0"),
        ("strong_convexity", math.nan, "at least 0"),
    ],
)
def test_own_constants_are_checked(name, value, allowed):
    with pytest.raises(ArgumentError, match=f"^{name} = .*{allowed}"):
        CustomProblem(**GOOD | {name: value})


def test_no_loss_is_more_strongly_convex_than_smooth():
    with pytest.raises(ArgumentError, match=r"^strong_convexity = 2 .* at most 1"):
        CustomProblem(**GOOD, smoothness=1.0, strong_convexity=2)
    assert CustomProblem(**GOOD, smoothness=1.0, strong_convexity=1.0).dim == 2


@pytest.mark.parametrize("wrong", [lambda theta, X, y: theta, lambda theta, X, y: X @ theta, lambda theta, X, y: X[:, :1]])
def test_own_gradients_must_be_one_row_per_user(wrong):
    problem = CustomProblem(**GOOD | {"gradient": wrong})
    with pytest.raises(ArgumentError, match=r"^gradient.* \(4, 2\)"):
        problem.gradients(np.zeros(2), np.ones((4, 2)), None)


# --- check -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [Ball, Box, Simplex])
@by_loss
@by_l2
def test_check_finds_nothing_wrong_with_our_losses(loss, l2, domain):
    problem, rng = make(loss, l2, domain), np.random.default_rng(11)
    _, X, y = draw(problem, rng)
    assert check(problem, X, y, samples=30) == []
    assert check(problem.smoothed(5.0), X, y, samples=15) == []


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_check_finds_nothing_wrong_at_other_scales(size):
    for loss in (Logistic(), Squared(), Hinge(), SmoothedHinge(width=1e-3)):
        problem = make(loss, norm=size)
        _, X, y = draw(problem, np.random.default_rng(12))
        assert check(problem, X, y, samples=60) == []


def quadratic(**changes):
    """(a/2) |theta|^2 + <x, theta>, |x| = 1, over the ball of radius 2: L = 2a + 1, smooth and strongly convex with a = 1.5."""
    right = {
        "gradient": lambda theta, X, y: 1.5 * theta + X,
        "domain": Ball(3, 2.0),
        "lipschitz": 4.0,
        "smoothness": 1.5,
        "strong_convexity": 1.5,
        "value": lambda theta, X, y: 0.75 * theta @ theta + X @ theta,
    }
    return CustomProblem(**right | changes)


ROWS = np.vstack([np.eye(3), -np.eye(3)])


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"lipschitz": 3.4}, ["lipschitz"]),
        ({"smoothness": 1.4, "strong_convexity": 1.0}, ["smoothness"]),
        ({"smoothness": 2.0, "strong_convexity": 1.6}, ["convexity"]),
        ({"gradient": lambda theta, X, y: X - theta, "strong_convexity": 0.0, "value": None}, ["convexity"]),
        ({"gradient": lambda theta, X, y: 1.5 * theta - X}, ["gradient"]),
        ({"gradient": lambda theta, X, y: 1.5 * theta + X[:, ::-1]}, ["gradient"]),
        ({"gradient": lambda theta, X, y: np.full((6, 3), np.nan)}, ["gradient"]),
    ],
    ids=["right", "steeper", "more curved", "less strongly convex", "concave", "sign", "swapped", "not a number"],
)
def test_check_finds_planted_violations(changes, names):
    found = check(quadratic(**changes), ROWS, None)
    assert [text.split(":")[0] for text in found] == names


def test_check_finds_a_local_excess_of_curvature():
    logistic = make(Logistic(), norm=1.0)
    lied = CustomProblem(logistic.gradients, Ball(3, 60.0), lipschitz=1.0, smoothness=0.2)
    assert [text.split(":")[0] for text in check(lied, ROWS, np.ones(6))] == ["smoothness"]


def test_check_compares_kinked_losses_with_their_values():
    hinge = make(Hinge(), norm=1.0)
    right = {"domain": hinge.domain, "lipschitz": 1.0, "value": hinge.losses}
    assert check(CustomProblem(hinge.gradients, **right), ROWS, np.ones(6)) == []
    found = check(CustomProblem(lambda theta, X, y: -hinge.gradients(theta, X, y)[:, ::-1], **right), ROWS, np.ones(6))
    assert any(text.startswith("gradient: f(a)") for text in found)


def test_check_says_what_it_found_and_repeats_itself():
    problem = quadratic(lipschitz=2.0)
    text = check(problem, ROWS, None)[0]
    assert text.startswith("lipschitz: a gradient has norm 3.")
    assert text.endswith("stated 2")
    assert check(problem, ROWS, None, seed=3) == check(problem, ROWS, None, seed=3)
    assert check(problem, ROWS, None, tolerance=10.0) == []


def test_check_of_a_single_point_and_of_the_whole_space():
    assert check(Problem(loss=Squared(), domain=Simplex(1, 2.0)), [[1.0]], [0.5]) == []
    assert check(Problem(loss=Logistic(), domain=WholeSpace(3, 1.0)), ROWS, np.ones(6)) == []


# --- a user's gradient is made from that user's record alone: privacy rests on it

ALL_LOSSES = [
    Logistic(),
    Hinge(),
    SmoothedHinge(),
    SquaredHinge(),
    Squared(target_bound=1.0),
    Huber(),
    Pinball(quantile=0.3),
    Absolute(),
    EpsilonInsensitive(),
    Multinomial(classes=3),
]


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("moreau", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_other_peoples_records_do_not_move_a_gradient(loss, moreau, dtype):
    """Bit for bit, whatever the others' rows are and however many, in either precision."""
    rng = np.random.default_rng(0)
    dim = 7
    problem = Problem(loss=loss, domain=Ball(dim=dim * loss.outputs, radius=5.0), feature_norm=1.0)
    theta = rng.normal(size=problem.dim)
    mine = rng.normal(size=(20, dim))
    mine /= np.linalg.norm(mine, axis=1, keepdims=True)
    mine[:10] *= 1 + 9e-7  # within the tolerance that rows of single precision need
    mine[15:] *= 3.0
    mine, y = mine.astype(dtype), rng.integers(0, 2, size=20).astype(float)

    def gradients(X, y):
        return problem.moreau_gradients(theta, X, y, 3.0) if moreau else problem.gradients(theta, X, y)

    alone = gradients(mine, y)
    for others in (np.zeros((1, dim)), np.full((3, dim), 1e6), rng.normal(size=(1001, dim)), np.full((2, dim), 1e-200)):
        X = np.vstack([others.astype(dtype), mine])
        together = gradients(X, np.concatenate([np.ones(len(others)), y]))[len(others) :]
        np.testing.assert_array_equal(together, alone)


# --- gradients as products


@pytest.mark.parametrize("l2", [0.0, 0.7])
@pytest.mark.parametrize("beta", [None, 3.0])
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(classes=3), Squared()], ids=lambda loss: type(loss).__name__)
def test_products_are_the_gradients(loss, beta, l2):
    """Of rows that were scaled down too."""
    rng = np.random.default_rng(1)
    problem = Problem(loss=loss, domain=Ball(dim=4 * loss.outputs, radius=2.0), feature_norm=1.0, l2=l2)
    X, y, theta = rng.normal(size=(50, 4)) * rng.choice([0.1, 3.0], (50, 1)), rng.integers(0, 2, 50), rng.normal(size=problem.dim)
    if beta is None:
        products, gradients = problem.linear_gradients(theta, X, y), problem.gradients(theta, X, y)
    else:
        products, gradients = problem.linear_moreau_gradients(theta, X, y, beta), problem.moreau_gradients(theta, X, y, beta)
    shift = 0.0 if products.shift is None else products.shift
    by_hand = [(np.outer(c, row) + shift).ravel() for c, row in zip(products.coefficients, products.rows, strict=True)]
    assert gradients.tolist() == np.array(by_hand).tolist()
    assert np.asarray(products).tolist() == gradients.tolist()
    assert products.squares.tolist() == row_squares(products.rows).tolist()  # what clipping goes by
    assert problem.gradients(theta, X[:0], y[:0]).shape == (0, problem.dim)


@pytest.mark.parametrize("features", [1, 2, 3, 7, 55, 63, 64, 65, 784, 8192, 8193, 20_000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nobodys_gradient_depends_on_whose_rows_are_beside(features, dtype):
    """Neither in company nor alone, wherever a row begins in memory: sums are rounded in one way only."""
    rng = np.random.default_rng(0)
    problem = Problem(loss=Logistic(), domain=Ball(dim=features, radius=2.0))
    X, theta = (rng.normal(size=(5, features)) / np.sqrt(features)).astype(dtype), rng.normal(size=features)
    together = problem.gradients(theta, X, np.ones(5))
    alone = [problem.gradients(theta, X[user : user + 1], np.ones(1))[0] for user in range(5)]
    assert together.tolist() == [row.tolist() for row in alone]


@pytest.mark.parametrize("beta", [60.0, 600.0])
@pytest.mark.parametrize(("loss", "residual"), [(Pinball(quantile=0.3), 0.1), (Absolute(), 0.1), (Hinge(), 1.0)])
def test_usual_smoothness_is_that_of_a_mean_whatever_the_envelopes(loss, residual, beta):
    """Slopes of the mean envelope on either side of the kink, for rows in one direction and a normal spread about it."""
    places = residual * norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    if isinstance(loss, Hinge):  # margins 1 + places at theta = 1
        X, y, theta = (1 + places)[:, np.newaxis] / 8, np.ones(200_000), 8.0
    else:
        X, y, theta = np.ones((200_000, 1)), places, 0.0
    problem = Problem(loss=loss, domain=Ball(dim=1, radius=50.0))
    step = 0.05 * residual * (8 if isinstance(loss, Hinge) else 1)
    ahead, behind = (problem.moreau_gradients(np.array([theta + sign * step]), X, y, beta).mean() for sign in (1, -1))
    energy = 1 / 64 if isinstance(loss, Hinge) else 1.0  # of the rows at the kink
    shared = 0.5 if isinstance(loss, Hinge) else 1.0  # of the energy in one direction
    assert shared * (ahead - behind) / (2 * step) / energy == pytest.approx(problem.usual_smoothness, rel=0.1)


def test_usual_smoothness_of_a_kink_follows_the_scale_of_scores():
    """Targets and domain in other units are the same problem: curvature goes with 1 / unit, as the slopes' jump stays."""
    wide, narrow = (Problem(loss=Pinball(), domain=Ball(dim=2, radius=radius), feature_norm=3.0) for radius in (0.5, 0.005))
    assert narrow.usual_smoothness == pytest.approx(100 * wide.usual_smoothness)
    assert Problem(loss=Pinball(), domain=Ball(dim=2, radius=50.0), feature_norm=3.0).usual_smoothness == pytest.approx(9 * 4)
    assert Problem(loss=Hinge(), domain=Ball(dim=2, radius=50.0), l2=0.5).usual_smoothness == pytest.approx(0.7)


@pytest.mark.parametrize("size", [1.0, 0.3, 1e-6, 1e-22, 1e-30, 1e-41, 0.0])
@pytest.mark.parametrize("features", [1, 5, 300])
def test_gradients_of_rows_in_single_precision_are_clipped_in_exact_arithmetic(size, features):
    """Also where squares vanish in single precision, and slopes are so steep that it matters."""
    rng = np.random.default_rng(features)
    rows = rng.normal(size=(20, features)) / np.sqrt(features) * size
    rows = np.where(rng.random(rows.shape) < 0.5, rows, rows * 1e-12).astype(np.float32)
    for steep in (0.9, 30.0, 1e25, 1e45):
        vectors = LinearVectors(rows, rng.choice([-steep, steep], size=(20, 1)), None, row_squares(rows))
        assert vectors.rows.dtype == np.float32
        for unit in clip_to_ball(vectors, 0.5):
            for vector in unit.numbers():
                assert sum(Fraction(float(entry)) ** 2 for entry in vector) <= 1


@pytest.mark.parametrize("features", [3, 55, 784])
def test_rows_in_single_precision_are_hardly_clipped_more(features):
    """What is added to their squares costs a part in ten thousand at most, and what is short is not clipped at all."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, features)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for steep, length in ((2.0, 1.0), (0.25, 0.5)):
        (unit,) = clip_to_ball(LinearVectors(rows, np.full((200, 1), steep), None, row_squares(rows)), 0.5)
        np.testing.assert_allclose(np.linalg.norm(unit.numbers(), axis=1), length, rtol=1e-4)


@pytest.mark.parametrize("norm", [1e-30, 1e-11, 1e-9, 1.0, 1e14, 1e16, 1e30])
def test_single_precision_gives_what_double_precision_gives(norm):
    """At sizes that it cannot hold it is not used."""
    rng = np.random.default_rng(0)
    problem = Problem(loss=Logistic(), domain=Ball(dim=6, radius=1 / norm if norm > 1e-15 else 1e14), feature_norm=norm)
    X = (rng.normal(size=(50, 6)) * norm / 2).astype(np.float32)
    y, theta = rng.integers(0, 2, 50), rng.normal(size=6) / np.sqrt(6) * problem.domain.radius
    single, double = (problem.gradients(theta, rows, y) for rows in (X, X.astype(np.float64)))
    np.testing.assert_allclose(single / norm, double / norm, rtol=1e-5, atol=1e-6)


def test_weights_too_large_for_single_precision_are_not_read_in_it():
    rows = np.full((1, 2), 1e-3, dtype=np.float32)
    assert row_dots(rows, np.array([1e40, 0.0])) == pytest.approx(1e37)
    assert row_dots(rows, np.array([1e3, 0.0])) == pytest.approx(1.0)


def test_wide_rows_in_single_precision_are_read_in_double():
    """The error of adding up so many squares would have to be clipped away."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2000)).astype(np.float32) / np.float32(50)
    problem = Problem(loss=Logistic(), domain=Ball(dim=2000, radius=2.0))
    assert problem.linear_gradients(np.zeros(2000), X, np.ones(30)).rows.dtype == np.float64
    assert row_squares(X).tolist() == row_squares(X.astype(np.float64)).tolist()
    narrow = Problem(loss=Logistic(), domain=Ball(dim=1000, radius=2.0))
    assert narrow.linear_gradients(np.zeros(1000), X[:, :1000], np.ones(30)).rows.dtype == np.float32


@pytest.mark.parametrize("size", [1e-200, 1e-300])
def test_usual_smoothness_of_tiny_problems_is_a_number(size):
    assert math.isfinite(Problem(loss=Hinge(), domain=Ball(dim=3, radius=size), feature_norm=size).usual_smoothness)
