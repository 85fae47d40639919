"""A shuffler of many tasks of several analyzers: people are enrolled once, and each task has its own rounds, lots and database.

Who is drawn for a task and does not accept it is absent, as anybody who does not come: within the task's margin, or its turnout.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import FastAPI, Request, Response
from sqlalchemy import delete, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from starlette.types import ASGIApp

from ...privacy._crowd import honest_in_batch, honest_total
from ...protocol import SecureRandom
from ...protocol._sampling import permutation
from ..net.database import Database
from ..net.http import require_public
from ..net.registry import KEEP_DAYS, Keyring, Operator, RegisteredTask, Registry, TaskState
from ..net.server import _PAUSE, Careful, Loop, TurnOutcome, document_answer, refusal_answer
from ..wire.documents import TASK, Document, End, WireError, hex_of
from ..wire.task import RefusedError, Task
from .app import shuffler_app
from .relay import ADDRESS, AnalyzerRelay, Leadership
from .role import RoundClock, ShufflerRole
from .rounds import SHUFFLER, TOGETHER, Rounds, clients, forget_people, invitations

log = logging.getLogger("croupier")
# Seconds between two looks at the registry, at first and where looks fail.
_LOOK, _LONGEST_LOOK = 0.5, 5.0
# With more people enrolled than a task asks: the chance that those who are drawn hold fewer honest ones than the task counts on.
_DRAW = 1e-12
# Seconds after which all processes of a shuffler know that a task has ended, and take nothing more of it.
_OTHERS_HEAR = 10.0
# So many tasks look after their analyzers as often as one alone; more of them less often, so that looking takes no more in all.
_AS_OFTEN = 8


class HostedShuffler(ShufflerRole):
    """The role for one task of several: people are those of the service, and exactly as many as the task asks are drawn of them.

    Guarantee
    ---------
    Who is drawn is a uniformly random set of the people who are enrolled when the task begins, drawn once. If the share `honest` of
    these people is honest, at least the share that the task counts on is among those drawn, and a person's own batch holds as many
    honest ones as the task's plans count on, except with probability 1e-12 beyond the task's own.
    """

    def __init__(
        self,
        registry: Registry,
        row: RegisteredTask,
        store: Database,
        people: Database,
        keys: Keyring,
        *,
        smallest: int,
        honest: float | None,
        public: bool = False,
    ) -> None:
        self._public = public  # enrollers on this machine or in a private network are not asked
        self._registry, self._name, self._keys, self._honest_people = registry, row.name, keys, honest
        self._here: set[str] = set()  # people who were not drawn, and whose cover is taken
        analyzer = _public_key(row.owner)
        super().__init__(store, keys.current, analyzer, smallest=smallest, people=people)

    def take_task(self, document: Document) -> Task:
        """Serve this task from now on, by the key that it names: the current one, or an older one where it has begun."""
        values, begun = document.said(TASK, self._analyzer), self.store.task() is not None
        signer, name = str(values.get("shuffler")), str(values.get("id"))
        key = self._keys.of(signer) if begun else self._keys.current
        if key is None or hex_of(key) != signer:
            raise WireError(f"a task for the shuffler's key {signer[:8]}..., where new tasks name {hex_of(self._keys.current)}")
        self._key, self.rounds = key, Rounds(self.store, key, self._analyzer)
        if not begun:
            task = Task.read(document, self._analyzer)
            if self._public and task.enroller is not None:
                with suppress(OSError):  # a name that means nothing now: it is looked up again before anything is sent
                    require_public(task.enroller.address, "enroller")
            self._registry.claim(self._name, name, signer)
            self._draw(task)
        return super().take_task(document)

    def _draw(self, task: Task) -> None:
        """Put as many people as the task asks into its database: a uniformly random set of all who are enrolled."""
        # Whoever was invited is one of them, claimed or not: that a person's coming decided who is drawn, no proof would cover.
        waiting = select(invitations.c.client).where(invitations.c.token_hash.is_(None))
        enrolled = clients.c.token_hash.is_not(None) | clients.c.id.in_(waiting)
        with self._people.look() as connection:
            count = connection.execute(select(func.count()).select_from(clients).where(enrolled)).scalar_one()
            self._require_crowd(task, count)
            names = connection.execute(select(clients.c.id).where(enrolled).order_by(clients.c.id)).scalars().all()
        drawn = [names[who] for who in permutation(SecureRandom(), len(names))[: task.users].tolist()]
        with self.store.begin() as connection:
            connection.execute(delete(clients))  # of a draw that came to nothing: nobody was asked
            for first in range(0, len(drawn), TOGETHER):
                connection.execute(insert(clients), [{"id": name} for name in drawn[first : first + TOGETHER]])

    def _require_crowd(self, task: Task, count: int) -> None:
        """Refuse a task for more people than there are, or one whose honest share could be missed by the draw."""
        if count < task.users:
            raise WireError(f"a task for {task.users} users, drawn by lot, where {count} are enrolled: enrol them first")
        if count == task.users or task.schedule.honest == 1:
            return
        wanted = honest_total(task.users, task.schedule.honest)
        premise = self._honest_people
        if premise is None or honest_in_batch(count, premise, task.users, _DRAW) < wanted:
            said = "nothing is said of them" if premise is None else f"the share {premise:g} of them is honest"
            raise WireError(
                f"a task that counts on {wanted} honest ones of {task.users} users, where {count} are enrolled and {said}: a draw "
                "could hold fewer. Ask all of them, or let the shuffler's --honest say more"
            )

    def clients_of(self, tokens: Sequence[str]) -> list[str | RefusedError]:
        """Return whose tokens they are. Where everybody sends cover, also those who were not drawn can."""
        names = super().clients_of(tokens)
        if self.task is not None and self.task.secret is not None and self.task.secret.cover:
            new = sorted({name for name in names if isinstance(name, str)} - self._here)
            if new:
                with self.store.begin() as connection:
                    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
                    connection.execute(dialect.insert(clients).on_conflict_do_nothing(), [{"id": name} for name in new])
                self._here |= set(new)
        return names


class _HostLoop(Loop):
    """The host's loop, which is not healthy where one of its tasks' is not."""

    def __init__(self, host: ShufflerHost) -> None:
        super().__init__("tasks", host.turn, pause=_LOOK, longest=_LONGEST_LOOK)
        self._host = host

    def trouble(self) -> str:
        return "; ".join(filter(None, [super().trouble(), *self._host.troubles()]))


class _Serving:
    """One task that has not ended: its role, its app, and its errands."""

    def __init__(self, role: HostedShuffler, app: ASGIApp, relay: AnalyzerRelay) -> None:
        self.role, self.app, self.relay = role, app, relay
        self.forgotten = False  # what people sent, while an errand was still under way


def ended_app(document: Document, end: Document) -> ASGIApp:
    """What is left of a task that its analyzer has ended: its document, and the word that it has ended."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/v1/task")
    async def task(request: Request) -> Response:
        return document_answer(document)

    @app.get("/v1/end")
    async def ended(request: Request) -> Response:
        return document_answer(end)

    @app.get("/v1/round")
    async def current(request: Request) -> Response:
        return document_answer(None)

    @app.post("/v1/report")
    async def report(request: Request) -> Response:
        return refusal_answer(410, "the task has ended")

    app.add_middleware(Careful)
    return app


class ShufflerHost:
    """All tasks of a shuffler's folder: begun, paused, ended and deleted as its registry says. Use it as a context."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *,
        app: Callable[[ShufflerRole, Loop], ASGIApp] = shuffler_app,
        smallest: int = 2,
        honest: float | None = None,
        keep_days: float = KEEP_DAYS,
        enroller_ca: Path | None = None,
        private_enrollers: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`private_enrollers`: also tasks of analyzers with tokens may name enrollers in private networks."""
        self._enroller_ca, self._private_enrollers = enroller_ca, private_enrollers
        self._app, self._smallest, self._honest, self._keep_days, self._clock = app, smallest, honest, keep_days, clock
        self.people = Database(url, SHUFFLER)
        self.store, self.clock = self.people, RoundClock(self.people)  # of invitations, too
        self.registry = Registry(self.people, folder, clock)
        self._keys = Keyring(folder)
        self._served: dict[str, _Serving] = {}
        self._over: dict[str, ASGIApp | RefusedError] = {}  # tasks that have ended
        self._lock = threading.Lock()
        self._leadership, self._leads = Leadership(self.people), False
        self.loop: Loop = _HostLoop(self)

    def __enter__(self) -> ShufflerHost:
        self.turn()
        self.loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.stop()
        for one in self._served.values():
            one.relay.loop.stopping()
        for one in self._served.values():
            one.relay.__exit__()
            one.role.store.close()
        self._leadership.close()
        self.people.close()

    # For the front.

    def troubles(self) -> list[str]:
        """Why the errands of tasks are not healthy; empty texts where they are."""
        return [one.relay.loop.trouble() for one in list(self._served.values())]

    def app(self, name: str) -> ASGIApp | RefusedError:
        """A task's app, or why there is none."""
        one = self._served.get(name)
        return one.app if one is not None else self._over.get(name, RefusedError(404, f"no task {name}"))

    def only(self) -> str | None:
        """The name of the only task that is served."""
        live = list(self._served)
        return live[0] if len(live) == 1 else None

    def add(self, values: dict[str, Any], operator: Operator) -> str:
        """Add a task that an operator describes: its name, the analyzer's address of it, and the analyzer's key."""
        name, address, key = (values.get(word) for word in ("name", "analyzer", "analyzer_key"))
        if set(values) != {"name", "analyzer", "analyzer_key"} or not all(isinstance(word, str) for word in (name, address, key)):
            raise RefusedError(400, "name, analyzer and analyzer_key are needed, texts each")
        self.registry.add(str(name), checked_key(str(key)), checked_address(str(address)), operator=operator)
        return str(name)

    def keys(self) -> list[Document]:
        """All successions of signing keys that are known here: of analyzers, and of this shuffler."""
        return [*self.registry.successions(), *self._keys.successions()]

    # The loop.

    def turn(self) -> TurnOutcome:
        """Do what the registry says, once; what fails for one task does not keep it from the others."""
        with self._lock:
            self._leads, outcome = self._leadership.held(), TurnOutcome.DONE
            rows = self.registry.rows()
            for row in rows:
                try:
                    self._look_after(row)
                except (WireError, ValueError, OSError) as problem:
                    self.loop.note(row.name, logging.ERROR, f"task {row.name}: {problem}")
                    self.registry.note(row.name, str(problem))
                    outcome = TurnOutcome.WAITING
                else:
                    self.loop.worked(row.name)
            live = [row for row in rows if row.state is not TaskState.ENDED]
            if self._leads:
                self._keys.prune({row.signer for row in live if row.signer is not None})
            for one in self._served.values():
                one.relay.loop.slow_down(_PAUSE * max(1.0, len(live) / _AS_OFTEN))
            return outcome

    def _look_after(self, row: RegisteredTask) -> None:
        if row.state is TaskState.ENDED:
            self._finish(row)
            return
        if row.name not in self._served:
            self._served[row.name] = self._begun(row)
        one = self._served[row.name]
        one.relay.paused = row.state is TaskState.PAUSED
        if self._leads:
            self.registry.note(row.name, one.relay.loop.causes())
            if (end := one.role.end()) is not None and one.role.task is not None:
                self.registry.change(row.name, TaskState.ENDED, why=str(End.read(end, one.role.task.id, _public_key(row.owner))))

    def _begun(self, row: RegisteredTask) -> _Serving:
        store = self.registry.database(row.name, "shuffler", SHUFFLER)
        try:
            # whoever has a token adds tasks by itself; what the operator adds, the operator has looked at
            public = not self._private_enrollers and self.registry.has_token(row.owner)
            limits: dict[str, Any] = {"smallest": self._smallest, "honest": self._honest, "public": public}
            role = HostedShuffler(self.registry, row, store, self.people, self._keys, **limits)
            certificates: dict[str, Any] = {"ca": Path(row.ca) if row.ca else None, "enroller_ca": self._enroller_ca}
            certificates |= {"public": public}
            relay = AnalyzerRelay(role, row.address, **certificates, leads=lambda: self._leads, name=row.name)
        except BaseException:
            store.close()
            raise
        relay.paused = row.state is TaskState.PAUSED
        serving = _Serving(role, self._app(role, relay.loop), relay)
        relay.__enter__()
        return serving

    def _finish(self, row: RegisteredTask) -> None:
        """No more errands. What people sent is deleted now, all else days later; until then it can be asked how the task ended."""
        one = self._served.get(row.name)
        if one is not None:
            if one.role.end() is None:
                one.app = _over(RefusedError(410, "this task was ended by an operator"))
            if one.relay.loop.stopping():
                if self._leads and not one.forgotten:  # an analyzer that answers slowly does not keep what people sent
                    forget_people(one.role.store)
                    one.forgotten = True
                return  # nor anybody else waiting
            if self._leads and one.role.end() is None:
                reason = "the shuffler's operator has ended the task"
                threading.Thread(target=one.relay.refuse, args=(reason,), name="refusal", daemon=True).start()
            one.relay.__exit__()
            self._over[row.name] = self._left_of(one.role.store)  # first: nobody hears that there is no such task
            self._served.pop(row.name)
            one.role.store.close()
        if row.deleted is not None:
            self._over[row.name] = RefusedError(410, "this task has ended, and was deleted")
        elif self._leads and self.registry.due(row, self._keep_days):
            self.registry.delete(row.name)
            log.info("task %s was deleted, %g days after its end", row.name, self._keep_days)
        elif row.name not in self._over or (self._leads and not row.cleared):
            store = self.registry.database(row.name, "shuffler", SHUFFLER)
            try:
                self._over[row.name] = self._left_of(store)
                if self._leads:
                    forget_people(store)
                    if self._clock() >= (row.ended or 0.0) + _OTHERS_HEAR:
                        self.registry.cleared(row.name)
            finally:
                store.close()

    def _left_of(self, store: Database) -> ASGIApp | RefusedError:
        document, end = store.task(), store.end()
        if document is None or end is None:
            return RefusedError(410, "this task was ended by an operator")
        return ended_app(document, end)


def _over(why: RefusedError) -> ASGIApp:
    """An app that refuses everything."""
    return Careful(refusal_answer(why.status, str(why)))


def _public_key(key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))


def checked_key(key: str) -> str:
    """An analyzer's public key, 64 hex digits, small ones."""
    try:
        return hex_of(_public_key(key))
    except ValueError:
        raise RefusedError(400, "analyzer_key: 64 hex digits are needed") from None


def checked_address(address: str) -> str:
    """An address of an analyzer's task."""
    if not re.fullmatch(ADDRESS, address):
        raise RefusedError(400, "analyzer: an address like https://host:port/tasks/NAME is needed")
    return address.rstrip("/")
