"""Rows on disk while a model is trained: more of them than fit into memory, in files that nobody else can open."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..estimator.intervals import WidthForecast
from ..optimizer import Schedule
from ..optimizer.result import Round
from ..population import ArrayPopulation, Population, RayPopulation
from ..population._blocks import BlockPopulation
from ..population.parquet import row_group_runs
from ..population.population import UnreachableError
from ..validation import ArgumentError, Found, one_of
from ._encode import Encoder, not_aside_by_name, not_aside_by_place, others
from ._read import Dialect, Piece, Source
from .model import TableEstimator
from .schema import Described


class RowStore:
    """Rows, targets and users, appended piece by piece and then read as arrays that live in files.

    The files have no name in the folder (or lose it at once, where the system knows no such files): however the process ends, the
    system deletes them with it. Memory stays that of a piece. Use it as a context.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, precision: Any = np.float32) -> None:
        self._precision = precision
        self.folder = None if folder is None else Path(folder)
        if self.folder is not None and not (self.folder.is_dir() and os.access(self.folder, os.W_OK)):
            raise ArgumentError("work_dir", str(folder), "a writable folder", "It holds the rows during training.")
        self._files: dict[str, Any] = {}
        self._width = self._count = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def __len__(self) -> int:
        return self._count

    def append(self, rows: NDArray[Any], targets: NDArray[Any], users: NDArray[np.uint64] | None = None) -> None:
        """Write some records down."""
        self._width = rows.shape[1]
        self._count += len(rows)
        self._write("rows", rows.astype(self._precision, copy=False))
        self._write("targets", targets.astype(np.float64, copy=False))
        if users is not None:
            self._write("users", users)

    @property
    def rows(self) -> NDArray[Any]:
        """All rows, read from the file as they are used."""
        return self._mapped("rows", self._precision).reshape(-1, self._width)

    @property
    def targets(self) -> NDArray[np.float64]:
        """All targets."""
        return self._mapped("targets", np.float64)

    @property
    def users(self) -> NDArray[np.uint64] | None:
        """Whose each record is; None if every record is a person."""
        return self._mapped("users", np.uint64) if "users" in self._files else None

    def _write(self, name: str, values: NDArray[Any]) -> None:
        try:
            if name not in self._files:
                self._files[name] = self._stack.enter_context(tempfile.TemporaryFile(dir=self.folder))  # noqa: SIM115
            self._files[name].write(np.ascontiguousarray(values).data)
        except OSError as problem:
            where = str(self.folder or tempfile.gettempdir())
            allowed = f"a folder with room for the rows ({problem.strerror})"
            raise ArgumentError("work_dir", where, allowed, "Choose another folder; nobody was asked.") from None

    def _mapped(self, name: str, kind: Any) -> NDArray[Any]:
        file = self._files[name]
        file.flush()
        return np.asarray(np.memmap(file, dtype=kind, mode="r"))


# Files as a population: where the records are while a model is trained.
#
# On this machine they lie in files that nobody else can open; or a Ray cluster reads them. Either way the blocks are the same.

ENGINES = ("local", "ray")
# Entries that are encoded together.
_PIECE_ENTRIES = 1 << 20


class TableWarning(UserWarning):
    """Something about a file that may not be as it was meant to be: a truncated last line, or work that cannot be shared."""


class Watcher:
    """Hears how a fit goes. Here every method does nothing; a subclass overrides what it wants to show."""

    def reading(self, name: str) -> AbstractContextManager[Callable[[int], None]]:
        """Around the reading of a file."""
        return nullcontext(lambda rows: None)

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Around a step that may take a while."""
        return nullcontext()

    def forecast(self, expected: WidthForecast) -> None:
        """Before anybody is asked, in a regression with intervals. What it raises ends the fit; nothing was spent."""

    def training(self, schedule: Schedule, delta: float) -> AbstractContextManager[None]:
        """Around all rounds: records are checked, and the run is charged."""
        return nullcontext()

    def after_round(self, done: Round) -> None:
        """After a round was answered, also by an earlier process. Raise `croupier.optimizer.StopTraining` to end training here,
        and keep the model so far."""


@dataclass(frozen=True)
class Engine:
    """Where a model is trained.

    `name`: This machine, where rows are kept on disk; or a Ray cluster, whose workers read the files. `work_dir`: Local only: the
    folder for the rows; default: the system's for temporary files. `address`: Ray only: that of a running cluster; default: a local
    one is started. `workers`: Ray only: how many; default: one per CPU.
    """

    name: str = "local"
    work_dir: Path | None = None
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        one_of("engine", self.name, ENGINES, "'local' reads on this machine, 'ray' on a cluster.")
        other = {"address": self.address, "workers": self.workers} if self.name == "local" else {"work_dir": self.work_dir}
        for option, value in other.items():
            if value is not None:
                allowed = f"left out with the engine {self.name!r}"
                raise ArgumentError(option, str(value), allowed, "It is an option of the other engine.")

    @contextmanager
    def people(
        self, source: Source, encoder: Encoder, maker: TableEstimator, watcher: Watcher | None = None
    ) -> Iterator[Population]:
        """The people of a file, as a population for as long as the context is open; a block of them is the same on either
        engine."""
        watcher = watcher or Watcher()
        if self.name == "local":
            with RowStore(self.work_dir) as store:
                yield _stored(source, encoder, maker, store, watcher)
            return
        if encoder.schema.user is not None:
            remedy = "Use the local engine, or aggregate each person to one row first."
            allowed = "left out with the engine 'ray': a person's rows may be in several shards, and no record leaves its shard"
            raise ArgumentError("user_column", encoder.schema.user, allowed, remedy)
        blocks = BlockPopulation(_blocks(source, encoder, maker), keep=True)
        if self.workers is None and len(blocks.shard.placed) == 1:
            text = "one CSV file, or one small Parquet file, is one block, so one worker does all the work"
            warnings.warn(text, TableWarning, stacklevel=3)
        with watcher.waiting("starting Ray"):
            people = RayPopulation(blocks, workers=self.workers, address=self.address)
        with people:
            yield people


@dataclass(frozen=True)
class TableBlock:
    """The records of some row groups of a Parquet file, or of a whole CSV file, encoded where they are read.

    `file`: Where they are. `row_groups`: Those of a Parquet file; None for a whole file. `users`: How many records. `encoder`:
    Makes rows of them. `maker`: Prepares rows and targets, by public facts alone. `dialect`: How a CSV file writes them; default:
    with commas, in UTF-8. `first`: The place of its first row among all rows, from 0.
    """

    file: Path
    row_groups: tuple[int, ...] | None
    users: int
    encoder: Encoder = field(repr=False)
    maker: TableEstimator = field(repr=False)
    dialect: Dialect = field(default_factory=Dialect)
    first: int = 0

    @property
    def file_name(self) -> str:
        """The file, for messages."""
        return str(self.file)

    def read(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Read the block."""
        if not self.file.exists():
            raise UnreachableError(f"{self.file} is gone; restore it. Nothing was released in this round")
        source = Source(self.file, self.dialect)
        pieces = source.pieces(self.encoder.types(target=True), piece_rows(self.encoder), self.row_groups)
        rows, targets = zip(*(_records(self.encoder, self.maker, piece) for piece in self._others(pieces)), strict=True)
        return np.concatenate(rows), np.concatenate(targets)

    def _others(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces without the people who were set aside."""
        first = self.first
        for piece in pieces:
            yield others(piece, self.encoder.schema.described, first)
            first += len(piece)


def piece_rows(encoder: Encoder) -> int:
    """How many records are encoded together, so that they fit into memory."""
    return max(1, _PIECE_ENTRIES // max(encoder.entries, len(encoder.names)))


def _stored(source: Source, encoder: Encoder, maker: TableEstimator, store: RowStore, watcher: Watcher) -> ArrayPopulation:
    """Everything is read and encoded before anybody is asked, so that a broken file costs nothing."""
    rows: Counter[Path] = Counter()
    described = encoder.schema.described
    with watcher.reading(source.path.name) as tell:
        for piece in source.pieces(encoder.types(target=True, user=True), piece_rows(encoder)):
            theirs = encoder.owned(others(piece, described, rows.total()))
            rows[piece.file] += len(piece)
            users = encoder.users(theirs)
            asked = np.ones(len(theirs), dtype=bool) if users is None or not described else not_aside_by_name(described, users)
            X, y = _records(encoder, maker, theirs)
            store.append(X[asked], y[asked], None if users is None else users[asked])
            tell(len(piece))
    if not len(store):
        raise ArgumentError("DATA", Found(f"has no rows ({source.path})"), "at least two users", "Check the file.")
    if described is not None:
        described.require_rows(rows.total())
    sizes = None if store.users is not None else [users for *_, users in _parts(source, rows, described)]
    return ArrayPopulation(store.rows, store.targets, groups=store.users, blocks=sizes)


def _blocks(source: Source, encoder: Encoder, maker: TableEstimator) -> list[TableBlock]:
    rows = source.count_rows(next(iter(encoder.types(target=True))))
    described = encoder.schema.described
    if described is not None:
        described.require_rows(rows.total())
    blocks = [
        TableBlock(file.absolute(), groups, users, encoder, maker, source.dialect, first)
        for file, groups, first, users in _parts(source, rows, described)
    ]
    if not blocks:
        raise ArgumentError("DATA", Found(f"has no rows ({source.path})"), "at least two users", "Check the file.")
    return blocks


def _parts(
    source: Source, rows: Counter[Path], described: Described | None = None
) -> Iterable[tuple[Path, tuple[int, ...] | None, int, int]]:
    """What makes a block: row groups of Parquet that have about as many rows as a block should, or a CSV file.

    With the place of its first row among all, and how many of its rows are not set aside; a block of which all are is left out.
    """
    first = 0
    for file, run, count in _runs(source, rows):
        users = int(not_aside_by_place(described, first, count).sum())
        if users:
            yield file, run, first, users
        first += count


def _runs(source: Source, rows: Counter[Path]) -> Iterable[tuple[Path, tuple[int, ...] | None, int]]:
    for file in source.files:
        groups = source.row_groups(file)
        if groups is not None:
            yield from ((file, run, sum(groups[group] for group in run)) for run in row_group_runs(groups))
        elif rows[file]:
            yield file, None, rows[file]


def _records(encoder: Encoder, maker: TableEstimator, piece: Piece) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    rows, targets = maker.records(encoder.rows(piece), encoder.targets(piece))
    return rows.astype(np.float32, copy=False), np.asarray(targets, dtype=np.float64)
