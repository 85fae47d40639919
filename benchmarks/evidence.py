"""The evidence on one page, from the stored JSON of the benchmarks that are there: table 1, sum, peers, speed.

    python -m benchmarks evidence [--results DIR] [--out FILE]

Its pictures are in the folder `evidence` beside the page, where the benchmarks put them. By default from benchmarks/results to
docs/evidence.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from .command import FIGURES, linked, read
from .paths import DOCS, RESULTS
from .protocol import Section, benchmark

SECTIONS = {
    "rates": "Table 1: rates",
    "sum": "The mean of private vectors",
    "peers": "Models beside other libraries",
    "speed": "Speed of the training path",
}
OPENING = """\
# Evidence

What is claimed, and what was measured: rates beside the paper's Table 1, the private sum beside other ways to it, models beside
those of other libraries, the speed of training. Every figure on this page comes from stored results; `croupier reproduce all`
measures them again on your machine (`--quick` in minutes, at small sizes), and goes on where it was if you interrupt it.
"""


def page(folder: Path) -> str:
    """Return the page: one section for each benchmark whose JSON is in the folder, its own page with headings one level down."""
    headlines, sections = [], []
    for name, title in SECTIONS.items():
        if not (folder / f"{name}.json").exists():
            sections.append(f"## {title}\n\nNot measured here: `croupier reproduce {'table1' if name == 'rates' else name}`.\n")
            continue
        section, results = cast(Section, benchmark(name)), read(name, folder)
        headlines.append(f"- **{title}**: {section.headline(results)}")
        body = section.page(results).partition("\n")[2].strip()  # without its title
        body = re.sub(r"^(#+) ", r"#\1 ", body, flags=re.M)
        sections.append(f"## {title}\n\n{linked(body, FIGURES)}\n")
    return "\n".join([OPENING, *headlines, "", *sections])


def main(options: Sequence[str]) -> None:
    """Write the page that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__} evidence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the stored JSON")
    parser.add_argument("--out", type=Path, default=DOCS / "evidence.md", help="the page")
    arguments = parser.parse_args(options)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(page(arguments.results))
