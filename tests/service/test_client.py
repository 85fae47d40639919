"""The client against a real server on this machine: it answers once, sends the same bytes again, and believes nobody."""

from __future__ import annotations

import http.client
import importlib
import json
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_exclusions import bring, counted
from sqlalchemy import func, select

import croupier as cr
from croupier import ArgumentError, SeededRandom
from croupier.optimizer.training import run
from croupier.privacy._filter import gaussian_bound
from croupier.privacy._statements import exact, round_up
from croupier.protocol import Counts, VectorSum
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.client import client as client_module
from croupier.service.client import client as means
from croupier.service.client.budget import BudgetLimit, DeviceBudget
from croupier.service.client.client import Client
from croupier.service.client.state import Memory
from croupier.service.net import database as tables
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served, development_certificate
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.wire.documents import Document, WireError
from croupier.service.wire.queries import records_to_dict
from croupier.service.wire.task import RefusedTaskError, Sent, Start, Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS, SealedReport
from croupier.table import Schema
from croupier.table._read import Source
from croupier.table.model import Request

join_module = importlib.import_module("croupier.cli.join")
X, Y = np.array([0.6, -0.3]), 1.0
# What the small task reveals is less than this.
ENOUGH = {"max_epsilon": 20.0, "max_delta": 1e-2}
FORWARD, LOSE_THE_ANSWER = "forward", "lose the answer"


class Proxy(ThreadingHTTPServer):
    """Between client and shuffler: writes down what is asked, and may lose an answer or give one of its own.

    `answer` maps (method, path) to FORWARD, LOSE_THE_ANSWER or the bytes to answer with.
    """

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream.removeprefix("http://")
        self.asked: list[tuple[str, str, bytes]] = []
        self.answer: Callable[[str, str], str | bytes] = lambda method, path: FORWARD
        super().__init__(("127.0.0.1", 0), _Forwarding)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def reports(self) -> list[bytes]:
        return [body for method, path, body in self.asked if (method, path) == ("POST", "/v1/report")]


class _Forwarding(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.forward()

    def do_POST(self) -> None:
        self.forward()

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, body))
        answer = self.server.answer(self.command, self.path)
        if isinstance(answer, bytes):
            self.wfile.write(answer)
            return
        upstream = http.client.HTTPConnection(self.server.upstream)
        upstream.request(self.command, self.path, body, dict(self.headers))
        response = upstream.getresponse()
        data = response.read()
        upstream.close()
        if answer == FORWARD:
            self.send_response(response.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def says(status: int, *headers: str) -> bytes:
    """A bare answer of HTTP."""
    return "\r\n".join([f"HTTP/1.0 {status} Words", "Content-Length: 7", *headers, "", "because"]).encode()


def got(url: str) -> bytes:
    """What a server answers to nobody in particular, as an answer of HTTP."""
    with urllib.request.urlopen(url) as answer:
        body = answer.read()
    return f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


class Service:
    """A shuffler on SQLite, served on this machine, and a proxy before it.

    The task's users are enrolled, and `seats` are their names in the order of the rounds that they were drawn for.
    """

    def __init__(self, folder: Path, roles: Any, task: Task) -> None:
        self.folder, self.roles, self.task = folder, roles, task
        self.store = tables.Database(f"sqlite:///{folder / 'shuffler.db'}", shuffler_tables.SHUFFLER)
        self.shuffler = ShufflerRole(self.store, roles.shuffler, roles.analyzer.public_key())
        self.app = shuffler_app(self.shuffler)
        self.tokens = {name: shuffler_tables.enrol(self.store, name) for name in (f"seat {number}" for number in range(task.users))}
        self.shuffler.take_task(task.document(roles.analyzer))
        with self.store.look() as connection:
            self.seats = list(
                connection.execute(select(shuffler_tables.lots.c.client).order_by(shuffler_tables.lots.c.first)).scalars()
            )
        self.people: dict[str, str] = {}  # who has which seat

    def show(self, made: TaskRound) -> None:
        """Let clients see a round that the shuffler does not know of: what two dishonest roles could do."""
        document = made.document(self.roles.analyzer).to_bytes()
        answer = f"HTTP/1.0 200 OK\r\nContent-Length: {len(document)}\r\n\r\n".encode() + document
        self.proxy.answer = lambda method, path: answer if path == "/v1/round" else FORWARD

    def publish(self, document: Document) -> None:
        """What clients get for the task, whatever the shuffler itself serves."""
        self.shuffler.document = document

    def open(self, number: int = 1, **changed: Any) -> Document:
        """Open a round, as the shuffler's errands do."""
        made = self.roles.round(**{"task": self.task.id, "id": f"b{number}", "number": number, **changed})
        document = made.document(self.roles.analyzer)
        self.shuffler.open(document)
        return document

    def client(self, name: str = "ann", url: str | None = None, **changed: Any) -> Client:
        """A client that asks through the proxy, in the first seat that is free; the same name again is the same device."""
        seat = self.seat_of(name)
        key = self.roles.analyzer.public_key().public_bytes_raw().hex()
        values = {"folder": self.folder / name, **ENOUGH, "analyzer_key": key, "token": self.tokens[seat], "timeout": 20.0}
        return Client(url or self.proxy.url, **{**values, "at_once": True, **changed})

    def seat_of(self, name: str, among: slice = slice(None)) -> str:
        if name not in self.people:
            self.people[name] = next(seat for seat in self.seats[among] if seat not in self.people.values())
        return self.people[name]

    def others_answer(self, document: Document, count: int, name: str = "other") -> None:
        """As many other users whose round it is send reports of zeros."""
        made = TaskRound.read(document, self.task, self.roles.analyzer.public_key())
        full, size = self.task.schedule.interactivity == "full", made.phase_of(self.task).plan.users
        drawn = slice(None) if full else slice((made.number - 1) * size, made.number * size)
        for user in range(count):
            client = self.seat_of(f"{name} {user}" if full else f"{name} {made.id} {user}", drawn)
            bits = VectorSum(made.phase_of(self.task).plan).randomize([0.0, 0.0], SeededRandom(user))
            sealed = TRANSPORTS[self.task.transport].seal(bits, made.phase_of(self.task).plan, document.digest, made.key)
            self.shuffler.receive(client, sealed.to_bytes())

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def stored(self) -> int:
        with self.store.begin() as connection:
            return connection.execute(select(func.count()).select_from(shuffler_tables.reports)).scalar_one()

    def __enter__(self) -> Service:
        self.served = Served(self.app).__enter__()
        self.proxy = Proxy(self.served.url)
        self.thread = threading.Thread(target=self.proxy.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.shutdown()
        self.thread.join()
        self.proxy.server_close()
        self.served.__exit__()
        self.store.close()


@pytest.fixture
def service(tmp_path, roles) -> Iterator[Service]:
    with Service(tmp_path, roles, roles.task()) as made:
        yield made


@pytest.fixture
def full_service(tmp_path, roles) -> Iterator[Service]:
    """All users in both rounds."""
    with Service(tmp_path, roles, roles.task(interactivity="full")) as made:
        yield made


# --- taking part


def test_a_client_answers_once_and_then_sends_nothing(service):
    service.open()
    ann = service.client()
    assert ann.take_part(X, Y) == Sent(1, first_time=True)
    assert service.stored == 1
    assert ann.take_part(X, Y) is None
    assert service.client().take_part(X, Y) is None  # nor after it was started anew
    assert len(service.proxy.reports) == 1


def test_a_client_that_was_asked_once_does_not_answer_another_round(service):
    first = service.open(1)
    ann = service.client()
    ann.take_part(X, Y)
    service.others_answer(first, 3)
    service.open(2)
    assert ann.round() is None  # the shuffler asks it no more, and if it did:
    service.proxy.answer = lambda method, path: got(f"{service.url}/v1/round") if path == "/v1/round" else FORWARD
    assert ann.round()[1].number == 2
    assert ann.take_part(X, Y) is None
    assert len(service.proxy.reports) == 1


def test_without_a_round_there_is_nothing_to_answer(service):
    ann = service.client()
    assert ann.round() is None
    assert ann.take_part(X, Y) is None
    assert service.proxy.reports == []


def test_what_is_sent_is_the_randomized_gradient(service, roles, plan):
    """Opened alone, with the analyzer's key, it has the ones that the protocol makes from the same randomness."""
    document = service.open()
    service.client().take_part(X, Y, random=SeededRandom(3))
    report = SealedReport.from_bytes(service.proxy.reports[0])
    gradient = service.task.query.problem.gradients(np.array([0.5, -1.25]), X[np.newaxis], np.array([Y]))[0]
    expected = VectorSum(plan).randomize(gradient, SeededRandom(3)).bits.sum(axis=1)
    assert counted([report], plan, roles.seal) == expected.tolist()
    assert report.round == document.digest


@pytest.mark.parametrize("transport", ["messages", "masked-sum"])
def test_a_run_over_the_network_ends_where_one_in_memory_does(tmp_path, roles, transport):
    """All roles on their own: eight clients over HTTP, two rounds, the same users and randomness as a run without a network."""
    task = roles.task(transport)
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(8, 2)) / 3, rng.integers(0, 2, size=8).astype(float)
    kept = tables.Database(f"sqlite:///{tmp_path / 'analyzer.db'}", analyzer_tables.ANALYZER)
    population = RemotePopulation(task, kept, roles.analyzer)
    with Service(tmp_path, roles, task) as service, ThreadPoolExecutor(1) as pool:
        training = pool.submit(run, task.query.problem, population, task.schedule, start=np.zeros(2))
        try:
            for users in (range(4), range(4, 8)):
                service.shuffler.open(_waited_for(population.current, training))
                for user in users:
                    service.client(f"u{user}").take_part(rows[user], targets[user], random=SeededRandom(user))
                bring(service.shuffler, population)
            result = training.result(timeout=120)
        finally:
            population.stop()
    kept.close()
    assert np.array_equal(result.theta, run(task.query.problem, _InMemory(rows, targets), task.schedule, start=np.zeros(2)).theta)


class _InMemory:
    """The same users in the same rounds with the same randomness, and no network."""

    users = 8

    def __init__(self, rows: np.ndarray, targets: np.ndarray) -> None:
        self.rows, self.targets, self.next = rows, targets, 0

    def prepare(self, test: Any, key: bytes | None = None) -> None:
        return None

    def answer(self, question: Any) -> Any:
        protocol, users = VectorSum(question.plan), range(self.next, self.next + 4)
        self.next += 4
        ones = np.zeros(2, dtype=np.int64)
        for user in users:
            gradient = question.query(self.rows[user : user + 1], self.targets[user : user + 1])[0]
            ones += protocol.randomize(gradient, SeededRandom(user)).bits.sum(axis=1)
        return protocol.analyze(Counts(ones, 4, private=True))


def _waited_for(find: Callable[[], Any], training: Any) -> Any:
    deadline = time.monotonic() + 120
    while (found := find()) is None:
        assert not training.done(), training.result()
        assert time.monotonic() < deadline, "no round came"
        time.sleep(0.01)
    return found


# --- trying again


def test_a_retry_after_a_lost_answer_sends_the_same_bytes_and_counts_once(service):
    service.open()
    service.proxy.answer = lambda method, path: LOSE_THE_ANSWER if method == "POST" else FORWARD
    with pytest.raises(ServerError) as lost:
        service.client().take_part(X, Y)
    assert lost.value.status is None
    assert service.stored == 1  # the shuffler has it, and the client does not know
    service.proxy.answer = lambda method, path: FORWARD
    assert service.client().take_part(X, Y) == Sent(1, first_time=False)  # the device was started anew
    first, second = service.proxy.reports
    assert first == second
    assert service.stored == 1
    assert service.client().take_part(X, Y) is None


def test_a_retry_sends_the_same_bytes_whatever_the_records_are_by_then(service):
    service.open()
    service.proxy.answer = lambda method, path: says(503) if method == "POST" else FORWARD
    for row in (X, -X, 0 * X):
        with pytest.raises(ServerError):
            service.client().take_part(row, Y)
    assert len(set(service.proxy.reports)) == 1
    assert len(service.proxy.reports) == 3
    assert service.stored == 0


def test_a_report_whose_round_is_said_to_have_ended_without_it_is_forgotten_and_no_other_is_made(service):
    """Whether it is true is not known: a shuffler that lies would have two answers of one user."""
    first = service.open(1)
    service.proxy.answer = lambda method, path: says(410) if method == "POST" else FORWARD
    ann = service.client()
    with pytest.raises(ServerError) as late:
        ann.take_part(X, Y)
    assert late.value.status == 410
    assert sorted(path.name for path in (service.folder / "ann").iterdir()) == [
        "budget.json",
        "budget.lock",
        "ledger.jsonl",
        "lock",
    ]
    service.proxy.answer = lambda method, path: FORWARD
    service.others_answer(first, 3)
    assert ann.round()[1].number == 1  # the shuffler would take it
    assert ann.take_part(X, Y) is None
    assert service.client().take_part(X, Y) is None  # started anew it remembers
    assert len(service.proxy.reports) == 1


def test_whoever_was_drawn_for_a_round_has_a_place_in_it_and_nobody_else(service):
    first, ann = service.open(1), service.client()
    service.others_answer(first, 3)
    for other in service.seats[4:]:
        assert service.shuffler.rounds_for([other]) == [None]  # who would randomize in vain is not asked to
    assert ann.take_part(X, Y) == Sent(1, first_time=True)
    assert service.shuffler.waiting_batch() is not None


def test_a_retry_after_the_round_was_made_tells_the_round_that_took_it(service):
    """The answer is lost, the round fills up and ends, and the client tries again in the next one."""
    first = service.open(1)
    service.proxy.answer = lambda method, path: LOSE_THE_ANSWER if method == "POST" else FORWARD
    with pytest.raises(ServerError):
        service.client().take_part(X, Y)
    service.proxy.answer = lambda method, path: FORWARD
    service.others_answer(first, 3)
    service.open(2)
    assert service.client().take_part(X, Y) == Sent(1, first_time=False)
    assert service.client().take_part(X, Y) is None
    assert service.stored == 0  # nothing of it in the second round


def test_in_the_full_model_a_client_answers_every_round_once(full_service):
    service, ann = full_service, full_service.client()
    for number in (1, 2):
        document = service.open(number)
        assert ann.take_part(X, Y) == Sent(number, first_time=True)
        assert ann.take_part(X, Y) is None
        service.others_answer(document, 7)
    assert len(service.proxy.reports) == 2


# --- what a client refuses, and then sends nothing


def test_a_client_with_another_analyzer_key_refuses_the_task(service, roles):
    service.open()
    with pytest.raises(WireError, match="signature"):
        service.client(analyzer_key=roles.stranger.public_key().public_bytes_raw().hex()).take_part(X, Y)
    assert service.proxy.reports == []


@pytest.mark.parametrize("key", ["", "ab", "x" * 64, "00" * 33])
def test_a_key_that_is_none_is_refused_at_once(service, key):
    with pytest.raises(ArgumentError, match="64 hex digits"):
        service.client(analyzer_key=key)


@pytest.mark.parametrize("limit", [{"max_epsilon": 0}, {"max_epsilon": "1"}, {"max_delta": 0}, {"max_delta": 1}])
def test_a_limit_that_is_none_is_refused_at_once(service, limit):
    with pytest.raises(ArgumentError, match=next(iter(limit))):
        service.client(**limit)


def test_a_weaker_promise_than_demanded_is_refused_with_both_figures(service):
    service.open()
    revealed = service.task.schedule.guarantee.epsilon(1e-2)
    with pytest.raises(RefusedTaskError) as refusal:
        service.client(max_epsilon=revealed * 0.999).take_part(X, Y)
    assert f"epsilon = {round_up(revealed)} at delta = 0.01" in str(refusal.value)
    assert f"{exact(revealed * 0.999)} that is allowed" in str(refusal.value)
    assert service.proxy.reports == []
    assert {path.name for path in (service.folder / "ann").glob("*")} <= {"lock"}
    assert service.client(max_epsilon=revealed).take_part(X, Y) == Sent(1, first_time=True)


def test_a_promise_with_more_slack_than_delta_is_refused(service):
    service.open()
    slack = service.task.schedule.guarantee.slack
    with pytest.raises(RefusedTaskError, match="epsilon = inf"):
        service.client(max_epsilon=1e6, max_delta=slack).take_part(X, Y)
    assert service.proxy.reports == []


def test_a_task_changed_on_its_way_is_refused(service, roles):
    service.open()
    data = bytearray(service.task.document(roles.analyzer).to_bytes())
    data[data.index(b'"noise_bits":9') + 13] = ord("8")
    service.shuffler.document = Document.from_bytes(bytes(data))
    with pytest.raises(WireError, match="signature"):
        service.client().take_part(X, Y)
    assert service.proxy.reports == []


def test_a_plan_with_less_noise_than_it_claims_is_refused_though_the_analyzer_signed_it(service, roles):
    service.open()
    original = service.task.document(roles.analyzer)
    service.publish(roles.edited(original, lambda values: values["schedule"]["phases"][0]["plan"].update(noise_bits=8)))
    with pytest.raises(WireError, match="impossible"):
        service.client().take_part(X, Y)
    assert service.proxy.reports == []


def test_a_chance_of_falling_short_is_part_of_what_a_task_reveals(service, roles):
    """Declared honestly, it leaves nothing of delta."""
    service.open()
    document = roles.edited(service.task.document(roles.analyzer), lambda values: values["schedule"].update(shortfall=0.009999))
    service.publish(document)
    with pytest.raises(RefusedTaskError):
        service.client().take_part(X, Y)
    assert service.proxy.reports == []


def test_more_rounds_than_the_plan_covers_are_refused(full_service):
    """The analyzer signs a third round of a plan for two."""
    service, ann = full_service, full_service.client()
    for number in (1, 2):
        document = service.open(number)
        ann.take_part(X, Y)
        service.others_answer(document, 7)
    service.show(service.roles.round(task=service.task.id, id="b3", number=2))
    with pytest.raises(RefusedTaskError, match=r"2 rounds"):
        ann.take_part(X, Y)
    with pytest.raises(RefusedTaskError, match=r"2 rounds"):
        service.client().take_part(X, Y)  # started anew it remembers
    assert len(service.proxy.reports) == 2


def test_an_answer_that_was_never_heard_of_counts_as_one_of_the_rounds(full_service):
    """The shuffler took it, and the client did not hear: two more rounds would be three, under a plan for two."""
    service, ann = full_service, full_service.client()
    service.proxy.answer = lambda method, path: LOSE_THE_ANSWER if method == "POST" else FORWARD
    first = service.open(1)
    with pytest.raises(ServerError):
        ann.take_part(X, Y)
    service.others_answer(first, 7)
    service.proxy.answer = lambda method, path: FORWARD
    second = service.open(2)
    assert ann.take_part(X, Y) == Sent(1, first_time=False)  # the one that was waiting
    assert ann.take_part(X, Y) == Sent(2, first_time=True)
    service.others_answer(second, 7)
    service.show(service.roles.round(task=service.task.id, id="b3", number=2))
    with pytest.raises(RefusedTaskError, match=r"2 rounds"):
        ann.take_part(X, Y)
    assert len(set(service.proxy.reports)) == 2


def test_a_report_without_an_entry_is_counted_before_it_is_sent_again(service):
    """The ledger was lost, and the report was not."""
    service.open()
    service.proxy.answer = lambda method, path: says(503) if method == "POST" else FORWARD
    with pytest.raises(ServerError):
        service.client().take_part(X, Y)
    (service.folder / "ann" / "ledger.jsonl").unlink()
    service.proxy.answer = lambda method, path: FORWARD
    assert service.client().take_part(X, Y) == Sent(0, first_time=False)  # nobody remembers which round it was
    assert service.client().take_part(X, Y) is None
    assert len(set(service.proxy.reports)) == 1


def test_a_round_that_is_named_like_cover_counts_from_when_its_report_is_sent(full_service):
    """The analyzer names rounds: a report of one called "cover-1" waited past the budget's period, and left uncounted."""
    now = [1e9]
    budget = DeviceBudget(full_service.folder / "budget.json", clock=lambda: now[0])
    full_service.open(id="cover-1")
    full_service.proxy.answer = lambda method, path: says(503) if method == "POST" else FORWARD
    with pytest.raises(ServerError):
        full_service.client(budget=budget).take_part(X, Y)
    now[0] += 1000.0
    full_service.proxy.answer = lambda method, path: FORWARD
    assert full_service.client(budget=budget).take_part(X, Y) == Sent(1, first_time=False)
    assert [entry.last for entry in budget.entries()] == [now[0]]


def test_a_round_of_another_phase_than_the_first_is_refused(tmp_path, roles):
    """No user is in two phases: what the schedule promises rests on it."""
    one = roles.task(interactivity="full")
    both = replace(one.schedule, phases=(*one.schedule.phases, *one.schedule.phases))
    with Service(tmp_path, roles, replace(one, users=16, schedule=both)) as service:
        document = service.open(1)
        drawn = [name for name in service.seats if service.shuffler.rounds_for([name]) == [document]]
        assert drawn == service.seats[:8]  # by lot; the others are asked in the second phase
        ann = service.client("ann")
        assert ann.take_part(X, Y) == Sent(1, first_time=True)
        service.seat_of("bob", slice(8, 16))
        assert service.client("bob").take_part(X, Y) is None
        service.show(service.roles.round(task=service.task.id, id="b3", number=3, phase=2))
        with pytest.raises(RefusedTaskError, match="more often"):
            ann.take_part(X, Y)
        assert len(service.proxy.reports) == 1


def test_a_round_of_another_key_is_refused(service, roles):
    service.open()
    forged = roles.round().document(roles.stranger)
    together = Start(service.task.document(roles.analyzer), forged).to_bytes()
    for path, data in (("/v1/round", forged.to_bytes()), ("/v1/start", together)):
        answer = f"HTTP/1.0 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        others = {"/v1/start": says(404)}  # a shuffler of before has no such path
        service.proxy.answer = lambda method, asked, own={**others, path: answer}: own.get(asked, FORWARD)
        with pytest.raises(WireError, match="signature"):
            service.client().take_part(X, Y)
    assert service.proxy.reports == []


@pytest.mark.parametrize(
    ("row", "target"),
    [([np.nan, 0.0], 1.0), ([0.1, 0.2, 0.3], 1.0), ([0.1, 0.2], 7.0), ([0.1, 0.2], np.nan), (["secret", 0.2], 1.0)],
)
def test_records_that_do_not_fit_are_refused_before_anything_is_written(service, row, target):
    service.open()
    for at_once in (True, False):
        with pytest.raises(ArgumentError) as refusal:
            service.client(at_once=at_once).take_part(row, target)
        shown, seen = refusal.value, []
        while shown is not None:  # whatever a crash reporter would send along
            seen.append(f"{shown} {shown.__dict__}")
            shown = shown.__cause__ or shown.__context__
        assert not any(value in text for value in ("nan", "7.0", "0.3", "secret") for text in seen), seen
        assert "Nothing was sent" in seen[0]
    assert service.proxy.reports == []
    assert {path.name for path in (service.folder / "ann").glob("*")} <= {"lock"}
    assert service.client().take_part(X, Y) == Sent(1, first_time=True)


# --- servers that say no, or nothing


def test_a_token_that_is_not_enrolled_is_a_401(service):
    service.open()
    with pytest.raises(ServerError, match="not an enrolled client's token") as refusal:
        service.client(token="somebody").take_part(X, Y)
    assert refusal.value.status == 401
    assert service.stored == 0


def test_before_there_is_a_task_the_client_hears_503(service):
    service.shuffler.document = None
    with pytest.raises(ServerError, match="no task yet") as refusal:
        service.client().task()
    assert refusal.value.status == 503


def test_a_second_device_with_the_same_token_is_a_409(service):
    """Another folder does not remember; the shuffler does, and asks no more. One that it had asked before is refused."""
    service.open()
    other = service.client(folder=service.folder / "another")
    question = got(f"{service.url}/v1/round")
    service.client().take_part(X, Y)
    assert other.take_part(X, Y) is None
    service.proxy.answer = lambda method, path: question if path == "/v1/round" else FORWARD
    with pytest.raises(ServerError, match="same bytes") as refusal:
        other.take_part(X, Y)
    assert refusal.value.status == 409
    assert service.stored == 1


@pytest.mark.parametrize("status", [400, 403, 404, 413, 429, 500, 502])
def test_every_refusal_keeps_its_status_and_its_reason(service, status):
    service.proxy.answer = lambda method, path: says(status)
    with pytest.raises(ServerError, match=r"^because$") as refusal:
        service.client().task()
    assert refusal.value.status == status


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(service, status):
    """Followed, it could turn a report into a question that is answered by 200, and the report would be taken for sent."""
    service.open()
    elsewhere = says(status, f"Location: {service.served.url}/healthz")
    service.proxy.answer = lambda method, path: elsewhere if method == "POST" else FORWARD
    with pytest.raises(ServerError) as refusal:
        service.client().take_part(X, Y)
    assert refusal.value.status == status
    service.proxy.answer = lambda method, path: FORWARD
    assert service.client().take_part(X, Y) == Sent(1, first_time=False)


@pytest.mark.parametrize("answer", [b"", b"what?\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort"])
def test_an_answer_that_is_not_http_is_no_answer(service, answer):
    service.proxy.answer = lambda method, path: answer
    with pytest.raises(ServerError) as problem:
        service.client().task()
    assert problem.value.status is None


@pytest.mark.parametrize("path", ["/v1/start", "/v1/task", "/v1/round"])
@pytest.mark.parametrize("length", [0, 50])
def test_an_answer_that_is_cut_off_is_no_answer(service, path, length):
    """A server that ends in the middle: what has come is not taken for a document, nor for the word that there is no round."""
    service.open()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + bytes(length)
    service.proxy.answer = lambda method, asked: {"/v1/start": says(404), path: answer}.get(asked, FORWARD)
    with pytest.raises(ServerError, match="cut off") as problem:
        service.client().take_part(X, Y)
    assert problem.value.status is None
    assert service.proxy.reports == []


def test_a_server_that_is_not_there_is_no_answer(service):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, and nobody listens
        with pytest.raises(ServerError, match="refused") as problem:
            service.client(url=f"http://127.0.0.1:{free.getsockname()[1]}").task()
    assert problem.value.status is None


def test_a_server_that_says_nothing_is_left_after_a_while(service):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(ServerError, match="timed out") as problem:
            service.client(url=f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2).task()
    assert problem.value.status is None


def test_an_answer_that_does_not_end_is_cut_off(service, monkeypatch):
    monkeypatch.setattr("croupier.service.net.http.MOST_DOCUMENT_BYTES", 100)
    with pytest.raises(ServerError, match="does not end"):
        service.client().task()


# --- TLS


def test_a_client_trusts_the_certificate_it_is_given_and_no_other(service, tmp_path):
    """A development certificate in place of the system's, the system's without it, and another of the same name."""
    service.open()
    tls, other = development_certificate(tmp_path / "tls"), development_certificate(tmp_path / "other")
    with Served(service.app, tls=tls) as secure:
        assert secure.url.startswith("https://")
        for ca in (None, other[0]):
            with pytest.raises(ServerError, match="its certificate is not trusted") as problem:
                service.client(url=secure.url, ca=ca).take_part(X, Y)
            assert problem.value.status is None
        assert service.stored == 0
        assert service.client(url=secure.url, ca=tls[0]).take_part(X, Y) == Sent(1, first_time=True)
    assert service.stored == 1


def test_a_certificate_for_another_name_is_refused(service, tmp_path):
    """127.0.0.2 is this machine too, and not in the certificate."""
    certificate, key = development_certificate(tmp_path / "tls")
    with Served(service.app, host="127.0.0.2", tls=(certificate, key)) as secure, pytest.raises(ServerError, match="mismatch"):
        service.client(url=secure.url, ca=certificate).task()


# --- what stays on the device


def test_when_it_has_finished_a_folder_holds_the_ledgers_alone(service):
    service.open()
    service.client(folder=service.folder / "new" / "ann").take_part(X, Y)
    folder = service.folder / "new" / "ann"
    assert sorted(path.name for path in folder.iterdir()) == ["budget.json", "budget.lock", "ledger.jsonl", "lock"]
    entries = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    task = service.task.id
    assert entries == [{"slot": f"{task}-task", "task": task, "round": 1, "phase": 1}]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_while_it_waits_a_folder_holds_the_sealed_report_besides(service):
    service.open()
    service.proxy.answer = lambda method, path: says(503) if method == "POST" else FORWARD
    with pytest.raises(ServerError):
        service.client().take_part(X, Y)
    kept = {path.name: path.read_bytes() for path in (service.folder / "ann").iterdir()}
    task = service.task.id
    assert set(kept) == {f"{task}-task.report", "budget.json", "budget.lock", "ledger.jsonl", "lock"}
    assert kept[f"{task}-task.report"] == service.proxy.reports[0]
    assert stat.S_IMODE((service.folder / "ann").stat().st_mode) == 0o700


@pytest.mark.process
def test_the_client_needs_no_server_software():
    """In a process where the parts for servers cannot be imported."""
    program = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"fastapi", "starlette", "uvicorn", "sqlalchemy", "prometheus_client"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
try:
    import fastapi
except ModuleNotFoundError:
    import croupier.client
    print(croupier.client.Client.__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Client\n", 0), done.stderr


def test_a_promise_about_other_neighbours_is_refused(tmp_path, roles):
    """Zero-out neighbours differ by half as much: the same epsilon is a weaker promise."""
    asked = {"epsilon": 20.0, "delta": 1e-2, "max_inflation": 3.0, "rounds": 2, "method": "acsa", "neighbours": "zero-out"}
    task = roles.task()
    with Service(
        tmp_path, roles, replace(task, schedule=cr.schedule(task.query.problem, task.users, **asked, lots="open"))
    ) as service:
        service.open()
        with pytest.raises(RefusedTaskError, match="zero-out neighbours"):
            service.client().take_part(X, Y)
        assert service.proxy.reports == []


def test_two_processes_of_one_user_do_not_answer_twice(service):
    """Both would look into the ledger before the other has written to it, and randomize anew."""
    service.open()
    ann = service.client()
    with ann._memory.alone(), pytest.raises(ArgumentError, match="one process at a time"):
        service.client().take_part(X, Y)
    assert service.proxy.reports == []
    assert service.client().take_part(X, Y) == Sent(1, first_time=True)


def test_a_damaged_ledger_is_an_error_and_nothing_is_sent(service):
    service.open()
    (service.folder / "ann").mkdir()
    (service.folder / "ann" / "ledger.jsonl").write_text('{"slot": "cut')
    with pytest.raises(ArgumentError, match="might answer twice"):
        service.client().take_part(X, Y)
    assert service.proxy.reports == []


@pytest.mark.parametrize("token", ["", "two words", "a\r\nHost: elsewhere"])
def test_a_token_that_is_none_is_refused_and_not_shown(service, token):
    with pytest.raises(ArgumentError, match="Copy it") as refusal:
        service.client(token=token)
    assert "elsewhere" not in str(refusal.value)
    service.open()
    assert service.client(token=service.tokens[service.seat_of("ann")] + "\n").take_part(X, Y) == Sent(1, first_time=True)


# --- times that do not depend on the records

FACTS = 'target = {column = "ill", classes = ["yes", "no"]}\ncolumns = {age = {low = 0, high = 100}}'


class Clock:
    """A clock that moves when somebody sleeps. `ready` is when the records have been read and the gradient is computed."""

    def __init__(self, ready: float) -> None:
        self.now, self.ready, self.end = 0.0, ready, threading.Event()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, futures: list[Any], timeout: float) -> None:
        due = self.now + timeout
        if self.ready <= due:
            for future in futures:
                future.exception(timeout=120)
        self.now = max(self.now, min(self.ready, due))


class Timed(Client):
    """A client that notes when it sends what."""

    requests: list[tuple[float, str]]
    clock: Clock

    def _sent(self, path: str, *rest: Any, **more: Any) -> bytes:
        self.requests.append((self.clock.now, path))
        return super()._sent(path, *rest, **more)


@pytest.fixture
def joined(tmp_path, roles, monkeypatch):
    """`croupier join` with records that are ready at a time of a clock; what it sent when, and what it said."""
    facts, request = Schema.from_toml(FACTS), Request("classify", {"epsilon": 20.0}, None)
    clocks: list[Clock] = []

    def pieces(source, types, read=Source.pieces):
        if clocks[-1].ready > 15.0:  # later than is waited for
            clocks[-1].end.wait(60)  # for as long as anybody could look
        return read(source, types)

    def run_join(name: str, ready: float) -> tuple[list[tuple[float, str]], list[str]]:
        clocks.append(Clock(ready))
        clock, said, requests = clocks[-1], [], []
        folder = tmp_path / name
        folder.mkdir()
        (folder / "me.csv").write_text("age,ill\n30,yes\n")
        monkeypatch.setattr(client_module, "time", clock)
        monkeypatch.setattr(means, "time", clock)
        monkeypatch.setattr(join_module, "time", clock)
        monkeypatch.setattr(means, "wait_for", clock.wait)
        monkeypatch.setattr(Source, "pieces", pieces)
        monkeypatch.setattr(join_module, "say", lambda console, text: said.append(text))
        monkeypatch.setattr(join_module, "Client", Timed)
        monkeypatch.setattr(Timed, "clock", clock, raising=False)
        monkeypatch.setattr(Timed, "requests", requests, raising=False)
        with Service(folder, roles, roles.task(records=records_to_dict(facts, request))) as service:
            service.open()
            given = {"token": service.tokens[service.seats[0]], "folder": folder / "ann", "ca": None, "wait": 60.0, **ENOUGH} | {
                "budget_file": folder / "b.json",
                "budget_epsilon": 1e3,
                "budget_delta": 1e-2,
                "period": "365d",
            }
            key = roles.analyzer.public_key().public_bytes_raw().hex()
            try:
                join_module.join(folder / "me.csv", service.url, [key], **given)
            finally:
                clock.end.set()
            assert service.stored == 1
        return requests, said

    return run_join


def test_when_a_client_asks_and_answers_does_not_depend_on_how_long_its_records_take(joined):
    """7 ms for one row, 105 ms for a million, longer than the pace, and for ever: the same requests at the same times."""
    heard = {ready: joined(str(number), ready) for number, ready in enumerate((0.007, 0.105, 14.9, 15.1, 1e9))}
    times = [requests for requests, _ in heard.values()]
    assert times == [[(0.0, "/v1/start"), (20.0, "/v1/report")]] * 5
    blank = {ready: any("blank" in text for text in said) for ready, (_, said) in heard.items()}
    assert blank == {0.007: False, 0.105: False, 14.9: False, 15.1: True, 1e9: True}


def test_records_that_are_not_ready_are_answered_by_a_blank_report_in_real_time(tmp_path, roles, plan):
    """Without a clock of our own: a source that never ends, and a report that leaves all the same."""
    end = threading.Event()

    def endless() -> tuple[Any, Any]:
        end.wait(60)
        return X, Y

    with Service(tmp_path, roles, roles.task(pace=0.2)) as service:
        service.open()
        try:
            assert service.client(at_once=False).answer(endless, random=SeededRandom(3)) == Sent(1, first_time=True, blank=True)
        finally:
            end.set()
        assert service.client(at_once=False).answer(endless) is None  # it was an answer
        report = SealedReport.from_bytes(service.proxy.reports[0])
        expected = VectorSum(plan).randomize(np.zeros(2), SeededRandom(3)).bits.sum(axis=1)
        assert counted([report], plan, roles.seal) == expected.tolist()


@pytest.mark.parametrize("text", ["age,ill\n30,perhaps\n", "age,ill\nthirty,yes\n", "age\n30\n", "age,ill\n"])
def test_in_a_task_that_blanks_a_file_that_is_not_valid_is_answered_like_any_other(tmp_path, roles, plan, text):
    """A bad value, and a file that cannot be read at all: one report of gradient 0, and nobody but the user is told."""
    facts = Schema.from_toml(FACTS)
    request = Request("classify", {"epsilon": 20.0, "invalid": "blank"}, None)
    (tmp_path / "me.csv").write_text(text)
    with Service(tmp_path, roles, roles.task(records=records_to_dict(facts, request), pace=2.0)) as service:
        service.open()
        reader = service.client().task().query
        sent = service.client(at_once=False).answer(lambda: reader.read_file(tmp_path / "me.csv"), random=SeededRandom(3))
        assert (sent.round, sent.first_time, sent.blank) == (1, True, "ill\n30" not in text and "thirty" not in text)
        report = SealedReport.from_bytes(service.proxy.reports[0])
        expected = VectorSum(plan).randomize(np.zeros(2), SeededRandom(3)).bits.sum(axis=1)
        assert counted([report], plan, roles.seal) == expected.tolist()
        assert service.stored == 1


def test_join_answers_a_task_that_blanks_whatever_the_file_is_and_tells_the_user(tmp_path, roles, monkeypatch):
    facts, request, said = Schema.from_toml(FACTS), Request("classify", {"epsilon": 20.0, "invalid": "blank"}, None), []
    (tmp_path / "me.csv").write_text("age\n30\n")
    monkeypatch.setattr(join_module, "say", lambda console, text: said.append(text))
    with Service(tmp_path, roles, roles.task(records=records_to_dict(facts, request), pace=0.5)) as service:
        service.open()
        key = roles.analyzer.public_key().public_bytes_raw().hex()
        given = {"token": service.tokens[service.seats[0]], "folder": tmp_path / "ann", "ca": None, "wait": 60.0, **ENOUGH} | {
            "budget_file": tmp_path / "b.json",
            "budget_epsilon": 1e3,
            "budget_delta": 1e-2,
            "period": "365d",
        }
        join_module.join(tmp_path / "me.csv", service.url, [key], **given)
        assert service.stored == 1
    assert "This command waits for up to 60 s" in said[0]
    assert said[1].startswith("Answered round 1")
    assert "the records cannot be read" in said[2]
    assert "'ill'" in said[2]


def test_a_file_that_is_refused_is_refused_before_a_round_is_asked_for(tmp_path, roles, monkeypatch):
    facts, request = Schema.from_toml(FACTS), Request("classify", {"epsilon": 20.0}, None)
    (tmp_path / "me.csv").write_text("age,ill\n30,perhaps\n")
    with Service(tmp_path, roles, roles.task(records=records_to_dict(facts, request), pace=1.0)) as service:
        service.open()
        key = roles.analyzer.public_key().public_bytes_raw().hex()
        given = {"token": service.tokens[service.seats[0]], "folder": tmp_path / "ann", "ca": None, "wait": 60.0, **ENOUGH} | {
            "budget_file": tmp_path / "b.json",
            "budget_epsilon": 1e3,
            "budget_delta": 1e-2,
            "period": "365d",
        }
        with pytest.raises(ArgumentError, match="perhaps"):  # on the terminal of whoever holds the record
            join_module.join(tmp_path / "me.csv", service.proxy.url, [key], **given)
        assert {path for _, path, _ in service.proxy.asked} == {"/v1/tasks", "/v1/start"}


# --- the owner's budget


def test_an_answer_is_on_the_ledger_before_it_is_sent(service):
    service.open()
    ann, seen = service.client(), []
    service.proxy.answer = lambda method, path: seen.append((path, [one.answers for one in ann.budget.entries()])) or FORWARD
    ann.take_part(X, Y)
    assert seen == [("/v1/start", []), ("/v1/report", [1])]
    (entry,) = ann.budget.entries()
    assert (entry.task, entry.guarantee) == (service.task.id, service.task.schedule.guarantee)
    assert entry.analyzer == service.roles.analyzer.public_key().public_bytes_raw().hex()


def test_a_task_beyond_the_owners_budget_is_refused_and_no_place_is_taken(service, tmp_path):
    """Two tasks of other analyzers are on the same ledger; by itself the task would be allowed."""
    service.open()
    promise = service.task.schedule.guarantee
    budget = DeviceBudget(tmp_path / "budget.json")
    budget.allow(BudgetLimit(3 * promise.epsilon(5e-2), 5e-2, 86400.0))
    room = 1 / budget.limit().caps.use([gaussian_bound(promise)])[0]
    assert room > 2
    for number in range(int(room)):
        budget.charge(f"other {number}", "", "ab" * 32, promise)
    with pytest.raises(RefusedTaskError, match="owner's limit"):
        service.client(budget=budget).take_part(X, Y)
    assert [path for _, path, _ in service.proxy.asked] == ["/v1/start"]
    assert service.stored == 0
    budget.allow(BudgetLimit(2 * budget.limit().epsilon, 5e-2, 86400.0))
    assert service.client(budget=budget).take_part(X, Y) == Sent(1, first_time=True)


def test_a_report_that_waits_is_charged_once_more_when_it_is_sent_and_is_no_other_answer(service):
    service.open()
    ann = service.client()
    service.proxy.answer = lambda method, path: LOSE_THE_ANSWER if method == "POST" else FORWARD
    with pytest.raises(ServerError):
        ann.take_part(X, Y)
    service.proxy.answer = lambda method, path: FORWARD
    assert ann.take_part(X, Y) == Sent(1, first_time=False)
    assert [entry.answers for entry in ann.budget.entries()] == [1]


@pytest.mark.parametrize(
    ("name", "text"), [("t.lot", "{"), ("t.lot", '"x"'), ("t.lot", "true"), ("ledger.jsonl", "5"), ("ledger.jsonl", "{}")]
)
def test_a_memory_that_cannot_be_read_is_refused_in_one_line(tmp_path, name, text):
    (tmp_path / name).write_text(text + "\n")
    memory = Memory(tmp_path)
    with pytest.raises(ArgumentError, match="Restore it"):
        memory.lot("t") if name == "t.lot" else memory.answers("t")
