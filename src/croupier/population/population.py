"""The interface between an optimizer and users, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import RandomSource, SumEstimate

# From some users' records (X, y) to one vector per user, evaluated where the records are.
Query = Callable[[Any, Any], NDArray[np.float64]]


class Population(Protocol):
    """Users that can be asked, under a plan, for the sum of a vector function of their records. Nothing else leaves them."""

    @property
    def users(self) -> int: ...

    def answer(self, query: Query, users: NDArray[np.int64], plan: SumPlan, random: RandomSource) -> SumEstimate:
        """One private round over the users with these numbers."""
        ...
