"""Rows as regressions with intervals send them: at most 1 long, with the intercept's constant, and what that does to units."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem.rows import clip_rows, with_constant

Floats = NDArray[np.float64]


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
