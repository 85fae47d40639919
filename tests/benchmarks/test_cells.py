"""benchmarks/cells.py: what is done is not done again, and only if it is still the same thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import cells as module
from benchmarks.cells import Cells

JOBS = [("a", 1), ("b", 2), ("c", 3)]


def square(job):
    return {"square": job[1] ** 2, "pair": (1, 2)}


def refuse(job):
    raise AssertionError(f"{job} was there already")


@pytest.mark.parametrize("processes", [1, 2])
def test_results_are_in_order_and_nothing_is_measured_twice(tmp_path, processes):
    store = Cells(tmp_path / "x.jsonl", {"n": 1})
    found = store.all(JOBS, square, processes=processes, first=lambda job: -job[1])
    assert found == [{"square": 1, "pair": [1, 2]}, {"square": 4, "pair": [1, 2]}, {"square": 9, "pair": [1, 2]}]
    assert Cells(tmp_path / "x.jsonl", {"n": 1}).all(JOBS, refuse) == found
    if processes == 1:
        order = [json.loads(line)["job"][0] for line in (tmp_path / "x.jsonl").read_text().splitlines()[1:]]
        assert order == ["c", "b", "a"]


def test_other_settings_other_code_and_fresh_begin_anew(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    Cells(path, {"n": 1}).all(JOBS, square)
    assert JOBS[0] in Cells(path, {"n": 1})
    assert JOBS[0] not in Cells(path, {"n": 2})
    Cells(path, {"n": 1}).all(JOBS, square)
    assert JOBS[0] not in Cells(path, {"n": 1}, fresh=True)
    Cells(path, {"n": 1}).all(JOBS, square)
    monkeypatch.setattr(module, "fingerprint", lambda *_: "other")
    assert JOBS[0] not in Cells(path, {"n": 1})


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    path = tmp_path / "x.jsonl"
    Cells(path, {}).all(JOBS, square)
    path.write_text(path.read_text()[:-5])
    again = Cells(path, {})
    assert [job in again for job in JOBS] == [True, True, False]
    assert again.all(JOBS, square) == [json.loads(json.dumps(square(job))) for job in JOBS]
    assert Cells(path, {}).all(JOBS, refuse)


def test_a_failure_is_not_swallowed_and_what_was_done_is_kept(tmp_path):
    def fails_late(job):
        return square(job) if job[1] < 3 else 1 / 0

    store = Cells(tmp_path / "x.jsonl", {})
    with pytest.raises(ZeroDivisionError):
        store.all(JOBS, fails_late)
    assert [job in Cells(tmp_path / "x.jsonl", {}) for job in JOBS] == [True, True, False]


def test_fingerprint_is_of_the_contents(tmp_path):
    (tmp_path / "one.py").write_text("1")
    before = module.fingerprint(tmp_path)
    (tmp_path / "notes.txt").write_text("not code")
    assert module.fingerprint(tmp_path) == before == module.fingerprint(tmp_path / "one.py")
    (tmp_path / "one.py").write_text("2")
    assert module.fingerprint(tmp_path) != before


SLOW = """
import sys, time
from pathlib import Path
from benchmarks.cells import Cells
def slow(job):
    time.sleep(0 if job < 2 else 600)
    return job
Cells(Path(sys.argv[1]), {}).all(list(range(4)), slow, processes=int(sys.argv[2]), description="slow")
"""


@pytest.mark.process
@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_ends_at_once_keeps_cells_and_says_how_to_go_on(tmp_path, processes):
    path = tmp_path / "x.jsonl"
    (tmp_path / "slow.py").write_text(SLOW)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(module.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, str(tmp_path / "slow.py"), str(path), str(processes)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            while not (path.exists() and len(path.read_text().splitlines()) == 3):
                assert running.poll() is None
                time.sleep(0.05)
            running.send_signal(signal.SIGINT)
            _, errors = running.communicate(timeout=60)
        finally:
            running.kill()  # its jobs sleep for longer than anybody waits
    assert running.returncode == 130
    assert "2 of 4 cells are kept" in errors
    assert "the same command resumes" in errors
    assert "Traceback" not in errors
