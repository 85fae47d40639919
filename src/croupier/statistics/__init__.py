"""One private round, many answers: queries with a proved range, and what is read from their noisy sums with error bars."""

from .ask import Account, Answer, ask, plan_for
from .check import check
from .histogram import Histogram, HistogramAnswer
from .linear import LeastSquares, least_squares
from .moments import Moments, MomentSums
from .query import CustomQuery, Query

__all__ = [
    "Account",
    "Answer",
    "CustomQuery",
    "Histogram",
    "HistogramAnswer",
    "LeastSquares",
    "MomentSums",
    "Moments",
    "Query",
    "ask",
    "check",
    "least_squares",
    "plan_for",
]
