"""What is trained and how, as signed documents: a task once, a round for every theta. Whoever takes part reads both.

Beside them what becomes of reports and of rounds: taken, refused, answered, spoiled, lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from ...optimizer.phases import Phase, Schedule, held_in_batch
from ...privacy import SumPlan
from ...privacy.calibration import is_proved
from ...problem.problem import Coordinates
from ...protocol import VectorSum
from ...protocol.randomness import RandomSource
from ...validation import ArgumentError, real, whole
from .documents import ROUND, TASK, Document, WireError, canonical, sha256
from .enrolment import EnrollerKeys, check_enroller
from .queries import (
    TaskQuery,
    TrainingQuery,
    check_coordinates,
    query_from_dict,
)
from .reports import TOKEN_BYTES
from .transports import (
    DEFAULT_TRANSPORT,
    LONG_TRANSPORT,
    MOST_DEFAULT_BYTES,
    TRANSPORTS,
    SealedReport,
    block_digest,
    release_bytes,
)

# Rounds of secret lots as they are deployed: how long they take, regardless of who comes. Part of a task
# (docs/protocol.md#secret-lots).

# Seconds that a round takes reports unless the task says otherwise, and at most.
ROUND_SECONDS, MOST_ROUND_SECONDS = 300.0, 1e7
# What clients accept, unless they say otherwise, to an attacker who also knows when each user answered.
MAX_EPSILON_IF_WATCHED = 10.0
# The share of users that `if_watched` counts on to come to their round, unless the task file says otherwise.
TURNOUT = 0.8
# A batch leaves so much later than its round ended, in parts of the round: however long it took to make.
_LEAVES = 1.05
# A round takes at least so many paces, and is offered to clients until so many before its end.
_FEWEST_PACES, _LAST_PACES = 4, 2
# Bytes of a lot as it travels, and seconds that somebody can be told to wait for it.
_LOT_BYTES, _LONGEST_WAIT = 64, 1e13


@dataclass(frozen=True)
class SecretRounds:
    """How rounds run whose users are drawn by secret lots."""

    seconds: float  # for how long a round takes reports, from its opening. It ends then and no sooner, regardless of who came
    cover: bool = False  # everybody sends a report in every round; all but those of the round's lot are thrown away

    def ends(self, opened: float) -> float:
        """Return when a round ends."""
        return opened + self.seconds

    def leaves(self, opened: float) -> float:
        """Return when a round's batch is forwarded: a fixed time after its end, in which the batch is made."""
        return opened + _LEAVES * self.seconds

    def offered(self, opened: float, pace: float) -> float:
        """Return until when clients are given a round: later they would answer in vain."""
        return self.ends(opened) - _LAST_PACES * pace

    def to_dict(self) -> dict[str, Any]:
        """Return the words of a task document."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read the words of a task document."""
        if set(values) != {"seconds", "cover"} or not isinstance(values["cover"], bool):
            raise ArgumentError("secret", values, "seconds and cover, a number and a truth value", "Use the same version.")
        return cls(real("secret.seconds", values["seconds"], above=0, remedy="Give seconds."), values["cover"])


@dataclass(frozen=True)
class Lot:
    """A client's lot, as it alone is told."""

    round: int | None  # the number of the round that the client is asked in; None if it is asked in none
    wait: float = 0.0  # seconds until that round can begin at the soonest; 0 where it may have begun, or there is none
    block: int | None = None  # which block of its vector it sends there, from 0; None where there are no blocks

    def to_bytes(self) -> bytes:
        """Return the lot as it travels: of one length, whatever it is, since lengths can be seen."""
        block = {} if self.block is None else {"block": self.block}
        return json.dumps({"round": self.round} | block | {"wait": round(self.wait, 3)}).ljust(_LOT_BYTES).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a lot, strictly."""
        try:
            values = json.loads(data)
            if len(data) != _LOT_BYTES or set(values) - {"block"} != {"round", "wait"}:
                raise WireError("a lot that is not one")
            if values["round"] is not None:
                whole("round", values["round"], at_least=1, remedy="Rounds are counted from 1.")
            if "block" in values:
                whole("block", values["block"], at_least=0, remedy="Blocks are counted from 0.")
                if values["round"] is None:
                    raise WireError("a lot whose block belongs to no round")
            wait = real("wait", values["wait"], at_least=0, at_most=_LONGEST_WAIT, remedy="Give seconds.")
        except (TypeError, ValueError) as problem:
            raise WireError(f"a lot that says something impossible: {problem}") from None
        return cls(values["round"], wait, values.get("block"))


@dataclass(frozen=True)
class Start:
    """What a client is told at first, in one answer: the task, and its round or, where lots are secret, its lot."""

    task: Document
    round: Document | None = None  # the round that takes its report and does not end without it for now; none where lots are secret
    lot: Lot | None = None

    def to_bytes(self) -> bytes:
        """Return it as it travels."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        parts = [self.task.to_bytes(), b"" if self.round is None else self.round.to_bytes()]
        framed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        return framed + (b"" if self.lot is None else self.lot.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read it, strictly; whose documents they are is for the client to check."""
        parts, rest = [], data
        for _ in range(2):
            if len(rest) < 4 + (length := int.from_bytes(rest[:4], "little")):
                raise WireError("a truncated start document")
            rest = rest[4:]
            parts.append(rest[:length])
            rest = rest[length:]
        task, current = parts
        round_document = Document.from_bytes(current) if current else None
        return cls(Document.from_bytes(task), round_document, Lot.from_bytes(rest) if rest else None)


def check_secrecy(secret: SecretRounds | None, lots: bool, patience: float | None, pace: float) -> None:
    """Refuse rounds that would tell by their end who came, or leave clients no time."""
    if (secret is not None) != lots:
        allowed = "given where lots are secret, and only there"
        raise ArgumentError("secret", secret, allowed, "Say for how many seconds a round of secret lots takes reports.")
    if secret is None:
        return
    if patience is not None:
        remedy = 'Say round_seconds: a round of secret lots ends then, regardless of who came. Or say lots = "open".'
        raise ArgumentError("patience", patience, "left out where lots are secret", remedy)
    least = _FEWEST_PACES * pace
    remedy = f"A client takes the pace of {pace:g} seconds to answer; take longer rounds or a shorter pace."
    real("round_seconds", secret.seconds, at_least=least, at_most=MOST_ROUND_SECONDS, remedy=remedy)


# Seconds that a client takes to answer unless the task says otherwise, and at most: a place in a round is kept for a minute.
PACE, LONGEST_PACE = 10.0, 30.0
# SQLite keeps values of at most 10^9 bytes, and PostgreSQL gives out at most half of 2^30, as text of twice the length.
MOST_BATCH_BYTES = 500_000_000


@dataclass(frozen=True)
class Task:
    """A whole run: what is asked, in a schedule with the plan of every round, how reports travel, and who may shuffle them."""

    transport: str
    users: int
    query: TaskQuery
    schedule: Schedule
    shuffler: Ed25519PublicKey
    patience: float | None = None  # seconds after which a round with the plan's honest minimum ends; None waits for all
    name: str = ""  # tells apart tasks that ask the same
    pace: float = PACE  # seconds after it has asked for a round that a client answers it, whatever its records are
    enroller: EnrollerKeys | None = None  # who signs a token of every report; None counts reports that anybody could have made
    secret: SecretRounds | None = None  # how long a round takes, where users' rounds are drawn by secret lots
    _as_read: str | None = field(default=None, init=False, compare=False)  # its id, where it was read

    @cached_property  # every report's round is compared with it
    def id(self) -> str:
        """The digest of all that the task says. Rounds name it, and reports are bound to rounds: so to every word of the task."""
        return self._as_read or sha256(canonical(self._words()))

    @property
    def token_bytes(self) -> int:
        """How many bytes of a report's envelope are a token."""
        return 0 if self.enroller is None else TOKEN_BYTES

    def query_of(self, phase: int) -> TaskQuery:
        """Return what the rounds of a phase ask: all that a round computes, checks or decodes goes by it."""
        return self.query.of_phase(self.schedule.phases[phase - 1])

    @property
    def stages(self) -> bool:
        """Whether rounds ask different questions, or for gradients in other coordinates than rows come in."""
        return any(phase.share is not None for phase in self.schedule.phases)

    @property
    def round_phases(self) -> tuple[Phase, ...]:
        """The phases with the plan of one round's reports each, of which a phase's own plan may be for all rounds together."""
        plans = [self.query_of(number).round_plan(phase.plan) for number, phase in enumerate(self.schedule.phases, start=1)]
        pairs = zip(self.schedule.phases, plans, strict=True)
        return tuple(phase if plan is phase.plan else replace(phase, plan=plan) for phase, plan in pairs)

    @property
    def blanks(self) -> bool:
        """Whether a record that is not valid counts as a blank, by the words that the analyzer has signed."""
        return self.query.blanks

    def asked_in(self, number: int, plan: SumPlan, query: Any) -> tuple[int, NDArray[np.float64], Coordinates | None]:
        """Return the phase, counted from 1, whose round of this number asks an optimizer's query; and what the round states."""
        states = {n: self.query_of(n).theta_of(query, phase) for n, phase in enumerate(self.schedule.phases, start=1)}
        if all(theta is None for theta in states.values()):
            allowed = "gradients of the task's problem, or its statistic"
            raise ArgumentError("question.query", type(query).__name__, allowed, "Ask what the task asks.")
        for n, theta in states.items():
            if theta is not None and number in self.rounds_of(n) and self.round_phases[n - 1].plan == plan:
                return n, theta, self.query_of(n).coordinates_of(query)
        raise ArgumentError("question", str(plan), "a round of the task's schedule", "Run the schedule of the task.")

    def rounds_of(self, phase: int) -> range:
        """Return the numbers of a phase's rounds."""
        before = sum(earlier.rounds for earlier in self.schedule.phases[: phase - 1])
        return range(before + 1, before + 1 + self.schedule.phases[phase - 1].rounds)

    @property
    def blocks(self) -> int:
        """The most blocks of a round's vectors, of which a user sends one; 1 where it sends whole vectors."""
        return max(phase.plan.blocks for phase in self.schedule.phases)

    def lots_of(self, number: int) -> range:
        """Return the lots of a round, counted from 1 over all rounds: one, or one a block. A batch is of one lot."""
        first, before = 1, 0
        for phase in self.schedule.phases:
            if number <= before + phase.rounds:
                first += (number - before - 1) * phase.plan.blocks
                return range(first, first + phase.plan.blocks)
            first, before = first + phase.rounds * phase.plan.blocks, before + phase.rounds
        raise ValueError(f"round {number} of a task of {before}")

    def lot(self, place: int) -> tuple[int, int | None]:
        """Return the round, and the block where there are any, of the lot with this place among all."""
        first, before = 1, 0
        for phase in self.schedule.phases:
            number, block = divmod(place - first, phase.plan.blocks)
            if number < phase.rounds:
                return before + 1 + number, None if phase.plan.blocks == 1 else block
            first, before = first + phase.rounds * phase.plan.blocks, before + phase.rounds
        raise ValueError(f"lot {place} of a task of {first - 1}")

    def document(self, key: Ed25519PrivateKey) -> Document:
        """Return the task as a document that the analyzer signs."""
        return Document.signed(TASK, {"id": self.id, **self._words()}, key)

    def _words(self) -> dict[str, Any]:
        besides = {} if self.enroller is None else {"enroller": self.enroller.to_dict()}
        besides |= {} if self.secret is None else {"secret": self.secret.to_dict()}
        return besides | {
            "name": self.name,
            "transport": self.transport,
            "users": self.users,
            "schedule": self.schedule.to_dict(),
            "shuffler": self.shuffler.public_bytes_raw().hex(),
            "patience": self.patience,
            "pace": self.pace,
            **self.query.to_dict(),
        }

    @classmethod
    def read(cls, document: Document, key: Ed25519PublicKey) -> Self:
        """Read the task in a document of this analyzer, and prove its plans again. What cannot be proved is refused.

        Guarantee
        ---------
        Every plan of the task that is returned was certified again in this process, whatever the document claims.
        """
        values = document.verified(TASK, key)
        try:
            query, schedule = query_from_dict(values), Schedule.from_dict(values["schedule"])
            shuffler = Ed25519PublicKey.from_public_bytes(bytes.fromhex(values["shuffler"]))
            about = {name: values[name] for name in ("patience", "name", "pace")}
            enroller = EnrollerKeys.from_dict(values["enroller"]) if "enroller" in values else None
            secret = SecretRounds.from_dict(values["secret"]) if "secret" in values else None
            about |= {"enroller": enroller, "secret": secret}
            task = cls(values["transport"], values["users"], query, schedule, shuffler, **about)
            query.check(schedule, task.users)
            check_secrecy(secret, schedule.secret_lots, task.patience, task.pace)
            check_enroller(enroller, schedule, task.transport)
            digest = sha256(canonical({word: value for word, value in values.items() if word != "id"}))
            if values["id"] != digest:
                raise ArgumentError("id", values["id"], f"{digest}, the digest of what the task says", "Ask for it again.")
            object.__setattr__(task, "_as_read", digest)
            task.schedule.guarantee  # noqa: B018  (what cannot be composed is refused here, not where it is first asked for)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
            raise WireError(f"a task that says something impossible: {problem}") from None
        asked = {number: task.query_of(number) for number in range(1, len(schedule.phases) + 1)}
        # The plan of secret lots was certified when it was read.
        if not all(_fits(phase, asked[n].dim) for n, phase in enumerate(schedule.phases, start=1)):
            raise WireError("a task whose plans do not fit it, or have no proof")
        task.most_batch_bytes()
        return task

    def most_batch_bytes(self) -> int:
        """Return the length of the longest batch of the task's rounds."""
        plans = [phase.plan for phase in self.round_phases]
        longest = max(TRANSPORTS[self.transport].batch_length(plan) + plan.users * self.token_bytes for plan in plans)
        if longest > MOST_BATCH_BYTES:
            remedy = f"use {LONG_TRANSPORT}"
            raise WireError(f"a task with batches of {longest:.2g} bytes, more than {MOST_BATCH_BYTES:.2g}: {remedy}")
        return longest

    def most_report_bytes(self) -> int:
        """Return the length of the longest report of the task's rounds."""
        return max(TRANSPORTS[self.transport].report_length(phase.plan) for phase in self.round_phases) + self.token_bytes

    def fits_default(self) -> bool:
        """Return whether it may travel like this where its file says neither how nor which rule: all that travels is short."""
        try:
            if isinstance(self.query, TrainingQuery):
                check_coordinates(self.query.problem, self.schedule)
            return self.most_batch_bytes() <= MOST_BATCH_BYTES and self.most_report_bytes() <= MOST_DEFAULT_BYTES
        except (WireError, ArgumentError):
            return False

    def most_release_bytes(self) -> int:
        """Return the length of the longest sum that is released in one of the task's rounds."""
        return max(release_bytes(phase.plan.coordinates) for phase in self.round_phases)

    def token_slot(self, task_round: TaskRound) -> int:
        """Return which of its tokens a person uses in a round."""
        if self.secret is not None:
            return task_round.lot(self)
        return task_round.number - self.rounds_of(task_round.phase)[0] + 1 if self.schedule.interactivity == "full" else 1

    def slot(self, task_round: TaskRound) -> str:
        """Return the name of what a user has once: the task where each user is asked once, otherwise each round.

        Rounds that add to what a device remembers go by their numbers: whoever publishes one twice has no second answer.
        """
        if self.query_of(task_round.phase).remembers:
            return f"round-{task_round.number}"
        return task_round.id if self.schedule.interactivity == "full" else "task"


@dataclass(frozen=True)
class TaskRound:
    """One round of a task: its number and phase, the public numbers that its query depends on, and the key of its envelopes."""

    task: str
    id: str
    number: int  # counted from 1 over all phases
    phase: int  # counted from 1
    theta: NDArray[np.float64]  # where gradients are asked for; zeros for a statistic
    key: X25519PublicKey  # that reports are sealed for
    block: int | None = None  # the block whose reports are meant, in a round with blocks: not in the document, which all share
    coordinates: Coordinates | None = None  # in which gradients are asked for, where earlier rounds have found others

    def parts(self, task: Task) -> list[Self]:
        """Return what each batch of the round is of: the round itself, or its blocks in order."""
        blocks = self.phase_of(task).plan.blocks
        return [self] if blocks == 1 else [replace(self, block=block) for block in range(blocks)]

    @property
    def batch(self) -> str:
        """The name of a batch: the round's id, and the block where there are any."""
        return self.id if self.block is None else f"{self.id}-{self.block}"

    def lot(self, task: Task) -> int:
        """Return which lot it is, of all of the task's."""
        return task.lots_of(self.number)[self.block or 0]

    def digest(self, document: Document) -> bytes:
        """Return what reports are bound to: the digest of the round's document, and the block where there are any."""
        return block_digest(document.digest, self.block)

    def document(self, key: Ed25519PrivateKey) -> Document:
        """Return the round as a document that the analyzer signs."""
        values = {
            "task": self.task,
            "id": self.id,
            "number": self.number,
            "phase": self.phase,
            "theta": self.theta.tolist(),
            "key": self.key.public_bytes_raw().hex(),
        }
        stated = {} if self.coordinates is None else {"coordinates": self.coordinates.to_dict()}
        return Document.signed(ROUND, values | stated, key)

    @classmethod
    def read(cls, document: Document, task: Task, key: Ed25519PublicKey) -> Self:
        """Read the round in a document of this analyzer and this task."""
        values = document.verified(ROUND, key)
        try:
            theta = np.array(values["theta"], dtype=np.float64)
            sealed_for = X25519PublicKey.from_public_bytes(bytes.fromhex(values["key"]))
            found = _coordinates(values["coordinates"], task) if "coordinates" in values else None
            about = values["task"], values["id"], values["number"], values["phase"]
            task_round = cls(*about, theta, sealed_for, coordinates=found)
        except (ValueError, ArithmeticError) as problem:
            raise WireError(f"a round that says something impossible: {problem}") from None
        fits = task_round.task == task.id and task_round.phase <= len(task.schedule.phases)
        if not fits or theta.shape != (task.query_of(task_round.phase).parameters,) or not np.isfinite(theta).all():
            raise WireError("a round that is not of this task")
        if task_round.number not in task.rounds_of(task_round.phase):
            raise WireError("a round whose number is none of its phase's")
        task.query_of(task_round.phase).of_round(task_round.coordinates)
        return task_round

    def vector(self, task: Task, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """What a user with these rows answers, not yet clipped or randomized."""
        return task.query_of(self.phase).of_round(self.coordinates).vector(X, y, self.phase_of(task), self.theta)

    def phase_of(self, task: Task) -> Phase:
        """Return the phase of the round, with the plan that its users follow in it."""
        return task.round_phases[self.phase - 1]


def _coordinates(words: dict[str, Any], task: Task) -> Coordinates:
    """The coordinates that a round states, of a problem's rows."""
    if not isinstance(task.query, TrainingQuery):
        raise WireError("a round with coordinates, where rows are taken as they come")
    problem = task.query.problem
    return Coordinates.from_dict(words, problem.features, problem.constant if "centre" in words else 0.0)


# How many reports a round may leave out, and with how many it can end: both follow from the task, and all roles compute them.
#
# By the task's premise a batch holds so many honest users (`held`). Its plan counts on `honest_users` of them. What is between is
# the margin for reports that are left out: an analyzer that leaves out honest ones, which nobody can tell, still has the sum of as
# many honest users as the plan's proof needs.


def most_excluded(task: Task, phase: Phase) -> int:
    """Count the reports of a round that may be left out at most: E.

    Guarantee
    ---------
    Whichever E reports of a batch are left out, the rest holds the honest users that the phase's plan counts on, if the batch holds
    those that the task's premise says.
    """
    if phase.lots is not None:
        return phase.lots.most_excluded
    return held_in_batch(task.schedule, task.users, phase) - phase.plan.honest_users


def fewest(task: Task, phase: Phase) -> int:
    """Count the reports with which a round can end at least, before any is left out."""
    if phase.lots is not None:
        return phase.plan.users
    return phase.plan.honest_users + most_excluded(task, phase)


def chosen_transport(draft: Callable[[str], Task]) -> str:
    """Return how reports of a task travel that does not say so, by what it would be under each transport."""
    return DEFAULT_TRANSPORT if draft(DEFAULT_TRANSPORT).fits_default() else LONG_TRANSPORT


def _fits(phase: Phase, dim: int) -> bool:
    """Whether a phase's plan is certified and fits what is asked; a block is drawn with its round, by a secret lot."""
    plan = phase.plan
    fair = plan.range is None or plan.noise_probability == 0.5  # as the modulus of masked counts takes it
    return plan.dim == dim and (plan.blocks == 1 or phase.lots is not None) and fair and is_proved(plan)


# A user's report, from a vector to sealed bytes: the one function that makes one, for clients and for the shuffler's blanks.


def report_of(
    task: Task,
    task_round: TaskRound,
    document: Document,
    vector: NDArray[np.float64],
    random: RandomSource,
    token: bytes = b"",
) -> SealedReport:
    """Randomize a vector, or the block of it that `task_round` names, under the round's plan, and seal it for the round's key.

    A rotation follows from the digest of the round's document, and is the same for all blocks.

    Guarantee
    ---------
    A report of zeros has the plan's full noise, and no byte of it tells it from another report of the round to whoever does not
    have the round's private key.
    """
    plan = task_round.phase_of(task).plan
    if (task_round.block is None) != (plan.blocks == 1):
        raise WireError("a report that states no block in a round with blocks, or one in a round without")
    bits = VectorSum(plan, seed=document.digest, block=task_round.block or 0).randomize(vector, random)
    return TRANSPORTS[task.transport].seal(bits, plan, task_round.digest(document), task_round.key, token)


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
