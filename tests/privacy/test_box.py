"""What the box moves vectors by: each step of the proof by another route, and all of it against vectors that try to beat it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import hadamard
from scipy.special import ndtr
from scipy.stats import binom, norm

from croupier.privacy.plan import _UNRELATED, _masses, _related, _start, coordinate_bias, cubes, mixed_cubes, vector_bias


def clipped(y, box):
    return np.sign(y) * np.maximum(np.abs(y) - box, 0)


def rademacher_cubes(entries, start):
    """E (|sum of signs times entries| - start)_+^3 by all signs."""
    signs = np.array(list(itertools.product([-1, 1], repeat=len(entries))))
    return float(np.mean(np.maximum(np.abs(signs @ entries) - start, 0) ** 3))


# --- steps -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flat", "mass", "start"), [(0, 0.0, 1.0), (1, 0.3, 2.5), (7, 0.6, 4.0), (40, 1.0, 5.0), (90, 0.99, 5.2)])
def test_cubes_are_their_integrals(flat, mass, start):
    std, total = math.sqrt(1 - mass), 0.0
    for ups in range(flat + 1):
        place = (2 * ups - flat) * math.sqrt(mass / max(1, flat))
        weight = binom.pmf(ups, flat, 0.5)
        if std == 0:
            total += 2 * weight * max(0.0, place - start) ** 3
            continue
        ends = max(start, place - 12 * std), max(start, place + 12 * std)
        total += 2 * weight * quad(lambda y, p=place: (y - start) ** 3 * norm.pdf(y, p, std), *ends, epsabs=0, limit=200)[0]
    assert math.isclose(mixed_cubes(flat, mass, start), total, rel_tol=1e-7)


@pytest.mark.parametrize("seed", range(40))
def test_vectors_that_are_spread_more_have_larger_cubes(seed):
    """The lemma, by enumeration: one transfer between two squares of entries; and a Gaussian beside what is left."""
    rng = np.random.default_rng(seed)
    squares = rng.dirichlet(np.full(9, rng.uniform(0.1, 3)))
    start = rng.uniform(0, 0.95) * np.sqrt(squares).sum()
    before = rademacher_cubes(np.sqrt(squares), start)
    more = squares.copy()
    moved = rng.uniform(0, 0.5) * (squares.max() - squares.min())
    more[squares.argmax()] -= moved
    more[squares.argmin()] += moved
    assert before <= rademacher_cubes(np.sqrt(more), start) * (1 + 1e-9) + 1e-15
    top = np.sort(squares)[::-1].cumsum()
    for number in range(10):
        assert before <= mixed_cubes(number, min(1.0, top[number - 1]) if number else 0.0, start) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("box", [1.0, 2.0, 4.7, 5.4, 9.0])
def test_squares_are_below_cubes(box):
    start, y = _start(box), box + np.geomspace(1e-6, 50, 20_001)
    square, ratio = (y - box) ** 2 / (y - start) ** 3, (1 - box / y) ** 2 / (y - start) ** 3
    assert square.max() <= 4 / (27 * (box - start)) * (1 + 1e-12)
    whole = mixed_cubes(0, 0.0, start)
    assert vector_bias(box, 10**6) ** 2 >= min(1.0, square.max() * whole)
    plain = math.sqrt(min(square.max(), ratio.max()) * whole)  # without what the second part of the proof saves
    assert 0.65 * plain <= coordinate_bias(box, 10**6) <= plain * (1 + 1e-6)


def test_correlations_are_below_their_fourth_power():
    """K(rho) <= K(1/4) + rho^4 for all t with a second bound; K by its formula."""
    for box in np.linspace(4.7, 9, 44):
        start = _start(box)
        rho = np.linspace(-1, 1, 2001)
        share = 2 * cubes(np.full(2001, start), np.sqrt((1 + rho) / 2)) / mixed_cubes(0, 0.0, start)
        unrelated = share[rho <= _UNRELATED].max()
        assert (share <= unrelated + rho**4 + 1e-12).all()
        assert _related(box, start) >= unrelated
        assert unrelated < 0.1 * _related(box, start)


@pytest.mark.parametrize("seed", range(20))
def test_fourth_powers_of_correlations_are_youngs(seed):
    rng = np.random.default_rng(seed)
    squares = rng.dirichlet(np.full(64, 10 ** rng.uniform(-2, 1)))
    if seed < 3:
        squares = (np.arange(64) < 8**seed) / min(8**seed, 64)  # on a subgroup both are the same
    rho = hadamard(64) @ squares
    limit = np.sum(squares ** (4 / 3)) ** 3
    assert np.mean(rho**4) <= limit * (1 + 1e-12)
    if seed < 3:
        assert math.isclose(np.mean(rho**4), limit)


def test_spread_vectors_are_those_below_a_concave_sequence():
    for box in (4.7, 5.4, 9.0):
        masses = _masses(box)
        assert masses[-1] == 1
        assert (masses[:-1] < 1).all()
        steps = np.diff(masses, prepend=0.0)
        assert (np.diff(steps) <= 1e-15).all()


# --- the whole ---------------------------------------------------------------------------------------------------------------


def test_no_vector_of_eight_coordinates_beats_the_bounds():
    """All 2^7 rotations of 8 coordinates, but for a sign, and a climb from many vectors to the largest bias of the first one."""
    matrix = hadamard(8)
    signs = np.array(list(itertools.product([1], *[[-1, 1]] * 7)))

    def biases(x, box):
        y = (signs * x) @ matrix
        error = clipped(y, box)
        return math.sqrt(np.mean(error.mean(axis=1) ** 2)), math.sqrt(np.mean(error**2))

    rng = np.random.default_rng(5)
    for box in (0.8, 1.2, 1.7, 2.2):
        largest = 0.0
        starts = [*(1.0 * (np.arange(8) < size) for size in (1, 2, 4, 8)), *rng.standard_normal((20, 8))]
        for start in starts:
            x, step = start / np.linalg.norm(start), 0.3
            best = biases(x, box)
            for _ in range(60):
                other = x + step * rng.standard_normal(8) * (rng.random(8) < 0.4)
                other /= np.linalg.norm(other)
                found = biases(other, box)
                assert found[1] <= vector_bias(box, 8)
                if found[0] > best[0]:
                    x, best = other, found
                else:
                    step *= 0.95
            largest = max(largest, best[0])
        assert 0.1 * coordinate_bias(box, 8) <= largest <= coordinate_bias(box, 8)


@pytest.mark.parametrize("box", [4.0, 4.7, 5.0, 5.41, 6.0, 7.0])
def test_vectors_that_are_flat_on_a_subcube_are_within_the_bound(box):
    """Their bias is known in closed form, the same in each of K coordinates: sqrt(E (|S_K| - t)_+^2 / K)."""
    worst = 0.0
    for size in 2 ** np.arange(4, 13):
        ups = np.arange(size + 1)
        psi = binom.pmf(ups, size, 0.5) @ clipped((2 * ups - size) / math.sqrt(size), box) ** 2
        worst = max(worst, math.sqrt(psi / size))
        assert math.sqrt(psi) <= vector_bias(box, 10**6)
    assert 0.25 * coordinate_bias(box, 10**6) <= worst <= coordinate_bias(box, 10**6)


def tilted_bias(x, box, samples, rng):
    """The same for any vector: E V^2 = E c(y_0) V, with signs drawn so that y_0 is often beyond the box, and weighed for it.

    Returned with its standard error.
    """
    up = 1 / (1 + np.exp(-2 * box * x))
    signs = np.where(rng.random((samples, len(x))) < up, 1.0, -1.0)
    y = (signs * x) @ hadamard(len(x))
    weights = np.exp(np.log(np.cosh(box * x)).sum() - box * y[:, 0])
    squares = 2 * weights * np.maximum(y[:, 0] - box, 0) * clipped(y, box).mean(axis=1)
    return squares.mean(), squares.std() / math.sqrt(samples)


def test_vectors_of_other_shapes_are_within_the_bound():
    """Subcubes with a few large entries, two subcubes, decaying entries: rare events, found by tilting the signs. A bound that
    were wrong would have to be missed by five standard errors."""
    rng, place = np.random.default_rng(7), np.arange(128)
    shapes = {
        "flat": (place < 64) * 1.0,
        "one large": np.where(place == 0, 2.0, (place < 64) * 1.0),
        "two cubes": np.where(place < 16, 1.5, (place < 128) * 0.7),
        "decaying": 1 / np.sqrt(1 + place),
        "hill": np.exp(-place / 40),
    }
    for box in (4.8, 5.4):
        for name, x in shapes.items():
            mean, error = tilted_bias(x / np.linalg.norm(x), box, 4000, rng)
            assert mean + 5 * error <= coordinate_bias(box, 128) ** 2, name
            if name == "flat":  # tilting finds what is known in closed form
                ups = np.arange(65)
                exact = binom.pmf(ups, 64, 0.5) @ clipped((2 * ups - 64) / 8, box) ** 2 / 64
                assert abs(mean - exact) <= 6 * error
                assert error < 0.2 * exact


def test_larger_boxes_move_less_and_the_largest_nothing():
    boxes = np.linspace(0.1, 9, 90)
    for bias in (vector_bias, coordinate_bias):
        found = [bias(float(box), 10**6) for box in boxes]
        assert (np.diff(found) <= 0).all()
        assert found[0] <= 1
        assert bias(8, 64) == 0
    assert all(coordinate_bias(float(box), 10**6) <= vector_bias(float(box), 10**6) for box in boxes)
    # at most a quarter above a Gaussian vector's own, in squares
    for box in (3.0, 4.0, 5.0, 6.0):
        own = 2 * ((1 + box**2) * ndtr(-box) - box * norm.pdf(box))
        assert 1 <= vector_bias(box, 10**6) ** 2 / own <= 1.25
