"""What a benchmark is: a package that offers these names."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

Results = dict[str, Any]
NAMES = (
    "rates",
    "sum",
    "bits",
    "peers",
    "private_statistics",
    "speed",
    "round",
    "accuracy",
    "scale",
    "load",
    "proofs",
    "accountants",
    "ridge_choice",
    "flower",
    "rules",
    "questions",
    "coverage",
)


class Verdict(NamedTuple):
    """One line of what was asked for, and what was found.

    Attributes
    ----------
    what : str
        What was measured.
    limit : str
        What was asked for, in words; empty where `what` says it.
    measured : str
        What was found.
    holds : bool or None
        Whether it is as asked; None where nothing was asked, or nothing was measured.
    """

    what: str
    limit: str
    measured: str
    holds: bool | None


class Benchmark(Protocol):
    """Measuring, judging, writing and drawing, each from what the one before returned; the doc is the help of its command."""

    __doc__: str | None

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add the benchmark's own options."""

    def measure(self, arguments: argparse.Namespace) -> Results:
        """Return all figures; `arguments.folder` is where unfinished work may be kept, `arguments.quick` asks for small sizes."""

    def judge(self, results: Results) -> list[Verdict]:
        """Return what was asked for and whether it holds, from the figures alone."""

    def page(self, results: Results) -> str:
        """Return the figures as Markdown; a picture is linked by the name of its file."""

    def figures(self, results: Results) -> dict[str, str]:
        """Return the pictures as SVG, by the names of their files."""


class Section(Benchmark, Protocol):
    """A benchmark that has a section on the evidence page."""

    def headline(self, results: Results) -> str:
        """Return all of it in one sentence."""

    def summary(self, results: Results) -> str:
        """Return its main table with what must be known to read it, as Markdown below a heading of the second level."""


def benchmark(name: str) -> Benchmark:
    """Return the benchmark of this name; its package, and what that needs, is imported only now."""
    return cast(Benchmark, import_module(f".{name}", __package__))


def no_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: for a benchmark without options of its own."""


def no_verdicts(results: Results) -> list[Verdict]:
    """Return none: for a benchmark of which nothing is asked."""
    return []


def no_figures(results: Results) -> dict[str, str]:
    """Return none: for a benchmark without a picture."""
    return {}
