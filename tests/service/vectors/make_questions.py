"""Makes questions.json, which clients in other languages are checked against: python tests/service/vectors/make_questions.py

What a client makes of a record for every kind of question: the words as they stand in a task, a CSV file, the vector of each of its
records and their mean, with the question's dimension, norm and diameter, and a plan by that diameter with what is proved of it. A
`tolerance` of 0 says that vectors are the same bit for bit on every machine; others are right to it, in parts of the largest entry
(clients/computing.md, "What is exact").
"""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from croupier.service.wire.queries import statistic_from_dict
from croupier.statistics._columns import NumberGuess
from croupier.statistics.asking import plan_for

HERE = Path(__file__).parent
BOUNDED = 1e-12

COLUMNS = [
    {"name": "age", "low": 0, "high": 100},
    {"name": "pay", "low": 0.0, "high": 5000.0, "missing": True},
    {"name": "town", "levels": ["Ulm", "Bonn", "Köln"]},
]
PEOPLE = """age,pay,town,ill,grade,cost
42,1234.5,Ulm,yes,2,17.25
0,,Bonn,no,1,-4
100,5000,Köln,yes,3,30
-7,-1,Rome,no,3,1e9
61.5,NA, Ulm ,no,10,0
1e3,  250 ,,yes,1,-10
"""
TEXTS = """says,more
no,1
 Yes\t,1
e\u0301clair,1
\u00e9clair,1
,1
a,1
"a long text, cut",1
\U0001f642\U0001f642\U0001f642,1
\u4e2d\u6587\u5b57,1
NA,1
\u00a0,1
"""
DAYS = """day,more
2028-02-26,1
2028-02-27,1
2028-02-29T12:00,1
2028-02-30,1
2028-03-01 08:15,1
2028-03-27,1
2028-03-28,1
28-03-01,1
2028-3-1,1
,1
2028-03-011,1
0028-03-01,1
 2028-03-02 ,1
"""
TARGETS = {
    "two": {"column": "ill", "classes": ["yes", "no"]},
    "many": {"column": "grade", "classes": [10, 1, 3, 2]},
    "cost": {"column": "cost", "range": [-10, 30]},
}


def schema(target: str, **more: Any) -> dict[str, Any]:
    return {"version": 1, "rows": "unit", "target": TARGETS[target], "columns": COLUMNS} | more


def model(target: str, answers: str, outputs: int, number: int, **more: Any) -> dict[str, Any]:
    """A model whose coefficients are round numbers, so that any reader can follow it."""
    generator = np.random.default_rng(number)
    coef = np.round(generator.normal(size=(outputs, 6)) * (20 if answers == "numbers" else 3), 2)
    intercept = np.round(generator.normal(size=outputs), 2) + (10 if answers == "numbers" else 0)
    words = {
        "answers": answers,
        "coef": coef.tolist(),
        "intercept": intercept.tolist(),
        "feature_norm": 1.0,
        "schema": schema(target),
    }
    return {"kind": "evaluate", "model": words | more}


def guessed(name: str, **facts: Any) -> dict[str, Any]:
    guess = NumberGuess(**facts)
    words = {"name": name, "low": guess.low, "high": guess.high, "whole": guess.whole, "bins": guess.bins}
    return words | {"edges": guess.edges.tolist()}


def described() -> dict[str, Any]:
    columns = [
        guessed("age", low=0, high=100, whole=True, bins=12),
        guessed("pay", low=-50.0, high=5000.0, bins=20),
        {"name": "town", "levels": ["Ulm", "Bonn"]},
        {"name": "asks", "levels": ["True", "False"]},
        guessed("height", low=120.0, high=210.0, bins=9),
    ]
    return {"kind": "describe", "columns": columns}


def on_edges() -> str:
    """Records with values on every edge of a column, next to it, and with everything that is no number or no level."""
    edges = {column["name"]: column["edges"] for column in described()["columns"] if "edges" in column}
    values = {
        name: [text for edge in ends for text in (repr(edge), repr(math.nextafter(edge, 1e30)))] for name, ends in edges.items()
    }
    odd = ["", "NA", "nan", "-inf", "Infinity", "abc", "1e400", "0", "-0.0", " 7 ", "1,5", "0x10", "1e-320", "+3"]
    towns = ["Ulm", " Bonn\t", "", "bonn", "something else", "\u00a0Ulm\u3000", "NA"]
    asks = ["true", "FALSE", "", "yes", " True "]
    lines = ["age,pay,town,asks,height"]
    for number in range(60):
        cells = [
            (odd + values["age"])[number % (len(odd) + len(values["age"]))],
            (values["pay"] + odd)[number % (len(odd) + len(values["pay"]))],
            towns[number % len(towns)],
            asks[number % len(asks)],
            (values["height"] + odd)[number % (len(odd) + len(values["height"]))],
        ]
        lines.append(",".join(f'"{cell}"' if "," in cell else cell for cell in cells))
    return "\n".join(lines) + "\n"


def cases() -> list[tuple[str, dict[str, Any], str, float]]:
    """What each is about, its words, its records, and how far another library may be off."""
    histogram = {"kind": "histogram", "column": "age", "low": 0, "high": 100, "bins": 7}
    ages = "age\n" + "\n".join(
        ["0", "100", "14.285714285714286", "14.285714285714285", "28.571428571428573", "-5", "1e9", "inf", "-inf"]
    )
    log = schema("cost", columns=[{"name": "age", "low": 0, "high": 100}, {"name": "pay", "low": 0, "high": 5000, "scale": "log"}])
    held = {"kind": "words", "column": "says", "max_bytes": 8, "per_person": 1, "cells": 256, "mistakes": 0.01, "hash_seed": 7}
    edges = {"name": "age", "edges": [0, 18, 61.5, 100]}
    table = {"kind": "table", "columns": [edges, {"name": "town", "levels": ["Ulm", "Bonn"]}], "by": 0, "marginals": 0.0}
    stream = {"kind": "stream", "column": "day", "start": "2028-02-27"}
    described_at = {"epsilon": 0.5, "delta": 1e-6, "users": 100}
    clipped = {"norm": 0.2, "constant": 1.0, "weights": [1.0, 0.25]}
    return [
        ("a description", described(), on_edges(), 0.0),
        ("a description of any number", {"kind": "describe", "columns": [guessed("pay"), guessed("age")]}, PEOPLE, 0.0),
        ("a description of levels", {"kind": "describe", "columns": [{"name": "town", "levels": [1, True, "Ulm"]}]}, PEOPLE, 0.0),
        ("a histogram", histogram, ages + "\nNA\nabc\n\n", 0.0),
        ("a histogram of one bin", histogram | {"low": -0.5, "high": 1e-9, "bins": 1}, ages + "\n", 0.0),
        ("texts", held, TEXTS, 0.0),
        ("two texts a person", held | {"per_person": 2, "max_bytes": 5, "hash_seed": 2**53 - 1}, TEXTS, 0.0),
        ("a table", table, PEOPLE, 0.0),
        ("a table with marginals", table | {"marginals": 0.3}, PEOPLE, 0.0),
        ("a table of one column", {"kind": "table", "columns": table["columns"][:1], "by": 0, "marginals": 0.0}, PEOPLE, 0.0),
        ("a number in groups", table | {"columns": table["columns"][::-1], "by": 1}, PEOPLE, 0.0),
        ("a stream", stream | {"days": 30, "per_person": 1}, DAYS, 0.0),
        ("a stream of two days a person", stream | {"days": 9, "per_person": 2}, DAYS, 0.0),
        ("a regression", {"kind": "regression", "schema": schema("cost", described=described_at)}, PEOPLE, 0.0),
        (
            "a regression on rows as they are",
            {"kind": "regression", "schema": schema("cost", rows="as-is", user="who")},
            PEOPLE,
            0.0,
        ),
        ("a regression with a log scale", {"kind": "regression", "schema": log}, PEOPLE, 1e-7),
        ("two classes", model("two", "probabilities", 1, 1), PEOPLE, BOUNDED),
        ("two classes, clipped gradients", model("two", "probabilities", 1, 2, clipped=clipped), PEOPLE, BOUNDED),
        ("two classes by margins", model("two", "margins", 1, 3), PEOPLE, BOUNDED),
        ("four classes", model("many", "probabilities", 4, 4), PEOPLE, BOUNDED),
        (
            "four classes, clipped gradients",
            model("many", "probabilities", 4, 5, clipped=clipped | {"weights": [1.0, 1.0, 0.5, 0.1]}),
            PEOPLE,
            BOUNDED,
        ),
        ("short rows", model("two", "probabilities", 1, 6, feature_norm=0.5), PEOPLE, BOUNDED),
        ("a mean", model("cost", "numbers", 1, 7), PEOPLE, BOUNDED),
        ("a quantile", model("cost", "numbers", 1, 8, quantile=0.9), PEOPLE, BOUNDED),
    ]


def vector(about: str, words: dict[str, Any], file: str, tolerance: float) -> dict[str, Any]:
    words = json.loads(json.dumps(words))
    query = statistic_from_dict(words)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        path.write_text(file, encoding="utf-8")
        X, y = query.read_file(path)
    rows = np.atleast_2d(np.asarray(X, dtype=np.float64))
    statistic = query.statistic
    plan = plan_for(statistic, 2_000, epsilon=1.0, delta=1e-6, honest=0.9, rotation=None)
    return {
        "about": about,
        "words": words,
        "file": file,
        "dim": statistic.dim,
        "norm": statistic.norm,
        "diameter": statistic.diameter,
        "tolerance": tolerance,
        "vectors": [_sparse(row) for row in statistic(rows, y)],
        "mean": _sparse(query.vector(rows, y)),
        "plan": plan.to_dict(),
        "mu": plan.guarantee.mu,
        "slack": plan.guarantee.slack,
        "epsilon": plan.guarantee.epsilon(1e-6),
    }


def _sparse(row: Any) -> list[list[Any]]:
    """The entries that are not 0, each with its place."""
    return [[int(place), float(row[place])] for place in np.flatnonzero(row)]


def made() -> list[dict[str, Any]]:
    return [vector(*case) for case in cases()]


if __name__ == "__main__":
    (HERE / "questions.json").write_text(json.dumps(made(), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
