"""How a task says what becomes of a record: one order of columns, levels and labels, that no parser of JSON can lose."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from helpers_records import TARGETS, UNSORTED, person, reading

from croupier.service.wire.documents import WireError, canonical
from croupier.service.wire.queries import records_to_dict
from croupier.table import Schema
from croupier.table._encode import Encoder
from croupier.table._read import Source
from croupier.table.model import Request

VECTOR = json.loads((Path(__file__).parent / "vectors" / "records.json").read_text())


def over_the_wire(words):
    return json.loads(canonical(words))


@pytest.mark.parametrize("rows", ["as-is", "unit"])
@pytest.mark.parametrize("kind", TARGETS)
def test_rows_by_the_tasks_words_are_those_by_the_analyzers_file(tmp_path, kind, rows):
    """Names in the JSON are sorted, as they are when it is signed; rows and targets are bit for bit the same."""
    target, labels = TARGETS[kind]
    facts = Schema.from_toml(UNSORTED.format(target=target).replace('"as-is"', f'"{rows}"'))
    request = Request("regress-huber" if kind == "range" else "classify", {"epsilon": 1.0, "interactivity": "full"}, None)
    words = over_the_wire(records_to_dict(facts, request))
    assert [column["name"] for column in words["schema"]["columns"]] == list(facts.columns)
    encoder, estimator = Encoder(facts), request.estimator(facts)
    for user in range(6):
        file = tmp_path / f"{user}.csv"
        file.write_text(person(user, labels))
        [piece] = Source(file).pieces(encoder.types(target=True))
        expected = estimator.records(encoder.rows(piece), encoder.targets(piece))
        found = reading(words).read_file(file)
        assert np.array_equal(found[0], expected[0])
        assert np.array_equal(found[1], expected[1])


def test_the_vector_is_read_as_its_page_says(tmp_path):
    (tmp_path / "people.csv").write_text(VECTOR["file"])
    rows, targets = reading(VECTOR["records"]).read_file(tmp_path / "people.csv")
    np.testing.assert_allclose(rows, VECTOR["rows, to 7 digits"], atol=3e-7)
    assert targets.tolist() == VECTOR["targets"]


def as_table(words):
    columns = words["schema"]["columns"]
    words["schema"]["columns"] = {column.pop("name"): column for column in columns}


WRONG = {
    "columns without an order": as_table,
    "no columns": lambda words: words["schema"].pop("columns"),
    "a column without a name": lambda words: words["schema"]["columns"][0].pop("name"),
    "a column twice": lambda words: words["schema"]["columns"].append(words["schema"]["columns"][0]),
    "no features": lambda words: words.pop("features"),
    "features in another order": lambda words: words["features"].sort(),
    "a feature less": lambda words: words["features"].pop(),
    "columns in another order than features": lambda words: words["schema"]["columns"].reverse(),
    "levels in another order than features": lambda words: words["schema"]["columns"][2]["levels"].reverse(),
    "no schema": lambda words: words.pop("schema"),
    "no estimator": lambda words: words.pop("task"),
    "an estimator that is not known": lambda words: words.update(task="guess"),
}


@pytest.mark.parametrize("what", WRONG)
def test_words_that_state_no_order_or_two_are_refused(what):
    words = copy.deepcopy(VECTOR["records"])
    reading(words)
    WRONG[what](words)
    with pytest.raises(WireError, match="a task"):
        reading(words)


def test_no_records_at_all_are_refused():
    with pytest.raises(WireError, match="a task"):
        reading([])
