"""Public random weights: fixed by a seed, the same bits in every process, on every platform and in every language.

A weight is (c - 128) / 8, where c counts the ones among 256 coins: mean 0, variance 1, and so near to a Gaussian that its
characteristic function is exp(-t^2 / 2 - t^4 / 3072 - ...). Whole numbers alone decide it, so no two clients ever differ, which
they would in the last bits of logarithms and cosines. clients/computing.md has the stream for other languages.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..protocol.randomness import KeyedRandom

# Coins per weight; their standard deviation is 8.
COINS = 256
_BYTES_AT_ONCE = 1 << 24


@lru_cache(maxsize=8)
def public_weights(kind: str, seed: int, rows: int, columns: int) -> NDArray[np.float64]:
    """Return weights of mean 0 and variance 1, row by row from the stream of this kind of map and seed. Not to be written to."""
    root = hashlib.blake2b(f"croupier features {kind} {seed}".encode(), digest_size=32).digest()
    source = KeyedRandom(root, private=False)
    ones = np.empty(rows * columns, dtype=np.int64)
    step = _BYTES_AT_ONCE * 8 // COINS
    for start in range(0, len(ones), step):
        part = ones[start : start + step]
        coins = source.draw_bytes(len(part) * (COINS // 8)).view(np.uint64).reshape(len(part), -1)
        part[:] = np.bitwise_count(coins).sum(axis=1)
    weights = (ones.reshape(rows, columns) - COINS // 2) / 8
    weights.setflags(write=False)
    return weights
