"""The interface between an optimizer and users, wherever they are; and who takes part in which round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count, pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..arithmetic import LinearVectors
from ..privacy import Guarantee, LotsPlan, SumPlan
from ..protocol import SumEstimate, VectorSum
from ..protocol._sparse import SparseVectors
from ..protocol.randomness import Secret
from ..validation import ArgumentError

# Who takes part in which round: users are dealt to rounds by secret tickets, which any machine can draw for its own users.
#
# There is not a list of all users anywhere. User i's ticket is the i-th 64-bit number of a keystream, and users are ranked by their
# tickets: that is a uniformly random order, whatever the data. A batch is a range of ranks, so a range of tickets. With secret
# lots (`draw_lots`) a round is one of so many equal ranges of tickets, and how many users have it is nobody's business. A user
# with several rows has one ticket. Every block of records is read in every round, whether or not one of its users has the lot: a
# file that is gone stops the run in a round that says nothing.


# Tickets that are drawn under one key, so that a machine need not draw those of all users before its own.
_PAGE = 1 << 16
_LEADING_BITS = 16
_LARGEST = 2**64 - 1


@dataclass(frozen=True)
class Order:
    """A uniformly random order of users, for holders of the secret.

    `secret`: What the tickets are drawn from; anyone who has it knows the order. `users`: How many users there are.

    Guarantee
    ---------
    Tickets are uniform and independent, whatever the data, as far as the secret's keystream cannot be told from random bytes.
    """

    secret: Secret
    users: int

    def tickets(self, first: int, last: int) -> NDArray[np.uint64]:
        """Draw the tickets of the users numbered from `first` up to `last`."""
        start = first // _PAGE * _PAGE
        pages = [self._page(page, min(_PAGE, last - page)) for page in range(start, last, _PAGE)]
        return np.concatenate(pages or [np.zeros(0, dtype=np.uint64)])[first - start :]

    def lots(self, rounds: int) -> NDArray[np.int64] | None:
        """Count the users of each lot."""
        width, counts = _width(rounds), np.zeros(rounds, dtype=np.int64)
        for tickets in self._pages():
            lots = tickets // width
            if lots.max() >= rounds:
                return None
            counts += np.bincount(lots.astype(np.int64), minlength=rounds)
        return counts

    def smallest(self, low: int, high: int, count: int) -> int:
        """Find the ticket that follows the `count` smallest ones from `low` to `high`."""
        kept = [tickets[(tickets >= np.uint64(low)) & (tickets <= np.uint64(high))] for tickets in self._pages()]
        return int(np.sort(np.concatenate(kept))[count])

    def ranked(self, ranks: Iterable[int]) -> dict[int, int]:
        """Find the tickets of these ranks.

        Tickets are counted by their leading bits first, so that only those near a rank are ever held in memory.
        """
        wanted = np.unique(np.fromiter(ranks, dtype=np.int64))
        counts = np.zeros(1 << _LEADING_BITS, dtype=np.int64)
        for tickets in self._pages():
            counts += np.bincount(_leading(tickets), minlength=counts.size)
        bins = np.searchsorted(np.cumsum(counts), wanted, side="right")
        near = np.zeros(counts.size, dtype=np.bool_)
        near[bins] = True
        kept = np.sort(np.concatenate([tickets[near[_leading(tickets)]] for tickets in self._pages()]))
        before = np.cumsum(np.where(near, 0, counts))[bins]  # tickets below a rank that were not kept
        return dict(zip(wanted.tolist(), kept[wanted - before].tolist(), strict=True))

    def _pages(self) -> Iterator[NDArray[np.uint64]]:
        for first in range(0, self.users, _PAGE):
            yield self._page(first, min(_PAGE, self.users - first))

    def _page(self, first: int, length: int) -> NDArray[np.uint64]:
        return self.secret.derive("tickets", first // _PAGE).source().draw_bytes(8 * length).view("<u8")


@dataclass(frozen=True)
class Batch:
    """The users of one round: those ranked from `first` up to `last`, whose tickets lie between `low` and `high`.

    `order`: The order of all users. `first`, `last`: The rank of the first user, and that after the last one. `low`, `high`: The
    least and the largest ticket, both included.
    """

    order: Order
    first: int
    last: int
    low: int
    high: int

    @classmethod
    def everyone(cls, users: int) -> Batch:
        """Give the batch of all users."""
        return cls(Order(Secret(bytes(32), private=False), users), 0, users, 0, _LARGEST)

    @property
    def size(self) -> int:
        """How many users are in it."""
        return self.last - self.first

    @property
    def is_everyone(self) -> bool:
        """Whether all users are in it."""
        return self.size == self.order.users

    def members(self, first: int, last: int) -> NDArray[np.int64]:
        """Tell who of the users numbered from `first` up to `last` is in it."""
        if self.is_everyone:
            return np.arange(last - first)
        tickets = self.order.tickets(first, last)
        return np.flatnonzero((tickets >= np.uint64(self.low)) & (tickets <= np.uint64(self.high)))


class Seats:
    """Some users sorted by their tickets' leading bits: asking who is in a batch is a look-up, for data that is kept anyway.

    It takes 14 bytes per user. Leading bits are sorted in a third of the time that whole tickets take.
    """

    def __init__(self, order: Order, first: int, last: int) -> None:
        self.order, self._tickets = order, order.tickets(first, last)
        leading = (self._tickets >> np.uint64(64 - _LEADING_BITS)).astype(np.uint16)
        ranked = np.argsort(leading, kind="stable")
        self._users, self._leading = ranked.astype(np.uint32), leading[ranked]

    def members(self, batch: Batch) -> NDArray[np.int64]:
        """Tell who of these users is in the batch, by numbers counted from the first, ascending."""
        first, last = (np.uint16(ticket >> (64 - _LEADING_BITS)) for ticket in (batch.low, batch.high))
        ends = [np.searchsorted(self._leading, leading, side=side) for leading in (first, last) for side in ("left", "right")]
        # only who has the leading bits of a border may be beyond it
        if first == last:
            sure, doubtful = self._users[:0], self._users[ends[0] : ends[1]]
        else:
            sure = self._users[ends[1] : ends[2]]
            doubtful = np.concatenate([self._users[ends[0] : ends[1]], self._users[ends[2] : ends[3]]])
        tickets = self._tickets[doubtful]
        inside = doubtful[(tickets >= np.uint64(batch.low)) & (tickets <= np.uint64(batch.high))]
        return np.sort(np.concatenate([sure, inside])).astype(np.int64)


def deal(secret: Secret, users: int, sizes: Sequence[int]) -> list[Batch]:
    """Deal users to disjoint batches of these sizes.

    Where two users at a border have the same ticket, all draw anew: that is as likely for any two, so nobody is favoured.

    Guarantee
    ---------
    The batches are uniform over all ways to deal users to them, whatever the data.
    """
    if list(sizes) == [users]:
        return [Batch.everyone(users)]
    ends = list(accumulate(sizes, initial=0))
    for attempt in count():
        order = Order(secret.derive("order", attempt), users)
        tickets = order.ranked(rank for end in ends for rank in (end - 1, end) if 0 <= rank < users)
        if all(tickets[end - 1] < tickets[end] for end in ends if 0 < end < users):
            break
    return [Batch(order, first, last, tickets[first], tickets[last - 1]) for first, last in pairwise(ends)]


def draw_lots(secret: Secret, users: int, rounds: int, size: int) -> list[Batch]:
    """Draw a lot for every user, and give the batches of users with the same lot.

    Where a ticket is beyond the last whole lot all draw anew (rejection), so that the law is exact.

    Guarantee
    ---------
    Every user's lot is uniform on the rounds, and independent of all others' lots and of the data.
    """
    width = int(_width(rounds))
    orders = (Order(secret.derive("lots", attempt), users) for attempt in count())
    order, sizes = next((order, sizes) for order in orders if (sizes := order.lots(rounds)) is not None)
    batches, first = [], 0
    for lot, holders in enumerate(sizes.tolist()):
        low, high, last = lot * width, (lot + 1) * width - 1, first + holders
        if holders > size:
            high = order.smallest(low, high, size) - 1
            last = first + int(sum(np.count_nonzero((t >= np.uint64(low)) & (t <= np.uint64(high))) for t in order._pages()))
        batches.append(Batch(order, first, last, low, high))
        first += holders
    return batches


def _width(rounds: int) -> np.uint64:
    """Tickets of a lot: those above the last of them have none."""
    return np.uint64(min(2**64 // rounds, _LARGEST))


def _leading(tickets: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (tickets >> np.uint64(64 - _LEADING_BITS)).astype(np.int64)


# One vector per user, as they are, as products or by their entries.
Vectors = NDArray[np.float64] | LinearVectors | SparseVectors


class Query:
    """What is asked in a round: from some users' records (X, y) to one vector per user, evaluated where they are.

    A plain function is one, too, wherever nothing is said of its range. A subclass has `__call__`, and whatever of the following is
    not as the default has it. Vectors must have norm at most `norm` and be at most `diameter` apart, whatever the records are. The
    zero vector stands for a record that says nothing, and counts among them. Each vector is computed from its own record alone.

    Attributes
    ----------
    dim : int
        Coordinates of a vector; `croupier.ask` needs it.
    norm : float
        Bound on the l2 norm of every vector; infinite if nothing is claimed.
    diameter : float
        Bound on the l2 distance of any two vectors, zero among them; infinite if nothing is claimed.
    parallel : bool
        Whether several threads may call it at once; False where that is not known.
    blanks : bool
        Whether it makes something of values that are not finite; where False, they are refused before anybody is asked.
    entries : int or None
        Usual number of entries of a vector, so that pieces of users fit memory; None for `dim` of them. Where they are
        few, `croupier.ask` does not rotate: a rotated vector has no zeros left, and takes as long as all coordinates do.
    answers : int or None
        Where vectors have at most this many entries other than 0, all of size norm / sqrt(answers): one for one-hot vectors, whose
        rotation takes a few bits per coordinate. Accuracy alone rests on it; None if nothing is claimed.

    Guarantee
    ---------
    That of the plan under which it is asked, where `norm` and `diameter` hold for all records.

    Examples
    --------
    >>> import numpy as np, croupier as cr
    >>> class Halves(cr.population.Query):
    ...     dim, norm, diameter = 2, 1.0, 2**0.5
    ...     def __call__(self, X, y):
    ...         return np.column_stack([X[:, 0] < 0, X[:, 0] >= 0]).astype(float)
    >>> answer = cr.ask(Halves(), np.linspace(-1, 1, 5_000)[:, np.newaxis], epsilon=1.0, delta=1e-6)
    >>> bool(np.abs(answer.value - 0.5).max() < 6 * answer.mean_noise_std)
    True
    """

    if TYPE_CHECKING:  # as properties, so that a subclass may have attributes or properties

        @property
        def dim(self) -> int:
            """Coordinates of a vector."""
            ...

        @property
        def norm(self) -> float:
            """A bound on the l2 norm of every vector."""
            ...

        @property
        def diameter(self) -> float:
            """A bound on the l2 distance of any two vectors, zero among them."""
            ...

        @property
        def parallel(self) -> bool:
            """Whether several threads may call it at once."""
            ...

        @property
        def blanks(self) -> bool:
            """Whether values that are not finite are left to the query."""
            ...

        @property
        def entries(self) -> int | None:
            """How many entries a vector usually has."""
            ...

        @property
        def answers(self) -> int | None:
            """How many equal entries a vector has at most."""
            ...

    else:
        norm = diameter = math.inf
        parallel = blanks = False
        entries = answers = None

    def __call__(self, X: Any, y: Any, /) -> NDArray[np.float64]:
        raise NotImplementedError

    def vectors(self, X: Any, y: Any) -> Vectors:
        """Return the same vectors as `__call__`, as products or by their entries where that takes less memory.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Some users' records.
        y : array_like of shape (n,) or None
            Their targets.

        Returns
        -------
        ndarray of shape (n, dim), LinearVectors or SparseVectors
            One vector per record.
        """
        return self(X, y)

    def encode(self, data: Any) -> Any:
        """Make records of numbers of what `croupier.ask` was given: the default leaves data as they are.

        Parameters
        ----------
        data : object
            What the caller has, other than a population.

        Returns
        -------
        tuple of (X, y) or array_like
            Records and targets, or records alone.
        """
        return data

    def check_records(self, X: Any, y: Any) -> None:
        """Refuse records that the query cannot take, before anybody is asked; the default takes all.

        Parameters
        ----------
        X : array_like of shape (n, features)
            Some users' records.
        y : array_like of shape (n,) or None
            Their targets.
        """

    def decode(self, estimate: SumEstimate) -> Any:
        """Say what the noisy sum means, with error bars. This is post-processing, which costs no privacy.

        Parameters
        ----------
        estimate : SumEstimate
            The noisy sum.

        Returns
        -------
        object
            The mean vector, unless a subclass returns something else.
        """
        return estimate.mean

    @property
    def test(self) -> Test:
        """What `Population.prepare` calls before this is asked."""
        return LeaveBlanks(self.check_records) if self.blanks else self.check_records


@dataclass(frozen=True)
class _Function(Query):
    """A plain function as a query: nothing is claimed of it."""

    function: Callable[[Any, Any], NDArray[np.float64]]

    def __call__(self, X: Any, y: Any) -> NDArray[np.float64]:
        return self.function(X, y)


# What records must pass before anybody is asked, evaluated where they are: raises where (X, y) is not what is wanted.
Test = Callable[[Any, Any], None]


@dataclass(frozen=True)
class LeaveBlanks:
    """A test of records whose values need not be finite: what is not is left to the test and to the query."""

    test: Test

    def __call__(self, X: Any, y: Any) -> None:
        self.test(X, y)


class UnreachableError(RuntimeError):
    """Users cannot be reached: a file or a machine is gone.

    `text`: What cannot be reached, and why. It must not hold a record's value. `whatever_the_records`: Whether it would have
    happened whatever is in the records, as with a file that was moved. A machine that is lost again and again may be lost because
    of a record.
    """

    def __init__(self, text: str, *, whatever_the_records: bool = True) -> None:
        super().__init__(text)
        self.whatever_the_records = whatever_the_records


class WorkerError(RuntimeError):
    """Something other than this package's own errors was raised where the records are: by a block's `read`, or a user-defined loss.

    It says of which kind that was, and on which lines, and not what it said: that may hold a record.
    """


@dataclass(frozen=True)
class Question:
    """One round: what is asked, of whom, under which plan, and the secret that its randomness is derived from.

    With `lots` the batch are the users of a secret lot. The answering side adds blanks, reports of the zero vector, up to the
    public `size`, and says of the estimate's `users` nothing but this size: not the batch's.

    `query`: What is asked: from records (X, y) to one vector per user. A function becomes a `Query` that claims nothing. `batch`:
    The users who are asked. `plan`: How their vectors are encoded, and how much noise they add; with lots that of one of its
    rounds. `secret`: What the round's randomness is derived from. The caller must give one that belongs to this question alone.
    `number`: The number of the round in its run, counted from 1, for those who tell rounds apart. `lots`: The plan of the run,
    where rounds are drawn by secret lots. `block`: Under a plan with blocks, the block that the batch sends. `rotation`: Under a
    plan with a rotation, what it is made from; derived from the secret where it is empty. The blocks of a round share it, and
    nothing else.

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
    block: int = 0
    rotation: bytes = b""

    @cached_property
    def protocol(self) -> VectorSum:
        """The sum that answers it, with the round's rotation where the plan has one."""
        return VectorSum(self.plan, seed=self.rotation or None, block=self.block)

    def __getstate__(self) -> dict[str, Any]:
        """The question without the sum, which is made anew where it arrives."""
        return {name: value for name, value in vars(self).items() if name != "protocol"}

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
        if not isinstance(self.query, Query):
            object.__setattr__(self, "query", _Function(self.query))
        query, plan = self.query, self.plan
        if plan.range is not None and not self.rotation:
            object.__setattr__(self, "rotation", self.secret.derive("rotation").key)
        if plan.diameter is not None and (query.norm > plan.norm or query.diameter > plan.diameter):
            claim = f"norm {query.norm} and diameter {query.diameter}" if query.norm < math.inf else "no range"
            allowed = f"left out, or at least that of the query, which claims {claim}"
            raise ArgumentError("plan.diameter", plan.diameter, allowed, "Plan with the query's own norm and diameter.")


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
            The key of the digest; None if no digest is wanted.

        Returns
        -------
        bytes or None
            A keyed digest of the records, by which another process can tell that it sees the same ones. It says nothing to anyone
            who does not have the key. None without a key, or where the records cannot be compared.
        """
        ...

    def answer(self, question: Question) -> SumEstimate:
        """Run one private round. The same question gives the same answer, however often it is asked.

        Parameters
        ----------
        question : Question
            The question, its users and its plan.

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
