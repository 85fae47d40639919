"""How a task says what becomes of a record: the words that the analyzer signs, and a client's rows and targets by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...table import Schema
from ...table.encode import Encoder
from ...table.model import Request
from ...table.read import Dialect, Piece, Source
from ...table.schema import as_text
from ...validation import ArgumentError
from ..wire.documents import WireError
from ..wire.queries import AskedQuery
from ..wire.task import Task
from .client import NOT_SHOWN


def clients_schema(path: Path) -> Schema:
    """Read a schema by which clients make rows of their own records."""
    facts = Schema.load(path)
    if facts.user is not None:
        raise ArgumentError(f"{path}: user", facts.user, "left out", "A client has its own rows alone.")
    if facts.described is not None and facts.described.aside is not None:
        remedy = "Enrol none of them, and delete [described]; or describe without --share: whoever is in both then pays for both."
        people = f"{facts.described.users:,} people set aside"
        raise ArgumentError(f"{path}: described", people, "nobody set aside, as no client knows whether it was", remedy)
    return facts


def words_of_records(facts: Schema, request: Request) -> dict[str, Any]:
    """The words of a task about its records. Whatever has an order is a list, since names in a JSON object have none."""
    schema = facts.to_dict()
    columns = [{"name": name, **column} for name, column in schema["columns"].items()]
    words = {"schema": schema | {"columns": columns}, "features": list(Encoder(facts).names)}
    return words | {"task": request.task, "parameters": request.parameters}


class Reader:
    """Turns records into rows and targets, as a task's words say.

    Where the task's parameters say `invalid = "blank"`, a record that is not valid is a row of zeros with target 0, whatever it
    holds, and nothing is said of it.
    """

    def __init__(self, words: Any) -> None:
        try:
            facts = _schema(words["schema"])
            self._encoder = Encoder(facts, words["parameters"].get("invalid", "refuse"))
            # The other parameters change neither rows nor targets: what they choose stands in the task's problem and schedule.
            invalid = {name: word for name, word in words["parameters"].items() if name == "invalid"}
            self._estimator = Request(words["task"], invalid, None).estimator(facts)
            features = words["features"]
        except ArgumentError as problem:
            raise WireError(f"a task whose records cannot be read: {problem}") from None
        except (KeyError, TypeError, AttributeError):
            raise WireError("a task that does not say how records become rows, with its columns and features in lists") from None
        if features != list(self._encoder.names):
            raise WireError("a task whose features are in another order than its columns make them, or others")
        self.features = len(features)

    def of_file(self, path: Path, dialect: Dialect | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and targets of a CSV or Parquet file."""
        source, types = Source(path, dialect), self._encoder.types(target=True)
        source.require(list(types))
        return self.of_pieces(source.pieces(types), str(path))

    def of_records(self, records: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and targets of records that are here."""
        return read_records(records, self._encoder.types(target=True), self.of_pieces)

    def of_pieces(self, pieces: Iterable[Piece], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and targets of parts of a table."""
        encoder = self._encoder
        read = [self._estimator.records(encoder.rows(piece), encoder.targets(piece)) for piece in pieces]
        if not read:
            raise ArgumentError("--data", name, "at least one record", "Check the file.")
        return np.concatenate([rows for rows, _ in read]), np.concatenate([targets for _, targets in read])


def reader_of(task: Task) -> Reader | AskedQuery | None:
    """Return what reads a client's records as a task says."""
    if isinstance(task.problem, AskedQuery):
        return task.problem
    if task.records is None:
        return None
    reader = Reader(task.records)
    if task.problem.dim != task.problem.loss.outputs * (reader.features + 1):
        raise WireError("a task whose rows have not one constant beside their features")
    return reader


def _column(values: list[Any], kind: Any) -> Any:
    """A column of the types that its values have; as text, each by itself, where one that is not valid must not spoil others."""
    if pa.types.is_binary(kind):
        nothing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in values]
        return pa.array([None if none else as_text(value).encode() for value, none in zip(values, nothing, strict=True)], kind)
    return pa.array(values)


def read_records(
    records: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    types: Mapping[str, Any],
    of_pieces: Callable[[Iterable[Piece], str], tuple[Any, Any]],
) -> tuple[Any, Any]:
    """Read records that are here, by their columns; an error says nothing of them."""
    every = [records] if isinstance(records, Mapping) else list(records)
    for name in types:
        if not all(name in record for record in every):
            raise ArgumentError("records", NOT_SHOWN, f"with a value for {name!r}", "Give None where it is missing.")
    refusal: tuple[str, str, str]
    try:
        columns = {name: _column([record[name] for record in every], kind) for name, kind in types.items()}
        batch = pa.RecordBatch.from_pydict(columns)
        return of_pieces([Piece(Path("records"), 1, batch)] if every else [], "records")
    except ArgumentError as problem:
        refusal = problem.name, problem.allowed, problem.remedy
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        refusal = "records", "numbers and texts, of one kind in a column", "Look at the task's schema."
    # Outside of what caught it: no trace leads back to an error that quotes a record.
    name, allowed, remedy = refusal
    raise ArgumentError(name, NOT_SHOWN, allowed, remedy)


def _schema(words: Any) -> Schema:
    """The schema, its columns in the order of their list."""
    columns = words["columns"]
    if not isinstance(columns, list):
        raise TypeError("columns without an order")
    facts = {column["name"]: {name: value for name, value in column.items() if name != "name"} for column in columns}
    if len(facts) != len(columns):
        raise TypeError("a column twice")
    return Schema.from_dict(words | {"columns": facts}, "the task's schema")
