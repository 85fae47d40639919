"""Ranges of targets: as declared, or as public data has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..invalid import is_missing, numbers_or_nan
from ..validation import ArgumentError, RecordError


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


def require_numbers(y: NDArray[Any]) -> None:
    """Refuse texts that are no numbers, as what they are: as numbers, they would be missing ones.

    Parameters
    ----------
    y : ndarray
        Targets as they come; texts of numbers are numbers.

    Raises
    ------
    RecordError
        Where one is no number.
    """
    if y.dtype.kind not in "OUS":
        return
    texts, numbers = y.ravel().tolist(), np.ravel(numbers_or_nan(y))
    for text, number in zip(texts, numbers.tolist(), strict=True):
        if number != number and not is_missing(text):  # noqa: PLR0124  (NaN)
            remedy = "A regressor needs numbers; for classes there is ShuffleLogisticRegression. Nobody was asked."
            raise RecordError("y", text, "a number in every entry", remedy)


def range_of(y: NDArray[Any]) -> list[tuple[float, float]]:
    """Smallest and largest of every target; a constant one gets some width."""
    columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    return [
        (float(low), float(max(high, low + 1e-9 * max(1.0, abs(low)))))
        for low, high in zip(columns.min(0), columns.max(0), strict=True)
    ]
