"""The interface between an optimizer and users, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import LinearVectors, Secret, SparseVectors, SumEstimate
from ..validation import ArgumentError
from .deal import Batch

# One vector per user, as they are, as products or by their entries.
Vectors = NDArray[np.float64] | LinearVectors | SparseVectors
# From some users' records (X, y) to one vector per user, evaluated where the records are. Where its attribute
# `parallel` is true, threads may call it at once; `products`, if any, is a function to the same vectors as LinearVectors or
# SparseVectors, and `entries` how many of a vector's entries there usually are.
Query = Callable[[Any, Any], NDArray[np.float64]]
# Raises where the records (X, y) are not what is wanted; evaluated where they are.
Test = Callable[[Any, Any], None]


class UnreachableError(RuntimeError):
    """Users cannot be reached: a file or a machine is gone.

    `whatever_the_records` says that it would have happened whatever is in their records, as with a file that was moved. A machine
    that is lost again and again may be lost because of a record.
    """

    def __init__(self, text: str, *, whatever_the_records: bool = True) -> None:
        super().__init__(text)
        self.whatever_the_records = whatever_the_records


@dataclass(frozen=True)
class Question:
    """One round: what is asked, of whom, under which plan, and the secret that its randomness is derived from.

    Whoever asks owes a secret that belongs to this question alone: see `Secret`. A plan that counts on a diameter is refused for a
    query that does not have it (`croupier.statistics.Query`): gradients, say, are anywhere in their ball.
    """

    query: Query
    batch: Batch
    plan: SumPlan
    secret: Secret

    def __post_init__(self) -> None:
        if self.plan.diameter is None:
            return
        norm, diameter = (getattr(self.query, name, None) for name in ("norm", "diameter"))
        if not (norm and diameter and norm <= self.plan.norm and diameter <= self.plan.diameter):
            allowed = f"left out, or at least that of the query, which claims norm {norm} and diameter {diameter}"
            raise ArgumentError("plan.diameter", self.plan.diameter, allowed, "Plan with the query's own norm and diameter.")


class Population(Protocol):
    """Users that can be asked, under a plan, for the sum of a vector function of their records. Nothing else leaves them."""

    @property
    def users(self) -> int: ...

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Refuse records that fail the test, before anybody is asked.

        With a key, returns a keyed digest of the records, by which another process can tell that it sees the same ones: None
        where that cannot be told. It says nothing to whoever does not have the key.
        """
        ...

    def answer(self, question: Question) -> SumEstimate:
        """One private round. The same question gives the same answer, however often it is asked."""
        ...
