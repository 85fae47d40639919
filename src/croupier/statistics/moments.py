"""Second moments of rows and targets, all in one sum: what least squares, correlations and principal components need.

A user with row x and targets y sends (a svec(x x'), b x y', c y^2), svec with off-diagonal entries times sqrt 2. The proof of its
range is in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..protocol import SparseVectors, SumEstimate
from ..validation import ArgumentError, Found, whole
from .query import finite, require_numbers, unit_rows

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Weights of x x', x y and y^2 in a user's vector, for the least error of coefficients (docs/statistics.md).
ROWS, PRODUCTS, SQUARES = 0.68, 0.68, 0.27


@dataclass(frozen=True)
class Moments:
    """The second moments of rows with |x| <= 1 and of one or several targets that are declared beforehand.

    Longer rows are scaled down to 1, and targets are clipped to [-1, 1]. What is not finite is sent as zero.

    Parameters
    ----------
    features : int
        Columns of X.
    targets : int, default 1
        How many targets; 0 for the rows alone. One target is y. Several are the last columns of X, after the features, since a
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
        How many entries of a vector there usually are.
    pairs : tuple of (ndarray, ndarray)
        Rows and columns of the entries of x x' that are sent.
    parallel : bool
        True: threads may call it at once.

    Raises
    ------
    ArgumentError
        Where a parameter is out of range.

    Guarantee
    ---------
    That of the plan under which it is asked, for any records. docs/statistics.md proves norm and diameter.

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
            raise ArgumentError("X.shape", X.shape, f"(users, {columns})", "Say how many features and targets there are.")
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

    def products(self, X: Any, y: Any) -> Floats | SparseVectors:
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
        """Columns and values of the vectors of rows that have so many entries each."""
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

    Parameters
    ----------
    matrix : ndarray of shape (features, features)
        Mean of x x'.
    matrix_variance : ndarray of shape (features, features)
        Variance of the noise in each entry; 0 where the entry is known to be 0.
    products : ndarray of shape (features, targets)
        Mean of x y', one column per target.
    products_std : float
        Standard deviation of the noise in an entry of `products`.
    squares : ndarray of shape (targets,)
        Mean of y^2.
    squares_std : float
        Standard deviation of the noise in an entry of `squares`.
    users : int
        How many people answered.

    Attributes
    ----------
    matrix_std : float
        Standard deviation of the noise in a diagonal entry of `matrix`.
    edge : float
        About the largest eigenvalue of the noise: what lies below cannot be told from noise.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import MomentSums
    >>> one = np.ones(1)
    >>> sums = MomentSums(np.eye(1), 0.01 * np.eye(1), np.eye(1), 0.1, squares=one, squares_std=0.1, users=100)
    >>> sums.matrix_std, sums.edge
    (0.1, 0.2)
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
        """How large the noise's own largest eigenvalue is: what lies below cannot be told from noise."""
        return noise_edge(self.matrix_variance)

    def of(self, columns: Sequence[int] | Integers) -> MomentSums:
        """Return the moments of some columns alone. This is post-processing, which costs no privacy.

        Parameters
        ----------
        columns : sequence of int
            The columns, counted from 0.

        Returns
        -------
        MomentSums
            Their moments, in the given order.
        """
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
        return f"second moments of {shape}, {self.users:,} people; noise {self.matrix_std:.3g} a diagonal entry"


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
