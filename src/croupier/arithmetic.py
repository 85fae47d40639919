"""Sums over the entries of rows, rounded in a way that does not depend on which other rows are beside.

So not by BLAS; and einsum adds up a long row otherwise where it is alone than in company. Rows in single precision are multiplied
and added up in single precision, twice as fast; whatever comes of it is in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Entries up to which einsum adds up a row in one piece.
_SHORT_ROW = 8192
# Sizes whose squares single precision can hold, and tell from 0.
_SINGLE = (1e-10, 1e15)


def in_single(rows: Any, norm: float) -> bool:
    """Whether these are rows in single precision, and of a length that it can tell: about `norm`."""
    return getattr(rows, "dtype", None) == np.float32 and _SINGLE[0] <= norm <= _SINGLE[1]


def row_dots(rows: NDArray[Any], weights: Floats) -> Floats:
    """Each row's inner product with the weights."""
    if rows.dtype == np.float32 and not np.max(np.abs(weights), initial=0.0) <= _SINGLE[1]:
        rows = rows.astype(np.float64)
    return _added_up("ij,j->i", rows, weights.astype(rows.dtype))


def row_squares(rows: NDArray[Any]) -> Floats:
    """Each row's squared length.

    In double precision it is right to (d + 1) 2^-53 of itself, and 2^-1074 d; in single precision to (d + 1) 2^-24, and to
    2^-125 d also where the processor takes the smallest numbers for 0; infinite where a square is not to be had.
    """
    if rows.shape[1] == 1:
        return np.asarray(np.square(rows[:, 0], dtype=np.float64))
    return _added_up("ij,ij->i", rows, rows)


def _added_up(subscripts: str, rows: NDArray[Any], others: NDArray[Any]) -> Floats:
    if rows.shape[1] <= _SHORT_ROW:
        return np.asarray(np.einsum(subscripts, rows, others), dtype=np.float64)
    pairs = ((row, others if others.ndim == 1 else row) for row in rows)
    return np.array([np.einsum("j,j->", row, other) for row, other in pairs], dtype=np.float64)
