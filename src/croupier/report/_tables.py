"""Plans and comparisons as tables for the terminal."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from ..privacy import LotsPlan, SumPlan
from ..privacy._statements import SEEDED, crowd, guarantee_line, honest_users, not_private, round_up, watched_demand, watched_line
from ..table._encode import Encoder
from ..table.schema import Category, Column, Image, Schema
from .baselines import Baseline

if TYPE_CHECKING:
    from ..privacy._proof import Proof


def plan_table(plan: SumPlan) -> Table:
    """Return everything that one should know of a plan before running it, as a table."""
    table = Table(title="Plan of a private sum", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    rows = {
        "asked": f"epsilon {round_up(plan.epsilon)}, delta {round_up(plan.delta)}; {_rounds(plan)}",
        "population": f"{plan.users:,} users, {plan.dim:,} coordinates, norm at most {plan.norm:g}"
        + ("" if plan.diameter is None else f", diameter {plan.diameter:g}"),
        "neighbours": plan.neighbours,
        "honest users": honest_users(plan.honest_users, plan.users),
        "calibration": f"{plan.calibration}, by {plan.theorem}",
        "encoding": f"{plan.levels:,} levels + {plan.noise_bits:,} noise bits with probability {plan.noise_probability:.6g}",
        "sent by a user": f"{plan.bits_per_coordinate:,} bits per coordinate{_rotated(plan)}, {plan.bits_per_user:,} per round",
        "one cheat": _influence(plan),
        "noise of the sum": f"{plan.noise_std:.5g} per coordinate, {plan.inflation:.4g} x the central {plan.central_noise_std:.5g}",
        **_bias(plan),
        "certified": certified(plan),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _influence(plan: SumPlan) -> str:
    """How far one user who sends what it likes, within what counts can be, moves the sum: (g + b) steps in every coordinate.

    After a rotation all of that may be turned into one coordinate; with blocks it weighs as many times as there are blocks.
    """
    whole = plan.bits_per_coordinate * plan.step(plan.levels) / plan.norm * math.sqrt(plan.coordinates) * plan.blocks
    coordinate = whole / math.sqrt(plan.dim) if plan.range is None else whole
    return f"can move a coordinate by up to {coordinate:.3g} x the norm, the sum by {whole:.3g} x; a record by 2 x"


def _rotated(plan: SumPlan) -> str:
    """Of how many coordinates, after a rotation."""
    if plan.range is None:
        return ""
    return f" of {plan.coordinates:,} after a rotation" + ("" if plan.blocks == 1 else f", one of {plan.blocks} blocks")


def _bias(plan: SumPlan) -> dict[str, str]:
    """What a rotation's box moves the sum by."""
    if plan.range is None:
        return {}
    if not plan.bias_bound:
        return {"bias": "none (no coordinate is ever clipped)"}
    each = f"{plan.bias_bound:.3g} at most in any coordinate, {plan.bias_rms:.3g} over all of them"
    return {"bias": f"{each}: root mean squares over rotations, of vectors at the bound"}


def proof_table(proof: Proof) -> Table:
    """Return the enclosures of a proof in ball arithmetic, rounded outward, as a table."""
    table = Table(title=f"Proved in ball arithmetic, window {proof.low:,} to {proof.high:,}", title_justify="left")
    for name in ("constant", "at least", "at most"):
        table.add_column(name)
    names = {
        "step": "c",
        "slope": "ct",
        "bulge": "kappa",
        "tau": "tau, one coordinate",
        "mu": "mu, one round",
        "delta": "delta, all rounds",
    }
    for name, enclosure in proof.enclosures().items():
        shown = enclosure.rounded(10)  # as many as a narrow terminal has room for: a number cut short would be a wrong one
        table.add_row(names[name], str(shown.lower), str(shown.upper))
    return table


def lots_table(plan: LotsPlan) -> Table:
    """Return everything that one should know of a plan with secret lots before running it, as a table.

    It also says what holds if the lots are known.
    """
    table = Table(title="Plan of private sums with secret lots", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    one = plan.one_round
    promise = f"epsilon {round_up(plan.guarantee.epsilon(plan.delta))} at delta {round_up(plan.delta)}"
    rows = {
        "asked": f"epsilon {round_up(plan.epsilon)}, delta {round_up(plan.delta)}; each user is in one of {plan.rounds:,} rounds",
        "population": f"{plan.users:,} users, {one.dim:,} coordinates, norm at most {one.norm:g}",
        "neighbours": plan.neighbours,
        "honest users": f"{crowd(plan.honest)}; in a round, {one.honest_users:,} of {plan.size:,} reports",
        "reports in a round": f"{plan.size:,}, blanks included; {plan.users_in_round:,.4g} users on average",
        "encoding": f"{one.levels:,} levels + {one.noise_bits:,} noise bits with probability {one.noise_probability:.6g}",
        "sent by a user": f"{one.bits_per_coordinate:,} bits per coordinate{_rotated(one)}, {plan.bits_per_user:,} bits in all",
        **_opening(plan),
        "one cheat": _influence(one),
        "noise of a round": f"{plan.noise_std:.5g} per coordinate; with open lots at least {plan.open_noise_std:.5g}",
        **_bias(one),
        "certified": f"{promise}, to anyone who does not know the lots",
        "if watched": f"{watched_line(plan.guarantee, plan.delta)}, to an attacker who also knows when each user answered"
        f"{watched_demand(plan.guarantee, plan.delta)}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _opening(plan: LotsPlan) -> dict[str, str]:
    """What users send in the first rounds, where these ask other questions."""
    return {
        f"in round {first + 1:,}" if stage.rounds == 1 else f"in rounds {first + 1:,} to {first + stage.rounds:,}": (
            f"{stage.plan.bits_per_coordinate:,} bits per coordinate"
            f"{_rotated(stage.plan) or f' of {stage.plan.dim:,}'}, {stage.plan.bits_per_user:,} bits in all"
        )
        for first, stage in zip(accumulate((s.rounds for s in plan.opening), initial=0), plan.opening, strict=False)
        if stage.plan != plan.one_round
    }


def certified(plan: SumPlan) -> str:
    """Return the guarantee in a line, every figure rounded up."""
    gaussian = f" (mu {round_up(plan.mu)}, slack {round_up(plan.slack)})" if plan.mu else ""
    return f"delta {round_up(plan.certified_delta)} at epsilon {round_up(plan.epsilon)}{gaussian}"


def compare_table(plans: dict[str, SumPlan | str], baselines: list[Baseline], central_noise_std: float) -> Table:
    """Return calibrations and baselines side by side, as a table."""
    table = Table(title="The same sum in several ways", title_justify="left")
    table.add_column("mechanism", no_wrap=True)
    for name in ("noise", "x central", "bits/coord."):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("must trust")
    for name, plan in plans.items():
        if isinstance(plan, str):
            table.add_row(name, "-", "-", "-", plan)
        else:
            trust = "a shuffler" if plan.honest == 1 else f"a shuffler, {crowd(plan.honest, 'users')}"
            table.add_row(
                name, f"{plan.noise_std:.5g}", f"{plan.inflation:.4g}", f"{round(plan.bits_per_user / plan.dim):,}", trust
            )
    for base in baselines:
        ratio = base.noise_std / central_noise_std
        table.add_row(base.name, f"{base.noise_std:.5g}", f"{ratio:.4g}", f"{base.bits_per_coordinate:,}", base.trust)
    return table


def _rounds(plan: SumPlan) -> str:
    return "one round" if plan.rounds == 1 else f"{plan.rounds:,} rounds per user together"


# Words about models: what one promises, in a few lines, and what its public facts are.


def promise_lines(estimator: Any, *, with_watched: bool = True) -> list[str]:
    """Say in a line what a fitted estimator promises, and what has to be said beside it."""
    result, guarantee = getattr(estimator, "result_", None), estimator.guarantee_
    if guarantee is None:
        lines = [f"{not_private(SEEDED)} Remove --seed for real data."]
    else:
        lines = [f"Guarantee: {guarantee_line(guarantee, estimator.promise_.epsilon, estimator.promise_.delta)}."]
        if guarantee.watched is not None and with_watched:
            known = watched_line(guarantee, estimator.promise_.delta)
            lines.append(f"This assumes that lots stay secret. To an attacker who also knows when each user answered: {known}.")
    if result is not None and result.stopped:
        lines.append(
            f"Stopped after {result.rounds} of {result.schedule.rounds} planned rounds; the model comes from these rounds."
        )
    if result is not None and result.stopped and guarantee is not None:
        lines.append("The guarantee counts all planned rounds, so it holds even if you stopped because of what you saw.")
    return lines


# Coefficients without error bars that a terminal shows, the largest first; a report draws more.
_MOST_LINES = 20


def coefficient_lines(estimator: Any, schema: Schema) -> list[str]:
    """Return the coefficients of a model without intervals, one line per column, headed by what they speak for."""
    names, weights = Encoder(schema).names, np.atleast_2d(getattr(estimator, "coef_", np.zeros((0, 0))))
    if weights.shape[1] != len(names):  # of a map's features: they have no names
        return []
    kept = np.argsort(-np.abs(weights).max(axis=0), kind="stable")[:_MOST_LINES].tolist()
    more = [f"{len(names) - len(kept):,} smaller ones are not shown."] if len(kept) < len(names) else []
    if getattr(estimator, "fit_intercept", False):
        kept.append(len(names))
        names, weights = (*names, "(intercept)"), np.column_stack([weights, np.ravel(estimator.intercept_)])
    width = max(len(names[i]) for i in kept)
    rows = f": {facts}" if (facts := schema_facts(schema).get("rows")) else ""
    classes = [str(one) for one in getattr(estimator, "classes_", [schema.target.column])]
    of = classes[1] if len(classes) == 2 else classes[0]
    if len(weights) > 1:
        told = [f"{classes[int(weights[:, i].argmax())]} {weights[:, i].max():+.3g}" for i in kept]
        head = f"The class that each column favours most, per unit of a row{rows}"
    else:
        told = [f"{weights[0, i]:+.4g}" for i in kept]
        head = f"Coefficients towards {of}{f' (against {classes[0]})' if len(classes) == 2 else ''}, per unit of a row{rows}"
    return [f"{head}. They have no error bars.", *(f"  {names[i]:{width}} {one}" for i, one in zip(kept, told, strict=True)), *more]


def described_lines(schema: Schema, estimator: Any) -> list[str]:
    """Say where a model's schema comes from, if it was described privately, and what that adds to the model's promise."""
    if schema.described is None:
        return []
    promise = None if estimator.guarantee_ is None else (estimator.promise_.epsilon, estimator.promise_.delta)
    return schema.described.lines(promise)


def schema_facts(schema: Schema) -> dict[str, str]:
    """Return the public facts about every column, as the report shows them."""
    origin = {} if schema.described is None else {"ranges": schema.described.origin}
    columns = {f"column {name}": _fact(column) for name, column in schema.columns.items()}
    steps = [] if schema.features is None else schema.features["steps"]
    made = "numbers run from -1 to 1 over their range, levels are 0 or 1"
    mapped = bool(steps) or any(isinstance(column, Image) for column in schema.columns.values())
    rows = {} if mapped else {"rows": made + ("; each row is then divided by its length" if schema.rows == "unit" else "")}
    return origin | columns | rows | ({"features": ", then ".join(_step(step) for step in steps)} if steps else {})


def _step(step: dict[str, Any]) -> str:
    parameters = ", ".join(f"{name} {value}" for name, value in step.items() if name != "kind")
    return f"{step['kind']} ({parameters})"


def _fact(column: Column) -> str:
    if isinstance(column, Image):
        return f"pictures of {column.shape[0]} x {column.shape[1]} pixels, {column.low:g} to {column.high:g}"
    if isinstance(column, Category):
        some = ", ".join(column.levels[:12])
        more = "" if len(column.levels) <= 12 else f" and {len(column.levels) - 12} more"
        return f"{some}{more}" if column.reference is None else f"{some}{more}; compared with {column.reference}"
    how = ", on a log scale" if column.scale == "log" else ""
    return f"{column.low:g} to {column.high:g}{how}{', or missing' if column.missing else ''}"
