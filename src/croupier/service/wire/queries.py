"""What a task may ask in one round besides gradients: a description, a histogram, moments for a regression, a model's scores.

The task carries the words; every client makes the statistic of them by itself, so that the norm and the diameter that the plan
counts on are those of the client's own code, whatever the analyzer claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit, softmax

from ...arithmetic import row_dots
from ...estimator import ShuffleLinearRegression, ShuffleLogisticRegression, ShuffleQuantileRegressor
from ...estimator.classification import log_odds
from ...optimizer.phases import Phase, Schedule
from ...population.dealing import Batch
from ...population.population import Question
from ...privacy.crowd import exclusions_in_batch, honest_total, surely_honest
from ...problem.classification import Weighted
from ...problem.problem import clip_rows, row_norms
from ...protocol import SumEstimate
from ...protocol.randomness import Secret
from ...statistics import Histogram, Moments, NumberGuess
from ...statistics.describing import Summaries
from ...statistics.evaluating import evaluation_query
from ...table import Schema, TableModel
from ...table.describe import values_of
from ...table.encode import Encoder
from ...table.guess import TableGuess
from ...table.read import Piece
from ...validation import ArgumentError, Found, one_of, real

if TYPE_CHECKING:
    from ...statistics import Answer
    from ...statistics.query import Statistic
    from ...table.read import Dialect

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

        return parse_query(self.words)

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
        """Say whether a query is the one that the words mean, as far as its range goes."""
        mine = self.statistic
        same = type(query) is type(mine)
        return same and (query.dim, query.norm, query.diameter) == (mine.dim, mine.norm, mine.diameter)

    def vector(self, X: Any, y: Any) -> Floats:
        """Return the mean of the vectors of a user's records, which is in the same range as each of them."""
        return np.asarray(self.statistic(X, y).mean(axis=0))

    def of_file(self, path: Path, dialect: Dialect | None = None) -> tuple[Any, Any]:
        """Read a user's records from a CSV or Parquet file."""
        from ...table.read import Source  # noqa: PLC0415

        source = Source(path, dialect)
        source.require(list(self.made.types))
        return self.of_pieces(source.pieces(self.made.types), str(path))

    def of_records(self, records: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        """Read a user's records that are here, by their columns."""
        from ..client.records import read_records  # noqa: PLC0415

        return read_records(records, self.made.types, self.of_pieces)

    def of_pieces(self, pieces: Iterable[Piece], name: str) -> tuple[Any, Any]:
        """Read a user's records from parts of a table."""
        read = [self.made.records(piece) for piece in pieces]
        if not read:
            raise ArgumentError("--data", name, "at least one record", "Check the file.")
        X = np.concatenate([np.asarray(rows) for rows, _ in read])
        return X, None if read[0][1] is None else np.concatenate([targets for _, targets in read])

    def schedule(self, users: int, *, epsilon: float, delta: float, honest: float = 1.0) -> Schedule:
        """Return the schedule of the one round, with its plan by the statistic's diameter."""
        from ...statistics.asking import plan_for  # noqa: PLC0415

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
        """Refuse a schedule that counts on another range than this code keeps, or asks anybody twice."""
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
        """Ask the users of a task, once; a process that goes on asks the same round, and has the answer that came."""
        from ...statistics import Answer  # noqa: PLC0415

        plan = schedule.phases[0].plan
        people = _SameRound(population, schedule, task)
        question = Question(self.statistic, Batch.everyone(people.users), plan, Secret.fresh())
        estimate = people.answer(question)
        return Answer(self.statistic.decode(estimate), estimate, plan)

    def regression(self, population: Any, schedule: Schedule, task: str) -> ShuffleLinearRegression:
        """Fit a regression on the users of a task; as `ask`."""
        from ...estimator import ShuffleLinearRegression  # noqa: PLC0415

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


# A model in the words of a task that asks how good it is: what its answers are made of, and nothing of how it was trained.

ANSWERS = ("probabilities", "margins", "numbers")
_REMEDY = "Do not take part: ask the analyzer's operator."


@dataclass(frozen=True)
class LinearScores:
    """<coef, x> + intercept for rows scaled down to a length, each output by itself: the same in every language.

    Parameters
    ----------
    coef : ndarray of shape (outputs, features)
        The weights.
    intercept : ndarray of shape (outputs,)
        What is added.
    feature_norm : float
        The length to which longer rows are scaled down.
    """

    coef: Floats
    intercept: Floats
    feature_norm: float

    def scores(self, X: Any) -> Floats:
        """Return the scores of rows."""
        rows = clip_rows(np.asarray(X, dtype=np.float64), self.feature_norm)
        return np.column_stack([row_dots(rows, weights) for weights in self.coef]) + self.intercept


@dataclass(frozen=True)
class MarginModel(LinearScores):
    """A classifier of two classes whose scores are no probabilities.

    Parameters
    ----------
    coef, intercept, feature_norm : as in LinearScores
        What scores are made of.
    classes_ : ndarray
        The labels, ascending.
    """

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of rows."""
        return self.scores(X)[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest score."""
        scores = self.scores(X)
        return np.asarray(self.classes_[(scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)])


@dataclass(frozen=True)
class ProbabilityModel(MarginModel):
    """A classifier with probabilities.

    Parameters
    ----------
    coef, intercept, feature_norm, classes_ : as in MarginModel
        What scores are made of, and the labels.
    clipped : tuple of (float, float, ndarray), optional
        Where gradients of the logistic loss were clipped: to which norm, the constant beside a row, and the classes' weights.
    """

    clipped: tuple[float, float, Floats] | None = None

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likelier of two classes, the first where they are alike; of more the class of the largest score."""
        two = len(self.classes_) == 2
        return np.asarray(self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(int)]) if two else super().predict(X)

    def predict_proba(self, X: Any) -> Floats:
        """Return one probability per row and class."""
        scores = self.scores(X)
        if self.clipped is not None:
            norm, constant, weights = self.clipped
            rows = clip_rows(np.asarray(X, dtype=np.float64), self.feature_norm)
            lengths = np.hypot(row_norms(rows) / self.feature_norm, constant)
            scores = log_odds(scores, lengths, weights, norm).reshape(len(scores), -1)
        if scores.shape[1] > 1:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])


@dataclass(frozen=True)
class NumberModel(LinearScores):
    """A regressor.

    Parameters
    ----------
    coef, intercept, feature_norm : as in LinearScores
        What predictions are made of.
    target_range_ : tuple of (float, float)
        Lowest and highest target.
    quantile : float, optional
        The quantile that it predicts; None where it predicts something else.
    """

    target_range_: tuple[float, float]
    quantile: float | None

    def predict(self, X: Any) -> Floats:
        """Return the predictions of rows."""
        return self.scores(X)[:, 0]


def model_to_dict(model: TableModel) -> dict[str, Any]:
    """Return what a client needs to know of a model to score it, but for its schema."""
    estimator = model.estimator
    proba = hasattr(estimator, "predict_proba")
    words: dict[str, Any] = {
        "answers": ("probabilities" if proba else "margins") if model.classifies else "numbers",
        "coef": np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64)).tolist(),
        "intercept": np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)).tolist(),
        "feature_norm": float(estimator.feature_norm_),
    }
    if isinstance(estimator, ShuffleQuantileRegressor):
        words["quantile"] = float(estimator.quantile)
    if isinstance(estimator, ShuffleLogisticRegression) and not estimator.capped_:
        loss = estimator._loss()
        weights = loss.weights if isinstance(loss, Weighted) else [1.0] * len(estimator.classes_)
        norm = estimator.schedule_.phases[-1].plan.norm
        words["clipped"] = {"norm": float(norm), "constant": float(estimator.constant_), "weights": list(map(float, weights))}
    return words


def model_from_dict(words: Any, schema: Schema) -> ProbabilityModel | MarginModel | NumberModel:
    """Return the model that words mean."""
    if not isinstance(words, dict) or "answers" not in words:
        raise ArgumentError("model", type(words).__name__, "an object with its answers", _REMEDY)
    answers = one_of("model.answers", words["answers"], ANSWERS, _REMEDY)
    optional = {"quantile"} if answers == "numbers" else {"clipped"} if answers == "probabilities" else set()
    needed = {"answers", "coef", "intercept", "feature_norm"}
    if not needed <= set(words) <= needed | optional:
        raise ArgumentError("model", sorted(words), f"of the words {', '.join(sorted(needed))}", _REMEDY)
    classes, ends = schema.target.classes, schema.target.range
    outputs = 1 if classes is None or len(classes) == 2 else len(classes)
    if (ends is not None) != (answers == "numbers") or (answers == "margins" and outputs > 1):
        raise ArgumentError("model.answers", answers, "those of the schema's target", _REMEDY)
    coef = _matrix("model.coef", words["coef"], outputs, len(Encoder(schema).names))
    (intercept,) = _matrix("model.intercept", [words["intercept"]], 1, outputs)
    norm = real("model.feature_norm", words["feature_norm"], above=1e-100, at_most=1e100, remedy=_REMEDY)
    if ends is not None:
        quantile = words.get("quantile")
        if "quantile" in words:
            quantile = real("model.quantile", quantile, above=0, below=1, remedy=_REMEDY)
        return NumberModel(coef, intercept, norm, ends, quantile)
    labels: NDArray[Any] = np.unique(np.asarray(classes))
    if answers == "margins":
        return MarginModel(coef, intercept, norm, labels)
    return ProbabilityModel(coef, intercept, norm, labels, _clipped(words["clipped"], len(labels)) if "clipped" in words else None)


def _clipped(words: Any, classes: int) -> tuple[float, float, Floats]:
    if not isinstance(words, dict) or set(words) != {"norm", "constant", "weights"}:
        raise ArgumentError("model.clipped", type(words).__name__, "an object of norm, constant and weights", _REMEDY)
    (weights,) = _matrix("model.clipped.weights", [words["weights"]], 1, classes)
    if not ((weights > 0) & (weights <= 1)).all():
        raise ArgumentError("model.clipped.weights", weights.tolist(), "above 0 and at most 1", _REMEDY)
    norm = real("model.clipped.norm", words["norm"], above=1e-100, below=1e100, remedy=_REMEDY)
    return norm, real("model.clipped.constant", words["constant"], at_least=0, at_most=1e6, remedy=_REMEDY), weights


def _matrix(name: str, values: Any, rows: int, columns: int) -> Floats:
    """Numbers in so many rows and columns; texts and truth values are none."""
    lists = (
        isinstance(values, list) and len(values) == rows and all(isinstance(row, list) and len(row) == columns for row in values)
    )
    if not lists:
        raise ArgumentError(name, type(values).__name__, f"{rows} lists of {columns} numbers", _REMEDY)
    return np.array([[real(name, entry, above=-1e100, below=1e100, remedy=_REMEDY) for entry in row] for row in values])


# The kinds of questions that a task may ask: what their words mean, and what each makes of a record.


class QuestionKind(Protocol):
    """A kind of question: its statistic, the columns that it reads, and what it makes of a record."""

    statistic: Any
    types: dict[str, Any]

    def records(self, piece: Piece) -> tuple[Any, Any]:
        """Return what the statistic takes of some records."""
        ...


def parse_query(words: dict[str, Any]) -> QuestionKind:
    """Return what the words of a question mean."""
    kind = words["kind"]
    if set(words) != {"kind", *_WORDS[kind]}:
        raise ArgumentError("query", sorted(words), f"the words kind, {', '.join(_WORDS[kind])}", "Use the same version.")
    return _KINDS[kind](words)


def _named(name: Any) -> str:
    """A column's name."""
    if not isinstance(name, str):
        raise ArgumentError("column", name, "a text", "Name a column of the table.")
    return name


class _Describe:
    """All columns, from guesses."""

    def __init__(self, words: dict[str, Any]) -> None:
        found = {_named(column["name"]): {k: v for k, v in column.items() if k != "name"} for column in words["columns"]}
        if len(found) != len(words["columns"]):
            raise ArgumentError("columns", Found("has a name twice"), "each once", "Use the same version.")
        if not all("levels" in facts or facts.get("edges") is not None for facts in found.values()):
            raise ArgumentError("edges", None, "the ends of all bins of a number", "Every device must have the same bins.")
        self.guess = TableGuess.from_dict({"columns": found}, "the task's question")
        self.statistic = Summaries(self.guess.columns)
        self.types = {name: pa.binary() for name in self.guess.columns}

    def records(self, piece: Piece) -> tuple[Any, None]:
        return values_of(piece, self.guess.columns), None


class _Histogram:
    """One column in equal bins."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.column = _named(words["column"])
        self.statistic = Histogram(words["low"], words["high"], bins=words["bins"])
        self.types = {self.column: pa.binary()}

    def records(self, piece: Piece) -> tuple[Any, None]:
        return values_of(piece, {self.column: NumberGuess()}), None


class _Regression:
    """Moments of the rows that a schema makes, for least squares."""

    def __init__(self, words: dict[str, Any]) -> None:
        self.schema = schema_of(words["schema"])
        if self.schema.target.range is None:
            raise ArgumentError("schema: target", Found("has classes"), "a range", "A regression is about numbers.")
        self.encoder = Encoder(self.schema)
        self.estimator = ShuffleLinearRegression(target_range=self.schema.target.range, feature_norm=self.encoder.norm)
        rows, _ = self.estimator.records(np.zeros((1, len(self.encoder.names))), np.full(1, self.schema.target.range[0]))
        self.statistic = Moments(rows.shape[1])
        self.types = self.encoder.types(target=True)

    def records(self, piece: Piece) -> tuple[Any, Any]:
        return self.estimator.records(self.encoder.rows(piece).astype(np.float64), self.encoder.targets(piece))


class _Evaluate:
    """A model's answers beside the truth."""

    def __init__(self, words: dict[str, Any]) -> None:
        schema = schema_of(words["model"]["schema"])
        self.model = model_from_dict({name: word for name, word in words["model"].items() if name != "schema"}, schema)
        self.encoder = Encoder(schema)
        self.statistic = evaluation_query(self.model)
        self.types = self.encoder.types(target=True)

    def records(self, piece: Piece) -> tuple[Any, Any]:
        return self.encoder.rows(piece), self.encoder.targets(piece)


_WORDS = {
    "describe": ("columns",),
    "histogram": ("column", "low", "high", "bins"),
    "regression": ("schema",),
    "evaluate": ("model",),
}
_KINDS: dict[str, Callable[[dict[str, Any]], QuestionKind]] = {
    "describe": _Describe,
    "histogram": _Histogram,
    "regression": _Regression,
    "evaluate": _Evaluate,
}


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """The words of a schema, its columns in a list, since names in a JSON object have no order."""
    plain = schema.to_dict()
    return plain | {"columns": [{"name": name, **facts} for name, facts in plain["columns"].items()]}


def schema_of(words: Any) -> Schema:
    """The schema that such words state."""
    columns = {_named(column["name"]): {n: value for n, value in column.items() if n != "name"} for column in words["columns"]}
    if len(columns) != len(words["columns"]):
        raise ArgumentError("columns", Found("has a name twice"), "each once", "Use the same version.")
    return Schema.from_dict(words | {"columns": columns}, "the task's schema")
