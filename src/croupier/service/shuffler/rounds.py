"""Who is asked in which rounds, drawn by lot, and who has taken part."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import BindParameter, ColumnElement, Connection, Integer, bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ...population.dealing import draw_lots as independent_lots
from ...protocol import SecureRandom
from ...protocol.randomness import Secret
from ...protocol.sampling import permutation
from ..analyzer.population import most_excluded
from ..net import database as tables
from ..net.database import Database
from ..wire.documents import Document, WireError, sha256
from ..wire.outcomes import Accepted, ParsedReport, RefusedError
from ..wire.reports import Exclusions
from ..wire.task import Task, TaskRound
from ..wire.transports import TRANSPORTS, SealedReport

_NAMES: BindParameter[Any] = bindparam("names", expanding=True)
_AMONG_ANSWERED = select(tables.taken_part.c.client).where(
    (tables.taken_part.c.slot == bindparam("slot")) & tables.taken_part.c.client.in_(_NAMES)
)
_AMONG_LOTS = select(tables.lots.c.client).where(
    bindparam("round", type_=Integer).between(tables.lots.c.first, tables.lots.c.last) & tables.lots.c.client.in_(_NAMES)
)


def draw_lots(connection: Connection, task: Task) -> None:
    """Draw uniformly at random who is asked in which rounds; clients that are left over, or are enrolled later, are not asked.

    The proof is about batches that are chosen without a look at the data. When a client comes may depend on its records, so
    that it must not decide who is in a batch: neither the client itself nor those who come after it. A share of honest users is
    one of the task's users: then these have to be all who are enrolled. Secret lots are independent of each other.
    """
    names = connection.execute(select(tables.clients.c.id).order_by(tables.clients.c.id)).scalars().all()
    if len(names) < task.users or (len(names) > task.users and task.schedule.honest < 1):
        remedy = "enrol them first" if len(names) < task.users else "whoever is one too many could be none of the honest share"
        raise WireError(f"a task for {task.users} users, drawn by lot, where {len(names)} are enrolled: {remedy}")
    chosen = [names[who] for who in permutation(SecureRandom(), len(names)).tolist()]
    drawn = _by_permutation(task, chosen) if task.secret is None else _by_secret_lots(task, chosen[: task.users])
    connection.execute(insert(tables.lots), drawn)


def _by_permutation(task: Task, names: Sequence[str]) -> list[dict[str, Any]]:
    """Batches of known sizes, one after the other."""
    seats: list[range] = []
    for number, phase in enumerate(task.schedule.phases, start=1):
        rounds = task.rounds_of(number)
        whole = [rounds] if task.schedule.interactivity == "full" else [range(one, one + 1) for one in rounds]
        seats += [some for some in whole for _ in range(phase.batch)]
    return [{"client": name, "first": some[0], "last": some[-1]} for name, some in zip(names, seats, strict=False)]


def _by_secret_lots(task: Task, names: Sequence[str]) -> list[dict[str, Any]]:
    """Independent and uniform lots, by the law of a run in memory; who is one too many for a round is left out by chance."""
    phase = task.schedule.phases[0]
    batches = independent_lots(Secret.fresh(), len(names), phase.rounds, phase.batch)
    users = [(number, user) for number, batch in enumerate(batches, start=1) for user in batch.members(0, len(names)).tolist()]
    return [{"client": names[user], "first": number, "last": number} for number, user in users]


def who_answered(connection: Connection, task: Task, task_round: TaskRound, names: Collection[str]) -> set[str]:
    """Who of them has taken part: in the task, or in this round."""
    return who_has(connection, task.slot(task_round.id), names)


def who_has(connection: Connection, slot: str, names: Collection[str]) -> set[str]:
    """Who of them has used this slot."""
    return set(connection.execute(_AMONG_ANSWERED, {"slot": slot, "names": list(names)}).scalars())


def who_is_drawn(connection: Connection, task_round: TaskRound, names: Collection[str]) -> set[str]:
    """Who of them may answer the round: those whose lot it is."""
    return set(connection.execute(_AMONG_LOTS, {"round": task_round.number, "names": list(names)}).scalars())


def lots_of(connection: Connection, names: Collection[str]) -> dict[str, int]:
    """The first rounds that these clients were drawn for; who was not drawn is left out."""
    lots = tables.lots.c
    return {row.client: row.first for row in connection.execute(select(lots.client, lots.first).where(lots.client.in_(names)))}


# Clients that a round waits for, since they have asked for it and are about to answer.
#
# For a while a round does not end without those who have asked for it. So nobody randomizes in vain: a client answers once, and
# must not do so again because its round has ended. All of it is in the database, where every process of the shuffler sees it.

# Seconds for which a round that a client has asked for waits for it.
_PROMISED = 60.0


def reserve(connection: Connection, round_id: str, clients: Collection[str], now: float) -> None:
    """Let the round wait for these clients, as long as it waits for anybody."""
    until = now + _PROMISED
    rows = [{"client": client, "round": round_id, "until": until} for client in clients]
    insert: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    new = insert(tables.places)
    # An old place of another round, or one that another process has promised at the same time, gives way.
    connection.execute(new.on_conflict_do_update(index_elements=["client"], set_={"round": round_id, "until": until}), rows)


def who_has_reservations(connection: Connection, round_id: str, clients: Collection[str], now: float) -> set[str]:
    """Return for whom of them the round waits: whoever asks again has what it was promised, and no longer."""
    among = _standing(round_id, now) & tables.places.c.client.in_(clients)
    return set(connection.execute(select(tables.places.c.client).where(among)).scalars())


def any_reservation_left(connection: Connection, round_id: str, now: float) -> bool:
    """Return whether the round waits for anybody."""
    return connection.execute(select(tables.places.c.client).where(_standing(round_id, now)).limit(1)).scalar() is not None


def forget_places(connection: Connection, clients: Collection[str]) -> None:
    """Strike out the places that were kept for these clients."""
    connection.execute(delete(tables.places).where(tables.places.c.client.in_(clients)))


def _standing(round_id: str, now: float) -> ColumnElement[bool]:
    """Places of a round that hold now; later than any promise is none, where a machine's clock differs."""
    places = tables.places.c
    return (places.round == round_id) & places.until.between(now, now + _PROMISED)


# The shuffler's side of a round whose reports are checked: it keeps the analyzer's exclusions, and releases one sum over the
# rest.
#
# Every step is one transaction: whatever process is killed when, the same list is kept and the same sum is sent.

log = logging.getLogger("croupier")


def to_be_checked(
    connection: Connection, task_round: TaskRound, people: Sequence[tuple[str | None, bytes]], order: Sequence[int], batch: bytes
) -> None:
    """Write reports down in the order of their batch, until the analyzer has said which are left out."""
    rows = [
        {"round": task_round.id, "place": place, "client": people[which][0], "body": people[which][1]}
        for place, which in enumerate(order)
    ]
    connection.execute(insert(tables.checking), rows)
    connection.execute(insert(tables.commitments).values(round=task_round.id, batch=sha256(batch)))


def forget_batch(connection: Connection, task: Task, round_id: str, state: str) -> None:
    """Note that the analyzer has a batch, or has refused it for good. Where reports are checked, its exclusions are waited for."""
    if state == "forwarded" and TRANSPORTS[task.transport].checked:
        state = "checked"
    here = (tables.rounds.c.id == round_id) & (tables.rounds.c.state == "made")
    connection.execute(update(tables.rounds).where(here).values(state=state, batch=None))
    if state != "checked":
        connection.execute(delete(tables.unforwarded).where(tables.unforwarded.c.round == round_id))
    if state == "refused":
        connection.execute(delete(tables.checking).where(tables.checking.c.round == round_id))


class Releases:
    """Exclusions and releases of the shuffler's rounds.

    Guarantee
    ---------
    Of one round one sum leaves the shuffler, over all reports but those in the first list of exclusions that it was given, and only
    if these are not more than the task's margin allows.
    """

    def __init__(self, store: Database, key: Ed25519PrivateKey, analyzer: Ed25519PublicKey) -> None:
        self._store, self._key, self._analyzer = store, key, analyzer

    def waiting(self) -> str | None:
        """Return the round whose exclusions are waited for."""
        rounds = tables.rounds.c
        with self._store.look() as connection:
            return connection.execute(select(rounds.id).where(rounds.state == "checked").order_by(rounds.number)).scalar()

    def take(self, task: Task, document: Document) -> None:
        """Keep the analyzer's list of exclusions, and write down the sum of all other reports. The list again changes nothing."""
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
        phase = task_round.phase_of(task)
        most, left = most_excluded(task, phase), len(rows) - len(out)
        values: dict[str, str | bytes | None] = {"state": "refused", "batch": None}
        if len(out) > most or left < phase.plan.honest_users:
            log.error("round %d is given up: %d reports are bad, more than the %d allowed", task_round.number, len(out), most)
        else:
            rest = [SealedReport.from_bytes(row.body) for row in rows if row.place not in out]
            release = TRANSPORTS[task.transport].release(rest, phase.plan, commitment)
            values = {"state": "summed", "batch": release.to_bytes(self._key)}
            if out:
                log.warning("round %d: %d reports are left out; croupier serve excluded names them", task_round.number, len(out))
        connection.execute(update(tables.rounds).where(tables.rounds.c.id == task_round.id).values(**values))
        if values["state"] == "refused":
            connection.execute(delete(tables.unforwarded).where(tables.unforwarded.c.round == task_round.id))
        connection.execute(delete(tables.checking).where(checking.round == task_round.id))

    def ready(self) -> tuple[str, bytes] | None:
        """Return a release that the analyzer is not known to have."""
        rounds = tables.rounds.c
        with self._store.look() as connection:
            query = select(rounds.id, rounds.batch).where(rounds.state == "summed")
            row = connection.execute(query.order_by(rounds.number)).first()
        return None if row is None else (row.id, row.batch)

    def arrived(self, round_id: str) -> None:
        """Forget a release that the analyzer has."""
        here = (tables.rounds.c.id == round_id) & (tables.rounds.c.state == "summed")
        with self._store.begin() as connection:
            connection.execute(update(tables.rounds).where(here).values(state="forwarded", batch=None))
            connection.execute(delete(tables.unforwarded).where(tables.unforwarded.c.round == round_id))
        self._store.wipe()


def excluded_clients(store: Database) -> list[tuple[str, int]]:
    """Return whose reports were left out, and in which round."""
    rounds, excluded = tables.rounds.c, tables.excluded.c
    query = select(excluded.client, rounds.number).join_from(tables.excluded, tables.rounds)
    with store.look() as connection:
        return [(row.client, row.number) for row in connection.execute(query.order_by(rounds.number, excluded.client))]


def revoke(store: Database, names: Collection[str]) -> list[str]:
    """Strike out clients' tokens: whoever has one is no longer enrolled, within half a minute."""
    clients = tables.clients.c
    with store.begin() as connection:
        known = connection.execute(select(clients.id).where(clients.id.in_(names)).order_by(clients.id)).scalars().all()
        connection.execute(update(tables.clients).where(clients.id.in_(known)).values(token_hash=None))
    return list(known)


# Reports in the shuffler's database: each is taken or refused, and a full round becomes a batch, in one transaction.

_AMONG_REPORTS = select(tables.reports.c.client, tables.reports.c.body).where(
    (tables.reports.c.round == bindparam("round")) & tables.reports.c.client.in_(_NAMES)
)


def accept_reports(
    connection: Connection, task: Task, task_round: TaskRound, reports: dict[int, ParsedReport], key: Ed25519PrivateKey, now: float
) -> dict[int, Accepted | RefusedError]:
    """Take reports of one round, and make its batch, signed with the shuffler's key, where it is full.

    A report hears how many there are with it; 0 where it was counted in a round that has ended.
    """
    slot, wanted, cover = task.slot(task_round.id), task_round.phase_of(task).plan.users, cover_slot(task_round)
    names = {report.client for report in reports.values()}
    state = state_of(connection, task_round.id, to_change=True)
    here = connection.execute(_AMONG_REPORTS, {"round": task_round.id, "names": list(names)}).all()
    kept = {row.client: row.body for row in here}
    answered = who_answered(connection, task, task_round, names)
    drawn = who_is_drawn(connection, task_round, names)
    sealed = known_seals(connection, task_round, reports.values())
    covered = task.secret is not None and task.secret.cover
    if covered:  # everybody sends something: what is not of the round's lot is written down all the same, and thrown away later
        answered, drawn, real = (answered & drawn) | who_has(connection, cover, names), names, drawn
    arrived, new, outcomes = int(state.arrived), [], dict[int, Accepted | RefusedError]()
    for place, report in reports.items():
        client, body = report.client, report.body
        if state.state != "open" or (arrived == wanted if task.secret is None else now >= task.secret.ends(state.opened)):
            late = client not in answered and not covered
            outcomes[place] = RefusedError(410, "the round has ended") if late else Accepted(0, wanted)
        elif kept.get(client) == body:
            outcomes[place] = Accepted(arrived, wanted)
        elif client in kept:
            outcomes[place] = RefusedError(409, "another report of this client is here; a retry sends the same bytes")
        elif client in answered:
            outcomes[place] = RefusedError(409, "this client has taken part already")
        elif client not in drawn:
            outcomes[place] = RefusedError(409, "this client's lot is not this round")
        elif report.seal in sealed:
            outcomes[place] = RefusedError(400, "an envelope that is here already; every report has new ones")
        else:
            arrived += 1
            sealed.add(report.seal)
            kept[client] = body
            answered.add(client)
            new.append(report)
            outcomes[place] = Accepted(arrived, wanted)
    if new:
        slots = {report.client: cover if covered and report.client not in real else slot for report in new}
        connection.execute(insert(tables.taken_part), [{"slot": used, "client": client} for client, used in slots.items()])
        rows = [{"round": task_round.id, "client": report.client, "body": report.body} for report in new]
        connection.execute(insert(tables.reports), rows)
        connection.execute(insert(tables.seals), [{"round": task_round.id, "seal": report.seal} for report in new])
        forget_places(connection, [report.client for report in new])
        connection.execute(update(tables.rounds).where(tables.rounds.c.id == task_round.id).values(arrived=arrived))
        if task.secret is None and arrived == wanted:
            make_batch(connection, task, task_round, key, now)
    return outcomes


def make_batch(
    connection: Connection,
    task: Task,
    task_round: TaskRound,
    key: Ed25519PrivateKey,
    now: float,
    blanks: Sequence[SealedReport] = (),
) -> None:
    """Write the batch of a full round, permuted and signed, in place of the reports.

    No link to people is left, but where reports are checked: there it is kept until the analyzer has said which are left out.
    With blanks it has as many reports as there are blanks: those of the round's lot, and blanks in the place of the others.
    """
    here, lot, number = tables.reports.c.round == task_round.id, tables.lots.c, task_round.number
    drawn = (lot.client == tables.reports.c.client) & (lot.first <= number) & (lot.last >= number)
    query = select(tables.reports.c.client, tables.reports.c.body).join(tables.lots, drawn).where(here)
    rows = connection.execute(query.order_by(tables.reports.c.client)).all()
    fill = blanks[len(rows) :]
    reports = [*[SealedReport.from_bytes(bytes(row.body)) for row in rows], *fill]
    transport, plan = TRANSPORTS[task.transport], task_round.phase_of(task).plan
    secret = transport.shuffler_secret(key, task_round.key, reports[0].round)
    made, order = transport.batch(reports, plan, SecureRandom(), secret)
    batch = made.to_bytes(key)
    if order is not None:
        people = [*[(row.client, bytes(row.body)) for row in rows], *[(None, blank.to_bytes()) for blank in fill]]
        to_be_checked(connection, task_round, people, order.tolist(), batch)
    connection.execute(update(tables.rounds).where(tables.rounds.c.id == task_round.id).values(state="made", batch=batch))
    connection.execute(insert(tables.unforwarded).values(round=task_round.id, since=now))
    connection.execute(delete(tables.reports).where(here))
    connection.execute(delete(tables.taken_part).where(tables.taken_part.c.slot == cover_slot(task_round)))
    connection.execute(delete(tables.seals))
    connection.execute(delete(tables.places))


def cover_slot(task_round: TaskRound) -> str:
    """What a client has once a round whose lot is another one, where everybody sends something in every round."""
    return f"cover {task_round.id}"


def known_seals(connection: Connection, task_round: TaskRound, reports: Iterable[ParsedReport]) -> set[str]:
    """Which of the reports' encapsulated keys are here already: who sends one again would count another user's answer twice."""
    seals = tables.seals.c
    among = (seals.round == task_round.id) & seals.seal.in_([report.seal for report in reports])
    return set(connection.execute(select(seals.seal).where(among)).scalars())


def state_of(connection: Connection, round_id: str, *, to_change: bool = False) -> Any:
    """State, arrivals and time of opening of a round; its row is locked where it is going to change."""
    rounds = tables.rounds.c
    query = select(rounds.state, rounds.arrived, rounds.opened).where(rounds.id == round_id)
    return connection.execute(query.with_for_update(key_share=True) if to_change else query).one()  # what names the row may go on
