"""`croupier evaluate`: how well a model does on records whose target is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ..table import Dialect, Encoder, Source
from ..validation import ArgumentError
from .data_options import Decimal, Encoding, Sep
from .model import TableModel
from .progress import counted, messages, say

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
    made = TableModel.load(model)
    source, encoder = Source(data, Dialect(sep, decimal, encoding)), Encoder(made.schema)
    types = encoder.types(target=True)
    source.require(list(types))
    console = messages()
    totals: dict[str, float] = {}
    rows = 0
    pieces = source.pieces(types, most=max(1, (1 << 20) // len(encoder.names)))
    for piece in counted(pieces, data.name, console, shown=console.is_terminal and not as_json):
        for name, value in _losses(made, encoder.rows(piece), encoder.targets(piece)).items():
            totals[name] = totals.get(name, 0.0) + float(value.sum())
        rows += len(piece)
    if not rows:
        raise ArgumentError("DATA", f"no rows in {source.path}", "at least one row", "Check the file.")
    scores = {name: total / rows for name, total in totals.items()}
    if "rmse" in scores:
        scores["rmse"] = float(np.sqrt(scores["rmse"]))
    if as_json:
        typer.echo(json.dumps({"rows": rows} | scores, indent=2))
    else:
        _show(made, scores, rows)
    say(console, _REMINDER, "yellow")


def _losses(model: TableModel, rows: Any, truth: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """One loss per row and score; scores are their means (the square's root for rmse)."""
    estimator = model.estimator
    if not model.classifies:
        error = truth - estimator.predict(rows)
        losses = {"mae": np.abs(error), "rmse": error**2}
        quantile = getattr(estimator, "quantile", None)
        return losses if quantile is None else losses | {"pinball": np.maximum(quantile * error, (quantile - 1) * error)}
    losses = {"accuracy": (estimator.predict(rows) == truth).astype(np.float64)}
    if hasattr(estimator, "predict_proba"):
        likely = estimator.predict_proba(rows)[np.arange(len(truth)), np.searchsorted(estimator.classes_, truth)]
        losses["log_loss"] = -np.log(np.maximum(likely, np.finfo(np.float64).tiny))
    return losses


def _show(model: TableModel, scores: dict[str, float], rows: int) -> None:
    console, table = Console(), Table()
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:.4g}")
    say(console, f"{model.task} of {model.schema.target.column!r} on {rows:,} rows")
    console.print(table)
