"""Fitted slopes beside the paper's exponents."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..protocol import Results, Verdict
from ..slopes import slope

TOLERANCE = 0.15
AXES = ("n", "epsilon")


def interval(x: list[float], excess: np.ndarray, resamples: int = 1000) -> tuple[float, float]:
    """Bootstrap over seeds: the central 95 % of slopes of resampled medians."""
    rng = np.random.default_rng(0)
    slopes = [slope(x, np.median(rng.choice(excess, excess.shape[1], axis=1), axis=1)) for _ in range(resamples)]
    return float(np.quantile(slopes, 0.025)), float(np.quantile(slopes, 0.975))


def summary(exponent: float, axis: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    """The fitted slope of one axis beside the exponent, with the verdict."""
    x = [point["users" if axis == "n" else "epsilon"] for point in points]
    excess = np.array([point["excess"] for point in points])
    fitted = slope(x, np.median(excess, axis=1))
    difference = fitted + exponent
    verdict = "shallower" if difference > TOLERANCE else "steeper" if difference < -TOLERANCE else "as stated"
    return {
        "slope": fitted,
        "interval": interval(x, excess),
        "bound_slope": slope(x, [point["bound"] for point in points]),
        "privacy_share": min(1 - point["bound_without_privacy"] / point["bound"] for point in points),
        "verdict": verdict,
        "points": points,
    }


def misses(results: Results) -> list[tuple[dict[str, Any], str]]:
    """The curves that are shallower than the paper's, and over which axis."""
    return [(row, axis) for row in results["rows"] for axis in AXES if row[axis]["verdict"] == "shallower"]


def judge(results: Results) -> list[Verdict]:
    """Every fitted slope, which must not be shallower than the paper's exponent by more than the tolerance."""
    return [
        Verdict(
            f"{row['theorem']}, {row['name']}, over {axis}",
            f"at most {results['tolerance'] - row['exponent']:.2f}",
            f"{row[axis]['slope']:.2f}",
            row[axis]["verdict"] != "shallower",
        )
        for row in results["rows"]
        for axis in AXES
    ]
