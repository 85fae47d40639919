"""A helper for people who bring their own query: sample for violations of the range that they state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .query import CustomQuery, Statistic

Floats = NDArray[np.float64]


def check(query: Statistic, X: Any, y: Any = None, *, samples: int = 2_000, seed: int = 0, tolerance: float = 1e-9) -> list[str]:
    """Search by sampling for violations of what a query states: its norm, its diameter, and each vector from its own record alone.

    It compares the vectors of the records given, of odd records derived from them (huge, tiny, negated, swapped, not finite), and
    of each record alone. It looks at the data: use public or invented records.

    Parameters
    ----------
    query : Statistic
        The query.
    X : array_like of shape (n, features)
        Records that the query takes, dense.
    y : array_like of shape (n,), optional
        Their targets.
    samples : int, default 2000
        How many odd records are tried.
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
            violations.append("each record alone: a record's vector is another where other records are beside it")
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
