"""One private round, many answers: queries with a proved range, and what is read from their noisy sums with error bars."""

from .asking import Answer, ask
from .columns import LevelGuess, NumberGuess
from .describing import Description, describe
from .evaluating import Evaluation, evaluate
from .histogram import Histogram, Score
from .moments import Moments
from .query import CustomQuery, check

__all__ = [
    "Answer",
    "CustomQuery",
    "Description",
    "Evaluation",
    "Histogram",
    "LevelGuess",
    "Moments",
    "NumberGuess",
    "Score",
    "ask",
    "check",
    "describe",
    "evaluate",
]
