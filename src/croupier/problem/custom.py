"""Losses of one's own: gradients and constants that whoever brings them answers for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..validation import ArgumentError, real
from .domains import Domain, Floats
from .fingerprint import fingerprint


@dataclass(frozen=True)
class CustomProblem:
    """Bring your own loss: a function from (theta, X, y) to one gradient per user, and its constants.

    The constants are yours to prove; `check` samples for violations.

    Parameters
    ----------
    gradient : callable
        From (theta, X, y) to an array of shape (users, dim), one gradient per record. It must map each record alone.
    domain : Domain
        Where theta may lie.
    lipschitz : float
        A bound on the l2 norm of a user's gradient, above 0. Longer gradients are clipped to it.
    smoothness : float or None, default None
        A bound on how fast a user's gradient changes, above 0; None for a nonsmooth loss.
    strong_convexity : float, default 0.0
        How strongly convex a user's loss is at least: 0 to smoothness.
    value : callable or None, default None
        From (theta, X, y) to an array of shape (users,), one loss per record: for `check`, which then compares it with gradients.

    Raises
    ------
    ArgumentError
        Where a constant is out of its range.

    Guarantee
    ---------
    Privacy does not depend on the constants: gradients are clipped to `lipschitz`. It does depend on `gradient` mapping each
    record alone.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Ball, CustomProblem
    >>> problem = CustomProblem(lambda theta, X, y: theta - X, Ball(dim=2, radius=1.0), lipschitz=2.0, smoothness=1.0)
    >>> problem.gradients(np.zeros(2), np.array([[0.5, -0.5]]), None).tolist()
    [[-0.5, 0.5]]
    """

    gradient: Callable[[Floats, Any, Any], Floats]
    domain: Domain
    lipschitz: float
    smoothness: float | None = None
    strong_convexity: float = 0.0
    value: Callable[[Floats, Any, Any], Floats] | None = None

    def __post_init__(self) -> None:
        real("lipschitz", self.lipschitz, above=0, remedy="Give a bound on the l2 norm of a user's gradient.")
        if self.smoothness is not None:
            real("smoothness", self.smoothness, above=0, remedy="Leave it out for a nonsmooth loss.")
        most = math.inf if self.smoothness is None else self.smoothness
        real(
            "strong_convexity",
            self.strong_convexity,
            at_least=0,
            at_most=most,
            remedy="0 is plain convex; no more than smoothness.",
        )

    @property
    def fingerprint(self) -> str:
        """Tells this problem from others, in any process."""
        constants = self.lipschitz, self.smoothness, self.strong_convexity
        return f"own loss {fingerprint(self.gradient)} over {self.domain!r}, {constants}"

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.domain.dim

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Call `gradient`, and refuse what is not one gradient per record.

        Parameters
        ----------
        theta : numpy.ndarray of shape (dim,)
            The parameters.
        X, y : array_like
            The records, as `gradient` takes them.

        Returns
        -------
        numpy.ndarray of shape (users, dim)
            One gradient per user.

        Raises
        ------
        ArgumentError
            Where the gradients have another shape.
        """
        rows = np.asarray(self.gradient(theta, X, y), dtype=np.float64)
        if rows.ndim != 2 or rows.shape != (np.shape(X)[0], self.dim):
            allowed = f"({np.shape(X)[0]}, {self.dim})"
            raise ArgumentError("gradient(theta, X, y).shape", rows.shape, allowed, "Return one gradient per record.")
        return rows
