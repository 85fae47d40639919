"""A PostgreSQL server of our own, where one is installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Postgres:
    """A running server: its process, and the folder of its socket."""

    process: subprocess.Popen[bytes]
    folder: Path

    def database(self, name: str) -> str:
        """A new database's URL."""
        with self._connected("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql+psycopg://croupier@/{name}?host={self.folder}"

    def copy(self, known: str, name: str) -> str:
        """The URL of a new database, a copy of one that nobody is connected to."""
        with self._connected("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{known}"')
        return f"postgresql+psycopg://croupier@/{name}?host={self.folder}"

    def bytes_of(self, name: str) -> int:
        """What a database takes on disk."""
        with self._connected("postgres") as connection:
            return int(connection.execute("SELECT pg_database_size(%s)", (name,)).fetchone()[0])

    def _connected(self, name: str) -> Any:
        import psycopg  # noqa: PLC0415  (an extra)

        return psycopg.connect(host=os.fspath(self.folder), user="croupier", dbname=name, autocommit=True)

    def wait(self) -> None:
        """Until it takes connections."""
        import psycopg  # noqa: PLC0415

        deadline = time.monotonic() + 60
        while True:
            try:
                self._connected("postgres").close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def found() -> bool:
    """Whether the server and its driver are installed."""
    try:
        import psycopg  # noqa: F401, PLC0415
    except ImportError:
        return False
    return all(shutil.which(program) for program in ("initdb", "postgres"))


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server in a folder that is deleted afterwards. It waits for its disk at every commit, as it does by default."""
    folder = Path(tempfile.mkdtemp(prefix="croupier-pg-"))
    account: dict[str, Any] = {}
    if os.geteuid() == 0:  # it does not run as root
        account = {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(folder, "postgres", "postgres")
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **account}
    data = folder / "data"
    subprocess.run(["initdb", "-D", data, "-U", "croupier", "-A", "trust", "-E", "UTF8", "--locale=C"], check=True, **quiet)
    command = ["postgres", "-D", data, "-c", "listen_addresses=", "-c", "max_connections=200", "-k", folder]
    server = Postgres(subprocess.Popen(command, **quiet), folder)
    try:
        server.wait()
        yield server
    finally:
        server.process.send_signal(signal.SIGINT)
        server.process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
