"""The interface between an optimizer and users, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import LinearVectors
from ..privacy import Guarantee, LotsPlan, SumPlan
from ..protocol import SumEstimate
from ..protocol.randomness import Secret
from ..protocol.sparse import SparseVectors
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
    def parallel(self) -> bool:
        """Whether several threads may call it at once."""
        ...


@runtime_checkable
class ProductQuery(Query, Protocol):
    """A query that may give the same vectors as products, which take less memory."""

    @property
    def products(self) -> Callable[[Any, Any], LinearVectors] | None:
        """A function from (X, y) to the same vectors as products; None where there is none."""
        ...


@runtime_checkable
class RangedQuery(Query, Protocol):
    """A query whose vectors have norm at most `norm` and are at most `diameter` apart, whatever the records are."""

    @property
    def norm(self) -> float:
        """A bound on the l2 norm of every vector."""
        ...

    @property
    def diameter(self) -> float:
        """A bound on the l2 distance of any two vectors, zero among them."""
        ...


@runtime_checkable
class SparseQuery(Query, Protocol):
    """A query that says how many entries of a vector there usually are, so that pieces of users fit memory."""

    @property
    def entries(self) -> int:
        """How many entries a vector usually has."""
        ...


class Test(Protocol):
    """What records must pass before anybody is asked, evaluated where they are: raises where (X, y) is not what is wanted."""

    def __call__(self, X: Any, y: Any, /) -> None: ...


@runtime_checkable
class BlankTest(Test, Protocol):
    """A test that says whether what is not finite is left to it and to the query."""

    @property
    def blanks(self) -> bool:
        """Whether values that are not finite are left to the test and to the query."""
        ...


class UnreachableError(RuntimeError):
    """Users cannot be reached: a file or a machine is gone.

    Parameters
    ----------
    text : str
        What cannot be reached, and why. It must not hold a record's value.
    whatever_the_records : bool, default True
        Whether it would have happened whatever is in the records, as with a file that was moved. A machine that is lost again and
        again may be lost because of a record.
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

    With `lots` the batch are the users of a secret lot. Whoever answers adds blanks, reports of the zero vector, up to the public
    `size`, and says of the estimate's `users` nothing but this size: not the batch's.

    Parameters
    ----------
    query : Query
        What is asked: from records (X, y) to one vector per user.
    batch : Batch
        The users who are asked.
    plan : SumPlan
        How their vectors are encoded, and how much noise they add; with lots that of one of its rounds.
    secret : Secret
        What the round's randomness is derived from. Whoever asks owes one that belongs to this question alone.
    number : int, default 1
        The number of the round in its run, counted from 1, for those who tell rounds apart.
    lots : LotsPlan or None, default None
        The plan of the run, where rounds are drawn by secret lots.

    Guarantee
    ---------
    The same question gives the same answer, however often it is asked. Asking again is not a second release.
    """

    query: Query
    batch: Batch
    plan: SumPlan
    secret: Secret
    number: int = 1
    lots: LotsPlan | None = None

    @property
    def size(self) -> int:
        """Reports in the round, blanks included: public."""
        return self.batch.size if self.lots is None else self.lots.size

    @property
    def blanks(self) -> int:
        """Reports that fill the round up. As secret as the lots."""
        return self.size - self.batch.size

    def promised(self, guarantee: Guarantee | None) -> Guarantee | None:
        """Give the guarantee that the round's estimate may claim: with lots that of the whole run."""
        return guarantee if self.lots is None or guarantee is None else self.lots.guarantee

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
    """Users that can be asked, under a plan, for the sum of a vector function of their records. Nothing else leaves them."""

    @property
    def users(self) -> int:
        """How many users there are. This is public."""
        ...

    @property
    def private(self) -> bool:
        """Whether its answers are as private as the plan: False for a stand-in, which is charged as a fit without a guarantee."""
        ...

    @property
    def unit(self) -> str:
        """What a user is: "row", "person" or "user". An account does not count fits of different units together."""
        ...

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Refuse records that fail the test, before anybody is asked.

        Parameters
        ----------
        test : Test
            Called with records (X, y) where they are; raises where they are not what is wanted.
        key : bytes or None, default None
            The key of the digest; None where no digest is wanted.

        Returns
        -------
        bytes or None
            A keyed digest of the records, by which another process can tell that it sees the same ones. It says nothing to whoever
            does not have the key. None without a key, or where the records cannot be compared.
        """
        ...

    def answer(self, question: Question) -> SumEstimate:
        """Run one private round. The same question gives the same answer, however often it is asked.

        Parameters
        ----------
        question : Question
            What is asked, of whom, and under which plan.

        Returns
        -------
        SumEstimate
            The sum over the batch, its noise and its guarantee.
        """
        ...


def require_population(data: Any) -> None:
    """Refuse what is not a Population, and say what it lacks, before anybody is asked."""
    lacks = [name for name in ("users", "private", "unit", "prepare", "answer") if not hasattr(data, name)]
    if lacks:
        remedy = f"Give it {', '.join(lacks)}; croupier.population.Population says what they are."
        raise ArgumentError("population", type(data).__name__, "a Population", remedy)
