"""The formulas beside which questions are measured, by other routes, and a run of small sizes."""

from __future__ import annotations

import math
from argparse import Namespace

import numpy as np
import pytest

from benchmarks import questions
from benchmarks.questions import measuring


def test_local_hashing_has_the_variance_of_its_coins():
    """Optimised local hashing, simulated: a count's estimate from reports of g = e^epsilon + 1 buckets, near 0."""
    rng, people, e = np.random.default_rng(0), 400_000, math.exp(1.0)
    g = round(e + 1)  # the formula is for the real g: a whole one is within 2 % of it
    p = e / (e + g - 1)
    supports = rng.random((200, people // 100)) < 1 / g  # people who do not hold the word
    estimates = (supports.sum(axis=1) - people / 100 / g) / (p - 1 / g)
    assert estimates.std() == pytest.approx(measuring.local(people // 100, 1) / measuring.SURE, rel=0.25)


def test_a_tree_of_one_and_two_days_by_hand():
    assert measuring.tree(1) == pytest.approx((1.0, 1.0))
    # two days: leaves a, b and their sum c, each day in two nodes; a is (2 a + c - b) / 3 with variance 2/3 at the end
    assert measuring.tree(2)[1] == pytest.approx(math.sqrt(2 * 2 / 3))
    assert measuring.tree(2)[0] == pytest.approx(math.sqrt(2))  # on the first day there is a alone


def test_no_factorisation_falls_below_the_bound(monkeypatch):
    """Random factorisations of prefix sums, and the root's own."""
    monkeypatch.setattr(measuring, "DAYS", (30,))
    (line,) = measuring.streams(60, 1)
    prefix, rng = np.tril(np.ones((30, 30))), np.random.default_rng(1)
    for _ in range(20):
        right = np.eye(30) + 0.3 * rng.normal(size=(30, 30))
        left = prefix @ np.linalg.inv(right)
        error = np.linalg.norm(left, axis=1).max() * np.linalg.norm(right, axis=0).max()
        assert error >= line["least"]
    assert line["least"] < line["rms"] < line["largest"] < line["tree"][1]


def test_words_are_those_that_people_hold(monkeypatch):
    monkeypatch.setattr(measuring, "WORDS", 500)
    texts, counts = measuring.zipf(np.random.default_rng(0), 1_000)
    assert len(texts) == sum(counts.values()) == 1_000
    assert all(len(text) == 6 and counts[text] == texts.count(text) for text in set(texts[:20]))


def test_a_small_run_is_written(monkeypatch):
    monkeypatch.setattr(measuring, "SHAPES", ((2, 3),))
    monkeypatch.setattr(measuring, "DAYS", (4,))
    monkeypatch.setattr(measuring, "words", lambda people, runs: STORED)
    found = questions.measure(Namespace(quick=True, runs=20))
    assert "| 2 x 3 |" in questions.page(found)
    assert all(verdict.measured for verdict in questions.judge(found))


STORED = {
    "people": 9,
    "runs": 1,
    "dim": 3,
    "masked_bytes": 1,
    "found": [1],
    "wrong": [0],
    "rarest": [1],
    "missed": [1],
    "cpu_seconds": [1.0],
    "stated": [1.0],
    "listed": 1.0,
    "unlisted": 1.0,
}
