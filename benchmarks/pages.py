"""Pages of the documentation that are made of stored results: their command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from .command import FIGURES
from .paths import DOCS, RESULTS

NAMES = ("evidence", "audit")


class Page(Protocol):
    """A module that writes a page; its doc is the help of its command."""

    __doc__: str | None

    def page(self, folder: Path) -> str:
        """Return the page, from the stored JSON in this folder."""

    def pictures(self, folder: Path) -> dict[str, str]:
        """Return pictures that no single benchmark draws, as SVG, by the names of their files."""


def run(name: str, options: Sequence[str]) -> None:
    """Write a page: by default from benchmarks/results, to the file of its name in docs.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    options : sequence of str
        What stands behind the name on the command line.
    """
    chosen = cast(Page, import_module(f".{name}", __package__))
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__} {name}", description=chosen.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the stored JSON")
    parser.add_argument("--out", type=Path, default=DOCS / f"{name}.md", help="the page")
    arguments = parser.parse_args(options)
    text = chosen.page(arguments.results)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    for file, svg in chosen.pictures(arguments.results).items():
        (arguments.out.parent / FIGURES).mkdir(exist_ok=True)
        (arguments.out.parent / FIGURES / file).write_text(svg)
