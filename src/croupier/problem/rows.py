"""What every user does to its own row, in training and in prediction alike: scale it down to the public norm, add the constant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, issparse

from ..arithmetic import row_squares, single_tells

Floats = NDArray[np.float64]


def clip_rows(X: Any, norm: float) -> Any:
    """X with every row longer than `norm` by a part in a million scaled down to it; a map of each row alone.

    Dense or CSR, as it came, and of the precision that it came in, where that can tell lengths about the norm.
    """
    if X.dtype == np.float32 and not single_tells(norm):
        X = X.astype(np.float64)
    long = too_long(row_squares_of(X), norm)
    return scaled_down(X, long, norm) if long.any() else X


def too_long(squares: Floats, norm: float, slack: float = 0.0) -> NDArray[np.bool_]:
    """Which rows, of these squared lengths, are longer than `norm` by more than a part in a million; NaN counts as too long.

    `slack` is the relative error of the squares up to which a row still counts as short enough.
    """
    return np.asarray(~(np.sqrt(squares) <= norm * (1 + 1e-6) * math.sqrt(1 + slack)))


def scaled_down(X: Any, long: NDArray[np.bool_], norm: float) -> Any:
    """X with these rows scaled to the length `norm`, of whatever size they are; dense or CSR, and of the precision it came in."""
    rows = X[long].astype(np.float64)
    _scale(rows, 1 / _dense(np.abs(rows).max(axis=1)))  # squares of huge numbers overflow
    _scale(rows, norm / row_norms(rows))
    scaled = X.copy()
    if issparse(X):
        scaled.data[np.repeat(long, np.diff(X.indptr))] = rows.data
    else:
        scaled[long] = rows
    return scaled


def with_constant(X: Any, constant: float) -> Any:
    """X with one more column, the same for everybody: the intercept's."""
    column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
    return hstack([X, csr_array(column)], format="csr") if issparse(X) else np.hstack([X, column])


def row_norms(X: Any) -> Floats:
    """The length of every row, dense or sparse."""
    return np.sqrt(row_squares_of(X))


def row_squares_of(X: Any) -> Floats:
    """The squared length of every row, dense or sparse; infinite where it cannot be told."""
    with np.errstate(over="ignore"):  # infinite is longer than any norm, which is all that is asked
        return _dense(X.multiply(X).sum(axis=1)) if issparse(X) else row_squares(X)


def _scale(rows: Any, factors: Floats) -> None:
    """Each row times its factor, in place."""
    if issparse(rows):
        rows.data *= np.repeat(factors, np.diff(rows.indptr))
    else:
        rows *= factors[:, np.newaxis]


def _dense(column: Any) -> Floats:
    return np.asarray(column.toarray() if issparse(column) else column, dtype=np.float64).ravel()
