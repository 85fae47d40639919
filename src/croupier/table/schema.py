"""The public facts about a table: ranges, levels, the target, whose a row is. Written down in TOML, never read off private data."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..validation import ArgumentError, Found, one_of
from .columns import Category, Column, Label, Numeric, as_text, column_facts, column_from, labels_from, range_from
from .described import Described
from .toml_text import PUBLIC, Keys, key_text, value_text

__all__ = ["Category", "Column", "Label", "Numeric", "Schema", "Target", "as_text"]
VERSION = 1
ROWS = ("unit", "as-is")


@dataclass(frozen=True)
class Target:
    """What is to be predicted: a class, or a number.

    Parameters
    ----------
    column : str
        Where it stands.
    classes : tuple, optional
        All labels that may occur: texts, whole numbers or truth values.
    range : pair of float, optional
        (low, high) of a number; what is outside is clipped to it.

    Examples
    --------
    >>> Target("ill", classes=("no", "yes")).classes
    ('no', 'yes')
    """

    column: str
    classes: tuple[Label, ...] | None = None
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Schema:
    """Everything that is taken as public about a table.

    Parameters
    ----------
    columns : mapping of str to Numeric or Category
        The features, in this order; other columns are not read.
    target : Target
        What is to be predicted.
    user : str, optional
        The column that says whose a row is; without it every row is a person.
    rows : {"unit", "as-is"}, default "unit"
        Whether every row is divided by its own length, or left as it is.
    described : Described, optional
        The private release that its ranges come from, if it was one.

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
            Where the column has another role.
        """
        if user is not None and self.described is not None:
            self.described.require_user("user_column", user, self.user)
        return self if user is None else replace(self, user=user).checked()

    def checked(self, name: str = "schema") -> Schema:
        """Check that names are texts and that no column has two roles.

        Parameters
        ----------
        name : str, default "schema"
            What errors call it.

        Returns
        -------
        Schema
            Itself.

        Raises
        ------
        ArgumentError
            Where that is not so.
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
            Where the file cannot be read, or states something that is not known.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "not text in UTF-8"
            remedy = "Draft one from a public sample: croupier schema SAMPLE --target COLUMN -o FILE."
            raise ArgumentError("--schema", str(path), f"a TOML file that can be read ({reason})", remedy) from None
        return cls.from_toml(text, name=str(path))

    @classmethod
    def from_toml(cls, text: str, name: str = "schema") -> Schema:
        """Read the schema that a TOML text states.

        Parameters
        ----------
        text : str
            The text, as `to_toml` gives it.
        name : str, default "schema"
            What errors call it.

        Returns
        -------
        Schema
            Checked.

        Raises
        ------
        ArgumentError
            Where it is no TOML, or has a key that is not known, which is named.
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
            What errors call it.

        Returns
        -------
        Schema
            Checked.

        Raises
        ------
        ArgumentError
            Where a key is missing or not known, or a value is outside its range.
        """
        keys = Keys(name, values)
        version = keys.get("version", VERSION)
        if version != VERSION:
            remedy = "It was written for another version of croupier: use that one, or rewrite it (docs/files.md)."
            raise ArgumentError(f"{name}: version", version, str(VERSION), remedy)
        columns = keys.get("columns", {})
        schema = cls(
            columns={column: column_from(f"{name}: columns.{column}", facts) for column, facts in Keys(name, columns).items()},
            target=_target(f"{name}: target", keys.need("target")),
            user=keys.get("user", None),
            rows=one_of(f"{name}: rows", keys.get("rows", "unit"), ROWS, "'unit' divides every row by its own length."),
            described=None
            if (release := keys.get("described", None)) is None
            else Described.from_dict(release, f"{name}: described"),
        )
        keys.nothing_else()
        return _checked(schema, name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for TOML and JSON; what is as usual is left out.

        Returns
        -------
        dict
            What `from_dict` reads.
        """
        target: dict[str, Any] = {"column": self.target.column}
        if self.target.classes is not None:
            target["classes"] = list(self.target.classes)
        if self.target.range is not None:
            target["range"] = list(self.target.range)
        plain: dict[str, Any] = {"version": VERSION, "rows": self.rows}
        plain |= {"user": self.user} if self.user is not None else {}
        plain |= {} if self.described is None else {"described": self.described.to_dict()}
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
            What `from_toml` reads.
        """
        notes = notes or {}
        plain = self.to_dict()
        tables = {"described": plain.pop("described")} if self.described is not None else {}
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
            raise ArgumentError(f"{name}: {role}", column, "the name of a column", "Write it as it stands in the file.")
        if column in schema.columns:
            raise ArgumentError(
                f"{name}: {role}", column, "a column that is not a feature", f"Delete [columns.{key_text(column)}]."
            )
    if schema.user == schema.target.column:
        raise ArgumentError(f"{name}: user", schema.user, "another column than the target", "A row's owner is not its target.")
    if schema.described is not None and (schema.described.rows is None) != (schema.user is not None):
        schema.described.require_user(f"{name}: user", schema.user, "another" if schema.user is None else None)
    if not schema.columns:
        raise ArgumentError(f"{name}: columns", Found("is empty"), "at least one feature", PUBLIC)
    return schema
