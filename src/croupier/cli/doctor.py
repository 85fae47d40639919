"""`croupier doctor`: check a running deployment from outside, as a client would, and say how to fix what is wrong."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..service.net.http import require_private_way
from ..service.wire.documents import Document, WireError
from ..service.wire.task import Task
from ..validation import ArgumentError, Found
from .processes import check_authority
from .terminal import length_line

# Days before a certificate's end at which an operator should have replaced it.
_SOON_DAYS = 14
# Seconds by which clocks may differ: rounds of secret lots go by them, and the Date header has whole seconds.
_CLOCK_SECONDS = 5.0
# Seconds after which a batch that was not forwarded is late.
_LATE_SECONDS = 600.0
_TIMEOUT = 15.0
_MOST_BYTES = 64 << 20
_MARKS = {"ok": "green", "warn": "yellow", "bad": "red"}


@dataclass(frozen=True)
class Symptom:
    """One thing that was looked at: `ok`, `warn` or `bad`, what was seen, and what to do about it."""

    role: str
    looked_at: str
    state: str
    seen: str
    remedy: str = ""


@dataclass(frozen=True)
class HttpAnswer:
    """What a server answered, and when by the clock here."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    asked: float
    answered: float


def doctor(
    shuffler: Annotated[str | None, typer.Option(help="The shuffler's address.")] = None,
    analyzer: Annotated[str | None, typer.Option(help="The analyzer's address, if it can be reached from here.")] = None,
    enroller: Annotated[str | None, typer.Option(help="The enroller's address, if the task has one.")] = None,
    analyzer_key: Annotated[
        str | None, typer.Option(help="The analyzer's public key, to check who signed the task that the shuffler hands out.")
    ] = None,
    ca: Annotated[
        list[Path] | None, typer.Option(help="Certificates to trust instead of the system's; repeatable, one per role.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Check a running deployment from outside: roles, TLS, clocks, versions, health, keys, the task and its promise.

    Sends no token and changes nothing. Exit code 0 if all is well, 1 if anything is bad.
    """
    roles = {"shuffler": shuffler, "analyzer": analyzer, "enroller": enroller}
    if not any(roles.values()):
        allowed = "an address, unless --analyzer or --enroller is given"
        raise ArgumentError("--shuffler", Found("is required"), allowed, "Name the server to check.")
    key = None if analyzer_key is None else _key(analyzer_key)
    for role, address in roles.items():
        if address is not None:
            require_private_way(address, role)
    trusted = _trusted(ca or [])
    tasks: dict[str, Task] = {}
    findings = [
        finding
        for role, address in roles.items()
        if address is not None
        for finding in _examined(role, address, trusted, key, tasks)
    ]
    findings += _together(tasks, enroller, trusted)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    if any(finding.state == "bad" for finding in findings):
        raise typer.Exit(1)


def _key(text: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        remedy = "Use the key that `croupier serve key` printed on the analyzer's machine."
        raise ArgumentError("--analyzer-key", text, "64 hex digits", remedy) from None


def _trusted(files: list[Path]) -> ssl.SSLContext:
    """Which certificates are trusted: those of the system's authorities, or those in the files."""
    context = ssl.create_default_context()
    if files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for file in files:
        check_authority("--ca", file)
        context.load_verify_locations(file)
    return context


def _print(findings: list[Symptom]) -> None:
    console = Console()
    table = Table("role", "check", "", "result", box=None, pad_edge=False)
    for finding in findings:
        table.add_row(finding.role, finding.looked_at, Text(finding.state, style=_MARKS[finding.state]), Text(finding.seen))
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(Text(f"{finding.role}, {finding.looked_at}: {finding.remedy}"))
    wrong = sum(finding.state != "ok" for finding in findings)
    console.print("All is well." if not wrong else f"{wrong} of {len(findings)} checks need attention.")


def _examined(
    role: str, address: str, trusted: ssl.SSLContext, key: Ed25519PublicKey | None, tasks: dict[str, Task]
) -> Iterator[Symptom]:
    """Everything that can be seen of one server, in the order in which it would fail. Its task is added to `tasks`."""
    parts = urllib.parse.urlsplit(address.rstrip("/"))
    try:
        yield from _certificate(role, parts, trusted)
        health = _asked(parts, "/healthz", trusted)
    except ssl.SSLError as problem:
        remedy = "Serve a certificate for this name, or name its authority with --ca (repeatable, one per role)."
        yield Symptom(role, "TLS", "bad", _reason(problem), remedy)
        return
    except (OSError, http.client.HTTPException) as problem:
        yield Symptom(role, "reach", "bad", _reason(problem), "Start the role, open its port, or check the address.")
        return
    is_role = _role(role, health)
    yield is_role
    if is_role.state == "bad":  # anything else it says is about another role
        return
    yield from _clock(role, health)
    yield from _version(role, health)
    yield from _health(role, health)
    if role != "enroller":
        yield from _task(role, _asked(parts, "/v1/task", trusted), key, tasks)


def _role(role: str, answer: HttpAnswer) -> Symptom:
    said = answer.headers.get("Croupier-Role")
    if said == role:
        return Symptom(role, "role", "ok", said)
    if said is not None:
        return Symptom(
            role, "role", "bad", f"the {said[:40]} answers there", f"--{role} names another server; use the {role}'s address."
        )
    if answer.headers.get("Croupier-Version") is None:
        remedy = "Check the address and the port; a proxy in front must pass the answer's headers."
        return Symptom(role, "role", "bad", "no Croupier role answers there", remedy)
    return Symptom(role, "role", "warn", "not stated", "Run a version that states its role.")


def _together(tasks: dict[str, Task], enroller: str | None, trusted: ssl.SSLContext) -> Iterator[Symptom]:
    """Checks that need more than one server: both serve the same task, and the enroller has the task's keys."""
    names = {role: task.id[:8] for role, task in tasks.items()}
    if len(names) == 2:
        same = len(set(names.values())) == 1
        remedy = "" if same else "Start the shuffler with this analyzer's address, in this task's folder."
        yield Symptom("both", "same task", "ok" if same else "bad", ", ".join(f"{r} {n}" for r, n in names.items()), remedy)
    task = next(iter(tasks.values()), None)
    if task is None or (task.enroller is None and enroller is None):
        return
    if task.enroller is None:
        yield Symptom("enroller", "task", "bad", "the task has no enroller", "Name its keys in task.toml, or remove --enroller.")
        return
    if enroller is None:
        yield Symptom("enroller", "reach", "warn", f"not checked: {task.enroller.address}", "Add --enroller to check it.")
        return
    if task.enroller.address.rstrip("/") != enroller.rstrip("/"):
        remedy = "Clients use the task's address: make new keys with --address, in a new task."
        yield Symptom("enroller", "address", "bad", f"the task names {task.enroller.address}", remedy)
    try:
        answer = _asked(urllib.parse.urlsplit(enroller.rstrip("/")), "/v1/keys", trusted)
    except (OSError, http.client.HTTPException):
        return  # it was said above
    if answer.status == 200:
        same = answer.body.decode("utf-8", "replace").split() == [f"{modulus:x}" for modulus in task.enroller.moduli]
        remedy = "" if same else "Keys are valid for one task only: start the enroller with the folder whose keys are in task.toml."
        yield Symptom("enroller", "keys", "ok" if same else "bad", "the task's" if same else "not the task's", remedy)


def _certificate(role: str, parts: urllib.parse.SplitResult, trusted: ssl.SSLContext) -> Iterator[Symptom]:
    if parts.scheme != "https":
        yield Symptom(role, "TLS", "warn", "plain http on this machine", "Use --certificate and --private-key before others join.")
        return
    with (
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout=_TIMEOUT) as raw,
        trusted.wrap_socket(raw, server_hostname=parts.hostname) as secure,
    ):
        certificate, version = secure.getpeercert() or {}, secure.version()
    days = (ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()) / 86_400
    state = "ok" if days > _SOON_DAYS else "warn"
    remedy = "" if state == "ok" else "Replace the certificate files and restart the role; no round is lost."
    yield Symptom(role, "TLS", state, f"{version}, certificate valid for {days:.0f} days", remedy)


def _clock(role: str, answer: HttpAnswer) -> Iterator[Symptom]:
    stated = answer.headers.get("Date")
    if stated is None:
        yield Symptom(role, "clock", "warn", "no Date header", "Configure the proxy in front to pass it on.")
        return
    theirs = parsedate_to_datetime(stated).timestamp() + 0.5
    off = theirs - (answer.asked + answer.answered) / 2
    fine = abs(off) <= _CLOCK_SECONDS + (answer.answered - answer.asked)
    remedy = "" if fine else "Synchronise both clocks (NTP): rounds of secret lots end by the clock."
    yield Symptom(role, "clock", "ok" if fine else "bad", f"{off:+.1f} s from this machine's", remedy)


def _version(role: str, answer: HttpAnswer) -> Iterator[Symptom]:
    theirs = answer.headers.get("Croupier-Version")
    if theirs == __version__:
        yield Symptom(role, "version", "ok", theirs)
    else:
        remedy = "Run the same version on both servers; end running tasks before you upgrade."
        yield Symptom(role, "version", "warn", f"{theirs or 'not stated'}; here {__version__}", remedy)


def _health(role: str, answer: HttpAnswer) -> Iterator[Symptom]:
    lines = answer.body.decode("utf-8", "replace").strip().splitlines() or [f"status {answer.status}"]
    remedy = (
        "" if answer.status == 200 else "The Runbook in docs/deploy.md has a remedy for each cause; the role's log has details."
    )
    yield Symptom(role, "health", "ok" if answer.status == 200 else "bad", lines[0], remedy)
    for line in lines[1:]:
        late = re.match(r"oldest batch not forwarded: (\d+) s", line)
        unreached = "out of reach" in line
        state = "bad" if late is not None and float(late[1]) > _LATE_SECONDS else "warn" if unreached else "ok"
        remedy = "" if state == "ok" else "Check that the analyzer runs and can be reached from the shuffler's machine."
        name, _, seen = line.partition(":")
        yield Symptom(role, name.strip()[:40], state, seen.strip() or line, remedy)


def _task(role: str, answer: HttpAnswer, key: Ed25519PublicKey | None, tasks: dict[str, Task]) -> Iterator[Symptom]:
    if answer.status != 200 or not answer.body:
        remedy = "Add a task to both; if it was added, `croupier serve task list` and the shuffler's log say why it does not begin."
        yield Symptom(role, "task", "warn", answer.body.decode("utf-8", "replace").strip() or "none yet", remedy)
        return
    if key is None:
        yield Symptom(role, "task", "warn", "signature not checked", "Add --analyzer-key, as clients do.")
        return
    try:
        task = Task.read(Document.from_bytes(answer.body), key)
    except (WireError, ArgumentError) as problem:
        remedy = "Clients refuse it too: compare the analyzer's `croupier serve key` with the key that clients were given."
        yield Symptom(role, "task", "bad", str(problem)[:200], remedy)
        return
    tasks[role] = task
    yield Symptom(role, "task", "ok", f"signed, {task.transport}, {task.users:,} users; {length_line(task)}")
    yield Symptom(role, "promise", "ok", str(task.schedule.guarantee)[:200])


def _asked(parts: urllib.parse.SplitResult, path: str, trusted: ssl.SSLContext) -> HttpAnswer:
    connect: Callable[..., Any] = http.client.HTTPConnection
    options: dict[str, Any] = {"timeout": _TIMEOUT}
    if parts.scheme == "https":
        connect = http.client.HTTPSConnection
        options["context"] = trusted
    connection = connect(parts.hostname or "", parts.port, **options)
    try:
        asked = time.time()
        connection.request("GET", parts.path + path)
        response = connection.getresponse()
        return HttpAnswer(response.status, response.headers, response.read(_MOST_BYTES), asked, time.time())
    finally:
        connection.close()


def _reason(problem: Exception) -> str:
    return getattr(problem, "verify_message", "") or str(problem) or type(problem).__name__
