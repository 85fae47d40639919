"""Least squares from noisy moments, with intervals that know of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..validation import real
from .moments import MomentSums

Floats = NDArray[np.float64]
# Share of a coefficient that may lie in directions that the noise hides before the data no longer decide it.
LOST = 0.01
# A direction without any data has an eigenvalue of so many standard deviations of the noise in 1 of 160 fits.
SEEN = 2.5


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
        False where the noise hides the data in a coefficient's direction: then its interval is (-inf, inf), or what a declared
        bound leaves.
    users : int
        How many people answered.
    bias : ndarray of shape (columns,), optional
        How far a coefficient may be off beside its standard error; default: infinity where it is not determined, 0 elsewhere.
    limits : ndarray of shape (columns, 2), optional
        Declared limits, which hold the intervals of coefficients that are not determined; default: none.

    Attributes
    ----------
    std : ndarray of shape (columns,)
        Standard errors; infinity where a coefficient is not determined and nothing bounds it.
    p_values : ndarray of shape (columns,)
        Two-sided p-values of "the coefficient is 0"; 1 where it is not determined and nothing bounds it.

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
    bias: Floats | None = None
    limits: Floats | None = None

    @property
    def _bias(self) -> Floats:
        return np.where(self.determined, 0.0, np.inf) if self.bias is None else self.bias

    @property
    def std(self) -> Floats:
        """Standard errors; infinity where a coefficient is not determined and nothing bounds it."""
        return np.where(np.isinf(self._bias), np.inf, np.sqrt(np.maximum(self.covariance.diagonal(), 0.0)))

    def intervals(self, level: float = 0.95) -> Floats:
        """Return the confidence intervals of the coefficients.

        Parameters
        ----------
        level : float, default 0.95
            Confidence level, between 0 and 1.

        Returns
        -------
        ndarray of shape (columns, 2)
            Low and high ends, one row per coefficient: (-inf, inf) where the data do not decide it and nothing bounds it.

        Raises
        ------
        ArgumentError
            Where level is not between 0 and 1.
        """
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
        """Return linear combinations of the coefficients, as for other units.

        Parameters
        ----------
        matrix : ndarray of shape (new, columns)
            The combinations.
        shift : ndarray of shape (new,) or float, default 0
            Added to them.

        Returns
        -------
        Coefficients
            With standard errors from the covariance. The data decide a combination where they decide all of its parts.
        """
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

    Parameters
    ----------
    coef : ndarray of shape (columns,)
        The coefficients.
    covariance : ndarray of shape (columns, columns)
        Their estimated covariance.
    determined : ndarray of bool, shape (columns,)
        False where the noise hides the data in a coefficient's direction: then its interval is (-inf, inf), or what a declared
        bound leaves.
    users : int
        How many people answered.
    bias : ndarray of shape (columns,), optional
        How far a coefficient may be off beside its standard error; default: infinity where it is not determined, 0 elsewhere.
    limits : ndarray of shape (columns, 2), optional
        Declared limits, which hold the intervals of coefficients that are not determined; default: none.
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

    residual_variance: float = field(kw_only=True)


def least_squares(
    moments: MomentSums, target: int = 0, columns: Sequence[int] | None = None, bounds: Floats | None = None
) -> LeastSquares:
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
    bounds : ndarray of shape (columns,), optional
        Declared: how large each true coefficient is at most, either way. It keeps every interval finite.

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
        seen(values, vectors, threshold),
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
        The share of the target's variance that is explained, and its standard error; None where the noise hides that.
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


def seen_from(edge: float, matrix_std: float) -> float:
    """Return the eigenvalue from which on a direction counts as seen: half of the edge, or what noise alone hardly reaches.

    Parameters
    ----------
    edge : float
        About the largest eigenvalue of the noise.
    matrix_std : float
        Noise of a diagonal entry, which is that of an eigenvalue.

    Returns
    -------
    float
        The eigenvalue. Noise lowers the least ones, so the true ones are larger as a rule.
    """
    return max(edge / 2, SEEN * matrix_std)


def seen(values: Floats, vectors: Floats, threshold: float) -> NDArray[np.bool_]:
    """Say of each coefficient whether the data decide it: hardly any of it lies in directions that are not seen.

    Parameters
    ----------
    values, vectors : ndarray
        What `raised_spectrum` gave.
    threshold : float
        What `seen_from` gave.

    Returns
    -------
    ndarray of bool, shape (columns,)
        One entry per coefficient.
    """
    return np.asarray((vectors[:, values < threshold] ** 2).sum(axis=1) <= LOST)


_Solution = TypeVar("_Solution", bound=Coefficients)


def within_bounds(
    solution: _Solution, spectrum: tuple[Floats, Floats, Floats, float], matrix_std: float, bounds: Floats, reach: Floats
) -> _Solution:
    """Return the solution with finite intervals for coefficients that the data do not decide, from declared bounds on all.

    With U the directions that are not seen and h what a step has to find, coef - truth is
    -U (1 - value/raised) U'h + A^-1 (X'r + e - E h). The first part is at most its sum over |h|; the noise E h counts U'h at its
    largest beside what the estimate knows of it.

    Parameters
    ----------
    solution : Coefficients
        What was solved.
    spectrum : tuple
        What `raised_spectrum` and `seen_from` gave.
    matrix_std : float
        Noise of a diagonal entry of the matrix.
    bounds : ndarray of shape (columns,)
        The true coefficients lie within these, either way.
    reach : ndarray of shape (columns,)
        Bounds on h, which is the truth itself where a step began from 0.

    Returns
    -------
    Coefficients
        Of the same kind.
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
