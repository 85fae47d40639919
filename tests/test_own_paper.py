"""Our own paper reads its figures from stored results, and compiles where Typst is installed."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = (ROOT / "docs/paper/paper.typ").read_text()
JOSS = (ROOT / "docs/paper/joss.md").read_text()
BIBLIOGRAPHY = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "docs/paper/references.bib").read_text(), flags=re.M))
TYPST = shutil.which("typst") or importlib.util.find_spec("typst")


def test_every_result_that_it_names_is_stored():
    names = re.findall(r'stored\("(\w+)"\)', SOURCE)
    assert {"sum", "accuracy", "peers", "bits", "audit"} <= set(names)
    assert all((ROOT / "benchmarks/results" / f"{name}.json").exists() for name in names)


def prose(source: str) -> str:
    """The text without formulas and without code: from a #, names and brackets with all that is in them."""
    source, text, at = re.sub(r"\$[^$]*\$", "", source), "", 0
    while (start := source.find("#", at)) >= 0:
        text, at = text + source[at:start], start
        while found := re.compile(r"#?(?:let )?[\w.-]+(?: = )?|\(").match(source, at):
            at = found.end()
            depth = int(found[0] == "(")
            while depth:
                depth += {"(": 1, ")": -1}.get(source[at], 0)
                at += 1
        at = max(at, start + 1)
    return text + source[at:]


def test_no_measured_figure_is_typed():
    """Decimals stand in code alone: in the text they would be figures."""
    text = prose(SOURCE.partition("#align(center)")[2])
    assert "closes most of both gaps" in text
    assert "reaches an accuracy of" in text
    assert re.findall(r"\b\d+\.\d+\b", text) == []


@pytest.mark.parametrize("text", [SOURCE, JOSS], ids=["paper", "joss"])
def test_every_citation_is_in_the_bibliography(text):
    cited = {name for name in re.findall(r"(?<![\w/])@([a-z]+\d*)\b", text) if name != "tab"}
    assert len(cited) >= 5
    assert cited <= BIBLIOGRAPHY


def test_joss_has_about_a_thousand_words():
    assert 700 <= len(JOSS.split()) <= 1300


@pytest.mark.process
def test_it_compiles_or_says_what_to_install(tmp_path):
    out = tmp_path / "paper.pdf"
    done = subprocess.run(
        [sys.executable, ROOT / "tools/paper.py", "--out", out], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    if TYPST:
        assert done.returncode == 0, done.stderr
        assert out.read_bytes().startswith(b"%PDF")
    else:
        assert done.returncode != 0
        assert "pip install typst" in done.stderr
