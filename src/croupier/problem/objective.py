"""What an optimizer minimises, as it sees it."""

from __future__ import annotations

from typing import Any, Protocol

from .domains import Domain, Floats


class Objective(Protocol):
    """Per-user functions over a domain, as an optimizer sees them: gradients, and three constants.

    `Problem`, `Smoothed` and `CustomProblem` are objectives.

    Guarantee
    ---------
    Privacy does not rest on the constants: every gradient is clipped to `lipschitz`, whatever is stated. It does rest on
    `gradients` mapping each user's record alone.
    """

    @property
    def domain(self) -> Domain:
        """Where theta may lie."""
        ...

    @property
    def dim(self) -> int:
        """The number of parameters."""
        ...

    @property
    def lipschitz(self) -> float:
        """A bound on the l2 norm of every user's gradient; longer ones are clipped to it."""
        ...

    @property
    def smoothness(self) -> float | None:
        """A bound on how fast every user's gradient changes; None for a nonsmooth loss."""
        ...

    @property
    def strong_convexity(self) -> float:
        """How strongly convex every user's function is at least; 0 where it is merely convex."""
        ...

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's function at theta.

        Parameters
        ----------
        theta : numpy.ndarray of shape (dim,)
            The parameters.
        X, y : array_like
            The records, one row of X and one entry of y per user.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.
        """
        ...
