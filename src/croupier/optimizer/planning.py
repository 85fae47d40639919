"""How many rounds, how large a batch, which steps: from explicit bounds with the true noise, without touching data.

Notation: T rounds, batch users each, L the Lipschitz constant, beta smoothness, D the distance from the start to any
comparator, s the noise per coordinate of one private sum, v = d s^2 / batch^2 the total variance that privacy adds to a mean
gradient, sigma^2 = L^2 / batch + v with sampling. Right constants and errata: docs/deviations.md. The practical rule
(`_Rule.practical`) reads the same formulas with smaller constants: docs/optimizer.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy import NoCertificateError, SumPlan, central_noise_std, honest_in_batch, plan_sum
from ..problem import Objective, Problem
from ..validation import ArgumentError, one_of, real, refuse_renamed, whole
from .methods import choose, choose_practical, inner_method
from .phases import INTERACTIVITY, Phase, Schedule

Floats = NDArray[np.float64]
RULES = ("bound", "practical")
# Arguments by the names that they had, and have now.
RENAMED = {"schedule": "rule"}
_INFLATION = 1.05
_SHORTFALL_SHARE = 0.01
_MORE_PHASES = 5


def schedule(
    problem: Objective,
    users: int,
    *,
    epsilon: float,
    delta: float,
    method: str = "auto",
    interactivity: str = "sequential",
    calibration: str = "tight",
    honest: float = 1.0,
    constants: str = "tight",
    groups: str = "doubling",
    start: np.ndarray | None = None,
    rounds: int | None = None,
    clip: float | None = None,
    curvature: float | None = None,
    rule: str = "bound",
    max_inflation: float = _INFLATION,
    neighbours: str = "replace-one",
    **renamed: Any,
) -> Schedule:
    """The schedule that `minimize` would run, with its bound, computed from public facts alone.

    `rule="practical"` takes the steps and rounds that do well on real data instead of those with the best worst case: no
    bound on the loss comes with it, the same guarantee of privacy does. `clip` is the norm to which gradients are clipped
    (default: the Lipschitz constant, or for "practical" the steepest gradient at the start); `curvature` that of the mean loss for
    which practical steps are made: less is bolder, and needs fewer rounds until it swings about the minimiser.
    """
    refuse_renamed("schedule()", renamed, RENAMED)
    one_of("interactivity", interactivity, INTERACTIVITY, "'sequential' asks each user once, 'full' asks all users in every round.")
    one_of("constants", constants, ("tight", "paper"), "'tight' uses the corrected steps, 'paper' the printed ones.")
    one_of("groups", groups, ("doubling", "equal"), "'equal' is the paper's split of a strongly convex run.")
    one_of("rule", rule, RULES, "'bound' has a bound on the loss, 'practical' does better on most data.")
    whole("users", users, at_least=1, remedy="Give the number of users.")
    real("honest", honest, above=0, at_most=1, remedy="Give the fraction of all users that is trusted to add its noise.")
    practical = rule == "practical"
    method, why = choose_practical(problem, method) if practical else choose(problem, method, interactivity)
    if rounds is not None and method.startswith("phased"):
        raise ArgumentError("rounds", rounds, "left out for phased methods", "Every phase has its own number of rounds.")
    if constants == "paper" and method not in ("acsa", "smoothed-acsa"):
        raise ArgumentError("constants", constants, "'tight' for this method", "The paper's steps are offered for AC-SA.")
    constants_used = _Rule.practical(problem) if practical else _Rule(problem.lipschitz, problem.smoothness)
    if curvature is not None and (not practical or constants == "paper"):
        remedy = "Steps with a bound, and the paper's, follow from the loss's own smoothness."
        raise ArgumentError("curvature", curvature, "left out but for rule='practical' and tight constants", remedy)
    if curvature is not None:
        constants_used = replace(
            constants_used, smoothness=real("curvature", curvature, above=0, remedy="Half of the rule's own is bold.")
        )
    if method == "smoothed-acsa" and (not practical or constants == "paper"):
        constants_used = replace(constants_used, smoothness=None)  # Theorem 4.7 knows the envelope's alone
    if clip is not None and method.startswith("phased"):
        raise ArgumentError("clip", clip, "left out for phased methods", "Their phases are planned by the bound.")
    if clip is not None:
        constants_used = constants_used.clipped(clip, problem.lipschitz)
    crowd = None if interactivity == "stream" else users  # a stream comes in an order that is not ours
    budget = _Budget(problem, constants_used.clip, epsilon, delta, calibration, honest, max_inflation, neighbours, crowd)
    distance = problem.domain.distance_bound(problem.domain.start() if start is None else start)
    if not distance > 0:
        raise ArgumentError("problem.domain", problem.domain, "more than one point", "There is nothing to minimise over.")
    if method.startswith("phased"):
        inner = inner_method(problem, method, interactivity)
        phases = _phased(problem, constants_used, budget, users, distance, inner, interactivity, groups)
    else:
        phases = (_phase(problem, constants_used, budget, users, distance, method, interactivity, rounds, constants),)
    stable = not method.endswith("acsa") and (problem.smoothness is not None or isinstance(problem, Problem))
    on = "population" if interactivity != "full" or stable else "empirical"
    return Schedule(
        method=method,
        interactivity=interactivity,
        phases=phases,
        bound=phases[-1].bound,
        bound_on=on,
        why=why,
        honest=honest,
        shortfall=max(budget.shortfall(phase.batch) for phase in phases),
    )


@dataclass(frozen=True)
class _Rule:
    """The constants that schedules are made from: those with a proof, or those that do well on real data."""

    clip: float  # L: gradients are clipped to this norm
    smoothness: float | None  # beta, of the mean loss
    bounded: bool = True  # whether the bound on the loss holds
    nearer: float = 1.0  # D is the distance divided by this
    trust: float = 1.0  # factor of the noise's part of AC-SA's damping
    enough: float = 1.05  # full interactivity: the fewest rounds whose bound is within this factor of the best, as rounds cost bits
    most_rounds: int | None = None  # full interactivity

    @classmethod
    def practical(cls, problem: Objective) -> _Rule:
        """docs/optimizer.md, "The practical rule", says where these numbers come from."""
        clip, smoothness = problem.lipschitz, problem.smoothness
        if isinstance(problem, Problem):
            clip, smoothness = problem.usual_lipschitz, problem.usual_smoothness
        trust = 1 / 3 if problem.smoothness is None else 1 / 12
        return cls(clip, smoothness, bounded=False, nearer=3.0, trust=trust, enough=1.25, most_rounds=100)

    def clipped(self, clip: float, lipschitz: float) -> _Rule:
        """No gradient is longer than the Lipschitz constant: clipping further out would only add noise."""
        clip = real("clip", clip, above=0, remedy="Give the norm to which every user's gradient is clipped.")
        return replace(self, clip=min(clip, lipschitz), bounded=self.bounded and clip >= lipschitz)


@dataclass(frozen=True)
class _Budget:
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

    def shortfall(self, batch: int) -> float:
        """The part of delta for the event that a random batch holds too few honest users."""
        return 0.0 if self.crowd in (None, batch) or self.honest >= 1 else _SHORTFALL_SHARE * self.delta

    def honest_of(self, batch: int) -> float:
        """The fraction of a batch that is honest, but for the shortfall."""
        if self.crowd is None or not (chance := self.shortfall(batch)):
            return self.honest
        return honest_in_batch(self.crowd, self.honest, batch, chance) / batch

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

    @cached_property
    def _central(self) -> float:
        return central_noise_std(self.epsilon, self.delta, self.norm * (2 if self.neighbours == "replace-one" else 1))

    def _paper_noise(self, rounds: int) -> float:
        return self._plan(1_000_000, rounds, self.honest).noise_std


def _phase(
    problem: Objective,
    rule: _Rule,
    budget: _Budget,
    users: int,
    distance: float,
    method: str,
    interactivity: str,
    rounds: int | None = None,
    constants: str = "tight",
) -> Phase:
    """The best number of rounds for `users` users who start within `distance`, and everything that follows from it."""
    full = interactivity == "full"
    # A stream's batch gets two draws of the noise: one for intruders after a record, one for those before it.
    draws = 2 if interactivity == "stream" else 1
    fixed = budget.expected_noise(users, 1) if budget.calibration != "tight" and not full else None  # costs a plan

    def noise(T: int) -> float:
        one = fixed if fixed is not None else budget.expected_noise(users if full else users // T, T if full else 1)
        return one * math.sqrt(draws)

    def evaluate(T: int, s: float) -> tuple[float, float, float | None, float]:
        return _bound(problem, rule, method, distance / rule.nearer, users, users if full else users // T, T, s, full)

    if rounds is None:
        rounds = _best_rounds(lambda T: evaluate(T, noise(T))[0], users, rule if full else None)
    rounds = whole("rounds", rounds, at_least=1, at_most=None if full else users, remedy="Sequential rounds share the users.")
    batch = users if full else users // rounds
    plan = budget.plan(batch, rounds if full else 1)
    noise_std = plan.noise_std_with(plan.levels, draws * plan.noise_bits, plan.noise_probability, batch)
    bound, pace, smoothing, std = evaluate(rounds, noise_std)
    accelerated = method.endswith("acsa")
    if constants == "paper" and accelerated:
        pace = (rounds + 2) ** 1.5 * std / distance + (smoothing or problem.smoothness or 0.0)
    return Phase(
        algorithm="acsa" if accelerated else "descent",
        rounds=rounds,
        batch=batch,
        users=users,
        step=None if accelerated else pace,
        damping=pace if accelerated else None,
        smoothing=smoothing,
        distance=distance,
        gradient_std=std,
        bound=bound if rule.bounded and constants == "tight" else None,
        plan=plan,
        paper_steps=constants == "paper" and accelerated,
    )


def _bound(
    problem: Objective, rule: _Rule, method: str, D: float, users: int, batch: int, T: int, s: float, full: bool
) -> tuple[float, float, float | None, float]:
    """(bound, step or damping, smoothing, sigma) of T rounds with noise s per coordinate of a sum."""
    L, beta = rule.clip, rule.smoothness
    v = problem.dim * s**2 / batch**2
    if method == "sgd":  # Thm 4.1, erratum 2
        step = D / math.sqrt(T * (L**2 + v))
        return D * math.sqrt((L**2 + v) / T), step, None, math.sqrt(v + L**2 / batch)
    if method == "gd":  # Thm 4.9, erratum 7
        step = D / math.sqrt(T * (L**2 + v) + 2 * L**2 * T**2 / users)
        kink = beta is None and isinstance(problem, Problem)
        if beta is not None:
            step = min(step, 2 / beta)
        stability = L**2 * T * step / users if kink or beta is not None else 0.0  # without smoothness: empirical loss only
        excess = D**2 / (2 * step * T) + step * (L**2 + v) / 2 + stability
        return excess + (L**2 * step / 4 if kink else 0.0), step, 2 / step if kink else None, math.sqrt(v)
    sigma = math.sqrt(v + (0.0 if full else L**2 / batch))
    curvature, smoothing = beta or 0.0, None
    if method == "smoothed-acsa":  # Thm 4.7, erratum 4: the smoothing whose bias is as large as the term that curvature adds
        steepest = L * math.sqrt(T * (T + 1)) / (2 * D)
        curvature = min(steepest, beta or math.inf)
        smoothing = steepest * (steepest / curvature)
    damping = 2 * curvature + rule.trust * sigma / D * math.sqrt(T * (T + 1) * (2 * T + 1) / 6)  # erratum 3
    bias = L**2 / (2 * smoothing) if smoothing else 0.0
    return 2 * curvature * D**2 / (T * (T + 1)) + 2 / math.sqrt(3) * D * sigma / math.sqrt(T) + bias, damping, smoothing, sigma


def _best_rounds(bound: Callable[[int], float], users: int, full: _Rule | None) -> int:
    """The whole T of the smallest bound, or in the full model the fewest rounds that are enough."""
    grid = sorted({max(1, round(users ** (i / 300))) for i in range(301)})
    values = [bound(T) for T in grid]
    best = int(np.argmin(values))
    limit = full.enough * values[best] if full else values[best]
    best = next(i for i, value in enumerate(values) if value <= limit)
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    near = range(low, high + 1) if high - low <= 2000 else grid[max(0, best - 1) : best + 2]
    if full:
        rounds = next((T for T in near if bound(T) <= limit), grid[best])
        return min(rounds, full.most_rounds or rounds)
    return min(near, key=bound)


def _phased(
    problem: Objective, rule: _Rule, budget: _Budget, users: int, distance: float, inner: str, interactivity: str, groups: str
) -> tuple[Phase, ...]:
    """Thm 4.8 and the strongly convex part of Thm 4.9, erratum 8: about log2 log2 n phases, each begun nearer to the optimum."""
    usual = max(1, math.ceil(math.log2(max(2.0, math.log2(max(4, users))))))
    strong, diameter = problem.strong_convexity, min(problem.domain.diameter, 2 * problem.lipschitz / problem.strong_convexity)

    def run_of(count: int) -> tuple[Phase, ...]:
        D = min(distance, 2 * problem.lipschitz / strong)
        phases: list[Phase] = []
        for size in _group_sizes(users, count, groups):
            phase = _phase(problem, rule, budget, size, D, inner, interactivity)
            phases.append(phase)
            D = min(diameter, math.sqrt(2 * (phase.bound or math.inf) / strong))  # the next start is this output, not ours
        return tuple(phases)

    # Few users or weak convexity: an early phase may not come nearer to the optimum than it began, and then only costs users. Many
    # users: every phase more brings the exponent of the bound nearer to the paper's, which hides the difference in a logarithm.
    choices, refused = [], None
    for count in range(1, usual + _MORE_PHASES) if groups == "doubling" else [usual]:
        try:
            choices.append(run_of(count))
        except (ArgumentError, NoCertificateError) as error:  # a group too small for its honest users
            refused = error
    if refused is not None and not choices:
        raise refused
    return min(choices, key=lambda phases: phases[-1].bound or math.inf)


def _group_sizes(users: int, count: int, groups: str) -> list[int]:
    """Disjoint groups: equal as in the paper, or doubling so that the last phase has half of the users."""
    if groups == "equal":
        sizes = [users // count] * count
    else:
        sizes = [users // 2**i for i in range(count - 1, 0, -1)]
        sizes = [users - sum(sizes), *sizes] if count > 1 else [users]
        sizes.sort()
    if min(sizes) < 1:
        raise ArgumentError("users", users, f"enough for {count} phases", "Strongly convex runs need a few users per phase.")
    return sizes
