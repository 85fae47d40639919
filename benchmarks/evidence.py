"""The evidence on one page, from the stored JSON of the benchmarks that are there: table 1, sum, peers, statistics, speed.

    python -m benchmarks evidence [--results DIR] [--out FILE]

Its pictures are in the folder `evidence` beside the page, where the benchmarks put them. By default from benchmarks/results to
docs/evidence.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from .command import FIGURES, linked, read
from .pages import section
from .protocol import Section, benchmark

SECTIONS = {
    "rates": "Table 1: rates",
    "sum": "The mean of private vectors",
    "peers": "Models beside other libraries",
    "private_statistics": "Statistics in one round",
    "speed": "Speed of the training path",
}
# Benchmarks that `croupier reproduce` knows by another word.
WORDS = {"rates": "table1", "private_statistics": "statistics"}
OPENING = """\
# Evidence

What is claimed, and what was measured: rates beside the paper's Table 1, the private sum beside other ways to it, models beside
those of other libraries, regression and evaluation in one round, the speed of training. Every figure on this page comes from
stored results; `croupier reproduce all` measures them again on your machine (`--quick` in minutes, at small sizes; models and
statistics need `--data`, a folder with their data sets), and goes on where it was if you interrupt it.
"""


def page(folder: Path) -> str:
    """Return the page: one section for each benchmark whose JSON is in the folder, its own page with headings one level down."""
    headlines, sections = [], []
    for name, title in SECTIONS.items():
        if not (folder / f"{name}.json").exists():
            sections.append(f"## {title}\n\nNot measured here: `croupier reproduce {WORDS.get(name, name)}`.\n")
            continue
        chosen, results = cast(Section, benchmark(name)), read(name, folder)
        headlines.append(f"- **{title}**: {chosen.headline(results)}")
        sections.append(linked(section(title, chosen.page(results)), FIGURES))
    return "\n".join([OPENING, *headlines, "", *sections])
