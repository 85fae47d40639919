"""How many reports a round may leave out, and with how many it can end: both follow from the task, and all roles compute them.

By the task's premise a batch holds so many honest users (`held`). Its plan counts on `honest_users` of them. What is between is the
margin for reports that are left out: an analyzer that leaves out honest ones, which nobody can tell, still has the sum of as many
honest users as the plan's proof needs.
"""

from __future__ import annotations

from ..optimizer.phases import Phase, held_in_batch
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
