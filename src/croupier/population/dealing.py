"""Who takes part in which round: users are dealt to rounds by secret tickets, which any machine can draw for its own users.

There is not a list of all users anywhere. User i's ticket is the i-th 64-bit number of a keystream, and users are ranked by their
tickets: that is a uniformly random order, whatever the data. A batch is a range of ranks, so a range of tickets. With secret lots
(`draw_lots`) a round is one of this many equal ranges of tickets, and how many users have it is nobody's business. A user with
several rows has one ticket. Every block of records is read in every round, whether or not one of its users has the lot: a file
that is gone stops the run in a round that says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, pairwise

import numpy as np
from numpy.typing import NDArray

from ..protocol.randomness import Secret

# Tickets that are drawn under one key, so that a machine need not draw those of all users before its own.
_PAGE = 1 << 16
_LEADING_BITS = 16
_LARGEST = 2**64 - 1


@dataclass(frozen=True)
class Order:
    """A uniformly random order of users, for holders of the secret.

    Parameters
    ----------
    secret : Secret
        What the tickets are drawn from; anyone who has it knows the order.
    users : int
        How many users there are.

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

    Parameters
    ----------
    order : Order
        The order of all users.
    first, last : int
        The rank of the first user, and that after the last one.
    low, high : int
        The least and the largest ticket, both included.
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
        low, high = np.searchsorted(self._leading, first, side="left"), np.searchsorted(self._leading, last, side="right")
        users = np.sort(self._users[low:high]).astype(np.int64)
        tickets = self._tickets[users]
        return users[(tickets >= np.uint64(batch.low)) & (tickets <= np.uint64(batch.high))]


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
