"""TurboSHAKE128 for many messages, compiled by numba: to the last bit what `xof` makes with the library's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])
MODULUS = np.uint64(2**64 - 2**32 + 1)
# Bytes that a permutation absorbs or gives.
_RATE = 168
_ZERO = np.uint64(0)
# Of the last 12 rounds of Keccak-f[1600].
_CONSTANTS = np.array(
    [
        0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
        0x000000000000800A, 0x800000008000000A, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
    ],
    dtype=np.uint64,
)  # fmt: skip


def compiled_loop(function: _Function) -> _Function:
    """Compiled on first use, without the interpreter's lock; kept on disk where there is a place to write to."""
    try:
        return cast(_Function, njit(nogil=True, cache=True)(function))
    except RuntimeError:  # no folder for the cache can be written
        return cast(_Function, njit(nogil=True)(function))


@compiled_loop
def _turned(word, by):
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@compiled_loop
def permuted(state):  # noqa: PLR0915
    """Apply Keccak-p[1600, 12].

    Parameters
    ----------
    state : numpy.ndarray of uint64, shape (25,)
        What is changed.
    """
    a0, a1, a2, a3, a4 = state[0], state[1], state[2], state[3], state[4]
    a5, a6, a7, a8, a9 = state[5], state[6], state[7], state[8], state[9]
    a10, a11, a12, a13, a14 = state[10], state[11], state[12], state[13], state[14]
    a15, a16, a17, a18, a19 = state[15], state[16], state[17], state[18], state[19]
    a20, a21, a22, a23, a24 = state[20], state[21], state[22], state[23], state[24]
    for constant in _CONSTANTS:
        c0 = a0 ^ a5 ^ a10 ^ a15 ^ a20
        c1 = a1 ^ a6 ^ a11 ^ a16 ^ a21
        c2 = a2 ^ a7 ^ a12 ^ a17 ^ a22
        c3 = a3 ^ a8 ^ a13 ^ a18 ^ a23
        c4 = a4 ^ a9 ^ a14 ^ a19 ^ a24
        d0 = c4 ^ _turned(c1, 1)
        d1 = c0 ^ _turned(c2, 1)
        d2 = c1 ^ _turned(c3, 1)
        d3 = c2 ^ _turned(c4, 1)
        d4 = c3 ^ _turned(c0, 1)
        b0 = a0 ^ d0
        b1 = _turned(a6 ^ d1, 44)
        b2 = _turned(a12 ^ d2, 43)
        b3 = _turned(a18 ^ d3, 21)
        b4 = _turned(a24 ^ d4, 14)
        b5 = _turned(a3 ^ d3, 28)
        b6 = _turned(a9 ^ d4, 20)
        b7 = _turned(a10 ^ d0, 3)
        b8 = _turned(a16 ^ d1, 45)
        b9 = _turned(a22 ^ d2, 61)
        b10 = _turned(a1 ^ d1, 1)
        b11 = _turned(a7 ^ d2, 6)
        b12 = _turned(a13 ^ d3, 25)
        b13 = _turned(a19 ^ d4, 8)
        b14 = _turned(a20 ^ d0, 18)
        b15 = _turned(a4 ^ d4, 27)
        b16 = _turned(a5 ^ d0, 36)
        b17 = _turned(a11 ^ d1, 10)
        b18 = _turned(a17 ^ d2, 15)
        b19 = _turned(a23 ^ d3, 56)
        b20 = _turned(a2 ^ d2, 62)
        b21 = _turned(a8 ^ d3, 55)
        b22 = _turned(a14 ^ d4, 39)
        b23 = _turned(a15 ^ d0, 41)
        b24 = _turned(a21 ^ d1, 2)
        a0 = b0 ^ (~b1 & b2) ^ constant
        a1 = b1 ^ (~b2 & b3)
        a2 = b2 ^ (~b3 & b4)
        a3 = b3 ^ (~b4 & b0)
        a4 = b4 ^ (~b0 & b1)
        a5 = b5 ^ (~b6 & b7)
        a6 = b6 ^ (~b7 & b8)
        a7 = b7 ^ (~b8 & b9)
        a8 = b8 ^ (~b9 & b5)
        a9 = b9 ^ (~b5 & b6)
        a10 = b10 ^ (~b11 & b12)
        a11 = b11 ^ (~b12 & b13)
        a12 = b12 ^ (~b13 & b14)
        a13 = b13 ^ (~b14 & b10)
        a14 = b14 ^ (~b10 & b11)
        a15 = b15 ^ (~b16 & b17)
        a16 = b16 ^ (~b17 & b18)
        a17 = b17 ^ (~b18 & b19)
        a18 = b18 ^ (~b19 & b15)
        a19 = b19 ^ (~b15 & b16)
        a20 = b20 ^ (~b21 & b22)
        a21 = b21 ^ (~b22 & b23)
        a22 = b22 ^ (~b23 & b24)
        a23 = b23 ^ (~b24 & b20)
        a24 = b24 ^ (~b20 & b21)
    state[0], state[1], state[2], state[3], state[4] = a0, a1, a2, a3, a4
    state[5], state[6], state[7], state[8], state[9] = a5, a6, a7, a8, a9
    state[10], state[11], state[12], state[13], state[14] = a10, a11, a12, a13, a14
    state[15], state[16], state[17], state[18], state[19] = a15, a16, a17, a18, a19
    state[20], state[21], state[22], state[23], state[24] = a20, a21, a22, a23, a24


@compiled_loop
def _squeezed(padded, found, below):
    """Absorb rows of words, padded to whole blocks, and fill the rows of `found`, with numbers below the prime where asked for."""
    rate = _RATE // 8
    state = np.empty(25, dtype=np.uint64)
    for row in range(len(padded)):
        state[:] = _ZERO
        for start in range(0, padded.shape[1], rate):
            for word in range(rate):
                state[word] ^= padded[row, start + word]
            permuted(state)
        filled, at = 0, 0
        while filled < found.shape[1]:
            if at == rate:
                permuted(state)
                at = 0
            if not below or state[at] < MODULUS:
                found[row, filled] = state[at]
                filled += 1
            at += 1


def squeezed(messages, length, below):
    """Give the words that TurboSHAKE128 squeezes out of messages, with the domain byte 1.

    Parameters
    ----------
    messages : numpy.ndarray of uint8, shape (rows, bytes)
        What is absorbed.
    length : int
        Words a row.
    below : bool
        Whether to leave out words that are no element of the field of 64 bits.

    Returns
    -------
    numpy.ndarray of uint64, shape (rows, length)
        The words.
    """
    rows, size = messages.shape
    padded = np.zeros((rows, (size // _RATE + 1) * _RATE), np.uint8)
    padded[:, :size] = messages
    padded[:, size] = 1
    padded[:, -1] ^= 0x80
    found = np.empty((rows, length), dtype=np.uint64)
    _squeezed(padded.view("<u8").astype(np.uint64, copy=False), found, below)
    return found
