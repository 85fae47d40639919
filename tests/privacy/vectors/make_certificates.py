"""Makes the vectors beside it, which another implementation of the accounting can be checked against:
python tests/privacy/vectors/make_certificates.py

Brackets come from ball arithmetic, so they are the same on any machine; the figures under "fast" are floats, whose last digits may
differ. docs/certificates.md says what the fields mean.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from croupier.privacy import certify, plan_scalar_sum, plan_sum
from croupier.privacy._proof import SHIFT_FACTOR, Enclosure, ball_constants

FILE = Path(__file__).parent / "certificates.json"

# (what it is for, trials, probability, shift, reach, dim, tail)
NOISE: list[tuple[str, int, float, float, int, int, float]] = [
    ("small", 60, 0.5, 2.5, 3, 7, 1e-4),
    ("fair", 4_000, 0.5, 15.0, 15, 100, 1e-10),
    ("fair, shift below one", 4_000, 0.5, 0.5, 1, 1, 1e-10),
    ("a probability a little under one half", 110_000, 0.46875, 39.0, 39, 100, 1e-10),
    ("fair, tail 1e-300", 4_000, 0.5, 5.0, 5, 10, 1e-300),
    ("fair, tail 1e-100", 10**5, 0.5, 40.0, 40, 1_000, 1e-100),
    ("a large tail", 4_000, 0.5, 5.0, 5, 10, 0.3),
    ("skewed, 2^-7", 10**6, 2.0**-7, 11.0, 11, 10, 1e-12),
    ("skewed, 1 - 2^-7", 10**6, 1 - 2.0**-7, 11.0, 11, 10, 1e-12),
    ("skewed, 2^-17, tail 1e-300", 10**9, 2.0**-17, 5.0, 5, 10, 1e-300),
    ("skewed, 2^-26, most trials", 10**12, 2.0**-26, 15.0, 15, 10, 1e-12),
    ("skewed, 2^-20, most trials", 10**12, 2.0**-20, 120.0, 120, 10, 1e-12),
    ("a wide window", 4 * 10**8, 0.5, 2_400.0, 2_400, 10, 1e-10),
    ("a wide window, skewed", 10**12, 2.0**-14, 1_000.0, 1_000, 10, 1e-20),
    ("a wide window, tail 1e-300", 10**12, 2.0**-19, 10.0, 10, 10, 1e-300),
    ("the widest window", 10**12, 0.5, 200.0, 200, 100, 1e-10),
]

REQUESTS: list[dict[str, Any]] = [
    {"epsilon": 1.0, "delta": 1e-6, "users": 10_000, "dim": 100},
    {"epsilon": 0.5, "delta": 1e-8, "users": 1_000, "dim": 10, "honest": 0.5},
    {"epsilon": 4.0, "delta": 1e-5, "users": 50, "dim": 2, "neighbours": "zero-out"},
    {"epsilon": 1.0, "delta": 1e-6, "users": 2_000, "dim": 20, "rounds": 100},
    {"epsilon": 2.0, "delta": 1e-9, "users": 10**6, "dim": 1_000, "max_bits": 64},
    {"epsilon": 0.25, "delta": 1e-250, "users": 10_000, "dim": 3, "max_inflation": 1.5},
    {"epsilon": 0.001, "delta": 1e-12, "users": 10**6, "dim": 10},
    {"epsilon": 1.0, "delta": 1e-6, "users": 1_000, "width": 10.0},
]


def noise_vector(case: str, trials: int, probability: float, shift: float, reach: int, dim: int, tail: float) -> dict[str, Any]:
    """Brackets of the constants of Theorem B for one noise."""
    fast = certify(trials, probability, shift=shift, reach=reach, dim=dim, tail=tail)
    widened = Fraction(shift) * SHIFT_FACTOR
    found = ball_constants(trials, probability, shift=widened, reach=reach, dim=dim, low=fast.low, high=fast.high)
    brackets = {name: bracket(Enclosure.of(ball)) for name, ball in found._asdict().items() if ball is not None}
    given = {
        "trials": trials,
        "probability": str(Fraction(probability)),
        "shift": str(widened),
        "reach": reach,
        "dim": dim,
        "tail": tail,
    }
    window = {"low": fast.low, "high": fast.high}
    return {"case": case, **given, **window, "brackets": brackets, "fast": {"mu": fast.mu, "tau": fast.tau}}


def plan_vector(request: dict[str, Any]) -> dict[str, Any]:
    """The bracket of delta for one request."""
    plan = plan_scalar_sum(**request) if "width" in request else plan_sum(**request, rotation=None)
    proof = plan.prove()
    claims = {"mu": plan.mu, "slack": plan.slack, "delta": plan.certified_delta}
    return {"request": request, **proof.to_dict(), "fast": claims}


def bracket(enclosure: Enclosure) -> list[str]:
    return [str(enclosure.lower), str(enclosure.upper)]


def vectors() -> dict[str, Any]:
    return {"constants": [noise_vector(*case) for case in NOISE], "plans": [plan_vector(request) for request in REQUESTS]}


if __name__ == "__main__":
    FILE.write_text(json.dumps(vectors(), indent=1) + "\n")
