"""`croupier serve`: the analyzer, the shuffler, their keys and their clients' tokens."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
import tomllib
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ..service.task import LONGEST_PACE, PACE
from ..table import Encoder, Schema
from ..validation import ArgumentError, one_of, real, whole
from .files import check_output
from .fit import promise, task_of
from .model import Request, TableModel
from .progress import Stopped, messages, say
from .records import described

app = typer.Typer(no_args_is_help=True, help="Run a role: the analyzer, the shuffler.")

Folder = Annotated[Path, typer.Option("--dir", help="The role's folder: its key, its database, its run.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")]
Certificate = Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")]
Key = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]
Dev = Annotated[bool, typer.Option("--dev", help="Make a certificate for this machine. For trying things out.")]
Database = Annotated[str | None, typer.Option(help="Database URL; SQLite in the role's folder unless given.")]

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FIELDS = {
    "name": str,
    "schema": str,
    "users": int,
    "shuffler_key": str,
    "epsilon": float,
    "delta": float,
    "transport": str,
    "interactivity": str,
    "task": str,
    "rounds": int,
    "radius": float,
    "honest": float,
    "rule": str,
    "patience": float,
    "pace": float,
    "output": str,
}


@app.command()
def key(folder: Folder) -> None:
    """Print a role's public key, which the other roles need; made on first use."""
    from ..service.roles import signing_key  # noqa: PLC0415  (an extra)

    typer.echo(signing_key(folder).public_key().public_bytes_raw().hex())


@app.command()
def enrol(
    folder: Folder,
    clients: Annotated[int, typer.Option(help="How many clients to enrol.")] = 1,
    database: Database = None,
) -> None:
    """Enrol clients at a shuffler, and print a token for each. Only hashes are kept: a lost token is a lost client."""
    from ..service import store  # noqa: PLC0415

    whole("--clients", clients, at_least=1, remedy="Say how many tokens you need.")
    kept = _opened(database or _sqlite(folder, "shuffler"), store.SHUFFLER)
    for _ in range(clients):
        typer.echo(store.enrol(kept, store.new_name()))
    kept.close()


@app.command()
def shuffler(
    folder: Folder,
    analyzer: Annotated[str, typer.Option(help="The analyzer's address.")],
    analyzer_key: Annotated[str, typer.Option(help="The analyzer's public key: croupier serve key.")],
    host: Host = "127.0.0.1",
    port: Port = 8801,
    certificate: Certificate = None,
    private_key: Key = None,
    dev: Dev = False,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust for the analyzer.")] = None,
    smallest: Annotated[int, typer.Option(help="Fewest users in a batch that this shuffler agrees to.")] = 100,
    database: Database = None,
) -> None:
    """Take sealed reports of enrolled clients, and forward whole batches in random order."""
    from ..service import store  # noqa: PLC0415
    from ..service.roles import Errands, Served, signing_key  # noqa: PLC0415
    from ..service.shuffler import Shuffler  # noqa: PLC0415
    from ..service.web import shuffler_app  # noqa: PLC0415
    from ..service.wire import WireError  # noqa: PLC0415

    tls = _tls(folder, host, certificate, private_key, dev)
    kept = _opened(database or _sqlite(folder, "shuffler"), store.SHUFFLER)
    try:
        role = Shuffler(kept, signing_key(folder), _public("--analyzer-key", analyzer_key), smallest=smallest)
    except WireError as problem:
        remedy = "Use the options that it was begun with, or a new folder."
        raise ArgumentError("--dir", str(folder), f"a folder whose task can be served ({problem})", remedy) from None
    errands = Errands(role, analyzer, ca=ca)
    with _until_stopped() as stopped, Served(shuffler_app(role), host=host, port=port, tls=tls) as served, errands:
        typer.echo(f"shuffler on {served.url}")
        stopped.wait()


@app.command()
def analyzer(
    task: Annotated[Path, typer.Option(help="TOML file: what to train, for whom, under which promise.")],
    folder: Folder,
    host: Host = "127.0.0.1",
    port: Port = 8802,
    certificate: Certificate = None,
    private_key: Key = None,
    dev: Dev = False,
    processes: Annotated[int, typer.Option(help="Processes that open sealed messages.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model.")] = False,
    database: Database = None,
) -> None:
    """Train a model on people whose records never leave them. The same command goes on where it was cut off."""
    from ..service import store  # noqa: PLC0415
    from ..service.analyzer import RemotePopulation, SpoiledError  # noqa: PLC0415
    from ..service.roles import Served, signing_key  # noqa: PLC0415
    from ..service.web import analyzer_app  # noqa: PLC0415
    from ..service.wire import WireError  # noqa: PLC0415

    asked = Asked.load(task)
    check_output(asked.output, force)
    tls = _tls(folder, host, certificate, private_key, dev)
    role_key = signing_key(folder)
    made = asked.task()
    kept = _opened(database or _sqlite(folder, "analyzer"), store.ANALYZER)
    pool = (
        ProcessPoolExecutor(processes, get_context("spawn"), _end_with, (os.getpid(),)) if asked.transport == "messages" else None
    )
    try:
        population = RemotePopulation(made, kept, role_key, pool=pool)
    except WireError as problem:
        raise ArgumentError("--dir", str(folder), f"the folder of this task, or a new one ({problem})", "Change it.") from None
    with (
        nullcontext() if pool is None else pool,
        Served(analyzer_app(population), host=host, port=port, tls=tls) as served,
        _until_stopped(population.stop),
    ):
        typer.echo(f"analyzer on {served.url}")
        try:
            estimator = asked.estimator.fit_population(population, len(asked.encoder.names), checkpoint=folder / "run.journal")
        except KeyboardInterrupt:
            raise Stopped("stopped; the same command goes on where it was") from None
        except SpoiledError as end:
            raise Stopped(f"{end}.", 1) from None
        model = TableModel(asked.facts, estimator)
        model.save(asked.output)
        for line in [*promise(model), f"Model: {asked.output}."]:
            say(messages(), line)


def _end_with(parent: int) -> None:
    """A worker whose parent is gone, killed even, goes too."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends us
    threading.Thread(target=watch, daemon=True).start()


@dataclass(frozen=True)
class Asked:
    """A task file."""

    facts: Schema
    request: Request
    users: int
    transport: str
    shuffler_key: str
    patience: float | None
    name: str
    pace: float
    output: Path

    @classmethod
    def load(cls, path: Path) -> Asked:
        try:
            values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise ArgumentError("--task", str(path), f"a TOML file that can be read ({reason})", "See docs/deploy.md.") from None
        for name, value in values.items():
            wanted = _FIELDS.get(name)
            if wanted is None or not isinstance(value, wanted if wanted is not float else (int, float)) or isinstance(value, bool):
                allowed = f"a {wanted.__name__}" if wanted else f"one of {', '.join(_FIELDS)}"
                remedy = "schedule is now rule." if name == "schedule" else "Mend the file."
                raise ArgumentError(f"{path}: {name}", value, allowed, remedy)
        for name in ("schema", "users", "shuffler_key"):
            if name not in values:
                raise ArgumentError(f"{path}: {name}", None, "given", "Mend the file.")
        facts = Schema.load(path.parent / values["schema"])
        if facts.user is not None:
            raise ArgumentError(f"{path}: schema", facts.user, "without a user column", "A client has its own rows alone.")
        passed = {name: values[name] for name in ("rounds", "radius", "honest", "rule") if name in values}
        how = one_of("interactivity", values.get("interactivity", "sequential"), ("sequential", "full"), "Mend the file.")
        parameters = {"epsilon": float(values.get("epsilon", 1.0)), "interactivity": how} | passed
        return cls(
            facts,
            Request(task_of(values.get("task"), facts), parameters, values.get("delta")),
            whole("users", values["users"], at_least=2, remedy="Say how many users take part."),
            one_of("transport", values.get("transport", "masked-sum"), ("masked-sum", "messages"), "Mend the file."),
            values["shuffler_key"],
            values.get("patience"),
            values.get("name", ""),
            real(
                "pace", values.get("pace", PACE), above=0, at_most=LONGEST_PACE, remedy="A round waits a minute for who has asked."
            ),
            path.parent / values.get("output", "model.json"),
        )

    @property
    def encoder(self) -> Encoder:
        return Encoder(self.facts)

    @property
    def estimator(self) -> Any:
        """Its lots are open: a deployed shuffler deals users to batches openly."""
        return self.request.estimator(self.facts, self.users).set_params(lots="open")

    def task(self) -> Any:
        """The task that clients see. Its identity follows from what it says: the same twice is the same task."""
        from ..service.task import Task  # noqa: PLC0415
        from ..service.wire import WireError  # noqa: PLC0415

        features = len(self.encoder.names)
        made = Task(
            transport=self.transport,
            users=self.users,
            problem=self.estimator.problem_for(features),
            schedule=self.estimator.schedule_for(self.users, features),
            shuffler=_public("shuffler_key", self.shuffler_key),
            records=described(self.facts, self.request),
            patience=self.patience,
            name=self.name,
            pace=self.pace,
        )
        if made.schedule.honest < 1 and made.patience is None:
            remedy = "Say for how many seconds a round waits for the users that were drawn for it: some may not come."
            raise ArgumentError("patience", None, f"given where honest is {made.schedule.honest}", remedy)
        try:
            made.most_batch_bytes()
        except WireError as problem:
            raise ArgumentError("transport", self.transport, f"masked-sum ({problem})", "Mend the file.") from None
        return made


class _until_stopped:  # noqa: N801  (a context, used like a function)
    """Waits for Ctrl-C or a request to terminate, and says so to whoever asks."""

    def __init__(self, also: Any = None) -> None:
        self._event, self._also = threading.Event(), also
        self._before: dict[int, Any] = {}

    def __enter__(self) -> threading.Event:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self._event

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._event.set()
        if self._also is not None:
            self._also()

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class JsonLines(logging.Formatter):
    """One JSON object a line. What is said never holds anything of a client: the web servers log no requests."""

    def format(self, record: logging.LogRecord) -> str:
        at = self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
        return json.dumps({"at": at, "level": record.levelname, "from": record.name, "said": record.getMessage()})


def _tls(folder: Path, host: str, certificate: Path | None, key: Path | None, dev: bool) -> tuple[Path, Path] | None:
    from ..service.certificates import development_certificate  # noqa: PLC0415

    if dev:
        return development_certificate(folder)
    if certificate is not None and key is not None:
        return certificate, key
    if certificate is not None or key is not None or host not in _LOOPBACK:
        remedy = "Give --certificate and --private-key, or --dev to try things out on this machine."
        raise ArgumentError("--certificate", certificate, f"given, and its key, to listen on {host}", remedy)
    return None


def _public(name: str, text: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise ArgumentError(name, text, "64 hex digits", "croupier serve key --dir FOLDER prints it.") from None


def _opened(url: str, tables: Any) -> Any:
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    from ..service.store import Store  # noqa: PLC0415

    try:
        return Store(url, tables)
    except (SQLAlchemyError, ImportError, RuntimeError, ValueError) as problem:
        reason = str(problem).splitlines()[0] if isinstance(problem, RuntimeError | ImportError) else type(problem).__name__
        allowed = f"a database that can be opened ({reason})"
        shown = re.sub(r"//[^@/]*@", "//...@", url)  # a password may be in it
        raise ArgumentError("--database", shown, allowed, "For PostgreSQL: postgresql+psycopg://user@host/name.") from None


def _sqlite(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"sqlite:///{(folder / name).absolute()}.db"
