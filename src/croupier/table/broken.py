"""What is wrong with a file, in one line: where, what, and the likely cure. Never the rest of the line that it is in."""

from __future__ import annotations

import difflib
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


def require_closed_quotations(file: Path, block_bytes: int) -> None:
    """Refuse a file of which a line has an odd number of quotation marks.

    A quotation without an end would make one value of the lines after it, and nobody would notice the rows that it swallows. So
    values over several lines are refused, too: from two open quotations they cannot be told.

    Parameters
    ----------
    file : Path
        A CSV file, compressed or not.
    block_bytes : int
        How much is looked at together.

    Raises
    ------
    FileError
        With the row in which the first such quotation begins, counted from 1 without the header.
    """
    lines, marks, end = 0, 0, None
    with pa.input_stream(str(file)) as stream:
        while block := stream.read(block_bytes):
            if end is None and (b"\n" in block or b"\r" in block):
                end = _LINE_FEED if b"\n" in block else _RETURN
            letters = np.frombuffer(block, dtype=np.uint8)
            ends = np.flatnonzero(letters == end) if end is not None else np.zeros(0, dtype=np.int64)
            quotes = np.flatnonzero(letters == _QUOTE) if b'"' in block else np.zeros(0, dtype=np.int64)
            odd = (marks + np.searchsorted(quotes, ends)) % 2 == 1
            if odd.any():
                raise _open_quotation(file, lines + int(np.argmax(odd)))
            lines, marks = lines + len(ends), marks + len(quotes)
    if marks % 2:
        raise _open_quotation(file, lines)


def _open_quotation(file: Path, row: int) -> ArgumentError:
    allowed = "one that ends on its line; the file may have been cut off"
    remedy = "Mend the file; a table whose values have line breaks can be read from Parquet. Nobody was asked."
    return FileError(f"{file}, row {row}" if row else f"{file}, its header", "a quotation over several lines", allowed, remedy)


def _listing(names: Sequence[Any]) -> str:
    listed = ", ".join(map(repr, names[:12]))
    return listed if len(names) <= 12 else f"{listed} and {len(names) - 12} more"
