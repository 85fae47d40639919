"""A model in the words of a task: the same answers as the model's own, whatever it is, and no word too many."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

from croupier.estimator import (
    ShuffleHuberRegressor,
    ShuffleLinearRegression,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleLogit,
    ShuffleQuantileRegressor,
    ShuffleRidge,
)
from croupier.service.wire.model_words import model_from_dict, model_to_dict
from croupier.statistics.evaluating import evaluation_query
from croupier.table import Schema, TableModel
from croupier.validation import ArgumentError

COLUMNS = {"age": {"low": 0, "high": 100}, "town": {"levels": ["Ulm", "Bonn"]}}
TWO, THREE = {"classes": ["no", "yes"]}, {"classes": [3, 1, 2]}
NUMBER = {"range": [-10, 30]}
MODELS = {
    "two classes": (TWO, ShuffleLogisticRegression(classes=["no", "yes"])),
    "two classes, clipped": (TWO, ShuffleLogisticRegression(classes=["no", "yes"], clip=0.2, class_weight={"yes": 3.0})),
    "three classes": (THREE, ShuffleLogisticRegression(classes=[1, 2, 3])),
    "three classes, clipped": (THREE, ShuffleLogisticRegression(classes=[1, 2, 3], clip=0.3)),
    "margins": (TWO, ShuffleLinearSVC(classes=["no", "yes"])),
    "huber": (NUMBER, ShuffleHuberRegressor(target_range=(-10, 30))),
    "mean": (NUMBER, ShuffleRidge(target_range=(-10, 30), fit_intercept=False)),
    "two classes with intervals": (TWO, ShuffleLogit(classes=["no", "yes"])),
    "numbers with intervals": (NUMBER, ShuffleLinearRegression(target_range=(-10, 30))),
    "quantile": (NUMBER, ShuffleQuantileRegressor(target_range=(-10, 30), quantile=0.9)),
}


@cache
def fitted(name: str) -> TableModel:
    """A model on few people, at an epsilon that leaves something to see."""
    facts, estimator = MODELS[name]
    rng = np.random.default_rng(len(name))
    X = rng.uniform(-0.5, 0.5, size=(400, 3))
    classes = facts.get("classes")
    y = rng.uniform(-10, 30, 400) if classes is None else np.asarray(classes)[rng.integers(len(classes), size=400)]
    estimator.set_params(epsilon=4.0, delta=1e-3, feature_norm=1.0)
    if "rounds" in estimator.get_params():
        estimator.set_params(rounds=2)
    schema = Schema.from_dict({"target": {"column": "ill", **facts}, "columns": COLUMNS})
    return TableModel(schema, estimator.fit(X, y))


pytestmark = pytest.mark.filterwarnings("ignore::croupier.estimator.FewPeopleWarning", "ignore::croupier.estimator.RadiusWarning")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_words_make_the_answers_of_the_model(name):
    model = fitted(name)
    words = json.loads(json.dumps(model_to_dict(model)))
    read, own = model_from_dict(words, model.schema), model.estimator
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)) * 10.0 ** rng.integers(-2, 2, size=(300, 1))  # some rows are longer than the norm
    for answer in ("predict", "predict_proba", "decision_function"):
        if hasattr(read, answer) and not (answer == "decision_function" and hasattr(read, "predict_proba")):
            got, wanted = getattr(read, answer)(X), getattr(own, answer)(X)
            assert np.array_equal(got, wanted) if got.dtype.kind != "f" else np.allclose(got, wanted, rtol=1e-12, atol=1e-14)
    assert hasattr(own, "predict_proba") == hasattr(read, "predict_proba")
    mine, its = evaluation_query(read), evaluation_query(own)
    assert (mine.dim, mine.norm, mine.diameter) == (its.dim, its.norm, its.diameter)
    alone = np.concatenate([read.scores(X[:1]), read.scores(X[1:])])
    assert np.array_equal(alone, read.scores(X))  # a person's score does not depend on who is beside it


def test_clipping_that_is_undone_is_in_the_words():
    assert {name for name in MODELS if "clipped" in model_to_dict(fitted(name))} == {n for n in MODELS if n.endswith("clipped")}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("answers", "numbers"),
        ("answers", "margins and more"),
        ("coef", [[0.1, 0.2]]),
        ("coef", [["0.1", 0.2, 0.3]]),
        ("coef", [[True, 0.2, 0.3]]),
        ("coef", 5),
        ("intercept", [1e101]),
        ("intercept", []),
        ("feature_norm", 0),
        ("quantile", 0.5),
        ("unheard", 1),
        ("clipped", {"norm": 1.0, "constant": 1.0, "weights": [1.0]}),
        ("clipped", {"norm": 1.0, "constant": 1.0, "weights": [1.0, 0.0]}),
        ("clipped", {"norm": 0.0, "constant": 1.0, "weights": [1.0, 1.0]}),
        ("clipped", [1]),
    ],
)
def test_words_that_are_no_model_of_the_schema_are_refused(word, value):
    model = fitted("two classes")
    words = model_to_dict(model)
    with pytest.raises(ArgumentError, match="model"):
        model_from_dict(words | {word: value}, model.schema)
    with pytest.raises(ArgumentError, match="model"):
        model_from_dict({name: one for name, one in words.items() if name != word} if word in words else [], model.schema)
