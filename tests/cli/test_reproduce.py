"""`croupier reproduce`: real runs, what is refused, Ctrl-C, and a wheel that has the benchmarks with it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from croupier.cli import main
from croupier.cli import reproduce as module

ROOT = Path(__file__).parents[2]
TABLES = ("sum.json", "sum.md", "sum.svg", "evidence.md")


@pytest.fixture
def croupier(monkeypatch, tmp_path, capfd):
    """The command in an empty folder: its exit code and what it said."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["croupier", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capfd.readouterr().err

    return call


def test_sum_quick_twice_gives_the_same_tables_and_leaves_stored_results_alone(croupier, tmp_path):
    stored = {path: path.read_bytes() for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    code, said = croupier("sum", "--quick")
    assert code == 0, said
    for words in ("reproduced/quick", "about 10 seconds", "The page is"):
        assert words in said
    assert croupier("sum", "--quick", "--out", "again")[0] == 0
    for name in TABLES:
        assert (tmp_path / "reproduced" / "quick" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert json.loads((tmp_path / "again" / "sum.json").read_text())["quick"]
    assert (tmp_path / "again" / "evidence" / "sum.svg").exists()
    assert {path: path.read_bytes() for path in stored} == stored
    # what is done is not done again, unless asked for
    assert "cells are there already" in croupier("sum", "--quick")[1]
    assert "cells are there already" not in croupier("sum", "--quick", "--fresh")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table2"], ["'table1'", "'all'"]),
        (["peers", "--data", "nowhere"], ["--data", "nowhere"]),
        (["peers"], ["--data"]),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(croupier, arguments, words, scripts):
    scripts.joinpath("peers.py").write_text("")
    code, said = croupier(*arguments)
    assert code == 2
    assert len(said.strip().splitlines()) == 1
    assert all(word in said for word in words)


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """A folder in the place of the benchmarks'."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name in ("cells.py", "rates.py", "sum.py", "page.py"):
        (folder / name).write_text("")
    monkeypatch.setattr(module, "_scripts", lambda: folder)
    return folder


@pytest.mark.parametrize("importer", ["sum.py", "cells.py"])
def test_a_missing_package_is_named_with_its_extra(croupier, scripts, monkeypatch, importer):
    scripts.joinpath("sum.py").write_text("import cells\nimport json\n")
    with scripts.joinpath(importer).open("a") as file:
        file.write("from dp_accounting.pld import common\n")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dp_accounting" else find(name))
    code, said = croupier("sum")
    assert code == 2
    assert "dp_accounting is not" in said
    assert "pip install 'croupier[bench]'" in said


def test_a_script_that_is_not_there_is_named(croupier, scripts, tmp_path):
    code, said = croupier("peers", "--data", tmp_path)
    assert code == 2
    assert "peers.py is not" in said


def test_all_leaves_out_what_has_no_data_and_goes_on_after_a_failure(croupier, scripts, tmp_path):
    scripts.joinpath("rates.py").write_text("raise SystemExit('two slopes are shallower')")
    asked = "import sys\nfrom pathlib import Path\nPath({!r}).write_text(' '.join(sys.argv[1:]))"
    scripts.joinpath("sum.py").write_text(asked.format("asked"))
    scripts.joinpath("speed.py").write_text(asked.format("asked too"))
    code, said = croupier("all", "--out", "there")
    assert code == 1
    for words in ("peers is left out", "two slopes are shallower", "not as claimed, or failed: table1"):
        assert words in said
    assert [(tmp_path / name).read_text() for name in ("asked", "asked too")] == ["--out there"] * 2


def test_data_and_options_reach_the_script_and_fresh_forgets_its_cells(croupier, scripts, tmp_path):
    scripts.joinpath("peers.py").write_text(
        "import sys\nfrom pathlib import Path\nPath('asked').write_text(' '.join(sys.argv[1:]))"
    )
    folder = tmp_path / "reproduced" / "quick"
    folder.mkdir(parents=True)
    mine, others = folder / "peers.quick.cells.jsonl", folder / "sum.cells.jsonl"
    mine.touch()
    others.touch()
    assert croupier("peers", "--data", tmp_path, "--quick")[0] == 0
    assert mine.exists()
    assert croupier("peers", "--data", tmp_path, "--quick", "--fresh")[0] == 0
    assert (mine.exists(), others.exists()) == (False, True)
    assert (tmp_path / "asked").read_text() == f"--out reproduced/quick --quick --data {tmp_path}"


def environment(source):
    return os.environ | {"PYTHONPATH": str(source)}


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "croupier", "reproduce", "table1", "--fresh", "--quick"]
    kept = tmp_path / "reproduced" / "quick" / "rates.cells.jsonl"
    with subprocess.Popen(command, cwd=tmp_path, env=environment(ROOT / "src"), stderr=subprocess.PIPE, text=True) as running:
        while not (kept.exists() and len(kept.read_text().splitlines()) > 1):
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert said.rstrip().endswith("go on with: croupier reproduce table1 --quick")  # not --fresh, which would forget it
    assert "Traceback" not in said
    assert len(kept.read_text().splitlines()) > 1


def test_a_wheel_brings_the_benchmarks_without_results(tmp_path):
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    assert {"croupier/__init__.py", "croupier/cli/reproduce.py", "croupier/report/report.html", "croupier/py.typed"} <= set(names)
    assert {f"croupier/benchmarks/{script.name}" for script in (ROOT / "benchmarks").glob("*.py")} <= set(names)
    assert not [name for name in names if "results" in name or name.startswith(("src", "benchmarks"))]
    found = subprocess.run(
        [sys.executable, "-c", "from croupier.cli.reproduce import _scripts; print(_scripts())"],
        cwd=tmp_path,
        env=environment(tmp_path / "installed"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(tmp_path / "installed" / "croupier" / "benchmarks")
