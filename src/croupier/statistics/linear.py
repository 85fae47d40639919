"""Least squares from noisy moments, with intervals that know of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..validation import real
from .moments import MomentSums

Floats = NDArray[np.float64]
# Share of a coefficient that may lie in directions below the noise's edge before it counts as not determined.
LOST = 0.01


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients with their uncertainty: sampling and privacy noise together.

    Parameters
    ----------
    coef : ndarray of shape (columns,)
        The coefficients.
    covariance : ndarray of shape (columns, columns)
        Their estimated covariance.
    determined : ndarray of bool, shape (columns,)
        False where the data in a coefficient's direction cannot be told from noise, so that no interval is given.
    users : int
        How many people answered.

    Attributes
    ----------
    std : ndarray of shape (columns,)
        Standard errors; NaN where a coefficient is not determined.
    p_values : ndarray of shape (columns,)
        Two-sided p-values of "the coefficient is 0"; NaN where it is not determined.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import Coefficients
    >>> fit = Coefficients(np.array([2.0]), np.array([[0.01]]), np.array([True]), users=100)
    >>> fit.std.round(3).tolist(), bool(fit.p_values[0] < 1e-6)
    ([0.1], True)
    """

    coef: Floats
    covariance: Floats
    determined: NDArray[np.bool_]
    users: int

    @property
    def std(self) -> Floats:
        """Standard errors; NaN where a coefficient is not determined."""
        return np.where(self.determined, np.sqrt(np.maximum(self.covariance.diagonal(), 0.0)), np.nan)

    def intervals(self, level: float = 0.95) -> Floats:
        """Return the confidence intervals of the coefficients.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level, between 0 and 1.

        Returns
        -------
        ndarray of shape (columns, 2)
            Low and high ends, one row per coefficient; NaN where it is not determined.

        Raises
        ------
        ArgumentError
            Where level is not between 0 and 1.
        """
        real("level", level, above=0, below=1, remedy="0.95 is usual.")
        half = float(ndtri((1 + level) / 2)) * self.std
        return np.column_stack([self.coef - half, self.coef + half])

    @property
    def p_values(self) -> Floats:
        """Two-sided, of "the coefficient is 0"; NaN where it is not determined."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(2 * ndtr(-np.abs(self.coef / self.std)))


@dataclass(frozen=True, eq=False)
class LeastSquares(Coefficients):
    """Coefficients of one target on some columns, with their uncertainty: sampling and privacy noise together.

    Parameters
    ----------
    coef : ndarray of shape (columns,)
        The coefficients.
    covariance : ndarray of shape (columns, columns)
        Their estimated covariance.
    determined : ndarray of bool, shape (columns,)
        False where the data in a coefficient's direction cannot be told from noise, so that no interval is given.
    users : int
        How many people answered.
    residual_variance : float
        Estimated variance of what the columns do not explain.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import LeastSquares
    >>> fit = LeastSquares(np.array([2.0]), np.array([[0.01]]), np.array([True]), residual_variance=1.0, users=100)
    >>> fit.std.round(3).tolist(), bool(fit.p_values[0] < 1e-6)
    ([0.1], True)
    """

    residual_variance: float


def least_squares(moments: MomentSums, target: int = 0, columns: Sequence[int] | None = None) -> LeastSquares:
    """Solve for one target, on all columns or on some. This is post-processing, which costs no privacy.

    Eigenvalues of the noisy x x' are raised to half the noise's edge, which does better than adding a ridge. To first order
    coef - truth = A^-1 (X'r + e - E coef), E the noise in A = mean x x', e that in mean x y; the covariance adds up all three.

    Parameters
    ----------
    moments : MomentSums
        Noisy second moments, the answer to `Moments`.
    target : int, default 0
        Which of the declared targets.
    columns : sequence of int, optional
        The columns to fit on; all where it is left out.

    Returns
    -------
    LeastSquares
        Coefficients with their covariance.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(20_000, 2))
    >>> moments = cr.ask(cr.statistics.Moments(features=2), (X, X @ [0.5, -0.25]), epsilon=1.0, delta=1e-6).value
    >>> fit = cr.statistics.least_squares(moments)
    >>> bool((np.abs(fit.coef - [0.5, -0.25]) < 6 * fit.std).all())
    True
    """
    if columns is not None:
        moments = moments.of(columns)
    values, vectors, raised = raised_spectrum(moments.matrix, moments.edge)
    inverse = (vectors / raised) @ vectors.T
    products = moments.products[:, target]
    coef = inverse @ products
    noise = _noise_covariance(moments, coef)
    # what is left of y^2; fitting the noise took some of it away
    left = float(moments.squares[target] - coef @ products + np.sum(inverse * noise))
    residual = min(max(left, 0.0), 1.0)
    sampling = residual / moments.users * ((vectors * raised) @ vectors.T)
    covariance = inverse @ (sampling + noise) @ inverse
    lost = (vectors[:, values < moments.edge] ** 2).sum(axis=1)
    return LeastSquares(coef, covariance, lost <= LOST, moments.users, residual_variance=residual)


def explained(solution: LeastSquares, moments: MomentSums, target: int, constant: float) -> tuple[float | None, float | None]:
    """Estimate R^2, with its standard error.

    With E = 2 coef'p - coef'A coef what is explained of V, the variance of y, to first order the error of R^2 is
    (d E - R^2 d(y^2) - (1 - R^2) 2 mean d mean) / V: coef makes E stationary.

    Parameters
    ----------
    solution : LeastSquares
        The regression, whose last column is a constant.
    moments : MomentSums
        What it was solved from.
    target : int
        Which of the declared targets.
    constant : float
        The last column's entry.

    Returns
    -------
    tuple of two floats
        The share of the target's variance that is explained, and its standard error; None where that is not told from noise.
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
    """Eigenvalues and eigenvectors of a noisy matrix, and its eigenvalues raised to half the edge of the noise.

    Parameters
    ----------
    matrix : ndarray of shape (columns, columns)
        Symmetric.
    edge : float
        About the largest eigenvalue of the noise.

    Returns
    -------
    tuple of ndarray
        Eigenvalues, eigenvectors as columns, raised eigenvalues.
    """
    values, vectors = np.linalg.eigh(matrix)
    return values, vectors, np.maximum(values, max(edge / 2, 1e-12 * float(np.abs(values).max(initial=0.0)), 1e-300))


def _noise_covariance(moments: MomentSums, coef: Floats) -> Floats:
    """Of e - E coef: rows i and j of the symmetric E share one entry."""
    shared = moments.matrix_variance * np.outer(coef, coef)
    np.fill_diagonal(shared, moments.matrix_variance @ coef**2 + moments.products_std**2)
    return shared
