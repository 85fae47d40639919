"""A first schema from a public sample: ranges without outliers, levels that occur. For a person to read and correct."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from ..validation import FileError
from .broken import other_separator
from .columns import Category, Column, Label, Numeric
from .dialect import shown
from .numbers import Numbers, decimal_comma
from .read import Source
from .schema import Schema, Target

# A text with more levels than this is a name or a note rather than a category; a whole number with more is not a class.
_MOST_LEVELS = 100
_MOST_CLASSES = 20


@dataclass
class _Seen:
    """What a sample shows of one column."""

    kind: Any
    missing: bool = False
    numbers: Numbers = field(default_factory=Numbers)
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
            values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            self.numbers.add(np.asarray(values, dtype=np.float64))
        if len(self.values) <= _MOST_LEVELS and not pa.types.is_floating(self.kind):
            self.values.update(compute.unique(column.drop_null()).to_pylist())


def draft(source: Source, target: str, user: str | None = None) -> tuple[Schema, dict[str, str], list[str]]:
    """A schema for tables like this public sample.

    What it states is what the sample shows, so it is public only if the sample is. Ranges of numbers are quantiles (1 % and 99 %)
    where the extremes lie far beyond them, rounded outwards. Numbers that are positive and spread over orders of magnitude get
    `scale = "log"`. Columns that number the rows are left out, as are names and columns that are the same in all rows.

    Parameters
    ----------
    source : Source
        The sample.
    target : str
        The column to predict.
    user : str, optional
        The column that says whose a row is.

    Returns
    -------
    schema : Schema
        The facts.
    notes : dict of str
        For each column of numbers, the target among them, the extremes in the sample.
    left_out : list of str
        Columns that are no features, each with the reason.

    Raises
    ------
    FileError
        Where a column is missing, or the target is none.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from croupier.table import Source
    >>> sample = Path(tempfile.mkdtemp(), "sample.csv")
    >>> written = sample.write_text("age,ill\\n" + "30.5,no\\n70.5,yes\\n" * 50)
    >>> schema, notes, left_out = draft(Source(sample), "ill")
    >>> list(schema.columns), schema.target.classes
    (['age'], ('no', 'yes'))
    """
    source.require([target] if user is None else [target, user])
    seen = _look(source)
    left_out: list[str] = []
    columns: dict[str, Column] = {}
    notes: dict[str, str] = {}
    for name in [name for name in seen if name not in (target, user)]:
        column = _column(name, seen[name])
        if isinstance(column, str):
            left_out.append(f"{name}: {column}")
            continue
        columns[name] = column
        if isinstance(column, Numeric):
            notes[name] = _note(seen[name].numbers, column.low, column.high)
    chosen_target = _target(source, target, seen[target])
    if chosen_target.range is not None:
        notes[target] = _note(seen[target].numbers, *chosen_target.range)
    if not columns:
        other = other_separator(source.names, source.dialect, source.files[0])
        remedy = f"Add --sep {shown(other)}." if other else "; ".join(left_out) or "It has no other column."
        raise FileError(str(source.path), "no column to learn from", "a sample with at least one feature beside the target", remedy)
    return Schema(columns, chosen_target, user).checked(str(source.path)), notes, left_out


def _note(numbers: Numbers, low: float, high: float) -> str:
    """The extremes, and what becomes of them where they lie outside of the range."""
    beyond = numbers.low < low or high < numbers.high
    return numbers.note + ("; the range leaves out the outermost, which are clipped to it" if beyond else "")


def _look(source: Source) -> dict[str, _Seen]:
    seen: dict[str, _Seen] = {}
    rows = 0
    for piece in source.pieces(None):
        rows += len(piece)
        for name, stored in zip(piece.batch.schema.names, piece.batch.columns, strict=True):
            column = stored.dictionary_decode() if pa.types.is_dictionary(stored.type) else stored
            seen.setdefault(name, _Seen(column.type)).add(column)
    if not rows:
        raise FileError(str(source.path), "no rows", "a sample of at least two rows", "Check the file.")
    return seen


def _column(name: str, seen: _Seen) -> Column | str:
    """The facts about a feature, or why it is not one."""
    if seen.number:
        if not seen.numbers.low < seen.numbers.high:
            return "the same in all rows of the sample, or missing"
        numbering = seen.numbers.numbering(name)
        if numbering is not None:
            return f"{numbering}. They say nothing of a person"
        low, high, scale = seen.numbers.range()
        return Numeric(low, high, seen.missing, scale)
    if not (pa.types.is_string(seen.kind) or pa.types.is_large_string(seen.kind) or pa.types.is_boolean(seen.kind)):
        return f"of type {seen.kind}, which is neither a number nor a category"
    if decimal_comma(seen.values):
        return "numbers with a decimal comma, it seems: add --decimal ,"
    levels = _levels(seen)
    if len(levels) > _MOST_LEVELS:
        return f"more than {_MOST_LEVELS} different texts"
    return Category(levels) if len(levels) > 1 else "the same in all rows of the sample, or missing"


def _target(source: Source, name: str, seen: _Seen) -> Target:
    place = f"{source.path}, column {name!r}"
    if seen.number and not (seen.whole and len(seen.values) <= _MOST_CLASSES):
        if not seen.numbers.low < seen.numbers.high:
            raise FileError(place, "one value only", "a target that differs between rows", "Use a larger sample.")
        low, high, _ = seen.numbers.range()
        return Target(name, range=(low, high))
    if decimal_comma(seen.values):
        raise FileError(place, "numbers with a decimal comma, it seems", "numbers with a decimal point", "Add --decimal ,.")
    classes: tuple[Label, ...] = tuple(sorted(seen.values)) if seen.whole or pa.types.is_boolean(seen.kind) else _levels(seen)
    if not 2 <= len(classes) <= _MOST_LEVELS:
        allowed = f"a target with between 2 and {_MOST_LEVELS} classes, or a number"
        remedy = "Use a larger sample, or another column as --target."
        raise FileError(place, f"{len(classes)} different values", allowed, remedy)
    return Target(name, classes=classes)


def _levels(seen: _Seen) -> tuple[str, ...]:
    texts = {("true" if v else "false") if isinstance(v, bool) else str(v).strip() for v in seen.values}
    return tuple(sorted(texts - {""}))
