"""Bin(n, 1/2) for many trials n, exactly, at a cost that does not grow with n. Proof: accounting, 6.

An even n is an odd one and a fair bit. For odd n = 2M - 1 the outcomes M + i and M - 1 - i are equally likely, and i < M has
probability proportional to

    g(i) = C(n, M + i) / C(n, M) = prod_{j <= i} (M - j) / (M + j) = exp(-2 sum_{j <= i} atanh(j / M)) <= exp(-i (i + 1) / M).

So i is proposed from cells of w > sqrt(M) / 8 neighbours: cell c has a_c of 2^14 chances, all offsets within it are alike, and
since g <= exp(-c^2 / 64) there, a_c >= A exp(-c^2 / 64) makes A g(i) / a_c a probability: that of keeping the proposal. The last
chance belongs to the tail, whose cells 24, 25, ... share it out as 1/2, 1/4, ... A proposal is kept if a uniform number is below
that probability. Floating point decides this where its error, which is bounded, cannot matter; integers decide the rest.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from .randomness import RandomSource

Integers = NDArray[np.int64]

# Trials from which on the error bound below holds (M >= 512), and up to which every whole number here is a float.
MIN_TRIALS, MAX_TRIALS = 1 << 10, 1 << 52
_CHANCE_BITS, _TAIL, _SCALE = 14, 24, 2156  # _SCALE is the proof's A
_SHARES = [*(math.ceil(_SCALE * math.exp(-c * c / 64) + 1e-9) for c in range(_TAIL)), 1]
_SHARES[0] += (1 << _CHANCE_BITS) - sum(_SHARES)
_CELLS = np.repeat(np.arange(_TAIL + 1), _SHARES)
# What a 32-bit number is multiplied by to be compared with g. In the tail floating point knows nothing.
_PRICES = np.array([*_SHARES[:-1], math.nan]) / _SCALE / 2**32
# |float - exact| of what is compared: 2^-31 for the bits of the uniform number not drawn yet, 3.6e-7 for the series cut off,
# rounding below 1e-13, and the rest is left to the error of the machine's exp.
_SLACK = 2e-6


def draw(source: RandomSource, trials: Integers, size: int) -> Integers:
    """Draw from Bin(trials_i, 1/2), exactly, by rejection from an envelope of cells.

    Parameters
    ----------
    source : RandomSource
        Where the coins come from.
    trials : numpy.ndarray of int64, shape () or (size,)
        The number of fair coins: one for all draws, or one for each.
    size : int
        How many draws.

    Returns
    -------
    numpy.ndarray of int64, shape (size,)
        The draws.

    Requires
    --------
    MIN_TRIALS <= trials_i <= MAX_TRIALS for all i; nothing here checks it. The bytes of `source` are independent and uniform
    (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    The draws are independent and have the law Bin(trials_i, 1/2) without any error, and are the same on any machine
    (docs/accounting.md#6-what-the-code-does-about-floating-point, "Drawing Bin(n, 1/2) exactly").
    """
    result = np.empty(size, dtype=np.int64)
    open_ = np.arange(size)
    while open_.size:
        drawn, kept = _propose(source, trials, open_.size)
        result[open_] = drawn
        missed = np.flatnonzero(~kept)
        open_ = open_[missed]
        trials = trials[missed] if trials.ndim else trials
    return result


def _propose(source: RandomSource, trials: Integers, size: int) -> tuple[Integers, NDArray[np.bool_]]:
    """A proposal for each, and whether it is kept."""
    middle = (trials + 1) >> 1
    width = (np.sqrt(middle) / 8).astype(np.int64) + 1  # more than sqrt(middle) / 8: the root is correctly rounded
    place, uniform, choice = source.draw_bytes(12 * size).view(np.uint32).reshape(3, size)
    cell = _CELLS[choice >> (32 - _CHANCE_BITS)]
    product = place * width
    left = product.astype(np.uint32)
    distance = cell * width + (product >> 32)
    excess = uniform * _PRICES[cell] - _nearly(distance, middle)
    kept = excess < 0
    unsure = np.flatnonzero(~(np.abs(excess) > _SLACK) | (left < width))
    if unsure.size:
        known = (np.broadcast_to(a, size)[unsure].tolist() for a in (cell, left, uniform, distance, middle, width))
        distance[unsure], kept[unsure] = zip(*(_settle(source, *one) for one in zip(*known, strict=True)), strict=True)
    side = (choice & 1).astype(np.int64)
    return middle + (distance ^ -side) + (choice >> 1 & ~trials & 1), kept


def _nearly(distance: Integers, middle: Integers) -> NDArray[np.float64]:
    """g(distance) but for 3.6e-7 and the error of exp, outside the tail: the first two terms of `_minus_log`, T = i (i + 1)."""
    i = distance.astype(np.float64)
    first = i * (i + 1) / middle
    nearly: NDArray[np.float64] = np.exp(-first * (1 + first / (6 * middle)))
    return nearly


def _settle(source: RandomSource, cell: int, left: int, uniform: int, distance: int, middle: int, width: int) -> tuple[int, bool]:
    """The proposal and whether it is kept, in whole numbers."""
    if left < 2**32 % width:  # without these products all offsets are alike (Lemire 2019)
        return distance, False
    beyond = _geometric(source) if cell == _TAIL else -1
    distance += max(0, beyond) * width
    if distance >= middle:
        return 0, False
    return distance, _is_below(source, uniform, distance, middle, _SCALE << beyond + 1, _SHARES[cell])


def _geometric(source: RandomSource) -> int:
    """Law: k with probability 2^-(k + 1), k = 0, 1, ...: the zeros before the first one."""
    zeros = 0
    while not (word := int.from_bytes(source.draw_bytes(8).tobytes(), "little")):
        zeros += 64
    return zeros + (word & -word).bit_length() - 1


def _is_below(source: RandomSource, uniform: int, distance: int, middle: int, numerator: int, denominator: int) -> bool:
    """Whether U < g(distance) numerator / denominator, for a U in [0, 1) whose first 32 bits are known; more are drawn at need."""
    bits = 32
    while True:
        low, high = _bracket(distance, middle, numerator << bits, bits + 32)
        if (uniform + 1) * denominator <= low:
            return True
        if uniform * denominator >= high:
            return False
        uniform = uniform << 64 | int.from_bytes(source.draw_bytes(8).tobytes(), "little")
        bits += 64


def _bracket(distance: int, middle: int, factor: int, bits: int) -> tuple[Decimal, Decimal]:
    """Numbers that g(distance) factor lies between, about 2^-bits of it apart."""
    short, long = _minus_log(distance, middle, bits)
    digits = (bits + 64) // 3
    down, up = (Context(prec=digits, rounding=r, Emin=MIN_EMIN, Emax=MAX_EMAX) for r in (ROUND_FLOOR, ROUND_CEILING))
    # Decimal's exp is correctly rounded, so the next number on either side is beyond the true value
    low = down.next_minus(down.exp(down.divide(-long, 1 << bits)))
    high = up.next_plus(up.exp(up.divide(-short, 1 << bits)))
    return down.multiply(low, Decimal(factor)), up.multiply(high, Decimal(factor))


def _minus_log(distance: int, middle: int, bits: int) -> tuple[int, int]:
    """Whole numbers that -2^bits ln g(i) lies between: sum_q 2 S_q / ((2q - 1) M^(2q - 1)), S_q = sum_{j <= i} j^(2q - 1)."""
    t = distance * (distance + 1)
    sums: list[int] = []
    total = 0
    while True:
        q = len(sums) + 1
        # t^q telescopes into the sum over j of j^q ((j + 1)^q - (j - 1)^q), which gives S_q <= t^q / 2q from those before it
        sums.append((t**q - 2 * sum(math.comb(q, k) * sums[q - 1 - k // 2] for k in range(3, q + 1, 2))) // (2 * q))
        total += (sums[-1] << bits + 1) // ((2 * q - 1) * middle ** (2 * q - 1))
        cut_off = (t ** (q + 1) << bits) // ((q + 1) * (2 * q + 1) * middle ** (2 * q - 1) * (middle**2 - t)) + 1
        if cut_off == 1:
            return total, total + q + 1
