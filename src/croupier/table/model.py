"""A fitted table model: an estimator, and the schema that turns records into its rows. As JSON; reading it runs no code."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..estimator import (
    RegressionTable,
    ShuffleHuberRegressor,
    ShuffleLinearSVC,
    ShuffleLogisticRegression,
    ShuffleQuantileRegressor,
    ShuffleRidge,
)
from ..estimator._linear import LinearModel
from ..files import write_whole
from ..privacy import default_delta
from ..validation import ArgumentError, Found, one_of, real
from .encode import Encoder
from .intervals import INTERVALS, IntervalRequest, in_schema_units
from .schema import Schema

FORMAT, VERSION = "croupier table model", 2
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
            For a model that is no regression with intervals.

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
        what = f"log-odds of {target} = {self.estimator.classes_[1]}" if self.classifies else target
        return replace(table, method=f"{table.method}, {what}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, which is there in full or not at all.

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
            What `from_dict` reads.
        """
        return {
            "format": FORMAT,
            "version": VERSION,
            "croupier": __version__,
            "schema": self.schema.to_dict(),
            "estimator": json.loads(self.estimator.to_json()),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableModel:
        """The model in a file. Its plans are proved again, and a promise that goes beyond them is refused.

        Parameters
        ----------
        path : path-like
            What `save` wrote.

        Returns
        -------
        TableModel
            As it was saved.

        Raises
        ------
        ArgumentError
            Where the file cannot be read, is of another version, or promises more than its plans keep.
        """
        path, remedy = Path(path), "Pass a file that croupier fit wrote."
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or "not JSON; it may have been cut off"
            raise ArgumentError("MODEL", str(path), f"a model file that can be read ({reason})", remedy) from None
        return cls.from_dict(values, path)

    @classmethod
    def from_dict(cls, values: Any, path: str | os.PathLike[str] = "model") -> TableModel:
        """Read a model from its dictionary. Its plans are proved again, and a promise that goes beyond them is refused.

        Parameters
        ----------
        values : dict
            What `to_dict` gave.
        path : path-like, default "model"
            What errors call it.

        Returns
        -------
        TableModel
            The same.

        Raises
        ------
        ArgumentError
            Where it is of another version, or promises more than its plans keep.
        """
        path, remedy = Path(path), "Pass a file that croupier fit wrote."
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ArgumentError("MODEL", str(path), f"JSON of format {FORMAT!r}", remedy)
        if values.get("version") != VERSION:
            writer = values.get("croupier", "?")
            remedy = f"It was written by croupier {writer}; this is {__version__}: use that one, or train again."
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
        if type(estimator) in INTERVALS.values():
            fits = fits and self.schema.rows == "as-is" and estimator.feature_norm_ == Encoder(self.schema).norm
        if not fits:
            raise ArgumentError(
                f"{path}: schema", Found("is another model's"), "that of the estimator beside it", "Do not use this file."
            )
        return self


@dataclass(frozen=True)
class Request:
    """Which estimator is wanted.

    Parameters
    ----------
    task : str
        One of `TASKS`.
    parameters : dict
        The estimator's, but for those that follow from the schema, and for delta.
    delta : float or None
        Of the guarantee; None takes 1e-6, or 0.1 / users if that is less.

    Examples
    --------
    >>> from croupier.table import Schema
    >>> facts = {"target": {"column": "ill", "classes": ["no", "yes"]}, "columns": {"age": {"low": 0, "high": 100}}}
    >>> Request("classify", {"epsilon": 2.0}, None).estimator(Schema.from_dict(facts), users=1000).classes
    ['no', 'yes']
    """

    task: str
    parameters: dict[str, Any]
    delta: float | None

    def estimator(self, facts: Schema, users: int | None = None) -> LinearModel:
        """The estimator for so many users, its public facts from the schema.

        Parameters
        ----------
        facts : Schema
            The public facts about the table.
        users : int, optional
            Left out before users are counted: then only what is wrong for any number of them is refused.

        Returns
        -------
        LinearModel
            Not fitted yet.

        Raises
        ------
        ArgumentError
            Where the request cannot be kept.
        """
        if self.delta is not None:
            real("delta", self.delta, above=0, below=1, remedy="Take much less than 1 / users; 1e-6 is usual.")
        for name in {"feature_norm", "feature_range"} & set(self.parameters):
            raise ArgumentError(name, self.parameters[name], "left out", "It follows from the schema.")
        target = facts.target
        public = {"classes": list(target.classes)} if target.classes is not None else {"target_range": target.range}
        delta = default_delta(users or 2) if self.delta is None or users is None else self.delta
        norm = Encoder(facts).norm
        estimator = TASKS[self.task](**self.parameters, **public, delta=delta, feature_norm=norm)
        estimator.check_request(users or 2)
        return estimator


def task_for(facts: Schema, task: str | None = None) -> str:
    """The task, or the usual one for such a target.

    Parameters
    ----------
    facts : Schema
        The public facts, of which the target's count.
    task : str, optional
        One of `TASKS`; by the target unless given.

    Returns
    -------
    str
        One of `TASKS`.

    Raises
    ------
    ArgumentError
        Where the task is not one for this target.

    Examples
    --------
    >>> from croupier.table import Schema
    >>> facts = {"target": {"column": "ill", "classes": ["no", "yes"]}, "columns": {"age": {"low": 0, "high": 100}}}
    >>> task_for(Schema.from_dict(facts)), task_for(Schema.from_dict(facts), "svm")
    ('classify', 'svm')
    """
    fitting = _fitting(facts)
    return fitting[0] if task is None else one_of("task", task, fitting, f"The schema's target has {_kind(facts)}.")


def request_for(facts: Schema, task: str | None, parameters: dict[str, Any], delta: float | None) -> Request | IntervalRequest:
    """Which estimator is wanted of a table: trained in rounds, or a regression with intervals.

    Parameters
    ----------
    facts : Schema
        The public facts, of which the target's count.
    task : str or None
        One of `TASKS` or `INTERVALS`; by the target unless given.
    parameters : dict
        The estimator's.
    delta : float or None
        Of the guarantee.

    Returns
    -------
    Request or IntervalRequest
        By the task.

    Raises
    ------
    ArgumentError
        Where the task is not one for this target.

    Examples
    --------
    >>> from croupier.table import Schema
    >>> facts = {"target": {"column": "ill", "classes": ["no", "yes"]}, "columns": {"age": {"low": 0, "high": 100}}}
    >>> request_for(Schema.from_dict(facts), "logit", {}, None).task
    'logit'
    """
    classes = facts.target.classes
    fitting = "linear" if classes is None else "logit"
    if task not in INTERVALS:
        if task is not None:
            one_of("task", task, (*_fitting(facts), fitting), f"The schema's target has {_kind(facts)}.")
        return Request(task_for(facts, task), parameters, delta)
    if task != fitting or (classes is not None and len(classes) != 2):
        allowed = f"{fitting!r} for this target" if classes is None or len(classes) == 2 else "one for more than two classes"
        raise ArgumentError("task", task, allowed, f"The schema's target has {_kind(facts)}.")
    return IntervalRequest(task, parameters, delta)


def _fitting(facts: Schema) -> tuple[str, ...]:
    """The tasks of rounds for such a target, the usual one first."""
    return ("classify", "svm") if facts.target.classes is not None else ("regress-huber", "regress-mean", "quantile")


def _kind(facts: Schema) -> str:
    return "a range" if facts.target.classes is None else f"{len(facts.target.classes)} classes"


def _estimator(values: Any, path: Path) -> Any:
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (*TASKS.values(), *INTERVALS.values())}
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind not in kinds:
        raise ArgumentError(f"{path}: estimator", kind, " or ".join(kinds), "Pass a file that croupier fit wrote.")
    return kinds[kind].from_json(json.dumps(values))
