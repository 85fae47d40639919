"""The benchmark `speed` runs, names every piece that it profiles, and writes what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")
from benchmarks.speed import measuring, writing

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def test_quick_run_is_stored_and_written(tmp_path):
    options = ["--quick", "--out", str(tmp_path), "--earlier", str(ROOT / "src")]
    command = [sys.executable, "-m", "benchmarks", "speed", *options]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = json.loads((tmp_path / "speed.json").read_text())
    assert (tmp_path / "speed.md").read_text().strip() == said.strip() == writing.page(found).strip()
    (fit,) = found["fits"]
    assert list(fit["ns_per_entry"]) == ["an earlier version", *measuring.WAYS]
    assert min(fit["ns_per_entry"].values()) > fit["keystream"] > 0
    assert found["same_sum"] == 3
    # a function that was renamed would be found nowhere
    assert set(found["profile"]) == {*measuring.PIECES, "everything else"}
    assert min(found["profile"].values()) > 0
    assert "by numpy alone" in writing.headline(found)


def test_ways_that_differ_are_an_error(monkeypatch):
    monkeypatch.setattr(measuring.fused, "PATIENCE", measuring.fused.PATIENCE)  # which the measurement sets
    monkeypatch.setattr(measuring, "WAYS", {**measuring.WAYS, "wrong": (True, 1, measuring.np.float64)})
    in_way = measuring.in_way
    monkeypatch.setattr(measuring, "in_way", lambda name, X, y, work: in_way(name, X, ~y if name == "wrong" else y, work))
    with pytest.raises(AssertionError, match="the same sum"):
        measuring.same_sum(quick=True)
