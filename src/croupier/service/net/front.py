"""One address for many tasks: `/tasks/NAME/...` is what a role of that one task serves, and operators add, pause and end tasks.

A task's own app never sees the rest of the address. So `https://host/tasks/NAME` is, to a client or to the other role, the address
of a server of one task; and while one task alone is served, so is `https://host`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import Gauge
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from ..wire.documents import Document, WireError
from ..wire.outcomes import RefusedError
from .database import Database
from .http import TASK_NAME
from .registry import Operator, RegisteredTask, Registry, TaskState
from .server import Careful, DirectRoute, DirectRoutes, Loop, bearer_token, read_body, refusal_answer, role_app

# Bytes of a request of an operator's, at most: a task with its files.
_MOST_BYTES = 8 << 20
# A task's own paths, which are those of the only task where there is one; all others are the front's.
_OF_TASK = re.compile(
    r"/v1/(?:task|start|round|lot|arrivals|end|report|batch|exclusions/[^/]*|release|refusal|state|events)|/answer"
)
_DIRECT = re.compile(rb"(?:/tasks/(%b))?(/v1/[a-z]+)" % TASK_NAME.encode())
# What is recorded of a task that is added.
_RECORDED = ("name", "analyzer", "analyzer_key")
_CHANGES = {"pause": TaskState.PAUSED, "resume": TaskState.RUNNING, "end": TaskState.ENDED}


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
            nothing = not any(row.state is not TaskState.ENDED for row in await run_in_threadpool(self._host.registry.rows))
            status, why = (503, "no task yet") if nothing else (404, "several tasks: GET /v1/tasks names them, each at /tasks/NAME")
            await Careful(refusal_answer(status, why))(scope, receive, send)
            return
        app = self._host.app(name)
        if isinstance(app, RefusedError):
            await Careful(refusal_answer(app.status, str(app)))(scope, receive, send)
            return
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
            if change not in _CHANGES:
                raise RefusedError(404, f"a task is changed by {', '.join(_CHANGES)}")
            recorded(operator, f"let a task be {_CHANGES[change]}", name=name[:500])
            registry.change(name, _CHANGES[change], operator, "ended by its operator" if change == "end" else "")
            return _whole(registry.row(name, operator))

        return await by_operator(request, act)

    @app.post("/v1/admin/keys")
    async def succeed(request: Request) -> Response:
        def act(operator: Operator, body: bytes) -> dict[str, str]:
            document = Document.from_bytes(body)
            recorded(operator, "take a new key of an analyzer's", document=document.digest.hex())
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
