"""Deployed tasks with invalid = "blank": who holds a record that is not valid answers like everybody, and says nothing of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_records import TARGETS, UNSORTED, person, reading

from croupier.service.analyzer.task_file import TaskFile
from croupier.service.client.client import blanked_mean, checked_mean
from croupier.service.wire.documents import WireError, canonical
from croupier.service.wire.queries import records_to_dict
from croupier.service.wire.task import TaskRound
from croupier.table import Schema
from croupier.table.model import Request
from croupier.validation import ArgumentError

FACTS = 'target = {column = "ill", classes = ["yes", "no"]}\ncolumns = {age = {low = 0, high = 100}}\n'
KEY = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
# What is wrong with one value of a record, and what is wrong with the whole of it.
BAD_VALUES = ["30,perhaps\n", "thirty,yes\n", "30,\n", "\ufffd,yes\n"]
BAD_FILES = ["", "30\n", '"30,yes\n']


def loaded(folder, *lines):
    (folder / "schema.toml").write_text(FACTS)
    (folder / "task.toml").write_text("\n".join(['schema = "schema.toml"', "users = 500", f'shuffler_key = "{KEY}"', *lines]))
    return TaskFile.load(folder / "task.toml")


def test_a_task_file_may_say_what_becomes_of_records_that_are_not_valid(tmp_path):
    plain, refusing, blanking = (loaded(tmp_path, *lines) for lines in ((), ('invalid = "refuse"',), ('invalid = "blank"',)))
    assert [made.task().query.blanks for made in (plain, refusing, blanking)] == [False, False, True]
    assert blanking.task().query.records["parameters"]["invalid"] == "blank"
    assert "invalid" not in plain.task().query.records["parameters"]  # tasks that do not say it are what they were
    assert len({made.task().id for made in (plain, refusing, blanking)}) == 3  # clients see what they agree to
    assert blanking.estimator.invalid == "blank"  # so that the model says what was assumed
    with pytest.raises(ArgumentError, match="invalid = 'ignore'"):
        loaded(tmp_path, 'invalid = "ignore"')


def test_a_word_that_is_not_known_is_refused_by_clients():
    words = records_to_dict(Schema.from_toml(FACTS), Request("classify", {"epsilon": 1.0, "invalid": "blank"}, None))
    reading(words)
    words["parameters"] = {"epsilon": 1.0, "invalid": "guess"}
    with pytest.raises(WireError, match="invalid"):
        reading(words)


@pytest.fixture
def asked(tmp_path):
    """A round, away from where it began, of a task that blanks and of one that refuses, and the readers of both."""

    def make(*lines):
        task = loaded(tmp_path, 'interactivity = "full"', *lines).task()
        theta = np.linspace(1.0, 2.0, task.query.dim)
        task_round = TaskRound(task.id, "a", 1, 1, theta, X25519PrivateKey.generate().public_key())
        return SimpleNamespace(task=task, round=task_round, reader=task.query)

    return make


def mean_of(made, file, text, how=blanked_mean):
    file.write_text("age,ill\n" + text)
    return how(made.task, made.round, lambda: made.reader.read_file(file))


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_a_bad_value_has_gradient_0_beside_the_users_other_rows(asked, tmp_path, bad):
    made, file = asked('invalid = "blank"'), tmp_path / "me.csv"
    good = mean_of(made, file, "30,yes\n")
    assert np.linalg.norm(good) > 0.1
    assert np.array_equal(mean_of(made, file, bad), np.zeros(2))
    assert np.allclose(mean_of(made, file, f"30,yes\n{bad}"), good / 2, rtol=1e-15)
    with pytest.raises(ArgumentError):  # the same file where the task refuses
        mean_of(asked(), file, bad, checked_mean)


@pytest.mark.parametrize("bad", BAD_FILES)
def test_a_file_that_cannot_be_read_is_one_blank(asked, tmp_path, bad):
    file = tmp_path / "me.csv"
    assert mean_of(asked('invalid = "blank"'), file, bad) is None  # answered by zeros
    with pytest.raises(ArgumentError):
        mean_of(asked(), file, bad, checked_mean)


def test_valid_records_answer_the_same_in_both_kinds_of_task(asked, tmp_path):
    file, text = tmp_path / "me.csv", "30,yes\n71.5,no\n"
    refusing = mean_of(asked(), file, text, checked_mean)
    assert np.array_equal(mean_of(asked('invalid = "blank"'), file, text), refusing)


@pytest.mark.parametrize("X", [np.nan, "x", [[0.1, 0.2, 0.3]], object()])
def test_rows_that_a_program_brings_are_blanked_too(asked, X):
    """Not numbers, not finite, of another length, or nothing of the kind: no exception, and the public default."""
    made = asked('invalid = "blank"')
    rows = [[X, 1.0]] if isinstance(X, float | str) else X
    mean = blanked_mean(made.task, made.round, lambda: (rows, [1]))
    assert mean is None or np.array_equal(mean, np.zeros(2))


@pytest.mark.parametrize("kind", TARGETS)
def test_every_kind_of_target_and_column_has_blanks(tmp_path, kind):
    target, labels = TARGETS[kind]
    facts = Schema.from_toml(UNSORTED.format(target=target))
    task = "regress-huber" if kind == "range" else "classify"
    reader = reading(json.loads(canonical(records_to_dict(facts, Request(task, {"epsilon": 1.0, "invalid": "blank"}, None)))))
    head, record = person(1, labels).splitlines()
    values = record.split(",")
    columns = head.split(",")
    for name in ("income", "ill", "blood", "age", "weight"):  # towns and smokers that are not declared are none of the levels
        bad = [*values]
        bad[columns.index(name)] = "?"
        (tmp_path / "me.csv").write_text("\n".join([head, ",".join(bad), record]) + "\n")
        rows, targets = reader.read_file(tmp_path / "me.csv")
        assert not rows[0].any(), name
        assert targets[0] == 0
        assert rows[1].any()
