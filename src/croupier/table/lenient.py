"""Columns of text of which any value may be anything: as text or as numbers, each value by itself, and nothing is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ..invalid import taken
from .read import NULLS


def decoded(column: Any) -> Any:
    """A column of bytes or text as text, null where it is not UTF-8; other columns as they are."""
    kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return column
    stored = column.cast(pa.binary())
    valid = taken(lambda some: stored[some].cast(pa.string()), len(stored))
    return _kept(stored, valid).cast(pa.string())


def numbers(column: Any, decimal: str = ".") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers from bytes or text as CSV's are read, NaN where there is none; and where there is a number, or nothing.

    `decimal` is the mark before fractions. Where it is a comma, a text with a point is no number, as in Arrow.
    """
    texts = decoded(column)
    undecoded = np.asarray(compute.and_(compute.is_null(texts), compute.is_valid(column)))
    texts = compute.if_else(compute.is_in(texts, value_set=pa.array(NULLS)), None, texts)
    texts = compute.ascii_trim(texts, " \t")  # as Arrow does where it reads CSV
    if decimal != ".":
        texts = compute.if_else(compute.match_substring(texts, "."), "?", compute.replace_substring(texts, decimal, "."))
    valid = taken(lambda some: texts[some].cast(pa.float64()), len(texts))
    found = _kept(texts, valid).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype=np.float64), valid & ~undecoded


def _kept(column: Any, valid: NDArray[np.bool_]) -> Any:
    return column if valid.all() else compute.if_else(pa.array(valid), column, None)
