"""Columns of text of which any value may be anything: as text or as numbers, each value by itself, and nothing is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ..invalid import taken
from .read import NULLS


def is_text(kind: Any) -> bool:
    """Whether columns of this type hold text or bytes, also where a dictionary lists them (pandas calls that a category)."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    kinds = pa.types
    tests = (
        kinds.is_binary,
        kinds.is_large_binary,
        kinds.is_binary_view,
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_string_view,
    )
    return any(test(kind) for test in tests)


def decoded(column: Any) -> Any:
    """A column of bytes or text as text, null where it is not UTF-8; other columns as they are."""
    if not is_text(column.type):
        return column
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    stored = values.cast(pa.binary())
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
    floats = _kept(texts, valid).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(floats, dtype=np.float64), valid & ~undecoded


def _kept(column: Any, valid: NDArray[np.bool_]) -> Any:
    return column if valid.all() else compute.if_else(pa.array(valid), column, None)
