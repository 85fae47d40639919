"""What is trained and how, as signed documents: a task once, a round for every theta. Whoever takes part reads both."""

from __future__ import annotations

import json
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from ... import problem as problems
from ...optimizer._gradients import Gradients
from ...optimizer.phases import Phase, Schedule, check_schedule, objective_of
from ...privacy.calibration import is_proved
from ...problem import Domain, Loss, Problem
from ...protocol import VectorSum
from ...protocol.randomness import RandomSource
from ...validation import ArgumentError, Found, real, whole
from .documents import ROUND, TASK, Document, WireError, canonical, sha256
from .enrolment import EnrollerKeys, check_enroller
from .queries import AskedQuery
from .reports import TOKEN_BYTES
from .transports import DEFAULT_TRANSPORT, TRANSPORTS, SealedReport

# Rounds of secret lots as they are deployed: how long they take, whoever comes. Part of a task (docs/protocol.md#secret-lots).

# Seconds that a round takes reports unless the task says otherwise, and at most.
ROUND_SECONDS, MOST_ROUND_SECONDS = 300.0, 1e7
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
    """How rounds run whose users are drawn by secret lots.

    Parameters
    ----------
    seconds : float
        For how long a round takes reports, from its opening. It ends then and no sooner, whoever came.
    cover : bool, default False
        Whether every client sends a report in every round, of which the shuffler throws away all but those of the round's lot.
    """

    seconds: float
    cover: bool = False

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
    """A client's lot, as it alone is told.

    Parameters
    ----------
    round : int or None
        The number of the round that the client is asked in; None where it is asked in none.
    wait : float, default 0.0
        Seconds until that round can begin at the soonest; 0 where it may have begun, or there is none.
    """

    round: int | None
    wait: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the lot as it travels: of one length, whatever it is, since lengths can be seen."""
        return json.dumps({"round": self.round, "wait": round(self.wait, 3)}).ljust(_LOT_BYTES).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a lot, strictly."""
        try:
            values = json.loads(data)
            if len(data) != _LOT_BYTES or set(values) != {"round", "wait"}:
                raise WireError("a lot that is not one")
            if values["round"] is not None:
                whole("round", values["round"], at_least=1, remedy="Rounds are counted from 1.")
            wait = real("wait", values["wait"], at_least=0, at_most=_LONGEST_WAIT, remedy="Give seconds.")
        except (TypeError, ValueError) as problem:
            raise WireError(f"a lot that says something impossible: {problem}") from None
        return cls(values["round"], wait)


def check_secrecy(secret: SecretRounds | None, lots: bool, patience: float | None, pace: float) -> None:
    """Refuse rounds that would tell by their end who came, or leave clients no time."""
    if (secret is not None) != lots:
        allowed = "given where lots are secret, and only there"
        raise ArgumentError("secret", secret, allowed, "Say for how many seconds a round of secret lots takes reports.")
    if secret is None:
        return
    if patience is not None:
        remedy = 'Say round_seconds: a round of secret lots ends then, whoever came. Or say lots = "open".'
        raise ArgumentError("patience", patience, "left out where lots are secret", remedy)
    least = _FEWEST_PACES * pace
    remedy = f"A client takes the pace of {pace:g} seconds to answer; take longer rounds or a shorter pace."
    real("round_seconds", secret.seconds, at_least=least, at_most=MOST_ROUND_SECONDS, remedy=remedy)


# What a task asks, as words that travel: a problem by its loss and domain, or a question of one round.


def problem_to_dict(problem: Problem | AskedQuery) -> dict[str, Any]:
    """Return the words of what is asked."""
    if isinstance(problem, AskedQuery):
        return {"query": problem.words}
    return {
        "loss": _parameters(problem.loss),
        "domain": _parameters(problem.domain),
        "feature_norm": problem.feature_norm,
        "l2": problem.l2,
    }


def problem_from_dict(words: dict[str, Any]) -> Problem | AskedQuery:
    """Return what the words ask; nothing but losses, domains and questions of this library can be named."""
    if set(words) == {"query"}:
        return AskedQuery(words["query"])
    return Problem(
        loss=_made(problems, Loss, words["loss"]),
        domain=_made(problems, Domain, words["domain"]),
        feature_norm=words["feature_norm"],
        l2=words["l2"],
    )


def _parameters(part: Loss | Domain) -> dict[str, Any]:
    values = {given.name: getattr(part, given.name) for given in _given(type(part))}
    return {"kind": type(part).__name__} | {
        name: _parameters(value) if isinstance(value, Loss) else value for name, value in values.items()
    }


def _made(module: Any, base: type, values: dict[str, Any]) -> Any:
    """One of our losses or domains by its name; nothing else can be named."""
    kind = getattr(module, str(values["kind"]), None)
    if not isinstance(kind, type) or not issubclass(kind, base) or kind.__name__.startswith("_"):
        raise ArgumentError("kind", values["kind"], f"a {base.__name__.lower()} of this library", "Use the same version.")
    return kind(**{one.name: _value(module, base, values[one.name]) for one in _given(kind)})


def _value(module: Any, base: type, value: Any) -> Any:
    """A parameter of a loss or a domain: a number, several, or another one of the same base."""
    if isinstance(value, dict):
        return _made(module, base, value)
    return tuple(value) if isinstance(value, list) else value


def _given(kind: Any) -> list[Field[Any]]:
    """What a loss or a domain is made from; what it computes from that does not travel."""
    return [known for known in fields(kind) if known.init]


# Seconds that a client takes to answer unless the task says otherwise, and at most: a place in a round is kept for a minute.
PACE, LONGEST_PACE = 10.0, 30.0
# SQLite keeps values of at most 10^9 bytes, and PostgreSQL gives out at most half of 2^30, as text of twice the length.
MOST_BATCH_BYTES = 500_000_000


@dataclass(frozen=True)
class Task:
    """A whole run: the problem, its schedule with the plan of every round, how reports travel, and who may shuffle them.

    Parameters
    ----------
    transport : {"messages", "masked-sum", "verified-sum"}
        How reports travel.
    users : int
        How many users are asked.
    problem : Problem or AskedQuery
        What is minimized, or asked in one round.
    schedule : Schedule
        The rounds, with their plans.
    shuffler : Ed25519PublicKey
        The key of the shuffler that may shuffle reports.
    records : dict, optional
        For tables, how a record becomes a row and a target; None where devices bring their own rows.
    patience : float, optional
        A round ends when its plan's users have answered or, after so many seconds, as many as the plan counts on. None waits for
        all.
    name : str, default ""
        Tells apart tasks that ask the same.
    pace : float, default 10.0
        How many seconds after it has asked for a round a client answers it, whatever its records are.
    enroller : EnrollerKeys, optional
        Whoever signs tokens for enrolled people, one of which is in every report; None counts reports that anybody could have made.
    secret : SecretRounds, optional
        Where users' rounds are drawn by secret lots: how long a round takes, whoever comes.

    Attributes
    ----------
    id : str
        The digest of all that the task says.
    blanks : bool
        Whether a record that is not valid counts as a blank.
    token_bytes : int
        How many bytes of a report's envelope are a token.
    """

    transport: str
    users: int
    problem: Problem | AskedQuery
    schedule: Schedule
    shuffler: Ed25519PublicKey
    records: dict[str, Any] | None = None
    patience: float | None = None  # seconds after which a round with the plan's honest minimum ends; None waits for all
    name: str = ""
    pace: float = PACE
    enroller: EnrollerKeys | None = None
    secret: SecretRounds | None = None
    _as_read: str | None = field(default=None, init=False, compare=False)  # its id, where it was read

    @property
    def id(self) -> str:
        """The digest of all that the task says. Rounds name it, and reports are bound to rounds: so to every word of the task."""
        return self._as_read or sha256(canonical(self._words()))

    @property
    def token_bytes(self) -> int:
        """How many bytes of a report's envelope are a token."""
        return 0 if self.enroller is None else TOKEN_BYTES

    @property
    def blanks(self) -> bool:
        """Whether a record that is not valid counts as a blank, by the words that the analyzer has signed."""
        parameters = self.records.get("parameters") if isinstance(self.records, dict) else None
        return isinstance(parameters, dict) and parameters.get("invalid") == "blank"

    def rounds_of(self, phase: int) -> range:
        """Return the numbers of a phase's rounds."""
        before = sum(earlier.rounds for earlier in self.schedule.phases[: phase - 1])
        return range(before + 1, before + 1 + self.schedule.phases[phase - 1].rounds)

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
            "problem": problem_to_dict(self.problem),
            "schedule": self.schedule.to_dict(),
            "shuffler": self.shuffler.public_bytes_raw().hex(),
            "records": self.records,
            "patience": self.patience,
            "pace": self.pace,
        }

    @classmethod
    def read(cls, document: Document, key: Ed25519PublicKey) -> Self:
        """Read the task in a document of this analyzer, and prove its plans again. What cannot be proved is refused.

        Guarantee
        ---------
        Every plan of the task that is returned was certified anew in this process, whatever the document claims.
        """
        values = document.verified(TASK, key)
        try:
            problem = problem_from_dict(values["problem"])
            schedule = Schedule.from_dict(values["schedule"])
            shuffler = Ed25519PublicKey.from_public_bytes(bytes.fromhex(values["shuffler"]))
            about = {name: values[name] for name in ("records", "patience", "name", "pace")}
            enroller = EnrollerKeys.from_dict(values["enroller"]) if "enroller" in values else None
            secret = SecretRounds.from_dict(values["secret"]) if "secret" in values else None
            about |= {"enroller": enroller, "secret": secret}
            task = cls(values["transport"], values["users"], problem, schedule, shuffler, **about)
            if isinstance(problem, AskedQuery):
                problem.check(schedule, task.users)
                if task.records is not None:
                    raise ArgumentError(
                        "records", Found("is given"), "null where a question is asked", "Ask the analyzer's operator."
                    )
            else:
                check_schedule(schedule, task.users)
            check_secrecy(secret, schedule.secret_lots, task.patience, task.pace)
            if enroller is not None:
                check_enroller(enroller, schedule, task.transport)
            digest = sha256(canonical({word: value for word, value in values.items() if word != "id"}))
            if values["id"] != digest:
                raise ArgumentError("id", values["id"], f"{digest}, the digest of what the task says", "Ask for it again.")
            object.__setattr__(task, "_as_read", digest)
            task.schedule.guarantee  # noqa: B018  (what cannot be composed is refused here, not where it is first asked for)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as problem_:
            raise WireError(f"a task that says something impossible: {problem_}") from None
        if not all(_fits(phase, problem) for phase in schedule.phases):
            raise WireError("a task whose plans do not fit it, or have no proof")
        task.most_batch_bytes()
        return task

    def most_batch_bytes(self) -> int:
        """Return the length of the longest batch of the task's rounds."""
        plans = [phase.plan for phase in self.schedule.phases]
        longest = max(TRANSPORTS[self.transport].batch_length(plan) + plan.users * self.token_bytes for plan in plans)
        if longest > MOST_BATCH_BYTES:
            remedy = f"use {DEFAULT_TRANSPORT}"
            raise WireError(f"a task with batches of {longest:.2g} bytes, more than {MOST_BATCH_BYTES:.2g}: {remedy}")
        return longest

    def slot(self, round_id: str) -> str:
        """Return the name of what a user has once: the task where each user is asked once, otherwise each round."""
        return round_id if self.schedule.interactivity == "full" else "task"


@dataclass(frozen=True)
class TaskRound:
    """One round of a task: where, under which of its phases, and the key that reports are sealed for.

    Parameters
    ----------
    task : str
        The task's id.
    id : str
        The round's id.
    number : int
        Its number, counted from 1 over all phases.
    phase : int
        Its phase, counted from 1.
    theta : ndarray of shape (dim,)
        The point at which gradients are asked for.
    key : X25519PublicKey
        The key that reports are sealed for.
    """

    task: str
    id: str
    number: int
    phase: int  # counted from 1
    theta: NDArray[np.float64]
    key: X25519PublicKey

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
        return Document.signed(ROUND, values, key)

    @classmethod
    def read(cls, document: Document, task: Task, key: Ed25519PublicKey) -> Self:
        """Read the round in a document of this analyzer and this task."""
        values = document.verified(ROUND, key)
        try:
            theta = np.array(values["theta"], dtype=np.float64)
            sealed_for = X25519PublicKey.from_public_bytes(bytes.fromhex(values["key"]))
            task_round = cls(values["task"], values["id"], values["number"], values["phase"], theta, sealed_for)
        except (ValueError, ArithmeticError) as problem:
            raise WireError(f"a round that says something impossible: {problem}") from None
        fits = task_round.task == task.id and task_round.phase <= len(task.schedule.phases)
        if not fits or theta.shape != (task.problem.dim,) or not np.isfinite(theta).all():
            raise WireError("a round that is not of this task")
        if task_round.number not in task.rounds_of(task_round.phase):
            raise WireError("a round whose number is none of its phase's")
        return task_round

    def gradient(self, task: Task, X: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
        """What a user with these rows answers: the mean of their gradients at theta, not yet clipped or randomized.

        In a task that blanks, a row that is not valid has gradient 0, whatever is in it.
        """
        if isinstance(task.problem, AskedQuery):
            return task.problem.vector(X, y)
        objective = objective_of(task.problem, self.phase_of(task))
        if not task.blanks:
            task.problem.check_records(X, y)
        gradients: NDArray[np.float64] = Gradients(objective, self.theta, task.blanks)(X, y)
        mean: NDArray[np.float64] = gradients.mean(axis=0)
        return mean

    def phase_of(self, task: Task) -> Phase:
        """Return the phase of the round, with the plan that its users follow."""
        return task.schedule.phases[self.phase - 1]


def _fits(phase: Phase, problem: Problem | AskedQuery) -> bool:
    """Whether a phase's plan is certified and fits; that of secret lots was certified when it was read."""
    return phase.plan.dim == problem.dim and is_proved(phase.plan)


# A user's report, from a vector to sealed bytes: the one function that makes one, for clients and for the shuffler's blanks.


def report_of(
    task: Task,
    task_round: TaskRound,
    document: Document,
    vector: NDArray[np.float64],
    random: RandomSource,
    token: bytes = b"",
) -> SealedReport:
    """Randomize a vector under the round's plan, and seal it for the round's key.

    Guarantee
    ---------
    A report of zeros has the plan's full noise, and no byte of it tells it from another report of the round to whoever does not
    have the round's private key.
    """
    plan = task_round.phase_of(task).plan
    bits = VectorSum(plan).randomize(vector, random)
    return TRANSPORTS[task.transport].seal(bits, plan, document.digest, task_round.key, token)
