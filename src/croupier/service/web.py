"""The roles on the network: HTTP around `Shuffler` and `RemotePopulation`, binary bodies, and every refusal with a reason."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.concurrency import run_in_threadpool

from .analyzer import RemotePopulation
from .dashboard import POLICY, Dashboard, page
from .shuffler import RefusedError, Shuffler
from .store import client_of
from .wire import WireError, report_bytes

# A batch by messages is the largest thing that travels.
_MOST_BATCH_BYTES = 1 << 32
# A word on arrivals is short.
_MOST_ARRIVALS_BYTES = 1 << 10
# Pages that get events; more of them ask by themselves. Seconds between two looks, and between two signs of life.
_MOST_STREAMS, _LOOK, _BEAT = 100, 0.5, 15.0
BINARY = "application/octet-stream"


def shuffler_app(shuffler: Shuffler) -> FastAPI:
    """For clients: the task, the round, and where reports go."""
    app, registry = _app("croupier shuffler")
    taken = Counter("croupier_reports_taken", "Reports that were taken, retries included", registry=registry)
    refused = Counter("croupier_reports_refused", "Reports that were refused", ["status"], registry=registry)
    arrived = Gauge("croupier_reports_arrived", "Reports in the present round", registry=registry)

    @app.get("/v1/task")
    async def task(request: Request) -> Response:
        document = app.state.task_document
        return _binary(document) if document else _refusal(503, "no task yet")

    @app.get("/v1/round")
    async def current(request: Request) -> Response:
        document = await run_in_threadpool(shuffler.current)
        return _binary(document.to_bytes() if document else b"")

    @app.get("/v1/arrivals")
    async def arrivals(request: Request) -> Response:
        now = await run_in_threadpool(shuffler.arrivals)
        return JSONResponse(asdict(now) if now else dict.fromkeys(("round", "arrived", "wanted", "minimum")))

    allowance = Allowance()

    @app.post("/v1/report")
    async def report(request: Request) -> Response:
        try:
            client = await run_in_threadpool(_authenticated, shuffler, request)
            allowance.take(client)
            body = await _body(request, _longest_report(shuffler))
            done = await run_in_threadpool(shuffler.receive, client, body)
        except RefusedError as refusal:
            refused.labels(refusal.status).inc()
            return _refusal(refusal.status, str(refusal))
        taken.inc()
        if done.arrived:
            arrived.set(done.arrived % done.wanted)
        return Response(status_code=200)

    app.state.task_document = b""
    return app


def analyzer_app(population: RemotePopulation) -> FastAPI:
    """For the shuffler: the task, the round, and where batches go."""
    app, registry = _app("croupier analyzer")
    batches = Counter("croupier_batches_taken", "Batches that were taken, retries included", registry=registry)

    @app.get("/v1/task")
    async def task(request: Request) -> Response:
        return _binary(population.document.to_bytes())

    @app.get("/v1/round")
    async def current(request: Request) -> Response:
        document = await run_in_threadpool(population.current)
        return _binary(document.to_bytes() if document else b"")

    @app.post("/v1/batch")
    async def batch(request: Request) -> Response:
        try:
            await run_in_threadpool(population.take, await _body(request, _MOST_BATCH_BYTES))
        except RefusedError as refusal:
            return _refusal(refusal.status, str(refusal))
        except WireError as problem:
            return _refusal(400, str(problem))
        batches.inc()
        return Response(status_code=200)

    dashboard = Dashboard(population)
    app.state.stopping, app.state.streams = False, 0

    @app.post("/v1/arrivals")
    async def arrivals(request: Request) -> Response:
        try:
            await run_in_threadpool(dashboard.hear, await _body(request, _MOST_ARRIVALS_BYTES))
        except RefusedError as refusal:
            return _refusal(refusal.status, str(refusal))
        except WireError as problem:
            return _refusal(400, str(problem))
        return Response(status_code=200)

    @app.get("/")
    async def shown(request: Request) -> Response:
        text = page(await run_in_threadpool(dashboard.state))
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})

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


def _app(title: str) -> tuple[FastAPI, CollectorRegistry]:
    app, registry = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None), CollectorRegistry()

    @app.get("/healthz")
    async def healthy() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    @app.middleware("http")
    async def headers(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    return app, registry


def _authenticated(shuffler: Shuffler, request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    client = client_of(shuffler.store, token) if kind == "Bearer" and token else None
    if client is None:
        raise RefusedError(401, "not an enrolled client's token")
    return client


def _longest_report(shuffler: Shuffler) -> int:
    if shuffler.task is None:
        raise RefusedError(503, "no task yet")
    task = shuffler.task
    plans = [phase.plan for phase in task.schedule.phases]
    return max(report_bytes(task.transport, plan.dim, plan.bits_per_coordinate) for plan in plans)


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


def _binary(data: bytes) -> Response:
    return Response(data, media_type=BINARY)


def _refusal(status: int, reason: str) -> Response:
    return Response(reason + "\n", status_code=status, media_type="text/plain")
