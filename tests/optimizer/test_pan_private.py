"""Pan-private AC-SA: what an intruder sees, and that it learns."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest

import croupier as cr
from croupier.audit import empirical_audit
from croupier.problem import Ball, Hinge, Logistic, Problem
from croupier.protocol.randomness import RandomSource

BUDGET = {"epsilon": 2.0, "delta": 1e-6}
VARIANTS = [(Hinge(), 0.0, "smoothed-acsa"), (Logistic(), 0.0, "acsa"), (Hinge(), 0.3, "phased"), (Logistic(), 0.3, "phased")]


def fed(problem, X, y, **options):
    stream = cr.PanPrivate(problem, len(X), **{**BUDGET, **options})
    for row, target in zip(X, y, strict=True):
        stream.feed(row, target)
    return stream


@pytest.mark.parametrize(("loss", "l2", "method"), VARIANTS)
def test_the_four_variants_of_theorem_c_3_learn_within_their_bound(binary, loss, l2, method):
    X, y = binary
    problem = Problem(loss, Ball(dim=3, radius=3.0), l2=l2)
    stream = cr.PanPrivate(problem, len(X), **BUDGET)
    assert stream.schedule.method == method
    assert stream.guarantee.delta(2.0) <= 1e-6
    assert "pan-private" in stream.guarantee.theorem
    start = problem.losses(np.zeros(3), X, y).mean()
    learned = fed(problem, X, y, seed=1)  # the same law, and the same outcome every time
    assert learned.finished
    assert problem.losses(learned.theta, X, y).mean() < start
    with_shuffle = cr.schedule(problem, len(X), **BUDGET, method=method)
    assert stream.schedule.bound > with_shuffle.bound  # two draws of noise instead of one


def test_the_state_is_plain_numbers_and_holds_no_randomness(binary):
    X, y = binary
    problem = Problem(Logistic(), Ball(dim=3, radius=3.0))
    stream = cr.PanPrivate(problem, len(X), **BUDGET)
    for row, target in zip(X[:100], y[:100], strict=True):
        stream.feed(row, target)
        state = json.loads(stream.state.to_json())
        assert set(state) == {"phase", "round", "taken", "theta", "aggregate", "counts"}
        assert all(isinstance(count, int) for count in state["counts"])
    assert not any(isinstance(value, RandomSource) for value in vars(stream).values())


def test_before_any_record_the_sum_is_already_noise():
    """An intruder after the first record must meet noise that was there before it: counts begin as Bin(b * batch, p)."""
    problem = Problem(Logistic(), Ball(dim=200, radius=3.0))
    stream = cr.PanPrivate(problem, 1000, **BUDGET)
    plan = stream.schedule.phases[0].plan
    trials, p = plan.noise_bits * plan.users, plan.noise_probability
    counts = stream.state.counts
    # 200 draws: the mean is within 5.5 standard errors, false-alarm rate 1e-7
    assert abs(counts.mean() - trials * p) < 5.5 * np.sqrt(trials * p * (1 - p) / 200)
    assert np.unique(counts).size > 20


def test_an_intruder_right_after_the_record_passes_the_membership_game():
    problem = Problem(Logistic(), Ball(dim=1, radius=5.0))
    stream = cr.PanPrivate(problem, 40, epsilon=4.0, delta=1e-6, seed=8)
    plan = stream.schedule.phases[0].plan

    def mechanism(neighbour):
        stream.state = dataclasses.replace(stream.state, taken=0, counts=stream._noise(plan))
        stream.feed([1.0], 1 if neighbour else 0)
        return float(stream.state.counts[0])

    result = empirical_audit(mechanism, claim=plan.guarantee, delta=1e-6, trials=6000)
    assert result.passed
    assert result.mu_lower > 0


def test_seeded_streams_repeat_and_are_not_private(binary):
    X, y = (part[:300] for part in binary)
    problem = Problem(Logistic(), Ball(dim=3, radius=3.0))
    first, second = (fed(problem, X, y, seed=5) for _ in range(2))
    assert np.array_equal(first.theta, second.theta)
    assert first.guarantee is None


def test_records_beyond_the_schedule_change_nothing(binary):
    X, y = (part[:300] for part in binary)
    stream = fed(Problem(Logistic(), Ball(dim=3, radius=3.0)), X, y)
    before = stream.theta
    stream.feed(X[0], y[0])
    assert stream.theta is before


def test_a_loss_with_a_kink_and_no_prox_is_refused():
    own = cr.CustomProblem(lambda theta, X, y: np.sign(theta - X), Ball(dim=2, radius=1.0), lipschitz=2.0)
    with pytest.raises(cr.ArgumentError, match="smooth"):
        cr.PanPrivate(own, 100, **BUDGET)


def test_a_record_that_fails_is_not_in_the_state_and_can_be_fed_again(binary):
    X, y = (part[:300] for part in binary)
    problem = Problem(Logistic(), Ball(dim=3, radius=3.0))
    stream = cr.PanPrivate(problem, 300, **BUDGET, rounds=30)
    for row, target in zip(X[:9], y[:9], strict=True):
        stream.feed(row, target)
    before = stream.state
    project = Ball.project

    def broken(self, theta):
        raise MemoryError

    Ball.project = broken
    try:
        with pytest.raises(MemoryError):
            stream.feed(X[9], y[9])  # the last of a batch of ten: the step fails
    finally:
        Ball.project = project
    assert stream.state is before
    stream.feed(X[9], y[9])
    assert (stream.state.round, stream.state.taken) == (2, 0)
    with pytest.raises(cr.ArgumentError):
        stream.feed([np.nan, 0, 0], 1)


def test_streams_cannot_be_copied():
    stream = cr.PanPrivate(Problem(Logistic(), Ball(dim=2, radius=1.0)), 100, **BUDGET)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied"):
            copied(stream)
