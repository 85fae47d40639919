"""One private round, many answers: queries with a proved range, and what is read from their noisy sums with error bars."""

from .asking import Account, Answer, PartAccount, ask, plan_for
from .columns import LevelGuess, LevelSummary, NumberGuess, NumberSummary
from .describing import Description, Summaries, describe
from .evaluating import Evaluation, evaluate, evaluation_query
from .histogram import Histogram, HistogramAnswer, Score
from .holdout import Part, SetAside
from .moments import Coefficients, LeastSquares, Moments, MomentSums, least_squares
from .newton import Newton, NewtonSums
from .query import BlankStatistic, CheckedStatistic, CustomQuery, Statistic, check
from .scores import CellCounts, Errors, OneVsRest, QuantileBins

__all__ = [
    "Account",
    "Answer",
    "BlankStatistic",
    "CellCounts",
    "CheckedStatistic",
    "Coefficients",
    "CustomQuery",
    "Description",
    "Errors",
    "Evaluation",
    "Histogram",
    "HistogramAnswer",
    "LeastSquares",
    "LevelGuess",
    "LevelSummary",
    "MomentSums",
    "Moments",
    "Newton",
    "NewtonSums",
    "NumberGuess",
    "NumberSummary",
    "OneVsRest",
    "Part",
    "PartAccount",
    "QuantileBins",
    "Score",
    "SetAside",
    "Statistic",
    "Summaries",
    "ask",
    "check",
    "describe",
    "evaluate",
    "evaluation_query",
    "least_squares",
    "plan_for",
]
