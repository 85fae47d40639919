"""A choice among fits: what it costs in all, how sure it is, and that nobody is on both sides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

import croupier as cr
from croupier.estimator.choosing import Contest, scores_of
from croupier.protocol import SumEstimate
from croupier.statistics import Answer, check
from croupier.statistics.asking import plan_for

pytestmark = pytest.mark.filterwarnings(
    "ignore::croupier.estimator.FewPeopleWarning", "ignore::croupier.estimator.MostlyNoiseWarning"
)


def people(users=12_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, size=(users, 3))
    return X, (X @ [1.0, 2.0, 0.0] + 0.05 * rng.normal(size=users) > 0).astype(int)


def settings(**options):
    made = {"lots": "open", "rounds": 3, "feature_norm": 1.0, "classes": [0, 1]} | options
    return {f"radius {radius:g}": cr.ShuffleLogisticRegression(radius=radius, **made) for radius in (0.01, 1.0, 20.0)}


def test_everything_is_in_one_guarantee_and_the_account_has_both_sides():
    X, y = people()
    account = cr.PrivacyAccount(delta=1e-6)
    choice = cr.choose(settings(), (X, y), epsilon=1.0, delta=1e-6, account=account)
    assert choice.guarantee.delta(1.0) <= 1e-6
    assert choice.guarantee.delta(0.7) > 1e-6  # not half of it is left over
    assert choice.fits.mu > 0
    first, second = account.fits
    assert first.part == second.part.other
    assert first.users + second.users == len(y)
    fitted = [model.guarantee_ for model in choice.models.values()]
    assert fitted[0].compose(*fitted[1:]).delta(1.0) <= 1e-6
    assert choice.model is choice.models[choice.best]
    assert "within 1 point" in str(choice)
    assert all(abs(score.value - scores_of(choice.models[name], X, y).mean()) < 0.06 for name, score in choice.scores.items())


def test_people_set_aside_are_not_fitted_on(monkeypatch):
    X, y = people(4_000)
    X[:, 0] = np.linspace(-0.5, 0.5, len(X))  # a row's name
    seen = []
    fit = cr.ShuffleLogisticRegression.fit
    monkeypatch.setattr(cr.ShuffleLogisticRegression, "fit", lambda self, X, y: seen.append(set(X[:, 0])) or fit(self, X, y))
    asked = []
    predict = cr.ShuffleLogisticRegression.predict
    monkeypatch.setattr(cr.ShuffleLogisticRegression, "predict", lambda self, X: asked.append(set(X[:, 0])) or predict(self, X))
    choice = cr.choose(settings(), (X, y), epsilon=4.0, delta=1e-6, share=0.3, seed=5)
    assert choice.guarantee is None
    assert "NOT PRIVATE" in str(choice)
    assert all(not one & other for one in seen for other in asked)
    assert len(seen[0] | asked[0]) == len(X)
    assert abs(len(asked[0]) - 1_200) < 200


def test_scores_of_a_contest_keep_their_range():
    query = Contest(("a", "b", "c"))
    rows = np.array([[*row] for row in itertools.product([0.0, 1.0, 0.3, np.nan, np.inf, -5.0], repeat=3)])
    assert check(query, rows) == []


def test_the_chosen_one_is_within_the_points_stated_as_often_as_stated():
    """Many contests of five models whose true scores are near each other; the bound is for people like those who were asked."""
    names, users, runs = tuple("abcde"), 4_000, 400
    truth = np.array([0.80, 0.795, 0.79, 0.78, 0.76])
    query, rng = Contest(names), np.random.default_rng(0)
    plan = plan_for(query, users, epsilon=1.0, delta=1e-6)
    good, stated = 0, []
    for _ in range(runs):
        right = rng.random((users, 1)) < truth  # the same people are hard for all models
        sums = (right - 0.5).sum(axis=0) + rng.normal(0, plan.noise_std, 5)
        estimate = SumEstimate(sum=sums, users=users, noise_std=plan.noise_std, guarantee=None)
        scores = query.decode(estimate)
        best = max(scores, key=lambda name: scores[name].value)
        choice = cr.estimator.choosing.Choice(best, dict.fromkeys(names), Answer(scores, estimate, plan), None, "")
        stated.append(choice.within(2.0))
        good += truth.max() - truth[names.index(best)] <= 0.02
        assert choice.within(2.0, of_these_people=True) >= stated[-1]
    assert stats.binom.cdf(good, runs, min(stated)) > 1e-6
    assert min(stated) > 0.8


def test_models_that_were_fitted_elsewhere_are_only_asked_about():
    X, y = people(8_000)
    models = [model.set_params(epsilon=2.0, delta=1e-7).fit(X[:5_000], y[:5_000]) for model in settings().values()]
    choice = cr.choose(models, (X[5_000:], y[5_000:]), epsilon=1.0, delta=1e-6, share=None)
    assert list(choice.scores) == ["candidate 1", "candidate 2", "candidate 3"]
    assert choice.fits is None
    assert choice.guarantee.delta(1.0) <= 1e-6
    with pytest.raises(cr.ArgumentError, match="not fitted"):
        cr.choose(settings(), (X, y), epsilon=1.0, share=None)


def test_regressors_are_chosen_by_their_squared_error():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(20_000, 2))
    y = np.clip(2 * X[:, 0] + 0.1 * rng.normal(size=20_000), -2, 2)
    models = {f"{l2:g}": cr.ShuffleRidge(target_range=(-2, 2), feature_norm=1.0, l2=l2, method="moments") for l2 in (1e-4, 100.0)}
    choice = cr.choose(models, (X, y), epsilon=2.0, delta=1e-6, seed=1)
    assert choice.best == "0.0001"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"candidates": [cr.ShuffleLogisticRegression()]}, "2 to"),
        ({"candidates": [3, 4]}, "an estimator"),
        ({"candidates": "abc"}, "a mapping"),
        ({"data": np.zeros((9, 2))}, "data"),
        ({"data": (np.full((90, 3), np.nan), np.zeros(90))}, "NaN"),
        ({"data": (np.zeros((900, 3)), np.full(900, 7))}, "an undeclared label"),
        ({"share": 1.5}, "share"),
        ({"delta": 0.5}, "delta"),
        ({"account": "file"}, "PrivacyAccount"),
        ({"seed": -1}, "seed"),
        ({"candidates": settings(random_state=3)}, "seed= to choose"),  # seeded fits were counted as private ones
        ({"candidates": settings(account=cr.PrivacyAccount())}, "account= to choose"),  # it was not charged
    ],
)
def test_bad_requests_are_refused_before_anything_is_spent(change, match):
    account = cr.PrivacyAccount()
    request = {"candidates": settings(), "data": people(900), "epsilon": 1.0, "delta": 1e-6, "account": account} | change
    with pytest.raises(cr.ArgumentError, match=match):
        cr.choose(request.pop("candidates"), request.pop("data"), **request)
    assert not account.fits
