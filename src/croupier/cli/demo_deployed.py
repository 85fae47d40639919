"""`croupier demo --deployed`: analyzer, shuffler, enroller and a few hundred clients, all on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from ..privacy._statements import guarantee_line
from ..service.client.client import Client
from ..service.net.http import Server, ServerError
from ..service.wire.task import Task
from ..service.wire.transports import TRANSPORTS
from ..table import TableModel
from ..table._datasets import PATIENTS, patients
from ..table._encode import Encoder
from ..table._read import Piece
from ..validation import ArgumentError, how_to_install, real, whole
from .terminal import Stopped, messages, say

# The parties of `croupier demo --deployed`: three roles as processes of their own, and all clients in this one.

# Clients that talk at the same time, seconds between two looks for a new round, and how long anything may take.
_TALKING, PAUSE, _PATIENCE = 8, 0.05, 120.0
_RETRIED = (None, 429, 503)


class Role:
    """A role as a process of its own, on a free port of this machine; gone when the context is left."""

    def __init__(self, name: str, folder: Path, *arguments: Any) -> None:
        self.name, self._log = name, folder / f"{name}.log"
        command = [sys.executable, "-c", "from croupier.cli import main; main()", "serve", name, "--dev", "--port", "0"]
        self._command = [*command, *map(str, arguments)]
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Role:
        with self._log.open("w") as log:
            # In a session of its own: Ctrl-C is for us, and we stop it.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()  # "analyzer on https://127.0.0.1:..."
            if " on " not in line:
                raise self._failed("did not start")
        except BaseException:
            self.__exit__()
            raise
        self.url = line.split(" on ")[1].strip()
        return self

    def check(self) -> None:
        """Refuse to wait for a role that has ended."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise self._failed("ended")

    def wait(self) -> None:
        """Until it ends by itself."""
        assert self._process is not None
        try:
            code = self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            raise self._failed("does not end") from None
        if code:
            raise self._failed("ended")

    def _failed(self, how: str) -> Stopped:
        said = self._log.read_text().strip().splitlines()
        return Stopped(f"the {self.name} {how}: {said[-1] if said else 'it printed nothing'}", 1)

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        try:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        finally:  # also after a second Ctrl-C
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


class Training:
    """All clients answer every round, a few of them at a time, each over connections of its own."""

    def __init__(self, clients: list[Client], *roles: Role) -> None:
        self._clients, self._roles = clients, roles
        self._stopping = threading.Event()
        self._deadline = time.monotonic() + _PATIENCE

    def run(self, rounds: int, console: Console, shown: bool) -> Task:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} reports"))
        pool = ThreadPoolExecutor(_TALKING)
        try:
            with Progress(*columns, TimeElapsedColumn(), console=console, disable=not shown, transient=True) as bar:
                shown_task = bar.add_task("starting", total=len(self._clients) * rounds)
                task = self._task()
                bar.update(shown_task, description="tokens")
                for _ in pool.map(self._collect, self._clients):
                    pass
                people = patients(len(self._clients), seed=0)
                X, y = task.query.read_pieces([people], "people")  # as each client does with its own record
                for number in range(1, rounds + 1):
                    self._wait_for(number)
                    bar.update(shown_task, description=f"round {number}/{rounds}")
                    for _ in pool.map(self._answer, self._clients, X, y):
                        bar.advance(shown_task)
            return task
        finally:
            self._stopping.set()
            pool.shutdown(cancel_futures=True)

    def _task(self) -> Task:
        while True:
            try:
                return self._clients[0].task()
            except ServerError as problem:
                self._later(problem)

    def _wait_for(self, number: int) -> None:
        """Until the shuffler takes reports of this round. One client looks for all of them."""
        while True:
            try:
                now = self._clients[0].round()
                if now is not None and now[1].number == number:
                    return
                self._later(None)
            except ServerError as problem:
                self._later(problem)

    def _collect(self, client: Client) -> None:
        self._until_done(client.collect)

    def _answer(self, client: Client, x: NDArray[Any], y: Any) -> None:
        self._until_done(lambda: client.take_part(x, y))

    def _until_done(self, step: Callable[[], object]) -> None:
        while not self._stopping.is_set():
            try:
                step()
                self._deadline = time.monotonic() + _PATIENCE  # it moves
                return
            except ServerError as problem:
                self._later(problem)

    def _later(self, problem: ServerError | None) -> None:
        """Wait a little, unless waiting will not help."""
        for role in self._roles:
            role.check()
        if problem is not None and problem.status not in _RETRIED:
            raise Stopped(f"a server answered {problem.status}: {problem}", 1)
        if time.monotonic() > self._deadline:
            raise Stopped(f"nothing moved for {_PATIENCE:.0f} seconds" + (f": {problem}" if problem else ""), 1)
        self._stopping.wait(PAUSE)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """A request to terminate cleans up like Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def loopback_unproxied() -> Iterator[None]:
    """A proxy that the environment names cannot reach this machine's own addresses: do not ask it."""
    before = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    os.environ |= dict.fromkeys(before, "127.0.0.1,localhost")
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


USERS, ROUNDS = 300, 4
_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "prometheus_client")
_SCHEMA = PATIENTS.to_toml()
_JUDGES = 20_000


@dataclass(frozen=True)
class Outcome:
    """What the demo shows in the end."""

    users: int
    rounds: int
    seconds: float
    epsilon: float
    delta: float
    guarantee: str
    accuracy: float
    accuracy_without_privacy: float
    accuracy_of_one_answer: float
    bits_per_user: int  # over all rounds
    bytes_per_user: int  # on the wire, over all rounds
    analyzer_database: dict[str, int]
    shuffler_database: dict[str, int]
    enroller_database: dict[str, int]


def demo_deployed(users: int | None, epsilon: float, delta: float, as_json: bool) -> None:
    """The whole of it: start, train, show, stop. Whatever happens, nothing keeps running and no file stays."""
    require_extra()
    real("delta", delta, above=0, below=1, remedy="Choose less than 1 / users.")
    count = whole("users", USERS if users is None else users, at_least=20, at_most=2000, remedy="A few hundred make a good demo.")
    console = messages()
    folder = Path(tempfile.mkdtemp(prefix="croupier-demo-"))
    try:
        with terminated_like_interrupted(), loopback_unproxied():
            outcome = _run(folder, count, epsilon, delta, console, console.is_terminal and not as_json)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        typer.echo(json.dumps(asdict(outcome), indent=2))
    else:
        _show(outcome)


def require_extra() -> None:
    """Say how to install what servers need, where it is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        allowed = f"left out unless the servers' packages are installed (not found: {', '.join(missing)})"
        raise ArgumentError("--deployed", True, allowed, f"To get them: {how_to_install('service')}")


def _run(folder: Path, users: int, epsilon: float, delta: float, console: Console, shown: bool) -> Outcome:
    from ..service.enroller import new_invitation, token_keys  # noqa: PLC0415
    from ..service.net.database import Database  # noqa: PLC0415  (an extra)
    from ..service.net.server import development_certificate, signing_key  # noqa: PLC0415
    from ..service.shuffler import rounds  # noqa: PLC0415
    from ..service.wire.enrolment import EnrollerKeys  # noqa: PLC0415

    begun = time.perf_counter()
    at_analyzer, at_shuffler, at_enroller = folder / "analyzer", folder / "shuffler", folder / "enroller"
    keys = [signing_key(role).public_key().public_bytes_raw().hex() for role in (at_analyzer, at_shuffler)]
    (folder / "schema.toml").write_text(_SCHEMA)
    (folder / "task.toml").write_text(
        f'schema = "schema.toml"\nusers = {users}\nepsilon = {epsilon!r}\ndelta = {delta!r}\nrounds = {ROUNDS}\nradius = 5.0\n'
        f'transport = "masked-sum"\ninteractivity = "full"\nshuffler_key = "{keys[1]}"\nenroller = "enroller.json"\n'
    )
    moduli = tuple(key.public_key().public_numbers().n for key in token_keys(at_enroller, ROUNDS))
    invitations = [new_invitation() for _ in range(users)]
    (folder / "people.txt").write_text("\n".join(invitations))
    kept = Database(f"sqlite:///{at_shuffler / 'shuffler.db'}", rounds.SHUFFLER)
    tokens = [rounds.enrol(kept, rounds.new_name()) for _ in range(users)]
    kept.close()
    trusted = [development_certificate(role)[0] for role in (at_analyzer, at_shuffler, at_enroller)]
    enrolling = Role("enroller", folder, "--dir", at_enroller, "--people", folder / "people.txt")
    analyzing = Role("analyzer", folder, "--task", folder / "task.toml", "--dir", at_analyzer)
    with enrolling as enroller:
        (folder / "enroller.json").write_text(json.dumps(EnrollerKeys(enroller.url, moduli).to_dict()))
        with (
            analyzing as analyzer,
            Role("shuffler", folder, *_options(at_shuffler, analyzer, keys[0], trusted[0], users)) as shuffler,
        ):
            where = f"{_page_of(analyzer.url, trusted[0])} Shuffler: {shuffler.url}. Enroller: {enroller.url}."
            say(console, f"{where} All of them run on this machine only and stop by themselves.")
            clients = [
                Client(
                    shuffler.url,
                    token,
                    keys[0],
                    folder=folder / "clients" / str(number),
                    max_epsilon=epsilon,
                    max_delta=delta,
                    ca=trusted[1],
                    at_once=True,  # people are synthetic
                    invitation=invitation,
                    enroller_ca=trusted[2],
                )
                for number, (token, invitation) in enumerate(zip(tokens, invitations, strict=True))
            ]
            task = Training(clients, analyzer, shuffler, enroller).run(ROUNDS, console, shown)
            analyzer.wait()
            _settle(at_shuffler)
    model = TableModel.load(folder / "model.json")
    return _judged(model, task, (at_analyzer, at_shuffler, at_enroller), time.perf_counter() - begun)


def _options(folder: Path, analyzer: Role, key: str, ca: Path, users: int) -> tuple[Any, ...]:
    return "--dir", folder, "--analyzer", analyzer.url, "--analyzer-key", key, "--ca", ca, "--smallest", min(users // 2, 20)


def _encoded(people: Piece) -> tuple[NDArray[Any], NDArray[Any]]:
    encoder = Encoder(PATIENTS)
    return encoder.rows(people), encoder.targets(people)


def _judged(model: TableModel, task: Task, folders: tuple[Path, Path, Path], seconds: float) -> Outcome:
    """Judge the model on people it has not seen, next to a fit that sees everybody's records."""
    at_analyzer, at_shuffler, at_enroller = folders
    estimator = model.estimator
    (X, y), (X_new, y_new) = _encoded(patients(task.users, seed=0)), _encoded(patients(_JUDGES, seed=1))
    plain = LogisticRegression(C=100.0, max_iter=1000).fit(X, y)
    plan = task.schedule.phases[0].plan
    share = float(np.mean(y_new == "yes"))
    return Outcome(
        users=task.users,
        rounds=estimator.result_.rounds,
        seconds=seconds,
        epsilon=estimator.epsilon,
        delta=estimator.delta,
        guarantee=guarantee_line(estimator.guarantee_, estimator.promise_.epsilon, estimator.promise_.delta),
        accuracy=float(estimator.score(X_new, y_new)),
        accuracy_without_privacy=float(plain.score(X_new, y_new)),
        accuracy_of_one_answer=max(share, 1 - share),
        bits_per_user=plan.bits_per_user * task.schedule.rounds,
        bytes_per_user=(TRANSPORTS[task.transport].report_length(plan) + task.token_bytes) * task.schedule.rounds,
        analyzer_database=_held(at_analyzer / "analyzer.db", _ANALYZER_HOLDS),
        shuffler_database=_held(at_shuffler / "shuffler.db", _SHUFFLER_HOLDS),
        enroller_database=_held(at_enroller / "enroller.db", _ENROLLER_HOLDS),
    )


_ANALYZER_HOLDS = {
    "rounds, each with the counts of all users together": "SELECT count(*) FROM asked WHERE ones IS NOT NULL",
    "keys that could open a report": "SELECT count(*) FROM asked WHERE key IS NOT NULL",
    "hashes of tokens, each counted once; nobody knows whose": "SELECT count(*) FROM spent",
    "names or reports of clients": "SELECT 0",  # it has no table for them
}
_ENROLLER_HOLDS = {
    "people: hashes of their invitations": "SELECT count(*) FROM people",
    "notes that somebody's tokens were signed": "SELECT count(*) FROM issued",
    "tokens, or anything of a report": "SELECT 0",  # it has no table for them
}
_SHUFFLER_HOLDS = {
    "clients: a random name and a token's hash": "SELECT count(*) FROM clients",
    "notes that a client took part in a round": "SELECT count(*) FROM taken_part",
    "reports, sealed": "SELECT count(*) FROM reports",
    "batches not yet forwarded": "SELECT count(*) FROM rounds WHERE batch IS NOT NULL",
}


def _held(database: Path, questions: dict[str, str]) -> dict[str, int]:
    import sqlite3  # noqa: PLC0415  (not in every Python; the extra needs it)

    connection = sqlite3.connect(database)
    try:
        return {what: int(connection.execute(query).fetchone()[0]) for what, query in questions.items()}
    finally:
        connection.close()


def _settle(at_shuffler: Path) -> None:
    """Until the shuffler has heard that its last batch arrived."""
    deadline = time.monotonic() + 5
    what = "batches not yet forwarded"
    while _held(at_shuffler / "shuffler.db", _SHUFFLER_HOLDS)[what] and time.monotonic() < deadline:
        time.sleep(PAUSE)


def _page_of(url: str, ca: Path) -> str:
    """Where to look: the analyzer's page, if it has one."""
    with suppress(ServerError):
        if b"<html" in Server(url, ca=ca, timeout=5).send("/"):
            return f"Dashboard: {url}/ (its certificate is self-signed, so a browser will warn)."
    return f"Analyzer: {url}."


def _show(outcome: Outcome) -> None:
    console = Console()
    say(
        console,
        f"\n{outcome.users} clients answered {outcome.rounds} rounds, each over its own TLS connections, in {outcome.seconds:.0f} "
        f"seconds. Accuracy on {_JUDGES:,} other people:\n",
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    rows = {
        "best constant answer": outcome.accuracy_of_one_answer,
        "without privacy": outcome.accuracy_without_privacy,
        "Croupier, deployed": outcome.accuracy,
    }
    for name, value in rows.items():
        table.add_row(name, f"{100 * value:.1f} %", style="bold" if name.startswith("Croupier") else None)
    console.print(table)
    console.print()
    say(console, "With so few people the noise weighs heavily; with thousands the gap closes (croupier demo).", "dim")
    say(console, f"Guarantee: {outcome.guarantee}.")
    say(
        console,
        f"Each client sent {outcome.bits_per_user:,} noisy bits in total. They travelled as masked counts, in reports of "
        f"{outcome.bytes_per_user:,} bytes in total, seals and headers included.",
    )
    databases = {
        "analyzer": outcome.analyzer_database,
        "shuffler": outcome.shuffler_database,
        "enroller": outcome.enroller_database,
    }
    for name, held in databases.items():
        say(console, f"\nThe {name}'s database now holds:")
        for what, number in held.items():
            say(console, f"  {number:>6,}  {what}")
    say(console, "\nThese people were synthetic, and everything was deleted. To run it for real: docs/deploy.md.", "dim")
