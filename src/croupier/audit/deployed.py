"""Deployed rounds as games: real reports, through a real shuffler, to a player who is the analyzer.

Every run has a shuffler of its own, with its own database, made by one copy of a shuffler that has taken the task. The analyzer is
the player, so it does what it likes with what the shuffler sends: by the code that a real analyzer opens batches with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from ..optimizer import schedule
from ..privacy import Guarantee
from ..privacy.crowd import honest_total
from ..problem import Ball, Hinge, Problem
from ..protocol import Report
from ..protocol.randomness import RandomSource
from ..service.analyzer.population import most_excluded
from ..service.net import database as tables
from ..service.net.database import Database
from ..service.shuffler.role import ShufflerRole
from ..service.wire.documents import sha256
from ..service.wire.reports import Exclusions
from ..service.wire.task import Task, TaskRound, report_of
from ..service.wire.transports import TRANSPORTS, Release, SealedBatch, SealedReport
from .games import Coins, Kind, Mechanism

Floats = NDArray[np.float64]
_USERS = 8
# Of whom four in five are honest: 16 are, of whom 4 may be left out.
_USERS_WITH_CHEATS, _HONEST = 20, 0.8


class _Deployment:
    """A task with its keys, and the shuffler's database once it has taken the task: every run begins with a copy of that."""

    def __init__(self, task: Callable[[Ed25519PrivateKey], Task]) -> None:
        self.analyzer, self.shuffler = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        self.task = task(self.shuffler)
        self.names = [f"user {number:03}" for number in range(self.task.users)]
        self._store = Database("sqlite://", tables.SHUFFLER)  # in memory, and of this thread alone
        tables.enrol_all(self._store, self.names)
        self._taken = self._connection().serialize()

    def _connection(self) -> Any:
        return self._store.engine.raw_connection().driver_connection

    def role(self) -> ShufflerRole:
        """A shuffler that has just taken the task, and drawn its lots; the one before it is gone."""
        self._connection().deserialize(self._taken)
        role = ShufflerRole(self._store, self.shuffler, self.analyzer.public_key())
        role.take_task(self.task.document(self.analyzer))
        return role


@dataclass
class _Round:
    """A round of the task, and the analyzer's key for it."""

    deployment: _Deployment
    number: int
    key: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)

    def __post_init__(self) -> None:
        task = self.deployment.task
        name = f"{self.number:032x}"
        self.round = TaskRound(task.id, name, self.number, 1, np.zeros(task.problem.dim), self.key.public_key())
        self.document = self.round.document(self.deployment.analyzer)
        self.plan = self.round.phase_of(task).plan

    def report(self, vector: float, random: RandomSource) -> bytes:
        """A user's report, as its device makes it."""
        return report_of(self.deployment.task, self.round, self.document, np.full(1, vector), random).to_bytes()

    def report_without_noise(self) -> bytes:
        """A cheat's report: it is well formed, holds zeros alone, and the analyzer knows it."""
        task, zeros = self.deployment.task, Report(np.zeros((1, self.plan.bits_per_coordinate), np.uint8), private=False)
        return TRANSPORTS[task.transport].seal(zeros, self.plan, self.document.digest, self.round.key).to_bytes()

    def sum(self, role: ShufflerRole, left_out: Sequence[bytes] = ()) -> float:
        """What the shuffler releases without the reports of these envelopes, as the analyzer counts it."""
        name, data = cast(tuple[str, bytes], role.waiting_batch())
        public = self.deployment.shuffler.public_key()
        transport = TRANSPORTS[self.deployment.task.transport]
        batch = SealedBatch.from_bytes(data, self.plan.bits_per_coordinate, public)
        out = [place for place, part in enumerate(batch.sealed) if part.tobytes().startswith(tuple(left_out))] if left_out else []
        secret = transport.analyzer_secret(self.key, public, self.document.digest)
        rest = np.delete(batch.sealed, np.array(out, dtype=np.int64), axis=0)
        kept = SealedBatch(batch.transport, batch.round, batch.dim, len(rest), rest)
        share = cast(NDArray[np.uint64], transport.check(kept, self.plan, self.key, secret=secret).share)
        role.forwarded(name)
        task = self.deployment.task
        role.releases.take(task, Exclusions(task.id, name, sha256(data), tuple(out)).document(self.deployment.analyzer))
        ready = role.releases.ready()
        if ready is None:  # the round is given up: nothing was learned
            return 0.0
        release = Release.from_bytes(ready[1], public)
        role.releases.arrived(name)
        counts = transport.counts(release, share, self.plan)
        return 0.0 if counts is None else float(counts.ones[0])


def _problem() -> Problem:
    """The hinge loss over a ball in which nobody's margin is reached: gradients are -y x, at an end of the plan's ball."""
    return Problem(loss=Hinge(), domain=Ball(dim=1, radius=0.25))


def _one_round(transport: str, users: int, epsilon: float, delta: float, honest: float = 1.0) -> _Deployment:
    problem = _problem()
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rounds": 1, "honest": honest, "lots": "open"}
    planned = schedule(problem, users, **asked, interactivity="full", exclusions=honest < 1)
    return _Deployment(lambda key: Task(transport, users, problem, planned, key.public_key()))


def _transported(transport: str, epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """One round in which everybody answers."""
    deployment = _one_round(transport, _USERS, epsilon, delta)

    def released(neighbour: bool) -> float:
        role, asked = deployment.role(), _Round(deployment, 1)
        role.open(asked.document)
        norm = asked.plan.norm
        vectors = [norm if neighbour else -norm, *[norm] * (_USERS - 1)]
        reports = [asked.report(vector, coins.source) for vector in vectors]
        role.receive_all(list(zip(deployment.names, reports, strict=True)))
        return asked.sum(role)

    return deployment.task.schedule.guarantee, released


def _excluded(transport: str, epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """One round with as many cheats as the premise allows, of which the analyzer leaves out as many honest ones as it may.

    All but the person tell the analyzer which envelopes are theirs. Cheats add no noise; honest ones keep their coins.
    """
    users = _USERS_WITH_CHEATS
    deployment = _one_round(transport, users, epsilon, delta, _HONEST)
    task = deployment.task
    most = most_excluded(task, task.schedule.phases[0])
    cheats = users - honest_total(users, _HONEST)

    def released(neighbour: bool) -> float:
        role, asked = deployment.role(), _Round(deployment, 1)
        role.open(asked.document)
        norm = asked.plan.norm
        vectors = [norm if neighbour else -norm, *[norm] * (users - cheats - 1)]
        reports = [asked.report(vector, coins.source) for vector in vectors]
        reports += [asked.report_without_noise() for _ in range(cheats)]
        role.receive_all(list(zip(deployment.names, reports, strict=True)))
        envelopes = [SealedReport.from_bytes(report).sealed.tobytes() for report in reports[1 : 1 + most]]
        return asked.sum(role, envelopes)

    return task.schedule.guarantee, released


_TURNED = "one person's vector at one end of the ball or at the other"
_TENTH = 0.1
DEPLOYED: tuple[Kind, ...] = (
    Kind("masked sum, deployed", f"what the shuffler sends; {_TURNED}", partial(_transported, "masked-sum"), _TENTH),
    Kind("verified sum, deployed", f"what the shuffler sends; {_TURNED}", partial(_transported, "verified-sum"), _TENTH),
    Kind(
        "exclusions by a cheat, deployed",
        f"the sum without as many honest users as the analyzer may leave out, beside cheats without noise; {_TURNED}",
        partial(_excluded, "masked-sum"),
        _TENTH,
    ),
)
