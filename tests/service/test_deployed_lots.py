"""Secret lots, deployed: the shuffler draws them, fills rounds up, ends them on time, and nobody else learns who came."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_exclusions import batch_made, spoiled
from helpers_node import asked, needs_node
from helpers_roles import (
    Training,
    Web,
    World,
    postgres_server,
    randomness,
    refused,
    round_of,
    soon,
    training,
    why_no_postgres,
)
from sqlalchemy import delete, update

import croupier as cr
from croupier.privacy import plan_lots
from croupier.privacy.certificate import certify
from croupier.protocol import Counts
from croupier.protocol.randomness import Secret
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.task_file import TaskFile
from croupier.service.client.client import Client
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served
from croupier.service.shuffler import role as on_time
from croupier.service.shuffler import role as shuffler
from croupier.service.shuffler import rounds as drawing
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.wire import task as task_words
from croupier.service.wire.documents import Document, Exclusions, WireError, sha256
from croupier.service.wire.enrolment import EnrollerKeys
from croupier.service.wire.task import Arrivals, Lot, RefusedTaskError, SecretRounds, Task
from croupier.service.wire.transports import TRANSPORTS as BY_NAME
from croupier.service.wire.transports import Release, SealedBatch, SealedReport
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process

TRANSPORTS = ["masked-sum", "messages"]
needs_postgres = pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
SECRET, COVERED = SecretRounds(100.0), SecretRounds(100.0, cover=True)
ENOUGH = {"max_epsilon": 8.01, "max_delta": 1e-2, "max_epsilon_if_watched": math.inf}
# So many users that something is promised if their lots are known.
WATCHED = {"users": 60, "epsilon": 1.0, "max_inflation": 1.5}


class Clock:
    """The shuffler's clock, which a test sets; `ahead` is what an operator has set the system's clock forward by."""

    CLOCK_BOOTTIME = 7

    def __init__(self) -> None:
        self.now, self.ahead = 1_000_000.0, 0.0

    def time(self) -> float:
        return self.now + self.ahead

    def monotonic(self) -> float:
        return self.now

    def clock_gettime(self, which: int) -> float:
        return self.now - 500_000.0


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (shuffler, on_time):
        monkeypatch.setattr(module, "time", made)
    return made


def blank_coins(number: int):
    return Secret.of_seed(9000 + number).source()


@pytest.fixture
def seeded_blanks(monkeypatch):
    """Blanks with coins that a test can draw again: those of the first round that is opened, of the second, and so on."""
    numbers = itertools.count(1)
    monkeypatch.setattr(on_time, "SecureRandom", lambda: blank_coins(next(numbers)))


@pytest.fixture
def make(make_world):
    return lambda **asked: make_world(**{"users": 30, "secret": SECRET} | asked)


def lots(world: World) -> dict[str, int]:
    rows = world.rows("shuffler", "SELECT client, first, last FROM lots")
    assert all(first == last for _, first, last in rows)
    return {client: first for client, first, _ in rows}


def of_round(world: World, number: int) -> list[int]:
    """Users, as the world counts them, whose lot the round is."""
    return [user for user, name in enumerate(world.names) if lots(world).get(name) == number]


def size_of(world: World) -> int:
    return world.task.schedule.phases[0].lots.size


def read_batch(world: World, role: ShufflerRole, private: X25519PrivateKey) -> Counts:
    """The waiting batch as the analyzer counts it, without leaving anybody out. The shuffler has forgotten it then."""
    plan, (name, data) = world.task.schedule.phases[0].plan, role.waiting_batch()
    batch = SealedBatch.from_bytes(data, plan.bits_per_coordinate, world.shuffler_key.public_key())
    role.forwarded(name)
    transport = BY_NAME[world.task.transport]
    verdict = transport.check(batch, plan, private)
    if verdict.counts is not None:
        return verdict.counts
    assert verdict.places == ()
    role.exclude(Exclusions(world.task.id, name, sha256(data), ()).document(world.analyzer_key))
    release = Release.from_bytes(role.waiting_release()[1], world.shuffler_key.public_key())
    role.released(name)
    return transport.counts(release, verdict.share, plan)


# --- lots


def test_every_enrolled_user_has_one_lot_and_batches_have_no_known_sizes(make):
    """Chances: a round is 6.5 standard deviations off, below 1e-8; three draws all of equal batches, below 8e-7."""
    sizes = []
    for _ in range(3):
        world = make(users=90)
        world.shuffler()
        assert sorted(lots(world)) == sorted(world.names)
        sizes.append(sorted(Counter(lots(world).values()).items()))
        assert all(abs(count - 30) < 6.5 * np.sqrt(90 * 2 / 9) for _, count in sizes[-1])
    assert any(count != 30 for some in sizes for _, count in some)


def test_lots_outlive_a_restart_and_are_drawn_once(make):
    world = make()
    world.shuffler()
    drawn = lots(world)
    world.shuffler()
    assert lots(world) == drawn
    assert len(set(drawn.values())) > 1  # fails by chance once in 3^29


def test_of_too_many_users_with_one_lot_some_are_left_out_by_chance_whoever_they_are():
    phase = SimpleNamespace(lots=SimpleNamespace(lots=2, size=3))
    task = SimpleNamespace(schedule=SimpleNamespace(phases=[phase]))
    left = set()
    for _ in range(40):
        rows = drawing._by_secret_lots(task, [str(user) for user in range(10)])
        assert all(count <= 3 for count in Counter(row["first"] for row in rows).values())
        left |= {str(user) for user in range(10)} - {row["client"] for row in rows}
    assert len(left) == 10  # each is left out in 4 of 10 draws at least


# --- rounds that end on time, filled up


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("who", ["nobody", "all"])
def test_a_batch_has_its_public_size_whoever_came(make, clock, transport, who):
    world, private = make(transport=transport), X25519PrivateKey.generate()
    role, document = world.shuffler(), round_of(world, key=private)
    role.open(document)
    for user in of_round(world, 1) if who == "all" else []:
        role.receive(world.names[user], world.report(user, document))
    role.close_late()
    assert role.waiting_batch() is None  # though all have come
    clock.now += SECRET.seconds
    role.close_late()
    clock.now = SECRET.leaves(clock.now - SECRET.seconds)
    counts = read_batch(world, role, private)
    assert counts.users == size_of(world) > 30 / 3
    spread = np.abs(counts.ones - size_of(world) * world.plan(document).bits_per_coordinate / 2)
    assert spread.max() < size_of(world) * world.plan(document).bits_per_coordinate / 2
    assert world.rows("shuffler", "SELECT count(*) FROM reports") == [(0,)]


def test_blanks_are_reports_of_zeros_with_the_plans_full_noise_and_fresh_coins(make, clock):
    world = make(transport="messages", users=60, epsilon=1.0, max_inflation=3.0)
    role = world.shuffler()
    means = []
    for number in (1, 2):
        private = X25519PrivateKey.generate()
        role.open(round_of(world, number, key=private))
        role.close_late()
        clock.now += 2 * SECRET.seconds
        role.close_late()
        counts = read_batch(world, role, private)
        plan = world.task.schedule.phases[0].plan
        expected = plan.users * (plan.levels / 2 + plan.noise_bits * plan.noise_probability)
        variance = plan.users * (0.25 * (plan.levels % 2) + plan.noise_bits * plan.noise_probability * (1 - plan.noise_probability))
        assert np.abs(counts.ones - expected).max() < 7 * np.sqrt(variance)
        means.append(counts.ones)
    assert not np.array_equal(*means)  # by chance at most once in 10^6: coordinates are equal with probability below 0.06 each
    assert variance > 25


def test_a_round_ends_at_a_time_that_was_known_when_it_opened_also_after_a_restart(make, clock):
    world = make()
    role, document = world.shuffler(), round_of(world)
    role.open(document)
    began = clock.now
    [user, late, *_] = of_round(world, 1)
    role.receive(world.names[user], world.report(user, document))
    clock.now = began + SECRET.seconds - 0.5
    role.close_late()
    assert role.current() is not None
    role = world.shuffler()
    role.open(document)  # told of it again
    assert role.rounds_for([world.names[late]]) == [None]  # too late to begin
    clock.now = began + SECRET.seconds
    assert refused(role, world.names[late], world.report(late, document))[0] == 410
    role.close_late()
    assert role.current() is None
    assert role.waiting_batch() is None  # it leaves at a fixed time, however long it took to make
    clock.now = SECRET.leaves(began)
    assert role.waiting_batch() is not None
    assert refused(role, world.names[late], world.report(late, document))[0] == 410
    assert role.receive(world.names[user], world.report(user, document)).arrived == 0  # it was taken


@pytest.mark.parametrize("step", [3600.0, -3600.0], ids=["forward", "back"])
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_step_of_the_systems_clock_neither_ends_nor_prolongs_a_round(make, clock, caplog, step, restarted):
    """Rounds go by the time since boot, which no operator sets. A process that starts again has the same clock."""
    world = make()
    role, document = world.shuffler(), round_of(world)
    role.open(document)
    role.clock.look()
    began, user = clock.now, of_round(world, 1)[0]
    clock.ahead = step
    role.clock.look()
    assert role.clock.jumps == 1
    assert f"set {'forward' if step > 0 else 'back'} by 3600.0 s" in caplog.text
    if restarted:
        role = world.shuffler()
    assert role.lots_for([world.names[user]]) == [Lot(1, 0.0)]
    clock.now = began + SECRET.seconds - 1
    role.close_late()
    assert role.current() is not None
    role.receive(world.names[user], world.report(user, document))
    clock.now = SECRET.leaves(began)
    role.close_late()
    assert role.current() is None
    assert role.waiting_batch() is not None
    role.clock.look()
    assert role.clock.jumps == (not restarted)  # a step is counted once, by who has seen it


@pytest.mark.parametrize("step", [0.0, -1e6])
def test_after_a_boot_the_clock_is_read_anew_and_is_never_before_the_last_opening(make, clock, monkeypatch, step):
    world = make()
    role, document = world.shuffler(), round_of(world)
    role.open(document)
    clock.now += 30
    before = role.clock.now()
    monkeypatch.setattr(on_time, "_boot", lambda: "another")
    monkeypatch.setattr(on_time, "_since_boot", lambda: clock.now - 1_000_000.0)
    clock.ahead = step
    role = world.shuffler()
    assert role.clock.now() == (before if step == 0 else before - 30)
    clock.now += SECRET.seconds  # at most its whole time once more
    role.close_late()
    assert role.current() is None


def test_nobody_is_waited_for(make, clock):
    """A place that a client had asked for would make the end of a round depend on whether that client came."""
    world = make()
    role, document = world.shuffler(), round_of(world)
    role.open(document)
    [user, *_] = of_round(world, 1)
    assert role.rounds_for([world.names[user]]) == [document]
    assert world.rows("shuffler", "SELECT count(*) FROM reservations") == [(0,)]
    clock.now += SECRET.seconds
    role.close_late()
    assert role.current() is None


def test_only_the_round_of_ones_lot_takes_a_report(make, clock):
    world = make()
    role, document = world.shuffler(), round_of(world)
    role.open(document)
    mine, other = of_round(world, 1)[0], of_round(world, 2)[0]
    assert role.rounds_for([world.names[mine], world.names[other]]) == [document, None]
    assert refused(role, world.names[other], world.report(other, document)) == (409, "this client's lot is not this round")


@pytest.mark.parametrize("users", [-1, 0])
def test_the_analyzer_takes_a_batch_of_the_public_size_alone(make, clock, users):
    """A smaller batch would tell how many came."""
    world = make()
    with training(world) as running:
        document = running.next_round()
        bodies = [SealedReport.from_bytes(world.report(user % 30, document)) for user in range(size_of(world) + users)]
        plan = world.task.schedule.phases[0].plan
        batch = batch_made(bodies, plan).to_bytes(world.shuffler_key)
        with pytest.raises(WireError, match="another shape") if users else contextlib.nullcontext():
            running.population.take(batch)


# --- the same model as in memory


class Device(Client):
    """A user with the randomness that it has in memory too. It notes what it made reports of."""

    def __init__(self, user: int, world: World, url: str) -> None:
        key = world.analyzer_key.public_key().public_bytes_raw().hex()
        super().__init__(url, world.tokens[user], key, folder=world.folder / f"d{user}", at_once=True, **ENOUGH)
        self.user, self.rows = user, (world.X[user : user + 1], world.y[user : user + 1])
        self.made: list[tuple[int, bool, int]] = []

    def _report(self, document, task_round, task, gradient, random):
        coins = randomness(self.user, task_round.number) if np.any(gradient) else random
        report = super()._report(document, task_round, task, gradient, coins)
        self.made.append((task_round.number, bool(np.any(gradient)), len(report)))
        return report


@contextlib.contextmanager
def deployed(world: World):
    role = world.shuffler(with_task=False)
    with (
        training(world) as running,
        Served(analyzer_app(running.population)) as analyzer,
        Served(shuffler_app(role)) as served,
        AnalyzerRelay(role, analyzer.url),
    ):
        soon(lambda: role.document)
        world.seat()
        yield running, role, served.url


@pytest.mark.parametrize("transport", [*TRANSPORTS, "verified-sum"])
@pytest.mark.parametrize("secret", [SECRET, COVERED], ids=["plain", "cover"])
def test_over_sockets_theta_is_that_of_the_run_in_memory_with_the_same_lots(make, clock, seeded_blanks, transport, secret):
    world = make(transport=transport, secret=secret)
    with deployed(world) as (running, role, url):
        devices = [Device(user, world, url) for user in range(world.users)]
        away = of_round(world, 2)[0]  # never comes: a blank takes its place
        for number in (1, 2, 3):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            for device in devices:
                assert role.arrivals() is None
                if device.user != away:
                    sent = device.take_part(*device.rows)
                    mine = device.user in of_round(world, number)
                    assert (sent is None) == (not mine and not secret.cover)
                    assert sent is None or sent.cover == (not mine)
            soon(lambda: role._blanks._round)  # they are made before the end
            clock.now = secret.leaves(clock.now)
        theta = running.result()
    who = [[user for user in of_round(world, number) if user != away] for number in (1, 2, 3)]
    assert np.array_equal(theta, world.theta_in_memory(who, blank_coins))
    assert np.linalg.norm(theta) > 0
    for device in devices:
        assert sum(real for _, real, _ in device.made) == (device.user != away)  # its record is randomized once
        assert len({length for _, _, length in device.made}) <= 1
        assert len(device.made) == (0 if device.user == away else 3 if secret.cover else 1)
    assert world.rows("shuffler", "SELECT count(*) FROM reports") == [(0,)]
    assert world.rows("shuffler", "SELECT DISTINCT slot FROM taken_part") == [("task",)]


class Cheat(Device):
    """A user whose report does not open, or by verified-sum does not verify."""

    def _report(self, *about):
        return spoiled(SealedReport.from_bytes(super()._report(*about))).to_bytes()


@pytest.mark.parametrize("transport", ["masked-sum", "verified-sum"])
def test_bad_reports_of_secret_rounds_are_left_out_and_both_figures_hold(make, clock, seeded_blanks, transport):
    """One cheat in every round, and one who stays away. No blank takes a cheat's place, and the noise of the rest is enough."""
    world = make(**WATCHED | {"users": 90, "max_inflation": 1.1}, transport=transport, honest=0.95, exclusions=True)
    world.task = replace(world.task, schedule=world.task.schedule.with_turnout(0.95))
    plan = world.task.schedule.phases[0].lots
    with deployed(world) as (running, role, url):
        members = [list(range(number, world.users, 3)) for number in range(3)]
        with role.store.begin() as connection:  # as chance could have drawn them
            for user, name in enumerate(world.names):
                mine = shuffler_tables.lots.c.client == name
                connection.execute(update(shuffler_tables.lots).where(mine).values(first=user % 3 + 1, last=user % 3 + 1))
        cheats, away = [some[0] for some in members], members[1][1]
        devices = {user: (Cheat if user in cheats else Device)(user, world, url) for user in range(world.users) if user != away}
        for device in devices.values():
            device._task = devices[0].task()  # proved once: it takes a while
        for number, some in enumerate(members, start=1):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            for user in some:
                assert user == away or devices[user].take_part(*devices[user].rows).round == number
            soon(lambda: role._blanks._round)
            clock.now = SECRET.leaves(clock.now)
        theta = running.result()
    who = [[user for user in some if user != away] for some in members]
    assert np.array_equal(theta, world.theta_in_memory(who, blank_coins, cheats))
    assert not np.array_equal(theta, world.theta_in_memory(who, blank_coins))
    counted = world.rows("analyzer", "SELECT users FROM asked ORDER BY number")
    assert counted == [(plan.size - 1,)] * 3
    named = world.rows("shuffler", "SELECT client FROM excluded")
    assert sorted(name for (name,) in named) == sorted(world.names[user] for user in cheats)
    # Both figures, by another route: the noise that was in these sums at least, if the analyzer had left out E honest ones instead.
    guarantee, one_round = world.task.schedule.guarantee, plan.one_round
    least = plan.size - 1 - plan.most_excluded  # all that was not the cheat's
    real = min(len(some) for some in who) - 1 - plan.most_excluded
    assert least >= one_round.honest_users
    certified = {}
    for name, honest, neighbours in (("secret", least, "zero-out"), ("watched", real, "replace-one")):
        request = replace(plan._request, neighbours=neighbours)
        certified[name] = certify(
            honest * one_round.noise_bits,
            one_round.noise_probability,
            shift=request.encoded_shift(one_round.levels),
            reach=request.encoded_reach(one_round.levels),
            dim=one_round.dim,
            tail=0.01 * plan.delta / one_round.dim,
        ).mu
    assert certified["secret"] <= guarantee.allocations[0].mu
    assert certified["watched"] <= guarantee.if_watched.mu
    assert guarantee.if_watched.epsilon(1e-2) < 20


@pytest.fixture(scope="module")
def postgres():
    numbers = itertools.count()
    with postgres_server() as new:
        yield lambda: new(f"lots{next(numbers)}")


@pytest.mark.parametrize(("database", "secret"), [("sqlite", SECRET), pytest.param("postgres", COVERED, marks=needs_postgres)])
def test_shufflers_on_one_database_share_secret_rounds_and_whoever_leads_ends_them(
    make, clock, seeded_blanks, request, tmp_path, database, secret
):
    """Two shufflers, each with its own connections, blanks and clients. The leader goes in the middle of rounds 1 and 2."""
    place = request.getfixturevalue("postgres")() if database == "postgres" else f"sqlite:///{tmp_path / 'several'}.db"
    world = make(secret=secret, databases={"shuffler": place, "analyzer": f"sqlite:///{tmp_path / 'an'}.db"})
    roles = [world.shuffler(with_task=False) for _ in range(2)]
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(training(world))
        analyzer = stack.enter_context(Served(analyzer_app(running.population)))
        urls = [stack.enter_context(Served(shuffler_app(role))).url for role in roles]

        def errands_of(role: ShufflerRole) -> AnalyzerRelay:
            return stack.enter_context(AnalyzerRelay(role, analyzer.url))

        leader = errands_of(roles[0])
        soon(roles[0].current)
        follower = errands_of(roles[1])
        soon(lambda: roles[1].task)
        world.seat()
        drawn = roles[0].lots_for(world.names)
        members = [[user for user, lot in enumerate(drawn) if lot.round == number] for number in (1, 2, 3)]
        devices = [Device(user, world, urls[user % 2]) for user in range(world.users)]
        for device in devices:
            device._task = devices[0].task()
        for number in (1, 2, 3):
            soon(lambda wanted=number: (now := roles[0].current()) and world.read(now).number == wanted)
            for device in devices:
                sent = device.take_part(*device.rows)
                assert (sent is None) == (device.user not in members[number - 1] and not secret.cover)
            leads = roles[number == 2]
            soon(lambda role=leads: role._blanks._round)
            if number == 1:  # the leader goes, and comes back as one that follows
                leader.__exit__()
                soon(lambda: roles[1]._blanks._round)
                errands_of(roles[0])
            elif number == 2:  # and so does the other
                follower.__exit__()
                soon(lambda: roles[0]._blanks._round)
                errands_of(roles[1])
            clock.now = secret.leaves(clock.now)
        theta = running.result()
        with roles[0].store.look() as connection:
            left = [connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() for table in ("reports", "checking")]
            once = connection.exec_driver_sql("SELECT slot, count(*) FROM taken_part GROUP BY slot").all()
    assert left == [0, 0]
    assert [tuple(row) for row in once] == [("task", world.users)]
    used = {1: 2, 2: 4, 3: 5}  # of the blanks, those of who led in the end
    assert np.array_equal(theta, world.theta_in_memory(members, lambda number: blank_coins(used[number])))


@needs_node
@pytest.mark.parametrize("secret", [SECRET, COVERED], ids=["plain", "cover"])
def test_a_client_in_node_proves_both_figures_and_answers_its_lot_beside_python_clients(make, clock, seeded_blanks, secret):
    """As task files have it: not all who are drawn come, and reports may be left out. One in Node refuses; blanks stand in."""
    world = make(**WATCHED | {"users": 90, "max_inflation": 1.1}, secret=secret, honest=0.95, exclusions=True)
    world.task = replace(world.task, schedule=world.task.schedule.with_turnout(0.8))
    plan, guarantee = world.task.schedule.phases[0].lots, world.task.schedule.guarantee
    assert plan.most_excluded > 0
    key, watched = world.analyzer_key.public_key().public_bytes_raw().hex(), guarantee.if_watched.epsilon(1e-2)
    document = world.task.document(world.analyzer_key).to_bytes().hex()
    (read,) = asked("tasks", documents=[document], key=key, delta=1e-2)
    assert read == {
        "id": world.task.id,
        "name": world.task.name,
        "secret": secret.to_dict(),
        "epsilon": pytest.approx(guarantee.epsilon(1e-2), rel=1e-4),
        "watched": pytest.approx(watched, rel=1e-6),
    }
    with deployed(world) as (running, role, url), ThreadPoolExecutor(1) as pool:
        members = [of_round(world, number) for number in (1, 2, 3)]
        refuses, *mine = [members[0][0], *[user for some in members for user in some[1:3]]]
        devices = [Device(user, world, url) for some in members for user in some[3:5]]
        senders = {device.user for device in devices} | set(mine)
        in_node = [
            {
                "token": world.tokens[user],
                "folder": str(world.folder / f"node{user}"),
                "rows": [{"x": world.X[user].tolist(), "y": world.y[user]}],
                "seeds": {number: randomness(user, number)._root.hex() for number in (1, 2, 3)},
                "watched": (0.999 if user == refuses else 1.001) * watched,
            }
            for user in (refuses, *mine)
        ]
        running_in_node = pool.submit(asked, "devices", shuffler=url, key=key, epsilon=1.0, delta=1e-2, devices=in_node)
        for number, of_lot in enumerate(members, start=1):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            for device in devices:
                device.take_part(*device.rows)
            wanted = len(senders) if secret.cover else len(senders & set(of_lot))
            soon(lambda wanted=wanted: world.rows("shuffler", "SELECT count(*) FROM reports") == [(wanted,)])
            soon(lambda: role._blanks._round)
            clock.now = secret.leaves(clock.now)
        refusal, *answers = running_in_node.result()
        theta = running.result()
    assert "knows when each person answered" in refusal["refused"]
    for user, answer in zip(mine, answers, strict=True):
        (lot,) = [number for number, of_lot in enumerate(members, start=1) if user in of_lot]
        assert [int(number) for number in answer["said"]] == [lot]
        assert answer["covered"] == ([number for number in (1, 2, 3) if number != lot] if secret.cover else [])
    came = [[user for user in of_lot if user in senders] for of_lot in members]
    assert np.array_equal(theta, world.theta_in_memory(came, blank_coins))


# --- nothing says how many of M were real


HIDDEN = {"theta", "key", "id", "task", "length", "ones", "digest"}


def without_noise(value):
    """A JSON value without what is drawn anew in every run: noise, keys, names and lengths of noisy gradients."""
    if isinstance(value, dict):
        return {name: without_noise(entry) for name, entry in value.items() if name not in HIDDEN}
    return [without_noise(entry) for entry in value] if isinstance(value, list) else value


def seen(world: World, clock: Clock, caplog) -> dict[str, object]:
    """All that the analyzer and the public can see of a run in which everybody comes to the round of its lot."""
    began, sent, looks = clock.now, [], []

    class Noted(AnalyzerRelay):
        def _sent(self, path, body=None):
            answer = super()._sent(path, body)
            if body is not None:
                sent.append((clock.now - began, path, len(body), body[:16].hex()))
            return answer

    role = world.shuffler()
    with (
        Training(world, world.population()) as running,
        Served(analyzer_app(running.population)) as analyzer,
        Web(shuffler_app(role)) as public,
        Web(analyzer_app(running.population)) as page,
    ):
        errands = Noted(role, analyzer.url)
        for number in range(1, world.task.schedule.rounds + 1):
            document = running.next_round(number - 1)
            pairs = [(user, block) for block, lot in enumerate(world.task.lots_of(number)) for user in of_round(world, lot)]
            for user, block in [(None, 0), *pairs]:
                for errand in (errands._task, errands._round, errands._arrivals, role.close_late, errands._batch):
                    errand()
                if user is not None:
                    answer = public.post(
                        "/v1/report", world.report(user, document, block), {"Authorization": f"Bearer {world.tokens[user]}"}
                    )
                    assert answer.status == 200
                looked = [public.get(path).text for path in ("/metrics", "/v1/arrivals", "/healthz")]
                looked.append(public.get("/v1/round").content == document.to_bytes())
                shown = page.get("/v1/state").text
                looked += [json.dumps(without_noise(json.loads(shown))), page.get("/metrics").text]
                looks.append((number, *[re.sub(r"(_created) .*", r"\1", str(look)) for look in looked]))
            clock.now += SECRET.seconds
            for errand in (errands._arrivals, role.close_late, errands._batch):
                errand()
            clock.now = SECRET.leaves(clock.now - SECRET.seconds)
            errands._batch()

            def settled(done=number):
                errands._exclusions()
                errands._release()
                return json.loads(page.get("/v1/state").text)["rounds"]["done"] == done

            soon(settled)
            assert re.search(r"\d", page.get("/").text)
        running.result()
        soon(lambda: json.loads(page.get("/v1/state").text)["status"] == "finished")
        ending = json.dumps(without_noise(json.loads(page.get("/v1/state").text)))
    columns = [row[1] for row in world.rows("analyzer", "PRAGMA table_info(asked)")]
    rows = [dict(zip(columns, row, strict=True)) for row in world.rows("analyzer", "SELECT * FROM asked ORDER BY number")]
    kept = [{name: row[name] for name in columns if name not in HIDDEN | {"document"}} for row in rows]
    # of a round's lots, the first has its document
    words = [row["document"] and without_noise(json.loads(Document.from_bytes(row["document"]).text)) for row in rows]
    return {
        "sent to the analyzer, and when": sent,
        "every look": sorted(set(looks)),
        "at the end": ending,
        "the analyzer's database": (kept, words),
        "logs": [record.getMessage() for record in caplog.records if record.name.startswith("croupier")],
    }


IN_BLOCKS = {"dim": 20, "rounds": 2, "blocks": 2, "rule": "plain", "rotation": True, "max_inflation": 2.0}


@pytest.mark.parametrize("planned", [{}, IN_BLOCKS], ids=["whole vectors", "blocks"])
def test_nothing_that_the_analyzer_or_the_public_can_see_tells_a_lot(make, clock, caplog, monkeypatch, planned):
    """Two runs of the same users, of whom one has another lot. Everything but noise is the same, and so are all times."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("croupier.service.net.server.time", clock)
    monkeypatch.setattr(
        "croupier.service.analyzer.dashboard.time", SimpleNamespace(monotonic=itertools.count().__next__)
    )  # no old looks
    found = []
    for lot in (1, 2):
        caplog.clear()
        clock.now = 1_000_000.0
        world = make(**planned)
        role = world.shuffler()
        count = world.task.schedule.phases[0].lots.lots
        rows = {name: 1 + user % count for user, name in enumerate(world.names)} | {world.names[0]: lot}
        with role.store.begin() as connection:
            for name, number in rows.items():
                connection.execute(
                    update(shuffler_tables.lots).where(shuffler_tables.lots.c.client == name).values(first=number, last=number)
                )
        found.append(seen(world, clock, caplog))
    for what in found[0]:
        assert found[0][what] == found[1][what], what
    sent = found[0]["sent to the analyzer, and when"]
    apart = SECRET.leaves(0.0)
    blocks, paths = world.task.blocks, ("/v1/batch", "/v1/release")
    assert sorted((when, path) for when, path, *_ in sent) == [
        (apart * number, path) for number in range(1, world.task.schedule.rounds + 1) for path in paths for _ in range(blocks)
    ]  # and no arrivals


def test_the_dashboard_hears_of_no_arrivals(make, clock):
    world = make(**WATCHED)
    role = world.shuffler()
    with Training(world, world.population()) as running, Web(analyzer_app(running.population)) as page:
        role.open(running.next_round())
        answer = page.post("/v1/arrivals", role.said(Arrivals(1, 3, 10, 10)).to_bytes())
        assert (answer.status, "nobody's business" in answer.text) == (400, True)
        state = json.loads(page.get("/v1/state").text)
        assert state["arrivals"]["arrived"] is None
        assert state["people"]["answered"] is None
        assert state["arrivals"]["seconds"] == SECRET.seconds
        assert state["arrivals"]["wanted"] == size_of(world)
        guarantee, delta = world.task.schedule.guarantee, 1e-2
        watched = float(re.match(r"epsilon ([\d.e+]+)", state["privacy"]["watched"])[1])
        assert float(state["privacy"]["epsilon"]) >= guarantee.epsilon(delta) * (1 - 1e-12)
        assert watched >= guarantee.if_watched.epsilon(delta) * (1 - 1e-12) > float(state["privacy"]["epsilon"])
        assert state["privacy"]["watched"] in state["promise"]["words"]


# --- what a client is told and demands


@pytest.fixture
def served(make, clock):
    """The shuffler of a task with secret lots on a socket, and clients of it."""

    @contextlib.contextmanager
    def start(**asked):
        world = make(**asked)
        role = world.shuffler()
        with Served(shuffler_app(role)) as server:
            yield (
                world,
                role,
                lambda user, **changed: Client(
                    server.url,
                    world.tokens[user],
                    world.analyzer_key.public_key().public_bytes_raw().hex(),
                    folder=world.folder / f"c{user}",
                    at_once=True,
                    **ENOUGH | changed,
                ),
            )

    return start


def test_a_client_is_told_its_own_lot_and_how_long_it_can_sleep(served, clock):
    with served() as (world, role, client):
        drawn = lots(world)
        apart = SECRET.leaves(0.0)
        for user in range(6):
            mine = drawn[world.names[user]]
            assert client(user).lot() == Lot(mine, pytest.approx((mine - 1) * apart, abs=1e-3))
        role.open(round_of(world))
        clock.now += 40
        user = of_round(world, 3)[0]
        assert client(user).lot() == Lot(3, pytest.approx(2 * apart - 40, abs=1e-3))
        assert client(of_round(world, 1)[0]).lot().wait == 0
        stranger = client(user)
        stranger._token = "nobody"
        with pytest.raises(ServerError) as refusal:
            stranger.lot()
        assert refusal.value.status == 401


@needs_node
def test_a_client_in_node_waits_neither_for_a_round_that_is_too_far_nor_for_none(served):
    with served() as (world, role, client):
        later, never = of_round(world, 3)[0], of_round(world, 2)[0]
        with role.store.begin() as connection:
            connection.execute(delete(shuffler_tables.lots).where(shuffler_tables.lots.c.client == world.names[never]))
        devices = [{"token": world.tokens[user], "folder": str(world.folder / f"n{user}"), "rows": []} for user in (later, never)]
        where = {"shuffler": client(0)._server._parts.geturl(), "key": world.analyzer_key.public_key().public_bytes_raw().hex()}
        answers = asked("devices", **where, epsilon=8.01, delta=1e-2, devices=devices, atOnce=False, wait=20)
    nothing = {"answered": 0, "said": {}, "covered": []}
    assert answers[0] == nothing | {"notYet": {"round": 3, "wait": pytest.approx(2 * SECRET.leaves(0.0), abs=1e-3)}}
    assert answers[1] == nothing | {"notYet": {"round": None, "wait": 0}}


def test_a_lot_is_of_one_length_on_the_wire_and_read_strictly():
    told = [Lot(None), Lot(1), Lot(10**6, 1e9), Lot(7, 0.001)]
    assert len({len(lot.to_bytes()) for lot in told}) == 1
    assert [Lot.from_bytes(lot.to_bytes()) for lot in told] == told
    for bad in (b"", b"{}".ljust(64), b'{"round": 0, "wait": 0}'.ljust(64), b'{"round": 1, "wait": -1}'.ljust(64), b"[]".ljust(64)):
        with pytest.raises(WireError, match="lot"):
            Lot.from_bytes(bad)


def test_a_client_refuses_another_lot_than_it_was_told(served):
    with served() as (world, role, client):
        told = client(0).lot().round
        with role.store.begin() as connection:
            mine = shuffler_tables.lots.c.client == world.names[0]
            connection.execute(update(shuffler_tables.lots).where(mine).values(first=told % 3 + 1, last=told % 3 + 1))
        with pytest.raises(RefusedTaskError, match="another lot than before"):
            client(0).lot()


def test_a_client_checks_both_promises_and_names_both(served):
    with served(**WATCHED) as (world, _, client):
        guarantee = world.task.schedule.guarantee
        figures = guarantee.epsilon(1e-2), guarantee.if_watched.epsilon(1e-2)
        assert figures[0] < 1 < figures[1] < 20
        assert client(0).task().id == world.task.id
        for limits in ({"max_epsilon": 0.99 * figures[0]}, {"max_epsilon_if_watched": 0.99 * figures[1]}):
            with pytest.raises(RefusedTaskError) as refusal:
                client(0, **limits).task()
            text = str(refusal.value)
            assert "max_epsilon)" in text
            assert "max_epsilon_if_watched)" in text
            assert "Nothing was sent" in text
            said = [float(number) for number in re.findall(r"epsilon (?:= )?([\d.]+)", text)]
            assert said[0] >= figures[0]
            assert said[1] >= figures[1]
        client(0, max_epsilon=1.001 * figures[0], max_epsilon_if_watched=1.001 * figures[1]).task()


def test_the_figure_if_watched_counts_on_those_alone_who_come():
    """Two routes: a plan that counts on a turnout, and one that counts on as many honest users."""
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=5, radius=5.0))
    planned = cr.schedule(problem, 3000, epsilon=1.0, delta=1e-2, rounds=3, lots="secret")
    lots_plan = planned.phases[0].lots
    all_come, most_come = planned.guarantee.if_watched, planned.with_turnout(0.8).guarantee.if_watched
    assert most_come.epsilon(1e-2) > all_come.epsilon(1e-2)
    same = replace(lots_plan, honest=0.8).guarantee.if_watched
    assert most_come == same
    assert planned.with_turnout(0.8).guarantee.epsilon(1e-2) == planned.guarantee.epsilon(1e-2)  # blanks take their places
    again = type(planned).from_json(planned.with_turnout(0.8).to_json())
    assert again.guarantee.if_watched == most_come
    assert "turnout" not in planned.to_json()


def test_whoever_stays_away_may_be_honest_and_whoever_comes_a_cheat():
    """Of 90 % honest users and 80 % who come, no more than 70 % are sure to be both: the figure if watched counts on these."""
    asked = {"epsilon": 2.0, "delta": 1e-3, "users": 2_000, "rounds": 4, "dim": 3}
    plan = replace(plan_lots(**asked, honest=0.9), turnout=0.8)
    both = replace(plan_lots(**asked), one_round=plan.one_round, honest=0.7)
    watched, sure = plan.guarantee.if_watched, both.guarantee.if_watched
    assert (watched.mu, watched.honest) == (sure.mu, 0.7)
    assert watched.mu > replace(both, honest=0.8).guarantee.if_watched.mu


# --- cover


def test_cover_is_taken_like_an_answer_and_thrown_away(make, clock):
    world, private = make(secret=COVERED), X25519PrivateKey.generate()
    role, document = world.shuffler(), round_of(world, key=private)
    role.open(document)
    assert role.rounds_for(world.names) == [document] * 30
    mine, others = of_round(world, 1), [*of_round(world, 2), *of_round(world, 3)]
    for user in others:  # somebody who sends its record in every round is not counted twice
        taken = role.receive(world.names[user], body := world.report(user, document))
        assert role.receive(world.names[user], body) == taken
        assert refused(role, world.names[user], world.report(user, document))[0] == 409
    for user in mine:
        role.receive(world.names[user], world.report(user, document))
    clock.now += COVERED.seconds
    role.close_late()
    assert role.receive(world.names[others[0]], world.report(others[0], document)).arrived == 0  # late ones all hear the same
    clock.now += COVERED.seconds
    counts = read_batch(world, role, private)
    real = sum(world.bits(user, document).bits.sum(axis=1, dtype=np.int64) for user in mine)
    plan = world.task.schedule.phases[0].plan
    blanks = size_of(world) - len(mine)
    expected = real + blanks * (plan.levels / 2 + plan.noise_bits * plan.noise_probability)
    variance = blanks * (0.25 * (plan.levels % 2) + plan.noise_bits * plan.noise_probability * (1 - plan.noise_probability))
    assert np.abs(counts.ones - expected).max() < 7 * np.sqrt(variance)
    assert world.rows("shuffler", "SELECT count(*) FROM reports") == [(0,)]
    assert world.rows("shuffler", "SELECT slot, count(*) FROM taken_part GROUP BY slot") == [("task", len(mine))]


def test_a_device_that_covers_sends_again_the_same_bytes_and_counts_one_answer(served, clock, monkeypatch):
    with served(secret=COVERED) as (world, role, client):
        role.open(round_of(world))
        user = of_round(world, 2)[0]
        bodies, device = [], client(user)
        rows = world.X[user : user + 1], world.y[user : user + 1]

        def lost(path, body=None, headers=None, send=device._server.send):
            if body is not None:
                bodies.append(body)
                if len(bodies) == 1:
                    raise ServerError(None, "cut off")
            return send(path, body, headers)

        monkeypatch.setattr(device._server, "send", lost)
        with pytest.raises(ServerError):
            device.take_part(*rows)
        sent = device.take_part(*rows)
        assert (sent.cover, sent.round, device.answered()) == (True, 1, 0)
        assert len(bodies) == 2
        assert bodies[0] == bodies[1]
        assert device.take_part(*rows) is None  # once a round
        clock.now += 2 * COVERED.seconds
        role.close_late()
        role.open(round_of(world, 2))
        assert device.take_part(*rows).cover is False
        assert device.answered() == 1


# --- task files and documents


FACTS = 'target = {column = "ill", classes = ["yes", "no"]}\ncolumns = {age = {low = 0, high = 100}}\n'


def loaded(folder, *lines) -> TaskFile:
    key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    (folder / "schema.toml").write_text(FACTS)
    words = ['schema = "schema.toml"', "users = 2000", "rounds = 5", f'shuffler_key = "{key}"', *lines]
    (folder / "task.toml").write_text("\n".join(words))
    return TaskFile.load(folder / "task.toml")


def test_a_task_file_has_secret_lots_unless_it_says_otherwise(tmp_path):
    task = loaded(tmp_path).task()
    assert task.secret == SecretRounds(300.0, cover=False)
    assert task.schedule.phases[0].lots.turnout == 0.8
    words = ('lots = "secret"', "round_seconds = 60", "cover = true", "turnout = 0.5", "honest = 0.9")
    task = loaded(tmp_path, *words).task()
    assert task.secret == SecretRounds(60.0, cover=True)
    assert task.schedule.phases[0].lots.turnout == 0.5
    task = loaded(tmp_path, 'lots = "secret"', "patience = 90").task()
    assert (task.secret, task.patience) == (SecretRounds(90.0), None)
    for lines in (['lots = "open"'], ['interactivity = "full"'], ["patience = 10", "honest = 0.9"]):
        task = loaded(tmp_path, *lines).task()
        assert task.secret is None
        assert not task.schedule.secret_lots


def test_a_task_that_names_no_transport_is_verified_as_long_as_its_reports_are_short(tmp_path, monkeypatch):
    short = loaded(tmp_path)
    assert short.task().transport == "verified-sum"
    assert short.estimator._transport == "verified"
    length, plain = short.task().most_report_bytes(), loaded(tmp_path, 'rule = "plain"').task().most_report_bytes()
    assert plain < length
    for most, chosen, stages in (
        (length, "verified-sum", True),
        (length - 1, "verified-sum", False),
        (plain - 1, "masked-sum", True),
    ):
        monkeypatch.setattr(task_words, "MOST_DEFAULT_BYTES", most)
        task = loaded(tmp_path).task()
        assert (task.transport, task.stages) == (chosen, stages)
    assert loaded(tmp_path, 'transport = "messages"').task().transport == "messages"


def test_secret_lots_with_an_enroller_need_keys_that_the_plan_names_beforehand(tmp_path):
    with pytest.raises(ArgumentError, match=r"enroller-keys --slots 5 --blanks \d+ --shuffler-key KEY") as missing:
        loaded(tmp_path, 'lots = "secret"', 'enroller = "keys.json"').task()
    blanks = int(re.search(r"--blanks (\d+)", str(missing.value))[1])
    moduli = tuple((1 << 2047) + 2 * number + 1 for number in range(5))
    for slots, counted in ((1, 0), (5, blanks)):
        keys = EnrollerKeys("https://enroller.example", moduli[:slots], counted)
        (tmp_path / "keys.json").write_text(json.dumps(keys.to_dict()))
        task = loaded(tmp_path, 'enroller = "keys.json"').task()
        assert task.schedule.secret_lots == (counted > 0)  # "auto": as the keys allow
    assert task.schedule.phases[0].lots.blanks == blanks
    (tmp_path / "keys.json").write_text(json.dumps(EnrollerKeys("https://enroller.example", moduli, blanks + 1).to_dict()))
    with pytest.raises(ArgumentError, match=f"{blanks}, those of a round"):
        loaded(tmp_path, 'enroller = "keys.json"').task()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['lots = "hidden"'], "'auto', 'secret', 'open'|auto, secret, open"),
        (['lots = "open"', "cover = true"], "left out where lots are open"),
        (['interactivity = "full"', "round_seconds = 60"], "left out where lots are open"),
        (['lots = "secret"', 'interactivity = "full"'], "sequential"),
        (["round_seconds = 39"], "at least 40"),
        (["turnout = 0"], "turnout"),
        (["cover = 1"], "cover"),
        (["users = true"], "users|Cannot overwrite"),
        ([f'name = "{"n" * 501}"'], "name has 501 characters"),
    ],
)
def test_a_task_file_that_cannot_be_is_refused(tmp_path, lines, words):
    with pytest.raises(ArgumentError, match=words):
        loaded(tmp_path, *lines).task()


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        ({"seconds": 10.0, "cover": False}, "at least 40"),
        ({"seconds": 100.0}, "secret.cover is missing"),
        ({"seconds": 100.0, "cover": 1}, "secret.cover is 1; it must be true or false"),
        ({"seconds": 100.0, "cover": False, "more": 1}, "secret.more is 1; it must be left out"),
        (None, "impossible"),
    ],
)
def test_a_task_whose_rounds_would_tell_is_refused_by_whoever_reads_it(make, roles, secret, words):
    world = make()
    document = world.task.document(world.analyzer_key)
    read = Task.read(document, world.analyzer_key.public_key())
    assert read.secret == SECRET
    assert read.id == world.task.id
    assert read.schedule == world.task.schedule
    foreign = replace(world.task, shuffler=roles.shuffler.public_key()).document(roles.analyzer)
    with pytest.raises(WireError, match=words):
        Task.read(roles.edited(foreign, lambda values: values.update(secret=secret)), roles.analyzer.public_key())
    with pytest.raises(WireError, match="patience"):
        Task.read(roles.edited(foreign, lambda values: values.update(patience=5.0)), roles.analyzer.public_key())


def test_a_shuffler_counts_users_and_not_blanks_among_those_who_hide_one(make):
    world = make()
    role = ShufflerRole(world.store("shuffler"), world.shuffler_key, world.analyzer_key.public_key(), smallest=11)
    assert world.task.schedule.phases[0].plan.honest_users > 11
    with pytest.raises(WireError, match="batches of 10 users"):
        role.take_task(world.task.document(world.analyzer_key))
