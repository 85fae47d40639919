"""The benchmark of fast certificates: what it writes is what it reads, and a figure below its enclosure is noticed."""

from __future__ import annotations

import copy

import pytest

from benchmarks import command, proofs
from benchmarks.paths import RESULTS

STORED = command.read("proofs", RESULTS)


def layout(figures):
    """The names in a result, at every depth; the names of seeds are left out."""
    if not isinstance(figures, dict):
        return None
    return {name: layout(value) for name, value in figures.items() if not name.startswith("seed ")}


def test_a_run_writes_what_is_stored_and_goes_on_where_it_was(tmp_path, capsys):
    run = ["--quick", "--plans", "2", "--seeds", "7", "--processes", "1", "--note", "a test", "--out", str(tmp_path)]
    command.run("proofs", run)
    found = command.read("proofs", tmp_path)
    assert (found["quick"], found["note"], list(found["plans"])) == (True, "a test", ["seed 7"])
    assert layout(found["plans"]["seed 7"]) == layout(STORED["plans"]["seed 1"])
    corners = layout(STORED["corners"])
    assert layout(found["corners"]).items() <= corners.items()
    assert list(found) == list(STORED)
    assert found["corners"]["tau"]["count"] == found["corners"]["mu scanned"]["count"] > 0
    assert all(verdict.holds for verdict in proofs.judge(found))
    assert "Note on the stored run: a test." in (tmp_path / "proofs.md").read_text()
    command.run("proofs", run)
    assert command.read("proofs", tmp_path) == found
    assert "3 of 3 cells are there already" in capsys.readouterr().err


def test_stored_figures_are_those_that_the_documentation_counts():
    text = proofs.page(STORED)
    assert "520 random plans and 348 corners; 468 more corners have no certificate. No fast figure is below" in text
    assert STORED["note"] in text
    assert all(verdict.holds for verdict in proofs.judge(STORED))


@pytest.mark.parametrize("path", [("plans", "seed 3", "delta"), ("plans", "seed 1", "mu"), ("corners", "tau")])
def test_a_figure_below_its_enclosure_is_noticed(path):
    wrong = copy.deepcopy(STORED)
    place = wrong
    for name in path:
        place = place[name]
    place["least"] = -1e-12
    (missed,) = [verdict for verdict in proofs.judge(wrong) if not verdict.holds]
    assert f"**Below its enclosure: {missed.what}.**" in proofs.page(wrong)
