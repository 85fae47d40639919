"""One round: randomizer, messages, shuffler and analyzer of the scalar and the vector sum, and exact randomness."""

from .randomness import NotPrivateWarning, SecureRandom, SeededRandom
from .shuffler import BatchTooSmallError, Counts, Report, Shuffler
from .sums import Analyzer, ScalarSum, SumEstimate, VectorSum

__all__ = [
    "Analyzer",
    "BatchTooSmallError",
    "Counts",
    "NotPrivateWarning",
    "Report",
    "ScalarSum",
    "SecureRandom",
    "SeededRandom",
    "Shuffler",
    "SumEstimate",
    "VectorSum",
]
