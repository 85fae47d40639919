"""The public facts about a table: ranges, levels, the target, whose a row is. Written down in TOML, never read off private data."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..validation import ArgumentError, FileError, one_of, real

VERSION = 1
ROWS = ("unit", "as-is")
UNKNOWN = ("zero", "refuse")
Label = str | int | bool
# Beyond this a number has no float32 beside it that is told apart; also keeps high - low finite.
_LIMIT = 1e30
_PUBLIC = "State what everybody may know without having seen the data."


@dataclass(frozen=True)
class Numeric:
    """A number between `low` and `high`: mapped to [-1, 1], clipped there. Missing is the middle.

    With `missing`, one more feature is 1 where the number is missing. With scale "log", equal ratios of (value - low + 1) are equal
    steps, for amounts and counts that spread over orders of magnitude.
    """

    low: float
    high: float
    missing: bool = False
    scale: str = "linear"


@dataclass(frozen=True)
class Category:
    """One of the declared levels, as text. Anything else counts as none of them, or is refused."""

    levels: tuple[str, ...]
    unknown: str = "zero"


Column = Numeric | Category


@dataclass(frozen=True)
class Target:
    """What is to be predicted: one of `classes`, or a number that is clipped to `range`."""

    column: str
    classes: tuple[Label, ...] | None = None
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Schema:
    """Everything that is taken as public about a table. `columns` are the features, in this order; other columns are not read.

    `user` names the column that says whose a row is; without it every row is a person. `rows` is "unit" (every row is divided by
    its own length) or "as-is".

    >>> schema = Schema.from_toml('''
    ... target = {column = "ill", classes = ["no", "yes"]}
    ... columns = {age = {low = 0, high = 100}, sex = {levels = ["f", "m"]}}
    ... ''')
    >>> schema.columns["age"], Schema.from_toml(schema.to_toml()) == schema
    (Numeric(low=0.0, high=100.0, missing=False, scale='linear'), True)
    """

    columns: Mapping[str, Column]
    target: Target
    user: str | None = None
    rows: str = "unit"

    def with_user(self, user: str | None) -> Schema:
        """The same with another user column."""
        return self if user is None else replace(self, user=user).checked()

    def checked(self, name: str = "schema") -> Schema:
        """Itself, or an error where names are not texts or a column has two roles."""
        return _checked(self, name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """The schema in a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "not text in UTF-8"
            remedy = "Draft one from a public sample: croupier schema SAMPLE --target COLUMN -o FILE."
            raise ArgumentError("--schema", str(path), f"a TOML file that can be read ({reason})", remedy) from None
        return cls.from_toml(text, name=str(path))

    @classmethod
    def from_toml(cls, text: str, name: str = "schema") -> Schema:
        """The schema that a TOML text states; what it does not know is refused by name."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise ArgumentError(name, str(problem), "TOML", "See docs/files.md for an example.") from None
        return cls.from_dict(values, name)

    @classmethod
    def from_dict(cls, values: Any, name: str = "schema") -> Schema:
        """The schema that a dictionary of plain values states, as `to_dict` gives it."""
        found = _Keys(name, values)
        version = found.get("version", VERSION)
        if version != VERSION:
            remedy = "It was written for another version of croupier: use that one, or rewrite it (docs/files.md)."
            raise ArgumentError(f"{name}: version", version, str(VERSION), remedy)
        columns = found.get("columns", {})
        schema = cls(
            columns={column: _column(f"{name}: columns.{column}", facts) for column, facts in _Keys(name, columns).items()},
            target=_target(f"{name}: target", found.need("target")),
            user=found.get("user", None),
            rows=one_of(f"{name}: rows", found.get("rows", "unit"), ROWS, "'unit' divides every row by its own length."),
        )
        found.nothing_else()
        return _checked(schema, name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for TOML and JSON; what is as usual is left out."""
        target: dict[str, Any] = {"column": self.target.column}
        if self.target.classes is not None:
            target["classes"] = list(self.target.classes)
        if self.target.range is not None:
            target["range"] = list(self.target.range)
        plain: dict[str, Any] = {"version": VERSION, "rows": self.rows}
        plain |= {"user": self.user} if self.user is not None else {}
        return plain | {"target": target, "columns": {name: _facts(column) for name, column in self.columns.items()}}

    def to_toml(self, notes: Mapping[str, str] | None = None) -> str:
        """The schema as TOML; `notes` are comments to be put before the facts of a column or the target, by its name."""
        notes = notes or {}
        plain = self.to_dict()
        tables = {"target": plain.pop("target")}
        tables |= {f"columns.{_key(name)}": facts for name, facts in plain.pop("columns").items()}
        comments = {("target" if name == self.target.column else f"columns.{_key(name)}"): note for name, note in notes.items()}
        lines = [f"{name} = {_value(value)}" for name, value in plain.items()]
        for name, facts in tables.items():
            lines += ["", *(f"# {line}" for line in comments.get(name, "").splitlines()), f"[{name}]"]
            lines += [f"{fact} = {_value(value)}" for fact, value in facts.items()]
        return "\n".join(lines) + "\n"


class _Keys:
    """A table of a TOML file, whose keys are taken out one by one."""

    def __init__(self, name: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise ArgumentError(name, values, "a table of keys and values", "See docs/files.md for an example.")
        self._name, self._left, self._known = name, dict(values), list[str]()

    def get(self, key: str, default: Any) -> Any:
        self._known.append(key)
        return self._left.pop(key, default)

    def need(self, key: str) -> Any:
        if key not in self._left:
            self._refuse_misspelt([key])
            text = f"{self._name}: the key {key!r} is missing. {_PUBLIC}"
            raise FileError(self._name, f"no key {key!r}", "given", _PUBLIC, text)
        return self.get(key, None)

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._left.items()

    def nothing_else(self) -> None:
        if self._left:
            self._refuse_misspelt(self._known)
            odd = next(iter(self._left))
            known = f"Known here are {', '.join(self._known)}."
            raise FileError(self._name, f"unknown key {odd!r}", "left out", known, f"{self._name}: unknown key {odd!r}. {known}")

    def _refuse_misspelt(self, known: list[str]) -> None:
        """Refuse a key that is nearly one of these."""
        for odd in self._left:
            close = difflib.get_close_matches(odd.lower(), known, n=1, cutoff=0.7)
            if close:
                likely = f"did you mean {close[0]!r}?"
                raise FileError(
                    self._name, f"unknown key {odd!r}", "a known one", likely, f"{self._name}: unknown key {odd!r}; {likely}"
                )


def _column(name: str, values: Any) -> Column:
    found = _Keys(name, values)
    column: Column
    if "levels" in values:
        levels = _labels(f"{name}.levels", found.need("levels"), at_least=1)
        unknown = one_of(f"{name}.unknown", found.get("unknown", "zero"), UNKNOWN, "'zero' counts it as none of the levels.")
        column = Category(tuple(as_text(level) for level in levels), unknown)
    elif "low" in values or "high" in values:
        low, high = _range(name, [found.need("low"), found.need("high")])
        scale = one_of(f"{name}.scale", found.get("scale", "linear"), ("linear", "log"), "'log' is for amounts and counts.")
        column = Numeric(low, high, _flag(f"{name}.missing", found.get("missing", False)), scale)
    else:
        for key in ("low", "high", "levels"):
            found.get(key, None)
        found.nothing_else()
        raise ArgumentError(name, values, "low and high of a number, or levels of a category", _PUBLIC)
    found.nothing_else()
    return column


def _target(name: str, values: Any) -> Target:
    found = _Keys(name, values)
    column, classes, ends = found.need("column"), found.get("classes", None), found.get("range", None)
    found.nothing_else()
    if (classes is None) == (ends is None):
        remedy = "Classes are all labels that may occur; a range is [low, high], and targets outside are clipped to it."
        raise ArgumentError(name, values, "a column with either classes or a range", remedy)
    if classes is not None:
        return Target(column, classes=_labels(f"{name}.classes", classes, at_least=2))
    return Target(column, range=_range(f"{name}.range", ends))


def _labels(name: str, values: Any, at_least: int) -> tuple[Label, ...]:
    """Texts, whole numbers or truth values: all of one kind, each once."""
    kinds = {type(value) for value in values} if isinstance(values, list | tuple) else set()
    if len(kinds) != 1 or not kinds <= {str, int, bool} or len(values) < at_least:
        allowed = f"a list of at least {at_least}, all texts, all whole numbers or all true/false"
        raise ArgumentError(name, values, allowed, _PUBLIC)
    text, times = Counter(as_text(value).strip() for value in values).most_common(1)[0]
    if times > 1:
        raise ArgumentError(
            name, f"{text!r} {times} times", "a list in which everything is there once", "Spaces around do not count."
        )
    return tuple(value.strip() if isinstance(value, str) else value for value in values)


def _range(name: str, ends: Any) -> tuple[float, float]:
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise ArgumentError(name, ends, "[low, high]", _PUBLIC)
    low, high = (real(name, end, above=-_LIMIT, below=_LIMIT, remedy=_PUBLIC) for end in ends)
    if not (low < high and math.isfinite(2 / (high - low))):
        remedy = "A column that is the same for everybody says nothing: leave it out."
        raise ArgumentError(name, f"low = {low:g}, high = {high:g}", "low < high", remedy)
    return low, high


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(name, value, "true or false", "true adds a feature that says where the number is missing.")
    return value


def _checked(schema: Schema, name: str = "schema") -> Schema:
    """Names that are texts, and columns with one role each."""
    roles = {"target.column": schema.target.column} | ({} if schema.user is None else {"user": schema.user})
    for role, column in roles.items():
        if not isinstance(column, str) or not column:
            raise ArgumentError(f"{name}: {role}", column, "the name of a column", "Write it as it stands in the file.")
        if column in schema.columns:
            raise ArgumentError(f"{name}: {role}", column, "a column that is not a feature", f"Delete [columns.{_key(column)}].")
    if schema.user == schema.target.column:
        raise ArgumentError(f"{name}: user", schema.user, "another column than the target", "A row's owner is not its target.")
    if not schema.columns:
        raise ArgumentError(f"{name}: columns", "none", "at least one feature", _PUBLIC)
    return schema


def as_text(value: Label) -> str:
    """A label as it stands in a file."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _facts(column: Column) -> dict[str, Any]:
    if isinstance(column, Category):
        return {"levels": list(column.levels)} | ({} if column.unknown == "zero" else {"unknown": column.unknown})
    facts: dict[str, Any] = {"low": column.low, "high": column.high}
    facts |= {"missing": True} if column.missing else {}
    return facts | ({} if column.scale == "linear" else {"scale": column.scale})


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return _text(value) if isinstance(value, str) else repr(value)
