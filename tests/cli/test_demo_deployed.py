"""`croupier demo --deployed`: real processes on this machine, and nothing of them afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from helpers_cli import croupier

from croupier.cli import demo_deployed
from croupier.table import Schema
from croupier.table._datasets import PATIENTS, patients
from croupier.validation import how_to_install

pytestmark = pytest.mark.process

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")


def running(folder: Path) -> list[str]:
    """Command lines of processes that mention the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in words and file.parent.name != str(os.getpid()):
                found.append(words)
    return found


def test_a_whole_deployment_trains_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # where nobody answers: loopback must not be asked through it
    before = dict(os.environ)
    result = croupier("demo", "--deployed", "--users", "40", "--epsilon", "8", "--json")
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert (figures["users"], figures["rounds"]) == (40, demo_deployed.ROUNDS)
    assert figures["epsilon"] == 8
    assert "differentially private" in figures["guarantee"]
    assert 0.7 < figures["accuracy_without_privacy"] < 0.9
    assert 0.5 <= figures["accuracy_of_one_answer"] < 0.6
    assert 0.3 < figures["accuracy"] < 0.9  # 40 people; what is learnt is another test's business
    analyzer, shuffler, enroller = (list(figures[f"{role}_database"].values()) for role in ("analyzer", "shuffler", "enroller"))
    assert analyzer == [demo_deployed.ROUNDS, 0, 40 * demo_deployed.ROUNDS, 0]
    assert enroller == [40, 40, 0]
    assert shuffler == [40, 40 * demo_deployed.ROUNDS, 0, 0]
    width = (40 * figures["bits_per_user"] // (6 * demo_deployed.ROUNDS)).bit_length()  # of the counts of all, in 6 coordinates
    assert figures["bytes_per_user"] == demo_deployed.ROUNDS * (128 + 288 + -(-6 * width // 8))
    assert "https://127.0.0.1:" in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert running(tmp_path) == []
    assert dict(os.environ) == before


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_stopping_it_leaves_nothing(tmp_path, number):
    command = [sys.executable, "-c", "from croupier.cli import main; main()", "demo", "--deployed", "--users", "400"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "https://127.0.0.1:" in process.stderr.readline()  # both roles are there
        assert len(running(tmp_path)) >= 2
        time.sleep(0.5)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert said.strip().splitlines()[-1] == "croupier: stopped"
    assert "Traceback" not in said
    assert running(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_role_that_does_not_start_is_told_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(demo_deployed, "_SCHEMA", "nonsense")
    result = croupier("demo", "--deployed", "--users", "20")
    assert result.returncode == 1
    assert "the analyzer did not start" in result.stderr
    assert "schema.toml" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_says_how_to_get_it():
    with mock.patch("croupier.cli.demo_deployed.find_spec", return_value=None):
        result = croupier("demo", "--deployed")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert how_to_install("service") in result.stderr
    assert "uvicorn" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--users", "5"], "users = 5"),
        (["--users", "100000"], "users = 100000"),
        (["--synthetic"], "--synthetic"),
        (["--by-plane"], "--by-plane"),
        (["-o", "x.html"], "--output"),
        (["--delta", "1"], "delta = 1"),
    ],
)
def test_mistakes_are_one_line(arguments, word):
    result = croupier("demo", "--deployed", *arguments)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert word in result.stderr


def test_people_are_the_same_whenever_they_are_made_and_fit_the_schema(tmp_path):
    (tmp_path / "schema.toml").write_text(demo_deployed._SCHEMA)
    assert Schema.load(tmp_path / "schema.toml") == PATIENTS
    made, again = patients(500, seed=3).batch, patients(500, seed=3).batch
    assert made.equals(again)
    ill = np.array(made["ill"].to_pylist()) == "yes"
    assert 0.3 < ill.mean() < 0.7
    assert set(made.schema.names) == {*PATIENTS.columns, "ill"}
