"""One private round, many answers: queries with a proved range, and what is read from their noisy sums with error bars."""

from .asking import Account, Answer, ask, plan_for
from .checking import check
from .evaluating import Evaluation, evaluate
from .histogram import Histogram, HistogramAnswer
from .linear import LeastSquares, least_squares
from .moments import Moments, MomentSums
from .query import CheckedStatistic, CustomQuery, Statistic
from .scores import CellCounts, Errors, Score

__all__ = [
    "Account",
    "Answer",
    "CellCounts",
    "CheckedStatistic",
    "CustomQuery",
    "Errors",
    "Evaluation",
    "Histogram",
    "HistogramAnswer",
    "LeastSquares",
    "MomentSums",
    "Moments",
    "Score",
    "Statistic",
    "ask",
    "check",
    "evaluate",
    "least_squares",
    "plan_for",
]
