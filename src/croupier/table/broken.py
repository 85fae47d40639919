"""What is wrong with a file, in one line: where, what, and the likely cure. Never the rest of the line that it is in."""

from __future__ import annotations

import codecs
import difflib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..validation import ArgumentError, FileError, FileRecordError
from .dialect import SEPARATORS, Dialect, shown

_MEND = "Mend the file, or get it again; nobody was asked."
_ENCODING = "Say which encoding it has (--encoding cp1252 is usual for files from Windows), or save it as UTF-8; nobody was asked."
_DECIMAL = {
    ".": "Mend the file; if it writes 1,5 for one and a half, say --decimal ,. Nobody was asked.",
    ",": "Mend the file; if it writes 1.5 for one and a half, leave --decimal out. Nobody was asked.",
}
_QUOTE, _LINE_FEED, _RETURN = b'"\n\r'


def broken(file: Path, problem: Exception, names: Sequence[str] = (), dialect: Dialect | None = None) -> ArgumentError:
    """The error to raise for what Arrow says of a file.

    Parameters
    ----------
    file : Path
        The file.
    problem : Exception
        What was raised where it was read.
    names : sequence of str, optional
        The file's columns in their order, so that the column can be named.
    dialect : Dialect, optional
        As which the file was read.

    Returns
    -------
    ArgumentError
        For the holder of the file. A `RecordError` where the text shows a value; it loses that, and its place, on its way out of
        the process.
    """
    dialect = dialect or Dialect()
    text = str(problem)
    row, column = re.search(r"Row #(\d+)", text), re.search(r"CSV column #(\d+)", text)
    place = f"{file}, row {int(row[1]) - 1}" if row else str(file)  # Arrow counts the header
    public = str(file)
    if column and int(column[1]) < len(names):
        named = f", column {names[int(column[1])]!r}"
        place, public = place + named, public + named
    if isinstance(problem, UnicodeError) or "invalid UTF8" in text:
        return not_utf8(place, dialect, public)
    if count := re.search(r"Expected (\d+) columns, got (\d+)", text):
        return _other_length(file, place, int(count[1]), int(count[2]), names, dialect)
    if "straddling" in text or "out of sync" in text:
        return FileError(place, "a quotation that does not end", "a complete file; it may have been cut off", _MEND)
    if value := re.search(r"conversion error to (\w+): (?:invalid value '(.*)')?", text, flags=re.S):
        number = value[1] in ("double", "float")
        remedy = _DECIMAL[dialect.decimal] if number else _MEND
        return FileRecordError(place, value[2] or "a value", "a number" if number else f"a {value[1]}", remedy, public)
    if "Empty CSV" in text:
        return FileError(place, "an empty file", "one with a line of column names", _MEND)
    if "magic bytes" in text or "Truncated" in text or "orrupt" in text or "EOF" in text or "end of stream" in text:
        return FileError(place, text.split(". ", maxsplit=1)[0], "a complete file; it may have been cut off", _MEND)
    return FileRecordError(place, text.splitlines()[0], "part of a file that can be read to its end", _MEND, public)


def not_utf8(place: str, dialect: Dialect, public: str | None = None) -> ArgumentError:
    """The error for text in another encoding."""
    said = "UTF-8" if dialect.encoding == "utf-8" else dialect.encoding
    return FileError(public or place, f"text that is not {said}", f"text in {said}", _ENCODING)


def missing_column(column: str, names: Sequence[str], file: Path, dialect: Dialect) -> ArgumentError:
    """The error for a column that a file does not have once, with the likely cure."""
    if column in names:
        text = f"column {column!r} is in {file} more than once. Rename one of them; the first line of a CSV file is its header."
        return FileError(f"column {column!r}", "there more than once", f"once in {file}", "Rename one of them.", text)
    start, remedy = f"column {column!r} is missing from {file}", "Check the spelling."
    other = other_separator(names, dialect, file)
    close = difflib.get_close_matches(column.lower(), [name.lower() for name in names], n=1)
    if other is not None:
        remedy = f"Its values seem to be separated by {shown(other)}: add --sep {shown(other)}."
        text = f"{start}, which is read as one column. {remedy}"
    elif close:
        likely = next(name for name in names if name.lower() == close[0])
        remedy = f"Did you mean {likely!r}?"
        text = f"{start}; did you mean {likely!r}?"
    else:
        remedy = "Check the schema's spelling, and that the first line of a CSV file is its header."
        text = f"{start}, which has {_listing(names)}. {remedy}"
    return FileError(f"column {column!r}", "missing", f"in {file}", remedy, text)


def other_separator(names: Sequence[str], dialect: Dialect, file: Path) -> str | None:
    """What seems to separate the values of a file whose header was read as one name; None where nothing does."""
    used = dialect.separator_of(file.name)
    return next((mark for mark in (*SEPARATORS, ",") if mark != used and mark in names[0]), None) if len(names) == 1 else None


def _other_length(file: Path, place: str, expected: int, found: int, names: Sequence[str], dialect: Dialect) -> ArgumentError:
    other = other_separator(names, dialect, file)
    if other is not None:
        remedy = f"They seem to be separated by {shown(other)}: add --sep {shown(other)}; nobody was asked."
        return FileError(place, f"{found} values under a header of one", "as many as the header has", remedy)
    if found < expected:
        return FileError(place, f"{found} values", f"a line of {expected}; the file may have been cut off", _MEND)
    remedy = f"A value with {shown(dialect.separator_of(file.name))} in it needs quotation marks. {_MEND}"
    return FileError(place, f"{found} values", f"a line of {expected}", remedy)


def count_records(file: Path, block_bytes: int, dialect: Dialect) -> tuple[int, bool]:
    """Count the records of a CSV file without its header, and say whether quoted values have line breaks.

    A quotation without an end would make one value of the lines after it, and nobody would notice the rows that are missing. So a
    file in which a quotation may have swallowed rows is refused, and `require_count` compares this count with what was read.

    Parameters
    ----------
    file : Path
        A CSV file, compressed or not.
    block_bytes : int
        How much is looked at together; also the longest record.
    dialect : Dialect
        What separates values, and the encoding.

    Returns
    -------
    records : int
        Lines that are not empty, but for the header; values over several lines count as one.
    over_lines : bool
        Whether there are such values.

    Raises
    ------
    FileError
        With the row in which the first open quotation begins, counted from 1 without the header.

    Ensures
    -------
    Rows between two stray quotation marks are not taken for a value: each of their lines has all separators (`_is_one_record`).
    """
    rows, marks, before = 0, 0, _LINE_FEED
    with pa.input_stream(str(file)) as stream:
        while block := stream.read(block_bytes):
            letters = np.frombuffer(block, dtype=np.uint8)
            is_end = (letters == _LINE_FEED) | (letters == _RETURN)
            begins = np.flatnonzero(~is_end & np.append(before in (_LINE_FEED, _RETURN), is_end[:-1]))
            ends = np.flatnonzero(is_end)
            quotes = np.flatnonzero(letters == _QUOTE) if b'"' in block else np.zeros(0, dtype=np.int64)
            odd = (marks + np.searchsorted(quotes, ends)) % 2 == 1
            if odd.any():
                if rows + np.searchsorted(begins, ends[np.argmax(odd)]) <= 1:
                    raise _open_quotation(file, 0)
                return _count_over_lines(file, block_bytes, dialect), True
            rows, marks, before = rows + len(begins), marks + len(quotes), letters[-1]
    if marks % 2:
        raise _open_quotation(file, rows - 1)
    return max(rows - 1, 0), False


def require_count(file: Path, rows: int, records: int) -> None:
    """Refuse a file of which other rows were read than it has records: marks within values can open a quotation."""
    if rows != records:
        allowed = "as many as lines; quotation marks have to stand at both ends of a value, and doubled within it"
        raise FileError(str(file), f"{rows:,} rows in {records:,} lines", allowed, _MEND)


def _count_over_lines(file: Path, most_bytes: int, dialect: Dialect) -> int:
    """Count records of which some have several lines; refuse the first that is not surely one."""
    mark = dialect.separator_of(file.name)
    row, columns, lines, size, inside = 0, 0, list[str](), 0, False
    with pa.input_stream(str(file)) as stream:
        for line in io.TextIOWrapper(stream, encoding=dialect.encoding, newline=""):
            if not lines and not line.strip("\r\n"):
                continue
            lines.append(line)
            size, inside = size + len(line), inside ^ bool(line.count('"') % 2)
            if inside and size <= most_bytes:
                continue
            if row == 0:
                columns = _count_values(line.removeprefix("\ufeff"), mark)
            elif inside or (len(lines) > 1 and not _is_one_record("".join(lines), columns, mark)):
                raise _open_quotation(file, row)
            row, lines, size = row + 1, [], 0
    if inside:
        raise _open_quotation(file, row)
    return row - 1


def _is_one_record(text: str, columns: int, mark: str) -> bool:
    """Whether lines are surely one record: it is well formed, and some of its lines has too few separators to be a row itself."""
    lines = [line for line in re.split(r"[\r\n]", text) if line.strip('"')]  # others would be empty lines, which are no rows
    return _count_values(text, mark) == columns and (len(lines) == 1 or any(line.count(mark) < columns - 1 for line in lines))


def _count_values(text: str, mark: str) -> int:
    """The values of a record; 0 where a quotation does not begin and end with its value."""
    sep = re.escape(mark)
    values = re.compile(rf'(?:"(?:[^"]|"")*+"|[^"{sep}\r\n]*+)({sep}|\r?\n?\Z)')
    count, place = 0, 0
    while found := values.match(text, place):
        count, place = count + 1, found.end()
        if found[1] != mark:
            return count
    return 0


def _open_quotation(file: Path, row: int) -> ArgumentError:
    allowed = "one that ends on its line, or is surely one value; the file may have been cut off"
    remedy = "Mend the file; a table whose values have line breaks can be read from Parquet. Nobody was asked."
    return FileError(f"{file}, row {row}" if row else f"{file}, its header", "a quotation over several lines", allowed, remedy)


def refuse_other_content(file: Path) -> None:
    """Refuse a CSV file that begins as UTF-16 or as a workbook does; both would be read as lines of nonsense."""
    with pa.input_stream(str(file)) as stream:
        head = stream.read(4)
    if head.startswith(b"PK\3\4"):
        raise workbook(file)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in head:
        text = f"{file}: the file is UTF-16. Convert it to UTF-8 first: iconv -f UTF-16 -t UTF-8. Nobody was asked."
        raise FileError(str(file), "UTF-16", "UTF-8", "Convert it to UTF-8 first.", text)


def workbook(file: Path) -> FileError:
    """The error for a file of a spreadsheet program."""
    text = f"{file}: Excel files are not supported; save it as CSV or Parquet."
    return FileError(str(file), "an Excel file", "CSV or Parquet", "Save it as CSV or Parquet.", text)


def _listing(names: Sequence[Any]) -> str:
    listed = ", ".join(map(repr, names[:12]))
    return listed if len(names) <= 12 else f"{listed} and {len(names) - 12} more"
