"""A user's mean gradient, computed on its device: refused or blanked where a record is not valid, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..invalid import numbers_or_nan, one_by_one
from ..validation import ArgumentError, Found
from .task import Task, TaskRound

# What an error says in place of a record's value: errors may travel, to whoever collects an app's.
NOT_SHOWN = Found("has a value that is not shown")
Records = Callable[[], tuple[ArrayLike, Any]]
T = TypeVar("T")


def checked_mean(task: Task, task_round: TaskRound, records: Records) -> NDArray[np.float64]:
    """The mean of the records' gradients; a record that is not valid is refused by an error that says nothing of it.

    Parameters
    ----------
    task : Task
        The round's task.
    task_round : TaskRound
        The round.
    records : callable
        Returns this user's rows and targets.

    Returns
    -------
    ndarray
        One entry per coordinate of theta.

    Raises
    ------
    ArgumentError
        Where the loss does not take the records.
    """
    X, y = records()
    refusal: tuple[str, str, str] | None = None
    try:
        mean = task_round.gradient(task, np.atleast_2d(np.asarray(X, dtype=np.float64)), np.atleast_1d(np.asarray(y)))
        if np.isfinite(mean).all():
            return mean
    except ArgumentError as problem:
        refusal = problem.name, problem.allowed, problem.remedy
    except (TypeError, ValueError):
        pass
    # Outside of what caught it: no trace leads back to an error that quotes a record.
    name, allowed, remedy = refusal or ("X, y", "finite numbers", "Impute what is missing.")
    raise ArgumentError(name, NOT_SHOWN, allowed, f"{remedy} Nothing was sent.")


def blanked_mean(task: Task, task_round: TaskRound, records: Records) -> NDArray[np.float64] | None:
    """The same where a record that is not valid has gradient 0.

    Parameters
    ----------
    task : Task
        The round's task.
    task_round : TaskRound
        The round.
    records : callable
        Returns this user's rows and targets.

    Returns
    -------
    ndarray or None
        None where the records cannot be read at all, however that shows.
    """
    with suppress(Exception):
        X, y = records()
        rows = np.atleast_2d(np.asarray(numbers_or_nan(X), dtype=np.float64))
        mean = task_round.gradient(task, rows, np.atleast_1d(one_by_one(y)))
        if np.isfinite(mean).all():
            return mean
    return None


def beside(work: Callable[[], T]) -> Future[T]:
    """What a thread of its own makes of the work. The process ends without waiting for it.

    Parameters
    ----------
    work : callable
        What is to be done.

    Returns
    -------
    Future
        Of its result.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as problem:  # for whoever asks for the result
            future.set_exception(problem)

    threading.Thread(target=run, name="records", daemon=True).start()
    return future


def mean_when_due(task: Task, task_round: TaskRound, records: Records, due: float | None) -> NDArray[np.float64] | None:
    """The mean of the records' gradients, when it is due and no sooner.

    Parameters
    ----------
    task : Task
        The round's task.
    task_round : TaskRound
        The round.
    records : callable
        Returns this user's rows and targets; called in a thread of its own.
    due : float or None
        On the monotonic clock; None is at once, for made-up people.

    Returns
    -------
    ndarray or None
        None where it is not ready by then, or the task blanks records that are not valid and these cannot be read at all.
    """

    def computed() -> NDArray[np.float64] | None:
        return blanked_mean(task, task_round, records) if task.blanks else checked_mean(task, task_round, records)

    if due is None:
        return computed()
    gradient = beside(computed)
    wait_for([gradient], timeout=max(0.0, due - time.monotonic()))
    if not gradient.done():
        return None
    value = gradient.result()
    sleep_until(due)
    return value


def sleep_until(moment: float) -> None:
    """Sleep until a moment on the monotonic clock, or not at all if it has passed.

    Parameters
    ----------
    moment : float
        In seconds, as `time.monotonic` counts them.
    """
    time.sleep(max(0.0, moment - time.monotonic()))
