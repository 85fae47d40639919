"""Users on a Ray cluster: blocks are spread over actors, which answer for their own users and return counts, nothing else.

An actor that dies is started anew and asked again. It draws the same randomness, since that is derived from the question and the
block, so it returns the same counts, to the bit: a retry is not a second release. Before it answers it makes sure that its blocks
are the ones that the run began with, by their digests.
"""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import shutil
import socket
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from ..protocol import Counts, SumEstimate
from ..validation import ArgumentError, Found, how_to_install, whole
from ._blocks import BlockPopulation, Placed, Records, Shard, joint_digest, processors, released
from .population import Question, Test, UnreachableError, WorkerError

# The connection to Ray: to a running cluster, or to a local one that is started here and ended here.

# Seconds to wait for what Ray does a little later.
_PATIENCE = 10.0
# Of this process, as Ray reads it once.
TOKEN = secrets.token_hex(32)
# Longest name of a temporary folder that leaves room for Ray's sockets.
_LONGEST = 24
# Room in a local object store beside the records that are put there.
_STORE_BYTES = 128 << 20


def job_of(ray: Any) -> str | None:
    """What this process is to Ray; None if it is not connected."""
    return str(ray.get_runtime_context().get_job_id()) if ray.is_initialized() else None


def free_cpus(ray: Any, wanted: int) -> int:
    """CPUs that nobody has, after some patience where they are too few: Ray takes a while to notice what has become free."""
    deadline = time.monotonic() + (_PATIENCE if ray.cluster_resources().get("CPU", 0) >= wanted else 0)
    while (free := int(ray.available_resources().get("CPU", 0))) < wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return free


def connected(address: str | None, workers: int, placed: Sequence[Placed]) -> tuple[Any, Callable[..., None], int | None]:
    """Ray, how to end what was begun here, and for how many workers it was started, if it was."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # noqa: PLC0415  (an extra)
    except ImportError:
        raise ArgumentError(
            "RayPopulation", Found("needs Ray, which is not installed"), "the extra `ray`", how_to_install("ray")
        ) from None
    if ray.is_initialized():
        if address is not None:
            raise ArgumentError("address", address, "left out, because this process is already connected to Ray", "Leave it out.")
        return ray, partial(_kill, ray), None
    if address is not None:
        _require_reachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, OSError) as problem:
            allowed = f"that of a running cluster ({str(problem).strip().splitlines()[0]})"
            raise ArgumentError("address", address, allowed, "Start one: ray start --head.") from None
        return ray, partial(_end, ray, None), None
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        remedy = "Unset it: a local Ray listens on the network, and only its token keeps others out."
        raise ArgumentError("RAY_AUTH_MODE", os.environ["RAY_AUTH_MODE"], "token, or not set", remedy)
    # The folder is for its owner alone, and short: Ray's sockets are in it, whose names must not be long.
    short = Path("/tmp") if len(tempfile.gettempdir()) > _LONGEST and os.access("/tmp", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="cr", dir=short))
    stored = sum(_bytes(block.block) for block in placed if isinstance(block.block, Records))
    try:
        with _token():
            ray.init(
                address="local",
                num_cpus=workers + 1,  # one for tasks, so that nothing waits for a worker's
                include_dashboard=False,
                object_store_memory=_STORE_BYTES + int(1.2 * stored),
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=str(folder / "r"),  # Ray opens it to everybody
            )
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return ray, partial(_end, ray, folder), workers


@contextmanager
def _token() -> Iterator[None]:
    """With a token by which Ray knows its own processes, unless there is one: it would leave one in the home folder."""
    mine = {} if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() else {"RAY_AUTH_TOKEN": TOKEN}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


def _require_reachable(address: str) -> None:
    """Ray would knock for a quarter of an hour at a door that nobody opens."""
    place = address.removeprefix("ray://")
    host, colon, port = place.rpartition(":")
    if not colon:  # "auto" and the like: Ray knows where to look
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as problem:
        allowed = f"that of a running cluster ({getattr(problem, 'strerror', None) or problem})"
        raise ArgumentError("address", address, allowed, "Start one (ray start --head), or correct the address.") from None


def _bytes(records: Records) -> int:
    """About what the rows of these users take."""
    sparse = hasattr(records.X, "indptr")
    every = sum(part.nbytes for part in (records.X.data, records.X.indices, records.X.indptr)) if sparse else records.X.nbytes
    rows = records.X.shape[0] if records.index is None else int(records.index.counts.sum())
    return int(every * rows / max(1, records.X.shape[0])) + 8 * rows


def _kill(ray: Any, job: str | None, workers: list[Any], stored: dict[int, Any]) -> None:
    """End the workers in a Ray that another program began, and free their records."""
    if job_of(ray) == job:
        for worker in workers:
            ray.kill(worker)
        stored.clear()


def _end(ray: Any, folder: Path | None, job: str | None, workers: list[Any], stored: dict[int, Any]) -> None:
    """End the connection, with it the workers, and the local Ray that lives in a folder."""
    try:
        if job_of(ray) == job:
            ray.shutdown()
    finally:
        deadline = time.monotonic() + _PATIENCE
        while folder is not None and folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)  # its processes may still be writing their last words
            time.sleep(0.05)


# How often a worker that died is started anew.
_RESTARTS = 10
# Seconds within which all workers must be there.
_START = 300.0


class RayPopulation:
    """The users of another population, spread over Ray workers block by block.

    Use it as a context, or call `close`.

    Parameters
    ----------
    population : BlockPopulation
        A `ParquetPopulation`, whose files the workers read themselves; an `ArrayPopulation`, whose blocks go to Ray's object store
        (name its `blocks` to get the same bits with secret lots here as in memory);
        or a `BlockPopulation` of blocks of your own, which are sent to the workers as they are (pickled). In counting mode.
    workers : int or None, default None
        Number of processes. None is one per CPU, and no more than there are blocks.
    address : str or None, default None
        Of a running cluster ("auto", "host:6379"). None is the Ray that this process is connected to, or a local one that ends with
        this object.
    keep : bool, default True
        Whether to hold the records in the workers' memory, or to read them again in every round.

    Attributes
    ----------
    users : int
        How many users there are.
    private : bool
        True: its answers are as private as the plan.
    unit : str
        What a user is, as in the population.

    Raises
    ------
    ArgumentError
        If the population has no blocks or is a stand-in, Ray is not installed, no cluster is at the address, or there are fewer
        free CPUs or blocks than workers.
    UnreachableError
        If the workers do not start.

    Guarantee
    ---------
    What leaves the driver has the noise of all users, as the plan says. The cluster is one trusted place: anyone who can look into
    its processes sees records, and the driver sees counts per worker, which have the noise of that worker's users only.

    Examples
    --------
    >>> import numpy as np
    >>> from croupier import minimize
    >>> from croupier.population import ArrayPopulation, RayPopulation
    >>> from croupier.problem import Ball, Logistic, Problem
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3)) / 3
    >>> problem = Problem(loss=Logistic(), domain=Ball(dim=3, radius=5.0))
    >>> with RayPopulation(ArrayPopulation(X, X[:, 0] > 0), workers=2) as population:  # doctest: +SKIP
    ...     minimize(problem, population, epsilon=1.0, delta=1e-6).users
    20000
    """

    def __init__(
        self, population: BlockPopulation, *, workers: int | None = None, address: str | None = None, keep: bool = True
    ) -> None:
        if not isinstance(population, BlockPopulation) or population.mode != "counting" or not population.private:
            allowed = "a population of blocks, in counting mode: Array-, Parquet- or BlockPopulation"
            raise ArgumentError("population", type(population).__name__, allowed, "Make one from the data first.")
        placed = population.shard.placed
        self.users, self.unit, self.private = population.users, population.unit, population.private
        if workers is not None:
            remedy = f"There are {len(placed)} blocks of users: one worker has at least one. Default: one per CPU."
            whole("workers", workers, at_least=1, at_most=len(placed), remedy=remedy)
        self._seal: _Seal | None = None
        self._workers: list[Any] = []
        self._stored: dict[int, Any] = {}
        self._ray, end, started = connected(address, workers or min(len(placed), processors()), placed)
        workers = workers or started
        self._started_in = job_of(self._ray)
        self._close = weakref.finalize(self, end, self._started_in, self._workers, self._stored)
        try:
            self._start(placed, workers, keep)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """How many processes answer."""
        return len(self._workers)

    def prepare(self, test: Test, key: bytes | None = None) -> bytes | None:
        """Refuse records that fail the test, before anybody is asked. Digests are kept to tell whether a retry sees the same.

        Parameters
        ----------
        test : Test
            Called with records (X, y) in the workers; raises where they are not what is wanted.
        key : bytes or None, default None
            The key of the digest that is returned; None if none is wanted.

        Returns
        -------
        bytes or None
            A keyed digest of all records in their order, the same as without a cluster (of an `ArrayPopulation`: where its
            `blocks` were named); None without a key.

        Raises
        ------
        UnreachableError
            If a worker is lost and does not come back.
        WorkerError
            If a worker raises something other than this package's errors.
        """
        seal = self._sealed(test, key or os.urandom(32))
        numbered = zip(chain.from_iterable(self._numbers), chain.from_iterable(seal.digests), strict=True)
        return None if key is None else joint_digest(key, [digest for _, digest in sorted(numbered)])

    def answer(self, question: Question) -> SumEstimate:
        """Run one private round over the users of the batch: the workers' counts are added up.

        Parameters
        ----------
        question : Question
            The question, its users and its plan.

        Returns
        -------
        SumEstimate
            The sum over the batch, its noise and its guarantee.

        Raises
        ------
        BatchTooSmallError
            If the round has fewer users than its guarantee counts on.
        UnreachableError
            If a worker is lost and does not come back, or has other records than before. Nothing is released then.
        WorkerError
            If a worker raises something other than this package's errors.
        """
        question.protocol.check_round(question.size)
        seal = self._seal or self._sealed(_anything, os.urandom(32))
        first, *others = self._all("counts", [(question, seal.key, digests) for digests in seal.digests])
        return released(question, sum(others, start=first))

    def _sealed(self, test: Test, key: bytes) -> _Seal:
        self._seal = _Seal(key, tuple(tuple(digests) for digests in self._all("prepare", [(test, key)] * self.workers)))
        return self._seal

    def close(self) -> None:
        """Stop the workers, and Ray where it was started here."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self, placed: Sequence[Placed], workers: int | None, keep: bool) -> None:
        count = free_cpus(self._ray, workers or 1)
        if count < (workers or 1):
            remedy = "Ask for fewer workers, wait for other jobs to end, or add machines to the cluster."
            raise ArgumentError("workers", workers or 1, f"at most {count}, the CPUs of the cluster that are free", remedy)
        shares = _shares([self._on_cluster(block) for block in placed], workers or min(len(placed), count))
        self._numbers = [[block.number for block in share] for share in shares]
        actor = self._ray.remote(_Worker).options(
            num_cpus=1, max_restarts=_RESTARTS, max_task_retries=_RESTARTS, scheduling_strategy="SPREAD"
        )
        self._workers += [actor.remote(self._ray.cloudpickle.dumps(share), keep) for share in shares]
        try:
            self._ray.get([worker.ready.remote() for worker in self._workers], timeout=_START)
        except self._ray.exceptions.GetTimeoutError:
            raise UnreachableError(f"no CPU was found for a worker within {_START:.0f} seconds; ask for fewer workers") from None
        except self._ray.exceptions.RayActorError as problem:
            raise _lost(problem) from None

    def _on_cluster(self, placed: Placed) -> Placed:
        """The block as it is sent to a worker: records that are in memory go to the object store once, not with every restart."""
        if not isinstance(placed.block, Records):
            return placed
        self._stored[placed.number] = self._ray.put(placed.block.gathered())
        return replace(placed, block=_Stored(placed.number, placed.users))

    def _all(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What every worker returns; the first error that one of them reports."""
        if not self._close.alive or job_of(self._ray) != self._started_in:
            raise UnreachableError("this population was closed, or the Ray that it was on was ended")
        errors = self._ray.exceptions
        try:
            pending = [
                getattr(worker, method).remote(
                    {number: self._stored[number] for number in numbers if number in self._stored}, *mine
                )
                for worker, numbers, mine in zip(self._workers, self._numbers, arguments, strict=True)
            ]
            replies: list[Any] = self._ray.get(pending)
        except (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.WorkerCrashedError) as problem:
            raise _lost(problem) from None
        for reply in replies:
            if isinstance(reply, _Failed):
                raise reply.error
        return replies


@dataclass(frozen=True)
class _Seal:
    """The digests of every worker's blocks under a key: who answers must hold the records that were there at the beginning."""

    key: bytes
    digests: tuple[tuple[bytes, ...], ...]


@dataclass(frozen=True)
class _Failed:
    """An error as a value, so that it arrives as it was raised."""

    error: Exception


@dataclass(frozen=True)
class _Stored:
    """A block in the object store, by its number. References come with every call: kept in a pickle they would never be freed."""

    number: int
    users: int
    checks_itself: ClassVar[bool] = True  # what is there cannot be changed

    def read(self) -> Records:
        import ray  # noqa: PLC0415  (an extra)

        records: Records = ray.get(_REFERENCES[self.number])
        return records


# In a worker: where its blocks are in the object store.
_REFERENCES: dict[int, Any] = {}


class _Worker:
    """The actor: a shard in a process of its own."""

    def __init__(self, placed: bytes, keep: bool) -> None:
        self._shard = Shard(pickle.loads(placed), keep=keep)
        self._sealed: tuple[bytes, tuple[bytes, ...]] | None = None

    def ready(self) -> None:
        """Nothing: that it returns says that the worker is there."""

    def prepare(self, stored: dict[int, Any], test: Test, key: bytes) -> list[bytes] | _Failed:
        _REFERENCES.update(stored)
        try:
            self._sealed = key, tuple(self._shard.prepare(test, key))
        except (Exception, SystemExit) as problem:
            return _failed(problem)
        return list(self._sealed[1])

    def counts(self, stored: dict[int, Any], question: Question, key: bytes, digests: tuple[bytes, ...]) -> Counts | _Failed:
        _REFERENCES.update(stored)
        try:
            if self._sealed is None:  # started anew: the records may have changed since
                self._sealed = key, tuple(self._shard.prepare(_anything, key))
            if self._sealed != (key, digests):
                self._sealed = None
                self._shard.forget()  # they may be brought back
                raise UnreachableError("a restarted worker has other records than the run began with; restore those")
            return self._shard.counts(question)
        except (Exception, SystemExit) as problem:
            return _failed(problem)


def _failed(problem: BaseException) -> _Failed:
    """The error as it may leave the process that holds the records.

    Ours do not say what is in them once they are pickled. What others say may hold anything, so of those only the kind is told,
    and the lines of code that raised it.
    """
    if isinstance(problem, ArgumentError | UnreachableError):
        return _Failed(problem.with_traceback(None))
    told = WorkerError(
        f"{type(problem).__name__} in a worker. What it says is not shown here, because it may contain a person's record: ask the "
        f"same population in one process, where the records are"
    )
    told.add_note("In a worker:\n" + "".join(traceback.format_tb(problem.__traceback__)))
    return _Failed(told)


def _anything(X: Any, y: Any) -> None:
    """A test that all records pass."""


def _shares(placed: Sequence[Placed], count: int) -> list[list[Placed]]:
    """The blocks in this many parts, about equal in users: the largest go first, each to the worker that has least."""
    shares: list[list[Placed]] = [[] for _ in range(count)]
    users = [0] * count
    for block in sorted(placed, key=lambda placed: -placed.users):
        least = users.index(min(users))
        shares[least].append(block)
        users[least] += block.users
    return [sorted(share, key=lambda placed: placed.number) for share in shares]


def _lost(problem: Exception) -> UnreachableError:
    """The worker may have been lost because of what it read."""
    # Ray's first line says what became of the worker; the last may be what was raised in it, or what it printed.
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    reason = lines[0].partition(": ")[0] if lines else ""
    return UnreachableError(
        f"a worker is lost, and did not come back ({type(problem).__name__}: {reason}); its node's logs may say why",
        whatever_the_records=False,
    )
