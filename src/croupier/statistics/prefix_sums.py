"""Counts in ordered bins, sent by a square root of prefix sums, and read back by least squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, nnls

from .histogram import to_simplex

Floats = NDArray[np.float64]
# Weight of "all shares add up to 1" among the equations: far above that of the noise.
_CERTAIN = 100.0
# Standard deviations of noise by which people have to be missing from a total, before it is believed: 3 in 100,000 rounds.
_BEYOND_DOUBT = 4.0


def root_of_prefix_sums(size: int) -> Floats:
    """The lower triangular S with S S = prefix sums: 1, 1/2, 3/8, ... down each column; no entry is negative."""
    falling = np.cumprod(np.concatenate([[1.0], (2 * np.arange(1, size) - 1) / (2 * np.arange(1, size))]))
    root = np.zeros((size, size))
    for column in range(size):
        root[column:, column] = falling[: size - column]
    return root


def unit_root(size: int) -> Floats:
    """The same, divided by the length of its longest column: no column is longer than 1."""
    root = root_of_prefix_sums(size)
    return np.asarray(root / np.linalg.norm(root, axis=0).max())


def known_total(measured: Floats, sums: Floats, noise_std: float, users: int) -> tuple[Floats, Floats]:
    """Counts by least squares from noisy sums that are linear in them, and the covariance of their noise.

    `measured` has in its columns what is sent for each bin. The number of people is known, and imposed.
    """
    inverse = np.linalg.inv(measured.T @ measured)
    counts = inverse @ (measured.T @ sums)
    ones = inverse.sum(axis=1)
    counts = counts + ones * (users - counts.sum()) / ones.sum()
    return counts, noise_std**2 * (inverse - np.outer(ones, ones) / ones.sum())


def scored_total(measured: Floats, sums: Floats, noise_std: float, users: int) -> tuple[Floats, Floats, int]:
    """As `known_total`, with the number of people that are counted: fewer than were asked where that is beyond doubt.

    People whose record says nothing send zero. Taking them for counted would spread them over the bins: where the noisy total is
    so many standard deviations short that noise is no reason, it stands for itself.
    """
    inverse = np.linalg.inv(measured.T @ measured)
    counts = inverse @ (measured.T @ sums)
    total = float(counts.sum())
    if total >= users - _BEYOND_DOUBT * noise_std * float(np.sqrt(inverse.sum())):
        return *known_total(measured, sums, noise_std, users), users
    return counts, np.asarray(noise_std**2 * inverse, dtype=np.float64), max(round(total), 1)


def possible_shares(measured: Floats, sums: Floats, counts: Floats, users: int) -> Floats:
    """Shares that are at least 0 and add up to 1, near the counts in the sense of their noise.

    The mean of two such points: the likeliest one (least squares with the noise's covariance), and that whose prefix sums are the
    monotone ones nearest to those of the counts. Either alone puts the people of several bins into one of them.
    """
    monotone = np.clip(isotonic_regression(np.cumsum(counts[:-1]) / users).x, 0.0, 1.0)
    by_prefix = np.diff(np.concatenate([[0.0], monotone, [1.0]]))
    equations = np.vstack([measured, np.full(len(counts), _CERTAIN)])
    try:
        likeliest, _ = nnls(equations, np.append(sums / users, _CERTAIN), maxiter=50 * len(counts))
    except RuntimeError:  # it did not converge
        likeliest = by_prefix
    return to_simplex((likeliest + by_prefix) / 2)
