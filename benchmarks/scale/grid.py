"""What is measured: variants of a round, and cells of so many users by so many features."""

from __future__ import annotations

from dataclasses import dataclass

ROUNDS = 100

READ, NUMPY, FUSED, STREAMED, KEPT, THREADS = "read", "numpy", "numpy fused", "streamed", "kept", "kept, free threads"
RAY = {"ray 1": 1, "ray 2": 2}
LOCAL = (READ, NUMPY, FUSED, STREAMED)
EVERY = (*LOCAL, KEPT, *RAY)
VARIANTS = {
    READ: "the blocks are read, or generated, and nothing else",
    NUMPY: "plain numpy: blocks read, the same gradients, one per user, added up; no clipping, no rounding, no noise",
    FUSED: "plain numpy as one would write it without users in mind: blocks read, X'(slopes), no vector per user",
    STREAMED: "a private round in one process, blocks read in every round (`keep=False`)",
    KEPT: "the same, records in memory (`keep=True`)",
    THREADS: "the same, numpy's BLAS free to use all cores",
    "ray 1": "`RayPopulation`, one worker",
    "ray 2": "`RayPopulation`, two workers",
}


@dataclass(frozen=True)
class Cell:
    """Some variants of a round over so many users and features, from a folder of Parquet files or generated."""

    users: int
    dim: int
    variants: tuple[str, ...]
    repeats: int
    keep: bool = True  # on Ray
    folder: str | None = None


MUST = (10_000_000, 50)
STREAM = (100_000_000, 20)
CELLS = [
    *(Cell(100_000, d, EVERY, 7) for d in (10, 20, 50, 100, 1000)),
    *(Cell(1_000_000, d, EVERY, 5) for d in (10, 20, 50, 100)),
    Cell(1_000_000, 1000, (*LOCAL, *RAY), 3, keep=False),
    *(Cell(10_000_000, d, EVERY, 3) for d in (10, 20)),
    Cell(*MUST, (*EVERY, THREADS), 5),
    Cell(10_000_000, 100, (*LOCAL, *RAY), 3, keep=False),
    *(Cell(100_000_000, d, LOCAL, 2) for d in (10, STREAM[1])),
]
FILES = Cell(10_000_000, 20, (READ, NUMPY, STREAMED, *RAY), 3, keep=False)
MEMORY = [Cell(*MUST, (KEPT,), 1), Cell(*MUST, ("ray 2",), 1)]
QUICK = [Cell(50_000, 10, (*EVERY, THREADS), 3), Cell(200_000, 10, LOCAL, 3), Cell(50_000, 40, LOCAL, 3)]
QUICK_FILES = Cell(50_000, 10, (READ, NUMPY, STREAMED), 2, keep=False)
REST = {
    "overhead": {"rounds": 200},
    "dealing": {"users": 10_000_000},
    "sequential": {"users": 1_000_000, "dim": 50, "repeats": 3},
}
QUICK_REST = {
    "overhead": {"rounds": 20},
    "dealing": {"users": 100_000},
    "sequential": {"users": 20_000, "dim": 10, "repeats": 1},
}
