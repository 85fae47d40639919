"""What follows from the figures: growth, an extrapolation, and the limits that must hold."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from ..protocol import Results, Verdict
from ..slopes import slope
from .grid import KEPT, MUST, RAY, ROUNDS, STREAM, STREAMED

# What must hold in a full run.
SPEEDUP, OVERHEAD_SECONDS, STREAMED_BYTES = 1.6, 0.02, 2e9


def seconds_of(cell: dict[str, Any], variant: str) -> float:
    """The median seconds of a variant."""
    return statistics.median(cell["seconds"][variant])


def find(results: dict[str, Any], users: int, dim: int) -> dict[str, Any] | None:
    """The cell of this size, None where it was not measured."""
    return next((cell for cell in results["cells"] if (cell["users"], cell["dim"]) == (users, dim)), None)


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


def judge(results: Results) -> list[Verdict]:
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
    return [Verdict(*row) for row in rows]


def shown(number: float) -> str:
    """A number of users or bytes as people write it."""
    return f"{number:,.0f}".replace(",", " ")
