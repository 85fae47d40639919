"""One round: randomizer, messages, shuffler and analyzer of the scalar and the vector sum, and exact randomness."""

from ..arithmetic import LinearVectors
from .analyzer import Analyzer, SumEstimate
from .messages import Counts, Encoded, Report, ShuffledBatch
from .randomizer import Randomizer
from .randomness import KeyedRandom, NotPrivateWarning, RandomSource, Secret, SecureRandom, SeededRandom
from .sampling import bernoulli, binomial, fair_binomial, permutation
from .shuffler import BatchTooSmallError, Shuffler
from .sparse import SparseVectors
from .sums import ScalarSum, VectorSum

__all__ = [
    "Analyzer",
    "BatchTooSmallError",
    "Counts",
    "Encoded",
    "KeyedRandom",
    "LinearVectors",
    "NotPrivateWarning",
    "RandomSource",
    "Randomizer",
    "Report",
    "ScalarSum",
    "Secret",
    "SecureRandom",
    "SeededRandom",
    "ShuffledBatch",
    "Shuffler",
    "SparseVectors",
    "SumEstimate",
    "VectorSum",
    "bernoulli",
    "binomial",
    "fair_binomial",
    "permutation",
]
