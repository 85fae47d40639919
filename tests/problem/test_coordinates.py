"""Rows in other coordinates: scores stay, rows are mapped one by one, and capped gradients do not move a logistic minimiser."""

from __future__ import annotations

import sys
import types
from functools import cache

import numpy as np
import pytest
from scipy.special import expit, softmax

from croupier import arithmetic
from croupier.problem import Ball, CappedLogistic, CappedMultinomial, Huber, Logistic, Multinomial, Problem, Squared, Weighted
from croupier.problem.problem import Coordinates, Recast
from croupier.validation import ArgumentError

RNG = np.random.default_rng(5)


def rows(users=200, features=6, constant=0.5):
    X = RNG.normal(size=(users, features)) / 4
    X[:, -1] = constant
    return X


def maps(features=6):
    centre = np.append(RNG.normal(size=features - 1), 0.0)
    return [
        Coordinates(RNG.uniform(0.5, 2, size=features)),
        Coordinates(RNG.normal(size=(features, features))),
        Coordinates(RNG.uniform(0.5, 2, size=features), centre, 0.5),
        Coordinates(RNG.normal(size=(features, features)), centre, 0.5),
        Coordinates(RNG.normal(size=(2, features)), centre, 0.5),  # the other four coordinates are 0
    ]


@pytest.mark.parametrize("coordinates", maps())
@pytest.mark.parametrize("outputs", [1, 3])
def test_scores_are_the_same_in_all_coordinates(coordinates, outputs):
    X, theta = rows(), RNG.normal(size=6 * outputs)
    there = coordinates.rows(X) @ theta.reshape(outputs, 6).T
    here = X @ coordinates.weights(theta).reshape(outputs, 6).T
    np.testing.assert_allclose(there, here, atol=1e-9)


@pytest.mark.parametrize("coordinates", maps())
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_row_is_mapped_by_itself_and_zeros_stay_zeros(coordinates, kind):
    X = rows().astype(kind)
    together = coordinates.rows(X)
    assert together.dtype == kind
    for row in (0, 77, 199):
        assert np.array_equal(coordinates.rows(X[row : row + 1])[0], together[row])
        assert np.array_equal(coordinates.rows(X[row - 5 : row + 1])[-1] if row >= 5 else together[row], together[row])
    assert not coordinates.rows(np.zeros((2, 6), dtype=kind)).any()
    assert together.shape == X.shape
    assert not together[:, len(coordinates.turn) :].any()


@pytest.mark.parametrize("coordinates", maps())
def test_a_map_says_itself_in_words(coordinates):
    read = Coordinates.from_dict(coordinates.to_dict(), 6, coordinates.constant)
    assert read.digest == coordinates.digest


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 5, 55, 130])
def test_rows_are_turned_to_the_same_bits_compiled_and_by_numpy(monkeypatch, kind, columns):
    """As sums in the order of a row's entries, each rounded; zeros, which the compiled pass leaves out, change nothing."""
    X = (RNG.normal(size=(700, columns)) * (RNG.random((700, columns)) < 0.4)).astype(kind)
    turn = RNG.normal(size=(columns, columns)).astype(kind)
    expected = np.zeros((700, columns), dtype=kind)
    for j in range(columns):
        expected += X[:, [j]] * turn[:, j]
    pytest.importorskip("numba")  # loads it
    for way in (arithmetic._compiled_turn(), None):
        monkeypatch.setattr(arithmetic, "_compiled_turn", lambda way=way: way)
        assert np.array_equal(arithmetic.turned_rows(X, turn), expected)
        assert np.array_equal(arithmetic.turned_rows(np.asfortranarray(X), turn), expected)


@pytest.mark.parametrize("numba", [None, types.ModuleType("numba")], ids=["hidden", "half-imported"])
def test_rows_are_turned_where_numba_cannot_be_had(monkeypatch, numba):
    """The fault: a thread that turned rows while another one was importing numba ended the fit by an AttributeError."""
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.setattr(arithmetic, "_compiled_turn", cache(arithmetic._compiled_turn.__wrapped__))
    assert np.array_equal(arithmetic.turned_rows(np.eye(3), 2 * np.eye(3)), 2 * np.eye(3))


def test_coordinates_are_the_same_where_linear_algebra_differs_in_the_last_bits():
    turn = RNG.normal(size=(6, 6))
    assert np.array_equal(Coordinates(turn).turn, Coordinates(turn * (1 + 1e-13)).turn)
    assert Coordinates(turn).digest != Coordinates(turn * 1.001).digest


@pytest.mark.parametrize(
    ("turn", "centre", "constant"),
    [
        (np.ones((4, 3)), None, 0.0),
        (np.ones((2, 3, 3)), None, 0.0),
        (np.full(3, np.nan), None, 0.0),
        (np.ones(3), np.zeros(2), 1.0),
        (np.ones(3), np.zeros(3), 0.0),
    ],
)
def test_maps_that_are_none_are_refused(turn, centre, constant):
    with pytest.raises(ArgumentError):
        Coordinates(turn, centre, constant)


LOSSES = [Logistic(), CappedLogistic(), Multinomial(4), CappedMultinomial(4), Squared(), Huber(0.3)]
LOSSES += [Weighted(Logistic(), (0.2, 1.0)), Weighted(Multinomial(4), (0.2, 1.0, 0.5, 0.7))]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("coordinates", maps())
def test_no_gradient_is_longer_than_the_clip(loss, coordinates):
    problem = Problem(loss, Ball(dim=6 * loss.outputs, radius=1e3), feature_norm=2.0, constant=0.5)
    X = rows() * 50  # scaled down to the norm
    y = RNG.integers(0, 2 if loss.outputs == 1 else loss.outputs, size=200)
    for size in (0.0, 1.0, 1e3):
        gradients = Recast(problem, coordinates, 0.125).gradients(size * RNG.normal(size=problem.dim), X, y)
        assert np.linalg.norm(gradients, axis=1).max() <= 0.125 * (1 + 1e-6)


def test_unlimited_slopes_are_the_loss_s_own():
    z, y = RNG.normal(size=50) * 3, RNG.integers(0, 2, size=50)
    for loss in (Logistic(), Squared(), Weighted(Logistic(), (0.3, 1.0))):
        np.testing.assert_allclose(loss.capped_slope(z, loss.targets(y), np.full(50, 1e9)), loss.slope(z, loss.targets(y)))
    np.testing.assert_allclose(
        CappedLogistic().capped_slope(z, CappedLogistic().targets(y), np.full(50, 0.5)),
        CappedLogistic().slope(z, CappedLogistic().targets(y)),
    )


@pytest.mark.parametrize("limit", [1e-3, 0.125, 0.6])
def test_the_mean_slope_at_the_true_probabilities_is_zero(limit):
    z = RNG.normal(size=20) * 3
    p = expit(z)
    means = sum(
        chance * Logistic().capped_slope(z, np.full(20, label), np.full(20, limit)) for chance, label in ((p, 1.0), (1 - p, -1.0))
    )
    np.testing.assert_allclose(means, 0, atol=1e-15)
    scores = RNG.normal(size=(20, 4)) * 3
    shares = softmax(scores, axis=1)
    total = sum(
        shares[:, [k]] * Multinomial(4).capped_slope(scores, np.tile(np.eye(4)[k], (20, 1)), np.full(20, limit)) for k in range(4)
    )
    np.testing.assert_allclose(total, 0, atol=1e-15)


def test_l2_is_refused_in_other_coordinates():
    problem = Problem(Logistic(), Ball(dim=6, radius=5.0), l2=0.1)
    with pytest.raises(ArgumentError, match="l2"):
        Recast(problem, maps()[0], 0.1)


def test_a_constant_as_long_as_the_row_is_refused():
    with pytest.raises(ArgumentError, match="constant"):
        Problem(Logistic(), Ball(dim=6, radius=5.0), feature_norm=1.0, constant=1.0)
