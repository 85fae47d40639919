"""Users in blocks: the counts of a round are the same however the blocks are spread, and their noise is that of the plan."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import pickle
import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import croupier as cr
from croupier.optimizer._gradients import Gradients
from croupier.population import ArrayPopulation
from croupier.population import _blocks as blocks
from croupier.population._blocks import BlockPopulation, Records, RowsOfUsers, Shard, place
from croupier.population.population import Batch, Query, Question, UnreachableError, deal
from croupier.problem import Ball, Logistic, Problem
from croupier.protocol import _fused as fused
from croupier.protocol.randomness import Secret

SECRET = Secret.of_seed(7)
SIZES = [5, 1, 40, 7, 100]
USERS = sum(SIZES)
KEY = b"a key of the run"


class Made:
    """A block that is made anew whenever it is read, and counts how often."""

    def __init__(self, X, y=None):
        self.X, self.y, self.users, self.reads = X, y, len(X), 0

    def read(self):
        self.reads += 1
        return self.X.copy(), None if self.y is None else self.y.copy()


def people(seed=0, sizes=SIZES, dim=3):
    rng = np.random.default_rng(seed)
    return [Made(rng.uniform(-0.5, 0.5, size=(size, dim)), rng.integers(0, 2, size).astype(float)) for size in sizes]


def rows(X, y):
    return X


def about(batch, *, dim=3, secret=SECRET, query=rows, epsilon=20.0):
    plan = cr.plan_sum(epsilon=epsilon, delta=1e-6, users=batch.size, dim=dim)
    return Question(query, batch, plan, secret)


def test_a_question_makes_its_sum_once_and_travels_without_it():
    question = about(Batch.everyone(40))
    assert question.protocol is question.protocol
    arrived = pickle.loads(pickle.dumps(question))
    assert arrived == question
    assert "protocol" not in vars(arrived)


def questions(users=USERS):
    """Of everyone, and of batches that hold some of most blocks."""
    return [about(batch) for batch in [Batch.everyone(users), *deal(SECRET, users, [60, 30, 2])]]


def accept(X, y):
    """Any records."""


def law_of(sample, law):
    """Chi-square test of whole numbers against a law, cells merged to 25 expected or more, at a false-alarm rate of 1e-7."""
    cells = np.cumsum(law * len(sample)) // 25
    seen, expected = (np.bincount(cells.astype(int), weights) for weights in (np.bincount(sample, minlength=len(law)), law))
    seen, expected = seen[expected > 0], expected[expected > 0] * len(sample)
    assert len(expected) > 5
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-7


# --- who answers for which block does not matter


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("keep", [False, True])
def test_counts_are_the_same_however_blocks_are_spread_over_processes(number, keep):
    blocks, question = people(), questions()[number]
    expected = BlockPopulation(blocks).shard.counts(question)
    assert expected.users == question.batch.size
    rng = np.random.default_rng(number)
    for _ in range(20):
        machines = rng.integers(0, 4, size=len(blocks))
        shards = [[block for block, where in zip(place(blocks), machines, strict=True) if where == machine] for machine in range(4)]
        found = [Shard(rng.permutation(np.array(some, dtype=object)), keep=keep).counts(question) for some in shards]
        np.testing.assert_array_equal(sum(counts.ones for counts in found), expected.ones)
        assert sum(counts.users for counts in found) == expected.users


def test_kept_records_answer_like_records_that_are_read_again():
    kept, read = people(), people()
    keeping, reading = BlockPopulation(kept, keep=True), BlockPopulation(read)
    for question in questions() * 2:
        np.testing.assert_array_equal(keeping.answer(question).sum, reading.answer(question).sum)
    assert {block.reads for block in kept} == {1}
    assert read[4].reads > 4


def test_kept_records_are_dealt_anew_by_another_run():
    keeping, reading = BlockPopulation(people(), keep=True), BlockPopulation(people())
    for seed in (1, 2, 1):
        question = about(deal(Secret.of_seed(seed), USERS, [60])[0])
        np.testing.assert_array_equal(keeping.answer(question).sum, reading.answer(question).sum)


def test_blocks_answer_like_the_array_that_they_are_parts_of():
    blocks = people()
    array = ArrayPopulation(np.concatenate([b.X for b in blocks]), np.concatenate([b.y for b in blocks]), blocks=SIZES)
    for question in questions():
        np.testing.assert_array_equal(array.answer(question).sum, BlockPopulation(blocks).answer(question).sum)


def test_the_same_question_has_the_same_answer_and_another_secret_another():
    population = BlockPopulation(people())
    for question in questions():
        other = dataclasses.replace(question, secret=Secret.of_seed(8))
        first, again, differently = (population.answer(asked).sum for asked in (question, question, other))
        np.testing.assert_array_equal(first, again)
        assert np.all(first != differently)


def test_every_block_has_noise_of_its_own():
    """Twenty coordinates that agree by chance in all: at less than 1/4 each, below 1e-12."""
    twins = place([Made(np.full((30, 20), 0.1)), Made(np.full((30, 20), 0.1))])
    question = about(Batch.everyone(60), dim=20, epsilon=1.0)
    first, second = (Shard([placed], keep=False).counts(question).ones for placed in twins)
    assert np.mean(first == second) < 1
    np.testing.assert_array_equal(Shard(twins, keep=False).counts(question).ones, first + second)


def test_a_block_that_holds_nobody_of_the_batch_adds_nothing():
    blocks = people(sizes=[1] * 30)
    batch = deal(SECRET, 30, [4])[0]
    question, members = about(batch), batch.members(0, 30)
    population = BlockPopulation(blocks)
    assert population.answer(question).users == 4
    assert [block.reads for block in blocks] == np.isin(np.arange(30), members).astype(int).tolist()
    absent = next(placed for placed in place(blocks) if placed.number not in members)
    counts = Shard([absent], keep=False).counts(question)
    assert (counts.ones.tolist(), counts.users) == ([0, 0, 0], 0)
    np.testing.assert_array_equal(
        np.concatenate(list(population.shard.vectors(question))), np.concatenate([blocks[i].X for i in members])
    )


@pytest.mark.parametrize("matrix", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_sparse_blocks_answer_like_dense_ones(matrix):
    blocks = people()
    dense, sparse = (
        BlockPopulation([Records(make(block.X), block.y) for block in blocks], keep=False) for make in (np.asarray, matrix)
    )
    sparse.prepare(accept)
    for question in questions():
        np.testing.assert_array_equal(sparse.answer(question).sum, dense.answer(question).sum)


# --- blocks that are not what they were, or never were right


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("size", [39, 41])
def test_a_block_with_another_number_of_users_than_it_said_is_out_of_reach(keep, size):
    blocks = people()
    blocks[2].X, blocks[2].y = np.zeros((size, 3)), np.zeros(size)
    population = BlockPopulation(blocks, keep=keep)
    with pytest.raises(UnreachableError, match=f"{size} users where 40 were counted"):
        population.prepare(accept)
    with pytest.raises(UnreachableError, match="Nothing was released"):
        population.answer(questions()[0])


def test_a_block_that_changes_while_it_is_asked_is_out_of_reach():
    blocks = people()
    population = BlockPopulation(blocks)
    population.prepare(accept)
    population.answer(questions()[0])
    blocks[4].X = blocks[4].X[1:]
    with pytest.raises(UnreachableError):
        population.answer(questions()[1])


@pytest.mark.parametrize(("part", "bad"), [("X", np.nan), ("X", -np.inf), ("y", np.nan), ("y", np.inf)])
def test_a_block_with_a_hole_is_refused_before_anyone_is_asked(part, bad):
    class Silent(BlockPopulation):
        def answer(self, question):
            raise AssertionError("a user was asked")

    blocks = people()
    getattr(blocks[3], part)[4] = bad
    with pytest.raises(cr.ArgumentError, match=part):
        Silent(blocks).prepare(accept)
    with pytest.raises(cr.ArgumentError, match=part):
        cr.minimize(Problem(Logistic(), Ball(dim=3, radius=1.0)), Silent(blocks), epsilon=2.0, delta=1e-6)


def test_a_block_whose_records_fail_the_test_is_refused():
    def small(X, y):
        if np.abs(X).max() > 0.5:
            raise ValueError("too large")

    blocks = people()
    BlockPopulation(blocks).prepare(small)
    blocks[4].X[99, 2] = 0.6
    with pytest.raises(ValueError, match="too large"):
        BlockPopulation(blocks).prepare(small)


@pytest.mark.parametrize(("blocks", "words"), [([], "at least one block"), ([Made(np.zeros((0, 2)))], r"blocks\[0\]\.users = 0")])
def test_no_users_are_no_population(blocks, words):
    with pytest.raises(cr.ArgumentError, match=words):
        BlockPopulation(blocks)


def test_users_may_be_counted_in_any_whole_number():
    blocks = people()
    for block in blocks:
        block.users = np.int64(block.users)
    result = cr.minimize(Problem(Logistic(), Ball(dim=3, radius=1.0)), BlockPopulation(blocks), epsilon=2.0, delta=1e-6, rounds=2)
    assert (result.users, result.rounds) == (USERS, 2)


# --- digests


def digest(X, y=None, index=None, key=KEY):
    return Records(X, y, index).digest(key)


def test_a_digest_is_hmac_sha256_of_the_records():
    X, y = np.arange(6.0).reshape(3, 2), np.array([1, 0, 1])
    text = b"(3, 2)" + b"X float64 (3, 2)" + X.tobytes() + b"y int64 (3,)" + y.tobytes()
    assert digest(X, y) == hmac.new(KEY, text, hashlib.sha256).digest()
    joint = hmac.new(KEY, digest(X, y) + digest(X[:1], y[:1]), hashlib.sha256).digest()
    assert BlockPopulation([Made(X, y), Made(X[:1], y[:1])]).prepare(accept, KEY) == joint
    assert BlockPopulation([Made(X, y)]).prepare(accept) is None


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
def test_every_bit_of_every_record_is_in_the_digest(make):
    X, y = np.arange(1.0, 7.0).reshape(3, 2), np.array([0.5, 1.0, 0.0])
    made = {digest(make(X), y)}
    for part in (X, y):
        raw = part.reshape(-1).view(np.uint8)
        for bit in range(8 * raw.size):
            raw[bit // 8] ^= 1 << bit % 8
            made.add(digest(make(X), y))
            raw[bit // 8] ^= 1 << bit % 8
    assert len(made) == 1 + 8 * 8 * (6 + 3)
    assert digest(make(X), y) in made


def test_order_shape_type_and_key_are_in_the_digest():
    X, y = np.arange(6.0).reshape(3, 2), np.array([1.0, 0.0, 1.0])
    different = [
        digest(X, y),
        digest(X[::-1], y[::-1]),
        digest(X[[0, 2, 1]], y),
        digest(X.reshape(2, 3), y),
        digest(X.astype(np.float32), y),
        digest(X, y.astype(int)),
        digest(X),
        digest(X, y, key=b"another key"),
        digest(scipy.sparse.csr_matrix(X), y),
        digest(X, y.astype(str).astype(object)),
    ]
    assert len(set(different)) == len(different)


def test_where_records_are_kept_is_not_in_the_digest():
    X, y = np.arange(6.0).reshape(3, 2), np.array([1.0, 0.0, 1.0])
    wide = np.zeros((3, 4))
    wide[:, ::2] = X
    assert {digest(X.copy(), y.copy()), digest(np.asfortranarray(X), y), digest(wide[:, ::2], y)} == {digest(X, y)}
    assert BlockPopulation(people()).prepare(accept, KEY) == BlockPopulation(people(), keep=True).prepare(accept, KEY)


def test_where_blocks_begin_is_in_the_digest():
    """Their noise depends on it."""
    X = np.arange(12.0).reshape(6, 2)
    made = [ArrayPopulation(X, blocks=sizes).prepare(accept, KEY) for sizes in ([6], [3, 3], [2, 4], [1] * 6)]
    assert len(set(made)) == 4


def test_whose_row_it_is_is_in_the_digest():
    X, y = np.arange(8.0).reshape(4, 2), np.array([1.0, 0.0, 1.0, 1.0])
    grouped = {
        labels: ArrayPopulation(X, y, groups=list(labels)).prepare(accept, KEY)
        for labels in ("abcd", "aabb", "aaab", "abab", "baba")
    }
    different = [grouped["abcd"], grouped["aabb"], grouped["aaab"], grouped["abab"], ArrayPopulation(X, y).prepare(accept, KEY)]
    assert len(set(different)) == len(different)
    assert grouped["abab"] == grouped["baba"]  # a label's name is nobody's record
    X[3, 1] += 1e-9
    assert ArrayPopulation(X, y, groups=list("aabb")).prepare(accept, KEY) != grouped["aabb"]


def test_targets_are_not_taken_for_numbers_of_rows():
    X = np.zeros((3, 1))
    assert digest(X, np.ones(3, dtype=np.int64)) != digest(X, None, RowsOfUsers.of_labels(np.arange(3)))


def test_targets_of_any_kind_have_a_digest():
    days = np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]")
    assert digest(np.zeros((2, 1)), days) != digest(np.zeros((2, 1)), days[::-1])
    names = np.array(["a", "bc"])
    assert digest(np.zeros((2, 1)), names) != digest(np.zeros((2, 1)), names[::-1])


# --- people with several rows


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
def test_gathered_records_answer_like_those_they_come_from(make):
    rng = np.random.default_rng(3)
    X, y, labels = rng.uniform(-0.5, 0.5, size=(200, 3)), rng.uniform(size=200), rng.permutation(np.arange(200) % 60)
    part = Records(make(X), y, RowsOfUsers.of_labels(labels).part(20, 50))
    gathered = part.gathered()
    assert (part.users, gathered.users) == (30, 30)
    assert gathered.X.shape == (int(np.isin(labels, np.arange(20, 50)).sum()), 3)
    assert gathered.digest(KEY) == part.digest(KEY)

    def query(X, y):
        return X * y[:, np.newaxis]

    for batch in (Batch.everyone(30), deal(SECRET, 30, [12])[0]):
        question = about(batch, query=query)
        here, there = (BlockPopulation([records], keep=True) for records in (part, gathered))
        np.testing.assert_array_equal(here.answer(question).sum, there.answer(question).sum)
        by_hand = [(X * y[:, np.newaxis])[labels == 20 + user].mean(axis=0) for user in batch.members(0, 30)]
        np.testing.assert_allclose(np.concatenate(list(there.shard.vectors(question))), by_hand, rtol=1e-12)


def test_records_of_one_row_each_are_gathered_already():
    records = Records(np.zeros((3, 1)), None)
    assert records.gathered() is records


# --- the law


def at_the_worst_input(plan, users):
    """Vectors that are encoded half way between two levels in every coordinate: rounding adds all the variance that it can."""
    return np.full((users, plan.dim), 2 * plan.norm / plan.levels * (plan.levels // 2 + 0.5) - plan.norm)


@pytest.mark.parametrize("sizes", [[40], [10, 1, 9, 5, 15], [1] * 40], ids=["one block", "five", "one a user"])
def test_the_noise_of_all_blocks_together_is_that_of_the_plan(sizes):
    """Mean and variance of 200 to 1 500 rounds in 4 coordinates, each at a false-alarm rate below 1e-7, against the plan."""
    plan = cr.plan_sum(epsilon=8.0, delta=1e-6, users=40, dim=4)
    X = at_the_worst_input(plan, 40)
    population = ArrayPopulation(X, blocks=sizes)
    rounds = 1500 if len(sizes) < 10 else 200
    sums = [population.answer(Question(rows, Batch.everyone(40), plan, Secret.of_seed(s))).sum for s in range(rounds)]
    scaled = (np.array(sums) - X.sum(axis=0)) / plan.noise_std
    assert abs(scaled.mean()) < stats.norm.isf(5e-8) / np.sqrt(scaled.size)
    assert stats.chi2.ppf(5e-8, scaled.size) < (scaled**2).sum() < stats.chi2.isf(5e-8, scaled.size)


@pytest.mark.parametrize("mode", ["counting", "faithful"])
@pytest.mark.parametrize("sizes", [[3], [1, 2], [1, 1, 1]])
def test_rounds_of_blocks_have_the_exact_law_in_both_modes(mode, sizes):
    """Three users half way between levels: the ones are theirs, three fair coins and the noise bits. See `law_of` for the rate."""
    plan = dataclasses.replace(cr.plan_sum(epsilon=15.0, delta=1e-6, users=3, dim=1), levels=3, noise_bits=20)
    population = ArrayPopulation(at_the_worst_input(plan, 3), blocks=sizes, mode=mode)
    sums = [population.answer(Question(rows, Batch.everyone(3), plan, Secret.of_seed(s))).sum[0] for s in range(1500)]
    ones = np.array(sums) * plan.levels / (2 * plan.norm) + 3 * (plan.noise_probability * plan.noise_bits + plan.levels / 2)
    np.testing.assert_allclose(ones, np.round(ones), atol=1e-9)
    noise = stats.binom.pmf(np.arange(61), 60, plan.noise_probability)
    law = np.convolve(np.convolve(np.eye(4)[3], stats.binom.pmf(np.arange(4), 3, 0.5)), noise)
    law_of(np.round(ones).astype(int), law)


# --- memory


@pytest.mark.parametrize("work", ["prepare", "digest", "everyone", "batch"])
def test_blocks_that_are_not_kept_take_the_memory_of_one(work, monkeypatch):
    """Six blocks of 16 MB; half a block is for the tickets, the chunk being worked on (smaller than it is) and the like."""
    size, dim = 1 << 18, 8
    monkeypatch.setattr(blocks, "CHUNK_ENTRIES", 1 << 17)

    class Large:
        users = size

        def read(self):
            return np.full((size, dim), 0.1), None

    population = BlockPopulation([Large() for _ in range(6)])
    batch = Batch.everyone(6 * size) if work == "everyone" else deal(SECRET, 6 * size, [100_000])[0]
    question = about(batch, dim=dim, epsilon=2.0)
    fused.kernel()  # numba takes tens of megabytes where it is loaded, which is up to the tests before
    tracemalloc.start()
    try:
        population.prepare(accept, KEY if work == "digest" else None) if work in ("prepare", "digest") else population.answer(
            question
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size * dim * 8 <= peak < 1.5 * size * dim * 8


def test_rows_in_another_order_would_ask_someone_twice_and_are_refused():
    """A streamed block that is read in a new order every time, as from a query without one."""

    class Restless(Made):
        def read(self):
            self.reads += 1
            return self.X[np.random.default_rng(self.reads).permutation(len(self.X))], None

    population = BlockPopulation([Restless(block.X) for block in people()])
    population.prepare(accept)
    with pytest.raises(UnreachableError, match="has changed"):
        population.answer(questions()[1])


def test_how_many_users_a_block_has_is_counted_once():
    blocks = people()
    population = BlockPopulation(blocks)
    blocks[0].users += 1
    assert population.users == USERS


# --- threads


@pytest.fixture
def _little_work_is_shared(monkeypatch):
    monkeypatch.setattr(blocks, "ENTRIES_PER_THREAD", 1)


class RequestBatcher(Query):
    """A query that only goes on where two threads have come to it, or whose threads are noted."""

    def __init__(self, parallel, meet):
        self.parallel, self.names, self._barrier = parallel, set(), threading.Barrier(2 if meet else 1)

    def __call__(self, X, y):
        self.names.add(threading.get_ident())
        self._barrier.wait(timeout=60)
        return X


@pytest.mark.usefixtures("_little_work_is_shared")
@pytest.mark.parametrize("threads", [2, 3, 50])
@pytest.mark.parametrize("keep", [False, True])
def test_any_number_of_threads_gives_the_same_counts(threads, keep):
    for plain in questions():
        question = dataclasses.replace(plain, query=RequestBatcher(True, meet=False))
        alone, shared = (BlockPopulation(people(), keep=keep, threads=number).answer(question) for number in (1, threads))
        assert shared.sum.tolist() == alone.sum.tolist()
        assert shared.users == alone.users


@pytest.mark.usefixtures("_little_work_is_shared")
def test_blocks_are_answered_for_at_the_same_time():
    population = BlockPopulation(people(sizes=[50] * 4), keep=True, threads=2)
    assert population.answer(about(Batch.everyone(200), query=RequestBatcher(True, meet=True))).users == 200


@pytest.mark.usefixtures("_little_work_is_shared")
def test_a_query_that_does_not_say_so_is_not_called_by_several_threads():
    query = RequestBatcher(False, meet=False)
    BlockPopulation(people(), keep=True, threads=4).answer(about(Batch.everyone(USERS), query=query))
    assert query.names == {threading.get_ident()}


@pytest.mark.usefixtures("_little_work_is_shared")
def test_a_record_that_ends_a_round_ends_it_in_a_thread_too():
    blocks_ = people()
    blocks_[3].X[2, 1] = np.nan
    population = BlockPopulation(blocks_, keep=True, threads=2)
    with pytest.raises(cr.ArgumentError, match=r"vectors\[2\] = nan"):
        population.answer(about(Batch.everyone(USERS), query=RequestBatcher(True, meet=False)))


def test_little_work_is_not_shared():
    query = RequestBatcher(True, meet=False)
    BlockPopulation(people(), keep=True, threads=4).answer(about(Batch.everyone(USERS), query=query))
    assert query.names == {threading.get_ident()}


@pytest.mark.parametrize("threads", [0, -1, 1.5])
def test_threads_are_a_whole_number_of_at_least_one(threads):
    with pytest.raises(cr.ArgumentError, match="threads"):
        BlockPopulation(people(), threads=threads)
    with pytest.raises(cr.ArgumentError, match="threads"):
        ArrayPopulation(np.zeros((5, 2)), threads=threads)


@pytest.mark.parametrize(
    ("users", "most", "count"), [(8192, 8192, 1), (50_000, 8192, 7), (465_000, 58_125, 8), (3_000_000, 1 << 18, 12)]
)
def test_an_array_is_divided_by_its_length_alone(users, most, count):
    placed = ArrayPopulation(np.zeros((users, 1)), threads=1).shard.placed
    assert (max(block.users for block in placed), len(placed)) == (most, count)


@pytest.mark.usefixtures("_little_work_is_shared")
@pytest.mark.parametrize("problem", [Problem(loss=Logistic(), domain=Ball(dim=3, radius=2.0), l2=l2) for l2 in (0.0, 0.1)])
@pytest.mark.parametrize("method", ["acsa", "smoothed-acsa"])
def test_a_whole_run_is_the_same_with_threads_and_with_the_compiled_pass(problem, method, monkeypatch):
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    found = []
    for threads, patience in ((1, 10**18), (2, 10**18), (1, -1), (2, -1)):
        monkeypatch.setattr(fused, "PATIENCE", patience)
        population = ArrayPopulation(X, X[:, 0] > 0, threads=threads)
        options = {"method": method, "interactivity": "full", "rule": "practical", "rounds": 3}
        found.append(cr.minimize(problem, population, epsilon=1.0, delta=1e-6, seed=1, **options).theta.tolist())
    assert found[1:] == found[:1] * 3


def test_gradients_of_ones_own_are_asked_for_as_they_are():
    """A problem whose gradients somebody has changed is not asked for products behind their back."""

    @dataclasses.dataclass(frozen=True)
    class Half(Problem):
        def gradients(self, theta, X, y):
            return super().gradients(theta, X, y) / 2

    X = np.random.default_rng(0).normal(size=(50, 3))
    whole, half = (Gradients(kind(loss=Logistic(), domain=Ball(dim=3, radius=2.0)), np.ones(3)) for kind in (Problem, Half))
    assert whole.parallel
    assert not half.parallel
    assert isinstance(half.vectors(X, X[:, 0] > 0), np.ndarray)
    np.testing.assert_allclose(np.asarray(whole.vectors(X, X[:, 0] > 0)), 2 * half(X, X[:, 0] > 0), rtol=1e-15)
