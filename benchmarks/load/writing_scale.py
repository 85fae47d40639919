"""The page's parts on an earlier version, on the simulation, and what a million people per day take."""

from __future__ import annotations

from typing import Any

from ..protocol import Results
from ..tables import table

PEOPLE = 1_000_000
# What is assumed: everybody comes within so many hours of the day, and what an hour of a core, a gigabyte sent and a gigabyte kept
# for a month cost at a large provider, in US dollars.
PEAK_HOURS, CORE_HOUR, SENT_GB, KEPT_GB_MONTH = 6, 0.05, 0.09, 0.10
# Bytes that a connection takes beside documents and reports: a TLS handshake with one certificate, heads of requests and answers.
CONNECTION_BYTES = 4_000


def goals_parts(results: Results) -> list[str]:
    """Nothing where they were not measured."""
    if not (found := results.get("goals")):
        return []
    said = (
        "One process on SQLite (WAL, synchronous=FULL), everything acknowledged when it is on disk; verified reports are also "
        "checked against their proofs, and each client over TLS is a full handshake, two requests and a close. *A core's limit* is "
        "one over the processor time of the shuffler, kernel included; *per second* is what the clock said, with the sender on "
        f"the same {results['cores']} cores. Medians of {found['turns']} turns.\n"
    )
    rows = [
        [
            f"{row['what']}, {row['connections']} at a time",
            f"{row['count']:,}",
            f"{1e3 * row['cpu']:.3f} ms",
            f"{1 / row['cpu']:,.0f}",
            f"{row['a_second']:,.0f}",
            f"{row['best_a_second']:,.0f}",
            f"{1e3 * row['sender_cpu']:.3f} ms",
        ]
        for row in found["rows"]
    ]
    heads = ("", "sent", "CPU of each", "a core's limit", "per second", "best turn", "CPU sender")
    return ["## Speed\n", said, table(heads, rows), *_second(found.get("second"))]


def _second(found: dict[str, Any] | None) -> list[str]:
    if not found:
        return []
    said = (
        f"Masked reports to one process and to two on PostgreSQL, {found['connections']} connections. CPU is of all processes and "
        "the database together. *Gain* is twice one's over two's: what a second core brings where each has its own; by the clock "
        "the sender and the database share the cores with both.\n"
    )
    rows = [
        [number, f"{1e3 * found[name]['cpu']:.3f} ms", f"{found[name]['a_second']:,.0f}", gain]
        for number, name, gain in (("1", "one", ""), ("2", "two", f"{found['gain']:.2f}"))
    ]
    return [said, table(("processes", "CPU of a report", "per second", "gain"), rows)]


def scale_parts(results: Results) -> list[str]:
    """Nothing where they were not measured."""
    parts = []
    if rows := results.get("against", {}).get("rows"):
        parts += ["## Against the version before\n", _against(rows), _rows(rows)]
    if found := results.get("simulation"):
        parts += [f"## {found['people']:,} people, simulated\n", _simulated(found)]
        if rows:
            parts += [f"## {PEOPLE:,} people per day\n", _assumed(), _planned(found, rows, results["verified"])]
    return parts


def _against(rows: list[dict[str, Any]]) -> str:
    turns = " to ".join(str(count) for count in sorted({len(row["ratios"]) for row in rows}))
    return (
        "The same reports, database and sender, by turns, one process of the shuffler on SQLite; *ratio* is the median over "
        f"{turns} pairs of turns of processor time before / after, and a core's limit is one over the least processor time. What a "
        "second brought is the best turn's: the sender and other people's work shared the cores.\n"
    )


def _rows(rows: list[dict[str, Any]]) -> str:
    return table(
        ("", "CPU before", "after", "ratio", "pairs", "a core's limit, before", "after", "per second, before", "after"),
        [
            [
                f"{row['what']}, {row['connections']} at a time",
                *(f"{1e3 * row[f'{version}_cpu']:.2f} ms" for version in ("before", "after")),
                f"{row['ratio']:.1f}",
                f"{min(row['ratios']):.1f} to {max(row['ratios']):.1f}",
                *(f"{1 / row[f'{version}_least_cpu']:,.0f}" for version in ("before", "after")),
                *(f"{row[f'{version}_a_second']:,.0f}" for version in ("before", "after")),
            ]
            for row in rows
        ],
    )


def _simulated(found: dict[str, Any]) -> str:
    cpu = {name: 1e6 * seconds / found["people"] for name, seconds in found["cpu"].items()}
    planned = f" of the {found['of']:,} that were begun" if "of" in found else ""
    return (
        f"Both roles with their databases on a virtual clock, without sockets: {found['people']:,} people{planned} came at "
        f"random moments, {found['rounds']} rounds, {found['sent_twice']:,} sent the same bytes twice and "
        f"{found['others_refused']:,} tried another report, which was refused. The analyzer's sums are "
        f"{'exactly' if found['sums_are_exact'] else 'NOT'} those of all people, round by round. Processor time of a person: "
        f"{cpu['clients']:.0f} us on its device (a sealed report), {cpu['taking']:.0f} us at the shuffler's database, "
        f"{cpu['analyzer']:.0f} us at the analyzer, {cpu['forwarding']:.0f} us for the sum.{_memory(found)}\n"
    )


def _memory(found: dict[str, Any]) -> str:
    """Nothing where it was not measured."""
    if "peak_bytes" not in found:
        return ""
    megabytes, minutes = found["peak_bytes"] / 1e6, found["seconds"] / 60
    return f" Both roles in one process had at most {megabytes:,.0f} MB; it took {minutes:.0f} minutes."


def _assumed() -> str:
    return (
        f"Assumed: all come within {PEAK_HOURS} hours, each over a TLS connection of its own; {CORE_HOUR:.2f} US dollars for an "
        f"hour of a core, {SENT_GB:.2f} for a gigabyte sent (received is free), {KEPT_GB_MONTH:.2f} for a gigabyte kept for a "
        "month. Reports are by masked-sum, as simulated above.\n"
    )


def planned(found: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Core hours, cores, gigabytes and dollars of a day, from what was measured here, medians."""
    client = next(row for row in rows if row["tls"])
    shuffler = PEOPLE * client["after_cpu"] / 3600
    analyzer = PEOPLE * (found["cpu"]["analyzer"] + found["cpu"]["forwarding"]) / found["people"] / 3600
    sent = PEOPLE * (found["document_bytes"] + CONNECTION_BYTES) / 1e9
    received = PEOPLE * (found["bytes_a_report"] + CONNECTION_BYTES) / 1e9
    kept = PEOPLE * found["database_bytes"] / found["people"] / 1e9
    dollars = (shuffler + analyzer) * CORE_HOUR + sent * SENT_GB + kept * KEPT_GB_MONTH / 30
    return {
        "shuffler_hours": shuffler,
        "analyzer_hours": analyzer,
        "cores": (shuffler + analyzer) / PEAK_HOURS,
        "sent": sent,
        "received": received,
        "kept": kept,
        "dollars": dollars,
    }


def verified_more(found: dict[str, Any], verified: dict[str, Any]) -> dict[str, float]:
    """Core hours, gigabytes and dollars that the same people take more by verified-sum, in its measured dimension."""
    steps = ("verifying_shuffler", "verifying_analyzer", "opening", "adding_up")
    hours = PEOPLE * sum(verified[f"{step}_seconds"] for step in steps) / 3600
    received = PEOPLE * (verified["bytes"] - found["bytes_a_report"]) / 1e9
    return {"hours": hours, "received": received, "dollars": hours * CORE_HOUR}


def _planned(found: dict[str, Any], rows: list[dict[str, Any]], verified: dict[str, Any]) -> str:
    plan, more = planned(found, rows), verified_more(found, verified)
    lines = [
        ["the shuffler", f"{plan['shuffler_hours']:.1f} core hours"],
        ["the analyzer", f"{plan['analyzer_hours']:.2f} core hours"],
        ["cores in the busy hours", f"{plan['cores']:.2f}"],
        ["received, sent", f"{plan['received']:.1f} GB, {plan['sent']:.1f} GB"],
        ["the shuffler's database", f"{plan['kept']:.2f} GB"],
        ["money", f"{plan['dollars']:.2f} US dollars a day"],
        [
            f"more by verified-sum, d = {verified['dim']}",
            f"{more['hours']:.2f} core hours, {more['received']:.1f} GB received, {more['dollars']:.3f} US dollars",
        ],
    ]
    return table((f"{PEOPLE:,} people per day", "takes"), lines)
