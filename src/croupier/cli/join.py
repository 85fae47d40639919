"""`croupier join`: take part in a task with your own records, which stay on this machine."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..privacy._statements import exact
from ..service.analyzer.task_file import public_key
from ..service.client.budget import DEFAULT_LIMIT, BudgetLimit, DeviceBudget, period_of, period_text
from ..service.client.client import MAX_REPORT_BYTES, TOO_LATE, Client, run_in_thread
from ..service.client.state import InvitationLink, ListedTask, Memory, claimed_token, folder_of, listed_tasks, trusted_keys
from ..service.net.http import Server, ServerError, require_private_way
from ..service.wire.documents import TASK, Document, End, WireError, cleaned
from ..service.wire.queries import TaskQuery
from ..service.wire.task import MAX_EPSILON_IF_WATCHED, Lot, RefusedTaskError, Task
from ..table._read import Dialect
from ..validation import ArgumentError, Found
from .terminal import Decimal, Encoding, Sep, Stopped, clock_text, duration, length_line, messages, say, usual_wait

T = TypeVar("T")
# Seconds between two looks for a round: at first, and at most (of a round that ends by the clock, at most an eighth of it).
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# Seconds to wait for the task itself (default of --wait), and the least that a rehearsal may take.
_NO_TASK, _REHEARSAL = 60.0, 600.0
# Exit code where nothing was sent, or not all, and it was not the task's last word: run it again.
_NOT_DONE = 1


def join(  # noqa: PLR0912  (a table of what may be asked)
    data: Annotated[Path | None, typer.Option(help="Your records: CSV or Parquet, with the columns of the task's schema.")] = None,
    shuffler: Annotated[str | None, typer.Option(help="The shuffler's address.")] = None,
    analyzer_key: Annotated[
        list[str] | None,
        typer.Option(help="An analyzer's public key, obtained independently of the shuffler; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="Name of a task, if the shuffler serves several; repeatable. Default: all within your limits."),
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="List the tasks and what each would reveal; answer nothing.")] = False,
    rehearse: Annotated[
        Path | None,
        typer.Option(help="File of tokens: take part as all of them, with one row of --data each. For synthetic records only."),
    ] = None,
    token: Annotated[str | None, typer.Option(help="Enrolment token; default: the variable CROUPIER_TOKEN.")] = None,
    link: Annotated[
        str | None,
        typer.Option(envvar="CROUPIER_LINK", help="Invitation link; replaces --shuffler, --analyzer-key and --token."),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Folder that remembers what was answered.")] = Path(".croupier"),
    max_epsilon: Annotated[float, typer.Option(help="Largest epsilon to accept for the whole task.")] = 1.0,
    max_delta: Annotated[float, typer.Option(help="Delta of --max-epsilon.")] = 1e-6,
    max_epsilon_if_watched: Annotated[
        float,
        typer.Option(
            help="With secret lots: largest epsilon to accept against an attacker who also knows when each user answered; inf: any."
        ),
    ] = MAX_EPSILON_IF_WATCHED,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust instead of the system's.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    wait: Annotated[
        float | None, typer.Option(help="Seconds to wait for your rounds; default: until the task should be over.")
    ] = None,
    budget_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Largest epsilon of all tasks of all analyzers together per period; it is remembered. Default: "
            f"the ledger's limit, or {exact(DEFAULT_LIMIT.epsilon)}."
        ),
    ] = None,
    budget_delta: Annotated[float, typer.Option(help="Delta of --budget-epsilon.")] = 1e-5,
    period: Annotated[str, typer.Option(help="Length of a period in hours, days or weeks, such as 365d.")] = "365d",
    budget_file: Annotated[
        Path, typer.Option(envvar="CROUPIER_BUDGET_FILE", help="Ledger of everything you have answered, shared by all tasks.")
    ] = Path("~/.croupier/budget.json"),
    invitation: Annotated[
        str | None,
        typer.Option(envvar="CROUPIER_INVITATION", help="Your invitation from the task's enroller, if the task has one."),
    ] = None,
    enroller_ca: Annotated[Path | None, typer.Option(help="Certificates to trust for the enroller.")] = None,
    enroller: Annotated[
        str | None,
        typer.Option(
            envvar="CROUPIER_ENROLLER",
            help="The enroller's address, which came with the invitation; no other server sees the invitation.",
        ),
    ] = None,
    max_report_bytes: Annotated[int, typer.Option(help="Longest report to send, in bytes.")] = MAX_REPORT_BYTES,
    ledger: Annotated[bool, typer.Option("--ledger", help="Show the ledger; answer nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --ledger: print JSON.")] = False,
) -> None:
    """Answer a task's rounds from this machine. It checks the task's signature and promise here; records do not leave it.

    With --ledger: show what all tasks together may have learned about you, and what is left of your budget.
    """
    budget = DeviceBudget(budget_file)
    opened = None if link is None else InvitationLink.read(link)
    if opened is not None:
        shuffler, analyzer_key, enroller = _pinned(opened, shuffler, analyzer_key, enroller)
        token, invitation = opened.token, invitation or opened.invitation
    if (data is not None or shuffler is not None) and rehearse is None:
        budget.require(answered=Memory(folder.expanduser()).has_answered())
    if budget_epsilon is not None:
        _remember(budget, BudgetLimit(budget_epsilon, budget_delta, period_of(period)))
    if ledger or (budget_epsilon is not None and data is None and shuffler is None):
        _show(budget, as_json)
        return
    given = {"--data": data or tasks, "--shuffler": shuffler, "--analyzer-key": analyzer_key}
    if shuffler is None or not analyzer_key or not given["--data"]:
        missing = next(name for name, value in given.items() if not value)
        raise ArgumentError(missing, None, "given", "croupier join --help explains each option.")
    for key in analyzer_key:
        public_key("--analyzer-key", key)
    secret = token or (opened.code if opened else None) or os.environ.get("CROUPIER_TOKEN")
    if not secret and rehearse is None and not tasks:
        raise ArgumentError("--token", None, "given, or in CROUPIER_TOKEN", "Ask the shuffler's operator for one.")
    if budget.limit() is None and rehearse is None and not tasks:
        budget.allow(DEFAULT_LIMIT)
        say(messages(), f"Your ledger had no limit; it is now {DEFAULT_LIMIT}. Change it with --budget-epsilon.")
    if opened is not None and opened.code is not None and not tasks:
        secret = _claimed(folder.expanduser(), shuffler, opened.code, ca)
    options = {
        "max_epsilon": max_epsilon,
        "max_delta": max_delta,
        "max_epsilon_if_watched": max_epsilon_if_watched,
        "ca": ca,
        "invitation": invitation,
        "enroller_ca": enroller_ca,
        "enroller": enroller,
        "max_report_bytes": max_report_bytes,
    }
    longest = max(_NO_TASK if wait is None else wait, 0.0 if rehearse is None else _REHEARSAL)
    place = TasksAt(shuffler, analyzer_key, folder.expanduser(), time.monotonic() + longest, options)
    dialect = Dialect(sep, decimal, encoding)
    try:
        if tasks or data is None:
            place.show(budget)
        elif rehearse is not None:
            place.rehearse(task or [], rehearse, data, dialect)
        else:
            place.answer(task or [], str(secret), budget, partial(_answer, data=data, dialect=dialect, wait=wait))
    except (RefusedTaskError, WireError) as refusal:
        raise Stopped(f"refused: {refusal}", 2) from None
    except ServerError as problem:
        raise Stopped(
            f"the shuffler answered {problem.status or 'nothing'}: {str(problem).strip()}. Run the command again later.", 1
        ) from None


def _pinned(
    link: InvitationLink, shuffler: str | None, analyzer_keys: list[str] | None, enroller: str | None
) -> tuple[str, list[str], str | None]:
    """The servers that a link pins; an option that names another one is refused."""
    for name, said, pinned in (
        ("--shuffler", shuffler, link.shuffler),
        *[("--analyzer-key", key, link.analyzer) for key in analyzer_keys or []],
        ("--enroller", enroller, link.enroller),
    ):
        if said is not None and said.rstrip("/") != (pinned or "").rstrip("/"):
            raise ArgumentError(name, said, f"left out, or {pinned}, which the link pins", "A link cannot be overridden.")
    return link.shuffler, [link.analyzer], link.enroller


def _claimed(folder: Path, shuffler: str, code: str, ca: Path | None) -> str:
    server = Server(shuffler, ca=ca)
    try:
        return claimed_token(folder, server, code)
    except ServerError as problem:
        raise Stopped(
            f"the shuffler answered {problem.status or 'nothing'}: {str(problem).strip()}. Run the command again later.", 1
        ) from None
    finally:
        server.close()


def _answer(client: Client, data: Path, dialect: Dialect, wait: float | None) -> None:
    """Answer every round that asks this user, until the task needs no more of them or the time is up."""
    deadline = time.monotonic() + (_NO_TASK if wait is None else wait)
    task = patiently(client.task, deadline)
    if wait is None:
        deadline = time.monotonic() + usual_wait(task)
    _collect(client, task, deadline)
    first_ask, lot = time.monotonic() + task.pace, _lot(client, task, deadline)
    often = task.schedule.interactivity == "full" or (task.secret is not None and task.secret.cover)
    first_ask += lot.wait if lot is not None and not often else 0.0
    query = _table_query(task, data)
    read = partial(query.read_file, data, dialect)
    reading = run_in_thread(read)
    # From here on every request is at a time that does not depend on what is in the file. Only a file that is refused ends this.
    time.sleep(max(0.0, first_ask - time.monotonic()))
    if reading.done() and not task.query.blanks:
        reading.result()
    longest = _LONGEST_PAUSE if task.secret is None else min(_LONGEST_PAUSE, task.secret.seconds / 8)
    answered, end, missed, pause = 0, None, False, _PAUSE
    while (often or client.answered() == 0 or client.waits()) and answered < task.schedule.rounds:
        try:
            # days go by between the rounds of a query that remembers: its records are read anew
            sent = patiently(lambda: client.answer(read if query.remembers else reading.result), deadline)
        except ServerError as late:
            if late.status != TOO_LATE:
                raise
            say(messages(), "The shuffler says that a report came too late. It counts as spent anyway, and is not sent again.")
            continue
        if sent is not None:
            answered, pause = answered + 1, _PAUSE
            what = f"Covered round {sent.round}" if sent.cover else f"Answered round {sent.round}"
            say(messages(), f"{what}; only sealed noise left this machine.")
            if sent.blank:
                say(messages(), f"It was blank: {_why_blank(reading, task)}.")
            if sent.cover and sent.round == task.schedule.rounds:
                break
        elif time.monotonic() >= deadline or (end := patiently(client.ended, deadline)) is not None:
            break
        elif lot is not None and not often and _is_over(client, lot, deadline):
            missed = True
            break
        else:
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(1.2 * pause, longest)
    _conclude(client, task, answered, end, missed)


def _is_over(client: Client, lot: Lot, deadline: float) -> bool:
    """Whether a later round than this user's is open, by the analyzer's signed word."""
    number = patiently(client.open_round, deadline)
    return number is not None and lot.round is not None and number > lot.round


def _conclude(client: Client, task: Task, answered: int, end: End | None, missed: bool) -> None:
    """Say what happened if not everything was answered; the exit code says whether to run it again."""
    rounds = max(phase.rounds for phase in task.schedule.phases)
    if answered:
        if task.schedule.interactivity == "full" and not task.query.remembers and end is None and client.answered() < rounds:
            raise Stopped(
                f"{client.answered()} of {rounds} rounds were answered in time; run the same command to resume", _NOT_DONE
            )
        return
    if client.answered():
        what = "no other round is open" if task.query.remembers else "is not asked again"
        raise Stopped(f"this user has already answered the task, and {what}; nothing was sent", 0)
    if end is not None:
        raise Stopped(f"{str(end).rstrip('.')}; this user has not answered, and nothing was sent", _NOT_DONE)
    if missed:
        raise Stopped(
            "this user's round is over, and no other round asks this user; nothing was sent. Start earlier next time", _NOT_DONE
        )
    raise Stopped("no round asked this user in time; nothing was sent. Run the same command again", _NOT_DONE)


def _collect(client: Client, task: Task, deadline: float) -> None:
    """Get this user's tokens where the task has an enroller, and say who sees the invitation if nobody was demanded."""
    if task.enroller is not None and client.demands.enroller is None:
        say(
            messages(),
            f"Tokens come from {task.enroller.address}, which only the task vouches for; pin the enroller with --enroller.",
        )
    patiently(client.collect, deadline)


def _lot(client: Client, task: Task, deadline: float) -> Lot | None:
    """Say on this terminal when this user is asked and what is promised; refuse to wait where the time would not do."""
    if task.secret is None:
        say(
            messages(),
            f"{length_line(task)} This command waits for up to {duration(deadline - time.monotonic())} until it has answered.",
        )
        return None
    lot = patiently(client.lot, deadline)
    figures = client.demands.figures(task)
    say(messages(), f"{figures[0].upper()}{figures[1:]}.")
    cover = task.secret.cover
    if lot.round is None:
        if not cover:
            raise Stopped("no round asks this user; nothing was sent", 0)
        say(messages(), "No round asks this user, who sends cover traffic only.")
        return lot
    last = duration(task.secret.seconds)
    begins = "may be open now" if lot.wait == 0 else f"begins {clock_text(lot.wait)} at the earliest, in {duration(lot.wait)},"
    number = f"{lot.round} of {task.schedule.rounds}"
    say(messages(), f"This user's round is {number}, {begins} and takes answers for {last}. Keep this secret.")
    if cover or client.answered():
        return lot
    if time.monotonic() + lot.wait >= deadline:
        raise Stopped(f"run it again {clock_text(lot.wait)}, or without --wait, which waits by itself. Nothing was sent", _NOT_DONE)
    say(messages(), "Leave this running: it will answer then, and end.")
    return lot


def _remember(budget: DeviceBudget, limit: BudgetLimit) -> None:
    before = budget.allow(limit)
    if before is not None and before != limit:
        say(messages(), f"The limit is now {limit}; it was {before}.")


def _show(budget: DeviceBudget, as_json: bool) -> None:
    """The ledger, as a table or as JSON."""
    values = budget.to_dict()
    if as_json:
        typer.echo(json.dumps(values, indent=1))
        return
    limit = budget.limit()
    delta = values["delta"]
    table = Table(box=None, pad_edge=False)
    for head in (
        "task",
        "name",
        "analyzer",
        "first answer",
        "last answer",
        "answers",
        f"epsilon at delta {delta}",
        "if watched",
        "counts now",
    ):
        table.add_column(head, overflow="fold")
    for task in values["tasks"]:
        words = (
            task["task"][:8],
            Text(task["name"] or "-"),  # letters alone: an analyzer's brackets are no markup
            task["analyzer"][:8],
            task["first"],
            task["last"],
            str(task["answers"]),
        )
        table.add_row(*words, task["epsilon"], task["epsilon if watched"], "yes" if task["counts"] else "no")
    console = Console(soft_wrap=True)
    if values["tasks"]:
        console.print(table)
    else:
        typer.echo("No task has been answered yet.")
    typer.echo(f"All tasks together: epsilon {values['epsilon']} at delta {delta}, at any time.")
    typer.echo(
        "Against an attacker who also knows when you answered, even if the shuffler reveals it: "
        f"epsilon {values['epsilon if watched']} at delta {delta}."
    )
    if limit is None:
        typer.echo("There is no limit; set one with --budget-epsilon.")
        return
    used = values["limit"]
    typer.echo(
        f"Limit: {limit}. Used in the last {period_text(limit.seconds)}: {used['used of mu^2']} of mu^2, "
        f"{used['used of slack']} of slack."
    )


def _why_blank(reading: Future[Any], task: Task) -> str:
    """Why an answer says nothing about the records, for the person who holds them."""
    if task.query.blanks and reading.done() and (problem := reading.exception()) is not None:
        return f"the records cannot be read ({str(problem).rstrip('.')})"
    return f"the records were not ready {task.pace / 2:g} seconds after the round opened"


def _table_query(task: Task, data: Path) -> TaskQuery:
    """What makes rows and targets of this user's records, as the task's public facts say."""
    if task.query.columns is None:
        raise ArgumentError("--data", str(data), "left out: this task is not about tables", "Use croupier.client.")
    return task.query


# Which tasks are answered: the shuffler's only one, or those of many that its owner's limits allow; and rehearsals.

# Answers, or none, after which asking again may help.
_LATER = (None, 409, 429, 500, 502, 503, 504)
_NO_KNOWN_TASK = "no task of an analyzer that you know is running here; nothing was sent"
# People of a rehearsal who talk at the same time.
_TALKING = 8


def patiently(ask: Callable[[], T], deadline: float) -> T:
    """Ask the shuffler; if it cannot be reached or says to come later, ask again until the time is up."""
    pause = _PAUSE
    while True:
        try:
            return ask()
        except ServerError as problem:
            hopeless = isinstance(problem.__context__, ssl.SSLCertVerificationError)
            if hopeless or problem.status not in _LATER or time.monotonic() >= deadline:
                raise
            if pause == _PAUSE:
                cause = f"{problem.status or 'nothing'}: {str(problem).strip()}"
                why = " If this lasts, its operator's log says why." if problem.status == 503 else ""
                say(messages(), f"The shuffler answered {cause}. Retrying for {duration(deadline - time.monotonic())}.{why}")
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


@dataclass
class _Player:
    """One person of a rehearsal, in one task."""

    task: _Task
    client: Client
    once: bool  # is asked once
    row: Any
    target: Any
    answers: int = 0


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
            raise Stopped(_NO_KNOWN_TASK, 0)
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
        say(
            messages(),
            f"{len(people):,} people, the tokens of {tokens}, take part with one row of {data} each: use synthetic records only.",
        )
        tasks = self.tasks(names)
        if not tasks:
            raise Stopped(f"{_NO_KNOWN_TASK}. Check --analyzer-key, which must be the analyzer's", 2)
        players = [player for one in tasks for player in self._players(one, people, tokens, data, dialect)]
        waiting = players
        with ThreadPoolExecutor(_TALKING) as pool:
            while waiting and time.monotonic() < self.deadline:
                still = list(pool.map(self._play, waiting))
                waiting = [player for player, more in zip(waiting, still, strict=True) if more]
                time.sleep(_PAUSE)
        for one in tasks:
            answers = sum(player.answers for player in players if player.task == one)
            say(messages(), f"{one.name or 'The task'}: {answers:,} answers were taken.")

    def _players(self, one: _Task, people: list[str], tokens: Path, data: Path, dialect: Dialect) -> list[_Player]:
        """The people of a rehearsal in one task, each with its row."""
        clients = [
            Client(one.address, token, one.key, folder=one.folder / "rehearsal" / str(place), at_once=True, **self.options)
            for place, token in enumerate(people)
        ]
        task = patiently(clients[0].task, self.deadline)
        if task.query.remembers:
            raise ArgumentError("--rehearse", str(tokens), "left out for a task that takes days", "A stream cannot be rehearsed.")
        X, y = task.query.read_file(data, dialect)
        if len(X) < len(people):
            raise ArgumentError("--data", str(data), f"a table of {len(people):,} rows, one per token", f"It has {len(X):,}.")
        once = task.schedule.interactivity == "sequential" and not (task.secret is not None and task.secret.cover)
        targets = [None] * len(people) if y is None else [y[who : who + 1] for who in range(len(people))]
        return [_Player(one, client, once, X[who : who + 1], targets[who]) for who, client in enumerate(clients)]

    def _play(self, player: _Player) -> bool:
        """Answer as one person of a rehearsal, if it is asked now; whether it may be asked again."""
        try:
            sent = patiently(lambda: player.client.answer(lambda: (player.row, player.target)), self.deadline)
        except ServerError as late:
            if late.status != TOO_LATE:
                raise
            return False
        if sent is None:
            return patiently(player.client.ended, self.deadline) is None
        player.answers += not sent.cover
        return not (player.once and player.answers)


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
