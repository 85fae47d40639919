"""The rotation: norms in exact arithmetic, the law of a round by enumeration, the box's bias, and the same bits twice."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from scipy.linalg import hadamard

from croupier import ArgumentError, SeededRandom, SumPlan, VectorSum, plan_sum
from croupier.arithmetic import LinearVectors
from croupier.privacy import plan_lots
from croupier.privacy.plan import coordinate_bias, vector_bias
from croupier.protocol import Analyzer, _fused
from croupier.protocol._encoding import Rotation, as_linear, clip_to_ball, encode, transformed
from croupier.protocol._randomizer import Randomizer

SEED = b"the digest of a round, 32 bytes!"


@lru_cache
def plain_plan(users: int, dim: int) -> SumPlan:
    return replace(plan_sum(epsilon=1.0, delta=1e-6, users=users, dim=2), dim=dim)


def rotated_plan(dim: int, *, box: float = 3.0, blocks: int = 1, levels: int = 2, noise_bits: int = 1, users: int = 100) -> SumPlan:
    """A plan with this encoder, whatever it proves."""
    plan = plain_plan(users, dim)
    range_ = box / math.sqrt(1 << (dim - 1).bit_length())
    return replace(plan, range=range_, blocks=blocks, levels=levels, noise_bits=noise_bits, noise_probability=0.5, honest=0.01)


def unit_rows(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([unit.numbers() for row in rows for unit in clip_to_ball(LinearVectors.of(row[np.newaxis]), 1.0)])


def square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(entry)) ** 2 for entry in row), Fraction(0))


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_transform_is_that_of_the_hadamard_matrix(size):
    columns = np.random.default_rng(size).integers(-8, 8, (size, 3)).astype(float)
    assert (transformed(columns.copy()) == hadamard(size) @ columns).all()


def test_signs_and_order_are_fixed_by_the_seed_and_use_every_byte_once():
    first, again = (Rotation(rotated_plan(20, blocks=4), SEED) for _ in range(2))
    other = Rotation(rotated_plan(20, blocks=4), SEED[::-1])
    assert (first.signs == again.signs).all()
    assert (first.order == again.order).all()
    assert (first.signs != other.signs).any()
    assert (first.order != other.order).any()
    assert sorted(first.order) == list(range(32))
    assert set(first.signs) == {-1.0, 1.0}
    assert (Rotation(rotated_plan(20), SEED).signs == first.signs).all()  # blocks draw after the signs


@pytest.mark.parametrize(("dim", "blocks"), [(3, 1), (100, 1), (100, 4), (33, 16)])
def test_turned_vectors_are_within_their_norm_and_box_in_rationals(dim, blocks):
    rng, plan = np.random.default_rng(dim), rotated_plan(dim, box=1.3, blocks=blocks)
    gauss = rng.standard_normal((3, dim))
    rows = np.concatenate(
        [
            gauss / np.linalg.norm(gauss, axis=1, keepdims=True),
            np.full((1, dim), math.nextafter(1 / math.sqrt(dim), 2)),
            np.eye(dim)[:1],
            1e308 * np.ones((1, dim)),
            1e-320 * np.ones((1, dim)),
            np.where(np.arange(dim) == 1, -1e300, 5e-324)[np.newaxis],
        ]
    )
    rotation = Rotation(plan, SEED)
    along = rotation.signs[:dim] * hadamard(plan.padded)[:dim, int(rotation.part(0)[0])]  # the whole length in one coordinate
    rows = np.concatenate([rows, along[np.newaxis]])
    most = (Fraction(plan.block_norm) / Fraction(plan.range)) ** 2
    for block in range(blocks):
        turned = rotation.turned(unit_rows(rows), block)
        assert turned.shape == (len(rows), plan.padded // blocks)
        assert np.abs(turned).max() <= 1
        # before the box, too: a box of 10^6 norms clips nothing
        wide = Rotation(replace(plan, range=1e6), SEED).turned(unit_rows(rows), block)
        assert all(square(row) <= (Fraction(plan.block_norm) / 10**6) ** 2 for row in wide)
        assert all(square(row) <= most for row in turned)
        assert np.abs(turned).max() == 1 or blocks > 1


@pytest.mark.parametrize("levels", [1, 2, 7, 24])
def test_blanks_are_exactly_half_of_the_levels_and_encodings_in_range(levels):
    rng = np.random.default_rng(levels)
    for dim in (2, 3, 20, 33, 100, 177):
        plan = rotated_plan(dim, box=float(rng.uniform(0.5, 6)), levels=levels)
        rotation = Rotation(plan, rng.bytes(32))
        assert (encode(rotation.turned(np.zeros((1, plan.dim))), levels) == levels / 2).all()
        row = rng.standard_normal((1, plan.dim))
        encoded = encode(rotation.turned(unit_rows(row * 3)), levels)
        assert encoded.min() >= 0
        assert encoded.max() <= levels


def test_a_row_is_turned_as_it_is_alone():
    plan, rng = rotated_plan(700, blocks=8), np.random.default_rng(3)
    rows, rotation = unit_rows(rng.standard_normal((300, 700))), Rotation(rotated_plan(700, blocks=8), SEED)
    together = rotation.turned(rows, 5)
    assert all((rotation.turned(rows[i : i + 1], 5)[0] == together[i]).all() for i in (0, 17, 299))
    assert plan.coordinates == 128


@pytest.mark.parametrize("kind", ["rows", "products", "single", "shift"])
@pytest.mark.parametrize(("features", "blocks"), [(1, 1), (5, 1), (60, 1), (60, 8), (513, 2), (2049, 1)])
@pytest.mark.parametrize("users", [1, 7, 40, 65])
def test_compiled_pass_makes_the_same_integers(kind, features, blocks, users):
    """Alone, eight side by side and fewer than eight left over; with all stages in each of the passes that there are for them."""
    if _fused.rotated_kernel() is None:
        pytest.skip("numba is not installed")
    rng, outputs = np.random.default_rng(features), 1 if kind == "rows" else 3
    rows, slopes = rng.standard_normal((users, features)), rng.standard_normal((users, outputs))
    shift = rng.standard_normal((outputs, features)) if kind == "shift" else None
    if kind == "single":
        rows = rows.astype(np.float32)
        vectors = LinearVectors(rows, slopes, None, (rows.astype(np.float64) ** 2).sum(axis=1))
    else:
        vectors = LinearVectors(rows, slopes, shift)
    plan = rotated_plan(features * outputs, blocks=blocks, levels=6)
    for block in range(blocks):
        randomizer = Randomizer(plan, SEED, block)
        (unit,) = clip_to_ball(as_linear(vectors, plan.dim), plan.norm)
        by_numpy = randomizer.added(unit, SeededRandom(block))
        compiled = _fused.added_rotated(unit, plan.levels, randomizer._rotation, block, SeededRandom(block))
        assert (by_numpy == compiled).all()


def test_law_of_a_round_by_enumeration(law_of):
    """Two users, two coordinates, g = 2, b = 1: rounds against the law from all roundings and noise bits."""
    plan = rotated_plan(2, box=1.2, users=2)
    vectors = np.array([[0.9, -0.2], [0.3, 0.7]])
    rotation = Rotation(plan, SEED)
    # by hand: signs, sum and difference over sqrt(2), the box, the encoding
    turned = np.clip((vectors * rotation.signs) @ np.array([[1, 1], [1, -1]]) / math.sqrt(2) / plan.range, -1, 1)
    encoded = (turned + 1) * plan.levels / 2
    law = np.zeros(49)
    for coordinate in itertools.product(*[[0, 1]] * 8):  # a rounding and a noise bit for each user and coordinate
        up, noise = np.array(coordinate[:4]).reshape(2, 2), np.array(coordinate[4:]).reshape(2, 2)
        below = np.floor(encoded)
        chance = np.prod(np.where(up, encoded - below, 1 - (encoded - below))) / 16
        first, second = (below + up + noise).sum(axis=0).astype(int)
        law[7 * first + second] += chance
    random, randomizer = SeededRandom(5), Randomizer(plan, SEED)
    rounds = 2_000
    seen = [randomizer.counts(vectors, random).ones for _ in range(rounds)]
    law_of(np.array([7 * first + second for first, second in seen]), law)
    faithful = [randomizer.randomize(vector, random).bits.sum(axis=1) for vector in vectors for _ in range(rounds)]
    sums = np.array(faithful[:rounds]) + np.array(faithful[rounds:])
    law_of(7 * sums[:, 0] + sums[:, 1], law)


def box_error(plan: SumPlan, vector: np.ndarray, seeds: int) -> tuple[float, float]:
    """Root mean squares over seeds of what the box moves a vector by: in l2, and in the worst coordinate."""
    errors = []
    for seed in range(seeds):
        rotation = Rotation(plan, seed.to_bytes(32, "big"))
        turned = rotation.turned(vector[np.newaxis])[0] * plan.range
        errors.append(rotation.back(turned) - vector)
    squares = np.square(errors)
    return math.sqrt(squares.sum(axis=1).mean()), math.sqrt(squares.mean(axis=0).max())


@pytest.mark.parametrize("box", [1.5, 2.33, 3.0])
@pytest.mark.parametrize("flat", [1, 8, 32, 256, "gauss"])
def test_the_box_moves_vectors_by_no_more_than_its_bias(box, flat):
    """Of vectors that are flat on few coordinates the error stays on these: every coordinate is within its bound, all the same.

    psi is 1.2 to 2 times the truth of a Gaussian vector; 400 seeds tell a root mean square to some per cent."""
    plan = rotated_plan(256, box=box)
    vector = np.random.default_rng(0).standard_normal(256) if flat == "gauss" else (np.arange(256) < flat).astype(float)
    whole, worst = box_error(plan, vector / np.linalg.norm(vector), 400)
    assert worst <= coordinate_bias(box, 256)
    assert whole <= vector_bias(box, 256)
    assert math.isclose(plan.bias_bound, 100 * coordinate_bias(box, 256))
    assert math.isclose(plan.bias_rms * 16, 100 * vector_bias(box, 256))
    assert math.isclose(replace(plan, diameter=1.5).bias_bound, 100 * vector_bias(box, 256))  # read in combinations
    if flat == 1:
        assert whole < 1e-12  # all its coordinates are 1 / sqrt(d')
    if flat == "gauss":
        assert whole >= 0.6 * vector_bias(box, 256)  # the bound says something


@pytest.mark.parametrize("blocks", [1, 4])
def test_the_bias_is_that_of_all_blocks_and_of_the_coordinates_that_there_are(blocks):
    """Flat vectors all alike, 129 coordinates of 256: the mean over lots of `blocks` times the estimate, over 100 rotations."""
    plan = replace(rotated_plan(129, box=1.0), blocks=blocks)
    vector, random, squares = np.full((1, 129), 129**-0.5), np.random.default_rng(0), []
    for _ in range(100):
        turn = Rotation(plan, random.bytes(32))
        parts = [turn.back(turn.turned(vector, block)[0] * plan.range, block) for block in range(blocks)]
        squares.append((plan.users * blocks * (np.sum(parts, axis=0) - vector[0])) ** 2)
    assert 0.3 * plan.bias_rms <= math.sqrt(np.mean(squares)) <= plan.bias_rms
    if blocks > 1:
        assert math.isclose(plan.bias_rms * math.sqrt(129), plan.bias_bound)


@pytest.mark.parametrize(
    ("kind", "mode"), [("alike", "counting"), ("axis", "counting"), ("worst", "counting"), ("worst", "faithful")]
)
def test_sums_are_unbiased_within_the_bound(kind, mode, mean_of):
    """A tight box, so that the bias would show: the mean error of a coordinate over 100 rounds is within bias and noise."""
    users = 20
    plan = replace(rotated_plan(30, box=2.0, levels=4, noise_bits=3, users=users), honest=0.1)
    vector = {"alike": np.full(30, 1.0), "axis": np.eye(30)[4], "worst": (np.arange(30) < 8) * 1.0}[kind]
    vectors = np.tile(vector / np.linalg.norm(vector), (users, 1))
    rounds, random = 100, SeededRandom(11)
    errors = np.array([VectorSum(plan).run(vectors, mode=mode, random=random).sum - vectors.sum(axis=0) for _ in range(rounds)])
    root = math.sqrt(float(np.mean(errors**2)))
    allowed = math.sqrt(plan.bias_rms**2 + plan.noise_std**2)
    assert root <= 1.1 * allowed  # 3000 numbers: 1.1 is 7 standard deviations of a root mean square
    assert np.sqrt(np.mean(errors**2, axis=0)).max() <= 1.5 * math.hypot(plan.bias_bound, plan.noise_std)
    if kind == "axis":  # nothing is clipped
        mean_of(errors, 0.0, plan.noise_std**2)


def test_error_bars_hold_where_rounding_is_worst():
    """One-hot vectors attain the sharper rounding variance q (1 - q)."""
    plan = rotated_plan(64, box=3.0, levels=2, noise_bits=1, users=50)
    assert math.isclose(plan.noise_std, plan.step(2) * math.sqrt(50 * (2 / 9 + 1 / 4)))
    vectors, random = np.tile(np.eye(64)[0], (50, 1)), SeededRandom(3)
    errors = np.array([VectorSum(plan).run(vectors, random=random).sum - vectors.sum(axis=0) for _ in range(400)])
    assert math.isclose(math.sqrt(float(np.mean(errors**2))), plan.noise_std, rel_tol=0.03)  # 25 600 numbers: 0.03 is 6.7 sd


def test_one_hot_vectors_and_zeros_are_not_rounded_at_all():
    plan = plan_sum(epsilon=1, delta=1e-6, users=1000, dim=100, diameter=math.sqrt(2), answers=1, max_inflation=2.0)
    assert plan.levels % 2 == 0
    assert plan.bias_bound == 0
    randomizer = Randomizer(plan, SEED)
    rows = np.vstack([np.eye(100)[[3, 50, 99]], np.zeros((2, 100))])
    first, second = (randomizer.encoded(rows, SeededRandom(seed)).ones for seed in (1, 2))
    if math.isclose(plan.range * math.sqrt(128), 1):
        assert (first == second).all()


def test_blocks_add_up_to_the_sum():
    """Each of m groups of users sends another block: m times the sum of their estimates is the sum of all, but for noise."""
    plan = rotated_plan(60, box=6.0, blocks=4, levels=40, noise_bits=1, users=400)
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((400, 60)) * 0.02 + 0.05
    total = np.zeros(60)
    for block in range(4):
        estimate = VectorSum(plan, seed=SEED, block=block).run(vectors, random=SeededRandom(block))
        total += np.asarray(estimate.sum)
    # all 400 users sent every block here, so the blocks' parts are the whole
    assert np.abs(total - vectors.sum(axis=0)).max() < 6 * plan.noise_std / 4
    assert math.isclose(estimate.noise_std * 4**1.5, plan.noise_std)


def test_rotated_plans_need_a_seed_and_plain_ones_none():
    plan = rotated_plan(30)
    for kind in (Randomizer, Analyzer):
        with pytest.raises(ArgumentError, match=r"seed is missing.*os\.urandom"):
            kind(plan)
        with pytest.raises(ArgumentError, match="too short"):
            kind(plan, b"short")
        with pytest.raises(ArgumentError, match="block = 1"):
            kind(plan, SEED, 1)
    Randomizer(plan_sum(epsilon=1, delta=1e-6, users=100, dim=3))


def test_three_machines_agree_by_the_seed():
    plan = plan_sum(epsilon=5, delta=1e-3, users=60, dim=40, rotation=3.0)
    vectors = np.tile(np.linspace(-0.1, 0.1, 40), (60, 1))
    reports = [VectorSum(plan, seed=SEED).randomize(vector) for vector in vectors]
    assert reports[0].bits.shape == (64, plan.bits_per_coordinate)
    estimate = VectorSum(plan, seed=SEED).analyze(VectorSum(plan, seed=SEED).shuffle(reports))
    assert estimate.sum.shape == (40,)
    assert estimate.guarantee == plan.guarantee
    assert np.abs(estimate.sum - vectors.sum(axis=0)).max() < 7 * plan.noise_std + plan.bias_bound


def test_pieces_of_a_rotated_vector_are_those_of_the_whole():
    plan = rotated_plan(100, levels=4)
    pieces = list(Randomizer(plan, SEED).counts_in_pieces(np.full(100, 0.05), SeededRandom(1), 50))
    whole = Randomizer(plan, SEED).counts(np.full((1, 100), 0.05), SeededRandom(1)).ones
    assert [len(piece) for piece in pieces] == [50, 50, 28]
    assert (np.concatenate(pieces) == whole).all()


def test_secret_rounds_with_blocks_hold_what_they_promise():
    plan = plan_lots(epsilon=1, delta=1e-6, users=20_000, rounds=5, dim=300, blocks=4, max_inflation=1.5)
    one = plan.one_round
    assert (plan.lots, one.blocks, one.coordinates, one.padded) == (20, 4, 128, 512)
    assert plan.bits_per_user == one.bits_per_coordinate * 128
    assert plan.certified_delta <= 1e-6
    estimate = VectorSum(one, seed=SEED, block=3).run(np.full((plan.size, 300), 0.02))
    assert estimate.sum.shape == (300,)
