"""Secret blocks, deployed: a lot is a round and a block, batches and releases are of pairs, and the analyzer joins the blocks."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_exclusions import bring, settle, spoiled
from helpers_node import asked, needs_node
from helpers_roles import World, randomness, refused, soon, training
from test_counted_blanks import SIGNERS, counted, filled
from test_counted_blanks import Device as Invited
from test_counted_blanks import deployed as with_enroller
from test_deployed_lots import COVERED, ENOUGH, SECRET, Clock, Device, blank_coins, deployed, lots, of_round, read_batch

from croupier.privacy import plan_lots
from croupier.service.analyzer.task_file import TaskFile
from croupier.service.client.client import Client
from croupier.service.net.server import Served
from croupier.service.shuffler import role as shuffler
from croupier.service.shuffler import rounds as tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.wire.documents import Document, WireError
from croupier.service.wire.task import Lot, RefusedTaskError, Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS, SealedReport, block_digest
from croupier.validation import ArgumentError

pytestmark = pytest.mark.process
ASKED = {
    "users": 48,
    "dim": 60,
    "rounds": 2,
    "blocks": 2,
    "rule": "plain",
    "rotation": True,
    "max_inflation": 2.0,
    "secret": SECRET,
}
# So many users that something is promised if their lots are known.
WATCHED = {"users": 240, "dim": 20, "epsilon": 2.0, "max_inflation": 1.2, "honest": 0.95, "exclusions": True, "rounds": 2}


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(shuffler, "time", made)
    return made


@pytest.fixture
def seeded_blanks(monkeypatch):
    numbers = itertools.count(1)
    monkeypatch.setattr(shuffler, "SecureRandom", lambda: blank_coins(next(numbers)))


@pytest.fixture
def make(make_world):
    return lambda **asked_for: make_world(**ASKED | asked_for)


def members(world: World) -> list[list[int]]:
    """Users by their lots, of which each is a round and a block."""
    return [of_round(world, lot) for lot in range(1, world.task.schedule.phases[0].lots.lots + 1)]


def round_at(world: World, number: int = 1, key: X25519PrivateKey | None = None) -> Document:
    private = key or X25519PrivateKey.generate()
    theta = np.zeros(world.task.query.dim)
    return TaskRound(world.task.id, f"{number:032x}", number, 1, theta, private.public_key()).document(world.analyzer_key)


# --- the same model as in memory


@pytest.mark.parametrize(("transport", "secret"), [("masked-sum", COVERED), ("messages", SECRET), ("verified-sum", SECRET)])
def test_over_sockets_theta_is_that_of_the_run_in_memory_with_the_same_lots(make, clock, seeded_blanks, transport, secret):
    world = make(transport=transport, secret=secret)
    plan = world.task.schedule.phases[0].lots
    assert (plan.blocks, plan.lots, plan.one_round.coordinates) == (2, 4, 32)
    with deployed(world) as (running, role, url):
        who = members(world)
        away = next(user for some in who[2:] for user in some)  # never comes: a blank takes its place
        devices = [Device(user, world, url) for user in range(world.users)]
        for device in devices:
            device._task = devices[0].task()  # proved once: it takes a while
        for number in (1, 2):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            here = {*who[2 * number - 2], *who[2 * number - 1]}
            for device in devices:
                if device.user != away:
                    sent = device.take_part(*device.rows)
                    assert (sent is None) == (device.user not in here and not secret.cover)
                    assert sent is None or sent.cover == (device.user not in here)
            soon(lambda: role._blanks._round)
            clock.now = secret.leaves(clock.now)
        theta = running.result()
        answered = running.population.answered()
        assert running.population.answered(1) == answered[1:]
    came = [[user for user in some if user != away] for some in who]
    assert np.array_equal(theta, world.theta_in_memory(came, blank_coins))
    assert np.linalg.norm(theta) > 0
    other = [[*some] for some in came]
    other[0], other[1] = other[1], other[0]  # the same round, the other block
    assert not np.array_equal(theta, world.theta_in_memory(other, blank_coins))
    assert [(one.number, one.users) for one in answered] == [(1, plan.size), (2, plan.size)]
    whole = TRANSPORTS[transport].report_length(replace(plan.one_round, blocks=1))
    for device in devices:
        assert sum(real for _, real, _ in device.made) == (device.user != away)  # its record is randomized once
        assert {length for *_, length in device.made} <= {world.task.most_report_bytes()}
    assert world.task.most_report_bytes() < whole
    assert world.rows("shuffler", "SELECT count(*) FROM reports") == [(0,)]


@needs_node
def test_a_client_in_node_proves_both_figures_and_sends_its_block_beside_python_clients(make, clock, seeded_blanks):
    world = make(**WATCHED, secret=COVERED)
    world.task = replace(world.task, schedule=world.task.schedule.with_turnout(0.9))
    plan, guarantee = world.task.schedule.phases[0].lots, world.task.schedule.guarantee
    assert plan.most_excluded > 0
    key, watched = world.analyzer_key.public_key().public_bytes_raw().hex(), guarantee.if_watched.epsilon(1e-2)
    document = world.task.document(world.analyzer_key).to_bytes().hex()
    (read,) = asked("tasks", documents=[document], key=key, delta=1e-2)
    assert read["epsilon"] == pytest.approx(guarantee.epsilon(1e-2), rel=1e-4)
    assert read["watched"] == pytest.approx(watched, rel=1e-6)
    with deployed(world) as (running, role, url), ThreadPoolExecutor(1) as pool:
        who = members(world)
        refuses, *mine = [who[0][0], *[user for some in who for user in some[1:3]]]
        devices = [Device(user, world, url) for some in who for user in some[3:5]]
        for device in devices:
            device._task = devices[0].task()
        senders = {device.user for device in devices} | set(mine)
        in_node = [
            {
                "token": world.tokens[user],
                "folder": str(world.folder / f"node{user}"),
                "rows": [{"x": world.X[user].tolist(), "y": world.y[user]}],
                "seeds": {number: randomness(user, number)._root.hex() for number in (1, 2)},
                "watched": (0.999 if user == refuses else 1.001) * watched,
            }
            for user in (refuses, *mine)
        ]
        running_in_node = pool.submit(asked, "devices", shuffler=url, key=key, epsilon=2.0, delta=1e-2, devices=in_node)
        for number in (1, 2):
            soon(lambda wanted=number: (now := role.current()) and world.read(now).number == wanted)
            for device in devices:
                device.take_part(*device.rows)
            soon(lambda: world.rows("shuffler", "SELECT count(*) FROM reports") == [(len(senders),)])
            soon(lambda: role._blanks._round)
            clock.now = COVERED.leaves(clock.now)
        refusal, *answers = running_in_node.result()
        theta = running.result()
    assert "knows when each person answered" in refusal["refused"]
    for user, answer in zip(mine, answers, strict=True):
        (lot,) = [lot for lot, some in enumerate(who) if user in some]
        assert [int(number) for number in answer["said"]] == [lot // 2 + 1]
        assert [len(counts) for counts in answer["said"].values()] == [plan.one_round.coordinates]
        assert answer["covered"] == [2 - lot // 2]
    came = [[user for user in some if user in senders] for some in who]
    assert np.array_equal(theta, world.theta_in_memory(came, blank_coins))


def lie(values: dict) -> None:
    """A shorter range than the figures are proved for."""
    for plan in (values["schedule"]["phases"][0]["plan"], values["schedule"]["phases"][0]["lots"]["one_round"]):
        plan["range"] = plan["range"] / 1.05


def fewer_lots(values: dict) -> None:
    """A plan of whole vectors, whose lots are half as many, with the noise of blocks."""
    for plan in (values["schedule"]["phases"][0]["plan"], values["schedule"]["phases"][0]["lots"]["one_round"]):
        del plan["blocks"]


def more_blocks(values: dict) -> None:
    for plan in (values["schedule"]["phases"][0]["plan"], values["schedule"]["phases"][0]["lots"]["one_round"]):
        plan["blocks"] = 3


def in_the_open(values: dict) -> None:
    del values["schedule"]["phases"][0]["lots"]
    del values["secret"]


@needs_node
def test_a_task_in_blocks_that_promises_more_than_its_plan_proves_is_refused_by_both_clients(make, roles):
    world = make()
    task = replace(world.task, shuffler=roles.shuffler.public_key()).document(roles.analyzer)
    false = [roles.edited(task, change) for change in (lie, fewer_lots, more_blocks, in_the_open)]
    for document in false:
        with pytest.raises(WireError):
            Task.read(document, roles.analyzer.public_key())
    assert Task.read(task, roles.analyzer.public_key()).blocks == 2
    key = roles.analyzer.public_key().public_bytes_raw().hex()
    read = asked("tasks", documents=[one.to_bytes().hex() for one in (task, *false)], key=key, delta=1e-2)
    assert "refused" not in read[0]
    assert all(one["refused"].startswith("WireError") for one in read[1:]), read


def test_a_client_names_the_figures_of_all_who_know_more_and_less(make):
    world = make(**WATCHED, transport="masked-sum")
    policy = Client("https://shuffler.example", "t", "00" * 32, folder=world.folder, **ENOUGH).demands
    lots_plan, text = world.task.schedule.phases[0].lots, policy.figures(world.task)
    said = [float(number) for number in re.findall(r"epsilon (?:= )?([\d.]+)", text)]
    figures = [
        promise.epsilon(1e-2) for promise in (lots_plan.guarantee, lots_plan.if_timing_known, lots_plan.guarantee.if_watched)
    ]
    assert figures[0] < figures[1] < figures[2]
    assert all(high >= low for high, low in zip(said, figures, strict=True))
    assert "but not its block" in text


# --- lots


def test_pairs_are_drawn_uniformly_and_all_batches_have_one_public_size(make, clock):
    """Chances: a pair is 6.5 standard deviations off, below 1e-8; all of three draws are even, below 1e-9."""
    sizes = []
    for _ in range(3):
        world = make(users=96)
        role = world.shuffler()
        drawn = lots(world)
        assert sorted(drawn) == sorted(world.names)
        sizes.append(Counter(drawn.values()))
        assert set(sizes[-1]) == {1, 2, 3, 4}
        assert all(abs(count - 24) < 6.5 * math.sqrt(96 * 3 / 16) for count in sizes[-1].values())
    assert any(count != 24 for some in sizes for count in some.values())
    role.open(document := round_at(world))
    for user in of_round(world, 1):  # all of one block come, and nobody of the other
        role.receive(world.names[user], world.report(user, document, 0))
    clock.now += 2 * SECRET.seconds
    role.close_late()
    batches = world.rows("shuffler", "SELECT number, state, length(batch) FROM rounds ORDER BY number")
    assert [(number, state) for number, state, _ in batches] == [(1, "made"), (2, "made")]
    assert len({length for *_, length in batches}) == 1
    assert (
        world.rows("shuffler", "SELECT count(*) FROM checking GROUP BY round") == [(world.task.schedule.phases[0].lots.size,)] * 2
    )


def test_a_lot_names_its_block_and_has_the_length_of_any_other():
    told = [Lot(None), Lot(3), Lot(3, 0.5, 0), Lot(10**6, 1e13, 0), Lot(1, 1e13, 10**6)]
    assert {len(lot.to_bytes()) for lot in told} == {64}
    assert [Lot.from_bytes(lot.to_bytes()) for lot in told] == told
    for bad in (
        '{"round": null, "block": 0, "wait": 0}',
        '{"round": 1, "block": -1, "wait": 0}',
        '{"round": 1, "block": null, "wait": 0}',
    ):
        with pytest.raises(WireError, match="lot"):
            Lot.from_bytes(bad.ljust(64).encode())


def test_places_of_lots_count_blocks_and_rounds(make):
    task = make(rounds=3).task
    assert [list(task.lots_of(number)) for number in (1, 2, 3)] == [[1, 2], [3, 4], [5, 6]]
    assert [task.lot(place) for place in range(1, 7)] == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]
    for beyond in (lambda: task.lots_of(4), lambda: task.lot(7)):
        with pytest.raises(ValueError, match="of a task of"):
            beyond()


def test_only_the_block_of_ones_lot_takes_a_report_and_each_has_a_digest_of_its_own(make, clock):
    world = make()
    role, document = world.shuffler(), round_at(world)
    role.open(document)
    first, other, later = (of_round(world, lot)[0] for lot in (1, 2, 3))
    assert role.rounds_for([world.names[user] for user in (first, other, later)]) == [document, document, None]
    assert refused(role, world.names[first], world.report(first, document, 1)) == (409, "this client's lot is not this round")
    report = SealedReport.from_bytes(world.report(first, document, 0))
    assert report.round == block_digest(document.digest, 0) != block_digest(document.digest, 1)
    assert refused(role, world.names[first], replace(report, round=document.digest).to_bytes())[0] == 400  # no block
    assert role.receive(world.names[first], report.to_bytes()).arrived == 1
    assert role.receive(world.names[other], world.report(other, document, 1)).arrived == 1
    # who has made its report for one block cannot have it counted in the other: it does not open there
    moved = replace(SealedReport.from_bytes(world.report(other, document, 0)), round=block_digest(document.digest, 1))
    assert refused(role, world.names[other], moved.to_bytes())[0] == 409


def test_a_client_refuses_a_lot_that_is_none_or_another_and_a_round_that_is_not_its_own(make, clock):
    world = make()
    role = world.shuffler()
    with Served(shuffler_app(role)) as server:
        key = world.analyzer_key.public_key().public_bytes_raw().hex()
        client = Client(server.url, world.tokens[0], key, folder=world.folder / "c", at_once=True, **ENOUGH)
        place = lots(world)[world.names[0]]
        told = client.lot()
        assert (told.round, told.block) == world.task.lot(place)
        role.open(round_at(world, told.round % 2 + 1))
        task_round = world.read(role.current())
        with pytest.raises(WireError, match="not this user's lot"):
            client._part(world.task, task_round, place, cover=False)
        mine = tables.lots.c.client == world.names[0]
        with role.store.begin() as connection:  # the other block of the same round
            moved = place + 1 if place % 2 else place - 1
            connection.execute(tables.lots.update().where(mine).values(first=moved, last=moved))
        with pytest.raises(RefusedTaskError, match="another lot than before"):
            client.lot()
    for bad in (Lot(1), Lot(1, 0.0, 2), Lot(3, 0.0, 0)):
        client._server.send = lambda *_, bad=bad: bad.to_bytes()
        with pytest.raises(WireError, match="a lot of"):
            client.lot()


def test_cover_is_of_a_block_drawn_afresh(make):
    """By chance all of 40 are of one block once in 10^11."""
    world = make(secret=COVERED)
    client = Client("https://shuffler.example", "t", "00" * 32, folder=world.folder / "c", **ENOUGH)
    task_round = world.read(round_at(world))
    drawn = {client._part(world.task, task_round, lot, cover=True).block for lot in (3, None) for _ in range(20)}
    assert drawn == {0, 1}
    assert [client._part(world.task, task_round, lot, cover=False).block for lot in (1, 2)] == [0, 1]


# --- batches


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_shuffler_killed_between_the_batches_of_a_round_makes_the_others_once(make, clock, transport, monkeypatch):
    world = make(transport=transport)
    private = X25519PrivateKey.generate()
    role, document = world.shuffler(), round_at(world, key=private)
    role.open(document)
    for block, lot in enumerate((1, 2)):
        for user in of_round(world, lot)[:2]:
            role.receive(world.names[user], world.report(user, document, block))
    clock.now += SECRET.seconds
    close, left = role.rounds.close_with_blanks, iter([True, False])
    monkeypatch.setattr(role.rounds, "close_with_blanks", lambda *about: close(*about) if next(left) else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        role.close_late()
    states = "SELECT state FROM rounds ORDER BY number"
    assert world.rows("shuffler", states) == [("made",), ("open",)]
    first = world.rows("shuffler", "SELECT batch FROM rounds WHERE number = 1")
    role = world.shuffler()
    late = of_round(world, 2)[2]
    assert role.rounds_for([world.names[late]]) == [None]
    assert refused(role, world.names[late], world.report(late, document, 1))[0] == 410
    role.close_late()
    assert world.rows("shuffler", states) == [("made",), ("made",)]
    assert world.rows("shuffler", "SELECT batch FROM rounds WHERE number = 1") == first
    assert role.waiting_batch() is None  # both leave at one time
    clock.now += SECRET.seconds
    assert role.waiting_batch()[0] == f"{1:032x}-0"


def test_bad_reports_of_a_block_are_left_out_of_it_alone(make, clock, seeded_blanks):
    world = make(**WATCHED, transport="masked-sum")
    plan = world.task.schedule.phases[0].lots
    role = world.shuffler()
    with training(world) as running:
        who = members(world)
        for number in (1, 2):
            role.open(document := running.next_round(number - 1))
            for block in (0, 1):
                for user in who[2 * number - 2 + block]:
                    body = world.report(user, document, block)
                    cheat = (number, block) == (1, 1) and user == who[1][0]
                    role.receive(world.names[user], spoiled(SealedReport.from_bytes(body)).to_bytes() if cheat else body)
            role.close_late()
            clock.now += SECRET.seconds
            role.close_late()
            clock.now += SECRET.seconds
            bring(role, running.population)
            if number == 1:
                assert running.population.answered() == []  # a block is missing
                assert world.read(running.population.current()).number == 1
            bring(role, running.population)
        theta = running.result()
        answered = running.population.answered()
    assert [(one.number, one.users, one.bad) for one in answered] == [(1, plan.size - 1, 1), (2, plan.size, 0)]
    assert np.array_equal(theta, world.theta_in_memory(who, blank_coins, [who[1][0]]))
    assert tables.excluded_clients(role.store) == [(world.names[who[1][0]], 1)]


def test_too_many_bad_reports_of_a_block_end_the_task_and_the_other_block_is_not_opened(make, clock):
    world = make(transport="masked-sum")
    role = world.shuffler()
    with training(world) as running:
        role.open(document := running.next_round())
        user = of_round(world, 1)[0]
        role.receive(world.names[user], spoiled(SealedReport.from_bytes(world.report(user, document, 0))).to_bytes())
        clock.now += 2 * SECRET.seconds
        role.close_late()
        name, batch = role.waiting_batch()
        running.population.take(batch)
        role.forwarded(name)
        assert "round 1 is spoiled" in soon(running.population.spoiled)
        assert running.population.current() is None
        assert world.rows("analyzer", "SELECT count(*) FROM asked WHERE key IS NOT NULL") == [(0,)]
        name, batch = role.waiting_batch()
        running.population.take(batch)  # acknowledged, and forgotten
        role.forwarded(name)
        settle(role, running.population)
        assert world.rows("analyzer", "SELECT count(*) FROM asked WHERE batch IS NOT NULL OR ones IS NOT NULL") == [(0,)]
        assert world.rows("shuffler", "SELECT state FROM rounds ORDER BY number") == [("refused",), ("checked",)]
        soon(lambda: running.ended)
    assert "spoiled" in str(running.error)


def test_an_analyzer_takes_a_batch_for_its_own_block_alone(make, clock):
    world = make(transport="masked-sum")
    role = world.shuffler()
    with training(world) as running:
        role.open(running.next_round())
        clock.now += 2 * SECRET.seconds
        role.close_late()
        _, batch = role.waiting_batch()
        for digest in (bytes(32), running.population.current().digest):
            with pytest.raises(WireError, match="no round of this task"):
                running.population.take(batch[:16] + digest + batch[48:])
        other = block_digest(running.population.current().digest, 1)
        with pytest.raises(WireError, match="shuffler's"):
            running.population.take(batch[:16] + other + batch[48:])


def test_an_analyzer_keeps_the_document_of_a_round_once_and_reads_it_once_for_a_batch(make, clock, monkeypatch):
    """Otherwise it would read the documents of all lots for every batch, and for every stranger who sends one."""
    world, read = make(transport="masked-sum"), []
    role = world.shuffler()
    with training(world) as running:
        role.open(running.next_round())
        clock.now += 2 * SECRET.seconds
        role.close_late()
        _, batch = role.waiting_batch()
        lengths = [length for (length,) in world.rows("analyzer", "SELECT length(document) FROM asked ORDER BY number")]
        assert [length > 0 for length in lengths] == [True, False]
        document = running.population._document
        monkeypatch.setattr(running.population, "_document", lambda *about: read.append(about) or document(*about))
        running.population._named(batch[16:48])
        assert len(read) == 2  # what its lots are bound to, once and for all; and this one
        running.population._named(batch[16:48])
        assert len(read) == 3
        for _ in range(3):
            with pytest.raises(WireError, match="no round of this task"):
                running.population._named(bytes(32))
        assert len(read) == 3


def test_blanks_of_each_block_have_the_plans_full_noise_and_coins_of_their_own(make, clock):
    """Both blocks' sums of blanks are within 7 standard deviations of zero: 64 coordinates, below 1e-9."""
    world, private = make(users=96, transport="messages"), X25519PrivateKey.generate()
    role = world.shuffler()
    role.open(round_at(world, key=private))
    clock.now += 2 * SECRET.seconds
    role.close_late()
    plan = world.task.schedule.phases[0].plan
    counts = [read_batch(world, role, private).ones for _ in range(2)]
    expected = plan.users * (plan.levels + plan.noise_bits) / 2
    variance = plan.users * (0.25 * (plan.levels % 2) + plan.noise_bits / 4)
    assert np.abs(np.array(counts) - expected).max() < 7 * math.sqrt(variance)
    assert not np.array_equal(*counts)


# --- tokens


@needs_node
def test_with_an_enroller_each_lot_has_tokens_and_blanks_of_its_own(make_world, clock, seeded_blanks):
    """One round of two blocks has as many slots as two rounds. One person is in Node; all others but one send cover or answer."""
    planned = ASKED | {"users": 120, "rounds": 1, "epsilon": 8.0, "max_inflation": 1.2, "secret": COVERED}
    with with_enroller(make_world, **planned, transport="masked-sum") as (world, running, role, made):
        assert len(SIGNERS) == world.task.schedule.phases[0].lots.lots == 2
        who = members(world)
        away, by_node = who[0][0], who[1][0]
        devices = {user: made(Invited, user) for user in range(world.users) if user != away}
        read = devices[by_node].task()
        soon(role.current)
        for user, device in devices.items():
            device._task = read
            if user != by_node:
                assert device.take_part(*device.rows).cover is False
        values = {
            "token": world.tokens[by_node],
            "folder": str(world.folder / "node"),
            "rows": [{"x": world.X[by_node].tolist(), "y": world.y[by_node]}],
            "seeds": {1: randomness(by_node, 1)._root.hex()},
            "invitation": devices[by_node]._invitation,
        }
        where = {"shuffler": devices[by_node].url, "key": world.analyzer_key.public_key().public_bytes_raw().hex()}
        [said] = asked("devices", **where, epsilon=8.01, delta=1e-2, devices=[values])
        assert said["answered"] == 1
        soon(lambda: role._blanks._round)
        clock.now = COVERED.leaves(clock.now)
        theta = running.result()
    came = [[user for user in some if user != away] for some in who]
    assert np.array_equal(theta, world.theta_in_memory(came, blank_coins))
    size = world.task.schedule.phases[0].lots.size
    assert world.rows("analyzer", "SELECT users FROM asked ORDER BY number") == [(size,)] * 2
    assert world.rows("analyzer", "SELECT count(*), count(DISTINCT token) FROM spent") == [(2 * size, 2 * size)]


def test_a_shuffler_that_is_killed_between_two_blocks_makes_the_other_batch_later(make_world, clock, tmp_path, monkeypatch):
    """The tokens of the first block's blanks are gone with its batch: nothing may wait for them again."""
    planned = ASKED | {"users": 120, "rounds": 1, "epsilon": 8.0, "delta": 1e-2, "max_inflation": 1.2}
    world = counted(make_world(**planned, transport="masked-sum"))
    role = filled(world, tmp_path)
    role.open(round_at(world))
    clock.now += 2 * SECRET.seconds
    close = tables.Rounds.close_with_blanks

    def killed(self, task, part, blanks, now):
        if part.block == 1:
            raise KeyboardInterrupt
        close(self, task, part, blanks, now)

    with monkeypatch.context() as patched:
        patched.setattr(tables.Rounds, "close_with_blanks", killed)
        with pytest.raises(KeyboardInterrupt):
            role.close_late()
    states = "SELECT state FROM rounds ORDER BY number"
    assert world.rows("shuffler", states) == [("made",), ("open",)]
    first = world.rows("shuffler", "SELECT batch FROM rounds WHERE number = 1")
    world.shuffler().close_late()
    assert world.rows("shuffler", states) == [("made",), ("made",)]
    assert world.rows("shuffler", "SELECT batch FROM rounds WHERE number = 1") == first


# --- task files


def task_file(folder, columns: int, *lines: str) -> TaskFile:
    key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    facts = "\n".join(f"c{number} = {{low = 0, high = 100}}" for number in range(columns))
    (folder / "schema.toml").write_text(f'target = {{column = "ill", classes = ["yes", "no"]}}\n[columns]\n{facts}\n')
    words = ['schema = "schema.toml"', f'shuffler_key = "{key}"', 'transport = "masked-sum"', *lines]
    (folder / "task.toml").write_text("\n".join(words))
    return TaskFile.load(folder / "task.toml")


def test_a_task_file_may_choose_blocks_and_has_none_by_itself(tmp_path):
    usual = ("users = 20000", "rounds = 10")
    whole, cut = task_file(tmp_path, 60, *usual).task(), task_file(tmp_path, 60, *usual, "blocks = 2").task()
    assert (whole.blocks, cut.blocks, cut.schedule.phases[0].lots.lots) == (1, 2, 20)
    assert cut.most_report_bytes() < whole.most_report_bytes()
    assert "blocks" not in json.dumps(whole.schedule.to_dict())
    assert 'rule "plain", because blocks was given: practical steps' in cut.schedule.why
    planned = task_file(tmp_path, 60, *usual, "blocks = 2").estimator.plan(20_000, 60, turnout=0.8)
    assert planned == cut.schedule


def test_auto_takes_blocks_where_the_rule_does_reports_are_shorter_and_clients_take_the_task(tmp_path):
    """The rule: at least twice as many coordinates as a round has users. By default clients refuse more than 10 if watched."""
    few = task_file(tmp_path, 60, "users = 20000", "rounds = 10", 'blocks = "auto"').task()
    assert few.blocks == 1
    many = ("users = 3000", "rounds = 4", "epsilon = 0.5", "delta = 1e-4", "max_inflation = 1.5", 'blocks = "auto"')
    taken = task_file(tmp_path, 1500, *many)
    assert taken.task().blocks > 1
    assert taken.estimator._blocks == taken.task().blocks
    watched = taken.task().schedule.guarantee.if_watched
    assert watched.epsilon(1e-4) <= 10
    refused_by_clients = task_file(tmp_path, 1500, *many[:2], "epsilon = 2.0", *many[3:])
    assert refused_by_clients._planned("masked-sum", "auto").blocks > 1
    assert refused_by_clients.task().blocks == 1


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["blocks = 3"], "a power of two"),
        (["blocks = 128"], "blocks"),
        (['blocks = "some"'], "blocks"),
        (["blocks = true"], "blocks"),
        (["blocks = 2", 'lots = "open"'], "left out where lots are open"),
        (["blocks = 2", 'rule = "bound"'], "not rotated"),
    ],
)
def test_a_task_file_whose_blocks_cannot_be_is_refused(tmp_path, lines, words):
    with pytest.raises(ArgumentError, match=words):
        task_file(tmp_path, 60, "users = 20000", "rounds = 10", *lines).task()


def test_the_keys_of_an_enroller_are_one_a_lot(tmp_path):
    with pytest.raises(ArgumentError, match=r"enroller-keys --slots 20 --blanks \d+"):
        task_file(tmp_path, 60, "users = 20000", "rounds = 10", "blocks = 2", 'lots = "secret"', 'enroller = "keys.json"').task()


def test_a_plan_with_blocks_is_proved_for_all_pairs():
    """Two routes: Theorem L for T m lots, and a run of as many rounds of whole vectors as long as a block."""
    asked_for = {"epsilon": 1.0, "delta": 1e-4, "users": 4000, "max_inflation": 1.5}
    cut = plan_lots(**asked_for, rounds=4, dim=64, rotation=3.0, blocks=2)
    assert cut.guarantee.allocations[0].rounds == 8
    assert cut.size == plan_lots(**asked_for, rounds=8, dim=32, rotation=3.0).size
