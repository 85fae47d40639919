"""`minimize`: run a schedule over a population, one private round after the other."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from ..population import ArrayPopulation, Population
from ..population.population import Batch, LeaveBlanks, Query, Question, Test, UnreachableError, deal, draw_lots
from ..privacy import SumPlan
from ..privacy._ledger import Ledger
from ..privacy.calibration import is_proved
from ..privacy.plan import Calibration
from ..problem import Problem
from ..problem.custom import UndescribableError
from ..problem.problem import Objective
from ..protocol.randomness import Secret
from ..validation import ArgumentError, Found, Invalid, blanks, one_of, real
from ._gradients import Gradients
from ._journal import Journal
from .algorithms import Ask, dimension_of, run_phases
from .phases import ALGORITHMS, Schedule, check_schedule, start_point
from .planning import schedule
from .result import Result, Round, replayed

# What a run tells the logger "croupier": what it is about to do ("croupier.run") and every round ("croupier.round"), as INFO.
#
# Nothing of it says more than the plan and the number of users do.

RUN, ROUND = logging.getLogger("croupier.run"), logging.getLogger("croupier.round")


def about_to_run(chosen: Schedule, users: int) -> str:
    """What a run is about to do, in a line: its method, how many rounds, who is asked in them, and who is not."""
    rounds = f"{chosen.rounds:,} rounds" if chosen.rounds != 1 else "1 round"
    if chosen.interactivity == "full":
        return f"Training: {rounds} ({chosen.method}); all {users:,} users are asked in every round"
    return f"Training: {rounds} ({chosen.method}); each user is asked at most once{left_over(chosen, users)}"


def left_over(chosen: Schedule, users: int) -> str:
    """Why some users are not asked at all, in words; nothing where all are."""
    needed = sum(phase.rounds * phase.batch for phase in chosen.phases)
    if chosen.interactivity == "full" or needed >= users:
        return ""
    return f"; {users - needed:,} of {users:,} are left over and not asked, because all rounds of a phase have the same size"


def begin(chosen: Schedule, users: int) -> None:
    """Say what a run is about to do."""
    RUN.info("%s", about_to_run(chosen, users))


def tell(chosen: Schedule, answered: Round) -> None:
    """Say that a round has ended."""
    who = "users answered" if chosen.phases[answered.phase - 1].lots is None else "reports, blanks included"
    ROUND.info("round %d of %d: %d %s", answered.index, chosen.rounds, answered.users, who)


# How the rounds of a run look: between which lengths noise alone would lie.

# The share of the lengths of noise alone that a band holds.
BAND = 0.95


def noise_norms(plan: SumPlan, users: int, mean_of: float | None = None) -> tuple[float, float]:
    """Between which lengths the noise of a mean gradient lies: dim independent coordinates, close to Gaussian.

    `users` are the reports of a round, and `mean_of` is what their sum was divided by: `Phase.mean_of`, or the users.
    """
    std = plan.noise_std_for(users) / (mean_of or users)
    low, high = _unit_norms(plan.dim)
    return std * low, std * high


@lru_cache(maxsize=16)
def _unit_norms(dim: int) -> tuple[float, float]:
    ends = 2 * gammaincinv(dim / 2, [(1 - BAND) / 2, (1 + BAND) / 2])  # quantiles of chi-squared
    return math.sqrt(ends[0]), math.sqrt(ends[1])


Floats = NDArray[np.float64]
Callback = Callable[[Round], None]


class FinishedRunWarning(UserWarning):
    """The checkpoint is of a run that has ended: its result is returned, whatever the data is now."""


class StopTraining(Exception):  # noqa: N818  (a request, not an error)
    """Raise it from a callback to stop after the current round; the result is that of the rounds done."""


def minimize(
    problem: Objective,
    data: Any,
    *,
    epsilon: float,
    delta: float,
    method: str = "auto",
    interactivity: Literal["sequential", "full"] = "sequential",
    calibration: Calibration = "tight",
    honest: float = 1.0,
    lots: Literal["auto", "secret", "open"] = "auto",
    start: ArrayLike | None = None,
    seed: int | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    invalid: Invalid = "refuse",
    **overrides: Any,
) -> Result:
    """Minimise the population loss of `problem` privately over the users in `data`.

    Each round asks a batch of users for the sum of their clipped gradients through one private vector sum; nothing else leaves a
    user.

    Parameters
    ----------
    problem : Objective
        The loss and the domain.
    data : (X, y), X or Population
        Features and targets, features alone, or people wherever they are.
    epsilon, delta : float
        The guarantee, for each user.
    method : str, default "auto"
        The algorithm; default: by the loss (see `schedule`).
    interactivity : {"sequential", "full"}, default "sequential"
        Whether each user is asked once, or all users in every round.
    calibration : {"tight", "paper", "paper-scaled"}, default "tight"
        The noise: the least that is certified, or that of the paper's theorems.
    honest : float, default 1.0
        The fraction of all users that is relied on to add its noise.
    lots : {"auto", "secret", "open"}, default "auto"
        Whether it stays secret which round a user is in (see `schedule`).
    start : array-like, optional
        Where to begin; default: the projection of 0.
    seed : int, optional
        Seeds the noise, so that the run can be repeated. NOT private.
    callbacks : function or functions, optional
        Each is called with every `Round`; one may raise `StopTraining`.
    checkpoint : path-like, optional
        A file that records the run. The same call with the same file resumes an interrupted run,
        or, if it had ended, returns its result. Until then the file holds the run's secret: keep it secret.
    invalid : {"refuse", "blank"}, default "refuse"
        What happens to an invalid record (NaN, infinity, text for a number, a label that the loss does not know). "refuse"
        stops before anybody is asked; the guarantee then assumes that all records are valid, wherever it can be seen that
        a run stopped. "blank" counts it as one whose loss has gradient 0, says nothing, and needs no premise.
    **overrides : object
        For `schedule`: rule="practical", rounds, clip, curvature, groups, constants, neighbours, max_inflation.

    Returns
    -------
    Result
        theta, the guarantee and the transcript.

    Raises
    ------
    ArgumentError
        If an argument or a record is not valid. Nobody was asked.
    NoCertificateError
        If no plan keeps the guarantee.

    Guarantee
    ---------
    (epsilon, delta) for the whole transcript, so for theta and everything in `history`; the ledger refuses a round beyond it.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import minimize
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> X = np.random.default_rng(0).normal(size=(2000, 3)) / 3
    >>> problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0)
    >>> result = minimize(problem, (X, X[:, 0] > 0), epsilon=1.0, delta=1e-6)
    >>> result.method, result.private
    ('acsa', True)
    """
    if str(interactivity) == "stream":
        raise ArgumentError(
            "interactivity", interactivity, "'sequential' or 'full' here", "Feed a stream to PanPrivate, record by record."
        )
    population = _population(data, invalid)
    begin = start_point(problem, start)
    planned = schedule(
        problem,
        population.users,
        epsilon=epsilon,
        delta=delta,
        method=method,
        interactivity=interactivity,
        calibration=calibration,
        honest=honest,
        lots=lots,
        start=begin,
        **overrides,
    )
    return run(problem, population, planned, start=begin, seed=seed, callbacks=callbacks, checkpoint=checkpoint, invalid=invalid)


@dataclass(frozen=True)
class Adaptive:
    """An algorithm that asks one query after the other, each in sight of all earlier answers. Training is one.

    Parameters
    ----------
    asks : function
        From whom to ask (`Ask`) to a point, the result's theta. It asks in all rounds of its schedule, in their order.
    test : Test
        What records must pass before anybody is asked.
    facts : function
        Gives what tells this run from others in a checkpoint, in plain JSON types.
    so_far : function
        From the first rounds of a run to the point that they come to: for runs that are cut short.
    """

    asks: Callable[[Ask], Floats]
    test: Test
    facts: Callable[[], dict[str, Any]]
    so_far: Callable[[Sequence[Round]], Floats]


def prepared(
    problem: Objective, population: Population, chosen: Schedule, *, start: Floats, invalid: Invalid = "refuse", **options: Any
) -> contextlib.AbstractContextManager[Run]:
    """Training that is ready, with the options of `prepared_queries`: schedule and problem fit."""
    blank = blanks(invalid)
    _check_fit(problem, population, chosen)
    training = Adaptive(
        lambda ask: run_phases(ask, problem, chosen.phases, start, blank),
        _test(problem, blank),
        lambda: _facts(problem, population, chosen, start),
        lambda history: replayed(problem, chosen, start, history),
    )
    return prepared_queries(training, population, chosen, start=start, **options)


@contextlib.contextmanager
def prepared_queries(
    algorithm: Adaptive,
    population: Population,
    chosen: Schedule,
    *,
    start: Floats,
    seed: int | None = None,
    callbacks: Callback | Iterable[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
) -> Iterator[Run]:
    """A run that is ready: its plans prove what the schedule claims, records are checked, the journal is open. Nobody was asked.

    The caller that counts what is spent charges `Run.name` here, before `Run.result` asks: a resumed run has the name that it began
    with, so that it is charged once, and an interrupted one has been charged.

    Guarantee
    ---------
    That of the schedule, whatever the algorithm asks: every vector is clipped to the norm of its round's plan, and the ledger is
    charged before a round is asked.
    """
    check_schedule(chosen, population.users)
    functions = _functions(callbacks)
    with Journal(checkpoint, {} if checkpoint is None else algorithm.facts(), seed) as journal:
        if journal.finished:
            text = f"the run in {journal.path} has ended: this is its stored result, and nobody was asked. "
            warnings.warn(text + "For another run, delete the file.", FinishedRunWarning, stacklevel=4)
        else:
            key = journal.secret.derive("records").key if journal.kept and journal.secret else None
            journal.confirm(population.prepare(algorithm.test, key))
        yield Run(algorithm, population, chosen, start, seed, journal, functions)


def run(problem: Objective, population: Population, chosen: Schedule, *, start: Floats, **options: Any) -> Result:
    """Run a schedule, with the options of `prepared`. Users are dealt to rounds uniformly at random, or draw secret lots."""
    with prepared(problem, population, chosen, start=start, **options) as ready:
        return ready.result()


class Run:
    """One run of a schedule: asks round after round, charges the ledger before each, and keeps the transcript."""

    def __init__(
        self,
        algorithm: Adaptive,
        population: Population,
        chosen: Schedule,
        start: Floats,
        seed: int | None,
        journal: Journal,
        callbacks: tuple[Callback, ...],
    ) -> None:
        self.algorithm, self.population, self.chosen, self.start, self.seed = algorithm, population, chosen, start, seed
        self.journal, self.callbacks = journal, callbacks
        self.ledger = Ledger(population.users)
        self.history: list[Round] = []
        self.private = seed is None
        self.answering = False
        self.batches = self._dealt()
        self.phases = [number for number, phase in enumerate(chosen.phases, start=1) for _ in range(phase.rounds)]
        self.plans = [(phase.lots or phase.plan).to_json() for phase in chosen.phases]

    @property
    def name(self) -> str:
        """By which it is charged: the same wherever it resumes."""
        return self.journal.run

    def result(self, on_round: Callback | None = None) -> Result:
        """Run it to its end, or as far as it goes; `on_round` hears of every round after the callbacks."""
        begin(self.chosen, self.population.users)
        self.callbacks += () if on_round is None else (on_round,)
        try:
            theta = self.algorithm.asks(self.ask)
            self.journal.finish()
        except StopTraining:
            return self._result(self._so_far(), stopped=True)
        except BaseException as error:  # what was released was paid for: it goes with the error
            if self.history:
                self._attach_result(error)
            if self.journal.kept:
                error.add_note(f"The run can resume: the same call with checkpoint={str(self.journal.path)!r} asks nobody twice.")
            raise
        return self._result(theta, stopped=False)

    def _dealt(self) -> Iterator[Batch]:
        """The batches of all rounds; in the full model all rounds of a phase have the same."""
        full, phases = self.chosen.interactivity == "full", self.chosen.phases
        # Where the secret is gone, all rounds are in the journal, and only ranks matter.
        secret = (self.journal.secret or Secret(bytes(32), private=False)).derive("deal")
        if phases[0].lots is not None:  # one draw for the rounds of all phases
            yield from draw_lots(secret, self.population.users, phases[0].lots.lots, phases[0].batch)
            return
        batch_sizes = [[phase.batch] * (1 if full else phase.rounds) for phase in phases]
        sizes = [[*sizes, phase.users - sum(sizes)] for sizes, phase in zip(batch_sizes, phases, strict=True)]
        batches = iter(deal(secret, self.population.users, [size for some in sizes for size in some if size]))
        for phase, some in zip(phases, sizes, strict=True):
            mine = [next(batches) for size in some if size][: len(some) - 1]
            yield from mine * phase.rounds if full else mine

    def ask(self, query: Callable[[Floats], Query], point: Floats) -> Floats:
        """The private mean of what the query about this point asks of the next batch of users; see `Ask`."""
        index = len(self.history) + 1
        if index > len(self.phases):
            raise ValueError(f"the schedule has {len(self.phases)} rounds: none is left")
        number = self.phases[index - 1]
        phase = self.chosen.phases[number - 1]
        parts = [next(self.batches) for _ in range(phase.plan.blocks)]
        if phase.lots is None:
            self.ledger.charge(parts[0].first, parts[-1].last, phase.plan)
        else:  # nobody knows who is asked: everybody is charged, for all rounds
            self.ledger.charge(0, self.population.users, phase.lots)
        answered, private = self.journal.recorded(index, point) or self._asked(number, index, query, point, parts)
        self.private = self.private and private
        self.history.append(answered)
        tell(self.chosen, answered)
        for callback in self.callbacks:
            callback(answered)
        return answered.gradient

    def _asked(
        self, number: int, index: int, query: Callable[[Floats], Query], point: Floats, parts: Sequence[Batch]
    ) -> tuple[Round, bool]:
        """Ask the users of a round: one batch, or with blocks one for each, whose estimates add up."""
        if self.journal.secret is None:
            raise ValueError("the run has ended and its secret is gone: it can no longer ask anybody")
        phase, asked = self.chosen.phases[number - 1], query(point)
        point, coordinates = self.journal.ask(index, point, asked.coordinates if isinstance(asked, Gradients) else None)
        asked = query(point)
        if coordinates is not None:
            asked = cast(Gradients, asked).taken_in(coordinates)
        more = getattr(asked, "about", b"")  # what the question depends on beside the point
        about = (index, point.tobytes(), *([more] if more else []), parts[0].first, parts[-1].last, self.plans[number - 1])
        secret = self.journal.secret.derive("round", *about)
        rotation = b"" if phase.plan.range is None else secret.derive("rotation").key
        estimates = []
        for block, batch in enumerate(parts):
            coins = secret if len(parts) == 1 else secret.derive("block of a vector", block)
            self.answering = True
            estimates.append(self.population.answer(Question(asked, batch, phase.plan, coins, index, phase.lots, block, rotation)))
            self.answering = False
        users, private = min(estimate.users for estimate in estimates), all(estimate.private for estimate in estimates)
        if phase.lots is not None and not phase.batch - phase.lots.most_excluded <= users <= phase.batch:
            allowed = "one that fills a round of a secret lot up with blanks"
            raise ArgumentError("population", type(self.population).__name__, allowed, 'Use lots="open"; nothing was released.')
        total = estimates[0].sum if len(parts) == 1 else len(parts) * np.sum([estimate.sum for estimate in estimates], axis=0)
        mean = estimates[0].mean if phase.lots is None else total / phase.mean_of
        answered = Round(index=index, phase=number, theta=point, gradient=mean, users=users)
        self.journal.answer(answered, private)
        return answered, private

    def _so_far(self) -> Floats:
        return self.algorithm.so_far(self.history)

    def _result(self, theta: Floats, *, stopped: bool, covered: bool = True) -> Result:
        charged = self.ledger.guarantee if covered and not (stopped and self.journal.failed) else None
        return Result(
            theta=theta,
            guarantee=self.chosen.with_shortfall(charged) if self.private and charged else None,
            schedule=self.chosen,
            history=tuple(self.history),
            start=self.start,
            users=self.population.users,
            seed=self.seed,
            stopped=stopped,
        )

    def _attach_result(self, error: BaseException) -> None:
        # A round may fail because of a person's record: no guarantee covers the fact that the run ended there.
        unreached = isinstance(error, UnreachableError) and error.whatever_the_records
        covered = unreached or not (self.answering and isinstance(error, Exception))
        if not covered:
            self.journal.fail()
        partial = self._result(self._so_far(), stopped=True, covered=covered)
        with contextlib.suppress(AttributeError, TypeError):  # an exception may not take attributes
            error.result = partial  # type: ignore[attr-defined]
        note = f"The {partial.rounds} rounds done before this are not lost: they are in this exception's .result"
        error.add_note(note if covered else f"{note}, which has no guarantee, because a record may have ended the run.")


def _functions(callbacks: Callback | Iterable[Callback]) -> tuple[Callback, ...]:
    every = (callbacks,) if callable(callbacks) or not isinstance(callbacks, Iterable) else tuple(callbacks)
    if not all(callable(callback) for callback in every):
        raise ArgumentError("callbacks", every, "functions of a Round", "Pass a function, or a list of them.")
    return every


def _population(data: Any, invalid: str) -> Population:
    if hasattr(type(data), "answer") and hasattr(data, "users"):  # of the type: a table may have columns of these names
        return cast(Population, data)
    if isinstance(data, list):
        raise ArgumentError(
            "data", Found("is a list"), "(X, y), X or a Population", "Pass a tuple of features and targets, or an array."
        )
    if isinstance(data, tuple):
        if len(data) != 2:
            raise ArgumentError(
                "data", Found(f"is a tuple of {len(data)}"), "(X, y), X or a Population", "Pass the features and the targets."
            )
        return ArrayPopulation(*data, invalid=invalid)
    return ArrayPopulation(data, invalid=invalid)


def _check_fit(problem: Objective, population: Population, chosen: Schedule) -> None:
    """Refuse a schedule that was made for another problem or more users, before anyone is asked."""
    check_schedule(chosen, population.users)
    remedy = "Make a schedule for this problem and this population."
    for phase in chosen.phases:
        one_of("phase.algorithm", phase.algorithm, ALGORITHMS, remedy)
        if phase.descends:
            name, pace = ("damping", phase.damping) if phase.algorithm == "acsa" else ("step", phase.step)
            real(f"phase.{name}", pace, above=0, remedy=remedy)
        plan, dim = phase.plan, dimension_of(problem, phase)
        too_short = phase.bound is not None and plan.norm < problem.lipschitz * (1 - 1e-9)
        if plan.dim != dim or too_short or not is_proved(plan):
            raise ArgumentError("chosen", str(phase), "a phase that fits its plan and the problem", remedy)


def _test(problem: Objective, blank: bool) -> Test:
    """What records must pass before anyone is asked; where any may be blank, nothing but what is wrong whatever is in them."""
    if blank:
        return LeaveBlanks(problem.check_shape if isinstance(problem, Problem) else _accept)
    return problem.check_records if isinstance(problem, Problem) else _accept


def _accept(X: Any, y: Any) -> None:
    """Any records: one's own loss says itself what it takes."""


def _facts(problem: Objective, population: Population, chosen: Schedule, start: Floats) -> dict[str, Any]:
    """What must be the same when a run resumes."""
    try:
        named = str(problem.fingerprint)  # type: ignore[attr-defined]
    except (AttributeError, UndescribableError) as unknown:
        allowed = f"left out for a problem that cannot be identified ({unknown})"
        remedy = "Give it a property `fingerprint`: a text that differs wherever gradients differ."
        raise ArgumentError("checkpoint", Found("is given"), allowed, remedy) from None
    return {"problem": named, "users": population.users, "start": start.tolist(), "schedule": chosen.to_dict()}
