"""Unknown words: the range of their vectors, an independent route to their cells, what is found, and how often wrongly."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from scipy import stats

import croupier as cr
from croupier.protocol import SumEstimate
from croupier.statistics.heavy_hitters import CHECKS

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
MASK = (1 << 64) - 1


def mixed(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def cells_by_hand(query, text):
    """The cells of one word in plain integers, from the sentence on top of the module."""
    golden = 0x9E3779B97F4A7C15
    state = mixed((query.hash_seed + golden) & MASK)
    halves = "".join(f"{byte:02x}" for byte in text.encode())
    symbols = [int(halves[:3].ljust(3, "0"), 16), *(int(half, 16) for half in halves[3:])]
    cells = set()
    for symbol in symbols:
        state = mixed((state + (symbol + 1) * golden) & MASK)
        cells.add(state * query.cells >> 64)
    ends = [mixed((state + (4096 + check + 1) * golden) & MASK) * (query.cells // 2) >> 64 for check in range(CHECKS)]
    return cells | {query.cells + end for end in ends}, len(symbols) + CHECKS


@pytest.mark.parametrize("text", ["a", "ab", "abc", "Zürich", "日本語", "😀!", "x" * 40])
def test_cells_are_those_of_another_route(text):
    query = cr.HeavyHitters(hash_seed=12)
    cut = text[:32]
    cells, count = cells_by_hand(query, cut)
    vector = query(query.encode([text]), None)[0]
    assert set(np.flatnonzero(vector)) == cells
    np.testing.assert_allclose(vector[sorted(cells)], 1 / np.sqrt(count), rtol=1e-15)


def test_vectors_keep_their_range_whatever_the_bytes():
    rng = np.random.default_rng(0)
    for query in (cr.HeavyHitters(cells=256), cr.HeavyHitters(cells=256, per_person=3, max_bytes=5)):
        rows = rng.integers(0, 256, size=(300, query.per_person * query.max_bytes), dtype=np.uint8)
        rows[::3] *= rng.random(rows[::3].shape) < 0.3
        rows[:5] = 0
        vectors = query(rows, None)
        assert (vectors >= 0).all()
        lengths = np.linalg.norm(vectors, axis=1)
        assert lengths.max() <= 1 + 1e-12
        assert (lengths[:5] == 0).all()
        distances = np.linalg.norm(vectors[:, np.newaxis] - vectors[:50], axis=2)
        assert distances.max() <= query.diameter * (1 + 1e-12)
        np.testing.assert_array_equal(np.vstack([query(row[np.newaxis], None) for row in rows[:20]]), vectors[:20])


def test_words_are_normalised_cut_and_chosen():
    query = cr.HeavyHitters(max_bytes=4, per_person=2)
    rows = query.encode([["  cafe\u0301s ", "cafés"], None, [], ["a", "b", "c", "a"], "日本", float("nan"), 7, b"xy"])
    words = [[bytes(half).rstrip(b"\0").decode() for half in (row[:4], row[4:])] for row in rows]
    assert words[0] == ["caf", ""]  # é takes two bytes, of which one is left over
    assert words[1:3] == [["", ""], ["", ""]]
    assert len(set(words[3]) & {"a", "b", "c"}) == 2
    assert words[4:] == [["日", ""], ["", ""], ["7", ""], ["xy", ""]]


def zipf(users, seed):
    rng = np.random.default_rng(seed)
    ranks = np.minimum(rng.zipf(1.3, size=users), 50_000)
    return [f"{'Wörter'[: rank % 7]}{rank * 7919 % 65_521:x}" for rank in ranks.tolist()]


def test_frequent_words_are_found_with_honest_error_bars():
    people = zipf(60_000, 1)
    answer = cr.ask(cr.HeavyHitters(hash_seed=1), people, **BUDGET, seed=1)
    truth = collections.Counter(people)
    assert all(truth[word] for word in answer.words)
    assert {word for word, count in truth.items() if count > 300} <= set(answer.words)
    errors = (answer.counts - [truth[word] for word in answer.words]) / answer.count_std
    assert np.abs(errors).max() < 5
    assert np.mean(errors**2) < stats.chi2.isf(1e-6, len(errors)) / len(errors)
    assert answer.counts.tolist() == sorted(answer.counts, reverse=True)
    word = next(word for word, count in truth.items() if count == 1)
    unknown = answer.value.count(word)
    assert abs(unknown.value - 1) < 6 * unknown.std
    known = answer.value.count(answer.words[0])
    assert known.value == pytest.approx(answer.counts[0], rel=1e-6)
    assert "is found if about" in str(answer)
    assert [row["word"] for row in answer.value.to_dict()["words"]] == answer.words


def test_several_words_a_person():
    rng = np.random.default_rng(0)
    people = [["new york", "new jersey", *(f"town {number}" for number in rng.integers(10**6, size=2))] for _ in range(3_000)]
    people += [[f"town {number}" for number in rng.integers(10**6, size=4)] for _ in range(17_000)]
    answer = cr.ask(cr.HeavyHitters(per_person=4), people, **BUDGET, seed=1)
    found = dict(zip(answer.words, zip(answer.counts, answer.count_std, strict=True), strict=True))
    assert set(found) == {"new york", "new jersey"}
    assert all(abs(count - 3_000) < 6 * std for count, std in found.values())


def noise(query, seed, spread=6.0, words=()):
    """An estimate of nothing but noise, and of some words with how many people hold them."""
    table = np.random.default_rng(seed).normal(0, spread, query.dim)
    if words:
        rows = query.encode([word for word, _ in words])
        table += np.asarray([count for _, count in words]) @ query(rows, None)
    return SumEstimate(sum=table, users=10_000, noise_std=spread, guarantee=None)


def test_wrong_words_are_as_rare_as_stated():
    """Many words of equal weight, so that beginnings and ends of different words are put together."""
    held = [(f"{number * 2654435761 % 2**32:08x}"[:5], 400) for number in range(20)]
    right, wrong, runs = 0, 0, 30
    for seed in range(runs):
        query = cr.HeavyHitters(cells=1 << 13, mistakes=1.0, hash_seed=seed)
        found = query.decode(noise(query, seed, words=held))
        wrong += len(set(found.words) - {word for word, _ in held})
        right += len({word for word, _ in held} & set(found.words))
    assert stats.poisson.sf(wrong - 1, runs * 1.0) > 1e-6
    assert right > 19 * runs


def test_a_word_is_found_from_the_stated_count_on():
    found, runs = 0, 150
    for seed in range(runs):
        query = cr.HeavyHitters(cells=1 << 12, hash_seed=seed)
        count = query.decode(noise(query, seed)).found_from(6)
        found += "Köln!" in query.decode(noise(query, seed, words=[("Köln!", count)])).words
    assert stats.binom.sf(runs - found - 1, runs, 0.01) > 1e-6


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"cells": 1000}, "a power of two"),
        ({"max_bytes": 1}, "max_bytes"),
        ({"per_person": 0}, "per_person"),
        ({"mistakes": 0.0}, "mistakes"),
        ({"hash_seed": -1}, "hash_seed"),
    ],
)
def test_bad_parameters_are_refused(wrong, match):
    with pytest.raises(cr.ArgumentError, match=match):
        cr.HeavyHitters(**wrong)


@pytest.mark.parametrize("data", ["one text", 5, [], [3.5], [object()], [["a", 3.5]]])
def test_what_is_no_list_of_texts_is_refused_before_anything_is_spent(data):
    account = cr.PrivacyAccount()
    with pytest.raises(cr.ArgumentError, match="data"):
        cr.ask(cr.HeavyHitters(), data, **BUDGET, account=account)
    assert not account.fits
    with pytest.raises(cr.ArgumentError, match="bytes in 32 columns"):
        cr.ask(cr.HeavyHitters(), cr.population.ArrayPopulation(np.zeros((9, 32))), **BUDGET, account=account)
    assert not account.fits
