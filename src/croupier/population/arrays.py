"""Users whose records are in memory: numpy arrays, scipy sparse matrices, pandas frames, Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import ConstantBeside
from ..protocol._encoding import require_finite
from ..validation import ArgumentError, Found, RecordError, blanks, is_missing, name_of, numbers_or_nan, one_by_one
from ._blocks import (
    BLOCK_USERS,
    CHUNK_ENTRIES,
    ENTRIES_PER_THREAD,
    BlockPopulation,
    Records,
    RowsOfUsers,
    Shard,
    place,
    require_finite_targets,
)
from .population import Question

# Blocks that users are divided into, so that threads can share them, and how many users are worth a block of their own.
_BLOCKS, _LEAST_USERS = 8, 1 << 13


class ArrayPopulation(BlockPopulation):
    """One user per row of X, with its entry of y; or, with `groups`, one user per distinct label, who has all rows so labelled.

    A user with many rows answers with the mean of their vectors: one bounded contribution, so that the person is protected and
    not the row. Memory beyond the data: a chunk of rows per thread, 14 bytes per user where batches are dealt, with groups an
    index. The shape and the type of an array are treated as public.

    Parameters
    ----------
    X : array_like, sparse matrix, data frame or Arrow table of shape (rows, features)
        Numbers, one row per user, or several with `groups`.
    y : array_like of shape (rows,) or None, default None
        The label or target of each row.
    groups : array_like of shape (rows,) or None, default None
        The user of each row; None if each row is a user.
    mode : {"counting", "faithful"}, default "counting"
        Whether to add integers, or to make and shuffle every message; the distribution of the answers is the same.
    blocks : sequence of int or None, default None
        The sizes of the blocks that share their randomness, in users. None is an eighth of all users each, but at least 8 192 and
        at most 262 144; or all of them in a round of secret lots that is not worth several threads.
    threads : int or None, default None
        Number of blocks answered for at once; None is as many as the process has processors.
    invalid : {"refuse", "blank"}, default "refuse"
        What happens to a value that is not a finite number. "blank" leaves it to the caller, who must count its record as blank,
        as `minimize(invalid="blank")` does; a row without a label in `groups` is then nobody's, and is left out.

    Attributes
    ----------
    X, y : array
        The rows as they are used.
    unit : str
        What a user is: "row", or "person" with `groups`.

    Raises
    ------
    ArgumentError
        Where X is not a table of numbers, or a length does not fit; with `invalid` = "refuse" also where a target is not finite or
        a label of `groups` is missing.
    RecordError
        With `invalid` = "refuse", where a feature is not finite.

    Guarantee
    ---------
    The plan's guarantee is for a row, or with `groups` for all rows of a person together.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.population import ArrayPopulation
    >>> X = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    >>> population = ArrayPopulation(X, groups=["ann", "bob", "ann"])
    >>> population.users, population.unit
    (2, 'person')
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        mode: str = "counting",
        blocks: Sequence[int] | None = None,
        threads: int | None = None,
        invalid: str = "refuse",
    ) -> None:
        blank = blanks(invalid)
        self.X, self.y = _rows(X, blank), None if y is None else _column(one_by_one(y) if blank else y, "y")
        rows = int(self.X.shape[0])
        if rows == 0:
            raise ArgumentError("X", Found("has no rows"), "at least one user", "Give one row per user.")
        if self.y is not None and len(self.y) != rows:
            raise ArgumentError(
                "y",
                Found(f"has {len(self.y)} entries, but X has {rows} rows"),
                f"as long as X ({rows} rows)",
                "Give one entry per user.",
            )
        if not blank:
            require_finite_targets(self.y)
        self.unit = "row" if groups is None else "person"
        index = None if groups is None else self._owned(groups, rows, blank)
        users = rows if index is None else index.users
        together = min(max(-(-users // _BLOCKS), _LEAST_USERS), BLOCK_USERS)
        sizes = [min(together, users - first) for first in range(0, users, together)] if blocks is None else list(blocks)
        if sum(sizes) != users:
            raise ArgumentError("blocks", Found(f"adds up to {sum(sizes)}"), f"{users}, the number of users", "Leave it out.")
        ends = pairwise(accumulate(sizes, initial=0))
        parts = [self._block(index, first, last, not blank) for first, last in ends]
        super().__init__(parts, keep=True, mode=mode, threads=threads)
        self._undivided = self.shard
        if blocks is None and len(parts) > 1:
            self._undivided = Shard(place([self._block(index, 0, users, not blank)]), keep=True)
            self._layout = b"a small round of secret lots is one block"

    def _asked(self, question: Question) -> Shard:
        """All users as one block where blocks are our choice and a secret lot is too small to be shared out among threads."""
        small = question.size * question.plan.padded < 2 * ENTRIES_PER_THREAD
        return self._undivided if question.lots is not None and small else self.shard

    def _owned(self, groups: Any, rows: int, blank: bool) -> RowsOfUsers:
        """Who has which rows; where there may be blanks, rows that are nobody's are dropped."""
        labels = _labels(groups, rows)
        if blank and labels.dtype.kind == "O":
            labels = _names(labels)
        missing = _missing_labels(labels)
        if blank and missing.any():
            self.X, self.y, labels = self.X[~missing], None if self.y is None else self.y[~missing], labels[~missing]
        elif missing.any():
            raise ArgumentError("groups", Found("has a missing label"), "a label for every row", "Drop rows whose user is unknown.")
        if not len(labels):
            raise ArgumentError("groups", Found("has no labels"), "at least one user", "Give the user of every row.")
        return RowsOfUsers.of_labels(_users_of_rows(labels))

    def _block(self, index: RowsOfUsers | None, first: int, last: int, finite: bool) -> Records:
        if index is not None:
            return Records(self.X, self.y, index.part(first, last), finite=finite)
        return Records(_part(self.X, first, last), None if self.y is None else self.y[first:last], finite=finite)


def _part(X: Any, first: int, last: int) -> Any:
    """Some rows of X, without copying them: a sparse matrix's own slices are copies."""
    if not hasattr(X, "indptr"):
        return X[first:last]
    low, high = X.indptr[first], X.indptr[last]
    data, indices = X.data[low:high], X.indices[low:high]
    part = type(X)((data, indices, X.indptr[first : last + 1] - low), shape=(last - first, X.shape[1]))
    part.data, part.indices = data, indices  # scipy has copied views of less than half
    return part


def _rows(X: Any, blank: bool) -> Any:
    """X as something that can be indexed by rows: an array no wider than float64, or a sparse matrix in row form.

    Finite, but where there may be blanks.
    """
    if isinstance(X, ConstantBeside):
        return X if X.finite else ConstantBeside(_rows(X.rows, blank), X.constant)
    sparse = hasattr(X, "tocsr")
    if sparse:
        array = X.tocsr()
    elif blank:
        columns = [numbers_or_nan(np.asarray(column)) for column in X.columns] if hasattr(X, "column_names") else None
        array = numbers_or_nan(X) if columns is None else np.column_stack(columns)
    elif np.ma.isMaskedArray(X):
        raise ArgumentError("X", Found("is a masked array"), "an array without a mask", "Impute or drop what is masked.")
    else:
        array = np.column_stack([np.asarray(column) for column in X.columns]) if hasattr(X, "column_names") else np.asarray(X)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ArgumentError(
            "X",
            Found(f"is a {type(X).__name__} of shape {array.shape} and type {array.dtype}"),
            "a table of numbers, one row per user",
            "Encode it.",
        )
    if array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as such
            array = array.astype(np.float64)
    if blank:
        return array
    if sparse and not np.all(np.isfinite(array.data)):
        row = int(np.searchsorted(array.indptr, np.argmin(np.isfinite(array.data)), side="right")) - 1
        remedy = "Impute or drop missing values; nobody was asked."
        raise RecordError(f"X[{row}]", Found("contains NaN or infinity"), "finite", remedy, public="X")
    if not sparse:
        require_finite(array, range(0, len(array), max(1, CHUNK_ENTRIES // max(1, array.shape[1]))), "X")
    return array


def _column(y: Any, name: str) -> NDArray[Any]:
    if np.ma.isMaskedArray(y):
        raise ArgumentError(name, Found("is a masked array"), "an array without a mask", "Impute or drop what is masked.")
    column = np.asarray(y)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ArgumentError(name, Found(f"has the shape {column.shape}"), "one entry per row of X", "Pass one column.")
    return column


def _labels(groups: Any, rows: int) -> NDArray[Any]:
    labels = _column(groups if np.ma.isMaskedArray(groups) else one_by_one(groups), "groups")
    if len(labels) != rows:
        raise ArgumentError(
            "groups",
            Found(f"has {len(labels)} entries, but X has {rows} rows"),
            f"as long as X ({rows} rows)",
            "Give the user of every row.",
        )
    return labels


def _missing_labels(labels: NDArray[Any]) -> NDArray[np.bool_]:
    if labels.dtype.kind in "fcMm":
        return np.asarray(np.isnan(labels))
    objects = labels.tolist() if labels.dtype.kind == "O" else []
    return np.array([is_missing(label) for label in objects] or np.zeros(len(labels)), dtype=bool)


def _users_of_rows(labels: NDArray[Any]) -> NDArray[np.int64]:
    """The number of the user that each row belongs to: equal labels are one user, by Python's equality where they are objects."""
    objects = labels.tolist() if labels.dtype.kind == "O" else []
    if not objects:
        return np.asarray(np.unique(labels, return_inverse=True)[1])
    if {str, bytes} <= {type(label) for label in objects}:
        raise ArgumentError(
            "groups", Found("has both text and bytes"), "labels of one kind", "Decode the bytes: 'a' and b'a' may be one user."
        )
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in objects], dtype=np.int64)


def _names(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels, each by itself, as something that can be compared: bytes are text, and what is no name of anybody is None."""
    names = np.empty(len(labels), dtype=object)
    names[:] = [name_of(label) for label in labels.tolist()]
    return names
