"""Runs in a process of its own: what the report of one device costs, of a model of so many weights, in so many blocks.

The update is there already, in single precision. Clipping, rotation, noise, mask and seal are measured; training and proving the
plan are not. It prints the largest time of three reports, each of a run of its own, and the most memory that the process ever had.
"""

from __future__ import annotations

import json
import resource
import secrets
import sys
import time
from typing import Any

import numpy as np

from croupier.flower import CroupierStrategy, MaskAnalyzer
from croupier.flower._round import RoundWords
from croupier.masked import masked_report

REPORTS = 3


def cost(weights: int, blocks: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Measure one size, as CroupierStrategy plans it by default."""
    analyzer = MaskAnalyzer()
    strategy = CroupierStrategy(
        None,  # type: ignore[arg-type]  # planned alone, not run
        **{name: settings[name] for name in ("epsilon", "delta", "rounds", "clip")},
        users=settings["devices"],
        neighbours="zero-out",
        analyzer=analyzer,
        blocks=blocks,
    )
    plan = strategy.plan_for(weights)
    text, update = plan.to_json(), np.random.default_rng(0).standard_normal(weights, np.float32)
    cpu, wall = [], []
    for number in range(1, REPORTS + 1):
        words = RoundWords(text, secrets.token_bytes(32).hex(), number, settings["clip"], block=blocks - 1)
        one_round = words.lots.one_round  # the plan is proved here, before the clock runs
        begun = time.process_time(), time.perf_counter()
        report = masked_report(words.vector(update), one_round, context=words.context, key=analyzer.public_key, block=words.block)
        cpu.append(time.process_time() - begun[0])
        wall.append(time.perf_counter() - begun[1])
    watched = plan.guarantee.if_watched
    return {
        "weights": weights,
        "blocks": blocks,
        "cpu_seconds": max(cpu),
        "wall_seconds": max(wall),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # kilobytes on Linux
        "report_bytes": len(report),
        "share": len(report) / (4 * weights),
        "noise_std": plan.noise_std,
        "watched_epsilon": watched.epsilon(settings["delta"]) if watched.slack < settings["delta"] else None,
    }


if __name__ == "__main__":
    print(json.dumps(cost(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))))
