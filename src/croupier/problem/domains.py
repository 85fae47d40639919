"""Where theta may lie: closed convex sets with a projection, and the distances that schedules need."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..validation import ArgumentError, real, whole

Floats = NDArray[np.float64]


class Domain(ABC):
    """A closed convex set Theta in R^dim, in which the parameters theta lie.

    A domain of your own defines `dim`, `project`, `distance_bound` and `diameter`.

    Attributes
    ----------
    dim : int
        The number of parameters.

    Examples
    --------
    >>> from croupier.problem import Ball, Domain
    >>> domain = Ball(dim=2, radius=3.0)
    >>> isinstance(domain, Domain), domain.start().tolist(), domain.diameter
    (True, [0.0, 0.0], 6.0)
    """

    dim: int

    @abstractmethod
    def project(self, theta: Floats) -> Floats:
        """Find the point of the set nearest to theta.

        Parameters
        ----------
        theta : numpy.ndarray of shape (dim,)
            Any point of R^dim.

        Returns
        -------
        numpy.ndarray of shape (dim,)
            The nearest point; theta itself where it is in the set.
        """

    @abstractmethod
    def distance_bound(self, start: Floats) -> float:
        """Bound the distance from `start` to any point of the set: the D of a schedule that starts there.

        Parameters
        ----------
        start : numpy.ndarray of shape (dim,)
            Where the schedule starts.

        Returns
        -------
        float
            The largest distance.
        """

    @property
    @abstractmethod
    def diameter(self) -> float:
        """The largest distance between two points of the set."""

    @property
    def norm_bound(self) -> float:
        """The largest norm of a point of the set."""
        return self.distance_bound(np.zeros(self.dim))

    def start(self) -> Floats:
        """Give the default starting point of an algorithm: the projection of 0.

        Returns
        -------
        numpy.ndarray of shape (dim,)
            A point of the set.
        """
        return self.project(np.zeros(self.dim))


@dataclass(frozen=True)
class Ball(Domain):
    """All points whose l2 distance from `center` is at most `radius`.

    Parameters
    ----------
    dim : int
        The number of parameters.
    radius : float
        The largest distance from the center. A public choice.
    center : tuple of float or None, default None
        The center; the origin where it is None.

    Raises
    ------
    ArgumentError
        If dim is not a whole number of at least 1, radius is not above 0, or center is not made of dim finite numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Ball
    >>> Ball(dim=2, radius=1.0).project(np.array([3.0, 4.0])).round(6).tolist()
    [0.6, 0.8]
    """

    dim: int
    radius: float
    center: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _dimension(self.dim))
        remedy = "State a public bound on the distance of theta from the center."
        object.__setattr__(self, "radius", real("radius", self.radius, above=0, remedy=remedy))
        if self.center is not None:
            object.__setattr__(self, "center", tuple(_point("center", self.center, self.dim).tolist()))

    @property
    def _center(self) -> Floats:
        return np.zeros(self.dim) if self.center is None else np.asarray(self.center)

    def project(self, theta: Floats) -> Floats:
        offset = theta - self._center
        largest = float(np.max(np.abs(offset)))
        if largest == 0:
            return theta
        unit = offset / largest  # squares of huge numbers overflow
        length = float(np.linalg.norm(unit))
        return theta if largest * length <= self.radius else np.asarray(self._center + unit * (self.radius / length))

    def distance_bound(self, start: Floats) -> float:
        return self.radius + float(np.linalg.norm(start - self._center))

    @property
    def diameter(self) -> float:
        return 2 * self.radius


@dataclass(frozen=True)
class Box(Domain):
    """All points with lower <= theta <= upper in every coordinate.

    Parameters
    ----------
    dim : int
        The number of parameters.
    lower : float or array_like of shape (dim,)
        The least value of every coordinate, or of each. A public choice.
    upper : float or array_like of shape (dim,)
        The largest value of every coordinate, or of each. A public choice.

    Raises
    ------
    ArgumentError
        If dim is not a whole number of at least 1, or the bounds are not finite numbers with lower below upper.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Box
    >>> Box(dim=3, lower=0.0, upper=[1.0, 2.0, 3.0]).project(np.array([-1.0, 5.0, 2.5])).tolist()
    [0.0, 2.0, 2.5]
    """

    dim: int
    lower: ArrayLike
    upper: ArrayLike
    _bounds: tuple[Floats, Floats] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _dimension(self.dim))
        lower, upper = (_point(name, getattr(self, name), self.dim) for name in ("lower", "upper"))
        if not np.all(lower < upper):
            raise ArgumentError("upper", self.upper, "greater than lower in every coordinate", "Swap or widen the bounds.")
        for name, bound in (("lower", lower), ("upper", upper)):
            object.__setattr__(self, name, tuple(bound.tolist()))  # so that equal boxes are equal, and can be hashed
        object.__setattr__(self, "_bounds", (lower, upper))

    def project(self, theta: Floats) -> Floats:
        return np.clip(theta, *self._bounds)

    def distance_bound(self, start: Floats) -> float:
        lower, upper = self._bounds
        return float(np.linalg.norm(np.maximum(np.abs(start - lower), np.abs(upper - start))))

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self._bounds[1] - self._bounds[0]))


@dataclass(frozen=True)
class Simplex(Domain):
    """All points with non-negative coordinates that add up to `total`.

    Parameters
    ----------
    dim : int
        The number of parameters.
    total : float, default 1.0
        What the coordinates add up to; 1 gives the probability simplex.

    Raises
    ------
    ArgumentError
        If dim is not a whole number of at least 1, or total is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import Simplex
    >>> Simplex(dim=3).project(np.array([1.0, 0.5, -2.0])).tolist()
    [0.75, 0.25, 0.0]
    """

    dim: int
    total: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _dimension(self.dim))
        object.__setattr__(self, "total", real("total", self.total, above=0, remedy="1 gives the probability simplex."))

    def project(self, theta: Floats) -> Floats:
        # subtract the constant that makes the positive parts add up (Held, Wolfe and Crowder 1974)
        # the largest coordinate may be moved to 0 first, and whatever is `total` below it ends at 0: no digits are lost
        theta = np.maximum(theta - np.max(theta), -self.total)
        ranked = np.sort(theta)[::-1]
        excess = (np.cumsum(ranked) - self.total) / np.arange(1, self.dim + 1)
        return np.asarray(np.maximum(0.0, theta - excess[np.flatnonzero(ranked > excess)[-1]]))

    def distance_bound(self, start: Floats) -> float:
        corner = np.zeros(self.dim)
        corner[np.argmin(start)] = self.total  # a convex function peaks at a corner
        return float(np.linalg.norm(start - corner))

    @property
    def diameter(self) -> float:
        return self.total * math.sqrt(2) if self.dim > 1 else 0.0


@dataclass(frozen=True)
class L1Ball(Domain):
    """All points whose coordinates' absolute values add up to at most `radius`: for models with few weights that are not 0.

    The projection shrinks every coordinate by the same amount, and makes 0 of those that are smaller. It is that of the absolute
    values onto a simplex, with the signs put back.

    Parameters
    ----------
    dim : int
        The number of parameters.
    radius : float
        The largest sum of absolute values. A public choice.

    Raises
    ------
    ArgumentError
        If dim is not a whole number of at least 1, or radius is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import L1Ball
    >>> L1Ball(dim=3, radius=1.0).project(np.array([2.0, -1.5, 0.2])).tolist()
    [0.75, -0.25, 0.0]
    """

    dim: int
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _dimension(self.dim))
        remedy = "State a public bound on the sum of the absolute values of theta."
        object.__setattr__(self, "radius", real("radius", self.radius, above=0, remedy=remedy))

    def project(self, theta: Floats) -> Floats:
        sizes = np.abs(theta)
        with np.errstate(over="ignore"):  # an endless sum is larger than the radius, which is all we ask
            inside = float(np.sum(sizes)) <= self.radius
        return theta if inside else np.asarray(np.copysign(Simplex(self.dim, self.radius).project(sizes), theta))

    def distance_bound(self, start: Floats) -> float:
        corner = np.zeros(self.dim)  # a convex function peaks at a corner: the one opposite to the largest coordinate
        largest = int(np.argmax(np.abs(start)))
        corner[largest] = -math.copysign(self.radius, start[largest])
        return float(np.linalg.norm(start - corner))

    @property
    def diameter(self) -> float:
        return 2 * self.radius


@dataclass(frozen=True)
class WholeSpace(Domain):
    """All of R^dim: no constraint.

    Parameters
    ----------
    dim : int
        The number of parameters.
    distance : float
        How far from the start the solution is assumed to lie, above 0. It tunes the steps and is not enforced.

    Raises
    ------
    ArgumentError
        If dim is not a whole number of at least 1, or distance is not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.problem import WholeSpace
    >>> domain = WholeSpace(dim=2, distance=5.0)
    >>> domain.distance_bound(np.zeros(2)), domain.diameter
    (5.0, inf)
    """

    dim: int
    distance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _dimension(self.dim))
        remedy = "State how far from the start the solution may be."
        object.__setattr__(self, "distance", real("distance", self.distance, above=0, remedy=remedy))

    def project(self, theta: Floats) -> Floats:
        return theta

    def distance_bound(self, start: Floats) -> float:
        return self.distance

    @property
    def diameter(self) -> float:
        return math.inf

    @property
    def norm_bound(self) -> float:
        return math.inf


def _dimension(dim: int) -> int:
    return whole("dim", dim, at_least=1, remedy="State the number of parameters.")


def _point(name: str, value: ArrayLike, dim: int) -> Floats:
    try:
        point = np.broadcast_to(np.asarray(value, dtype=np.float64), (dim,)).copy()
    except (TypeError, ValueError):
        raise ArgumentError(name, value, f"a number or {dim} numbers", "Match it to dim.") from None
    if not np.all(np.isfinite(point)):
        raise ArgumentError(name, value, "finite", "Use WholeSpace for an unbounded domain.")
    return point
