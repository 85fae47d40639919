"""What a task may ask in one round besides gradients: a description, a histogram, moments for a regression, a model's scores.

The task carries the words; every client makes the statistic of them by itself, so that the norm and the diameter that the plan
counts on are those of the client's own code, whatever the analyzer claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..optimizer.phases import Phase, Schedule
from ..population import Batch, Question
from ..privacy.crowd import exclusions_in_batch, honest_total, surely_honest
from ..protocol import Secret, SumEstimate
from ..validation import ArgumentError

if TYPE_CHECKING:  # only what a question needs is imported, and when it does: most tasks ask for gradients
    from ..estimator import ShuffleLinearRegression
    from ..statistics import Answer, Statistic
    from ..table import Dialect, Piece

Floats = NDArray[np.float64]
KINDS = ("describe", "histogram", "regression", "evaluate")


@dataclass(frozen=True)
class AskedQuery:
    """The question of a task of one round, in place of a problem.

    Parameters
    ----------
    words : dict
        The question in plain JSON types, as the analyzer signs it.

    Attributes
    ----------
    statistic : Statistic
        The query that is made of the words, with the norm and diameter that its own code keeps.
    dim : int
        Coordinates of a vector.

    Raises
    ------
    ArgumentError
        Where the words are of no known kind.
    """

    words: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.words, dict) or self.words.get("kind") not in KINDS:
            kind = self.words.get("kind") if isinstance(self.words, dict) else self.words
            raise ArgumentError("query", kind, f"one of {', '.join(KINDS)}", "Use the same version.")

    @property
    def kind(self) -> str:
        """One of "describe", "histogram", "regression", "evaluate"."""
        return str(self.words["kind"])

    @property
    def in_words(self) -> str:
        """What is asked, for people."""
        what = {
            "describe": f"a description of {len(self.words.get('columns', ()))} columns",
            "histogram": f"a histogram of {self.words.get('column')}",
            "regression": "moments for a linear regression",
            "evaluate": "how good a model is",
        }
        return f"{what[self.kind]}, in one round; vectors at most {self.statistic.diameter:.4g} apart"

    @cached_property
    def made(self) -> Any:
        """What the words mean, in objects of this library."""
        from .query_kinds import meant  # noqa: PLC0415

        return meant(self.words)

    @property
    def statistic(self) -> Statistic:
        """The query that is made of the words."""
        statistic: Statistic = self.made.statistic
        return statistic

    @property
    def dim(self) -> int:
        """Coordinates of a vector."""
        return self.statistic.dim

    def asks(self, query: Any) -> bool:
        """Say whether a query is the one that the words mean, as far as its range goes.

        Parameters
        ----------
        query : Query
            Whatever somebody wants to ask.

        Returns
        -------
        bool
            Whether it is of the same type, size and range.
        """
        mine = self.statistic
        same = type(query) is type(mine)
        return same and (query.dim, query.norm, query.diameter) == (mine.dim, mine.norm, mine.diameter)

    def vector(self, X: Any, y: Any) -> Floats:
        """Return the mean of the vectors of a user's records, which is in the same range as each of them.

        Parameters
        ----------
        X, y : ndarray
            What `records` made of them.

        Returns
        -------
        ndarray of shape (dim,)
            Not yet randomized.
        """
        return np.asarray(self.statistic(X, y).mean(axis=0))

    def of_file(self, path: Path, dialect: Dialect | None = None) -> tuple[Any, Any]:
        """Read a user's records from a CSV or Parquet file.

        Parameters
        ----------
        path : Path
            The file.
        dialect : Dialect, optional
            How a CSV file writes them.

        Returns
        -------
        tuple
            What `vector` takes.

        Raises
        ------
        ArgumentError
            Where the file cannot be read, or has no records.
        """
        from ..table import Source  # noqa: PLC0415

        source = Source(path, dialect)
        source.require(list(self.made.types))
        return self.of_pieces(source.pieces(self.made.types), str(path))

    def of_records(self, records: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        """Read a user's records that are here, by their columns.

        Parameters
        ----------
        records : mapping or sequence of mappings
            One record or several.

        Returns
        -------
        tuple
            What `vector` takes.

        Raises
        ------
        ArgumentError
            Where a column is missing, or a record is not valid. Its text holds nothing of a record.
        """
        from .records import read_records  # noqa: PLC0415

        return read_records(records, self.made.types, self.of_pieces)

    def of_pieces(self, pieces: Iterable[Piece], name: str) -> tuple[Any, Any]:
        """Read a user's records from parts of a table.

        Parameters
        ----------
        pieces : iterable of Piece
            The parts.
        name : str
            The table's, for errors.

        Returns
        -------
        tuple
            What `vector` takes.

        Raises
        ------
        ArgumentError
            Where there are no records.
        """
        read = [self.made.records(piece) for piece in pieces]
        if not read:
            raise ArgumentError("--data", name, "at least one record", "Check the file.")
        X = np.concatenate([np.asarray(rows) for rows, _ in read])
        return X, None if read[0][1] is None else np.concatenate([targets for _, targets in read])

    def schedule(self, users: int, *, epsilon: float, delta: float, honest: float = 1.0) -> Schedule:
        """Return the schedule of the one round, with its plan by the statistic's diameter.

        Parameters
        ----------
        users : int
            How many users are asked.
        epsilon, delta : float
            What each is promised.
        honest : float, default 1.0
            Fraction of the users who follow the protocol. The plan counts on fewer: some reports may be left out.

        Returns
        -------
        Schedule
            Of one round.

        Raises
        ------
        NoCertificateError
            Where no plan can be proved.
        """
        from ..statistics import plan_for  # noqa: PLC0415

        held = honest_total(users, honest)
        counted = honest if held == users else (held - exclusions_in_batch(users, honest, users, held)) / users
        plan = plan_for(self.statistic, users, epsilon=epsilon, delta=delta, honest=counted)
        phase = Phase(
            algorithm="descent",
            rounds=1,
            batch=users,
            users=users,
            step=0.0,
            damping=None,
            smoothing=None,
            distance=0.0,
            gradient_std=plan.noise_std,
            bound=None,
            plan=plan,
        )
        return Schedule(
            method="one round",
            interactivity="sequential",
            phases=(phase,),
            bound=None,
            bound_on="population",
            why=f"a question ({self.kind}) that is answered by one sum",
            honest=honest,
        )

    def check(self, schedule: Schedule, users: int) -> None:
        """Refuse a schedule that counts on another range than this code keeps, or asks anybody twice.

        Parameters
        ----------
        schedule : Schedule
            The task's.
        users : int
            How many users it asks.

        Raises
        ------
        ArgumentError
            Where its plan proves less than it claims for the vectors of this question.
        """
        remedy = "Do not take part: ask the analyzer's operator."
        if len(schedule.phases) != 1 or schedule.interactivity != "sequential" or schedule.shortfall or schedule.secret_lots:
            raise ArgumentError("schedule", schedule.method, "one open round", remedy)
        (phase,) = schedule.phases
        plan, statistic = phase.plan, self.statistic
        if phase.rounds != 1 or not phase.batch == phase.users == plan.users == users or plan.rounds != 1:
            raise ArgumentError("schedule", str(phase), f"one round of all {users} users", remedy)
        if plan.dim != statistic.dim or plan.norm < statistic.norm:
            raise ArgumentError("plan.norm", plan.norm, f"at least {statistic.norm:.6g}, the norm of what is sent", remedy)
        if plan.diameter is not None and plan.diameter < min(statistic.diameter, 2 * statistic.norm):
            raise ArgumentError("plan.diameter", plan.diameter, f"at least {statistic.diameter:.6g}, that of what is sent", remedy)
        if plan.honest_users > surely_honest(users, schedule.honest, phase.batch):
            raise ArgumentError("schedule.honest", schedule.honest, "enough for the users that the plan counts on", remedy)

    def ask(self, population: Any, schedule: Schedule, task: str) -> Answer:
        """Ask the users of a task, once; a process that goes on asks the same round, and has the answer that came.

        Parameters
        ----------
        population : RemotePopulation
            The task's users.
        schedule : Schedule
            The task's.
        task : str
            Its id.

        Returns
        -------
        Answer
            With what the statistic decodes from the sum; for a regression, a fitted `ShuffleLinearRegression`.
        """
        from ..statistics import Answer  # noqa: PLC0415

        plan = schedule.phases[0].plan
        people = _SameRound(population, schedule, task)
        question = Question(self.statistic, Batch.everyone(people.users), plan, Secret.fresh())
        estimate = people.answer(question)
        return Answer(self.statistic.decode(estimate), estimate, plan)

    def regression(self, population: Any, schedule: Schedule, task: str) -> ShuffleLinearRegression:
        """Fit a regression on the users of a task; as `ask`.

        Parameters
        ----------
        population : RemotePopulation
            The task's users.
        schedule : Schedule
            The task's.
        task : str
            Its id.

        Returns
        -------
        ShuffleLinearRegression
            Fitted.
        """
        from ..estimator import ShuffleLinearRegression  # noqa: PLC0415

        plan, kind = schedule.phases[0].plan, self.made
        estimator = ShuffleLinearRegression(
            epsilon=plan.epsilon,
            delta=plan.delta,
            honest=plan.honest,
            target_range=kind.schema.target.range,
            feature_norm=kind.encoder.norm,
        )
        estimator.fit_population(_SameRound(population, schedule, task), len(kind.encoder.names))
        # The plan counts on fewer people than the premise, as some may be left out; what is promised rests on the premise.
        estimator.honest = schedule.honest
        estimator.promise_ = replace(estimator.promise_, honest=schedule.with_shortfall(plan.guarantee).honest)
        return estimator


class _SameRound:
    """Users whose only round has a name that follows from the task, so that a process that goes on asks the same one."""

    def __init__(self, population: Any, schedule: Schedule, task: str) -> None:
        self._population, self._schedule = population, schedule
        # It names the round, and nothing else: noise is made on devices.
        self._name = Secret(hashlib.sha256(b"the round of task " + task.encode()).digest(), True)
        self.users, self.unit, self.private = population.users, population.unit, population.private

    def prepare(self, test: Any, key: bytes | None = None) -> None:
        """Nothing: devices check their own records."""

    def answer(self, question: Question) -> SumEstimate:
        """The answer to the task's only round, by the task's premise: more are taken to be honest than the plan counts on."""
        estimate: SumEstimate = self._population.answer(replace(question, secret=self._name))
        return replace(estimate, guarantee=estimate.guarantee and self._schedule.with_shortfall(estimate.guarantee))
