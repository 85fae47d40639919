"""Private descriptions: ranks of quantiles, and fits with schemas that were described beside fits with ranges made by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import croupier as cr
from croupier.statistics._columns import LevelGuess, NumberGuess
from croupier.table import Schema, describe_table, fit_table, schema_from
from croupier.table._read import Source
from croupier.table.apply import read_table
from croupier.table.describe import TableGuess
from croupier.table.schema import Numeric, Target

DELTA, EPSILON, SHARE = 1e-6, 1.0, 0.1
DESCRIBED, QUICK_DESCRIBED, FITS, QUICK_FITS = 50, 5, 5, 2
POINTS = (0.05, 0.5, 0.95)
ADULT = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
# Wide guesses, and ranges that a person who knows the census would write.
GUESSED = dict(zip(ADULT, ((0, 200), (0, 1e7), (0, 100), (0, 1e6), (0, 1e6), (0, 168)), strict=True))
BY_HAND = dict(zip(ADULT, ((17, 90), (0, 1.5e6), (1, 16), (0, 1e5, False, "log"), (0, 5e3, False, "log"), (1, 99)), strict=True))
# A diamond's guesses and ranges; some of its sizes are entered wrongly, a few by orders of magnitude.
STONES = ("carat", "depth", "table", "x", "y", "z")
STONES_GUESSED = dict(zip(STONES, ((0, 100), (0, 1000), (0, 1000), (0, 1000), (0, 1000), (0, 1000)), strict=True))
STONES_BY_HAND = dict(zip(STONES, ((0.2, 3), (55, 70), (50, 70), (3.5, 10), (3.5, 10), (2, 6)), strict=True))
PRICE_GUESSED, PRICE_BY_HAND = (0, 1e6), (300, 19_000)
GRADES = {"cut": 5, "color": 7, "clarity": 8}


def summaries(folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Mean distance in points of rank, over six columns of Adult, of the quantiles that a tenth of the people described."""
    stored = np.load(folder / "adult.npz")
    rows = stored["num"][: int(stored["n_train"])].astype(np.float64)
    guesses = {name: NumberGuess(*ends, whole=True) for name, ends in GUESSED.items()}
    errors: dict[float, list[float]] = {point: [] for point in POINTS}
    for _ in range(QUICK_DESCRIBED if quick else DESCRIBED):
        description = cr.describe(rows, guesses, epsilon=EPSILON, delta=DELTA, share=SHARE)
        asked = rows[description.asked]
        for values, summary in zip(asked.T, description.columns.values(), strict=True):
            for point in POINTS:
                value = summary.quantile(point)
                errors[point].append(100 * max(np.mean(values < value) - point, point - np.mean(values <= value), 0.0))
    return [{"point": point, "epsilon": EPSILON, "error": float(np.mean(found))} for point, found in errors.items()]


def adult(folder: Path) -> tuple[pa.Table, pa.Table, TableGuess, Schema]:
    """Adult as tables for training and testing, guesses, and a schema by hand."""
    stored = np.load(folder / "adult.npz")
    columns: dict[str, Any] = {name: values.astype(np.int64) for name, values in zip(ADULT, stored["num"].T, strict=True)}
    levels = {f"category {j}": tuple(map(str, range(int(count)))) for j, count in enumerate(stored["ncat"])}
    columns |= {f"category {j}": values.astype(str) for j, values in enumerate(stored["cat"].T)}
    table = pa.table(columns | {"rich": np.where(stored["y"].astype(int) == 1, "yes", "no")})
    guesses = {name: NumberGuess(*ends, whole=True) for name, ends in GUESSED.items()}
    guesses |= {name: LevelGuess(known) for name, known in levels.items()}
    guess = TableGuess(guesses | {"rich": LevelGuess(("no", "yes"))}, "rich", ("no", "yes"))
    by_hand = {name: {"levels": list(known)} for name, known in levels.items()}
    schema = Schema.from_dict({"target": {"column": "rich", "classes": ["no", "yes"]}, "columns": by_hand})
    schema = Schema({name: Numeric(*facts) for name, facts in BY_HAND.items()} | dict(schema.columns), schema.target)
    train = int(stored["n_train"])
    return table[:train], table[train:], guess, schema


def stones(people: int = 54_000) -> tuple[pa.Table, pa.Table, TableGuess, Schema]:
    """Made-up diamonds: sizes that follow from the weight, grades, a price; one size in 500 is entered wrongly."""
    rng = np.random.default_rng(20261116)
    carat = np.clip(rng.lognormal(-0.4, 0.55, people), 0.2, 5)
    grades = {name: rng.integers(count, size=people) for name, count in GRADES.items()}
    side = 6.43 * carat ** (1 / 3)
    columns = {
        "carat": carat,
        "depth": rng.normal(61.7, 1.4, people),
        "table": rng.normal(57.5, 2.2, people),
        "x": side * rng.normal(1, 0.01, people),
        "y": side * rng.normal(1, 0.01, people),
        "z": side * rng.normal(0.617, 0.014, people),
    }
    worth = 4_200 * carat**1.7 * np.exp(0.03 * grades["cut"] + 0.06 * grades["color"] + 0.08 * grades["clarity"] - 0.55)
    price = np.clip(worth * rng.lognormal(0, 0.1, people), 326, 18_823)
    for name in STONES:
        wrong = rng.random(people) < 0.002
        columns[name] = np.where(wrong, columns[name] * rng.choice([0.0, 10.0, 100.0], people), columns[name])
    texts = {name: values.astype(str) for name, values in grades.items()}
    table = pa.table(columns | texts | {"price": price})
    levels = {name: LevelGuess(tuple(map(str, range(count)))) for name, count in GRADES.items()}
    numbers = {name: NumberGuess(*ends) for name, ends in STONES_GUESSED.items()}
    guess = TableGuess(numbers | levels | {"price": NumberGuess(*PRICE_GUESSED)}, "price")
    facts = {name: {"low": low, "high": high} for name, (low, high) in STONES_BY_HAND.items()}
    facts |= {name: {"levels": list(known.levels)} for name, known in levels.items()}
    schema = Schema.from_dict({"target": {"column": "price", "range": list(PRICE_BY_HAND)}, "columns": facts})
    train = int(0.8 * people)
    return table[:train], table[train:], guess, schema


def schemas(folder: Path, task: str, quick: bool) -> list[dict[str, Any]]:
    """Scores on held-out people of fits at epsilon 1, with a described schema and with one made by hand."""
    train, test, guess, by_hand = adult(folder) if task == "adult" else stones()
    found = []
    with tempfile.TemporaryDirectory() as place:
        people, held_out = Path(place, "people.parquet"), Path(place, "held-out.parquet")
        parquet.write_table(train, people)
        parquet.write_table(test, held_out)
        for interactivity in ("sequential", "full"):
            scores: dict[str, list[float]] = {"described": [], "by hand": []}
            for _ in range(QUICK_FITS if quick else FITS):
                description = describe_table(people, guess, epsilon=EPSILON, delta=DELTA, share=SHARE)
                described, _ = schema_from(description, guess)
                for name, schema in (("described", described), ("by hand", by_hand)):
                    scores[name].append(_score(people, held_out, schema, interactivity))
            row = {"task": task, "interactivity": interactivity, "epsilon": EPSILON, "users": len(train)}
            found.append(row | {name.replace(" ", "_"): median(values) for name, values in scores.items()})
    return found


def _score(people: Path, held_out: Path, schema: Schema, interactivity: str) -> float:
    """Accuracy, or R^2 of targets as they are in the file, on held-out people."""
    options = {"epsilon": EPSILON, "delta": DELTA, "interactivity": interactivity}
    regression = schema.target.classes is None
    model = fit_table(people, schema, task="regress-mean" if regression else None, **options)
    if not regression:
        rows, truth = read_table(schema, Source(held_out))
        return float(np.mean(model.estimator.predict(rows) == truth))
    wide = Schema(schema.columns, Target(schema.target.column, range=(-1e9, 1e9)))
    rows, truth = read_table(wide, Source(held_out))
    return 1 - float(np.mean((model.estimator.predict(rows) - truth) ** 2) / truth.var())
