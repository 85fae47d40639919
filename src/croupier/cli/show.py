"""`croupier show`: what a model is and what it promises, in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .fit import promise
from .model import TableModel
from .progress import say


def show(model: Annotated[Path, typer.Argument(metavar="MODEL", help="What croupier fit wrote.")]) -> None:
    """Explain a model: who could learn what about whom, and what is assumed."""
    made = TableModel.load(model)
    console = Console()
    say(console, f"{made.task} of {made.schema.target.column!r} from {', '.join(made.schema.columns)}")
    for line in [*promise(made), "", made.estimator.explain()]:
        say(console, line)
