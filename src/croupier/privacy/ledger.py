"""Who took part under which plan: written down before anything is released, and refused beyond what the plan covers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .guarantee import Guarantee
from .plan import SumPlan


class BudgetExceededError(RuntimeError):
    """A user would take part more often than the plan covers. Nothing was released."""


class Ledger:
    """Participation of `users` users. Each may take part in `plan.rounds` rounds of one plan, and in no other.

    Sequential interactivity is a plan with rounds = 1; full interactivity one with rounds = T. The guarantee of everything charged
    so far is the worst over the plans, since no user is under two of them (accounting, section 4).
    """

    def __init__(self, users: int) -> None:
        self._plans: list[SumPlan] = []
        self._plan_of = np.full(users, -1, dtype=np.int32)
        self._rounds = np.zeros(users, dtype=np.int32)

    def charge(self, users: NDArray[np.int64], plan: SumPlan) -> None:
        """Record that these users take part in one more round, or refuse and record nothing."""
        index = self._plans.index(plan) if plan in self._plans else len(self._plans)
        users = np.sort(users)
        if users.size and users[0] < 0:  # would be another name of somebody at the end
            raise BudgetExceededError("users are numbered from 0; nothing was released")
        if np.any(users[1:] == users[:-1]):
            raise BudgetExceededError("a user is listed twice in one batch; nothing was released")
        before = self._plan_of[users]
        if np.any((before != -1) & (before != index)):
            raise BudgetExceededError("a user of this batch has already taken part under another plan; nothing was released")
        if np.any(self._rounds[users] >= plan.rounds):
            raise BudgetExceededError(
                f"a user of this batch has already taken part in all {plan.rounds} rounds that the plan covers; nothing was "
                f"released. Plan with more rounds."
            )
        if index == len(self._plans):
            self._plans.append(plan)
        self._plan_of[users] = index
        self._rounds[users] += 1

    @property
    def guarantee(self) -> Guarantee | None:
        """What holds for every user after what was charged; None where nothing was."""
        guarantees = [plan.guarantee for plan in self._plans]
        return guarantees[0].worst_of(*guarantees[1:]) if guarantees else None

    @property
    def most_rounds(self) -> int:
        """The most rounds that any user has taken part in."""
        return int(self._rounds.max(initial=0))
