"""Tables in which any value may be anything: each is read by itself, and none makes a file unreadable."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from croupier.estimator import ShuffleLogisticRegression
from croupier.table import Schema
from croupier.table._encode import Encoder
from croupier.table._read import Source, decoded, numbers
from croupier.validation import ArgumentError

FACTS = """
target = {column = "ill", classes = ["no", "yes"]}
[columns]
age = {low = 0, high = 100, missing = true}
sex = {levels = ["f", "m"], unknown = "refuse"}
town = {levels = ["Here", "There"]}
"""
GOOD = b"30,f,Here,yes\n"
# Lines that are refused, as one person's may be.
BAD = {
    "a number that is none": b"thirty,f,Here,yes\n",
    "a level that was not declared": b"30,x,Here,yes\n",
    "a class that was not declared": b"30,f,Here,perhaps\n",
    "no class": b"30,f,Here,\n",
    "not UTF-8, in a number": b"\xff\xfe,f,Here,yes\n",
    "not UTF-8, in a level": b"30,\xff\xfe,Here,yes\n",
    "not UTF-8, in a class": b"30,f,Here,\xff\xfe\n",
}


def records(path, invalid):
    """The rows and targets of a file, as an estimator makes them."""
    schema = Schema.from_toml(FACTS)
    encoder, model = Encoder(schema, invalid), ShuffleLogisticRegression(classes=["no", "yes"], invalid=invalid)
    pieces = list(Source(path).pieces(encoder.types(target=True)))
    made = [model.records(encoder.rows(piece), encoder.targets(piece)) for piece in pieces]
    return np.concatenate([rows for rows, _ in made]), np.concatenate([targets for _, targets in made])


@pytest.mark.parametrize("kind", BAD)
def test_one_line_makes_a_file_unreadable_or_is_a_blank(tmp_path, kind):
    file = tmp_path / "people.csv"
    file.write_bytes(b"age,sex,town,ill\n" + GOOD + BAD[kind] + GOOD)
    with pytest.raises(ArgumentError):
        records(file, "refuse")
    rows, targets = records(file, "blank")
    assert not rows[1].any()
    assert targets.tolist() == [1, 0, 1]
    assert rows[0].any()
    np.testing.assert_array_equal(rows[0], rows[2])


ODD = [
    "",
    "NA",
    " 12",
    "12\t",
    "1e3",
    "-0.0",
    "1e-400",
    "1e400",
    "inf",
    "nan",
    "NaN",
    "#N/A",
    " ",
    "99.99999999999999",
    "+5",
    "0x10",
]


def test_valid_lines_are_read_to_the_same_bits_either_way(tmp_path):
    """Against Arrow's own reading of CSV, which converts as it parses; numbers that it refuses are left out."""
    rng = np.random.default_rng(0)
    ages = [repr(value) for value in [*rng.uniform(-50, 150, 500).tolist(), *(10 ** rng.uniform(-300, 300, 100)).tolist()]]
    for odd in ODD:
        file = tmp_path / "one.csv"
        file.write_text(f"age,sex,town,ill\n{odd},f,Here,yes\n")
        try:
            refused = records(file, "refuse")
        except ArgumentError:
            assert not records(file, "blank")[0].any()
        else:
            ages.append(odd)
            np.testing.assert_array_equal(refused[0], records(file, "blank")[0])
    assert set(ODD) - set(ages) <= {"+5", "0x10"}
    towns = rng.choice(["Here", "There", "Elsewhere", "", "  Here "], len(ages))
    lines = [
        f"{age},{'fm'[i % 2]},{town},{'no' if i % 3 else 'yes'}" for i, (age, town) in enumerate(zip(ages, towns, strict=True))
    ]
    file = tmp_path / "people.csv"
    file.write_text("\n".join(["age,sex,town,ill", *lines]) + "\n")
    for one, other in zip(records(file, "refuse"), records(file, "blank"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_parquet_gives_what_csv_does(tmp_path):
    table = pa.table(
        {
            "age": pa.array(["30", "thirty", None, "55.5"]),
            "sex": ["f", "f", "m", None],
            "town": ["Here"] * 4,
            "ill": ["yes", "no", None, "no"],
        }
    )
    parquet.write_table(table, tmp_path / "people.parquet")
    rows, targets = records(tmp_path / "people.parquet", "blank")
    assert rows.any(axis=1).tolist() == [True, False, False, False]
    assert targets.tolist() == [1, 0, 0, 0]


def test_the_type_of_a_column_is_public_and_one_that_cannot_be_read_is_refused(tmp_path):
    table = pa.table({"age": pa.array([1, 2], pa.date32()), "sex": ["f", "f"], "town": ["Here"] * 2, "ill": ["yes", "no"]})
    parquet.write_table(table, tmp_path / "people.parquet")
    with pytest.raises(ArgumentError, match="of type date32"):
        records(tmp_path / "people.parquet", "blank")


@pytest.mark.parametrize(
    "lines", [b"age,sex,town\n30,f,Here\n", b"age,sex,town,ill\n30,f\n", b'age,sex,town,ill\n"30,f,Here,yes\n']
)
def test_a_file_that_is_no_table_is_refused(tmp_path, lines):
    (tmp_path / "people.csv").write_bytes(lines)
    with pytest.raises((ArgumentError, KeyError)):
        records(tmp_path / "people.csv", "blank")


def test_rows_that_are_nobodys_are_left_out(tmp_path):
    (tmp_path / "people.csv").write_bytes(
        b"age,sex,town,ill,who\n" + b"".join(GOOD[:-1] + b"," + who + b"\n" for who in (b"a", b"", b"\xff", b"b"))
    )
    encoder = Encoder(Schema.from_toml(f'user = "who"\n{FACTS}'), "blank")
    (piece,) = Source(tmp_path / "people.csv").pieces(encoder.types(target=True, user=True))
    theirs = encoder.owned(piece)
    assert (len(piece), len(theirs), len(set(encoder.users(theirs).tolist()))) == (4, 2, 2)


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=6), st.floats().map(lambda value: repr(value).encode())), max_size=20))
def test_anything_is_a_number_nothing_or_neither_by_itself(values):
    found, valid = numbers(pa.array(values, pa.binary()))
    for value, number, is_valid in zip(values, found, valid, strict=True):
        alone = numbers(pa.array([value], pa.binary()))
        np.testing.assert_array_equal(alone[0], [number])
        assert alone[1][0] == is_valid
    texts = decoded(pa.array(values, pa.binary())).to_pylist()
    assert all(text is None or text.encode() == value for text, value in zip(texts, values, strict=True))


KINDS = {
    "a category": pa.dictionary(pa.int32(), pa.string()),
    "large_binary": pa.large_binary(),
    "string_view": pa.string_view(),
    "binary_view": pa.binary_view(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_value_does_not_make_a_column_of_text_unreadable_however_it_is_stored(kind):
    texts = ["1", "x", None, "2.5"]
    column = pa.array(texts).dictionary_encode() if kind == "a category" else pa.array(texts).cast(KINDS[kind])
    found, valid = numbers(column)
    np.testing.assert_array_equal(found, [1.0, np.nan, np.nan, 2.5])
    assert valid.tolist() == [True, False, True, True]
    assert decoded(column).to_pylist() == texts


def test_one_value_of_a_category_in_a_parquet_file_is_a_blank(tmp_path):
    def rows(age):
        ages = pa.array(["30", age, "30"]).dictionary_encode()
        columns = {"age": ages, "sex": ["f"] * 3, "town": ["Here"] * 3, "ill": ["yes"] * 3}
        parquet.write_table(pa.table(columns), tmp_path / "people.parquet")
        return records(tmp_path / "people.parquet", "blank")[0]

    assert rows("30").all(axis=0).any()
    bad = rows("thirty")
    assert not bad[1].any()
    np.testing.assert_array_equal(bad[[0, 2]], rows("30")[[0, 2]])
