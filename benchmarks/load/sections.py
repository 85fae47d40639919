"""Durable reports per second, kill -9 under load, and ciphertexts per second."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from rich.progress import track

import croupier as cr
from croupier.protocol import SecureRandom, VectorSum
from croupier.service.analyzer import population as analyzer_tables
from croupier.service.analyzer.population import RemotePopulation
from croupier.service.wire.transports import MaskedSum, Messages, SealedBatch

from .sending import delivering
from .sizes import DIM, Sizes
from .world import World, world


def speed(sizes: Sizes) -> list[dict[str, Any]]:
    """One shuffler process, reports that were made before, connections that stay open."""
    rows = []
    for connections, reports, tls in track(sizes.loads, description="reports"):
        with world(reports, tls) as there:
            size = len(there.bodies[0])
            before = there.shuffler.cpu_seconds()
            with delivering(there, connections) as (_, _, ended):
                delivery = ended()
            spent = there.shuffler.cpu_seconds() - before
            complete = there.trained.wait(60)
        at = np.sort(delivery.acknowledged)
        tenth = max(1, reports // 10)
        rows.append(
            {
                "connections": connections,
                "tls": tls,
                "reports": reports,
                "bytes": size,
                "a_second": reports / at[-1],
                "first_tenth_a_second": tenth / at[tenth - 1],
                "last_tenth_a_second": tenth / (at[-1] - at[-1 - tenth]),
                "wait_median": float(np.median(delivery.waits)),
                "wait_99": float(np.quantile(delivery.waits, 0.99)),
                "shuffler_cpu_a_report": spent / reports,
                "sender_cpu_a_report": delivery.cpu_seconds / reports,
                "refusals": delivery.refusals,
                "disk_commits_a_second": commits(size),
                "made_a_second": reports / there.made_in,
                "batch_arrived": complete,
            }
        )
    return rows


def commits(size: int, seconds: float = 1.0) -> float:
    """The disk's own limit: transactions per second that insert one such body, bare sqlite3, WAL, synchronous=FULL."""
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as folder:
        connection = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE reports (name TEXT PRIMARY KEY, body BLOB)")
        begun, written = time.perf_counter(), 0
        while time.perf_counter() < begun + seconds:
            connection.execute("INSERT INTO reports VALUES (?, ?)", (str(written), os.urandom(size)))
            written += 1
        rate = written / (time.perf_counter() - begun)
        connection.close()
    return rate


def kills(sizes: Sizes, connections: int = 16, seed: int = 0) -> dict[str, Any]:
    """The same, with a shuffler that is killed at random moments and started again where it was."""
    chance = random.Random(seed)
    lives, lost, stored_unsaid = [], 0, 0
    with world(sizes.killed_reports) as there, delivering(there, connections) as (flags, process, ended):
        for _ in track(range(sizes.kills), description="kills"):
            before = sum(flags)
            while sum(flags) == before and process.is_alive():  # it takes reports again
                time.sleep(0.005)
            time.sleep(chance.uniform(0.05, 0.9))
            if sum(flags) == len(flags):
                break
            there.shuffler.kill()
            time.sleep(0.1)  # answers that were on their way
            said = [number for number, flag in enumerate(flags) if flag]
            kept = stored(there)
            lost += sum(kept.get(there.clients[number]) != there.bodies[number] for number in said)
            stored_unsaid += len(kept) - len(said)
            lives.append(len(said) - before)
            there.shuffler.start()
        delivery = ended()
        complete = there.trained.wait(120)
        counts = analyzer_counts(there.population)
    return {
        "kills": len(lives),
        "seed": seed,
        "connections": connections,
        "reports": sizes.killed_reports,
        "acknowledged": sum(moment > 0 for moment in delivery.acknowledged),
        "acknowledged_between_kills": lives,
        "lost": lost,
        "stored_but_not_said": stored_unsaid,
        "broken_connections": delivery.broken,
        "refusals": delivery.refusals,
        "batch_arrived": complete,
        "sum_is_exact": complete and counts == (there.ones.tolist(), sizes.killed_reports),
    }


def stored(there: World) -> dict[str, bytes]:
    """What a copy of the dead shuffler's database holds: client and body."""
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as folder:
        for file in there.shuffler.folder.glob("shuffler.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        connection = sqlite3.connect(Path(folder) / "shuffler.db")
        found = dict(connection.execute("SELECT client, body FROM reports").fetchall())
        connection.close()
    return found


def analyzer_counts(population: RemotePopulation) -> tuple[list[int], int] | None:
    """The counts and users that the analyzer has stored, None before the batch arrived."""
    with population.store.begin() as connection:
        found = connection.execute(analyzer_tables.asked.select()).one()
    return None if found.ones is None else (json.loads(found.ones), found.users)


def ciphertexts(sizes: Sizes) -> dict[str, Any]:
    """One process: sealing and opening, medians of five."""
    key, digest, count = X25519PrivateKey.generate(), bytes(32), sizes.envelopes
    plan = cr.plan_sum(epsilon=1.0, delta=1e-6, users=count, dim=DIM, rotation=None)
    one_user = VectorSum(plan).randomize(np.zeros(DIM), SecureRandom())
    bits = replace(one_user, bits=np.zeros((1, count), dtype=np.uint8))
    sealed = Messages().seal(bits, plan, digest, key.public_key())
    batch = SealedBatch("messages", digest, 1, count, sealed.sealed)
    seeds = [MaskedSum().seal(one_user, plan, digest, key.public_key()) for _ in range(count // 10)]
    masked = SealedBatch("masked-sum", digest, DIM, len(seeds), np.stack([report.sealed for report in seeds]))
    some = replace(one_user, bits=bits.bits[:, : count // 4])
    work: dict[str, tuple[int, Callable[[], Any]]] = {
        "sealed": (count // 4, lambda: Messages().seal(some, plan, digest, key.public_key())),
        "opened": (count, lambda: Messages().check(batch, plan, key)),
        "seeds_opened": (len(seeds), lambda: MaskedSum().check(masked, plan, key)),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in track(range(5), description="ciphertexts"):
        for name, (_, do) in work.items():
            begun = time.process_time()
            do()
            times[name].append(time.process_time() - begun)
    rates = {f"{name}_a_second": many / statistics.median(times[name]) for name, (many, _) in work.items()}
    return {"envelopes": count, "dim": DIM, **rates}
