"""What a round asks of every user: gradients of a problem, or one statistic by its name.

A query says itself as a document and is read from one, makes the vector of a user's records in a range that it states, and says
what a sum of vectors means. Every client makes its query of the signed words by itself, so that the norm and the diameter that a
plan counts on are those of the client's own code, whatever the analyzer claims. A statistic is one class in `STATISTICS`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from datetime import time as datetime_time
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ... import problem as problems
from ...estimator import ShuffleLinearRegression
from ...optimizer._gradients import Gradients, RowMeans, RowMoments, Rows, RowSpreads, opening_query
from ...optimizer._rules import ASKS
from ...optimizer.algorithms import dimension_of
from ...optimizer.phases import Phase, Schedule, check_schedule, objective_of
from ...population.population import Batch, Question
from ...privacy import SumPlan
from ...privacy._crowd import exclusions_in_batch, honest_total, surely_honest
from ...problem import Domain, Loss, Problem
from ...problem.problem import Coordinates, Recast
from ...protocol import SumEstimate
from ...protocol.randomness import Secret
from ...statistics import Answer, HeavyHitters, Histogram, Moments, Stream, Table
from ...statistics._columns import LevelGuess, NumberGuess
from ...statistics.asking import plan_for
from ...statistics.describing import Summaries, described
from ...statistics.evaluating import evaluated, evaluation_query
from ...statistics.streams import StreamAnswer
from ...table import Schema, TableModel
from ...table._encode import Encoder, column_texts
from ...table._read import Dialect, Piece, Source
from ...table.describe import TableGuess, values_of
from ...table.model import Request
from ...table.schema import as_text
from ...validation import ArgumentError, Found, whole
from .documents import WireError
from .model_words import model_from_dict, model_to_dict

Floats = NDArray[np.float64]
Records = Mapping[str, Any] | Sequence[Mapping[str, Any]]
# What an error says in place of a record's value: errors may travel, to whoever collects an app's.
NOT_SHOWN = Found("has a value that is not shown")
_VERSION, _REFUSE = "Use the same version.", "Do not take part: ask the analyzer's operator."


class TaskQuery(ABC):
    """What a round asks, in its range: `Task.query_of` gives that of each phase.

    Guarantee
    ---------
    The vector of a user is computed from that user's own records, and is in the range that `check` has found in the plan, or is
    clipped to it where it is randomized.
    """

    subject: ClassVar[str] = "question"  # what pages call it,
    release: ClassVar[str] = "answer"  # and what comes of it
    once: ClassVar[bool] = True  # a round that is lost ends the task
    remembers: ClassVar[bool] = False  # a device keeps what has counted: later rounds add to it, and change nothing of it

    @property
    def blanks(self) -> bool:
        """Whether a record that is not valid counts as a blank, by the words that the analyzer has signed."""
        return False

    @property
    @abstractmethod
    def dim(self) -> int:
        """Coordinates of a vector."""

    @property
    def parameters(self) -> int:
        """How many public numbers the document of a round states (theta)."""
        return self.dim

    def round_plan(self, plan: SumPlan) -> SumPlan:
        """Return the plan of one round's report, where a phase's plan is for what all of its rounds send together."""
        return plan

    def most_answers(self, phase: Phase) -> int:
        """Count the rounds of a phase that one user may answer under its plan."""
        return phase.plan.rounds

    @property
    @abstractmethod
    def description(self) -> str:
        """What is asked, for people."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a task's document that say it."""

    @abstractmethod
    def check(self, schedule: Schedule, users: int) -> None:
        """Refuse a schedule whose rounds cannot ask this, or whose plans count on another range than this code keeps."""

    def of_phase(self, phase: Phase) -> TaskQuery:
        """Return what the rounds of a phase ask, where phases ask different questions."""
        return self

    def of_round(self, coordinates: Coordinates | None) -> TaskQuery:
        """Return what a round of the phase asks whose document states these coordinates; None if that says nothing possible."""
        if coordinates is not None:
            raise WireError("a round with coordinates, where rows are taken as they come")
        return self

    def coordinates_of(self, query: Any) -> Coordinates | None:
        """Return the coordinates that the document of a round states, for an optimizer's query that is this one."""
        return None

    @abstractmethod
    def theta_of(self, query: Any, phase: Phase) -> Floats | None:
        """Return the numbers that the document of a round states, where an optimizer's query is this one; None if it is not."""

    @abstractmethod
    def vector(self, X: Any, y: Any, phase: Phase, theta: Floats) -> Floats:
        """Return the mean of the vectors of a user's rows, not yet clipped or randomized."""

    # A user's records: the columns that are read, and what a vector is made of.

    @property
    @abstractmethod
    def columns(self) -> dict[str, Any] | None:
        """The columns of a table that it reads, and as what; None if devices bring rows of their own."""

    @abstractmethod
    def rows(self, piece: Piece) -> tuple[Any, Any]:
        """Return what `vector` takes of some records."""

    def read_file(self, path: Path, dialect: Dialect | None = None) -> tuple[Any, Any]:
        """Read a user's records from a CSV or Parquet file."""
        source, types = Source(path, dialect), self.columns or {}
        source.require(list(types))
        return self.read_pieces(source.pieces(types), str(path))

    def read_records(self, records: Records) -> tuple[Any, Any]:
        """Read a user's records that are here, by their columns; an error says nothing of them."""
        types, every = self.columns or {}, [records] if isinstance(records, Mapping) else list(records)
        for name in types:
            if not all(name in record for record in every):
                raise ArgumentError("records", NOT_SHOWN, f"with a value for {name!r}", "Give None if it is missing.")
        refusal: tuple[str, str, str]
        try:
            columns = {name: _column([record[name] for record in every], kind) for name, kind in types.items()}
            batch = pa.RecordBatch.from_pydict(columns)
            return self.read_pieces([Piece(Path("records"), 1, batch)] if every else [], "records")
        except ArgumentError as problem:
            refusal = problem.name, problem.allowed, problem.remedy
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            refusal = "records", "numbers and texts, of one kind in a column", "Look at the task's schema."
        # Outside of what caught it: no trace leads back to an error that quotes a record.
        name, allowed, remedy = refusal
        raise ArgumentError(name, NOT_SHOWN, allowed, remedy)

    def read_pieces(self, pieces: Iterable[Piece], name: str) -> tuple[Any, Any]:
        """Read a user's records from parts of a table."""
        read = [self.rows(piece) for piece in pieces]
        if not read:
            return self.no_rows(name)
        X = np.concatenate([np.asarray(rows) for rows, _ in read])
        return X, None if read[0][1] is None else np.concatenate([targets for _, targets in read])

    def no_rows(self, name: str) -> tuple[Any, Any]:
        """Return what `vector` takes of nothing, where somebody without records can answer."""
        raise ArgumentError("--data", name, "at least one record", "Check the file.")


def query_from_dict(values: Mapping[str, Any]) -> TaskQuery:
    """Return what a task's document asks; nothing but losses, domains and statistics of this library can be named."""
    asked, records = values["problem"], values["records"]
    if set(asked) != {"query"}:
        return TrainingQuery.from_dict(asked, records)
    if records is not None:
        raise ArgumentError("records", Found("is given"), "null where a question is asked", "Ask the analyzer's operator.")
    return statistic_from_dict(asked["query"])


def _column(values: list[Any], kind: Any) -> Any:
    """A column of the types that its values have; each by itself, as text or picture, where one that is not valid must not spoil
    others."""
    if pa.types.is_list(kind):
        files = all(value is None or isinstance(value, bytes) for value in values)
        return pa.array(values, pa.binary()) if files else pa.array([None if value is None else _pixels(value) for value in values])
    if pa.types.is_binary(kind):
        nothing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in values]
        return pa.array([None if none else as_text(value).encode() for value, none in zip(values, nothing, strict=True)], kind)
    return pa.array(values)


def _pixels(picture: Any) -> list[float]:
    """The numbers of a picture, line by line; none where it is no picture, which is as long as no picture is."""
    try:
        return [float(number) for number in np.asarray(picture, dtype=np.float64).ravel()]
    except (TypeError, ValueError):
        return []


# Schemas as a task says them: whatever has an order is a list, since names in a JSON object have none.


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return the words of a schema."""
    plain = schema.to_dict()
    return plain | {"columns": [{"name": name, **facts} for name, facts in plain["columns"].items()]}


def schema_from_dict(words: Any) -> Schema:
    """Return the schema that such words state."""
    return Schema.from_dict(words | {"columns": _by_name(words["columns"])}, "the task's schema")


def _by_name(columns: Any) -> dict[str, dict[str, Any]]:
    """Columns by their names, from a list of them."""
    if not isinstance(columns, list):
        raise TypeError("columns without an order")
    facts = {_named(column["name"]): {word: value for word, value in column.items() if word != "name"} for column in columns}
    if len(facts) != len(columns):
        raise ArgumentError("columns", Found("has a name twice"), "each once", _VERSION)
    return facts


def _named(name: Any) -> str:
    """A column's name."""
    if not isinstance(name, str):
        raise ArgumentError("column", name, "a text", "Name a column of the table.")
    return name


def clients_schema(path: Path) -> Schema:
    """Read a schema by which clients make rows of their own records."""
    facts = Schema.load(path)
    if facts.user is not None:
        raise ArgumentError(f"{path}: user", facts.user, "left out", "A client has its own rows alone.")
    if facts.described is not None and facts.described.aside is not None:
        remedy = "Enrol none of them, and delete [described]; or describe without --share: whoever is in both then pays for both."
        people = f"{facts.described.users:,} people set aside"
        raise ArgumentError(f"{path}: described", people, "nobody set aside, as no client knows whether it was", remedy)
    return facts


# Training: the gradients of a problem at theta, which is another one in every round.

# Numbers of a person's rows that are in memory at a time: second moments have as many per row as pairs of columns.
_MOST_NUMBERS = 1 << 22


@dataclass(frozen=True)
class TrainingQuery(TaskQuery):
    """The gradients of a problem's loss; where `records` are given, of rows that a table makes as these words say.

    Where their parameters say `invalid = "blank"`, a record that is not valid is a row of zeros with target 0, whatever it holds,
    and nothing is said of it.
    """

    problem: Problem
    records: dict[str, Any] | None = None

    subject, release, once = "model", "model", False

    @classmethod
    def from_dict(cls, words: dict[str, Any], records: dict[str, Any] | None) -> Self:
        """Read the loss and the domain that the words name."""
        loss, domain = _made(Loss, words["loss"]), _made(Domain, words["domain"])
        numbers = {name: words[name] for name in ("feature_norm", "l2", "constant") if name in words}
        return cls(Problem(loss=loss, domain=domain, **numbers), records)

    def to_dict(self) -> dict[str, Any]:
        problem = self.problem
        words = {"loss": _parameters(problem.loss), "domain": _parameters(problem.domain)}
        numbers = {"feature_norm": problem.feature_norm, "l2": problem.l2} | (
            {"constant": problem.constant} if problem.constant else {}
        )
        return {"problem": words | numbers, "records": self.records}

    @property
    def dim(self) -> int:
        return self.problem.dim

    @property
    def blanks(self) -> bool:
        parameters = self.records.get("parameters") if isinstance(self.records, dict) else None
        return isinstance(parameters, dict) and parameters.get("invalid") == "blank"

    @property
    def description(self) -> str:
        problem = self.problem
        penalty = f", l2 penalty {problem.l2:.4g}" if problem.l2 else ""
        return f"{_said(problem.loss)} loss, {problem.dim:,} weights in a {_said(problem.domain)}{penalty}"

    def check(self, schedule: Schedule, users: int) -> None:
        check_schedule(schedule, users)
        for phase in schedule.phases:
            dimension_of(self.problem, phase)
            if phase.share is not None and (phase.lots is None or phase.smoothing is not None):
                raise ArgumentError("phase.share", phase.share, "left out of open rounds, and of smoothed losses", _REFUSE)
        check_coordinates(self.problem, schedule)

    def of_phase(self, phase: Phase) -> TaskQuery:
        return self if phase.share is None else StageQuery(self.problem, self.records, phase)

    def theta_of(self, query: Any, phase: Phase) -> Floats | None:
        mine = isinstance(query, Gradients) and objective_of(self.problem, phase) == query.objective
        return query.theta if mine else None

    def vector(self, X: Any, y: Any, phase: Phase, theta: Floats) -> Floats:
        """The mean of the rows' gradients; where records blank, a row that is not valid has gradient 0, whatever is in it."""
        return self._mean_of(Gradients(objective_of(self.problem, phase), theta, self.blanks), X, y)

    def _mean_of(self, query: Any, X: Any, y: Any) -> Floats:
        """The mean of the rows' vectors; 0 where the analyzer's numbers make it overflow, so that an answer is sent."""
        if not self.blanks:
            self.problem.check_records(X, y)
        some, rows = max(1, _MOST_NUMBERS // self.dim), len(X)
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = (query(X[at : at + some], y[at : at + some]).sum(axis=0) for at in range(0, rows, some))
            alone = rows <= some or np.shape(y) != (rows,)  # which is refused
            mean: Floats = query(X, y).mean(axis=0) if alone else np.asarray(sum(pieces) / rows)
        return mean if np.isfinite(mean).all() else np.zeros_like(mean)

    @cached_property
    def _table(self) -> tuple[Encoder, Any]:
        """What makes rows of records, and the estimator that they are for."""
        words: Any = self.records
        try:
            facts = schema_from_dict(words["schema"])
            encoder = Encoder(facts, words["parameters"].get("invalid", "refuse"))
            # The other parameters change neither rows nor targets: what they choose stands in the task's problem and schedule.
            invalid = {name: word for name, word in words["parameters"].items() if name == "invalid"}
            estimator, features = Request(words["task"], invalid, None).estimator(facts), words["features"]
        except ArgumentError as problem:
            raise WireError(f"a task whose records cannot be read: {problem}") from None
        except (KeyError, TypeError, AttributeError):
            raise WireError("a task that does not say how records become rows, with its columns and features in lists") from None
        if features != list(encoder.names):
            raise WireError("a task whose features are in another order than its columns make them, or others")
        if self.problem.dim != self.problem.loss.outputs * (len(features) + 1):
            raise WireError("a task whose rows have not one constant beside their features")
        return encoder, estimator

    @property
    def columns(self) -> dict[str, Any] | None:
        return None if self.records is None else dict(self._table[0].types(target=True))

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        encoder, estimator = self._table
        rows: tuple[Any, Any] = estimator.records(encoder.rows(piece), encoder.targets(piece))
        return rows


# The most characters of a round's coordinates, as documents.json has it: eight per number.
_MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class StageQuery(TrainingQuery):
    """What the rounds of one phase ask, where phases ask different questions: about rows, or for gradients in other coordinates.

    Guarantee
    ---------
    That of any query: whatever coordinates a round states, the vector is finite, and is clipped to the plan's norm like any other.
    """

    phase: Phase | None = None
    coordinates: Coordinates | None = None

    @property
    def _stage(self) -> tuple[Phase, float]:
        if self.phase is None or self.phase.share is None:
            raise ValueError("a stage is made by of_phase")
        return self.phase, self.phase.share

    @property
    def dim(self) -> int:
        return dimension_of(self.problem, self._stage[0])

    @property
    def parameters(self) -> int:
        """An opening depends on nothing that was released: it states one number, which means nothing."""
        return 1 if self._stage[0].opens else self.problem.dim

    @property
    def description(self) -> str:
        what = ASKS.get(self._stage[0].algorithm, "gradients in the coordinates that earlier rounds found")
        return f"{super().description}; these rounds ask for {what}"

    @property
    def _opening(self) -> RowMeans | RowSpreads | RowMoments:
        phase, share = self._stage
        return opening_query(phase.algorithm, Rows(self.problem, share), self.blanks)

    def _objective(self, coordinates: Coordinates) -> Recast:
        phase, _ = self._stage
        return Recast(self.problem, coordinates, phase.plan.norm, alike=phase.algorithm != "acsa")

    def of_round(self, coordinates: Coordinates | None) -> TaskQuery:
        phase, features = self._stage[0], self.problem.features
        if phase.opens:
            return super().of_round(coordinates)
        if coordinates is None:
            raise WireError("a round of gradients in other coordinates that does not state them")
        if coordinates.features != features or (coordinates.centre is not None and not self.problem.constant):
            raise WireError(f"a round with coordinates of other rows than the task's, which have {features} columns")
        if coordinates.focus not in (0.0, phase.focus):
            raise WireError("a round that weighs people by their odds otherwise than its task does")
        return replace(self, coordinates=coordinates)

    def coordinates_of(self, query: Any) -> Coordinates | None:
        return None if self._stage[0].opens else query.objective.coordinates

    def theta_of(self, query: Any, phase: Phase) -> Floats | None:
        if phase.opens:
            return np.zeros(1) if query == self._opening else None
        if not isinstance(query, Gradients) or not isinstance(query.objective, Recast):
            return None
        asked = query.objective
        mine = self._objective(asked.coordinates)
        return query.theta if (asked.problem, asked.clip, asked.alike) == (mine.problem, mine.clip, mine.alike) else None

    def vector(self, X: Any, y: Any, phase: Phase, theta: Floats) -> Floats:
        """The mean of what the rows say: of themselves, or their gradients in the round's coordinates."""
        if phase.opens:
            return self._mean_of(self._opening, X, y)
        if self.coordinates is None:
            raise WireError("a round of gradients in other coordinates that does not state them")
        return self._mean_of(Gradients(self._objective(self.coordinates), theta, self.blanks), X, y)


def check_coordinates(problem: Problem, schedule: Schedule) -> None:
    """Refuse rounds whose coordinates a document could not state."""
    asks = [phase.algorithm for phase in schedule.phases]
    if "moments" in asks:
        rule, most = "whitened", math.isqrt(_MOST_CHARACTERS // 8)
    else:  # a line is searched in no more directions than classes, and along the constant
        few = min(problem.loss.outputs + 1, problem.features) if "line" in asks else 1
        rule, most = "scaled" if "spread" in asks else "centred", _MOST_CHARACTERS // (8 * few)
    if schedule.phases[-1].share is not None and problem.features > most:
        raise ArgumentError("rule", rule, f"'plain' for over {most} columns in a deployed task", "Leave it out, or change it.")


def records_to_dict(facts: Schema, request: Request) -> dict[str, Any]:
    """Return the words of a training task about its records."""
    words = {"schema": schema_to_dict(facts), "features": list(Encoder(facts).names)}
    return words | {"task": request.task, "parameters": request.parameters}


def _parameters(part: Loss | Domain) -> dict[str, Any]:
    values = {given.name: getattr(part, given.name) for given in _given(type(part))}
    return {"kind": type(part).__name__} | {
        name: _parameters(value) if isinstance(value, Loss) else value for name, value in values.items()
    }


def _made(base: type, values: dict[str, Any]) -> Any:
    """One of our losses or domains by its name; nothing else can be named."""
    kind = getattr(problems, str(values["kind"]), None)
    if not isinstance(kind, type) or not issubclass(kind, base) or kind.__name__.startswith("_"):
        raise ArgumentError("kind", values["kind"], f"a {base.__name__.lower()} of this library", _VERSION)

    def value(given: Any) -> Any:
        """A parameter: a number, several, or another loss or domain."""
        if isinstance(given, dict):
            return _made(base, given)
        return tuple(given) if isinstance(given, list) else given

    return kind(**{one.name: value(values[one.name]) for one in _given(kind)})


def _given(kind: Any) -> list[Field[Any]]:
    """What a loss or a domain is made from; what it computes from that does not travel."""
    return [known for known in fields(kind) if known.init]


def _said(part: Any) -> str:
    """A loss or a domain by name, with those of its parameters that are numbers."""
    name = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(part).__name__).strip()
    numbers = {given.name: getattr(part, given.name) for given in _given(type(part)) if given.name != "dim"}
    said = ", ".join(f"{key} {value:g}" for key, value in numbers.items() if isinstance(value, int | float))
    return f"{name} ({said})" if said else name


# Statistics: one round, whose vectors do not depend on anything that was released.


class StatisticQuery(TaskQuery):
    """A statistic of this library that everybody answers once. `words` are its fields as the analyzer signs them."""

    kind: ClassVar[str]
    states: ClassVar[tuple[str, ...]]  # its words, besides its kind
    in_file: ClassVar[dict[str, type]]  # what a task file states about it,
    optional: ClassVar[tuple[str, ...]] = ()  # and what of that may be left out

    def __init__(self, words: dict[str, Any]) -> None:
        if set(words) != {"kind", *self.states}:
            raise ArgumentError("query", sorted(words), f"the words kind, {', '.join(self.states)}", _VERSION)
        self.words = words
        self.statistic, self.types, self.what = self._parsed(words)

    @abstractmethod
    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        """The statistic, the columns that it is made of, and what it is for people."""

    @classmethod
    @abstractmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return its words, from what a task file in a folder states."""

    @classmethod
    def of_file(cls, values: dict[str, Any], folder: Path) -> Self:
        """Return the query that a task file in a folder states."""
        return cls({"kind": cls.kind, **cls.words_of_file(values, folder)})

    def to_dict(self) -> dict[str, Any]:
        return {"problem": {"query": self.words}, "records": None}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StatisticQuery) and self.words == other.words

    def __hash__(self) -> int:
        return hash(repr(self.words))

    @property
    def dim(self) -> int:
        return int(self.statistic.dim)

    @property
    def columns(self) -> dict[str, Any]:
        return self.types

    @property
    def description(self) -> str:
        return f"{self.what}, in one round; vectors at most {self.statistic.diameter:.4g} apart"

    def theta_of(self, query: Any, phase: Phase) -> Floats | None:
        mine = self.statistic
        same = type(query) is type(mine) and (query.dim, query.norm, query.diameter) == (mine.dim, mine.norm, mine.diameter)
        return np.zeros(self.parameters) if same else None

    def vector(self, X: Any, y: Any, phase: Phase | None = None, theta: Floats | None = None) -> Floats:
        """The mean of the vectors of a user's records, which is in the same range as each of them; of nothing else."""
        return np.asarray(self.statistic(X, y).mean(axis=0))

    # How its rounds are dealt out: everybody is in each of them.
    interactivity: ClassVar[str] = "sequential"

    @property
    def rounds(self) -> int:
        """How many rounds it is asked in."""
        return 1

    def schedule(self, users: int, *, epsilon: float, delta: float, honest: float = 1.0, transport: str = "messages") -> Schedule:
        """Return the schedule of its rounds, with one plan by the statistic's diameter, for a transport of `plan_sum`."""
        held = honest_total(users, honest)
        counted = honest if held == users else (held - exclusions_in_batch(users, honest, users, held)) / users
        # answers are not claimed: a user sends the mean of all its records, which is between them, and so is rounded
        options: dict[str, Any] = {"honest": counted, "transport": transport, "answers": None}
        plan = plan_for(self.statistic, users, epsilon=epsilon, delta=delta, **options)
        # A schedule is phases of an algorithm, on the wire too: one that asks and minimises nothing is a descent that stays put.
        steps: dict[str, Any] = {"algorithm": "descent", "step": 0.0, "damping": None, "smoothing": None, "distance": 0.0}
        steps |= {"rounds": self.rounds, "batch": users, "users": users}
        phase = Phase(**steps, gradient_std=plan.noise_std, bound=None, plan=plan)
        why = f"a question ({self.kind}) that is answered by one sum"
        about: dict[str, Any] = {"method": "one round", "interactivity": self.interactivity}
        return Schedule(**about, bound=None, bound_on="population", phases=(phase,), why=why, honest=honest)

    def check(self, schedule: Schedule, users: int) -> None:
        if len(schedule.phases) != 1 or schedule.interactivity != self.interactivity or schedule.shortfall or schedule.secret_lots:
            raise ArgumentError("schedule", schedule.method, f"{self.rounds} open rounds of one phase", _REFUSE)
        (phase,) = schedule.phases
        if phase.opens or phase.share is not None:
            raise ArgumentError("phase.algorithm", phase.algorithm, "without a stage: a question has one", _REFUSE)
        plan, statistic = phase.plan, self.statistic
        if phase.rounds != self.rounds or not phase.batch == phase.users == plan.users == users or plan.rounds != 1:
            raise ArgumentError("schedule", str(phase), f"{self.rounds} rounds of all {users} users", _REFUSE)
        if plan.dim != statistic.dim or plan.norm < statistic.norm:
            raise ArgumentError("plan.norm", plan.norm, f"at least {statistic.norm:.6g}, the norm of what is sent", _REFUSE)
        if plan.diameter is not None and plan.diameter < min(statistic.diameter, 2 * statistic.norm):
            allowed = f"at least {statistic.diameter:.6g}, that of what is sent"
            raise ArgumentError("plan.diameter", plan.diameter, allowed, _REFUSE)
        if plan.honest_users > surely_honest(users, schedule.honest, phase.batch):
            raise ArgumentError("schedule.honest", schedule.honest, "enough for the users that the plan counts on", _REFUSE)

    def answers(self, population: Any, schedule: Schedule, task: str) -> Iterator[Any]:
        """Ask the users of a task, and yield what is known after each round; a process that goes on asks the same rounds."""
        plan, people = schedule.phases[0].plan, _SameRound(population, schedule, task)
        estimate = people.answer(Question(self.statistic, Batch.everyone(people.users), plan, Secret.fresh()))
        yield self.concluded(Answer(self.statistic.decode(estimate), estimate, plan))

    def concluded(self, answer: Answer) -> Any:
        """Return what is written down of an answer."""
        return answer


class _SameRound:
    """Users whose rounds have names that follow from the task, so that a process that goes on asks the same ones."""

    def __init__(self, population: Any, schedule: Schedule, task: str) -> None:
        self._population, self._schedule = population, schedule
        # It names rounds, and nothing else: noise is made on devices.
        self._name = Secret(hashlib.sha256(b"the round of task " + task.encode()).digest(), True)
        self.users, self.unit, self.private = population.users, population.unit, population.private

    def prepare(self, test: Any, key: bytes | None = None) -> None:
        """Nothing: devices check their own records."""

    def answer(self, question: Question) -> SumEstimate:
        """The answer to a round, by the task's premise: more are taken to be honest than the plan counts on."""
        name = self._name if question.number == 1 else self._name.derive(f"round {question.number}")
        estimate: SumEstimate = self._population.answer(replace(question, secret=name))
        return replace(estimate, guarantee=estimate.guarantee and self._schedule.with_shortfall(estimate.guarantee))


class DescribeQuery(StatisticQuery):
    """All columns, from guesses."""

    kind, states, in_file = "describe", ("columns",), {"guess": str}

    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        found = _by_name(words["columns"])
        if not all("levels" in facts or facts.get("edges") is not None for facts in found.values()):
            raise ArgumentError("edges", None, "the ends of all bins of a number", "Every device must have the same bins.")
        self._guesses = TableGuess.from_dict({"columns": found}, "the task's question").columns
        return Summaries(self._guesses), dict.fromkeys(self._guesses, pa.binary()), f"a description of {len(found)} columns"

    @classmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        guess = TableGuess.load(folder / values["guess"])
        if guess.user is not None:
            raise ArgumentError("guess: user", guess.user, "left out", "A client has its own rows alone.")
        return {"columns": guess.to_list()}

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        return values_of(piece, self._guesses), None

    def concluded(self, answer: Answer) -> Any:
        return described(answer)


class HistogramQuery(StatisticQuery):
    """One column in equal bins."""

    kind, states, optional = "histogram", ("column", "low", "high", "bins"), ("bins",)
    in_file: ClassVar[dict[str, type]] = {"column": str, "low": float, "high": float, "bins": int}

    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        column = _named(words["column"])
        return Histogram(words["low"], words["high"], bins=words["bins"]), {column: pa.binary()}, f"a histogram of {column}"

    @classmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        return {"bins": values.get("bins", 20)} | {name: values[name] for name in ("column", "low", "high")}

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        return values_of(piece, {self.words["column"]: NumberGuess()}), None


class RegressionQuery(StatisticQuery):
    """Moments of the rows that a schema makes, for least squares."""

    kind, states, in_file = "regression", ("schema",), {"schema": str}

    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        schema = schema_from_dict(words["schema"])
        if schema.target.range is None:
            raise ArgumentError("schema: target", Found("has classes"), "a range", "A regression is about numbers.")
        self._encoder = Encoder(schema)
        self._facts: dict[str, Any] = {"target_range": schema.target.range, "feature_norm": self._encoder.norm, "method": "moments"}
        self._estimator = ShuffleLinearRegression(**self._facts)
        rows, _ = self._estimator.records(np.zeros((1, len(self._encoder.names))), np.full(1, schema.target.range[0]))
        return Moments(rows.shape[1]), dict(self._encoder.types(target=True)), "moments for a linear regression"

    @classmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        return {"schema": schema_to_dict(clients_schema(folder / values["schema"]))}

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        rows = self._encoder.rows(piece).astype(np.float64)
        made: tuple[Any, Any] = self._estimator.records(rows, self._encoder.targets(piece))
        return made

    def answers(self, population: Any, schedule: Schedule, task: str) -> Iterator[ShuffleLinearRegression]:
        """A regression that is fitted on the users of a task."""
        plan = schedule.phases[0].plan
        estimator = ShuffleLinearRegression(epsilon=plan.epsilon, delta=plan.delta, honest=plan.honest, **self._facts)
        estimator.fit_population(_SameRound(population, schedule, task), len(self._encoder.names))
        # The plan counts on fewer people than the premise, as some may be left out; what is promised rests on the premise.
        estimator.honest = schedule.honest
        estimator.promise_ = replace(estimator.promise_, honest=schedule.with_shortfall(plan.guarantee).honest)
        yield estimator


class EvaluateQuery(StatisticQuery):
    """A model's answers beside the truth."""

    kind, states, in_file = "evaluate", ("model",), {"model": str}

    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        schema = schema_from_dict(words["model"]["schema"])
        model = model_from_dict({name: word for name, word in words["model"].items() if name != "schema"}, schema)
        self._encoder = Encoder(schema)
        return evaluation_query(model), dict(self._encoder.types(target=True)), "how good a model is"

    @classmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        model = TableModel.load(folder / values["model"])
        # How the model was trained, on whom and by which schema, is nothing that its scores depend on.
        facts = replace(model.schema, user=None, described=None)
        return {"model": model_to_dict(model) | {"schema": schema_to_dict(facts)}}

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        return self._encoder.rows(piece), self._encoder.targets(piece)

    def concluded(self, answer: Answer) -> Any:
        return evaluated(answer)


class WordsQuery(StatisticQuery):
    """Texts that many people hold, of one column: all records of a device are one person's, who holds a text once."""

    kind = "words"
    states: ClassVar[tuple[str, ...]] = ("column", "max_bytes", "per_person", "cells", "mistakes", "hash_seed")
    in_file: ClassVar[dict[str, type]] = {
        "column": str,
        "max_bytes": int,
        "per_person": int,
        "cells": int,
        "mistakes": float,
        "hash_seed": int,
    }
    optional: ClassVar[tuple[str, ...]] = ("max_bytes", "per_person", "cells", "mistakes", "hash_seed")
    parameters = 1

    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        column = _named(words["column"])
        whole("hash_seed", words["hash_seed"], at_least=0, remedy=_REFUSE)
        statistic = HeavyHitters(**{name: words[name] for name in self.states if name != "column"})
        return statistic, {column: pa.binary()}, f"which texts many people have in {column}"

    @classmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        """The seed follows from the file unless it is stated: the same file is the same task, and nobody's text is in it."""
        seed = int.from_bytes(hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).digest()[:6], "little")
        stated = {name: values[name] for name in cls.optional if name in values}
        query = HeavyHitters(**{"hash_seed": seed} | stated)
        return {"column": values["column"]} | {name: getattr(query, name) for name in cls.optional}

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        texts = column_texts(piece, self.words["column"], True).to_pylist()
        return self.statistic.encode([[text] for text in texts]), None

    def no_rows(self, name: str) -> tuple[Any, Any]:
        return self.statistic.encode([[]]), None

    def vector(self, X: Any, y: Any, phase: Phase | None = None, theta: Floats | None = None) -> Floats:
        """That of one person who holds the texts of all records."""
        rows = np.asarray(X, dtype=np.uint8).reshape(-1, self.statistic.max_bytes)
        texts = [row.tobytes().rstrip(b"\0").decode() for row in rows]
        return np.asarray(self.statistic(self.statistic.encode([texts]), None)[0])


class TableQuery(StatisticQuery):
    """Counts of all combinations of some columns; or a number within groups, which the first `by` columns make."""

    kind, states = "table", ("columns", "by", "marginals")
    in_file: ClassVar[dict[str, type]] = {
        "schema": str,
        "guess": str,
        "columns": list,
        "by": list,
        "bins": int,
        "marginals": float,
    }
    optional: ClassVar[tuple[str, ...]] = ("schema", "guess", "by", "bins", "marginals")
    parameters = 1

    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        facts = {name: _levels_or_edges(one) for name, one in _by_name(words["columns"]).items()}
        names = tuple(facts)
        groups = whole("by", words["by"], at_least=0, at_most=2, remedy=_REFUSE)
        # one bin between two ends: all ends of bins are stated, so that every device has the same ones
        statistic = Table(*names[groups:], by=names[:groups] or None, schema=facts, bins=1, marginals=words["marginals"])
        said = f"{names[-1]} by {' and '.join(names[:groups])}" if groups else f"a table of {' and '.join(names)}"
        self._guesses = {axis.name: axis.guess for axis in statistic.axes}
        return statistic, dict.fromkeys(names, pa.binary()), said

    @classmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        if ("schema" in values) == ("guess" in values):
            raise ArgumentError("schema", values.get("schema"), "given, or guess, and not both", "Name the file of public facts.")
        facts: Any = clients_schema(folder / values["schema"]) if "schema" in values else TableGuess.load(folder / values["guess"])
        facts = facts if "schema" in values else facts.columns
        names = [*values["columns"], *values.get("by", [])]
        for name in names:
            _named(name)
        by, bins = tuple(values.get("by", [])), values.get("bins")
        table = Table(*values["columns"], schema=facts, by=by or None, bins=bins, marginals=values.get("marginals", 0.0))
        columns = [
            {"name": axis.name}
            | ({"levels": list(axis.guess.levels)} if isinstance(axis.guess, LevelGuess) else {"edges": list(axis.edges or ())})
            for axis in table.axes
        ]
        return {"columns": columns, "by": len(table.by), "marginals": float(table.marginals)}

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        return values_of(piece, self._guesses), None


def _levels_or_edges(facts: dict[str, Any]) -> list[Any]:
    """What a task says of a table's column: its levels, or the ends of its bins."""
    if len(facts) != 1 or not {"levels", "edges"} & set(facts):
        raise ArgumentError("columns", sorted(facts), "levels or edges, beside the name", _VERSION)
    (values,) = facts.values()
    texts = isinstance(values, list) and all(isinstance(value, str) for value in values)
    if not isinstance(values, list) or not values or texts != ("levels" in facts):
        raise ArgumentError("columns", type(values).__name__, "a list of texts, or of ends of bins", _VERSION)
    return values


class StreamQuery(StatisticQuery):
    """On how many days people counted, day by day: a record is a date, and each day is a round.

    Guarantee
    ---------
    What a device sends in all rounds are coordinates of one vector of the statistic: which days count is fixed when the round of
    the day is answered, is kept, and does not change, whatever the records say later. So one plan covers all rounds.
    """

    kind, states, optional = "stream", ("column", "start", "days", "per_person"), ("per_person",)
    in_file: ClassVar[dict[str, type]] = {"column": str, "start": date, "days": int, "per_person": int}
    interactivity = "full"
    remembers = True
    parameters = 1

    def _parsed(self, words: dict[str, Any]) -> tuple[Any, dict[str, Any], str]:
        column, start = _named(words["column"]), words["start"]
        first = _date(start) if isinstance(start, str) and len(start) == 10 else None
        if first is None or not 1970 <= first.year <= 9000:
            raise ArgumentError("start", start, "a date like 2030-01-31, from 1970 on", "Say which day is the first.")
        self._start = first
        return Stream(words["days"], words["per_person"]), {column: pa.binary()}, f"on how many days there is a {column}"

    @classmethod
    def words_of_file(cls, values: dict[str, Any], folder: Path) -> dict[str, Any]:
        start = values["start"]
        first = start.isoformat() if type(start) is date else str(start)
        return {"column": values["column"], "start": first, "days": values["days"], "per_person": values.get("per_person", 1)}

    @property
    def rounds(self) -> int:
        """One a day."""
        return int(self.statistic.days)

    @property
    def description(self) -> str:
        days = f"{self.rounds:,} days from {self.words['start']} on, one round each"
        return f"{self.what}, {days}; vectors over all days at most {self.statistic.diameter:.4g} apart"

    def round_plan(self, plan: SumPlan) -> SumPlan:
        """One coordinate of the vectors that the plan is for: the same levels and noise in every round."""
        return replace(plan, dim=1)

    def check(self, schedule: Schedule, users: int) -> None:
        super().check(schedule, users)
        if (plan := schedule.phases[0].plan).range is not None:  # a day is a coordinate, and a rotation mixes all of them
            raise ArgumentError("plan.range", plan.range, "left out", _REFUSE)

    def most_answers(self, phase: Phase) -> int:
        return phase.rounds

    def rows(self, piece: Piece) -> tuple[Any, Any]:
        texts = column_texts(piece, self.words["column"], True).to_pylist()
        rows = np.zeros((len(texts), self.rounds))
        for row, text in zip(rows, texts, strict=True):
            day = _date(text or "")
            if day is not None and 0 <= (place := (day - self._start).days) < self.rounds:
                row[place] = 1.0
        return rows, None

    def no_rows(self, name: str) -> tuple[Any, Any]:
        return np.zeros((0, self.rounds)), None

    def vector(self, X: Any, y: Any, phase: Phase | None = None, theta: Floats | None = None) -> Floats:
        """All coordinates of somebody who answers every round, and whose records do not change."""
        days = self.counted(X, self.rounds, {"until": 0, "days": []})["days"]
        return np.array([self.coordinate(days, number) for number in range(1, self.rounds + 1)])

    def counted(self, X: Any, number: int, before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the days that count from the round of this number on: those of earlier rounds, and of records since then.

        Guarantee
        ---------
        There are at most `per_person` of them, and what an earlier round has counted up to its own day stays as it is. Without an
        earlier round (None), days before this one do not count: a device that has forgotten may have told of them.
        """
        until, days = (number - 1, []) if before is None else (int(before["until"]), [int(day) for day in before["days"]])
        rows = None
        with suppress(TypeError, ValueError):
            rows = np.atleast_2d(np.asarray(X, dtype=np.float64))
        # Outside of what caught it: no trace leads back to an error that quotes a record.
        if rows is None or rows.ndim != 2 or rows.shape[1] != self.rounds or not np.isfinite(rows).all():
            raise ArgumentError("X", NOT_SHOWN, f"rows of {self.rounds} finite numbers, one per day", "Nothing was sent.")
        here = np.flatnonzero((rows > 0).any(axis=0)) + 1
        new = [int(day) for day in here if until < day <= number]
        return {"until": max(until, number), "days": (days + new)[: self.statistic.per_person]}

    def coordinate(self, days: Sequence[int], number: int) -> float:
        """Return what is sent on the day of this number by somebody who counts on these days."""
        return float(sum(float(self.statistic.falling[number - day]) for day in days if day <= number))

    def answers(self, population: Any, schedule: Schedule, task: str) -> Iterator[Answer]:
        plan, people = schedule.phases[0].plan, _SameRound(population, schedule, task)
        sums: list[float] = []
        noise: list[float] = []
        arrived: list[int] = []
        for number in range(1, self.rounds + 1):
            over = datetime.combine(self._start, datetime_time(), UTC) + timedelta(days=number) + _LAST_TO_END
            if over.timestamp() > time.time():
                population.wait_until(over.timestamp())
            asked = Question(self.statistic, Batch.everyone(people.users), self.round_plan(plan), Secret.fresh(), number)
            estimate = people.answer(asked)
            sums.append(float(estimate.sum[0]))
            noise.append(estimate.noise_std)
            arrived.append(estimate.users)  # an open round tells how many answered, to anyone who sees its batch
            # the proof is that of all rounds together: a round's own plan is a part of it, and claims nothing by itself
            promised = schedule.guarantee if people.private else None
            so_far = replace(estimate, sum=np.array(sums), noise_std=max(noise), guarantee=promised)
            told = StreamAnswer(self.statistic, np.array(sums), np.array(noise), people.users, np.array(arrived))
            yield Answer(told, so_far, plan)


# A day is over when it is over everywhere.
_LAST_TO_END = timedelta(hours=12)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])")


def _date(text: str) -> date | None:
    """The date with which a text begins, as in 2030-01-31 or 2030-01-31T12:00."""
    found = _DATE.match(text)
    try:
        return None if found is None else date(*map(int, found.groups()))
    except ValueError:
        return None


STATISTICS: dict[str, type[StatisticQuery]] = {
    one.kind: one for one in (DescribeQuery, HistogramQuery, RegressionQuery, EvaluateQuery, WordsQuery, TableQuery, StreamQuery)
}


def statistic_from_dict(words: Any) -> StatisticQuery:
    """Return the statistic that the words name."""
    kind = words.get("kind") if isinstance(words, dict) else words
    if not isinstance(kind, str) or kind not in STATISTICS:
        raise ArgumentError("query", kind, f"one of {', '.join(STATISTICS)}", _VERSION)
    return STATISTICS[kind](words)
