"""Users in blocks that are read one at a time: the population that files, generators and clusters are made of.

A block is the unit of randomness: its users' rounding and noise are drawn under a key of their own, derived from the question's
secret and the block's number. So the counts of a round do not depend on which process answers for which block, or how often.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.poly1305 import Poly1305
from numpy.typing import NDArray

from ..protocol import Counts, Report, SumEstimate
from ..protocol._encoding import require_finite
from ..protocol.randomness import KeyedRandom
from ..validation import ArgumentError, Found, whole
from .population import LeaveBlanks, Query, Question, Seats, Test, UnreachableError, Vectors

# Some users' records in memory: rows of numbers, one or several per user, and what they answer to a query.


# Entries that are worked on at a time: many, since with small pieces two threads mostly hand over the interpreter.
CHUNK_ENTRIES = 1 << 20
# How many times more users' rotated vectors are worked on at a time where they are given by their entries. Such rows take less
# memory, but those that turn out to be dense take so many times more.
_AT_ONCE = 4
Integers = NDArray[np.int64]


class Records:
    """One user per row of X, with its entry of y; or, with an index, users who have several rows each.

    A user with many rows answers with the mean of their vectors: one bounded contribution, so that the person is protected and
    not the row.
    """

    def __init__(self, X: Any, y: NDArray[Any] | None, index: RowsOfUsers | None = None, *, finite: bool = False) -> None:
        self.X, self.y, self.index, self._finite = X, y, index, finite

    @property
    def users(self) -> int:
        """How many users there are."""
        return int(self.X.shape[0]) if self.index is None else self.index.users

    def read(self) -> Records:
        """Return itself: records are a block that has been read."""
        return self

    def gathered(self) -> Records:
        """Leave out the rows of other users."""
        if self.index is None:
            return self
        rows, firsts, counts = self.index.rows_of(np.arange(self.users))
        y = None if self.y is None else self.y[rows]
        return Records(self.X[rows], y, RowsOfUsers(np.arange(len(rows)), counts, firsts), finite=self._finite)

    def check(self, test: Test) -> None:
        """Refuse values that are not finite, unless they are left to the test, and records that fail the test."""
        if not self._finite and not isinstance(test, LeaveBlanks):
            dense = self.X.data[:, np.newaxis] if _sparse(self.X) else self.X
            if dense.dtype.kind == "f":
                require_finite(dense, range(0, len(dense), max(1, CHUNK_ENTRIES // max(1, dense.shape[1]))), "X")
            require_finite_targets(self.y)
            self._finite = True
        test(self.X, self.y)

    def digest(self, key: bytes) -> bytes:
        """Digest the records in their order under a key (HMAC-SHA256); the digest may be written down and compared elsewhere."""
        digest = hmac.new(key, digestmod=hashlib.sha256)
        for part in self._bytes():
            digest.update(part)
        return digest.digest()

    def tag(self, key: bytes) -> bytes:
        """Tag the records (Poly1305), to compare within a process what is read again. Neither tag nor key may leave it.

        It takes a small part of the time that a cryptographic hash does.

        Guarantee
        ---------
        Records of L bytes that differ, chosen by an attacker who has seen neither key nor tags, have the same tag with a
        probability of at most 8 (L / 16 + 1) / 2^106.
        """
        tag = Poly1305(key)
        for part in self._bytes():
            tag.update(part)
        return tag.finalize()

    def _bytes(self) -> Iterator[bytes | memoryview]:
        """The records as bytes, in their order; others have others."""
        mine = self.gathered()
        parts = {"data": mine.X.data, "indices": mine.X.indices, "ends": mine.X.indptr} if _sparse(mine.X) else {"X": mine.X}
        parts |= {} if mine.y is None else {"y": mine.y}
        parts |= {} if mine.index is None else {"rows of users": mine.index.counts}
        yield str(mine.X.shape).encode()
        for name, part in parts.items():
            array = np.ascontiguousarray(part)
            yield f"{name} {array.dtype} {array.shape}".encode()
            yield repr(array.tolist()).encode() if array.dtype.hasobject else array.view(np.uint8).data

    def vectors(self, query: Query, members: Integers | None, most: int) -> Iterator[Vectors]:
        """Evaluate a query for these users, or for all, in pieces of at most `most` rows. The vectors are not for release."""
        if self.index is not None:
            yield from self._means(self.index, query, np.arange(self.users) if members is None else members, most)
        elif members is None:
            for start in range(0, self.users, most):
                yield self._vectors_of_rows(query, slice(start, min(start + most, self.users)))
        else:
            yield from self._of_rows(query, members, most)

    def _of_rows(self, query: Query, rows: Integers, most: int) -> Iterator[Vectors]:
        for start in range(0, len(rows), most):
            yield self._vectors_of_rows(query, rows[start : start + most])

    def _vectors_of_rows(self, query: Query, rows: Integers | slice) -> Vectors:
        X = self.X[rows]
        vectors = query.vectors(X.toarray() if hasattr(X, "toarray") else X, None if self.y is None else self.y[rows])
        if len(vectors) != X.shape[0]:
            raise ArgumentError(
                "query(X, y)", Found(f"returned {len(vectors)} vectors"), f"{X.shape[0]}, one per record", "Map each record alone."
            )
        return vectors

    def _means(self, index: RowsOfUsers, query: Query, users: Integers, most: int) -> Iterator[NDArray[np.float64]]:
        """One mean vector per user, over at most `most` rows at a time; someone with more of them alone, in pieces."""
        for piece in index.pieces(users, most):
            rows, firsts, counts = index.rows_of(piece)
            if len(rows) > most:
                total = sum(np.asarray(vectors).sum(axis=0) for vectors in self._of_rows(query, rows, most))
                yield np.asarray(total)[np.newaxis] / len(rows)
            else:
                yield np.add.reduceat(np.asarray(self._vectors_of_rows(query, rows)), firsts, axis=0) / counts[:, np.newaxis]


def _sparse(X: Any) -> bool:
    return hasattr(X, "indptr")


def require_finite_targets(y: NDArray[Any] | None) -> None:
    """Refuse targets that are NaN or infinite."""
    if y is not None and y.dtype.kind == "f" and not np.all(np.isfinite(y)):
        raise ArgumentError(
            "y", Found("contains NaN or infinity"), "finite in every entry", "Drop users without a target; nobody was asked."
        )


class RowsOfUsers:
    """Which rows belong to which user: rows sorted by user, how many each has, and where each one's begin."""

    def __init__(self, rows: Integers, counts: Integers, firsts: Integers) -> None:
        self._rows, self.counts, self._firsts = rows, counts, firsts

    @classmethod
    def of_labels(cls, user_of_row: Integers) -> RowsOfUsers:
        counts = np.bincount(user_of_row)
        return cls(np.argsort(user_of_row, kind="stable"), counts, np.concatenate([[0], np.cumsum(counts)[:-1]]))

    @property
    def users(self) -> int:
        return len(self.counts)

    def part(self, first: int, last: int) -> RowsOfUsers:
        """The users from `first` up to `last` alone."""
        return RowsOfUsers(self._rows, self.counts[first:last], self._firsts[first:last])

    def pieces(self, users: Integers, most: int) -> Iterator[Integers]:
        """The users in pieces of at most `most` rows together, or of one user."""
        ends, start = np.cumsum(self.counts[users]), 0
        while start < len(users):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
            yield users[start:stop]
            start = stop

    def rows_of(self, users: Integers) -> tuple[Integers, Integers, Integers]:
        """The rows of these users one after the other, where each user's begin among them, and how many each has."""
        counts = self.counts[users]
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        places = np.arange(counts.sum()) - np.repeat(firsts, counts) + np.repeat(self._firsts[users], counts)
        return self._rows[places], firsts, counts


# Users that are a block where nothing else says so.
BLOCK_USERS = 1 << 18
# Work that is worth a thread: some milliseconds.
ENTRIES_PER_THREAD = 1 << 19


class Block(Protocol):
    """Some users: how many, and how to get at their records."""

    @property
    def users(self) -> int:
        """How many users the block has, at least 1. This is public."""
        ...

    def read(self) -> Records | tuple[Any, Any]:
        """Read the users' records, the same whenever it is called."""
        ...


@runtime_checkable
class NamedBlock(Block, Protocol):
    """A block that says what errors call it: its file."""

    @property
    def file_name(self) -> str:
        """What errors call the block. It must not hold a record's value."""
        ...


@runtime_checkable
class CheckedBlock(Block, Protocol):
    """A block that says whether its `read` makes sure itself that the records are what they were at first."""

    @property
    def checks_itself(self) -> bool:
        """Whether `read` refuses records that are not those that it first returned; it is taken at its word."""
        ...


@dataclass(frozen=True)
class Placed:
    """A block, its number, which names its randomness, the number of its first user, and how many it has."""

    number: int
    first: int
    users: int
    block: Block

    @property
    def name(self) -> str:
        """What an error calls it: its file, or its number. What a block of one's own prints of itself may be its records."""
        return str(self.block.file_name) if isinstance(self.block, NamedBlock) else f"block {self.number}"


class Shard:
    """The blocks that one process answers for. With `keep` their records stay in memory; otherwise they are read every time."""

    def __init__(self, placed: Sequence[Placed], *, keep: bool, threads: int = 1) -> None:
        self.placed, self._keep, self._threads = tuple(placed), keep, threads
        self._kept: dict[int, Records] = {}
        self._seats: dict[int, Seats] = {}
        self._tags: dict[int, bytes] = {}
        self._key = os.urandom(32)

    @property
    def users(self) -> int:
        return sum(placed.users for placed in self.placed)

    def prepare(self, test: Test, key: bytes | None) -> list[bytes]:
        """Refuse records that fail the test; with a key, the blocks' digests under it."""
        digests = []
        for placed in self.placed:
            records = self._records(placed)
            records.check(test)
            if key is not None:
                digests.append(records.digest(key))
            del records  # before the next are read
        return digests

    def forget(self) -> None:
        """Read everything anew, whatever it was before: to compare digests."""
        self._kept.clear()
        self._tags.clear()

    def counts(self, question: Question) -> Counts:
        """The shard's users of the batch: their vectors, clipped, encoded and rounded, and their noise. Only the sum leaves."""
        total = Counts(np.zeros(question.plan.coordinates, dtype=np.int64), 0, question.secret.private)
        threads = min(self._threads, len(self.placed), question.size * question.plan.padded // ENTRIES_PER_THREAD)
        if threads < 2 or not question.query.parallel:
            return sum((self._counts(placed, question) for placed in self.placed), start=total)
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(lambda placed: self._counts(placed, question), self.placed), start=total)

    def _counts(self, placed: Placed, question: Question) -> Counts:
        source = question.secret.derive("block", placed.number).source()
        return question.protocol.counts(self.vectors_of(placed, question), source)

    def reports(self, question: Question) -> Iterator[Report]:
        """The same, message by message."""
        protocol = question.protocol
        for placed in self.placed:
            source = question.secret.derive("block", placed.number).source()
            yield from protocol.reports(self.vectors_of(placed, question), source)

    def vectors(self, question: Question) -> Iterator[NDArray[np.float64]]:
        """The users' vectors as they are: not for release."""
        for placed in self.placed:
            yield from map(np.asarray, self.vectors_of(placed, question))

    def vectors_of(self, placed: Placed, question: Question) -> Iterator[Vectors]:
        """The same of one block, as the query gives them."""
        members = self._members(placed, question)
        # with secret lots a block is read for nobody, too: else the round in which its file is found to be gone would tell a lot
        if question.lots is not None or members is None or len(members):
            plan, entries = question.plan, question.query.entries or question.plan.padded
            if plan.range is not None:  # a rotated vector has all entries
                entries = max(entries, plan.padded // _AT_ONCE)
            yield from self._records(placed).vectors(question.query, members, max(1, CHUNK_ENTRIES // entries))

    def _members(self, placed: Placed, question: Question) -> NDArray[np.int64] | None:
        """Who of the block is in the batch; None for all of them."""
        batch, last = question.batch, placed.first + placed.users
        if batch.is_everyone:
            return None
        if not self._keep:
            return batch.members(placed.first, last)
        seats = self._seats.get(placed.number)
        if seats is None or seats.order != batch.order:
            seats = self._seats[placed.number] = Seats(batch.order, placed.first, last)
        return seats.members(batch)

    def _records(self, placed: Placed) -> Records:
        if placed.number in self._kept:
            return self._kept[placed.number]
        read = placed.block.read()
        records = read if isinstance(read, Records) else Records(read[0], read[1])
        if records.users != placed.users or not self._unchanged(placed, records):
            change = (
                f"has {records.users} users where {placed.users} were counted" if records.users != placed.users else "has changed"
            )
            raise UnreachableError(f"{placed.name} {change}: restore it. Nothing was released in this round")
        if self._keep:
            self._kept[placed.number] = records
        return records

    def _unchanged(self, placed: Placed, records: Records) -> bool:
        """Whether a block that is read again is the same: in another order, people would be asked in other people's place."""
        if self._keep or (isinstance(placed.block, CheckedBlock) and placed.block.checks_itself):
            return True
        tag = records.tag(self._key)
        return self._tags.setdefault(placed.number, tag) == tag


class BlockPopulation:
    """Users in blocks, answered for by this process.

    A block is any object with `users`, how many it has, and `read()`, which returns their records as (X, y), one row per user, the
    same whenever it is called. Memory is that of a block, unless `keep` holds what was read. What is not kept is compared whenever
    it is read with what it was at first, every value of it, and refused where it has changed. A block whose `read` makes sure of
    that itself says `checks_itself = True` (`CheckedBlock`); it is then taken at its word. `file_name`, if a block has one
    (`NamedBlock`), is what errors call it.

    `blocks`: The blocks, in an order that must not change: a block's number names its randomness. `keep`: Whether to hold in memory
    what was read. `mode`: Whether to add integers, or to make and shuffle every message; the distribution of the answers is the
    same. `threads`: How many blocks are answered for at once. None is as many as the process has processors where records are kept,
    and one where they are read, since each holds a block. The counts are the same. A loss of one's own is called by one thread;
    `read` may be called by several, of different blocks. `private`: True: its answers are as private as the plan. `unit`: What a
    user is: "row". ArgumentError: If there is no block, a block has no users, or threads is below 1.

    Guarantee
    ---------
    A block's randomness depends on the question's secret and the block's number alone, so a question that is asked again gets the
    same answer, to the bit.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import minimize
    >>> from croupier.population._blocks import BlockPopulation
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> class SyntheticBlock:
    ...     def __init__(self, seed):
    ...         self.seed, self.users = seed, 1000
    ...     def read(self):
    ...         X = np.random.default_rng(self.seed).normal(size=(1000, 3)) / 3
    ...         return X, X[:, 0] > 0
    >>> problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0))
    >>> minimize(problem, BlockPopulation([SyntheticBlock(seed) for seed in range(5)]), epsilon=1.0, delta=1e-6).users
    5000
    """

    private: bool = True
    unit: str = "row"  # what a user is here; an account counts no rows together with persons
    _layout: bytes = b""  # what of a digest the blocks do not say: where questions are not answered block by block

    def __init__(self, blocks: Iterable[Block], *, keep: bool = False, mode: str = "counting", threads: int | None = None) -> None:
        if threads is not None:
            whole("threads", threads, at_least=1, remedy="Default: one per processor.")
        self.shard = Shard(place(blocks), keep=keep, threads=threads or (processors() if keep else 1))
        self.mode = mode

    @property
    def users(self) -> int:
        """How many users there are. This is public."""
        return self.shard.users

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Refuse records that fail the test, before anybody is asked.

        Parameters
        ----------
        test : Test
            Called with records (X, y) where they are; raises where they are not what is wanted.
        key : bytes or None, default None
            The key of the digest; None if no digest is wanted.

        Returns
        -------
        bytes or None
            A keyed digest of all records in their order, and of where blocks begin; None without a key.
        """
        digests = self.shard.prepare(test, key)
        return None if key is None else joint_digest(key, [*digests, self._layout])

    def answer(self, question: Question) -> SumEstimate:
        """Run one private round over the users of the batch.

        Parameters
        ----------
        question : Question
            The question, its users and its plan.

        Returns
        -------
        SumEstimate
            The sum over the batch, its noise and its guarantee.

        Raises
        ------
        BatchTooSmallError
            If the round has fewer users than its guarantee counts on.
        UnreachableError
            If records are gone or have changed. Nothing is released then.
        """
        protocol = question.protocol
        protocol.check_round(question.size, self.mode)
        if self.mode == "faithful":
            reports = [*self._asked(question).reports(question), *protocol.blank_reports(question.blanks, _blanks_source(question))]
            estimate = protocol.analyze(protocol.shuffle(reports, question.secret.derive("shuffle").source()))
            return replace(estimate, guarantee=question.promised(estimate.guarantee))
        return released(question, self._asked(question).counts(question))

    def _asked(self, question: Question) -> Shard:
        """Whose blocks answer this question."""
        return self.shard


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def place(blocks: Iterable[Block]) -> list[Placed]:
    """The blocks one after the other."""
    placed, first = [], 0
    for number, block in enumerate(blocks):
        remedy = "State how many users the block has, or leave it out."
        placed.append(Placed(number, first, whole(f"blocks[{number}].users", block.users, at_least=1, remedy=remedy), block))
        first += placed[-1].users
    if not placed:
        raise ArgumentError("blocks", Found("is empty"), "at least one block of users", "Check where they come from.")
    return placed


def released(question: Question, counts: Counts) -> SumEstimate:
    """The estimate from the counts of a whole batch, and of the blanks that fill up a secret lot."""
    if counts.users != question.batch.size:
        how_many = "not all" if question.lots is not None else f"{counts.users}"  # how many have a lot is nobody's business
        of = "those with the lot" if question.lots is not None else f"{question.batch.size} in the batch"
        raise UnreachableError(f"{how_many} users answered of {of}; nothing was released")
    protocol = question.protocol
    if question.lots is not None:
        counts += protocol.blank_counts(question.blanks, _blanks_source(question))
    estimate = protocol.analyze(counts)
    return replace(estimate, guarantee=question.promised(estimate.guarantee))


def _blanks_source(question: Question) -> KeyedRandom:
    return question.secret.derive("blanks").source()


def joint_digest(key: bytes, digests: Iterable[bytes]) -> bytes:
    """One keyed digest of the blocks' digests, in their order."""
    return hmac.new(key, b"".join(digests), hashlib.sha256).digest()
