"""`croupier evaluate`: how well a model does on people whom it has not seen, beside the best constant answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..estimator import PrivacyAccount
from ..table import Dialect, Source, TableModel, evaluate_privately, evaluate_table
from ..validation import ArgumentError
from .data_options import Decimal, Encoding, Sep
from .progress import Shown, messages, say

_REMINDER = (
    "NOT PRIVATE: these scores are about the people in this file, releases that the model's guarantee does not cover. Look at"
    " them, and do not publish them. With --epsilon the scores are private, and have error bars."
)


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet with the feature columns and the target.")],
    epsilon: Annotated[
        float | None, typer.Option(help="Ask the people in DATA privately, with this privacy loss; otherwise NOT private.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="With --epsilon. Default: 1e-6, or 0.1 / users if that is less.")] = None,
    honest: Annotated[float, typer.Option(help="With --epsilon: fraction of people trusted to add their noise.")] = 1.0,
    account: Annotated[Path | None, typer.Option(help="With --epsilon: a file that counts what is spent on these people.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare a model's predictions with the truth, beside the best constant answer: scores of a classifier, or errors.

    With --epsilon in one private round, with error bars; without, as they are, NOT private.
    """
    table_model, source, console = TableModel.load(model), Source(data, Dialect(sep, decimal, encoding)), messages()
    watcher = Shown(console, shown=console.is_terminal and not as_json)
    if epsilon is not None:
        counted = None if account is None else PrivacyAccount(account)
        scores = evaluate_privately(
            table_model, source, epsilon=epsilon, delta=delta, honest=honest, account=counted, watcher=watcher
        )
        if as_json:
            typer.echo(json.dumps(scores.to_dict(), indent=2))
        else:
            say(Console(), f"{table_model.task} of {table_model.schema.target.column!r}")
            typer.echo(str(scores))
        return
    if delta is not None or account is not None:
        name = "--delta" if delta is not None else "--account"
        raise ArgumentError(name, delta or str(account), "given with --epsilon only", "Without --epsilon nothing is private.")
    comparison = evaluate_table(table_model, source, watcher=watcher)
    if as_json:
        plain = {"rows": comparison.rows} | comparison.scores
        typer.echo(json.dumps(plain | {"constant answer": comparison.constant, "private": False}, indent=2))
    else:
        _show(table_model, comparison.scores, comparison.constant, comparison.rows)
    say(console, _REMINDER, "yellow")


def _show(model: TableModel, scores: dict[str, float], constant: dict[str, float], rows: int) -> None:
    console, table = Console(), Table()
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("constant answer", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:.4g}", f"{constant[name]:.4g}" if name in constant else "")
    say(console, f"{model.task} of {model.schema.target.column!r} on {rows:,} rows")
    console.print(table)
