"""Records in files: CSV and Parquet, one file or a folder of them, as batches of the columns asked for."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import parquet

from ..validation import ArgumentError, FileError
from .broken import broken, count_records, missing_column, not_utf8, refuse_other_content, require_count, workbook
from .dialect import Dialect

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

    Parameters
    ----------
    file : Path
        Where they are.
    first : int
        The number of the first of them, counted from 1 without the header.
    batch : pyarrow.RecordBatch
        The records.
    decimal : str, default "."
        The decimal mark of numbers that are still text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> piece = Piece(Path("people.csv"), 1, pa.record_batch({"age": [30, 70]}))
    >>> len(piece), piece.where(1)
    (2, 'people.csv, row 2')
    """

    file: Path
    first: int
    batch: Any
    decimal: str = "."

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Any:
        """Return one column of the records.

        Parameters
        ----------
        name : str
            The column's.

        Returns
        -------
        pyarrow.Array
            Its values.
        """
        return self.batch.column(name)

    def where(self, index: int) -> str:
        """Return a record's place, for whoever has to find it.

        Parameters
        ----------
        index : int
            Its place in this piece, from 0.

        Returns
        -------
        str
            The file and the row.
        """
        return f"{self.file}, row {self.first + index}"


class Source:
    """A data file, or a folder of files of one kind in the order of their names.

    Nothing but names is looked at before `pieces`. A file that cannot be read to its end raises an error that names it.

    Parameters
    ----------
    path : str or path
        CSV or Parquet, a file or a folder.
    dialect : Dialect, optional
        How CSV files write their values; comma, decimal point and UTF-8 unless given.

    Raises
    ------
    ArgumentError
        Where there is no such file or folder, or it is neither CSV nor Parquet.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp(), "people.csv")
    >>> written = file.write_text("age,ill\\n30,no\\n70,yes\\n")
    >>> source = Source(file)
    >>> source.names, [len(piece) for piece in source.pieces(None)]
    (['age', 'ill'], [2])
    """

    def __init__(self, path: str | os.PathLike[str], dialect: Dialect | None = None) -> None:
        self.path, self.dialect = Path(path), dialect or Dialect()
        self.files = _files(self.path)

    @property
    def names(self) -> list[str]:
        """The columns of the first file."""
        return _names(self.files[0], self.dialect)

    def require(self, columns: Sequence[str]) -> None:
        """Refuse files that lack one of these columns.

        Parameters
        ----------
        columns : sequence of str
            Their names.

        Raises
        ------
        FileError
            Where one is missing, or there twice.
        """
        for file in self.files:
            names = _names(file, self.dialect)
            for column in columns:
                if names.count(column) != 1:
                    raise missing_column(column, names, file, self.dialect)

    def pieces(self, types: dict[str, Any] | None, most: int = 1 << 16, row_groups: Sequence[int] | None = None) -> Iterator[Piece]:
        """Read the records in order, piece by piece.

        Parameters
        ----------
        types : dict of str to pyarrow.DataType, or None
            The columns, and the types that CSV is read as. None is all columns, of the types that the files have or, for CSV, that
            their first lines look like.
        most : int, default 65536
            Records of a piece.
        row_groups : sequence of int, optional
            Those of a Parquet file that are wanted; all unless given.

        Yields
        ------
        Piece
            The next records.

        Raises
        ------
        FileError
            Where a file cannot be read to its end.
        """
        for file in self.files:
            first = 1 + sum((self.row_groups(file) or [])[: row_groups[0]]) if row_groups else 1
            for batch in _batches(file, types, most, self.dialect, row_groups):
                if types is None and _kind(file) == "csv":
                    _require_text(file, batch, self.dialect)
                for start in range(0, batch.num_rows, most):
                    yield Piece(file, first + start, batch.slice(start, most), self.dialect.decimal)
                first += batch.num_rows

    def row_groups(self, file: Path) -> list[int] | None:
        """Count the rows of each row group of a Parquet file.

        Parameters
        ----------
        file : Path
            One of `files`.

        Returns
        -------
        list of int or None
            Rows of each; None for CSV.

        Raises
        ------
        FileError
            Where the file cannot be read.
        """
        if _kind(file) != "parquet":
            return None
        try:
            data = parquet.read_metadata(file)
        except (pa.ArrowException, OSError) as problem:
            raise broken(file, problem) from None
        return [data.row_group(group).num_rows for group in range(data.num_row_groups)]

    def count_rows(self, column: str) -> Counter[Path]:
        """Count the records of each file; CSV is read for it.

        Parameters
        ----------
        column : str
            The column that is read.

        Returns
        -------
        Counter of Path
            Records of each file.

        Raises
        ------
        FileError
            Where a file cannot be read.
        """
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
        """Find a CSV file whose last line is not ended: it may have been cut off within a value.

        Returns
        -------
        Path or None
            The first such file.
        """
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
            text = f"{address}: this is an address, and files are not fetched. Download it first."
            raise FileError(address, "an address", "a file or folder", "Download it first.", text)
        raise FileError(str(path), "no such file or folder", "there", "Check the path.", f"{path}: no such file or folder exists.")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _kind(file) and file.is_file() and not file.name.startswith("."))
        kinds = {_kind(file) for file in files}
        if len(kinds) != 1:
            mixture = "CSV and Parquet together" if kinds else "neither CSV nor Parquet in it"
            raise FileError(str(path), mixture, "a folder of files of one kind", f"Their names end with {endings}.")
        return files
    if path.suffix.lower() in _WORKBOOKS:
        raise workbook(path)
    if _kind(path) is None:
        remedy = "Rename it, or write it as CSV or Parquet."
        raise FileError(str(path), "a file of another kind", f"one whose name ends with one of {endings}", remedy)
    return [path]


def _kind(file: Path) -> str | None:
    return next((kind for ending, kind in _ENDINGS.items() if file.name.lower().endswith(ending)), None)


def _names(file: Path, dialect: Dialect) -> list[str]:
    try:
        if _kind(file) == "parquet":
            return list(parquet.read_schema(file).names)
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
        else:
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
    text = pa.py_buffer((first[0] if first else b"") + b"\n")
    return [] if _kind(file) == "parquet" else list(_opened(text, arrow_csv.ConvertOptions(), dialect, file.name).schema.names)


def _opened(what: Any, convert: Any, dialect: Dialect, name: str, over_lines: bool = False) -> Any:
    # without threads errors have row numbers
    reading = arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False, encoding=dialect.encoding)
    parsing = arrow_csv.ParseOptions(delimiter=dialect.separator_of(name), newlines_in_values=over_lines)
    return arrow_csv.open_csv(what, read_options=reading, parse_options=parsing, convert_options=convert)


def _require_text(file: Path, batch: Any, dialect: Dialect) -> None:
    """Refuse columns that are read as bytes because they are no text."""
    for field in batch.schema:
        if pa.types.is_binary(field.type):
            raise not_utf8(f"{file}, column {field.name!r}", dialect)
