"""How many reports a round may leave out, and with how many it can end: both follow from the task, and all roles compute them.

By the task's premise a batch holds so many honest users (`held`). Its plan counts on `honest_users` of them. What is between is the
margin for reports that are left out: an analyzer that leaves out honest ones, which nobody can tell, still has the sum of as many
honest users as the plan's proof needs.
"""

from __future__ import annotations

from ..optimizer.phases import Phase, Schedule, held_in_batch
from ..privacy._rounding import exact
from ..privacy.crowd import exclusions_in_batch, honest_in_batch, honest_total
from .checked import checked_transport
from .task import Task


def most_excluded(task: Task, phase: Phase) -> int:
    """Count the reports of a round that may be left out at most: E.

    Parameters
    ----------
    task : Task
        The task.
    phase : Phase
        The round's phase.

    Returns
    -------
    int
        At least 0.

    Guarantee
    ---------
    Whichever E reports of a batch are left out, the rest holds the honest users that the phase's plan counts on, if the batch holds
    those that the task's premise says.
    """
    if phase.lots is not None:
        return phase.lots.most_excluded
    return held_in_batch(task.schedule, task.users, phase) - phase.plan.honest_users


def fewest(task: Task, phase: Phase) -> int:
    """Count the reports with which a round can end at least, before any is left out.

    Parameters
    ----------
    task : Task
        The task.
    phase : Phase
        The round's phase.

    Returns
    -------
    int
        The plan's honest users, and as many more as may be left out; all where lots are secret, as blanks fill a round up.
    """
    if phase.lots is not None:
        return phase.plan.users
    return phase.plan.honest_users + most_excluded(task, phase)


def no_room(task: Task) -> str | None:
    """Say that one bad report ends a task, where that is so, and from which size of a round it is not.

    Parameters
    ----------
    task : Task
        The task.

    Returns
    -------
    str or None
        A sentence for its operator; None where every round can do without a report.
    """
    schedule = task.schedule
    tight = [phase for phase in schedule.phases if not room(task, phase)]
    if not tight:
        return None
    line = f"One bad report ends the task: the plan of a round of {tight[0].batch:,} has no room for any."
    if schedule.honest == 1:
        return f"{line} With honest below 1 there is room for some."
    if tight[0].lots is not None:
        return f"{line} Fewer rounds, or more users, leave room for some."
    alone = tight[0].batch == task.users  # everybody is in the round: more people are a larger round
    enough = next((size for size in range(2, 10_000) if _would_leave_room(size, size if alone else task.users, schedule)), None)
    more = f"rounds of {enough:,} and more" if enough is not None and (alone or enough <= task.users) else "fewer rounds"
    return f"{line} With honest = {exact(schedule.honest)}, {more} leave room for some."


def room(task: Task, phase: Phase) -> int:
    """Count the users of a round who may send what is bad before the task ends.

    Parameters
    ----------
    task : Task
        The task.
    phase : Phase
        The round's phase.

    Returns
    -------
    int
        E; by "messages", where nothing is left out, those beyond the users that the plan counts on.
    """
    if checked_transport(task.transport) is None:
        return phase.plan.users - phase.plan.honest_users
    return most_excluded(task, phase)


def _would_leave_room(batch: int, users: int, schedule: Schedule) -> bool:
    """Whether such rounds would be planned with E of at least 1, as `Budget.honest_of` and `AskedQuery.schedule` plan them."""
    if batch > users:
        return False
    chance = schedule.shortfall
    held = honest_in_batch(users, schedule.honest, batch, chance) if chance else honest_total(batch, schedule.honest)
    return exclusions_in_batch(users, schedule.honest, batch, held) > 0
