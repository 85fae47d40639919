"""A shuffler of several processes on PostgreSQL, and one round of very many clients."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rich.progress import track

from croupier.service.net.database import Database
from croupier.service.shuffler import rounds as shuffler_tables

from . import watching
from .postgres import Postgres, found, postgres
from .sections import analyzer_counts
from .sending import delivering
from .sizes import Sizes
from .world import Placed, world


def several(sizes: Sizes) -> dict[str, Any]:
    """The same load on 1, 2 and 4 processes; empty where PostgreSQL is not installed."""
    if not found():
        return {"postgres": False, "rows": []}
    with postgres() as server:
        rows = [_row(server, count, sizes) for count in track(sizes.processes, description="processes")]
    return {"postgres": True, "rows": rows}


def _row(server: Postgres, count: int, sizes: Sizes) -> dict[str, Any]:
    placed = Placed(server.database(f"several{count}"), count)
    with world(sizes.shared_reports, placed=placed) as there:
        return {"processes": count} | _sent(there, server, sizes.shared_connections)


def _sent(there: Any, server: Postgres, connections: int) -> dict[str, Any]:
    """Everything is sent and acknowledged; what each side used."""
    at_shuffler, at_server = (watching.cpu_seconds(process.pid) for process in (there.shuffler.process, server.process))
    reports = len(there.bodies)
    with delivering(there, connections) as (_, _, ended):
        delivery = ended()
    spent = watching.cpu_seconds(there.shuffler.process.pid) - at_shuffler
    at_database = watching.cpu_seconds(server.process.pid) - at_server
    acknowledged = time.perf_counter()
    complete = there.trained.wait(900)
    at = np.sort(delivery.acknowledged)
    return {
        "connections": connections,
        "reports": reports,
        "bytes": len(there.bodies[0]),
        "a_second": reports / at[-1],
        "wait_median": float(np.median(delivery.waits)),
        "wait_99": float(np.quantile(delivery.waits, 0.99)),
        "shuffler_cpu_a_report": spent / reports,
        "database_cpu_a_report": at_database / reports,
        "sender_cpu_a_report": delivery.cpu_seconds / reports,
        "refusals": delivery.refusals,
        "broken_connections": delivery.broken,
        "seconds_to_the_sum": time.perf_counter() - acknowledged,
        "sum_is_exact": complete and analyzer_counts(there.population) == (there.ones.tolist(), reports),
    }


def large(sizes: Sizes) -> dict[str, Any]:
    """One round of very many clients, sent and summed."""
    if not found():
        return {"postgres": False}
    with postgres() as server:
        url = server.database("large")
        Database(url, shuffler_tables.SHUFFLER).close()
        bare = server.bytes_of("large")
        placed = Placed(url, 2, sizes.large_dim)
        with world(sizes.large_reports, placed=placed) as there:
            empty, idle = server.bytes_of("large"), watching.peak_bytes(there.shuffler.process.pid)
            result = _sent(there, server, sizes.shared_connections)
            return result | {
                "postgres": True,
                "processes": 2,
                "dim": sizes.large_dim,
                "made_a_second": len(there.bodies) / there.made_in,
                "enrolled_bytes_a_client": (empty - bare) / len(there.bodies),
                "database_bytes_a_report": (server.bytes_of("large") - empty) / len(there.bodies),
                "shuffler_idle_bytes": idle,
                "shuffler_peak_bytes": watching.peak_bytes(there.shuffler.process.pid),
            }
