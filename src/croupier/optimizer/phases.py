"""What a schedule is: phases of rounds under plans, what they prove, and what a phase descends on. `schedule` chooses them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy import Guarantee, SumPlan, honest_in_batch
from ..privacy.crowd import surely_honest
from ..privacy.guarantee import known_fields
from ..problem import Objective, Problem, Smoothed
from ..validation import ArgumentError, one_of, whole

Floats = NDArray[np.float64]
INTERACTIVITY = ("sequential", "full", "stream")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One run of an inner algorithm: `rounds` rounds of `batch` users each, under one plan."""

    algorithm: str  # "descent" or "acsa"
    rounds: int
    batch: int
    users: int
    step: float | None  # descent's: how far it goes along a gradient
    damping: float | None  # AC-SA's t L_t: the larger, the shorter its steps
    smoothing: float | None  # beta of the Moreau envelope, if the loss is smoothed
    distance: float  # D
    gradient_std: float  # square root of the total variance of a mean gradient
    bound: float | None  # on the expected excess loss of this phase's output; None where the steps or the clipping have none
    plan: SumPlan = field(repr=False)
    paper_steps: bool = False

    def __post_init__(self) -> None:
        if (self.step is None, self.damping is None) != (self.algorithm == "acsa", self.algorithm != "acsa"):
            allowed = "with a step for descent, or a damping for acsa, and the other None"
            remedy = "Make it with schedule(); one that an earlier version wrote has a step where a damping is meant."
            raise ArgumentError("phase", f"{self.algorithm}, step {self.step}, damping {self.damping}", allowed, remedy)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Phase:
        known_fields(cls, values, defaults=True)
        return cls(**values | {"plan": SumPlan.from_dict(values["plan"])})


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The phases of a run, what they promise, and why this method. `bound` is on expected excess population loss, or on excess
    empirical loss where `bound_on` says so."""

    method: str
    interactivity: str
    phases: tuple[Phase, ...]
    bound: float | None
    bound_on: str
    why: str
    honest: float = 1.0  # fraction of all users that is counted on
    shortfall: float = 0.0  # probability that a user's batch holds fewer honest users than its plan needs; part of delta

    @property
    def rounds(self) -> int:
        return sum(phase.rounds for phase in self.phases)

    @property
    def bits_per_user(self) -> int:
        """The most bits that one user sends in the whole run."""
        per_user = (p.plan.bits_per_user * (p.rounds if self.interactivity == "full" else 1) for p in self.phases)
        return max(per_user)

    @property
    def guarantee(self) -> Guarantee:
        """What a whole run reveals about one user."""
        return self.guarantee_of(self.phases)

    def guarantee_of(self, phases: Iterable[Phase]) -> Guarantee:
        """What these phases reveal: the worst of their plans, as no user is in two, and the chance that a batch falls short."""
        first, *others = [phase.plan.guarantee for phase in phases]
        return self.with_shortfall(first.worst_of(*others))

    def with_shortfall(self, guarantee: Guarantee) -> Guarantee:
        """A guarantee of plans that count on honest users in every batch, as one that counts on a fraction of all users."""
        honest = self.honest if self.shortfall else max(guarantee.honest, self.honest)
        return replace(guarantee, slack=min(1.0, guarantee.slack + self.shortfall), honest=honest)

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        for phase, made in zip(plain["phases"], self.phases, strict=True):
            phase["plan"] = made.plan.to_dict()
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schedule:
        known_fields(cls, values, defaults=True)
        return cls(**values | {"phases": tuple(Phase.from_dict(phase) for phase in values["phases"])})

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        sizes = ", ".join(f"{p.rounds} x {p.batch}" for p in self.phases)
        promise = "no bound" if self.bound is None else f"excess {self.bound_on} loss <= {self.bound:.4g}"
        return (
            f"{self.method} ({self.interactivity}): {self.rounds} rounds ({sizes} users), {promise}, "
            f"{self.bits_per_user} bits a user; {self.why}"
        )


def check_schedule(chosen: Schedule, users: int) -> None:
    """Refuse a schedule whose plans do not prove what it claims for so many users; the problem is not looked at."""
    remedy = "Make a schedule for this problem and this population."
    one_of("interactivity", chosen.interactivity, INTERACTIVITY[:2], remedy)
    whole("users", users, at_least=1, remedy=remedy)
    full = chosen.interactivity == "full"
    if not chosen.phases or sum(phase.users for phase in chosen.phases) > users:
        needed = sum(phase.users for phase in chosen.phases)
        raise ArgumentError("chosen", f"a schedule for {needed} users", f"one for at most {users}", remedy)
    for phase in chosen.phases:
        whole("phase.rounds", phase.rounds, at_least=1, at_most=phase.plan.rounds if full else None, remedy=remedy)
        whole("phase.batch", phase.batch, at_least=1, at_most=phase.users, remedy=remedy)
        asked = phase.batch if full else phase.batch * phase.rounds
        if asked > phase.users or phase.plan.users != phase.batch:
            raise ArgumentError("chosen", str(phase), "a phase that fits its users and its plan", remedy)
        if phase.plan.diameter is not None:
            allowed = "left out: gradients are anywhere in the ball of the plan's norm"
            raise ArgumentError("phase.plan.diameter", phase.plan.diameter, allowed, remedy)
        if chosen.shortfall:
            held = honest_in_batch(users, chosen.honest, phase.batch, chosen.shortfall)
        else:
            held = surely_honest(users, chosen.honest, phase.batch)
        if phase.plan.honest_users > held:
            allowed = f"enough for the {phase.plan.honest_users} honest users that a batch's plan counts on, not {held}"
            raise ArgumentError("chosen.shortfall", chosen.shortfall, allowed, remedy)


def objective_of(problem: Objective, phase: Phase) -> Objective:
    """What a phase descends on: the problem, or its Moreau envelope."""
    return Smoothed(problem, phase.smoothing) if phase.smoothing is not None and isinstance(problem, Problem) else problem


def start_point(problem: Objective, start: ArrayLike | None) -> Floats:
    """Where a run begins: the projection of `start`, or of 0."""
    if start is None:
        return problem.domain.start()
    point = np.array(start, dtype=np.float64)
    if point.shape != (problem.dim,) or not np.all(np.isfinite(point)):
        raise ArgumentError("start", point.shape, f"{problem.dim} finite numbers", "Leave it out to begin at the projection of 0.")
    return problem.domain.project(point)
