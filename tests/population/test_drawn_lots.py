"""Secret lots: their law, what becomes of a round that is too full, and blanks that make all rounds as large, bit for bit alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import stats

from croupier.population import ArrayPopulation, ParquetPopulation, arrays
from croupier.population._blocks import BlockPopulation
from croupier.population.population import Question, UnreachableError, deal, draw_lots
from croupier.privacy import plan_lots
from croupier.protocol import VectorSum
from croupier.protocol.randomness import Secret

SECRET = Secret.of_seed(5)
PLAN = plan_lots(epsilon=1.0, delta=1e-6, users=3000, rounds=12, dim=2)


def rows(X, y):
    return np.asarray(X, dtype=np.float64)


def question(batch, secret=SECRET, plan=PLAN):
    return Question(rows, batch, plan.one_round, secret.derive("round"), lots=plan)


def test_every_user_has_one_lot_and_lots_are_uniform_and_independent():
    """Chi squares of lots, and of the lots of neighbours in the table; false alarms at 1e-7 each."""
    batches = draw_lots(SECRET, 120_000, 12, 120_000)
    lots = np.full(120_000, -1)
    for number, batch in enumerate(batches):
        members = batch.members(0, 120_000)
        assert np.all(lots[members] == -1)
        assert len(members) == batch.size
        lots[members] = number
    assert lots.min() >= 0
    assert stats.chisquare(np.bincount(lots, minlength=12)).pvalue > 1e-7
    assert stats.chisquare(np.bincount(12 * lots[::2] + lots[1::2], minlength=144)).pvalue > 1e-7


def test_the_sizes_of_rounds_are_those_of_independent_lots():
    """A permutation with known sizes would have no variance: that is what must not be. Dispersion of 200 deals, alarms at 1e-7."""
    sizes = np.array([[batch.size for batch in draw_lots(Secret.of_seed(i), 1200, 12, 1200)] for i in range(200)])
    statistic = ((sizes - 100) ** 2 / 100).sum()  # chi square, 11 degrees of freedom a deal
    assert stats.chi2.ppf(1e-7, 2200) < statistic < stats.chi2.ppf(1 - 1e-7, 2200)


def test_who_finds_no_room_is_left_out_by_ticket_whatever_the_data():
    roomy, narrow = draw_lots(SECRET, 3000, 12, 3000), draw_lots(SECRET, 3000, 12, 240)
    assert max(batch.size for batch in roomy) > 240
    for all_, some in zip(roomy, narrow, strict=True):
        assert some.size == min(all_.size, 240)
        kept, drawn = some.members(0, 3000), all_.members(0, 3000)
        assert set(kept) <= set(drawn)
        tickets = all_.order.tickets(0, 3000)
        left_out = set(drawn) - set(kept)
        assert not left_out or max(tickets[kept]) < min(tickets[list(left_out)])


def test_a_ticket_beyond_the_last_lot_has_all_draw_anew(monkeypatch):
    from croupier.population.population import Order  # noqa: PLC0415

    page = Order._page

    def with_a_late_ticket(order, first, length):
        tickets = page(order, first, length).copy()
        if order.secret == SECRET.derive("lots", 0):
            tickets[3] = 2**64 - 1
        return tickets

    monkeypatch.setattr(Order, "_page", with_a_late_ticket)
    assert draw_lots(SECRET, 100, 12, 100)[0].order.secret == SECRET.derive("lots", 1)


@pytest.fixture(name="X")
def made():
    return np.random.default_rng(1).normal(size=(3000, 2)) / 2


def test_rounds_are_as_large_as_each_other_and_alike_in_memory_in_files_and_block_by_block(X, tmp_path):
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "people.parquet", row_group_size=700)
    files = ParquetPopulation(tmp_path)
    sizes = [placed.users for placed in files.shard.placed]
    kept = ParquetPopulation(tmp_path, keep=True)
    memory = ArrayPopulation(X, blocks=sizes)
    batches = draw_lots(SECRET, 3000, 12, PLAN.size)
    assert len({batch.size for batch in batches}) > 5
    for batch in batches:
        answers = [population.answer(question(batch)) for population in (memory, files, kept)]
        assert all(answer.sum.tobytes() == answers[0].sum.tobytes() for answer in answers)
        assert {answer.users for answer in answers} == {PLAN.size}
        assert {answer.noise_std for answer in answers} == {PLAN.one_round.noise_std_for(PLAN.size)}


def test_a_small_lot_is_one_block_where_blocks_are_our_choice(monkeypatch):
    """And a large one, or an open batch, or blocks that were named, are answered for block by block, to the bit as before."""
    plan = plan_lots(epsilon=1.0, delta=1e-6, users=20_000, rounds=12, dim=2)
    X = np.random.default_rng(1).normal(size=(20_000, 2)) / 2
    batch = draw_lots(SECRET, 20_000, 12, plan.size)[3]
    ours, named = ArrayPopulation(X), ArrayPopulation(X, blocks=[8192, 8192, 3616])
    undivided = ArrayPopulation(X, blocks=[20_000])

    def sums(asked):
        return [population.answer(asked).sum.tobytes() for population in (ours, named, undivided)]

    secret = sums(question(batch, plan=plan))
    assert secret[0] == secret[2] != secret[1]
    open_ = sums(Question(rows, deal(SECRET, 20_000, [6000, 14_000])[0], plan.one_round, SECRET))
    assert open_[0] == open_[1] != open_[2]
    monkeypatch.setattr(arrays, "ENTRIES_PER_THREAD", plan.size)  # two coordinates: the least lot that is worth two threads
    large = sums(question(batch, plan=plan))
    assert large[0] == large[1] == secret[1]
    digests = {population.prepare(lambda X, y: None, b"key") for population in (ours, named, undivided)}
    assert len(digests) == 3  # a run does not go on with another


def test_an_estimate_promises_what_the_run_does_and_not_what_one_known_round_would(X):
    secret = Secret.fresh()
    batch = draw_lots(secret, 3000, 12, PLAN.size)[0]
    assert ArrayPopulation(X).answer(question(batch, secret)).guarantee == PLAN.guarantee
    assert ArrayPopulation(X).answer(question(batch)).guarantee is None  # seeded


@pytest.mark.parametrize("mode", ["counting", "faithful"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_round_of_blanks_alone_has_mean_zero_and_the_whole_noise(mode, epsilon):
    """Whether g is even or odd. Mean and variance over 64 coordinates and some secrets; false alarms at 1e-7."""
    plan = plan_lots(epsilon=epsilon, delta=1e-6, users=300, rounds=12, dim=64)
    protocol = VectorSum(plan.one_round)
    sums = []
    for seed in range(6 if mode == "faithful" else 40):
        source = Secret.of_seed(seed).derive("blanks").source()
        if mode == "counting":
            counts = protocol.blank_counts(plan.size, source)
        else:
            counts = protocol.shuffle(list(protocol.blank_reports(plan.size, source)), source).counts(plan.one_round)
        assert counts.users == plan.size
        sums.append(protocol.analyze(counts).sum)
    noise = np.ravel(sums)
    one = plan.one_round
    odd = 0.25 if one.levels % 2 else 0.0
    variance = plan.size * (one.noise_bits * one.noise_probability * (1 - one.noise_probability) + odd)
    scaled = noise / (one.step(one.levels) * np.sqrt(variance))
    assert abs(scaled.mean()) < 5.4 / np.sqrt(scaled.size)
    assert stats.chi2.ppf(1e-7, scaled.size) < (scaled**2).sum() < stats.chi2.ppf(1 - 1e-7, scaled.size)


def test_blanks_by_counting_have_the_law_of_blanks_by_the_randomizer():
    """The rounded encodings of zero, with an odd g, by both ways: binomial counts, compared by their frequencies."""
    plan = next(
        p
        for e in (1.0, 1.5, 2.0, 3.0, 4.0)
        if (p := plan_lots(epsilon=e, delta=1e-6, users=300, rounds=12, dim=3)).one_round.levels % 2
    )
    randomizer, levels = VectorSum(plan.one_round)._randomizer, plan.one_round.levels
    source = Secret.of_seed(1).source()
    quick = np.array([randomizer.encoded_zeros(4, source).ones for _ in range(2000)]).ravel() - 4 * (levels // 2)
    slow = np.array([randomizer.encoded(np.zeros((4, 3)), source).ones for _ in range(2000)]).ravel() - 4 * (levels // 2)
    expected = stats.binom.pmf(np.arange(5), 4, 0.5) * 6000
    for found in (quick, slow):
        assert stats.chisquare(np.bincount(found, minlength=5), expected).pvalue > 1e-7


def test_missing_users_are_noticed_and_the_error_does_not_say_how_many_had_the_lot(X):
    class Fewer(BlockPopulation):
        def answer(self, asked):
            from croupier.population._blocks import released  # noqa: PLC0415

            counts = self.shard.counts(asked)
            return released(asked, type(counts)(counts.ones, counts.users - 1, counts.private))

    batch = draw_lots(SECRET, 3000, 12, PLAN.size)[0]
    with pytest.raises(UnreachableError, match="nothing was released") as caught:
        Fewer(ArrayPopulation(X).shard.placed[0].block for _ in [0]).answer(question(batch))
    assert not any(character.isdigit() for character in str(caught.value))


def test_the_people_of_several_rows_have_one_lot(X):
    groups = np.repeat(np.arange(1000), 3)
    plan = plan_lots(epsilon=1.0, delta=1e-6, users=1000, rounds=4, dim=2)
    population = ArrayPopulation(X, groups=groups)
    batches = draw_lots(SECRET, population.users, 4, plan.size)
    assert sum(batch.size for batch in batches) == 1000
    assert population.answer(question(batches[0], plan=plan)).users == plan.size
