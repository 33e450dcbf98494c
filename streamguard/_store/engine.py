"""An engine for each kind of database that streamguard writes to: SQLite files shared by processes, and PostgreSQL."""

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Float,
    MetaData,
    Table,
    cast,
    create_engine,
    event,
    func,
    literal,
    make_url,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from .._core.clock import wall
from ..errors import UsageError

READING = {"streamguard_reading": True}
"""Execution options of a connection that only reads: it does not take the write lock."""

_CREATE_LOCK = 0x5347_5552  # an arbitrary number: processes that create the tables at once wait for each other


def create_all(connection: Connection, metadata: MetaData) -> None:
    """Create the tables of *metadata* that do not exist yet."""
    if connection.dialect.name == "postgresql":
        connection.execute(func.pg_advisory_xact_lock(_CREATE_LOCK).select())
    metadata.create_all(connection)


def now_in(connection: Connection) -> ColumnElement[float]:
    """Return the current time as an SQL expression, of the server's clock if there is a server: clocks of hosts differ."""
    if connection.dialect.name == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()), Float)
    return literal(wall(), Float)


def put(connection: Connection, table: Table, key: dict[str, Any], **values: Any) -> None:
    """Insert the row with the primary *key*, or update its *values* if it exists, in one atomic statement."""
    make = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    row = make(table).values(**key, **values)
    connection.execute(row.on_conflict_do_update(index_elements=[*table.primary_key], set_=values))


def make_engine(url: str | None, *, timeout: float, option: str = "records=") -> Engine:
    """Return an engine for the database at *url* (None: in memory); it does not connect yet.

    timeout: seconds that a connect, a wait for a lock, or a statement may take.
    option:  the name of the argument that has the URL, for messages.

    Raises UsageError for an invalid URL, another kind of database, and a driver that is not installed.
    """
    parsed = _url_of(url, option)
    backend = parsed.get_backend_name()
    try:
        if backend == "postgresql":
            return create_engine(parsed, pool_timeout=timeout, pool_pre_ping=True, connect_args=_postgresql_limits(timeout))
        if backend == "sqlite":
            return _sqlite_engine(parsed, timeout)
    except ImportError as exc:
        raise UsageError(f"{option} needs the package {exc.name} for this URL: pip install it") from exc
    raise UsageError(f"{option} takes an sqlite or a postgresql URL, not {backend}")


def _url_of(given: str | None, option: str) -> URL:
    try:
        url = make_url("sqlite://" if given is None else given)
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError, ValueError):
        # Without its cause, whose text may quote the URL with its password.
        raise UsageError(f"{option} takes a URL such as sqlite:///records.db or postgresql://user@host/name") from None
    except ImportError as exc:
        raise UsageError(f"{option} needs the package {exc.name} for this URL: pip install it") from exc
    return url


def _postgresql_limits(timeout: float) -> dict[str, Any]:
    milliseconds = max(1, round(timeout * 1000))
    return {
        "connect_timeout": max(2, round(timeout)),
        "tcp_user_timeout": milliseconds,
        "options": f"-c lock_timeout={milliseconds} -c statement_timeout={milliseconds}",
    }


def _sqlite_engine(url: URL, timeout: float) -> Engine:
    named = url.database is not None and (url.database.startswith("file:") or url.database == ":memory:")
    if url.database and not named:
        file = _File(Path(url.database), timeout)
        engine = create_engine(url, creator=file.connect, poolclass=QueuePool, pool_timeout=timeout)
        event.listen(engine, "checkout", file.check)
    else:
        # One connection for all threads: the database lives in it.
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_timeout=timeout,
            connect_args={"check_same_thread": False, "timeout": timeout},
        )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


_DELETED = (0, 0)
"""The identity of no file."""


class _File:
    """An SQLite file that is created once.

    SQLite continues to write into a deleted file, and the next connection creates an empty one in its place. So a file that
    was deleted is an error; one that another process has put in its place is used.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._identity: tuple[int, int] | None = None

    def connect(self) -> sqlite3.Connection:
        with self._lock:
            mode = "rwc" if self._identity is None else "rw"
            uri = f"file:{quote(str(self._path))}?mode={mode}"
            connection = sqlite3.connect(uri, uri=True, timeout=self._timeout, check_same_thread=False)
            self._identity = self._now() or _DELETED
            return connection

    def check(self, *_event: object) -> None:
        """Refuse the pooled connections to a file that was deleted or replaced."""
        if self._now() != self._identity:
            raise InvalidatePoolError("the database file was deleted or replaced")

    def _now(self) -> tuple[int, int] | None:
        try:
            stat = os.stat(self._path)
        except OSError:
            return None
        return stat.st_dev, stat.st_ino


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver does not begin transactions by itself
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
    finally:
        cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that first reads and then writes fails at once, whatever the timeout, if another one wrote in between.
    reading = connection.get_execution_options().get("streamguard_reading")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
