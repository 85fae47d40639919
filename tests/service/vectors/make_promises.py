"""Makes promises.json beside it: python tests/service/vectors/make_promises.py

What a client draws by rejection, proves by the paper's theorems, and allows within a period, for clients in other languages. Draws
and decisions are the same on every machine; figures are right to the tolerance that stands beside them.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from croupier.privacy import Guarantee, SumPlan, plan_scalar_sum, plan_sum
from croupier.privacy._filter import gaussian_bound, response_mu
from croupier.protocol._sampling import binomial
from croupier.protocol.randomness import KeyedRandom
from croupier.service.client.budget import BudgetLimit, DeviceBudget, period_of, period_text
from croupier.service.wire.documents import sha256
from croupier.service.wire.task import RefusedTaskError
from croupier.validation import ArgumentError

HERE = Path(__file__).parent
DAY = 86400.0


def made() -> dict[str, Any]:
    return {
        "tolerance": 1e-9,
        "samplers": [sampler_vector(number, *case) for number, case in enumerate(sampler_cases())],
        "paper": [paper_vector(plan) for plan in paper_plans()],
        "paper_refused": paper_refused(),
        "responses": [{"epsilon": e, "mu": response_mu(e)} for e in (1e-9, 1e-4, 0.01, 0.3, 0.999, 1.0, 2.5, 15.0, 100.0)],
        "periods": [{"text": text, "seconds": period_of(text), "said": period_text(period_of(text))} for text in PERIODS],
        "budgets": [budget_vector(number) for number in range(6)],
    }


PERIODS = ("365d", "12h", "4w", "1.5d", "0.5h", "24h")


def key(*purpose: str | int) -> bytes:
    return bytes.fromhex(sha256(" ".join(map(str, ("promise vector", *purpose))).encode()))


def sampler_cases() -> list[tuple[int, float, int]]:
    """Numbers of trials that are counted, left to rejection, and partly both; sizes at which tails and ties are met."""
    trials = (1023, 1024, 1025, 5000, 2**21 + 1, 10**7, 123_456_789, 10**12)
    small = [(many, probability, size) for many in trials for probability in (0.5, 0.3, 0.4999999990425365) for size in (1, 40)]
    return [*small, (10**12, 0.5, 40_000), (2**21, 0.5, 20_000), (3000, 0.75, 5_000), (2**52, 0.5, 5_000), (40_000, 0.1, 100)]


def sampler_vector(number: int, trials: int, probability: float, size: int) -> dict[str, Any]:
    seed = key("sampler", number)
    source = KeyedRandom(seed, private=False)
    draws = binomial(source, trials, probability, size).tolist()
    return {
        "seed": seed.hex(),
        "trials": trials,
        "probability": probability,
        "size": size,
        "digest": sha256(",".join(map(str, draws)).encode()),
        "draws": draws[:3],
        "next": source.draw_bytes(8).tobytes().hex(),
    }


def paper_plans() -> list[SumPlan]:
    usual = {"epsilon": 1.0, "delta": 1e-6, "users": 1000, "dim": 5}
    requests: list[dict[str, Any]] = [
        usual | {"calibration": "paper"},
        usual | {"calibration": "paper-scaled"},
        usual | {"calibration": "paper", "norm": 0.3, "dim": 300},
        usual | {"calibration": "paper-scaled", "rounds": 7, "epsilon": 3.0},
        usual | {"calibration": "paper", "honest": 0.5, "epsilon": 2.0},
        usual | {"calibration": "paper-scaled", "users": 40, "epsilon": 15.0, "delta": 0.01},
    ]
    scalar = {"epsilon": 0.5, "delta": 1e-5, "users": 300, "width": 3.0}
    numbers = [plan_scalar_sum(**scalar | {"calibration": "paper", "honest": share}) for share in (1.0, 0.9)]
    return [*(plan_sum(**request) for request in requests), *numbers]


def paper_vector(plan: SumPlan) -> dict[str, Any]:
    guarantee, bound = plan.guarantee, gaussian_bound(plan.guarantee)
    delta = 1.5 * plan.delta
    return {
        "plan": plan.to_dict(),
        "slack": guarantee.slack,
        "pure_epsilon": guarantee.pure_epsilon,
        "delta": delta,
        "epsilon": guarantee.epsilon(delta),
        "deltas": [{"epsilon": e, "delta": guarantee.delta(e)} for e in (0.0, 0.1, 0.5 * plan.epsilon)],
        "bound": {"mu": bound.mu, "slack": bound.slack},
    }


def paper_refused() -> list[dict[str, Any]]:
    """Plans by the paper with one thing changed, each of which Python refuses."""
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=5, calibration="paper")
    several = plan_sum(epsilon=1.0, delta=1e-6, users=1000, dim=5, calibration="paper", rounds=3)
    probability = plan.noise_probability
    changes: list[tuple[SumPlan, dict[str, Any]]] = [
        (plan, {"noise_bits": plan.noise_bits - 1}),
        (plan, {"noise_bits": plan.noise_bits + 1}),
        (plan, {"levels": plan.levels + 1}),
        (plan, {"noise_probability": math.nextafter(probability, 0)}),
        (plan, {"noise_probability": math.nextafter(probability, 1)}),
        (plan, {"pure_epsilon": 0.9}),
        (plan, {"slack": 0.9e-6}),
        (plan, {"epsilon": 0.9}),
        (plan, {"honest": 0.3}),
        (plan, {"neighbours": "zero-out"}),
        (plan, {"max_bits": 100}),
        (plan, {"diameter": 1.5}),
        (plan, {"calibration": "paper-scaled"}),
        (plan, {"calibration": "tight"}),
        (plan, {"users": 999}),
        (plan, {"rounds": 2}),
        (several, {"rounds": 1}),
        (several, {"pure_epsilon": 0.9 * several.pure_epsilon}),
        (several, {"slack": 0.0}),
    ]
    refused = []
    for one, change in changes:
        words = one.to_dict() | change
        try:
            SumPlan.from_dict(words)
        except ArgumentError:
            refused.append({"plan": words, "change": change})
        except ArithmeticError:
            refused.append({"plan": words, "change": change})
    assert len(refused) == len(changes)
    return refused


def budget_vector(number: int) -> dict[str, Any]:
    """Answers at random times to tasks of random promises under a limit, and after each what the ledger says."""
    random = np.random.default_rng(int.from_bytes(key("budget", number)[:8], "big"))
    limit = BudgetLimit(float(random.choice([1.0, 2.0, 4.0])), 1e-5, float(random.choice([12 / 24, 30, 365])) * DAY)
    now = [1.8e9]
    promises = {f"{task:02x}": promise(random, limit) for task in range(25)}
    events = []
    with TemporaryDirectory() as folder:
        budget = DeviceBudget(Path(folder) / "budget.json", clock=lambda: now[0])
        budget.allow(limit)
        for step in range(60):
            now[0] += float(random.exponential(0.06 * limit.seconds)) - (0.2 * limit.seconds if step in (20, 40) else 0.0)
            task = f"{random.integers(25):02x}"
            known = {entry.task for entry in budget.entries()}
            again = task in known and bool(random.random() < 0.3)
            refusal = None
            try:
                budget.charge(task, f"task {task}", "ab" * 32, promises[task], again=again)
            except RefusedTaskError as problem:
                refusal = str(problem)
            entries = budget.entries()
            counted = budget.counted(limit, entries)
            used = limit.use([entry.guarantee for entry in counted])
            events.append(
                {
                    "now": now[0],
                    "task": task,
                    "again": again,
                    "refusal": refusal,
                    "counted": sorted(entry.task for entry in counted),
                    "used": list(used),
                    "answers": sum(entry.answers for entry in entries),
                    "spent": total if math.isfinite(total := budget.spent()) else None,
                }
            )
    return {
        "limit": {"epsilon": limit.epsilon, "delta": limit.delta, "seconds": limit.seconds},
        "promises": {
            task: {"mu": g.mu, "slack": g.slack, "pure_epsilon": g.pure_epsilon, "pure_rounds": g.pure_rounds}
            for task, g in promises.items()
        },
        "events": events,
    }


def promise(random: np.random.Generator, limit: BudgetLimit) -> Guarantee:
    kind = random.integers(8)
    one = Guarantee(
        mu=float(random.uniform(0.05, 0.5)) * limit.caps.mu,
        slack=float(random.uniform(0, 0.06)) * limit.delta,
        theorem="a vector's",
    )
    if kind == 0:  # beyond a cap, and within the limit by itself
        return replace(one, mu=1.005 * limit.caps.mu, slack=0.0)
    if kind == 1:  # by the paper's theorems
        return replace(one, mu=0.0, pure_epsilon=float(random.uniform(0.01, 0.2)), pure_rounds=int(random.integers(1, 5)))
    return one


if __name__ == "__main__":
    (HERE / "promises.json").write_text(json.dumps(made()) + "\n")
