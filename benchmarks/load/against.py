"""This version against an earlier checkout, in one run: as many reports, as large a database and the same sender, in turns.

The machine's other work slows both alike, and what counts is the processor time that the shuffler's process takes. It is the real
app on a real socket and a SQLite file, without its errands: the round was opened before.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from rich.progress import track

import croupier as cr
from croupier.service.net.database import Database
from croupier.service.net.server import development_certificate, signing_key
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.shuffler.rounds import SHUFFLER
from croupier.service.wire.documents import ROUND, Document
from croupier.service.wire.queries import TrainingQuery
from croupier.service.wire.task import Task
from croupier.service.wire.transports import TRANSPORTS

from .clients import visit
from .sending import deliver
from .sizes import DIM, Sizes
from .verifying import VERIFIED_DIM
from .watching import cpu_seconds
from .world import enrolled, sealed_reports

# What the shuffler's process runs, whichever version it is of.
_SERVE = """
import sys
from pathlib import Path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from croupier.service.net.database import Database
from croupier.service.net import server
from croupier.service.net.server import Served, signing_key
from croupier.service.shuffler.app import shuffler_app
from croupier.service.shuffler.role import ShufflerRole
from croupier.service.shuffler.rounds import SHUFFLER
folder, key, secure, url, port, checked = Path(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3] == "tls", *sys.argv[4:]
if checked == "checked":  # the compiled proofs, as in a shuffler that has had a round
    import numpy as np
    from croupier.service.wire.reports import SEAL_BYTES, checkable, shared_counts
    helper, shares = shared_counts(np.zeros(100, dtype=np.int64), 50, bytes(32))
    sealed = np.frombuffer(bytes(SEAL_BYTES) + helper, np.uint8)
    checkable(np.stack([sealed] * 2000), np.stack([shares] * 2000), 50, 100, bytes(32), bytes(32))
role = ShufflerRole(Database(url, SHUFFLER), signing_key(folder), Ed25519PublicKey.from_public_bytes(key))
tls = (folder / "dev-certificate.pem", folder / "dev-key.pem") if secure else None
with Served(shuffler_app(role), tls=tls, port=int(port), shared=port != "0") as served:
    getattr(server, "settle", int)()  # not in earlier versions
    print(served.url, flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Prepared:
    """A round that was opened, in a folder that is copied for every turn, and its sealed reports."""

    folder: Path
    analyzer_key: str
    jobs: list[tuple[str, bytes]]
    checked: bool  # whether its reports are


def prepared(folder: Path, reports: int, transport: str, dim: int, url: str | None = None) -> Prepared:
    """A task of one round, and the reports of all its users; in the folder's database, unless another one is named."""
    problem = cr.Problem(loss=cr.losses.Logistic(), domain=cr.domains.Ball(dim=dim, radius=5.0))
    about = {"epsilon": 1.0, "delta": 1e-6, "rounds": 1, "method": "acsa", "interactivity": "full", "rotation": False}
    one_round = cr.schedule(problem, reports, **about)
    key, analyzer = signing_key(folder), Ed25519PrivateKey.generate()
    task = Task(transport, reports, TrainingQuery(problem), one_round, key.public_key())
    url = url or f"sqlite:///{folder / 'shuffler.db'}"
    tokens = enrolled(url, reports)[1]
    store = Database(url, SHUFFLER)
    role = ShufflerRole(store, key, analyzer.public_key())
    role.take_task(task.document(analyzer))
    opened = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    values = {"task": task.id, "id": os.urandom(16).hex(), "number": 1, "phase": 1, "theta": [0.0] * dim, "key": opened}
    document = Document.signed(ROUND, values, analyzer)
    role.open(document)
    store.close()
    development_certificate(folder)
    bodies = sealed_reports(document, task, analyzer, reports)[0]
    jobs = list(zip(tokens, bodies, strict=True))
    return Prepared(folder, analyzer.public_key().public_bytes_raw().hex(), jobs, TRANSPORTS[transport].checked)


_PREPARE = """
import pickle, sys
from pathlib import Path
from benchmarks.load.against import prepared
folder, reports, transport, dim, file = sys.argv[1:]
Path(file).write_bytes(pickle.dumps(prepared(Path(folder), int(reports), transport, int(dim))))
"""


def prepared_by(source: Path, folder: Path, reports: int, transport: str, dim: int) -> Prepared:
    """The same by the version in this checkout, whose tables may be others."""
    file = folder.with_suffix(".pickle")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source / "src"), str(Path(__file__).parents[2])])}
    command = [sys.executable, "-c", _PREPARE, *map(str, (folder, reports, transport, dim, file))]
    subprocess.run(command, env=environment, check=True)
    made: Prepared = pickle.loads(file.read_bytes())
    return made


@contextmanager
def serving(
    source: Path, there: Prepared, *, tls: bool, url: str | None = None, port: int = 0
) -> Iterator[tuple[str, Path | None, int]]:
    """A shuffler of the version in this checkout, on a copy: its address, whom to trust, and its process.

    With a port it shares that with others, and with a URL it is on that database.
    """
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as name:
        folder = Path(name) / "shuffler"
        shutil.copytree(there.folder, folder)
        about = [folder, there.analyzer_key, "tls" if tls else "plain", url or f"sqlite:///{folder / 'shuffler.db'}", port]
        command = [sys.executable, "-c", _SERVE, *map(str, about), "checked" if there.checked else ""]
        environment = os.environ | {"PYTHONPATH": str(source / "src")}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), folder / "dev-certificate.pem" if tls else None, process.pid
        finally:
            process.kill()
            process.wait()


def turn(source: Path, there: Prepared, connections: int, *, tls: bool, clients: bool) -> dict[str, float]:
    """Everything sent once, by another process; what the shuffler used."""
    with serving(source, there, tls=tls) as (url, ca, server):
        return sent(url, ca, there, connections, [server], clients=clients)


def sent(
    url: str, ca: Path | None, there: Prepared, connections: int, processes: list[int], *, clients: bool = False
) -> dict[str, float]:
    """Everything sent once to an address; processor time of these processes and of the sender for each, and how many a second."""
    context = multiprocessing.get_context("spawn")
    flags, out = context.RawArray("b", len(there.jobs)), context.Queue()
    sender = context.Process(target=visit if clients else deliver, args=(url, ca, there.jobs, connections, flags, out))
    before = sum(map(cpu_seconds, processes))
    sender.start()
    try:
        delivery = out.get(timeout=900)
    finally:
        sender.kill()
        sender.join()
    spent = sum(map(cpu_seconds, processes)) - before
    if delivery.refusals or not all(delivery.acknowledged):
        raise RuntimeError(f"not everything was taken: {delivery.refusals}")
    count = len(there.jobs)
    return {"cpu": spent / count, "a_second": count / max(delivery.acknowledged), "sender_cpu": delivery.cpu_seconds / count}


# What is compared: a name, transport, coordinates, connections, TLS, and whether these are clients with connections of their own.
LOADS = (
    ("masked reports, kept connections", "masked-sum", DIM, 64, False, False),
    ("verified reports, kept connections", "verified-sum", VERIFIED_DIM, 64, False, False),
    ("clients over TLS", "masked-sum", DIM, 16, True, True),
)


def against(sizes: Sizes) -> dict[str, Any]:
    """Both versions in turns; empty where no earlier checkout is named."""
    if sizes.before is None:
        return {"rows": []}
    sources = {"before": Path(sizes.before), "after": Path(__file__).parents[2]}
    rows = []
    with tempfile.TemporaryDirectory(prefix="croupier-load-") as name:
        worlds: dict[tuple[str, str, int, int], Prepared] = {}
        for what, transport, dim, connections, tls, clients in track(LOADS, description="against"):
            count = sizes.compared_clients if clients else sizes.compared
            for version, source in sources.items():
                about = (version, transport, dim, count)
                if about not in worlds:
                    worlds[about] = prepared_by(source, Path(name) / f"{len(worlds)}", count, transport, dim)
            turns: dict[str, list[dict[str, float]]] = {version: [] for version in sources}
            for _ in range(sizes.turns):
                for version, source in sources.items():
                    there = worlds[version, transport, dim, count]
                    turns[version].append(turn(source, there, connections, tls=tls, clients=clients))
            rows.append({"what": what, "count": count, "connections": connections, "tls": tls, **_compared(turns)})
    return {"turns": sizes.turns, "rows": rows}


def _compared(turns: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians of both, the ratios of each pair of turns, and the best rates."""
    cpu = {version: [turn["cpu"] for turn in found] for version, found in turns.items()}
    ratios = [before / after for before, after in zip(cpu["before"], cpu["after"], strict=True)]
    rates = {f"{version}_a_second": max(turn["a_second"] for turn in found) for version, found in turns.items()}
    medians = {f"{version}_cpu": statistics.median(found) for version, found in cpu.items()}
    least = {f"{version}_least_cpu": float(np.min(found)) for version, found in cpu.items()}
    return {**medians, **least, "ratio": statistics.median(ratios), "ratios": ratios, **rates}
