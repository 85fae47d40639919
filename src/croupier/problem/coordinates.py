"""Rows seen in other coordinates: a public linear map of rows, and the gradients of a problem's losses in what it makes of them.

Where columns have very different sizes or a common mean, the same noise costs less in coordinates in which rows have no mean and
the same size in every direction. Such a map is found from sums that were released before (`croupier.optimizer.rules`), so it is
public; scores, and so losses and predictions, are the same in all coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import LinearVectors, row_squares
from ..validation import ArgumentError, real
from .domains import Domain, Floats
from .problem import Problem


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The linear map x = turn (u - centre u_last / constant) of rows u, u_last the entry that is `constant` in every row.

    A row of zeros stays one: it stands for an invalid record, whose gradient is 0.

    Parameters
    ----------
    turn : ndarray of shape (features,) or (features, features)
        A factor for each column, or a matrix.
    centre : ndarray of shape (features,) or None, default None
        What is taken off every row, 0 in its last entry; None for nothing.
    constant : float, default 0.0
        The last entry of every row; needed with a centre.

    Raises
    ------
    ArgumentError
        If the shapes do not fit, an entry is not finite, or a centre comes without a constant.
    """

    turn: Floats
    centre: Floats | None = None
    constant: float = 0.0

    def __post_init__(self) -> None:
        # Single precision is precise enough, and is the same on machines whose linear algebra differs in the last bits.
        for name in ("turn", "centre"):
            if getattr(self, name) is not None:
                rounded = np.asarray(getattr(self, name), dtype=np.float32).astype(np.float64)
                rounded.setflags(write=False)
                object.__setattr__(self, name, rounded)
        features = len(self.turn)
        parts = [part for part in (self.turn, self.centre) if part is not None]
        fits = self.turn.shape in ((features,), (features, features)) and parts[-1].shape[-1:] == (features,)
        if not fits or not all(np.isfinite(part).all() for part in parts):
            allowed = "finite, a square matrix or factors, and a centre as long"
            raise ArgumentError("coordinates", self.turn.shape, allowed, "Make them from released sums.")
        if self.centre is not None:
            real("constant", self.constant, above=0, remedy="Rows that are centred end with a constant.")

    @property
    def digest(self) -> bytes:
        """All of it as bytes, to tell questions apart."""
        centre = b"" if self.centre is None else self.centre.tobytes()
        return self.turn.tobytes() + centre + np.float64(self.constant).tobytes()

    def rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what the map makes of rows, in their precision; each row's by itself, whatever rows are beside it."""
        if self.centre is not None:
            rows = rows - np.outer(rows[:, -1] / rows.dtype.type(self.constant), self.centre.astype(rows.dtype))
        turn = self.turn.astype(rows.dtype)
        return np.asarray(rows * turn if turn.ndim == 1 else np.einsum("ij,kj->ik", rows, turn))

    def weights(self, theta: Floats) -> Floats:
        """Return the weights of rows as they come whose scores are those of `theta` in these coordinates; one row per output."""
        outputs = theta.reshape(-1, len(self.turn))
        weights = outputs * self.turn if self.turn.ndim == 1 else outputs @ self.turn
        if self.centre is not None:
            weights[:, -1] -= weights @ self.centre / self.constant
        return np.asarray(weights.reshape(theta.shape))


@dataclass(frozen=True, eq=False)
class Recast:
    """A problem whose gradients are taken in other coordinates and clipped to length `clip`.

    `theta` is in the problem's own coordinates: scores are the same in all of them. Nobody's gradient is longer than `clip`. With
    `alike`, where the loss is one of classes, the factor that shortens a gradient depends on the row and on theta alone
    (`Loss.capped_slope`), so at the true parameters of a logistic model the mean gradient is 0.

    Parameters
    ----------
    problem : Problem
        Whose gradients these are; without l2.
    coordinates : Coordinates
        The map of rows.
    clip : float
        The length that gradients are shortened to.
    alike : bool, default True
        Whether one factor shortens the gradients of all labels. False shortens only gradients that are too long: people whose
        label was expected lose less, and the minimiser moves.
    """

    problem: Problem
    coordinates: Coordinates
    clip: float
    alike: bool = True

    def __post_init__(self) -> None:
        if self.problem.l2:
            raise ArgumentError("problem.l2", self.problem.l2, "0 in other coordinates", 'Use rule="plain".')

    @property
    def domain(self) -> Domain:
        """Where theta may lie."""
        return self.problem.domain

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return self.problem.dim

    @property
    def lipschitz(self) -> float:
        """A bound on the length of every user's gradient."""
        return self.clip

    smoothness: float | None = None
    strong_convexity: float = 0.0

    def gradients(self, theta: Floats, X: Any, y: Any) -> Floats:
        """Give the gradient of every user's loss at theta, in the other coordinates."""
        return np.asarray(self.linear_gradients(theta, X, y))

    def linear_gradients(self, theta: Floats, X: Any, y: Any) -> LinearVectors:
        """Give the same gradients as slopes times rows, which takes less memory."""
        problem = self.problem
        rows, _, targets = problem._records(X, y)
        seen = self.coordinates.rows(rows)
        squares = row_squares(seen)
        limits = self.clip / np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
        scores = problem._scores(theta, rows)
        slopes = problem.loss.capped_slope(scores, targets, limits if self.alike else np.full(len(limits), np.inf))
        slopes = slopes.reshape(len(seen), problem.loss.outputs)
        if not self.alike:
            slopes *= (limits / np.maximum(limits, np.sqrt(row_squares(slopes))))[:, np.newaxis]
        return LinearVectors(seen, slopes, None, squares)
