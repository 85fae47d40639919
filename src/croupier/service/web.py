"""The roles on the network: HTTP around `ShufflerRole` and `RemotePopulation`, binary bodies, and every refusal with a reason."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Generic, TypeVar

import anyio
import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .analyzer import RemotePopulation
from .background import Loop
from .dashboard import POLICY, Dashboard, page
from .documents import Document, WireError
from .exclusions import release_bytes
from .http import BINARY, FOR_GOOD
from .outcomes import RefusedError
from .shuffler import ShufflerRole
from .store import Database, cause_of
from .transport import report_length

log = logging.getLogger("croupier")
# Seconds after which a database that does not answer is not healthy.
_SLOW = 10.0
# What is answered together, at most.
_MOST_TOGETHER = 256
# A word on arrivals is short.
_MOST_ARRIVALS_BYTES = 1 << 10
# Pages that get events; more of them ask by themselves. Seconds between two looks, and between two signs of life.
_MOST_STREAMS, _LOOK, _BEAT = 100, 0.5, 15.0
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def shuffler_app(shuffler: ShufflerRole, loop: Loop | None = None) -> FastAPI:
    """For clients: the task, the round, and where reports go. `/healthz` and `/metrics` speak of its background loop too."""
    app, registry = _shuffler_health(shuffler, loop)
    taken = Counter("croupier_reports_taken", "Reports that were taken, retries included", registry=registry)
    refused = Counter("croupier_reports_refused", "Reports that were refused", ["status"], registry=registry)
    arrived = Gauge("croupier_reports_arrived", "Reports in the present round", registry=registry)
    allowance, tokens = Allowance(), Together(shuffler.clients_of)
    rounds, reports, lots = Together(shuffler.rounds_for), Together(shuffler.receive_all), Together(shuffler.lots_for)

    def counts() -> bool:
        """Whether it is anybody's business how many have come: not where their lots are secret."""
        return shuffler.task is None or shuffler.task.secret is None

    async def follow() -> None:
        """Learn of a task that another process has taken: a client may have it from there."""
        if shuffler.task is None:
            with suppress(WireError):  # the loop logs why
                await run_in_threadpool(shuffler.follow)

    @app.get("/v1/task")
    async def task(request: Request) -> Response:
        await follow()
        return _document(shuffler.document) if shuffler.document else _refusal(503, "no task yet")

    @app.get("/v1/round")
    async def current(request: Request) -> Response:
        await follow()
        if "authorization" not in request.headers:
            return _document(await run_in_threadpool(shuffler.current))
        try:
            client = await tokens.do(_token(request))
            allowance.take(client)
            return _document(await rounds.do(client))
        except RefusedError as refusal:
            return _refusal(refusal.status, str(refusal))

    @app.get("/v1/lot")
    async def lot(request: Request) -> Response:
        await follow()
        try:
            client = await tokens.do(_token(request))
            allowance.take(client)
            return Response((await lots.do(client)).to_bytes(), media_type="application/json")
        except RefusedError as refusal:
            return _refusal(refusal.status, str(refusal))

    @app.get("/v1/arrivals")
    async def arrivals(request: Request) -> Response:
        now = await run_in_threadpool(shuffler.arrivals)
        return JSONResponse(asdict(now) if now else dict.fromkeys(("round", "arrived", "wanted", "minimum")))

    @app.get("/v1/end")
    async def end(request: Request) -> Response:
        return _document(await run_in_threadpool(shuffler.ending.document))

    @app.post("/v1/report")
    async def report(request: Request) -> Response:
        await follow()
        try:
            client = await tokens.do(_token(request))
            allowance.take(client)
            done = await reports.do((client, await _body(request, _longest_report(shuffler))))
        except RefusedError as refusal:
            if counts() or refusal.status == 401:  # a stranger has no lot
                refused.labels(refusal.status).inc()
            return _refusal(refusal.status, str(refusal))
        if counts():
            taken.inc()
            if done.arrived:
                arrived.set(done.arrived % done.wanted)
        return Response(status_code=200)

    return app


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


class Together(Generic[Item, Outcome]):
    """What is asked while an answer is being found is answered next, together: one transaction, one wait for the disk."""

    def __init__(self, answer: Callable[[Sequence[Item]], Sequence[Outcome | RefusedError]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Item, asyncio.Future[Outcome]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def do(self, item: Item) -> Outcome:
        """What becomes of one of them; a refusal is raised."""
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, told))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._run())
        return await told

    async def _run(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
            outcomes: Sequence[Outcome | Exception]
            try:
                outcomes = await run_in_threadpool(self._answer, [item for item, _ in some])
            except Exception as problem:  # each of them hears of it
                outcomes = [problem] * len(some)
            for (_, told), outcome in zip(some, outcomes, strict=True):
                if told.done():  # whoever asked is gone
                    continue
                if isinstance(outcome, Exception):
                    told.set_exception(outcome)
                else:
                    told.set_result(outcome)


# A page without scripts, whose style and pictures are in it.
ANSWER_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def analyzer_app(population: RemotePopulation) -> FastAPI:
    """For the shuffler: the task, the round, and where batches go."""
    app, registry = _app("croupier analyzer", population.store)
    batches = Counter("croupier_batches_taken", "Batches that were taken, retries included", registry=registry)
    longest = population.task.most_batch_bytes()

    @app.get("/v1/task")
    async def task(request: Request) -> Response:
        return _document(population.document)

    @app.get("/v1/round")
    async def current(request: Request) -> Response:
        return _document(await run_in_threadpool(population.current))

    @app.post("/v1/batch")
    async def batch(request: Request) -> Response:
        answer = await _handed(request, longest, population.take)
        if answer.status_code == 200:
            batches.inc()
        return answer

    @app.get("/v1/exclusions/{round_id}")
    async def exclusions(round_id: str) -> Response:
        return _document(await run_in_threadpool(population.exclusions, round_id))

    @app.post("/v1/release")
    async def release(request: Request) -> Response:
        return await _handed(request, release_bytes(population.task.problem.dim), population.take_release)

    @app.get("/v1/end")
    async def end(request: Request) -> Response:
        return _document(await run_in_threadpool(population.ending.document))

    @app.post("/v1/end")
    async def end_heard(request: Request) -> Response:
        return await _handed(request, _MOST_ARRIVALS_BYTES, population.ending.hear)

    @app.post("/v1/refusal")
    async def refusal(request: Request) -> Response:
        return await _handed(request, _MOST_ARRIVALS_BYTES, population.ending.refuse)

    dashboard = Dashboard(population)
    app.state.stopping, app.state.streams = False, 0

    @app.post("/v1/arrivals")
    async def arrivals(request: Request) -> Response:
        return await _handed(request, _MOST_ARRIVALS_BYTES, dashboard.hear)

    @app.get("/")
    async def shown(request: Request) -> Response:
        text = page(await run_in_threadpool(dashboard.state))
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})

    @app.get("/answer")
    async def answer(request: Request) -> Response:
        if population.page is None:
            return _refusal(404, "there is no answer yet, or none with pictures")
        return HTMLResponse(population.page, headers={"Content-Security-Policy": ANSWER_POLICY, "Referrer-Policy": "no-referrer"})

    @app.get("/v1/state")
    async def state(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(dashboard.state))

    @app.get("/v1/events")
    async def events(request: Request) -> Response:
        if app.state.streams >= _MOST_STREAMS:
            return _refusal(503, "too many pages are open; ask for /v1/state")
        return StreamingResponse(_events(app, dashboard), media_type="text/event-stream")

    return app


async def _events(app: FastAPI, dashboard: Dashboard) -> AsyncIterator[str]:
    """Server-sent events: a whole state where it is another one, arrivals where they alone are, a beat where nothing is."""
    app.state.streams += 1
    try:
        before, arrivals, last, stopping = None, None, time.monotonic(), False
        while not stopping:
            stopping = app.state.stopping  # the last look is after the end
            state = await run_in_threadpool(dashboard.state, anew=stopping)
            now = {name: value for name, value in state.items() if name != "arrivals"}
            what, said = ("state", state) if now != before else ("arrivals", state["arrivals"])
            if now != before or said != arrivals:
                yield f"event: {what}\ndata: {json.dumps(said)}\n\n"
                before, arrivals, last = now, state["arrivals"], time.monotonic()
            elif time.monotonic() >= last + _BEAT:
                yield "event: beat\ndata: 1\n\n"
                last = time.monotonic()
            if not stopping:
                await asyncio.sleep(_LOOK)
    finally:
        app.state.streams -= 1


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


def _token(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind == "Bearer" else ""


def _longest_report(shuffler: ShufflerRole) -> int:
    if shuffler.task is None:
        raise RefusedError(503, "no task yet")
    task = shuffler.task
    plans = [phase.plan for phase in task.schedule.phases]
    return max(report_length(task.transport, plan) for plan in plans) + task.token_bytes


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
