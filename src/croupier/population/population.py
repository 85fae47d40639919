"""The interface between an optimizer and users, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..privacy import SumPlan
from ..protocol import LinearVectors, Secret, SparseVectors, SumEstimate
from ..validation import ArgumentError
from .dealing import Batch

# One vector per user, as they are, as products or by their entries.
Vectors = NDArray[np.float64] | LinearVectors | SparseVectors


class Query(Protocol):
    """What is asked in a round: a function from some users' records (X, y) to one vector per user, evaluated where they are.

    Any function is one. A class of one's own may also be a `ParallelQuery` or a `ProductQuery`, by having what these declare.
    """

    def __call__(self, X: Any, y: Any, /) -> NDArray[np.float64]: ...


@runtime_checkable
class ParallelQuery(Query, Protocol):
    """A query that says whether threads may call it at once; of others that is not known, and one thread asks."""

    @property
    def parallel(self) -> bool: ...


@runtime_checkable
class ProductQuery(Query, Protocol):
    """A query that may have the same vectors as products, which take less memory; None where it has not."""

    @property
    def products(self) -> Callable[[Any, Any], LinearVectors] | None: ...


@runtime_checkable
class RangedQuery(Query, Protocol):
    """A query whose vectors have norm at most `norm` and are at most `diameter` apart, whatever the records are."""

    @property
    def norm(self) -> float: ...

    @property
    def diameter(self) -> float: ...


@runtime_checkable
class SparseQuery(Query, Protocol):
    """A query that says how many entries of a vector there usually are, so that pieces of users fit memory."""

    @property
    def entries(self) -> int: ...


class Test(Protocol):
    """What records must pass before anybody is asked, evaluated where they are: raises where (X, y) is not what is wanted."""

    def __call__(self, X: Any, y: Any, /) -> None: ...


@runtime_checkable
class BlankTest(Test, Protocol):
    """A test that says whether what is not finite is left to it and to the query."""

    @property
    def blanks(self) -> bool: ...


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

    Whoever asks owes a secret that belongs to this question alone: see `Secret`. `number` is that of the round in its run,
    counted from 1, for those who tell rounds apart. A plan that counts on a diameter is refused for a query that does not
    have it (`RangedQuery`): gradients, say, are anywhere in their ball.
    """

    query: Query
    batch: Batch
    plan: SumPlan
    secret: Secret
    number: int = 1

    def __post_init__(self) -> None:
        if self.plan.diameter is None:
            return
        query, plan = self.query, self.plan
        if not isinstance(query, RangedQuery) or query.norm > plan.norm or query.diameter > self.plan.diameter:
            claim = f"norm {query.norm} and diameter {query.diameter}" if isinstance(query, RangedQuery) else "no range"
            allowed = f"left out, or at least that of the query, which claims {claim}"
            raise ArgumentError("plan.diameter", self.plan.diameter, allowed, "Plan with the query's own norm and diameter.")


@runtime_checkable
class Population(Protocol):
    """Users that can be asked, under a plan, for the sum of a vector function of their records. Nothing else leaves them.

    `private` says whether its answers are as private as the plan: False for a stand-in, which is charged as a fit without a
    guarantee. `unit` says what a user is, "row", "person" or just "user"; an account does not count fits of different units
    together.
    """

    @property
    def users(self) -> int: ...

    @property
    def private(self) -> bool: ...

    @property
    def unit(self) -> str: ...

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Refuse records that fail the test, before anybody is asked.

        With a key, returns a keyed digest of the records, by which another process can tell that it sees the same ones: None
        where that cannot be told. It says nothing to whoever does not have the key.
        """
        ...

    def answer(self, question: Question) -> SumEstimate:
        """One private round. The same question gives the same answer, however often it is asked."""
        ...


def require_population(data: Any) -> None:
    """Refuse what is not a Population, and say what it lacks, before anybody is asked."""
    lacks = [name for name in ("users", "private", "unit", "prepare", "answer") if not hasattr(data, name)]
    if lacks:
        remedy = f"Give it {', '.join(lacks)}; croupier.population.Population says what they are."
        raise ArgumentError("population", type(data).__name__, "a Population", remedy)
