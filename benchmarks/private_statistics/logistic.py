"""Logistic regression: coefficients of default fits, and intervals of fits in three groups, where the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from scipy.special import expit

from croupier.estimator import ShuffleLogisticRegression, ShuffleLogit

from ..surrogate import SurrogatePopulation

DELTA, FITS, QUICK_FITS = 1e-6, 5, 2


def logistic_coverage(quick: bool) -> list[dict[str, Any]]:
    """The same of logistic regression in three groups, and how wide intervals are beside those of a fit without privacy."""
    found, rng = [], np.random.default_rng(20261117)
    for features in (5, 20):
        for users in (30_000,) if quick else (30_000, 100_000):
            for epsilon in (0.5, 1.0, 4.0):
                covered: list[bool] = []
                widths: list[float] = []
                told, asked = 0, 0
                while asked < (100 if quick else 600):
                    X = rng.normal(size=(users, features))
                    X *= rng.random((users, 1)) ** (1 / features) / np.linalg.norm(X, axis=1, keepdims=True)
                    truth = np.append(2 * rng.normal(size=features) / np.sqrt(features), 0.3)
                    p = expit(X @ truth[:-1] + truth[-1])
                    y = rng.random(users) < p
                    model = ShuffleLogit(
                        epsilon=epsilon, delta=DELTA, classes=[False, True], method="moments", random_state=int(rng.integers(2**31))
                    )
                    model.fit_population(SurrogatePopulation(*model.records(X, y)), features)
                    table, rows = model.summary(), np.column_stack([X, np.ones(users)])
                    low, high = table.intervals.T
                    covered += ((low <= truth) & (truth <= high))[table.determined].tolist()
                    without = np.sqrt(np.linalg.inv((rows * (p * (1 - p))[:, np.newaxis]).T @ rows).diagonal())
                    widths += (table.std / without)[table.determined].tolist()
                    told, asked = told + int(table.determined.sum()), asked + len(truth)
                row = {"features": features, "users": users, "epsilon": epsilon, "told": told / asked}
                found.append(row | {"covered": float(np.mean(covered)), "width": median(widths), "coefficients": asked})
    return found


def logistic_coefficients(quick: bool) -> list[dict[str, Any]]:
    """Coefficients of default logistic regressions beside the truth."""
    found, truth = [], np.array([1.0, -0.5])
    users = 20_000 if quick else 100_000
    rng = np.random.default_rng(20261118)
    X = rng.normal(size=(users, 2))
    X *= np.minimum(1, 4 / np.linalg.norm(X, axis=1))[:, np.newaxis]
    y = rng.random(users) < expit(X @ truth)
    for interactivity in ("full", "sequential"):
        fits = []
        for _ in range(QUICK_FITS if quick else FITS):
            model = ShuffleLogisticRegression(
                epsilon=4.0, delta=DELTA, classes=[False, True], feature_norm=4.0, interactivity=interactivity
            )
            fits.append(model.fit(X, y).coef_[0])
        coef = np.median(fits, axis=0)
        error = float(np.median([np.linalg.norm(fit - truth) for fit in fits]) / np.linalg.norm(truth))
        found.append({"interactivity": interactivity, "users": users, "epsilon": 4.0, "coef": coef.tolist(), "error": error})
    return found


LOGISTIC: dict[str, Callable[[bool], list[dict[str, Any]]]] = {
    "logistic_coverage": logistic_coverage,
    "logistic_coefficients": logistic_coefficients,
}
