"""Encode, round and add up in one pass over a chunk of users, where numba is installed (extra `fast`).

The same integers as `Randomizer.added`, bit for bit, from the same random bytes in the same order; only faster. Numba takes some
tenths of a second to load, so it is loaded once that much work has been done without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .encoding import UnitVectors
from .randomness import RandomSource
from .sampling import round_ties

# Entries that are rounded in the time that it takes to load numba.
PATIENCE = 1 << 25
# An encoding times 256 and a byte fit 32 bits.
_MOST_LEVELS = 1 << 22
_NO_SHIFT = np.zeros((0, 0))


class _Work:
    """What this process has been given to round that the pass could do."""

    entries = 0


def note_work(unit: UnitVectors, levels: int) -> None:
    """Count the entries of these vectors, so that `is_for` knows when the pass is worth loading."""
    if levels < _MOST_LEVELS:
        _Work.entries += unit.rows.shape[0] * unit.rows.shape[1] * unit.coefficients.shape[1]


def is_for(unit: UnitVectors, levels: int) -> bool:
    """Whether the pass is to be had, and worth having after the work that was noted."""
    return levels < _MOST_LEVELS and _Work.entries > PATIENCE and kernel(*_kind(unit)) is not None


def added(unit: UnitVectors, levels: int, random: RandomSource) -> NDArray[np.int64]:
    """The column sums of the vectors' rounded encodings."""
    compiled = kernel(*_kind(unit))
    if compiled is None:
        raise ImportError("numba is not installed: pip install 'croupier[fast]'")
    width = unit.rows.shape[1] * unit.coefficients.shape[1]
    shift = _NO_SHIFT if unit.shift is None else unit.shift
    drawn = random.draw_bytes(len(unit.rows) * width)
    ones = np.zeros(width, dtype=np.int64)
    columns, rest = compiled(unit.rows, unit.coefficients, unit.factors, shift, levels / 2 * 256, drawn, ones)
    np.add.at(ones, columns[round_ties(random, rest)], 1)
    return ones


def _kind(unit: UnitVectors) -> tuple[str, bool]:
    """What the pass is compiled for: the type of the rows, and whether they may be written to, though it does not."""
    return unit.rows.dtype.name, unit.rows.flags.writeable


@cache
def kernel(kind: str = "float64", writeable: bool = True) -> Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
    """The compiled pass, tried with rows of this kind. None where numba is missing, switched off or fails (a full disk, a broken
    cache): the plain pass always works. Nothing is drawn here."""
    try:
        add_rounded = importlib.import_module(f"{__package__}.compiled").add_rounded
        number, numbers = np.ones(1), np.ones((1, 1))
        rows = numbers.astype(kind)
        rows.setflags(write=writeable)
        add_rounded(rows, numbers, number, numbers, 1.0, np.zeros(1, np.uint8), np.zeros(1, np.int64))
    except Exception:
        return None
    return add_rounded if hasattr(add_rounded, "signatures") else None
