"""The benchmark `load` at small sizes: the roles as processes, killed, and whole runs against those in memory; and its page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


def ran(*arguments):
    command = [sys.executable, "-m", "benchmarks", "load", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_a_quick_run_measures_every_section_and_its_page_is_made_again(tmp_path):
    done = ran("--quick", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "load.json").read_text())
    assert (found["kills"]["lost"], found["kills"]["sum_is_exact"]) == (0, True)
    assert all(row["batch_arrived"] and not row["refusals"] for row in found["speed"])
    assert [(row["connections_a_client"], row["batch_arrived"]) for row in found["clients"]["rows"]] == [(2, True), (1, True)]
    assert [row["count"] for row in found["goals"]["rows"]] == [60, 40, 20]
    assert {row["transport"] for row in found["runs"]} == {"masked-sum", "verified-sum", "messages"}
    assert all(row["same_theta"] for row in found["runs"])
    assert all(row["sum_is_exact"] and not row["refusals"] for row in found["processes"]["rows"])
    assert found["large"].get("sum_is_exact", True)
    page = (tmp_path / "load.md").read_text()
    assert "a quick run: nothing is judged" in page
    again = ran("--redraw", "--out", str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "load.md").read_text() == page
    assert ran("--only", "nothing").returncode == 2


def test_the_stored_page_is_that_of_the_stored_figures(tmp_path):
    stored = ROOT / "benchmarks" / "results"
    (tmp_path / "load.json").write_bytes((stored / "load.json").read_bytes())
    code = ran("--redraw", "--out", str(tmp_path)).returncode
    assert (tmp_path / "load.md").read_text() == (stored / "load.md").read_text()
    assert code == int("| NO |" in (stored / "load.md").read_text())  # 1 where a limit was missed, and the page says which
