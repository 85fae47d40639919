"""One round: randomizer, messages, shuffler and analyzer of the scalar and the vector sum, and exact randomness."""

from .analyzer import Analyzer, SumEstimate
from .messages import Counts, Report, ShuffledBatch
from .randomizer import Randomizer
from .randomness import NotPrivateWarning, SecureRandom, SeededRandom
from .shuffler import BatchTooSmallError, Shuffler
from .sums import ScalarSum, VectorSum

__all__ = [
    "Analyzer",
    "BatchTooSmallError",
    "Counts",
    "NotPrivateWarning",
    "Randomizer",
    "Report",
    "ScalarSum",
    "SecureRandom",
    "SeededRandom",
    "ShuffledBatch",
    "Shuffler",
    "SumEstimate",
    "VectorSum",
]
