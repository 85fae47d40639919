"""Samplers against their laws: exactly, by enumerating the random bytes, and by chi-square at a false-alarm rate of 1e-6."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from croupier import ArgumentError
from croupier.protocol import SeededRandom
from croupier.protocol import _sampling as sampling
from croupier.protocol._sampling import binomial, fair_binomial, permutation, round_at_random

exactly = settings(deadline=None, derandomize=True, max_examples=200)

TRIALS = [1, 7, 8, 9, 63, 64, 65, 200]
# powers of two, other dyadics, and floats whose 50-odd digits look like nothing in particular
PROBABILITIES = [0.5, 0.25, 0.75, 0.4375, 0.1, 0.9, 1 / 3, 0.49997, 2.0**-10, 1 - 2.0**-10, math.nextafter(0.5, 0), math.pi / 4]
EDGES = [2.0**-40, 1 - 2.0**-53, 2.0**-53, 5e-324, 2.2250738585072014e-308, 0.1, 1 - 2.0**-40, math.nextafter(0.5, 1)]

probabilities = st.one_of(
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.sampled_from(EDGES),
    st.integers(1, 255).map(lambda k: k / 256),
)


def exact_law(trials: int, probability: float) -> np.ndarray:
    return stats.binom.pmf(np.arange(trials + 1), trials, probability)


def number_of(script: bytes) -> Fraction:
    """The number in [0, 1) whose base-256 digits these are."""
    return Fraction(int.from_bytes(script, "big"), 256 ** len(script))


def digits_near(data: st.DataObject, probability: float, count: int, base: int) -> list[int]:
    """`count` digits of a number that agrees with `probability` for a while, or all the way, and then goes its own way."""
    own, rest = [], Fraction(probability)
    for _ in range(count):
        rest *= base
        own.append(int(rest))
        rest -= int(rest)
    shared = data.draw(st.integers(0, count))
    tail = data.draw(st.one_of(st.just(0), st.integers(0, base ** (count - shared) - 1)))
    return own[:shared] + [tail // base**k % base for k in reversed(range(count - shared))]


# --- fair_binomial


@pytest.mark.parametrize("trials", range(1, 9))
def test_fair_binomial_over_all_bytes_is_the_exact_law(scripted, trials):
    source = scripted(bytes(range(256)))
    counts = np.bincount(fair_binomial(source, trials, 256), minlength=trials + 1)
    assert counts.tolist() == [math.comb(trials, k) * 2 ** (8 - trials) for k in range(trials + 1)]
    assert source.drawn == 256


@pytest.mark.parametrize("trials", range(9, 17))
def test_fair_binomial_over_all_byte_pairs_is_the_exact_law(scripted, trials):
    source = scripted(np.arange(1 << 16, dtype=np.uint16).tobytes())
    counts = np.bincount(fair_binomial(source, trials, 1 << 16), minlength=trials + 1)
    assert counts.tolist() == [math.comb(trials, k) * 2 ** (16 - trials) for k in range(trials + 1)]


def test_fair_binomials_of_mixed_trials_are_independent_over_all_byte_pairs(scripted):
    pairs = np.array(list(itertools.product(range(256), repeat=2)), dtype=np.uint8)
    drawn = fair_binomial(scripted(pairs.tobytes()), np.tile([3, 5], 1 << 16), 1 << 17).reshape(-1, 2)
    joint = np.zeros((4, 6), dtype=int)
    np.add.at(joint, tuple(drawn.T), 1)
    assert joint.tolist() == [[math.comb(3, i) * math.comb(5, j) * 2**8 for j in range(6)] for i in range(4)]


@pytest.mark.parametrize("trials", [[1, 7, 8, 9], [63, 64, 65, 0], [200, 1, 130, 64], [129, 128], [64, 64, 128], [70], [0, 3]])
def test_every_random_bit_counts_once(scripted, trials):
    """A draw is a sum of exactly trials_i bits, and no bit is in two draws: this is Bin(trials_i, 1/2), and independent."""
    trials = np.array(trials)
    source = scripted(bytes(1000))
    assert not fair_binomial(source, trials, trials.size).any()
    length = source.drawn
    reaction = np.array(
        [fair_binomial(scripted((1 << bit).to_bytes(length, "little")), trials, trials.size) for bit in range(8 * length)]
    )
    assert reaction.min() >= 0
    assert reaction.sum(axis=1).max() <= 1
    assert reaction.sum(axis=0).tolist() == trials.tolist()
    for seed in range(20):
        script = SeededRandom(seed).draw_bytes(length).tobytes()
        bits = np.unpackbits(np.frombuffer(script, dtype=np.uint8), bitorder="little")
        assert fair_binomial(scripted(script), trials, trials.size).tolist() == (bits @ reaction).tolist()


@exactly
@given(trials=st.lists(st.integers(0, 700), min_size=1, max_size=8))
def test_fair_binomial_of_all_ones_is_all_trials(scripted, trials):
    script = b"\xff" * 8 * (len(trials) * 12)
    assert fair_binomial(scripted(script), np.array(trials), len(trials)).tolist() == trials
    assert not fair_binomial(scripted(bytes(len(script))), np.array(trials), len(trials)).any()


@pytest.mark.parametrize("trials", TRIALS)
def test_fair_binomial_law(law_of, mean_of, variance_of, trials):
    """False-alarm rate 1e-6 each: law, mean, variance."""
    drawn = fair_binomial(SeededRandom(trials), trials, 100_000)
    law_of(drawn, exact_law(trials, 0.5))
    mean_of(drawn, trials / 2, trials / 4)
    if trials > 60:  # near enough to a Gaussian for the chi-square law of the variance
        variance_of(drawn, trials / 2, trials / 4)


def test_fair_binomial_law_of_mixed_trials(law_of):
    """False-alarm rate 1e-6 for each of the trial counts, which stand in one array."""
    mixed = np.array([*TRIALS, 0, 129])
    drawn = fair_binomial(SeededRandom(11), np.tile(mixed, 40_000), 40_000 * mixed.size).reshape(-1, mixed.size)
    for column, trials in zip(drawn.T, mixed, strict=True):
        if trials:
            law_of(column, exact_law(trials, 0.5))
        else:
            assert not column.any()
    # neighbours in the array do not depend on each other: correlations of 40 000 pairs, all below 5.7 sd (1e-6 for 36 pairs)
    correlations = np.corrcoef(drawn[:, mixed > 0].T)
    assert np.abs(correlations - np.eye(len(correlations))).max() < 5.7 / math.sqrt(40_000)


def test_fair_binomial_of_many_words_is_cut_into_pieces(monkeypatch, mean_of, variance_of):
    """The same law where one draw, or the whole array, is longer than what is worked on at a time (false alarms 1e-6 each)."""
    monkeypatch.setattr(sampling, "_CHUNK_WORDS", 8)
    for trials, size in ((64 * 15 + 3, 4000), (64 * 3 + 3, 4001)):
        drawn = fair_binomial(SeededRandom(size), trials, size)
        mean_of(drawn, trials / 2, trials / 4)
        variance_of(drawn, trials / 2, trials / 4)


@pytest.mark.parametrize("chunk", [1, 3, 8, 1 << 18])
def test_pieces_leave_no_bit_out(monkeypatch, scripted, chunk):
    monkeypatch.setattr(sampling, "_CHUNK_WORDS", chunk)
    trials = np.array([64 * 7, 64 * 7 + 1, 64 * 9 + 63])
    script = b"\xff" * 8 * (3 * 7 + 3 * 3)
    source = scripted(script)
    assert fair_binomial(source, trials, 3).tolist() == trials.tolist()
    assert source.drawn == len(script)


def test_fair_binomial_of_nothing_draws_nothing(untouched):
    assert fair_binomial(untouched, 5, 0).shape == (0,)
    assert fair_binomial(untouched, 0, 4).tolist() == [0, 0, 0, 0]
    assert fair_binomial(untouched, np.zeros(4, dtype=np.int64), 4).tolist() == [0, 0, 0, 0]


# --- binomial


def digit_bytes(scripted) -> tuple[int, int]:
    """Which byte the digit-wise comparison of one trial reads as the digit 0, and which as 1."""
    zero = 0xFF if binomial(scripted(b"\xff"), 1, 0.5, 1)[0] else 0x00
    return zero, 0xFF - zero


@pytest.mark.parametrize("trials", [1, 3, 8])
def test_binomial_of_three_quarters_over_all_byte_pairs_is_the_exact_law(scripted, trials):
    pairs = np.array(list(itertools.product(range(256), repeat=2)), dtype=np.uint8)
    drawn = binomial(scripted(pairs.T.tobytes()), trials, 0.75, 1 << 16)
    exact = [math.comb(trials, k) * 3**k * Fraction(2**16, 4**trials) for k in range(trials + 1)]
    assert np.bincount(drawn, minlength=trials + 1).tolist() == exact


def test_binomial_of_every_8_digit_probability_is_exact(scripted):
    """One trial, all 256 strings of 8 fair digits (each digit a byte of zeros or of ones): exactly k of them succeed at k / 256."""
    strings = np.array(list(itertools.product([0x00, 0xFF], repeat=8)), dtype=np.uint8)
    for k in range(1, 256):
        assert binomial(scripted(strings.T.tobytes()), 1, k / 256, 256).sum() == k


@pytest.mark.parametrize("trials", [64, 65, 127, 128, 200])
def test_binomial_of_few_digits_over_all_of_them_is_exact(scripted, trials):
    """Sixteen by sixteen trials have all strings of four fair digits, the last drawn first: exactly k of them succeed at k / 16."""
    words = -(-trials // 64)
    strings = np.tile(list(itertools.product([0, 1], repeat=4)), (4 * words, 1))
    planes = [np.packbits(strings[:, place], bitorder="little").tobytes() for place in (3, 2, 1, 0)]
    for k in range(1, 16):
        places = Fraction(k, 16).denominator.bit_length() - 1
        drawn = binomial(scripted(b"".join(planes[4 - places :])), trials, k / 16, 1)
        uniform = strings[:, :places] @ (1 << np.arange(places)[::-1])
        succeeded = (2**places - 1 - uniform) < k * 2**places // 16  # a bit of 1 is read as the digit 0
        counted = succeeded[: 64 * (words - 1)].sum() + succeeded[64 * words - (trials - 64 * (words - 1)) :].sum()
        assert drawn.tolist() == [counted]
        assert trials % 64 or counted == trials * k // 16


def test_binomial_counted_and_drawn_have_the_same_law(law_of, monkeypatch):
    """Bin(100, 3/8) by counting 64 trials at once, and digit by digit. False-alarm rate 1e-6 each."""
    for few in (1 << 10, 0):
        monkeypatch.setattr(sampling, "_FEW_BITS", few)
        law_of(binomial(SeededRandom(few), 100, 0.375, 60_000), exact_law(100, 0.375))


@pytest.mark.parametrize("trials", [np.uint8(100), np.uint16(200), np.int8(127), np.uint64(100), 100.0])
@pytest.mark.parametrize("probability", [0.5, 0.3])
def test_binomial_counts_in_whole_numbers_of_any_type(trials, probability):
    drawn, plain = (binomial(SeededRandom(1), some, probability, 50) for some in (trials, int(trials)))
    assert drawn.tolist() == plain.tolist()


def test_many_binomials_are_drawn_in_pieces(monkeypatch, law_of):
    """So memory does not grow with their number. False-alarm rate 1e-6."""
    longest = 0
    draw = SeededRandom.draw_bytes

    def watch(self, count):
        nonlocal longest
        longest = max(longest, count)
        return draw(self, count)

    monkeypatch.setattr(SeededRandom, "draw_bytes", watch)
    monkeypatch.setattr(sampling, "_TOGETHER", 1000)
    law_of(binomial(SeededRandom(1), 100, 0.5, 30_500), exact_law(100, 0.5))
    assert longest == 1000 * 16


def test_fair_binomial_takes_one_number_of_trials_or_one_each(untouched):
    for trials in (np.array([5]), np.array([5000]), np.full((3, 1), 5)):
        with pytest.raises(ArgumentError, match=r"trials.shape"):
            fair_binomial(untouched, trials, 3)


@exactly
@given(data=st.data(), probability=probabilities)
def test_binomial_compares_a_uniform_number_with_the_probability(scripted, data, probability):
    """One trial succeeds if and only if U < p, U spelt out digit by digit, also where U and p differ in the last digit only."""
    places = Fraction(probability).denominator.bit_length()
    digits = digits_near(data, probability, places, 2)
    spelt = digit_bytes(scripted)
    drawn = binomial(scripted(bytes(spelt[digit] for digit in digits)), 1, probability, 1)
    uniform = sum(Fraction(digit, 2**place) for place, digit in enumerate(digits, start=1))
    assert drawn[0] == (uniform < Fraction(probability))


@pytest.mark.parametrize("probability", PROBABILITIES)
@pytest.mark.parametrize("trials", [1, 20, 1000])
def test_binomial_law(law_of, mean_of, trials, probability):
    """False-alarm rate 1e-6 for the law and for the mean."""
    drawn = binomial(SeededRandom(trials), trials, probability, 60_000)
    law = exact_law(trials, probability)
    if trials * min(probability, 1 - probability) * 60_000 >= 100:
        law_of(drawn, law)
    mean_of(drawn, trials * probability, trials * probability * (1 - probability))


def test_binomial_law_of_rare_and_of_sure_events(law_of):
    """False-alarm rate 1e-6 each: at 2^-40, one success in 10^6 trials has probability 9e-7."""
    law_of(binomial(SeededRandom(1), 1 << 14, 2.0**-14, 30_000), exact_law(1 << 14, 2.0**-14))
    for seed, (probability, sure) in enumerate([(2.0**-40, 0), (1 - 2.0**-53, 1000), (1 - 2.0**-40, 1000), (5e-324, 0)]):
        assert (binomial(SeededRandom(seed), 1000, probability, 1000) == sure).all()


def test_binomial_moments_of_many_trials(mean_of, variance_of):
    """Bin(10^6, p): far too many trials for the law, so mean and variance, false-alarm rate 1e-6 each."""
    for probability in (0.5, 0.499, 0.1):
        drawn = binomial(SeededRandom(5), 1_000_000, probability, 400)
        mean_of(drawn, 1e6 * probability, 1e6 * probability * (1 - probability))
        variance_of(drawn, 1e6 * probability, 1e6 * probability * (1 - probability))


def test_binomial_of_many_trials_costs_few_random_bits(counting):
    """A dozen bytes for each digit of many trials, then two bits for each of those that are left, two million together."""

    for trials in (10**6, 10**9, 10**12):
        source = counting(1)
        binomial(source, trials, 0.1, 10)
        assert source.drawn < 600_000


def test_binomial_of_nothing_is_nothing():
    assert binomial(SeededRandom(1), 0, 0.3, 3).tolist() == [0, 0, 0]
    assert binomial(SeededRandom(1), 5, 0.3, 0).shape == (0,)


@pytest.mark.parametrize("probability", [0, 1, -0.1, 1.5, math.nan, math.inf, True, None, "half"])
def test_binomial_refuses_what_is_no_probability(untouched, probability):
    with pytest.raises(ArgumentError, match="probability"):
        binomial(untouched, 10, probability, 3)


# --- round_at_random between 0 and 1


def bernoulli(source, probabilities):
    return round_at_random(source, probabilities, 1).astype(bool)


@pytest.mark.parametrize("numerator", [0, 1, 255, 256, 257, 0x7FFF, 0x8000, 0xABCD, 0xFF00, 0xFFFE, 0xFFFF])
def test_bernoulli_over_all_byte_pairs_is_exact(scripted, numerator):
    """All 2^16 pairs of bytes; the second is asked for only where the first is tied, that is for one first byte and all seconds."""
    first = np.repeat(np.arange(256, dtype=np.uint8), 256)
    source = scripted(first.tobytes() + bytes(range(256)))
    assert bernoulli(source, np.full(1 << 16, numerator / 2**16)).sum() == numerator


@exactly
@given(data=st.data(), probability=st.one_of(probabilities, st.just(0.0)))
def test_bernoulli_compares_a_uniform_number_with_the_probability(scripted, data, probability):
    """True if and only if U < p, U spelt out byte by byte, also where U and p differ in the last of p's 1074 digits only."""
    script = bytes(digits_near(data, probability, 136, 256))
    assert bernoulli(scripted(script), np.array([probability]))[0] == (number_of(script) < Fraction(probability))


@exactly
@given(data=st.data(), values=st.lists(probabilities, min_size=1, max_size=5))
def test_bernoulli_of_many_is_each_one_alone(scripted, data, values):
    """Ties are settled for those that are tied and for nobody else: bytes go to the draws in the order they are asked for."""
    streams = [bytes(digits_near(data, value, 136, 256)) for value in values]
    alone = []
    used = []
    for value, stream in zip(values, streams, strict=True):
        source = scripted(stream)
        alone.append(bool(bernoulli(source, np.array([value]))[0]))
        used.append(source.drawn)
    rounds = [[stream[turn] for stream, spent in zip(streams, used, strict=True) if turn < spent] for turn in range(max(used))]
    source = scripted(bytes(itertools.chain.from_iterable(rounds)))
    assert bernoulli(source, np.array(values)).tolist() == alone
    assert source.drawn == sum(used)


def test_bernoulli_law(law_of, mean_of):
    """False-alarm rate 1e-6 for each probability; all of them stand in one array."""
    values = np.array([0.0, 2.0**-12, 1 / 256, 0.1, 0.25, 1 / 3, 0.5, 0.9, 255 / 256, 1 - 2.0**-12, 1 - 2.0**-53, 5e-324])
    drawn = bernoulli(SeededRandom(4), np.tile(values, (200_000, 1)))
    assert drawn.dtype == np.bool_
    for column, value in zip(drawn.T, values, strict=True):
        if 1e-4 < value < 1 - 1e-4:
            law_of(column.astype(int), np.array([1 - value, value]))
        else:  # would err with probability 2e-11
            assert column.all() if value > 0.5 else not column.any()


# --- rounding at random


@pytest.mark.parametrize(
    ("most", "whole"), [(1, 0), (255, 254), (256, 255), (4_194_303, 4_194_302), (4_194_304, 4_194_303), (10**9, 999_999_999)]
)
@pytest.mark.parametrize("numerator", [0, 1, 255, 256, 0xABCD, 0xFFFF])
def test_rounding_over_all_byte_pairs_is_exact(scripted, most, whole, numerator):
    """Of all 2^16 pairs of bytes, exactly the fraction's share rounds up, below and above the limits of 16- and 32-bit words."""
    source = scripted(np.repeat(np.arange(256, dtype=np.uint8), 256).tobytes() + bytes(range(256)))
    rounded = round_at_random(source, np.full(1 << 16, whole + numerator / 2**16), most)
    assert (rounded.astype(np.int64) - whole).sum() == numerator
    assert set(np.unique(rounded.astype(np.int64) - whole)) <= {0, 1}


@pytest.mark.parametrize("most", [1, 19, 255, 256, 70_000, 4_194_303, 4_194_304])
def test_the_largest_number_stays(most):
    assert round_at_random(SeededRandom(1), np.full(1000, float(most)), most).tolist() == [most] * 1000


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3, 4), (0, 5)])
def test_bernoulli_keeps_the_shape(shape):
    assert bernoulli(SeededRandom(1), np.full(shape, 0.5)).shape == shape


def test_bernoulli_reads_an_array_in_its_own_order():
    values = np.array([[0.0, 1 - 2.0**-53], [1 - 2.0**-53, 0.0], [0.0, 0.0]])
    for layout in (values, np.asfortranarray(values), values[::-1], values.T):
        assert bernoulli(SeededRandom(2), layout).tolist() == (layout > 0.5).tolist()


# --- permutation


def keys(*values: int) -> bytes:
    return np.array(values, dtype=np.uint64).tobytes()


def test_permutation_is_uniform_over_all_24_orders_of_4(law_of):
    """False-alarm rate 1e-6."""
    source = SeededRandom(9)
    number = {order: index for index, order in enumerate(itertools.permutations(range(4)))}
    law_of(np.array([number[tuple(permutation(source, 4).tolist())] for _ in range(24_000)]), np.full(24, 1 / 24))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_every_ranking_of_the_keys_gives_another_order(scripted, size):
    """Distinct keys are ranked in each of size! ways alike, and ranking to order is one to one: uniform, exactly."""
    spread = [k * (2**64 - 1) // max(1, size - 1) for k in range(size)]
    orders = {tuple(permutation(scripted(keys(*ranked)), size).tolist()) for ranked in itertools.permutations(spread)}
    assert orders == set(itertools.permutations(range(size)))


def test_equal_keys_are_drawn_anew(scripted):
    clean = permutation(scripted(keys(5, 9, 1)), 3).tolist()
    for tied in ([7, 7, 7], [1, 2, 1], [2**64 - 1, 0, 2**64 - 1]):
        source = scripted(keys(*tied, *tied, 5, 9, 1))
        assert permutation(source, 3).tolist() == clean
        assert source.drawn == 72


@exactly
@given(seed=st.integers(0, 2**32), size=st.integers(0, 300))
def test_permutation_is_one(seed, size):
    order = permutation(SeededRandom(seed), size)
    assert sorted(order.tolist()) == list(range(size))


def test_samplers_refuse_what_they_have_no_law_for():
    source = SeededRandom(1)
    for trials in (-5, 3.7):
        with pytest.raises(ArgumentError, match="trials"):
            fair_binomial(source, trials, 3)
        with pytest.raises(ArgumentError, match="trials"):
            binomial(source, trials, 0.3, 3)
