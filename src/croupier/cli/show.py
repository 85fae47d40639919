"""`croupier show`: what a model is and what it promises, in plain words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..report import described_lines, promise_lines
from ..table import TableModel
from .fit import model_figures
from .progress import say


def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Explain a model: who could learn what about whom, and what is assumed."""
    table_model = TableModel.load(model)
    if as_json:
        described = {"schema": table_model.schema.to_dict(), "explained": table_model.estimator.explain()}
        typer.echo(json.dumps(model_figures(table_model, model) | described, indent=2))
        return
    console = Console()
    facts = table_model.schema
    say(console, f"{table_model.task} of {facts.target.column!r} from {', '.join(facts.columns)}")
    promises = [*promise_lines(table_model.estimator), *described_lines(facts, table_model.estimator)]
    for line in [*promises, "", table_model.estimator.explain()]:
        say(console, line)
