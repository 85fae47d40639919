"""`croupier evaluate`: how well a model does on records whose target is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..table import Dialect, Source, TableModel, evaluate_table
from .data_options import Decimal, Encoding, Sep
from .progress import Shown, messages, say

_REMINDER = (
    "These scores are about the people in this file. If they are private, they are releases that the guarantee does not cover."
    " Look at them, and do not publish them."
)


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet with the feature columns and the target.")],
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare a model's predictions with the truth: accuracy and log-loss, or errors in the target's unit."""
    table_model = TableModel.load(model)
    console = messages()
    watcher = Shown(console, shown=console.is_terminal and not as_json)
    rows, scores = evaluate_table(table_model, Source(data, Dialect(sep, decimal, encoding)), watcher=watcher)
    if as_json:
        typer.echo(json.dumps({"rows": rows} | scores, indent=2))
    else:
        _show(table_model, scores, rows)
    say(console, _REMINDER, "yellow")


def _show(model: TableModel, scores: dict[str, float], rows: int) -> None:
    console, table = Console(), Table()
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:.4g}")
    say(console, f"{model.task} of {model.schema.target.column!r} on {rows:,} rows")
    console.print(table)
