"""benchmarks/speed.py runs, names every piece that it profiles, and writes what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")
import speed

SCRIPT = Path(speed.__file__)


def test_quick_run_is_stored_and_written(tmp_path):
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(tmp_path), "--earlier", str(SCRIPT.parents[1] / "src")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads((tmp_path / "speed.json").read_text())
    assert (tmp_path / "speed.md").read_text().strip() == said.strip() == speed.markdown(found).strip()
    (fit,) = found["fits"]
    assert list(fit["ns_per_entry"]) == ["an earlier version", *speed.WAYS]
    assert min(fit["ns_per_entry"].values()) > fit["keystream"] > 0
    assert found["same_sum"] == 3
    # a function that was renamed would be found nowhere
    assert set(found["profile"]) == {*speed.PIECES, "everything else"}
    assert min(found["profile"].values()) > 0
    assert "by numpy alone" in speed.headline(found)


def test_ways_that_differ_are_an_error(monkeypatch):
    monkeypatch.setattr(speed, "WAYS", {**speed.WAYS, "wrong": (True, 1, speed.np.float64)})
    in_way = speed.in_way
    monkeypatch.setattr(speed, "in_way", lambda name, X, y, work: in_way(name, X, ~y if name == "wrong" else y, work))
    with pytest.raises(AssertionError, match="the same sum"):
        speed.same_sum(quick=True)
