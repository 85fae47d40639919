"""Settings chosen on held-out training rows, then fits to all of them, judged on the test rows."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import multiprocessing
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from threadpoolctl import threadpool_limits

import croupier as cr
from croupier.privacy._tight import parameters as plans

from .. import command
from ..cells import Cells, fingerprint
from ..datasets import loader
from ..protocol import Results
from . import catalogue, methods, racing
from .catalogue import METHODS, PROBLEMS, Method
from .methods import NotAvailableError, Setting, Task


@lru_cache(maxsize=2)
def data(folder: Path, problem: str) -> tuple[Task, np.ndarray, np.ndarray]:
    """What is learned from, and the test rows and targets."""
    name, loss, *_ = PROBLEMS[problem]
    source = loader(folder)
    if loss != "ridge":
        X, y, X_test, y_test = source.load(name)
        return Task(loss, X, y, int(y.max()) + 1), X_test, y_test
    column, scaled = catalogue.TARGETS[name]
    X, _, X_test, _ = source.load(name, normalise=False)
    (X, y), (X_test, y_test) = (
        (source.unit_rows(np.delete(some, column, axis=1)), scaled(some[:, column])) for some in (X, X_test)
    )
    return Task(loss, X.astype(np.float32), np.clip(y, -1, 1)), X_test.astype(np.float32), y_test


@lru_cache(maxsize=2)
def held_out(task: Task) -> tuple[Task, np.ndarray, np.ndarray]:
    """Nine tenths of the training rows to try settings on, and the tenth to judge them on."""
    order = np.random.default_rng(catalogue.HELD_OUT_SEED).permutation(len(task.X))
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


def measure_cell(job: dict[str, Any], folder: Path, pythons: dict[str, str], scratch: Path) -> dict[str, Any]:
    """One cell: the settings of a method tried, or one fit. What runs beside others has one core."""
    methods.PYTHONS.update(pythons)
    methods.SCRATCH["folder"] = scratch
    task, X_test, y_test = data(folder, job["problem"])
    method = METHODS[job["method"]]
    with threadpool_limits(1 if multiprocessing.parent_process() else None):
        if job["do"] == "tune":
            return tune(task, method, job["epsilon"], job["delta"], job["settings"])
        return final(task, X_test, y_test, method, job)


def budgets(problem: str, quick: bool) -> list[tuple[float, float]]:
    """(epsilon, delta) at which a problem is looked at."""
    return [(epsilon, catalogue.DELTA) for epsilon in PROBLEMS[problem][2] if not quick or epsilon == catalogue.TIMED]


def tuning_jobs(problem: str, users: int, quick: bool) -> list[dict[str, Any]]:
    """One job for every method and budget: to try its settings."""
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
            for epsilon, delta in [(None, None)] if name == catalogue.NO_PRIVACY else budgets(problem, quick):
                if epsilon is None or epsilon in method.epsilons:
                    add(name, epsilon, delta)
    if problem == catalogue.PUBLISHED["problem"] and not quick:
        for name in catalogue.OURS:
            add(name, catalogue.PUBLISHED["epsilon"], 1 / users**2)
    return jobs


def fit_jobs(tuned: list[dict[str, Any]], problem: str, seeds: int) -> list[dict[str, Any]]:
    """Final fits, seed by seed, so that what is compared in time runs one after the other; first of all the fit without privacy."""
    jobs = []

    def add(cell: dict[str, Any], setting: Setting, seed: int, **more: Any) -> None:
        timed = cell["epsilon"] in (None, catalogue.TIMED) and cell["delta"] in (None, catalogue.DELTA)
        kept = {key: cell[key] for key in ("problem", "method", "epsilon", "delta")}
        job = {"do": "timed" if timed else "fit", **kept, "setting": setting, "seed": catalogue.SEED + seed, **more}
        if job not in jobs:
            jobs.append(job)

    for seed in range(seeds):
        for cell in tuned:
            if "missing" in cell or (seed >= PROBLEMS[problem][4] and cell["epsilon"] not in (None, catalogue.TIMED)):
                continue
            add(cell, cell["setting"], seed)
            if cell["epsilon"] != catalogue.TIMED:
                continue
            if cell["method"] in catalogue.OURS and problem in catalogue.UNTUNED:
                add(cell, {}, seed)
            if problem == catalogue.RACE and cell["method"] == "Opacus":
                add(cell, {**cell["setting"], "loader": "plain"}, seed)
            if problem == catalogue.RACE:
                for setting in catalogue.RACE_SETTINGS.get(cell["method"], ()):
                    add(cell, setting, seed)
            if problem == catalogue.AGAIN and seed == 0:
                add(cell, cell["setting"], seed, again=True)
    return jobs


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--data", type=Path, help="folder with load.py")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--venvs", type=Path, default=cache / "croupier" / "peers", help="where peers' environments are made")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2, help="for what is not timed")
    parser.add_argument("--only", nargs="*", help="data sets, or data set/loss")
    parser.add_argument("--race", type=int, help="only times of fits as they come, in so many turns; the rest stays as stored")


def measure(arguments: argparse.Namespace) -> Results:
    """All problems, or those that were asked for."""
    if arguments.data is None:
        arguments.error("--data is needed: the folder with load.py")
    if arguments.race:
        stored = command.read("peers", arguments.folder)
        return stored | {"race": racing.race(arguments, stored, *data(arguments.data.resolve(), catalogue.RACE))}
    wanted = ["adult/logistic", "covtype/logistic"] if arguments.quick else list(PROBLEMS)
    problems = [name for name in wanted if not arguments.only or {name, name.split("/")[0]} & set(arguments.only)]
    arguments.seeds = min(arguments.seeds, 2) if arguments.quick else arguments.seeds
    return run(arguments, problems)


def run(arguments: argparse.Namespace, problems: list[str]) -> Results:
    """These problems, one after the other."""
    pythons = methods.make_environments(arguments.venvs.resolve())
    here = Path(__file__)
    code = fingerprint(*(here.with_name(name) for name in ("catalogue.py", "measuring.py", "methods.py", "foreign.py")))
    settings = {"quick": arguments.quick, "code": code, "data": fingerprint(arguments.data / "load.py")}
    cells = Cells(arguments.folder / ("peers.quick.cells.jsonl" if arguments.quick else "peers.cells.jsonl"), settings)
    results: dict[str, Any] = {"problems": {}, "tuned": [], "fits": []}
    for problem in problems:
        with tempfile.TemporaryDirectory() as scratch:
            work = partial(measure_cell, folder=arguments.data.resolve(), pythons=pythons, scratch=Path(scratch))
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
    """The versions of everything that was compared."""
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
