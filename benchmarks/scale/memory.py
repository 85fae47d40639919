"""Peaks of memory of this process and of those below it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def peaks() -> dict[str, Any] | None:
    """Largest resident memory so far: of this process, of each Ray worker of ours, and of the rest of Ray together.

    Linux keeps it for every process. (What getrusage says of a process includes the process that started it.)
    """
    if not Path("/proc/self/status").exists():
        return None
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue  # gone meanwhile
        children.setdefault(parent, []).append(int(stat.parent.name))
    below, queue = [], list(children.get(os.getpid(), []))
    while queue:
        below.append(queue.pop())
        queue += children.get(below[-1], [])
    named = [(_command(pid), _peak(pid)) for pid in below]
    workers = [peak for command, peak in named if command.startswith("ray::_Worker")]
    return {"process": _peak(os.getpid()), "workers": workers, "rest_of_ray": sum(peak for _, peak in named) - sum(workers)}


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
