"""`croupier report`: a model's promise as one HTML page, for people who were not there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from ..estimator import load_model
from ..files import write_whole
from ..report import html_report, schema_facts
from ..table import INTERVALS, Dialect, Encoder, Schema, Source, TableModel, read_table
from ..validation import ArgumentError
from .data_options import Decimal, Encoding, Sep
from .files import check_output
from .progress import Shown, messages, say, warnings_said

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)


def report(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote, or save() of an estimator.")],
    data: Annotated[Path | None, typer.Option(help="CSV or Parquet to compare with a model without privacy on.")] = None,
    data_is_public: Annotated[
        bool, typer.Option("--data-is-public", help="Everyone may see --data, and scores on it: NOT covered by the guarantee.")
    ] = False,
    sweep: Annotated[bool, typer.Option("--sweep", help="Fit on --data with other epsilons as well; takes a while.")] = False,
    title: Annotated[str | None, typer.Option(help="Headline of the page.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the page goes.")] = Path("report.html"),
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write one HTML file: the promise in plain words, how training went, noise and bits, and what is assumed."""
    check_output(output, force)
    _check_options(data, data_is_public, sweep)
    (estimator, schema), console = load_any(model), messages()
    if schema is not None and not hasattr(estimator, "result_"):
        estimator.feature_names_in_ = np.array(Encoder(schema).names, dtype=object)  # what the page calls the columns
    if data is not None and schema is None:
        remedy = "Only croupier fit writes the schema down; for other models, give html_report the rows in Python."
        raise ArgumentError("--data", str(data), "left out for a model without a schema", remedy)
    X, y = (
        (None, None) if data is None or schema is None else _records(schema, Source(data, Dialect(sep, decimal, encoding)), console)
    )
    with warnings_said(console):
        page = html_report(
            estimator,
            X=X,
            y=y,
            data_is_public=data_is_public,
            title=title or ("What this model promises" if schema is None else f"A private model of {schema.target.column}"),
            epsilons=_EPSILONS if sweep else (),
            public_facts=schema_facts(schema) if schema else {},
            tables=[TableModel(schema, estimator).summary()] if schema and type(estimator) in INTERVALS.values() else (),
        )
    write_whole(output, page.encode())
    say(Console(), f"Report: {output}. Open it in a browser; it is one file and loads nothing.")


def _check_options(data: Path | None, data_is_public: bool, sweep: bool) -> None:
    if data is not None and not data_is_public:
        remedy = (
            "Scores on private people are releases that no guarantee covers: leave --data out, or use data that everyone may see."
        )
        raise ArgumentError("--data", str(data), "beside --data-is-public", remedy)
    if data is None and (data_is_public or sweep):
        name = "--sweep" if sweep else "--data-is-public"
        raise ArgumentError(name, True, "beside --data", "Say which public file to compare on, or leave it out.")


def load_any(path: Path) -> tuple[Any, Schema | None]:
    """The estimator in a file, and its schema if croupier fit wrote it."""
    try:
        return load_model(path), None
    except (ArgumentError, OSError, UnicodeDecodeError) as problem:
        if isinstance(problem, ArgumentError) and problem.name != "model":
            raise  # an estimator's file, but one that cannot be trusted
        table_model = TableModel.load(path)
        return table_model.estimator, table_model.schema


def _records(schema: Schema, source: Source, console: Console) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """All rows and targets of a public file, in memory."""
    rows, targets = read_table(schema, source, watcher=Shown(console, shown=console.is_terminal))
    if len(targets) < 10:
        raise ArgumentError("--data", str(source.path), "at least 10 rows", "A comparison on fewer says nothing.")
    return rows, targets
