"""Who took part under which plan: written down before anything is released, and refused beyond what the plan covers."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from .guarantee import Guarantee
from .lots import LotsPlan
from .plan import SumPlan


class BudgetExceededError(RuntimeError):
    """A user would take part more often than the plan covers. Nothing was released."""


@dataclass
class _Charged:
    """Users `first` up to `last` took part in this many rounds of one plan."""

    first: int
    last: int
    plan: SumPlan | LotsPlan
    rounds: int


class Ledger:
    """Participation of `users` users, in the order in which they were dealt. Each may be in one batch, under one plan.

    Sequential interactivity is a plan with rounds = 1; full interactivity one with rounds = T, asked T times of one batch. The
    guarantee of everything charged so far is the worst over the plans, since no user is under two of them (accounting, section 4).
    With secret lots everybody is charged, under a LotsPlan, whenever a round is asked: it covers all of its rounds together.
    Memory is that of the batches, however many users they have.

    Guarantee
    ---------
    `guarantee` holds for every user, if nothing is released that was not charged before.
    """

    def __init__(self, users: int) -> None:
        self._users = users
        self._charged: list[_Charged] = []  # disjoint, ascending

    def charge(self, first: int, last: int, plan: SumPlan | LotsPlan) -> None:
        """Record that users `first` up to `last` take part in one more round, or refuse and record nothing."""
        if not 0 <= first < last <= self._users:
            raise BudgetExceededError(
                f"users are numbered from 0 up to {self._users}, not from {first} up to {last}; nothing was released"
            )
        place = bisect_right(self._charged, first, key=lambda charged: charged.first)
        before = self._charged[place - 1] if place else None
        if before is not None and (before.first, before.last) == (first, last):
            self._charge_again(before, plan)
            return
        after = self._charged[place] if place < len(self._charged) else None
        if (before is not None and before.last > first) or (after is not None and after.first < last):
            raise BudgetExceededError("a user of this batch has already taken part in another batch; nothing was released")
        self._charged.insert(place, _Charged(first, last, plan, 1))

    @staticmethod
    def _charge_again(charged: _Charged, plan: SumPlan | LotsPlan) -> None:
        if charged.plan != plan:
            raise BudgetExceededError("a user of this batch has already taken part under another plan; nothing was released")
        if charged.rounds >= plan.rounds:
            raise BudgetExceededError(
                f"a user of this batch has already taken part in all {plan.rounds} rounds that the plan covers; nothing was "
                f"released. Plan with more rounds."
            )
        charged.rounds += 1

    @property
    def guarantee(self) -> Guarantee | None:
        """What holds for every user after what was charged; None if nothing was."""
        guarantees = [plan.guarantee for plan in dict.fromkeys(charged.plan for charged in self._charged)]
        return guarantees[0].worst_of(*guarantees[1:]) if guarantees else None
