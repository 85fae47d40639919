"""Options of every command that reads data: how CSV files write their values."""

from __future__ import annotations

from typing import Annotated

import typer

Sep = Annotated[str | None, typer.Option("--sep", help="What separates values in CSV: ';', tab, ...; a comma unless given.")]
Decimal = Annotated[str, typer.Option("--decimal", help="Decimal mark of numbers in CSV: . or ,")]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of CSV; files from Windows often have cp1252.")]
