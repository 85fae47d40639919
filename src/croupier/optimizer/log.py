"""What a run tells the logger "croupier": what it is about to do ("croupier.run") and every round ("croupier.round"), as INFO.

Nothing of it says more than the plan and the number of users do.
"""

from __future__ import annotations

import logging

from .phases import Schedule
from .result import Round

RUN, ROUND = logging.getLogger("croupier.run"), logging.getLogger("croupier.round")


def about_to_run(chosen: Schedule, users: int) -> str:
    """What a run is about to do, in a line: its method, how many rounds, who is asked in them, and who is not.

    Parameters
    ----------
    chosen : Schedule
        The schedule that is run.
    users : int
        All users there are.

    Returns
    -------
    str
    """
    rounds = f"{chosen.rounds:,} rounds" if chosen.rounds != 1 else "1 round"
    if chosen.interactivity == "full":
        return f"{chosen.method}: about to run {rounds}; all {users:,} users are asked in every round"
    return f"{chosen.method}: about to run {rounds}; each user is asked at most once{left_over(chosen, users)}"


def left_over(chosen: Schedule, users: int) -> str:
    """Why some users are not asked at all, in words; nothing where all are."""
    needed = sum(phase.rounds * phase.batch for phase in chosen.phases)
    if chosen.interactivity == "full" or needed >= users:
        return ""
    return f", and {users - needed:,} of {users:,} are not asked: the rounds of a phase are equally large, and these are left over"


def begin(chosen: Schedule, users: int) -> None:
    """Say what a run is about to do."""
    RUN.info("%s", about_to_run(chosen, users))


def tell(chosen: Schedule, answered: Round) -> None:
    """Say that a round has ended."""
    who = "users answered" if chosen.phases[answered.phase - 1].lots is None else "reports, blanks included"
    ROUND.info("round %d of %d: %d %s", answered.index, chosen.rounds, answered.users, who)
