"""`croupier join`: take part in a task with one's own records, which stay here."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..privacy._rounding import exact
from ..service.client.budget import DEFAULT_LIMIT, BudgetLimit, DeviceBudget, period_of, period_text
from ..service.client.client import TOO_LATE, Client, run_in_thread
from ..service.client.policy import MAX_EPSILON_IF_WATCHED, MAX_REPORT_BYTES
from ..service.client.records import Reader, reader_of
from ..service.client.state import Memory
from ..service.net.http import ServerError
from ..service.wire.documents import WireError
from ..service.wire.outcomes import RefusedTaskError
from ..service.wire.queries import AskedQuery
from ..service.wire.task import Lot, Task
from ..table.read import Dialect
from ..validation import ArgumentError
from .options import Decimal, Encoding, Sep
from .progress import Stopped, messages, say

T = TypeVar("T")
_PAUSE = 0.5
# Answers, or none, after which asking again may help.
_LATER = (None, 409, 429, 500, 502, 503, 504)


def join(
    data: Annotated[
        Path | None, typer.Option(help="This user's records: CSV or Parquet, with the columns of the task's schema.")
    ] = None,
    shuffler: Annotated[str | None, typer.Option(help="The shuffler's address.")] = None,
    analyzer_key: Annotated[
        str | None, typer.Option(help="The analyzer's public key, known from elsewhere than the shuffler.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Enrolment token; the variable CROUPIER_TOKEN unless given.")] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Where is remembered what was answered.")] = Path(".croupier"),
    max_epsilon: Annotated[float, typer.Option(help="The weakest promise that is accepted for the whole task.")] = 1.0,
    max_delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-6,
    max_epsilon_if_watched: Annotated[
        float,
        typer.Option(help="With secret lots: the weakest promise to somebody who also knows when each user answered; inf is any."),
    ] = MAX_EPSILON_IF_WATCHED,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust instead of the system's.")] = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    encoding: Encoding = "utf-8",
    wait: Annotated[float, typer.Option(help="Seconds to wait for a round.")] = 60.0,
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
    if data is not None or shuffler is not None:
        budget.require(answered=Memory(folder.expanduser()).has_answered())
    if budget_epsilon is not None:
        _remember(budget, BudgetLimit(budget_epsilon, budget_delta, period_of(period)))
    if ledger or (budget_epsilon is not None and data is None and shuffler is None):
        _show(budget, as_json)
        return
    if data is None or shuffler is None or analyzer_key is None:
        given = {"--data": data, "--shuffler": shuffler, "--analyzer-key": analyzer_key}
        missing = next(name for name, value in given.items() if value is None)
        raise ArgumentError(missing, None, "given", "croupier join --help says what each option is.")
    secret = token or os.environ.get("CROUPIER_TOKEN")
    if not secret:
        raise ArgumentError("--token", None, "given, or in CROUPIER_TOKEN", "The shuffler's operator enrols clients.")
    if budget.limit() is None:
        budget.allow(DEFAULT_LIMIT)
        say(messages(), f"Your ledger had no limit. It has one now: {DEFAULT_LIMIT}; --budget-epsilon changes it.")
    client = Client(
        shuffler,
        secret,
        analyzer_key,
        folder=folder,
        max_epsilon=max_epsilon,
        max_delta=max_delta,
        max_epsilon_if_watched=max_epsilon_if_watched,
        ca=ca,
        budget=budget,
        invitation=invitation,
        enroller_ca=enroller_ca,
        enroller=enroller,
        max_report_bytes=max_report_bytes,
    )
    try:
        _answer(client, data, Dialect(sep, decimal, encoding), time.monotonic() + wait)
    except (RefusedTaskError, WireError) as refusal:
        raise Stopped(f"refused: {refusal}", 2) from None
    except ServerError as problem:
        raise Stopped(f"the shuffler says {problem.status or 'nothing'}: {str(problem).strip()}. Run it again later.", 1) from None


def _answer(client: Client, data: Path, dialect: Dialect, deadline: float) -> None:
    """Every round that wants an answer until the task needs no more of this user, or the time is up."""
    task = _patiently(client.task, deadline)
    _collect(client, task, deadline)
    first_ask = time.monotonic() + task.pace
    if task.secret is not None:
        lot = _patiently(client.lot, deadline)
        _tell_lot(client, task, lot, deadline)
        first_ask += 0.0 if task.secret.cover else lot.wait
    reader = _reader(task, data)
    reading = run_in_thread(lambda: reader.of_file(data, dialect))
    # From here on every request is at a time that does not depend on what is in the file. Only a file that is refused ends this.
    time.sleep(max(0.0, first_ask - time.monotonic()))
    if reading.done() and not task.blanks:
        reading.result()
    often = task.schedule.interactivity == "full" or (task.secret is not None and task.secret.cover)
    answered, end = 0, None
    while (often or client.answered() == 0 or client.waits()) and answered < task.schedule.rounds:
        try:
            sent = _patiently(lambda: client.answer(reading.result), deadline)
        except ServerError as late:
            if late.status != TOO_LATE:
                raise
            say(messages(), "A report came too late, says the shuffler. It is counted all the same, and no other takes its place.")
            continue
        if sent is not None:
            answered += 1
            what = f"Covered round {sent.round}" if sent.cover else f"Answered round {sent.round}"
            say(messages(), f"{what}; nothing but sealed noise left this machine.")
            if sent.blank:
                say(messages(), f"It was blank: {_why_blank(reading, task)}.")
            if sent.cover and sent.round == task.schedule.rounds:
                break
        elif time.monotonic() < deadline and (end := _patiently(client.ended, deadline)) is None:
            time.sleep(_PAUSE)
        else:
            break
    if answered == 0:
        before = client.answered()
        why = (
            "this user has answered the task before, and is not asked again" if before else "no round wanted an answer of this user"
        )
        if end is not None:
            why = str(end).rstrip(".")
        raise Stopped(f"{why}; nothing was sent", 0)


def _collect(client: Client, task: Task, deadline: float) -> None:
    """Get this user's tokens where the task has an enroller, and say who sees the invitation if nobody was demanded."""
    if task.enroller is not None and client.demands.enroller is None:
        say(messages(), f"Tokens come from {task.enroller.address}, by the task's word alone; --enroller says who it must be.")
    _patiently(client.collect, deadline)


def _tell_lot(client: Client, task: Task, lot: Lot, deadline: float) -> None:
    """Say on this terminal which round is this user's, and what is promised; refuse to wait where the time would not do."""
    figures = client.demands.figures(task)
    say(messages(), f"{figures[0].upper()}{figures[1:]}.")
    cover = task.secret is not None and task.secret.cover
    if lot.round is None:
        if not cover:
            raise Stopped("this user is asked in no round; nothing was sent", 0)
        say(messages(), "This user is asked in no round: it sends cover alone.")
        return
    say(messages(), f"This user's round is {lot.round} of {task.schedule.rounds}. Keep it to yourself.")
    if not cover and client.answered() == 0 and time.monotonic() + lot.wait >= deadline:
        seconds = f"{lot.wait:,.0f} seconds"
        raise Stopped(f"the round begins in {seconds} at the soonest: run it again then, or with a longer --wait", 0)


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
        f"To an observer who also knows when you answered, the shuffler included: epsilon {values['epsilon if watched']} at delta "
        f"{delta}."
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
    if task.blanks and reading.done() and (problem := reading.exception()) is not None:
        return f"the records cannot be read ({str(problem).rstrip('.')})"
    return f"the records were not ready {task.pace / 2:g} seconds after the round came"


def _patiently(ask: Callable[[], T], deadline: float) -> T:
    """What the shuffler says; where it cannot be reached or says to come later, again until the time is up."""
    while True:
        try:
            return ask()
        except ServerError as problem:
            if problem.status not in _LATER or time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)


def _reader(task: Task, data: Path) -> Reader | AskedQuery:
    """What makes rows and targets of this user's records, as the task's public facts say."""
    if (reader := reader_of(task)) is None:
        raise ArgumentError("--data", str(data), "left out: this task is not about tables", "Use croupier.client.")
    return reader
