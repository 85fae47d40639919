"""The page."""

from __future__ import annotations

from croupier.privacy._statements import round_down, round_up

from ..protocol import Results
from ..tables import table

INTRODUCTION = """\
delta at the epsilon of each row. *Claimed* is ours. *The bound by ...*: what another library makes of the Gaussians, randomized
responses and small probabilities that the claim is composed of; it must agree. *The protocol by ...*: the laws of the real counts,
in the worst directions that we know of (everything in one coordinate; all coordinates alike), composed over coordinates and rounds;
it must not be above the claim. Brackets are the two ways of rounding losses. `PLD_accounting` takes one coordinate and whole steps.

    python -m benchmarks accountants
"""
HEADS = (
    "guarantee",
    "epsilon",
    "claimed",
    "the bound by dp_accounting",
    "by PLD_accounting",
    "the protocol by dp_accounting",
    "by PLD_accounting",
)


def page(results: Results) -> str:
    """Our delta beside the others'."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items() if version)
    quick = " A quick run: few users in a round." if results["quick"] else ""
    rows = []
    for row in results["rows"]:
        other = row["allocation"] or {}
        bound = bracket([other["low"], other["high"]]) if "high" in other else "-"
        laws = round_up(other["laws"]) if "laws" in other else "-"
        ours = (row["kind"], f"{row['epsilon']:g}", round_up(row["claimed_delta"]))
        rows.append((*ours, bracket(row["bound"]), bound, bracket(row["laws"]), laws))
    return "\n".join(["# Other accountants\n", INTRODUCTION, f"By {versions}.{quick}\n", table(HEADS, rows)])


def bracket(ends: list[float] | None) -> str:
    """Lower end rounded down, upper end up."""
    if ends is None:
        return "too wide to enumerate"
    return f"{round_down(ends[0])} to {round_up(ends[1])}" if ends[1] > 0 else "below 1e-13"
