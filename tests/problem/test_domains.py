"""Projections against quadratic programming and the variational inequality; distances against corners and search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier import ArgumentError
from croupier.problem import Absolute, Ball, Box, L1Ball, Problem, Simplex, WholeSpace

DIM = 4
BALLS = [Ball(dim=DIM, radius=1.5), Ball(dim=DIM, radius=0.7, center=(1.0, -2.0, 0.0, 0.5))]
BOXES = [Box(dim=DIM, lower=-1.0, upper=0.5), Box(dim=DIM, lower=[0.5, -3.0, -1.0, 1.0], upper=[2.0, -1.0, 1.0, 1.001])]
SIMPLICES = [Simplex(dim=DIM), Simplex(dim=DIM, total=3.5)]
DIAMONDS = [L1Ball(dim=DIM, radius=1.0), L1Ball(dim=DIM, radius=4.5)]
LINES = [
    Ball(dim=1, radius=2.0, center=(-3.0,)),
    Box(dim=1, lower=-1.0, upper=4.0),
    Simplex(dim=1, total=2.0),
    L1Ball(dim=1, radius=2.0),
]
BOUNDED = BALLS + BOXES + SIMPLICES + DIAMONDS + LINES
DOMAINS = [*BOUNDED, WholeSpace(dim=DIM, distance=5.0)]

quick = settings(derandomize=True, deadline=None, max_examples=20)
points = st.lists(st.floats(-8, 8) | st.sampled_from([0.0, -1e6, 1e6]), min_size=DIM, max_size=DIM).map(np.array)


def each(domains):
    return pytest.mark.parametrize("domain", domains, ids=str)


def contains(domain, theta, tolerance=1e-9):
    if isinstance(domain, Ball):
        center = np.zeros(domain.dim) if domain.center is None else np.array(domain.center)
        return np.linalg.norm(theta - center) <= domain.radius + tolerance
    if isinstance(domain, Box):
        return np.all(theta >= np.array(domain.lower) - tolerance) and np.all(theta <= np.array(domain.upper) + tolerance)
    if isinstance(domain, Simplex):
        return np.all(theta >= 0) and abs(np.sum(theta) - domain.total) <= tolerance
    if isinstance(domain, L1Ball):
        return np.sum(np.abs(theta)) <= domain.radius + tolerance
    return True


def corners(domain):
    """The corners of a polytope, or for a ball points of its surface in every direction of a grid and more."""
    if isinstance(domain, Box):
        return np.array(list(itertools.product(*zip(domain.lower, domain.upper, strict=True))))
    if isinstance(domain, Simplex):
        return domain.total * np.eye(domain.dim)
    if isinstance(domain, L1Ball):
        return domain.radius * np.vstack([np.eye(domain.dim), -np.eye(domain.dim)])
    rays = np.array(list(itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=domain.dim)))
    rays = rays[np.any(rays != 0, axis=1)]
    center = np.zeros(domain.dim) if domain.center is None else np.array(domain.center)
    return center + domain.radius * rays / np.linalg.norm(rays, axis=1, keepdims=True)


def _nearest_of_differences(domain, theta):
    found = minimize(
        lambda p: np.sum((p[: domain.dim] - p[domain.dim :] - theta) ** 2) / 2,
        np.full(2 * domain.dim, domain.radius / (4 * domain.dim)) + 1e-3 * np.arange(2 * domain.dim),
        jac=lambda p: np.concatenate([p[: domain.dim] - p[domain.dim :] - theta, theta - p[: domain.dim] + p[domain.dim :]]),
        bounds=[(0, None)] * (2 * domain.dim),
        constraints=[LinearConstraint(np.ones((1, 2 * domain.dim)), -np.inf, domain.radius)],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x[: domain.dim] - found.x[domain.dim :]


def nearest_by_programming(domain, theta):
    """The nearest point, by sequential quadratic programming from the definition of the set."""
    if isinstance(domain, L1Ball):  # theta = up - down with up, down >= 0, which makes the set a polytope
        return _nearest_of_differences(domain, theta)
    bounds, constraints = None, []
    if isinstance(domain, Ball):
        center = np.zeros(domain.dim) if domain.center is None else np.array(domain.center)
        constraints = [
            NonlinearConstraint(
                lambda p: np.sum((p - center) ** 2), -np.inf, domain.radius**2, jac=lambda p: 2 * (p - center)[None]
            )
        ]
        begin = center
    elif isinstance(domain, Box):
        bounds, begin = list(zip(domain.lower, domain.upper, strict=True)), (np.array(domain.lower) + np.array(domain.upper)) / 2
    else:
        bounds, begin = [(0, None)] * domain.dim, np.full(domain.dim, domain.total / domain.dim)
        constraints = [LinearConstraint(np.ones((1, domain.dim)), domain.total, domain.total)]
    found = minimize(
        lambda p: np.sum((p - theta) ** 2) / 2,
        begin + 1e-3,
        jac=lambda p: p - theta,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 300},
    )
    return found.x


# --- projections -------------------------------------------------------------------------------------------------------


@each(BOUNDED)
def test_projection_agrees_with_quadratic_programming(domain):
    rng = np.random.default_rng(0)
    for scale in (0.3, 1.0, 5.0):
        theta = scale * rng.normal(size=domain.dim)
        assert domain.project(theta) == pytest.approx(nearest_by_programming(domain, theta), abs=2e-5)


@each(DOMAINS)
@quick
@given(theta=points, other=points)
def test_projection_is_nearest_by_the_variational_inequality(domain, theta, other):
    theta, other = theta[: domain.dim], other[: domain.dim]
    near, member = domain.project(theta), domain.project(other)
    rounding = 1e-9 * (1 + np.linalg.norm(theta))
    assert contains(domain, near, rounding)
    assert (theta - near) @ (member - near) <= rounding * (1 + np.linalg.norm(member - near))
    assert np.linalg.norm(near - member) <= np.linalg.norm(theta - other) + rounding + 1e-9 * np.linalg.norm(other)
    assert domain.project(near) == pytest.approx(near, abs=rounding)


@each(DOMAINS)
def test_projection_leaves_its_argument_alone(domain):
    theta = np.full(domain.dim, 7.0)
    domain.project(theta)
    assert np.all(theta == 7.0)


@each(DOMAINS)
def test_points_of_the_set_stay(domain):
    inside = np.zeros(domain.dim) if isinstance(domain, WholeSpace) else np.mean(corners(domain), axis=0)
    assert domain.project(inside) == pytest.approx(inside, abs=1e-15)


@each(DOMAINS)
def test_the_start_is_the_projection_of_zero(domain):
    assert np.all(domain.start() == domain.project(np.zeros(domain.dim)))
    assert contains(domain, domain.start())


@pytest.mark.parametrize("size", [1e10, 1e17, 1e200, 1e307])
@each(BOUNDED)
def test_far_points_are_projected_too(domain, size):
    theta = np.zeros(domain.dim)
    theta[0], theta[-1] = -size, size
    near = domain.project(theta)
    assert contains(domain, near)
    if isinstance(domain, Box | Simplex):
        assert near[-1] == np.max(corners(domain)[:, -1])
    if isinstance(domain, Ball):
        center = np.zeros(domain.dim) if domain.center is None else np.array(domain.center)
        assert np.linalg.norm(near - center) == pytest.approx(domain.radius)


def test_simplex_of_one_point():
    domain = Simplex(dim=1, total=2.0)
    for value in (-1e9, 0.0, 2.0, 1e17):
        assert domain.project(np.array([value])).tolist() == [2.0]
    assert domain.diameter == 0
    assert domain.distance_bound(np.array([2.0])) == 0
    assert domain.norm_bound == 2


def test_simplex_keeps_ties():
    assert Simplex(dim=3).project(np.array([5.0, 5.0, -1.0])).tolist() == [0.5, 0.5, 0.0]
    assert Simplex(dim=3).project(np.zeros(3)) == pytest.approx(np.full(3, 1 / 3))


# --- distances ---------------------------------------------------------------------------------------------------------


@each(BOUNDED)
@quick
@given(start=points, other=points)
def test_distance_bound_is_never_exceeded(domain, start, other):
    start, member = start[: domain.dim], domain.project(other[: domain.dim])
    for begin in (start, domain.project(start)):
        assert np.linalg.norm(member - begin) <= domain.distance_bound(begin) * (1 + 1e-12) + 1e-12
    assert np.linalg.norm(member) <= domain.norm_bound + 1e-9
    assert np.linalg.norm(member - domain.project(start)) <= domain.diameter + 1e-9


@each(BOXES + SIMPLICES + LINES[1:])
@quick
@given(start=points)
def test_distance_bound_is_attained_at_a_corner(domain, start):
    start = start[: domain.dim]
    farthest = np.max(np.linalg.norm(corners(domain) - start, axis=1))
    assert domain.distance_bound(start) == pytest.approx(farthest, rel=1e-12, abs=1e-12)


@each(BALLS + LINES[:1])
@quick
@given(start=points)
def test_distance_bound_of_a_ball_is_attained_opposite_the_start(domain, start):
    start = start[: domain.dim]
    center = np.zeros(domain.dim) if domain.center is None else np.array(domain.center)
    away = center - start if np.any(center != start) else np.eye(domain.dim)[0]
    opposite = center + domain.radius * away / np.linalg.norm(away)
    assert domain.distance_bound(start) == pytest.approx(np.linalg.norm(opposite - start), rel=1e-9)


@each(BOUNDED)
def test_diameter_and_norm_bound_are_attained(domain):
    far = corners(domain)
    distances = np.linalg.norm(far[:, None] - far[None], axis=2)
    assert domain.diameter == pytest.approx(np.max(distances), abs=1e-12)
    assert domain.norm_bound == domain.distance_bound(np.zeros(domain.dim))
    assert domain.norm_bound >= np.max(np.linalg.norm(far, axis=1)) * (1 - 1e-12)
    assert domain.norm_bound == pytest.approx(np.max(np.linalg.norm(far, axis=1)), rel=0.02)  # a ball's grid is coarse


def test_the_whole_space_is_unbounded_but_has_a_wish():
    domain = WholeSpace(dim=3, distance=5.0)
    theta = np.array([1e9, 0.0, -1e9])
    assert np.all(domain.project(theta) == theta)
    assert domain.distance_bound(np.zeros(3)) == 5
    assert domain.diameter == domain.norm_bound == math.inf


# --- construction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda dim: Ball(dim, 1.0), lambda dim: Box(dim, 0, 1), Simplex, lambda dim: WholeSpace(dim, 1.0)]
)
@pytest.mark.parametrize("dim", [0, -1, 2.5, "3", None, True, math.nan])
def test_dim_must_be_a_whole_number(make, dim):
    with pytest.raises(ArgumentError, match=r"^dim = .* whole number of at least 1"):
        make(dim)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", None])
def test_sizes_must_be_positive(value):
    for name, make in (
        ("radius", lambda v: Ball(2, v)),
        ("total", lambda v: Simplex(2, v)),
        ("distance", lambda v: WholeSpace(2, v)),
    ):
        with pytest.raises(ArgumentError, match=f"^{name} = .* greater than 0") as error:
            make(value)
        assert repr(value) in str(error.value)


@pytest.mark.parametrize("center", [(1.0, 2.0, 3.0), "ab", (math.nan, 0.0), (math.inf, 0.0), ((1.0, 2.0), (3.0, 4.0))])
def test_a_center_must_fit(center):
    with pytest.raises(ArgumentError, match=r"^center = "):
        Ball(2, 1.0, center)


@pytest.mark.parametrize(
    ("lower", "upper", "name"), [(1, 1, "upper"), (2, 1, "upper"), ([0, 0], [1, 0], "upper"), (math.nan, 1, "lower")]
)
def test_bounds_of_a_box_must_be_in_order(lower, upper, name):
    with pytest.raises(ArgumentError, match=f"^{name} = "):
        Box(2, lower, upper)
    with pytest.raises(ArgumentError, match=r"^upper = .* 2 numbers"):
        Box(2, 0, [1, 2, 3])
    with pytest.raises(ArgumentError, match="WholeSpace"):
        Box(2, 0, math.inf)


def test_domains_are_values():
    assert Ball(3.0, 1).start().shape == (3,)
    assert Box(2, np.zeros(2), np.ones(2)) == Box(2, 0, 1)
    assert len({Box(2, np.zeros(2), np.ones(2)), Box(2, 0, 1), Ball(2, 1, [0, 0]), Ball(2, 1.0, (0.0, 0.0))}) == 2
    assert Box(2, 0, 1) != Box(2, 0, 2)


def test_an_l1_ball_suits_a_smoothed_loss():
    """The envelope's prox is without constraint, so any domain will do; here median regression."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 30))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    truth = np.zeros(30)
    truth[:3] = 2.0, -1.5, 1.0
    problem = Problem(loss=Absolute(), domain=L1Ball(dim=30, radius=4.5), feature_norm=1.0)
    result = cr.minimize(
        problem, SurrogatePopulation(X, X @ truth), epsilon=0.5, delta=1e-6, interactivity="full", rule="practical", seed=0
    )
    assert result.method == "smoothed-acsa"
    assert contains(problem.domain, result.theta)
    for entry in result.history:
        assert contains(problem.domain, entry.theta)
    assert np.linalg.norm(result.theta - truth) < 0.5 < np.linalg.norm(truth)
