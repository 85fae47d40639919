"""Coefficients of logistic regression are those of the model that labels come from, and scores are log-odds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn.metrics import roc_auc_score

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation
from croupier.estimator import ShuffleLogisticRegression, load_model
from croupier.validation import ArgumentError


def fitted(X, y, **options):
    """A default fit with the plans' noise, Gaussian and seeded."""
    model = ShuffleLogisticRegression(classes=np.unique(y).tolist(), random_state=0, **options)
    return model.fit_population(SurrogatePopulation(*model.records(X, y)), X.shape[1])


def relative(found, truth):
    return np.linalg.norm(np.asarray(found) - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize("interactivity", ["full", "sequential"])
def test_default_coefficients_are_within_a_tenth_of_the_truth(interactivity):
    """100 000 people, epsilon 4. By the loss that was minimised before they were off by 70 per cent."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 2))
    X *= np.minimum(1, 4 / np.linalg.norm(X, axis=1))[:, np.newaxis]
    y = rng.random(100_000) < expit(X @ [1.0, -0.5] + 0.5)
    model = fitted(X, y, epsilon=4.0, feature_norm=4.0, interactivity=interactivity)
    assert model.capped_
    assert relative(np.append(model.coef_[0], model.intercept_), [1.0, -0.5, 0.5]) < 0.1
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_[0] + model.intercept_, rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expit(model.decision_function(X)), rtol=1e-12)


def test_default_coefficients_of_three_classes():
    rng, truth = np.random.default_rng(1), np.array([[2.0, 0.0], [-1.0, 1.5], [-1.0, -1.5]])
    X = rng.normal(size=(40_000, 2)) / 2
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, np.newaxis]
    y = (softmax(X @ truth.T, axis=1).cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    model = fitted(X, y, epsilon=4.0, interactivity="full", rounds=40, curvature=0.2)
    assert relative(model.coef_ - model.coef_.mean(axis=0), truth) < 0.1
    np.testing.assert_allclose(model.predict_log_proba(X), log_softmax(model.decision_function(X), axis=1), atol=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("options", [{}, {"clip": 0.6}, {"rule": "bound"}], ids=["capped", "clipped", "bound"])
def test_scores_are_the_log_odds_of_probabilities_and_labels_those_of_the_largest_weight(classes, options):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(3_000, 3))
    y = np.argmax(X @ rng.normal(size=(3, classes)) + rng.gumbel(size=(3_000, classes)), axis=1)
    model = fitted(X, y, epsilon=4.0, rounds=10, interactivity="full", **options)
    scores, p = model.decision_function(X), model.predict_proba(X)
    np.testing.assert_allclose(p, np.column_stack([expit(-scores), expit(scores)]) if classes == 2 else softmax(scores, axis=1))
    raw = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, np.newaxis] @ model.coef_.T + model.intercept_
    labels = (raw[:, 0] > 0).astype(int) if classes == 2 else raw.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), labels)
    words = "coefficients are not the parameters" if "clip" in options else "coefficients and intercept estimate its parameters"
    assert words in model.explain()


def test_the_largest_probability_is_the_label_whatever_the_rule_clips():
    """The link of clipping at the steepest gradient at 0 never changes which class is first: searched for, 20 000 rows each."""
    for classes in (3, 5, 10):
        rng = np.random.default_rng(classes)
        p = rng.dirichlet(np.full(classes, 0.4), size=20_000)
        slopes = np.sqrt(np.sum(p**2, axis=1, keepdims=True) - 2 * p + 1) / np.sqrt(1 - 1 / classes)
        first = np.argmax(p * np.maximum(1, slopes), axis=1)
        np.testing.assert_array_equal(first, p.argmax(axis=1))


@pytest.mark.parametrize("options", [{"clip": 0.3}, {"clip": 0.3, "class_weight": {True: 1.0, False: 0.2}}, {}])
def test_predict_is_the_likelier_class(options):
    """Also where the log-odds undo clipping; alike they are where both classes' gradients were clipped."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5_000, 3)) / 3
    y = rng.random(5_000) < expit(3 * X[:, 0] - 1.5)
    model = ShuffleLogisticRegression(classes=[False, True], epsilon=4.0, random_state=0, **options).fit(X, y)
    likelier, alike = model.predict_proba(X)[:, 1] - 0.5, np.abs(model.decision_function(X)) < 1e-9
    np.testing.assert_array_equal(model.predict(X)[~alike], likelier[~alike] > 0)
    np.testing.assert_array_equal(model.predict(X)[alike], model._scores(X)[alike, 0] > 0)
    evaluation = cr.evaluate(model, (X, y), epsilon=50.0, delta=1e-9, seed=0)
    assert evaluation.scores["accuracy"].value == pytest.approx(np.mean(model.predict(X) == y), abs=0.002)
    assert evaluation.scores["AUC"].value == pytest.approx(roc_auc_score(y, model.predict_proba(X)[:, 1]), abs=0.01)


@pytest.mark.parametrize(
    ("options", "edit"),
    [
        ({}, {"capped_": False}),
        ({"clip": 0.3}, {"capped_": True}),
        ({"rule": "bound"}, {"capped_": True}),
        ({}, {"capped_": "yes"}),
        ({}, {"capped_": 1}),
    ],
)
def test_an_edited_word_about_the_loss_is_refused(options, edit):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3_000, 2))
    model = ShuffleLogisticRegression(classes=[False, True], rounds=5, **options).fit(X, X[:, 0] > 0)
    values = json.loads(model.to_json())
    ShuffleLogisticRegression.from_json(json.dumps(values))
    values["fitted"] |= edit
    with pytest.raises(ArgumentError, match="capped_"):
        ShuffleLogisticRegression.from_json(json.dumps(values))


def test_a_loss_that_the_plans_do_not_fit_is_refused():
    """Gradients that were clipped at 5, in a file that says they were those of the capped loss."""
    X = np.random.default_rng(3).normal(size=(3_000, 2))
    model = ShuffleLogisticRegression(classes=[False, True], rounds=5, clip=5.0).fit(X, X[:, 0] > 0)
    values = json.loads(model.to_json())
    values["fitted"]["capped_"], values["parameters"]["clip"] = True, None
    with pytest.raises(ArgumentError, match="capped_"):
        ShuffleLogisticRegression.from_json(json.dumps(values))


def test_a_file_keeps_what_was_minimised(tmp_path):
    """A file that does not say it is refused: clipped gradients would have another link."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3_000, 2))
    y = X[:, 0] > 0
    model = ShuffleLogisticRegression(classes=[False, True], rounds=5).fit(X, y)
    model.save(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert again.capped_
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    text = (tmp_path / "model.json").read_text().replace('"capped_": true, ', "")
    assert "capped_" not in text
    with pytest.raises(ArgumentError, match="capped_"):
        ShuffleLogisticRegression.from_json(text)
