"""Reports by verified-sum: their size, the time to make and to verify one, and how many per second are taken durably."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from rich.progress import track

from croupier.service.prio3.prio3 import kernels
from croupier.service.wire.reports import SEAL_BYTES, VerifiedSizes, checkable, decided, leader_sum, shared_counts, total_counts
from croupier.service.wire.transports import open_envelope, seed_info

from .sending import delivering
from .sizes import Sizes
from .world import world

# Where the targets are set.
VERIFIED_DIM, VERIFIED_MOST = 100, 50
_HEADER = 48


def verified(sizes: Sizes) -> dict[str, Any]:
    """Proofs and their verification by one core, then a shuffler that takes such reports."""
    return {"dim": VERIFIED_DIM, "most": VERIFIED_MOST, "compiled": kernels() is not None} | _proofs(sizes) | _durable(sizes)


def _proofs(sizes: Sizes) -> dict[str, Any]:
    """Seconds of this process alone, medians of five, for one report."""
    count, digest, key, rng = sizes.verified_reports, bytes(32), os.urandom(32), np.random.default_rng(0)
    counts = rng.integers(0, VERIFIED_MOST + 1, (count, VERIFIED_DIM))
    lengths = VerifiedSizes(VERIFIED_DIM, VERIFIED_MOST)
    reports = [shared_counts(one, VERIFIED_MOST, digest) for one in counts]
    sealed = np.stack([np.frombuffer(bytes(SEAL_BYTES) + helper, np.uint8) for helper, _ in reports])
    rest = np.stack([shares for _, shares in reports])
    about = (VERIFIED_MOST, VERIFIED_DIM, digest)
    parts = checkable(sealed, rest, *about, key)
    accepted, share = decided(parts, *about, key, _inside)
    if not accepted.all() or total_counts(leader_sum(rest, *about), share).tolist() != counts.sum(axis=0).tolist():
        raise RuntimeError("the sum is not that of the reports")
    private = X25519PrivateKey.generate()
    envelope = os.urandom(lengths.sealed)
    work: dict[str, tuple[int, Callable[[], Any]]] = {
        "proving": (count // 10, lambda: [shared_counts(one, VERIFIED_MOST, digest) for one in counts[: count // 10]]),
        "verifying_shuffler": (count, lambda: checkable(sealed, rest, *about, key)),
        "verifying_analyzer": (count, lambda: decided(parts, *about, key, _inside)),
        "adding_up": (count, lambda: leader_sum(rest, *about)),
        "opening": (count, lambda: [open_envelope(envelope, private, seed_info("verified-sum", digest)) for _ in range(count)]),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in track(range(5), description="proofs"):
        for name, (many, do) in work.items():
            begun = time.process_time()
            do()
            times[name].append((time.process_time() - begun) / many)
    figures = {f"{name}_seconds": statistics.median(found) for name, found in times.items()}
    return {"bytes": _HEADER + lengths.sealed + lengths.open, "part_bytes": lengths.part, **figures}


def _inside(envelope: bytes) -> bytes:
    """What stands for a seal here holds: opening is measured by itself."""
    return envelope[SEAL_BYTES:]


def _durable(sizes: Sizes, connections: int = 16) -> dict[str, Any]:
    """One shuffler process, reports that were made before, until the analyzer has verified and counted them all."""
    count = sizes.verified_load
    with world(count, dim=VERIFIED_DIM, transport="verified-sum") as there:
        begun = time.perf_counter()
        with delivering(there, connections) as (_, _, ended):
            delivery = ended()
        complete = there.trained.wait(300)
        seconds = time.perf_counter() - begun
    taken = float(np.max(delivery.acknowledged))
    return {
        "load": count,
        "load_bytes": len(there.bodies[0]),
        "connections": connections,
        "durable_a_second": count / taken,
        "verified_a_second": count / seconds,
        "refusals": delivery.refusals,
        "complete": complete,
    }
