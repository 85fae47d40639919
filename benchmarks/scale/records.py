"""Generated records, in memory and as Parquet files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from croupier.population._blocks import BLOCK_USERS

from .grid import Cell

# Entries of a generated block at most, and blocks at least: four for each of two workers.
BLOCK_ENTRIES, LEAST_BLOCKS = 1 << 24, 8


@dataclass(frozen=True)
class Generated:
    """A generated block: rows of norm at most 1, a pool of them turned by a step of the block's own, copied as a file would be."""

    number: int
    users: int
    dim: int
    rows: int  # of the pool

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        X, y = pool(self.rows, self.dim)
        step = 7919 * self.number % self.rows
        return np.roll(X, step, axis=0)[: self.users], np.roll(y, step)[: self.users]


@cache
def pool(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Random rows, made once per process; the first coordinate tells the class more often than not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, dim), dtype=np.float32)
    X /= np.maximum(np.sqrt(np.einsum("ij,ij->i", X, X)), 1e-6)[:, np.newaxis] * np.float32(1.0001)
    return X, X[:, 0] + 0.1 * rng.standard_normal(rows, dtype=np.float32) > 0


def generated(users: int, dim: int) -> list[Generated]:
    """Blocks of equal size, in a number that one, two and four workers can share evenly."""
    count = LEAST_BLOCKS * math.ceil(users / (LEAST_BLOCKS * min(BLOCK_USERS, max(1, BLOCK_ENTRIES // dim))))
    rows = math.ceil(users / count)
    sizes = [users // count + (number < users % count) for number in range(count)]
    return [Generated(number, size, dim, rows) for number, size in enumerate(sizes)]


def write(cell: Cell, folder: Path) -> dict[str, Any]:
    """The cell's users as eight Parquet files or so, a block being two row groups; how large they are."""
    blocks = generated(cell.users, cell.dim)
    together = max(1, len(blocks) // 8)
    for first in range(0, len(blocks), together):
        tables = [_table(*block.read()) for block in blocks[first : first + together]]
        parquet.write_table(pa.concat_tables(tables), folder / f"{first:04}.parquet", row_group_size=math.ceil(blocks[0].rows / 2))
    pool.cache_clear()
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def _table(X: np.ndarray, y: np.ndarray) -> pa.Table:
    return pa.table({f"x{j:04}": np.ascontiguousarray(X[:, j]) for j in range(X.shape[1])} | {"y": y})
