"""The mean of private vectors: error and bits per user of Croupier beside other ways, over users, coordinates and epsilon.

    python benchmarks/sum.py [--out DIR] [--quick] [--processes N] [--fresh] [--redraw]

Everything is for replace-one neighbours. Others are computed from their published accounting (benchmarks/mechanisms.py); Croupier's
stated error is also measured by running the protocol. Stores sum.json, sum.md and sum.svg; exits with 1 where a measured error is
above the stated one by more than chance. --quick is a small grid with few runs, stored only with --out. A run that was cut off goes
on where it was; --fresh begins anew. --redraw makes sum.md and sum.svg anew from the stored sum.json.
"""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import mechanisms
import numpy as np
from cells import Cells, command
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from mechanisms import DISCRETE_GAUSSIAN, SKELLAM, Aggregated
from scipy.stats import chi2

import croupier as cr
from croupier.privacy import ArgumentError, SumPlan
from croupier.protocol import NotPrivateWarning, SeededRandom
from croupier.report import central

DELTA = 1e-6
GRID = [(epsilon, users, dim) for epsilon in (0.25, 1.0, 4.0) for dim in (10, 100, 1000) for users in (10**3, 10**4, 10**5, 10**6)]
QUICK_GRID = [(epsilon, users, dim) for epsilon in (1.0,) for dim in (10, 100) for users in (10**3, 10**4)]
# (epsilon, users, coordinates, runs): the protocol itself
RUNS = [
    (0.25, 10**4, 100, 40),
    (1.0, 10**3, 10, 400),
    (1.0, 10**3, 1000, 40),
    (1.0, 10**4, 100, 100),
    (1.0, 10**5, 10, 100),
    (1.0, 10**5, 100, 100),
    (1.0, 10**6, 10, 40),
    (4.0, 10**4, 100, 40),
]
QUICK_RUNS = [(1.0, 10**3, 10, 40), (1.0, 10**4, 100, 5)]
CONFIDENCE = 0.99
SHOWN_EPSILON = 1.0  # in the figure
BITS = 16
REAL = 64  # bits of a number that is sent as it is
OURS, PAPER, CENTRAL = "Croupier", "the paper's constants", "central Gaussian"
SKELLAM_16, GAUSSIAN_16, SKELLAM_ENOUGH = "Skellam, 16 bits", "discrete Gaussian, 16 bits", "Skellam, enough bits"
SHUFFLED, LOCAL = "one message, shuffled", "local"
METHODS = (CENTRAL, OURS, SKELLAM_ENOUGH, SKELLAM_16, GAUSSIAN_16, SHUFFLED, LOCAL, PAPER)


def stated(epsilon: float, users: int, dim: int) -> dict[str, Any]:
    """Every method at one point of the grid: root mean squared l2 error of the mean, bits that a user sends, its parameters."""
    request = {"epsilon": epsilon, "delta": DELTA, "users": users, "dim": dim}
    ours = cr.plan_sum(**request)
    curator = central(ours)
    try:
        paper = planned(cr.plan_sum(**request, calibration="paper"))
    except ArgumentError as error:  # its theorems do not cover everything
        paper = {"refused": f"{error.name} must be {error.allowed}"}
    amplified = mechanisms.local_epsilon_for(epsilon, DELTA, users)
    return {
        CENTRAL: {"error": curator.noise_std * math.sqrt(dim) / users, "bits": curator.bits_per_coordinate * dim},
        OURS: planned(ours),
        PAPER: paper,
        SKELLAM_16: aggregated(mechanisms.aggregated(SKELLAM, epsilon, DELTA, users, dim, BITS)),
        GAUSSIAN_16: aggregated(mechanisms.aggregated(DISCRETE_GAUSSIAN, epsilon, DELTA, users, dim, BITS)),
        SKELLAM_ENOUGH: aggregated(mechanisms.enough_bits(SKELLAM, epsilon, DELTA, users, dim)),
        SHUFFLED: one_message(amplified, users, dim),
        LOCAL: one_message(epsilon, users, dim),
    }


def planned(plan: SumPlan) -> dict[str, Any]:
    parameters = {"levels": plan.levels, "noise_bits": plan.noise_bits, "noise_probability": plan.noise_probability}
    return {"error": plan.noise_std * math.sqrt(plan.dim) / plan.users, "bits": plan.bits_per_user} | parameters


def aggregated(plan: Aggregated) -> dict[str, Any]:
    return {
        "error": plan.error,
        "bits": plan.bits_per_user,
        "modulus_bits": plan.bits,
        "step": plan.step,
        "variance": plan.variance,
    }


def one_message(local_epsilon: float, users: int, dim: int) -> dict[str, Any]:
    unit = mechanisms.priv_unit(local_epsilon, dim)
    return {"error": unit.error(users), "bits": REAL * dim, "local_epsilon": local_epsilon, "cap_height": unit.height}


def measured(epsilon: float, users: int, dim: int, runs: int) -> dict[str, Any]:
    """The protocol on unit vectors with a common direction."""
    warnings.simplefilter("ignore", NotPrivateWarning)
    plan = cr.plan_sum(epsilon=epsilon, delta=DELTA, users=users, dim=dim)
    vectors = unit_vectors(users, dim)
    truth = vectors.mean(axis=0, dtype=np.float64)
    squares = [
        float(np.sum((cr.VectorSum(plan).run(vectors, random=SeededRandom(seed)).mean - truth) ** 2)) for seed in range(runs)
    ]
    return {
        "runs": runs,
        "seeds": [0, runs - 1],
        "error": math.sqrt(sum(squares) / runs),
        "interval": interval(squares, dim),
        "stated": planned(plan)["error"],
    }


def interval(squares: list[float], dim: int) -> list[float]:
    """Of the true root mean square, from squared errors of `dim` coordinates that are independent and nearly Gaussian."""
    ends = chi2.ppf([(1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2], len(squares) * dim)
    return [math.sqrt(dim * sum(squares) / end) for end in ends]


def unit_vectors(users: int, dim: int) -> np.ndarray:
    vectors = np.random.default_rng([users, dim]).normal(size=(users, dim)).astype(np.float32) + np.float32(0.5)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cell(job: tuple[Any, ...]) -> dict[str, Any]:
    kind, *point = job
    return stated(*point) if kind == "stated" else measured(*point)


def compute(quick: bool, processes: int, folder: Path, fresh: bool) -> dict[str, Any]:
    grid, runs = (QUICK_GRID, QUICK_RUNS) if quick else (GRID, RUNS)
    jobs = [("stated", *point) for point in grid] + [("measured", *point) for point in runs]
    cells = Cells(folder / "sum.cells.jsonl", {"delta": DELTA, "bits": BITS, "confidence": CONFIDENCE}, fresh=fresh)
    # long runs first
    done = cells.all(
        jobs, cell, processes=processes, description="sum", first=lambda job: -math.prod(job[2:]) * (job[0] == "measured")
    )
    named = [dict(zip(("epsilon", "users", "dim"), job[1:], strict=False)) for job in jobs]
    return {
        "version": cr.__version__,
        "quick": quick,
        "delta": DELTA,
        "confidence": CONFIDENCE,
        "cells": [where | {"methods": result} for where, result in zip(named[: len(grid)], done, strict=False)],
        "measured": [where | result for where, result in zip(named[len(grid) :], done[len(grid) :], strict=True)],
    }


# --- the page -------------------------------------------------------------------------------------------------------------------


def markdown(results: dict[str, Any]) -> str:
    """The stored figures as tables, and in words where Croupier loses."""
    quick = " A quick run: a small grid and few seeds." if results["quick"] else ""
    parts = [
        "# The mean of private vectors\n",
        f"croupier {results['version']}, delta = {results['delta']:g}, by `benchmarks/sum.py`.{quick}\n",
        INTRODUCTION,
        "![Error and bits per user over the number of users, one column per dimension](sum.svg)\n",
        "## Where Croupier loses\n",
        *(f"- {line}" for line in losses(results)),
        "\n## Where it wins\n",
        *(f"- {line}" for line in wins(results)),
        "\n## Error\n",
        "Root mean squared l2 error of the mean of vectors of length 1. An answer of 0 would be wrong by at most 1.\n",
        table(results, "error"),
        "\n## Bits per user\n",
        table(results, "bits"),
        "\n## Measured\n",
        f"The protocol itself with seeded randomness, and the {100 * results['confidence']:g} % interval of its error. The stated",
        "error is for the worst input; on these vectors rounding costs less than at its worst, so a little below 1 is expected.\n",
        measured_table(results),
        "\n## What each is\n",
        *(f"- **{name}**: {WHAT[name]}" for name in METHODS),
    ]
    return "\n".join(parts) + "\n"


INTRODUCTION = """\
Users hold vectors of length at most 1; the mean is wanted. Neighbours differ in one user's vector (replace-one), for every method.
Figures of others follow from their published accounting, by formulas that tests check by a second route; they are for vectors of
length 1 that may all be equal, and choices that are left open (grid, cap, orders) are made in their favour. Nothing but Croupier
was run. Bits are payload: keys, shares of masks, envelopes and labels are not counted for anybody.
"""

WHAT = {
    CENTRAL: """\
a trusted curator with the analytic Gaussian mechanism (Balle and Wang 2018); sensitivity 2 for replace-one. 64 bits a number.""",
    OURS: """\
`plan_sum` as it is by default: the fewest bits with at most 5 % more noise than the curator's. Replace-one by its own proof. Must
  trust: a shuffler. Deployed, a bit travels in an envelope of 49 bytes (`messages`), or a coordinate as one masked 64-bit number
  (`masked-sum`).""",
    PAPER: """\
Theorem 3.2 of the paper with its printed constants (`calibration="paper"`). Replace-one.""",
    SKELLAM_16: """\
secure aggregation modulo 2^16 with Skellam noise (Agarwal, Kairouz and Liu 2021): random Hadamard rotation to the next power of
  two, conditional rounding (beta = e^-1/2), the Renyi bound of Corollary 3.6 over whole orders. Published for a vector that becomes
  0 (add-remove); for replace-one the sensitivity of the rounded vectors is doubled. The grid minimises noise, rounding and
  wrapping together for a sum as long as n (where vectors are known to cancel, a shorter range and fewer bits do). Must trust: the
  aggregation's cryptography and enough honest users; it takes several rounds of interaction.""",
    SKELLAM_ENOUGH: """\
the same with the fewest bits at which its error is within 5 % of its own at 60 bits.""",
    GAUSSIAN_16: """\
the same with discrete Gaussians (Kairouz, Liu and Steinke 2021), Proposition 14; sensitivity doubled likewise. Every user's own
  noise must be half a grid step or more.""",
    SHUFFLED: """\
PrivUnit (Bhowmick et al. 2018, at the cap that Asi, Feldman and Talwar 2022 prove optimal) with the largest epsilon_0 that
  shuffling amplifies to epsilon by the numerical bound of *Hiding Among the Clones* (Feldman, McMillan and Talwar 2021). That
  bound is for replace-one and any randomizer; bounds made for one randomizer can be better, and the sharper general one of 2023
  has an erratum. Must trust: a shuffler. 64 bits a number; a message can be compressed to about a seed (Feldman, Talwar 2021).""",
    LOCAL: """\
PrivUnit at epsilon, without shuffler. Local privacy is replace-one by definition. Must trust: nobody.""",
}


def table(results: dict[str, Any], figure: str) -> str:
    heads = ("epsilon", "coordinates", "users", *METHODS)
    rows = ["| " + " | ".join(heads) + " |", "|---" * 3 + "|--:" * len(METHODS) + "|"]
    for at in results["cells"]:
        found = [at["methods"][name] for name in METHODS]
        cells = [f"{at['epsilon']:g}", f"{at['dim']:,}", f"{at['users']:,}"]
        rows.append(
            "| " + " | ".join(cells + ["not covered" if "refused" in one else in_short(one[figure]) for one in found]) + " |"
        )
    return "\n".join(rows)


def measured_table(results: dict[str, Any]) -> str:
    rows = ["| epsilon | coordinates | users | runs | stated | measured | measured / stated |", "|---|---|---|---|--:|--:|--:|"]
    for at in results["measured"]:
        low, high = (end / at["stated"] for end in at["interval"])
        where = f"| {at['epsilon']:g} | {at['dim']:,} | {at['users']:,} | {at['runs']} |"
        ratio = f"{at['error'] / at['stated']:.3f} ({low:.3f} to {high:.3f})"
        rows.append(f"{where} {at['stated']:.4g} | {at['error']:.4g} | {ratio} |")
    return "\n".join(rows)


def losses(results: dict[str, Any]) -> list[str]:
    """What others do better, from the figures."""
    ratio, count = ratios(results), len(results["cells"])
    widths = [at["methods"][SKELLAM_ENOUGH]["modulus_bits"] for at in results["cells"]]
    ours = [at["methods"][OURS]["bits"] / at["dim"] for at in results["cells"]]
    more = sum(value > 1 for value in ratio("bits", OURS, SHUFFLED))
    said = [
        f"**Bits, {SKELLAM_16}**: Croupier sends {ranged(ratio('bits', OURS, SKELLAM_16))} times as many bits.",
        f"**Bits, {SKELLAM_ENOUGH}**: {min(widths)} to {max(widths)} bits a coordinate (before padding) give secure aggregation "
        f"{ranged(ratio('error', SKELLAM_ENOUGH, OURS), 2)} times Croupier's error; Croupier takes {min(ours):.0f} to "
        f"{max(ours):,.0f} bits. "
        "With many users they grow nearly like sqrt(n), those of aggregation like log n.",
        f"**Bits, {SHUFFLED}**: Croupier sends {ranged(ratio('bits', OURS, SHUFFLED))} times as many bits, more than the 64 a "
        f"coordinate in {more} of {count} cells; and one message can be compressed to about a seed.",
        f"**Error, {CENTRAL}**: Croupier's is {ranged(ratio('error', OURS, CENTRAL), 3)} times as large, as asked for.",
    ]
    for name in (SKELLAM_16, GAUSSIAN_16, SKELLAM_ENOUGH, SHUFFLED, LOCAL):
        lower = [value for value in ratio("error", name, OURS) if value < 1]
        if lower:
            said.append(
                f"**Error, {name}**: lower than Croupier's in {len(lower)} of {count} cells, by up to {1 - min(lower):.1%}."
            )
    said.append(
        "**Bits of what travels**: these are the protocol's own messages. As a masked sum (`docs/protocol.md`) the same counts "
        "travel in 64 bits a coordinate and an envelope of 80 bytes, whatever the plan; the analyzer then opens sums alone."
    )
    return [*said, "**Trust**: the local model needs no shuffler, and secure aggregation none that sees messages one by one."]


def wins(results: dict[str, Any]) -> list[str]:
    ratio = ratios(results)
    few, many = (extreme(at["users"] for at in results["cells"]) for extreme in (min, max))
    said = []
    for name in (SKELLAM_16, GAUSSIAN_16, SHUFFLED, LOCAL):
        first, last = (ranged(ratio("error", name, OURS, users)) for users in (few, many))
        why = "; 16 bits cannot hold the sum of so many" if name in (SKELLAM_16, GAUSSIAN_16) else ""
        said.append(f"**Error, {name}**: {first} times Croupier's at {few:,} users, {last} times at {many:,}{why}.")
    more = (ranged(ratio(figure, PAPER, OURS)) for figure in ("error", "bits"))
    return [*said, "**{}**: {} times the error, {} times the bits.".format(PAPER[0].upper() + PAPER[1:], *more)]


def headline(results: dict[str, Any]) -> str:
    """All of it in one sentence."""
    ratio = ratios(results)
    return (
        f"The error of a private mean is {ranged(ratio('error', OURS, CENTRAL), 2)} times a trusted curator's, for "
        f"{ranged(ratio('bits', OURS, SKELLAM_ENOUGH))} times the bits of secure aggregation that does about as well."
    )


def ratios(results: dict[str, Any]) -> Any:
    """ratio(figure, first, second, users=None): first over second in every cell that has both."""

    def ratio(figure: str, first: str, second: str, users: int | None = None) -> list[float]:
        cells = [at["methods"] for at in results["cells"] if users in (None, at["users"])]
        return [at[first][figure] / at[second][figure] for at in cells if figure in at[first] and figure in at[second]]

    return ratio


def ranged(values: list[float], digits: int | None = None) -> str:
    """The least and the greatest; to `digits` decimals, or in short."""
    low, high = (f"{value:.{digits}f}" if digits is not None else in_short(value) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def in_short(value: float) -> str:
    """Three significant figures below 100, whole numbers up to a million, then powers of ten."""
    if 100 <= value < 1e6:
        return f"{value:,.0f}"
    return (f"{value:.1e}" if value >= 1e6 else f"{value:.3g}").replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def excessive(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Measured cells whose whole interval is above the stated error."""
    return [at for at in results["measured"] if at["interval"][0] > at["stated"]]


# --- the figure -----------------------------------------------------------------------------------------------------------------

STYLE = {
    "svg.hashsalt": "croupier sum",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Okabe and Ito's colours, which colour-blind people can tell apart; each line has its own marker as well
LINES: dict[str, dict[str, Any]] = {
    CENTRAL: {"color": "#999999", "lw": 6, "alpha": 0.6, "solid_capstyle": "round"},
    OURS: {"color": "#000000", "marker": "o", "lw": 1.6, "zorder": 5},
    SKELLAM_ENOUGH: {"color": "#009e73", "marker": "^", "lw": 1.2, "ls": "--", "ms": 9, "mfc": "none", "zorder": 6},
    SKELLAM_16: {"color": "#0072b2", "marker": "s", "lw": 1.2},
    GAUSSIAN_16: {"color": "#56b4e9", "marker": "D", "lw": 1.2, "ls": ":", "ms": 8, "mfc": "none"},
    SHUFFLED: {"color": "#d55e00", "marker": "v", "lw": 1.2},
    LOCAL: {"color": "#cc79a7", "marker": "P", "lw": 1.2, "ls": "-.", "ms": 8, "mfc": "none"},
    PAPER: {"color": "#e69f00", "marker": "X", "lw": 1.2},
}


@matplotlib.rc_context(STYLE)
def figure(results: dict[str, Any], path: Path) -> None:
    """Error above, bits per user below, over the users at epsilon 1; one column per dimension."""
    cells = [at for at in results["cells"] if at["epsilon"] == SHOWN_EPSILON]
    dims = sorted({at["dim"] for at in cells})
    drawing = Figure(figsize=(10.5, 7.6), layout="constrained")
    panels = drawing.subplots(2, len(dims), sharex=True, sharey="row", squeeze=False)
    for column, dim in enumerate(dims):
        here = [at for at in cells if at["dim"] == dim]
        for panel, key in zip(panels[:, column], ("error", "bits"), strict=True):
            for name, line in LINES.items():
                points = [(at["users"], at["methods"][name][key]) for at in here if key in at["methods"][name]]
                panel.loglog(*zip(*points, strict=True), label=name, **{"ms": 5} | line)
            panel.grid(color="#dddddd", lw=0.5)
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_minor_locator(NullLocator())
        runs = [at for at in results["measured"] if (at["epsilon"], at["dim"]) == (SHOWN_EPSILON, dim)]
        panels[0, column].plot(
            [at["users"] for at in runs],
            [at["error"] for at in runs],
            "o",
            ms=14,
            mfc="none",
            mec="black",
            label="Croupier, measured",
        )
        panels[0, column].axhline(1, color="#999999", lw=0.8, ls=(0, (1, 2)))
        panels[0, column].set_title(f"{dim:,} coordinates", loc="left")
        panels[1, column].set_xlabel("users")
    panels[0, 0].annotate(
        "an answer of 0",
        (0.02, 1),
        (0, -2),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color="#666666",
    )
    panels[0, 0].set_ylabel(f"error of the mean (l2), epsilon = {SHOWN_EPSILON:g}")
    panels[1, 0].set_ylabel("bits per user")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    drawing.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def main() -> None:
    results, _ = command(__doc__, "sum", compute, markdown, figure)
    if excessive(results):
        sys.exit(f"{len(excessive(results))} measured errors are above the stated ones by more than chance")


if __name__ == "__main__":
    main()
