"""How a task says what becomes of a record: the words that the analyzer signs, and a client's rows and targets by them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..service.wire import WireError
from ..table import Dialect, Encoder, Piece, Schema, Source
from ..validation import ArgumentError
from .model import Request


def described(facts: Schema, request: Request) -> dict[str, Any]:
    """The words of a task about its records. Whatever has an order is a list, since names in a JSON object have none.

    Parameters
    ----------
    facts : the public facts about a table.
    request : the estimator that is trained.

    Returns
    -------
    dict
        `schema`, with its `columns` as a list; `features`, the names of a row's numbers, in their order; `task`, `parameters`.
    """
    schema = facts.to_dict()
    columns = [{"name": name, **column} for name, column in schema["columns"].items()]
    words = {"schema": schema | {"columns": columns}, "features": list(Encoder(facts).names)}
    return words | {"task": request.task, "parameters": request.parameters}


class Reader:
    """Turns records into rows and targets, as a task's words say.

    Parameters
    ----------
    words : what `described` gave, as it came over the wire.

    Raises
    ------
    WireError
        Where the words state no order of the columns, or another order of features than this version makes of them.
    """

    def __init__(self, words: Any) -> None:
        try:
            facts = _schema(words["schema"])
            self._encoder = Encoder(facts)
            self._estimator = Request(words["task"], words["parameters"], None).estimator(facts)
            features = words["features"]
        except ArgumentError as problem:
            raise WireError(f"a task whose records cannot be read: {problem}") from None
        except (KeyError, TypeError, AttributeError):
            raise WireError("a task that does not say how records become rows, with its columns and features in lists") from None
        if features != list(self._encoder.names):
            raise WireError("a task whose features are in another order than its columns make them, or others")

    def of_file(self, path: Path, dialect: Dialect | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and targets of a CSV or Parquet file."""
        source, types = Source(path, dialect), self._encoder.types(target=True)
        source.require(list(types))
        return self.of_pieces(source.pieces(types), str(path))

    def of_pieces(self, pieces: Iterable[Piece], name: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and targets of parts of a table; `name` is the table's, for errors."""
        encoder = self._encoder
        read = [self._estimator.records(encoder.rows(piece), encoder.targets(piece)) for piece in pieces]
        if not read:
            raise ArgumentError("--data", name, "at least one record", "Check the file.")
        return np.concatenate([rows for rows, _ in read]), np.concatenate([targets for _, targets in read])


def _schema(words: Any) -> Schema:
    """The schema, its columns in the order of their list."""
    columns = words["columns"]
    if not isinstance(columns, list):
        raise TypeError("columns without an order")
    facts = {column["name"]: {name: value for name, value in column.items() if name != "name"} for column in columns}
    if len(facts) != len(columns):
        raise TypeError("a column twice")
    return Schema.from_dict(words | {"columns": facts}, "the task's schema")
