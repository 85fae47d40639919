"""The kinds of questions that a task may ask: what their words mean, and what each makes of a record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ..estimator import ShuffleLinearRegression
from ..statistics import Histogram, Moments, NumberGuess, Summaries, evaluation_query
from ..table import Encoder, Piece, Schema, TableGuess
from ..table.describe import values_of
from ..validation import ArgumentError, Found
from .model_words import model_of


class QuestionKind(Protocol):
    """A kind of question: its statistic, the columns that it reads, and what it makes of a record."""

    statistic: Any
    types: dict[str, Any]

    def records(self, piece: Piece) -> tuple[Any, Any]:
        """Return what the statistic takes of some records."""
        ...


def meant(words: dict[str, Any]) -> QuestionKind:
    """Return what the words of a question mean.

    Parameters
    ----------
    words : dict
        Of a known kind.

    Returns
    -------
    QuestionKind
        With the statistic that is asked.

    Raises
    ------
    ArgumentError
        Where the words are not those of their kind, or more.
    """
    kind = words["kind"]
    if set(words) != {"kind", *_WORDS[kind]}:
        raise ArgumentError("query", sorted(words), f"the words kind, {', '.join(_WORDS[kind])}", "Use the same version.")
    return _KINDS[kind](words)


def _named(name: Any) -> str:
    """A column's name."""
    if not isinstance(name, str):
        raise ArgumentError("column", name, "a text", "Name a column of the table.")
    return name


class _Describe:
    """All columns, from guesses."""

    def __init__(self, words: dict[str, Any]) -> None:
        found = {_named(column["name"]): {k: v for k, v in column.items() if k != "name"} for column in words["columns"]}
        if len(found) != len(words["columns"]):
            raise ArgumentError("columns", Found("has a name twice"), "each once", "Use the same version.")
        if not all("levels" in facts or facts.get("edges") is not None for facts in found.values()):
            raise ArgumentError("edges", None, "the ends of all bins of a number", "Every device must have the same bins.")
        self.guess = TableGuess.from_dict({"columns": found}, "the task's question")
        self.statistic = Summaries(self.guess.columns)
        self.types = {name: pa.binary() for name in self.guess.columns}

    def records(self, piece: Piece) -> tuple[Any, None]:
        return values_of(piece, self.guess.columns), None


class _Histogram:
    """One column in equal bins."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.column = _named(words["column"])
        self.statistic = Histogram(words["low"], words["high"], bins=words["bins"])
        self.types = {self.column: pa.binary()}

    def records(self, piece: Piece) -> tuple[Any, None]:
        return values_of(piece, {self.column: NumberGuess()}), None


class _Regression:
    """Moments of the rows that a schema makes, for least squares."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.schema = schema_of(words["schema"])
        if self.schema.target.range is None:
            raise ArgumentError("schema: target", Found("has classes"), "a range", "A regression is about numbers.")
        self.encoder = Encoder(self.schema)
        self.estimator = ShuffleLinearRegression(target_range=self.schema.target.range, feature_norm=self.encoder.norm)
        rows, _ = self.estimator.records(np.zeros((1, len(self.encoder.names))), np.full(1, self.schema.target.range[0]))
        self.statistic = Moments(rows.shape[1])
        self.types = self.encoder.types(target=True)

    def records(self, piece: Piece) -> tuple[Any, Any]:
        return self.estimator.records(self.encoder.rows(piece).astype(np.float64), self.encoder.targets(piece))


class _Evaluate:
    """A model's answers beside the truth."""

    def __init__(self, words: dict[str, Any]) -> None:
        schema = schema_of(words["model"]["schema"])
        self.model = model_of({name: word for name, word in words["model"].items() if name != "schema"}, schema)
        self.encoder = Encoder(schema)
        self.statistic = evaluation_query(self.model)
        self.types = self.encoder.types(target=True)

    def records(self, piece: Piece) -> tuple[Any, Any]:
        return self.encoder.rows(piece), self.encoder.targets(piece)


_WORDS = {
    "describe": ("columns",),
    "histogram": ("column", "low", "high", "bins"),
    "regression": ("schema",),
    "evaluate": ("model",),
}
_KINDS: dict[str, Callable[[dict[str, Any]], QuestionKind]] = {
    "describe": _Describe,
    "histogram": _Histogram,
    "regression": _Regression,
    "evaluate": _Evaluate,
}


def words_of_schema(schema: Schema) -> dict[str, Any]:
    """The words of a schema, its columns in a list, since names in a JSON object have no order."""
    plain = schema.to_dict()
    return plain | {"columns": [{"name": name, **facts} for name, facts in plain["columns"].items()]}


def schema_of(words: Any) -> Schema:
    """The schema that such words state."""
    columns = {_named(column["name"]): {n: value for n, value in column.items() if n != "name"} for column in words["columns"]}
    if len(columns) != len(words["columns"]):
        raise ArgumentError("columns", Found("has a name twice"), "each once", "Use the same version.")
    return Schema.from_dict(words | {"columns": columns}, "the task's schema")
