"""The site: it builds without a warning, its navigation has every page, its reference every public name."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import croupier
from tools import reference
from tools.doctests import fenced

ROOT = Path(__file__).parents[1]
CONFIGURATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def paths(nav: list[object] | dict[str, object] | str) -> list[str]:
    """Return the pages of a navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    return [path for part in (nav.values() if isinstance(nav, dict) else nav) for path in paths(part)]


def test_navigation_lists_every_page_once():
    generated = {f"reference/{name}" for name in reference.pages()}
    listed = paths(CONFIGURATION["nav"])
    assert len(listed) == len(set(listed))
    assert set(listed) == {path.name for path in (ROOT / "docs").glob("*.md")} | generated


def test_reference_has_every_public_name():
    entries = set(re.findall(r"^::: (\S+)$", "\n".join(reference.pages().values()), flags=re.M))
    listed = {entry.rpartition(".")[2] for entry in entries}
    assert {*croupier._ROOMS, "client"} <= {module.split(".")[1] for _, modules in reference.PAGES.values() for module in modules}
    for name in croupier.__all__:
        value = getattr(croupier, name)
        assert (set(reference.public_names(value)) if inspect.ismodule(value) else {name}) <= listed, name
    for entry in entries:
        module, _, name = entry.rpartition(".")
        assert name in vars(import_module(module)) or hasattr(import_module(module), name), entry


def test_examples_in_text_are_fenced_and_sections_are_left_alone():
    text = "What it does.\n\n>>> f(1)  # doctest: +ELLIPSIS\n0.1...\n>>> for i in x:\n...     g(i)\n\nMore."
    fence = "What it does.\n\n\n```pycon\n>>> f(1)\n0.1...\n>>> for i in x:\n...     g(i)\n```\n\nMore."
    assert fenced(text) == fence
    section = "What it does.\n\nExamples\n--------\n>>> f(1)\n1\n"
    assert fenced(section) == section


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_relative_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)|(?:src|srcset|href)=\"([^\"#]+)", text):
        link = target[0] or target[1]
        if not link.startswith(("http:", "https:", "mailto:", "reference/")):
            assert (ROOT / page).parent.joinpath(link).exists(), f"{page}: {link}"


@pytest.mark.process
def test_site_builds_without_a_warning_and_asks_nobody(tmp_path):
    for name in ("docs", "examples", "tools", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "reference"))
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for name, text in reference.pages().items():
        (tmp_path / "docs" / "reference").mkdir(exist_ok=True)
        (tmp_path / "docs" / "reference" / name).write_text(text)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stdout + built.stderr
    page = (tmp_path / "site" / "reference" / "optimizer" / "index.html").read_text()
    assert page.count('class="doc doc-object doc-function"') >= 5  # minimize, schedule: functions, not modules
    assert "<blockquote" not in page
    estimators = (tmp_path / "site" / "reference" / "estimator" / "index.html").read_text()
    assert estimators.count("Steps are in proportion to it") == 5  # every linear model explains its parameters
    for written in (tmp_path / "site").rglob("index.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?://[^\"> ]+)", written.read_text())
        assert not loaded, written
        for emphasised in re.findall(
            r"<em>(.*?)</em>", written.read_text(), flags=re.S
        ):  # `_` and `*` of a formula are not emphasis
            assert not re.search(r"^\W|=|&[lg]t;", emphasised), (written, emphasised)
            assert emphasised.count("(") == emphasised.count(")"), (written, emphasised)
    notation = (tmp_path / "site" / "deviations" / "index.html").read_text()
    assert "<math" in notation
    assert "$" not in re.sub(r"<script.*?</script>", "", notation, flags=re.S)
