"""Plans with a rotation: fewer bits, certified as others are, and nothing that an edited plan could claim."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from croupier import ArgumentError, SumPlan, plan_sum
from croupier.audit._exact import exact_delta
from croupier.privacy import LotsPlan, plan_lots
from croupier.privacy._crowd import overflow, round_size
from croupier.privacy._tight import certificate_of, modulus_bits
from croupier.privacy.calibration import is_proved
from croupier.privacy.certificate import certify
from croupier.privacy.lots import SPARE_SHARE, Opening

ASKED = {"epsilon": 1.0, "delta": 1e-6}
NEW_WORDS = {"range", "blocks", "answers", "padded", "coordinates", "bias_bound", "bias_rms"}


@pytest.mark.parametrize(
    ("users", "dim", "inflation", "bits"),
    [(10**4, 1000, 1.05, 18), (10**4, 1000, 1.15, 9), (10**5, 1000, 1.05, 31), (10**4, 100, 1.05, 36)],
)
def test_bits_a_coordinate_padding_included(users, dim, inflation, bits):
    plan = plan_sum(**ASKED, users=users, dim=dim, max_inflation=inflation)
    assert plan.bits_per_user <= bits * dim
    assert plan.inflation <= inflation
    assert plan.bias_bound <= 0.1 * plan.noise_std
    assert plan.noise_probability == 0.5
    assert plan.certified_delta <= 1e-6
    assert is_proved(plan)
    assert plan.bits_per_user < plan_sum(**ASKED, users=users, dim=dim, max_inflation=inflation, rotation=None).bits_per_user


def test_one_hot_vectors_take_a_few_bits_and_have_no_bias():
    plan = plan_sum(**ASKED, users=10**4, dim=100, diameter=math.sqrt(2), answers=1)
    assert (plan.levels, plan.noise_bits) == (2, 2)
    assert plan.bias_bound == 0
    assert math.isclose(plan.range * math.sqrt(128), 1)
    assert math.isclose(plan.noise_std, plan.step(2) * math.sqrt(10**4 * 2 / 4))  # nothing is rounded
    several = plan_sum(**ASKED, users=10**4, dim=1000, answers=4)
    assert several.bias_bound == 0
    assert several.range * math.sqrt(1024) >= 2


def test_few_coordinates_keep_the_plain_encoder():
    assert all(plan_sum(**ASKED, users=1000, dim=dim).range is None for dim in (1, 2, 5, 8))
    assert plan_lots(**ASKED, users=10_000, rounds=10, dim=5).one_round.range is None


def test_plans_without_a_rotation_are_the_same_text_as_before():
    plan = plan_sum(**ASKED, users=10**4, dim=1000, rotation=None)
    assert not NEW_WORDS & set(plan.to_dict())
    assert "rotat" not in plan.to_json()
    rotated = plan_sum(**ASKED, users=10**4, dim=1000)
    assert {"range", "padded", "bias_bound"} <= set(rotated.to_dict())
    assert "blocks" not in rotated.to_dict()


def test_rotated_plans_are_certified_where_they_are_read():
    plan = plan_sum(**ASKED, users=10**4, dim=1000)
    assert SumPlan.from_json(plan.to_json()) == plan
    words = json.loads(plan.to_json())
    for narrower in ({"range": plan.range / 1.01}, {"levels": plan.levels + 1}):
        with pytest.raises(ArgumentError):
            SumPlan.from_dict(words | narrower)
    assert not is_proved(replace(plan, range=plan.range / 1.01))
    for bad in ({"range": 0.0}, {"blocks": 3}, {"blocks": 2048}, {"answers": 0}, {"range": 1e7}):
        with pytest.raises(ArgumentError):
            replace(plan, **bad)
    with pytest.raises(ArgumentError, match="blocks"):
        replace(plan, range=None, blocks=2)
    with pytest.raises(ArgumentError, match="diameter"):  # vectors at this distance may differ in one block alone
        replace(plan, blocks=2, diameter=1.0)


def test_the_shift_is_that_of_the_ball_in_levels():
    """S = D / h for each relation: the step is what one level is in units of the data."""
    asked = {"users": 10**4, "dim": 1000, "norm": 3.0}
    for plan in (
        plan_sum(**ASKED, **asked),
        plan_sum(**ASKED, **asked, neighbours="zero-out"),
        plan_sum(**ASKED, **asked, diameter=3.5),
    ):
        assert plan.range is not None
        assert math.isclose(plan.encoded_shift(plan.levels), plan.sensitivity / plan.step(plan.levels))
        reach = (plan.levels + 1) // 2 if plan.neighbours == "zero-out" else plan.levels
        assert plan.encoded_reach(plan.levels) == reach
        again = certify(
            plan.noise_bits * plan.users,
            0.5,
            shift=plan.sensitivity / plan.step(plan.levels),
            reach=reach,
            dim=1024,
            tail=0.01 * plan.delta / 1024,
            spare=0.001 * plan.delta,
        )
        assert math.isclose(plan.mu, again.mu, rel_tol=1e-9)
        assert math.isclose(plan.slack, 1024 * again.tau + again.residue, rel_tol=1e-9)


def test_exact_loss_is_within_the_certificate():
    """Two coordinates whose encodings move together, as those of e_1 and -e_1 do, by enumeration."""
    plan = plan_sum(epsilon=1.0, delta=1e-4, users=60, dim=2, rotation=1.2, max_inflation=1.5)
    assert plan.range is not None
    move = plan.encoded_shift(plan.levels) / math.sqrt(2)
    assert move <= plan.encoded_reach(plan.levels)
    found = exact_delta([0.0] * 2, [move] * 2, trials=60 * plan.noise_bits, probability=0.5, epsilon=1.0)
    assert 0.01 * plan.certified_delta < found <= plan.certified_delta


def test_a_number_asks_for_that_range():
    plan = plan_sum(**ASKED, users=10**4, dim=1000, rotation=3.0)
    assert plan.range * 32 >= 3
    assert plan.bias_bound > 0.1 * plan.noise_std
    for bad in ("yes", -1.0, 100.0):
        with pytest.raises(ArgumentError, match="rotation"):
            plan_sum(**ASKED, users=10**4, dim=1000, rotation=bad)
    with pytest.raises(ArgumentError, match="rotation"):
        plan_sum(**ASKED, users=10**4, dim=1000, rotation=3.0, calibration="paper")


def test_max_bits_counts_padding_and_finds_the_least_noise():
    plan = plan_sum(**ASKED, users=10**4, dim=100, max_bits=12)
    assert plan.bits_per_user <= 1200
    assert plan.range is not None
    assert plan.noise_std < plan_sum(**ASKED, users=10**4, dim=100, max_bits=12, rotation=None).noise_std


def test_transports_weigh_bits_in_their_own_way():
    by = {name: plan_sum(**ASKED, users=10**4, dim=1000, transport=name) for name in ("messages", "masked", "verified")}
    assert by["messages"].bits_per_user == min(plan.bits_per_user for plan in by.values())
    width = {name: modulus_bits(plan.users, plan.levels, plan.noise_bits) for name, plan in by.items()}
    assert width["masked"] == min(width.values())
    assert by["masked"].noise_bits > by["messages"].noise_bits
    elements = {name: plan.bits_per_coordinate.bit_length() for name, plan in by.items()}
    assert elements["verified"] == min(elements.values())
    with pytest.raises(ArgumentError, match="transport"):
        plan_sum(**ASKED, users=100, dim=2, transport="pigeon")


def test_modulus_holds_the_data_and_eight_standard_deviations():
    for users, levels, noise_bits in ((3332, 2, 1), (1745, 2, 3), (896, 7, 2), (10**6, 75, 11)):
        wanted = users * levels + 16 * math.sqrt(users * noise_bits) / 2
        assert 2 ** modulus_bits(users, levels, noise_bits) > wanted >= 2 ** (modulus_bits(users, levels, noise_bits) - 1) - 1


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
@pytest.mark.parametrize("blocks", [1, 4])
def test_lots_are_rounds_and_blocks(neighbours, blocks):
    plan = plan_lots(**ASKED, users=60_000, rounds=20, dim=1500, blocks=blocks, max_inflation=1.5, neighbours=neighbours)
    one, lots = plan.one_round, 20 * blocks
    assert one.range is not None
    assert one.blocks == blocks
    assert plan.lots == lots
    assert plan.size == round_size(60_000, lots, 0.01 * 1e-6)
    assert plan.overflow == overflow(60_000, lots, plan.size)
    assert plan.users_in_round == 3000
    assert plan.certified_delta <= 1e-6
    (allocation,) = plan.guarantee.allocations
    # the other route: the certificate from the note's formulas
    k = 2048 // blocks
    rho = 1.0 if blocks == 1 else (1 + 1 / math.sqrt(k)) / math.sqrt(blocks)
    reach = one.levels if neighbours == "replace-one" else (one.levels + 1) // 2
    again = certify(
        one.noise_bits * plan.size,
        0.5,
        shift=rho / (2 * one.range / one.levels),
        reach=reach,
        dim=k,
        tail=0.01 * 1e-6 / (2 * lots * k),
        spare=SPARE_SHARE * 1e-6,
    )
    assert allocation.rounds == lots
    assert math.isclose(allocation.mu, again.mu, rel_tol=1e-12)
    windows = lots * k * again.tau * (2 if neighbours == "replace-one" else 1)
    slack = windows + plan.overflow + allocation.given_up(again.residue, neighbours)
    assert math.isclose(plan.guarantee.slack, slack, rel_tol=1e-6)
    q = rho / (2 * one.range / one.levels * math.sqrt(k))
    v = q * (1 - q) if q < 0.5 and one.levels % 2 == 0 else 0.25
    assert math.isclose(plan.noise_std, blocks * 2 * one.range / one.levels * math.sqrt(plan.size * (v + one.noise_bits / 4)))
    assert LotsPlan.from_json(plan.to_json()) == plan
    assert (
        plan.guarantee.epsilon(1e-6) <= plan.if_timing_known.epsilon(1e-6) <= plan.guarantee.if_watched.epsilon(1e-6) * (1 + 1e-9)
    )


def test_lots_refuse_what_blocks_do_not_go_with():
    asked = {**ASKED, "users": 10_000, "rounds": 10, "dim": 100}
    for bad in ({"blocks": 3}, {"blocks": 2, "rotation": None}, {"blocks": 256}, {"opening": [(1, 5, 1.0, 3)]}):
        with pytest.raises(ArgumentError, match="blocks"):
            plan_lots(**asked, **bad)
    with pytest.raises(ArgumentError, match=r"opening\.blocks"):
        plan_lots(**asked, rotation=None, opening=[(1, 500, 1.0, 4)])


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
def test_blocks_of_an_opening_are_lots_among_the_rounds(neighbours):
    """The other route: the certificate from the note's formulas, with lots counted by hand."""
    asked = {**ASKED, "users": 40_000, "rounds": 21, "dim": 100, "neighbours": neighbours, "max_inflation": 1.5}
    plan = plan_lots(**asked, rotation="gradients", opening=[Opening(2, 1500, 0.5, blocks=8, max_inflation=2.5)])
    lots = 2 * 8 + 19
    assert plan.lots == lots
    assert plan.size == round_size(40_000, lots, 0.01 * 1e-6)
    assert plan.overflow == overflow(40_000, lots, plan.size)
    mu = slack = residue = 0.0
    for stage, (rounds, blocks, padded, limit) in zip(plan.stages, [(2, 8, 2048, 2.5), (19, 1, 128, 1.5)], strict=True):
        one, k = stage.plan, padded // blocks
        assert (stage.rounds, one.blocks, one.padded, one.users) == (rounds, blocks, padded, plan.size)
        assert one.inflation <= limit
        assert math.isclose(plan.users_in(one), 40_000 * blocks / lots)
        rho = 1.0 if blocks == 1 else (1 + 1 / math.sqrt(k)) / math.sqrt(blocks)
        again = certify(
            one.noise_bits * plan.size,
            0.5,
            shift=rho / (2 * one.range / one.levels),
            reach=one.levels if neighbours == "replace-one" else (one.levels + 1) // 2,
            dim=k,
            tail=0.01 * 1e-6 / (2 * lots * k),
            spare=SPARE_SHARE * 1e-6,
        )
        mu, residue = max(mu, again.mu), max(residue, again.residue)
        slack += rounds * blocks * k * again.tau * (2 if neighbours == "replace-one" else 1)
    (allocation,) = plan.guarantee.allocations
    assert allocation.rounds == lots
    assert math.isclose(allocation.mu, mu, rel_tol=1e-12)
    slack += plan.overflow + allocation.given_up(residue, neighbours)
    assert math.isclose(plan.guarantee.slack, slack, rel_tol=1e-6)
    assert plan.certified_delta <= 1e-6
    (known,) = plan.if_timing_known.allocations
    assert known.rounds == 1  # a round of gradients has one block
    assert LotsPlan.from_json(plan.to_json()) == plan
    values = json.loads(plan.to_json())
    values["opening"][0]["rounds"] = 1  # fewer lots, each of which would hold more people
    with pytest.raises(ArgumentError):
        LotsPlan.from_dict(values)


def test_blocks_by_the_rule_are_for_many_coordinates_of_few_users():
    assert plan_lots(**ASKED, users=32_561, rounds=45, dim=109, blocks="auto").blocks == 1
    assert plan_lots(**ASKED, users=60_000, rounds=20, dim=7850, blocks="auto", max_inflation=1.5).blocks == 2


def test_certificates_of_rotated_plans_count_the_coordinates_that_are_sent():
    plan = plan_sum(**ASKED, users=10**4, dim=1000)
    assert certificate_of(plan, plan.levels, plan.noise_bits, 0.5).tau * 1024 <= 0.01 * 1e-6


def test_rotated_plans_are_proved_in_ball_arithmetic():
    pytest.importorskip("flint")
    plan = plan_sum(**ASKED, users=2000, dim=100, max_inflation=1.3)
    proof = plan.prove()
    assert plan.range is not None
    assert float(proof.delta.upper) <= plan.certified_delta
    assert proof.to_dict()["dim"] == 128
