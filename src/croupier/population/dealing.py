"""Who takes part in which round: users are dealt to rounds by secret tickets, which any machine can draw for its own users.

There is no list of all users anywhere. User i's ticket is the i-th 64-bit number of a keystream, and users are ranked by their
tickets: that is a uniformly random order, whatever the data. A batch is a range of ranks, so a range of tickets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, pairwise

import numpy as np
from numpy.typing import NDArray

from ..protocol import Secret

# Tickets that are drawn under one key, so that a machine need not draw those of all users before its own.
_PAGE = 1 << 16
_LEADING_BITS = 16
_LARGEST = 2**64 - 1


@dataclass(frozen=True)
class Order:
    """A uniformly random order of `users` users, for whoever has the secret."""

    secret: Secret
    users: int

    def tickets(self, first: int, last: int) -> NDArray[np.uint64]:
        """Of the users numbered from `first` up to `last`."""
        start = first // _PAGE * _PAGE
        pages = [self._page(page, min(_PAGE, last - page)) for page in range(start, last, _PAGE)]
        return np.concatenate(pages or [np.zeros(0, dtype=np.uint64)])[first - start :]

    def ranked(self, ranks: Iterable[int]) -> dict[int, int]:
        """The tickets of these ranks: counted by their leading bits first, so that only those near a rank are ever held."""
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
    """The users ranked from `first` up to `last`: those with tickets from `low` to `high`, both included."""

    order: Order
    first: int
    last: int
    low: int
    high: int

    @classmethod
    def everyone(cls, users: int) -> Batch:
        return cls(Order(Secret(bytes(32), private=False), users), 0, users, 0, _LARGEST)

    @property
    def size(self) -> int:
        return self.last - self.first

    @property
    def is_everyone(self) -> bool:
        return self.size == self.order.users

    def members(self, first: int, last: int) -> NDArray[np.int64]:
        """Who of the users numbered from `first` up to `last` is in it, counted from `first`, ascending."""
        if self.is_everyone:
            return np.arange(last - first)
        tickets = self.order.tickets(first, last)
        return np.flatnonzero((tickets >= np.uint64(self.low)) & (tickets <= np.uint64(self.high)))


class Seats:
    """Some users sorted by ticket, so that asking who is in a batch is a look-up: 12 bytes a user, for data that is kept anyway."""

    def __init__(self, order: Order, first: int, last: int) -> None:
        tickets = order.tickets(first, last)
        ranked = np.argsort(tickets)
        self.order, self._users, self._tickets = order, ranked.astype(np.uint32), tickets[ranked]

    def members(self, batch: Batch) -> NDArray[np.int64]:
        low = np.searchsorted(self._tickets, np.uint64(batch.low), side="left")
        high = np.searchsorted(self._tickets, np.uint64(batch.high), side="right")
        return np.sort(self._users[low:high]).astype(np.int64)


def deal(secret: Secret, users: int, sizes: Sequence[int]) -> list[Batch]:
    """Disjoint batches of these sizes. Law: uniform over all ways to deal users to them.

    Where two users at a border have the same ticket, all draw anew: that is as likely for any two, so nobody is favoured.
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


def _leading(tickets: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (tickets >> np.uint64(64 - _LEADING_BITS)).astype(np.int64)
