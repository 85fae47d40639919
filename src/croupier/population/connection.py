"""The connection to Ray: to a running cluster, or to a local one that is started here and ended here."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..validation import ArgumentError, Found, how_to_install
from .blocks import Placed
from .records import Records

# Seconds to wait for what Ray does a little later.
_PATIENCE = 10.0
# Of this process, as Ray reads it once.
TOKEN = secrets.token_hex(32)
# Longest name of a temporary folder that leaves room for Ray's sockets.
_LONGEST = 24
# Room in a local object store beside the records that are put there.
_STORE_BYTES = 128 << 20


def job_of(ray: Any) -> str | None:
    """What this process is to Ray; None where it is not connected."""
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
            raise ArgumentError("address", address, "left out, as this process is connected to Ray already", "Leave it out.")
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
        raise ArgumentError("address", address, allowed, "Start one: ray start --head; or mend the address.") from None


def _bytes(records: Records) -> int:
    """About what the rows of these users take."""
    sparse = hasattr(records.X, "indptr")
    every = sum(part.nbytes for part in (records.X.data, records.X.indices, records.X.indptr)) if sparse else records.X.nbytes
    rows = records.X.shape[0] if records.index is None else int(records.index.counts.sum())
    return int(every * rows / max(1, records.X.shape[0])) + 8 * rows


def _kill(ray: Any, job: str | None, workers: list[Any], stored: dict[int, Any]) -> None:
    """End the workers in a Ray that somebody else began, and free their records."""
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
