"""`croupier choose`: the best of several model files, by one private round."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers_cli import croupier

SCHEMA = '[target]\ncolumn = "ill"\nclasses = ["no", "yes"]\n[columns.age]\nlow = 0\nhigh = 100\n'


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choose")
    rng = np.random.default_rng(0)
    for name, young in (("good", "no"), ("poor", "yes"), ("others", "no")):
        ages, old = rng.integers(0, 100, 4_000), "yes" if young == "no" else "no"
        rows = [f"{age},{old if age + rng.normal(0, 5) > 50 else young}" for age in ages]
        (folder / f"{name}.csv").write_text("\n".join(["age,ill", *rows, ""]))
    (folder / "schema.toml").write_text(SCHEMA)
    for name in ("poor", "good"):
        options = ("--schema", str(folder / "schema.toml"), "--epsilon", "4", "-o", str(folder / f"{name}.json"), "--seed", "1")
        done = croupier("fit", str(folder / f"{name}.csv"), *options)
        assert done.returncode == 0, done.stderr
    return folder


def test_the_better_model_is_chosen(world):
    models = [str(world / f"{name}.json") for name in ("poor", "good")]
    done = croupier("choose", str(world / "others.csv"), *models, "--epsilon", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["best"] == models[1]
    assert found["users"] == 4_000
    assert found["guarantee"]["mu"] > 0
    assert found["within"]["5"] > 0.9
    done = croupier("choose", str(world / "others.csv"), *models, "--epsilon", "1")
    assert "of 2 candidates; epsilon = 1" in done.stdout


def test_one_model_is_no_choice(world):
    done = croupier("choose", str(world / "others.csv"), str(world / "good.json"), "--epsilon", "1")
    assert done.returncode == 2
    assert "2 to 1000" in done.stderr
