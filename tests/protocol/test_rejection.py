"""Bin(n, 1/2) by rejection: every piece of the proof in exact numbers, decisions at their very edges, laws of draws."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from croupier import ArgumentError
from croupier.protocol import SeededRandom
from croupier.protocol import _sampling as rejection
from croupier.protocol import _sampling as sampling
from croupier.protocol._sampling import binomial, fair_binomial

SMALLEST = rejection.MIN_TRIALS // 2
MIDDLES = [SMALLEST, SMALLEST + 1, 575, 576, 577, 1000, 2047]
LARGE = [10**4, 2**20, 10**6 + 3, 10**9, 5 * 10**12, rejection.MAX_TRIALS // 2]


@pytest.fixture(autouse=True)
def rejection_from_its_smallest_on(monkeypatch):
    """However few the draws, which would be quicker to count."""
    monkeypatch.setattr(sampling, "_FEW_BITS_IN_ALL", 0)


def width_of(middle: int) -> int:
    """The cells' width: the smallest whole number above sqrt(middle) / 8."""
    return math.isqrt(middle // 64) + 1


def ratio(distance: int, middle: int) -> Fraction:
    return Fraction(math.comb(2 * middle - 1, middle + distance), math.comb(2 * middle - 1, middle))


def log_ratio(distance: int, middle: int) -> mpmath.mpf:
    """By another route than the module's: factorials, to a hundred digits."""
    with mpmath.workdps(140):
        return (
            mpmath.loggamma(middle)
            + mpmath.loggamma(middle + 1)
            - mpmath.loggamma(middle - distance)
            - mpmath.loggamma(middle + distance + 1)
        )


def share(cell: int) -> Fraction:
    """The chances of a cell, the tail's own included, as counted in the table that proposals are drawn from."""
    counts = np.bincount(rejection._CELLS).tolist()
    return (
        Fraction(counts[cell]) if cell < rejection._TAIL else Fraction(counts[rejection._TAIL], 2 ** (cell - rejection._TAIL + 1))
    )


def chance_of(cell: int) -> int:
    return int(np.searchsorted(rejection._CELLS, cell)) if cell < rejection._TAIL else rejection._CELLS.size - 1


def script_of(middle: int, distance: int, uniform: int) -> bytes:
    """The bytes that propose this distance on the upper side with this uniform number, its first 32 bits first."""
    width = width_of(middle)
    cell, offset = divmod(distance, width)
    place = -(-(offset << 32) // width) + 1  # the second place that gives the offset: never left out
    choice = chance_of(cell) << 18
    words = [place, uniform >> 64, choice]
    script = b"".join(word.to_bytes(4, "little") for word in words)
    if cell >= rejection._TAIL:
        zeros = cell - rejection._TAIL
        script += bytes(8 * (zeros // 64)) + (1 << zeros % 64).to_bytes(8, "little")
    return script + (uniform % 2**64).to_bytes(8, "little")


# --- the envelope


@pytest.mark.parametrize("middle", MIDDLES)
def test_proposing_and_keeping_is_the_exact_law(middle):
    """For every outcome: the probability of keeping is one, and proposed times kept is proportional to C(n, k)."""
    width, joint = width_of(middle), set()
    for distance in range(middle):
        proposed = share(distance // width) / 2**14 / width
        kept = ratio(distance, middle) * rejection._SCALE / share(distance // width)
        assert 0 < kept <= 1
        joint.add(proposed * kept / math.comb(2 * middle - 1, middle + distance))
    assert len(joint) == 1


def test_the_shares_dominate_for_every_number_of_trials():
    """a_c >= A exp(-c^2 / 64) for all cells, the tail's infinitely many by halving."""
    assert len(rejection._CELLS) == 2**14
    for cell in range(200):
        assert mpmath.mpf(share(cell).numerator) / share(cell).denominator >= rejection._SCALE * mpmath.exp(
            -mpmath.mpf(cell**2) / 64
        )
    assert math.exp(-(2 * rejection._TAIL + 1) / 64) < 0.49
    for middle in LARGE:
        width = width_of(middle)
        assert 64 * width**2 > middle
        for cell in (0, 1, 10, 23, 24, 30):
            assert log_ratio(cell * width, middle) <= -mpmath.mpf(cell**2) / 64


@pytest.mark.parametrize("middle", [*MIDDLES, *LARGE, 64 * 10**6 - 1, 64 * 10**6, 64 * (2**22) ** 2 - 1, 64 * (2**22) ** 2 - 64])
def test_all_offsets_of_a_cell_are_alike(scripted, middle):
    """Each has as many places as any other. Of an offset's places only the first can be left out, so the ends tell."""
    width = width_of(middle)
    offsets = range(width) if width < 50 else [0, 1, 2, width // 3, width // 2, width - 2, width - 1]
    for offset in offsets:
        first, end = -(-(offset << 32) // width), -(-(offset + 1 << 32) // width)
        places = np.array([first, first + 1, end - 1], dtype=np.uint32)
        words = np.array([places, np.zeros(3), np.zeros(3)], dtype=np.uint32)
        drawn, kept = rejection._propose(scripted(words.tobytes()), np.array(2 * middle - 1), 3)
        assert (drawn - middle).tolist() == [offset] * 3
        assert kept[1:].all()
        assert end - first - (not kept[0]) == 2**32 // width


# --- what decides


@pytest.mark.parametrize("middle", [1, 2, 3, 10, 33])
def test_the_bracket_holds_the_exact_ratio_of_small_numbers(middle):
    """Up to half of the way; the series goes on for long near the end, where nobody ever comes."""
    for distance in range(middle // 2 + 1):
        for bits in (1, 40, 200):
            low, high = (Fraction(end) for end in rejection._bracket(distance, middle, 1, bits))
            exact = ratio(distance, middle)
            assert low < exact < high
            assert high - low < exact * Fraction(middle * bits + 1000, 2**bits)


@pytest.mark.parametrize("middle", [*MIDDLES, *LARGE])
def test_the_bracket_holds_the_ratio_at_all_distances(middle):
    width = width_of(middle)
    for distance in {0, 1, width, 8 * width, 24 * width - 1, 30 * width, 60 * width, middle // 50}:
        bits = 160
        short, long = rejection._minus_log(distance, middle, bits)
        with mpmath.workdps(140):
            assert short <= -log_ratio(distance, middle) * 2**bits + mpmath.mpf(10) ** -30
            assert -log_ratio(distance, middle) * 2**bits <= long + mpmath.mpf(10) ** -30
        assert long - short < 400


@pytest.mark.parametrize("middle", [*MIDDLES, *LARGE])
def test_floating_point_is_as_near_as_stated(middle):
    """At all distances outside the tail, or at a thousand of them: 3.5e-7 at the very most, and what is near is left undecided."""
    distances = np.unique(np.linspace(0, 24 * width_of(middle) - 1, 1000).astype(np.int64))
    nearly = rejection._nearly(distances, np.array(middle))
    exact = np.array([float(mpmath.exp(log_ratio(distance, middle))) for distance in distances.tolist()])
    assert np.abs(nearly - exact).max() < 3.6e-7 < rejection._SLACK / 5


def edge_cases() -> list[tuple[int, int]]:
    cells = (0, 1, 7, 15, 23, 24, 25, 26, 30, 90)
    return [(m, c * width_of(m) + k) for m in MIDDLES for c in cells for k in (0, width_of(m) - 1) if c * width_of(m) + k < m]


def test_a_proposal_is_kept_if_and_only_if_the_uniform_number_is_below(scripted):
    """At all bits that there are, and one off in the last of 96."""
    for middle, distance in edge_cases():
        cell = distance // width_of(middle)
        edge = math.ceil(2**96 * ratio(distance, middle) * rejection._SCALE / share(cell))  # the first 96-bit number not below
        for uniform in {edge - 2, edge + 1, edge // 2, edge - 2**70, edge + 2**70, edge - 2**88, edge + 2**88, 0, 2**96 - 2**65}:
            if 0 <= uniform < 2**96 and uniform != edge - 1:  # whose next bits would decide
                source = scripted(script_of(middle, distance, uniform))
                drawn, kept = rejection._propose(source, np.array(2 * middle - 1), 1)
                assert drawn[0] == middle + distance
                assert kept[0] == (uniform < edge)


def test_more_bits_are_drawn_for_as_long_as_the_numbers_agree(scripted):
    middle, distance = 577, 30
    exact = ratio(distance, middle) * rejection._SCALE / share(distance // width_of(middle))
    for longer in (160, 224, 1056):
        for step in (-1, 1):
            uniform = math.floor(exact * 2**longer) + step
            head, tail = uniform >> longer - 96, uniform % 2 ** (longer - 96)
            script = script_of(middle, distance, head)
            words = [(tail >> shift) % 2**64 for shift in range(longer - 160, -1, -64)]
            source = scripted(script + b"".join(word.to_bytes(8, "little") for word in words))
            assert rejection._propose(source, np.array(2 * middle - 1), 1)[1][0] == (step < 0)
            assert source.drawn == len(source.script)


def test_a_tail_beyond_the_last_outcome_is_proposed_in_vain(scripted):
    script = bytes(8) + (rejection._CELLS.size - 1 << 18).to_bytes(4, "little") + bytes(8 * 20) + (1).to_bytes(8, "little")
    again = script_of(SMALLEST, 0, 0)[:12]
    source = scripted(script + again)
    assert fair_binomial(source, 2 * SMALLEST, 1).tolist() == [SMALLEST]
    assert source.drawn == len(script + again)


def test_zeros_before_the_first_one_are_geometric(scripted):
    for zeros in (0, 1, 5, 63, 64, 130):
        assert rejection._geometric(scripted((1 << zeros | 1 << 191).to_bytes(24, "little"))) == zeros


@pytest.mark.parametrize("trials", [1024, 1501, 10**6, 10**13, rejection.MAX_TRIALS])
def test_whole_numbers_decide_as_floating_point_does(monkeypatch, trials):
    """With a slack without end everything is decided exactly: the same bytes, the same draws."""
    fast = fair_binomial(SeededRandom(3), trials, 3000)
    settled = []
    exact = rejection._settle
    monkeypatch.setattr(rejection, "_SLACK", math.inf)
    monkeypatch.setattr(rejection, "_settle", lambda *known: settled.append(known) or exact(*known))
    assert fair_binomial(SeededRandom(3), trials, 3000).tolist() == fast.tolist()
    assert len(settled) >= 3000


@pytest.mark.parametrize("choice", range(4))
@pytest.mark.parametrize("trials", [1024, 1025])
def test_the_side_and_the_bit_of_an_even_number(scripted, choice, trials):
    """The bits that choose them are used for nothing else; of an odd number of trials the second bit is ignored."""
    middle = (trials + 1) // 2
    script = bytearray(script_of(middle, 17, 0)[:12])
    script[8] |= choice
    side = middle - 1 - 17 if choice & 1 else middle + 17
    assert fair_binomial(scripted(script), trials, 1)[0] == side + (choice >> 1 if trials % 2 == 0 else 0)


# --- the laws


@pytest.mark.parametrize("trials", [1023, 1024, 1025, 1151, 1152, 4001, 20_000, 10**6 + 1])
def test_law_of_many_trials(law_of, mean_of, variance_of, trials):
    """False-alarm rate 1e-6 each: law, mean, variance."""
    drawn = fair_binomial(SeededRandom(trials), trials, 200_000)
    law_of(drawn, stats.binom.pmf(np.arange(trials + 1), trials, 0.5))
    mean_of(drawn, trials / 2, trials / 4)
    variance_of(drawn, trials / 2, trials / 4)


@pytest.mark.parametrize("trials", [10**9, 10**13 + 1, rejection.MAX_TRIALS])
def test_law_of_very_many_trials(law_of, mean_of, variance_of, trials):
    """False-alarm rate 1e-6 each. In units of the deviation a Gaussian but for 1e-5, which 200 000 draws cannot tell."""
    drawn = fair_binomial(SeededRandom(trials % 97), trials, 200_000)
    scaled = (drawn - trials / 2) / math.sqrt(trials / 4)
    edges = np.linspace(-4, 4, 257)
    law_of(np.searchsorted(edges, scaled), np.diff(stats.norm.cdf(edges), prepend=0, append=1))
    mean_of(scaled, 0, 1)
    variance_of(scaled, 0, 1)
    mean_of(drawn % 2, 0.5, 0.25)


def test_law_of_few_and_many_trials_in_one_array(law_of, mean_of, variance_of):
    """False-alarm rate 1e-6 for each of the numbers of trials, and for all correlations between neighbours."""
    mixed = np.array([0, 1, 65, 1023, 1024, 1025, 2000, 10**6, 10**13 + 1])
    drawn = fair_binomial(SeededRandom(12), np.tile(mixed, 40_000), 40_000 * mixed.size).reshape(-1, mixed.size)
    for column, trials in zip(drawn.T[1:], mixed[1:].tolist(), strict=True):
        mean_of(column, trials / 2, trials / 4)
        if trials < 10**5:
            law_of(column, stats.binom.pmf(np.arange(trials + 1), trials, 0.5))
        if trials > 60:
            variance_of(column, trials / 2, trials / 4)
    assert not drawn[:, 0].any()
    correlations = np.corrcoef(drawn[:, 1:].T)
    assert np.abs(correlations - np.eye(len(correlations))).max() < 5.7 / math.sqrt(40_000)


def test_binomial_of_very_many_trials(mean_of, variance_of):
    """False-alarm rate 1e-6 each."""
    for probability in (0.5, 0.1, 1 / 3):
        drawn = binomial(SeededRandom(8), 10**13, probability, 3000)
        mean_of(drawn, 1e13 * probability, 1e13 * probability * (1 - probability))
        variance_of(drawn, 1e13 * probability, 1e13 * probability * (1 - probability))


def test_the_cost_does_not_grow_with_the_trials(counting):
    for trials in (1024, 1151, 10**6, 10**13, rejection.MAX_TRIALS):
        source = counting(1)
        fair_binomial(source, trials, 10_000)
        assert source.drawn < 18 * 10_000


def test_more_trials_than_there_are_whole_floats_are_refused(untouched):
    for trials in (rejection.MAX_TRIALS + 1, np.array([5, rejection.MAX_TRIALS + 1]), 2**63):
        with pytest.raises(ArgumentError, match="trials"):
            fair_binomial(untouched, trials, 2)
    with pytest.raises(ArgumentError, match="trials"):
        binomial(untouched, 10**30, 0.5, 2)
