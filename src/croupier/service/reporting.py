"""A user's report, from a vector to sealed bytes: the one function that makes one, for clients and for the shuffler's blanks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..protocol import RandomSource, VectorSum
from .documents import Document
from .packing import width_for
from .task import Task, TaskRound
from .transport import sealed_report
from .wire import SealedReport


def report_of(
    task: Task,
    task_round: TaskRound,
    document: Document,
    vector: NDArray[np.float64],
    random: RandomSource,
    token: bytes = b"",
) -> SealedReport:
    """Randomize a vector under the round's plan, and seal it for the round's key.

    Parameters
    ----------
    task : Task
        The round's task, which names the transport.
    task_round : TaskRound
        The round, as it was read.
    document : Document
        The round, as it was signed: the report is bound to its digest.
    vector : ndarray of shape (dim,)
        The user's gradient; zeros for a blank. It is clipped to the plan's norm.
    random : RandomSource
        Where the coins come from.
    token : bytes, default b""
        In a task with an enroller, the token of this user and slot.

    Returns
    -------
    SealedReport
        What travels. Seals are random: keep the bytes for a retry.

    Raises
    ------
    WireError
        Where nothing can be sealed for the round's key.

    Guarantee
    ---------
    A report of zeros has the plan's full noise, and no byte of it tells it from another report of the round to whoever does not
    have the round's private key.
    """
    plan = task_round.phase_of(task).plan
    bits = VectorSum(plan).randomize(vector, random)
    return sealed_report(task.transport, document.digest, bits, task_round.key, width_for(task.transport, plan), token)
