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
            "was released before stays spent. Bar whoever sent them, or plan with a smaller honest share"
        )


class RoundLostError(TaskEndedError):
    """A question whose only round came to nothing: the end of its task, since a round is asked once."""

    def __init__(self, number: int, reason: str, transport: str) -> None:
        remedy = TRANSPORTS[transport].lost_remedy
        super().__init__(f"round {number} has no answer: {reason}. The task has ended, and what it has spent stays spent. {remedy}")


@dataclass(frozen=True)
class Answered:
    """A round that was answered.

    Parameters
    ----------
    number : int
        The round's number.
    phase : int
        Its phase, counted from 1.
    users : int
        How many users answered; with secret lots how many reports there were, blanks included.
    length : float
        Length of their private mean gradient.
    bad : int, default 0
        Reports that were left out, or envelopes that counted as a zero.
    dropped : str, optional
        Why nothing was made of the round: it counts as a step of length 0.
    """

    number: int
    phase: int
    users: int
    length: float
    bad: int = 0
    dropped: str | None = None


@dataclass(frozen=True)
class Sent:
    """What came of taking part.

    Parameters
    ----------
    round : int
        The round's number.
    first_time : bool
        Whether the report is new; otherwise one that had waited was sent again.
    blank : bool, default False
        Whether the gradient was not ready in time, or the task blanks and the records cannot be read at all, so that the
        answer is that of a user whose gradient is 0.
    cover : bool, default False
        Whether it was no answer but cover: a report that says nothing, in a round that is not this user's lot.
    """

    round: int
    first_time: bool
    blank: bool = False
    cover: bool = False


@dataclass(frozen=True)
class Accepted:
    """That a report was taken.

    Parameters
    ----------
    arrived : int
        How many reports the round has now; 0 where the report was counted in a round that has ended.
    wanted : int
        How many the round wants.
    """

    arrived: int
    wanted: int


@dataclass(frozen=True)
class ParsedReport:
    """A report that has the right shape.

    Parameters
    ----------
    client : str
        Whose it is.
    body : bytes
        The report as it came.
    round : TaskRound
        Its round.
    plan : SumPlan
        The round's plan.
    seal : str
        The encapsulated key of its first envelope, hex. No two reports share one.
    """

    client: str
    body: bytes
    round: TaskRound
    plan: SumPlan
    seal: str


@dataclass(frozen=True)
class Arrivals:
    """How the present round stands: numbers that anybody may know.

    Parameters
    ----------
    round : int
        The round's number.
    arrived : int
        How many reports it has.
    wanted : int
        How many it wants.
    minimum : int
        The fewest with which it can end.
    """

    round: int
    arrived: int
    wanted: int
    minimum: int
