"""Every query's norm and diameter hold of whatever records: searched for violations, and the proofs' corners are attained."""

from __future__ import annotations

import math

import numpy as np
import pytest

from croupier.statistics import CustomQuery, Histogram, Moments, check

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, 6))
TARGETS = RNG.normal(size=300)


@pytest.mark.parametrize(
    ("query", "X", "y"),
    [
        (Histogram(-1, 1, bins=7), ROWS, None),
        (Histogram(0, 1e-9, bins=3, column=2), ROWS, None),
        (Moments(6), ROWS, TARGETS),
        (Moments(6, targets=0), ROWS, None),
        (Moments(4, targets=2), ROWS, None),
        (Moments(3, targets=3), ROWS, None),
        (Moments(6, exclusive=((0, 1, 2), (4, 5))), ROWS, TARGETS),
        (CustomQuery(lambda X, y: X / 100, dim=6), ROWS, None),
    ],
)
def test_no_record_leaves_the_range(query, X, y):
    assert check(query, X, y) == []
    assert query.norm <= query.diameter <= 2 * query.norm


@pytest.mark.parametrize("targets", [1, 2, 3])
def test_a_climb_from_many_pairs_finds_no_two_moment_vectors_further_apart(targets):
    """Random steps that shrink, from 4 000 pairs at once, each kept where it leads apart: near the proved diameter, not beyond."""
    query, rng = Moments(3, targets=targets), np.random.default_rng(targets)

    def apart(z):
        x = z[..., :3] / np.maximum(1.0, np.linalg.norm(z[..., :3], axis=-1, keepdims=True))
        y = np.clip(z[..., 3:], -1, 1)
        u, v = (query(np.hstack([x[i], y[i]]), None) if targets > 1 else query(x[i], y[i][:, 0]) for i in range(2))
        return np.linalg.norm(u - v, axis=1)

    pairs = rng.normal(size=(2, 4000, 3 + targets))
    pairs[:, 2000:] = 2 * np.sign(pairs[:, 2000:])  # half of them from the corners
    found = apart(pairs)
    for size in np.geomspace(1, 1e-3, 150):
        tried = pairs + size * rng.normal(size=pairs.shape) * (rng.random(pairs.shape) < 0.5)
        lengths = apart(tried)
        better = lengths > found
        pairs[:, better], found[better] = tried[:, better], lengths[better]
    assert found.max() <= query.diameter * (1 + 1e-12)
    assert found.max() >= 0.96 * query.diameter


def test_the_bound_for_one_target_is_attained():
    """|x| = |x'| = 1 at the angle with cosine b^2 / (2 a^2) = 1/2, y = -y': 2a^2 + 2b^2 + b^4 / (2 a^2)."""
    query = Moments(2)
    u, v = query(np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]]), np.array([1.0, -1.0]))
    assert np.linalg.norm(u - v) == pytest.approx(query.diameter, rel=1e-12)
    assert np.linalg.norm(u) == pytest.approx(query.norm, rel=1e-12)
    assert query.diameter < 1.4426


def test_a_claim_that_is_wrong_is_found():
    class Wrong:
        dim, norm, diameter = 6, 1.0, math.sqrt(2)

        def __call__(self, X, y):
            return CustomQuery(lambda X, y: X, dim=6, norm=1.0)(X, y)

        def decode(self, estimate):
            return estimate.mean

    found = check(Wrong(), ROWS)
    assert any(line.startswith("norm: ") for line in found)
    assert any(line.startswith("diameter: two vectors are") for line in found)

    class NotAlone(Wrong):
        diameter = 2.0

        def __call__(self, X, y):
            return super().__call__(X, y) * 0 + 0.1 * len(X) / 400

    assert check(NotAlone(), ROWS)[-1].startswith("each record alone")


def test_own_queries_say_what_is_clipped():
    found = check(CustomQuery(lambda X, y: X, dim=6, norm=1.0, nonnegative=True), ROWS)
    assert [line.split(":")[0] for line in found] == ["norm", "nonnegative"]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_blank(odd):
    rows, targets = np.full((1, 6), 0.1), np.array([0.5])
    rows[0, 3] = odd
    assert not Moments(6)(rows, targets)[0, : Moments(6).dim - 1].any()  # of x x' and x y nothing is left
    assert not CustomQuery(lambda X, y: X, dim=6)(rows, None).any()
    if np.isnan(odd):
        assert not Histogram(0, 1, bins=4, column=3)(rows, None).any()


def test_huge_rows_are_scaled_down_and_not_lost():
    u = Moments(2)(np.array([[3e200, 4e200], [0.6, 0.8]]), np.array([1e300, 1.0]))
    assert u[0] == pytest.approx(u[1], rel=1e-12)
