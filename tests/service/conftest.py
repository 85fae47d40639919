"""Shared by the service tests: fixed signing keys, a small task, its first round, and users' bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers_roles import World, round_of

import croupier as cr
from croupier.protocol import VectorSum
from croupier.protocol.randomness import Secret
from croupier.service.wire.documents import TASK, Document, sha256
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import Task, TaskRound

USERS, DIM = 8, 2
PROBLEM = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=DIM, radius=5.0))


@cache
def small_schedule(interactivity: str = "sequential", users: int = USERS) -> cr.Schedule:
    """Two rounds with few messages: 4 users x 14 a coordinate, or 8 x 9 where all take part in both."""
    asked: dict[str, Any] = {"epsilon": 20.0, "delta": 1e-2, "max_inflation": 3.0}
    return cr.schedule(PROBLEM, users, **asked, rounds=2, method="acsa", interactivity=interactivity, lots="open")


def _json(values: dict[str, Any]) -> bytes:
    """As documents are written, and whatever a dishonest analyzer would write."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


class Roles:
    """The analyzer's and the shuffler's keys, the analyzer's key of the first round, and what they sign."""

    analyzer = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    shuffler = Ed25519PrivateKey.from_private_bytes(bytes(range(32, 64)))
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(range(64, 96)))
    seal = X25519PrivateKey.from_private_bytes(bytes(range(96, 128)))

    @staticmethod
    def task(transport: str = "masked-sum", interactivity: str = "sequential", **changed: Any) -> Task:
        query = TrainingQuery(changed.pop("problem", PROBLEM), changed.pop("records", None))
        values = {"users": USERS, "query": query, "schedule": small_schedule(interactivity)}
        return Task(**{**values, "transport": transport, "shuffler": Roles.shuffler.public_key(), **changed})

    @staticmethod
    def round(**changed: Any) -> TaskRound:
        values = {"task": Roles.task().id, "id": "b1", "number": 1, "phase": 1, "theta": np.array([0.5, -1.25])}
        return TaskRound(**{**values, "key": Roles.seal.public_key(), **changed})

    @staticmethod
    def edited(document: Document, change: Callable[[dict[str, Any]], object]) -> Document:
        """The document with its words changed, and signed by the analyzer again: what a dishonest analyzer could publish."""
        values = json.loads(document.text)
        change(values)
        if document.kind == TASK and values.get("id") == json.loads(document.text)["id"]:
            values["id"] = sha256(_json({name: value for name, value in values.items() if name != "id"}))
        text = _json(values)
        return Document(document.kind, text, Roles.analyzer.sign(b"croupier signature v1" + bytes([document.kind]) + text))


@pytest.fixture(scope="session")
def roles() -> type[Roles]:
    return Roles


@pytest.fixture(scope="session")
def plan() -> cr.SumPlan:
    return small_schedule().phases[0].plan


@pytest.fixture(scope="session")
def users_bits(plan) -> list[Any]:
    """The reports of a round's users, as the in-memory protocol makes them."""
    vectors = np.random.default_rng(7).normal(size=(plan.users, plan.dim))
    return [VectorSum(plan).randomize(vector, Secret.of_seed(user).source()) for user, vector in enumerate(vectors)]


@pytest.fixture
def make_world(tmp_path):
    made = []

    def make(**asked):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(World(folder, **asked))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def opened(make_world):
    """A sequential task, three rounds of four users, whose first round is open at the shuffler."""
    world = make_world(users=12)
    document = round_of(world)
    shuffler = world.shuffler()
    shuffler.open(document)
    return world, shuffler, document
