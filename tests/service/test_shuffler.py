"""The shuffler without a network: one report of each client, whole batches, and nothing left of the link."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_exclusions import batch_made
from helpers_roles import DIM, World, answer_round, pieces, refused, round_of, sizes, soon
from sqlalchemy.exc import IntegrityError, OperationalError

from croupier.protocol import Report as Bits
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.net import database as tables
from croupier.service.net.database import Database
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler import rounds as taking
from croupier.service.shuffler.role import RoundClock, ShufflerRole
from croupier.service.shuffler.rounds import draw_lots
from croupier.service.wire.documents import ROUND, Document, Exclusions, WireError
from croupier.service.wire.task import Accepted, RefusedError
from croupier.service.wire.transports import TRANSPORTS as BY_NAME
from croupier.service.wire.transports import SealedBatch, SealedReport

TRANSPORTS = ["masked-sum", "messages"]


# The shuffler takes one report of each client.


def test_the_same_bytes_again_are_one_report(opened):
    world, shuffler, document = opened
    report = world.report(0, document)
    assert [shuffler.receive(world.names[0], report) for _ in range(3)] == [Accepted(1, 4)] * 3
    assert shuffler.receive(world.names[1], world.report(1, document)) == Accepted(2, 4)
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
    shuffler.forwarded(shuffler.waiting_batch()[0])
    shuffler.open(second)
    again = world.report(0, second)
    if interactivity == "sequential":
        assert refused(shuffler, world.names[0], again) == (409, "this client has taken part already")
        assert sizes(world) == (0, 4)
    else:
        assert shuffler.receive(world.names[0], again) == Accepted(1, 4)
        assert sizes(world) == (1, 5)


def test_what_every_report_asks_is_found_by_indexes_however_many_reports_there_are(opened):
    world, _, _ = opened
    asked = [value for name, value in vars(taking).items() if isinstance(value, tables.Statement) and name != "_FIRST"]
    with world.store("shuffler").look() as connection:
        plans = []
        for statement in asked:
            text, places = statement.text(connection)
            values = ['["a"]' if name in ("names", "seals") else 1 for name in places]
            plans += [row[3] for row in connection.connection.cursor().execute(f"EXPLAIN QUERY PLAN {text}", values)]
    assert len(asked) >= 8
    assert [plan for plan in plans if plan.startswith("SCAN") and "VIRTUAL TABLE" not in plan] == []


def test_an_error_of_the_driver_is_that_of_every_other_statement(opened):
    world, shuffler, _ = opened

    def without_a_table() -> None:
        with shuffler.store.begin() as connection:
            connection.exec_driver_sql("DROP TABLE reports")
            taking._BEFORE.rows(connection, names=[], seals=[], slot="", first=1, last=1, round="")

    def of_nobody() -> None:
        with shuffler.store.begin() as connection:
            taking._TAKE.run(connection, {"taken_part": {"slot": ["a"], "client": ["nobody"]}}, round="", count=0)

    with pytest.raises(OperationalError, match="no such table"):
        without_a_table()
    with pytest.raises(IntegrityError):
        of_nobody()
    assert sizes(world) == (0, 0)  # and nothing of either is left


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
    """Twelve for four places: those four are in the batch who were drawn, and nobody else."""
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
    assert sorted(done[:4]) == [1, 2, 3, 4]
    assert set(done[4:]) <= {409, 410}  # before the round was full, and after
    assert (
        SealedBatch.from_bytes(shuffler.waiting_batch()[1], world.plan(document).bits_per_coordinate, shuffler.public_key).users
        == 4
    )


# The shuffler refuses what is not a report of its round.


def misshapen(world: World, document: Document) -> dict[str, tuple[bytes, str]]:
    plan, report = world.plan(document), SealedReport.from_bytes(world.report(0, document))
    good = report.to_bytes()
    wide = np.zeros((DIM + 1, plan.bits_per_coordinate), dtype=bool)
    dense = np.zeros((DIM, plan.bits_per_coordinate + 1), dtype=bool)
    key, other = world.read(document).key, {"masked-sum": "messages", "messages": "masked-sum"}[world.task.transport]

    def sealed(transport, digest, bits):
        return BY_NAME[transport].seal(Bits(bits, private=False), plan, digest, key).to_bytes()

    right = np.zeros((DIM, plan.bits_per_coordinate), dtype=bool)
    return {
        "nothing": (b"", "too few"),
        "noise": (b"\xff" * len(good), "not CRPR"),
        "cut off": (good[:-1], "bytes where its header makes"),
        "a byte more": (good + b"\0", "bytes where its header makes"),
        "another version": (good[:4] + b"\2" + good[5:], "version 2"),
        "an unknown transport": (good[:5] + b"\7" + good[6:], "transport 7"),
        "another width": (
            good[:6] + b"\1" + good[7:],
            {"masked-sum": "header makes", "messages": "1 bits by"}[world.task.transport],
        ),
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
    "another width",
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
    assert shuffler.receive(world.names[0], world.report(0, document)) == Accepted(1, 4)  # nothing is held against the client


def test_every_misshapen_report_is_tried(make_world):
    world = make_world()
    assert list(misshapen(world, round_of(world))) == KINDS


def test_without_a_task_the_shuffler_asks_to_wait_and_after_a_restart_it_remembers_its_task(make_world):
    world = make_world()
    first, document = world.shuffler(with_task=False), round_of(world)
    assert refused(first, world.names[0], world.report(0, document)) == (503, "no task yet")
    first.take_task(world.task.document(world.analyzer_key))
    world.seat()
    first.open(document)
    new = world.shuffler(with_task=False)  # before it has reached the analyzer
    assert new.document == world.task.document(world.analyzer_key)
    assert new.receive(world.names[0], world.report(0, document)) == Accepted(1, 4)


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
    assert shuffler.receive(world.names[4], early) == Accepted(1, 4)
    assert shuffler.receive(world.names[5], world.report(5, second)) == Accepted(2, 4)  # its own round


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
    assert shuffler.waiting_batch() is None
    shuffler.close_late()
    assert shuffler.waiting_batch() is None  # no patience is given: all are waited for
    shuffler.receive(world.names[3], world.report(3, document))
    name, data = shuffler.waiting_batch()
    batch = SealedBatch.from_bytes(data, world.plan(document).bits_per_coordinate, shuffler.public_key)
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
    assert shuffler.waiting_batch() is None  # one too few, however late it is
    shuffler.receive(world.names[8], world.report(8, document))
    shuffler.close_late()
    assert (shuffler.waiting_batch() is not None) == ends
    if ends:
        batch = SealedBatch.from_bytes(shuffler.waiting_batch()[1], world.plan(document).bits_per_coordinate, shuffler.public_key)
        assert batch.users == minimum
        assert refused(shuffler, world.names[9], world.report(9, document))[0] == 410
    else:
        assert shuffler.receive(world.names[9], world.report(9, document)) == Accepted(10, 12)


def test_patience_counts_from_the_opening_of_a_round_across_a_restart(make_world):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=0.5)
    document = round_of(world)
    answer_round(world, world.shuffler(), document, range(9))
    new = world.shuffler()

    def made():
        new.close_late()
        return new.waiting_batch()

    assert soon(made) is not None
    [(opened,)] = world.rows("shuffler", "SELECT opened FROM rounds")
    assert time.time() >= opened + 0.5
    assert sizes(world) == (0, 9)


def test_a_thread_that_reads_a_round_is_not_given_the_next_one_that_another_thread_reads(make_world):
    world = make_world()
    shuffler, documents = world.shuffler(), [round_of(world, number) for number in (1, 2)]

    class Overtaken(bytes):
        """Stored words; while they are compared with those that are known, another thread reads the next round."""

        def __ne__(self, other):
            shuffler._open = documents[1].to_bytes(), documents[1]
            return bytes.__ne__(self, other)

        __hash__ = bytes.__hash__

    assert shuffler._document(documents[0].to_bytes()).digest == documents[0].digest
    assert shuffler._document(Overtaken(documents[0].to_bytes())).digest == documents[0].digest


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
    for one in (shuffler, world.shuffler()):  # also after a restart
        with pytest.raises(WireError, match="a new task needs a new folder"):
            one.take_task(replace(world.task, name="another").document(world.analyzer_key))
    with pytest.raises(WireError, match="a new task needs a new folder"):
        RemotePopulation(replace(world.task, name="another"), world.population().store, world.analyzer_key)
    careful = ShufflerRole(small.store("shuffler"), small.shuffler_key, small.analyzer_key.public_key(), smallest=6)
    with pytest.raises(WireError, match="batches of 5 users; this shuffler makes none of less than 6"):
        careful.take_task(small.task.document(small.analyzer_key))


def test_rounds_of_somebody_else_are_refused_and_known_ones_are_not_opened_twice(opened):
    world, shuffler, document = opened
    stranger = Ed25519PrivateKey.generate()
    values = json.loads(document.text)
    with pytest.raises(WireError, match="signature is not the expected key's"):
        shuffler.open(Document.signed(ROUND, values, stranger))
    with pytest.raises(WireError, match="not of this task"):
        shuffler.open(Document.signed(ROUND, values | {"task": "a" * 64}, world.analyzer_key))
    with pytest.raises(WireError, match="opened with other words"):
        shuffler.open(Document.signed(ROUND, values | {"theta": [1.0] * DIM}, world.analyzer_key))
    before = world.rows("shuffler", "SELECT * FROM rounds")
    shuffler.open(document)
    assert world.rows("shuffler", "SELECT * FROM rounds") == before
    answer_round(world, shuffler, document, range(4))
    shuffler.forwarded(shuffler.waiting_batch()[0])
    shuffler.open(document)  # the analyzer may not have gone on yet
    assert shuffler.current() is None


# The shuffler permutes, forwards once, and forgets.


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_batch_has_all_envelopes_in_another_order_each_time(make_world, transport):
    """Orders of 40 users' envelopes: that two of three agree has a chance below 1e-40."""
    world = make_world(transport=transport, users=40, interactivity="full")
    document = round_of(world)
    reports = [SealedReport.from_bytes(world.report(user, document)) for user in range(40)]
    length = 49 if transport == "messages" else 80
    orders = []
    for _ in range(2):
        batch = batch_made(reports, world.plan(document))
        orders.append([bytes(envelope) for envelope in batch.sealed.reshape(-1, length)])
    sent = [report.sealed.reshape(-1, length) for report in reports]
    rows = len(sent[0]) // (DIM if transport == "messages" else 1)
    labels = range(DIM) if transport == "messages" else range(1)
    orders.append([bytes(envelope) for label in labels for one in sent for envelope in one[rows * label : rows * (label + 1)]])
    assert len({tuple(order) for order in orders}) == 3
    block = 40 * rows  # no envelope has changed its label
    for start in range(0, len(orders[0]), block):
        assert len({tuple(sorted(order[start : start + block])) for order in orders}) == 1


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
    if transport == "masked-sum":  # reports are there until the analyzer has said which are left out
        assert sum(piece in on_disk for piece in own) > wanted / 2
        [(digest,)] = world.rows("shuffler", "SELECT batch FROM commitments")
        exclusions = Exclusions(world.task.id, world.read(document).id, digest, ()).document(world.analyzer_key)
        batch = shuffler.waiting_batch()
        shuffler.forwarded(batch[0])
        shuffler.exclude(exclusions)
        on_disk = world.files("shuffler")
        assert not any(piece in on_disk for piece in own + envelopes)
        shuffler.released(batch[0])
        assert world.rows("shuffler", "SELECT state, batch FROM rounds") == [("forwarded", None)]
        assert [sum(row) for row in zip(*world.rows("shuffler", "SELECT count(*) FROM checking"), strict=True)] == [0]
        return
    assert not any(report[48:] in on_disk for report in reports)
    assert sum(piece in on_disk for piece in envelopes) > wanted / 2  # in the batch, which waits; some lie across two pages
    assert sizes(world) == (0, wanted)
    shuffler.forwarded(shuffler.waiting_batch()[0])
    on_disk = world.files("shuffler")
    assert not any(piece in on_disk for piece in own + envelopes)
    assert world.rows("shuffler", "SELECT state, batch FROM rounds") == [("forwarded", None)]
    assert shuffler.waiting_batch() is None
    assert world.names[0].encode() in on_disk  # what is remembered: who took part


def test_a_log_that_a_killed_process_left_is_emptied_when_the_database_is_opened(make_world, tmp_path):
    """Killed after the deletion was on disk, and before the log was emptied."""
    world = make_world()
    shuffler, document = world.shuffler(), round_of(world)
    reports = answer_round(world, shuffler, document, range(3))
    own, envelopes = pieces(reports, "masked-sum")
    with shuffler.store.begin() as connection:
        connection.execute(shuffler_tables.reports.delete())
    left = tmp_path / "left"
    left.mkdir()
    for file in world.folder.glob("shuffler.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, left)
    assert any(piece in (left / "shuffler.db-wal").read_bytes() for piece in own + envelopes)
    reopened = Database(f"sqlite:///{left / 'shuffler.db'}", shuffler_tables.SHUFFLER)
    on_disk = b"".join(file.read_bytes() for file in left.glob("shuffler.db*"))
    reopened.close()
    assert not any(piece in on_disk for piece in own + envelopes)


def test_only_the_hash_of_a_token_is_kept(make_world):
    world = make_world()
    shuffler = world.shuffler()
    assert shuffler.clients_of(world.tokens) == world.names
    strangers = shuffler.clients_of([world.tokens[0][:-1], tables.hash_of(world.tokens[0]), ""])
    assert [refusal.status for refusal in strangers] == [401] * 3
    on_disk = world.files("shuffler")
    assert not any(token.encode() in on_disk for token in world.tokens)
    assert tables.hash_of(world.tokens[0]).encode() in on_disk


# Reports that come together are written together, and each hears what it would have heard alone.


def test_reports_of_one_transaction_hear_what_they_would_have_heard_one_by_one(make_world):
    worlds = [make_world(users=12), make_world(users=12)]
    worlds[1].analyzer_key, worlds[1].shuffler_key, worlds[1].task = worlds[0].analyzer_key, worlds[0].shuffler_key, worlds[0].task
    document, later = round_of(worlds[0]), round_of(worlds[0], 2)
    first = [worlds[0].report(user, document) for user in range(6)]
    together = worlds[0].shuffler()
    together.store.close()
    shutil.copy(worlds[0].folder / "shuffler.db", worlds[1].folder / "shuffler.db")  # the same lots
    names = worlds[0].names
    sent = [
        (names[0], first[0]),
        (names[0], first[0]),  # again
        (names[1], worlds[0].report(1, document)),
        (names[1], first[1]),  # another one
        (names[2], b"noise" * 30),
        (names[3], worlds[0].report(3, later)),  # of no round here
        (names[2], first[2]),
        (names[3], first[3]),  # the last place
        (names[4], first[4]),
        (names[2], first[2]),  # again, and the round has ended
    ]

    def heard(outcome):
        return outcome if isinstance(outcome, Accepted) else (outcome.status, str(outcome))

    together, alone = (world.shuffler() for world in worlds)
    for shuffler in (together, alone):
        shuffler.open(document)
    outcomes = [heard(outcome) for outcome in together.receive_all(sent)]
    assert outcomes == [heard(outcome) for one in sent for outcome in alone.receive_all([one])]
    assert [outcome if isinstance(outcome, Accepted) else outcome[0] for outcome in outcomes] == [
        *(Accepted(1, 4), Accepted(1, 4), Accepted(2, 4), 409, 400, 400, Accepted(3, 4), Accepted(4, 4), 410, Accepted(0, 4))
    ]
    assert sizes(worlds[0]) == sizes(worlds[1]) == (0, 4)
    for world, shuffler in zip(worlds, (together, alone), strict=True):
        plan = world.plan(document)
        assert SealedBatch.from_bytes(shuffler.waiting_batch()[1], plan.bits_per_coordinate, shuffler.public_key).users == 4


def test_what_another_process_has_taken_in_between_is_refused_and_the_others_are_taken(opened, monkeypatch):
    """The unique key of the database has the last word, for whoever it is about."""
    world, shuffler, document = opened
    reports = [world.report(user, document) for user in range(3)]
    monkeypatch.setattr(taking, "who_answered", lambda *_: set())  # it looks, and then another process is faster
    connection = sqlite3.connect(world.folder / "shuffler.db")
    connection.execute("INSERT INTO taken_part VALUES ('task', ?)", (world.names[1],))
    connection.commit()
    connection.close()
    outcomes = shuffler.receive_all(list(zip(world.names, reports, strict=False)))
    assert [getattr(outcome, "status", 200) for outcome in outcomes] == [200, 409, 200]
    assert world.rows("shuffler", "SELECT client FROM reports ORDER BY client") == [(world.names[0],), (world.names[2],)]
    assert shuffler.arrivals().arrived == 2


# Places are promised, and kept.


def test_a_round_waits_for_whom_it_was_promised_to_also_across_a_restart_and_then_no_longer(make_world, monkeypatch):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=5.0)
    shuffler, document = world.shuffler(), round_of(world)
    now = time.time()
    monkeypatch.setattr(RoundClock, "now", lambda self: now)
    shuffler.open(document)
    assert shuffler.rounds_for(world.names[9:10]) == [document]
    answer_round(world, shuffler, document, range(9))
    again = world.shuffler()
    monkeypatch.setattr(RoundClock, "now", lambda self: now + 59)
    again.close_late()
    assert again.waiting_batch() is None  # as few as it may end with, and one was promised a place
    assert again.rounds_for(world.names[9:11]) == [document, None]  # again what it was promised, and nobody else
    monkeypatch.setattr(RoundClock, "now", lambda self: now + 61)
    assert again.rounds_for(world.names[9:10]) == [None]
    again.close_late()
    assert SealedBatch.from_bytes(again.waiting_batch()[1], world.plan(document).bits_per_coordinate, again.public_key).users == 9
    assert world.rows("shuffler", "SELECT * FROM reservations") == []  # with the batch, nothing says who was in the round


def test_a_round_that_may_end_waits_for_those_whom_it_has_promised_a_place_and_promises_no_more(make_world, monkeypatch):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=5.0)
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    assert shuffler.rounds_for(world.names[9:10]) == [document]
    now = time.time()
    monkeypatch.setattr(RoundClock, "now", lambda self: now + 6)
    answer_round(world, shuffler, document, range(9))
    shuffler.close_late()
    assert shuffler.waiting_batch() is None
    assert shuffler.rounds_for(world.names[10:]) == [None] * 2
    shuffler.receive(world.names[9], world.report(9, document))
    shuffler.close_late()
    assert shuffler.waiting_batch() is not None


# Who is in which batch is drawn by lot, and does not depend on who comes when.


def batches(world: World, folder, arrivals, documents, report) -> list[set[str]]:
    """Who is in which batch where clients come in this order, in each round anew: each asks, and answers if it is asked to.

    The shuffler goes on from the database in the folder.
    """
    store = Database(f"sqlite:///{folder / 'shuffler.db'}", shuffler_tables.SHUFFLER)
    shuffler = ShufflerRole(store, world.shuffler_key, world.analyzer_key.public_key())
    found = []
    for document in documents:
        shuffler.open(document)
        members = set()
        for user in arrivals:
            name = world.names[user]
            if shuffler.waiting_batch() is None and shuffler.rounds_for([name]) == [document]:
                shuffler.receive(name, report(user, document))
                members.add(name)
        shuffler.forwarded(shuffler.waiting_batch()[0])
        found.append(members)
    store.close()
    return found


@pytest.mark.parametrize("asked", [{"users": 12}, {"users": 12, "rounds": 2, "interactivity": "full"}])
@pytest.mark.parametrize("enrolled_besides", [0, 3])
def test_a_client_whose_arrival_depends_on_its_record_moves_nobody_into_another_batch(make_world, asked, enrolled_besides):
    """The attack: one client comes first if its record says so, and last if not. The others come as they always do.

    Were batches filled in the order of arrival, that one bit would move a member of every later batch.
    """
    world = make_world(**asked)
    kept = world.store("shuffler")
    besides = [f"one more {number}" for number in range(enrolled_besides)]
    world.tokens += [shuffler_tables.enrol(kept, name) for name in besides]
    world.names += besides
    world.X, world.y = (np.concatenate([some, some]) for some in (world.X, world.y))  # records of those, too
    world.shuffler()
    world.close()
    everybody, phases = range(len(world.names)), range(1, len(world.task.schedule.phases) + 1)
    documents = [round_of(world, number, phase) for phase in phases for number in world.task.rounds_of(phase)]
    report = cache(world.report)  # whoever answers the same round sends the same, in whatever order they come
    for attacker in (0, 5, everybody[-1]):
        others = [user for user in everybody if user != attacker]
        seen = []
        for arrivals in ([attacker, *others], [*others, attacker]):
            folder = world.folder / f"{attacker} {arrivals[0]}"
            folder.mkdir()
            shutil.copy(world.folder / "shuffler.db", folder)
            seen.append(batches(world, folder, arrivals, documents, report))
        assert seen[0] == seen[1]
        assert {len(members) for members in seen[0]} == {world.task.schedule.phases[0].batch}


def test_of_more_than_the_tasks_users_chance_leaves_some_out_and_whoever_comes_later_is_not_asked(make_world):
    world = make_world(users=12)
    store = world.store("shuffler")
    for number in range(5):
        shuffler_tables.enrol(store, f"one more {number}")
    shuffler = world.shuffler()
    lots = dict(world.rows("shuffler", "SELECT client, first FROM lots"))
    assert sorted(lots.values()) == [1] * 4 + [2] * 4 + [3] * 4
    shuffler_tables.enrol(store, "late")
    document = round_of(world)
    for role in (shuffler, world.shuffler()):  # nor after a restart
        role.open(document)
        assert role.rounds_for(["late"]) == [None]
        assert refused(role, "late", world.report(0, document)) == (409, "this client's lot is not this round")
    assert dict(world.rows("shuffler", "SELECT client, first FROM lots")) == lots


def test_a_task_begins_when_its_users_are_enrolled_and_not_before(make_world):
    world = make_world(users=12)
    store = world.store("shuffler")
    with store.begin() as connection:
        connection.exec_driver_sql("DELETE FROM clients WHERE id = 'name-of-user-3'")
    with pytest.raises(WireError, match="11 are enrolled: enrol them first"):
        world.shuffler()
    assert world.rows("shuffler", "SELECT count(*) FROM lots") == [(0,)]
    shuffler_tables.enrol(store, "name-of-user-3")
    world.shuffler()
    assert world.rows("shuffler", "SELECT count(*) FROM lots") == [(12,)]


def test_a_round_waits_for_those_who_were_drawn_and_takes_nobody_in_their_place(make_world, monkeypatch):
    """With honest = 1 it waits for all of them, whatever its patience: a substitute would be chosen by who came when."""
    world = make_world(users=12, patience=5.0)
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(3))
    now = time.time()
    monkeypatch.setattr(RoundClock, "now", lambda self: now + 1e6)
    shuffler.close_late()
    assert shuffler.waiting_batch() is None
    assert shuffler.rounds_for(world.names[3:]) == [document] + [None] * 8
    assert refused(shuffler, world.names[4], world.report(4, document))[0] == 409


@pytest.mark.parametrize("asked", [{"honest": 0.9, "patience": 60.0}, {}])
def test_each_client_is_drawn_for_one_round_and_answers_no_other(make_world, asked):
    world = make_world(users=15, **asked)
    shuffler = world.shuffler()
    lots = dict(world.rows("shuffler", "SELECT client, first FROM lots WHERE first = last"))
    assert sorted(lots.values()) == [1] * 5 + [2] * 5 + [3] * 5
    for number in (1, 2, 3):
        document = round_of(world, number)
        shuffler.open(document)
        drawn = [user for user, name in enumerate(world.names) if lots[name] == number]
        assert shuffler.rounds_for(world.names) == [document if lots[name] == number else None for name in world.names]
        other = next(user for user in range(15) if lots[world.names[user]] > number or (number == 3 and user not in drawn))
        assert refused(shuffler, world.names[other], world.report(other, document))[0] == 409
        for user in drawn:
            shuffler.receive(world.names[user], world.report(user, document))
        shuffler.forwarded(shuffler.waiting_batch()[0])
    shuffler_tables.enrol(world.store("shuffler"), "one who comes later")
    world.shuffler()  # nor are lots drawn again
    assert dict(world.rows("shuffler", "SELECT client, first FROM lots")) == lots


@pytest.mark.parametrize("asked", [{"honest": 0.9, "patience": 60.0}, {}])
def test_lots_are_drawn_uniformly(make_world, asked):
    """Chi-square over which of six clients share a round with the first, for two rounds of three: false alarms below 1e-6."""
    from scipy.stats import chi2  # noqa: PLC0415

    world = make_world(users=6, rounds=2, **asked)
    store = world.store("shuffler")
    seen: dict[frozenset[str], int] = {}
    runs = 1000
    for _ in range(runs):
        with store.begin() as connection:
            connection.exec_driver_sql("DELETE FROM lots")
            draw_lots(connection, world.task)
            rows = connection.exec_driver_sql("SELECT client, first FROM lots").all()
        first = frozenset(name for name, number in rows if number == 1)
        seen[first] = seen.get(first, 0) + 1
    assert len(seen) == 20  # subsets of three among six
    statistic = sum((count - runs / 20) ** 2 / (runs / 20) for count in seen.values())
    assert statistic < chi2.isf(1e-6, 19)


def test_lots_are_of_all_who_are_enrolled_where_a_share_of_them_is_counted_on(make_world):
    for change, said in ((-1, "14 are enrolled: enrol them first"), (1, "16 are enrolled: the extra people might")):
        world = make_world(users=15, honest=0.9, patience=60.0)
        store = world.store("shuffler")
        with store.begin() as connection:
            if change < 0:
                connection.exec_driver_sql("DELETE FROM clients WHERE id = 'name-of-user-3'")
        if change > 0:
            shuffler_tables.enrol(store, "one more")
        with pytest.raises(WireError, match=said):
            world.shuffler()
        assert world.rows("shuffler", "SELECT count(*) FROM served") == [(0,)]
        with store.begin() as connection:
            connection.exec_driver_sql("DELETE FROM clients WHERE id = 'one more'")
        if change < 0:
            shuffler_tables.enrol(store, "name-of-user-3")
        world.shuffler()
        assert world.rows("shuffler", "SELECT count(*) FROM lots") == [(15,)]


@pytest.mark.parametrize("asked", [{"interactivity": "full"}, {"rounds": 1}])
def test_a_share_of_honest_users_is_one_of_those_who_were_enrolled_at_the_beginning(make_world, asked):
    """Also where all of them are in one batch: whoever is enrolled later would not be in that share."""
    world = make_world(users=12, honest=0.75, patience=60.0, **asked)
    shuffler = world.shuffler()
    assert world.rows("shuffler", "SELECT DISTINCT first, last FROM lots") == [(1, world.task.schedule.rounds)]
    shuffler_tables.enrol(world.store("shuffler"), "one more")
    document = round_of(world)
    shuffler.open(document)
    assert shuffler.rounds_for([world.names[0], "one more"]) == [document, None]
    assert refused(shuffler, "one more", world.report(1, document))[0] == 409


def test_who_only_looks_does_not_keep_a_round_open_for_ever(make_world, monkeypatch):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=5.0)
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(8))
    now = time.time()
    for seconds in range(0, 120, 10):  # one less than it needs: nobody is turned away
        monkeypatch.setattr(RoundClock, "now", lambda self: now + seconds)  # noqa: B023
        assert shuffler.rounds_for(world.names[10:]) == [document] * 2
    shuffler.receive(world.names[8], world.report(8, document))
    for seconds in range(120, 240, 10):
        monkeypatch.setattr(RoundClock, "now", lambda self: now + seconds)  # noqa: B023
        shuffler.rounds_for(world.names[10:])
        shuffler.close_late()
    assert shuffler.waiting_batch() is not None


def test_a_clock_that_was_set_back_keeps_nobody_waiting(make_world, monkeypatch):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=5.0)
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    now = time.time()
    monkeypatch.setattr(RoundClock, "now", lambda self: now + 3600)
    assert shuffler.rounds_for(world.names[9:10]) == [document]
    answer_round(world, shuffler, document, range(9))
    monkeypatch.setattr(RoundClock, "now", lambda self: now + 6)
    shuffler.close_late()
    assert shuffler.waiting_batch() is not None


def test_a_place_is_not_lost_with_a_transaction_that_fails(make_world, monkeypatch):
    world = make_world(interactivity="full", users=12, honest=0.75, patience=5.0)
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    assert shuffler.rounds_for(world.names[:1]) == [document]
    answer_round(world, shuffler, document, range(1, 10))
    monkeypatch.setattr(taking, "forget_reservations", lambda *_: 1 / 0)  # the disk is full
    with pytest.raises(ZeroDivisionError):
        shuffler.receive(world.names[0], world.report(0, document))
    monkeypatch.undo()
    now = time.time()
    monkeypatch.setattr(RoundClock, "now", lambda self: now + 6)
    shuffler.close_late()
    assert shuffler.waiting_batch() is None
    assert shuffler.receive(world.names[0], world.report(0, document)) == Accepted(10, 12)
