"""`croupier join`: take part in a task with one's own records, which stay here."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..client import Client, RefusedTaskError, ServerError
from ..service.task import Task
from ..service.wire import WireError
from ..table import Encoder, Schema, Source
from ..validation import ArgumentError
from .model import Request
from .progress import Stopped, messages, say

_PAUSE = 0.5


def join(
    data: Annotated[Path, typer.Option(help="This user's records: CSV or Parquet, with the columns of the task's schema.")],
    shuffler: Annotated[str, typer.Option(help="The shuffler's address.")],
    analyzer_key: Annotated[str, typer.Option(help="The analyzer's public key, known from elsewhere than the shuffler.")],
    token: Annotated[str | None, typer.Option(help="Enrolment token; the variable CROUPIER_TOKEN unless given.")] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Where is remembered what was answered.")] = Path(".croupier"),
    max_epsilon: Annotated[float, typer.Option(help="The weakest promise that is accepted for the whole task.")] = 1.0,
    max_delta: Annotated[float, typer.Option(help="At this delta.")] = 1e-6,
    ca: Annotated[Path | None, typer.Option(help="Certificates to trust instead of the system's.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for a round.")] = 60.0,
) -> None:
    """Answer a task's rounds from this machine. The task's signature and its promise are checked here; records do not leave."""
    secret = token or os.environ.get("CROUPIER_TOKEN")
    if not secret:
        raise ArgumentError("--token", None, "given, or in CROUPIER_TOKEN", "The shuffler's operator enrols clients.")
    client = Client(shuffler, secret, analyzer_key, folder=folder, max_epsilon=max_epsilon, max_delta=max_delta, ca=ca)
    try:
        _answer(client, data, time.monotonic() + wait)
    except (RefusedTaskError, WireError) as refusal:
        raise Stopped(f"refused: {refusal}", 2) from None
    except ServerError as problem:
        raise Stopped(f"the shuffler says {problem.status or 'nothing'}: {str(problem).strip()}. Run it again later.", 1) from None


def _answer(client: Client, data: Path, deadline: float) -> None:
    """Every round that wants an answer until the task needs no more of this user, or the time is up."""
    task = client.task()
    X, y = _records(task, data)
    rounds = task.schedule.rounds if task.schedule.interactivity == "full" else 1
    answered = 0
    while answered < rounds and time.monotonic() < deadline:
        sent = client.take_part(X, y)
        if sent is None:
            time.sleep(_PAUSE)
            continue
        answered += 1
        say(messages(), f"Answered round {sent.round}; nothing but sealed noise left this machine.")
    if answered == 0:
        raise Stopped("no round wanted an answer of this user; nothing was sent", 0)


def _records(task: Task, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """This user's rows and targets, as the task's public facts say."""
    if task.records is None:
        raise ArgumentError("--data", str(data), "left out: this task is not about tables", "Use croupier.client.")
    facts = Schema.from_dict(task.records["schema"], "the task's schema")
    encoder = Encoder(facts)
    maker = Request(task.records["task"], task.records["parameters"], None).estimator(facts)
    source = Source(data)
    source.require(list(encoder.types(target=True)))
    made = [maker.records(encoder.rows(piece), encoder.targets(piece)) for piece in source.pieces(encoder.types(target=True))]
    if not made:
        raise ArgumentError("--data", str(data), "at least one record", "Check the file.")
    return np.concatenate([rows for rows, _ in made]), np.concatenate([targets for _, targets in made])
