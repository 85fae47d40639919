"""A public random rotation: signs, the Walsh-Hadamard transform, and for blocks an order of the coordinates.

It spreads every vector over all coordinates, so that these can be encoded on a range of a few norms / sqrt(d'). Privacy needs no
more of it than that it is orthogonal and does not depend on the record of the person at stake (docs/accounting.md, section 10);
how well a sum is told needs that nobody chose it after seeing the vectors.

The transform's butterflies are single additions in one order, so that this module, `compiled.py` and the TypeScript client make the
same bits, whoever else is in the batch.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from ..privacy import ArgumentError, SumPlan
from ..validation import Found

Floats = NDArray[np.float64]
# Entries that are turned at a time: a few arrays of this size fit the processor's cache.
_PIECE = 1 << 16


class Rotation:
    """The rotation of one round, from public bytes that no record had a part in.

    Parameters
    ----------
    plan : SumPlan
        A plan with a range.
    seed : bytes
        Any bytes, the same for all users of the round and for the analyzer: fresh ones in every round, such as its digest.

    Guarantee
    ---------
    What `turned` returns has a true l2 norm of at most plan.block_norm / plan.range, for vectors whose true norm is at most 1, and
    entries in [-1, 1]; zero vectors stay zero.
    """

    def __init__(self, plan: SumPlan, seed: bytes) -> None:
        if plan.range is None:
            raise ArgumentError("plan.range", None, "a number", "Rotate under a plan that was made with a rotation.")
        self.plan, self.padded = plan, plan.padded
        self.signs, self.order = _drawn(bytes(seed), plan.padded, plan.blocks > 1)
        # More than what butterflies and products can add to the length: (1 + 2^-53)^(log2(d') + 6) <= 1 / shrink.
        shrink = 1 - (math.log2(plan.padded) + 16) * 2.0**-52
        self.scale = shrink / math.sqrt(plan.padded)
        self.range = plan.range

    @classmethod
    def of(cls, plan: SumPlan, seed: bytes | None) -> Rotation:
        """The rotation of a plan that has one; without a seed it is refused."""
        if not isinstance(seed, bytes) or len(seed) < 16:
            given = "is missing" if seed is None else "is too short, or not bytes"
            remedy = (
                "Pass the public bytes of the round, the same to users and analyzer: its digest, or os.urandom(32) once per round."
            )
            raise ArgumentError("seed", Found(given), "16 bytes or more under a plan with a rotation", remedy)
        return cls(plan, seed)

    def turned(self, unit: Floats, block: int = 0) -> Floats:
        """Rotate vectors in the unit ball, take a block, clip it to its norm and its entries to the range, in ranges."""
        result = np.empty((len(unit), self.plan.coordinates))
        some = max(1, _PIECE // self.padded)
        for first in range(0, len(unit), some):
            result[first : first + some] = self._turned(unit[first : first + some], block)
        return result

    def _turned(self, unit: Floats, block: int) -> Floats:
        columns = np.zeros((self.padded, len(unit)))
        columns[: unit.shape[1]] = unit.T
        columns[: unit.shape[1]] *= self.signs[: unit.shape[1], np.newaxis]
        columns = transformed(columns)
        if self.order is not None:
            columns = columns[self.part(block)]
        columns *= self.scale
        if self.order is not None:
            columns *= self._shorter(columns)
        columns /= self.range
        return np.minimum(np.maximum(columns, -1.0), 1.0).T

    def _shorter(self, columns: Floats) -> Floats:
        """What blocks are multiplied by so as to be no longer than `block_norm`. Squares are added up in halves: one order."""
        squares = columns * columns
        while len(squares) > 1:
            half = len(squares) // 2
            squares = squares[:half] + squares[half:]
        longest = np.sqrt(squares[0] * (1 + (len(columns) + 16) * 2.0**-52))
        limit = self.plan.block_norm
        return np.asarray(limit / np.maximum(limit, longest))

    def part(self, block: int) -> NDArray[np.int64]:
        """The rotated coordinates that a block has, in their order."""
        size = self.plan.coordinates
        order = np.arange(self.padded) if self.order is None else self.order
        return order[block * size : (block + 1) * size]

    def back(self, sums: Floats, block: int = 0) -> Floats:
        """Turn sums of rotated coordinates back: what a block says of each coordinate; blocks add up."""
        column = np.zeros((self.padded, 1))
        column[self.part(block), 0] = sums
        return np.asarray((transformed(column)[:, 0] / math.sqrt(self.padded) * self.signs)[: self.plan.dim])


def transformed(columns: Floats) -> Floats:
    """The Walsh-Hadamard transform of every column, without its factor: log2(d') stages of sums and differences.

    Ensures
    -------
    Each stage rounds each entry once, so the l2 norm of a result is at most (1 + 2^-53)^log2(d') sqrt(d') times that of the column,
    and each entry depends on its own column alone (docs/accounting.md#10-rotation).
    """
    size, users = columns.shape
    other = np.empty_like(columns)
    half = 1
    while half < size:
        pairs, out = (array.reshape(size // (2 * half), 2, half * users) for array in (columns, other))
        np.add(pairs[:, 0], pairs[:, 1], out=out[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=out[:, 1])
        columns, other = other, columns
        half *= 2
    return columns


@lru_cache(maxsize=16)
def _drawn(seed: bytes, padded: int, permuted: bool) -> tuple[Floats, NDArray[np.int64] | None]:
    """Signs, one bit each, and then the order of as many numbers of 64 bits: ChaCha20 keyed by BLAKE2b of the seed."""
    key = hashlib.blake2b(seed, digest_size=32, person=b"rotation").digest()
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    bits = np.unpackbits(np.frombuffer(stream.update(bytes(-(-padded // 8))), dtype=np.uint8), bitorder="little")[:padded]
    signs: Floats = np.where(bits == 1, -1.0, 1.0)
    signs.setflags(write=False)
    if not permuted:
        return signs, None
    order = np.argsort(np.frombuffer(stream.update(bytes(8 * padded)), dtype="<u8"), kind="stable").astype(np.int64)
    order.setflags(write=False)
    return signs, order
