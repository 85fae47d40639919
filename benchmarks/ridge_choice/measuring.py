"""R^2 of each way, over kinds of rows, sizes and epsilons."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from croupier import __version__
from croupier.estimator import ShuffleRidge
from croupier.estimator._base import plan_once
from croupier.protocol import SumEstimate
from croupier.statistics.moments import PRODUCTS, ROWS, SQUARES

from ..protocol import Results
from ..surrogate import SurrogatePopulation

WAYS = ("moments", "sequential", "full")
KINDS, EPSILONS, HELD_OUT = ("alike", "decaying", "table"), (0.1, 0.5, 1.0, 4.0), 20_000
# Fewer people vary more.
POPULATIONS = {1_000: 6, 10_000: 3, 100_000: 1, 1_000_000: 1}
SIZES = {1_000: (3, 10, 30), 10_000: (3, 10, 30, 100), 100_000: (3, 10, 30, 100, 200), 1_000_000: (3, 30)}
# Entries up to which training that asks everybody in every round is measured.
MOST_FULL = 3_000_000


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
    for seed in range(POPULATIONS[users]):
        rng = np.random.default_rng([users, columns, seed, KINDS.index(kind)])
        X = rows(kind, users + HELD_OUT, columns, rng)
        score = X @ rng.normal(size=columns)
        y = np.clip(0.1 + 0.25 * score / score.std() + 0.25 * rng.normal(size=len(score)), -1, 1)
        people = SurrogatePopulation(*ShuffleRidge(target_range=(-1, 1)).records(X[:users].astype(np.float32), y[:users]))
        sent = np.column_stack([X[:users], np.ones(users)]) / np.sqrt(2)
        gram = np.column_stack([sent, y[:users]])
        gram = gram.T @ gram
        for epsilon in EPSILONS:
            common = {
                "target_range": (-1, 1),
                "feature_norm": 1.0,
                "epsilon": epsilon,
                "delta": min(1e-6, 0.1 / users),
                "random_state": seed,
            }
            ways = {"moments": {"method": "moments"}, "sequential": {"method": "rounds"}}
            if users * columns <= MOST_FULL:
                ways["full"] = {"method": "rounds", "interactivity": "full"}
            found: dict[str, Any] = {"kind": kind, "users": users, "columns": columns, "epsilon": epsilon}
            for name, way in ways.items():
                model = ShuffleRidge(**common, **way)
                if name == "moments":
                    found["edge"] = from_gram(model, gram, users, rng)
                else:
                    model.fit_population(people, columns)
                found[name] = max(0.0, float(model.score(X[users:], y[users:])))
            yield found


def from_gram(model: ShuffleRidge, gram: np.ndarray, users: int, rng: np.random.Generator) -> float:
    """Solve for the moments of these people with the plan's noise, and return the figure of the rule.

    The sum of everybody's vector is that of products of columns, all at once; the vectors themselves would be too many.
    """
    columns = len(gram) - 1
    model._declare(columns - 1)
    model.solved_with_ = (0.0, None)
    query, (a, b, c) = model._query(), (ROWS, PRODUCTS, SQUARES)
    model.plan_ = plan_once(model, query, users)
    first, second = query.pairs
    scale = np.where(first == second, a, a * np.sqrt(2))
    exact = np.concatenate([gram[first, second] * scale, b * gram[:columns, -1], [c * gram[-1, -1]]])
    noisy = rng.normal(exact, model.plan_.noise_std)
    model.estimate_ = SumEstimate(sum=noisy, users=users, noise_std=model.plan_.noise_std, guarantee=None)
    model._set_coefficients()
    return model._edge_ratio(model.plan_, query)


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
