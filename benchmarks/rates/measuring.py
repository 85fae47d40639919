"""Runs of the real protocol: the excess loss of every seed, over the users n and over epsilon."""

from __future__ import annotations

import argparse
import math
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import croupier as cr
from croupier.optimizer.training import run
from croupier.population import ArrayPopulation
from croupier.protocol import NotPrivateWarning

from ..cells import Cells
from ..protocol import Results
from .judging import AXES, TOLERANCE, summary
from .problems import INSTANCES, Stream

DELTA = 1e-20
SECRET_DELTA = 1e-6  # of secret lots: smaller ones cost more noise than open lots do
WITHOUT_PRIVACY = 100.0  # an epsilon so large that what is left of the bound is optimisation and sampling


@dataclass(frozen=True)
class Row:
    """One curve: n up to `users` at `epsilon`, and epsilon at `fixed` users over the same range of epsilon n."""

    name: str
    theorem: str
    method: str
    interactivity: str
    instance: str
    exponent: float  # of epsilon n in the privacy term
    users: int
    epsilon: float
    fixed: int
    span: float  # largest over smallest n, and epsilon
    seeds: int = 31
    lots: str = "open"
    delta: float = DELTA
    paper_rounds: bool = False  # P_GD: T = min(n, (nL)^2 / (d s^2)) as in Thm 4.9, s the noise of one round

    def grid(self, axis: str, points: int) -> list[tuple[int, float]]:
        steps = np.geomspace(1 / self.span, 1, points)
        if axis == "n":
            return [(round(self.users * step), self.epsilon) for step in steps]
        return [(self.fixed, float(self.epsilon * self.users / self.fixed * step)) for step in steps]


SEQUENTIAL, FULL, STREAM = "sequential", "full", "stream"
ROWS = [
    Row("P_SGD, convex", "Thm 4.1", "sgd", SEQUENTIAL, "kink", 1 / 2, 100_000, 0.4, 50_000, 20),
    Row("convex", "Table 1, Thm 4.7", "smoothed-acsa", SEQUENTIAL, "kink", 2 / 3, 100_000, 0.4, 50_000, 20),
    Row("convex, smooth", "Table 1, Thm 4.3", "acsa", SEQUENTIAL, "smooth", 4 / 5, 200_000, 0.14, 100_000, 20),
    Row("strongly convex", "Table 1, Thm 4.8", "phased", SEQUENTIAL, "strong kink", 4 / 3, 800_000, 0.4, 400_000, 10, 25),
    Row(
        "strongly convex, smooth", "Table 1, Thm 4.8", "phased", SEQUENTIAL, "strong smooth", 2, 2_000_000, 0.085, 1_000_000, 8, 25
    ),
    Row("convex", "Table 1, Thm 4.9", "gd", FULL, "kink", 1, 10_000, 0.08, 10_000, 5, 15, paper_rounds=True),
    Row("strongly convex", "Table 1, Thm 4.9", "phased-gd", FULL, "strong smooth, close", 2, 6_000, 0.55, 4_500, 4),
    Row("convex, smooth", "beyond the paper", "acsa", FULL, "smooth", 1, 20_000, 0.14, 10_000, 10, 25),
    Row("convex", "secret lots", "smoothed-acsa", SEQUENTIAL, "kink", 1, 5_000, 0.12, 5_000, 10, lots="secret", delta=SECRET_DELTA),
    Row(
        "convex, smooth",
        "secret lots",
        "acsa",
        SEQUENTIAL,
        "smooth",
        1,
        10_000,
        0.03,
        10_000,
        10,
        lots="secret",
        delta=SECRET_DELTA,
    ),
    Row("convex", "Thm C.3 (1)", "smoothed-acsa", STREAM, "kink", 2 / 3, 100_000, 0.55, 50_000, 20),
    Row("convex, smooth", "Thm C.3 (2)", "acsa", STREAM, "smooth", 4 / 5, 200_000, 0.2, 100_000, 20),
    Row("strongly convex", "Thm C.3 (3)", "phased", STREAM, "strong kink", 4 / 3, 800_000, 0.55, 400_000, 10, 75),
    Row("strongly convex, smooth", "Thm C.3 (4)", "phased", STREAM, "strong smooth", 2, 2_000_000, 0.12, 1_000_000, 8, 25),
]


def measure_point(job: tuple[int, str, int, float, int]) -> dict[str, Any]:
    """One point of one curve: the schedule's bound, what is left of it without privacy, and the excess loss of every seed."""
    index, axis, users, epsilon, seeds = job
    warnings.simplefilter("ignore", NotPrivateWarning)
    row, instance = ROWS[index], INSTANCES[ROWS[index].instance]()
    request = {"delta": row.delta, "method": row.method, "start": instance.start}
    schedule = request | {"interactivity": row.interactivity, "lots": row.lots}
    rounds = paper_rounds(instance.problem, users, epsilon) if row.paper_rounds else None
    private_schedule = cr.schedule(instance.problem, users, epsilon=epsilon, rounds=rounds, **schedule)
    plain_schedule = cr.schedule(instance.problem, users, epsilon=WITHOUT_PRIVACY, **schedule)
    excess = []
    for seed in range(seeds):
        X, y = instance.draw(np.random.default_rng([index, axis == "n", users, round(1e6 * epsilon), seed]), users)
        if row.interactivity == STREAM:
            theta = Stream(instance.problem, users, epsilon=epsilon, seed=seed, **request).feed_all(X, y)
        else:
            theta = run(instance.problem, ArrayPopulation(X, y), private_schedule, start=instance.start, seed=seed).theta
        excess.append(instance.excess(theta))
    return {
        "users": users,
        "epsilon": epsilon,
        "bound": private_schedule.bound,
        "bound_without_privacy": plain_schedule.bound,
        "rounds": [phase.rounds for phase in private_schedule.phases],
        "excess": [float(f"{value:.4g}") for value in excess],
    }


def paper_rounds(problem: Any, users: int, epsilon: float) -> int:
    """Thm 4.9's T = min(n, eps^2 n^2 / (d log^2)), with the noise of our plan in the place of the logarithm."""
    plan = cr.plan_sum(epsilon=epsilon, delta=DELTA, users=users, dim=problem.dim, norm=problem.lipschitz)
    return min(users, math.ceil((users * problem.lipschitz) ** 2 / (problem.dim * plan.noise_std**2)))


def measure(arguments: argparse.Namespace) -> Results:
    """All curves. The costly points go first, so that no process idles at the end."""
    quick, points = arguments.quick, 3 if arguments.quick else 5
    jobs = []
    for index, row in enumerate(ROWS):
        size = replace(row, users=row.users // 4, fixed=row.fixed // 4, span=4.0, seeds=3) if quick else row
        jobs += [(index, axis, *point, size.seeds) for axis in AXES for point in size.grid(axis, points)]
    settings = {"delta": DELTA, "rows": [asdict(row) for row in ROWS]}
    cells = Cells(arguments.folder / "rates.cells.jsonl", settings, fresh=arguments.fresh)
    found = cells.all(jobs, measure_point, processes=arguments.processes, description="rates", first=lambda job: -job[2] * job[3])
    rows = []
    for index, row in enumerate(ROWS):
        curve = {key: getattr(row, key) for key in ("name", "theorem", "method", "interactivity", "instance", "exponent")}
        for axis in AXES:
            mine = [result for job, result in zip(jobs, found, strict=True) if job[:2] == (index, axis)]
            curve[axis] = summary(row.exponent, axis, mine)
        rows.append(curve | {"rounds_of_paper": row.paper_rounds})
    return {"version": cr.__version__, "quick": quick, "delta": DELTA, "tolerance": TOLERANCE, "rows": rows}
