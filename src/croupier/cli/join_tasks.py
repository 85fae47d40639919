"""Which tasks `croupier join` answers: the shuffler's only one, or those of many that its owner's limits allow; and rehearsals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..service.analyzer.task_file import public_key
from ..service.client.budget import DeviceBudget
from ..service.client.client import TOO_LATE, Client
from ..service.client.tasks import ListedTask, folder_of, listed_tasks, trusted_keys
from ..service.net.http import Server, ServerError, require_private_way
from ..service.wire.documents import TASK, Document, WireError, cleaned
from ..service.wire.outcomes import RefusedTaskError
from ..service.wire.task import Task
from ..table.read import Dialect
from ..validation import ArgumentError, Found
from .progress import Stopped, messages, say
from .task_time import duration

T = TypeVar("T")
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# Answers, or none, after which asking again may help.
_LATER = (None, 409, 429, 500, 502, 503, 504)
# People of a rehearsal who talk at the same time.
_TALKING = 8


def patiently(ask: Callable[[], T], deadline: float) -> T:
    """Ask the shuffler; if it cannot be reached or says to come later, ask again until the time is up."""
    pause = _PAUSE
    while True:
        try:
            return ask()
        except ServerError as problem:
            if problem.status not in _LATER or time.monotonic() >= deadline:
                raise
            if pause == _PAUSE:
                cause = f"{problem.status or 'nothing'}: {str(problem).strip()}"
                say(messages(), f"The shuffler answered {cause}. Retrying for {duration(deadline - time.monotonic())}.")
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(1.2 * pause, _LONGEST_PAUSE)


@dataclass(frozen=True)
class _Task:
    """A task that can be joined: its address, whose it is, and where is remembered what was answered."""

    name: str
    address: str
    key: str
    folder: Path
    state: str = "running"


@dataclass(frozen=True)
class TasksAt:
    """The tasks of a shuffler, for a device that knows some analyzers' keys."""

    shuffler: str
    keys: Sequence[str]  # known from elsewhere than the shuffler
    folder: Path
    deadline: float
    options: dict[str, Any]  # of every client: what its owner accepts

    def tasks(self, names: Sequence[str] = (), *, states: Sequence[str] = ("running", "paused")) -> list[_Task]:
        """The tasks that are signed by a known key or its successors; all of them, or those with these names or ids."""
        require_private_way(self.shuffler)
        server, base = Server(self.shuffler, ca=self.options["ca"]), self.shuffler.rstrip("/")
        listed = patiently(lambda: listed_tasks(server), self.deadline)
        if listed is None:  # a shuffler of one task
            if names:
                raise ArgumentError("--task", names[0], "left out: this shuffler serves one task", "Remove it.")
            return [_Task("", base, self._signer(server), self.folder)]
        while not self._chosen(listed, names, states) and time.monotonic() < self.deadline:  # one may be about to begin
            time.sleep(_PAUSE)
            listed = patiently(lambda: listed_tasks(server), self.deadline) or []
        trusted = patiently(lambda: trusted_keys(server, self.keys, self.folder), self.deadline)
        chosen = self._chosen(listed, names, states)
        known = [one for one in chosen if one.analyzer in trusted]
        for name in names:
            if not any(name in (one.name, one.task) for one in known):
                stranger = any(name in (one.name, one.task) for one in chosen)
                why = "is signed by a key that you do not know" if stranger else "is not a running task of this shuffler"
                raise ArgumentError("--task", Found(f"{name} {why}"), "one that --tasks lists", "Check the name and the keys.")
        return [_Task(one.name, base + one.path, one.analyzer, folder_of(self.folder, one.task), one.state) for one in known]

    def _chosen(self, listed: Sequence[ListedTask], names: Sequence[str], states: Sequence[str]) -> list[ListedTask]:
        return [one for one in listed if one.state in states and (not names or one.name in names or one.task in names)]

    def _signer(self, server: Server) -> str:
        """Which of several known keys has signed the only task; the first where there is no more than one."""
        if len(self.keys) == 1:
            return self.keys[0]
        document = Document.from_bytes(patiently(lambda: server.send("/v1/task"), self.deadline))
        for key in self.keys:
            try:
                document.said(TASK, public_key("--analyzer-key", key))
            except WireError:
                continue
            return key
        raise WireError("the task is signed by none of the keys that you know")

    def answer(self, names: Sequence[str], token: str, budget: DeviceBudget, take_part: Callable[[Client], None]) -> None:
        """Take part in all tasks within the limits, at the same time; in their order, until the budget allows no more."""
        tasks = self.tasks(names)
        if not tasks:
            raise Stopped("no task of an analyzer that you know is running here; nothing was sent", 0)
        if len(tasks) == 1:
            take_part(self._client(tasks[0], token, budget))
            return
        accepted = list(self._accepted(tasks, token, budget))
        if not accepted:
            raise Stopped("no task is within your limits; nothing was sent", 2)
        with ThreadPoolExecutor(len(accepted)) as pool:
            outcomes = list(pool.map(lambda one: _outcome(one[0], one[1], take_part), accepted))
        for text, _ in outcomes:
            say(messages(), text)
        if code := max(code for _, code in outcomes):
            raise Stopped("not all tasks were answered", code)

    def _accepted(self, tasks: Sequence[_Task], token: str, budget: DeviceBudget) -> Iterator[tuple[str, Client]]:
        """The tasks whose promises suffice, as long as all of them together are within the owner's limit."""
        planned: list[tuple[str, Any]] = []
        for one in tasks:
            client = self._client(one, token, budget)
            try:
                task = client.task()
                budget.check(task.id, task.schedule.guarantee, besides=planned)
            except (RefusedTaskError, WireError) as refusal:
                say(messages(), f"{one.name} is left out: {refusal}")
            except ServerError as problem:
                say(messages(), f"{one.name} is left out: it has not begun ({str(problem).strip()})")
            else:
                planned.append((task.id, task.schedule.guarantee))
                yield one.name, client

    def _client(self, one: _Task, token: str, budget: DeviceBudget | None, **more: Any) -> Client:
        return Client(one.address, token, one.key, folder=one.folder, budget=budget, **self.options, **more)

    def show(self, budget: DeviceBudget) -> None:
        """Show the tasks of known analyzers, what each promises, and whether the limits allow it."""
        table = Table("name", "state", "task", "what it says", "users", "reveals", "you", box=None, pad_edge=False)
        for one in self.tasks(states=("running", "paused", "ended")):
            client, words, verdict = self._client(one, "-", budget), ["-", "-", "-", "-"], "would join"
            try:
                server = Server(one.address, ca=self.options["ca"])
                task = Task.read(Document.from_bytes(server.send("/v1/task")), public_key("--analyzer-key", one.key))
                figures = client.demands.figures(task).removeprefix("the task reveals ")
                words = [task.id[:8], cleaned(task.name) or "-", f"{task.users:,}", figures]
                client.demands.check(task)
                budget.check(task.id, task.schedule.guarantee)
            except (RefusedTaskError, ServerError, WireError) as problem:
                verdict = str(problem).strip()
            table.add_row(one.name or "-", one.state, *map(Text, words), Text(verdict))
        Console(soft_wrap=True).print(table)

    # A rehearsal: everybody at once, on this machine.

    def rehearse(self, names: Sequence[str], tokens: Path, data: Path, dialect: Dialect) -> None:
        """Take part as many synthetic people, one row of a table each: answers leave when ready, and each person has a ledger."""
        people = tokens.read_text().split()
        say(messages(), f"{len(people):,} people of {tokens} take part with one row of {data} each; use synthetic records only.")
        for one in self.tasks(names):
            clients = [
                Client(one.address, token, one.key, folder=one.folder / "rehearsal" / str(place), at_once=True, **self.options)
                for place, token in enumerate(people)
            ]
            task = patiently(clients[0].task, self.deadline)
            if task.query.remembers:
                raise ArgumentError(
                    "--rehearse", str(tokens), "left out for a task that takes days", "A stream cannot be rehearsed."
                )
            X, y = task.query.read_file(data, dialect)
            if len(X) < len(people):
                raise ArgumentError("--data", str(data), f"a table of {len(people):,} rows, one per token", f"It has {len(X):,}.")
            targets = [None] * len(people) if y is None else [y[who : who + 1] for who in range(len(people))]
            rows = [X[who : who + 1] for who in range(len(people))]
            with ThreadPoolExecutor(_TALKING) as pool:
                answers = sum(pool.map(partial(self._play, task), clients, rows, targets))
            say(messages(), f"{one.name or 'The task'}: {answers:,} answers were taken.")

    def _play(self, task: Task, client: Client, row: Any, target: Any) -> int:
        """One person of a rehearsal, until nothing more is asked of it."""
        answers = 0
        once = task.schedule.interactivity == "sequential" and not (task.secret is not None and task.secret.cover)
        while time.monotonic() < self.deadline:
            try:
                sent = patiently(lambda: client.answer(lambda: (row, target)), self.deadline)
            except ServerError as late:
                if late.status != TOO_LATE:
                    raise
                return answers
            answers += sent is not None and not sent.cover
            if (once and answers) or (sent is None and patiently(client.ended, self.deadline) is not None):
                break
            if sent is None:
                time.sleep(_PAUSE)
        return answers


def _outcome(name: str, client: Client, take_part: Callable[[Client], None]) -> tuple[str, int]:
    """What happened to one of several tasks, in a line, and the exit code that it alone would have."""
    try:
        take_part(client)
    except Stopped as stopped:
        return f"{name}: {stopped}", stopped.code
    except (RefusedTaskError, WireError, ArgumentError) as refusal:
        return f"{name}: refused: {refusal}", 2
    except ServerError as problem:
        return (
            f"{name}: the shuffler answered {problem.status or 'nothing'}: {str(problem).strip()}. Run the command again later.",
            1,
        )
    return f"{name}: answered", 0
