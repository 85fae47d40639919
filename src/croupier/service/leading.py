"""Of several processes of a role on one database, one leads: it does what needs to be done once.

It is economy and not safety: every errand is a transaction of its own that does the same if it is done twice. So a leader that has
lost its lock unawares, or two of them for a moment, cost time and nothing else.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from ..files import lock
from .store import Database

# The name of the lock: advisory locks of PostgreSQL are numbers, and of one database.
_LOCK = int.from_bytes(b"croupier") >> 1


class Leadership:
    """A lock that at most one process has, until it is closed or the process is gone, killed even.

    In PostgreSQL it is an advisory lock of a connection of its own; beside a SQLite file it is a lock on another file.

    Parameters
    ----------
    store : Database
        The role's database.
    """

    def __init__(self, store: Database) -> None:
        self._engine = store.engine
        self._connection: Connection | None = None
        self._file: IO[str] | None = None

    def held(self) -> bool:
        """Return whether this process leads; if nobody does, it does from now on.

        Returns
        -------
        bool
            False where another process leads, or the database is out of reach.
        """
        if self._engine.dialect.name == "sqlite":
            return self._held_by_file()
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                return True
            with ExitStack() as unless_held:
                connection = unless_held.enter_context(self._engine.connect())
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.detach()  # not one of the pool's: when it is closed, the lock is gone
                if connection.execute(text("SELECT pg_try_advisory_lock(:name)"), {"name": _LOCK}).scalar():
                    self._connection = connection
                    unless_held.pop_all()
        except SQLAlchemyError:
            self.close()
        return self._connection is not None

    def _held_by_file(self) -> bool:
        if self._file is not None:
            return True
        name = self._engine.url.database
        if not name or name == ":memory:":
            return True
        file = Path(f"{name}.leader").open("a")  # noqa: SIM115  (it stays open)
        try:
            lock(file.fileno())
        except OSError:
            file.close()
            return False
        self._file = file
        return True

    def close(self) -> None:
        """Let another process lead."""
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.close()
            self._connection = None
        if self._file is not None:
            self._file.close()
            self._file = None
