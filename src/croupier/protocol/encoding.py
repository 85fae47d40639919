"""From a user's vector to integers: check, clip to the norm bound, scale to 0..g, round at random.

Privacy rests on one fact about this module: for any two inputs the real encodings are within g (1 + 1e-9) of each other in l2
norm and within g in every coordinate (docs/accounting.md, section 6). Clipping therefore leaves room for the error of the
computed norm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy import ArgumentError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def as_vectors(vectors: ArrayLike, dim: int, name: str = "vectors") -> NDArray[Any]:
    """`vectors` as a real array of shape (users, dim), values not yet looked at."""
    remedy = f"Pass an array with one row of {dim} numbers per user."
    array = as_numbers(vectors, name, remedy)
    if array.ndim != 2 or array.shape[1] != dim:
        raise ArgumentError(f"{name}.shape", array.shape, f"(users, {dim})", remedy)
    return array


def as_numbers(values: ArrayLike, name: str, remedy: str) -> NDArray[Any]:
    """`values` as an array of real numbers no wider than float64, of whatever shape."""
    if np.ma.isMaskedArray(values) or (isinstance(values, list | tuple) and any(np.ma.isMaskedArray(row) for row in values)):
        raise ArgumentError(name, "a masked array", "an array without a mask", "Impute or drop what is masked on the user's side.")
    try:
        array = np.asarray(values)
        if array.dtype == object:
            if any(isinstance(entry, str | bytes) for entry in array.ravel()):
                raise ArgumentError(name, "an array with text in it", "an array of numbers", remedy)
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(name, type(values).__name__, "an array of numbers", remedy) from None
    if array.dtype.kind not in "biuf":
        raise ArgumentError(f"{name}.dtype", str(array.dtype), "a real number type", remedy)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as such
            array = array.astype(np.float64)
    return array


def require_finite(vectors: NDArray[Any], rows: range, name: str = "vectors") -> None:
    """Refuse NaN and infinity, naming the first user that has one."""
    for start in rows:
        with np.errstate(all="ignore"):
            if np.isfinite(np.sum(vectors[start : start + rows.step])):
                continue  # a sum with NaN or infinity in it is not finite
        finite = np.isfinite(vectors[start : start + rows.step]).all(axis=1)
        if not finite.all():
            user = start + int(np.argmin(finite))
            bad = vectors[user][~np.isfinite(vectors[user])][0]
            raise ArgumentError(
                f"{name}[{user}]", float(bad), "finite", "Remove or impute missing values on the user's side; nothing was sent."
            )


def clip_to_ball(vectors: NDArray[Any], norm: float) -> Floats:
    """The vectors divided by `norm`, those outside the unit ball scaled back to just inside it.

    The true l2 norm of every row returned is at most 1, whatever the rounding: a computed norm is right to (d + 8) 2^-53. NaN and
    infinity are refused.
    """
    numbers = np.asarray(vectors, dtype=np.float64)
    limit = 1 - (numbers.shape[1] + 8) * 2.0**-53
    # Squares neither overflow nor vanish beside such a norm; NaN and infinity are not below anything.
    inside = np.einsum("ij,ij->i", numbers, numbers) <= (limit * norm) ** 2
    inside &= 1e-100 < norm < 1e100
    if inside.all():
        return np.ascontiguousarray(numbers if norm == 1 else numbers / norm)
    require_finite(numbers, range(0, len(numbers), max(1, len(numbers))))
    with np.errstate(over="ignore"):
        unit = np.ascontiguousarray(numbers / norm)
    unit[~inside] = _scaled_back(numbers[~inside], norm, limit)
    return unit


def _scaled_back(vectors: Floats, norm: float, limit: float) -> Floats:
    peak = np.max(np.abs(vectors), axis=1)
    unit: Floats = vectors / np.maximum(peak, norm)[:, np.newaxis]  # entries in [-1, 1], so squares cannot overflow
    length = np.sqrt(np.einsum("ij,ij->i", unit, unit))
    long = (length > limit) | (peak > norm)
    unit *= np.where(long, limit / np.maximum(length, limit), 1.0)[:, np.newaxis]
    return unit


def encode(unit: Floats, levels: int) -> Floats:
    """Real encodings a = (x + 1) g / 2, in [0, g] as x is in [-1, 1]."""
    scaled: Floats = unit + 1
    scaled *= levels / 2
    return scaled
