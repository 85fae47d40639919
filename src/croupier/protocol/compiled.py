"""The loops of `fused`, compiled by numba: short ones with few arrays each, which LLVM turns into vector instructions.

No fast mathematics and no fused multiply-add: each operation rounds as numpy's does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    """Compiled on first use, without the interpreter's lock; kept on disk where there is a place to write to."""
    try:
        return cast(_Function, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no folder for the cache can be written
        return cast(_Function, njit(nogil=True)(function))


@_compiled
def add_rounded(rows, coefficients, factors, shift, scale, drawn, ones):
    """Add the rounded encodings to `ones`; returns the columns of the ties that are open, and what is left of them.

    `scale` is 256 g / 2, and `drawn` one random byte per entry, which is overwritten. See `sampling.round_at_random`.
    """
    users, outputs, features = rows.shape[0], shift.shape[0], shift.shape[1]
    total = np.empty(drawn.size, np.int32)
    _encode(rows, coefficients, factors, shift, scale, total.reshape(users, outputs, features))
    _carry(total, drawn)
    _add_up(total.reshape(users, outputs * features), ones)
    most = _full(drawn)
    columns, rest = np.empty(most, np.int64), np.empty(most)
    ties = _ties(rows, coefficients, factors, shift, scale, drawn, columns, rest)
    return columns[:ties], rest[:ties]


@_compiled
def _encode(rows, coefficients, factors, shift, scale, total):
    """256 a, rounded down."""
    for i in range(total.shape[0]):
        for k in range(total.shape[1]):
            coefficient, factor = coefficients[i, k], factors[i]
            for j in range(total.shape[2]):
                total[i, k, j] = np.int32((coefficient * rows[i, j] + factor * shift[k, j] + 1.0) * scale)


@_compiled
def _carry(total, drawn):
    """Whether the leading byte of the fraction is above the byte drawn: the whole part goes to `total`, the byte to `drawn`."""
    for m in range(total.size):
        carried = total[m] + np.int32(255) - np.int32(drawn[m])
        drawn[m] = np.uint8(carried)
        total[m] = carried >> np.int32(8)


@_compiled
def _add_up(total, ones):
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            ones[j] += total[i, j]


@_compiled
def _full(drawn):
    """How many bytes are 255."""
    count = 0
    for m in range(drawn.size):
        count += drawn[m] == 255
    return count


@_compiled
def _ties(rows, coefficients, factors, shift, scale, drawn, columns, rest):
    """The entries whose byte is 255 and that something is left of. Eight bytes are looked at at once."""
    words = drawn[: drawn.size // 8 * 8].view(np.uint64)
    ties = 0
    for word in range(words.size):
        inverse = ~words[word]
        if (inverse - np.uint64(0x0101010101010101)) & ~inverse & np.uint64(0x8080808080808080):  # it has a byte of zeros
            ties = _note(rows, coefficients, factors, shift, scale, drawn, 8 * word, 8 * word + 8, columns, rest, ties)
    return _note(rows, coefficients, factors, shift, scale, drawn, 8 * words.size, drawn.size, columns, rest, ties)


@_compiled
def _note(rows, coefficients, factors, shift, scale, drawn, first, last, columns, rest, ties):
    outputs, features = shift.shape
    for m in range(first, last):
        if drawn[m] == 255:
            i, column = divmod(m, outputs * features)
            k, j = divmod(column, features)
            scaled = (coefficients[i, k] * rows[i, j] + factors[i] * shift[k, j] + 1.0) * scale
            left = scaled - np.int32(scaled)
            if left > 0:
                columns[ties], rest[ties] = column, left
                ties += 1
    return ties
