"""How many rounds, how large a batch, which steps: from explicit bounds with the true noise, without touching data.

Notation: T rounds, batch users each, L the Lipschitz constant, beta smoothness, D the distance from the start to any
comparator, s the noise per coordinate of one private sum, v = d s^2 / batch^2 the total variance that privacy adds to a mean
gradient, sigma^2 = L^2 / batch + v with sampling. Right constants and errata: docs/deviations.md. The practical rule
(`Rule.practical`) reads the same formulas with smaller constants: docs/optimizer-theory.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ..privacy import LotsPlan, NoCertificateError, SumPlan, central_noise_std, plan_lots
from ..privacy._crowd import exclusions_in_batch, honest_in_batch, honest_total
from ..privacy.calibration import plan as make_plan
from ..privacy.lots import Opening, Stage
from ..privacy.plan import MOST_COORDINATES, SumRequest, padded_length
from ..problem import Problem
from ..problem.problem import Objective
from ..validation import ArgumentError, Found, one_of, real, whole
from . import _rules as rules
from ._gradients import Rows, opening_query
from .phases import INTERACTIVITY, Phase, Schedule

# Which algorithm for which problem: the paper's Table 1, and the reason in words.

METHODS = {
    "sequential": ("sgd", "acsa", "smoothed-acsa", "phased"),
    "full": ("gd", "acsa", "smoothed-acsa", "phased-gd"),
    "stream": ("acsa", "smoothed-acsa", "phased"),
}


def choose(problem: Objective, method: str, interactivity: str) -> tuple[str, str]:
    """Table 1: the method for this loss, and the reason in words."""
    if method != "auto":
        one_of("method", method, ("auto", *METHODS[interactivity]), f"These are the methods for {interactivity} interactivity.")
        if method == "acsa" and problem.smoothness is None:
            raise ArgumentError(
                "method",
                method,
                "'smoothed-acsa', 'sgd' or 'gd' for a nonsmooth loss",
                "AC-SA needs a smooth loss (Theorem 4.3).",
            )
        if method == "smoothed-acsa" and not isinstance(problem, Problem):
            raise ArgumentError(
                "method", method, "one that needs no prox for your own loss", "Use 'sgd', or 'acsa' if it is smooth."
            )
        if method.startswith("phased"):
            inner_method(problem, method, interactivity)
        if method.startswith("phased") and not problem.strong_convexity:
            raise ArgumentError("method", method, "used with a strongly convex problem", "Set l2 > 0, or use another method.")
        return method, "as asked"
    smooth, strong = problem.smoothness is not None, problem.strong_convexity > 0
    where = "pan-private by Theorem C.3," if interactivity == "stream" else "sequential"
    if interactivity == "full":
        if strong:
            return "phased-gd", "strongly convex, full interactivity (Theorem 4.9)"
        if smooth:
            return "acsa", "smooth and convex, full interactivity: accelerated, beyond Theorem 4.9"
        return "gd", "convex and nonsmooth, full interactivity (Theorem 4.9)"
    if strong:
        inner_method(problem, "phased", interactivity)
        return "phased", f"strongly convex, {where} (Theorem 4.8)"
    if smooth:
        return "acsa", f"smooth and convex, {where} (Theorem 4.3)"
    if isinstance(problem, Problem):
        return "smoothed-acsa", f"convex and nonsmooth, {where} (Theorem 4.7)"
    if interactivity == "stream":
        raise ArgumentError(
            "problem",
            Found("has a nonsmooth loss of your own"),
            "smooth, or a Problem whose prox is known",
            "State its smoothness.",
        )
    return "sgd", "convex and nonsmooth, no prox known, sequential (Theorem 4.1)"


def choose_practical(problem: Objective, method: str) -> str:
    """The practical rule has steps for AC-SA, with or without smoothing."""
    smooth = problem.smoothness is not None
    one_of("method", method, ("auto", "acsa", "smoothed-acsa"), "rule='bound' has the other methods.")
    if not smooth and not isinstance(problem, Problem):
        raise ArgumentError("rule", "practical", "'bound' for your own nonsmooth loss", "Or state its smoothness.")
    if method == "acsa" and not smooth:
        raise ArgumentError("method", method, "'smoothed-acsa' for a nonsmooth loss", "AC-SA needs a smooth loss (Theorem 4.3).")
    if method == "smoothed-acsa" and not isinstance(problem, Problem):
        raise ArgumentError("method", method, "'acsa' for your own loss", "Its prox is not known.")
    if method != "auto":
        return method
    return "acsa" if smooth else "smoothed-acsa"


def inner_method(problem: Objective, method: str, interactivity: str) -> str:
    """The algorithm of every phase of a strongly convex run."""
    if method == "phased-gd":
        return "gd"
    if problem.smoothness is not None:
        return "acsa"
    if isinstance(problem, Problem):
        return "smoothed-acsa"
    if interactivity == "stream":
        raise ArgumentError(
            "problem",
            Found("has a nonsmooth loss of your own"),
            "smooth, or a Problem whose prox is known",
            "State its smoothness.",
        )
    return "sgd"


# What secret lots mean for a schedule: which noise to expect, and what rounds of random sizes cost (docs/optimizer-theory.md).
#
# Every user is in one of T rounds. A round's sum is divided by the public n / T, not by the number of users that drew it.

# Rounds that a schedule chooses at most: beyond them a round's noise hardly falls any more.
MOST_ROUNDS = 1000
# How much of the closed form is lost in the tails that delta is about: fitted to certified figures, within 7 % of them.
_TAILS = 0.08


def expected_mu(alone: float, rounds: int) -> float:
    """About the mu that a round may have, for choosing a schedule. What is run is certified in full by `plan_lots`."""
    spread = math.log1p(rounds * alone**2)
    return max(alone, math.sqrt(spread) / (1 + _TAILS * spread))


@lru_cache(maxsize=1 << 14)
def drift(rounds: int, accelerated: bool) -> float:
    """What it costs that later rounds make up for earlier ones, in units of L times the diameter / sqrt(users)."""
    t = np.arange(1, rounds + 1)
    weights = 2 * t / (rounds * (rounds + 1)) if accelerated else 1 / rounds
    return float(np.sum(weights * np.sqrt((t - 1) / (rounds - t + 1))))


@lru_cache(maxsize=1 << 14)
def spread(rounds: int) -> float:
    """The variance of AC-SA's gradients, relative to that of rounds whose users are independent of earlier rounds' users."""
    t = np.arange(1, rounds + 1)
    return float(1 + np.average((t - 1) / (rounds * (rounds - t + 1)), weights=t.astype(np.float64) ** 2))


# What a schedule is chosen from: the constants of its steps, and the noise that a run's privacy means for a batch.

# The part of delta for batches that hold too few honest users.
_SHORTFALL_SHARE = 0.01


@dataclass(frozen=True)
class RoundLimit:
    """How many rounds are enough: the fewest whose bound is within a factor of the best one, and no more than this many."""

    factor: float
    most: int | None = None


@dataclass(frozen=True)
class Rule:
    """The constants that schedules are made from: those with a proof, or those that do well on real data."""

    clip: float  # L: gradients are clipped to this norm
    smoothness: float | None  # beta, of the mean loss
    bounded: bool = True  # whether the bound on the loss holds
    distance_divisor: float = 1.0  # D is the distance divided by this
    noise_damping: float = 1.0  # factor of the noise's part of AC-SA's damping
    full_rounds: RoundLimit = RoundLimit(1.05)  # full interactivity, where every round costs every user its bits
    secret_rounds: RoundLimit = RoundLimit(1.05)  # secret lots

    @classmethod
    def practical(cls, problem: Objective) -> Rule:
        """docs/optimizer-theory.md, "The practical rule", says where these numbers come from."""
        clip, smoothness = problem.lipschitz, problem.smoothness
        if isinstance(problem, Problem):
            clip, smoothness = problem.usual_lipschitz, problem.usual_smoothness
        return cls(
            clip,
            smoothness,
            bounded=False,
            distance_divisor=3.0,
            noise_damping=1 / 3 if problem.smoothness is None else 1 / 12,
            full_rounds=RoundLimit(1.25, 100),
            secret_rounds=RoundLimit(1.15, 200),
        )

    def clipped(self, clip: float, lipschitz: float) -> Rule:
        """No gradient is longer than the Lipschitz constant: clipping further out would only add noise."""
        clip = real("clip", clip, above=0, remedy="State the norm to which every user's gradient is clipped.")
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
    rotation: bool = True  # whether gradients may be rotated, where that is shorter
    blocks: int | str = 1  # of the rotated vector, with secret lots
    transport: str = "messages"
    thrifty: bool = False  # whether such rounds may have the noise of _THRIFTY

    def shortfall(self, batch: int) -> float:
        """The part of delta for the event that a random batch holds too few honest users."""
        return 0.0 if self.crowd in (None, batch) or self.honest >= 1 else _SHORTFALL_SHARE * self.delta

    def honest_of(self, batch: int) -> float:
        """The fraction of a batch that is honest, except for the shortfall."""
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
        return make_plan(
            SumRequest(
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
            ),
            self._encoder,
            self.transport,
        )

    def expected_noise(self, batch: int, rounds: int) -> float:
        """s, to about the accuracy of max_inflation: it depends on the batch through its honest users alone."""
        if self.calibration != "tight":
            return self._paper_noise(rounds)
        return self.max_inflation * self._central * math.sqrt(rounds / self.honest_of(batch))

    def plan_lots(self, users: int, rounds: int, opening: Sequence[Opening] = ()) -> LotsPlan:
        thrift = _THRIFT.get(self.transport) if self.thrifty and self.rotation else None
        if thrift is not None:
            if padded_length(self.problem.dim) > users / rounds:
                limit = thrift.faint_inflation if self.noise_share(users, rounds) > _FAINT_RUN else thrift.long_inflation
            else:
                limit = next(limit for least, limit in _THRIFTY if self.noise_share(users, rounds) > least)
            try:
                planned = self._plan_lots(users, rounds, opening, limit)
                if planned.one_round.range is not None:
                    return planned
            except NoCertificateError:  # few noise bits have none where epsilon is very large
                pass
        return self._plan_lots(users, rounds, opening, self.max_inflation)

    def noisy(self, users: int, rounds: int) -> bool:
        """Whether noise is a large part of a run's mean gradient, by public facts alone: then less of it is worth more bits."""
        return self.noise_share(users, rounds) > _NOISY_RUN

    def noise_share(self, users: int, rounds: int) -> float:
        """The noise of a run's mean gradient, for each unit of clip."""
        return rules.noise_share(self.problem, replace(self, norm=1.0).lots_noise(rounds), users, rounds, 1.0)

    def plan_in_blocks(self, users: int, rounds: int, opening: Opening) -> LotsPlan | None:
        """The same with an opening of one round in blocks, by messages: the fewest, of as many as the opening had rounds or more,
        with which its report is hardly longer than a gradient's. None if whole vectors are to be sent.

        There are about as many lots as there were rounds. At least half of them are of gradients, two thirds in a noisy run,
        where up to _NOISY_BITS are not long.
        """
        padded, noisy = padded_length(opening.dim), self.noisy(users, rounds)
        fewest = 1 << round(math.log2(opening.rounds))
        most = min(max((1 if noisy else 2) * rounds // 3, fewest), padded // _LEAST_BLOCK)
        usual, short = (_THRIFTY[-1][1], _NOISY_BITS) if noisy else (_OPENING_INFLATION, 0)
        thrift = _THRIFT.get(self.transport) if self.thrifty and self.rotation else None
        if thrift is None or not thrift.blocks or not 1 < fewest <= most:
            return None
        blocks, planned = fewest, None
        while planned is None or (_too_long(planned, short) and 2 * blocks <= most):
            blocks = blocks if planned is None else 2 * blocks
            later = max(rounds - blocks, rounds // 2)
            # a block is that of a part of the people: noise may be as large as what that leaves to chance
            chance = math.sqrt(users / (later + blocks) / padded * blocks)
            least = replace(self, norm=1.0).lots_noise(later + blocks) / self.max_inflation
            limit = max(usual, chance / least)
            asked = opening._replace(rounds=1, blocks=blocks, max_inflation=limit)
            try:
                planned = self.plan_lots(users, later + 1, [asked])
            except NoCertificateError:
                return planned
        return planned

    def _plan_lots(self, users: int, rounds: int, opening: Sequence[Opening], max_inflation: float) -> LotsPlan:
        return plan_lots(
            epsilon=self.epsilon,
            delta=self.delta,
            users=users,
            rounds=rounds,
            dim=self.problem.dim,
            norm=self.norm,
            honest=self.honest,
            neighbours=self.neighbours,
            max_inflation=max_inflation,
            exclusions=self.exclusions,
            opening=opening,
            rotation=self._encoder,
            blocks=self.blocks,
            transport=self.transport,
        )

    @property
    def _encoder(self) -> str | None:
        return "gradients" if self.rotation else None

    def lots_noise(self, rounds: int) -> float:
        """s of one of this many secret rounds, to a few percent."""
        return self.max_inflation * self.norm / expected_mu(self.norm / self._central, rounds) / math.sqrt(self.honest)

    @cached_property
    def _central(self) -> float:
        return central_noise_std(self.epsilon, self.delta, self.norm * (2 if self.neighbours == "replace-one" else 1))

    def _paper_noise(self, rounds: int) -> float:
        return self._plan(1_000_000, rounds, self.honest).noise_std


def _too_long(plan: LotsPlan, short: int) -> bool:
    """Whether reports of the opening are longer by more than a fifth than those of gradients, and than `short` bits."""
    return plan.opening[0].plan.bits_per_user > max(1.2 * plan.one_round.bits_per_user, short)


Floats = NDArray[np.float64]
RULES = ("bound", "practical", "plain", "centred", "scaled", "whitened")
LOTS = ("auto", "secret", "open")
# AC-SA does not accelerate if steps by which noise adds 1 to a row's score go at most this far along one person's gradient.
SHORT_WAY = 150.0
# Noise over the least: usually; and of openings in blocks, which have at least so many coordinates.
_INFLATION, _OPENING_INFLATION, _LEAST_BLOCK = 1.05, 2.0, 64
# A run is noisy from so much noise of its mean gradient, per unit of clip, on: its openings may then have so many bits. One with
# more coordinates than users is so from `_FAINT_RUN` on.
_NOISY_RUN, _FAINT_RUN, _NOISY_BITS = 0.005, rules.FAINT_RUN, 3072
# Noise over the least of rotated gradients in secret rounds that have more users than coordinates, by the noise of the run: it
# takes a fraction of the bits and costs a model next to nothing (docs/optimizer-theory.md).
_THRIFTY = ((0.02, 1.1), (_NOISY_RUN, 1.2), (0.001, 1.4), (-1.0, 1.6))


class _Thrift(NamedTuple):
    """How a transport saves bits: noise of rotated gradients with more coordinates than users, usually and in a run of which noise
    leaves little, and whether openings have blocks."""

    long_inflation: float
    faint_inflation: float
    blocks: bool


# In masked sums noise bits cost nothing.
_THRIFT = {"messages": _Thrift(1.25, 1.06, True), "verified": _Thrift(1.4, 1.4, False)}
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
    max_inflation: float | None = None,
    neighbours: str = "replace-one",
    lots: str = "auto",
    exclusions: bool = False,
    rotation: bool = True,
    blocks: int | str = 1,
    transport: str = "messages",
) -> Schedule:
    """Choose the schedule that `minimize` would run, with its bound, from public facts alone.

    Parameters
    ----------
    problem : Objective
        The loss and the domain.
    users : int
        How many users there are.
    epsilon, delta : float
        The guarantee, for each user.
    method : str, default "auto"
        "sgd", "gd", "acsa", "smoothed-acsa", "phased" or "phased-gd"; "auto" chooses by the loss, as in the paper's Table 1.
    interactivity : {"sequential", "full", "stream"}, default "sequential"
        Whether each user is asked once, all users in every round, or records come one by one (`PanPrivate`).
    calibration : {"tight", "paper", "paper-scaled"}, default "tight"
        The noise: the least that is certified, or that of the paper's theorems.
    honest : float, default 1.0
        The fraction of all users that is trusted to add its noise.
    constants : {"tight", "paper"}, default "tight"
        AC-SA's steps: the corrected ones, or the printed ones, which have no bound.
    groups : {"doubling", "equal"}, default "doubling"
        How phased methods share the users among their phases; "equal" is the paper's.
    start : ndarray, optional
        Where the run begins; default: the projection of 0.
    rounds : int, optional
        How many rounds; default: the best. Not for phased methods.
    clip : float, optional
        The norm to which gradients are clipped. Default: the Lipschitz constant, or with the practical rule the steepest
        gradient at the start.
    curvature : float, optional
        That of the mean loss for which practical steps are made: less is bolder, and needs fewer rounds until it swings about the
        minimiser.
    rule : {"bound", "practical", "plain", "centred", "scaled", "whitened"}, default "bound"
        "practical" takes the steps and rounds that do well on real data instead of those with the best worst case: no bound on the
        loss comes with it, the same guarantee of privacy does. It chooses among the other four by public facts alone, and says so
        in `why`: "plain" asks for gradients as they are; "centred" asks for the mean of rows first and descends on centred rows;
        "scaled" asks for means and squares of columns and descends on columns of mean 0 and equal size; "whitened" asks for second
        moments and descends on rows that are alike in all directions. Where "practical" takes "whitened" for two classes and little
        noise, people with even odds count most in later rounds. For several classes the last rounds search the line from a constant
        answer to the weights that were found.
    max_inflation : float, optional
        Noise allowed relative to a trusted curator's, or with secret lots to the least that they allow. Default: 1.05; for
        rotated gradients by secret lots chosen by the run's noise, which takes a fraction of the bits (docs/optimizer-theory.md).
    neighbours : {"replace-one", "zero-out"}, default "replace-one"
        What the guarantee hides about a user.
    lots : {"auto", "secret", "open"}, default "auto"
        "secret" draws every user's round by a lot that nobody learns, and fills every round up with blanks: the same promise then
        takes a fraction of the noise (accounting, Theorem L), and states what is left to an attacker who knows when each user
        answered. "open" is the paper's mode, disjoint batches that may be known. "auto" is secret where that has a proof:
        sequential runs of one phase with tight calibration; with rule="bound" if the bound on the loss is the smaller one.
    exclusions : bool, default False
        Whether reports may be left out of a round, as in deployed tasks: with `honest` below 1, plans then count on so many fewer
        honest users that an attacker who chooses which are left out gains nothing.
    rotation : bool, default True
        Whether gradients may be turned by a public random rotation before they are encoded, where that takes fewer bits
        (`plan_sum`). Not with rule="bound", whose bound holds for gradients without bias, and not in a stream.
    blocks : int or "auto", default 1
        With secret lots, the blocks of the rotated gradient, of which a user sends one (`plan_lots`).
    transport : {"messages", "masked", "verified"}, default "messages"
        How reports will travel (`plan_sum`).

    Returns
    -------
    Schedule
        Phases with their plans, the bound on the loss and the guarantee.

    Raises
    ------
    ArgumentError
        If an argument is outside its range, or does not go with another.
    NoCertificateError
        If no plan keeps the guarantee.

    Examples
    --------
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> planned = schedule(Problem(Logistic(), Ball(dim=2, radius=5.0)), 100_000, epsilon=1.0, delta=1e-6)
    >>> planned.method, planned.guarantee.delta(1.0) <= 1e-6
    ('acsa', True)
    """
    one_of("interactivity", interactivity, INTERACTIVITY, "'sequential' asks each user once, 'full' asks all users in every round.")
    one_of("constants", constants, ("tight", "paper"), "'tight' uses the corrected steps, 'paper' the printed ones.")
    one_of("groups", groups, ("doubling", "equal"), "'equal' is the paper's split of a strongly convex run.")
    one_of("rule", rule, RULES, "'bound' has a bound on the loss, 'practical' does better on most data.")
    whole("users", users, at_least=1, remedy="State the number of users.")
    real("honest", honest, above=0, at_most=1, remedy="State the fraction of all users trusted to add their noise.")
    practical = rule != "bound"
    asked_method = None if method == "auto" else method
    method, why = (choose_practical(problem, method), "") if practical else choose(problem, method, interactivity)
    if rounds is not None and method.startswith("phased"):
        raise ArgumentError("rounds", rounds, "left out for phased methods", "Every phase has its own number of rounds.")
    constants_used = _constants(problem, method, practical, constants, curvature, clip)
    secret = _secret_lots(lots, interactivity, calibration, method, constants)
    crowd = None if interactivity == "stream" else users  # a stream comes in an order that is not ours
    rotation = rotation and practical and interactivity != "stream"  # the bound on the loss takes gradients to be unbiased
    if blocks not in (1, "auto") and not (rotation and secret):
        remedy = "Use rule='practical', sequential rounds, secret lots and rotation=True, or leave blocks out."
        raise ArgumentError("blocks", blocks, "1 or 'auto' where gradients are not rotated, or lots are not secret", remedy)
    limit = _INFLATION if max_inflation is None else max_inflation
    kind = (calibration, honest, limit, neighbours, crowd, secret, exclusions, rotation, blocks, transport, max_inflation is None)
    budget = Budget(problem, constants_used.clip, epsilon, delta, *kind)
    distance = problem.domain.distance_bound(problem.domain.start() if start is None else start)
    if not distance > 0:
        raise ArgumentError("problem.domain", problem.domain, "more than one point", "There is nothing to minimise over.")
    staged = None
    if practical:
        given = {"method": asked_method, "rounds": rounds, "clip": clip, "curvature": curvature}
        staged, reason = rules.choose(problem, users, replace(budget, norm=1.0).lots_noise, rule, secret, given)
        why = f"{reason}: practical steps, no bound on the loss"
    if staged is not None:
        phases = _staged(cast(Problem, problem), staged, budget, users, distance)
        descent = next(phase for phase in phases if phase.descends)
        if curvature is not None and (staged.step is not None or descent.steady):
            remedy = "Leave it out, or take rule='plain': the steps of this run follow from its noise."
            raise ArgumentError("curvature", curvature, f"left out with rule={staged.name!r}", remedy)
        method, why = "acsa" if staged.step is None else "descent", f"{reason}: {rules.asks(phases)}"
    elif method.startswith("phased"):
        inner = inner_method(problem, method, interactivity)
        phases = _phased(problem, constants_used, budget, users, distance, inner, interactivity, groups)
    else:
        parts = (users, distance, method, interactivity, rounds, constants)
        phase = _phase(problem, constants_used, budget, *parts)
        if secret and lots == "auto" and phase.bound is not None:
            dealt = _phase(problem, constants_used, replace(budget, secret=False), *parts)
            phase = min(phase, dealt, key=lambda one: one.bound or math.inf)
        phases = (phase,)
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
        shortfall=max(0.0 if phase.lots else budget.shortfall(phase.batch) for phase in phases),
    )


def _staged(problem: Problem, rule: rules.Staged, budget: Budget, users: int, distance: float) -> tuple[Phase, ...]:
    """The phases of a run under one draw of secret lots: its opening, if it has one, and its descent."""
    budget, rows = replace(budget, norm=rule.clip), Rows(problem, rule.share)
    query = opening_query(rule.opening, rows, False) if rule.opening else None
    asked = None if query is None else Opening(rule.opening_rounds, query.dim, query.norm)
    if asked is not None and asked.dim > MOST_COORDINATES:
        allowed = f"'practical' or 'plain' where a round would ask for more than {MOST_COORDINATES:,} coordinates"
        remedy = f"{rules.ASKS[cast(str, rule.opening)].capitalize()} have {asked.dim:,} here."
        raise ArgumentError("rule", rule.name, allowed, remedy)
    try:
        lots = budget.plan_in_blocks(users, rule.rounds, asked) if asked and rule.opening != "mean" else None
        lots = lots or budget.plan_lots(users, rule.rounds, [asked] if asked else [])
    except NoCertificateError as error:
        raise NoCertificateError(f"{error} rule='plain' has fewer and shorter rounds, of which there may be a plan.") from None
    if line := rule.line_rounds:  # under the same plan, so that the promise stays
        gradients = Stage(lots.stages[-1].rounds - line, lots.one_round)
        lots = replace(lots, opening=(*lots.opening, gradients))
    later, batch = lots.stages[-2 if line else -1].rounds, lots.users_in_round
    std = math.sqrt(problem.dim * (lots.noise_std / batch) ** 2 + rule.clip**2 / batch)
    pace = 3 * rule.damping * std / distance * math.sqrt(later * (later + 1) * (2 * later + 1) / 6)
    damping = 2 * rule.curvature + pace if rule.step is None else None
    common: dict[str, Any] = {
        "batch": lots.size,
        "users": users,
        "smoothing": None,
        "distance": distance,
        "bound": None,
        "lots": lots,
    }
    descent = Phase(
        algorithm="acsa" if rule.step is None else "descent",
        rounds=later,
        step=rule.step,
        momentum=rule.momentum,
        focus=rule.focus,
        damping=damping,
        gradient_std=std,
        plan=lots.one_round,
        share=rule.share,
        **common,
    )
    if rule.step is None and rule.clip < SHORT_WAY * descent.score_noise:
        descent = replace(descent, damping=descent.score_noise)
    phases = [descent]
    if line:
        phases.append(replace(descent, algorithm="line", rounds=line, step=None, damping=None))
    if query is None:
        return tuple(phases)
    opening, plan = lots.opening[0].rounds, lots.opening[0].plan
    people = lots.users_in(plan)
    # in blocks the people of a round say one of them each
    spread = math.sqrt(plan.dim * (plan.noise_std / people) ** 2 + query.norm**2 * plan.blocks / people)
    parts: dict[str, Any] = {
        "rounds": opening,
        "step": None,
        "damping": None,
        "gradient_std": spread,
        "plan": plan,
        "share": rule.share,
    }
    return Phase(algorithm=cast(str, rule.opening), **parts, **common), *phases


def _constants(
    problem: Objective, method: str, practical: bool, constants: str, curvature: float | None, clip: float | None
) -> Rule:
    """The constants that steps are made from: those of the rule, except for what was asked for."""
    if constants == "paper" and method not in ("acsa", "smoothed-acsa"):
        raise ArgumentError("constants", constants, "'tight' for this method", "The paper's steps are offered for AC-SA.")
    constants_used = Rule.practical(problem) if practical else Rule(problem.lipschitz, problem.smoothness)
    if curvature is not None and (not practical or constants == "paper"):
        remedy = "Steps with a bound, and the paper's, follow from the loss's own smoothness."
        raise ArgumentError("curvature", curvature, "left out except with rule='practical' and tight constants", remedy)
    if curvature is not None:
        constants_used = replace(
            constants_used, smoothness=real("curvature", curvature, above=0, remedy="Half of the rule's choice is bold.")
        )
    if method == "smoothed-acsa" and (not practical or constants == "paper"):
        constants_used = replace(constants_used, smoothness=None)  # Theorem 4.7 knows the envelope's alone
    if clip is not None and method.startswith("phased"):
        raise ArgumentError("clip", clip, "left out for phased methods", "Their phases are planned by the bound.")
    if clip is not None:
        constants_used = constants_used.clipped(clip, problem.lipschitz)
    return constants_used


def _secret_lots(lots: str, interactivity: str, calibration: str, method: str, constants: str) -> bool:
    """Whether lots are to be secret: as asked, or wherever they can be."""
    one_of("lots", lots, LOTS, "'secret' hides who is in which round, 'open' is the paper's mode, 'auto' secret where it can be.")
    usual = interactivity == "sequential" and calibration == "tight" and constants == "tight"
    if lots == "secret" and (not usual or method.startswith("phased")):
        allowed = "'open' except for sequential runs of one phase, with tight calibration and constants"
        raise ArgumentError(
            "lots", Found(f"is {lots!r} for {method} with {interactivity} interactivity"), allowed, "Leave lots out."
        )
    return lots != "open" and usual and not method.startswith("phased")


def _phase(
    problem: Objective,
    rule: Rule,
    budget: Budget,
    users: int,
    distance: float,
    method: str,
    interactivity: str,
    rounds: int | None = None,
    constants: str = "tight",
) -> Phase:
    """The best number of rounds for `users` users who start within `distance`, and everything that follows from it."""
    full, secret = interactivity == "full", budget.secret
    # A stream's batch gets two draws of the noise: one for intruders after a record, one for those before it.
    draws = 2 if interactivity == "stream" else 1
    fixed = budget.expected_noise(users, 1) if budget.calibration != "tight" and not full else None  # costs a plan

    def noise(T: int) -> float:
        if secret:
            return budget.lots_noise(T)
        one = fixed if fixed is not None else budget.expected_noise(users if full else users // T, T if full else 1)
        return one * math.sqrt(draws)

    def evaluate(T: int, s: float) -> tuple[float, float, float | None, float]:
        size = users if full else users / T if secret else users // T
        return _bound(problem, rule, method, distance / rule.distance_divisor, users, size, T, s, full, secret)

    if rounds is None:
        most = min(users, MOST_ROUNDS) if secret else users
        limit = rule.full_rounds if full else rule.secret_rounds if secret else None
        rounds = _best_rounds(lambda T: evaluate(T, noise(T))[0], most, limit)
    rounds = whole("rounds", rounds, at_least=1, at_most=None if full else users, remedy="Sequential rounds share the users.")
    lots = budget.plan_lots(users, rounds) if secret else None
    batch = lots.size if lots else users if full else users // rounds
    plan = lots.one_round if lots else budget.plan(batch, rounds if full else 1)
    noise_std = plan.noise_std_with(plan.levels, draws * plan.noise_bits, plan.noise_probability, batch)
    bound, pace, smoothing, std = evaluate(rounds, noise_std)
    if lots is not None:  # a round may be too full for all of its users; nobody loses more than L times the diameter then
        bound += lots.overflow * problem.lipschitz * problem.domain.diameter
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
        lots=lots,
    )


def _bound(
    problem: Objective, rule: Rule, method: str, D: float, users: int, batch: float, T: int, s: float, full: bool, secret: bool
) -> tuple[float, float, float | None, float]:
    """(bound, step or damping, smoothing, sigma) of T rounds with noise s per coordinate of a sum."""
    L, beta = rule.clip, rule.smoothness
    v = problem.dim * s**2 / batch**2
    late = drift(T, method != "sgd") * L * problem.domain.diameter / math.sqrt(users) if secret and rule.bounded else 0.0
    if method == "sgd":  # Thm 4.1, erratum 2
        square = v + L**2 * (1 + T / users if secret else 1)  # a round's size is random
        step = D / math.sqrt(T * square)
        return D * math.sqrt(square / T) + late, step, None, math.sqrt(v + L**2 / batch)
    if method == "gd":  # Thm 4.9, erratum 7
        step = D / math.sqrt(T * (L**2 + v) + 2 * L**2 * T**2 / users)
        nonsmooth = beta is None and isinstance(problem, Problem)
        if beta is not None:
            step = min(step, 2 / beta)
        stability = L**2 * T * step / users if nonsmooth or beta is not None else 0.0  # without smoothness: empirical loss only
        excess = D**2 / (2 * step * T) + step * (L**2 + v) / 2 + stability
        return excess + (L**2 * step / 4 if nonsmooth else 0.0), step, 2 / step if nonsmooth else None, math.sqrt(v)
    sigma = math.sqrt(v + (0.0 if full else L**2 / batch * (spread(T) if secret else 1)))
    curvature, smoothing = beta or 0.0, None
    if method == "smoothed-acsa":  # Thm 4.7, erratum 4: the smoothing whose bias is as large as the term that curvature adds
        steepest = L * math.sqrt(T * (T + 1)) / (2 * D)
        curvature = min(steepest, beta or math.inf)
        smoothing = steepest * (steepest / curvature)
    damping = 2 * curvature + rule.noise_damping * sigma / D * math.sqrt(T * (T + 1) * (2 * T + 1) / 6)  # erratum 3
    bias = L**2 / (2 * smoothing) if smoothing else 0.0
    bound = 2 * curvature * D**2 / (T * (T + 1)) + 2 / math.sqrt(3) * D * sigma / math.sqrt(T) + bias + late
    return bound, damping, smoothing, sigma


def _best_rounds(bound: Callable[[int], float], users: int, limit: RoundLimit | None) -> int:
    """The whole T of the smallest bound, or in the full model and with secret lots the fewest rounds that are enough."""
    grid = sorted({max(1, round(users ** (i / 300))) for i in range(301)})
    values = [bound(T) for T in grid]
    best = int(np.argmin(values))
    good = limit.factor * values[best] if limit else values[best]
    best = next(i for i, value in enumerate(values) if value <= good)
    low, high = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    near = range(low, high + 1) if high - low <= 2000 else grid[max(0, best - 1) : best + 2]
    if limit:
        rounds = next((T for T in near if bound(T) <= good), grid[best])
        return min(rounds, limit.most or rounds)
    return min(near, key=bound)


def _phased(
    problem: Objective, rule: Rule, budget: Budget, users: int, distance: float, inner: str, interactivity: str, groups: str
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
