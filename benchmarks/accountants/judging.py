"""Our deltas beside those of other accountants."""

from __future__ import annotations

from collections.abc import Iterator

from croupier.privacy._statements import round_down, round_up

from ..protocol import Results, Verdict

# What dp_accounting leaves out of its tails, and what its convolutions are wrong by.
FLOOR = 1e-13
# How far above another library's upper figure for the same bound a claim may be, as a part of it.
AGREES = 5e-3


def judge(results: Results) -> list[Verdict]:
    """Every claim: as other libraries have its bound, and not below what the real counts give away."""
    return [verdict for row in results["rows"] for verdict in _row(row)]


def _row(row: Results) -> Iterator[Verdict]:
    claimed, allocation = row["claimed_delta"], row["allocation"] or {}
    bounds = {"dp_accounting": row["bound"]}
    laws = {"dp_accounting": row["laws"][1]} if row["laws"] else {}
    if allocation:
        bounds["PLD_accounting"] = [allocation["low"], allocation["high"]]
    if "laws" in allocation:
        laws["PLD_accounting"] = allocation["laws"]
    for name, (low, high) in bounds.items():
        limit = f"{round_down(low)} to {round_up(high)}, except for {AGREES:.1%} above"
        holds = low - FLOOR <= claimed <= high * (1 + AGREES)
        yield Verdict(f"{row['kind']}: the claim beside its bound by {name}", limit, round_up(claimed), holds)
    for name, found in laws.items():
        what = f"{row['kind']}: delta of the protocol by {name}"
        yield Verdict(what, f"at most the claim, {round_up(claimed)}", round_up(found), found <= claimed)
