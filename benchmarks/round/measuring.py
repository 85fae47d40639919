"""Noise and bits over a grid, throughput, planning time."""

from __future__ import annotations

import argparse
import platform
from typing import Any

import numpy as np
from rich.progress import track

from croupier import SecureRandom, VectorSum, __version__, plan_sum
from croupier.privacy import certify
from croupier.protocol import _fused as fused
from croupier.protocol._sampling import binomial
from croupier.validation import how_to_install

from ..protocol import Results
from ..timing import medians

DELTA = 1e-6
EPSILONS = (0.1, 1.0, 4.0)
USERS = (1_000, 10_000, 100_000, 1_000_000)
DIMS = (10, 100, 1_000)


def noise_and_bits(quick: bool) -> list[dict[str, Any]]:
    """The noise ratio and the bits of `paper` and `tight` over (epsilon, users, dim)."""
    users = USERS[:2] if quick else USERS
    grid = [(e, n, d) for e in EPSILONS for n in users for d in DIMS]
    rows = []
    for epsilon, n, d in track(grid, description="noise and bits"):
        request: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "users": n, "dim": d}
        paper = plan_sum(**request, calibration="paper")
        row: dict[str, Any] = request | {"paper_bits": paper.bits_per_coordinate, "paper_noise": paper.inflation}
        for limit in (1.05, 1.2, 1.5):
            tight = plan_sum(**request, max_inflation=limit)
            row |= {f"tight_bits_{limit}": tight.bits_per_coordinate, f"tight_noise_{limit}": tight.inflation}
        rows.append(row)
    return rows


def throughput(quick: bool) -> list[dict[str, Any]]:
    """A counting round against numpy's plain sum and against drawing the bytes it needs from the keystream."""
    rows = []
    for n, d in track([(10_000, 100)] if quick else [(10_000, 100), (100_000, 100), (100_000, 10)], description="throughput"):
        rng = np.random.default_rng(0)
        vectors = unit_rows(rng, n, d)
        plan = plan_sum(epsilon=1.0, delta=DELTA, users=n, dim=d)
        protocol, random = VectorSum(plan), _CountingRandom()
        protocol.run(vectors, random=random)
        drawn = random.drawn

        def noise_only(plan: Any = plan, n: int = n, d: int = d, random: Any = random) -> None:
            binomial(random, plan.noise_bits * n, plan.noise_probability, d)

        seconds = medians(
            {
                "round": lambda protocol=protocol, vectors=vectors: protocol.run(vectors),
                "numpy_sum": lambda vectors=vectors: vectors.sum(axis=0),
                "numpy_clip_and_sum": lambda vectors=vectors: _clip_and_sum(vectors),
                "keystream": lambda drawn=drawn, random=random: random.draw_bytes(drawn),
                "noise": noise_only,
            },
            repeats=3 if quick else 7,
        )
        devices = vectors[:200]
        one_by_one = medians({"randomize": lambda p=protocol, v=devices, r=random: [p.randomize(x, r) for x in v]}, 3)
        rows.append(
            {
                "users": n,
                "dim": d,
                "bits_per_coordinate": plan.bits_per_coordinate,
                "ns_per_entry": seconds["round"] / (n * d) * 1e9,
                "keystream_bytes_per_entry": drawn / (n * d),
                "round_over_numpy_sum": seconds["round"] / seconds["numpy_sum"],
                "round_over_numpy_clip_and_sum": seconds["round"] / seconds["numpy_clip_and_sum"],
                "round_over_keystream": seconds["round"] / seconds["keystream"],
                "noise_share_of_round": seconds["noise"] / seconds["round"],
                "device_randomize_over_counting_per_user": one_by_one["randomize"] / len(devices) / (seconds["round"] / n),
            }
        )
    return rows


def unit_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Random rows of length 1."""
    rows = rng.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def planning(quick: bool) -> list[dict[str, Any]]:
    """Seconds to plan, from a small population to a million users by ten thousand coordinates in a thousand rounds."""
    cases = [(1_000, 100, 1), (100_000, 100, 1), (1_000_000, 10_000, 1_000), (100_000_000, 100, 1)]
    rows = []
    for n, d, rounds in track(cases[: 3 if quick else 4], description="planning"):

        def plan_anew(n: int = n, d: int = d, rounds: int = rounds) -> None:
            certify.cache_clear()
            plan_sum(epsilon=1.0, delta=DELTA, users=n, dim=d, rounds=rounds)

        seconds = medians({"plan": plan_anew}, 3)
        rows.append({"users": n, "dim": d, "rounds": rounds, "seconds": seconds["plan"]})
    return rows


class _CountingRandom(SecureRandom):
    """Secure randomness that counts the bytes drawn."""

    drawn = 0

    def draw_bytes(self, count: int) -> np.ndarray:
        self.drawn += count
        return super().draw_bytes(count)


def _clip_and_sum(vectors: np.ndarray) -> np.ndarray:
    """What anyone would write without privacy: clip to norm 1 and add up."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(1.0, lengths)).sum(axis=0)


def measure(arguments: argparse.Namespace) -> Results:
    """All three tables, by the compiled pass."""
    if fused.kernel() is None:
        arguments.error(f"the compiled pass needs numba: {how_to_install('fast')}")
    fused.PATIENCE = -1  # compiled from the first entry on
    return {
        "version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "noise_and_bits": noise_and_bits(arguments.quick),
        "throughput": throughput(arguments.quick),
        "planning": planning(arguments.quick),
    }
