"""What a schedule is: phases of rounds under plans, what they prove, and what a phase descends on. `schedule` chooses them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..files import JsonText
from ..privacy import Guarantee, LotsPlan, SumPlan
from ..privacy._crowd import honest_in_batch, surely_honest
from ..privacy.guarantee import known_fields
from ..problem import Problem
from ..problem.problem import Objective, Smoothed
from ..validation import ArgumentError, Found, one_of, real, whole

Floats = NDArray[np.float64]
INTERACTIVITY = ("sequential", "full", "stream")
# Phases that ask about rows: those after them descend in coordinates that are found from their answers.
OPENINGS = ("mean", "spread", "moments")
# All that a phase may run.
ALGORITHMS = ("descent", "acsa", "line", *OPENINGS)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One run of an inner algorithm: `rounds` rounds of `batch` users each, under one plan. `schedule` makes it.

    With secret lots every one of `users` is in one round that only the dealer knows; phases may then share the lots, each with
    rounds and a plan of its own.

    Parameters
    ----------
    algorithm : {"descent", "acsa", "line", "mean", "spread", "moments"}
        What is run: an algorithm; "line", which searches the line from a constant answer to the weights of the phase before; or an
        opening, which asks for the mean of rows, for this and the mean squares of columns, or for second moments. Later phases then
        descend in coordinates that are found from its answers.
    rounds : int
        Number of rounds.
    batch : int
        Users of a round; with secret lots the public number of its reports, blanks included.
    users : int
        Users of all rounds.
    step : float or None
        How far descent goes along a gradient; in coordinates that were found, over the largest share of rows' energy in one of
        their directions. None except for descent.
    damping : float or None
        AC-SA's t L_t, or L_t where it is `steady`: the larger, the shorter its steps; None except for AC-SA.
    smoothing : float or None
        beta of the Moreau envelope, if the loss is smoothed.
    distance : float
        D, from the start to any point it is compared with.
    gradient_std : float
        The square root of the total variance of a mean gradient.
    bound : float or None
        On the expected excess loss of this phase's output; None if the steps or the clipping have none.
    plan : SumPlan
        Of one round's sum.
    paper_steps : bool, default False
        Whether the paper's printed steps are taken.
    lots : LotsPlan, optional
        With secret lots: the promise over all rounds, those of other phases included.
    share : float, optional
        In other coordinates, and in openings: the part of a row's squared length that the constant has in them. Gradients are then
        shortened to the plan's norm, for all labels alike except in AC-SA, and descent averages the last half of its points.
    momentum : float, default 0.0
        Of descent in other coordinates: the part of the last move that is made again.
    focus : float, default 0.0
        Of descent for two classes: how much less people count in later rounds whose odds are far from even, from 0 to 1.

    Raises
    ------
    ArgumentError
        If there is a step for AC-SA, a damping for descent, or one of them for an opening or a line.

    Examples
    --------
    >>> from croupier.optimizer import schedule
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> planned = schedule(Problem(Logistic(), Ball(dim=2, radius=5.0)), 1000, epsilon=1.0, delta=1e-6, lots="open", rounds=4)
    >>> planned.phases[0].algorithm, planned.phases[0].batch
    ('acsa', 250)
    """

    algorithm: str
    rounds: int
    batch: int
    users: int
    step: float | None
    damping: float | None
    smoothing: float | None
    distance: float
    gradient_std: float
    bound: float | None
    plan: SumPlan = field(repr=False)
    paper_steps: bool = False
    lots: LotsPlan | None = field(default=None, repr=False)
    share: float | None = None
    momentum: float = 0.0
    focus: float = 0.0

    @property
    def opens(self) -> bool:
        """Whether it asks about rows, and not for gradients."""
        return self.algorithm in OPENINGS

    @property
    def descends(self) -> bool:
        """Whether it asks for gradients in all directions, and steps along them."""
        return not self.opens and self.algorithm != "line"

    @property
    def guarantee(self) -> Guarantee:
        """What a user of this phase is promised: by the plan of a round, or by all secret rounds together."""
        return self.plan.guarantee if self.lots is None else self.lots.guarantee

    @property
    def mean_of(self) -> float:
        """What a round's sum is divided by: the users of a batch, or with secret lots users / rounds. Public."""
        return self.batch if self.lots is None else self.lots.users_in(self.plan)

    @property
    def score_noise(self) -> float:
        """What noise adds to a score of a row of length 1 when all rounds step by the length 1: a standard deviation. Public."""
        return self.plan.noise_std / self.mean_of * math.sqrt(self.rounds)

    @property
    def steady(self) -> bool:
        """Whether AC-SA takes equal steps in coordinates that were found, from its last point: by these noise adds 1 to a score."""
        return self.algorithm == "acsa" and self.share is not None and math.isclose(cast(float, self.damping), self.score_noise)

    def __post_init__(self) -> None:
        steps = {"acsa": (False, True), "descent": (True, False)} | dict.fromkeys(("line", *OPENINGS), (False, False))
        given = (self.step is not None, self.damping is not None)
        if given != steps.get(self.algorithm, given):
            allowed = "with a step for descent, or a damping for acsa, and the other None"
            remedy = "Make it with schedule()."
            raise ArgumentError("phase", Found(f"has {self.algorithm}, step {self.step}, damping {self.damping}"), allowed, remedy)
        remedy = "Make it with schedule()."
        real("phase.momentum", self.momentum, at_least=0, below=1, remedy=remedy)
        real("phase.focus", self.focus, at_least=0, at_most=1, remedy=remedy)
        for name in ("momentum", "focus"):
            if getattr(self, name) and (self.step is None or self.share is None):
                raise ArgumentError(f"phase.{name}", getattr(self, name), "0 except for descent in other coordinates", remedy)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Phase:
        """Read a phase from its dictionary. Its plans are certified again.

        Parameters
        ----------
        values : dict
            One of the phases that `Schedule.to_dict` gave.

        Returns
        -------
        Phase
            With the figures that are certified here.

        Raises
        ------
        ArgumentError
            If a field is unknown or missing, or a plan promises too much.
        """
        known_fields(cls, values, defaults=True)
        lots = values.get("lots")
        plans = {"plan": SumPlan.from_dict(values["plan"]), "lots": None if lots is None else LotsPlan.from_dict(lots)}
        return cls(**values | plans)


@dataclass(frozen=True, kw_only=True)
class Schedule(JsonText):
    """The phases of a run, what they promise, and why this method. `schedule` makes it.

    Parameters
    ----------
    method : str
        The algorithm.
    interactivity : {"sequential", "full", "stream"}
        Whether each user is asked once, all in every round, or records come one by one.
    phases : tuple of Phase
        What is run, one after the other.
    bound : float or None
        On the expected excess loss of the output.
    bound_on : {"population", "empirical"}
        Which loss the bound is on.
    why : str
        The reason for this method.
    honest : float, default 1.0
        The fraction of all users that is relied on.
    shortfall : float, default 0.0
        The probability that a user's batch holds fewer honest users than its plan needs; part of delta.

    Examples
    --------
    >>> from croupier.optimizer import schedule
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> planned = schedule(Problem(Logistic(), Ball(dim=2, radius=5.0)), 1000, epsilon=1.0, delta=1e-6)
    >>> planned.method, planned.guarantee.delta(1.0) <= 1e-6
    ('acsa', True)
    """

    method: str
    interactivity: str
    phases: tuple[Phase, ...]
    bound: float | None
    bound_on: str
    why: str
    honest: float = 1.0
    shortfall: float = 0.0

    @property
    def rounds(self) -> int:
        """Rounds of all phases."""
        return sum(phase.rounds for phase in self.phases)

    @property
    def bits_per_user(self) -> int:
        """The most bits that one user sends in the whole run."""
        per_user = (p.plan.bits_per_user * (p.rounds if self.interactivity == "full" else 1) for p in self.phases)
        return max(per_user)

    @property
    def secret_lots(self) -> bool:
        """Whether users' rounds are drawn by lots that nobody learns."""
        return any(phase.lots is not None for phase in self.phases)

    @property
    def guarantee(self) -> Guarantee:
        """What a whole run reveals about one user."""
        return self.guarantee_of(self.phases)

    def guarantee_of(self, phases: Iterable[Phase]) -> Guarantee:
        """Return what these phases reveal: the worst of their plans, as no user is in two, and the chance that a batch falls short.

        Parameters
        ----------
        phases : iterable of Phase
            At least one.

        Returns
        -------
        Guarantee
            For each user of these phases.
        """
        first, *others = dict.fromkeys(phase.lots or phase.plan for phase in phases)  # phases may share their lots
        return self.with_shortfall(first.guarantee.worst_of(*(plan.guarantee for plan in others)))

    def with_shortfall(self, guarantee: Guarantee) -> Guarantee:
        """Turn a guarantee that counts on honest users in every batch into one that counts on a fraction of all users.

        Parameters
        ----------
        guarantee : Guarantee
            Of plans.

        Returns
        -------
        Guarantee
            With the probability of a shortfall in its slack.
        """
        honest = self.honest if self.shortfall else max(guarantee.honest, self.honest)
        return replace(guarantee, slack=min(1.0, guarantee.slack + self.shortfall), honest=honest)

    def with_turnout(self, turnout: float) -> Schedule:
        """Count, where lots are secret and known all the same, on the noise of those users alone who come to their round.

        Parameters
        ----------
        turnout : float
            The fraction of users that would come whichever round they draw.

        Returns
        -------
        Schedule
            The same rounds; `guarantee.if_watched` is another one where lots are secret.
        """
        return self._with_lots(lambda lots: replace(lots, turnout=turnout))

    def with_bounded_blanks(self) -> Schedule:
        """Bound, where lots are secret, the blanks of a round: another party than the shuffler counts them.

        Returns
        -------
        Schedule
            The same rounds; both figures of `guarantee` are others where lots are secret.
        """
        return self._with_lots(LotsPlan.with_bounded_blanks)

    def _with_lots(self, change: Callable[[LotsPlan], LotsPlan]) -> Schedule:
        lots = [None if phase.lots is None else change(phase.lots) for phase in self.phases]
        return replace(self, phases=tuple(replace(phase, lots=plan) for phase, plan in zip(self.phases, lots, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in plain JSON types.

        Returns
        -------
        dict
            Input of `from_dict`.
        """
        plain = asdict(self)
        for values, phase in zip(plain["phases"], self.phases, strict=True):
            values["plan"] = phase.plan.to_dict()
            if phase.share is None:
                del values["share"]
            for name in ("momentum", "focus"):
                if not getattr(phase, name):
                    del values[name]
            if phase.lots is None:
                del values["lots"]
            else:
                values["lots"] = phase.lots.to_dict()
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Schedule:
        """Read a schedule from its dictionary. Its plans are certified again.

        Parameters
        ----------
        values : dict
            Output of `to_dict`.

        Returns
        -------
        Schedule
            With the figures that are certified here.

        Raises
        ------
        ArgumentError
            If a field is unknown or missing, or a plan promises too much.
        """
        known_fields(cls, values, defaults=True)
        return cls(**values | {"phases": tuple(Phase.from_dict(phase) for phase in values["phases"])})

    def __str__(self) -> str:
        sizes = ", ".join(f"{p.rounds} x {p.batch}" for p in self.phases)
        promise = "no bound" if self.bound is None else f"excess {self.bound_on} loss <= {self.bound:.4g}"
        people = "reports, secret lots" if self.secret_lots else "users"
        kinds = [f"{p.algorithm} {p.plan.bits_per_user}" for p in self.phases if p.lots is not None]
        each = f" ({', '.join(kinds)})" if len(kinds) > 1 else ""
        return (
            f"{self.method} ({self.interactivity}): {self.rounds} rounds ({sizes} {people}), {promise}, "
            f"{self.bits_per_user} bits per user{each}; {self.why}"
        )


def check_schedule(chosen: Schedule, users: int) -> None:
    """Refuse a schedule whose plans do not prove what it claims for this many users; the problem is not looked at."""
    remedy = "Make a schedule for this problem and this population."
    one_of("interactivity", chosen.interactivity, INTERACTIVITY[:2], remedy)
    whole("users", users, at_least=1, remedy=remedy)
    full = chosen.interactivity == "full"
    shared = chosen.secret_lots  # by all phases
    needed = max([0, *(phase.users for phase in chosen.phases)]) if shared else sum(phase.users for phase in chosen.phases)
    if not chosen.phases or needed > users:
        raise ArgumentError("chosen", Found(f"is a schedule for {needed} users"), f"one for at most {users}", remedy)
    for before, phase in zip((None, *chosen.phases), chosen.phases, strict=False):
        if phase.algorithm == "line" and (phase.share is None or before is None or not before.descends or before.share is None):
            raise ArgumentError("chosen", str(phase), "a line right after a descent in other coordinates", remedy)
    if shared:
        _check_lots(chosen, users, remedy)
        return
    for phase in chosen.phases:
        whole("phase.rounds", phase.rounds, at_least=1, at_most=phase.plan.rounds if full else None, remedy=remedy)
        whole("phase.batch", phase.batch, at_least=1, at_most=phase.users, remedy=remedy)
        needed = phase.batch if full else phase.batch * phase.rounds
        if needed > phase.users or phase.plan.users != phase.batch:
            raise ArgumentError("chosen", str(phase), "a phase that fits its users and its plan", remedy)
        if phase.plan.diameter is not None:
            allowed = "left out: gradients are anywhere in the ball of the plan's norm"
            raise ArgumentError("phase.plan.diameter", phase.plan.diameter, allowed, remedy)
        held = held_in_batch(chosen, users, phase)
        if phase.plan.honest_users > held:
            allowed = f"enough for the {phase.plan.honest_users} honest users that a batch's plan counts on, not {held}"
            raise ArgumentError("chosen.shortfall", chosen.shortfall, allowed, remedy)


def held_in_batch(chosen: Schedule, users: int, phase: Phase) -> int:
    """Count the honest users that a batch of a phase holds, except for the schedule's shortfall, if so large a share of all is
    honest."""
    if chosen.shortfall:
        return honest_in_batch(users, chosen.honest, phase.batch, chosen.shortfall)
    return surely_honest(users, chosen.honest, phase.batch)


def _check_lots(chosen: Schedule, users: int, remedy: str) -> None:
    """Refuse secret lots that are not drawn among exactly these users, once, for the rounds of all phases in their order."""
    lots = chosen.phases[0].lots
    if lots is None or any(phase.lots != lots for phase in chosen.phases) or chosen.interactivity != "sequential":
        raise ArgumentError("chosen", str(chosen), "sequential phases that share their lots where these are secret", remedy)
    facts = [(phase.rounds, phase.plan) for phase in chosen.phases]
    if facts != [(stage.rounds, stage.plan) for stage in lots.stages]:
        raise ArgumentError("chosen", str(chosen), "phases with the rounds and the plans of their lots", remedy)
    for phase in chosen.phases:
        whole("phase.users", phase.users, at_least=users, at_most=users, remedy=remedy)
        if (lots.users, lots.size) != (phase.users, phase.batch):
            raise ArgumentError("chosen", str(phase), "a phase with the users and the size of its lots", remedy)
    if lots.honest != chosen.honest or chosen.shortfall or lots.certified_delta > lots.delta:
        allowed = f"those that its lots prove: honest {lots.honest}, shortfall 0, delta {lots.delta}"
        raise ArgumentError("chosen", Found(f"has honest {chosen.honest}, shortfall {chosen.shortfall}"), allowed, remedy)


def objective_of(problem: Objective, phase: Phase) -> Objective:
    """What a phase descends on: the problem, or its Moreau envelope."""
    return Smoothed(problem, phase.smoothing) if phase.smoothing is not None and isinstance(problem, Problem) else problem


def start_point(problem: Objective, start: ArrayLike | None) -> Floats:
    """Where a run begins: the projection of `start`, or of 0."""
    if not hasattr(problem, "domain"):
        raise ArgumentError(
            "problem", problem, "a Problem", "For example Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0))."
        )
    if start is None:
        return problem.domain.start()
    point = np.array(start, dtype=np.float64)
    if point.shape != (problem.dim,) or not np.all(np.isfinite(point)):
        raise ArgumentError("start", point.shape, f"{problem.dim} finite numbers", "Leave it out to begin at the projection of 0.")
    return problem.domain.project(point)
