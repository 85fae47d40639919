"""Filter and odometer: games in which everything is chosen after looking, by exact values; and what counts as a Gaussian."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from games import branching, gaussian_value, optimal_stopping, slack_value
from oracles import exact_gaussian_delta, hockey_stick, normal_cdf

from croupier.estimator import PrivacyAccount
from croupier.privacy import ArgumentError, Guarantee, plan_lots, plan_sum
from croupier.privacy._filter import Caps, GaussianBound, first_cap, gaussian_bound, odometer, response_mu
from croupier.privacy._ledger import BudgetExceededError
from croupier.privacy.gaussian import gaussian_delta, gaussian_mu
from croupier.service.client.budget import BudgetLimit, DeviceBudget
from croupier.service.wire.task import RefusedTaskError
from croupier.statistics._holdout import HoldOut, Part

EPSILON, DELTA = 1.0, 1e-6


def guarantee(mu=0.0, slack=0.0):
    return Guarantee(mu=mu, slack=slack, theorem="met exactly")


def largest_accepted(first, second, top):
    """By bisection, the most that an account takes after a first fit."""

    def accepted(value):
        account = PrivacyAccount(epsilon=EPSILON, delta=DELTA)
        account.charge("first", 100, first)
        try:
            account.charge("second", 100, second(value))
        except BudgetExceededError:
            return False
        return True

    low, high = 0.0, top
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low


@pytest.mark.parametrize("part", [0.3, 0.5, 0.7])
def test_an_account_keeps_its_limit_against_who_chooses_slack_or_mu_by_the_first_outcome(part):
    """A first fit takes `part` of mu^2. Where its outcome was harmless, all slack that is left; where it told, all mu.

    Each branch keeps the sum; both together reach nearly twice delta where only the sum is looked at.
    """
    mu = math.sqrt(part) * Caps.of_limit(EPSILON, DELTA).mu
    slack = largest_accepted(guarantee(mu), lambda s: guarantee(slack=s), DELTA)
    rest = largest_accepted(guarantee(mu), guarantee, 1.0)
    assert slack > 0.24 * DELTA
    assert rest > 0.1
    values = [
        branching(EPSILON, mu, border, lambda left: slack_value(left, slack), lambda left: gaussian_value(left, rest))
        for border in np.linspace(1.0, 4.0, 13)
    ]
    assert 0.9 * DELTA < max(values) <= DELTA


def test_the_sum_is_no_filter():
    """So that the test above can fail: the same game with all that the sum of deltas allows."""
    most = gaussian_mu(EPSILON, DELTA)
    mu, rest = 0.5**0.5 * most, 0.5**0.5 * most
    slack = DELTA - gaussian_value(EPSILON, mu)
    value = branching(EPSILON, mu, 2.5, lambda left: slack_value(left, slack), lambda left: gaussian_value(left, rest))
    assert value > 1.8 * DELTA


def odometer_after(*bounds):
    return odometer(bounds, DELTA, first_cap(bounds[0]))


@pytest.mark.parametrize("mus", [[0.1] * 10, [0.3, 0.1, 0.1, 0.6], [0.02] * 6, [0.01, 0.2, 0.2]])
def test_no_stopping_rule_beats_the_odometer(mus):
    bounds = [GaussianBound(mu, 0.0) for mu in mus]
    claims = [odometer_after(*bounds[: done + 1]) for done in range(len(mus))]
    assert claims == sorted(claims)
    value = optimal_stopping(mus, claims)
    assert 0.1 * DELTA < value <= 0.75 * DELTA
    plain = [guarantee(math.sqrt(sum(mu**2 for mu in mus[: done + 1]))).epsilon(DELTA) for done in range(len(mus))]
    assert optimal_stopping(mus, plain) > 1.05 * DELTA


def test_nor_does_one_who_chooses_mu_or_slack_by_the_first_outcome():
    """All three ends of a game have their own claim: stop, slack, or more mu."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(40):
        first = GaussianBound(float(rng.uniform(0.02, 0.4)), 0.0)
        more = GaussianBound(first.mu * float(rng.uniform(0.2, 3)), 0.0)
        told = GaussianBound(0.0, 0.25 * DELTA)
        claims = [odometer_after(first, told), odometer_after(first, more)]
        value = branching(
            0.0,
            first.mu,
            float(rng.uniform(1, 5)),
            lambda left, claim=claims[0], s=told.slack: slack_value(left + claim, s),
            lambda left, claim=claims[1], m=more.mu: gaussian_value(left + claim, m),
        )
        worst = max(worst, value)
    assert 0.1 * DELTA < worst <= DELTA


def test_the_odometer_on_its_own_terms():
    one = GaussianBound(0.2, 1e-9)
    assert odometer([], DELTA, 0.2) == 0
    assert odometer_after(one) == pytest.approx(1.05 * guarantee(0.2).epsilon(DELTA), rel=0.01)
    shares = [1 / ((k + 1) * (k + 2)) for k in range(10_000)]
    assert math.fsum(shares) <= 1
    for fits, place in ((1, 0), (2, 2), (4, 4), (16, 8)):  # caps that such sums meet exactly
        cap = 0.2 * math.sqrt(fits)
        exact = exact_gaussian_delta(odometer_after(*[one] * fits), cap)
        assert exact == pytest.approx(0.75 * DELTA * shares[place], rel=1e-6)
    assert odometer_after(*[one] * 249) < math.inf
    assert odometer_after(*[one] * 251) == math.inf  # slacks beyond a quarter of delta
    assert odometer_after(GaussianBound(1e200, 0.0)) == math.inf
    with pytest.raises(ArgumentError, match="delta"):
        odometer([one], 0.0, 0.2)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-12), (0.5, 1e-9), (1.0, 1e-6), (4.0, 1e-3), (20.0, 1e-30)])
def test_caps_keep_their_limit(epsilon, delta):
    caps = Caps.of_limit(epsilon, delta)
    assert caps.keep(epsilon, delta)
    assert exact_gaussian_delta(epsilon, caps.mu) + caps.slack <= delta
    assert caps.mu > 0.95 * gaussian_mu(epsilon, delta)  # hardly anything is lost
    assert not Caps(caps.mu * 1.001, caps.slack).keep(epsilon, delta)
    assert not Caps(caps.mu, caps.slack * 1.01).keep(epsilon, delta)
    assert max(caps.use([GaussianBound(caps.mu / 2, caps.slack / 4)] * 4)) == pytest.approx(1)
    assert caps.use([GaussianBound(caps.mu * 1.0000001, 0.0)])[0] > 1


@pytest.mark.parametrize("fits", [2, 5, 25])
def test_as_many_fits_as_were_planned_for_pass(fits):
    """Equal fits of our plans, on an account whose epsilon is 2 % more than that of their sum."""
    plan = plan_sum(epsilon=0.5, delta=DELTA, users=2000, dim=5).guarantee
    account = PrivacyAccount(epsilon=1.02 * plan.repeated(fits).epsilon(DELTA), delta=DELTA)
    for _ in range(fits):
        account.charge("fit", 2000, plan)
    with pytest.raises(BudgetExceededError, match="squares of mu"):
        account.charge("fit", 2000, plan)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-3, 0.3, 0.999, 1.0, 1.001, 4.0, 30.0])
def test_randomized_response_is_a_gaussian_seen_through_a_sign(epsilon):
    """mu to 50 digits, and a divergence that is nowhere above the Gaussian one."""
    mu = response_mu(epsilon)
    with mpmath.workdps(60):
        wanted = mpmath.mpf(1) / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        assert normal_cdf(mpmath.mpf(mu) / 2) >= wanted
        assert normal_cdf(mpmath.mpf(mu) / 2 * (1 - mpmath.mpf(10) ** -11)) <= wanted
    truth = np.array([1 / (1 + math.exp(-epsilon)), math.exp(-epsilon) / (1 + math.exp(-epsilon))])
    for at in np.linspace(0.0, 1.5 * epsilon + 0.1, 31):
        assert hockey_stick(truth, truth[::-1], at) <= gaussian_value(at, mu) + 1e-15


def test_what_a_guarantee_counts_as_bounds_it_at_every_epsilon():
    plans = [
        plan_sum(epsilon=1.0, delta=1e-5, users=500, dim=3).guarantee,
        plan_sum(epsilon=1.0, delta=1e-5, users=500, dim=3, calibration="paper").guarantee,
        plan_sum(epsilon=1.0, delta=1e-5, users=500, dim=3, rounds=7, calibration="paper").guarantee,
    ]
    for made in (*plans, Guarantee(mu=0.3, slack=1e-7, pure_epsilon=0.05, pure_rounds=9, theorem="both")):
        bound = gaussian_bound(made)
        assert bound.slack == made.slack
        for epsilon in np.linspace(0, 5, 41):
            assert made.delta(epsilon) <= (gaussian_value(epsilon, bound.mu) + bound.slack) * (1 + 1e-8) + 1e-15


def test_a_guarantee_of_another_form_is_not_counted():
    @dataclass(frozen=True, kw_only=True)
    class Lots(Guarantee):
        sampled: float = 0.1

    with pytest.raises(ArgumentError, match=r"sampled.*cannot be counted"):
        gaussian_bound(Lots(mu=0.1, theorem="lots"))
    account = PrivacyAccount()
    with pytest.raises(ArgumentError, match="sampled"):
        account.charge("fit", 10, Lots(mu=0.1, theorem="lots"))
    assert account.fits == ()


@pytest.mark.parametrize("rounds", [1, 5, 60])
def test_a_gaussian_bounds_secret_lots_at_every_epsilon(rounds):
    """What an account counts for a run with secret lots is above its own curve, and well below what open lots would count as."""
    lots = plan_lots(epsilon=1.0, delta=1e-6, users=3_000, rounds=rounds, dim=5).guarantee
    bound = gaussian_bound(lots)
    for epsilon in np.linspace(0.0, 3.0, 13):
        assert lots.delta(epsilon) <= gaussian_delta(epsilon, bound.mu) + bound.slack
    assert lots.slack < bound.slack <= 2 * lots.slack
    known = 2 * lots.allocations[0].mu
    assert bound.mu < (0.75 if rounds > 1 else 1.001) * known


def printed_after(fits, limit):
    """The smallest epsilon in an account's text and JSON for those who were set aside, after each of some fits on them."""
    aside = Part(HoldOut(0.1, "0" * 32), "aside", rows=10_000)
    account, found = PrivacyAccount(epsilon=limit, delta=DELTA), []
    for fit in fits:
        account.charge("fit", aside.users, fit, part=aside)
        about = str(account).split("the other")[0]
        figures = account.to_dict()
        texts = [float(text) for text in re.findall(r"epsilon = ([\d.]+)", about)]
        found.append(min([*texts, figures["epsilon"], figures["epsilon_if_watched"], figures["parts"][0]["epsilon"]]))
    return found


@pytest.mark.parametrize(("fits", "last", "excess"), [(2, 12, 1.2), (4, 4, 1.4), (15, 1, 1.59)])
def test_no_stopping_rule_beats_what_an_account_with_a_limit_prints(fits, last, excess):
    """A limit and the odometer hold at delta each; which is the smaller depends on when one stops, which uses up both deltas.

    Sums of squares meet the odometer's caps one by one, and the limit's cap at the end. All slack is in the first fit, which
    tells all with that probability.
    """
    limit = 30.0
    caps = Caps.of_limit(limit, DELTA)
    roots = np.array([2 ** (k / 4) for k in range(fits - 1)] + [2 ** ((fits - 2 + last) / 4)])
    mus = [float(mu) for mu in np.sqrt(np.diff((roots / roots[-1]) ** 2, prepend=0)) * caps.mu * (1 - 1e-9)]
    slack = 0.25 * DELTA * (1 - 1e-9)

    def true_delta(claims):
        return slack + (1 - slack) * optimal_stopping(mus, claims)

    bounds = [GaussianBound(mu, 0.0) for mu in mus]
    spent = [odometer_after(*bounds[: done + 1]) for done in range(fits)]
    both = [min(epsilon, limit) for epsilon in spent]
    assert excess * DELTA < true_delta(both) <= 1.75 * DELTA  # what was printed once, and what is proved for it
    assert true_delta(spent) <= DELTA
    printed = printed_after([guarantee(mu, slack * (place == 0)) for place, mu in enumerate(mus)], limit)
    assert true_delta(printed) <= DELTA


def test_what_is_printed_to_an_observer_of_arrival_times_is_no_third_promise():
    """Theirs holds for everybody: were it printed as the smaller figure beside a limit, it would be chosen after looking."""
    lots = plan_lots(epsilon=0.5, delta=1e-8, users=10_000, rounds=20, dim=5).guarantee
    for limit in (2.0, None):
        account = PrivacyAccount(epsilon=limit, delta=DELTA)
        account.charge("a fit", 10_000, lots)
        printed = [float(text) for text in re.findall(r"epsilon = ([\d.]+)", str(account))]
        figures = account.to_dict()
        assert min(printed) >= min(figures["epsilon"], figures["epsilon_if_watched"]) == (limit or account.spent())
        assert figures["epsilon_if_watched"] >= account.spent_if_watched() > account.spent()


def test_delta_is_fixed_before_the_first_fit(tmp_path):
    """One that is chosen after looking: stopping at 1e-9 where the first outcome told, and at 1e-6 else, is no figure at all."""
    path = tmp_path / "account"
    account = PrivacyAccount(path, delta=1e-5)
    account.charge("fit", 100, guarantee(0.2))
    assert PrivacyAccount(path).delta == PrivacyAccount(path, delta=1e-5).delta == 1e-5
    assert PrivacyAccount(path).spent() == PrivacyAccount(path).to_dict()["epsilon"] == account.spent()
    with pytest.raises(ArgumentError, match=r"epsilon, delta.*no limit, delta = 1e-05.*before the first fit"):
        PrivacyAccount(path, delta=1e-6).spent()
    first, *entries = path.read_text().splitlines()
    terms = json.loads(first)
    del terms["delta"]
    path.write_text("\n".join([json.dumps(terms), *entries]) + "\n")
    with pytest.raises(ArgumentError, match="cannot be read"):
        _ = PrivacyAccount(path).delta


@pytest.mark.parametrize("sizes", [(0.3, 0.5, 0.5, 0.2), (0.98, 0.1), (2.0,), (0.2,) * 12])
def test_an_account_and_a_device_refuse_the_same_and_print_the_same(tmp_path, sizes):
    """One core decides for both: here beside the caps themselves, worked out anew."""
    epsilon, delta = 1.0, 1e-5
    account = PrivacyAccount(epsilon=epsilon, delta=delta)
    device = DeviceBudget(tmp_path / "budget.json")
    device.allow(BudgetLimit(epsilon, delta, 86400.0))
    cap, taken = Caps.of_limit(epsilon, delta), []
    for number, size in enumerate(sizes):
        guarantee = plan_sum(epsilon=size, delta=1e-7, users=1000, dim=2).guarantee
        bounds = [gaussian_bound(each) for each in (*taken, guarantee)]
        squares = math.fsum(bound.mu**2 for bound in bounds) / cap.mu**2
        room = max(squares, math.fsum(bound.slack for bound in bounds) / cap.slack) <= 1
        room = room or (not taken and guarantee.delta(epsilon) <= delta)
        if room:
            account.charge("a fit", 1000, guarantee)
            device.charge(f"{number:064d}", "a task", "ab" * 32, guarantee)
            taken.append(guarantee)
        else:
            with pytest.raises(BudgetExceededError):
                account.charge("a fit", 1000, guarantee)
            with pytest.raises(RefusedTaskError):
                device.charge(f"{number:064d}", "a task", "ab" * 32, guarantee)
        assert account.spent() == device.spent()
    assert len(account.fits) == len(device.entries()) == len(taken)
