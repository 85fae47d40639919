"""Croupier: private sums, and models trained on them, in the shuffle model.

>>> import numpy as np, croupier as cr
>>> plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=2000, dim=5)     # what to send, and what it guarantees
>>> estimate = cr.VectorSum(plan).run(np.full((2000, 5), 0.3))         # a whole round in memory
>>> estimate.mean.shape, estimate.private
((5,), True)

Names, and the rooms behind them, are imported when they are first used: `cr.estimator`, too, needs no import of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import client as client
    from . import estimator as estimator
    from . import features as features
    from . import flower as flower
    from . import masked as masked
    from . import optimizer as optimizer
    from . import population as population
    from . import privacy as privacy
    from . import problem as problem
    from . import protocol as protocol
    from . import report as report
    from . import statistics as statistics
    from . import table as table
    from .estimator import (
        PrivacyAccount,
        ShuffleHuberRegressor,
        ShuffleLinearRegression,
        ShuffleLinearSVC,
        ShuffleLogisticRegression,
        ShuffleLogit,
        ShuffleQuantileRegressor,
        ShuffleRidge,
        ShuffleScaler,
        choose,
        load_model,
    )
    from .optimizer import PanPrivate, Result, Schedule, minimize, schedule
    from .privacy import ArgumentError, Guarantee, NoCertificateError, SumPlan, plan_scalar_sum, plan_sum
    from .problem import CustomProblem, Problem, domains, losses
    from .protocol import BatchTooSmallError, ScalarSum, SecureRandom, SeededRandom, SumEstimate, VectorSum
    from .statistics import HeavyHitters, Stream, Table, ask, describe, evaluate

__version__ = "0.2.0"

__all__ = [
    "ArgumentError",
    "BatchTooSmallError",
    "CustomProblem",
    "Guarantee",
    "HeavyHitters",
    "NoCertificateError",
    "PanPrivate",
    "PrivacyAccount",
    "Problem",
    "Result",
    "ScalarSum",
    "Schedule",
    "SecureRandom",
    "SeededRandom",
    "ShuffleHuberRegressor",
    "ShuffleLinearRegression",
    "ShuffleLinearSVC",
    "ShuffleLogisticRegression",
    "ShuffleLogit",
    "ShuffleQuantileRegressor",
    "ShuffleRidge",
    "ShuffleScaler",
    "Stream",
    "SumEstimate",
    "SumPlan",
    "Table",
    "VectorSum",
    "ask",
    "choose",
    "describe",
    "domains",
    "evaluate",
    "load_model",
    "losses",
    "minimize",
    "plan_scalar_sum",
    "plan_sum",
    "schedule",
]

# The rooms, and what each of them lends to the top.
_ROOMS: dict[str, tuple[str, ...]] = {
    "client": (),
    "estimator": (
        "PrivacyAccount",
        "ShuffleHuberRegressor",
        "ShuffleLinearRegression",
        "ShuffleLinearSVC",
        "ShuffleLogisticRegression",
        "ShuffleLogit",
        "ShuffleQuantileRegressor",
        "ShuffleRidge",
        "ShuffleScaler",
        "choose",
        "load_model",
    ),
    "features": (),
    "flower": (),
    "masked": (),
    "optimizer": ("PanPrivate", "Result", "Schedule", "minimize", "schedule"),
    "population": (),
    "privacy": ("ArgumentError", "Guarantee", "NoCertificateError", "SumPlan", "plan_scalar_sum", "plan_sum"),
    "problem": ("CustomProblem", "Problem", "domains", "losses"),
    "protocol": ("BatchTooSmallError", "ScalarSum", "SecureRandom", "SeededRandom", "SumEstimate", "VectorSum"),
    "report": (),
    "statistics": ("HeavyHitters", "Stream", "Table", "ask", "describe", "evaluate"),
    "table": (),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a room, or a name from its room, when it is first asked for, and keep it."""
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All names, used or not."""
    return sorted({*globals(), *__all__, *_ROOMS})
