"""Every kind of guarantee, its bound and the laws of the protocol, by other libraries."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from rich.console import Console
from rich.progress import track
from scipy.stats import binom

import croupier as cr
from croupier.audit._exact import loss_distribution
from croupier.estimator import MostlyNoiseWarning, ShuffleScaler
from croupier.optimizer import schedule
from croupier.privacy import Guarantee, SumPlan, certify, plan_scalar_sum, plan_sum
from croupier.privacy._tight import TAIL_SHARE
from croupier.problem import Ball, Hinge, Logistic, Problem

from ..protocol import Results

EPSILON, DELTA, USERS, QUICK_USERS = 1.0, 1e-6, 1_000, 150
# Laws wider than this many noise bits are not enumerated.
WIDEST = 200_000


@dataclass(frozen=True)
class Laws:
    """The real protocol in one direction: (a, b, noise bits, p, how often) for each coordinate that differs."""

    name: str
    moves: tuple[tuple[float, float, int, float, int], ...]


@dataclass(frozen=True)
class Case:
    """One kind of guarantee: the claim, the parts that its bound is composed of, and directions of the real protocol."""

    kind: str
    epsilon: float
    claim: Guarantee
    parts: tuple[Guarantee, ...]  # composed, or, for disjoint batches, only the worst of them
    laws: tuple[Laws, ...]
    disjoint: bool = False


def cases(users: int = USERS) -> list[Case]:
    """One of each kind that the package releases, with so many users in a round."""
    budget = {"epsilon": EPSILON, "delta": DELTA}
    one = plan_sum(**budget, users=users, dim=10)
    zero = plan_sum(**budget, users=users, dim=10, neighbours="zero-out")
    scalar = plan_scalar_sum(**budget, users=users, width=1.0)
    robust = plan_sum(**budget, users=users, dim=10, honest=0.5)
    repeated = plan_sum(**budget, users=users, dim=10, rounds=5)
    other = plan_sum(epsilon=0.5, delta=DELTA, users=400, dim=3)
    full = schedule(Problem(Hinge(), Ball(dim=5, radius=1.0)), users, **budget, interactivity="full", rounds=4)
    phased = schedule(Problem(Logistic(), Ball(dim=5, radius=1.0), l2=0.5), 20 * users, **budget)
    stream = cr.PanPrivate(Problem(Logistic(), Ball(dim=5, radius=1.0)), users, **budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MostlyNoiseWarning)
        scaler = ShuffleScaler(**budget, feature_range=(-1, 1)).fit(np.zeros((users, 2)))
    paper = plan_sum(**budget, users=users, dim=10, calibration="paper")
    paper_rounds = plan_sum(**budget, users=users, dim=10, calibration="paper", rounds=20)
    small = plan_scalar_sum(epsilon=15.0, delta=DELTA, users=100, width=1.0, calibration="paper-scaled")
    both = one.guarantee.compose(other.guarantee)
    mixed = one.guarantee.compose(paper_rounds.guarantee)
    plans = [phase.plan for phase in phased.phases]
    full_plan, stream_plan = full.phases[0].plan, stream.schedule.phases[0].plan
    return [
        Case("one sum, replace-one", EPSILON, one.guarantee, (one.guarantee,), directions(one)),
        Case("one sum, zero-out", EPSILON, zero.guarantee, (zero.guarantee,), directions(zero)),
        Case("one sum, half of all honest", EPSILON, robust.guarantee, (robust.guarantee,), directions(robust)),
        Case("one scalar sum", EPSILON, scalar.guarantee, (scalar.guarantee,), directions(scalar)),
        Case("five sums, repeated", EPSILON, repeated.guarantee, (certified(repeated),) * 5, directions(repeated)),
        Case("two different sums, composed", 1.15, both, (one.guarantee, other.guarantee), together(one, other)),
        Case("scaler", EPSILON, scaler.plan_.guarantee, (scaler.plan_.guarantee,), (moments(scaler.plan_),)),
        Case("full training", EPSILON, full.guarantee, (certified(full_plan),) * full_plan.rounds, directions(full_plan)),
        Case(
            "sequential training, worst of the phases",
            EPSILON,
            phased.guarantee,
            tuple(plan.guarantee for plan in plans),
            tuple(law for plan in plans for law in directions(plan)),
            disjoint=True,
        ),
        Case("pan-private, one draw of noise", EPSILON, stream_plan.guarantee, (stream_plan.guarantee,), directions(stream_plan)),
        Case("one sum, the paper's constants", 0.5, paper.guarantee, (paper.guarantee,), ()),
        Case("20 sums, the paper's constants", 0.3, paper_rounds.guarantee, (certified(paper_rounds),) * 20, ()),
        Case("one scalar sum, the paper's constants", 14.0, small.guarantee, (small.guarantee,), directions(small)),
        Case("ours and the paper's, composed", 1.2, mixed, (one.guarantee, *(certified(paper_rounds),) * 20), ()),
    ]


def certified(plan: SumPlan) -> Guarantee:
    """What one round of a plan for several is certified to reveal."""
    if plan.mu is None:  # the paper's theorem is about one round
        return replace(plan.guarantee, slack=plan.slack / plan.rounds, pure_rounds=1)
    found = certify(
        plan.noise_bits * plan.honest_users,
        plan.noise_probability,
        shift=plan.encoded_shift(plan.levels),
        reach=plan.encoded_reach(plan.levels),
        dim=plan.dim,
        tail=TAIL_SHARE * plan.delta / (plan.dim * plan.rounds),
    )
    return replace(plan.guarantee, mu=found.mu, slack=plan.dim * found.tau)


def directions(plan: SumPlan) -> tuple[Laws, ...]:
    """All in one coordinate, and all coordinates alike: the worst directions that we know of."""
    trials, p = plan.noise_bits * plan.honest_users, plan.noise_probability
    if trials > WIDEST:
        return ()
    base = 0.0 if plan.neighbours == "replace-one" else plan.levels / 2
    shift = plan.encoded_shift(plan.levels)
    alone = Laws("one coordinate", ((base, base + shift, trials, p, plan.rounds),))
    each = shift / math.sqrt(plan.dim)
    spread = Laws("all coordinates", ((base, base + each, trials, p, plan.dim * plan.rounds),))
    return (alone,) if plan.dim == 1 else (alone, spread)


def together(first: SumPlan, second: SumPlan) -> tuple[Laws, ...]:
    """Both sums, each in its worst directions."""
    pairs = zip(directions(first), directions(second), strict=True)
    return tuple(Laws(one.name, one.moves + two.moves) for one, two in pairs)


def moments(plan: SumPlan) -> Laws:
    """The scaler's farthest records: every feature at u = 1 or where (u, 2 u^2 - 1) is farthest from it."""
    u = np.array([1.0, (math.sqrt(0.5) - 1) / 2])
    trials, p = plan.noise_bits * plan.honest_users, plan.noise_probability
    encoded = [(end + plan.norm) * plan.levels / (2 * plan.norm) for end in (u, 2 * u**2 - 1)]
    features = plan.dim // 2
    return Laws("all features", tuple((float(a), float(b), trials, p, features) for a, b in encoded))


def delta_of_laws(laws: Laws, epsilon: float, *, pessimistic: bool) -> float:
    """The real protocol's delta in one direction, by dp_accounting, in the worse order of the two people."""
    found = []
    for swap in (False, True):
        parts = [
            loss_distribution(
                *((b, a) if swap else (a, b)), trials=trials, probability=p, pessimistic=pessimistic, discretization=1e-4
            ).self_compose(times)
            for (a, b, trials, p), times in _counted(laws).items()
        ]
        found.append(float(reduce(lambda x, y: x.compose(y), parts).get_delta_for_epsilon(epsilon)))
    return max(found)


def _counted(laws: Laws) -> Counter[tuple[float, float, int, float]]:
    counted: Counter[tuple[float, float, int, float]] = Counter()
    for *move, times in laws.moves:
        counted[tuple(move)] += times
    return counted


def delta_of_bound(case: Case, *, pessimistic: bool) -> float:
    """What dp_accounting makes of the claim's parts: Gaussians, randomized responses, and events of small probability."""
    deltas = []
    for group in [(part,) for part in case.parts] if case.disjoint else [case.parts]:
        interval = 1e-5 if any(part.pure_rounds for part in group) else 1e-4
        losses = [loss for part, times in Counter(group).items() for loss in _parts_of(part, times, interval, pessimistic)]
        slack = sum(part.slack for part in group)
        deltas.append(slack + float(reduce(lambda x, y: x.compose(y), losses).get_delta_for_epsilon(case.epsilon)))
    return max(deltas)


def _parts_of(part: Guarantee, times: int, interval: float, pessimistic: bool) -> list[pld.PrivacyLossDistribution]:
    losses = []
    if part.mu:
        gaussian = pld.from_gaussian_mechanism(
            1 / (part.mu * math.sqrt(times)),
            pessimistic_estimate=pessimistic,
            value_discretization_interval=interval,
            use_connect_dots=pessimistic,  # the other way it knows buckets alone
        )
        losses.append(gaussian)
    if part.pure_rounds:
        stays, turns = -math.log1p(math.exp(-part.pure_epsilon)), -math.log1p(math.exp(part.pure_epsilon))
        response = pld.from_two_probability_mass_functions(
            {0: turns, 1: stays},
            {0: stays, 1: turns},
            pessimistic_estimate=pessimistic,
            value_discretization_interval=interval,
        )
        losses.append(response.self_compose(times * part.pure_rounds))
    return losses


def delta_by_allocation(case: Case) -> dict[str, float] | None:
    """PLD_accounting's upper and lower figures for the claim's Gaussian, and its upper figure for the laws in one coordinate."""
    mu = math.sqrt(sum(part.mu**2 for part in case.parts)) if not case.disjoint else max(part.mu for part in case.parts)
    if importlib.util.find_spec("PLD_accounting") is None or case.claim.pure_rounds:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where numba is missing
        import PLD_accounting as allocation  # noqa: PLC0415

        config = allocation.AllocationSchemeConfig(loss_discretization=1e-3, tail_truncation=1e-14)
        asked = allocation.PrivacyParams(sigma=1 / mu, num_steps=1, epsilon=case.epsilon)
        bounds = {"high": allocation.BoundType.DOMINATES, "low": allocation.BoundType.IS_DOMINATED}
        slack = max(part.slack for part in case.parts) if case.disjoint else sum(part.slack for part in case.parts)
        found = {
            name: slack + float(allocation.gaussian_allocation_delta_configurable(params=asked, config=config, bound_type=bound))
            for name, bound in bounds.items()
        }
        alone = [laws.moves[0] for laws in case.laws if laws.name == "one coordinate" and len(laws.moves) == 1]
        whole = [move for move in alone if float(move[1] - move[0]).is_integer() and float(move[0]).is_integer()]
        if whole:
            found["laws"] = max(_by_counts(allocation, config, move, case.epsilon) for move in whole)
    return found


def _by_counts(allocation: object, config: object, move: tuple[float, float, int, float, int], epsilon: float) -> float:
    first, second, trials, p, times = move
    noise = binom.pmf(np.arange(trials + 1), trials, p)
    kept = np.flatnonzero(noise > 1e-22)
    low, high = int(kept[0]), int(kept[-1])
    spare = 1 - math.fsum(noise[low : high + 1])
    law = allocation.DenseDiscreteDist(
        grid=allocation.GridSpec(step=1.0, n=high - low + 1, anchor=float(low)),
        prob_arr=noise[low : high + 1],
        p_max=max(0.0, spare),
    )
    realizations = allocation.discrete_distribution(
        noise_dist=law, loss_discretization=1e-3, tail_truncation=1e-14, sensitivity=int(second - first)
    )
    return float(
        allocation.general_allocation_delta(
            epsilon=epsilon,
            num_steps=1,
            num_selected=1,
            num_epochs=times,
            remove_realization=realizations[0],
            add_realization=realizations[1],
            config=config,
        )
    )


def row(case: Case) -> dict[str, object]:
    """Our delta beside the others', as plain JSON."""
    laws = {
        law.name: [delta_of_laws(law, case.epsilon, pessimistic=pessimistic) for pessimistic in (False, True)] for law in case.laws
    }
    worst = max(laws.values(), default=None)
    return {
        "kind": case.kind,
        "epsilon": case.epsilon,
        "claimed_delta": case.claim.delta(case.epsilon),
        "claim": str(case.claim),
        "laws": worst,
        "bound": [delta_of_bound(case, pessimistic=pessimistic) for pessimistic in (False, True)],
        "allocation": delta_by_allocation(case),
    }


def measure(arguments: argparse.Namespace) -> Results:
    """One row for every kind."""
    versions = {}
    for name in ("dp-accounting", "PLD_accounting"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    users = QUICK_USERS if arguments.quick else USERS
    rows = [row(case) for case in track(cases(users), "accountants", console=Console(stderr=True))]
    return {"versions": versions, "quick": arguments.quick, "rows": rows}
