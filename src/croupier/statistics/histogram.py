"""How many people are where: a histogram of one column, with quantiles and error bars."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import SumEstimate
from ..validation import ArgumentError, real, whole

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Histogram:
    """Counts of one column in equal bins from `low` to `high`; values outside count in the first or the last bin.

    A record is sent as the unit vector of its bin, so norm 1 and diameter sqrt(2) hold for any records. A value that is not a
    number is sent as zero, and counts nowhere.

    Parameters
    ----------
    low : float
        Lower end of a public range.
    high : float
        Its upper end.
    bins : int, default 20
        How many bins, at most 100,000.
    column : int, default 0
        Which column of X, counted from 0.

    Attributes
    ----------
    dim : int
        Coordinates of a vector: the bins.
    norm : float
        Bound on the l2 norm of a vector: 1.
    diameter : float
        Bound on the l2 distance of two vectors: sqrt(2).

    Raises
    ------
    ArgumentError
        Where a parameter is out of range.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> ages = np.random.default_rng(0).uniform(0, 100, size=(20_000, 1))
    >>> histogram = cr.ask(cr.statistics.Histogram(0, 100, bins=4), ages, epsilon=1.0, delta=1e-6).value
    >>> bool(np.abs(histogram.shares - 0.25).max() < 0.05)
    True
    """

    low: float
    high: float
    bins: int = 20
    column: int = 0

    def __post_init__(self) -> None:
        remedy = "Give a range that you can defend without having seen the data."
        low = real("low", self.low, above=-1e100, below=1e100, remedy=remedy)
        real("high", self.high, above=low, below=1e100, remedy=remedy)
        whole("bins", self.bins, at_least=1, at_most=100_000, remedy="20 to 100 are usual.")
        whole("column", self.column, at_least=0, remedy="Count the columns of X from 0.")

    norm = 1.0
    diameter = math.sqrt(2)

    @property
    def dim(self) -> int:
        """Coordinates of a vector: the bins."""
        return self.bins

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records without the column.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Some users' records.
        y : array_like or None
            Not used.

        Raises
        ------
        ArgumentError
            Where X has too few columns.
        """
        if X.shape[1] <= self.column:
            raise ArgumentError("column", self.column, f"below {X.shape[1]}, the columns of X", "Count them from 0.")

    def __call__(self, X: Any, y: Any) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            place = (np.asarray(X[:, self.column], dtype=np.float64) - self.low) / (self.high - self.low) * self.bins
        known = ~np.isnan(place)
        bins = np.clip(np.floor(np.where(known, place, 0.0)), 0, self.bins - 1).astype(np.int64)
        vectors = np.zeros((len(place), self.bins))
        vectors[np.arange(len(place)), bins] = known
        return vectors

    def decode(self, estimate: SumEstimate) -> HistogramAnswer:
        """Read the counts from the noisy sum. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        HistogramAnswer
            The counts with their error bar.
        """
        edges = np.linspace(self.low, self.high, self.bins + 1)
        return HistogramAnswer(edges, np.asarray(estimate.sum), estimate.noise_std, estimate.users)


@dataclass(frozen=True, eq=False)
class HistogramAnswer:
    """Counts per bin, each with an error bar of `count_std`, and the mean and quantiles that follow from them.

    Error bars are of the privacy noise alone: the counts are those of the people who answered.

    Parameters
    ----------
    edges : ndarray of shape (bins + 1,)
        Ends of the bins.
    counts : ndarray of shape (bins,)
        Noisy counts; some may be negative.
    count_std : float
        Standard deviation of the noise in a count.
    users : int
        How many people answered.

    Attributes
    ----------
    shares : ndarray of shape (bins,)
        Share of the people in each bin: at least 0, together 1.
    mean : float
        The mean, by the middles of the bins.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import HistogramAnswer
    >>> histogram = HistogramAnswer(np.array([0.0, 1.0, 2.0]), np.array([30.0, 10.0]), count_std=2.0, users=40)
    >>> histogram.shares.tolist(), histogram.mean
    ([0.75, 0.25], 0.75)
    """

    edges: Floats
    counts: Floats
    count_std: float
    users: int

    @property
    def shares(self) -> Floats:
        """Share of the people in each bin, at least 0 and together 1: the counts brought to the nearest such point."""
        return to_simplex(self.counts / self.users)

    def quantile(self, q: float) -> float:
        """Return the value below which a share q of the people lies, spread evenly within a bin.

        Parameters
        ----------
        q : float
            A share between 0 and 1.

        Returns
        -------
        float
            The quantile.

        Raises
        ------
        ArgumentError
            Where q is not between 0 and 1.
        """
        real("q", q, at_least=0, at_most=1, remedy="0.5 is the median.")
        reached = np.concatenate([[0.0], np.cumsum(self.shares)])
        return float(np.interp(q, reached, self.edges))

    @property
    def mean(self) -> float:
        """By the middles of the bins."""
        return float(self.shares @ (self.edges[:-1] + self.edges[1:])) / 2

    def __str__(self) -> str:
        bar = f"each count +- {1.96 * self.count_std:.3g} (95 %)"
        lines = [
            f"{low:>10.4g} .. {high:<10.4g} {count:>12,.0f}"
            for low, high, count in zip(self.edges, self.edges[1:], self.counts, strict=False)
        ]
        return "\n".join([f"{self.users:,} people; {bar}", *lines])


def to_simplex(shares: Floats) -> Floats:
    """The nearest numbers, in least squares, that are at least 0 and add up to 1."""
    falling = np.sort(shares)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(shares - excess[last], 0.0))
