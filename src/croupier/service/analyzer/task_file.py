"""Task files: what an analyzer is to train, for whom and under which promise, as a person writes it down in TOML."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from ...estimator._linear import LinearModel
from ...invalid import blanks
from ...privacy import default_delta
from ...statistics import Answer, Description, Evaluation
from ...statistics.describing import described
from ...statistics.evaluating import evaluated
from ...table import Schema, TableModel
from ...table.encode import Encoder
from ...table.guess import TableGuess
from ...table.model import Request, task_for
from ...validation import ArgumentError, Found, one_of, real, whole
from ..client.records import clients_schema, words_of_records
from ..wire.documents import WireError
from ..wire.enrolment import EnrollerKeys, check_enroller
from ..wire.queries import AskedQuery, model_to_dict, schema_to_dict
from ..wire.task import LONGEST_PACE, PACE, ROUND_SECONDS, TURNOUT, SecretRounds, Task, check_secrecy
from ..wire.transports import DEFAULT_TRANSPORT, TRANSPORTS

# The share of users that is counted on unless the file says otherwise, and for how many seconds a round then waits for the others.
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
    "honest": float,
    "rule": str,
    "invalid": str,
    "patience": float,
    "pace": float,
    "lots": str,
    "round_seconds": float,
    "cover": bool,
    "turnout": float,
    "enroller": str,
    "output": str,
}


@dataclass(frozen=True)
class TaskFile:
    """A task as it was written down. `load` reads one.

    Attributes
    ----------
    facts : Schema
        The public facts about a client's table.
    request : Request
        The estimator that is trained.
    users : int
        How many users take part.
    transport : {"masked-sum", "verified-sum", "messages"}
        How reports travel.
    shuffler_key : str
        The shuffler's public key, 64 hex digits.
    patience : float or None
        Seconds after which a round ends with as many users as its plan counts on; None waits for all.
    name : str
        Tells apart tasks that ask the same.
    pace : float
        Seconds after it has asked for a round that a client answers it.
    lots : {"auto", "secret", "open"}
        Whether it stays secret which round a user is in, as in the library; "auto" with `patience` or an enroller is open.
    secret : SecretRounds
        How rounds run where lots are secret.
    turnout : float
        The share of users that is counted on to come to their round, where lots are secret and known all the same.
    output : Path
        Where the model goes.
    enroller : EnrollerKeys or None
        Whoever signs tokens for enrolled people.
    """

    facts: Schema
    request: Request
    users: int
    transport: str
    shuffler_key: str
    patience: float | None
    name: str
    pace: float
    lots: str
    secret: SecretRounds
    turnout: float
    output: Path
    enroller: EnrollerKeys | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TaskFile:
        """Read a task file. Paths in it are relative to its folder."""
        path = Path(path)
        try:
            values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise ArgumentError("--task", str(path), f"a TOML file that can be read ({reason})", "See docs/deploy.md.") from None
        for name, value in values.items():
            wanted = FIELDS.get(name)
            fits = wanted is not None and isinstance(value, (int, float) if wanted is float else wanted)
            if wanted is None or not fits or isinstance(value, bool) != (wanted is bool):
                allowed = f"a {wanted.__name__}" if wanted else f"one of {', '.join(FIELDS)}"
                raise ArgumentError(f"{path}: {name}", value, allowed, "Mend the file.")
        if len(called := values.get("name", "")) > _LONGEST_NAME:
            remedy = "Clients keep it on their ledgers: shorten it."
            raise ArgumentError(f"{path}: name", Found(f"has {len(called)} characters"), f"at most {_LONGEST_NAME}", remedy)
        for name in ("schema", "users", "shuffler_key"):
            if name not in values:
                raise ArgumentError(f"{path}: {name}", None, "given", "Mend the file.")
        facts = clients_schema(path.parent / values["schema"])
        names = ("rounds", "radius", "honest", "rule", "invalid")
        passed = {"honest": HONEST} | {name: values[name] for name in names if name in values}
        blanks(passed.get("invalid", "refuse"))
        how = one_of("interactivity", values.get("interactivity", "sequential"), ("sequential", "full"), "Mend the file.")
        parameters = {"epsilon": float(values.get("epsilon", 1.0)), "interactivity": how} | passed
        return cls(
            facts,
            Request(task_for(facts, values.get("task")), parameters, values.get("delta")),
            whole("users", values["users"], at_least=2, remedy="Say how many users take part."),
            one_of("transport", values.get("transport", DEFAULT_TRANSPORT), tuple(TRANSPORTS), "Mend the file."),
            values["shuffler_key"],
            values.get("patience", PATIENCE if passed["honest"] < 1 else None),
            values.get("name", ""),
            real(
                "pace", values.get("pace", PACE), above=0, at_most=LONGEST_PACE, remedy="A round waits a minute for who has asked."
            ),
            _lots(values),
            SecretRounds(float(values.get("round_seconds", ROUND_SECONDS)), values.get("cover", False)),
            real("turnout", values.get("turnout", TURNOUT), above=0, at_most=1, remedy="Say which share of users comes."),
            path.parent / values.get("output", "model.json"),
            EnrollerKeys.load(path.parent / values["enroller"]) if "enroller" in values else None,
        )

    @property
    def encoder(self) -> Encoder:
        """Makes rows of a client's records."""
        return Encoder(self.facts)

    @property
    def estimator(self) -> LinearModel:
        """The estimator that is trained, for the task's users; not fitted yet."""
        estimator = self.request.estimator(self.facts, self.users)
        estimator.set_params(lots=self.lots)
        estimator._exclusions = True
        return estimator

    def task(self) -> Task:
        """The task that clients see. Its identity follows from what it says: the same twice is the same task."""
        features = len(self.encoder.names)
        planned = self.estimator.schedule_for(self.users, features).with_turnout(self.turnout)
        secret = self.secret if planned.secret_lots else None
        patience = None if planned.secret_lots else self.patience
        check_secrecy(secret, planned.secret_lots, patience, self.pace)
        task = Task(
            transport=self.transport,
            users=self.users,
            problem=self.estimator.problem_for(features),
            schedule=planned,
            shuffler=public_key("shuffler_key", self.shuffler_key),
            records=words_of_records(self.facts, self.request),
            patience=patience,
            name=self.name,
            pace=self.pace,
            enroller=self.enroller,
            secret=secret,
        )
        return servable(task)


def servable(task: Task) -> Task:
    """Return a task that can be served as it is; what roles and clients would refuse is refused here, in words of the file."""
    if task.enroller is not None:
        check_enroller(task.enroller, task.schedule, task.transport)
    if task.secret is None and task.schedule.honest < 1 and task.patience is None:
        remedy = "Say for how many seconds a round waits for the users that were drawn for it: some may not come."
        raise ArgumentError("patience", None, f"given where honest is {task.schedule.honest}", remedy)
    try:
        task.most_batch_bytes()
    except WireError as problem:
        raise ArgumentError("transport", task.transport, f"{DEFAULT_TRANSPORT} ({problem})", "Mend the file.") from None
    return task


def _lots(values: dict[str, Any]) -> str:
    """The task file's word on lots. A round that ends when enough have come tells how many came: with patience lots are open."""
    remedy = "'secret' hides who is in which round, 'open' is the paper's mode, 'auto' secret where it can be."
    lots: str = one_of("lots", values.get("lots", "auto"), ("auto", "secret", "open"), remedy)
    if lots == "secret" and "patience" in values:
        remedy = 'Say round_seconds: a round of secret lots ends then, whoever came. Or say lots = "open".'
        raise ArgumentError("patience", values["patience"], "left out where lots are secret", remedy)
    lots = "open" if lots == "auto" and ("patience" in values or "enroller" in values) else lots
    given = [name for name in ("round_seconds", "cover", "turnout") if name in values]
    if given and (lots == "open" or values.get("interactivity") == "full"):
        remedy = "Leave it out; or let lots be secret: sequential, and without patience."
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
    "guess": str,
    "schema": str,
    "model": str,
    "column": str,
    "low": float,
    "high": float,
    "bins": int,
}
# What each kind of question needs.
NEEDED = {"describe": ("guess",), "histogram": ("column", "low", "high"), "regression": ("schema",), "evaluate": ("model",)}


@dataclass(frozen=True)
class QueryFile:
    """A question as it was written down. `load` reads one.

    Attributes
    ----------
    query : AskedQuery
        The question.
    guess : TableGuess or None
        Of a description: its guesses, with the target for a schema.
    users : int
        How many users take part.
    epsilon, delta : float
        What each is promised.
    honest : float
        Fraction of users whose noise is counted on.
    transport : {"masked-sum", "verified-sum", "messages"}
        How reports travel.
    shuffler_key : str
        The shuffler's public key, 64 hex digits.
    patience : float or None
        Seconds after which the round ends with as many users as the plan counts on; None waits for all.
    name : str
        Tells apart tasks that ask the same.
    pace : float
        Seconds after it has asked for the round that a client answers it.
    output : Path
        Where the answer goes, as JSON; a page with pictures goes beside it.
    enroller : EnrollerKeys or None
        Whoever signs tokens for enrolled people.
    """

    query: AskedQuery
    guess: TableGuess | None
    users: int
    epsilon: float
    delta: float
    honest: float
    transport: str
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
                raise ArgumentError(f"{path}: {name}", value, allowed, "Mend the file.")
        kind = one_of(f"{path}: query", values["query"], tuple(NEEDED), "Leave it out to train a model.")
        for name in ("users", "shuffler_key", *NEEDED[kind]):
            if name not in values:
                raise ArgumentError(f"{path}: {name}", None, "given", "Mend the file.")
        users = whole("users", values["users"], at_least=2, remedy="Say how many users take part.")
        words, guess = _words(kind, values, path.parent)
        honest = real("honest", values.get("honest", HONEST), above=0, at_most=1, remedy="1 counts on everybody.")
        return cls(
            AskedQuery(words),
            guess,
            users,
            float(values.get("epsilon", 1.0)),
            float(values.get("delta", default_delta(users))),
            honest,
            one_of("transport", values.get("transport", DEFAULT_TRANSPORT), tuple(TRANSPORTS), "Mend the file."),
            values["shuffler_key"],
            values.get("patience", PATIENCE if honest < 1 else None),
            values.get("name", ""),
            real(
                "pace", values.get("pace", PACE), above=0, at_most=LONGEST_PACE, remedy="A round waits a minute for who has asked."
            ),
            path.parent / values.get("output", "answer.json"),
            EnrollerKeys.load(path.parent / values["enroller"]) if "enroller" in values else None,
        )

    def task(self) -> Task:
        """The task that clients see: one open round."""
        task = Task(
            transport=self.transport,
            users=self.users,
            problem=self.query,
            schedule=self.query.schedule(self.users, epsilon=self.epsilon, delta=self.delta, honest=self.honest),
            shuffler=public_key("shuffler_key", self.shuffler_key),
            patience=self.patience,
            name=self.name,
            pace=self.pace,
            enroller=self.enroller,
        )
        return servable(task)

    def answer(self, population: Any) -> Description | Evaluation | Answer | Any:
        """Ask the task's users, and wait for the answer."""
        task = population.task
        if self.query.kind == "regression":
            return self.query.regression(population, task.schedule, task.id)
        answer = self.query.ask(population, task.schedule, task.id)
        if self.query.kind == "describe":
            return described(answer)
        return evaluated(answer) if self.query.kind == "evaluate" else answer


def asks_question(path: str | os.PathLike[str]) -> bool:
    """Say whether a task file asks a question; what cannot be read is left to whoever reads it."""
    try:
        return "query" in tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False


def _words(kind: str, values: dict[str, Any], folder: Path) -> tuple[dict[str, Any], TableGuess | None]:
    if kind == "describe":
        guess = TableGuess.load(folder / values["guess"])
        if guess.user is not None:
            raise ArgumentError("guess: user", guess.user, "left out", "A client has its own rows alone.")
        return {"kind": kind, "columns": guess.to_list()}, guess
    if kind == "histogram":
        bins = values.get("bins", 20)
        return {"kind": kind, "bins": bins} | {name: values[name] for name in ("column", "low", "high")}, None
    if kind == "regression":
        return {"kind": kind, "schema": schema_to_dict(clients_schema(folder / values["schema"]))}, None
    model = TableModel.load(folder / values["model"])
    # How the model was trained, on whom and by which schema, is nothing that its scores depend on.
    facts = replace(model.schema, user=None, described=None)
    return {"kind": kind, "model": model_to_dict(model) | {"schema": schema_to_dict(facts)}}, None
