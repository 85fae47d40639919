"""Users with several rows: against sums made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import croupier as cr
from croupier.population import ArrayPopulation, arrays
from croupier.protocol import SeededRandom


def answer(population, query, users, dim, norm):
    """The answer at an epsilon so large that noise and rounding are small beside the sum."""
    plan = cr.plan_sum(epsilon=60.0, delta=1e-6, users=len(users), dim=dim, norm=norm)
    return population.answer(query, np.asarray(users), plan, SeededRandom(1)).sum, plan.noise_std


@pytest.mark.parametrize("labels", [np.array(list("abcab") * 400), np.arange(2000) % 7, np.arange(2000) % 7 * 1.5])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("entries", [64, 1 << 17])
def test_a_user_answers_with_the_mean_of_its_rows(labels, sparse, entries, monkeypatch):
    monkeypatch.setattr(arrays, "_CHUNK_ENTRIES", entries)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(2000, 3)), rng.uniform(size=2000)
    groups = np.array([f"{label}/{i % 90}" for i, label in enumerate(labels)], dtype=object)
    population = ArrayPopulation(scipy.sparse.csr_matrix(X) if sparse else X, y, groups=groups)
    names = np.unique(groups)
    assert population.users == len(names)
    users = rng.permutation(len(names))[:60]
    expected = sum((X * y[:, np.newaxis])[groups == name].mean(axis=0) for name in names[users])
    found, noise = answer(population, lambda X, y: X * y[:, np.newaxis], users, 3, 2.0)
    assert np.abs(found - expected).max() < 6 * noise  # three normal tails at 6: below 1e-8
    assert 6 * noise < 6


def test_a_person_with_many_rows_moves_the_sum_no_further_than_one_user_may():
    """Ten rows of length 1 000 are one contribution of length at most `norm`."""
    X = np.zeros((109, 2))
    groups = np.concatenate([np.arange(99), np.full(10, 99)])
    changed = X.copy()
    changed[99:] = 1000.0
    before, noise = answer(ArrayPopulation(X, groups=groups), lambda X, y: X, np.arange(100), 2, 1.0)
    after, _ = answer(ArrayPopulation(changed, groups=groups), lambda X, y: X, np.arange(100), 2, 1.0)
    assert np.linalg.norm(after - before) <= 1 + 12 * noise


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (["a"] * 3, "as long as X"),
        ([1.0, np.nan, 2.0, 3.0], "missing"),
        (["a", None, "b", "c"], "missing"),
        ([[1, 2]] * 4, "one column"),
    ],
)
def test_labels_that_do_not_say_whose_row_it_is_are_refused(groups, words):
    with pytest.raises(cr.ArgumentError, match=words):
        ArrayPopulation(np.zeros((4, 2)), groups=groups)
