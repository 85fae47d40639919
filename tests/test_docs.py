"""The code in README and docs runs, and the figures they state are the code's."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import croupier as cr
from croupier.estimator import BudgetWarning
from croupier.report import local

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/private-sum.md", "docs/optimizer.md", "docs/estimators.md", "docs/statistics.md"])
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
