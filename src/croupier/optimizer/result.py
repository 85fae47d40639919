"""What a run returns: theta, what it reveals, what it cost, and how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import JsonText
from ..population.population import Query
from ..privacy import Guarantee
from ..privacy import _statements as words
from ..privacy.guarantee import known_fields
from ..problem.problem import Objective
from ..validation import ArgumentError, whole
from .algorithms import run_phases
from .phases import Schedule, check_schedule

Floats = NDArray[np.float64]
# How far the same code may be apart on two processors. Claims within it are raised to what is certified here.
_ANOTHER_PROCESSOR = 1e-12
# How far points may be, relative to their largest entry, where coordinates differ there in the last bit of single precision.
_SINGLE = 1e-5


def nearly(then: Floats | None, now: Floats | None) -> bool:
    """Whether two arrays, or None, are the same but for rounding: coordinates that rounds find have single precision."""
    if then is None or now is None:
        return then is now
    off = 1e-12 + _SINGLE * float(np.abs(then).max(initial=0.0))
    return then.shape == now.shape and bool(np.allclose(then, now, rtol=0, atol=off))


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """One round as everyone may know it: the point asked about, the private mean that came back, and of how many users.

    `index`, `phase`: Its number in the run, and that of its phase, both from 1. `theta`: The point asked about, in the problem's
    own coordinates; in an opening, which asks about rows, where the run stands. `gradient`: The private mean that came back: the
    gradient there, in the coordinates of its phase; in an opening, the mean or the second moments of rows. `users`: Users that
    answered. Where lots are secret, the public number of reports, blanks included, the same in every round; the sum was divided by
    all users / rounds (`Phase.mean_of`).
    """

    index: int
    phase: int
    theta: Floats
    gradient: Floats
    users: int

    def __post_init__(self) -> None:
        self.theta.setflags(write=False)
        self.gradient.setflags(write=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in plain JSON types."""
        plain = {"index": self.index, "phase": self.phase, "users": self.users}
        return plain | {"theta": self.theta.tolist(), "gradient": self.gradient.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Round:
        """Read a round from its dictionary."""
        known_fields(cls, values)
        return cls(**values | {name: np.asarray(values[name], dtype=np.float64) for name in ("theta", "gradient")})


@dataclass(frozen=True, kw_only=True, eq=False)
class Result(JsonText):
    """The minimiser that a run found, what it reveals, and the transcript.

    Parameters
    ----------
    theta : ndarray
        The minimiser.
    guarantee : Guarantee or None
        What the whole transcript reveals about one user; None if the randomness was seeded: such a theta is not private.
    schedule : Schedule
        What was run.
    history : tuple of Round
        The transcript: every private mean gradient and where it was asked for; no user data.
    start : ndarray
        Where the run began.
    users : int
        All users, asked or not.
    seed : int or None
        What the randomness was seeded by.
    stopped : bool, default False
        Whether the run was cut short. The guarantee is then that of the whole plans of the phases begun, and holds even if
        it was stopped because of what was seen.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import minimize
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> result = minimize(Problem(Logistic(), Ball(dim=3, radius=5.0)), (X, X[:, 0] > 0), epsilon=1.0, delta=1e-6)
    >>> result.private, result.guarantee.delta(1.0) <= 1e-6, Result.from_json(result.to_json()).rounds == result.rounds
    (True, True, True)
    """

    theta: Floats
    guarantee: Guarantee | None
    schedule: Schedule
    history: tuple[Round, ...]
    start: Floats
    users: int
    seed: int | None
    stopped: bool = False

    @property
    def private(self) -> bool:
        """Whether there is a guarantee."""
        return self.guarantee is not None

    @property
    def method(self) -> str:
        """The schedule's algorithm."""
        return self.schedule.method

    @property
    def rounds(self) -> int:
        """Rounds that were run."""
        return len(self.history)

    @property
    def bound(self) -> float | None:
        """The schedule's bound on expected excess loss; None if the run was cut short or has none."""
        return None if self.stopped else self.schedule.bound

    @property
    def bits_per_user(self) -> int:
        """The most bits that one user sends in the whole run."""
        return self.schedule.bits_per_user

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The users, or with secret lots the reports, of every round."""
        return tuple(entry.users for entry in self.history)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in plain JSON types.

        Returns
        -------
        dict
            Input of `from_dict`.
        """
        return {
            "theta": self.theta.tolist(),
            "guarantee": self.guarantee.to_dict() if self.guarantee else None,
            "schedule": self.schedule.to_dict(),
            "history": [entry.to_dict() for entry in self.history],
            "start": self.start.tolist(),
            "users": self.users,
            "seed": self.seed,
            "stopped": self.stopped,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Result:
        """Read a result from its dictionary. Its plans and its guarantee are certified again.

        Parameters
        ----------
        values : dict
            Output of `to_dict`.

        Returns
        -------
        Result
            With a guarantee that is no stronger than what is certified here.

        Raises
        ------
        ArgumentError
            If a field is unknown or missing, or the guarantee goes beyond the plans.
        """
        known_fields(cls, values)
        if values["seed"] is not None and values["guarantee"] is not None:
            raise ArgumentError("guarantee", values["guarantee"], "null for a seeded run", "A seeded result is not private.")
        history = tuple(Round.from_dict(entry) for entry in values["history"])
        result = cls(
            theta=np.asarray(values["theta"]),
            guarantee=Guarantee.from_dict(values["guarantee"]) if values["guarantee"] else None,
            schedule=Schedule.from_dict(values["schedule"]),
            history=history,
            start=np.asarray(values["start"]),
            users=values["users"],
            seed=values["seed"],
            stopped=values["stopped"],
        )
        return result if result.guarantee is None else replace(result, guarantee=result._proved(result.guarantee))

    def _proved(self, claim: Guarantee) -> Guarantee:
        """The claim, refused where it goes beyond the plans of the phases begun, which were certified when they were read.

        No figure that is returned is stronger than the certified one: another processor may have computed it a little smaller.
        """
        remedy = "Do not use this file."
        begun = self.history[-1].phase if self.history else 1
        whole("history[-1].phase", begun, at_least=1, at_most=len(self.schedule.phases), remedy=remedy)
        check_schedule(self.schedule, self.users)
        for place, (entry, before) in enumerate(zip(self.history, (None, *self.history), strict=False), start=1):
            whole("history.phase", entry.phase, at_least=before.phase if before else 1, at_most=begun, remedy=remedy)
            whole("history.index", entry.index, at_least=place, at_most=place, remedy=remedy)
            phase = self.schedule.phases[entry.phase - 1]
            # with blanks all rounds are as large, except for the bad reports that a deployed one may leave out
            fewest = phase.plan.honest_users if phase.lots is None else phase.batch - phase.lots.most_excluded
            whole("history.users", entry.users, at_least=fewest, at_most=phase.batch, remedy=remedy)
            if entry.gradient.shape != (phase.plan.dim,):  # a certificate for fewer coordinates has a smaller mu
                raise ArgumentError("history.gradient", entry.gradient.shape, f"({phase.plan.dim},), as in its plan", remedy)
        for number, rounds in Counter(entry.phase for entry in self.history).items():
            whole("rounds in history", rounds, at_least=1, at_most=self.schedule.phases[number - 1].rounds, remedy=remedy)
        proved = self.schedule.guarantee_of(self.schedule.phases[:begun])
        kept = _no_stronger(claim, proved)
        if kept is None:
            raise ArgumentError("guarantee", str(claim), f"no stronger than its plans: {proved}", remedy)
        return kept

    def __str__(self) -> str:
        promise = str(self.guarantee) if self.guarantee else f"NOT PRIVATE ({words.SEEDED_OR_STAND_IN})"
        return f"{self.method}, {self.rounds} rounds over {self.users} users; {promise}"


def _no_stronger(claim: Guarantee, proved: Guarantee) -> Guarantee | None:
    """The claim, no figure of it stronger than the certified one; None if it claims more than another processor could have."""
    figures = ("mu", "slack", "pure_epsilon", "pure_rounds", "honest")
    pairs = list(zip(claim.allocations, proved.allocations, strict=False))
    weaker = all(getattr(claim, name) >= getattr(proved, name) * (1 - _ANOTHER_PROCESSOR) for name in figures)
    weaker &= all(one.mu >= other.mu * (1 - _ANOTHER_PROCESSOR) and one.rounds == other.rounds for one, other in pairs)
    names = [(g.neighbours, g.theorem, len(g.allocations), g.watched is None) for g in (claim, proved)]
    if not weaker or names[0] != names[1]:
        return None
    watched = claim.watched and proved.watched and _no_stronger(claim.watched, proved.watched)
    if claim.watched is not None and watched is None:
        return None
    allocations = tuple(replace(one, mu=max(one.mu, other.mu)) for one, other in pairs)
    raised = {name: max(getattr(claim, name), getattr(proved, name)) for name in figures}
    return replace(claim, **raised, allocations=allocations, watched=watched)


# What the algorithms make of gradients: those that users are asked for, or those of a transcript.


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
        If the transcript asks about other points than the algorithm would have, or has other rounds.

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

    def recorded(query: Callable[[Floats], Query], theta: Floats) -> Floats:
        entry = next(rounds)
        if not nearly(entry.theta, theta):
            raise ValueError("the transcript does not belong to this problem and schedule: it asks about other points")
        return entry.gradient

    done = [rounds_of[number] for number in range(1, len(planned.phases) + 1)]
    return run_phases(recorded, problem, planned.phases, start, done=done)
