"""Which way ShuffleRidge takes: one round of moments beside training in rounds, on made-up people.

Three kinds of rows of norm 1: in all directions alike, in directions that matter less and less, and tables of numbers and one-hot
categories. R^2 on 20 000 other people, negative ones counted as 0, means of 3 populations; without privacy about 0.5. The noise of
the plans is drawn as Gaussian. Cells are gathered by the figure that the rule looks at: the edge of the moments' noise over the
mean eigenvalue that rows of norm 1 can have. --quick: 1000 people, few columns.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np

from croupier import __version__
from croupier.estimator import ShuffleRidge
from croupier.estimator.ridge import LARGEST_EDGE
from croupier.population import SurrogatePopulation

from .protocol import Results, Verdict
from .protocol import no_figures as figures
from .protocol import no_options as options
from .tables import table

__all__ = ["figures", "judge", "measure", "options", "page"]
KINDS, EPSILONS, POPULATIONS, HELD_OUT = ("alike", "decaying", "table"), (0.1, 0.5, 1.0, 4.0), 3, 20_000
SIZES = {1_000: (3, 10, 30, 100), 10_000: (3, 10, 30, 100), 100_000: (3, 10, 30, 100, 200), 1_000_000: (3, 10, 30)}
# Entries up to which training that asks everybody in every round is measured.
MOST_FULL = 10_000_000
EDGES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, np.inf)


def rows(kind: str, users: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of norm 1."""
    if kind == "table":
        numbers = max(1, columns // 3)
        X = np.zeros((users, columns))
        X[:, :numbers] = np.tanh(0.7 * rng.normal(size=(users, 1)) + 0.5 * rng.normal(size=(users, numbers)))
        for first in range(numbers, columns, 5):
            levels = min(5, columns - first)
            X[np.arange(users), first + rng.choice(levels, size=users, p=rng.dirichlet(np.ones(levels)))] = 1.0
    else:
        X = rng.normal(size=(users, columns)) / (np.arange(1, columns + 1) ** 0.75 if kind == "decaying" else 1.0)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def cells(kind: str, users: int, columns: int) -> Iterator[dict[str, Any]]:
    """R^2 of each way at every epsilon, of one population after the other."""
    for seed in range(POPULATIONS):
        rng = np.random.default_rng([users, columns, seed, KINDS.index(kind)])
        X = rows(kind, users + HELD_OUT, columns, rng)
        score = X @ rng.normal(size=columns)
        y = np.clip(0.1 + 0.25 * score / score.std() + 0.25 * rng.normal(size=len(score)), -1, 1)
        for epsilon in EPSILONS:
            common = {"target_range": (-1, 1), "epsilon": epsilon, "delta": min(1e-6, 0.1 / users), "random_state": seed}
            ways = {"moments": {"method": "moments"}, "sequential": {"method": "rounds"}}
            if users * columns <= MOST_FULL:
                ways["full"] = {"method": "rounds", "interactivity": "full"}
            found: dict[str, Any] = {"kind": kind, "users": users, "columns": columns, "epsilon": epsilon}
            for name, way in ways.items():
                model = ShuffleRidge(**common, **way)
                people = SurrogatePopulation(*model.records(X[:users], y[:users]))
                model.fit_population(people, columns)
                found[name] = max(0.0, float(model.score(X[users:], y[users:])))
                if name == "moments":
                    found["edge"] = model._edge_ratio(model.plan_, model._query())
            yield found


def measure(arguments: argparse.Namespace) -> Results:
    """Every kind, size and epsilon; means over populations."""
    sizes = {1_000: (3, 10)} if arguments.quick else SIZES
    means = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for users, kind in product(sizes, KINDS):
            for columns in sizes[users]:
                every = list(cells(kind, users, columns))
                for epsilon in EPSILONS:
                    some = [cell for cell in every if cell["epsilon"] == epsilon]
                    scores = {name: float(np.mean([cell[name] for cell in some])) for name in WAYS if name in some[0]}
                    means.append(some[0] | scores)
    return {"version": __version__, "quick": arguments.quick, "cells": means}


WAYS = ("moments", "sequential", "full")


def gains(results: Results, way: str, low: float, high: float) -> list[float]:
    """What moments have above another way, where the edge is between these."""
    return [cell["moments"] - cell[way] for cell in results["cells"] if way in cell and low <= cell["edge"] < high]


def judge(results: Results) -> list[Verdict]:
    """Where the rule takes moments they are better on average, and nowhere much worse."""
    found = []
    for way, limit in LARGEST_EDGE.items():
        gained = gains(results, way, 0.0, limit)
        mean, least = float(np.mean(gained)), min(gained)
        found.append(Verdict(f"moments above {way}, mean", "at least 0", f"{mean:+.3f}", mean >= 0))
        found.append(Verdict(f"moments above {way}, least", "at least -0.05", f"{least:+.3f}", least >= -0.05))
    return found


def page(results: Results) -> str:
    """What moments gain over rounds, by the edge of their noise."""
    lines = []
    for low, high in pairwise(EDGES):
        line = [f"{low:g} to {high:g}"]
        for way in LARGEST_EDGE:
            gained = gains(results, way, low, high)
            line += [str(len(gained))]
            line += [f"{np.mean(gained):+.3f}", f"{min(gained):+.3f}", f"{max(gained):+.3f}"] if gained else ["-"] * 3
        lines.append(line)
    heads = ["edge / mean eigenvalue"]
    for way in LARGEST_EDGE:
        heads += [f"cells, {way}", "mean gain", "least", "most"]
    verdicts = [(v.what, v.limit, v.measured, "yes" if v.holds else "NO") for v in judge(results)]
    limits = ", ".join(f"{limit:g} ({way})" for way, limit in LARGEST_EDGE.items())
    return "\n".join(
        [
            "# Which way ShuffleRidge takes\n",
            f"croupier {results['version']}; delta = 1e-6 or 0.1 / users, replace-one neighbours, everybody honest. R^2 of one",
            f"round of moments minus that of training in rounds. The rule takes moments up to {limits}.\n",
            table(heads, lines, left=1),
            table(("what", "asked", "measured", "holds"), verdicts),
        ]
    )
