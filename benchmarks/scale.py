"""Many users: throughput of a private round against plain numpy, locally and on Ray, with overhead, memory and growth.

    python benchmarks/scale.py [--out DIR] [--quick] [--redraw]

A round asks all users for their logistic gradients. Records are generated, but for one folder of Parquet files. The variants of a
cell take turns in one process of its own, and what is said of them are medians and ratios: absolute times depend on the machine.
Stores scale.json, scale.md and scale.svg, and exits with 1 where one of the limits in HOLDS is missed. --quick is a smoke test:
nothing is judged, and stored only with --out. --redraw makes scale.md and scale.svg anew from the stored scale.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure
from pyarrow import parquet
from rich.progress import track
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

import croupier as cr
from croupier.optimizer.minimize import Gradients
from croupier.population import Batch, BlockPopulation, ParquetPopulation, Population, Question, RayPopulation, deal
from croupier.population.blocks import BLOCK_USERS
from croupier.population.deal import Seats
from croupier.protocol import Secret

DELTA = 1e-10
# Entries of a generated block at most, and blocks at least: four for each of two workers.
BLOCK_ENTRIES, LEAST_BLOCKS = 1 << 24, 8
# Entries that numpy works on at a time, as the library does.
CHUNK_ENTRIES = 1 << 19
ROUNDS = 100

READ, NUMPY, FUSED, STREAMED, KEPT, THREADS = "read", "numpy", "numpy fused", "streamed", "kept", "kept, free threads"
RAY = {"ray 1": 1, "ray 2": 2}
LOCAL = (READ, NUMPY, FUSED, STREAMED)
EVERY = (*LOCAL, KEPT, *RAY)
VARIANTS = {
    READ: "the blocks are read, or generated, and nothing else",
    NUMPY: "plain numpy: blocks read, the same gradients, one per user, added up; no clipping, no rounding, no noise",
    FUSED: "plain numpy as one would write it without users in mind: blocks read, X'(slopes), no vector per user",
    STREAMED: "a private round in one process, blocks read in every round (`keep=False`)",
    KEPT: "the same, records in memory (`keep=True`)",
    THREADS: "the same, numpy's BLAS free to use all cores",
    "ray 1": "`RayPopulation`, one worker",
    "ray 2": "`RayPopulation`, two workers",
}


@dataclass(frozen=True)
class Cell:
    """Some variants of a round over so many users and features, from a folder of Parquet files or generated."""

    users: int
    dim: int
    variants: tuple[str, ...]
    repeats: int
    keep: bool = True  # on Ray
    folder: str | None = None


MUST = (10_000_000, 50)
STREAM = (100_000_000, 20)
CELLS = [
    *(Cell(100_000, d, EVERY, 7) for d in (10, 20, 50, 100, 1000)),
    *(Cell(1_000_000, d, EVERY, 5) for d in (10, 20, 50, 100)),
    Cell(1_000_000, 1000, (*LOCAL, *RAY), 3, keep=False),
    *(Cell(10_000_000, d, EVERY, 3) for d in (10, 20)),
    Cell(*MUST, (*EVERY, THREADS), 5),
    Cell(10_000_000, 100, (*LOCAL, *RAY), 3, keep=False),
    *(Cell(100_000_000, d, LOCAL, 2) for d in (10, STREAM[1])),
]
FILES = Cell(10_000_000, 20, (READ, NUMPY, STREAMED, *RAY), 3, keep=False)
MEMORY = [Cell(*MUST, (KEPT,), 1), Cell(*MUST, ("ray 2",), 1)]
QUICK = [Cell(50_000, 10, (*EVERY, THREADS), 3), Cell(200_000, 10, LOCAL, 3), Cell(50_000, 40, LOCAL, 3)]
QUICK_FILES = Cell(50_000, 10, (READ, NUMPY, STREAMED), 2, keep=False)
REST = {
    "overhead": {"rounds": 200},
    "dealing": {"users": 10_000_000},
    "sequential": {"users": 1_000_000, "dim": 50, "repeats": 3},
}
QUICK_REST = {
    "overhead": {"rounds": 20},
    "dealing": {"users": 100_000},
    "sequential": {"users": 20_000, "dim": 10, "repeats": 1},
}

# What must hold in a full run.
SPEEDUP, OVERHEAD_SECONDS, STREAMED_BYTES = 1.6, 0.02, 2e9


# Records


@dataclass(frozen=True)
class Made:
    """A generated block: rows of norm at most 1, a pool of them turned by a step of the block's own, copied as a file would be."""

    number: int
    users: int
    dim: int
    rows: int  # of the pool

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        X, y = pool(self.rows, self.dim)
        step = 7919 * self.number % self.rows
        return np.roll(X, step, axis=0)[: self.users], np.roll(y, step)[: self.users]


@cache
def pool(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Random rows, made once per process; the first coordinate tells the class more often than not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, dim), dtype=np.float32)
    X /= np.maximum(np.sqrt(np.einsum("ij,ij->i", X, X)), 1e-6)[:, np.newaxis] * np.float32(1.0001)
    return X, X[:, 0] + 0.1 * rng.standard_normal(rows, dtype=np.float32) > 0


def made(users: int, dim: int) -> list[Made]:
    """Blocks of equal size, in a number that one, two and four workers can share evenly."""
    count = LEAST_BLOCKS * math.ceil(users / (LEAST_BLOCKS * min(BLOCK_USERS, max(1, BLOCK_ENTRIES // dim))))
    rows = math.ceil(users / count)
    sizes = [users // count + (number < users % count) for number in range(count)]
    return [Made(number, size, dim, rows) for number, size in enumerate(sizes)]


def write(cell: Cell, folder: Path) -> dict[str, Any]:
    """The cell's users as eight Parquet files or so, a block being two row groups; how large they are."""
    blocks = made(cell.users, cell.dim)
    together = max(1, len(blocks) // 8)
    for first in range(0, len(blocks), together):
        tables = [_table(*block.read()) for block in blocks[first : first + together]]
        parquet.write_table(pa.concat_tables(tables), folder / f"{first:04}.parquet", row_group_size=math.ceil(blocks[0].rows / 2))
    pool.cache_clear()
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def _table(X: np.ndarray, y: np.ndarray) -> pa.Table:
    return pa.table({f"x{j:04}": np.ascontiguousarray(X[:, j]) for j in range(X.shape[1])} | {"y": y})


# Work, each piece in a process of its own


def in_process(work: str, **request: Any) -> dict[str, Any]:
    """What a function of this module returns, called in a fresh process: so it has its own peak of memory, and its own Ray."""
    here = str(Path(__file__).parent)
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import scale; scale.serve()"],
        input=json.dumps({"work": work} | request),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "RAY_USAGE_STATS_ENABLED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def serve() -> None:
    """The other side: a request from standard input, its result as the last line of standard output."""
    request = json.load(sys.stdin)
    work = {"round": one_cell, "rest": beside}
    with threadpool_limits(1):  # one process is one core; Ray does the same in its workers
        print(json.dumps(work[request.pop("work")](request)))


def one_cell(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every variant, turn by turn; whether all private rounds gave the same; how far from the true sum; peak memory."""
    cell = Cell(**request)
    question = asked(cell.users, cell.dim)
    with ExitStack() as stack:
        populations = dict(_populations(cell, stack))
        prepared = {name: _prepared(population, question) for name, population in populations.items()}
        if THREADS in cell.variants:
            populations[THREADS] = populations[KEPT]
        local = _people(cell, keep=False)
        sums: dict[str, np.ndarray] = {}
        work = {name: _work(name, local, populations.get(name), question, sums) for name in cell.variants}
        BlockPopulation(made(200, cell.dim)).answer(asked(200, cell.dim))  # whatever is done only once
        seconds = turns(work, cell.repeats)
        memory = peaks()
    rounds = [total for name, total in sums.items() if name in populations]
    true = next((total for name, total in sums.items() if name not in populations), None)
    off = None if true is None or not rounds else float(np.sqrt(np.mean((rounds[0] - true) ** 2)) / question.plan.noise_std)
    return {
        "users": cell.users,
        "dim": cell.dim,
        "keep": cell.keep,
        "blocks": len(local.shard.placed),
        "seconds": seconds,
        "prepared_seconds": prepared,
        "identical": all(np.array_equal(total, rounds[0]) for total in rounds),
        "compared": len(rounds),
        "off_in_noise_std": off,
        "memory": memory,
    }


def _people(cell: Cell, keep: bool) -> BlockPopulation:
    if cell.folder is not None:
        return ParquetPopulation(cell.folder, target="y", keep=keep)
    return BlockPopulation(made(cell.users, cell.dim), keep=keep)


def _populations(cell: Cell, stack: ExitStack) -> Iterator[tuple[str, Population]]:
    """Who answers in the private variants. Two workers first: the Ray that they start has room for a third."""
    for name in sorted(cell.variants, reverse=True):
        if name in RAY:
            yield name, stack.enter_context(RayPopulation(_people(cell, keep=False), workers=RAY[name], keep=cell.keep))
        elif name in (STREAMED, KEPT):
            yield name, _people(cell, keep=name == KEPT)


def _prepared(population: Population, question: Question) -> float | None:
    """Seconds until records were read, checked and, on Ray, digested. Those that are streamed here are not: nothing is kept."""
    if isinstance(population, BlockPopulation) and not population.shard._keep:
        return None
    if isinstance(population, RayPopulation):  # that a process starts and imports is not what is timed
        population._ray.get([worker.__ray_ready__.remote() for worker in population._workers])
    start = time.perf_counter()
    population.prepare(question.query.objective.check_records, bytes(32) if isinstance(population, RayPopulation) else None)
    return time.perf_counter() - start


def _work(
    name: str, local: BlockPopulation, population: Population | None, question: Question, sums: dict[str, np.ndarray]
) -> Callable[[], None]:
    blocks = [placed.block for placed in local.shard.placed]

    def run() -> None:
        if name == READ:
            for block in blocks:
                block.read()
        elif population is None:
            sums[name] = sum((fused if name == FUSED else plain)(question.query, *block.read()) for block in blocks)
        elif name == THREADS:
            with threadpool_limits(os.cpu_count()):
                sums[name] = population.answer(question).sum
        else:
            sums[name] = population.answer(question).sum

    return run


def asked(users: int, dim: int) -> Question:
    """All of so many users for their logistic gradients at some theta, under a plan for one round."""
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=dim, radius=10.0))
    plan = cr.plan_sum(epsilon=1.0, delta=DELTA, users=users, dim=dim, norm=problem.lipschitz)
    theta = np.random.default_rng(1).normal(size=dim)
    return Question(Gradients(problem, theta), Batch.everyone(users), plan, Secret.fresh())


def plain(query: Gradients, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same gradients, one per user, added up."""
    most = max(1, CHUNK_ENTRIES // X.shape[1])
    return sum(query(X[first : first + most], y[first : first + most]).sum(axis=0) for first in range(0, len(X), most))


def fused(query: Gradients, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Their sum as a product of matrices, in the precision of the records."""
    slopes = 1 / (1 + np.exp(-(X @ query.theta.astype(X.dtype)))) - y
    return (slopes.astype(X.dtype) @ X).astype(np.float64)


def turns(work: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each piece of work, the pieces taking turns so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def peaks() -> dict[str, Any] | None:
    """Largest resident memory so far: of this process, of each Ray worker of ours, and of the rest of Ray together.

    Linux keeps it for every process. (What getrusage says of a process includes whoever started it.)
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


def beside(request: dict[str, Any]) -> dict[str, Any]:
    """What a run costs beside the work of full rounds."""
    return {name: work(request[name]) for name, work in (("dealing", dealing), ("sequential", sequential), ("overhead", overhead))}


def overhead(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds of rounds over so few users that there is no work in them."""
    users, dim = 200, 50
    blocks = [Made(number, users // 4, dim, users // 4) for number in range(4)]
    question = asked(users, dim)
    with (
        RayPopulation(BlockPopulation(blocks), workers=2) as two,
        RayPopulation(BlockPopulation(blocks), workers=1) as one,
    ):
        populations: dict[str, Population] = {"local": BlockPopulation(blocks, keep=True), "ray 1": one, "ray 2": two}
        work = {name: lambda population=population: population.answer(question) for name, population in populations.items()}
        turns(work, 5)
        seconds = turns(work, request["rounds"])
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    high = {name: float(np.quantile(times, 0.95)) for name, times in seconds.items()}
    return {"users": users, "dim": dim, "rounds": request["rounds"], "median": middle, "high": high}


def dealing(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds per user of dealing them to rounds: on the driver, where records are kept, and in each round where they are not."""
    users = request["users"]
    secret, borders = Secret.fresh(), [*range(0, users, BLOCK_USERS), users]
    sizes = [users // ROUNDS + (number < users % ROUNDS) for number in range(ROUNDS)]
    batch = deal(secret, users, sizes)[0]
    spans = list(pairwise(borders))
    seconds = turns(
        {
            "deal": lambda: deal(secret, users, sizes),
            "seats": lambda: [Seats(batch.order, *span) for span in spans],
            "members": lambda: [batch.members(*span) for span in spans],
        },
        3,
    )
    return {"users": users, "rounds": ROUNDS, "per_user": {name: statistics.median(t) / users for name, t in seconds.items()}}


def sequential(request: dict[str, Any]) -> dict[str, Any]:
    """A sequential run, each user asked once in 100 rounds, beside one round that asks all: kept and streamed."""
    users, dim = request["users"], request["dim"]
    sizes = [users // ROUNDS + (number < users % ROUNDS) for number in range(ROUNDS)]
    batches = deal(Secret.fresh(), users, sizes)
    whole, part = (asked(count, dim) for count in (users, min(sizes)))
    parts = [replace(part, batch=batch, secret=Secret.fresh()) for batch in batches]
    kept, streamed = (BlockPopulation(made(users, dim), keep=keep) for keep in (True, False))
    kept.answer(parts[0])  # reads, and takes seats
    seconds = turns(
        {
            "kept_full": lambda: kept.answer(whole),
            "kept_sequential": lambda: [kept.answer(part) for part in parts],
            "streamed_full": lambda: streamed.answer(whole),
            "streamed_sequential": lambda: [streamed.answer(part) for part in parts],
        },
        request["repeats"],
    )
    return {"users": users, "dim": dim, "blocks": len(made(users, dim)), "rounds": ROUNDS} | {
        name: statistics.median(times) for name, times in seconds.items()
    }


# What follows from the figures


def seconds_of(cell: dict[str, Any], variant: str) -> float:
    return statistics.median(cell["seconds"][variant])


def find(results: dict[str, Any], users: int, dim: int) -> dict[str, Any] | None:
    return next((cell for cell in results["cells"] if (cell["users"], cell["dim"]) == (users, dim)), None)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the least-squares line through the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def slopes(points: Sequence[tuple[int, int, float]]) -> list[dict[str, Any]]:
    """Log-log slopes of seconds over users at fixed dim, and over dim at fixed users, where there are two points or more."""
    found = []
    for axis, fixed in ((0, 1), (1, 0)):
        for value in sorted({point[fixed] for point in points}):
            some = sorted(point for point in points if point[fixed] == value)
            if len(some) > 1:
                over, at = ("users", "dim")[axis], ("users", "dim")[fixed]
                x = [point[axis] for point in some]
                fit = slope(x, [point[2] for point in some])
                found.append({"over": over, "at": at, "value": value, "from": x[0], "to": x[-1], "slope": fit})
    return found


TERMS = ("round", "user", "entry")


def fitted(points: Sequence[tuple[int, int, float]], terms: Sequence[str] = TERMS) -> dict[str, float]:
    """seconds = per round + per user n + per entry n d, none below 0, by least squares on relative errors; the largest of them."""
    n, d, seconds = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    columns = np.array([{"round": np.ones_like(n), "user": n, "entry": n * d}[term] / seconds for term in terms]).T
    size = columns.max(axis=0)
    found = nnls(columns / size, np.ones_like(seconds))[0] / size
    misfit = float(np.abs(columns @ found - 1).max())
    return dict.fromkeys(TERMS, 0.0) | dict(zip(terms, found.tolist(), strict=True)) | {"misfit": misfit}


@dataclass(frozen=True)
class Paper:
    """What a run would cost, on paper: seconds, and bytes in all and per worker."""

    core_seconds: float  # of one round, one core
    overhead: float  # of one round
    full_round: float
    full_run: float
    deal: float
    seats: float
    sequential_run: float
    prepare: float
    bytes_in_all: float
    bytes_per_worker: float


def on_paper(fit: dict[str, float], measured: dict[str, float], *, users: int, dim: int, cores: int, rounds: int = ROUNDS) -> Paper:
    """The extrapolation. `measured`: efficiency of a core beside others, overhead with 1 and with 2 workers, deal and seats per
    user, prepare per entry, and a sequential pass over a full round."""
    core_seconds = fit["user"] * users + fit["entry"] * users * dim
    shared = core_seconds / (cores * measured["efficiency"])
    grown = measured["overhead_1"] + (cores - 1) * max(0.0, measured["overhead_2"] - measured["overhead_1"])
    fixed = fit["round"] + grown
    deal_seconds, seats = measured["deal"] * users, measured["seats"] * users / cores
    return Paper(
        core_seconds=core_seconds,
        overhead=fixed,
        full_round=fixed + shared,
        full_run=rounds * (fixed + shared),
        deal=deal_seconds,
        seats=seats,
        sequential_run=deal_seconds + seats + rounds * fixed + measured["pass"] * shared,
        prepare=measured["prepare"] * users * dim / cores,
        bytes_in_all=4.0 * users * dim,
        bytes_per_worker=(1.3 * 4.0 * dim + 12) * users / cores,
    )


def measured_for_paper(results: dict[str, Any]) -> dict[str, float]:
    """The figures that the extrapolation rests on, from the cell that must hold, or the first in a quick run."""
    cell, over, seq = find(results, *MUST) or results["cells"][0], results["overhead"]["median"], results["sequential"]
    prepared = cell["prepared_seconds"]["ray 2"]
    return {
        "efficiency": min(1.0, seconds_of(cell, KEPT) / seconds_of(cell, "ray 2") / 2),
        "overhead_1": over["ray 1"] - over["local"],
        "overhead_2": over["ray 2"] - over["local"],
        "deal": results["dealing"]["per_user"]["deal"],
        "seats": results["dealing"]["per_user"]["seats"],
        "prepare": 2 * prepared / (cell["users"] * cell["dim"]),
        "pass": seq["kept_sequential"] / seq["kept_full"],
    }


def analysis(results: dict[str, Any]) -> dict[str, Any]:
    """Growth, model and extrapolation, from the stored measurements."""
    points = [(cell["users"], cell["dim"], seconds_of(cell, STREAMED)) for cell in results["cells"]]
    measured = measured_for_paper(results)
    fit = fitted(points)
    return {
        "slopes": slopes(points),
        "fit": fit,
        "fit_without_users": fitted(points, ("round", "entry")),
        "measured": measured,
        "paper": asdict(on_paper(fit, measured, users=10**9, dim=100, cores=100)),
    }


def holds(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The limits, what was measured, and whether they hold; None where a quick run has no such cell."""
    must, stream, over = find(results, *MUST), find(results, *STREAM), results["overhead"]["median"]
    speedup = None if must is None else seconds_of(must, KEPT) / seconds_of(must, "ray 2")
    peak = None if stream is None or stream["memory"] is None else stream["memory"]["process"]
    most = max(over[name] - over["local"] for name in RAY)
    compared = [*results["cells"], results["files"]]
    different = sum(not cell["identical"] for cell in compared)
    rows = [
        (
            f"two Ray workers over one process, {shown(MUST[0])} users by {MUST[1]}, records kept",
            f"at least {SPEEDUP} times",
            "-" if speedup is None else f"{speedup:.2f} times",
            None if speedup is None else speedup >= SPEEDUP,
        ),
        (
            "overhead of Ray per round, one or two workers, the larger",
            f"less than {OVERHEAD_SECONDS * 1e3:.0f} ms",
            f"{most * 1e3:.1f} ms",
            most < OVERHEAD_SECONDS,
        ),
        (
            "local and Ray sums are the same to the bit for the same question",
            f"in all {len(compared)} cells",
            f"in {len(compared) - different}",
            different == 0,
        ),
        (
            f"peak memory, {shown(STREAM[0])} users by {STREAM[1]} streamed",
            f"less than {STREAMED_BYTES / 1e9:.0f} GB",
            "-" if peak is None else f"{peak / 1e9:.2f} GB",
            None if peak is None else peak < STREAMED_BYTES,
        ),
    ]
    return [dict(zip(("what", "limit", "measured", "holds"), row, strict=True)) for row in rows]


def compute(quick: bool) -> dict[str, Any]:
    """All measurements, each in a process of its own, one after the other."""
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
    return results | {"analysis": analysis(results), "holds": holds(results)}


def from_files(cell: Cell, quick: bool) -> dict[str, Any]:
    """Parquet files written to a temporary folder, streamed, and deleted; memory once more for each way alone."""
    with tempfile.TemporaryDirectory(prefix="croupier-scale-") as folder:
        written = write(cell, Path(folder))
        request = asdict(cell) | {"folder": folder}
        found = in_process("round", **request) | written
        alone = () if quick else (STREAMED, "ray 2")
        found["alone"] = [in_process("round", **request | {"variants": [name], "repeats": 1})["memory"] for name in alone]
    return found


# Text and figure


def shown(number: float) -> str:
    """A number of users or bytes as people write it."""
    return f"{number:,.0f}".replace(",", " ")


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def markdown(results: dict[str, Any]) -> str:
    """The stored figures as tables, with what follows from them."""
    said = f"Python {results['python']}, numpy {results['numpy']}, {results['cores']} shared cores"
    parts = [f"# Many users\n\ncroupier {results['version']}, {said}, by `benchmarks/scale.py`.\n"]
    if results["quick"]:
        parts.append("**A quick run: sizes are too small to say anything.**\n")
    verdicts = {True: "yes", False: "**NO**", None: "not measured"}
    rows = [[row["what"], row["limit"], row["measured"], verdicts[row["holds"]]] for row in results["holds"]]
    parts += [
        "## What must hold\n",
        table(("what", "limit", "measured", "holds"), rows),
        *(f"\n{said}\n" for said in results.get("remarks", ())),
    ]
    parts += ["## One round\n", INTRODUCTION, table(("name", "what is timed"), [(f"*{n}*", w) for n, w in VARIANTS.items()])]
    parts += [_throughput(results), _ratios(results), "![Seconds over users, and speed by variant](scale.svg)\n"]
    parts += ["## Overhead, dealing, sequential runs\n", *_overhead(results)]
    parts += ["## Memory\n", _memory(results)]
    parts += ["## Growth, and a billion users\n", *_growth(results)]
    return "\n".join(parts)


INTRODUCTION = """\
All users answer with their logistic gradients under a plan for epsilon = 1; records are float32, generated by turning a pool of
rows, a copy each time (*read* is what that costs). Plain numpy and streamed rounds read the blocks, as they must; *kept* and Ray
with `keep` do not, so that beside numpy they look a little better than they are, by *read* at most. Every process may use one
BLAS thread, as in Ray's workers. Variants take turns; figures are medians. Two cores cannot be faster than two. Ray keeps
records where *kept* has a figure, and streams them elsewhere. *numpy* is the limit for a protocol in which every user makes
a vector; *numpy fused* shows what that itself costs beside a product of matrices.
"""


def _throughput(results: dict[str, Any]) -> str:
    names = (NUMPY, FUSED, STREAMED, KEPT, *RAY)
    rows = []
    for cell in results["cells"]:
        speeds = [f"{cell['users'] / seconds_of(cell, name) / 1e6:.3g}" if name in cell["seconds"] else "" for name in names]
        rows.append([shown(cell["users"]), str(cell["dim"]), *speeds])
    return "Million users a second, one round:\n\n" + table(("users", "features", *names), rows)


def _ratios(results: dict[str, Any]) -> str:
    names = (READ, FUSED, STREAMED, KEPT, *RAY)
    rows = []
    for cell in [*results["cells"], results["files"]]:
        unit = seconds_of(cell, NUMPY)
        ratios = [f"{seconds_of(cell, name) / unit:.2f}" if name in cell["seconds"] else "" for name in names]
        off = f"{cell['off_in_noise_std']:.2f}"
        parallel = _speedup(cell)
        where = shown(cell["users"]) + (" (Parquet)" if cell is results["files"] else "")
        rows.append([where, str(cell["dim"]), *ratios, parallel, off])
    heads = ("users", "features", *names, "one process / ray 2", "off by")
    free = [cell for cell in results["cells"] if THREADS in cell["seconds"]]
    text = "Seconds beside plain numpy's (1 is as fast, 2 takes twice as long). *One process / ray 2* compares kept with kept, else"
    text += " streamed with streamed; in brackets the least and the most of any turn. *Off by* is the error of the sum over"
    text += " what the plan says (root mean squares over coordinates): about 1 if all is well.\n\n" + table(heads, rows)
    for cell in free:
        ratio = seconds_of(cell, THREADS) / seconds_of(cell, KEPT)
        text += f"\nWith numpy's BLAS free to use all cores, a kept round in one process takes {ratio:.2f} times as long "
        text += f"({shown(cell['users'])} by {cell['dim']}).\n"
    return text


def _speedup(cell: dict[str, Any]) -> str:
    if "ray 2" not in cell["seconds"]:
        return ""
    one = KEPT if KEPT in cell["seconds"] else STREAMED
    each = [a / b for a, b in zip(cell["seconds"][one], cell["seconds"]["ray 2"], strict=True)]
    return f"{seconds_of(cell, one) / seconds_of(cell, 'ray 2'):.2f} ({min(each):.2f} to {max(each):.2f})"


def _overhead(results: dict[str, Any]) -> Iterator[str]:
    over = results["overhead"]
    rows = []
    for name in over["median"]:
        beyond = "" if name == "local" else duration(over["median"][name] - over["median"]["local"])
        rows.append([name, duration(over["median"][name]), duration(over["high"][name]), beyond])
    yield f"{over['rounds']} rounds over {over['users']} users by {over['dim']}, where there is next to no work:\n"
    yield table(("", "median", "95 % are below", "beyond local"), rows)
    per = {name: f"{1e9 * seconds:.3g} ns" for name, seconds in results["dealing"]["per_user"].items()}
    yield (
        f"Dealing {shown(results['dealing']['users'])} users to {results['dealing']['rounds']} rounds: {per['deal']} a user on the "
        f"driver, once; {per['seats']} a user where records are kept, once; {per['members']} a user *in every round* where they "
        f"are streamed.\n"
    )
    seq = results["sequential"]
    yield (
        f"A sequential run of {seq['rounds']} rounds over {shown(seq['users'])} users by {seq['dim']}, each asked once, takes "
        f"{seq['kept_sequential'] / seq['kept_full']:.2f} times as long as one round that asks all, records kept; streamed, it "
        f"takes {seq['streamed_sequential'] / seq['streamed_full']:.1f} times as long, since every round reads all blocks and "
        f"draws all tickets for a hundredth of the users. These blocks are generated; files take longer to read.\n"
    )


def _memory(results: dict[str, Any]) -> str:
    rows = []

    def add(what: str, memory: dict[str, Any] | None) -> None:
        if memory is not None:
            sizes = [f"{peak / 1e9:.2f}" for peak in (memory["process"], *memory["workers"])]
            rest = f"{memory['rest_of_ray'] / 1e9:.2f}" if memory["workers"] else ""
            rows.append([what, sizes[0], ", ".join(sizes[1:]), rest])

    stream = find(results, *STREAM)
    if stream is not None:
        add(f"{shown(STREAM[0])} by {STREAM[1]}, generated, streamed, one process", stream["memory"])
    for cell in results["memory"]:
        add(
            f"{shown(cell['users'])} by {cell['dim']}, generated, kept, {'one process' if KEPT in cell['seconds'] else 'ray 2'}",
            cell["memory"],
        )
    files = results["files"]
    names = (STREAMED, "ray 2 streamed") if files["alone"] else ("all variants in one process",)
    for name, memory in zip(names, files["alone"] or [files["memory"]], strict=True):
        add(f"{shown(files['users'])} by {files['dim']}, Parquet ({files['bytes'] / 1e9:.2f} GB), {name}", memory)
    text = "Largest resident memory of each process in GB (VmHWM), everything imported included; one round, in a process of its "
    text += "own. Ray's own processes (servers, idle workers) come on top, once per machine. A worker's peak includes pages that "
    text += "it shares with others.\n\n"
    return text + table(("users by features", "process", "workers", "rest of Ray"), rows)


def _growth(results: dict[str, Any]) -> Iterator[str]:
    found, unit = results["analysis"], 1e9
    rows = [
        [
            f"{row['over']} at {row['at']} = {shown(row['value'])}",
            f"{shown(row['from'])} to {shown(row['to'])}",
            f"{row['slope']:.2f}",
        ]
        for row in found["slopes"]
    ]
    yield "Slopes of log seconds of a streamed round in one process (1 is proportional):\n"
    yield table(("over", "range", "slope"), rows)
    fit, simple = found["fit"], found["fit_without_users"]
    yield (
        f"seconds = {duration(fit['round'])} + {unit * fit['user']:.3g} ns n + {unit * fit['entry']:.3g} ns n d, "
        f"fitted to relative errors with no term below 0; it is off by {fit['misfit']:.0%} at most. Without the middle term: "
        f"{duration(simple['round'])} + {unit * simple['entry']:.3g} ns n d, off by {simple['misfit']:.0%} at most.\n"
    )
    paper, measured = found["paper"], found["measured"]
    yield "**A billion users by 100 features on 100 cores, on paper.** Nobody has run it.\n"
    yield table(
        ("what", "time or size"),
        [
            ("one round on one core", duration(paper["core_seconds"])),
            ("one full round", duration(paper["full_round"])),
            (f"full run of {ROUNDS} rounds", duration(paper["full_run"])),
            (f"sequential run of {ROUNDS} rounds, each user asked once, records kept", duration(paper["sequential_run"])),
            ("of that, dealing on the driver, one core", duration(paper["deal"])),
            ("before the first round: reading (generated rows), checking and digesting", duration(paper["prepare"])),
            ("records in all, float32", f"{paper['bytes_in_all'] / 1e9:.0f} GB"),
            ("memory per worker, records kept", f"{paper['bytes_per_worker'] / 1e9:.1f} GB"),
        ],
    )
    yield "It assumes:\n"
    yield (
        f"- the fit above holds ten times beyond the largest population measured, and cores are like the ones here;\n"
        f"- shards are perfectly even, and nothing waits for the slowest of 100 workers: in practice something does;\n"
        f"- a core among busy cores does {measured['efficiency']:.0%} of what it does alone, as two did here, kept, at "
        f"{shown(MUST[0])} by {MUST[1]};\n"
        f"- Ray's overhead grows by what the second worker added here for each further one: {duration(paper['overhead'])} a round "
        f"with 100 (machines that are apart were not measured);\n"
        f"- the network carries the question, and per worker the counts, 100 numbers of 8 bytes;\n"
        f"- records are in the workers' memory, 4 bytes an entry times 1.3, and 12 bytes a user where users are dealt. Streamed "
        f"from a store, every round reads {paper['bytes_in_all'] / 1e9:.0f} GB, and the store's speed is the limit;\n"
        f"- dealing is done by the driver alone, {1e9 * measured['deal']:.3g} ns a user, and is not spread over the cores;\n"
        f"- a sequential pass costs {measured['pass']:.2f} times a full round, as it did at "
        f"{shown(results['sequential']['users'])} users in {results['sequential']['blocks']} blocks (larger blocks cost less);\n"
        f"- no worker dies: one that does reads and digests its shard again.\n"
    )


STYLE = {
    "svg.hashsalt": "croupier scale",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = {
    FUSED: "#bbbbbb",
    NUMPY: "#777777",
    STREAMED: "#1b6ca8",
    KEPT: "#5aa9d6",
    "ray 1": "#e2a36f",
    "ray 2": "#c1561b",
}


@matplotlib.rc_context(STYLE)
def figure(results: dict[str, Any], path: Path) -> None:
    """Left: seconds of a streamed round over users, with the fit. Right: entries a second of every variant over features."""
    drawing = Figure(figsize=(10, 4), layout="constrained")
    left, right = drawing.subplots(1, 2)
    fit, cells = results["analysis"]["fit"], results["cells"]
    dims = sorted({cell["dim"] for cell in cells})
    for dim, shade in zip(dims, np.linspace(0.35, 0.95, len(dims)), strict=True):
        colour = matplotlib.colormaps["Blues"](shade)
        row = [cell for cell in cells if cell["dim"] == dim]
        n = np.array([cell["users"] for cell in row])
        left.plot(n, [seconds_of(cell, STREAMED) for cell in row], "o", color=colour, ms=4, label=f"d = {dim}")
        left.plot(n, fit["round"] + fit["user"] * n + fit["entry"] * n * dim, color=colour, lw=1)
    left.set(xscale="log", yscale="log", xlabel="users", ylabel="seconds of a round")
    left.set_title("One process, streamed: measured, and the fit", loc="left")
    left.legend(frameon=False)
    users = max((cell["users"] for cell in cells), key=lambda n: sum(len(c["seconds"]) for c in cells if c["users"] == n))
    row = sorted((cell for cell in cells if cell["users"] == users), key=lambda cell: cell["dim"])
    for name, colour in COLOURS.items():
        some = [(cell["dim"], users * cell["dim"] / seconds_of(cell, name)) for cell in row if name in cell["seconds"]]
        if some:
            right.plot(*zip(*some, strict=True), "o-", color=colour, ms=4, lw=1, label=name)
    right.set(xscale="log", yscale="log", xlabel="features", ylabel="entries a second")
    right.set_title(f"By variant, {shown(users)} users", loc="left")
    right.legend(frameon=False)
    drawing.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the results (default: results beside this script)")
    parser.add_argument("--quick", action="store_true", help="small sizes, in under a minute; judges nothing")
    parser.add_argument("--redraw", action="store_true", help="only text and figure, from the stored scale.json")
    arguments = parser.parse_args()
    folder = arguments.out or Path(__file__).parent / "results"
    stored = folder / "scale.json"
    if arguments.redraw:
        results = json.loads(stored.read_text())
        results |= {"analysis": analysis(results), "holds": holds(results)}
    else:
        results = compute(arguments.quick)
    print(markdown(results))
    if arguments.out or not arguments.quick:
        folder.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(results, indent=1) + "\n")
        (folder / "scale.md").write_text(markdown(results))
        figure(results, folder / "scale.svg")
    missed = [row["what"] for row in results["holds"] if row["holds"] is not True]
    if missed and not results["quick"]:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
