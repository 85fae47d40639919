"""Plans that count on a diameter: less noise, the same proof, and no way to claim one for vectors that do not have it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

import numpy as np
import pytest
from oracles import composed_delta, exact_delta

from croupier.arithmetic import LinearVectors
from croupier.optimizer import schedule
from croupier.optimizer._gradients import Gradients
from croupier.optimizer.phases import check_schedule
from croupier.population.population import Batch, Question
from croupier.privacy import ArgumentError, SumPlan, plan_sum
from croupier.privacy.calibration import is_proved
from croupier.problem import Ball, Logistic, Problem
from croupier.protocol._encoding import clip_to_ball, encode
from croupier.protocol.randomness import Secret

ROOT_2 = math.sqrt(2)
USUAL = {"epsilon": 1.0, "delta": 1e-6, "users": 1_000, "dim": 20}


@pytest.mark.parametrize("users", [1_000, 30_000])
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
@pytest.mark.parametrize("dim", [20, 1_500])
def test_sqrt_2_needs_at_most_0_72_of_the_noise(epsilon, users, dim):
    asked = {"epsilon": epsilon, "delta": 1e-6, "users": users, "dim": dim, "norm": 3.0, "max_inflation": 1.015}
    plain, narrow = plan_sum(**asked), plan_sum(**asked, diameter=3 * ROOT_2)
    assert narrow.noise_std <= 0.72 * plain.noise_std
    assert narrow.central_noise_std == pytest.approx(plain.central_noise_std / ROOT_2)
    assert narrow.certified_delta <= 1e-6
    assert narrow.inflation <= 1.015


@pytest.mark.parametrize("pattern", ["one coordinate", "spread equally"])
@pytest.mark.parametrize("asked", [{}, {"rounds": 4}, {"honest": 0.6}, {"epsilon": 4.0, "delta": 1e-4, "max_inflation": 1.2}])
@pytest.mark.parametrize("diameter", [1.0, ROOT_2])
def test_privacy_loss_distributions_confirm_it(asked, pattern, diameter):
    """The farthest pair that a diameter allows, composed over coordinates and rounds by dp_accounting."""
    plan = plan_sum(**{**USUAL, **asked}, diameter=diameter)
    trials, shift = plan.noise_bits * plan.honest_users, plan.levels * diameter / 2
    moves = [(0.0, shift, plan.rounds)] if pattern == "one coordinate" else [(0.0, shift / 20**0.5, 20 * plan.rounds)]
    delta = composed_delta(trials, plan.noise_probability, moves, plan.epsilon, optimistic=True, interval=2e-5)
    assert 0.1 * plan.certified_delta < delta <= plan.certified_delta


@pytest.mark.parametrize("diameter", [1.0, ROOT_2])
def test_exact_enumeration_of_a_small_plan_stays_below_the_certified_delta(diameter):
    """One coordinate, every pair of positions on a grid that is within the diameter, every outcome enumerated."""
    plan = plan_sum(epsilon=3.0, delta=1e-3, users=40, dim=1, max_inflation=1.5, diameter=diameter)
    far = plan.levels * diameter / 2
    grid = [k / 4 * plan.levels / 4 for k in range(17)]
    pairs = [(a, b) for a in grid for b in [*grid, a + far] if a < b <= min(a + far, plan.levels)]
    deltas = [exact_delta(plan.noise_bits * 40, plan.noise_probability, [a], [b - a], 3.0) for a, b in pairs]
    assert 0.01 * plan.certified_delta < max(deltas) <= plan.certified_delta + 1e-12


def test_twice_the_norm_is_no_claim_at_all():
    plain, claimed = plan_sum(**USUAL), plan_sum(**USUAL, diameter=2.0)
    figures = ("levels", "noise_bits", "noise_probability", "mu", "slack", "noise_std", "central_noise_std")
    assert [getattr(plain, name) for name in figures] == [getattr(claimed, name) for name in figures]


def test_zero_out_does_not_look_at_it():
    """A vector against the zero vector: no further than the norm."""
    plain, claimed = (plan_sum(**USUAL, neighbours="zero-out", diameter=diameter) for diameter in (None, ROOT_2))
    assert (plain.levels, plain.noise_bits, plain.mu, plain.noise_std) == (
        claimed.levels,
        claimed.noise_bits,
        claimed.mu,
        claimed.noise_std,
    )


@pytest.mark.parametrize(
    ("asked", "digest"),
    [
        ({}, "02e441fa8e117342"),
        ({"honest": 0.9, "rounds": 3, "norm": 2.5}, "840c301156689747"),
        ({"neighbours": "zero-out"}, "64c4bd0dbb565984"),
    ],
)
def test_plans_without_one_are_the_same_text_as_before(asked, digest):
    """The secrets of rounds are derived from it: digests are those of the version before diameters."""
    text = plan_sum(epsilon=1.0, delta=1e-6, users=1_000, dim=10, **asked).to_json()
    assert hashlib.sha256(text.encode()).hexdigest().startswith(digest)


def test_a_plan_carries_its_diameter_and_is_proved_when_read():
    plan = plan_sum(**USUAL, diameter=ROOT_2)
    assert SumPlan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["diameter"] == ROOT_2
    assert "by diameter" in plan.theorem
    assert "diameter 1.41421" in str(plan)


@pytest.mark.parametrize("diameter", [1.42, 1.9, 2.0])
def test_a_plan_whose_noise_is_for_a_smaller_diameter_is_refused(diameter):
    plan = plan_sum(**USUAL, diameter=ROOT_2)
    wider = dataclasses.replace(plan, diameter=diameter)
    assert not is_proved(wider)
    with pytest.raises(ArgumentError, match="claim follows"):
        SumPlan.from_dict(plan.to_dict() | {"diameter": diameter})
    text = {name: value for name, value in plan.to_dict().items() if name != "diameter"}
    with pytest.raises(ArgumentError, match="claim follows"):
        SumPlan.from_dict(text)


@pytest.mark.parametrize("diameter", [0.0, -1.0, 0.999, 2.001, math.nan, math.inf, "wide", True])
def test_a_diameter_that_no_set_with_zero_has_is_refused(diameter):
    with pytest.raises(ArgumentError, match=r"diameter = .* at least 1 and at most 2"):
        plan_sum(**USUAL, diameter=diameter)


def test_the_papers_calibration_knows_none():
    with pytest.raises(ArgumentError, match=r"diameter .* left out in the paper's calibration"):
        plan_sum(**USUAL, calibration="paper", diameter=ROOT_2)


def test_too_many_coordinates_to_compute_lengths_well_enough():
    with pytest.raises(ArgumentError, match="more than 1000000 coordinates"):
        plan_sum(**USUAL | {"dim": 10**6 + 1}, diameter=ROOT_2)


def test_gradients_cannot_be_asked_under_a_diameter():
    """An analyzer that sends a task with a claim that gradients do not keep would get them under too little noise."""
    problem = Problem(loss=Logistic(), domain=Ball(dim=20, radius=5.0))
    chosen = schedule(problem, 1_000, epsilon=1.0, delta=1e-6, rounds=1, lots="open")
    narrow = plan_sum(**USUAL, norm=chosen.phases[0].plan.norm, diameter=chosen.phases[0].plan.norm)
    assert is_proved(narrow)
    lying = dataclasses.replace(chosen, phases=(dataclasses.replace(chosen.phases[0], plan=narrow),))
    check_schedule(chosen, 1_000)
    with pytest.raises(ArgumentError, match=r"phase\.plan\.diameter .* gradients are anywhere"):
        check_schedule(lying, 1_000)
    with pytest.raises(ArgumentError, match=r"plan\.diameter .* claims no range"):
        Question(Gradients(problem, np.zeros(20)), Batch.everyone(1_000), narrow, Secret.of_seed(0))


def test_encodings_of_vectors_without_negative_entries_are_within_the_shift():
    """Clipping and scaling move no two of them further apart than S (1 + 1e-9): lengths up to, about and beyond the norm."""
    rng = np.random.default_rng(5)
    norm, dim = 0.7, 50
    plan = plan_sum(**USUAL | {"dim": dim}, norm=norm, diameter=norm * ROOT_2, rotation=None)
    vectors = np.abs(rng.normal(size=(400, dim))) * (rng.random((400, dim)) < 0.2)
    vectors[:40] = np.eye(dim)[:40]
    lengths = np.linalg.norm(vectors, axis=1)
    factors = norm * np.where(np.arange(400) % 3 == 0, 1.0, np.where(np.arange(400) % 3 == 1, 1 + 1e-15, rng.random(400) * 3))
    vectors *= (factors / np.maximum(lengths, 1e-9))[:, np.newaxis]
    (unit,) = clip_to_ball(LinearVectors.of(vectors), norm)
    encoded = encode(unit.numbers(), plan.levels)
    apart = np.sqrt(((encoded[:, np.newaxis] - encoded) ** 2).sum(axis=2))
    shift = plan.encoded_shift(plan.levels)
    assert 0.999999 * shift < apart.max() <= shift * (1 + 1e-9)
    assert np.abs(encoded[:, np.newaxis] - encoded).max() <= plan.encoded_reach(plan.levels)
