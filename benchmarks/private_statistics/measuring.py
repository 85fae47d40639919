"""Regressions on real data, and intervals, scores and noise on populations whose truth is known."""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.linear_model import Ridge

import croupier as cr
from croupier.estimator import ShuffleLinearRegression
from croupier.estimator.scaler import ColumnMoments
from croupier.protocol import NotPrivateWarning
from croupier.statistics import Moments
from croupier.statistics._newton import Newton
from croupier.statistics.asking import plan_for
from croupier.statistics.moments import least_squares

from ..cells import Cells, fingerprint
from ..datasets import loader
from ..protocol import Results
from .describing import schemas, summaries
from .evaluating import evaluations
from .judging import R2
from .logistic import LOGISTIC

DELTA, FITS, QUICK_FITS = 1e-6, 5, 2
# The target is the first numeric column; its public range.
TASKS = {"adult": (17.0, 90.0), "covtype": (1850.0, 3900.0)}


def table(folder: Path, task: str) -> tuple[np.ndarray, np.ndarray, int, list[list[int]]]:
    """Rows of norm 1 without the target, the target, how many are for training, and the columns of each category."""
    stored = np.load(folder / f"{task}.npz")
    source = loader(folder)
    first, _, last, _ = source.load(task, normalise=False)
    rows = source.unit_rows(np.vstack([first, last])[:, 1:]).astype(np.float64)
    starts = stored["num"].shape[1] - 1 + np.concatenate([[0], np.cumsum(stored["ncat"])]).astype(int)
    groups = [list(range(a, b)) for a, b in pairwise(starts.tolist()) if b - a > 1]
    return rows, stored["num"][:, 0].astype(np.float64), int(stored["n_train"]), groups


def regressions(folder: Path, task: str, quick: bool) -> list[dict[str, Any]]:
    """R^2 of private fits on held-out people, and their time over that of a fit without privacy, the two taking turns."""
    found, target_range = [], TASKS[task]
    X, y, train, groups = table(folder, task)
    y = np.clip(y, *target_range)
    train = min(train, 20_000) if quick else train  # the others are held out
    held_out, centre, half = slice(train, None), float(np.mean(target_range)), (target_range[1] - target_range[0]) / 2
    without = without_privacy(X, y - centre, train)
    for epsilon in (0.1, 1.0):
        scores, ratios = [], []
        for _ in range(QUICK_FITS if quick else FITS):
            begin = time.perf_counter()
            Ridge(alpha=1e-3, fit_intercept=False).fit(X[:train], y[:train])
            ridge = time.perf_counter() - begin
            begin = time.perf_counter()
            model = ShuffleLinearRegression(
                epsilon=epsilon, delta=DELTA, target_range=(-half, half), fit_intercept=False, exclusive=groups, method="moments"
            ).fit(X[:train], y[:train] - centre)
            ratios.append((time.perf_counter() - begin) / ridge)
            scores.append(float(model.score(X[held_out], y[held_out] - centre)))
        cell = {"task": task, "epsilon": epsilon, "users": train, "r2": median(scores), "without": without}
        found.append(cell | {"time_over_ridge": median(ratios), "claimed": R2[task, epsilon]})
    return found


def without_privacy(X: np.ndarray, y: np.ndarray, train: int) -> float:
    """R^2 on held-out people of a fit to all others, without privacy."""
    return float(Ridge(alpha=1e-6, fit_intercept=False).fit(X[:train], y[:train]).score(X[train:], y[train:]))


def coverage(quick: bool) -> list[dict[str, Any]]:
    """How often intervals cover the coefficients that populations were drawn with, and how many coefficients have one."""
    found, rng = [], np.random.default_rng(20261116)
    for features in (5, 20):
        for users in (10_000,) if quick else (10_000, 100_000):
            for epsilon in (0.5, 1.0, 4.0):
                query = Moments(features + 1)
                plan = plan_for(query, users, epsilon=epsilon, delta=DELTA)
                covered: list[bool] = []
                told, asked = 0, 0
                while asked < (200 if quick else 1_000):
                    X = rng.normal(size=(users, features))
                    X *= rng.random((users, 1)) ** (1 / features) / np.linalg.norm(X, axis=1, keepdims=True)
                    coef = rng.normal(size=features) / np.sqrt(features) / 2
                    y = 0.1 + X @ coef + rng.normal(scale=0.15, size=users)
                    rows = np.column_stack([X, np.ones(users)]) / np.sqrt(2)
                    total = sum(query(rows[i : i + 10_000], y[i : i + 10_000]).sum(axis=0) for i in range(0, users, 10_000))
                    noisy = rng.normal(total, plan.noise_std)
                    estimate = cr.SumEstimate(sum=noisy, users=users, noise_std=plan.noise_std, guarantee=None)
                    fitted, truth = least_squares(query.decode(estimate)), np.sqrt(2) * np.append(coef, 0.1)
                    low, high = fitted.intervals().T
                    covered += ((low <= truth) & (truth <= high))[fitted.determined].tolist()
                    told, asked = told + int(fitted.determined.sum()), asked + len(truth)
                found.append(
                    {
                        "features": features,
                        "users": users,
                        "epsilon": epsilon,
                        "covered": float(np.mean(covered)),
                        "told": told / asked,
                    }
                )
    return found


def diameters() -> list[dict[str, Any]]:
    """Noise of plans by diameter over that of plans by norm."""
    found = []
    ranges = {"moments": Moments(10), "Newton": Newton((0.0,) * 10), "scaler": ColumnMoments(np.zeros(10), np.ones(10))}
    claims = {"histogram": float(np.sqrt(2))} | {name: query.diameter / query.norm for name, query in ranges.items()}
    for name, diameter in claims.items():
        for users, dim in ((1_000, 100), (100_000, 1_000)):
            asked = {"epsilon": 1.0, "delta": DELTA, "users": users, "dim": dim, "max_inflation": 1.01}
            ratio = cr.plan_sum(**asked, diameter=diameter).noise_std / cr.plan_sum(**asked).noise_std
            found.append({"query": name, "diameter": diameter, "users": users, "dim": dim, "noise_ratio": ratio})
    return found


def part(job: tuple[str, ...], *, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """The rows of one table, or of one data set in it."""
    warnings.simplefilter("ignore", NotPrivateWarning)
    warnings.simplefilter("ignore", UserWarning)
    name, *task = job
    if name == "regressions":
        return regressions(folder, *task, quick)
    if name in ("summaries", "schemas"):
        return {"summaries": summaries, "schemas": schemas}[name](folder, *task, quick)
    measures = {
        "coverage": coverage,
        **LOGISTIC,
        "evaluations": evaluations,
    }
    return diameters() if name == "diameters" else measures[name](quick)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--data", type=Path, help="folder with adult.npz, covtype.npz and load.py")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")


def measure(arguments: argparse.Namespace) -> Results:
    """All tables, part by part."""
    if arguments.data is None:
        arguments.error("--data is needed: the folder with adult.npz, covtype.npz and load.py")
    folder, quick = arguments.data.resolve(), arguments.quick
    loader(folder)  # the program ends where there is none
    for task in TASKS:
        if not (folder / f"{task}.npz").exists():
            arguments.error(f"--data: there is no {task}.npz in {folder}")
    settings = {
        "quick": quick,
        "code": [fingerprint(path) for path in sorted(Path(__file__).parent.glob("*ing.py"))],
        "data": fingerprint(folder / "load.py"),
    }
    cells = Cells(arguments.folder / "private_statistics.cells.jsonl", settings, fresh=arguments.fresh)
    jobs = [
        *(("regressions", task) for task in TASKS),
        ("coverage",),
        *((name,) for name in LOGISTIC),
        ("evaluations",),
        ("diameters",),
    ]
    jobs += [("summaries",), ("schemas", "adult"), ("schemas", "stones")]
    results: Results = {"version": cr.__version__, "quick": quick}
    # one after the other, since regressions are timed
    found = cells.all(jobs, partial(part, folder=folder, quick=quick), description="statistics")
    for (name, *_), rows in zip(jobs, found, strict=True):
        results[name] = results.get(name, []) + rows
    return results
