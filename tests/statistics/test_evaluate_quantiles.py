"""Calibration of quantile regressors: shares at or below the prediction, overall and by bins of the prediction."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import ShuffleQuantileRegressor
from croupier.report._answers import answer_page
from croupier.statistics import check
from croupier.statistics.evaluating import Regression


class Quantile:
    """Predicts the 0.8 quantile of X + noise: right where X is positive, too low where it is negative."""

    target_range_ = (-4.0, 4.0)

    def __init__(self, quantile=0.8):
        self.quantile = quantile

    def predict(self, X):
        right = X[:, 0] + 0.5 * norm.ppf(0.8)
        return np.where(X[:, 0] > 0, right, right - 0.3)


def people(rng, users):
    X = rng.normal(size=(users, 1))
    return X, X[:, 0] + rng.normal(scale=0.5, size=users)


X, Y = people(np.random.default_rng(0), 20_000)
EDGES = np.linspace(-4, 4, 11)


def by_hand(model, rows, targets):
    """People and shares, bin by bin, without noise."""
    predicted = np.clip(model.predict(rows), -4, 4)
    place = np.minimum(np.searchsorted(EDGES, predicted, side="right") - 1, 9)
    below = np.clip(targets, -4, 4) <= predicted
    people_in = np.bincount(place, minlength=10)
    return people_in, np.bincount(place, weights=below, minlength=10) / np.maximum(people_in, 1)


def test_no_record_leaves_the_range():
    query = Regression(Quantile(), -4.0, 4.0)
    with np.errstate(all="ignore"):
        assert check(query, X[:3_000], Y[:3_000]) == []
    assert query.norm <= query.diameter <= 2 * query.norm


def test_the_diameter_is_nearly_attained():
    """Two people whose every number is at opposite ends, in different cells."""

    class Ends(Quantile):
        def predict(self, X):
            return X[:, 0]

    query = Regression(Ends(), 0.0, 1.0)
    vectors = query(np.array([[0.0], [1.0]]), np.array([1.0, 1.0]))
    other = query(np.array([[0.0]]), np.array([0.0]))
    assert np.linalg.norm(vectors[0] - other[0]) == pytest.approx(query.diameter, rel=1e-12)
    assert np.linalg.norm(vectors[0] - vectors[1]) < query.diameter


def test_shares_are_those_without_noise():
    found = cr.evaluate(Quantile(), (X, Y), epsilon=80.0, delta=1e-6, seed=0)
    people_in, shares = by_hand(Quantile(), X, Y)
    middle, counted, share, error = found.counts.bins.calibration.T
    assert middle == pytest.approx((EDGES[1:] + EDGES[:-1]) / 2)
    assert counted == pytest.approx(people_in, abs=40)
    many = people_in > 1_000
    assert many.sum() >= 4
    assert share[many] == pytest.approx(shares[many], abs=0.02)
    assert error[many] == pytest.approx(np.sqrt(shares * (1 - shares) / np.maximum(people_in, 1))[many], rel=0.2)
    assert (np.abs(share - 0.8) > 5 * error)[many & (middle < 0)].any()  # what is wrong with the model is seen
    overall = found.scores["at or below"]
    assert overall.value == pytest.approx((np.clip(Y, -4, 4) <= np.clip(Quantile().predict(X), -4, 4)).mean(), abs=3e-3)
    assert overall.baseline == 0.8


def test_bars_cover():
    """60 samples of 4 000 people at epsilon 1: 60 overall intervals and over 200 of bins; at least 88 per cent cover."""
    rng = np.random.default_rng(1)
    rows, targets = people(rng, 400_000)
    people_in, shares = by_hand(Quantile(), rows, targets)
    truth = (np.clip(targets, -4, 4) <= np.clip(Quantile().predict(rows), -4, 4)).mean()
    overall, hits = 0, []
    for seed in range(60):
        some = rng.integers(400_000, size=4_000)
        found = cr.evaluate(Quantile(), SurrogatePopulation(rows[some], targets[some]), epsilon=1.0, delta=1e-6, seed=seed)
        low, high = found.scores["at or below"].interval
        overall += low <= truth <= high
        _, _, share, error = found.counts.bins.calibration.T
        many = people_in > 40_000
        hits.extend((np.abs(share - shares) <= 1.96 * error)[many])
    assert overall >= 53
    assert len(hits) >= 200
    assert 0.88 <= np.mean(hits) <= 0.995


def test_it_is_printed_written_and_drawn():
    found = cr.evaluate(Quantile(), (X, Y), epsilon=1.0, delta=1e-6, seed=0)
    assert "at or below, 0.8 if calibrated" in str(found)
    bins = found.to_dict()["scores"]["at or below"]["bins"]
    assert len(bins) == 10
    assert set(bins[0]) == {"low", "high", "people", "share", "std"}
    page = answer_page(found, title="Test")
    assert "Calibration" in page
    assert "0.8" in page


@pytest.mark.parametrize("quantile", [None, 0.0, 1.5, "median", np.nan])
def test_what_is_no_quantile_has_no_bins(quantile):
    found = cr.evaluate(Quantile(quantile), (X, Y), epsilon=1.0, delta=1e-6, seed=0)
    assert found.counts.bins is None
    assert found.scores["at or below"].baseline is None


def test_our_own_regressor_is_one():
    model = ShuffleQuantileRegressor(epsilon=4.0, quantile=0.9, target_range=(-4, 4), feature_norm=4.0, random_state=0)
    found = cr.evaluate(model.fit(X, Y), (X, Y), epsilon=4.0, delta=1e-6, seed=0)
    assert found.counts.bins.quantile == 0.9
    assert found.scores["at or below"].value == pytest.approx(0.9, abs=0.1)
