"""The roles as they are run: sockets, databases, processes that are killed. The result is that of the run in memory, to the bit."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from helpers_records import TARGETS, UNSORTED, person
from helpers_roles import World, postgres_server, randomness, seats, soon, training, why_no_postgres
from typer.testing import CliRunner, Result

from croupier.cli.app import app
from croupier.protocol.randomness import RandomSource
from croupier.service.analyzer.app import analyzer_app
from croupier.service.analyzer.task_file import TaskFile
from croupier.service.client.client import Client
from croupier.service.net.database import Database
from croupier.service.net.http import ServerError
from croupier.service.net.server import Served, development_certificate, signing_key
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.relay import AnalyzerRelay
from croupier.service.shuffler.rounds import SHUFFLER, enrol
from croupier.table import TableModel
from croupier.table._encode import Encoder
from croupier.table._read import Source

pytestmark = pytest.mark.process

TRANSPORTS = ["masked-sum", "messages"]
needs_postgres = pytest.mark.skipif(why_no_postgres() is not None, reason=str(why_no_postgres()))
DATABASES = ["sqlite", pytest.param("postgres", marks=needs_postgres)]


@pytest.fixture(scope="module")
def postgres():
    numbers = itertools.count()
    with postgres_server() as make:
        yield lambda: make(f"croupier{next(numbers)}")


@pytest.fixture
def urls(request, tmp_path):
    """Where each role keeps what it has, by the kind of database."""

    def made(kind: str) -> dict[str, str]:
        if kind == "sqlite":
            return {role: f"sqlite:///{tmp_path / role}.db" for role in ("shuffler", "analyzer")}
        fresh = request.getfixturevalue("postgres")
        return {role: fresh() for role in ("shuffler", "analyzer")}

    return made


class Device(Client):
    """A user's client, with the randomness that the user has in memory too; it tries again until its answers are in."""

    def __init__(self, user: int, X, y, *where: str, **promise) -> None:
        super().__init__(*where, max_epsilon=8.01, max_delta=1e-2, at_once=True, **promise)
        self.user, self.X, self.y = user, X[user : user + 1], y[user : user + 1]
        self.answered: list[int] = []

    def _report(self, document, made, task, gradient, random):
        """Also remembers which round it is for: a retry may be when the next one is open."""
        self.number = made.number
        return super()._report(document, made, task, gradient, randomness(self.user, made.number))

    def try_once(self) -> bool:
        """Whether a round has this user's answer now that had none."""
        with contextlib.suppress(ServerError):
            if self.take_part(self.X, self.y) is not None:
                self.answered.append(self.number)
                return True
        return False

    def keep_answering(self, rounds: int, stopped: threading.Event) -> None:
        while len(self.answered) < rounds and not stopped.is_set():
            if not self.try_once():
                time.sleep(0.05)


def members(devices: list[Device], rounds: int) -> list[list[int]]:
    """Who answered which round, by what the devices were told."""
    return [[device.user for device in devices if number in device.answered] for number in range(1, rounds + 1)]


def devices_of(world: World, url: str, ca: Path | None = None) -> list[Device]:
    key = world.analyzer_key.public_key().public_bytes_raw().hex()
    return [
        Device(user, world.X, world.y, url, token, key, folder=world.folder / f"device{user}", ca=ca)
        for user, token in enumerate(world.tokens)
    ]


@contextlib.contextmanager
def deployed(world: World, tls: tuple[Path, Path] | None = None):
    """Both roles on sockets, and an optimizer that trains."""
    shuffler = world.shuffler(with_task=False)
    web = shuffler_app(shuffler)
    with (
        training(world) as running,
        Served(analyzer_app(running.population), tls=tls) as analyzer,
        Served(web, tls=tls) as served,
        AnalyzerRelay(shuffler, analyzer.url, ca=None if tls is None else tls[0]),
    ):
        soon(lambda: shuffler.document)
        world.seat()
        yield running, served.url, analyzer.url
        soon(lambda: shuffler.waiting_batch() is None)


@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("interactivity", "users"), [("sequential", 30), ("full", 12)])
def test_over_sockets_theta_is_that_of_the_run_in_memory(tmp_path, urls, database, transport, interactivity, users):
    world = World(tmp_path, transport=transport, interactivity=interactivity, users=users, databases=urls(database))
    rounds, stopped = 3 if interactivity == "full" else 1, threading.Event()
    with deployed(world) as (running, url, _), ThreadPoolExecutor(users) as pool:
        devices = devices_of(world, url)
        # Every user has a thread's attention until it has answered; in the full model all of them do, in every round.
        for number in range(rounds):
            list(pool.map(lambda device, wanted=number + 1: device.keep_answering(wanted, stopped), devices))
        theta = running.result()
    who = members(devices, 3)
    assert sorted(user for some in who for user in some) == sorted(list(range(users)) * rounds)
    assert [len(some) for some in who] == [10] * 3 if interactivity == "sequential" else [12] * 3
    assert np.array_equal(theta, world.theta_in_memory(who))
    assert np.linalg.norm(theta) > 0
    with world.store("shuffler").begin() as connection:
        left = [connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() for table in ("reports", "taken_part")]
        assert left == [0, users * rounds]
        assert connection.exec_driver_sql("SELECT count(*) FROM rounds WHERE batch IS NOT NULL").scalar() == 0
    world.close()


@pytest.mark.parametrize("database", DATABASES)
def test_the_database_of_either_kind_refuses_what_a_unique_key_forbids(tmp_path, urls, database):
    from sqlalchemy.exc import IntegrityError  # noqa: PLC0415

    world = World(tmp_path, users=12, databases=urls(database))
    store = world.store("shuffler")
    with store.begin() as connection:
        connection.exec_driver_sql("INSERT INTO taken_part VALUES ('task', 'name-of-user-0')")
    with pytest.raises(IntegrityError), store.begin() as connection:
        connection.exec_driver_sql("INSERT INTO taken_part VALUES ('task', 'name-of-user-0')")
    with pytest.raises(IntegrityError), store.begin() as connection:  # and who is not enrolled cannot take part
        connection.exec_driver_sql("INSERT INTO taken_part VALUES ('task', 'nobody')")
    world.close()


def test_behind_tls_a_client_trusts_the_certificate_that_it_was_given_and_no_other(tmp_path):
    world = World(tmp_path, users=6, interactivity="full")
    tls = development_certificate(tmp_path)
    assert development_certificate(tmp_path) == tls
    with deployed(world, tls) as (running, url, _):
        assert url.startswith("https://")
        with pytest.raises(ServerError, match=r"(?i)certificate"):
            devices_of(world, url)[0].task()
        devices = devices_of(world, url, tls[0])
        for _ in range(3):
            for device in devices:
                soon(device.try_once)
        theta = running.result()
    assert np.array_equal(theta, world.theta_in_memory([list(range(6))] * 3))
    world.close()


def said(url: str, data: bytes, *, then_close: bool = False) -> bytes:
    """What a server answers to these bytes on a socket."""
    address = urlsplit(url)
    where = (address.hostname, address.port)
    with contextlib.suppress(ConnectionError), socket.create_connection(where, timeout=20) as connection:
        connection.sendall(data)
        if not then_close:
            connection.shutdown(socket.SHUT_WR)
            return connection.recv(1 << 16)
    return b""


def test_hostile_bytes_on_a_socket_neither_stop_a_server_nor_change_a_count(tmp_path):
    world = World(tmp_path, users=12)
    with deployed(world) as (running, url, analyzer_url):
        document = running.next_round()
        soon(lambda: urllib.request.urlopen(f"{url}/v1/round").read())
        report, token = world.report(0, document), world.tokens[0]

        def post(path, length, body, *more):
            lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {length}", f"Authorization: Bearer {token}", *more]
            return "\r\n".join([*lines, "", ""]).encode() + body

        for target, path in ((url, "/v1/report"), (analyzer_url, "/v1/batch")):
            hostile = [
                b"\0" * 1000,
                b"\x16\x03\x01" + os.urandom(200),
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
                post(path, -1, b""),
                post(path, "9" * 30, b""),
                post(path, "9" * 19, b"x"),
                post(path, "many", b""),
                post(path, 10, b"x" * 1000),
                b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nx\r\n",
                b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\nContent-Length: 0\r\n\r\n",
            ]
            for data in hostile:
                answer = said(target, data)
                assert re.match(rb"HTTP/1.1 4\d\d |$", answer), answer[:100]  # refused, or not even answered
                assert token.encode() not in answer
            for cut in (0, 1, 48, len(report) - 1):  # a client that is gone in the middle
                said(target, post(path, len(report), report[:cut]), then_close=True)
            assert urllib.request.urlopen(f"{target}/healthz").read() == b"ok\n"
        assert world.rows("shuffler", "SELECT count(*) FROM reports") == [(0,)]
        assert world.rows("analyzer", "SELECT number, ones FROM asked") == [(1, None)]
        devices = devices_of(world, url)
        for device in devices:
            soon(device.try_once)
        theta = running.result()
    assert np.array_equal(theta, world.theta_in_memory(members(devices, 3)))
    world.close()


# Processes of the command line, killed and started again.

USERS = 12
FACTS = (
    '[target]\ncolumn = "ill"\nclasses = ["no", "yes"]\n[columns.age]\nlow = 0\nhigh = 100\n'
    '[columns.sex]\nlevels = ["f", "m"]\n[columns.height]\nlow = 100\nhigh = 200\n'
)


class Process:
    """A role as its operator runs it. Killed with kill -9, and started again on its port."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.folder, self.name, self.arguments = folder, name, arguments
        self.port, self.starts = 0, 0
        self.groups: list[int] = []
        self.running: subprocess.Popen[bytes] | None = None

    def start(self, port: int | None = None) -> None:
        """Returns at once; `ready` waits."""
        self.starts += 1
        program = [sys.executable, "-c", "from croupier.cli import main; main()", "serve", self.name]
        with self.log.open("wb") as log:
            given = [*self.arguments, "--port", str(port or self.port)]
            place = {"stdout": log, "stderr": log, "cwd": self.folder, "start_new_session": True}
            self.running = subprocess.Popen([*program, *given], **place)
        self.groups.append(self.running.pid)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.{self.starts}.log"

    def ready(self) -> str:
        """Its address, once it listens."""

        def address():
            assert self.running.poll() is None, self.log.read_text()
            return re.search(rf"{self.name} on (https?://127.0.0.1:(\d+))", self.log.read_text())

        found = soon(address)
        self.port = int(found[2])
        return found[1]

    def kill(self) -> None:
        self.running.send_signal(signal.SIGKILL)
        self.running.wait()

    def clear(self) -> None:
        """What helped a killed process may have outlived it."""
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def restart(self) -> None:
        self.kill()
        self.start()


class Operators:
    """An analyzer and a shuffler as processes, for a task in a file, and its clients."""

    def __init__(
        self,
        folder: Path,
        transport: str,
        databases: dict[str, str],
        *,
        dev: bool = False,
        facts: str = FACTS,
        more: str = "",
        processes: int = 1,
        rounds: int = 3,
        lots: str = "open",
        **promise: float,
    ) -> None:
        self.folder, self.dev = folder, dev
        (folder / "facts.toml").write_text(facts)
        keys = [signing_key(folder / role).public_key().public_bytes_raw().hex() for role in ("an", "sh")]
        analyzer_key, shuffler_key = keys
        (folder / "task.toml").write_text(
            f'schema = "facts.toml"\nusers = {USERS}\nepsilon = 8.0\ndelta = 1e-2\nrounds = {rounds}\nhonest = 1.0\n'
            f'lots = "{lots}"\ntransport = "{transport}"\nshuffler_key = "{shuffler_key}"\n{more}\n'
        )
        kept = {role: ("--database", databases[role]) for role in databases}
        database = databases.get("shuffler", f"sqlite:///{folder / 'sh' / 'shuffler.db'}")
        enrolled = Database(database, SHUFFLER)
        tokens = {name: enrol(enrolled, name) for name in (f"user-{user}" for user in range(USERS))}
        enrolled.close()
        secure = ("--dev",) if dev else ()
        asked = ("--task", "task.toml", "--dir", "an", "--processes", "1")
        self.analyzer = Process(folder, "analyzer", *asked, *secure, *kept.get("analyzer", ()))
        self.analyzer.start()
        known = ("--analyzer", self.analyzer.ready(), "--analyzer-key", analyzer_key, "--smallest", "2")
        trust = ("--ca", "an/dev-certificate.pem") if dev else ()
        several = ("--processes", str(processes)) if processes > 1 else ()
        self.shuffler = Process(folder, "shuffler", "--dir", "sh", *known, *trust, *secure, *kept.get("shuffler", ()), *several)
        self.shuffler.start()
        url = self.shuffler.ready()
        self.task = TaskFile.load(folder / "task.toml").task()
        rng = np.random.default_rng(0)
        problem = self.task.query.problem
        self.X = rng.uniform(-1, 1, size=(USERS, problem.dim))
        self.X *= problem.feature_norm / np.sqrt(problem.dim)
        self.y = (self.X[:, 0] > 0).astype(float)
        ca = folder / "sh/dev-certificate.pem" if dev else None
        self.devices = [  # in the order of the rounds that they were drawn for
            Device(user, self.X, self.y, url, tokens[name], analyzer_key, folder=folder / f"c{user}", ca=ca, **promise)
            for user, name in enumerate(self._seats(database))
        ]

    @staticmethod
    def _seats(database: str) -> list[str]:
        kept = Database(database, SHUFFLER)
        try:
            return soon(lambda: seats(kept))
        finally:
            kept.close()

    def answer(self, *users: int) -> None:
        for user in users:
            soon(self.devices[user].try_once)

    def result(self) -> np.ndarray:
        """theta of the model, when the analyzer has ended."""
        assert self.analyzer.running.wait(timeout=60) == 0, self.analyzer.log.read_text()
        return TableModel.load(self.folder / "model.json").estimator.result_.theta

    def in_memory(self, rounds: int = 3, blanks: Callable[[int], RandomSource] | None = None) -> np.ndarray:
        world = World.__new__(World)
        world.X, world.y, world.task, world.users = self.X, self.y, self.task, USERS
        return world.theta_in_memory(members(self.devices, rounds), blanks)

    def __enter__(self) -> Operators:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.shuffler, self.analyzer):
            if process.running.poll() is None:
                process.kill()
            process.clear()


@pytest.mark.parametrize(
    ("transport", "database"),
    [
        ("masked-sum", "sqlite"),  # test_analyzer.py kills both roles at every change of their databases
        pytest.param("messages", "sqlite", marks=pytest.mark.slow),
        pytest.param("verified-sum", "sqlite", marks=pytest.mark.slow),
        pytest.param("masked-sum", "postgres", marks=[needs_postgres, pytest.mark.slow]),
    ],
)
def test_roles_that_are_killed_at_every_stage_go_on_and_lose_nothing(tmp_path, urls, transport, database):
    """Batches of four: killed with no report, with some, with a batch that cannot be forwarded, and in the last round."""
    with Operators(tmp_path, transport, urls(database) if database == "postgres" else {}) as roles:
        roles.analyzer.restart()  # its round is published, and nobody has answered
        roles.answer(0, 1)
        roles.shuffler.restart()  # half a round
        roles.answer(2)
        roles.analyzer.ready()
        roles.analyzer.kill()
        roles.answer(3)  # the batch is made, and there is nobody to bring it to
        roles.shuffler.kill()
        roles.analyzer.start()
        roles.shuffler.start()
        roles.answer(4, 5, 6, 7)
        roles.answer(8, 9)
        roles.shuffler.restart()
        roles.analyzer.restart()
        roles.answer(10, 11)
        theta = roles.result()
        assert [len(some) for some in members(roles.devices, 3)] == [4, 4, 4]
        assert np.array_equal(theta, roles.in_memory())


@pytest.mark.slow
def test_roles_that_are_killed_at_any_moment_go_on_and_lose_nothing(tmp_path):
    """Clients send all the time, and roles die in the middle of whatever they do."""
    with Operators(tmp_path, "masked-sum", {}) as roles, ThreadPoolExecutor(4) as pool:
        stopped = threading.Event()
        waiting = [pool.submit(device.keep_answering, 1, stopped) for device in roles.devices]
        try:
            for wanted in (1, 4, 9):
                soon(lambda: sum(len(device.answered) for device in roles.devices) >= wanted)  # noqa: B023
                for process in (roles.shuffler, roles.analyzer):
                    if process.running.poll() is None:
                        process.restart()
            for future in waiting:
                future.result(timeout=60)
        finally:
            stopped.set()
        theta = roles.result()
        assert [len(some) for some in members(roles.devices, 3)] == [4, 4, 4]
        assert np.array_equal(theta, roles.in_memory())


def workers(process: Process) -> list[int]:
    """The processes that a shuffler of several has started; the one that they are forked from is none."""
    children = dict[int, list[int]]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    return sorted(worker for child in children.get(process.running.pid, []) for worker in children.get(child, []))


def kill_a_worker(process: Process, chance: random.Random) -> None:
    """By kill -9. One that has ended meanwhile, as without a database, does not count."""

    def killed() -> bool:
        with contextlib.suppress(IndexError, ProcessLookupError):
            os.kill(chance.choice(workers(process)), signal.SIGKILL)
            return True
        return False

    soon(killed)


def test_processes_that_share_a_port_and_a_database_keep_exact_sums_when_they_are_killed(tmp_path, urls):
    """Two behind one address: each is killed while clients send, so the leader too. In the end they go with who started them."""
    databases = {} if why_no_postgres() else urls("postgres")
    with Operators(tmp_path, "masked-sum", databases, processes=2) as roles, ThreadPoolExecutor(4) as pool:
        stopped = threading.Event()
        waiting = [pool.submit(device.keep_answering, 1, stopped) for device in roles.devices]
        try:
            for wanted, one in zip((1, 6), workers(roles.shuffler), strict=True):
                soon(lambda: sum(len(device.answered) for device in roles.devices) >= wanted)  # noqa: B023
                os.kill(one, signal.SIGKILL)
                soon(lambda: one not in workers(roles.shuffler) and len(workers(roles.shuffler)) == 2)  # noqa: B023
            for future in waiting:
                future.result(timeout=60)
        finally:
            stopped.set()
        theta = roles.result()
        assert [len(some) for some in members(roles.devices, 3)] == [4, 4, 4]
        assert np.array_equal(theta, roles.in_memory())
        running = workers(roles.shuffler)
        roles.shuffler.running.send_signal(signal.SIGTERM)
        assert roles.shuffler.running.wait(timeout=30) == 0
        assert not any(Path(f"/proc/{one}").exists() for one in running)


@pytest.mark.parametrize("role", ["shuffler", "shufflers", "analyzer", "enroller"])
def test_a_second_process_on_a_role_s_folder_is_refused_and_what_looks_after_it_is_not(tmp_path, role):
    """The fault: it started without a word. A lock that ends with its process keeps nobody from starting again after kill -9."""
    name, several = role.removesuffix("s"), ("--processes", "2") if role == "shufflers" else ()
    folder = str(tmp_path / "d")

    def croupier(*words: str) -> Result:
        return CliRunner().invoke(app, ["serve", *words, "--dir", folder])

    if role == "enroller":
        assert croupier("enroller-keys", "--address", "https://e.example").exit_code == 0
    first = Process(tmp_path, name, "--dir", folder, *several)
    try:
        first.start()
        first.ready()
        second = [sys.executable, "-c", "from croupier.cli import main; main()", "serve", name, "--dir", folder, "--port", "0"]
        refused = subprocess.run(second, capture_output=True, text=True, timeout=120, check=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        said = " ".join(refused.stderr.split())
        assert "--dir = " in said
        assert f"it must be a folder in which no {name} is running. Stop that one first, or use another folder." in said
        assert ("--processes N" in said) == (name == "shuffler")
        if name != "analyzer":
            assert (tmp_path / "d" / "audit.jsonl").read_text().count(f'"start {name}"') == 1
        if name == "shuffler":
            assert len(croupier("enrol", "--clients", "2", "-o", "-").stdout.splitlines()) == 2
            assert croupier("excluded").exit_code == 0
            assert "'nobody'" in str(croupier("revoke", "--client", "nobody").exception)
        if name != "enroller":
            assert croupier("task", "list").exit_code == 0
        log = first.log
        first.restart()
        first.ready()
        if several:  # what the killed one had is removed by now, and nobody is told of leaked semaphores
            assert "leaked" not in log.read_text()
    finally:
        first.kill()
        first.clear()


def test_a_run_over_tls_with_certificates_for_trying_things_out(tmp_path):
    with Operators(tmp_path, "masked-sum", {}, dev=True) as roles:
        url = roles.shuffler.ready()
        assert url.startswith("https://")
        with pytest.raises(urllib.error.URLError) as refusal:
            urllib.request.urlopen(f"{url}/healthz")
        assert isinstance(refusal.value.reason, ssl.SSLCertVerificationError)
        roles.answer(*range(USERS))
        assert np.array_equal(roles.result(), roles.in_memory())
        journal = [json.loads(line) for line in (tmp_path / "an" / "run.journal").read_text().splitlines()]
        assert journal[0]["secret"] is None
        for key in ("an/signing.key", "sh/signing.key", "an/dev-key.pem", "sh/dev-key.pem"):
            assert (tmp_path / key).stat().st_mode & 0o077 == 0
        # Killed between the end of the run and its model: the same command makes it, and asks nobody.
        (tmp_path / "model.json").rename(tmp_path / "before.json")
        roles.analyzer.start()
        theta = roles.result()
        assert np.array_equal(theta, TableModel.load(tmp_path / "before.json").estimator.result_.theta)


# The order of columns, levels and labels: one, from the analyzer's file to the model.


@pytest.mark.parametrize(("kind", "invalid"), [("texts", "refuse"), ("range", "refuse"), ("texts", "blank")])
def test_the_model_has_its_columns_and_labels_in_the_order_in_which_clients_made_their_rows(tmp_path, kind, invalid):
    """Roles as they are run. Clients make rows by the task that came over the wire; expected are rows by the analyzer's file.

    With the columns in any other order, theta would be another one, and the model's coefficients would be those of other columns.
    Where the task blanks, two clients hold a class and a blood type that nobody has declared: they answer like the others.
    """
    target, labels = TARGETS[kind]
    more = f'invalid = "{invalid}"' if invalid == "blank" else ""
    with Operators(tmp_path, "masked-sum", {}, facts=UNSORTED.format(target=target), more=more) as roles:
        asked = TaskFile.load(tmp_path / "task.toml")
        encoder = Encoder(asked.facts, invalid)
        assert asked.encoder.names != tuple(sorted(asked.encoder.names))
        rows = []
        for device in roles.devices:
            file = tmp_path / f"{device.user}.csv"
            text = person(device.user, labels)
            if invalid == "blank" and device.user in (3, 7):
                text = text.replace(f",{labels[0]},", ",perhaps,") if device.user == 3 else text.replace(",A,", ",?,")
                assert text != person(device.user, labels)
            file.write_text(text)
            device.X, device.y = soon(lambda: taken(device)).query.read_file(file)  # noqa: B023
            [piece] = Source(file).pieces(encoder.types(target=True))
            rows.append(asked.estimator.records(encoder.rows(piece), encoder.targets(piece)))
        roles.X, roles.y = (np.concatenate(part) for part in zip(*rows, strict=True))
        assert len(set(roles.y.tolist())) == 2
        roles.answer(*range(USERS))
        theta = roles.result()
        assert np.array_equal(theta, roles.in_memory())
        model = TableModel.load(tmp_path / "model.json")
        assert model.schema == asked.facts
        assert list(model.schema.columns) == ["weight", "income", "town", "age", "smokes", "blood"]
        assert model.estimator.promise_.invalid == invalid
        if invalid == "blank":
            assert np.flatnonzero(~roles.X.any(axis=1)).tolist() == [3, 7]
            assert "Assumptions about the records: none" in model.estimator.explain()


def taken(device: Device):
    with contextlib.suppress(ServerError):
        return device.task()
    return None
