"""Some users' records in memory: rows of numbers, one or several per user, and what they answer to a query."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.poly1305 import Poly1305
from numpy.typing import NDArray

from ..protocol._encoding import require_finite
from ..validation import ArgumentError, Found
from .population import LeaveBlanks, Query, Test, Vectors

# Entries that are worked on at a time: many, since with small pieces two threads mostly hand over the interpreter.
CHUNK_ENTRIES = 1 << 20
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
