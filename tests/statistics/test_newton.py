"""Newton rounds: a range that no record leaves, and steps whose intervals cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.special import expit
from scipy.stats import binom

import croupier as cr
from croupier.estimator import PrivacyAccount
from croupier.statistics import Moments, check
from croupier.statistics._newton import CURVATURE, SLOPE, SQUARE, Newton
from croupier.statistics.asking import plan_for
from croupier.statistics.moments import least_squares

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(300, 4))


@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 1e5])
def test_no_record_leaves_the_range(size):
    query = Newton(tuple(size * RNG.normal(size=4)))
    assert check(query, ROWS, (ROWS[:, 0] > 0).astype(float)) == []
    assert query.norm <= query.diameter <= 2 * query.norm


def test_a_climb_from_many_pairs_finds_no_two_vectors_further_apart():
    """Rows, labels and weights are free. The bound is nearly attained, so a smaller one would be noticed."""

    def apart(z):
        weights, rows = 200 * z[:2], z[2:6].reshape(2, 2)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(1.0)
        query = Newton(tuple(weights))
        return max(
            float(np.linalg.norm(np.subtract(*query(rows, np.array(labels))))) for labels in ((1.0, 1.0), (1.0, 0.0), (0.0, 0.0))
        )

    rng = np.random.default_rng(1)
    starts = [rng.normal(size=6) for _ in range(8)] + [np.array([-0.5, 0.0, 0.1, 1.0, 0.1, -1.0])]
    best = max(-scipy_minimize(lambda z: -apart(z), z, method="Powell", options={"maxiter": 4}).fun for z in starts)
    bound = Newton((0.0, 0.0)).diameter
    assert 0.95 * bound <= best <= bound


def test_no_slopes_and_no_angle_are_further_apart_than_was_proved():
    """The distance that the proof bounds, on a grid of both users' |y - p| and of the angle between their rows, and the norm."""
    u = np.linspace(0, 1, 201)
    first, second, t = u[:, np.newaxis, np.newaxis], u[np.newaxis, :, np.newaxis], u[np.newaxis, np.newaxis, :]
    q, other = 4 * first * (1 - first), 4 * second * (1 - second)
    squared = CURVATURE**2 * (q**2 + other**2 - 2 * q * other * t**2)
    squared = squared + SLOPE**2 * (first**2 + second**2 + 2 * first * second * t)
    squared = squared + SQUARE**2 * (first**4 + second**4 - 2 * (first * second * t) ** 2)
    query = Newton((0.0,))
    assert np.sqrt(squared.max()) == pytest.approx(query.diameter, rel=1e-12)
    lengths = np.sqrt((CURVATURE * 4 * u * (1 - u)) ** 2 + (SLOPE * u) ** 2 + (SQUARE * u**2) ** 2)
    assert lengths.max() == pytest.approx(query.norm, rel=1e-12)
    assert CURVATURE**2 <= 27 / 32 * SLOPE**2  # what the proof needs of the weights
    assert 4 * SQUARE**2 <= SLOPE**2


def test_the_diameter_is_attained():
    """By two nearly equal rows on either side of a steep boundary, each with the label that is not likely."""
    rows, labels = np.array([[-1e-4, 1.0], [1e-4, 1.0]]), np.array([1.0, 0.0])
    apart = float(np.linalg.norm(np.subtract(*Newton((9e5, 0.0))(rows, labels))))
    assert apart == pytest.approx(Newton((0.0, 0.0)).diameter, rel=1e-6)


@pytest.mark.parametrize("label", [0.5, 2.0, np.nan, np.inf])
def test_a_label_that_is_none_and_a_row_that_is_not_finite_say_nothing(label):
    query = Newton((1.0, -2.0))
    assert not query(np.array([[0.5, 0.5]]), np.array([label])).any()
    assert not query(np.array([[np.nan, 0.5]]), np.array([1.0])).any()
    assert query(np.array([[0.5, 0.5]]), np.array([-1.0])) == pytest.approx(query(np.array([[0.5, 0.5]]), np.array([0.0])))


def test_without_noise_steps_lead_to_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(5_000, 3)) / np.sqrt(3)
    y = (rng.random(5_000) < expit(X @ [3.0, -1.0, 0.5])).astype(float)
    weights = np.zeros(3)
    for _ in range(8):
        query = Newton(tuple(weights))
        total = query(X, y).sum(axis=0)
        fit = query.decode(cr.SumEstimate(sum=total, users=5_000, noise_std=0.0, guarantee=None)).step()
        weights = fit.coef
    p = expit(X @ weights)
    assert np.abs(X.T @ (y - p)).max() < 1e-9
    assert np.sqrt(np.diag(np.linalg.inv((X * (p * (1 - p))[:, np.newaxis]).T @ X))) == pytest.approx(fit.std, rel=0.1)


def test_bad_weights_and_bad_records_are_refused_before_anybody_is_asked():
    for bad in ((np.nan,), (), "ab", 3):
        with pytest.raises(cr.ArgumentError, match="weights"):
            Newton(bad)
    account = PrivacyAccount(epsilon=1.0, delta=1e-6)
    asked = {"epsilon": 1.0, "delta": 1e-6, "account": account}
    with pytest.raises(cr.ArgumentError, match=r"X\.shape"):
        cr.ask(Newton((0.0,)), (ROWS, np.ones(300)), **asked)
    with pytest.raises(cr.ArgumentError, match="data"):
        cr.ask(Newton((0.0,) * 4), ROWS, **asked)
    assert not account.fits


def covered_by_three_groups(rng, users, features, epsilon, populations):
    """How many of all coefficients the intervals of three groups cover, the plans' noise as Gaussian."""
    sizes = [users // 4, users // 4, users - 2 * (users // 4)]
    shapes = [Moments(features + 1), Newton((0.0,) * (features + 1))]
    plans = [plan_for(shapes[min(i, 1)], size, epsilon=epsilon, delta=1e-6) for i, size in enumerate(sizes)]
    covered = []
    for _ in range(populations):
        X = rng.normal(size=(users, features))
        X *= rng.random((users, 1)) ** (1 / features) / np.linalg.norm(X, axis=1, keepdims=True)
        truth = np.sqrt(2) * np.append(2 * rng.normal(size=features) / np.sqrt(features), 0.3)
        rows = np.column_stack([X, np.ones(users)]) / np.sqrt(2)
        y = np.where(rng.random(users) < expit(rows @ truth), 1.0, -1.0)
        query, first = shapes[0], 0
        for number, (size, plan) in enumerate(zip(sizes, plans, strict=True)):
            part = slice(first, first := first + size)
            noisy = rng.normal(query(rows[part], y[part]).sum(axis=0), plan.noise_std)
            found = query.decode(cr.SumEstimate(sum=noisy, users=size, noise_std=plan.noise_std, guarantee=None))
            fit = found.step() if number else least_squares(found)
            query = Newton(tuple((fit.coef if number else 2 * fit.coef).tolist()))
        low, high = fit.intervals().T
        covered += ((low <= truth) & (truth <= high))[fit.determined].tolist()
    return covered


@pytest.mark.parametrize(("features", "epsilon"), [(5, 0.5), (5, 4.0), (20, 1.0)])
def test_95_per_cent_intervals_cover_92_to_99(features, epsilon):
    """Fixed seeds: nothing here can change from run to run. benchmarks/results/private_statistics.md has ten times as many."""
    populations = 60 if features == 5 else 8
    covered = covered_by_three_groups(np.random.default_rng(features), 30_000, features, epsilon, populations)
    assert len(covered) > 150
    assert binom.cdf(0.84 * len(covered), len(covered), 0.95) < 1e-6
    assert 0.92 <= np.mean(covered) <= 0.99
