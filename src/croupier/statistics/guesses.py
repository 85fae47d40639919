"""What is publicly guessed of a column before anybody is asked: a wide range of numbers, or levels. It makes the column's bins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError, Found, real, whole

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# The range of a number of which nothing is guessed, and the least difference that counts there.
WIDEST, FINEST = 1e9, 1e-3
BINS = 128
MOST_LEVELS = 1_000
# The least size of an end that is not 0: bins of equal ratios go down to a millionth of it.
_LEAST = 1e-290
# Ends of a range without 0 between them have bins of equal ratios where their own ratio is at least this.
_ORDER = 10.0
# The part of the bins that have equal ratios; the others are equally wide.
_RATIOS = 0.75


@dataclass(frozen=True)
class NumberGuess:
    """A number, probably between `low` and `high`: generous ends, guessed without having seen the data.

    A quarter of the bins is equally wide, the others have equal ratios of the distance from 0, so that a guess may be too wide by
    orders of magnitude. 0 has a bin of its own, and so have numbers below the range, above it, and what is missing or no number.

    Parameters
    ----------
    low, high : float
        The guess; -1e9 to 1e9 unless given.
    whole : bool, default False
        Whether numbers are whole: then each has its own bin as far as there are bins, and quantiles are whole.
    bins : int, default 128
        How many bins there are between the ends, 8 to 4096.
    stated : tuple of float, optional
        Ends of the bins, ascending, where they are given and not made of the others: a task states them, so that every device has
        the same ones to the last digit. The first and last are `low` and `high`, of whole numbers half a unit beyond them.

    Attributes
    ----------
    edges : ndarray
        Ends of the bins between `low` and `high`.
    size : int
        All bins, with those for 0, below, above and missing.

    Raises
    ------
    ArgumentError
        Where the ends are no range.

    Examples
    --------
    >>> NumberGuess(0, 100, whole=True).places(np.array([-3.0, 0.0, 100.0, 101.0, np.nan])).tolist()
    [0, 1, 101, 102, 103]
    """

    low: float = -WIDEST
    high: float = WIDEST
    whole: bool = False
    bins: int = BINS
    stated: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        remedy = "Give a range that you can defend without having seen the data; it may be far too wide."
        low = real("low", self.low, above=-1e30, below=1e30, remedy=remedy)
        high = real("high", self.high, above=low, below=1e30, remedy=remedy)
        for name, end in (("low", low), ("high", high)):
            if 0 < abs(end) < _LEAST:
                raise ArgumentError(name, end, f"0, or at least {_LEAST:g} away from it", remedy)
        if not isinstance(self.whole, bool):
            raise ArgumentError("whole", self.whole, "true or false", "True says that all numbers are whole.")
        if self.whole and self.high - self.low < 1:
            raise ArgumentError("high", self.high, f"at least {low + 1:g} for whole numbers", remedy)
        whole("bins", self.bins, at_least=8, at_most=4096, remedy="128 is usual.")
        if self.stated is not None:
            self._check_stated(self.stated)

    def _check_stated(self, stated: tuple[float, ...]) -> None:
        """Refuse ends of bins that do not ascend, or do not begin and end with the range."""
        remedy = "List the ends of all bins, from the lowest to the highest, or leave the list out."
        edges = [real("edges", edge, above=-1e30, below=1e30, remedy=remedy) for edge in stated]
        if len(edges) > self.bins + 1 or not all(one < other for one, other in pairwise(edges)):
            raise ArgumentError("edges", Found(f"has {len(edges)} numbers"), f"2 to {self.bins + 1} numbers that ascend", remedy)
        if len(edges) < 2 or (edges[0], edges[-1]) != self._outermost:
            raise ArgumentError(
                "edges", edges[:1] + edges[-1:], f"a list from {self._outermost[0]} to {self._outermost[1]}", remedy
            )

    @property
    def says_nothing(self) -> bool:
        """Whether nothing was guessed: a number of any size."""
        return (self.low, self.high, self.whole) == (-WIDEST, WIDEST, False)

    @property
    def _outermost(self) -> tuple[float, float]:
        """The first and the last edge."""
        low, high = float(self.low), float(self.high)
        return (math.ceil(low) - 0.5, math.floor(high) + 0.5) if self.whole else (low, high)

    @cached_property
    def edges(self) -> Floats:
        """Ends of the bins between `low` and `high`: those stated, or as many as `bins` allows."""
        if self.stated is not None:
            return np.asarray(self.stated, dtype=np.float64)
        fewest, most = 2, 8 * self.bins
        while most - fewest > 1:
            middle = (fewest + most) // 2
            fewest, most = (middle, most) if len(self._edges(middle)) <= self.bins + 1 else (fewest, middle)
        return self._edges(fewest)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """Lower and upper end of every bin but that of what is missing, in the order of numbers."""
        low, high = np.concatenate([self.edges[:1], self.edges]), np.concatenate([self.edges, self.edges[-1:]])
        if self._zero is not None:
            low, high = np.insert(low, self._zero + 1, 0.0), np.insert(high, self._zero + 1, 0.0)
        return low, high

    @property
    def size(self) -> int:
        """All bins, with those for 0, below, above and missing."""
        return len(self.ends[0]) + 1

    def places(self, values: Any) -> Integers:
        """Find the bin of every value.

        Parameters
        ----------
        values : array_like of float
            Numbers; NaN is missing.

        Returns
        -------
        ndarray of int
            From 0, below the range, to `size` - 1, missing.
        """
        numbers = np.asarray(values, dtype=np.float64)
        places = np.searchsorted(self.edges, numbers, side="right")
        places = np.where(numbers == self.edges[-1], len(self.edges) - 1, places)
        if self._zero is not None:
            places = places + (numbers > 0)
        return np.where(np.isnan(numbers), self.size - 1, places).astype(np.int64)

    @cached_property
    def _zero(self) -> int | None:
        """Which edge is 0, where 0 has a bin of its own between two edges."""
        found = np.flatnonzero(self.edges == 0)
        return None if self.whole or not len(found) else int(found[0])

    def _edges(self, count: int) -> Floats:
        """About this many edges."""
        low, high, equal = float(self.low), float(self.high), int((1 - _RATIOS) * count) + 2
        near, far = sorted((abs(low), abs(high)))
        if low * high > 0 and far < _ORDER * near:
            parts = [np.linspace(low, high, count)]
        elif low * high > 0:
            steps = np.geomspace(near, far, max(2, int(_RATIOS * count)))
            parts = [np.linspace(low, high, equal), math.copysign(1.0, low) * steps]
        else:
            parts = [np.linspace(low, high, equal), np.zeros(1)]
            sides = [end for end in (low, high) if end != 0]
            for end in sides:
                unit = min(abs(end), 1.0 if self.whole else min(1e-6 * abs(end), FINEST))
                parts.append(math.copysign(1.0, end) * np.geomspace(unit, abs(end), max(2, int(_RATIOS * count) // len(sides))))
        edges = np.clip(np.concatenate(parts), low, high)
        if self.whole:
            first, last = self._outermost
            edges = np.concatenate([[first, last], np.clip(np.floor(edges) + 0.5, first, last)])
        return np.unique(edges)


@dataclass(frozen=True)
class LevelGuess:
    """One of these levels; anything else is counted as other, and nothing as missing.

    Parameters
    ----------
    levels : tuple of str
        A public list, at most 1000 long.

    Attributes
    ----------
    size : int
        All bins: the levels, other, missing.

    Raises
    ------
    ArgumentError
        Where there are none, too many, or one is there twice.

    Examples
    --------
    >>> LevelGuess(("f", "m")).places(np.array([0, 1, -1, np.nan])).tolist()
    [0, 1, 2, 3]
    """

    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        remedy = "List what everybody may know to occur; anything else is counted as other."
        if isinstance(self.levels, str) or not all(isinstance(level, str) for level in self.levels):
            raise ArgumentError("levels", self.levels, "a list of texts", remedy)
        if not 1 <= len(self.levels) <= MOST_LEVELS or len(set(self.levels)) < len(self.levels):
            found = f"{len(self.levels)} levels" if len(set(self.levels)) == len(self.levels) else "a level twice"
            raise ArgumentError("levels", found, f"1 to {MOST_LEVELS} different ones", remedy)

    @property
    def size(self) -> int:
        """All bins: the levels, other, missing."""
        return len(self.levels) + 2

    def places(self, values: Any) -> Integers:
        """Find the bin of every value.

        Parameters
        ----------
        values : array_like of float
            Numbers of levels, from 0 on; any other number is another level, NaN is missing.

        Returns
        -------
        ndarray of int
            From 0 to `size` - 1, missing.
        """
        numbers = np.asarray(values, dtype=np.float64)
        known = (numbers >= 0) & (numbers < len(self.levels)) & (numbers == np.floor(numbers))
        places = np.where(known, numbers, len(self.levels))
        return np.where(np.isnan(numbers), self.size - 1, places).astype(np.int64)


Guess = NumberGuess | LevelGuess
