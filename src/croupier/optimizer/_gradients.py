"""The queries of a run's rounds, what each user answers: gradients, and before them openings that ask about rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import LinearVectors
from ..population.population import Query
from ..problem import Problem, Squared
from ..problem.custom import is_known
from ..problem.problem import Coordinates, Objective, Recast, Smoothed, clip_rows, focused
from ..protocol._sparse import SparseVectors, second_moments, symmetric_matrix
from ..validation import Mask, finite_rows, numbers_or_nan, one_by_one, taken

# What users answer who may hold an invalid record: a public default, and nothing that says so.
#
# A blank is a record whose loss has gradient 0 at every theta. In a problem with l2 it still has the regulariser's gradient, which
# all users share. So its vector is within the same bound as everybody's, and is the same whatever the record holds.

Floats = NDArray[np.float64]


def blank_products(objective: Problem | Smoothed | Recast, theta: Floats, X: Any, y: Any) -> LinearVectors:
    """`linear_gradients` of the valid records, and 0 times a row of zeros for the others."""
    rows, valid = valid_records(objective, X, y)
    if valid.all():
        return objective.linear_gradients(theta, rows, y)
    some = objective.linear_gradients(theta, rows[valid], one_by_one(y)[valid])
    features, slopes = (_spread(part, valid) for part in (some.rows, some.coefficients))
    squares = None if some.squares is None else _spread(some.squares, valid)
    return LinearVectors(features, slopes, some.shift, squares)


def blank_vectors(objective: Objective, theta: Floats, X: Any, y: Any) -> Floats:
    """The gradients of one's own loss of the valid records, and 0 for the others, and where a gradient is not finite."""
    rows, valid = valid_records(objective, X, y)
    if valid.all():
        vectors = objective.gradients(theta, rows, y)
    elif valid.any():
        vectors = _spread(objective.gradients(theta, rows[valid], None if y is None else one_by_one(y)[valid]), valid)
    else:
        return np.zeros((len(rows), objective.dim))
    finite = finite_rows(vectors)
    return vectors if finite.all() else np.where(finite[:, np.newaxis], vectors, 0.0)


def valid_records(objective: Objective, X: Any, y: Any) -> tuple[Any, Mask]:
    """X as numbers, and whose record is valid: finite features, a target that the loss takes. Each record by itself."""
    problem = objective.problem if isinstance(objective, Smoothed | Recast) else objective
    rows = numbers_or_nan(X) if isinstance(problem, Problem) else X
    valid = finite_rows(rows)
    if y is None or np.shape(y) != valid.shape:  # which is refused, where it is wrong, for everybody
        return rows, valid
    targets = one_by_one(y)
    if not isinstance(problem, Problem):
        return rows, valid & (finite_rows(targets) if targets.dtype.kind == "f" else True)
    loss = problem.loss
    return rows, valid & (
        loss.valid(targets) if is_known(type(loss)) else taken(lambda some: loss.targets(targets[some]), len(targets))
    )


def _spread(part: NDArray[Any], valid: Mask) -> NDArray[Any]:
    """What the valid records have, with zeros for the others in between."""
    whole = np.zeros((len(valid), *part.shape[1:]), dtype=part.dtype)
    whole[valid] = part
    return whole


@dataclass(frozen=True)
class Gradients(Query):
    """The query of a round: the gradients of some users' losses at theta; with `blank`, of those whose record is valid."""

    objective: Objective
    theta: Floats
    blank: bool = False

    def __call__(self, X: Any, y: Any) -> Floats:
        if self.blank:
            return np.asarray(self._linear(X, y)) if self.parallel else blank_vectors(self.objective, self.theta, X, y)
        return self.objective.gradients(self.theta, X, y)

    @property
    def parallel(self) -> bool:
        """Whether these are our own gradients, which threads can compute side by side; of others that is not known."""
        problem = self.objective.problem if isinstance(self.objective, Smoothed | Recast) else self.objective
        return type(problem) is Problem and is_known(type(problem.loss))

    @property
    def about(self) -> bytes:
        """What of the question is not in theta: the coordinates that earlier rounds have found."""
        return b"" if self.coordinates is None else self.coordinates.digest

    @property
    def coordinates(self) -> Coordinates | None:
        """Those that gradients are taken in, where earlier rounds have found some."""
        return self.objective.coordinates if isinstance(self.objective, Recast) else None

    def taken_in(self, coordinates: Coordinates) -> Gradients:
        """The same question in these coordinates, in place of others that were found."""
        return replace(self, objective=replace(cast(Recast, self.objective), coordinates=coordinates))

    def vectors(self, X: Any, y: Any) -> Floats | LinearVectors:
        """The same as products of slopes and features, where they are our own."""
        return self._linear(X, y) if self.parallel else self(X, y)

    def _linear(self, X: Any, y: Any) -> LinearVectors:
        objective = cast(Problem | Smoothed | Recast, self.objective)
        if self.blank:
            return blank_products(objective, self.theta, X, y)
        return objective.linear_gradients(self.theta, X, y)


# The first rounds of a run that ask about rows, not about gradients, and the coordinates that are found from what comes back.
#
# A run's rounds may ask different questions under one draw of secret lots (accounting, section 9). An opening asks for the mean
# of rows, or for their second moments; from the released sums everybody can compute the coordinates in which later rounds
# descend.


# Eigenvalues of second moments below this many edges of their noise are raised to it: what lies below is noise. With targets, whose
# least squares a run begins at, it is the second; or the whole edge, where that is a large part of rows' squared length, at most 1.
_FLOOR, _FLOOR_OF_SQUARES, _LARGE_EDGE = 0.25, 0.5, 0.1
# Centred rows are not blown up by more than this, squared: were they all alike, nothing but noise would be left.
_LEAST_SPREAD = 0.1
# The part of a row's squared length that the target has beside it in second moments with targets.
TARGET_SHARE = 0.3
# The part of the squared length that a row itself has beside its squares; and the standard errors to which mean squares are raised.
MEAN_SHARE, _LEAST_SQUARES = 0.3, 1.5
# People count by their odds where they would do so by this much on average: where few have even odds, little would be left.
_LEAST_EVEN, _POINTS = 0.25, 32


@dataclass(frozen=True)
class Rows:
    """How a problem's rows are sent: features and constant scaled so that a row is at most 1 long.

    `problem`: Whose rows they are. `share`: The part of the squared length that the constant has, where rows have one.
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
    """What an opening has found: coordinates, the largest share of rows' energy in one direction of them, where to begin, the
    direction of the mean row, and second moments of rows, their constant last, in these coordinates; and of least squares the mean
    target, the noise of an entry of a mean row, and how much more of it the target has."""

    coordinates: Coordinates
    steepest: float = 1.0
    start: Floats | None = None
    middle: Floats | None = None
    moments: Floats | None = None
    mean: Floats | None = None
    level: tuple[float, float, float] | None = None

    def focus(self, theta: Floats, focus: float) -> float:
        """`focus` where odds are so near to even at theta that people still count on average, if scores are normal; else 0."""
        if self.moments is None:
            return 0.0
        middle = 0.0 if self.mean is None else float(theta @ self.mean)
        spread = math.sqrt(max(float(theta @ self.moments @ theta) - middle**2, 0.0))
        points, weights = np.polynomial.hermite_e.hermegauss(_POINTS)
        even = float(weights @ focused(middle + spread * points, 1.0)) / math.sqrt(2 * math.pi)
        return focus if even > _LEAST_EVEN else 0.0


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
        centre = shrunk(mean, math.hypot(noise, sampling))
        factors = self.rows.factors
        scale = 1 / math.sqrt(max(1 - float(mean @ centre), _LEAST_SPREAD))
        back = math.sqrt(1 - self.rows.share) / factors[:-1]  # from rows at most 1 long to the problem's
        turn = np.append(factors[:-1] * scale, factors[-1])
        middle = np.append(np.zeros(self.dim), 1.0)  # of rows without their mean: the constant
        left = middle * math.sqrt(self.rows.share)
        return View(Coordinates(turn, np.append(centre * back, 0.0), self.rows.problem.constant), middle=middle, mean=left)


@dataclass(frozen=True)
class RowSpreads(Query):
    """Each user's row z, at most 1 long with its constant, beside the squares of its entries; zero for an invalid record."""

    rows: Rows
    blank: bool = False
    norm = 1.0
    parallel = True

    @property
    def dim(self) -> int:
        return 2 * self.rows.problem.features

    def __call__(self, X: Any, y: Any) -> Floats:
        rows = scaled_rows(self.rows, X, y, self.blank)
        return np.hstack([math.sqrt(MEAN_SHARE) * rows, math.sqrt(1 - MEAN_SHARE) * rows * rows])

    def found(self, spreads: Floats, noise: float, sampling: float = 0.0) -> View:
        """Coordinates in which every column has mean 0 and about the same size, from a mean of vectors with so much noise.

        A column whose spread is lost in the noise is not blown up beyond it.
        """
        means, squares = np.split(spreads, 2)
        means, squares = means / math.sqrt(MEAN_SHARE), squares / math.sqrt(1 - MEAN_SHARE)
        noise = math.hypot(noise, sampling * math.sqrt(min(1.0, max(0.0, float(squares.sum())))))
        centre = shrunk(means[:-1], noise / math.sqrt(MEAN_SHARE)) if self.rows.problem.constant else np.zeros(0)
        centre = np.append(centre, np.zeros(len(means) - len(centre)))
        spread = squares - centre**2
        raised = np.maximum(spread, max(_LEAST_SQUARES * noise / math.sqrt(1 - MEAN_SHARE), 1e-6))
        energy = np.maximum(spread, 0.0) / raised
        total = max(float(energy.sum()), 1.0)
        factors, steepest = self.rows.factors, max(float(energy.max()) / total, 1 / len(squares))
        turn = factors / np.sqrt(raised * total)
        if not self.rows.problem.constant:
            return View(Coordinates(turn), steepest)
        return View(Coordinates(turn, centre / factors, self.rows.problem.constant), steepest)


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
        edge = noise * math.sqrt(2 * features)
        floor = _FLOOR if not target else _FLOOR_OF_SQUARES if edge <= _LARGE_EDGE else 1.0
        raised = np.maximum(values, max(floor * edge, 1e-6))
        energy = np.maximum(values, 0.0) / raised
        total = max(float(energy.sum()), 1.0)
        white = (vectors * (1 / np.sqrt(raised * total))) @ vectors.T
        start = middle = mean = level = None
        if self.rows.problem.constant:  # products with the constant are the mean, except for a factor
            mean = white @ matrix[:features, features - 1] / (math.sqrt(self.rows.share) * (1 - target))
            middle = mean / max(float(np.linalg.norm(mean)), 1e-300)
        if target:
            products = matrix[:features, features] / math.sqrt(target * (1 - target))
            bound = getattr(self.rows.problem.loss, "target_bound", 1.0)
            start = vectors @ (vectors.T @ products / np.sqrt(raised)) * math.sqrt(total) * bound
            if self.rows.problem.constant:
                # entries of svec are products times sqrt 2
                told = float(products[-1]) * bound / math.sqrt(self.rows.share)
                level = (told, noise / math.sqrt(2 * self.rows.share), bound * math.sqrt((1 - target) / target))
        within = white @ matrix[:features, :features] @ white / (1 - target)
        return View(
            Coordinates(white * factors), max(float(energy.max()) / total, 1 / features), start, middle, within, mean, level
        )


def shrunk(mean: Floats, noise: float) -> Floats:
    """A mean with so much noise in every entry, less what of its length is noise."""
    length = float(mean @ mean)
    return np.asarray(mean * (max(0.0, 1 - len(mean) * noise**2 / length) if length else 0.0))


def opening_query(algorithm: str, rows: Rows, blank: bool) -> RowMeans | RowSpreads | RowMoments:
    """What an opening asks."""
    if algorithm in ("mean", "spread"):
        return RowMeans(rows, blank) if algorithm == "mean" else RowSpreads(rows, blank)
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
