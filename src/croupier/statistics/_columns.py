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
from .histogram import Score

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

    `low`, `high`: The guess; default: -1e9 to 1e9. `whole`: Whether numbers are whole: then each has its own bin as far as there
    are bins, and quantiles are whole. `bins`: How many bins there are between the ends, 8 to 4096. `stated`: Ends of the bins,
    ascending, where they are given and not made of the others: a task states them, so that every device has the same ones to the
    last digit. The first and last are `low` and `high`, of whole numbers half a unit beyond them. `edges`: Ends of the bins between
    `low` and `high`. `size`: All bins, with those for 0, below, above and missing. ArgumentError: If the ends are no range.

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
        remedy = "State a range that you can justify without having seen the data; it may be far too wide."
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
        remedy = "List the edges of all bins in ascending order, or leave the list out."
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
        """Find the bin of every value: from 0, below the range, to `size` - 1, missing.

        `values`: Numbers; NaN is missing.
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

    `levels`: A public list, at most 1000 long. `size`: All bins: the levels, other, missing. ArgumentError: If there are none, too
    many, or one is there twice.

    Examples
    --------
    >>> LevelGuess(("f", "m")).places(np.array([0, 1, -1, np.nan])).tolist()
    [0, 1, 2, 3]
    """

    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        remedy = "List the public levels; anything else is counted as other."
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
        """Find the bin of every value: from 0 to `size` - 1, missing.

        `values`: Numbers of levels, from 0 on; any other number is another level, NaN is missing.
        """
        numbers = np.asarray(values, dtype=np.float64)
        known = (numbers >= 0) & (numbers < len(self.levels)) & (numbers == np.floor(numbers))
        places = np.where(known, numbers, len(self.levels))
        return np.where(np.isnan(numbers), self.size - 1, places).astype(np.int64)


Guess = NumberGuess | LevelGuess


# What a private round says of one column: shares, quantiles, the mean, what is missing, each with an error bar.

# Half the width of a 95 per cent interval, in standard deviations.
Z95 = 1.96
# The share of people at either end of whom nothing is said: at least, and at most.
LEAST_TAIL, MOST_TAIL = 0.005, 0.1


@dataclass(frozen=True, eq=False)
class NumberSummary:
    """A column of numbers: its distribution over the bins of a public guess.

    Error bars are for privacy noise and for having asked these people out of many, together.

    `guess`: The public guess, which has the bins. `shares` (size,): Estimated share of people in each bin: at least 0, together 1.
    `covariance` (size, size): Covariance of the noise in shares before they were brought to that set. `users`: How many people
    answered. `missing`, `below`, `above`: Shares of people without a number, below the guess and above it. `mean`: Of numbers
    within the guess; see `mean_within`.
    """

    guess: NumberGuess
    shares: Floats
    covariance: Floats
    users: int

    @property
    def missing(self) -> Score:
        """The share of people without a number."""
        return self._share(np.arange(len(self.shares)) == len(self.shares) - 1)

    @property
    def below(self) -> Score:
        """The share of people whose number is below the guess."""
        return self._share(np.arange(len(self.shares)) == 0)

    @property
    def above(self) -> Score:
        """The share of people whose number is above the guess."""
        return self._share(np.arange(len(self.shares)) == len(self.shares) - 2)

    @cached_property
    def reached(self) -> Floats:
        """Share of those who have a number that is at or below the upper end of each bin."""
        sums = np.cumsum(self.shares[:-1])
        return np.asarray(sums / max(float(sums[-1]), 1e-12))

    @cached_property
    def rank_std(self) -> Floats:
        """Standard error of `reached`: noise, and sampling."""
        present = max(float(self.shares[:-1].sum()), 1 / self.users)
        # d (P_j / P) = (d P_j - F_j d P) / P
        weights = np.tril(np.ones((len(self.shares) - 1, len(self.shares))))
        weights[:, -1] = 0.0
        gradient = (weights - self.reached[:, np.newaxis] * weights[-1]) / present
        noise = np.sum((gradient @ self.covariance) * gradient, axis=1)
        sampling = self.reached * (1 - self.reached) / (self.users * present)
        return np.asarray(np.sqrt(np.maximum(noise, 0.0) + np.maximum(sampling, 0.0)))

    @property
    def tail_noise(self) -> float:
        """The standard deviation of the privacy noise in the share of people at one end: root mean square over the bins."""
        sums = np.cumsum(np.cumsum(self.covariance, axis=0), axis=1).diagonal()[:-1]
        return float(np.sqrt(max(float(np.mean(sums)), 0.0)))

    @property
    def tail(self) -> float:
        """The share of people at either end that is indistinguishable from noise, at least half a per cent and at most a tenth."""
        return min(max(LEAST_TAIL, 3 * self.tail_noise), MOST_TAIL)

    def quantile(self, q: float) -> float:
        """Return the number below which a share q of those who have one lies, spread evenly within a bin."""
        real("q", q, at_least=0, at_most=1, remedy="0.5 is the median.")
        bin_ = self._bin(q)
        before = self.reached[bin_ - 1] if bin_ else 0.0
        inside = (q - before) / max(float(self.reached[bin_] - before), 1e-12)
        low, high = (float(ends[bin_]) for ends in self.guess.ends)
        number = low + min(max(inside, 0.0), 1.0) * (high - low)
        if not self.guess.whole:
            return number
        least, most = sorted(float(ends[bin_]) for ends in self._values)  # round(1.5) is 2, which is in the next bin
        return float(np.clip(np.clip(round(number), least, most), *self._limits))

    def interval(self, q: float) -> tuple[float, float]:
        """Return 95 per cent bounds on the quantile of the people from whom these were drawn, up to the ends of bins."""
        real("q", q, at_least=0, at_most=1, remedy="0.5 is the median.")
        lows, highs = self.guess.ends
        slack = Z95 * self.rank_std
        # the first bin after which the quantile may be reached, and the first after which it must be
        may = np.flatnonzero(self.reached + slack >= q)
        must = np.flatnonzero(self.reached - slack >= q)
        low = lows[may[0]] if len(may) else lows[-1]
        high = highs[must[0]] if len(must) else highs[-1]
        if self.guess.whole:
            low, high = min(low + 0.5, high), max(high - 0.5, low)
        low, high = np.clip((low, high), *self._limits)
        return float(low), float(high)

    @property
    def mean(self) -> Score:
        """Of numbers within the guess; those outside count as its ends."""
        return self.mean_within(self.guess.low, self.guess.high)

    @property
    def middle_mean(self) -> Score:
        """The mean of numbers clipped to a range that leaves out half a per cent at either end, or what noise may have made."""
        return self.mean_within(self.quantile(self.tail), self.quantile(1 - self.tail))

    def mean_within(self, low: float, high: float) -> Score:
        """Return the mean of numbers clipped to a range: the narrower it is, the smaller is the error bar."""
        lows, highs = (np.clip(ends, low, high) for ends in self._values)
        middles = np.append((lows + highs) / 2, 0.0)
        has = np.append(np.ones(len(lows)), 0.0)
        present = max(float(self.shares @ has), 1 / self.users)
        mean = float(self.shares @ middles) / present
        gradient = (middles - mean * has) / present
        noise = float(gradient @ self.covariance @ gradient)
        spread = float(self.shares @ (has * (middles - mean) ** 2)) / present / (self.users * present)
        blur = float(self.shares[:-1] @ np.maximum(highs - lows, 0.0)) / present / math.sqrt(12) / 2
        return Score(mean, math.sqrt(max(noise, 0.0) + spread + blur**2), None, low, high)

    def _bin(self, q: float) -> int:
        """The bin in which a quantile lies: the first, with people in it, after which it is reached."""
        return min(int(np.searchsorted(self.reached, max(q, 1e-9) - 1e-12)), len(self.reached) - 1)  # of nobody: the last

    @property
    def _limits(self) -> tuple[float, float]:
        """The least and the greatest number within the guess."""
        low, high = float(self.guess.low), float(self.guess.high)
        return (float(math.ceil(low)), float(math.floor(high))) if self.guess.whole else (low, high)

    @property
    def _values(self) -> tuple[Floats, Floats]:
        """The least and the greatest number of every bin; of whole numbers those half a unit within its ends."""
        lows, highs = self.guess.ends
        return (lows + 0.5, highs - 0.5) if self.guess.whole else (lows, highs)

    def _share(self, chosen: Any) -> Score:
        return _share_of(self, np.asarray(chosen, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class LevelSummary:
    """A column of levels: the share of each of a public list, of others, and of what is missing.

    `guess`: The public list. `shares` (size,): Estimated share of people in each bin: at least 0, together 1. `covariance` (size,
    size): Covariance of the noise in shares before they were brought to that set. `users`: How many people answered. `levels`: The
    share of each level. `other`, `missing`: Shares of people with another level, and with none.
    """

    guess: LevelGuess
    shares: Floats
    covariance: Floats
    users: int

    @property
    def levels(self) -> dict[str, Score]:
        """The share of each level."""
        eye = np.eye(len(self.shares))
        return {level: _share_of(self, eye[place]) for place, level in enumerate(self.guess.levels)}

    @property
    def other(self) -> Score:
        """The share of people with another level."""
        return _share_of(self, np.eye(len(self.shares))[-2])

    @property
    def missing(self) -> Score:
        """The share of people with no level."""
        return _share_of(self, np.eye(len(self.shares))[-1])


ColumnSummary = NumberSummary | LevelSummary


def _share_of(summary: ColumnSummary, chosen: Floats) -> Score:
    share = min(max(float(chosen @ summary.shares), 0.0), 1.0)
    variance = max(float(chosen @ summary.covariance @ chosen), 0.0) + share * (1 - share) / summary.users
    return Score(share, math.sqrt(variance), None, 0.0, 1.0)
