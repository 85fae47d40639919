"""From a record to a row of numbers, by public facts and that record alone."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ..arithmetic import row_squares
from ..features import FeatureMap
from ..statistics._holdout import name_number
from ..validation import MISSING, ArgumentError, FileError, FileRecordError, blanks
from ._pictures import column_pixels
from ._read import Piece, decoded, is_text, numbers
from .schema import Category, Described, Image, Numeric, Schema, as_text, features_of

Floats = NDArray[np.float64]
# float32 is right to 6e-8 of every entry: rows divided by this much more than their length are at most 1 long once rounded.
_ROOM = 1 + 1e-7
# What stands for the type of a column of pictures, which may be lists or bytes.
_PIXELS = pa.list_(pa.float64())


class Encoder:
    """Rows of numbers from records of a table with this schema.

    `names` are the features, `norm` is the length that no row exceeds: 1, or the root of the number of entries that can be 1
    together where rows are left as they are: one per column, and every pixel of a picture. `entries` counts the numbers of a record
    before the schema's map, if it has one.

    With `invalid` = "blank" nothing in a record is refused: where a number cannot be read, or a level is not declared that must be
    (`unknown = "refuse"`), the row is NaN throughout; a target that is none is NaN, or None among classes. The caller is
    to count them as blank (`LinearModel.records`). The types of columns are public: a column of dates is refused all the same.
    """

    def __init__(self, schema: Schema, invalid: str = "refuse") -> None:
        self.schema, self._blank = schema, blanks(invalid)
        names = tuple(name for column in schema.columns for name in features_of(column, schema.columns[column]))
        self.entries, self._map = len(names), None if schema.features is None else FeatureMap.from_dict(schema.features)
        if self._map is not None and schema.features is not None:
            last = schema.features["steps"][-1]["kind"]
            names = tuple(f"{last}[{place}]" for place in range(self._map.outputs(len(names))))
        self.names = names
        most = sum(math.prod(column.shape) if isinstance(column, Image) else 1 for column in schema.columns.values())
        self.norm = 1.0 if schema.rows == "unit" else math.sqrt(most)

    def types(self, *, target: bool = False, user: bool = False) -> dict[str, Any]:
        """The columns to read."""
        schema = self.schema
        if self._blank:  # each value is read by itself, so that none of them makes a file unreadable
            names = [*schema.columns, *([schema.target.column] if target else []), *([schema.user] if user and schema.user else [])]
            return {name: _PIXELS if isinstance(schema.columns.get(name), Image) else pa.binary() for name in names}
        types = {name: _arrow_type(column) for name, column in schema.columns.items()}
        if target:
            types[schema.target.column] = pa.string() if schema.target.range is None else pa.float64()
        if user and schema.user is not None:
            types[schema.user] = pa.string()
        return types

    def rows(self, piece: Piece) -> NDArray[np.float32]:
        """One row per record, at most `norm` long."""
        rows, valid = np.zeros((len(piece), self.entries)), np.ones(len(piece), dtype=bool)
        place = 0
        for name, column in self.schema.columns.items():
            width = len(features_of(name, column))
            part = rows[:, place : place + width]
            place += width
            if isinstance(column, Category):
                valid &= _one_hot(piece, name, column, part, self._blank)
            elif isinstance(column, Image):
                valid &= _pixels(piece, name, column, part, self._blank)
            else:
                valid &= _scaled(piece, name, column, part, self._blank)
        if self._map is not None:  # its rows have length 1, and room for rounding
            rows = np.asarray(self._map.transform(rows)) if len(rows) else np.zeros((0, len(self.names)))
        elif self.schema.rows == "unit":
            lengths = np.sqrt(row_squares(rows))
            rows /= np.where(lengths > 0, lengths, 1.0)[:, np.newaxis] * _ROOM
        if self._blank:
            rows[~valid] = np.nan
        return rows.astype(np.float32)

    def targets(self, piece: Piece) -> NDArray[Any]:
        """The target of every record: a declared class, or a finite number."""
        target = self.schema.target
        if target.classes is None:
            return self._numbers(piece)
        levels = [as_text(label) for label in target.classes]
        codes = level_codes(piece, target.column, levels, self._blank)
        if self._blank:
            return np.array([*target.classes, None], dtype=object)[codes]
        if (codes < 0).any():
            index = int(np.argmin(codes))
            raise FileRecordError(
                f"{piece.where(index)}, column {target.column!r}",
                _cell(piece, target.column, index),
                f"one of the declared classes: {', '.join(map(repr, levels[:20]))}{', ...' if len(levels) > 20 else ''}",
                "Drop the row, fit with --invalid blank, or declare the class if it is public that it occurs; nobody was asked.",
                public=f"{piece.file}, column {target.column!r}",
            )
        return np.asarray(target.classes)[codes]

    def users(self, piece: Piece) -> NDArray[np.uint64] | None:
        """A number for the owner of each record."""
        name = self.schema.user
        if name is None:
            return None
        texts = column_texts(piece, name, self._blank)
        missing = is_nobody(texts)
        if missing.any():
            raise FileRecordError(
                f"{piece.where(int(np.argmax(missing)))}, column {name!r}",
                MISSING,
                "the name of a user",
                "Drop rows whose user is unknown; nobody was asked.",
                public=f"{piece.file}, column {name!r}",
            )
        coded = texts.dictionary_encode()
        numbers = np.array([name_number(text) for text in coded.dictionary.to_pylist()], dtype=np.uint64)
        return np.asarray(numbers[np.asarray(coded.indices)])

    def owned(self, piece: Piece) -> Piece:
        """The records that say whose they are, where there may be blanks: a row that is nobody's is left out."""
        if not self._blank or self.schema.user is None:
            return piece
        missing = is_nobody(column_texts(piece, self.schema.user, self._blank))
        return piece.only(~missing)

    def _numbers(self, piece: Piece) -> Floats:
        name = self.schema.target.column
        targets, _ = column_numbers(piece, name, self._blank)
        finite = np.isfinite(targets)
        if self._blank:
            return np.where(finite, targets, np.nan)
        if not finite.all():
            index = int(np.argmin(finite))
            value = MISSING if np.isnan(targets[index]) else float(targets[index])
            where, remedy = f"column {name!r}", "Drop the row, or fit with --invalid blank; nobody was asked."
            public = f"{piece.file}, {where}"
            raise FileRecordError(f"{piece.where(index)}, {where}", value, "a finite number", remedy, public)
        return targets


def _arrow_type(column: Numeric | Category | Image) -> Any:
    if isinstance(column, Image):
        return _PIXELS
    return pa.float64() if isinstance(column, Numeric) else pa.string()


def _scaled(piece: Piece, name: str, column: Numeric, out: Floats, blank: bool) -> NDArray[np.bool_]:
    """Into out[:, 0] the number on [-1, 1], the middle where it is missing; into out[:, 1], if asked for, whether it is.

    Returns where there is a number or nothing.
    """
    values, valid = column_numbers(piece, name, blank)
    missing = np.isnan(values)
    inside = np.clip(values, column.low, column.high)
    if column.scale == "log":
        share = np.log1p(inside - column.low) / math.log1p(column.high - column.low)
    else:
        share = (inside - column.low) / (column.high - column.low)
    out[:, 0] = np.where(missing, 0.0, np.clip(2 * share - 1, -1, 1))
    if column.missing:
        out[:, 1] = missing
    return valid


def _one_hot(piece: Piece, name: str, column: Category, out: Floats, blank: bool) -> NDArray[np.bool_]:
    """A 1 where a record's level is; returns where there is one, or none is needed."""
    codes = level_codes(piece, name, column.levels, blank)
    known = np.flatnonzero(codes >= 0)
    refused = column.unknown == "refuse" and len(known) < len(codes)
    if refused and not blank:
        index = int(np.argmin(codes))
        raise FileRecordError(
            f"{piece.where(index)}, column {name!r}",
            _cell(piece, name, index),
            "one of the declared levels",
            'Declare it if it is public that it occurs, or set unknown = "zero" in the schema; nobody was asked.',
            public=f"{piece.file}, column {name!r}",
        )
    if column.reference is not None:  # it has no feature; those of levels after it stand one place earlier
        place = column.levels.index(column.reference)
        known = known[codes[known] != place]
        out[known, codes[known] - (codes[known] > place)] = 1.0
    else:
        out[known, codes[known]] = 1.0
    return codes >= 0 if refused else np.ones(len(codes), dtype=bool)


def _pixels(piece: Piece, name: str, column: Image, out: Floats, blank: bool) -> NDArray[np.bool_]:
    """The pixels of pictures, on [0, 1]; returns where there is a picture or nothing."""
    found = column_pixels(piece.column(name), column.shape)
    if found is None:
        allowed = "lists of numbers, or the bytes of PNG files"
        raise _wrong_type(piece, name, piece.column(name), allowed)
    pixels, missing, valid = found
    if not blank and not valid.all():
        index, (height, width) = int(np.argmin(valid)), column.shape
        raise FileRecordError(
            f"{piece.where(index)}, column {name!r}",
            "a picture",
            f"{height} x {width} finite numbers, or a PNG file of that size: 8 bits, not interlaced, no palette",
            "Convert it, or drop the row; nobody was asked.",
            public=f"{piece.file}, column {name!r}",
        )
    out[:] = np.clip((pixels - column.low) / (column.high - column.low), 0, 1)
    out[missing] = 0.0
    return valid


def level_codes(piece: Piece, name: str, levels: Any, blank: bool) -> NDArray[np.int64]:
    """Which level each record has, -1 for none of them."""
    texts = column_texts(piece, name, blank)
    if {level.lower() for level in levels} == {"true", "false"}:  # Parquet says true, pandas writes True
        texts, levels = compute.utf8_lower(texts), [level.lower() for level in levels]
    places = compute.index_in(texts, value_set=pa.array(list(levels), pa.string()), skip_nulls=True)
    return np.asarray(places.fill_null(-1)).astype(np.int64)


def column_texts(piece: Piece, name: str, blank: bool) -> Any:
    """A column as text, without spaces around it; whole numbers without a fraction, whichever type they are stored as.

    Each value by itself, so that a user has one name whatever else is in the piece; NaN is missing. So is what is not text in
    UTF-8, where there may be blanks.
    """
    column = decoded(piece.column(name)) if blank else piece.column(name)
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        coded = column.dictionary_encode()
        named = pa.array([_number_text(value) for value in coded.dictionary.to_pylist()], pa.string())
        return named.take(coded.indices)
    try:
        return compute.utf8_trim_whitespace(column.cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _wrong_type(piece, name, column, "text, whole numbers or true/false") from None


def is_nobody(texts: Any) -> NDArray[np.bool_]:
    return np.asarray(compute.fill_null(compute.equal(texts, ""), True).to_numpy(zero_copy_only=False))


def column_numbers(piece: Piece, name: str, blank: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """A column as numbers, NaN where there is none; and where there is a number, or nothing."""
    column = piece.column(name)
    if blank and is_text(column.type):
        return numbers(column, piece.decimal)
    try:
        if pa.types.is_temporal(column.type):
            raise pa.ArrowInvalid("time")
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        values = column.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _wrong_type(piece, name, column, "a number") from None
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64), np.ones(len(column), dtype=bool)


def _wrong_type(piece: Piece, name: str, column: Any, allowed: str) -> ArgumentError:
    remedy = "Convert it, or leave it out of the schema; nobody was asked."
    return FileError(f"{piece.file}, column {name!r}", f"of type {column.type}", allowed, remedy)


def _cell(piece: Piece, name: str, index: int) -> Any:
    value = piece.column(name)[index].as_py()
    return MISSING if value is None or value == "" else value


def _number_text(value: float | Decimal | None) -> str | None:
    if value is None or value != value:  # noqa: PLR0124  (NaN, alone, differs from itself)
        return None
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)


# The people who were not set aside for a schema: those whom a fit may ask.

Mask = NDArray[np.bool_]


def not_aside_by_place(described: Described | None, first: int, count: int) -> Mask:
    """Which of some rows belong to people who were not set aside by their places; all of them where nobody was."""
    if described is None or described.aside is None or described.rows is None:
        return np.ones(count, dtype=bool)
    return ~described.aside.places(first, count)


def not_aside_by_name(described: Described, users: Any) -> Mask:
    """Which of some rows belong to people who were not set aside by their names; all of them where nobody was."""
    if described.aside is None or described.rows is not None:
        return np.ones(len(users), dtype=bool)
    return ~described.aside.names(users)


def others(piece: Piece, described: Described | None, first: int) -> Piece:
    """The records of a piece, whose first has this place, without those set aside by their places."""
    return piece.only(not_aside_by_place(described, first, len(piece)))
