"""Nanoseconds per entry of a whole fit, in every way that this machine has, and where they go."""

from __future__ import annotations

import argparse
import cProfile
import os
import platform
import pstats
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from rich.console import Console
from rich.progress import track

from croupier import __version__, minimize, plan_sum
from croupier.optimizer._gradients import Gradients
from croupier.population import ArrayPopulation
from croupier.population.population import Batch, Question
from croupier.problem import Ball, Logistic, Problem
from croupier.protocol import SecureRandom
from croupier.protocol import _fused as fused
from croupier.protocol.randomness import Secret

from ..protocol import Results
from ..round.measuring import unit_rows
from ..timing import medians

DELTA = 1e-6
FIT = {"epsilon": 1.0, "delta": DELTA, "interactivity": "full", "rule": "practical"}
# Whether the compiled pass is used, how many threads, and in what precision the rows are.
WAYS: dict[str, tuple[bool, int, type]] = {
    "numpy": (False, 1, np.float64),
    "compiled": (True, 1, np.float64),
    "compiled, two threads": (True, 2, np.float64),
    "compiled, rows in single precision": (True, 1, np.float32),
    "compiled, rows in single precision, two threads": (True, 2, np.float32),
}
EARLIER = """
import sys, time
import numpy as np
from croupier import minimize
from croupier.problem import Ball, Logistic, Problem
n, d, rounds, repeats = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
X = rng.normal(size=(n, d))
X /= np.linalg.norm(X, axis=1, keepdims=True)
y = X @ rng.normal(size=d) > 0
problem = Problem(loss=Logistic(), domain=Ball(dim=d, radius=5.0))
for _ in range(repeats):
    begun = time.perf_counter()
    minimize(problem, (X, y), epsilon=1.0, delta=1e-6, interactivity="full", rule="practical", rounds=rounds)
    print(time.perf_counter() - begun)
"""
# Functions, by the end of their file's name and their own, and what they do.
PIECES = {
    "round and add up": (("compiled.py", "add_rounded"), ("compiled.py", "add_rotated")),
    "lengths and scores": (("~", "<built-in method numpy._core._multiarray_umath.c_einsum>"),),
    "keystream": (("randomness.py", "draw_bytes"), ("~", "<method 'update_into'")),
    "slopes and labels": (("classification.py", "slope"), ("classification.py", "targets")),
    "clip": (("encoding.py", "_longest"), ("encoding.py", "clip_to_ball")),
    "ties": (("_sampling.py", "round_ties"), ("~", "<method 'at' of 'numpy.ufunc'")),
    "noise": (
        ("rejection.py", ""),
        *(("_sampling.py", name) for name in ("binomial", "fair_binomial", "_count_below", "_popcount")),
    ),
}


def fits(quick: bool, earlier: Path | None) -> list[dict[str, Any]]:
    """A logistic fit in the full model, from records to the result, on arrays of the shape of Covertype's and of smaller ones."""
    shapes = [(20_000, 55, 3)] if quick else [(465_000, 55, 20), (100_000, 100, 20), (100_000, 10, 50)]
    rows = []
    for n, d, rounds in track(shapes, description="fits", console=Console(stderr=True)):
        X, y, problem = logistic(n, d)
        work = {name: in_way(name, X, y, lambda people, p=problem, r=rounds: minimize(p, people, **FIT, rounds=r)) for name in WAYS}
        for run in work.values():
            run()  # imports, compiles
        seconds = medians(work, repeats=1 if quick else 5)
        if earlier is not None:
            seconds = {"an earlier version": before(earlier, n, d, rounds, repeats=1 if quick else 3)} | seconds
        keystream, products = bare(n, d)
        figures = {name: value / (n * d * rounds) * 1e9 for name, value in seconds.items()}
        rows.append(
            {"users": n, "dim": d, "rounds": rounds, "ns_per_entry": figures, "keystream": keystream, "matrix_products": products}
        )
    return rows


def before(src: Path, n: int, d: int, rounds: int, repeats: int) -> float:
    """Seconds of the same fit by another version."""
    command = [sys.executable, "-c", EARLIER, *map(str, (n, d, rounds, repeats))]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(src)}, capture_output=True, text=True, check=True)
    return float(np.median([float(line) for line in done.stdout.split()]))


def bare(n: int, d: int) -> tuple[float, float]:
    """What cannot be saved, in ns per entry: a random byte of the keystream; and what no privacy costs, scores and mean by BLAS."""
    X, y, _ = logistic(n, d)
    random, theta = SecureRandom(), np.ones(d)
    seconds = medians({"keystream": lambda: random.draw_bytes(n * d), "products": lambda: X.T @ (X @ theta - y)}, repeats=5)
    return seconds["keystream"] / (n * d) * 1e9, seconds["products"] / (n * d) * 1e9


def same_sum(quick: bool) -> int:
    """How many ways of a round with the same secret and precision give the same sum, to the bit: all, or it is an error."""
    n, d = (20_000, 55) if quick else (100_000, 55)
    X, y, problem = logistic(n, d)
    plan = plan_sum(epsilon=1.0, delta=DELTA, users=n, dim=d, norm=problem.lipschitz)
    question = Question(Gradients(problem, np.full(d, 0.1)), Batch.everyone(n), plan, Secret.fresh())
    ways = [name for name, (_, _, kind) in WAYS.items() if kind is np.float64]
    sums = {tuple(in_way(name, X, y, lambda people: people.answer(question).sum)()) for name in ways}
    if len(sums) != 1:
        raise AssertionError("the ways of a round must give the same sum")
    return len(ways)


def profile(quick: bool) -> dict[str, float]:
    """Where the time of a round goes, in ns per entry: compiled, one thread, rows in single precision, by Python's profiler."""
    n, d, rounds = (20_000, 55, 3) if quick else (465_000, 55, 10)
    X, y, problem = logistic(n, d)
    plan = plan_sum(epsilon=1.0, delta=DELTA, users=n, dim=d, norm=problem.lipschitz, rounds=rounds)
    question = Question(Gradients(problem, np.full(d, 0.1)), Batch.everyone(n), plan, Secret.fresh())
    answer = in_way("compiled, rows in single precision", X, y, lambda people: people.answer(question))
    answer()
    profiler = cProfile.Profile()
    with profiler:
        for _ in range(rounds):
            answer()
    found, whole = dict.fromkeys(PIECES, 0.0), 0.0
    for (file, _, function), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        whole += own
        for piece, names in PIECES.items():
            if any(file.endswith(ending) and function.startswith(name) for ending, name in names):
                found[piece] += own
    found["everything else"] = whole - sum(found.values())
    return {piece: seconds / (n * d * rounds) * 1e9 for piece, seconds in found.items()}


def in_way(name: str, X: np.ndarray, y: np.ndarray, work: Callable[[ArrayPopulation], Any]) -> Callable[[], Any]:
    """A call that does this work in the way of this name."""
    compiled, threads, kind = WAYS[name]
    people = ArrayPopulation(X.astype(kind, copy=False), y, threads=threads)

    def run() -> Any:
        fused.PATIENCE = -1 if compiled else 10**18
        return work(people)

    return run


def logistic(n: int, d: int) -> tuple[np.ndarray, np.ndarray, Problem]:
    """Random records and a problem to learn from them."""
    rng = np.random.default_rng(0)
    X = unit_rows(rng, n, d)
    return X, X @ rng.normal(size=d) > 0, Problem(loss=Logistic(), domain=Ball(dim=d, radius=5.0))


def commit(src: Path) -> str:
    """Which one a checkout's src folder is of."""
    done = subprocess.run(["git", "-C", str(src), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "not a checkout"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--earlier", type=Path, help="the src folder of a version to be measured beside this one")


def measure(arguments: argparse.Namespace) -> Results:
    """Fits in every way, whether the ways agree, and a profile of one."""
    if fused.kernel() is None:
        arguments.error("the compiled pass cannot be loaded")
    return {
        "version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "earlier": arguments.earlier and commit(arguments.earlier),
        "same_sum": same_sum(arguments.quick),
        "fits": fits(arguments.quick, arguments.earlier),
        "profile": profile(arguments.quick),
    }
