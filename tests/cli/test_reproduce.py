"""`croupier reproduce`: real runs, what is refused, Ctrl-C, and a wheel that has the benchmarks with it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from croupier.cli import main
from croupier.cli import reproduce as module
from croupier.validation import how_to_install

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
TABLES = ("sum.json", "sum.md", "evidence/sum.svg", "evidence.md")
DISPATCH = "import importlib, sys\nimportlib.import_module('benchmarks.' + sys.argv.pop(1))\n"


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


@pytest.mark.slow
def test_sum_quick_twice_gives_the_same_tables_and_leaves_stored_results_alone(croupier, tmp_path):
    stored = {path: path.read_bytes() for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    code, said = croupier("sum", "--quick")
    assert code == 0, said
    for words in ("reproduced/quick", "about 10 seconds", "Page:"):
        assert words in said
    assert croupier("sum", "--quick", "--out", "again")[0] == 0
    for name in TABLES:
        assert (tmp_path / "reproduced" / "quick" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    assert json.loads((tmp_path / "again" / "sum.json").read_text())["quick"]
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
        (["statistics"], ["--data", "private_statistics --help"]),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(croupier, arguments, words, benchmarks):
    write(benchmarks, "peers", "")
    write(benchmarks, "private_statistics", "")
    code, said = croupier(*arguments)
    assert code == 2
    assert len(said.strip().splitlines()) == 1
    assert all(word in said for word in words)


def write(benchmarks, name, text):
    """A benchmark of this name that does only this."""
    (benchmarks / name).mkdir(exist_ok=True)
    (benchmarks / name / "__init__.py").write_text(text)


@pytest.fixture
def benchmarks(tmp_path, monkeypatch):
    """A package in the place of the benchmarks'."""
    folder = tmp_path / "elsewhere" / "benchmarks"
    folder.mkdir(parents=True)
    for name, text in {"__init__.py": "", "__main__.py": DISPATCH, "cells.py": "", "evidence.py": ""}.items():
        (folder / name).write_text(text)
    for name in ("rates", "sum"):
        write(folder, name, "")
    monkeypatch.setattr(module, "_benchmarks", lambda: folder)
    return folder


@pytest.mark.parametrize("importer", ["sum/__init__.py", "sum/measuring.py", "cells.py", "rates/measuring.py"])
def test_a_missing_package_is_named_with_its_extra(croupier, benchmarks, monkeypatch, importer):
    write(benchmarks, "sum", "from .measuring import measure\nimport json\n")
    (benchmarks / "sum" / "measuring.py").write_text(
        "from .. import cells\nfrom ..rates.measuring import runs\nfrom . import nothing\n"
    )
    (benchmarks / "rates" / "measuring.py").write_text("from ..sum import measure\n")  # a circle does no harm
    with benchmarks.joinpath(importer).open("a") as file:
        file.write("from dp_accounting.pld import common\n")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dp_accounting" else find(name))
    code, said = croupier("sum")
    assert code == 2
    assert "dp_accounting is not" in said
    assert how_to_install("bench") in said


def test_a_benchmark_that_is_not_there_is_named(croupier, benchmarks, tmp_path):
    code, said = croupier("peers", "--data", tmp_path)
    assert code == 2
    assert "peers is not" in said


def test_pictures_need_an_extra(croupier, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    code, said = croupier("sum", "--quick")
    assert code == 2
    assert how_to_install("bench") in said


def test_another_package_of_this_name_where_one_stands_is_passed_over(croupier, benchmarks, tmp_path):
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "benchmarks").mkdir(exist_ok=True)
        (tmp_path / "benchmarks" / name).write_text("raise SystemExit(3)")
    assert croupier("sum")[0] == 0


def test_all_leaves_out_what_has_no_data_and_goes_on_after_a_failure(croupier, benchmarks, tmp_path):
    write(benchmarks, "rates", "raise SystemExit('two slopes are shallower')")
    asked = "import sys\nfrom pathlib import Path\nPath({!r}).write_text(' '.join(sys.argv[1:]))"
    write(benchmarks, "sum", asked.format("asked"))
    write(benchmarks, "speed", asked.format("asked too"))
    code, said = croupier("all", "--out", "there")
    assert code == 1
    for words in ("peers is skipped", "statistics is skipped", "two slopes are shallower", "not as claimed, or failed: table1"):
        assert words in said
    assert [(tmp_path / name).read_text() for name in ("asked", "asked too")] == ["--out there"] * 2


@pytest.mark.parametrize(("part", "name"), [("peers", "peers"), ("statistics", "private_statistics")])
def test_data_and_options_reach_the_benchmark_and_fresh_forgets_its_cells(croupier, benchmarks, tmp_path, part, name):
    write(
        benchmarks,
        name,
        "import sys\nfrom pathlib import Path\nPath('asked').write_text(' '.join(sys.argv[1:]))",
    )
    folder = tmp_path / "reproduced" / "quick"
    folder.mkdir(parents=True)
    mine, others = folder / f"{name}.quick.cells.jsonl", folder / "sum.cells.jsonl"
    mine.touch()
    others.touch()
    assert croupier(part, "--data", tmp_path, "--quick")[0] == 0
    assert mine.exists()
    assert croupier(part, "--data", tmp_path, "--quick", "--fresh")[0] == 0
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
    assert said.rstrip().endswith("resume with: croupier reproduce table1 --quick")  # not --fresh, which would forget it
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
    modules = [path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").rglob("*") if path.suffix in (".py", ".txt")]
    assert {f"croupier/{module}" for module in modules} <= set(names)
    assert not [name for name in names if "results" in name or name.startswith(("src", "benchmarks"))]
    page = tmp_path / "reproduced" / "quick" / "evidence.md"
    run = [sys.executable, "-m", "croupier", "reproduce", "sum", "--quick"]
    done = subprocess.run(run, cwd=tmp_path, env=environment(tmp_path / "installed"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "## The mean of private vectors" in page.read_text()
    assert not list((tmp_path / "installed").rglob("*.svg"))
    command = [sys.executable, "-m", "croupier.benchmarks", "sum", "--quick"]
    refused = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path / "installed"), capture_output=True, text=True, check=False
    )
    assert (refused.returncode, "--out is needed" in refused.stderr) == (2, True)


def test_an_sdist_has_what_the_repository_has(tmp_path):
    """Built where tools have left their files, which a .gitignore of a folder below does not keep out either."""
    pytest.importorskip("hatchling")
    copy = tmp_path / "checkout"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=False, capture_output=True, text=True).stdout.split("\n")
    if not any(tracked):
        pytest.skip("not a checkout")
    for name in filter(None, tracked):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for stray in (".cache/x", "clients/typescript/node_modules/x/y.js", "notes/x", "reproduced/x"):
        (copy / stray).parent.mkdir(parents=True)
        (copy / stray).touch()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=copy, check=True, capture_output=True, timeout=300)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    unwanted = {name for name in tracked if name.startswith((".ci/", ".github/", ".pre-commit"))}
    assert names - {"PKG-INFO"} == set(filter(None, tracked)) - unwanted
