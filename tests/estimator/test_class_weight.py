"""Public weights of classes: rare ones are found, nobody's gradient grows, and weights read off the data are refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from benchmarks.surrogate import SurrogatePopulation
from croupier import ArgumentError
from croupier.estimator import ShuffleLinearSVC, ShuffleLogisticRegression, load_model
from croupier.problem import CappedLogistic
from croupier.problem.classification import Weighted


@pytest.fixture(scope="module")
def patients():
    """Rows of length 1, and an illness that 4 % have."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    ill = X @ [6.0, -4.0, 0.0, 0.0] + rng.logistic(size=len(X))
    return X, np.where(ill > np.quantile(ill, 0.96), "ill", "well")


def fitted(kind, patients, **options):
    X, y = patients
    model = kind(classes=["ill", "well"], random_state=0, **options)
    return model.fit_population(SurrogatePopulation(*model.records(X, y)), X.shape[1])


@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleLinearSVC])
def test_a_rare_class_is_found_with_its_weight(kind, patients):
    X, y = patients
    for weights, least, most in ((None, 0.0, 0.45), ({"ill": 25}, 0.7, 1.0)):
        model = fitted(kind, patients, class_weight=weights, epsilon=4.0, interactivity="full", rounds=30)
        found = np.mean(model.predict(X)[y == "ill"] == "ill")
        assert least <= found <= most, (weights, found)
        assert np.mean(model.predict(X)[y == "well"] == "well") > 0.7


def test_the_plan_and_the_guarantee_are_those_without_weights(patients):
    """The largest weight is 1, so that the norm to which gradients are clipped is that of the loss."""
    plain, weighted = (
        ShuffleLogisticRegression(classes=["ill", "well"], class_weight=weights, rounds=10, curvature=0.05).plan(20_000, 4)
        for weights in (None, {"ill": 25, "well": 2})
    )
    assert weighted == plain
    problem = ShuffleLogisticRegression(classes=["ill", "well"], class_weight={"ill": 25, "well": 2}).problem_for(4)
    assert problem.loss == Weighted(CappedLogistic(), (1.0, 0.08))


@pytest.mark.parametrize("classes", [["ill", "well"], ["ill", "other", "well"]])
def test_no_gradient_is_longer_than_the_plan_covers(patients, classes):
    X, y = patients
    model = ShuffleLogisticRegression(classes=classes, class_weight={"ill": 1e4, "well": 1e-4}, clip=10.0)
    problem = model.problem_for(4)
    rows, targets = model.records(X, y)
    rng = np.random.default_rng(1)
    norm = model.plan(20_000, 4).phases[0].plan.norm
    for _ in range(5):
        theta = problem.domain.project(rng.normal(size=problem.dim) * 30)
        assert np.linalg.norm(problem.gradients(theta, rows, targets), axis=1).max() <= norm


@pytest.mark.usefixtures("without_noise")
def test_without_noise_it_is_scikit_learns_weighted_fit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = (X @ [3.0, -2.0, 0.0] - 2.0 + rng.logistic(size=4000) > 0).astype(int)
    weights = {1: 5.0}
    model = ShuffleLogisticRegression(
        classes=[0, 1], class_weight=weights, clip=10.0, interactivity="full", rounds=1000, curvature=0.05, epsilon=10.0
    ).fit(X, y)
    plain = LogisticRegression(C=1e6, class_weight=weights).fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=0.05)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=0.02)


@pytest.mark.usefixtures("without_noise")
def test_probabilities_undo_what_clipping_did_to_weighted_classes():
    """Nobody's features say anything: the weighted share of class 1 is what the intercept has to find, however tight the clip."""
    X = np.tile([[0.5, 0.0], [-0.5, 0.0]], (2000, 1))
    y = np.repeat([0, 1, 0, 0], 1000)
    expected = 0.25 * 3 / (0.25 * 3 + 0.75)
    for clip in (10.0, 0.15):
        model = ShuffleLogisticRegression(
            classes=[0, 1], class_weight={1: 3.0}, clip=clip, interactivity="full", rounds=400, epsilon=10.0
        ).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X[:2]).mean(axis=0)[1], expected, atol=0.01)


@pytest.mark.parametrize("weights", ["balanced", {"ill": 0}, {"ill": -1}, {"sick": 2}, {"ill": "2"}, [1, 2], {"ill": np.inf}])
def test_weights_that_are_none_or_are_read_off_the_data_are_refused(weights, patients):
    with pytest.raises(ArgumentError, match="class_weight"):
        ShuffleLogisticRegression(classes=["ill", "well"], class_weight=weights).fit(*patients)


def test_balanced_is_answered_with_the_remedy(patients):
    with pytest.raises(ArgumentError, match=r"'balanced' would count the classes in the data"):
        ShuffleLinearSVC(classes=["ill", "well"], class_weight="balanced").fit(*patients)


@pytest.mark.parametrize("classes", [[0, 1], [False, True], ["a", "b"]])
def test_weights_are_cloned_and_saved_with_their_classes(classes, tmp_path):
    X = np.random.default_rng(0).normal(size=(2000, 2)) / 3
    model = ShuffleLogisticRegression(classes=classes, class_weight={classes[1]: 3.0}, rounds=2)
    assert clone(model).class_weight == model.class_weight
    model.fit(X, np.where(X[:, 0] > 0, classes[1], classes[0]))
    model.save(tmp_path / "m.json")
    again = load_model(tmp_path / "m.json")
    assert again.class_weight == model.class_weight
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
