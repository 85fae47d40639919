"""What the algorithms make of gradients: those that users are asked for, or those of a transcript."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..problem import Objective
from .accelerated import acsa
from .phases import Phase, Schedule
from .projected import descent
from .result import Result, Round

Floats = NDArray[np.float64]


def replay(problem: Objective, result: Result) -> Floats:
    """Compute theta again, from the transcript alone.

    What the run did is what its schedule says, given the gradients that were released.

    Parameters
    ----------
    problem : Objective
        What was minimised.
    result : Result
        Of `minimize` or `run`.

    Returns
    -------
    ndarray
        The result's theta.

    Raises
    ------
    ValueError
        Where the transcript asks about other points than the algorithm would have, or has other rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import minimize
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> problem = Problem(Logistic(), Ball(dim=3, radius=5.0))
    >>> result = minimize(problem, (X, X[:, 0] > 0), epsilon=1.0, delta=1e-6)
    >>> bool(np.allclose(replay(problem, result), result.theta))
    True
    """
    planned = [phase.rounds for phase in result.schedule.phases]
    rounds_of = Counter(entry.phase for entry in result.history)
    rounds = [rounds_of[index + 1] for index in range(len(planned))]
    if sum(rounds) != len(result.history) or rounds > planned or (rounds != planned and not result.stopped):
        raise ValueError("the transcript does not belong to this problem and schedule: it has other rounds")
    return replayed(problem, result.schedule, result.start, result.history)


def replayed(problem: Objective, planned: Schedule, start: Floats, history: Sequence[Round]) -> Floats:
    """What the algorithm makes of the rounds so far: each phase as if it had been planned to end there."""
    rounds = iter(history)
    rounds_of = Counter(entry.phase for entry in history)

    def recorded(theta: Floats) -> Floats:
        entry = next(rounds)
        if not np.allclose(entry.theta, theta, rtol=1e-9, atol=1e-12):
            raise ValueError("the transcript does not belong to this problem and schedule: it asks about other points")
        return entry.gradient

    theta = start
    for index, phase in enumerate(planned.phases, start=1):
        if rounds_of[index]:
            theta = run_phase(recorded, problem, replace(phase, rounds=rounds_of[index]), theta)
    return theta


def run_phase(oracle: Callable[[Floats], Floats], problem: Objective, phase: Phase, theta: Floats) -> Floats:
    """What a phase makes of theta, given who answers for the gradients."""
    if phase.algorithm == "acsa":
        return acsa(oracle, problem.domain.project, theta, phase.rounds, cast(float, phase.damping), paper=phase.paper_steps)
    return descent(oracle, problem.domain.project, theta, phase.rounds, cast(float, phase.step))
