"""The shuffler: cuts the link between people and messages, and withholds a batch that is too small to hide anybody."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..privacy import ArgumentError, SumPlan
from ..privacy.words import honest_users
from .messages import Report, ShuffledBatch
from .randomness import RandomSource
from .sampling import permutation


class BatchTooSmallError(ValueError):
    """Fewer users arrived than the noise was calibrated for: releasing the batch would break the guarantee."""


def require_crowd(plan: SumPlan, users: int) -> None:
    """Refuse a batch below the honest minimum. The analyzer cannot repair what is missing, so nothing is released."""
    if users < plan.honest_users:
        raise BatchTooSmallError(
            f"users = {users} arrived, but the plan's guarantee needs {honest_users(plan.honest_users, plan.users)}. "
            f"Nothing was released: wait for more users, or plan with fewer users or a smaller honest fraction."
        )


class Shuffler:
    """Checks a whole batch, permutes it uniformly under each label, and forwards it once."""

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan

    def shuffle(self, reports: Sequence[Report], random: RandomSource) -> ShuffledBatch:
        """The batch in uniformly random order. The order of labels is public and fixed, so each label is permuted alone."""
        require_crowd(self.plan, len(reports))
        shape = (self.plan.dim, self.plan.bits_per_coordinate)
        for index, report in enumerate(reports):
            if not isinstance(report, Report) or report.bits.shape != shape or report.bits.dtype != np.bool_:
                what = f"{report.bits.shape} of {report.bits.dtype}" if isinstance(report, Report) else type(report).__name__
                raise ArgumentError(f"reports[{index}]", what, f"a Report of {shape} bits under this plan", "Drop this report.")
        if len({id(report) for report in reports}) < len(reports):
            raise ArgumentError(
                "reports", "one report more than once", "one report per user", "A user takes part once; drop the copy."
            )
        shuffled = np.empty((self.plan.dim, len(reports) * self.plan.bits_per_coordinate), dtype=np.bool_)
        for label in range(self.plan.dim):
            sent = np.concatenate([report.bits[label] for report in reports])
            shuffled[label] = sent[permutation(random, sent.size)]
        return ShuffledBatch(shuffled, random.private and all(report.private for report in reports))
