"""Files: CSV and Parquet in pieces, and broken ones refused by name before anything is done with them."""

from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from croupier.table._population import RowStore
from croupier.table._read import Source
from croupier.validation import ArgumentError

TYPES = {"b": pa.string(), "a": pa.float64()}


@pytest.fixture
def table():
    return pa.table({"a": np.arange(1000) / 4, "unused": ["-"] * 1000, "b": [f"name {i % 7}" for i in range(1000)]})


def write(table, path):
    arrow_csv.write_csv(table, path) if path.suffix == ".csv" else parquet.write_table(table, path, row_group_size=300)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_pieces_hold_every_record_once_with_the_columns_asked_for(table, tmp_path, name):
    pieces = list(Source(write(table, tmp_path / name)).pieces(TYPES, most=170))
    assert max(map(len, pieces)) <= 170
    assert [piece.first for piece in pieces] == [1 + sum(map(len, pieces[:i])) for i in range(len(pieces))]
    together = pa.Table.from_batches([piece.batch for piece in pieces])
    assert together.select(["a", "b"]).equals(table.select(["a", "b"]))


def test_a_folder_is_its_files_in_the_order_of_their_names(table, tmp_path):
    for name, start in (("2.csv", 600), ("1.csv", 0)):
        write(table.slice(start, 600 if start == 0 else 400), tmp_path / name)
    (tmp_path / "readme.txt").write_text("not data")
    pieces = list(Source(tmp_path).pieces(TYPES))
    assert [(piece.file.name, piece.first, len(piece)) for piece in pieces] == [("1.csv", 1, 600), ("2.csv", 1, 400)]
    write(table, tmp_path / "3.parquet")
    with pytest.raises(ArgumentError, match="one kind"):
        Source(tmp_path)


@pytest.mark.parametrize("name", ["nowhere.csv", "data.xlsx", "."])
def test_what_is_not_data_is_refused(tmp_path, name):
    (tmp_path / "data.xlsx").write_bytes(b"PK")
    with pytest.raises(ArgumentError, match=name if name != "." else "no CSV, Parquet or PNG"):
        Source(tmp_path / name)


@pytest.mark.parametrize("name", ["people.xlsx", "people.XLS", "people.ods", "workbook.csv"])
def test_a_workbook_is_named_with_its_cure(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(ArgumentError, match=r"Excel files are not supported; save it as CSV or Parquet\.$") as refused:
        Source(tmp_path / name).names  # noqa: B018
    assert name in str(refused.value)
    assert "Rename" not in str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_utf16_is_recognised(tmp_path, encoding, ending):
    text = "name,age\nJosé,30\n".encode(encoding)
    path = tmp_path / f"people.{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    for read in (lambda source: source.names, lambda source: list(source.pieces({"age": pa.float64()}))):
        with pytest.raises(ArgumentError, match=r"the file is UTF-16\. Convert it to UTF-8 first"):
            read(Source(path))


@pytest.mark.parametrize("address", ["https://host/people.csv", "s3://bucket/people.parquet"])
@pytest.mark.parametrize("kind", [str, Path])
def test_an_address_is_told_as_it_was_given(address, kind):
    with pytest.raises(ArgumentError, match=f"^{address}: this is an address.*Download it first"):
        Source(kind(address))


@pytest.mark.parametrize("end", ["\r", "\n\n", "\r\n\r\n"])
def test_rows_end_with_any_line_break_and_empty_lines_are_none(tmp_path, end):
    path = tmp_path / "t.csv"
    path.write_bytes(end.join(["a,b", "1,x", '2,"y"', "3,z"]).encode())
    assert consumed(path) == 3


def test_marks_that_are_even_on_every_line_swallow_nothing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b,c\n"1,"x","x""\n1,"x",\n1,2,3\n')
    with pytest.raises(ArgumentError, match=r"t\.csv: 2 rows in 3 lines"):
        list(Source(path).pieces({"a": pa.string()}))


LETTERS = [
    '1,yes,"Dear Sir,\nthank you"',
    '2,no,"one, two, three,\r\n""four""\n\n"',
    '3,"no",plain',
    '4,yes,"\n"',
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("block", [1 << 22, 1 << 7])
@pytest.mark.parametrize("first", ["a,b,c", '\ufeff"a",b,"c, d"'])
def test_line_breaks_within_quotations_are_part_of_their_value(tmp_path, monkeypatch, end, block, first):
    monkeypatch.setattr("croupier.table._read._BLOCK_BYTES", block)
    path = tmp_path / "letters.csv"
    path.write_bytes(end.join([first, *LETTERS * 30, ""]).encode())
    pieces = list(Source(path).pieces({"a": pa.float64(), "b": pa.string()}))
    assert [value for piece in pieces for value in piece.column("a").to_pylist()] == [1, 2, 3, 4] * 30
    assert [value for piece in pieces for value in piece.column("b").to_pylist()] == ["yes", "no", "no", "yes"] * 30
    assert Source(path).count_rows("a")[path] == 120


@given(st.data())
@settings(max_examples=300, deadline=None, derandomize=True)
def test_no_two_stray_quotation_marks_swallow_a_row(tmp_path_factory, data):
    """Two marks anywhere in a file of well-formed rows: it is refused, or has all its rows."""
    value = st.text("a\\ \u2028\x0b'", max_size=3) | st.sampled_from(['"x"', '"x, y"', '"say ""x"""', '""'])
    columns = data.draw(st.integers(2, 4))
    rows = data.draw(st.lists(st.tuples(*[value] * columns), min_size=2, max_size=6))
    body = "\n".join(",".join(("1", *row)) for row in rows) + "\n"
    for place in sorted(data.draw(st.lists(st.integers(0, len(body)), min_size=2, max_size=2)), reverse=True):
        body = body[:place] + '"' + body[place:]
    path = tmp_path_factory.getbasetemp() / "stray.csv"
    path.write_text(",".join("xabcd"[: columns + 1]) + "\n" + body)
    with contextlib.suppress(ArgumentError):
        assert sum(map(len, Source(path).pieces({"x": pa.string()}))) == len(rows)


def consumed(path):
    source = Source(path)
    source.require(list(TYPES))
    return sum(map(len, source.pieces(TYPES)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,x\n2,y\n3", ["row 3", "1 values", "should be 2", "truncated"]),
        ('a,b\n1,x\n2,"y', ["row 2", "quoted value over several lines", "truncated"]),
        ('a,b\n1,"x\n2,y\n3,z\n', ["row 1", "quoted value over several lines", "Parquet"]),
        ('a,b\n1,"x\n2,y"\n3,z\n', ["row 1", "quoted value over several lines", "Parquet"]),
        ("a,b\n1,x\nmany,y\n", ["row 2, column 'a'", "'many'", "a number", "--decimal ,"]),
        ("", ["file is empty"]),
        ("a,c\n1,x\n", ["column 'b' is missing from", "'a', 'c'"]),
        ("a,b,b\n1,x,y\n", ["column 'b' is in", "more than once"]),
        ("a,b\n1,\udcff\n", ["column 'b'", "not UTF-8", "--encoding"]),
    ],
)
def test_a_broken_csv_file_is_refused_with_its_name_and_the_row(tmp_path, text, words):
    path = tmp_path / "broken.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ArgumentError) as refused:
        consumed(path)
    for word in ["broken.csv", *words]:
        assert word in str(refused.value)


def test_the_rest_of_a_broken_line_is_not_shown(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n1,secret\n")
    with pytest.raises(ArgumentError) as refused:
        consumed(tmp_path / "t.csv")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kept", [0.3, 0.5, 0.999])
def test_a_parquet_file_cut_off_is_refused(table, tmp_path, kept):
    whole = write(table, tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(ArgumentError, match=r"cut\.parquet.*truncated"):
        consumed(tmp_path / "cut.parquet")


def test_a_compressed_file_cut_off_is_refused(tmp_path):
    whole = gzip.compress(b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(200_000)))
    (tmp_path / "whole.csv.gz").write_bytes(whole)
    assert consumed(tmp_path / "whole.csv.gz") == 200_000
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArgumentError, match=r"cut\.csv\.gz.*truncated"):
        consumed(tmp_path / "cut.csv.gz")


def test_quoted_separators_belong_to_a_value_and_a_missing_last_line_break_is_noticed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"two, "" quoted"\n2,x\n')
    assert consumed(path) == 2
    assert Source(path).ends_oddly() is None
    path.write_text("a,b\n1,x\n2,marri")
    assert Source(path).ends_oddly() == path


def test_a_store_gives_back_what_was_written_from_files_without_a_name(tmp_path):
    rows, targets, users = np.ones((5, 3), np.float32), np.arange(5), np.arange(5, dtype=np.uint64)
    with RowStore(tmp_path) as store:
        for start in (0, 2):
            part = slice(start, start + 2 + start)
            store.append(rows[part], targets[part], users[part])
        assert list(tmp_path.iterdir()) == []  # nothing to find or to leave behind, whatever happens
        assert len(store) == 5
        for stored, given in ((store.rows, rows), (store.targets, targets), (store.users, users)):
            np.testing.assert_array_equal(stored, given)
            assert not stored.flags.writeable
    with pytest.raises(ArgumentError, match="work_dir"):
        RowStore(tmp_path / "nowhere")


@pytest.mark.process
def test_a_refusal_right_after_the_header_ends_the_process_with_its_own_code(tmp_path):
    """The fault: about one refused `croupier fit` in a hundred died by SIGABRT at its exit, or hung. A thread of Arrow's still held
    bytes of Python's, and gave them back to an interpreter that was ending. With so rare a switch between threads, four in ten do.
    """
    (tmp_path / "people.csv").write_text("age,ill\n1,yes\n")
    code = "import sys, pathlib; from croupier.table._read import Dialect, _header; sys.setswitchinterval(100)"
    code += "; _header(pathlib.Path(sys.argv[1]), Dialect()); sum(range(5_000_000)); sys.exit(2)"  # the thread waits for Python
    for _ in range(6):
        command = [sys.executable, "-c", code, str(tmp_path / "people.csv")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (2, "")
