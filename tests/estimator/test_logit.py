"""Logistic regression with intervals: the right coefficients, one answer of each user, and nothing spent on bad requests."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import PrivacyAccount, ShuffleLogit, load_model
from croupier.estimator._rounds import GroupRounds
from croupier.population import ArrayPopulation
from croupier.privacy._ledger import BudgetExceededError


def world(users=20_000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-20, 20, size=(users, 2))
    return X, np.where(rng.random(users) < expit(X @ [0.1, -0.05] + 0.5), "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    X, y = world()
    return (
        ShuffleLogit(method="moments", epsilon=2.0, classes=["no", "yes"], feature_norm=30.0).fit(
            pd.DataFrame(X, columns=["age", "pay"]), y
        ),
        X,
        y,
    )


def test_the_table_is_in_the_units_of_the_data(fitted):
    model, X, y = fitted
    model = clone(model).set_params(random_state=0).fit(pd.DataFrame(X, columns=["age", "pay"]), y)  # secret noise may hide a slope
    table = model.summary(0.9)
    assert table.names == ("age", "pay", "(intercept)")
    assert (np.abs(table.coef - [0.1, -0.05, 0.5]) < 6 * table.std).all()
    assert (table.std < [0.02, 0.02, 0.2]).all()
    assert table.intervals[:, 1] - table.intervals[:, 0] == pytest.approx(2 * 1.6449 * table.std, rel=1e-3)
    assert np.append(model.std_[0], model.intercept_std_) == pytest.approx(table.std)
    assert model.intervals(0.9) == pytest.approx(table.intervals)
    text = str(fitted[0].summary(0.9))
    assert "Logistic regression in three groups, log-odds of yes against no, 20,000 people; epsilon = 2" in text
    frame = pd.DataFrame(X, columns=["age", "pay"])
    assert model.predict_proba(frame)[:, 1] == pytest.approx(expit(model.decision_function(frame)))
    assert model.score(frame, np.where(X @ [0.1, -0.05] > -0.5, "yes", "no")) > 0.95
    assert "standard errors" in model.explain()
    assert "asked once, in one of three groups" in model.explain()


def test_the_guarantee_is_the_worst_of_the_groups_and_is_charged_first(fitted):
    model, *_ = fitted
    planned = model.rounds_.planned
    assert [plan.users for plan in planned.plans] == [5_000, 5_000, 10_000]
    assert model.guarantee_.delta(2.0) <= 1e-6
    assert model.guarantee_.mu == max(plan.guarantee.mu for plan in planned.plans)
    X, y = world(2_000)
    account = PrivacyAccount(epsilon=1.0, delta=1e-6)
    ShuffleLogit(method="moments", classes=["no", "yes"], account=account).fit(X, y)
    with pytest.raises(BudgetExceededError):
        ShuffleLogit(method="moments", classes=["no", "yes"], account=account).fit(X, y)
    assert len(account.fits) == 1


def test_each_user_is_asked_once():
    """Whom the three questions reach: every user is in exactly one, and who does not depend on the records."""

    class Watched(ArrayPopulation):
        seen: list

        def answer(self, question):
            self.seen.append(question.batch.members(0, self.users))
            return super().answer(question)

    found = []
    for shift in (0.0, 1.0):
        X, y = world(1_000)
        model = ShuffleLogit(method="moments", classes=["no", "yes"], random_state=3, feature_norm=30.0)
        people = Watched(*model.records(X + shift, y))
        people.seen = []
        model.fit_population(people, 2)
        found.append(people.seen)
    assert np.sort(np.concatenate(found[0])).tolist() == list(range(1_000))
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)


def test_honest_users_are_counted_in_the_smallest_group():
    X, y = world(4_000)
    model = ShuffleLogit(method="moments", classes=["no", "yes"], honest=0.8).fit(X, y)
    planned = model.rounds_.planned
    assert planned.shortfall == pytest.approx(1e-8)
    assert all(plan.honest_users < 0.8 * plan.users for plan in planned.plans)
    assert model.guarantee_.honest == 0.8
    assert model.guarantee_.delta(1.0) <= 1e-6
    assert model.guarantee_.slack >= planned.shortfall


def test_a_file_is_proved_again(fitted, tmp_path):
    model, *_ = fitted
    model.save(tmp_path / "logit.json")
    again = load_model(tmp_path / "logit.json")
    assert str(again.summary()) == str(model.summary())
    assert again.guarantee_ == model.guarantee_
    values = json.loads(model.to_json())
    rounds = values["fitted"]["rounds_"]["of"]
    rounds["estimates"][2]["users"] = 20
    with pytest.raises(cr.ArgumentError):
        ShuffleLogit.from_json(json.dumps(values))
    values = json.loads(model.to_json())
    values["fitted"]["coef_"]["of"]["values"][0][0] += 1.0
    with pytest.raises(cr.ArgumentError, match="coef_"):
        ShuffleLogit.from_json(json.dumps(values))


def test_a_file_that_counts_on_more_honest_users_than_a_group_holds_is_refused():
    X, y = world(4_000)
    values = ShuffleLogit(method="moments", classes=["no", "yes"]).fit(X, y).rounds_.to_dict()
    assert GroupRounds.from_dict(values).guarantee.honest == 1.0
    for honest, shortfall in ((0.8, 0.0), (0.8, 1e-8)):
        with pytest.raises(cr.ArgumentError):
            GroupRounds.from_dict(values | {"honest": honest, "shortfall": shortfall})


def test_blanks_and_people_with_several_rows():
    X, y = world(4_000)
    clean = ShuffleLogit(method="moments", classes=["no", "yes"], random_state=0, feature_norm=30.0).fit(X, y)
    same = ShuffleLogit(method="moments", classes=["no", "yes"], random_state=0, feature_norm=30.0, invalid="blank").fit(X, y)
    np.testing.assert_array_equal(clean.coef_, same.coef_)
    X[7, 0], odd = np.nan, y.astype(object)
    odd[9] = "perhaps"
    with pytest.raises(ValueError, match="NaN"):
        ShuffleLogit(method="moments", classes=["no", "yes"]).fit(X, y)
    blank = ShuffleLogit(method="moments", classes=["no", "yes"], random_state=0, feature_norm=30.0, invalid="blank").fit(X, odd)
    assert np.abs(blank.coef_ - clean.coef_).max() < 0.1
    rows, targets = blank.records(X, odd)
    assert not rows[[7, 9]].any()
    assert not targets[[7, 9]].any()
    X, y = world(4_000)
    grouped = ShuffleLogit(method="moments", classes=["no", "yes"], feature_norm=30.0).fit(X, y, groups=np.arange(4_000) // 2)
    assert grouped.n_users_ == 2_000
    assert grouped.unit_ == "person"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"classes": None}, "classes"),
        ({"classes": ["a", "b", "c"]}, "classes"),
        ({"feature_norm": None}, "feature_norm"),
        ({"intercept_scaling": 0}, "intercept_scaling"),
        ({"epsilon": -1}, "epsilon"),
        ({"invalid": "drop"}, "invalid"),
    ],
)
def test_bad_requests_spend_nothing(options, name):
    X, y = world(1_000)
    account = PrivacyAccount()
    with pytest.raises(cr.ArgumentError, match=name):
        ShuffleLogit(method="moments", **{"classes": ["no", "yes"], "account": account} | options).fit(X, y)
    with pytest.raises(cr.ArgumentError, match="sample_weight"):
        ShuffleLogit(method="moments", classes=["no", "yes"], account=account).fit(X, y, sample_weight=np.ones(1_000))
    with pytest.raises(cr.ArgumentError):
        ShuffleLogit(method="moments", classes=["no", "yes"], account=account).fit(X[:5], y[:5])
    assert not account.fits


def test_where_nothing_can_be_told_it_says_so():
    """Two columns that are the same: neither has a finite interval, the intercept has; with a declared bound all have."""
    X, y = world(6_000)
    twice = np.column_stack([X[:, 0], X[:, 0]]) / 40
    model = ShuffleLogit(method="moments", classes=["no", "yes"], epsilon=4.0, random_state=0)
    model.fit_population(SurrogatePopulation(*model.records(twice, y)), 2)
    table = model.summary()
    assert table.determined.tolist() == [False, False, True]
    assert table.intervals[:2].tolist() == [[-np.inf, np.inf]] * 2
    assert str(table).count("(-inf, inf)") == 2
    bounded = model.set_params(coef_bound=12.0).summary()
    assert np.isfinite(bounded.intervals).all()
    assert (np.abs(bounded.intervals[:2]) <= 12.0).all()
    np.testing.assert_array_equal(bounded.intervals[2], table.intervals[2])
    assert "declared coef_bound" in str(bounded)


@pytest.mark.parametrize(("slope", "intercept", "told"), [(2.0, 0.3, True), (2.0, -3.5, False), (18.0, 0.0, False)])
def test_weights_that_are_still_on_their_way_get_no_interval(slope, intercept, told):
    """A class of 4 %, or slopes of 18: the 95 % intervals covered in none of 25 runs. Twenty runs of each kind agreed."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(30_000, 1))
    y = rng.random(30_000) < expit(slope * X[:, 0] + intercept)
    model = ShuffleLogit(method="moments", epsilon=1.0, classes=[False, True], random_state=1).fit(X, y)
    assert np.isfinite(model.summary().std).all() == told
    assert np.isinf(model.summary().intervals).all() != told
    bounded = model.set_params(coef_bound=20.0).intervals()
    assert np.isfinite(bounded).all()
    assert told or bounded.tolist() == [[-20.0, 20.0]] * 2


@pytest.mark.parametrize("bound", [None, 20.0])
def test_steep_slopes_are_not_blamed_on_noise(bound):
    """Fixed seed. A step that does not settle said that "the data do not decide" slopes "at this noise", at epsilon 8."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, size=(40_000, 2))
    y = rng.random(len(X)) < expit(10 * X[:, 0])
    model = ShuffleLogit(
        method="moments", epsilon=8.0, classes=[False, True], feature_norm=1.0, random_state=0, coef_bound=bound
    ).fit(X, y)
    table = model.summary()
    assert not table.settled
    assert not table.determined.any()
    assert "slopes are steep: more people or a larger epsilon do not help" in str(table)
    assert "at this noise" not in str(table)
    assert table.transformed(np.eye(3), table.names).undecided_text == table.undecided_text
    gentle = model.fit(X, rng.random(len(X)) < expit(X[:, 0])).summary()
    assert gentle.settled
