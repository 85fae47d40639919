"""Users in Parquet files: one file or a folder of them, read a few row groups at a time whenever they are asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs, parquet

from ..validation import ArgumentError
from ._blocks import BLOCK_USERS, BlockPopulation
from .population import UnreachableError

# What a user does to its own record where it is read: from (X, y) to (X, y).
Maker = Callable[[Any, Any], tuple[Any, Any]]
_ENDINGS = (".parquet", ".pq")
_BATCH_ROWS = 1 << 16


class ParquetPopulation(BlockPopulation):
    """One user per row of Parquet files. Memory is that of a row group, or of 262 144 rows where row groups are smaller.

    Parameters
    ----------
    path : str or os.PathLike
        A file, a folder of them (in the order of their names), or a URI that Arrow can open, such as s3://bucket/people.
    target : str or None, default None
        The column that is y; None if there is none.
    features : sequence of str or None, default None
        The columns of X; None is all but the target.
    records : callable or None, default None
        What each user does to its own record, from (X, y) to (X, y), such as an estimator's `records`; evaluated where the file is
        read.
    keep : bool, default False
        Whether to hold in memory what was read. Otherwise every round reads the files again, sequential ones too, and compares
        every value that it reads with what it was at first: a file that has changed is refused, and nothing is released.
    mode : {"counting", "faithful"}, default "counting"
        Whether to add integers, or to make and shuffle every message; the distribution of the answers is the same.
    threads : int or None, default None
        Number of runs of row groups answered for at once, as in `BlockPopulation`.

    Attributes
    ----------
    features : tuple of str
        The columns of X.
    target : str or None
        The column that is y.

    Raises
    ------
    ArgumentError
        If there is no Parquet file at the path, a column is missing or there twice, or a feature is not made of numbers.

    Examples
    --------
    >>> import numpy as np, pyarrow, pyarrow.parquet, tempfile
    >>> from croupier import minimize
    >>> from croupier.population import ParquetPopulation
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> x = np.random.default_rng(0).uniform(-0.5, 0.5, size=(2, 3000))
    >>> people = pyarrow.table({"age": x[0], "height": x[1], "ill": x[0] > 0})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(people, f"{folder}/people.parquet", row_group_size=1000)
    ...     users = ParquetPopulation(folder, target="ill")
    ...     problem = Problem(loss=Logistic(), domain=Ball(dim=2, radius=5.0))
    ...     minimize(problem, users, epsilon=1.0, delta=1e-6).users
    3000
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        records: Maker | None = None,
        keep: bool = False,
        mode: str = "counting",
        threads: int | None = None,
    ) -> None:
        files = [_described(uri) for uri in _files(path)]
        self.features = _features(files[0], features, target)
        self.target = target
        for file in files:
            file.require(self.features, target)
        blocks = (file.block(groups, self.features, target, records) for file in files for groups in row_group_runs(file.rows))
        super().__init__(blocks, keep=keep, mode=mode, threads=threads)


@dataclass(frozen=True)
class ParquetBlock:
    """The rows of some row groups of one file. `ParquetPopulation` makes one for every run of row groups.

    `uri`: The file, as a URI or an absolute path. `row_groups`: The row groups, by their numbers in the file. `users`: How many
    rows they have together. `features`: The columns of X. `target`: The column that is y; None if there is none. `records`: What
    each user does to its own record, from (X, y) to (X, y); None if records are used as they are. `footer`: A digest of the end of
    the file when it was counted, which tells where and how long everything in it is.
    """

    uri: str
    row_groups: tuple[int, ...]
    users: int
    features: tuple[str, ...]
    target: str | None
    records: Maker | None = field(repr=False)
    footer: bytes = field(repr=False)  # of the file when it was counted: it tells where and how long everything in it is

    @property
    def file_name(self) -> str:
        """What errors call the block: its file."""
        return self.uri

    def read(self) -> tuple[Any, Any]:
        """Read the rows from the file."""
        with _opened(self.uri) as (stored, footer):
            if footer != self.footer:
                raise UnreachableError(f"{self.uri} has changed since the population was made; restore it")
            X, y = self._rows(stored)
        return (X, y) if self.records is None else self.records(X, y)

    def _rows(self, stored: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        kinds = [stored.schema_arrow.field(name).type for name in self.features]
        X = np.empty((self.users, len(self.features)), dtype=np.float32 if all(map(pa.types.is_float32, kinds)) else np.float64)
        y, first = [], 0
        columns = [*self.features, *([] if self.target is None else [self.target])]
        for batch in stored.iter_batches(_BATCH_ROWS, row_groups=list(self.row_groups), columns=columns, use_threads=False):
            here = slice(first, first + batch.num_rows)
            first += batch.num_rows
            for place, name in enumerate(self.features):
                column = batch.column(name)
                column = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column  # NaN where there is none
                X[here, place] = column.to_numpy(zero_copy_only=False)
            if self.target is not None:
                y.append(_targets(batch.column(self.target)))
        return X, np.concatenate(y) if y else None


def _targets(column: Any) -> NDArray[Any]:
    """The targets, each as it is in the file: whole numbers beside a gap are not to become floats, which may not hold them."""
    if column.null_count and pa.types.is_integer(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class _File:
    """What the end of a Parquet file says about it."""

    uri: str
    footer: bytes
    rows: tuple[int, ...]  # of each row group
    schema: Any

    def block(self, groups: tuple[int, ...], features: tuple[str, ...], target: str | None, records: Maker | None) -> ParquetBlock:
        return ParquetBlock(self.uri, groups, sum(self.rows[g] for g in groups), features, target, records, self.footer)

    def require(self, features: Sequence[str], target: str | None) -> None:
        """Refuse a file without these columns, or with features that are not numbers."""
        for name in [*features, *([] if target is None else [target])]:
            if self.schema.names.count(name) != 1:
                how_often = "there more than once" if name in self.schema.names else "not there"
                listed = ", ".join(map(repr, self.schema.names[:12])) + (", ..." if len(self.schema.names) > 12 else "")
                raise ArgumentError(f"column {name!r}", how_often, f"once in {self.uri}, which has {listed}", "Check its spelling.")
        for name in features:
            kind = self.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                remedy = "Encode it, leave it out of features, or use croupier fit with a schema."
                raise ArgumentError(f"column {name!r} of {self.uri}", str(kind), "numbers", remedy)


def row_group_runs(rows: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Divide the row groups of a file into runs that are read together: up to 262 144 rows, or one row group that has more."""
    run: list[int] = []
    for group, count in enumerate(rows):
        if run and sum(rows[g] for g in run) + count > BLOCK_USERS:
            yield tuple(run)
            run = []
        if count:
            run.append(group)
    if run:
        yield tuple(run)


def _features(file: _File, features: Sequence[str] | None, target: str | None) -> tuple[str, ...]:
    """The columns of X: those that were named, or all but the target."""
    columns = [name for name in file.schema.names if name != target] if features is None else list(features)
    if not columns or target in columns:
        raise ArgumentError("features", columns, "columns other than the target", "Name those that people are described by.")
    return tuple(columns)


def _files(path: str | os.PathLike[str]) -> list[str]:
    """The files as URIs or absolute paths, in the order of their names."""
    name = os.fspath(path)
    uri = name if "://" in name else str(Path(name).absolute())
    try:
        system, root = fs.FileSystem.from_uri(uri)
        info = system.get_file_info(root)
        if info.type == fs.FileType.File:
            return [uri]
        listed = system.get_file_info(fs.FileSelector(root)) if info.type == fs.FileType.Directory else []
    except (pa.ArrowException, OSError) as problem:
        raise ArgumentError("path", name, "a path that can be read", str(problem).splitlines()[0]) from None
    endings, (base, question, query) = " or ".join(_ENDINGS), uri.partition("?") if "://" in uri else (uri, "", "")
    file_names = sorted(
        entry.base_name
        for entry in listed
        if entry.type == fs.FileType.File and entry.base_name.lower().endswith(_ENDINGS) and not entry.base_name.startswith(".")
    )
    below = [entry.base_name for entry in listed if entry.type == fs.FileType.Directory and entry.base_name[0] not in "._"]
    if below:
        remedy = "Name one of them, or move the files together."
        raise ArgumentError("path", name, f"a folder without subfolders, which would be ignored ({below[0]})", remedy)
    if not file_names:
        raise ArgumentError("path", name, f"a Parquet file, or a folder of files named {endings}", "Check the path.")
    quoted_names = [quote(file_name) for file_name in file_names] if "://" in uri else file_names
    return [f"{base.rstrip('/')}/{file_name}{question}{query}" for file_name in quoted_names]


@contextmanager
def _opened(uri: str) -> Iterator[tuple[Any, bytes]]:
    """The file, and a digest of its end."""
    try:
        system, path = fs.FileSystem.from_uri(uri)
        with system.open_input_file(path) as raw:
            size = raw.size()
            length = int.from_bytes(raw.read_at(8, max(0, size - 8))[:4], "little")
            footer = hashlib.sha256(size.to_bytes(8, "little") + raw.read_at(min(length, size), max(0, size - 8 - length))).digest()
            with parquet.ParquetFile(raw, pre_buffer=False) as stored:
                yield stored, footer
    except (pa.ArrowException, OSError) as problem:
        # what Arrow says of a page that it cannot decode may hold what is on it
        reason = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else type(problem).__name__
        raise UnreachableError(f"{uri} cannot be read ({reason})") from None


def _described(uri: str) -> _File:
    try:
        with _opened(uri) as (stored, footer):
            data = stored.metadata
            rows = tuple(data.row_group(group).num_rows for group in range(data.num_row_groups))
            return _File(uri, footer, rows, stored.schema_arrow)
    except UnreachableError as problem:
        raise ArgumentError("path", uri, "a whole Parquet file", f"{problem}. Fetch the file again; nobody was asked.") from None
