"""ShuffleRidge: moments or rounds, whichever is better by a public rule."""

import json
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import (
    BudgetWarning,
    MostlyNoiseWarning,
    PrivacyAccount,
    RadiusWarning,
    ShuffleHuberRegressor,
    ShuffleLinearRegression,
    ShuffleRidge,
    load_model,
)
from croupier.population import ArrayPopulation
from croupier.privacy import SumPlan
from croupier.privacy._ledger import BudgetExceededError
from croupier.report import html_report
from croupier.validation import ArgumentError

RANGE = {"target_range": (0.0, 100.0)}
# With l2 there is no rule but plain: then one round of moments is the other way.
PLAIN = RANGE | {"l2": 1e-9}


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(4_000, 3)) / 2
    return X, 50 + X @ [30.0, -10.0, 0.0] + rng.normal(scale=5, size=4_000)


@pytest.mark.parametrize(
    ("users", "features", "options", "taken"),
    [
        (10_000, 3, {}, "moments"),
        (10_000, 3, {"l2": 0.0}, "rounds"),
        (10**6, 127, {"l2": 0.0, "delta": 1e-8}, "rounds"),
        (1_000, 3, {"epsilon": 0.1}, "rounds"),
        (10_000, 90, {}, "rounds"),
        (100_000, 60, {}, "moments"),
        (10**6, 127, {"delta": 1e-8}, "moments"),
        (10**6, 128, {"delta": 1e-8}, "rounds"),
        (10**6, 128, {"delta": 1e-8, "fit_intercept": False}, "moments"),
        (4_000, 9, {}, "moments"),
        (4_000, 30, {"epsilon": 2.0}, "moments"),
        (4_000, 30, {"epsilon": 2.0, "interactivity": "full"}, "rounds"),
        (10_000, 3, {"method": "rounds"}, "rounds"),
        (10_000, 3, {"method": "acsa"}, "rounds"),
        (1_000, 3, {"epsilon": 0.1, "method": "moments"}, "moments"),
        (10_000, 3, {"l2": 0.1, "radius": 1.0, "neighbours": "zero-out", "honest": 0.9}, "moments"),
    ],
)
def test_the_rule_is_one_of_public_facts(users, features, options, taken):
    assert ShuffleRidge(**PLAIN | options).method_for(users, features) == taken


OF_ROUNDS = [
    {"rounds": 5},
    {"clip": 0.5},
    {"curvature": 0.1},
    {"max_inflation": 1.2},
    {"rule": "bound"},
    {"lots": "open"},
    {"lots": "secret"},
    {"calibration": "paper"},
    {"callbacks": (print,)},
]


@pytest.mark.parametrize("options", OF_ROUNDS, ids=lambda options: next(iter(options)))
def test_what_only_rounds_have_takes_rounds(options):
    assert ShuffleRidge(**RANGE, **options).method_for(10_000, 3) == "rounds"
    with pytest.raises(ArgumentError, match=rf"(?s){next(iter(options))}.*left out with method='moments'.*method='rounds'"):
        ShuffleRidge(**RANGE, **options, method="moments").method_for(10_000, 3)


def test_a_checkpoint_and_a_deployed_task_take_rounds(people, tmp_path):
    X, y = people
    path = tmp_path / "run.journal"
    assert ShuffleRidge(**RANGE).fit(X, y, checkpoint=path).method_ == "rounds"
    with pytest.raises(ArgumentError, match="checkpoint"):
        ShuffleRidge(**RANGE, method="moments").fit(X, y, checkpoint=tmp_path / "other.journal")
    deployed = ShuffleRidge(**RANGE)
    deployed._exclusions = True
    assert deployed.fit(X, y).method_ == "rounds"

    class Remote(ArrayPopulation):
        turnout = 1.0

    model = ShuffleRidge(**RANGE)
    assert model.fit_population(Remote(*model.records(X, y)), 3).method_ == "rounds"
    with pytest.raises(ArgumentError, match="a deployed task"):
        model.set_params(method="moments").fit_population(Remote(*model.records(X, y)), 3)
    assert isinstance(model.plan(4_000, 3), SumPlan)
    with pytest.raises(ArgumentError, match="a deployed task"):
        model.plan(4_000, 3, turnout=1.0)
    assert ShuffleRidge(**RANGE).plan(4_000, 3, turnout=1.0) == ShuffleRidge(**RANGE, method="rounds").plan(4_000, 3)
    assert ShuffleRidge(**RANGE).plan(4_000, 3, checkpoint=path) == ShuffleRidge(**RANGE, method="rounds").plan(4_000, 3)


def test_rounds_are_bit_for_bit_those_of_their_algorithm(people):
    X, y = people
    model = ShuffleRidge(**RANGE, method="rounds", rule="plain", random_state=7).fit(X, y)
    assert model.method_ == "rounds"
    same = ShuffleRidge(**RANGE, method="acsa", radius=2.0, random_state=7).fit(X, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)


def test_moments_are_least_squares_in_the_limit(people):
    """Two other routes: scikit-learn's Ridge where there is hardly noise, ShuffleLinearRegression with the same noise."""
    X, y = people
    big = np.tile(X, (25, 1)), np.tile(y, 25)
    for l2, intercept in ((1e-9, True), (1e-9, False), (0.05, False)):
        target = (0.0, 100.0) if intercept else (-100.0, 100.0)
        model = ShuffleRidge(target_range=target, l2=l2, fit_intercept=intercept, epsilon=50, delta=1e-9, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(*big)
        assert model.method_ == "moments"
        theirs = Ridge(alpha=max(l2, 1e-9) * len(X), fit_intercept=intercept).fit(X, y)
        np.testing.assert_allclose(model.predict(X), theirs.predict(X), atol=0.3)
    ours = ShuffleRidge(**PLAIN, random_state=4).fit(X, y)
    other = ShuffleLinearRegression(**RANGE, method="moments", random_state=4).fit(X, y)
    np.testing.assert_allclose(ours.coef_, other.coef_, atol=0.05)  # one noise; only rows are rounded in another order
    assert ours.intercept_ == pytest.approx(other.intercept_, abs=0.05)


def test_a_radius_that_is_given_bounds_the_weights_either_way(people):
    X, y = people
    for method in ("moments", "rounds"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RadiusWarning)
            model = ShuffleRidge(**RANGE, radius=0.2, method=method, epsilon=4.0, random_state=0).fit(X, y)
        theta = np.append(model.coef_ * model.feature_norm_, model.intercept_ - 50) / 50
        assert np.linalg.norm(theta) <= 0.2 * (1 + 1e-9)
    # the constrained minimum, found by another way: projected gradient descent on the same moments
    model = ShuffleRidge(**RANGE, radius=0.2, method="moments", l2=0.03, epsilon=4.0, random_state=0)
    with pytest.warns(RadiusWarning):
        model.fit(X, y)
    moments = model._query().decode(model.estimate_)
    w = np.zeros(4)
    for _ in range(20_000):
        w = w - 0.5 * (moments.matrix @ w - moments.products[:, 0] + 0.03 / 2 * w)
        w *= min(1.0, 0.2 * np.sqrt(2) / np.linalg.norm(w))
    np.testing.assert_allclose(model._theta(), w / np.sqrt(2), atol=1e-8)


def test_the_promise_is_that_of_the_round_and_is_counted(people):
    X, y = people
    account = PrivacyAccount(epsilon=1.2, delta=1e-5)
    model = ShuffleRidge(**PLAIN, account=account).fit(X, y)
    assert model.method_ == "moments"
    assert model.guarantee_ == model.plan_.guarantee
    assert model.guarantee_.delta(1.0) <= 1e-6
    assert 0 < account.spent() < 1.1
    with pytest.raises(BudgetExceededError):
        clone(model).fit(X, y)
    with pytest.warns(BudgetWarning):
        ShuffleRidge(**PLAIN).fit(X, y).fit(X, y)
    zero_out = ShuffleRidge(**PLAIN, neighbours="zero-out").fit(X, y)
    assert zero_out.guarantee_.neighbours == "zero-out"
    assert zero_out.plan_.noise_std < model.plan_.noise_std
    assert ShuffleRidge(**PLAIN, random_state=0).fit(X, y).guarantee_ is None
    assert ShuffleRidge(**PLAIN, honest=0.5).fit(X, y).plan_.noise_std > model.plan_.noise_std * 0.99
    with pytest.warns(MostlyNoiseWarning, match="method='rounds'"):
        ShuffleRidge(**PLAIN, method="moments", epsilon=0.005).fit(X, y)


def test_it_says_which_way_it_took(people, tmp_path):
    X, y = people
    model = ShuffleRidge(**PLAIN)
    assert "whichever is better by a public rule" in model.explain()
    model.fit(X, y)
    assert "one round" in str(model)
    assert "Made from one round of second moments" in model.explain()
    assert "it was measured to be better" in model.explain()
    with pytest.raises(AttributeError, match="one round of moments"):
        _ = model.result_
    with pytest.raises(AttributeError, match="one round of moments"):
        _ = model.schedule_
    page = html_report(model, X=X, y=y, data_is_public=True)
    assert "Made from one round of second moments" in page
    assert "mean absolute error" in page
    model.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert (again.method_, again.explain()) == ("moments", model.explain())
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    rounds = ShuffleRidge(**PLAIN, epsilon=0.01).fit(X, y)
    assert rounds.method_ == "rounds"
    assert "Trained in rounds: the edge of the noise" in rounds.explain()
    assert "only rounds have" in ShuffleRidge(**PLAIN, rounds=3).fit(X, y).explain()
    assert "second moments" not in ShuffleRidge(**PLAIN, method="rounds").fit(X, y).explain()


def test_edited_files_are_refused(people):
    X, y = people
    stored = json.loads(ShuffleRidge(**PLAIN).fit(X, y).to_json())
    trained = json.loads(ShuffleRidge(**PLAIN, method="rounds").fit(X, y).to_json())

    def refused(values):
        with pytest.raises(ArgumentError):
            ShuffleRidge.from_json(json.dumps(values))

    shifted = json.loads(json.dumps(stored))
    shifted["fitted"]["coef_"]["of"]["values"][0] += 1.0
    refused(shifted)
    both = json.loads(json.dumps(stored))
    both["fitted"]["result_"] = trained["fitted"]["result_"]
    refused(both)
    wider = json.loads(json.dumps(stored))
    wider["fitted"]["n_features_in_"] = 2
    refused(wider)
    bounded = json.loads(json.dumps(stored))
    bounded["fitted"]["solved_with_"]["of"][1] = 0.01
    refused(bounded)


def test_what_is_set_after_a_fit_changes_nothing_of_it(people):
    X, y = people
    for method, epsilon in (("moments", 1.0), ("auto", 0.01), ("auto", 1.0)):
        model = ShuffleRidge(**RANGE, method=method, epsilon=epsilon).fit(X, y)
        text, coef = model.explain(), model.coef_
        model.set_params(epsilon=3.0, l2=0.5, radius=0.1, honest=0.4, delta=1e-9)
        again = ShuffleRidge.from_json(model.to_json())
        np.testing.assert_array_equal(again.coef_, coef)
        assert (again.method_, again.explain(), again.guarantee_) == (model.method_, text, model.guarantee_)


def test_blanks_groups_and_populations(people):
    X, y = people
    blank = ShuffleRidge(**PLAIN, invalid="blank", random_state=0)
    plain = ShuffleRidge(**PLAIN, random_state=0).fit(X, y)
    np.testing.assert_array_equal(blank.fit(X, y).coef_, plain.coef_)
    bad, targets = X.astype(object), y.astype(object)
    bad[3, 0], targets[5] = "text", np.nan
    assert blank.fit(bad, targets).method_ == "moments"
    rows, sent = blank.records(bad, targets)
    assert not np.asarray(blank._query()(rows, sent))[[3, 5]].any()
    grouped = ShuffleRidge(**PLAIN, epsilon=2.0).fit(X, y, groups=np.arange(4_000) // 2)
    assert (grouped.n_users_, grouped.method_) == (2_000, "moments")
    people_in_memory = ArrayPopulation(*plain.records(X, y))
    np.testing.assert_array_equal(clone(plain).fit_population(people_in_memory, 3).coef_, plain.coef_)
    stand_in = ShuffleRidge(**PLAIN).fit_population(SurrogatePopulation(*plain.records(X, y)), 3)
    assert (stand_in.method_, stand_in.guarantee_) == ("moments", None)


@pytest.mark.parametrize("options", [{"method": "moment"}, {"radius": 0.0}, {"l2": -1.0}, {"interactivity": "none"}])
def test_bad_parameters_are_refused_before_anybody_is_asked(people, options):
    account = PrivacyAccount(epsilon=5, delta=1e-5)
    with pytest.raises(cr.ArgumentError, match=next(iter(options))):
        ShuffleRidge(**RANGE, account=account, **options).fit(*people)
    assert account.spent() == 0


@pytest.mark.parametrize("kind", [ShuffleRidge, ShuffleHuberRegressor])
def test_an_intercept_that_is_set_after_the_fit_does_not_spoil_its_file(people, tmp_path, kind):
    model = kind(**RANGE).fit(*people)
    model.set_params(fit_intercept=False).save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert (again.coef_.tolist(), again.intercept_) == (model.coef_.tolist(), model.intercept_)


def test_the_rule_is_of_what_the_next_fit_would_ask(people):
    model = ShuffleRidge(**PLAIN, delta=1e-8).fit(*people)
    assert model.method_for(10**6, 128) == "rounds"
    assert model.set_params(fit_intercept=False).method_for(10**6, 128) == "moments"
    assert model.set_params(callbacks=[]).method_for(10_000, 3) == "moments"
