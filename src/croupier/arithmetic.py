"""Sums over the entries of rows, rounded in a way that does not depend on which other rows are beside.

So not by BLAS; and einsum adds up a long row otherwise where it is alone than in company. Rows in single precision are multiplied
and added up in single precision, twice as fast; whatever comes of it is in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Entries up to which einsum adds up a row in one piece, and that are brought to double precision at a time.
_SHORT_ROW, _PIECE = 8192, 1 << 20
# Sizes whose squares single precision can hold, and tell from 0; and how many of them it adds up to four digits, whatever they are.
_SINGLE, _SINGLE_COLUMNS = (1e-10, 1e15), 1024


def single_tells(norm: float) -> bool:
    """Whether lengths about `norm` can be told in single precision."""
    return _SINGLE[0] <= norm <= _SINGLE[1]


def in_single(rows: Any, norm: float) -> bool:
    """Whether these are rows in single precision, few enough columns of it, and of a length that it can tell: about `norm`."""
    narrow = getattr(rows, "dtype", None) == np.float32 and rows.ndim == 2 and rows.shape[1] <= _SINGLE_COLUMNS
    return bool(narrow and single_tells(norm))


def row_dots(rows: NDArray[Any], weights: Floats) -> Floats:
    """Each row's inner product with the weights."""
    weights = np.asarray(weights, dtype=np.float64)
    if rows.dtype == np.float32 and not np.max(np.abs(weights), initial=0.0) <= _SINGLE[1]:
        rows = rows.astype(np.float64)
    return _added_up("ij,j->i", rows, weights.astype(rows.dtype))


def row_squares(rows: NDArray[Any]) -> Floats:
    """Each row's squared length.

    In double precision it is right to (d + 1) 2^-53 of itself, and 2^-1074 d; in single precision to (d + 1) 2^-24, and to
    2^-125 d also where the processor takes the smallest numbers for 0; infinite where a square is not to be had. In whatever order
    squares are added up, no partial sum is above the last, as none of them falls.
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
