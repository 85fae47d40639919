"""What the phases of a run ask, and what they make of the answers: openings that find coordinates, and descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..population.population import Query
from ..problem import Problem
from ..problem.coordinates import Recast
from ..problem.problem import Objective
from ..validation import ArgumentError, real
from ._gradients import Gradients
from ._openings import Rows, View, opening_query, unmoved
from .algorithms import acsa, descent
from .phases import Phase, objective_of

Floats = NDArray[np.float64]
# The curvature of several classes' mean loss, relative to that of equal classes at theta = 0; and how much of the way the classes'
# shares are taken to have come at least.
_CURVED, _LEAST_REACHED = 0.6, 0.7

# The answerer: from the query about a point, and this point, to the private mean that comes back in the schedule's next round.
# The point holds what of the query follows from earlier answers, so that a resumed run asks about the very same.
Ask = Callable[[Callable[[Floats], Query], Floats], Floats]


def dimension_of(problem: Objective, phase: Phase) -> int:
    """How many coordinates the vectors of a phase's rounds have; other coordinates need a problem of rows without l2."""
    if phase.share is None and not phase.opens:
        return problem.dim
    if not isinstance(problem, Problem) or problem.l2 or phase.share is None:
        allowed = "the Problem of a linear model without l2 for a phase in other coordinates"
        raise ArgumentError("problem", type(problem).__name__, allowed, "Make a schedule for this problem.")
    real("phase.share", phase.share, at_least=0, below=1, remedy="Make a schedule for this problem.")
    return opening_query(phase.algorithm, Rows(problem, phase.share), False).dim if phase.opens else problem.dim


def run_phases(ask: Ask, problem: Objective, phases: Sequence[Phase], start: Floats, blank: bool = False) -> Floats:
    """What phases make of the start, given who answers. What a phase asks follows from public facts and earlier answers alone."""
    theta, found = start, None
    for phase in phases:
        if not phase.rounds:
            continue
        if phase.share is None:
            theta = _descended(ask, phase, problem, theta, blank)
            continue
        rows = Rows(cast(Problem, problem), phase.share)
        if phase.opens:
            query = opening_query(phase.algorithm, rows, blank)
            answers = [ask(lambda _, query=query: query, theta) for _ in range(phase.rounds)]  # type: ignore[misc]
            found = query.found(np.mean(answers, axis=0), *_doubt(phase))
        else:
            theta = _descended_in(ask, phase, rows, found or unmoved(rows), theta, blank)
    return theta


def _doubt(phase: Phase) -> tuple[float, float]:
    """What an opening's mean is off by in a coordinate: the noise, and, for each unit of a vector's length, what comes of it that a
    block of a vector is that of a part of the people."""
    plan, people = phase.plan, phase.mean_of * phase.rounds
    return plan.noise_std * math.sqrt(phase.rounds) / people, math.sqrt((plan.blocks - 1) / (plan.padded * people))


def _descended(ask: Ask, phase: Phase, problem: Objective, theta: Floats, blank: bool) -> Floats:
    """What a phase makes of theta in the problem's own coordinates."""
    objective = objective_of(problem, phase)

    def gradient(point: Floats) -> Floats:
        return ask(lambda theta: Gradients(objective, theta, blank), point)

    if phase.algorithm == "acsa":
        return acsa(gradient, problem.domain.project, theta, phase.rounds, cast(float, phase.damping), paper=phase.paper_steps)
    return descent(gradient, problem.domain.project, theta, phase.rounds, cast(float, phase.step))


def _descended_in(ask: Ask, phase: Phase, rows: Rows, found: View, start: Floats, blank: bool) -> Floats:
    """The same in coordinates that were found: steps are taken there, points are told in the problem's own."""
    problem, coordinates = rows.problem, found.coordinates
    objective = Recast(problem, coordinates, phase.plan.norm, alike=phase.algorithm == "descent")
    radius = problem.domain.norm_bound
    begin = np.zeros(problem.dim) if found.start is None else found.start

    def gradient(point: Floats) -> Floats:
        return ask(lambda theta: Gradients(objective, theta, blank), start + coordinates.weights(point))

    def within(point: Floats) -> Floats:
        length = float(np.linalg.norm(point))
        return point if length <= radius else point * (radius / length)

    if phase.algorithm == "acsa":
        point = acsa(gradient, within, begin, phase.rounds, cast(float, phase.damping))
    else:
        step = cast(float, phase.step) / found.steepest
        how = {"momentum": phase.momentum, "noise": phase.gradient_std}
        point = descent(gradient, lambda point: point, begin, phase.rounds, step, tail=True, **how)
        if problem.loss.outputs > 1 and found.middle is not None:
            point = settled(point.reshape(problem.loss.outputs, -1), phase, found.middle, step).ravel()
    return problem.domain.project(start + coordinates.weights(point))


def settled(points: Floats, phase: Phase, middle: Floats, step: float) -> Floats:
    """Weights of several classes, one row each, drawn towards those of the classes' shares by what of them is noise.

    In whitened coordinates the loss is curved alike in all directions, about _CURVED times that of equal classes at theta = 0. So
    the mean of the later points is `reached` of the way to the minimiser, plus noise of known size. What lies along `middle`, where
    the mean row is, are the classes' shares: it is brought further on its way. The rest is multiplied by the factor that has the
    least expected error. All of it follows from the released answers.
    """
    classes, rounds = len(points), phase.rounds
    curved = min(1.0, _CURVED * cast(float, phase.step) * phase.plan.norm / (math.sqrt(1 - 1 / classes) * classes))
    later = np.arange(rounds // 2 + 1, rounds + 1)
    reached = 1 - float(np.mean((1 - curved) ** later))
    left = later[:, np.newaxis] - np.arange(rounds) - 1  # rounds from each answer to each of the later points
    weights = step * np.mean(np.where(left >= 0, (1 - curved) ** np.maximum(left, 0), 0.0), axis=0)
    noise = (points.size - classes) * (phase.plan.noise_std / phase.mean_of) ** 2 + phase.plan.norm**2 / phase.mean_of
    shares = np.outer(points @ middle, middle)
    rest = points - shares
    energy = float(np.sum(rest**2))
    kept = 1 - noise * float(np.sum(weights**2)) / energy if energy else 0.0
    return shares / max(reached, _LEAST_REACHED) + min(1.0, max(0.0, kept / reached)) * rest
