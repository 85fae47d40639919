"""Coverage beside what was asked for."""

from __future__ import annotations

from typing import Any

from ..protocol import Results, Verdict
from ..tables import table

LEAST = 0.93


def covered(row: dict[str, Any]) -> float:
    """The share of finite intervals that hold the truth."""
    return float(row["held"] / row["decided"]) if row["decided"] else 1.0


def judge(results: Results) -> list[Verdict]:
    """Intervals hold the truth in at least 93 of 100 cases, or the fit says that they are approximate."""
    verdicts = []
    for row in results["populations"]:
        share, warned = covered(row), row["warned"] == row["fits"]
        what = f"{row['population']}: slopes held by 95 % intervals"
        measured = f"{100 * share:.1f} %" + (", every fit warned" if warned else "")
        verdicts.append(Verdict(what, "at least 93 %, or a warning", measured, share >= LEAST or warned))
    return verdicts


def page(results: Results) -> str:
    """One row per population, then the verdicts."""
    lines = [
        (
            row["population"],
            f"{row['users']:,}",
            str(row["columns"]),
            str(row["fits"]),
            f"{100 * row['decided'] / row['slopes']:.1f} %",
            f"{100 * covered(row):.1f} %",
            "-" if row["width"] is None else f"{row['width']:.2f}",
            f"{100 * row['warned'] / row['fits']:.0f} %",
        )
        for row in results["populations"]
    ]
    verdicts = [(v.what, v.limit, v.measured, "yes" if v.holds else "NO") for v in judge(results)]
    heads = ("population", "people", "columns", "fits", "finite", "held", "width", "warned")
    return "\n".join(
        [
            "# Do intervals hold the truth?\n",
            f"croupier {results['version']}; `ShuffleLinearRegression` and `ShuffleLogit` in eight secret rounds, epsilon = "
            f"{results['epsilon']:g}, delta = {results['delta']:g}, nothing tuned.",
            "People are drawn with replacement from a population of up to 100 000; the truth is least squares or the likelihood's",
            "maximum of all of it, whether or not a linear model is right. Gaussian noise of the plans. `finite`: slopes with a",
            "finite interval; `held`: of these, those that hold the truth; `width`: beside intervals without privacy, medians;",
            "`warned`: fits that say of themselves that intervals are approximate or that many residuals were cut.\n",
            table(heads, lines),
            table(("what", "asked", "measured", "holds"), verdicts),
        ]
    )
