"""Finished cells of a benchmark, kept on disk as they come, so that an interrupted run resumes.

    cells = Cells(out / "sum.cells.jsonl", {"quick": quick, "delta": DELTA})
    results = cells.all(jobs, measure, processes=2, description="sum")

A cell is the result of `measure(job)`; the job, anything that JSON can hold, is its key. The file has one line on what the cells
belong to (settings, version and code of croupier) and one line per cell. With other settings or other code it is begun anew; so it
is with `fresh`. What else decides a result, as the code of the benchmark itself, is the benchmark's to put into the settings.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import croupier as cr


class Cells:
    """What is done of a benchmark. `cells[job]` is a stored result, `job in cells` whether there is one."""

    def __init__(self, path: Path, settings: dict[str, Any], *, fresh: bool = False) -> None:
        self.path, self._done = path, {}
        self._owner = as_json({"croupier": cr.__version__, "code": fingerprint(Path(cr.__file__).parent), "settings": settings})
        lines = path.read_text().splitlines(keepends=True) if path.exists() and not fresh else []
        whole = [line for line in lines if line.endswith("\n")]  # the last may have been cut off
        if whole and whole[0].rstrip("\n") == self._owner:
            self._done = {as_json(cell["job"]): cell["result"] for cell in map(json.loads, whole[1:])}
        else:
            whole = [self._owner + "\n"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(whole))

    def __contains__(self, job: Any) -> bool:
        return as_json(job) in self._done

    def __getitem__(self, job: Any) -> Any:
        return self._done[as_json(job)]

    def __setitem__(self, job: Any, result: Any) -> None:
        line = as_json({"job": job, "result": result})
        with self.path.open("a") as file:
            file.write(line + "\n")
        self._done[as_json(job)] = json.loads(line)["result"]  # as it would be read: a resumed run gives the same

    def all(
        self, jobs: Sequence[Any], measure: Callable[[Any], Any], *, processes: int = 1, description: str = "", first: Any = None
    ) -> list[Any]:
        """The results of all jobs in their order; what is not there yet is measured, in the order of the key `first` if given.

        Ctrl-C ends the program with code 130 and says how to resume.
        """
        missing = sorted((job for job in jobs if job not in self), key=first or (lambda job: 0))
        if len(missing) < len(jobs):
            print(f"{description}: {len(jobs) - len(missing)} of {len(jobs)} cells are there already", file=sys.stderr, flush=True)
        try:
            with closing(_results(missing, measure, processes)) as results:
                console = Console(stderr=True)
                for job, result in track(results, description, total=len(missing), console=console, disable=not missing):
                    self[job] = result
        except KeyboardInterrupt:
            for worker in multiprocessing.active_children():
                worker.terminate()
            kept = sum(job in self for job in jobs)
            print(
                f"\nstopped: {kept} of {len(jobs)} cells are kept in {self.path}; the same command resumes.",
                file=sys.stderr,
                flush=True,
            )
            sys.stderr = io.StringIO()  # what a pool says while it is taken down is no use to anybody
            raise SystemExit(130) from None
        return [self[job] for job in jobs]


def _results(jobs: Sequence[Any], measure: Callable[[Any], Any], processes: int) -> Iterator[tuple[Any, Any]]:
    """(job, result) as they come."""
    if processes == 1:
        yield from ((job, measure(job)) for job in jobs)
        return
    # Ctrl-C on a terminal reaches the workers too: they end silently
    with ProcessPoolExecutor(processes, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL)) as pool:
        try:
            running = {pool.submit(measure, job): job for job in jobs}
            yield from ((running[future], future.result()) for future in as_completed(running))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def as_json(value: Any) -> str:
    """JSON that is the same for the same value."""
    return json.dumps(value, sort_keys=True)


def fingerprint(*sources: Path) -> str:
    """Of Python files, or of all below a folder."""
    files: Iterable[Path] = (file for source in sources for file in (sorted(source.rglob("*.py")) if source.is_dir() else [source]))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a benchmark whose work is done in cells."""
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")
