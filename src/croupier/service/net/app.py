"""The roles on the network: HTTP around `ShufflerRole` and `RemotePopulation`, binary bodies, and every refusal with a reason."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..shuffler.role import ShufflerRole
from ..wire.documents import Document, WireError
from ..wire.outcomes import RefusedError
from .database import Database, cause_of
from .http import BINARY, FOR_GOOD
from .server import Loop

log = logging.getLogger("croupier")
# Seconds after which a database that does not answer is not healthy.
_SLOW = 10.0
# What is answered together, at most.
_MOST_TOGETHER = 256
# A word on arrivals is short.
_MOST_ARRIVALS_BYTES = 1 << 10
# Pages that get events; more of them ask by themselves.
_MOST_STREAMS = 100
# Of a page's events: between two looks at the state, and between two signs of life.
POLL_SECONDS, HEARTBEAT_SECONDS = 0.5, 15.0
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def _shuffler_health(shuffler: ShufflerRole, loop: Loop | None) -> tuple[FastAPI, CollectorRegistry]:
    """An app that tells what an operator watches: the loop, the oldest batch that was not forwarded, steps of the clock."""

    def said() -> list[str]:
        age = shuffler.oldest_batch()
        waits = "none" if age is None else f"{age:.0f} s"
        return [f"oldest batch not forwarded: {waits}", f"steps of the system's clock: {shuffler.clock.jumps}"]

    def oldest_seconds() -> float:
        try:
            return shuffler.oldest_batch() or 0.0
        except SQLAlchemyError:
            return math.nan

    app, registry = _app("croupier shuffler", shuffler.store, loop, said if loop else None)
    oldest = Gauge("croupier_oldest_batch_seconds", "Age of the oldest batch that was not forwarded", registry=registry)
    oldest.set_function(oldest_seconds)
    steps = Gauge("croupier_clock_steps", "Steps of the system's clock since the start", registry=registry)
    steps.set_function(lambda: shuffler.clock.jumps)
    return app, registry


# A page without scripts, whose style and pictures are in it.
ANSWER_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Allowance:
    """How often a client may ask: `burst` requests at once, and `a_second` of them after that."""

    def __init__(self, a_second: float = 2.0, burst: int = 20) -> None:
        self._rate, self._burst = a_second, burst
        self._left: dict[str, tuple[float, float]] = {}  # requests left, and when that was so

    def take(self, client: str) -> None:
        now = time.monotonic()
        left, then = self._left.get(client, (float(self._burst), now))
        left = min(self._burst, left + (now - then) * self._rate)
        if left < 1:
            raise RefusedError(429, "too many requests; wait a little")
        self._left[client] = left - 1, now


def _app(
    title: str, store: Database, loop: Loop | None = None, said: Callable[[], list[str]] | None = None
) -> tuple[FastAPI, CollectorRegistry]:
    """An app that tells its health: `loop` is the role's background loop, `said` what else there is to say of it, in lines."""
    app, registry = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None), CollectorRegistry()
    if loop is not None:
        since = Gauge("croupier_loop_seconds_since_success", "Since a loop last did all it had to", ["loop"], registry=registry)
        since.labels(loop.name).set_function(loop.since_success)
        healthy = Gauge("croupier_loop_healthy", "1 unless a loop is dead, stuck or failing", ["loop"], registry=registry)
        healthy.labels(loop.name).set_function(lambda: float(not loop.trouble()))

    def looked() -> tuple[str, list[str]]:
        trouble = "; ".join(filter(None, [store.trouble(), loop.trouble() if loop else ""]))
        return trouble, [*([loop.said()] if loop else []), *(said() if said and not trouble else [])]

    @app.get("/healthz")
    async def health() -> Response:
        trouble, lines = f"the database has not answered for {_SLOW:g} s", [loop.said()] if loop else []
        with anyio.move_on_after(_SLOW):
            trouble, lines = await anyio.to_thread.run_sync(looked, abandon_on_cancel=True)
        first = f"not ok: {trouble}" if trouble else "ok"
        return _refusal(503 if trouble else 200, "\n".join([first, *lines]))

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await run_in_threadpool(generate_latest, registry), media_type="text/plain; version=0.0.4")

    app.add_exception_handler(SQLAlchemyError, _unusable)
    app.add_exception_handler(OSError, _unusable)
    app.add_middleware(_Careful)
    return app, registry


async def _unusable(request: Request, problem: Exception) -> Response:
    """Nothing was written, since the disk is full or the database is away: the log has the cause, the sender comes again later."""
    cause = cause_of(problem) if isinstance(problem, SQLAlchemyError) else f"{type(problem).__name__}: {problem}"[:200]
    log.error("a request was not served: %s", cause)
    return _refusal(503, "nothing can be written now; try again later")


class _Careful:
    """Headers for every answer: take it for what it says it is, and keep it nowhere."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        await self._app(scope, receive, sent)


async def _body(request: Request, most: int) -> bytes:
    """The body, refused as soon as it is longer than anything can be."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 20 or int(declared) > most:
        raise RefusedError(413, f"more than {most} bytes")
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > most:
            raise RefusedError(413, f"more than {most} bytes")
        parts.append(part)
    return b"".join(parts)


async def _handed(request: Request, most: int, take: Callable[[bytes], None]) -> Response:
    """Give the body to whoever takes it. What is not as it should be will never be: said by us, not by something in between."""
    try:
        await run_in_threadpool(take, await _body(request, most))
    except RefusedError as refusal:
        return _refusal(refusal.status, str(refusal))
    except WireError as problem:
        answer = _refusal(400, str(problem))
        answer.headers[FOR_GOOD] = "yes"
        return answer
    return Response(status_code=200)


def _document(document: Document | None) -> Response:
    return Response(document.to_bytes() if document else b"", media_type=BINARY)


def _refusal(status: int, reason: str) -> Response:
    return Response(reason + "\n", status_code=status, media_type="text/plain")
