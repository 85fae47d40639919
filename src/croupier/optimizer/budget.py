"""What a schedule is chosen from: the constants of its steps, and the noise that a run's privacy means for a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from ..privacy import LotsPlan, SumPlan, central_noise_std, honest_in_batch, plan_lots, plan_sum
from ..privacy.crowd import exclusions_in_batch, honest_total
from ..problem import Objective, Problem
from ..validation import real
from .lots import expected_mu

# The part of delta for batches that hold too few honest users.
_SHORTFALL_SHARE = 0.01


@dataclass(frozen=True)
class Enough:
    """How many rounds are enough: the fewest whose bound is within a factor of the best one, and no more than so many."""

    factor: float
    most: int | None = None


@dataclass(frozen=True)
class Rule:
    """The constants that schedules are made from: those with a proof, or those that do well on real data."""

    clip: float  # L: gradients are clipped to this norm
    smoothness: float | None  # beta, of the mean loss
    bounded: bool = True  # whether the bound on the loss holds
    nearer: float = 1.0  # D is the distance divided by this
    trust: float = 1.0  # factor of the noise's part of AC-SA's damping
    full_rounds: Enough = Enough(1.05)  # full interactivity, where every round costs every user its bits
    secret_rounds: Enough = Enough(1.05)  # secret lots

    @classmethod
    def practical(cls, problem: Objective) -> Rule:
        """docs/optimizer.md, "The practical rule", says where these numbers come from."""
        clip, smoothness = problem.lipschitz, problem.smoothness
        if isinstance(problem, Problem):
            clip, smoothness = problem.usual_lipschitz, problem.usual_smoothness
        trust = 1 / 3 if problem.smoothness is None else 1 / 12
        return cls(
            clip, smoothness, bounded=False, nearer=3.0, trust=trust, full_rounds=Enough(1.25, 100), secret_rounds=Enough(1.15, 200)
        )

    def clipped(self, clip: float, lipschitz: float) -> Rule:
        """No gradient is longer than the Lipschitz constant: clipping further out would only add noise."""
        clip = real("clip", clip, above=0, remedy="Give the norm to which every user's gradient is clipped.")
        return replace(self, clip=min(clip, lipschitz), bounded=self.bounded and clip >= lipschitz)


@dataclass(frozen=True)
class Budget:
    """The privacy of a run, and the noise it means for a batch."""

    problem: Objective
    norm: float
    epsilon: float
    delta: float
    calibration: str
    honest: float
    max_inflation: float
    neighbours: str
    crowd: int | None  # all users, of whom batches are random parts
    secret: bool = False  # whether lots are
    exclusions: bool = False  # whether reports may be left out of a round: plans then count on so many fewer honest users

    def shortfall(self, batch: int) -> float:
        """The part of delta for the event that a random batch holds too few honest users."""
        return 0.0 if self.crowd in (None, batch) or self.honest >= 1 else _SHORTFALL_SHARE * self.delta

    def honest_of(self, batch: int) -> float:
        """The fraction of a batch that is honest, but for the shortfall."""
        if self.crowd is None or self.honest >= 1:
            return self.honest
        chance = self.shortfall(batch)
        if not chance and not self.exclusions:
            return self.honest
        held = honest_in_batch(self.crowd, self.honest, batch, chance) if chance else honest_total(batch, self.honest)
        return (held - (exclusions_in_batch(self.crowd, self.honest, batch, held) if self.exclusions else 0)) / batch

    def plan(self, batch: int, rounds: int) -> SumPlan:
        return self._plan(batch, rounds, self.honest_of(batch))

    def _plan(self, batch: int, rounds: int, honest: float) -> SumPlan:
        return plan_sum(
            epsilon=self.epsilon,
            delta=self.delta - self.shortfall(batch),
            users=batch,
            dim=self.problem.dim,
            norm=self.norm,
            honest=honest,
            rounds=rounds,
            neighbours=self.neighbours,
            calibration=self.calibration,
            max_inflation=self.max_inflation,
        )

    def expected_noise(self, batch: int, rounds: int) -> float:
        """s, to about the accuracy of max_inflation: it depends on the batch through its honest users alone."""
        if self.calibration != "tight":
            return self._paper_noise(rounds)
        return self.max_inflation * self._central * math.sqrt(rounds / self.honest_of(batch))

    def plan_lots(self, users: int, rounds: int) -> LotsPlan:
        return plan_lots(
            epsilon=self.epsilon,
            delta=self.delta,
            users=users,
            rounds=rounds,
            dim=self.problem.dim,
            norm=self.norm,
            honest=self.honest,
            neighbours=self.neighbours,
            max_inflation=self.max_inflation,
            exclusions=self.exclusions,
        )

    def lots_noise(self, rounds: int) -> float:
        """s of one of so many secret rounds, to a few percent."""
        return self.max_inflation * self.norm / expected_mu(self.norm / self._central, rounds) / math.sqrt(self.honest)

    @cached_property
    def _central(self) -> float:
        return central_noise_std(self.epsilon, self.delta, self.norm * (2 if self.neighbours == "replace-one" else 1))

    def _paper_noise(self, rounds: int) -> float:
        return self._plan(1_000_000, rounds, self.honest).noise_std
