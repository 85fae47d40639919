"""From a record to a row of numbers, by public facts and that record alone."""

from __future__ import annotations

import hashlib
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ..validation import ArgumentError
from .read import Piece
from .schema import Category, Numeric, Schema, as_text

Floats = NDArray[np.float64]
# float32 is right to 6e-8 of every entry: rows divided by this much more than their length are at most 1 long once rounded.
_ROOM = 1 + 1e-7


class Encoder:
    """Rows of numbers from records of a table with this schema.

    `names` are the features, `norm` is the length that no row exceeds: 1, or the root of the number of columns where rows are left
    as they are, since no column adds more than 1.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.names = tuple(name for column in schema.columns for name in _features(schema, column))
        self.norm = 1.0 if schema.rows == "unit" else math.sqrt(len(schema.columns))

    def types(self, *, target: bool = False, user: bool = False) -> dict[str, Any]:
        """The columns to read, as the Arrow types that CSV is to be read as."""
        schema = self.schema
        types = {name: _arrow_type(isinstance(column, Numeric)) for name, column in schema.columns.items()}
        if target:
            types[schema.target.column] = _arrow_type(schema.target.range is not None)
        if user and schema.user is not None:
            types[schema.user] = _arrow_type(False)
        return types

    def rows(self, piece: Piece) -> NDArray[np.float32]:
        """One row per record, at most `norm` long."""
        rows = np.zeros((len(piece), len(self.names)))
        place = 0
        for name, column in self.schema.columns.items():
            width = len(_features(self.schema, name))
            part = rows[:, place : place + width]
            place += width
            if isinstance(column, Category):
                _one_hot(piece, name, column, part)
            else:
                _scaled(piece, name, column, part)
        if self.schema.rows == "unit":
            lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
            rows /= np.where(lengths > 0, lengths, 1.0)[:, np.newaxis] * _ROOM
        return rows.astype(np.float32)

    def targets(self, piece: Piece) -> NDArray[Any]:
        """The target of every record: a declared class, or a finite number. Missing ones are refused."""
        target = self.schema.target
        if target.classes is None:
            return self._numbers(piece)
        levels = [as_text(label) for label in target.classes]
        codes = _codes(piece, target.column, levels)
        if (codes < 0).any():
            index = int(np.argmin(codes))
            raise ArgumentError(
                f"{piece.where(index)}, column {target.column!r}",
                _cell(piece, target.column, index),
                f"one of the declared classes: {', '.join(map(repr, levels[:20]))}{', ...' if len(levels) > 20 else ''}",
                "Declare it in the schema if everybody may know that it occurs, or drop the row; nobody was asked.",
            )
        return np.asarray(target.classes)[codes]

    def users(self, piece: Piece) -> NDArray[np.uint64] | None:
        """A number for whoever a record belongs to; None where every record is a person."""
        name = self.schema.user
        if name is None:
            return None
        texts = _texts(piece, name)
        missing = np.asarray(compute.fill_null(compute.equal(texts, ""), True).to_numpy(zero_copy_only=False))
        if missing.any():
            raise ArgumentError(
                f"{piece.where(int(np.argmax(missing)))}, column {name!r}",
                "missing",
                "the name of a user",
                "Drop rows whose user is not known; nobody was asked.",
            )
        coded = texts.dictionary_encode()
        numbers = np.array([_number(text) for text in coded.dictionary.to_pylist()], dtype=np.uint64)
        return np.asarray(numbers[np.asarray(coded.indices)])

    def _numbers(self, piece: Piece) -> Floats:
        name = self.schema.target.column
        numbers = _floats(piece, name)
        finite = np.isfinite(numbers)
        if not finite.all():
            index = int(np.argmin(finite))
            value = "missing" if np.isnan(numbers[index]) else float(numbers[index])
            raise ArgumentError(
                f"{piece.where(index)}, column {name!r}", value, "a finite number", "Drop rows without a target; nobody was asked."
            )
        return numbers


def _features(schema: Schema, name: str) -> tuple[str, ...]:
    column = schema.columns[name]
    if isinstance(column, Category):
        return tuple(f"{name}={level}" for level in column.levels)
    return (name, f"{name} missing") if column.missing else (name,)


def _arrow_type(number: bool) -> Any:
    return pa.float64() if number else pa.string()


def _scaled(piece: Piece, name: str, column: Numeric, out: Floats) -> None:
    """Into out[:, 0] the number on [-1, 1], the middle where it is missing; into out[:, 1], if asked for, whether it is."""
    numbers = _floats(piece, name)
    missing = np.isnan(numbers)
    inside = np.clip(numbers, column.low, column.high)
    if column.scale == "log":
        share = np.log1p(inside - column.low) / math.log1p(column.high - column.low)
    else:
        share = (inside - column.low) / (column.high - column.low)
    out[:, 0] = np.where(missing, 0.0, np.clip(2 * share - 1, -1, 1))
    if column.missing:
        out[:, 1] = missing


def _one_hot(piece: Piece, name: str, column: Category, out: Floats) -> None:
    codes = _codes(piece, name, column.levels)
    known = np.flatnonzero(codes >= 0)
    if column.unknown == "refuse" and len(known) < len(codes):
        index = int(np.argmin(codes))
        raise ArgumentError(
            f"{piece.where(index)}, column {name!r}",
            _cell(piece, name, index),
            "one of the declared levels",
            'Declare it if everybody may know that it occurs, or say unknown = "zero" in the schema; nobody was asked.',
        )
    out[known, codes[known]] = 1.0


def _codes(piece: Piece, name: str, levels: Any) -> NDArray[np.int64]:
    """Which level each record has, -1 for none of them."""
    texts = _texts(piece, name)
    if {level.lower() for level in levels} == {"true", "false"}:  # Parquet says true, pandas writes True
        texts, levels = compute.utf8_lower(texts), [level.lower() for level in levels]
    found = compute.index_in(texts, value_set=pa.array(list(levels), pa.string()), skip_nulls=True)
    return np.asarray(found.fill_null(-1)).astype(np.int64)


def _texts(piece: Piece, name: str) -> Any:
    """A column as text, without spaces around it; whole numbers without a fraction, whichever type they are stored as.

    Each value by itself, so that a user has one name whatever else is in the piece; NaN is missing.
    """
    column = piece.column(name)
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        coded = column.dictionary_encode()
        named = pa.array([_number_text(value) for value in coded.dictionary.to_pylist()], pa.string())
        return named.take(coded.indices)
    try:
        return compute.utf8_trim_whitespace(column.cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _wrong_type(piece, name, column, "text, whole numbers or true/false") from None


def _floats(piece: Piece, name: str) -> Floats:
    """A column as numbers, NaN where there is none."""
    column = piece.column(name)
    try:
        if pa.types.is_temporal(column.type):
            raise pa.ArrowInvalid("time")
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        numbers = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _wrong_type(piece, name, column, "a number") from None
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def _wrong_type(piece: Piece, name: str, column: Any, allowed: str) -> ArgumentError:
    remedy = "Convert it, or leave it out of the schema; nobody was asked."
    return ArgumentError(f"{piece.file}, column {name!r}", f"of type {column.type}", allowed, remedy)


def _cell(piece: Piece, name: str, index: int) -> Any:
    value = piece.column(name)[index].as_py()
    return "missing" if value is None or value == "" else value


def _number(text: str) -> int:
    """A name as 64 bits. Two that share them would be taken for one user, which harms nobody's privacy."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _number_text(value: float | Decimal | None) -> str | None:
    if value is None or value != value:  # noqa: PLR0124  (NaN, alone, differs from itself)
        return None
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
