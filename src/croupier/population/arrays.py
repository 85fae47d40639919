"""Users whose records are in memory: numpy arrays, scipy sparse matrices, pandas frames, Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import RandomSource, SumEstimate, VectorSum
from ..validation import ArgumentError
from .population import Query

_CHUNK_ENTRIES = 1 << 16


class ArrayPopulation:
    """One user per row of X, with its entry of y. Memory beyond the data is a chunk."""

    def __init__(self, X: Any, y: Any = None, *, mode: str = "counting") -> None:
        self.X, self.y, self.mode = _rows(X), None if y is None else _column(y), mode
        if self.y is not None and len(self.y) != self.users:
            raise ArgumentError("y", f"{len(self.y)} entries", f"as long as X ({self.users} rows)", "Give one entry per user.")
        if self.users == 0:
            raise ArgumentError("X", "no rows", "at least one user", "Give one row per user.")
        for start in range(0, self.users, _CHUNK_ENTRIES):
            some = self.X[start : start + _CHUNK_ENTRIES]
            if not np.all(np.isfinite(some.data if hasattr(some, "toarray") else some)):
                raise ArgumentError(
                    "X", "NaN or infinity", "finite in every entry", "Impute or drop missing values; nobody was asked."
                )
        if self.y is not None and self.y.dtype.kind == "f" and not np.all(np.isfinite(self.y)):
            raise ArgumentError("y", "NaN or infinity", "finite in every entry", "Drop users without a target; nobody was asked.")

    @property
    def users(self) -> int:
        return int(self.X.shape[0])

    def answer(self, query: Query, users: NDArray[np.int64], plan: SumPlan, random: RandomSource) -> SumEstimate:
        chunks = self._vectors(query, users, max(1, _CHUNK_ENTRIES // plan.dim))
        return VectorSum(plan).run_chunks(chunks, users=len(users), mode=self.mode, random=random)

    def _vectors(self, query: Query, users: NDArray[np.int64], size: int) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(users), size):
            some = users[start : start + size]
            rows = self.X[some]
            yield query(rows.toarray() if hasattr(rows, "toarray") else rows, None if self.y is None else self.y[some])


def _rows(X: Any) -> Any:
    """X as something that can be indexed by rows: an array, or a sparse matrix in row form."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    array = np.column_stack([np.asarray(column) for column in X.columns]) if hasattr(X, "column_names") else np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ArgumentError(
            "X",
            f"{type(X).__name__} of shape {array.shape} and type {array.dtype}",
            "a table of numbers, one row per user",
            "Encode it.",
        )
    return array


def _column(y: Any) -> NDArray[Any]:
    column = np.asarray(y)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ArgumentError("y", f"shape {column.shape}", "one label or target per user", "Pass one column.")
    return column
