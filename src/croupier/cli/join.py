"""`croupier join`: take part in a task with one's own records, which stay here."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..privacy._rounding import exact
from ..service.client.budget import DEFAULT_LIMIT, BudgetLimit, DeviceBudget, period_of, period_text
from ..service.client.client import MAX_REPORT_BYTES, TOO_LATE, Client, run_in_thread
from ..service.client.invitation import InvitationLink, claimed_token
from ..service.client.state import Memory
from ..service.net.http import Server, ServerError
from ..service.wire.documents import End, WireError
from ..service.wire.outcomes import RefusedTaskError
from ..service.wire.queries import TaskQuery
from ..service.wire.task import MAX_EPSILON_IF_WATCHED, Lot, Task
from ..table.read import Dialect
from ..validation import ArgumentError
from .join_tasks import TasksAt
from .join_tasks import patiently as _patiently
from .options import Decimal, Encoding, Sep
from .progress import Stopped, messages, say
from .task_time import clock_text, duration, length_line, usual_wait

# Seconds between two looks for a round: at first, and at most (of a round that ends by the clock, at most an eighth of it).
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# Seconds for which the task itself is waited for, unless --wait says otherwise; and that a rehearsal may take, at least.
_NO_TASK, _REHEARSAL = 60.0, 600.0
# Exit code where nothing was sent, or not all, and it was not the task's last word: run it again.
_NOT_DONE = 1


def join(  # noqa: PLR0912  (a table of what may be asked)
    data: Annotated[
        Path | None, typer.Option(help="This user's records: CSV or Parquet, with the columns of the task's schema.")
    ] = None,
    shuffler: Annotated[str | None, typer.Option(help="The shuffler's address.")] = None,
    analyzer_key: Annotated[
        list[str] | None,
        typer.Option(help="An analyzer's public key, known from elsewhere than the shuffler; may be given again for others."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="Name of a task, where the shuffler serves many; may be given again. Default: all within your limits."),
    ] = None,
    tasks: Annotated[bool, typer.Option("--tasks", help="List the tasks and what each reveals; answer nothing.")] = False,
    rehearse: Annotated[
        Path | None,
        typer.Option(help="File of tokens: take part as all of them, a row of --data each. For synthetic records alone."),
    ] = None,
    token: Annotated[str | None, typer.Option(help="Enrolment token; default: the variable CROUPIER_TOKEN.")] = None,
    link: Annotated[
        str | None,
        typer.Option(envvar="CROUPIER_LINK", help="An invitation link, in place of --shuffler, --analyzer-key and --token."),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Where is remembered what was answered.")] = Path(".croupier"),
    max_epsilon: Annotated[float, typer.Option(help="The weakest promise that is accepted for the whole task.")] = 1.0,
    max_delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-6,
    max_epsilon_if_watched: Annotated[
        float,
        typer.Option(
            help="With secret lots: the weakest promise to an attacker who also knows when each user answered; inf is any."
        ),
    ] = MAX_EPSILON_IF_WATCHED,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust instead of the system's.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    wait: Annotated[
        float | None, typer.Option(help="Seconds to wait for this user's rounds. Default: until the task should be over.")
    ] = None,
    budget_epsilon: Annotated[
        float | None,
        typer.Option(
            help="What all tasks of all analyzers together may learn within a period; it is remembered. Default: "
            f"the limit on the ledger, or {exact(DEFAULT_LIMIT.epsilon)}."
        ),
    ] = None,
    budget_delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-5,
    period: Annotated[str, typer.Option(help="The length of a period: hours, days or weeks, such as 365d.")] = "365d",
    budget_file: Annotated[
        Path, typer.Option(envvar="CROUPIER_BUDGET_FILE", help="The ledger of all that you have answered, one for all tasks.")
    ] = Path("~/.croupier/budget.json"),
    invitation: Annotated[
        str | None,
        typer.Option(envvar="CROUPIER_INVITATION", help="What the task's enroller knows you by, where the task has one."),
    ] = None,
    enroller_ca: Annotated[Path | None, typer.Option(help="Certificates to trust for the enroller.")] = None,
    enroller: Annotated[
        str | None,
        typer.Option(envvar="CROUPIER_ENROLLER", help="The enroller's address, which came with the invitation: no other gets it."),
    ] = None,
    max_report_bytes: Annotated[int, typer.Option(help="The longest report that is made.")] = MAX_REPORT_BYTES,
    ledger: Annotated[bool, typer.Option("--ledger", help="Show the ledger, and answer nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The ledger as JSON.")] = False,
) -> None:
    """Answer a task's rounds from this machine. The task's signature and its promise are checked here; records do not leave.

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
        raise ArgumentError(missing, None, "given", "croupier join --help says what each option is.")
    secret = token or (opened.code if opened else None) or os.environ.get("CROUPIER_TOKEN")
    if not secret and rehearse is None and not tasks:
        raise ArgumentError("--token", None, "given, or in CROUPIER_TOKEN", "The shuffler's operator enrols clients.")
    if budget.limit() is None and rehearse is None and not tasks:
        budget.allow(DEFAULT_LIMIT)
        say(messages(), f"Your ledger had no limit. It has one now: {DEFAULT_LIMIT}; --budget-epsilon changes it.")
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
        raise Stopped(f"the shuffler says {problem.status or 'nothing'}: {str(problem).strip()}. Run it again later.", 1) from None


def _pinned(
    link: InvitationLink, shuffler: str | None, analyzer_keys: list[str] | None, enroller: str | None
) -> tuple[str, list[str], str | None]:
    """Whom a link pins; an option that names somebody else is refused."""
    for name, said, pinned in (
        ("--shuffler", shuffler, link.shuffler),
        *[("--analyzer-key", key, link.analyzer) for key in analyzer_keys or []],
        ("--enroller", enroller, link.enroller),
    ):
        if said is not None and said.rstrip("/") != (pinned or "").rstrip("/"):
            raise ArgumentError(name, said, f"left out, or {pinned}, which the link pins", "A link is believed as a whole.")
    return link.shuffler, [link.analyzer], link.enroller


def _claimed(folder: Path, shuffler: str, code: str, ca: Path | None) -> str:
    server = Server(shuffler, ca=ca)
    try:
        return claimed_token(folder, server, code)
    except ServerError as problem:
        raise Stopped(f"the shuffler says {problem.status or 'nothing'}: {str(problem).strip()}. Run it again later.", 1) from None
    finally:
        server.close()


def _answer(client: Client, data: Path, dialect: Dialect, wait: float | None) -> None:
    """Every round that wants an answer until the task needs no more of this user, or the time is up."""
    deadline = time.monotonic() + (_NO_TASK if wait is None else wait)
    task = _patiently(client.task, deadline)
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
            sent = _patiently(lambda: client.answer(read if query.remembers else reading.result), deadline)
        except ServerError as late:
            if late.status != TOO_LATE:
                raise
            say(messages(), "A report came too late, says the shuffler. It is counted all the same, and no other takes its place.")
            continue
        if sent is not None:
            answered, pause = answered + 1, _PAUSE
            what = f"Covered round {sent.round}" if sent.cover else f"Answered round {sent.round}"
            say(messages(), f"{what}; nothing but sealed noise left this machine.")
            if sent.blank:
                say(messages(), f"It was blank: {_why_blank(reading, task)}.")
            if sent.cover and sent.round == task.schedule.rounds:
                break
        elif time.monotonic() >= deadline or (end := _patiently(client.ended, deadline)) is not None:
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
    number = _patiently(client.open_round, deadline)
    return number is not None and lot.round is not None and number > lot.round


def _conclude(client: Client, task: Task, answered: int, end: End | None, missed: bool) -> None:
    """Say what became of it where not everything that the task asks was answered; the exit code says whether to come again."""
    rounds = max(phase.rounds for phase in task.schedule.phases)
    if answered:
        if task.schedule.interactivity == "full" and not task.query.remembers and end is None and client.answered() < rounds:
            raise Stopped(f"{client.answered()} of {rounds} rounds were answered in time; the same command goes on", _NOT_DONE)
        return
    if client.answered():
        what = "no round is open that it has not answered" if task.query.remembers else "it is not asked again"
        raise Stopped(f"this user has answered the task before, and {what}; nothing was sent", 0)
    if end is not None:
        raise Stopped(f"{str(end).rstrip('.')}; this user has not answered, and nothing was sent", _NOT_DONE)
    if missed:
        raise Stopped("this user's round is over, and no other asks it; nothing was sent. Start earlier next time", _NOT_DONE)
    raise Stopped("no round has asked this user in time; nothing was sent. Run the same command again", _NOT_DONE)


def _collect(client: Client, task: Task, deadline: float) -> None:
    """Get this user's tokens where the task has an enroller, and say who sees the invitation if nobody was demanded."""
    if task.enroller is not None and client.demands.enroller is None:
        say(messages(), f"Tokens come from {task.enroller.address}, by the task's word alone; --enroller says who it must be.")
    _patiently(client.collect, deadline)


def _lot(client: Client, task: Task, deadline: float) -> Lot | None:
    """Say on this terminal when this user is asked and what is promised; refuse to wait where the time would not do."""
    if task.secret is None:
        say(messages(), f"{length_line(task)} This waits until it has answered, up to {duration(deadline - time.monotonic())}.")
        return None
    lot = _patiently(client.lot, deadline)
    figures = client.demands.figures(task)
    say(messages(), f"{figures[0].upper()}{figures[1:]}.")
    cover = task.secret.cover
    if lot.round is None:
        if not cover:
            raise Stopped("this user is asked in no round; nothing was sent", 0)
        say(messages(), "This user is asked in no round: it sends cover alone.")
        return lot
    last = duration(task.secret.seconds)
    begins = "may be open now" if lot.wait == 0 else f"begins {clock_text(lot.wait)} at the soonest, in {duration(lot.wait)},"
    number = f"{lot.round} of {task.schedule.rounds}"
    say(messages(), f"This user's round is {number}, {begins} and takes answers for {last}. Keep that to yourself.")
    if cover or client.answered():
        return lot
    if time.monotonic() + lot.wait >= deadline:
        raise Stopped(
            f"run it again {clock_text(lot.wait)}, or without --wait: it then waits by itself. Nothing was sent", _NOT_DONE
        )
    say(messages(), "Leave this running: it answers by itself then, and ends.")
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
        typer.echo("No task was answered yet.")
    typer.echo(f"Everything together: epsilon {values['epsilon']} at delta {delta}, whenever you look.")
    typer.echo(
        "To an observer who also knows when you answered, even if the shuffler tells: "
        f"epsilon {values['epsilon if watched']} at delta {delta}."
    )
    if limit is None:
        typer.echo("There is no limit: --budget-epsilon sets one.")
        return
    used = values["limit"]
    typer.echo(
        f"Limit: {limit}. Used of it within the last {period_text(limit.seconds)}: {used['used of mu^2']} of mu^2, "
        f"{used['used of slack']} of slack."
    )


def _why_blank(reading: Future[Any], task: Task) -> str:
    """Why an answer says nothing of the records, for whoever holds them."""
    if task.query.blanks and reading.done() and (problem := reading.exception()) is not None:
        return f"the records cannot be read ({str(problem).rstrip('.')})"
    return f"the records were not ready {task.pace / 2:g} seconds after the round came"


def _table_query(task: Task, data: Path) -> TaskQuery:
    """What makes rows and targets of this user's records, as the task's public facts say."""
    if task.query.columns is None:
        raise ArgumentError("--data", str(data), "left out: this task is not about tables", "Use croupier.client.")
    return task.query
