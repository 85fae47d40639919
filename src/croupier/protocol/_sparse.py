"""Vectors that are 0 in most coordinates, as moments of one-hot rows are: only the entries that are there are rounded.

A 0 is encoded as g/2. For an even g that is a whole number, and nothing is random about it; for an odd g each one is rounded up or
down by a fair coin, and the coins of z users with a 0 in a coordinate add up to Bin(z, 1/2), which is drawn at once. So the counts
have the law of the dense way, at the cost of the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..arithmetic import row_squares
from ..validation import ArgumentError, Found, RecordError
from . import _fused as fused
from ._encoding import encode
from ._sampling import fair_binomial, round_at_random, round_ties
from .randomness import RandomSource
from .shuffler import Encoded

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Sizes whose squares are neither lost nor infinite.
_USUAL = (1e-30, 1e30)


@dataclass(frozen=True, eq=False)
class SparseVectors:
    """Some users' vectors by their entries. Each part holds users who have equally many entries.

    `dim`: The coordinates of a vector. `parts`: Columns and values of the entries, both of shape (users of the part, entries). No
    user has two entries in one column. Entries in the column `dim` are left out, and their values must be 0. `users`: For each
    part, which users its rows are, so that `numpy.asarray` has all users in their order. None if the users of one part follow those
    of the other.

    Guarantee
    ---------
    The counts have the law of those of dense vectors, which the plan's guarantee rests on.
    """

    dim: int
    parts: Sequence[tuple[Integers, Floats]]
    users: Sequence[Integers] | None = None

    @classmethod
    def of(cls, matrix: Any, dim: int) -> SparseVectors:
        """Take the rows of a scipy sparse matrix, users with equally many entries together."""
        rows = matrix.tocsr(copy=True)
        rows.sum_duplicates()
        if rows.ndim != 2 or rows.shape[1] != dim or rows.dtype.kind not in "biuf":
            found = Found(f"has the shape {rows.shape} and type {rows.dtype}")
            raise ArgumentError("vectors", found, f"numbers of shape (users, {dim})", f"Pass {dim} numbers per user.")
        values = rows.data.astype(np.float64)
        if not np.isfinite(values).all():
            user = int(np.searchsorted(rows.indptr, int(np.argmin(np.isfinite(values))), side="right")) - 1
            remedy = "Remove or impute missing values on the user's side; nothing was sent."
            raise RecordError(f"vectors[{user}]", Found("contains NaN or infinity"), "finite", remedy, public="vectors")
        counts = np.diff(rows.indptr)
        users = [np.flatnonzero(counts == count) for count in np.unique(counts)]
        parts = []
        for some in users:
            entries = rows.indptr[some][:, np.newaxis] + np.arange(counts[some[0]])
            parts.append((rows.indices[entries].astype(np.int64), values[entries]))
        return cls(dim, parts, users)

    def __len__(self) -> int:
        return sum(len(columns) for columns, _ in self.parts)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[np.float64]:
        dense = self._dense((users, columns, values) for users, (columns, values) in zip(self._owners(), self.parts, strict=True))
        return dense.astype(dtype or np.float64, copy=False)

    def _owners(self) -> Sequence[Integers]:
        """Whose the rows of each part are."""
        ends = np.cumsum([0, *(len(columns) for columns, _ in self.parts)])
        return [np.arange(*pair) for pair in pairwise(ends)] if self.users is None else self.users

    def _dense(self, parts: Iterable[tuple[Integers, Integers, Floats]]) -> Floats:
        """All users' vectors, from whose the rows of each part are, and the columns and values of their entries."""
        entries = np.zeros(len(self) * self.dim + 1)  # the last one for those that are left out
        for users, columns, values in parts:
            places = users[:, np.newaxis] * self.dim + columns
            places[columns == self.dim] = entries.size - 1
            entries[places] = values
        return entries[:-1].reshape(len(self), self.dim)

    def usual(self, norm: float) -> bool:
        """Tell whether all entries are finite and of a size whose squares can be held; others have to be dense vectors."""
        with np.errstate(invalid="ignore"):
            small = all(-_USUAL[1] < values.min(initial=0.0) <= values.max(initial=0.0) < _USUAL[1] for _, values in self.parts)
        return small and _USUAL[0] < norm < _USUAL[1]

    def clipped(self, norm: float) -> Iterator[tuple[Integers, Integers, Floats, Floats]]:
        """Yield each part: users, columns, values, and what each user's values are multiplied by to lie in the unit ball."""
        if not self.usual(norm):
            raise ArgumentError("vectors", Found("is not finite, or huge"), "of a usual size", "Use dense vectors.")
        # as for dense vectors: more than the error of the length and of the operations that follow (encoding.py)
        slack = (self.dim + 16) * 2.0**-52
        for users, (columns, values) in zip(self._owners(), self.parts, strict=True):
            longest = np.sqrt(row_squares(values) * (1 + slack))
            yield users, np.ascontiguousarray(columns), np.ascontiguousarray(values), 1 / np.maximum(norm, longest)

    def clipped_numbers(self, norm: float) -> Floats:
        """All users' vectors in the unit ball."""
        parts = self.clipped(norm)
        return self._dense((users, columns, values * factors[:, np.newaxis]) for users, columns, values, factors in parts)

    def encoded(self, norm: float, levels: int, random: RandomSource) -> Encoded:
        """Clip the users' vectors to the norm, encode, round and add them up, still without noise: not for release."""
        ones, there = np.zeros(self.dim + 1, dtype=np.int64), np.zeros(self.dim + 1, dtype=np.int64)
        for _, columns, values, factors in self.clipped(norm):
            # one row per entry, so that every operation below runs along the users
            entries, places = np.ascontiguousarray(values.T), np.ascontiguousarray(columns.T)
            compiled = fused.entries_kernel(entries.size)
            if compiled is None:
                added, counted = _added(entries * factors, places.ravel(), levels, self.dim + 1, random)
                ones += added
                there += counted
            else:
                drawn = random.draw_bytes(entries.size)
                where, rest = compiled(entries, factors, places, levels / 2, drawn, ones, there)
                np.add.at(ones, where[round_ties(random, rest)], 1)
        zeros = len(self) - there[: self.dim]
        total = ones[: self.dim] + zeros * (levels // 2)
        if levels % 2:
            total += fair_binomial(random, zeros, self.dim)
        return Encoded(total, len(self))


def _added(unit: Floats, places: Integers, levels: int, size: int, random: RandomSource) -> tuple[Integers, Integers]:
    """The rounded encodings added up place by place, and how many there are: by numpy alone, the same bits as compiled."""
    rounded = round_at_random(random, encode(unit, levels).ravel(), levels)
    added = np.bincount(places, weights=rounded, minlength=size).astype(np.int64)  # whole numbers below 2^53: exact
    return added, np.bincount(places, minlength=size)


def second_moments(rows: Floats) -> Floats | SparseVectors:
    """Return svec(x x') of every row x: the upper triangle, row by row, with off-diagonal entries times sqrt 2.

    Its length is that of x, squared. By its entries where most of a row's are 0.
    """
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    columns, there = rows.shape[1], rows != 0
    counts = there.sum(axis=1)
    if counts.size == 0 or float(counts.mean()) > columns / 2:
        first, second = np.triu_indices(columns)
        return rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2.0))
    users = [np.flatnonzero(counts == count) for count in np.unique(counts)]
    parts = [_products(rows, there, some, int(counts[some[0]])) for some in users]
    return SparseVectors(columns * (columns + 1) // 2, parts, users)


def _products(rows: Floats, there: NDArray[np.bool_], some: Integers, entries: int) -> tuple[Integers, Floats]:
    """Columns and values of svec(x x') of some rows, which have this many entries each."""
    users, columns = len(some), rows.shape[1]
    shape = (users, entries * (entries + 1) // 2)
    compiled = fused.products_kernel(users * shape[1])
    if compiled is not None:
        compiled(rows, some, products := np.empty(shape, dtype=np.int64), numbers := np.empty(shape))
        return products, numbers
    rows, there = rows[some], there[some]
    # one row per entry, so that every operation below runs along the users
    places = np.ascontiguousarray(np.nonzero(there)[1].reshape(users, entries).T)
    values = np.ascontiguousarray(rows[there].reshape(users, entries).T)
    found = np.empty(shape[::-1], dtype=np.int64)
    vectors, at = np.empty(found.shape), 0
    for i in range(entries):  # the products of the i-th entry with itself and those after it
        here = slice(at, at := at + entries - i)
        np.multiply(values[i:], np.sqrt(2.0) * values[i], out=vectors[here])
        np.multiply(values[i], values[i], out=vectors[here.start])
        np.add(places[i:], places[i] * columns - places[i] * (places[i] + 1) // 2, out=found[here])
    return np.ascontiguousarray(found.T), np.ascontiguousarray(vectors.T)


def symmetric_matrix(entries: Floats) -> Floats:
    """Return the symmetric matrix whose svec these are."""
    columns = int((np.sqrt(8 * len(entries) + 1) - 1) / 2 + 0.5)
    first, second = np.triu_indices(columns)
    matrix = np.zeros((columns, columns))
    matrix[first, second] = matrix[second, first] = entries / np.where(first == second, 1.0, np.sqrt(2.0))
    return matrix
