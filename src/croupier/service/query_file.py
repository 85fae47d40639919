"""Task files that ask one question instead of training: descriptions, histograms, regressions, scores of a model."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..privacy import default_delta
from ..statistics import Answer, Description, Evaluation
from ..statistics.describing import described
from ..statistics.evaluating import evaluated
from ..table import TableGuess, TableModel
from ..validation import ArgumentError, one_of, real, whole
from .enrolment import EnrollerKeys
from .model_words import model_words
from .queries import AskedQuery
from .query_kinds import words_of_schema
from .records import clients_schema
from .task import LONGEST_PACE, PACE, Task
from .task_file import HONEST, PATIENCE, public_key, servable
from .wire import TRANSPORTS

# The names that such a file may state, and of which type each is. docs/deploy.md explains them.
FIELDS = {
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
        """Read a file that asks a question. Paths in it are relative to its folder.

        Parameters
        ----------
        path : path-like
            The TOML file.

        Returns
        -------
        QueryFile
            What it says, checked.

        Raises
        ------
        ArgumentError
            Where it states something unknown, or leaves out what is needed.
        """
        path = Path(path)
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        for name, value in values.items():
            wanted = FIELDS.get(name)
            if wanted is None or not isinstance(value, wanted if wanted is not float else (int, float)) or isinstance(value, bool):
                allowed = f"a {wanted.__name__}" if wanted else f"one of {', '.join(FIELDS)}"
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
            one_of("transport", values.get("transport", "masked-sum"), tuple(TRANSPORTS), "Mend the file."),
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
        """The task that clients see: one open round.

        Returns
        -------
        Task
            With the plan by the question's diameter.

        Raises
        ------
        ArgumentError
            Where the question cannot be asked so: batches would be too large, or tokens worth nothing.
        NoCertificateError
            Where no plan can be proved.
        """
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
        """Ask the task's users, and wait for the answer.

        Parameters
        ----------
        population : RemotePopulation
            The task's users.

        Returns
        -------
        Description, Evaluation, Answer or ShuffleLinearRegression
            By the kind of the question.
        """
        task = population.task
        if self.query.kind == "regression":
            return self.query.regression(population, task.schedule, task.id)
        answer = self.query.ask(population, task.schedule, task.id)
        if self.query.kind == "describe":
            return described(answer)
        return evaluated(answer) if self.query.kind == "evaluate" else answer


def asks_question(path: str | os.PathLike[str]) -> bool:
    """Say whether a task file asks a question; what cannot be read is left to whoever reads it.

    Parameters
    ----------
    path : path-like
        The TOML file.

    Returns
    -------
    bool
        Whether it has the key `query`.
    """
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
        return {"kind": kind, "schema": words_of_schema(clients_schema(folder / values["schema"]))}, None
    model = TableModel.load(folder / values["model"])
    # How the model was trained, on whom and by which schema, is nothing that its scores depend on.
    facts = replace(model.schema, user=None, described=None)
    return {"kind": kind, "model": model_words(model) | {"schema": words_of_schema(facts)}}, None
