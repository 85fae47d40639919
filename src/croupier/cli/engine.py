"""Where the records are while a model is trained: on this machine, in files that nobody else can open, or on a Ray cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from ..estimator.base import LinearModel
from ..population import ArrayPopulation, BlockPopulation, Population, Question, RayPopulation, UnreachableError, row_group_runs
from ..population.population import Test
from ..protocol import SumEstimate
from ..table import Dialect, Encoder, Piece, Source, Store
from ..validation import ArgumentError, one_of
from .progress import Interrupt, counted, say, waiting

ENGINES = ("local", "ray")
# Entries that are encoded together.
_PIECE_ENTRIES = 1 << 20


@dataclass(frozen=True)
class Engine:
    """What the command line says about where to train."""

    name: str = "local"
    work_dir: Path | None = None  # local
    address: str | None = None  # ray
    workers: int | None = None  # ray

    def __post_init__(self) -> None:
        one_of("--engine", self.name, ENGINES, "local reads on this machine, ray on a cluster (pip install 'croupier[ray]').")
        other = {"--address": self.address, "--workers": self.workers} if self.name == "local" else {"--work-dir": self.work_dir}
        for option, value in other.items():
            if value is not None:
                raise ArgumentError(
                    option, str(value), f"left out with --engine {self.name}", "It is an option of the other engine."
                )

    @contextmanager
    def people(self, source: Source, encoder: Encoder, maker: LinearModel, console: Console, shown: bool) -> Iterator[Population]:
        """The people of a file, read and encoded by `maker`'s public facts; one block of them is the same on either engine."""
        if self.name == "local":
            with Store(self.work_dir) as store:
                yield _stored(source, encoder, maker, store, console, shown)
            return
        if encoder.schema.user is not None:
            remedy = "Use --engine local, or make one row of each person first."
            allowed = "left out with --engine ray: a person's rows may lie in several shards, and no record leaves a shard"
            raise ArgumentError("--user-column", encoder.schema.user, allowed, remedy)
        blocks = BlockPopulation(_blocks(source, encoder, maker), keep=True)
        if self.workers is None and len(blocks.shard.placed) == 1:
            say(console, "warning: one CSV file, or one small Parquet file, is one block: one worker has all the work", "yellow")
        with waiting("starting Ray", console, shown):
            people = RayPopulation(blocks, workers=self.workers, address=self.address)
        with people:
            yield people


class Interruptible:
    """People who are not asked once more where training is to stop."""

    def __init__(self, people: Population, interrupt: Interrupt, console: Console, shown: bool) -> None:
        self._people, self._interrupt, self._console, self._shown = people, interrupt, console, shown

    @property
    def users(self) -> int:
        return self._people.users

    @property
    def unit(self) -> str:
        return getattr(self._people, "unit", "user")

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        with waiting("checking records", self._console, self._shown):
            return self._people.prepare(test, key)

    def answer(self, question: Question) -> SumEstimate:
        self._interrupt.before_round()
        return self._people.answer(question)


@dataclass(frozen=True)
class TableBlock:
    """The records of some row groups of a Parquet file, or of a whole CSV file, encoded where they are read."""

    file: Path
    row_groups: tuple[int, ...] | None
    users: int
    encoder: Encoder = field(repr=False)
    maker: LinearModel = field(repr=False)
    dialect: Dialect = field(default_factory=Dialect)

    @property
    def file_name(self) -> str:
        return str(self.file)

    def read(self) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        if not self.file.exists():
            raise UnreachableError(f"{self.file} is gone; bring it back. Nothing was released in this round")
        pieces = Source(self.file, self.dialect).pieces(self.encoder.types(target=True), _most(self.encoder), self.row_groups)
        rows, targets = zip(*(_records(self.encoder, self.maker, piece) for piece in pieces), strict=True)
        return np.concatenate(rows), np.concatenate(targets)


def _stored(source: Source, encoder: Encoder, maker: LinearModel, store: Store, console: Console, shown: bool) -> ArrayPopulation:
    """Everything is read and encoded before anybody is asked, so that a broken file costs nothing."""
    rows: Counter[Path] = Counter()
    pieces = source.pieces(encoder.types(target=True, user=True), _most(encoder))
    for piece in counted(pieces, source.path.name, console, shown):
        rows[piece.file] += len(piece)
        theirs = encoder.owned(piece)
        store.append(*_records(encoder, maker, theirs), encoder.users(theirs))
    if not len(store):
        raise ArgumentError("DATA", f"no rows in {source.path}", "at least two users", "Check the file.")
    sizes = None if store.users is not None else [users for _, _, users in _parts(source, rows)]
    return ArrayPopulation(store.rows, store.targets, groups=store.users, blocks=sizes)


def _blocks(source: Source, encoder: Encoder, maker: LinearModel) -> list[TableBlock]:
    rows = source.count_rows(next(iter(encoder.types(target=True))))
    blocks = [
        TableBlock(file.absolute(), groups, users, encoder, maker, source.dialect) for file, groups, users in _parts(source, rows)
    ]
    if not blocks:
        raise ArgumentError("DATA", f"no rows in {source.path}", "at least two users", "Check the file.")
    return blocks


def _parts(source: Source, rows: Counter[Path]) -> Iterable[tuple[Path, tuple[int, ...] | None, int]]:
    """What makes a block: row groups of Parquet that have about as many rows as a block should, or a CSV file."""
    for file in source.files:
        groups = source.row_groups(file)
        if groups is not None:
            yield from ((file, run, sum(groups[group] for group in run)) for run in row_group_runs(groups))
        elif rows[file]:
            yield file, None, rows[file]


def _records(encoder: Encoder, maker: LinearModel, piece: Piece) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    rows, targets = maker.records(encoder.rows(piece), encoder.targets(piece))
    return rows.astype(np.float32, copy=False), targets.astype(np.float64, copy=False)


def _most(encoder: Encoder) -> int:
    return max(1, _PIECE_ENTRIES // len(encoder.names))
