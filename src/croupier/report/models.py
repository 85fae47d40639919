"""Words about models: what one promises, in a few lines, and what its public facts are."""

from __future__ import annotations

from typing import Any

from ..privacy._statements import SEEDED, guarantee_line, not_private, watched_line
from ..table.schema import Category, Column, Schema


def promise_lines(estimator: Any) -> list[str]:
    """Say in a line what a fitted estimator promises, and what has to be said beside it.

    Parameters
    ----------
    estimator : PrivateEstimator
        A fitted classifier or regressor of `croupier.estimator`.

    Returns
    -------
    list of str
        The guarantee, or why there is none; then, where training was stopped early, what that means.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier.estimator import ShuffleLogisticRegression
    >>> from croupier.report import promise_lines
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3)) / 3
    >>> model = ShuffleLogisticRegression(classes=[False, True]).fit(X, X[:, 0] > 0)
    >>> promise_lines(model)[0].startswith("Guarantee: ")
    True
    """
    result, guarantee = getattr(estimator, "result_", None), estimator.guarantee_
    if guarantee is None:
        lines = [f"{not_private(SEEDED)} Leave --seed out for real data."]
    else:
        lines = [f"Guarantee: {guarantee_line(guarantee, estimator.promise_.epsilon)}."]
        if guarantee.watched is not None:
            known = watched_line(guarantee, estimator.promise_.delta)
            lines.append(f"That is with secret lots. To somebody who also knows when each user answered: {known}.")
    if result is not None and result.stopped:
        lines.append(
            f"Stopped after {result.rounds} of {result.schedule.rounds} planned rounds; the model is that of these rounds."
        )
    if result is not None and result.stopped and guarantee is not None:
        lines.append("The guarantee counts all planned rounds, so it holds even if what was shown made you stop.")
    return lines


def described_lines(schema: Schema, estimator: Any) -> list[str]:
    """Say where a model's schema comes from, if it was described privately, and what that adds to the model's promise.

    Parameters
    ----------
    schema : Schema
        The model's.
    estimator : PrivateEstimator
        The fitted estimator.

    Returns
    -------
    list of str
        A line, or none.

    Examples
    --------
    >>> from croupier.report import described_lines
    >>> from croupier.table import Schema
    >>> facts = {"columns": {"age": {"low": 0, "high": 100}}, "target": {"column": "paid", "classes": [0, 1]}}
    >>> described_lines(Schema.from_dict(facts), None)
    []
    """
    if schema.described is None:
        return []
    promise = None if estimator.guarantee_ is None else (estimator.promise_.epsilon, estimator.promise_.delta)
    return schema.described.lines(promise)


def schema_facts(schema: Schema) -> dict[str, str]:
    """Return the public facts about every column, as the report shows them.

    Parameters
    ----------
    schema : Schema
        The schema of the table that a model was fitted on.

    Returns
    -------
    dict of str to str
        From "column NAME" to its levels or its range, in words.

    Examples
    --------
    >>> from croupier.report import schema_facts
    >>> from croupier.table import Schema
    >>> facts = {"columns": {"age": {"low": 0, "high": 100}}, "target": {"column": "paid", "classes": [0, 1]}}
    >>> schema_facts(Schema.from_dict(facts))
    {'column age': '0 to 100'}
    """
    origin = {} if schema.described is None else {"ranges": schema.described.origin}
    return origin | {f"column {name}": _fact(column) for name, column in schema.columns.items()}


def _fact(column: Column) -> str:
    if isinstance(column, Category):
        some = ", ".join(column.levels[:12])
        more = "" if len(column.levels) <= 12 else f" and {len(column.levels) - 12} more"
        return f"{some}{more}" if column.reference is None else f"{some}{more}; counted against {column.reference}"
    how = ", in equal ratios" if column.scale == "log" else ""
    return f"{column.low:g} to {column.high:g}{how}{', or missing' if column.missing else ''}"
