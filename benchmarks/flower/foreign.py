"""Runs inside an environment with Flower and torch: one line of JSON asks for a run, one line of JSON answers.

Messages, mods and strategies are Flower's and Croupier's own. The grid is in this process, and trains the devices of a round many
at a time: the same updates as one by one.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg, FedAvgM
from flwr.supercore.task_identity import TaskIdentity
from torch.nn import functional

from croupier.flower import CroupierMod, CroupierStrategy, MaskAnalyzer

torch.set_num_threads(1)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1  # as Flower does in every process that it starts
logging.getLogger("flwr").setLevel(logging.ERROR)
# The network: two convolutions with pooling, two linear layers; 26 010 weights.
SHAPES = [(16, 64), (16,), (32, 256), (32,), (32, 512), (32,), (10, 32), (10,)]
NAMES = [f"{kind}{layer}" for layer in range(1, 5) for kind in ("weight", "bias")]
SIZES = [math.prod(shape) for shape in SHAPES]
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's pixels, as published
TOGETHER = 20  # devices that train at a time


@lru_cache(maxsize=1)
def data(folder: str, devices: int, images: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Images of devices, of held-out devices and for the test."""
    spec = importlib.util.spec_from_file_location("croupier_benchmarks_data", Path(folder) / "load.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    X, y, X_test, y_test = module.load("mnist", normalise=False)
    order = np.random.default_rng(1).permutation(len(X))
    X, y = X[order], y[order]
    cut = devices * images

    def tensors(pictures: np.ndarray, digits: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        pictures = (np.asarray(pictures, np.float32).reshape(-1, 1, 28, 28) - MEAN) / DEVIATION
        return torch.tensor(pictures), torch.tensor(np.asarray(digits, np.int64))

    held_out = slice(cut, cut + 5000)
    return {"devices": tensors(X[:cut], y[:cut]), "held out": tensors(X[held_out], y[held_out]), "test": tensors(X_test, y_test)}


def patches(images: torch.Tensor) -> torch.Tensor:
    """What the first convolution sees: 8 x 8 pixels around each of 14 x 14 places."""
    return functional.unfold(images, 8, stride=2, padding=3).transpose(1, 2)


def scores(weights: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """The network of each device on its own images: weights of shape (devices, 26 010), patches (devices, images x 196, 64)."""
    parts = torch.split(weights, SIZES, dim=1)
    W1, b1, W2, b2, W3, b3, W4, b4 = (part.reshape(-1, *shape) for part, shape in zip(parts, SHAPES, strict=True))
    devices, images = len(seen), seen.shape[1] // 196
    x = torch.relu(torch.baddbmm(b1[:, None], seen, W1.transpose(1, 2)))
    x = functional.max_pool2d(x.reshape(-1, 14, 14, 16).permute(0, 3, 1, 2), 2, 1)
    x = functional.unfold(x, 4, stride=2).transpose(1, 2).reshape(devices, images * 25, 256)
    x = torch.relu(torch.baddbmm(b2[:, None], x, W2.transpose(1, 2)))
    x = functional.max_pool2d(x.reshape(-1, 5, 5, 32).permute(0, 3, 1, 2), 2, 1).reshape(devices, images, 512)
    x = torch.relu(torch.baddbmm(b3[:, None], x, W3.transpose(1, 2)))
    return torch.baddbmm(b4[:, None], x, W4.transpose(1, 2))


def trained(start: torch.Tensor, devices: np.ndarray, request: dict[str, Any]) -> torch.Tensor:
    """The models of some devices after their own epochs of gradient descent, all from one model."""
    settings = request["settings"]
    images, batch, rate = settings["images"], settings["batch"], settings["local_rate"]
    X, y = data(request["data"], settings["devices"], images)["devices"]
    found = []
    for first in range(0, len(devices), TOGETHER):
        rows = devices[first : first + TOGETHER, None] * images + np.arange(images)
        batches = [rows[:, place : place + batch].ravel() for place in range(0, images, batch)]
        seen = [(patches(X[some]).reshape(len(rows), -1, 64), y[some], len(some) / len(rows)) for some in batches]
        weights = start.expand(len(rows), -1).clone()
        for _ in range(settings["epochs"]):
            for inputs, digits, size in seen:
                weights.requires_grad_(True)
                loss = functional.cross_entropy(scores(weights, inputs).reshape(-1, 10), digits, reduction="sum") / size
                (gradient,) = torch.autograd.grad(loss, weights)
                weights = (weights - rate * gradient).detach()
        found.append(weights)
    return torch.cat(found)


def accuracy(weights: torch.Tensor, images: torch.Tensor, digits: torch.Tensor) -> float:
    """The share of images that are read right."""
    with torch.no_grad():
        right = [
            (scores(weights[None], patches(some).reshape(1, -1, 64))[0].argmax(dim=1) == truth).sum().item()
            for some, truth in zip(images.split(1000), digits.split(1000), strict=True)
        ]
    return sum(right) / len(digits)


def initial(seed: int) -> torch.Tensor:
    """Weights as torch draws them."""
    random = torch.Generator().manual_seed(seed)
    bounds = [SHAPES[place - place % 2][1] ** -0.5 for place in range(8)]
    parts = [(2 * torch.rand(size, generator=random) - 1) * bound for size, bound in zip(SIZES, bounds, strict=True)]
    return torch.cat(parts)


def record(weights: torch.Tensor) -> ArrayRecord:
    """The model as Flower sends it."""
    parts = torch.split(weights, SIZES)
    return ArrayRecord({name: Array(part.reshape(shape).numpy()) for name, part, shape in zip(NAMES, parts, SHAPES, strict=True)})


def flat(arrays: ArrayRecord) -> torch.Tensor:
    """The model as one vector."""
    return torch.cat([torch.tensor(arrays[name].numpy()).ravel() for name in NAMES])


class BatchedGrid(Grid):
    """All devices in this process; a round's devices train together, then each answers by the client app, mods and all."""

    def __init__(self, request: dict[str, Any], mods: list[Any]) -> None:
        self.request, self.answers, self.report_bytes = request, Counter[int](), 0
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
            for node in range(1, request["settings"]["devices"] + 1)
        }
        self.models: dict[int, torch.Tensor] = {}
        self.app = ClientApp(mods=mods)
        self.app.train()(self._train)

    def _train(self, message: Message, context: Context) -> Message:
        content = {"arrays": record(self.models[context.node_id]), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Train, and answer one by one."""
        messages = list(messages)
        if not messages:
            return []
        nodes = np.array([message.metadata.dst_node_id for message in messages])
        models = trained(flat(next(iter(messages[0].content.array_records.values()))), nodes - 1, self.request)
        replies = []
        for message, node, model in zip(messages, nodes.tolist(), models, strict=True):
            self.models = {node: model}
            replies.append(self.app(message, self.contexts[node]))
            self.answers[node] += 1
        if replies and "croupier" in replies[0].content.config_records:
            self.report_bytes = len(replies[0].content["croupier"]["report"])
        return replies

    def get_node_ids(self) -> list[int]:
        """All of them."""
        return list(self.contexts)

    def set_run(self, run: Any) -> None:
        """Nothing: there is one."""

    @property
    def run(self) -> Any:
        """None."""
        return None

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        """Refuse: strategies here send and receive in one step."""
        raise NotImplementedError("this grid delivers messages by send_and_receive alone")

    push_messages = pull_messages = create_message


class AskedOnce(FedAvgM):
    """FedAvgM on disjoint batches of devices, which are drawn before the run."""

    batches: list[list[int]]

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Message]:
        """Ask one batch."""
        if self.current_arrays is None:
            self.current_arrays = arrays
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return list(self._construct_messages(content, self.batches[server_round - 1], "train"))


class Around(AskedOnce):
    """FedAvgM around a private strategy: its noisy mean model is the one reply that is stepped with."""

    def __init__(self, private: Any, **options: Any) -> None:
        super().__init__(**options)
        self.private = private

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Message]:
        """Ask as the private strategy does."""
        if self.current_arrays is None:
            self.current_arrays = arrays
        self.asked = list(self.private.configure_train(server_round, arrays, config, grid))
        return self.asked

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        """Let the private strategy add up and add noise, then step."""
        arrays, _ = self.private.aggregate_train(server_round, replies)
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
        return super().aggregate_train(server_round, [Message(content, reply_to=self.asked[0])])


def run(request: dict[str, Any]) -> dict[str, Any]:
    """One run of a method."""
    begun, settings = time.process_time(), request["settings"]
    step = {"server_learning_rate": request["rate"], "server_momentum": settings["momentum"], "fraction_evaluate": 0.0}
    batch = settings["devices"] // settings["rounds"]
    order = np.random.default_rng(request["seed"]).permutation(settings["devices"]) + 1
    batches = [order[first : first + batch].tolist() for first in range(0, batch * settings["rounds"], batch)]
    mods: list[Any] = []
    if request["method"] == "croupier":
        analyzer = MaskAnalyzer()
        limits = {"max_epsilon": settings["epsilon"], "max_delta": settings["delta"], "max_epsilon_if_watched": math.inf}
        mods = [CroupierMod(analyzer.public_key, **limits)]
        strategy: Any = CroupierStrategy(
            FedAvgM(**step),
            **{name: settings[name] for name in ("epsilon", "delta", "rounds", "clip", "max_inflation")},
            users=settings["devices"],
            neighbours="zero-out",
            analyzer=analyzer,
        )
    elif request["method"] == "flower":
        inner = AskedOnce(fraction_evaluate=0.0)  # rate 1 and no momentum: FedAvg
        inner.batches = batches
        mods = [fixedclipping_mod]
        private = DifferentialPrivacyClientSideFixedClipping(inner, request["multiplier"], settings["clip"], batch)
        strategy = Around(private, **step)
    else:
        strategy = AskedOnce(**step)
        strategy.batches = batches
    grid = BatchedGrid(request, mods)
    result = strategy.start(grid=grid, initial_arrays=record(initial(request["seed"])), num_rounds=settings["rounds"])
    sets = data(request["data"], settings["devices"], settings["images"])
    weights = flat(result.arrays)
    return {
        "held_out": accuracy(weights, *sets["held out"]),
        "test": accuracy(weights, *sets["test"]),
        "cpu_seconds": time.process_time() - begun,
        "report_bytes": grid.report_bytes,
        "most_answers": max(grid.answers.values()),
    }


def main() -> None:
    """Answer one request a line until there are no more."""
    assert issubclass(AskedOnce, FedAvg)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        try:
            answer = run(json.loads(line))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
