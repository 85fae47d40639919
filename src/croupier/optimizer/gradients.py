"""The query of a training round: what each user answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..problem import Objective, Problem, Smoothed
from ..problem.custom import is_known
from ..protocol import LinearVectors
from .blank import blank_products, blank_vectors

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Gradients:
    """The query of a round: the gradients of some users' losses at theta; with `blank`, of whoever's record is valid."""

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
        problem = self.objective.problem if type(self.objective) is Smoothed else self.objective
        return type(problem) is Problem and is_known(type(problem.loss))

    @property
    def products(self) -> Callable[[Any, Any], LinearVectors] | None:
        """The same as products of slopes and features, where they are our own."""
        return self._linear if self.parallel else None

    def _linear(self, X: Any, y: Any) -> LinearVectors:
        objective = cast(Problem | Smoothed, self.objective)
        if self.blank:
            return blank_products(objective, self.theta, X, y)
        return objective.linear_gradients(self.theta, X, y)
