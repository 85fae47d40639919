"""The interface between an optimizer and users, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import LinearVectors, Secret, SumEstimate
from .deal import Batch

# One vector per user, as they are or as products.
Vectors = NDArray[np.float64] | LinearVectors
# From some users' records (X, y) to one vector per user, evaluated where the records are. Where its attribute
# `parallel` is true, threads may call it at once; `products`, if any, is a function to the same vectors as LinearVectors.
Query = Callable[[Any, Any], NDArray[np.float64]]
# Raises where the records (X, y) are not what is wanted; evaluated where they are. Where its attribute `blanks` is true, what is
# not finite is left to it and to the query.
Test = Callable[[Any, Any], None]


class UnreachableError(RuntimeError):
    """Users cannot be reached: a file or a machine is gone.

    `whatever_the_records` says that it would have happened whatever is in their records, as with a file that was moved. A machine
    that is lost again and again may be lost because of a record.
    """

    def __init__(self, text: str, *, whatever_the_records: bool = True) -> None:
        super().__init__(text)
        self.whatever_the_records = whatever_the_records


class WorkerError(RuntimeError):
    """Something other than this package's own errors was raised where the records are: by a block's `read`, or one's own loss.

    It says of which kind that was, and on which lines, and not what it said: that may hold a record.
    """


@dataclass(frozen=True)
class Question:
    """One round: what is asked, of whom, under which plan, and the secret that its randomness is derived from.

    Whoever asks owes a secret that belongs to this question alone: see `Secret`.
    """

    query: Query
    batch: Batch
    plan: SumPlan
    secret: Secret


class Population(Protocol):
    """Users that can be asked, under a plan, for the sum of a vector function of their records. Nothing else leaves them.

    An attribute `unit` may say what a user is, "row" or "person"; an account does not count fits of different units together.
    """

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
