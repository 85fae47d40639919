"""Public facts are arguments; what a careful person would want of odd ones; what a fitted model says about itself."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import croupier as cr
from croupier.estimator import (
    MostlyNoiseWarning,
    PublicDataWarning,
    ShuffleHuberRegressor,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleQuantileRegressor,
    ShuffleRidge,
    ShuffleScaler,
    WeakPrivacyWarning,
    total_guarantee,
)
from croupier.protocol import VectorSum
from croupier.protocol.randomness import Secret
from croupier.validation import ArgumentError

REGRESSORS = [ShuffleRidge, ShuffleHuberRegressor, ShuffleQuantileRegressor]
BINARY = {"classes": [False, True]}


@pytest.fixture
def nobody_is_asked(monkeypatch):
    """Any round makes the test fail: refusals come first."""

    def run_chunks(*args, **options):
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(VectorSum, "run_chunks", run_chunks)


@pytest.mark.usefixtures("nobody_is_asked")
class TestRefusals:
    @pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleLinearSVC])
    def test_classes_left_out(self, kind, people):
        with pytest.raises(ArgumentError, match=r"classes = None.*classes=\[0, 1\].*data_is_public"):
            kind().fit(people[0], people[1] > 0)

    @pytest.mark.parametrize("kind", REGRESSORS)
    def test_target_range_left_out(self, kind, people):
        with pytest.raises(ArgumentError, match=r"target_range = None.*without having seen the data"):
            kind().fit(*people)

    def test_feature_norm_and_feature_range_left_out(self, people):
        with pytest.raises(ArgumentError, match=r"feature_norm = None.*scaled down"):
            ShuffleLogisticRegression(**BINARY, feature_norm=None).fit(people[0], people[1] > 0)
        with pytest.raises(ArgumentError, match=r"feature_range = None.*clipped"):
            ShuffleScaler().fit(people[0])

    def test_a_class_that_was_not_declared(self, people):
        X, score = people
        with pytest.raises(ArgumentError, match=r"y = 2.*declared classes \[0, 1\].*nobody was asked"):
            ShuffleLogisticRegression(classes=[0, 1]).fit(X, np.digitize(score, [-1, 3]))

    @pytest.mark.parametrize("classes", [[1], [1, 1], [[0, 1]], "yes"])
    def test_classes_that_are_none(self, people, classes):
        with pytest.raises(ArgumentError, match="classes"):
            ShuffleLogisticRegression(classes=classes).fit(people[0], np.ones(5000, dtype=int))

    def test_three_classes_for_two(self, people):
        with pytest.raises(ArgumentError, match="ShuffleLogisticRegression for more classes"):
            ShuffleLinearSVC(classes=[0, 1, 2]).fit(people[0], people[1] > 0)

    @pytest.mark.parametrize("bad", [(1, 1), (2, 1), (0, np.inf), (0, np.nan), 3.0, (1, 2, 3), ("a", "b")])
    def test_target_ranges_that_are_none(self, people, bad):
        with pytest.raises(ArgumentError, match="target_range"):
            ShuffleRidge(target_range=bad).fit(*people)

    @pytest.mark.parametrize("bad", [(1, 1), [(0, 1)] * 2, (0, np.nan), 3.0, "wide"])
    def test_feature_ranges_that_are_none(self, people, bad):
        with pytest.raises(ArgumentError, match="feature_range"):
            ShuffleScaler(feature_range=bad).fit(people[0])

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    @pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleScaler])
    def test_a_missing_or_infinite_feature(self, people, kind, bad):
        X = people[0].copy()
        X[17, 1] = bad
        options = BINARY if kind is ShuffleLogisticRegression else {"feature_range": (-1, 1)}
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            kind(**options).fit(X, people[1] > 0)

    def test_a_missing_target(self, people):
        y = people[1].copy()
        y[3] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            ShuffleRidge(target_range=(-8, 8)).fit(people[0], y)

    @pytest.mark.parametrize("epsilon", [0, -1, np.nan, np.inf, None, "1", 101, True])
    @pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleScaler])
    def test_epsilon_that_promises_nothing(self, people, kind, epsilon):
        options = BINARY if kind is ShuffleLogisticRegression else {"feature_range": (-1, 1)}
        with pytest.raises(ArgumentError, match="epsilon"):
            kind(epsilon=epsilon, **options).fit(people[0], people[1] > 0)

    @pytest.mark.parametrize("delta", [0, 1, -1e-6, 1 / 5000, "small"])
    def test_delta_that_allows_publishing_somebody(self, people, delta):
        with pytest.raises(ArgumentError, match=r"delta.*2e-06 is a careful choice"):
            ShuffleLogisticRegression(delta=delta, **BINARY).fit(people[0], people[1] > 0)

    def test_a_millionth_is_not_for_a_million_users(self):
        with pytest.raises(ArgumentError, match=r"delta = 1e-06.*1e-08 is a careful choice"):
            ShuffleLogisticRegression(classes=[0, 1], delta=1e-6).fit(np.zeros((10**6, 1)), np.zeros(10**6))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("feature_norm", 0),
            ("feature_norm", -1.0),
            ("radius", 0),
            ("l2", -1),
            ("intercept_scaling", 0),
            ("interactivity", "stream"),
            ("method", "newton"),
            ("rule", "guess"),
            ("calibration", "loose"),
            ("neighbours", "some"),
            ("honest", 0),
            ("rounds", 0),
            ("random_state", -1),
            ("random_state", np.random.default_rng(0)),
            ("data_is_public", "yes"),
            ("account", "people.jsonl"),
        ],
    )
    def test_other_arguments(self, people, name, value):
        with pytest.raises(ArgumentError, match=name):
            ShuffleLogisticRegression(**BINARY, **{name: value}).fit(people[0], people[1] > 0)

    def test_own_arguments(self, people):
        X, score = people
        with pytest.raises(ArgumentError, match="kappa"):
            ShuffleHuberRegressor(target_range=(-8, 8), kappa=0).fit(X, score)
        with pytest.raises(ArgumentError, match="quantile"):
            ShuffleQuantileRegressor(target_range=(-8, 8), quantile=1).fit(X, score)
        with pytest.raises(ArgumentError, match="loss"):
            ShuffleLinearSVC(**BINARY, loss="log").fit(X, score > 0)

    def test_one_user(self, people):
        X, score = people
        with pytest.raises(ArgumentError, match="cannot be hidden"):
            ShuffleLogisticRegression(**BINARY).fit(X, score > 0, groups=np.zeros(len(X)))
        with pytest.raises(ValueError, match="minimum of 2"):
            ShuffleLogisticRegression(**BINARY).fit(X[:1], score[:1] > 0)


def test_a_row_of_a_million_is_worth_no_more_than_a_row_of_one(people):
    X, score = people
    long, unit = X.copy(), X.copy()
    long[0], unit[0] = [1e6, 0, 0], [1, 0, 0]
    models = [ShuffleLogisticRegression(**BINARY, random_state=2).fit(rows, score > 0) for rows in (long, unit)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    assert np.isfinite(models[0].predict_proba(long)).all()


def test_a_target_outside_the_range_is_clipped(people):
    X, score = people
    wild, clipped = score.copy(), score.copy()
    wild[0], clipped[0] = 1e300, 8
    models = [ShuffleRidge(target_range=(-8, 8), random_state=2).fit(X, y) for y in (wild, clipped)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_a_constant_column_and_an_empty_one_are_taken_as_they_are(people):
    X, score = people
    X = np.column_stack([X, np.ones(len(X)), np.zeros(len(X))])
    model = ShuffleLogisticRegression(**BINARY, feature_norm=2.0, random_state=0).fit(X, score > 0)
    assert np.isfinite(model.coef_).all()
    assert model.coef_.shape == (1, 5)


def test_two_users_are_protected_and_told_that_it_is_noise():
    with pytest.warns(MostlyNoiseWarning, match="2 users are too few"):
        model = ShuffleLogisticRegression(**BINARY).fit([[0.5], [-0.5]], [True, False])
    assert model.n_users_ == 2
    assert model.guarantee_.delta(1.0) <= 1e-6
    assert np.isfinite(model.coef_).all()


def test_an_epsilon_of_100_is_kept_and_warned_of(people):
    X, score = people
    with pytest.warns(WeakPrivacyWarning, match="epsilon = 100.*factor of 3e"):
        model = ShuffleLogisticRegression(**BINARY, epsilon=100).fit(X, score > 0)
    assert model.guarantee_.delta(100) <= 1e-6


def test_a_declared_class_that_nobody_has(people):
    X, score = people
    model = ShuffleLogisticRegression(classes=["a", "b", "c"], random_state=0).fit(X, np.where(score > 0, "a", "b"))
    assert model.predict_proba(X).shape == (5000, 3)


@pytest.mark.parametrize(("interactivity", "rounds"), [("sequential", None), ("full", 5)])
@pytest.mark.parametrize("honest", [1.0, 0.8])
def test_the_guarantee_is_that_of_the_plans(people, interactivity, rounds, honest):
    X, score = people
    how = {"interactivity": interactivity, "rounds": rounds, "honest": honest, "lots": "open"}
    model = ShuffleLogisticRegression(**BINARY, **how).fit(X, score > 0)
    assert model.guarantee_ == model.result_.guarantee
    assert model.guarantee_.delta(1.0) <= 1e-6
    assert model.guarantee_.epsilon(1e-6) <= 1.0
    assert (model.guarantee_.honest, model.guarantee_.neighbours) == (honest, "replace-one")
    assert model.n_users_ == 5000
    # the same promise by hand: a plan for as many users and rounds, and the chance that a batch falls short of honest users
    plan, short = model.schedule_.phases[0].plan, model.schedule_.shortfall
    request = {"users": plan.users, "dim": 4, "norm": plan.norm, "honest": plan.honest, "rounds": plan.rounds}
    again = cr.plan_sum(epsilon=1.0, delta=1e-6 - short, **request).guarantee
    assert dataclasses.replace(again, slack=again.slack + short, honest=honest) == model.guarantee_
    assert (short > 0) == (honest < 1 and interactivity == "sequential")


def test_noise_is_secure_unless_seeded(people, monkeypatch):
    X, score = people
    made = []
    original = Secret.fresh
    monkeypatch.setattr(Secret, "fresh", lambda: (made.append(1), original())[1])
    first, second = (ShuffleLogisticRegression(**BINARY).fit(X, score > 0).coef_ for _ in range(2))
    assert len(made) == 2
    assert (first != second).any()
    seeded = [ShuffleLogisticRegression(**BINARY, random_state=4).fit(X, score > 0) for _ in range(2)]
    assert len(made) == 2
    np.testing.assert_array_equal(seeded[0].coef_, seeded[1].coef_)
    assert seeded[0].guarantee_ is None
    assert "NOT PRIVATE" in str(seeded[0])
    assert "NOT PRIVATE" in seeded[0].explain()


def test_print_and_explain(people):
    X, score = people
    model = ShuffleLogisticRegression(**BINARY, epsilon=0.5, delta=1e-7, honest=0.9)
    assert str(model).startswith("ShuffleLogisticRegression (not fitted): epsilon = 0.5, delta = 1e-07, neighbours replace-one")
    assert "90 %" in model.explain()
    model.fit(X, score > 0)
    for said in ("5000 users", "epsilon = 0.5", "delta = 1e-07", "neighbours replace-one", "sequential interactivity"):
        assert said in str(model)
    model.set_params(epsilon=0.01)
    assert "epsilon = 0.5" in str(model)  # what was done, not what was set since
    said_of = ("factor of at most 1.65", "shuffler", "colludes", "asked at most once", "90 % of all", "that hold the data")
    for said in said_of:
        assert said in model.explain()
    assert "asked in every round" in ShuffleRidge(interactivity="full").explain()
    scaler = ShuffleScaler(feature_range=(-1, 1), neighbours="zero-out").fit(X)
    assert "one round" in str(scaler)
    assert "having sent nothing but noise" in scaler.explain()


def test_public_data_is_read_loudly_and_the_guarantee_says_so(people):
    X, score = people
    with pytest.warns(PublicDataWarning) as caught:
        model = ShuffleRidge(data_is_public=True, feature_norm=None).fit(4 * X, score)
    assert [str(w.message).split()[0] for w in caught] == ["target_range", "feature_norm"]
    assert model.target_range_ == (score.min(), score.max())
    assert model.feature_norm_ == pytest.approx(4.0)
    assert model.read_off_data_ == ("target_range", "feature_norm")
    for text in (str(model), model.explain(), str(model.guarantee_)):
        assert "target_range, feature_norm" in text
    with pytest.warns(PublicDataWarning):
        classifier = ShuffleLogisticRegression(data_is_public=True, random_state=0).fit(X, score > 0)
    assert classifier.classes_.tolist() == [False, True]
    with pytest.warns(PublicDataWarning):
        scaler = ShuffleScaler(data_is_public=True, random_state=0).fit(X)
    assert scaler.read_off_data_ == ("feature_range",)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicDataWarning)  # nothing is read where everything is declared
        ShuffleLogisticRegression(data_is_public=True, **BINARY, random_state=0).fit(X, score > 0)


def test_a_failed_fit_leaves_no_model_behind(people):
    X, score = people
    model = ShuffleLogisticRegression(**BINARY, random_state=0).fit(X, score > 0)
    with pytest.raises(ArgumentError):
        model.set_params(epsilon=0).fit(X, score > 0)
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "guarantee_")
    assert "not fitted" in str(model)


def test_a_missing_value_is_not_sent_to_an_imputer():
    X = np.full((40, 2), 0.1)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN") as refused:
        ShuffleLogisticRegression(epsilon=1.0, classes=[0, 1], feature_norm=1.0).fit(X, np.arange(40) % 2)
    text = str(refused.value)
    assert text.startswith('X contains NaN; it must be finite in every entry. Pass invalid="blank"')
    assert "sklearn" not in text
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    model = ShuffleLogisticRegression(epsilon=1.0, classes=[0, 1], feature_norm=1.0, random_state=0)
    model.fit(np.full((2_000, 2), 0.1), np.arange(2_000) % 2)
    with pytest.raises(ArgumentError, match="A prediction needs a number in every column"):
        model.predict(X)
    with pytest.raises(ArgumentError, match=r"X contains text; .* fit_table"):
        model.fit([["a", "b"]] * 40, np.arange(40) % 2)


@pytest.mark.parametrize(
    ("step", "remedy"),
    [(SimpleImputer(), 'invalid="blank"'), (OneHotEncoder(), "every category"), (StandardScaler(), "ShuffleScaler")],
)
def test_a_step_that_learns_is_refused_with_what_does_its_work(step, remedy):
    X, y = np.column_stack([np.arange(2_000) % 2, np.arange(2_000) % 3]) / 4, np.arange(2_000) % 2
    model = make_pipeline(step, ShuffleLogisticRegression(epsilon=1.0, classes=[0, 1], feature_norm=1.0)).fit(X, y)
    with pytest.raises(ArgumentError, match=remedy):
        total_guarantee(model)
