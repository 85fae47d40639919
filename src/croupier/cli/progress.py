"""What a person sees of a long run, and how they stop it."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from ..optimizer import Schedule, StopTraining
from ..optimizer.result import Round
from ..optimizer.training import RUN
from ..privacy._rounding import round_up
from ..table.population import Watcher


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


@contextmanager
def warnings_said(console: Console) -> Iterator[None]:
    """Warnings as messages, without the place in the code that they came from."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: say(console, f"warning: {message}", "yellow")
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
