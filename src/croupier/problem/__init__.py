"""What is minimised: losses, domains, and the problems they make, with constants from public facts."""

from .checking import check
from .domains import Ball, Box, Domain, Simplex, WholeSpace
from .losses import (
    Absolute,
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
from .problem import CustomProblem, Objective, Problem, Smoothed

__all__ = [
    "Absolute",
    "Ball",
    "Box",
    "CustomProblem",
    "Domain",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
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
    "WholeSpace",
    "check",
]
