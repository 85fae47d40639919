"""From a user's vector to integers: check, clip to the norm bound, scale to 0..g, round at random.

Privacy rests on one fact about this module: for any two inputs the real encodings are within g (1 + 1e-9) of each other in l2
norm and within g in every coordinate (docs/accounting.md, section 6). Clipping therefore leaves room for the error of the
computed length, and of every operation between it and the encoding. Lengths are computed here, for whichever way the entries are
made: `UnitVectors.numbers` and the kernel in `compiled.py` do the same operations in the same order, so what is proved for one
holds for the other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import ArrayLike, NDArray

from ..arithmetic import LinearVectors, products, row_dots, row_squares
from ..privacy import ArgumentError, SumPlan
from ..validation import Found, RecordError

Floats = NDArray[np.float64]
# Sizes at which no square, product or quotient of two overflows, and what underflows does not count beside the norm.
_NORMS = (1e-30, 1e30)
_LONGEST_ROW, _LARGEST_COEFFICIENT = 1e100, 1e50


@dataclass(frozen=True, eq=False)
class UnitVectors:
    """Vectors in the unit ball as products: user i's is coefficients_i times rows_i plus factors_i times the shift.

    `rows` (users, features): In single or double precision. `coefficients` (users, outputs): What each user's row is multiplied by.
    `factors` (users,): What the shift is multiplied by. `shift` (outputs, features): A vector that all users share; None if there
    is none.
    """

    rows: NDArray[Any]
    coefficients: Floats
    factors: Floats
    shift: Floats | None

    def numbers(self) -> Floats:
        """Make the vectors, with the operations that the bound on their lengths covers, in their order."""
        vectors = products(self.rows, self.coefficients)
        if self.shift is not None:
            vectors += self.factors[:, np.newaxis] * self.shift.ravel()
        return vectors

    def part(self, first: int, last: int) -> UnitVectors:
        """Take some of the users."""
        return UnitVectors(self.rows[first:last], self.coefficients[first:last], self.factors[first:last], self.shift)

    def total(self) -> Floats:
        """Add up the vectors without making them."""
        products = self.coefficients.T @ self.rows
        return np.asarray((products if self.shift is None else products + self.factors.sum() * self.shift).ravel())


def as_vectors(vectors: ArrayLike, dim: int, name: str = "vectors") -> NDArray[Any]:
    """Take `vectors` as a real array of one row per user; its values are not yet looked at."""
    remedy = f"Pass an array with one row of {dim} numbers per user."
    array = as_numbers(vectors, name, remedy)
    if array.ndim != 2 or array.shape[1] != dim:
        raise ArgumentError(f"{name}.shape", array.shape, f"(users, {dim})", remedy)
    return array


def as_numbers(values: ArrayLike, name: str, remedy: str) -> NDArray[Any]:
    """Take `values` as an array of real numbers no wider than float64, of whatever shape."""
    if np.ma.isMaskedArray(values) or (isinstance(values, list | tuple) and any(np.ma.isMaskedArray(row) for row in values)):
        raise ArgumentError(
            name, Found("is a masked array"), "an array without a mask", "Impute or drop what is masked on the user's side."
        )
    try:
        array = np.asarray(values)
        if array.dtype == object:
            if any(isinstance(entry, str | bytes) for entry in array.ravel()):
                raise ArgumentError(name, Found("contains text"), "an array of numbers", remedy)
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(name, type(values).__name__, "an array of numbers", remedy) from None
    if array.dtype.kind not in "biuf":
        raise ArgumentError(f"{name}.dtype", str(array.dtype), "a real number type", remedy)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite, and is refused as such
            array = array.astype(np.float64)
    return array


def require_finite(vectors: NDArray[Any], rows: range, name: str = "vectors") -> None:
    """Refuse NaN and infinity, naming the first user that has one."""
    for start in rows:
        with np.errstate(all="ignore"):
            if np.isfinite(np.sum(vectors[start : start + rows.step])):
                continue  # a sum with NaN or infinity in it is not finite
        finite = np.isfinite(vectors[start : start + rows.step]).all(axis=1)
        if not finite.all():
            user = start + int(np.argmin(finite))
            bad = vectors[user][~np.isfinite(vectors[user])][0]
            remedy = "Remove or impute missing values on the user's side; nothing was sent."
            raise RecordError(f"{name}[{user}]", float(bad), "finite", remedy, public=name)


def as_linear(vectors: ArrayLike | LinearVectors, dim: int) -> LinearVectors:
    """Take `vectors` as products, of the shape (users, dim)."""
    if not isinstance(vectors, LinearVectors):
        return LinearVectors.of(as_vectors(vectors, dim))
    if vectors.dim != dim:
        raise ArgumentError("vectors.shape", (len(vectors), vectors.dim), f"(users, {dim})", f"Pass {dim} numbers per user.")
    return vectors


def clip_to_ball(vectors: LinearVectors, norm: float) -> Iterator[UnitVectors]:
    """Divide the vectors by `norm`, and scale those outside the unit ball back to just inside it; each user's by itself.

    They come in one piece, and where some are of a size that squares cannot hold, those in another.

    Parameters
    ----------
    vectors : LinearVectors
        One vector per user.
    norm : float
        The public bound on their l2 norms, above 0, in units of the data.

    Yields
    ------
    UnitVectors
        Vectors of some of the users; of each user once.

    Raises
    ------
    RecordError
        If an entry is NaN or infinite.

    Requires
    --------
    `vectors.squares`, where they are given, are what `row_squares` makes of these very rows
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Ensures
    -------
    The true l2 norm of every vector, as `UnitVectors.numbers` or the compiled pass computes it, is at most 1, whatever the rounding
    and whatever the vector was. It depends on this user's vector and `norm` alone
    (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    usual, longest = _longest(vectors, norm)
    if not usual.all():
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = np.asarray(vectors)
        require_finite(numbers, range(0, len(numbers), max(1, len(numbers))))
        rows = _scaled_back(numbers[~usual], norm)
        yield UnitVectors(rows, np.ones((len(rows), 1)), np.ones(len(rows)), None)
        vectors, longest = vectors.of_users(usual), longest[usual]
    if len(vectors):
        factors = 1 / np.maximum(norm, longest)
        yield UnitVectors(vectors.rows, vectors.coefficients * factors[:, np.newaxis], factors, vectors.shift)


def clip_in_pieces(vector: NDArray[Any], norm: float, size: int) -> Iterator[UnitVectors]:
    """Clip one user's long vector as `clip_to_ball` does, and yield it in pieces of `size` coordinates.

    Only one piece at a time is in double precision. The square of the length is a sum of the pieces' squares: in whatever order
    non-negative numbers are added up, the sum of d of them is right to (d + 1) 2^-53, which is all that `_longest` relies on.

    Requires
    --------
    Entries are finite, in single or double precision; nothing here checks it.

    Ensures
    -------
    The true l2 norm of all pieces together, as `UnitVectors.numbers` computes them, is at most 1
    (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    starts = range(0, len(vector), size)
    with np.errstate(over="ignore"):
        parts = (vector[first : first + size].astype(np.float64)[np.newaxis] for first in starts)
        squares = np.array([sum(float(row_squares(part)[0]) for part in parts)])
    if not (squares[0] < _LONGEST_ROW**2 and _NORMS[0] < norm < _NORMS[1]):
        vector = _scaled_back(vector.astype(np.float64)[np.newaxis], norm)[0]
        factor = np.ones(1)
    else:
        factor = 1 / np.maximum(norm, np.sqrt(squares * (1 + _slack(len(vector)))))
    for first in starts:
        yield UnitVectors(vector[np.newaxis, first : first + size].astype(np.float64), factor[np.newaxis], factor, None)


def _slack(dim: int) -> float:
    """What is added to the computed square of a length, as a part of it: see `_longest`."""
    return (dim + 16) * 2.0**-52


def _longest(vectors: LinearVectors, norm: float) -> tuple[NDArray[np.bool_], Floats]:
    """Whose vectors are of a usual size, and for these a bound on their true lengths that also covers what is done with them later.

    Let u = 2^-53, and A the length of the product plus that of the shift. The computed square of the length is wrong by less than
    (d + 6) u A^2, the bound's root and reciprocal by less than 6 u of themselves, and the entries, of a coefficient times a factor
    times a feature plus a factor times a shift, by less than 3.1 u A together. All that is below 2 (d + 16) u A^2 in the square.
    What is so short that its squares vanish is shorter than any norm here; whatever is not a number is not of a usual size. Squares
    of rows in single precision are first brought to where they are not too small (see `row_squares`).
    """
    rows, coefficients = vectors.rows, vectors.coefficients
    slack = _slack(vectors.dim)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = row_squares(rows) if vectors.squares is None else vectors.squares
        if rows.dtype == np.float32:
            features = rows.shape[1]
            squares = squares * (1 + (features + 2) * 2.0**-23) + features * 2.0**-124
        sizes = row_squares(coefficients)
        usual = (squares < _LONGEST_ROW**2) & (sizes < _LARGEST_COEFFICIENT**2) & (_NORMS[0] < norm < _NORMS[1])
        square = squares * sizes
        if vectors.shift is None:
            longest = np.sqrt(square * (1 + slack))
        else:
            shift = float(np.sqrt(np.sum(vectors.shift**2)))
            along = sum(coefficients[:, k] * row_dots(rows, shift_k) for k, shift_k in enumerate(vectors.shift))
            longest = np.sqrt(square + 2 * along + shift**2 + slack * (np.sqrt(square) + shift) ** 2)
            usual &= shift < _LARGEST_COEFFICIENT
    return usual & (longest >= 0), longest


def _scaled_back(vectors: Floats, norm: float) -> Floats:
    """Vectors of any size divided by `norm`, those outside the unit ball scaled back: a length is right to (d + 8) 2^-53."""
    limit = 1 - (vectors.shape[1] + 8) * 2.0**-53
    peak = np.max(np.abs(vectors), axis=1)
    unit: Floats = vectors / np.maximum(peak, norm)[:, np.newaxis]  # entries in [-1, 1], so squares cannot overflow
    length = np.sqrt(row_squares(unit))
    long = (length > limit) | (peak > norm)
    unit *= np.where(long, limit / np.maximum(length, limit), 1.0)[:, np.newaxis]
    return unit


def encode(unit: Floats, levels: int) -> Floats:
    """Encode vectors in the unit ball as a = (x + 1) g / 2.

    Parameters
    ----------
    unit : numpy.ndarray of float64, shape (users, dim)
        Entries x in [-1, 1], from `clip_to_ball`.
    levels : int
        g, from 1 to 2^31.

    Returns
    -------
    numpy.ndarray of float64, shape (users, dim)
        Real encodings, in levels.

    Requires
    --------
    The true l2 norm of every row is at most 1, as `clip_to_ball` ensures, and dim is at most 10^9
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Ensures
    -------
    Encodings are in [0, g]. Those of any two vectors are within g (1 + 1e-9) of each other in l2 norm and within g in every
    coordinate: `shift` and `reach` of `certify`
    (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    scaled: Floats = unit + 1
    scaled *= levels / 2
    return scaled


# A public random rotation: signs, the Walsh-Hadamard transform, and for blocks an order of the coordinates.
#
# It spreads every vector over all coordinates, so that these can be encoded on a range of a few norms / sqrt(d'). Privacy needs
# no more of it than that it is orthogonal and does not depend on the record of whoever is at stake (docs/accounting.md, section
# 10); how well a sum is told needs that nobody chose it after seeing the vectors.
#
# The transform's butterflies are single additions in one order, so that this module, `compiled.py` and the TypeScript client make
# the same bits, whoever else is in the batch.


# Entries that are turned at a time: a few arrays of this size fit the processor's cache.
_PIECE = 1 << 16


class Rotation:
    """The rotation of one round, from public bytes that no record had a part in.

    `plan`: A plan with a range. `seed`: Any bytes, the same for all users of the round and for the analyzer: fresh ones in every
    round, such as its digest.

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
