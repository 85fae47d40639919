"""The user's side (R_1D of Algorithm 1, R_vec of Algorithm 2): clip, encode, round, add noise. Only this leaves a user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arithmetic import LinearVectors
from ..privacy import ArgumentError, SumPlan
from ..validation import whole
from . import _fused as fused
from ._encoding import Floats, Rotation, UnitVectors, as_linear, as_numbers, clip_in_pieces, clip_to_ball, encode, require_finite
from ._sampling import binomial, carry, round_at_random, round_ties
from ._sparse import SparseVectors
from .randomness import RandomSource
from .shuffler import Counts, Encoded, Report

# Entries that are worked on at a time: a few arrays of this size fit the processor's cache.
_PIECE = 1 << 17


class Randomizer:
    """The local randomizer of a plan (R_1D of Algorithm 1, R_vec of Algorithm 2): clip, encode, round at random, add noise bits.

    `randomize` runs on one user's device. `counts` does many users at once without making their bits; the law of the ones is the
    same.

    `plan`: How vectors are encoded and how much noise is added. `seed`: Under a plan with a rotation, the public bytes that it is
    made from: the same for all users of a round and its analyzer. `block`: Under a plan with blocks, the block that is sent.

    Guarantee
    ---------
    Any two inputs have real encodings that are within g (1 + 1e-9) of each other in l2 norm (with a rotation: within
    `plan.encoded_shift`) and within g in every coordinate, and the noise is Bin(b, p) exactly. The plan's guarantee rests on this
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Examples
    --------
    >>> from croupier import SecureRandom, plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> report = Randomizer(plan).randomize([0.6, -0.8], SecureRandom())
    >>> report.bits.shape == (2, plan.bits_per_coordinate)
    True
    """

    def __init__(self, plan: SumPlan, seed: bytes | None = None, block: int = 0) -> None:
        self.plan, self.block = plan, whole("block", block, at_least=0, at_most=plan.blocks - 1, remedy="Count blocks from 0.")
        self._rotation = None if plan.range is None else Rotation.of(plan, seed)

    def randomize(self, vector: ArrayLike, random: RandomSource) -> Report:
        """Make one user's messages: in every coordinate xhat + Bin(b, p) ones among g + b bits (Algorithm 1, lines 3-7)."""
        row = self._one_vector(vector)[np.newaxis]
        noise = binomial(random, self.plan.noise_bits, self.plan.noise_probability, self.plan.coordinates)
        (unit,) = clip_to_ball(LinearVectors.of(row), self.plan.norm)
        ones = self.rounded(unit, random)[0].astype(np.int64) + noise
        bits = np.arange(self.plan.bits_per_coordinate) < ones[:, np.newaxis]
        return Report(bits, random.private)

    def counts(self, vectors: ArrayLike | LinearVectors, random: RandomSource) -> Counts:
        """Add up the ones of many users, their noise included, without making their bits."""
        return self.with_noise(self.encoded(vectors, random), random)

    def counts_in_pieces(self, vector: ArrayLike, random: RandomSource, size: int = _PIECE) -> Iterator[NDArray[np.int64]]:
        """Make one user's counts piece by piece, of the law of `counts`: a long float32 vector is never float64 as a whole."""
        row = self._one_vector(vector)
        if self._rotation is not None:  # a vector is turned as a whole
            ones = self.counts(row[np.newaxis], random).ones
            yield from (ones[first : first + size] for first in range(0, len(ones), size))
            return
        for unit in clip_in_pieces(row, self.plan.norm, size):
            rounded = self.rounded(unit, random)[0].astype(np.int64)
            yield rounded + binomial(random, self.plan.noise_bits, self.plan.noise_probability, len(rounded))

    def _one_vector(self, vector: ArrayLike) -> NDArray[Any]:
        """One user's vector, of the plan's length and finite."""
        remedy = f"Pass the user's {self.plan.dim} numbers."
        row = as_numbers(vector, "vector", remedy)
        if row.shape != (self.plan.dim,):
            raise ArgumentError("vector.shape", row.shape, f"({self.plan.dim},)", remedy)
        require_finite(row[np.newaxis], range(0, 1), "vector")
        return row

    def encoded(self, vectors: ArrayLike | LinearVectors | SparseVectors, random: RandomSource) -> Encoded:
        """Add up the users' rounded encodings, still without noise: for adding up pieces before `with_noise`, not for release."""
        if isinstance(vectors, SparseVectors) and vectors.dim == self.plan.dim and vectors.usual(self.plan.norm):
            if self._rotation is None:
                return vectors.encoded(self.plan.norm, self.plan.levels, random)
            return self._rotated_entries(vectors, self._rotation, random)
        linear = as_linear(vectors, self.plan.dim)
        if self.plan.diameter is not None and linear.rows.dtype == np.float32:
            # lengths in single precision would scale neighbours by factors that differ in the fourth digit
            linear = LinearVectors(linear.rows.astype(np.float64), linear.coefficients, linear.shift)
        ones = np.zeros(self.plan.coordinates, dtype=np.int64)
        for unit in clip_to_ball(linear, self.plan.norm):
            fused.note_work(unit, self.plan.levels)
            if not fused.is_for(unit, self.plan.levels):
                ones += self.added(unit, random)
            elif self._rotation is None:
                ones += fused.added(unit, self.plan.levels, random)
            else:
                ones += fused.added_rotated(unit, self.plan.levels, self._rotation, self.block, random)
        return Encoded(ones, len(linear))

    def _rotated_entries(self, vectors: SparseVectors, rotation: Rotation, random: RandomSource) -> Encoded:
        """The same for vectors by their entries, which have no zeros left once they are turned."""
        ones = fused.added_rotated_entries(vectors, self.plan.levels, rotation, self.block, random)
        if ones is None:
            rows, alone = vectors.clipped_numbers(self.plan.norm), np.ones(len(vectors))
            ones = self.added(UnitVectors(rows, alone[:, np.newaxis], alone, None), random)
        return Encoded(ones, len(vectors))

    def encoded_zeros(self, users: int, random: RandomSource) -> Encoded:
        """Add up the encodings of zero vectors, still without noise: each coordinate is g/2, rounded by a fair coin if g is odd."""
        lower, odd = divmod(self.plan.levels, 2)
        ones = np.full(self.plan.coordinates, users * lower, dtype=np.int64)
        if odd and users:
            ones += binomial(random, users, 0.5, self.plan.coordinates)
        return Encoded(ones, users)

    def added(self, unit: UnitVectors, random: RandomSource) -> NDArray[np.int64]:
        """Add up the columns of `rounded`, piece by piece; ties are decided last, as in the compiled pass."""
        users, width = len(unit.rows), self.plan.coordinates
        drawn = random.draw_bytes(users * width).reshape(users, width)
        ones, columns, rests = np.zeros(width, dtype=np.int64), [], []
        some = max(1, _PIECE // width)
        for first in range(0, users, some):
            piece, bytes_ = unit.part(first, first + some), drawn[first : first + some]
            rounded, tied, rest = carry(encode(self.numbers(piece), self.plan.levels).ravel(), self.plan.levels, bytes_.ravel())
            # whole numbers that add up to less than 2^24, or 2^53: exact
            word = np.float32 if some * self.plan.levels < 1 << 24 else np.float64
            ones += (np.ones(len(bytes_), word) @ rounded.reshape(bytes_.shape).astype(word)).astype(np.int64)
            columns.append(tied % width)
            rests.append(rest)
        if columns:
            np.add.at(ones, np.concatenate(columns)[round_ties(random, np.concatenate(rests))], 1)
        return ones

    def numbers(self, unit: UnitVectors) -> Floats:
        """Make what is encoded: the vectors as they are, or rotated, in ranges."""
        return unit.numbers() if self._rotation is None else self._rotation.turned(unit.numbers(), self.block)

    def with_noise(self, encoded: Encoded, random: RandomSource) -> Counts:
        """Add the noise of all these users: their independent Bin(b, p) add up to Bin(b * users, p), which is drawn at once."""
        noise = binomial(random, self.plan.noise_bits * encoded.users, self.plan.noise_probability, self.plan.coordinates)
        return Counts(encoded.ones + noise, encoded.users, random.private)

    def rounded(self, unit: UnitVectors, random: RandomSource) -> NDArray[Any]:
        """Round the encodings at random to xhat: whole numbers in 0..g whose means are the real encodings."""
        return round_at_random(random, encode(self.numbers(unit), self.plan.levels), self.plan.levels)
