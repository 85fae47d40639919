"""Plans that people may ask for and corners that they hardly will, by the fast certificate and in ball arithmetic."""

from __future__ import annotations

import argparse
import platform
import random
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from croupier import __version__, plan_sum
from croupier.privacy import ArgumentError, NoCertificateError, certify
from croupier.privacy._proof import SHIFT_FACTOR, ball_constants

from .. import cells
from ..protocol import Results

TRIALS = [10, 100, 10**3, 10**4, 10**6, 10**8, 10**10, 10**12]
TAILS = [0.3, 1e-2, 1e-6, 1e-12, 1e-60, 1e-300]
POWERS = [1, 2, 4, 8, 14, 20, 26, 32, 40]
QUICK_TRIALS = [10, 100]
HEADROOM = "fast figure / upper end of its enclosure - 1; negative is wrong"
REFUSED = "refused by the fast certificate"


def random_request(rng: random.Random) -> dict[str, Any]:
    """What people may ask for, and a little beyond: from 5 users to 3e7, rounds, doubtful honesty, few bits."""
    request: dict[str, Any] = {
        "epsilon": 10 ** rng.uniform(-1.5, 1.2),
        "delta": 10 ** rng.uniform(-14, -2),
        "users": int(10 ** rng.uniform(0.7, rng.choice([4, 5, 5, 5, 7.5]))),
        "dim": int(10 ** rng.uniform(0, 5)),
        "norm": 10 ** rng.uniform(-3, 3),
        "honest": rng.choice([1.0, 1.0, rng.uniform(0.01, 1)]),
        "rounds": rng.choice([1, 1, 1, rng.randint(2, 1000)]),
        "neighbours": rng.choice(["replace-one", "zero-out"]),
        "max_inflation": 1 + 10 ** rng.uniform(-2, 0),
    }
    if rng.random() < 0.3:
        request["max_bits"] = int(10 ** rng.uniform(0.7, 3))
    return request


def corners(every: Iterable[int] = TRIALS) -> Iterator[tuple[int, float, int, int, float]]:
    """(trials, probability, reach, dim, tail): trials to 10^12, probabilities 2^-k on both sides, tails to 1e-300."""
    for trials in every:
        for power in POWERS:
            for probability in sorted({2.0**-power, 1 - 2.0**-power}):
                width = (trials * probability * (1 - probability)) ** 0.5
                for tail in TAILS:
                    yield trials, probability, max(1, round(width / 8)), 1 + trials % 97, tail


def headroom(fast: float, ball: Any) -> float:
    """How far a fast figure is above the upper end of a ball, as a part of it: negative where it is wrong."""
    return float((fast / ball.upper() - 1).mid())


def sweep_corners(trials: int) -> dict[str, Any]:
    """Corners with so many trials: how many the fast certificate refuses, and its headroom in each of the others."""
    found: dict[str, Any] = {REFUSED: 0, "mu scanned": [], "mu in blocks": [], "tau": []}
    for _, probability, reach, dim, tail in corners([trials]):
        try:
            fast = certify(trials, probability, shift=float(reach), reach=reach, dim=dim, tail=tail)
        except NoCertificateError:
            found[REFUSED] += 1
            continue
        window = {"low": fast.low, "high": fast.high}
        ball = ball_constants(trials, probability, shift=reach * SHIFT_FACTOR, reach=reach, dim=dim, **window)
        found["mu scanned" if ball.step is not None else "mu in blocks"].append(headroom(fast.mu, ball.mu))
        found["tau"].append(headroom(fast.tau, ball.tau))
    return found


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Sweeps of corners as one, with spreads in place of lists; without a list that is empty."""
    found: dict[str, Any] = {REFUSED: sum(part[REFUSED] for part in parts)}
    for name in ("mu scanned", "mu in blocks", "tau"):
        values = [value for part in parts for value in part[name]]
        found |= {name: spread(values)} if values else {}
    return found


def sweep_plans(count: int, seed: int) -> dict[str, Any]:
    """So many plans for random requests, each with its proof: headroom and seconds."""
    rng = random.Random(seed)
    margins: dict[str, list[float]] = {"mu": [], "delta": []}
    times, blocks, refused = [], 0, 0
    while len(times) < count:
        try:
            plan = plan_sum(**random_request(rng))
        except (ArgumentError, NoCertificateError):  # max_bits too few, too few users for so little inflation: nothing to prove
            refused += 1
            continue
        start = time.perf_counter()
        proof = plan.prove()  # raises where the plan is not above the enclosures
        times.append(time.perf_counter() - start)
        blocks += proof.step is None
        whole = Fraction(proof.mu.upper) ** 2 * plan.rounds
        margins["mu"].append(float(Fraction(plan.mu or 0) ** 2 / whole - 1) / 2)
        margins["delta"].append(float(Fraction(plan.certified_delta) / Fraction(proof.delta.upper) - 1))
    return {
        "proved": count,
        "of them in blocks": blocks,
        "requests without a plan": refused,
        "seconds": spread(times),
    } | {name: spread(values) for name, values in margins.items()}


def spread(values: list[float]) -> dict[str, float]:
    """How many there are, the least, the median and the most."""
    return {"count": len(values), "least": min(values), "median": float(np.median(values)), "most": max(values)}


def sweep(job: tuple[str, int, int] | tuple[str, int]) -> dict[str, Any]:
    """Random plans of one seed, or corners with so many trials."""
    kind, *numbers = job
    return sweep_plans(*numbers) if kind == "plans" else sweep_corners(*numbers)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--plans", type=int, default=130, help="random plans of each seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--note", default="", help="what a reader should know of this run, such as how busy the machine was")
    cells.options(parser)


def measure(arguments: argparse.Namespace) -> Results:
    """Random plans, seed by seed, and corners."""
    seeds, count, trials = arguments.seeds, arguments.plans, TRIALS
    if arguments.quick:
        seeds, count, trials = seeds[:1], min(count, 10), QUICK_TRIALS
    jobs: list[Any] = [("plans", count, seed) for seed in seeds] + [("corners", some) for some in trials]
    settings = {"code": cells.fingerprint(Path(__file__))}
    kept = cells.Cells(arguments.folder / "proofs.cells.jsonl", settings, fresh=arguments.fresh)
    found = kept.all(jobs, sweep, processes=arguments.processes, description="proofs")
    return {
        "version": __version__,
        "python": platform.python_version(),
        "quick": arguments.quick,
        "headroom": HEADROOM,
        "note": arguments.note,
        "plans": {f"seed {seed}": figures for seed, figures in zip(seeds, found, strict=False)},
        "corners": together(found[len(seeds) :]),
    }
