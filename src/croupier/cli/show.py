"""`croupier show`: what a model is and what it promises, in plain words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .fit import model_figures, promise
from .model import TableModel
from .progress import say


def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Explain a model: who could learn what about whom, and what is assumed."""
    made = TableModel.load(model)
    if as_json:
        figures = model_figures(made, model) | {"schema": made.schema.to_dict(), "explained": made.estimator.explain()}
        typer.echo(json.dumps(figures, indent=2))
        return
    console = Console()
    say(console, f"{made.task} of {made.schema.target.column!r} from {', '.join(made.schema.columns)}")
    for line in [*promise(made), "", made.estimator.explain()]:
        say(console, line)
