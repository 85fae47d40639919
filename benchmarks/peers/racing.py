"""Covertype by estimators as they come, in turns with scikit-learn and Opacus in the settings that were chosen for them.

Each has one thread. Judged is the processor's time, which other work on the machine changes least; that by the clock is told.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from threadpoolctl import threadpool_limits

import croupier as cr
from croupier.estimator import ShuffleLogisticRegression

from ..protocol import Results
from ..timing import forget_plans, timed
from . import catalogue, methods

PLAIN, DOCUMENTED = 'Croupier, rule="plain"', "Opacus, as documented"


def race(
    arguments: argparse.Namespace, stored: Results, task: methods.Task, X_test: np.ndarray, y_test: np.ndarray
) -> dict[str, Any]:
    """Seconds of each in turns, after fits that are not counted: they import and compile."""
    methods.PYTHONS.update(methods.make_environments(arguments.venvs.resolve(), ("opacus",)))
    X, classes = np.ascontiguousarray(task.X[:, :-1]), np.arange(2)

    def fit(rule: str) -> dict[str, Any]:
        forget_plans()
        public = {"epsilon": catalogue.TIMED, "delta": catalogue.DELTA, "classes": classes, "feature_norm": 1.0}
        model = ShuffleLogisticRegression(**public, rule=rule)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = timed(lambda: model.fit(X, task.y))
        return found | {"score": float(model.score(X_test[:, :-1], y_test))}

    def other(name: str, **more: Any) -> dict[str, Any]:
        epsilon = None if name == catalogue.NO_PRIVACY else catalogue.TIMED
        chosen = next(c for c in stored["tuned"] if (c["problem"], c["method"], c["epsilon"]) == (catalogue.RACE, name, epsilon))
        found = catalogue.METHODS[name].fit(task, epsilon, catalogue.DELTA, chosen["setting"] | more, seed=catalogue.SEED)
        return {"seconds": found.seconds, "cpu": found.cpu, "score": task.score(found.theta, X_test, y_test)}

    work: dict[str, Callable[[], dict[str, Any]]] = {
        catalogue.DEFAULT: lambda: fit("practical"),
        PLAIN: lambda: fit("plain"),
        catalogue.NO_PRIVACY: lambda: other(catalogue.NO_PRIVACY),
        DOCUMENTED: lambda: other("Opacus", loader="plain"),
    }
    if hasattr(os, "sched_setaffinity"):  # of this process, and of those that it starts
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as scratch, threadpool_limits(1):
        methods.SCRATCH["folder"] = Path(scratch)
        for name in (catalogue.DEFAULT, PLAIN):  # imports, compiles
            work[name]()
        turns = [{name: run() for name, run in work.items()} for _ in range(arguments.race)]
    return {"turns": turns, "croupier": cr.__version__, "python": platform.python_version(), "scikit-learn": sklearn.__version__}
