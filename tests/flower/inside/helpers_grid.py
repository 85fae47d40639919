"""Flower's grid in this process: every message goes straight to the client app, with a state for each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# as Flower does in every process that it starts
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1


class HereGrid(Grid):
    """All nodes are here. `meet` sees every question and answer, and may put another answer in its place."""

    def __init__(self, app: ClientApp, nodes: int, meet: Callable[[Message, Message], Message | None] | None = None) -> None:
        self.app, self.meet = app, meet or (lambda question, answer: answer)
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config={"partition-id": node - 1}, state=RecordDict(), run_config={})
            for node in range(1, nodes + 1)
        }
        self.answers: list[Message] = []

    def set_run(self, run: Any) -> None:
        pass

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        answered = [self.meet(one, self.app(one, self.contexts[one.metadata.dst_node_id])) for one in messages]
        self.answers += [one for one in answered if one is not None]
        return [one for one in answered if one is not None]


def model(*numbers: float) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.array(numbers, np.float32))})


def question(words: str, arrays: ArrayRecord, kind: str = "train") -> Message:
    content = RecordDict({"arrays": arrays, "config": ConfigRecord(), "croupier": ConfigRecord({"words": words})})
    return Message(content=content, message_type=kind, dst_node_id=1)


def answer(message: Message, arrays: ArrayRecord, **metrics: float) -> Message:
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 3, **metrics})})
    return Message(content, reply_to=message)
