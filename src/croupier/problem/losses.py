"""The losses of linear models: what a loss is, those for classification, those for regression."""

from .classification import CappedLogistic, CappedMultinomial, Hinge, Logistic, Multinomial, SmoothedHinge, SquaredHinge
from .loss import Loss
from .regression import Absolute, EpsilonInsensitive, Huber, Pinball, Squared

__all__ = [
    "Absolute",
    "CappedLogistic",
    "CappedMultinomial",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "Pinball",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
]
