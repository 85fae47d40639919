"""Whole runs over loopback, each beside the same run in memory."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import shutil
import sqlite3
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from croupier.population.population import Question
from croupier.protocol import Counts, SumEstimate, VectorSum
from croupier.protocol.randomness import Secret
from croupier.service.client.client import Client
from croupier.service.net.http import ServerError
from croupier.service.net.server import signing_key
from croupier.service.wire.documents import Document
from croupier.service.wire.task import Task
from croupier.service.wire.transports import TRANSPORTS
from croupier.table import Schema, TableModel
from croupier.table.model import Request

from .sizes import Sizes
from .world import CLI, Shuffling, enrolled, got


@dataclass(frozen=True)
class Device:
    """Where a client finds everything, in whichever process it is simulated."""

    url: str
    analyzer_key: str
    folder: Path
    tokens: list[str]
    X: np.ndarray
    y: np.ndarray

    def client(self, number: int) -> Client:
        where = self.folder / str(number)
        return Client(
            self.url, self.tokens[number], self.analyzer_key, folder=where, max_epsilon=100.0, max_delta=0.1, at_once=True
        )


_device: Device | None = None


def become(device: Device) -> None:
    """Make this worker process the device."""
    global _device  # noqa: PLW0603  (a worker process has one)
    _device = device


def coins(client: int, number: int) -> Any:
    """What this client tosses in this round: the same over the network and in memory."""
    return Secret(hashlib.sha256(f"client {client}".encode()).digest(), False).derive(number).source()


def answer(number: int, client: int) -> float:
    """One client's answer to this round; the seconds it took."""
    assert _device is not None
    begun, device = time.perf_counter(), _device.client(client)
    while True:
        try:
            if (sent := device.take_part(_device.X[client], _device.y[client], random=coins(client, number))) is not None:
                if sent.round != number:
                    raise RuntimeError(f"client {client} answered round {sent.round} instead of {number}")
                return time.perf_counter() - begun
        except ServerError as problem:
            if problem.status not in (None, 409, 429, 503):
                raise
        time.sleep(0.05)


class InMemory:
    """The same people with the same coins, asked without a network: who answered a round is known from the real run."""

    private, unit = True, "row"

    def __init__(self, X: np.ndarray, y: np.ndarray, members: list[list[int]]) -> None:
        self.users, self._X, self._y, self._members = len(y), X, y, iter(enumerate(members, start=1))

    def prepare(self, test: Any, key: bytes | None = None) -> None:
        return None

    def answer(self, question: Question) -> SumEstimate:
        number, members = next(self._members)
        protocol, ones = VectorSum(question.plan), np.zeros(question.plan.dim, dtype=np.int64)
        for client in members:
            vector = question.query(self._X[client : client + 1], self._y[client : client + 1])[0]
            ones += protocol.randomize(vector, coins(client, number)).bits.sum(axis=1, dtype=np.int64)
        return protocol.analyze(Counts(ones, len(members), private=True))


def whole_runs(sizes: Sizes) -> list[dict[str, Any]]:
    """Every transport and interactivity in turn."""
    return [whole_run(sizes, transport, how) for transport, how in track(sizes.runs, description="runs")]


def whole_run(sizes: Sizes, transport: str, interactivity: str) -> dict[str, Any]:
    """Analyzer, shuffler and clients in processes of their own; then the same in memory."""
    folder = Path(tempfile.mkdtemp(prefix="croupier-load-"))
    names = [f"c{number}" for number in range(sizes.features)]
    values = {
        "target": {"column": "y", "classes": ["no", "yes"]},
        "columns": {name: {"low": -1, "high": 1} for name in names},
    }
    lines = ["[target]", 'column = "y"', 'classes = ["no", "yes"]', *(f"[columns.{name}]\nlow = -1\nhigh = 1" for name in names)]
    (folder / "schema.toml").write_text("\n".join(lines) + "\n")
    at_analyzer, at_shuffler = folder / "analyzer", folder / "shuffler"
    keys = [signing_key(role).public_key().public_bytes_raw().hex() for role in (at_analyzer, at_shuffler)]
    (folder / "task.toml").write_text(
        f'schema = "schema.toml"\nusers = {sizes.clients}\nepsilon = 4.0\ndelta = 1e-6\nhonest = 1.0\nrounds = {sizes.rounds}\n'
        f'transport = "{transport}"\ninteractivity = "{interactivity}"\nlots = "open"\nshuffler_key = "{keys[1]}"\n'
    )
    maker = Request("classify", {"epsilon": 4.0, "interactivity": interactivity, "rounds": sizes.rounds}, 1e-6).estimator(
        Schema.from_dict(values, "the schema"), sizes.clients
    )
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(sizes.clients, sizes.features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * 1.000001
    X, y = maker.records(rows, np.where(rows[:, 0] > 0, "yes", "no"))
    tokens = enrolled(f"sqlite:///{at_shuffler / 'shuffler.db'}", sizes.clients)[1]
    analyzer = None
    try:
        with (folder / "log").open("w") as log:
            command = [*CLI, "analyzer", "--task", str(folder / "task.toml"), "--dir", str(at_analyzer), "--port", "0"]
            analyzer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
        assert analyzer.stdout is not None
        where = analyzer.stdout.readline().split(" on ")[1].strip()
        with Shuffling(at_shuffler, where, keys[0]) as shuffler:
            begun = time.perf_counter()
            device = Device(shuffler.url, keys[0], folder / "clients", tokens, X, y)
            task = device.client(0).task()
            members, busy = _asked(device, task, at_shuffler / "shuffler.db")
            if analyzer.wait(600):
                raise RuntimeError((folder / "log").read_text()[-2000:])
            seconds = time.perf_counter() - begun
        over_network = TableModel.load(folder / "model.json").estimator
        begun = time.perf_counter()
        maker.lots = "open"  # as a deployed shuffler deals
        in_memory = maker.fit_population(InMemory(X, y, members), sizes.features)
        plan = task.schedule.phases[0].plan
        return {
            "transport": transport,
            "interactivity": interactivity,
            "clients": sizes.clients,
            "dim": plan.dim,
            "rounds": len(members),
            "users_a_round": plan.users,
            "messages_a_coordinate": plan.bits_per_coordinate,
            "envelopes": sum(map(len, members)) * (plan.bits_per_user if transport == "messages" else 1),
            "bytes_a_report": TRANSPORTS[transport].report_length(plan),
            "seconds": seconds,
            "client_seconds_a_report": busy / sum(map(len, members)),
            "seconds_in_memory": time.perf_counter() - begun,
            "same_theta": bool(np.array_equal(over_network.result_.theta, in_memory.result_.theta)),
            "largest_difference": float(np.max(np.abs(over_network.result_.theta - in_memory.result_.theta))),
        }
    finally:
        if analyzer is not None:
            analyzer.kill()
            analyzer.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _asked(device: Device, task: Task, database: Path) -> tuple[list[list[int]], float]:
    """Those who were drawn for a round answer it, from two processes. Who answered which, and their seconds in all."""
    members, busy = list[list[int]](), 0.0
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), become, (device,)) as pool:
        for number in range(1, task.schedule.rounds + 1):
            while not (data := got(device.url + "/v1/round")) or json.loads(Document.from_bytes(data).text)["number"] != number:
                time.sleep(0.02)
            members.append(_drawn(database, number))
            busy += sum(pool.map(partial(answer, number), members[-1], chunksize=4))
    return members, busy


def _drawn(database: Path, number: int) -> list[int]:
    """The clients whom the shuffler has drawn for a round."""
    connection = sqlite3.connect(database)
    try:
        found = connection.execute("SELECT client FROM lots WHERE ? BETWEEN first AND last ORDER BY client", (number,)).fetchall()
    finally:
        connection.close()
    return [int(name.removeprefix("client-")) for (name,) in found]
