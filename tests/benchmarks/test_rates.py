"""The synthetic problems of the benchmark `rates` are what they claim: constants, minimisers, excess losses and draws."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import croupier as cr
from benchmarks.command import linked
from benchmarks.rates import judging, measuring, problems, writing
from croupier.problem import check

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
every_instance = pytest.mark.parametrize("name", problems.INSTANCES)


def losses_of(problem, theta, X, y):
    """Per-user losses by the library's own formula, or for the mean by |theta - x|^2 / 2 less what does not depend on theta."""
    return problem.losses(theta, X, y) if y is not None else ((theta - X) ** 2 - X**2).sum(axis=1) / 2


def points_of(instance, count):
    rng = np.random.default_rng(1)
    size = rng.random((count, 1)) * instance.problem.domain.radius
    directions = rng.normal(size=(count, instance.problem.dim))
    return size * directions / np.linalg.norm(directions, axis=1, keepdims=True)


@every_instance
def test_stated_constants_hold(name):
    instance = problems.INSTANCES[name]()
    X, y = instance.draw(np.random.default_rng(0), 500)
    assert check(instance.problem, X, y) == []


@every_instance
def test_start_is_as_far_as_the_schedule_assumes_and_the_minimiser_is_in_the_domain(name):
    instance = problems.INSTANCES[name]()
    domain = instance.problem.domain
    for point in (instance.start, instance.minimiser):
        assert np.allclose(domain.project(point), point)
    distance = np.linalg.norm(instance.start - instance.minimiser)
    assert distance == pytest.approx(domain.distance_bound(instance.start) * (0.5 if name.startswith("strong smooth") else 1))


@every_instance
def test_minimiser_by_a_line_search_in_every_coordinate(name):
    instance = problems.INSTANCES[name]()  # all four are separable: the minimiser is that of every coordinate
    for j, best in enumerate(instance.minimiser):

        def along(t, j=j):
            theta = instance.minimiser.copy()
            theta[j] = t
            return instance.value(theta)

        found = minimize_scalar(along, bounds=(best - 1.3, best + 1.1), method="bounded", options={"xatol": 1e-9})
        assert found.x == pytest.approx(best, abs=1e-6)
        assert found.fun >= instance.value(instance.minimiser) - 1e-12


@every_instance
def test_excess_is_at_least_what_strong_convexity_demands(name):
    instance = problems.INSTANCES[name]()
    for theta in points_of(instance, 200):
        least = instance.problem.strong_convexity / 2 * np.sum((theta - instance.minimiser) ** 2)
        assert instance.excess(theta) >= least - 1e-12


@every_instance
def test_excess_is_the_mean_over_drawn_users(name):
    # Hoeffding: a user's difference lies within +-L |theta - theta*|; 4 x 8 comparisons at 2e-8 each, false alarm < 1e-6
    instance, users = problems.INSTANCES[name](), 200_000
    X, y = instance.draw(np.random.default_rng(2), users)
    at_minimiser = losses_of(instance.problem, instance.minimiser, X, y)
    for theta in points_of(instance, 8):
        drawn = float(np.mean(losses_of(instance.problem, theta, X, y) - at_minimiser))
        reach = instance.problem.lipschitz * float(np.linalg.norm(theta - instance.minimiser))
        assert abs(drawn - instance.excess(theta)) <= 2 * reach * math.sqrt(math.log(2 / 2e-8) / (2 * users))


def test_a_stream_fed_by_batches_is_the_stream_fed_by_records(monkeypatch):
    # gradients of +-norm are rounded without chance; without noise both ways must then be equal, state for state
    monkeypatch.setattr(cr.PanPrivate, "_noise", lambda self, plan: np.zeros(plan.dim, dtype=np.int64))
    ball = cr.domains.Ball(dim=1, radius=1.0)
    problem = cr.CustomProblem(lambda theta, X, y: np.sign(theta - X), ball, lipschitz=1.0, smoothness=1.0)
    X = np.random.default_rng(0).normal(size=(600, 1))
    request = {"epsilon": 5.0, "delta": 1e-6, "seed": 0}
    one_by_one, by_batch = cr.PanPrivate(problem, 600, **request), problems.Stream(problem, 600, **request)
    for x in X:
        one_by_one.feed(x)
    by_batch.feed_all(X, None)
    assert one_by_one.finished
    assert by_batch.finished
    assert by_batch.schedule.rounds > 1
    assert by_batch.state.to_json() == one_by_one.state.to_json()


def test_slopes_and_verdicts_of_exact_power_laws():
    row = measuring.ROWS[0]
    for power, verdict in ((-row.exponent, "as stated"), (-row.exponent - 0.2, "steeper"), (-row.exponent + 0.2, "shallower")):
        points = [
            {"users": n, "epsilon": 1.0, "bound": 4 * n**power, "bound_without_privacy": n**power, "excess": [n**power] * 3}
            for n in (100, 300, 1000)
        ]
        summary = judging.summary(row.exponent, "n", points)
        assert summary["slope"] == pytest.approx(power)
        assert summary["interval"] == pytest.approx((power, power))
        assert summary["privacy_share"] == pytest.approx(0.75)
        assert summary["verdict"] == verdict


def test_stored_rates_follow_from_their_runs_and_their_text_from_them():
    # whether they hold is the script's exit code; here: nothing stored says other than the stored runs do
    results = json.loads((RESULTS / "rates.json").read_text())
    assert linked(writing.page(results), "../../docs/evidence") == (RESULTS / "rates.md").read_text()
    assert len(results["rows"]) == len(measuring.ROWS)
    for row, stored in zip(measuring.ROWS, results["rows"], strict=True):
        assert (stored["theorem"], stored["exponent"]) == (row.theorem, row.exponent)
        for axis in judging.AXES:
            points = stored[axis]["points"]
            name = "users" if axis == "n" else "epsilon"
            fitted = np.polyfit(np.log([p[name] for p in points]), np.log([np.median(p["excess"]) for p in points]), 1)[0]
            assert stored[axis]["slope"] == pytest.approx(fitted)
            assert (stored[axis]["verdict"] == "shallower") == (fitted > judging.TOLERANCE - row.exponent)
            for point, (users, epsilon) in zip(points, row.grid(axis, len(points)), strict=True):
                assert (point["users"], point["epsilon"]) == (users, pytest.approx(epsilon, rel=1e-12))  # processors differ
