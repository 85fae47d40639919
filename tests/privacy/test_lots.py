"""Plans with secret lots: what is charged is an upper bound, noise is near the simulated, and overclaims are refused."""

from __future__ import annotations

import dataclasses
import json
import math

import mpmath
import pytest
from scipy.stats import binom

from croupier.privacy import ArgumentError, Guarantee, LotsPlan, NoCertificateError, SumPlan, certify, plan_lots
from croupier.privacy import _statements as words
from croupier.privacy._allocation import Allocation
from croupier.privacy._crowd import cheats_in_round, least_in_round, overflow, round_size, shortage, smallest_batch
from croupier.privacy.lots import SPARE_SHARE

ROUNDS = (1, 5, 20, 50, 135, 400)
# Noise of a round's sum by simulation with Gaussian noise and without error control: delta = 1e-6, replace-one, norm 1
SIMULATED = {
    0.1: (72.61, 32.47, 16.24, 10.27, 6.25, 3.632),
    0.5: (16.12, 7.207, 3.605, 2.286, 1.417, 0.945),
    1.0: (8.449, 3.780, 1.900, 1.249, 0.939, 0.785),
    2.0: (4.461, 2.000, 1.099, 0.893, 0.764, 0.668),
}


def lots(**changes):
    return plan_lots(**{"epsilon": 1, "delta": 1e-6, "users": 10_000, "rounds": 20, "dim": 10} | changes)


@pytest.mark.parametrize(
    ("epsilon", "rounds", "simulated"),
    [(epsilon, rounds, noise) for epsilon, row in SIMULATED.items() for rounds, noise in zip(ROUNDS, row, strict=True)],
)
def test_certified_noise_is_within_seven_per_cent_of_the_simulated(epsilon, rounds, simulated):
    plan = lots(epsilon=epsilon, rounds=rounds, users=30_000, dim=50)
    assert plan.certified_delta <= 1e-6
    assert simulated * 0.995 <= plan.noise_std <= 1.07 * simulated


# --- what the others' lots do ------------------------------------------------------------------------------------------------


def exact_tail(least, trials, rounds):
    """P(Bin(trials, 1 / rounds) >= least) to 50 digits."""
    with mpmath.workdps(50):
        p = mpmath.mpf(1) / rounds
        return mpmath.fsum(mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(least, trials + 1))


@pytest.mark.parametrize(("users", "rounds", "chance"), [(60, 4, 1e-3), (200, 20, 1e-8), (50, 1, 1e-6), (8, 30, 1e-8), (1, 3, 0.1)])
def test_a_round_has_room_for_one_more_but_for_the_chance(users, rounds, chance):
    size = round_size(users, rounds, chance)
    exact = rounds * exact_tail(size, users - 1, rounds)
    assert exact <= overflow(users, rounds, size) <= chance
    assert size == 1 or rounds * exact_tail(size - 1, users - 1, rounds) > chance * (1 - 1e-6)
    assert 1 <= size <= users


def test_counting_all_users_in_place_of_the_others_is_not_what_is_charged():
    """More than M of all n depends on the user's own lot: the probability given the lot is larger than that without."""
    users, rounds = 300, 10
    size = round_size(users, rounds, 1e-6)
    given_the_lot = exact_tail(size, users - 1, rounds)
    without = exact_tail(size + 1, users, rounds)
    assert overflow(users, rounds, size) >= rounds * given_the_lot > rounds * without


@pytest.mark.parametrize(("users", "honest", "rounds", "chance"), [(100, 0.8, 5, 1e-4), (400, 0.5, 20, 1e-8), (30, 1.0, 3, 1e-3)])
def test_cheats_and_honest_users_in_a_round(users, honest, rounds, chance):
    cheats = users - math.ceil(honest * users)
    most = cheats_in_round(users, honest, rounds, chance)
    assert rounds * exact_tail(most + 1, cheats, rounds) <= chance
    assert most == 0 or rounds * exact_tail(most, cheats, rounds) > chance * (1 - 1e-6)
    fewest = smallest_batch(users, honest, rounds, chance)
    others = users - cheats - 1
    assert 1 - exact_tail(fewest - 1, others, rounds) <= chance  # fewer than `fewest` with the user: at most fewest - 2 others
    assert 1 - exact_tail(fewest, others, rounds) > chance * (1 - 1e-6)


def test_tails_of_large_crowds_match_scipy():
    users, rounds = 3_000_000, 135
    size = round_size(users, rounds, 1e-8)
    assert rounds * binom.sf(size - 1, users - 1, 1 / rounds) == pytest.approx(overflow(users, rounds, size), rel=1e-6)
    assert overflow(users, rounds, size - 1) > 1e-8


# --- plans -------------------------------------------------------------------------------------------------------------------


def test_delta_is_what_its_parts_add_up_to():
    plan = lots(honest=0.9)
    allocation = plan.guarantee.allocations[0]
    one = plan.one_round
    certificate = certify(
        one.noise_bits * (plan.size - cheats_in_round(10_000, 0.9, 20, 1e-8)),
        one.noise_probability,
        shift=one.levels / 2,
        reach=one.levels,
        dim=10,
        tail=1e-8 / (2 * 20 * 10),
    )
    assert allocation == Allocation(mu=certificate.mu, rounds=20)
    parts = allocation.delta(1.0, "replace-one") + 2 * 20 * 10 * certificate.tau + overflow(10_000, 20, plan.size) + 1e-8
    assert plan.certified_delta == pytest.approx(parts, rel=1e-9)
    assert plan.certified_delta <= 1e-6
    assert plan.overflow <= 1e-8


def test_fewer_honest_users_need_more_noise_a_user():
    honest, fewer = lots(), lots(honest=0.5)
    assert fewer.noise_std > honest.noise_std
    assert fewer.guarantee.honest == 0.5
    assert fewer.one_round.honest_users == fewer.size - cheats_in_round(10_000, 0.5, 20, 1e-8) < fewer.size


def test_zero_out_needs_less_noise():
    assert lots(neighbours="zero-out").noise_std < lots().noise_std
    assert lots(neighbours="zero-out").guarantee.neighbours == "zero-out"


def test_who_knows_the_lots_counts_one_round_of_real_users_only():
    plan = lots()
    one = plan.one_round
    honest = smallest_batch(10_000, 1.0, 20, 1e-8)
    assert honest < 500 < plan.size
    plain = certify(one.noise_bits * honest, one.noise_probability, shift=one.levels, reach=one.levels, dim=10, tail=1e-9)
    watched = plan.guarantee.if_watched
    assert watched.mu == plain.mu
    assert watched.slack == pytest.approx(1e-8 + 10 * plain.tau)
    assert watched.epsilon(1e-6) > 2 * plan.guarantee.epsilon(1e-6)
    assert watched.if_watched is watched


def test_clients_are_said_to_need_what_they_ask_for_at_the_delta_that_they_allow():
    """The fault: a task of a smaller delta was said to need an option that clients do without, or too large a figure."""
    guarantee = lots(epsilon=4, delta=1e-8, users=20_000, rounds=5, honest=0.9).guarantee
    checked = guarantee.if_watched.epsilon(1e-6)  # by `croupier join`, as it comes
    assert checked < 10 < guarantee.if_watched.epsilon(1e-8)
    assert words.watched_demand(guarantee, 1e-8, 10.0) == ""
    figure = words.watched_demand(guarantee, 1e-8, 5.0).removeprefix("; clients join only with --max-epsilon-if-watched ")
    assert checked <= float(figure) < 1.02 * checked


def test_too_few_users_a_round_leave_no_promise_if_watched():
    watched = lots(users=300, rounds=50).guarantee.if_watched
    assert watched.delta(50.0) == 1
    with pytest.raises(ArgumentError):
        watched.epsilon(1e-6)


def test_one_round_is_a_plain_sum():
    plan = lots(rounds=1)
    assert plan.size == 10_000
    assert plan.overflow == 0
    assert plan.guarantee.epsilon(1e-6) == pytest.approx(plan.guarantee.if_watched.epsilon(1e-6), rel=0.01)


def test_a_plan_survives_json_and_one_that_claims_too_much_does_not():
    plan = lots(honest=0.95)
    assert LotsPlan.from_json(plan.to_json()) == plan
    values = plan.to_dict()
    for changes in ({"epsilon": 0.5}, {"delta": 1e-7}, {"rounds": 10}, {"users": 20_000}, {"honest": 0.6}, {"neighbours": "other"}):
        with pytest.raises((ArgumentError, NoCertificateError)):
            LotsPlan.from_dict(values | changes)
    with pytest.raises(ArgumentError):
        LotsPlan.from_dict(values | {"one_round": values["one_round"] | {"noise_bits": 1}})
    with pytest.raises(ArgumentError):
        LotsPlan.from_dict({name: value for name, value in values.items() if name != "rounds"})
    with pytest.raises(ArgumentError):
        LotsPlan.from_json("[]")


@pytest.mark.parametrize("rotation", ["auto", None])
def test_rounds_that_ask_other_questions_share_one_mu_and_add_their_windows(rotation):
    plan = lots(honest=0.9, opening=[(3, 55, 1.0), (2, 4, 0.25)], rotation=rotation)
    assert [stage.rounds for stage in plan.stages] == [3, 2, 15]
    assert [(stage.plan.dim, stage.plan.norm) for stage in plan.stages] == [(55, 1.0), (4, 0.25), (10, 1.0)]
    assert [stage.plan.range is not None for stage in plan.stages] == [rotation == "auto", False, False]
    assert {stage.plan.users for stage in plan.stages} == {plan.size}

    def found(honest, tail, blank):
        """The certificate of every stage, from its step alone: a report against a blank, or against another."""
        for one in (stage.plan for stage in plan.stages):
            width = 64 if one.range else one.dim
            step = 2 * (one.range or 1.0) / one.levels
            shift, spare = (1 if blank else 2) / step, SPARE_SHARE * 1e-6
            certificate = certify(
                one.noise_bits * honest,
                one.noise_probability,
                shift=shift,
                reach=one.levels,
                dim=width,
                tail=tail / width,
                spare=spare,
            )
            yield certificate, width

    certificates = list(found(plan.size - cheats_in_round(10_000, 0.9, 20, 1e-8), 1e-8 / (2 * 20), True))
    allocation = Allocation(mu=max(one.mu for one, _ in certificates), rounds=20)
    windows = sum(2 * stage.rounds * width * one.tau for stage, (one, width) in zip(plan.stages, certificates, strict=True))
    windows += allocation.given_up(max(one.residue for one, _ in certificates), "replace-one")
    (claimed,) = plan.guarantee.allocations
    assert claimed.rounds == 20
    assert claimed.mu == pytest.approx(allocation.mu, rel=1e-12)
    parts = allocation.delta(1.0, "replace-one") + windows + overflow(10_000, 20, plan.size) + 1e-8
    assert plan.certified_delta == pytest.approx(parts, rel=1e-9)
    assert plan.certified_delta <= 1e-6
    assert plan.noise_std <= 1.02 * lots(honest=0.9).noise_std  # other questions beside it cost a round next to nothing
    assert plan.bits_per_user == max(stage.plan.bits_per_user for stage in plan.stages)
    honest = smallest_batch(10_000, 0.9, 20, 1e-8) - plan.most_excluded
    known = max(one.mu for one, _ in found(honest, 1e-8, False))
    assert plan.guarantee.if_watched.mu == pytest.approx(known, rel=1e-12)


def test_openings_are_rotated_with_next_to_no_bias_where_that_is_shorter():
    asked = {"users": 32_561, "rounds": 50, "dim": 109, "norm": 0.125, "opening": [(10, 5995, 1.0)], "max_inflation": 1.5}
    rotated, plain = lots(**asked, rotation="gradients"), lots(**asked, rotation=None)
    (stage,), (before,) = rotated.opening, plain.opening
    assert stage.plan.range is not None
    assert before.plan.range is None
    assert stage.plan.padded == 8192
    assert 6 * stage.plan.bits_per_user < before.plan.bits_per_user
    assert stage.plan.bias_bound <= 0.1 * stage.plan.noise_std  # sums that are read one by one
    assert rotated.one_round.bias_bound > rotated.one_round.noise_std  # gradients: a range of 3
    assert stage.plan.combination_std >= stage.plan.noise_std
    assert rotated.certified_delta <= 1e-6
    assert LotsPlan.from_json(rotated.to_json()) == rotated
    safe = lots(**asked)
    assert safe.one_round.bias_bound <= 0.1 * safe.one_round.noise_std


def test_a_plan_with_an_opening_survives_json_and_one_that_claims_too_much_does_not():
    plan = lots(opening=[(3, 55, 1.0)])
    assert LotsPlan.from_json(plan.to_json()) == plan
    values = plan.to_dict()
    (stage,) = values["opening"]
    weaker = stage["plan"] | {"noise_bits": stage["plan"]["noise_bits"] // 2}
    for wrong in ([stage | {"plan": weaker}], [stage | {"rounds": 0}], [stage | {"rounds": 20}], [{"rounds": 3}], "three"):
        with pytest.raises((ArgumentError, NoCertificateError)):
            LotsPlan.from_dict(values | {"opening": wrong})
    other = lots(users=9_000, opening=[(3, 55, 1.0)])
    with pytest.raises(ArgumentError, match=r"opening\.users"):  # a round of another size would tell who is in it
        dataclasses.replace(plan, opening=other.opening)
    with pytest.raises(ArgumentError, match="opening"):
        lots(opening=[(20, 5, 1.0)])


@pytest.mark.parametrize("changes", [{"rounds": 0}, {"rounds": 2.5}, {"users": 0}, {"epsilon": 0}, {"honest": 0}, {"delta": 1}])
def test_bad_requests_are_refused(changes):
    with pytest.raises(ArgumentError):
        lots(**changes)


def test_a_round_of_another_relation_is_refused():
    plan = lots()
    other = SumPlan.from_dict(plan.one_round.to_dict() | {"neighbours": "zero-out"})
    assert dataclasses.replace(plan, one_round=other) == plan
    with pytest.raises(ArgumentError):
        dataclasses.replace(plan, one_round=dataclasses.replace(plan.one_round, neighbours="replace-one"))


# --- guarantees --------------------------------------------------------------------------------------------------------------


def test_guarantees_with_lots_survive_json_and_old_ones_look_as_before():
    guarantee = lots().guarantee
    both = guarantee.compose(Guarantee(mu=0.1, slack=1e-9, theorem="B"))
    for each in (guarantee, both, guarantee.repeated(3), guarantee.worst_of(both)):
        assert Guarantee.from_json(each.to_json()) == each
    assert set(Guarantee(mu=0.1, theorem="B").to_dict()).isdisjoint({"allocations", "watched"})
    values = json.loads(guarantee.to_json())
    with pytest.raises(ArgumentError):
        Guarantee.from_dict(values | {"allocations": [{"mu": 0.5}]})
    with pytest.raises(ArgumentError):
        Guarantee.from_dict(values | {"watched": values | {"watched": None}})


def test_composing_composes_what_a_watcher_knows():
    guarantee, plain = lots().guarantee, Guarantee(mu=0.1, slack=1e-9, theorem="B")
    both = guarantee.compose(plain)
    assert both.if_watched == guarantee.if_watched.compose(plain)
    assert guarantee.repeated(2).if_watched == guarantee.if_watched.repeated(2)
    assert guarantee.epsilon(2e-6) <= both.epsilon(2e-6) <= both.if_watched.epsilon(2e-6)
    assert plain.if_watched is plain
    assert plain.compose(plain).watched is None


def test_the_worst_of_runs_is_no_better_than_any():
    small, large, plain = lots().guarantee, lots(epsilon=2, rounds=50).guarantee, Guarantee(mu=0.05, slack=1e-9, theorem="B")
    assert small.worst_of(small) == small
    worst = small.worst_of(large, plain)
    for epsilon in (0.5, 1.0, 3.0):
        assert worst.delta(epsilon) >= max(each.delta(epsilon) for each in (small, large, plain))
    assert worst.if_watched.mu >= max(each.if_watched.mu for each in (small, large, plain))


@pytest.mark.parametrize("slack", [0.0, 1e-9, 1e-7])
def test_a_dominating_gaussian_promises_less_at_every_epsilon(slack):
    guarantee = lots().guarantee.compose(Guarantee(mu=0.1, theorem="B"))
    gaussian = guarantee.as_gaussian(slack)
    assert not gaussian.allocations
    assert gaussian.slack == pytest.approx(guarantee.slack + slack)
    assert all(gaussian.delta(epsilon) >= guarantee.delta(epsilon) * (1 - 1e-9) for epsilon in (0.0, 0.5, 1.0, 2.0, 5.0))
    assert gaussian.as_gaussian(slack) is gaussian


@pytest.mark.parametrize("delta", [1e-5, 1e-7])
def test_epsilon_inverts_delta_on_the_safe_side(delta):
    for guarantee in (lots().guarantee, lots().guarantee.repeated(2)):
        epsilon = guarantee.epsilon(delta)
        assert guarantee.delta(epsilon) <= delta < guarantee.delta(epsilon * (1 - 1e-6))


def test_the_slack_of_lots_is_a_limit_and_huge_epsilons_are_answered():
    guarantee = lots().guarantee
    with pytest.raises(ArgumentError):
        guarantee.epsilon(guarantee.slack)
    assert guarantee.delta(1e5) == pytest.approx(guarantee.slack)


def test_text_says_both_figures_apart():
    assert "in one of 20 secret rounds" in str(lots().guarantee)
    assert "20 secret rounds of 639 reports" in str(lots(dim=100))


def test_who_knows_the_lots_is_charged_for_honest_users_who_find_no_room():
    plan = plan_lots(epsilon=1, delta=1e-6, users=10_000, rounds=20, dim=3, honest=0.9)
    fuller = dataclasses.replace(plan, one_round=dataclasses.replace(plan.one_round, users=plan.size - 40))
    assert plan.overflow < fuller.overflow < 1e-3
    missing = fuller.guarantee.if_watched.slack - plan.guarantee.if_watched.slack
    assert missing == pytest.approx(fuller.overflow - plan.overflow, rel=1e-6)


# --- blanks that somebody else counts


@pytest.mark.parametrize(("users", "turnout", "rounds"), [(500, 0.9, 4), (20_000, 0.8, 20), (60, 1.0, 3)])
def test_people_come_to_every_round_but_for_the_stated_chance(users, turnout, rounds):
    """By another library's law of one round, and a union over rounds; one more person would be too many."""
    others = math.ceil(turnout * users) - 1
    for chance in (1e-3, 1e-8):
        least = least_in_round(users, turnout, rounds, chance)
        exact = [rounds * binom.cdf(few - 1, others, 1 / rounds) for few in (least, least + 1)]
        assert exact[0] <= chance < exact[1]
        assert shortage(users, turnout, rounds, least) == pytest.approx(exact[0], rel=1e-6)


@pytest.mark.parametrize("honest", [1.0, 0.9])
def test_bounded_blanks_are_charged_once_and_leave_people_of_whom_few_are_cheats(honest):
    """Both figures by hand: the shortage adds to the slack, and if watched counts on the places that blanks leave."""
    plan = dataclasses.replace(lots(users=20_000, rounds=20, honest=honest, exclusions=True), turnout=0.8)
    bounded = plan.with_bounded_blanks()
    assert bounded.blanks + bounded.least_people == plan.size
    assert 0 < bounded.shortage <= 0.01 * plan.delta
    assert bounded.guarantee.slack - plan.guarantee.slack == pytest.approx(bounded.shortage, rel=1e-6)
    assert bounded.certified_delta <= plan.delta
    cheats = cheats_in_round(20_000, honest, 20, 0.01 * plan.delta) if honest < 1 else 0
    counted = bounded.least_people - cheats - plan.most_excluded
    one, watched = plan.one_round, bounded.guarantee.if_watched
    request = dataclasses.replace(one, neighbours="replace-one")
    known = certify(
        counted * one.noise_bits,
        one.noise_probability,
        shift=request.encoded_shift(one.levels),
        reach=request.encoded_reach(one.levels),
        dim=one.coordinates,
        tail=0.01 * plan.delta / one.coordinates,
        spare=1e-4 * plan.delta,
    )
    assert watched.mu == pytest.approx(known.mu, rel=1e-12)
    assert watched.mu > plan.guarantee.if_watched.mu  # a stronger attacker
    assert bounded.guarantee.if_watched.slack >= plan.guarantee.if_watched.slack
    assert LotsPlan.from_dict(json.loads(json.dumps(bounded.to_dict()))) == bounded


def test_a_plan_whose_rounds_may_be_empty_has_no_bound_on_blanks():
    with pytest.raises(ArgumentError, match="people surely come"):
        lots(users=300, rounds=50).with_bounded_blanks()
    plan = lots(users=2_000, rounds=5)
    with pytest.raises(ArgumentError, match="blanks"):
        dataclasses.replace(plan, blanks=plan.size)
    forged = plan.with_bounded_blanks().to_dict() | {"blanks": 1}  # more people than come
    with pytest.raises(ArgumentError, match="claim follows"):
        LotsPlan.from_dict(forged)


def test_a_diameter_that_nobody_proved_is_refused_in_rounds_of_secret_lots():
    """With it the figure for known lots would be 5.9 in place of 13.6, of the same noise."""
    plan = lots(users=3_000, rounds=30)
    forged = dataclasses.replace(plan.one_round, diameter=plan.one_round.norm)
    with pytest.raises(ArgumentError, match=r"one_round\.diameter"):
        dataclasses.replace(plan, one_round=forged)
    with pytest.raises(ArgumentError, match=r"one_round\.diameter"):
        LotsPlan.from_dict(plan.to_dict() | {"one_round": forged.to_dict()})
