"""What can be asked: a function of a record whose range is proved, and a decoder of the noisy sum of its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..population import RangedQuery
from ..protocol import SumEstimate
from ..validation import ArgumentError, Found, real, whole

Floats = NDArray[np.float64]


class Statistic(RangedQuery, Protocol):
    """A function of a record with a proved range, and a decoder of the noisy sum.

    Any population answers any of them (`Question`). Its vectors must have norm at most `norm` and be at most `diameter` apart,
    whatever the records are. The zero vector stands for a record that says nothing, and counts among them. Each vector is computed
    from its own record alone. A statistic that tests records before anybody is asked is a `CheckedStatistic`.

    Attributes
    ----------
    dim : int
        Coordinates of a vector.
    norm : float
        Bound on the l2 norm of a vector; longer ones are clipped to it.
    diameter : float
        Proved bound on the l2 distance of two vectors, zero among them: the noise is proportional to it.
    """

    @property
    def dim(self) -> int:
        """Coordinates of a vector."""
        ...

    def decode(self, estimate: SumEstimate) -> Any:
        """Say what the noisy sum means, with error bars. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        object
            The answer's `value`.
        """
        ...


@runtime_checkable
class CheckedStatistic(Statistic, Protocol):
    """A statistic that tests records, wherever they are, before anybody is asked."""

    def check_records(self, X: Any, y: Any, /) -> None:
        """Refuse records that the statistic cannot take.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Some users' records.
        y : array_like of shape (n,) or None
            Their targets.

        Raises
        ------
        ArgumentError
            Where the records are not what the statistic takes; nobody was asked, and nothing was spent.
        """
        ...


@runtime_checkable
class BlankStatistic(Statistic, Protocol):
    """A statistic that makes something of values that are not finite, where others refuse them before anybody is asked."""

    @property
    def blanks(self) -> bool:
        """True."""
        ...


@dataclass(frozen=True)
class CustomQuery:
    """Your own query: a function from records (X, y) to one vector per record.

    Nothing about the function need be proved. Vectors are clipped to `norm`. With `nonnegative` their negative entries are set to
    0, so that two of them are at most sqrt(2) `norm` apart, which takes 29 per cent off the noise. What is not finite becomes the
    zero vector. `croupier.statistics.check` samples for clipping that you did not mean.

    Parameters
    ----------
    function : callable
        Maps (X, y) to an array with one row of `dim` numbers per record, each from its own record alone.
    dim : int
        Coordinates of a vector.
    norm : float, default 1.0
        Public bound on the l2 norm of a vector; longer ones are clipped to it.
    nonnegative : bool, default False
        Whether entries are never negative, as counts and squares are not.
    decoder : callable, optional
        Maps a SumEstimate to what you want to know; the mean vector where it is left out.

    Attributes
    ----------
    diameter : float
        Bound on the l2 distance of two vectors: sqrt(2) `norm` with `nonnegative`, otherwise 2 `norm`.

    Raises
    ------
    ArgumentError
        Where a parameter is out of range.

    Guarantee
    ---------
    That of the plan under which it is asked, for any function that computes each vector from its own record alone.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> squares = cr.statistics.CustomQuery(lambda X, y: X**2, dim=3, norm=1.0, nonnegative=True)
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20_000, 3))
    >>> answer = cr.ask(squares, X, epsilon=1.0, delta=1e-6)
    >>> bool(np.abs(answer.value - 1 / 12).max() < 6 * answer.mean_noise_std)
    True
    """

    function: Callable[[Any, Any], Any]
    dim: int
    norm: float = 1.0
    nonnegative: bool = False
    decoder: Callable[[SumEstimate], Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ArgumentError("function", self.function, "a function of (X, y)", "Return one vector per record.")
        whole("dim", self.dim, at_least=1, remedy="Count the numbers in one record's vector.")
        real("norm", self.norm, above=0, remedy="Give a public bound on the l2 norm of a vector; longer ones are clipped to it.")
        if not isinstance(self.nonnegative, bool):
            raise ArgumentError("nonnegative", self.nonnegative, "True or False", "True sets negative entries to 0.")

    @property
    def diameter(self) -> float:
        """Two vectors u, v without negative entries: |u - v|^2 = |u|^2 + |v|^2 - 2 <u, v> <= 2 norm^2."""
        return (math.sqrt(2) if self.nonnegative else 2.0) * self.norm

    def __call__(self, X: Any, y: Any) -> Floats:
        vectors = self.raw(X, y)
        return finite(np.maximum(vectors, 0.0) if self.nonnegative else vectors)

    def check_records(self, X: Any, y: Any) -> None:
        """Try the function on the first record, so that one that fails for all of them does so before anything is spent.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Some users' records.
        y : array_like or None
            Their targets.

        Raises
        ------
        ArgumentError
            Where the function returns another shape.
        """
        self.raw(X[:1], None if y is None else y[:1])

    def raw(self, X: Any, y: Any) -> Floats:
        """Return what the function gives, before negative and infinite entries are set to 0.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Some users' records.
        y : array_like or None
            Their targets.

        Returns
        -------
        ndarray of shape (n, dim)
            One vector per record.

        Raises
        ------
        ArgumentError
            Where the function returns another shape.
        """
        vectors = np.asarray(self.function(X, y), dtype=np.float64)
        if vectors.shape != (np.shape(X)[0], self.dim):
            allowed = f"({np.shape(X)[0]}, {self.dim})"
            raise ArgumentError("function(X, y).shape", vectors.shape, allowed, "Return one vector per record.")
        return vectors

    def decode(self, estimate: SumEstimate) -> Any:
        """Apply the decoder to the noisy sum. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        object
            What the decoder returns; the mean vector where there is none.
        """
        return estimate.mean if self.decoder is None else self.decoder(estimate)


def require_numbers(y: Any) -> None:
    """Refuse targets that are no numbers, before anybody is asked, without saying what they are.

    Parameters
    ----------
    y : array_like
        The targets; NaN and infinity are numbers here.

    Raises
    ------
    ArgumentError
        Where one of them is text or another object.
    """
    try:
        np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            "y", Found("has a target that is no number"), "numbers", "Drop or encode such targets; nobody was asked."
        ) from None


def finite(vectors: Floats) -> Floats:
    """The vectors, blank where one is not finite: a record that says nothing is the zero vector."""
    fine = np.asarray(np.isfinite(vectors).all(axis=1))
    return vectors if fine.all() else np.where(fine[:, np.newaxis], vectors, 0.0)


def unit_rows(rows: Any) -> Floats:
    """Rows in double precision, those longer than 1 scaled down to it; rows that are not finite become zeros.

    The true length of a row as computed is at most 1 + 1e-12 for up to some thousand entries.
    """
    numbers = np.asarray(rows, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        long = ~(np.einsum("ij,ij->i", numbers, numbers) <= 1)  # NaN is not below anything
    if not long.any():
        return numbers
    odd = finite(numbers[long])
    odd = odd / np.maximum(np.abs(odd).max(axis=1, initial=0.0), 1.0)[:, np.newaxis]  # squares of huge numbers overflow
    scaled = numbers.copy()
    scaled[long] = odd / np.maximum(np.sqrt(np.einsum("ij,ij->i", odd, odd)), 1e-300)[:, np.newaxis]
    return scaled
