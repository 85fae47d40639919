"""What survives a crash: small databases, one per role, SQLite by default and PostgreSQL by URL.

Every change is one transaction, on disk before anything is said about it. A database is of one task. Each role's tables stand
beside the SQL that uses them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    URL,
    Column,
    Connection,
    Engine,
    Insert,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Update,
    bindparam,
    create_engine,
    event,
    func,
    insert,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.schema import CreateSchema
from sqlalchemy.sql.expression import ClauseElement

from ..wire.documents import Document, WireError

log = logging.getLogger("croupier")
Result = TypeVar("Result")
VERSION = 1
# Connections that are kept open; as many again for a while.
_CONNECTIONS = 10
# Turns that a process has, or waits for, at a time: each keeps a connection from the work that it is for.
_WAITING = threading.BoundedSemaphore(_CONNECTIONS // 2)
# Seconds for which a look whether it can be written is good, and the least bytes that a healthy disk has left.
_CHECKED, _LEAST_FREE = 5.0, 64 << 20
# Seconds after which a PostgreSQL that cannot be connected to is out of reach.
_AWAY = 10
# Seconds between two tries to use a database, at first and at most.
_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
# The number of PostgreSQL's lock for whoever makes or migrates tables.
_MAKING = int.from_bytes(b"tables")
# Milliseconds for which a transaction waits for another one.
_BUSY = 10_000
# Bytes up to which new rows are one array: it travels as text of twice the length, of which PostgreSQL takes a gigabyte at most.
_MOST_IN_ARRAYS = 1 << 21


def role_tables() -> MetaData:
    """The tables that every role's database has: its version, the task, and the task's end. A role adds its own."""
    tables = MetaData()
    Table("schema_version", tables, Column("version", Integer, primary_key=True))
    heard = Column("heard", Integer, nullable=False)  # whether the other role knows of it
    Table("ended", tables, Column("task", String, primary_key=True), Column("document", LargeBinary, nullable=False), heard)
    Table("served", tables, Column("task", String, primary_key=True), Column("document", LargeBinary, nullable=False))
    return tables


class Database:
    """A database with one role's tables, made when it is first opened."""

    def __init__(self, url: str, tables: MetaData, *, within: Database | None = None, schema: str | None = None) -> None:
        """`within` another database, its connections are shared, and the tables are in a schema of their own."""
        self._shared = within is not None
        if within is not None:
            self.engine: Engine = within.engine.execution_options(schema_translate_map={None: schema})
        else:
            away = {"connect_timeout": _AWAY} if make_url(url).get_backend_name() == "postgresql" else {}
            self.engine = create_engine(url, pool_size=_CONNECTIONS, connect_args=away)
            _make_private(self.engine.url)
            if self.engine.dialect.name == "sqlite":
                event.listen(self.engine, "connect", _durable)
                event.listen(self.engine, "begin", _begin)
        self._turns = int.from_bytes(hashlib.sha256(f"turns {schema}".encode()).digest()[:8], signed=True)
        self._reading = self.engine.execution_options(reads=True)
        self._served, self._ended, self._version = (tables.tables[name] for name in ("served", "ended", "schema_version"))
        self._checked = -math.inf, ""  # when it was last tried to write, and what came of it
        self.unwiped = False  # something that was deleted may still be in the log
        try:
            with self.making() as connection:
                if schema is not None:
                    connection.execute(CreateSchema(schema, if_not_exists=True))
                tables.create_all(connection)
                _require_version(connection, tables)
            self.wipe()  # what a process that was killed had deleted
        except BaseException:
            self.close()
            raise

    @contextmanager
    def making(self) -> Iterator[Connection]:
        """A transaction that makes tables: two processes that find none would both make them."""
        with self.engine.begin() as connection:
            if self.engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_MAKING)))
            yield connection

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that may write."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait until no other process is in its turn. Each writes more then, in fewer transactions that wait for each other.

        Nothing depends on it but speed: where many tasks wait for theirs, a further one does without, so that connections are left
        for the work itself. SQLite's transactions take turns by themselves.
        """
        if self.engine.dialect.name != "postgresql" or not _WAITING.acquire(blocking=False):
            yield
            return
        try:
            with self.look() as connection:
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (self._turns,))
                yield
        finally:
            _WAITING.release()

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """A transaction that reads, and waits for nobody who writes."""
        with self._reading.begin() as connection:
            yield connection

    def insist(self, do: Callable[[], Result], stopped: Callable[[], bool]) -> Result:
        """What `do` returns, tried again for as long as the database cannot be used: `do` must change nothing if done twice.

        The cause is logged once. `KeyboardInterrupt` where it is to stop meanwhile.
        """
        pause, known = _PAUSE, ""
        while True:
            try:
                return do()
            except (OperationalError, InterfaceError) as problem:
                if (cause := cause_of(problem)) != known:
                    log.error("the database cannot be used, and is tried again: %s", cause)
                known = cause
            if stopped():
                raise KeyboardInterrupt
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def task(self) -> Document | None:
        """The task that this database is of, as it was signed."""
        with self.look() as connection:
            stored = connection.execute(select(self._served.c.document)).scalar()
        return None if stored is None else Document.from_bytes(stored)

    def keep_task(self, connection: Connection, name: str, document: Document) -> bool:
        """Whether it is new here; another one than that which was kept is refused."""
        known = connection.execute(select(self._served.c.task)).scalar()
        if known is None:
            connection.execute(insert(self._served).values(task=name, document=document.to_bytes()))
        elif known != name:
            raise WireError(f"task {name[:8]}..., where this folder is of task {known[:8]}...: a new task needs a new folder")
        return known is None

    def end(self) -> Document | None:
        """The task's end, as the analyzer signed it; None while it goes on."""
        with self.look() as connection:
            stored = connection.execute(select(self._ended.c.document)).scalar()
        return None if stored is None else Document.from_bytes(stored)

    def keep_end(self, document: Document) -> None:
        """Write the task's end down, once."""
        with self.begin() as connection:
            task = connection.execute(select(self._served.c.task)).scalar_one()
            if connection.execute(select(self._ended.c.task)).scalar() is None:
                connection.execute(insert(self._ended).values(task=task, document=document.to_bytes(), heard=0))

    def end_heard(self, *, now: bool = False) -> bool:
        """Whether the other role knows of the end; `now` writes down that it does."""
        with self.begin() if now else self.look() as connection:
            if now:
                connection.execute(update(self._ended).values(heard=1))
            return bool(connection.execute(select(self._ended.c.heard)).scalar())

    def trouble(self) -> str:
        """Why nothing can be written now; empty if it can. It is tried, at most every few seconds."""
        when, found = self._checked
        if (now := time.monotonic()) < when + _CHECKED:
            return found
        found = ""
        file = self.engine.url.database
        try:
            if self.engine.dialect.name == "sqlite" and file and shutil.disk_usage(os.path.dirname(file) or ".").free < _LEAST_FREE:
                found = f"less than {_LEAST_FREE >> 20} MiB left on the disk"
            try:
                self._rewrite_version()
            except DBAPIError as problem:
                if not problem.connection_invalidated:
                    raise
                self._rewrite_version()  # the connection was of a server that has been restarted since: by a new one
        except (SQLAlchemyError, OSError) as problem:
            found = f"the database cannot be written to ({type(problem).__name__})"
        self._checked = now, found  # as it was when the look began: later it may have changed
        return found

    def _rewrite_version(self) -> None:
        with self.begin() as connection:
            connection.execute(update(self._version).values(version=self._version.c.version))

    def wipe(self) -> None:
        """Take what was deleted out of SQLite's log too, which would keep it for as long as nothing is written over it.

        Somebody who reads the database at the time, a backup say, makes that impossible: `unwiped` then says to try again.
        """
        if self.engine.dialect.name == "sqlite":
            connection = self.engine.raw_connection()
            try:
                cursor = connection.cursor()
                cursor.execute("PRAGMA busy_timeout=100")
                self.unwiped = bool(cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
                cursor.execute(f"PRAGMA busy_timeout={_BUSY}")
            finally:
                connection.close()

    def close(self) -> None:
        if not self._shared:
            self.engine.dispose()


class Statement:
    """A statement that every report needs: made into SQL once, then run by the driver itself, in a tenth of SQLAlchemy's time.

    Values are the driver's: texts, numbers and bytes. A list of texts is one value: an array, and JSON where there are none.
    """

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._texts: dict[tuple[str, str | None], tuple[str, list[str] | None]] = {}  # the SQL, and its parameters by place

    def rows(self, connection: Connection, **values: Any) -> list[Any]:
        """All that it finds."""
        with self._run(connection, values) as cursor:
            return list(cursor.fetchall())

    def first(self, connection: Connection, **values: Any) -> Any:
        """The first row that it finds, if there is one."""
        with self._run(connection, values) as cursor:
            return cursor.fetchone()

    def run(self, connection: Connection, **values: Any) -> None:
        """Do it."""
        with self._run(connection, values):
            pass

    @contextmanager
    def _run(self, connection: Connection, values: dict[str, Any]) -> Iterator[Any]:
        text, places = self.text(connection)
        with _by_driver(connection) as cursor:
            cursor.execute(text, values if places is None else [_listed(values[name]) for name in places])
            yield cursor

    def text(self, connection: Connection) -> tuple[str, list[str] | None]:
        """Its SQL, and the names of parameters by place where the driver has no names."""
        schemas = connection.get_execution_options().get("schema_translate_map")
        key = connection.dialect.name, None if schemas is None else schemas[None]
        if key not in self._texts:
            about: dict[str, Any] = {"schema_translate_map": schemas, "render_schema_translate": schemas is not None}
            made: Any = self._statement.compile(dialect=connection.dialect, **about)
            self._texts[key] = str(made), made.positiontup
        return self._texts[key]


class Additions:
    """New rows of several tables, by columns, and a change that goes with them: one statement where the database has arrays, and
    these are short."""

    def __init__(self, tables: Sequence[Table], then: Update) -> None:
        self._each, self._then = {table.name: Statement(insert(table)) for table in tables}, Statement(then)
        self._all = Statement(then.add_cte(*[_from_arrays(table).cte(f"new_{table.name}") for table in tables]))

    def run(self, connection: Connection, rows: dict[str, dict[str, Sequence[Any]]], **values: Any) -> None:
        """Add the rows whose values are these, by table and column."""
        by_column = [column for columns in rows.values() for column in columns.values()]
        length = sum(len(value) for column in by_column for value in column if isinstance(value, bytes))
        if connection.dialect.name == "postgresql" and length <= _MOST_IN_ARRAYS:
            arrays = {f"{table}_{name}": column for table, columns in rows.items() for name, column in columns.items()}
            self._all.run(connection, **arrays, **values)
            return
        for table, columns in rows.items():
            text, places = self._each[table].text(connection)
            each: Any = zip(*[columns[name] for name in places or columns], strict=True)
            with _by_driver(connection) as cursor:
                cursor.executemany(text, each if places is not None else [dict(zip(columns, row, strict=True)) for row in each])
        self._then.run(connection, **values)


def _from_arrays(table: Table) -> Insert:
    arrays = [bindparam(f"{table.name}_{column.name}", type_=ARRAY(column.type)) for column in table.columns]
    return insert(table).from_select(list(table.columns), select(*[func.unnest(array) for array in arrays]))


def _listed(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


@contextmanager
def _by_driver(connection: Connection) -> Iterator[Any]:
    """A cursor of the driver's within a transaction. Its errors are SQLAlchemy's, as everywhere else."""
    driver, pooled = connection.dialect.loaded_dbapi, connection.connection
    cursor = pooled.cursor()
    try:
        yield cursor
    except driver.Error as problem:
        if connection.dialect.is_disconnect(problem, pooled.driver_connection, cursor):
            connection.exec_driver_sql("SELECT 1")  # which fails, too, so that no connection of the time before is used again
        raise DBAPIError.instance(None, None, problem, driver.Error, dialect=connection.dialect) from problem
    finally:
        cursor.close()


def cause_of(problem: SQLAlchemyError) -> str:
    """What went wrong, for a log: the database's own words where it could not be used; they hold nothing that was to be written."""
    if isinstance(problem, OperationalError) and problem.orig is not None:
        return f"{type(problem.orig).__name__}: {(str(problem.orig).splitlines() or [''])[0][:200]}"
    return type(problem).__name__


def hash_of(token: str) -> str:
    """What is kept of a token, or of an invitation."""
    return hashlib.sha256(token.encode()).hexdigest()


def _make_private(url: URL) -> None:
    """A database in a file is for its owner alone: it holds keys of open rounds, or who took part. So is what lies beside it."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return
    with suppress(OSError):  # a folder that is not there is said when the database is opened
        # A file that is here is not opened: to close it would drop the locks of this process's other connections to it.
        if not os.path.exists(url.database):
            with suppress(FileExistsError):
                os.close(os.open(url.database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        for file in (url.database, f"{url.database}-wal", f"{url.database}-shm"):
            if os.path.exists(file):
                os.chmod(file, 0o600)


def _begin(connection: Connection) -> None:
    """Who may write takes turns from the beginning; who reads does not."""
    begin = "BEGIN" if connection.get_execution_options().get("reads") else "BEGIN IMMEDIATE"
    with _by_driver(connection) as cursor:
        cursor.execute(begin)


def _durable(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # transactions are begun by us
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY}", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _require_version(connection: Connection, tables: MetaData) -> None:
    """Say of which version a new database is; refuse one of another version."""
    version = tables.tables["schema_version"]
    stored_version = connection.execute(select(version.c.version)).scalar()
    if stored_version is None:
        connection.execute(insert(version).values(version=VERSION))
    elif stored_version != VERSION:
        raise RuntimeError(f"a database of version {stored_version}; this is version {VERSION}: use the release that made it")
