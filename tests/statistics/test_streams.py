"""Counts over time: the range of a person's days, totals with honest error bars, and their error beside its lower bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import svdvals

import croupier as cr
from croupier.protocol import SumEstimate
from croupier.report._answers import answer_page

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def once(users, days, seed=0):
    people = np.zeros((users, days))
    people[np.arange(users), np.random.default_rng(seed).integers(days, size=users)] = 1
    return people


@pytest.mark.parametrize(("days", "per_person"), [(1, 1), (6, 1), (7, 2), (7, 3), (6, 6)])
def test_the_range_is_that_of_all_ways_to_count(days, per_person):
    """Against every subset of days, and amounts in between, odd ones among them."""
    query = cr.Stream(days=days, per_person=per_person)
    ways = np.array([way for way in itertools.product([0.0, 1.0], repeat=days) if sum(way) <= per_person])
    vectors = query(ways, None)
    np.testing.assert_allclose(query.root @ vectors.T, np.cumsum(ways, axis=1).T, atol=1e-12)
    assert np.linalg.norm(vectors, axis=1).max() == pytest.approx(query.norm, rel=1e-8)
    apart = np.linalg.norm(vectors[:, np.newaxis] - vectors, axis=2).max()
    assert apart <= query.diameter * (1 + 1e-9)
    if per_person == 1:
        assert apart == pytest.approx(query.diameter, rel=1e-8)
    rng = np.random.default_rng(1)
    odd = rng.choice([0.0, 0.3, 1.0, 5.0, -2.0, np.nan, np.inf, -np.inf], size=(500, days))
    vectors = query(odd, None)
    assert vectors.min() >= 0
    assert np.linalg.norm(vectors, axis=1).max() <= query.norm
    assert np.linalg.norm(vectors[:, np.newaxis] - vectors[:100], axis=2).max() <= query.diameter


def test_what_is_beyond_a_persons_days_is_left_out_in_their_order():
    counted = cr.Stream(days=5, per_person=2).counted([[1, 0.5, np.nan, 1, 1], [0, 0, 7, 1, 1]])
    np.testing.assert_allclose(counted, [[1, 0.5, 0, 0.5, 0], [0, 0, 1, 1, 0]])


@pytest.mark.parametrize("days", [30, 365])
def test_errors_are_within_a_fifth_of_what_no_factorisation_falls_below(days):
    """The nuclear norm of prefix sums over the days bounds sensitivity times root mean square, and so the largest, from below."""
    query = cr.Stream(days=days)
    answer = query.decode(SumEstimate(sum=np.zeros(days), users=10, noise_std=1.0, guarantee=None))
    sensitivity = float(np.linalg.norm(query.root[:, 0]))
    least = svdvals(np.tril(np.ones((days, days)))).sum() / days
    assert least <= sensitivity * math.sqrt(np.mean(answer.total_std**2)) < 1.11 * least
    assert least <= sensitivity * answer.total_std.max() < 1.2 * least


def tree_error(days):
    """The largest error of a binary tree of sums, read by least squares, times its sensitivity."""
    rows = []
    for level in range(days.bit_length()):
        for first in range(0, days - (1 << level) + 1, 1 << level):
            row = np.zeros(days)
            row[first : first + (1 << level)] = 1
            rows.append(row)
    tree = np.array(rows)
    decoder = np.tril(np.ones((days, days))) @ np.linalg.pinv(tree)
    return math.sqrt((tree**2).sum(axis=0).max()) * np.linalg.norm(decoder, axis=1).max()


def test_a_tree_has_more_error():
    for days in (30, 128):
        query = cr.Stream(days=days)
        assert tree_error(days) > 1.3 * float(np.sum(query.root[:, 0] ** 2))


def test_totals_and_days_are_within_their_error_bars():
    errors = []
    people = once(20_000, 60)
    for seed in range(3):
        answer = cr.ask(cr.Stream(days=60), people, **BUDGET, seed=seed)
        daily = people.sum(axis=0)
        assert np.abs(answer.totals - daily.cumsum()).max() < 6 * answer.total_std.max()
        assert np.abs(answer.daily - daily).max() < 6 * answer.daily_std.max()
        part = answer.value.between(10, 19)
        assert abs(part.value - daily[10:20].sum()) < 6 * part.std
        errors.append((answer.estimate.sum - (people @ answer.query.root.T).sum(axis=0)) / answer.estimate.noise_std)
    spread = float(np.sum(np.square(errors)))
    assert stats.chi2.sf(spread, 180) > 1e-6
    assert "60 of 60 days" in str(answer)
    assert answer.value.to_dict()["totals"] == answer.totals.tolist()
    assert "running total" in answer_page(answer, title="Test")


def test_days_that_are_added_have_the_law_of_all_days_at_once():
    query, people = cr.Stream(days=40), once(5_000, 40)
    stream, account = query.start(5_000, **BUDGET, seed=3), cr.PrivacyAccount()
    scores = [stream.add(day) for day in people.T]
    answer = stream.answer
    assert answer.plan == cr.ask(query, people, **BUDGET, seed=1).plan
    assert scores[-1].value == pytest.approx(min(answer.totals[-1], 5_000))
    errors = (answer.estimate.sum - (people @ query.root.T).sum(axis=0)) / answer.noise_std
    assert stats.chi2.sf(float(errors @ errors), 40) > 1e-6
    assert stats.chi2.cdf(float(errors @ errors), 40) > 1e-6
    assert answer.guarantee is None
    with pytest.raises(cr.ArgumentError, match="one day too many"):
        stream.add(people[:, 0])
    private = query.start(5_000, **BUDGET, account=account)
    assert len(account.fits) == 1
    with pytest.raises(cr.ArgumentError, match="no day yet"):
        private.answer  # noqa: B018
    private.add(people[:, 0])
    assert private.answer.private
    assert private.answer.guarantee.delta(1.0) <= 1e-6
    assert len(account.fits) == 1


def test_people_come_and_go_but_not_below_the_crowd_that_is_counted_on():
    stream = cr.Stream(days=10).start(1_000, **BUDGET, honest=0.5, seed=1)
    first = np.where(np.arange(1_000) < 700, 1.0, np.nan)
    total = stream.add(first)
    assert abs(total.value - 700) < 6 * total.std
    with pytest.raises(cr.BatchTooSmallError):
        stream.add(np.where(np.arange(1_000) < 400, 1.0, np.nan))
    total = stream.add(np.where(np.arange(1_000) < 700, 0.0, 1.0))  # the day can be added again, with more people
    assert abs(total.value - 1_000) < 6 * total.std
    gone = stream.add(np.where(np.arange(1_000) < 500, np.nan, 0.0))
    assert gone.value < 1_000
    with pytest.raises(cr.ArgumentError, match="One value per user"):
        stream.add([1.0])
    with pytest.raises(cr.ArgumentError, match="one bool per user"):
        stream.add(np.zeros(1_000), away=np.zeros(1_000))


def test_people_who_are_away_are_missing_and_the_answer_says_so():
    """A tenth away on every day, another tenth or the same one: totals are low by as much, and scaled ones within their error."""
    days, users = 30, 20_000
    people, rng = once(users, days), np.random.default_rng(5)
    truth = people.sum(axis=0).cumsum()
    same = np.arange(users) % 10 == 3
    for seed, gone in enumerate((lambda: rng.random(users) < 0.1, lambda: same)):
        stream = cr.Stream(days=days).start(users, **BUDGET, honest=0.85, seed=seed)
        for day in range(days):
            stream.add(people[:, day], away=gone())  # who comes back tells of the days since then
        answer = stream.answer.value
        assert answer.arrived.shape == (days,)
        assert answer.away == pytest.approx(0.1, abs=0.01)
        assert stream.answer.users == answer.arrived[-1]
        assert answer.totals[-1] < truth[-1] - 20 * answer.total_std[-1]  # the error bar of the noise alone does not reach it
        everybody = answer.scaled()
        assert everybody.scaled() is everybody
        assert answer.away_std is None
        assert abs(everybody.totals[-1] - truth[-1]) < 5 * everybody.total_std[-1] < 0.05 * truth[-1]
        for text in (str(answer), answer_page(stream.answer, title="Test")):
            assert "% of the 20,000 people did not answer and are missing from these totals" in text
        assert "dashed line" in answer_page(stream.answer, title="Test")
        assert answer.to_dict()["arrived"] == answer.arrived.tolist()
        assert answer.to_dict()["scaled_totals"] == everybody.totals.tolist()
        assert answer.figures()[-1]["scaled_total"] == everybody.totals[-1]
        assert "counted like those who did" in str(everybody)
    whole = cr.ask(cr.Stream(days=days), people, **BUDGET, seed=1)
    assert whole.value.away == 0
    assert "missing" not in str(whole)
    assert "scaled_totals" not in whole.value.to_dict()


def day_law(plan, users, shift):
    """The law of a day's count where one person sends `shift` levels more than the others' zero: rounding and noise, from 0 on."""
    noise = stats.binom.pmf(np.arange(plan.noise_bits * users + 1), plan.noise_bits * users, plan.noise_probability)
    part = shift - math.floor(shift)
    law = np.zeros(len(noise) + plan.levels + 2)
    for more, weight in ((math.floor(shift), 1 - part), (math.floor(shift) + 1, part)):
        law[more : more + len(noise)] += weight * noise
    return law


def test_days_that_depend_on_earlier_totals_are_within_the_promise():
    """Exact for two days and the best rule: what the person does on day 2 is chosen for every total of day 1, in both worlds."""
    users, query = 12, cr.Stream(days=2)
    plan = query.start(users, epsilon=2.0, delta=1e-3, seed=0).plan
    ways = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    vectors = {way: query(np.array([way]), None)[0] for way in ways}
    # a vector is encoded from 0 on, where 0 has half the levels
    laws = {
        (way, day): day_law(plan, users, (vectors[way][day] / plan.norm + 1) * plan.levels / 2) for way in ways for day in (0, 1)
    }
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        factor, adaptive, fixed = math.exp(epsilon), 0.0, 0.0
        for first, second in itertools.product((0.0, 1.0), repeat=2):
            p1, q1 = (laws[(start, 0.0), 0] for start in (first, second))
            pairs = [
                (p, q)
                for p in ways
                if p[0] == first
                for q in ways
                if q[0] == second  # the first day is told
            ]
            reached = np.array(
                [np.maximum(np.outer(p1, laws[p, 1]) - factor * np.outer(q1, laws[q, 1]), 0).sum(axis=1) for p, q in pairs]
            )
            adaptive = max(adaptive, reached.max(axis=0).sum())
            fixed = max(fixed, reached.sum(axis=1).max())
        assert fixed <= adaptive <= plan.guarantee.delta(epsilon)
    assert adaptive > 0.05 * plan.guarantee.delta(2.0)  # the bound is not far away


@pytest.mark.parametrize("wrong", [{"days": 0}, {"days": 5_000}, {"days": 3, "per_person": 4}, {"days": 3, "per_person": 0}])
def test_bad_parameters_are_refused(wrong):
    with pytest.raises(cr.ArgumentError):
        cr.Stream(**wrong)
    with pytest.raises(cr.ArgumentError, match="one per day"):
        cr.ask(cr.Stream(days=4), np.zeros((100, 3)), **BUDGET)
