"""Statistics in one round beside what is claimed of them: least squares, its intervals, evaluation, diameters.

    python -m benchmarks.private_statistics --data DIR [--out DIR] [--quick]

DIR holds adult.npz and covtype.npz, and `load.py` with `load(task, normalise)` and `unit_rows`. Adult's target is age, Covertype's
elevation; all other columns, one-hot, are features. delta = 1e-6, replace-one neighbours, medians of 5 fits. R^2 and times are of
the protocol itself, with secure randomness. Coverage and evaluation draw the plan's noise as Gaussian, over many populations.
Stores private_statistics.json and private_statistics.md; exit code 1 if a figure is worse than claimed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

import croupier as cr
from croupier.estimator import ShuffleLinearRegression
from croupier.population import SurrogatePopulation
from croupier.protocol import NotPrivateWarning
from croupier.statistics import Moments, least_squares, plan_for

DELTA = 1e-6
# The target is the first numeric column; its public range.
TASKS = {"adult": (17.0, 90.0), "covtype": (1850.0, 3900.0)}
CLAIMED_R2 = {("adult", 0.1): 0.28, ("adult", 1.0): 0.40, ("covtype", 0.1): 0.71, ("covtype", 1.0): 0.744}
CLAIMED_TIME, COVERAGE = 5.0, (0.92, 0.98)
CLAIMED_POINTS, BARS = {"accuracy": 0.45, "AUC": 0.7}, (0.90, 0.99)


def table(folder: Path, task: str) -> tuple[np.ndarray, np.ndarray, int, list[list[int]]]:
    """Rows of norm 1 without the target, the target, how many are for training, and the columns of each category."""
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    assert spec is not None
    assert spec.loader is not None
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    stored = np.load(folder / f"{task}.npz")
    first, _, last, _ = loader.load(task, normalise=False)
    rows = loader.unit_rows(np.vstack([first, last])[:, 1:]).astype(np.float64)
    starts = stored["num"].shape[1] - 1 + np.concatenate([[0], np.cumsum(stored["ncat"])]).astype(int)
    groups = [list(range(a, b)) for a, b in pairwise(starts.tolist()) if b - a > 1]
    return rows, stored["num"][:, 0].astype(np.float64), int(stored["n_train"]), groups


def regressions(folder: Path, quick: bool) -> list[dict[str, Any]]:
    found = []
    for task, target_range in TASKS.items():
        X, y, train, groups = table(folder, task)
        y = np.clip(y, *target_range)
        train = min(train, 20_000) if quick else train  # the others are held out
        held_out, centre, half = slice(train, None), float(np.mean(target_range)), (target_range[1] - target_range[0]) / 2
        without = without_privacy(X, y - centre, train)
        for epsilon in (0.1, 1.0):
            scores, ratios = [], []
            for _ in range(2 if quick else 5):
                begin = time.perf_counter()
                Ridge(alpha=1e-3, fit_intercept=False).fit(X[:train], y[:train])
                ridge = time.perf_counter() - begin
                begin = time.perf_counter()
                model = ShuffleLinearRegression(
                    epsilon=epsilon, delta=DELTA, target_range=(-half, half), fit_intercept=False, exclusive=groups
                ).fit(X[:train], y[:train] - centre)
                ratios.append((time.perf_counter() - begin) / ridge)
                scores.append(float(model.score(X[held_out], y[held_out] - centre)))
            cell = {"task": task, "epsilon": epsilon, "users": train, "r2": median(scores), "without": without}
            found.append(cell | {"time_over_ridge": median(ratios), "claimed": CLAIMED_R2[task, epsilon]})
            print(found[-1], file=sys.stderr, flush=True)
    return found


def without_privacy(X: np.ndarray, y: np.ndarray, train: int) -> float:
    """R^2 on held-out people of a fit to all others, without privacy."""
    return float(Ridge(alpha=1e-6, fit_intercept=False).fit(X[:train], y[:train]).score(X[train:], y[train:]))


def coverage(quick: bool) -> list[dict[str, Any]]:
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


class Truth:
    """A model that knows the probabilities."""

    classes_ = np.array([False, True])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        p = expit(2.5 * X[:, 0] - 0.5)
        return np.column_stack([1 - p, p])

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.predict_proba(X)[:, 1] > 0.5


def evaluations(quick: bool) -> list[dict[str, Any]]:
    rng, model = np.random.default_rng(5), Truth()
    X = rng.normal(size=(1_000_000, 1))
    p = model.predict_proba(X)[:, 1]
    y = rng.random(len(X)) < p
    truth = {"accuracy": float(np.mean(model.predict(X) == y)), "AUC": float(roc_auc_score(y, p))}
    found = []
    for epsilon in (0.1, 0.5, 1.0):
        errors: dict[str, list[float]] = {name: [] for name in truth}
        inside: dict[str, list[bool]] = {name: [] for name in truth}
        for seed in range(50 if quick else 300):
            some = rng.integers(len(X), size=10_000)
            people = SurrogatePopulation(X[some], y[some])
            scores = cr.evaluate(model, people, epsilon=epsilon, delta=DELTA, seed=seed).scores
            for name, exact in truth.items():
                errors[name].append(scores[name].value - exact)
                inside[name].append(scores[name].interval[0] <= exact <= scores[name].interval[1])
        for name in truth:
            points = 100 * float(np.sqrt(np.mean(np.square(errors[name]))))
            found.append({"epsilon": epsilon, "score": name, "rmse_points": points, "covered": float(np.mean(inside[name]))})
    return found


def diameters() -> list[dict[str, Any]]:
    found = []
    for name, diameter in (("histogram", float(np.sqrt(2))), ("moments", Moments(10).diameter / Moments(10).norm)):
        for users, dim in ((1_000, 100), (100_000, 1_000)):
            asked = {"epsilon": 1.0, "delta": DELTA, "users": users, "dim": dim, "max_inflation": 1.01}
            ratio = cr.plan_sum(**asked, diameter=diameter).noise_std / cr.plan_sum(**asked).noise_std
            found.append({"query": name, "diameter": diameter, "users": users, "dim": dim, "noise_ratio": ratio})
    return found


def shortcomings(results: dict[str, Any]) -> list[str]:
    """What is worse than claimed."""
    low, high = COVERAGE
    bars_low, bars_high = BARS
    found = [f"R^2 of {r['task']} at {r['epsilon']}: {r['r2']:.3f}" for r in results["regressions"] if r["r2"] < r["claimed"]]
    found += [
        f"time on {r['task']} at {r['epsilon']}: {r['time_over_ridge']:.1f} x Ridge"
        for r in results["regressions"]
        if r["task"] == "covtype" and r["time_over_ridge"] > CLAIMED_TIME
    ]
    found += [f"coverage {r['covered']:.3f} at {r}" for r in results["coverage"] if not low <= r["covered"] <= high]
    found += [
        f"{r['score']} at {r['epsilon']}: {r['rmse_points']:.2f} points"
        for r in results["evaluations"]
        if r["epsilon"] == 0.5 and r["rmse_points"] > CLAIMED_POINTS[r["score"]]
    ]
    found += [
        f"bars of {r['score']}: {r['covered']:.3f}" for r in results["evaluations"] if not bars_low <= r["covered"] <= bars_high
    ]
    found += [
        f"noise of {r['query']}: {r['noise_ratio']:.3f}"
        for r in results["diameters"]
        if r["noise_ratio"] > 0.72 * r["diameter"] / 2**0.5
    ]
    return found


def headline(results: dict[str, Any]) -> str:
    best = {(r["task"], r["epsilon"]): r for r in results["regressions"]}
    adult, cover = best["adult", 1.0], best["covtype", 1.0]
    return (
        f"least squares in one round at epsilon 1: R^2 {adult['r2']:.3f} on Adult ({adult['without']:.3f} without privacy), "
        f"{cover['r2']:.3f} on Covertype ({cover['without']:.3f}), with intervals that cover "
        f"{min(r['covered'] for r in results['coverage']):.0%} to {max(r['covered'] for r in results['coverage']):.0%}."
    )


def markdown(results: dict[str, Any]) -> str:
    """The stored figures as tables."""
    text = (
        f"# Statistics in one round\n\ncroupier {results['version']}; delta = 1e-6, replace-one neighbours, everybody honest.\n\n"
    )
    text += "Least squares (`ShuffleLinearRegression`), medians of 5 fits with secure randomness, R^2 on held-out people.\n"
    text += "The time is that of the fit over scikit-learn's Ridge on the same rows, alternating; the machine is shared.\n\n"
    text += "| data | epsilon | R^2 | claimed | without privacy | time over Ridge |\n|---|--:|--:|--:|--:|--:|\n"
    text += "".join(
        f"| {r['task']} ({r['users']:,}) | {r['epsilon']:g} | {r['r2']:.3f} | {r['claimed']:g} | {r['without']:.3f} "
        f"| {r['time_over_ridge']:.1f} |\n"
        for r in results["regressions"]
    )
    text += "\nCoverage of 95 % intervals, and the share of coefficients that have one; the plan's noise drawn as Gaussian.\n\n"
    text += "| columns | people | epsilon | covered | told from noise |\n|--:|--:|--:|--:|--:|\n"
    text += "".join(
        f"| {r['features']} | {r['users']:,} | {r['epsilon']:g} | {r['covered']:.1%} | {r['told']:.0%} |\n"
        for r in results["coverage"]
    )
    text += "\nEvaluation of a classifier on 10,000 people: root mean square error in points, sampling included, and how often\n"
    text += "95 % bars cover.\n\n"
    text += "| score | epsilon | error, points | covered |\n|---|--:|--:|--:|\n"
    text += "".join(
        f"| {r['score']} | {r['epsilon']:g} | {r['rmse_points']:.2f} | {r['covered']:.0%} |\n" for r in results["evaluations"]
    )
    text += "\nNoise of a plan by diameter over that of a plan by norm, both within 1 % of the central mechanism's.\n\n"
    text += "| query | diameter / norm | people | coordinates | noise ratio |\n|---|--:|--:|--:|--:|\n"
    text += "".join(
        f"| {r['query']} | {r['diameter']:.3f} | {r['users']:,} | {r['dim']:,} | {r['noise_ratio']:.3f} |\n"
        for r in results["diameters"]
    )
    if results["quick"]:
        return text + "\nA quick run: nothing is judged.\n"
    worse = shortcomings(results)
    return text + ("\nWorse than claimed: " + "; ".join(worse) + ".\n" if worse else "\nAll as claimed.\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with adult.npz, covtype.npz and load.py")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder for the results")
    parser.add_argument("--quick", action="store_true", help="few people and runs; nothing is judged")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", NotPrivateWarning)
    warnings.simplefilter("ignore", UserWarning)
    results = {
        "version": cr.__version__,
        "quick": arguments.quick,
        "regressions": regressions(arguments.data, arguments.quick),
        "coverage": coverage(arguments.quick),
        "evaluations": evaluations(arguments.quick),
        "diameters": diameters(),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "private_statistics.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.out / "private_statistics.md").write_text(markdown(results))
    print(markdown(results))
    if not arguments.quick and shortcomings(results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
