"""A fitted table model: an estimator, and the schema that turns records into its rows. As JSON; reading it runs no code."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..estimator import (
    ShuffleHuberRegressor,
    ShuffleLinearRegression,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleLogit,
    ShuffleQuantileRegressor,
    ShuffleRidge,
)
from ..estimator._linear import LinearModel
from ..estimator.inference import FEWEST
from ..estimator.intervals import RegressionTable
from ..files import write_whole
from ..validation import ArgumentError, Found, one_of, real, unreadable
from ._encode import Encoder
from .schema import Category, Image, Numeric, Schema, features_of

# Regressions with intervals on a table: which there are, how records become their rows, and coefficients in the schema's units.

# What a table model is made with.
TableEstimator = LinearModel | ShuffleLinearRegression | ShuffleLogit
INTERVALS: dict[str, type[ShuffleLinearRegression] | type[ShuffleLogit]] = {
    "linear": ShuffleLinearRegression,
    "logit": ShuffleLogit,
}


def interval_schema(schema: Schema) -> Schema:
    """Return the schema by which records become rows of a regression with intervals.

    Rows are left as they are, since a row that is divided by its own length is not linear in its columns. A category of two levels
    or more without a reference gets its first level for one: all levels and the intercept together would not be determined.
    """
    if schema.features is not None:
        remedy = "Coefficients of a map say nothing about columns; leave features out, or choose another task."
        raise ArgumentError("features", Found("is stated in the schema"), "left out for a regression with intervals", remedy)
    columns = {
        name: replace(column, reference=column.levels[0])
        if isinstance(column, Category) and column.reference is None and len(column.levels) > 1
        else column
        for name, column in schema.columns.items()
    }
    return replace(schema, rows="as-is", columns=columns)


def exclusive_columns(schema: Schema) -> tuple[tuple[int, ...], ...]:
    """Return the features of every category that has two or more: of them at most one is not 0 in any row."""
    groups, place = [], 0
    for name, column in schema.columns.items():
        width = len(features_of(name, column))
        if isinstance(column, Category) and width > 1:
            groups.append(tuple(range(place, place + width)))
        place += width
    return tuple(groups)


@dataclass(frozen=True)
class _Unit:
    """What one feature of a row is in the units of its column: (value - middle) / half."""

    name: str
    middle: float = 0.0
    half: float = 1.0


def in_schema_units(table: RegressionTable, schema: Schema) -> RegressionTable:
    """Return coefficients of a model's rows in the units of the schema: a unit of a number, a level against the reference.

    A feature is (value - middle) / half, so a coefficient is divided by half, and the intercept, which was that of somebody in the
    middle of every range, becomes that of somebody at 0. All is linear: covariances give the new standard errors exactly.
    """
    if schema.rows != "as-is":
        remedy = 'Fit with --task linear or logit, or rows = "as-is": a row divided by its own length is not linear in its columns.'
        raise ArgumentError("schema: rows", schema.rows, "'as-is'", remedy)
    units = list(_units(schema))
    with_intercept = len(table.coef) == len(units) + 1
    if not with_intercept and len(table.coef) != len(units):
        raise ArgumentError(
            "table", Found(f"has {len(table.coef)} coefficients"), f"of {len(units)} columns", "Pass the model's own schema."
        )
    matrix = np.zeros((len(units) + 1, len(table.coef)))
    for place, unit in enumerate(units):
        matrix[place, place] = 1 / unit.half
        matrix[-1, place] = -unit.middle / unit.half
    matrix[-1, len(units) :] = 1.0
    names = (*(unit.name for unit in units), "(intercept)")
    kept = len(names) if matrix[-1].any() else len(units)  # no intercept, and nothing that is counted from another middle than 0
    return table.transformed(matrix[:kept], names[:kept])


def _units(schema: Schema) -> Iterator[_Unit]:
    """One per feature, in the encoder's order."""
    for name, column in schema.columns.items():
        if isinstance(column, Numeric):
            yield from _units_of_number(name, column)
        elif isinstance(column, Image):
            yield from (_Unit(pixel, column.low, column.high - column.low) for pixel in features_of(name, column))
        else:
            among = "" if column.unknown == "refuse" else " or unlisted"
            against = f" (against {column.reference}{among})" if column.reference is not None else ""
            yield from (_Unit(f"{feature}{against}") for feature in features_of(name, column))


def _units_of_number(name: str, column: Numeric) -> Iterator[_Unit]:
    if column.scale == "log":
        shift = f" - {column.low:g}" if column.low > 0 else f" + {-column.low:g}" if column.low < 0 else ""
        half = math.log1p(column.high - column.low) / 2
        middle = column.low + math.expm1(half)
        yield _Unit(f"log(1 + {name}{shift})", half, half)
    else:
        middle = (column.low + column.high) / 2
        yield _Unit(name, middle, (column.high - column.low) / 2)
    if column.missing:
        yield _Unit(f"{name} missing (against {middle:.4g})")


FORMAT, VERSION = "croupier table model", 1
TASKS: dict[str, type[LinearModel]] = {
    "classify": ShuffleLogisticRegression,
    "svm": ShuffleLinearSVC,
    "regress-huber": ShuffleHuberRegressor,
    "regress-mean": ShuffleRidge,
    "quantile": ShuffleQuantileRegressor,
}


@dataclass(frozen=True)
class TableModel:
    """An estimator on the rows that a schema describes: what `fit_table` and `croupier fit` make.

    Parameters
    ----------
    schema : Schema
        The public facts that turn records into rows and targets.
    estimator : LinearModel
        Fitted on such rows.

    Examples
    --------
    >>> from croupier.table import Schema
    >>> facts = {"target": {"column": "ill", "classes": ["no", "yes"]}, "columns": {"age": {"low": 0, "high": 100}}}
    >>> estimator = ShuffleLogisticRegression(classes=["no", "yes"]).fit([[0.5], [-0.5]] * 1000, ["yes", "no"] * 1000)
    >>> TableModel(Schema.from_dict(facts), estimator).task
    'classify'
    """

    schema: Schema
    estimator: Any

    @property
    def task(self) -> str:
        """What is predicted and how: one of `TASKS` or `INTERVALS`."""
        return next(task for task, kind in (TASKS | INTERVALS).items() if kind is type(self.estimator))

    @property
    def classifies(self) -> bool:
        """Whether the target is one of several classes."""
        return self.schema.target.classes is not None

    def summary(self, level: float = 0.95) -> RegressionTable:
        """Return coefficients with standard errors, p-values and intervals in the units of the schema. No privacy is spent.

        Parameters
        ----------
        level : float, default 0.95
            The intervals' coverage.

        Returns
        -------
        RegressionTable
            One row per number, in its own units, and per level of a category, against the reference; the intercept last.

        Raises
        ------
        ArgumentError
            For a model that is not a regression with intervals.

        Examples
        --------
        >>> import random, tempfile
        >>> from croupier.table import Schema, fit_table
        >>> draw = random.Random(0)
        >>> ages = [draw.randint(18, 90) for person in range(20_000)]
        >>> people = Path(tempfile.mkdtemp()) / "people.csv"
        >>> _ = people.write_text("age,pay\\n" + "".join(f"{age},{500 + 20 * age + draw.gauss(0, 100)}\\n" for age in ages))
        >>> facts = {"target": {"column": "pay", "range": [0, 4000]}, "columns": {"age": {"low": 18, "high": 90}}}
        >>> table = fit_table(people, Schema.from_dict(facts), task="linear", epsilon=2.0).summary()
        >>> table.names, bool(abs(table.coef[0] - 20) < 6 * table.std[0] < 3)  # 20 a year of age
        (('age', '(intercept)'), True)
        """
        if self.task not in INTERVALS:
            remedy = "Fit with task='linear' or task='logit' for standard errors."
            raise ArgumentError("task", self.task, " or ".join(map(repr, INTERVALS)), remedy)
        table, target = in_schema_units(self.estimator.summary(level), self.schema), self.schema.target.column
        if not self.classifies:
            return replace(table, of=target)
        other, one = self.estimator.classes_
        return replace(table, of=f"log-odds of {target} = {one} against {other}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, completely or not at all.

        Parameters
        ----------
        path : path-like
            Where it goes; a file of that name is replaced.
        """
        write_whole(Path(path), json.dumps(self.to_dict(), allow_nan=False).encode())

    def to_dict(self) -> dict[str, Any]:
        """Return the model in plain JSON types.

        Returns
        -------
        dict
            Input of `from_dict`.
        """
        return {
            "format": FORMAT,
            "version": VERSION,
            "croupier": __version__,
            "schema": self.schema.to_dict(),
            "estimator": self.estimator.to_dict(),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableModel:
        """The model in a file. Its plans are certified again, and a promise that goes beyond them is refused.

        Parameters
        ----------
        path : path-like
            Output of `save`.

        Returns
        -------
        TableModel
            As it was saved.

        Raises
        ------
        ArgumentError
            If the file cannot be read, is of another version, or promises more than its plans keep.
        """
        path, remedy = Path(path), "Pass a file written by croupier fit."
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
            raise unreadable("MODEL", path, problem, "a model in JSON", remedy) from None
        return cls.from_dict(values, path)

    @classmethod
    def from_dict(cls, values: Any, path: str | os.PathLike[str] = "model") -> TableModel:
        """Read a model from its dictionary. Its plans are certified again, and a promise that goes beyond them is refused.

        Parameters
        ----------
        values : dict
            Output of `to_dict`.
        path : path-like, default "model"
            Its name in errors.

        Returns
        -------
        TableModel
            The same.

        Raises
        ------
        ArgumentError
            If it is of another version, or promises more than its plans keep.
        """
        path, remedy = Path(path), "Pass a file written by croupier fit."
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ArgumentError("MODEL", str(path), f"JSON of format {FORMAT!r}", remedy)
        if values.get("version") != VERSION:
            writer = values.get("croupier", "?")
            remedy = f"It was written by croupier {writer}; this is {__version__}: use that version, or train again."
            raise ArgumentError(f"{path}: version", values.get("version"), f"{VERSION}", remedy)
        facts = Schema.from_dict(values.get("schema"), f"{path}: schema")
        return cls(facts, _estimator(values.get("estimator"), path))._checked(path)

    def _checked(self, path: Path) -> TableModel:
        """Refuse a schema that does not belong to the estimator."""
        target, estimator = self.schema.target, self.estimator
        fits = len(Encoder(self.schema).names) == getattr(estimator, "n_features_in_", None)
        if target.classes is not None:
            fits = fits and np.array_equal(np.unique(target.classes), getattr(estimator, "classes_", []))
        else:
            fits = fits and np.ravel(getattr(estimator, "target_range_", ())).tolist() == list(target.range or ())
        fits = fits and getattr(estimator, "feature_range_", None) is None
        if type(estimator) in INTERVALS.values():
            fits = fits and self.schema.rows == "as-is" and estimator.feature_norm_ == Encoder(self.schema).norm
        if not fits:
            raise ArgumentError(
                f"{path}: schema", Found("belongs to another model"), "that of the estimator next to it", "Do not use this file."
            )
        return self


@dataclass(frozen=True)
class Request:
    """Which estimator is wanted: a task, one of `TASKS` or `INTERVALS`; its parameters, except for those that follow from the
    schema; and delta, where None takes the default for this many users."""

    task: str
    parameters: dict[str, Any]
    delta: float | None

    def estimator(self, facts: Schema, users: int | None = None) -> TableEstimator:
        """The estimator, its public facts from the schema; where users are known, delta too."""
        kind = (TASKS | INTERVALS)[self.task]
        if self.delta is not None:
            below = 1 / FEWEST if users is None else 1
            real("delta", self.delta, above=0, below=below, remedy="Choose much less than 1 / users; 1e-6 is usual.")
        public: dict[str, Any] = {"delta": self.delta, "feature_norm": Encoder(facts).norm}
        if facts.target.classes is not None:
            public["classes"] = list(facts.target.classes)
        else:
            public["target_range"] = facts.target.range
        if kind is ShuffleLinearRegression:
            public["exclusive"] = exclusive_columns(facts)
        known = {field.name for field in fields(kind)}
        for name, value in self.parameters.items():
            if name in (*public, "feature_range"):
                raise ArgumentError(name, value, "left out", "It follows from the schema.")
            if name not in known and self.task in INTERVALS:
                remedy = "The forecast plans its rounds, if it has any; method='moments' or 'rounds' chooses between them."
                raise ArgumentError(name, value, f"left out for the task {self.task!r}", remedy)
        estimator: TableEstimator = kind(**self.parameters, **public)
        estimator.check_request(users or FEWEST)
        return estimator if users is None else estimator.set_params(delta=estimator._delta(users))


def task_for(facts: Schema, task: str | None = None) -> str:
    """The task, or the usual one for such a target."""
    fitting = _fitting(facts)
    return fitting[0] if task is None else one_of("task", task, fitting, f"The schema's target has {_kind(facts)}.")


def request_for(facts: Schema, task: str | None, parameters: dict[str, Any], delta: float | None) -> Request:
    """Which estimator is wanted of a table: trained in rounds, or a regression with intervals."""
    classes = facts.target.classes
    fitting = "linear" if classes is None else "logit"
    if task not in INTERVALS:
        if task is not None:
            one_of("task", task, (*_fitting(facts), fitting), f"The schema's target has {_kind(facts)}.")
        return Request(task_for(facts, task), parameters, delta)
    if task != fitting or (classes is not None and len(classes) != 2):
        allowed = f"{fitting!r} for this target" if classes is None or len(classes) == 2 else "one for more than two classes"
        raise ArgumentError("task", task, allowed, f"The schema's target has {_kind(facts)}.")
    return Request(task, parameters, delta)


def _fitting(facts: Schema) -> tuple[str, ...]:
    """The tasks of rounds for such a target, the usual one first."""
    return ("classify", "svm") if facts.target.classes is not None else ("regress-mean", "regress-huber", "quantile")


def _kind(facts: Schema) -> str:
    return "a range" if facts.target.classes is None else f"{len(facts.target.classes)} classes"


def _estimator(values: Any, path: Path) -> Any:
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (*TASKS.values(), *INTERVALS.values())}
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind not in kinds:
        raise ArgumentError(f"{path}: estimator", kind, " or ".join(kinds), "Pass a file written by croupier fit.")
    return kinds[kind].from_dict(values)
