"""The report's figures: how training went, and what another epsilon would mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from html import escape

import numpy as np

from ..optimizer import Phase, Result
from ..optimizer.training import BAND, noise_norms
from ..privacy import NoCertificateError, SumPlan, plan_lots, plan_sum, round_up
from ..privacy.plan import REQUEST_FIELDS
from ..validation import ArgumentError
from .baselines import alone_request, local
from .compare import Comparison, Method
from .svg import Axis, Figure

# The epsilons that the trade-off is drawn for.
_EPSILONS = (0.1, 0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0, 6.0, 8.0)
_EPSILON_TICKS = (0.1, 0.3, 1.0, 3.0, 8.0)


def gradient_figure(result: Result) -> str:
    """The length of every round's mean gradient, and of the noise alone."""
    history = result.history
    rounds = [float(entry.index) for entry in history]
    phases = [result.schedule.phases[entry.phase - 1] for entry in history]
    mean_of = [phase.mean_of if phase.lots else float(entry.users) for phase, entry in zip(phases, history, strict=True)]
    ends = [noise_norms(phase.plan, entry.users, some) for phase, entry, some in zip(phases, history, mean_of, strict=True)]
    low, high = [end[0] for end in ends], [end[1] for end in ends]
    least = 0.7 * min(low)  # the logarithm's axis begins here
    norms = [max(least, float(np.linalg.norm(entry.gradient))) for entry in history]
    figure = Figure(
        name="gradient",
        title="Length of the private mean gradient in every round",
        description=f"It begins at {norms[0]:.3g} and ends at {norms[-1]:.3g}. "
        f"Noise alone would be between {low[-1]:.3g} and {high[-1]:.3g}.",
        x=_rounds_axis(rounds),
        y=Axis.over("length of the mean gradient", [*norms, *high, least, 1.2 * max(norms)], log=True),
    )
    figure.band([rounds[0] - 0.5, *rounds, rounds[-1] + 0.5], [low[0], *low, low[-1]], [high[0], *high, high[-1]])
    figure.line(rounds, norms, "faint")
    figure.dots(rounds, norms)
    figure.label(rounds[-1], low[-1], "noise alone", anchor="end", shift=16)
    early = min(range(len(norms)), key=lambda i: (-norms[i], i))
    figure.label(rounds[early], norms[early], "one dot a round", anchor="start" if early < len(norms) / 2 else "end", shift=-9)
    where = sum(norm <= top for norm, top in zip(norms, high, strict=True))
    return _captioned(
        figure,
        f"Each dot is the length of the mean gradient that came out of a round, noise included. The band holds {BAND:.0%} of the "
        f"lengths that the noise alone would have. {where:,} of {len(norms):,} rounds lie in or below it: there the people's own "
        f"gradient was too small to stand out, which is how a finished training looks, and also one with too little budget.",
    )


def distance_figure(result: Result, radius: float | None = None) -> str:
    """How far every round was from the start.

    Parameters
    ----------
    result : Result
        The run.
    radius : float, optional
        How far the weights could move, for a line where that can be seen: where they came at least half as far.

    Returns
    -------
    str
        The figure and its caption, as HTML.
    """
    moved = [float(np.linalg.norm(entry.theta - result.start)) for entry in result.history]
    final = float(np.linalg.norm(result.theta - result.start))
    rounds = [float(entry.index) for entry in result.history]
    limit = radius if radius is not None and max(final, *moved) >= radius / 2 else None
    figure = Figure(
        name="distance",
        title="How far the weights have moved from where they began",
        description=f"From 0 to {final:.3g} over {len(rounds)} rounds."
        + (f" The radius is {limit:.3g}." if limit is not None else ""),
        x=_rounds_axis([*rounds, rounds[-1] + 1]),
        y=Axis.over("distance from the start", [0.0, *moved, final or 1.0, *([] if limit is None else [1.1 * limit])]),
    )
    if limit is not None:
        figure.rule(limit, f"radius {limit:.3g}: no further")
    figure.line([*rounds, rounds[-1] + 1], [*moved, final])
    figure.dots([rounds[-1] + 1], [final], "other")
    figure.label(rounds[-1] + 1, final, "the model", anchor="end", shift=-10 if final >= max(moved) * 0.9 else 22)
    return _captioned(
        figure,
        "Where every round asked about, and the square, the model. A line that is still rising steeply at the end would want more "
        "rounds." + (" A line that runs along the radius would want a larger one." if limit is not None else ""),
    )


def course_figure(comparison: Comparison) -> str:
    """The score on public rows, round by round."""
    rounds, scores = [float(index) for index, _ in comparison.course], [score for _, score in comparison.course]
    rules = {method.name: method.scores[comparison.metric] for method in _references(comparison)}
    figure = Figure(
        name="course",
        title=f"{comparison.metric} on public rows as training went on",
        description=f"From {scores[0]:.3g} to {scores[-1]:.3g}; "
        + ", ".join(f"{name}: {value:.3g}" for name, value in rules.items()),
        x=_rounds_axis(rounds),
        y=Axis.over(comparison.metric, [*scores, *rules.values()]),
    )
    for name, value in rules.items():
        figure.rule(value, name)
    figure.line(rounds, scores)
    return _captioned(figure, f"The {escape(comparison.metric)} at the points that rounds asked about, on rows declared public.")


def _references(comparison: Comparison) -> list[Method]:
    """The constant answer and the non-private fit, which stand in figures as lines."""
    return [method for method in comparison.methods if method.kind == "reference"]


def plans_over_epsilon(phase: Phase, chosen: float) -> dict[float, SumPlan]:
    """The plan of a round at other epsilons, where one can be proved; at the chosen one, the plan itself."""
    plan, lots = phase.plan, phase.lots
    request = {name: getattr(plan, name) for name in REQUEST_FIELDS if name != "scalar"}
    plans = {chosen: plan}
    if lots is not None:
        whole_run = {name: getattr(lots, name) for name in ("delta", "users", "rounds", "honest", "neighbours")}
        request = {name: request[name] for name in ("dim", "norm", "max_inflation", "max_bits")} | whole_run
    for epsilon in _EPSILONS:
        if epsilon == chosen:
            continue
        try:
            asked = request | {"epsilon": epsilon}
            plans[epsilon] = plan_sum(**asked) if lots is None else plan_lots(**asked).one_round
        except (ArgumentError, NoCertificateError):  # too few people for so small an epsilon, or beyond the paper's theorems
            continue
    return dict(sorted(plans.items()))


def noise_figure(epsilon: float, plans: Mapping[float, SumPlan], phase: Phase) -> str:
    """Noise over epsilon, beside the local model's."""

    def share(noise_std: float, plan: SumPlan) -> float:
        return math.sqrt(plan.dim) * noise_std / (plan.users if phase.lots is None else phase.mean_of) / plan.norm

    epsilons = list(plans)
    ours = [share(plan.noise_std, plan) for plan in plans.values()]
    locals_ = [
        share(local(plan if phase.lots is None else alone_request(phase, other)).noise_std, plan) for other, plan in plans.items()
    ]
    here = share(plans[epsilon].noise_std, plans[epsilon])
    figure = Figure(
        name="noise",
        title="Noise in a round's mean gradient over epsilon",
        description=f"{here:.3g} of the longest gradient at epsilon {round_up(epsilon)}; it falls from {ours[0]:.3g} to "
        f"{ours[-1]:.3g}, the local model's from {locals_[0]:.3g} to {locals_[-1]:.3g}.",
        x=_epsilon_axis(epsilons),
        y=Axis.over("noise / longest gradient", [*ours, *locals_, min(ours) / 2], log=True),
    )
    figure.line(epsilons, locals_, "other")
    figure.line(epsilons, ours)
    middle = len(epsilons) // 3
    figure.label(epsilons[1], locals_[1], "local model", shift=-6)
    figure.label(epsilons[middle], ours[middle], "shuffled", anchor="end", shift=22)
    figure.mark(epsilon, here, f"this model: {here:.2g}", falling=True)
    return _captioned(
        figure,
        "Length of the noise in one round's mean gradient, as a fraction of the longest gradient that one person can send. Well "
        "below 1, the people are heard; the rounds together average more of it away.",
    )


def bits_figure(epsilon: float, plans: Mapping[float, SumPlan], times: int) -> str:
    """Bits over epsilon, of a person who takes part in so many rounds."""
    bits = [float(plan.bits_per_user * times) for plan in plans.values()]
    here = float(plans[epsilon].bits_per_user * times)
    figure = Figure(
        name="bits",
        title="Bits that a person sends over epsilon",
        description=f"{here:,.0f} bits at epsilon {round_up(epsilon)}, between {min(bits):,.0f} and {max(bits):,.0f} elsewhere.",
        x=_epsilon_axis(list(plans)),
        y=Axis.over("bits a person sends", [0.0, *bits]),
    )
    figure.line(list(plans), bits)
    before = bits[max(0, list(plans).index(epsilon) - 1)]
    figure.mark(epsilon, here, f"this model: {here:,.0f}", falling=before > 1.2 * here)
    plan = plans[epsilon]
    within = f"that keep the noise within {plan.max_inflation - 1:.0%} of a curator's"
    why = within if plan.calibration == "tight" else "that the paper's theorems allow"
    return _captioned(
        figure, f"The fewest bits {why}. A weaker promise has less noise, so that values have to be rounded more finely."
    )


def sweep_figure(epsilon: float, comparison: Comparison) -> str:
    """The score on public rows over epsilon."""
    epsilons, scores = zip(*comparison.sweep, strict=True)
    rules = {method.name: method.scores[comparison.metric] for method in _references(comparison)}
    figure = Figure(
        name="sweep",
        title=f"{comparison.metric} over epsilon, on public rows",
        description="; ".join(f"epsilon {round_up(other)}: {score:.4g}" for other, score in comparison.sweep),
        x=_epsilon_axis(list(epsilons)),
        y=Axis.over(comparison.metric, [*scores, *rules.values()]),
    )
    for name, value in rules.items():
        figure.rule(value, name)
    figure.line(epsilons, scores)
    figure.dots(epsilons, scores)
    return _captioned(
        figure,
        f"Fitted anew with each epsilon on public rows: one fit each, so luck is in every dot. This model has epsilon "
        f"{round_up(epsilon)}.",
    )


def _captioned(figure: Figure, caption: str) -> str:
    return f"<figure>\n{figure.render()}\n<figcaption>{caption}</figcaption>\n</figure>"


def _rounds_axis(rounds: list[float]) -> Axis:
    axis = Axis.over("round", [0.0, *rounds])
    ticks = tuple(tick for tick in axis.ticks if tick == round(tick) <= max(rounds))
    return replace(axis, low=0.0, high=max(rounds) + max(0.5, 0.03 * max(rounds)), ticks=ticks)


def _epsilon_axis(epsilons: list[float]) -> Axis:
    inside = tuple(tick for tick in _EPSILON_TICKS if min(epsilons) / 1.2 <= tick <= max(epsilons) * 1.2)
    return Axis.over("epsilon (smaller is more private)", epsilons, log=True, ticks=inside)
