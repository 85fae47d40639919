"""The tasks that a role serves, and who may change that: two tables in the role's own database, and one address for all tasks.

Each task has a database of its own below the role's folder (tasks/NAME), or a schema of its own in PostgreSQL, with the tables of a
role that serves one task. So one state machine runs per task, and nothing of one task can be reached from another.

`/tasks/NAME/...` is what a role of that one task serves. A task's own app never sees the rest of the address. So
`https://host/tasks/NAME` is, to a client or to the other role, the address of a server of one task; and while one task alone is
served, so is `https://host`.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import Gauge
from sqlalchemy import Column, Float, Integer, LargeBinary, MetaData, String, Table, insert, select, text, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from ...files import create_private, write_whole
from ...validation import ArgumentError
from ..wire.documents import Document, WireError, followed, hex_of, succession, successor
from ..wire.task import RefusedError
from .database import Database, hash_of
from .http import TASK_NAME
from .server import TASK, Careful, DirectRoute, DirectRoutes, Loop, bearer_token, read_body, refusal_answer, role_app, signing_key

# Tasks that are not ended, at most: of a role, and of one analyzer by default; and how many an analyzer may ever have.
MOST_TASKS, MOST_OF_ANALYZER, MOST_EVER = 64, 16, 1000
# Days for which an ended task is kept; what people sent is deleted at its end.
KEEP_DAYS = 30.0
_DAY = 86_400.0
# Before the hash of a token that was taken back: no token has such a hash.
_REVOKED = "revoked "


class TaskState(StrEnum):
    """Where a task is: it runs, opens no new round, or is over."""

    RUNNING = "running"
    PAUSED = "paused"
    ENDED = "ended"


REGISTRY = MetaData()
registered = Table(
    "tasks",
    REGISTRY,
    Column("name", String, primary_key=True),
    Column("state", String, nullable=False),
    Column("owner", String, nullable=False),  # the analyzer's public key; in the analyzer's own registry, the key that signs it
    Column("address", String, nullable=False),  # where the analyzer serves it; empty in the analyzer's own registry
    Column("ca", String, nullable=False),  # file of certificates to trust for it; empty: the system's
    Column("added", Float, nullable=False),  # seconds since 1970, as all times here
    Column("ended", Float),
    Column("deleted", Float),
    Column("cleared", Integer, nullable=False),  # whether what people sent was deleted after the end
    Column("task", String, unique=True),  # the task's id, once it is known
    Column("signer", String),  # which of this role's keys the task names or is signed by
    Column("why", String, nullable=False),  # why it has ended, or is not served yet
)
# Who may change tasks by the network: whoever has the token, all of them, or those of one analyzer.
operators = Table(
    "operators",
    REGISTRY,
    Column("token_hash", String, primary_key=True),
    Column("owner", String),  # the analyzer's public key; none: the role's own operator
    Column("address", String),  # below which the analyzer's tasks are served
    Column("most", Integer, nullable=False),  # tasks at a time
)
# Keys of analyzers that were followed by others, each signed by the one before.
successions = Table(
    "successions", REGISTRY, Column("key", String, primary_key=True), Column("document", LargeBinary, nullable=False)
)


@dataclass(frozen=True)
class RegisteredTask:
    """A task as the registry has it: a row of its table."""

    name: str
    state: TaskState
    owner: str
    address: str
    ca: str
    added: float
    ended: float | None
    deleted: float | None
    cleared: bool
    task: str | None
    signer: str | None
    why: str


@dataclass(frozen=True)
class Operator:
    """Somebody who may change tasks: all of them, or an analyzer's own."""

    keys: tuple[str, ...] = ()  # of the analyzer, the newest last; none: the role's own operator
    address: str = ""  # below which the analyzer's tasks are served
    most: int = MOST_TASKS

    def may(self, row: RegisteredTask) -> bool:
        """Whether a task is the operator's to change, or to know of."""
        return not self.keys or row.owner in self.keys


def check_name(name: str) -> str:
    """Refuse a name that could be anything else than one part of a path."""
    if not re.fullmatch(TASK_NAME, name):
        raise RefusedError(400, "a task's name is 1 to 40 small letters, digits and hyphens, no hyphen at either end")
    return name


class Registry:
    """The tasks of a role, on the role's database."""

    def __init__(self, store: Database, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.store, self._folder, self._clock = store, folder, clock
        with store.making() as connection:
            REGISTRY.create_all(connection)

    # What is known.

    def rows(self) -> list[RegisteredTask]:
        """All tasks, in the order in which they were added."""
        with self.store.look() as connection:
            rows = connection.execute(select(registered).order_by(registered.c.added, registered.c.name)).all()
        return [_row(row) for row in rows]

    def row(self, name: str, operator: Operator | None = None) -> RegisteredTask:
        """One task. Whoever may not change it is told that there is none."""
        with self.store.look() as connection:
            found = connection.execute(select(registered).where(registered.c.name == check_name(name))).first()
        if found is None or (operator is not None and not operator.may(_row(found))):
            raise RefusedError(404, f"no task {name}")
        return _row(found)

    # What changes.

    def add(
        self,
        name: str,
        owner: str,
        address: str = "",
        *,
        ca: str = "",
        operator: Operator | None = None,
        task: str | None = None,
        signer: str | None = None,
    ) -> None:
        """Serve another task from now on. The same again changes nothing."""
        by = operator or Operator()
        self._check_owner(by, owner, address)
        check_name(name)
        with self.store.begin() as connection:
            rows = [_row(row) for row in connection.execute(select(registered))]
            known = next((row for row in rows if row.name == name), None)
            same = known is not None and by.may(known) and (known.owner, known.address) == (owner, address)
            if same and known is not None and known.state is not TaskState.ENDED:
                return
            if known is not None:
                raise RefusedError(409, f"there is, or was, a task {name}; take another name")
            live = [row for row in rows if row.state != TaskState.ENDED]
            own = [row for row in live if by.may(row)]
            if len(live) >= MOST_TASKS or (by.keys and (len(own) >= by.most or sum(map(by.may, rows)) >= MOST_EVER)):
                raise RefusedError(
                    409, f"no more tasks are taken: {len(live)} are served here, {len(own)} of them yours. End one first"
                )
            if address and any(row.address == address and row.owner == owner for row in live):
                raise RefusedError(409, "this task is served already, under another name")
            new = {"name": name, "state": TaskState.RUNNING, "owner": owner, "address": address, "ca": ca, "added": self._clock()}
            if task is not None and any(row.task == task for row in rows):
                raise RefusedError(
                    409, "this task is, or was, served under another name; another `name` in its file makes it another"
                )
            connection.execute(insert(registered).values(**new, cleared=0, why="", task=task, signer=signer))

    def _check_owner(self, operator: Operator, owner: str, address: str) -> None:
        newest = followed(owner, self.successions())[-1]
        if newest != owner:
            raise RefusedError(409, f"the key {owner[:8]}... was followed by {newest[:8]}...: a new task is signed by that one")
        if not operator.keys:
            return
        if owner not in operator.keys:
            raise RefusedError(403, "this token is for the tasks of another analyzer's key")
        below = operator.address.rstrip("/") + "/"
        # an address that a token may name is one below its own, so that nobody makes this server ask others
        if not address.startswith(below) or not re.fullmatch(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*", address[len(below) :]):
            raise RefusedError(403, f"this token is for tasks that are served below {below}")

    def change(self, name: str, state: TaskState, operator: Operator | None = None, why: str = "") -> None:
        """Pause, resume or end a task. A task that has ended stays so."""
        self.row(name, operator)
        ended = {"ended": self._clock(), "why": why[:500]} if state is TaskState.ENDED else {}
        with self.store.begin() as connection:
            here = (registered.c.name == name) & (registered.c.state != TaskState.ENDED)
            changed = connection.execute(update(registered).where(here).values(state=state, **ended)).rowcount
        if not changed and state is not TaskState.ENDED:
            raise RefusedError(409, f"task {name} has ended")

    def claim(self, name: str, task: str, signer: str) -> None:
        """Write down which task a name is, before anybody is asked: one id is served under one name."""
        try:
            with self.store.begin() as connection:
                connection.execute(update(registered).where(registered.c.name == name).values(task=task, signer=signer))
        except IntegrityError:
            raise WireError(f"task {task[:8]}... is, or was, served here under another name") from None

    def note(self, name: str, why: str) -> None:
        """Write down why a task is not served yet; empty if it is."""
        with self.store.begin() as connection:
            here = (registered.c.name == name) & (registered.c.state != TaskState.ENDED) & (registered.c.why != why[:500])
            connection.execute(update(registered).where(here).values(why=why[:500]))

    def cleared(self, name: str) -> None:
        """Write down that what people sent is deleted."""
        with self.store.begin() as connection:
            connection.execute(update(registered).where(registered.c.name == name).values(cleared=1))

    def due(self, row: RegisteredTask, days: float) -> bool:
        """Whether an ended task's storage is to be deleted."""
        return row.state is TaskState.ENDED and row.deleted is None and self._clock() >= (row.ended or 0.0) + days * _DAY

    # Each task's own storage.

    def folder(self, name: str) -> Path:
        """A task's folder."""
        return self._folder / "tasks" / check_name(name)

    def database(self, name: str, role: str, tables: MetaData) -> Database:
        """A task's own database: a file in its folder, or a schema beside this one."""
        self.folder(name).mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.store.engine.dialect.name == "sqlite":
            return Database(f"sqlite:///{(self.folder(name) / role).absolute()}.db", tables)
        return Database("", tables, within=self.store, schema=_schema(name))

    def delete(self, name: str, keep: Callable[[Path], bool] = lambda file: False) -> None:
        """Delete a task's storage, except for files that are kept. Its name and id stay, so that nobody is asked the same again."""
        folder = self.folder(name)
        if self.store.engine.dialect.name != "sqlite":
            with self.store.begin() as connection:
                connection.execute(text(f'DROP SCHEMA IF EXISTS "{_schema(name)}" CASCADE'))
        for file in list(folder.iterdir()) if folder.is_dir() else []:
            if not keep(file):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        with self.store.begin() as connection:
            connection.execute(update(registered).where(registered.c.name == name).values(deleted=self._clock()))

    # Who may change tasks by the network.

    def new_operator(self, owner: str | None = None, address: str | None = None, most: int | None = None) -> str:
        """A token for an operator, told once: of all tasks, or of those of one analyzer."""
        token = secrets.token_urlsafe(32)
        limit = most if most is not None else MOST_TASKS if owner is None else MOST_OF_ANALYZER
        values = {"token_hash": hash_of(token), "owner": owner, "address": address, "most": limit}
        with self.store.begin() as connection:
            connection.execute(insert(operators).values(**values))
        return token

    def operator(self, token: str) -> Operator:
        """Whose token it is."""
        query = select(operators.c.owner, operators.c.address, operators.c.most).where(operators.c.token_hash == hash_of(token))
        with self.store.look() as connection:
            found = connection.execute(query).first()
        if found is None:
            raise RefusedError(401, "not an operator's token")
        keys = () if found.owner is None else tuple(followed(found.owner, self.successions()))
        return Operator(keys, found.address or "", found.most)

    def revoke(self, owner: str | None) -> int:
        """Take back all tokens of an analyzer's key, or those of the role's own operators; returns how many there were."""
        known = self.successions()
        with self.store.begin() as connection:
            rows = connection.execute(select(operators.c.token_hash, operators.c.owner)).all()
            mine = [
                row.token_hash
                for row in rows
                if not row.token_hash.startswith(_REVOKED)
                and (row.owner is None if owner is None else row.owner is not None and owner in followed(row.owner, known))
            ]
            for one in mine:  # that there was one stays known
                values = {"token_hash": _REVOKED + one}
                connection.execute(update(operators).where(operators.c.token_hash == one).values(**values))
        return len(mine)

    def has_token(self, owner: str) -> bool:
        """Whether an analyzer of this key has, or had, a token of its own."""
        known = self.successions()
        with self.store.look() as connection:
            owners = set(connection.execute(select(operators.c.owner)).scalars()) - {None}
        return any(owner in followed(one, known) for one in owners)

    # Keys of analyzers that follow each other.

    def successions(self) -> list[Document]:
        """All that analyzers have announced here."""
        with self.store.look() as connection:
            return [Document.from_bytes(data) for data in connection.execute(select(successions.c.document)).scalars()]

    def succeed(self, document: Document, operator: Operator | None = None) -> tuple[str, str]:
        """Take an analyzer's word, signed by its key, that another one follows. Its tokens are then good for both keys' tasks."""
        by, known = operator or Operator(), self.successions()
        with self.store.look() as connection:
            owners = set(connection.execute(select(operators.c.owner).union(select(registered.c.owner))).scalars()) - {None}
        for key in sorted({key for owner in owners for key in followed(owner, known)}):
            try:
                new = successor(document, key)
            except WireError:
                continue  # another key's
            if by.keys and key not in by.keys:
                break
            followed(key, [*known, document])  # refuses a second successor
            if document not in known:
                with self.store.begin() as connection:
                    connection.execute(insert(successions).values(key=key, document=document.to_bytes()))
            return key, new
        raise WireError("a succession of no analyzer's key that is known here")


def _row(row: Any) -> RegisteredTask:
    values = dict(row._mapping)
    return RegisteredTask(**values | {"state": TaskState(values["state"]), "cleared": bool(values["cleared"])})


def _schema(name: str) -> str:
    return "task_" + check_name(name).replace("-", "_")


# A role's signing keys over the years: one that signs new tasks, and older ones until the tasks that name them have ended.


class Keyring:
    """The keys in a role's folder: `signing.key`, and older ones in `keys`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._old = folder, folder / "keys"

    @property
    def current(self) -> Ed25519PrivateKey:
        """The key that new tasks are signed by, or name."""
        return signing_key(self._folder)

    def of(self, public: str) -> Ed25519PrivateKey | None:
        """The private half of one of the role's keys; None if it is none, or was deleted."""
        if public == hex_of(self.current):
            return self.current
        file = self._old / f"{public}.key"
        if not re.fullmatch(r"[0-9a-f]{64}", public) or not file.is_file():
            return None
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text().strip()))

    def rotate(self) -> Document:
        """Sign new tasks by a new key from now on, announced by the old one. Killed in between, the same again completes it."""
        old = self.current
        self._old.mkdir(exist_ok=True, mode=0o700)
        announced = self._old / f"{hex_of(old)}.successor"
        if announced.exists():  # a key announces one successor: whoever was killed has written it down
            document = Document.from_bytes(announced.read_bytes())
            new = self.of(successor(document, hex_of(old)))
            if new is None:
                raise ArgumentError("--dir", str(self._folder), "a folder with all of its keys", "Restore the folder keys.")
        else:
            new = Ed25519PrivateKey.generate()
            self._write(new)
            self._write(old)
            document = succession(old, new)
            write_whole(announced, document.to_bytes())
        write_whole(self._folder / "signing.key", f"{new.private_bytes_raw().hex()}\n".encode(), private=True)
        return document

    def _write(self, key: Ed25519PrivateKey) -> None:
        file = self._old / f"{hex_of(key)}.key"
        if not file.exists():
            create_private(file, f"{key.private_bytes_raw().hex()}\n".encode())

    def successions(self) -> list[Document]:
        """All that was announced, for whoever knows an old key."""
        files = sorted(self._old.glob("*.successor")) if self._old.is_dir() else []
        return [Document.from_bytes(file.read_bytes()) for file in files]

    def prune(self, used: Collection[str]) -> None:
        """Delete the private halves of older keys that no task uses any more."""
        keep = {*used, hex_of(self.current)}
        for file in self._old.glob("*.successor") if self._old.is_dir() else ():
            if file.stem not in keep:
                (self._old / f"{file.stem}.key").unlink(missing_ok=True)


# Bytes of a request of an operator's, at most: a task with its files.
_MOST_BYTES = 8 << 20
# A task's own paths, which are those of the only task where there is one; all others are the front's.
_OF_TASK = re.compile(
    r"/v1/(?:task|start|round|lot|arrivals|end|report|batch|exclusions/[^/]*|release|refusal|state|events)|/answer"
)
_DIRECT = re.compile(rb"(?:/tasks/(%b))?(/v1/[a-z]+)" % TASK_NAME.encode())
# What is recorded of a task that is added.
_RECORDED = ("name", "analyzer", "analyzer_key")
CHANGES = {"pause": TaskState.PAUSED, "resume": TaskState.RUNNING, "end": TaskState.ENDED}


class Host(Protocol):
    """What serves many tasks: apps by their names, and a background loop that begins and ends them."""

    registry: Registry
    loop: Loop

    def app(self, name: str) -> ASGIApp | RefusedError:
        """A task's app, or why there is none."""

    def only(self) -> str | None:
        """The name of the only task that is served; None if there are several, or none."""

    def add(self, values: dict[str, Any], operator: Operator) -> str:
        """Add a task that an operator describes; returns its name."""

    def keys(self) -> Sequence[Document]:
        """All successions of signing keys that are known here."""


class Dispatch:
    """Sends a request to the task that it names."""

    def __init__(self, app: ASGIApp, host: Host) -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the task's app, with the rest of the path alone; by the front's where it names none."""
        path = scope.get("path", "")
        named = re.fullmatch(rf"/tasks/({TASK_NAME})(/.*)", path)
        if scope["type"] != "http" or (named is None and not _OF_TASK.fullmatch(path)):
            await self._app(scope, receive, send)
            return
        if named is not None and named[2] == "/v1/claim":  # people are the service's, whatever task their link names
            await self._app({**scope, "path": named[2], "raw_path": named[2].encode()}, receive, send)
            return
        name, rest = (named[1], named[2]) if named is not None else (self._host.only(), path)
        if name is None:
            rows = await run_in_threadpool(self._host.registry.rows)
            status, why = 404, "several tasks: GET /v1/tasks names them, each at /tasks/NAME"
            if all(row.state is TaskState.ENDED for row in rows):  # another one may be added
                status, why = 503, "no task now: all have ended" if rows else "no task yet"
            await Careful(refusal_answer(status, why))(scope, receive, send)
            return
        app = self._host.app(name)
        if isinstance(app, RefusedError):
            await Careful(refusal_answer(app.status, str(app)))(scope, receive, send)
            return
        TASK.set(name)
        await app({**scope, "path": rest, "raw_path": rest.encode()}, receive, send)


class TaskRoutes(dict[tuple[bytes, bytes], DirectRoute]):
    """The direct routes of all tasks, each below its own address; those of the only one also without it."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def get(self, key: tuple[bytes, bytes], default: Any = None) -> Any:
        """The route of a task that is ready for it."""
        named = _DIRECT.fullmatch(key[1])
        name = (self._host.only() if named is None or named[1] is None else named[1].decode()) if named else None
        app = None if named is None or name is None else self._host.app(name)
        direct = getattr(getattr(app, "state", None), "direct", None)
        return default if named is None or direct is None or not direct.ready() else direct.routes.get((key[0], named[2]), default)


def front_app(title: str, host: Host, store: Database, record: Callable[..., None] | None = None) -> FastAPI:
    """The app of a role that serves many tasks. `record` writes down what an operator does, before it is done."""
    app, metrics = role_app(title, store, host.loop, lambda: [_said(host.registry)])
    registry = host.registry
    count = Gauge("croupier_tasks", "Tasks by their state", ["state"], registry=metrics)
    for state in TaskState:
        count.labels(state).set_function(partial(_count, registry, state))

    @app.get("/v1/tasks")
    async def tasks(request: Request) -> Response:
        rows = await run_in_threadpool(registry.rows)
        return JSONResponse({"tasks": [_public(row) for row in rows if row.task is not None and row.deleted is None]})

    @app.get("/v1/keys")
    async def keys(request: Request) -> Response:
        known = await run_in_threadpool(host.keys)
        return JSONResponse({"successions": [document.to_bytes().hex() for document in known]})

    def recorded(operator: Operator, act: str, **facts: Any) -> None:
        if record is not None:
            by = f"token of the analyzer {operator.keys[-1]}" if operator.keys else "token of an operator"
            record(act, by=by, **facts)

    async def by_operator(request: Request, act: Callable[[Operator, bytes], Any]) -> Response:
        try:
            operator = await run_in_threadpool(registry.operator, bearer_token(request))
            done = await run_in_threadpool(act, operator, await read_body(request, _MOST_BYTES))
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))
        except (WireError, ValueError) as problem:
            return refusal_answer(400, " ".join(str(problem).split())[:500])
        return JSONResponse(done)

    @app.get("/v1/admin/tasks")
    async def known(request: Request) -> Response:
        return await by_operator(request, lambda by, _: {"tasks": [_whole(row) for row in registry.rows() if by.may(row)]})

    @app.post("/v1/admin/tasks")
    async def add(request: Request) -> Response:
        def act(operator: Operator, body: bytes) -> dict[str, str]:
            values = _object(body)
            recorded(operator, "add task", **{word: str(values[word])[:500] for word in _RECORDED if word in values})
            return {"name": host.add(values, operator)}

        return await by_operator(request, act)

    @app.post("/v1/admin/tasks/{name}/{change}")
    async def changed(name: str, change: str, request: Request) -> Response:
        def act(operator: Operator, body: bytes) -> dict[str, Any]:
            if change not in CHANGES:
                raise RefusedError(404, f"a task is changed by {', '.join(CHANGES)}")
            recorded(operator, f"{change} task", name=name[:500])
            registry.change(name, CHANGES[change], operator, "ended by its operator" if change == "end" else "")
            return _whole(registry.row(name, operator))

        return await by_operator(request, act)

    @app.post("/v1/admin/keys")
    async def succeed(request: Request) -> Response:
        def act(operator: Operator, body: bytes) -> dict[str, str]:
            document = Document.from_bytes(body)
            recorded(operator, "accept analyzer's new key", document=document.digest.hex())
            old, new = registry.succeed(document, operator)
            return {"key": old, "successor": new}

        return await by_operator(request, act)

    app.add_middleware(Dispatch, host=host)
    app.state.direct = DirectRoutes(TaskRoutes(host), lambda: True)
    return app


def _count(registry: Registry, state: TaskState) -> float:
    try:
        return float(sum(row.state is state for row in registry.rows()))
    except SQLAlchemyError:
        return math.nan


def _object(body: bytes) -> dict[str, Any]:
    values = json.loads(body)
    if not isinstance(values, dict):
        raise RefusedError(400, "not a JSON object")
    return values


def _said(registry: Registry) -> str:
    rows = registry.rows()
    return "tasks: " + ", ".join(f"{sum(row.state is state for row in rows)} {state}" for state in TaskState)


def _public(row: RegisteredTask) -> dict[str, Any]:
    """What anybody may know of a task; its signed document says the rest."""
    return {"name": row.name, "task": row.task, "analyzer": row.owner, "state": row.state}


def _whole(row: RegisteredTask) -> dict[str, Any]:
    """What an operator sees of a task."""
    return _public(row) | {"address": row.address, "added": row.added, "ended": row.ended, "deleted": row.deleted, "why": row.why}
