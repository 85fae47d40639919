"""Models as JSON: the same predictions, the same promise, and refusals of what cannot be true."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas
import pytest

from croupier.estimator import (
    PrivacyAccount,
    PublicDataWarning,
    ShuffleLinearRegression,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleRidge,
    ShuffleScaler,
    load_model,
)
from croupier.privacy.calibration import prove
from croupier.validation import ArgumentError

from .test_scikit_learn import MODELS, declared, target_for


@pytest.mark.parametrize("kind", MODELS)
def test_a_reloaded_model_is_the_same(kind, people, tmp_path):
    X, score = people
    frame = pandas.DataFrame(X, columns=["age", "pay", "hours"])
    model = declared(kind, random_state=None, account=PrivacyAccount()).fit(frame, target_for(kind, score))
    model.save(tmp_path / "model.json")
    use = "transform" if kind is ShuffleScaler else "predict"
    for again in (load_model(tmp_path / "model.json"), kind.from_json(model.to_json())):
        assert type(again) is kind
        np.testing.assert_array_equal(getattr(again, use)(frame), getattr(model, use)(frame))
        assert again.guarantee_ == model.guarantee_
        plans = "plan_" if hasattr(model, "plan_") else "schedule_"  # one round, or a schedule of them
        assert getattr(again, plans) == getattr(model, plans)
        assert again.n_users_ == model.n_users_
        assert str(again) == str(model)
        assert again.explain() == model.explain()
        assert again.feature_names_in_.tolist() == ["age", "pay", "hours"]
        assert again.account is None
        assert {**again.get_params(), "account": None} == {**model.get_params(), "account": None}
        assert again.to_json() == model.to_json()


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1], [False, True], [1.0, 2.0]])
def test_labels_of_every_type(labels, people):
    X, score = people
    model = ShuffleLogisticRegression(classes=np.array(labels), random_state=0).fit(X, np.array(labels)[(score > 0).astype(int)])
    again = ShuffleLogisticRegression.from_json(model.to_json())
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert again.guarantee_ is None


def test_an_unfitted_model_can_be_saved():
    again = ShuffleRidge.from_json(ShuffleRidge(target_range=(0, 1), epsilon=0.7).to_json())
    assert again.get_params()["target_range"] == (0, 1)
    assert "not fitted" in str(again)


def test_numpy_numbers_as_parameters(people):
    model = ShuffleRidge(target_range=np.array([-8, 8]), epsilon=np.float32(1.5), rounds=np.int64(3)).fit(*people)
    again = ShuffleRidge.from_json(model.to_json())
    assert (again.epsilon, again.rounds, again.schedule_.rounds) == (1.5, 3, 3)
    assert str(again) == str(model)


def test_what_was_read_off_the_data_is_remembered(people):
    with pytest.warns(PublicDataWarning):
        model = ShuffleRidge(data_is_public=True).fit(*people)
    assert "taken from the data" in str(ShuffleRidge.from_json(model.to_json()).guarantee_)


def test_refusals_of_other_files(people, tmp_path):
    X, score = people
    text = ShuffleLogisticRegression(classes=[False, True], random_state=0).fit(X, score > 0).to_json()
    values = json.loads(text)
    for change, said in (
        ({"version": 2}, "another version of croupier"),
        ({"format": "other"}, "croupier model"),
        ({"kind": "os.system"}, "kind"),
        ({"parameters": values["parameters"] | {"colour": "red"}}, "colour"),
        ({"fitted": None}, "complete"),
        ({"fitted": {"result_": {"a": "shell", "of": "ls"}}}, "shell"),
    ):
        (tmp_path / "model.json").write_text(json.dumps(values | change))
        with pytest.raises(ArgumentError, match=said):
            load_model(tmp_path / "model.json")
    with pytest.raises(ArgumentError, match="JSON"):
        ShuffleLogisticRegression.from_json("{")
    with pytest.raises(ArgumentError, match="ShuffleLinearSVC"):
        ShuffleLinearSVC.from_json(text)
    with pytest.raises(ArgumentError, match="to be saved"):
        ShuffleRidge(target_range=object()).to_json()


@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleScaler])
@pytest.mark.parametrize(("name", "value"), [("mu", 0.01), ("slack", 0.0), ("neighbours", "zero-out"), ("theorem", "mine")])
def test_a_promise_beyond_the_plan_is_refused(kind, people, name, value):
    X, score = people
    open_lots = {} if kind is ShuffleScaler else {"lots": "open"}
    values = json.loads(declared(kind, random_state=None, **open_lots).fit(X, target_for(kind, score)).to_json())
    fitted = values["fitted"].get("result_") or values["fitted"]["estimate_"]
    fitted["of"]["guarantee"][name] = value
    with pytest.raises(ArgumentError, match="no stronger than its plans"):
        kind.from_json(json.dumps(values))


@pytest.mark.parametrize("kind", [ShuffleLogisticRegression, ShuffleScaler])
@pytest.mark.parametrize(("name", "value"), [("epsilon", 0.5), ("delta", 1e-9), ("neighbours", "zero-out"), ("honest", 0.5)])
def test_a_promise_that_the_guarantee_does_not_keep_is_refused(kind, people, name, value):
    X, score = people
    values = json.loads(declared(kind, random_state=None).fit(X, target_for(kind, score)).to_json())
    values["fitted"]["promise_"]["of"][name] = value
    with pytest.raises(ArgumentError, match="kept by the guarantee"):
        kind.from_json(json.dumps(values))


def test_too_few_honest_users_in_a_batch_are_noticed(people):
    X, score = people
    model = declared(ShuffleLogisticRegression, random_state=None, honest=0.8, lots="open").fit(X, score > 0)
    values = json.loads(model.to_json())
    assert ShuffleLogisticRegression.from_json(model.to_json()).guarantee_ == model.guarantee_
    fitted = values["fitted"]
    fitted["result_"]["of"]["schedule"]["shortfall"] = 1e-20  # as if batches fell short less often
    with pytest.raises(ArgumentError, match="honest users that a batch"):
        ShuffleLogisticRegression.from_json(json.dumps(values))
    values = json.loads(model.to_json())
    for part in (values["fitted"]["result_"]["of"]["schedule"], values["fitted"]["result_"]["of"]["guarantee"]):
        part["honest"] = 0.5  # as if fewer were assumed
    values["fitted"]["promise_"]["of"]["honest"] = 0.5
    with pytest.raises(ArgumentError, match="honest users that a batch"):
        ShuffleLogisticRegression.from_json(json.dumps(values))


def test_a_plan_that_promises_too_much_is_refused(people):
    X, score = people
    values = json.loads(ShuffleLogisticRegression(classes=[False, True]).fit(X, score > 0).to_json())
    plan = values["fitted"]["result_"]["of"]["schedule"]["phases"][0]["plan"]
    plan["mu"] /= 2
    with pytest.raises(ArgumentError, match="follows from its parameters"):
        ShuffleLogisticRegression.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (ShuffleLinearRegression, lambda plan: {"diameter": plan.norm}),
        (ShuffleLinearRegression, lambda plan: {"norm": 100 * plan.norm, "diameter": 100 * plan.norm}),
        (ShuffleLinearRegression, lambda plan: {"users": 2 * plan.users}),
        (ShuffleScaler, lambda plan: {"diameter": plan.norm}),
        (ShuffleScaler, lambda plan: {"users": 2 * plan.users}),
    ],
)
def test_a_plan_that_is_proved_for_other_vectors_or_other_users_is_refused(kind, changes, people):
    """The plan in the file is proved, and its guarantee follows from it; but it is not about what these users sent."""
    X, score = people
    model = declared(kind, random_state=None, account=PrivacyAccount()).fit(X, target_for(kind, score))
    plan = model.plan_
    other = prove(dataclasses.replace(plan, **changes(plan)), plan.levels, plan.noise_bits, plan.noise_probability)
    assert other.guarantee.epsilon(1e-6) < 0.8 * plan.guarantee.epsilon(1e-6)
    values = json.loads(model.to_json())
    values["fitted"]["plan_"]["of"] = other.to_dict()
    values["fitted"]["estimate_"]["of"]["guarantee"] = other.guarantee.to_dict()
    values["fitted"]["estimate_"]["of"]["noise_std"] = other.noise_std_for(plan.users)
    with pytest.raises(ArgumentError, match="Do not use this file"):
        kind.from_json(json.dumps(values))
