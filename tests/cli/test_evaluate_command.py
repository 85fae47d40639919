"""`croupier evaluate`: private with --epsilon, and says that it is not without; both beside the best constant answer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers_cli import croupier

SCHEMA = """
[target]
column = "{target}"
{facts}

[columns.age]
low = 0
high = 100
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """2 000 people with one row each, 1 000 names; a classifier and a regressor of them."""
    place = tmp_path_factory.mktemp("evaluate")
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 100, 2_000)
    ill = np.where(age + rng.normal(scale=20, size=2_000) > 60, "yes", "no")
    rows = [f"{a:.2f},{i},{a * 3:.2f},p{n % 1000}" for n, (a, i) in enumerate(zip(age, ill, strict=True))]
    (place / "people.csv").write_text("\n".join(["age,ill,cost,name", *rows]))
    for target, facts in (("ill", 'classes = ["no", "yes"]'), ("cost", "range = [0, 300]")):
        (place / f"{target}.toml").write_text(SCHEMA.format(target=target, facts=facts))
        done = croupier(
            "fit",
            str(place / "people.csv"),
            "--schema",
            str(place / f"{target}.toml"),
            "-o",
            str(place / f"{target}.json"),
            "--epsilon",
            "4",
        )
        assert done.returncode == 0, done.stderr
    return place


def test_without_epsilon_it_says_that_it_is_not_private_and_shows_the_constant_answer(folder):
    done = croupier("evaluate", str(folder / "ill.json"), str(folder / "people.csv"))
    assert "NOT PRIVATE" in done.stderr
    assert "constant answer" in done.stdout
    found = json.loads(croupier("evaluate", str(folder / "ill.json"), str(folder / "people.csv"), "--json").stdout)
    assert 0.5 < found["constant answer"]["accuracy"] < found["accuracy"]
    assert found["private"] is False
    numbers = json.loads(croupier("evaluate", str(folder / "cost.json"), str(folder / "people.csv"), "--json").stdout)
    assert numbers["constant answer"]["rmse"] > numbers["rmse"]


def test_with_epsilon_it_is_private_has_error_bars_and_is_charged(folder):
    account = folder / "account.jsonl"
    done = croupier(
        "evaluate", str(folder / "ill.json"), str(folder / "people.csv"), "--epsilon", "1", "--account", str(account), "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["users"] == 2_000
    assert found["guarantee"] is not None
    plain = json.loads(croupier("evaluate", str(folder / "ill.json"), str(folder / "people.csv"), "--json").stdout)
    score = found["scores"]["accuracy"]
    assert abs(score["value"] - plain["accuracy"]) < 6 * score["std"]
    assert account.read_text().count("guarantee") == 1
    table = croupier("evaluate", str(folder / "cost.json"), str(folder / "people.csv"), "--epsilon", "1").stdout
    assert "95 % interval" in table
    assert "NOT PRIVATE" not in table


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--epsilon", "0"], "--epsilon = 0.0"),
        (["--delta", "1e-7"], "--delta = 1e-07"),
        (["--account", "a.jsonl"], "--account = a.jsonl has no meaning without --epsilon"),
        (["--honest", "0.5"], "--honest = 0.5 has no meaning without --epsilon"),
        (["--epsilon", "1", "--delta", "0.5"], "--delta = 0.5"),
    ],
)
def test_bad_options_are_one_line_and_nothing_is_spent(folder, more, message):
    done = croupier("evaluate", str(folder / "ill.json"), str(folder / "people.csv"), *more)
    assert done.returncode == 2
    assert done.stderr.startswith(f"croupier: {message}")
