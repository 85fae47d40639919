"""A cross-check through another library: privacy loss distributions of `dp_accounting`, composed over coordinates and rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..validation import ArgumentError, how_to_install
from .exact import count_law

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
