"""The analyst's side (A_1D, A_vec): count ones, subtract the noise's mean, rescale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import JsonText
from ..privacy import ArgumentError, Guarantee, SumPlan
from ..privacy.calibration import is_proved
from ..validation import whole
from ._rotation import Rotation
from .shuffler import Counts, ShuffledBatch, require_crowd


@dataclass(frozen=True, eq=False, kw_only=True)
class SumEstimate(JsonText):
    """An unbiased estimate of the users' sum, with its noise and what it reveals.

    Parameters
    ----------
    sum : numpy.ndarray of shape (dim,)
        The estimate, in units of the data; a number for a scalar sum.
    users : int
        The users that arrived.
    noise_std : float
        Standard deviation per coordinate of `sum`, at its largest over all inputs, in units of the data.
    guarantee : Guarantee or None
        What is promised to every user. None if the randomness was seeded, or where the plan was edited so that its claim
        has no proof: such a result is not private.

    Examples
    --------
    >>> estimate = SumEstimate(sum=np.array([3.0, 5.0]), users=10, noise_std=0.5, guarantee=None)
    >>> estimate.mean.tolist(), estimate.mean_noise_std, estimate.private
    ([0.3, 0.5], 0.05, False)
    """

    sum: NDArray[np.float64]
    users: int
    noise_std: float
    guarantee: Guarantee | None

    @property
    def private(self) -> bool:
        """Whether the estimate has a guarantee."""
        return self.guarantee is not None

    @property
    def mean(self) -> NDArray[np.float64]:
        """The sum divided by the users that arrived."""
        return self.sum / self.users

    @property
    def mean_noise_std(self) -> float:
        """Standard deviation per coordinate of `mean`."""
        return self.noise_std / self.users

    def to_dict(self) -> dict[str, Any]:
        return {
            "sum": self.sum.tolist(),
            "users": self.users,
            "noise_std": self.noise_std,
            "guarantee": self.guarantee.to_dict() if self.guarantee else None,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SumEstimate:
        guarantee = values["guarantee"]
        return cls(
            sum=np.asarray(values["sum"], dtype=np.float64),
            users=values["users"],
            noise_std=values["noise_std"],
            guarantee=Guarantee.from_dict(guarantee) if guarantee else None,
        )

    def __str__(self) -> str:
        shape = "a number" if self.sum.ndim == 0 else f"{self.sum.size} coordinates"
        promise = str(self.guarantee) if self.guarantee else "NOT PRIVATE (seeded randomness, or a plan without proof)"
        return f"sum over {self.users} users, {shape}, noise {self.noise_std:.4g} per coordinate; {promise}"


class Analyzer:
    """The analyst's side of a plan: turns a shuffled batch, or the counts that are equivalent to it, into an estimate.

    Parameters
    ----------
    plan : SumPlan
        The plan that the users of the batch followed.
    seed : bytes, optional
        Under a plan with a rotation, the bytes that the users' rotation was made from.
    block : int, default 0
        Under a plan with blocks, the block that the batch is of; the estimate is then that block's part, and parts add up.

    Attributes
    ----------
    plan : SumPlan
        The same plan.

    Guarantee
    ---------
    The estimate is a function of the batch and of public figures, so it reveals no more than the batch does. No estimate is made of
    a batch that is too small for the plan's guarantee.

    Examples
    --------
    >>> from croupier import plan_sum
    >>> plan = plan_sum(epsilon=1.0, delta=1e-6, users=100, dim=2)
    >>> expected = 100 * (plan.levels / 2 + plan.noise_bits * plan.noise_probability)
    >>> counts = Counts(np.array([expected + plan.levels, expected]), users=100, private=False)
    >>> Analyzer(plan).analyze(counts).sum.tolist()
    [2.0, 0.0]
    """

    def __init__(self, plan: SumPlan, seed: bytes | None = None, block: int = 0) -> None:
        self.plan, self.block = plan, whole("block", block, at_least=0, at_most=plan.blocks - 1, remedy="Count blocks from 0.")
        self._rotation = None if plan.range is None else Rotation.of(plan, seed)

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """Estimate the sum of the vectors of the users that arrived.

        The estimate is (2 Delta / g)(C - p b n') - n' Delta, n' the users that arrived. It is unbiased for them
        (docs/accounting.md#5-noise-and-unbiasedness). With a rotation Delta is the range, and the estimate is turned back; its mean
        is off by `plan.bias_bound` at most.

        Parameters
        ----------
        batch : ShuffledBatch or Counts
            The bits of all users after shuffling, or their number of ones per coordinate.

        Returns
        -------
        SumEstimate
            The estimate; its guarantee is None if the noise was not secure or the plan is not certified.

        Raises
        ------
        BatchTooSmallError
            If fewer users arrived than the plan's guarantee counts on.
        ArgumentError
            If the batch was not made under this plan.
        """
        counts = batch.counts(self.plan) if isinstance(batch, ShuffledBatch) else batch
        if not isinstance(counts, Counts):
            raise ArgumentError("batch", type(batch).__name__, "a ShuffledBatch or Counts", "Shuffle the users' reports first.")
        plan = self.plan
        require_crowd(plan, counts.users)  # no estimate under a guarantee that does not hold
        if counts.ones.shape != (plan.coordinates,):
            remedy = "Analyze counts with the plan they were made under."
            raise ArgumentError("counts.ones.shape", counts.ones.shape, f"({plan.coordinates},)", remedy)
        # C - p b n' - n' g / 2 in one go: exact while below 2^53, so nothing cancels badly
        centre = counts.users * (plan.noise_probability * plan.noise_bits + plan.levels / 2)
        sums = np.asarray(plan.step(plan.levels) * (counts.ones - centre), dtype=np.float64)
        return SumEstimate(
            sum=sums if self._rotation is None else self._rotation.back(sums, self.block),
            users=counts.users,
            noise_std=plan.noise_std_for(counts.users) / plan.blocks**1.5,
            guarantee=plan.guarantee if counts.private and is_proved(plan) else None,
        )
