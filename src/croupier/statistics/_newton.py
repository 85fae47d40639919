"""One Newton step of logistic regression from one private sum, with the covariance that intervals need.

A user with row x and label y in {0, 1} sends (a 4p(1 - p) svec(x x'), b (y - p) x, c (y - p)^2 svec(x x')), p the probability that
given weights mean for x. The proof of its range is in docs/statistics-theory.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, expit

from ..arithmetic import row_dots
from ..population import Query
from ..protocol import SumEstimate
from ..validation import ArgumentError, Found, real
from .moments import Coefficients, noise_edge, raised_spectrum, seen, seen_from, within_bounds
from .query import finite, require_numbers, unit_rows

Floats = NDArray[np.float64]
# Weights of curvature, slope and squared slope in a user's vector. Slopes alone fix the diameter as long as CURVATURE^2 is at most
# 27/32 and SQUARE^2 at most 1/4 of SLOPE^2 (docs/statistics-theory.md).
CURVATURE, SLOPE, SQUARE = 0.68, 0.75, 0.375
# Weights are kept within this length, for rows of length 1: scores beyond it mean probabilities of 0 and 1.
LONGEST = 50.0
# A step is taken for settled where its square, in units of its own covariance, is at most this many times the chi-square that one
# fit in a hundred exceeds: the weights it began from are uncertain too, by two to four times as much, being of half as many people.
UNSETTLED_SHARE, EARLIER_NOISE = 0.01, 4.0


@dataclass(frozen=True)
class Newton(Query):
    """What one Newton step of logistic regression needs, at given weights: curvature, slope, and the slope's spread.

    Rows longer than 1 are scaled down to 1. A label is 1, or 0 or -1 for the other class; what else there is, and rows that are not
    finite, are sent as zero.

    `weights`: The weights at which slopes are taken, one per column: the answer of an earlier round, of other people. `dim`:
    Coordinates of a vector. `norm`: Bound on the l2 norm of a vector. `diameter`: Bound on the l2 distance of two vectors.
    `parallel`: True: threads may call it at once.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records. docs/statistics-theory.md proves norm and diameter.
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        remedy = "Give the weights of an earlier round, one per column."
        try:
            weights = tuple(real("weights", weight, above=-1e6, below=1e6, remedy=remedy) for weight in self.weights)
        except TypeError:
            raise ArgumentError("weights", self.weights, "a tuple of numbers", remedy) from None
        if not 1 <= len(weights) <= 1_000:
            raise ArgumentError(
                "weights", Found(f"has {len(weights)} numbers"), "1 to 1000", "Moments of more columns are too many to send."
            )
        object.__setattr__(self, "weights", weights)

    parallel = True

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.triu_indices(len(self.weights))

    @property
    def dim(self) -> int:
        """Coordinates of a vector."""
        d = len(self.weights)
        return d * (d + 1) + d

    @property
    def norm(self) -> float:
        """Its square is b^2 + c^2: where slopes are long, curvatures are short."""
        return math.sqrt(SLOPE**2 + SQUARE**2)

    @property
    def diameter(self) -> float:
        """Twice b: two users with opposite slopes are the furthest apart, and have no curvature."""
        return 2 * SLOPE

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records of another shape, or without labels."""
        if X.shape[1] != len(self.weights):
            allowed = f"(users, {len(self.weights)})"
            raise ArgumentError("X.shape", X.shape, allowed, "Give one weight per column.")
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y)", "Pass the labels: 1, and 0 or -1.")
        require_numbers(y)

    def __call__(self, X: Any, y: Any) -> Floats:
        rows = unit_rows(X)
        labels = np.asarray(y, dtype=np.float64)
        rows = np.where(np.isin(labels, (-1.0, 0.0, 1.0))[:, np.newaxis], rows, 0.0)
        p = expit(row_dots(rows, np.asarray(self.weights)))
        slopes = np.where(labels == 1, 1 - p, -p)  # never beyond -1 and 1
        first, second = self._pairs
        products = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, math.sqrt(2))
        curvatures = np.minimum(4 * p * (1 - p), 1.0)[:, np.newaxis]
        slopes = slopes[:, np.newaxis]
        return finite(np.hstack([CURVATURE * curvatures * products, SLOPE * slopes * rows, SQUARE * slopes**2 * products]))

    def decode(self, estimate: SumEstimate) -> NewtonSums:
        """Read curvature and slopes from the noisy sum. This is post-processing, which costs no privacy."""
        d, (first, second) = len(self.weights), self._pairs
        count, mean, noise = len(first), estimate.mean, estimate.mean_noise_std
        scale = np.where(first == second, 1.0, math.sqrt(2))

        def matrix(entries: Floats) -> Floats:
            full = np.zeros((d, d))
            full[first, second] = full[second, first] = entries
            return full

        return NewtonSums(
            weights=np.asarray(self.weights),
            curvature=matrix(mean[:count] / scale / (4 * CURVATURE)),
            curvature_variance=matrix((noise / scale / (4 * CURVATURE)) ** 2),
            slope=mean[count : count + d] / SLOPE,
            slope_std=noise / SLOPE,
            spread=matrix(mean[count + d :] / scale / SQUARE),
            users=estimate.users,
        )


@dataclass(frozen=True, eq=False)
class NewtonSums:
    """Noisy means over users of p(1 - p) x x', (y - p) x and (y - p)^2 x x', at given weights.

    `weights` (columns,): Where they were taken. `curvature` (columns, columns): Mean of p(1 - p) x x'. `curvature_variance`
    (columns, columns): Variance of the noise in each entry. `slope` (columns,): Mean of (y - p) x. `slope_std`: Standard deviation
    of the noise in an entry of `slope`. `spread` (columns, columns): Mean of (y - p)^2 x x'. `users`: How many people answered.
    `curvature_std`: Standard deviation of the noise in a diagonal entry of `curvature`.
    """

    weights: Floats
    curvature: Floats
    curvature_variance: Floats
    slope: Floats
    slope_std: float
    spread: Floats
    users: int

    @property
    def curvature_std(self) -> float:
        """Noise of a diagonal entry of the curvature."""
        return float(np.sqrt(self.curvature_variance.diagonal().max()))

    def step(self, bounds: Floats | None = None) -> Coefficients:
        """Take the Newton step, and say how certain its end is. This is post-processing, which costs no privacy."""
        edge = noise_edge(self.curvature_variance)
        values, vectors, raised = raised_spectrum(self.curvature, edge)
        inverse = (vectors / raised) @ vectors.T
        moved = inverse @ self.slope
        # noise of slope - E moved, E the noise in the curvature: rows i and j of E share one entry
        noise = self.curvature_variance * np.outer(moved, moved)
        np.fill_diagonal(noise, self.curvature_variance @ moved**2 + self.slope_std**2)
        spreads, directions = np.linalg.eigh(self.spread)
        sampling = (directions * np.maximum(spreads, 0.0)) @ directions.T / self.users
        coef = self.weights + moved
        coef = coef * min(1.0, LONGEST / max(float(np.linalg.norm(coef)), 1e-300))
        threshold = seen_from(edge, self.curvature_std)
        covariance, decided = inverse @ (sampling + noise) @ inverse, seen(values, vectors, threshold, self.curvature_std)
        solution = Coefficients(coef, covariance, decided, users=self.users)
        if bounds is None:
            return solution
        spectrum = (values, vectors, raised, threshold)
        return within_bounds(solution, spectrum, self.curvature_std, bounds, bounds + np.abs(self.weights))

    def settled(self, step: Coefficients) -> bool:
        """Tell whether the step is no longer than noise explains, so that what it leaves out is small beside its standard
        errors."""
        moved, known = (step.coef - self.weights)[step.determined], np.ix_(step.determined, step.determined)
        if not moved.size:
            return True
        square = float(moved @ np.linalg.lstsq(step.covariance[known], moved, rcond=None)[0])
        return square <= EARLIER_NOISE * float(chdtri(moved.size, UNSETTLED_SHARE))
