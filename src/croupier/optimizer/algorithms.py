"""P_AGD (Algorithm 4): the accelerated stochastic approximation AC-SA of Lan (2012) along private mean gradients.

alpha_t = 2/(t+1) and L_t = damping / t (erratum 3). `damping` is t L_t, constant in t: 2 beta + (sigma/D) sqrt(T(T+1)(2T+1)/6)
gives the bound that `schedule` states. With `paper`, the printed alpha_t = 2/(t+2) and L_t = damping / (t+1) are used instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ..population.population import Query
from ..problem import Problem, Weighted
from ..problem.problem import Objective, Recast, log_odds
from ..validation import ArgumentError, real
from ._gradients import Gradients, Rows, View, opening_query, unmoved
from .phases import Phase, objective_of

Floats = NDArray[np.float64]
Oracle = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Iterate:
    """Where AC-SA stands before round t: theta_t and theta^ag_t."""

    t: int
    theta: Floats
    aggregate: Floats

    def middle(self, paper: bool = False) -> Floats:
        """theta^md_t, the point at which round t asks for the gradient (line 3)."""
        alpha = 2 / (self.t + 1 + paper)
        return alpha * self.theta + (1 - alpha) * self.aggregate

    def step(self, gradient: Floats, project: Callable[[Floats], Floats], damping: float, paper: bool = False) -> Iterate:
        """Lines 5 and 6: theta_{t+1} minimises <g, .> + L_t/2 |. - theta_t|^2 over the domain, then theta^ag_{t+1}."""
        alpha = 2 / (self.t + 1 + paper)
        theta = project(self.theta - (self.t + paper) / damping * gradient)
        return replace(self, t=self.t + 1, theta=theta, aggregate=alpha * theta + (1 - alpha) * self.aggregate)


def acsa(
    oracle: Oracle, project: Callable[[Floats], Floats], start: Floats, rounds: int, damping: float, *, paper: bool = False
) -> Floats:
    """Run AC-SA and return its last aggregate.

    Parameters
    ----------
    oracle : function
        From a point to the private mean gradient there; called once per round.
    project : function
        From a point to the nearest point of the domain.
    start : ndarray
        The first point.
    rounds : int
        T, how many rounds.
    damping : float
        t L_t: the larger, the shorter the steps.
    paper : bool, default False
        Whether the paper's printed steps are taken.

    Returns
    -------
    ndarray
        theta^ag_(T+1).

    Examples
    --------
    >>> import numpy as np
    >>> point = acsa(lambda theta: theta - 1, lambda theta: theta, np.zeros(2), 50, 2.0)
    >>> bool(np.allclose(point, 1, atol=0.01))
    True
    """
    iterate = Iterate(1, start, start)
    for _ in range(rounds):
        iterate = iterate.step(oracle(iterate.middle(paper)), project, damping, paper)
    return iterate.aggregate


# P_SGD (Algorithm 3) and P_GD (Algorithm 5): projected descent along private mean gradients, iterates averaged.
#
# They differ in who answers: new users in every round, or all users in every round. Both step against the gradient (the printed
# sign is an erratum, docs/deviations.md).

# Standard deviations of the product of two gradients of noise: below minus this many, it is not noise that turns them.
_TURNED = 5.0


def descent(
    oracle: Oracle,
    project: Callable[[Floats], Floats],
    start: Floats,
    rounds: int,
    step: float,
    *,
    tail: float = 0.0,
    momentum: float = 0.0,
    noise: float = 0.0,
) -> Floats:
    """Run projected descent and return the average of its points.

    Parameters
    ----------
    oracle : function
        From a point to the private mean gradient there; called once per round.
    project : function
        From a point to the nearest point of the domain.
    start : ndarray
        The first point.
    rounds : int
        T, how many rounds.
    step : float
        How far one round goes along a gradient.
    tail : float, default 0.0
        The part of the points that are averaged, the last ones, if not all of them: a later half has forgotten the start.
    momentum : float, default 0.0
        Nesterov's: the part of the last move that is made again, before the gradient is asked for.
    noise : float, default 0.0
        The standard deviation of a gradient's length, if steps may change: where a gradient turns against the one before, by more
        than noise explains and by most of its length, they are too long. They are halved, and the last move is forgotten.

    Returns
    -------
    ndarray
        The average of theta_0 .. theta_(T-1), where theta_t = project(theta_(t-1) - step * oracle(theta_(t-1))); with `tail`, of
        the last of theta_1 .. theta_T, that part of them rounded up.

    Examples
    --------
    >>> import numpy as np
    >>> point = descent(lambda theta: theta - 1, lambda theta: theta, np.zeros(2), 1000, 0.5)
    >>> bool(np.allclose(point, 1, atol=0.01))
    True
    """
    theta, move, last = start, np.zeros_like(start), np.zeros_like(start)
    average, kept, skipped = np.zeros_like(start), 0, rounds - math.ceil(tail * rounds)
    least = -_TURNED * noise**2 / math.sqrt(start.size)
    for t in range(rounds):
        before, ahead = theta, theta + momentum * move
        gradient = oracle(ahead)
        product, lengths = float(gradient @ last), float(np.linalg.norm(gradient) * np.linalg.norm(last))
        turned = bool(noise) and product < min(least, -lengths / 2)
        step = step / 2 if turned else step
        theta = project(ahead - step * gradient)
        move, last = (theta - before) * (not turned), gradient
        if not tail or t >= skipped:
            kept += 1
            average += ((theta if tail else before) - average) / kept
    return average


# What the phases of a run ask, and what they make of the answers: openings that find coordinates, and descent.


# The part of the points, the last ones, whose mean equal steps of AC-SA end at: fewer than a half, as noise has come on steadily.
_LAST = 0.1
# The curvature of several classes' mean loss, relative to that of equal classes at theta = 0; and how much of the way the classes'
# shares are taken to have come at least.
_CURVED, _LEAST_REACHED = 0.6, 0.7
# Standard errors by which the loss has to fall at weights for these to be lengthened, and by how much at most.
_LIKELY, _FARTHEST = 2.0, 2.0
# Normal rows and steps by which classes are made as likely as frequent; and standard errors beyond which this is not chance: that
# gradients follow what is likely, and that the mean target is not the mean prediction.
_DRAWN, _BALANCINGS, _SURELY = 1024, 20, 4.0


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
    if phase.focus and not log_odds(problem.loss):
        allowed = "0 except for the logistic loss of two classes"
        raise ArgumentError("phase.focus", phase.focus, allowed, "Make a schedule for this problem.")
    return opening_query(phase.algorithm, Rows(problem, phase.share), False).dim if phase.opens else problem.dim


def run_phases(
    ask: Ask,
    problem: Objective,
    phases: Sequence[Phase],
    start: Floats,
    blank: bool = False,
    *,
    done: Sequence[int] | None = None,
) -> Floats:
    """What phases make of the start, given who answers. What a phase asks follows from public facts and earlier answers alone.

    `done` are the rounds of each phase, if some were not made: it steps as planned, and ends as if planned to end there.
    """
    theta, found = start, None
    for planned, made in zip(phases, done or [phase.rounds for phase in phases], strict=True):
        if not made:
            continue
        phase = replace(planned, rounds=made)
        if phase.share is None:
            theta = _descended(ask, phase, problem, theta, blank)
            continue
        rows = Rows(cast(Problem, problem), phase.share)
        if phase.opens:
            query = opening_query(phase.algorithm, rows, blank)
            answers = [ask(lambda _, query=query: query, theta) for _ in range(phase.rounds)]  # type: ignore[misc]
            found = query.found(np.mean(answers, axis=0), *_doubt(phase))
        else:
            theta = _descended_in(ask, phase, rows, found or unmoved(rows), theta, blank, steady=planned.steady)
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


def _descended_in(ask: Ask, phase: Phase, rows: Rows, found: View, start: Floats, blank: bool, *, steady: bool) -> Floats:
    """The same in coordinates that were found: steps are taken there, points are told in the problem's own."""
    problem, coordinates = rows.problem, found.coordinates
    objective = Recast(problem, coordinates, phase.plan.norm, alike=phase.algorithm == "descent")
    radius = problem.domain.norm_bound
    begin = np.zeros(problem.dim) if found.start is None else found.start
    seen: list[tuple[Floats, Floats]] = []

    def gradient(point: Floats) -> Floats:
        nonlocal objective
        if phase.focus and len(seen) == phase.rounds // 3:  # the first third has come near
            objective = replace(objective, coordinates=replace(coordinates, focus=found.focus(point, phase.focus)))
        answer = ask(lambda theta: Gradients(objective, theta, blank), start + coordinates.weights(point))
        seen.append((point, answer))
        return answer

    def within(point: Floats) -> Floats:
        length = float(np.linalg.norm(point))
        return point if length <= radius else point * (radius / length)

    if steady:
        # noise that all rounds add alike is the least for the way they go: in most directions weights forget none of it
        step = 1 / cast(float, phase.damping)
        point = descent(gradient, within, begin, phase.rounds, step, tail=_LAST, noise=phase.gradient_std)
    elif phase.algorithm == "acsa":
        point = acsa(gradient, within, begin, phase.rounds, cast(float, phase.damping))
    else:
        step = cast(float, phase.step) / found.steepest
        how = {"momentum": phase.momentum, "noise": phase.gradient_std if phase.momentum else 0.0}
        point = descent(gradient, lambda point: point, begin, phase.rounds, step, tail=0.5, **how)
        if found.level is not None:
            point = levelled(point, coordinates.weights(point) / rows.factors, found)
        if problem.loss.outputs > 1 and found.middle is not None:
            point = settled(point.reshape(problem.loss.outputs, -1), phase, found.middle, step, seen)
            if not isinstance(problem.loss, Weighted):  # whose gradients say how much classes count, too
                point = balanced(point, phase, found, seen)
            point = point.ravel()
    if problem.loss.outputs > 1 and found.mean is not None and phase.algorithm == "acsa":
        point = tempered(point.reshape(problem.loss.outputs, -1), phase, seen, steady=steady).ravel()
    return problem.domain.project(start + coordinates.weights(point))


def levelled(point: Floats, weights: Floats, found: View) -> Floats:
    """Weights of least squares, moved along the mean row until the mean prediction is the mean target, but for its noise.

    Shortened gradients pull less where targets are rare and far, so a skewed target is predicted too near to where most are. The
    opening told mean row and mean target; `weights` are those of rows as it asked about them. All follows from released answers.
    """
    (level, noise, bound), mean = cast(tuple[float, float, float], found.level), cast(Floats, found.mean)
    missing, doubt = level - float(mean @ point), noise * math.hypot(bound, float(np.linalg.norm(weights)))
    sure = math.copysign(max(0.0, abs(missing) - _SURELY * doubt), missing)
    return np.asarray(point + sure * mean / max(float(mean @ mean), 1e-300))


def settled(points: Floats, phase: Phase, middle: Floats, step: float, seen: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Weights of several classes, one row each, drawn towards those of the classes' shares by what of them is noise.

    In whitened coordinates the loss is curved alike in all directions, about _CURVED times that of equal classes at theta = 0. So
    the mean of the later points is `reached` of the way to the minimiser, plus noise of known size. What lies along `middle`, where
    the mean row is, are the classes' shares: it is brought further on its way. The rest is multiplied by the factor that has the
    least expected error, or, where the loss surely falls along it, by how far it falls. All follows from released answers.
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
    kept = max(min(1.0, max(0.0, kept / reached)), lowest(rest, phase, middle, seen))
    return shares / max(reached, _LEAST_REACHED) + kept * rest


def lowest(rest: Floats, phase: Phase, middle: Floats, seen: Sequence[tuple[Floats, Floats]]) -> float:
    """Where along the ray to these weights, at 1, the mean loss is least, if it surely falls there; else 0.

    Where rows are short or classes far apart, descent ends early. A gradient along the point that it was asked at tells the slope
    there, with noise that is independent of the point: a line through the slopes of all rounds says where they are 0.
    """
    if len(seen) < 2:  # but for the first, which is 0, a run that was stopped may have no point
        return 0.0
    points = np.array([point.reshape(rest.shape) for point, _ in seen[1:]])
    points = (points - (points @ middle)[..., np.newaxis] * middle).reshape(len(points), -1)
    lengths, ray = np.linalg.norm(points, axis=1), rest.ravel()
    if not lengths.all() or not ray.any():
        return 0.0
    noise = math.hypot(phase.plan.noise_std / phase.mean_of, phase.plan.norm / math.sqrt(phase.mean_of * rest.size))
    slopes = np.array([point @ gradient for point, (_, gradient) in zip(points, seen[1:], strict=True)]) / lengths
    later = slopes[len(slopes) * 3 // 4 :]
    if float(later.sum()) >= -_LIKELY * noise * math.sqrt(len(later)):
        return 0.0
    ways = points @ ray / float(ray @ ray)
    (begin, rise), *_ = np.linalg.lstsq(np.column_stack([ways, ways**2]) / lengths[:, np.newaxis], slopes, rcond=None)
    return float(np.clip(-begin / rise, 0.0, _FARTHEST)) if rise > 0 else _FARTHEST


def balanced(points: Floats, phase: Phase, found: View, seen: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Weights of several classes, one row each, moved along the mean row until a class is as likely on average as it is frequent.

    Along the mean row a gradient says how much more likely a class is, on average, than frequent, times a factor that shortening
    leaves: a regression over the rounds finds it, and so the frequencies. Averages are those over normal rows with the moments that
    were found. Rare classes would take descent many rounds more. All of it follows from the released answers.
    """
    mean, moments, middle = found.mean, found.moments, found.middle
    if mean is None or moments is None or middle is None:
        return points
    values, vectors = np.linalg.eigh(moments - np.outer(mean, mean))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T  # the symmetric one: eigenvectors differ between processors
    half = np.random.default_rng(0).normal(size=(_DRAWN // 2, len(mean))) @ root
    rows = np.vstack([mean + half, mean - half])

    def average(weights: Floats) -> Floats:
        return np.asarray(softmax(rows @ weights.reshape(points.shape).T, axis=1).mean(axis=0))

    likely = np.array([average(point) for point, _ in seen])
    pulls = np.array([gradient.reshape(points.shape) @ middle for _, gradient in seen])
    moved, later = likely - likely.mean(axis=0), len(seen) // 2
    spread, noise = float(np.linalg.norm(moved)), phase.plan.noise_std / phase.mean_of
    if float(np.sum(moved * pulls)) <= _SURELY * noise * spread:
        return points
    factor = float(np.sum(moved * pulls)) / spread**2
    least = max(noise / (factor * math.sqrt(len(seen) - later)), 1 / phase.users)
    frequent = np.maximum(likely[later:].mean(axis=0) - pulls[later:].mean(axis=0) / factor, least)
    for _ in range(_BALANCINGS):
        points = points + np.outer(np.log(frequent / frequent.sum() / average(points)), middle) / float(np.linalg.norm(mean))
    return points


def tempered(points: Floats, phase: Phase, seen: Sequence[tuple[Floats, Floats]], *, steady: bool) -> Floats:
    """Weights of several classes, one row each, drawn towards 0, except for the constant's, where the loss rises along them.

    The slope of the mean loss along the ray from 0 to the weights is told at 0 by the first gradient, and on the way by all of
    them, whose noise is independent of where they are asked. Each is taken to be less than it seems, by its standard error, so
    that chance alone cuts little: the ray ends where a slope that is linear in between is 0. It follows from released answers.
    """
    rest, noise, (classes, columns) = points.copy(), phase.plan.noise_std / phase.mean_of, points.shape
    rest[:, -1] = 0
    reach, way, square, rise, lengths = float(np.sum(rest**2)), 0.0, 0.0, 0.0, 0.0
    for point, gradient in seen:
        there = point.reshape(classes, columns)[:, :-1]
        along = float(np.sum(there * rest[:, :-1])) / max(reach, 1e-300)  # how much of the way
        way, square, lengths = way + along, square + along**2, lengths + float(np.sum(there**2))
        rise += float(np.sum(there * gradient.reshape(classes, columns)[:, :-1]))
    slope = rise - noise * math.sqrt(lengths)  # times the way
    if way <= 0 or slope <= 0:
        return points
    # the first answer's own noise is in the weights, with this factor
    first = 1 / cast(float, phase.damping) if steady else -_response(phase)
    begin = float(rest.ravel() @ seen[0][1]) + first * noise**2 * (rest.size - classes)
    begin = min(begin, 0.0) - noise * math.sqrt(reach)
    kept = min(1.0, square / way * begin / (begin - slope / way))
    return np.asarray(points - (1 - kept) * rest)


def _response(phase: Phase) -> float:
    """By how much AC-SA's last aggregate moves per unit of the first gradient."""
    gradients = iter([1.0])
    start, damping = np.zeros(1), cast(float, phase.damping)
    return float(acsa(lambda theta: np.full(1, next(gradients, 0.0)), lambda theta: theta, start, phase.rounds, damping)[0])
