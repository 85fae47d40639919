"""Linear regression in one round: the right coefficients, and intervals that cover, infinite ones where nothing is known."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from scipy.stats import binom, norm

import croupier as cr
from croupier.estimator import PrivacyAccount, ShuffleLinearRegression, load_model
from croupier.privacy._ledger import BudgetExceededError
from croupier.statistics import Moments
from croupier.statistics.asking import plan_for
from croupier.statistics.moments import least_squares


def world(rng, users, features, *, spread=0.1):
    X = rng.normal(size=(users, features))
    X *= rng.random((users, 1)) ** (1 / features) / np.linalg.norm(X, axis=1, keepdims=True)
    coef = rng.normal(size=features) / np.sqrt(features) / 2
    return X, 0.1 + X @ coef + rng.normal(scale=spread, size=users), coef


@pytest.fixture(scope="module")
def fitted():
    X, y, coef = world(np.random.default_rng(0), 20_000, 4)
    model = ShuffleLinearRegression(epsilon=2.0, target_range=(-9, 11), random_state=0)
    return model.fit(X, 10 * y + 1), X, 10 * y + 1, 10 * coef


def test_coefficients_and_predictions_are_in_the_units_of_the_data(fitted):
    model, X, y, coef = fitted
    assert np.abs(model.coef_ - coef).max() < 6 * model.std_.max()
    assert abs(model.intercept_ - 2.0) < 6 * model.intercept_std_
    assert model.predict(X[:5]) == pytest.approx(X[:5] @ model.coef_ + model.intercept_)
    assert model.score(X, y) == pytest.approx(model.summary().r2, abs=0.05)


def test_the_summary_is_the_table_that_statisticians_know(fitted):
    model, *_ = fitted
    table = model.summary(0.9)
    text = str(table)
    assert "std err" in text
    assert "P>|z|" in text
    assert "(intercept)" in text
    assert "NOT PRIVATE (" in text
    assert table.intervals[:, 1] - table.intervals[:, 0] == pytest.approx(2 * 1.6449 * table.std, rel=1e-3)
    assert np.append(model.coef_, model.intercept_) == pytest.approx(table.coef)
    assert model.intervals(0.9) == pytest.approx(table.intervals)


def test_some_columns_afterwards_are_free_and_the_right_regression(fitted):
    model, X, y, _ = fitted
    table = model.summary(columns=[2, 0])
    assert table.names == ("x2", "x0", "(intercept)")
    truth = np.linalg.lstsq(np.column_stack([X[:, [2, 0]], np.ones(len(X))]), y, rcond=None)[0]
    assert np.abs(table.coef - truth).max() < 6 * table.std.max()
    for bad in ([], [0, 0], [4], ["x"]):
        with pytest.raises(cr.ArgumentError, match="columns"):
            model.summary(columns=bad)


def test_several_declared_targets():
    X, y, coef = world(np.random.default_rng(1), 30_000, 3)
    targets = np.column_stack([y, -2 * y])
    model = ShuffleLinearRegression(epsilon=4.0, target_range=[(-1, 1), (-2, 2)], random_state=2).fit(X, targets)
    assert model.coef_.shape == model.std_.shape == (2, 3)
    assert model.predict(X[:7]).shape == (7, 2)
    assert np.abs(model.coef_ - [coef, -2 * coef]).max() < 6 * model.std_.max()
    assert model.summary(target=1).coef[:3] == pytest.approx(model.coef_[1])
    with pytest.raises(cr.ArgumentError, match=r"y\.shape"):
        ShuffleLinearRegression(target_range=(-1, 1)).fit(X, targets)


@pytest.mark.parametrize(("users", "features", "epsilon"), [(10_000, 5, 0.5), (10_000, 5, 4.0), (20_000, 20, 1.0)])
def test_95_per_cent_intervals_cover_92_to_98(users, features, epsilon):
    """Many populations, the plan's noise as Gaussian, fixed seeds: nothing here can change from run to run."""
    rng = np.random.default_rng(users + features)
    query = Moments(features + 1)
    plan = plan_for(query, users, epsilon=epsilon, delta=1e-6)
    covered = []
    for _ in range(40 if features == 5 else 12):
        X, y, coef = world(rng, users, features)
        rows = np.column_stack([X, np.ones(users)]) / np.sqrt(2)
        total = sum(query(rows[i : i + 5_000], y[i : i + 5_000]).sum(axis=0) for i in range(0, users, 5_000))
        noisy = cr.SumEstimate(sum=rng.normal(total, plan.noise_std), users=users, noise_std=plan.noise_std, guarantee=None)
        found, truth = least_squares(query.decode(noisy)), np.sqrt(2) * np.append(coef, 0.1)
        low, high = found.intervals().T
        covered += ((low <= truth) & (truth <= high))[found.determined].tolist()
    assert len(covered) > 200
    assert 0.92 <= np.mean(covered) <= 0.98


def test_intervals_of_the_protocol_itself_cover():
    """Real rounds, not a stand-in: 30 fits, 6 coefficients each; fewer than 150 of 180 covered has probability below 1e-6."""
    rng, covered = np.random.default_rng(3), 0
    for seed in range(30):
        X, y, coef = world(rng, 3_000, 5)
        model = ShuffleLinearRegression(epsilon=4.0, target_range=(-1, 1), random_state=seed).fit(X, y)
        low, high = model.intervals().T
        covered += int(((low <= np.append(coef, 0.1)) & (np.append(coef, 0.1) <= high)).sum())
    assert binom.cdf(149, 180, 0.95) < 1e-6
    assert covered >= 150


def test_where_nothing_can_be_told_it_says_so():
    """Two columns that are the same: their sum is determined by the data, neither of them is."""
    X, y, _ = world(np.random.default_rng(4), 5_000, 2)
    twice = np.column_stack([X[:, 0], X[:, 0], X[:, 1]]) / 1.5
    model = ShuffleLinearRegression(epsilon=4.0, target_range=(-1, 1), random_state=0).fit(twice, y)
    table = model.summary()
    assert table.determined.tolist() == [False, False, True, True]
    assert table.intervals[:2].tolist() == [[-np.inf, np.inf]] * 2
    assert np.isinf(model.std_[:2]).all()
    assert table.p_values[:2].tolist() == [1.0, 1.0]
    assert str(table).count("(-inf, inf)") == 2
    assert "The data do not decide 2 of 4 coefficients" in str(table)
    assert [row["interval"] == [None, None] for row in table.to_dict()["rows"]] == [True, True, False, False]
    assert [row["decided"] for row in table.to_dict()["rows"]] == table.determined.tolist()
    json.loads(json.dumps(table.to_dict(), allow_nan=False))
    nothing = ShuffleLinearRegression(epsilon=0.1, target_range=(-1, 1), random_state=0).fit(X[:300], y[:300])
    assert not nothing.summary().determined[:2].any()


def test_saved_and_read_again_it_is_the_same_and_a_changed_file_is_refused(tmp_path):
    X, y, _ = world(np.random.default_rng(5), 3_000, 3)
    with pytest.raises(cr.ArgumentError, match=r"exclusive = 3 .* at most 2"):  # the constant is no column of X
        ShuffleLinearRegression(target_range=(-1, 1), exclusive=[[0, 3]]).plan(20_000, 3)
    model = ShuffleLinearRegression(target_range=(-1, 1), exclusive=[[0, 1]]).fit(X * [1, 0, 1], y)
    assert model.guarantee_ is not None
    assert "NOT PRIVATE" not in str(model.summary())
    model.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert again.guarantee_ == model.guarantee_
    assert np.array_equal(again.predict(X), model.predict(X))
    text = (tmp_path / "model.json").read_text()
    changed = text.replace(repr(float(model.coef_[0])), repr(float(model.coef_[0]) + 1e-3))
    assert changed != text
    with pytest.raises(cr.ArgumentError, match="coef_"):
        ShuffleLinearRegression.from_json(changed)


def test_the_account_counts_it_and_explain_says_how_users_are_asked():
    X, y, _ = world(np.random.default_rng(6), 2_000, 2)
    account = PrivacyAccount(epsilon=1.2, delta=1e-5)
    model = ShuffleLinearRegression(target_range=(-1, 1), account=account).fit(X, y)
    assert "Each user is asked once" in model.explain()
    with pytest.raises(BudgetExceededError):
        ShuffleLinearRegression(target_range=(-1, 1), account=account).fit(X, y)
    with pytest.raises(cr.ArgumentError, match="target_range"):
        ShuffleLinearRegression(account=PrivacyAccount()).fit(X, y)


def test_people_elsewhere_and_people_with_several_rows():
    X, y, _ = world(np.random.default_rng(7), 4_000, 3)
    model = ShuffleLinearRegression(method="moments", target_range=(-1, 1), random_state=1)
    here = model.fit(X, y).coef_.copy()
    rows, targets = model.records(X, y)
    assert np.array_equal(model.fit_population(cr.population.ArrayPopulation(rows, targets), 3).coef_, here)
    assert model.fit(X, y, groups=np.arange(4_000) // 2).n_users_ == 2_000


@pytest.mark.parametrize("targets", [1, 2])
def test_a_record_that_is_not_valid_counts_as_zeros(targets):
    """Valid records give the same model either way; a bad one is the zero vector, inside the range whatever it holds."""
    X, y, _ = world(np.random.default_rng(6), 2_000, 2)
    ranges = [(-1.0, 1.0)] * targets
    table = np.column_stack([y] * targets) if targets > 1 else y
    options = {"target_range": ranges, "random_state": 0}
    plain, blank = (ShuffleLinearRegression(**options, invalid=how).fit(X, table) for how in ("refuse", "blank"))
    np.testing.assert_array_equal(plain.coef_, blank.coef_)
    bad_rows, bad_targets = X.astype(object), table.astype(object)
    bad_rows[3, 0], bad_rows[4, 1], bad_targets[5] = "text", np.inf, np.nan
    with pytest.raises(ValueError, match="X contains text"):
        ShuffleLinearRegression(**options).fit(bad_rows, table)
    model = ShuffleLinearRegression(**options, invalid="blank")
    rows, sent = model.records(bad_rows, bad_targets)
    query = Moments(3, targets)
    vectors = query(np.asarray(rows, dtype=float), sent)
    assert not vectors[3:6].any()
    assert vectors[:3].any(axis=1).all()
    model.fit(bad_rows, bad_targets)
    assert np.abs(model.coef_ - plain.coef_).max() < 0.1
    assert "Assumptions about the records: none" in model.explain()
    with pytest.raises(cr.ArgumentError, match="target_range"):
        ShuffleLinearRegression(invalid="blank").fit(X, y)


@pytest.mark.parametrize(("intercept", "ends", "told"), [(50.0, (0, 100), True), (0.0, (-50, 150), False)])
def test_the_p_value_of_the_intercept_is_of_the_intercept_that_is_shown(intercept, ends, told):
    """It was of the intercept in the model's own units: that the intercept is the middle of the target's range."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(20_000, 2)) / 1.5
    y = intercept + 30 * X[:, 0] + rng.normal(scale=5, size=20_000)
    table = ShuffleLinearRegression(target_range=ends, epsilon=2.0, random_state=0).fit(X, y).summary()
    assert table.p_values == pytest.approx(2 * norm.sf(np.abs(table.coef / table.std)))
    assert (table.p_values[-1] < 1e-9) == told


def test_r2_has_an_error_bar_that_holds():
    """Where the target fills little of its range, R^2 of one round is off by tenths; the printed bar says so."""
    shown, bars = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, size=(5_000, 2)) / 1.5
        y = 2 * X[:, 0] + rng.normal(scale=0.5, size=5_000)
        table = ShuffleLinearRegression(target_range=(-6, 6), epsilon=2.0, random_state=seed).fit(X, y).summary()
        shown.append(table.r2)
        bars.append(table.r2_std)
        assert f"{table.r2:.3f} +- {1.96 * table.r2_std:.2g}" in str(table)
    variance = 4 / 3 / 1.5**2
    errors = (np.array(shown) - variance / (variance + 0.25)) / bars
    assert np.abs(errors).max() < 5
    assert 0.6 < errors.std() < 1.5
    assert np.std(shown) > 0.05


@pytest.mark.parametrize("odd", ["a text", [1, 2], np.array([1.0, 2.0]), 1 + 2j, np.longdouble("1e4000"), None])
@pytest.mark.parametrize("method", ["moments", "rounds"])
def test_a_target_that_is_none_changes_no_other_record(odd, method):
    """The attack: one text in a list of booleans made texts of all of them, so that everybody was blank; a list in it was an error,
    and a complex number a warning."""
    X = np.random.default_rng(0).uniform(-1, 1, size=(1000, 2))
    targets = [bool(number) for number in X[:, 0] > 0]
    options = {"epsilon": 8.0, "target_range": (0, 1), "feature_range": [(-1, 1)] * 2, "method": method, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", cr.protocol.NotPrivateWarning)
        warnings.simplefilter("ignore", cr.estimator.intervals.WideIntervalsWarning)  # by the plan
        models = [ShuffleLinearRegression(**options, invalid="blank").fit(X, [*targets[:-1], last]) for last in (float("nan"), odd)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
