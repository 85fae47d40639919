"""What every user does to its own row by public facts: columns from their ranges to [-1, 1], long rows scaled down, a constant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from ..problem.problem import clip_rows, with_constant
from ..validation import ArgumentError

Floats = NDArray[np.float64]
RANGES = "Pass (low, high) for all features or one pair per feature; values outside are clipped to it."


def checked_ranges_of_features(declared: Any, features: int) -> Floats:
    """Return one pair per feature, or refuse what is none.

    Parameters
    ----------
    declared : array-like
        (low, high) for all features, or one such pair per feature.
    features : int
        Columns of X.

    Returns
    -------
    ndarray of shape (features, 2)
        Low and high ends.

    Raises
    ------
    ArgumentError
        Where it is not made of pairs with low < high, or there are more or fewer than features.
    """
    try:
        ranges = np.broadcast_to(np.asarray(declared, dtype=np.float64), (features, 2))
    except (TypeError, ValueError):
        ranges = np.zeros((1, 2))
    # narrower ones would have squares of 0
    if not (np.all(np.abs(ranges) < 1e100) and np.all(ranges[:, 1] - ranges[:, 0] > 1e-100)):
        raise ArgumentError("feature_range", declared, f"(low, high), or {features} such pairs, low < high", RANGES)
    return ranges.copy()


def centres(ranges: Floats, centred: bool = True) -> tuple[Floats, Floats]:
    """Middles and half-widths of ranges; not centred, those of the ranges about 0 that hold them.

    Parameters
    ----------
    ranges : ndarray of shape (features, 2)
        Low and high ends.
    centred : bool, default True
        False for a model without an intercept, which could not make up for the middles.

    Returns
    -------
    tuple of ndarray
        One of each per feature.
    """
    low, high = ranges.T
    return ((low + high) / 2, (high - low) / 2) if centred else (np.zeros(len(ranges)), np.abs(ranges).max(axis=1))


def scaled_columns(X: Any, ranges: Floats, centred: bool) -> Any:
    """Clip every column to its range and scale it to [-1, 1]; a map of each row alone.

    Parameters
    ----------
    X : ndarray or sparse array of shape (rows, features)
        Finite rows as they come.
    ranges : ndarray of shape (features, 2)
        The columns' ranges.
    centred : bool
        As in `centres`.

    Returns
    -------
    ndarray or sparse array
        Single precision where X is, else double.

    Raises
    ------
    ArgumentError
        For sparse rows whose zeros would not stay zeros.
    """
    middle, half = centres(ranges, centred)
    low, high = ranges.T
    if not issparse(X):
        scaled = np.clip(X, low, high)  # float64, whatever X is
        scaled -= middle
        scaled /= half
        return scaled.astype(np.float32) if X.dtype == np.float32 else scaled
    odd = np.flatnonzero((middle != 0) | (low > 0) | (high < 0))
    if len(odd):
        remedy = "Sparse rows need ranges whose middle is 0, such as (-5, 5), so that zeros stay zeros; or pass a dense array."
        column = int(odd[0])
        raise ArgumentError(f"feature_range[{column}]", tuple(ranges[column].tolist()), "(-high, high) for sparse rows", remedy)
    sparse = X.copy()
    sparse.sum_duplicates()
    columns = sparse.indices
    entries = np.clip(sparse.data, low[columns], high[columns]) / half[columns]
    sparse.data = entries.astype(np.float32) if X.dtype == np.float32 else entries
    return sparse


def sent_rows(X: Any, norm: float, constant: float) -> Any:
    """Scale rows down to a length of at most 1, the constant included.

    Parameters
    ----------
    X : ndarray or sparse array of shape (rows, features)
        Rows as they come.
    norm : float
        The length to which longer rows are scaled down first.
    constant : float
        The entry beside a row of length 1 whose weight is the intercept; 0 for none.

    Returns
    -------
    ndarray or sparse array
        With one column more where there is a constant.
    """
    length = math.hypot(1.0, constant)
    rows, scale = clip_rows(X, norm), 1 / (norm * length)
    rows = rows if scale == 1 else rows * scale
    return with_constant(rows, constant / length) if constant else rows


def coefficient_units(columns: int, norm: float, constant: float) -> Floats:
    """Say what to multiply weights of such rows by to have those of rows as they come, the intercept's last.

    Parameters
    ----------
    columns : int
        How many features have a weight.
    norm : float
        As in `sent_rows`.
    constant : float
        As in `sent_rows`.

    Returns
    -------
    ndarray
        One factor per weight.
    """
    length = math.hypot(1.0, constant)
    scale = np.full(columns, 1 / (norm * length))
    return np.append(scale, constant / length) if constant else scale
