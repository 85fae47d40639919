"""How far a run is: what its rounds have revealed so far, and how their noise alone would look."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from scipy.stats import chi2

from ..privacy import Guarantee, SumPlan
from ..privacy.calibration import prove
from .phases import Schedule
from .result import Round

# The share of the lengths of noise alone that a band holds.
BAND = 0.95


def revealed(chosen: Schedule, history: Iterable[Round]) -> Guarantee:
    """What these rounds of a schedule reveal about a user: of all that were planned, only those that were run."""
    return revealed_by(chosen, Counter(entry.phase for entry in history))


def revealed_by(chosen: Schedule, rounds: Counter[int]) -> Guarantee:
    """What so many rounds of each phase, counted from 1, reveal."""
    first, *others = [_of_rounds(chosen.phases[phase - 1].plan, done) for phase, done in sorted(rounds.items())]
    return chosen.with_shortfall(first.worst_of(*others))  # nobody is in two phases


def spent_so_far(chosen: Schedule, history: Sequence[Round], delta: float) -> float:
    """An epsilon for the rounds done: theirs, or, where their many small slacks exceed delta, that of all that were planned."""
    return spent_by(chosen, Counter(entry.phase for entry in history), delta)


def spent_by(chosen: Schedule, rounds: Counter[int], delta: float) -> float:
    """`spent_so_far` where only the number of rounds of each phase is at hand; 0 before the first."""
    if not rounds:
        return 0.0
    done = revealed_by(chosen, rounds)
    return (done if done.slack < delta else chosen.guarantee).epsilon(delta)


def noise_norms(plan: SumPlan, users: int) -> tuple[float, float]:
    """Between which lengths the noise of a mean gradient lies: dim independent coordinates, close to Gaussian."""
    std = plan.noise_std_for(users) / users
    low, high = _unit_norms(plan.dim)
    return std * low, std * high


@lru_cache(maxsize=16)
def _unit_norms(dim: int) -> tuple[float, float]:
    ends = chi2.ppf([(1 - BAND) / 2, (1 + BAND) / 2], dim)
    return math.sqrt(ends[0]), math.sqrt(ends[1])


def _of_rounds(plan: SumPlan, rounds: int) -> Guarantee:
    return plan.guarantee if rounds >= plan.rounds else _of_one_round(plan).repeated(rounds)


@lru_cache(maxsize=16)
def _of_one_round(plan: SumPlan) -> Guarantee:
    return prove(replace(plan, rounds=1), plan.levels, plan.noise_bits, plan.noise_probability).guarantee
