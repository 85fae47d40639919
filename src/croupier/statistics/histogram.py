"""How many people are where: a histogram of one column, with quantiles and error bars."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, nnls

from ..files import Figures
from ..population import Query
from ..protocol import SumEstimate
from ..validation import ArgumentError, real, whole

# One score with its error bar.


@dataclass(frozen=True)
class Score:
    """One score with its error bar.

    No figure is beyond `low` or `high`, between which such a score always is: noise alone would take it there. That brings an
    estimate nearer to the truth, so an interval about it covers at least as often.

    `value`: The estimate. `std`: Its standard error, for sampling of people and privacy noise together. `baseline`: The score of
    the best constant answer; None if that is not known. `low`, `high`: Between which such a score always is. `interval`: The 95 per
    cent confidence interval.

    Examples
    --------
    >>> from croupier.statistics.histogram import Score
    >>> low, high = Score(0.8, 0.01, baseline=0.5).interval
    >>> round(low, 3), round(high, 3)
    (0.78, 0.82)
    """

    value: float
    std: float
    baseline: float | None
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self._inside(self.value))
        if self.baseline is not None:
            object.__setattr__(self, "baseline", self._inside(self.baseline))

    @property
    def interval(self) -> tuple[float, float]:
        """95 per cent, within the range."""
        return self._inside(self.value - 1.96 * self.std), self._inside(self.value + 1.96 * self.std)

    def _inside(self, number: float) -> float:
        return min(max(number, self.low), self.high)


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Histogram(Query):
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
        Number of bins, at most 100,000.
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
        If a parameter is out of range.

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
        remedy = "State a range that you can justify without having seen the data."
        low = real("low", self.low, above=-1e100, below=1e100, remedy=remedy)
        real("high", self.high, above=low, below=1e100, remedy=remedy)
        whole("bins", self.bins, at_least=1, at_most=100_000, remedy="20 to 100 are usual.")
        whole("column", self.column, at_least=0, remedy="Count the columns of X from 0.")

    norm = 1.0
    diameter = math.sqrt(2)
    answers = 1

    @property
    def dim(self) -> int:
        """Coordinates of a vector: the bins."""
        return self.bins

    def encode(self, data: Any) -> Any:
        """Take one number per person for a column.

        Parameters
        ----------
        data : object
            What the caller has, other than a population.

        Returns
        -------
        tuple of (X, y) or array_like
            An array or a series of numbers as one column; everything else as it is.
        """
        if isinstance(data, list | tuple) or np.ndim(data) != 1:
            return data
        column = np.asarray(data)
        return column[:, np.newaxis] if column.dtype.kind in "biuf" else data

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
class HistogramAnswer(Figures):
    """Counts per bin, each with an error bar of `count_std`, and the mean and quantiles that follow from them.

    Error bars are of the privacy noise alone: the counts are those of the people who answered.

    `edges` (bins + 1,): Ends of the bins. `counts` (bins,): Noisy counts; some may be negative. `count_std`: Standard deviation of
    the noise in a count. `users`: How many people answered. `shares` (bins,): Share of the people in each bin: at least 0, together
    1. `mean`: The mean, by the middles of the bins.
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
        """Return the value below which a share q of the people lies, spread evenly within a bin."""
        real("q", q, at_least=0, at_most=1, remedy="0.5 is the median.")
        reached = np.concatenate([[0.0], np.cumsum(self.shares)])
        return float(np.interp(q, reached, self.edges))

    @property
    def mean(self) -> float:
        """By the middles of the bins."""
        return float(self.shares @ (self.edges[:-1] + self.edges[1:])) / 2

    def figures(self) -> list[dict[str, Any]]:
        """Return one row per bin: "low", "high", "count" and "std"."""
        return [
            {"low": float(low), "high": float(high), "count": float(count), "std": self.count_std}
            for low, high, count in zip(self.edges, self.edges[1:], self.counts, strict=False)
        ]

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


# Counts in ordered bins, sent by a square root of prefix sums, and read back by least squares.

# Weight of "all shares add up to 1" among the equations: far above that of the noise.
_CERTAIN = 100.0
# Standard deviations of noise by which people have to be missing from a total, before it is believed: 3 in 100,000 rounds.
_BEYOND_DOUBT = 4.0


def falling_column(size: int) -> Floats:
    """1, 1/2, 3/8, ...: the first column of the root of prefix sums."""
    return np.cumprod(np.concatenate([[1.0], (2 * np.arange(1, size) - 1) / (2 * np.arange(1, size))]))


def root_of_prefix_sums(size: int) -> Floats:
    """The lower triangular S with S S = prefix sums: 1, 1/2, 3/8, ... down each column; no entry is negative."""
    falling = falling_column(size)
    root = np.zeros((size, size))
    for column in range(size):
        root[column:, column] = falling[: size - column]
    return root


def unit_root(size: int) -> Floats:
    """The same, divided by the length of its longest column: no column is longer than 1."""
    root = root_of_prefix_sums(size)
    return np.asarray(root / np.linalg.norm(root, axis=0).max())


def known_total(measured: Floats, sums: Floats, noise_std: float, users: int) -> tuple[Floats, Floats]:
    """Counts by least squares from noisy sums that are linear in them, and the covariance of their noise.

    `measured` has in its columns what is sent for each bin. The number of people is known, and imposed.
    """
    inverse = np.linalg.inv(measured.T @ measured)
    counts = inverse @ (measured.T @ sums)
    ones = inverse.sum(axis=1)
    counts = counts + ones * (users - counts.sum()) / ones.sum()
    return counts, noise_std**2 * (inverse - np.outer(ones, ones) / ones.sum())


def scored_total(measured: Floats, sums: Floats, noise_std: float, users: int) -> tuple[Floats, Floats, int]:
    """As `known_total`, with the number of people that are counted: fewer than were asked where that is beyond doubt.

    People whose record says nothing send zero. Taking them for counted would spread them over the bins: where the noisy total is
    so many standard deviations short that noise is no reason, it stands for itself.
    """
    inverse = np.linalg.inv(measured.T @ measured)
    counts = inverse @ (measured.T @ sums)
    total = float(counts.sum())
    if total >= users - _BEYOND_DOUBT * noise_std * float(np.sqrt(inverse.sum())):
        return *known_total(measured, sums, noise_std, users), users
    return counts, np.asarray(noise_std**2 * inverse, dtype=np.float64), max(round(total), 1)


def possible_shares(measured: Floats, sums: Floats, counts: Floats, users: int) -> Floats:
    """Shares that are at least 0 and add up to 1, near the counts in the sense of their noise.

    The mean of two such points: the likeliest one (least squares with the noise's covariance), and that whose prefix sums are the
    monotone ones nearest to those of the counts. Either alone puts the people of several bins into one of them.
    """
    monotone = np.clip(isotonic_regression(np.cumsum(counts[:-1]) / users).x, 0.0, 1.0)
    by_prefix = np.diff(np.concatenate([[0.0], monotone, [1.0]]))
    equations = np.vstack([measured, np.full(len(counts), _CERTAIN)])
    try:
        likeliest, _ = nnls(equations, np.append(sums / users, _CERTAIN), maxiter=50 * len(counts))
    except RuntimeError:  # it did not converge
        likeliest = by_prefix
    return to_simplex((likeliest + by_prefix) / 2)
