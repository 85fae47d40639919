"""What is guessed of a table before anybody is asked: a TOML file like a schema, but ranges may be far too wide, or left out."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ..statistics.columns import WIDEST, LevelGuess, NumberGuess
from ..validation import ArgumentError, FileError, Found
from .read import Source, other_separator, shown
from .schema import Keys, Label, as_text

Guess = NumberGuess | LevelGuess
# What is said of columns of which nothing was.
_UNSAID = f"numbers from {-WIDEST:g} to {WIDEST:g}, because nothing was declared about them"
_COST = "Each takes a part of the budget: use --range or --levels, or --leave-out if it is text."
# Of longer lists of levels this many are shown.
_FEW = 6
_REMEDY = "Write what you can justify without having seen the data; docs/statistics.md has an example."


@dataclass(frozen=True)
class TableGuess:
    """Guesses for the columns of a table, and which of them is to be predicted.

    Parameters
    ----------
    columns : mapping of str to NumberGuess or LevelGuess
        By name, the target among them.
    target : str, optional
        The column to predict, for a schema.
    classes : tuple, optional
        All labels of the target, where it is one of several classes.
    user : str, optional
        The column that identifies the person each row belongs to.
    left_out : tuple of str
        Columns that are not described, each with the reason.
    undeclared : tuple of str
        Columns of a CSV file that are taken for numbers since nothing at all was said of them.
    """

    columns: Mapping[str, Guess]
    target: str | None = None
    classes: tuple[Label, ...] | None = None
    user: str | None = None
    left_out: tuple[str, ...] = field(default=())
    undeclared: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableGuess:
        """Read the guesses in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "not text in UTF-8"
            raise ArgumentError("--guess", str(path), f"a TOML file that can be read ({reason})", _REMEDY) from None
        return cls.from_toml(text, str(path))

    @classmethod
    def from_toml(cls, text: str, name: str = "guess") -> TableGuess:
        """Read the guesses that a TOML text states."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise ArgumentError(name, Found(f"is not TOML ({problem})"), "TOML", _REMEDY) from None
        return cls.from_dict(values, name)

    @classmethod
    def from_dict(cls, values: Any, name: str = "guess") -> TableGuess:
        """Read the guesses that a dictionary of plain values states."""
        keys = Keys(name, values)
        user, target, columns = keys.get("user", None), keys.get("target", None), keys.get("columns", {})
        keys.nothing_else()
        found = {column: _guess(f"{name}: columns.{column}", facts) for column, facts in Keys(name, columns).items()}
        if target is None:
            return cls(found, user=user).checked(name)
        column, classes, guess = _target(f"{name}: target", target)
        if column in found:
            raise ArgumentError(f"{name}: target", column, "a column that is not listed twice", f"Delete [columns.{column}].")
        return cls(found | {column: guess}, column, classes, user).checked(name)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the guesses of all columns, the target among them, in their order and in plain values."""
        return [
            {"name": name, "levels": list(guess.levels)}
            if isinstance(guess, LevelGuess)
            else {
                "name": name,
                "low": guess.low,
                "high": guess.high,
                "whole": guess.whole,
                "bins": guess.bins,
                "edges": guess.edges.tolist(),
            }
            for name, guess in self.columns.items()
        ]

    def lines(self) -> list[str]:
        """Say what every column is taken for; to be read before anything is spent on it."""
        unsaid, ranges, levels = [], [], []
        for name, guess in self.columns.items():
            if isinstance(guess, LevelGuess):
                more = f", ... ({len(guess.levels)} levels)" if len(guess.levels) > _FEW else ""
                levels.append(f"{name} ({', '.join(guess.levels[:_FEW])}{more})")
            elif guess.says_nothing:
                unsaid.append(name)
            else:
                kind, low, high = "whole, " if guess.whole else "", guess.low, guess.high
                ranges.append(f"{name} ({kind}{low:.10g} to {high:.10g})")
        return [
            *([f"Numbers: {', '.join(ranges)}."] if ranges else []),
            *([f"Levels: {', '.join(levels)}."] if levels else []),
            *([f"Treated as {_UNSAID}: {', '.join(unsaid)}. {_COST}"] if unsaid else []),
        ]

    def checked(self, name: str = "guess") -> TableGuess:
        """Check that there is a column, and that none has two roles."""
        if self.user is not None and (not isinstance(self.user, str) or self.user in self.columns):
            raise ArgumentError(
                f"{name}: user", self.user, "a column that is not described", "The owner of a row cannot be a feature."
            )
        if not self.columns:
            raise ArgumentError(f"{name}: columns", Found("is empty"), "at least one column", _REMEDY)
        return self


def guess_for(
    source: Source,
    guess: TableGuess | None = None,
    *,
    target: str | None = None,
    user: str | None = None,
    ranges: Mapping[str, str] | None = None,
    levels: Mapping[str, str] | None = None,
    whole: Iterable[str] = (),
    leave_out: Iterable[str] = (),
) -> TableGuess:
    """Complete guesses by options and, where there are none for a table, by its header.

    The names of columns are treated as public, and for Parquet their types. A column of CSV of which nothing is said is taken for a
    number of any size.
    """
    ranges, levels, whole, leave_out = ranges or {}, levels or {}, tuple(whole), tuple(leave_out)
    user = user or (guess.user if guess else None)
    source.require([*ranges, *levels, *whole, *leave_out, *filter(None, [target, user])])
    if guess is None and not {*ranges, *levels, *whole} & set(source.names):
        _require_separated(source)
    columns: dict[str, Guess] = dict(guess.columns) if guess else {}
    left_out: list[str] = []
    undeclared: list[str] = []
    for name, kind in {} if guess else _types(source).items():
        if name not in (user, *leave_out):
            by_type = _by_type(kind)
            undeclared += [name] if kind is None and name not in (*ranges, *levels, *whole) else []
            if by_type is not None:
                columns[name] = by_type
            elif name not in (*ranges, *levels, *whole):
                left_out.append(f"{name}: of type {kind}, without listed levels (--levels)")
    columns |= {name: _range(name, text, columns.get(name)) for name, text in ranges.items()}
    columns |= {name: LevelGuess(tuple(part.strip() for part in text.split(","))) for name, text in levels.items()}
    for name in whole:
        columns[name] = _whole(name, columns.get(name, NumberGuess()))
    for other in (*leave_out, user or ""):
        columns.pop(other, None)
    column = target or (guess.target if guess else None)
    if column is not None and column not in columns:
        columns[column] = NumberGuess()
    known = columns.get(column or "")
    classes = guess.classes if guess and column == guess.target else None
    if classes is None and isinstance(known, LevelGuess):
        classes = known.levels
    return TableGuess(columns, column, classes, user, tuple(left_out), tuple(undeclared)).checked()


def _require_separated(source: Source) -> None:
    """Refuse a CSV file whose header was read as one name: all of epsilon would be spent on a column that there is not."""
    other = other_separator(source.names, source.dialect, source.files[0])
    if other is not None and source.row_groups(source.files[0]) is None:
        remedy = f"Its values seem to be separated by {shown(other)}: add --sep {shown(other)}. Nobody was asked."
        text = f"{source.files[0]} is read as one column, {source.names[0]!r}. {remedy}"
        raise FileError(str(source.files[0]), "one column", "separated values", remedy, text)


def _types(source: Source) -> dict[str, Any]:
    """The columns, with their types where the file states them: Parquet does, CSV does not."""
    if source.row_groups(source.files[0]) is None:
        return dict.fromkeys(source.names)
    stored = parquet.read_schema(source.files[0])
    return dict(zip(stored.names, stored.types, strict=True))


def _by_type(kind: Any) -> Guess | None:
    if kind is None or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NumberGuess()
    if pa.types.is_integer(kind):
        return NumberGuess(whole=True)
    return LevelGuess(("false", "true")) if pa.types.is_boolean(kind) else None


def _range(name: str, text: str, known: Guess | None) -> NumberGuess:
    found = re.fullmatch(r"\s*(\S+?)\s*\.\.\s*(\S+)\s*", text)
    try:
        low, high = (float(end) for end in found.groups()) if found else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    if not low < high:
        raise ArgumentError(f"--range {name}", text, "LOW..HIGH, such as 0..200", _REMEDY)
    return NumberGuess(low, high, whole=isinstance(known, NumberGuess) and known.whole)


def _whole(name: str, known: Guess) -> NumberGuess:
    if isinstance(known, LevelGuess):
        raise ArgumentError("--whole", name, "a column of numbers", "It has levels.")
    return replace(known, whole=True)


def _guess(name: str, values: Any) -> Guess:
    keys = Keys(name, values)
    levels = keys.get("levels", None)
    if levels is not None:
        keys.nothing_else()
        if not isinstance(levels, list) or not all(isinstance(level, str | int) for level in levels):
            raise ArgumentError(f"{name}.levels", levels, "a list of levels", _REMEDY)
        return LevelGuess(tuple(as_text(level) for level in levels))
    low, high, edges = keys.get("low", NumberGuess.low), keys.get("high", NumberGuess.high), keys.get("edges", None)
    if edges is not None and not isinstance(edges, list):
        raise ArgumentError(f"{name}.edges", edges, "a list of numbers", _REMEDY)
    stated = None if edges is None else tuple(edges)
    guess = NumberGuess(low, high, keys.get("whole", False), keys.get("bins", NumberGuess.bins), stated)
    keys.nothing_else()
    return guess


def _target(name: str, values: Any) -> tuple[str, tuple[Label, ...] | None, Guess]:
    keys = Keys(name, values)
    column, classes, ends = keys.need("column"), keys.get("classes", None), keys.get("range", None)
    whole = keys.get("whole", False)
    keys.nothing_else()
    if classes is not None:
        guess = _guess(name, {"levels": classes})
        return column, tuple(classes), guess
    if ends is not None and (not isinstance(ends, list) or len(ends) != 2):
        raise ArgumentError(f"{name}.range", ends, "[low, high]", _REMEDY)
    low, high = ends or (NumberGuess.low, NumberGuess.high)
    return column, None, NumberGuess(low, high, whole)
