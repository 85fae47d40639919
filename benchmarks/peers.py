"""Croupier beside what one would use instead: accuracy, wall time, bits per user and trust, on real data.

    python benchmarks/peers.py --data DIR [--out DIR] [--quick] [--redraw] [--only adult ...] [--seeds 5] [--processes 2]

DIR holds `load.py` with `load(name, normalise=True)` -> train X, train y, test X, test y and `unit_rows`. Every method tries its
four settings on the same held-out tenth of the training rows, at each data set, loss and epsilon; the best is fitted to all of
these rows and judged on the test rows. Finished fits are kept in peers.cells.jsonl: the same command goes on where it was cut
off. Opacus and diffprivlib get virtual environments of their own in --venvs, made on first use; where that fails, their cells say
why. Stores peers.json, peers.md and peers.svg; exits with 1 where a line of "asked" is missed. --quick: Adult and Covertype,
logistic, epsilon 1, two seeds, two settings; judged by nothing, stored only with --out. --redraw makes page and figure anew from
peers.json.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import numpy as np
import sklearn
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import croupier as cr
from croupier.privacy.tight import parameters as plans

sys.path.insert(0, str(Path(__file__).parent))
import peer_methods as methods
from cells import Cells, fingerprint
from peer_methods import Fit, NotAvailableError, Setting, Task

DELTA = 1e-6
TIMED = 1.0  # the epsilon at which fits run alone and are timed
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
FEWER = (0.1, 1.0, 4.0)
HELD_OUT_SEED = 20261115
SEED = 1000  # of the first final fit
# Data set, loss, epsilons, most seeds at the timed epsilon and at others: fewer where fits take long.
PROBLEMS: dict[str, tuple[str, str, tuple[float, ...], int, int]] = {
    "adult/logistic": ("adult", "logistic", EPSILONS, 5, 5),
    "adult/svm": ("adult", "svm", EPSILONS, 5, 5),
    "adult/ridge": ("adult", "ridge", EPSILONS, 5, 5),
    "covtype/logistic": ("covtype", "logistic", EPSILONS, 5, 3),
    "covtype/svm": ("covtype", "svm", FEWER, 3, 3),
    "covtype/ridge": ("covtype", "ridge", FEWER, 3, 3),
    "kddcup10/logistic": ("kddcup10", "logistic", FEWER, 3, 3),
    "kddcup10/svm": ("kddcup10", "svm", (TIMED,), 3, 3),
    "mnist10/logistic": ("mnist10", "logistic", FEWER, 2, 1),
}
TITLES = {
    "adult/logistic": "Adult, logistic regression: income above 50 K",
    "adult/svm": "Adult, linear SVM: income above 50 K",
    "adult/ridge": "Adult, least squares: age, of [0, 100] years",
    "covtype/logistic": "Covertype, logistic regression: lodgepole pine or not",
    "covtype/svm": "Covertype, linear SVM: lodgepole pine or not",
    "covtype/ridge": "Covertype, least squares: elevation, of [1859, 3858] m",
    "kddcup10/logistic": "KDD Cup 99 (10 %), logistic regression: attack or not",
    "kddcup10/svm": "KDD Cup 99 (10 %), linear SVM: attack or not",
    "mnist10/logistic": "MNIST, multinomial logistic regression: ten digits",
}
# Regressions: the column that becomes the target, and its map to [-1, 1], from what `load` gives (load.py scales age by 100 years,
# and elevation by the published mean and deviation; the range of elevations is published in covtype.info too).
TARGETS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "adult": (0, lambda age: 2 * age - 1),
    "covtype": (0, lambda z: (279.98 * z + 2959.36 - (1859 + 3858) / 2) / ((3858 - 1859) / 2)),
}


@dataclass(frozen=True)
class Method:
    """A row of the table: how it fits, which settings are tried, and what is promised to whom."""

    fit: Callable[..., Fit]
    settings: Callable[[str, int], list[Setting]]  # of the loss and the number of users
    trust: str
    neighbours: str
    what: str
    losses: tuple[str, ...] = ("logistic", "svm", "ridge")
    epsilons: tuple[float, ...] = EPSILONS
    trial: Callable[..., Fit] | None = None  # a quicker fit with the same noise, for trying settings


def grid(first: str, firsts: Sequence[Any], second: str, seconds: Sequence[Any]) -> list[Setting]:
    return [{first: one, second: two} for one in firsts for two in seconds]


def steps(loss: str, usual: tuple[float, ...], ridge: tuple[float, ...]) -> tuple[float, ...]:
    return ridge if loss == "ridge" else usual


def croupier_settings(interactivity: str) -> Callable[[str, int], list[Setting]]:
    """{} is what a user gets who sets nothing. In the full model, where rounds cost time and bits, fewer bold ones are tried."""

    def settings(loss: str, users: int) -> list[Setting]:
        if loss == "ridge":
            return [{}, {"radius": 5.0}, {"radius": 10.0}, {"radius": 5.0, "rounds": 20}]
        bold = {"rounds": 50, "curvature": 0.1 if loss == "svm" else 0.02} if interactivity == "full" else {"rounds": 20}
        return [{}, {"radius": 20.0}, {"radius": 100.0}, bold]

    return settings


def weights(loss: str, users: int) -> list[Setting]:
    return [{"weight": weight} for weight in (0.1, 1.0, 0.01, 100.0)]


def opacus_settings(loss: str, users: int) -> list[Setting]:
    """Two passes with many small batches over large data, more over small; three times as many with large batches."""
    epochs = max(2, 400_000 // users)
    sizes = ({"epochs": epochs, "batch": 1024}, {"epochs": 3 * epochs, "batch": 8192})
    return [{**size, "step": step} for size in sizes for step in steps(loss, (2.0, 8.0), (0.1, 0.4))]


def central_settings(loss: str, users: int) -> list[Setting]:
    return grid("rounds", (100, 40), "step", steps(loss, (8.0, 32.0), (0.5, 2.0)))


def local_settings(loss: str, users: int) -> list[Setting]:
    return grid("rounds", (5, 20), "step", steps(loss, (0.5, 4.0), (0.1, 0.5)))


RAW, SHUFFLED, LOCAL = "curator sees records", "shuffler mixes", "nobody"
METHODS = {
    "scikit-learn": Method(
        methods.nonprivate, weights, RAW, "-", "no privacy: LogisticRegression (lbfgs), LinearSVC (squared hinge), Ridge"
    ),
    "Croupier full": Method(
        methods.croupier("full"),
        croupier_settings("full"),
        SHUFFLED,
        "replace-one",
        "estimators, interactivity='full': all users, every round",
        trial=methods.simulated("full", "tight"),
    ),
    "Croupier sequential": Method(
        methods.croupier("sequential"),
        croupier_settings("sequential"),
        SHUFFLED,
        "replace-one",
        "estimators as they come: each user once",
        trial=methods.simulated("sequential", "tight"),
    ),
    "DP-GD": Method(
        methods.central,
        central_settings,
        RAW,
        "replace-one",
        "full-batch gradients with Nesterov's momentum, analytic Gaussian mechanism",
    ),
    "Opacus": Method(methods.peer("opacus"), opacus_settings, RAW, "add/remove", "DP-SGD, Poisson batches, momentum 0.9"),
    "Opacus, replace-one": Method(
        methods.peer("opacus", "replace-one"),
        opacus_settings,
        RAW,
        "replace-one",
        "the same with the noise of half the epsilon",
        epsilons=(TIMED,),
    ),
    "diffprivlib": Method(
        methods.peer("diffprivlib"),
        lambda loss, users: [{}] if loss == "ridge" else weights(loss, users),
        RAW,
        "replace-one",
        "objective perturbation (logistic), functional mechanism (least squares): pure epsilon, so a stronger promise",
        losses=("logistic", "ridge"),
    ),
    "PrivUnit": Method(
        methods.local, local_settings, LOCAL, "replace-one", "local: one pass, each gradient through PrivUnit; pure epsilon"
    ),
    "paper full": Method(
        methods.simulated("full", "paper"),
        lambda loss, users: [{"rounds": 20}],  # finding the best number takes its time, and all of them are noise
        SHUFFLED,
        "replace-one",
        "Croupier full with the paper's own constants, simulated noise: the bits are too many to count",
        losses=("logistic",),
    ),
    "paper sequential": Method(
        methods.simulated("sequential", "paper"),
        lambda loss, users: [{}],
        SHUFFLED,
        "replace-one",
        "Croupier sequential with the paper's own constants, simulated noise",
        losses=("logistic",),
    ),
}
NO_PRIVACY = "scikit-learn"
CENTRAL = ("DP-GD", "Opacus", "Opacus, replace-one", "diffprivlib")
OURS = ("Croupier full", "Croupier sequential")
# Yu, Zhang, Chen, Yin, Liu: "Gradient Perturbation is Underrated for Differentially Private Convex Optimization", arXiv 1911.11363,
# Table 2, Adult: logistic regression at epsilon = 0.1, delta = 1 / n^2, replace-one.
PUBLISHED = {"problem": "adult/logistic", "epsilon": 0.1, "accuracy": {"DP-GD": 0.809, "DP-SGD": 0.804, "AMP": 0.793}}
RACE = "covtype/logistic"
# Of Croupier full, beside its own setting.
RACE_SETTINGS: tuple[Setting, ...] = ({"rounds": 40, "curvature": 0.02}, {"rounds": 50, "curvature": 0.02}, {"rounds": 75})
AS_DOCUMENTED = "as documented"
UNTUNED = ("adult/logistic", "adult/svm", "adult/ridge", "covtype/logistic")  # where Croupier is also fitted as it comes
AGAIN = "adult/logistic"  # where a fit of each method is made twice, to see whether it is the same


# --- data and fits ---


@lru_cache(maxsize=1)
def loader(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("peers_data", folder / "load.py")
    if spec is None or spec.loader is None or not (folder / "load.py").exists():
        raise SystemExit(f"there is no load.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=2)
def data(folder: Path, problem: str) -> tuple[Task, np.ndarray, np.ndarray]:
    """What is learned from, and the test rows and targets."""
    name, loss, *_ = PROBLEMS[problem]
    source = loader(folder)
    if loss != "ridge":
        X, y, X_test, y_test = source.load(name)
        return Task(loss, X, y, int(y.max()) + 1), X_test, y_test
    column, scaled = TARGETS[name]
    X, _, X_test, _ = source.load(name, normalise=False)
    (X, y), (X_test, y_test) = (
        (source.unit_rows(np.delete(some, column, axis=1)), scaled(some[:, column])) for some in (X, X_test)
    )
    return Task(loss, X.astype(np.float32), np.clip(y, -1, 1)), X_test.astype(np.float32), y_test


@lru_cache(maxsize=2)
def held_out(task: Task) -> tuple[Task, np.ndarray, np.ndarray]:
    """Nine tenths of the training rows to try settings on, and the tenth to judge them on."""
    order = np.random.default_rng(HELD_OUT_SEED).permutation(len(task.X))
    tenth, rest = np.split(order, [len(order) // 10])
    return Task(task.loss, task.X[rest], task.y[rest], task.classes), task.X[tenth], task.y[tenth]


def tune(task: Task, method: Method, epsilon: float, delta: float, settings: Sequence[Setting]) -> dict[str, Any]:
    """The setting that does best on the held-out tenth, the first of equals. Only training rows come in here."""
    train, X, y = held_out(task)
    fit, scores = method.trial or method.fit, []
    for setting in settings:
        try:
            score = train.score(fit(train, epsilon, delta, setting, seed=0).theta, X, y)
            scores.append(score if math.isfinite(score) else -math.inf)
        except (NotAvailableError, ValueError) as error:  # a plan that is refused is a ValueError
            scores.append(-math.inf)
            why = str(error)
    if max(scores) == -math.inf:
        return {"missing": why}
    return {"setting": settings[int(np.argmax(scores))], "scores": [None if score == -math.inf else score for score in scores]}


def final(task: Task, X_test: np.ndarray, y_test: np.ndarray, method: Method, job: dict[str, Any]) -> dict[str, Any]:
    """A fit to all training rows, judged on the test rows."""
    if job["do"] == "timed":
        warm_up(job["problem"], job["method"], task, job)
        plans.cache_clear()  # each fit makes its own
    try:
        fit = method.fit(task, job["epsilon"], job["delta"], job["setting"], job["seed"])
    except (NotAvailableError, ValueError) as error:
        return {"missing": str(error)}
    found = {"score": task.score(fit.theta, X_test, y_test), "seconds": fit.seconds, "bits": fit.bits, "rounds": fit.rounds}
    if job["epsilon"] is None:
        found["test_error"] = test_error(task, fit.theta, X_test, y_test)
    return found | {"weights": hashlib.sha256(np.ascontiguousarray(fit.theta, dtype=np.float64)).hexdigest()[:16]}


_warm: set[tuple[str, str]] = set()


def warm_up(problem: str, name: str, task: Task, job: dict[str, Any]) -> None:
    """One fit to a few rows, so that no time is spent on what a process does once: importing, compiling, starting threads."""
    if (problem, name) not in _warm:
        _warm.add((problem, name))
        few = Task(task.loss, task.X[:2000], task.y[:2000], task.classes)
        with contextlib.suppress(NotAvailableError, ValueError):
            METHODS[name].fit(few, job["epsilon"], job["delta"], job["setting"], seed=0)


def test_error(task: Task, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Half the width of a 95 % interval for the score, for the choice of the test rows: binomial, or by 200 bootstraps."""
    if task.loss != "ridge":
        score = task.score(theta, X, y)
        return 1.96 * math.sqrt(score * (1 - score) / len(y))
    rng, residuals = np.random.default_rng(0), (X @ theta - y) ** 2
    draws = (rng.integers(len(y), size=len(y)) for _ in range(200))
    return 1.96 * float(np.std([1 - residuals[some].mean() / y[some].var() for some in draws]))


def measure(job: dict[str, Any], folder: Path, pythons: dict[str, str], scratch: Path) -> dict[str, Any]:
    """One cell: the settings of a method tried, or one fit. What runs beside others has one core."""
    methods.PYTHONS.update(pythons)
    methods.SCRATCH["folder"] = scratch
    task, X_test, y_test = data(folder, job["problem"])
    method = METHODS[job["method"]]
    with threadpool_limits(1 if multiprocessing.parent_process() else None):
        if job["do"] == "tune":
            return tune(task, method, job["epsilon"], job["delta"], job["settings"])
        return final(task, X_test, y_test, method, job)


# --- the grid ---


def budgets(problem: str, quick: bool) -> list[tuple[float, float]]:
    """(epsilon, delta) at which a problem is looked at."""
    return [(epsilon, DELTA) for epsilon in PROBLEMS[problem][2] if not quick or epsilon == TIMED]


def tuning_jobs(problem: str, users: int, quick: bool) -> list[dict[str, Any]]:
    loss = PROBLEMS[problem][1]
    jobs = []

    def add(name: str, epsilon: float | None, delta: float | None) -> None:
        tried = METHODS[name].settings(loss, users)
        jobs.append(
            {"do": "tune", "problem": problem, "method": name, "epsilon": epsilon, "delta": delta}
            | {"settings": tried[:2] if quick else tried}
        )

    for name, method in METHODS.items():
        if loss in method.losses:
            for epsilon, delta in [(None, None)] if name == NO_PRIVACY else budgets(problem, quick):
                if epsilon is None or epsilon in method.epsilons:
                    add(name, epsilon, delta)
    if problem == PUBLISHED["problem"] and not quick:
        for name in OURS:
            add(name, PUBLISHED["epsilon"], 1 / users**2)
    return jobs


def fit_jobs(tuned: list[dict[str, Any]], problem: str, seeds: int) -> list[dict[str, Any]]:
    """Final fits, seed by seed, so that what is compared in time runs one after the other; first of all the fit without privacy."""
    jobs = []

    def add(cell: dict[str, Any], setting: Setting, seed: int, **more: Any) -> None:
        timed = cell["epsilon"] in (None, TIMED) and cell["delta"] in (None, DELTA)
        kept = {key: cell[key] for key in ("problem", "method", "epsilon", "delta")}
        job = {"do": "timed" if timed else "fit", **kept, "setting": setting, "seed": SEED + seed, **more}
        if job not in jobs:
            jobs.append(job)

    for seed in range(seeds):
        for cell in tuned:
            if "missing" in cell or (seed >= PROBLEMS[problem][4] and cell["epsilon"] not in (None, TIMED)):
                continue
            add(cell, cell["setting"], seed)
            if cell["epsilon"] != TIMED:
                continue
            if cell["method"] in OURS and problem in UNTUNED:
                add(cell, {}, seed)
            if problem == RACE and cell["method"] == "Opacus":
                add(cell, {**cell["setting"], "loader": "plain"}, seed)
            if problem == RACE and cell["method"] == "Croupier full":
                for setting in RACE_SETTINGS:
                    add(cell, setting, seed)
            if problem == AGAIN and seed == 0:
                add(cell, cell["setting"], seed, again=True)
    return jobs


def run(arguments: argparse.Namespace, problems: list[str]) -> dict[str, Any]:
    pythons = methods.make_environments(arguments.venvs.resolve())
    here = Path(__file__)
    code = fingerprint(here, here.with_name("peer_methods.py"), here.with_name("peer_fits.py"))
    settings = {"quick": arguments.quick, "code": code, "data": fingerprint(arguments.data / "load.py")}
    cells = Cells(arguments.out / ("peers.quick.cells.jsonl" if arguments.quick else "peers.cells.jsonl"), settings)
    results: dict[str, Any] = {"problems": {}, "tuned": [], "fits": []}
    for problem in problems:
        with tempfile.TemporaryDirectory() as scratch:
            work = partial(measure, folder=arguments.data.resolve(), pythons=pythons, scratch=Path(scratch))
            run_problem(arguments, problem, cells, work, results)
    return results | {"about": about(pythons), "quick": arguments.quick}


def run_problem(
    arguments: argparse.Namespace, problem: str, cells: Cells, work: Callable[..., Any], results: dict[str, Any]
) -> None:
    """Its settings, then its timed fits one by one, then the others."""
    task, X_test, _ = data(arguments.data.resolve(), problem)
    users = len(task.X)
    results["problems"][problem] = {"users": users, "dim": task.dim, "test_rows": len(X_test), "clip": task.clip}
    jobs = tuning_jobs(problem, users, arguments.quick)
    found = cells.all(jobs, work, processes=arguments.processes, description=f"{problem}: settings")
    tuned = [job | cell for job, cell in zip(jobs, found, strict=True)]
    fits = fit_jobs(tuned, problem, min(arguments.seeds, PROBLEMS[problem][3]))
    timed, untimed = ([job for job in fits if job["do"] == do] for do in ("timed", "fit"))
    found = cells.all(timed, work, description=f"{problem}: timed fits")
    found += cells.all(untimed, work, processes=arguments.processes, description=f"{problem}: other fits")
    results["tuned"] += tuned
    results["fits"] += [job | cell for job, cell in zip(timed + untimed, found, strict=True)]


def about(pythons: dict[str, str]) -> dict[str, Any]:
    found = {
        "croupier": cr.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }
    for name, python in pythons.items():
        pinned = (Path(__file__).parent / f"requirements-{name}.txt").read_text().split()
        found[name] = (
            next(line for line in pinned if line.startswith(f"{name}=")).split("==")[1] if Path(python).exists() else python
        )
    return found


# --- what the page says ---


Line = tuple[str, str, str, bool | None]


class Page:
    """The stored results, asked in the words of the page."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results, self.problems = results, list(results["problems"])
        self.tuned = {(cell["problem"], cell["method"], cell["epsilon"], cell["delta"]): cell for cell in results["tuned"]}

    def fits(
        self, problem: str, method: str, epsilon: float | None, setting: Setting | None = None, delta: float | None = DELTA
    ) -> list[dict[str, Any]]:
        """The final fits, seed by seed: with the setting that was chosen, or with this one."""
        about = (problem, method, epsilon, None if epsilon is None else delta)
        if setting is None:
            setting = self.tuned.get(about, {}).get("setting")
        every = [fit for fit in self.results["fits"] if (fit["problem"], fit["method"], fit["epsilon"], fit["delta"]) == about]
        return [fit for fit in every if fit["setting"] == setting and "score" in fit and not fit.get("again")]

    def score(self, problem: str, method: str, epsilon: float | None, setting: Setting | None = None) -> float:
        """The median; NaN where there is none."""
        fits = self.fits(problem, method, epsilon, setting)
        return statistics.median(fit["score"] for fit in fits) if fits else math.nan

    def slower(self, problem: str, fits: list[dict[str, Any]], others: list[dict[str, Any]]) -> float:
        """How many times as long these took as the others, seed by seed; the median."""
        other = {fit["seed"]: fit["seconds"] for fit in others}
        return statistics.median(fit["seconds"] / other[fit["seed"]] for fit in fits) if fits and others else math.nan

    def best_central(self, problem: str, epsilon: float) -> tuple[float, str]:
        found = [(self.score(problem, method, epsilon), method) for method in CENTRAL]
        return max(((score, method) for score, method in found if not math.isnan(score)), default=(math.nan, "none"))

    def missing(self, problem: str, method: str, epsilon: float) -> str | None:
        cell = self.tuned.get((problem, method, epsilon, DELTA))
        return cell.get("missing") if cell else None

    def epsilons(self, problem: str) -> list[float]:
        return sorted({epsilon for name, _, epsilon, delta in self.tuned if name == problem and epsilon and delta == DELTA})


def shown(value: float, problem: str) -> str:
    if math.isnan(value):
        return "-"
    if problem.endswith("ridge"):
        return f"{value:.3f}" if value > -10 else "below -10"
    return f"{100 * value:.1f}"


def spread(fits: list[dict[str, Any]], problem: str) -> str:
    if not fits:
        return "-"
    scores = [fit["score"] for fit in fits]
    return f"{shown(statistics.median(scores), problem)} ({shown(min(scores), problem)} to {shown(max(scores), problem)})"


def asked(page: Page) -> list[Line]:
    """(what, asked, measured, whether it holds, None where nothing was asked): the lines that this page is judged by."""
    lines = []
    for problem in ("adult/logistic", "covtype/logistic"):
        if problem in page.problems:
            best, method = page.best_central(problem, TIMED)
            local = page.score(problem, "PrivUnit", TIMED)
            for name, within in (("Croupier full", 0.005), ("Croupier sequential", 0.03)):
                ours = page.score(problem, name, TIMED)
                what = f"{TITLES[problem].split(',')[0]}: {name} below the best central method ({method}, {shown(best, problem)} %)"
                lines.append(
                    (what, f"at most {100 * within:g} points", f"{round(100 * (best - ours), 1) + 0.0:.1f}", ours >= best - within)
                )
                what = f"{TITLES[problem].split(',')[0]}: {name} above local privacy (PrivUnit, {shown(local, problem)} %)"
                lines.append((what, "at least 5 points", f"{100 * (ours - local):.1f}", ours >= local + 0.05))
    if RACE in page.problems:
        lines += raced(page)
    twice = [fit for fit in page.results["fits"] if fit.get("again")]
    if twice:
        first = {(fit["method"], json.dumps(fit["setting"])): fit["weights"] for fit in page.results["fits"] if same_seed(fit)}
        same = sum(fit["weights"] == first[fit["method"], json.dumps(fit["setting"])] for fit in twice)
        lines.append(
            ("the same fit twice gives the same weights, bit for bit", f"all {len(twice)} methods", str(same), same == len(twice))
        )
    return lines


def same_seed(fit: dict[str, Any]) -> bool:
    return fit["problem"] == AGAIN and fit["seed"] == SEED and not fit.get("again") and "weights" in fit and fit["do"] == "timed"


def raced(page: Page) -> list[Line]:
    """Wall time on Covertype, in the same run. Asked is a comparison with Opacus as it is documented; with batches fetched at once,
    which is our doing, it is told."""
    plain, sequential = page.fits(RACE, NO_PRIVACY, None), page.fits(RACE, "Croupier sequential", TIMED)
    ratio = page.slower(RACE, plain, sequential)
    lines = [("Covertype: scikit-learn's time over that of Croupier sequential", "above 1", f"{ratio:.1f}", ratio > 1)]
    for words, opacus in opacus_fits(page).items():
        if not opacus:
            continue
        documented = words == AS_DOCUMENTED
        ratio = page.slower(RACE, opacus, sequential)
        what = f"Covertype: time of Opacus, {words}, over that of Croupier sequential"
        lines.append((what, "at least 10" if documented else "-", f"{ratio:.1f}", ratio >= 10 if documented else None))
        rounds, full = fastest_as_good(page, statistics.median(fit["score"] for fit in opacus))
        ratio = page.slower(RACE, opacus, full)
        what = f"Covertype: time of Opacus, {words}, over that of Croupier full at the same accuracy ({rounds})"
        lines.append((what, "at least 3" if documented else "-", f"{ratio:.1f}", ratio >= 3 if documented else None))
    return lines


def opacus_fits(page: Page) -> dict[str, list[dict[str, Any]]]:
    setting = page.tuned.get((RACE, "Opacus", TIMED, DELTA), {}).get("setting", {})
    return {
        AS_DOCUMENTED: page.fits(RACE, "Opacus", TIMED, {**setting, "loader": "plain"}),
        "batches fetched at once": page.fits(RACE, "Opacus", TIMED),
    }


def fastest_as_good(page: Page, score: float) -> tuple[str, list[dict[str, Any]]]:
    """Croupier full with the fewest rounds whose accuracy does not differ from `score` by more than the test rows can tell."""
    tolerance = math.sqrt(2) * page.fits(RACE, NO_PRIVACY, None)[0]["test_error"]
    choices = [page.fits(RACE, "Croupier full", TIMED, setting) for setting in [*RACE_SETTINGS, {}, None]]
    good = [fits for fits in choices if fits and statistics.median(fit["score"] for fit in fits) >= score - tolerance]
    if not good:
        return "none is as accurate", []
    fits = min(good, key=lambda fits: statistics.median(fit["seconds"] for fit in fits))
    return f"{fits[0]['rounds']} rounds", fits


def headline(results: dict[str, Any]) -> str:
    page, parts = Page(results), []
    for problem in ("adult/logistic", "covtype/logistic"):
        if problem in page.problems:
            best, method = page.best_central(problem, TIMED)
            full, sequential = (shown(page.score(problem, name, TIMED), problem) for name in OURS)
            central, local = shown(best, problem), shown(page.score(problem, "PrivUnit", TIMED), problem)
            name = TITLES[problem].split(",")[0]
            parts.append(
                f"{name} {full} % full and {sequential} % sequential, {central} % with a curator ({method}), {local} % local"
            )
    lines = [holds for *_, holds in asked(page) if holds is not None]
    return f"Logistic regression at epsilon = 1: {'; '.join(parts)}. {sum(lines)} of {len(lines)} lines that were asked for hold."


def losses(page: Page) -> list[str]:
    """Where Croupier is behind, from the figures alone."""
    lines = []
    for name, within in (("Croupier full", 0.005), ("Croupier sequential", 0.03)):  # of accuracy, or R^2
        behind = []
        for problem in page.problems:
            for epsilon in page.epsilons(problem):
                best, method = page.best_central(problem, epsilon)
                ours = page.score(problem, name, epsilon)
                if best - ours > within:
                    gap = f"{best - ours:.3f}" if problem.endswith("ridge") else f"{100 * (best - ours):.1f} points"
                    behind.append(f"{problem} at {epsilon:g} ({gap}, {method})")
        total = sum(len(page.epsilons(problem)) for problem in page.problems)
        limit = f"{100 * within:g} points (R^2: {within:g})"
        text = f"**{name}** is more than {limit} below the best central method in {len(behind)} of {total} cells"
        lines.append(f"{text}: {'; '.join(behind)}." if behind else f"{text}.")
    slow = []
    for problem in page.problems:
        ours, peers = page.fits(problem, "Croupier full", TIMED), page.fits(problem, NO_PRIVACY, None)
        if (ratio := page.slower(problem, ours, peers)) > 1:
            slow.append(f"{problem} ({ratio:.1f} times)")
    lines.append(f"**Time.** Croupier full takes longer than scikit-learn without privacy on: {', '.join(slow) or 'none'}.")
    quicker = []
    for problem in page.problems:
        for name in OURS:
            ratio = page.slower(problem, page.fits(problem, name, TIMED), page.fits(problem, "DP-GD", TIMED))
            quicker += [f"{name} {ratio:.1f} times on {problem}"] if ratio > 1 else []
    lines.append(f"A curator's DP-GD in numpy, which makes no bits, is quicker: {'; '.join(quicker) or 'nowhere'}.")
    bits = [
        (fits[0]["bits"] / record_bits(page, problem), problem)
        for problem in page.problems
        if (fits := page.fits(problem, OURS[0], TIMED))
    ]
    if bits:
        most, problem = max(bits)
        text = (
            f"**Bits.** With Croupier full a user sends up to {most:,.0f} times what its record takes as 32-bit numbers ({problem})"
        )
        few = max(
            (fits[0]["bits"] / record_bits(page, name), name) for name in page.problems if (fits := page.fits(name, OURS[1], TIMED))
        )
        lines.append(f"{text}, with Croupier sequential up to {few[0]:,.1f} times ({few[1]}).")
    return lines


def record_bits(page: Page, problem: str) -> int:
    """A record as 32-bit numbers: its features (with the constant, which stands for the target)."""
    about = page.results["problems"][problem]
    classes = 10 if problem.startswith("mnist") else 1
    return 32 * about["dim"] // classes


HEAD = """# Croupier beside what one would use instead

{versions}. delta = 1e-6 throughout. The rows of every data set are scaled by public constants and divided by their own length; all
methods get the same rows, split and constant column, and all gradient methods the same clipping.{quick}

**How settings were chosen.** Each method tries {settings} settings (one where it has no choice) on the same held-out tenth
of the training rows, at each data set, loss and epsilon, with one seed; the best is fitted to all training rows. Neither choosing
nor anything else looks at a test row before the end. *The choice itself is not paid for in epsilon, for any method*; the rows
"nothing tuned" show what Croupier's defaults give. Croupier's settings are tried with Gaussian noise of the same variance instead
of the protocol, for time; its final fits run the protocol. All randomness is seeded, so that two runs give the same table: these
fits are not private, and nothing is released.

**How to read it.** Accuracy in per cent, or R^2: median (least to most) over the seeds. With five seeds, least to most covers the
true median with probability 94 % (three seeds: 75 %). Time is that of a fit over that of scikit-learn without privacy with the same
seed, at epsilon = 1, one after the other on a shared machine, whose other work is in it; planning and calibration are in it too,
imports and reading data are not. Bits are what one user sends in all; a curator is handed the record itself. SVM and least
squares are fitted where they make sense: MNIST has ten classes, and KDD Cup 99 no numeric target.

## Asked and measured

| | asked | measured | holds |
|---|---|---|---|
"""
METHOD_HEAD = """
## Methods

| method | what | who must be trusted | neighbours | settings tried (first data set) |
|---|---|---|---|---|
"""
TRUST = {
    RAW: "a curator, with every record",
    SHUFFLED: "a shuffler, to mix noisy messages and tell no one whose they are",
    LOCAL: "nobody",
}
TABLE_HEAD = "| method | {epsilons} | time | bits a user | neighbours | trust |\n|---|{rules}---|---|---|---|\n"


def method_table(page: Page) -> str:
    lines = []
    for name, method in METHODS.items():
        tried = next((cell["settings"] for cell in page.results["tuned"] if cell["method"] == name), [])
        words = "; ".join(setting_words(setting) for setting in tried)
        lines.append(f"| {name} | {method.what} | {TRUST[method.trust]} | {method.neighbours} | {words} |\n")
    return "".join(lines)


def setting_words(setting: Setting) -> str:
    return (
        ", ".join(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in setting.items())
        or "defaults"
    )


def problem_table(page: Page, problem: str) -> str:
    about, epsilons = page.results["problems"][problem], page.epsilons(problem)
    plain = page.fits(problem, NO_PRIVACY, None)
    text = f"\n## {TITLES[problem]}\n\n{about['users']:,} users, {about['dim']:,} weights, {about['test_rows']:,} test rows"
    if plain:
        error = plain[0]["test_error"]
        shown_error = f"{error:.3f}" if problem.endswith("ridge") else f"{100 * error:.1f} points"
        text += f"; the choice of test rows is worth ±{shown_error} (95 %)"
        text += f"; scikit-learn takes {statistics.median(fit['seconds'] for fit in plain):.2f} s"
    text += f". Seeds: {len(plain)} at epsilon 1, {min(len(plain), PROBLEMS[problem][4])} elsewhere.\n\n"
    text += TABLE_HEAD.format(epsilons=" | ".join(f"{epsilon:g}" for epsilon in epsilons), rules="---|" * len(epsilons))
    for name, method in METHODS.items():
        if PROBLEMS[problem][1] not in method.losses:
            continue
        if name == NO_PRIVACY:
            text += table_row(page, problem, name, [plain] + [[]] * (len(epsilons) - 1), [], plain)
            continue
        text += table_row(page, problem, name, [page.fits(problem, name, epsilon) for epsilon in epsilons], epsilons, plain)
        if name in OURS and problem in UNTUNED:
            untuned = [page.fits(problem, name, epsilon, {}) if epsilon == TIMED else [] for epsilon in epsilons]
            text += table_row(page, problem, f"{name}, nothing tuned", untuned, epsilons, plain)
    return text


def table_row(page: Page, problem: str, label: str, fits: list[Any], epsilons: list[float], plain: list[dict[str, Any]]) -> str:
    method = METHODS[label.removesuffix(", nothing tuned")]
    cells = [spread(some, problem) for some in fits]
    for index, epsilon in enumerate(epsilons):
        if cells[index] == "-" and (why := page.missing(problem, label, epsilon)):
            cells[index] = f"not run: {why}"
    timed = fits[epsilons.index(TIMED)] if TIMED in epsilons else fits[0]
    sent = timed[0]["bits"] if timed else None
    bits = "-" if not timed else f"{sent:,}" if sent else f"the record ({record_bits(page, problem):,})"
    simulated = label.startswith("paper")
    ratio = "-" if simulated or not timed else f"{page.slower(problem, timed, plain):.2g}"
    label = f"{label} (simulated noise)" if simulated else label
    return f"| {label} | {' | '.join(cells)} | {ratio} | {bits} | {method.neighbours} | {method.trust} |\n"


def race_table(page: Page) -> str:
    plain = page.fits(RACE, NO_PRIVACY, None)
    if not plain:
        return ""
    rows = {"scikit-learn, no privacy": plain, "Croupier sequential": page.fits(RACE, "Croupier sequential", TIMED)}
    for setting in RACE_SETTINGS:
        rows[f"Croupier full, {setting_words(setting)}"] = page.fits(RACE, "Croupier full", TIMED, setting)
    rows["Croupier full, chosen setting"] = page.fits(RACE, "Croupier full", TIMED)
    rows["DP-GD"] = page.fits(RACE, "DP-GD", TIMED)
    rows |= {f"Opacus, {words}": fits for words, fits in opacus_fits(page).items()}
    text = "\n## Time on Covertype, logistic, epsilon = 1\n\n"
    text += "Opacus as documented reads a TensorDataset row by row; batches at once are our doing: the same rows.\n\n"
    text += "| | rounds | accuracy | seconds | over scikit-learn |\n|---|---|---|---|---|\n"
    for label, fits in rows.items():
        if fits:
            seconds = statistics.median(fit["seconds"] for fit in fits)
            shown_rounds = fits[0]["rounds"] or "-"
            text += f"| {label} | {shown_rounds} | {spread(fits, RACE)} | {seconds:.2f} | {page.slower(RACE, fits, plain):.2g} |\n"
    return text


PUBLISHED_HEAD = """
## Beside published figures

Yu, Zhang, Chen, Yin and Liu, "Gradient Perturbation is Underrated for Differentially Private Convex Optimization" (arXiv
1911.11363), Table 2: logistic regression on Adult, epsilon = 0.1, delta = 1 / n^2, replace-one, all with a trusted curator. Their
preparation of the data and their split differ from ours, so a point either way says little.

"""


def published_table(page: Page) -> str:
    problem, epsilon = PUBLISHED["problem"], PUBLISHED["epsilon"]
    if problem not in page.problems or page.results["quick"]:
        return ""
    delta = 1 / page.results["problems"][problem]["users"] ** 2
    text = PUBLISHED_HEAD
    text += "| method | accuracy | source |\n|---|---|---|\n"
    for name, value in PUBLISHED["accuracy"].items():
        text += f"| {name} | {100 * value:.1f} | published |\n"
    for name in OURS:
        text += f"| {name} | {spread(page.fits(problem, name, epsilon, delta=delta), problem)} | measured, delta = {delta:.2g} |\n"
    return text


def as_markdown(results: dict[str, Any]) -> str:
    page = Page(results)
    versions = ", ".join(f"{name} {version}" for name, version in results["about"].items())
    quick = "\n\n**A quick run**: two settings each, two seeds, epsilon = 1." if results["quick"] else ""
    text = HEAD.format(versions=versions, quick=quick, settings="two" if results["quick"] else "four")
    verdicts = {True: "yes", False: "**no**", None: "-"}
    text += "".join(f"| {what} | {want} | {got} | {verdicts[holds]} |\n" for what, want, got, holds in asked(page))
    missing = [TITLES[name].split(":")[0] for name in PROBLEMS if name not in page.problems]
    if missing and not results["quick"]:
        text += f"\nNot measured yet: {'; '.join(missing)}.\n"
    text += "\n![Accuracy over epsilon, one panel per data set and loss](peers.svg)\n"
    text += "\n## Where Croupier loses\n\n" + "".join(f"- {line}\n" for line in losses(page))
    text += METHOD_HEAD + method_table(page)
    text += "".join(problem_table(page, problem) for problem in page.problems)
    return text + race_table(page) + published_table(page)


COLOURS = {
    "Croupier full": "#0b4f9e",
    "Croupier sequential": "#3d9be0",
    "DP-GD": "#444444",
    "Opacus": "#d9781e",
    "diffprivlib": "#8a5aa8",
    "PrivUnit": "#b3423a",
}


def draw(results: dict[str, Any]) -> Figure:
    """Score over epsilon, one panel per data set and loss; a line is the median, a band least to most."""
    page = Page(results)
    columns = min(3, len(page.problems))
    rows = math.ceil(len(page.problems) / columns)
    figure = Figure(figsize=(4.2 * columns, 3.1 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, problem in zip(panels, page.problems, strict=False):
        draw_panel(panel, page, problem)
    for panel in panels[len(page.problems) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    return figure


def draw_panel(panel: Any, page: Page, problem: str) -> None:
    scale, unit = (1, "R²") if problem.endswith("ridge") else (100, "accuracy, %")
    plain = scale * page.score(problem, NO_PRIVACY, None)
    panel.axhline(plain, color="#888888", linestyle=":", label="scikit-learn, no privacy")
    for name, colour in COLOURS.items():
        found = [(epsilon, page.fits(problem, name, epsilon)) for epsilon in page.epsilons(problem)]
        points = [(epsilon, [scale * fit["score"] for fit in fits]) for epsilon, fits in found if fits]
        if points:
            at = [epsilon for epsilon, _ in points]
            style = {"color": colour, "marker": "o", "markersize": 3, "linewidth": 2 if name in OURS else 1.2}
            panel.plot(at, [statistics.median(scores) for _, scores in points], label=name, **style)
            panel.fill_between(
                at, [min(scores) for _, scores in points], [max(scores) for _, scores in points], color=colour, alpha=0.15
            )
    seen = [scale * page.score(problem, name, epsilon) for name in COLOURS for epsilon in page.epsilons(problem)]
    low = min([value for value in seen if not math.isnan(value)], default=0.0)
    floor = max(low, plain - (0.6 if scale == 1 else 35))  # what is far below would flatten the rest
    panel.set_ylim(floor - 0.04 * (plain - floor) - 1e-9, plain + 0.08 * (plain - floor) + 1e-9)
    panel.set_xscale("log")
    panel.set_xticks(page.epsilons(problem), [f"{epsilon:g}" for epsilon in page.epsilons(problem)])
    panel.minorticks_off()
    panel.set_title(TITLES[problem].split(":")[0], fontsize=9)
    panel.set_xlabel("epsilon", fontsize=8)
    panel.set_ylabel(unit, fontsize=8)
    panel.tick_params(labelsize=8)


def write(results: dict[str, Any], out: Path) -> None:
    (out / "peers.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "peers.md").write_text(as_markdown(results))
    with matplotlib.rc_context({"svg.hashsalt": "peers", "svg.fonttype": "none"}):
        draw(results).savefig(out / "peers.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with load.py")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--venvs", type=Path, default=cache / "croupier" / "peers", help="where peers' environments are made")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2, help="for what is not timed")
    parser.add_argument("--only", nargs="*", help="data sets, or data set/loss")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--redraw", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.redraw:
        results = json.loads((arguments.out / "peers.json").read_text())
    else:
        if arguments.data is None:
            parser.error("--data is needed: the folder with load.py")
        wanted = ["adult/logistic", "covtype/logistic"] if arguments.quick else list(PROBLEMS)
        problems = [name for name in wanted if not arguments.only or {name, name.split("/")[0]} & set(arguments.only)]
        arguments.seeds = min(arguments.seeds, 2) if arguments.quick else arguments.seeds
        results = run(arguments, problems)
    stored = not arguments.quick or arguments.out != parser.get_default("out")
    if stored:
        write(results, arguments.out)
    print(as_markdown(results))
    missed = [what for what, _, _, holds in asked(Page(results)) if holds is False and not results["quick"]]
    raise SystemExit("missed: " + "; ".join(missed) if missed else 0)


if __name__ == "__main__":
    main()
