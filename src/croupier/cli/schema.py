"""`croupier schema`: a first draft of the public facts, from a sample that is public itself."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..files import write_whole
from ..table import Dialect, Source, draft
from .data_options import Decimal, Encoding, Sep
from .files import check_output
from .progress import messages, say

_HEAD = """\
# Public facts for croupier fit. Everything here is taken as known to everybody: no guarantee covers it.
# It was drafted from {sample}, so it is public only if that sample is.
# Read it and correct it: ranges that you can defend without the data (values outside are clipped), all levels
# and classes that may occur (other levels count as none; other classes are refused). Delete what is no feature.
# scale = "log" is for amounts and counts that spread over orders of magnitude.
"""


def schema(
    sample: Annotated[Path, typer.Argument(metavar="SAMPLE", help="A PUBLIC sample, CSV or Parquet: never private records.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    user_column: Annotated[str | None, typer.Option(help="Column that says whose a row is.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the schema goes; otherwise it is printed.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Draft a schema file from a PUBLIC sample: ranges, levels, classes."""
    if output is not None:
        check_output(output, force)
    facts, notes, left_out = draft(Source(sample, Dialect(sep, decimal, encoding)), target, user_column)
    lines = [_HEAD.format(sample=sample.name), facts.to_toml(notes)]
    lines += ["\n# Left out:\n", *(f"# {' '.join(reason.split())}\n" for reason in left_out)] if left_out else []
    text = "".join(lines)
    console = messages()
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_whole(output, text.encode())
    say(
        console,
        "The sample must be public: everything in the schema is taken as known to everybody, and no guarantee covers it. "
        "A sample of the private records is not public.",
        "bold yellow",
    )
    if output is not None:
        say(console, f"Read and correct {output}, then: croupier fit DATA --schema {shlex.quote(str(output))}", "dim")
