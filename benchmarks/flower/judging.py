"""What was asked for: 0.925 at epsilon 1, each device asked once; and reports that a phone can make and send."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from ..protocol import Results, Verdict

ASKED = 0.925
MOST_BYTES = 0.6
# By weights: CPU seconds of a report, and megabytes of its process.
MOST_SECONDS = {1_000_000: 0.5, 10_000_000: 6.0}
MOST_MEGABYTES = {10_000_000: 400}


def accuracy(results: Results, method: str) -> float:
    """The median test accuracy of a method at its chosen rate."""
    return median(run["test"] for run in results["rows"][method]["runs"])


def judge(results: Results) -> list[Verdict]:
    """The accuracy, that no device answered twice, and what a report costs."""
    found, runs = accuracy(results, "croupier"), results["rows"]["croupier"]["runs"]
    most = max(run["most_answers"] for run in runs)
    return [
        Verdict("Croupier's test accuracy at epsilon 1", f"at least {ASKED}", f"{found:.4f}", found >= ASKED),
        Verdict("answers of a device", "at most 1", str(most), most <= 1),
        *(verdict for cost in results["device"] for verdict in _costs(cost)),
    ]


def _costs(cost: dict[str, Any]) -> Iterator[Verdict]:
    """What was asked of one size of model."""
    weights, blocks, share = cost["weights"], cost["blocks"], cost["share"]
    what = f"a report of {weights:,} weights" + (f", one of {blocks} blocks" if blocks > 1 else "")
    limit = MOST_BYTES / blocks
    yield Verdict(f"{what}, beside float32's bytes", f"at most {limit:.0%}", f"{share:.1%}", share <= limit)
    if weights in MOST_SECONDS:
        seconds, most = cost["cpu_seconds"], MOST_SECONDS[weights]
        yield Verdict(f"{what}, CPU time", f"below {most:g} s", f"{seconds:.2f} s", seconds < most)
    if weights in MOST_MEGABYTES:
        megabytes, most = cost["megabytes"], MOST_MEGABYTES[weights]
        yield Verdict(f"{what}, memory of the process", f"below {most} MB", f"{megabytes:.0f} MB", megabytes < most)
