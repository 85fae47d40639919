"""Runs that are ready to ask: one private round of everybody, or one in each of several groups of people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..optimizer.result import Round
from ..population import Population, Query
from ..population.population import Question, Test, deal
from ..privacy import Guarantee, SumPlan
from ..privacy._crowd import honest_in_batch
from ..protocol import SumEstimate
from ..protocol.randomness import Secret
from ..statistics.asking import answered, plan_for
from ..validation import ArgumentError, real, whole

# The part of delta for groups that hold too few honest users.
_SHORTFALL_SHARE = 0.01
_REMEDY = "Do not use this file."
_PLAN_AGAIN = "Plan for as many people as there are; nobody was asked, and nothing was spent."


@dataclass(frozen=True)
class Ready:
    """A run whose records are checked and which has asked nobody yet.

    `ask` asks, calls its argument after each round of training, and returns what a model keeps of the release, by the names of its
    attributes. `name` is that of a run that may resume from a file, so that it is charged once.
    """

    ask: Callable[[Callable[[Round], None] | None], dict[str, Any]]
    name: str | None = None


@contextmanager
def one_round(query: Query, population: Population, plan: SumPlan, seed: int | None) -> Iterator[Ready]:
    """Everybody is asked once."""
    whole("schedule.honest_users", plan.honest_users, at_least=1, at_most=population.users, remedy=_PLAN_AGAIN)
    population.prepare(query.test)
    yield Ready(lambda _: {"plan_": plan, "estimate_": answered(query, population, plan, seed)})


def require_once(checkpoint: Any) -> None:
    """Refuse a checkpoint of a run that has one answer of everybody, or none."""
    if checkpoint is not None:
        remedy = "Everybody is asked once: there are no rounds to resume."
        raise ArgumentError("checkpoint", str(checkpoint), "left out here", remedy)


@dataclass(frozen=True)
class GroupPlans:
    """How each group is asked: one plan per group, and the chance that a group holds too few honest users.

    `plans`: One per group; its `users` are the group's size. `honest`: The fraction of all users that is relied on. `shortfall`:
    The probability, part of delta, that a user's group holds fewer honest users than its plan counts on. `users`: People in all
    groups together. `guarantee`: What all rounds reveal about one user.

    Guarantee
    ---------
    The worst of the groups: each user is in one, by lots that do not depend on the data, and answers once.
    """

    plans: tuple[SumPlan, ...]
    honest: float
    shortfall: float

    @property
    def users(self) -> int:
        """People in all groups together."""
        return sum(plan.users for plan in self.plans)

    @property
    def guarantee(self) -> Guarantee:
        """The worst of the groups, and the chance that one falls short."""
        first, *others = [plan.guarantee for plan in self.plans]
        worst = first.worst_of(*others)
        honest = self.honest if self.shortfall else max(worst.honest, self.honest)
        return replace(worst, slack=min(1.0, worst.slack + self.shortfall), honest=honest)

    def check(self) -> None:
        """Refuse plans that count on more honest users than random groups hold."""
        real("honest", self.honest, above=0, at_most=1, remedy=_REMEDY)
        real("shortfall", self.shortfall, at_least=0, below=1, remedy=_REMEDY)
        if self.honest < 1:
            real("shortfall", self.shortfall, above=0, remedy=_REMEDY)
            for plan in self.plans:
                most = honest_in_batch(self.users, self.honest, plan.users, self.shortfall)
                whole("plan.honest_users", plan.honest_users, at_least=1, at_most=most, remedy=_REMEDY)


@dataclass(frozen=True, eq=False)
class GroupRounds:
    """What the rounds of all groups released.

    `planned`: How they were asked. `estimates`: The noisy sums, one per group. `users`: People in all groups together. `guarantee`:
    What all rounds reveal about one user; None if one of them was not private.
    """

    planned: GroupPlans
    estimates: tuple[SumEstimate, ...]

    @property
    def users(self) -> int:
        """People in all groups together."""
        return self.planned.users

    @property
    def guarantee(self) -> Guarantee | None:
        """That of the plans, unless a round was not private."""
        return self.planned.guarantee if all(estimate.private for estimate in self.estimates) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in plain JSON types."""
        return {
            "plans": [plan.to_dict() for plan in self.planned.plans],
            "honest": self.planned.honest,
            "shortfall": self.planned.shortfall,
            "estimates": [estimate.to_dict() for estimate in self.estimates],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> GroupRounds:
        """Read rounds from their dictionary. Plans are certified again, and each sum has to be one of its plan."""
        if set(values) != {"plans", "honest", "shortfall", "estimates"}:
            raise ArgumentError("rounds", sorted(values), "plans, honest, shortfall and estimates", _REMEDY)
        planned = GroupPlans(
            tuple(SumPlan.from_dict(plan) for plan in values["plans"]), float(values["honest"]), float(values["shortfall"])
        )
        planned.check()
        estimates = tuple(SumEstimate.from_dict(estimate) for estimate in values["estimates"])
        for plan, estimate in zip(planned.plans, estimates, strict=True):
            check_round(estimate, plan)
        return cls(planned, estimates)


def check_round(estimate: SumEstimate, plan: SumPlan) -> None:
    """Refuse an estimate that is not one of this plan: of fewer users, say, than the noise is counted from."""
    claim = estimate.guarantee
    # Where reports may be left out, more honest users are assumed than the plan needs: that claims less.
    if claim is not None and replace(claim, honest=min(claim.honest, plan.guarantee.honest)) != plan.guarantee:
        raise ArgumentError("guarantee", str(estimate.guarantee), f"no stronger than its plans: {plan.guarantee}", _REMEDY)
    whole("estimate.users", estimate.users, at_least=plan.honest_users, at_most=plan.users, remedy=_REMEDY)
    if estimate.sum.shape != (plan.dim,) or not math.isclose(estimate.noise_std, plan.noise_std_for(estimate.users)):
        raise ArgumentError("estimate", str(estimate), f"one of the plan beside it: {plan}", _REMEDY)


def plan_groups(
    queries: Sequence[Query], sizes: Sequence[int], *, epsilon: float, delta: float, honest: float, **options: Any
) -> GroupPlans:
    """Plan one round for each group of users."""
    shortfall = 0.0 if honest >= 1 else _SHORTFALL_SHARE * delta

    def counted_on(size: int) -> float:
        return honest if not shortfall else honest_in_batch(sum(sizes), honest, size, shortfall) / size

    plans = tuple(
        plan_for(query, size, epsilon=epsilon, delta=delta - shortfall, honest=counted_on(size), **options)
        for query, size in zip(queries, sizes, strict=True)
    )
    return GroupPlans(plans, honest, shortfall)


Queries = Sequence[Callable[[Sequence[SumEstimate]], Query]]


@contextmanager
def group_rounds(planned: GroupPlans, queries: Queries, test: Test, population: Population, seed: int | None) -> Iterator[Ready]:
    """Everybody is asked once, in one of several groups; what a group is asked may depend on what earlier ones answered."""
    whole("schedule.users", planned.users, at_least=population.users, at_most=population.users, remedy=_PLAN_AGAIN)
    planned.check()
    population.prepare(test)
    yield Ready(lambda _: {"rounds_": _ask_groups(planned, queries, population, seed)})


def _ask_groups(planned: GroupPlans, queries: Queries, population: Population, seed: int | None) -> GroupRounds:
    secret = Secret.fresh() if seed is None else Secret.of_seed(seed)
    batches = deal(secret.derive("deal"), planned.users, [plan.users for plan in planned.plans])
    estimates: list[SumEstimate] = []
    for number, (plan, batch, query) in enumerate(zip(planned.plans, batches, queries, strict=True), start=1):
        question = Question(query(estimates), batch, plan, secret.derive("group", number), number)
        estimates.append(population.answer(question))
    return GroupRounds(planned, tuple(estimates))
