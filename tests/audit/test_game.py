"""The game against every kind of result: the real thing passes, with less noise each is caught, and so are other defects.

False-alarm rate of every game here: at most 1e-6. Seeds are fixed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import func, select

from croupier import ArgumentError
from croupier.audit import _deployed as deployed
from croupier.audit import _games as kinds
from croupier.audit import _models as models
from croupier.audit import empirical, play_all
from croupier.audit.play import DELTA, DEPLOYED, EPSILON, FALSE_ALARM, KINDS, QUICK_TRIALS, TRIALS, quiet, runs_of
from croupier.optimizer import pan_private, training
from croupier.population.population import deal
from croupier.privacy import SumPlan
from croupier.protocol import Counts, VectorSum
from croupier.protocol import _randomizer as randomizer
from croupier.service.shuffler import role as shuffling
from croupier.service.shuffler import rounds as releasing
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.wire.task import SecretRounds

BY_NAME = {kind.name: kind for kind in KINDS}
OF_PROTOCOL = [kind.name for kind in kinds.PROTOCOL]
OF_MODELS = [kind.name for kind in models.MODELS]
OF_ROLES = [kind.name for kind in DEPLOYED]
# A run of training takes milliseconds; what takes less is played long enough to notice half of the noise bits.
SLOW = {
    "scaler",
    "sequential training",
    "sequential training, secret lots",
    "moments, then gradients, secret lots",
    "gradients, then slopes along a line, secret lots",
    "secret blocks, secret lots",
    "moments in secret blocks, secret lots",
    "full training",
    "several rows per person",
    "pan-private, before",
}
# A run of these takes a tenth of a second: the tests here look at a few runs, and play them where minutes do not matter.
WATCHED, COVERED = "secret lots, watched, deployed", "secret lots with cover, watched, deployed"
STAGED = "stages in hostile coordinates, watched, deployed"
STREAMED = "counts over time, deployed"
minutes = pytest.mark.slow
# Seconds each, with a neighbour of the same code in every run: these are played, and their noise is spoilt, nightly.
NIGHTLY = ("verified sum, deployed", "exclusions by a cheat, deployed")
SPOILT_NIGHTLY = (
    *NIGHTLY,
    "ridge regression, moments",
    "masked sum, deployed",
    "a model's scores",
    "logistic training, secret lots",
    "moments, then gradients, secret lots",
    "gradients, then slopes along a line, secret lots",
    "secret blocks, secret lots",
    "moments in secret blocks, secret lots",
)


def marked(names, slow=()):
    return [pytest.param(name, marks=minutes) if name in (WATCHED, COVERED, STAGED, STREAMED, *slow) else name for name in names]


def play(name, trials, seed=3):
    (row,) = play_all([replace(BY_NAME[name], share=1.0)], trials=trials, seed=seed).rows
    return row


def sabotage(monkeypatch, part):
    """Every user, and the stream, draws only one in `part` of its noise bits."""
    for module in (randomizer, pan_private):
        drawn = module.binomial
        monkeypatch.setattr(module, "binomial", lambda random, trials, p, size, drawn=drawn: drawn(random, trials // part, p, size))


def less_spread(monkeypatch, part):
    """All noise is one in `part` of what it should be, around the same mean: so that sums do not even look odd."""
    drawn = randomizer.binomial

    def squeezed(random, trials, p, size):
        mean = int(trials * p)
        away = drawn(random, trials, p, size) - mean
        return mean + np.sign(away) * (np.abs(away) // part)

    monkeypatch.setattr(randomizer, "binomial", squeezed)


def test_every_kind_is_one_of_these():
    assert [*OF_PROTOCOL, *OF_MODELS, *OF_ROLES] == list(BY_NAME)
    assert len(OF_ROLES) == 7


@pytest.mark.parametrize("name", marked(BY_NAME, NIGHTLY))
def test_the_real_thing_passes_and_the_game_is_near_the_claim(name):
    row = play(name, 100 if name in OF_ROLES else 150 if name in SLOW or name in OF_MODELS else 600)
    audit = row.audit
    assert row.passed
    assert audit.mu_lower <= audit.mu_claimed
    assert row.epsilon_claimed <= 8.0
    # 112 judged runs a side: the standard error is 0.19, and 0.15 is five of them below the 1.15 that the scaler can show
    assert audit.mu_estimate > 0.1 * audit.mu_claimed


@pytest.mark.parametrize("name", marked([*OF_MODELS, *OF_ROLES], SPOILT_NIGHTLY))
def test_noise_that_spreads_too_little_is_caught_in_models_and_in_deployed_rounds(name, monkeypatch):
    """A third of the standard deviation; an eighth where lots hide most or a run is slow."""
    part = {"logistic regression, intervals": 8, "logistic training, secret lots": 8}
    less_spread(monkeypatch, 8 if name in OF_ROLES else part.get(name, 3))
    row = play(name, 100 if name in OF_ROLES else 300 if name == "logistic training, secret lots" else 200)
    assert not row.passed
    assert row.audit.mu_lower > 0


@pytest.mark.parametrize("name", marked(OF_PROTOCOL, SPOILT_NIGHTLY))
def test_half_of_the_noise_is_caught_in_every_kind(name, monkeypatch):
    """Half the standard deviation where a run is slow (a quarter where lots hide most), half of the bits where it is not."""
    if name.startswith(("moments", "gradients", "secret blocks")):  # fewer bits move the mean, too: what is found would be far off
        less_spread(monkeypatch, 8)
    else:
        few = name in SLOW or name.endswith("rotated")  # rounding hides a part of what is left
        sabotage(monkeypatch, 16 if name.endswith("secret lots") else 4 if few else 2)
    row = play(name, {"scaler": 800}.get(name, 300) if name in SLOW else 2000)
    assert not row.passed
    assert row.audit.mu_lower > row.audit.mu_claimed
    assert row.audit.epsilon_lower > row.epsilon_claimed


@minutes
def test_noise_that_lacks_in_blocks_of_moments_alone_is_caught(monkeypatch):
    """An eighth of its spread, in the blocks alone: the game looks at them, not only at the gradients after them."""
    drawn = randomizer.binomial

    def squeezed(random, trials, p, size):
        noise, mean = drawn(random, trials, p, size), int(trials * p)
        return mean + (noise - mean) // 8 if size == 128 else noise  # the length of a block

    monkeypatch.setattr(randomizer, "binomial", squeezed)
    assert not play("moments in secret blocks, secret lots", 600).passed


def test_rows_of_one_person_that_count_as_people_are_caught(monkeypatch):
    class Forgetful(kinds._Watched):
        def __init__(self, X, y, groups):
            super().__init__(X, y)

    monkeypatch.setattr(kinds, "_Watched", Forgetful)
    assert not play("several rows per person", 150).passed


def test_a_cheat_that_leaves_out_too_many_honest_reports_is_refused(monkeypatch):
    """All but the person and the cheats, who add no noise."""
    monkeypatch.setattr(deployed, "most_excluded", lambda task, phase: 15)
    _, mechanism = BY_NAME["exclusions by a cheat, deployed"].game(8.0, 1e-6, kinds.Coins(1))
    assert [mechanism(False), mechanism(True)] == [0.0, 0.0]  # nothing is released, and nothing is learned


@minutes
def test_a_shuffler_that_lets_too_many_honest_reports_be_left_out_is_caught(monkeypatch):
    monkeypatch.setattr(deployed, "most_excluded", lambda task, phase: 15)
    monkeypatch.setattr(releasing, "most_excluded", lambda task, phase: 15)
    settled = releasing.Rounds._settle

    def careless(*about):
        with monkeypatch.context() as during:
            during.setattr(SumPlan, "honest_users", 1)
            settled(*about)

    monkeypatch.setattr(releasing.Rounds, "_settle", careless)
    assert not play("exclusions by a cheat, deployed", 100).passed


def without_cover(monkeypatch):
    """A client that sends nothing where the round is not its own."""
    answered = deployed.Client.answer

    def own_round_alone(client, records, *, random):
        lot, now = client.lot().round, client.round()
        return answered(client, records, random=random) if now is not None and now[1].number == lot else None

    monkeypatch.setattr(deployed.Client, "answer", own_round_alone)


def ending_early(monkeypatch):
    """A shuffler that ends a round, and forwards its batch, once all whose lot it is have come."""
    ended = shuffling.Blanks.end

    def once_all_are_here(blanks, role, lock, task, task_round, document, opened):
        lot, reports = shuffler_tables.lots.c, shuffler_tables.reports.c
        with role.store.look() as connection:
            drawn = select(lot.client).where(lot.first == task_round.number)
            came = select(func.count()).where((reports.round == task_round.id) & reports.client.in_(drawn))
            missing = len(connection.execute(drawn).all()) - connection.execute(came).scalar_one()
        ended(blanks, role, lock, task, task_round, document, opened if missing else opened - task.secret.seconds)

    monkeypatch.setattr(shuffling.Blanks, "end", once_all_are_here)
    monkeypatch.setattr(SecretRounds, "leaves", lambda secret, opened: opened)


def seen_in(name, runs, monkeypatch):
    """Of some runs: the person's round, and those that it can be by what the player sees. Rounds count from 0."""
    found, lots, possible, drawn = [], [], deployed._possible, deployed._Deployment.lots

    def noted(deployment):
        lots.append(drawn(deployment))
        return lots[-1]

    monkeypatch.setattr(deployed, "_possible", lambda seen: found.append(possible(seen)) or found[-1])
    monkeypatch.setattr(deployed._Deployment, "lots", noted)
    _, mechanism = BY_NAME[name].game(8.0, 1e-6, kinds.Coins(1))
    for run in range(runs):
        mechanism(run % 2 == 1)
    return [(all_lots.get("user 000", 0) - 1, rounds) for all_lots, rounds in zip(lots, found, strict=True)]


def test_an_observer_knows_the_lot_without_cover_and_nothing_of_it_with_cover(monkeypatch):
    for lot, rounds in [*seen_in(WATCHED, 4, monkeypatch), *seen_in(STAGED, 2, monkeypatch)]:
        assert rounds == [lot]
    for _, rounds in seen_in(COVERED, 4, monkeypatch):
        assert rounds == [0, 1, 2, 3]


@pytest.mark.parametrize("sabotage", [without_cover, ending_early])
def test_cover_that_does_not_hide_the_lot_shows_it_to_the_player(sabotage, monkeypatch):
    sabotage(monkeypatch)
    for lot, rounds in seen_in(COVERED, 4, monkeypatch):
        assert rounds == [lot]


@minutes
@pytest.mark.parametrize("sabotage", [without_cover, ending_early])
def test_cover_that_does_not_hide_the_lot_is_refuted(sabotage, monkeypatch):
    """At 1,200 runs on each side, with room: from 450 on such a lot is noticed half of the time."""
    sabotage(monkeypatch)
    assert not play(COVERED, 1200).passed


@pytest.mark.parametrize("name", [WATCHED, COVERED, STAGED])
def test_a_player_of_secret_lots_errs_by_the_noise_alone(name, monkeypatch):
    """Without noise, every run on one side is below every run on the other."""
    drawn = randomizer.binomial
    monkeypatch.setattr(
        randomizer, "binomial", lambda random, trials, p, size: 0 * drawn(random, trials, p, size) + int(trials * p)
    )
    _, mechanism = BY_NAME[name].game(8.0, 1e-6, kinds.Coins(2))
    first, second = ([mechanism(neighbour) for _ in range(4)] for neighbour in (False, True))
    assert max(first) < min(second)


@pytest.mark.parametrize("trials", [TRIALS, QUICK_TRIALS])
def test_both_lengths_notice_half_of_the_noise_bits(trials):
    """By the game's own figure for its power, at the share of the false-alarm rate that a row has."""
    for kind in kinds.PROTOCOL:
        claim, _ = kind.game(8.0, 1e-6, kinds.Coins(1))
        mu = empirical._gaussian_equivalent(claim, 1e-6)
        noticed = empirical._detectable(mu, trials - trials // 4, FALSE_ALARM / len(KINDS))
        assert noticed < 2**0.5 * mu


def test_slow_games_have_a_share_of_the_runs():
    slow = {kind.name for kind in kinds.PROTOCOL if runs_of(kind, TRIALS) < TRIALS}
    line = "gradients, then slopes along a line, secret lots"
    assert slow == {"secret blocks, secret lots", "moments in secret blocks, secret lots", line}
    assert all(100 <= runs_of(kind, QUICK_TRIALS) < QUICK_TRIALS for kind in (*models.MODELS, *DEPLOYED))


def test_the_scalers_ends_are_the_farthest():
    u = np.linspace(-1, 1, 401)
    points = np.column_stack([u, 2 * u**2 - 1])
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    first, second = (np.array([end, 2 * end**2 - 1]) for end in kinds._SCALER_ENDS)
    assert np.linalg.norm(first - second) > distances.max() - 1e-4


def test_findings_are_plain_json_with_the_rate_divided_among_rows():
    found = play_all([BY_NAME["vector sum"], BY_NAME["scalar sum"]], trials=100, seed=1, false_alarm=1e-4)
    plain = json.loads(found.to_json())
    assert plain["passed"]
    assert not plain["private"]
    assert plain["false_alarm"] == 1e-4
    assert [row["false_alarm"] for row in plain["rows"]] == [5e-5, 5e-5]
    assert {"kind", "seen", "epsilon_claimed", "mu_claimed", "mu_estimate", "mu_lower", "epsilon_lower"} <= set(plain["rows"][0])


def test_seeded_games_repeat_and_secure_ones_do_not():
    name = "pan-private, after"
    assert play(name, 100, seed=5).audit == play(name, 100, seed=5).audit
    first, second = (
        [mechanism(False) for _ in range(20)] for _, mechanism in (BY_NAME[name].game(8.0, 1e-6, kinds.Coins()) for _ in range(2))
    )
    assert first != second


def test_bad_arguments_are_named():
    with pytest.raises(ArgumentError, match="kinds"):
        play_all([])
    with pytest.raises(ArgumentError, match="trials"):
        play_all(trials=10)
    with pytest.raises(ArgumentError, match="false_alarm"):
        play_all(false_alarm=0.0)


@pytest.mark.process
def test_nothing_below_the_game_imports_it():
    """cli -> game -> service, estimator, optimizer, protocol, privacy."""
    code = "import croupier, croupier.estimator, croupier.report, croupier.table, sys; print('croupier.audit' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def in_the_open(epsilon, delta, coins):
    """Training by secret lots, of which the player takes user 0's round from the sizes of the rounds, or was told it."""
    users = kinds._ROUNDS * kinds._USERS
    populations = kinds._neighbours(users, 1, (-1.0, 1.0))
    phase = kinds._svc(epsilon, delta, "sequential", coins, lots="secret").plan(users, 1).phases[0]

    def released(neighbour):
        trained = kinds._svc(epsilon, delta, "sequential", coins, lots="secret")
        population = Telling(*trained.records(populations[neighbour], np.ones(users, dtype=int)))
        history = trained.fit_population(population, features=1).result_.history
        left = [-phase.mean_of * round.gradient[0] - others for round, others in zip(history, population.others, strict=True)]
        return float(sum(one for one, mine in zip(left, population.mine, strict=True) if mine))

    return phase.guarantee, released


class Telling(kinds._Allotted):
    told = True  # whose lot it is; else it is where the others are fewer than the known size

    def answer(self, question):
        estimate = super().answer(question)
        known = question.batch.members(0, 1).size > 0 if self.told else self.others[-1] < kinds._USERS
        self.mine = [*getattr(self, "mine", []), known]
        return estimate


def short_rounds(epsilon, delta, coins):
    """Training by secret lots whose rounds lack their blanks: how much a sum falls short tells how many came, and so the lot."""
    users = kinds._ROUNDS * kinds._USERS
    populations = kinds._neighbours(users, 1, (-1.0, 1.0))
    phase = kinds._svc(epsilon, delta, "sequential", coins, lots="secret").plan(users, 1).phases[0]
    plan = phase.plan
    lacks = plan.norm * (1 + 2 * plan.noise_bits * plan.noise_probability / plan.levels)  # by every report that is not there

    def released(neighbour):
        trained = kinds._svc(epsilon, delta, "sequential", coins, lots="secret")
        population = kinds._Allotted(*trained.records(populations[neighbour], np.ones(users, dtype=int)))
        history = trained.fit_population(population, features=1).result_.history
        sums = np.array([-phase.mean_of * round.gradient[0] for round in history])
        others = np.array(population.others)
        return float((sums - others - lacks * (plan.users - others)).min())

    return phase.guarantee, released


@minutes
def test_blanks_that_are_left_out_are_caught(monkeypatch):
    """The sums are taken for those of full rounds, as they would have to be for training to go on."""
    monkeypatch.setattr(kinds, "_ROUNDS", 24)
    made = VectorSum.blank_counts

    def none(protocol, count, random):
        nothing = made(protocol, 0, random)
        return Counts(np.zeros_like(nothing.ones), count, nothing.private)

    monkeypatch.setattr(VectorSum, "blank_counts", none)
    kind = kinds.Kind("blanks left out", "the transcript and the others' lots", short_rounds)
    (row,) = play_all([kind], epsilon=2.0, trials=200, seed=5).rows
    assert not row.passed
    assert row.audit.mu_lower > 0


@minutes
@pytest.mark.parametrize("sabotage", ["lots known to the analyzer", "batches by a permutation"])
def test_lots_that_do_not_stay_secret_are_caught(sabotage, monkeypatch):
    """The same runs under the same claim pass where the player has to do without the lot: see the kind itself."""
    monkeypatch.setattr(kinds, "_ROUNDS", 24)
    if sabotage == "batches by a permutation":
        monkeypatch.setattr(Telling, "told", False)
        equal = [kinds._USERS] * 24
        monkeypatch.setattr(training, "draw_lots", lambda secret, users, rounds, size: deal(secret, users, equal))
    kind = kinds.Kind(sabotage, "the transcript and the person's lot", in_the_open)
    (row,) = play_all([kind], epsilon=2.0, trials=200, seed=5).rows
    assert not row.passed
    assert row.audit.mu_lower > 0


@pytest.mark.parametrize("name", OF_MODELS)
def test_a_game_warns_of_nothing(name):
    """`audit --all` plays every game thousands of times: one warning per run buried its table."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet():
            _, mechanism = BY_NAME[name].game(EPSILON, DELTA, kinds.Coins(None))
            mechanism(False)
