"""Tokens of an enroller in the TypeScript client: one task with Python clients, and clients that are killed on their way."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from helpers_node import CLIENT, asked, needs_node, node
from helpers_roles import World, randomness
from test_deployed import Device, deployed
from test_tokens import SIGNERS, keys_of

from croupier.service import enroller as enroller_tables
from croupier.service.enroller import EnrollerRole, enroller_app, new_invitation
from croupier.service.net.database import Database
from croupier.service.net.server import Served
from croupier.service.wire.documents import TASK, Document, WireError, canonical, sha256
from croupier.service.wire.task import Task

pytestmark = pytest.mark.process

USERS = 12


class Enrolled:
    """A task with an enroller, all of it on sockets, and what its people bring."""

    def __init__(self, folder, interactivity: str, transport: str) -> None:
        self.folder, self.rounds = folder, 3 if interactivity == "full" else 1
        self.about = {"interactivity": interactivity, "transport": transport}
        self.stopped = threading.Event()

    @contextmanager
    def running(self):
        database = Database(f"sqlite:///{self.folder / 'enroller.db'}", enroller_tables.ENROLLER)
        role = EnrollerRole(database, SIGNERS[: self.rounds])
        self.invitations = [new_invitation() for _ in range(USERS)]
        role.admit(self.invitations)
        with Served(enroller_app(role)) as enroller:
            self.world = World(self.folder, users=USERS, enroller=keys_of(self.rounds, enroller.url), **self.about)
            try:
                with deployed(self.world) as (running, self.url, _):
                    yield running
            finally:
                self.stopped.set()
        with database.look() as connection:
            self.issued = connection.exec_driver_sql("SELECT count(*) FROM issued").scalar()
        database.close()
        self.world.close()

    @property
    def key(self) -> str:
        return self.world.analyzer_key.public_key().public_bytes_raw().hex()

    def values(self, users, **more):
        """What test/ask.mjs is told about some users."""
        devices = [
            {
                "token": self.world.tokens[user],
                "folder": str(self.folder / f"node{user}"),
                "rows": [{"x": self.world.X[user].tolist(), "y": self.world.y[user]}],
                "seeds": {number: randomness(user, number)._root.hex() for number in range(1, 4)},
                "invitation": self.invitations[user],
                **more,
            }
            for user in users
        ]
        return {"shuffler": self.url, "key": self.key, "epsilon": 8.01, "delta": 1e-2, "devices": devices}

    def python(self, user: int) -> None:
        """A Python client that answers all rounds that ask it."""
        where = (self.url, self.world.tokens[user], self.key)
        more = {"folder": self.folder / f"python{user}", "invitation": self.invitations[user]}
        Device(user, self.world.X, self.world.y, *where, **more).keep_answering(self.rounds, self.stopped)

    def spent(self) -> int:
        return self.world.rows("analyzer", "SELECT count(*) FROM spent")[0][0]


def killed(values, moment: str) -> None:
    """A Node client that is killed at that moment, as by kill -9."""
    text = json.dumps({"what": "devices", **values})
    ended = subprocess.run(
        ["node", str(CLIENT / "test" / "ask.mjs")], input=text, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == -signal.SIGKILL, (moment, ended.stderr)


@needs_node
@pytest.mark.parametrize(
    ("interactivity", "transport"), [("sequential", "masked-sum"), ("full", "masked-sum"), ("sequential", "verified-sum")]
)
def test_python_and_node_clients_with_tokens_make_the_model_of_the_run_in_memory(tmp_path, interactivity, transport):
    there = Enrolled(tmp_path, interactivity, transport)
    with there.running() as running, ThreadPoolExecutor(8) as pool:
        in_node = pool.submit(asked, "devices", **there.values(range(0, USERS, 2)))
        in_python = [pool.submit(there.python, user) for user in range(1, USERS, 2)]
        answers = in_node.result()
        for one in in_python:
            one.result()
        theta = running.result()
    assert [answer["answered"] for answer in answers] == [there.rounds] * (USERS // 2)
    assert np.array_equal(theta, there.world.theta_in_memory(there.world.members()))
    assert there.spent() == sum(map(len, there.world.members()))
    assert there.issued == USERS
    for user in range(0, USERS, 2):
        folder = tmp_path / f"node{user}"
        assert not list(folder.glob("*.requests"))  # what could link a token to its request
        [file] = folder.glob("*.tokens")
        assert json.loads(file.read_text()) == [""] * there.rounds  # used, and forgotten


@needs_node
def test_a_killed_client_resumes_with_its_wallet_and_presents_one_token(tmp_path):
    """Killed before and after its tokens were signed, and before and after its report was taken: one person, one answer."""
    there = Enrolled(tmp_path, "sequential", "masked-sum")
    moments = ["before /v1/tokens", "after /v1/tokens", "before /v1/report", "after /v1/report"]
    with there.running() as running, ThreadPoolExecutor(8) as pool:
        victims = range(len(moments))  # all of the first round
        in_python = [pool.submit(there.python, user) for user in range(len(moments), USERS)]
        for user, moment in zip(victims, moments, strict=True):
            killed(there.values([user], dies=moment), moment)
            if user == 3:
                killed(there.values([user], dies="before /v1/report"), "again, the report that was taken")
        answers = asked("devices", **there.values(victims))
        assert [answer["answered"] for answer in answers] == [1] * len(moments)
        for one in in_python:
            one.result()
        theta = running.result()
    assert np.array_equal(theta, there.world.theta_in_memory(there.world.members()))
    assert there.spent() == USERS
    assert there.issued == USERS


@needs_node
def test_the_wallet_in_node():
    node("--test", CLIENT / "test" / "tokens.test.mjs")


@needs_node
@pytest.mark.parametrize("interactivity", ["sequential", "full"])
def test_an_enroller_that_python_refuses_is_refused(tmp_path, interactivity):
    """Words of an enroller, each changed in one way; the rest of the task is sound."""
    analyzer, slots = Ed25519PrivateKey.generate(), 3 if interactivity == "full" else 1
    good = keys_of(slots, "https://enroller.example:8803")
    world = World(tmp_path, users=USERS, interactivity=interactivity, enroller=good)
    values = json.loads(world.task.document(analyzer).text)
    world.close()
    [first, *others] = values["enroller"]["keys"]
    keys = [
        [],
        [*others, first],
        [first.upper(), *others],
        [first, first],
        [first[:-1] + "0", *others],
        ["7" + first[1:], *others],
        ["0" + first, *others],
        [first[:-2], *others],
        [1, *others],
        [first[:-1] + "g", *others],
        [*[first, *others], first[:-1] + ("1" if first[-1] != "1" else "3")],
        first,
        None,
    ]
    addresses = [
        "http://a",
        "https://a/b",
        "ftp://a",
        "https://",
        "https://a?b",
        "https://a b",
        "https://a\x85",
        "https://a\x1cb",
        "",
        5,
    ]
    enrollers = [{"address": good.address, "keys": some} for some in keys]
    enrollers += [{"address": address, "keys": values["enroller"]["keys"]} for address in addresses]
    enrollers += [{**values["enroller"], "more": 1}, {"keys": values["enroller"]["keys"]}, [], None, "enroller"]
    changed = [values | {"enroller": enroller} for enroller in enrollers] + [values | {"transport": "messages"}, values]
    documents = [signed(words, analyzer) for words in changed]
    key = analyzer.public_key()
    answers = asked("tasks", documents=[d.to_bytes().hex() for d in documents], key=key.public_bytes_raw().hex(), delta=1e-2)
    for document, answer in zip(documents, answers, strict=True):
        try:
            Task.read(document, key)
        except WireError:
            assert "refused" in answer, document.text
        else:
            assert "refused" not in answer, (answer, document.text)


def signed(values: dict, key: Ed25519PrivateKey) -> Document:
    own = {name: value for name, value in values.items() if name != "id"}
    return Document.signed(TASK, {"id": sha256(canonical(own)), **own}, key)
