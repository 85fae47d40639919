"""Test accuracy of estimators as they come, on public feature maps of the records: nothing is tuned on test rows."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import Any

import numpy as np

from croupier.features import FeatureMap, FourierFeatures, GroupNorm, Projection, Scattering

from ..cells import Cells
from .estimators import EPSILONS, estimator, fitted

SCATTERING = FeatureMap([Scattering((28, 28)), GroupNorm(27), Projection(500)])
FOURIER = FeatureMap([FourierFeatures(2000, scale=2.0)])
# (task, what the map is called, the map, accuracies asked for at EPSILONS)
ROWS: list[tuple[str, str, FeatureMap, tuple[float, ...]]] = [
    ("mnist10", "scattering to 500", SCATTERING, (0.93, 0.965, 0.972)),
    ("covtype", "2 000 Fourier features", FOURIER, (0.775, 0.81, 0.815)),
]


def accuracies(load: Any, cells: Cells, only: list[str] | None, epsilons: list[float] | None, seeds: int) -> list[dict[str, Any]]:
    """The accuracy on every map at every epsilon, over so many fits. `load(task, normalise=False)` gives rows as they come."""
    table = []
    for task, name, feature_map, asked in [row for row in ROWS if not only or row[0] in only]:
        goals = {epsilon: goal for epsilon, goal in zip(EPSILONS, asked, strict=True) if not epsilons or epsilon in epsilons}
        jobs = [["maps", task, epsilon, name, feature_map.to_dict(), seeds] for epsilon in goals]
        found = cells.all(jobs, partial(_measured, load), description=f"{task}: {name}", first=lambda job: -job[2])
        table += [row | {"map": name, "asked": goals[row["epsilon"]]} for row in found]
    return table


def _measured(load: Any, job: list[Any]) -> dict[str, Any]:
    _, task, epsilon, name, _, fits = job
    _, y, _, y_test = load(task, normalise=False)
    (rows, test_rows), seconds = _mapped(load, task, name)
    found, _ = fitted(lambda: estimator(task, epsilon, np.unique(y)), (rows, y), (test_rows, y_test), fits)
    return {"task": task, "users": len(rows), "columns": rows.shape[1], "map_seconds": seconds} | found


@lru_cache(maxsize=1)
def _mapped(load: Any, task: str, name: str) -> tuple[list[np.ndarray], float]:
    """Features of the rows of both parts, and the processor's time."""
    (feature_map,) = (row[2] for row in ROWS if row[:2] == (task, name))
    X, _, X_test, _ = load(task, normalise=False)
    begun = time.process_time()
    return [feature_map.fit_transform(some.astype(np.float32, copy=False)) for some in (X, X_test)], time.process_time() - begun
