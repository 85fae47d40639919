"""Weighted losses: values, slopes and envelopes against the loss itself and against numerical minimisation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from croupier import ArgumentError
from croupier.problem import Ball, Hinge, Logistic, Multinomial, Problem, Squared, SquaredHinge, check
from croupier.problem.classification import Weighted

WEIGHTS = (0.2, 1.5)
BINARY = [Logistic(), Hinge(), SquaredHinge()]


@pytest.mark.parametrize("loss", BINARY)
def test_a_weight_multiplies_value_and_slope(loss):
    weighted, scores = Weighted(loss, WEIGHTS), np.linspace(-3, 3, 7)
    for label, weight in enumerate(WEIGHTS):
        targets = loss.targets(np.full(7, label))
        np.testing.assert_allclose(weighted.value(scores, targets), weight * loss.value(scores, targets))
        np.testing.assert_allclose(weighted.slope(scores, targets), weight * loss.slope(scores, targets))


@pytest.mark.parametrize("loss", BINARY)
@pytest.mark.parametrize("q", [0.1, 1.0, 7.0])
def test_the_envelope_s_slope_is_that_of_the_minimiser(loss, q):
    weighted = Weighted(loss, WEIGHTS)
    for label in (0, 1):
        for score in (-2.0, 0.3, 2.5):
            target = loss.targets(np.array([label]))
            found = minimize_scalar(
                lambda u, score=score, target=target: float(weighted.value(np.array([u]), target)[0]) + (u - score) ** 2 / (2 * q),
                bounds=(score - 20, score + 20),
                method="bounded",
                options={"xatol": 1e-10},
            )
            slope = weighted.prox_slope(np.array([score]), target, np.array([q]))[0]
            np.testing.assert_allclose(slope, (score - found.x) / q, atol=1e-4)


@pytest.mark.parametrize("loss", [Weighted(Logistic(), WEIGHTS), Weighted(Multinomial(classes=3), (1.0, 0.1, 2.0))])
def test_no_sampled_point_contradicts_the_constants(loss):
    problem = Problem(loss=loss, domain=Ball(dim=2 * loss.outputs, radius=5.0), feature_norm=1.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)) / 2
    assert check(problem, X, rng.integers(0, len(loss.weights), 30)) == []
    smoothed = problem.smoothed(0.7)
    assert check(smoothed, X, rng.integers(0, len(loss.weights), 30)) == []


def test_understated_constants_would_be_noticed():
    """The check above can fail: a weight of 2 whose bounds are those of the loss without it."""

    class Careless(Weighted):
        def slope_bound(self, score_bound):
            return self.loss.slope_bound(score_bound)

    problem = Problem(loss=Careless(Logistic(), (0.1, 2.0)), domain=Ball(dim=2, radius=5.0), feature_norm=1.0)
    assert any("lipschitz" in text for text in check(problem, np.ones((4, 2)) / 2, np.ones(4)))


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, 2.0, 3.0), (1.0, float("nan")), 1.0])
def test_there_is_one_positive_weight_for_each_class(weights):
    with pytest.raises(ArgumentError, match="weights"):
        Weighted(Logistic(), weights)
    with pytest.raises(ArgumentError, match="weights"):
        Weighted(Squared(target_bound=1.0), (1.0, 2.0))
