"""Regressions with intervals on a table: which there are, how records become their rows, and coefficients in the schema's units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..estimator import RegressionTable, ShuffleLinearRegression, ShuffleLogit
from ..estimator._linear import LinearModel
from ..privacy import default_delta
from ..validation import ArgumentError, Found, real
from .columns import Category, Numeric
from .encode import Encoder, features_of
from .schema import Schema

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

    Parameters
    ----------
    schema : Schema
        The public facts.

    Returns
    -------
    Schema
        The same facts, with `rows = "as-is"` and references.

    Examples
    --------
    >>> facts = {"target": {"column": "pay", "range": [0, 100]}, "columns": {"sex": {"levels": ["f", "m"]}}}
    >>> interval_schema(Schema.from_dict(facts)).columns["sex"].reference
    'f'
    """
    columns = {
        name: replace(column, reference=column.levels[0])
        if isinstance(column, Category) and column.reference is None and len(column.levels) > 1
        else column
        for name, column in schema.columns.items()
    }
    return replace(schema, rows="as-is", columns=columns)


@dataclass(frozen=True)
class IntervalRequest:
    """Which regression with intervals is wanted.

    Parameters
    ----------
    task : {"linear", "logit"}
        One of `INTERVALS`.
    parameters : dict
        The estimator's, but for those that follow from the schema, and for delta.
    delta : float or None
        Of the guarantee; None takes 1e-6, or 0.1 / users if that is less.

    Examples
    --------
    >>> facts = {"target": {"column": "pay", "range": [0, 100]}, "columns": {"age": {"low": 0, "high": 100}}}
    >>> IntervalRequest("linear", {"epsilon": 2.0}, None).estimator(interval_schema(Schema.from_dict(facts))).target_range
    (0.0, 100.0)
    """

    task: str
    parameters: dict[str, Any]
    delta: float | None

    def estimator(self, facts: Schema, users: int | None = None) -> ShuffleLinearRegression | ShuffleLogit:
        """The estimator for so many users, its public facts from the schema.

        Parameters
        ----------
        facts : Schema
            What `interval_schema` gave.
        users : int, optional
            Left out before users are counted: then only what is wrong for any number of them is refused.

        Returns
        -------
        ShuffleLinearRegression or ShuffleLogit
            Not fitted yet.

        Raises
        ------
        ArgumentError
            Where the request cannot be kept, or a parameter is one of training in rounds.
        """
        kind = INTERVALS[self.task]
        known = {field.name for field in fields(kind)}
        public = self._public(facts, users)
        for name, value in self.parameters.items():
            if name in public:
                raise ArgumentError(name, value, "left out", "It follows from the schema.")
            if name not in known:
                remedy = "Everybody is asked once: there are no rounds to be trained in."
                raise ArgumentError(name, value, f"left out for the task {self.task!r}", remedy)
        if self.delta is not None:
            real("delta", self.delta, above=0, below=1, remedy="Take much less than 1 / users; 1e-6 is usual.")
        estimator = kind(**self.parameters, **public)
        estimator.check_request(users or 8)
        return estimator

    def _public(self, facts: Schema, users: int | None) -> dict[str, Any]:
        """The parameters that follow from the schema and the number of users."""
        public: dict[str, Any] = {"delta": default_delta(users or 2) if self.delta is None or users is None else self.delta}
        public["feature_norm"] = Encoder(facts).norm
        if facts.target.classes is not None:
            public["classes"] = list(facts.target.classes)
        else:
            public |= {"target_range": facts.target.range, "exclusive": exclusive_columns(facts)}
        return public


def exclusive_columns(schema: Schema) -> tuple[tuple[int, ...], ...]:
    """Return the features of every category that has two or more: of them at most one is not 0 in any row.

    Parameters
    ----------
    schema : Schema
        The public facts.

    Returns
    -------
    tuple of tuple of int
        Places in `Encoder.names`.

    Examples
    --------
    >>> facts = {"target": {"column": "pay", "range": [0, 1]}, "columns": {"sex": {"levels": ["f", "m"]}}}
    >>> exclusive_columns(Schema.from_dict(facts))
    ((0, 1),)
    """
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

    Parameters
    ----------
    table : RegressionTable
        Of rows that this schema's encoder made, with its covariance.
    schema : Schema
        With rows as they are.

    Returns
    -------
    RegressionTable
        One row per feature and, last, the intercept. A number on a log scale is per unit of log(1 + value - low). That a number is
        missing is counted against the middle of its range, which stands in for it.

    Raises
    ------
    ArgumentError
        Where rows are divided by their own length, or are another schema's.

    Examples
    --------
    >>> import numpy as np
    >>> facts = {"target": {"column": "pay", "range": [0, 100]}, "columns": {"age": {"low": 20, "high": 60}}}
    >>> schema = interval_schema(Schema.from_dict(facts))
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(50_000, 1))  # ages 20 to 60, as the encoder scales them
    >>> table = ShuffleLinearRegression(target_range=(0, 100), epsilon=4.0).fit(X, 50 + 20 * X[:, 0]).summary()
    >>> units = in_schema_units(table, schema)
    >>> units.names, np.round(units.coef).tolist()  # 1 a year, and 10 at the age of 0
    (('age', '(intercept)'), [1.0, 10.0])
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
