"""What a private round says of one column: shares, quantiles, the mean, what is missing, each with an error bar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..validation import real
from .error_bars import Score
from .guesses import LevelGuess, NumberGuess

Floats = NDArray[np.float64]
# Half the width of a 95 per cent interval, in standard deviations.
Z95 = 1.96
# The share of people at either end of whom nothing is said: at least, and at most.
LEAST_TAIL, MOST_TAIL = 0.005, 0.1


@dataclass(frozen=True, eq=False)
class NumberSummary:
    """A column of numbers: its distribution over the bins of a public guess.

    Error bars are for privacy noise and for having asked these people out of many, together.

    Parameters
    ----------
    guess : NumberGuess
        The public guess, which has the bins.
    shares : ndarray of shape (size,)
        Estimated share of people in each bin: at least 0, together 1.
    covariance : ndarray of shape (size, size)
        Covariance of the noise in shares before they were brought to that set.
    users : int
        How many people answered.

    Attributes
    ----------
    missing, below, above : Score
        Shares of people without a number, below the guess and above it.
    mean : Score
        Of numbers within the guess; see `mean_within`.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import NumberGuess, NumberSummary
    >>> guess = NumberGuess(0, 10, whole=True)
    >>> shares = np.bincount(guess.places(np.arange(11)), minlength=guess.size) / 11
    >>> summary = NumberSummary(guess, shares, np.zeros((guess.size, guess.size)), users=10_000)
    >>> summary.quantile(0.5), summary.missing.value
    (5.0, 0.0)
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
        """The share of people at either end that cannot be told from noise, at least half a per cent and at most a tenth."""
        return min(max(LEAST_TAIL, 3 * self.tail_noise), MOST_TAIL)

    def quantile(self, q: float) -> float:
        """Return the number below which a share q of those who have one lies, spread evenly within a bin.

        Parameters
        ----------
        q : float
            A share between 0 and 1.

        Returns
        -------
        float
            The quantile; an end of the guess where it lies beyond.

        Raises
        ------
        ArgumentError
            Where q is not between 0 and 1.
        """
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
        """Return 95 per cent bounds on the quantile of the people from whom these were drawn, up to the ends of bins.

        Parameters
        ----------
        q : float
            A share between 0 and 1.

        Returns
        -------
        tuple of (float, float)
            The bounds; at most the ends of the guess.

        Raises
        ------
        ArgumentError
            Where q is not between 0 and 1.
        """
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
        """Return the mean of numbers clipped to a range: the narrower it is, the smaller is the error bar.

        Parameters
        ----------
        low, high : float
            The range.

        Returns
        -------
        Score
            By the middles of bins; the error bar counts noise, sampling, and a third of the bins' widths.
        """
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

    Parameters
    ----------
    guess : LevelGuess
        The public list.
    shares : ndarray of shape (size,)
        Estimated share of people in each bin: at least 0, together 1.
    covariance : ndarray of shape (size, size)
        Covariance of the noise in shares before they were brought to that set.
    users : int
        How many people answered.

    Attributes
    ----------
    levels : dict of str to Score
        The share of each level.
    other, missing : Score
        Shares of people with another level, and with none.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import LevelGuess, LevelSummary
    >>> summary = LevelSummary(LevelGuess(("f", "m")), np.array([0.5, 0.4, 0.1, 0.0]), np.zeros((4, 4)), users=100)
    >>> summary.levels["m"].value, summary.other.value
    (0.4, 0.1)
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
