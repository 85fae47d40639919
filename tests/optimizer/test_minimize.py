"""Every method by independent routes: against a general solver without noise, against its bound with noise, and by its ledger."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pandas
import pyarrow
import pytest
import scipy.sparse

import croupier as cr
from croupier.arithmetic import LinearVectors
from croupier.audit import empirical_audit
from croupier.optimizer import Result, StopTraining, acsa, replay
from croupier.optimizer.planning import METHODS
from croupier.optimizer.training import run
from croupier.population import ArrayPopulation
from croupier.privacy import Guarantee
from croupier.privacy._crowd import honest_in_batch
from croupier.privacy._ledger import BudgetExceededError, Ledger
from croupier.problem import Absolute, Ball, Hinge, Huber, Logistic, Multinomial, Pinball, Problem, Squared
from croupier.protocol.randomness import Secret

from .conftest import ExactPopulation, best_loss

BUDGET = {"epsilon": 2.0, "delta": 1e-6}
CASES = [
    (Logistic(), 0.0, "sequential", "sgd"),
    (Logistic(), 0.0, "sequential", "acsa"),
    (Hinge(), 0.0, "sequential", "sgd"),
    (Hinge(), 0.0, "sequential", "smoothed-acsa"),
    (Logistic(), 0.3, "sequential", "phased"),
    (Hinge(), 0.3, "sequential", "phased"),
    (Logistic(), 0.0, "full", "gd"),
    (Hinge(), 0.0, "full", "gd"),
    (Logistic(), 0.0, "full", "acsa"),
    (Hinge(), 0.0, "full", "smoothed-acsa"),
    (Logistic(), 0.3, "full", "phased-gd"),
]
NAMES = [f"{type(loss).__name__}-{l2}-{inter}-{method}" for loss, l2, inter, method in CASES]


def problem_from_dict(loss, l2=0.0, radius=3.0, dim=3):
    return Problem(loss=loss, domain=Ball(dim=dim, radius=radius), l2=l2)


def rounds_for(interactivity, method):
    """Full runs take thousands of rounds by their bound; a test takes fewer, and the bound is that of the rounds taken."""
    return {"rounds": 60} if interactivity == "full" and method != "phased-gd" else {}


@pytest.mark.parametrize(("loss", "l2", "interactivity", "method"), CASES, ids=NAMES)
def test_without_noise_every_method_is_within_its_bound(binary, loss, l2, interactivity, method):
    """The bound counts noise and sampling; with exact sums of all users in each batch the excess must be below it."""
    X, y = (part[:1000] for part in binary) if method == "phased-gd" else binary
    problem = problem_from_dict(loss, l2)
    chosen = cr.schedule(problem, len(X), **BUDGET, method=method, interactivity=interactivity, **rounds_for(interactivity, method))
    result = run(problem, ExactPopulation(X, y), chosen, start=np.zeros(3), seed=1)
    excess = problem.losses(result.theta, X, y).mean() - best_loss(problem, X, y)
    assert -1e-6 <= excess <= chosen.bound
    assert np.linalg.norm(result.theta) <= 3 + 1e-9


def test_accelerated_descent_has_the_accelerated_rate_without_noise(binary):
    """2 beta D^2 / (T (T + 1)): full batches, exact sums, no noise in the steps."""
    X, y = binary
    problem = problem_from_dict(Logistic())
    best = best_loss(problem, X, y)
    for rounds in (5, 20, 80):
        chosen = cr.schedule(problem, len(X), **BUDGET, method="acsa", interactivity="full", rounds=rounds)
        quiet = dataclasses.replace(chosen.phases[0], damping=2 * problem.smoothness)
        result = run(problem, ExactPopulation(X, y), dataclasses.replace(chosen, phases=(quiet,)), start=np.zeros(3), seed=1)
        assert problem.losses(result.theta, X, y).mean() - best <= 2 * 0.25 * 9 / (rounds * (rounds + 1)) + 1e-6


@pytest.mark.parametrize(("loss", "l2", "interactivity", "method"), CASES, ids=NAMES)
def test_with_noise_the_mean_excess_is_within_the_bound_and_the_guarantee_holds(binary, loss, l2, interactivity, method):
    X, y = (part[:600] for part in binary) if method == "phased-gd" else binary
    problem = problem_from_dict(loss, l2)
    options = {**BUDGET, "method": method, "interactivity": interactivity, **rounds_for(interactivity, method)}
    results = [cr.minimize(problem, (X, y), **options) for _ in range(1 if method == "phased-gd" else 3)]
    for result in results:
        assert result.private
        assert result.method == method
        assert result.guarantee.delta(BUDGET["epsilon"]) <= BUDGET["delta"]
        assert result.rounds == result.schedule.rounds
    best = best_loss(problem, X, y)
    # The bound is loose by far more than the spread of one run, so a mean of three above it would be a wrong sign, not bad luck.
    assert np.mean([problem.losses(result.theta, X, y).mean() for result in results]) - best <= results[0].bound


@pytest.mark.parametrize(
    ("interactivity", "method"), [(i, m) for i in ("sequential", "full") for m in METHODS[i] if m != "phased-gd"]
)
def test_every_method_runs_in_the_papers_calibration(interactivity, method):
    """Ten users and epsilon 15 keep the paper's noise drawable."""
    X, y = np.full((10, 1), 0.5), np.ones(10)
    problem = Problem(Logistic(), Ball(dim=1, radius=1.0), l2=1.0)
    options = {"method": method, "interactivity": interactivity, "calibration": "paper"}
    rounds = {} if method == "phased" else {"rounds": 2}
    result = cr.minimize(problem, (X, y), epsilon=15.0, delta=1e-6, **options, **rounds)
    assert result.private
    assert "paper" in result.guarantee.theorem
    assert result.guarantee.delta(15.0) <= 1e-6


def test_auto_follows_table_1():
    def chosen(loss, l2, interactivity):
        return cr.schedule(problem_from_dict(loss, l2), 1000, **BUDGET, interactivity=interactivity)

    assert chosen(Logistic(), 0, "sequential").method == "acsa"
    assert chosen(Hinge(), 0, "sequential").method == "smoothed-acsa"
    assert chosen(Logistic(), 1.0, "sequential").method == "phased"
    assert chosen(Hinge(), 0, "full").method == "gd"
    assert chosen(Logistic(), 0, "full").method == "acsa"
    assert chosen(Hinge(), 1.0, "full").method == "phased-gd"
    assert "Theorem 4.7" in chosen(Hinge(), 0, "sequential").why
    own = cr.CustomProblem(lambda theta, X, y: np.sign(theta - X), Ball(dim=2, radius=1.0), lipschitz=2.0)
    assert cr.schedule(own, 1000, **BUDGET).method == "sgd"


@pytest.mark.parametrize("method", ["sgd", "acsa"])
def test_the_number_of_rounds_minimises_the_explicit_bound(method):
    problem = problem_from_dict(Logistic())
    best = cr.schedule(problem, 2000, **BUDGET, method=method)
    others = [cr.schedule(problem, 2000, **BUDGET, method=method, rounds=T) for T in (1, best.rounds // 2, best.rounds * 2, 2000)]
    # the true noise differs from the expected one by whole numbers of bits: a per cent
    assert all(best.bound <= other.bound * 1.01 for other in others)


def test_more_privacy_or_fewer_users_mean_a_worse_bound():
    problem = problem_from_dict(Logistic())
    base = cr.schedule(problem, 10_000, **BUDGET).bound
    assert cr.schedule(problem, 10_000, epsilon=0.5, delta=1e-6).bound > base
    assert cr.schedule(problem, 1_000, **BUDGET).bound > base


def test_sequential_asks_no_user_twice_and_full_asks_all_in_every_round(binary):
    asked = []

    class Watched(ArrayPopulation):
        def answer(self, question):
            asked.append(question.batch.members(0, self.users))
            return super().answer(question)

    cr.minimize(problem_from_dict(Logistic()), Watched(*binary), **BUDGET, method="acsa")
    everyone = np.concatenate(asked)
    assert np.unique(everyone).size == everyone.size
    assert not np.array_equal(everyone, np.sort(everyone))  # dealt at random
    assert all(not np.array_equal(users, np.arange(users[0], users[0] + users.size)) for users in asked)
    asked.clear()
    cr.minimize(problem_from_dict(Logistic()), Watched(*binary), **BUDGET, method="acsa", interactivity="full", rounds=3)
    assert [users.size for users in asked] == [4000] * 3


def test_ledger_refuses_and_records_nothing():
    once, thrice = (cr.plan_sum(epsilon=1, delta=1e-6, users=10, dim=1, rounds=rounds) for rounds in (1, 3))
    ledger = Ledger(30)
    assert ledger.guarantee is None
    ledger.charge(20, 30, thrice)
    ledger.charge(0, 10, once)
    for first, last in ((5, 15), (15, 25), (0, 9), (1, 10), (0, 30), (2, 3), (21, 22)):
        with pytest.raises(BudgetExceededError, match="another batch"):
            ledger.charge(first, last, once)
    for first, last in ((-1, 5), (12, 12), (25, 31)):
        with pytest.raises(BudgetExceededError, match="numbered"):
            ledger.charge(first, last, once)
    with pytest.raises(BudgetExceededError, match="another plan"):
        ledger.charge(0, 10, thrice)
    with pytest.raises(BudgetExceededError, match="all 1 rounds"):
        ledger.charge(0, 10, once)
    ledger.charge(10, 20, once)  # none of them was charged by a refused batch
    for _ in range(2):
        ledger.charge(20, 30, thrice)
    with pytest.raises(BudgetExceededError, match="all 3 rounds"):
        ledger.charge(20, 30, thrice)
    assert ledger.guarantee.mu == max(once.mu, thrice.mu)


def test_a_schedule_that_asks_too_often_is_stopped_before_anything_is_released(binary):
    problem = problem_from_dict(Logistic())
    chosen = cr.schedule(problem, 4000, **BUDGET, method="acsa", interactivity="full", rounds=3)
    longer = dataclasses.replace(chosen, phases=(dataclasses.replace(chosen.phases[0], rounds=4),))
    seen = []
    with pytest.raises(cr.ArgumentError, match=r"phase\.rounds = 4"):
        run(problem, ArrayPopulation(*binary), longer, start=np.zeros(3), callbacks=[seen.append])
    assert not seen


def test_a_callback_can_stop_and_the_guarantee_still_holds(binary):
    def stop(entry):
        if entry.index == 4:
            raise StopTraining

    result = cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, callbacks=[stop])
    assert result.stopped
    assert result.rounds == 4
    assert result.guarantee.delta(2.0) <= 1e-6


def test_result_and_schedule_survive_json_and_the_transcript_replays(binary):
    problem = problem_from_dict(Logistic(), 0.3)
    result = cr.minimize(problem, binary, **BUDGET)
    again = Result.from_json(result.to_json())
    assert again.to_dict() == result.to_dict()
    assert again.schedule == result.schedule
    np.testing.assert_allclose(replay(problem, again), result.theta, rtol=1e-12)
    assert not {"X", "y", "vectors"} & set(json.loads(result.to_json()))
    with pytest.raises(ValueError, match="other points"):
        replay(problem_from_dict(Logistic(), 0.3, radius=0.1), again)


def test_seeded_runs_repeat_and_are_marked(binary):
    first, second, other = (cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.theta, second.theta)
    assert not np.array_equal(first.theta, other.theta)
    assert not first.private
    assert "NOT PRIVATE" in str(first)


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        lambda X: X.astype(np.float32).astype(float),
        scipy.sparse.csr_array,
        scipy.sparse.coo_matrix,
        pandas.DataFrame,
        lambda X: pyarrow.table({f"x{i}": X[:, i] for i in range(X.shape[1])}),
    ],
    ids=["numpy", "float32", "csr", "coo", "pandas", "arrow"],
)
def test_all_containers_give_the_same_theta(binary, convert):
    X, y = binary
    X = X.astype(np.float32).astype(float)
    expected = cr.minimize(problem_from_dict(Logistic()), (X, y), **BUDGET, seed=3, rounds=5).theta
    found = cr.minimize(problem_from_dict(Logistic()), (convert(X), pandas.Series(y)), **BUDGET, seed=3, rounds=5).theta
    np.testing.assert_array_equal(found, expected)


def test_multinomial_regression_and_own_losses_learn():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(6000, 2))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    labels = (np.arctan2(X[:, 1], X[:, 0]) // (2 * np.pi / 3) + 2).astype(int).clip(0, 2)
    classes = Problem(Multinomial(classes=3), Ball(dim=6, radius=10.0))
    theta = cr.minimize(classes, (X, labels), epsilon=4.0, delta=1e-6, interactivity="full", rounds=40).theta
    assert np.mean((X @ theta.reshape(3, 2).T).argmax(axis=1) == labels) > 0.85
    targets = X @ [0.5, -0.3]
    for loss in (Squared(), Absolute()):
        line = cr.minimize(Problem(loss, Ball(dim=2, radius=1.0)), (X, targets), epsilon=4.0, delta=1e-6).theta
        assert np.linalg.norm(line - [0.5, -0.3]) < 0.35
    mean = cr.CustomProblem(
        lambda theta, X, y: theta - X, Ball(dim=2, radius=1.0), lipschitz=2.0, smoothness=1.0, strong_convexity=1.0
    )
    assert np.linalg.norm(cr.minimize(mean, X / 2 + 0.2, epsilon=4.0, delta=1e-6).theta - (X / 2 + 0.2).mean(axis=0)) < 0.1


def test_faithful_and_counting_rounds_lead_to_the_same_law(binary):
    """One round of SGD from 0: theta is a multiple of the private mean, so its spread is the protocol's.

    5.5 standard errors: 1e-7.
    """
    X, y = (part[:30] for part in binary)
    problem = problem_from_dict(Logistic())
    chosen = cr.schedule(problem, 30, epsilon=8.0, delta=1e-6, method="acsa", rounds=1, interactivity="full")
    runs = {
        mode: np.array(
            [
                run(problem, ArrayPopulation(X, y, mode=mode), chosen, start=np.zeros(3), seed=s).history[0].gradient
                for s in range(300)
            ]
        )
        for mode in ("counting", "faithful")
    }
    exact = problem.gradients(np.zeros(3), X, y).mean(axis=0)
    std = chosen.phases[0].plan.noise_std / 30
    for gradients in runs.values():
        assert np.abs(gradients.mean(axis=0) - exact).max() < 5.5 * std / np.sqrt(300)
    assert runs["counting"].std() == pytest.approx(runs["faithful"].std(), rel=0.2)


@pytest.mark.slow
def test_a_whole_run_passes_the_membership_game():
    """The final theta of neighbouring populations, all rounds of a full run composed; test_game plays the same in every run."""
    X, y = np.zeros((20, 1)), np.ones(20)
    worlds = []
    for sign in (1.0, -1.0):
        here = X.copy()
        here[0] = sign
        worlds.append(here)
    problem = Problem(Logistic(), Ball(dim=1, radius=5.0))
    chosen = cr.schedule(problem, 20, epsilon=4.0, delta=1e-6, method="gd", interactivity="full", rounds=4)
    guarantee = chosen.phases[0].plan.guarantee
    seeds = iter(range(10**6))

    def mechanism(neighbour):
        population = ArrayPopulation(worlds[int(neighbour)], y)
        result = run(problem, population, chosen, start=np.zeros(1), seed=next(seeds))
        return sum(entry.gradient[0] for entry in result.history)

    result = empirical_audit(mechanism, claim=guarantee, delta=1e-6, trials=2000)
    assert result.passed
    assert result.mu_lower > 0  # gradients at half of the bound: about half of mu


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "newton"}, "method = 'newton'"),
        ({"interactivity": "none"}, "interactivity"),
        ({"interactivity": "stream"}, "PanPrivate"),
        ({"method": "phased"}, "strongly convex"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"start": [1.0]}, "start"),
        ({"rounds": 5000}, "rounds"),
        ({"calibration": "loose"}, "calibration"),
        ({"constants": "mine"}, "constants"),
        ({"groups": "odd"}, "groups"),
    ],
)
def test_bad_arguments_are_named_before_anyone_is_asked(binary, change, words):
    class Silent(ArrayPopulation):
        def answer(self, *_):
            raise AssertionError("a user was asked")

    with pytest.raises(cr.ArgumentError, match=words):
        cr.minimize(problem_from_dict(Logistic()), Silent(*binary), **{**BUDGET, **change})


def test_bad_records_are_refused_before_anyone_is_asked(binary):
    X, y = binary
    problem = problem_from_dict(Logistic())
    holes = X.copy()
    holes[7, 1] = np.nan
    for data, words in [
        ((holes, y), "X"),
        ((X, y[:-1]), "as long as X"),
        ((X[:, :2], y), r"X\.shape"),
        (X, r"\(X, y\)"),
        ((X, y, y), "data"),
        ((X[:0], y[:0]), "X"),
        ((X.astype(str), y), "X"),
    ]:
        with pytest.raises(cr.ArgumentError, match=words):
            cr.minimize(problem, data, **BUDGET)
    with pytest.raises(ValueError, match=r"^y = 4"):
        cr.minimize(problem, (X, y + 4), **BUDGET)


def test_paper_constants_run_and_differ(binary):
    ours, printed = (
        cr.schedule(problem_from_dict(Logistic()), 4000, **BUDGET, constants=constants) for constants in ("tight", "paper")
    )
    assert printed.phases[0].paper_steps
    assert printed.phases[0].damping != ours.phases[0].damping
    assert cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, constants="paper").private


def test_equal_and_doubling_groups():
    problem = problem_from_dict(Logistic(), 0.3)
    equal, doubling = (cr.schedule(problem, 4096, **BUDGET, groups=groups) for groups in ("equal", "doubling"))
    assert len({phase.users for phase in equal.phases}) == 1
    assert doubling.phases[-1].users == 2048
    assert sum(phase.users for phase in doubling.phases) <= 4096
    assert doubling.bound <= equal.bound


def test_a_schedule_for_other_users_or_another_problem_is_refused_before_anyone_is_asked(binary):
    X, y = binary
    problem = problem_from_dict(Logistic())
    chosen = cr.schedule(problem, 4000, **BUDGET, rounds=4)

    class Silent(ArrayPopulation):
        def answer(self, *_):
            raise AssertionError("a user was asked")

    phase = chosen.phases[0]
    wrong = [
        (problem, Silent(X[:3900], y[:3900]), chosen),
        (Problem(Logistic(), Ball(dim=3, radius=3.0), feature_norm=2.0), Silent(X, y), chosen),
        *(
            (problem, Silent(X, y), dataclasses.replace(chosen, phases=(dataclasses.replace(phase, **change),)))
            for change in (
                {"rounds": 5},
                {"batch": 999},
                {"damping": -1.0},
                {"algorithm": "newton", "step": 1.0, "damping": None},
                {"users": -5},
            )
        ),
        (problem, Silent(X, y), dataclasses.replace(chosen, phases=())),
    ]
    for given_problem, population, given_schedule in wrong:
        with pytest.raises(cr.ArgumentError):
            run(given_problem, population, given_schedule, start=np.zeros(3))


def test_answers_that_are_not_private_make_a_result_that_is_not(binary):
    class Careless(ArrayPopulation):
        def answer(self, question):
            return super().answer(dataclasses.replace(question, secret=Secret.of_seed(1)))

    assert cr.minimize(problem_from_dict(Logistic()), Careless(*binary), **BUDGET).guarantee is None


def test_later_phases_start_within_the_diameter_and_never_worsen_the_bound():
    """The distance of a later phase is from the output of the one before it, which may lie anywhere in the domain."""
    problem = Problem(Logistic(), Ball(dim=3, radius=2.0), l2=0.01)
    chosen = cr.schedule(problem, 2000, epsilon=1.0, delta=1e-6, method="phased")
    for before, after in itertools.pairwise(chosen.phases):
        assert after.distance == pytest.approx(min(4.0, np.sqrt(2 * before.bound / 0.01)))
    assert chosen.bound <= cr.schedule(problem, 2000, epsilon=1.0, delta=1e-6, method="acsa").bound * 1.01


def test_own_losses_with_kinks_are_not_smoothed_in_name_only():
    own = cr.CustomProblem(lambda theta, X, y: 0.1 * theta - X, Ball(dim=3, radius=2.0), lipschitz=1.2, strong_convexity=0.1)
    assert {phase.algorithm for phase in cr.schedule(own, 2000, **BUDGET).phases} == {"descent"}
    assert all(phase.smoothing is None for phase in cr.schedule(own, 2000, **BUDGET).phases)
    assert cr.schedule(own, 2000, **BUDGET, interactivity="full", method="gd").bound_on == "empirical"


def test_overrides_that_would_be_ignored_are_refused():
    strong = problem_from_dict(Logistic(), 0.3)
    for change in ({"rounds": 7}, {"constants": "paper"}):
        with pytest.raises(cr.ArgumentError, match=next(iter(change))):
            cr.schedule(strong, 2000, **BUDGET, **change)
    assert cr.schedule(problem_from_dict(Logistic()), 2000, **BUDGET, rounds=5.0).rounds == 5


def test_stopped_runs_replay_as_far_as_they_went(binary):
    def stop(entry):
        if entry.index == 3:
            raise StopTraining

    result = cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, callbacks=[stop])
    assert result.bound is None
    np.testing.assert_allclose(replay(problem_from_dict(Logistic()), result), result.theta)


def test_a_guarantee_pasted_onto_a_seeded_result_is_refused(binary):
    seeded, private = (cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, rounds=2, seed=seed) for seed in (1, None))
    forged = {**seeded.to_dict(), "guarantee": private.guarantee.to_dict()}
    with pytest.raises(cr.ArgumentError, match="seeded"):
        Result.from_json(json.dumps(forged))


# --- the practical rule, clipping, honest users in random batches


def test_practical_steps_are_public_and_clip_at_the_steepest_gradient_of_the_start():
    problem = Problem(loss=Logistic(), domain=Ball(dim=20, radius=50.0), feature_norm=2.0)
    chosen = cr.schedule(problem, 30_000, epsilon=1.0, delta=1e-6, rule="practical", lots="open")
    phase = chosen.phases[0]
    assert (chosen.method, chosen.bound, phase.plan.norm) == ("acsa", None, 1.0)
    # T minimises 2 beta D^2 / (T (T + 1)) + (2 / sqrt 3) D sigma / sqrt T for the practical beta, D and L, by brute force
    s = phase.plan.noise_std

    def value(T):
        batch = 30_000 // T
        sigma = math.sqrt(20 * s**2 / batch**2 + 1.0 / batch)
        return 2 * 0.2 * (50 / 3) ** 2 / (T * (T + 1)) + 2 / math.sqrt(3) * 50 / 3 * sigma / math.sqrt(T)

    assert value(phase.rounds) <= 1.001 * min(value(T) for T in range(1, 2000))


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
@pytest.mark.parametrize(("loss", "radius", "usual"), [(Hinge(), 50.0, 0.2), (Pinball(0.5), 2.0, 4.0), (Absolute(), 0.5, 32.0)])
def test_practical_steps_of_a_kink_balance_its_bias_with_the_curvature_of_the_mean(loss, radius, usual, interactivity):
    users, D, L = 30_000, radius / 3, loss.slope_bound(0.0)
    problem = Problem(loss=loss, domain=Ball(dim=20, radius=radius), feature_norm=1.0)
    options = {"epsilon": 1.0, "delta": 1e-6, "rule": "practical", "interactivity": interactivity, "lots": "open"}
    phase = cr.schedule(problem, users, **options).phases[0]
    full, s = interactivity == "full", phase.plan.noise_std

    def sigma(T):
        batch, noise = (users, s * math.sqrt(T / phase.rounds)) if full else (users // T, s)
        return math.sqrt(20 * noise**2 / batch**2 + (0.0 if full else L**2 / batch))

    def value(T):
        """The bound, the mean's curvature and the smoothing, both by search: over Thm 4.7's bound, then for a bias as large."""
        betas, weight = np.geomspace(1e-3, 1e6, 4000), 2 * D**2 / (T * (T + 1))
        c = min(usual, betas[np.argmin(weight * betas + L**2 / (2 * betas))])
        beta = betas[np.argmin(np.abs(np.log(L**2 / (2 * betas) / (weight * c))))]
        return weight * c + L**2 / (2 * beta) + 2 / math.sqrt(3) * D * sigma(T) / math.sqrt(T), c, beta

    values = {T: value(T)[0] for T in {*range(1, 101), *np.geomspace(100, users, 60).astype(int)}}
    if full:
        assert values[phase.rounds] <= 1.26 * min(values.values()) or phase.rounds == 100
        assert phase.rounds == 1 or values[phase.rounds - 1] >= 1.24 * min(values.values())
    else:
        assert value(phase.rounds)[0] <= 1.001 * min(values.values())
    T, (_, c, beta) = phase.rounds, value(phase.rounds)
    assert phase.smoothing == pytest.approx(beta, rel=0.02)
    assert phase.damping == pytest.approx(2 * c + sigma(T) / (3 * D) * math.sqrt(sum(t * t for t in range(1, T + 1))), rel=0.01)


def test_practical_steps_of_a_few_rounds_take_a_kink_for_as_curved_as_its_envelope():
    """A mean is never more curved than the envelopes it is of: then the steps are those of the bound, at the practical D."""
    problem = Problem(loss=Hinge(), domain=Ball(dim=20, radius=50.0), feature_norm=1.0)
    phase = cr.schedule(problem, 30_000, epsilon=1.0, delta=1e-6, rule="practical", rounds=3).phases[0]
    assert phase.smoothing == pytest.approx(math.sqrt(12) / (2 * 50 / 3))
    assert phase.smoothing < 0.2


@pytest.mark.parametrize(("loss", "radius"), [(Hinge(), 50.0), (Pinball(0.9), 2.0)])
@pytest.mark.parametrize("offset", [0.0, 0.5, 2.0])
def test_practical_steps_of_a_kink_beat_those_of_one_users_envelope(loss, radius, offset):
    """Far from the start in directions with little energy, beside an intercept that has much or none; both with the same noise."""
    rng, users, rows = np.random.default_rng(5), 40_000, 10_000  # a run of all users; the mean over some of them is the same
    X = np.column_stack([rng.normal(size=(rows, 8)) * [0.05, 0.05, *[0.2] * 6], np.full(rows, offset)])
    score = 20 * X[:, 0] - 20 * X[:, 1] + X[:, 2]
    y = score + rng.normal(size=rows) > 0 if isinstance(loss, Hinge) else np.clip(score / 5 + 0.1 * rng.normal(size=rows), -1, 1)
    problem = Problem(loss=loss, domain=Ball(dim=9, radius=radius), feature_norm=1.0)
    chosen = cr.schedule(problem, users, epsilon=1.0, delta=1e-6, interactivity="full", rule="practical")
    (phase,), T, D = chosen.phases, chosen.rounds, radius / 3
    envelope = loss.slope_bound(0.0) * math.sqrt(T * (T + 1)) / (2 * D)
    noise = phase.gradient_std / D / 12 * math.sqrt(T * (T + 1) * (2 * T + 1) / 6)
    losses = []
    for step, smoothing in ((phase.damping, phase.smoothing), (2 * envelope + noise, envelope)):
        rng = np.random.default_rng(6)

        def gradient(theta, smoothing=smoothing, rng=rng):
            mean = problem.moreau_gradients(theta, X, y, smoothing).mean(axis=0)
            return mean + phase.plan.noise_std / users * rng.standard_normal(9)

        losses.append(problem.losses(acsa(gradient, problem.domain.project, np.zeros(9), T, step), X, y).mean())
    assert losses[0] < 0.95 * losses[1]


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Huber(kappa=1.0), Multinomial(classes=3)])
def test_practical_runs_keep_the_guarantee_and_learn(loss, interactivity):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(20_000, 4)) / 4
    score = X @ [4.0, -4.0, 2.0, 0.0]
    y = score if isinstance(loss, Huber) else np.digitize(score, [-1, 1]) if isinstance(loss, Multinomial) else score > 0
    problem = Problem(loss=loss, domain=Ball(dim=4 * loss.outputs, radius=20.0), feature_norm=1.0)
    result = cr.minimize(problem, (X, y), epsilon=1.0, delta=1e-6, interactivity=interactivity, rule="practical", seed=1)
    secure = cr.minimize(problem, (X, y), epsilon=1.0, delta=1e-6, interactivity=interactivity, rule="practical")
    assert secure.guarantee.epsilon(1e-6) <= 1.0
    assert result.bound is None
    here, start = (problem.losses(theta, X, y).mean() for theta in (result.theta, np.zeros(problem.dim)))
    assert here < 0.75 * start
    assert np.array_equal(replay(problem, Result.from_json(result.to_json())), result.theta)


def test_clipping_halves_the_noise_and_forfeits_the_bound(binary):
    problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0)
    plain, clipped, beyond = (
        cr.schedule(problem, 4000, epsilon=1.0, delta=1e-6, rounds=8, clip=clip, lots="open")
        for clip in (None, problem.lipschitz / 2, 100.0)
    )
    assert clipped.phases[0].plan.noise_std == pytest.approx(plain.phases[0].plan.noise_std / 2, rel=1e-6)
    assert clipped.bound is None
    assert beyond == plain
    assert cr.minimize(problem, binary, epsilon=1.0, delta=1e-6, rounds=8, clip=0.5).guarantee.epsilon(1e-6) <= 1.0


@pytest.mark.parametrize("loss", [Logistic(), Hinge()])
@pytest.mark.parametrize("rule", ["bound", "practical"])
def test_the_papers_steps_are_those_of_the_papers_smoothing(loss, rule):
    """Theorem 4.7 smooths by L sqrt(T (T + 1)) / 2D, whatever is known about the mean's curvature."""
    problem = Problem(loss=loss, domain=Ball(dim=3, radius=1.0), feature_norm=1.0)
    options = {"epsilon": 1.0, "delta": 1e-6, "method": "smoothed-acsa", "rule": rule, "constants": "paper", "rounds": 30}
    (phase,) = cr.schedule(problem, 100_000, **options).phases
    clip, distance_divisor = (problem.usual_lipschitz, 3.0) if rule == "practical" else (problem.lipschitz, 1.0)
    assert phase.smoothing == pytest.approx(clip * math.sqrt(30 * 31) / (2 * phase.distance / distance_divisor))
    assert phase.damping == pytest.approx(32**1.5 * phase.gradient_std / phase.distance + phase.smoothing)


def test_less_curvature_makes_brequired_steps(binary):
    """The damping has twice the curvature in it, beside the noise's part, which stays."""
    problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0)
    options = {"epsilon": 1.0, "delta": 1e-6, "rounds": 8, "rule": "plain"}
    usual, bold = (cr.schedule(problem, 4000, **options, curvature=curvature) for curvature in (None, 0.02))
    assert usual.phases[0].damping - bold.phases[0].damping == pytest.approx(2 * (0.05 - 0.02))
    assert bold == replace(usual, phases=(replace(usual.phases[0], damping=bold.phases[0].damping),))
    run, same = (cr.minimize(problem, binary, **options, curvature=curvature, seed=1) for curvature in (0.02, 0.05))
    assert run.schedule == bold
    assert np.array_equal(same.theta, cr.minimize(problem, binary, **options, seed=1).theta)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rule": "fast"}, "'bound'"),
        ({"rule": "practical", "method": "sgd"}, "rule='bound'"),
        ({"clip": -1.0}, "clip"),
        ({"curvature": 0.1}, "rule='practical'"),
        ({"curvature": 0.1, "rule": "practical", "constants": "paper"}, "tight constants"),
        ({"curvature": 0.0, "rule": "practical"}, "curvature = 0.0"),
        ({"clip": 0.5, "method": "phased"}, "left out for phased"),
    ],
)
def test_practical_and_clip_refuse_what_they_cannot_do(change, words):
    problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0, l2=0.1)
    with pytest.raises(cr.ArgumentError, match=words):
        cr.schedule(problem, 4000, epsilon=1.0, delta=1e-6, **change)


def test_batches_count_on_the_honest_users_that_random_batches_hold(binary):
    problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0)
    chosen = cr.schedule(problem, 4000, epsilon=1.0, delta=1e-6, honest=0.8, rounds=4)
    plan = chosen.phases[0].plan
    assert plan.honest_users == honest_in_batch(4000, 0.8, 1000, chosen.shortfall) < 800
    result = cr.minimize(problem, binary, epsilon=1.0, delta=1e-6, honest=0.8, rounds=4)
    assert result.guarantee.honest == 0.8
    assert result.guarantee.slack == plan.guarantee.slack + chosen.shortfall
    assert result.guarantee.epsilon(1e-6) <= 1.0
    with pytest.raises(cr.ArgumentError, match="shortfall"):
        run(problem, ArrayPopulation(*binary), dataclasses.replace(chosen, shortfall=1e-12), start=np.zeros(3))
    full = cr.schedule(problem, 4000, epsilon=1.0, delta=1e-6, honest=0.8, interactivity="full")
    assert (full.shortfall, full.phases[0].plan.honest_users) == (0.0, 3200)


# --- what goes wrong is said, and nothing that was paid for is lost


def test_an_error_in_a_callback_carries_the_rounds_done(binary):
    def fail(done):
        if done.index == 3:
            raise KeyError("a mistake of mine")

    with pytest.raises(KeyError) as caught:
        cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, rounds=8, callbacks=fail)
    partial = caught.value.result
    assert (partial.rounds, partial.stopped, partial.private) == (3, True, True)
    assert any(".result" in note for note in caught.value.__notes__)


def test_lists_columns_and_json_of_others_are_told_apart(binary):
    X, y = binary
    with pytest.raises(cr.ArgumentError, match="tuple of features"):
        cr.minimize(problem_from_dict(Logistic()), [X, y], **BUDGET)
    frame = pandas.DataFrame(X, columns=["users", "answer", "x"])
    assert cr.minimize(problem_from_dict(Logistic()), (frame, y), **BUDGET, rounds=2).rounds == 2
    chosen = cr.schedule(problem_from_dict(Logistic()), 4000, **BUDGET)
    plain = chosen.to_dict()
    with pytest.raises(cr.ArgumentError, match="flavour"):
        cr.Schedule.from_dict(plain | {"flavour": 1})
    required = {name: value for name, value in plain.items() if name not in ("honest", "shortfall")}
    assert cr.Schedule.from_dict(required) == chosen


def test_a_transcript_with_rounds_to_spare_does_not_replay(binary):
    problem = problem_from_dict(Logistic())
    result = cr.minimize(problem, binary, **BUDGET, rounds=3)
    longer = dataclasses.replace(result, history=(*result.history, result.history[-1]))
    with pytest.raises(ValueError, match="other rounds"):
        replay(problem, longer)


@pytest.mark.parametrize("interactivity", ["full", "sequential"])
@pytest.mark.parametrize(
    "edit",
    [
        lambda v: v["schedule"]["phases"][0]["plan"].update(
            cr.plan_sum(**BUDGET, users=v["schedule"]["phases"][0]["batch"] * 100, dim=3).to_dict()
        ),
        lambda v: v["schedule"].update(interactivity="full" if v["schedule"]["interactivity"] == "sequential" else "sequential"),
        lambda v: v["schedule"].update(interactivity="stream"),
        lambda v: v["history"].extend([v["history"][0] | {"phase": 0, "index": 7}] * 50),
        lambda v: v["history"].extend([v["history"][0] | {"phase": 99, "index": 7}]),
        lambda v: v["history"].extend([v["history"][-1] | {"index": 7}]),
        lambda v: v["history"][0].update(phase=-3),
        lambda v: v["history"][0].update(phase=1.5),
        lambda v: v["history"][0].update(users=1),
        lambda v: v["history"][0].update(flavour=1),
        lambda v: v.update(users=3),
        lambda v: v.update(users="many"),
        lambda v: v["guarantee"].update(mu=0.01),
        lambda v: v["guarantee"].update(mu=v["guarantee"]["mu"] * (1 - 9e-7)),
        lambda v: v["guarantee"].update(slack=v["guarantee"]["slack"] * (1 - 9e-7)),
        lambda v: v["guarantee"].update(mu=v["guarantee"]["mu"] * (1 - 1e-14)),
        lambda v: v["guarantee"].update(slack=0.0),
        lambda v: v["guarantee"].update(watched=Guarantee(mu=0.0, theorem="nobody's").to_dict()),
        lambda v: (v["schedule"].update(shortfall=0.0), v["guarantee"].update(honest=v["schedule"]["phases"][0]["plan"]["honest"])),
        lambda v: (v["schedule"].update(honest=0.5), v["guarantee"].update(honest=0.5)),
    ],
)
def test_an_edited_result_that_claims_more_than_its_plans_prove_is_refused(binary, interactivity, edit):
    options = {"interactivity": interactivity, "rounds": 3, "honest": 0.9}
    genuine = cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, **options)
    values = json.loads(genuine.to_json())
    assert Result.from_json(json.dumps(values)).guarantee == genuine.guarantee
    edit(values)
    try:
        read = Result.from_json(json.dumps(values))
    except (cr.ArgumentError, cr.NoCertificateError):
        return
    # an edit that changes nothing for this interactivity (no shortfall in the full model) must leave the claim as it was
    assert (read.guarantee, read.rounds) == (genuine.guarantee, genuine.rounds)


def test_a_full_run_whose_plan_covers_fewer_rounds_is_refused(binary):
    values = json.loads(cr.minimize(problem_from_dict(Logistic()), binary, **BUDGET, interactivity="full", rounds=5).to_json())
    one = cr.plan_sum(**BUDGET, users=4000, dim=3, norm=values["schedule"]["phases"][0]["plan"]["norm"])
    values["schedule"]["phases"][0]["plan"] = one.to_dict()
    values["guarantee"] = one.guarantee.to_dict()
    with pytest.raises(cr.ArgumentError, match=r"phase\.rounds"):
        Result.from_json(json.dumps(values))


def test_plans_that_count_on_more_honest_users_than_a_batch_surely_holds_are_refused(binary):
    X, y = binary
    chosen = cr.schedule(problem_from_dict(Logistic()), 400, **BUDGET, interactivity="full", rounds=2, honest=0.5)
    with pytest.raises(cr.ArgumentError, match="honest users"):  # a random tenth of these people holds fewer
        run(problem_from_dict(Logistic()), ArrayPopulation(X, y), chosen, start=np.zeros(3))
    sequential = cr.schedule(problem_from_dict(Logistic()), 4000, **BUDGET, rounds=4, honest=0.5)
    with pytest.raises(cr.ArgumentError, match="honest users"):
        run(problem_from_dict(Logistic()), ArrayPopulation(X, y), dataclasses.replace(sequential, shortfall=0.0), start=np.zeros(3))


@pytest.mark.parametrize("calibration", ["tight", "paper"])
@pytest.mark.parametrize(("loss", "l2", "method"), [(Logistic(), 0.0, "sgd"), (Hinge(), 0.0, "auto"), (Logistic(), 0.1, "auto")])
@pytest.mark.parametrize("users", [200, 20_000])
def test_schedules_are_found_for_every_honest_fraction(loss, l2, method, users, calibration):
    for honest in (0.5, 0.99):
        chosen = cr.schedule(
            problem_from_dict(loss, l2), users, epsilon=0.9, delta=1e-6, method=method, honest=honest, calibration=calibration
        )
        if calibration == "tight":
            assert chosen.guarantee.delta(0.9) <= 1e-6
            assert chosen.guarantee.honest == honest


def test_rounds_are_chosen_with_the_honest_users_that_batches_hold():
    problem = problem_from_dict(Hinge())
    chosen = cr.schedule(problem, 10_000, epsilon=1.0, delta=1e-6, honest=0.2)
    others = [cr.schedule(problem, 10_000, epsilon=1.0, delta=1e-6, honest=0.2, rounds=T).bound for T in (5, 10, 25, 50, 100)]
    assert chosen.bound <= 1.03 * min(others)


def test_a_run_that_a_record_may_have_ended_carries_no_guarantee(binary):
    X, y = binary

    def gradient(theta, X, y):
        return np.where((X[:, :1] > 0.9) & (np.abs(theta).sum() > 0), np.nan, X)

    problem = cr.CustomProblem(gradient, Ball(dim=3, radius=3.0), lipschitz=1.0, smoothness=1.0)
    with pytest.raises(cr.ArgumentError, match="finite") as caught:
        cr.minimize(problem, (X, y), **BUDGET, rounds=4)
    assert caught.value.result.guarantee is None
    assert any("no guarantee" in note for note in caught.value.__notes__)


def test_stopping_before_the_first_round_leaves_the_start(binary):
    class Reluctant(ArrayPopulation):
        def answer(self, question):
            raise StopTraining

    start = np.full(3, 0.5)
    result = cr.minimize(problem_from_dict(Logistic()), Reluctant(*binary), **BUDGET, start=start)
    assert (result.rounds, result.stopped) == (0, True)
    assert np.array_equal(result.theta, start)
    assert np.array_equal(replay(problem_from_dict(Logistic()), Result.from_json(result.to_json())), start)


def test_a_stopped_run_gives_what_the_algorithm_makes_of_its_rounds(binary):
    """As if it had been planned for so many rounds: the same steps, the aggregate of those done."""

    def stop(entry):
        if entry.index == 5:
            raise StopTraining

    chosen = cr.schedule(problem_from_dict(Logistic()), 4000, **BUDGET, rounds=10)
    stopped = run(problem_from_dict(Logistic()), ArrayPopulation(*binary), chosen, start=np.zeros(3), seed=1, callbacks=stop)
    shorter = dataclasses.replace(chosen, phases=(dataclasses.replace(chosen.phases[0], rounds=5),))
    np.testing.assert_array_equal(
        stopped.theta, run(problem_from_dict(Logistic()), ArrayPopulation(*binary), shorter, start=np.zeros(3), seed=1).theta
    )


def test_only_our_own_gradients_are_asked_by_several_threads_and_as_products():
    """A loss or a problem of one's own may keep something between calls, or say something else than what we know of ours."""
    from croupier.optimizer._gradients import Gradients  # noqa: PLC0415
    from croupier.problem import Ball, Logistic, Problem  # noqa: PLC0415

    class OwnLoss(Logistic):
        pass

    class OwnProblem(Problem):
        def moreau_gradients(self, theta, X, y, beta):
            return np.zeros((len(X), 2))

    ours, theta = Problem(loss=Logistic(), domain=Ball(dim=2, radius=1.0)), np.zeros(2)
    records = np.zeros((3, 2)), np.ones(3)
    theirs = [Problem(loss=OwnLoss(), domain=ours.domain), OwnProblem(loss=Logistic(), domain=ours.domain)]
    for problem in (ours, ours.smoothed(2.0)):
        assert Gradients(problem, theta).parallel
        assert isinstance(Gradients(problem, theta).vectors(*records), LinearVectors)
    for problem in [*theirs, *(one.smoothed(2.0) for one in theirs)]:
        assert not Gradients(problem, theta).parallel
        assert isinstance(Gradients(problem, theta).vectors(*records), np.ndarray)
