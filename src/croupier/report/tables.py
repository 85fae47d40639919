"""Plans and comparisons as tables for the terminal."""

from __future__ import annotations

from rich.table import Table

from ..privacy import SumPlan, round_up
from ..privacy.words import crowd, honest_users
from .baselines import Baseline


def plan_table(plan: SumPlan) -> Table:
    """Everything one should know of a plan before running it."""
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
        "sent by a user": f"{plan.bits_per_coordinate:,} bits a coordinate, {plan.bits_per_user:,} bits a round",
        "noise of the sum": f"{plan.noise_std:.5g} a coordinate, {plan.inflation:.4g} x the central {plan.central_noise_std:.5g}",
        "certified": certified(plan),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def certified(plan: SumPlan) -> str:
    """The guarantee in a line, every figure rounded up."""
    gaussian = f" (mu {round_up(plan.mu)}, slack {round_up(plan.slack)})" if plan.mu else ""
    return f"delta {round_up(plan.certified_delta)} at epsilon {round_up(plan.epsilon)}{gaussian}"


def compare_table(plans: dict[str, SumPlan | str], baselines: list[Baseline], central_noise_std: float) -> Table:
    """Calibrations and baselines side by side; a string in place of a plan says why there is none."""
    table = Table(title="The same sum, four ways", title_justify="left")
    table.add_column("mechanism", no_wrap=True)
    for name in ("noise", "x central", "bits/coord."):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("must trust")
    for name, plan in plans.items():
        if isinstance(plan, str):
            table.add_row(name, "-", "-", "-", plan)
        else:
            trust = "a shuffler" if plan.honest == 1 else f"a shuffler, {crowd(plan.honest, 'users')}"
            table.add_row(name, f"{plan.noise_std:.5g}", f"{plan.inflation:.4g}", f"{plan.bits_per_coordinate:,}", trust)
    for base in baselines:
        ratio = base.noise_std / central_noise_std
        table.add_row(base.name, f"{base.noise_std:.5g}", f"{ratio:.4g}", f"{base.bits_per_coordinate:,}", base.trust)
    return table


def _rounds(plan: SumPlan) -> str:
    return "one round" if plan.rounds == 1 else f"{plan.rounds:,} rounds per user together"
