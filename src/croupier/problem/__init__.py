"""What is minimised: losses, domains, and the problems they make, with constants from public facts."""

from .classification import Weighted
from .custom import CustomProblem
from .domains import Ball, Box, Domain, L1Ball, Simplex, WholeSpace
from .losses import (
    Absolute,
    CappedLogistic,
    CappedMultinomial,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Multinomial,
    Pinball,
    SmoothedHinge,
    Squared,
    SquaredHinge,
)
from .problem import Objective, Problem, check

__all__ = [
    "Absolute",
    "Ball",
    "Box",
    "CappedLogistic",
    "CappedMultinomial",
    "CustomProblem",
    "Domain",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "L1Ball",
    "Logistic",
    "Loss",
    "Multinomial",
    "Objective",
    "Pinball",
    "Problem",
    "Simplex",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "Weighted",
    "WholeSpace",
    "check",
]
