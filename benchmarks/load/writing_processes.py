"""The page's parts on several processes, on one very large round, and what a round of a million takes."""

from __future__ import annotations

from typing import Any

from ..protocol import Results
from ..tables import table

MILLION = 1_000_000


def processes_parts(results: Results) -> list[str]:
    """Nothing where they were not measured."""
    parts = []
    if (several := results.get("processes", {})).get("rows"):
        parts += ["## Several processes\n", _several(results), _rows(several["rows"])]
    if (large := results.get("large", {})).get("postgres"):
        parts += [f"## A round of {large['reports']:,} clients\n", _large(large), f"## A round of {MILLION:,}, planned\n"]
        parts += ["From the rows above, in proportion; CPU by the dearest of them:\n"]
        parts += [_million(large, [*results.get("processes", {}).get("rows", ()), large])]
    return parts


def _several(results: Results) -> str:
    return (
        "`croupier serve shuffler --processes`, PostgreSQL on the same machine (fsync on, through a socket), masked-sum, d = 30, "
        "connections that stay open, one round. Shuffler, database and sender share "
        f"{results['cores']} cores, which others kept busy (load averages above): two processes are worth it there, four are not. "
        "CPU per report grows with processes, since fewer reports come together in each of them and share a transaction.\n"
    )


def _rows(rows: list[dict[str, Any]]) -> str:
    names = ("processes", "connections", "reports", "per second", "wait, median", "99 %")
    return table(
        (*names, "CPU shuffler", "CPU database", "CPU sender", "sum"),
        [
            [
                str(row["processes"]),
                str(row["connections"]),
                f"{row['reports']:,}",
                f"{row['a_second']:.0f}",
                *(f"{1e3 * row[name]:.0f} ms" for name in ("wait_median", "wait_99")),
                *(f"{1e3 * row[name]:.2f} ms" for name in _CPU),
                "exact" if row["sum_is_exact"] else "NOT exact",
            ]
            for row in rows
        ],
    )


_CPU = ("shuffler_cpu_a_report", "database_cpu_a_report", "sender_cpu_a_report")


def _large(row: dict[str, Any]) -> str:
    return (
        f"{row['reports']:,} enrolled clients, d = {row['dim']}, reports of {row['bytes']} bytes, sealed for real "
        f"({row['made_a_second']:,.0f} per second and core), {row['processes']} processes: {row['a_second']:.0f} acknowledged per "
        f"second; {row['seconds_to_the_sum']:.0f} seconds after the last one the analyzer had the sum, which is "
        f"{'exactly' if row['sum_is_exact'] else 'NOT'} that of all reports. CPU per report: shuffler "
        f"{1e3 * row['shuffler_cpu_a_report']:.2f} ms, database {1e3 * row['database_cpu_a_report']:.2f} ms. On disk a client "
        f"takes {row['enrolled_bytes_a_client']:.0f} bytes when it is enrolled and drawn, and a report "
        f"{row['database_bytes_a_report']:.0f} (with what PostgreSQL has not vacuumed). The largest process of the shuffler had "
        f"{row['shuffler_peak_bytes'] / 1e6:.0f} MB, {row['shuffler_idle_bytes'] / 1e6:.0f} MB before the first report.\n"
    )


def _million(row: dict[str, Any], measured: list[dict[str, Any]]) -> str:
    seconds = max(one["shuffler_cpu_a_report"] + one["database_cpu_a_report"] for one in measured)
    hours = MILLION * seconds / 3600
    disk = MILLION * (row["enrolled_bytes_a_client"] + row["database_bytes_a_report"])
    more = (row["shuffler_peak_bytes"] - row["shuffler_idle_bytes"]) * MILLION / row["reports"]
    memory = row["shuffler_idle_bytes"] + more
    rows = [
        ["CPU of shuffler and database", f"{hours:.2f} core hours: {60 * hours / 8:.0f} minutes on 8 cores"],
        ["disk of the database", f"{disk / 1e9:.1f} GB"],
        ["bytes received", f"{MILLION * row['bytes'] / 1e6:,.0f} MB, without TLS"],
        ["memory of the process that makes the batch", f"{memory / 1e9:.1f} GB, if it grows in proportion"],
        ["from the last report to the sum", f"{row['seconds_to_the_sum'] * MILLION / row['reports'] / 60:.0f} minutes"],
    ]
    return table((f"a round of {MILLION:,} reports, d = {row['dim']}", "takes"), rows)
