"""What commands share at a terminal: what a person sees of a long run, how they stop it; options, and errors in their words."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from ..optimizer import Schedule, StopTraining
from ..optimizer.result import Round
from ..optimizer.training import RUN
from ..privacy._statements import counted, round_up
from ..table import Schema
from ..table._population import Watcher
from ..table.schema import Label, as_text
from ..validation import ArgumentError, Found

if TYPE_CHECKING:
    from ..service.wire.task import Task


class Stopped(Exception):  # noqa: N818  (a request, not an error)
    """The command was stopped or cannot continue; the text says what became of the work, the code is the exit code."""

    def __init__(self, text: str, code: int = 130) -> None:
        super().__init__(text)
        self.code = code


def messages() -> Console:
    """Standard error. On a terminal a little narrower than it is, so that the ^C it echoes does not break a bar's line."""
    console = Console(stderr=True)
    return Console(stderr=True, width=max(20, console.width - 3)) if console.is_terminal else console


def say(console: Console, text: str, style: str | None = None) -> None:
    """A message: wrapped between words on a terminal, one line elsewhere."""
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=not console.is_terminal)


_OPTION_BESIDE = re.compile(r"[a-z_]+=\S+ \((--[^)]+)\)")  # an argument of Python's, and the option that it is here


@contextmanager
def warnings_said(console: Console) -> Iterator[None]:
    """Warnings as messages, without the place in the code that they came from; of an argument and its option, the option."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: say(
            console, f"warning: {_OPTION_BESIDE.sub(lambda found: found[1], str(message))}", "yellow"
        )
        yield


@contextmanager
def announced(console: Console, told: bool) -> Iterator[None]:
    """Show as a message what a run logs before it starts."""
    handler = logging.Handler()
    handler.emit = lambda record: say(console, f"{record.getMessage()}.", "dim")  # type: ignore[method-assign]
    level = RUN.level
    try:
        if told:
            RUN.addHandler(handler)
            RUN.setLevel(logging.INFO)
        yield
    finally:
        RUN.removeHandler(handler)
        RUN.setLevel(level)


@contextmanager
def rows_counted(name: str, console: Console, shown: bool) -> Iterator[Callable[[int], None]]:
    """A line that says how many rows of a file were read; yields what is to be called with the rows of every piece."""
    columns = (SpinnerColumn(), TextColumn("reading {task.description}: {task.completed:,} rows"))
    with Progress(*columns, console=console, disable=not shown, transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda rows: bar.advance(task, rows)


@contextmanager
def waiting(what: str, console: Console, shown: bool) -> Iterator[None]:
    """A line that says what is being waited for."""
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, disable=not shown, transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def rounds_shown(chosen: Schedule, delta: float, console: Console, shown: bool) -> Iterator[Callable[[Round], None]]:
    """A bar of the rounds of a schedule; yields what is to be called after each.

    Its epsilon is that of the whole run, which holds wherever the run is stopped. A figure for the rounds so far would not: one who
    watches the bar may stop because of what it shows.
    """
    columns = (
        TextColumn("round {task.completed}/{task.total}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[users]:,} users"),
        TextColumn("gradient {task.fields[gradient]}"),
        TextColumn(f"epsilon {round_up(chosen.guarantee.epsilon(delta), 3)} in all"),
        TimeRemainingColumn(),
    )
    history: list[Round] = []
    with Progress(*columns, console=console, disable=not shown, transient=True, expand=True) as bar:
        task = bar.add_task("training", total=chosen.rounds, users=0, gradient="-")

        def show(done: Round) -> None:
            history.append(done)
            if shown:
                users = done.users if chosen.interactivity == "full" else sum(entry.users for entry in history)
                norm = f"{float(np.linalg.norm(done.gradient)):.2g}"
                bar.update(task, completed=done.index, users=users, gradient=norm)

        yield show


class Interrupt:
    """Ctrl-C (or a request to terminate) during a run: the first lets the current round end, a second one aborts.

    Use it as a context around the rounds; `check` is to be called after each.
    """

    def __init__(self, console: Console, total: int) -> None:
        self.asked, self._console, self._total = False, console, total
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self, done: Round) -> None:
        """Stop after this round if that was requested; the last one ends by itself."""
        if self.asked and done.index < self._total:
            raise StopTraining

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        with suppress(RuntimeError):  # it may come while something else is being printed
            say(
                self._console, "Stopping after the current round and keeping the model. Press Ctrl-C again to discard it.", "yellow"
            )


class Shown(Watcher):
    """Shows progress on a console: rows read, then rounds. Ctrl-C ends training after the current round."""

    def __init__(self, console: Console, shown: bool) -> None:
        self._console, self._shown = console, shown
        self._interrupt: Interrupt | None = None
        self._show: Callable[[Round], None] | None = None

    def reading(self, name: str) -> AbstractContextManager[Callable[[int], None]]:
        return rows_counted(name, self._console, self._shown)

    def waiting(self, what: str) -> AbstractContextManager[None]:
        return waiting(what, self._console, self._shown)

    @contextmanager
    def training(self, schedule: Schedule, delta: float) -> Iterator[None]:
        with (
            rounds_shown(schedule, delta, self._console, self._shown) as self._show,
            Interrupt(self._console, schedule.rounds) as self._interrupt,
        ):
            yield

    def after_round(self, done: Round) -> None:
        if self._show is not None and self._interrupt is not None:
            self._show(done)
            self._interrupt.check(done)


# How long a task takes, by what it says itself: for whoever starts it, and for whoever waits for a round of it.

_DAY = 86_400.0
# Seconds for which a place in an open round is kept, after which it ends without anyone who asked; and how long a client waits for
# a round that has no end by the clock.
_KEPT, _LONGEST = 60.0, 7 * _DAY
# Seconds that a client of a question over days stays: a timer starts it every day.
_DAILY = 60.0


def least_seconds(task: Task) -> float | None:
    """Seconds from the first opening to the last batch, where rounds go by the clock; None if people's answers end them."""
    if task.secret is not None:
        return task.schedule.rounds * task.secret.leaves(0.0)
    return task.schedule.rounds * _DAY if task.query.remembers else None


def usual_wait(task: Task) -> float:
    """Default number of seconds for which a client looks for its rounds: until the task should be over."""
    if task.query.remembers:
        return _DAILY
    if task.secret is not None:
        return (task.schedule.rounds + 1) * task.secret.leaves(0.0)
    return _LONGEST if task.patience is None else max(_LONGEST, task.schedule.rounds * (task.patience + _KEPT))


def length_line(task: Task, now: float | None = None) -> str:
    """How long a task takes, in a sentence for its operator."""
    rounds = counted(task.schedule.rounds, "round")
    least = least_seconds(task)
    if least is not None and task.secret is not None:
        when = clock_text(least, now)
        return f"{rounds} of {duration(task.secret.seconds)}: over in {duration(least)} at the earliest, {when}, however many come."
    if least is not None:
        return f"{rounds}, one per day: over in {duration(least)} at the earliest."
    if task.patience is None:
        return f"{rounds}; each waits for everybody who was drawn for it."
    most = duration(task.schedule.rounds * (task.patience + _KEPT))
    return f"{rounds}, each of at most {duration(task.patience)} if enough people come; then over in {most} at the latest."


def duration(seconds: float) -> str:
    """Seconds in the two largest units that a person would say them in, rounded up to the second of them."""
    whole = int(-(-seconds // 1))
    if whole < 120:
        return f"{whole} s"
    for size, name, part, part_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            big, small = divmod(-(-whole // part), size // part)
            return f"{big:,} {name}" + (f" {small} {part_name}" if small else "")
    raise AssertionError  # 120 s are minutes


def clock_text(wait: float, now: float | None = None) -> str:
    """The time in this many seconds by this machine's clock: with the day where that is another one."""
    start = time.time() if now is None else now
    then, today = time.localtime(start + min(wait, 1e9)), time.localtime(start)
    same = then[:3] == today[:3]
    return time.strftime("at %H:%M" if same else "on %a %d %b at %H:%M", then)


# Errors of the Python API in the words of the command line.


@contextmanager
def named_as_options(*names: str) -> Iterator[None]:
    """Errors about these arguments name the options that they came from: `--work-dir` for `work_dir`."""
    try:
        yield
    except ArgumentError as problem:
        if problem.name not in names:
            raise
        option = "--" + problem.name.replace("_", "-")
        raise ArgumentError(option, problem.value, problem.allowed, problem.remedy) from None


# Options of every command that reads data: how CSV files write their values.

Sep = Annotated[str | None, typer.Option("--sep", help="Separator of values in CSV, such as ';' or tab; default: a comma.")]
Decimal = Annotated[str, typer.Option("--decimal", help="Decimal mark in CSV: . or ,")]
Encoding = Annotated[str, typer.Option("--encoding", help="Encoding of CSV files; files from Windows are often cp1252.")]


def warn_of_score(console: Console, facts: Schema, notes: Mapping[str, str], where: str = "") -> None:
    """Say of a drafted schema whose target is few whole numbers that these were taken for classes."""
    if facts.target.classes is not None and facts.target.column in notes:
        say(console, f"{facts.target.column}: {' '.join(notes[facts.target.column].split())}{where}.", "yellow")


# `--class-weight CLASS=WEIGHT`: public weights of the schema's classes.

_REMEDY = "For example --class-weight ill=30, if it is public knowledge that about one person in thirty is ill."


def class_weights(given: Sequence[str], facts: Schema) -> dict[str, dict[Label, float]]:
    """The parameter `class_weight` of a classifier from what the command line says; nothing where it says nothing."""
    if not given:
        return {}
    if facts.target.classes is None:
        raise ArgumentError("--class-weight", given[0], "left out if the target is a number", "Remove it.")
    labels = {as_text(label): label for label in facts.target.classes}
    weights: dict[Label, float] = {}
    for text in given:
        name, _, weight = text.rpartition("=")
        try:
            weights[labels[name.strip()]] = float(weight)
        except (KeyError, ValueError):
            allowed = f"CLASS=WEIGHT with one of the declared classes {', '.join(map(repr, labels))}"
            raise ArgumentError("--class-weight", text, allowed, _REMEDY) from None
    return {"class_weight": weights}


# Where a command's output may go: nothing is overwritten unasked.


def check_output(path: Path | None, force: bool, option: str = "-o") -> None:
    """Refuse a place that cannot be written to, before anything is done for it."""
    if path is None:
        return
    folder = path.parent
    if not folder.is_dir():
        raise ArgumentError(option, str(path), "in a folder that exists", f"Create it first: mkdir -p {folder}")
    if path.is_dir() or not os.access(folder, os.W_OK):
        raise ArgumentError(option, str(path), "a file in a writable folder", "Choose another path.")
    if path.exists() and not force:
        found = Found(f"names a file that exists, {str(path)!r}")
        raise ArgumentError(option, found, "a new file", "Choose another name, or overwrite it with --force.")
