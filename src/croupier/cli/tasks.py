"""`croupier serve task`: the tasks of a role that serves many, its operators' tokens and its keys; an analyzer of many; answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..files import write_whole
from ..privacy import _statements as words
from ..report._answers import answer_page
from ..service.analyzer.task_file import QueryFile, public_key
from ..service.wire.documents import Document, WireError
from ..service.wire.task import RefusedError, Task
from ..service.wire.transports import TRANSPORTS
from ..statistics import Answer, Description, Evaluation
from ..statistics.histogram import HistogramAnswer
from ..table import TableModel, schema_from
from ..validation import ArgumentError, Found, whole
from .processes import DatabaseUrl, check_authority, end_with_parent, opened, record_act, sqlite_url, until_stopped, workers_context
from .tables import left_out_of
from .terminal import messages, say

if TYPE_CHECKING:
    from ..service.analyzer.app import HostedTask
    from ..service.analyzer.population import RemotePopulation
    from ..service.net.registry import Registry

app = typer.Typer(no_args_is_help=True, help="Add, list, pause, resume and end the tasks of a role that serves several.")

Folder = Annotated[Path, typer.Option("--dir", help="The role's folder.")]
Name = Annotated[str, typer.Option("--name", help="The task's name; it is served at /tasks/NAME.")]


@contextmanager
def registry_of(folder: Path, database: str | None, role: str | None = None) -> Iterator[Registry]:
    """A role's registry; errors in words of the command line."""
    from ..service.analyzer.population import ANALYZER  # noqa: PLC0415  (an extra)
    from ..service.net.database import role_tables  # noqa: PLC0415
    from ..service.net.registry import Registry  # noqa: PLC0415
    from ..service.shuffler.rounds import SHUFFLER  # noqa: PLC0415

    found = [name for name in ("shuffler", "analyzer") if (folder / f"{name}.db").is_file()]
    if role is None and database is None and len(found) != 1:
        raise ArgumentError("--dir", str(folder), "the folder of a shuffler or of an analyzer", "Start the role first.")
    kind = role or (found or [""])[0]
    store = opened(database or sqlite_url(folder, kind), {"shuffler": SHUFFLER, "analyzer": ANALYZER}.get(kind) or role_tables())
    try:
        yield Registry(store, folder)
    except (RefusedError, WireError) as problem:
        if getattr(problem, "status", None) == 404:
            remedy = "croupier serve task list prints the names."
            raise ArgumentError("--name", Found(f"is not known: {problem}"), "a task of this role", remedy) from None
        raise ArgumentError("task", Found(f"is refused: {problem}"), "one that this role can serve", "Change it.") from None
    finally:
        store.close()


@app.command()
def add(
    folder: Folder,
    task: Annotated[
        Path | None, typer.Option(help="At an analyzer: the task's TOML file; it is copied with the files it names.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The task's name, under which it is served; default: from the file or the address.")
    ] = None,
    shuffler_key: Annotated[str | None, typer.Option(help="The shuffler's public key, instead of the file's.")] = None,
    analyzer: Annotated[str | None, typer.Option(help="At a shuffler: the task's address at its analyzer.")] = None,
    analyzer_key: Annotated[str | None, typer.Option(help="At a shuffler: the analyzer's public key.")] = None,
    ca: Annotated[Path | None, typer.Option(help="At a shuffler: certificates to trust for the analyzer.")] = None,
    database: DatabaseUrl = None,
) -> None:
    """Add a task; a running role starts it within a second."""
    from ..service.analyzer.app import add_files, files_of  # noqa: PLC0415
    from ..service.analyzer.dashboard import promise_words  # noqa: PLC0415
    from ..service.net.registry import Keyring  # noqa: PLC0415
    from ..service.shuffler.host import checked_address, checked_key  # noqa: PLC0415

    if (task is None) == (analyzer is None):
        raise ArgumentError("--task", task, "given at an analyzer, and --analyzer at a shuffler", "Give one of the two.")
    check_authority("--ca", ca)
    if shuffler_key is not None:
        public_key("--shuffler-key", shuffler_key)
    if task is not None:
        called = name or task.stem.lower()
        with registry_of(folder, database, "analyzer") as registry:
            record_act(folder, "add task", name=called, file=str(task))
            served = add_files(registry, Keyring(folder), called, files_of(task, shuffler_key))
        promise = promise_words(served.schedule, served.query.release)
        typer.echo(f"task {called} at /tasks/{called} of this analyzer: {served.users:,} users, {promise['proved']}")
        return
    if analyzer_key is None:
        raise ArgumentError(
            "--analyzer-key", Found("is required"), "64 hex digits", "croupier serve key prints it at the analyzer."
        )
    public_key("--analyzer-key", analyzer_key)
    with registry_of(folder, database, "shuffler") as registry:
        address = checked_address(str(analyzer))
        called = name or address.rsplit("/", 1)[-1]
        record_act(folder, "add task", name=called, analyzer=address, analyzer_key=analyzer_key)
        registry.add(called, checked_key(analyzer_key), address, ca="" if ca is None else str(ca.absolute()))
    typer.echo(f"task {called} at /tasks/{called} of this shuffler")


@app.command("list")
def list_tasks(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    database: DatabaseUrl = None,
) -> None:
    """List all tasks of a role and their states."""
    with registry_of(folder, database) as registry:
        rows = registry.rows()
    if as_json:
        typer.echo(json.dumps([row.__dict__ for row in rows], indent=1))
        return
    table = Table("name", "state", "task", "analyzer", "added", "ended", "", box=None, pad_edge=False)
    for row in rows:
        what = "deleted" if row.deleted is not None else row.why
        times = [_moment(row.added), _moment(row.ended)]
        table.add_row(row.name, row.state, (row.task or "-")[:8], row.owner[:8], *times, Text(what))
    Console(soft_wrap=True).print(table)


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


@app.command()
def pause(folder: Folder, name: Name, database: DatabaseUrl = None) -> None:
    """Pause a task: open no new rounds. An open round ends normally."""
    _change(folder, name, database, "pause")


@app.command()
def resume(folder: Folder, name: Name, database: DatabaseUrl = None) -> None:
    """Resume a paused task."""
    _change(folder, name, database, "resume")


@app.command()
def end(folder: Folder, name: Name, database: DatabaseUrl = None) -> None:
    """End a task for good. Reports are deleted at once, everything else after --keep-days."""
    _change(folder, name, database, "end")


def _change(folder: Path, name: str, database: str | None, change: str) -> None:
    from ..service.net.registry import CHANGES  # noqa: PLC0415

    with registry_of(folder, database) as registry:
        record_act(folder, f"{change} task", name=name)
        registry.change(name, CHANGES[change], why="ended by its operator" if change == "end" else "")
    typer.echo(f"task {name} is {CHANGES[change]}")


@app.command(short_help="Print a token for remote control.")
def token(
    folder: Folder,
    analyzer: Annotated[
        str | None, typer.Option(help="At a shuffler: the address under which an analyzer serves its tasks.")
    ] = None,
    analyzer_key: Annotated[
        str | None, typer.Option(help="At a shuffler: key of the analyzer whose tasks the token may change.")
    ] = None,
    most: Annotated[int | None, typer.Option(help="Most tasks at a time; default: 16 per analyzer.")] = None,
    database: DatabaseUrl = None,
) -> None:
    """Print a token for changing tasks over the network: all of them, or one analyzer's. Only its hash is stored."""
    from ..service.shuffler.host import checked_address, checked_key  # noqa: PLC0415

    if (analyzer is None) != (analyzer_key is None):
        raise ArgumentError(
            "--analyzer",
            analyzer,
            "given together with --analyzer-key",
            "Give both for one analyzer's tasks, or neither for all tasks.",
        )
    if most is not None:
        whole("--most", most, at_least=1, remedy="State how many tasks it may have at a time.")
    with registry_of(folder, database) as registry:
        record_act(folder, "make operator's token", analyzer=analyzer, analyzer_key=analyzer_key, most=most)
        owner = None if analyzer_key is None else checked_key(analyzer_key)
        typer.echo(registry.new_operator(owner, None if analyzer is None else checked_address(analyzer), most))


@app.command("revoke-token", short_help="Revoke tokens for remote control.")
def revoke_token(
    folder: Folder,
    analyzer_key: Annotated[
        str | None,
        typer.Option(help="At a shuffler: key of the analyzer whose tokens to revoke; default: the tokens for all tasks."),
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Revoke the tokens of one analyzer, or the tokens for all tasks; tasks added with them stay."""
    from ..service.shuffler.host import checked_key  # noqa: PLC0415

    with registry_of(folder, database) as registry:
        owner = None if analyzer_key is None else checked_key(analyzer_key)
        record_act(folder, "revoke operators' tokens", analyzer_key=owner)
        revoked = registry.revoke(owner)
        typer.echo(f"{words.counted(revoked, 'token')} {'was' if revoked == 1 else 'were'} revoked")


@app.command(short_help="At a shuffler: accept an analyzer's new key.")
def succeed(
    folder: Folder,
    announcement: Annotated[Path, typer.Option(help="File written by croupier serve rotate-key at the analyzer.")],
    database: DatabaseUrl = None,
) -> None:
    """At a shuffler: accept an analyzer's new key, announced and signed by its old one. Clients learn of it here."""
    with registry_of(folder, database) as registry:
        record_act(folder, "accept analyzer's new key", file=str(announcement))
        old, new = registry.succeed(Document.from_bytes(announcement.read_bytes()))
    typer.echo(f"key {old} is succeeded by {new}")


def rotate_key(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="A new file for the announcement, signed by the old key.")],
) -> None:
    """Create a new signing key for new tasks, announced by the old one; tasks that have begun keep theirs until they end."""
    from ..service.net.registry import Keyring  # noqa: PLC0415
    from ..service.wire.documents import hex_of  # noqa: PLC0415

    record_act(folder, "rotate the signing key")
    keys = Keyring(folder)
    output.write_bytes(keys.rotate().to_bytes())
    typer.echo(hex_of(keys.current))
    say(messages(), f"Announcement: {output}. Restart the role, and give the key and the announcement to the other party.")


# The analyzer of many tasks.


def work(one: HostedTask) -> None:
    """Train a task's model, or ask its question, and save the result in the task's folder."""
    from ..service.analyzer.dashboard import Dashboard, page  # noqa: PLC0415

    if isinstance(one.file, QueryFile):
        write_answer(one.file, one.population, one.folder / "saved-answer.json", "")
    else:
        features = len(one.file.encoder.names)
        estimator = one.file.estimator.fit_population(one.population, features, checkpoint=one.folder / "run.journal")
        TableModel(one.file.facts, estimator).save(one.file.output)
        say(messages(), f"Model: {one.file.output}.")
        warn_of_noise(one.population, one.file.output)
    (one.folder / "run.html").write_text(page(Dashboard(one.population).state()), encoding="utf-8")


def warn_of_noise(population: RemotePopulation, model: Path) -> None:
    """Warn of a model that may be made of noise alone."""
    from ..service.analyzer.dashboard import NOISE_ALONE, is_noise_alone  # noqa: PLC0415

    if is_noise_alone(population.task, population.answered()):
        say(messages(), f"warning: {model}: {NOISE_ALONE}.", "yellow")


def serve_analyzer(
    folder: Path, url: str, host: str, port: int, tls: tuple[Path, Path] | None, processes: int, keep_days: float
) -> None:
    """An analyzer of many tasks, until it is stopped."""
    from ..service.analyzer.app import AnalyzerHost, add_task_list  # noqa: PLC0415
    from ..service.net.registry import Keyring, front_app  # noqa: PLC0415
    from ..service.net.server import Served  # noqa: PLC0415
    from ..service.wire.documents import hex_of  # noqa: PLC0415

    @cache
    def pool() -> Executor:
        return ProcessPoolExecutor(processes, workers_context("croupier.service.wire.transports"), end_with_parent)

    def pool_for(task: Task) -> Executor | None:
        return pool() if TRANSPORTS[task.transport].uses_pool else None

    with (
        until_stopped() as stopped,
        AnalyzerHost(folder, url, work, pool=pool_for, keep_days=keep_days) as hosted,
    ):
        web = front_app("croupier analyzer", hosted, hosted.store, partial(record_act, folder))
        add_task_list(web, hosted)
        with Served(web, host=host, port=port, tls=tls) as served:
            typer.echo(f"analyzer on {served.url}")
            typer.echo(f"key {hex_of(Keyring(folder).current)}")
            stopped.wait()
    if pool.cache_info().currsize:
        pool().shutdown(cancel_futures=True)


# The answer to a task that asks one question: a JSON file, a page beside it and on the dashboard, and for descriptions a schema.


def write_answer(asked: QueryFile, population: RemotePopulation, saved: Path, url: str) -> None:
    """Ask, write the answer to its file and put it on the page; a question over days is written again every day."""
    page = asked.output.with_suffix(".html")
    for answer in asked.answers(population):
        population.page = answer_page(answer, title=asked.name or f"The answer: {asked.query.kind}")
        text = json.dumps(figures(answer), indent=2).encode()
        write_whole(page, population.page.encode())
        write_whole(saved, text)
        write_whole(asked.output, text)
    if isinstance(answer, Description):
        write_schema(asked, answer)
    schedule = population.task.schedule
    plan = schedule.phases[0].plan
    say(messages(), f"Certified: {words.certified_line(schedule.guarantee, plan.epsilon, plan.delta)}.")
    shown = f", and {url}/answer until this is stopped (Ctrl-C)" if url else ""
    say(messages(), f"Answer: {asked.output}; with charts: {page}{shown}.")


def write_schema(asked: QueryFile, description: Description) -> None:
    """Write the schema that a description gives, if any, beside its answer, which is already written."""
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
    if isinstance(answer, Answer):
        return {**answer.value.to_dict(), "users": answer.users, "guarantee": answer.guarantee and answer.guarantee.to_dict()}
    plain: dict[str, Any] = json.loads(answer.to_json())
    return plain
