"""One private round, many answers: queries with a proved range, and what is read from their noisy sums with error bars."""

from .asking import Answer, ask
from .describing import Description, describe
from .evaluating import Evaluation, evaluate
from .heavy_hitters import HeavyHitters
from .histogram import Histogram
from .moments import Moments
from .query import CustomQuery, check
from .streams import Stream
from .tables import Table

__all__ = [
    "Answer",
    "CustomQuery",
    "Description",
    "Evaluation",
    "HeavyHitters",
    "Histogram",
    "Moments",
    "Stream",
    "Table",
    "ask",
    "check",
    "describe",
    "evaluate",
]
