"""The first rounds of a run that ask about rows, not about gradients, and the coordinates that are found from what comes back.

A run's rounds may ask different questions under one draw of secret lots (accounting, section 9). An opening asks for the mean of
rows, or for their second moments; from the released sums everybody can compute the coordinates in which later rounds descend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..population.population import Query
from ..problem import Problem, Squared
from ..problem.coordinates import Coordinates
from ..problem.problem import clip_rows
from ..protocol.sparse import SparseVectors, second_moments, symmetric_matrix
from ._gradients import valid_records

Floats = NDArray[np.float64]
# Eigenvalues of second moments below this many edges of their noise are raised to it: what lies below is noise.
_FLOOR = 0.5
# Centred rows are not blown up by more than this, squared: were they all alike, nothing but noise would be left.
_LEAST_SPREAD = 0.1
# The part of a row's squared length that the target has beside it in second moments with targets.
TARGET_SHARE = 0.3


@dataclass(frozen=True)
class Rows:
    """How a problem's rows are sent: features and constant scaled so that a row is at most 1 long.

    Parameters
    ----------
    problem : Problem
        Whose rows they are.
    share : float
        The part of the squared length that the constant has, where rows have one.
    """

    problem: Problem
    share: float

    @property
    def columns(self) -> int:
        """Columns of the features, without the constant."""
        return self.problem.features - bool(self.problem.constant)

    @property
    def factors(self) -> Floats:
        """What every column of a row is multiplied by."""
        norm, constant = self.problem.feature_norm, self.problem.constant
        if not constant:
            return np.full(self.columns, 1 / norm)
        reach = math.sqrt(norm**2 - constant**2)  # that of the features, the constant left out
        return np.append(np.full(self.columns, math.sqrt(1 - self.share) / reach), math.sqrt(self.share) / constant)


@dataclass(frozen=True)
class View:
    """What an opening has found: coordinates, the largest share of rows' energy in one direction of them, where to begin, and the
    direction of the mean row."""

    coordinates: Coordinates
    steepest: float = 1.0
    start: Floats | None = None
    middle: Floats | None = None


@dataclass(frozen=True)
class RowMeans(Query):
    """Each user's features, without the constant, at most 1 long; zero for an invalid record."""

    rows: Rows
    blank: bool = False
    norm = 1.0
    parallel = True

    @property
    def dim(self) -> int:
        return self.rows.columns

    def __call__(self, X: Any, y: Any) -> Floats:
        features = scaled_rows(self.rows, X, y, self.blank)[:, : self.dim] / math.sqrt(1 - self.rows.share)
        return np.asarray(clip_rows(features, 1.0))

    def found(self, mean: Floats, noise: float, sampling: float = 0.0) -> View:
        """Coordinates in which rows have no mean and are about 1 long, from a mean with so much noise per coordinate.

        The mean is shrunk by what of its length is noise. Rows are taken to be as long as they may be.
        """
        length, noise = float(mean @ mean), math.hypot(noise, sampling)
        true = max(0.0, length - len(mean) * noise**2)
        centre = mean * (true / length if length else 0.0)
        factors = self.rows.factors
        scale = 1 / math.sqrt(max(1 - true, _LEAST_SPREAD))
        back = math.sqrt(1 - self.rows.share) / factors[:-1]  # from rows at most 1 long to the problem's
        turn = np.append(factors[:-1] * scale, factors[-1])
        return View(Coordinates(turn, np.append(centre * back, 0.0), self.rows.problem.constant))


@dataclass(frozen=True)
class RowMoments(Query):
    """Each user's svec(z z'), z its row at most 1 long, with its target beside it where `target` is the target's share."""

    rows: Rows
    blank: bool = False
    target: float = 0.0
    norm = 1.0
    parallel = True

    @property
    def columns(self) -> int:
        """Columns of z."""
        return self.rows.problem.features + bool(self.target)

    @property
    def dim(self) -> int:
        return self.columns * (self.columns + 1) // 2

    @property
    def entries(self) -> int:
        return min(self.dim, max(4 * self.columns, self.dim // 16))  # rows of one-hot categories have few

    def __call__(self, X: Any, y: Any) -> Floats:
        return np.asarray(self.vectors(X, y))

    def vectors(self, X: Any, y: Any) -> Floats | SparseVectors:
        """The same by its entries, where most of a row's are 0."""
        rows = scaled_rows(self.rows, X, y, self.blank)
        if self.target:
            there = np.asarray(rows.any(axis=1))  # an invalid record has no target
            targets = np.zeros(len(rows))
            targets[there] = _targets(self.rows.problem, y, there)
            rows = np.column_stack([math.sqrt(1 - self.target) * rows, math.sqrt(self.target) * targets])
        return second_moments(rows)

    def found(self, moments: Floats, noise: float, sampling: float = 0.0) -> View:
        """Coordinates in which rows have about the same size in every direction, from the mean of vectors with so much noise.

        `sampling` is noise that vectors 1 long add; how long these are, the trace says. With a target, also the least-squares
        weights in these coordinates, to begin with.
        """
        matrix, factors, target = symmetric_matrix(moments), self.rows.factors, self.target
        noise = math.hypot(noise, sampling * min(1.0, max(0.0, float(np.trace(matrix)))))
        features, noise = len(factors), noise / (1 - target)
        values, vectors = np.linalg.eigh(matrix[:features, :features] / (1 - target))
        raised = np.maximum(values, max(_FLOOR * noise * math.sqrt(2 * features), 1e-6))
        energy = np.maximum(values, 0.0) / raised
        total = max(float(energy.sum()), 1.0)
        white = (vectors * (1 / np.sqrt(raised * total))) @ vectors.T
        start = middle = None
        if self.rows.problem.constant:  # products with the constant are the mean, except for a factor
            mean = white @ matrix[:features, features - 1]
            middle = mean / max(float(np.linalg.norm(mean)), 1e-300)
        if target:
            products = matrix[:features, features] / math.sqrt(target * (1 - target))
            start = vectors @ (vectors.T @ products / np.sqrt(raised)) * math.sqrt(total)
            start *= getattr(self.rows.problem.loss, "target_bound", 1.0)
        return View(Coordinates(white * factors), max(float(energy.max()) / total, 1 / features), start, middle)


def opening_query(algorithm: str, rows: Rows, blank: bool) -> RowMeans | RowMoments:
    """What an opening asks."""
    if algorithm == "mean":
        return RowMeans(rows, blank)
    return RowMoments(rows, blank, TARGET_SHARE if isinstance(rows.problem.loss, Squared) else 0.0)


def scaled_rows(rows: Rows, X: Any, y: Any, blank: bool) -> Floats:
    """Rows at most 1 long, as `Rows` says; zero for invalid records."""
    problem = rows.problem
    if not blank:
        return np.asarray(clip_rows(problem._rows(X)[0] * rows.factors, 1.0))
    numbers, valid = valid_records(problem, X, y)
    found = np.zeros((len(valid), problem.features))
    found[valid] = clip_rows(problem._rows(numbers[valid])[0] * rows.factors, 1.0)
    return found


def _targets(problem: Problem, y: Any, there: NDArray[np.bool_]) -> Floats:
    """Targets in [-1, 1] of some users."""
    bound = getattr(problem.loss, "target_bound", 1.0)
    return np.clip(problem.loss.targets(np.asarray(y)[there]) / bound, -1.0, 1.0)


def unmoved(rows: Rows) -> View:
    """The coordinates of a run without an opening: rows and their constant scaled by public facts."""
    return View(Coordinates(rows.factors))
