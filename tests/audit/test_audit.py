"""The audit must pass the real protocol and catch broken ones; its exact routes must agree with each other."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm as normal

from croupier import ArgumentError, SeededRandom, VectorSum, plan_sum
from croupier.audit import _exact as exact
from croupier.audit import empirical, empirical_audit
from croupier.audit._exact import count_law, exact_delta, hockey_stick, pld_delta
from croupier.privacy import Guarantee
from croupier.privacy._allocation import Allocation
from croupier.privacy.gaussian import gaussian_delta
from croupier.protocol import _encoding as encoding
from croupier.protocol import _randomizer as randomizer

DELTA = 1e-6
# The false-alarm rate of every game below, and the chance that a seed would have to be unlucky to hide a broken protocol.
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def plan():
    return plan_sum(epsilon=4.0, delta=DELTA, users=20, dim=2)


def play(plan, protocol, first, second, trials=6000, seed=7):
    """The game on populations that differ in user 0, the rest at zero; the score is what the analyst sees of the difference."""
    populations = np.zeros((2, plan.users, plan.dim))
    populations[0, 0], populations[1, 0] = first, second
    random = SeededRandom(seed)
    direction = np.subtract(first, second)
    return empirical_audit(
        lambda neighbour: protocol.run(populations[int(neighbour)], random=random).sum @ direction,
        claim=plan.guarantee,
        delta=DELTA,
        trials=trials,
        false_alarm=FALSE_ALARM,
    )


def test_the_real_protocol_passes(plan):
    result = play(plan, VectorSum(plan), [1, 0], [-1, 0])
    assert result.passed
    assert 0.4 < result.mu_lower <= plan.mu  # close enough to the truth to have power
    assert result.epsilon_lower <= plan.epsilon


def test_half_the_noise_is_caught(plan):
    half = dataclasses.replace(plan, noise_bits=plan.noise_bits // 2)
    result = play(plan, VectorSum(half), [1, 0], [-1, 0])
    assert not result.passed
    assert result.mu_lower > plan.mu
    assert result.epsilon_lower > plan.epsilon


def test_a_randomizer_that_forgets_to_clip_is_caught(plan, monkeypatch):
    def unclipped(vectors, norm):
        factors = np.full(len(vectors), 1 / norm)
        yield encoding.UnitVectors(vectors.rows, vectors.coefficients / norm, factors, None)

    monkeypatch.setattr(randomizer, "clip_to_ball", unclipped)
    # every coordinate is still clamped to 0..g, but (1, 1) has norm sqrt 2
    assert not play(plan, VectorSum(plan), [1, 1], [-1, -1]).passed


def test_the_same_long_vectors_pass_when_clipped(plan):
    assert randomizer.clip_to_ball is encoding.clip_to_ball
    assert play(plan, VectorSum(plan), [1, 1], [-1, -1]).passed


def test_a_vector_release_is_projected_on_what_the_first_trials_showed(plan):
    rng = np.random.default_rng(0)

    def mechanism(neighbour):
        return rng.normal(size=5) + np.array([0, 3.0 * neighbour, 0, 0, 0])

    result = empirical_audit(mechanism, claim=plan.guarantee, delta=DELTA, trials=2000)
    assert not result.passed
    assert 2.0 < result.mu_lower < 3.0


def test_the_lower_bound_on_mu_is_a_lower_bound_for_a_gaussian():
    rng = np.random.default_rng(1)
    claim = Guarantee(mu=1.0, theorem="the Gaussian mechanism itself")
    found = [
        empirical_audit(lambda neighbour: rng.normal() + neighbour, claim=claim, delta=DELTA, trials=1000, false_alarm=0.01)
        for _ in range(40)
    ]
    # each of 40 may fail with probability 0.01: 12 or more failures have probability below 1e-6
    assert sum(not result.passed for result in found) < 12
    assert all(result.mu_lower < 1.4 for result in found)


def test_detectable_mu_is_where_detection_begins():
    rng = np.random.default_rng(2)
    claim = Guarantee(mu=0.5, theorem="test")
    base = empirical_audit(lambda neighbour: rng.normal() + 0.5 * neighbour, claim=claim, delta=DELTA, trials=4000)
    assert base.passed
    far = base.mu_detectable + 0.3
    assert not empirical_audit(lambda neighbour: rng.normal() + far * neighbour, claim=claim, delta=DELTA, trials=4000).passed


def test_a_claim_of_the_papers_kind_can_be_refuted():
    claim = Guarantee(mu=0.0, slack=DELTA, pure_epsilon=0.5, pure_rounds=1, theorem="test")
    rng = np.random.default_rng(3)
    honest = 1 / (1 + math.exp(-0.5))
    fair = empirical_audit(lambda neighbour: float((rng.random() < honest) == neighbour), claim=claim, delta=0.01, trials=4000)
    assert fair.passed
    leaky = empirical_audit(lambda neighbour: float((rng.random() < 0.8) == neighbour), claim=claim, delta=0.01, trials=4000)
    assert not leaky.passed


@pytest.mark.parametrize(("name", "value"), [("trials", 10), ("false_alarm", 0.0), ("delta", 1.0)])
def test_bad_arguments_of_the_game_are_named(name, value):
    arguments = {"trials": 1000, "false_alarm": 0.01, "delta": 0.1} | {name: value}
    with pytest.raises(ArgumentError, match=name):
        empirical_audit(lambda neighbour: 0.0, claim=Guarantee(mu=1, theorem="test"), **arguments)


def test_count_law_is_rounding_convolved_with_the_binomial():
    law = count_law(2.25, 3, 0.5)
    expected = 0.75 * np.array([0, 0, 1, 3, 3, 1, 0]) / 8 + 0.25 * np.array([0, 0, 0, 1, 3, 3, 1]) / 8
    np.testing.assert_allclose(law, expected, atol=1e-15)


def test_hockey_stick_takes_the_worse_direction():
    first, second = np.array([0.5, 0.5, 0.0]), np.array([0.1, 0.5, 0.4])
    assert hockey_stick(first, second, 0.0) == pytest.approx(0.4)
    assert hockey_stick(first, second, math.log(2)) == pytest.approx(max(0.5 - 0.2, 0.4))


@pytest.mark.parametrize("encodings", [([0.0], [6.0]), ([1.5], [4.2]), ([0.0, 0.5], [3.5, 4.0])])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_exact_enumeration_and_dp_accounting_agree(encodings, epsilon):
    arguments = {"trials": 150, "probability": 0.4, "epsilon": epsilon}
    exact = exact_delta(*encodings, **arguments)
    other = pld_delta(*encodings, **arguments, discretization=1e-5)
    assert other == pytest.approx(exact, rel=2e-3, abs=1e-12)
    assert other <= exact * (1 + 1e-9) + 1e-14  # optimistic, as it says


def test_dp_accounting_composes_rounds_like_enumeration_of_coordinates():
    """Two rounds of one coordinate are one round of two."""
    arguments = {"trials": 120, "probability": 0.5, "epsilon": 1.0}
    rounds = pld_delta([1.0], [5.5], **arguments, rounds=2, discretization=1e-4)
    assert rounds == pytest.approx(exact_delta([1.0, 1.0], [5.5, 5.5], **arguments), rel=2e-3)


def test_wide_binomial_is_nearly_gaussian():
    trials, shift = 40_000, 20.0
    delta = exact_delta([0.0], [shift], trials=trials, probability=0.5, epsilon=0.3)
    assert delta == pytest.approx(gaussian_delta(0.3, shift / 100), rel=0.02)
    assert normal.cdf(0) == 0.5  # the yardstick itself


def test_too_many_outcomes_are_refused_before_memory_is_taken():
    with pytest.raises(ArgumentError, match="pld_delta"):
        exact_delta([0.0] * 4, [1.0] * 4, trials=1000, probability=0.5, epsilon=1.0)
    with pytest.raises(ArgumentError, match="as long as first"):
        exact_delta([0.0], [1.0, 2.0], trials=10, probability=0.5, epsilon=1.0)
    with pytest.raises(ArgumentError, match="as long as first"):
        pld_delta([0.0], [1.0, 2.0], trials=10, probability=0.5, epsilon=1.0)


def test_missing_dp_accounting_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(ImportError, match=r"\[bench\]"):
        pld_delta([0.0], [1.0], trials=10, probability=0.5, epsilon=1.0)


@pytest.mark.process
def test_privacy_imports_no_other_room():
    """What is promised must not depend on what is run."""
    code = (
        "import importlib.util, sys, types, pathlib\n"
        "root = pathlib.Path(importlib.util.find_spec('croupier').origin).parent\n"
        "package = types.ModuleType('croupier'); package.__path__ = [str(root)]; sys.modules['croupier'] = package\n"
        "import croupier.privacy\n"
        "print(sorted({m.split('.')[1] for m in sys.modules if m.startswith('croupier.')}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['files', 'privacy', 'validation']"


@pytest.mark.parametrize("module", [empirical, exact])
def test_the_mathematics_of_the_audit_shares_no_code_with_what_is_audited(module):
    lines = Path(module.__file__).read_text().splitlines()
    ours = {line.split()[1] for line in lines if line.lstrip().startswith("from .")}
    assert {name for name in ours if not name.startswith(("..privacy", "..validation", ".exact"))} == set()


@pytest.mark.parametrize("epsilon", [50.0, 100.0])
def test_dp_accounting_agrees_where_one_user_is_rare_under_the_other(epsilon):
    """At large epsilon an outcome that is likely for one user is beyond rare for the other; it must not count as exposure."""
    plan = plan_sum(epsilon=epsilon, delta=DELTA, users=20, dim=1)
    arguments = {"trials": plan.noise_bits * 20, "probability": plan.noise_probability, "epsilon": epsilon}
    exact = exact_delta([0.0], [float(plan.levels)], **arguments)
    assert pld_delta([0.0], [float(plan.levels)], **arguments) == pytest.approx(exact, rel=1e-2)
    assert exact <= plan.certified_delta


def test_figures_below_the_accountants_floor_are_nothing():
    plan = plan_sum(epsilon=1.0, delta=1e-20, users=100, dim=1)
    found = pld_delta([0.0], [float(plan.levels)], trials=plan.noise_bits * 100, probability=plan.noise_probability, epsilon=1.0)
    assert found == 0.0


def test_too_few_trials_say_that_they_can_notice_nothing():
    result = empirical_audit(float, claim=Guarantee(mu=2.0, theorem="test"), delta=DELTA, trials=100)
    assert result.passed  # a hundred trials cannot refute mu = 2 at this false-alarm rate, and it says so
    assert result.mu_detectable == math.inf
    assert result.to_dict()["mu_detectable"] is None
    assert "could notice nothing" in str(result)


def test_releases_that_are_no_numbers_are_no_evidence():
    with pytest.raises(ArgumentError, match="mechanism"):
        empirical_audit(lambda neighbour: math.nan, claim=Guarantee(mu=1.0, theorem="test"), delta=DELTA, trials=100)


@pytest.mark.parametrize(
    "claim",
    [
        Guarantee(mu=0.7, theorem="t"),
        Guarantee(mu=2.5, slack=1e-5, theorem="t"),
        Guarantee(mu=0.0, theorem="t", allocations=(Allocation(mu=1.2, rounds=6),)),
    ],
)
@pytest.mark.parametrize("alpha", [1e-4, 0.03, 0.4, 1.0])
def test_the_best_bound_on_errors_is_found_by_halving(claim, alpha):
    found = empirical._trade_off(claim, alpha)
    assert found >= max(1 - claim.delta(float(e)) - math.exp(e) * alpha for e in empirical._EPSILONS[::20]) - 1e-12
