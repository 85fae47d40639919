"""The sections, each measured anew or kept as it is stored."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import croupier as cr

from ..command import read, store
from ..protocol import Results
from .against import against
from .clients import clients
from .goals import goals
from .processes import large, several
from .runs import whole_runs
from .sections import ciphertexts, kills, speed
from .simulating import simulate
from .sizes import QUICK, Sizes
from .verifying import verified

SECTIONS: dict[str, Callable[[Sizes], Any]] = {
    "goals": goals,
    "speed": speed,
    "kills": kills,
    "clients": clients,
    "ciphertexts": ciphertexts,
    "verified": verified,
    "runs": whole_runs,
    "processes": several,
    "large": large,
    "against": against,
    "simulation": simulate,
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections to measure; the others are kept as stored")
    parser.add_argument("--before", help="an earlier checkout, which the section `against` compares with")


def _stored(folder: Path) -> Results:
    return read("load", folder) if (folder / "load.json").exists() else {}


def measure(arguments: argparse.Namespace) -> Results:
    """These sections measured, the others as they are stored; stored after each, since a run is long."""
    sections, folder, quick = arguments.only.split(","), arguments.folder, arguments.quick
    if unknown := set(sections) - set(SECTIONS):
        arguments.error(f"--only knows {', '.join(SECTIONS)}, not {', '.join(unknown)}")
    keep = set(sections) != set(SECTIONS) and (folder / "load.json").exists()
    results: Results = read("load", folder) if keep else {}
    sizes = replace(QUICK if quick else Sizes(), before=arguments.before)
    if "against" in sections and arguments.before is None and "against" in (stored := _stored(folder)):
        sections.remove("against")  # nothing to compare with: what is stored stays
        results.setdefault("against", stored["against"])
    versions = {name: results["version"] for name in SECTIONS if name in results} | results.get("versions", {})
    results |= {
        "version": cr.__version__,
        "versions": versions,  # that each section was measured with
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "quick": quick,
    }
    for name in sections:
        results[name], versions[name] = SECTIONS[name](sizes), cr.__version__
        results.setdefault("load_average", {})[name] = os.getloadavg()[1]
        if arguments.out or not quick:
            store("load", results, folder)
    if missing := [name for name in SECTIONS if name not in results]:
        print(json.dumps({name: results[name] for name in sections}, indent=1))
        sys.exit(f"not measured yet, so that nothing is judged: {', '.join(missing)}")
    return results
