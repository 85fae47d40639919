"""Who is asked in which rounds, drawn by lot, and who has taken part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import BindParameter, Connection, Integer, bindparam, insert, select

from ..population import draw_lots as independent_lots
from ..protocol import Secret, SecureRandom, permutation
from . import store as tables
from .documents import WireError
from .task import Task, TaskRound

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
