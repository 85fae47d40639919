"""All columns of a table in one private round: the query, by bins of public guesses.

A record is sent as one vector per column, each with its part of the squared norm: that of its bin's column in a square root of
prefix sums for numbers, a unit vector for levels. docs/statistics.md has the range and its proof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import SumEstimate
from ..validation import ArgumentError, Found
from .column_summary import ColumnSummary, LevelSummary, NumberSummary
from .guesses import Guess, LevelGuess, NumberGuess
from .histogram import to_simplex
from .prefix_sums import known_total, possible_shares, unit_root

Floats = NDArray[np.float64]
MOST_COLUMNS = 1_000
# Part of the squared norm of a column of levels, beside 1 for numbers: a prefix sum of 130 bins has 2.6 times the noise of a count,
# so that this makes the sum of both variances least.
LEVELS_WEIGHT = 0.4


@dataclass(frozen=True)
class Summaries:
    """Counts of all columns in the bins of public guesses.

    X has one column for each guess, in their order: numbers, or numbers of levels (see `LevelGuess.places`); NaN is missing.

    Parameters
    ----------
    guesses : mapping of str to NumberGuess or LevelGuess
        What is guessed of each column, by its name.

    Attributes
    ----------
    dim : int
        Coordinates of a vector: all bins of all columns.
    norm : float
        Bound on the l2 norm of a vector: 1.
    diameter : float
        Bound on the l2 distance of two vectors: sqrt(2).
    blanks : bool
        True: values that are not finite are counted, not refused.

    Raises
    ------
    ArgumentError
        Where there is no column, or more than 1000.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> from croupier.statistics import NumberGuess, Summaries
    >>> ages = np.random.default_rng(0).integers(18, 90, size=(20_000, 1))
    >>> answer = cr.ask(Summaries({"age": NumberGuess(0, 120, whole=True)}), ages, epsilon=1.0, delta=1e-6)
    >>> abs(answer.value["age"].quantile(0.5) - 53.5) < 2
    True
    """

    guesses: Mapping[str, Guess]
    blanks = True

    def __post_init__(self) -> None:
        if not isinstance(self.guesses, Mapping) or not 1 <= len(self.guesses) <= MOST_COLUMNS:
            found = len(self.guesses) if isinstance(self.guesses, Mapping) else type(self.guesses).__name__
            raise ArgumentError("columns", found, f"1 to {MOST_COLUMNS} columns", "Name columns, each with its guess.")
        for name, guess in self.guesses.items():
            if not isinstance(guess, NumberGuess | LevelGuess):
                raise ArgumentError(f"columns[{name!r}]", guess, "a NumberGuess or LevelGuess", "Guess a range, or list levels.")

    norm = 1.0
    diameter = math.sqrt(2)

    @cached_property
    def parts(self) -> list[Floats]:
        """What is sent of each bin, in columns, for each column of the table."""
        total = math.fsum(_weight(guess) for guess in self.guesses.values())
        return [_measured(guess, _weight(guess) / total) for guess in self.guesses.values()]

    @cached_property
    def dim(self) -> int:
        """Coordinates of a vector: all bins of all columns."""
        return sum(guess.size for guess in self.guesses.values())

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records that have not one column for each guess.

        Parameters
        ----------
        X : array_like of shape (n, columns)
            Some users' records.
        y : array_like or None
            Not used.

        Raises
        ------
        ArgumentError
            Where X has another number of columns.
        """
        if X.shape[1] != len(self.guesses):
            raise ArgumentError(
                "X", Found(f"has {X.shape[1]} columns"), f"{len(self.guesses)} columns, those guessed", "Leave out the others."
            )

    def __call__(self, X: Any, y: Any) -> Floats:
        rows = np.asarray(X, dtype=np.float64)
        vectors = np.empty((len(rows), self.dim))
        first = 0
        for column, (guess, part) in enumerate(zip(self.guesses.values(), self.parts, strict=True)):
            vectors[:, first : first + guess.size] = part.T[guess.places(rows[:, column])]
            first += guess.size
        return vectors

    def decode(self, estimate: SumEstimate) -> dict[str, ColumnSummary]:
        """Read every column's counts from the noisy sum. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        dict of str to NumberSummary or LevelSummary
            By the names of the columns.
        """
        found: dict[str, ColumnSummary] = {}
        first = 0
        for (name, guess), part in zip(self.guesses.items(), self.parts, strict=True):
            sums = np.asarray(estimate.sum[first : first + guess.size])
            first += guess.size
            counts, covariance = known_total(part, sums, estimate.noise_std, estimate.users)
            share_covariance = covariance / estimate.users**2
            if isinstance(guess, NumberGuess):
                shares = possible_shares(part, sums, counts, estimate.users)
                found[name] = NumberSummary(guess, shares, share_covariance, estimate.users)
            else:
                found[name] = LevelSummary(guess, to_simplex(counts / estimate.users), share_covariance, estimate.users)
        return found


def _weight(guess: Guess) -> float:
    """A column's part of the squared norm, before all are divided by their sum."""
    return LEVELS_WEIGHT if isinstance(guess, LevelGuess) else 1.0


def _measured(guess: Guess, part: float) -> Floats:
    """What is sent of each bin, in columns whose squared length is at most `part`, without negative entries."""
    sent = np.eye(guess.size) if isinstance(guess, LevelGuess) else unit_root(guess.size)
    return np.asarray(math.sqrt(part) * sent)
