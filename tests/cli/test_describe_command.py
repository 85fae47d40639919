"""`croupier describe`: tables, pages and schemas from one private round, and a fit with them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers_cli import croupier


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    rng = np.random.default_rng(0)
    age = rng.integers(18, 91, 4_000)
    pay = np.where(rng.random(4_000) < 0.9, 0, rng.lognormal(9, 1, 4_000))
    rows = [f"{a},{p:.0f},{'yes' if a > 55 else 'no'}" for a, p in zip(age, pay, strict=True)]
    path = tmp_path_factory.mktemp("describe") / "people.csv"
    path.write_text("\n".join(["age,pay,ill", *rows, ""]))
    return path


GUESSES = ("--range", "age=0..300", "--range", "pay=0..1e7", "--whole", "age", "--levels", "ill=no,yes", "--target", "ill")


def test_from_a_csv_file_to_a_model(people, tmp_path):
    schema, page, model = tmp_path / "schema.toml", tmp_path / "page.html", tmp_path / "model.json"
    account = tmp_path / "account.jsonl"
    options = ("--share", "0.25", "-o", str(schema), "--html", str(page), "--account", str(account))
    done = croupier("describe", str(people), "--epsilon", "1", *GUESSES, *options)
    assert done.returncode == 0, done.stderr
    assert "of 4,000 people" in done.stdout
    assert "median" in page.read_text()
    assert "[described]" in schema.read_text()
    assert len(account.read_text().splitlines()) >= 2
    done = croupier("fit", str(people), "--schema", str(schema), "-o", str(model), "--account", str(tmp_path / "others.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "set aside for the schema, by position" in done.stdout
    shown = croupier("show", str(model))
    assert "set aside for the schema" in shown.stdout
    report = croupier("report", str(model), "-o", str(tmp_path / "report.html"))
    assert report.returncode == 0
    assert "described privately from" in (tmp_path / "report.html").read_text()


def test_json_has_figures_and_the_guarantee(people):
    done = croupier("describe", str(people), "--epsilon", "0.5", *GUESSES, "--json")
    figures = json.loads(done.stdout)
    assert figures["users"] == 4_000
    assert set(figures["columns"]) == {"age", "pay", "ill"}
    low, high = figures["columns"]["age"]["quantiles"]["0.5"][1:]
    assert low <= 54 <= high
    assert figures["guarantee"]["mu"] > 0


def test_nothing_is_spent_on_columns_of_which_nothing_is_said(people, tmp_path):
    """Only --as-numbers pays for them."""
    account = tmp_path / "account.jsonl"
    command = ("describe", str(people), "--epsilon", "4", "--account", str(account))
    done = croupier(*command)
    assert done.returncode == 2
    assert not done.stdout
    assert "--range or --levels is missing for age, pay, ill; it must be given for every column." in " ".join(done.stderr.split())
    assert not account.exists()
    assert "--range or --levels is missing for ill" in croupier(*command, "--range", "age=0..300", "--range", "pay=0..1e7").stderr
    done = croupier(*command, "--as-numbers")
    assert done.returncode == 0
    assert "ill: 100% missing or not a number" in done.stdout
    assert account.exists()


def test_so_few_people_that_ranges_would_be_noise_are_refused_before_anything_is_spent(people, tmp_path):
    few, account, schema = tmp_path / "few.csv", tmp_path / "account.jsonl", tmp_path / "schema.toml"
    lines = people.read_text().splitlines(keepends=True)
    for count, code in ((17, 2), (200, 0)):
        few.write_text("".join(lines[: count + 1]))
        done = croupier("describe", str(few), "--epsilon", "1", *GUESSES, "-o", str(schema), "--account", str(account), "--force")
        assert done.returncode == code, done.stderr
        assert account.exists() == schema.exists() == (code == 0)
        told = " ".join(done.stderr.split())
        assert ("Nobody was asked" in told) == (code == 2)
        assert code == 0 or 17 < int(re.search(r"people = 17 is not allowed: it must be about (\d+) or more", told)[1]) < 200
        assert ("Ranges will be rough" in told) == (code == 0)
    assert "warning" not in croupier("describe", str(people), "--epsilon", "1", *GUESSES).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epsilon", "0"), "epsilon"),
        (("--epsilon", "1", "--share", "2", "--as-numbers"), "--share = 2"),
        (("--epsilon", "1", "--range", "age"), "COLUMN=VALUE"),
        (("--epsilon", "1", "--range", "age=9..1"), "LOW..HIGH"),
        (("--epsilon", "1", "--range", "aeg=0..9"), "did you mean 'age'"),
        (("--epsilon", "1", "--levels", "ill=no,no"), "levels"),
        (("--epsilon", "1", "--whole", "ill", "--levels", "ill=no,yes"), "--whole"),
        (("--epsilon", "1", "-o", "schema.toml"), "--target"),
        (("--epsilon", "1", "--guess", "nowhere.toml"), "--guess"),
        (("--epsilon", "1", "--leave-out", "age", "--leave-out", "pay", "--leave-out", "ill"), "at least one column"),
    ],
)
def test_bad_options_are_one_line_and_spend_nothing(people, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = croupier("describe", str(people), *arguments, "--account", "account.jsonl")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "account.jsonl").exists()
    assert not (tmp_path / "schema.toml").exists()


def test_an_existing_schema_is_not_overwritten(people, tmp_path):
    (tmp_path / "schema.toml").write_text("mine")
    done = croupier("describe", str(people), "--epsilon", "1", *GUESSES, "-o", str(tmp_path / "schema.toml"))
    assert done.returncode == 2
    assert (tmp_path / "schema.toml").read_text() == "mine"


@pytest.fixture(scope="module")
def townspeople(people):
    """The same people, with a column of text that nobody declares."""
    path = people.with_name("towns.csv")
    header, *rows = people.read_text().splitlines()
    path.write_text("\n".join([f"{header},town", *(f"{row},{('Ulm', 'Bonn')[n % 2]}" for n, row in enumerate(rows)), ""]))
    return path


def test_columns_and_what_they_are_taken_for_are_listed_before_anything_is_spent(townspeople, tmp_path):
    account = tmp_path / "account.jsonl"
    done = croupier("describe", str(townspeople), "--epsilon", "1", *GUESSES, "--account", str(account), "--dry-run")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Numbers: age (whole, 0 to 300), pay (0 to 10000000)." in said
    assert "Levels: ill (no, yes)." in said
    assert "Treated as numbers from -1e+09 to 1e+09, because nothing was declared about them: town." in said
    assert "nothing was spent" in done.stderr
    assert not account.exists()


def test_a_fit_takes_the_schema_of_a_file_with_text_that_nobody_declared(townspeople, tmp_path):
    """Its answer says "not numbers": the column leaves the schema with a word. A fit refused the file because of it."""
    schema = tmp_path / "schema.toml"
    done = croupier("describe", str(townspeople), "--epsilon", "4", *GUESSES, "-o", str(schema), "--as-numbers")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("nothing was declared about them: town") < done.stdout.index("one private round")
    assert 'left out of the schema, "town":' in done.stderr
    assert '# Left out: "town":' in schema.read_text()
    assert "[columns.town]" not in schema.read_text()
    done = croupier("fit", str(townspeople), "--schema", str(schema), "--epsilon", "4", "-o", str(tmp_path / "model.json"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "town", "--range", "age=0..300"), "target = 'town'"),
        (("--target", "ill", "--levels", "ill=no,yes", "--leave-out", "age", "--leave-out", "pay"), "columns = 'town'"),
    ],
)
def test_an_answer_without_a_schema_in_it_is_shown_before_the_error(townspeople, tmp_path, options, message):
    schema = tmp_path / "schema.toml"
    done = croupier("describe", str(townspeople), "--epsilon", "4", *options, "-o", str(schema), "--as-numbers")
    assert done.returncode == 2
    assert "one private round" in done.stdout
    assert message in done.stderr
    assert not schema.exists()


def test_nothing_is_spent_on_a_header_that_is_read_as_one_column(people, tmp_path):
    """A file with semicolons was described as one column of text, for all of epsilon."""
    file, account = tmp_path / "people.csv", tmp_path / "account.jsonl"
    file.write_text(people.read_text().replace(",", ";"))
    done = croupier("describe", str(file), "--epsilon", "1", "--account", str(account))
    assert done.returncode == 2
    assert "add --sep ';'. Nobody was asked." in done.stderr
    assert not account.exists()
    done = croupier("describe", str(file), "--epsilon", "1", "--sep", ";", "--dry-run")
    assert done.returncode == 0
    assert "age, pay, ill" in done.stdout
    file.write_text("a;b\n" + "1\n" * 100)
    assert croupier("describe", str(file), "--epsilon", "1", "--range", "a;b=0..9", "--dry-run").returncode == 0


def test_a_file_of_a_header_alone_is_named_in_a_sentence(tmp_path):
    """It said: DATA = '0 people to ask in ...' is not allowed."""
    (tmp_path / "people.csv").write_text("age,ill\n")
    done = croupier("describe", str(tmp_path / "people.csv"), "--epsilon", "1", "--as-numbers")
    assert done.returncode == 2
    assert "people.csv has 0 people to ask; it must be a file with at least two." in " ".join(done.stderr.split())


def test_columns_that_a_guess_leaves_out_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("id,age,town\n" + "7,40,Ulm\n" * 10)
    Path("guess.toml").write_text("[columns.age]\nlow = 0\nhigh = 99\n")
    for more, named in (((), "Not described: id, town."), (("--leave-out", "id"), "Not described: town.")):
        assert named in croupier("describe", "people.csv", "--epsilon", "1", "--guess", "guess.toml", "--dry-run", *more).stdout
