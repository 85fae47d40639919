"""A first schema from a public sample: ranges rounded outwards, levels that occur. For a person to read and correct."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import compute

from ..validation import ArgumentError
from .read import Source
from .schema import Category, Column, Label, Numeric, Schema, Target

# A text with more levels than this is a name or a note rather than a category; a whole number with more is not a class.
_MOST_LEVELS = 100
_MOST_CLASSES = 20


@dataclass
class _Seen:
    """What a sample shows of one column."""

    kind: Any
    low: float = math.inf
    high: float = -math.inf
    missing: bool = False
    values: set[Any] = field(default_factory=set)

    @property
    def number(self) -> bool:
        return bool(pa.types.is_integer(self.kind) or pa.types.is_floating(self.kind) or pa.types.is_decimal(self.kind))

    @property
    def whole(self) -> bool:
        return bool(pa.types.is_integer(self.kind))

    def add(self, column: Any) -> None:
        self.missing = self.missing or column.null_count > 0
        if self.number:
            numbers = column.cast(pa.float64(), safe=False)
            ends = compute.min_max(compute.filter(numbers, compute.is_finite(numbers)))
            if ends["min"].is_valid:
                self.low, self.high = min(self.low, ends["min"].as_py()), max(self.high, ends["max"].as_py())
        if len(self.values) <= _MOST_LEVELS and not pa.types.is_floating(self.kind):
            self.values.update(compute.unique(column.drop_null()).to_pylist())


def draft(source: Source, target: str, user: str | None = None) -> tuple[Schema, dict[str, str], list[str]]:
    """A schema for tables like this public sample, remarks on its columns, and what was left out and why.

    What it states is what the sample shows, so it is public only if the sample is.
    """
    source.require([target] if user is None else [target, user])
    seen = _look(source)
    left_out: list[str] = []
    columns: dict[str, Column] = {}
    notes: dict[str, str] = {}
    for name in [name for name in seen if name not in (target, user)]:
        found = _column(seen[name])
        if isinstance(found, str):
            left_out.append(f"{name}: {found}")
            continue
        columns[name] = found
        if isinstance(found, Numeric):
            notes[name] = f"{seen[name].low:g} to {seen[name].high:g} in the sample"
    return Schema(columns, _target(target, seen[target]), user).checked("DATA"), notes, left_out


def _look(source: Source) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    rows = 0
    for piece in source.pieces(None):
        rows += len(piece)
        for name, stored in zip(piece.batch.schema.names, piece.batch.columns, strict=True):
            column = stored.dictionary_decode() if pa.types.is_dictionary(stored.type) else stored
            seen.setdefault(name, _Seen(column.type)).add(column)
    if not rows:
        raise ArgumentError("DATA", f"no rows in {source.path}", "a sample of at least two rows", "Check the file.")
    return seen


def _column(seen: _Seen) -> Column | str:
    """The facts about a feature, or why it is not one."""
    if seen.number:
        if not seen.low < seen.high:
            return "the same in all rows of the sample, or missing"
        return Numeric(*_outwards(seen.low, seen.high), missing=seen.missing)
    if not (pa.types.is_string(seen.kind) or pa.types.is_large_string(seen.kind) or pa.types.is_boolean(seen.kind)):
        return f"of type {seen.kind}, which is neither a number nor a category"
    levels = _levels(seen)
    if len(levels) > _MOST_LEVELS:
        return f"more than {_MOST_LEVELS} different texts"
    return Category(levels) if len(levels) > 1 else "the same in all rows of the sample, or missing"


def _target(name: str, seen: _Seen) -> Target:
    if seen.number and not (seen.whole and len(seen.values) <= _MOST_CLASSES):
        if not seen.low < seen.high:
            raise ArgumentError(f"column {name!r}", "one value only", "a target that differs between rows", "Use a larger sample.")
        return Target(name, range=_outwards(seen.low, seen.high))
    classes: tuple[Label, ...] = tuple(sorted(seen.values)) if seen.whole or pa.types.is_boolean(seen.kind) else _levels(seen)
    if not 2 <= len(classes) <= _MOST_LEVELS:
        allowed = f"a target with between 2 and {_MOST_LEVELS} classes, or a number"
        remedy = "Use a larger sample, or another column as --target."
        raise ArgumentError(f"column {name!r}", f"{len(classes)} different values", allowed, remedy)
    return Target(name, classes=classes)


def _levels(seen: _Seen) -> tuple[str, ...]:
    texts = {("true" if v else "false") if isinstance(v, bool) else str(v).strip() for v in seen.values}
    return tuple(sorted(texts - {""}))


def _outwards(low: float, high: float) -> tuple[float, float]:
    """The range rounded outwards to two digits of its width: a round figure, and none of somebody's."""
    unit = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    digits = max(0, -round(math.log10(unit)))
    return round(math.floor(low / unit) * unit, digits), round(math.ceil(high / unit) * unit, digits)
