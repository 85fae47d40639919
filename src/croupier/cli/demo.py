"""`croupier demo`: a private sum and mean of a real population, beside a trusted curator and the local model."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from ..privacy import SumPlan, plan_sum
from ..protocol import SumEstimate, VectorSum
from ..protocol.sums import MODES
from ..report import central, guarantee_line, local, plan_table, simulate_central, simulate_local
from ..validation import one_of

Floats = NDArray[np.float64]
# A public bound: 64 pixels between 0 and 1; pictures with more ink than this are clipped.
_NORM = 5.0
_SHADES = " .:-=+*#%@"


def demo(
    epsilon: Annotated[float, typer.Option(help="Privacy loss epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="delta of the guarantee.")] = 1e-6,
    mode: Annotated[str, typer.Option(help="faithful (every bit made and permuted) or counting.")] = "faithful",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Average 1 797 people's handwritten digits without seeing any of them."""
    one_of("mode", mode, MODES, "The law is the same.")
    from sklearn.datasets import load_digits  # noqa: PLC0415  (slow to import, and only the demo needs it)

    pictures = np.asarray(load_digits().data, dtype=np.float64) / 16.0
    users, dim = pictures.shape
    plan = plan_sum(epsilon=epsilon, delta=delta, users=users, dim=dim, norm=_NORM)
    columns = (TextColumn("users randomizing"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), disable=as_json, transient=True) as bar:
        task = bar.add_task("round", total=users)
        estimate = VectorSum(plan).run(pictures, mode=mode, progress=lambda done: bar.update(task, completed=done))
    rng = np.random.default_rng(0)  # the baselines are simulated for comparison, not released
    sums = {
        "shuffle (tight)": estimate.sum,
        central(plan).name: simulate_central(pictures, plan, rng),
        local(plan).name: simulate_local(pictures, plan, rng),
    }
    planned = [plan.noise_std, central(plan).noise_std, local(plan).noise_std]
    bits = [plan.bits_per_coordinate, central(plan).bits_per_coordinate, local(plan).bits_per_coordinate]
    trust = ["a shuffler", central(plan).trust, local(plan).trust]
    truth = pictures.sum(axis=0)
    rows = [
        {
            "mechanism": name,
            "noise_planned": noise,
            "error_of_sum": _rms(found - truth),
            "error_of_mean": _rms(found - truth) / users,
            "bits_per_user": bit * dim,
            "trust": who,
        }
        for (name, found), noise, bit, who in zip(sums.items(), planned, bits, trust, strict=True)
    ]
    if as_json:
        typer.echo(json.dumps({"plan": plan.to_dict(), "estimate": estimate.to_dict(), "comparison": rows}, indent=2))
    else:
        _show(plan, estimate, rows, truth, sums)


def _show(plan: SumPlan, estimate: SumEstimate, rows: list[dict[str, Any]], truth: Floats, sums: dict[str, Floats]) -> None:
    console = Console()
    console.print(f"\n{plan.users:,} people each hold a picture of {plan.dim} pixels. The analyst wants their sum and mean.\n")
    console.print(plan_table(plan))
    table = Table(title="\nError against the truth, root mean square per coordinate", title_justify="left")
    for name in ("mechanism", "planned", "of sum", "of mean", "bits a user", "must trust"):
        table.add_column(name, justify="left" if name in ("mechanism", "must trust") else "right")
    for row in rows:
        table.add_row(
            row["mechanism"],
            f"{row['noise_planned']:.4g}",
            f"{row['error_of_sum']:.4g}",
            f"{row['error_of_mean']:.3g}",
            f"{row['bits_per_user']:,}",
            row["trust"],
        )
    console.print(table)
    if estimate.guarantee:
        console.print(f"Guarantee: {guarantee_line(estimate.guarantee, plan.epsilon)}.\n")
    pictures = {"true mean": truth, **sums}
    console.print(Columns([Panel(_picture(total / plan.users), title=name, expand=False) for name, total in pictures.items()]))
    console.print(
        "Next, with your own numbers: croupier plan --epsilon 1 --delta 1e-6 --users 10000 --dim 100 --compare", style="dim"
    )


def _picture(mean: Floats) -> str:
    """8 x 8 pixels between 0 and 1 as characters, two a pixel."""
    shades = np.clip(mean * len(_SHADES), 0, len(_SHADES) - 1).astype(int).reshape(8, 8)
    return "\n".join("".join(_SHADES[s] * 2 for s in row) for row in shades)


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(values**2)))
