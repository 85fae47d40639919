"""The user's side (R_1D of Algorithm 1, R_vec of Algorithm 2): clip, encode, round, add noise. Only this leaves a user."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arithmetic import LinearVectors
from ..privacy import ArgumentError, SumPlan
from . import fused
from .encoding import UnitVectors, as_linear, as_numbers, clip_to_ball, encode, require_finite
from .messages import Counts, Encoded, Report
from .randomness import RandomSource
from .sampling import binomial, carry, round_at_random, round_ties

# Entries that are worked on at a time: a few arrays of this size fit the processor's cache.
_PIECE = 1 << 17


class Randomizer:
    """The local randomizer of a plan. `randomize` is the device's; `counts` does many users at once, to the same law."""

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan

    def randomize(self, vector: ArrayLike, random: RandomSource) -> Report:
        """One user's messages: in every coordinate xhat + Bin(b, p) ones among g + b bits (Algorithm 1, lines 3-7)."""
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
        """The ones of many users added up, without making their bits."""
        return self.with_noise(self.encoded(vectors, random), random)

    def encoded(self, vectors: ArrayLike | LinearVectors, random: RandomSource) -> Encoded:
        """The users' rounded encodings added up, still without noise: for adding up pieces before `with_noise`, not for release."""
        linear = as_linear(vectors, self.plan.dim)
        ones = np.zeros(self.plan.dim, dtype=np.int64)
        for unit in clip_to_ball(linear, self.plan.norm):
            fused.note_work(unit, self.plan.levels)
            in_one_pass = fused.is_for(unit, self.plan.levels)
            ones += fused.added(unit, self.plan.levels, random) if in_one_pass else self.added(unit, random)
        return Encoded(ones, len(linear))

    def added(self, unit: UnitVectors, random: RandomSource) -> NDArray[np.int64]:
        """The column sums of `rounded`, piece by piece; ties last, as in the compiled pass."""
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
        """The noise of all these users: their independent Bin(b, p) add up to Bin(b * users, p), which is drawn at once."""
        noise = binomial(random, self.plan.noise_bits * encoded.users, self.plan.noise_probability, self.plan.dim)
        return Counts(encoded.ones + noise, encoded.users, random.private)

    def rounded(self, unit: UnitVectors, random: RandomSource) -> NDArray[Any]:
        """xhat: whole numbers in 0..g whose means are the real encodings."""
        return round_at_random(random, encode(unit.numbers(), self.plan.levels), self.plan.levels)
