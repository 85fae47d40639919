"""Exact samplers: each states its law, and draws from that law with no error at all.

Probabilities are floats, hence dyadic rationals, and are met exactly: uniform bits are compared with the probability's binary
digits, lazily, until the comparison is decided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError, real, whole
from . import rejection
from .randomness import RandomSource

Integers = NDArray[np.int64]
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
        How many draws.

    Returns
    -------
    numpy.ndarray of int64, shape (size,)
        The draws.

    Raises
    ------
    ArgumentError
        Where a number of trials is not whole or out of range, or where their shape is neither () nor (size,).

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
    if trials.dtype.kind not in "iu" or not 0 <= trials.min() <= trials.max() <= rejection.MAX_TRIALS:
        allowed = f"whole numbers from 0 to {rejection.MAX_TRIALS:.2g}"
        raise ArgumentError("trials", (trials.min(), trials.max()), allowed, "Count the random bits to add up.")
    if trials.shape not in ((), (size,)):
        raise ArgumentError("trials.shape", trials.shape, f"() or ({size},)", "Give one number of trials, or one for each draw.")
    trials = trials.astype(np.int64)
    many = trials >= max(rejection.MIN_TRIALS, _FEW_BITS_IN_ALL // 2 // size)
    if many.all():
        return rejection.draw(source, trials, size)
    if not many.any():
        return _popcount(source, trials, size)
    ones = np.empty(size, dtype=np.int64)
    for part, law in ((many, rejection.draw), (~many, _popcount)):
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
        How many draws.

    Returns
    -------
    numpy.ndarray of int64, shape (size,)
        The draws.

    Raises
    ------
    ArgumentError
        Where `trials` or `probability` is out of range.

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


def bernoulli(source: RandomSource, probabilities: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Draw from Bernoulli(p_i), exactly, for any floats 0 <= p_i < 1.

    Parameters
    ----------
    source : RandomSource
        Where the coins come from.
    probabilities : numpy.ndarray of float64
        Of success, at least 0 and below 1; of any shape.

    Returns
    -------
    numpy.ndarray of bool
        One draw for each, in the same shape.

    Raises
    ------
    ArgumentError
        Where a probability is out of range.

    Requires
    --------
    The bytes of `source` are independent and uniform (docs/accounting.md#8-one-secret-a-run-asking-again-dealing-going-on).

    Ensures
    -------
    The draws are independent, and the i-th is True with probability p_i, the dyadic number that the float is, without any error
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Examples
    --------
    >>> from croupier import SecureRandom
    >>> bernoulli(SecureRandom(), np.zeros(3)).tolist()
    [False, False, False]
    """
    if probabilities.size and not (probabilities.min() >= 0 and probabilities.max() < 1):
        raise ArgumentError(
            "probabilities", (probabilities.min(), probabilities.max()), "at least 0 and less than 1", "Split off whole parts."
        )
    return round_at_random(source, probabilities, 1).astype(np.bool_)


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
        How many numbers to order, at least 0.

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
