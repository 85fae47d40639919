"""The roles as processes: a web server each, the shuffler's errands to the analyzer, and keys on disk."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError

from ..files import create_private
from ..validation import ArgumentError
from .background import Loop, TurnOutcome
from .documents import Document, WireError
from .http import Server, ServerError
from .leading import Leadership
from .listening import KEEP_SECONDS, ClosingServer, ImpatientProtocol, room_for_connections
from .outcomes import Arrivals, RefusedError
from .shuffler import ShufflerRole
from .store import cause_of

log = logging.getLogger("croupier")
# Seconds between the shuffler's errands, at most where one of them fails again and again, and how long one may take.
_PAUSE, _LONGEST_PAUSE, _TIMEOUT = 0.2, 5.0, 60.0
# Seconds between two words on arrivals, if the number is another one, and if it is the same.
_NEWS, _NO_NEWS = 1.0, 10.0


def signing_key(folder: Path) -> Ed25519PrivateKey:
    """The role's key, made on first use, in a file for its owner alone."""
    file = folder / "signing.key"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists():
        create_private(file, f"{Ed25519PrivateKey.generate().private_bytes_raw().hex()}\n".encode())
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text().strip()))
    except ValueError:
        raise ArgumentError("signing.key", str(file), "64 hex digits", "Bring the file back; a new key is a new role.") from None


class Served:
    """A web server in a thread of its own; use it as a context. Port 0 takes one that is free."""

    def __init__(
        self,
        app: FastAPI,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: tuple[Path, Path] | None = None,
        shared: bool = False,
    ) -> None:
        certificate, key = (None, None) if tls is None else map(os.fspath, tls)
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=5,
            timeout_keep_alive=KEEP_SECONDS,
            http=ImpatientProtocol,
            ws="none",
        )
        ImpatientProtocol.most_connections = room_for_connections()
        self._app, self._server, self._host = app, ClosingServer(config), host
        self._scheme = "http" if tls is None else "https"
        sockets = [shared_socket(host, port)] if shared else None  # otherwise the server opens its own
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), name=app.title, daemon=True)

    @property
    def url(self) -> str:
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"{self._scheme}://{self._host}:{port}"

    def __enter__(self) -> Served:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise OSError(f"the port on {self._host} could not be opened")
            threading.Event().wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._app.state.stopping = True  # streams of events end by themselves
        self._server.should_exit = True
        self._thread.join()


def shared_socket(host: str, port: int) -> socket.socket:
    """A bound socket whose port other processes of this user may open too; whoever listens gets a part of the connections."""
    [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        opened.bind(address)
    except OSError:
        opened.close()
        raise
    return opened


class Errands:
    """What the shuffler does by itself: fetch the analyzer's task and rounds, and bring it batches until it has them."""

    def __init__(self, shuffler: ShufflerRole, analyzer: str, *, ca: Path | None = None) -> None:
        self._shuffler, self._analyzer = shuffler, analyzer.rstrip("/")
        if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", self._analyzer):
            raise ArgumentError("analyzer", analyzer, "an address like https://host:port", "Give the analyzer's address.")
        self._server = Server(self._analyzer, ca=ca, timeout=_TIMEOUT)
        self._leadership = Leadership(shuffler.store)
        self._fetched = False  # the analyzer's task, by this process
        self._ended = shuffler.ending.document() is not None
        self._said: tuple[Arrivals | None, float] = None, 0.0  # the last word on arrivals, and when
        self.loop = Loop("errands", self._turn, pause=_PAUSE, longest=_LONGEST_PAUSE)

    def __enter__(self) -> Errands:
        self.loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.stop()
        self._leadership.close()

    def _turn(self) -> TurnOutcome:
        """Do all errands once if this process leads, each whatever became of the others; if not, follow who does."""
        self._shuffler.clock.look()
        errands = [self._shuffler.follow, self._hear_end]
        if self._leadership.held():
            errands = [self._task, self._round, self._arrivals, self._shuffler.close_late]
            errands += [self._batch, self._exclusions, self._release, self._wipe]
            if self._ended:  # the analyzer is gone, and nobody is missed
                errands = [self._wipe]
        outcomes = [self._tried(errand) for errand in errands]
        return next((worst for worst in (TurnOutcome.FAILED, TurnOutcome.WAITING) if worst in outcomes), TurnOutcome.DONE)

    def _hear_end(self) -> None:
        self._ended = self._shuffler.ending.document() is not None

    def _tried(self, errand: Callable[[], None]) -> TurnOutcome:
        """A failed errand is done again later: the analyzer may be down, and nothing is lost by waiting."""
        name, outcome = errand.__name__.lstrip("_"), TurnOutcome.WAITING
        self.loop.step(name)
        try:
            errand()
        except (WireError, RefusedError) as problem:
            self.loop.note(name, logging.ERROR, f"refused: {problem}")
        except ServerError as problem:
            if problem.status is None:
                self.loop.note(name, logging.WARNING, f"analyzer out of reach: {problem}")
            else:
                self.loop.note(name, logging.ERROR, f"the analyzer says {problem.status}: {str(problem).strip()[:200]}")
        except SQLAlchemyError as problem:
            self.loop.note(name, logging.ERROR, f"database: {cause_of(problem)}")
            outcome = TurnOutcome.FAILED
        except Exception as problem:  # whatever it is, the next errand is done
            self.loop.note(name, logging.ERROR, f"errand {name}: {type(problem).__name__}")
            outcome = TurnOutcome.FAILED
        else:
            self.loop.worked(name)
            outcome = TurnOutcome.DONE
        return outcome

    def _task(self) -> None:
        if not self._fetched:
            document = Document.from_bytes(self._sent("/v1/task"))
            try:
                self._shuffler.take_task(document)
            except WireError as problem:
                self._tell(self._shuffler.ending.refusal(document, problem))
                raise
            self._fetched = True

    def _tell(self, refusal: Document | None) -> None:
        """The analyzer waits for a task that is not served here: it is told why, if it can be reached."""
        if refusal is not None:
            with suppress(ServerError):
                self._sent("/v1/refusal", refusal.to_bytes())

    def _round(self) -> None:
        if not self._fetched:
            return
        if data := self._sent("/v1/round"):
            self._shuffler.open(Document.from_bytes(data))
        elif (task := self._shuffler.task) is not None and (data := self._sent("/v1/end")):
            self._exclusions()  # what it has left to say: it goes when it knows that this has been heard
            self._release()
            end, heard = self._shuffler.ending.take(Document.from_bytes(data), task)
            self._sent("/v1/end", heard.to_bytes())
            self._ended = True
            log.info("%s", end)

    def _arrivals(self) -> None:
        """Tell the analyzer, for its dashboard, how many reports are here: a number, signed."""
        (last, when), now = self._said, time.monotonic()
        if now < when + _NEWS or (arrivals := self._shuffler.arrivals()) is None:
            return
        if arrivals != last or now >= when + _NO_NEWS:
            self._said = arrivals, now
            self._sent("/v1/arrivals", self._shuffler.said(arrivals).to_bytes())

    def _batch(self) -> None:
        if not self._fetched or (waiting := self._shuffler.waiting_batch()) is None:
            return
        name, batch = waiting
        try:
            self._sent("/v1/batch", batch)
        except ServerError as refusal:
            if not refusal.for_good:
                raise
            log.error("the analyzer refuses the batch for good: %s", str(refusal).strip()[:200])
            self._shuffler.forwarded(name, "refused")  # as it is, it will never be taken
        else:
            self._shuffler.forwarded(name)

    def _exclusions(self) -> None:
        """Where reports are checked: which of the batch are left out."""
        task, name = self._shuffler.task, self._shuffler.releases.waiting()
        if self._fetched and task is not None and name is not None and (data := self._sent(f"/v1/exclusions/{name}")):
            self._shuffler.releases.take(task, Document.from_bytes(data))

    def _release(self) -> None:
        """One sum over the others, until the analyzer has it."""
        if self._fetched and (ready := self._shuffler.releases.ready()) is not None:
            name, release = ready
            self._sent("/v1/release", release)
            self._shuffler.releases.arrived(name)

    def _wipe(self) -> None:
        if self._shuffler.store.unwiped:
            self._shuffler.store.wipe()
            if self._shuffler.store.unwiped:
                log.warning("somebody reads the database: what was deleted is still in its log")

    def _sent(self, path: str, body: bytes | None = None) -> bytes:
        return self._server.send(path, body)
