"""The evidence on one page, from the stored JSON of the benchmarks that are there: table 1, sum, peers, speed.

    python benchmarks/page.py [--results DIR] [--out FILE]

Figures are copied to the folder `evidence` beside the page. By default from benchmarks/results to docs/evidence.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent
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


def page(results: Path) -> str:
    """One section for each benchmark whose JSON is in the folder: its own page, headings one level down."""
    short, sections = [], []
    for name, title in SECTIONS.items():
        stored = results / f"{name}.json"
        if not stored.exists():
            sections.append(f"## {title}\n\nNot measured here: `croupier reproduce {'table1' if name == 'rates' else name}`.\n")
            continue
        benchmark, found = importlib.import_module(name), json.loads(stored.read_text())
        if hasattr(benchmark, "headline"):
            short.append(f"- **{title}**: {benchmark.headline(found)}")
        written = getattr(benchmark, "markdown", None) or benchmark.as_markdown  # either name is in use
        body = written(found).partition("\n")[2].strip()  # without its title
        body = re.sub(r"^(#+) ", r"#\1 ", body, flags=re.M)
        sections.append(f"## {title}\n\n{figures_beside(body)}\n")
    return "\n".join([OPENING, *short, "", *sections])


def figures_beside(text: str) -> str:
    """Figures are in the folder `evidence` beside the page."""
    return re.sub(r"\]\((\w+\.svg)\)", r"](evidence/\1)", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder with the stored JSON")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "evidence.md", help="the page")
    arguments = parser.parse_args()
    text = page(arguments.results)
    figures = arguments.out.parent / "evidence"
    figures.mkdir(parents=True, exist_ok=True)
    for name in re.findall(r"\]\(evidence/(\w+\.svg)\)", text):
        shutil.copyfile(arguments.results / name, figures / name)
    arguments.out.write_text(text)


if __name__ == "__main__":
    main()
