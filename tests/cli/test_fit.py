"""From a file to a model, its predictions and scores, as a user meets them; every odd input before anybody is asked."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from pyarrow import parquet
from rich.console import Console

from croupier.cli import main
from croupier.cli.terminal import warnings_said
from croupier.estimator import ShuffleLogisticRegression, ShuffleRidge
from croupier.table import TableModel
from croupier.table._encode import Encoder
from croupier.table._read import Source

FACTS = """
[target]
column = "ill"
classes = ["no", "yes"]

[columns.age]
low = 0
high = 100

[columns.weight]
low = 30
high = 200
missing = true

[columns.sex]
levels = ["f", "m"]
"""
PAY = FACTS.replace('column = "ill"', 'column = "pay"').replace('classes = ["no", "yes"]', "range = [0, 100000]")
USERS = 3000


def croupier(*arguments, code=0):
    """What the command prints, without the price of a new process."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["croupier", *map(str, arguments)]
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with mock.patch.object(sys, "argv", argv), streams[0], streams[1], pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == code, err.getvalue()
    return out.getvalue(), err.getvalue()


def refused(*arguments):
    """The one line with which a command refuses."""
    out, err = croupier(*arguments, code=2)
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("warning")]
    assert len(lines) == 1
    return lines[0]


def people(users=USERS, seed=0):
    rng = np.random.default_rng(seed)
    age, weight, sex = rng.uniform(0, 100, users), rng.uniform(30, 200, users), rng.choice(["f", "m"], users)
    score = (age - 50) / 25 + 2 * (sex == "m") - 1
    return {
        "person": np.arange(users) // 2,
        "age": age,
        "weight": weight,
        "sex": sex,
        "ill": np.where(score + rng.logistic(size=users) / 4 > 0, "yes", "no"),
        "pay": 50_000 + 15_000 * score + 2000 * rng.normal(size=users),
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the same people as CSV and Parquet, and schemas."""
    monkeypatch.chdir(tmp_path)
    table = pa.table(people())
    arrow_csv.write_csv(table, "people.csv")
    parquet.write_table(table, "people.parquet")
    (tmp_path / "facts.toml").write_text(FACTS)
    (tmp_path / "pay.toml").write_text(PAY)
    return tmp_path


def write(folder, name="odd.csv", **changes):
    """The people with some columns changed."""
    arrow_csv.write_csv(pa.table(people() | changes), folder / name)
    return name


def changed(column, index, value):
    values = people()[column].tolist()
    values[index] = value
    return {column: values}


def theta(path):
    return TableModel.load(path).estimator.result_.theta


# What it should do


def test_fit_says_what_it_promises_and_what_to_do_next(folder):
    out, err = croupier("fit", "people.csv", "--schema", "facts.toml")
    for words in (
        "rounds on 3,000 users, each asked at most once (secret lots).",
        "This assumes that lots stay secret. To an attacker who also knows when each user answered: epsilon",
        "(1, ",
        "replace-one",
        "model.json",
        "croupier show model.json",
        "croupier predict model.json",
    ):
        assert words in out
    assert "NOT" not in out
    *_, rounds = err.splitlines()  # all before anybody is asked
    assert re.fullmatch(r"Training: \d+ rounds \(descent\); each user is asked at most once\.", rounds)
    assert err.count("above 20 there is little protection") == 1  # of 3 000 people: above 20
    second = re.compile(r"when each (?:user|person) answered")
    assert (len(second.findall(out)), len(second.findall(err))) == (1, 1)  # the second figure: in the warning, in the guarantee
    _, err = croupier("fit", "people.csv", "--schema", "facts.toml", "--epsilon", "0.2", "--force")
    assert re.search(
        r"^To an attacker who also knows when each user answered: epsilon [\d.]+ at delta", err, re.M
    )  # up to 20: no warning
    assert (len(second.findall(err)), "little protection" in err) == (1, False)
    out, _ = croupier("show", "model.json")
    assert len(second.findall(out)) == 1
    assert "classify of 'ill' from age, weight, sex" in out
    assert "Assumptions about the shuffler" in out


def test_a_missing_schema_names_the_private_way_to_one(folder):
    _, err = croupier("fit", "people.csv", code=2)
    assert "croupier describe DATA --guess guess.toml" in err


def test_csv_parquet_and_the_estimator_agree_to_the_last_bit(folder):
    for kind in ("csv", "parquet"):
        croupier("fit", f"people.{kind}", "--schema", "facts.toml", "-o", f"{kind}.json", "--seed", 1, "--quiet")
    model = TableModel.load(folder / "csv.json")
    encoder = Encoder(model.schema)
    piece = next(Source("people.parquet").pieces(encoder.types(target=True)))
    own = ShuffleLogisticRegression(classes=["no", "yes"], random_state=1).fit(encoder.rows(piece), encoder.targets(piece))
    for path in ("csv.json", "parquet.json"):
        np.testing.assert_array_equal(theta(folder / path), own.result_.theta)
    assert own.score(encoder.rows(piece), encoder.targets(piece)) > 0.8
    scores = json.loads(croupier("evaluate", "csv.json", "people.csv", "--json")[0])
    assert scores["accuracy"] == own.score(encoder.rows(piece), encoder.targets(piece))


def test_users_with_several_rows_are_one_each(folder):
    figures = [
        json.loads(croupier("fit", "people.csv", "--schema", "facts.toml", "--user-column", "person", "--json", "-o", "u.json")[0]),
        json.loads(croupier("fit", "people.csv", "--schema", "facts.toml", "--json", "-o", "r.json")[0]),
    ]
    assert [figure["users"] for figure in figures] == [USERS // 2, USERS]
    assert TableModel.load(folder / "u.json").schema.user == "person"
    assert [TableModel.load(folder / name).estimator.unit_ for name in ("u.json", "r.json")] == ["person", "row"]


@pytest.mark.parametrize(
    ("task", "schema", "more"),
    [
        ("classify", "facts.toml", []),
        ("svm", "facts.toml", ["--radius", "5"]),
        ("regress-huber", "pay.toml", ["--honest", "0.9"]),
        ("regress-mean", "pay.toml", ["--rounds", "4"]),
        ("quantile", "pay.toml", ["--quantile", "0.8"]),
    ],
)
def test_every_task_from_file_to_scores(folder, task, schema, more):
    arguments = ["--schema", schema, "--task", task, "--interactivity", "full", "--epsilon", "4", "--json", *more]
    figures = json.loads(croupier("fit", "people.parquet", *arguments)[0])
    assert figures["task"] == task
    assert figures["private"]
    assert figures["epsilon"] == 4
    assert not figures["stopped"]
    out, err = croupier("evaluate", "model.json", "people.csv", "--json")
    scores = json.loads(out)
    assert "does not cover" in err
    if task in ("classify", "svm"):
        assert scores["accuracy"] > 0.8
        assert ("log_loss" in scores) == (task == "classify")
    else:
        assert scores["mae"] < 17_000  # a constant has about 17 000 at best
        assert scores["mae"] <= scores["rmse"]
        assert ("pinball" in scores) == (task == "quantile")


def test_regression_agrees_with_the_estimator(folder):
    croupier("fit", "people.csv", "--schema", "pay.toml", "--seed", 3, "--quiet")
    model = TableModel.load(folder / "model.json")
    assert model.task == "regress-mean"
    encoder = Encoder(model.schema)
    piece = next(Source("people.parquet").pieces(encoder.types(target=True)))
    own = ShuffleRidge(target_range=(0, 100_000), random_state=3).fit(encoder.rows(piece), encoder.targets(piece))
    np.testing.assert_array_equal(theta(folder / "model.json"), own.result_.theta)


def test_predictions_as_csv_parquet_and_on_the_screen_agree(folder):
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet")
    arrow_csv.write_csv(pa.table(people()).drop_columns(["ill", "person"]), "new.csv")
    for name in ("p.csv", "p.parquet"):
        _, err = croupier("predict", "model.json", "new.csv", "--proba", "-o", name)
        assert "3,000 predictions" in err
    shown, _ = croupier("predict", "model.json", "new.csv", "--proba")
    assert shown == (folder / "p.csv").read_text()
    table = parquet.read_table("p.parquet")
    assert table.column_names == ["prediction", "probability no", "probability yes"]
    sums = np.asarray(table["probability no"]) + np.asarray(table["probability yes"])
    np.testing.assert_allclose(sums, 1)
    likely = np.asarray(table["probability yes"]) > 0.5
    assert (np.asarray(table["prediction"].to_pylist()) == np.where(likely, "yes", "no")).all()
    assert "p.csv" in refused("predict", "model.json", "new.csv", "-o", "p.csv")
    assert "--force" in refused("predict", "model.json", "new.csv", "-o", "p.csv")
    assert ".parquet" in refused("predict", "model.json", "new.csv", "-o", "p.xlsx")


def test_classes_that_are_numbers_stay_numbers(folder):
    write(folder, "n.csv", ill=(people()["ill"] == "yes").astype(int))
    (folder / "n.toml").write_text(FACTS.replace('["no", "yes"]', "[0, 1]"))
    croupier("fit", "n.csv", "--schema", "n.toml", "--quiet")
    croupier("predict", "model.json", "n.csv", "-o", "p.parquet")
    assert pa.types.is_integer(parquet.read_table("p.parquet").schema.field("prediction").type)


# The schema


def test_a_schema_is_drafted_from_a_public_sample_and_says_so(folder):
    out, err = croupier("schema", "people.csv", "--target", "ill", "--user-column", "person")
    assert "must be public" in err
    assert "public only if that sample is" in out
    croupier("schema", "people.csv", "--target", "ill", "--user-column", "person", "-o", "draft.toml")
    assert (folder / "draft.toml").read_text() == out
    croupier("fit", "people.csv", "--schema", "draft.toml", "--quiet")
    assert "exist" in refused("schema", "people.csv", "--target", "ill", "-o", "draft.toml")


def test_without_a_schema_the_way_to_one_is_told(folder):
    assert "croupier schema SAMPLE --target ill" in refused("fit", "people.csv", "--target", "ill")


def test_data_declared_public_is_said_loudly_and_remembered(folder):
    arguments = ["fit", "people.csv", "--target", "ill", "--data-is-public"]
    out, err = croupier(*arguments)
    assert "No guarantee covers them" in err
    assert "except for the schema (ranges, levels, classes) taken from the data" in out
    assert "NOT COVERED" in croupier("show", "model.json")[0]
    assert TableModel.load(folder / "model.json").estimator.read_off_data_
    assert "contradicts --schema" in refused(*arguments, "--schema", "facts.toml", "--force")
    assert "--target" in refused("fit", "people.csv", "--data-is-public", "--force")


def test_seeded_runs_say_that_they_are_not_private(folder):
    out, _ = croupier("fit", "people.csv", "--schema", "facts.toml", "--seed", 0)
    assert "NOT PRIVATE" in out
    assert "Guarantee" not in out


# Odd inputs: what a careful person would want


def test_a_row_of_norm_a_million_counts_as_the_end_of_the_range(folder):
    far = write(folder, "far.csv", **changed("age", 5, 1e6))
    end = write(folder, "end.csv", **changed("age", 5, 100.0))
    for name in (far, end):
        croupier("fit", name, "--schema", "facts.toml", "-o", f"{name}.json", "--seed", 0, "--quiet")
    np.testing.assert_array_equal(theta(folder / "far.csv.json"), theta(folder / "end.csv.json"))


@pytest.mark.parametrize("value", ["nan", "", "NA", "inf"])
def test_a_number_that_is_missing_or_endless_does_no_harm(folder, value):
    write(folder, weight=[value, *map(str, people()["weight"][1:])])
    croupier("fit", "odd.csv", "--schema", "facts.toml", "--quiet")
    assert np.isfinite(theta(folder / "model.json")).all()


def test_an_unknown_category_counts_as_none_or_is_refused(folder):
    write(folder, **changed("sex", 7, "x"))
    croupier("fit", "odd.csv", "--schema", "facts.toml", "--quiet")
    (folder / "strict.toml").write_text(FACTS + 'unknown = "refuse"\n')
    line = refused("fit", "odd.csv", "--schema", "strict.toml", "--force")
    for words in ("odd.csv, row 8", "'sex'", "'x'", "nobody was asked"):
        assert words in line


@pytest.mark.parametrize(
    ("schema", "column", "value"), [("facts.toml", "ill", "maybe"), ("facts.toml", "ill", ""), ("pay.toml", "pay", None)]
)
def test_a_class_not_declared_and_a_missing_target_are_refused(folder, schema, column, value):
    write(folder, **changed(column, 2000, value))
    line = refused("fit", "odd.csv", "--schema", schema)
    for words in ("odd.csv, row 2001", column, "nobody was asked"):
        assert words in line
    assert not (folder / "model.json").exists()


@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_a_file_cut_off_half_way_is_refused_and_leaves_nothing(folder, name):
    whole = (folder / name).read_bytes()
    cut = folder / f"cut{name[6:]}"
    cut.write_bytes(whole[: whole.index(b",", len(whole) // 2)])
    before = set(folder.iterdir())
    line = refused("fit", cut.name, "--schema", "facts.toml", "--work-dir", ".")
    assert cut.name in line
    assert "truncated" in line
    assert set(folder.iterdir()) == before


def test_a_file_cut_off_within_its_last_value_is_noticed(folder):
    text = (folder / "people.csv").read_text()
    (folder / "cut.csv").write_text(text[:-3])
    _, err = croupier("fit", "cut.csv", "--schema", "facts.toml")
    assert "cut.csv does not end with a line break" in err


def test_a_constant_column_is_harmless_and_no_feature_of_a_draft(folder):
    write(folder, weight=np.full(USERS, 70.0))
    croupier("fit", "odd.csv", "--schema", "facts.toml", "--quiet")
    _, err = croupier("fit", "odd.csv", "--target", "ill", "--data-is-public", "--force")
    assert "column left out, weight: the same in all rows" in err
    assert "weight" not in TableModel.load(folder / "model.json").schema.columns


@pytest.mark.parametrize("users", [2, 3, 10])
def test_a_handful_of_users_get_their_guarantee_and_a_warning(folder, users):
    arrow_csv.write_csv(pa.table(people()).slice(0, users), "few.csv")
    out, err = croupier("fit", "few.csv", "--schema", "facts.toml")
    assert "(1, " in out
    assert f"{users} users are too few" in err


@pytest.mark.parametrize("rows", [0, 1])
def test_nobody_and_one_user_are_refused(folder, rows):
    arrow_csv.write_csv(pa.table(people()).slice(0, rows), "few.csv")
    assert "at least 2" in refused("fit", "few.csv", "--schema", "facts.toml").replace("two", "2")


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "101"])
def test_an_epsilon_that_is_no_promise_is_refused_before_the_data_is_read(folder, epsilon):
    write(folder, **changed("ill", 0, "maybe"))
    line = refused("fit", "odd.csv", "--schema", "facts.toml", "--epsilon", epsilon)
    assert f"epsilon = {float(epsilon)}" in line
    assert "1 is a strong promise" in line


def test_an_epsilon_of_a_hundred_is_warned_about(folder):
    _, err = croupier("fit", "people.csv", "--schema", "facts.toml", "--epsilon", 100)
    assert "may change by a factor of 3e+43" in err


def test_delta_follows_the_number_of_users_and_one_too_large_is_refused(folder):
    figures = json.loads(croupier("fit", "people.csv", "--schema", "facts.toml", "--json")[0])
    assert figures["delta"] == 1e-6
    assert "delta = 0.001" in refused("fit", "people.csv", "--schema", "facts.toml", "--force", "--delta", 0.001)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.csv", "--schema", "facts.toml"], ["nowhere.csv: no such file"]),
        (["people.csv", "--schema", "nowhere.toml"], ["--schema names no file", "nowhere.toml"]),
        (["people.csv", "--schema", "facts.toml", "--target", "age"], ["--target = 'age'", "'ill'"]),
        (["people.csv", "--schema", "facts.toml", "-o", "nowhere/m.json"], ["nowhere/m.json", "mkdir"]),
        (["people.csv", "--schema", "facts.toml", "-o", "."], ["-o"]),
        (["people.csv", "--schema", "facts.toml", "--work-dir", "nowhere"], ["--work-dir = 'nowhere'"]),
        (["people.csv", "--schema", "facts.toml", "--task", "quantile"], ["--task = 'quantile'", "'classify', 'svm'"]),
        (["people.csv", "--schema", "facts.toml", "--quantile", "0.5"], ["--quantile", "--task quantile"]),
        (["people.csv", "--schema", "facts.toml", "--interactivity", "stream"], ["interactivity = 'stream'"]),
        (["people.csv", "--schema", "facts.toml", "--rule", "best"], ["rule = 'best'"]),
        (["people.csv", "--schema", "facts.toml", "--honest", "0"], ["honest = 0"]),
        (["people.csv", "--schema", "facts.toml", "--radius", "-1"], ["radius"]),
        (["people.csv", "--schema", "facts.toml", "--rounds", "0"], ["rounds = 0"]),
        (["people.csv", "--schema", "facts.toml", "--max-inflation", "1"], ["max-inflation = 1"]),
        (["people.csv", "--schema", "facts.toml", "--user-column", "nobody"], ["column 'nobody' is missing from people.csv"]),
        (["people.csv", "--data-is-public", "--target", "nothing"], ["column 'nothing' is missing from people.csv"]),
    ],
)
def test_mistakes_end_with_code_2_one_line_and_no_model(folder, arguments, words):
    line = refused("fit", *arguments)
    for word in words:
        assert word in line
    assert not (folder / "model.json").exists()


def test_a_column_of_the_schema_that_is_not_in_the_file_is_named(folder):
    arrow_csv.write_csv(pa.table(people()).drop_columns(["weight"]), "narrow.csv")
    line = refused("fit", "narrow.csv", "--schema", "facts.toml")
    assert "column 'weight'" in line
    assert "'person', 'age', 'sex'" in line


# The model file


def test_a_model_is_not_overwritten_unasked(folder):
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet")
    first = (folder / "model.json").read_bytes()
    assert "--force" in refused("fit", "people.csv", "--schema", "facts.toml")
    assert (folder / "model.json").read_bytes() == first
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet", "--force")
    assert (folder / "model.json").read_bytes() != first


def test_a_model_file_comes_back_with_its_guarantee_plan_and_schema(folder):
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet")
    values = json.loads((folder / "model.json").read_text())
    assert (values["format"], values["version"]) == ("croupier table model", 1)
    model = TableModel.load(folder / "model.json")
    assert model.estimator.guarantee_.delta(1.0) <= 1e-6
    assert model.estimator.schedule_.rounds == model.estimator.result_.rounds
    model.save(folder / "again.json")
    assert json.loads((folder / "again.json").read_text()) == values


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v | {"version": 3, "croupier": "9.9"}, ["version = 3", "croupier 9.9"]),
        (lambda v: v | {"format": "something"}, ["croupier table model"]),
        (lambda v: v | {"estimator": v["estimator"] | {"kind": "Popen"}}, ["'Popen'"]),
        (lambda v: v | {"schema": v["schema"] | {"columns": {"age": {"low": 0, "high": 1}}}}, ["belongs to another model"]),
        (
            lambda v: v | {"schema": v["schema"] | {"target": {"column": "ill", "classes": ["a", "b"]}}},
            ["belongs to another model"],
        ),
        (lambda v: v | {"schema": None}, ["schema"]),
        (lambda v: json.dumps(v)[:1000], ["cannot be read", "odd.json"]),
    ],
)
def test_a_foreign_newer_or_broken_model_file_is_refused(folder, change, words):
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet")
    made = change(json.loads((folder / "model.json").read_text()))
    (folder / "odd.json").write_text(made if isinstance(made, str) else json.dumps(made))
    for command in (["show", "odd.json"], ["predict", "odd.json", "people.csv"]):
        line = refused(*command)
        for word in words:
            assert word in line


def test_a_model_that_promises_more_than_its_plans_is_refused(folder):
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet")
    values = json.loads((folder / "model.json").read_text())
    values["estimator"]["fitted"]["result_"]["of"]["guarantee"]["allocations"][0]["mu"] /= 2
    (folder / "model.json").write_text(json.dumps(values))
    assert "no stronger than its plans" in refused("show", "model.json")


# Real processes: Ctrl-C, and memory


SLOW = """
import sys
from croupier.cli import main
from croupier.population import ArrayPopulation

ask = ArrayPopulation.answer
def answer(self, *arguments):
    print("asking", file=sys.stderr, flush=True)
    sys.stdin.readline()
    return ask(self, *arguments)
ArrayPopulation.answer = answer
main()
"""


def interrupted(folder, *arguments, after, times):
    """A run whose rounds wait for a line of input, interrupted in round `after`."""
    command = [sys.executable, "-c", SLOW, "fit", "people.csv", "--schema", "facts.toml", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, **pipes, text=True) as process:
        next(line for line in process.stderr if "Training: " in line)  # after the second figure of secret lots
        for number in range(1, after + 1):
            assert process.stderr.readline() == "asking\n"
            if number < after:
                process.stdin.write("\n")
                process.stdin.flush()
        process.send_signal(signal.SIGINT)
        said = process.stderr.readline()  # the first has been noticed
        if times == 2:
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(None if times == 2 else "\n", timeout=120)
    return process.returncode, out, said + err


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
@pytest.mark.process
def test_ctrl_c_leaves_the_model_of_the_rounds_done_with_its_guarantee(folder, interactivity):
    code, out, err = interrupted(folder, "--interactivity", interactivity, "--rounds", "9", after=3, times=1)
    assert code == 3, err
    assert "Stopping after the current round" in err
    assert "Stopped after 3 of 9 planned rounds" in out
    model = TableModel.load(folder / "model.json")
    result = model.estimator.result_
    assert result.stopped
    assert result.rounds == 3
    assert model.estimator.guarantee_.delta(1.0) <= 1e-6
    assert "The guarantee counts all planned rounds" in out
    assert croupier("predict", "model.json", "people.csv")[0].count("\n") == USERS + 1


@pytest.mark.process
def test_a_second_ctrl_c_throws_the_model_away(folder):
    before = set(folder.iterdir())
    code, out, err = interrupted(folder, "--rounds", "9", "--work-dir", ".", after=2, times=2)
    assert code == 130
    assert out == ""
    assert "no model was saved" in err
    assert set(folder.iterdir()) == before


def test_after_a_run_ctrl_c_means_what_it_meant_before(folder):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of memory are those of Linux")
@pytest.mark.process
def test_memory_does_not_grow_with_the_rows(folder):
    """40 000 rows of 1 500 features are 240 MB: more than the process may have beside the libraries themselves."""
    rows, levels = 40_000, 1500
    rng = np.random.default_rng(0)
    codes = rng.integers(levels, size=rows)
    parquet.write_table(pa.table({"c": codes, "y": (codes % 2).astype(int)}), "wide.parquet")
    (folder / "wide.toml").write_text(
        f'target = {{column = "y", classes = [0, 1]}}\ncolumns = {{c = {{levels = {[*range(levels)]}}}}}'
    )
    limited = (
        f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({450 << 20},) * 2); from croupier.cli import main; main()"
    )
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            limited,
            "fit",
            "wide.parquet",
            "--schema",
            "wide.toml",
            "--rounds",
            "2",
            "--work-dir",
            ".",
            "--quiet",
        ],
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


# One person is one user, whatever the file; and what a model file says follows from what is in it


def test_numbers_as_names_of_users_do_not_depend_on_their_neighbours(folder):
    """The same 1 500 people in two files, large float ids; one more value in the second that is no whole number."""
    ids = 1e10 + 1000.0 * np.arange(1500)
    (folder / "both").mkdir()
    for name, last in (("a", ids[-1]), ("b", 0.5)):
        owners = np.concatenate([ids, ids[:-1], [last]])
        parquet.write_table(pa.table(people() | {"person": owners}), folder / "both" / f"{name}.parquet")
    report = json.loads(croupier("fit", "both", "--schema", "facts.toml", "--user-column", "person", "--json")[0])
    assert report["users"] == 1501


def test_a_user_who_is_not_a_number_is_missing(folder):
    owners = np.arange(USERS, dtype=float)
    owners[-1] = np.nan
    parquet.write_table(pa.table(people() | {"person": owners}), "odd.parquet")
    assert "missing" in refused("fit", "odd.parquet", "--schema", "facts.toml", "--user-column", "person")


def test_true_and_false_are_read_as_they_are_written(folder):
    """As pandas writes them (True), as Arrow does (true), and as a target."""
    flag = np.where(people()["ill"] == "yes", "True", "False")
    write(folder, "flags.csv", flag=flag)
    croupier("schema", "flags.csv", "--target", "ill", "-o", "flags.toml")
    croupier("fit", "flags.csv", "--schema", "flags.toml", "--epsilon", 8, "--quiet")
    assert json.loads(croupier("evaluate", "model.json", "flags.csv", "--json")[0])["accuracy"] > 0.97
    croupier("schema", "flags.csv", "--target", "flag", "-o", "target.toml")
    croupier("fit", "flags.csv", "--schema", "target.toml", "--epsilon", 8, "--quiet", "-o", "target.json")


def test_rows_between_two_stray_quotation_marks_are_not_swallowed(folder):
    lines = (folder / "people.csv").read_text().splitlines()
    for index in (100, 2000):
        lines[index] = lines[index].replace('"f"', '"f').replace('"m"', '"m')
    (folder / "swallow.csv").write_text("\n".join(lines) + "\n")
    assert "swallow.csv" in refused("fit", "swallow.csv", "--schema", "facts.toml")


def test_a_drafted_schema_has_to_make_sense_too(folder):
    asked = ("fit", "people.csv", "--data-is-public", "--target", "ill")
    assert "user" in refused(*asked, "--user-column", "ill")
    arrow_csv.write_csv(pa.table({"ill": people()["ill"]}), "alone.csv")
    assert "at least one feature" in refused("fit", "alone.csv", "--data-is-public", "--target", "ill")


def test_a_delta_for_nobody_is_refused_without_advice_for_two(folder):
    assert "1e-6 is usual" in refused("fit", "people.csv", "--schema", "facts.toml", "--delta", 1)


@pytest.mark.parametrize(
    "edit",
    [
        lambda fitted, values: (
            fitted["result_"]["of"].update(history=[]),
            fitted["result_"]["of"]["guarantee"].update(mu=0.0, slack=0.0),
            fitted["promise_"]["of"].update(epsilon=0.001, delta=1e-12),
        ),
        lambda fitted, values: values["estimator"]["parameters"].update(random_state=1),
        lambda fitted, values: fitted["coef_"]["of"].update(values=[[0.0]]),
        lambda fitted, values: fitted["coef_"]["of"].update(values=[[1.0, 2.0, 3.0, 4.0, 5.0]]),
        lambda fitted, values: fitted.pop("coef_"),
        lambda fitted, values: fitted.update(feature_norm_="a"),
        lambda fitted, values: fitted["result_"]["of"]["history"][0].update(theta="x"),
    ],
)
def test_a_model_file_that_contradicts_itself_is_refused(folder, edit):
    croupier("fit", "people.csv", "--schema", "facts.toml", "--quiet")
    values = json.loads((folder / "model.json").read_text())
    edit(values["estimator"]["fitted"], values)
    (folder / "edited.json").write_text(json.dumps(values))
    refused("show", "edited.json")


# --- records that are not valid


@pytest.mark.parametrize(("column", "value"), [("age", "thirty"), ("ill", "perhaps"), ("ill", None), ("weight", "SECRET")], ids=str)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_with_blanks_a_fit_prints_the_same_whatever_a_record_holds(folder, column, value, kind):
    """On one of the two files the command would stop: whoever sees its exit code would know."""
    odd = changed(column, 17, value)
    odd[column] = [None if entry is None else str(entry) for entry in odd[column]]
    (folder / "odd").mkdir()
    valid = people()
    valid[column] = [str(entry) for entry in valid[column]]
    printed = []
    for name, table in (("people", pa.table(valid)), ("odd/people", pa.table(people() | odd))):
        if kind == "csv":
            arrow_csv.write_csv(table, f"{name}.csv")
        else:
            parquet.write_table(table, f"{name}.parquet")
        printed.append(croupier("fit", f"{name}.{kind}", "--schema", "facts.toml", "--invalid", "blank", "--force", "-o", "m.json"))
    assert printed[0] == printed[1]
    assert "SECRET" not in (folder / "m.json").read_text()
    assert "Assumptions about the records: none." in TableModel.load(folder / "m.json").estimator.explain()
    refused("fit", f"odd/people.{kind}", "--schema", "facts.toml", "-o", "other.json")


def test_valid_records_give_the_same_model_with_blanks_and_without(folder):
    for invalid in ("refuse", "blank"):
        for data in ("people.csv", "people.parquet"):
            croupier(
                "fit", data, "--schema", "facts.toml", "--invalid", invalid, "--seed", 1, "--force", "-o", f"{invalid}.{data}.json"
            )
    models = [
        theta(folder / f"{invalid}.{data}.json") for invalid in ("refuse", "blank") for data in ("people.csv", "people.parquet")
    ]
    for model in models:
        np.testing.assert_array_equal(model, models[0])
    assert "invalid = 'drop'" in refused("fit", "people.csv", "--schema", "facts.toml", "--invalid", "drop", "-o", "o.json")


def test_people_with_several_rows_may_have_blank_ones(folder):
    name = write(folder, **changed("ill", 17, "perhaps"), person=[None, *people()["person"].tolist()[1:]])
    croupier("fit", name, "--schema", "facts.toml", "--user-column", "person", "--invalid", "blank", "-o", "m.json")
    assert TableModel.load(folder / "m.json").estimator.n_users_ == USERS // 2


def test_a_warning_names_the_option_and_not_the_argument_beside_it(capsys):
    with warnings_said(Console(stderr=True, width=200)):
        warnings.warn('use interactivity="full" (--interactivity full), which costs more', stacklevel=1)
    assert capsys.readouterr().err == "warning: use --interactivity full, which costs more\n"
