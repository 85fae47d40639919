"""The benchmark `scale`: its records, its fit and its arithmetic, a small run from end to end; and the code of docs/scale.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from benchmarks.command import linked
from benchmarks.scale import grid, judging, memory, records, rounds, writing
from croupier.estimator import BudgetWarning

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "results" / "scale.json"
MEASURED = {"efficiency": 0.8, "overhead_1": 0.002, "overhead_2": 0.003, "deal": 5e-8, "seats": 1e-7, "prepare": 4e-9, "pass": 1.5}


@pytest.mark.parametrize(("users", "dim"), [(200, 3), (100_001, 10), (3_000_000, 20), (100_000, 1000)])
def test_generated_blocks_are_even_and_the_same_at_every_reading(users, dim):
    blocks = records.generated(users, dim)
    sizes = [block.users for block in blocks]
    assert sum(sizes) == users
    assert max(sizes) - min(sizes) <= 1
    assert len(blocks) % records.LEAST_BLOCKS == 0
    assert max(sizes) * dim <= records.BLOCK_ENTRIES
    (X, y), (again, _), (other, _) = blocks[1].read(), blocks[1].read(), blocks[2].read()
    assert X.shape == (sizes[1], dim)
    assert (X.dtype, len(y)) == (np.float32, sizes[1])
    assert np.linalg.norm(X.astype(np.float64), axis=1).max() <= 1
    assert np.array_equal(X, again)
    assert not np.shares_memory(X, again)  # what is kept is really held
    assert not np.array_equal(X[: len(other)], other[: len(X)])


def test_both_plain_sums_are_the_sum_of_the_gradients():
    question = rounds.question_for(400, 7)
    X, y = records.generated(400, 7)[0].read()
    theta = question.query.theta
    expected = ((1 / (1 + np.exp(-(X.astype(np.float64) @ theta))) - y)[:, np.newaxis] * X).sum(axis=0)
    np.testing.assert_allclose(rounds.plain(question.query, X, y), expected, rtol=1e-5)  # scores in single precision
    np.testing.assert_allclose(rounds.fused(question.query, X, y), expected, rtol=1e-3, atol=1e-4)


def test_fit_recovers_known_coefficients():
    cells = [(n, d) for n in (10**5, 10**6, 10**7) for d in (10, 50, 1000)]
    fit = judging.fitted([(n, d, 0.01 + 5e-8 * n + 2e-8 * n * d) for n, d in cells])
    assert [fit[term] for term in judging.TERMS] == pytest.approx([0.01, 5e-8, 2e-8], rel=1e-6)
    assert fit["misfit"] < 1e-9
    exact = judging.fitted([(n, d, 0.01 + 2e-8 * n * d) for n, d in cells], ("round", "entry"))
    assert (exact["round"], exact["user"], exact["entry"]) == pytest.approx((0.01, 0.0, 2e-8), rel=1e-6)


def test_fit_has_no_term_below_zero_and_tells_its_misfit():
    points = [(n, d, 2e-8 * n * d * (1.1 if d == 10 else 1.0) - 1e-5) for n in (10**5, 10**6) for d in (10, 100)]
    fit = judging.fitted(points)
    assert all(fit[term] >= 0 for term in judging.TERMS)
    told = max(abs((fit["round"] + fit["user"] * n + fit["entry"] * n * d) / seconds - 1) for n, d, seconds in points)
    assert fit["misfit"] == pytest.approx(told)


def test_slopes_of_exact_power_laws():
    points = [(n, d, 3e-9 * n**0.9 * d**0.7) for n in (10**5, 10**6, 10**7) for d in (10, 100)] + [(10**8, 20, 7.0)]
    found = judging.slopes(points)
    assert [(row["over"], row["value"]) for row in found] == [
        ("users", 10),
        ("users", 100),
        *(("dim", n) for n in (10**5, 10**6, 10**7)),
    ]
    assert [row["slope"] for row in found] == pytest.approx([0.9, 0.9, 0.7, 0.7, 0.7])


def test_extrapolation_by_hand():
    fit = {"round": 0.001, "user": 1e-7, "entry": 2e-8, "misfit": 0.0}
    paper = judging.on_paper(fit, MEASURED, users=10**9, dim=100, cores=100)
    # 1e9 users: 100 s by user and 2000 s by entry on one core; 100 cores at 80 %: 26.25 s
    assert paper.core_seconds == pytest.approx(2100)
    # 1 ms, 2 ms for the first worker and 1 ms for each of 99 more
    assert paper.overhead == pytest.approx(0.102)
    assert paper.full_round == pytest.approx(26.352)
    assert paper.full_run == pytest.approx(2635.2)
    assert (paper.deal, paper.seats) == pytest.approx((50, 1))
    assert paper.sequential_run == pytest.approx(50 + 1 + 10.2 + 1.5 * 26.25)
    assert paper.prepare == pytest.approx(4)
    assert paper.bytes_in_all == 400e9
    assert paper.bytes_per_worker == pytest.approx(5.2e9 + 0.12e9)


def test_overhead_that_does_not_grow_is_not_extrapolated_below_what_was_measured():
    faster = MEASURED | {"overhead_2": 0.001}
    paper = judging.on_paper(dict.fromkeys(judging.TERMS, 0.0), faster, users=10**6, dim=10, cores=50)
    assert paper.full_round == pytest.approx(0.002)


def cell(users, dim, identical=True, peak=10**9, **seconds):
    return {
        "users": users,
        "dim": dim,
        "seconds": {name.replace("_", " "): times for name, times in seconds.items()},
        "identical": identical,
        "memory": {"process": peak, "workers": [], "rest_of_ray": 0},
    }


@pytest.mark.parametrize(
    ("ray_seconds", "overhead", "identical", "peak", "expected"),
    [
        (6.2, 0.019, True, 1.9e9, [True, True, True, True]),
        (6.3, 0.021, False, 2.1e9, [False, False, False, False]),
    ],
)
def test_verdicts_follow_from_the_figures(ray_seconds, overhead, identical, peak, expected):
    results = {
        "cells": [cell(*grid.MUST, kept=[9.0, 10.0, 30.0], ray_2=[ray_seconds] * 3), cell(*grid.STREAM, peak=peak)],
        "files": cell(10, 2, identical=identical),
        "overhead": {"median": {"local": 0.001, "ray 1": 0.002, "ray 2": 0.001 + overhead}},
    }
    assert [verdict.holds for verdict in judging.judge(results)] == expected


@pytest.mark.process
def test_memory_at_its_peak_is_told():
    before = memory.peaks()
    if before is None:
        pytest.skip("no /proc")
    block = np.ones(1 << 27, dtype=np.uint8)
    block += 1
    del block
    assert memory.peaks()["process"] > (1 << 27)
    assert before["workers"] == []


@pytest.mark.process
@pytest.mark.xdist_group("ray")
@pytest.mark.slow
def test_quick_run(tmp_path):
    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "scale", "--quick", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "scale.json").read_text())
    assert results["quick"]
    assert linked(writing.page(results), "evidence") == (tmp_path / "scale.md").read_text()
    assert "A quick run" in done.stdout
    assert (tmp_path / "evidence" / "scale.svg").stat().st_size > 10_000
    first, files = results["cells"][0], results["files"]
    assert set(first["seconds"]) == set(grid.VARIANTS)
    assert first["compared"] == 5  # streamed, kept, kept with threads, one worker, two
    assert first["identical"]
    assert files["identical"]
    if first["memory"] is not None:
        assert len(first["memory"]["workers"]) == 3
    for one in (*results["cells"], files):  # a root mean square of 10 or more about 1
        assert one["off_in_noise_std"] < 4


@pytest.mark.process
@pytest.mark.xdist_group("ray")
def test_code_of_the_page_runs(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scale.md").read_text(), flags=re.S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        exec("\n".join(blocks), {})


@pytest.mark.skipif(not STORED.exists(), reason="the whole benchmark has not been run")
def test_stored_text_follows_from_stored_figures():
    results = json.loads(STORED.read_text())
    assert not results["quick"]
    assert linked(writing.page(results), "../../docs/evidence") == STORED.with_suffix(".md").read_text()
    assert {"analysis", "holds"}.isdisjoint(results)  # what follows from the figures is not among them
    assert [(one["users"], one["dim"]) for one in results["cells"]] == [(one.users, one.dim) for one in grid.CELLS]
