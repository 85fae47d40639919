"""Fast certificates beside ball arithmetic: where the fast figure is not above the enclosure, it is wrong.

    python -m benchmarks.proofs [--out DIR] [--plans 600] [--seed 1] [--only plans|corners]

Stores proofs.json: how many were proved and refused, how far the fast figures are above the enclosures, and the time of a proof.
Needs the extra `proof`.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from croupier import __version__, plan_sum
from croupier.privacy import ArgumentError, NoCertificateError, certify
from croupier.privacy.ball import constants
from croupier.privacy.proof import SHIFT_FACTOR

TRIALS = [10, 100, 10**3, 10**4, 10**6, 10**8, 10**10, 10**12]
TAILS = [0.3, 1e-2, 1e-6, 1e-12, 1e-60, 1e-300]
POWERS = [1, 2, 4, 8, 14, 20, 26, 32, 40]


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


def corners() -> Iterator[tuple[int, float, int, int, float]]:
    """(trials, probability, reach, dim, tail): trials to 10^12, probabilities 2^-k on both sides, tails to 1e-300."""
    for trials in TRIALS:
        for power in POWERS:
            for probability in sorted({2.0**-power, 1 - 2.0**-power}):
                width = (trials * probability * (1 - probability)) ** 0.5
                for tail in TAILS:
                    yield trials, probability, max(1, round(width / 8)), 1 + trials % 97, tail


def headroom(fast: float, ball: Any) -> float:
    """How far a fast figure is above the upper end of a ball, as a part of it: negative where it is wrong."""
    return float((fast / ball.upper() - 1).mid())


def sweep_corners() -> dict[str, Any]:
    margins: dict[str, list[float]] = {"mu scanned": [], "mu in blocks": [], "tau": []}
    refused = 0
    for trials, probability, reach, dim, tail in track(list(corners()), "corners"):
        try:
            fast = certify(trials, probability, shift=float(reach), reach=reach, dim=dim, tail=tail)
        except NoCertificateError:
            refused += 1
            continue
        window = {"low": fast.low, "high": fast.high}
        found = constants(trials, probability, shift=reach * SHIFT_FACTOR, reach=reach, dim=dim, **window)
        margins["mu scanned" if found.step is not None else "mu in blocks"].append(headroom(fast.mu, found.mu))
        margins["tau"].append(headroom(fast.tau, found.tau))
    return {"refused by the fast certificate": refused} | {name: spread(values) for name, values in margins.items()}


def sweep_plans(count: int, seed: int) -> dict[str, Any]:
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
    return {"count": len(values), "least": min(values), "median": float(np.median(values)), "most": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--plans", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["plans", "corners"])
    arguments = parser.parse_args()
    start = time.perf_counter()
    plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=100).prove()
    figures: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "seconds for 10 000 users and 100 coordinates": time.perf_counter() - start,
        "headroom": "fast figure / upper end of its enclosure - 1; negative is wrong",
    }
    for name, sweep in (("plans", lambda: sweep_plans(arguments.plans, arguments.seed)), ("corners", sweep_corners)):
        if arguments.only in (None, name):
            figures[name] = sweep()
    (arguments.out / "proofs.json").write_text(json.dumps(figures, indent=1) + "\n")
    Console().print_json(json.dumps(figures))


if __name__ == "__main__":
    main()
