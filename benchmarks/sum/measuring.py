"""Every method's stated error and bits over a grid, and Croupier's error by runs of the protocol."""

from __future__ import annotations

import argparse
import math
import warnings
from typing import Any

import numpy as np
from scipy.stats import chi2

import croupier as cr
from croupier.privacy import ArgumentError, SumPlan
from croupier.protocol import NotPrivateWarning, SeededRandom
from croupier.report import central
from croupier.service.wire.reports import count_width

from ..cells import Cells
from ..protocol import Results
from . import mechanisms
from .mechanisms import DISCRETE_GAUSSIAN, SKELLAM, Aggregated

DELTA = 1e-6
GRID = [(epsilon, users, dim) for epsilon in (0.25, 1.0, 4.0) for dim in (10, 100, 1000) for users in (10**3, 10**4, 10**5, 10**6)]
QUICK_GRID = [(epsilon, users, dim) for epsilon in (1.0,) for dim in (10, 100) for users in (10**3, 10**4)]
# (epsilon, users, coordinates, runs): the protocol itself
RUNS = [
    (0.25, 10**4, 100, 40),
    (1.0, 10**3, 10, 400),
    (1.0, 10**3, 1000, 40),
    (1.0, 10**4, 100, 100),
    (1.0, 10**5, 10, 100),
    (1.0, 10**5, 100, 100),
    (1.0, 10**6, 10, 40),
    (4.0, 10**4, 100, 40),
]
QUICK_RUNS = [(1.0, 10**3, 10, 40), (1.0, 10**4, 100, 5)]
CONFIDENCE = 0.99
BITS = 16
REAL = 64  # bits of a number that is sent as it is
OURS, MASKED, PAPER, CENTRAL = "Croupier", "Croupier, masked sum", "the paper's constants", "central Gaussian"
SKELLAM_16, GAUSSIAN_16, SKELLAM_ENOUGH = "Skellam, 16 bits", "discrete Gaussian, 16 bits", "Skellam, enough bits"
SHUFFLED, LOCAL = "one message, shuffled", "local"
METHODS = (CENTRAL, OURS, MASKED, SKELLAM_ENOUGH, SKELLAM_16, GAUSSIAN_16, SHUFFLED, LOCAL, PAPER)


def stated(epsilon: float, users: int, dim: int) -> dict[str, Any]:
    """Every method at one point of the grid: root mean squared l2 error of the mean, bits that a user sends, its parameters."""
    request = {"epsilon": epsilon, "delta": DELTA, "users": users, "dim": dim, "rotation": None}
    ours = cr.plan_sum(**request)
    curator = central(ours)
    try:
        paper = planned(cr.plan_sum(**request, calibration="paper"))
    except ArgumentError as error:  # its theorems do not cover everything
        paper = {"refused": f"{error.name} must be {error.allowed}"}
    amplified = mechanisms.local_epsilon_for(epsilon, DELTA, users)
    return {
        CENTRAL: {"error": curator.noise_std * math.sqrt(dim) / users, "bits": curator.bits_per_coordinate * dim},
        OURS: planned(ours),
        MASKED: masked(ours),
        PAPER: paper,
        SKELLAM_16: aggregated(mechanisms.aggregated(SKELLAM, epsilon, DELTA, users, dim, BITS)),
        GAUSSIAN_16: aggregated(mechanisms.aggregated(DISCRETE_GAUSSIAN, epsilon, DELTA, users, dim, BITS)),
        SKELLAM_ENOUGH: aggregated(mechanisms.enough_bits(SKELLAM, epsilon, DELTA, users, dim)),
        SHUFFLED: one_message(amplified, users, dim),
        LOCAL: one_message(epsilon, users, dim),
    }


def planned(plan: SumPlan) -> dict[str, Any]:
    """Error, bits and parameters of a plan of Croupier's."""
    parameters = {"levels": plan.levels, "noise_bits": plan.noise_bits, "noise_probability": plan.noise_probability}
    return {"error": plan.noise_std * math.sqrt(plan.dim) / plan.users, "bits": plan.bits_per_user} | parameters


def masked(plan: SumPlan) -> dict[str, Any]:
    """The same plan where a user's counts travel masked, modulo a power of two that holds the count of all users."""
    width = count_width(plan)
    return planned(plan) | {"bits": plan.dim * width, "modulus_bits": width}


def aggregated(plan: Aggregated) -> dict[str, Any]:
    """Error, bits and parameters of secure aggregation."""
    return {
        "error": plan.error,
        "bits": plan.bits_per_user,
        "modulus_bits": plan.bits,
        "step": plan.step,
        "variance": plan.variance,
    }


def one_message(local_epsilon: float, users: int, dim: int) -> dict[str, Any]:
    """Error, bits and parameters of one message a user."""
    unit = mechanisms.priv_unit(local_epsilon, dim)
    return {"error": unit.error(users), "bits": REAL * dim, "local_epsilon": local_epsilon, "cap_height": unit.height}


def measured(epsilon: float, users: int, dim: int, runs: int) -> dict[str, Any]:
    """The protocol on unit vectors with a common direction."""
    warnings.simplefilter("ignore", NotPrivateWarning)
    plan = cr.plan_sum(epsilon=epsilon, delta=DELTA, users=users, dim=dim, rotation=None)
    vectors = unit_vectors(users, dim)
    truth = vectors.mean(axis=0, dtype=np.float64)
    squares = [
        float(np.sum((cr.VectorSum(plan).run(vectors, random=SeededRandom(seed)).mean - truth) ** 2)) for seed in range(runs)
    ]
    return {
        "runs": runs,
        "seeds": [0, runs - 1],
        "error": math.sqrt(sum(squares) / runs),
        "interval": interval(squares, dim),
        "stated": planned(plan)["error"],
    }


def interval(squares: list[float], dim: int) -> list[float]:
    """Of the true root mean square, from squared errors of `dim` coordinates that are independent and nearly Gaussian."""
    ends = chi2.ppf([(1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2], len(squares) * dim)
    return [math.sqrt(dim * sum(squares) / end) for end in ends]


def unit_vectors(users: int, dim: int) -> np.ndarray:
    """Vectors of length 1 with a common direction."""
    vectors = np.random.default_rng([users, dim]).normal(size=(users, dim)).astype(np.float32) + np.float32(0.5)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cell(job: tuple[Any, ...]) -> dict[str, Any]:
    """One cell of the grid, stated or measured."""
    kind, *point = job
    return stated(*point) if kind == "stated" else measured(*point)


def measure(arguments: argparse.Namespace) -> Results:
    """The whole grid as it is stated, and some of its cells as they were measured."""
    quick = arguments.quick
    grid, runs = (QUICK_GRID, QUICK_RUNS) if quick else (GRID, RUNS)
    jobs = [("stated", *point) for point in grid] + [("measured", *point) for point in runs]
    cells = Cells(
        arguments.folder / "sum.cells.jsonl", {"delta": DELTA, "bits": BITS, "confidence": CONFIDENCE}, fresh=arguments.fresh
    )
    # long runs first
    found = cells.all(
        jobs, cell, processes=arguments.processes, description="sum", first=lambda job: -math.prod(job[2:]) * (job[0] == "measured")
    )
    named = [dict(zip(("epsilon", "users", "dim"), job[1:], strict=False)) for job in jobs]
    return {
        "version": cr.__version__,
        "quick": quick,
        "delta": DELTA,
        "confidence": CONFIDENCE,
        "cells": [where | {"methods": result} for where, result in zip(named[: len(grid)], found, strict=False)],
        "measured": [where | result for where, result in zip(named[len(grid) :], found[len(grid) :], strict=True)],
    }
