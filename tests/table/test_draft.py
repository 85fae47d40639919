"""A schema drafted from a public sample."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from pyarrow import parquet

from croupier.table import Category, Numeric, Schema, Source, Target, draft
from croupier.validation import ArgumentError

COLUMNS = {
    "age": [17, 43, 88] * 50,
    "share": [0.0123, 0.5, None] * 50,
    "sex": ["f", "m", ""] * 50,
    "same": [3] * 150,
    "name": [f"person {i}" for i in range(150)],
    "smokes": [True, False, None] * 50,
    "when": [datetime.date(2020, 1, 1)] * 150,
    "ill": ["no", "yes", "no"] * 50,
    "pay": [1234.5, 99_001.0, 50_000.0] * 50,
}


@pytest.fixture(params=["csv", "parquet"])
def sample(request, tmp_path):
    path = tmp_path / f"sample.{request.param}"
    (arrow_csv.write_csv if request.param == "csv" else parquet.write_table)(pa.table(COLUMNS), path)
    return Source(path)


def test_ranges_are_rounded_outwards_and_levels_listed(sample):
    schema, notes, left_out = draft(sample, "ill", user="name")
    assert schema.columns == {
        "age": Numeric(17, 88),
        "share": Numeric(0.01, 0.5, missing=True),
        "sex": Category(("f", "m")),
        "smokes": Category(("false", "true")),
        "pay": Numeric(1000, 100_000),
    }
    assert schema.target == Target("ill", classes=("no", "yes"))
    assert schema.user == "name"
    assert notes["age"] == "17 to 88 in the sample"
    assert [reason.split(":")[0] for reason in left_out] == ["same", "when"]
    assert Schema.from_toml(schema.to_toml(notes)) == schema


def test_names_are_left_out_and_numbers_become_a_range(sample):
    schema, _, left_out = draft(sample, "pay")
    assert schema.target == Target("pay", range=(1000, 100_000))
    assert any(reason.startswith("name: more than 100") for reason in left_out)
    assert draft(sample, "age")[0].target == Target("age", classes=(17, 43, 88))
    assert draft(sample, "smokes")[0].target == Target("smokes", classes=(False, True))


@pytest.mark.parametrize(("target", "words"), [("same", "1 different"), ("name", "101|150 different"), ("nothing", "not there")])
def test_what_cannot_be_a_target_is_refused(sample, target, words):
    with pytest.raises(ArgumentError, match=words):
        draft(sample, target)
