"""The exact divergence between neighbouring populations, by enumerating what the analyst can see.

Feasible for few coordinates; there it is the truth that every certificate must stay above. Beside it, for many: the privacy loss
distributions of another library.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from ..validation import ArgumentError, Found, how_to_install

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


# A cross-check through another library: privacy loss distributions of `dp_accounting`, composed over coordinates and rounds.


# Outcomes rarer than this under both users are left out; together they are far below any delta of interest.
_RARE = 1e-24
# The accountant's convolutions are not exact below this; smaller figures are reported as 0.
_FLOOR = 1e-13


def loss_distribution(
    first: float, second: float, *, trials: int, probability: float, pessimistic: bool = False, discretization: float = 1e-4
) -> Any:
    """Make dp_accounting's privacy loss distribution of one coordinate. Needs the extra `bench`."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415  (an optional extra)
    except ImportError as error:
        raise ImportError(f"pld_delta needs dp-accounting: {how_to_install('bench')}") from error
    a, b = count_law(first, trials, probability), count_law(second, trials, probability)
    size = max(a.size, b.size)
    a, b = (np.pad(law, (0, size - law.size)) for law in (a, b))
    # An outcome is left out of both laws or of none: left out of one, it would count as certain exposure.
    kept = np.flatnonzero(((a > _RARE) | (b > _RARE)) & (a > 0) & (b > 0))
    logs = [dict(zip(kept.tolist(), np.log(law[kept]).tolist(), strict=True)) for law in (b, a)]
    return pld.from_two_probability_mass_functions(
        *logs, pessimistic_estimate=pessimistic, value_discretization_interval=discretization
    )


def pld_delta(
    first: Sequence[float],
    second: Sequence[float],
    *,
    trials: int,
    probability: float,
    epsilon: float,
    rounds: int = 1,
    discretization: float = 1e-4,
) -> float:
    """Compute delta at epsilon between two users by dp_accounting, in the worse direction. Needs the extra `bench`.

    The users are given by their encodings in levels. Losses are rounded down to steps of `discretization`, so the result is
    optimistic: a certificate below it is refuted.

    Examples
    --------
    >>> 0.05 < pld_delta([0.0], [1.0], trials=100, probability=0.5, epsilon=0.0) < 0.08
    True
    """
    if len(first) != len(second) or not first:
        raise ArgumentError("second", list(second), f"as long as first ({len(first)})", "Give both users' encodings.")
    worst = 0.0
    for one, other in ((first, second), (second, first)):
        total = None
        for (a, b), times in Counter(zip(one, other, strict=True)).items():
            coordinate = loss_distribution(a, b, trials=trials, probability=probability, discretization=discretization)
            part = coordinate.self_compose(times * rounds)
            total = part if total is None else total.compose(part)
        worst = max(worst, float(total.get_delta_for_epsilon(epsilon))) if total else worst
    return worst if worst > _FLOOR else 0.0
