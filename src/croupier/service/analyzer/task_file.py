"""Task files: what an analyzer is to train, for whom and under which promise, as a person writes it down in TOML."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ...estimator._linear import LinearModel
from ...privacy import NoCertificateError
from ...privacy.plan import default_delta
from ...table import Schema
from ...table._encode import Encoder
from ...table.describe import TableGuess
from ...table.model import Request, task_for
from ...validation import ArgumentError, Found, blanks, one_of, real, unreadable, whole
from ..wire.documents import WireError
from ..wire.enrolment import EnrollerKeys, check_enroller, keys_command
from ..wire.queries import STATISTICS, StatisticQuery, TrainingQuery, check_coordinates, clients_schema, records_to_dict
from ..wire.task import (
    LONGEST_PACE,
    MAX_EPSILON_IF_WATCHED,
    PACE,
    ROUND_SECONDS,
    TURNOUT,
    SecretRounds,
    Task,
    check_secrecy,
    chosen_transport,
)
from ..wire.transports import LONG_TRANSPORT, TRANSPORTS

# The share of users that is relied on unless the file says otherwise, and for how many seconds a round then waits for the others.
HONEST, PATIENCE = 0.9, 3600.0
# The most characters of a task's name, as documents.json has it.
_LONGEST_NAME = 500
# The names that a task file may state, and of which type each is. docs/deploy.md explains them.
FIELDS = {
    "name": str,
    "schema": str,
    "users": int,
    "shuffler_key": str,
    "epsilon": float,
    "delta": float,
    "transport": str,
    "interactivity": str,
    "task": str,
    "rounds": int,
    "radius": float,
    "max_inflation": float,
    "honest": float,
    "rule": str,
    "invalid": str,
    "patience": float,
    "pace": float,
    "lots": str,
    "round_seconds": float,
    "cover": bool,
    "turnout": float,
    "blocks": int,  # or "auto"
    "enroller": str,
    "output": str,
}


@dataclass(frozen=True)
class TaskFile:
    """A task as it was written down. `load` reads one."""

    facts: Schema
    request: Request
    users: int
    asked_transport: str | None
    shuffler_key: str
    patience: float | None
    name: str
    pace: float
    lots: str
    secret: SecretRounds
    turnout: float
    output: Path
    enroller: EnrollerKeys | None = None
    blocks: int | str = 1  # of the rotated gradient, of which a user sends one
    missing_keys: Path | None = None  # the enroller's file, where it is not there yet: which keys it needs follows from the plan

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TaskFile:
        """Read a task file. Paths in it are relative to its folder."""
        path = Path(path)
        try:
            values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            raise unreadable("--task", path, problem, "a TOML file in UTF-8", "See docs/deploy.md.") from None
        for name, value in values.items():
            wanted = FIELDS.get(name)
            fits = wanted is not None and isinstance(value, (int, float) if wanted is float else wanted)
            fits = fits or (name, value) == ("blocks", "auto")
            if wanted is None or not fits or isinstance(value, bool) != (wanted is bool):
                allowed = f"a {wanted.__name__}" if wanted else f"one of {', '.join(FIELDS)}"
                raise ArgumentError(
                    f"{path}: {name}", value if wanted else Found("is not a known key"), allowed, "Correct the file."
                )
        if len(called := values.get("name", "")) > _LONGEST_NAME:
            remedy = "Shorten it: clients keep it in their ledgers."
            raise ArgumentError(f"{path}: name", Found(f"has {len(called)} characters"), f"at most {_LONGEST_NAME}", remedy)
        for name in ("schema", "users", "shuffler_key"):
            if name not in values:
                raise ArgumentError(f"{path}: {name}", None, "given", "Correct the file.")
        facts = clients_schema(path.parent / values["schema"])
        names = ("rounds", "radius", "max_inflation", "honest", "rule", "invalid")
        passed = {"honest": HONEST} | {name: values[name] for name in names if name in values}
        blanks(passed.get("invalid", "refuse"))
        how = one_of("interactivity", values.get("interactivity", "sequential"), ("sequential", "full"), "Correct the file.")
        parameters = {"epsilon": float(values.get("epsilon", 1.0)), "interactivity": how} | passed
        keys = path.parent / values["enroller"] if "enroller" in values else None
        enroller = EnrollerKeys.load(keys) if keys is not None and keys.exists() else None
        return cls(
            facts,
            Request(task_for(facts, values.get("task")), parameters, values.get("delta")),
            whole("users", values["users"], at_least=2, remedy="State how many users take part."),
            one_of("transport", values["transport"], tuple(TRANSPORTS), "Correct the file.") if "transport" in values else None,
            values["shuffler_key"],
            values.get("patience", PATIENCE if passed["honest"] < 1 else None),
            values.get("name", ""),
            real(
                "pace",
                values.get("pace", PACE),
                above=0,
                at_most=LONGEST_PACE,
                remedy="A round waits a minute for each user who has asked.",
            ),
            _lots(values, enroller),
            SecretRounds(float(values.get("round_seconds", values.get("patience", ROUND_SECONDS))), values.get("cover", False)),
            real("turnout", values.get("turnout", TURNOUT), above=0, at_most=1, remedy="State which share of users comes."),
            path.parent / values.get("output", "model.json"),
            enroller,
            values.get("blocks", 1),
            None if keys is None or enroller is not None else keys,
        )

    @property
    def encoder(self) -> Encoder:
        """Makes rows of a client's records."""
        return Encoder(self.facts)

    @property
    def estimator(self) -> LinearModel:
        """The estimator that is trained, for the task's users; not fitted yet."""
        drafted = self._draft(self.transport)
        blocks = drafted.schedule.phases[-1].plan.blocks if self.blocks == "auto" else self.blocks
        estimator = self._estimator(self.transport, blocks, drafted.stages)
        estimator._why = drafted.schedule.why
        return estimator

    @cached_property
    def transport(self) -> str:
        """How reports travel: as the file says, or as their length allows."""
        return self.asked_transport or chosen_transport(self._draft)

    def task(self) -> Task:
        """The task that clients see. Its identity follows from what it says: the same twice is the same task."""
        task = self._draft(self.transport)
        if self.missing_keys is not None:
            raise ArgumentError("enroller", str(self.missing_keys), "a file that can be read", keys_command(task.schedule))
        check_secrecy(task.secret, task.schedule.secret_lots, task.patience, self.pace)
        return servable(task)

    def _estimator(self, transport: str, blocks: int | str, stages: bool) -> LinearModel:
        estimator = self.request.estimator(self.facts, self.users)
        estimator.set_params(lots=self.lots)
        estimator._exclusions, estimator._transport, estimator._blocks = True, TRANSPORTS[transport].planned_as, blocks
        estimator._stages = stages
        return estimator

    def _draft(self, transport: str) -> Task:
        """The task by a transport, not yet looked at.

        The practical rule has stages where reports and documents stay short, and clients take it if they take the plain rule; not
        with blocks. Of "auto", vectors are in blocks where these make reports shorter, and clients take it. The schedule says why
        the plain rule was taken.
        """
        asked = self.request.parameters.get("rule", "practical")
        if asked in ("centred", "scaled", "whitened"):
            return self._planned(transport, self.blocks, stages=True)
        whole_vectors = self._planned(transport, 1 if self.blocks == "auto" else self.blocks)
        if asked == "practical" and self.blocks == 1:
            try:
                staged = self._planned(transport, 1, stages=True)
            except NoCertificateError:
                return _because(whole_vectors, "because rounds that ask about rows have no certified plan")
            if not staged.stages:
                return _with_why(whole_vectors, staged.schedule.why)
            fits = staged.fits_default()
            if fits and (_taken_if_watched(staged) or not _taken_if_watched(whole_vectors)):
                return staged
            name = staged.schedule.why.split('"')[1]
            worse = "promises too little if watched" if fits else "would make long messages"
            return _because(whole_vectors, f'because rule "{name}" {worse} (set rule = "{name}" to use it all the same)')
        if self.blocks == "auto":
            cut = self._planned(transport, "auto")
            if cut.most_report_bytes() < whole_vectors.most_report_bytes() and _taken_if_watched(cut):
                whole_vectors = cut
        return _because(whole_vectors, "because blocks was given") if asked == "practical" else whole_vectors

    def _planned(self, transport: str, blocks: int | str, stages: bool = False) -> Task:
        """The task by a transport, in so many blocks; with stages where the rule has any."""
        features, estimator = len(self.encoder.names), self._estimator(transport, blocks, stages)
        planned = estimator.plan(self.users, features, turnout=self.turnout)
        gradients = [phase.plan for phase in planned.phases if not phase.opens]
        if blocks != "auto" and any(plan.blocks != blocks for plan in gradients):
            remedy = "Leave it out: the rounds of this task send whole vectors."
            raise ArgumentError("blocks", blocks, "1, where gradients are not rotated or not asked for by secret lots", remedy)
        if self.enroller is not None or self.missing_keys is not None:
            planned = planned.with_bounded_blanks()
        secret = self.secret if planned.secret_lots else None
        patience = None if planned.secret_lots else self.patience
        return Task(
            transport=transport,
            users=self.users,
            query=TrainingQuery(estimator.problem_for(features), records_to_dict(self.facts, self.request)),
            schedule=planned,
            shuffler=public_key("shuffler_key", self.shuffler_key),
            patience=patience,
            name=self.name,
            pace=self.pace,
            enroller=self.enroller,
            secret=secret,
        )


def _because(task: Task, reason: str) -> Task:
    """The task of the plain rule, with the reason for which it was taken in place of "as asked"."""
    return _with_why(task, task.schedule.why.replace("as asked", reason, 1))


def _with_why(task: Task, why: str) -> Task:
    return replace(task, schedule=replace(task.schedule, why=why))


def _taken_if_watched(task: Task) -> bool:
    """Whether clients take the figure for whoever knows when each user answered, unless they say otherwise."""
    watched, delta = task.schedule.guarantee.if_watched, max((phase.lots or phase.plan).delta for phase in task.schedule.phases)
    return watched.slack < delta and watched.epsilon(delta) <= MAX_EPSILON_IF_WATCHED


def servable(task: Task) -> Task:
    """Return a task that can be served as it is; what roles and clients would refuse is refused here, in words of the file."""
    check_enroller(task.enroller, task.schedule, task.transport)
    if isinstance(task.query, TrainingQuery):
        check_coordinates(task.query.problem, task.schedule)
    if task.secret is None and task.schedule.honest < 1 and task.patience is None:
        remedy = "State how many seconds a round waits for the users drawn for it: some may not come."
        raise ArgumentError("patience", None, f"given where honest is {task.schedule.honest}", remedy)
    try:
        task.most_batch_bytes()
    except WireError as problem:
        raise ArgumentError("transport", task.transport, f"{LONG_TRANSPORT} ({problem})", "Correct the file.") from None
    return task


def _lots(values: dict[str, Any], enroller: EnrollerKeys | None) -> str:
    """The task file's word on lots. Open where it says patience, or names an enroller whose keys have no tokens for blanks."""
    remedy = "'secret' hides who is in which round, 'open' is the paper's mode, 'auto' secret where it can be."
    lots: str = one_of("lots", values.get("lots", "auto"), ("auto", "secret", "open"), remedy)
    uncounted = "enroller" in values and (enroller is None or not enroller.blanks)
    lots = "open" if lots == "auto" and ("patience" in values or uncounted) else lots
    given = [name for name in ("round_seconds", "cover", "turnout", "blocks") if name in values]
    if given and (lots == "open" or values.get("interactivity") == "full"):
        remedy = "Leave it out; or let lots be secret: lots = 'secret', in a sequential task."
        raise ArgumentError(given[0], values[given[0]], "left out where lots are open", remedy)
    return lots


def public_key(name: str, text: str) -> Ed25519PublicKey:
    """A role's public key from its 64 hex digits."""
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        raise ArgumentError(name, text, "64 hex digits", "croupier serve key --dir FOLDER prints it.") from None


# Task files that ask one question instead of training: descriptions, histograms, regressions, scores of a model.

# The names that such a file may state, and of which type each is. docs/deploy.md explains them.
QUERY_FIELDS = {
    "query": str,
    "name": str,
    "users": int,
    "shuffler_key": str,
    "epsilon": float,
    "delta": float,
    "transport": str,
    "honest": float,
    "patience": float,
    "pace": float,
    "enroller": str,
    "output": str,
} | {name: kind for statistic in STATISTICS.values() for name, kind in statistic.in_file.items()}


@dataclass(frozen=True)
class QueryFile:
    """A question as it was written down. `load` reads one."""

    query: StatisticQuery
    guess: TableGuess | None
    users: int
    epsilon: float
    delta: float
    honest: float
    asked_transport: str | None
    shuffler_key: str
    patience: float | None
    name: str
    pace: float
    output: Path
    enroller: EnrollerKeys | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> QueryFile:
        """Read a file that asks a question. Paths in it are relative to its folder."""
        path = Path(path)
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        for name, value in values.items():
            wanted = QUERY_FIELDS.get(name)
            if wanted is None or not isinstance(value, wanted if wanted is not float else (int, float)) or isinstance(value, bool):
                allowed = f"a {wanted.__name__}" if wanted else f"one of {', '.join(QUERY_FIELDS)}"
                raise ArgumentError(
                    f"{path}: {name}", value if wanted else Found("is not a known key"), allowed, "Correct the file."
                )
        kind = STATISTICS[one_of(f"{path}: query", values["query"], tuple(STATISTICS), "Leave it out to train a model.")]
        for name in ("users", "shuffler_key", *kind.in_file):
            if name not in values and name not in kind.optional:
                raise ArgumentError(f"{path}: {name}", None, "given", "Correct the file.")
        users = whole("users", values["users"], at_least=2, remedy="State how many users take part.")
        guess = TableGuess.load(path.parent / values["guess"]) if "guess" in values else None
        honest = real("honest", values.get("honest", HONEST), above=0, at_most=1, remedy="1 means everybody.")
        return cls(
            kind.of_file(values, path.parent),
            guess,
            users,
            float(values.get("epsilon", 1.0)),
            float(values.get("delta", default_delta(users))),
            honest,
            one_of("transport", values["transport"], tuple(TRANSPORTS), "Correct the file.") if "transport" in values else None,
            values["shuffler_key"],
            values.get("patience", PATIENCE if honest < 1 else None),
            values.get("name", ""),
            real(
                "pace",
                values.get("pace", PACE),
                above=0,
                at_most=LONGEST_PACE,
                remedy="A round waits a minute for each user who has asked.",
            ),
            path.parent / values.get("output", "answer.json"),
            EnrollerKeys.load(path.parent / values["enroller"]) if "enroller" in values else None,
        )

    @cached_property
    def transport(self) -> str:
        """How reports travel: as the file says, or as their length allows."""
        return self.asked_transport or chosen_transport(self._draft)

    def task(self) -> Task:
        """The task that clients see: one open round, or one per day."""
        return servable(self._draft(self.transport))

    def _draft(self, transport: str) -> Task:
        """The task by a transport, not yet looked at."""
        return Task(
            transport=transport,
            users=self.users,
            query=self.query,
            schedule=self.query.schedule(
                self.users,
                epsilon=self.epsilon,
                delta=self.delta,
                honest=self.honest,
                transport=TRANSPORTS[transport].planned_as,
            ),
            shuffler=public_key("shuffler_key", self.shuffler_key),
            patience=self.patience,
            name=self.name,
            pace=self.pace,
            enroller=self.enroller,
        )

    def answers(self, population: Any) -> Iterator[Any]:
        """Ask the task's users, and wait for the answer; of a question over days, for that of each day so far."""
        return self.query.answers(population, population.task.schedule, population.task.id)

    def answer(self, population: Any) -> Any:
        """Ask the task's users, and wait for the last answer."""
        *_, last = self.answers(population)
        return last


def asks_question(path: str | os.PathLike[str]) -> bool:
    """Say whether a task file asks a question; what cannot be read is left to whoever reads it."""
    try:
        return "query" in tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
