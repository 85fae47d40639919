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

from ..estimator import PrivacyAccount
from ..statistics import evaluate as evaluate_privately
from ..table import Encoder, Source
from ..validation import ArgumentError
from .model import TableModel
from .progress import counted, messages, say

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
    delta: Annotated[float | None, typer.Option(help="With --epsilon; 1e-6, or a tenth of 1 / users, unless given.")] = None,
    honest: Annotated[float, typer.Option(help="With --epsilon: fraction of people trusted to add their noise.")] = 1.0,
    account: Annotated[Path | None, typer.Option(help="With --epsilon: a file that counts what is spent on these people.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare a model's predictions with the truth, beside the best constant answer: scores of a classifier, or errors.

    With --epsilon in one private round, with error bars; without, as they are, NOT private.
    """
    made = TableModel.load(model)
    if epsilon is not None:
        _private(made, data, epsilon, delta, honest, account, as_json)
        return
    if delta is not None or account is not None:
        name = "--delta" if delta is not None else "--account"
        raise ArgumentError(name, delta or str(account), "given with --epsilon only", "Without --epsilon nothing is private.")
    source, encoder = Source(data), Encoder(made.schema)
    types = encoder.types(target=True)
    source.require(list(types))
    console = messages()
    totals: dict[str, float] = {}
    truths, rows = [], 0
    pieces = source.pieces(types, most=max(1, (1 << 20) // len(encoder.names)))
    for piece in counted(pieces, data.name, console, shown=console.is_terminal and not as_json):
        truths.append(encoder.targets(piece))
        for name, value in _losses(made, encoder.rows(piece), truths[-1]).items():
            totals[name] = totals.get(name, 0.0) + float(value.sum())
        rows += len(piece)
    if not rows:
        raise ArgumentError("DATA", f"no rows in {source.path}", "at least one row", "Check the file.")
    scores = {name: total / rows for name, total in totals.items()}
    if "rmse" in scores:
        scores["rmse"] = float(np.sqrt(scores["rmse"]))
    constant = _constant(made, np.concatenate(truths))
    if as_json:
        typer.echo(json.dumps({"rows": rows} | scores | {"constant answer": constant, "private": False}, indent=2))
    else:
        _show(made, scores, constant, rows)
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


def _constant(model: TableModel, truth: NDArray[Any]) -> dict[str, float]:
    """What the best constant answer would have: the commonest class, the median, the mean."""
    if not model.classifies:
        middle = float(np.median(truth))
        found = {"mae": float(np.abs(truth - middle).mean()), "rmse": float(truth.std())}
        quantile = getattr(model.estimator, "quantile", None)
        if quantile is not None:
            error = truth - np.quantile(truth, quantile)
            found["pinball"] = float(np.maximum(quantile * error, (quantile - 1) * error).mean())
        return found
    shares = np.unique(truth, return_counts=True)[1] / len(truth)
    return {"accuracy": float(shares.max()), "log_loss": float(-(shares @ np.log(shares)))}


def _private(
    model: TableModel, data: Path, epsilon: float, delta: float | None, honest: float, account: Path | None, as_json: bool
) -> None:
    """Everybody in the file is asked once."""
    source, encoder = Source(data), Encoder(model.schema)
    types = encoder.types(target=True, user=True)
    source.require(list(types))
    rows, targets, users = [], [], []
    for piece in source.pieces(types):
        rows.append(encoder.rows(piece))
        targets.append(encoder.targets(piece))
        users.append(encoder.users(piece))
    if not rows:
        raise ArgumentError("DATA", f"no rows in {source.path}", "at least two people", "Check the file.")
    groups = None if users[0] is None else np.concatenate([u for u in users if u is not None])
    X, y = np.concatenate(rows), np.concatenate(targets)
    people = len(X) if groups is None else len(np.unique(groups))
    found = evaluate_privately(
        model.estimator,
        (X, y),
        epsilon=epsilon,
        delta=min(1e-6, 0.1 / people) if delta is None else delta,
        honest=honest,
        groups=groups,
        account=None if account is None else PrivacyAccount(account),
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        say(Console(), f"{model.task} of {model.schema.target.column!r}")
        typer.echo(str(found))


def _show(model: TableModel, scores: dict[str, float], constant: dict[str, float], rows: int) -> None:
    console, table = Console(), Table()
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("constant answer", justify="right")
    for name, value in scores.items():
        table.add_row(name, f"{value:.4g}", f"{constant[name]:.4g}" if name in constant else "")
    say(console, f"{model.task} of {model.schema.target.column!r} on {rows:,} rows")
    console.print(table)
