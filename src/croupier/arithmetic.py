"""Sums over the entries of rows, rounded in a way that does not depend on which other rows are beside.

So not by BLAS; and einsum adds up a long row otherwise where it is alone than in company.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Entries up to which einsum adds up a row in one piece.
_SHORT_ROW = 8192


def row_dots(rows: Floats, weights: Floats) -> Floats:
    """Each row's inner product with the weights."""
    if rows.shape[1] <= _SHORT_ROW:
        return np.asarray(np.einsum("ij,j->i", rows, weights))
    return np.array([np.einsum("j,j->", row, weights) for row in rows], dtype=np.float64)


def row_squares(rows: Floats) -> Floats:
    """Each row's squared length."""
    if rows.shape[1] <= _SHORT_ROW:
        return np.asarray(np.einsum("ij,ij->i", rows, rows))
    return np.array([np.einsum("j,j->", row, row) for row in rows], dtype=np.float64)
