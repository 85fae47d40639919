"""The page."""

from __future__ import annotations

from typing import Any

import croupier as cr

from ..protocol import Results
from ..tables import table
from .judging import judge
from .writing_processes import processes_parts
from .writing_scale import goals_parts, scale_parts


def _measured_with(results: Results) -> str:
    """The version of the figures, and of those that are older; and what a reader has to know where the package is newer."""
    measured = results["version"]
    older = [(version, name) for name, version in results.get("versions", {}).items() if version != measured]
    since = "" if measured == cr.__version__ else f" (this is {cr.__version__}, which was not measured)"
    earlier = [f"{', '.join(name for one, name in older if one == version)} with {version}" for version in sorted(dict(older))]
    return f"croupier {measured}{since}" + (f" ({'; '.join(earlier)})" if earlier else "")


def page(results: Results) -> str:
    """The stored figures as tables."""
    parts = [
        "# The deployed roles under load\n",
        f"Measured with {_measured_with(results)}, "
        f"Python {results['python']}, SQLite {results['sqlite']}, {results['cores']} shared cores"
        f"{', a quick run: nothing is judged' if results['quick'] else ''}. `python -m benchmarks load`.\n",
        _others(results.get("load_average", {})),
        table(
            ("must hold", "found", ""),
            [[verdict.what, verdict.measured, "yes" if verdict.holds else "NO"] for verdict in judge(results)],
        ),
        *goals_parts(results),
        "## Durable reports\n",
        "One shuffler process, SQLite (WAL, synchronous=FULL), masked-sum, d = 30, connections that stay open, one round. "
        "Reports were made before; the sender is another process on the same cores. *Disk* is how many transactions per second "
        "bare sqlite3 commits here with the same body: one at a time, the shuffler cannot be faster. CPU is milliseconds per "
        "report.\n",
        table(
            (
                "connections",
                "TLS",
                "reports",
                "per second",
                "first tenth",
                "last tenth",
                "disk",
                "wait, median",
                "99 %",
                "CPU shuffler",
                "CPU sender",
            ),
            [
                [
                    str(row["connections"]),
                    "yes" if row["tls"] else "no",
                    f"{row['reports']:,}",
                    *(
                        f"{row[name]:.0f}"
                        for name in ("a_second", "first_tenth_a_second", "last_tenth_a_second", "disk_commits_a_second")
                    ),
                    *(f"{1e3 * row[name]:.1f} ms" for name in ("wait_median", "wait_99")),
                    *(f"{1e3 * row[name]:.2f}" for name in ("shuffler_cpu_a_report", "sender_cpu_a_report")),
                ]
                for row in results["speed"]
            ],
        ),
        f"A client makes a report (randomize, seal) at {results['speed'][-1]['made_a_second']:.0f} per second and core; it has "
        f"{results['speed'][-1]['bytes']} bytes.\n",
        "## Clients and their connections\n",
        *_clients(results["clients"]),
        "## kill -9\n",
        _kills(results["kills"]),
        "## Ciphertexts\n",
        _ciphertexts(results["ciphertexts"]),
        "## Verified reports\n",
        _verified(results["verified"]),
        "## Whole runs\n",
        "Analyzer and shuffler as commands, clients in two further processes, each with a folder and connections of its own, "
        "over loopback. In memory: the same records and the same coins, added up. By *messages* most of the time is sealing, "
        "which devices do for themselves.\n",
        table(
            (
                "transport",
                "",
                "clients",
                "d",
                "rounds",
                "users a round",
                "envelopes",
                "bytes a report",
                "seconds",
                "a client, ms",
                "in memory, s",
                "theta",
            ),
            [
                [
                    row["transport"],
                    row["interactivity"],
                    f"{row['clients']:,}",
                    str(row["dim"]),
                    str(row["rounds"]),
                    f"{row['users_a_round']:,}",
                    f"{row['envelopes']:,}",
                    f"{row['bytes_a_report']:,}",
                    f"{row['seconds']:.0f}",
                    f"{1e3 * row['client_seconds_a_report']:.0f}",
                    f"{row['seconds_in_memory']:.1f}",
                    "the same" if row["same_theta"] else f"off by {row['largest_difference']:.2g}",
                ]
                for row in results["runs"]
            ],
        ),
        *processes_parts(results),
        *scale_parts(results),
    ]
    return "\n".join(parts)


def _others(loads: dict[str, float]) -> str:
    """How busy the machine was: what others did there slows everything here."""
    said = ", ".join(f"{name} {load:.1f}" for name, load in loads.items())
    return f"Load average at the end of each section, ourselves included: {said}.\n" if said else ""


def _clients(found: dict[str, Any]) -> list[str]:
    heads = ("connections per client", "clients", "per second", "shuffler CPU per client", "so per second and core")
    rows = [
        [
            str(row["connections_a_client"]),
            f"{row['clients']:,}",
            f"{row['a_second']:.0f}",
            f"{1e3 * row['shuffler_cpu_a_client']:.2f} ms",
            f"{1 / row['shuffler_cpu_a_client']:.0f}",
        ]
        for row in found["rows"]
    ]
    return [
        "Each client asks for the task and for its round and sends its report, over TLS, eight at a time from another process on "
        f"the same cores. *One* connection is what clients do; {rows[0][0]}, one for each request, is what they did.\n",
        table(heads, rows),
        f"To enrol {found['enrolled']:,} clients takes {found['enrolling_seconds']:.0f} seconds.\n",
    ]


def _kills(row: dict[str, Any]) -> str:
    lives = row["acknowledged_between_kills"]
    return (
        f"The shuffler was killed {row['kills']} times at random moments (seed {row['seed']}) while {row['connections']} "
        f"connections sent {row['reports']:,} reports, and started again where it was. After each kill a copy of its database "
        f"was compared with what had been acknowledged by then, byte for byte: **{row['lost']} acknowledged reports were lost**. "
        f"{row['stored_but_not_said']} were on disk before their clients heard of it (over all kills); they sent the same bytes "
        f"again, and were counted once: the analyzer's counts are {'exactly' if row['sum_is_exact'] else 'NOT'} the sum of all "
        f"{row['reports']:,} reports. Between kills {min(lives, default=0)} to {max(lives, default=0)} reports were "
        f"acknowledged; {row['broken_connections']:,} connections broke. A kill is not a power cut: what survives that is up "
        f"to the disk and synchronous=FULL.\n"
    )


def _ciphertexts(row: dict[str, Any]) -> str:
    return (
        f"One core: {row['opened_a_second']:,.0f} sealed bits opened per second, {row['sealed_a_second']:,.0f} sealed; by "
        f"masked-sum {row['seeds_opened_a_second']:,.0f} users per second (a seed opened, {row['dim']} masks taken away). Seconds "
        f"are of this process alone (CPU), medians of five.\n"
    )


def _verified(row: dict[str, Any]) -> str:
    micro = {name: 1e6 * row[f"{name}_seconds"] for name in ("verifying_shuffler", "verifying_analyzer", "adding_up", "opening")}
    how = "" if row["compiled"] else ", WITHOUT numba"
    return (
        f"verified-sum, d = {row['dim']}, counts to {row['most']}, three proofs, one core{how}: a report has {row['bytes']:,} "
        f"bytes, and the analyzer is sent {row['part_bytes']:,}. Shares and proofs take {1e3 * row['proving_seconds']:.2f} ms, "
        f"verification {micro['verifying_shuffler']:.0f} us per report at the shuffler and {micro['verifying_analyzer']:.0f} us at "
        f"the analyzer, who also opens an envelope, {micro['opening']:.0f} us; adding up {micro['adding_up']:.1f} us. Seconds are "
        f"of this process alone (CPU), medians of five. A shuffler process with {row['connections']} connections takes "
        f"{row['durable_a_second']:.0f} such reports per second durably ({row['load']:,} of {row['load_bytes']:,} bytes), and "
        f"until the analyzer has verified and counted all of them it is {row['verified_a_second']:.0f} per second.\n"
    )
