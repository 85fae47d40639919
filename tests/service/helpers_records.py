"""A schema with every kind of column and nothing in the order of the alphabet, and records for it."""

from __future__ import annotations

from typing import Any

import croupier as cr
from croupier.service.wire.queries import TrainingQuery

UNSORTED = """
rows = "as-is"
[target]
column = "ill"
{target}
[columns.weight]
low = 30
high = 200
missing = true
[columns.income]
low = 0
high = 1000000
scale = "log"
[columns.town]
levels = ["Ulm", "Bonn", "Aachen"]
[columns.age]
low = 0
high = 100
[columns.smokes]
levels = [true, false]
[columns.blood]
levels = ["B", "A", "0"]
unknown = "refuse"
"""
TARGETS = {
    "texts": ('classes = ["yes", "no"]', ["yes", "no"]),
    "numbers": ("classes = [7, 3]", [7, 3]),
    "truth": ("classes = [true, false]", ["true", "false"]),
    "range": ("range = [-20, 20]", [13.5, -4.25]),
}


def person(user: int, labels: list) -> str:
    """A file of one record, its columns in an order of their own."""
    weight = "" if user % 5 == 4 else str(50 + 7 * user)
    town, smokes = ["Bonn", "Aachen", "Ulm", "Paris"][user % 4], ["true", "false"][user % 2]
    values = [town, 10**user % 999_983, labels[user % 3 % 2], "0AB"[user % 3], 20 + 5 * user, smokes, weight]
    return "town,income,ill,blood,age,smokes,weight\n" + ",".join(map(str, values)) + "\n"


def reading(words: Any) -> TrainingQuery:
    """The query that reads records by these words, of a problem with as many weights as they make."""
    features = len(words["features"]) if isinstance(words, dict) and isinstance(words.get("features"), list) else 1
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=features + 1, radius=1.0))
    query = TrainingQuery(problem, words)
    assert query.columns
    return query
