"""What a loss of a linear model is: one number per user and score, convex in the score z = <theta, x>.

A loss knows, from public facts alone, how steep it can be (`slope_bound`) and how curved (`curvature`, None if it is
nonsmooth), and the slope of its Moreau envelope (`prox_slope`). The gradient in theta is slope times x, for the loss and for its
envelope alike; `Problem` multiplies. Prox formulas: with q = ||x||^2 / beta, prox(theta) = theta - (g / beta) x for the g that
`prox_slope` returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from ..validation import ArgumentError, RecordError, numbers_or_nan

Floats = NDArray[np.float64]
# Newton steps that a prox may take; it stops as soon as nothing changes.
NEWTON_STEPS = 60


class Loss(ABC):
    """A convex loss of a linear model with `outputs` scores per user.

    A loss of your own defines `value`, `slope`, `prox_slope` and `slope_bound`. Every method must map each user's record alone.

    Attributes
    ----------
    outputs : int, default 1
        Scores per user: 1, or the number of classes.
    curvature : float or None, default None
        A bound on the second derivative in the scores; None for a nonsmooth loss.

    Guarantee
    ---------
    `targets` and `valid` map each record alone, and every bound follows from public facts: privacy rests on both. Whether a bound
    holds matters for accuracy alone, as longer gradients are clipped to it.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Hinge, Loss
    >>> loss = Hinge()
    >>> isinstance(loss, Loss), loss.outputs, loss.slope_bound(score_bound=10.0)
    (True, 1, 1.0)
    >>> loss.valid(np.array([1.0, 0.0, 7.0])).tolist()
    [True, True, False]
    """

    outputs: int = 1
    curvature: float | None = None

    @property
    def usual_curvature(self) -> float | None:
        """How curved the mean loss is on real data, times the share of features' energy that lies in one direction.

        This is a rule of thumb for step sizes, without a proof. Losses whose curvature does not fall keep their bound. A mean over
        users is smooth even if the loss is not: its curvature is the jump of the slope times the density of users where it jumps,
        for targets that fill [-1, 1].
        """
        return self.curvature

    @abstractmethod
    def value(self, scores: Floats, targets: Floats) -> Floats:
        """Give the loss of each user.

        Parameters
        ----------
        scores : numpy.ndarray of shape (users,) or (users, outputs)
            The scores z = <theta, x>; of the second shape where `outputs` is above 1.
        targets : numpy.ndarray
            Output of `targets` for these users.

        Returns
        -------
        numpy.ndarray of shape (users,)
            The losses.
        """

    @abstractmethod
    def slope(self, scores: Floats, targets: Floats) -> Floats:
        """Give the derivative of each user's loss in the scores; where it jumps, one of the subgradients.

        Parameters
        ----------
        scores, targets : numpy.ndarray
            As in `value`.

        Returns
        -------
        numpy.ndarray
            The slopes, in the shape of the scores.
        """

    @abstractmethod
    def prox_slope(self, scores: Floats, targets: Floats, q: Floats) -> Floats:
        """Give the derivative in the scores of the Moreau envelope of each user's loss.

        Parameters
        ----------
        scores, targets : numpy.ndarray
            As in `value`.
        q : numpy.ndarray of shape (users,)
            ||x||^2 / beta of each user, above 0.

        Returns
        -------
        numpy.ndarray
            The slopes, in the shape of the scores.
        """

    @abstractmethod
    def slope_bound(self, score_bound: float) -> float:
        """Bound the norm of the slope for every target, wherever the norm of the scores is at most `score_bound`.

        Parameters
        ----------
        score_bound : float
            A bound on the l2 norm of one user's scores; may be infinite.

        Returns
        -------
        float
            The bound; infinite if there is none.
        """

    def capped_slope(self, scores: Floats, targets: Floats, limits: Floats) -> Floats:
        """Give the slopes, shortened so that none is longer than its user's limit.

        A loss of classes shortens them by a factor that is the same for every label, so that the mean slope at the true
        probabilities stays 0. Others shorten what is too long.

        Parameters
        ----------
        scores, targets : numpy.ndarray
            As in `value`.
        limits : numpy.ndarray of shape (users,)
            The largest norm of each user's slope, above 0.

        Returns
        -------
        numpy.ndarray
            The slopes, in the shape of the scores.
        """
        slopes = self.slope(scores, targets)
        lengths = np.abs(slopes) if slopes.ndim == 1 else np.sqrt(np.sum(slopes**2, axis=-1))
        # no quotient of what is short enough: it could overflow, and the warning would tell of a record that is blank
        factors = np.divide(limits, lengths, out=np.ones_like(lengths), where=lengths > limits)
        return np.asarray(slopes * (factors if slopes.ndim == 1 else factors[:, np.newaxis]))

    def targets(self, y: NDArray[np.generic]) -> Floats:
        """Convert labels or targets to what the other methods take, each record alone, so that nothing is taken from the data.

        Parameters
        ----------
        y : numpy.ndarray of shape (users,)
            One label or target per user.

        Returns
        -------
        numpy.ndarray
            One number per user, or one row of `outputs` numbers.

        Raises
        ------
        RecordError
            If a label or target is not one that the loss takes.
        ArgumentError
            If `y` is not made of numbers.
        """
        numbers = numbers_of(y)
        if not np.all(np.isfinite(numbers)):
            raise RecordError("y", float(numbers[~np.isfinite(numbers)][0]), "finite", "Fill in or leave out missing targets.")
        return numbers

    def valid(self, y: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Tell whose label or target `targets` takes, each record alone.

        Parameters
        ----------
        y : numpy.ndarray of shape (users,)
            One label or target per user, of any kind.

        Returns
        -------
        numpy.ndarray of bool, shape (users,)
            Whether each one is taken.
        """
        return self._takes(np.asarray(numbers_or_nan(y), dtype=np.float64))

    def _takes(self, numbers: Floats) -> NDArray[np.bool_]:
        return np.isfinite(numbers)


def numbers_of(y: NDArray[np.generic]) -> Floats:
    """Labels or targets as numbers; what cannot be read as numbers is refused."""
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError("y", type(y).__name__, "numbers, one per user", "Map labels to numbers.") from None
