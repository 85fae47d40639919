"""docs/evidence.md is what the stored results generate, with or without every benchmark."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import page

ROOT = Path(__file__).parents[2]
RESULTS, DOCS = ROOT / "benchmarks" / "results", ROOT / "docs"


def test_page_and_figures_are_those_of_the_stored_results():
    text = (DOCS / "evidence.md").read_text()
    assert text == page.page(RESULTS)
    figures = re.findall(r"\]\(evidence/(\S+)\)", text)
    assert {"rates.svg", "sum.svg", "peers.svg"} <= set(figures)
    for name in figures:
        assert (DOCS / "evidence" / name).read_bytes() == (RESULTS / name).read_bytes()


def test_what_is_not_there_is_said(tmp_path):
    empty = page.page(tmp_path)
    for name in ("table1", "sum", "peers", "speed"):
        assert f"`croupier reproduce {name}`" in empty
    shutil.copy(RESULTS / "sum.json", tmp_path)
    some = page.page(tmp_path)
    assert "`croupier reproduce table1`" in some
    assert "### Where Croupier loses" in some
    assert some.count("\n# ") == 0


def test_page_is_in_the_navigation_and_the_readme():
    assert "evidence.md" in (ROOT / "mkdocs.yml").read_text()
    assert "docs/evidence.md" in (ROOT / "README.md").read_text()
