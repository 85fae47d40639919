"""Cheats among the clients, and servers that do not keep the rules: bad reports are left out, once, and nobody ends a task."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_exclusions import bring, masked_in, settle, with_masked
from helpers_roles import DIM, World, answer_round, refused, round_of, soon, training

import croupier as cr
from croupier.cli import main
from croupier.optimizer.phases import check_schedule, held_in_batch
from croupier.privacy._crowd import exclusions_in_batch, honest_in_batch
from croupier.protocol import Report as Bits
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.dashboard import plan_words
from croupier.service.analyzer.population import no_room
from croupier.service.net.http import Server, ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.wire.documents import Document, Exclusions, WireError
from croupier.service.wire.queries import TrainingQuery, statistic_from_dict
from croupier.service.wire.reports import modulo
from croupier.service.wire.task import Task, TooManyBadReportsError, fewest, most_excluded
from croupier.service.wire.transports import TRANSPORTS as BY_NAME
from croupier.service.wire.transports import Release, SealedReport

TRANSPORTS = ["masked-sum", "messages"]
# The plan counts on 5 of 10 users, 8 are honest by the task's premise: 3 may be left out, and a round ends with 8.
TASK = {"users": 10, "interactivity": "full", "honest": 0.5, "premise": 0.8, "patience": 0.0, "rounds": 2}


@pytest.fixture
def world(make_world):
    return lambda transport="masked-sum", **changed: make_world(**TASK | {"transport": transport} | changed)


def broken(world: World, document: Document, user: int, how: str) -> bytes:
    """A user's report with an envelope that does not open, or does not hold what it should."""
    report, plan, key = SealedReport.from_bytes(world.report(user, document)), world.plan(document), world.read(document).key
    bits = np.zeros((DIM, plan.bits_per_coordinate), dtype=np.uint8)
    if how == "changed":
        sealed = np.array(report.sealed)
        sealed.reshape(-1)[45] ^= 1
        return replace(report, sealed=sealed).to_bytes()
    if how == "no point":
        return replace(report, sealed=np.zeros_like(report.sealed)).to_bytes()
    if how == "not a bit":
        bits[:] = 7
    if how == "for another key":
        key = X25519PrivateKey.generate().public_key()
    return BY_NAME[world.task.transport].seal(Bits(bits, private=False), plan, document.digest, key).to_bytes()


def ones_of(world: World, document: Document, users) -> np.ndarray:
    return sum(world.bits(user, document).bits.sum(axis=1, dtype=int) for user in users)


def send(world: World, shuffler, document: Document, bad: dict[int, str]) -> None:
    """All users answer the round; some with reports that are broken."""
    shuffler.open(document)
    for user in range(world.users):
        body = broken(world, document, user, bad[user]) if user in bad else world.report(user, document)
        shuffler.receive(world.names[user], body)


# The margin.


@pytest.mark.parametrize("interactivity", ["sequential", "full"])
@pytest.mark.parametrize("honest", [0.8, 0.9, 0.99])
def test_plans_for_exclusions_count_on_the_honest_users_that_are_left_whichever_are_left_out(interactivity, honest):
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=2, radius=5.0))
    options = {"epsilon": 4.0, "delta": 1e-4, "rounds": 4, "honest": honest, "interactivity": interactivity, "lots": "open"}
    chosen = cr.schedule(problem, 2000, **options, exclusions=True)
    check_schedule(chosen, 2000)
    [phase] = chosen.phases
    held = held_in_batch(chosen, 2000, phase)
    allowed = held - phase.plan.honest_users
    cheats = phase.batch - honest_in_batch(2000, honest, phase.batch, 1e-4)
    assert 0 < allowed == min(cheats, held // 2)
    # by another route: of `held` honest users at least those of the plan are left when the others are left out
    assert phase.plan.honest_users + allowed == held <= math.ceil(honest * 2000)
    without = cr.schedule(problem, 2000, **options)
    assert without.phases[0].plan.honest_users == held
    assert chosen.guarantee.honest == pytest.approx(honest) or interactivity == "full"
    assert chosen.guarantee.delta(4.0) <= 1e-4


def test_where_all_are_counted_on_nothing_is_left_out_and_plans_are_the_same():
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=2, radius=5.0))
    options = {"epsilon": 4.0, "delta": 1e-4, "rounds": 4, "lots": "open"}
    assert cr.schedule(problem, 500, **options, exclusions=True) == cr.schedule(problem, 500, **options)
    assert exclusions_in_batch(500, 1.0, 100, 100) == 0


def test_secret_lots_leave_room_for_exclusions_and_say_how_much():
    options = {"epsilon": 4.0, "delta": 1e-4, "users": 2000, "rounds": 4, "dim": 2}
    usual, roomy = (cr.privacy.plan_lots(**options, honest=0.9, exclusions=wanted) for wanted in (False, True))
    assert usual.most_excluded == 0
    assert roomy.most_excluded == usual.one_round.honest_users - roomy.one_round.honest_users > 50
    assert roomy.noise_std > usual.noise_std
    assert roomy.certified_delta <= 1e-4


# A cheat is left out, named, and does not end the task.


@pytest.mark.parametrize("kinds", [("changed",), ("no point", "for another key"), ("changed", "for another key", "no point")])
def test_reports_that_do_not_open_are_left_out_and_named_and_the_task_goes_on(world, kinds):
    world = world()
    shuffler, bad = world.shuffler(), {3 * place: kind for place, kind in enumerate(kinds)}
    phase = world.task.schedule.phases[0]
    assert (most_excluded(world.task, phase), fewest(world.task, phase), phase.plan.honest_users) == (3, 8, 5)
    with training(world) as running:
        for number in (1, 2):
            document = running.next_round(after=number - 1)
            send(world, shuffler, document, bad)
            bring(shuffler, running.population)
        running.result()
        answered = running.population.answered()
    good = [user for user in range(10) if user not in bad]
    rows = world.rows("analyzer", "SELECT ones, users FROM asked ORDER BY number")
    assert [users for _, users in rows] == [len(good)] * 2
    assert [(entry.bad, entry.dropped) for entry in answered] == [(len(bad), None)] * 2
    assert json.loads(rows[0][0]) == ones_of(world, round_of_number(world, 1), good).tolist()
    found = world.rows("shuffler", "SELECT client FROM excluded")
    assert sorted(name for (name,) in found) == sorted(2 * [world.names[user] for user in bad])
    assert world.rows("shuffler", "SELECT count(*) FROM checking") == [(0,)]


def round_of_number(world: World, number: int) -> Document:
    [(stored,)] = world.rows("analyzer", f"SELECT document FROM asked WHERE number = {number}")
    return Document.from_bytes(stored)


def test_the_operator_lists_whose_reports_were_left_out_and_bars_them(world, capsys, monkeypatch):
    world = world()
    shuffler, document = world.shuffler(), None
    with training(world) as running:
        document = running.next_round()
        send(world, shuffler, document, {4: "changed"})
        bring(shuffler, running.population)
        soon(lambda: running.next_round(after=1))
        name = world.names[4]

        def command(*words: str) -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "argv", ["croupier", "serve", words[0], "--dir", str(world.folder), *words[1:]])
            with pytest.raises(SystemExit) as end:
                main()
            return (end.value.code or 0, *capsys.readouterr())

        assert command("excluded") == (0, f"{name} 1\n", "")
        assert command("revoke", "--client", name) == (0, f"{name} is revoked\n", "")
        code, _, said = command("revoke", "--client", "nobody")
        assert code == 2
        assert "the name of an enrolled client" in said
    again = world.shuffler()
    found = again.clients_of(world.tokens)
    assert [getattr(one, "status", None) for one in found] == [401 if user == 4 else None for user in range(10)]


def test_more_bad_reports_than_the_margin_end_the_task_and_nothing_of_the_round_is_released(world):
    world = world()
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        send(world, shuffler, document, dict.fromkeys(range(4), "changed"))
        name, batch = shuffler.waiting_batch()
        running.population.take(batch)
        shuffler.forwarded(name)
        soon(lambda: running.ended)
        assert isinstance(running.error, TooManyBadReportsError)
        assert "4 of 10 reports are bad, more than the 3 allowed" in str(running.error)
        settle(shuffler, running.population)
    assert shuffler.waiting_release() is None
    assert world.rows("shuffler", "SELECT state, batch FROM rounds") == [("refused", None)]
    assert len(world.rows("shuffler", "SELECT client FROM excluded")) == 4
    assert world.rows("shuffler", "SELECT count(*) FROM checking") == [(0,)]
    assert world.rows("analyzer", "SELECT ones, key FROM asked") == [(None, None)]


def test_the_shuffler_hears_whose_reports_were_bad_before_the_analyzer_goes(world):
    """An analyzer whose task has ended goes as soon as the shuffler says that it knows."""
    world = world()
    shuffler = world.shuffler()
    with training(world) as running, Served(analyzer_app(running.population)) as analyzer:
        send(world, shuffler, running.next_round(), dict.fromkeys(range(4), "changed"))
        name, batch = shuffler.waiting_batch()
        running.population.take(batch)
        shuffler.forwarded(name)
        soon(lambda: running.ended)
        running.population.ending.declare(0, str(running.error)[:500])
        errands = AnalyzerRelay(shuffler, analyzer.url)
        errands._task()
        errands._round()
        assert running.population.ending.wait(1.0, threading.Event())
    assert len(world.rows("shuffler", "SELECT client FROM excluded")) == 4
    assert world.rows("shuffler", "SELECT count(*) FROM checking") == [(0,)]


def test_counts_that_nobody_could_have_sent_are_a_step_of_no_length_and_the_task_goes_on(world):
    """One cheat who masks what is beyond all users' counts: a function of the release, so nothing more is revealed."""
    world = world()
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        shuffler.open(document)
        report, total = SealedReport.from_bytes(world.report(0, document)), ones_of(world, document, range(10))
        below = modulo(masked_in(report) - total.astype(np.uint64) - np.uint64(1), report.width)  # one less than nothing in all
        shuffler.receive(world.names[0], with_masked(report, below).to_bytes())
        for user in range(1, 10):
            shuffler.receive(world.names[user], world.report(user, document))
        bring(shuffler, running.population)
        following = running.next_round(after=1)
        [entry] = running.population.answered()
        assert (entry.length, entry.users) == (0.0, 10)
        assert "no users could have sent" in entry.dropped
        answer_round(world, shuffler, following, range(10))
        bring(shuffler, running.population)
        assert np.isfinite(running.result()).all()


@pytest.mark.parametrize("how", ["changed", "not a bit", "for another key", "no point"])
def test_by_messages_a_bad_envelope_is_a_zero_and_the_task_goes_on(world, how):
    """A cheat's influence is at most g + b in a coordinate, whatever it sends."""
    world = world("messages", rounds=1)
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        send(world, shuffler, document, {2: how, 7: "changed"})
        bring(shuffler, running.population)
        running.result()
        [entry] = running.population.answered()
    [(ones, users)] = world.rows("analyzer", "SELECT ones, users FROM asked")
    plan = world.plan(document)
    shift = np.array(json.loads(ones)) - ones_of(world, document, [user for user in range(10) if user not in (2, 7)])
    assert users == 10
    assert (shift >= 0).all()
    assert (shift <= 2 * plan.bits_per_coordinate).all()
    assert entry.bad == 1 + (1 if how == "changed" else DIM * plan.bits_per_coordinate)


def test_by_messages_one_cheat_does_not_end_a_round_that_ended_with_the_fewest(world):
    world = world("messages", rounds=1)
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        shuffler.open(document)
        for user in range(8):
            shuffler.receive(
                world.names[user], broken(world, document, 0, "not a bit") if not user else world.report(user, document)
            )
        shuffler.close_late()
        bring(shuffler, running.population)
        running.result()
    assert world.rows("analyzer", "SELECT users, spoiled FROM asked") == [(8, None)]


# No envelope counts twice.


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_another_clients_envelopes_are_refused(world, transport):
    world = world(transport)
    shuffler, document = world.shuffler(), round_of(world)
    [report] = answer_round(world, shuffler, document, [0])
    assert refused(shuffler, world.names[1], report) == (400, "an envelope that is here already; every report has new ones")
    outcomes = shuffler.receive_all([(world.names[user], world.report(2, document) if user < 3 else report) for user in (2, 3)])
    assert [getattr(outcome, "status", 200) for outcome in outcomes] == [200, 400]
    one = world.report(5, document)
    outcomes = shuffler.receive_all([(world.names[5], one), (world.names[6], one)])  # in one transaction
    assert [getattr(outcome, "status", 200) for outcome in outcomes] == [200, 400]
    assert shuffler.receive(world.names[0], report).arrived == 3  # one's own again is a retry


def test_of_a_report_that_a_shuffler_copies_one_is_counted(world):
    """Whoever copies a user's envelope would have its answer counted twice, and its noise not."""
    world = world("messages", rounds=1)
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        answer_round(world, shuffler, document, range(7))
        [(copied,)] = world.rows("shuffler", f"SELECT body FROM reports WHERE client = '{world.names[0]}'")
        with shuffler.store.begin() as connection:  # a shuffler that does not keep the rules
            connection.execute(
                shuffler_tables.reports.insert(),
                [
                    {"round": world.read(document).id, "client": world.names[user], "seal": str(user), "body": copied}
                    for user in (7, 8)
                ],
            )
            connection.execute(shuffler_tables.rounds.update().values(arrived=9))
        shuffler.receive(world.names[9], world.report(9, document))
        bring(shuffler, running.population)
        running.result()
        [entry] = running.population.answered()
    [(ones,)] = world.rows("analyzer", "SELECT ones FROM asked")
    assert json.loads(ones) == ones_of(world, document, [*range(7), 9]).tolist()
    assert entry.bad == 2 * DIM * world.plan(document).bits_per_coordinate


# Servers that do not keep the rules.


def committed(world: World, document: Document, shuffler, places, **changed) -> Document:
    [(digest,)] = world.rows("shuffler", "SELECT batch FROM commitments")
    words = {"task": world.task.id, "round": world.read(document).id, "batch": digest, "places": tuple(places)} | changed
    return Exclusions(**words).document(world.analyzer_key)


def test_an_analyzer_that_leaves_out_honest_reports_has_the_sum_of_enough_and_of_one_set_alone(world):
    world = world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(10))
    name, _ = shuffler.waiting_batch()
    shuffler.forwarded(name)
    shuffler.exclude(committed(world, document, shuffler, [0, 4, 9]))
    first = shuffler.waiting_release()
    release = Release.from_bytes(first[1], shuffler.public_key)
    assert release.users == 7 >= world.plan(document).honest_users
    for places in ([0, 4], [], [0, 4, 8], [1]):  # the difference of two sums would be one user's
        with pytest.raises(WireError, match="another list of exclusions than the one that was kept"):
            shuffler.exclude(committed(world, document, shuffler, places))
        with pytest.raises(WireError, match="another list of exclusions than the one that was kept"):
            world.shuffler().exclude(committed(world, document, shuffler, places))  # nor after a restart
    assert world.shuffler().waiting_release() == first
    shuffler.released(name)
    assert shuffler.waiting_release() is None
    shuffler.exclude(committed(world, document, shuffler, [0, 4, 9]))  # the same again
    assert shuffler.waiting_release() is None


@pytest.mark.parametrize("places", [range(4), range(10)])
def test_an_analyzer_that_leaves_out_more_than_the_margin_gets_nothing(world, places):
    world = world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(10))
    shuffler.forwarded(shuffler.waiting_batch()[0])
    shuffler.exclude(committed(world, document, shuffler, places))
    assert shuffler.waiting_release() is None
    assert world.rows("shuffler", "SELECT state, batch FROM rounds") == [("refused", None)]
    with pytest.raises(WireError, match="another list"):
        shuffler.exclude(committed(world, document, shuffler, []))


def test_lists_that_are_not_of_the_batch_are_refused_and_change_nothing(world):
    world = world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(10))
    shuffler.forwarded(shuffler.waiting_batch()[0])
    before = world.rows("shuffler", "SELECT * FROM commitments")
    for wrong in ({"batch": "00" * 32}, {"task": "ab" * 32}, {"round": "another"}):
        with pytest.raises(WireError, match="no batch of this shuffler's"):
            shuffler.exclude(committed(world, document, shuffler, [], **wrong))
    with pytest.raises(WireError, match="beyond the batch"):
        shuffler.exclude(committed(world, document, shuffler, [10]))
    other = Exclusions(world.task.id, world.read(document).id, before[0][1], ()).document(world.shuffler_key)
    with pytest.raises(WireError, match="signature"):
        shuffler.exclude(other)
    assert world.rows("shuffler", "SELECT * FROM commitments") == before
    assert shuffler.awaiting_exclusions() == world.read(document).id


def test_a_release_of_another_list_or_shape_is_refused_and_the_first_one_counts(world):
    world = world(rounds=1)
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        send(world, shuffler, document, {4: "changed"})
        name, batch = shuffler.waiting_batch()
        running.population.take(batch)
        shuffler.forwarded(name)
        shuffler.exclude(soon(lambda: running.population.exclusions(name)))
        good = Release.from_bytes(shuffler.waiting_release()[1], shuffler.public_key)
        wrong = {"exclusions": bytes(32), "users": 8, "sums": good.sums[:-1], "width": good.width + 1, "transport": "messages"}
        for word, value in wrong.items():
            with pytest.raises(WireError):
                running.population.take_release(replace(good, **{word: value}).to_bytes(world.shuffler_key))
        with pytest.raises(WireError, match="no round"):
            running.population.take_release(replace(good, round=bytes(32)).to_bytes(world.shuffler_key))
        settle(shuffler, running.population)
        other = replace(good, sums=good.sums ^ np.uint64(1)).to_bytes(world.shuffler_key)
        running.population.take_release(other)  # too late: it changes nothing
        running.result()
    [(ones,)] = world.rows("analyzer", "SELECT ones FROM asked")
    assert json.loads(ones) == ones_of(world, document, [user for user in range(10) if user != 4]).tolist()


def test_a_release_before_the_analyzer_has_committed_is_refused(world):
    world = world()
    with training(world) as running:
        document = running.next_round()
        release = Release("masked-sum", document.digest, bytes(32), 10, np.zeros(DIM, dtype=np.uint64), 6)
        with pytest.raises(WireError, match="no list"):
            running.population.take_release(release.to_bytes(world.shuffler_key))


def test_a_round_does_not_end_with_fewer_than_the_premise_says_are_honest(world):
    world = world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(7))
    shuffler.close_late()
    assert shuffler.waiting_batch() is None  # more than the plan's 5, but not what the margin is counted from
    assert shuffler.arrivals().minimum == 8
    shuffler.receive(world.names[7], world.report(7, document))
    shuffler.close_late()
    assert shuffler.waiting_batch() is not None


# A crowd with cheats of every kind that is known here, by real roles over sockets.


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_task_of_fifty_clients_of_whom_five_cheat_in_every_way_ends_normally(make_world, transport):
    """By masked-sum without those whose seals do not open, who are named; by messages each moves a coordinate by g + b at most."""
    world = make_world(transport=transport, users=50, interactivity="full", honest=0.8, premise=0.9, patience=60.0, rounds=2)
    shuffler, expected = world.shuffler(with_task=False), []
    with (
        training(world) as running,
        Served(analyzer_app(running.population)) as analyzer,
        Served(shuffler_app(shuffler)) as served,
        AnalyzerRelay(shuffler, analyzer.url),
    ):
        soon(lambda: shuffler.document)
        world.seat()
        server = Server(served.url)

        def status(user: int, body: bytes) -> int:
            try:
                server.send("/v1/report", body, {"Authorization": f"Bearer {world.tokens[user]}"})
            except ServerError as refusal:
                return refusal.status
            return 200

        for number in (1, 2):
            document = running.next_round(after=number - 1)
            soon(lambda asked=document: shuffler.current() == asked)
            plan, key = world.plan(document), world.read(document).key
            reports = {user: world.report(user, document) for user in range(4, 50)}
            assert {status(user, report) for user, report in reports.items() if user > 4} == {200}
            # no client: a wrong length, a report of another round, another's envelopes, another's bytes
            honest = world.report(0, document)
            wrong = [honest[:-1], honest[:20] + bytes(32) + honest[52:], reports[30]]
            assert [status(0, body) for body in wrong] == [400, 400, 400]
            assert status(30, honest) == 409
            # clients that cheat: seals that do not open, all ones in every coordinate, and another report after the first
            full = Bits(np.ones((DIM, plan.bits_per_coordinate), dtype=np.uint8), private=False)
            most = BY_NAME[transport].seal(full, plan, document.digest, key).to_bytes()
            kinds = ["no point", "for another key", "for another key"]
            assert [status(user, broken(world, document, user, how)) for user, how in enumerate(kinds)] == [200] * 3
            assert (status(4, reports[4]), status(4, most)) == (200, 409)
            assert status(3, most) == 200
            expected.append((ones_of(world, document, range(4, 50)) + plan.bits_per_coordinate).tolist())
        assert np.isfinite(running.result()).all()
        soon(lambda: world.rows("shuffler", "SELECT state FROM rounds") == [("forwarded",)] * 2)
    rows = world.rows("analyzer", "SELECT ones, users FROM asked ORDER BY number")
    assert [json.loads(ones) for ones, _ in rows] == expected
    assert [users for _, users in rows] == [50 if transport == "messages" else 47] * 2
    named = sorted(2 * world.names[:3]) if transport == "masked-sum" else []
    assert sorted(name for (name,) in world.rows("shuffler", "SELECT client FROM excluded")) == named


# Where nothing may be left out, the operator is told, with the size of a round from which something may.


def question_of(users: int, honest: float = 0.9, transport: str = "masked-sum") -> Task:
    query = statistic_from_dict({"kind": "histogram", "column": "age", "low": 0, "high": 100, "bins": 4})
    schedule = query.schedule(users, epsilon=8.0, delta=1e-2, honest=honest)
    return Task(transport, users, query, schedule, Ed25519PrivateKey.generate().public_key(), patience=60.0)


def training_of(batch: int, rounds: int = 4) -> Task:
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=2, radius=5.0))
    options = {"epsilon": 8.0, "delta": 1e-5, "rounds": rounds, "lots": "open", "honest": 0.9, "max_inflation": 1e9}
    schedule = cr.schedule(problem, batch * rounds, **options, exclusions=True)
    return Task(
        "masked-sum", batch * rounds, TrainingQuery(problem), schedule, Ed25519PrivateKey.generate().public_key(), patience=60.0
    )


@pytest.mark.parametrize("task_of", [question_of, training_of])
def test_a_task_without_room_for_a_bad_report_says_so_and_from_which_size_there_is_room(task_of):
    small = task_of(6)
    said = no_room(small)
    assert said.startswith("One bad report ends the task: the plan of a round of 6 has no room for any. With honest = 0.9, ")
    enough = int(re.search(r"rounds of (\d+) and more", said)[1])
    for size in range(2, enough):
        assert most_excluded(task_of(size), task_of(size).schedule.phases[0]) == 0
    for size in range(enough, enough + 20):
        assert most_excluded(task_of(size), task_of(size).schedule.phases[0]) > 0
        assert no_room(task_of(size)) is None
    assert dict(plan_words(small, 1))["honest in a round"].endswith("; one bad report ends the task")


def test_with_everybody_counted_on_there_is_no_room_by_any_transport():
    for transport in ("masked-sum", "verified-sum", "messages"):
        assert no_room(question_of(50, 1.0, transport)).endswith("With honest below 1 there is room for some.")
        assert no_room(question_of(50, 0.9, transport)) is None
