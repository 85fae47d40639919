"""`croupier serve`: the analyzer, the shuffler, their keys and their clients' tokens."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from ..files import create_private, write_whole
from ..privacy import _statements as words
from ..report.answers import answer_page
from ..report.tables import described_lines, promise_lines
from ..service.analyzer.population import RemotePopulation
from ..service.analyzer.task_file import QueryFile, TaskFile, asks_question
from ..statistics import Description, Evaluation
from ..statistics.histogram import HistogramAnswer
from ..table import TableModel, schema_from
from ..validation import ArgumentError, whole
from .options import check_output
from .progress import Stopped, messages, say
from .tables import left_out_of

app = typer.Typer(no_args_is_help=True, help="Run a role: the analyzer, the shuffler.")

Folder = Annotated[Path, typer.Option("--dir", help="The role's folder: its key, its database, its run.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")]
Certificate = Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")]
Key = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]
Dev = Annotated[bool, typer.Option("--dev", help="Make a certificate for this machine. For trying things out.")]
DatabaseUrl = Annotated[str | None, typer.Option(help="Database URL; SQLite in the role's folder unless given.")]

# Exit code of a task that has ended before its time: to start it again changes nothing.
ENDED = 3
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@app.command()
def key(folder: Folder) -> None:
    """Print a role's public key, which the other roles need; made on first use."""
    from ..service.net.server import signing_key  # noqa: PLC0415  (an extra)

    typer.echo(signing_key(folder).public_key().public_bytes_raw().hex())


@app.command()
def enrol(
    folder: Folder,
    clients: Annotated[int, typer.Option(help="How many clients to enrol.")] = 1,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="A new file for the tokens, for its owner alone; - is standard output.")
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Enrol clients at a shuffler: a token for each, a line each. Only hashes are kept: a lost token is a lost client."""
    from ..service.net import database as store  # noqa: PLC0415

    whole("--clients", clients, at_least=1, remedy="Say how many tokens you need.")
    if output is None and not sys.stdout.isatty():
        remedy = "Name a file, which nobody else can read; or - where a program takes them over."
        raise ArgumentError("--output", None, "given where tokens do not go to a terminal", remedy)
    if output not in (None, "-"):
        create_private(Path(str(output)), b"")  # before anybody is enrolled
    kept = _opened(database or _sqlite(folder, "shuffler"), store.SHUFFLER)
    with nullcontext(sys.stdout) if output in (None, "-") else Path(str(output)).open("a") as file:
        for first in range(0, clients, store.TOGETHER):
            names = [store.new_name() for _ in range(min(store.TOGETHER, clients - first))]
            file.writelines(f"{token}\n" for token in store.enrol_all(kept, names))
            file.flush()
    kept.close()


@app.command()
def excluded(folder: Folder, database: DatabaseUrl = None) -> None:
    """List the clients whose reports were left out of a round: a name and a round a line."""
    from ..service.net import database as store  # noqa: PLC0415
    from ..service.shuffler import rounds as releasing  # noqa: PLC0415

    kept = _opened(database or _existing(folder, "shuffler"), store.SHUFFLER)
    for name, number in releasing.excluded_clients(kept):
        typer.echo(f"{name} {number}")
    kept.close()


@app.command()
def revoke(
    folder: Folder,
    client: Annotated[list[str], typer.Option(help="A client's name, as `serve excluded` prints it; may be given again.")],
    database: DatabaseUrl = None,
) -> None:
    """Strike out clients' tokens, so that they take part no more."""
    from ..service.net import database as store  # noqa: PLC0415
    from ..service.shuffler import rounds as releasing  # noqa: PLC0415

    kept = _opened(database or _existing(folder, "shuffler"), store.SHUFFLER)
    revoked = releasing.revoke(kept, client)
    kept.close()
    if unknown := sorted(set(client) - set(revoked)):
        remedy = "croupier serve excluded prints names. The others were revoked."
        raise ArgumentError("--client", unknown[0], "the name of an enrolled client", remedy)
    for name in revoked:
        typer.echo(f"{name} is revoked")


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
    page: Annotated[bool, typer.Option("--page", help="Serve the page with which people take part in a browser.")] = False,
    allow_origin: Annotated[list[str] | None, typer.Option(help="Origin of pages elsewhere that may send here.")] = None,
    database: DatabaseUrl = None,
    processes: Annotated[int, typer.Option(help="Processes that share the port and the database; one of them leads.")] = 1,
) -> None:
    """Take sealed reports of enrolled clients, and forward whole batches in random order."""
    from .processes import ShufflerOptions, serve_shuffler, serve_shufflers  # noqa: PLC0415

    whole("--processes", processes, at_least=1, at_most=256, remedy="Take about as many as there are cores.")
    tls = _tls(folder, host, certificate, private_key, dev)
    url = database or _sqlite(folder, "shuffler")
    pages = (page, tuple(allow_origin or ()))
    options = ShufflerOptions(folder, url, analyzer, analyzer_key, host, port, tls, ca, smallest, *pages)
    if processes == 1:
        serve_shuffler(options)
    else:
        serve_shufflers(options, processes)


@app.command()
def page(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the page into, to be hosted anywhere.")],
) -> None:
    """Write the page with which people take part in a browser, and the digests of its files."""
    from ..service.shuffler.app import copy_page  # noqa: PLC0415

    copies = copy_page(output)
    typer.echo((output / "SHA256SUMS").read_text(), nl=False)
    say(messages(), f"{len(copies)} files in {output}. Start the shuffler with --allow-origin of where they are hosted.")


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
    linger: Annotated[float, typer.Option(help="Seconds to wait, at the end, until the shuffler knows of it.")] = 30.0,
    database: DatabaseUrl = None,
) -> None:
    """Train a model on people whose records never leave them, or ask them one question. The same command goes on where it was."""
    from ..service.analyzer.app import analyzer_app  # noqa: PLC0415
    from ..service.analyzer.population import (  # noqa: PLC0415
        RemotePopulation,
        no_room,
    )
    from ..service.net import database as store  # noqa: PLC0415
    from ..service.net.server import Served, signing_key  # noqa: PLC0415
    from ..service.wire.documents import WireError  # noqa: PLC0415
    from ..service.wire.outcomes import TaskEndedError  # noqa: PLC0415
    from ..service.wire.transports import TRANSPORTS  # noqa: PLC0415

    task_file = QueryFile.load(task) if asks_question(task) else TaskFile.load(task)
    saved = folder / ("saved-answer.json" if isinstance(task_file, QueryFile) else "saved-model.json")
    if not _is_copy(task_file.output, saved):  # otherwise this run was stopped after it had saved its model
        check_output(task_file.output, force)
    tls = _tls(folder, host, certificate, private_key, dev)
    role_key = signing_key(folder)
    served_task = task_file.task()
    if (warning := no_room(served_task)) is not None:
        say(messages(), warning, "yellow")
    kept = _opened(database or _sqlite(folder, "analyzer"), store.ANALYZER)
    pool = None
    if TRANSPORTS[served_task.transport].uses_pool:
        pool = ProcessPoolExecutor(processes, get_context("spawn"), _end_with, (os.getpid(),))
    try:
        population = RemotePopulation(served_task, kept, role_key, pool=pool)
    except WireError as problem:
        raise ArgumentError("--dir", str(folder), f"the folder of this task, or a new one ({problem})", "Change it.") from None
    with (
        nullcontext() if pool is None else pool,
        Served(analyzer_app(population), host=host, port=port, tls=tls) as served,
        _until_stopped(population.stop) as stopped,
    ):
        typer.echo(f"analyzer on {served.url}")
        try:
            if isinstance(task_file, QueryFile):
                write_answer(task_file, population, saved, served.url)
                _finish(population, folder, stopped, linger)
                stopped.wait()
                return
            features = len(task_file.encoder.names)
            estimator = task_file.estimator.fit_population(population, features, checkpoint=folder / "run.journal")
        except KeyboardInterrupt:
            raise Stopped("stopped; the same command goes on where it was") from None
        except TaskEndedError as end:
            _finish(population, folder, stopped, linger, str(end))
            raise Stopped(f"{end}.", ENDED) from None
        model = TableModel(task_file.facts, estimator)
        model.save(saved)
        model.save(task_file.output)
        for line in [*promise_lines(estimator), *described_lines(model.schema, estimator), f"Model: {task_file.output}."]:
            say(messages(), line)
        _finish(population, folder, stopped, linger)


def _finish(population: Any, folder: Path, stopped: threading.Event, linger: float, reason: str | None = None) -> None:
    """Say that the task has ended: a page that stays, and the shuffler's word that it knows, for which it is waited a while."""
    from ..service.analyzer.dashboard import Dashboard, page  # noqa: PLC0415

    def declared() -> str:
        population.ending.declare(len(population.answered()), None if reason is None else reason[:500])
        return page(Dashboard(population).state())

    (folder / "run.html").write_text(population.store.insist(declared, stopped.is_set), encoding="utf-8")
    say(messages(), f"Page of the run: {folder / 'run.html'}.")
    if not population.ending.wait(linger, stopped):
        say(messages(), "The shuffler has not heard of the end; the same command says it again.", "yellow")


def _is_copy(output: Path, saved: Path) -> bool:
    return output.is_file() and saved.is_file() and output.read_bytes() == saved.read_bytes()


def _end_with(parent: int) -> None:
    """A worker whose parent is gone, killed even, goes too."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends us
    threading.Thread(target=watch, daemon=True).start()


class _until_stopped:  # noqa: N801  (a context, used like a function)
    """Waits for Ctrl-C or a request to terminate, and says so to whoever asks."""

    def __init__(self, also: Any = None) -> None:
        self._event, self._also = threading.Event(), also
        self._before: dict[int, Any] = {}

    def __enter__(self) -> threading.Event:
        from ..service.net.server import RateLimitedLog  # noqa: PLC0415

        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines())
        handler.addFilter(RateLimitedLog())
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
        line = {"at": at, "level": record.levelname, "from": record.name, "said": record.getMessage()}
        if record.exc_info and (problem := record.exc_info[1]) is not None:  # its text may hold what was to be written
            where = traceback.extract_tb(problem.__traceback__)[-1:]
            line["cause"] = " ".join([type(problem).__name__, *[f"{Path(one.filename).name}:{one.lineno}" for one in where]])
        return json.dumps(line)


def _tls(folder: Path, host: str, certificate: Path | None, key: Path | None, dev: bool) -> tuple[Path, Path] | None:
    from ..service.net.server import development_certificate  # noqa: PLC0415

    if dev:
        return development_certificate(folder)
    if certificate is not None and key is not None:
        return certificate, key
    if certificate is not None or key is not None or host not in _LOOPBACK:
        remedy = "Give --certificate and --private-key, or --dev to try things out on this machine."
        raise ArgumentError("--certificate", certificate, f"given, and its key, to listen on {host}", remedy)
    return None


def _opened(url: str, tables: Any) -> Any:
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    from ..service.net.database import Database  # noqa: PLC0415

    try:
        return Database(url, tables)
    except (SQLAlchemyError, ImportError, RuntimeError, ValueError) as problem:
        reason = str(problem).splitlines()[0] if isinstance(problem, RuntimeError | ImportError) else type(problem).__name__
        allowed = f"a database that can be opened ({reason})"
        shown = re.sub(r"//[^@/]*@", "//...@", url)  # a password may be in it
        raise ArgumentError("--database", shown, allowed, "For PostgreSQL: postgresql+psycopg://user@host/name.") from None


def _existing(folder: Path, name: str) -> str:
    """The database of a role that has one already."""
    if not (folder / f"{name}.db").is_file():
        remedy = f"Give the --dir of croupier serve {name}, or its --database."
        raise ArgumentError("--dir", str(folder), f"a {name}'s folder, with its {name}.db", remedy)
    return _sqlite(folder, name)


def _sqlite(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"sqlite:///{(folder / name).absolute()}.db"


# `croupier serve enroller`: the third party that says who is a person, its keys and its invitations.


@app.command("enroller-keys")
def enroller_keys(
    folder: Folder,
    address: Annotated[str, typer.Option(help="Where clients will reach the enroller, such as https://enroller.example:8803.")],
    slots: Annotated[int, typer.Option(help="Tokens a person: 1, or in the full model the rounds of the longest phase.")] = 1,
) -> None:
    """Print an enroller's public keys, for the task file's `enroller`; made on first use, for one task."""
    from ..service.enroller.enroller import token_keys  # noqa: PLC0415  (an extra)
    from ..service.wire.enrolment import EnrollerKeys, check_address  # noqa: PLC0415

    whole("--slots", slots, at_least=1, at_most=10_000, remedy="Say in how many rounds a user is asked.")
    check_address("--address", address)
    keys = token_keys(folder, slots)
    moduli = tuple(key.public_key().public_numbers().n for key in keys)
    typer.echo(json.dumps(EnrollerKeys(address, moduli).to_dict(), indent=1))


@app.command()
def invitations(people: Annotated[int, typer.Option(help="How many people to invite.")] = 1) -> None:
    """Print new invitations, one a person, for `croupier serve enroller --people FILE`."""
    from ..service.enroller.enroller import new_invitation  # noqa: PLC0415

    for _ in range(whole("--people", people, at_least=1, remedy="Say how many invitations you need.")):
        typer.echo(new_invitation())


@app.command()
def enroller(
    folder: Folder,
    people: Annotated[
        Path | None, typer.Option(help="Text file of invitations, one per person, a line each; - is standard input.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8803,
    certificate: Certificate = None,
    private_key: Key = None,
    dev: Dev = False,
    database: DatabaseUrl = None,
    allow_origin: Annotated[list[str] | None, typer.Option(help="Origin of pages that may ask for tokens here.")] = None,
) -> None:
    """Sign tokens for invited people, unseen: so that a shuffler cannot make up users. Run by a third party."""
    from ..service.enroller.enroller import (  # noqa: PLC0415
        EnrollerRole,
        enroller_app,
        read_invitations,
        token_keys,
    )
    from ..service.net import database as store  # noqa: PLC0415
    from ..service.net.server import Served  # noqa: PLC0415
    from ..service.shuffler.app import allow_origins  # noqa: PLC0415

    tls = _tls(folder, host, certificate, private_key, dev)
    signers = token_keys(folder)
    invited = [] if people is None else read_invitations(people)
    role = EnrollerRole(_opened(database or _sqlite(folder, "enroller"), store.ENROLLER), signers)
    web = enroller_app(role)
    allow_origins(web, allow_origin or [])
    new = role.admit(invited)
    with _until_stopped() as stopped, Served(web, host=host, port=port, tls=tls) as served:
        typer.echo(f"enroller on {served.url}")
        if people is not None:
            file = "standard input" if people == Path("-") else people
            typer.echo(f"{len(invited)} people invited by {file}, {new} of them new")
        stopped.wait()


# The answer to a task that asks one question: a JSON file, a page beside it and on the dashboard, for descriptions a schema.


def write_answer(asked: QueryFile, population: RemotePopulation, saved: Path, url: str) -> None:
    """Ask, write the answer down, and put it on the page."""
    answer = asked.answer(population)
    population.page = answer_page(answer, title=asked.name or f"The answer: {asked.query.kind}")
    page, text = asked.output.with_suffix(".html"), json.dumps(figures(answer), indent=2).encode()
    write_whole(page, population.page.encode())
    write_whole(saved, text)
    write_whole(asked.output, text)
    if isinstance(answer, Description):
        write_schema(asked, answer)
    schedule = population.task.schedule
    say(messages(), f"Certified: {words.certified_line(schedule.guarantee, schedule.phases[0].plan.epsilon)}.")
    say(messages(), f"Answer: {asked.output}; with pictures: {page}, and {url}/answer until this is stopped (Ctrl-C).")


def write_schema(asked: QueryFile, description: Description) -> None:
    """The schema that a description gives, beside its answer, which is written already: there may be none in it."""
    if asked.guess is None or asked.guess.target is None:
        return
    try:
        facts, notes = schema_from(description, asked.guess)
    except ArgumentError as problem:
        say(messages(), f"warning: no schema was written, {problem}", "yellow")
        return
    for name in left_out_of(facts, notes):
        say(messages(), f"warning: column left out of the schema, {name!r}: {notes[name]}", "yellow")
    schema = asked.output.with_suffix(".toml")
    write_whole(schema, facts.to_toml(notes).encode())
    say(messages(), f"Schema: {schema}.")


def figures(answer: Any) -> dict[str, Any]:
    """An answer in plain JSON types."""
    if isinstance(answer, Description | Evaluation):
        return answer.to_dict()
    if isinstance(getattr(answer, "value", None), HistogramAnswer):
        histogram = answer.value
        counts = {"edges": histogram.edges.tolist(), "counts": histogram.counts.tolist(), "count_std": histogram.count_std}
        return {"users": answer.users, **counts, "guarantee": answer.guarantee.to_dict() if answer.guarantee else None}
    plain: dict[str, Any] = json.loads(answer.to_json())
    return plain
