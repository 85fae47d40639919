"""The variants of a round, turn by turn, in a process of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import croupier as cr
from croupier.optimizer._gradients import Gradients
from croupier.population import ParquetPopulation, Population, RayPopulation
from croupier.population._blocks import BlockPopulation
from croupier.population.population import Batch, Question
from croupier.protocol.randomness import Secret

from ..timing import turns
from .grid import FUSED, KEPT, RAY, READ, STREAMED, THREADS, Cell
from .memory import peaks
from .records import generated

DELTA = 1e-10
# Entries that numpy works on at a time, as the library does.
CHUNK_ENTRIES = 1 << 19


def one_cell(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every variant, turn by turn; whether all private rounds gave the same; how far from the true sum; peak memory."""
    cell = Cell(**request)
    question = question_for(cell.users, cell.dim)
    with ExitStack() as stack:
        populations = dict(_populations(cell, stack))
        prepared = {name: _prepared(population, question) for name, population in populations.items()}
        if THREADS in cell.variants:
            populations[THREADS] = populations[KEPT]
        local = _people(cell, keep=False)
        sums: dict[str, np.ndarray] = {}
        work = {name: _work(name, local, populations.get(name), question, sums) for name in cell.variants}
        BlockPopulation(generated(200, cell.dim)).answer(question_for(200, cell.dim))  # whatever is done only once
        seconds = turns(work, cell.repeats)
        memory = peaks()
    rounds = [total for name, total in sums.items() if name in populations]
    true = next((total for name, total in sums.items() if name not in populations), None)
    off = None if true is None or not rounds else float(np.sqrt(np.mean((rounds[0] - true) ** 2)) / question.plan.noise_std)
    return {
        "users": cell.users,
        "dim": cell.dim,
        "keep": cell.keep,
        "blocks": len(local.shard.placed),
        "seconds": seconds,
        "prepared_seconds": prepared,
        "identical": all(np.array_equal(total, rounds[0]) for total in rounds),
        "compared": len(rounds),
        "off_in_noise_std": off,
        "memory": memory,
    }


def _people(cell: Cell, keep: bool) -> BlockPopulation:
    if cell.folder is not None:
        return ParquetPopulation(cell.folder, target="y", keep=keep)
    return BlockPopulation(generated(cell.users, cell.dim), keep=keep)


def _populations(cell: Cell, stack: ExitStack) -> Iterator[tuple[str, Population]]:
    """Who answers in the private variants. Two workers first: the Ray that they start has room for a third."""
    for name in sorted(cell.variants, reverse=True):
        if name in RAY:
            yield name, stack.enter_context(RayPopulation(_people(cell, keep=False), workers=RAY[name], keep=cell.keep))
        elif name in (STREAMED, KEPT):
            yield name, _people(cell, keep=name == KEPT)


def _prepared(population: Population, question: Question) -> float | None:
    """Seconds until records were read, checked and, on Ray, digested. Those that are streamed here are not: nothing is kept."""
    if isinstance(population, BlockPopulation) and not population.shard._keep:
        return None
    if isinstance(population, RayPopulation):  # that a process starts and imports is not what is timed
        population._ray.get([worker.__ray_ready__.remote() for worker in population._workers])
    start = time.perf_counter()
    population.prepare(question.query.objective.check_records, bytes(32) if isinstance(population, RayPopulation) else None)
    return time.perf_counter() - start


def _work(
    name: str, local: BlockPopulation, population: Population | None, question: Question, sums: dict[str, np.ndarray]
) -> Callable[[], None]:
    blocks = [placed.block for placed in local.shard.placed]

    def run() -> None:
        if name == READ:
            for block in blocks:
                block.read()
        elif population is None:
            sums[name] = sum((fused if name == FUSED else plain)(question.query, *block.read()) for block in blocks)
        elif name == THREADS:
            with threadpool_limits(os.cpu_count()):
                sums[name] = population.answer(question).sum
        else:
            sums[name] = population.answer(question).sum

    return run


def question_for(users: int, dim: int) -> Question:
    """All of so many users for their logistic gradients at some theta, under a plan for one round."""
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=dim, radius=10.0))
    plan = cr.plan_sum(epsilon=1.0, delta=DELTA, users=users, dim=dim, norm=problem.lipschitz)
    theta = np.random.default_rng(1).normal(size=dim)
    return Question(Gradients(problem, theta), Batch.everyone(users), plan, Secret.fresh())


def plain(query: Gradients, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same gradients, one per user, added up."""
    most = max(1, CHUNK_ENTRIES // X.shape[1])
    return sum(query(X[first : first + most], y[first : first + most]).sum(axis=0) for first in range(0, len(X), most))


def fused(query: Gradients, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Their sum as a product of matrices, in the precision of the records."""
    slopes = 1 / (1 + np.exp(-(X @ query.theta.astype(X.dtype)))) - y
    return (slopes.astype(X.dtype) @ X).astype(np.float64)
