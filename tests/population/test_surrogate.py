"""The stand-in for sweeps: the sum and the variance of a private round, and no guarantee anywhere."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import croupier as cr
from benchmarks.surrogate import SurrogatePopulation, block_of
from croupier.optimizer._gradients import Gradients
from croupier.population import ArrayPopulation
from croupier.population.population import Batch, Question
from croupier.problem import Ball, CappedLogistic, Logistic, Problem
from croupier.protocol.randomness import Secret

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3)) * RNG.choice([0.1, 1.0, 5.0], size=(400, 1))
Y = X[:, 0] > 0
PROBLEM = Problem(loss=Logistic(), domain=Ball(dim=3, radius=2.0), l2=0.1)
PLAN = cr.plan_sum(epsilon=1.0, delta=1e-6, users=400, dim=3, norm=0.5)


def clipped_sum(vectors, norm):
    return (vectors / np.maximum(1, np.linalg.norm(vectors, axis=1, keepdims=True) / norm)).sum(axis=0)


@pytest.mark.parametrize("query", [lambda X, y: X, Gradients(PROBLEM, np.ones(3))])
def test_mean_and_variance_are_those_of_the_plan(query):
    """6 000 answers in three coordinates: mean by a normal, variance by a chi-square law, false alarms below 1e-7 each."""
    people = SurrogatePopulation(X, Y)
    expected = clipped_sum(np.asarray(query(X, Y)), PLAN.norm)
    secret = Secret.of_seed(3)
    answers = [people.answer(Question(query, Batch.everyone(400), PLAN, secret.derive(k))).sum for k in range(2000)]
    z = (np.array(answers) - expected) / PLAN.noise_std
    assert np.all(np.abs(z.mean(axis=0)) * np.sqrt(2000) < 5.6)
    assert stats.chi2(6000).ppf(5e-8) < np.sum(z**2) < stats.chi2(6000).isf(5e-8)


def test_the_same_question_has_the_same_answer_and_another_one_another():
    people, secret = SurrogatePopulation(X, Y), Secret.of_seed(3)
    question, other = (Question(lambda X, y: X, Batch.everyone(400), PLAN, secret.derive(k)) for k in range(2))
    assert people.answer(question).sum.tolist() == people.answer(question).sum.tolist()
    assert people.answer(question).sum.tolist() != people.answer(other).sum.tolist()


def test_nothing_that_is_made_with_it_is_called_private():
    estimate = SurrogatePopulation(X, Y).answer(Question(lambda X, y: X, Batch.everyone(400), PLAN, Secret.fresh()))
    assert not estimate.private
    assert estimate.guarantee is None
    result = cr.minimize(PROBLEM, SurrogatePopulation(X, Y), epsilon=1.0, delta=1e-6)
    assert not result.private
    assert result.guarantee is None
    assert cr.minimize(PROBLEM, ArrayPopulation(X, Y), epsilon=1.0, delta=1e-6).private


def test_a_round_that_could_not_be_private_is_refused_all_the_same():
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=3)
    with pytest.raises(cr.BatchTooSmallError):
        SurrogatePopulation(X, Y).answer(Question(lambda X, y: X, Batch.everyone(400), plan, Secret.fresh()))


def test_an_account_books_it_as_a_fit_without_a_guarantee_and_nobody_is_told_otherwise():
    from croupier.estimator import PrivacyAccount, ShuffleLogisticRegression  # noqa: PLC0415

    account = PrivacyAccount()
    model = ShuffleLogisticRegression(epsilon=1.0, feature_norm=1.0, classes=[False, True], account=account)
    model.fit_population(SurrogatePopulation(np.column_stack([X / 30, np.ones(400)]) / 2, Y.astype(float)), 3)
    assert model.guarantee_ is None
    assert account.spent() == float("inf")
    assert "stand-in" in str(model)
    assert "stand-in" in str(model.result_)


def test_what_a_stand_in_cannot_be_is_refused():
    with pytest.raises(cr.ArgumentError, match="stand-in"):
        SurrogatePopulation(X, Y, mode="faithful")
    ray = pytest.importorskip("ray")
    assert ray is not None
    from croupier.population import RayPopulation  # noqa: PLC0415

    with pytest.raises(cr.ArgumentError, match="population of blocks"):
        RayPopulation(SurrogatePopulation(X, Y))


def test_the_blocks_of_a_round_add_up_to_the_sum_and_each_says_a_part_of_it():
    problem = Problem(CappedLogistic(), Ball(dim=55, radius=50.0), feature_norm=2**0.5, constant=1.0)
    plan = cr.schedule(problem, 5_000, epsilon=1.0, delta=1e-6, rule="whitened").phases[0].plan
    assert plan.blocks > 1
    total = np.random.default_rng(3).normal(size=plan.dim)
    asked = [SimpleNamespace(plan=plan, rotation=bytes(32), block=block) for block in range(plan.blocks)]
    parts = [block_of(total, question) for question in asked]
    np.testing.assert_allclose(np.sum(parts, axis=0), total, atol=1e-9)
    assert max(np.linalg.norm(part) for part in parts) < 0.6 * np.linalg.norm(total)
