"""Ranges of targets: as declared, or as public data has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError


def checked_ranges(declared: Any, remedy: str) -> tuple[tuple[float, float], ...]:
    """Return one pair per target, or refuse what is none.

    Parameters
    ----------
    declared : array-like
        (low, high), or one such pair per target.
    remedy : str
        What to do where it is refused.

    Returns
    -------
    tuple of pairs of float
        Low and high ends.

    Raises
    ------
    ArgumentError
        Where it is not made of pairs with low < high.
    """
    try:
        ranges = np.atleast_2d(np.asarray(declared, dtype=np.float64))
    except (TypeError, ValueError):
        ranges = np.zeros((1, 0))
    pairs = ranges.ndim == 2 and ranges.shape[1] == 2
    if not pairs or not (np.abs(ranges) < 1e100).all() or not (ranges[:, 0] < ranges[:, 1]).all():
        raise ArgumentError("target_range", declared, "(low, high) with low < high, or one such pair per target", remedy)
    return tuple((float(low), float(high)) for low, high in ranges)


def range_of(y: NDArray[Any]) -> list[tuple[float, float]]:
    """Smallest and largest of every target; a constant one gets some width."""
    columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    return [
        (float(low), float(max(high, low + 1e-9 * max(1.0, abs(low)))))
        for low, high in zip(columns.min(0), columns.max(0), strict=True)
    ]
