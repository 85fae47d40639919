"""The analyzer on the network: HTTP around `RemotePopulation`, for the shuffler and for whoever watches a run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool

from ..net.server import document_answer, hand_over, refusal_answer, role_app
from .dashboard import POLICY, Dashboard, page
from .population import RemotePopulation

# A word on arrivals is short.
_MOST_ARRIVALS_BYTES = 1 << 10
# Pages that get events; more of them ask by themselves.
_MOST_STREAMS = 100
# Of a page's events: between two looks at the state, and between two signs of life.
POLL_SECONDS, HEARTBEAT_SECONDS = 0.5, 15.0
# A page without scripts, whose style and pictures are in it.
ANSWER_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def analyzer_app(population: RemotePopulation) -> FastAPI:
    """For the shuffler: the task, the round, and where batches go."""
    app, registry = role_app("croupier analyzer", population.store)
    batches = Counter("croupier_batches_taken", "Batches that were taken, retries included", registry=registry)
    longest, longest_release = population.longest_bodies

    @app.get("/v1/task")
    async def task(request: Request) -> Response:
        return document_answer(population.document)

    @app.get("/v1/round")
    async def current(request: Request) -> Response:
        return document_answer(await run_in_threadpool(population.current))

    @app.post("/v1/batch")
    async def batch(request: Request) -> Response:
        answer = await hand_over(request, longest, population.take)
        if answer.status_code == 200:
            batches.inc()
        return answer

    @app.get("/v1/exclusions/{round_id}")
    async def exclusions(round_id: str) -> Response:
        return document_answer(await run_in_threadpool(population.exclusions, round_id))

    @app.post("/v1/release")
    async def release(request: Request) -> Response:
        return await hand_over(request, longest_release, population.take_release)

    @app.get("/v1/end")
    async def end(request: Request) -> Response:
        return document_answer(await run_in_threadpool(population.ending.document))

    @app.post("/v1/end")
    async def end_heard(request: Request) -> Response:
        return await hand_over(request, _MOST_ARRIVALS_BYTES, population.ending.hear)

    @app.post("/v1/refusal")
    async def refusal(request: Request) -> Response:
        return await hand_over(request, _MOST_ARRIVALS_BYTES, population.ending.refuse)

    dashboard = Dashboard(population)
    app.state.stopping, app.state.streams = False, 0

    @app.post("/v1/arrivals")
    async def arrivals(request: Request) -> Response:
        return await hand_over(request, _MOST_ARRIVALS_BYTES, dashboard.hear)

    @app.get("/")
    async def shown(request: Request) -> Response:
        text = page(await run_in_threadpool(dashboard.state))
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})

    @app.get("/answer")
    async def answer(request: Request) -> Response:
        if population.page is None:
            return refusal_answer(404, "there is no answer yet, or none with pictures")
        return HTMLResponse(population.page, headers={"Content-Security-Policy": ANSWER_POLICY, "Referrer-Policy": "no-referrer"})

    @app.get("/v1/state")
    async def state(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(dashboard.state))

    @app.get("/v1/events")
    async def events(request: Request) -> Response:
        if app.state.streams >= _MOST_STREAMS:
            return refusal_answer(503, "too many pages are open; ask for /v1/state")
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
            elif time.monotonic() >= last + HEARTBEAT_SECONDS:
                yield "event: beat\ndata: 1\n\n"
                last = time.monotonic()
            if not stopping:
                await asyncio.sleep(POLL_SECONDS)
    finally:
        app.state.streams -= 1
