"""Fits to people drawn from a population, and what of its coefficients their intervals hold."""

from __future__ import annotations

import argparse
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import croupier as cr
from croupier.estimator import ShuffleLinearRegression, ShuffleLogit
from croupier.estimator.intervals import CutResidualsWarning, FarRowsWarning

from ..cells import Cells
from ..datasets import loader
from ..protocol import Results
from ..surrogate import SurrogatePopulation

DELTA, EPSILON, LEVEL, AT_ONCE = 1e-6, 1.0, 0.95, 50
# Of each: whether it is logistic, and how many people a fit asks.
POPULATIONS: dict[str, tuple[bool, int]] = {
    "ten independent columns": (False, 15_000),
    "Adult: age by nine columns": (False, 15_000),
    "Adult: age by columns and rare levels": (False, 30_000),
    "Covertype: elevation by nine columns": (False, 15_000),
    "ten independent columns, logistic": (True, 15_000),
    "a class of 7 %, logistic": (True, 30_000),
    "Adult: income by six columns": (True, 15_000),
    "Covertype: class by ten columns": (True, 15_000),
}
Rows = tuple[np.ndarray, np.ndarray]


@lru_cache(maxsize=2)
def population(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows at most 1 long, targets in [-1, 1] or classes, and the coefficients of all of them, the intercept last."""
    X, y = _people(folder, name)
    rows = np.column_stack([X, np.ones(len(X))])
    if not POPULATIONS[name][0]:
        return X, y, np.linalg.lstsq(rows, y, rcond=None)[0]
    fitted = LogisticRegression(C=1e9, fit_intercept=False, max_iter=2000, tol=1e-8).fit(rows, y)
    return X, y, fitted.coef_[0]


def _people(folder: Path, name: str) -> Rows:
    rng = np.random.default_rng(20261119)
    if name.startswith(("ten", "a class")):
        X = np.clip(rng.normal(size=(100_000, 10)) / 4.5, -1, 1)
        X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
        score = X @ rng.normal(size=10)
        if name == "ten independent columns":
            return X, np.clip(0.1 * score + 0.1 * rng.normal(size=len(X)), -1, 1)
        return X, (rng.random(len(X)) < expit(1.5 * score - (3.0 if name.startswith("a class") else 0.0))).astype(int)
    task = name.split(":", maxsplit=1)[0].lower().replace("covertype", "covtype")
    load = loader(folder).load
    X, labels, _, _ = load(task, normalise=False)
    X = X[:100_000].astype(np.float64)
    numbers = np.load(folder / f"{task}.npz")["num"].shape[1]
    if name == "Adult: age by nine columns":  # other numbers, and the most frequent levels
        return _scaled(X[:, _frequent(X, numbers, 1, 0.2, 1.0, 9)], X[:, 0])
    if name == "Adult: age by columns and rare levels":  # levels of half a per cent to three per cent
        return _scaled(X[:, [*range(1, numbers), *_frequent(X, numbers, numbers, 0.005, 0.03, 8)]], X[:, 0])
    if name == "Covertype: elevation by nine columns":
        return _scaled(X[:, 1:numbers], X[:, 0])
    return _scaled(X[:, : 6 if task == "adult" else 10], None)[0], np.asarray(labels[:100_000]).astype(int)


def _frequent(X: np.ndarray, numbers: int, start: int, least: float, most: float, columns: int) -> list[int]:
    """So many columns: the numbers from a start on, then levels that a share of people between these has."""
    shares = X[:, numbers:].mean(axis=0)
    levels = numbers + np.flatnonzero((shares >= least) & (shares <= most))
    return [*range(start, numbers), *levels.tolist()][:columns]


def _scaled(X: np.ndarray, target: np.ndarray | None) -> Rows:
    """Columns within 4 in size, rows at most 1 long; the target about its middle in [-1, 1]."""
    rows = np.clip(X, -4, 4)
    rows = rows / np.quantile(np.linalg.norm(rows, axis=1), 0.99)
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    if target is None:
        return rows, np.zeros(0)
    low, high = np.quantile(target, [0.001, 0.999])
    return rows, np.clip((target - (low + high) / 2) / ((high - low) / 2), -1, 1)


def fits(job: list[Any], folder: Path) -> dict[str, Any]:
    """Some fits: how many slopes have an interval, how many hold the truth, how wide, and how many fits warned."""
    name, first, count = job
    logistic, users = POPULATIONS[name]
    X, y, truth = population(folder, name)
    alone = _alone(X, y, truth, users, logistic)
    seen: dict[str, Any] = {"slopes": 0, "decided": 0, "held": 0, "warned": 0, "fits": count, "widths": []}
    for seed in range(first, first + count):
        some = np.random.default_rng([20261120, seed]).integers(0, len(X), users)
        common = {"epsilon": EPSILON, "delta": DELTA, "feature_norm": 1.0, "method": "rounds", "random_state": seed}
        model = ShuffleLogit(classes=[0, 1], **common) if logistic else ShuffleLinearRegression(target_range=(-1, 1), **common)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit_population(SurrogatePopulation(*model.records(X[some], y[some])), X.shape[1])
            table = model.summary(LEVEL)
        said = (CutResidualsWarning, FarRowsWarning)
        about = any(issubclass(warning.category, said) for warning in caught) or "approximate" in str(table)
        low, high = table.intervals[:-1].T
        decided = np.isfinite(high - low)
        held = (low <= truth[:-1]) & (truth[:-1] <= high)
        seen["slopes"] += len(held)
        seen["decided"] += int(decided.sum())
        seen["held"] += int((held & decided).sum())
        seen["warned"] += int(about)
        if decided.any():
            seen["widths"].append(float(np.median((high - low)[decided] / alone[decided])))
    return seen


def _alone(X: np.ndarray, y: np.ndarray, truth: np.ndarray, users: int, logistic: bool) -> np.ndarray:
    """Widths of slopes' intervals without privacy, on as many people."""
    rows = np.column_stack([X, np.ones(len(X))])
    scores = rows @ truth
    weight = expit(scores) * expit(-scores) if logistic else np.full(len(X), 1 / np.mean((y - scores) ** 2))
    spread = np.linalg.inv((rows * weight[:, np.newaxis]).T @ rows / len(X) * users)
    return np.asarray(2 * 1.96 * np.sqrt(spread.diagonal()[:-1]))


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--data", type=Path, help="folder with adult.npz, covtype.npz and load.py")
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")


def measure(arguments: argparse.Namespace) -> Results:
    """All populations, some fits at a time."""
    if arguments.data is None:
        arguments.error("--data is needed: the folder with adult.npz, covtype.npz and load.py")
    folder, count = arguments.data.resolve(), 2 if arguments.quick else arguments.fits
    cells = Cells(arguments.folder / "coverage.cells.jsonl", {"quick": arguments.quick}, fresh=arguments.fresh)
    jobs = [[name, first, min(AT_ONCE, count - first)] for first in range(0, count, AT_ONCE) for name in POPULATIONS]
    found = cells.all(jobs, partial(fits, folder=folder), processes=2, description="coverage")
    rows = []
    for name, (logistic, users) in POPULATIONS.items():
        own = [cell for job, cell in zip(jobs, found, strict=True) if job[0] == name]
        total = {key: sum(cell[key] for cell in own) for key in ("slopes", "decided", "held", "warned", "fits")}
        widths = [width for cell in own for width in cell["widths"]]
        row = {"population": name, "logistic": logistic, "users": users, "columns": total["slopes"] // max(total["fits"], 1)}
        rows.append(row | total | {"width": float(np.median(widths)) if widths else None})
    return {"version": cr.__version__, "quick": arguments.quick, "epsilon": EPSILON, "delta": DELTA, "populations": rows}
