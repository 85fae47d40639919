"""Users whose records are in memory: numpy arrays, scipy sparse matrices, pandas frames, Arrow tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import RandomSource, SumEstimate, VectorSum
from ..protocol.encoding import require_finite
from ..validation import ArgumentError
from .population import Query

_CHUNK_ENTRIES = 1 << 17


class ArrayPopulation:
    """One user per row of X, with its entry of y; or, with `groups`, one user per distinct label, who has all rows so labelled.

    A user with many rows answers with the mean of their vectors: one bounded contribution, so that the person is protected and
    not the row. Memory beyond the data is a chunk (of users), and with groups an index.
    """

    def __init__(self, X: Any, y: Any = None, *, groups: Any = None, mode: str = "counting") -> None:
        self.X, self.y, self.mode = _rows(X), None if y is None else _column(y, "y"), mode
        rows = int(self.X.shape[0])
        if rows == 0:
            raise ArgumentError("X", "no rows", "at least one user", "Give one row per user.")
        if self.y is not None and len(self.y) != rows:
            raise ArgumentError("y", f"{len(self.y)} entries", f"as long as X ({rows} rows)", "Give one entry per user.")
        values = self.X.data[:, np.newaxis] if hasattr(self.X, "toarray") else self.X
        require_finite(values, range(0, len(values), max(1, _CHUNK_ENTRIES // max(1, values.shape[1]))), "X")
        if self.y is not None and self.y.dtype.kind == "f" and not np.all(np.isfinite(self.y)):
            raise ArgumentError("y", "NaN or infinity", "finite in every entry", "Drop users without a target; nobody was asked.")
        self._index = None if groups is None else _RowsOfUsers(_labels(groups, rows))

    @property
    def users(self) -> int:
        return int(self.X.shape[0]) if self._index is None else self._index.users

    def answer(self, query: Query, users: NDArray[np.int64], plan: SumPlan, random: RandomSource) -> SumEstimate:
        entries_of_user = plan.dim * (self.X.shape[0] // self.users)
        chunks = self._vectors(query, users, max(1, _CHUNK_ENTRIES // entries_of_user))
        return VectorSum(plan).run_chunks(chunks, users=len(users), mode=self.mode, random=random)

    def _vectors(self, query: Query, users: NDArray[np.int64], size: int) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(users), size):
            some = users[start : start + size]
            if self._index is None:
                yield self._of_rows(query, some)
            else:
                rows, firsts, counts = self._index.rows_of(some)
                yield np.add.reduceat(self._of_rows(query, rows), firsts, axis=0) / counts[:, np.newaxis]

    def _of_rows(self, query: Query, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        X = self.X[rows]
        return query(X.toarray() if hasattr(X, "toarray") else X, None if self.y is None else self.y[rows])


class _RowsOfUsers:
    """Which rows belong to which user: rows sorted by user, and where each user's begin."""

    def __init__(self, labels: NDArray[Any]) -> None:
        user_of_row = np.unique(labels, return_inverse=True)[1]
        self._rows = np.argsort(user_of_row, kind="stable")
        self._counts = np.bincount(user_of_row)
        self._firsts = np.concatenate([[0], np.cumsum(self._counts)[:-1]])

    @property
    def users(self) -> int:
        return len(self._counts)

    def rows_of(self, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The rows of these users one after the other, where each user's begin among them, and how many each has."""
        counts = self._counts[users]
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        places = np.arange(counts.sum()) - np.repeat(firsts, counts) + np.repeat(self._firsts[users], counts)
        return self._rows[places], firsts, counts


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


def _column(y: Any, name: str) -> NDArray[Any]:
    column = np.asarray(y)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ArgumentError(name, f"shape {column.shape}", "one entry per row of X", "Pass one column.")
    return column


def _labels(groups: Any, rows: int) -> NDArray[Any]:
    labels = _column(groups, "groups")
    if len(labels) != rows:
        raise ArgumentError("groups", f"{len(labels)} entries", f"as long as X ({rows} rows)", "Say for each row whose it is.")
    objects = labels.tolist() if labels.dtype.kind in "fO" else []
    if any(label is None or (isinstance(label, float) and math.isnan(label)) for label in objects):
        raise ArgumentError("groups", "a missing label", "a label for every row", "Drop rows whose user is not known.")
    return np.array([str(label) for label in objects]) if labels.dtype.kind == "O" else labels
