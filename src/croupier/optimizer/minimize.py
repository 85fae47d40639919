"""`minimize`: run a schedule over a population, one private round after the other."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..population import ArrayPopulation, Population
from ..privacy import is_proved
from ..privacy.ledger import Ledger
from ..problem import Objective, Problem
from ..protocol import RandomSource, SecureRandom, SeededRandom, permutation
from ..validation import ArgumentError, one_of, real
from .acsa import acsa
from .descent import descent
from .phases import Phase, Schedule, check_schedule, objective_of, start_point
from .result import Result, Round
from .schedule import schedule

Floats = NDArray[np.float64]
Callback = Callable[[Round], None]


class StopTraining(Exception):  # noqa: N818  (a request, not an error)
    """Raise it from a callback to stop after the present round; the result is that of the rounds done."""


def minimize(
    problem: Objective,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    method: str = "auto",
    interactivity: str = "sequential",
    calibration: str = "tight",
    honest: float = 1.0,
    start: ArrayLike | None = None,
    seed: int | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    **overrides: Any,
) -> Result:
    """Minimise the population loss of `problem` privately over the users in `data`.

    `data` is (X, y), X alone, or a Population. Each round asks a batch of users for the sum of their clipped gradients through
    one private vector sum; nothing else leaves a user. `honest` is the fraction of all users that is counted on.
    `overrides` go to `schedule`: schedule="practical", rounds, clip, groups, constants, neighbours, max_inflation. Guarantee:
    (epsilon, delta) for the whole transcript, so for theta and everything in `history`; the ledger refuses a round beyond it.

    >>> import numpy as np
    >>> from croupier import minimize
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0)
    >>> result = minimize(problem, (X, X[:, 0] > 0), epsilon=1.0, delta=1e-6)
    >>> result.method, result.private
    ('acsa', True)
    """
    if interactivity == "stream":
        raise ArgumentError(
            "interactivity", interactivity, "'sequential' or 'full' here", "Feed a stream to PanPrivate, record by record."
        )
    population = _population(data)
    if isinstance(problem, Problem) and isinstance(population, ArrayPopulation):
        _check_records(problem, population)
    begin = start_point(problem, start)
    chosen = schedule(
        problem,
        population.users,
        epsilon=epsilon,
        delta=delta,
        method=method,
        interactivity=interactivity,
        calibration=calibration,
        honest=honest,
        start=begin,
        **overrides,
    )
    return run(problem, population, chosen, start=begin, seed=seed, callbacks=callbacks)


def run(
    problem: Objective,
    population: Population,
    chosen: Schedule,
    *,
    start: Floats,
    seed: int | None = None,
    callbacks: Callback | Iterable[Callback] = (),
) -> Result:
    """Run a schedule. Users are assigned to rounds by a permutation that is drawn before any of them is asked."""
    _check_fit(problem, population, chosen)
    random: RandomSource = SecureRandom() if seed is None else SeededRandom(seed)
    order = permutation(random, population.users)
    asked = _Asked(problem, population, random, Ledger(population.users), _functions(callbacks))

    def result(theta: Floats, stopped: bool, covered: bool = True) -> Result:
        charged = asked.ledger.guarantee if covered else None
        return Result(
            theta=theta,
            guarantee=chosen.with_shortfall(charged) if asked.private and charged else None,
            schedule=chosen,
            history=tuple(asked.history),
            start=start,
            users=population.users,
            seed=seed,
            stopped=stopped,
        )

    theta, first = start, 0
    try:
        for index, phase in enumerate(chosen.phases):
            users = order[first : first + phase.users]
            first += phase.users
            theta = _run_phase(asked.oracle(index, phase, users, chosen.interactivity), problem, phase, theta)
    except StopTraining:
        return result(_replayed(problem, chosen, start, asked.history), stopped=True)
    except BaseException as error:  # what was released was paid for: it goes with the error
        if asked.history:
            # A round that fails may fail because of somebody's record: that the run ended there is then not covered.
            covered = not (asked.answering and isinstance(error, Exception))
            partial = result(_replayed(problem, chosen, start, asked.history), stopped=True, covered=covered)
            with contextlib.suppress(AttributeError, TypeError):  # an exception may not take attributes
                error.result = partial  # type: ignore[attr-defined]
            note = f"The {partial.rounds} rounds done before this are not lost: they are in this exception's .result"
            error.add_note(note if covered else f"{note}, which has no guarantee, since a record may have ended the run.")
        raise
    return result(theta, stopped=False)


def replay(problem: Objective, result: Result) -> Floats:
    """theta again, from the transcript alone: what the run did is what its schedule says, given the gradients that were released.

    Raises ValueError where the transcript asks about other points than the algorithm would have, or has other rounds.
    """
    planned = [phase.rounds for phase in result.schedule.phases]
    done = Counter(entry.phase for entry in result.history)
    rounds = [done[index + 1] for index in range(len(planned))]
    if sum(rounds) != len(result.history) or rounds > planned or (rounds != planned and not result.stopped):
        raise ValueError("the transcript does not belong to this problem and schedule: it has other rounds")
    return _replayed(problem, result.schedule, result.start, result.history)


def _replayed(problem: Objective, chosen: Schedule, start: Floats, history: Sequence[Round]) -> Floats:
    """What the algorithm makes of the rounds so far: each phase as if it had been planned to end there."""
    rounds = iter(history)
    done = Counter(entry.phase for entry in history)

    def recorded(theta: Floats) -> Floats:
        entry = next(rounds)
        if not np.allclose(entry.theta, theta, rtol=1e-9, atol=1e-12):
            raise ValueError("the transcript does not belong to this problem and schedule: it asks about other points")
        return entry.gradient

    theta = start
    for index, phase in enumerate(chosen.phases, start=1):
        if done[index]:
            theta = _run_phase(recorded, problem, replace(phase, rounds=done[index]), theta)
    return theta


def _run_phase(oracle: Callable[[Floats], Floats], problem: Objective, phase: Phase, theta: Floats) -> Floats:
    if phase.algorithm == "acsa":
        return acsa(oracle, problem.domain.project, theta, phase.rounds, phase.step, paper=phase.paper_steps)
    return descent(oracle, problem.domain.project, theta, phase.rounds, phase.step)


class _Asked:
    """Everything a run has asked for: hands out gradient oracles, charges the ledger before each round, keeps the transcript."""

    def __init__(
        self, problem: Objective, population: Population, random: RandomSource, ledger: Ledger, callbacks: tuple[Callback, ...]
    ) -> None:
        self.problem, self.population, self.random, self.ledger, self.callbacks = problem, population, random, ledger, callbacks
        self.history: list[Round] = []
        self.private = random.private
        self.answering = False

    def oracle(self, index: int, phase: Phase, users: NDArray[np.int64], interactivity: str) -> Callable[[Floats], Floats]:
        """The private mean gradient at theta over the next batch of users, or over all of them."""
        objective = objective_of(self.problem, phase)
        begun = len(self.history)

        def gradient(theta: Floats) -> Floats:
            t = len(self.history) - begun
            batch = users if interactivity == "full" else np.sort(users[t * phase.batch : (t + 1) * phase.batch])
            self.ledger.charge(batch, phase.plan)
            self.answering = True
            estimate = self.population.answer(lambda X, y: objective.gradients(theta, X, y), batch, phase.plan, self.random)
            self.answering = False
            self.private = self.private and estimate.private
            done = Round(index=len(self.history) + 1, phase=index + 1, theta=theta, gradient=estimate.mean, users=estimate.users)
            self.history.append(done)
            for callback in self.callbacks:
                callback(done)
            return done.gradient

        return gradient


def _functions(callbacks: Callback | Iterable[Callback]) -> tuple[Callback, ...]:
    every = (callbacks,) if callable(callbacks) or not isinstance(callbacks, Iterable) else tuple(callbacks)
    if not all(callable(callback) for callback in every):
        raise ArgumentError("callbacks", every, "functions of a Round", "Pass a function, or a list of them.")
    return every


def _population(data: Any) -> Population:
    if hasattr(type(data), "answer") and hasattr(data, "users"):  # of the type: a table may have columns of these names
        return cast(Population, data)
    if isinstance(data, list):
        raise ArgumentError("data", "a list", "(X, y), X or a Population", "Pass a tuple of features and targets, or an array.")
    if isinstance(data, tuple):
        if len(data) != 2:
            raise ArgumentError(
                "data", f"a tuple of {len(data)}", "(X, y), X or a Population", "Pass the features and the targets."
            )
        return ArrayPopulation(*data)
    return ArrayPopulation(data)


def _check_fit(problem: Objective, population: Population, chosen: Schedule) -> None:
    """Refuse a schedule that was made for another problem or more users, before anyone is asked."""
    check_schedule(chosen, population.users)
    remedy = "Make a schedule for this problem and this population."
    for phase in chosen.phases:
        real("phase.step", phase.step, above=0, remedy=remedy)
        one_of("phase.algorithm", phase.algorithm, ("descent", "acsa"), remedy)
        plan = phase.plan
        too_short = phase.bound is not None and plan.norm < problem.lipschitz * (1 - 1e-9)
        if plan.dim != problem.dim or too_short or not is_proved(plan):
            raise ArgumentError("chosen", str(phase), "a phase that fits its plan and the problem", remedy)


def _check_records(problem: Problem, population: ArrayPopulation) -> None:
    """Refuse records that the loss cannot take before anyone is asked."""
    if population.y is None:
        raise ArgumentError("data", "X alone", "(X, y) for this loss", "Pass the labels or targets.")
    if population.X.shape[1] != problem.features:
        remedy = f"Make the domain's dim {problem.loss.outputs} x the columns of X, or drop columns."
        raise ArgumentError("X.shape", population.X.shape, f"(users, {problem.features}) for this problem", remedy)
    problem.loss.targets(population.y)
