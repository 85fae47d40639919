"""Encode, round and add up in one pass over a chunk of users, where numba is installed (extra `fast`).

The same integers as `Randomizer.added`, bit for bit, from the same random bytes in the same order; only faster. Numba takes some
tenths of a second to load, so it is loaded once that much work has been done without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..validation import how_to_install
from ._encoding import Rotation, UnitVectors
from ._sampling import round_ties
from .randomness import RandomSource

if TYPE_CHECKING:
    from ._sparse import SparseVectors

# Entries that are rounded in the time that it takes to load numba.
PATIENCE = 1 << 25
# An encoding times 256 and a byte fit 32 bits.
_MOST_LEVELS = 1 << 22
_NO_SHIFT = np.zeros((0, 0))
_NOWHERE = np.zeros(0, dtype=np.int64)
_NOWHERE.setflags(write=False)  # as the parts of a rotation are


class _Work:
    """What this process has been given to round that the pass could do."""

    entries = 0


def note_work(unit: UnitVectors, levels: int) -> None:
    """Count the entries of these vectors, so that `is_for` knows when the pass is worth loading."""
    if levels < _MOST_LEVELS:
        _Work.entries += unit.rows.shape[0] * unit.rows.shape[1] * unit.coefficients.shape[1]


def is_for(unit: UnitVectors, levels: int) -> bool:
    """Tell whether the pass is to be had, and worth having after the work that was noted."""
    return levels < _MOST_LEVELS and _Work.entries > PATIENCE and kernel(*_kind(unit)) is not None


def added(unit: UnitVectors, levels: int, random: RandomSource) -> NDArray[np.int64]:
    """Add up the columns of the vectors' rounded encodings in one pass.

    Parameters
    ----------
    unit : UnitVectors
        Vectors in the unit ball, from `clip_to_ball`.
    levels : int
        The levels of their encoding, below 2^22.
    random : RandomSource
        Where the coins of the rounding come from.

    Returns
    -------
    numpy.ndarray of int64, shape (dim,)
        The sum of the rounded encodings, in levels.

    Raises
    ------
    ImportError
        If numba is not installed.

    Requires
    --------
    The vectors' true l2 norms are at most 1, as `clip_to_ball` ensures, and levels < 2^22
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Ensures
    -------
    The same integers as those of `Randomizer.added` from the same random bytes, bit for bit, hence with the law that is proved for
    it (docs/accounting.md#6-what-the-code-does-about-floating-point).
    """
    compiled = kernel(*_kind(unit))
    if compiled is None:
        raise ImportError(f"numba is not installed: {how_to_install('fast')}")
    width = unit.rows.shape[1] * unit.coefficients.shape[1]
    shift = _NO_SHIFT if unit.shift is None else unit.shift
    drawn = random.draw_bytes(len(unit.rows) * width)
    ones = np.zeros(width, dtype=np.int64)
    columns, rest = compiled(unit.rows, unit.coefficients, unit.factors, shift, levels / 2 * 256, drawn, ones)
    np.add.at(ones, columns[round_ties(random, rest)], 1)
    return ones


def added_rotated(unit: UnitVectors, levels: int, rotation: Rotation, block: int, random: RandomSource) -> NDArray[np.int64]:
    """Add up the columns of rotated vectors' rounded encodings in one pass.

    Parameters
    ----------
    unit : UnitVectors
        Vectors in the unit ball, from `clip_to_ball`.
    levels : int
        The levels of their encoding, below 2^22.
    rotation : Rotation
        The round's.
    block : int
        Which block of the rotated vectors; 0 where there is one.
    random : RandomSource
        Where the coins of the rounding come from.

    Returns
    -------
    numpy.ndarray of int64, shape (plan.coordinates,)
        The sum of the rounded encodings, in levels.

    Requires
    --------
    The vectors' true l2 norms are at most 1, as `clip_to_ball` ensures, and levels < 2^22
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Ensures
    -------
    The same integers as those of `Randomizer.added` from the same random bytes, bit for bit (docs/accounting.md#10-rotation).
    """
    compiled = rotated_kernel(*_kind(unit))
    if compiled is None:
        raise ImportError(f"numba is not installed: {how_to_install('fast')}")
    plan = rotation.plan
    shift = _NO_SHIFT if unit.shift is None else unit.shift
    drawn = random.draw_bytes(len(unit.rows) * plan.coordinates)
    ones = np.zeros(plan.coordinates, dtype=np.int64)
    part = _NOWHERE if rotation.order is None else rotation.part(block)
    numbers = (rotation.scale, rotation.range, plan.block_norm, levels / 2 * 256)
    tied, rest = compiled(unit.rows, unit.coefficients, unit.factors, shift, rotation.signs, part, *numbers, drawn, ones)
    np.add.at(ones, tied[round_ties(random, rest)] % plan.coordinates, 1)
    return ones


def added_rotated_entries(
    vectors: SparseVectors, levels: int, rotation: Rotation, block: int, random: RandomSource
) -> NDArray[np.int64] | None:
    """Add up the columns of the rounded encodings of vectors by their entries, rotated, in one pass.

    Parameters
    ----------
    vectors : SparseVectors
        Some users' vectors.
    levels : int
        The levels of their encoding.
    rotation : Rotation
        The round's.
    block : int
        Which block of the rotated vectors; 0 where there is one.
    random : RandomSource
        Where the coins of the rounding come from.

    Returns
    -------
    numpy.ndarray of int64, shape (plan.coordinates,), or None
        The sum of the rounded encodings, in levels; None where the pass is not to be had, or not worth having yet.

    Requires
    --------
    Entries of a usual size (`SparseVectors.usual`), whose lengths are measured here, and levels < 2^22
    (docs/accounting.md#6-what-the-code-does-about-floating-point).

    Ensures
    -------
    The same integers as those of `Randomizer.added` from the same vectors and random bytes, bit for bit: the rotation's last stages
    are done for the block's entries alone, with the same additions (docs/accounting.md#10-rotation).
    """
    plan, entries = rotation.plan, len(vectors) * rotation.plan.dim
    compiled = _rotated_entries_kernel() if levels < _MOST_LEVELS and _Work.entries > PATIENCE else None
    _Work.entries += entries if levels < _MOST_LEVELS else 0
    if compiled is None:
        return None
    drawn = random.draw_bytes(len(vectors) * plan.coordinates).reshape(len(vectors), plan.coordinates)
    ones, places, rests = np.zeros(plan.coordinates, dtype=np.int64), [_NOWHERE], [np.zeros(0)]
    part = _NOWHERE if rotation.order is None else rotation.part(block)
    numbers = (plan.dim, rotation.signs, part, rotation.scale, rotation.range, plan.block_norm, levels / 2 * 256)
    for users, columns, values, factors in vectors.clipped(plan.norm):
        tied, rest = compiled(values, factors, columns, *numbers, drawn[users].ravel(), ones)
        user, column = np.divmod(tied, plan.coordinates)
        places.append(users[user] * plan.coordinates + column)
        rests.append(rest)
    tied = np.concatenate(places)
    order = np.argsort(tied)  # as dense vectors' ties are decided
    np.add.at(ones, tied[order][round_ties(random, np.concatenate(rests)[order])] % plan.coordinates, 1)
    return ones


@cache
def _rotated_entries_kernel() -> Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
    try:
        add_rotated_entries = importlib.import_module(f"{__package__}._compiled").add_rotated_entries
        number, place, signs = np.ones((1, 1)), np.zeros((1, 1), np.int64), np.ones(1)
        signs.setflags(write=False)
        fixed = (1.0, 1.0, 1.0, 256.0)
        numbers = (number, np.ones(1), place, 1, signs, _NOWHERE, *fixed)
        add_rotated_entries(*numbers, np.zeros(1, np.uint8), np.zeros(1, np.int64))
    except Exception:
        return None
    return add_rotated_entries if hasattr(add_rotated_entries, "signatures") else None


def products_kernel(entries: int) -> Callable[..., None] | None:
    """The pass that makes so many entries of second moments, where it is to be had and worth having: see `fill_products`."""
    _Work.entries += entries
    return _products_kernel() if _Work.entries > PATIENCE else None


@cache
def _products_kernel() -> Callable[..., None] | None:
    try:
        fill_products = importlib.import_module(f"{__package__}._compiled").fill_products
        fill_products(np.ones((1, 1)), np.zeros(1, np.int64), np.zeros((1, 1), np.int64), np.zeros((1, 1)))
    except Exception:
        return None
    return fill_products if hasattr(fill_products, "signatures") else None


def entries_kernel(entries: int) -> Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
    """The pass over this many entries of sparse vectors, where it is to be had and worth having: see `compiled.add_entries`."""
    _Work.entries += entries
    return _entries_kernel() if _Work.entries > PATIENCE else None


@cache
def _entries_kernel() -> Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
    try:
        add_entries = importlib.import_module(f"{__package__}._compiled").add_entries
        number, place = np.ones((1, 1)), np.zeros((1, 1), np.int64)
        add_entries(number, np.ones(1), place, 1.0, np.zeros(1, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))
    except Exception:
        return None
    return add_entries if hasattr(add_entries, "signatures") else None


def _kind(unit: UnitVectors) -> tuple[str, bool]:
    """What the pass is compiled for: the type of the rows, and whether they may be written to, though it does not."""
    return unit.rows.dtype.name, unit.rows.flags.writeable


@cache
def kernel(kind: str = "float64", writeable: bool = True) -> Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
    """Give the compiled pass, tried with rows of this kind. Nothing is drawn here."""
    try:
        add_rounded = importlib.import_module(f"{__package__}._compiled").add_rounded
        number, numbers = np.ones(1), np.ones((1, 1))
        rows = numbers.astype(kind)
        rows.setflags(write=writeable)
        add_rounded(rows, numbers, number, numbers, 1.0, np.zeros(1, np.uint8), np.zeros(1, np.int64))
    except Exception:
        return None
    return add_rounded if hasattr(add_rounded, "signatures") else None


@cache
def rotated_kernel(
    kind: str = "float64", writeable: bool = True
) -> Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]] | None:
    """Give the compiled pass over rotated vectors, tried with rows of this kind. Nothing is drawn here."""
    try:
        add_rotated = importlib.import_module(f"{__package__}._compiled").add_rotated
        number, numbers = np.ones(1), np.ones((1, 1))
        rows = numbers.astype(kind)
        rows.setflags(write=writeable)
        signs = np.ones(1)
        signs.setflags(write=False)
        fixed = (1.0, 1.0, 1.0, 256.0)
        add_rotated(rows, numbers, number, numbers, signs, _NOWHERE, *fixed, np.zeros(1, np.uint8), np.zeros(1, np.int64))
    except Exception:
        return None
    return add_rotated if hasattr(add_rotated, "signatures") else None
