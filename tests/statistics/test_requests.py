"""What a request may leave out or get wrong: the default delta, and arguments of another kind, refused by their name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import croupier as cr
from croupier.estimator import (
    ShuffleHuberRegressor,
    ShuffleLinearRegression,
    ShuffleLogisticRegression,
    ShuffleLogit,
    ShuffleQuantileRegressor,
    ShuffleRidge,
    ShuffleScaler,
)
from croupier.privacy.plan import default_delta
from croupier.statistics import Histogram
from croupier.statistics.asking import plan_for
from croupier.validation import ArgumentError

X = np.random.default_rng(0).uniform(size=(2000, 2))
Y = X[:, 0] > 0.5


def test_the_default_delta_is_a_millionth_or_a_tenth_of_one_over_users():
    assert [default_delta(users) for users in (2, 100_000, 200_000, 10**9)] == [1e-6, 1e-6, 5e-7, 1e-10]
    with pytest.raises(ArgumentError, match="users = 0"):
        default_delta(0)


def test_ask_describe_and_evaluate_have_the_default_delta():
    assert cr.ask(Histogram(0, 1), X, epsilon=1.0).plan.delta == 1e-6
    assert cr.describe(X, {"a": (0, 1), "b": None}, epsilon=1.0).answer.plan.delta == 1e-6
    assert cr.evaluate(LogisticRegression().fit(X, Y), (X, Y), epsilon=1.0).answer.plan.delta == 1e-6
    assert plan_for(Histogram(0, 1), 10**6, epsilon=1.0).delta == 1e-7


def test_estimators_of_a_million_people_have_the_default_delta_too():
    """At 1e-6 they were refused: it is not below 1 / users."""
    model = ShuffleLogisticRegression(classes=[0, 1], feature_norm=1.0)
    assert model.plan(10**6, 3).guarantee.delta(1.0) <= 1e-7
    assert model.get_params()["delta"] is None
    assert "delta = 1e-06" in str(model)


@pytest.mark.parametrize(
    "model",
    [
        ShuffleLogisticRegression(classes=[False, True]),
        ShuffleLogit(classes=[False, True]),
        ShuffleRidge(target_range=(0, 1)),
        ShuffleLinearRegression(target_range=(0, 1)),
        ShuffleScaler(feature_range=(0, 1)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_a_fit_promised_has_its_delta(model):
    fitted = model.fit(X, Y * 1 if hasattr(model, "target_range") else Y)
    assert fitted.promise_.delta == 1e-6
    assert fitted.guarantee_.delta(1.0) <= 1e-6
    assert type(fitted).from_json(fitted.to_json()).promise_ == fitted.promise_


@pytest.mark.parametrize("columns", [["a", "b"], "a", None, 3])
def test_describe_wants_a_guess_for_each_column(columns):
    with pytest.raises(ArgumentError, match=r"columns = .* a mapping from a column's name to a guess.*\(0, 200\)"):
        cr.describe(X, columns, epsilon=1.0)


@pytest.mark.parametrize("query", [np.mean, "mean", Histogram, None], ids=["function", "text", "class", "None"])
def test_ask_wants_a_query(query):
    with pytest.raises(ArgumentError, match=r"query = .*CustomQuery\(function"):
        cr.ask(query, X, epsilon=1.0)


@pytest.mark.parametrize("problem", [3, None, np.mean], ids=["number", "None", "function"])
def test_minimize_wants_a_problem(problem):
    with pytest.raises(ArgumentError, match="problem = "):
        cr.minimize(problem, (X, Y), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("kind", [ShuffleHuberRegressor, ShuffleQuantileRegressor, ShuffleRidge, ShuffleLinearRegression])
@pytest.mark.parametrize("dtype", [None, object])
def test_a_text_target_of_a_regressor_is_called_a_text(kind, dtype):
    y = np.array(["1.5", "cheap"] * 1000, dtype=dtype)
    with pytest.raises(ArgumentError, match=r"y = 'cheap' is not allowed: it must be a number.*ShuffleLogisticRegression"):
        kind(target_range=(0, 2)).fit(X, y)


def test_texts_of_numbers_are_numbers_and_a_gap_is_a_gap():
    rows, targets = ShuffleHuberRegressor(target_range=(0, 2), feature_norm=1.0).records(X, np.array(["1.5", "0"] * 1000))
    assert len(rows) == 2000
    assert math.isclose(targets[0], 0.5)
    with pytest.raises(ValueError, match="NaN"):
        ShuffleHuberRegressor(target_range=(0, 2)).fit(X, np.where(Y, 1.0, np.nan))
