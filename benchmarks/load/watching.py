"""What processes and their children have used, read from /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def family(parent: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children.setdefault(int(_fields(stat)[1]), []).append(int(stat.parent.name))
    found = [parent]
    for one in found:
        found += children.get(one, [])
    return found


def cpu_seconds(parent: int) -> float:
    """Of a process and all that descend from it, those that have ended included."""
    ticks = 0
    for one in family(parent):
        with suppress(OSError):
            ticks += sum(int(field) for field in _fields(Path(f"/proc/{one}/stat"))[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_bytes(parent: int) -> int:
    """The most memory that one of them has had at a time."""
    peaks = [0]
    for one in family(parent):
        with suppress(OSError):
            line = next((line for line in Path(f"/proc/{one}/status").read_text().splitlines() if line.startswith("VmHWM")), "x 0")
            peaks.append(1024 * int(line.split()[1]))
    return max(peaks)


def _fields(stat: Path) -> list[str]:
    return stat.read_text().rsplit(")", 1)[1].split()
