"""benchmarks/sum.py: Croupier's stated error by the protocol itself, a run from end to end, and the page against its figures."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

import croupier as cr

benchmark = importlib.import_module("sum")
SCRIPT = Path(benchmark.__file__)
STORED = SCRIPT.parent / "results" / "sum.json"


@pytest.fixture(scope="module")
def results():
    return json.loads(STORED.read_text())


def quick(folder):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(folder), "--processes", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_quick_run_twice_gives_the_same_files(tmp_path):
    runs = [quick(tmp_path / name) for name in ("one", "two")]
    for done in runs:
        assert done.returncode == 0, done.stderr
        assert "A quick run" in done.stdout
    for name in ("sum.json", "sum.md", "sum.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    found = json.loads((tmp_path / "one" / "sum.json").read_text())
    assert [(at["epsilon"], at["users"], at["dim"]) for at in found["cells"]] == benchmark.QUICK_GRID
    assert found["quick"]
    again = quick(tmp_path / "one")
    assert "6 of 6 cells are there already" in again.stderr
    assert again.stdout == runs[0].stdout


def test_measured_error_is_what_is_stated():
    # unit vectors round at less than the worst: the sum of squares, nearly chi-square, is in a band at 1e-6, at most a tenth below
    users, dim, runs = 500, 20, 60
    found = benchmark.measured(1.0, users, dim, runs)
    stated = benchmark.stated(1.0, users, dim)[benchmark.OURS]["error"]
    assert found["stated"] == stated
    low, high = chi2.ppf([5e-7, 1 - 5e-7], runs * dim) / (runs * dim)
    assert 0.9**2 * low < (found["error"] / stated) ** 2 < high
    assert found["interval"][0] < found["error"] < found["interval"][1]


def test_interval_covers_a_known_error():
    rng, runs, dim = np.random.default_rng(0), 30, 20
    squares = np.sum(rng.normal(size=(2000, runs, dim)) ** 2, axis=2)  # errors of true root mean square sqrt(dim)
    ends = np.array([benchmark.interval(list(one), dim) for one in squares])
    covered = np.mean((ends[:, 0] <= math.sqrt(dim)) & (math.sqrt(dim) <= ends[:, 1]))
    # 2 000 intervals at 99 %: five standard errors
    assert abs(covered - benchmark.CONFIDENCE) < 5 * math.sqrt(0.99 * 0.01 / 2000)


def test_unit_vectors_are_of_length_one():
    vectors = benchmark.unit_vectors(100, 7)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_figures_of_the_plan_are_the_plan():
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=10)
    found = benchmark.stated(1.0, 1000, 10)
    assert found[benchmark.OURS]["error"] == pytest.approx(plan.noise_std * math.sqrt(10) / 1000)
    assert found[benchmark.OURS]["bits"] == plan.bits_per_user
    assert found[benchmark.CENTRAL]["error"] == pytest.approx(plan.central_noise_std * math.sqrt(10) / 1000)
    assert found[benchmark.PAPER]["error"] > 100 * plan.noise_std * math.sqrt(10) / 1000


def test_what_the_paper_does_not_cover_is_said():
    found = benchmark.stated(20.0, 1000, 10)
    assert "refused" in found[benchmark.PAPER]
    cell = {"epsilon": 20.0, "users": 1000, "dim": 10, "methods": found}
    assert "| not covered |" in benchmark.table({"cells": [cell]}, "error")


def test_a_measured_error_above_the_stated_one_is_noticed():
    within = {"stated": 1.0, "interval": [0.9, 1.2]}
    above = {"stated": 1.0, "interval": [1.01, 1.2]}
    assert benchmark.excessive({"measured": [within, above]}) == [above]


def test_stored_page_follows_from_stored_figures(results):
    assert not results["quick"]
    assert benchmark.markdown(results) == STORED.with_suffix(".md").read_text()
    assert [(at["epsilon"], at["users"], at["dim"]) for at in results["cells"]] == benchmark.GRID
    assert [(at["epsilon"], at["users"], at["dim"], at["runs"]) for at in results["measured"]] == benchmark.RUNS
    assert benchmark.excessive(results) == []


@pytest.mark.parametrize("place", [0, 13, 22, 35])
def test_stored_figures_are_what_the_code_gives(results, place):
    at = results["cells"][place]
    found = benchmark.stated(at["epsilon"], at["users"], at["dim"])
    for name in benchmark.METHODS:
        assert found[name] == pytest.approx(at["methods"][name], rel=1e-6), name


def test_what_the_page_says_in_words_holds(results):
    ours = {(at["epsilon"], at["dim"], at["users"]): at["methods"][benchmark.OURS]["bits"] for at in results["cells"]}
    enough = {key: at["methods"][benchmark.SKELLAM_ENOUGH]["modulus_bits"] for key, at in zip(ours, results["cells"], strict=True)}
    for epsilon, dim in {(key[0], key[1]) for key in ours}:
        # "nearly like sqrt(n)" and "like log n": from 100 000 to a million users
        growth = math.log10(ours[epsilon, dim, 10**6] / ours[epsilon, dim, 10**5])
        assert 0.35 < growth < 0.55
        # a factor of ten is 3.3 bits
        assert 3 <= enough[epsilon, dim, 10**6] - enough[epsilon, dim, 10**5] <= 5
    for at in results["cells"]:
        methods = at["methods"]
        assert methods[benchmark.OURS]["error"] <= 1.05 * methods[benchmark.CENTRAL]["error"]
        assert methods[benchmark.SKELLAM_ENOUGH]["error"] > methods[benchmark.CENTRAL]["error"]
        assert methods[benchmark.SHUFFLED]["error"] <= methods[benchmark.LOCAL]["error"]
    text = benchmark.markdown(results)
    for name in (benchmark.SKELLAM_16, benchmark.GAUSSIAN_16, benchmark.SHUFFLED, benchmark.LOCAL):
        below = [at for at in results["cells"] if at["methods"][name]["error"] < at["methods"][benchmark.OURS]["error"]]
        assert (f"**Error, {name}**: below Croupier's in {len(below)} of" in text) == bool(below)


def test_every_method_has_a_line_and_a_description():
    assert set(benchmark.METHODS) == set(benchmark.WHAT) == set(benchmark.LINES)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.000102, "0.000102"), (9.75e-5, "9.75e-5"), (20.66, "20.7"), (131.4, "131"), (8.3e9, "8.3e9"), (2.2e12, "2.2e12")],
)
def test_numbers_in_short(value, text):
    assert benchmark.in_short(value) == text
