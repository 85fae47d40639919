"""Estimators as they come on tables: nothing is tuned, each person is asked once."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from croupier.estimator import ShuffleLogisticRegression, ShuffleRidge

from ..cells import Cells
from ..peers.catalogue import TARGETS

DELTA, EPSILONS = 1e-6, (0.1, 0.5, 1.0)
# Measured as well where nothing was asked for, beside peers.
FURTHER = dict.fromkeys(("adult", "covtype", "mnist10", "adult, age"), (2.0, 4.0)) | {"covtype, elevation": (4.0,)}
# Accuracy, or for ridge R^2, that was asked for at each epsilon.
ASKED = {
    "adult": (0.832, 0.845, 0.846),
    "covtype": (0.757, 0.759, 0.760),
    "mnist10": (0.850, 0.893, 0.902),
    "adult, age": (0.36, 0.405, 0.412),
    "covtype, elevation": (0.733, 0.745, 0.747),
}
# Few people and rare classes of Covertype, at epsilon 1: what it is called, people, the class, the score, what was asked for.
FEW: tuple[tuple[str, int | None, int, str, float], ...] = (
    ("lodgepole pine, few people", 5_000, 2, "accuracy", 0.717),
    ("aspen, a class of 1.6 %", None, 5, "AUC", 0.855),
)
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def table(load: Callable[..., Any], name: str) -> Rows:
    """Columns without a constant, and the target: of a regression a column, in [-1, 1], that the others are to say."""
    if ", " not in name:
        X, y, X_test, y_test = load(name)
        return X[:, :-1], y, X_test[:, :-1], y_test
    task = name.split(",", maxsplit=1)[0]
    column, scaled = TARGETS[task]
    X, _, X_test, _ = load(task, normalise=False)
    targets = [np.clip(scaled(rows[:, column].astype(np.float64)), -1, 1) for rows in (X, X_test)]
    rows = [np.delete(some, column, axis=1) for some in (X, X_test)]
    lengths = [np.sqrt(1 + np.sum(some**2, axis=1, keepdims=True)) for some in rows]  # with the constant, as load has them
    return rows[0] / lengths[0], targets[0], rows[1] / lengths[1], targets[1]


def estimator(name: str, epsilon: float, classes: np.ndarray | None, **changes: Any) -> Any:
    """The estimator with what is public, and nothing else."""
    common = {"epsilon": epsilon, "delta": DELTA, "feature_norm": 1.0} | changes
    if classes is None:
        return ShuffleRidge(target_range=(-1, 1), **common)
    return ShuffleLogisticRegression(classes=classes, **common)


def accuracies(
    load: Callable[..., Any], cells: Cells, only: list[str] | None, epsilons: list[float] | None, seeds: int
) -> list[dict[str, Any]]:
    """Medians over fits with secure randomness."""
    names = [name for name in ASKED if not only or {name, name.split(",")[0]} & set(only)]
    pairs = [(name, epsilon) for name in names for epsilon in EPSILONS + FURTHER.get(name, ())]
    jobs = [["estimators", name, epsilon, seeds] for name, epsilon in pairs if not epsilons or epsilon in epsilons]

    def measured(job: list[Any]) -> dict[str, Any]:
        _, name, epsilon, _ = job
        X, y, X_test, y_test = table(load, name)
        classes = None if ", " in name else np.unique(y)
        found, model = fitted(lambda: estimator(name, epsilon, classes), (X, y), (X_test, y_test), seeds)
        planned = model.schedule_
        return {"task": name, "users": len(X), "columns": int(X.shape[1]), "why": planned.why} | found

    found = cells.all(jobs, measured, description="estimators")
    return [row | {"asked": dict(zip(EPSILONS, ASKED[row["task"]], strict=True)).get(row["epsilon"])} for row in found]


def fitted(estimator: Callable[[], Any], people: Any, others: Any, seeds: int) -> tuple[dict[str, Any], Any]:
    """The median, least and most score on other people of so many fits, with what they took; and the last of them."""
    scores, seconds = [], []
    for _ in range(seeds):
        model = estimator()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begun = time.perf_counter()
            model.fit(*people)
            seconds.append(time.perf_counter() - begun)
        scores.append(float(model.score(*others)))
    spent = {"epsilon": model.epsilon, "delta": DELTA, "epsilon_spent": model.guarantee_.epsilon(DELTA)}
    took = {"rounds": model.schedule_.rounds, "bits_per_user": model.schedule_.bits_per_user, "seconds": statistics.median(seconds)}
    return spent | took | {"median": statistics.median(scores), "least": min(scores), "most": max(scores), "seeds": seeds}, model


def few(load: Callable[..., Any], kinds: np.ndarray, cells: Cells, seeds: int) -> list[dict[str, Any]]:
    """Medians over fits, each with another tenth of the training rows held out; no test row is read. `kinds` are the classes."""
    asked = {name: (goal, kind) for name, _, _, kind, goal in FEW}

    def measured(job: list[Any]) -> dict[str, Any]:
        _, name, users, label, kind, _ = job
        rows, targets = table(load, "covtype")[0], (kinds == label).astype(int)
        scores = []
        for seed in range(seeds):
            order = np.random.default_rng(1000 + seed).permutation(len(rows))
            held, people = np.split(order, [len(rows) // 10])
            model = estimator("covtype", 1.0, np.arange(2)).fit(rows[people[:users]], targets[people[:users]])
            sides = model.decision_function(rows[held])
            scores.append(roc_auc_score(targets[held], sides) if kind == "AUC" else np.mean((sides > 0) == targets[held]))
        found = {"median": statistics.median(scores), "least": min(scores), "most": max(scores), "seeds": seeds, "epsilon": 1.0}
        facts = {"task": name, "users": len(people[:users]), "columns": int(rows.shape[1]), "rounds": model.schedule_.rounds}
        return facts | {key: float(value) for key, value in found.items()} | {"bits_per_user": model.schedule_.bits_per_user}

    found = cells.all([["few", *row[:4], seeds] for row in FEW], measured, description="few people and rare classes")
    return [row | {"seeds": seeds} | dict(zip(("asked", "score"), asked[row["task"]], strict=True)) for row in found]
