"""The page to take part with: files that a browser runs, served by the shuffler or from anywhere else.

They are made of clients/typescript, and their digests are in SHA256SUMS beside them.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Generic
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import Counter, Gauge
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

from ...validation import ArgumentError
from ..net.app import _MOST_TOGETHER, Allowance, Item, Outcome, _body, _document, _refusal, _shuffler_health
from ..net.server import Loop
from ..wire.documents import WireError
from ..wire.outcomes import RefusedError
from ..wire.transports import TRANSPORTS
from .role import ShufflerRole

_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", "": "text/plain"}
# What the page may load and whom it may talk to, where the shuffler serves it: the shuffler, and the task's enroller.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src data:",
        "connect-src 'self'{enroller}",
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


@dataclass(frozen=True)
class PageFile:
    """One file of the page.

    Parameters
    ----------
    name : str
        As it is asked for.
    content : bytes
        What is in it.
    packed : bytes
        The same, by gzip.
    """

    name: str
    content: bytes
    packed: bytes

    @property
    def kind(self) -> str:
        """Its media type."""
        return f"{_KINDS[Path(self.name).suffix]}; charset=utf-8"


def page_files() -> list[PageFile]:
    """Return the files of the page as they are in this package."""
    folder = files(__package__) / "page"
    contents = sorted((file.name, file.read_bytes()) for file in folder.iterdir() if file.is_file())
    return [PageFile(name, content, gzip.compress(content, mtime=0)) for name, content in contents]


def add_page(app: FastAPI, enroller: Callable[[], str | None] = lambda: None) -> None:
    """Serve the page at the root of an app, beside what it serves already."""
    for file in page_files():
        answer = _answering(file, enroller)
        for path in (f"/{file.name}", *(("/",) if file.name == "index.html" else ())):
            app.add_api_route(path, answer, methods=["GET"])


def _policy(enroller: str | None) -> str:
    """The policy of a page whose task has this enroller; an address whose origin a policy cannot name is left out."""
    origin = re.match(r"https?://[A-Za-z0-9.:\[\]-]+(?=/|$)", enroller or "")
    return _POLICY.format(enroller=f" {origin[0]}" if origin else "")


def _answering(file: PageFile, enroller: Callable[[], str | None]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"Content-Security-Policy": _policy(enroller()), "Referrer-Policy": "no-referrer", "Vary": "Accept-Encoding"}
        if packed:
            headers["Content-Encoding"] = "gzip"
        return Response(file.packed if packed else file.content, media_type=file.kind, headers=headers)

    return answer


def allow_origins(app: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of other origins send to an app: a page that is hosted elsewhere, or an extension."""
    for origin in origins:
        address = urlsplit(origin)
        if origin != "*" and (not address.scheme or not address.netloc or address.path or address.query or address.fragment):
            raise ArgumentError("--allow-origin", origin, "an origin without a path, or *", "For example https://study.example.")
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            max_age=600,
        )


def copy_page(folder: Path) -> list[Path]:
    """Write the page into a folder, to be hosted elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    copies = [(folder / file.name, file.content) for file in page_files()]
    for path, content in copies:
        path.write_bytes(content)
    return [path for path, _ in copies]


# The roles on the network: HTTP around `ShufflerRole` and `RemotePopulation`, binary bodies, and every refusal with a reason.


def shuffler_app(shuffler: ShufflerRole, loop: Loop | None = None) -> FastAPI:
    """For clients: the task, the round, and where reports go. `/healthz` and `/metrics` speak of its background loop too."""
    app, registry = _shuffler_health(shuffler, loop)
    taken = Counter("croupier_reports_taken", "Reports that were taken, retries included", registry=registry)
    refused = Counter("croupier_reports_refused", "Reports that were refused", ["status"], registry=registry)
    arrived = Gauge("croupier_reports_arrived", "Reports in the present round", registry=registry)
    allowance, tokens = Allowance(), RequestBatcher(shuffler.clients_of)
    rounds, reports, lots = (
        RequestBatcher(shuffler.rounds_for),
        RequestBatcher(shuffler.receive_all),
        RequestBatcher(shuffler.lots_for),
    )

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


class RequestBatcher(Generic[Item, Outcome]):
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


def _token(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token if kind == "Bearer" else ""


def _longest_report(shuffler: ShufflerRole) -> int:
    if shuffler.task is None:
        raise RefusedError(503, "no task yet")
    task = shuffler.task
    plans = [phase.plan for phase in task.schedule.phases]
    return max(TRANSPORTS[task.transport].report_length(plan) for plan in plans) + task.token_bytes
