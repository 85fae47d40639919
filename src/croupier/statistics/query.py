"""What can be asked: a function of a record whose range is proved, and a decoder of the noisy sum of its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import row_squares
from ..population import Query
from ..protocol import SumEstimate
from ..validation import ArgumentError, Found, real, whole

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CustomQuery(Query):
    """Your own query: a function from records (X, y) to one vector per record.

    Nothing about the function need be proved. Vectors are clipped to `norm`. With `nonnegative` their negative entries are set to
    0, so that two of them are at most sqrt(2) `norm` apart, which takes 29 per cent off the noise. What is not finite becomes the
    zero vector. `croupier.statistics.check` samples for unintended clipping.

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
        Maps a SumEstimate to what you want to know; default: the mean vector.

    Attributes
    ----------
    diameter : float
        Bound on the l2 distance of two vectors: sqrt(2) `norm` with `nonnegative`, otherwise 2 `norm`.

    Raises
    ------
    ArgumentError
        If a parameter is out of range.

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
        real("norm", self.norm, above=0, remedy="State a public bound on the l2 norm of a vector; longer ones are clipped to it.")
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
            If the function returns another shape.
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
            If the function returns another shape.
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
    """Refuse targets that are no numbers, before anybody is asked, without saying what they are."""
    try:
        np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            "y", Found("has a target that is not a number"), "numbers", "Drop or encode such targets; nobody was asked."
        ) from None


def finite(vectors: Floats) -> Floats:
    """The vectors, blank where one is not finite: a record that says nothing is the zero vector."""
    fine = np.asarray(np.isfinite(vectors).all(axis=1))
    return vectors if fine.all() else np.where(fine[:, np.newaxis], vectors, 0.0)


def unit_rows(rows: Any) -> Floats:
    """Rows in double precision, those longer than 1 scaled down to it; rows that are not finite become zeros.

    The true length of a row as computed is at most 1 + 1e-12 for up to some thousand entries. They are one after the other in
    memory, so that sums over a row are the same in every company.
    """
    numbers = np.ascontiguousarray(rows, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        long = ~(row_squares(numbers) <= 1)  # NaN is not below anything
    if not long.any():
        return numbers
    odd = finite(numbers[long])
    odd = odd / np.maximum(np.abs(odd).max(axis=1, initial=0.0), 1.0)[:, np.newaxis]  # squares of huge numbers overflow
    scaled = numbers.copy()
    scaled[long] = odd / np.maximum(np.sqrt(row_squares(odd)), 1e-300)[:, np.newaxis]
    return scaled


# A helper for people who bring their own query: sample for violations of the range that they state.


def check(query: Query, X: Any, y: Any = None, *, samples: int = 2_000, seed: int = 0, tolerance: float = 1e-9) -> list[str]:
    """Search by sampling for violations of what a query states: its norm, its diameter, and each vector from its own record alone.

    It compares the vectors of the records given, of odd records derived from them (huge, tiny, negated, swapped, not finite), and
    of each record alone. It looks at the data: use public or synthetic records.

    Parameters
    ----------
    query : Query
        The query.
    X : array_like of shape (n, features)
        Records that the query takes, dense.
    y : array_like of shape (n,), optional
        Their targets.
    samples : int, default 2000
        Number of odd records to try.
    seed : int, default 0
        Chooses the odd records.
    tolerance : float, default 1e-9
        Relative excess that counts as rounding.

    Returns
    -------
    list of str
        One line per kind of violation, with the worst case; of a CustomQuery also what would be clipped. Empty if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import CustomQuery, check
    >>> check(CustomQuery(lambda X, y: X, dim=2, norm=1.0), np.ones((5, 2)))  # doctest: +ELLIPSIS
    ['norm: a vector has norm ..., stated 1; it is clipped']
    """
    rng = np.random.default_rng(seed)
    X = np.asarray(X)
    y = None if y is None else np.asarray(y)
    odd_X, odd_y = _odd(X, y, rng, samples)
    violations = []
    if isinstance(query, CustomQuery):
        with np.errstate(all="ignore"):
            raw = query.raw(X, y)
        longest = float(np.linalg.norm(raw, axis=1).max(initial=0.0))
        if not longest <= query.norm * (1 + tolerance):
            violations.append(f"norm: a vector has norm {longest:.6g}, stated {query.norm:.6g}; it is clipped")
        if query.nonnegative and (raw < 0).any():
            violations.append(f"nonnegative: an entry is {float(raw.min()):.6g}; it is set to 0")
    with np.errstate(all="ignore"):
        vectors = np.concatenate([np.asarray(query(*records)) for records in ((X, y), (odd_X, odd_y))])
    if not np.isfinite(vectors).all():
        return [*violations, "range: a vector is not finite"]
    if vectors.shape[1:] != (query.dim,):
        return [*violations, f"dim: a vector has {vectors.shape[1:]} entries, stated {query.dim}"]
    if not isinstance(query, CustomQuery):
        with np.errstate(over="ignore"):
            longest = float(np.linalg.norm(vectors, axis=1).max())
        if longest > query.norm * (1 + tolerance):
            violations.append(f"norm: a vector has norm {longest:.6g}, stated {query.norm:.6g}")
    far = _farthest(_clipped(vectors, query.norm), rng)
    if far > query.diameter * (1 + tolerance):
        violations.append(f"diameter: two vectors are {far:.6g} apart, stated {query.diameter:.6g}")
    some = rng.choice(len(X), min(20, len(X)), replace=False)
    for row in some:
        alone = np.asarray(query(X[row : row + 1], None if y is None else y[row : row + 1]))
        if not np.allclose(alone[0], vectors[row], rtol=1e-9, atol=1e-12 * query.norm):
            violations.append("each record alone: a record's vector changes when other records are next to it")
            break
    return violations


def _odd(X: NDArray[Any], y: NDArray[Any] | None, rng: np.random.Generator, samples: int) -> tuple[Any, Any]:
    """Records out of the ordinary: entries scaled, negated, blown up, not finite; targets of other records."""
    rows = rng.integers(len(X), size=samples)
    odd = X[rows].astype(np.float64)
    scale = 10.0 ** rng.uniform(-12, 12, size=(samples, 1)) * np.where(rng.random((samples, 1)) < 0.5, 1.0, -1.0)
    odd = np.where(rng.random((samples, 1)) < 0.6, odd * scale, odd)
    odd = np.where(rng.random(odd.shape) < 0.1, 0.0, odd)
    odd = np.where(rng.random(odd.shape) < 0.02, rng.choice([np.nan, np.inf, -np.inf, 1e300], size=odd.shape), odd)
    if y is None:
        return odd, None
    targets = y[rng.integers(len(y), size=samples)]
    if targets.dtype.kind == "f":
        targets = np.where(rng.random(targets.shape) < 0.3, -targets * 10.0 ** rng.uniform(-3, 3, size=targets.shape), targets)
    return odd, targets


def _clipped(vectors: Floats, norm: float) -> Floats:
    peaks = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), norm)  # squares of huge numbers overflow
    vectors = vectors / peaks
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors * np.minimum(peaks, norm / np.maximum(lengths, 1e-300)))


def _farthest(vectors: Floats, rng: np.random.Generator) -> float:
    """The largest distance found: from zero, and, begun at several places, of vectors each farthest from the one before."""
    farthest = float(np.linalg.norm(vectors, axis=1).max())
    for _ in range(20):
        anchor = vectors[rng.integers(len(vectors))] * rng.choice([-1.0, 1.0])
        point = vectors[np.argmax(np.linalg.norm(vectors - anchor, axis=1))]
        for _ in range(3):
            distances = np.linalg.norm(vectors - point, axis=1)
            farthest, point = max(farthest, float(distances.max())), vectors[np.argmax(distances)]
    return farthest
