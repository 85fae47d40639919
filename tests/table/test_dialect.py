"""Files as new users have them: other separators, decimal commas, other encodings, misspelt names. One line says what to do."""

from __future__ import annotations

import gzip
import pickle

import numpy as np
import pyarrow as pa
import pytest

from croupier.table import Schema
from croupier.table._encode import Encoder
from croupier.table._read import Dialect, Source
from croupier.validation import ArgumentError

FACTS = """
target = {column = "ill", classes = ["no", "yes"]}
columns = {"größe" = {low = 1, high = 2}, ort = {levels = ["Köln", "Ulm"]}}
"""
GERMAN = "größe;ort;ill\n1,5;Köln;no\n1,25;Ulm;yes\n;Ulm;no\n"
PLAIN = "größe,ort,ill\n1.5,Köln,no\n1.25,Ulm,yes\n,Ulm,no\n"


def written(path, text, encoding="utf-8"):
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rows(source, invalid="refuse"):
    encoder = Encoder(Schema.from_toml(FACTS), invalid)
    source.require(list(encoder.types(target=True)))
    pieces = list(source.pieces(encoder.types(target=True)))
    return np.concatenate([encoder.rows(piece) for piece in pieces])


def refusal(call):
    with pytest.raises(ArgumentError) as refused:
        call()
    text = str(refused.value)
    assert "\n" not in text
    assert "is not allowed" not in text  # the words of arguments
    return text


@pytest.mark.parametrize("invalid", ["refuse", "blank"])
@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1"])
def test_a_german_file_gives_the_rows_of_a_plain_one(tmp_path, name, encoding, invalid):
    german = Source(written(tmp_path / name, GERMAN, encoding), Dialect(";", ",", encoding))
    plain = Source(written(tmp_path / "plain.csv", PLAIN))
    np.testing.assert_array_equal(rows(german, invalid), rows(plain))
    assert german.count_rows("ort") == {tmp_path / name: 3}


def test_a_point_is_no_decimal_comma_and_the_reverse(tmp_path):
    mixed = written(tmp_path / "mixed.csv", GERMAN.replace("1,25", "1.25"))
    text = refusal(lambda: rows(Source(mixed, Dialect(";", ","))))
    assert "row 2, column 'größe': '1.25' should be a number" in text
    assert "remove --decimal" in text
    assert np.isnan(rows(Source(mixed, Dialect(";", ",")), "blank")).any(axis=1).tolist() == [False, True, False]
    text = refusal(lambda: rows(Source(mixed, Dialect(";"))))
    assert "row 1, column 'größe': '1,5'" in text
    assert "add --decimal ,." in text


@pytest.mark.parametrize("date", ["2020-05-08", "8.5.2020", "05/08/20"])
def test_a_date_among_numbers_is_called_a_date(tmp_path, date):
    dated = written(tmp_path / "dated.csv", GERMAN.replace("1,25", date))
    assert "It looks like a date: write a number" in refusal(lambda: rows(Source(dated, Dialect(";", ","))))


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_another_separator_is_noticed(tmp_path, mark):
    path = written(tmp_path / "people.csv", PLAIN.replace(",", mark))
    text = refusal(lambda: rows(Source(path)))
    shown = "tab" if mark == "\t" else f"'{mark}'"
    assert text.startswith(f"column 'größe' is missing from {path}")
    assert f"add --sep {shown}." in text
    assert rows(Source(path, Dialect(mark))).shape == (3, 3)
    wide = written(tmp_path / "wide.csv", GERMAN)
    assert "--sep ';'" in refusal(lambda: list(Source(wide).pieces({"größe;ort;ill": pa.string()})))


def test_a_misspelt_column_is_answered_with_the_likely_one(tmp_path):
    path = written(tmp_path / "people.csv", PLAIN.replace("ort", "husbY"))
    assert refusal(lambda: Source(path).require(["husby"])) == f"column 'husby' is missing from {path}; did you mean 'husbY'?"
    assert f"column 'weight' is missing from {path}, which has 'größe', 'husbY', 'ill'" in refusal(
        lambda: Source(path).require(["weight"])
    )


def test_a_value_with_a_separator_in_it_is_told_from_a_file_cut_off(tmp_path):
    text = refusal(lambda: rows(Source(written(tmp_path / "p.csv", PLAIN.replace("Köln", "Köln, Deutz")))))
    assert "row 1: 4 values" in text
    assert "needs quotation marks" in text


def test_text_that_is_not_utf8_is_named_by_its_column_with_the_cure(tmp_path):
    path = tmp_path / "people.csv"
    path.write_bytes(PLAIN.replace("größe", "size").encode("cp1252"))
    for types in ({"size": pa.float64(), "ort": pa.string()}, None):
        text = refusal(lambda types=types: list(Source(path).pieces(types)))
        assert f"{path}, " in text
        assert "column 'ort': text that is not UTF-8" in text
        assert "--encoding cp1252" in text
    path.write_bytes(PLAIN.encode("cp1252"))
    assert f"{path}: text that is not UTF-8" in refusal(lambda: Source(path).names)
    path.write_bytes(PLAIN.encode() + b"1,\x81,no\n")
    assert "text that is not cp1252" in refusal(lambda: list(Source(path, Dialect(encoding="cp1252")).pieces(None)))


@pytest.mark.parametrize(
    "options", [{"separator": ";;"}, {"separator": "a"}, {"separator": '"'}, {"decimal": ";"}, {"encoding": "x"}]
)
def test_a_dialect_that_is_none_is_refused_by_its_option(options):
    with pytest.raises(ArgumentError, match=r"--sep|--decimal|--encoding"):
        Dialect(**options)
    with pytest.raises(ArgumentError, match="UTF-16"):
        Dialect(encoding="utf-16")


@pytest.mark.parametrize("kind", ["number", "class", "encoding"])
def test_what_leaves_the_process_shows_neither_value_nor_row(tmp_path, kind):
    """The holder of the file sees both. Whoever is sent the error sees the file, the column and the cure."""
    text = {"number": PLAIN.replace("1.25", "many"), "class": PLAIN.replace("yes", "perhaps"), "encoding": PLAIN}[kind]
    path = written(tmp_path / "people.csv", text, "utf-8")
    if kind == "encoding":
        path.write_bytes(text.encode().replace("Köln".encode(), b"K\xf6ln"))
    encoder = Encoder(Schema.from_toml(FACTS))
    pieces = Source(path).pieces(encoder.types(target=True))
    with pytest.raises(ArgumentError) as refused:
        [(encoder.rows(piece), encoder.targets(piece)) for piece in pieces]
    here, elsewhere = str(refused.value), str(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(refused.value)))))
    secrets = {"number": ["many", "row 2"], "class": ["perhaps", "row 2"], "encoding": []}[kind]
    column = {"number": "größe", "class": "ill", "encoding": "ort"}[kind]
    for secret in secrets:
        assert secret in here
        assert secret not in elsewhere
    assert f"{path}, column {column!r}" in elsewhere
    assert "nobody was asked" in elsewhere.lower()


def test_a_line_with_an_open_quotation_is_found_wherever_blocks_end(tmp_path, monkeypatch):
    """Two open quotations are an even number of marks: together they swallowed the rows between them."""
    monkeypatch.setattr("croupier.table._read._BLOCK_BYTES", 1 << 7)
    lines = ["a,b", *(f'{i},"x"' for i in range(100)), '100,"open', *(f"{i},y" for i in range(101, 150)), '150,"open', "151,y"]
    path = written(tmp_path / "t.csv", "\r\n".join(lines) + "\r\n")
    text = refusal(lambda: list(Source(path).pieces({"a": pa.float64()})))
    assert f"{path}, row 101: a quoted value over several lines" in text
