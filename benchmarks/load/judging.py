"""The limits that must hold."""

from __future__ import annotations

from ..protocol import Results, Verdict
from .sizes import KILLS

# What must hold in a full run.
REPORTS_A_SECOND, OPENED_A_SECOND = 300, 10_000
# Of verified reports, 100 coordinates of counts to 50: bytes, milliseconds to prove, microseconds to verify at each server.
VERIFIED_BYTES, PROVING, VERIFYING = 8_000, 5.0, 50.0
# Processor time before over after, where an earlier version was measured with it.
FASTER = 2.0
# Of one core: masked reports and verified ones per second, and clients over TLS. And what a second process brings.
GOALS = {
    "masked reports, kept connections": 8_000,
    "verified reports, kept connections": 1_500,
    "clients over TLS": 600,
}
SECOND = 1.6


def judge(results: Results) -> list[Verdict]:
    """What must hold in a full run, and whether it does."""
    plain = [row for row in results["speed"] if not row["tls"] and row["connections"] > 1]
    best = min((row["a_second"] for row in plain), default=0.0)
    killed, opening = results["kills"], results["ciphertexts"]["opened_a_second"]
    rows = [
        (
            f"at least {REPORTS_A_SECOND} durable reports per second, every load of several connections",
            f"{best:.0f}",
            best >= REPORTS_A_SECOND,
        ),
        (
            f"nothing acknowledged lost across {KILLS} kills, and the sum exact in the end",
            f"{killed['lost']} lost, {killed['kills']} kills",
            killed["lost"] == 0 and killed["kills"] >= KILLS and killed["sum_is_exact"],
        ),
        (f"at least {OPENED_A_SECOND} ciphertexts opened per second and core", f"{opening:.0f}", opening >= OPENED_A_SECOND),
    ]
    rows += _verified(results["verified"])
    for transport in ("masked-sum", "verified-sum", "messages"):
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
    if simulated := results.get("simulation"):
        what = "people simulated through both roles: every sum exact"
        rows.append((what, f"{simulated['people']:,}", simulated["sums_are_exact"]))
    rows += [
        (f"{row['what']}: at most half the processor time of before", f"{1 / row['ratio']:.2f}", row["ratio"] >= FASTER)
        for row in results.get("against", {}).get("rows", ())
    ]
    return [Verdict(what, "", found, bool(held)) for what, found, held in _goals(results) + rows]


def _goals(results: Results) -> list[tuple[str, str, bool]]:
    """By processor time; what the clock said is told, and depends on what else the machine does."""
    goals = results.get("goals", {})
    rows = [
        (
            f"{row['what']}: at least {GOALS[row['what']]:,} per second of one core",
            f"{1 / row['cpu']:,.0f} by processor time, {row['a_second']:,.0f} by the clock",
            1 / row["cpu"] >= GOALS[row["what"]],
        )
        for row in goals.get("rows", ())
    ]
    if second := goals.get("second"):
        clock = second["two"]["a_second"] / second["one"]["a_second"]
        what = f"a second process on a second core, database included: at least {SECOND:g} times as many"
        rows.append((what, f"{second['gain']:.2f} by processor time, {clock:.2f} by the clock", second["gain"] >= SECOND))
    return rows


def _verified(row: Results) -> list[tuple[str, str, bool]]:
    shuffler, analyzer = (row[f"verifying_{server}_seconds"] * 1e6 for server in ("shuffler", "analyzer"))
    proving = row["proving_seconds"] * 1e3
    return [
        (f"a verified report of at most {VERIFIED_BYTES} bytes", f"{row['bytes']}", row["bytes"] <= VERIFIED_BYTES),
        (f"made in at most {PROVING:g} ms", f"{proving:.2f} ms", proving <= PROVING),
        (
            f"verified in at most {VERIFYING:g} us at each server",
            f"{shuffler:.0f} us (shuffler), {analyzer:.0f} us (analyzer)",
            max(shuffler, analyzer) <= VERIFYING,
        ),
        (
            f"at least {REPORTS_A_SECOND} durable reports per second, by verified-sum",
            f"{row['durable_a_second']:.0f}",
            row["durable_a_second"] >= REPORTS_A_SECOND and row["complete"],
        ),
    ]
