"""Schemas of deployed tasks: clients know their own rows alone, and not whether they were set aside for a description."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from croupier.cli.app import app
from croupier.service.analyzer.task_file import QueryFile, TaskFile
from croupier.service.wire.task import Task
from croupier.table import Schema, fit_table
from croupier.validation import ArgumentError

GUESS = '[target]\ncolumn = "cost"\nrange = [0, 300]\n[columns.age]\nlow = 0\nhigh = 200\n'
KEY = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Schemas that `croupier describe` wrote, of everybody and with people set aside, and task files that name them."""
    place = tmp_path_factory.mktemp("schemas")
    rng = np.random.default_rng(0)
    rows = [f"p{person},{age:.1f},{2 * age:.1f}" for person, age in enumerate(rng.uniform(20, 90, 2_000))]
    (place / "people.csv").write_text("\n".join(["person,age,cost", *rows, ""]))
    (place / "guess.toml").write_text(GUESS)
    for name, more in {"everybody": [], "aside": ["--share", "0.2"]}.items():
        asked = ["describe", str(place / "people.csv"), "--guess", str(place / "guess.toml"), "--epsilon", "1"]
        result = CliRunner().invoke(app, [*asked, "-o", str(place / f"{name}.toml"), *more])
        assert result.exit_code == 0, result.output
        about = f'schema = "{name}.toml"\nusers = 1000\nshuffler_key = "{KEY}"\n'
        (place / f"{name}-train.toml").write_text(about)
        (place / f"{name}-ask.toml").write_text(f'query = "regression"\n{about}')
    return place


@pytest.mark.parametrize(("kind", "load"), [("train", TaskFile.load), ("ask", QueryFile.load)])
def test_a_schema_for_which_people_were_set_aside_is_refused_with_a_remedy(folder, kind, load):
    """The attack: the schema says that those people are not asked, and a deployed task would ask them all the same."""
    assert Schema.load(folder / "aside.toml").described.aside is not None
    with pytest.raises(ArgumentError) as refusal:
        load(folder / f"aside-{kind}.toml")
    said = str(refusal.value)
    assert "people set aside" in said
    assert "Enrol none of them, and delete [described]" in said
    assert "\n" not in said
    load(folder / f"everybody-{kind}.toml").task()  # whoever is in both pays for both, and the schema says how much


def test_with_the_table_deleted_the_schema_is_taken(folder):
    words = (folder / "aside.toml").read_text()
    start = words.index("[described]")
    rest = words[start + 1 :]
    (folder / "cleared.toml").write_text(words[:start] + (rest[rest.index("\n[") + 1 :] if "\n[" in rest else ""))
    (folder / "cleared-train.toml").write_text((folder / "aside-train.toml").read_text().replace("aside.toml", "cleared.toml"))
    assert TaskFile.load(folder / "cleared-train.toml").facts.described is None


def test_a_user_column_is_refused_in_every_kind_of_task(folder):
    (folder / "named.toml").write_text('user = "person"\n' + GUESS)
    for kind, load in (("train", TaskFile.load), ("ask", QueryFile.load)):
        (folder / f"named-{kind}.toml").write_text((folder / f"aside-{kind}.toml").read_text().replace("aside.toml", "named.toml"))
        with pytest.raises(ArgumentError, match="its own rows alone"):
            load(folder / f"named-{kind}.toml")


def test_a_model_is_evaluated_whoever_it_was_trained_on(folder):
    """Its scores depend on columns and target alone: neither the user column nor who was set aside is in the task."""
    named = Schema.from_toml('user = "person"\n' + GUESS)
    fit_table(folder / "people.csv", named, epsilon=4.0, rounds=3).save(folder / "model.json")
    (folder / "evaluate.toml").write_text(f'query = "evaluate"\nmodel = "model.json"\nusers = 1000\nshuffler_key = "{KEY}"\n')
    task, key = QueryFile.load(folder / "evaluate.toml").task(), Ed25519PrivateKey.generate()
    document = task.document(key)
    assert {"user", "described"}.isdisjoint(json.loads(document.text)["problem"]["query"]["model"]["schema"])
    read = Task.read(document, key.public_key())
    X, y = read.query.read_records({"age": 50.0, "cost": 100.0})
    assert np.isfinite(read.query.vector(X, y)).all()
