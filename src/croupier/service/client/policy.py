"""What a client demands of a task before it answers: promises that it computes itself, work that it can do, the right enroller."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from ...privacy import Guarantee
from ...privacy._rounding import exact, round_up
from ...privacy._statements import watched_line
from ...validation import real, whole
from ..net.http import require_private_way
from ..wire.outcomes import RefusedTaskError
from ..wire.task import Task
from ..wire.transports import TRANSPORTS

# What a client accepts, unless it says otherwise, to somebody who also knows when each user answered.
MAX_EPSILON_IF_WATCHED = 10.0
# How long a report it makes, unless it says otherwise: one of these takes some ten seconds to prove or to seal on a slow machine.
MAX_REPORT_BYTES = 4_000_000


@dataclass(frozen=True)
class ClientPolicy:
    """The weakest promises that are accepted for everything a task will ask, and what else a task has to be.

    Parameters
    ----------
    epsilon : float
        Of the whole task.
    delta : float
        Both figures are stated at it.
    epsilon_if_watched : float
        Where lots are secret: to somebody who also knows when each user answered. Infinity demands nothing.
    report_bytes : int
        How long a report may be.
    enroller : str or None
        The address of the only enroller that may see the invitation; None leaves it to the task.
    """

    epsilon: float
    delta: float
    epsilon_if_watched: float
    report_bytes: int = MAX_REPORT_BYTES
    enroller: str | None = None

    @classmethod
    def of(
        cls,
        max_epsilon: float,
        max_delta: float,
        max_epsilon_if_watched: float,
        max_report_bytes: int = MAX_REPORT_BYTES,
        enroller: str | None = None,
    ) -> Self:
        """Take what a client's owner says."""
        remedy = "It is the weakest promise that you accept for the whole task."
        watched = max_epsilon_if_watched
        if watched != math.inf:
            inf = "It is the weakest promise to somebody who also knows when you answered; inf demands none."
            watched = real("max_epsilon_if_watched", watched, above=0, remedy=inf)
        epsilon = real("max_epsilon", max_epsilon, above=0, remedy=remedy)
        delta = real("max_delta", max_delta, above=0, below=1, remedy=remedy)
        longest = whole("max_report_bytes", max_report_bytes, at_least=1, remedy="It is the longest report that you send.")
        if enroller is not None:
            require_private_way(enroller, "enroller")
        return cls(epsilon, delta, watched, longest, enroller)

    def check(self, task: Task) -> None:
        """Refuse a task that promises less, asks for longer reports, or has another enroller."""
        self._check_enroller(task)
        self._check_reports(task)
        promise = task.schedule.guarantee
        if promise.neighbours != "replace-one":
            raise RefusedTaskError(
                f"the task promises for {promise.neighbours} neighbours; 'replace-one' is demanded. Nothing was sent."
            )
        epsilon, watched = self._epsilon(promise), self._epsilon(promise.if_watched)
        if epsilon <= self.epsilon and (promise.watched is None or watched <= self.epsilon_if_watched):
            return
        if promise.watched is None:
            raise RefusedTaskError(
                f"the task reveals epsilon = {round_up(epsilon)} at delta = {exact(self.delta)}, more than the "
                f"{exact(self.epsilon)} that is allowed here. Nothing was sent."
            )
        allowed = "any" if self.epsilon_if_watched == math.inf else exact(self.epsilon_if_watched)
        raise RefusedTaskError(
            f"{self.figures(task)}; allowed here are {exact(self.epsilon)} (max_epsilon) and {allowed} (max_epsilon_if_watched). "
            "Nothing was sent."
        )

    def _check_enroller(self, task: Task) -> None:
        """An invitation is for one enroller: whoever gets it at another address can use it in this user's place."""
        named = None if task.enroller is None else task.enroller.address
        if self.enroller is not None and (named is None or named.rstrip("/") != self.enroller.rstrip("/")):
            said = "has no enroller" if named is None else f"names the enroller {named}"
            raise RefusedTaskError(f"the task {said}; {self.enroller} is demanded (enroller). Nothing was sent.")

    def _check_reports(self, task: Task) -> None:
        """A report is made before it is sent, whatever that takes: the task says how long it is."""
        longest = max(TRANSPORTS[task.transport].report_length(phase.plan) for phase in task.schedule.phases) + task.token_bytes
        if longest > self.report_bytes:
            raise RefusedTaskError(
                f"the task asks for reports of {longest:,} bytes by {task.transport}, more than the {self.report_bytes:,} that are "
                "allowed here (max_report_bytes). Nothing was sent."
            )

    def figures(self, task: Task) -> str:
        """Say what the whole task reveals at the demanded delta."""
        promise = task.schedule.guarantee
        line = f"the task reveals epsilon = {round_up(self._epsilon(promise))} at delta = {exact(self.delta)}"
        if promise.watched is None:
            return line
        watched = watched_line(promise, self.delta)
        return f"{line} with secret lots, and to somebody who also knows when each user answered, the shuffler included, {watched}"

    def _epsilon(self, promise: Guarantee) -> float:
        return promise.epsilon(self.delta) if promise.slack < self.delta else math.inf
