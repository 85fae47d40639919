"""One score with its error bar."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """One score with its error bar.

    No figure is beyond `low` or `high`, between which such a score always is: noise alone would take it there. That brings an
    estimate nearer to the truth, so an interval about it covers at least as often.

    Parameters
    ----------
    value : float
        The estimate.
    std : float
        Its standard error, for sampling of people and privacy noise together.
    baseline : float or None
        The score of the best constant answer; None where that is not known.
    low, high : float
        Between which such a score always is.

    Attributes
    ----------
    interval : tuple of (float, float)
        The 95 per cent confidence interval.

    Examples
    --------
    >>> from croupier.statistics import Score
    >>> low, high = Score(0.8, 0.01, baseline=0.5).interval
    >>> round(low, 3), round(high, 3)
    (0.78, 0.82)
    """

    value: float
    std: float
    baseline: float | None
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self._inside(self.value))
        if self.baseline is not None:
            object.__setattr__(self, "baseline", self._inside(self.baseline))

    @property
    def interval(self) -> tuple[float, float]:
        """95 per cent, within the range."""
        return self._inside(self.value - 1.96 * self.std), self._inside(self.value + 1.96 * self.std)

    def _inside(self, number: float) -> float:
        return min(max(number, self.low), self.high)
