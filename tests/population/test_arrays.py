"""Users with several rows: against sums made by hand."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal

import numpy as np
import pandas
import pyarrow as pa
import pytest
import scipy.sparse

import croupier as cr
from croupier.arithmetic import ConstantBeside
from croupier.population import ArrayPopulation
from croupier.population import _blocks as blocks
from croupier.population.population import Batch, Order, Question
from croupier.protocol.randomness import Secret


class Listed(Order):
    """An order in which the listed users come first."""

    def tickets(self, first, last):
        return np.isin(np.arange(first, last), LISTED, invert=True).astype(np.uint64)


LISTED = np.zeros(0, dtype=np.int64)


def answer(population, query, users, dim, norm):
    """The answer at an epsilon so large that noise and rounding are small beside the sum."""
    global LISTED  # noqa: PLW0603
    LISTED = np.asarray(users)
    plan = cr.plan_sum(epsilon=60.0, delta=1e-6, users=len(users), dim=dim, norm=norm)
    batch = Batch(Listed(Secret.of_seed(1), population.users), 0, len(users), 0, 0)
    return population.answer(Question(query, batch, plan, Secret.of_seed(1))).sum, plan.noise_std


@pytest.mark.parametrize("labels", [np.array(list("abcab") * 400), np.arange(2000) % 7, np.arange(2000) % 7 * 1.5])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("entries", [64, 1 << 17])
def test_a_user_answers_with_the_mean_of_its_rows(labels, sparse, entries, monkeypatch):
    monkeypatch.setattr(blocks, "CHUNK_ENTRIES", entries)
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
        (["a", float("nan"), "b", "c"], "missing"),
        (pandas.Series(["a", None, "b", "c"], dtype="string"), "missing"),
        (np.array(["2020-01-01", "NaT"] * 2, dtype="M8[ns]"), "missing"),
        ([Decimal("NaN")] * 4, "missing"),
        (["a", b"a", "b", "c"], "one kind"),
        (np.ma.masked_array([1, 2, 3, 4], [0, 1, 0, 0]), "mask"),
    ],
)
def test_labels_that_do_not_say_whose_row_it_is_are_refused(groups, words):
    with pytest.raises(cr.ArgumentError, match=words):
        ArrayPopulation(np.zeros((4, 2)), groups=groups)


def test_labels_that_are_equal_are_one_user():
    labels = np.array([1, 1.0, True, np.int64(1), 2], dtype=object)
    assert ArrayPopulation(np.zeros((5, 1)), groups=labels).users == 2
    assert ArrayPopulation(np.zeros((4, 1)), groups=pandas.Series(["a", "b", "a", "b"], dtype="category")).users == 2


def test_someone_with_more_rows_than_a_chunk_is_worked_on_in_pieces(monkeypatch):
    monkeypatch.setattr(blocks, "CHUNK_ENTRIES", 30)
    sizes = []

    def query(X, y):
        sizes.append(len(X))
        return X

    X = np.concatenate([np.full((100, 3), 0.5), np.zeros((99, 3))])
    groups = np.concatenate([np.zeros(100), np.arange(1, 100)])
    found, noise = answer(ArrayPopulation(X, groups=groups), query, np.arange(100), 3, 1.0)
    assert max(sizes) <= 10
    assert np.abs(found - 0.5).max() < 6 * noise


def test_a_query_that_does_not_map_each_record_alone_is_refused():
    people = ArrayPopulation(np.zeros((100, 2)), groups=np.arange(100) // 2)
    with pytest.raises(cr.ArgumentError, match="one per record"):
        answer(people, lambda X, y: np.vstack([X, X]), np.arange(50), 2, 1.0)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ma.masked_array(np.zeros((4, 2)), np.eye(4, 2)), "mask"),
        (np.full((4, 2), np.longdouble("1e400")), "inf"),
        (scipy.sparse.csr_matrix([[0, 0], [1, 2], [0, np.nan]]), r"X\[2\]"),
        (scipy.sparse.csr_matrix([[1j, 0]]), "table of numbers"),
    ],
)
def test_records_that_are_no_finite_numbers_are_refused_at_once(X, words):
    with pytest.raises(cr.ArgumentError, match=words):
        ArrayPopulation(X)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_parts_of_a_sparse_matrix_are_the_rows_and_no_copies(kind):
    X = kind(scipy.sparse.random(30_000, 5, density=0.3, format="csr", random_state=0))
    parts = [placed.block.X for placed in ArrayPopulation(X).shard.placed]
    assert len(parts) == 4
    assert all(np.shares_memory(part.data, X.data) and np.shares_memory(part.indices, X.indices) for part in parts)
    assert (scipy.sparse.vstack(parts) != X).nnz == 0


def test_a_missing_whole_number_in_an_arrow_column_changes_no_other():
    """The attack: beside a gap, numpy makes floats of Arrow's whole numbers, which do not hold names of 18 digits."""
    names = [10**18 + number for number in range(1000)]
    people = [
        ArrayPopulation(np.zeros((1000, 1)), groups=pa.array([*names[:-1], last]), invalid="blank") for last in (names[-1], None)
    ]
    assert [population.users for population in people] == [1000, 999]


def test_some_rows_of_a_view_are_taken_without_a_copy_of_all():
    """`X[:, :-1]` is what people fit: a copy of it for every round took four fifths of the time."""
    table = np.random.default_rng(0).normal(size=(100_000, 5))
    some = np.array([5, 99_999, 17])
    for rows in (table[:, :-1], np.asfortranarray(table)):
        beside = ConstantBeside(rows, 0.25)
        tracemalloc.start()
        taken = beside[some].toarray()
        assert tracemalloc.get_traced_memory()[1] < 100_000
        tracemalloc.stop()
        assert np.array_equal(taken, np.column_stack([rows[some], np.full(3, 0.25)]))


@pytest.mark.parametrize("groups", [None, np.arange(500) % 60])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_constant_beside_rows_is_there_wherever_rows_are_taken(groups, kind):
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(kind)
    beside = ConstantBeside(rows, 0.25)
    late, full = (ArrayPopulation(X, groups=groups) for X in (beside, np.column_stack([rows, np.full(500, 0.25, kind)])))
    assert late.users == full.users
    key = bytes(32)
    assert late.prepare(lambda X, y: None, key) == full.prepare(lambda X, y: None, key)
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=late.users, dim=4, norm=3.0)
    question = Question(lambda X, y: X, Batch.everyone(late.users), plan, Secret.of_seed(1))
    assert (late.answer(question).sum == full.answer(question).sum).all()
    rows[3, 1] = np.nan
    with pytest.raises(cr.ArgumentError, match="finite"):
        ArrayPopulation(ConstantBeside(rows, 0.25))
