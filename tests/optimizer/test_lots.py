"""Training with secret lots: what is promised, what runs, and that nothing that leaves says how many reports were real."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import math
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

import croupier as cr
from croupier.cli.terminal import rounds_shown
from croupier.estimator import PrivacyAccount, ShuffleLogisticRegression
from croupier.optimizer import Result, Schedule, StopTraining
from croupier.optimizer.planning import drift, expected_mu, spread
from croupier.optimizer.training import run
from croupier.population import ArrayPopulation, ParquetPopulation
from croupier.population._blocks import BlockPopulation
from croupier.population.population import UnreachableError, draw_lots
from croupier.privacy import plan_lots
from croupier.privacy.calibration import prove
from croupier.privacy.lots import _largest_mu
from croupier.problem import Ball, Hinge, Logistic, Problem
from croupier.protocol.randomness import Secret
from croupier.report import html_report
from croupier.validation import ArgumentError

USERS, ROUNDS = 3000, 10
PROBLEM = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0), feature_norm=1.0)
ASKED = {"epsilon": 1.0, "delta": 1e-6, "lots": "secret", "rounds": ROUNDS}


@pytest.fixture(scope="module", name="people")
def made():
    X = np.random.default_rng(0).normal(size=(USERS, 3)) / 3
    return X, (X[:, 0] > 0).astype(int)


class Noting(ArrayPopulation):
    """Notes how many users each lot has: what nobody may learn."""

    def answer(self, question):
        self.sizes = [*getattr(self, "sizes", []), question.batch.size]
        return super().answer(question)


def test_a_run_promises_what_its_lots_do_and_both_figures(people):
    result = cr.minimize(PROBLEM, people, **ASKED)
    lots = result.schedule.phases[0].lots
    assert result.guarantee == lots.guarantee == result.schedule.guarantee
    assert result.guarantee.epsilon(1e-6) <= 1.0
    assert result.guarantee.if_watched.epsilon(1e-6) > 2.0  # no claim by the plan of one round
    assert result.guarantee != result.schedule.phases[0].plan.guarantee
    assert result.batch_sizes == (lots.size,) * ROUNDS
    again = Result.from_json(result.to_json())
    assert (again.guarantee, again.schedule) == (result.guarantee, result.schedule)
    assert Schedule.from_json(result.schedule.to_json()) == result.schedule


def test_the_mean_gradient_is_the_sum_over_the_public_number_of_users(people):
    """At the start, over all rounds and many deals: unbiased for the mean of all users, whatever the sizes. Alarms at 1e-6."""
    X, y = people
    lots = cr.schedule(PROBLEM, USERS, **ASKED).phases[0].lots
    truth = PROBLEM.gradients(np.zeros(3), X, y).mean(axis=0)
    gradients = np.array([cr.minimize(PROBLEM, people, **ASKED, seed=seed).history[0].gradient for seed in range(60)])
    sampling = np.mean(PROBLEM.gradients(np.zeros(3), X, y) ** 2, axis=0) * ROUNDS / USERS
    std = np.sqrt(sampling + (lots.noise_std * ROUNDS / USERS) ** 2)
    assert np.all(np.abs(gradients.mean(axis=0) - truth) < 5.1 * std / math.sqrt(60))
    assert np.all(gradients.std(axis=0) > 0.5 * std)


@pytest.mark.parametrize(
    "how",
    [{"interactivity": "full"}, {"calibration": "paper"}, {"constants": "paper"}, {"method": "phased"}],
    ids=str,
)
def test_secret_lots_are_refused_where_nothing_is_proved(how):
    problem = dataclasses.replace(PROBLEM, l2=0.1) if "method" in how else PROBLEM
    asked = {name: value for name, value in ASKED.items() if name != "rounds"}
    with pytest.raises(ArgumentError, match="lots is 'secret' for"):
        cr.schedule(problem, USERS, **asked | how)
    assert not cr.schedule(problem, USERS, **asked | how | {"lots": "auto"}).secret_lots


def test_practical_runs_are_secret_by_default_and_bounded_ones_where_the_bound_is_smaller():
    asked = {"epsilon": 0.1, "delta": 1e-6}
    assert cr.schedule(PROBLEM, USERS, **asked, rule="practical").secret_lots
    wide = Problem(loss=Logistic(), domain=Ball(dim=300, radius=5.0), feature_norm=1.0)
    bounds = {lots: cr.schedule(wide, 10**5, **asked, lots=lots).bound for lots in ("auto", "secret", "open")}
    assert bounds["auto"] == bounds["secret"] < bounds["open"]
    few = {lots: cr.schedule(PROBLEM, USERS, epsilon=4.0, delta=1e-6, lots=lots).bound for lots in ("auto", "secret", "open")}
    assert few["auto"] == min(few.values())


@pytest.mark.parametrize(("loss", "method"), [(Logistic(), "auto"), (Hinge(), "sgd")])
def test_runs_end_within_their_bound(people, loss, method):
    X, y = people
    problem = Problem(loss=loss, domain=Ball(dim=3, radius=2.0), feature_norm=1.0)
    asked = {"epsilon": 2.0, "delta": 1e-6, "lots": "secret", "method": method}
    best = min(
        problem.losses(cr.minimize(problem, people, epsilon=50.0, delta=1e-6, interactivity="full", seed=s).theta, X, y).mean()
        for s in range(2)
    )
    chosen = cr.schedule(problem, USERS, **asked)
    losses = [problem.losses(cr.minimize(problem, people, **asked, seed=s).theta, X, y).mean() for s in range(3)]
    assert chosen.bound > 0
    assert np.mean(losses) - best < chosen.bound


def test_the_expected_noise_is_near_the_certified_one():
    for epsilon, rounds in ((0.1, 50), (0.5, 20), (1.0, 30), (2.0, 10)):
        mu = _largest_mu(epsilon, 0.9e-6, rounds, "replace-one")
        alone = _largest_mu(epsilon, 0.9e-6, 1, "replace-one")
        assert expected_mu(alone, rounds) == pytest.approx(mu, rel=0.12)


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_drift_and_spread_are_those_of_the_sizes_that_are_left(rounds):
    """By the law of the users that are left before round t, Bin(n, (T - t + 1) / T), from simulated lots."""
    n, deals = 400, 4000
    lots = np.random.default_rng(3).integers(rounds, size=(deals, n))
    sizes = np.stack([np.bincount(deal, minlength=rounds) for deal in lots])
    left = n - np.cumsum(sizes, axis=1) + sizes
    t = np.arange(1, rounds + 1)
    expected = left / (rounds - t + 1) * rounds / n - 1  # relative to the public n / T, given the rounds before
    rms = np.sqrt(np.mean(expected**2, axis=0))
    weights = 2 * t / (rounds * (rounds + 1))
    assert drift(rounds, accelerated=True) / math.sqrt(n) == pytest.approx(np.sum(weights * rms), rel=0.05, abs=1e-12)
    assert drift(rounds, accelerated=False) / math.sqrt(n) == pytest.approx(np.mean(rms), rel=0.05, abs=1e-12)
    extra = np.average(rounds / n + rms**2, weights=t**2) / (rounds / n)
    assert spread(rounds) == pytest.approx(extra, rel=0.05)
    assert drift(1000, accelerated=True) < 2.36
    assert drift(1000, accelerated=False) < math.pi / 2


@pytest.mark.parametrize("change", ["mu", "rounds", "watched", "none watched", "users", "size"])
def test_an_edited_result_that_claims_more_than_its_lots_prove_is_refused(people, change):
    values = json.loads(cr.minimize(PROBLEM, people, **ASKED).to_json())
    claim, phase = values["guarantee"], values["schedule"]["phases"][0]
    match change:
        case "mu":
            claim["allocations"][0]["mu"] *= 0.9
        case "rounds":
            claim["allocations"][0]["rounds"] *= 2
        case "watched":
            claim["watched"]["mu"] *= 0.5
        case "none watched":
            del claim["watched"]
        case "users":
            values["users"] += 1
        case "size":
            values["history"][2]["users"] -= 1  # as if a round had said how many were real
    with pytest.raises(ArgumentError):
        Result.from_json(json.dumps(values))
    assert phase["lots"]["rounds"] == ROUNDS


@pytest.mark.parametrize("exclusions", [True, False])
def test_a_round_may_lack_the_bad_reports_that_its_lots_allow_for_and_no_more(people, exclusions):
    """A deployed round leaves bad reports out; its model was refused when it was read, as if it had lost its crowd."""
    chosen = cr.schedule(PROBLEM, USERS, **ASKED, rule="practical", honest=0.8, exclusions=exclusions)
    values = run(PROBLEM, ArrayPopulation(*people), chosen, start=np.zeros(3)).to_dict()
    lots = chosen.phases[-1].lots
    most = lots.most_excluded
    assert (most > 0) == exclusions
    values["history"][0]["users"] = lots.size - most
    assert Result.from_dict(values).history[0].users == lots.size - most
    values["history"][0]["users"] -= 1
    with pytest.raises(ArgumentError, match=r"history\.users"):
        Result.from_dict(values)


def test_stopping_early_keeps_the_promise_of_all_rounds(people):
    def stop(done):
        if done.index == 2:
            raise StopTraining

    result = cr.minimize(PROBLEM, people, **ASKED, callbacks=stop)
    assert (result.stopped, result.rounds) == (True, 2)
    assert result.guarantee == result.schedule.phases[0].lots.guarantee
    assert Result.from_json(result.to_json()).guarantee == result.guarantee


def test_a_run_that_is_cut_off_goes_on_with_the_same_lots_and_keeps_none_of_them(people, tmp_path):
    begun = []

    def die(done):
        begun.append(done)
        if len(begun) == 4:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    first, second = Noting(*people), Noting(*people)
    with pytest.raises(KeyboardInterrupt):
        cr.minimize(PROBLEM, first, **ASKED, callbacks=die, checkpoint=path)
    secret = Secret(bytes.fromhex(json.loads(path.read_text().splitlines()[0])["secret"]), private=True)
    whole = cr.minimize(PROBLEM, second, **ASKED, checkpoint=path)
    lots = draw_lots(secret.derive("deal"), USERS, ROUNDS, whole.schedule.phases[0].batch)
    assert first.sizes + second.sizes == [batch.size for batch in lots]
    assert [done.gradient.tolist() for done in begun] == [done.gradient.tolist() for done in whole.history[:4]]
    text = path.read_text()
    assert secret.key.hex() not in text
    assert json.loads(text.splitlines()[0])["secret"] is None


def test_memory_and_files_give_the_same_model(people, tmp_path):
    X, y = people
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y})
    parquet.write_table(table, tmp_path / "people.parquet", row_group_size=1000)
    files = ParquetPopulation(tmp_path, target="y")
    memory = ArrayPopulation(X, y, blocks=[placed.users for placed in files.shard.placed])
    thetas = [cr.minimize(PROBLEM, population, **ASKED, seed=3).theta for population in (memory, files)]
    assert thetas[0].tobytes() == thetas[1].tobytes()


def test_a_population_that_does_not_add_blanks_is_refused(people):
    class Plain(ArrayPopulation):
        def answer(self, question):
            return dataclasses.replace(super().answer(question), users=question.batch.size)

    with pytest.raises(ArgumentError, match="fills a round of a secret lot up with blanks"):
        cr.minimize(PROBLEM, Plain(*people), **ASKED)


# What noise is in, and names and digests that are drawn afresh in every run: everything else has to be the same.
NOISY = ("theta", "gradient", "coef_", "intercept_", "run", "records", "id", "time")


def artefacts(people, folder):
    """Everything that leaves a private fit, as text, and the sizes that must not be in it."""
    log, shown = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger().addHandler(handler)
    model = ShuffleLogisticRegression(
        epsilon=1.0, classes=[0, 1], fit_intercept=False, rounds=ROUNDS, account=PrivacyAccount(folder / "account.json")
    )
    population = Noting(*model.records(*people))
    chosen = model.plan(USERS, 3)
    seen = []
    with rounds_shown(chosen, 1e-6, Console(file=shown, force_terminal=True, width=120), True) as show:
        model.callbacks = (show, seen.append)
        model.fit_population(population, 3, checkpoint=folder / "run")
    model.callbacks = ()
    logging.getLogger().removeHandler(handler)
    structured = {
        "model": json.loads(model.to_json()),
        "result": json.loads(model.result_.to_json()),
        "journal": [json.loads(line) for line in (folder / "run").read_text().splitlines()],
        "rounds": [done.to_dict() for done in seen],
        "account": [json.loads(line) for line in (folder / "account.json").read_text().splitlines()],
    }
    texts = {
        "str": str(model),
        "explain": model.explain(),
        "result": str(model.result_),
        "schedule": str(model.schedule_),
        "log": log.getvalue(),
        "report": re.sub(r"<figure>.*?</figure>|<h2>Coefficients.*?</section>", "", html_report(model), flags=re.DOTALL),
    }
    return structured, texts, shown.getvalue(), population.sizes


def public(value):
    """The value without what noise is in."""
    if isinstance(value, dict):
        return {name: public(part) for name, part in value.items() if name not in NOISY}
    return [public(part) for part in value] if isinstance(value, list) else value


def test_nothing_that_leaves_says_how_many_of_a_rounds_reports_were_real(people, tmp_path):
    """Two fits with other lots: all that leaves is the same but for noisy figures, and no size of a lot is in it."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    (first, texts, progress, sizes), (second, other_texts, others, other_sizes) = (artefacts(people, folder) for folder in folders)
    assert sizes != other_sizes
    assert len(set(sizes)) > 3
    assert public(first) == public(second)
    assert texts == other_texts
    # what both show is no lot: a colour or a width may happen to be as large as one
    shown, shown_too = (set(map(int, re.findall(r"(?<![\d.e-])\d+(?![\d.e])", text))) for text in (progress, others))
    assert not set(sizes) & (shown - shown_too)


@pytest.mark.parametrize("honest", [1.0, 0.8])
def test_everybody_is_charged_once_for_the_run(people, honest):
    account = PrivacyAccount()
    model = ShuffleLogisticRegression(epsilon=1.0, classes=[0, 1], account=account, honest=honest).fit(*people)
    assert model.schedule_.secret_lots
    assert [fit.guarantee for fit in account.fits] == [model.guarantee_]
    assert model.guarantee_.honest == honest
    assert model.guarantee_.epsilon(1e-6) <= 1.0
    assert "to an attacker who also knows when each" in str(model) + model.explain()
    assert type(model).from_json(model.to_json()).guarantee_ == model.guarantee_


class Person:
    """A file of one person, which may be gone after the first round."""

    users, gone = 1, False

    def __init__(self, number):
        self.number = number

    def read(self):
        if self.gone:
            raise UnreachableError("a file is gone")
        X = np.random.default_rng(self.number).normal(size=(1, 3)) / 3
        return X, X[:, 0] > 0


def test_when_a_missing_file_is_noticed_does_not_say_whose_lot_it_is():
    """A person whose lot is the last round: that the file is gone must be seen in the next round, as with any other lot."""
    population = BlockPopulation([Person(number) for number in range(60)])
    chosen = cr.schedule(PROBLEM, 60, epsilon=1.0, delta=1e-3, lots="secret", rounds=5)
    batches = draw_lots(Secret.of_seed(3).derive("deal"), 60, 5, chosen.phases[0].batch)
    last = population.shard.placed[int(batches[-1].members(0, 60)[0])].block

    def lose(done):
        last.gone = True

    with pytest.raises(UnreachableError) as caught:
        run(PROBLEM, population, chosen, start=np.zeros(3), seed=3, callbacks=lose)
    assert caught.value.result.rounds == 1


@pytest.mark.parametrize("lots", ["secret", "open"])
def test_a_result_whose_plan_is_proved_for_fewer_coordinates_is_refused(lots):
    """The certificate of one coordinate has a smaller mu; the gradients beside it have forty."""
    X = np.random.default_rng(0).normal(size=(600, 40)) / 20
    problem = Problem(loss=Logistic(), domain=Ball(dim=40, radius=5.0), feature_norm=1.0)
    result = cr.minimize(problem, (X, X[:, 0] > 0), epsilon=1.0, delta=1e-5, lots=lots, rounds=3)
    (phase,) = result.schedule.phases
    plan = phase.plan
    narrow = prove(dataclasses.replace(plan, dim=1), plan.levels, plan.noise_bits, plan.noise_probability)
    fewer = dataclasses.replace(phase, plan=narrow, lots=phase.lots and dataclasses.replace(phase.lots, one_round=narrow))
    chosen = dataclasses.replace(result.schedule, phases=(fewer,))
    assert chosen.guarantee.epsilon(1e-5) < 0.999 * result.guarantee.epsilon(1e-5)
    edited = dataclasses.replace(result, schedule=chosen, guarantee=chosen.guarantee)
    with pytest.raises(ArgumentError, match=r"history\.gradient"):
        Result.from_json(edited.to_json())


def test_the_search_does_not_give_up_where_one_known_round_is_near():
    """Steps of 0.3 below sqrt(rounds) jumped over what 117 rounds allow at epsilon 8, and fell back to one known round."""
    alone = _largest_mu(8.0, 1e-6, 1, "zero-out")
    assert _largest_mu(8.0, 1e-6, 117, "zero-out") > 1.2 * alone
    plan = plan_lots(epsilon=8.0, delta=1e-6, users=100_000, rounds=117, dim=3, neighbours="zero-out")
    assert plan.certified_delta <= 1e-6
    assert plan.one_round.noise_std < 0.95 / alone
