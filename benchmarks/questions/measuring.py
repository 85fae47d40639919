"""Runs of the protocol, and what formulas say of others."""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import croupier as cr
from croupier import __version__
from croupier.privacy.gaussian import central_noise_std
from croupier.service.wire.transports import TRANSPORTS
from croupier.statistics.asking import plan_for

from ..protocol import Results

Floats = NDArray[np.float64]
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
PEOPLE, WORDS, EXPONENT = 100_000, 200_000, 1.25
# Groups of people, each of whom is asked about a prefix, by which words are found under local privacy.
GROUPS = 8
# Standard deviations above which a word counts as found under local privacy.
SURE = 5.0
SHAPES = ((3, 4), (30, 40))
DAYS = (30, 365)


def options(parser: argparse.ArgumentParser) -> None:
    """Add how many runs."""
    parser.add_argument("--runs", type=int, default=20, help="runs of the protocol of each kind")


def zipf(rng: np.random.Generator, people: int) -> tuple[list[str], dict[str, int]]:
    """Everybody's word, and how many hold each."""
    weights = np.arange(1, WORDS + 1) ** -EXPONENT
    held = rng.choice(WORDS, size=people, p=weights / weights.sum())
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    names = [
        "".join(letters[np.array([rank // 26**place % 26 for place in range(6)])]) for rank in _scrambled(rng)[: held.max() + 1]
    ]
    counts = np.bincount(held)
    return [names[one] for one in held], {names[rank]: int(count) for rank, count in enumerate(counts) if count}


def _scrambled(rng: np.random.Generator) -> list[int]:
    """Different numbers below 26^6: what words have in common is chance."""
    return list(dict.fromkeys(rng.integers(26**6, size=WORDS + 1_000).tolist()))


def words(people: int, runs: int) -> dict[str, Any]:
    """What is found, what is missed, and what that takes."""
    found, rarest, wrong, missed, seconds, stated = [], [], [], [], [], []
    for run in range(runs):
        texts, counts = zipf(np.random.default_rng(run), people)
        begun = time.process_time()
        answer = cr.ask(cr.HeavyHitters(), texts, **BUDGET)
        seconds.append(time.process_time() - begun)
        real = [word for word in answer.words if word in counts]
        found.append(len(answer.words))
        wrong.append(len(answer.words) - len(real))
        rarest.append(min((counts[word] for word in real), default=0))
        missed.append(max((count for word, count in counts.items() if word not in set(real)), default=0))
        stated.append(answer.value.found_from(6))
    plan = plan_for(cr.HeavyHitters(), people, **BUDGET)
    sent = TRANSPORTS["masked-sum"].report_length(plan)
    about = {"people": people, "runs": runs, "dim": plan.dim, "masked_bytes": sent}
    lists = {"found": found, "wrong": wrong, "rarest": rarest, "missed": missed, "cpu_seconds": seconds, "stated": stated}
    return about | lists | {"listed": local(people, 1), "unlisted": local(people, GROUPS)}


def local(people: int, groups: int) -> float:
    """From which count on a word is found under local privacy by optimised local hashing, if each group is asked about a prefix."""
    e = math.exp(BUDGET["epsilon"])
    return SURE * math.sqrt(4 * e / (e - 1) ** 2 * (people / groups)) * groups


def tables(people: int, runs: int) -> list[dict[str, Any]]:
    """Errors of cells and of one column's counts, in units of a central Gaussian's noise of a cell."""
    lines = []
    central = central_noise_std(**BUDGET, sensitivity=math.sqrt(2), rounds=1)
    for shape in SHAPES:
        schema = {name: [str(level) for level in range(size - 1)] for name, size in zip("ab", shape, strict=True)}
        for marginals in (0.0, 0.3):
            query = cr.Table("a", "b", schema=schema, marginals=marginals)
            cells, columns = [], []
            for run in range(runs):
                rng = np.random.default_rng(run)
                places = np.column_stack([rng.integers(size, size=people) for size in shape])
                truth = np.zeros(shape)
                np.add.at(truth, tuple(places.T), 1)
                answer = cr.ask(query, places.astype(np.float64), **BUDGET)
                cells.append(answer.counts - truth)
                columns.append((answer.counts - truth).sum(axis=1))
            plan = plan_for(query, people, **BUDGET)
            k, total = shape[1], math.prod(shape)
            lines.append(
                {
                    "shape": list(shape),
                    "marginals": marginals,
                    "people": people,
                    "runs": runs,
                    "planned": plan.noise_std / central,
                    "cell": _rms(cells) / central,
                    "column": _rms(columns) / central,
                    "stated_cell": answer.count_std / central,
                    "stated_column": answer.marginal_std["a"] / central,
                    "column_by_theory": math.sqrt(k * (1 - k / total)),
                }
            )
    return lines


def _rms(errors: list[Floats]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def streams(people: int, runs: int) -> list[dict[str, Any]]:
    """Errors of running totals in units of the noise of a count of one day, by formula and as found."""
    lines = []
    for days in DAYS:
        query = cr.Stream(days=days)
        plan = plan_for(query, people, **BUDGET)
        prefix = np.tril(np.ones((days, days)))
        errors = []
        for run in range(runs):
            rng = np.random.default_rng(run)
            illness = np.zeros((people, days))
            illness[np.arange(people), rng.integers(days, size=people)] = 1
            answer = cr.ask(query, illness, **BUDGET)
            errors.append((answer.totals - illness.sum(axis=0).cumsum()) / answer.total_std)
        length = float(np.linalg.norm(query.root[:, 0]))
        rows = np.linalg.norm(query.root, axis=1)
        lines.append(
            {
                "days": days,
                "people": people,
                "runs": runs,
                "largest": length * float(rows.max()),
                "rms": length * float(np.sqrt(np.mean(rows**2))),
                "least": float(np.linalg.svd(prefix, compute_uv=False).sum()) / days,
                "tree": tree(days),
                "inflation": plan.inflation,
                "diameter": query.diameter / (math.sqrt(2) * query.norm),
                "found": _rms(errors),
            }
        )
    return lines


def tree(days: int) -> tuple[float, float]:
    """The largest error of a binary tree by least squares, with noise for the path of one day: told daily, and at the end."""
    size = 1 << (days - 1).bit_length()
    levels = [np.kron(np.eye(size >> level), np.ones(1 << level))[:, :days] for level in range(size.bit_length())]
    nodes = np.vstack([level[level.any(axis=1)] for level in levels])
    last = np.array([np.flatnonzero(node)[-1] for node in nodes])  # a node is known when its last day is over
    daily = max(float(np.linalg.inv(known.T @ known).sum()) for day in range(days) for known in [nodes[last <= day, : day + 1]])
    prefix = np.tril(np.ones((days, days)))
    after = float((prefix @ np.linalg.inv(nodes.T @ nodes) @ prefix.T).diagonal().max())
    return math.sqrt(len(levels) * daily), math.sqrt(len(levels) * after)


def measure(arguments: argparse.Namespace) -> Results:
    """All of it."""
    quick = arguments.quick
    runs = 3 if quick else arguments.runs
    return {
        "version": __version__,
        "quick": quick,
        "words": words(20_000 if quick else PEOPLE, runs),
        "tables": tables(2_000 if quick else 20_000, runs),
        "streams": streams(500 if quick else 5_000, min(runs, 5)),
    }
