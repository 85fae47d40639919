"""The shuffler: cuts the link between people and messages, and withholds a batch that is too small to hide anybody."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..privacy import ArgumentError, SumPlan
from ..privacy._statements import honest_users
from ..validation import Found
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
    """The shuffler of a plan: checks a whole batch, permutes it uniformly under each label, and forwards it once.

    Parameters
    ----------
    plan : SumPlan
        The plan that the users follow.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    What is forwarded is a function of the number of ones under each label and of coins that have nothing to do with users. A batch
    with fewer users than the plan counts on is withheld.

    Examples
    --------
    >>> from croupier import SecureRandom, VectorSum, plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=20, dim=2)
    >>> reports = [VectorSum(plan).randomize([0.5, 0.5]) for user in range(20)]
    >>> Shuffler(plan).shuffle(reports, SecureRandom()).counts(plan).users
    20
    """

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan

    def shuffle(self, reports: Sequence[Report], random: RandomSource) -> ShuffledBatch:
        """Put the bits of a batch into uniformly random order, under each label alone: labels are public, and their order is fixed.

        Parameters
        ----------
        reports : sequence of Report
            One report of every user that arrived.
        random : RandomSource
            Where the permutations come from.

        Returns
        -------
        ShuffledBatch
            The bits under each label.

        Raises
        ------
        BatchTooSmallError
            Where fewer users arrived than the plan's guarantee counts on.
        ArgumentError
            Where a report was not made under this plan, or is there twice.
        """
        require_crowd(self.plan, len(reports))
        shape = (self.plan.dim, self.plan.bits_per_coordinate)
        for index, report in enumerate(reports):
            if not isinstance(report, Report) or report.bits.shape != shape or report.bits.dtype != np.bool_:
                what = f"{report.bits.shape} of {report.bits.dtype}" if isinstance(report, Report) else type(report).__name__
                raise ArgumentError(f"reports[{index}]", what, f"a Report of {shape} bits under this plan", "Drop this report.")
        if len({id(report) for report in reports}) < len(reports):
            raise ArgumentError(
                "reports", Found("has one report more than once"), "one report per user", "A user takes part once; drop the copy."
            )
        shuffled = np.empty((self.plan.dim, len(reports) * self.plan.bits_per_coordinate), dtype=np.bool_)
        for label in range(self.plan.dim):
            sent = np.concatenate([report.bits[label] for report in reports])
            shuffled[label] = sent[permutation(random, sent.size)]
        return ShuffledBatch(shuffled, random.private and all(report.private for report in reports))
