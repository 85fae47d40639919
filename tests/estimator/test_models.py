"""What is learned, by independent routes: scikit-learn's and scipy's solvers without noise, the optimizer itself with noise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from sklearn.linear_model import LogisticRegression, QuantileRegressor, Ridge
from sklearn.metrics import mean_pinball_loss
from sklearn.svm import LinearSVC

import croupier as cr
from croupier.estimator import (
    PublicDataWarning,
    ShuffleHuberRegressor,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleQuantileRegressor,
    ShuffleRidge,
)
from croupier.optimizer import StopTraining
from croupier.population import ArrayPopulation
from croupier.problem.problem import clip_rows

# Full interactivity and the weakest promise allowed: steps large enough to converge. Without noise there is nothing private.
SOLVE = {"rule": "bound", "epsilon": 100.0, "interactivity": "full", "rounds": 400, "radius": 20.0, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore::croupier.estimator.WeakPrivacyWarning")


@pytest.mark.usefixtures("without_noise")
class TestAgainstOtherSolvers:
    def test_binary_logistic_regression(self, people):
        X, score = people
        y = score > 0
        ours = ShuffleLogisticRegression(classes=[False, True], **SOLVE).fit(X, y)
        theirs = LogisticRegression(C=np.inf).fit(X, y)
        assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() < 0.02
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.2)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=0.1)

    def test_multinomial_logistic_regression(self, people):
        X, score = people
        y = np.digitize(score, [-1.0, 1.0])
        ours = ShuffleLogisticRegression(classes=[0, 1, 2], **SOLVE).fit(X, y)
        theirs = LogisticRegression(C=np.inf).fit(X, y)
        assert ours.coef_.shape == (3, 3)
        assert ours.intercept_.shape == (3,)
        assert np.abs(ours.predict_proba(X) - theirs.predict_proba(X)).max() < 0.05

    @pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "smoothed_hinge"])
    def test_support_vector_machine(self, people, loss):
        X, score = people
        y = np.where(score > 0, "in", "out")
        ours = ShuffleLinearSVC(classes=["in", "out"], loss=loss, **SOLVE).fit(X, y)
        theirs = LinearSVC(loss=loss.removeprefix("smoothed_"), C=1.0, max_iter=100_000, random_state=0).fit(X, y)
        assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.97

    def test_ridge(self, people):
        X, score = people
        y = 100 + 10 * score
        options = SOLVE | {"radius": 4.0, "l2": 0.01, "method": "acsa"}
        ours = ShuffleRidge(target_range=(-100, 100), fit_intercept=False, **options).fit(X, y - 100)
        # About 0 and without an intercept, so that both regularise the same weights
        theirs = Ridge(alpha=0.01 * len(X), fit_intercept=False).fit(X, y - 100)
        assert ours.intercept_ == 0
        ours_too = ShuffleRidge(target_range=(0, 200), **options | {"l2": 0.0}).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0.02, atol=0.3)
        np.testing.assert_allclose(ours_too.predict(X), Ridge(alpha=0.0).fit(X, y).predict(X), atol=1.0)

    def test_huber(self, people):
        X, score = people
        y = 100 + 10 * score
        y[::10] = 190  # outliers
        ours = ShuffleHuberRegressor(target_range=(0, 200), kappa=0.05, **SOLVE).fit(X, y)
        A = np.column_stack([X, np.ones(len(X))])

        def objective(w):
            r = A @ w - y
            return np.mean(np.where(np.abs(r) <= 10, r**2 / 2, 10 * (np.abs(r) - 5)))

        best = scipy.optimize.minimize(objective, np.array([0.0, 0, 0, 100]), method="Powell", options={"xtol": 1e-8}).x
        np.testing.assert_allclose(ours.predict(X), A @ best, atol=1.0)
        assert np.abs(ours.predict(X) - (105 + X @ [30, -20, 0])).mean() < 3

    @pytest.mark.parametrize("quantile", [0.5, 0.9])
    def test_quantile(self, people, quantile):
        X, score = people
        X, y = X[:1500], 100 + 10 * score[:1500]
        ours = ShuffleQuantileRegressor(target_range=(0, 200), quantile=quantile, **SOLVE | {"radius": 1.0}).fit(X, y)
        theirs = QuantileRegressor(quantile=quantile, alpha=0.0).fit(X, y)
        assert abs(np.mean(y <= ours.predict(X)) - quantile) < 0.03
        ours_loss, theirs_loss = (mean_pinball_loss(y, model.predict(X), alpha=quantile) for model in (ours, theirs))
        assert theirs_loss <= ours_loss * (1 + 1e-9)
        assert ours_loss < 1.1 * theirs_loss

    def test_the_unit_of_features_and_targets_does_not_matter(self, people):
        X, score = people
        model = ShuffleHuberRegressor(target_range=(-10, 10), **SOLVE).fit(X, score)
        other = ShuffleHuberRegressor(target_range=(0, 2000), feature_norm=50.0, **SOLVE).fit(50 * X, 1000 + 100 * score)
        np.testing.assert_allclose(other.predict(50 * X), 1000 + 100 * model.predict(X), rtol=1e-9)
        np.testing.assert_allclose(other.coef_, 2 * model.coef_, rtol=1e-9)


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_the_estimator_is_the_optimizer(people, interactivity):
    X, score = people
    y = score > 0
    rounds = 20 if interactivity == "full" else None
    model = ShuffleLogisticRegression(
        classes=[False, True], fit_intercept=False, interactivity=interactivity, rounds=rounds, random_state=7
    ).fit(X, y)
    problem = cr.Problem(loss=cr.losses.CappedLogistic(), domain=cr.domains.Ball(dim=3, radius=50.0))
    result = cr.minimize(
        problem, (X, y), epsilon=1.0, delta=1e-6, interactivity=interactivity, rounds=rounds, seed=7, rule="practical"
    )
    np.testing.assert_array_equal(model.coef_[0], result.theta)
    assert model.schedule_ == result.schedule
    assert model.intercept_ == 0


def test_coefficients_and_intercept_are_those_of_the_rows_as_they_come(people):
    X, score = people
    model = ShuffleLogisticRegression(classes=[False, True], feature_norm=4.0, intercept_scaling=0.5, random_state=1).fit(
        X, score > 0
    )
    theta = model.result_.theta
    rows = np.column_stack([X / 4, np.full(len(X), 0.5)])
    np.testing.assert_allclose(model.decision_function(X), rows @ theta, rtol=1e-12, atol=1e-14)  # scores near 0 have rounding
    assert model.schedule_.phases[-1].plan.dim == 4


def test_rows_are_scaled_down_in_prediction_as_in_training(people):
    X, score = people
    model = ShuffleLogisticRegression(classes=[False, True], random_state=1).fit(X, score > 0)
    np.testing.assert_allclose(model.decision_function(1e6 * X), model.decision_function(X / np.linalg.norm(X, axis=1)[:, None]))


@pytest.mark.parametrize("big", [1.0, 1e6, 1e200, 1e307])
def test_clipping_keeps_direction_and_length_for_any_size(big):
    X = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-5.0, 12.0]]) * [[big], [1], [1], [big]]
    expected = np.array([[0.6, 0.8], [0.3, 0.4], [0, 0], [-5 / 13, 12 / 13]])
    np.testing.assert_allclose(clip_rows(X, 1.0), expected, rtol=1e-12)
    np.testing.assert_allclose(clip_rows(scipy.sparse.csr_array(X), 1.0).toarray(), expected, rtol=1e-12)
    np.testing.assert_allclose(clip_rows(scipy.sparse.csr_matrix(X), 1.0).toarray(), expected, rtol=1e-12)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1.5, 1e4, 1e30])
def test_a_long_row_does_not_touch_other_peoples(make, dtype, size):
    """Neither their bits nor their type, by which the rows that a problem gets are read."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 5)) * (rng.random((30, 5)) < 0.7)
    rows = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 0.1) * rng.choice([0.5, 1.0], (30, 1))).astype(dtype)
    longer = rows.copy()
    longer[7] *= np.asarray(size, dtype=dtype) / np.max(np.abs(rows[7]))
    before, after = clip_rows(make(rows), 1.0), clip_rows(make(longer), 1.0)
    assert before.dtype == after.dtype == dtype
    before, after = (np.asarray(X.toarray() if scipy.sparse.issparse(X) else X) for X in (before, after))
    assert np.delete(before, 7, axis=0).tobytes() == np.delete(after, 7, axis=0).tobytes()
    assert np.linalg.norm(after[7].astype(np.float64)) == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(after[7] * np.linalg.norm(rows[7]), rows[7], rtol=1e-5)


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("norm", [1.0, 3.0])
def test_no_ones_record_moves_anybody_elses_in_a_fit(make, dtype, intercept, norm, monkeypatch):
    """What the population is given: bit for bit, whoever else takes part."""
    seen = []
    original = ArrayPopulation.__init__

    def spy(self, X, *arguments, **options):
        seen.append(X.toarray() if scipy.sparse.issparse(X) else np.array(X))
        original(self, X, *arguments, **options)

    monkeypatch.setattr(ArrayPopulation, "__init__", spy)
    rng = np.random.default_rng(1)
    rows, y = (rng.normal(size=(400, 4)) * norm / 4).astype(dtype), rng.integers(0, 2, 400)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) / norm).astype(dtype)
    longer = rows.copy()
    longer[3] *= 40
    for X in (rows, longer):
        model = ShuffleLogisticRegression(classes=[0, 1], feature_norm=norm, fit_intercept=intercept, rounds=2, random_state=0)
        model.fit(make(X), y)
    before, after = seen
    assert before.dtype == after.dtype
    assert np.delete(before, 3, axis=0).tobytes() == np.delete(after, 3, axis=0).tobytes()


def test_the_norm_of_huge_rows_in_single_precision_can_be_read_off():
    X = (np.random.default_rng(0).normal(size=(3000, 3)) * 1e25).astype(np.float32)
    model = ShuffleLogisticRegression(classes=[0, 1], feature_norm=None, data_is_public=True, rounds=2, random_state=0)
    with pytest.warns(PublicDataWarning):
        model.fit(X, X[:, 0] > 0)
    assert model.feature_norm_ == pytest.approx(np.linalg.norm(X.astype(np.float64), axis=1).max())


def test_probabilities_add_up_and_follow_the_classes(people):
    X, score = people
    names = np.array(["low", "mid", "top"])[np.digitize(score, [-1.0, 1.0])]
    model = ShuffleLogisticRegression(classes=["top", "mid", "low"], random_state=3).fit(X, names)
    assert model.classes_.tolist() == ["low", "mid", "top"]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert (model.predict(X) == model.classes_[model.predict_proba(X).argmax(axis=1)]).all()
    binary = ShuffleLogisticRegression(classes=[False, True], random_state=3).fit(X, score > 0)
    assert (binary.predict(X) == (binary.predict_proba(X)[:, 1] > 0.5)).all()
    assert binary.score(X, score > 0) > 0.7


def test_strong_convexity_gives_a_phased_run_where_bounds_are_wanted(people):
    X, score = people
    model = ShuffleRidge(target_range=(-8, 8), l2=0.5, rule="bound", random_state=0).fit(X, score)
    assert model.result_.method == "phased"


def test_training_that_is_stopped_gives_a_model_with_the_guarantee_of_what_was_released(people):
    X, score = people
    seen = []

    def stop(done):
        seen.append(done.index)
        if len(seen) == 2:
            raise StopTraining

    model = ShuffleLogisticRegression(classes=[False, True], rounds=10, callbacks=(stop,)).fit(X, score > 0)
    assert seen == [1, 2]
    assert model.result_.stopped
    assert model.guarantee_.delta(1.0) <= 1e-6
    assert "cut short after 2 of 10 rounds" in model.explain()
    assert model.predict(X).shape == (5000,)


@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleRidge])
def test_on_round_hears_of_rounds_after_the_callbacks_and_may_stop(people, kind):
    X, score = people
    heard = []

    def stop(done):
        heard.append(("on_round", done.index))
        if done.index == 2:
            raise StopTraining

    facts = {"target_range": (-8, 8), "method": "rounds"} if kind is ShuffleRidge else {"classes": [False, True]}
    model = kind(feature_norm=4.0, rounds=10, callbacks=(lambda done: heard.append(("callback", done.index)),), **facts)
    given = model.callbacks
    y = score if kind is ShuffleRidge else score > 0
    model.fit_population(ArrayPopulation(*model.records(X, y)), X.shape[1], on_round=stop)
    assert heard == [("callback", 1), ("on_round", 1), ("callback", 2), ("on_round", 2)]
    assert (model.result_.rounds, model.callbacks) == (2, given)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_undo_the_clipping(classes):
    """People whose labels follow a softmax: undoing the clipping removes more than half of what it adds to the log-loss. (Not all:
    under the clipped loss the best scores are not linear any more.) Seeded, so it cannot flake."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20_000, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    scores = 3 * X @ rng.normal(size=(3, classes))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    y = (shares.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    model = ShuffleLogisticRegression(
        epsilon=8.0,
        classes=list(range(classes)),
        radius=10.0,
        rounds=30,
        interactivity="full",
        random_state=1,
        clip=np.sqrt(2 if classes > 2 else 1) * np.sqrt(1 - 1 / classes),
    ).fit(X, y)
    found = X @ model.coef_.T + model.intercept_
    found = np.column_stack([np.zeros(len(X)), found]) if classes == 2 else found
    raw = np.exp(found) / np.exp(found).sum(axis=1, keepdims=True)

    def excess(predicted):
        return np.mean(np.log(shares[np.arange(len(y)), y]) - np.log(predicted[np.arange(len(y)), y]))

    assert 0 < excess(model.predict_proba(X)) < excess(raw) / 2


def test_probabilities_of_an_unclipped_model_are_the_softmax_of_its_scores():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(5000, 3)) / 4
    model = ShuffleLogisticRegression(classes=[0, 1], clip=100.0, random_state=1).fit(X, (X[:, 0] > 0).astype(int))
    assert np.allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-model.decision_function(X))), rtol=1e-12)


def test_of_the_logistic_loss_itself_coefficients_are_a_logistic_models_parameters():
    """Without clipping and by cautious steps: within 10 per cent."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 2))
    y = rng.random(30_000) < 1 / (1 + np.exp(-(X @ [1.0, -0.5] + 0.5)))
    options = {"epsilon": 8.0, "classes": [False, True], "feature_norm": 4.0, "interactivity": "full", "random_state": 0}
    model = ShuffleLogisticRegression(**options, clip=2.0, curvature=0.25, rounds=60).fit(X, y)
    assert np.append(model.coef_[0], model.intercept_) == pytest.approx([1.0, -0.5, 0.5], rel=0.1)
    assert model.predict_proba(X)[:, 1] == pytest.approx(1 / (1 + np.exp(-model.decision_function(X))))
