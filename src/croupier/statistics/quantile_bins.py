"""Calibration of a quantile regressor: the share of people at or below the prediction, by bins of the prediction.

A person sends the one-hot vector of (bin of the prediction, whether the target is at most the prediction) times WEIGHT: two such
vectors are at most sqrt(2) WEIGHT apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .binned import bin_shares
from .error_bars import Score
from .prefix_sums import known_total

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Equal bins of the declared range, and the weight of a cell: the other numbers get 12 per cent more noise than without cells.
BINS, WEIGHT = 10, 0.5
# A share with a larger standard error says nothing.
TOLD = 0.25


def cell_vectors(answer: Floats, below: Flags) -> Floats:
    """The cells of predictions, in [0, 1], and of whether the target is at or below: one-hot, times the weight."""
    place = np.clip((np.nan_to_num(answer) * BINS).astype(np.int64), 0, BINS - 1)
    return WEIGHT * np.eye(2 * BINS)[place + BINS * below]


@dataclass(frozen=True, eq=False)
class QuantileBins:
    """Shares of people at or below a predicted quantile, by bins of the prediction.

    Parameters
    ----------
    counts : ndarray of shape (2 * bins,)
        Noisy counts of people in bins of the prediction: those above it, then those at or below.
    covariance : ndarray of shape (2 * bins, 2 * bins)
        Covariance of the noise in `counts`.
    users : int
        How many people answered.
    quantile : float
        The quantile that is predicted.
    edges : ndarray of shape (bins + 1,)
        Ends of the bins, in the target's unit.

    Attributes
    ----------
    overall : Score
        The share of all people at or below; its baseline is the quantile.
    calibration : ndarray of shape (bins, 4)
        One row per bin: its middle, people in it, share at or below, standard error of that share.
    told : ndarray of shape (bins,)
        Bins whose share is told from noise: the others hold nobody, or too few.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.statistics import QuantileBins
    >>> bins = QuantileBins(np.array([10.0, 30, 90, 70]), np.eye(4), 200, 0.8, np.array([0.0, 1, 2]))
    >>> bins.overall.value, bins.calibration[:, 2].tolist()
    (0.8, [0.9, 0.7])
    """

    counts: Floats
    covariance: Floats
    users: int
    quantile: float
    edges: Floats

    @classmethod
    def read(
        cls, sums: Floats, weight: float, noise_std: float, users: int, quantile: float, ends: tuple[float, float]
    ) -> QuantileBins:
        """What a noisy sum says: first the number of people at or below times `weight`, then the sum of `cell_vectors`.

        Parameters
        ----------
        sums : ndarray of shape (1 + 2 * bins,)
            The noisy sum.
        weight : float
            Weight of its first entry.
        noise_std : float
            Standard deviation of the noise in each entry.
        users : int
            How many people answered.
        quantile : float
            The quantile that is predicted.
        ends : tuple of (float, float)
            Range of the target.

        Returns
        -------
        QuantileBins
            Counts by least squares, with the known number of people imposed.
        """
        measured = np.vstack([weight * np.repeat([0.0, 1.0], BINS), WEIGHT * np.eye(2 * BINS)])
        counts, covariance = known_total(measured, sums, noise_std, users)
        return cls(counts, covariance, users, quantile, np.linspace(*ends, BINS + 1))

    @property
    def overall(self) -> Score:
        """The share of all people at or below."""
        half = len(self.counts) // 2
        share = float(self.counts[half:].sum()) / self.users
        noise = max(float(self.covariance[half:, half:].sum()), 0.0) / self.users**2
        inside = min(max(share, 0.0), 1.0)
        return Score(share, math.sqrt(noise + inside * (1 - inside) / self.users), self.quantile, 0, 1)

    @property
    def calibration(self) -> Floats:
        """One row per bin: its middle, people in it, share at or below, standard error of that share."""
        return bin_shares(self.counts, self.covariance, (self.edges[1:] + self.edges[:-1]) / 2)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the calibration in plain JSON types.

        Returns
        -------
        list of dict
            One per bin: "low", "high", "people", "share", "std"; the last two None where noise leaves nobody.
        """
        return [
            {
                "low": low,
                "high": high,
                "people": people,
                "share": None if math.isnan(share) else share,
                "std": None if math.isnan(std) else std,
            }
            for (low, high), (_, people, share, std) in zip(pairwise(self.edges.tolist()), self.calibration.tolist(), strict=True)
        ]

    @property
    def told(self) -> Flags:
        """Bins whose share is told from noise: the others hold nobody, or too few."""
        rows = self.calibration
        return np.asarray(np.isfinite(rows).all(axis=1) & (rows[:, 3] < TOLD))

    def __str__(self) -> str:
        lines = [f"{'prediction':<24} {'people':>9}    at or below, {self.quantile:g} if calibrated"]
        for (low, high), (_, people, share, std), told in zip(
            pairwise(self.edges.tolist()), self.calibration.tolist(), self.told.tolist(), strict=True
        ):
            ends = Score(share, std, None, 0, 1).interval
            words = f"{share:.3f}    {ends[0]:.3f} .. {ends[1]:.3f}" if told else "too few people to tell"
            lines.append(f"{f'{low:.4g} .. {high:.4g}':<24} {people:>9,.0f}    {words}")
        return "\n".join(lines)
