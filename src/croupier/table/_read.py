"""Records in files: CSV and Parquet, one file or a folder of them, as batches of the columns asked for."""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray
from pyarrow import compute, parquet

from ..validation import ArgumentError, FileError, FileRecordError, one_of, taken
from ._pictures import LABEL, PICTURE, picture_batches, picture_files

# How a CSV file writes its values: what separates them, the decimal mark, the encoding.

# What may separate values and is looked for where a header seems to be one long name.
SEPARATORS = (";", "\t", "|")
DECIMALS = (".", ",")
_PLAIN = '",;\t|\r\n0aA'


@dataclass(frozen=True)
class Dialect:
    """How CSV files write their values. Parquet files state it themselves.

    `separator`: One character; "tab" is the tabulator. Default: a comma, in `.tsv` files a tabulator. `decimal`: The decimal mark
    of numbers: "." or ",". `encoding`: The encoding of texts, by a name that Python knows. One in which commas, quotation marks and
    line breaks are single bytes, as in ASCII.
    """

    separator: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.separator in ("tab", "\\t"):
            object.__setattr__(self, "separator", "\t")
        mark = self.separator
        if mark is not None and (len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in '"\r\n'):
            allowed = "tab, or one character that is not a letter, digit, quotation mark or line break"
            raise ArgumentError("--sep", mark, allowed, "For example --sep ';' or --sep tab.")
        one_of("--decimal", self.decimal, DECIMALS, "Leave it out for 1.5; use --decimal , for 1,5.")
        try:
            name = codecs.lookup(self.encoding).name
            name = "utf-8" if name == "utf-8-sig" else name  # a mark at its beginning is dropped in any case
            suits = _PLAIN.encode(name) == _PLAIN.encode("ascii")
        except (LookupError, UnicodeError, TypeError):
            suits, name = False, ""
        if not suits:
            allowed = "an encoding that Python knows and that extends ASCII"
            raise ArgumentError("--encoding", self.encoding, allowed, "cp1252 is common; convert UTF-16 to UTF-8 first.")
        object.__setattr__(self, "encoding", name)

    def separator_of(self, name: str) -> str:
        """What separates the values of a file of this name."""
        return self.separator or ("\t" if ".tsv" in name.lower() else ",")


def shown(separator: str) -> str:
    """A separator as the command line takes it."""
    return "tab" if separator == "\t" else f"'{separator}'"


# What is wrong with a file, in one line: where, what, and the likely cure. Never the rest of the line that it is in.

_MEND = "Correct the file, or fetch it again; nobody was asked."
_ENCODING = "State its encoding (--encoding cp1252 is common for files from Windows), or save it as UTF-8; nobody was asked."
_TEXTS = "For texts, declare levels or classes. Nobody was asked."
_DECIMAL = {
    ".": f"Correct the file; if it writes 1,5 for one and a half, add --decimal ,. {_TEXTS}",
    ",": f"Correct the file; if it writes 1.5 for one and a half, remove --decimal. {_TEXTS}",
}
_DATE = "It looks like a date: write a number, such as the year, or leave the column out. Nobody was asked."
_QUOTE, _LINE_FEED, _RETURN = b'"\n\r'


def broken(file: Path, problem: Exception, names: Sequence[str] = (), dialect: Dialect | None = None) -> ArgumentError:
    """The error to raise for what Arrow says of a file."""
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
        return FileError(place, "an unclosed quotation mark", "a complete file; it may be truncated", _MEND)
    if value := re.search(r"conversion error to (\w+): (?:invalid value '(.*)')?", text, flags=re.S):
        number = value[1] in ("double", "float")
        dated = number and re.match(r"\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d{2,4}", value[2] or "")
        remedy = _DATE if dated else _DECIMAL[dialect.decimal] if number else _MEND
        return FileRecordError(place, value[2] or "a value", "a number" if number else f"a {value[1]}", remedy, public)
    if "Empty CSV" in text:
        return FileError(place, "the file is empty", "a table whose first line has the names of its columns", _MEND)
    if "magic bytes" in text or "Truncated" in text or "orrupt" in text or "EOF" in text or "end of stream" in text:
        return FileError(place, text.split(". ", maxsplit=1)[0], "a complete file; it may be truncated", _MEND)
    return FileRecordError(place, text.splitlines()[0], "part of a readable file", _MEND, public)


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
        remedy = "Check the spelling, and that the first line of a CSV file is its header."
        text = f"{start}, which has {_listing(names)}. {remedy}"
    return FileError(f"column {column!r}", "missing", f"in {file}", remedy, text)


def other_separator(names: Sequence[str], dialect: Dialect, file: Path) -> str | None:
    """What seems to separate the values of a file whose header was read as one name; None if nothing does."""
    used = dialect.separator_of(file.name)
    return next((mark for mark in (*SEPARATORS, ",") if mark != used and mark in names[0]), None) if len(names) == 1 else None


def _other_length(file: Path, place: str, expected: int, found: int, names: Sequence[str], dialect: Dialect) -> ArgumentError:
    other = other_separator(names, dialect, file)
    if other is not None:
        remedy = f"They seem to be separated by {shown(other)}: add --sep {shown(other)}; nobody was asked."
        return FileError(place, f"{found} values under a header of one", "as many as the header has", remedy)
    if found < expected:
        return FileError(place, f"the line has {found} values", f"{expected}, as in the header; the file may be truncated", _MEND)
    remedy = f"A value with {shown(dialect.separator_of(file.name))} in it needs quotation marks. {_MEND}"
    return FileError(place, f"{found} values", f"a line of {expected}", remedy)


def count_records(file: Path, block_bytes: int, dialect: Dialect) -> tuple[int, bool]:
    """Count the records of a CSV file without its header, and say whether quoted values have line breaks.

    A quotation without an end would make one value of the lines after it, and nobody would notice the rows that are missing. So a
    file in which a quotation may have swallowed rows is refused, and `require_count` compares this count with what was read.

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
        allowed = "one row per line; quotation marks must enclose the whole value, and be doubled within it"
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
    allowed = "one that ends on its line, or is clearly one value; the file may be truncated"
    remedy = "Correct the file; values with line breaks can be read from Parquet. Nobody was asked."
    return FileError(f"{file}, row {row}" if row else f"{file}, its header", "a quoted value over several lines", allowed, remedy)


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


_ENDINGS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".csv.bz2": "csv",
    ".csv.zst": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".tsv.bz2": "csv",
    ".tsv.zst": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
# Text that is looked at together; also the longest line.
_BLOCK_BYTES = 1 << 22
_STREAM_BYTES = 1 << 20
NULLS = [*arrow_csv.ConvertOptions().null_values, " "]


@dataclass(frozen=True)
class Piece:
    """Some records of one file.

    `first` is the number of the first of them, from 1 without the header; `places` how far each is from it, if they do not follow
    one another. `decimal` is the decimal mark of numbers that are still text.
    """

    file: Path
    first: int
    batch: Any
    decimal: str = "."
    places: Any = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Any:
        """Return one column of the records."""
        return self.batch.column(name)

    def where(self, index: int) -> str:
        """Return a record's place, so that it can be found."""
        return f"{self.file}, row {self.first + (index if self.places is None else int(self.places[index]))}"

    def only(self, kept: Any) -> Piece:
        """Return the piece with some of its records, which keep their places."""
        if kept.all():
            return self
        places = np.flatnonzero(kept) if self.places is None else self.places[kept]
        return replace(self, batch=self.batch.filter(pa.array(kept)), places=places)


class Source:
    """A data file, or a folder of files of one kind in the order of their names.

    Nothing but names is looked at before `pieces`. A file that cannot be read to its end raises an error that names it.
    """

    def __init__(self, path: str | os.PathLike[str], dialect: Dialect | None = None) -> None:
        self.path, self.dialect = Path(path), dialect or Dialect()
        self.files = _files(self.path)

    @property
    def names(self) -> list[str]:
        """The columns of the first file."""
        return _names(self.files[0], self.dialect)

    def require(self, columns: Sequence[str]) -> None:
        """Refuse files that lack one of these columns."""
        for file in self.files:
            names = _names(file, self.dialect)
            for column in columns:
                if names.count(column) != 1:
                    raise missing_column(column, names, file, self.dialect)

    def pieces(self, types: dict[str, Any] | None, most: int = 1 << 16, row_groups: Sequence[int] | None = None) -> Iterator[Piece]:
        """Read the records in order, piece by piece."""
        for file in self.files:
            first = 1 + sum((self.row_groups(file) or [])[: row_groups[0]]) if row_groups else 1
            for batch in _batches(file, types, most, self.dialect, row_groups):
                if types is None and _kind(file) == "csv":
                    _require_text(file, batch, self.dialect)
                for start in range(0, batch.num_rows, most):
                    yield Piece(file, first + start, batch.slice(start, most), self.dialect.decimal)
                first += batch.num_rows

    def row_groups(self, file: Path) -> list[int] | None:
        """Count the rows of each row group of a Parquet file."""
        if _kind(file) != "parquet":
            return None
        try:
            data = parquet.read_metadata(file)
        except (pa.ArrowException, OSError) as problem:
            raise broken(file, problem) from None
        return [data.row_group(group).num_rows for group in range(data.num_row_groups)]

    def count_rows(self, column: str) -> Counter[Path]:
        """Count the records of each file; CSV is read for it."""
        rows: Counter[Path] = Counter()
        for file in self.files:
            groups = self.row_groups(file)
            rows[file] = (
                sum(batch.num_rows for batch in _batches(file, {column: pa.binary()}, 1, self.dialect))
                if groups is None
                else sum(groups)
            )
        return rows

    def ends_oddly(self) -> Path | None:
        """Find a CSV file whose last line is not ended: it may be truncated within a value."""
        for file in self.files:
            if file.suffix not in (".csv", ".tsv") or not file.stat().st_size:
                continue
            with file.open("rb") as stream:
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) not in b"\r\n":
                    return file
        return None


def _files(path: Path) -> list[Path]:
    endings = ", ".join(_ENDINGS)
    if not path.exists():
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):  # a path has one slash where an address has two
            address = str(path).replace(":/", "://", 1)
            text = f"{address}: this is an address, and files are not downloaded. Download it first."
            raise FileError(address, "an address", "a file or folder", "Download it first.", text)
        raise FileError(str(path), "no such file or folder", "there", "Check the path.", f"{path}: no such file or folder exists.")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and _kind(file) and not file.name.startswith("."))
        kinds = {_kind(file) for file in files}
        if not kinds and picture_files(path):
            return [path]  # read as one table of pictures and their folders' names
        if len(kinds) != 1:
            mixture = "CSV and Parquet together" if kinds else "no CSV, Parquet or PNG file in it"
            raise FileError(str(path), mixture, "a folder of files of one kind", f"Their names end with {endings}.")
        return files
    if path.suffix.lower() in _WORKBOOKS:
        raise workbook(path)
    if _kind(path) is None:
        remedy = "Save it as CSV or Parquet."
        raise FileError(str(path), "an unsupported kind of file", f"a file whose name ends with one of {endings}", remedy)
    return [path]


def _kind(file: Path) -> str | None:
    if file.is_dir():
        return "png"
    return next((kind for ending, kind in _ENDINGS.items() if file.name.lower().endswith(ending)), None)


def _names(file: Path, dialect: Dialect) -> list[str]:
    try:
        if _kind(file) == "parquet":
            return list(parquet.read_schema(file).names)
        if _kind(file) == "png":
            return [PICTURE, LABEL]
        refuse_other_content(file)
        return _header(file, dialect)
    except (pa.ArrowException, OSError, UnicodeError) as problem:
        raise broken(file, problem, _columns(file, dialect), dialect) from None


def _batches(
    file: Path, types: dict[str, Any] | None, most: int, dialect: Dialect, row_groups: Sequence[int] | None = None
) -> Iterator[Any]:
    try:
        if _kind(file) == "parquet":
            with parquet.ParquetFile(file, buffer_size=_STREAM_BYTES, pre_buffer=False) as stored:
                yield from stored.iter_batches(
                    batch_size=most, row_groups=row_groups, columns=types and list(types), use_threads=False
                )
        elif _kind(file) == "png":
            yield from picture_batches(file, None if types is None else list(types), most)
        else:
            _refuse_pictures(file, types)
            refuse_other_content(file)
            records, over_lines = count_records(file, _BLOCK_BYTES, dialect)
            rows = 0
            options = arrow_csv.ConvertOptions(
                column_types=types, include_columns=types and list(types), null_values=NULLS, decimal_point=dialect.decimal
            )
            with _opened(file, options, dialect, file.name, over_lines) as stream:
                for batch in stream:
                    rows += batch.num_rows
                    yield batch
            require_count(file, rows, records)
    except (pa.ArrowException, OSError, UnicodeError) as problem:
        raise broken(file, problem, _columns(file, dialect), dialect) from None


def _refuse_pictures(file: Path, types: dict[str, Any] | None) -> None:
    """Refuse a picture in a cell of CSV."""
    for name, kind in (types or {}).items():
        if pa.types.is_list(kind):
            remedy = "Use a Parquet file or a folder of PNG files, or declare one column per pixel instead of the picture."
            raise FileError(f"{file}, column {name!r}", "a picture in CSV", "in Parquet or a folder", remedy)


def _columns(file: Path, dialect: Dialect) -> list[str]:
    """The columns of a file of which something is wrong; none where they cannot be read either."""
    try:
        return _header(file, dialect)
    except (ArgumentError, pa.ArrowException, OSError, UnicodeError):
        return []


def _header(file: Path, dialect: Dialect) -> list[str]:
    """The columns of a CSV file by its first line alone, whatever follows."""
    with pa.input_stream(str(file)) as stream:
        first = stream.read(_BLOCK_BYTES).splitlines()[:1]
    text = pa.BufferOutputStream()  # Arrow's own memory: a thread of its reads it, and must not need Python where that is ending
    text.write((first[0] if first else b"") + b"\n")
    options = arrow_csv.ConvertOptions()
    return [] if _kind(file) == "parquet" else list(_opened(text.getvalue(), options, dialect, file.name).schema.names)


def _opened(what: Any, convert: Any, dialect: Dialect, name: str, over_lines: bool = False) -> Any:
    # without threads errors have row numbers
    reading = arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False, encoding=dialect.encoding)
    parsing = arrow_csv.ParseOptions(delimiter=dialect.separator_of(name), newlines_in_values=over_lines)
    return arrow_csv.open_csv(what, read_options=reading, parse_options=parsing, convert_options=convert)


def _require_text(file: Path, batch: Any, dialect: Dialect) -> None:
    """Refuse columns that are read as bytes because they are not a text."""
    for field in batch.schema:
        if pa.types.is_binary(field.type):
            raise not_utf8(f"{file}, column {field.name!r}", dialect)


# Columns of text of which any value may be anything: as text or as numbers, each value by itself, and nothing is refused.


def is_text(kind: Any) -> bool:
    """Whether columns of this type hold text or bytes, also where a dictionary lists them (pandas calls that a category)."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    kinds = pa.types
    tests = (
        kinds.is_binary,
        kinds.is_large_binary,
        kinds.is_binary_view,
        kinds.is_string,
        kinds.is_large_string,
        kinds.is_string_view,
    )
    return any(test(kind) for test in tests)


def decoded(column: Any) -> Any:
    """A column of bytes or text as text, null where it is not UTF-8; other columns as they are."""
    if not is_text(column.type):
        return column
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    stored = values.cast(pa.binary())
    valid = taken(lambda some: stored[some].cast(pa.string()), len(stored))
    return _kept(stored, valid).cast(pa.string())


def numbers(column: Any, decimal: str = ".") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers from bytes or text as CSV's are read, NaN where there is none; and where there is a number, or nothing.

    `decimal` is the mark before fractions. Where it is a comma, a text with a point is not a number, as in Arrow.
    """
    texts = decoded(column)
    undecoded = np.asarray(compute.and_(compute.is_null(texts), compute.is_valid(column)))
    texts = compute.if_else(compute.is_in(texts, value_set=pa.array(NULLS)), None, texts)
    texts = compute.ascii_trim(texts, " \t")  # as Arrow does where it reads CSV
    if decimal != ".":
        texts = compute.if_else(compute.match_substring(texts, "."), "?", compute.replace_substring(texts, decimal, "."))
    valid = taken(lambda some: texts[some].cast(pa.float64()), len(texts))
    floats = _kept(texts, valid).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(floats, dtype=np.float64), valid & ~undecoded


def _kept(column: Any, valid: NDArray[np.bool_]) -> Any:
    return column if valid.all() else compute.if_else(pa.array(valid), column, None)
