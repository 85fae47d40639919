"""The public facts about a table: ranges, levels, target, whom each row belongs to. In TOML, never read off private data."""

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

from ..features import FeatureMap
from ..privacy._statements import round_up
from ..statistics._holdout import HoldOut, Part
from ..validation import ArgumentError, FileError, Found, one_of, real, unreadable, whole

__all__ = [
    "Category",
    "Column",
    "Image",
    "Label",
    "Numeric",
    "Schema",
    "Target",
    "as_text",
]


# TOML for schemas: keys that are taken out one by one, so that unknown ones are refused by name, and values as text.

PUBLIC = "State only what is public, without having seen the data."


class Keys:
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
            text = f"{self._name}: the key {key!r} is missing. {PUBLIC}"
            raise FileError(self._name, f"no key {key!r}", "given", PUBLIC, text)
        return self.get(key, None)

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._left.items()

    def nothing_else(self) -> None:
        if self._left:
            self._refuse_misspelt(self._known)
            odd = next(iter(self._left))
            known = f"Allowed keys: {', '.join(self._known)}."
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


def key_text(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def value_text(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(value_text(entry) for entry in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key_text(name)} = {value_text(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return _text(value) if isinstance(value, str) else repr(value)


# The public facts about one column: the range of a number, the levels of a category.

UNKNOWN = ("zero", "refuse")
Label = str | int | bool
# Beyond this a number has no float32 beside it that is told apart; also keeps high - low finite.
_LIMIT = 1e30


@dataclass(frozen=True)
class Numeric:
    """A number between `low` and `high`: mapped to [-1, 1], clipped there. Missing is the middle.

    `low`, `high`: The range. `missing`: Whether one more feature is 1 where the number is missing. `scale`: With "log" equal ratios
    of (value - low + 1) are equal steps, for amounts and counts that spread over orders of magnitude.

    Examples
    --------
    >>> Numeric(0, 100)
    Numeric(low=0, high=100, missing=False, scale='linear')
    """

    low: float
    high: float
    missing: bool = False
    scale: str = "linear"


def outwards(low: float, high: float) -> tuple[float, float]:
    """The range rounded outwards to two digits of its width: a round figure, not one person's value."""
    unit = 10.0 ** (math.floor(math.log10(high - low)) - 1)
    digits = max(0, -round(math.log10(unit)))
    return round(math.floor(low / unit) * unit, digits), round(math.ceil(high / unit) * unit, digits)


@dataclass(frozen=True)
class Category:
    """One of the declared levels, as text.

    `levels`: All that count. `unknown`: Whether anything else counts as none of them, or is refused. `reference`: A level that gets
    no feature of its own: the others are counted against it. For regressions with intervals.

    Examples
    --------
    >>> Category(("f", "m"))
    Category(levels=('f', 'm'), unknown='zero', reference=None)
    """

    levels: tuple[str, ...]
    unknown: str = "zero"
    reference: str | None = None


@dataclass(frozen=True)
class Image:
    """A grey picture: a list of its pixels line by line, or a PNG file. Pixels are mapped to [0, 1], clipped there; none is black.

    `shape`: Height and width, in pixels. `low`, `high`: The values of black and of white.

    Examples
    --------
    >>> Image((28, 28))
    Image(shape=(28, 28), low=0.0, high=255.0)
    """

    shape: tuple[int, int]
    low: float = 0.0
    high: float = 255.0


Column = Numeric | Category | Image


def column_from(name: str, values: Any) -> Column:
    """Read the public facts about a column."""
    keys = Keys(name, values)
    column: Column
    if "levels" in values:
        levels = labels_from(f"{name}.levels", keys.need("levels"), at_least=1)
        unknown = one_of(f"{name}.unknown", keys.get("unknown", "zero"), UNKNOWN, "'zero' counts it as none of the levels.")
        column = _category(name, tuple(as_text(level) for level in levels), unknown, keys.get("reference", None))
    elif "shape" in values:
        column = Image(
            _shape(f"{name}.shape", keys.need("shape")), *range_from(name, [keys.get("low", 0.0), keys.get("high", 255.0)])
        )
    elif "low" in values or "high" in values:
        low, high = range_from(name, [keys.need("low"), keys.need("high")])
        scale = one_of(f"{name}.scale", keys.get("scale", "linear"), ("linear", "log"), "'log' is for amounts and counts.")
        column = Numeric(low, high, _flag(f"{name}.missing", keys.get("missing", False)), scale)
    else:
        for key in ("low", "high", "levels", "shape"):
            keys.get(key, None)
        keys.nothing_else()
        raise ArgumentError(name, values, "low and high of a number, levels of a category, or the shape of a picture", PUBLIC)
    keys.nothing_else()
    return column


def _category(name: str, levels: tuple[str, ...], unknown: str, reference: Any) -> Category:
    """With a reference that is one of several levels, or none."""
    if reference is not None:
        reference = as_text(reference).strip()
        if reference not in levels or len(levels) < 2:
            remedy = "The other levels are compared with it: name one of at least two levels."
            raise ArgumentError(f"{name}.reference", reference, f"one of the levels {', '.join(levels[:20])}", remedy)
    return Category(levels, unknown, reference)


def labels_from(name: str, values: Any, at_least: int) -> tuple[Label, ...]:
    """Texts, whole numbers or truth values: all of one kind, each once."""
    kinds = {type(value) for value in values} if isinstance(values, list | tuple) else set()
    if len(kinds) != 1 or not kinds <= {str, int, bool} or len(values) < at_least:
        allowed = f"a list of at least {at_least}, all texts, all whole numbers or all true/false"
        raise ArgumentError(name, values, allowed, PUBLIC)
    text, times = Counter(as_text(value).strip() for value in values).most_common(1)[0]
    if times > 1:
        raise ArgumentError(
            name, Found(f"has {text!r} {times} times"), "a list without duplicates", "Surrounding spaces do not count."
        )
    return tuple(value.strip() if isinstance(value, str) else value for value in values)


def range_from(name: str, ends: Any) -> tuple[float, float]:
    """Read [low, high] with low < high."""
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise ArgumentError(name, ends, "[low, high]", PUBLIC)
    low, high = (real(name, end, above=-_LIMIT, below=_LIMIT, remedy=PUBLIC) for end in ends)
    if not (low < high and math.isfinite(2 / (high - low))):
        remedy = "Correct the range; leave out a column that is the same for everybody."
        raise ArgumentError(name, Found(f"has low = {low:g}, high = {high:g}"), "low < high", remedy)
    return low, high


def _shape(name: str, sides: Any) -> tuple[int, int]:
    """Read [height, width]."""
    if not isinstance(sides, list | tuple) or len(sides) != 2:
        raise ArgumentError(name, sides, "[height, width]", PUBLIC)
    height, width = (whole(name, side, at_least=1, at_most=1024, remedy="Give pixels.") for side in sides)
    return height, width


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(name, value, "true or false", "true adds a feature that says whether the number is missing.")
    return value


def as_text(value: Label) -> str:
    """A label as it stands in a file."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def column_facts(column: Column) -> dict[str, Any]:
    """Return the facts in plain values; what is as usual is left out."""
    if isinstance(column, Image):
        usual = (column.low, column.high) == (0, 255)
        return {"shape": list(column.shape)} | ({} if usual else {"low": column.low, "high": column.high})
    if isinstance(column, Category):
        unknown = {} if column.unknown == "zero" else {"unknown": column.unknown}
        reference = {} if column.reference is None else {"reference": column.reference}
        return {"levels": list(column.levels)} | unknown | reference
    facts: dict[str, Any] = {"low": column.low, "high": column.high}
    facts |= {"missing": True} if column.missing else {}
    return facts | ({} if column.scale == "linear" else {"scale": column.scale})


def features_of(name: str, column: Column) -> tuple[str, ...]:
    """The entries of a row that a column becomes: a number, with whether it is missing; levels, except the reference; pixels."""
    if isinstance(column, Image):
        return tuple(f"{name}[{row},{place}]" for row in range(column.shape[0]) for place in range(column.shape[1]))
    if isinstance(column, Category):
        return tuple(f"{name}={level}" for level in column.levels if level != column.reference)
    return (name, f"{name} missing") if column.missing else (name,)


# Where a schema comes from that was read off the data privately, and who was set aside for it.

_REMEDY = "Keep this table as croupier describe wrote it."


@dataclass(frozen=True)
class Described:
    """The release that a schema's ranges come from: what was promised for it, and who was asked.

    `epsilon`, `delta`: What everybody who was asked was promised. `users`: How many people were asked. `private`: False where the
    release was seeded: NOT private. `aside`: Who was asked, where a share of the people was set aside: fits leave them out. `rows`:
    Rows of the table from which they were set aside by their places; None if they were by their names.
    """

    epsilon: float
    delta: float
    users: int
    private: bool = True
    aside: HoldOut | None = None
    rows: int | None = None

    @classmethod
    def from_dict(cls, values: Any, name: str) -> Described:
        """Read it from a schema's table."""
        keys = Keys(name, values)
        epsilon = real(f"{name}.epsilon", keys.need("epsilon"), above=0, remedy=_REMEDY)
        delta = real(f"{name}.delta", keys.need("delta"), above=0, below=1, remedy=_REMEDY)
        users = whole(f"{name}.users", keys.need("users"), at_least=2, remedy=_REMEDY)
        private = keys.get("private", True)
        if not isinstance(private, bool):
            raise ArgumentError(f"{name}.private", private, "true or false", _REMEDY)
        share, seed, rows = keys.get("share", None), keys.get("seed", None), keys.get("rows", None)
        keys.nothing_else()
        if (share is None) != (seed is None) or (rows is not None and share is None):
            raise ArgumentError(name, values, "share and seed together, or neither", _REMEDY)
        if rows is not None:
            whole(f"{name}.rows", rows, at_least=2, remedy=_REMEDY)
        return cls(epsilon, delta, users, private, None if share is None else HoldOut(share, seed), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for TOML and JSON."""
        plain: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "users": self.users}
        plain |= {} if self.private else {"private": False}
        plain |= {} if self.aside is None else {"share": self.aside.share, "seed": self.aside.seed}
        return plain | ({} if self.rows is None else {"rows": self.rows})

    def require_rows(self, rows: int) -> None:
        """Refuse a table of another length than that from which people were set aside by their places."""
        if self.rows not in (None, rows):
            remedy = "People were set aside by their position in that file: use the same file, in the same order; nobody was asked."
            raise ArgumentError("DATA", Found(f"has {rows:,} rows"), f"the {self.rows:,} rows that were described", remedy)

    def require_user(self, name: str, user: str | None, was: str | None) -> None:
        """Refuse another user column than that by which people were set aside."""
        if self.aside is not None and user != was:
            remedy = "Describe the data again with this user column, or keep the old one."
            raise ArgumentError(name, user, "as it was when people were set aside for the schema", remedy)

    def rest(self, user: str | None) -> Part | None:
        """Those who were not set aside for the schema, for an account."""
        if self.aside is None:
            return None
        return Part(self.aside, "rest", self.rows, user if self.rows is None else None)

    def lines(self, promise: tuple[float, float] | None) -> list[str]:
        """Say what a fit with this promise and the description reveal together."""
        own = self._promise
        if not self.private:
            return ["The schema was described with a seed: NOT PRIVATE, and no guarantee covers it."]
        if self.aside is None and promise is None:
            return [
                f"The schema was described at {own}; people who are also in the fit, which is NOT private, are promised nothing."
            ]
        if self.aside is None and promise is not None:
            epsilon, delta = promise
            both = f"epsilon {round_up(self.epsilon + epsilon)}, delta {round_up(self.delta + delta)}"
            return [f"The schema was described at {own}; anyone who is in both has at most {both} in total."]
        unchecked = " Keep the file's order: it is not checked, and anyone who has moved may be asked twice."
        by, order = ("position in the file", unchecked) if self.rows is not None else ("name", "")
        others = "the others have only what this fit promises" if promise else "nothing is promised to the others: NOT private"
        aside = f"{self.users:,} people were set aside for the schema, by {by}, and are not in this fit"
        return [f"{aside}. They have {own} from the description; {others}.{order}"]

    @property
    def origin(self) -> str:
        """Where the ranges come from, in a few words."""
        if not self.private:
            return f"described with a seed from {self.users:,} people: NOT private"
        aside = "" if self.aside is None else ", who were set aside for it and are not asked here"
        return f"described privately from {self.users:,} people{aside}: {self._promise}"

    @property
    def _promise(self) -> str:
        return f"epsilon {round_up(self.epsilon)}, delta {round_up(self.delta)}"


VERSION = 1
ROWS = ("unit", "as-is")


@dataclass(frozen=True)
class Target:
    """What is to be predicted: a class, or a number.

    `column`: Where it stands. `classes`: All labels that may occur: texts, whole numbers or truth values. `range`: (low, high) of a
    number; what is outside is clipped to it.

    Examples
    --------
    >>> Target("ill", classes=("no", "yes")).classes
    ('no', 'yes')
    """

    column: str
    classes: tuple[Label, ...] | None = None
    range: tuple[float, float] | None = None

    @property
    def usual_rows(self) -> str:
        """`rows` of a drafted schema: rows divided by their length are not linear in their columns, which costs numbers most."""
        return "unit" if self.range is None else "as-is"


@dataclass(frozen=True)
class Schema:
    """Everything that is treated as public about a table.

    Parameters
    ----------
    columns : mapping of str to Numeric or Category
        The features, in this order; other columns are not read.
    target : Target
        What is to be predicted.
    user : str, optional
        The column that identifies the person each row belongs to; without it every row is a person.
    rows : {"unit", "as-is"}, default "unit"
        Whether every row is divided by its own length, or left as it is.
    described : Described, optional
        The private release that its ranges come from, if it was one.
    features : dict, optional
        A public map of the columns' entries, as `croupier.features.FeatureMap.to_dict` states it; rows are what it makes of them.

    Examples
    --------
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
    described: Described | None = None
    features: Mapping[str, Any] | None = None

    def with_user(self, user: str | None) -> Schema:
        """Return the same with another user column.

        Parameters
        ----------
        user : str or None
            The column; None changes nothing.

        Returns
        -------
        Schema
            Checked.

        Raises
        ------
        ArgumentError
            If the column has another role.
        """
        if user is not None and self.described is not None:
            self.described.require_user("user_column", user, self.user)
        return self if user is None else replace(self, user=user).checked()

    def checked(self, name: str = "schema") -> Schema:
        """Check that names are texts and that no column has two roles.

        Parameters
        ----------
        name : str, default "schema"
            Its name in errors.

        Returns
        -------
        Schema
            Itself.

        Raises
        ------
        ArgumentError
            If that is not so.
        """
        return _checked(self, name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read the schema in a TOML file.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        Schema
            Checked.

        Raises
        ------
        ArgumentError
            If the file cannot be read, or states something unknown.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            remedy = "Draft one from a public sample: croupier schema SAMPLE --target COLUMN -o FILE."
            raise unreadable("--schema", path, problem, "a TOML file in UTF-8", remedy) from None
        return cls.from_toml(text, name=str(path))

    @classmethod
    def from_toml(cls, text: str, name: str = "schema") -> Schema:
        """Read the schema that a TOML text states.

        Parameters
        ----------
        text : str
            The text, as `to_toml` gives it.
        name : str, default "schema"
            Its name in errors.

        Returns
        -------
        Schema
            Checked.

        Raises
        ------
        ArgumentError
            If it is no TOML, or has a key that is not known, which is named.
        """
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise ArgumentError(name, Found(f"is not TOML ({problem})"), "TOML", "See docs/files.md for an example.") from None
        return cls.from_dict(values, name)

    @classmethod
    def from_dict(cls, values: Any, name: str = "schema") -> Schema:
        """Read the schema that a dictionary of plain values states.

        Parameters
        ----------
        values : dict
            As `to_dict` gives it.
        name : str, default "schema"
            Its name in errors.

        Returns
        -------
        Schema
            Checked.

        Raises
        ------
        ArgumentError
            If a key is missing or not known, or a value is outside its range.
        """
        keys = Keys(name, values)
        version = keys.get("version", VERSION)
        if version != VERSION:
            remedy = "It was written for another version of croupier: use that version, or rewrite it (docs/files.md)."
            raise ArgumentError(f"{name}: version", version, str(VERSION), remedy)
        columns = keys.get("columns", {})
        schema = cls(
            columns={column: column_from(f"{name}: columns.{column}", facts) for column, facts in Keys(name, columns).items()},
            target=_target(f"{name}: target", keys.need("target")),
            user=keys.get("user", None),
            rows=one_of(f"{name}: rows", keys.get("rows", "unit"), ROWS, "'unit' divides every row by its length."),
            described=None
            if (release := keys.get("described", None)) is None
            else Described.from_dict(release, f"{name}: described"),
            features=None
            if (stated := keys.get("features", None)) is None
            else FeatureMap.from_dict(stated, f"{name}: features").to_dict(),
        )
        keys.nothing_else()
        return _checked(schema, name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for TOML and JSON; what is as usual is left out.

        Returns
        -------
        dict
            Input of `from_dict`.
        """
        target: dict[str, Any] = {"column": self.target.column}
        if self.target.classes is not None:
            target["classes"] = list(self.target.classes)
        if self.target.range is not None:
            target["range"] = list(self.target.range)
        plain: dict[str, Any] = {"version": VERSION, "rows": self.rows}
        plain |= {"user": self.user} if self.user is not None else {}
        plain |= {} if self.described is None else {"described": self.described.to_dict()}
        plain |= {} if self.features is None else {"features": dict(self.features)}
        return plain | {"target": target, "columns": {name: column_facts(column) for name, column in self.columns.items()}}

    def to_toml(self, notes: Mapping[str, str] | None = None) -> str:
        """Write the schema as TOML.

        Parameters
        ----------
        notes : mapping of str to str, optional
            Comments, to be put before the facts of a column or the target, by its name.

        Returns
        -------
        str
            Input of `from_toml`.
        """
        notes = notes or {}
        plain = self.to_dict()
        tables = {"described": plain.pop("described")} if self.described is not None else {}
        tables |= {"features": plain.pop("features")} if self.features is not None else {}
        tables |= {"target": plain.pop("target")}
        tables |= {f"columns.{key_text(name)}": facts for name, facts in plain.pop("columns").items()}
        comments = {("target" if name == self.target.column else f"columns.{key_text(name)}"): note for name, note in notes.items()}
        lines = [f"{name} = {value_text(value)}" for name, value in plain.items()]
        for name, facts in tables.items():
            lines += ["", *(f"# {line}" for line in comments.get(name, "").splitlines()), f"[{name}]"]
            lines += [f"{fact} = {value_text(value)}" for fact, value in facts.items()]
        return "\n".join(lines) + "\n"


def _target(name: str, values: Any) -> Target:
    keys = Keys(name, values)
    column, classes, ends = keys.need("column"), keys.get("classes", None), keys.get("range", None)
    keys.nothing_else()
    if (classes is None) == (ends is None):
        remedy = "Classes are all labels that may occur; a range is [low, high], and targets outside are clipped to it."
        raise ArgumentError(name, values, "a column with either classes or a range", remedy)
    if classes is not None:
        return Target(column, classes=labels_from(f"{name}.classes", classes, at_least=2))
    return Target(column, range=range_from(f"{name}.range", ends))


def _checked(schema: Schema, name: str = "schema") -> Schema:
    """Names that are texts, and columns with one role each."""
    roles = {"target.column": schema.target.column} | ({} if schema.user is None else {"user": schema.user})
    for role, column in roles.items():
        if not isinstance(column, str) or not column:
            raise ArgumentError(f"{name}: {role}", column, "the name of a column", "Write it as in the file.")
        if column in schema.columns:
            raise ArgumentError(
                f"{name}: {role}", column, "a column that is not a feature", f"Delete [columns.{key_text(column)}]."
            )
    if schema.user == schema.target.column:
        raise ArgumentError(
            f"{name}: user", schema.user, "another column than the target", "The owner of a row cannot be the target."
        )
    if schema.described is not None and (schema.described.rows is None) != (schema.user is not None):
        schema.described.require_user(f"{name}: user", schema.user, "another" if schema.user is None else None)
    if not schema.columns:
        raise ArgumentError(f"{name}: columns", Found("is empty"), "at least one feature", PUBLIC)
    if schema.features is not None:
        if schema.rows != "unit":
            remedy = "Rows have length 1 after a map: leave rows out."
            raise ArgumentError(f"{name}: rows", schema.rows, "'unit' if features are given", remedy)
        entries = sum(len(features_of(column, facts)) for column, facts in schema.columns.items())
        try:
            FeatureMap.from_dict(schema.features).outputs(entries)
        except ArgumentError as problem:
            remedy = f"The columns have {entries} entries. {problem.remedy}"
            raise ArgumentError(f"{name}: features: {problem.name}", problem.value, problem.allowed, remedy) from None
    return schema
