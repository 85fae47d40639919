"""`croupier predict`: a model's answers for the records of a file, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import typer
from pyarrow import parquet

from ..table import Dialect, Encoder, Source
from ..table.schema import as_text
from ..validation import ArgumentError
from .data_options import Decimal, Encoding, Sep
from .files import check_output, written_whole
from .model import TableModel
from .progress import counted, messages, say

Write = Callable[[Any], None]


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet with the feature columns; no target needed.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .csv or .parquet file; otherwise printed as CSV.")
    ] = None,
    proba: Annotated[bool, typer.Option("--proba", help="A probability for every class as well.")] = False,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Predict for every row of DATA, in its order. What is asked of the model afterwards costs no privacy."""
    made = TableModel.load(model)
    if proba and not hasattr(made.estimator, "predict_proba"):
        raise ArgumentError("--proba", True, "left out for this model", f"A model of task {made.task!r} has no probabilities.")
    if output is not None:
        if output.suffix not in (".csv", ".parquet"):
            raise ArgumentError("-o", str(output), "named .csv or .parquet", "The ending says which it is to be.")
        check_output(output, force)
    source, encoder = Source(data, Dialect(sep, decimal, encoding)), Encoder(made.schema)
    source.require(list(encoder.types()))
    console, rows = messages(), 0
    with _writer(output, _columns(made, proba)) as write:
        pieces = source.pieces(encoder.types(), most=max(1, (1 << 20) // len(encoder.names)))
        for piece in counted(pieces, data.name, console, shown=console.is_terminal and output is not None):
            write(_answers(made, encoder.rows(piece), proba))
            rows += len(piece)
    if output is not None:
        say(console, f"{rows:,} predictions in {output}.")


def _columns(model: TableModel, proba: bool) -> Any:
    """The table's columns: the prediction in the target's own type, then probabilities."""
    labels = model.estimator.classes_ if model.classifies else None
    kind = pa.float64() if labels is None else pa.array(labels.tolist()).type
    fields = [pa.field("prediction", kind)]
    if proba and labels is not None:
        fields += [pa.field(f"probability {as_text(label)}", pa.float64()) for label in labels.tolist()]
    return pa.schema(fields)


def _answers(model: TableModel, rows: Any, proba: bool) -> list[Any]:
    answers = [pa.array(model.estimator.predict(rows).tolist())]
    return answers + ([pa.array(column) for column in model.estimator.predict_proba(rows).T] if proba else [])


@contextmanager
def _writer(output: Path | None, columns: Any) -> Iterator[Write]:
    """Writes columns of answers to a file that appears when it is complete, or to standard output."""

    def batch(answers: list[Any]) -> Any:
        return pa.record_batch(answers, schema=columns)

    if output is None:
        _print(pa.record_batch([pa.array([], field.type) for field in columns], schema=columns), header=True)
        yield lambda answers: _print(batch(answers), header=False)
        return
    with written_whole(output) as part:
        kind = parquet.ParquetWriter if output.suffix == ".parquet" else arrow_csv.CSVWriter
        with kind(part, columns) as file:
            yield lambda answers: file.write_batch(batch(answers)) if output.suffix == ".parquet" else file.write(batch(answers))


def _print(batch: Any, header: bool) -> None:
    text = pa.BufferOutputStream()
    arrow_csv.write_csv(batch, text, arrow_csv.WriteOptions(include_header=header))
    typer.echo(text.getvalue().to_pybytes().decode(), nl=False)
