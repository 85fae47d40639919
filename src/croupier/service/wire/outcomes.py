"""What becomes of reports and of rounds: taken, refused, answered, spoiled, lost."""

from __future__ import annotations

from dataclasses import dataclass

from ...privacy import SumPlan
from .task import TaskRound
from .transports import TRANSPORTS


class RefusedError(Exception):
    """A request that is not granted: an HTTP status, and a reason that is fit for whoever asked."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class RefusedTaskError(Exception):
    """The task promises less than its owner demands, or asks for more than it may. Nothing was sent."""


class TaskEndedError(Exception):
    """The end of a task before its time. To start it again changes nothing."""


class TooManyBadReportsError(TaskEndedError):
    """A batch with more bad reports than the task's margin allows: the end of a task, since its premise does not hold."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(
            f"round {number} is spoiled: {reason}. The task has ended: what it promises rests on no more cheats than that. What "
            "was released before stays spent. Revoke whoever sent them, or plan with a smaller honest share"
        )


class RoundLostError(TaskEndedError):
    """A question whose only round came to nothing: the end of its task, since a round is asked once."""

    def __init__(self, number: int, reason: str, transport: str) -> None:
        remedy = TRANSPORTS[transport].lost_remedy
        super().__init__(f"round {number} has no answer: {reason}. The task has ended, and what it has spent stays spent. {remedy}")


@dataclass(frozen=True)
class Answered:
    """A round that was answered."""

    number: int  # the round's number
    phase: int  # its phase, counted from 1
    users: int  # how many users answered; with secret lots how many reports there were, blanks included
    length: float  # length of their private mean gradient
    bad: int = 0  # reports that were left out, or envelopes that counted as a zero
    dropped: str | None = None  # why nothing was made of the round: it counts as a step of length 0


@dataclass(frozen=True)
class Sent:
    """What came of taking part."""

    round: int  # the round's number
    first_time: bool  # whether the report is new; otherwise one that had waited was sent again
    blank: bool = False  # the gradient was not ready in time, or the records cannot be read in a task that blanks: a gradient of 0
    cover: bool = False  # whether it was no answer but cover: a report that says nothing, in a round that is not this user's lot


@dataclass(frozen=True)
class Accepted:
    """That a report was taken."""

    arrived: int  # how many reports the round has now; 0 where the report was counted in a round that has ended
    wanted: int  # how many the round wants


@dataclass(frozen=True)
class ParsedReport:
    """A report that has the right shape."""

    client: str
    body: bytes  # the report as it came
    round: TaskRound
    plan: SumPlan  # the round's plan
    seal: str  # the encapsulated key of its first envelope, hex. No two reports share one


@dataclass(frozen=True)
class Arrivals:
    """How the present round stands: numbers that anybody may know."""

    round: int  # the round's number
    arrived: int  # how many reports it has
    wanted: int  # how many it wants
    minimum: int  # the fewest with which it can end
