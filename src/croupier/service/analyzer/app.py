"""The analyzer on the network: HTTP around `RemotePopulation`, for the shuffler and for whoever watches a run.

An analyzer of many tasks trains or asks each in a thread of its own, on its own database, signed by its own key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import secrets
import shutil
import threading
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from ...files import write_whole
from ..net.database import Database
from ..net.registry import KEEP_DAYS, Keyring, Operator, RegisteredTask, Registry, TaskState, check_name
from ..net.server import TASK, Careful, Loop, TurnOutcome, document_answer, hand_over, refusal_answer, role_app
from ..wire.documents import Document, WireError, hex_of
from ..wire.task import RefusedError, Task, TaskEndedError
from .dashboard import POLICY, Dashboard, page
from .population import ANALYZER, RemotePopulation
from .task_file import QueryFile, TaskFile, asks_question

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


log = logging.getLogger("croupier")
_LOOK, _LONGEST_LOOK = 0.5, 5.0
# Seconds for which an ended task is served, so that the shuffler hears of its end.
_LINGER = 30.0
# The words of a task file that name files beside it, and what a file may be called.
_FILES, _FILE = ("schema", "guess", "enroller", "model"), r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
# What of an ended task is deleted after some days; the results, and what was asked, stay.
_WORKING = ("analyzer.db", "run.journal")


def load_task(path: Path) -> TaskFile | QueryFile:
    """Read a task file, whatever it asks."""
    return QueryFile.load(path) if asks_question(path) else TaskFile.load(path)


def files_of(path: Path, shuffler_key: str | None = None) -> dict[str, str]:
    """A task file and the files that it names, by their names in one folder; the shuffler's key goes into the first."""
    text = path.read_text(encoding="utf-8")
    values, files = tomllib.loads(text), dict[str, str]()
    for word in _FILES:
        if isinstance(named := values.get(word), str):
            beside = path.parent / named
            files[beside.name] = beside.read_text(encoding="utf-8")
            text = re.sub(rf"^{word}\s*=.*$", f'{word} = "{beside.name}"', text, flags=re.M)
    if shuffler_key is not None:
        line = f'shuffler_key = "{shuffler_key}"'
        given = "shuffler_key" in values
        text = re.sub(r"^shuffler_key\s*=.*$", line, text, flags=re.M) if given else f"{line}\n{text}"
    if isinstance(output := values.get("output"), str):
        text = re.sub(r"^output\s*=.*$", f'output = "{Path(output).name}"', text, flags=re.M)
    return {"task.toml": text, **files}


class HostedPopulation(RemotePopulation):
    """The users of one task of several: while it is paused, nobody hears of a new round."""

    paused = False

    def current(self) -> Document | None:
        """Return the round that is waited for."""
        return None if self.paused else super().current()


@dataclass
class HostedTask:
    """One task: what was asked, by whom it is answered, and the thread that waits for that."""

    file: TaskFile | QueryFile
    folder: Path
    population: HostedPopulation
    app: ASGIApp
    stopped: threading.Event = field(default_factory=threading.Event)  # the host's word
    ended: threading.Event = field(default_factory=threading.Event)  # an operator's word
    thread: threading.Thread | None = None
    failed: str = ""  # why the thread could not go on


class AnalyzerHost:
    """All tasks of an analyzer's folder: begun, paused, ended and deleted as its registry says. Use it as a context.

    `work` trains a task's model or asks its question, and saves what came of it.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        work: Callable[[HostedTask], None],
        *,
        pool: Callable[[Task], Executor | None] = lambda task: None,
        keep_days: float = KEEP_DAYS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._work, self._pool, self._keep_days = work, pool, keep_days
        self.store = Database(url, ANALYZER)
        self.registry = Registry(self.store, folder, clock)
        self._keys = Keyring(folder)
        self._served: dict[str, HostedTask] = {}
        self._over: dict[str, ASGIApp] = {}
        self._lock = threading.Lock()
        self.loop = Loop("tasks", self.turn, pause=_LOOK, longest=_LONGEST_LOOK)

    def __enter__(self) -> AnalyzerHost:
        self.turn()
        self.loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.stop()
        for one in self._served.values():
            one.stopped.set()
            one.population.stop()
        for one in self._served.values():
            if one.thread is not None:
                one.thread.join()
            one.population.store.close()
        self.store.close()

    # For the front.

    def app(self, name: str) -> ASGIApp | RefusedError:
        """A task's app, or why there is none."""
        one = self._served.get(name)
        if one is not None:
            return one.app
        return self._over.get(name) or RefusedError(404, f"no task {name}")

    def only(self) -> str | None:
        """The name of the only task that is served."""
        live = list(self._served)
        return live[0] if len(live) == 1 else None

    def keys(self) -> list[Document]:
        """All successions of this analyzer's keys."""
        return self._keys.successions()

    def add(self, values: dict[str, Any], operator: Operator) -> str:
        """Add a task that an operator describes: its name, and the texts of its files."""
        name, files = values.get("name"), values.get("files")
        if set(values) != {"name", "files"} or not isinstance(name, str) or not isinstance(files, dict):
            raise RefusedError(400, "name and files are needed: a text, and texts by the names of files")
        add_files(self.registry, self._keys, name, files, operator)
        return name

    # The loop.

    def turn(self) -> TurnOutcome:
        """Do what the registry says, once; what fails for one task does not keep it from the others."""
        with self._lock:
            rows, outcome = self.registry.rows(), TurnOutcome.DONE
            for row in rows:
                try:
                    self._look_after(row)
                except (WireError, ValueError, OSError) as problem:
                    self.loop.note(row.name, logging.ERROR, f"task {row.name}: {problem}")
                    self.registry.note(row.name, str(problem))
                    outcome = TurnOutcome.WAITING
                else:
                    self.loop.worked(row.name)
            self._keys.prune({row.owner for row in rows if row.state is not TaskState.ENDED or row.name in self._served})
            return outcome

    def _look_after(self, row: RegisteredTask) -> None:
        one = self._served.get(row.name)
        if row.state is not TaskState.ENDED:
            if one is not None and one.failed and one.thread is not None and not one.thread.is_alive():
                one.population.store.close()
                del self._served[row.name]
                raise WireError(one.failed)  # it is begun again in the next turn: all of it is on disk
            if one is None:
                one = self._served[row.name] = self._begun(row)
            one.population.paused = row.state is TaskState.PAUSED
            self.registry.note(row.name, one.population.ending.refusal or "")
            return
        if one is None and row.name not in self._over and row.deleted is None and self._unheard(row):
            one = self._served[row.name] = self._begun(row)
        if one is not None and one.thread is not None:
            if one.thread.is_alive():  # ended by an operator: the thread says so to the shuffler, and ends
                one.ended.set()
                one.population.paused = True
                one.population.stop()
                return
            one.population.store.close()
        if row.name not in self._over:
            self._over[row.name] = _ended_app(self.registry.folder(row.name))
        self._served.pop(row.name, None)  # last: nobody hears that there is no such task
        if self.registry.due(row, self._keep_days):
            self.registry.delete(row.name, keep=lambda file: not file.name.startswith(_WORKING))
            log.info("what was stored of task %s was deleted, %g days after its end; its results stay", row.name, self._keep_days)

    def _unheard(self, row: RegisteredTask) -> bool:
        """Whether the shuffler has not heard of a task's end, and can still be told."""
        store = self.registry.database(row.name, "analyzer", ANALYZER)
        try:
            return not store.end_heard() and self._keys.of(row.owner) is not None
        finally:
            store.close()

    def _begun(self, row: RegisteredTask) -> HostedTask:
        folder = self.registry.folder(row.name)
        key = self._keys.of(row.owner)
        if key is None:
            raise WireError(f"the key {row.owner[:8]}... that signs this task is gone: bring the folder keys back")
        if not (folder / "task.toml").exists():
            raise WireError("its files are not here yet; if that stays so, end the task and add it anew under another name")
        file = load_task(folder / "task.toml")
        task, store = file.task(), self.registry.database(row.name, "analyzer", ANALYZER)
        try:
            population = HostedPopulation(task, store, key, pool=self._pool(task))
            population.paused = row.state is TaskState.PAUSED
            hosted = HostedTask(file, folder, population, analyzer_app(population))
        except BaseException:
            store.close()
            raise
        hosted.thread = threading.Thread(target=self._run, args=(row.name, hosted), name=f"task {row.name}", daemon=True)
        hosted.thread.start()
        return hosted

    def _run(self, name: str, one: HostedTask) -> None:
        """Train or ask, and say that the task has ended: the analyzer's signed word, until the shuffler has heard it."""
        TASK.set(name)
        why, population = "all rounds are done", one.population
        try:
            self._work(one)
        except KeyboardInterrupt:
            if not one.ended.is_set():
                return  # the host stops, and the task goes on when it is started again
            why = "the analyzer's operator has ended the task"
        except TaskEndedError as end:
            why = str(end)
        except Exception as problem:  # of one task alone: it is tried again
            log.exception("the task cannot go on now")
            one.failed = f"{type(problem).__name__}: {problem}"
            return
        early = None if why == "all rounds are done" else why[:500]
        population.store.insist(lambda: population.ending.declare(len(population.answered()), early), one.stopped.is_set)
        last = math.inf
        while not population.ending.wait(0.5, one.stopped) and not one.stopped.is_set() and time.monotonic() < last:
            if one.ended.is_set() and last == math.inf:
                last = time.monotonic() + _LINGER
        if not one.stopped.is_set() or population.ending.wait(0, one.stopped):
            self.registry.change(name, TaskState.ENDED, why=why)


def add_task_list(app: FastAPI, host: AnalyzerHost) -> None:
    """Show on the front page which tasks there are, with links to their pages; what anybody may know of them, as `/v1/tasks`."""

    @app.get("/")
    def listed() -> Response:
        rows = [row for row in host.registry.rows() if row.task is not None and row.deleted is None]
        items = "".join(f'<li><a href="tasks/{escape(row.name)}/">{escape(row.name)}</a>, {row.state}</li>\n' for row in rows)
        text = f"<ul>\n{items}</ul>" if rows else "<p>No task yet. <code>croupier serve task add</code> adds one.</p>"
        title = "Tasks of this analyzer"
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        return HTMLResponse(f"{head}<h1>{title}</h1>\n{text}\n</html>", headers={"Content-Security-Policy": ANSWER_POLICY})

    @app.get("/tasks/{name}")
    def page_of(name: str) -> Response:
        return RedirectResponse(f"./{name}/")


def _ended_app(folder: Path) -> ASGIApp:
    """What is left of a task that has ended: its pages, as long as its folder has them."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    def saved(file: Path, policy: str) -> Response:
        if not file.is_file():
            return refusal_answer(410, "this task has ended")
        return HTMLResponse(file.read_bytes(), headers={"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"})

    @app.get("/")
    def run() -> Response:
        return saved(folder / "run.html", POLICY)

    @app.get("/answer")
    def answer() -> Response:
        output = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8")).get("output", "answer.json")
        return saved(folder / Path(output).with_suffix(".html").name, ANSWER_POLICY)

    @app.get("/{rest:path}")
    @app.post("/{rest:path}")
    def over(rest: str) -> Response:
        return refusal_answer(410, "this task has ended")

    app.add_middleware(Careful)
    return app


def add_files(registry: Registry, keys: Keyring, name: str, files: Mapping[str, Any], operator: Operator | None = None) -> Task:
    """Write a task's files into a folder of its own, check that it can be served, and register it."""
    check_name(name)
    wrong = [file for file, text in files.items() if not re.fullmatch(_FILE, file) or not isinstance(text, str)]
    if wrong or "task.toml" not in files or any(file.startswith(_WORKING) for file in files):
        raise RefusedError(400, "files: a task.toml is needed, and plain names of texts beside it")
    try:
        values = tomllib.loads(files["task.toml"])
    except tomllib.TOMLDecodeError as problem:
        raise RefusedError(400, f"task.toml: {problem}") from None
    named = [values.get(word, "task.toml") for word in _FILES]
    if not all(isinstance(one, str) and one in files for one in named):  # whoever sends files reads none of this machine's
        raise RefusedError(400, f"{', '.join(_FILES)}: names of files that come with the task")
    if any(row.name == name for row in registry.rows()):
        raise RefusedError(409, f"there is, or was, a task {name}; take another name")
    folder = registry.folder(name)
    draft = folder.with_name(f".{name}.{secrets.token_hex(8)}")
    draft.mkdir(parents=True, mode=0o700)
    try:
        for file, text in files.items():
            write_whole(draft / file, text.encode(), private=True)
        asked = load_task(draft / "task.toml")
        if asked.output.parent.resolve() != draft.resolve():
            raise RefusedError(400, "output: a plain name is needed")
        task, key = asked.task(), keys.current
        registry.add(name, hex_of(key), operator=operator, task=task.id, signer=hex_of(key))
        draft.rename(folder)  # whoever begins the task before this tries again
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return task
