"""The query of a training round: what each user answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import LinearVectors
from ..invalid import Mask, finite_rows, numbers_or_nan, one_by_one, taken
from ..population import Query
from ..problem import Problem
from ..problem.coordinates import Recast
from ..problem.custom import is_known
from ..problem.problem import Objective, Smoothed

# What users answer who may hold an invalid record: a public default, and nothing that says so.
#
# A blank is a record whose loss has gradient 0 at every theta. In a problem with l2 it still has the regulariser's gradient, which
# all users share. So its vector is within the same bound as everybody's, and is the same whatever the record holds.

Floats = NDArray[np.float64]


def blank_products(objective: Problem | Smoothed | Recast, theta: Floats, X: Any, y: Any) -> LinearVectors:
    """`linear_gradients` of the valid records, and 0 times a row of zeros for the others."""
    rows, valid = valid_records(objective, X, y)
    if valid.all():
        return objective.linear_gradients(theta, rows, y)
    some = objective.linear_gradients(theta, rows[valid], one_by_one(y)[valid])
    features, slopes = (_spread(part, valid) for part in (some.rows, some.coefficients))
    squares = None if some.squares is None else _spread(some.squares, valid)
    return LinearVectors(features, slopes, some.shift, squares)


def blank_vectors(objective: Objective, theta: Floats, X: Any, y: Any) -> Floats:
    """The gradients of one's own loss of the valid records, and 0 for the others, and where a gradient is not finite."""
    rows, valid = valid_records(objective, X, y)
    if valid.all():
        vectors = objective.gradients(theta, rows, y)
    elif valid.any():
        vectors = _spread(objective.gradients(theta, rows[valid], None if y is None else one_by_one(y)[valid]), valid)
    else:
        return np.zeros((len(rows), objective.dim))
    finite = finite_rows(vectors)
    return vectors if finite.all() else np.where(finite[:, np.newaxis], vectors, 0.0)


def valid_records(objective: Objective, X: Any, y: Any) -> tuple[Any, Mask]:
    """X as numbers, and whose record is valid: finite features, a target that the loss takes. Each record by itself."""
    problem = objective.problem if isinstance(objective, Smoothed | Recast) else objective
    rows = numbers_or_nan(X) if isinstance(problem, Problem) else X
    valid = finite_rows(rows)
    if y is None or np.shape(y) != valid.shape:  # which is refused, where it is wrong, for everybody
        return rows, valid
    targets = one_by_one(y)
    if not isinstance(problem, Problem):
        return rows, valid & (finite_rows(targets) if targets.dtype.kind == "f" else True)
    loss = problem.loss
    return rows, valid & (
        loss.valid(targets) if is_known(type(loss)) else taken(lambda some: loss.targets(targets[some]), len(targets))
    )


def _spread(part: NDArray[Any], valid: Mask) -> NDArray[Any]:
    """What the valid records have, with zeros for the others in between."""
    whole = np.zeros((len(valid), *part.shape[1:]), dtype=part.dtype)
    whole[valid] = part
    return whole


@dataclass(frozen=True)
class Gradients(Query):
    """The query of a round: the gradients of some users' losses at theta; with `blank`, of those whose record is valid."""

    objective: Objective
    theta: Floats
    blank: bool = False

    def __call__(self, X: Any, y: Any) -> Floats:
        if self.blank:
            return np.asarray(self._linear(X, y)) if self.parallel else blank_vectors(self.objective, self.theta, X, y)
        return self.objective.gradients(self.theta, X, y)

    @property
    def parallel(self) -> bool:
        """Whether these are our own gradients, which threads can compute side by side; of others that is not known."""
        problem = self.objective.problem if isinstance(self.objective, Smoothed | Recast) else self.objective
        return type(problem) is Problem and is_known(type(problem.loss))

    @property
    def about(self) -> bytes:
        """What of the question is not in theta: the coordinates that earlier rounds have found."""
        return self.objective.coordinates.digest if isinstance(self.objective, Recast) else b""

    def vectors(self, X: Any, y: Any) -> Floats | LinearVectors:
        """The same as products of slopes and features, where they are our own."""
        return self._linear(X, y) if self.parallel else self(X, y)

    def _linear(self, X: Any, y: Any) -> LinearVectors:
        objective = cast(Problem | Smoothed | Recast, self.objective)
        if self.blank:
            return blank_products(objective, self.theta, X, y)
        return objective.linear_gradients(self.theta, X, y)
