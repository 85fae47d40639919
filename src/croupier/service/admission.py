"""Who is counted in a round of a task with an enroller: whoever brings a token of this task and slot that was not used before."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, insert, select

from . import store as tables
from .blind import PREFIX_BYTES
from .store import Database
from .task import Task, TaskRound
from .tokens import is_token, slot_of

# Tokens that are looked up together.
_TOGETHER = 500


class Admission:
    """Counts the tokens of one batch, each once, over all batches of the task. Nothing is written down before `spend`.

    Parameters
    ----------
    store : Database
        The analyzer's database.
    task : Task
        The task; where it has no enroller, everybody is admitted.
    task_round : TaskRound
        The batch's round.

    Guarantee
    ---------
    The reports that are admitted in all rounds of a slot are of different people whom the task's enroller has signed tokens for: a
    token that is forged, of another task or slot, or used before, in this batch or an earlier one, admits nobody.
    """

    def __init__(self, store: Database, task: Task, task_round: TaskRound) -> None:
        self._task, self._round, self._slot = task, task_round.id, slot_of(task, task_round)
        self._used: dict[str, None] = {}
        with store.look() as connection:
            spent = tables.spent.c
            query = select(spent.token).where(spent.round != task_round.id)
            self._earlier = set(connection.execute(query).scalars()) if task.enroller is not None else set[str]()

    def admits(self, token: bytes) -> bool:
        """Count a token.

        Parameters
        ----------
        token : bytes
            What came in an envelope beside the seed.

        Returns
        -------
        bool
            Whether its report is one of another enrolled person.
        """
        if self._task.enroller is None:
            return not token
        name = hashlib.sha256(token[:PREFIX_BYTES]).hexdigest()
        if name in self._used or name in self._earlier or not is_token(token, self._task, self._slot):
            return False
        self._used[name] = None
        return True

    def spend(self, connection: Connection) -> None:
        """Write down the tokens that were counted, in the transaction that writes down what came of the batch.

        Parameters
        ----------
        connection : Connection
            The analyzer's transaction.
        """
        names = list(self._used)
        for start in range(0, len(names), _TOGETHER):
            rows = [{"token": name, "round": self._round} for name in names[start : start + _TOGETHER]]
            connection.execute(insert(tables.spent), rows)
