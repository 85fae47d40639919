"""The code in README and docs runs, and the figures they state are the code's."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

import croupier as cr
from benchmarks.command import read
from benchmarks.paths import RESULTS
from benchmarks.protocol import benchmark
from croupier.estimator import BudgetWarning
from croupier.report import local

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/private-sum.md", "docs/optimizer.md", "docs/estimators.md", "docs/statistics.md"]
)
def test_python_blocks_run(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)
    assert blocks
    with warnings.catch_warnings():
        warnings.simplefilter("default", BudgetWarning)  # a page fits one model after the other on the same people
        exec("\n".join(blocks), {})


def test_readme_table_is_what_the_code_says():
    text = (ROOT / "README.md").read_text()
    request = {"epsilon": 1.0, "delta": 1e-6, "users": 10_000, "dim": 100}
    tight, loose, paper = (
        cr.plan_sum(**request),
        cr.plan_sum(**request, max_inflation=1.2),
        cr.plan_sum(**request, calibration="paper"),
    )
    assert f"| **Croupier** | **{tight.inflation:.2f}** | **{tight.bits_per_coordinate}** |" in text
    assert f"| {loose.inflation:.2f} | {loose.bits_per_coordinate} |" in text
    assert f"| {paper.inflation:.0f} | {paper.bits_per_coordinate:,}".replace(",", " ") in text
    assert f"| {local(tight).noise_std / tight.central_noise_std:.0f} | 64 | nobody" in text
    assert f"noise {tight.noise_std:.4g} = {tight.inflation:.4g} x central" in text


def test_readme_prints_what_its_first_code_prints(capsys):
    """The guarantee to the letter. The noise is secret: six fits were within 0.01 of 0.821, the tolerance is five times that."""
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S).groups()
    assert sum(bool(line.strip()) for line in code.splitlines()) == 8
    exec(code, {})
    printed, shown = (text.splitlines() for text in (capsys.readouterr().out, output))
    assert printed[1:] == shown[1:]
    assert float(printed[0].split()[1]) == pytest.approx(float(shown[0].split()[1]), abs=0.05)


def test_readme_accuracies_are_the_stored_ones():
    text, stored = (ROOT / "README.md").read_text(), json.loads((ROOT / "benchmarks/results/accuracy.json").read_text())["accuracy"]
    shown = [fit for fit in stored if (fit["rule"], fit["epsilon"], fit["max_inflation"]) == ("practical", 1.0, 1.05)]
    fits = {(fit["task"], fit["interactivity"], fit["lots"]): fit for fit in shown}
    for task, title in (("adult", "Adult, {} people"), ("covtype", "Covertype, {}"), ("mnist10", "MNIST, ten classes, {}")):
        batches, once, always = (fits[task, *how] for how in (("sequential", "open"), ("sequential", "secret"), ("full", "open")))
        name = title.format(f"{once['users']:,}".replace(",", " "))
        bits = [f"{fit['bits_per_user']:,}".replace(",", " ") for fit in (batches, once, always)]
        cells = f"{batches['median']:.3f} ({bits[0]}) | **{once['median']:.3f}** ({bits[1]})"
        assert f"| {name} | {cells} | {always['median']:.3f} ({bits[2]} in {always['rounds']} rounds) |" in text


def test_readme_says_how_much_faster_it_is_as_it_was_measured():
    verdicts = {verdict.what: verdict.measured for verdict in benchmark("peers").judge(read("peers", RESULTS))}
    scikit_learn = float(verdicts["Covertype: scikit-learn's time over that of Croupier sequential"])
    opacus = float(verdicts["Covertype: time of Opacus, as documented, over that of Croupier sequential"])
    text = (ROOT / "README.md").read_text()
    assert f"{math.floor(scikit_learn)} times faster than scikit-learn without privacy" in text
    assert f"{math.floor(opacus)} times faster than Opacus as documented" in text


def test_front_pages_agree():
    """docs/index.md has the tables of the README, to the letter, but for its own links."""
    readme, index = ((ROOT / name).read_text() for name in ("README.md", "docs/index.md"))
    for title in ("Who must trust whom", "Is it for me?", "Limits"):
        section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", readme, flags=re.M | re.S)[1].strip()
        assert section.replace("](docs/", "](") in index, title
    for name in (readme, index):
        assert "`fit` simulates all parties in one process" in name
        assert "`croupier serve` and `croupier join` run" in name


def test_badges_and_citation_say_what_the_package_says():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(package["classifiers"]))
    assert " | ".join(versions) in (ROOT / "docs/badges/python.svg").read_text()
    assert package["license"] in (ROOT / "docs/badges/licence.svg").read_text()
    assert any("Alpha" in line for line in package["classifiers"]) == ("alpha" in (ROOT / "docs/badges/status.svg").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (cr.__version__, package["license"])
    assert f"## {cr.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_accounting_table_is_what_the_code_says():
    rows = re.findall(
        r"^\| ([\d ]+) \| ([\d ]+) \| ([\d ]+) \| (\d+) x \| (\d+) \| (\d+) \| (\d+) \|$",
        (ROOT / "docs/accounting.md").read_text(),
        flags=re.M,
    )
    assert len(rows) == 4
    for row in rows:
        users, dim, paper_bits, paper_noise, *tight_bits = (int(cell.replace(" ", "")) for cell in row)
        request = {"epsilon": 1.0, "delta": 1e-6, "users": users, "dim": dim}
        paper = cr.plan_sum(**request, calibration="paper")
        assert (paper.bits_per_coordinate, round(paper.inflation)) == (paper_bits, paper_noise)
        for limit, bits in zip((1.05, 1.2, 1.5), tight_bits, strict=True):
            assert cr.plan_sum(**request, max_inflation=limit).bits_per_coordinate <= bits


def test_notation_table_names_exist():
    text = (ROOT / "docs/notation.md").read_text()
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    for name in ("users", "dim", "norm", "honest_users", "levels", "noise_bits", "noise_probability", "bits_per_user", "inflation"):
        assert f"`{name}`" in text
        assert hasattr(plan, name)


def test_notation_of_training_names_what_is_there():
    table = (ROOT / "docs/notation.md").read_text().partition("## Training")[2]
    rows = re.findall(r"^\| (\$.*?) \| `(\w+)`.*\| `(\S+)` \|$", table, flags=re.M)
    symbols = " ".join(symbol for symbol, _, _ in rows)
    for symbol in (r"\alpha_t", "L_t", r"\theta_t^{md}", r"\theta_t^{ag}", r"\eta", r"\beta", "D", r"\sigma", r"\lambda"):
        assert symbol in symbols
    assert len(rows) == table.count("\n| $")
    for _, name, path in rows:
        assert re.search(rf"\b{name}\b", inspect.getsource(_resolved(path))), (name, path)


def _resolved(path: str) -> Any:
    """What a dotted path leads to: a module, a class, a method; for a field without a default the class that has it."""
    found, names = cr, path.split(".")
    while names:
        name = names.pop(0)
        if f"{found.__name__}.{name}" in sys.modules:  # before a function of the same name
            found = sys.modules[f"{found.__name__}.{name}"]
        elif hasattr(found, name):
            found = getattr(found, name)
        else:
            assert name in found.__annotations__, path
    return getattr(found, "fget", found)
