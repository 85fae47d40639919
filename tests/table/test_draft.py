"""A schema drafted from a public sample."""

from __future__ import annotations

import datetime
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from croupier.cli.app import app
from croupier.table import Schema, draft, fit_table
from croupier.table._read import Dialect, Source
from croupier.table.apply import evaluate_table
from croupier.table.schema import Category, Numeric, Target
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


def test_a_score_that_is_taken_for_classes_is_said_with_the_way_to_a_number(sample):
    schema, notes, _ = draft(sample, "age")
    assert notes["age"].startswith("3 whole numbers, treated as classes")
    text = schema.to_toml(notes)
    assert Schema.from_toml(text) == schema
    (line,) = re.findall(r"# put (range = \[.*?\]) instead of classes", text)
    assert f'{line} instead of classes, and rows = "as-is"' in text
    as_number = Schema.from_toml(text.replace("classes = [17, 43, 88]", line).replace('rows = "unit"', 'rows = "as-is"'))
    assert (as_number.target, as_number.rows) == (Target("age", range=(17, 88)), "as-is")
    assert "ill" not in draft(sample, "ill")[1]  # texts
    shown = CliRunner().invoke(app, ["schema", str(sample.path), "--target", "age"])
    assert "age: 3 whole numbers, treated as classes" in " ".join(shown.stderr.split())
    fit = ["fit", str(sample.path), "--target", "age", "--data-is-public", "-o", str(sample.path.with_name("model.json"))]
    said = " ".join(CliRunner().invoke(app, fit).stderr.split())
    assert "age: 3 whole numbers, treated as classes" in said
    assert 'instead of classes, and rows = "as-is", in a schema file that croupier schema drafts.' in said


def test_rows_of_a_numeric_target_stay_as_they_are(tmp_path):
    """Noise of 1 about a line: rows divided by their own length would leave errors of 7.5."""
    rng = np.random.default_rng(2)
    rows = rng.uniform(20, 60, size=(5_000, 3))
    paid = rows @ [2.0, -1.0, 0.5] + rng.normal(size=5_000)
    lines = [",".join(f"{number:.2f}" for number in (*row, pay)) for row, pay in zip(rows, paid, strict=True)]
    for name, some in (("sample.csv", lines[:300]), ("people.csv", lines[300:])):
        (tmp_path / name).write_text("a,b,c,pay\n" + "\n".join(some) + "\n")
    schema, *_ = draft(Source(tmp_path / "sample.csv"), "pay")
    assert (schema.rows, Target("ill", classes=("no", "yes")).usual_rows) == ("as-is", "unit")
    model = fit_table(tmp_path / "people.csv", schema, epsilon=1.0, random_state=4)
    found = evaluate_table(model, Source(tmp_path / "people.csv"))
    assert found.scores["rmse"] < 2.0


def test_two_numbers_are_classes_without_a_word(tmp_path):
    columns = {"age": [20.5, 30.5] * 20, "ill": [0, 1] * 20}
    schema, notes, _ = drafted(tmp_path, columns)
    assert schema.target == Target("ill", classes=(0, 1))
    assert "ill" not in notes


@pytest.mark.parametrize(
    ("target", "words"), [("same", "1 different"), ("name", "101|150 different"), ("nothing", "missing from .*sample")]
)
def test_what_cannot_be_a_target_is_refused(sample, target, words):
    with pytest.raises(ArgumentError, match=words):
        draft(sample, target)


def drafted(tmp_path, columns, **options):
    path = tmp_path / "sample.csv"
    arrow_csv.write_csv(pa.table(columns), path)
    return draft(Source(path, Dialect(**options)), "ill")


def test_outliers_do_not_stretch_a_range_and_stand_in_the_comment(tmp_path):
    rng = np.random.default_rng(0)
    height = np.round(rng.normal(170, 10, 5000), 1)
    height[[3, 7]] = 0.0, 99_999.0
    schema, notes, _ = drafted(tmp_path, {"height": height, "age": rng.integers(18, 90, 5000), "ill": rng.choice(["n", "y"], 5000)})
    column = schema.columns["height"]
    assert 130 < column.low < 150
    assert 190 < column.high < 210
    assert notes["height"].startswith("0 to 99999 in the sample")
    assert "clipped" in notes["height"]
    assert schema.columns["age"] == Numeric(18, 89)  # extremes that are near the quantiles stay
    assert notes["age"] == "18 to 89 in the sample"
    assert "# 0 to 99999 in the sample" in schema.to_toml(notes)


def test_amounts_over_orders_of_magnitude_get_a_log_scale(tmp_path):
    rng = np.random.default_rng(0)
    gain = np.where(rng.random(5000) < 0.9, 0, np.round(np.exp(rng.normal(7, 2, 5000))))
    columns = {
        "gain": gain,
        "income": np.round(np.exp(rng.normal(9, 1.5, 5000))),
        "uniform": rng.uniform(0, 1e6, 5000),
        "share": np.exp(rng.normal(-9, 2, 5000)),  # below the unit of the log scale
        "balance": rng.normal(0, 1, 5000) * np.exp(rng.normal(5, 2, 5000)),
        "ill": rng.choice(["n", "y"], 5000),
    }
    schema, _, _ = drafted(tmp_path, columns)
    scales = {name: column.scale for name, column in schema.columns.items()}
    assert scales == {"gain": "log", "income": "log", "uniform": "linear", "share": "linear", "balance": "linear"}
    assert schema.columns["gain"].low == 0
    assert Schema.from_toml(schema.to_toml()) == schema


def test_row_numbers_and_ids_are_left_out_with_a_word(tmp_path):
    rng = np.random.default_rng(0)
    users = 300_000  # more than is kept for quantiles
    columns = {
        "": np.arange(users),
        "nr": 1 + rng.permutation(users),
        "PassengerId": 10_000 + 3 * rng.permutation(users),
        "count": rng.integers(0, 50, users),
        "paid": 5 + 7 * rng.permutation(users),
        "ill": rng.choice(["n", "y"], users),
    }
    schema, _, left_out = drafted(tmp_path, columns)
    assert list(schema.columns) == ["count", "paid"]
    assert left_out[0].startswith(": row numbers, 0 to 299999")
    assert left_out[1].startswith("nr: ")
    assert "named like an id" in left_out[2]
    small, _, _ = drafted(tmp_path, {"x": [1, 2, 3], "ill": ["n", "y", "n"]})
    assert list(small.columns) == ["x"]  # three rows say nothing


def test_decimal_commas_are_noticed(tmp_path):
    columns = {"size": ["1,5", "2,25", "-0,5"] * 5, "age": [17, 43, 88] * 5, "ill": ["n", "y", "n"] * 5}
    _, _, left_out = drafted(tmp_path, columns)
    assert left_out == ["size: numbers that seem to have a decimal comma: add --decimal ,"]
    schema, _, left_out = drafted(tmp_path, columns, decimal=",")
    assert (schema.columns["size"], left_out) == (Numeric(-0.5, 2.3), [])


def test_a_sample_of_one_column_is_read_with_the_likely_separator(tmp_path):
    (tmp_path / "s.csv").write_text("a;ill\n1;n\n2;y\n")
    with pytest.raises(ArgumentError, match="add --sep ';'"):
        draft(Source(tmp_path / "s.csv"), "ill")
