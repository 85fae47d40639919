"""Second moments of rows and targets, all in one sum: what least squares, correlations and principal components need.

A user with row x and targets y sends (a svec(x x'), b x y', c y^2), svec with off-diagonal entries times sqrt 2. The proof of its
range is in docs/statistics-theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..population import Query
from ..protocol import SumEstimate
from ..protocol._sparse import SparseVectors
from ..validation import ArgumentError, Found, real, whole
from .query import finite, require_numbers, unit_rows

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Weights of x x', x y and y^2 in a user's vector, for the least error of coefficients (docs/statistics-theory.md).
ROWS, PRODUCTS, SQUARES = 0.68, 0.68, 0.27


@dataclass(frozen=True)
class Moments(Query):
    """The second moments of rows with |x| <= 1 and of one or several targets that are declared beforehand.

    Longer rows are scaled down to 1, and targets are clipped to [-1, 1]. What is not finite is sent as zero.

    Parameters
    ----------
    features : int
        Columns of X.
    targets : int, default 1
        Number of targets; 0 for the rows alone. One target is y. Several are the last columns of X, after the features, since a
        population has one y.
    exclusive : tuple of tuple of int, default ()
        Groups of columns of which at most one is not 0 in any row, as those of a one-hot category. Their products are known to be 0
        and are not sent, which saves bits and noise. A record that breaks the rule is not counted right, and loses no privacy.

    Attributes
    ----------
    dim : int
        Coordinates of a vector.
    norm : float
        Bound on the l2 norm of a vector.
    diameter : float
        Bound on the l2 distance of two vectors.
    entries : int
        Usual number of entries of a vector.
    pairs : tuple of (ndarray, ndarray)
        Rows and columns of the entries of x x' that are sent.
    parallel : bool
        True: threads may call it at once.

    Raises
    ------
    ArgumentError
        If a parameter is out of range.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records. docs/statistics-theory.md proves norm and diameter.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(20_000, 2))
    >>> answer = cr.ask(cr.statistics.Moments(features=2, targets=0), X, epsilon=1.0, delta=1e-6)
    >>> bool(np.abs(answer.value.matrix - X.T @ X / 20_000).max() < 6 * answer.value.matrix_std)
    True
    """

    features: int
    targets: int = 1
    exclusive: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        whole("features", self.features, at_least=1, at_most=1_400, remedy="Moments of more columns are too many to send.")
        whole("targets", self.targets, at_least=0, at_most=1_000, remedy="Count the columns of y.")
        object.__setattr__(self, "exclusive", checked_groups(self.exclusive, self.features))

    @cached_property
    def pairs(self) -> tuple[Integers, Integers]:
        """Rows and columns of the entries of x x' that are sent: the upper triangle without known zeros."""
        known = np.zeros((self.features, self.features), dtype=bool)
        for group in self.exclusive:
            known[np.ix_(group, group)] = True
        np.fill_diagonal(known, False)
        first, second = np.nonzero(np.triu(~known))
        return first, second

    @property
    def dim(self) -> int:
        """Coordinates of a vector."""
        return len(self.pairs[0]) + self.features * self.targets + self.targets

    @property
    def norm(self) -> float:
        """For |x| <= 1 and |y| <= 1 the three parts have norm |x|^2, |x| |y| and at most |y|^2."""
        a, b, c = self._weights
        return math.sqrt(a**2 + b**2 + c**2)

    @property
    def diameter(self) -> float:
        """Its square is the largest of 2a^2 + 2b^2 + 2c^2, 2a^2 + 2b^2 + b^4/(2a^2) + 2c^2 (1 - 1/k) and 2a^2 + b^2 + c^2."""
        a, b, c = (weight**2 for weight in self._weights)
        if not self.targets:
            return math.sqrt(2) * self.norm
        corners = [2 * a + 2 * b + b**2 / (2 * a) + 2 * c * (1 - 1 / self.targets), 2 * a + b + c]
        if self.targets > 1:
            corners.append(2 * (a + b + c))
        return math.sqrt(max(corners))

    @property
    def _weights(self) -> tuple[float, float, float]:
        return (ROWS, PRODUCTS, SQUARES) if self.targets else (1.0, 0.0, 0.0)

    parallel = True

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records of another shape.

        Parameters
        ----------
        X : array_like of shape (n, columns)
            Some users' records: the features, then several targets.
        y : array_like of shape (n,) or None
            Their target, where there is one.

        Raises
        ------
        ArgumentError
            Where X has another number of columns, or the target is missing.
        """
        columns = self.features + (self.targets if self.targets > 1 else 0)
        if X.shape[1] != columns:
            raise ArgumentError("X.shape", X.shape, f"(users, {columns})", "State how many features and targets there are.")
        if self.targets == 1 and y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y)", "Pass the targets, or ask for targets=0.")
        if self.targets == 1:
            require_numbers(y)

    def _records(self, X: Any, y: Any) -> tuple[Floats, Floats]:
        """Rows of length at most 1, and targets whose length is at most 1 together."""
        if self.targets > 1:
            X, y = X[:, : self.features], X[:, self.features :]
        rows = unit_rows(X)
        if not self.targets:
            return rows, np.zeros((len(rows), 0))
        targets = np.clip(finite(np.array(y, dtype=np.float64).reshape(len(rows), self.targets)), -1, 1)
        return rows, targets / math.sqrt(self.targets)

    def __call__(self, X: Any, y: Any) -> Floats:
        return self._dense(*self._records(X, y))

    def _dense(self, rows: Floats, targets: Floats) -> Floats:
        a, b, c = self._weights
        first, second = self.pairs
        scale = np.where(first == second, a, a * math.sqrt(2))
        products = b * (rows[:, :, np.newaxis] * targets[:, np.newaxis]).reshape(len(rows), self.features * self.targets)
        return np.hstack([rows[:, first] * rows[:, second] * scale, products, c * targets**2])

    @property
    def entries(self) -> int:
        """How many records are worked on at a time is decided by this: rows of one-hot categories have few entries."""
        return min(self.dim, 4 * (self.features + 1))

    def vectors(self, X: Any, y: Any) -> Floats | SparseVectors:
        """Return the same vectors by their entries, where most of a row's entries are 0.

        Parameters
        ----------
        X : array_like of shape (n, columns)
            Some users' records.
        y : array_like of shape (n,) or None
            Their target, where there is one.

        Returns
        -------
        SparseVectors or ndarray of shape (n, dim)
            One vector per record; dense where most entries are not 0.
        """
        rows, targets = self._records(X, y)
        there = rows != 0
        counts = there.sum(axis=1)
        if counts.size == 0 or float(counts.mean()) > self.features / 2:
            return self._dense(rows, targets)
        users = [np.flatnonzero(counts == k) for k in np.unique(counts)]
        parts = [self._entries(rows[some], there[some], targets[some], int(counts[some[0]])) for some in users]
        return SparseVectors(self.dim, parts, users)

    def _entries(self, rows: Floats, there: NDArray[np.bool_], targets: Floats, entries: int) -> tuple[Integers, Floats]:
        """Columns and values of the vectors of rows that have this many entries each."""
        a, b, c = self._weights
        users, pairs = len(rows), len(self.pairs[0])
        # one row per entry, so that every operation below runs along the users
        columns = np.ascontiguousarray(np.nonzero(there)[1].reshape(users, entries).T)
        values = np.ascontiguousarray(rows[there].reshape(users, entries).T)
        first, crossed = entries * (entries + 1) // 2, entries * self.targets
        places = np.empty((first + crossed + self.targets, users), dtype=np.int64)
        vectors, at = np.empty(places.shape), 0
        for i in range(entries):  # the products of the i-th entry with itself and those after it
            here = slice(at, at := at + entries - i)
            np.multiply(values[i:], a * math.sqrt(2) * values[i], out=vectors[here])
            np.multiply(values[i], a * values[i], out=vectors[here.start])
            np.take(self._places, columns[i:] + columns[i] * self.features, out=places[here])
        if self.exclusive:
            vectors[:first][places[:first] == self.dim] = 0.0  # known zeros that are not: left out
        each = np.arange(self.targets)[:, np.newaxis]
        places[first : first + crossed] = (pairs + columns[:, np.newaxis] * self.targets + each).reshape(crossed, users)
        vectors[first : first + crossed] = b * (values[:, np.newaxis] * targets.T).reshape(crossed, users)
        places[first + crossed :], vectors[first + crossed :] = pairs + self.features * self.targets + each, c * targets.T**2
        return places.T, vectors.T

    @cached_property
    def _places(self) -> Integers:
        """The coordinate of every pair of columns, first the smaller; `dim`, where it is left out, for known zeros."""
        places = np.full((self.features, self.features), self.dim, dtype=np.int64)
        places[self.pairs] = np.arange(len(self.pairs[0]))
        return places.ravel()

    def decode(self, estimate: SumEstimate) -> MomentSums:
        """Read the moments from the noisy sum. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        MomentSums
            The noisy moments with the variances of their noise.
        """
        a, b, c = self._weights
        count, k = len(self.pairs[0]), math.sqrt(max(1, self.targets))
        mean, noise = estimate.mean, estimate.mean_noise_std
        first, second = self.pairs
        matrix, variance = np.zeros((self.features, self.features)), np.zeros((self.features, self.features))
        scale = np.where(first == second, a, a * math.sqrt(2))
        for i, j in ((first, second), (second, first)):
            matrix[i, j], variance[i, j] = mean[:count] / scale, (noise / scale) ** 2
        products = mean[count : count + self.features * self.targets].reshape(self.features, self.targets)
        return MomentSums(
            matrix=matrix,
            matrix_variance=variance,
            products=products / b * k if self.targets else products,
            products_std=noise / b * k if self.targets else 0.0,
            squares=mean[count + products.size :] / c * k**2 if self.targets else mean[:0],
            squares_std=noise / c * k**2 if self.targets else 0.0,
            users=estimate.users,
        )


@dataclass(frozen=True, eq=False)
class MomentSums:
    """Noisy second moments: means over users of x x', x y' and y^2, with the variances of their noise.

    `matrix` (features, features): Mean of x x'. `matrix_variance` (features, features): Variance of the noise in each entry; 0
    where the entry is known to be 0. `products` (features, targets): Mean of x y', one column per target. `products_std`: Standard
    deviation of the noise in an entry of `products`. `squares` (targets,): Mean of y^2. `squares_std`: Standard deviation of the
    noise in an entry of `squares`. `users`: How many people answered. `matrix_std`: Standard deviation of the noise in a diagonal
    entry of `matrix`. `edge`: About the largest eigenvalue of the noise: what lies below is indistinguishable from noise.
    """

    matrix: Floats
    matrix_variance: Floats
    products: Floats
    products_std: float
    squares: Floats
    squares_std: float
    users: int

    @property
    def matrix_std(self) -> float:
        """Noise of a diagonal entry of the matrix."""
        return float(np.sqrt(self.matrix_variance.diagonal().max()))

    @property
    def edge(self) -> float:
        """How large the noise's own largest eigenvalue is: what lies below is indistinguishable from noise."""
        return noise_edge(self.matrix_variance)

    def of(self, columns: Sequence[int] | Integers) -> MomentSums:
        """Return the moments of some columns alone. This is post-processing, which costs no privacy."""
        some = np.asarray(columns, dtype=np.int64)
        return MomentSums(
            self.matrix[np.ix_(some, some)],
            self.matrix_variance[np.ix_(some, some)],
            self.products[some],
            self.products_std,
            self.squares,
            self.squares_std,
            self.users,
        )

    def __str__(self) -> str:
        shape = f"{len(self.matrix)} columns, {self.products.shape[1]} target(s)"
        return f"second moments of {shape}, {self.users:,} people; noise {self.matrix_std:.3g} per diagonal entry"


def noise_edge(variance: Floats) -> float:
    """A symmetric matrix of independent entries has norm about 2 sqrt(the variances in a row, added up)."""
    return 2 * math.sqrt(float(variance.sum(axis=1).max(initial=0.0)))


def checked_groups(groups: Any, features: int) -> tuple[tuple[int, ...], ...]:
    """Groups of columns, each a tuple of at least two different ones."""
    remedy = "Give one list of column numbers per one-hot category, such as [[3, 4, 5], [6, 7]]."
    try:
        column_groups = tuple(
            tuple(whole("exclusive", column, at_least=0, at_most=features - 1, remedy=remedy) for column in group)
            for group in groups
        )
    except TypeError:
        raise ArgumentError("exclusive", groups, "lists of column numbers", remedy) from None
    if any(len(set(group)) != len(group) or len(group) < 2 for group in column_groups):
        raise ArgumentError("exclusive", groups, "groups of at least two different columns", remedy)
    return column_groups


# Least squares from noisy moments, with intervals that know of the noise.

# Share of a coefficient that may lie in directions that the noise hides before the data no longer decide it: at most LOST, and no
# more than the noise alone turns hidden directions towards it, up to TURNED times the expected share. More means that its column
# goes together with what is hidden: then a large slope there passes for one here.
LOST, TURNED = 0.01, 9.0
# A direction without any data has an eigenvalue of this many standard deviations of the noise in 1 of 160 fits.
SEEN = 2.5


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients with their uncertainty: sampling and privacy noise together.

    `coef` (columns,): The coefficients. `covariance` (columns, columns): Their estimated covariance. `determined` (columns,): False
    where the noise hides the data in a coefficient's direction: then its interval is (-inf, inf), or what a declared bound leaves.
    `users`: How many people answered. `bias` (columns,): How far a coefficient may be off beside its standard error; default:
    infinity if it is not determined, 0 elsewhere. `limits` (columns, 2): Declared limits, which hold the intervals of coefficients
    that are not determined; default: none. `std` (columns,): Standard errors; infinity if a coefficient is not determined and
    nothing bounds it. `p_values` (columns,): Two-sided p-values of "the coefficient is 0"; 1 where it is not determined and nothing
    bounds it.
    """

    coef: Floats
    covariance: Floats
    determined: NDArray[np.bool_]
    users: int
    bias: Floats | None = None
    limits: Floats | None = None

    @property
    def _bias(self) -> Floats:
        return np.where(self.determined, 0.0, np.inf) if self.bias is None else self.bias

    @property
    def std(self) -> Floats:
        """Standard errors; infinity if a coefficient is not determined and nothing bounds it."""
        return np.where(np.isinf(self._bias), np.inf, np.sqrt(np.maximum(self.covariance.diagonal(), 0.0)))

    def intervals(self, level: float = 0.95) -> Floats:
        """Return the confidence intervals of the coefficients."""
        real("level", level, above=0, below=1, remedy="0.95 is usual.")
        half = float(ndtri((1 + level) / 2)) * self.std + self._bias
        ends = np.column_stack([self.coef - half, self.coef + half])
        if self.limits is None:
            return ends
        within = np.clip(ends, self.limits[:, :1], self.limits[:, 1:])
        # an interval outside the declared limits, or of one point on them, is noise: then all that was declared is left
        within = np.where((within[:, :1] < within[:, 1:]), within, self.limits)
        return np.where(self.determined[:, np.newaxis], ends, within)

    @property
    def p_values(self) -> Floats:
        """Two-sided, of "the coefficient is 0"; 1 where it is not determined and nothing bounds it."""
        beyond = np.where(np.isinf(self._bias), 0.0, np.maximum(np.abs(self.coef) - self._bias, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(2 * ndtr(-np.where(beyond > 0, beyond / self.std, 0.0)))

    def combined(self, matrix: Floats, shift: Floats | float = 0.0) -> Coefficients:
        """Return linear combinations of the coefficients, as for other units."""
        size = np.abs(matrix)
        used = np.where(size > 0, self._bias, 0.0)  # an infinite bias of what has no part in a combination is none
        limits = None
        if self.limits is not None:
            middle, half = self.limits.mean(axis=1), np.diff(self.limits, axis=1)[:, 0] / 2
            limits = np.column_stack([matrix @ middle - size @ half, matrix @ middle + size @ half])
            limits += np.broadcast_to(shift, len(matrix))[:, np.newaxis]
        return Coefficients(
            coef=matrix @ self.coef + shift,
            covariance=matrix @ self.covariance @ matrix.T,
            determined=np.asarray(~((size > 0) & ~self.determined).any(axis=1)),
            users=self.users,
            bias=(size * used).sum(axis=1),
            limits=limits,
        )


@dataclass(frozen=True, eq=False)
class LeastSquares(Coefficients):
    """Coefficients of one target on some columns, with their uncertainty: sampling and privacy noise together.

    Beside the fields of `Coefficients`, `residual_variance`: Estimated variance of what the columns do not explain.
    """

    residual_variance: float = field(kw_only=True)


def least_squares(
    moments: MomentSums, target: int = 0, columns: Sequence[int] | None = None, bounds: Floats | None = None
) -> LeastSquares:
    """Solve for one target, on all columns or on some. This is post-processing, which costs no privacy.

    Eigenvalues of the noisy x x' are raised to half the noise's edge, which does better than adding a ridge. To first order
    coef - truth = A^-1 (X'r + e - E coef), E the noise in A = mean x x', e that in mean x y; the covariance adds up all three.
    """
    if columns is not None:
        moments = moments.of(columns)
    values, vectors, raised = raised_spectrum(moments.matrix, moments.edge)
    threshold = seen_from(moments.edge, moments.matrix_std)
    inverse = (vectors / raised) @ vectors.T
    products = moments.products[:, target]
    coef = inverse @ products
    noise = _noise_covariance(moments, coef)
    # what is left of y^2; fitting the noise took some of it away
    left = float(moments.squares[target] - coef @ products + np.sum(inverse * noise))
    residual = min(max(left, 0.0), 1.0)
    sampling = residual / moments.users * ((vectors * raised) @ vectors.T)
    solution = LeastSquares(
        coef,
        inverse @ (sampling + noise) @ inverse,
        seen(values, vectors, threshold, moments.matrix_std),
        moments.users,
        residual_variance=residual,
    )
    if bounds is None:
        return solution
    return within_bounds(solution, (values, vectors, raised, threshold), moments.matrix_std, bounds, bounds)


def explained(solution: LeastSquares, moments: MomentSums, target: int, constant: float) -> tuple[float | None, float | None]:
    """Estimate R^2, with its standard error.

    With E = 2 coef'p - coef'A coef what is explained of V, the variance of y, to first order the error of R^2 is
    (d E - R^2 d(y^2) - (1 - R^2) 2 mean d mean) / V: coef makes E stationary.
    """
    mean = float(moments.products[-1, target]) / constant
    variance = float(moments.squares[target]) - mean**2
    if variance <= 3 * moments.squares_std:
        return None, None
    share = max(0.0, 1 - solution.residual_variance / variance)
    slopes = 2 * solution.coef
    slopes[-1] -= 2 * (1 - share) * mean / constant
    shared = moments.matrix_variance * np.outer(solution.coef, solution.coef) ** 2  # entries off the diagonal count twice, at once
    noise = (moments.products_std * slopes) @ (moments.products_std * slopes) + 2 * shared.sum() - shared.trace()
    noise = (noise + (share * moments.squares_std) ** 2) / variance**2
    return share, float(np.sqrt(noise + 4 * share * (1 - share) ** 2 / moments.users))


def raised_spectrum(matrix: Floats, edge: float) -> tuple[Floats, Floats, Floats]:
    """Eigenvalues and eigenvectors of a noisy matrix, and its eigenvalues raised to half the edge of the noise."""
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors, np.maximum(values, max(edge / 2, 1e-12 * float(np.abs(values).max(initial=0.0)), 1e-300))


def seen_from(edge: float, matrix_std: float) -> float:
    """Return the eigenvalue from which on a direction counts as seen: half of the edge, or what noise alone hardly reaches."""
    return max(edge / 2, SEEN * matrix_std)


def seen(values: Floats, vectors: Floats, threshold: float, matrix_std: float) -> NDArray[np.bool_]:
    """Say of each coefficient whether the data decide it: hardly any of it lies in directions that are not seen.

    To first order the noise E turns a hidden direction u by v (v'Eu) / (value of u - value of v) towards every direction v that is
    seen, where v'Eu has at most half the variance of a diagonal entry of E.
    """
    hidden, shares = values < threshold, vectors**2
    gaps = values[~hidden, np.newaxis] - values[hidden]
    with np.errstate(divide="ignore"):  # without a gap, any share may be noise
        by_noise = shares[:, ~hidden] @ (matrix_std**2 / 2 / gaps**2).sum(axis=1)
    return np.asarray(shares[:, hidden].sum(axis=1) <= np.minimum(LOST, TURNED * by_noise))


_Solution = TypeVar("_Solution", bound=Coefficients)


def within_bounds(
    solution: _Solution, spectrum: tuple[Floats, Floats, Floats, float], matrix_std: float, bounds: Floats, reach: Floats
) -> _Solution:
    """Return the solution with finite intervals for coefficients that the data do not decide, from declared bounds on all.

    With U the directions that are not seen and h what a step has to find, coef - truth is
    -U (1 - value/raised) U'h + A^-1 (X'r + e - E h). The first part is at most its sum over |h|; the noise E h counts U'h at its
    largest beside what the estimate knows of it.
    """
    values, vectors, raised, threshold = spectrum
    hidden, unknown = values < threshold, np.where(solution.determined, 0.0, 1.0)
    left = np.where(hidden, np.minimum(1 - values / raised, 1.0), 0.0)
    bias = unknown * (np.abs((vectors * left) @ vectors.T) @ reach)
    largest = min(float(np.sum((np.abs(vectors[:, hidden].T) @ reach) ** 2)), float(reach @ reach))
    rows = unknown[:, np.newaxis] * ((vectors / raised) @ vectors.T)
    covariance = solution.covariance + matrix_std**2 * largest * rows @ rows.T
    return replace(solution, covariance=covariance, bias=bias, limits=np.column_stack([-bounds, bounds]))


def _noise_covariance(moments: MomentSums, coef: Floats) -> Floats:
    """Of e - E coef: rows i and j of the symmetric E share one entry."""
    shared = moments.matrix_variance * np.outer(coef, coef)
    np.fill_diagonal(shared, moments.matrix_variance @ coef**2 + moments.products_std**2)
    return shared
