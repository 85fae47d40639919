"""Users whose records are in memory: numpy arrays, scipy sparse matrices, pandas frames, Arrow tables."""

from __future__ import annotations

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
    not the row. Memory beyond the data is a chunk of rows, and with groups an index.
    """

    def __init__(self, X: Any, y: Any = None, *, groups: Any = None, mode: str = "counting") -> None:
        self.X, self.y, self.mode = _rows(X), None if y is None else _column(y, "y"), mode
        rows = int(self.X.shape[0])
        if rows == 0:
            raise ArgumentError("X", "no rows", "at least one user", "Give one row per user.")
        if self.y is not None and len(self.y) != rows:
            raise ArgumentError("y", f"{len(self.y)} entries", f"as long as X ({rows} rows)", "Give one entry per user.")
        if self.y is not None and self.y.dtype.kind == "f" and not np.all(np.isfinite(self.y)):
            raise ArgumentError("y", "NaN or infinity", "finite in every entry", "Drop users without a target; nobody was asked.")
        self._index = None if groups is None else _RowsOfUsers(_users_of_rows(groups, rows))

    @property
    def users(self) -> int:
        return int(self.X.shape[0]) if self._index is None else self._index.users

    def answer(self, query: Query, users: NDArray[np.int64], plan: SumPlan, random: RandomSource) -> SumEstimate:
        users = np.sort(users)  # a sum has no order, and rows are read front to back
        most = max(1, _CHUNK_ENTRIES // plan.dim)
        chunks = self._vectors(query, users, most) if self._index is None else self._means(self._index, query, users, most)
        return VectorSum(plan).run_chunks(chunks, users=len(users), mode=self.mode, random=random)

    def _vectors(self, query: Query, rows: NDArray[np.int64], most: int) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            X = self.X[some]
            vectors = query(X.toarray() if hasattr(X, "toarray") else X, None if self.y is None else self.y[some])
            if len(vectors) != len(some):
                raise ArgumentError(
                    "query(X, y)", f"{len(vectors)} vectors", f"{len(some)}, one per record", "Map each record alone."
                )
            yield vectors

    def _means(self, index: _RowsOfUsers, query: Query, users: NDArray[np.int64], most: int) -> Iterator[NDArray[np.float64]]:
        """One mean vector per user, over at most `most` rows at a time; someone with more of them alone, in pieces."""
        for some in index.pieces(users, most):
            rows, firsts, counts = index.rows_of(some)
            if len(rows) > most:
                total = sum(vectors.sum(axis=0) for vectors in self._vectors(query, rows, most))
                yield np.asarray(total)[np.newaxis] / len(rows)
            else:
                (vectors,) = self._vectors(query, rows, most)
                yield np.add.reduceat(vectors, firsts, axis=0) / counts[:, np.newaxis]


class _RowsOfUsers:
    """Which rows belong to which user: rows sorted by user, and where each user's begin."""

    def __init__(self, user_of_row: NDArray[np.int64]) -> None:
        self._rows = np.argsort(user_of_row, kind="stable")
        self._counts = np.bincount(user_of_row)
        self._firsts = np.concatenate([[0], np.cumsum(self._counts)[:-1]])

    @property
    def users(self) -> int:
        return len(self._counts)

    def pieces(self, users: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
        """The users in pieces of at most `most` rows together, or of one user."""
        ends, start = np.cumsum(self._counts[users]), 0
        while start < len(users):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            yield users[start:stop]
            start = stop

    def rows_of(self, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The rows of these users one after the other, where each user's begin among them, and how many each has."""
        counts = self._counts[users]
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        places = np.arange(counts.sum()) - np.repeat(firsts, counts) + np.repeat(self._firsts[users], counts)
        return self._rows[places], firsts, counts


def _rows(X: Any) -> Any:
    """X as something finite that can be indexed by rows: an array no wider than float64, or a sparse matrix in row form."""
    sparse = hasattr(X, "tocsr")
    if sparse:
        array = X.tocsr()
    elif np.ma.isMaskedArray(X):
        raise ArgumentError("X", "a masked array", "an array without a mask", "Impute or drop what is masked.")
    else:
        array = np.column_stack([np.asarray(column) for column in X.columns]) if hasattr(X, "column_names") else np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ArgumentError(
            "X",
            f"{type(X).__name__} of shape {array.shape} and type {array.dtype}",
            "a table of numbers, one row per user",
            "Encode it.",
        )
    if array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as such
            array = array.astype(np.float64)
    if sparse and not np.all(np.isfinite(array.data)):
        row = int(np.searchsorted(array.indptr, np.argmin(np.isfinite(array.data)), side="right")) - 1
        raise ArgumentError(f"X[{row}]", "NaN or infinity", "finite", "Impute or drop missing values; nobody was asked.")
    if not sparse:
        require_finite(array, range(0, len(array), max(1, _CHUNK_ENTRIES // max(1, array.shape[1]))), "X")
    return array


def _column(y: Any, name: str) -> NDArray[Any]:
    if np.ma.isMaskedArray(y):
        raise ArgumentError(name, "a masked array", "an array without a mask", "Impute or drop what is masked.")
    column = np.asarray(y)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ArgumentError(name, f"shape {column.shape}", "one entry per row of X", "Pass one column.")
    return column


def _users_of_rows(groups: Any, rows: int) -> NDArray[np.int64]:
    """The number of the user that each row belongs to: equal labels are one user, by Python's equality where they are objects."""
    # a list of text and NaN would become text as an array of numpy's own choosing
    labels = _column(np.array(groups, dtype=object) if isinstance(groups, list | tuple) else groups, "groups")
    if len(labels) != rows:
        raise ArgumentError("groups", f"{len(labels)} entries", f"as long as X ({rows} rows)", "Say for each row whose it is.")
    objects = labels.tolist() if labels.dtype.kind == "O" else []
    missing = np.isnan(labels) if labels.dtype.kind in "fcMm" else np.array([_missing(label) for label in objects], dtype=bool)
    if missing.any():
        raise ArgumentError("groups", "a missing label", "a label for every row", "Drop rows whose user is not known.")
    if not objects:
        return np.asarray(np.unique(labels, return_inverse=True)[1])
    if {str, bytes} <= {type(label) for label in objects}:
        raise ArgumentError(
            "groups", "both text and bytes", "labels of one kind", "Decode the bytes: 'a' and b'a' may be one user."
        )
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in objects], dtype=np.int64)


def _missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)  # noqa: PLR0124  (NaN and NaT, alone, differ from themselves)
    except TypeError:  # pandas.NA does not say whether it differs
        return True
