"""The Moreau envelope of a problem's losses, which is smooth where they are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..arithmetic import LinearVectors
from ..validation import real
from .domains import Domain, Floats

if TYPE_CHECKING:
    from .problem import Problem


@dataclass(frozen=True)
class Smoothed:
    """The beta-Moreau envelope of a problem's losses (Lemma 4.6): convex, beta-smooth, as steep as the problem (erratum 4).

    Parameters
    ----------
    problem : Problem
        Whose losses are smoothed, the regulariser included.
    beta : float
        The smoothness of the envelope, above 0: larger is closer to the loss.

    Raises
    ------
    ArgumentError
        Where beta is not above 0.

    Examples
    --------
    >>> from croupier.problem import Ball, Hinge, Problem
    >>> smoothed = Problem(loss=Hinge(), domain=Ball(dim=2, radius=1.0)).smoothed(beta=10.0)
    >>> smoothed.smoothness, smoothed.lipschitz, smoothed.bias
    (10.0, 1.0, 0.05)
    """

    problem: Problem
    beta: float

    def __post_init__(self) -> None:
        real("beta", self.beta, above=0, remedy="Larger is closer to the loss and less smooth.")

    @property
    def domain(self) -> Domain:
        """Where theta may lie."""
        return self.problem.domain

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.domain.dim

    @property
    def lipschitz(self) -> float:
        """A bound on the l2 norm of every user's gradient: that of the problem."""
        return self.problem.lipschitz

    @property
    def smoothness(self) -> float:
        """A bound on how fast every user's gradient changes: beta."""
        return self.beta

    @property
    def strong_convexity(self) -> float:
        """How strongly convex every user's envelope is at least; 0 where the problem is merely convex."""
        strong = self.problem.strong_convexity
        return strong * self.beta / (strong + self.beta)

    @property
    def bias(self) -> float:
        """How far the envelope may lie below the loss: L^2 / (2 beta)."""
        return self.lipschitz**2 / (2 * self.beta)

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's envelope at theta.

        Parameters
        ----------
        theta, X, y : array_like
            As in `Problem.gradients`.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.
        """
        return self.problem.moreau_gradients(theta, X, y, self.beta)

    def linear_gradients(self, theta: Floats, X: Any, y: Any) -> LinearVectors:
        """Give the same gradients as slopes times features, which takes less memory.

        Parameters
        ----------
        theta, X, y : array_like
            As in `Problem.gradients`.

        Returns
        -------
        LinearVectors
            One gradient per user.
        """
        return self.problem.linear_moreau_gradients(theta, X, y, self.beta)
