"""Plans of sums, plans of models by each transport, and fits of both encoders."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

import croupier as cr
from croupier import __version__
from croupier.privacy._tight import modulus_bits
from croupier.privacy.plan import SumPlan
from croupier.service.wire.reports import VerifiedSizes

from ..accuracy.measuring import predict, problem_from_dict
from ..datasets import loader
from ..protocol import Results

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
SUMS = ((10_000, 100, 1.05), (10_000, 1000, 1.05), (10_000, 1000, 1.15), (100_000, 1000, 1.05))
# task, users, columns with the constant, classes
TASKS = (("adult", 32_561, 109, 2), ("covtype", 464_809, 55, 2), ("mnist10", 60_000, 785, 10))
BEFORE: dict[str, Any] = {"rotation": False, "max_inflation": 1.05}
# The default rule, whose first rounds ask about rows, and the one that asks for gradients alone.
RULES = ("practical", "plain")
FITTED: dict[str, Any] = {"rule": RULES[0], "lots": "secret"}
# Blocks are for transports where a coordinate is long whatever its noise.
TRANSPORTS: dict[str, dict[str, Any]] = {
    "messages": {},
    "masked": {"transport": "masked", "blocks": "auto"},
    "verified": {"transport": "verified"},
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add where the data is, and how many fits."""
    parser.add_argument("--data", type=Path, help="folder with load.py, for the fits")
    parser.add_argument("--seeds", type=int, default=3, help="fits of each kind")
    every = [task for task, *_ in TASKS]
    parser.add_argument("--fits", nargs="*", default=every, help="tasks that are fitted, others' fits stay as stored; default: all")


def sent(plan: SumPlan, transport: str) -> int:
    """The bits that a person sends in one round: messages, masked counts, or a whole verified report."""
    if transport == "masked":
        each = modulus_bits(plan.users, plan.levels, plan.noise_bits) if plan.range is not None else masked_before(plan)
        return plan.coordinates * each
    if transport == "verified":
        sizes = VerifiedSizes(plan.coordinates, plan.bits_per_coordinate)
        return 8 * (sizes.sealed + sizes.open)
    return plan.bits_per_user


def masked_before(plan: SumPlan) -> int:
    """A masked count that holds the worst case."""
    return (plan.users * plan.bits_per_coordinate).bit_length()


def described(plan: SumPlan) -> dict[str, Any]:
    """What a plan is."""
    return {
        "levels": plan.levels,
        "noise_bits": plan.noise_bits,
        "coordinates": plan.coordinates,
        "blocks": plan.blocks,
        "box": None if plan.range is None else plan.range * plan.padded**0.5,
        "inflation": plan.inflation,
        "bias_bound": plan.bias_bound,
        "bias_rms": plan.bias_rms,
        "noise_std": plan.noise_std,
    }


def sums() -> list[dict[str, Any]]:
    """One round, both encoders."""
    found = []
    for users, dim, limit in SUMS:
        request = BUDGET | {"users": users, "dim": dim, "max_inflation": limit}
        for way, rotation in (("rotated", "auto"), ("before", None)):
            plan = cr.plan_sum(**request, rotation=rotation)
            found.append(
                {"users": users, "dim": dim, "limit": limit, "way": way, "bits": plan.bits_per_user / dim} | described(plan)
            )
    return found


def models() -> list[dict[str, Any]]:
    """The plans of a fit by each rule and transport, both encoders: what a person sends at most, and in each kind of round."""
    found = []
    for (task, users, columns, classes), rule in product(TASKS, RULES):
        problem = problem_from_dict(columns, classes, 50.0)
        for transport, how in TRANSPORTS.items():
            for way, options_ in (("now", how), ("before", BEFORE)):
                planned = cr.schedule(problem, users, **BUDGET, **FITTED | {"rule": rule}, **options_)
                stages = [{"asks": p.algorithm, "rounds": p.rounds, "bits": sent(p.plan, transport)} for p in planned.phases]
                line = {
                    "task": task,
                    "rule": rule,
                    "users": users,
                    "dim": problem.dim,
                    "transport": transport,
                    "way": way,
                    "rounds": planned.rounds,
                    "bits": max(stage["bits"] for stage in stages),
                    "stages": stages,
                }
                found.append(line | described(planned.phases[-1].plan))
    return found


def fits(load: Any, seeds: int, tasks: list[str]) -> list[dict[str, Any]]:
    """Test accuracy and seconds of fits, taking turns."""
    found = []
    for task, _, _, classes in TASKS:
        if task not in tasks:
            continue
        X, y, X_test, y_test = load(task)
        problem = problem_from_dict(X.shape[1], classes, 50.0)
        ways: dict[str, dict[str, Any]] = {"before": BEFORE, "messages": {}}
        if classes > 2:
            ways |= {"masked": TRANSPORTS["masked"], "verified": TRANSPORTS["verified"]}
        scores: dict[str, list[float]] = {way: [] for way in ways}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(seeds):
            for way, how in ways.items():
                begun = time.process_time()
                result = cr.minimize(problem, (X, y), **BUDGET, **FITTED, **how)
                seconds[way].append(time.process_time() - begun)
                scores[way].append(float((predict(result.theta, X_test, classes) == y_test).mean()))
        for way in ways:
            found.append(
                {"task": task, "way": way, "seeds": seeds, "accuracy": statistics.median(scores[way])}
                | {"least": min(scores[way]), "most": max(scores[way]), "cpu_seconds": statistics.median(seconds[way])}
            )
    return found


def measure(arguments: argparse.Namespace) -> Results:
    """All of it; fits only where the data is, and of the tasks that are asked for."""
    results: Results = {"version": __version__, "quick": arguments.quick, "sums": sums(), "models": models(), "fits": []}
    if not arguments.quick:
        if arguments.data is None and arguments.fits:
            arguments.error("--data is needed: the folder with load.py")
        file = arguments.folder / "bits.json"
        stored = json.loads(file.read_text())["fits"] if file.exists() else []
        found = fits(loader(arguments.data).load, arguments.seeds, arguments.fits) if arguments.fits else []
        order = [task for task, *_ in TASKS]
        kept = [fit for fit in stored if fit["task"] not in arguments.fits]
        results["fits"] = sorted(kept + found, key=lambda fit: order.index(fit["task"]))
    return results
