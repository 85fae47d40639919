"""Public facts: what a schema file may say, and that it comes back as it was written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.table import Schema
from croupier.table.schema import Category, Numeric, Target
from croupier.validation import ArgumentError

GOOD = """
[target]
column = "income"
classes = ["<=50K", ">50K"]

[columns.age]
low = 17
high = 90
missing = true

[columns."marital status"]
levels = ["never", "married"]
unknown = "refuse"
"""


def test_a_schema_file_reads_as_it_is_written():
    schema = Schema.from_toml(GOOD)
    assert schema.columns == {"age": Numeric(17.0, 90.0, missing=True), "marital status": Category(("never", "married"), "refuse")}
    assert schema.target == Target("income", classes=("<=50K", ">50K"))
    assert (schema.user, schema.rows) == (None, "unit")


def numerics():
    ends = st.floats(-1e29, 1e29)
    pairs = st.tuples(ends, ends).filter(lambda p: p[1] - p[0] > 1e-300)
    return st.builds(lambda p, m, s: Numeric(*p, missing=m, scale=s), pairs, st.booleans(), st.sampled_from(["linear", "log"]))


def texts():
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def labels(at_least):
    every = [texts().map(str.strip), st.integers(-5, 5), st.booleans()]
    return st.one_of([st.lists(kind, min_size=at_least, max_size=5, unique_by=str).map(tuple) for kind in every])


@given(
    st.dictionaries(texts(), numerics() | st.builds(Category, labels(1).map(lambda v: tuple(map(str, v)))), min_size=1, max_size=4),
    labels(2),
    st.sampled_from(["unit", "as-is"]),
)
def test_every_schema_survives_toml_and_json(columns, classes, rows):
    schema = Schema({f"c{name}": facts for name, facts in columns.items()}, Target("the target", classes=classes), "user é", rows)
    assert Schema.from_toml(schema.to_toml({"cx": "a note\nof two lines"})) == schema
    assert Schema.from_dict(schema.to_dict()) == schema


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("missing = true", "mising = true", ["columns.age: unknown key 'mising'", "did you mean 'missing'?"]),
        ("missing = true", "missing = 1", ["columns.age.missing = 1", "true or false"]),
        ("high = 90", "high = 17", ["columns.age", "low < high", "leave out a column"]),
        ("high = 90", "high = inf", ["columns.age = inf", "finite"]),
        ("high = 90", 'high = "90"', ["columns.age = '90'"]),
        ("high = 90", "", ["columns.age: the key 'high' is missing"]),
        ("high = 90", "hihg = 90", ["columns.age: unknown key 'hihg'; did you mean 'high'?"]),
        ('"married"]', '"never "]', ["marital status.levels", "'never' 2 times"]),
        ('"married"]', "3]", ["marital status.levels", "all texts"]),
        ('"refuse"', '"guess"', ["unknown = 'guess'", "'zero', 'refuse'"]),
        ('classes = ["<=50K", ">50K"]', "", ["target", "either classes or a range"]),
        ('classes = ["<=50K", ">50K"]', "range = [5, 1]", ["target.range", "low < high"]),
        ('classes = ["<=50K", ">50K"]', 'classes = ["one"]', ["target.classes", "at least 2"]),
        ('column = "income"', 'column = "age"', ["target.column = 'age'", "not a feature"]),
        ('column = "income"', "column = 3", ["target.column = 3", "name of a column"]),
        ("[target]", 'rows = "long"\n[target]', ["rows = 'long'", "'unit', 'as-is'"]),
        ("[target]", "version = 2\n[target]", ["version = 2", "another version"]),
        ("[target]", 'user = "income"\n[target]', ["user = 'income'", "another column than the target"]),
        ("[target]", "colour = 1\n[target]", ["unknown key 'colour'", "Allowed keys: version, columns, target, user, rows"]),
        ("[target]", "[target", ["TOML"]),
    ],
)
def test_what_a_schema_may_not_say_is_refused_by_name(old, new, words):
    assert old in GOOD
    with pytest.raises(ArgumentError) as refused:
        Schema.from_toml(GOOD.replace(old, new), name="facts.toml")
    for word in words:
        assert word in str(refused.value)


def test_a_schema_without_features_or_a_file_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="at least one feature"):
        Schema.from_toml('target = {column = "y", range = [0, 1]}')
    with pytest.raises(ArgumentError, match="croupier schema SAMPLE"):
        Schema.load(tmp_path / "nowhere.toml")


def test_another_user_column_is_checked_too():
    assert Schema.from_toml(GOOD).with_user("person").user == "person"
    with pytest.raises(ArgumentError, match="not a feature"):
        Schema.from_toml(GOOD).with_user("age")


def test_the_example_in_the_docs_is_a_schema_and_the_table_has_every_key():
    text = (Path(__file__).parents[2] / "docs/files.md").read_text()
    schema = Schema.from_toml(re.search(r"```toml\n(.*?)```", text, flags=re.S)[1])
    assert list(schema.columns) == ["age", "capital_gain", "workclass"]
    for key in ("version", "rows", "user", "column", "classes", "range", "low", "high", "scale", "missing", "levels", "unknown"):
        assert re.search(rf"^\| .*`{key}`.* \|", text, flags=re.M)
