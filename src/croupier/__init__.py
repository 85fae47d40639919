"""Croupier: private sums, and models trained on them, in the shuffle model.

>>> import numpy as np, croupier as cr
>>> plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=2000, dim=5)     # what to send, and what it guarantees
>>> estimate = cr.VectorSum(plan).run(np.full((2000, 5), 0.3))         # a whole round in memory
>>> estimate.mean.shape, estimate.private
((5,), True)
"""

from . import statistics
from .optimizer import PanPrivate, Result, Schedule, minimize, schedule
from .privacy import ArgumentError, Guarantee, NoCertificateError, SumPlan, plan_scalar_sum, plan_sum
from .problem import CustomProblem, Problem, domains, losses
from .protocol import BatchTooSmallError, ScalarSum, SecureRandom, SeededRandom, SumEstimate, VectorSum
from .statistics import ask, evaluate

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "BatchTooSmallError",
    "CustomProblem",
    "Guarantee",
    "NoCertificateError",
    "PanPrivate",
    "Problem",
    "Result",
    "ScalarSum",
    "Schedule",
    "SecureRandom",
    "SeededRandom",
    "SumEstimate",
    "SumPlan",
    "VectorSum",
    "ask",
    "domains",
    "evaluate",
    "losses",
    "minimize",
    "plan_scalar_sum",
    "plan_sum",
    "schedule",
    "statistics",
]
