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

from ..validation import ArgumentError, RecordError

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
# Text that is looked at together; also the longest line.
_BLOCK_BYTES = 1 << 22
_STREAM_BYTES = 1 << 20
NULLS = [*arrow_csv.ConvertOptions().null_values, " "]
_BROKEN = "Mend the file, or get it again; nobody was asked."


@dataclass(frozen=True)
class Piece:
    """Some records of one file: `first` is the number of the first of them, counted from 1 without the header."""

    file: Path
    first: int
    batch: Any

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> Any:
        return self.batch.column(name)

    def where(self, index: int) -> str:
        """A record's place, for whoever has to find it."""
        return f"{self.file}, row {self.first + index}"


class Source:
    """A data file, or a folder of files of one kind in the order of their names.

    Nothing but names is looked at before `pieces`. A file that cannot be read to its end raises an error that names it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.files = _files(self.path)

    @property
    def names(self) -> list[str]:
        """The columns of the first file."""
        return _names(self.files[0])

    def require(self, columns: Sequence[str]) -> None:
        """Refuse files that lack one of these columns."""
        for file in self.files:
            names = _names(file)
            for column in columns:
                if names.count(column) != 1:
                    how_often = "not there" if column not in names else "there more than once"
                    raise ArgumentError(
                        f"column {column!r}",
                        how_often,
                        f"once in {file}, which has {_listing(names)}",
                        "Check the schema's spelling, and that the first line of a CSV file is its header.",
                    )

    def pieces(self, types: dict[str, Any] | None, most: int = 1 << 16, row_groups: Sequence[int] | None = None) -> Iterator[Piece]:
        """The records in order, at most `most` in a piece, with these columns. CSV is read as these Arrow types.

        None is all columns, of the types that the files have or, for CSV, that their first lines look like. `row_groups` are
        those of a Parquet file that are wanted, all unless given.
        """
        for file in self.files:
            first = 1 + sum((self.row_groups(file) or [])[: row_groups[0]]) if row_groups else 1
            for batch in _batches(file, types, most, row_groups):
                for start in range(0, batch.num_rows, most):
                    yield Piece(file, first + start, batch.slice(start, most))
                first += batch.num_rows

    def row_groups(self, file: Path) -> list[int] | None:
        """How many rows each row group of a Parquet file has; None for CSV."""
        if _kind(file) != "parquet":
            return None
        try:
            data = parquet.read_metadata(file)
        except (pa.ArrowException, OSError) as problem:
            raise _broken(file, problem) from None
        return [data.row_group(group).num_rows for group in range(data.num_row_groups)]

    def count_rows(self, column: str) -> Counter[Path]:
        """How many records each file has; CSV is read for it, by one of its columns."""
        rows: Counter[Path] = Counter()
        for file in self.files:
            groups = self.row_groups(file)
            rows[file] = (
                sum(batch.num_rows for batch in _batches(file, {column: pa.binary()}, 1)) if groups is None else sum(groups)
            )
        return rows

    def ends_oddly(self) -> Path | None:
        """The first CSV file whose last line is not ended: it may have been cut off within a value."""
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
        raise ArgumentError("DATA", str(path), "a file or folder that exists", "Check the path.")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _kind(file) and file.is_file() and not file.name.startswith("."))
        kinds = {_kind(file) for file in files}
        if len(kinds) != 1:
            found = "CSV and Parquet together" if kinds else "neither CSV nor Parquet in it"
            raise ArgumentError("DATA", f"{path} ({found})", "a folder of files of one kind", f"Names end with {endings}.")
        return files
    if _kind(path) is None:
        raise ArgumentError("DATA", str(path), f"named with one of {endings}", "Rename it, or write it as CSV or Parquet.")
    return [path]


def _kind(file: Path) -> str | None:
    return next((kind for ending, kind in _ENDINGS.items() if file.name.lower().endswith(ending)), None)


def _names(file: Path) -> list[str]:
    try:
        if _kind(file) == "parquet":
            return list(parquet.read_schema(file).names)
        return list(_open_csv(file, arrow_csv.ConvertOptions(column_types={})).schema.names)
    except (pa.ArrowException, OSError) as problem:
        raise _broken(file, problem) from None


def _batches(file: Path, types: dict[str, Any] | None, most: int, row_groups: Sequence[int] | None = None) -> Iterator[Any]:
    try:
        if _kind(file) == "parquet":
            with parquet.ParquetFile(file, buffer_size=_STREAM_BYTES, pre_buffer=False) as stored:
                yield from stored.iter_batches(
                    batch_size=most, row_groups=row_groups, columns=types and list(types), use_threads=False
                )
        else:
            _require_closed_quotations(file)
            options = arrow_csv.ConvertOptions(column_types=types, include_columns=types and list(types), null_values=NULLS)
            with _open_csv(file, options) as stream:
                yield from stream
    except (pa.ArrowException, OSError) as problem:
        raise _broken(file, problem) from None


def _open_csv(file: Path, convert: Any) -> Any:
    return arrow_csv.open_csv(
        file,
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),  # without threads errors have row numbers
        parse_options=arrow_csv.ParseOptions(delimiter="\t" if ".tsv" in file.name.lower() else ",", newlines_in_values=False),
        convert_options=convert,
    )


def _require_closed_quotations(file: Path) -> None:
    """A quotation without an end would make one value of the rest of the file, and nobody would notice the rows it swallows."""
    marks = 0
    with pa.input_stream(str(file)) as stream:
        while block := stream.read(_BLOCK_BYTES):
            marks += block.count(b'"')
    if marks % 2:
        allowed = "an even number, since each quotation has an end; the file may have been cut off"
        raise ArgumentError(str(file), f"{marks} quotation marks", allowed, _BROKEN)


def _broken(file: Path, problem: Exception) -> ArgumentError:
    """What is wrong with a file and where, without the rest of the line that it is in."""
    text = str(problem)
    row = re.search(r"Row #(\d+)", text)
    place = f"{file}, row {int(row[1]) - 1}" if row else str(file)  # Arrow counts the header
    if count := re.search(r"Expected (\d+) columns, got (\d+)", text):
        return ArgumentError(place, f"{count[2]} values", f"a line of {count[1]}; the file may have been cut off", _BROKEN)
    if "straddling" in text or "out of sync" in text:
        return ArgumentError(place, "a quotation that does not end", "a complete file; it may have been cut off", _BROKEN)
    if value := re.search(r"conversion error to (\w+): (.*)", text):
        return RecordError(place, value[2], f"a {value[1]} in this column", _BROKEN, public=str(file))
    if "magic bytes" in text or "Truncated" in text or "orrupt" in text or "EOF" in text or "end of stream" in text:
        return ArgumentError(place, text.split(". ", maxsplit=1)[0], "a complete file; it may have been cut off", _BROKEN)
    return RecordError(place, text.splitlines()[0], "a file that can be read to its end", _BROKEN, public=str(file))


def _listing(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:12]))
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"
