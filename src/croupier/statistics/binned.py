"""What follows from noisy counts of two kinds of people in bins: shares of the second kind, and the area under the ROC curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def bin_shares(counts: Floats, covariance: Floats, middles: Floats) -> Floats:
    """One row per bin: its middle, people in it, share of the second kind, standard error of that share.

    `counts` has the bins of the first kind, then those of the second. Share and error are NaN where noise leaves nobody.
    """
    first, second = counts.reshape(2, -1)
    people = first + second
    bins = len(first)
    share = np.where(people > 0, np.clip(second / np.where(people > 0, people, 1.0), 0, 1), np.nan)
    errors = []
    for b in range(bins):
        gradient = np.zeros(2 * bins)
        gradient[b], gradient[bins + b] = -share[b], 1 - share[b]
        noise = gradient @ covariance @ gradient if people[b] > 0 else np.nan
        sampling = share[b] * (1 - share[b])
        errors.append(np.sqrt(max(noise, 0.0) / people[b] ** 2 + sampling / people[b]) if people[b] > 0 else np.nan)
    return np.column_stack([middles, people, share, errors])


@dataclass(frozen=True, eq=False)
class BinnedArea:
    """An area under the ROC curve, its gradient in the counts, and the variance that either kind of people brings by sampling."""

    value: float
    gradient: Floats
    spreads: tuple[float, float]

    @classmethod
    def of(cls, counts: Floats) -> BinnedArea:
        """Of the bins of the first kind, then those of the second, scores rising."""
        first, second = counts.reshape(2, -1)
        sizes = max(float(first.sum()), 1.0), max(float(second.sum()), 1.0)
        below = (np.cumsum(first) - first / 2) / sizes[0]  # share of the first kind that a score of this bin beats
        above = 1 - (np.cumsum(second) - second / 2) / sizes[1]
        area = float(second @ below) / sizes[1]
        gradient = np.concatenate([(above - area) / sizes[0], (below - area) / sizes[1]])
        # DeLong, Delong and Clarke-Pearson 1988: the variance of the placements of either kind
        shares = [np.maximum(part, 0) / max(float(np.maximum(part, 0).sum()), 1e-9) for part in (first, second)]
        spreads = [
            float(share @ place**2 - (share @ place) ** 2) / size
            for share, place, size in zip(shares, (above, below), sizes, strict=True)
        ]
        return cls(area, gradient, (max(spreads[0], 0.0), max(spreads[1], 0.0)))

    def noise(self, covariance: Floats) -> float:
        """Variance of the area, by noise with this covariance in the counts."""
        return max(float(self.gradient @ covariance @ self.gradient), 0.0)
