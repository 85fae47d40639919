"""The scalar sum P_1D (Algorithm 1): the vector sum in one dimension about the middle of the interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ..privacy import ArgumentError, SumPlan
from ..validation import Found, real
from .analyzer import SumEstimate
from .encoding import as_numbers, require_finite
from .messages import Counts, Report, ShuffledBatch
from .randomness import RandomSource
from .sums import CHUNK_ENTRIES, VectorSum


class ScalarSum:
    """P_1D (Algorithm 1): the sum of numbers in the interval from `lower` to `lower` + width, one shuffle round.

    The paper's interval is [0, Delta]. Numbers outside are clipped to it.

    Parameters
    ----------
    plan : SumPlan
        From `plan_scalar_sum`, which takes the width.
    lower : float, default 0.0
        The lower end of the public interval, in units of the data.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    As for `VectorSum`: what the plan says, if enough users are honest and the shuffler does its work.

    Examples
    --------
    >>> from croupier import ScalarSum, plan_scalar_sum
    >>> ages = ScalarSum(plan_scalar_sum(epsilon=1.0, delta=1e-6, users=1000, width=100.0))
    >>> bool(abs(ages.run([40.0] * 1000).sum - 40_000) < 8 * ages.plan.noise_std)
    True
    """

    def __init__(self, plan: SumPlan, *, lower: float = 0.0) -> None:
        if not isinstance(plan, SumPlan) or not plan.scalar:
            raise ArgumentError("plan", plan, "a plan for a scalar sum", "Make one with plan_scalar_sum(...).")
        self.plan = plan
        # Algorithm 1 on [lower, lower + Delta] is Algorithm 2 in one dimension about the middle of the interval.
        self._middle = (
            real("lower", lower, above=-1e100, below=1e100, remedy="Give the lower end of the public interval.") + plan.norm
        )
        self._vector = VectorSum(plan)

    def randomize(self, value: float, random: RandomSource | None = None) -> Report:
        """Make one user's bits.

        Parameters
        ----------
        value : float
            The user's number; clipped to the interval.
        random : RandomSource, optional
            As in `VectorSum.randomize`.

        Returns
        -------
        Report
            All that leaves the user.
        """
        return self._vector.randomize(self._centred([value], "value")[0], random)

    def shuffle(self, reports: Sequence[Report], random: RandomSource | None = None) -> ShuffledBatch:
        """Put the users' bits into uniformly random order; see `VectorSum.shuffle`.

        Parameters
        ----------
        reports : sequence of Report
            One of every user that arrived.
        random : RandomSource, optional
            As in `VectorSum.shuffle`.

        Returns
        -------
        ShuffledBatch
            All that the analyzer sees.
        """
        return self._vector.shuffle(reports, random)

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """Estimate the sum of the numbers: (Delta / g)(count - p b n') + n' lower.

        Parameters
        ----------
        batch : ShuffledBatch or Counts
            What the shuffler forwarded, or its counts.

        Returns
        -------
        SumEstimate
            Its `sum` is a number.
        """
        return self._uncentred(self._vector.analyze(batch))

    def run(
        self,
        values: ArrayLike,
        *,
        mode: str = "counting",
        random: RandomSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> SumEstimate:
        """Run a whole round in memory, one number per user.

        Parameters
        ----------
        values : array_like of shape (users,)
            Finite numbers; those outside the interval are clipped to it.
        mode : {"counting", "faithful"}, default "counting"
            As in `VectorSum.run`.
        random : RandomSource, optional
            As in `VectorSum.run`.
        progress : callable, optional
            As in `VectorSum.run`.

        Returns
        -------
        SumEstimate
            Its `sum` is a number.
        """
        return self._uncentred(self._vector.run(self._centred(values), mode=mode, random=random, progress=progress))

    def _centred(self, values: ArrayLike, name: str = "values") -> np.ndarray:
        array = as_numbers(values, name, "Pass one number per user.")
        if array.ndim != 1:
            raise ArgumentError(f"{name}.shape", array.shape, "(users,)", "Pass one number per user.")
        if array.size == 0:
            raise ArgumentError(name, Found("is empty"), "at least one user", "Pass one number per user.")
        column = array[:, np.newaxis]
        require_finite(column, range(0, len(column), CHUNK_ENTRIES), name)
        clipped = np.clip(column.astype(np.float64), self._middle - self.plan.norm, self._middle + self.plan.norm)
        return np.asarray(clipped - self._middle)

    def _uncentred(self, estimate: SumEstimate) -> SumEstimate:
        return replace(estimate, sum=estimate.sum[0] + estimate.users * self._middle)
