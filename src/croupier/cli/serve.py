"""`croupier serve`: the analyzer, the shuffler, their keys and their clients' tokens."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..files import create_private
from ..privacy import _statements as words
from ..report._tables import described_lines, promise_lines
from ..service.analyzer.task_file import QueryFile, TaskFile, asks_question, public_key
from ..service.client.budget import period_of
from ..service.net.http import require_private_way
from ..service.wire.task import MAX_EPSILON_IF_WATCHED
from ..table import TableModel
from ..validation import ArgumentError, how_to_install, real, whole
from . import tasks
from .processes import (
    DatabaseUrl,
    ShufflerOptions,
    check_authority,
    check_port,
    end_with_parent,
    existing_database,
    opened,
    record_act,
    running_alone,
    serve_shuffler,
    serve_shufflers,
    sqlite_url,
    tls_files,
    until_stopped,
    workers_context,
)
from .terminal import Stopped, check_output, least_seconds, length_line, messages, say, warnings_said

if TYPE_CHECKING:
    from ..service.enroller import SignIn


app = typer.Typer(
    no_args_is_help=True, help="Run a role (analyzer, shuffler, enroller), and manage its tasks, keys, clients and pages."
)
app.add_typer(tasks.app, name="task", short_help="Add, list, pause, resume and end tasks.")
app.command("rotate-key", short_help="Create a new signing key, announced by the old one.")(tasks.rotate_key)

Folder = Annotated[Path, typer.Option("--dir", help="The role's folder, with its key, database and run.")]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")]
Certificate = Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")]
Key = Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")]
Dev = Annotated[bool, typer.Option("--dev", help="Create a self-signed certificate for this machine, to try things out.")]
BehindProxy = Annotated[
    bool, typer.Option("--behind-proxy", help="Speak plain http behind a proxy on a private network that terminates TLS.")
]
AddressHeader = Annotated[
    str | None,
    typer.Option(help="Header in which the proxy states the client's address, for rate limits; the proxy must overwrite it."),
]

KeepDays = Annotated[float, typer.Option(help="With several tasks: days until the remains of an ended task are deleted.")]

# Exit code of a task that ended early: starting it again changes nothing.
ENDED = 3


@app.command(short_help="Print a role's public key.")
def key(folder: Folder) -> None:
    """Print a role's public key, which the other roles need; the key is created on first use."""
    from ..service.net.server import signing_key  # noqa: PLC0415  (an extra)

    if not (folder / "signing.key").exists():
        record_act(folder, "make signing key")
    typer.echo(signing_key(folder).public_key().public_bytes_raw().hex())


@app.command(short_help="Enrol clients at a shuffler: one token each.")
def enrol(
    folder: Folder,
    clients: Annotated[int, typer.Option(help="How many clients to enrol.")] = 1,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="A new file for the tokens, readable by its owner only; - is standard output."),
    ] = None,
    database: DatabaseUrl = None,
) -> None:
    """Enrol clients at a shuffler and print one token per line. Only hashes are stored, so a lost token cannot be recovered."""
    from ..service.shuffler import rounds  # noqa: PLC0415

    whole("--clients", clients, at_least=1, remedy="State how many tokens you need.")
    if output is None and not sys.stdout.isatty():
        remedy = "Name a file, which only you will be able to read, or use - to pipe the tokens to a program."
        raise ArgumentError("--output", None, "given unless tokens go to a terminal", remedy)
    if output not in (None, "-"):
        create_private(Path(str(output)), b"")  # before anybody is enrolled
    kept = opened(database or sqlite_url(folder, "shuffler"), rounds.SHUFFLER)
    record_act(folder, "enrol", clients=clients)
    with nullcontext(sys.stdout) if output in (None, "-") else Path(str(output)).open("a") as file:
        for first in range(0, clients, rounds.TOGETHER):
            names = [rounds.new_name() for _ in range(min(rounds.TOGETHER, clients - first))]
            file.writelines(f"{token}\n" for token in rounds.enrol_all(kept, names))
            file.flush()
    kept.close()
    if output not in (None, "-"):
        say(messages(), f"{words.counted(clients, 'token')}, one per line: {output}. Give each client its own.")


@app.command(short_help="Enrol people by links and QR codes.")
def invite(
    folder: Folder,
    link: Annotated[
        str, typer.Option(help="Address of the page that people open: the shuffler's, or the place where it is hosted.")
    ],
    analyzer_key: Annotated[str, typer.Option(help="The analyzer's public key, which the link pins.")],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A new file with one handle and link per line; - is standard output.")
    ],
    people: Annotated[int, typer.Option(help="How many people to invite, each with their own link.")] = 1,
    expires: Annotated[str, typer.Option(help="Time until an unused link expires: 12h, 14d, 4w.")] = "14d",
    shuffler: Annotated[str | None, typer.Option(help="The shuffler's address, if the page is hosted elsewhere.")] = None,
    enroller: Annotated[str | None, typer.Option(help="The enroller's address, which the link pins.")] = None,
    sign_in: Annotated[bool, typer.Option("--sign-in", help="People sign in at the enroller (its --oidc-issuer).")] = False,
    qr: Annotated[Path | None, typer.Option(help="A new folder for QR codes, one HANDLE.svg per person.")] = None,
    database: DatabaseUrl = None,
) -> None:
    """Enrol people by links; each works only on the first device that uses it, and until it expires."""
    from ..service.shuffler import rounds  # noqa: PLC0415
    from ..service.shuffler.app import invitation_link  # noqa: PLC0415
    from ..service.shuffler.app import invite as invite_all  # noqa: PLC0415

    seconds = period_of(expires, "--expires")
    whole("--people", people, at_least=1, at_most=rounds.TOGETHER, remedy="State how many links you need.")
    pins = check_links(link, shuffler, analyzer_key, enroller, sign_in)
    if qr is not None:
        check_codes(qr)
    if output != "-":
        create_private(Path(output), b"")  # before anybody is enrolled
    if qr is not None:
        qr.mkdir(parents=True, mode=0o700)
    kept, until = opened(database or sqlite_url(folder, "shuffler"), rounds.SHUFFLER), time.time() + seconds
    record_act(folder, "invite", people=people, until=round(until), link=link)
    names = [rounds.new_name() for _ in range(people)]
    codes = invite_all(kept, names, until)
    kept.close()
    links = {name: invitation_link(link, code=code, until=until, **pins) for name, code in zip(names, codes, strict=True)}
    with nullcontext(sys.stdout) if output == "-" else Path(output).open("a") as file:
        file.writelines(f"{name}\t{one}\n" for name, one in links.items())
    if qr is not None:
        write_codes(qr, links)
    say(
        messages(),
        f"Invitations: {people}, valid until {time.strftime('%d %b %Y %H:%M', time.localtime(until))}, one per person.",
    )


@app.command(short_help="List clients whose reports were left out.")
def excluded(
    folder: Folder,
    task: Annotated[str | None, typer.Option(help="The task's name, if the shuffler serves several.")] = None,
    database: DatabaseUrl = None,
) -> None:
    """List the clients whose reports were left out of a round: one name and round per line."""
    from ..service.shuffler import rounds  # noqa: PLC0415

    if task is not None:
        with tasks.registry_of(folder, database, "shuffler") as registry:
            registry.row(task)
            kept = registry.database(task, "shuffler", rounds.SHUFFLER)
            for name, number in rounds.excluded_clients(kept):
                typer.echo(f"{name} {number}")
            kept.close()
        return
    kept = opened(database or existing_database(folder, "shuffler"), rounds.SHUFFLER)
    for name, number in rounds.excluded_clients(kept):
        typer.echo(f"{name} {number}")
    kept.close()


@app.command(short_help="Revoke clients' tokens.")
def revoke(
    folder: Folder,
    client: Annotated[list[str], typer.Option(help="A client's name, as printed by `serve excluded`; repeatable.")],
    database: DatabaseUrl = None,
) -> None:
    """Revoke clients' tokens, so that they can no longer take part."""
    from ..service.shuffler import rounds  # noqa: PLC0415

    kept = opened(database or existing_database(folder, "shuffler"), rounds.SHUFFLER)
    record_act(folder, "revoke", clients=sorted(client))
    revoked = rounds.revoke(kept, client)
    kept.close()
    if unknown := sorted(set(client) - set(revoked)):
        remedy = "croupier serve excluded prints the names. The other clients were revoked."
        raise ArgumentError("--client", unknown[0], "the name of an enrolled client", remedy)
    for name in revoked:
        typer.echo(f"{name} is revoked")


@app.command(short_help="Run a shuffler.")
def shuffler(
    context: typer.Context,
    folder: Folder,
    analyzer: Annotated[
        str | None, typer.Option(help="The analyzer's address, to serve its only task. Default: the tasks of croupier serve task.")
    ] = None,
    analyzer_key: Annotated[str | None, typer.Option(help="The analyzer's public key, as printed by croupier serve key.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8801,
    certificate: Certificate = None,
    private_key: Key = None,
    dev: Dev = False,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust for the analyzer.")] = None,
    enroller_ca: Annotated[Path | None, typer.Option(help="Certificates to trust for the enroller, which counts blanks.")] = None,
    smallest: Annotated[int, typer.Option(help="Fewest users per batch that this shuffler accepts.")] = 100,
    page: Annotated[bool, typer.Option("--page", help="Serve the page on which people take part in a browser.")] = False,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Origin of pages hosted elsewhere that may send reports here; repeatable.")
    ] = None,
    database: DatabaseUrl = None,
    processes: Annotated[int, typer.Option(help="Processes that share the port and the database; one of them leads.")] = 1,
    behind_proxy: BehindProxy = False,
    honest: Annotated[
        float | None, typer.Option(help="Share of all enrolled people who are honest, if tasks ask fewer people than are enrolled.")
    ] = None,
    keep_days: KeepDays = 30.0,
    address_header: AddressHeader = None,
    private_enrollers: Annotated[
        bool, typer.Option("--private-enrollers", help="Contact enrollers in private networks even for tasks added by token.")
    ] = False,
) -> None:
    """Collect sealed reports from enrolled clients, and forward whole batches in random order."""
    whole("--processes", processes, at_least=1, at_most=256, remedy="Choose about as many as there are cores.")
    tls = tls_files(folder, host, certificate, private_key, dev, behind_proxy)
    if processes == 1:  # several share a port, and take it themselves
        check_port(host, port)
    check_authority("--ca", ca)
    check_authority("--enroller-ca", enroller_ca)
    url = database or sqlite_url(folder, "shuffler")
    if (analyzer is None) != (analyzer_key is None):
        raise ArgumentError(
            "--analyzer-key",
            analyzer_key,
            "given together with --analyzer",
            "Give both to serve one task, or neither to serve several.",
        )
    if honest is not None:
        real("--honest", honest, above=0, at_most=1, remedy="State which share of all enrolled people follows the protocol.")
    real("--keep-days", keep_days, at_least=0, remedy="State for how many days an ended task is kept.")
    asked = (analyzer or "", analyzer_key or "")
    pages = (page, tuple(allow_origin or ()))
    limits = (not behind_proxy or address_header is not None, address_header)
    more: dict[str, Any] = {"honest": honest, "keep_days": keep_days, "private_enrollers": private_enrollers}
    options = ShufflerOptions(folder, url, *asked, host, port, tls, ca, smallest, *pages, enroller_ca, *limits, **more)
    if url.startswith("sqlite"):  # with PostgreSQL several may run, on several machines too
        context.with_resource(running_alone(folder, "shuffler"))
    record_act(folder, "start shuffler", analyzer=analyzer, analyzer_key=analyzer_key, smallest=smallest, processes=processes)
    if processes == 1:
        serve_shuffler(options)
    else:
        serve_shufflers(options, processes)


@app.command(short_help="Write the page on which people take part.")
def page(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the page, which can be hosted anywhere.")],
) -> None:
    """Write the page on which people take part in a browser, and the digests of its files."""
    from ..service.shuffler.app import copy_page  # noqa: PLC0415

    copies = copy_page(output)
    typer.echo((output / "SHA256SUMS").read_text(), nl=False)
    say(
        messages(),
        f"Wrote {len(copies)} files to {output}. Start the shuffler with --allow-origin and the origin where they are hosted.",
    )


@app.command(short_help="Run an analyzer.")
def analyzer(  # noqa: PLR0915  (one run, from its file to its end)
    context: typer.Context,
    folder: Folder,
    task: Annotated[
        Path | None, typer.Option(help="TOML file of the one task to serve. Default: the tasks of croupier serve task.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8802,
    certificate: Certificate = None,
    private_key: Key = None,
    dev: Dev = False,
    processes: Annotated[int, typer.Option(help="Processes that open sealed messages.")] = 2,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing model.")] = False,
    linger: Annotated[float, typer.Option(help="Seconds to wait at the end for the shuffler to learn of it.")] = 30.0,
    database: DatabaseUrl = None,
    behind_proxy: BehindProxy = False,
    keep_days: KeepDays = 30.0,
) -> None:
    """Train a model on people whose records stay with them, or ask them one question. The same command resumes it."""
    from ..service.analyzer.app import analyzer_app  # noqa: PLC0415
    from ..service.analyzer.population import ANALYZER, RemotePopulation  # noqa: PLC0415
    from ..service.net.server import Served, signing_key  # noqa: PLC0415
    from ..service.wire.documents import WireError  # noqa: PLC0415
    from ..service.wire.task import TaskEndedError  # noqa: PLC0415
    from ..service.wire.transports import TRANSPORTS  # noqa: PLC0415

    if task is None:
        real("--keep-days", keep_days, at_least=0, remedy="State for how many days an ended task is kept.")
        tls = tls_files(folder, host, certificate, private_key, dev, behind_proxy)
        check_port(host, port)
        context.with_resource(running_alone(folder, "analyzer"))
        tasks.serve_analyzer(folder, database or sqlite_url(folder, "analyzer"), host, port, tls, processes, keep_days)
        return
    task_file = QueryFile.load(task) if asks_question(task) else TaskFile.load(task)
    saved = folder / ("saved-answer.json" if isinstance(task_file, QueryFile) else "saved-model.json")
    if not _is_copy(task_file.output, saved):  # otherwise this run was stopped after it had saved its model
        check_output(task_file.output, force)
    tls = tls_files(folder, host, certificate, private_key, dev, behind_proxy)
    check_port(host, port)
    context.with_resource(running_alone(folder, "analyzer"))
    role_key = signing_key(folder)
    with warnings_said(messages()):
        served_task = task_file.task()
    _introduce(served_task)
    kept = opened(database or sqlite_url(folder, "analyzer"), ANALYZER)
    pool = None
    if TRANSPORTS[served_task.transport].uses_pool:
        pool = ProcessPoolExecutor(processes, workers_context("croupier.service.wire.transports"), end_with_parent)
    try:
        population = RemotePopulation(served_task, kept, role_key, pool=pool)
    except WireError as problem:
        raise ArgumentError("--dir", str(folder), f"the folder of this task, or a new one ({problem})", "Change it.") from None
    with (
        nullcontext() if pool is None else pool,
        Served(analyzer_app(population), host=host, port=port, tls=tls) as served,
        until_stopped(population.stop) as stopped,
    ):
        record_act(folder, "start task", task=served_task.id, users=served_task.users)
        typer.echo(f"analyzer on {served.url}")
        say(messages(), f"The task: {length_line(served_task)}")
        try:
            if isinstance(task_file, QueryFile):
                tasks.write_answer(task_file, population, saved, served.url)
                _finish(population, folder, stopped, linger)
                stopped.wait()
                return
            features = len(task_file.encoder.names)
            estimator = task_file.estimator.fit_population(population, features, checkpoint=folder / "run.journal")
        except KeyboardInterrupt:
            raise Stopped("stopped; the same command resumes") from None
        except TaskEndedError as end:
            _finish(population, folder, stopped, linger, str(end))
            raise Stopped(f"{end}.", ENDED) from None
        model = TableModel(task_file.facts, estimator)
        model.save(saved)
        model.save(task_file.output)
        for line in [*promise_lines(estimator), *described_lines(model.schema, estimator), f"Model: {task_file.output}."]:
            say(messages(), line)
        tasks.warn_of_noise(population, task_file.output)
        _finish(population, folder, stopped, linger)


@app.command(short_help="Show what a task promises, costs and takes.")
def plan(
    task: Annotated[Path, typer.Option(help="TOML file of a task, as for `croupier serve analyzer`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what a task file would ask, promise and cost, and how long it would take, without serving or writing anything."""
    from ..service.analyzer.dashboard import all_plan_words, promise_words  # noqa: PLC0415
    from ..service.analyzer.population import no_room  # noqa: PLC0415
    from ..service.shuffler.role import hidden_among  # noqa: PLC0415

    asked = (QueryFile.load(task) if asks_question(task) else TaskFile.load(task)).task()
    promise = promise_words(asked.schedule, asked.query.release)
    sizes = {"report": asked.most_report_bytes(), "batch": asked.most_batch_bytes()}
    if as_json:
        whole_time = {"rounds": asked.schedule.rounds, "seconds": least_seconds(asked)}
        plain = {"users": asked.users, "smallest": hidden_among(asked), "bytes": sizes, "promise": promise}
        typer.echo(json.dumps(whole_time | plain | {"plan": dict(all_plan_words(asked))}, indent=2))
        return
    rows = [["time", length_line(asked)], ["people", f"{asked.users:,}; enrol that many before the shuffler hears of the task"]]
    rows += [["--smallest", f"at most {hidden_among(asked):,}, or the shuffler, whose default is 100, refuses the task"]]
    rows += [["bytes", f"{sizes['report']:,} per report, {sizes['batch']:,} per batch"], *all_plan_words(asked)]
    shown = Table(box=None, pad_edge=False, show_header=False)
    rows.append(["promise", promise["proved"]])
    for lots in _lots(asked)[:1]:
        demand = words.watched_demand(asked.schedule.guarantee, lots.delta, MAX_EPSILON_IF_WATCHED)
        rows.append(["if watched", f"{words.watched_line(asked.schedule.guarantee, lots.delta)}{demand}"])
    for name, text in rows:
        shown.add_row(name, Text(text))
    Console().print(shown)
    if (warning := no_room(asked)) is not None:
        say(messages(), warning, "yellow")


def _lots(task: Any) -> list[Any]:
    return [phase.lots for phase in task.schedule.phases if phase.lots is not None]


def _introduce(task: Any) -> None:
    """Say how a task's reports travel, what one cheating client can do, and whether one can end the task."""
    from ..service.analyzer.population import no_room  # noqa: PLC0415
    from ..service.wire.transports import TRANSPORTS  # noqa: PLC0415

    how = TRANSPORTS[task.transport]
    say(messages(), f"Reports travel by {how.name}, {task.most_report_bytes():,} bytes each: {how.cheat}.")
    if (warning := no_room(task)) is not None:
        say(messages(), warning, "yellow")
    for lots in _lots(task)[:1]:
        guarantee = task.schedule.guarantee
        if demand := words.watched_demand(guarantee, lots.delta, MAX_EPSILON_IF_WATCHED):
            say(messages(), f"If watched: {words.watched_line(guarantee, lots.delta)}{demand}.", "yellow")


def _finish(population: Any, folder: Path, stopped: threading.Event, linger: float, reason: str | None = None) -> None:
    """Say that the task has ended: write a page that stays, and wait a while for the shuffler to acknowledge it."""
    from ..service.analyzer.dashboard import Dashboard, page  # noqa: PLC0415

    def declared() -> str:
        population.ending.declare(len(population.answered()), None if reason is None else reason[:500])
        return page(Dashboard(population).state())

    record_act(folder, "end task", task=population.task.id, reason=reason)
    (folder / "run.html").write_text(population.store.insist(declared, stopped.is_set), encoding="utf-8")
    say(messages(), f"Page of the run: {folder / 'run.html'}.")
    if not population.ending.wait(linger, stopped):
        say(messages(), "The shuffler has not heard of the end; run the same command to tell it again.", "yellow")


def _is_copy(output: Path, saved: Path) -> bool:
    return output.is_file() and saved.is_file() and output.read_bytes() == saved.read_bytes()


# `croupier serve enroller`: the third party that decides who is a real person, its keys and its invitations.


@app.command("enroller-keys", short_help="Print an enroller's public keys.")
def enroller_keys(
    folder: Folder,
    address: Annotated[
        str, typer.Option(help="Address at which clients will reach the enroller, such as https://enroller.example:8803.")
    ],
    slots: Annotated[
        int, typer.Option(help="Tokens per person: 1, or the number of rounds with secret lots or full interactivity.")
    ] = 1,
    blanks: Annotated[
        int, typer.Option(help="With secret lots: tokens per slot for the shuffler's blanks, as stated by the task.")
    ] = 0,
    shuffler_key: Annotated[str | None, typer.Option(help="With --blanks: the shuffler's public key.")] = None,
) -> None:
    """Print an enroller's public keys, for the task file's `enroller`; they are created on first use, for one task."""
    from ..service.enroller import blank_rule, token_keys  # noqa: PLC0415  (an extra)
    from ..service.wire.enrolment import MOST_BLANKS, EnrollerKeys, check_address  # noqa: PLC0415

    whole("--slots", slots, at_least=1, at_most=10_000, remedy="State in how many rounds a user is asked.")
    from ..service.analyzer.task_file import public_key  # noqa: PLC0415

    whole("--blanks", blanks, at_least=0, at_most=MOST_BLANKS, remedy="State how many blanks a round has at most.")
    if (blanks > 0) != (shuffler_key is not None):
        remedy = "The enroller signs blanks for that shuffler only."
        raise ArgumentError("--shuffler-key", shuffler_key, "given if and only if --blanks is", remedy)
    if shuffler_key is not None:
        public_key("--shuffler-key", shuffler_key)
    check_address("--address", address)
    if not (folder / "token.keys").exists():
        record_act(folder, "make enroller's keys", slots=slots)
    keys = token_keys(folder, slots)
    blank_rule(folder, blanks, shuffler_key)
    moduli = tuple(key.public_key().public_numbers().n for key in keys)
    typer.echo(json.dumps(EnrollerKeys(address, moduli, blanks).to_dict(), indent=1))


@app.command(short_help="Print invitations for an enroller.")
def invitations(people: Annotated[int, typer.Option(help="How many people to invite.")] = 1) -> None:
    """Print new invitations, one per person, for `croupier serve enroller --people FILE`."""
    from ..service.enroller import new_invitation  # noqa: PLC0415

    for _ in range(whole("--people", people, at_least=1, remedy="State how many invitations you need.")):
        typer.echo(new_invitation())


@app.command(short_help="Run an enroller.")
def enroller(
    context: typer.Context,
    folder: Folder,
    people: Annotated[Path | None, typer.Option(help="Text file of invitations, one per line; - is standard input.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8803,
    certificate: Certificate = None,
    private_key: Key = None,
    dev: Dev = False,
    database: DatabaseUrl = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="Origin of pages that may request tokens here; repeatable.")
    ] = None,
    behind_proxy: BehindProxy = False,
    address_header: AddressHeader = None,
    address: Annotated[str | None, typer.Option(help="With --oidc-issuer: address at which people reach this enroller.")] = None,
    oidc_issuer: Annotated[
        str | None, typer.Option(help="OpenID provider: anyone who signs in there is invited, each account once.")
    ] = None,
    oidc_client: Annotated[str | None, typer.Option(help="This enroller's client ID at the provider.")] = None,
    oidc_secret: Annotated[
        str | None,
        typer.Option(
            envvar="CROUPIER_OIDC_SECRET", help="Its secret at the provider, if it has one; prefer the environment variable."
        ),
    ] = None,
    oidc_require: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE: a claim that an account must have; repeatable.")
    ] = None,
    oidc_ca: Annotated[Path | None, typer.Option(help="Certificates to trust for the provider.")] = None,
) -> None:
    """Sign tokens blindly for invited people, so that a shuffler cannot invent users. To be run by a third party."""
    from ..service.enroller import (  # noqa: PLC0415
        ENROLLER,
        EnrollerRole,
        add_sign_in,
        blank_rule,
        enroller_app,
        read_invitations,
        token_keys,
    )
    from ..service.net.limits import AddressLimit  # noqa: PLC0415
    from ..service.net.server import Served  # noqa: PLC0415
    from ..service.shuffler.app import allow_origins  # noqa: PLC0415

    tls = tls_files(folder, host, certificate, private_key, dev, behind_proxy)
    check_port(host, port)
    context.with_resource(running_alone(folder, "enroller"))
    signers = token_keys(folder)
    invited = [] if people is None else read_invitations(people)
    role = EnrollerRole(opened(database or sqlite_url(folder, "enroller"), ENROLLER), signers, *blank_rule(folder))
    web = enroller_app(role)
    if oidc_issuer is not None:
        provider = (oidc_issuer, oidc_client, oidc_secret, oidc_require or [], oidc_ca)
        add_sign_in(web, sign_in_of(folder, role, provider, address, allow_origin or []))
    allow_origins(web, allow_origin or [])
    if not behind_proxy or address_header is not None:
        web.add_middleware(AddressLimit, header=address_header)
    record_act(folder, "start enroller", invitations=len(invited), sign_in=oidc_issuer)
    new = role.admit(invited)
    with until_stopped() as stopped, Served(web, host=host, port=port, tls=tls) as served:
        typer.echo(f"enroller on {served.url}")
        if people is not None:
            file = "standard input" if people == Path("-") else people
            typer.echo(f"{len(invited)} people invited by {file}, {new} of them new.")
        stopped.wait()


# How people come to a deployment: links and QR codes of `croupier serve invite`, sign-in of `croupier serve enroller`.


def check_links(link: str, shuffler: str | None, analyzer_key: str, enroller: str | None, sign_in: bool) -> dict[str, Any]:
    """What every link pins; refuses addresses at which a page could not be opened or to which it would not send."""
    parts = urlsplit(link)
    if not re.fullmatch(r"https?://[^\s?#]+", link):
        raise ArgumentError("--link", link, "an address like https://shuffler.example/", "Use the page's address, without a #.")
    require_private_way(link, "--link")
    public_key("--analyzer-key", analyzer_key)
    if enroller is not None:
        require_private_way(enroller, "--enroller")
    if sign_in and enroller is None:
        raise ArgumentError("--sign-in", True, "left out without --enroller", "Name the enroller at which people sign in.")
    where = shuffler or f"{parts.scheme}://{parts.netloc}"
    require_private_way(where, "--shuffler")
    return {"analyzer": analyzer_key.lower(), "shuffler": where, "enroller": enroller, "sign_in": sign_in}


def check_codes(folder: Path) -> None:
    """Refuse to draw QR codes where nothing can draw them, or into a folder that has others."""
    if find_spec("segno") is None:
        remedy = f"It comes with the extra `service`: {how_to_install('service')}"
        raise ArgumentError("--qr", str(folder), "left out unless segno is installed", remedy)
    if folder.exists():
        raise ArgumentError("--qr", str(folder), "a new folder", "Otherwise old and new codes would be mixed up.")


def write_codes(folder: Path, links: Mapping[str, str]) -> None:
    """A QR code of each link, in a file that only its owner can read: anyone who sees one can use it."""
    import segno  # noqa: PLC0415

    for name, link in links.items():
        drawn = io.BytesIO()
        code = segno.make(link, error="m", micro=False)
        code.save(drawn, kind="svg", scale=4, border=4, xmldecl=False, title=f"Invitation {name}")
        create_private(folder / f"{name}.svg", drawn.getvalue())


def sign_in_of(folder: Path, role: Any, provider: tuple[Any, ...], address: str | None, origins: Sequence[str]) -> SignIn:
    """Sign-ins at an enroller, by its options."""
    from ..service.enroller import Provider, SignIn, invitation_key  # noqa: PLC0415  (an extra)

    issuer, client, secret, required, ca = provider
    for name, value in (("--oidc-client", client), ("--address", address)):
        if not value:
            raise ArgumentError(name, value, "given with --oidc-issuer", "The provider identifies this enroller by both.")
    require_private_way(address or "", "--address")
    claims = dict(one.partition("=")[::2] for one in required)
    if not all(re.fullmatch(r"[^=]+=.+", one) for one in required):
        raise ArgumentError("--oidc-require", required, "NAME=VALUE", "For example email_verified=true.")
    if find_spec("jwt") is None:
        remedy = f"It comes with the extra `service`: {how_to_install('service')}"
        raise ArgumentError("--oidc-issuer", issuer, "left out unless PyJWT is installed", remedy)
    return SignIn(Provider(issuer, client, secret, claims, ca), invitation_key(folder), address or "", origins, role.admit)
