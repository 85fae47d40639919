"""Vectors by their entries: the counts have the law of the dense way, zeros of an odd number of levels included."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom

from croupier.population._blocks import Records, RowsOfUsers
from croupier.privacy import ArgumentError, plan_sum
from croupier.protocol import SeededRandom, VectorSum, sums
from croupier.protocol import _fused as fused
from croupier.protocol._randomizer import Randomizer
from croupier.protocol._sparse import SparseVectors, second_moments
from croupier.statistics import Moments


def one_hot(rng, users):
    rows = np.zeros((users, 12))
    rows[:, :2] = rng.normal(size=(users, 2)) * (rng.random((users, 2)) < 0.9)
    rows[np.arange(users), rng.integers(2, 7, users)] = 1
    rows[np.arange(users), rng.integers(7, 12, users)] = 1
    return rows, rng.uniform(-1, 1, users)


@pytest.mark.parametrize("query", [Moments(12), Moments(12, exclusive=((2, 3, 4, 5, 6), (7, 8, 9))), Moments(12, targets=0)])
def test_moments_by_their_entries_are_the_same_vectors(query):
    rows, targets = one_hot(np.random.default_rng(0), 500)
    rows[0, 2:7] = 1  # not exclusive: left out both ways
    dense, sparse = query(rows, targets), query.vectors(rows, targets)
    assert isinstance(sparse, SparseVectors)
    assert len(sparse) == 500
    assert np.asarray(sparse) == pytest.approx(dense, abs=1e-12)  # in the records' own order, by which rows belong to people
    full = np.random.default_rng(1).normal(size=(20, 12))
    assert isinstance(query.vectors(full, targets[:20]), np.ndarray)


def test_people_with_several_rows_answer_with_the_mean_of_their_own():
    """Rows with other numbers of entries must not change places: a person's rows would be counted as others'."""
    rows, targets = one_hot(np.random.default_rng(4), 600)
    query, groups = Moments(12), np.random.default_rng(5).integers(0, 150, 600)
    index = RowsOfUsers.of_labels(np.unique(groups, return_inverse=True)[1])
    means = np.concatenate([np.asarray(some) for some in Records(rows, targets, index).vectors(query, None, 50)])
    expected = np.array([query(rows[groups == group], targets[groups == group]).mean(axis=0) for group in np.unique(groups)])
    assert isinstance(query.vectors(rows, targets), SparseVectors)
    assert means == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("levels", [6, 7])
def test_zeros_are_fair_coins_for_an_odd_number_of_levels_and_whole_otherwise(levels):
    """4 000 users with one entry in column 0: column 1 has 4 000 zeros. 1 000 draws; false alarms below 1e-7."""
    vectors = SparseVectors(2, [(np.zeros((4_000, 1), dtype=np.int64), np.full((4_000, 1), 0.3))])
    random = SeededRandom(levels)
    draws = np.array([vectors.encoded(1.0, levels, random).ones for _ in range(1_000)])
    zeros = draws[:, 1] - 4_000 * (levels // 2)
    if levels % 2 == 0:
        assert not zeros.any()
    else:
        assert abs(zeros.mean() - 2_000) < 5.5 * math.sqrt(1_000 / 1_000)
        assert zeros.var() == pytest.approx(1_000, rel=5.5 * math.sqrt(2 / 1_000))
        assert binom.cdf(zeros.min(), 4_000, 0.5) > 1e-10
    place = 1.3 * levels / 2
    expected = 4_000 * place
    spread = math.sqrt(4_000 * (place % 1) * (1 - place % 1))
    assert abs(draws[:, 0].mean() - expected) < 5.5 * spread / math.sqrt(1_000)
    assert draws[:, 0].var() == pytest.approx(spread**2, rel=5.5 * math.sqrt(2 / 1_000))


def test_long_vectors_are_clipped_as_dense_ones_are():
    """In a mean over many users, to within the rounding's noise: the entry of a vector of length 5 is 4/5."""
    plan = plan_sum(epsilon=8.0, delta=1e-3, users=20_000, dim=3)
    columns, values = np.tile([0, 2], (20_000, 1)), np.tile([3.0, -4.0], (20_000, 1))
    encoded = Randomizer(plan).encoded(SparseVectors(3, [(columns, values)]), SeededRandom(1))
    assert encoded.users == 20_000
    mean = (encoded.ones / 20_000) * 2 / plan.levels - 1
    assert mean == pytest.approx([0.6, 0.0, -0.8], abs=6 / math.sqrt(20_000) / plan.levels)


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e200])
def test_what_squares_cannot_hold_goes_the_dense_way(odd):
    vectors = SparseVectors(2, [(np.array([[0]]), np.array([[odd]]))])
    assert not vectors.usual(1.0)
    with pytest.raises(ArgumentError):
        vectors.encoded(1.0, 4, SeededRandom(0))
    plan = plan_sum(epsilon=8.0, delta=1e-3, users=10, dim=2)
    if math.isfinite(odd):
        assert Randomizer(plan).encoded(vectors, SeededRandom(0)).users == 1
    else:
        with pytest.raises(ArgumentError):
            Randomizer(plan).encoded(vectors, SeededRandom(0))


@pytest.mark.parametrize("levels", [7, 200, 5_000])
def test_compiled_and_by_numpy_are_the_same_bits(monkeypatch, levels):
    rows, targets = one_hot(np.random.default_rng(3), 3_000)
    vectors = Moments(12).vectors(rows * 0.37, targets)
    found = []
    for patience in (10**18, -1):
        monkeypatch.setattr(fused, "PATIENCE", patience)
        assert (fused.entries_kernel(1) is None) == (patience > 0)
        found.append(vectors.encoded(0.9, levels, SeededRandom(levels)).ones)
    assert np.array_equal(*found)


@pytest.mark.parametrize(("columns", "blocks"), [(3, 1), (3, 4), (12, 1), (30, 4), (55, 16), (70, 16)])
def test_rotated_vectors_by_their_entries_are_the_same_bits_as_dense_ones(monkeypatch, columns, blocks):
    """Rows with other numbers of entries, a row of zeros among them: compiled, by numpy, and the dense way by numpy."""
    rng, dim = np.random.default_rng(columns), columns * (columns + 1) // 2
    rows = rng.normal(size=(300, columns)) * (rng.random((300, columns)) < 0.3)
    rows[7] = 0
    plain = plan_sum(epsilon=1.0, delta=1e-6, users=300, dim=2)
    padded = 1 << (dim - 1).bit_length()
    plan = replace(plain, dim=dim, range=2 / math.sqrt(padded), blocks=blocks, levels=5, noise_bits=1, honest=0.1)
    found, parts = [], []
    for patience in (10**18, -1):
        monkeypatch.setattr(fused, "PATIENCE", patience)
        vectors = second_moments(rows)
        assert isinstance(vectors, SparseVectors)
        parts.append([part for pair in vectors.parts for part in pair])
        for block in (0, blocks - 1):
            found.append(Randomizer(plan, bytes(32), block).encoded(vectors, SeededRandom(block)).ones)
    assert (fused._rotated_entries_kernel() is None) == (fused._products_kernel() is None) == (fused.kernel() is None)
    monkeypatch.setattr(fused, "PATIENCE", 10**18)
    for block in (0, blocks - 1):
        found.append(Randomizer(plan, bytes(32), block).encoded(np.asarray(vectors), SeededRandom(block)).ones)
    for other in (found[2:4], found[4:]):
        assert np.array_equal(found[:2], other)
    assert all(np.array_equal(*pair) for pair in zip(*parts, strict=True))


def test_rows_of_a_sparse_matrix_are_made_dense_a_few_at_a_time_under_a_rotation(monkeypatch):
    """A matrix may have so many columns that pieces by its entries would not fit memory as they are turned."""
    plan = plan_sum(epsilon=1, delta=1e-4, users=300, dim=100)
    assert plan.range is not None
    rows = np.random.default_rng(2).normal(size=(300, 100)) * (np.random.default_rng(3).random((300, 100)) < 0.02)
    seen, encoded = [], Randomizer.encoded
    monkeypatch.setattr(sums, "CHUNK_ENTRIES", 10 * plan.padded)
    monkeypatch.setattr(Randomizer, "encoded", lambda self, some, random: seen.append(len(some)) or encoded(self, some, random))
    sparse, dense = (VectorSum(plan).run(matrix, random=SeededRandom(4)).sum for matrix in (csr_array(rows), rows))
    assert max(seen) == 10
    assert (sparse == dense).all()
