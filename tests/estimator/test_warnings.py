"""What a fit says of itself: too few people, before it spends, and weights that press against the radius, after it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import (
    FewPeopleWarning,
    PrivacyAccount,
    RadiusWarning,
    ShuffleHuberRegressor,
    ShuffleLogisticRegression,
    WeakPrivacyWarning,
)
from croupier.privacy._ledger import BudgetExceededError


def people(users, features, seed=0):
    X = np.random.default_rng(seed).normal(size=(users, features))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def said(category, fit):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fit()
    return [str(entry.message) for entry in heard if entry.category is category]


class SpentError(Exception):
    pass


class Refusing(PrivacyAccount):
    def charge(self, *_, **__):
        raise SpentError


def test_two_hundred_people_with_26_features_are_few_and_that_is_said_before_anything_is_spent():
    X = people(200, 26)
    model = ShuffleLogisticRegression(classes=[False, True], epsilon=2.0, account=Refusing())
    with pytest.warns(FewPeopleWarning, match=r"200 users are few for 27 weights.*need about 780"), pytest.raises(SpentError):
        model.fit(X, X[:, 0] > 0)


@pytest.mark.parametrize(("epsilon", "weights"), [(1.0, 4), (2.0, 9)])
def test_the_rule_is_that_of_the_page(epsilon, weights):
    """300 sqrt(weights) / epsilon people are enough, one less is too few."""
    enough = math.ceil(300 * math.sqrt(weights) / epsilon)
    for users, few in ((enough, False), (enough - 1, True)):
        X = people(users, weights - 1)
        model = ShuffleLogisticRegression(classes=[False, True], epsilon=epsilon, rounds=1)
        assert bool(said(FewPeopleWarning, lambda X=X, model=model: model.fit(X, X[:, 0] > 0))) is few


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_weights_that_press_against_the_radius_are_noticed(interactivity):
    """Targets whose best weights are 3 long: radius 1 binds however large the budget is, radius 8 does not."""
    X = people(20_000, 4)
    y = X @ [3.0, 0.0, 0.0, 0.0] / 3.0 * 100
    for radius, presses in ((0.5, True), (4.0, False)):
        model = ShuffleHuberRegressor(
            epsilon=50.0, target_range=(-100, 100), radius=radius, interactivity=interactivity, random_state=0
        )
        rows, targets = model.records(X, y)
        heard = said(
            RadiusWarning,
            lambda model=model, rows=rows, targets=targets: model.fit_population(SurrogatePopulation(rows, targets), 4),
        )
        assert bool(heard) is presses, np.linalg.norm(model.result_.theta)
        if presses:
            assert "radius = 0.5: a larger one, such as 1" in heard[0]
            assert "spends more budget" in heard[0]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", RadiusWarning)
                with pytest.raises(RadiusWarning):
                    model.fit_population(SurrogatePopulation(rows, targets), 4)
            assert model.promise_.epsilon == 50.0  # what was paid for is there all the same


def test_what_a_watcher_is_promised_is_said_before_anybody_is_asked():
    """Above 20, from the plan alone: a fit that is refused afterwards has warned, and one with a single figure does not."""
    X, y = np.full((2_400, 2), 0.1), np.arange(2_400) % 2
    model = ShuffleLogisticRegression(epsilon=1.0, classes=[0, 1], feature_norm=1.0)
    with pytest.warns(
        WeakPrivacyWarning,
        match=r"this fit has epsilon [23]\d.* at delta 1e-06: above 20.*--interactivity full.*with few people it is less accurate",
    ) as caught:
        model.fit(X, y)
    assert {one.filename for one in caught} == {__file__}  # not a line of contextlib
    told = model.guarantee_.if_watched.epsilon(1e-6)
    assert told > 20
    gone = PrivacyAccount(epsilon=0.1, delta=1e-6)
    with pytest.warns(WeakPrivacyWarning, match="Nobody was asked yet"), pytest.raises(BudgetExceededError):
        model.set_params(account=gone).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeakPrivacyWarning)
        ShuffleLogisticRegression(epsilon=1.0, classes=[0, 1], feature_norm=1.0, interactivity="full").fit(X, y)
        many = np.full((12_000, 2), 0.1)
        large = ShuffleLogisticRegression(epsilon=1.0, classes=[0, 1], feature_norm=1.0).fit(many, np.arange(12_000) % 2)
    assert large.guarantee_.if_watched.epsilon(1e-6) <= 20
