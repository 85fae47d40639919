"""Rounds of secret lots at the shuffler: filled up with blanks to their public size, and ended on time, whoever came."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import select

from ..protocol import SecureRandom
from . import store as tables
from .lots import lots_of
from .outcomes import RefusedError
from .reporting import report_of
from .secrecy import Lot, SecretRounds
from .store import Database
from .taking import make_batch, state_of
from .task import Task, TaskRound
from .wire import Document, SealedReport


class Blanks:
    """Blank reports for the round that is open: as many as a round has in all, so that making them says nothing of who came.

    They are in memory alone. A process that starts again makes others, with coins of their own: none of the first was used.
    """

    def __init__(self) -> None:
        self._round, self._reports = "", list[SealedReport]()

    def of(self, task: Task, task_round: TaskRound, document: Document) -> Sequence[SealedReport]:
        """Those of the round, made where they are not here yet: a client's report of a zero vector each."""
        if self._round != task_round.id:
            nothing, coins = np.zeros(task.problem.dim), SecureRandom()
            size = task_round.phase_of(task).plan.users
            self._reports = [report_of(task, task_round, document, nothing, coins) for _ in range(size)]
            self._round = task_round.id
        return self._reports

    def end(
        self,
        store: Database,
        lock: threading.Lock,
        key: Ed25519PrivateKey,
        task: Task,
        task_round: TaskRound,
        document: Document,
    ) -> None:
        """Make the batch of the round if its time is over: reports of its lot, and blanks for all who did not come."""
        blanks = self.of(task, task_round, document)
        with store.look() as connection:
            opened = state_of(connection, task_round.id).opened
        if task.secret is None or time.time() < task.secret.ends(opened):
            return
        with lock, store.begin() as connection:
            if state_of(connection, task_round.id, to_change=True).state != "open":
                return
            make_batch(connection, task, task_round, key, blanks)
        self._round, self._reports = "", []  # a blank is used once
        store.wipe()


def due_batch(store: Database, secret: SecretRounds | None) -> tuple[str, bytes] | None:
    """A round's id and its batch, which is to be forwarded; with secret lots not before its time."""
    rounds = tables.rounds.c
    query = select(rounds.id, rounds.batch, rounds.opened).where(rounds.state == "made").order_by(rounds.number)
    with store.look() as connection:
        row = connection.execute(query).first()
    early = row is not None and secret is not None and time.time() < secret.leaves(row.opened)
    return None if row is None or early else (row.id, row.batch)


def told_lots(store: Database, task: Task, clients: Sequence[str]) -> list[Lot | RefusedError]:
    """What each of these clients is told of its lot."""
    if task.secret is None:
        return [RefusedError(404, "a task without secret lots")] * len(clients)
    rounds = tables.rounds.c
    with store.look() as connection:
        last = connection.execute(select(rounds.number, rounds.opened).order_by(rounds.number.desc())).first()
        drawn, now = lots_of(connection, clients), time.time()
    number, opened = (last.number, last.opened) if last is not None else (1, now)
    apart = task.secret.leaves(0.0)  # between the openings of two rounds, at the least

    def wait(lot: int) -> float:
        return min(max(0.0, opened + (lot - number) * apart - now), task.schedule.rounds * apart)

    return [Lot(drawn[client], wait(drawn[client])) if client in drawn else Lot(None) for client in clients]


def hidden_among(task: Task) -> int:
    """The fewest users that a batch of the task may hold: honest ones by its plans, and with secret lots those that are usual."""
    counts = [phase.plan.honest_users for phase in task.schedule.phases]
    return min([*counts, *[int(phase.lots.users_in_round) for phase in task.schedule.phases if phase.lots is not None]])
