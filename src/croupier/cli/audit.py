"""`croupier audit`: test a plan's guarantee by routes that share no code with its proof."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import accumulate
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..audit import empirical_audit, play_all
from ..audit._exact import exact_delta, pld_delta
from ..audit.empirical import EmpiricalAudit
from ..audit.play import DEPLOYED, KINDS, QUICK_TRIALS, TRIALS, Findings, runs_of
from ..privacy import ArgumentError, SumPlan, plan_sum
from ..privacy._statements import certified_line, exact, round_down, round_up
from ..protocol import SecureRandom, VectorSum
from ..validation import Found, whole

# Beyond this many noise bits the laws are not enumerated.
_MAX_ENUMERATED = 5_000_000
_TRIALS = 10_000
_BAR = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def audit_plan(
    context: typer.Context,
    epsilon: Annotated[float, typer.Option(help="Privacy loss epsilon.")] = 4.0,
    delta: Annotated[float, typer.Option(help="delta of the guarantee.")] = 1e-6,
    users: Annotated[int, typer.Option(help="Users in one round.")] = 20,
    dim: Annotated[int, typer.Option(help="Coordinates.")] = 2,
    norm: Annotated[float, typer.Option(help="Norm bound.")] = 1.0,
    honest: Annotated[float, typer.Option(help="Fraction of honest users; only they take part in the game.")] = 1.0,
    neighbours: Annotated[str, typer.Option(help="replace-one or zero-out.")] = "replace-one",
    calibration: Annotated[str, typer.Option(help="tight, paper or paper-scaled.")] = "tight",
    max_inflation: Annotated[float, typer.Option(help="Noise allowed relative to the central Gaussian mechanism.")] = 1.05,
    trials: Annotated[
        int | None, typer.Option(help=f"Runs of a membership game per side; default: {_TRIALS}, or {TRIALS} with --all.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Play the game against every kind of released result.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help=f"With --all: {QUICK_TRIALS} runs per side, two or three minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Audit one round by exact enumeration, dp_accounting's privacy loss distribution and a membership game.

    With --all: play the membership game against every kind of result. Exit code 1 if a guarantee is refuted.
    """
    if every:
        _audit_all(context, (QUICK_TRIALS if quick else TRIALS) if trials is None else trials, as_json)
        return
    if quick:
        raise ArgumentError("--quick", Found("is given without --all"), "used with it", "For one round, use --trials.")
    trials = whole("trials", _TRIALS if trials is None else trials, at_least=100, remedy="Fewer trials cannot refute anything.")
    plan = plan_sum(
        epsilon=epsilon,
        delta=delta,
        users=users,
        dim=dim,
        norm=norm,
        honest=honest,
        neighbours=neighbours,
        calibration=calibration,
        max_inflation=max_inflation,
    )
    deltas = _computed_deltas(plan)
    game = _membership_game(plan, trials, show=not as_json)
    passed = game.passed and all(value <= plan.certified_delta for value in deltas.values() if isinstance(value, float))
    if as_json:
        report: dict[str, Any] = {"passed": passed, "computed_deltas": deltas, "game": game.to_dict(), "plan": plan.to_dict()}
        typer.echo(json.dumps(report, indent=2))
    else:
        Console().print(_table(plan, deltas, game))
    if not passed:
        raise typer.Exit(1)


def _audit_all(context: typer.Context, trials: int, as_json: bool) -> None:
    """The game against every kind of result."""
    allowed = {"every", "quick", "trials", "as_json"}
    for name in set(context.params) - allowed:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = "--" + name.replace("_", "-")
            raise ArgumentError(option, context.params[name], "left out with --all", "Its games have their own plans.")
    with Progress(TextColumn("{task.description}"), *_BAR, console=Console(stderr=True), disable=as_json, transient=True) as bar:
        before = dict(zip([kind.name for kind in KINDS], accumulate(2 * runs_of(kind, trials) for kind in KINDS), strict=True))
        task = bar.add_task("games", total=max(before.values()))
        lengths = {kind.name: 2 * runs_of(kind, trials) for kind in KINDS}

        def tell(name: str, runs: int) -> None:
            bar.update(task, description=name, completed=before[name] - lengths[name] + runs)

        findings = play_all(trials=trials, progress=tell)
    if as_json:
        typer.echo(findings.to_json())
    else:
        Console().print(_table_of_all(findings))
    if not findings.passed:
        raise typer.Exit(1)


def _table_of_all(findings: Findings) -> Table:
    table = Table(title="The membership game against every kind of result: mu, and the claim's epsilon", title_justify="left")
    for column in ("result", "claim", "epsilon", "estimate", "at least", "verdict"):
        table.add_column(column, no_wrap=column != "result")  # on a narrow terminal a verdict is never what goes
    for row in findings.rows:
        table.add_row(
            row.kind,
            round_up(row.audit.mu_claimed),
            round_up(row.epsilon_claimed),
            round_up(row.audit.mu_estimate, 3),
            round_down(row.audit.mu_lower),
            "holds" if row.passed else "[bold red]REFUTED[/]",
        )
    noticed = max(row.audit.mu_detectable / row.audit.mu_claimed for row in findings.rows)
    power = f"mu {noticed:.3g} times the claim" if math.isfinite(noticed) else "nothing in some rows (use more trials)"
    table.caption = (
        f"{findings.trials:,} real runs per side of a game, fewer where they are slow; epsilons "
        f"at delta {exact(findings.delta)}; "
        f"the audit would notice {power}. If all claims hold, the probability that any is refuted is at most "
        f"{findings.false_alarm:g}, shared equally by the rows."
        f"{'' if DEPLOYED else ' Deployed rounds are left out: the extra service is not installed.'}"
    )
    table.caption_justify = "left"
    return table


def _computed_deltas(plan: SumPlan) -> dict[str, float | str]:
    """delta at epsilon for chosen neighbours by enumeration and by dp_accounting; a text if it cannot be computed."""
    trials = plan.noise_bits * plan.honest_users
    if trials > _MAX_ENUMERATED:
        return {"enumeration": f"left out: {trials} noise bits are too many to enumerate"}
    shift = plan.encoded_shift(plan.levels)
    base = 0.0 if plan.neighbours == "replace-one" else plan.levels / 2
    sent = plan.coordinates
    pairs = {
        "one coordinate": ([base], [base + min(shift, plan.encoded_reach(plan.levels))]),
        "all coordinates": ([base] * sent, [base + shift / math.sqrt(sent)] * sent),
    }
    routes: dict[str, Callable[..., float]] = {"exact": exact_delta, "dp_accounting": pld_delta}
    found: dict[str, float | str] = {}
    for where, (first, second) in pairs.items():
        for name, route in routes.items():
            try:
                found[f"{name}, {where}"] = route(
                    first, second, trials=trials, probability=plan.noise_probability, epsilon=plan.epsilon
                )
            except ArgumentError:
                found[f"{name}, {where}"] = "left out: too many outcomes"
            except ImportError as error:
                found[f"{name}, {where}"] = f"left out: {error}"
    return found


def _membership_game(plan: SumPlan, trials: int, show: bool) -> EmpiricalAudit:
    """The game against the real protocol: one user at +norm or, in the neighbour, at the other end; the rest at zero."""
    populations = np.zeros((2, plan.honest_users, plan.dim))
    populations[0, 0, 0] = plan.norm
    populations[1, 0, 0] = -plan.norm if plan.neighbours == "replace-one" else 0.0
    protocol, random = VectorSum(plan), SecureRandom()

    def mechanism(neighbour: bool) -> float:
        return float(protocol.run(populations[int(neighbour)], random=random).sum[0])

    with Progress(TextColumn("membership game"), *_BAR, console=Console(stderr=True), disable=not show, transient=True) as bar:
        task = bar.add_task("game", total=2 * trials)
        return empirical_audit(
            mechanism,
            claim=plan.guarantee,
            delta=plan.delta,
            trials=trials,
            progress=lambda done: bar.update(task, completed=done),
        )


def _table(plan: SumPlan, deltas: dict[str, float | str], game: EmpiricalAudit) -> Table:
    table = Table(title=f"Audit of one round at epsilon {round_up(plan.epsilon)}", title_justify="left")
    table.add_column("route", no_wrap=True)
    table.add_column("at least")
    table.add_column("claimed at most")
    table.add_column("verdict")
    limit = plan.certified_delta
    for name, value in deltas.items():
        if isinstance(value, str):
            table.add_row(name, escape(value), "", "-")
        else:
            verdict = "holds" if value <= limit else "[bold red]REFUTED[/]"
            table.add_row(name, f"delta {round_down(value)}", f"delta {round_up(limit)}", verdict)
    table.add_row(
        f"membership game, {game.trials:,} trials",
        f"mu {round_down(game.mu_lower)}",
        f"mu {round_up(game.mu_claimed)}",
        "holds" if game.passed else "[bold red]REFUTED[/]",
    )
    noticed = f"would notice mu >= {round_up(game.mu_detectable)}"
    power = noticed if math.isfinite(game.mu_detectable) else "could notice nothing: use more trials"
    table.caption = (
        f"The game shows epsilon >= {round_down(game.epsilon_lower)} at delta {exact(game.delta)} and {power}, at a false-alarm "
        f"rate of {round_up(game.false_alarm)}. Claim: {certified_line(plan.guarantee, plan.epsilon, plan.delta)}."
    )
    table.caption_justify = "left"
    return table
