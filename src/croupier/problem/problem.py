"""Linear models: a loss of the scores over a domain, with the constants that schedules and privacy need.

All constants come from public facts (feature_norm, the domain, the loss's own parameters), never from data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import LinearVectors, in_single, row_dots, row_squares
from ..validation import ArgumentError, Found, RecordError, real
from .custom import CustomProblem
from .domains import Domain, Floats
from .fingerprint import fingerprint, is_known
from .loss import Loss
from .objective import Objective
from .rows import scaled_down, too_long
from .smoothed import Smoothed

__all__ = ["CustomProblem", "Objective", "Problem", "Smoothed"]


@dataclass(frozen=True)
class Problem:
    """A linear model: loss(<theta, x>, y) + (l2 / 2) ||theta||^2 over a domain, for features of norm at most `feature_norm`.

    Rows longer than `feature_norm` are scaled down to it on the user's side.

    Parameters
    ----------
    loss : Loss
        The loss of a user's score.
    domain : Domain
        Where theta may lie; its dim is the number of features times the loss's outputs.
    feature_norm : float, default 1.0
        A public bound on the l2 norm of a row of X, above 0.
    l2 : float, default 0.0
        The weight of the regulariser, at least 0. Above 0 the problem is strongly convex.

    Raises
    ------
    ArgumentError
        Where an argument is out of its range, domain.dim is no multiple of the loss's outputs, or gradients have no public bound.

    Guarantee
    ---------
    All constants follow from these arguments, never from data.

    Examples
    --------
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> problem = Problem(loss=Logistic(), domain=Ball(dim=20, radius=10.0), feature_norm=1.0)
    >>> round(problem.lipschitz, 4), problem.smoothness, problem.strong_convexity
    (1.0, 0.25, 0.0)
    """

    loss: Loss
    domain: Domain
    feature_norm: float = 1.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        for name, kind in (("loss", Loss), ("domain", Domain)):
            if not isinstance(getattr(self, name), kind):
                raise ArgumentError(
                    name,
                    getattr(self, name),
                    f"a {kind.__name__}",
                    "For example loss=Logistic(), domain=Ball(dim=20, radius=10.0).",
                )
        remedy = "Give a public bound on the l2 norm of a row of X."
        real("feature_norm", self.feature_norm, above=0, at_most=1e100, remedy=remedy)
        real("l2", self.l2, at_least=0, remedy="0 is no regularisation.")
        if self.domain.dim % self.loss.outputs:
            raise ArgumentError(
                "domain.dim",
                self.domain.dim,
                f"a multiple of the loss's {self.loss.outputs} outputs",
                "theta holds one row of weights per class: dim = classes x features.",
            )
        if not math.isfinite(self.lipschitz):
            raise ArgumentError(
                "domain",
                self.domain,
                "bounded for this loss or with l2 > 0",
                "Use Ball or Box: the gradient must have a public bound.",
            )

    @property
    def dim(self) -> int:
        """The number of parameters: features times the loss's outputs."""
        return self.domain.dim

    @property
    def features(self) -> int:
        """The number of columns of X."""
        return self.dim // self.loss.outputs

    @property
    def lipschitz(self) -> float:
        """A bound on the l2 norm of every user's gradient, the regulariser's included."""
        return self._loss_lipschitz + (self.l2 * self.domain.norm_bound if self.l2 else 0.0)

    @property
    def _loss_lipschitz(self) -> float:
        return self.loss.slope_bound(self.feature_norm * self.domain.norm_bound) * self.feature_norm

    @property
    def smoothness(self) -> float | None:
        """A bound on how fast every user's gradient changes, the regulariser's included; None for a nonsmooth loss."""
        return None if self.loss.curvature is None else self.loss.curvature * self.feature_norm**2 + self.l2

    @property
    def strong_convexity(self) -> float:
        """How strongly convex every user's function is at least: l2."""
        return self.l2

    @property
    def usual_lipschitz(self) -> float:
        """The steepest gradient at theta = 0: few users have a steeper one once the model is any good."""
        return min(self.lipschitz, self.loss.slope_bound(0.0) * self.feature_norm + (self.lipschitz - self._loss_lipschitz))

    @property
    def usual_smoothness(self) -> float | None:
        """Smoothness of the mean loss as real data show it; see `Loss.usual_curvature`."""
        usual = self.loss.usual_curvature
        if usual is None:
            return None
        square = self.feature_norm**2
        if self.loss.curvature is None and self.domain.norm_bound > 0:
            # scores that fill less than [-2, 2] are for targets that fill less than [-1, 1]
            square = max(square, 2 * self.feature_norm / self.domain.norm_bound)
        return usual * square + self.l2

    def losses(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the loss of each user at theta, the regulariser included.

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.

        Returns
        -------
        numpy.ndarray of shape (users,)
            The losses.
        """
        rows, _, targets = self._records(X, y)
        return self.loss.value(self._scores(theta, rows), targets) + self.l2 / 2 * float(theta @ theta)

    @property
    def fingerprint(self) -> str:
        """Tells this problem from others, in any process."""
        own = [fingerprint(part) for part in (self.loss, self.domain) if not is_known(type(part))]
        return " ".join([repr(self), *own])

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records of another shape, and labels or targets that the loss does not take.

        Parameters
        ----------
        X : numpy.ndarray or sparse matrix of shape (users, features)
            One row of features per user.
        y : numpy.ndarray of shape (users,) or None
            One label or target per user.

        Raises
        ------
        ArgumentError
            Where y is missing, or X has another number of columns.
        RecordError
            Where the loss does not take a label or target.
        """
        self.check_shape(X, y)
        self.loss.targets(y)

    def check_shape(self, X: Any, y: Any) -> None:
        """Refuse records without targets or with another number of columns: what is wrong whatever is in them.

        Parameters
        ----------
        X, y : numpy.ndarray
            As in `check_records`.

        Raises
        ------
        ArgumentError
            Where y is missing, or X has another number of columns.
        """
        if y is None:
            raise ArgumentError("data", Found("is X alone"), "(X, y) for this loss", "Pass the labels or targets.")
        if X.shape[1] != self.features:
            remedy = f"Make the domain's dim {self.loss.outputs} x the columns of X, or drop columns."
            raise ArgumentError("X.shape", X.shape, f"(users, {self.features}) for this problem", remedy)

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's loss at theta, the regulariser's included.

        Parameters
        ----------
        theta : numpy.ndarray of shape (dim,)
            The parameters.
        X : array_like of shape (users, features)
            One row of features per user; rows longer than `feature_norm` are scaled down to it.
        y : array_like of shape (users,)
            One label or target per user.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.

        Raises
        ------
        ArgumentError
            Where X or y has another shape, or is not made of numbers.
        RecordError
            Where a feature is not finite, or the loss does not take a label or target.
        """
        return np.asarray(self.linear_gradients(theta, X, y))

    def linear_gradients(self, theta: Floats, X: Any, y: Any) -> LinearVectors:
        """Give the same gradients as slopes times features, which takes less memory.

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.

        Returns
        -------
        LinearVectors
            One gradient per user.
        """
        rows, squares, targets = self._records(X, y)
        return self._linear(rows, squares, self.loss.slope(self._scores(theta, rows), targets), theta)

    def moreau_gradients(self, theta: Floats, X: Any, y: Any, beta: float) -> Floats:
        """Give the gradients of the beta-Moreau envelopes: beta (theta - prox(theta)), without constraint (Lemma 4.6).

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.
        """
        return np.asarray(self.linear_moreau_gradients(theta, X, y, beta))

    def linear_moreau_gradients(self, theta: Floats, X: Any, y: Any, beta: float) -> LinearVectors:
        """Give the same gradients of envelopes as slopes times features.

        The regulariser joins the quadratic: prox of f + l2/2 |.|^2 at beta is prox of f at beta + l2, at theta beta / (beta + l2).

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        LinearVectors
            One gradient per user.

        Raises
        ------
        ArgumentError
            Where beta is not above 0.
        """
        beta = real("beta", beta, above=0, remedy="Larger is closer to the loss and less smooth.")
        rows, squares, targets = self._records(X, y)
        total = beta + self.l2
        centre = theta * (beta / total)
        # x = 0 leaves theta where it is: any positive q gives slope times 0
        q = np.maximum(squares / total, np.finfo(np.float64).tiny)
        return self._linear(rows, squares, beta / total * self.loss.prox_slope(self._scores(centre, rows), targets, q), centre)

    def prox(self, theta: Floats, X: Any, y: Any, beta: float) -> Floats:
        """Give every user's prox: the theta' that minimises loss(theta') + (beta / 2) ||theta - theta'||^2.

        Parameters
        ----------
        theta, X, y : array_like
            As in `gradients`.
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One theta' per user.
        """
        return theta - self.moreau_gradients(theta, X, y, beta) / beta

    def smoothed(self, beta: float) -> Smoothed:
        """Give the Moreau-smoothed problem: beta-smooth, and at most lipschitz^2 / (2 beta) below this one.

        Parameters
        ----------
        beta : float
            The smoothness of the envelope, above 0: larger is closer to the loss.

        Returns
        -------
        Smoothed
            The smoothed problem.
        """
        return Smoothed(self, beta)

    def _records(self, X: Any, y: Any) -> tuple[NDArray[Any], Floats, Floats]:
        """The rows of features, their squared lengths, and the targets."""
        rows, squares = self._rows(X)
        if np.shape(y) != rows.shape[:1]:
            raise ArgumentError("y.shape", np.shape(y), f"({len(rows)},)", "Give one label or target per row of X.")
        return rows, squares, self.loss.targets(y)

    def _rows(self, X: Any) -> tuple[NDArray[Any], Floats]:
        single = in_single(X, self.feature_norm) and not self.l2
        try:
            rows = np.ascontiguousarray(X, dtype=np.float32 if single else np.float64)
        except (TypeError, ValueError):
            raise ArgumentError("X", type(X).__name__, "a table of numbers", "Encode other features; make sparse dense.") from None
        if rows.ndim != 2 or rows.shape[1] != self.features:
            raise ArgumentError("X.shape", rows.shape, f"(users, {self.features})", "Give one row of features per user.")
        # Rows that were scaled down in single precision already are left, and gradients are clipped all the same.
        with np.errstate(over="ignore"):
            squares = row_squares(rows)
        long = too_long(squares, self.feature_norm, slack=single * (self.features + 2) * 2.0**-23)
        if long.any():
            if not np.all(np.isfinite(rows)):
                raise RecordError("X", float(rows[~np.isfinite(rows)][0]), "finite", "Fill in or leave out missing features.")
            rows = scaled_down(rows, long, self.feature_norm)
            squares[long] = row_squares(rows[long])
        return rows, squares

    def _scores(self, theta: Floats, rows: NDArray[Any]) -> Floats:
        if self.loss.outputs == 1:
            return row_dots(rows, theta)
        return np.stack([row_dots(rows, weights) for weights in theta.reshape(self.loss.outputs, -1)], axis=1)

    def _linear(self, rows: NDArray[Any], squares: Floats, slopes: Floats, point: Floats) -> LinearVectors:
        """Slopes times features, and the regulariser's gradient at a point."""
        slopes = slopes.reshape(len(rows), self.loss.outputs)
        return LinearVectors(rows, slopes, (self.l2 * point).reshape(self.loss.outputs, -1) if self.l2 else None, squares)
