"""Of several processes of a role on one database, one leads: it does what needs to be done once.

It is economy and not safety: every errand is a transaction of its own that does the same if it is done twice. So a leader that has
lost its lock unawares, or two of them for a moment, cost time and nothing else.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from ...files import lock
from ...validation import ArgumentError
from ..net.database import Database, cause_of
from ..net.http import Server, ServerError, require_private_way, require_public
from ..net.server import _LONGEST_PAUSE, _NEWS, _NO_NEWS, _PAUSE, _TIMEOUT, TASK, Loop, TurnOutcome
from ..wire.documents import Document, WireError
from ..wire.task import Arrivals, RefusedError
from .role import ShufflerRole

# The name of the lock: advisory locks of PostgreSQL are numbers, and of one database.
_LOCK = int.from_bytes(b"croupier") >> 1
# An analyzer's address.
ADDRESS = r"https?://[^/?#\s]+(/[^?#\s]*)?"


class Leadership:
    """A lock that at most one process has, until it is closed or the process is gone, killed even.

    In PostgreSQL it is an advisory lock of a connection of its own; beside a SQLite file it is a lock on another file.
    """

    def __init__(self, store: Database) -> None:
        self._engine = store.engine
        self._connection: Connection | None = None
        self._file: IO[str] | None = None

    def held(self) -> bool:
        """Return whether this process leads; if nobody does, it does from now on."""
        if self._engine.dialect.name == "sqlite":
            return self._held_by_file()
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                return True
            with ExitStack() as unless_held:
                connection = unless_held.enter_context(self._engine.connect())
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.detach()  # not one of the pool's: when it is closed, the lock is gone
                if connection.execute(text("SELECT pg_try_advisory_lock(:name)"), {"name": _LOCK}).scalar():
                    self._connection = connection
                    unless_held.pop_all()
        except SQLAlchemyError:
            self.close()
        return self._connection is not None

    def _held_by_file(self) -> bool:
        if self._file is not None:
            return True
        name = self._engine.url.database
        if not name or name == ":memory:":
            return True
        file = Path(f"{name}.leader").open("a")  # noqa: SIM115  (it stays open)
        try:
            lock(file.fileno())
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def close(self) -> None:
        """Let another process lead."""
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None
        if self._file is not None:
            self._file.close()
            self._file = None


# The roles as processes: a web server each, the shuffler's errands to the analyzer, and keys on disk.

log = logging.getLogger("croupier")


class AnalyzerRelay:
    """What the shuffler does by itself: fetch the analyzer's task and rounds, and bring it batches until it has them."""

    def __init__(
        self,
        shuffler: ShufflerRole,
        analyzer: str,
        *,
        ca: Path | None = None,
        enroller_ca: Path | None = None,
        public: bool = False,
        leads: Callable[[], bool] | None = None,
        name: str = "",
    ) -> None:
        """`leads` says whether this process does errands, where that is decided for several tasks; `name` is the task's.

        `public`: an enroller on this machine or in a private network is not asked.
        """
        self._shuffler, self._analyzer = shuffler, analyzer.rstrip("/")
        if not re.fullmatch(ADDRESS, self._analyzer):
            raise ArgumentError("analyzer", analyzer, "an address like https://host:port", "Give the analyzer's address.")
        self._server = Server(self._analyzer, ca=ca, timeout=_TIMEOUT)
        self._enroller_ca, self._public, self._enroller_said = enroller_ca, public, ""
        self._leadership = Leadership(shuffler.store)
        self._leads, self._name = leads or self._leadership.held, name
        self.paused = False  # no new round is opened; one that is open ends as it would
        self._fetched = False  # the analyzer's task, by this process
        self._ended = shuffler.end() is not None
        self._said: tuple[Arrivals | None, float] = None, 0.0  # the last word on arrivals, and when
        self.loop = Loop("errands", self._turn, pause=_PAUSE, longest=_LONGEST_PAUSE)

    def __enter__(self) -> AnalyzerRelay:
        self.loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.stop()
        self._leadership.close()

    def _turn(self) -> TurnOutcome:
        """Do all errands once if this process leads, each whatever became of the others; if not, follow who does."""
        TASK.set(self._name)
        self._shuffler.clock.look()
        errands = [self._shuffler.follow, self._hear_end]
        if self._leads():
            errands = [self._task, self._blanks, self._round, self._arrivals, self._shuffler.close_late]
            errands += [self._batch, self._exclusions, self._release, self._wipe]
            if self._ended:  # the analyzer is gone, and nobody is missed
                errands = [self._wipe]
        outcomes = [self._tried(errand) for errand in errands]
        return next((worst for worst in (TurnOutcome.FAILED, TurnOutcome.WAITING) if worst in outcomes), TurnOutcome.DONE)

    def _hear_end(self) -> None:
        self._ended = self._shuffler.end() is not None

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
                self._tell(self._shuffler.refusal(document, problem))
                raise
            self._fetched = True

    def refuse(self, reason: str) -> None:
        """Tell the analyzer that its task is not served any more, and why."""
        if self._shuffler.document is not None:
            self._tell(self._shuffler.refusal(self._shuffler.document, WireError(reason)))

    def _tell(self, refusal: Document | None) -> None:
        """The analyzer waits for a task that is not served here: it is told why, if it can be reached."""
        if refusal is not None:
            with suppress(ServerError):
                self._sent("/v1/refusal", refusal.to_bytes())

    def _blanks(self) -> None:
        """Where an enroller counts blanks: get tokens for the next ones, as many regardless of who comes."""
        if self._fetched:
            self._shuffler.collect_blanks(self._signed_blanks)

    def _signed_blanks(self, address: str, body: bytes) -> bytes:
        require_private_way(address, "enroller")
        try:
            if self._public:
                require_public(address, "enroller")
            return Server(address, ca=self._enroller_ca, timeout=_TIMEOUT).send("/v1/blanks", body)
        except OSError as problem:
            raise ServerError(None, f"the enroller: {problem}") from None
        except ServerError as refusal:
            if refusal.status is None:
                raise ServerError(None, f"the enroller: {refusal}") from None
            # What it says is for this role's operator; a note of the task, which its analyzer reads, has the status alone.
            said = f"the enroller says {refusal.status}: {str(refusal).strip()[:200]}"
            if said != self._enroller_said:
                self._enroller_said = said
                log.error("%s", said)
            raise ServerError(refusal.status, "of the enroller") from None

    def _round(self) -> None:
        if not self._fetched:
            return
        if data := self._sent("/v1/round"):
            if not self.paused and self._shuffler.is_ready_for(document := Document.from_bytes(data)):
                self._shuffler.open(document)
        elif self._shuffler.task is not None and (data := self._sent("/v1/end")):
            self._exclusions()  # what it has left to say: it goes when it knows that this has been heard
            self._release()
            end, heard = self._shuffler.take_end(Document.from_bytes(data))
            self._sent("/v1/end", heard.to_bytes())
            self._ended = True
            log.info("%s", end)
            if self._shuffler.nobody_came():
                log.warning("no client sent a report in the whole task: its result is pure noise. Tell the analyzer's operator")

    def _arrivals(self) -> None:
        """Tell the analyzer, for its dashboard, how many reports are here: a number, signed."""
        (last, when), now = self._said, time.monotonic()
        if now < when + _NEWS or (arrivals := self._shuffler.arrivals()) is None:
            return
        if arrivals != last or now >= when + _NO_NEWS:
            self._said = arrivals, now
            self._sent("/v1/arrivals", self._shuffler.said(arrivals).to_bytes())

    def _batch(self) -> None:
        while self._fetched and (waiting := self._shuffler.waiting_batch()) is not None:
            name, batch = waiting
            try:
                self._sent("/v1/batch", batch)
            except ServerError as refusal:
                if not refusal.for_good:
                    raise
                log.error("the analyzer refuses the batch for good: %s", str(refusal).strip()[:200])
                self._shuffler.refused(name)  # as it is, it will never be taken
            else:
                self._shuffler.forwarded(name)

    def _exclusions(self) -> None:
        """Where reports are checked: which of each batch are left out."""
        while self._fetched and (name := self._shuffler.awaiting_exclusions()) is not None:
            if not (data := self._sent(f"/v1/exclusions/{name}")):
                return
            self._shuffler.exclude(Document.from_bytes(data))

    def _release(self) -> None:
        """One sum over the others, until the analyzer has it."""
        while self._fetched and (waiting := self._shuffler.waiting_release()) is not None:
            name, release = waiting
            self._sent("/v1/release", release)
            self._shuffler.released(name)

    def _wipe(self) -> None:
        if self._shuffler.store.unwiped:
            self._shuffler.store.wipe()
            if self._shuffler.store.unwiped:
                log.warning("another process is reading the database: deleted data is still in its log")

    def _sent(self, path: str, body: bytes | None = None) -> bytes:
        return self._server.send(path, body)
