"""What is minimised: losses, domains, and the problems they make, with constants from public facts."""

from .checking import check
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
from .objective import Objective
from .problem import Problem
from .smoothed import Smoothed
from .weighted import Weighted

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
    "Smoothed",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "Weighted",
    "WholeSpace",
    "check",
]
