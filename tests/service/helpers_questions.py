"""Task files of every kind of question, with the people who answer them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from croupier.table import Schema, fit_table
from croupier.table._read import Piece

GUESS = """
[target]
column = "ill"
classes = ["no", "yes"]
[columns.age]
low = 0
high = 200
whole = true
"""
FACTS = '[target]\ncolumn = "{target}"\n{facts}\n[columns.age]\nlow = 0\nhigh = 100\n'
USERS = 30


def questions(place: Path) -> Path:
    """A folder with guesses, a schema for a regression, a model, and a task file for each kind of question."""
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 100, 2_000)
    rows = [f"{a:.2f},{'yes' if a + rng.normal(0, 20) > 60 else 'no'},{3 * a:.2f}" for a in age]
    (place / "people.csv").write_text("\n".join(["age,ill,cost", *rows, ""]))
    (place / "guess.toml").write_text(GUESS)
    (place / "cost.toml").write_text('rows = "as-is"\n' + FACTS.format(target="cost", facts="range = [0, 300]"))
    ill = Schema.from_toml(FACTS.format(target="ill", facts='classes = ["no", "yes"]'))
    fit_table(place / "people.csv", ill, epsilon=4.0, rounds=3).save(place / "model.json")
    key = Ed25519PrivateKey.generate()
    kinds = {
        "describe": 'guess = "guess.toml"',
        "histogram": 'column = "age"\nlow = 0\nhigh = 100\nbins = 5',
        "regression": 'schema = "cost.toml"',
        "evaluate": 'model = "model.json"',
    }
    common = (
        f'users = {USERS}\nepsilon = 8\ndelta = 1e-2\nshuffler_key = "{key.public_key().public_bytes_raw().hex()}"\npace = 0.1\n'
        'transport = "masked-sum"\n'
    )
    for kind, words in kinds.items():
        (place / f"{kind}-task.toml").write_text(
            f'query = "{kind}"\nname = "{kind} them"\noutput = "{kind}.json"\n{common}{words}\n'
        )
    (place / "key").write_bytes(key.private_bytes_raw())
    return place


def piece(user: int) -> Piece:
    age = float(3 * user)
    return Piece(None, 1, pa.record_batch({"age": [age], "ill": ["yes" if age > 50 else "no"], "cost": [3 * age]}))
