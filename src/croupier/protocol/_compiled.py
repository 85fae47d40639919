"""The loops of `fused`, compiled by numba: short ones with few arrays each, which LLVM turns into vector instructions, over pieces
that stay in the processor's fastest cache from one loop to the next.

No fast mathematics and no fused multiply-add: each operation rounds as numpy's does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

# Entries of a piece: four bytes each, and what they are made from.
_PIECE = 4096
# Rows with fewer entries are added up several side by side, since a short loop is slow.
_SHORT, _SIDE_BY_SIDE = 256, 16
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    """Compiled on first use, without the interpreter's lock; kept on disk where there is a place to write to."""
    try:
        return cast(_Function, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no folder for the cache can be written
        return cast(_Function, njit(nogil=True)(function))


@_compiled
def add_rounded(rows, coefficients, factors, shift, scale, drawn, ones):
    """Add the rounded encodings to `ones`; see `sampling.round_at_random`."""
    users, width = rows.shape[0], ones.size
    rows_of_sums = _SIDE_BY_SIDE if width < _SHORT else 1
    some = rows_of_sums * max(_PIECE // (rows_of_sums * width), 1)
    total, sums = np.empty(some * width, np.int32), np.zeros(rows_of_sums * width, np.int64)
    for first in range(0, users, some):
        last = min(first + some, users)
        if shift.size:
            _encode_shifted(rows[first:last], coefficients[first:last], factors[first:last], shift, scale, total)
        else:
            _encode(rows[first:last], coefficients[first:last], scale, total)
        _carry(total, drawn[first * width : last * width], sums)
    for m in range(sums.size):
        ones[m % width] += sums[m]
    places = np.empty(_full(drawn) + 1, np.int64)
    columns = places[: _find_full(drawn, places)]
    rest = np.empty(columns.size + 1)
    ties = _left(rows, coefficients, factors, shift, scale, columns, rest)
    return columns[:ties], rest[:ties]


@_compiled
def _encode(rows, coefficients, scale, total):
    """256 a, rounded down."""
    users, features, outputs = rows.shape[0], rows.shape[1], coefficients.shape[1]
    for i in range(users):
        for k in range(outputs):
            coefficient = coefficients[i, k]
            for j in range(features):
                total[(i * outputs + k) * features + j] = np.int32((coefficient * rows[i, j] + 1.0) * scale)


@_compiled
def _encode_shifted(rows, coefficients, factors, shift, scale, total):
    """The same with a shift."""
    users, features, outputs = rows.shape[0], rows.shape[1], coefficients.shape[1]
    for i in range(users):
        for k in range(outputs):
            coefficient, factor = coefficients[i, k], factors[i]
            for j in range(features):
                a = (coefficient * rows[i, j] + factor * shift[k, j] + 1.0) * scale
                total[(i * outputs + k) * features + j] = np.int32(a)


@_compiled
def _carry(total, drawn, sums):
    """Whether the leading byte of the fraction is above the byte drawn: the whole part is added up, the byte goes to `drawn`."""
    for first in range(0, drawn.size, sums.size):
        last = min(first + sums.size, drawn.size)
        whole, byte = total[first:last], drawn[first:last]
        for m in range(last - first):
            carried = whole[m] + np.int32(255) - np.int32(byte[m])
            byte[m] = np.uint8(carried)
            sums[m] += carried >> np.int32(8)


@_compiled
def _full(drawn):
    """How many bytes are 255."""
    count = 0
    for m in range(drawn.size):
        count += drawn[m] == 255
    return count


@_compiled
def _find_full(drawn, places):
    """Where they are; returns how many. Eight are looked at at once, and `places` has room for one more than there are."""
    words = drawn[: drawn.size // 8 * 8].view(np.uint64)
    count = 0
    for word in range(words.size):
        inverse = ~words[word]
        if (inverse - np.uint64(0x0101010101010101)) & ~inverse & np.uint64(0x8080808080808080):  # it has a byte of zeros
            for m in range(8 * word, 8 * word + 8):
                places[count] = m
                count += drawn[m] == 255
    for m in range(8 * words.size, drawn.size):
        places[count] = m
        count += drawn[m] == 255
    return count


@_compiled
def _left(rows, coefficients, factors, shift, scale, places, rest):
    """Of the entries at these places, those that something is left of: their columns to `places`, what is left to `rest`."""
    features, outputs = rows.shape[1], coefficients.shape[1]
    ties = 0
    for place in places:
        i, column = divmod(place, outputs * features)
        k, j = divmod(column, features)
        a = coefficients[i, k] * rows[i, j]
        if shift.size:
            a += factors[i] * shift[k, j]
        a = (a + 1.0) * scale
        places[ties], rest[ties] = column, a - np.int32(a)
        ties += rest[ties] > 0
    return ties


@_compiled
def add_entries(values, factors, places, half, drawn, ones, there):
    """Add rounded encodings to `ones` where they belong, and count them in `there`; returns where ties are open, and their rests.

    One row of values and places per entry, one column per user; `half` is g / 2. As `sampling.carry`, operation by operation.
    """
    entries, users = values.shape
    where, rests, ties = np.empty(values.size, np.int64), np.empty(values.size), 0
    for row in range(entries):
        for user in range(users):
            scaled = (values[row, user] * factors[user] + 1.0) * half * 256.0
            total = np.int64(scaled) + 255 - np.int64(drawn[row * users + user])
            place = places[row, user]
            ones[place] += total >> 8
            there[place] += 1
            if total & 255 == 255:
                rest = scaled - np.floor(scaled)
                if rest > 0:
                    where[ties], rests[ties] = place, rest
                    ties += 1
    return where[:ties], rests[:ties]
