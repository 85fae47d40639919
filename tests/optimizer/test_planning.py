"""Which plan a run gets, by public facts alone."""

from __future__ import annotations

import pytest

import croupier as cr
from croupier.optimizer import planning
from croupier.problem import Ball, CappedLogistic, CappedMultinomial, Problem, Squared

COLUMNS = 104


def planned(users, epsilon, **options):
    problem = Problem(CappedLogistic(), Ball(dim=COLUMNS + 1, radius=50.0), feature_norm=2**0.5, constant=1.0)
    return cr.schedule(problem, users, epsilon=epsilon, delta=1e-6, rule="practical", **options)


@pytest.mark.parametrize(
    ("users", "epsilon", "noisy"), [(32_561, 1.0, False), (32_561, 0.5, True), (32_561, 0.1, True), (5_000, 1.0, True)]
)
def test_a_noisy_run_has_less_noise_and_more_rounds_of_gradients_for_more_bits(users, epsilon, noisy, monkeypatch):
    chosen = planned(users, epsilon)
    monkeypatch.setattr(planning, "_NOISY_RUN", 1e9)
    thrifty = planned(users, epsilon)
    opening, descent = chosen.phases
    lots = opening.plan.blocks + descent.rounds
    if not noisy:
        assert chosen == thrifty
        return
    assert 3 * opening.plan.blocks <= lots + 1
    assert descent.rounds > thrifty.phases[1].rounds
    assert thrifty.bits_per_user < chosen.bits_per_user <= 4 * thrifty.bits_per_user
    # by another route: the run's noise per unit of clip, from the plan that was made, with its own noise
    share = descent.plan.noise_std * (lots * (COLUMNS + 1)) ** 0.5 / users / descent.plan.norm
    assert share > 0.005
    for plan in (chosen, thrifty):
        assert plan.guarantee.epsilon(1e-6) <= epsilon


def test_the_opening_of_a_noisy_run_has_as_few_blocks_as_3072_bits_allow(monkeypatch):
    problem = Problem(CappedLogistic(), Ball(dim=55, radius=50.0), feature_norm=2**0.5, constant=1.0)
    few = cr.schedule(problem, 5_000, epsilon=1.0, delta=1e-6, rule="practical").phases[0].plan
    assert (few.blocks, few.bits_per_user) == (8, 1024)
    assert planned(32_561, 0.1).phases[0].plan.bits_per_user == 3072  # of more columns, whose reports are longer
    blocks = planned(32_561, 0.1).phases[0].plan.blocks
    monkeypatch.setattr(planning, "_NOISY_BITS", 2048)
    assert planned(32_561, 0.1).phases[0].plan.blocks == 2 * blocks


@pytest.mark.parametrize(("epsilon", "inflation"), [(0.1, 1.06), (0.5, 1.25), (1.0, 1.25)])
def test_a_long_gradient_has_less_noise_where_noise_leaves_little_of_it(epsilon, inflation, monkeypatch):
    problem = Problem(CappedMultinomial(10), Ball(dim=7850, radius=50.0), feature_norm=2**0.5, constant=1.0)
    gradient = cr.schedule(problem, 60_000, epsilon=epsilon, delta=1e-6, rule="practical").phases[1].plan
    assert gradient.max_inflation == inflation
    monkeypatch.setattr(planning, "_FAINT_RUN", 1e9)
    usual = cr.schedule(problem, 60_000, epsilon=epsilon, delta=1e-6, rule="practical").phases[1].plan
    assert (gradient.noise_std < 0.95 * usual.noise_std) == (inflation < 1.2)
    assert gradient.bits_per_user <= 4 * usual.bits_per_user


@pytest.mark.parametrize(
    ("loss", "users", "epsilon", "momentum"),
    [
        (CappedLogistic(), 464_809, 1.0, 0.8),
        (CappedLogistic(), 464_809, 0.1, 0.0),
        (CappedLogistic(), 32_561, 1.0, 0.0),
        (Squared(), 464_809, 1.0, 0.7),
        (Squared(), 32_561, 1.0, 0.5),
        (Squared(), 5_000, 0.1, 0.0),
    ],
)
def test_the_quieter_a_run_is_the_more_momentum_it_has(loss, users, epsilon, momentum):
    problem = Problem(loss, Ball(dim=55, radius=50.0), feature_norm=2**0.5, constant=1.0)
    descent = cr.schedule(problem, users, epsilon=epsilon, delta=1e-6, rule="practical").phases[1]
    assert descent.momentum == momentum


def test_what_was_asked_for_is_not_overruled():
    assert planned(5_000, 1.0, max_inflation=1.5).phases[1].plan.max_inflation == 1.5


@pytest.mark.parametrize(("columns", "rule"), [(54, "whitened"), (127, "whitened"), (128, "centred"), (500, "centred")])
def test_several_classes_of_many_columns_are_centred(columns, rule):
    loss = CappedMultinomial(10)
    problem = Problem(loss, Ball(dim=10 * (columns + 1), radius=50.0), feature_norm=2**0.5, constant=1.0)
    assert f'rule "{rule}"' in cr.schedule(problem, 60_000, epsilon=0.5, delta=1e-6, rule="practical").why
