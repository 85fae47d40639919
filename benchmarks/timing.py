"""Seconds of pieces of work that take turns."""

from __future__ import annotations

import functools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any


def turns(work: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each piece of work, the pieces taking turns so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def timed(run: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds that a piece of work took by the clock, and of the processor."""
    start, used = time.perf_counter(), time.process_time()
    run()
    return {"seconds": time.perf_counter() - start, "cpu": time.process_time() - used}


def medians(work: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median seconds of each piece of work, the pieces taking turns."""
    return {name: statistics.median(times) for name, times in turns(work, repeats).items()}


def forget_plans() -> None:
    """Empty all that the package has stored of plans, so that the next one is searched for anew."""
    modules = [module for name, module in sys.modules.items() if name.startswith("croupier.privacy")]
    for stored in {
        value for module in modules for value in vars(module).values() if isinstance(value, functools._lru_cache_wrapper)
    }:
        stored.cache_clear()
