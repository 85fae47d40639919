"""What survives a crash: two small databases, one a role, SQLite by default and PostgreSQL by URL.

Every change is one transaction, on disk before anything is said about it. The shuffler's knows who took part and, until a batch is
made, their sealed reports; the analyzer's knows rounds and their counts, and nobody.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
)

VERSION = 1
SHUFFLER, ANALYZER = MetaData(), MetaData()

# The shuffler's.
clients = Table("clients", SHUFFLER, Column("id", String, primary_key=True), Column("token_hash", String, unique=True))
rounds = Table(
    "rounds",
    SHUFFLER,
    Column("id", String, primary_key=True),
    Column("number", Integer, nullable=False, unique=True),
    Column("document", LargeBinary, nullable=False),
    Column("opened", Float, nullable=False),  # seconds since 1970
    Column("batch", LargeBinary),  # made, and not yet known to have arrived
    Column("state", String, nullable=False),  # open, made, forwarded
)
reports = Table(
    "reports",
    SHUFFLER,
    Column("round", ForeignKey("rounds.id"), primary_key=True),
    Column("client", ForeignKey("clients.id"), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
taken_part = Table(
    "taken_part",
    SHUFFLER,
    Column("slot", String, primary_key=True),
    Column("client", ForeignKey("clients.id"), primary_key=True),
)

# The analyzer's.
asked = Table(
    "asked",
    ANALYZER,
    Column("id", String, primary_key=True),
    Column("number", Integer, nullable=False, unique=True),
    Column("document", LargeBinary, nullable=False),
    Column("key", LargeBinary),  # dropped with the answer
    Column("ones", String),
    Column("users", Integer),
)

for metadata in (SHUFFLER, ANALYZER):
    Table("schema_version", metadata, Column("version", Integer, primary_key=True))


class Store:
    """A database with one role's tables, made or brought up to date when it is opened."""

    def __init__(self, url: str, tables: MetaData) -> None:
        self.engine = create_engine(url)
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _durable)
            event.listen(self.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        try:
            with self.engine.begin() as connection:
                tables.create_all(connection)
                _migrate(connection, tables)
            self.wipe()  # what a process that was killed had deleted
        except BaseException:
            self.close()
            raise

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction."""
        with self.engine.begin() as connection:
            yield connection

    def wipe(self) -> None:
        """Take what was deleted out of SQLite's log too, which would keep it for as long as nothing is written over it."""
        if self.engine.dialect.name == "sqlite":
            connection = self.engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()

    def close(self) -> None:
        self.engine.dispose()


def enrol(store: Store, client: str) -> str:
    """A token for a client: it is told once, and only its hash is kept."""
    token = secrets.token_urlsafe(32)
    with store.begin() as connection:
        connection.execute(insert(clients).values(id=client, token_hash=hash_of(token)))
    return token


def new_name() -> str:
    """A name for a client that says nothing about who it is."""
    return secrets.token_hex(8)


def client_of(store: Store, token: str) -> str | None:
    """Whose token it is."""
    with store.begin() as connection:
        return connection.execute(select(clients.c.id).where(clients.c.token_hash == hash_of(token))).scalar()


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def count(connection: Connection, round_id: str) -> int:
    """How many reports a round has."""
    return int(connection.execute(select(func.count()).select_from(reports).where(reports.c.round == round_id)).scalar_one())


def _durable(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # transactions are begun by us, and take turns from their beginning
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _migrate(connection: Connection, tables: MetaData) -> None:
    """Bring an older database up to date; refuse a newer one."""
    version = tables.tables["schema_version"]
    found = connection.execute(select(version.c.version)).scalar()
    if found is None:
        connection.execute(insert(version).values(version=VERSION))
    elif found != VERSION:
        raise RuntimeError(
            f"a database of version {found}; this is version {VERSION}: use the release that made it, or a later one"
        )
