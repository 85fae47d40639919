"""The capped losses: nobody's slope exceeds the cap, and the best scores are the log-odds, as the logistic loss's are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logit, softmax

from croupier.problem import CappedLogistic, CappedMultinomial, Logistic, Multinomial
from croupier.problem.classification import Weighted


@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9, 0.9999])
def test_the_mean_loss_is_least_at_the_log_odds(p):
    """Of the loss itself, by a minimiser; of its slope, exactly."""
    loss, one = CappedLogistic(), np.ones(1)

    def mean(z):
        scores = np.array([z])
        return float(p * loss.value(scores, one)[0] + (1 - p) * loss.value(scores, -one)[0])

    assert minimize_scalar(mean, bounds=(-15, 15), method="bounded", options={"xatol": 1e-9}).x == pytest.approx(logit(p), abs=1e-3)
    z = np.array([logit(p)])
    assert p * loss.slope(z, one)[0] + (1 - p) * loss.slope(z, -one)[0] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_mean_slope_of_several_classes_is_zero_at_the_true_probabilities(classes):
    rng, loss = np.random.default_rng(classes), CappedMultinomial(classes)
    scores = rng.normal(size=(200, classes)) * rng.exponential(3, size=(200, 1))
    p = softmax(scores, axis=1)
    labels = [loss.slope(scores, loss.targets(np.full(200, k))) for k in range(classes)]
    mean = sum(p[:, [k]] * slope for k, slope in enumerate(labels))
    np.testing.assert_allclose(mean, 0, atol=1e-14)
    lengths = np.linalg.norm(labels, axis=2)
    assert lengths.max() <= loss.slope_bound(1e9) * (1 + 1e-12)
    assert (
        np.linalg.norm([Multinomial(classes).slope(scores, loss.targets(np.full(200, k))) for k in range(classes)], axis=2).max()
        > 1
    )


def test_the_slopes_of_an_envelope_are_capped_too():
    rng, loss = np.random.default_rng(0), CappedMultinomial(4)
    scores, q = rng.normal(scale=8, size=(500, 4)), np.exp(rng.uniform(-8, 6, size=500))
    slopes = loss.prox_slope(scores, loss.targets(rng.integers(4, size=500)), q)
    assert np.linalg.norm(slopes, axis=1).max() <= loss.slope_bound(1e9) * (1 + 1e-9)


def test_its_slope_is_never_steeper_than_half_the_logistic_bound_and_equal_at_zero():
    z, one = np.linspace(-30, 30, 601), np.ones(601)
    capped, plain = CappedLogistic().slope(z, one), Logistic().slope(z, one)
    assert np.abs(capped).max() == CappedLogistic().slope_bound(30.0) == 0.5
    assert (np.abs(capped) <= np.abs(plain) + 1e-15).all()
    assert capped[300] == plain[300] == -0.5


def test_two_classes_of_the_softmax_have_the_same_minimiser_as_the_binary_loss():
    scores = np.array([[0.0, 1.7]])
    p = softmax(scores, axis=1)[0]
    weighted = Weighted(CappedMultinomial(2), (1.0, 0.5))
    mean = sum(p[k] / (1.0, 0.5)[k] * weighted.slope(scores, weighted.targets(np.array([k]))) for k in range(2))
    np.testing.assert_allclose(mean, 0, atol=1e-15)
