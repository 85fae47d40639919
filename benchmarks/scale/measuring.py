"""All measurements, each in a process of its own, one after the other."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

import croupier as cr

from ..paths import environment
from ..protocol import Results
from .grid import CELLS, FILES, MEMORY, QUICK, QUICK_FILES, QUICK_REST, REST, STREAMED, Cell
from .records import write
from .rounds import DELTA


def measure(arguments: argparse.Namespace) -> Results:
    """All measurements, each in a process of its own, one after the other."""
    quick = arguments.quick
    cells, files = (QUICK, QUICK_FILES) if quick else (CELLS, FILES)
    jobs: list[tuple[str, Callable[[], Any]]] = [("cells", lambda cell=cell: in_process("round", **asdict(cell))) for cell in cells]
    if not quick:
        jobs += [("memory", lambda cell=cell: in_process("round", **asdict(cell))) for cell in MEMORY]
    jobs += [("files", lambda: from_files(files, quick)), ("rest", lambda: in_process("rest", **(QUICK_REST if quick else REST)))]
    results: dict[str, Any] = {
        "version": cr.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cores": os.cpu_count(),
        "delta": DELTA,
        "quick": quick,
        "cells": [],
        "memory": [],
    }
    for name, job in track(jobs, description="scale"):
        found = job()
        if name == "rest":
            results |= found
        elif name == "files":
            results[name] = found
        else:
            results[name].append(found)
    return results


def from_files(cell: Cell, quick: bool) -> dict[str, Any]:
    """Parquet files written to a temporary folder, streamed, and deleted; memory once more for each way alone."""
    with tempfile.TemporaryDirectory(prefix="croupier-scale-") as folder:
        written = write(cell, Path(folder))
        request = asdict(cell) | {"folder": folder}
        found = in_process("round", **request) | written
        alone = () if quick else (STREAMED, "ray 2")
        found["alone"] = [in_process("round", **request | {"variants": [name], "repeats": 1})["memory"] for name in alone]
    return found


def in_process(work: str, **request: Any) -> dict[str, Any]:
    """What `serving` finds in a fresh process: so the work has its own peak of memory, and its own Ray."""
    finished = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", f"from {__package__}.serving import serve; serve()"],
        input=json.dumps({"work": work} | request),
        env=environment() | {"RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return result
