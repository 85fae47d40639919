"""Sums over the entries of rows, rounded in a way that does not depend on which other rows are beside.

So not by BLAS; and einsum adds up a long row otherwise where it is alone than in company. Rows in single precision are multiplied
and added up in single precision, twice as fast; whatever comes of it is in double precision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.float64]
# Entries up to which einsum adds up a row in one piece, and that are brought to double precision at a time.
_SHORT_ROW, _PIECE = 8192, 1 << 20
# Entries that are turned at a time by numpy: few arrays of this size fit the processor's cache.
_TURNED = 1 << 16
# Entries that a vector instruction takes at most: of a row of so many, zeros at its end, none are left over.
_ALONG = 16
# Sizes whose squares single precision can hold, and tell from 0; and how many of them it adds up to four digits, whatever they are.
_SINGLE, _SINGLE_COLUMNS = (1e-10, 1e15), 1024


def single_tells(norm: float) -> bool:
    """Tell whether lengths about `norm` can be told in single precision."""
    return _SINGLE[0] <= norm <= _SINGLE[1]


def in_single(rows: Any, norm: float) -> bool:
    """Tell whether these are rows in single precision that can stay so: with few enough columns, and of a length that it can
    tell."""
    narrow = getattr(rows, "dtype", None) == np.float32 and rows.ndim == 2 and rows.shape[1] <= _SINGLE_COLUMNS
    return bool(narrow and single_tells(norm))


def row_dots(rows: NDArray[Any], weights: Floats) -> Floats:
    """Compute each row's inner product with the weights."""
    weights = np.asarray(weights, dtype=np.float64)
    if rows.dtype == np.float32 and not np.max(np.abs(weights), initial=0.0) <= _SINGLE[1]:
        rows = rows.astype(np.float64)
    return _added_up("ij,j->i", rows, weights.astype(rows.dtype))


def row_squares(rows: NDArray[Any]) -> Floats:
    """Compute each row's squared length.

    Parameters
    ----------
    rows : numpy.ndarray of shape (rows, columns)
        In single or double precision.

    Returns
    -------
    numpy.ndarray of float64, shape (rows,)
        Each row's, which does not depend on the other rows; infinite if a square is not to be had.

    Requires
    --------
    Nothing: rows may hold any numbers (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Ensures
    -------
    With d columns, it is right to (d + 1) 2^-53 of itself and 2^-1074 d in double precision. In single precision it is right to
    (d + 1) 2^-24, and to 2^-125 d also where the processor takes the smallest numbers for 0. In whatever order squares are added
    up, no partial sum is above the last, as none of them falls (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    if rows.shape[1] == 1:
        return np.asarray(np.square(rows[:, 0], dtype=np.float64))
    if rows.dtype == np.float32 and rows.shape[1] > _SINGLE_COLUMNS:
        some = max(1, _PIECE // rows.shape[1])
        pieces = [row_squares(rows[first : first + some].astype(np.float64)) for first in range(0, len(rows), some)]
        return np.concatenate(pieces or [np.zeros(0)])
    return _added_up("ij,ij->i", rows, rows)


def _added_up(subscripts: str, rows: NDArray[Any], others: NDArray[Any]) -> Floats:
    if rows.shape[1] <= _SHORT_ROW:
        return np.asarray(np.einsum(subscripts, rows, others), dtype=np.float64)
    pairs = ((row, others if others.ndim == 1 else row) for row in rows)
    return np.array([np.einsum("j,j->", row, other) for row, other in pairs], dtype=np.float64)


class ConstantBeside:
    """Rows of numbers with one more column, the same number everywhere, that exists where `toarray` is called.

    So that some rows at a time have it, and a table of all rows is not copied. `finite` says that rows were found finite already.
    """

    def __init__(self, rows: NDArray[Any], constant: float, *, finite: bool = False) -> None:
        self.rows, self.constant, self.finite, self.dtype = rows, constant, finite, rows.dtype
        self.shape: tuple[int, int] = (rows.shape[0], rows.shape[1] + 1)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, some: Any) -> ConstantBeside:
        # `take` is faster than brackets, but copies all rows first where they do not follow each other in memory
        numbered = isinstance(some, np.ndarray) and some.dtype.kind in "iu" and self.rows.flags.c_contiguous
        return ConstantBeside(self.rows.take(some, axis=0) if numbered else self.rows[some], self.constant, finite=self.finite)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.toarray().astype(dtype or self.dtype, copy=False)

    def toarray(self) -> NDArray[Any]:
        """Make the rows, constant included."""
        rows = np.empty(self.shape, self.dtype)
        rows[:, :-1], rows[:, -1] = self.rows, self.constant
        return rows


def turned_rows(rows: NDArray[Any], turn: NDArray[Any]) -> NDArray[Any]:
    """Compute what a matrix makes of each row, in the rows' precision: products added up in the order of the row's entries.

    Compiled where numba has been loaded, to the same bits; entries that are 0 then take no time.
    """
    rows, columns = np.ascontiguousarray(rows), np.ascontiguousarray(turn.T, dtype=rows.dtype)
    result = np.empty((len(rows), columns.shape[1]), rows.dtype)
    compiled = _compiled_turn() if "numba" in sys.modules else None
    if compiled is not None:
        compiled(rows, _in_lines(columns), result)
        return result
    some = max(1, _TURNED // max(1, rows.shape[1]))
    for first in range(0, len(rows), some):
        entries = np.ascontiguousarray(rows[first : first + some].T)  # every operation runs along the rows
        total = np.zeros((columns.shape[1], entries.shape[1]), rows.dtype)
        product = np.empty_like(total)
        for entry, column in zip(entries, columns, strict=True):
            total += np.multiply(column[:, np.newaxis], entry, out=product)
        result[first : first + some] = total.T
    return result


def _in_lines(columns: NDArray[Any]) -> NDArray[Any]:
    """The columns and one of zeros, each from the beginning of a line of the cache on: no vector instruction needs two lines."""
    size, most = columns.shape
    shape = (size + 1, -(-most // _ALONG) * _ALONG)
    room = np.zeros(shape[0] * shape[1] + _ALONG, columns.dtype)
    first = -room.ctypes.data % 64 // columns.itemsize
    wide = room[first : first + shape[0] * shape[1]].reshape(shape)
    wide[:size, :most] = columns
    return wide


def _turn(rows: Any, columns: Any, result: Any) -> None:
    """The loops of `turned_rows` for numba: without what is 0, four entries of a row at a time, each operation rounded.

    The last of the columns is zeros, for an entry of 0 where four would be fewer.
    """
    size, wide = rows.shape[1], columns.shape[1]
    total, there, entries = np.empty(wide, rows.dtype), np.empty(size + 4, np.int64), np.empty(size + 4, rows.dtype)
    for i in range(len(rows)):
        row, count = rows[i], 0
        for j in range(size):
            there[count], entries[count] = j, row[j]
            count += row[j] != 0
        for n in range(count, count + 3):
            there[n], entries[n] = size, 0
        for k in range(wide):
            total[k] = 0
        for n in range(0, count, 4):
            of_a, of_b, of_c, of_d = columns[there[n]], columns[there[n + 1]], columns[there[n + 2]], columns[there[n + 3]]
            a, b, c, d = entries[n], entries[n + 1], entries[n + 2], entries[n + 3]
            for k in range(wide):
                total[k] = total[k] + a * of_a[k] + b * of_b[k] + c * of_c[k] + d * of_d[k]
        for k in range(result.shape[1]):
            result[i, k] = total[k]


@cache
def _compiled_turn() -> Callable[..., None] | None:
    """`_turn` by numba, tried in both precisions; None where it cannot be had."""
    try:
        from numba import njit  # noqa: PLC0415  (waits for a thread that is importing it)

        try:
            compiled: Any = njit(nogil=True, cache=True)(_turn)
        except RuntimeError:  # no folder for the cache can be written
            compiled = njit(nogil=True)(_turn)
        for kind in (np.float32, np.float64):
            compiled(np.ones((1, 1), kind), np.ones((2, 1), kind), np.ones((1, 1), kind))
    except Exception:
        return None
    return compiled if hasattr(compiled, "signatures") else None


@dataclass(frozen=True, eq=False)
class LinearVectors:
    """Users' vectors as products: user i's is the outer product of coefficients_i and rows_i, plus a shift that all have.

    Such are the gradients of linear models: slopes times features, and the regulariser's gradient, which all users share. They need
    not exist in memory: each entry is made where it is rounded.

    `rows` (users, features): Made float64; float32 stays as it is where `squares` are given and there is no shift. `coefficients`
    (users, outputs): What each user's row is multiplied by. `shift` (outputs, features): What is added to every user's product.
    `squares` (users,): The squared lengths of these very rows, if they are known from `row_squares` already; privacy rests on their
    being right.
    """

    rows: NDArray[Any]  # float64 or float32
    coefficients: Floats
    shift: Floats | None = None
    squares: Floats | None = None

    @classmethod
    def of(cls, vectors: NDArray[Any]) -> LinearVectors:
        """Take any vectors: as their own product with 1."""
        return cls(vectors, np.ones((len(vectors), 1)))

    def __post_init__(self) -> None:
        """Whatever was given, all that follows is in double precision.

        But rows in single precision stay as they are if they come with their squares, so of a size that it can tell, and no shift.
        """
        single = self.squares is not None and self.shift is None and self.rows.dtype == np.float32
        object.__setattr__(self, "rows", _laid_out(self.rows, np.float32 if single else np.float64))
        object.__setattr__(self, "coefficients", _laid_out(self.coefficients, np.float64))
        if self.shift is not None:
            object.__setattr__(self, "shift", _laid_out(self.shift, np.float64))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        """Coordinates of a user's vector: features times outputs."""
        return int(self.rows.shape[1] * self.coefficients.shape[1])

    def of_users(self, users: NDArray[np.bool_]) -> LinearVectors:
        """Take the vectors of some users; their lengths are measured anew."""
        return LinearVectors(self.rows[users], self.coefficients[users], self.shift)  # odd ones are few: measured anew

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        vectors = products(self.rows, self.coefficients)
        return (vectors if self.shift is None else vectors + self.shift.ravel()).astype(dtype or np.float64, copy=False)


def products(rows: NDArray[Any], coefficients: Floats) -> Floats:
    """Compute each row's outer product with its coefficients, as one vector."""
    entries = coefficients.shape[1] * rows.shape[1]
    return np.asarray((coefficients[:, :, np.newaxis] * rows[:, np.newaxis]).reshape(len(rows), entries))


def _laid_out(array: NDArray[Any], kind: DTypeLike) -> NDArray[Any]:
    """The array in this precision, its rows one after the other in memory."""
    return np.require(array, kind, ["C", "A"])
