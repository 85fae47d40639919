"""Test accuracy of private fits on real data, and their time beside the same schedule in plain numpy."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from scipy.special import expit

import croupier as cr
from croupier.optimizer.algorithms import acsa
from croupier.optimizer.training import run
from croupier.population import ArrayPopulation

from ..cells import Cells, fingerprint
from ..datasets import loader
from ..protocol import Results
from ..timing import forget_plans, turns
from . import estimators, maps

PARTS = ("estimators", "few", "maps", "minimize", "cost")

# The plain rule and the encoder that does not rotate: these rows compare lots and batches, all else the same.
PLAIN = {"rule": "plain", "rotation": False}
BOUND, PRACTICAL = {"method": "acsa", "lots": "open"}, PLAIN | {"lots": "open"}
SECRET = PLAIN | {"lots": "secret"}
# A little more noise for about half the bits, where coordinates are many; the rounds were chosen on a tenth of the training rows.
THRIFTY = SECRET | {"max_inflation": 1.15, "rounds": 40}
# (task, classes, radius, delta or None for 1/n^2, interactivity, epsilons, what to override, accuracy asked for)
ROWS: list[tuple[str, int, float, float | None, str, tuple[float, ...], dict[str, Any], tuple[float, ...]]] = [
    ("adult", 2, 20.0, None, "sequential", (0.5, 1.0, 4.0), BOUND, (0.80, 0.81, 0.83)),
    ("adult", 2, 20.0, None, "full", (0.1, 0.5, 1.0), BOUND, (0.80, 0.835, 0.84)),
    ("covtype", 2, 50.0, 1e-6, "sequential", (1.0,), BOUND, (0.738,)),
    ("mnist_odd", 2, 50.0, 1e-6, "sequential", (1.0,), BOUND, (0.84,)),
    ("adult", 2, 50.0, 1e-6, "sequential", (1.0,), PRACTICAL, (0.820,)),
    ("covtype", 2, 50.0, 1e-6, "sequential", (1.0,), PRACTICAL, (0.742,)),
    ("mnist10", 10, 50.0, 1e-6, "sequential", (1.0,), PRACTICAL, (0.847,)),
    ("adult", 2, 50.0, 1e-6, "full", (1.0,), PRACTICAL, (0.835,)),
    ("covtype", 2, 50.0, 1e-6, "full", (1.0,), PRACTICAL, (0.743,)),
    ("mnist10", 10, 50.0, 1e-6, "full", (1.0,), PRACTICAL, (0.891,)),
    ("mnist_odd", 2, 50.0, 1e-6, "sequential", (1.0,), PRACTICAL, (0.84,)),
    ("adult", 2, 50.0, 1e-6, "sequential", (0.1, 0.5, 1.0), SECRET, (0.826, 0.840, 0.842)),
    ("covtype", 2, 50.0, 1e-6, "sequential", (0.1, 1.0), SECRET, (0.752, 0.757)),
    ("mnist10", 10, 50.0, 1e-6, "sequential", (0.1, 1.0), SECRET, (0.82, 0.888)),
    ("mnist10", 10, 50.0, 1e-6, "sequential", (1.0,), THRIFTY, (0.888,)),
]


def problem_from_dict(features: int, classes: int, radius: float) -> cr.Problem:
    """The radius is per class: theta of ten classes lies in a ball sqrt(10) times as large."""
    if classes == 2:
        return cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=features, radius=radius), feature_norm=1.0)
    domain = cr.domains.Ball(dim=features * classes, radius=radius * math.sqrt(classes))
    return cr.Problem(loss=cr.losses.Multinomial(classes), domain=domain, feature_norm=1.0)


def predict(theta: np.ndarray, X: np.ndarray, classes: int) -> np.ndarray:
    """The classes that these weights predict."""
    return X @ theta > 0 if classes == 2 else np.argmax(X @ theta.reshape(classes, -1).T, axis=1)


def accuracies(load: Any, rows: list[Any], seeds: int) -> list[dict[str, Any]]:
    """The accuracy of every row at every epsilon, over so many fits."""
    jobs = [(row, epsilon, asked) for row in rows for epsilon, asked in zip(row[5], row[7], strict=True)]
    table = []
    for (task, classes, radius, delta, interactivity, _, overrides, _), epsilon, asked in track(jobs, description="accuracy"):
        X, y, X_test, y_test = load(task)
        problem = problem_from_dict(X.shape[1], classes, radius)
        budget = {"epsilon": epsilon, "delta": delta or 1 / len(X) ** 2, "interactivity": interactivity}
        found, seconds = [], []
        for _ in range(seeds):
            begun = time.perf_counter()
            result = cr.minimize(problem, (X, y), **budget, **overrides)
            seconds.append(time.perf_counter() - begun)
            found.append(float(np.mean(predict(result.theta, X_test, classes) == y_test)))
        assert result.guarantee is not None
        table.append(
            {"task": task, "users": len(X), "dim": problem.dim, "radius": radius, **budget}
            | {"rule": overrides.get("rule", "bound"), "lots": overrides["lots"]}
            | {"max_inflation": overrides.get("max_inflation", 1.05)}
            | {"rounds": result.rounds, "bits_per_user": result.bits_per_user}
            | {"median": statistics.median(found), "least": min(found), "most": max(found), "seeds": seeds, "asked": asked}
            | {"seconds": statistics.median(seconds), "epsilon_spent": result.guarantee.epsilon(budget["delta"])}
        )
    return table


def cost_of_privacy(load: Any, repeats: int) -> dict[str, float]:
    """Sequential fits on Covertype by their bound, against the same schedules without any privacy code, alternating.

    With secret lots, which are the default, also with planning first; and with open lots. And a fit with secret lots against one
    with open lots, both by the practical rule and with planning.
    """
    X, y, *_ = load("covtype")
    problem = problem_from_dict(X.shape[1], 2, 50.0)
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    chosen = {lots: cr.schedule(problem, len(X), **budget | BOUND | {"lots": lots}) for lots in ("secret", "open")}

    def plain(lots: str) -> np.ndarray:
        (phase,) = chosen[lots].phases
        batch = len(X) // phase.rounds
        order, done = np.random.default_rng().permutation(len(X)), iter(range(phase.rounds))

        def gradient(theta: np.ndarray) -> np.ndarray:
            t = next(done)
            some = order[t * batch : (t + 1) * batch]
            rows, signs = X[some].astype(np.float64), np.where(y[some] > 0, 1.0, -1.0)
            return -((signs * expit(-signs * (rows @ theta))) @ rows) / batch

        return acsa(gradient, problem.domain.project, np.zeros(problem.dim), phase.rounds, phase.damping)

    def private(lots: str) -> np.ndarray:
        return run(problem, ArrayPopulation(X, y), chosen[lots], start=np.zeros(problem.dim)).theta

    def planned(how: dict[str, Any]) -> np.ndarray:
        forget_plans()  # as a first fit would have to
        return cr.minimize(problem, (X, y), **budget | how).theta

    fits = {
        "plain": lambda: plain("secret"),
        "private": lambda: private("secret"),
        "planned": lambda: planned(BOUND | {"lots": "secret"}),
        "plain_open": lambda: plain("open"),
        "private_open": lambda: private("open"),
        "practical_secret": lambda: planned(SECRET),
        "practical_open": lambda: planned(PRACTICAL),
    }
    seconds = turns(fits, repeats)
    found = {f"{name}_seconds": statistics.median(times) for name, times in seconds.items()}
    ratios = {"private": "plain", "planned": "plain", "private_open": "plain_open", "practical_secret": "practical_open"}
    for name, other in ratios.items():
        found[f"{name}_ratio"] = statistics.median(a / b for a, b in zip(seconds[name], seconds[other], strict=True))
    return found | {"asked": 5.0, "secret_asked": 1.3}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--data", type=Path, help="folder with load.py")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="tasks to run; with --parts, other estimators and maps stay as stored")
    parser.add_argument("--epsilons", nargs="*", type=float, help="of estimators and maps; with --parts, others stay as stored")
    parser.add_argument("--parts", nargs="*", choices=PARTS, help="what to measure; the rest stays as stored (default: all)")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already of estimators and maps")


def measure(arguments: argparse.Namespace) -> Results:
    """The accuracies that were asked for, and the cost of privacy."""
    if arguments.data is None:
        arguments.error("--data is needed: the folder with load.py")
    load, quick, only = loader(arguments.data).load, arguments.quick, arguments.only
    parts, stored = arguments.parts or PARTS, arguments.folder / "accuracy.json"
    found: Results = json.loads(stored.read_text()) if arguments.parts and stored.exists() else {}
    found |= {"croupier": cr.__version__, "numpy": np.__version__, "quick": quick}
    seeds = 1 if quick else arguments.seeds
    settings = {"data": fingerprint(arguments.data / "load.py")}
    cells = Cells(arguments.folder / "accuracy.cells.jsonl", settings, fresh=arguments.fresh)
    if "estimators" in parts:
        found["estimators"] = joined(found, "estimators", estimators.accuracies(load, cells, only, arguments.epsilons, seeds))
    if "few" in parts and (not only or "covtype" in only):
        with np.load(arguments.data / "covtype.npz") as archive:
            kinds = archive["y"][: int(archive["n_train"])]
        found["few"] = estimators.few(load, kinds, cells, seeds)
    if "maps" in parts:
        found["maps"] = joined(found, "maps", maps.accuracies(load, cells, only, arguments.epsilons, seeds))
    if "minimize" in parts:
        rows = [row for row in ROWS if (not only or row[0] in only) and (not quick or row[4] == "sequential")]
        found["accuracy"] = accuracies(load, rows, seeds)
    if "cost" in parts and (not only or "covtype" in only):
        found["cost"] = cost_of_privacy(load, 3 if quick else 15)
    return {"estimators": [], "few": [], "maps": [], "accuracy": [], "cost": None} | found


def joined(stored: Results, part: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows beside those stored of other tasks and epsilons, in the order of a whole run."""
    order = list(estimators.ASKED) + [name for _, name, *_ in maps.ROWS]
    every = {(row.get("map", row["task"]), row["epsilon"]): row for row in [*stored.get(part, []), *rows]}
    return [row for _, row in sorted(every.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))]
