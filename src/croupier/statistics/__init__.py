"""One private round, many answers: queries with a proved range, and what is read from their noisy sums with error bars."""

from .asking import Account, Answer, PartAccount, ask, plan_for
from .checking import check
from .column_summary import LevelSummary, NumberSummary
from .describing import Description, describe
from .error_bars import Score
from .evaluating import Evaluation, evaluate, evaluation_query
from .guesses import LevelGuess, NumberGuess
from .histogram import Histogram, HistogramAnswer
from .linear import Coefficients, LeastSquares, least_squares
from .moments import Moments, MomentSums
from .newton import Newton, NewtonSums
from .one_vs_rest import OneVsRest
from .parts import Part
from .quantile_bins import QuantileBins
from .query import BlankStatistic, CheckedStatistic, CustomQuery, Statistic
from .scores import CellCounts, Errors
from .set_aside import SetAside
from .summaries import Summaries

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
