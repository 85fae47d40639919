"""How fast one process is, and what a second one brings: the limits that a deployment of a million people is planned by.

The base is processor time, which others on the machine change least: a core's limit is one over the processor time of a report or
client. What a second brought by the clock stands beside it; the sender shares the cores.
"""

from __future__ import annotations

import socket
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import track

from .against import LOADS, Prepared, prepared, sent, serving, turn
from .postgres import Postgres, found, postgres
from .sizes import DIM, Sizes

_SOURCE = Path(__file__).parents[2]


def goals(sizes: Sizes) -> dict[str, Any]:
    """One process on SQLite by all loads; then one and two on PostgreSQL, by turns."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as name:
        for number, (what, transport, dim, connections, tls, clients) in enumerate(track(LOADS, description="goals")):
            count = sizes.goal_clients if clients else sizes.goal_checked if transport == "verified-sum" else sizes.goal_reports
            there = prepared(Path(name) / str(number), count, transport, dim)
            turns = [turn(_SOURCE, there, connections, tls=tls, clients=clients) for _ in range(sizes.goal_turns)]
            rows.append({"what": what, "count": count, "connections": connections, **_median(turns)})
    return {"turns": sizes.goal_turns, "rows": rows, "second": _second(sizes) if found() else None}


def _median(turns: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each figure, and the best rate."""
    best = max(one["a_second"] for one in turns)
    return {name: statistics.median(one[name] for one in turns) for name in turns[0]} | {"best_a_second": best}


def _second(sizes: Sizes) -> dict[str, Any]:
    """The same reports to one process and to two that share a port, by turns: what both of them and the database used."""
    turns: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as name, postgres() as server:
        there = prepared(Path(name) / "shuffler", sizes.goal_reports, "masked-sum", DIM, server.database("prepared"))
        for number in track(range(sizes.goal_turns), description="a second process"):
            for processes, found_here in turns.items():
                found_here.append(_shared(server, there, processes, f"turn{number}_{processes}", sizes.goal_connections))
    one, two = (_median(turns[processes]) for processes in (1, 2))
    ratios = [2 * alone["cpu"] / both["cpu"] for alone, both in zip(turns[1], turns[2], strict=True)]
    about = {"count": sizes.goal_reports, "connections": sizes.goal_connections}
    return about | {"one": one, "two": two, "gain": statistics.median(ratios), "gains": ratios}


def _shared(server: Postgres, there: Prepared, processes: int, name: str, connections: int) -> dict[str, float]:
    url = server.copy("prepared", name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:
        started = [stack.enter_context(serving(_SOURCE, there, tls=False, url=url, port=port)) for _ in range(processes)]
        return sent(started[0][0], None, there, connections, [*[pid for _, _, pid in started], server.process.pid])
