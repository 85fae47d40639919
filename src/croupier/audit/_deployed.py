"""Deployed rounds as games: real reports, through a real shuffler, to a player who is the analyzer or also watches the network.

Every run has a shuffler of its own, with its own database, made by one copy of a shuffler that has taken the task. The analyzer is
the player, so it does what it likes with what the shuffler sends: by the code that a real analyzer opens batches with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..optimizer import schedule
from ..privacy import Guarantee
from ..privacy._crowd import honest_total
from ..problem import Ball, Hinge, Logistic, Problem
from ..problem.problem import Coordinates
from ..protocol import Counts, Report
from ..protocol.randomness import RandomSource
from ..service.client.client import Client
from ..service.net.database import Database
from ..service.shuffler.role import RoundClock, ShufflerRole
from ..service.shuffler.rounds import SHUFFLER, enrol_all
from ..service.wire.documents import Exclusions, sha256
from ..service.wire.queries import TrainingQuery, statistic_from_dict
from ..service.wire.task import Lot, SecretRounds, Start, Task, TaskRound, most_excluded, report_of
from ..service.wire.transports import TRANSPORTS, CheckedTransport, Release, SealedBatch, SealedReport
from ._games import Coins, Kind, Mechanism

Floats = NDArray[np.float64]
_USERS = 8
_DAYS = 3
# Of whom four in five are honest: 16 are, of whom 4 may be left out.
_USERS_WITH_CHEATS, _HONEST = 20, 0.8
# With secret lots, users and rounds. The figure for an observer needs enough users in every round; the other one is the farther
# below it, the more rounds there are.
_WATCHED, _COVERED = (80, 2), (8, 4)
# The part of epsilon that lots are planned with, so that the figure for an observer is about epsilon.
_PART_IF_WATCHED = 0.29
# What a device accepts: anything.
_ANYTHING = 1e6
# Seconds of the game's clock: no run takes them.
_ROUND_SECONDS, _PACE = 4.0, 1.0


class _Deployment:
    """A task with its keys, and the shuffler's database once it has taken the task: every run begins with a copy of that."""

    def __init__(self, task: Callable[[Ed25519PrivateKey], Task]) -> None:
        self.analyzer, self.shuffler = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        self.document = task(self.shuffler).document(self.analyzer)
        self.task = Task.read(self.document, self.analyzer.public_key())
        self.names = [f"user {number:03}" for number in range(self.task.users)]
        self._store = Database("sqlite://", SHUFFLER)  # in memory, and of this thread alone
        self.tokens = enrol_all(self._store, self.names)
        self._taken = self._connection().serialize()

    def _connection(self) -> Any:
        return self._store.engine.raw_connection().driver_connection

    def role(self) -> ShufflerRole:
        """A shuffler that has just taken the task, and drawn its lots; the one before it is gone."""
        self._connection().deserialize(self._taken)
        role = ShufflerRole(self._store, self.shuffler, self.analyzer.public_key())
        role.take_task(self.document)
        return role

    def lots(self) -> dict[str, int]:
        """Everybody's secret lot."""
        return dict(self._connection().execute("SELECT client, first FROM lots").fetchall())


@dataclass
class _Round:
    """A round of the task, and the analyzer's key for it."""

    deployment: _Deployment
    number: int
    key: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)

    def __post_init__(self) -> None:
        task = self.deployment.task
        name, phases = f"{self.number:032x}", range(1, len(task.schedule.phases) + 1)
        phase = next(place for place in phases if self.number in task.rounds_of(place))
        theta, found = np.zeros(task.query_of(phase).parameters), _HOSTILE if task.stages and phase > 1 else None
        self.round = TaskRound(task.id, name, self.number, phase, theta, self.key.public_key(), coordinates=found)
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
        role.exclude(Exclusions(task.id, name, sha256(data), tuple(out)).document(self.deployment.analyzer))
        ready = role.waiting_release()
        if ready is None:  # the round is given up: nothing was learned
            return 0.0
        release = Release.from_bytes(ready[1], public)
        role.released(name)
        counts = transport.counts(release, share, self.plan)
        return 0.0 if counts is None else float(counts.ones[0])


def _problem() -> Problem:
    """The hinge loss over a ball in which nobody's margin is reached: gradients are -y x, at an end of the plan's ball."""
    return Problem(loss=Hinge(), domain=Ball(dim=1, radius=0.25))


def _one_round(transport: str, users: int, epsilon: float, delta: float, honest: float = 1.0) -> _Deployment:
    problem = _problem()
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rounds": 1, "honest": honest, "lots": "open"}
    planned = schedule(problem, users, **asked, interactivity="full", exclusions=honest < 1)
    return _Deployment(lambda key: Task(transport, users, TrainingQuery(problem), planned, key.public_key()))


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


def _stream(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """All rounds of a task that counts over days, with the person's own device.

    The person's records say the last day alone; or on each day that very day, and nothing of the days before: what a device had
    counted must stay. Of these two, one counts on the first day and one on the last, which are farthest apart.
    """
    query = statistic_from_dict({"kind": "stream", "column": "day", "start": "2020-01-01", "days": _DAYS, "per_person": 1})
    planned = query.schedule(_USERS, epsilon=epsilon, delta=delta)
    deployment = _Deployment(lambda key: Task("masked-sum", _USERS, query, planned, key.public_key()))
    root = query.statistic.root
    towards = root[:, -1] - root[:, 0]

    def released(neighbour: bool) -> float:
        role, seen = deployment.role(), []
        with TemporaryDirectory() as folder:
            client = _watched_client(deployment, role, Path(folder))
            for number in range(1, _DAYS + 1):
                asked = _Round(deployment, number)
                role.open(asked.document)
                others = deployment.names[1:]
                role.receive_all([(name, asked.report(0.0, coins.source)) for name in others])
                day = _DAYS if neighbour else number
                client.take_part_with({"day": f"2020-01-{day:02}"}, random=coins.source)
                seen.append(asked.sum(role))
        return float(np.array(seen) @ towards)

    return planned.guarantee, released


class _Clock(RoundClock):
    """The shuffler's clock, which stands still unless the game moves it."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


class _WatchedClient(Client):
    """A client whose requests go to a shuffler in the same process, and who notes what an observer of the network sees of them."""

    role: ShufflerRole
    name: str
    opened: float = 0.0  # when the round was
    traffic: tuple[tuple[float, str, int, int], ...] = ()  # since then: when, where to, and the lengths of request and answer

    def _sent(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        answer = self._answered(path, body)
        self.traffic = (*self.traffic, (self.role.clock.now() - self.opened, path, len(body or b""), len(answer)))
        return answer

    def _answered(self, path: str, body: bytes | None) -> bytes:
        if path == "/v1/start":
            return cast(Start, self.role.starts_for([self.name])[0]).to_bytes()
        if path == "/v1/lot":
            return cast(Lot, self.role.lots_for([self.name])[0]).to_bytes()
        if path == "/v1/round":
            document = self.role.rounds_for([self.name])[0]
            return b"" if document is None else document.to_bytes()
        self.role.receive(self.name, body or b"")
        return b""


def _lots(cover: bool, epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """All rounds of a task with secret lots. The player knows the others' lots, and sees the person's traffic and the sums.

    Without cover the player also has the coins of the blanks, since the figure for an observer is to hold for the shuffler too.
    """
    problem, (users, rounds) = _problem(), _COVERED if cover else _WATCHED
    asked: dict[str, Any] = {"epsilon": epsilon * (1 if cover else _PART_IF_WATCHED), "delta": delta, "rounds": rounds}
    planned, secret = schedule(problem, users, **asked, lots="secret"), SecretRounds(_ROUND_SECONDS, cover)
    deployment = _Deployment(
        lambda key: Task("masked-sum", users, TrainingQuery(problem), planned, key.public_key(), pace=_PACE, secret=secret)
    )
    return planned.guarantee if cover else planned.guarantee.if_watched, partial(_watched_run, deployment, coins)


def _staged(epsilon: float, delta: float, coins: Coins) -> tuple[Guarantee, Mechanism]:
    """Two rounds that ask different questions, by secret lots that the player knows: for rows, then for gradients in coordinates
    that blow rows up as far as numbers go. In either, the person's vector is at one end of the round's ball or at the other."""
    problem, (users, rounds) = Problem(loss=Logistic(), domain=Ball(dim=1, radius=0.25)), _WATCHED
    asked: dict[str, Any] = {"epsilon": epsilon * _PART_IF_WATCHED, "delta": delta, "rounds": rounds, "rule": "whitened"}
    usual = schedule(problem, users, **asked, lots="secret", max_inflation=1.05)
    opening, descent = usual.phases
    planned = replace(usual, phases=(replace(opening, algorithm="mean"), descent))
    query, secret = TrainingQuery(problem), SecretRounds(_ROUND_SECONDS)
    deployment = _Deployment(lambda key: Task("masked-sum", users, query, planned, key.public_key(), pace=_PACE, secret=secret))
    return planned.guarantee.if_watched, partial(_watched_run, deployment, coins)


def _watched_run(deployment: _Deployment, coins: Coins, neighbour: bool) -> float:
    """The ratio of likelihoods of the person's two rows, over the rounds that can be the person's by what the player has seen."""
    role, lots, person, task = deployment.role(), deployment.lots(), deployment.names[0], deployment.task
    role.clock = clock = _Clock()
    cover, row = cast(SecretRounds, task.secret).cover, np.array([[-1.0 if neighbour else 1.0]])
    seen, ratios = [], []
    with TemporaryDirectory() as folder:
        client = _watched_client(deployment, role, Path(folder))
        for number in range(1, task.schedule.rounds + 1):
            asked, client.opened, client.traffic = _Round(deployment, number), clock.time, ()
            role.open(asked.document)
            others = [name for name, lot in lots.items() if lot == number and name != person]
            role.receive_all([(name, asked.report(asked.plan.norm, coins.source)) for name in others])
            clock.time += 1
            role.close_late()
            client.take_part(row, np.ones(1), random=coins.source)
            told = (0, 0.0) if cover else _told_blanks(role, asked, len(others) + (lots.get(person) == number))
            role.close_late()
            if role.waiting_batch() is None:
                clock.time += 2 * _ROUND_SECONDS
                role.close_late()
            seen.append((*client.traffic, (clock.time - client.opened, "batch")))
            towards = -1 if asked.round.phase_of(task).opens else 1  # gradients point away from rows
            ratios.append(towards * _ratio(asked, len(others), told, asked.sum(role)))
    possible = np.array(ratios)[_possible(seen)]
    return float(logsumexp(possible) - logsumexp(-possible)) if possible.size else 0.0


def _watched_client(deployment: _Deployment, role: ShufflerRole, folder: Path) -> _WatchedClient:
    """The person's device. It has asked for the task, and with cover for its lot, as it does once."""
    key = deployment.analyzer.public_key().public_bytes_raw().hex()
    accepts: dict[str, Any] = {"max_epsilon": _ANYTHING, "max_delta": 0.5, "max_epsilon_if_watched": math.inf}
    client = _WatchedClient("http://localhost", deployment.tokens[0], key, folder=folder, at_once=True, **accepts)
    client.role, client.name = role, deployment.names[0]
    secret = client.task().secret
    if secret is not None and secret.cover:
        client.lot()
    return client


def _told_blanks(role: ShufflerRole, asked: _Round, arrived: int) -> tuple[int, float]:
    """How many blanks fill the round, and their ones: what the shuffler that made them can tell."""
    task, plan = asked.deployment.task, asked.plan
    transport = cast(CheckedTransport, TRANSPORTS[task.transport])
    blanks = role._blanks.of(task, asked.round, asked.document, [[]])[0][arrived:]
    batch = SealedBatch(task.transport, asked.document.digest, plan.coordinates, len(blanks), transport.parts(blanks, plan))
    share = cast(NDArray[np.uint64], transport.check(batch, plan, asked.key).share)
    counts = transport.counts(transport.release(blanks, plan, bytes(32)), share, plan)
    return len(blanks), float(cast(Counts, counts).ones[0])


def _ratio(asked: _Round, others: int, told: tuple[int, float], ones: float) -> float:
    """Half of the log-likelihood ratio of the person's two rows if this is the person's round."""
    plan = asked.plan
    noisy, up = plan.users - told[0], plan.levels / 2
    noise = plan.noise_bits * plan.noise_probability
    left = ones - told[1] - others * up - noisy * (up + noise)
    return left * up / (noisy * noise * (1 - plan.noise_probability))


def _possible(seen: Sequence[Any]) -> list[int]:
    """The rounds in which the device sent a report, and of these the ones that look like the fewest others."""
    sent = [place for place, what in enumerate(seen) if any("/v1/report" in one for one in what)]
    alike = Counter(seen[place] for place in sent)
    return [place for place in sent if alike[seen[place]] == min(alike.values())]


_HOSTILE = Coordinates(np.array([3e38]))
_TURNED = "one person's vector at one end of the ball or at the other"
_ROW = "one person's row turned round"
_TENTH, _TWENTIETH = 0.1, 0.05
DEPLOYED: tuple[Kind, ...] = (
    Kind("masked sum, deployed", f"what the shuffler sends; {_TURNED}", partial(_transported, "masked-sum"), _TENTH),
    Kind("verified sum, deployed", f"what the shuffler sends; {_TURNED}", partial(_transported, "verified-sum"), _TENTH),
    Kind(
        "exclusions by a cheat, deployed",
        f"the sum without as many honest users as the analyzer may leave out, beside cheats without noise; {_TURNED}",
        partial(_excluded, "masked-sum"),
        _TENTH,
    ),
    Kind(
        "counts over time, deployed",
        "every day's sum; the records of one person's device say the last day, or on each day another one",
        _stream,
        _TWENTIETH,
    ),
    Kind(
        "secret lots, watched, deployed",
        f"the sums, the others' lots, when the person's device sends a report, and the blanks' coins; {_ROW}",
        partial(_lots, False),
        _TWENTIETH,
    ),
    Kind(
        "stages in hostile coordinates, watched, deployed",
        f"the same of a round about rows and one of gradients in coordinates that blow rows up; {_ROW}",
        _staged,
        _TWENTIETH,
    ),
    Kind(
        "secret lots with cover, watched, deployed",
        f"the sums, the others' lots, and all traffic of the person's device; {_ROW}",
        partial(_lots, True),
        _TENTH,
    ),
)
