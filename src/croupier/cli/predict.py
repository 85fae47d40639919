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

from ..files import written_whole
from ..table import Dialect, Source, TableModel, predict_table, prediction_columns
from ..validation import ArgumentError
from .data_options import Decimal, Encoding, Sep
from .files import check_output
from .options import named_as_options
from .progress import Shown, messages, say

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
    table_model = TableModel.load(model)
    with named_as_options("proba"):
        columns = prediction_columns(table_model, proba=proba)
    if output is not None:
        if output.suffix not in (".csv", ".parquet"):
            raise ArgumentError("-o", str(output), "named .csv or .parquet", "The ending says which it is to be.")
        check_output(output, force)
    source, console, rows = Source(data, Dialect(sep, decimal, encoding)), messages(), 0
    watcher = Shown(console, shown=console.is_terminal and output is not None)
    predictions = predict_table(table_model, source, proba=proba, watcher=watcher)
    with _writer(output, columns) as write:
        for batch in predictions:
            write(batch)
            rows += len(batch)
    if output is not None:
        say(console, f"{rows:,} predictions in {output}.")


@contextmanager
def _writer(output: Path | None, columns: Any) -> Iterator[Write]:
    """Writes batches of predictions to a file that appears when it is complete, or to standard output."""
    if output is None:
        _print(pa.record_batch([pa.array([], field.type) for field in columns], schema=columns), header=True)
        yield lambda batch: _print(batch, header=False)
        return
    with written_whole(output) as part:
        kind = parquet.ParquetWriter if output.suffix == ".parquet" else arrow_csv.CSVWriter
        with kind(part, columns) as file:
            yield file.write_batch if output.suffix == ".parquet" else file.write


def _print(batch: Any, header: bool) -> None:
    text = pa.BufferOutputStream()
    arrow_csv.write_csv(batch, text, arrow_csv.WriteOptions(include_header=header))
    typer.echo(text.getvalue().to_pybytes().decode(), nl=False)
