"""The benchmark of statistics: what it measures is what it says, and it notices what is worse than claimed."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from benchmarks import private_statistics as benchmark

RESULTS = {
    "version": "0",
    "quick": False,
    "regressions": [
        {"task": task, "epsilon": epsilon, "users": 9, "r2": claimed, "without": 0.9, "time_over_ridge": 4.0, "claimed": claimed}
        for (task, epsilon), claimed in benchmark.CLAIMED_R2.items()
    ],
    "coverage": [{"features": 5, "users": 10_000, "epsilon": 1.0, "covered": 0.95, "told": 1.0}],
    "evaluations": [{"epsilon": 0.5, "score": "AUC", "rmse_points": 0.6, "covered": 0.95}],
    "diameters": [{"query": "histogram", "diameter": 2**0.5, "users": 9, "dim": 9, "noise_ratio": 0.71}],
}


def test_the_page_has_every_figure_and_judges():
    text = benchmark.markdown(RESULTS)
    assert "| adult (9) | 0.1 | 0.280 |" in text
    assert "All as claimed." in text
    assert "0.744 on Covertype" in benchmark.headline(RESULTS)
    assert "nothing is judged" in benchmark.markdown(RESULTS | {"quick": True})


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("regressions", "r2", 0.1),
        ("regressions", "time_over_ridge", 6.0),
        ("coverage", "covered", 0.9),
        ("coverage", "covered", 0.99),
        ("evaluations", "rmse_points", 0.8),
        ("evaluations", "covered", 0.8),
        ("diameters", "noise_ratio", 0.8),
    ],
)
def test_what_is_worse_than_claimed_is_noticed(part, name, value):
    worse = copy.deepcopy(RESULTS)
    worse[part][-1][name] = value
    assert len(benchmark.shortcomings(worse)) == 1
    assert "Worse than claimed" in benchmark.markdown(worse)


def test_diameters_are_measured():
    found = benchmark.diameters()
    assert {cell["query"] for cell in found} == {"histogram", "moments"}
    assert all(cell["noise_ratio"] <= 0.72 * cell["diameter"] / 2**0.5 for cell in found)


def test_the_fit_without_privacy_is_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    assert benchmark.without_privacy(X, X @ [1.0, 2.0], 200) == pytest.approx(1.0)
