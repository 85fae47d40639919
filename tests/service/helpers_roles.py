"""A small task with its users, run by roles on databases that can be closed and opened again, and the same run in memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import select

import croupier as cr
from croupier.optimizer.training import run
from croupier.protocol import VectorSum
from croupier.protocol.randomness import RandomSource, Secret
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.net.database import Database
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.wire.documents import Document
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import RefusedError, Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS, SealedReport
from croupier.validation import how_to_install

DIM = 5
PATIENCE = float(
    os.environ.get("CROUPIER_PATIENCE", "300")
)  # seconds that a test waits before it says that something does not happen


def seats(store: Database) -> list[str]:
    """Names of clients in the order of the rounds that they were drawn for."""
    lots = shuffler_tables.lots.c
    with store.look() as connection:
        return list(connection.execute(select(lots.client).order_by(lots.first, lots.client)).scalars())


def randomness(user: int, number: int):
    """What a user draws in a round: the same on a device and in memory."""
    return Secret.of_seed(1000 + user).derive("round", number).source()


class World:
    """A task, its keys, its users' records, and the folder with both databases. Roles are made, dropped and made again."""

    def __init__(
        self,
        folder: Path,
        *,
        transport="masked-sum",
        users=12,
        dim=DIM,
        databases=None,
        patience=None,
        premise=None,
        secret=None,
        pace=10.0,
        enroller=None,
        loss=None,
        constant=0.0,
        **asked,
    ) -> None:
        self.folder, self.users = folder, users
        generator, loss = np.random.default_rng(users), loss or cr.losses.Logistic()
        self.X = generator.normal(size=(users, dim)) / dim
        self.y = (self.X[:, 0] > 0).astype(float)
        if constant:
            self.X[:, -1] = constant
        domain = cr.domains.Ball(dim=dim * loss.outputs, radius=5.0)
        problem = cr.Problem(loss=loss, domain=domain, feature_norm=3.0, constant=constant)
        options = {"epsilon": 8.0, "delta": 1e-2, "method": "acsa", "rounds": 3, "max_inflation": 1e9}
        chosen = cr.schedule(problem, users, **options | asked, lots="open" if secret is None else "secret")
        if premise is not None:  # a larger share is honest than the plans count on: the margin for reports that are left out
            chosen = replace(chosen, honest=premise)
        self.analyzer_key, self.shuffler_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        about = {"patience": patience, "pace": pace, "secret": secret, "enroller": enroller}
        self.task = Task(transport, users, TrainingQuery(problem), chosen, self.shuffler_key.public_key(), **about)
        self.databases = databases or {role: f"sqlite:///{folder / role}.db" for role in ("shuffler", "analyzer")}
        self.stores: list[Database] = []
        kept = self.store("shuffler")
        self.names = [f"name-of-user-{user}" for user in range(users)]
        self.tokens = [shuffler_tables.enrol(kept, name) for name in self.names]
        kept.close()

    def store(self, role: str) -> Database:
        opened = Database(self.databases[role], shuffler_tables.SHUFFLER if role == "shuffler" else analyzer_tables.ANALYZER)
        self.stores.append(opened)
        return opened

    def close(self) -> None:
        for opened in self.stores:
            opened.close()

    def shuffler(self, *, with_task: bool = True) -> ShufflerRole:
        made = ShufflerRole(self.store("shuffler"), self.shuffler_key, self.analyzer_key.public_key())
        if with_task:
            made.take_task(self.task.document(self.analyzer_key))
            self.seat()
        return made

    def seat(self) -> None:
        """Count users in the order of the rounds that the shuffler has drawn them for: it is chance which name is whose."""
        order = seats(self.store("shuffler"))
        tokens = dict(zip(self.names, self.tokens, strict=True))
        self.names = sorted(self.names, key=lambda name: order.index(name) if name in order else len(order))
        self.tokens = [tokens[name] for name in self.names]

    def population(self) -> RemotePopulation:
        return RemotePopulation(self.task, self.store("analyzer"), self.analyzer_key)

    def plan(self, document) -> cr.SumPlan:
        return self.read(document).phase_of(self.task).plan

    def read(self, document) -> TaskRound:
        return TaskRound.read(document, self.task, self.analyzer_key.public_key())

    def bits(self, user: int, document, block: int = 0):
        """What a user says in a round."""
        made = self.read(document)
        gradient = made.vector(self.task, self.X[user : user + 1], self.y[user : user + 1])
        return VectorSum(self.plan(document), seed=document.digest, block=block).randomize(gradient, randomness(user, made.number))

    def report(self, user: int, document, block: int = 0) -> bytes:
        made, transport = self.read(document).parts(self.task)[block], TRANSPORTS[self.task.transport]
        return transport.seal(self.bits(user, document, block), self.plan(document), made.digest(document), made.key).to_bytes()

    def members(self) -> list[list[int]]:
        """Who answers which round where users come in order."""
        sizes = [phase.batch for phase in self.task.schedule.phases for _ in range(phase.rounds)]
        if self.task.schedule.interactivity == "full":
            return [list(range(size)) for size in sizes]
        return [list(range(last - size, last)) for last, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True)]

    def theta_in_memory(
        self,
        members: Sequence[Sequence[int]],
        blanks: Callable[[int], RandomSource] | None = None,
        left_out: Iterable[int] = (),
    ) -> np.ndarray:
        """theta of the run without servers, of the same users' bits, and of blanks with these coins of each round.

        Members are those of each batch: of a round, or of each of its blocks. Who is left out has come, so that no blank is in its
        place.
        """
        population = _InMemory(self, members, blanks, frozenset(left_out))
        return run(self.task.query.problem, population, self.task.schedule, start=np.zeros(self.task.query.problem.dim)).theta

    def files(self, role: str) -> bytes:
        """All that the role's database has on disk, the log included."""
        return b"".join(file.read_bytes() for file in sorted(self.folder.glob(f"{role}.db*")) if not file.name.endswith("-shm"))

    def rows(self, role: str, query: str) -> list[tuple[Any, ...]]:
        """By sqlite3 itself, not through what is tested."""
        connection = sqlite3.connect(self.folder / f"{role}.db")
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


class _InMemory:
    """Users in memory, asked by the three parts of the protocol."""

    def __init__(
        self,
        world: World,
        members: Sequence[Sequence[int]],
        blanks: Callable[[int], RandomSource] | None = None,
        left_out: frozenset[int] = frozenset(),
    ) -> None:
        self.world, self.members, self.users, self.blanks = world, members, world.users, blanks
        self.left_out, self.coins = left_out, {}

    def prepare(self, test, key=None):
        return None

    def answer(self, question):
        X, y, seed, number = self.world.X, self.world.y, None, question.number
        lot = self.world.task.lots_of(number)[question.block]
        if question.plan.range is not None:  # as the round that was asked, whose document is kept
            first = self.world.task.lots_of(number)[0]
            ((stored,),) = self.world.rows("analyzer", f"SELECT document FROM asked WHERE number = {first}")
            seed = Document.from_bytes(stored).digest
        protocol = VectorSum(question.plan, seed=seed, block=question.block)
        reports = [
            protocol.randomize(question.query(X[user : user + 1], y[user : user + 1])[0], randomness(user, number))
            for user in self.members[lot - 1]
        ]
        if self.blanks is not None:  # as many as the round has reports, of which those are used that nobody took the place of
            coins = self.coins[number] = self.coins.get(number) or self.blanks(number)
            nothing = np.zeros(question.plan.dim)
            reports += [protocol.randomize(nothing, coins) for _ in range(question.plan.users)][len(reports) :]
        bad = [place for place, user in enumerate(self.members[lot - 1]) if user in self.left_out]
        return protocol.analyze(protocol.shuffle([report for place, report in enumerate(reports) if place not in bad]))


class Training:
    """An optimizer over remote users, in a thread; a context that stops it."""

    def __init__(self, world: World, population: RemotePopulation) -> None:
        self.world, self.population = world, population
        self.theta: np.ndarray | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="training")

    def _run(self) -> None:
        task, journal = self.world.task, self.world.folder / "run.journal"
        try:
            self.theta = run(
                task.query.problem, self.population, task.schedule, start=np.zeros(task.query.dim), checkpoint=journal
            ).theta
        except BaseException as error:  # the test's to look at
            self.error = error

    def __enter__(self) -> Training:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.population.stop()
        self._thread.join()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def next_round(self, after: int = 0):
        """The document of the round after that number, once it is published; None where the run has ended."""

        def published():
            document = self.population.current()
            return document if document is not None and self.world.read(document).number > after else None

        return soon(lambda: published() or self.ended) and published()

    def result(self) -> np.ndarray:
        soon(lambda: self.ended)
        assert self.error is None, self.error
        assert self.theta is not None
        return self.theta


@contextmanager
def training(world: World) -> Iterator[Training]:
    with Training(world, world.population()) as made:
        yield made


def soon(happens: Callable[[], Any]) -> Any:
    """What comes true in a while; an error where it does not."""
    last = time.monotonic() + PATIENCE
    while not (found := happens()):
        if time.monotonic() > last:
            raise TimeoutError("it does not happen")
        time.sleep(0.005)
    return found


def answer_round(world: World, shuffler: ShufflerRole, document, users: Sequence[int]) -> list[bytes]:
    """Open a round and let these users answer it; returns their reports."""
    shuffler.open(document)
    reports = [world.report(user, document) for user in users]
    for user, report in zip(users, reports, strict=True):
        shuffler.receive(world.names[user], report)
    return reports


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()


class Web:
    """A web app spoken to as a server would, without a socket; a context. Bodies come in the pieces that they are given in."""

    def __init__(self, app: Any) -> None:
        self._app, self._runner = app, asyncio.Runner()

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self._runner.run(self._said("GET", path, [b""], headers or {}))

    def post(self, path: str, body: bytes | Iterable[bytes], headers: dict[str, str] | None = None) -> Answer:
        """With the body's length, unless it is in pieces or the headers say another."""
        whole = isinstance(body, bytes)
        length = {"Content-Length": str(len(body))} if whole else {}
        return self._runner.run(self._said("POST", path, [body] if whole else list(body), length | (headers or {})))

    async def _said(self, method: str, path: str, body: list[bytes], headers: dict[str, str]) -> Answer:
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
        scope |= {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": raw}
        scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
        parts, said, ended = iter(body), [], asyncio.Event()
        left = len(body)

        async def receive() -> dict[str, Any]:
            nonlocal left
            if left == 0:
                await ended.wait()
                return {"type": "http.disconnect"}
            left -= 1
            return {"type": "http.request", "body": next(parts), "more_body": left > 0}

        async def send(message: dict[str, Any]) -> None:
            said.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                ended.set()

        await self._app(scope, receive, send)
        start = next(message for message in said if message["type"] == "http.response.start")
        content = b"".join(message.get("body", b"") for message in said if message["type"] == "http.response.body")
        return Answer(start["status"], {name.decode().lower(): value.decode() for name, value in start["headers"]}, content)


class PostgresServer:
    """A PostgreSQL server of our own on a socket in a folder. Called with a name, it makes a database and returns its URL."""

    def __init__(self, folder: Path, quiet: dict[str, Any]) -> None:
        self._folder, self._quiet = folder, quiet
        self.start()

    def start(self, *, wait: bool = False) -> None:
        """Returns at once, or when it takes connections."""
        command = ["postgres", "-D", self._folder / "data", "-c", "listen_addresses=", "-k", self._folder, "-F"]
        self._running = subprocess.Popen(command, **self._quiet)
        if wait:
            soon(lambda: self._connected("postgres")).close()

    def stop(self) -> None:
        """Without waiting for whoever is connected."""
        self._running.send_signal(signal.SIGINT)
        try:
            self._running.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()

    def restart(self, away: float = 0.0) -> None:
        """Returns when it takes connections again."""
        self.stop()
        time.sleep(away)
        self.start(wait=True)

    def _connected(self, name: str) -> Any:
        import psycopg  # noqa: PLC0415  (an extra)

        try:
            return psycopg.connect(host=os.fspath(self._folder), user="croupier", dbname=name, autocommit=True)
        except psycopg.OperationalError:
            assert self._running.poll() is None, "PostgreSQL has ended"
            return None

    def __call__(self, name: str) -> str:
        with soon(lambda: self._connected("postgres")) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql+psycopg://croupier@/{name}?host={self._folder}"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="croupier-pg-"))
    account: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL does not run as root
        account = {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **account}
    subprocess.run(["initdb", "-D", data, "-U", "croupier", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"], check=True, **quiet)
    server = PostgresServer(folder, quiet)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def why_no_postgres() -> str | None:
    """The reason for which its tests cannot run here."""
    missing = [program for program in ("initdb", "postgres") if shutil.which(program) is None]
    if missing:
        return f"PostgreSQL's {' and '.join(missing)} are not here"
    try:
        import psycopg  # noqa: F401, PLC0415
    except ImportError:
        return f"psycopg is not here: {how_to_install('postgres')}"
    if os.geteuid() == 0 and subprocess.run(["id", "postgres"], capture_output=True, check=False).returncode != 0:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


def round_of(world: World, number: int = 1, phase: int = 1, key: X25519PrivateKey | None = None) -> Document:
    """A round of the task's, signed by its analyzer, without an optimizer behind it."""
    private = key or X25519PrivateKey.generate()
    made = TaskRound(world.task.id, f"{number:032x}", number, phase, np.zeros(DIM), private.public_key())
    return made.document(world.analyzer_key)


def refused(shuffler: ShufflerRole, name: str, body: bytes) -> tuple[int, str]:
    with pytest.raises(RefusedError) as refusal:
        shuffler.receive(name, body)
    return refusal.value.status, str(refusal.value)


def sizes(world: World) -> tuple[int, int]:
    """Reports, and who has taken part, in the shuffler's database."""
    return tuple(world.rows("shuffler", f"SELECT count(*) FROM {table}")[0][0] for table in ("reports", "taken_part"))


def pieces(reports: list[bytes], transport: str) -> tuple[list[bytes], list[bytes]]:
    """Random bytes that say which report it is: those that never leave the shuffler, and those of envelopes."""
    read = [SealedReport.from_bytes(report) for report in reports]
    # Masked counts are short: with the seed before them, which is permuted away from them, they are random enough to be found.
    own = [report[128 - 24 :] for report in reports] if transport == "masked-sum" else []
    envelopes = [bytes(report.sealed.reshape(-1)[:40]) for report in read]
    return own, envelopes
