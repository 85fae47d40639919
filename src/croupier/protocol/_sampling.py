"""Exact samplers: each states its law, and draws from that law with no error at all.

Probabilities are floats, hence dyadic rationals, and are met exactly: uniform bits are compared with the probability's binary
digits, lazily, until the comparison is decided.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError, real, whole
from .randomness import RandomSource

# Bin(n, 1/2) for many trials n, exactly, at a cost that does not grow with n.
#
# An even n is an odd one and a fair bit. For odd n = 2M - 1 the outcomes M + i and M - 1 - i are equally likely, and i < M has
# probability proportional to
#
# g(i) = C(n, M + i) / C(n, M) = prod_{j <= i} (M - j) / (M + j) = exp(-2 sum_{j <= i} atanh(j / M)) <= exp(-i (i + 1) / M).
#
# Envelope. i is proposed from cells of w = floor(sqrt(M) / 8) + 1 neighbours. In the cell c w <= i < (c + 1) w, g(i) <= exp(-c^2
# / 64). Cell c has a_c of 2^14 chances, whole numbers of at least A exp(-c^2 / 64) for c < 24. The last chance belongs to the
# tail, whose cells 24, 25, ... share it out as 1/2, 1/4, ...: A exp(-9) = 0.27 <= 1/2, and the bound falls by exp(-(2c + 1) / 64)
# <= 0.47 from cell to cell. The offset in a cell is uniform: the upper half of a 32-bit number times w, the 2^32 mod w products
# with the smallest lower halves left out, which leaves each offset floor(2^32 / w) numbers. A proposal is kept with probability A
# g(i) / a_c <= 1, so i is proposed and kept with probability A g(i) / (2^14 w), proportional to g(i); about nine in ten are kept.
#
# Decision. It is kept if U < A g(i) / a_c, U uniform, its bits drawn as needed. With T = i (i + 1) and S_q the sum of j^(2q - 1)
# over j <= i, -ln g(i) is the sum over q of 2 S_q / ((2q - 1) M^(2q - 1)). T^q telescopes into 2 (C(q, 1) S_q + C(q, 3) S_(q-1) +
# ...), which gives S_q in whole numbers from those before it, and S_q <= T^q / 2q. So the terms after the Q-th are positive and
# add up to at most T^(Q+1) / ((Q + 1)(2Q + 1) M^(2Q - 1) (M^2 - T)). For Q = 2 and s = T / M the exponent s + s^2 / 6M is too
# small by at most s^3 / (15 M^2 (1 - s / M)), so g is too large by at most max(s^3 exp(-s)) = 1.35 times 1 / (15 M^2 (1 - s /
# M)): below 3.6e-7 for M >= 512 outside the tail (s < 17). Floating point decides where U a_c / A and g differ by more than 2e-6.
# The others, one in ten thousand, and the tail are decided in whole numbers: -ln g is bracketed by the series and its bound at 32
# bits more than U has, exp by `decimal`, whose exp is correctly rounded, and its neighbours; if U's interval still meets the
# bracket, U gets 64 more bits.

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
        Number of draws.

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
    """g(distance) except for 3.6e-7 and the error of exp, outside the tail: the first two terms of `_minus_log`, T = i (i + 1)."""
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


_CHUNK_WORDS = 1 << 15
# Random bits of one binomial, and of all, up to which every trial by its own is quicker than digit by digit.
_FEW_BITS, _FEW_BITS_IN_ALL = 1 << 10, 1 << 22
# Binomials that are drawn at a time, so that memory does not grow with their number.
_TOGETHER = 1 << 16
_WORD_TYPES = ((8, np.uint8), (16, np.uint16), (32, np.uint32), (64, np.uint64))


def fair_binomial(source: RandomSource, trials: int | Integers, size: int) -> Integers:
    """Draw from Bin(trials_i, 1/2), exactly: few random bits are counted, many are left to `rejection`.

    Parameters
    ----------
    source : RandomSource
        Where the coins come from.
    trials : int or numpy.ndarray of int64, shape (size,)
        The number of fair coins, from 0 to 2^52: one for all draws, or one for each.
    size : int
        Number of draws.

    Returns
    -------
    numpy.ndarray of int64, shape (size,)
        The draws.

    Raises
    ------
    ArgumentError
        If a number of trials is not whole or out of range, or where their shape is neither () nor (size,).

    Requires
    --------
    The bytes of `source` are independent and uniform (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    The draws are independent and have the law Bin(trials_i, 1/2) without any error
    (docs/accounting.md#6-what-the-code-does-about-floating-point, "Drawing Bin(n, 1/2) exactly").

    Examples
    --------
    >>> from croupier import SecureRandom
    >>> draws = fair_binomial(SecureRandom(), 10**12, 3)
    >>> bool((abs(draws - 5 * 10**11) < 10 * 5 * 10**5).all())  # within ten standard deviations
    True
    """
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    trials = np.asarray(trials)
    if trials.dtype.kind not in "iu" or not 0 <= trials.min() <= trials.max() <= MAX_TRIALS:
        allowed = f"whole numbers from 0 to {MAX_TRIALS:.2g}"
        raise ArgumentError("trials", (trials.min(), trials.max()), allowed, "Count the random bits to add up.")
    if trials.shape not in ((), (size,)):
        raise ArgumentError("trials.shape", trials.shape, f"() or ({size},)", "Give one number of trials, or one for each draw.")
    trials = trials.astype(np.int64)
    many = trials >= max(MIN_TRIALS, _FEW_BITS_IN_ALL // 2 // size)
    if many.all():
        return draw(source, trials, size)
    if not many.any():
        return _popcount(source, trials, size)
    ones = np.empty(size, dtype=np.int64)
    for part, law in ((many, draw), (~many, _popcount)):
        ones[part] = law(source, trials[part], int(np.count_nonzero(part)))
    return ones


def binomial(source: RandomSource, trials: int, probability: float, size: int) -> Integers:
    """Draw from Bin(trials, probability), exactly, for any float probability in (0, 1).

    A trial succeeds if a uniform number is below p, compared digit by digit: where p has a 1, trials that show 0 have
    succeeded; where it has a 0, those that show 1 have failed; the others go on. So each digit takes one fair binomial of the
    trials still open, half as many every time; or, where there are few of both, a random bit for every trial.

    Parameters
    ----------
    source : RandomSource
        Where the coins come from.
    trials : int
        The number of trials, from 0 to 2^52.
    probability : float
        Of success, above 0 and below 1; taken as the dyadic number that the float is.
    size : int
        Number of draws.

    Returns
    -------
    numpy.ndarray of int64, shape (size,)
        The draws.

    Raises
    ------
    ArgumentError
        If `trials` or `probability` is out of range.

    Requires
    --------
    The bytes of `source` are independent and uniform (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    The draws are independent and have the law Bin(trials, probability) without any error
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Examples
    --------
    >>> from croupier import SecureRandom
    >>> draws = binomial(SecureRandom(), 100, 0.25, 5)
    >>> draws.shape, bool(((0 <= draws) & (draws <= 100)).all())
    ((5,), True)
    """
    trials = whole("trials", trials, at_least=0, remedy="Count the random bits to add up.")
    real("probability", probability, above=0, below=1, remedy="Use a probability between 0 and 1.")
    if size > _TOGETHER:
        sizes = [min(_TOGETHER, size - first) for first in range(0, size, _TOGETHER)]
        return np.concatenate([binomial(source, trials, probability, some) for some in sizes])
    numerator, denominator = float(probability).as_integer_ratio()
    digits = f"{numerator:b}".zfill(denominator.bit_length() - 1)
    if size and trials >= 64 and trials * len(digits) <= max(_FEW_BITS, _FEW_BITS_IN_ALL // size):
        return _count_below(source, trials, digits, size)
    successes = np.zeros(size, dtype=np.int64)
    undecided: int | Integers = trials
    for digit in digits:
        zeros = fair_binomial(source, undecided, size)
        if digit == "1":
            successes += zeros
            undecided = undecided - zeros
        else:
            undecided = zeros
        if not undecided.any():
            break
    return successes


def round_at_random(source: RandomSource, numbers: NDArray[np.float64], most: int) -> NDArray[Any]:
    """Round numbers at random to a whole number next to them, with their own value as the mean.

    Lazy bytes: a fraction's leading byte is above a random byte if it carries when 255 less that byte is added; only where the two
    are equal, once in 256, does the rest matter, and as many more bytes as it takes are compared with the rest's own.

    Parameters
    ----------
    source : RandomSource
        Where the coins come from.
    numbers : numpy.ndarray of float64
        What to round: a_i between 0 and `most`; of any shape.
    most : int
        An upper bound of the numbers, below 2^52.

    Returns
    -------
    numpy.ndarray of integers
        The rounded numbers, in the same shape.

    Requires
    --------
    0 <= a_i <= most for all i; nothing here checks it. The bytes of `source` are independent and uniform
    (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    The results are independent and have the law floor(a_i) + Bernoulli(a_i - floor(a_i)) without any error, a_i the dyadic number
    that the float is (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    result, tied, rest = carry(numbers.ravel(), most, source.draw_bytes(numbers.size))
    result[tied[round_ties(source, rest)]] += 1
    return result.reshape(numbers.shape)


def carry(numbers: NDArray[np.float64], most: int, drawn: NDArray[np.uint8]) -> tuple[NDArray[Any], Integers, NDArray[np.float64]]:
    """Round numbers by one random byte each, and find those for which the byte does not decide.

    Parameters
    ----------
    numbers : numpy.ndarray of float64, shape (size,)
        What to round, between 0 and `most`.
    most : int
        An upper bound of the numbers.
    drawn : numpy.ndarray of uint8, shape (size,)
        A random byte for each.

    Returns
    -------
    rounded : numpy.ndarray of integers, shape (size,)
        The numbers, rounded up where their fraction's leading byte is above the byte drawn, else down.
    tied : numpy.ndarray of int64
        Which of them are still open: their leading byte equals the byte drawn, and something is left of them.
    rest : numpy.ndarray of float64
        What is left of these, in (0, 1).

    Requires
    --------
    0 <= a_i <= most for all i, and `drawn` holds independent, uniform bytes that were used for nothing else
    (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    With 1 added to `rounded` at `tied` with the probabilities `rest`, independently, the result has the law of `round_at_random`
    (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    scaled = numbers * 256.0  # exact: a power of two
    # 256 most + 255 fits the type, and a smaller one is faster
    total: NDArray[Any] = scaled.astype(np.uint16 if most < 256 else np.int32 if most < 1 << 22 else np.int64)
    total += ~drawn
    tied = np.flatnonzero((total & 255) == 255)
    rest = np.modf(scaled[tied])[0]
    left = rest > 0  # with nothing left of a, no number is below it
    return total >> 8, tied[left], rest[left]


def round_ties(source: RandomSource, rest: NDArray[np.float64]) -> NDArray[np.int64]:
    """Find which of some numbers in (0, 1) are above a uniform one, in lazy bytes.

    Parameters
    ----------
    source : RandomSource
        Where the coins come from.
    rest : numpy.ndarray of float64, shape (size,)
        The numbers.

    Returns
    -------
    numpy.ndarray of int64
        The places of those that are above, in no particular order.

    Requires
    --------
    0 < rest_i < 1 for all i. The bytes of `source` are independent and uniform
    (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    Place i is among the results with probability rest_i, the dyadic number that the float is, independently of the others and
    without any error (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    above, tied = [np.zeros(0, dtype=np.int64)], np.arange(rest.size)
    while tied.size:
        rest = rest * 256.0  # exact
        leading = rest.astype(np.uint8)
        drawn = source.draw_bytes(tied.size)
        above.append(tied[drawn < leading])
        open_ = (drawn == leading) & (rest > leading)
        tied, rest = tied[open_], (rest - leading)[open_]
    return np.concatenate(above)


def permutation(source: RandomSource, size: int) -> Integers:
    """Draw a uniformly random order. Sorts independent 64-bit keys, and draws all anew should two be equal.

    Parameters
    ----------
    source : RandomSource
        Where the keys come from.
    size : int
        Number of numbers to order, at least 0.

    Returns
    -------
    numpy.ndarray of int64, shape (size,)
        The numbers 0, ..., size - 1 in their order.

    Requires
    --------
    The bytes of `source` are independent and uniform (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    Each of the size! orders has the same probability, without any error
    (docs/accounting.md#6-what-the-code-does-about-floating-point, "Permutations").

    Examples
    --------
    >>> from croupier import SecureRandom
    >>> sorted(permutation(SecureRandom(), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    while True:
        keys = source.draw_bytes(8 * size).view(np.uint64)
        order: Integers = np.argsort(keys)
        ranked = keys[order]
        if not np.any(ranked[1:] == ranked[:-1]):
            return order


def _count_below(source: RandomSource, trials: int, digits: str, size: int) -> Integers:
    """Bin(trials, 0.digits), 64 trials at once: by the last digit first, what is below it and what follows."""
    words = -(-trials // 64)
    below: NDArray[np.uint64] = np.zeros((size, words), dtype=np.uint64)
    for digit in reversed(digits):
        zeros = source.draw_bytes(8 * below.size).view(np.uint64).reshape(size, words)
        below = zeros | below if digit == "1" else zeros & below
    below[:, -1] >>= np.uint64(64 * words - trials)
    return np.asarray(np.bitwise_count(below).sum(axis=1, dtype=np.int64))


def _popcount(source: RandomSource, trials: Integers, size: int) -> Integers:
    """Bin(trials_i, 1/2): the popcount of trials_i random bits."""
    common = int(trials.min()) // 64  # whole words that every draw uses
    ones = _popcount_words(source, common, size)
    if trials.ndim or trials > 64 * common:
        ones += _popcount_masked(source, np.broadcast_to(trials - 64 * common, (size,)))
    return ones


def _popcount_words(source: RandomSource, words: int, size: int) -> Integers:
    """Bin(64 * words, 1/2), `size` times."""
    total = np.zeros(size, dtype=np.int64)
    together = max(1, _CHUNK_WORDS // max(1, words))
    for first in range(0, size, together):
        here = total[first : first + together]
        drawn = source.draw_bytes(8 * words * here.size).view(np.uint64).reshape(here.size, words)
        here += np.bitwise_count(drawn).sum(axis=1, dtype=np.int64)
    return total


def _popcount_masked(source: RandomSource, trials: Integers) -> Integers:
    """Bin(trials_i, 1/2), in words of the smallest type that holds them, the bits not asked for shifted out."""
    longest = int(trials.max())
    bits, word = next(((b, t) for b, t in _WORD_TYPES if longest <= b), _WORD_TYPES[-1])
    starts = np.arange(0, longest, bits)
    total = np.zeros(trials.size, dtype=np.int64)
    together = max(1, _CHUNK_WORDS // max(1, starts.size))
    for first in range(0, trials.size, together):
        some = trials[first : first + together]
        drawn = source.draw_bytes(some.size * starts.size * bits // 8).view(word).reshape(starts.size, some.size)
        unwanted = np.minimum(np.maximum(bits - some + starts[:, np.newaxis], 0), bits)
        half = unwanted // 2  # in two shifts, each less than the word's width
        ones = np.bitwise_count(drawn >> half.astype(word) >> (unwanted - half).astype(word))
        total[first : first + together] = ones.sum(axis=0, dtype=np.int64)
    return total
