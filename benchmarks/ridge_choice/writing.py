"""What moments gain over rounds, and whether the rule takes them where they do."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from croupier.estimator.regression import LARGEST_EDGE

from ..protocol import Results, Verdict
from ..tables import table

EDGES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, np.inf)


def gains(results: Results, way: str, low: float, high: float) -> list[float]:
    """What moments have above another way, where the edge is between these."""
    return [cell["moments"] - cell[way] for cell in results["cells"] if way in cell and low <= cell["edge"] < high]


def judge(results: Results) -> list[Verdict]:
    """Where the rule takes moments they are better on average, in every band of the edge; and the single cell that is worst."""
    found = []
    for way, limit in LARGEST_EDGE.items():
        gained = gains(results, way, 0.0, limit)
        bands = [gains(results, way, low, high) for low, high in pairwise(EDGES) if high <= limit]
        mean, least = float(np.mean(gained)), min(float(np.mean(band)) for band in bands if band)
        found.append(Verdict(f"moments above {way}, mean", "at least 0", f"{mean:+.3f}", mean >= 0))
        found.append(Verdict(f"moments above {way}, least mean of a band", "at least 0", f"{least:+.3f}", least >= 0))
        found.append(Verdict(f"moments above {way}, worst cell", "", f"{min(gained):+.3f}", None))
    return found


def page(results: Results) -> str:
    """What moments gain over rounds, by the edge of their noise."""
    lines = []
    for low, high in pairwise(EDGES):
        line = [f"{low:g} to {high:g}"]
        for way in LARGEST_EDGE:
            gained = gains(results, way, low, high)
            line += [str(len(gained))]
            line += [f"{np.mean(gained):+.3f}", f"{min(gained):+.3f}", f"{max(gained):+.3f}"] if gained else ["-"] * 3
        lines.append(line)
    heads = ["edge / mean eigenvalue"]
    for way in LARGEST_EDGE:
        heads += [f"cells, {way}", "mean gain", "least", "most"]
    verdicts = [(v.what, v.limit, v.measured, {True: "yes", False: "NO", None: ""}[v.holds]) for v in judge(results)]
    limits = ", ".join(f"{limit:g} ({way})" for way, limit in LARGEST_EDGE.items())
    return "\n".join(
        [
            "# Which way ShuffleRidge takes\n",
            f"croupier {results['version']}; delta = 1e-6 or 0.1 / users, replace-one neighbours, everybody honest. R^2 of one",
            f"round of moments minus that of training in rounds. The rule takes moments up to {limits}.\n",
            table(heads, lines, left=1),
            table(("what", "asked", "measured", "holds"), verdicts),
        ]
    )
