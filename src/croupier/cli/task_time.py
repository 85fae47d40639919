"""How long a task takes, as it states itself: for its operator, and for clients that wait for a round of it."""

from __future__ import annotations

import time

from ..service.wire.task import Task

_DAY = 86_400.0
# Seconds for which a place in an open round is kept, after which it ends without anyone who asked; and how long a client waits for
# a round that has no end by the clock.
_KEPT, _LONGEST = 60.0, 7 * _DAY
# Seconds that a client of a question over days stays: a timer starts it every day.
_DAILY = 60.0


def least_seconds(task: Task) -> float | None:
    """Seconds from the first opening to the last batch, where rounds go by the clock; None if people's answers end them."""
    if task.secret is not None:
        return task.schedule.rounds * task.secret.leaves(0.0)
    return task.schedule.rounds * _DAY if task.query.remembers else None


def usual_wait(task: Task) -> float:
    """Default number of seconds for which a client looks for its rounds: until the task should be over."""
    if task.query.remembers:
        return _DAILY
    if task.secret is not None:
        return (task.schedule.rounds + 1) * task.secret.leaves(0.0)
    return _LONGEST if task.patience is None else max(_LONGEST, task.schedule.rounds * (task.patience + _KEPT))


def length_line(task: Task, now: float | None = None) -> str:
    """How long a task takes, in a sentence for its operator."""
    rounds = "1 round" if task.schedule.rounds == 1 else f"{task.schedule.rounds:,} rounds"
    least = least_seconds(task)
    if least is not None and task.secret is not None:
        when = clock_text(least, now)
        return f"{rounds} of {duration(task.secret.seconds)}: over in {duration(least)} at the earliest, {when}, however many come."
    if least is not None:
        return f"{rounds}, one per day: over in {duration(least)} at the earliest."
    if task.patience is None:
        return f"{rounds}; each waits for everybody who was drawn for it."
    most = duration(task.schedule.rounds * (task.patience + _KEPT))
    return f"{rounds}, each of at most {duration(task.patience)} if enough people come; then over in {most} at the latest."


def duration(seconds: float) -> str:
    """Seconds in the two largest units that a person would say them in, rounded up to the second of them."""
    whole = int(-(-seconds // 1))
    if whole < 120:
        return f"{whole} s"
    for size, name, part, part_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            big, small = divmod(-(-whole // part), size // part)
            return f"{big:,} {name}" + (f" {small} {part_name}" if small else "")
    raise AssertionError  # 120 s are minutes


def clock_text(wait: float, now: float | None = None) -> str:
    """The time in this many seconds by this machine's clock: with the day where that is another one."""
    start = time.time() if now is None else now
    then, today = time.localtime(start + min(wait, 1e9)), time.localtime(start)
    same = then[:3] == today[:3]
    return time.strftime("at %H:%M" if same else "on %a %d %b at %H:%M", then)
