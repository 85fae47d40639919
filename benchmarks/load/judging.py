"""The limits that must hold."""

from __future__ import annotations

from ..protocol import Results, Verdict
from .sizes import KILLS

# What must hold in a full run.
REPORTS_A_SECOND, OPENED_A_SECOND = 300, 10_000


def judge(results: Results) -> list[Verdict]:
    """What must hold in a full run, and whether it does."""
    plain = [row for row in results["speed"] if not row["tls"] and row["connections"] > 1]
    best = min((row["a_second"] for row in plain), default=0.0)
    killed, opening = results["kills"], results["ciphertexts"]["opened_a_second"]
    rows = [
        (
            f"at least {REPORTS_A_SECOND} durable reports a second, every load of several connections",
            f"{best:.0f}",
            best >= REPORTS_A_SECOND,
        ),
        (
            f"nothing acknowledged lost across {KILLS} kills, and the sum exact in the end",
            f"{killed['lost']} lost, {killed['kills']} kills",
            killed["lost"] == 0 and killed["kills"] >= KILLS and killed["sum_is_exact"],
        ),
        (f"at least {OPENED_A_SECOND} ciphertexts opened a second and core", f"{opening:.0f}", opening >= OPENED_A_SECOND),
    ]
    for transport in ("masked-sum", "messages"):
        same = [row["same_theta"] for row in results["runs"] if row["transport"] == transport]
        rows.append(
            (
                f"theta by {transport} exactly that of the run in memory",
                f"{sum(same)} of {len(same)} runs",
                bool(same) and all(same),
            )
        )
    shared = [
        *results.get("processes", {}).get("rows", ()),
        *([large] if (large := results.get("large", {})).get("postgres") else []),
    ]
    if shared:
        exact = sum(row["sum_is_exact"] for row in shared)
        what = "several processes on PostgreSQL: the sum is exactly that of all reports"
        rows.append((what, f"{exact} of {len(shared)} rounds", exact == len(shared)))
    return [Verdict(what, "", found, bool(held)) for what, found, held in rows]
