"""Estimators with invalid="blank": the same model wherever the records are, and no word of who was blank."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from scipy.sparse import csr_array
from sklearn.pipeline import make_pipeline

import croupier as cr
from croupier.estimator import (
    ShuffleHuberRegressor,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleQuantileRegressor,
    ShuffleRidge,
    ShuffleScaler,
)
from croupier.population import ParquetPopulation

USERS = 1500
CLASSES = ["ill", "well"]
SETTINGS = {"epsilon": 4.0, "rounds": 5, "interactivity": "full"}
MODELS = {
    "logistic": lambda **more: ShuffleLogisticRegression(classes=CLASSES, **SETTINGS, **more),
    "svm": lambda **more: ShuffleLinearSVC(classes=CLASSES, **SETTINGS, **more),
    "three classes": lambda **more: ShuffleLogisticRegression(classes=[*CLASSES, "new"], **SETTINGS, **more),
    "ridge": lambda **more: ShuffleRidge(target_range=(0, 10), **SETTINGS, **more),
    "huber": lambda **more: ShuffleHuberRegressor(target_range=(0, 10), l2=0.1, **SETTINGS, **more),
    "median": lambda **more: ShuffleQuantileRegressor(target_range=(0, 10), fit_intercept=False, **SETTINGS, **more),
}
CLASSIFIERS = ("logistic", "svm", "three classes")


def people(kind):
    X = np.random.default_rng(0).normal(size=(USERS, 3)) / 3
    return X, np.where(X[:, 0] > 0, *CLASSES).astype(object) if kind in CLASSIFIERS else 5 + 4 * X[:, 0]


def bad_people(kind):
    """Three records that are not valid: a gap, an infinite number, a target that is none."""
    X, y = people(kind)
    X[5, 1], X[6, 2], y[7] = np.nan, -np.inf, "perhaps" if kind in CLASSIFIERS else np.inf
    return X, y


@pytest.fixture
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", cr.protocol.NotPrivateWarning)
        warnings.simplefilter("ignore", cr.estimator.FeatureNormWarning)  # whatever the rows are
        yield


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("kind", MODELS)
def test_two_populations_that_differ_in_records_that_are_not_valid_end_alike(kind):
    """The attack: on one of them the fit would stop, which no guarantee covers."""
    one, other = (MODELS[kind](invalid="blank").fit(*data) for data in (people(kind), bad_people(kind)))
    assert one.guarantee_ == other.guarantee_
    assert one.guarantee_ is not None
    assert (one.n_users_, one.explain(), one.coef_.shape) == (other.n_users_, other.explain(), other.coef_.shape)
    with pytest.raises(ValueError, match=r"NaN|not allowed"):
        MODELS[kind]().fit(*bad_people(kind))


@pytest.mark.parametrize("kind", MODELS)
def test_valid_records_give_the_same_bits_either_way(kind):
    X, y = people(kind)
    models = [MODELS[kind](invalid=invalid, random_state=2).fit(X, y) for invalid in ("refuse", "blank")]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[0].intercept_, models[1].intercept_)


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("kind", MODELS)
def test_arrays_frames_sparse_matrices_and_files_agree_to_the_bit(kind, tmp_path):
    X, y = bad_people(kind)
    model = MODELS[kind](invalid="blank", random_state=2)
    expected = model.fit(X, y).result_.theta
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    if kind in CLASSIFIERS:
        frame = frame.astype(object)
        frame.iloc[5, 1] = "no number"
    found = [
        MODELS[kind](invalid="blank", random_state=2).fit(rows, targets).result_.theta
        for rows, targets in ((frame, pd.Series(y)), (csr_array(X), y), (X.tolist(), y.tolist()))
    ]
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": pa.array(y.tolist())}), tmp_path / "p.parquet")
    stored = ParquetPopulation(tmp_path, target="y", records=model.records)
    found.append(model.fit_population(stored, 3).result_.theta)
    for one in found:
        np.testing.assert_array_equal(one, expected)


def test_a_blank_row_is_zeros_with_its_constant_too():
    model = MODELS["logistic"](invalid="blank")
    X, y = bad_people("logistic")
    rows, targets = model.records(X, y)
    assert not rows[5:8].any()
    assert not targets[5:8].any()
    expected = MODELS["logistic"]().records(*people("logistic"))
    np.testing.assert_array_equal(np.delete(rows, [5, 6, 7], axis=0), np.delete(expected[0], [5, 6, 7], axis=0))


@pytest.mark.usefixtures("_quiet")
def test_people_with_several_rows_keep_the_bound():
    X, y = bad_people("logistic")
    groups = [f"person {row // 2}" for row in range(USERS)]
    groups[9] = None
    model = MODELS["logistic"](invalid="blank").fit(X, y, groups)
    assert model.n_users_ == USERS // 2
    assert model.guarantee_ is not None


def test_explain_states_the_premise_and_that_there_is_none():
    refuse, blank = (MODELS["logistic"](invalid=invalid) for invalid in ("refuse", "blank"))
    for model in (refuse, refuse.fit(*people("logistic"))):
        assert "Assumptions about the records: if others can see a refusal, all records are valid" in model.explain()
    for model in (blank, blank.fit(*bad_people("logistic"))):
        assert "Assumptions about the records: none." in model.explain()
    blank.set_params(invalid="refuse")  # after the fact
    assert "Assumptions about the records: none." in type(blank).from_json(blank.to_json()).explain()


@pytest.mark.usefixtures("_quiet")
def test_a_scaler_lets_gaps_pass_to_the_model_after_it():
    X, y = bad_people("logistic")
    settings = {"feature_range": (-2, 2), "norm": 1.0, "invalid": "blank", "random_state": 1}
    model = make_pipeline(ShuffleScaler(**settings), MODELS["logistic"](invalid="blank", random_state=2)).fit(X, y)
    scaled = model[0].transform(X)
    assert np.isnan(scaled[5:7]).all()
    assert np.isfinite(np.delete(scaled, [5, 6], axis=0)).all()
    clean = ShuffleScaler(**settings | {"invalid": "refuse"}).fit(people("logistic")[0])
    np.testing.assert_allclose(model[0].mean_, clean.mean_, atol=0.05)
    with pytest.raises(ValueError, match=r"NaN|inf"):
        ShuffleScaler(**settings | {"invalid": "refuse"}).fit(X)


def test_what_is_not_one_persons_doing_is_refused():
    X, y = people("logistic")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        MODELS["logistic"](invalid="blank").fit(X, y[:-1])
    with pytest.raises(cr.ArgumentError, match="invalid = 'drop'"):
        MODELS["logistic"](invalid="drop").fit(X, y)
    with pytest.raises(cr.ArgumentError, match="classes"):
        ShuffleLogisticRegression(invalid="blank", data_is_public=True).fit(X, y)


class _NoNumber:
    """What somebody put into a record: it says what it is when it is asked for a number, a hash or a comparison."""

    def __float__(self):
        raise RuntimeError("a secret")

    def __hash__(self):
        return hash(1)

    def __eq__(self, other):
        raise RuntimeError("a secret")


ODD = {
    "a tuple that cannot be hashed": ([1],),
    "a signalling NaN": Decimal("sNaN"),
    "a complex number of numpy's": np.complex128(1 + 2j),
    "an object that raises": _NoNumber(),
}


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("place", ["value", "label", "target"])
def test_an_object_that_is_no_number_and_no_label_is_a_blank_like_any_other(kind, place):
    def theta(odd):
        X, y = (part.tolist() for part in people("ridge"))
        y = [int(value > 5) for value in y] if place != "target" else y
        if place == "value":
            X[3][1] = odd
        else:
            y[3] = odd
        model = ShuffleRidge(target_range=(0, 10), random_state=0, invalid="blank", **SETTINGS)
        if place != "target":
            model = ShuffleLogisticRegression(classes=[0, 1], random_state=0, invalid="blank", **SETTINGS)
        return model.fit(X, y).coef_

    np.testing.assert_array_equal(theta(ODD[kind]), theta(None))


@pytest.mark.parametrize("label", [[1], ([1],), Decimal("sNaN")], ids=["a list", "a tuple with a list", "a signalling NaN"])
def test_a_row_whose_label_can_be_nobodys_is_left_out(label):
    X, y = people("logistic")
    labels = [user // 2 for user in range(USERS)]
    model = ShuffleLogisticRegression(classes=CLASSES, invalid="blank", **SETTINGS).fit(X, y, groups=[label, *labels[1:]])
    assert model.n_users_ == USERS // 2


@pytest.mark.parametrize("label", [b"person 0", b"\xff"], ids=["the same name", "no text"])
def test_bytes_among_labels_of_text_stop_nothing(label):
    X, y = people("logistic")
    labels = [f"person {row // 2}" for row in range(USERS)]
    model = ShuffleLogisticRegression(classes=CLASSES, invalid="blank", **SETTINGS).fit(X, y, groups=[label, *labels[1:]])
    assert model.n_users_ == USERS // 2


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]", "complex128"])
def test_a_column_whose_type_has_no_numbers_is_refused_rather_than_blank_for_everybody(kind):
    X, y = people("logistic")
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(when=np.arange(USERS).astype(kind))
    with pytest.raises(cr.ArgumentError, match="column 'when'"):
        ShuffleLogisticRegression(classes=CLASSES, invalid="blank", **SETTINGS).fit(frame, y)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")  # by the plan: few people
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_blank_warns_of_nothing_in_secret_rounds(fit_intercept):
    """The attack: in other coordinates its slope was shortened by a quotient that overflows, with a warning that it is there."""
    X, y = people("ridge")
    X[5] = np.nan
    options = {"target_range": (0, 10), "feature_norm": 3.0, "epsilon": 4.0, "random_state": 1, "fit_intercept": fit_intercept}
    ShuffleRidge(**options, invalid="blank").fit(X[:400], y[:400])
