"""The benchmark of statistics: what it measures is what it says, and it notices what is worse than claimed."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from benchmarks import command
from benchmarks import private_statistics as benchmark
from benchmarks.private_statistics import describing, evaluating, judging, measuring

RESULTS = {
    "version": "0",
    "quick": False,
    "regressions": [
        {"task": task, "epsilon": epsilon, "users": 9, "r2": claimed, "without": 0.9, "time_over_ridge": 4.0, "claimed": claimed}
        for (task, epsilon), claimed in judging.R2.items()
    ],
    "coverage": [{"features": 5, "users": 10_000, "epsilon": 1.0, "covered": 0.95, "told": 1.0}],
    "logistic_coverage": [
        {"features": 5, "users": 30_000, "epsilon": 1.0, "covered": 0.95, "told": 1.0, "width": 2.0, "coefficients": 600}
    ],
    "logistic_coefficients": [{"interactivity": "full", "users": 100_000, "epsilon": 4.0, "coef": [1.0, -0.5], "error": 0.02}],
    "evaluations": [
        {"model": "a quantile", "epsilon": 0.5, "score": "at or below", "rmse_points": 6.0, "covered": 0.95},
        {"model": "three classes", "epsilon": 0.5, "score": "AUC", "rmse_points": 0.6, "covered": 0.95},
    ],
    "diameters": [{"query": "histogram", "diameter": 2**0.5, "users": 9, "dim": 9, "noise_ratio": 0.71}],
    "summaries": [{"point": 0.5, "epsilon": 1.0, "error": 0.4}],
    "schemas": [{"task": "adult", "interactivity": "full", "users": 9, "epsilon": 1.0, "described": 0.848, "by_hand": 0.85}],
}


def test_the_page_has_every_figure_and_judges():
    text = benchmark.page(RESULTS)
    assert "| adult (9) | 0.1 | 0.280 |" in text
    assert "All as claimed." in text
    assert "0.744 on Covertype" in benchmark.headline(RESULTS)
    assert "nothing is judged" in benchmark.page(RESULTS | {"quick": True})


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("regressions", "r2", 0.1),
        ("regressions", "time_over_ridge", 6.0),
        ("coverage", "covered", 0.9),
        ("coverage", "covered", 0.99),
        ("logistic_coverage", "covered", 0.9),
        ("logistic_coverage", "covered", 0.995),
        ("logistic_coefficients", "error", 0.2),
        ("evaluations", "rmse_points", 0.8),
        ("evaluations", "covered", 0.8),
        ("diameters", "noise_ratio", 0.8),
        ("summaries", "error", 0.6),
        ("schemas", "described", 0.846),
    ],
)
def test_what_is_worse_than_claimed_is_noticed(part, name, value):
    worse = copy.deepcopy(RESULTS)
    worse[part][-1][name] = value
    assert [verdict.holds for verdict in benchmark.judge(RESULTS)].count(False) == 0
    (missed,) = [verdict for verdict in benchmark.judge(worse) if not verdict.holds]
    assert f"Worse than claimed: {missed.what}: {missed.measured}." in benchmark.page(worse)


def test_diameters_are_measured():
    found = measuring.diameters()
    assert {cell["query"] for cell in found} == {"histogram", "moments", "Newton", "scaler"}
    assert all(cell["noise_ratio"] <= judging.NOISE * cell["diameter"] / 2**0.5 for cell in found)


@pytest.mark.parametrize("model", [evaluating.TwoClasses(), evaluating.ThreeClasses(), evaluating.Quantile()])
def test_scores_are_measured_beside_those_of_the_whole_population(model, monkeypatch):
    """A few rounds at an epsilon of no noise: errors are those of having asked 10 000 people, a point or less."""
    monkeypatch.setattr(evaluating, "QUICK_ROUNDS", 3)
    monkeypatch.setattr(evaluating, "EPSILONS", (50.0,))
    monkeypatch.setattr(evaluating, "PEOPLE", 100_000)
    rows = evaluating.rows(model, True)
    assert [row["model"] for row in rows] == [model.name] * 2
    for row in rows:
        assert 0 < row["rmse_points"] < (6 if "bins" in row["score"] else 2)
        assert row["covered"] > 0.5


def test_the_fit_without_privacy_is_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    assert measuring.without_privacy(X, X @ [1.0, 2.0], 200) == pytest.approx(1.0)


def test_made_up_diamonds_have_guesses_and_ranges_for_all_columns():
    train, test, guess, schema = describing.stones(1_000)
    assert len(train) + len(test) == 1_000
    assert set(train.column_names) == set(guess.columns) == {*schema.columns, schema.target.column}
    sizes = np.asarray(train["x"])
    assert (sizes > 20).sum() + (sizes == 0).sum() < 20


LOAD = """
import numpy as np

def load(task, normalise):
    stored = np.load(__file__.replace("load.py", f"{task}.npz"))
    groups = [np.eye(size)[column] for size, column in zip(stored["ncat"], stored["cat"].T)]
    rows, first = np.column_stack([stored["num"], *groups]), stored["n_train"]
    return rows[:first], None, rows[first:], None

def unit_rows(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
"""


def test_a_run_reads_its_data_keeps_what_is_finished_and_goes_on(tmp_path, monkeypatch, capsys):
    """The real fits on synthetic tables; the parts without data are tested above or take long, and are left out."""
    rng, people = np.random.default_rng(3), 1_200
    (tmp_path / "load.py").write_text(LOAD)
    for task, (low, high) in measuring.TASKS.items():
        numbers, category = rng.normal(size=(people, 3)), rng.integers(2, size=(people, 1))
        numbers[:, 0] = (low + high) / 2 + (high - low) / 8 * numbers[:, 1]
        np.savez(tmp_path / f"{task}.npz", num=numbers, cat=category, ncat=[2], n_train=1_000)
    for name in measuring.LOGISTIC:
        monkeypatch.setitem(measuring.LOGISTIC, name, lambda quick, name=name: RESULTS[name])
    for name in ("coverage", "evaluations"):
        monkeypatch.setattr(measuring, name, lambda quick, name=name: RESULTS[name])
    for name in ("summaries", "schemas"):
        monkeypatch.setattr(measuring, name, lambda *where, name=name: RESULTS[name])
    run = ["--quick", "--data", str(tmp_path), "--out", str(tmp_path / "found")]
    command.run("private_statistics", run)
    stored = command.read("private_statistics", tmp_path / "found")
    assert stored.keys() == RESULTS.keys()
    assert [(row["task"], row["epsilon"], row["users"]) for row in stored["regressions"]] == [(*key, 1_000) for key in judging.R2]
    for row in stored["regressions"]:
        assert row["without"] > 0.5
        assert row["r2"] < row["without"] + 1e-3
    monkeypatch.setattr(measuring, "regressions", None)  # is not called again
    command.run("private_statistics", run)
    assert command.read("private_statistics", tmp_path / "found") == stored
    assert "cells are there already" in capsys.readouterr().err


def test_data_that_are_not_there_are_named(tmp_path, capsys):
    for options, words in (([], "--data is needed"), (["--data", str(tmp_path)], "no adult.npz")):
        (tmp_path / "load.py").write_text(LOAD)
        with pytest.raises(SystemExit):
            command.run("private_statistics", [*options, "--out", str(tmp_path)])
        assert words in capsys.readouterr().err
