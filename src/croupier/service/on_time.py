"""Rounds of secret lots at the shuffler: filled up with blanks to their public size, and ended on time, whoever came."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite

from ..protocol import SecureRandom
from . import store as tables
from .documents import Document
from .lots import lots_of
from .outcomes import RefusedError
from .reporting import report_of
from .secrecy import Lot, SecretRounds
from .store import Database
from .taking import make_batch, state_of
from .task import Task, TaskRound
from .wire import SealedReport

log = logging.getLogger("croupier")
# Seconds by which the system's clock may move between two looks before that is logged and counted as a step.
CLOCK_TOLERANCE = 2.0


class RoundClock:
    """The clock by which rounds open and end: it goes on evenly, whoever sets the system's clock.

    It is the system's clock when a machine first serves this database after it was booted, plus the seconds since. What was taken
    for the time then is in the database: processes that start again, and all of one machine, have one clock. After a boot it is
    read off the system's clock anew, and is never earlier than the last round's opening.
    """

    def __init__(self, store: Database) -> None:
        self._boot, self.jumps = _boot(), 0
        clocks, query = tables.clocks, select(tables.clocks.c.zero).where(tables.clocks.c.boot == self._boot)
        with store.begin() as connection:
            zero = connection.execute(query).scalar()
            if zero is None:
                last = connection.execute(select(func.max(tables.rounds.c.opened))).scalar()
                zero = max(time.time(), last or 0.0) - _since_boot()
                dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
                connection.execute(dialect.insert(clocks).values(boot=self._boot, zero=zero).on_conflict_do_nothing())
                zero = connection.execute(query).scalar_one()  # another process may have been faster
        self._zero = float(zero)
        self._ahead = time.time() - self.now()  # the system's clock

    def now(self) -> float:
        """Seconds since 1970, as far as this clock knows."""
        return self._zero + _since_boot()

    def look(self) -> None:
        """Log and count a step of the system's clock since the last look."""
        ahead = time.time() - self.now()
        if abs(step := ahead - self._ahead) > CLOCK_TOLERANCE:
            self.jumps += 1
            log.warning("the system's clock was set %s by %.1f s; rounds go by the time since boot", _way(step), abs(step))
        self._ahead = ahead


def _way(step: float) -> str:
    return "forward" if step > 0 else "back"


def _boot() -> str:
    """A name for this boot of the machine; where the system has none, for this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"process {secrets.token_hex(16)}"


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


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
        clock: RoundClock,
    ) -> None:
        """Make the batch of the round if its time is over: reports of its lot, and blanks for all who did not come."""
        blanks = self.of(task, task_round, document)
        with store.look() as connection:
            opened = state_of(connection, task_round.id).opened
        if task.secret is None or clock.now() < task.secret.ends(opened):
            return
        with lock, store.begin() as connection:
            if state_of(connection, task_round.id, to_change=True).state != "open":
                return
            make_batch(connection, task, task_round, key, clock.now(), blanks)
        self._round, self._reports = "", []  # a blank is used once
        store.wipe()


def due_batch(store: Database, secret: SecretRounds | None, now: float) -> tuple[str, bytes] | None:
    """A round's id and its batch, which is to be forwarded; with secret lots not before its time."""
    rounds = tables.rounds.c
    query = select(rounds.id, rounds.batch, rounds.opened).where(rounds.state == "made").order_by(rounds.number)
    with store.look() as connection:
        row = connection.execute(query).first()
    early = row is not None and secret is not None and now < secret.leaves(row.opened)
    return None if row is None or early else (row.id, row.batch)


def told_lots(store: Database, task: Task, clients: Sequence[str], now: float) -> list[Lot | RefusedError]:
    """What each of these clients is told of its lot."""
    if task.secret is None:
        return [RefusedError(404, "a task without secret lots")] * len(clients)
    rounds = tables.rounds.c
    with store.look() as connection:
        last = connection.execute(select(rounds.number, rounds.opened).order_by(rounds.number.desc())).first()
        drawn = lots_of(connection, clients)
    number, opened = (last.number, last.opened) if last is not None else (1, now)
    apart = task.secret.leaves(0.0)  # between the openings of two rounds, at the least

    def wait(lot: int) -> float:
        return min(max(0.0, opened + (lot - number) * apart - now), task.schedule.rounds * apart)

    return [Lot(drawn[client], wait(drawn[client])) if client in drawn else Lot(None) for client in clients]


def hidden_among(task: Task) -> int:
    """The fewest users that a batch of the task may hold: honest ones by its plans, and with secret lots those that are usual."""
    counts = [phase.plan.honest_users for phase in task.schedule.phases]
    return min([*counts, *[int(phase.lots.users_in_round) for phase in task.schedule.phases if phase.lots is not None]])
