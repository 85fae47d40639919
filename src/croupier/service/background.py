"""A loop in a thread of its own that only its owner ends: it survives every exception, backs off, and says how it is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum

log = logging.getLogger("croupier")
# Seconds for which one step may run, and for which a loop may fail again and again, before it is not healthy.
STUCK_SECONDS, FAILING_SECONDS = 600.0, 60.0


class TurnOutcome(Enum):
    """What came of a turn: all done; not done since somebody else is out of reach or refuses; failed by our own fault."""

    DONE = "done"
    WAITING = "waiting"
    FAILED = "failed"


class Loop:
    """Takes a turn again and again until it is stopped.

    A turn that raises is a failed one. After turns that were not done it waits longer each time, up to `longest` seconds.
    """

    def __init__(self, name: str, turn: Callable[[], TurnOutcome], *, pause: float, longest: float) -> None:
        self.name, self._turn, self._pause, self._longest = name, turn, pause, longest
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = time.monotonic()
        self._succeeded: float | None = None
        self._failing: float | None = None  # since when
        self._step: tuple[str, float] | None = None  # what runs now, and since when
        self._causes: dict[str, str] = {}  # why a step last failed

    def start(self) -> None:
        """Begin."""
        self._started = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """End after the present turn."""
        self._stopping.set()
        self._thread.join()

    def step(self, name: str) -> None:
        """Note that the turn has come to this step, so that one which never ends is found."""
        self._step = name, time.monotonic()

    def note(self, step: str, level: int, cause: str) -> None:
        """Log why a step failed, once: again only if the cause is another one, or it has worked in between."""
        if self._causes.get(step) != cause:
            self._causes[step] = cause
            log.log(level, "%s", cause)

    def worked(self, step: str) -> None:
        """Note that a step was done."""
        if self._causes.pop(step, None) is not None:
            log.info("%s: %s works again", self.name, step)

    def since_success(self) -> float:
        """Seconds since a turn was all done, or since the start where none was."""
        return time.monotonic() - (self._started if self._succeeded is None else self._succeeded)

    def trouble(self) -> str:
        """Why the loop is not healthy: dead, stuck, or failing for a while; empty where it is."""
        now, step, failing = time.monotonic(), self._step, self._failing
        if not self._stopping.is_set() and not self._thread.is_alive():
            return f"{self.name}: the loop is dead"
        if step is not None and now > step[1] + STUCK_SECONDS:
            return f"{self.name}: stuck in {step[0]} for {now - step[1]:.0f} s"
        if failing is not None and now > failing + FAILING_SECONDS:
            return f"{self.name}: failing for {now - failing:.0f} s ({'; '.join(self._causes.values())})"
        return ""

    def said(self) -> str:
        """How it is, in one line."""
        when = f"last succeeded {self.since_success():.0f} s ago" if self._succeeded is not None else "has not succeeded yet"
        causes = "; ".join(self._causes.values())
        return f"{self.name}: {when}{f' ({causes})' if causes else ''}"

    def _run(self) -> None:
        pause = self._pause
        while not self._stopping.wait(pause):
            self.step("a turn")
            try:
                outcome = self._turn()
            except Exception as problem:  # whatever it is, there is a next turn
                self.note("a turn", logging.ERROR, f"{self.name}: {type(problem).__name__}")
                outcome = TurnOutcome.FAILED
            else:
                self.worked("a turn")
            self._step = None
            if outcome is TurnOutcome.DONE:
                self._succeeded = time.monotonic()
            self._failing = (self._failing or time.monotonic()) if outcome is TurnOutcome.FAILED else None
            pause = self._pause if outcome is TurnOutcome.DONE else min(2 * pause, self._longest)
