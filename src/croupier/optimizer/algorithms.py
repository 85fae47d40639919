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
from ..problem import Problem
from ..problem.problem import Coordinates, Objective, Recast, log_odds
from ..validation import ArgumentError, real
from ._gradients import Gradients, Rows, View, opening_query, shrunk, unmoved
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
# Where on a line its rounds are at most, 1 being the weights that descent found, and where it ends at least: near 0 weights still
# say which class is likelier. And how much its first two rounds, which may be far from where slopes are 0, count beside the others.
_NEAREST, _FARTHEST, _FAR = 0.1, 3.0, 0.1
# Standard errors by which the loss has to fall where a line was asked about for it to end beyond.
_LIKELY = 2.0
# Standard errors beyond which it is not chance that the mean target is not the mean prediction.
_SURELY = 4.0
# Rounds for gradients of several classes of which one can be spared for the classes' frequencies.
_LEAST_WITH_SHARES = 4


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
    theta, found, line = start, None, None
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
        elif phase.algorithm == "line":
            theta = searched(ask, phase, rows.problem, line, blank) if line is not None else theta
        else:
            line = _descended_in(ask, phase, planned, rows, found or unmoved(rows), theta, blank)
            theta = line.end
    return theta


@dataclass(frozen=True, eq=False)
class Line:
    """From weights that answer all rows alike, or those that a descent was told to begin at, to those that it ended at.

    `way` is how scores change on the line, in the coordinates that the descent was in, one row for each class; `odds` are the
    log-odds of the answer that the mean row has at its begin, None for other begins; and it `ends` where weights may not be longer.
    """

    begin: Floats
    end: Floats
    coordinates: Coordinates
    way: Floats
    odds: Floats | None
    ends: bool = False


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


def _descended_in(ask: Ask, phase: Phase, planned: Phase, rows: Rows, found: View, start: Floats, blank: bool) -> Line:
    """The same in coordinates that were found: steps are taken there, points are told in the problem's own."""
    problem, coordinates, rounds = rows.problem, found.coordinates, phase.rounds
    objective = Recast(problem, coordinates, phase.plan.norm, alike=phase.algorithm != "acsa")
    radius = problem.domain.norm_bound
    begin = np.zeros(problem.dim) if found.start is None else found.start
    answered = 0

    def gradient(point: Floats) -> Floats:
        nonlocal objective, answered
        if phase.focus and answered == phase.rounds // 3:  # the first third has come near
            objective = replace(objective, coordinates=replace(coordinates, focus=found.focus(point, phase.focus)))
        answered += 1
        return ask(lambda theta: Gradients(objective, theta, blank), start + coordinates.weights(point))

    def within(point: Floats) -> Floats:
        length = float(np.linalg.norm(point))
        return point if length <= radius else point * (radius / length)

    cold = problem.loss.outputs > 1 and bool(problem.constant) and not start.any()
    if cold and planned.rounds >= _LEAST_WITH_SHARES:
        start, rounds = constant_answer(ask, phase, problem, blank), rounds - 1
    if not rounds:
        point = begin
    elif planned.steady:
        # noise that all rounds add alike is the least for the way they go: in most directions weights forget none of it
        step = 1 / cast(float, phase.damping)
        point = descent(gradient, within, begin, rounds, step, tail=_LAST, noise=phase.gradient_std)
    elif phase.algorithm == "acsa":
        point = acsa(gradient, within, begin, rounds, cast(float, phase.damping))
    else:
        step = cast(float, phase.step) / found.steepest
        how = {"momentum": phase.momentum, "noise": phase.gradient_std if phase.momentum else 0.0}
        point = descent(gradient, lambda point: point, begin, rounds, step, tail=0.5, **how)
        if found.level is not None:
            point = levelled(point, coordinates.weights(point) / rows.factors, found)
    free = start + coordinates.weights(point)
    end = problem.domain.project(free)
    kept = min(1.0, float(np.linalg.norm(end)) / max(float(np.linalg.norm(free)), 1e-300))  # below 1 where the ball ends it
    points = kept * point.reshape(problem.loss.outputs, -1)
    way = points - points.mean(axis=0)
    if found.middle is not None:
        way = way - np.outer(way @ found.middle, found.middle)
    if not cold or found.mean is None:
        return Line(start, end, coordinates, way, None, ends=kept < 1)
    odds = kept * start.reshape(points.shape)[:, -1] * problem.constant + (points - way) @ found.mean
    return Line(end - coordinates.weights(way.ravel()), end, coordinates, way, odds, ends=kept < 1)


def constant_answer(ask: Ask, phase: Phase, problem: Problem, blank: bool) -> Floats:
    """Weights of several classes that answer every row alike, each class as likely as it is frequent: by one round.

    At theta = 0 all classes are equally likely, so the gradient of the constant alone tells frequencies, those of weighted classes
    times their weights. They are drawn to equal ones by what of them is noise or chance, and so they are where people are missing.
    """
    classes, steepest, weights = problem.loss.outputs, problem.loss.slope_bound(0.0), class_weights(problem)
    alone = np.zeros(problem.features)
    alone[-1] = phase.plan.norm / (steepest * problem.constant)  # so that no gradient is shortened
    objective = Recast(problem, Coordinates(alone), phase.plan.norm, alike=phase.algorithm != "acsa")
    answer = ask(lambda theta: Gradients(objective, theta, blank), np.zeros(problem.dim)).reshape(classes, -1)[:, -1]
    noise, chance = steepest * _noise(phase), steepest / math.sqrt(classes * phase.mean_of)
    pulls = shrunk((answer - answer.mean()) * steepest / phase.plan.norm, math.hypot(noise, chance))
    # a pull is the mean weight / classes - weight x frequency, and frequencies add up to 1
    counted = (1 + float(np.sum(pulls / weights))) / float(np.sum(1 / weights)) - pulls
    odds = np.log(np.maximum(counted, max(noise, float(counted.sum()) / phase.mean_of)))
    theta = np.zeros((classes, problem.features))
    theta[:, -1] = (odds - odds.mean()) / problem.constant
    return problem.domain.project(theta.ravel())


def class_weights(problem: Problem) -> Floats:
    """How much each class counts."""
    return np.array(getattr(problem.loss, "weights", np.ones(problem.loss.outputs)))


def _noise(phase: Phase) -> float:
    """That of an entry of a round's mean gradient, per unit of its clip."""
    return phase.plan.noise_std / (phase.mean_of * phase.plan.norm)


def levelled(point: Floats, weights: Floats, found: View) -> Floats:
    """Weights of least squares, moved along the mean row until the mean prediction is the mean target, but for its noise.

    Shortened gradients pull less where targets are rare and far, so a skewed target is predicted too near to where most are. The
    opening told mean row and mean target; `weights` are those of rows as it asked about them. All follows from released answers.
    """
    (level, noise, bound), mean = cast(tuple[float, float, float], found.level), cast(Floats, found.mean)
    missing, doubt = level - float(mean @ point), noise * math.hypot(bound, float(np.linalg.norm(weights)))
    sure = math.copysign(max(0.0, abs(missing) - _SURELY * doubt), missing)
    return np.asarray(point + sure * mean / max(float(mean @ mean), 1e-300))


def searched(ask: Ask, phase: Phase, problem: Problem, line: Line, blank: bool) -> Floats:
    """Weights of several classes on a line, where the mean loss is least by the slopes of some rounds.

    Noise makes weights too long, and gradients that were shortened where too long pull at them too little. These rounds shorten
    gradients for all labels alike, so that the least loss stays where it is, and turn rows to the few directions of the line, where
    they are short. The first, at the begin, also tells frequencies anew. All follows from released answers.
    """
    seen, weights = along(line.coordinates, line.way, phase.plan.norm)
    constant = None
    if line.odds is not None and len(seen.turn) < problem.features:
        constant, alone = len(seen.turn), np.zeros((1, problem.features))
        alone[0, -1] = phase.plan.norm / (problem.loss.slope_bound(0.0) * problem.constant)
        seen = replace(seen, turn=np.vstack([seen.turn, alone]))
    objective, farthest = Recast(problem, seen, phase.plan.norm), 1.0 if line.ends else _FARTHEST
    move, shift = line.end - line.begin, np.zeros_like(line.begin)
    places: list[float] = []
    slopes: list[float] = []

    def at(place: float) -> Floats:
        return problem.domain.project(line.begin + place * move + max(0.0, 1 - place) * shift)

    for number in range(phase.rounds):
        place = float(number) if number < 2 else level_place(places, slopes, farthest)
        places.append(min(farthest, max(place, 2 * place - 1)))  # slopes flatten: beyond the end they are 0 farther than it seems
        answer = ask(lambda theta: Gradients(objective, theta, blank), at(places[-1])).reshape(weights.shape)
        slopes.append(float(np.sum(answer * weights)))
        if number == 0 and constant is not None:
            moved = shifted(cast(Floats, line.odds), answer[:, constant], phase, problem)
            shift.reshape(weights.shape)[:, -1] = moved / problem.constant
    if len(places) < 2:  # of a run that was stopped
        return line.end
    # no farther than slopes were asked for, unless there the loss falls by more than noise and chance; at most twice as far
    chance = phase.plan.norm / math.sqrt(phase.mean_of * len(weights))
    doubt = _LIKELY * float(np.linalg.norm(weights)) * math.hypot(phase.plan.noise_std / phase.mean_of, chance)
    falls = slopes[int(np.argmax(places))] < -doubt
    theta = at(level_place(places, slopes, min(farthest, 2 * max(places)) if falls else max(places))).reshape(weights.shape)
    return np.asarray(
        (theta - theta.mean(axis=0)).ravel()
    )  # what all classes have is noise: now a weight above 0 speaks for its own


def shifted(odds: Floats, answer: Floats, phase: Phase, problem: Problem) -> Floats:
    """By how much the log-odds of an answer that all rows have change, so that classes are as likely as they are frequent.

    `answer` is the mean gradient of the constant there. What of it is noise or chance changes nothing; and where gradients were
    shortened, or people are missing, the change is too small.
    """
    likely, weights, steepest = softmax(odds), class_weights(problem), problem.loss.slope_bound(0.0)
    gap = (answer - answer.mean()) * steepest / phase.plan.norm
    # a gap is likely x the mean weight - weight x frequency, and frequencies add up to 1
    mean_weight = (1 + float(np.sum(gap / weights))) / float(np.sum(likely / weights))
    mean_weight = min(max(mean_weight, float(weights.min())), float(weights.max()))
    noise = steepest / mean_weight * _noise(phase)
    chance = math.sqrt((1 - float(likely @ likely)) * float(weights.max()) / (mean_weight * len(odds) * phase.mean_of))
    gap = shrunk(gap / mean_weight, math.hypot(noise, chance))
    frequent = np.maximum(likely - gap, np.minimum(likely, max(noise, 1 / phase.mean_of)))
    return np.asarray(np.log(frequent / frequent.sum()) - np.log(likely))


def along(coordinates: Coordinates, way: Floats, norm: float) -> tuple[Coordinates, Floats]:
    """Coordinates of the few directions that scores along `way` depend on, and the weights there that have these scores."""
    left, sizes, directions = np.linalg.svd(way, full_matrices=False)
    told = int(np.sum(sizes > 1e-9 * float(sizes.max())))
    # of all bases of these directions the one that no sign or order of singular vectors changes: these differ between processors
    few = (left if len(way) <= way.shape[1] else directions.T)[:, :told] @ directions[:told]
    length = norm * math.sqrt(way.shape[1] / max(1, told))  # so that gradients are short, if all directions of rows are as long
    weights = np.zeros_like(way)
    weights[:, : len(few)] = way @ few.T / length
    turn = coordinates.turn * few if coordinates.turn.ndim == 1 else few @ coordinates.turn
    return replace(coordinates, turn=length * turn), weights


def level_place(places: Sequence[float], slopes: Sequence[float], farthest: float) -> float:
    """Where on a line slopes are 0, by the straight line nearest to them: between those below 0 and those above.

    Where slopes do not rise, 1 or, if they are above 0, near the begin.
    """
    where, slope = np.asarray(places), np.asarray(slopes)
    counts = np.where(np.arange(len(where)) < 2, _FAR if len(where) > 2 else 1.0, 1.0)
    middle, mean = float(np.average(where, weights=counts)), float(np.average(slope, weights=counts))
    rise = float(np.sum(counts * (where - middle) * (slope - mean)) / np.sum(counts * (where - middle) ** 2))
    found = middle - mean / rise if rise > 0 else 1.0 if mean < 0 else 0.0
    ends = float(np.max(where[slope < 0], initial=_NEAREST)), float(np.min(where[slope >= 0], initial=farthest))
    return float(np.clip(found, max(min(ends), _NEAREST), max(ends)))
