"""Raw columns: public ranges scale them on the person's side, and a fit that declares nothing about rows says so."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from croupier.estimator import (
    FeatureNormWarning,
    PrivacyAccount,
    ShuffleHuberRegressor,
    ShuffleLinearRegression,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleLogit,
    ShuffleQuantileRegressor,
    ShuffleRidge,
    load_model,
)
from croupier.population import ParquetPopulation
from croupier.report import html_report
from croupier.table import Schema, fit_table
from croupier.validation import ArgumentError

RANGES = [(0, 100), (0, 200_000)]
CLASSIFIERS = [ShuffleLogisticRegression, ShuffleLinearSVC]
REGRESSORS = [ShuffleRidge, ShuffleHuberRegressor, ShuffleQuantileRegressor]
INTERVALS = [ShuffleLinearRegression, ShuffleLogit]


def people(users, seed=0):
    """(age, income), whether they buy, and what they spend: both columns count, in units that differ a thousandfold."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(18, 90, users), np.minimum(rng.lognormal(10.5, 0.5, users), 199_999)])
    score = (X[:, 0] - 54) / 20 + (X[:, 1] - 40_000) / 20_000
    return X, score + 0.4 * rng.logistic(size=users) > 0, 300 + 30 * score + 10 * rng.normal(size=users)


def declared(kind, **options):
    facts = {"classes": [False, True]} if kind in (*CLASSIFIERS, ShuffleLogit) else {"target_range": (0, 800)}
    return kind(**facts | {"epsilon": 1.0, "random_state": 0, "feature_range": RANGES} | options)


def target_of(kind, bought, spent):
    return bought if kind in (*CLASSIFIERS, ShuffleLogit) else spent


@pytest.fixture(scope="module")
def crowd():
    return people(20_000)


@pytest.fixture(scope="module")
def others():
    return people(20_000, seed=1)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_raw_columns_score_as_without_privacy(kind, crowd, others):
    """Fixed seed, so there is no false alarm; a coin toss before there were ranges."""
    best = make_pipeline(StandardScaler(), LogisticRegression()).fit(*crowd[:2]).score(*others[:2])
    assert best > 0.85
    assert declared(kind).fit(*crowd[:2]).score(*others[:2]) > best - 0.02
    assert declared(kind, feature_range=None).fit(*crowd[:2]).score(*others[:2]) < 0.6


@pytest.mark.parametrize("kind", REGRESSORS)
def test_raw_columns_explain_a_target_as_without_privacy(kind, crowd, others):
    (X, _, y), (held, _, truth) = crowd, others
    best = LinearRegression().fit(X, y).score(held, truth)
    assert best > 0.9
    assert declared(kind).fit(X, y).score(held, truth) > best - 0.1


def test_coefficients_are_in_the_units_of_the_columns(crowd):
    X, _, y = crowd
    model = declared(ShuffleRidge, epsilon=4.0).fit(X, y)
    assert np.allclose(model.coef_, [30 / 20, 30 / 20_000], rtol=0.1)
    assert abs(model.intercept_ - (300 - 30 * (54 / 20 + 2))) < 15
    assert np.allclose(model.predict(X), X @ model.coef_ + model.intercept_)  # nobody is outside, no row is too long


@pytest.mark.parametrize("kind", CLASSIFIERS + REGRESSORS + INTERVALS)
@pytest.mark.parametrize("intercept", [True, False])
def test_a_fit_is_that_of_columns_scaled_by_hand(kind, intercept, crowd):
    X, bought, spent = crowd
    X, y = X[:3000] * [1, 2], target_of(kind, bought, spent)[:3000]  # some are outside their range
    half = np.array([50.0, 1e5]) if intercept else np.array([100.0, 2e5])
    by_hand = (np.clip(X, 0, [100, 2e5]) - (half if intercept else 0)) / half
    model = declared(kind, fit_intercept=intercept).fit(X, y)
    same = declared(kind, fit_intercept=intercept, feature_range=None, feature_norm=2**0.5).fit(by_hand, y)
    assert np.allclose(model.coef_ * half, same.coef_, rtol=1e-9)
    assert np.allclose(model.intercept_ + model.coef_ @ (half * intercept), same.intercept_, rtol=1e-9)
    assert (model.predict(X) == same.predict(by_hand)).mean() > 0.999 if kind in CLASSIFIERS else True
    if kind in REGRESSORS:
        assert np.allclose(model.predict(X), same.predict(by_hand))
    assert intercept or not np.any(model.intercept_) or kind in REGRESSORS


@pytest.mark.parametrize("bound", [None, 0.5])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", INTERVALS)
def test_intervals_are_those_of_columns_scaled_by_hand_in_the_columns_units(kind, intercept, bound, crowd):
    X, bought, spent = crowd
    y = target_of(kind, bought, spent)
    half = np.array([50.0, 1e5]) if intercept else np.array([100.0, 2e5])
    by_hand = (X - (half if intercept else 0)) / half
    model = declared(kind, fit_intercept=intercept, coef_bound=bound, epsilon=2.0).fit(X, y)
    same = declared(kind, fit_intercept=intercept, feature_range=None, feature_norm=2**0.5, epsilon=2.0).fit(by_hand, y)
    matrix = np.diag(1 / half)
    if intercept:  # that of somebody in the middle of both ranges becomes that of somebody at 0
        matrix = np.block([[matrix, np.zeros((2, 1))], [-np.ones((1, 2)), np.ones((1, 1))]])
    table, expected = model.summary(0.9), same.summary(0.9).transformed(matrix, model.summary().names)
    assert expected.determined.all()
    for name in ("coef", "std", "intervals", "p_values", "covariance"):
        assert np.allclose(getattr(table, name), getattr(expected, name), rtol=1e-8), name
    assert np.allclose(np.ravel(model.std_), expected.std[:2], rtol=1e-8)
    assert np.allclose(model.intercept_std_, expected.std[2] if intercept else 0.0, rtol=1e-8)
    assert np.allclose(np.append(model.coef_, model.intercept_)[: len(table.coef)], table.coef, rtol=1e-9)


def test_intervals_of_raw_columns_hold_least_squares_and_the_likeliest_slopes(crowd):
    """By scikit-learn on the same people; fixed seeds, and intervals that miss in one of a million fits."""
    X, bought, spent = crowd
    model, plain = declared(ShuffleLinearRegression, epsilon=4.0).fit(X, spent), LinearRegression().fit(X, spent)
    low, high = model.intervals(0.999_999).T
    truth = np.append(plain.coef_, plain.intercept_)
    assert ((low < truth) & (truth < high)).all()
    assert (high - low < [1, 1e-3, 60]).all()
    assert np.allclose(model.predict(X), X @ model.coef_ + model.intercept_)
    scaled = (X - [50, 1e5]) / [50, 1e5]
    logit, fitted = declared(ShuffleLogit, epsilon=8.0).fit(X, bought), LogisticRegression(C=1e6).fit(scaled, bought)
    low, high = logit.intervals(0.999_999).T
    slopes = fitted.coef_[0] / [50, 1e5]
    assert ((low[:2] < slopes) & (slopes < high[:2])).all()
    assert logit.score(X, bought) > 0.85


@pytest.mark.parametrize("kind", INTERVALS)
def test_a_declared_bound_is_about_columns_as_they_come(kind, crowd):
    """With so much noise nothing is decided: intervals are what was declared."""
    X, y = crowd[0][:300], target_of(kind, *crowd[1:])[:300]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = declared(kind, coef_bound=2.0, epsilon=0.1, method="moments").fit(X, y).summary()
    assert not table.determined[:2].any()
    assert (np.abs(table.intervals[:2]) <= 2.0 + 1e-9).all()
    widest = 2.0 if kind is ShuffleLogit else 400 + 400 + 2 * 2.0 * (50 + 1e5) + 2.0 * np.hypot(50, 1e5) * 2**0.5
    assert (np.abs(table.intervals[2]) <= widest + 1e-6).all()


def test_columns_that_exclude_each_other_keep_their_zeros():
    X = np.eye(2)[np.arange(2000) % 2]
    model = ShuffleLinearRegression(target_range=(0, 1), exclusive=[[0, 1]], feature_range=(0, 1))
    with pytest.raises(ArgumentError, match=r"feature_range\[0\] = \(0.0, 1.0\)"):
        model.fit(X, X[:, 0])
    assert model.set_params(feature_range=(-1, 1)).fit(X, X[:, 0]).n_users_ == 2000
    with pytest.raises(ArgumentError, match="feature_range"):
        model.set_params(feature_range=(0.5, 1), fit_intercept=False).fit(X, X[:, 0])


def test_a_smaller_norm_cuts_scaled_rows_in_training_and_prediction(crowd):
    X, y, _ = (part[:3000] for part in crowd)
    model = declared(ShuffleLogisticRegression, feature_norm=0.5, clip=0.3).fit(X, y)
    by_hand = X / [50, 1e5] - 1
    same = declared(ShuffleLogisticRegression, feature_range=None, feature_norm=0.5, clip=0.3).fit(by_hand, y)
    assert np.allclose(model.predict_proba(X), same.predict_proba(by_hand))


def test_clones_pickles_and_files_keep_ranges(crowd, tmp_path):
    X, y, _ = (part[:3000] for part in crowd)
    model = declared(ShuffleLogisticRegression, feature_range=np.array(RANGES)).fit(X, y)
    assert np.array_equal(clone(model).get_params()["feature_range"], RANGES)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    model.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    again.coef_ = again.coef_ * [1, 1.00002]  # income's is about 1e-4: the change is less than a tolerance for weights of about 1
    with pytest.raises(ArgumentError, match="coef_"):
        again.check_learned()
    model.feature_range_ = model.feature_range_ / 2
    with pytest.raises(ArgumentError, match="coef_"):
        model.check_learned()


def test_parquet_rows_are_scaled_where_they_are(crowd, tmp_path):
    """Whole numbers in the file, as ages are."""
    X, y, _ = (part[:3000] for part in crowd)
    X = X.astype(np.int64)
    columns = {"age": X[:, 0], "income": X[:, 1], "bought": y}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "people.parquet")
    model = declared(ShuffleLogisticRegression)
    path = tmp_path / "people.parquet"
    population = ParquetPopulation(path, features=["age", "income"], target="bought", records=model.records)
    streamed = model.fit_population(population, 2)
    assert streamed.score(X, y) > 0.75
    assert np.allclose(streamed.feature_range_, RANGES)


def test_frames_and_reports(crowd):
    X, y, _ = (part[:3000] for part in crowd)
    frame = pandas.DataFrame(X, columns=["age", "income"])
    model = declared(ShuffleLogisticRegression).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["age", "income"]
    assert "200000" in str(html_report(model)).replace(" ", "").replace(",", "")
    assert "scikit" in str(html_report(model, X=X, y=y, data_is_public=True))


def test_sparse_rows_need_ranges_about_0(crowd):
    X, y, _ = (part[:3000] for part in crowd)
    sparse = scipy.sparse.csr_array(X)
    with pytest.raises(ArgumentError, match=r"feature_range\[0\].*zeros stay zeros"):
        declared(ShuffleLogisticRegression).fit(sparse, y)
    about_0 = {"feature_range": [(-100, 100), (-200_000, 200_000)]}
    model = declared(ShuffleLogisticRegression, **about_0).fit(sparse, y)
    assert np.allclose(model.coef_, declared(ShuffleLogisticRegression, **about_0).fit(X, y).coef_)
    assert np.allclose(model.predict_proba(sparse), model.predict_proba(X))


@pytest.mark.parametrize("bad", ["wide", [(0, 1)], [(0, 1)] * 3, (1, 0), [(0, np.nan), (0, 1)], (0, 0)])
def test_bad_ranges_are_refused_before_anything_is_spent(bad, crowd):
    account = PrivacyAccount()
    with pytest.raises(ArgumentError, match="feature_range"):
        declared(ShuffleLogisticRegression, feature_range=bad, account=account).fit(*crowd[:2])
    assert not account.fits


def test_bad_records_are_blank(crowd):
    X, y, _ = (part[:3000].copy() for part in crowd)
    X[7, 0] = np.nan
    model = declared(ShuffleLogisticRegression, invalid="blank").fit(X, y)
    rows, _ = model.records(X, y)
    assert not rows[7].any()
    assert np.abs(rows[:, :2]).max() <= 0.5**0.5 * (1 + 1e-12)


@pytest.mark.parametrize("task", ["classify", "logit"])
@pytest.mark.parametrize("fact", ["feature_range", "feature_norm"])
def test_a_table_has_its_ranges_from_the_schema(task, fact, tmp_path):
    """A second scaling would be of columns that the schema has scaled already."""
    facts = {"target": {"column": "bought", "classes": ["no", "yes"]}, "columns": {"age": {"low": 0, "high": 100}}}
    (tmp_path / "people.csv").write_text("age,bought\n" + "50,no\n60,yes\n" * 20)
    with pytest.raises(ArgumentError, match=f"{fact}.*"):
        fit_table(tmp_path / "people.csv", Schema.from_dict(facts), task=task, epsilon=1.0, **{fact: (0, 1)})


def heard(model, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(entry.message) for entry in caught if entry.category is FeatureNormWarning]


def test_whoever_declares_nothing_about_rows_is_told_the_cure_whatever_the_rows_are(crowd):
    """The warning is the same for long and short rows: one that looked at them would be a release without noise."""
    X, y, _ = (part[:3000] for part in crowd)
    quiet = {"random_state": 0, "classes": [False, True]}
    long = heard(ShuffleLogisticRegression(**quiet), X, y)
    assert len(long) == 1
    assert "feature_range=[" in long[0]
    assert heard(ShuffleLogisticRegression(**quiet), X / 1e6, y) == long
    assert heard(ShuffleRidge(random_state=0, target_range=(0, 1)), X, y * 1.0) == long


@pytest.mark.parametrize("model", [ShuffleLinearRegression(target_range=(0, 1)), ShuffleLogit(classes=[0, 1])])
def test_regressions_with_intervals_warn_of_raw_columns_too(model, crowd):
    X, y = crowd[0][:3000], crowd[1][:3000].astype(int)
    (told,) = heard(clone(model), X, y)
    assert "feature_range=[" in told
    assert heard(clone(model), X / 1e6, y) == [told]
    assert heard(clone(model).set_params(feature_norm=1.0), X, y) == []
    assert heard(clone(model).set_params(feature_range=RANGES), X, y) == []


@pytest.mark.parametrize("facts", [{"feature_norm": 1.0}, {"feature_range": RANGES}])
def test_whoever_declares_is_not_warned(facts, crowd):
    X, y, _ = (part[:3000] for part in crowd)
    assert heard(ShuffleLogisticRegression(random_state=0, classes=[False, True], **facts), X, y) == []
