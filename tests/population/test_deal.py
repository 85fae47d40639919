"""Dealing users to rounds: exact sizes, nobody twice, the same on every machine, and all ways to deal equally likely."""

from __future__ import annotations

import importlib
import itertools
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from croupier.population.population import Batch, Order, deal
from croupier.protocol.randomness import Secret

dealing = importlib.import_module("croupier.population.population")
exactly = settings(deadline=None, derandomize=True, max_examples=60)
SECRET = Secret.of_seed(1)


@st.composite
def requests(draw, most=60):
    """A number of users, and sizes of batches that they can fill."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    return sum(sizes) + draw(st.integers(0, most)), sizes


@pytest.fixture(params=[7, 64, 1 << 16], ids=lambda page: f"page {page}")
def page(request, monkeypatch):
    """Pages so small that a few users fill many of them; counting by few bits, so that bins hold several tickets."""
    monkeypatch.setattr(dealing, "_PAGE", request.param)
    monkeypatch.setattr(dealing, "_LEADING_BITS", 3 if request.param < 100 else 16)
    return request.param


def ranks_of(order: Order) -> np.ndarray:
    """Everybody's rank, by sorting all tickets: the route that `deal` does not take."""
    return np.argsort(np.argsort(order.tickets(0, order.users), kind="stable"), kind="stable")


# --- who is in which batch


def test_batches_have_the_sizes_asked_for_and_nobody_is_in_two(page):
    @exactly
    @given(requests(), st.integers(0, 5))
    def check(request, seed):
        users, sizes = request
        batches = deal(Secret.of_seed(seed), users, sizes)
        members = [batch.members(0, users) for batch in batches]
        assert [len(some) for some in members] == [batch.size for batch in batches] == sizes
        everyone = np.concatenate(members)
        assert len(np.unique(everyone)) == len(everyone) == sum(sizes)
        assert all(some[0] >= 0 and some[-1] < users and np.all(np.diff(some) > 0) for some in members)

    check()


def test_a_batch_is_a_range_of_ranks(page):
    users, sizes = 500, [100, 1, 250, 30]
    batches = deal(SECRET, users, sizes)
    ranks = ranks_of(batches[0].order)
    for batch, end in zip(batches, itertools.accumulate(sizes), strict=True):
        assert (batch.first, batch.last) == (end - batch.size, end)
        np.testing.assert_array_equal(batch.members(0, users), np.flatnonzero((ranks >= batch.first) & (ranks < batch.last)))


def test_more_users_than_a_page_are_dealt_out_completely():
    users, sizes = 200_000, [1, 65_535, 65_537, 40_000, 28_927]
    members = [batch.members(0, users) for batch in deal(SECRET, users, sizes)]
    assert [len(some) for some in members] == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate(members)), np.arange(users))


def test_machines_that_know_parts_of_the_users_agree_with_one_that_knows_all(page):
    @exactly
    @given(requests(), st.lists(st.integers(0, 200), max_size=6))
    def check(request, cuts):
        users, sizes = request
        ends = [0, *sorted(min(cut, users) for cut in cuts), users]
        for batch in deal(SECRET, users, sizes):
            parts = [first + batch.members(first, last) for first, last in itertools.pairwise(ends)]
            np.testing.assert_array_equal(np.concatenate(parts), batch.members(0, users))
            seated = [first + dealing.Seats(batch.order, first, last).members(batch) for first, last in itertools.pairwise(ends)]
            np.testing.assert_array_equal(np.concatenate(seated), batch.members(0, users))

    check()


def test_parts_agree_across_real_pages():
    users = 140_000
    batches = deal(SECRET, users, [50_000, 60_000])
    ends = [0, 1, 65_535, 65_536, 65_537, 70_000, 131_072, users]
    for batch in batches:
        whole = batch.members(0, users)
        parts = [first + batch.members(first, last) for first, last in itertools.pairwise(ends)]
        seated = [first + dealing.Seats(batch.order, first, last).members(batch) for first, last in itertools.pairwise(ends)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        np.testing.assert_array_equal(np.concatenate(seated), whole)


def test_the_secret_alone_decides():
    first, again, other = (deal(Secret.of_seed(seed), 400, [100, 200]) for seed in (1, 1, 2))
    assert first == again
    assert first[0].order.secret not in (SECRET, Secret.of_seed(2))
    for mine, theirs in zip(first, other, strict=True):
        assert not np.array_equal(mine.members(0, 400), theirs.members(0, 400))


def test_everyone_is_everyone_whoever_asks():
    batch = Batch.everyone(90)
    assert deal(SECRET, 90, [90]) == [batch]
    assert (batch.size, batch.is_everyone) == (90, True)
    np.testing.assert_array_equal(batch.members(0, 90), np.arange(90))
    np.testing.assert_array_equal(batch.members(40, 45), np.arange(5))
    assert not deal(SECRET, 90, [89])[0].is_everyone
    assert deal(SECRET, 90, []) == []


# --- tickets


def test_tickets_are_the_keystreams_of_their_pages():
    order = Order(SECRET, 70_000)
    for page in (0, 1):
        stream = SECRET.derive("tickets", page).source().draw_bytes(8 * 1000).tobytes()
        assert order.tickets(page << 16, (page << 16) + 1000).tolist() == list(struct.unpack("<1000Q", stream))
    assert order.tickets(70_000, 70_000).tolist() == []


def test_ranked_tickets_are_those_of_sorting_them_all(page):
    @exactly
    @given(st.integers(1, 400), st.lists(st.integers(0, 399), max_size=10), st.integers(0, 3))
    def check(users, ranks, seed):
        order, ranks = Order(Secret.of_seed(seed), users), [rank % users for rank in ranks]
        everyones = np.sort(order.tickets(0, users))
        assert order.ranked(ranks) == {rank: int(everyones[rank]) for rank in ranks}

    check()


def test_ranked_tickets_of_many_pages_are_those_of_sorting_them_all():
    order = Order(SECRET, 300_000)
    everyones = np.sort(order.tickets(0, 300_000))
    ranks = [0, 1, 2, 149_999, 150_000, 299_998, 299_999]
    assert order.ranked(iter(ranks)) == {rank: int(everyones[rank]) for rank in ranks}


def tickets_at_first(monkeypatch, *attempts):
    """Make these the tickets of the first attempts to deal."""
    draw = Order._page

    def page(self, first, length):
        forced = {SECRET.derive("order", number).key: tickets for number, tickets in enumerate(attempts)}
        tickets = forced.get(self.secret.key)
        return draw(self, first, length) if tickets is None else np.array(tickets[first : first + length], dtype=np.uint64)

    monkeypatch.setattr(Order, "_page", page)


def attempt_of(batches):
    return [SECRET.derive("order", number) for number in range(5)].index(batches[0].order.secret)


TIED = [3 << 60, 5, 3 << 60, 7 << 60, 1, 2**64 - 1]  # ranks 2 and 3 are equal


@pytest.mark.parametrize("sizes", [[3, 3], [3], [1, 2, 3], [1, 2, 1]])
def test_a_tie_at_a_border_makes_everybody_draw_anew(monkeypatch, sizes):
    tickets_at_first(monkeypatch, TIED, [0, 0, 0, 0, 0, 0])
    batches = deal(SECRET, 6, sizes)
    assert attempt_of(batches) == 2
    assert [len(batch.members(0, 6)) for batch in batches] == sizes


@pytest.mark.parametrize(
    ("sizes", "members"), [([2, 2, 2], [[1, 4], [0, 2], [3, 5]]), ([2], [[1, 4]]), ([4, 1], [[0, 1, 2, 4], [3]])]
)
def test_a_tie_within_a_batch_or_among_those_left_over_changes_nothing(monkeypatch, sizes, members):
    tickets_at_first(monkeypatch, TIED)
    batches = deal(SECRET, 6, sizes)
    assert attempt_of(batches) == 0
    assert [batch.members(0, 6).tolist() for batch in batches] == members
    assert [dealing.Seats(batch.order, 0, 6).members(batch).tolist() for batch in batches] == members


def test_the_largest_ticket_is_dealt_like_any_other(monkeypatch):
    tickets_at_first(monkeypatch, [2**64 - 1, 0, 1, 2**64 - 2])
    assert [batch.members(0, 4).tolist() for batch in deal(SECRET, 4, [1, 2, 1])] == [[1], [2, 3], [0]]


# --- the law


def ways(users, sizes):
    """Every way to deal the users to the batches, and how often each came up with the seeds 0 ... 2 999."""
    seen = dict.fromkeys(itertools.permutations([number for number, size in enumerate(sizes) for _ in range(size)]), 0)
    for seed in range(3000):
        dealt = np.full(users, -1)
        for number, batch in enumerate(deal(Secret.of_seed(seed), users, sizes)):
            dealt[batch.members(0, users)] = number
        seen[tuple(dealt.tolist())] += 1
    return np.array(list(seen.values()))


@pytest.mark.parametrize(("sizes", "count"), [([2, 2], 6), ([2, 2, 1], 30), ([1, 1, 1, 1], 24)])
@pytest.mark.parametrize("bits", [64, 3], ids=["tickets of 64 bits", "tickets of 3 bits, with many ties"])
def test_all_ways_to_deal_are_equally_likely(monkeypatch, sizes, count, bits):
    """Chi-square with at least 100 expected per way, at a false-alarm rate of 1e-7 each."""
    monkeypatch.setattr(dealing, "_LEADING_BITS", 4)  # fewer bins: faster, and no part of the law
    draw = Order._page
    monkeypatch.setattr(Order, "_page", lambda *page: draw(*page) & np.uint64(2**64 - 2 ** (64 - bits)))
    seen = ways(sum(sizes), sizes)
    assert len(seen) == count
    assert stats.chisquare(seen).pvalue > 1e-7


def test_neighbouring_pages_deal_independently(monkeypatch):
    """Users 0 and 2, the first of their pages, are both dealt in with probability 1/6. Exact test, false alarms below 1e-6."""
    monkeypatch.setattr(dealing, "_PAGE", 2)
    monkeypatch.setattr(dealing, "_LEADING_BITS", 4)
    together = sum({0, 2} == set(deal(Secret.of_seed(seed), 4, [2])[0].members(0, 4).tolist()) for seed in range(3000))
    assert stats.binomtest(together, 3000, 1 / 6).pvalue > 1e-6
