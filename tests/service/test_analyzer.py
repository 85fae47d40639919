"""The analyzer without a network: whole batches of its own rounds, once; and both roles, killed at every change they make."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_exclusions import batch_made, bring, wrong
from helpers_roles import DIM, Training, Web, World, answer_round, pieces, refused, round_of, sizes, soon, training
from sqlalchemy import event

import croupier as cr
from croupier.optimizer.training import run
from croupier.population.population import Batch as Users
from croupier.population.population import Order, Question
from croupier.protocol.randomness import Secret
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.app import analyzer_app
from croupier.service.net import database as tables
from croupier.service.net.database import Database
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.wire.documents import Document, WireError
from croupier.service.wire.task import TooManyBadReportsError
from croupier.service.wire.transports import SealedReport
from croupier.validation import ArgumentError

TRANSPORTS = ["masked-sum", "messages"]


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
            bring(shuffler, running.population)
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
        bring(shuffler, running.population)
        following = running.next_round(after=1)
        assert private not in world.files("analyzer")
        assert world.read(following).key != world.read(document).key


def test_the_analyzer_has_nothing_of_any_client_on_disk(make_world):
    world = make_world()
    shuffler, reports = world.shuffler(), []
    with training(world) as running:
        for number, members in enumerate(world.members()):
            reports += answer_round(world, shuffler, running.next_round(after=number), members)
            bring(shuffler, running.population)
            running.next_round(after=number + 1)
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
        cr.schedule(
            world.task.query.problem,
            users,
            epsilon=epsilon,
            delta=1e-2,
            method="acsa",
            rounds=users // 4,
            max_inflation=1e9,
            lots="open",
        )
        for users, epsilon in ((8, 8.0), (4, 2.0))
    )
    phases = first.phases + second.phases
    assert phases[0].plan.bits_per_coordinate != phases[1].plan.bits_per_coordinate
    world.task = replace(world.task, schedule=replace(first, phases=phases))
    shuffler, batches = world.shuffler(), []
    with training(world) as running:
        for number, members in enumerate(world.members()):
            answer_round(world, shuffler, running.next_round(after=number), members)
            batches.append(bring(shuffler, running.population))
            running.next_round(after=number + 1)
            before = world.rows("analyzer", "SELECT * FROM asked")
            for known in batches:
                running.population.take(known)
            assert world.rows("analyzer", "SELECT * FROM asked") == before
        theta = running.result()
    assert np.array_equal(theta, world.theta_in_memory(world.members()))


def test_a_batch_that_arrives_several_times_at_once_is_one(make_world):
    world = make_world(transport="messages")
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        answer_round(world, shuffler, document, range(4))
        _, batch = shuffler.waiting_batch()
        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(running.population.take, [batch] * 6)) == [None] * 6
        running.next_round(after=1)
    expected = sum(world.bits(user, document).bits.sum(axis=1, dtype=int) for user in range(4)).tolist()
    assert [json.loads(ones) for (ones,) in world.rows("analyzer", "SELECT ones FROM asked WHERE number = 1")] == [expected]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", range(3))
def test_a_batch_with_more_bad_reports_than_the_margin_is_the_end_of_the_task(make_world, transport, kind):
    """All users are counted on here: one cheat, and what the task promises does not hold."""
    world = make_world(transport=transport)
    with training(world) as running, Web(analyzer_app(running.population)) as client:
        document = running.next_round()
        assert client.post("/v1/batch", wrong(world, document)[1][kind]).status == 200
        soon(lambda: running.ended)
        assert isinstance(running.error, TooManyBadReportsError)
        assert "round 1 is spoiled: " in str(running.error)
        assert "more than the 0 " in str(running.error)
        good = batch_made([SealedReport.from_bytes(world.report(user, document)) for user in range(4)], world.plan(document))
        assert client.post("/v1/batch", good.to_bytes(world.shuffler_key)).status == 200  # too late: it changes nothing
        assert client.get("/v1/round").content == b""
        state = soon(lambda: (found := json.loads(client.get("/v1/state").content))["status"] == "spoiled" and found)
        assert state["end"] == str(running.error)
    [row] = world.rows("analyzer", "SELECT number, key, ones, users, batch FROM asked")
    assert row == (1, None, None, None, None)
    assert world.rows("analyzer", "SELECT share FROM found") == [(None,)]
    with training(world) as again:  # nor does a restart open it
        soon(lambda: again.ended)
        assert isinstance(again.error, TooManyBadReportsError)
        assert again.population.current() is None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_batch_that_is_not_whole_and_of_this_round_is_refused_and_nothing_changes(make_world, transport):
    world = make_world(transport=transport)
    shuffler = world.shuffler()
    with training(world) as running:
        document = running.next_round()
        before = world.rows("analyzer", "SELECT * FROM asked")
        for kind, (data, reason) in wrong(world, document)[0].items():
            with pytest.raises(WireError) as refusal:
                running.population.take(data)
            assert reason in str(refusal.value), kind
            assert world.rows("analyzer", "SELECT * FROM asked") == before, kind
        answer_round(world, shuffler, document, range(4))
        bring(shuffler, running.population)  # the key is there still, and the right batch is taken
        assert world.read(running.next_round(after=1)).number == 2


def test_the_analyzer_asks_nothing_that_its_task_does_not_say(make_world):
    world = make_world()
    population = world.population()
    plan = world.task.schedule.phases[0].plan
    users = Users(Order(Secret.of_seed(1), 12), 0, 4, 0, 0)
    with pytest.raises(ArgumentError, match="gradients of the task's problem"):
        population.answer(Question(lambda X, y: X, users, plan, Secret.of_seed(1)))
    other = cr.schedule(
        world.task.query.problem, 12, epsilon=9.0, delta=1e-2, rounds=3, method="acsa", max_inflation=1e9, lots="open"
    )
    with pytest.raises(ArgumentError, match="a round of the task's schedule"):
        run(world.task.query.problem, population, other, start=np.zeros(DIM))
    assert world.rows("analyzer", "SELECT count(*) FROM asked") == [(0,)]


# Either role stops and goes on.


def test_a_stopped_analyzer_publishes_the_very_same_round_again_and_asks_no_answered_one(make_world):
    world = make_world(transport="messages")
    shuffler, seen = world.shuffler(), []
    for number, members in enumerate(world.members()):
        for _ in range(2):  # stopped before each answer
            with training(world) as running:
                seen.append(running.next_round(after=number).to_bytes())
            assert isinstance(running.error, KeyboardInterrupt)
        assert seen[-1] == seen[-2]
        answer_round(world, shuffler, Document.from_bytes(seen[-1]), members)
        world.population().take(shuffler.waiting_batch()[1])  # stopped after the counts, and before the optimizer saw them
        shuffler.forwarded(shuffler.waiting_batch()[0])
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
        assert world.shuffler().waiting_batch() is None
        report = world.report(user, document)
        assert [world.shuffler().receive(world.names[user], report).arrived for _ in range(2)] == [user + 1, (user + 1) % 4]
    name, batch = world.shuffler().waiting_batch()
    assert world.shuffler().waiting_batch() == (name, batch)  # the very same batch, not another shuffle of it
    assert world.shuffler().current() is None
    world.shuffler().forwarded(name)
    assert world.shuffler().waiting_batch() is None
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

    def watch(self, store: Database) -> None:
        before = threading.local()
        dead = threading.Event()  # for all of its threads

        @event.listens_for(store.engine, "begin")
        def note(connection):
            before.rows = connection.connection.driver_connection.total_changes  # SQLite's own count, whoever ran the statements

        @event.listens_for(store.engine, "commit")
        def kill(connection):
            if dead.is_set():
                raise Killed
            if self.done or connection.connection.driver_connection.total_changes == before.rows:
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

    def bury(self, store: Database) -> None:
        """What the dead process would have done no more is undone."""
        store.close()
        self.copy(self.world.folder / "killed", self.world.folder)


class Deployment:
    """Both roles; a step that a death cut off is done again by the next process, and clients send what they sent."""

    def __init__(self, world: World, executioner: Executioner) -> None:
        self.world, self.executioner, self.sent = world, executioner, {}
        self.shuffler, self.training = None, None
        self.commitments, self.released = set(), set()  # as they were said

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
        if (made := self.shuffler.waiting_batch()) is not None:
            self.training.population.take(made[1])
            self.shuffler.forwarded(made[0])
        self._settle()
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

    def _settle(self) -> None:
        shuffler, population = self.shuffler, self.training.population
        if (name := shuffler.awaiting_exclusions()) is not None:
            if (found := soon(lambda: population.exclusions(name) or self.training.ended)) is True:
                raise Killed
            self.commitments.add(found.to_bytes())
            shuffler.exclude(found)
        if (ready := shuffler.waiting_release()) is not None:
            self.released.add(ready[1])
            population.take_release(ready[1])
            shuffler.released(ready[0])

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


@pytest.mark.parametrize(
    ("transport", "interactivity", "users", "when"),
    [
        ("masked-sum", "sequential", 6, "either"),
        *(
            pytest.param(*options, when, marks=pytest.mark.slow)
            for options in (("masked-sum", "sequential", 6), ("messages", "full", 2))
            for when in ("before", "after")
        ),
    ],
)
@pytest.mark.parametrize("role", ["shuffler", "analyzer"])
def test_a_role_killed_at_any_change_of_its_database_loses_nothing_and_counts_nobody_twice(
    make_world, role, when, transport, interactivity, users
):
    """Killed before or after each change; by "either", every kind of change before it in some round and after it in the next."""
    # A round is published, its batch kept, and opened; or opened, its two reports taken, the batch made with the second, and
    # forwarded. Where reports are checked, its release is counted; or its exclusions are kept, and its release forwarded.
    more = {"analyzer": 1, "shuffler": 2}[role] if transport == "masked-sum" else 0
    changes = {"analyzer": 3, "shuffler": 4}[role] + more
    theta = None
    for at in itertools.count(1):
        after = (at + (at - 1) // changes) % 2 == 0 if when == "either" else when == "after"
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
        checked = 3 * (transport == "masked-sum")
        assert (len(deployment.commitments), len(deployment.released)) == (checked, checked)  # one of each for a round
        if not executioner.done:
            break
    assert at - 1 == changes * 3


@pytest.mark.parametrize(("role", "metadata"), [("shuffler", shuffler_tables.SHUFFLER), ("analyzer", analyzer_tables.ANALYZER)])
def test_a_database_of_another_version_is_refused_and_left_as_it_is(make_world, role, metadata):
    world = make_world()
    world.store(role).close()
    connection = sqlite3.connect(world.folder / f"{role}.db")
    connection.execute("UPDATE schema_version SET version = 2")
    connection.commit()
    connection.close()
    before = (world.folder / f"{role}.db").read_bytes()
    with pytest.raises(RuntimeError, match="a database of version 2; this is version 1: use the release that made it"):
        Database(world.databases[role], metadata)
    assert (world.folder / f"{role}.db").read_bytes() == before


# The shuffler's errands.


class Analyzer(BaseHTTPRequestHandler):
    """Says what it is told to say to each path, and remembers what it was asked."""

    def do_GET(self):
        self.server.asked.append(self.path)
        status, body = self.server.says(self.path)
        self.send_response(status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def analyzer_that_says():
    with ThreadingHTTPServer(("127.0.0.1", 0), Analyzer) as server:
        server.asked, server.url, server.headers = [], f"http://127.0.0.1:{server.server_port}", {}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_batch_that_the_analyzer_refuses_is_not_sent_for_ever(make_world, analyzer_that_says, caplog):
    world = make_world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(4))
    task = world.task.document(world.analyzer_key).to_bytes()
    analyzer_that_says.says = lambda path: (
        (200, task) if path == "/v1/task" else (400, b"a batch of another shape\n") if path == "/v1/batch" else (200, b"")
    )
    with AnalyzerRelay(shuffler, analyzer_that_says.url):
        soon(lambda: "the analyzer says 400" in caplog.text)  # or whatever stands before it: that is not for good
        assert shuffler.waiting_batch() is not None
        analyzer_that_says.headers["Croupier-Refused-For-Good"] = "yes"
        soon(lambda: world.rows("shuffler", "SELECT state, batch FROM rounds") == [("refused", None)])
        sent, count = analyzer_that_says.asked.count("/v1/batch"), len(analyzer_that_says.asked)
        soon(lambda: len(analyzer_that_says.asked) > count + 3)
    assert analyzer_that_says.asked.count("/v1/batch") == sent
    assert "the analyzer refuses the batch for good: a batch of another shape" in caplog.text
    assert shuffler.waiting_batch() is None
    assert refused(shuffler, world.names[5], world.report(5, document))[0] == 410


def test_errands_that_fail_are_done_less_and_less_often_and_nothing_is_lost(make_world, analyzer_that_says):
    world = make_world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(4))
    task = world.task.document(world.analyzer_key).to_bytes()
    down = [True]
    analyzer_that_says.says = lambda path: (502, b"bad gateway") if down[0] else (200, task if path == "/v1/task" else b"")

    class Impatient(threading.Event):
        pauses: ClassVar[list[float | None]] = []

        def wait(self, timeout=None):
            self.pauses.append(timeout)
            return super().wait(0.01)

    errands = AnalyzerRelay(shuffler, analyzer_that_says.url)
    errands.loop._stopping = Impatient()
    with errands:
        soon(lambda: len(Impatient.pauses) >= 8)
        assert Impatient.pauses[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        assert shuffler.waiting_batch() is not None
        down[0] = False
        soon(lambda: shuffler.waiting_batch() is None)
        soon(lambda: Impatient.pauses[-1] == 0.2)
    assert world.rows("shuffler", "SELECT state FROM rounds") == [("checked",)]


def test_a_shuffler_of_another_task_takes_no_rounds_and_sends_no_batch(make_world, analyzer_that_says, caplog):
    world = make_world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(4))
    other = replace(world.task, name="another").document(world.analyzer_key).to_bytes()
    analyzer_that_says.says = lambda path: (200, other if path == "/v1/task" else b"")
    with AnalyzerRelay(shuffler, analyzer_that_says.url):
        soon(lambda: "a new task needs a new folder" in caplog.text)
    assert set(analyzer_that_says.asked) == {"/v1/task", "/v1/refusal"}  # it says why
    assert shuffler.waiting_batch() is not None


def test_a_redirect_is_not_taken_for_an_analyzer_that_has_the_batch(make_world, analyzer_that_says, caplog):
    world = make_world()
    shuffler, document = world.shuffler(), round_of(world)
    answer_round(world, shuffler, document, range(4))
    task = world.task.document(world.analyzer_key).to_bytes()
    analyzer_that_says.headers["Location"] = "/login"
    analyzer_that_says.says = lambda path: (200, task if path == "/v1/task" else b"") if path != "/v1/batch" else (302, b"")
    with AnalyzerRelay(shuffler, analyzer_that_says.url):
        soon(lambda: "the analyzer says 302" in caplog.text)
    assert "/login" not in analyzer_that_says.asked
    assert shuffler.waiting_batch() is not None


@pytest.mark.parametrize("address", ["localhost", "localhost:8802", "ftp://host", "http://", "http://host name"])
def test_an_address_that_is_none_is_refused_at_once(make_world, address):
    with pytest.raises(ArgumentError, match="an address like"):
        AnalyzerRelay(make_world().shuffler(), address)


def test_what_somebody_reads_is_wiped_later(make_world, caplog):
    """A backup that is open while a batch is made keeps the log from being emptied."""
    world = make_world(transport="messages")
    shuffler, document = world.shuffler(), round_of(world)
    shuffler.open(document)
    reports = [world.report(user, document) for user in range(4)]
    for user in range(3):
        shuffler.receive(world.names[user], reports[user])
    own = [report[:300] for report in reports]
    reader = sqlite3.connect(world.folder / "shuffler.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM reports").fetchall()
    shuffler.receive(world.names[3], reports[3])
    assert shuffler.store.unwiped
    assert any(piece in world.files("shuffler") for piece in own)
    errands = AnalyzerRelay(shuffler, "http://127.0.0.1:9")
    errands._wipe()
    assert "another process is reading the database" in caplog.text
    reader.execute("COMMIT")
    reader.close()
    errands._wipe()
    assert not shuffler.store.unwiped
    assert not any(piece in world.files("shuffler") for piece in own)


@pytest.mark.process
def test_workers_of_a_killed_parent_end():
    """A pool's workers watch their parent: one that is killed cannot tell them."""
    program = (
        "import os, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from croupier.cli.processes import end_with_parent, workers_context\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1, workers_context('croupier.service.wire.transports'), end_with_parent)\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    time.sleep(100)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "parent.py"
        file.write_text(program)
        parent = subprocess.Popen([sys.executable, file], stdout=subprocess.PIPE, text=True)
        worker = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        parent.stdout.close()

    def gone():
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{worker}/stat")
        return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"  # ended, and nobody has asked

    soon(gone)
