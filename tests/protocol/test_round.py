"""One round: randomizer, shuffler and analyzer, alone and together, against the exact law of Algorithms 1 and 2.

Statistical checks have a false-alarm rate of at most 1e-6 each and fixed seeds.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from croupier import ArgumentError, BatchTooSmallError, ScalarSum, SumEstimate, SumPlan, VectorSum, plan_scalar_sum, plan_sum
from croupier.protocol import Analyzer, Counts, Report, SecureRandom, SeededRandom, Shuffler, sums
from croupier.protocol._randomizer import Randomizer
from croupier.protocol.shuffler import ShuffledBatch

exactly = settings(deadline=None, derandomize=True, max_examples=60)
MODES = ["counting", "faithful"]
# Noise so rare that a round has none, but for a probability below 1e-12: what is left must be exact.
SILENT = 2.0**-60
# Rounds of a statistical test: a faithful one takes longer.
ROUNDS = {"counting": 3000, "faithful": 1000}


@functools.cache
def proved(scalar: bool = False, **asked) -> SumPlan:
    asked = {"epsilon": 8.0, "delta": 1e-3, "users": 5, "max_bits": 60} | asked
    return plan_scalar_sum(**asked) if scalar else plan_sum(**({"dim": 3, "rotation": None} | asked))


def law_plan(scalar: bool = False, **changes) -> SumPlan:
    """A plan with the parameters we like: right for tests of a law, not a plan anybody has proved."""
    return dataclasses.replace(proved(scalar), **changes)


def ones(plan: SumPlan, estimate: SumEstimate) -> np.ndarray:
    """The counts that an estimate was made from, by the formula of accounting, section 5."""
    n, g = estimate.users, plan.levels
    counts = (estimate.sum + n * plan.norm) * g / (2 * plan.norm) + plan.noise_probability * plan.noise_bits * n
    assert np.allclose(counts, np.rint(counts), rtol=0, atol=1e-6)
    return np.rint(counts).astype(int)


def count_law(plan: SumPlan, column: list[float]) -> np.ndarray:
    """The exact law of C_j: the users' tents about their real encodings, and Bin(b n, p), convolved."""
    law = stats.binom.pmf(np.arange(plan.noise_bits * len(column) + 1), plan.noise_bits * len(column), plan.noise_probability)
    for x in column:
        a = (x / plan.norm + 1) * plan.levels / 2
        law = np.convolve(law, [max(0.0, 1 - abs(m - a)) for m in range(plan.levels + 1)])
    return law


def repeat(vector_sum: VectorSum, vectors: np.ndarray, rounds: int, seed: int, mode: str = "counting") -> np.ndarray:
    source = SeededRandom(seed)
    return np.array([vector_sum.run(vectors, mode=mode, random=source).sum for _ in range(rounds)])


# --- the law


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("levels", "noise_bits", "probability"),
    [(3, 2, 0.375), (1, 1, 0.5), (4, 9, 0.1), (2, 70, 0.49)],
    ids=["3+2", "1+1", "4+9", "2+70"],
)
def test_counts_have_the_exact_law_in_both_modes(mode, levels, noise_bits, probability, law_of):
    """Both coordinates alone, and the pair of them, which is independent; false-alarm rate 1e-6 for each."""
    plan = law_plan(users=3, dim=2, norm=2.0, levels=levels, noise_bits=noise_bits, noise_probability=probability)
    vectors = np.array([[0.3, -1.1], [-0.9, 0.2], [1.7, 0.05]])
    vector_sum, source = VectorSum(plan), SeededRandom(levels)
    counts = np.array([ones(plan, vector_sum.run(vectors, mode=mode, random=source)) for _ in range(ROUNDS[mode])])
    first, second = (count_law(plan, column) for column in vectors.T.tolist())
    law_of(counts[:, 0], first)
    law_of(counts[:, 1], second)
    law_of(counts[:, 0] * len(second) + counts[:, 1], np.outer(first, second).ravel())


@pytest.mark.parametrize("mode", MODES)
def test_a_planned_round_has_the_exact_law(mode, law_of):
    """The same for a plan as plan_sum makes it; false-alarm rate 1e-6."""
    plan = proved(dim=200)
    vectors = np.outer([1.0, -0.5, 0.25, 0.0, -1.0], np.full(200, 1 / math.sqrt(200)))
    source = SeededRandom(3)
    rounds = 40 if mode == "counting" else 20
    counts = np.array([ones(plan, VectorSum(plan).run(vectors, mode=mode, random=source)) for _ in range(rounds)])
    law_of(counts, count_law(plan, vectors[:, 0].tolist()))


@pytest.mark.parametrize("mode", MODES)
def test_secure_rounds_have_the_same_moments(mode):
    """With the operating system's randomness, which has no seed: off by more than 12 sd would be a miracle (1e-30)."""
    plan = proved(dim=50)
    estimate = VectorSum(plan).run(np.full((5, 50), 0.1), mode=mode)
    assert estimate.private
    assert np.abs(estimate.sum - 0.5).max() < 12 * plan.noise_std


def test_rounded_inputs_are_never_out_of_range():
    plan = law_plan(dim=1, levels=7, noise_bits=1, noise_probability=SILENT)
    rows = [[1.0], [-1.0], [1e300], [-1e300], [5e-324], [math.nextafter(1, 0)], [math.nextafter(-1, 0)]]
    for row in rows:
        for seed in range(50):
            report = VectorSum(plan).randomize(row, SeededRandom(seed))
            assert 0 <= report.bits.sum() <= 7


# --- unbiased, and as noisy as the plan says

NOISY = {"users": 30, "norm": 2.5, "levels": 9, "noise_bits": 3, "noise_probability": 0.4375}


@pytest.mark.parametrize("sign", [1, -1])
def test_variance_at_the_ends_of_the_range(sign, mean_of, variance_of):
    """All users at norm * e_1 or at its opposite: a is whole there, and only the noise bits are left. False alarms 1e-6 each."""
    plan = law_plan(dim=2, **NOISY)
    vectors = np.tile([sign * plan.norm, 0.0], (30, 1))
    estimates = repeat(VectorSum(plan), vectors, 4000, seed=sign + 1)
    unit, p = 2 * plan.norm / plan.levels, plan.noise_probability
    variance = unit**2 * 30 * plan.noise_bits * p * (1 - p)
    mean_of(estimates[:, 0], sign * plan.norm * 30, variance)
    variance_of(estimates[:, 0], sign * plan.norm * 30, variance)
    # the other coordinate is at 0, a half-level of an odd g: the worst case, and the two variances are told apart
    mean_of(estimates[:, 1], 0.0, plan.noise_std**2)
    variance_of(estimates[:, 1], 0.0, plan.noise_std**2)
    with pytest.raises(AssertionError):
        variance_of(estimates[:, 1], 0.0, variance)


@pytest.mark.parametrize("mode", MODES)
def test_variance_at_half_levels_is_the_plans(mode, mean_of, variance_of):
    """The zero vector under an odd g; every coordinate is a sample. False alarms 1e-6 each."""
    plan = law_plan(dim=1000, **NOISY)
    estimates = repeat(VectorSum(plan), np.zeros((30, 1000)), 10, seed=21, mode=mode).ravel()
    mean_of(estimates, 0.0, plan.noise_std**2)
    variance_of(estimates, 0.0, plan.noise_std**2)


def test_noise_of_a_plan_is_the_formulas():
    plan = law_plan(dim=1, **NOISY)
    p = plan.noise_probability
    for users in (1, 17, 30):
        expected = 2 * 2.5 / 9 * math.sqrt(users / 4 + users * 3 * p * (1 - p))
        assert math.isclose(plan.noise_std_for(users), expected, rel_tol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_unbiased_for_any_vectors_within_the_norm(mode, mean_of):
    """False-alarm rate 1e-6 for all coordinates together; the variance used is the largest possible."""
    plan = law_plan(dim=4, **NOISY)
    vectors = np.random.default_rng(1).uniform(-1.2, 1.2, (30, 4))
    estimates = repeat(VectorSum(plan), vectors, ROUNDS[mode] // 4, seed=22, mode=mode)
    mean_of(estimates, vectors.sum(axis=0), plan.noise_std**2)


def test_unbiased_for_the_clipped_vector_where_it_is_longer(mean_of):
    plan = law_plan(dim=2, **NOISY)
    vectors = np.tile([30.0, -40.0], (30, 1))
    estimates = repeat(VectorSum(plan), vectors, 2000, seed=23)
    mean_of(estimates, 30 * plan.norm * np.array([0.6, -0.8]), plan.noise_std**2)


@pytest.mark.parametrize("mode", MODES)
def test_unbiased_for_those_that_arrived(mode, mean_of, variance_of):
    """honest = 0.5 and 18 of 30 users arrive: their sum, and the noise of 18. False alarms 1e-6 each."""
    plan = law_plan(dim=500, honest=0.5, **NOISY)
    estimates = repeat(VectorSum(plan), np.zeros((18, 500)), 20, seed=24, mode=mode).ravel()
    mean_of(estimates, 0.0, plan.noise_std_for(18) ** 2)
    variance_of(estimates, 0.0, plan.noise_std_for(18) ** 2)
    vectors = np.tile([0.05, -0.1], (18, 250))
    mean_of(repeat(VectorSum(plan), vectors, 100, seed=25), vectors.sum(axis=0), plan.noise_std_for(18) ** 2)
    assert VectorSum(plan).run(vectors, mode=mode).noise_std == plan.noise_std_for(18)


@pytest.mark.parametrize("mode", MODES)
def test_more_users_than_planned_are_summed_too(mode):
    plan = law_plan(dim=1, levels=2, noise_bits=3, noise_probability=SILENT)
    estimate = VectorSum(plan).run(np.zeros((12, 1)), mode=mode, random=SeededRandom(1))
    assert (estimate.users, estimate.sum.tolist()) == (12, [0.0])


@exactly
@given(data=st.data(), mode=st.sampled_from(MODES), norm=st.sampled_from([1.0, 0.25, 2.0**40, 2.0**-40]))
def test_without_noise_and_on_whole_levels_the_sum_is_exact(data, mode, norm):
    """Sign, scale, order of coordinates and of users: with 64 levels and hardly any noise, nothing is left to chance."""
    dim, users = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    plan = law_plan(users=users, dim=dim, norm=norm, levels=64, noise_bits=3, noise_probability=SILENT)
    steps = data.draw(st.lists(st.lists(st.integers(-15, 15), min_size=dim, max_size=dim), min_size=users, max_size=users))
    vectors = np.array(steps) * (norm / 32)
    estimate = VectorSum(plan).run(vectors, mode=mode, random=SeededRandom(data.draw(st.integers(0, 9))))
    assert estimate.sum.tolist() == vectors.sum(axis=0).tolist()
    assert estimate.mean.tolist() == (vectors.sum(axis=0) / users).tolist()
    assert estimate.users == users


@pytest.mark.parametrize("users", [1, 2, 7, 8, 9, 50])
def test_users_are_worked_on_in_pieces_and_none_is_lost(monkeypatch, users):
    monkeypatch.setattr(sums, "CHUNK_ENTRIES", 8)
    plan = law_plan(users=users, dim=2, levels=64, noise_bits=3, noise_probability=SILENT)
    vectors = np.arange(2 * users).reshape(users, 2) % 31 / 64
    done = []
    estimate = VectorSum(plan).run(vectors, random=SeededRandom(1), progress=done.append)
    whole_levels = np.abs(estimate.sum - vectors.sum(axis=0))
    assert whole_levels.max() <= users / 32  # a level at most for each user, from rounding
    assert done == [*range(4, users, 4), users]


def test_progress_of_a_faithful_round():
    done = []
    VectorSum(proved()).run(np.zeros((5, 3)), mode="faithful", random=SeededRandom(1), progress=done.append)
    assert done == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", MODES)
def test_a_seed_gives_one_result(mode):
    run = functools.partial(VectorSum(proved(dim=50)).run, np.full((5, 50), 0.1), mode=mode)
    assert run(random=SeededRandom(1)).sum.tolist() == run(random=SeededRandom(1)).sum.tolist()
    assert run(random=SeededRandom(1)).sum.tolist() != run(random=SeededRandom(2)).sum.tolist()
    assert run().sum.tolist() != run().sum.tolist()  # equal in 50 coordinates: 1e-50


@pytest.mark.parametrize(
    "same",
    [
        lambda v: v.tolist(),
        lambda v: [tuple(row) for row in v],
        np.asfortranarray,
        lambda v: v.astype(object),
        lambda v: v.astype(np.float32),
        lambda v: np.repeat(v, 2, axis=1)[:, ::2],
        lambda v: v.astype(">f8"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_the_same_numbers_in_another_container_give_the_same_result(mode, same):
    vectors = np.arange(15).reshape(5, 3) / 64
    run = functools.partial(VectorSum(proved()).run, mode=mode)
    assert run(same(vectors), random=SeededRandom(1)).sum.tolist() == run(vectors, random=SeededRandom(1)).sum.tolist()


def test_input_is_left_alone():
    vectors = np.full((5, 3), 7.0)
    vectors.setflags(write=False)
    for mode in MODES:
        VectorSum(proved()).run(vectors, mode=mode, random=SeededRandom(1))
    assert (vectors == 7).all()


# --- randomizer


def test_report_has_the_plans_messages():
    plan = proved()
    report = VectorSum(plan).randomize([0.1, -0.2, 0.3])
    assert report.bits.shape == (3, plan.bits_per_coordinate)
    assert report.bits.dtype == np.bool_
    assert report.private
    messages = list(report.messages())
    assert len(messages) == plan.bits_per_user
    assert [sum(bit for label, bit in messages if label == j) for j in range(3)] == report.bits.sum(axis=1).tolist()


def test_randomizer_law(law_of):
    """One user's ones under each label: tent and Bin(b, p), false-alarm rate 1e-6 for each coordinate."""
    plan = law_plan(users=1, dim=3, levels=4, noise_bits=5, noise_probability=0.3)
    vector, source = [0.3, -0.6, 0.1], SeededRandom(6)
    drawn = np.array([Randomizer(plan).randomize(vector, source).bits.sum(axis=1) for _ in range(4000)])
    for column, x in zip(drawn.T, vector, strict=True):
        law_of(column, count_law(plan, [x]))


@pytest.mark.parametrize(
    "vector", [[1, 2], [1, 2, 3, 4], [[1, 2, 3]], 1.0, [], None, "abc", [1j, 0, 0], ["a", "b", "c"], [[1], [2], [3]]]
)
def test_randomizer_refuses_what_is_no_vector_of_the_plan(vector, untouched):
    with pytest.raises(ArgumentError, match=r"^vector"):
        VectorSum(proved()).randomize(vector, untouched)


def test_a_vector_in_one_piece_is_counted_as_ever():
    plan = plan_sum(epsilon=1.0, delta=1e-6, users=200, dim=40, rotation=None)
    vector = np.random.default_rng(1).standard_normal(40).astype(np.float32)
    (ones,) = Randomizer(plan).counts_in_pieces(vector, SeededRandom(3))
    assert ones.tolist() == Randomizer(plan).counts(vector[np.newaxis], SeededRandom(3)).ones.tolist()


def test_a_vector_in_pieces_has_the_exact_law(law_of):
    """One user's ones in two pieces: tent and Bin(b, p), false-alarm rate 1e-6 for each coordinate."""
    plan = law_plan(users=1, dim=3, levels=4, noise_bits=5, noise_probability=0.3)
    vector, source = [0.3, -0.6, 0.1], SeededRandom(6)
    drawn = np.array([np.concatenate([*Randomizer(plan).counts_in_pieces(vector, source, 2)]) for _ in range(1500)])
    for column, x in zip(drawn.T, vector, strict=True):
        law_of(column, count_law(plan, [x]))


def test_randomizer_refuses_ragged_vectors_by_name(untouched):
    with pytest.raises(ArgumentError, match=r"^vector"):
        VectorSum(proved()).randomize([1, [2, 3], 4], untouched)


def test_randomizer_states_the_shape_of_one_vector(untouched):
    with pytest.raises(ArgumentError) as refused:
        VectorSum(proved()).randomize([1, 2], untouched)
    assert "vector.shape = (2,)" in str(refused.value)
    assert "(3,)" in str(refused.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_is_sent_of_a_vector_with_missing_values(bad, untouched):
    with pytest.raises(ArgumentError, match="finite"):
        VectorSum(proved()).randomize([0, bad, 0], untouched)


# --- shuffler

BITS = 20


def some_reports(plan: SumPlan, count: int, seed: int = 1) -> list[Report]:
    source = SeededRandom(seed)
    return [VectorSum(plan).randomize(np.full(plan.dim, 0.1), source) for _ in range(count)]


def test_shuffling_keeps_the_bits_of_every_label():
    plan = proved()
    reports = some_reports(plan, 5)
    batch = VectorSum(plan).shuffle(reports, SeededRandom(2))
    assert batch.bits.shape == (3, 5 * plan.bits_per_coordinate)
    assert batch.bits.sum(axis=1).tolist() == sum(report.bits.sum(axis=1) for report in reports).tolist()


def test_shuffled_order_is_uniform_and_independent_between_labels(law_of):
    """One marked bit under each of two labels: its places are uniform over all pairs of places. False-alarm rate 1e-6."""
    plan = law_plan(users=3, dim=2, levels=1, noise_bits=1)
    marked = Report(np.array([[True, False], [False, True]]), True)
    blanks = [Report(np.zeros((2, 2), dtype=bool), True) for _ in range(2)]
    source = SeededRandom(3)
    places = [Shuffler(plan).shuffle([marked, *blanks], source).bits.argmax(axis=1) for _ in range(6000)]
    law_of(np.array(places) @ [6, 1], np.full(36, 1 / 36))


@pytest.mark.parametrize(("arrived", "honest"), [(0, 1.0), (4, 1.0), (2, 0.5), (1, 0.3)])
def test_shuffler_withholds_a_batch_that_is_too_small(arrived, honest, untouched):
    plan = law_plan(honest=honest)
    reports = some_reports(plan, arrived)
    with pytest.raises(BatchTooSmallError, match=f"users = {arrived} arrived.*needs (at least|all) {plan.honest_users} "):
        VectorSum(plan).shuffle(reports, untouched)


@pytest.mark.parametrize("honest", [1.0, 0.5, 0.3])
def test_shuffler_releases_the_smallest_crowd_that_is_enough(honest):
    plan = law_plan(honest=honest)
    assert plan.honest_users == math.ceil(5 * honest)
    batch = VectorSum(plan).shuffle(some_reports(plan, plan.honest_users))
    assert VectorSum(plan).analyze(batch).users == plan.honest_users


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 1), bool),
        ((2, BITS), bool),
        ((BITS,), bool),
        ((BITS, 3), bool),
        ((1, 3, BITS), bool),
        ((3, BITS), np.uint8),
        ((3, BITS), np.int64),
        ((3, BITS), np.float64),
    ],
)
def test_shuffler_refuses_malformed_reports(shape, dtype, untouched):
    plan = law_plan(levels=BITS - 9, noise_bits=9)
    reports = some_reports(plan, 6)
    reports[3] = Report(np.ones(shape, dtype=dtype), True)
    with pytest.raises(ArgumentError, match=r"reports\[3\]"):
        VectorSum(plan).shuffle(reports, untouched)


# --- analyzer


def test_analyzer_is_the_papers_formula():
    """(2 Delta / g)(C - p b n') - n' Delta by hand."""
    plan = law_plan(dim=2, norm=3.0, levels=4, noise_bits=6, noise_probability=0.25, users=10)
    estimate = Analyzer(plan).analyze(Counts(np.array([35, 0]), 10, True))
    assert np.allclose(estimate.sum, [6 / 4 * (35 - 15) - 30, 6 / 4 * (0 - 15) - 30], rtol=1e-14)
    assert estimate.users == 10
    assert estimate.guarantee is None  # parameters made up for the formula, which no proof backs


def test_batch_and_counts_say_the_same():
    plan = proved()
    batch = VectorSum(plan).shuffle(some_reports(plan, 5))
    counts = batch.counts(plan)
    assert counts.users == 5
    assert counts.ones.tolist() == batch.bits.sum(axis=1).tolist()
    assert VectorSum(plan).analyze(counts).sum.tolist() == VectorSum(plan).analyze(batch).sum.tolist()


def test_counts_of_two_groups_add_up():
    total = Counts(np.array([1, 2]), 3, True) + Counts(np.array([10, 20]), 4, True)
    assert (total.ones.tolist(), total.users, total.private) == ([11, 22], 7, True)


def test_analyzer_refuses_a_batch_of_another_plan():
    plan = proved()
    batch = VectorSum(plan).shuffle(some_reports(plan, 5))
    for other in (law_plan(levels=plan.levels + 1), law_plan(dim=2)):
        with pytest.raises(ArgumentError, match=r"batch\.bits\.shape"):
            VectorSum(other).analyze(batch)


def test_analyzer_refuses_counts_of_another_dimension():
    with pytest.raises(ArgumentError):
        Analyzer(proved(dim=3)).analyze(Counts(np.zeros(7, dtype=np.int64), 5, True))


@pytest.mark.parametrize("arrived", [0, 1, 4])
def test_no_guarantee_is_given_for_too_small_a_crowd(arrived):
    """Whoever made the batch: with fewer users than the proof counts on, the plan's guarantee is not true."""
    plan = proved()
    batch = ShuffledBatch(np.zeros((3, arrived * plan.bits_per_coordinate), dtype=bool), True)
    for released in (batch, Counts(np.zeros(3, dtype=np.int64), arrived, True)):
        try:
            estimate = VectorSum(plan).analyze(released)
        except (ArgumentError, BatchTooSmallError):
            continue
        assert estimate.guarantee is None


def test_estimate_survives_json_and_prints_its_promise():
    estimate = VectorSum(proved()).run(np.full((5, 3), 0.1))
    again = SumEstimate.from_json(estimate.to_json())
    assert again.sum.tolist() == estimate.sum.tolist()
    assert (again.users, again.noise_std, again.guarantee) == (5, estimate.noise_std, proved().guarantee)
    assert again.private
    assert again.mean.tolist() == (estimate.sum / 5).tolist()
    assert again.mean_noise_std == estimate.noise_std / 5
    assert "5 users" in str(again)
    assert "Theorem B" in str(again)


# --- seeded results keep their mark


def seeded_results() -> dict[str, SumEstimate]:
    plan, scalar = proved(), proved(scalar=True)
    vectors, values = np.full((5, 3), 0.1), [0.5] * 5
    secure, seeded = SecureRandom(), SeededRandom(1)
    vector_sum, scalar_sum = VectorSum(plan), ScalarSum(scalar)

    def shuffled(protocol, record, sources, shuffler):
        return protocol.analyze(protocol.shuffle([protocol.randomize(record, source) for source in sources], shuffler))

    one_seeded = [secure, secure, secure, seeded, secure]
    counts = [Randomizer(plan).counts(vectors[:2], secure), Randomizer(plan).counts(vectors[2:], seeded)]
    return {
        "counting": vector_sum.run(vectors, random=seeded),
        "faithful": vector_sum.run(vectors, mode="faithful", random=seeded),
        "one seeded user": shuffled(vector_sum, vectors[0], one_seeded, secure),
        "seeded shuffler": shuffled(vector_sum, vectors[0], [secure] * 5, seeded),
        "counts, seeded second": vector_sum.analyze(counts[0] + counts[1]),
        "counts, seeded first": vector_sum.analyze(counts[1] + counts[0]),
        "scalar": scalar_sum.run(values, random=seeded),
        "scalar, faithful": scalar_sum.run(values, mode="faithful", random=seeded),
        "scalar, one seeded user": shuffled(scalar_sum, 0.5, one_seeded, secure),
        "scalar, seeded shuffler": shuffled(scalar_sum, 0.5, [secure] * 5, seeded),
    }


def test_a_result_with_any_seeded_part_has_no_guarantee():
    for name, estimate in seeded_results().items():
        for form in (estimate, SumEstimate.from_json(estimate.to_json()), pickle.loads(pickle.dumps(estimate))):
            assert not form.private, name
            assert form.guarantee is None, name
            assert "NOT PRIVATE" in str(form), name
            assert json.loads(form.to_json())["guarantee"] is None, name


@pytest.mark.parametrize("mode", MODES)
def test_secure_results_have_the_plans_guarantee(mode):
    assert VectorSum(proved()).run(np.zeros((5, 3)), mode=mode).guarantee == proved().guarantee
    assert ScalarSum(proved(scalar=True)).run([0.5] * 5, mode=mode).guarantee == proved(scalar=True).guarantee


# --- refusals come before the first random bit

BAD_VECTORS = {
    "too few": (np.zeros((4, 3)), BatchTooSmallError),
    "empty": (np.zeros((0, 3)), ArgumentError),
    "empty list": ([], ArgumentError),
    "wrong dimension": (np.zeros((5, 2)), ArgumentError),
    "one vector": (np.zeros(3), ArgumentError),
    "three axes": (np.zeros((5, 3, 1)), ArgumentError),
    "a number": (1.0, ArgumentError),
    "0-d": (np.array(1.0), ArgumentError),
    "nothing": (None, ArgumentError),
    "text": ([["a", "b", "c"]] * 5, ArgumentError),
    "complex": (np.zeros((5, 3), dtype=complex), ArgumentError),
    "ragged": ([[1, 2, 3], [1, 2]], ArgumentError),
    "objects": (np.full((5, 3), object()), ArgumentError),
    "None inside": (np.full((5, 3), None), ArgumentError),
    "NaN last": (np.vstack([np.zeros((4, 3)), [0, 0, math.nan]]), ArgumentError),
    "infinite last": (np.vstack([np.zeros((4, 3)), [0, 0, -math.inf]]), ArgumentError),
    "NaN in half precision": (np.full((5, 3), math.nan, dtype=np.float16), ArgumentError),
    "dates": (np.zeros((5, 3), dtype="M8[D]"), ArgumentError),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", BAD_VECTORS)
def test_a_round_is_refused_before_anything_is_drawn(case, mode, untouched):
    vectors, error = BAD_VECTORS[case]
    with pytest.raises(error):
        VectorSum(proved()).run(vectors, mode=mode, random=untouched)


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="long double is no longer than double here")
@pytest.mark.parametrize("mode", MODES)
def test_long_doubles_beyond_all_floats_are_refused_or_clipped(mode):
    """They are finite, but not as float64; a user must never send anything but 0..g ones and noise."""
    plan = law_plan(dim=1, levels=4, noise_bits=3, noise_probability=SILENT)
    vectors = np.array([["1e4000"]] * 5).astype(np.longdouble)
    try:
        estimate = VectorSum(plan).run(vectors, mode=mode, random=SeededRandom(1))
    except ArgumentError:
        return
    assert estimate.sum.tolist() == [5.0]


@pytest.mark.parametrize("mode", ["Counting", "", None, 1, "fast"])
def test_unknown_modes_are_refused(mode, untouched):
    with pytest.raises(ArgumentError, match="mode"):
        VectorSum(proved()).run(np.zeros((5, 3)), mode=mode, random=untouched)


@pytest.mark.parametrize("source", [42, 0, "secure", np.random.default_rng(1), SecureRandom])
def test_what_is_no_source_is_refused_by_name(source):
    """0 most of all: whoever passes random=0 wants a seed, and would get none without a word."""
    vector_sum = VectorSum(proved())
    for call in (
        lambda: vector_sum.run(np.zeros((5, 3)), random=source),
        lambda: vector_sum.run(np.zeros((5, 3)), mode="faithful", random=source),
        lambda: vector_sum.randomize([0, 0, 0], source),
        lambda: vector_sum.shuffle(some_reports(proved(), 5), source),
    ):
        with pytest.raises(ArgumentError, match="random"):
            call()


def test_a_faithful_round_that_would_fill_the_memory_is_refused(monkeypatch, untouched):
    vector_sum, messages = VectorSum(proved()), 5 * proved().bits_per_user
    monkeypatch.setattr(sums, "_MAX_MESSAGES", messages - 1)
    with pytest.raises(ArgumentError, match=f"counting.*{messages} messages"):
        vector_sum.run(np.zeros((5, 3)), mode="faithful", random=untouched)
    monkeypatch.setattr(sums, "_MAX_MESSAGES", messages)
    vector_sum.run(np.zeros((5, 3)), mode="faithful", random=SeededRandom(1))


@pytest.mark.parametrize("plan", [None, "plan", {"levels": 3}])
def test_protocols_need_a_plan(plan):
    for protocol in (VectorSum, ScalarSum):
        with pytest.raises(ArgumentError, match="plan"):
            protocol(plan)


# --- in pieces


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cuts", [[], [2], [0, 0, 3, 5], [1, 2, 3, 4]])
def test_vectors_may_come_in_pieces_of_any_size(mode, cuts):
    """On whole levels and without noise: the same sum, however the users are cut into pieces, empty ones included."""
    plan = law_plan(levels=64, noise_bits=3, noise_probability=SILENT)
    vectors = np.arange(15).reshape(5, 3) / 32
    done = []
    pieces = iter(np.split(vectors, cuts))
    estimate = VectorSum(plan).run_chunks(pieces, users=5, mode=mode, random=SeededRandom(1), progress=done.append)
    assert estimate.sum.tolist() == vectors.sum(axis=0).tolist()
    assert (estimate.users, estimate.private, done[-1]) == (5, False, 5)


@pytest.mark.parametrize("mode", MODES)
def test_one_piece_is_the_whole(mode):
    run, run_chunks = VectorSum(proved()).run, VectorSum(proved()).run_chunks
    vectors = np.full((5, 3), 0.1)
    whole = run(vectors, mode=mode, random=SeededRandom(1))
    assert run_chunks([vectors], users=5, mode=mode, random=SeededRandom(1)).sum.tolist() == whole.sum.tolist()
    assert run_chunks([vectors], users=5, mode=mode).guarantee == proved().guarantee


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("stated", [5, 7])
def test_a_wrong_number_of_users_releases_nothing(mode, stated):
    with pytest.raises(ArgumentError, match="users"):
        VectorSum(proved()).run_chunks([np.zeros((3, 3))] * 2, users=stated, mode=mode)


@pytest.mark.parametrize(("users", "changes"), [(4, {}), (5, {"mode": "fast"}), (5, {"random": 3})])
def test_a_round_in_pieces_is_refused_before_the_first_piece(users, changes, untouched):
    def pieces():
        pytest.fail("a piece was asked for")
        yield np.zeros((users, 3))

    with pytest.raises((ArgumentError, BatchTooSmallError)):
        VectorSum(proved()).run_chunks(pieces(), users=users, **({"random": untouched} | changes))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [[[0, 0, math.nan]], [[0, 0]], [0, 0, 0], [["a", "b", "c"]], None])
def test_a_bad_piece_ends_the_round(mode, bad, untouched):
    with pytest.raises(ArgumentError, match="vectors"):
        VectorSum(proved()).run_chunks([bad, np.zeros((4, 3))], users=5, mode=mode, random=untouched)


# --- on separate machines


def test_three_parts_that_share_nothing_but_the_plan(mean_of):
    """The plan and the estimate travel as JSON, reports and batches as values. False-alarm rate 1e-6."""
    letter = plan_sum(epsilon=8.0, delta=1e-3, users=40, dim=100, norm=2.0, max_bits=80, rotation=None).to_json()
    vectors = np.random.default_rng(2).uniform(-0.15, 0.15, (40, 100))

    def device(vector):
        return pickle.dumps(VectorSum(SumPlan.from_json(letter)).randomize(vector, SeededRandom(int(abs(vector[0]) * 1e12))))

    reports = [pickle.loads(sent) for sent in map(device, vectors)]
    batch = pickle.loads(pickle.dumps(VectorSum(SumPlan.from_json(letter)).shuffle(reports, SeededRandom(99))))
    plan = SumPlan.from_json(letter)
    estimate = SumEstimate.from_json(Analyzer(plan).analyze(batch).to_json())
    mean_of(((estimate.sum - vectors.sum(axis=0)) / plan.noise_std), 0.0, 1.0)
    assert np.abs(estimate.sum - vectors.sum(axis=0)).max() < 7 * plan.noise_std
    assert (estimate.users, estimate.private) == (40, False)


def test_secure_parts_on_separate_machines_keep_the_guarantee():
    letter = proved().to_json()
    parts = [VectorSum(SumPlan.from_json(letter)) for _ in range(7)]
    batch = parts[5].shuffle([part.randomize([0.1, 0.2, 0.3]) for part in parts[:5]])
    estimate = parts[6].analyze(batch)
    assert estimate.guarantee == proved().guarantee
    assert np.abs(estimate.sum - [0.5, 1.0, 1.5]).max() < 12 * proved().noise_std


# --- scalar sum

INTERVAL = {"users": 20, "norm": 5.0, "levels": 7, "noise_bits": 10, "noise_probability": 0.375}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lower", [0.0, -3.0, 100.0])
def test_scalar_sum_is_unbiased_on_its_interval(mode, lower, mean_of):
    """Algorithm 1 on [lower, lower + 10]; false-alarm rate 1e-6."""
    plan = law_plan(scalar=True, **INTERVAL)
    values = lower + np.linspace(0, 10, 20)
    source, scalar_sum = SeededRandom(31), ScalarSum(plan, lower=lower)
    estimates = [scalar_sum.run(values, mode=mode, random=source).sum for _ in range(ROUNDS[mode] // 8)]
    mean_of(estimates, values.sum(), plan.noise_std**2)


@pytest.mark.parametrize(("value", "kept"), [(7.0, 7.0), (17.0, 17.0), (6.0, 7.0), (-1e300, 7.0), (18.0, 17.0), (10**30, 17.0)])
def test_scalar_sum_at_and_beyond_the_ends(value, kept, mean_of, variance_of):
    """Clipped to the interval, and no rounding noise at its ends; false-alarm rate 1e-6 each."""
    plan = law_plan(scalar=True, **INTERVAL)
    source, scalar_sum = SeededRandom(32), ScalarSum(plan, lower=7.0)
    estimates = np.array([scalar_sum.run([value] * 20, random=source).sum for _ in range(1000)])
    variance = (10 / 7) ** 2 * 20 * 10 * 0.375 * 0.625
    mean_of(estimates, 20 * kept, variance)
    variance_of(estimates, 20 * kept, variance)


@pytest.mark.parametrize("mode", MODES)
def test_scalar_sum_is_that_of_the_numbers_that_arrived(mode):
    """honest = 0.5, and 3 of 4 arrive: on whole levels and without noise, exactly."""
    plan = law_plan(scalar=True, users=4, honest=0.5, norm=8.0, levels=16, noise_bits=3, noise_probability=SILENT)
    estimate = ScalarSum(plan, lower=-2.0).run([3.0, 0.0, 7.0], mode=mode)
    assert (estimate.sum, estimate.users, estimate.noise_std) == (10.0, 3, plan.noise_std_for(3))


def test_scalar_law_is_that_of_algorithm_1(law_of):
    """floor(x g / Delta), Ber(rest), Bin(b, p) on [0, Delta], without a detour through vectors. False-alarm rate 1e-6."""
    plan = law_plan(scalar=True, users=2, norm=5.0, levels=3, noise_bits=2, noise_probability=0.375)
    source, scalar_sum, values = SeededRandom(33), ScalarSum(plan), [1.0, 8.5]
    law = stats.binom.pmf(np.arange(5), 4, 0.375)
    for x in values:
        bar = math.floor(x * 3 / 10)
        rest = x * 3 / 10 - bar
        law = np.convolve(law, np.eye(4)[bar] * (1 - rest) + np.eye(4)[bar + 1] * rest)
    estimates = np.array([scalar_sum.run(values, random=source).sum for _ in range(4000)])
    law_of(np.rint(estimates * 3 / 10 + 0.375 * 4).astype(int), law)


def test_scalar_analyzer_is_the_papers_formula():
    """(Delta / g)(C - p b n') + n' lower by hand."""
    plan = law_plan(scalar=True, users=10, norm=3.0, levels=4, noise_bits=6, noise_probability=0.25)
    estimate = ScalarSum(plan, lower=2.0).analyze(Counts(np.array([35]), 10, True))
    assert math.isclose(estimate.sum, 6 / 4 * (35 - 15) + 20, rel_tol=1e-14)
    assert np.ndim(estimate.sum) == 0
    assert "a number" in str(estimate)
    assert SumEstimate.from_json(estimate.to_json()).sum == estimate.sum


def test_scalar_parts_give_the_same_as_the_whole():
    plan = law_plan(scalar=True, users=4, norm=8.0, levels=16, noise_bits=3, noise_probability=SILENT)
    scalar_sum, values = ScalarSum(plan, lower=-2.0), [-2.0, 0.0, 5.0, 14.0]
    batch = scalar_sum.shuffle([scalar_sum.randomize(value) for value in values])
    assert scalar_sum.analyze(batch).sum == 17.0
    for mode in MODES:
        assert scalar_sum.run(values, mode=mode).sum == 17.0


@pytest.mark.parametrize(
    "values",
    [[], [[1.0]] * 5, 1.0, None, ["1"] * 5, [1j] * 5, [1.0, math.nan, 1, 1, 1], [math.inf] * 5, np.zeros((5, 1)), np.zeros((1, 5))],
)
def test_scalar_sum_refuses_what_is_no_list_of_numbers(values, untouched):
    with pytest.raises(ArgumentError):
        ScalarSum(proved(scalar=True)).run(values, random=untouched)


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1", [1.0], 1j])
def test_scalar_randomizer_refuses_what_is_no_number(value, untouched):
    with pytest.raises(ArgumentError, match=r"^value"):
        ScalarSum(proved(scalar=True)).randomize(value, untouched)


def test_scalar_sum_refuses_ragged_lists_by_name(untouched):
    with pytest.raises(ArgumentError, match=r"^values"):
        ScalarSum(proved(scalar=True)).run([1.0, [2.0, 3.0], 1, 1, 1], random=untouched)


def test_a_finite_number_far_outside_the_interval_is_clipped_like_any_other():
    plan = law_plan(scalar=True, norm=1.0, levels=4, noise_bits=3, noise_probability=SILENT)
    estimate = ScalarSum(plan, lower=-1e99).run([1.7e308] * 5, random=SeededRandom(1))
    assert math.isclose(estimate.mean, -1e99, rel_tol=1e-12)


def test_scalar_sum_needs_a_scalar_plan_and_a_lower_end():
    with pytest.raises(ArgumentError, match="scalar"):
        ScalarSum(proved(dim=1))
    for lower in (math.nan, math.inf, None, "low"):
        with pytest.raises(ArgumentError, match="lower"):
            ScalarSum(proved(scalar=True), lower=lower)


def test_scalar_sum_withholds_too_small_a_crowd(untouched):
    with pytest.raises(BatchTooSmallError):
        ScalarSum(proved(scalar=True)).run([0.5] * 4, random=untouched)


# --- memory


def test_memory_of_counting_mode_is_bounded():
    """Beyond the input of 8 MB: under 7 MB for 20 000 x 50, however many bits the users would send."""
    vectors = np.random.default_rng(3).uniform(-0.1, 0.1, (20_000, 50))
    few = law_plan(users=20_000, dim=50, levels=2, noise_bits=2)
    many = law_plan(users=20_000, dim=50, levels=1_000_000, noise_bits=1000)
    more_users = np.tile(vectors, (2, 1))
    VectorSum(few).run(vectors, random=SeededRandom(1))  # what is allocated once and for all
    peaks = {}
    for name, (plan, data) in {"few": (few, vectors), "many": (many, vectors), "users": (few, more_users)}.items():
        tracemalloc.start()
        VectorSum(plan).run(data, random=SeededRandom(1))
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert max(peaks.values()) < 7e6, peaks
    assert peaks["users"] < 1.1 * peaks["few"] + 1e5, peaks
    # one array of random words of fixed size comes on top where there are many bits; a byte per bit would be 50 MB a user
    assert peaks["many"] < peaks["few"] + 4e6, peaks


# --- refusals


def test_one_report_twice_is_refused(untouched):
    report = VectorSum(proved()).randomize([0, 0, 0], SeededRandom(1))
    with pytest.raises(ArgumentError, match="more than once"):
        VectorSum(proved()).shuffle([report] * 5, untouched)


def test_what_is_no_report_is_refused(untouched):
    reports = some_reports(proved(), 4)
    for bad in (3, None, Report(reports[0].bits.astype(np.int8), True)):
        with pytest.raises(ArgumentError, match=r"reports\[4\]"):
            VectorSum(proved()).shuffle([*reports, bad], untouched)


def test_bits_that_are_no_bits_are_refused():
    plan = proved()
    for bits in (np.zeros(5 * plan.bits_per_user, dtype=bool), np.zeros((3, 5 * plan.bits_per_coordinate), dtype=np.int8)):
        with pytest.raises(ArgumentError, match=r"batch\.bits\.shape"):
            VectorSum(plan).analyze(ShuffledBatch(bits, True))


def test_counts_of_different_plans_do_not_add():
    with pytest.raises(ArgumentError, match="other"):
        Counts(np.zeros(3, dtype=np.int64), 1, True) + Counts(np.zeros(1, dtype=np.int64), 1, True)


def test_counting_users_checks_them_too(untouched):
    with pytest.raises(ArgumentError, match=r"vectors\[1\] = nan"):
        Randomizer(proved()).counts(np.array([[0, 0, 0], [0, math.nan, 0]]), untouched)


def test_a_plan_with_more_noise_than_can_be_drawn_is_refused_at_once(untouched):
    plan = plan_sum(epsilon=0.01, delta=1e-6, users=10_000, dim=10_000, calibration="paper")
    with pytest.raises(ArgumentError, match="noise bits in a coordinate"):
        VectorSum(plan).check_round(10_000)
    with pytest.raises(ArgumentError, match="noise bits in a coordinate"):
        VectorSum(plan).run_chunks([], users=10_000, random=untouched)


def test_the_papers_noise_can_be_drawn(variance_of):
    """8e11 noise bits in each of 100 coordinates. False-alarm rate 1e-6."""
    plan = plan_sum(epsilon=1, delta=1e-6, users=10_000, dim=100, calibration="paper")
    drawn = VectorSum(plan).run(np.zeros((10_000, 100)), random=SeededRandom(1)).sum
    variance_of(drawn, 0.0, plan.noise_std**2)


@pytest.mark.parametrize("users", ["5", None, 2.5, 0])
def test_the_number_of_users_of_a_round_is_a_whole_number(users, untouched):
    with pytest.raises(ArgumentError, match="users"):
        VectorSum(proved()).run_chunks([np.zeros((5, 3))], users=users, random=untouched)


def test_masked_rows_in_a_list_and_text_in_an_object_array_are_refused(untouched):
    row = np.ma.masked_array([1.0, 2.0, 3.0], mask=[True, False, False])
    for vectors in ([row] * 5, np.array([["1", "2", "3"]] * 5, dtype=object)):
        with pytest.raises(ArgumentError, match="vectors"):
            VectorSum(proved()).run(vectors, random=untouched)


def test_encodings_without_noise_cannot_be_analyzed():
    """What `encoded` returns has no noise in it: no estimate, and above all no guarantee, may come of it."""
    plan = proved()
    bare = Randomizer(plan).encoded(np.zeros((5, 3)), SecureRandom())
    for batch in (bare, [1, 2], None):
        with pytest.raises(ArgumentError, match="batch"):
            VectorSum(plan).analyze(batch)
    assert Randomizer(plan).with_noise(bare, SecureRandom()).private
    assert not Randomizer(plan).with_noise(bare, SeededRandom(1)).private


@pytest.mark.parametrize("change", [{"noise_bits": 1}, {"users": 2}, {"mu": 1e-9}, {"honest": 0.3}, {"levels": 60}])
def test_an_edited_plan_gives_no_guarantee(change):
    plan = proved()
    assert VectorSum(plan).run(np.zeros((5, 3))).private
    edited = dataclasses.replace(plan, **change)
    estimate = VectorSum(edited).run(np.zeros((5, 3)))
    assert estimate.guarantee is None
    assert "without proof" in str(estimate)
