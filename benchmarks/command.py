"""The command line of every benchmark: measure or read, print, store, judge."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from .paths import DOCS, RESULTS
from .protocol import Benchmark, Results, benchmark

FIGURES = "evidence"
# What is shown of a benchmark beside its own figures: under which word, of which other one, which part.
BESIDE = {"peers": ("defaults", "accuracy", "estimators")}


def run(name: str, options: Sequence[str]) -> None:
    """Run one benchmark. Exit with 1 where a whole run finds less than was asked for; a quick one is not judged.

    Parameters
    ----------
    name : str
        One of `protocol.NAMES`.
    options : sequence of str
        What stands behind the name on the command line.
    """
    chosen = benchmark(name)
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__} {name}", description=chosen.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for the results (default, in a checkout: benchmarks/results)")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes and few runs; nothing is judged, and stored only with --out"
    )
    parser.add_argument("--redraw", action="store_true", help=f"only text and figure, from the stored {name}.json")
    chosen.options(parser)
    arguments = parser.parse_args(options)
    if arguments.out is None and not RESULTS.exists():
        parser.error("--out is needed: the folder for the results")
    arguments.folder, arguments.error = arguments.out or RESULTS, parser.error
    results = read(name, arguments.folder) if arguments.redraw else chosen.measure(arguments) | beside(name, arguments.folder)
    print(chosen.page(results))
    if arguments.out or not arguments.quick:
        store(name, results, arguments.folder)
        write(name, chosen, results, arguments.folder)
    missed = [verdict.what for verdict in chosen.judge(results) if verdict.holds is False]
    if missed and not (arguments.quick or results.get("quick")):
        sys.exit("missed: " + "; ".join(missed))


def read(name: str, folder: Path) -> Results:
    """Return what is stored of a benchmark, and what is shown beside it."""
    results: Results = json.loads((folder / f"{name}.json").read_text())
    return results | beside(name, folder)


def beside(name: str, folder: Path) -> Results:
    """Return figures of another benchmark that are shown beside this one's; they are stored with the other."""
    word, other, part = BESIDE.get(name, ("", "", ""))
    path = folder / f"{other}.json"
    return {word: json.loads(path.read_text())[part]} if word and path.exists() else {}


def store(name: str, results: Results, folder: Path) -> None:
    """Store a benchmark's own figures."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {key: value for key, value in results.items() if key != BESIDE.get(name, ("",))[0]}
    (folder / f"{name}.json").write_text(json.dumps(own, indent=1) + "\n")


def write(name: str, chosen: Benchmark, results: Results, folder: Path) -> None:
    """Write a benchmark's text, and its pictures where the evidence page shows them."""
    pictures = DOCS / FIGURES if folder == RESULTS else folder / FIGURES
    (folder / f"{name}.md").write_text(linked(chosen.page(results), os.path.relpath(pictures, folder)))
    for file, svg in chosen.figures(results).items():
        pictures.mkdir(parents=True, exist_ok=True)
        (pictures / file).write_text(svg)


def linked(text: str, pictures: str) -> str:
    """Return the text with links to pictures in this folder."""
    return re.sub(r"\]\((\w+\.svg)\)", rf"]({Path(pictures).as_posix()}/\1)", text)
