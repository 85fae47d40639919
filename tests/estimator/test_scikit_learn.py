"""scikit-learn's API around the estimators: its own checks, clones, pipelines, searches, pickles, sparse tables, frames."""

from __future__ import annotations

import pickle
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from croupier.estimator import (
    PrivacyAccount,
    ShuffleHuberRegressor,
    ShuffleLinearRegression,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleQuantileRegressor,
    ShuffleRidge,
    ShuffleScaler,
)
from croupier.optimizer.planning import LOTS, RULES
from croupier.privacy.guarantee import NEIGHBOURS
from croupier.privacy.plan import CALIBRATIONS
from croupier.validation import INVALID

# scikit-learn's own checks, and which of them privacy forbids.
#
# check_estimator(ShuffleRidge(data_is_public=True), expected_failed_checks=EXPECTED_FAILED_CHECKS)
#
# The checks call fit with bare arrays, so they need data_is_public=True: what they fit has no public facts declared.

EXPECTED_FAILED_CHECKS = {
    "check_class_weight_classifiers": (
        "asks for 87 % of one class from 50 people by weights of 1000 and 0.0001: a model that keeps epsilon = 1 for so few is "
        "mostly noise. It passes with epsilon = 10 and interactivity = 'full'."
    ),
    "check_classifiers_train": (
        "asks for an accuracy of 0.83 from 200 to 300 people: a model that keeps epsilon = 1 for so few is mostly noise. "
        "It passes with epsilon = 10 and interactivity = 'full'."
    ),
    "check_regressors_train": (
        "asks for an R^2 of 0.5 from 200 people and 10 features: a model that keeps epsilon = 1 for so few is mostly noise. "
        "It passes with epsilon = 10 and interactivity = 'full'."
    ),
}


MODELS = [
    ShuffleLogisticRegression,
    ShuffleLinearSVC,
    ShuffleRidge,
    ShuffleHuberRegressor,
    ShuffleQuantileRegressor,
    ShuffleScaler,
    ShuffleLinearRegression,
]
FACTS = {
    ShuffleLogisticRegression: {"classes": [False, True]},
    ShuffleLinearSVC: {"classes": [False, True]},
    ShuffleScaler: {"feature_range": (-1, 1)},
}


def declared(kind, **options):
    """An estimator with its public facts for the people of the fixture."""
    return kind(**{"random_state": 0} | FACTS.get(kind, {"target_range": (-8, 8)}) | options)


def target_for(kind, score):
    return score > 0 if kind in (ShuffleLogisticRegression, ShuffleLinearSVC) else score


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", MODELS)
def test_check_estimator(kind):
    """At the default budget, only what EXPECTED_FAILED_CHECKS lists may fail; the checks declare nothing, so the data is public."""
    done = check_estimator(kind(data_is_public=True), expected_failed_checks=EXPECTED_FAILED_CHECKS, on_fail=None)
    assert len(done) > 40
    assert {check["check_name"] for check in done if check["status"] == "failed"} == set()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind is not ShuffleScaler])
def test_only_the_budget_makes_a_check_fail(kind):
    """With a larger one, and full interactivity, the checks that privacy forbids at epsilon 1 pass too."""
    options = {"epsilon": 100.0} if kind is ShuffleLinearRegression else {"epsilon": 10.0, "interactivity": "full"}
    generous = kind(data_is_public=True, **options)
    run = [
        check(model)
        for model, check in estimator_checks_generator(generous, legacy=True, mark="skip")
        if getattr(check, "func", check).__name__ in EXPECTED_FAILED_CHECKS
    ]
    assert len(run) == (4 if hasattr(generous, "class_weight") else 3)


@pytest.mark.parametrize("kind", MODELS)
def test_parameters_are_stored_cloned_and_shown(kind):
    model = declared(kind, epsilon=0.5)
    assert clone(model).get_params() == model.get_params()
    assert "epsilon=0.5" in repr(model)
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    with pytest.raises(TypeError, match="positional"):
        kind(1.0)


@pytest.mark.parametrize("kind", MODELS)
def test_pickled_models_predict_the_same(kind, people):
    X, score = people
    model = declared(kind).fit(X, target_for(kind, score))
    again = pickle.loads(pickle.dumps(model))
    use = "transform" if kind is ShuffleScaler else "predict"
    np.testing.assert_array_equal(getattr(again, use)(X), getattr(model, use)(X))
    assert again.guarantee_ == model.guarantee_
    with pytest.raises(NotFittedError):
        getattr(clone(model), use)(X)


@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.coo_array, scipy.sparse.csc_array])
@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleHuberRegressor])
def test_sparse_is_dense(kind, make, people):
    X, score = people
    X = np.where(np.abs(X) > 0.3, X, 0.0)
    X[0] *= 1e6
    y = target_for(kind, score)
    dense, sparse = declared(kind).fit(X, y), declared(kind).fit(make(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-9)
    np.testing.assert_allclose(sparse.predict(make(X)).astype(float), dense.predict(X).astype(float), rtol=1e-9)


def test_frames_keep_their_column_names(people):
    X, score = people
    frame = pandas.DataFrame(X, columns=["age", "pay", "hours"])
    model = declared(ShuffleLogisticRegression).fit(frame, pandas.Series(score > 0))
    assert model.feature_names_in_.tolist() == ["age", "pay", "hours"]
    assert model.n_features_in_ == 3
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["pay", "age", "hours"]])
    with pytest.raises(ValueError, match="feature"):
        model.predict(frame[["age"]])
    scaler = declared(ShuffleScaler).set_output(transform="pandas").fit(frame)
    assert scaler.transform(frame).columns.tolist() == ["age", "pay", "hours"]
    assert scaler.get_feature_names_out().tolist() == ["age", "pay", "hours"]


def test_text_labels_of_a_frame(people):
    X, score = people
    labels = pandas.Series(np.where(score > 0, "yes", "no"))
    model = declared(ShuffleLogisticRegression, classes=["no", "yes"]).fit(X, labels)
    assert set(model.predict(X)) == {"no", "yes"}


def test_a_pipeline_with_a_search(people):
    X, score = people
    account = PrivacyAccount()
    scaler = ShuffleScaler(epsilon=0.5, feature_range=(-1, 1), account=account)
    model = ShuffleLogisticRegression(classes=[False, True], account=account)
    pipe = make_pipeline(FunctionTransformer(), scaler, model)
    search = GridSearchCV(pipe, {"shufflelogisticregression__feature_norm": [1.0, 3.0]}, cv=2).fit(X, score > 0)
    assert len(account.fits) == 2 * (2 * 2 + 1)
    assert search.predict(X).shape == (5000,)


@pytest.mark.parametrize("kind", MODELS)
def test_sample_weights_are_refused_with_a_reason(kind, people):
    X, score = people
    y = target_for(kind, score)
    with pytest.raises(ValueError, match=r"sample_weight.*largest weight.*groups"):
        declared(kind).fit(X, y, sample_weight=np.ones(len(X)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        declared(kind).fit(X, y, colour="red")
    declared(kind).fit(X, y, sample_weight=None)


def test_groups_are_routed_through_a_search(people):
    X, score = people
    groups = np.arange(len(X)) // 2
    with sklearn.config_context(enable_metadata_routing=True):
        model = declared(ShuffleLogisticRegression).set_fit_request(groups=True)
        search = GridSearchCV(model, {"radius": [5.0]}, cv=GroupKFold(2)).fit(X, score > 0, groups=groups)
    assert search.best_estimator_.n_users_ == 2500


@pytest.mark.parametrize("kind", MODELS)
def test_type_checkers_know_modes_and_do_not_ask_for_none(kind):
    """A misspelt mode is an error before anything runs, and `model.guarantee_.epsilon(...)` needs no test for None."""
    hints = get_type_hints(kind)
    assert get_args(hints["neighbours"]) == NEIGHBOURS
    assert get_args(hints["calibration"]) == CALIBRATIONS
    assert get_args(hints["invalid"]) == INVALID
    if "interactivity" in hints:
        assert get_args(hints["interactivity"]) == ("sequential", "full")
        assert set(get_args(hints["rule"])) == set(RULES)
        assert get_args(hints["lots"]) == LOTS
    assert Any in get_args(get_type_hints(kind.guarantee_.fget)["return"])
