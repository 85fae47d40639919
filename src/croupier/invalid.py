"""Records that are not valid, as numbers: which they are, each by itself, and what stands in their place.

"refuse" stops before anybody is asked. Anyone who sees that learns that a record is not valid, so the guarantee needs the
premise that all are. "blank" lets such a record count as a public default, whatever it holds, and needs no premise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .validation import ArgumentError, Found, one_of

Invalid = Literal["refuse", "blank"]
INVALID: tuple[str, ...] = get_args(Invalid)
Mask = NDArray[np.bool_]


def blanks(invalid: Any) -> bool:
    """Tell whether invalid records count as blanks."""
    remedy = "'refuse' stops at an invalid record, before anybody is asked; 'blank' counts it as a public default."
    return one_of("invalid", invalid, INVALID, remedy) == "blank"


def numbers_or_nan(values: Any) -> Any:
    """Take numbers as they are; of anything else each value by itself as a float, NaN where it is none.

    A list is taken value by value, too: as an array of numpy's own choosing, one text in it would make texts of all numbers.
    A data frame's columns of dates or complex numbers are refused, since types are public: each of their rows would be blank.
    """
    if hasattr(values, "indptr"):
        return values
    for name, kind in getattr(values, "dtypes", {}).items() if hasattr(values, "iloc") and values.ndim == 2 else ():
        if getattr(kind, "kind", "O") in "mMc":
            raise ArgumentError(
                "X", Found(f"has a column {name!r} of type {kind}"), "a table of numbers", "Encode it, or leave it out."
            )
    array = one_by_one(values)
    if array.dtype.kind not in "OUS":
        return array
    numbers = np.array([_number(value) for value in array.ravel().tolist()], dtype=np.float64)
    return numbers.reshape(array.shape)


def one_by_one(values: Any) -> NDArray[Any]:
    """Make an array in which no value is another because of those beside it: lists are objects, and what is masked is None."""
    if np.ma.isMaskedArray(values):
        objects: NDArray[Any] = np.ma.getdata(values).astype(object)
        objects[np.ma.getmaskarray(values)] = None
        return objects
    return np.array(values, dtype=object) if isinstance(values, list | tuple) else np.asarray(values)


def _number(value: Any) -> float:
    if isinstance(value, np.complexfloating):  # numpy's would be taken by its real part, with a warning
        return float("nan")
    try:
        return float(value)
    except Exception:  # whatever an object raises that somebody put there: it is not a number
        return float("nan")


def known_place(places: dict[Any, int], label: Any) -> int:
    """Find where a label stands among known ones, by Python's equality."""
    try:
        return places.get(label, -1)
    except Exception:  # not hashable, though its type says so, or not to be compared
        return -1


def is_missing(value: Any) -> bool:
    """Tell whether a value says that there is none."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124  (NaN and NaT, alone, differ from themselves)
    except (TypeError, ArithmeticError):  # pandas.NA does not say whether it differs, nor does a signalling NaN
        return True


def name_of(label: Any) -> Any:
    """Take a label as something that can be compared and hashed."""
    try:
        hash(label)
        return label.decode() if isinstance(label, bytes) else label
    except Exception:  # no UTF-8, or an object that cannot be hashed
        return None


def finite_rows(X: Any) -> Mask:
    """Find which rows, or entries of a column, are finite throughout."""
    entries = X.data if hasattr(X, "indptr") else X
    with np.errstate(all="ignore"):
        if entries.dtype.kind not in "fc" or np.isfinite(np.sum(entries)):  # a sum with NaN or infinity in it is not finite
            return np.ones(X.shape[0], dtype=bool)
    finite = np.isfinite(entries)
    if hasattr(X, "indptr"):
        whole = np.ones(X.shape[0], dtype=bool)
        whole[np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~finite]] = False
        return whole
    return np.asarray(finite if X.ndim == 1 else finite.all(axis=1))


def zeroed(X: Any, kept: Mask) -> Any:
    """Put zeros where nothing is to be kept of a row."""
    if kept.all():
        return X
    copy = X.copy()
    if hasattr(X, "indptr"):
        copy.data[np.repeat(~kept, np.diff(X.indptr))] = 0
    else:
        copy[~kept] = 0
    return copy


def taken(takes: Callable[[slice], object], count: int) -> Mask:
    """Find which of some entries a function takes.

    By halves, so that few odd ones among many are found soon.
    """
    is_taken = np.zeros(count, dtype=bool)
    open_slices = [slice(0, count)] if count else []
    while open_slices:
        some = open_slices.pop()
        try:
            takes(some)
        except (ArgumentError, ValueError, TypeError):
            if some.stop - some.start > 1:
                middle = (some.start + some.stop) // 2
                open_slices += [slice(some.start, middle), slice(middle, some.stop)]
        else:
            is_taken[some] = True
    return is_taken
