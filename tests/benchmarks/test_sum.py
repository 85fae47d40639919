"""The benchmark `sum`: Croupier's stated error by the protocol itself, a run from end to end, and the page against its figures."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

import croupier as cr
from benchmarks.command import linked
from benchmarks.sum import drawing, judging, measuring, writing

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "results" / "sum.json"


@pytest.fixture(scope="module")
def results():
    return json.loads(STORED.read_text())


def quick(folder):
    command = [sys.executable, "-m", "benchmarks", "sum", "--quick", "--out", str(folder), "--processes", "1"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.process
@pytest.mark.slow
def test_quick_run_twice_gives_the_same_files(tmp_path):
    runs = [quick(tmp_path / name) for name in ("one", "two")]
    for done in runs:
        assert done.returncode == 0, done.stderr
        assert "A quick run" in done.stdout
    for name in ("sum.json", "sum.md", "evidence/sum.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    found = json.loads((tmp_path / "one" / "sum.json").read_text())
    assert [(at["epsilon"], at["users"], at["dim"]) for at in found["cells"]] == measuring.QUICK_GRID
    assert found["quick"]
    again = quick(tmp_path / "one")
    assert "6 of 6 cells are there already" in again.stderr
    assert again.stdout == runs[0].stdout


def test_measured_error_is_what_is_stated():
    # unit vectors round at less than the worst: the sum of squares, nearly chi-square, is in a band at 1e-6, at most a tenth below
    users, dim, runs = 500, 20, 60
    found = measuring.measured(1.0, users, dim, runs)
    stated = measuring.stated(1.0, users, dim)[measuring.OURS]["error"]
    assert found["stated"] == stated
    low, high = chi2.ppf([5e-7, 1 - 5e-7], runs * dim) / (runs * dim)
    assert 0.9**2 * low < (found["error"] / stated) ** 2 < high
    assert found["interval"][0] < found["error"] < found["interval"][1]


def test_interval_covers_a_known_error():
    rng, runs, dim = np.random.default_rng(0), 30, 20
    squares = np.sum(rng.normal(size=(2000, runs, dim)) ** 2, axis=2)  # errors of true root mean square sqrt(dim)
    ends = np.array([measuring.interval(list(one), dim) for one in squares])
    covered = np.mean((ends[:, 0] <= math.sqrt(dim)) & (math.sqrt(dim) <= ends[:, 1]))
    # 2 000 intervals at 99 %: five standard errors
    assert abs(covered - measuring.CONFIDENCE) < 5 * math.sqrt(0.99 * 0.01 / 2000)


def test_unit_vectors_are_of_length_one():
    vectors = measuring.unit_vectors(100, 7)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_figures_of_the_plan_are_the_plan():
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=10, rotation=None)
    found = measuring.stated(1.0, 1000, 10)
    assert found[measuring.OURS]["error"] == pytest.approx(plan.noise_std * math.sqrt(10) / 1000)
    assert found[measuring.OURS]["bits"] == plan.bits_per_user
    packed = 10 * math.ceil(math.log2(1000 * (plan.levels + plan.noise_bits) + 1))
    assert found[measuring.MASKED] == found[measuring.OURS] | {"bits": packed, "modulus_bits": packed // 10}
    assert found[measuring.CENTRAL]["error"] == pytest.approx(plan.central_noise_std * math.sqrt(10) / 1000)
    assert found[measuring.PAPER]["error"] > 100 * plan.noise_std * math.sqrt(10) / 1000


def test_what_the_paper_does_not_cover_is_said():
    found = measuring.stated(20.0, 1000, 10)
    assert "refused" in found[measuring.PAPER]
    cell = {"epsilon": 20.0, "users": 1000, "dim": 10, "methods": found}
    assert "| not covered |" in writing.grid_table({"cells": [cell]}, "error")


def test_a_measured_error_above_the_stated_one_is_noticed():
    within = {"stated": 1.0, "interval": [0.9, 1.2]}
    above = {"stated": 1.0, "interval": [1.01, 1.2]}
    assert judging.excessive({"measured": [within, above]}) == [above]
    runs = [run | {"epsilon": 1.0, "users": 100, "dim": 2, "error": 1.1} for run in (within, above)]
    assert [verdict.holds for verdict in judging.judge({"measured": runs})] == [True, False]


def test_stored_page_follows_from_stored_figures(results):
    assert not results["quick"]
    assert linked(writing.page(results), "../../docs/evidence") == STORED.with_suffix(".md").read_text()
    assert [(at["epsilon"], at["users"], at["dim"]) for at in results["cells"]] == measuring.GRID
    assert [(at["epsilon"], at["users"], at["dim"], at["runs"]) for at in results["measured"]] == measuring.RUNS
    assert judging.excessive(results) == []


@pytest.mark.parametrize("place", [0, 13, 22, 35])
def test_stored_figures_are_what_the_code_gives(results, place):
    at = results["cells"][place]
    found = measuring.stated(at["epsilon"], at["users"], at["dim"])
    for name in measuring.METHODS:
        assert found[name] == pytest.approx(at["methods"][name], rel=1e-6), name


def test_what_the_page_says_in_words_holds(results):
    ours = {(at["epsilon"], at["dim"], at["users"]): at["methods"][measuring.OURS]["bits"] for at in results["cells"]}
    enough = {key: at["methods"][measuring.SKELLAM_ENOUGH]["modulus_bits"] for key, at in zip(ours, results["cells"], strict=True)}
    for epsilon, dim in {(key[0], key[1]) for key in ours}:
        # "nearly like sqrt(n)" and "like log n": from 100 000 to a million users
        growth = math.log10(ours[epsilon, dim, 10**6] / ours[epsilon, dim, 10**5])
        assert 0.35 < growth < 0.55
        # a factor of ten is 3.3 bits
        assert 3 <= enough[epsilon, dim, 10**6] - enough[epsilon, dim, 10**5] <= 5
    for at in results["cells"]:
        methods = at["methods"]
        assert methods[measuring.OURS]["error"] <= 1.05 * methods[measuring.CENTRAL]["error"]
        assert methods[measuring.SKELLAM_ENOUGH]["error"] > methods[measuring.CENTRAL]["error"]
        assert methods[measuring.SHUFFLED]["error"] <= methods[measuring.LOCAL]["error"]
    text = writing.page(results)
    for name in (measuring.SKELLAM_16, measuring.GAUSSIAN_16, measuring.SHUFFLED, measuring.LOCAL):
        below = [at for at in results["cells"] if at["methods"][name]["error"] < at["methods"][measuring.OURS]["error"]]
        assert (f"**Error, {name}**: below Croupier's in {len(below)} of" in text) == bool(below)


def test_every_method_has_a_line_and_a_description():
    assert set(measuring.METHODS) == set(writing.WHAT) == set(drawing.LINES)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.000102, "0.000102"), (9.75e-5, "9.75e-5"), (20.66, "20.7"), (131.4, "131"), (8.3e9, "8.3e9"), (2.2e12, "2.2e12")],
)
def test_numbers_in_short(value, text):
    assert writing.in_short(value) == text
