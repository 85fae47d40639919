"""A first schema from a public sample: ranges without outliers, levels that occur. For a person to read and correct."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from ..validation import FileError
from ._pictures import picture_shapes
from ._read import Source, other_separator, shown
from .schema import Category, Column, Image, Label, Numeric, Schema, Target, outwards

# What a public sample shows of a column of numbers: a range that outliers do not stretch, whether they spread over orders of
# magnitude, whether they only number the rows.

Floats = NDArray[np.float64]
# Numbers of a column that are kept for its quantiles; of a longer one, every second, fourth, ... is.
QUANTILE_SAMPLE_SIZE = 1 << 17
# The quantiles that bound a range, and how far beyond them, in parts of their distance, an extreme may lie to be the bound itself.
_TAIL = 0.01
_NEAR = 0.5
# Positive numbers whose 95 % quantile is this many times their 5 % quantile spread over orders of magnitude.
_ORDERS = 100.0
# Fewer rows than this say nothing about whether they are numbered.
_FEW_ROWS = 10
_ID_NAME = re.compile(r"(^|[^A-Za-z])(id|key|index|row|uuid|nr|no)$|^unnamed\b|^$", flags=re.IGNORECASE)
_CAMEL_ID = re.compile(r"[a-z](Id|ID|Key|Index)$")


@dataclass
class Numbers:
    """Figures of a column of numbers, gathered batch by batch."""

    low: float = math.inf
    high: float = -math.inf
    rows: int = 0
    _missing: bool = False
    _whole: bool = True
    _counts_up: bool = True
    _step: int = 1
    _kept: list[Floats] = field(default_factory=list)

    def add(self, values: Floats) -> None:
        """Take in the next values; NaN is missing."""
        finite = values[np.isfinite(values)]
        self._missing = self._missing or len(finite) < len(values)
        if len(finite):
            self._counts_up = self._counts_up and self._goes_on(values)
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))
            self._whole = self._whole and bool(np.all(finite == np.floor(finite)))
        self.rows += len(values)
        self._kept.append(finite[:: self._step])
        while sum(map(len, self._kept)) > 2 * QUANTILE_SAMPLE_SIZE:
            self._kept, self._step = [np.concatenate(self._kept)[::2]], 2 * self._step

    def _goes_on(self, values: Floats) -> bool:
        first = self.low if self.rows else values[0]
        return bool(np.array_equal(values, first + self.rows + np.arange(len(values))))

    def numbering(self, name: str) -> str | None:
        """Why a column of this name only numbers the rows; None if it does not."""
        if self.rows < _FEW_ROWS or self._missing or not self._whole:
            return None
        if self._counts_up and self.low in (0, 1):
            return f"row numbers, {self.low:.0f} to {self.high:.0f}"
        sample = np.concatenate(self._kept)
        if len(np.unique(sample)) < len(sample):
            return None
        if self._step == 1 and self.high - self.low == self.rows - 1 and self.low in (0, 1):
            return f"every number from {self.low:.0f} to {self.high:.0f} once: shuffled row numbers"
        if _ID_NAME.search(name.strip()) or _CAMEL_ID.search(name):
            return "a different number in every row, and named like an id"
        return None

    def range(self) -> tuple[float, float, str]:
        """A range that few values lie outside of, rounded outwards, and the scale that suits them: "linear" or "log"."""
        sample = np.sort(np.concatenate(self._kept))
        if self._spreads(sample):
            low, high = _bounds(np.log1p(sample - self.low), math.log1p(self.high - self.low))
            ends = self.low + math.expm1(low), self.low + math.expm1(high)
            return *outwards(max(self.low, ends[0]), min(self.high, ends[1])), "log"
        low, high = _bounds(sample - self.low, self.high - self.low)
        return *outwards(self.low + low, self.low + high), "linear"

    def _spreads(self, sample: Floats) -> bool:
        """Whether numbers are positive and spread over orders of magnitude, above the unit that the log scale has."""
        positive = sample[sample > 0]
        if self.low < 0 or self.high - self.low < _ORDERS or len(positive) < _FEW_ROWS:
            return False
        ends = np.quantile(positive, [0.05, 0.95])
        return bool(ends[1] >= _ORDERS * ends[0])

    @property
    def note(self) -> str:
        """The extremes, in words."""
        return f"{self.low:g} to {self.high:g} in the sample"


def _bounds(ranked: Floats, most: float) -> tuple[float, float]:
    """The ends of a range for ranked numbers between 0 and `most`: quantiles, or extremes that are near them."""
    low, high = (float(end) for end in np.quantile(ranked, [_TAIL, 1 - _TAIL]))
    if not low < high:  # nearly all are the same
        return 0.0, most
    room = _NEAR * (high - low)
    return 0.0 if low <= room else low, most if most - high <= room else high


def decimal_comma(texts: Any) -> bool:
    """Whether texts are numbers with a decimal comma, all of them."""
    some = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
    return (
        bool(some)
        and all(re.fullmatch(r"[+-]?\d*([.\s]\d{3})*,\d+|[+-]?\d+", text) for text in some)
        and any("," in text for text in some)
    )


# A text with more levels than this is a name or a note rather than a category; a whole number with more is not a class.
_MOST_LEVELS = 100
_MOST_CLASSES = 20


@dataclass
class _Seen:
    """What a sample shows of one column."""

    kind: Any
    missing: bool = False
    numbers: Numbers = field(default_factory=Numbers)
    values: set[Any] = field(default_factory=set)  # of pictures, their shapes

    @property
    def nested(self) -> bool:
        """Whether values are lists, structs or bytes: pictures, it may be."""
        return bool(pa.types.is_nested(self.kind) or pa.types.is_binary(self.kind) or pa.types.is_large_binary(self.kind))

    @property
    def number(self) -> bool:
        return bool(pa.types.is_integer(self.kind) or pa.types.is_floating(self.kind) or pa.types.is_decimal(self.kind))

    @property
    def whole(self) -> bool:
        return bool(pa.types.is_integer(self.kind))

    def add(self, column: Any) -> None:
        self.missing = self.missing or column.null_count > 0
        if self.nested:
            self.values.update(picture_shapes(column))
            return
        if self.number:
            values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            self.numbers.add(np.asarray(values, dtype=np.float64))
        if len(self.values) <= _MOST_LEVELS and not pa.types.is_floating(self.kind):
            self.values.update(compute.unique(column.drop_null()).to_pylist())


def draft(source: Source, target: str, user: str | None = None) -> tuple[Schema, dict[str, str], list[str]]:
    """A schema for tables like this public sample.

    What it states is what the sample shows, so it is public only if the sample is. Ranges of numbers are quantiles (1 % and 99 %)
    where the extremes lie far beyond them, rounded outwards. Numbers that are positive and spread over orders of magnitude get
    `scale = "log"`. Rows stay as they are for a numeric target. Columns that number the rows are left out, as are names and
    columns that are the same in all rows.

    Parameters
    ----------
    source : Source
        The sample.
    target : str
        The column to predict.
    user : str, optional
        The column that identifies the person each row belongs to.

    Returns
    -------
    schema : Schema
        The facts.
    notes : dict of str
        For each column of numbers, the target among them, the extremes in the sample; for a target of few whole numbers, which is
        treated as classes, how to predict a number instead.
    left_out : list of str
        Columns that are not features, each with the reason.

    Raises
    ------
    FileError
        If a column is missing, or the target is none.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from croupier.table._read import Source
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
    elif seen[target].number and len(seen[target].values) > 2:
        notes[target] = _score_note(seen[target].numbers, len(seen[target].values))
    if not columns:
        other = other_separator(source.names, source.dialect, source.files[0])
        remedy = f"Add --sep {shown(other)}." if other else "; ".join(left_out) or "It has no other column."
        raise FileError(
            str(source.path), "no column to learn from", "a sample with at least one feature besides the target", remedy
        )
    facts = Schema(columns, chosen_target, user, chosen_target.usual_rows)
    return facts.checked(str(source.path)), notes, left_out


def _note(numbers: Numbers, low: float, high: float) -> str:
    """The extremes, and what becomes of them where they lie outside of the range."""
    beyond = numbers.low < low or high < numbers.high
    return numbers.note + ("; the range leaves out the most extreme values, which are clipped to it" if beyond else "")


def _score_note(numbers: Numbers, values: int) -> str:
    """That a target of few whole numbers was taken for classes, and how to have it as a number."""
    return (
        f"{values} whole numbers, treated as classes, which have no order. If they are a score or a count, predict a number:\n"
        f'put range = [{numbers.low:.0f}, {numbers.high:.0f}] instead of classes, and rows = "as-is"'
    )


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
            return f"{numbering}. They say nothing about a person"
        low, high, scale = seen.numbers.range()
        return Numeric(low, high, seen.missing, scale)
    if seen.nested and len(seen.values) == 1 and None not in seen.values:
        return Image(next(iter(seen.values)))
    if seen.nested:
        return "neither numbers nor texts; if these are pictures, state their shape = [height, width]"
    if not (pa.types.is_string(seen.kind) or pa.types.is_large_string(seen.kind) or pa.types.is_boolean(seen.kind)):
        return f"of type {seen.kind}, which is neither a number nor a category"
    if decimal_comma(seen.values):
        return "numbers that seem to have a decimal comma: add --decimal ,"
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
        raise FileError(place, "numbers that seem to have a decimal comma", "numbers with a decimal point", "Add --decimal ,.")
    classes: tuple[Label, ...] = tuple(sorted(seen.values)) if seen.whole or pa.types.is_boolean(seen.kind) else _levels(seen)
    if not 2 <= len(classes) <= _MOST_LEVELS:
        allowed = f"a target with between 2 and {_MOST_LEVELS} classes, or a number"
        remedy = "Use a larger sample, or another column as --target."
        raise FileError(place, f"{len(classes)} different values", allowed, remedy)
    return Target(name, classes=classes)


def _levels(seen: _Seen) -> tuple[str, ...]:
    texts = {("true" if v else "false") if isinstance(v, bool) else str(v).strip() for v in seen.values}
    return tuple(sorted(texts - {""}))
