"""What stopped new users at the command line: each case ends with a model, or with exit code 2 and one line with the cure."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from helpers_cli import croupier

from croupier.table import TableModel

USERS = 2003


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """People in a plain file and in one from a German spreadsheet, with row numbers in the first column."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    height, alter = np.round(rng.normal(1.7, 0.1, USERS), 3), rng.integers(18, 90, USERS)
    ill = np.where(alter + rng.normal(0, 10, USERS) > 60, "krank", "gesund")
    table = pa.table(
        {"nr": np.arange(1, USERS + 1), "größe": height, "alter": alter, "ort": ["Köln", *["Ulm"] * (USERS - 1)], "ill": ill}
    )
    arrow_csv.write_csv(table, "plain.csv")
    lines = (tmp_path / "plain.csv").read_text().replace('"', "").replace(",", ";").replace(".", ",")
    (tmp_path / "german.csv").write_bytes(lines.encode("cp1252"))
    return tmp_path


GERMAN = ("--sep", ";", "--decimal", ",", "--encoding", "cp1252")


def refused(*arguments):
    done = croupier(*map(str, arguments))
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
    assert len(lines) == 1
    return lines[0]


def test_a_german_file_goes_all_the_way(folder):
    drafted = croupier("schema", "german.csv", "--target", "ill", "-o", "facts.toml", *GERMAN)
    assert drafted.returncode == 0, drafted.stderr
    text = (folder / "facts.toml").read_text(encoding="utf-8")
    assert "# nr: row numbers, 1 to 2003" in text
    assert '[columns."größe"]' in text
    fitted = croupier("fit", "german.csv", "--schema", "facts.toml", *GERMAN, "--seed", "0")
    assert fitted.returncode == 0, fitted.stderr
    assert croupier("fit", "plain.csv", "--schema", "facts.toml", "--seed", "0", "-o", "plain.json").returncode == 0
    weights = [json.loads((folder / name).read_text())["estimator"]["fitted"]["coef_"] for name in ("model.json", "plain.json")]
    assert weights[0] == weights[1]
    scored = croupier("evaluate", "model.json", "german.csv", "--json", *GERMAN)
    assert json.loads(scored.stdout)["rows"] == USERS
    assert croupier("predict", "model.json", "german.csv", *GERMAN).stdout.count("\n") == USERS + 1
    page = croupier("report", "model.json", "--data", "german.csv", "--data-is-public", *GERMAN)
    assert page.returncode == 0, page.stderr


def test_every_step_that_is_left_out_is_named(folder):
    (folder / "semicolon.csv").write_text((folder / "plain.csv").read_text().replace(",", ";"))
    assert "add --sep ';'" in refused("schema", "semicolon.csv", "--target", "ill")
    (folder / "commas.csv").write_text("alter;lohn;ill\n31;1,5;ja\n40;2,5;nein\n")
    assert "add --sep ';'" in refused("schema", "commas.csv", "--target", "ill")  # decimal commas split the lines, too
    assert "--encoding cp1252" in refused("schema", "german.csv", "--target", "ill", "--sep", ";")
    left = croupier("schema", "german.csv", "--target", "ill", "--sep", ";", "--encoding", "cp1252").stdout
    assert "# größe: numbers that seem to have a decimal comma: add --decimal ," in left
    croupier("schema", "plain.csv", "--target", "ill", "-o", "facts.toml")
    line = refused("fit", "german.csv", "--schema", "facts.toml", "--sep", ";", "--encoding", "cp1252")
    assert "german.csv, row 1, column 'größe'" in line
    assert "--decimal ," in line
    assert croupier("fit", "plain.csv", "--schema", "facts.toml", "--seed", "0").returncode == 0
    for command in ("predict", "evaluate"):
        assert "--sep" in refused(command, "model.json", "plain.csv", "--sep", ";;")


def test_misspelt_columns_and_keys_are_answered_with_the_likely_ones(folder):
    croupier("schema", "plain.csv", "--target", "ill", "-o", "facts.toml")
    facts = (folder / "facts.toml").read_text(encoding="utf-8")
    (folder / "case.toml").write_text(facts.replace("[columns.alter]", "[columns.Alter]"), encoding="utf-8")
    line = refused("fit", "plain.csv", "--schema", "case.toml")
    assert line == "croupier: column 'Alter' is missing from plain.csv; did you mean 'alter'?"
    (folder / "key.toml").write_text(facts.replace("high =", "hihg ="), encoding="utf-8")
    assert "unknown key 'hihg'; did you mean 'high'?" in refused("fit", "plain.csv", "--schema", "key.toml")


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_fit_says_how_many_rounds_it_will_run_and_who_is_left_over(folder, interactivity):
    croupier("schema", "plain.csv", "--target", "ill", "-o", "facts.toml")
    command = ("fit", "plain.csv", "--schema", "facts.toml", "--rounds", "10", "--interactivity", interactivity, "--force")
    command = (*command, "--lots", "open") if interactivity == "sequential" else command
    done = croupier(*command)
    if interactivity == "full":
        assert "Training: 10 rounds (acsa); all 2,003 users are asked in every round." in done.stderr
    else:
        assert "Training: 10 rounds" in done.stderr
        assert "2,000 of 2,003 users, each asked once; 3 of 2,003 are left over and not asked, because all rounds" in done.stdout
    assert "Training: " not in croupier(*command, "--quiet").stderr
    assert "Training: " not in croupier(*command, "--json").stderr


def test_an_option_that_is_no_number_is_named_with_its_value():
    done = croupier("plan", "--epsilon", "strong", "--delta", "1e-6", "--users", "10", "--dim", "1")
    assert done.returncode == 2
    assert "'--epsilon': Input should be a valid number" in done.stderr
    assert " It is 'strong'." in done.stderr


def test_a_table_in_place_of_a_model_is_refused_by_name(folder):
    done = croupier("predict", "plain.csv", "plain.csv")
    assert done.returncode == 2
    assert "MODEL names a file that cannot be read, 'plain.csv' (invalid JSON at line 1, column " in done.stderr


def test_show_prints_json(folder):
    croupier("schema", "plain.csv", "--target", "ill", "-o", "facts.toml")
    lots = ("--rounds", "10", "--lots", "open")
    fitted = json.loads(croupier("fit", "plain.csv", "--schema", "facts.toml", *lots, "--json").stdout)
    shown = json.loads(croupier("show", "model.json", "--json").stdout)
    assert {name: shown[name] for name in fitted} == fitted
    assert (shown["users"], shown["users_asked"]) == (USERS, 2000)
    assert shown["schema"]["target"] == {"column": "ill", "classes": ["gesund", "krank"]}
    assert "epsilon" in shown["explained"]
    assert shown["classes"] == ["gesund", "krank"]
    assert "A positive coefficient speaks for krank, a negative one for gesund." in shown["explained"]
    text = croupier("show", "model.json").stdout
    assert "Coefficients towards krank (against gesund)" in text
    intercept = TableModel.load(folder / "model.json").estimator.intercept_[0]
    assert ["(intercept)", f"{intercept:+.4g}"] in [line.split() for line in text.splitlines()]
    assert "few for" in croupier("fit", "plain.csv", "--schema", "facts.toml", "--epsilon", "0.1", "--force").stderr


def test_class_weights_are_public_and_named_by_class(folder):
    croupier("schema", "plain.csv", "--target", "ill", "-o", "facts.toml")
    command = ("fit", "plain.csv", "--schema", "facts.toml", "--epsilon", "4", "--seed", "0", "--force", "--interactivity", "full")
    found = {}
    for weight in ("0.05", "20"):
        assert croupier(*command, "--rounds", "10", "--class-weight", f"krank={weight}").returncode == 0
        found[weight] = croupier("predict", "model.json", "plain.csv").stdout.count("krank")
    assert 2 * found["0.05"] < found["20"]
    for wrong in ("sick=3", "krank", "krank=many", "krank=-1", "balanced"):
        assert "weight" in refused(*command, "--class-weight", wrong)


# What only those who write Python know: arguments with a value, calls, learned attributes, names of classes.
PYTHON = r"\b[a-z_]+=['\"A-Z0-9. ]|\w\(\.*\)|\b[a-z]+_(?![a-z])|\bShuffle[A-Z]|\b(?:feature_norm|random_state|predict_proba)\b"
TASKS = {
    "classify": ("class.toml", "--rounds", "3"),
    "svm": ("class.toml", "--rounds", "3"),
    "logit": ("class.toml", "--any-width"),
    "regress-huber": ("number.toml", "--rounds", "3"),
    "regress-mean": ("number.toml",),
    "linear": ("number.toml", "--any-width"),
}


@pytest.mark.parametrize("task", TASKS)
def test_what_a_fit_prints_has_one_delta_one_second_figure_and_no_python(folder, task):
    """The attack: a fit said 9.2e-07, 1e-06 and the account's delta, and told people at a terminal to write `invalid="blank"`."""
    columns = "[columns.alter]\nlow = 0\nhigh = 120\n"
    (folder / "class.toml").write_text(f"[target]\ncolumn = 'ill'\nclasses = ['gesund', 'krank']\n{columns}")
    (folder / "number.toml").write_text(f"[target]\ncolumn = 'größe'\nrange = [1, 2.5]\n{columns}")
    schema, *options = TASKS[task]
    fitted = croupier("fit", "plain.csv", "--schema", schema, "--task", task, "--delta", "3e-6", "-o", "model.json", *options)
    assert fitted.returncode == 0, fitted.stderr
    assert croupier("report", "model.json", "-o", "page.html").returncode == 0
    text = re.sub(r"<(style|svg|title).*?</\1>", "", (folder / "page.html").read_text(encoding="utf-8"), flags=re.DOTALL)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text))
    shown = croupier("show", "model.json").stdout
    for told in (fitted.stdout, shown, page):
        assert not re.findall(PYTHON, told), told
        deltas = re.findall(r"\d+(?:\.\d+)?e-0[67]", re.sub(r"-?\b[\d.]+e-07(?= [-+\d]|\s*\])", "", told))
        assert set(deltas) == {"3e-06"}, told
    if task in ("logit", "linear"):
        assert "--interactivity" not in fitted.stderr  # which they refuse
    secret = "secret" in shown
    assert len(re.findall("knows when each", fitted.stdout)) == secret  # in the guarantee
    assert len(re.findall("knows when each", fitted.stderr)) == secret  # before anybody was asked
    assert len(re.findall("knows when each", shown)) == secret


def test_a_mistyped_option_or_value_is_named_as_it_was_typed(folder):
    (folder / "facts.toml").write_text(
        "target = {column = 'ill', classes = ['gesund', 'krank']}\ncolumns = {alter = {low = 0, high = 120}}\n"
    )
    fit = ("fit", "plain.csv", "--schema", "facts.toml")
    assert refused(*fit, "--bogus", 1) == "croupier: No such option: --bogus. See croupier fit --help."
    assert refused(*fit, "--epsilom", 1) == "croupier: No such option: --epsilom. Did you mean --epsilon? See croupier fit --help."
    assert refused("serve", "key", "--folder", "x").endswith("See croupier serve key --help.")
    for option, value in (("--epsilon", "0"), ("--delta", "-1"), ("--honest", "1.5"), ("--rounds", "0"), ("--radius", "-2")):
        line = refused(*fit, option, value)
        assert re.match(rf"croupier: {option} = {float(value):g}(\.0)? is not allowed: it must be .*\. ", line), line
    assert croupier(*fit, "--rounds", "2").returncode == 0
    assert refused("evaluate", "model.json", "plain.csv", "--epsilon", "-1").startswith("croupier: --epsilon = -1.0 is not allowed")
