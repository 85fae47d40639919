"""The user's side (R_1D of Algorithm 1, R_vec of Algorithm 2): clip, encode, round, add noise. Only this leaves a user."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arithmetic import LinearVectors
from ..privacy import ArgumentError, SumPlan
from . import _fused as fused
from ._encoding import UnitVectors, as_linear, as_numbers, clip_to_ball, encode, require_finite
from .messages import Counts, Encoded, Report
from .randomness import RandomSource
from .sampling import binomial, carry, round_at_random, round_ties
from .sparse import SparseVectors

# Entries that are worked on at a time: a few arrays of this size fit the processor's cache.
_PIECE = 1 << 17


class Randomizer:
    """The local randomizer of a plan (R_1D of Algorithm 1, R_vec of Algorithm 2): clip, encode, round at random, add noise bits.

    `randomize` runs on one user's device. `counts` does many users at once without making their bits; the law of the ones is the
    same.

    Parameters
    ----------
    plan : SumPlan
        How vectors are encoded and how much noise is added.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    Any two inputs have real encodings that are within g (1 + 1e-9) of each other in l2 norm and within g in every coordinate, and
    the noise is Bin(b, p) exactly. The plan's guarantee rests on this
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Examples
    --------
    >>> from croupier import SecureRandom, plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> report = Randomizer(plan).randomize([0.6, -0.8], SecureRandom())
    >>> report.bits.shape == (2, plan.bits_per_coordinate)
    True
    """

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan

    def randomize(self, vector: ArrayLike, random: RandomSource) -> Report:
        """Make one user's messages: in every coordinate xhat + Bin(b, p) ones among g + b bits (Algorithm 1, lines 3-7).

        Parameters
        ----------
        vector : array_like of shape (dim,)
            The user's vector; clipped to the plan's norm where it is longer.
        random : RandomSource
            Where the coins come from.

        Returns
        -------
        Report
            The user's labelled bits.

        Raises
        ------
        ArgumentError
            Where the vector has another shape or is not made of real numbers.
        RecordError
            Where an entry is NaN or infinite.
        """
        remedy = f"Pass the user's {self.plan.dim} numbers."
        row = as_numbers(vector, "vector", remedy)
        if row.shape != (self.plan.dim,):
            raise ArgumentError("vector.shape", row.shape, f"({self.plan.dim},)", remedy)
        row = row[np.newaxis]
        require_finite(row, range(0, 1), "vector")
        noise = binomial(random, self.plan.noise_bits, self.plan.noise_probability, self.plan.dim)
        (unit,) = clip_to_ball(LinearVectors.of(row), self.plan.norm)
        ones = self.rounded(unit, random)[0].astype(np.int64) + noise
        bits = np.arange(self.plan.bits_per_coordinate) < ones[:, np.newaxis]
        return Report(bits, random.private)

    def counts(self, vectors: ArrayLike | LinearVectors, random: RandomSource) -> Counts:
        """Add up the ones of many users, their noise included, without making their bits.

        Parameters
        ----------
        vectors : array_like of shape (users, dim) or LinearVectors
            One row per user.
        random : RandomSource
            Where the coins come from.

        Returns
        -------
        Counts
            What the users' shuffled bits would be counted as.
        """
        return self.with_noise(self.encoded(vectors, random), random)

    def encoded(self, vectors: ArrayLike | LinearVectors | SparseVectors, random: RandomSource) -> Encoded:
        """Add up the users' rounded encodings, still without noise: for adding up pieces before `with_noise`, not for release.

        Parameters
        ----------
        vectors : array_like of shape (users, dim), LinearVectors or SparseVectors
            One row per user.
        random : RandomSource
            Where the coins of the rounding come from.

        Returns
        -------
        Encoded
            The sum without noise.
        """
        if isinstance(vectors, SparseVectors) and vectors.dim == self.plan.dim and vectors.usual(self.plan.norm):
            return vectors.encoded(self.plan.norm, self.plan.levels, random)
        linear = as_linear(vectors, self.plan.dim)
        if self.plan.diameter is not None and linear.rows.dtype == np.float32:
            # lengths in single precision would scale neighbours by factors that differ in the fourth digit
            linear = LinearVectors(linear.rows.astype(np.float64), linear.coefficients, linear.shift)
        ones = np.zeros(self.plan.dim, dtype=np.int64)
        for unit in clip_to_ball(linear, self.plan.norm):
            fused.note_work(unit, self.plan.levels)
            in_one_pass = fused.is_for(unit, self.plan.levels)
            ones += fused.added(unit, self.plan.levels, random) if in_one_pass else self.added(unit, random)
        return Encoded(ones, len(linear))

    def encoded_zeros(self, users: int, random: RandomSource) -> Encoded:
        """Add up the encodings of zero vectors, still without noise: each coordinate is g/2, rounded by a fair coin if g is odd.

        Parameters
        ----------
        users : int
            How many zero vectors, at least 0.
        random : RandomSource
            Where the coins of the rounding come from.

        Returns
        -------
        Encoded
            The sum without noise, of the law that `encoded` has for zero vectors.
        """
        lower, odd = divmod(self.plan.levels, 2)
        ones = np.full(self.plan.dim, users * lower, dtype=np.int64)
        if odd and users:
            ones += binomial(random, users, 0.5, self.plan.dim)
        return Encoded(ones, users)

    def added(self, unit: UnitVectors, random: RandomSource) -> NDArray[np.int64]:
        """Add up the columns of `rounded`, piece by piece; ties are decided last, as in the compiled pass.

        Parameters
        ----------
        unit : UnitVectors
            Vectors in the unit ball, from `clip_to_ball`.
        random : RandomSource
            Where the coins of the rounding come from.

        Returns
        -------
        numpy.ndarray of int64, shape (dim,)
            The sum of the rounded encodings, in levels.
        """
        users, width = len(unit.rows), self.plan.dim
        drawn = random.draw_bytes(users * width).reshape(users, width)
        ones, columns, rests = np.zeros(width, dtype=np.int64), [], []
        some = max(1, _PIECE // width)
        for first in range(0, users, some):
            piece, bytes_ = unit.part(first, first + some), drawn[first : first + some]
            whole, tied, rest = carry(encode(piece.numbers(), self.plan.levels).ravel(), self.plan.levels, bytes_.ravel())
            # whole numbers that add up to less than 2^24, or 2^53: exact
            word = np.float32 if some * self.plan.levels < 1 << 24 else np.float64
            ones += (np.ones(len(bytes_), word) @ whole.reshape(bytes_.shape).astype(word)).astype(np.int64)
            columns.append(tied % width)
            rests.append(rest)
        if columns:
            np.add.at(ones, np.concatenate(columns)[round_ties(random, np.concatenate(rests))], 1)
        return ones

    def with_noise(self, encoded: Encoded, random: RandomSource) -> Counts:
        """Add the noise of all these users: their independent Bin(b, p) add up to Bin(b * users, p), which is drawn at once.

        Parameters
        ----------
        encoded : Encoded
            The sum of their rounded encodings.
        random : RandomSource
            Where the coins of the noise come from.

        Returns
        -------
        Counts
            The ones with noise.
        """
        noise = binomial(random, self.plan.noise_bits * encoded.users, self.plan.noise_probability, self.plan.dim)
        return Counts(encoded.ones + noise, encoded.users, random.private)

    def rounded(self, unit: UnitVectors, random: RandomSource) -> NDArray[Any]:
        """Round the encodings at random to xhat: whole numbers in 0..g whose means are the real encodings.

        Parameters
        ----------
        unit : UnitVectors
            Vectors in the unit ball, from `clip_to_ball`.
        random : RandomSource
            Where the coins come from.

        Returns
        -------
        numpy.ndarray of integers, shape (users, dim)
            The rounded encodings, in levels.
        """
        return round_at_random(random, encode(unit.numbers(), self.plan.levels), self.plan.levels)
