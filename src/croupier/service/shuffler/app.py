"""The shuffler on the network: HTTP around `ShufflerRole`, and the page to take part with."""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlencode, urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

from ...validation import ArgumentError
from ..net.database import Database, hash_of
from ..net.http import BINARY
from ..net.server import (
    Allowance,
    DirectRequest,
    DirectRoute,
    DirectRoutes,
    Loop,
    bearer_token,
    document_answer,
    read_body,
    refusal_answer,
    role_app,
)
from ..wire.documents import Document, WireError
from ..wire.task import Accepted, Lot, RefusedError, Start
from .role import RoundClock, ShufflerRole
from .rounds import clients, invitations

log = logging.getLogger("croupier")
# What is answered together, at most.
_MOST_TOGETHER = 256
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
# The page's files are made of clients/typescript, and their digests are in SHA256SUMS beside them.
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
    """One file of the page."""

    name: str  # as it is asked for
    content: bytes  # what is in it
    packed: bytes  # the same, by gzip

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


# For clients, and for who watches over the shuffler.


def shuffler_app(shuffler: ShufflerRole, loop: Loop | None = None) -> FastAPI:
    """For clients: the task, the round, and where reports go. `/healthz` and `/metrics` speak of its background loop too."""
    app, registry = _healthy_app(shuffler, loop)
    intake = Intake(shuffler, registry)

    async def follow() -> None:
        """Learn of a task that another process has taken: a client may have it from there."""
        if shuffler.task is None:
            with suppress(WireError):  # the loop logs why
                await run_in_threadpool(shuffler.follow)

    @app.get("/v1/task")
    async def task(request: Request) -> Response:
        await follow()
        return document_answer(shuffler.document) if shuffler.document else refusal_answer(503, "no task yet")

    @app.get("/v1/round")
    async def current(request: Request) -> Response:
        await follow()
        if "authorization" not in request.headers:
            return document_answer(await run_in_threadpool(shuffler.current))
        try:
            return document_answer(await intake.rounds.do(await intake.admitted(bearer_token(request))))
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))

    @app.get("/v1/lot")
    async def lot(request: Request) -> Response:
        await follow()
        try:
            lot = await intake.lots.do(await intake.admitted(bearer_token(request)))
            return Response(lot.to_bytes(), media_type="application/json")
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))

    @app.get("/v1/start")
    async def start(request: Request) -> Response:
        await follow()
        try:
            told = await intake.starts.do(await intake.admitted(bearer_token(request)))
            return Response(told.to_bytes(), media_type=BINARY)
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))

    @app.get("/v1/arrivals")
    async def arrivals(request: Request) -> Response:
        now = await run_in_threadpool(shuffler.arrivals)
        return JSONResponse(asdict(now) if now else dict.fromkeys(("round", "arrived", "wanted", "minimum")))

    @app.get("/v1/end")
    async def end(request: Request) -> Response:
        return document_answer(await run_in_threadpool(shuffler.end))

    @app.post("/v1/report")
    async def report(request: Request) -> Response:
        await follow()
        try:
            client = await intake.admitted(bearer_token(request))
            accepted = await intake.reports.do((client, await read_body(request, shuffler.most_report_bytes())))
        except RefusedError as refusal:
            intake.count_refused(refusal.status)
            return refusal_answer(refusal.status, str(refusal))
        intake.count_taken(accepted)
        return Response(status_code=200)

    app.state.direct = intake.direct_routes()
    return app


class Intake:
    """What clients ask and bring, each kind answered together; for the app, and for requests that are answered without it."""

    def __init__(self, shuffler: ShufflerRole, registry: CollectorRegistry) -> None:
        self._shuffler, self._allowance = shuffler, Allowance()
        self.tokens: RequestBatcher[str, str] = RequestBatcher(shuffler.clients_of)
        self.rounds: RequestBatcher[str, Document | None] = RequestBatcher(shuffler.rounds_for)
        self.lots: RequestBatcher[str, Lot] = RequestBatcher(shuffler.lots_for)
        self.reports: RequestBatcher[tuple[str, bytes], Accepted] = RequestBatcher(shuffler.receive_all, shuffler.store.turn)
        self.starts: RequestBatcher[str, Start] = RequestBatcher(shuffler.starts_for)
        self._whole = self._by_token(shuffler.receive_all, shuffler.store.turn)
        self._open: RequestBatcher[None, Document | None] = RequestBatcher(lambda asked: [shuffler.current()] * len(asked))
        self._taken = Counter("croupier_reports_taken", "Reports that were taken, retries included", registry=registry)
        self._refused = Counter("croupier_reports_refused", "Reports that were refused", ["status"], registry=registry)
        self._arrived = Gauge("croupier_reports_arrived", "Reports in the present round", registry=registry)

    async def admitted(self, token: str) -> str:
        """Whose token it is, if it may ask now."""
        client = await self.tokens.do(token)
        self._allowance.take(client)
        return client

    def _counts(self) -> bool:
        """Whether it is anybody's business how many have come: not where their lots are secret."""
        return self._shuffler.task is None or self._shuffler.task.secret is None

    def count_taken(self, accepted: Accepted) -> None:
        """Count a report that was taken."""
        if self._counts():
            self._taken.inc()
            if accepted.arrived:
                self._arrived.set(accepted.arrived % accepted.wanted)

    def count_refused(self, status: int) -> None:
        """Count a report that was refused."""
        if self._counts() or status == 401:  # a stranger has no lot
            self._refused.labels(status).inc()

    # The same, directly.

    def direct_routes(self) -> DirectRoutes:
        """The paths that every client asks for."""
        role = self._shuffler
        rounds: RequestBatcher[tuple[str, None], Document | None]
        lots: RequestBatcher[tuple[str, None], Lot]
        starts: RequestBatcher[tuple[str, None], Start]
        rounds = self._by_token(lambda asked: role.rounds_for([client for client, _ in asked]))
        lots = self._by_token(lambda asked: role.lots_for([client for client, _ in asked]))
        starts = self._by_token(lambda asked: role.starts_for([client for client, _ in asked]))
        routes: dict[tuple[bytes, bytes], DirectRoute] = {
            (b"GET", b"/v1/task"): self._send_task,
            (b"GET", b"/v1/start"): partial(self._ask, starts, Start.to_bytes, BINARY.encode()),
            (b"GET", b"/v1/round"): partial(self._ask_round, rounds),
            (b"GET", b"/v1/lot"): partial(self._ask, lots, Lot.to_bytes, b"application/json"),
            (b"POST", b"/v1/report"): self._take_report,
        }
        return DirectRoutes(routes, lambda: self._shuffler.task is not None)

    def _ask_round(self, batcher: RequestBatcher[tuple[str, None], Any], request: DirectRequest) -> None:
        request.limit(0)
        if request.authorized:
            self._ask(batcher, _document_bytes, BINARY.encode(), request)
        else:
            self._open.submit(None, lambda outcome: _tell_document(request, outcome))

    def _send_task(self, request: DirectRequest) -> None:
        request.limit(0)
        request.answer(200, _document_bytes(self._shuffler.document))

    def _ask(
        self, batcher: RequestBatcher[tuple[str, None], Any], to_bytes: Callable[[Any], bytes], kind: bytes, request: DirectRequest
    ) -> None:
        """Answer what a client with a token asks."""
        request.limit(0)  # a body that nobody reads is not kept

        def answer(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                request.refuse(outcome)
            else:
                request.answer(200, to_bytes(outcome), kind)

        batcher.submit((request.token, None), answer)

    def _take_report(self, request: DirectRequest) -> None:
        """Take a report. Its sender is looked up with it where all of it is here, and before it is waited for where it is not."""
        request.limit(self._shuffler.most_report_bytes())

        def answer(outcome: Accepted | Exception) -> None:
            if isinstance(outcome, Exception):
                self.count_refused(request.refuse(outcome))
            else:
                self.count_taken(outcome)
                request.answer(200)

        def known(client: str | Exception) -> None:
            try:
                if isinstance(client, Exception):
                    raise client
                self._allowance.take(client)
            except Exception as problem:
                self.count_refused(request.refuse(problem))
            else:
                request.read(lambda body: self.reports.submit((client, body), answer))

        if request.more_body or request.too_long:
            self.tokens.submit(request.token, known)
        else:
            self._whole.submit((request.token, bytes(request.body)), answer)

    def _by_token(
        self,
        answer: Callable[[Sequence[tuple[str, Item]]], Sequence[Outcome | RefusedError]],
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> RequestBatcher[tuple[str, Item], Outcome]:
        """Looks up whose requests they are, and answers them, in one step: each hears what it would have heard by itself."""

        def answer_all(brought: Sequence[tuple[str, Item]]) -> list[Outcome | RefusedError]:
            outcomes: dict[int, Outcome | RefusedError] = {}
            known: dict[int, tuple[str, Item]] = {}
            for place, client in enumerate(self._shuffler.clients_of([token for token, _ in brought])):
                try:
                    if isinstance(client, RefusedError):
                        raise client
                    self._allowance.take(client)
                    known[place] = client, brought[place][1]
                except RefusedError as refusal:
                    outcomes[place] = refusal
            if known:
                outcomes |= zip(known, answer(list(known.values())), strict=True)
            return [outcomes[place] for place in range(len(brought))]

        return RequestBatcher(answer_all, turn)


def _tell_document(request: DirectRequest, outcome: Document | Exception | None) -> None:
    if isinstance(outcome, Exception):
        request.refuse(outcome)
    else:
        request.answer(200, _document_bytes(outcome))


def _document_bytes(document: Document | None) -> bytes:
    return b"" if document is None else document.to_bytes()


def _healthy_app(shuffler: ShufflerRole, loop: Loop | None) -> tuple[FastAPI, CollectorRegistry]:
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

    app, registry = role_app("croupier shuffler", shuffler.store, loop, said if loop else None)
    oldest = Gauge("croupier_oldest_batch_seconds", "Age of the oldest batch that was not forwarded", registry=registry)
    oldest.set_function(oldest_seconds)
    steps = Gauge("croupier_clock_steps", "Steps of the system's clock since the start", registry=registry)
    steps.set_function(lambda: shuffler.clock.jumps)
    return app, registry


class RequestBatcher(Generic[Item, Outcome]):
    """What is asked while an answer is being found is answered next, together: one transaction, one wait for the disk."""

    def __init__(
        self,
        answer: Callable[[Sequence[Item]], Sequence[Outcome | RefusedError]],
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._answer, self._turn = answer, turn  # what comes until it is our turn is answered with the rest
        self._waiting: list[tuple[Item, Callable[[Outcome | Exception], None]]] = []
        self._busy = False
        self._thread = ThreadPoolExecutor(1, "requests")

    async def do(self, item: Item) -> Outcome:
        """What becomes of one of them; a refusal is raised."""
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def tell(outcome: Outcome | Exception) -> None:
            if told.done():  # whoever asked is gone
                return
            if isinstance(outcome, Exception):
                told.set_exception(outcome)
            else:
                told.set_result(outcome)

        self.submit(item, tell)
        return await told

    def submit(self, item: Item, tell: Callable[[Outcome | Exception], None]) -> None:
        """Have `tell` called with what becomes of one of them."""
        self._waiting.append((item, tell))
        if not self._busy:
            self._busy = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._next, loop)  # with what else comes in this turn of the loop

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        self._thread.submit(self._find, loop)

    def _find(self, loop: asyncio.AbstractEventLoop) -> None:
        some: list[tuple[Item, Callable[[Outcome | Exception], None]]] = []
        outcomes: Sequence[Outcome | Exception]
        try:
            with self._turn():
                some = self._some()
                outcomes = self._answer([item for item, _ in some])
        except Exception as problem:  # each of them hears of it
            some = some or self._some()
            outcomes = [problem] * len(some)
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(self._tell, loop, some, outcomes)

    def _some(self) -> list[tuple[Item, Callable[[Outcome | Exception], None]]]:
        """The first that wait, and wait no longer; the loop's thread adds others meanwhile, at the end."""
        some = self._waiting[:_MOST_TOGETHER]
        del self._waiting[: len(some)]
        return some

    def _tell(
        self,
        loop: asyncio.AbstractEventLoop,
        some: list[tuple[Item, Callable[[Outcome | Exception], None]]],
        outcomes: Sequence[Outcome | Exception],
    ) -> None:
        for (_, tell), outcome in zip(some, outcomes, strict=True):
            try:
                tell(outcome)
            except Exception as problem:  # of one connection: the others are told all the same
                log.error("an answer was not sent: %s", type(problem).__name__)
        self._busy = bool(self._waiting)
        if self._busy:
            self._next(loop)


# Invitations: a secret in a link enrols the first device that claims it, until a time; after that the link is worth nothing.
#
# The device draws its token by itself and sends the hash along. So a link in a mailbox or a browser's history opens nothing
# later, and a retry after a lost answer is the same claim.


# Bytes of a claim: the hash of the device's token, in hex.
CLAIM_BYTES = 64


class Enrolling(Protocol):
    """Who has people: a shuffler of one task, or of many."""

    @property
    def store(self) -> Database:
        """Where people are enrolled."""

    @property
    def clock(self) -> RoundClock:
        """What invitations expire by."""


def invite(store: Database, names: Sequence[str], until: float) -> list[str]:
    """Enrol these clients without a token, in one transaction; returns a secret for each, good until then for one device."""
    codes = [secrets.token_urlsafe(32) for _ in names]
    with store.begin() as connection:
        connection.execute(insert(clients), [{"id": name, "token_hash": None} for name in names])
        rows = [{"id": hash_of(code), "client": name, "until": until} for code, name in zip(codes, names, strict=True)]
        connection.execute(insert(invitations), rows)
    return codes


def claim(store: Database, code: str, token_hash: str, now: float) -> None:
    """Make a device's token that of the invited client. The same claim again changes nothing, whatever the time."""
    here = invitations.c.id == hash_of(code)
    first = here & invitations.c.token_hash.is_(None) & (invitations.c.until > now)
    try:
        with store.begin() as connection:
            if connection.execute(update(invitations).where(first).values(token_hash=token_hash)).rowcount:
                client = select(invitations.c.client).where(here).scalar_subquery()
                connection.execute(update(clients).where(clients.c.id == client).values(token_hash=token_hash))
            row = connection.execute(select(invitations.c.token_hash).where(here)).first()
    except IntegrityError:
        raise RefusedError(400, "a token that is another client's") from None
    if row is None:
        raise RefusedError(401, "not an invitation of this shuffler's")
    if row.token_hash is None:
        raise RefusedError(410, "this invitation has expired; ask for another one")
    if row.token_hash != token_hash:
        raise RefusedError(409, "this invitation was used on another device, or was withdrawn; ask for another one")


def add_claims(app: FastAPI, shuffler: Enrolling) -> None:
    """Let devices claim invitations at an app."""
    allowance = Allowance()

    async def take(request: Request) -> Response:
        try:
            code = bearer_token(request)
            body = (await read_body(request, CLAIM_BYTES)).decode("ascii", "replace")
            if not re.fullmatch(r"[0-9a-f]{64}", body):
                raise RefusedError(400, "a claim that is no hash")
            await run_in_threadpool(claim, shuffler.store, code, body, shuffler.clock.now())
            allowance.take(hash_of(code))
        except RefusedError as refusal:
            return refusal_answer(refusal.status, str(refusal))
        return Response(status_code=200)

    app.add_api_route("/v1/claim", take, methods=["POST"])


def invitation_link(
    page: str, *, code: str, analyzer: str, shuffler: str, until: float, enroller: str | None = None, sign_in: bool = False
) -> str:
    """A link that opens the page with everything pinned. All of it is after the #, which browsers send to nobody."""
    words = {"code": code, "analyzer": analyzer, "shuffler": shuffler.rstrip("/"), "until": f"{until:.0f}"}
    words |= {} if enroller is None else {"enroller": enroller.rstrip("/")}
    words |= {"signin": "1"} if sign_in else {}
    return f"{page}#{urlencode(words, safe=':/')}"
