"""Who is asked in which rounds, drawn by lot, and who has taken part."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import BindParameter, Connection, Integer, bindparam, insert, select

from ..protocol import SecureRandom, permutation
from . import store as tables
from .task import Task, TaskRound
from .wire import WireError

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
    one of the task's users: then these have to be all who are enrolled.
    """
    names = connection.execute(select(tables.clients.c.id).order_by(tables.clients.c.id)).scalars().all()
    if len(names) < task.users or (len(names) > task.users and task.schedule.honest < 1):
        remedy = "enrol them first" if len(names) < task.users else "whoever is one too many could be none of the honest share"
        raise WireError(f"a task for {task.users} users, drawn by lot, where {len(names)} are enrolled: {remedy}")
    seats: list[range] = []
    for number, phase in enumerate(task.schedule.phases, start=1):
        rounds = task.rounds_of(number)
        whole = [rounds] if task.schedule.interactivity == "full" else [range(one, one + 1) for one in rounds]
        seats += [some for some in whole for _ in range(phase.batch)]
    order = permutation(SecureRandom(), len(names)).tolist()
    drawn = [{"client": names[who], "first": some[0], "last": some[-1]} for who, some in zip(order, seats, strict=False)]
    connection.execute(insert(tables.lots), drawn)


def who_answered(connection: Connection, task: Task, task_round: TaskRound, names: Collection[str]) -> set[str]:
    """Who of them has taken part: in the task, or in this round."""
    slot = {"slot": task.slot(task_round.id), "names": list(names)}
    return set(connection.execute(_AMONG_ANSWERED, slot).scalars())


def who_is_drawn(connection: Connection, task_round: TaskRound, names: Collection[str]) -> set[str]:
    """Who of them may answer the round: those whose lot it is."""
    return set(connection.execute(_AMONG_LOTS, {"round": task_round.number, "names": list(names)}).scalars())
