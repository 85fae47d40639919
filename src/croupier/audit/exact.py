"""The exact divergence between neighbouring populations, by enumerating what the analyst can see.

Feasible for few coordinates; there it is the truth that every certificate must stay above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from ..validation import ArgumentError, Found

Law = NDArray[np.float64]
_MAX_OUTCOMES = 20_000_000


def count_law(encoding: float, trials: int, probability: float, size: int | None = None) -> Law:
    """Compute the law of one coordinate: floor(a) + Bernoulli(frac a) + Bin(trials, probability), a the encoding in levels.

    Other users only shift the count. `size` pads with zeros up to this many outcomes.

    Examples
    --------
    >>> count_law(0.5, 1, 0.5).round(12).tolist()
    [0.25, 0.5, 0.25]
    """
    whole = math.floor(encoding)
    fraction = encoding - whole
    noise = binom.pmf(np.arange(trials + 1), trials, probability)
    law = np.zeros(max(size or 0, whole + trials + 2))
    law[whole : whole + trials + 1] += (1 - fraction) * noise
    law[whole + 1 : whole + trials + 2] += fraction * noise
    return law


def hockey_stick(first: Law, second: Law, epsilon: float) -> float:
    """Compute the smallest delta for two laws at epsilon, in the worse direction.

    Examples
    --------
    >>> hockey_stick(np.array([0.75, 0.25]), np.array([0.25, 0.75]), 0.0)
    0.5
    """
    factor = math.exp(epsilon)
    return max(
        math.fsum(np.maximum(0, first - factor * second).ravel()),
        math.fsum(np.maximum(0, second - factor * first).ravel()),
    )


def exact_delta(first: Sequence[float], second: Sequence[float], *, trials: int, probability: float, epsilon: float) -> float:
    """Compute the exact delta at epsilon between two users, all coordinates together, by enumeration.

    The users are given by their encodings in levels. Every certificate must stay above the result.

    Examples
    --------
    >>> round(exact_delta([0.0], [1.0], trials=100, probability=0.5, epsilon=0.0), 4)
    0.0796
    """
    if len(first) != len(second) or not first:
        raise ArgumentError("second", list(second), f"as long as first ({len(first)})", "Give both users' encodings.")
    size = trials + 2 + math.floor(max(*first, *second))
    if size ** len(first) > _MAX_OUTCOMES:
        raise ArgumentError(
            "first",
            Found(f"has {len(first)} coordinates of {size} outcomes"),
            f"at most {_MAX_OUTCOMES} outcomes together",
            "Use pld_delta.",
        )
    laws = [[count_law(a, trials, probability, size) for a in user] for user in (first, second)]
    joint = [reduce(np.multiply.outer, coordinates) for coordinates in laws]
    return hockey_stick(joint[0], joint[1], epsilon)
