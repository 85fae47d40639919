"""From a file to a fitted model in Python: the same as the command, bit for bit, and heard by a watcher."""

from __future__ import annotations

import contextlib
import json
import sys
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest

from croupier.cli import main
from croupier.optimizer import StopTraining
from croupier.table import Schema, TableModel, fit_table
from croupier.table._encode import Encoder
from croupier.table._population import Engine, TableBlock, TableWarning, Watcher, _blocks
from croupier.table._read import Dialect, Source
from croupier.table.model import Request, task_for
from croupier.validation import ArgumentError

FACTS = """
[target]
column = "ill"
classes = ["no", "yes"]
[columns.age]
low = 18
high = 90
[columns.town]
levels = ["A", "B"]
"""
ROWS = 600


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ages, towns = rng.integers(18, 90, ROWS), rng.choice(["A", "B"], ROWS)
    lines = [f"{age},{town},{'yes' if age > 55 else 'no'}\n" for age, town in zip(ages, towns, strict=True)]
    (tmp_path / "people.csv").write_text("age,town,ill\n" + "".join(lines))
    (tmp_path / "facts.toml").write_text(FACTS)
    return tmp_path


def test_the_command_and_the_function_make_the_same_model(folder):
    argv = ["croupier", "fit", "people.csv", "--schema", "facts.toml", "--seed", "5", "--quiet", "-o", "command.json"]
    with mock.patch.object(sys, "argv", argv), contextlib.suppress(SystemExit):
        main()
    model = fit_table("people.csv", "facts.toml", random_state=5, epsilon=1.0)
    model.save(folder / "function.json")
    assert isinstance(model, TableModel)
    assert (folder / "function.json").read_text() == (folder / "command.json").read_text()
    assert json.loads((folder / "function.json").read_text())["format"] == "croupier table model"


class Noting(Watcher):
    def __init__(self, stop_after: int | None = None) -> None:
        self.heard, self.stop_after, self.rounds = [], stop_after, 0

    @contextmanager
    def reading(self, name):
        rows = []
        yield rows.append
        self.heard.append(("read", name, sum(rows)))

    @contextmanager
    def waiting(self, what):
        self.heard.append(("wait", what))
        yield

    @contextmanager
    def training(self, schedule, delta):
        self.heard.append(("train", schedule.rounds, delta))
        yield
        self.heard.append(("trained",))

    def after_round(self, done):
        self.rounds += 1
        assert done.index == self.rounds
        if self.rounds == self.stop_after:
            raise StopTraining


def test_a_watcher_hears_of_every_step_and_may_end_training(folder):
    watcher, seen = Noting(stop_after=2), []
    options = {"interactivity": "full", "rounds": 5, "callbacks": (seen.append,)}
    model = fit_table(Source("people.csv"), Schema.from_toml(FACTS), watcher=watcher, **options)
    steps = [("read", "people.csv", ROWS), ("wait", "checking records"), ("train", 5, 1e-6), ("trained",)]
    assert watcher.heard == steps
    result = model.estimator.result_
    assert (result.stopped, result.rounds, len(seen)) == (True, 2, 2)
    assert model.estimator.callbacks == options["callbacks"]  # a model does not keep its watcher


def test_errors_name_arguments_and_not_options(folder):
    for arguments, name in (
        ({"task": "quantile"}, "task"),
        ({"delta": 1.0}, "delta"),
        ({"engine": Engine(work_dir=folder / "nowhere")}, "work_dir"),
    ):
        with pytest.raises(ArgumentError) as refused:
            fit_table("people.csv", "facts.toml", **arguments)
        assert refused.value.name == name
    with pytest.raises(ArgumentError, match="engine = 'dask'"):
        Engine("dask")
    assert task_for(Schema.from_toml(FACTS), "svm") == "svm"


def test_a_file_that_was_cut_off_is_warned_of(folder):
    whole = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(whole[:-1])
    with pytest.warns(TableWarning, match="does not end with a line break"):
        fit_table("people.csv", "facts.toml", random_state=0)


GERMAN = Dialect(";", ",", "cp1252")


def german(folder):
    """The same people as a spreadsheet of another country writes them: the town's name has a letter that is not ASCII."""
    text = (folder / "people.csv").read_text().replace(",A,", ",Köln,")
    head, *lines = text.replace(",", ";").splitlines()
    (folder / "german.csv").write_bytes("\n".join([head, *(line.replace(";", ",0;", 1) for line in lines), ""]).encode("cp1252"))
    return Source(folder / "german.csv", GERMAN), Schema.from_toml(FACTS.replace('"A"', '"Köln"'))


def test_a_file_in_another_dialect_gives_the_model_of_a_plain_one(folder):
    plain = fit_table("people.csv", "facts.toml", epsilon=2.0, random_state=3).estimator
    source, facts = german(folder)
    other = fit_table(source, facts, epsilon=2.0, random_state=3).estimator
    np.testing.assert_array_equal(other.coef_, plain.coef_)


def test_a_block_that_is_read_elsewhere_knows_the_dialect_of_its_file(folder):
    source, facts = german(folder)
    maker = Request("classify", {"epsilon": 1.0}, 1e-6).estimator(facts)
    (block,) = _blocks(source, Encoder(facts), maker)
    assert isinstance(block, TableBlock)
    assert (block.dialect, block.users) == (GERMAN, ROWS)
    plain = Schema.load(folder / "facts.toml")
    (expected,) = _blocks(Source(folder / "people.csv"), Encoder(plain), maker)
    for ours, theirs in zip(block.read(), expected.read(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
