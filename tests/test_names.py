"""One word for one thing: modules, functions, arguments and attributes of the core rooms."""

from __future__ import annotations

import importlib
import pkgutil
import types
from dataclasses import replace

import numpy as np
import pytest

import croupier as cr
from croupier.arithmetic import LinearVectors
from croupier.estimator import ShuffleLogisticRegression, ShuffleRidge, ShuffleScaler
from croupier.optimizer import Schedule
from croupier.optimizer.phases import Phase
from croupier.population import ArrayPopulation, Population
from croupier.population.population import Batch, LeaveBlanks, Query, Question
from croupier.privacy import ArgumentError
from croupier.problem import Ball, CustomProblem, Logistic, Problem
from croupier.protocol.randomness import Secret

ROOMS = ("estimator", "optimizer", "population", "privacy", "problem", "protocol")
PROBLEM = Problem(loss=Logistic(), domain=Ball(dim=2, radius=1.0))
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("room", ROOMS)
def test_no_public_name_is_a_module_too(room):
    package = importlib.import_module(f"croupier.{room}")
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert modules
    assert not modules & set(package.__all__)
    assert not [name for name in package.__all__ if isinstance(getattr(package, name), types.ModuleType)]


def test_a_stranger_meets_at_most_130_names():
    rooms = [cr, *(importlib.import_module(f"croupier.{room}") for room in cr._ROOMS)]
    assert len({id(getattr(room, name)) for room in rooms for name in room.__all__}) <= 130


@pytest.mark.parametrize(
    "ask",
    [
        lambda **unknown: cr.schedule(PROBLEM, 1000, **BUDGET, **unknown),
        lambda **unknown: cr.minimize(PROBLEM, (np.zeros((1000, 2)), np.ones(1000)), **BUDGET, **unknown),
        lambda **unknown: cr.PanPrivate(PROBLEM, 1000, **BUDGET, **unknown),
        ShuffleLogisticRegression,
        lambda **unknown: ShuffleRidge(epsilon=1.0, **unknown),
    ],
)
def test_an_argument_that_nobody_knows_is_refused(ask):
    with pytest.raises(TypeError, match="colour"):
        ask(colour="red")


@pytest.mark.parametrize(("method", "has", "lacks"), [("acsa", "damping", "step"), ("sgd", "step", "damping")])
def test_a_phase_has_a_step_or_a_damping(method, has, lacks):
    chosen = cr.schedule(PROBLEM, 2000, **BUDGET, method=method, rounds=2)
    (phase,) = chosen.phases
    size = getattr(phase, has)
    assert size > 0
    assert getattr(phase, lacks) is None
    assert Schedule.from_json(chosen.to_json()) == chosen
    for wrong in ({lacks: 1.0}, {has: None}, {has: None, lacks: size}, {"algorithm": "acsa" if method == "sgd" else "descent"}):
        with pytest.raises(ArgumentError, match="a step for descent, or a damping for acsa"):
            replace(phase, **wrong)
    plain = chosen.to_dict()["phases"][0]
    without = {name: value for name, value in plain.items() if name != "damping"} | {"step": size}
    with pytest.raises(ArgumentError, match="damping"):
        Phase.from_dict(without)


def test_a_linear_model_has_a_schedule_and_a_scaler_a_plan():
    X = np.random.default_rng(0).uniform(-1, 1, size=(3000, 2))
    model = ShuffleLogisticRegression(classes=[False, True], epsilon=4.0, random_state=1).fit(X, X[:, 0] > 0)
    scaler = ShuffleScaler(feature_range=(-1, 1), random_state=1).fit(X)
    assert type(model.schedule_) is Schedule
    assert type(scaler.plan_) is cr.SumPlan
    assert not hasattr(model, "plan_")
    assert not hasattr(scaler, "schedule_")


class Bare:
    """A population as it could be before `private` and `unit` were declared."""

    users = 100

    def prepare(self, test, key=None):
        return None

    def answer(self, question):
        raise AssertionError("nobody is to be asked")


def test_a_population_says_its_unit_and_whether_it_is_private():
    assert isinstance(ArrayPopulation(np.zeros((3, 1))), Population)
    model = ShuffleLogisticRegression(classes=[False, True])
    with pytest.raises(ArgumentError, match="Give it private, unit"):
        model.fit_population(Bare(), features=2)


def test_what_a_query_can_do_has_defaults():
    from croupier.optimizer._gradients import Gradients  # noqa: PLC0415

    own = CustomProblem(lambda theta, X, y: X, Ball(dim=2, radius=1.0), lipschitz=1.0)
    for objective, fast in ((PROBLEM, True), (own, False)):
        query = Gradients(objective, np.zeros(2))
        assert query.parallel is fast
        assert isinstance(query.vectors(np.zeros((3, 2)), np.ones(3)), LinearVectors) is fast

    class Rows(Query):
        def __call__(self, X, y):
            return X

    query, X = Rows(), np.ones((3, 2))
    assert (query.norm, query.diameter, query.parallel, query.blanks, query.entries) == (np.inf, np.inf, False, False, None)
    assert query.vectors(X, None) is X
    assert query.test(X, None) is None
    assert not isinstance(query.test, LeaveBlanks)
    Rows.blanks = True
    assert isinstance(query.test, LeaveBlanks)


def test_a_function_is_a_query_that_claims_nothing():
    plan = cr.plan_sum(**BUDGET, users=3000, dim=2)
    batch, secret = Batch.everyone(3000), Secret.of_seed(1)
    question = Question(lambda X, y: X, batch, plan, secret)
    assert isinstance(question.query, Query)
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(3000, 2))
    found = ArrayPopulation(X).answer(question)
    assert np.abs(found.sum - X.sum(axis=0)).max() < 6 * plan.noise_std
    with pytest.raises(ArgumentError, match="which claims no range"):
        Question(lambda X, y: X, batch, cr.plan_sum(**BUDGET, users=3000, dim=2, diameter=1.0), secret)


def test_every_round_of_a_run_has_its_number():
    numbers = []

    class Told(ArrayPopulation):
        def answer(self, question):
            numbers.append(question.number)
            return super().answer(question)

    X = np.random.default_rng(0).uniform(-1, 1, size=(3000, 2))
    cr.minimize(PROBLEM, Told(X, X[:, 0] > 0), **BUDGET, rounds=3, seed=1)
    assert numbers == [1, 2, 3]
