"""Which plan a run gets, by public facts alone."""

from __future__ import annotations

import pytest

import croupier as cr
from croupier.optimizer import planning
from croupier.privacy import plan_lots
from croupier.problem import Ball, CappedLogistic, CappedMultinomial, Problem, Squared

COLUMNS = 104


def planned(users, epsilon, **options):
    problem = Problem(CappedLogistic(), Ball(dim=COLUMNS + 1, radius=50.0), feature_norm=2**0.5, constant=1.0)
    return cr.schedule(problem, users, **{"epsilon": epsilon, "delta": 1e-6, "rule": "practical"} | options)


@pytest.mark.parametrize(
    ("users", "epsilon", "inflation"), [(200_000, 8.0, 1.6), (32_561, 1.0, 1.4), (32_561, 0.5, 1.2), (32_561, 0.1, 1.1)]
)
def test_the_noisier_a_run_is_the_less_noise_it_has_for_more_bits(users, epsilon, inflation, monkeypatch):
    chosen = planned(users, epsilon, rule="scaled")
    monkeypatch.setattr(planning, "_THRIFTY", ((-1.0, 1.6),))
    thrifty = planned(users, epsilon, rule="scaled")
    opening, descent = chosen.phases
    assert descent.plan.max_inflation == inflation
    assert (chosen == thrifty) == (inflation == 1.6)
    assert thrifty.bits_per_user <= chosen.bits_per_user <= 4 * thrifty.bits_per_user
    # by another route: the run's noise per unit of clip, from the plan that was made, with its own noise
    lots = opening.rounds * opening.plan.blocks + descent.rounds
    share = descent.plan.noise_std / descent.plan.inflation * (lots * (COLUMNS + 1)) ** 0.5 / users / descent.plan.norm
    assert inflation == next(limit for least, limit in ((0.02, 1.1), (0.005, 1.2), (0.001, 1.4), (0, 1.6)) if share > least)
    for plan in (chosen, thrifty):
        assert plan.guarantee.epsilon(1e-6) <= epsilon


@pytest.mark.parametrize(("users", "epsilon"), [(32_561, 0.5), (32_561, 0.1), (5_000, 1.0)])
def test_a_noisy_run_has_more_rounds_of_gradients(users, epsilon, monkeypatch):
    chosen = planned(users, epsilon, rule="whitened")
    monkeypatch.setattr(planning, "_NOISY_RUN", 1e9)
    thrifty = planned(users, epsilon, rule="whitened")
    opening, descent = chosen.phases
    assert 3 * opening.plan.blocks <= opening.plan.blocks + descent.rounds + 1
    assert descent.rounds > thrifty.phases[1].rounds


def test_the_opening_of_a_noisy_run_has_as_few_blocks_as_3072_bits_allow(monkeypatch):
    problem = Problem(CappedLogistic(), Ball(dim=55, radius=50.0), feature_norm=2**0.5, constant=1.0)
    few = cr.schedule(problem, 5_000, epsilon=1.0, delta=1e-6, rule="whitened").phases[0].plan
    assert (few.blocks, few.bits_per_user) == (8, 1024)
    asked = {"rule": "whitened"}
    assert planned(32_561, 0.1, **asked).phases[0].plan.bits_per_user == 3072  # of more columns, whose reports are longer
    blocks = planned(32_561, 0.1, **asked).phases[0].plan.blocks
    monkeypatch.setattr(planning, "_NOISY_BITS", 2048)
    assert planned(32_561, 0.1, **asked).phases[0].plan.blocks == 2 * blocks


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
    ("loss", "users", "epsilon", "opening", "momentum", "focus"),
    [
        (CappedLogistic(), 464_809, 1.0, "moments", 0.8, 0.5),
        (CappedLogistic(), 464_809, 0.1, "moments", 0.0, 0.5),
        (CappedLogistic(), 15_000, 100.0, "moments", 0.0, 0.0),  # what few people leave to chance counts as noise
        (CappedLogistic(), 32_561, 0.5, "moments", 0.0, 0.0),
        (CappedLogistic(), 32_561, 0.1, "spread", 0.6, 0.0),
        (CappedLogistic(), 5_000, 1.0, "spread", 0.6, 0.0),
        (Squared(), 464_809, 1.0, "moments", 0.8, 0.0),
        (Squared(), 100_000, 0.5, "moments", 0.7, 0.0),
        (Squared(), 15_000, 0.5, "moments", 0.8, 0.0),
        (Squared(), 5_000, 0.1, "moments", 0.0, 0.0),
        (Squared(), 5_000, 0.7, "moments", 0.5, 0.0),
    ],
)
def test_the_quieter_a_run_is_the_more_momentum_it_has(loss, users, epsilon, opening, momentum, focus):
    problem = Problem(loss, Ball(dim=55, radius=50.0), feature_norm=2**0.5, constant=1.0)
    planned = cr.schedule(problem, users, epsilon=epsilon, delta=1e-6, rule="practical")
    first, descent = planned.phases
    assert (first.algorithm, descent.momentum, descent.focus) == (opening, momentum, focus)
    assert ("people with even odds may count most" in planned.why) == bool(focus)
    assert ('rule "scaled", for two classes of 55 columns, whose products noise would hide' in planned.why) == (opening == "spread")
    # by another route: the edge of the noise in second moments, over that of rows of equal energy in all directions
    if loss.outputs == 1 and not isinstance(loss, Squared):
        whole = plan_lots(epsilon=epsilon, delta=1e-6, users=users, rounds=50, dim=1)
        edge = (2 * 55) ** 0.5 * whole.noise_std * 50**0.5 / users
        assert (edge * 55 > 1.0) == (opening == "spread")


def test_what_was_asked_for_is_not_overruled():
    assert planned(5_000, 1.0, max_inflation=1.5).phases[1].plan.max_inflation == 1.5


@pytest.mark.parametrize(("columns", "rule"), [(30, "whitened"), (120, "centred"), (500, "centred")])
def test_several_classes_whose_products_noise_would_hide_are_centred(columns, rule):
    loss = CappedMultinomial(10)
    problem = Problem(loss, Ball(dim=10 * (columns + 1), radius=50.0), feature_norm=2**0.5, constant=1.0)
    assert f'rule "{rule}"' in cr.schedule(problem, 60_000, epsilon=0.5, delta=1e-6, rule="practical").why


def test_several_classes_of_more_than_128_columns_are_centred_in_quiet_runs_too():
    """Second moments of so many columns would make deployed reports fourteen times as long."""
    for columns, rule in ((128, "whitened"), (129, "centred")):
        ball = Ball(dim=4 * columns, radius=100.0)
        problem = Problem(CappedMultinomial(4), ball, feature_norm=2**0.5, constant=1.0)
        assert f'rule "{rule}"' in cr.schedule(problem, 10**6, epsilon=4.0, delta=1e-6, rule="practical").why
