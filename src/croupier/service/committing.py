"""What the analyzer makes of a batch: counts, or a signed list of the reports that are left out, and then one sum over the rest.

Each is written down in one transaction before anything is said, and a round's key goes with it: the same batch after a crash has
the same list, and no batch is opened for two.
"""

from __future__ import annotations

import json
import logging
from concurrent.futures import Executor
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import insert, select, update

from ..privacy import SumPlan
from ..protocol import Counts, SumEstimate, VectorSum
from . import store as tables
from .admission import Admission
from .checked import checked_transport
from .documents import Document, WireError, sha256
from .exclusions import Exclusions, Release
from .margin import most_excluded
from .store import Database
from .task import Task, TaskRound
from .transport import opened
from .wire import SealedBatch

log = logging.getLogger("croupier")
_IMPOSSIBLE = "counts that no users could have sent: a report was not made by the protocol"


def look_into(
    store: Database,
    task: Task,
    task_round: TaskRound,
    data: bytes,
    private: X25519PrivateKey,
    key: Ed25519PrivateKey,
    pool: Executor | None,
) -> None:
    """Open a batch, and write down what it is: counts, a list of exclusions, or more bad reports than the task can bear.

    Parameters
    ----------
    store : Database
        The analyzer's database.
    task : Task
        The task.
    task_round : TaskRound
        The batch's round.
    data : bytes
        The batch as it came, checked by `RemotePopulation.take`.
    private : X25519PrivateKey
        The round's private key, which is deleted.
    key : Ed25519PrivateKey
        The analyzer's key, which signs the list.
    pool : Executor or None
        Shares the work of opening envelopes.
    """
    phase = task_round.phase_of(task)
    batch = SealedBatch.from_bytes(data, phase.plan.bits_per_coordinate, task.shuffler)
    found: dict[str, Any]
    admission = Admission(store, task, task_round)
    if (transport := checked_transport(task.transport)) is None:
        content = opened(batch, phase.plan, private, pool)
        found = {"bad": content.malformed}
        values = {"ones": json.dumps(content.counts.ones.tolist()), "users": batch.users}
        most = batch.users - phase.plan.honest_users
        if content.cheats > most:
            values = {
                "spoiled": f"{content.malformed} envelopes hold no bit, so that more than the {most} users allowed are cheats"
            }
    else:
        secret = transport.analyzer_secret(private, task.shuffler, batch.round)
        verdict = transport.check(batch, phase.plan, private, pool, admission.admits, secret)
        document = Exclusions(task.id, task_round.id, sha256(data), verdict.bad).document(key)
        found = {"bad": len(verdict.bad), "exclusions": document.to_bytes()}
        values = {"users": batch.users - len(verdict.bad)}
        if len(verdict.bad) > (most := most_excluded(task, phase)):
            values = {"spoiled": f"{len(verdict.bad)} of {batch.users} reports are bad, more than the {most} allowed"}
        else:
            found["share"] = verdict.share.astype("<u8").tobytes()
    if found["bad"]:
        what = "envelopes count as zeros" if transport is None else "reports are left out"
        log.warning("round %d: %d bad %s", task_round.number, found["bad"], what)
    with store.begin() as connection:
        connection.execute(insert(tables.found).values(round=task_round.id, **found))
        admission.spend(connection)
        here = tables.asked.c.id == task_round.id
        connection.execute(update(tables.asked).where(here).values(**values, key=None, batch=None))
    store.wipe()


def exclusions_of(store: Database, round_id: str) -> Document | None:
    """Return the signed list of the reports that are left out of a round.

    Parameters
    ----------
    store : Database
        The analyzer's database.
    round_id : str
        The round's id.

    Returns
    -------
    Document or None
        None where the round's batch is not checked yet.
    """
    with store.look() as connection:
        stored = connection.execute(select(tables.found.c.exclusions).where(tables.found.c.round == round_id)).scalar()
    return None if stored is None else Document.from_bytes(stored)


def take_release(store: Database, task: Task, task_round: TaskRound, release: Release) -> None:
    """Write down the counts of a round: the shuffler's sum less the analyzer's share. The first release counts, others do nothing.

    Parameters
    ----------
    store : Database
        The analyzer's database.
    task : Task
        The task.
    task_round : TaskRound
        The release's round.
    release : Release
        As the shuffler signed it.

    Raises
    ------
    WireError
        Where the release is of another list of exclusions or another shape, or no list was made.
    """
    phase, transport, found = task_round.phase_of(task), checked_transport(task.transport), tables.found.c
    with store.begin() as connection:
        query = select(found.exclusions, found.share, tables.asked.c.users).join_from(tables.found, tables.asked)
        row = connection.execute(query.where(found.round == task_round.id)).first()
        if row is None or row.exclusions is None or transport is None or release.transport != task.transport:
            raise WireError("a release of no list of exclusions")
        if Document.from_bytes(row.exclusions).digest != release.exclusions:
            raise WireError("a release of another list of exclusions")
        if row.share is None:
            return  # it is here, or the round was given up
        if (release.users, release.width, release.sums.shape) != (row.users, transport.width(phase.plan), (phase.plan.dim,)):
            raise WireError("a release of another shape than the task's")
        counts = transport.counts(release.sums, np.frombuffer(row.share, "<u8").astype(np.uint64), release.users, phase.plan)
        here = found.round == task_round.id
        dropped = None if counts is not None else _IMPOSSIBLE
        if dropped:
            log.error("round %d is a step of length 0: %s", task_round.number, dropped)
        connection.execute(update(tables.found).where(here).values(share=None, dropped=dropped))
        ones = json.dumps(None if counts is None else counts.ones.tolist())
        connection.execute(update(tables.asked).where(tables.asked.c.id == task_round.id).values(ones=ones))
    store.wipe()


def estimate_of(ones: str, users: int, plan: SumPlan) -> SumEstimate:
    """Estimate the sum from counts as they were written down; a round that was dropped is a sum of 0.

    Parameters
    ----------
    ones : str
        Counts of ones as JSON, or null.
    users : int
        How many reports are in them.
    plan : SumPlan
        The round's plan.

    Returns
    -------
    SumEstimate
        The noisy sum, with its guarantee.
    """
    counts = json.loads(ones)
    if counts is None:  # what is said of the users is that no users could have sent it
        return SumEstimate(sum=np.zeros(plan.dim), users=users, noise_std=plan.noise_std_for(users), guarantee=plan.guarantee)
    return VectorSum(plan).analyze(Counts(np.array(counts, dtype=np.int64), users, private=True))
