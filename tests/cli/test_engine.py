"""`croupier fit` on either engine, and runs that are cut off and go on: the same model, and nobody asked twice."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from pyarrow import parquet
from test_fit import FACTS, croupier, refused

pytest.importorskip("ray")
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("ray")]
FILES, ROWS = 3, 700


def people(seed):
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, ROWS)
    return pa.table(
        {
            "age": age,
            "weight": [None if i % 50 == 0 else w for i, w in enumerate(rng.uniform(40, 120, ROWS))],
            "sex": rng.choice(["f", "m"], ROWS),
            "ill": np.where(age + 20 * rng.normal(size=ROWS) > 50, "yes", "no"),
        }
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.toml").write_text(FACTS)
    (tmp_path / "parquet").mkdir()
    (tmp_path / "csv").mkdir()
    for file in range(FILES):
        parquet.write_table(people(file), tmp_path / "parquet" / f"{file}.parquet", row_group_size=300)
        arrow_csv.write_csv(people(file), tmp_path / "csv" / f"{file}.csv")
    return tmp_path


def learned(path):
    """What a model file says but for when it was made."""
    return json.loads(path.read_text())["estimator"]


@pytest.mark.parametrize("data", ["parquet", "csv"])
def test_both_engines_make_the_same_model_for_the_same_seed(folder, data):
    models = []
    for engine in (["--engine", "local"], ["--engine", "ray", "--workers", "2"]):
        croupier("fit", data, "--schema", "facts.toml", "--seed", 3, *engine, "-o", f"{engine[1]}.json")
        models.append(learned(folder / f"{engine[1]}.json"))
    assert models[0] == models[1]


def test_options_of_the_other_engine_and_people_over_several_shards_are_refused(folder):
    fit = ("fit", "parquet", "--schema", "facts.toml")
    assert "--workers = '2' is not allowed: it must be left out with the engine 'local'" in refused(*fit, "--workers", 2)
    assert "--work-dir" in refused(*fit, "--engine", "ray", "--work-dir", ".")
    assert "--engine = 'dask'" in refused(*fit, "--engine", "dask")
    assert "at most 3" in refused(*fit, "--engine", "ray", "--workers", 4)
    assert "Connection refused" in refused(*fit, "--engine", "ray", "--address", "127.0.0.1:1")
    named = people(0).append_column("name", pa.array([f"n{i % 90}" for i in range(ROWS)]))
    parquet.write_table(named, "named.parquet")
    assert "no record leaves its shard" in refused(
        "fit", "named.parquet", "--schema", "facts.toml", "--engine", "ray", "--user-column", "name"
    )


DYING = """
import os, signal, sys
from croupier.cli import main
from croupier.optimizer._journal import Journal

left = int(sys.argv.pop(1))
write = Journal._append
def dying(self, line):
    global left
    write(self, line)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
Journal._append = dying
main()
"""


@pytest.mark.parametrize("lines", [1, 2, 3, 6])
def test_a_killed_run_goes_on_to_the_model_of_an_undisturbed_one(folder, lines):
    """Killed after so many lines of its journal: before the first question, between a question and its answer, and later."""
    fit = ["fit", "parquet", "--schema", "facts.toml", "--rounds", "5", "--checkpoint", "run", "-o", "model.json"]
    killed = subprocess.run([sys.executable, "-c", DYING, str(lines), *fit], cwd=folder, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "model.json").exists()
    shutil.copy(folder / "run", folder / "copy")  # the same secret: what the run would have been
    croupier(*fit)
    assert not (folder / "run").exists()
    journal = (folder / "copy").read_text().splitlines()
    (folder / "copy").write_text("\n".join(journal[:1]) + "\n")
    croupier(*fit[:-4], "--checkpoint", "copy", "-o", "undisturbed.json")
    assert learned(folder / "model.json") == learned(folder / "undisturbed.json")


def test_a_lost_file_stops_a_run_that_goes_on_when_it_is_back(folder):
    """The file is lost after the first round, and with it the worker that had read it."""
    script = """
import os, sys, time
from pathlib import Path
from croupier.cli import main
from croupier.population import RayPopulation

ask = RayPopulation.answer
def answer(self, question):
    estimate = ask(self, question)
    if Path("parquet/1.parquet").exists():
        Path("parquet/1.parquet").rename("away")
        for worker in self._workers:
            process = self._ray.get(worker.__ray_call__.remote(lambda worker: os.getpid()))
            self._ray.kill(worker, no_restart=False)
            while Path(f"/proc/{process}").exists():  # Ray does not wait, and a worker that lives still has what it read
                time.sleep(0.01)
    return estimate
RayPopulation.answer = answer
main()
"""
    fit = ["fit", "parquet", "--schema", "facts.toml", "--rounds", "4", "--checkpoint", "run"]
    ray = ["--engine", "ray", "--workers", "2"]
    command = [sys.executable, "-c", script, *fit, *ray, "-o", "model.json"]
    lost = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert lost.returncode == 1, lost.stderr
    assert "1.parquet is gone" in lost.stderr
    assert "after 1 round" in lost.stderr
    assert "resumes from run" in lost.stderr
    os.rename("away", "parquet/1.parquet")
    journal = (folder / "run").read_text().splitlines()
    (folder / "copy").write_text(journal[0] + "\n")
    croupier(*fit, *ray, "-o", "model.json")
    croupier(*fit[:-1], "copy", "-o", "undisturbed.json")  # on this machine, without a fault
    assert learned(folder / "model.json") == learned(folder / "undisturbed.json")


def test_a_checkpoint_of_another_run_is_refused(folder):
    fit = ["fit", "parquet", "--schema", "facts.toml", "--rounds", "5", "--checkpoint", "run", "-o", "model.json"]
    subprocess.run([sys.executable, "-c", DYING, "5", *fit], cwd=folder, capture_output=True, check=False)
    assert "another schedule" in refused(*fit, "--epsilon", 2)
    assert "another seed" in refused(*fit, "--seed", 1)
    parquet.write_table(people(7), "parquet/1.parquet", row_group_size=300)
    assert "data has changed" in refused(*fit)
    assert not (folder / "model.json").exists()


def test_a_checkpoint_that_is_something_else_is_refused(folder):
    for other in ("model.json", "facts.toml"):
        assert "a separate file" in refused("fit", "csv", "--schema", "facts.toml", "-o", "model.json", "--checkpoint", other)
    assert (folder / "facts.toml").exists()


def test_the_line_of_the_page_for_one_machine_runs_as_printed(folder):
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("    croupier fit") and "--address" not in line)
    (folder / "facts.toml").rename("schema.toml")
    (folder / "parquet").rename("data")
    croupier(*shlex.split(line, comments=True)[1:])
    assert learned(folder / "model.json")
