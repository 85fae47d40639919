"""`croupier show`: what a model is and what it promises, in plain words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..estimator import PrivacyAccount
from ..estimator.account import is_account
from ..report import described_lines, promise_lines, summaries_of
from ..table import INTERVALS, TableModel
from .fit import model_figures
from .progress import say
from .report import load_any


def show(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote, or save() of an estimator; or a file of --account.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Explain a model: who could learn what about whom, and what is assumed; or an account: what was spent on whom."""
    if is_account(model):
        _show_account(PrivacyAccount(model), as_json)
        return
    estimator, schema = load_any(model)
    if schema is None:
        _show_estimator(estimator, as_json)
        return
    table_model = TableModel(schema, estimator)
    if as_json:
        described = {"schema": table_model.schema.to_dict(), "explained": table_model.estimator.explain()}
        typer.echo(json.dumps(model_figures(table_model, model) | described, indent=2))
        return
    console = Console()
    facts = table_model.schema
    say(console, f"{table_model.task} of {facts.target.column!r} from {', '.join(facts.columns)}")
    promises = [*promise_lines(table_model.estimator), *described_lines(facts, table_model.estimator)]
    if table_model.task in INTERVALS:
        typer.echo(f"\n{table_model.summary()}\n")
    for line in [*promises, "", table_model.estimator.explain()]:
        say(console, line)


def _show_account(account: PrivacyAccount, as_json: bool) -> None:
    """What was spent, release by release, and what it comes to for whom."""
    if as_json:
        typer.echo(json.dumps(account.to_dict(), indent=2))
        return
    say(Console(), "Each fit alone:")
    for number, spent in enumerate(account.fits, start=1):
        whom = "everybody" if spent.part is None else str(spent.part)
        promise = "NOT PRIVATE" if spent.guarantee is None else str(spent.guarantee)
        say(Console(), f"{number}. {spent.what}, {spent.users:,} users ({spent.unit}), counted on {whom}: {promise}")
    say(Console(), f"All of them together: {account}")


def _show_estimator(estimator: Any, as_json: bool) -> None:
    """An estimator that was saved from Python: its tables of coefficients, where it has them, and what it promises."""
    tables = summaries_of(estimator)
    if as_json:
        rows = {"coefficients": [table.to_dict() for table in tables]} if tables else {}
        typer.echo(json.dumps({"kind": type(estimator).__name__, **rows, "explained": estimator.explain()}, indent=2))
        return
    for text in [*(f"{table}\n" for table in tables), estimator.explain()]:
        say(Console(), text)
