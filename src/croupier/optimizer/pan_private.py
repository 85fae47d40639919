"""Pan-private AC-SA (Algorithm 6 and the four variants of Theorem C.3): records arrive one at a time, and an intruder who sees
the whole state once, together with the final output, learns no more about anyone than (epsilon, delta) allows.

The running sum is an integer vector. It begins as one draw of noise, takes in the rounded encodings of a batch's gradients, and
gets a second draw before it is used: an intruder who comes after a record is met by the first, one who came before it by the
second. Each draw is Bin(b * batch, p) per coordinate, certified like the noise of a shuffled batch (accounting Theorem B), so
no float is ever noisy. Nothing random is kept: every draw has a key of its own from the operating system, which is forgotten
with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy import Guarantee, SumPlan
from ..problem.problem import Objective
from ..protocol import SecureRandom, SeededRandom
from ..protocol._randomizer import Randomizer
from ..protocol._sampling import binomial
from ..protocol.randomness import RandomSource
from ..validation import blanks, numbers_or_nan, one_by_one
from ._gradients import Gradients
from .algorithms import Iterate
from .phases import Phase, Schedule, objective_of, start_point
from .planning import schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class PanState:
    """Everything that the algorithm remembers between two records.

    `phase`: Phases that have ended. `round`: The current round of the phase, from 1. `taken`: Records of the present batch that
    were taken in. `theta`, `aggregate`: Where AC-SA stands. `counts`: The running sum of encoded gradients, with its noise.
    """

    phase: int
    round: int
    taken: int
    theta: Floats
    aggregate: Floats
    counts: NDArray[np.int64]

    def to_json(self) -> str:
        """Write the state as JSON, as an intruder would see it."""
        plain = {"phase": self.phase, "round": self.round, "taken": self.taken}
        arrays = {name: getattr(self, name).tolist() for name in ("theta", "aggregate", "counts")}
        return json.dumps(plain | arrays)


class PanPrivate:
    """Pan-private training on a stream: feed it `users` records, one by one; `theta` may be read at will.

    It cannot be copied: two copies would continue from one draw of noise. The order of the stream is as it comes, so a bound on the
    population loss needs records in random order.

    Parameters
    ----------
    problem : Objective
        The loss and the domain.
    users : int
        Number of records to come.
    epsilon, delta : float
        The guarantee, for each user.
    method : str, default "auto"
        "acsa", "smoothed-acsa" or "phased"; default: by the loss.
    start : array-like, optional
        Where to begin; default: the projection of 0.
    seed : int, optional
        Seeds the noise. NOT private.
    invalid : {"refuse", "blank"}, default "refuse"
        As in `minimize`: an invalid record is refused, which reveals something about it to anyone who sees that, or is fed as a
        blank.
    **overrides : object
        For `schedule`: honest, rule, rounds, clip, curvature and others.

    Attributes
    ----------
    state : PanState
        All that is remembered.
    schedule : Schedule
        What is run.

    Raises
    ------
    ArgumentError
        If an argument is outside its range.

    Guarantee
    ---------
    (epsilon, delta) for *one* look at `state` at any moment, together with all of `theta`: two looks show what came between them.
    The intruder is assumed to see this object, not memory that the interpreter has freed.

    Examples
    --------
    >>> from croupier import PanPrivate
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> stream = PanPrivate(Problem(Logistic(), Ball(dim=2, radius=5.0)), users=1000, epsilon=1.0, delta=1e-6)
    >>> for _ in range(1000):
    ...     stream.feed([0.6, -0.8], 1)
    >>> stream.finished, stream.guarantee is not None
    (True, True)
    """

    def __init__(
        self,
        problem: Objective,
        users: int,
        *,
        epsilon: float,
        delta: float,
        method: str = "auto",
        start: ArrayLike | None = None,
        seed: int | None = None,
        invalid: str = "refuse",
        **overrides: Any,
    ) -> None:
        self.problem, self._blank = problem, blanks(invalid)
        begin = start_point(problem, start)
        self.schedule: Schedule = schedule(
            problem, users, epsilon=epsilon, delta=delta, method=method, interactivity="stream", start=begin, **overrides
        )
        self._seeded: RandomSource | None = None if seed is None else SeededRandom(seed)
        self.state = PanState(
            phase=0, round=1, taken=0, theta=begin, aggregate=begin, counts=self._noise(self.schedule.phases[0].plan)
        )

    def feed(self, x: ArrayLike, y: Any = None) -> None:
        """Take in one record; after the last of a batch, step. Records beyond the schedule are not looked at.

        The state changes once, at the end: a record that fails is not in it, and may be fed again.

        Parameters
        ----------
        x : array-like
            The record's features.
        y : object, optional
            Its label or target.

        Raises
        ------
        ArgumentError
            If the record is not valid and `invalid` is "refuse".
        """
        if self.finished:
            return
        phase, state = self._phase, self.state
        point = Iterate(state.round, state.theta, state.aggregate).middle(phase.paper_steps)
        row = np.asarray(numbers_or_nan(x) if self._blank else x, dtype=np.float64)[np.newaxis]
        target = None if y is None else one_by_one([y]) if self._blank else np.asarray([y])
        gradient = Gradients(objective_of(self.problem, phase), point, self._blank)(row, target)
        encoded = Randomizer(phase.plan).encoded(gradient, self._random()).ones
        fuller = replace(state, taken=state.taken + 1, counts=state.counts + encoded)
        self.state = fuller if fuller.taken < phase.batch else self._stepped(fuller, phase)

    def _stepped(self, state: PanState, phase: Phase) -> PanState:
        """Second draw, estimate, AC-SA step, and a first draw for the next batch."""
        plan = phase.plan
        counts = state.counts + self._noise(plan)
        centre = phase.batch * (2 * plan.noise_bits * plan.noise_probability + plan.levels / 2)
        mean = 2 * plan.norm / plan.levels * (counts - centre) / phase.batch
        here = Iterate(state.round, state.theta, state.aggregate)
        moved = here.step(mean, self.problem.domain.project, cast(float, phase.damping), phase.paper_steps)
        if state.round < phase.rounds:
            fresh = self._noise(plan)
            return replace(state, round=state.round + 1, taken=0, theta=moved.theta, aggregate=moved.aggregate, counts=fresh)
        last = state.phase + 1 == len(self.schedule.phases)
        fresh = np.zeros(self.problem.dim, dtype=np.int64) if last else self._noise(self.schedule.phases[state.phase + 1].plan)
        output = moved.aggregate
        return PanState(phase=state.phase + 1, round=1, taken=0, theta=output, aggregate=output, counts=fresh)

    def __reduce__(self) -> str:
        raise TypeError("a PanPrivate cannot be copied or pickled: two copies would continue from one draw of noise")

    @property
    def finished(self) -> bool:
        """Whether all records of the schedule were taken in."""
        return self.state.phase == len(self.schedule.phases)

    @property
    def theta(self) -> Floats:
        """The output once finished, the aggregate so far before."""
        return self.state.aggregate

    @property
    def guarantee(self) -> Guarantee | None:
        """For the state at any one moment together with the output; None if the randomness was seeded."""
        if self._seeded is not None:
            return None
        guarantees = [phase.plan.guarantee for phase in self.schedule.phases]
        worst = guarantees[0].worst_of(*guarantees[1:])
        return replace(worst, theorem=f"{worst.theorem}, pan-private by Lemma C.4")

    @property
    def _phase(self) -> Phase:
        return self.schedule.phases[self.state.phase]

    def _noise(self, plan: SumPlan) -> NDArray[np.int64]:
        return binomial(self._random(), plan.noise_bits * plan.users, plan.noise_probability, plan.dim)

    def _random(self) -> RandomSource:
        """A source for one draw. A kept key would let an intruder compute past noise, so none is kept."""
        return self._seeded or SecureRandom()
