"""The shuffler's side of a round whose reports are checked: it keeps the analyzer's exclusions, and releases one sum over the rest.

Every step is one transaction: whatever process is killed when, the same list is kept and the same sum is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import Connection, delete, insert, select, update

from ..privacy import SumPlan
from ..protocol import SecureRandom, permutation
from . import store as tables
from .checked import CheckedTransport, batch_of, checked_transport
from .documents import Document, WireError, sha256
from .exclusions import Exclusions, Release
from .margin import most_excluded
from .store import Database
from .task import Task, TaskRound
from .wire import SealedReport

log = logging.getLogger("croupier")


def to_be_checked(
    connection: Connection,
    task_round: TaskRound,
    people: Sequence[tuple[str | None, bytes]],
    transport: CheckedTransport,
    plan: SumPlan,
    key: Ed25519PrivateKey,
) -> bytes:
    """Write reports down in uniformly random order, and return the signed batch of what the analyzer checks of them.

    Parameters
    ----------
    connection : Connection
        The shuffler's transaction.
    task_round : TaskRound
        The round that is full.
    people : sequence of (str or None, bytes)
        Clients and their reports; None for a report that is no client's.
    transport : CheckedTransport
        The task's.
    plan : SumPlan
        The round's plan.
    key : Ed25519PrivateKey
        The shuffler's key.

    Returns
    -------
    bytes
        The batch as it travels.
    """
    order = permutation(SecureRandom(), len(people))
    reports = [SealedReport.from_bytes(body) for _, body in people]
    secret = transport.shuffler_secret(key, task_round.key, reports[0].round)
    batch = batch_of(reports, order, transport, plan, secret).to_bytes(key)
    rows = [
        {"round": task_round.id, "place": place, "client": people[which][0], "body": people[which][1]}
        for place, which in enumerate(order.tolist())
    ]
    connection.execute(insert(tables.checking), rows)
    connection.execute(insert(tables.commitments).values(round=task_round.id, batch=sha256(batch)))
    return batch


def forget_batch(connection: Connection, task: Task, round_id: str, state: str) -> None:
    """Note that the analyzer has a batch, or has refused it for good. Where reports are checked, its exclusions are waited for.

    Parameters
    ----------
    connection : Connection
        The shuffler's transaction.
    task : Task
        The task that is served.
    round_id : str
        The batch's round.
    state : {"forwarded", "refused"}
        What became of it.
    """
    if state == "forwarded" and checked_transport(task.transport) is not None:
        state = "checked"
    here = (tables.rounds.c.id == round_id) & (tables.rounds.c.state == "made")
    connection.execute(update(tables.rounds).where(here).values(state=state, batch=None))
    if state != "checked":
        connection.execute(delete(tables.unforwarded).where(tables.unforwarded.c.round == round_id))
    if state == "refused":
        connection.execute(delete(tables.checking).where(tables.checking.c.round == round_id))


class Releases:
    """Exclusions and releases of the shuffler's rounds.

    Parameters
    ----------
    store : Database
        The shuffler's database.
    key : Ed25519PrivateKey
        The shuffler's key, which signs releases.
    analyzer : Ed25519PublicKey
        The analyzer's key.

    Guarantee
    ---------
    Of one round one sum leaves the shuffler, over all reports but those in the first list of exclusions that it was given, and only
    if these are not more than the task's margin allows.
    """

    def __init__(self, store: Database, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey) -> None:
        self._store, self._key, self._analyzer = store, key, analyzer

    def waiting(self) -> str | None:
        """Return the round whose exclusions are waited for.

        Returns
        -------
        str or None
            Its id; None where none is.
        """
        rounds = tables.rounds.c
        with self._store.look() as connection:
            return connection.execute(select(rounds.id).where(rounds.state == "checked").order_by(rounds.number)).scalar()

    def take(self, task: Task, document: Document) -> None:
        """Keep the analyzer's list of exclusions, and write down the sum of all other reports. The list again changes nothing.

        Parameters
        ----------
        task : Task
            The task that is served.
        document : Document
            The analyzer's signed list.

        Raises
        ------
        WireError
            Where it is not the analyzer's, of another batch, or another list than the one that was kept.
        """
        exclusions = Exclusions.read(document, self._analyzer)
        with self._store.begin() as connection:
            rounds, kept = tables.rounds.c, tables.commitments.c
            query = select(rounds.document, rounds.state, rounds.arrived, kept.batch, kept.document.label("committed"))
            joined = query.join_from(tables.rounds, tables.commitments).where(rounds.id == exclusions.round)
            row = connection.execute(joined.with_for_update()).first()
            if row is None or exclusions.task != task.id or exclusions.batch != row.batch:
                raise WireError("exclusions of no batch of this shuffler's")
            if row.committed is not None:
                if row.committed != document.to_bytes():
                    raise WireError("another list of exclusions than the one that was kept: nothing is released a second time")
                return
            if row.state not in ("made", "checked"):
                raise WireError("exclusions of a round that has been given up")
            here = kept.round == exclusions.round
            connection.execute(update(tables.commitments).where(here).values(document=document.to_bytes()))
            task_round = TaskRound.read(Document.from_bytes(row.document), task, self._analyzer)
            self._settle(connection, task, task_round, exclusions.places, document.digest)
        self._store.wipe()

    def _settle(self, connection: Connection, task: Task, task_round: TaskRound, places: Sequence[int], commitment: bytes) -> None:
        """Write down whose reports are left out and the sum of the others, and forget all reports."""
        checking = tables.checking.c
        query = select(checking.place, checking.client, checking.body).where(checking.round == task_round.id)
        rows = connection.execute(query.order_by(checking.place)).all()
        out = set(places)
        if places and places[-1] >= len(rows):
            raise WireError("exclusions beyond the batch")
        named = [{"round": task_round.id, "client": row.client} for row in rows if row.place in out and row.client is not None]
        if named:
            connection.execute(insert(tables.excluded), named)
        phase, transport = task_round.phase_of(task), checked_transport(task.transport)
        most, left = most_excluded(task, phase), len(rows) - len(out)
        values: dict[str, str | bytes | None] = {"state": "refused", "batch": None}
        if transport is None or len(out) > most or left < phase.plan.honest_users:
            log.error("round %d is given up: %d reports are bad, more than the %d allowed", task_round.number, len(out), most)
        else:
            rest = [SealedReport.from_bytes(row.body) for row in rows if row.place not in out]
            sums, width = transport.summed(rest, phase.plan), transport.width(phase.plan)
            release = Release(task.transport, rest[0].round, commitment, left, sums, width)
            values = {"state": "summed", "batch": release.to_bytes(self._key)}
            if out:
                log.warning("round %d: %d reports are left out; croupier serve excluded names them", task_round.number, len(out))
        connection.execute(update(tables.rounds).where(tables.rounds.c.id == task_round.id).values(**values))
        if values["state"] == "refused":
            connection.execute(delete(tables.unforwarded).where(tables.unforwarded.c.round == task_round.id))
        connection.execute(delete(tables.checking).where(checking.round == task_round.id))

    def ready(self) -> tuple[str, bytes] | None:
        """Return a release that the analyzer is not known to have.

        Returns
        -------
        tuple of (str, bytes) or None
            Its round's id and the signed release; None where none waits.
        """
        rounds = tables.rounds.c
        with self._store.look() as connection:
            query = select(rounds.id, rounds.batch).where(rounds.state == "summed")
            row = connection.execute(query.order_by(rounds.number)).first()
        return None if row is None else (row.id, row.batch)

    def arrived(self, round_id: str) -> None:
        """Forget a release that the analyzer has.

        Parameters
        ----------
        round_id : str
            Its round.
        """
        here = (tables.rounds.c.id == round_id) & (tables.rounds.c.state == "summed")
        with self._store.begin() as connection:
            connection.execute(update(tables.rounds).where(here).values(state="forwarded", batch=None))
            connection.execute(delete(tables.unforwarded).where(tables.unforwarded.c.round == round_id))
        self._store.wipe()


def excluded_clients(store: Database) -> list[tuple[str, int]]:
    """Return whose reports were left out, and in which round.

    Parameters
    ----------
    store : Database
        The shuffler's database.

    Returns
    -------
    list of (str, int)
        Names of clients and numbers of rounds, by rounds.
    """
    rounds, excluded = tables.rounds.c, tables.excluded.c
    query = select(excluded.client, rounds.number).join_from(tables.excluded, tables.rounds)
    with store.look() as connection:
        return [(row.client, row.number) for row in connection.execute(query.order_by(rounds.number, excluded.client))]


def bar(store: Database, names: Collection[str]) -> list[str]:
    """Strike out clients' tokens: whoever has one is no longer enrolled, within half a minute.

    Parameters
    ----------
    store : Database
        The shuffler's database.
    names : collection of str
        Names of clients.

    Returns
    -------
    list of str
        Those that are enrolled clients' and now have no token.
    """
    clients = tables.clients.c
    with store.begin() as connection:
        known = connection.execute(select(clients.id).where(clients.id.in_(names)).order_by(clients.id)).scalars().all()
        connection.execute(update(tables.clients).where(clients.id.in_(known)).values(token_hash=None))
    return list(known)
