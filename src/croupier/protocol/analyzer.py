"""The analyst's side (A_1D, A_vec): count ones, subtract the noise's mean, rescale."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy import ArgumentError, Guarantee, SumPlan, is_proved
from .messages import Counts, ShuffledBatch
from .shuffler import require_crowd


@dataclass(frozen=True, eq=False, kw_only=True)
class SumEstimate:
    """An unbiased estimate of the users' sum, with its noise and what it reveals.

    `noise_std` is the standard deviation per coordinate, at its largest over all inputs. `guarantee` is None where the
    randomness was seeded, or the plan was edited so that its claim has no proof: such a result is not private.
    """

    sum: NDArray[np.float64]
    users: int
    noise_std: float
    guarantee: Guarantee | None

    @property
    def private(self) -> bool:
        return self.guarantee is not None

    @property
    def mean(self) -> NDArray[np.float64]:
        return self.sum / self.users

    @property
    def mean_noise_std(self) -> float:
        return self.noise_std / self.users

    def to_dict(self) -> dict[str, Any]:
        return {
            "sum": self.sum.tolist(),
            "users": self.users,
            "noise_std": self.noise_std,
            "guarantee": self.guarantee.to_dict() if self.guarantee else None,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> SumEstimate:
        values = json.loads(text)
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
        return f"sum over {self.users} users, {shape}, noise {self.noise_std:.4g} a coordinate; {promise}"


class Analyzer:
    """Turns a shuffled batch, or the counts that are equivalent to it, into an estimate."""

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan

    def analyze(self, batch: ShuffledBatch | Counts) -> SumEstimate:
        """(2 Delta / g)(C - p b n') - n' Delta, n' the users that arrived: unbiased for them (accounting, section 5)."""
        counts = batch.counts(self.plan) if isinstance(batch, ShuffledBatch) else batch
        if not isinstance(counts, Counts):
            raise ArgumentError("batch", type(batch).__name__, "a ShuffledBatch or Counts", "Shuffle the users' reports first.")
        plan = self.plan
        require_crowd(plan, counts.users)  # no estimate under a guarantee that does not hold
        if counts.ones.shape != (plan.dim,):
            raise ArgumentError(
                "counts.ones.shape", counts.ones.shape, f"({plan.dim},)", "Analyze counts with the plan they were made under."
            )
        # C - p b n' - n' g / 2 in one go: exact while below 2^53, so nothing cancels badly
        centre = counts.users * (plan.noise_probability * plan.noise_bits + plan.levels / 2)
        return SumEstimate(
            sum=np.asarray(2 * plan.norm / plan.levels * (counts.ones - centre), dtype=np.float64),
            users=counts.users,
            noise_std=plan.noise_std_for(counts.users),
            guarantee=plan.guarantee if counts.private and is_proved(plan) else None,
        )
