"""Reports in the shuffler's database: each is taken or refused, and a full round becomes a batch, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import BindParameter, Connection, bindparam, delete, insert, select, update

from ..protocol import SecureRandom
from . import store as tables
from .checked import checked_transport
from .lots import who_answered, who_has, who_is_drawn
from .outcomes import RefusedError, Taken, Written
from .places import forget_places
from .releasing import to_be_checked
from .task import Task, TaskRound
from .transport import shuffled
from .wire import SealedReport

_NAMES: BindParameter[Any] = bindparam("names", expanding=True)
_AMONG_REPORTS = select(tables.reports.c.client, tables.reports.c.body).where(
    (tables.reports.c.round == bindparam("round")) & tables.reports.c.client.in_(_NAMES)
)


def take_reports(
    connection: Connection, task: Task, task_round: TaskRound, reports: dict[int, Written], key: Ed25519PrivateKey, now: float
) -> dict[int, Taken | RefusedError]:
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
    arrived, new, outcomes = int(state.arrived), [], dict[int, Taken | RefusedError]()
    for place, report in reports.items():
        client, body = report.client, report.body
        if state.state != "open" or (arrived == wanted if task.secret is None else now >= task.secret.ends(state.opened)):
            late = client not in answered and not covered
            outcomes[place] = RefusedError(410, "the round has ended") if late else Taken(0, wanted)
        elif kept.get(client) == body:
            outcomes[place] = Taken(arrived, wanted)
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
            outcomes[place] = Taken(arrived, wanted)
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
    if (transport := checked_transport(task.transport)) is None:
        batch = shuffled([*[SealedReport.from_bytes(row.body) for row in rows], *fill], SecureRandom()).to_bytes(key)
    else:
        people = [*[(row.client, bytes(row.body)) for row in rows], *[(None, blank.to_bytes()) for blank in fill]]
        batch = to_be_checked(connection, task_round, people, transport, task_round.phase_of(task).plan, key)
    connection.execute(update(tables.rounds).where(tables.rounds.c.id == task_round.id).values(state="made", batch=batch))
    connection.execute(insert(tables.unforwarded).values(round=task_round.id, since=now))
    connection.execute(delete(tables.reports).where(here))
    connection.execute(delete(tables.taken_part).where(tables.taken_part.c.slot == cover_slot(task_round)))
    connection.execute(delete(tables.seals))
    connection.execute(delete(tables.places))


def cover_slot(task_round: TaskRound) -> str:
    """What a client has once a round whose lot is another one, where everybody sends something in every round."""
    return f"cover {task_round.id}"


def known_seals(connection: Connection, task_round: TaskRound, reports: Iterable[Written]) -> set[str]:
    """Which of the reports' encapsulated keys are here already: who sends one again would count another user's answer twice."""
    seals = tables.seals.c
    among = (seals.round == task_round.id) & seals.seal.in_([report.seal for report in reports])
    return set(connection.execute(select(seals.seal).where(among)).scalars())


def state_of(connection: Connection, round_id: str, *, to_change: bool = False) -> Any:
    """State, arrivals and time of opening of a round; its row is locked where it is going to change."""
    rounds = tables.rounds.c
    query = select(rounds.state, rounds.arrived, rounds.opened).where(rounds.id == round_id)
    return connection.execute(query.with_for_update(key_share=True) if to_change else query).one()  # what names the row may go on
