"""The shuffler and the analyzer as objects on real databases: who is counted, who is refused and why, and what is left on disk."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_roles import DIM, Training, Web, World, answer_round, soon, training
from sqlalchemy import event

import croupier as cr
from croupier.optimizer import run
from croupier.population import Batch as Users
from croupier.population import Order, Question
from croupier.protocol import Report as Bits
from croupier.protocol import Secret, SecureRandom
from croupier.service import store as tables
from croupier.service.shuffler import RefusedError, Shuffler, Taken
from croupier.service.store import Store
from croupier.service.task import Round
from croupier.service.transport import sealed_report, shuffled
from croupier.service.web import analyzer_app, shuffler_app
from croupier.service.wire import ROUND, Batch, Document, Report, WireError
from croupier.validation import ArgumentError

TRANSPORTS = ["masked-sum", "messages"]


@pytest.fixture
def make_world(tmp_path):
    made = []

    def make(**asked):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(World(folder, **asked))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def opened(make_world):
    """A sequential task, three rounds of four users, whose first round is open at the shuffler."""
    world = make_world(users=12)
    document = round_of(world)
    shuffler = world.shuffler()
    shuffler.open(document)
    return world, shuffler, document


def round_of(world: World, number: int = 1, phase: int = 1, key: X25519PrivateKey | None = None) -> Document:
    """A round of the task's, signed by its analyzer, without an optimizer behind it."""
    private = key or X25519PrivateKey.generate()
    made = Round(world.task.id, f"{number:032x}", number, phase, np.zeros(DIM), private.public_key())
    return made.document(world.analyzer_key)


def refused(shuffler: Shuffler, name: str, body: bytes) -> tuple[int, str]:
    with pytest.raises(RefusedError) as refusal:
        shuffler.receive(name, body)
    return refusal.value.status, str(refusal.value)


def sizes(world: World) -> tuple[int, int]:
    """Reports, and who has taken part, in the shuffler's database."""
    return tuple(world.rows("shuffler", f"SELECT count(*) FROM {table}")[0][0] for table in ("reports", "taken_part"))


# The shuffler takes one report of each client.


def test_the_same_bytes_again_are_one_report(opened):
    world, shuffler, document = opened
    report = world.report(0, document)
    assert [shuffler.receive(world.names[0], report) for _ in range(3)] == [Taken(1, 4)] * 3
    assert shuffler.receive(world.names[1], world.report(1, document)) == Taken(2, 4)
    assert sizes(world) == (2, 2)


def test_another_report_of_a_client_is_refused_and_the_first_stays(opened):
    world, shuffler, document = opened
    first, second = world.report(0, document), world.report(0, document)  # the same answer, sealed anew
    assert first != second
    shuffler.receive(world.names[0], first)
    assert refused(shuffler, world.names[0], second)[0] == 409
    assert world.rows("shuffler", "SELECT body FROM reports") == [(first,)]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("interactivity", "users"), [("sequential", 12), ("full", 4)])
def test_a_client_takes_part_once_in_a_task_or_once_in_each_of_its_rounds(make_world, transport, interactivity, users):
    world = make_world(transport=transport, interactivity=interactivity, users=users)
    shuffler, first, second = world.shuffler(), round_of(world), round_of(world, 2)
    answer_round(world, shuffler, first, range(4))
    shuffler.forwarded(shuffler.made()[0])
    shuffler.open(second)
    again = world.report(0, second)
    if interactivity == "sequential":
        assert refused(shuffler, world.names[0], again) == (409, "this client has taken part already")
        assert sizes(world) == (0, 4)
    else:
        assert shuffler.receive(world.names[0], again) == Taken(1, 4)
        assert sizes(world) == (1, 5)


def test_the_database_itself_takes_a_client_once(opened):
    world, shuffler, document = opened
    shuffler.receive(world.names[0], world.report(0, document))
    connection = sqlite3.connect(world.folder / "shuffler.db")
    for copy in ("INSERT INTO taken_part SELECT * FROM taken_part", "INSERT INTO reports SELECT * FROM reports"):
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            connection.execute(copy)
    connection.close()


def test_of_many_reports_of_one_client_at_once_one_is_taken(opened):
    world, shuffler, document = opened
    barrier = threading.Barrier(8)

    def send(report):
        barrier.wait()
        try:
            return shuffler.receive(world.names[0], report).arrived
        except RefusedError as refusal:
            return refusal.status

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(send, [world.report(0, document) for _ in range(8)]))
    assert sorted(done) == [1] + [409] * 7
    assert sizes(world) == (1, 1)


def test_clients_that_come_at_once_fill_a_round_exactly(opened):
    """Twelve for four places: four are in the batch, eight hear that the round has ended."""
    world, shuffler, document = opened
    reports = [world.report(user, document) for user in range(12)]
    barrier = threading.Barrier(12)

    def send(user):
        barrier.wait()
        try:
            return shuffler.receive(world.names[user], reports[user]).arrived
        except RefusedError as refusal:
            return refusal.status

    with ThreadPoolExecutor(12) as pool:
        done = list(pool.map(send, range(12)))
    assert sorted(done) == [1, 2, 3, 4] + [410] * 8
    assert Batch.from_bytes(shuffler.made()[1], world.plan(document).bits_per_coordinate, shuffler.public_key).users == 4


# The shuffler refuses what is not a report of its round.


def misshapen(world: World, document: Document) -> dict[str, tuple[bytes, str]]:
    plan, report = world.plan(document), Report.from_bytes(world.report(0, document))
    good = report.to_bytes()
    wide = np.zeros((DIM + 1, plan.bits_per_coordinate), dtype=bool)
    dense = np.zeros((DIM, plan.bits_per_coordinate + 1), dtype=bool)
    key, other = world.read(document).key, {"masked-sum": "messages", "messages": "masked-sum"}[world.task.transport]

    def sealed(transport, digest, bits):
        return sealed_report(transport, digest, Bits(bits, private=False), key).to_bytes()

    right = np.zeros((DIM, plan.bits_per_coordinate), dtype=bool)
    return {
        "nothing": (b"", "too few"),
        "noise": (b"\xff" * len(good), "not CRPR"),
        "cut off": (good[:-1], "bytes where its header makes"),
        "a byte more": (good + b"\0", "bytes where its header makes"),
        "another version": (good[:4] + b"\2" + good[5:], "version 2"),
        "an unknown transport": (good[:5] + b"\7" + good[6:], "transport 7"),
        "no zeros": (good[:6] + b"\1" + good[7:], "header makes"),
        "the other transport": (sealed(other, document.digest, right), f"by {other}"),
        "another round": (sealed(world.task.transport, b"\1" * 32, right), "another round"),
        "a coordinate more": (sealed(world.task.transport, document.digest, wide), "6 coordinates"),
        "a message more": (sealed(world.task.transport, document.digest, dense), "messages where the plan has"),
        "a huge shape": (good[:8] + b"\xff" * 8 + good[16:], "header makes"),
    }


KINDS = [
    "nothing",
    "noise",
    "cut off",
    "a byte more",
    "another version",
    "an unknown transport",
    "no zeros",
    "the other transport",
    "another round",
    "a coordinate more",
    "a message more",
    "a huge shape",
]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_of_another_shape_is_refused_with_the_reason_and_counts_nowhere(make_world, transport, kind):
    world = make_world(transport=transport)
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    body, reason = misshapen(world, document)[kind]
    status, said = refused(shuffler, world.names[0], body)
    assert status == 400
    assert reason in said
    assert sizes(world) == (0, 0)
    assert shuffler.receive(world.names[0], world.report(0, document)) == Taken(1, 4)  # nothing is held against the client


def test_every_misshapen_report_is_tried(make_world):
    world = make_world()
    assert list(misshapen(world, round_of(world))) == KINDS


def test_without_a_task_the_shuffler_asks_to_wait(make_world):
    world = make_world()
    served, document = world.shuffler(), round_of(world)
    served.open(document)
    new = world.shuffler(with_task=False)  # after a restart, before it has reached the analyzer
    assert refused(new, world.names[0], world.report(0, document)) == (503, "no task yet")
    new.take_task(world.task.document(world.analyzer_key))
    assert new.receive(world.names[0], world.report(0, document)) == Taken(1, 4)


def test_before_a_round_reports_are_to_come_later_and_after_it_they_are_late(make_world):
    world = make_world()
    shuffler, first, second = world.shuffler(), round_of(world), round_of(world, 2)
    early, late = world.report(4, second), world.report(5, first)
    assert refused(shuffler, world.names[4], early) == (409, "no round takes reports now")
    answer_round(world, shuffler, first, range(4))
    assert refused(shuffler, world.names[4], early) == (409, "no round takes reports now")
    assert refused(shuffler, world.names[5], late) == (410, "the round has ended")
    shuffler.open(second)
    assert refused(shuffler, world.names[5], late) == (410, "the round has ended")
    assert shuffler.receive(world.names[4], early) == Taken(1, 4)
    assert shuffler.receive(world.names[5], world.report(5, second)) == Taken(2, 4)  # who was late answers another round


@pytest.mark.parametrize(("interactivity", "users"), [("sequential", 12), ("full", 4)])
@pytest.mark.parametrize("next_is_open", [False, True])
def test_a_retry_after_the_round_is_acknowledged_since_it_was_counted(make_world, interactivity, users, next_is_open):
    """The answer to the last report was lost, and the round went on: a client that hears 'too late' would answer again."""
    world = make_world(interactivity=interactivity, users=users)
    shuffler, first = world.shuffler(), round_of(world)
    reports = answer_round(world, shuffler, first, range(4))
    if next_is_open:
        shuffler.open(round_of(world, 2))
    before = sizes(world)
    assert [shuffler.receive(world.names[user], reports[user]).arrived for user in range(4)] == [0] * 4
    assert sizes(world) == before


# The shuffler holds a batch until it is as large as the plan wants.


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_batch_is_made_by_the_last_user_of_the_plan_and_not_before(make_world, transport):
    world = make_world(transport=transport)
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(3))
    assert shuffler.made() is None
    shuffler.close_late()
    assert shuffler.made() is None  # no patience is given: all are waited for
    shuffler.receive(world.names[3], world.report(3, document))
    name, data = shuffler.made()
    batch = Batch.from_bytes(data, world.plan(document).bits_per_coordinate, shuffler.public_key)
    assert (name, batch.users, batch.round) == (world.read(document).id, 4, document.digest)
    assert shuffler.current() is None


@pytest.mark.parametrize(("patience", "ends"), [(0.0, True), (3600.0, False), (None, False)])
def test_a_round_with_the_honest_minimum_ends_when_patience_does(make_world, patience, ends):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=patience)
    shuffler, document = world.shuffler(), round_of(world)
    minimum = world.plan(document).honest_users
    assert minimum == 9
    answer_round(world, shuffler, document, range(minimum - 1))
    shuffler.close_late()
    assert shuffler.made() is None  # one too few, however late it is
    shuffler.receive(world.names[8], world.report(8, document))
    shuffler.close_late()
    assert (shuffler.made() is not None) == ends
    if ends:
        batch = Batch.from_bytes(shuffler.made()[1], world.plan(document).bits_per_coordinate, shuffler.public_key)
        assert batch.users == minimum
        assert refused(shuffler, world.names[9], world.report(9, document))[0] == 410
    else:
        assert shuffler.receive(world.names[9], world.report(9, document)) == Taken(10, 12)


def test_patience_counts_from_the_opening_of_a_round_across_a_restart(make_world):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=0.5)
    document = round_of(world)
    answer_round(world, world.shuffler(), document, range(9))
    new = world.shuffler()

    def made():
        new.close_late()
        return new.made()

    assert soon(made) is not None
    [(opened,)] = world.rows("shuffler", "SELECT opened FROM rounds")
    assert time.time() >= opened + 0.5
    assert sizes(world) == (0, 9)


def test_closing_late_does_nothing_without_a_round_or_a_task(make_world):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=0.0)
    world.shuffler().close_late()
    world.shuffler(with_task=False).close_late()
    assert world.rows("shuffler", "SELECT count(*) FROM rounds") == [(0,)]


# The shuffler serves one task of one analyzer.


def test_tasks_that_the_shuffler_cannot_honour_are_refused(make_world):
    world, small = make_world(), make_world(users=9, interactivity="full", honest=0.5)
    stranger = Ed25519PrivateKey.generate()
    shuffler = world.shuffler(with_task=False)
    with pytest.raises(WireError, match="signature is not the expected key's"):
        shuffler.take_task(world.task.document(stranger))
    with pytest.raises(WireError, match="a task for another shuffler"):
        shuffler.take_task(replace(world.task, shuffler=stranger.public_key()).document(world.analyzer_key))
    with pytest.raises(WireError, match="kind 2 where kind 1"):
        shuffler.take_task(round_of(world))
    assert shuffler.task is None
    shuffler.take_task(world.task.document(world.analyzer_key))
    with pytest.raises(WireError, match="another task than the one"):
        shuffler.take_task(replace(world.task, id="another").document(world.analyzer_key))
    careful = Shuffler(small.store("shuffler"), small.shuffler_key, small.analyzer_key.public_key(), smallest=6)
    with pytest.raises(WireError, match="batches of 5 users; this shuffler makes none of less than 6"):
        careful.take_task(small.task.document(small.analyzer_key))


def test_rounds_of_somebody_else_are_refused_and_known_ones_are_not_opened_twice(opened):
    world, shuffler, document = opened
    stranger = Ed25519PrivateKey.generate()
    values = json.loads(document.text)
    with pytest.raises(WireError, match="signature is not the expected key's"):
        shuffler.open(Document.signed(ROUND, values, stranger))
    with pytest.raises(WireError, match="not of this task"):
        shuffler.open(Document.signed(ROUND, values | {"task": "another"}, world.analyzer_key))
    with pytest.raises(WireError, match="opened with other words"):
        shuffler.open(Document.signed(ROUND, values | {"theta": [1.0] * DIM}, world.analyzer_key))
    before = world.rows("shuffler", "SELECT * FROM rounds")
    shuffler.open(document)
    assert world.rows("shuffler", "SELECT * FROM rounds") == before
    answer_round(world, shuffler, document, range(4))
    shuffler.forwarded(shuffler.made()[0])
    shuffler.open(document)  # the analyzer may not have gone on yet
    assert shuffler.current() is None


# The shuffler permutes, forwards once, and forgets.


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_batch_has_all_envelopes_in_another_order_each_time(make_world, transport):
    """Orders of 40 users' envelopes: that two of three agree has a chance below 1e-40."""
    world = make_world(transport=transport, users=40, interactivity="full")
    document = round_of(world)
    reports = [Report.from_bytes(world.report(user, document)) for user in range(40)]
    length = 49 if transport == "messages" else 80
    orders = []
    for _ in range(2):
        batch = shuffled(reports, SecureRandom())
        orders.append([bytes(envelope) for envelope in batch.sealed.reshape(-1, length)])
    sent = [report.sealed.reshape(-1, length) for report in reports]
    rows = len(sent[0]) // (DIM if transport == "messages" else 1)
    labels = range(DIM) if transport == "messages" else range(1)
    orders.append([bytes(envelope) for label in labels for one in sent for envelope in one[rows * label : rows * (label + 1)]])
    assert len({tuple(order) for order in orders}) == 3
    block = 40 * rows  # no envelope has changed its label
    for start in range(0, len(orders[0]), block):
        assert len({tuple(sorted(order[start : start + block])) for order in orders}) == 1


def pieces(reports: list[bytes], transport: str) -> tuple[list[bytes], list[bytes]]:
    """Random bytes that say which report it is: those that never leave the shuffler, and those of envelopes."""
    read = [Report.from_bytes(report) for report in reports]
    own = [bytes(report.masked.tobytes()[:24]) for report in read] if transport == "masked-sum" else []
    envelopes = [bytes(report.sealed.reshape(-1)[:40]) for report in read]
    return own, envelopes


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_nothing_of_a_report_is_left_on_disk_once_its_batch_is_forwarded(make_world, transport, interactivity):
    world = make_world(transport=transport, interactivity=interactivity, users=12)
    shuffler, document = world.shuffler(), round_of(world)
    wanted = world.plan(document).users
    shuffler.open(document)
    reports = [world.report(user, document) for user in range(wanted)]
    own, envelopes = pieces(reports, transport)
    for user, report in enumerate(reports[:-1]):
        shuffler.receive(world.names[user], report)
    on_disk = world.files("shuffler")
    assert all(piece in on_disk for piece in own[:-1] + envelopes[:-1])  # so that their absence says something
    shuffler.receive(world.names[wanted - 1], reports[-1])
    on_disk = world.files("shuffler")
    assert not any(report[48:] in on_disk for report in reports)
    assert not any(piece in on_disk for piece in own)
    assert all(piece in on_disk for piece in envelopes)  # in the batch, which waits
    assert sizes(world) == (0, wanted)
    shuffler.forwarded(shuffler.made()[0])
    on_disk = world.files("shuffler")
    assert not any(piece in on_disk for piece in own + envelopes)
    assert world.rows("shuffler", "SELECT state, batch FROM rounds") == [("forwarded", None)]
    assert shuffler.made() is None
    assert world.names[0].encode() in on_disk  # what is remembered: who took part


def test_a_log_that_a_killed_process_left_is_emptied_when_the_database_is_opened(make_world, tmp_path):
    """Killed after the deletion was on disk, and before the log was emptied."""
    world = make_world()
    shuffler, document = world.shuffler(), round_of(world)
    reports = answer_round(world, shuffler, document, range(3))
    own, envelopes = pieces(reports, "masked-sum")
    with shuffler.store.begin() as connection:
        connection.execute(tables.reports.delete())
    left = tmp_path / "left"
    left.mkdir()
    for file in world.folder.glob("shuffler.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, left)
    assert any(piece in (left / "shuffler.db-wal").read_bytes() for piece in own + envelopes)
    reopened = Store(f"sqlite:///{left / 'shuffler.db'}", tables.SHUFFLER)
    on_disk = b"".join(file.read_bytes() for file in left.glob("shuffler.db*"))
    reopened.close()
    assert not any(piece in on_disk for piece in own + envelopes)


def test_only_the_hash_of_a_token_is_kept(make_world):
    world = make_world()
    store = world.store("shuffler")
    assert [tables.client_of(store, token) for token in world.tokens] == world.names
    assert tables.client_of(store, world.tokens[0][:-1]) is None
    assert tables.client_of(store, tables.hash_of(world.tokens[0])) is None
    on_disk = world.files("shuffler")
    assert not any(token.encode() in on_disk for token in world.tokens)
    assert tables.hash_of(world.tokens[0]).encode() in on_disk


# The analyzer counts a whole batch of its own round, once.


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_counts_are_the_sum_of_the_users_bits_and_theta_that_of_the_run_in_memory(make_world, transport, interactivity):
    world = make_world(transport=transport, interactivity=interactivity, users=12)
    shuffler, expected = world.shuffler(), []
    with training(world) as running:
        for number, members in enumerate(world.members()):
            document = running.next_round(after=number)
            answer_round(world, shuffler, document, members)
            expected.append(sum(world.bits(user, document).bits.sum(axis=1, dtype=int) for user in members).tolist())
            name, batch = shuffler.made()
            running.population.take(batch)
            shuffler.forwarded(name)
        theta = running.result()
    found = world.rows("analyzer", "SELECT ones, users, key FROM asked ORDER BY number")
    assert [json.loads(ones) for ones, _, _ in found] == expected
    assert [(users, key) for _, users, key in found] == [(len(members), None) for members in world.members()]
    assert np.array_equal(theta, world.theta_in_memory(world.members()))


def test_the_key_of_a_round_is_on_disk_until_its_answer_and_not_after(make_world):
    world = make_world()
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        [(private,)] = world.rows("analyzer", "SELECT key FROM asked")
        assert X25519PrivateKey.from_private_bytes(private).public_key() == world.read(document).key
        assert private in world.files("analyzer")
        answer_round(world, shuffler, document, range(4))
        running.population.take(shuffler.made()[1])
        assert private not in world.files("analyzer")
        following = running.next_round(after=1)
        assert world.read(following).key != world.read(document).key


def test_the_analyzer_has_nothing_of_any_client_on_disk(make_world):
    world = make_world()
    shuffler, reports = world.shuffler(), []
    with training(world) as running:
        for number, members in enumerate(world.members()):
            reports += answer_round(world, shuffler, running.next_round(after=number), members)
            name, batch = shuffler.made()
            running.population.take(batch)
            shuffler.forwarded(name)
            on_disk = world.files("analyzer") + (world.folder / "run.journal").read_bytes()
            own, envelopes = pieces(reports, "masked-sum")
            secrets = [text.encode() for text in world.names + world.tokens + [tables.hash_of(token) for token in world.tokens]]
            assert not any(piece in on_disk for piece in secrets + own + envelopes)
        running.result()
    assert world.names[0].encode() in world.files("shuffler")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_batch_again_is_acknowledged_and_changes_nothing(make_world, transport):
    """At once; while the next round, of a phase with another plan, is waited for; and when the run has ended."""
    world = make_world(transport=transport, users=12)
    first, second = (
        cr.schedule(world.task.problem, users, epsilon=epsilon, delta=1e-2, method="acsa", rounds=users // 4, max_inflation=1e9)
        for users, epsilon in ((8, 8.0), (4, 2.0))
    )
    phases = first.phases + second.phases
    assert phases[0].plan.bits_per_coordinate != phases[1].plan.bits_per_coordinate
    world.task = replace(world.task, schedule=replace(first, phases=phases))
    shuffler, batches = world.shuffler(), []
    with training(world) as running:
        for number, members in enumerate(world.members()):
            answer_round(world, shuffler, running.next_round(after=number), members)
            name, batch = shuffler.made()
            batches.append(batch)
            running.population.take(batch)
            running.next_round(after=number + 1)
            before = world.rows("analyzer", "SELECT * FROM asked")
            for known in batches:
                running.population.take(known)
            assert world.rows("analyzer", "SELECT * FROM asked") == before
            shuffler.forwarded(name)
        theta = running.result()
    assert np.array_equal(theta, world.theta_in_memory(world.members()))


def test_a_batch_that_arrives_several_times_at_once_is_one(make_world):
    world = make_world(transport="messages")
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        answer_round(world, shuffler, document, range(4))
        _, batch = shuffler.made()
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(running.population.take, [batch] * 6)) == [None] * 6
        running.next_round(after=1)
    expected = sum(world.bits(user, document).bits.sum(axis=1, dtype=int) for user in range(4)).tolist()
    assert [json.loads(ones) for (ones,) in world.rows("analyzer", "SELECT ones FROM asked WHERE number = 1")] == [expected]


def spoiled(world: World, document: Document) -> dict[str, tuple[bytes, str]]:
    """Batches that the analyzer must not count, and why; all but two are signed by the shuffler."""
    key, plan = world.shuffler_key, world.plan(document)
    reports = [Report.from_bytes(world.report(user, document)) for user in range(5)]
    transport, sealed_for = world.task.transport, world.read(document).key
    shape = (DIM, plan.bits_per_coordinate)

    def batch(some):
        return shuffled(some, SecureRandom()).to_bytes(key)

    def sealed(bits, **changed):
        about = {"transport": transport, "round_digest": document.digest, "key": sealed_for} | changed
        return sealed_report(bits=Bits(bits, private=False), **about)

    good = batch(reports[:4])
    tampered = np.array(reports[0].sealed)
    tampered.reshape(-1)[40] ^= 1
    other = {"masked-sum": "messages", "messages": "masked-sum"}[transport]
    if transport == "messages":
        odd = sealed(np.full(shape, 2, dtype=np.uint8)), "something else than a bit"
    else:
        odd = replace(reports[0], masked=reports[0].masked - np.uint64(1 << 40)), "counts that no users could have sent"
    stranger = X25519PrivateKey.generate().public_key()
    zeros = np.zeros(shape, dtype=bool)
    small, wide = [sealed(zeros, transport=other)] * 4, [sealed(np.zeros((DIM + 1, shape[1]), dtype=bool))] * 4
    return {
        "nothing": (b"", "no round of this task"),
        "noise": (b"\xff" * 500, "no round of this task"),
        "a header alone": (good[:48], "too few"),
        "cut off": (good[:-1], "another length"),
        "a byte more": (good + b"\0", "another length"),
        "another version": (good[:4] + b"\2" + good[5:], "version 2"),
        "signed by somebody else": (shuffled(reports[:4], SecureRandom()).to_bytes(Ed25519PrivateKey.generate()), "the shuffler's"),
        "changed on the way": (good[:-100] + bytes([good[-100] ^ 1]) + good[-99:], "the shuffler's"),
        "of fewer than the minimum": (batch(reports[:3]), "another shape"),
        "of more than the plan's users": (batch(reports), "another shape"),
        "of no users": (Batch(transport, document.digest, 0, *empty(transport, shape)).to_bytes(key), "another shape"),
        "of another round": (shuffled([sealed(zeros, round_digest=b"\1" * 32)] * 4, SecureRandom()).to_bytes(key), "no round"),
        "by the other transport": (batch(small), "another shape"),
        "of another dimension": (batch(wide), "another shape"),
        "with an envelope that was changed": (batch([replace(reports[0], sealed=tampered), *reports[1:4]]), "does not open"),
        "with an envelope for another key": (batch([sealed(zeros, key=stranger), *reports[1:4]]), "does not open"),
        "with what no client sends": (batch([odd[0], *reports[1:4]]), odd[1]),
    }


def empty(transport, shape):
    if transport == "messages":
        return np.zeros((DIM, 0, 49), dtype=np.uint8), None
    return np.zeros((0, 80), dtype=np.uint8), np.zeros(DIM, dtype=np.uint64)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_batch_that_is_not_whole_and_of_this_round_is_refused_and_nothing_changes(make_world, transport):
    world = make_world(transport=transport)
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        before = world.rows("analyzer", "SELECT * FROM asked")
        for kind, (data, reason) in spoiled(world, document).items():
            with pytest.raises(WireError) as refusal:
                running.population.take(data)
            assert reason in str(refusal.value), kind
            assert world.rows("analyzer", "SELECT * FROM asked") == before, kind
        answer_round(world, shuffler, document, range(4))
        running.population.take(shuffler.made()[1])  # the key is there still, and the right batch is taken
        assert world.read(running.next_round(after=1)).number == 2


def test_the_analyzer_asks_nothing_that_its_task_does_not_say(make_world):
    world = make_world()
    population = world.population()
    plan = world.task.schedule.phases[0].plan
    users = Users(Order(Secret.of_seed(1), 12), 0, 4, 0, 0)
    with pytest.raises(ArgumentError, match="gradients of the task's problem"):
        population.answer(Question(lambda X, y: X, users, plan, Secret.of_seed(1)))
    other = cr.schedule(world.task.problem, 12, epsilon=9.0, delta=1e-2, rounds=3, method="acsa", max_inflation=1e9)
    with pytest.raises(ArgumentError, match="a round of the task's schedule"):
        run(world.task.problem, population, other, start=np.zeros(DIM))
    assert world.rows("analyzer", "SELECT count(*) FROM asked") == [(0,)]


# Either role stops and goes on.


def test_a_stopped_analyzer_publishes_the_very_same_round_again_and_asks_no_answered_one(make_world):
    world = make_world()
    shuffler, seen = world.shuffler(), []
    for number, members in enumerate(world.members()):
        for _ in range(2):  # stopped before each answer
            with training(world) as running:
                seen.append(running.next_round(after=number).to_bytes())
            assert isinstance(running.error, KeyboardInterrupt)
        assert seen[-1] == seen[-2]
        answer_round(world, shuffler, Document.from_bytes(seen[-1]), members)
        world.population().take(shuffler.made()[1])  # stopped after the counts, and before the optimizer saw them
        shuffler.forwarded(shuffler.made()[0])
    with training(world) as running:
        theta = running.result()
    assert len(world.rows("analyzer", "SELECT id FROM asked")) == len(set(seen)) == 3
    assert np.array_equal(theta, world.theta_in_memory(world.members()))


def test_a_shuffler_that_is_made_anew_in_every_state_goes_on(make_world):
    world = make_world()
    document = round_of(world)
    assert world.shuffler().current() is None
    world.shuffler().open(document)
    for user in range(4):
        assert world.shuffler().current() == document
        assert world.shuffler().made() is None
        report = world.report(user, document)
        assert [world.shuffler().receive(world.names[user], report).arrived for _ in range(2)] == [user + 1, (user + 1) % 4]
    name, batch = world.shuffler().made()
    assert world.shuffler().made() == (name, batch)  # the very same batch, not another shuffle of it
    assert world.shuffler().current() is None
    world.shuffler().forwarded(name)
    assert world.shuffler().made() is None
    assert refused(world.shuffler(), world.names[5], world.report(5, document))[0] == 410
    following = round_of(world, 2)
    world.shuffler().open(following)
    assert refused(world.shuffler(), world.names[0], world.report(0, following)) == (409, "this client has taken part already")


class Killed(BaseException):  # not an error that anybody handles
    """The process is gone here."""


@dataclass
class Executioner:
    """Kills a role at its n-th change of the database, just before it is on disk or just after: what is left is a copy of the
    files at that moment, as kill -9 leaves them."""

    world: World
    role: str
    at: int
    after: bool
    changes: int = 0
    done: bool = False

    def watch(self, store: Store) -> None:
        changed = threading.local()
        dead = threading.Event()  # for all of its threads

        @event.listens_for(store.engine, "after_cursor_execute")
        def note(connection, cursor, statement, *_):
            changed.yes = getattr(changed, "yes", False) or statement.startswith(("INSERT", "UPDATE", "DELETE"))

        @event.listens_for(store.engine, "commit")
        def kill(connection):
            if dead.is_set():
                raise Killed
            change, changed.yes = getattr(changed, "yes", False), False
            if not change or self.done:
                return
            self.changes += 1
            if self.changes == self.at:
                self.done = True
                dead.set()
                if self.after:
                    connection.exec_driver_sql("COMMIT")
                self.copy(self.world.folder, self.world.folder / "killed")
                raise Killed

    def copy(self, source, target) -> None:
        target.mkdir(exist_ok=True)
        for file in target.glob(f"{self.role}.db*"):
            file.unlink()
        for file in source.glob(f"{self.role}.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, target)

    def bury(self, store: Store) -> None:
        """What the dead process would have done no more is undone."""
        store.close()
        self.copy(self.world.folder / "killed", self.world.folder)


class Deployment:
    """Both roles; a step that a death cut off is done again by the next process, and clients send what they sent."""

    def __init__(self, world: World, executioner: Executioner) -> None:
        self.world, self.executioner, self.sent = world, executioner, {}
        self.shuffler, self.training = None, None

    def finish(self) -> np.ndarray:
        for _ in range(20):  # rounds, and what a death makes of them
            try:
                self._start()
                if (theta := self._round()) is not None:
                    return theta
            except Killed:
                self._bury()
        raise AssertionError("the run does not end")

    def _start(self) -> None:
        if self.shuffler is None:
            self.shuffler = self.world.shuffler()
            if self.executioner.role == "shuffler":
                self.executioner.watch(self.shuffler.store)
        if self.training is None:
            population = self.world.population()
            if self.executioner.role == "analyzer":
                self.executioner.watch(population.store)
            self.training = Training(self.world, population).__enter__()

    def _round(self) -> np.ndarray | None:
        if (made := self.shuffler.made()) is not None:
            self.training.population.take(made[1])
            self.shuffler.forwarded(made[0])
        done = [number for (number,) in self.world.rows("analyzer", "SELECT number FROM asked WHERE ones IS NOT NULL")]
        document = self.training.next_round(after=max(done, default=0))
        if document is None:
            if isinstance(self.training.error, Killed):
                raise Killed
            return self.training.result()
        self.shuffler.open(document)
        for user in self.world.members()[self.world.read(document).number - 1]:
            report = self.sent.setdefault((user, document.digest), self.world.report(user, document))
            self.shuffler.receive(self.world.names[user], report)
        return None

    def _bury(self) -> None:
        if self.executioner.role == "shuffler":
            self.executioner.bury(self.shuffler.store)
            self.shuffler = None
        else:
            self.stop()
            self.executioner.bury(self.training.population.store)
            self.training = None

    def stop(self) -> None:
        if self.training is not None:
            self.training.__exit__()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
@pytest.mark.parametrize(("transport", "interactivity", "users"), [("masked-sum", "sequential", 6), ("messages", "full", 2)])
def test_a_role_killed_at_any_change_of_its_database_loses_nothing_and_counts_nobody_twice(
    make_world, role, after, transport, interactivity, users
):
    theta = None
    for at in itertools.count(1):
        world = make_world(transport=transport, interactivity=interactivity, users=users)
        executioner = Executioner(world, role, at, after)
        deployment = Deployment(world, executioner)
        try:
            theta = deployment.finish()
        finally:
            deployment.stop()
        found = world.rows("analyzer", "SELECT number, users FROM asked WHERE key IS NULL ORDER BY number")
        assert found == [(number, 2) for number in (1, 2, 3)]
        assert world.rows("shuffler", "SELECT state, batch FROM rounds") == [("forwarded", None)] * 3
        assert sizes(world) == (0, 6)
        assert np.array_equal(theta, world.theta_in_memory(world.members()))
        world.close()
        if not executioner.done:
            break
    # A round is published and answered; or opened, its two reports taken, the batch made with the second, and forwarded.
    assert at - 1 == {"analyzer": 2, "shuffler": 4}[role] * 3


@pytest.mark.parametrize(("role", "metadata"), [("shuffler", tables.SHUFFLER), ("analyzer", tables.ANALYZER)])
def test_a_database_of_another_version_is_refused_and_left_as_it_is(make_world, role, metadata):
    world = make_world()
    world.store(role).close()
    connection = sqlite3.connect(world.folder / f"{role}.db")
    connection.execute("UPDATE schema_version SET version = 2")
    connection.commit()
    connection.close()
    before = (world.folder / f"{role}.db").read_bytes()
    with pytest.raises(RuntimeError, match="a database of version 2; this is version 1: use the release that made it"):
        Store(world.databases[role], metadata)
    assert (world.folder / f"{role}.db").read_bytes() == before


# The roles behind HTTP: a status and a reason for everything.


@pytest.fixture
def web(opened):
    world, shuffler, document = opened
    app = shuffler_app(shuffler)
    app.state.task_document = world.task.document(world.analyzer_key).to_bytes()
    with Web(app) as client:
        yield world, client, document


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_clients_find_the_task_and_the_round_and_are_told_that_a_report_is_kept(web):
    world, client, document = web
    task = client.get("/v1/task")
    assert (task.status, task.content) == (200, world.task.document(world.analyzer_key).to_bytes())
    assert client.get("/v1/round").content == document.to_bytes()
    report = world.report(0, document)
    for _ in range(2):
        done = client.post("/v1/report", report, bearer(world.tokens[0]))
        assert (done.status, done.content) == (200, b"")
        assert done.headers["x-content-type-options"] == "nosniff"
        assert done.headers["cache-control"] == "no-store"
    assert client.get("/healthz").text == "ok\n"
    figures = client.get("/metrics").text
    assert "croupier_reports_taken_total 2.0" in figures
    assert "croupier_reports_arrived 1.0" in figures
    assert not any(secret in figures for secret in world.names + world.tokens)


def test_every_refusal_has_its_status_and_a_reason_without_secrets(web):
    world, client, document = web
    good, token, longest = world.report(0, document), world.tokens[0], len(world.report(0, document))
    others = world.report(1, document)
    assert client.post("/v1/report", others, bearer(world.tokens[1])).status == 200
    cases = [
        (401, good, {}),
        (401, good, bearer("")),
        (401, good, bearer(token + "x")),
        (401, good, bearer(world.names[0])),
        (401, good, {"Authorization": f"Basic {token}"}),
        (401, good, {"Authorization": token}),
        (401, good, {"Authorization": "Bearer \xff\xfe\x80"}),
        (400, b"", bearer(token)),
        (400, good[:-1], bearer(token)),
        (400, b"\0" * longest, bearer(token)),
        (413, good + b"\0", bearer(token)),
        (413, good, bearer(token) | {"Content-Length": "9" * 20}),
        (413, good, bearer(token) | {"Content-Length": "9" * 5000}),
        (413, good, bearer(token) | {"Content-Length": "-1"}),
        (409, good, bearer(world.tokens[1])),
    ]
    for status, body, headers in cases:
        answer = client.post("/v1/report", body, headers)
        assert answer.status == status, (headers, answer.text)
        assert 5 < len(answer.text) < 200
        assert answer.text.isascii()
        secrets = [*world.names, *world.tokens, world.task.document(world.analyzer_key).text.decode()]
        assert not any(secret in answer.text for secret in secrets)
    stream = client.post("/v1/report", [good] * 3, bearer(token))
    assert stream.status == 413  # without a length that it declares
    assert sizes(world) == (1, 1)
    figures = client.get("/metrics").text
    for status in (400, 401, 409, 413):
        expected = sum(case[0] == status for case in cases) + (status == 413)
        assert f'croupier_reports_refused_total{{status="{status}"}} {float(expected)}' in figures
    assert client.get("/v1/report").status == 405
    assert client.post("/v1/batch", good).status == 404
    assert [client.get(path).status for path in ("/docs", "/openapi.json", "/redoc", "/")] == [404] * 4


def test_a_client_that_asks_too_often_is_slowed_down_and_others_are_not(web):
    world, client, document = web
    statuses = [client.post("/v1/report", b"", bearer(world.tokens[0])).status for _ in range(60)]
    assert statuses[:20] == [400] * 20
    assert 429 in statuses[20:]
    assert client.post("/v1/report", world.report(1, document), bearer(world.tokens[1])).status == 200

    def accepted():
        return client.post("/v1/report", world.report(0, document), bearer(world.tokens[0])).status == 200

    assert soon(accepted)  # later


def test_before_there_is_a_task_clients_are_asked_to_wait(make_world):
    world = make_world()
    with Web(shuffler_app(world.shuffler(with_task=False))) as client:
        assert client.get("/v1/task").status == 503
        assert (client.get("/v1/round").status, client.get("/v1/round").content) == (200, b"")
        report = world.report(0, round_of(world))
        assert client.post("/v1/report", report, bearer(world.tokens[0])).status == 503
        assert client.post("/v1/report", report).status == 401


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_analyzer_takes_batches_over_http_and_says_why_it_does_not(make_world, transport):
    world = make_world(transport=transport)
    shuffler = world.shuffler()
    with training(world) as running, Web(analyzer_app(running.population)) as client:
        document = running.next_round()
        assert client.get("/v1/task").content == world.task.document(world.analyzer_key).to_bytes()
        assert client.get("/v1/round").content == document.to_bytes()
        for data, reason in spoiled(world, document).values():
            answer = client.post("/v1/batch", data)
            assert answer.status == 400
            assert reason in answer.text
        assert client.post("/v1/batch", b"", {"Content-Length": str(1 << 33)}).status == 413
        answer_round(world, shuffler, document, range(4))
        _, batch = shuffler.made()
        assert [client.post("/v1/batch", batch).status for _ in range(3)] == [200] * 3
        assert world.read(running.next_round(after=1)).number == 2
        assert "croupier_batches_taken_total 3.0" in client.get("/metrics").text
    assert world.rows("analyzer", "SELECT number, users FROM asked ORDER BY number") == [(1, 4), (2, None)]
