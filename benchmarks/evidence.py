"""The evidence on one page, from the stored JSON of the benchmarks that are there: table 1, sum, peers, statistics, speed.

    python -m benchmarks evidence [--results DIR] [--out FILE]

Its pictures are in the folder `evidence` beside the page, where the benchmarks put them; the front page's, of peers and of the
estimators as they come (`accuracy`), is drawn here. By default from benchmarks/results to docs/evidence.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from .command import FIGURES, linked, read
from .paths import RESULTS
from .protocol import Section, benchmark
from .tables import table

SECTIONS = {
    "rates": "Table 1: rates",
    "sum": "The mean of private vectors",
    "peers": "Models beside other libraries",
    "private_statistics": "Statistics in one round",
    "flower": "A network across devices",
    "speed": "Speed of the training path",
}
# Benchmarks that `croupier reproduce` knows by another word.
WORDS = {"rates": "table1", "private_statistics": "statistics"}
OPENING = """\
# Evidence

Every figure comes from stored results. `croupier reproduce all` measures them again (`--quick`: small sizes, in minutes; models,
statistics and the network need `--data`, a folder with their data sets); an interrupted run resumes.
"""
ALSO = "## Also measured\n\nBy `python -m benchmarks NAME`; the pages are in `benchmarks/results`.\n"
# Measured as well, by `python -m benchmarks NAME`; their pages are stored beside the JSON.
OTHERS = {
    "accuracy": "test accuracy and bits on Adult, Covertype and MNIST: secret lots, the paper's batches, every round",
    "bits": "what a person sends, with and without rotation, by each transport",
    "round": "noise and bits of one sum over a grid; planning time",
    "scale": "many users: throughput beside plain numpy, on Ray, memory",
    "load": "the deployed roles under load, and after kill -9",
    "proofs": "fast certificates compared with ball arithmetic",
    "rules": "how the practical rule was chosen, on held-out rows",
    "questions": "unknown words beside local privacy, joint tables, counts over time",
    "coverage": "how often 95 % intervals hold the truth, on real tables and with rare levels",
    "ridge_choice": "which way `ShuffleRidge` takes",
}


def page(folder: Path) -> str:
    """Return the page: one section for each benchmark whose JSON is in the folder, then where everything else is."""
    where, sections = "benchmarks/results/" if folder == RESULTS else "", []
    for name, title in SECTIONS.items():
        command = f"`croupier reproduce {WORDS.get(name, name)}`"
        if not (folder / f"{name}.json").exists():
            sections.append(f"## {title}\n\nNot measured here: {command}.\n")
            continue
        chosen, results = cast(Section, benchmark(name)), read(name, folder)
        text = f"## {title}\n\n{chosen.headline(results)}\n\n{linked(chosen.summary(results), FIGURES).strip()}\n"
        sections.append(f"{text}\nMeasured again by {command}; in full: `{where}{name}.md`.\n")
    rows = [(f"`{name}`", what) for name, what in OTHERS.items()]
    return "\n".join([OPENING, *sections, ALSO, table(("NAME", "what"), rows)])


def pictures(folder: Path) -> dict[str, str]:
    """Return the front page's picture, where what it shows is stored in the folder."""
    drawn: dict[str, str] = cast(Any, benchmark("peers")).front(read("peers", folder)) if (folder / "peers.json").exists() else {}
    return drawn
