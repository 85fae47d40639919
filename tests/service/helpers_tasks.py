"""A shuffler of many tasks, analyzers of several, and people who are enrolled once: all in this process, analyzers on loopback."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from helpers_roles import Answer, Web, soon

from croupier.cli.tasks import work
from croupier.protocol import VectorSum
from croupier.protocol.randomness import Secret
from croupier.service.analyzer.app import AnalyzerHost, files_of
from croupier.service.client.budget import DeviceBudget
from croupier.service.net.registry import Keyring, TaskState, front_app
from croupier.service.net.server import Served
from croupier.service.shuffler import rounds as shuffler_tables
from croupier.service.shuffler.host import ShufflerHost
from croupier.service.wire.documents import Document, hex_of
from croupier.service.wire.task import RefusedTaskError, Task, TaskRound
from croupier.service.wire.transports import TRANSPORTS

QUESTION = """
query = "histogram"
name = "{name}"
column = "age"
low = 0
high = 100
bins = 4
users = {users}
epsilon = {epsilon}
delta = 1e-6
honest = {honest}
patience = 0.0
pace = 0.05
shuffler_key = "{key}"
"""


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Analyzer:
    """An analyzer of many tasks, on a port of this machine."""

    def __init__(self, folder: Path, stack: ExitStack, **options) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key = hex_of(Keyring(folder).current)
        self.host = stack.enter_context(AnalyzerHost(folder, f"sqlite:///{folder}/analyzer.db", work, **options))
        self.url = stack.enter_context(Served(front_app("analyzer", self.host, self.host.store))).url
        self.token = self.host.registry.new_operator()

    def ones(self, name: str) -> list[int] | None:
        """The counts of the only round, by sqlite3 itself."""
        connection = sqlite3.connect(self.folder / "tasks" / name / "analyzer.db")
        try:
            ((ones, users),) = connection.execute("SELECT ones, users FROM asked").fetchall() or [(None, 0)]
        finally:
            connection.close()
        return None if ones is None else [*json.loads(ones), users]


@dataclass
class Person:
    """Somebody with one token, one ledger for all analyzers, and an age."""

    number: int
    token: str
    budget: DeviceBudget
    age: float
    refused: list[str] = field(default_factory=list)  # tasks beyond the budget
    answers: dict[str, np.ndarray] = field(default_factory=dict)  # counts of what was taken, by tasks


class Service:
    """A shuffler of many tasks behind its web app, people, and what they say."""

    def __init__(self, folder: Path, stack: ExitStack, database: str | None = None, **options) -> None:
        self.folder = folder / "shuffler"
        self.folder.mkdir(parents=True)
        self.url = database or f"sqlite:///{self.folder}/shuffler.db"
        self.host = stack.enter_context(ShufflerHost(self.folder, self.url, **options))
        self.key = hex_of(Keyring(self.folder).current)
        self.web = stack.enter_context(Web(front_app("shuffler", self.host, self.host.people)))
        self.operator = self.host.registry.new_operator()
        self.people: list[Person] = []

    def enrol(self, count: int, folder: Path) -> None:
        names = [shuffler_tables.new_name() for _ in range(count)]
        tokens = shuffler_tables.enrol_all(self.host.people, names)
        self.people += [
            Person(number, token, DeviceBudget(folder / f"ledger-{number}.json"), float(number * 37 % 100))
            for number, token in enumerate(tokens, start=len(self.people))
        ]

    def post(self, path: str, values: object, token: str) -> Answer:
        body = values if isinstance(values, bytes) else json.dumps(values).encode()
        return self.web.post(path, body, bearer(token))

    def ask(self, analyzer: Analyzer, name: str, users: int, *, token: str | None = None, epsilon=1.0, honest=0.8) -> None:
        """Add a question at its analyzer and here, both by their web interfaces."""
        file = self.folder.parent / f"{name}.toml"
        file.write_text(QUESTION.format(name=name, users=users, epsilon=epsilon, honest=honest, key=self.key))
        with Web(front_app("analyzer", analyzer.host, analyzer.host.store)) as web:
            body = json.dumps({"name": name, "files": files_of(file)}).encode()
            done = web.post("/v1/admin/tasks", body, bearer(analyzer.token))
            assert done.status == 200, done.text
        about = {"name": name, "analyzer": f"{analyzer.url}/tasks/{name}", "analyzer_key": analyzer.key}
        done = self.post("/v1/admin/tasks", about, token or self.operator)
        assert done.status == 200, done.text

    def open_round(self, name: str, analyzer: Analyzer) -> tuple[Task, Document]:
        """A task and its first round, once the shuffler has them."""
        at = f"/tasks/{name}/v1"
        task = soon(lambda: (got := self.web.get(f"{at}/task")).status == 200 and got.content)
        document = Document.from_bytes(soon(lambda: self.web.get(f"{at}/round").content))
        return Task.read(Document.from_bytes(task), Ed25519PublicKey.from_public_bytes(bytes.fromhex(analyzer.key))), document

    def answer(self, name: str, analyzer: Analyzer) -> None:
        """Everybody whose budget allows it asks for the task's round, and answers if it is drawn: through the web app."""
        task, document = self.open_round(name, analyzer)
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(analyzer.key))
        task_round = TaskRound.read(document, task, key)
        plan = task_round.phase_of(task).plan

        async def take_part(person: Person) -> None:
            try:
                person.budget.check(task.id, task.schedule.guarantee)
            except RefusedTaskError:
                person.refused.append(name)
                return
            given = await self.web._said("GET", f"/tasks/{name}/v1/round", [b""], bearer(person.token))
            if not given.content:
                return
            assert given.content == document.to_bytes()
            vector = task_round.vector(task, np.array([[person.age]]), np.array([None]))
            bits = VectorSum(plan, seed=document.digest).randomize(vector, Secret.of_seed(person.number).derive(task.id).source())
            report = TRANSPORTS[task.transport].seal(bits, plan, document.digest, task_round.key).to_bytes()
            person.budget.charge(task.id, task.name, analyzer.key, task.schedule.guarantee)
            done = await self.web._said("POST", f"/tasks/{name}/v1/report", [report], bearer(person.token))
            assert done.status in (200, 410), done.text
            if done.status == 200:
                person.answers[name] = bits.bits.sum(axis=1)

        async def everybody() -> None:
            order = random.Random(name).sample(self.people, len(self.people))  # the last may come too late
            for first in range(0, len(order), 100):
                await asyncio.gather(*map(take_part, order[first : first + 100]))

        self.web._runner.run(everybody())

    def expected(self, name: str) -> list[int]:
        """The sum of what was taken, and of how many people."""
        taken = [person.answers[name] for person in self.people if name in person.answers]
        return [*np.sum(taken, axis=0).tolist(), len(taken)]

    def ended(self, name: str) -> bool:
        return self.host.registry.row(name).state is TaskState.ENDED
