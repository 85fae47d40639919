"""The deployed roles under load: durable reports a second, kill -9 under load, ciphertexts a second, and a whole run.

    python benchmarks/load.py [--out DIR] [--quick] [--only speed,kills,ciphertexts,runs] [--redraw]

The shuffler is the real command in a process of its own, over loopback, with SQLite. Reports are made beforehand, and what that
takes is given beside. Absolute figures depend on the machine, so that each stands beside the same disk's or core's own limit,
measured in the same run. Stores load.json and load.md, and exits with 1 where one of the limits in `holds` is missed. --quick is a
smoke test: nothing is judged, and stored only with --out. --only measures some sections anew and keeps the others that are stored.
--redraw makes load.md anew from the stored load.json.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import multiprocessing
import os
import platform
import random
import shutil
import socket
import sqlite3
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from rich.progress import track
from sqlalchemy import insert

import croupier as cr
from croupier.cli.model import Request, TableModel
from croupier.client import Client, ServerError
from croupier.optimizer import run
from croupier.population import Question
from croupier.protocol import Counts, Secret, SecureRandom, SumEstimate, VectorSum
from croupier.service import store as tables
from croupier.service.analyzer import RemotePopulation
from croupier.service.certificates import development_certificate
from croupier.service.roles import Served, signing_key
from croupier.service.store import Store
from croupier.service.task import Round, Task
from croupier.service.transport import opened, sealed_report
from croupier.service.web import analyzer_app
from croupier.service.wire import Batch, Document, report_bytes
from croupier.table import Schema

DIM, KILLS = 30, 20
# What must hold in a full run.
REPORTS_A_SECOND, OPENED_A_SECOND = 300, 10_000
CLI = [sys.executable, "-c", "from croupier.cli import main; main()", "serve"]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    loads: tuple[tuple[int, int, bool], ...] = ((1, 2_000, False), (16, 6_000, False), (64, 6_000, False), (16, 6_000, True))
    killed_reports: int = 16_000
    kills: int = KILLS
    envelopes: int = 20_000
    clients: int = 2_000
    features: int = DIM - 1  # and the constant
    rounds: int = 10
    runs: tuple[tuple[str, str], ...] = (("masked-sum", "sequential"), ("masked-sum", "full"), ("messages", "sequential"))


QUICK = Sizes(
    loads=((4, 200, False), (4, 200, True)),
    killed_reports=1_500,
    kills=2,
    envelopes=500,
    clients=40,
    features=4,
    rounds=2,
    runs=(("masked-sum", "sequential"), ("messages", "sequential")),
)


# A shuffler process, and what it needs around it


class Shuffling:
    """A shuffler as a process of its own that can be killed and started again where it was; use it as a context."""

    def __init__(self, folder: Path, analyzer: str, analyzer_key: str, *, tls: bool = False, ca: Path | None = None) -> None:
        self.folder, self.starts = folder, 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        options = ["--dir", folder, "--analyzer", analyzer, "--analyzer-key", analyzer_key, "--port", self.port, "--smallest", 2]
        self._command = [*CLI, "shuffler", *map(str, options), *(["--dev"] if tls else []), *(["--ca", str(ca)] if ca else [])]
        self.ca = development_certificate(folder)[0] if tls else None
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it has its task and takes reports."""
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.starts += 1
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError):
                if got(self.url + "/v1/task", self.ca) and got(self.url + "/v1/round", self.ca):
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the shuffler did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self) -> float:
        """Of the present process, so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Shuffling:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def got(url: str, ca: Path | None = None) -> bytes:
    secure = None if ca is None else ssl.create_default_context(cafile=ca)
    with urllib.request.urlopen(url, timeout=10, context=secure) as answer:
        data: bytes = answer.read()
    return data


@dataclass
class World:
    """One open round of a task, an analyzer in this process, a shuffler in its own, and reports that wait to be sent."""

    shuffler: Shuffling
    population: RemotePopulation
    clients: list[str]
    tokens: list[str]
    bodies: list[bytes]
    ones: np.ndarray  # of all reports together
    made_in: float  # seconds for all reports, one process
    trained: threading.Event = field(default_factory=threading.Event)


@contextmanager
def world(reports: int, tls: bool = False) -> Iterator[World]:
    """A round of so many users, masked-sum, DIM coordinates."""
    folder = Path(tempfile.mkdtemp(prefix="croupier-load-"))
    try:
        problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=DIM, radius=5.0))
        chosen = cr.schedule(problem, reports, epsilon=1.0, delta=1e-6, rounds=1, method="acsa", interactivity="full")
        role_key = signing_key(folder / "shuffler")
        analyzer_key = Ed25519PrivateKey.generate()
        task = Task("masked-sum", reports, problem, chosen, role_key.public_key())
        population = RemotePopulation(task, Store(f"sqlite:///{folder / 'analyzer.db'}", tables.ANALYZER), analyzer_key)
        done = threading.Event()

        def train() -> None:
            with suppress(KeyboardInterrupt):
                run(problem, population, chosen, start=np.zeros(DIM))
                done.set()

        clients, tokens = enrolled(folder / "shuffler" / "shuffler.db", reports)
        thread = threading.Thread(target=train, daemon=True)
        thread.start()
        while (document := population.current()) is None:
            time.sleep(0.01)
        bodies, ones, seconds = made(document, task, analyzer_key, reports)
        public = analyzer_key.public_key().public_bytes_raw().hex()
        with Served(analyzer_app(population)) as served, Shuffling(folder / "shuffler", served.url, public, tls=tls) as shuffler:
            yield World(shuffler, population, clients, tokens, bodies, ones, seconds, done)
            population.stop()
            thread.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def enrolled(database: Path, count: int) -> tuple[list[str], list[str]]:
    """Clients at a shuffler that is not running, all in one transaction."""
    kept = Store(f"sqlite:///{database}", tables.SHUFFLER)
    names = [f"client-{number:06}" for number in range(count)]
    tokens = [f"token-{number:06}-{os.urandom(16).hex()}" for number in range(count)]
    with kept.begin() as connection:
        rows = [{"id": name, "token_hash": tables.hash_of(token)} for name, token in zip(names, tokens, strict=True)]
        connection.execute(insert(tables.clients), rows)
    kept.close()
    return names, tokens


def made(document: Document, task: Task, key: Ed25519PrivateKey, count: int) -> tuple[list[bytes], np.ndarray, float]:
    """Reports of random vectors, the sum of their bits, and how long it took."""
    opened_round = Round.read(document, task, key.public_key())
    plan = opened_round.phase_of(task).plan
    protocol, source, rng = VectorSum(plan), SecureRandom(), np.random.default_rng(0)
    bodies, ones = [], np.zeros(DIM, dtype=np.int64)
    begun = time.perf_counter()
    for _ in range(count):
        vector = rng.normal(size=DIM)
        bits = protocol.randomize(plan.norm * vector / np.linalg.norm(vector), source)
        ones += bits.bits.sum(axis=1, dtype=np.int64)
        bodies.append(sealed_report(task.transport, document.digest, bits, opened_round.key).to_bytes())
    return bodies, ones, time.perf_counter() - begun


# Whoever sends: another process, with connections that stay open


@dataclass(frozen=True)
class Delivery:
    """What became of the reports: when each was acknowledged (seconds since the first), how long each took, what went wrong."""

    acknowledged: list[float]
    waits: list[float]
    broken: int  # connections that broke, to be made anew
    refusals: dict[int, int]
    cpu_seconds: float


def deliver(url: str, ca: Path | None, jobs: list[tuple[str, bytes]], connections: int, flags: Any, out: Any) -> None:
    """Send every report until it is acknowledged, over so many connections. `flags` says at any time which were."""
    jobs_left = iter(range(len(jobs)))
    lock, broken, refusals = threading.Lock(), [0], dict[int, int]()
    at, waits = [0.0] * len(jobs), [0.0] * len(jobs)
    host, port = url.split("://")[1].split(":")
    begun = time.perf_counter()

    def connected() -> http.client.HTTPConnection:
        if ca is None:
            return http.client.HTTPConnection(host, int(port), timeout=30)
        return http.client.HTTPSConnection(host, int(port), timeout=30, context=ssl.create_default_context(cafile=ca))

    def work() -> None:
        connection = connected()
        while True:
            with lock:
                job = next(jobs_left, None)
            if job is None:
                connection.close()
                return
            token, body = jobs[job]
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
            while not flags[job]:
                sent = time.perf_counter()
                try:
                    connection.request("POST", "/v1/report", body, headers)
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException):
                    connection.close()
                    connection = connected()
                    with lock:
                        broken[0] += 1
                    time.sleep(0.05)
                    continue
                now = time.perf_counter()
                if answer.status == 200:
                    flags[job] = 1
                    at[job], waits[job] = now - begun, now - sent
                else:  # 503 until a shuffler that was started anew has its task; anything else is a fault, and is reported
                    with lock:
                        refusals[answer.status] = refusals.get(answer.status, 0) + 1
                        if sum(refusals.values()) > 100_000:
                            os._exit(1)
                    time.sleep(0.05)

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put(Delivery(at, waits, broken[0], refusals, time.process_time()))


@contextmanager
def delivering(there: World, connections: int) -> Iterator[tuple[Any, Any, Callable[[], Delivery]]]:
    """A process that sends everything: which reports are acknowledged by now, the process, and a call that waits for its end."""
    context = multiprocessing.get_context("spawn")
    flags = context.RawArray("b", len(there.bodies))
    out = context.Queue()
    jobs = list(zip(there.tokens, there.bodies, strict=True))
    process = context.Process(target=deliver, args=(there.shuffler.url, there.shuffler.ca, jobs, connections, flags, out))
    process.start()
    try:
        yield flags, process, partial(out.get, timeout=900)
    finally:
        process.kill()
        process.join()


# (a) Durable reports a second


def speed(sizes: Sizes) -> list[dict[str, Any]]:
    """One shuffler process, reports that were made before, connections that stay open."""
    rows = []
    for connections, reports, tls in track(sizes.loads, description="reports"):
        with world(reports, tls) as there:
            size = len(there.bodies[0])
            before = there.shuffler.cpu_seconds()
            with delivering(there, connections) as (_, _, ended):
                delivery = ended()
            spent = there.shuffler.cpu_seconds() - before
            complete = there.trained.wait(60)
        at = np.sort(delivery.acknowledged)
        tenth = max(1, reports // 10)
        rows.append(
            {
                "connections": connections,
                "tls": tls,
                "reports": reports,
                "bytes": size,
                "a_second": reports / at[-1],
                "first_tenth_a_second": tenth / at[tenth - 1],
                "last_tenth_a_second": tenth / (at[-1] - at[-1 - tenth]),
                "wait_median": float(np.median(delivery.waits)),
                "wait_99": float(np.quantile(delivery.waits, 0.99)),
                "shuffler_cpu_a_report": spent / reports,
                "sender_cpu_a_report": delivery.cpu_seconds / reports,
                "refusals": delivery.refusals,
                "disk_commits_a_second": commits(size),
                "made_a_second": reports / there.made_in,
                "batch_arrived": complete,
            }
        )
    return rows


def commits(size: int, seconds: float = 1.0) -> float:
    """The disk's own limit: transactions a second that insert one such body, bare sqlite3, WAL, synchronous=FULL."""
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as folder:
        connection = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE reports (name TEXT PRIMARY KEY, body BLOB)")
        begun, done = time.perf_counter(), 0
        while time.perf_counter() < begun + seconds:
            connection.execute("INSERT INTO reports VALUES (?, ?)", (str(done), os.urandom(size)))
            done += 1
        rate = done / (time.perf_counter() - begun)
        connection.close()
    return rate


# (b) kill -9


def kills(sizes: Sizes, connections: int = 16, seed: int = 0) -> dict[str, Any]:
    """The same, with a shuffler that is killed at random moments and started again where it was."""
    chance = random.Random(seed)
    lives, lost, stored_unsaid = [], 0, 0
    with world(sizes.killed_reports) as there, delivering(there, connections) as (flags, process, ended):
        for _ in track(range(sizes.kills), description="kills"):
            before = sum(flags)
            while sum(flags) == before and process.is_alive():  # it takes reports again
                time.sleep(0.005)
            time.sleep(chance.uniform(0.05, 0.9))
            if sum(flags) == len(flags):
                break
            there.shuffler.kill()
            time.sleep(0.1)  # answers that were on their way
            said = [number for number, flag in enumerate(flags) if flag]
            kept = stored(there)
            lost += sum(kept.get(there.clients[number]) != there.bodies[number] for number in said)
            stored_unsaid += len(kept) - len(said)
            lives.append(len(said) - before)
            there.shuffler.start()
        delivery = ended()
        complete = there.trained.wait(120)
        counts = analyzer_counts(there.population)
    return {
        "kills": len(lives),
        "seed": seed,
        "connections": connections,
        "reports": sizes.killed_reports,
        "acknowledged": sum(moment > 0 for moment in delivery.acknowledged),
        "acknowledged_between_kills": lives,
        "lost": lost,
        "stored_but_not_said": stored_unsaid,
        "broken_connections": delivery.broken,
        "refusals": delivery.refusals,
        "batch_arrived": complete,
        "sum_is_exact": complete and counts == (there.ones.tolist(), sizes.killed_reports),
    }


def stored(there: World) -> dict[str, bytes]:
    """What a copy of the dead shuffler's database holds: client and body."""
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as folder:
        for file in there.shuffler.folder.glob("shuffler.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        connection = sqlite3.connect(Path(folder) / "shuffler.db")
        found = dict(connection.execute("SELECT client, body FROM reports").fetchall())
        connection.close()
    return found


def analyzer_counts(population: RemotePopulation) -> tuple[list[int], int] | None:
    with population.store.begin() as connection:
        found = connection.execute(tables.asked.select()).one()
    return None if found.ones is None else (json.loads(found.ones), found.users)


# (c) Ciphertexts


def ciphertexts(sizes: Sizes) -> dict[str, Any]:
    """One process: sealing and opening, medians of five."""
    key, digest, count = X25519PrivateKey.generate(), bytes(32), sizes.envelopes
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=count, dim=DIM)
    one_user = VectorSum(plan).randomize(np.zeros(DIM), SecureRandom())
    bits = replace(one_user, bits=np.zeros((1, count), dtype=np.uint8))
    sealed = sealed_report("messages", digest, bits, key.public_key())
    batch = Batch("messages", digest, count, sealed.sealed)
    seeds = [sealed_report("masked-sum", digest, one_user, key.public_key()) for _ in range(count // 10)]
    total = np.sum([report.masked for report in seeds], axis=0, dtype=np.uint64)
    masked = Batch("masked-sum", digest, len(seeds), np.stack([report.sealed for report in seeds]), total)
    some = replace(one_user, bits=bits.bits[:, : count // 4])
    work: dict[str, tuple[int, Callable[[], Any]]] = {
        "sealed": (count // 4, lambda: sealed_report("messages", digest, some, key.public_key())),
        "opened": (count, lambda: opened(batch, plan, key)),
        "seeds_opened": (len(seeds), lambda: opened(masked, plan, key)),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in track(range(5), description="ciphertexts"):
        for name, (_, do) in work.items():
            begun = time.process_time()
            do()
            times[name].append(time.process_time() - begun)
    rates = {f"{name}_a_second": many / statistics.median(times[name]) for name, (many, _) in work.items()}
    return {"envelopes": count, "dim": DIM, **rates}


# (d) A whole run


@dataclass(frozen=True)
class Device:
    """Where a client finds everything, in whichever process it is simulated."""

    url: str
    analyzer_key: str
    folder: Path
    tokens: list[str]
    X: np.ndarray
    y: np.ndarray

    def client(self, number: int) -> Client:
        where = self.folder / str(number)
        return Client(
            self.url, self.tokens[number], self.analyzer_key, folder=where, max_epsilon=100.0, max_delta=0.1, at_once=True
        )


_device: Device | None = None


def become(device: Device) -> None:
    global _device  # noqa: PLW0603  (a worker process has one)
    _device = device


def coins(client: int, number: int) -> Any:
    """What this client tosses in this round: the same over the network and in memory."""
    return Secret(hashlib.sha256(f"client {client}".encode()).digest(), False).derive(number).source()


def answer(number: int, client: int) -> float:
    """One client's answer to this round; the seconds it took."""
    assert _device is not None
    begun, device = time.perf_counter(), _device.client(client)
    while True:
        try:
            if (sent := device.take_part(_device.X[client], _device.y[client], random=coins(client, number))) is not None:
                if sent.round != number:
                    raise RuntimeError(f"client {client} answered round {sent.round} instead of {number}")
                return time.perf_counter() - begun
        except ServerError as problem:
            if problem.status not in (None, 409, 429, 503):
                raise
        time.sleep(0.05)


class InMemory:
    """The same people with the same coins, asked without a network: who answered a round is known from the real run."""

    def __init__(self, X: np.ndarray, y: np.ndarray, members: list[list[int]]) -> None:
        self.users, self._X, self._y, self._members = len(y), X, y, iter(enumerate(members, start=1))

    def prepare(self, test: Any, key: bytes | None = None) -> None:
        return None

    def answer(self, question: Question) -> SumEstimate:
        number, members = next(self._members)
        protocol, ones = VectorSum(question.plan), np.zeros(question.plan.dim, dtype=np.int64)
        for client in members:
            vector = question.query(self._X[client : client + 1], self._y[client : client + 1])[0]
            ones += protocol.randomize(vector, coins(client, number)).bits.sum(axis=1, dtype=np.int64)
        return protocol.analyze(Counts(ones, len(members), private=True))


def whole_runs(sizes: Sizes) -> list[dict[str, Any]]:
    return [whole_run(sizes, transport, how) for transport, how in track(sizes.runs, description="runs")]


def whole_run(sizes: Sizes, transport: str, interactivity: str) -> dict[str, Any]:
    """Analyzer, shuffler and clients in processes of their own; then the same in memory."""
    folder = Path(tempfile.mkdtemp(prefix="croupier-load-"))
    names = [f"c{number}" for number in range(sizes.features)]
    values = {
        "target": {"column": "y", "classes": ["no", "yes"]},
        "columns": {name: {"low": -1, "high": 1} for name in names},
    }
    lines = ["[target]", 'column = "y"', 'classes = ["no", "yes"]', *(f"[columns.{name}]\nlow = -1\nhigh = 1" for name in names)]
    (folder / "schema.toml").write_text("\n".join(lines) + "\n")
    at_analyzer, at_shuffler = folder / "analyzer", folder / "shuffler"
    keys = [signing_key(role).public_key().public_bytes_raw().hex() for role in (at_analyzer, at_shuffler)]
    (folder / "task.toml").write_text(
        f'schema = "schema.toml"\nusers = {sizes.clients}\nepsilon = 4.0\ndelta = 1e-6\nrounds = {sizes.rounds}\n'
        f'transport = "{transport}"\ninteractivity = "{interactivity}"\nshuffler_key = "{keys[1]}"\n'
    )
    maker = Request("classify", {"epsilon": 4.0, "interactivity": interactivity, "rounds": sizes.rounds}, 1e-6).estimator(
        Schema.from_dict(values, "the schema"), sizes.clients
    )
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(sizes.clients, sizes.features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * 1.000001
    X, y = maker.records(rows, np.where(rows[:, 0] > 0, "yes", "no"))
    tokens = enrolled(at_shuffler / "shuffler.db", sizes.clients)[1]
    analyzer = None
    try:
        with (folder / "log").open("w") as log:
            command = [*CLI, "analyzer", "--task", str(folder / "task.toml"), "--dir", str(at_analyzer), "--port", "0"]
            analyzer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        assert analyzer.stdout is not None
        where = analyzer.stdout.readline().split(" on ")[1].strip()
        with Shuffling(at_shuffler, where, keys[0]) as shuffler:
            begun = time.perf_counter()
            device = Device(shuffler.url, keys[0], folder / "clients", tokens, X, y)
            task = device.client(0).task()
            members, busy = _asked(device, task, at_shuffler / "shuffler.db")
            if analyzer.wait(600):
                raise RuntimeError((folder / "log").read_text()[-2000:])
            seconds = time.perf_counter() - begun
        over_network = TableModel.load(folder / "model.json").estimator
        begun = time.perf_counter()
        in_memory = maker.fit_population(InMemory(X, y, members), sizes.features)
        plan = task.schedule.phases[0].plan
        return {
            "transport": transport,
            "interactivity": interactivity,
            "clients": sizes.clients,
            "dim": plan.dim,
            "rounds": len(members),
            "users_a_round": plan.users,
            "messages_a_coordinate": plan.bits_per_coordinate,
            "envelopes": sum(map(len, members)) * (plan.bits_per_user if transport == "messages" else 1),
            "bytes_a_report": report_bytes(transport, plan.dim, plan.bits_per_coordinate),
            "seconds": seconds,
            "client_seconds_a_report": busy / sum(map(len, members)),
            "seconds_in_memory": time.perf_counter() - begun,
            "same_theta": bool(np.array_equal(over_network.result_.theta, in_memory.result_.theta)),
            "largest_difference": float(np.max(np.abs(over_network.result_.theta - in_memory.result_.theta))),
        }
    finally:
        if analyzer is not None:
            analyzer.kill()
            analyzer.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _asked(device: Device, task: Task, database: Path) -> tuple[list[list[int]], float]:
    """Those who were drawn for a round answer it, from two processes. Who answered which, and their seconds in all."""
    members, busy = list[list[int]](), 0.0
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), become, (device,)) as pool:
        for number in range(1, task.schedule.rounds + 1):
            while not (data := got(device.url + "/v1/round")) or json.loads(Document.from_bytes(data).text)["number"] != number:
                time.sleep(0.02)
            members.append(drawn(database, number))
            busy += sum(pool.map(partial(answer, number), members[-1], chunksize=4))
    return members, busy


def drawn(database: Path, number: int) -> list[int]:
    """The clients whom the shuffler has drawn for a round."""
    connection = sqlite3.connect(database)
    try:
        found = connection.execute("SELECT client FROM lots WHERE ? BETWEEN first AND last ORDER BY client", (number,)).fetchall()
    finally:
        connection.close()
    return [int(name.removeprefix("client-")) for (name,) in found]


# What is said of it


SECTIONS: dict[str, Callable[[Sizes], Any]] = {"speed": speed, "kills": kills, "ciphertexts": ciphertexts, "runs": whole_runs}


def compute(quick: bool, sections: list[str], results: dict[str, Any], save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """These sections measured, the others as they are in `results`; saved after each, since a run is long."""
    sizes = QUICK if quick else Sizes()
    results |= {
        "version": cr.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "quick": quick,
    }
    for name in sections:
        results[name] = SECTIONS[name](sizes)
        results.setdefault("load_average", {})[name] = os.getloadavg()[1]
        save(results)
    return results


def holds(results: dict[str, Any]) -> list[dict[str, Any]]:
    """What must hold in a full run, and whether it does."""
    plain = [row for row in results["speed"] if not row["tls"] and row["connections"] > 1]
    best = min((row["a_second"] for row in plain), default=0.0)
    killed, opening = results["kills"], results["ciphertexts"]["opened_a_second"]
    rows = [
        (
            f"at least {REPORTS_A_SECOND} durable reports a second, every load of several connections",
            f"{best:.0f}",
            best >= REPORTS_A_SECOND,
        ),
        (
            f"nothing acknowledged lost across {KILLS} kills, and the sum exact in the end",
            f"{killed['lost']} lost, {killed['kills']} kills",
            killed["lost"] == 0 and killed["kills"] >= KILLS and killed["sum_is_exact"],
        ),
        (f"at least {OPENED_A_SECOND} ciphertexts opened a second and core", f"{opening:.0f}", opening >= OPENED_A_SECOND),
    ]
    for transport in ("masked-sum", "messages"):
        same = [row["same_theta"] for row in results["runs"] if row["transport"] == transport]
        rows.append(
            (
                f"theta by {transport} exactly that of the run in memory",
                f"{sum(same)} of {len(same)} runs",
                bool(same) and all(same),
            )
        )
    return [{"what": what, "found": found, "holds": bool(held)} for what, found, held in rows]


def markdown(results: dict[str, Any]) -> str:
    """The stored figures as tables."""
    parts = [
        "# The deployed roles under load\n",
        f"croupier {results['version']}, Python {results['python']}, SQLite {results['sqlite']}, {results['cores']} shared cores"
        f"{', a quick run: nothing is judged' if results['quick'] else ''}. `python benchmarks/load.py`.\n",
        _others(results.get("load_average", {})),
        table(
            ("must hold", "found", ""), [[row["what"], row["found"], "yes" if row["holds"] else "NO"] for row in results["holds"]]
        ),
        "## Durable reports\n",
        "One shuffler process, SQLite (WAL, synchronous=FULL), masked-sum, d = 30, connections that stay open, one round. "
        "Reports were made before; the sender is another process on the same cores. *Disk* is how many transactions a second "
        "bare sqlite3 commits here with the same body: one at a time, the shuffler cannot be faster. CPU is milliseconds a "
        "report.\n",
        table(
            (
                "connections",
                "TLS",
                "reports",
                "a second",
                "first tenth",
                "last tenth",
                "disk",
                "wait, median",
                "99 %",
                "CPU shuffler",
                "CPU sender",
            ),
            [
                [
                    str(row["connections"]),
                    "yes" if row["tls"] else "no",
                    f"{row['reports']:,}",
                    *(
                        f"{row[name]:.0f}"
                        for name in ("a_second", "first_tenth_a_second", "last_tenth_a_second", "disk_commits_a_second")
                    ),
                    *(f"{1e3 * row[name]:.1f} ms" for name in ("wait_median", "wait_99")),
                    *(f"{1e3 * row[name]:.2f}" for name in ("shuffler_cpu_a_report", "sender_cpu_a_report")),
                ]
                for row in results["speed"]
            ],
        ),
        f"A client makes a report (randomize, seal) at {results['speed'][-1]['made_a_second']:.0f} a second and core; it has "
        f"{results['speed'][-1]['bytes']} bytes.\n",
        "## kill -9\n",
        _kills(results["kills"]),
        "## Ciphertexts\n",
        _ciphertexts(results["ciphertexts"]),
        "## Whole runs\n",
        "Analyzer and shuffler as commands, clients in two further processes, each with a folder and connections of its own, "
        "over loopback. In memory: the same records and the same coins, added up. By *messages* most of the time is sealing, "
        "which devices do for themselves.\n",
        table(
            (
                "transport",
                "",
                "clients",
                "d",
                "rounds",
                "users a round",
                "envelopes",
                "bytes a report",
                "seconds",
                "a client, ms",
                "in memory, s",
                "theta",
            ),
            [
                [
                    row["transport"],
                    row["interactivity"],
                    f"{row['clients']:,}",
                    str(row["dim"]),
                    str(row["rounds"]),
                    f"{row['users_a_round']:,}",
                    f"{row['envelopes']:,}",
                    f"{row['bytes_a_report']:,}",
                    f"{row['seconds']:.0f}",
                    f"{1e3 * row['client_seconds_a_report']:.0f}",
                    f"{row['seconds_in_memory']:.1f}",
                    "the same" if row["same_theta"] else f"off by {row['largest_difference']:.2g}",
                ]
                for row in results["runs"]
            ],
        ),
    ]
    return "\n".join(parts)


def _others(loads: dict[str, float]) -> str:
    """How busy the machine was: what others did there slows everything here."""
    said = ", ".join(f"{name} {load:.1f}" for name, load in loads.items())
    return f"Load average at the end of each section, ourselves included: {said}.\n" if said else ""


def _kills(row: dict[str, Any]) -> str:
    lives = row["acknowledged_between_kills"]
    return (
        f"The shuffler was killed {row['kills']} times at random moments (seed {row['seed']}) while {row['connections']} "
        f"connections sent {row['reports']:,} reports, and started again where it was. After each kill a copy of its database "
        f"was compared with what had been acknowledged by then, byte for byte: **{row['lost']} acknowledged reports were lost**. "
        f"{row['stored_but_not_said']} were on disk before their clients heard of it (over all kills); they sent the same bytes "
        f"again, and were counted once: the analyzer's counts are {'exactly' if row['sum_is_exact'] else 'NOT'} the sum of all "
        f"{row['reports']:,} reports. Between kills {min(lives, default=0)} to {max(lives, default=0)} reports were "
        f"acknowledged; {row['broken_connections']:,} connections broke. A kill is not a power cut: what survives that is up "
        f"to the disk and synchronous=FULL.\n"
    )


def _ciphertexts(row: dict[str, Any]) -> str:
    return (
        f"One core: {row['opened_a_second']:,.0f} sealed bits opened a second, {row['sealed_a_second']:,.0f} sealed; by masked-sum "
        f"{row['seeds_opened_a_second']:,.0f} users a second (a seed opened, {row['dim']} masks taken away). Seconds are of this "
        f"process alone (CPU), medians of five.\n"
    )


def table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the results (default: results beside this script)")
    parser.add_argument("--quick", action="store_true", help="small sizes, in under a minute; judges nothing")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections to measure; the others are kept as stored")
    parser.add_argument("--redraw", action="store_true", help="only the text, from the stored load.json")
    arguments = parser.parse_args()
    folder = arguments.out or Path(__file__).parent / "results"
    stored_file, storing = folder / "load.json", bool(arguments.out) or not arguments.quick
    sections = [] if arguments.redraw else arguments.only.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"--only knows {', '.join(SECTIONS)}, not {', '.join(unknown)}")
    keep = set(sections) != set(SECTIONS) and stored_file.exists()
    results: dict[str, Any] = json.loads(stored_file.read_text()) if keep else {}

    def save(found: dict[str, Any]) -> None:
        if storing:
            folder.mkdir(parents=True, exist_ok=True)
            stored_file.write_text(json.dumps(found, indent=1) + "\n")

    if sections:
        results = compute(arguments.quick, sections, results, save)
    if missing := [name for name in SECTIONS if name not in results]:
        print(json.dumps({name: results[name] for name in sections}, indent=1))
        sys.exit(f"not measured yet, so that nothing is judged: {', '.join(missing)}")
    results["holds"] = holds(results)
    save(results)
    print(markdown(results))
    if storing:
        (folder / "load.md").write_text(markdown(results))
    missed = [row["what"] for row in results["holds"] if not row["holds"]]
    if missed and not results["quick"]:
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    main()
