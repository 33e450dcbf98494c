"""The table of the journal, also beside the records of dispatches. Needs SQLAlchemy, and raises its errors."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    URL,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    Row,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.exc import SQLAlchemyError

from .._store.engine import READING, create_all, make_engine
from .._text import storable
from ..errors import UsageError
from .entries import JournalEntry
from .entry_json import entry_of, plain

KEPT = 100_000
"""How many entries a journal holds; older ones are deleted."""

_PRUNE_EVERY = 500
_PAGE = 1000
_metadata = MetaData()

journal = Table(
    "streamguard_journal",
    _metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, index=True),
    Column("parent", Text, index=True),
    Column("kind", Text, nullable=False),
    Column("name", Text),
    Column("outcome", Text, nullable=False),
    Column("stopped_in", Text),
    Column("error_type", Text),
    Column("started_at", Float, nullable=False, index=True),
    Column("seconds", Float, nullable=False),
    Column("moments", JSON, nullable=False),
    Column("numbers", JSON, nullable=False),
)

_JSON = ("moments", "numbers")
_rows = select(*(type_coerce(column, Text).label(column.name) if column.name in _JSON else column for column in journal.c))
"""All rows, with SQLite's JSON as text: one damaged row must not prevent the reading of the others."""


class JournalStore:
    """The journal in the database that *url* names: `sqlite:///journal.db` or `postgresql://user@host/name`.

    timeout: seconds that a connect, a wait for a lock, or a statement may take. Default 5.
    option:  the name of the argument that holds the URL, for messages.

    The first write creates the table. Raises UsageError for an invalid URL, a database in memory, or an SQLite `file:`
    URI.

    Limits
        An SQLite file must be on a local disk.
    """

    failures: tuple[type[Exception], ...] = (SQLAlchemyError, OSError)
    """The errors that the methods raise when the database cannot be used."""

    def __init__(self, url: str, *, timeout: float = 5.0, option: str = "journal=") -> None:
        engine = make_engine(url, timeout=timeout, option=option)
        self._file = _path_of(engine.url, option) if engine.dialect.name == "sqlite" else None
        if self._file is not None:
            url = engine.url.set(database=self._file).render_as_string()
        self.url = url
        """The URL with an absolute path: the program may change its working directory."""
        self._make: Callable[[], Engine] = lambda: make_engine(url, timeout=timeout, option=option)
        self._engine: Engine | None = None
        self.unreadable = 0
        """How many rows could not be read so far and were left out."""

    @property
    def in_file(self) -> bool:
        """Whether it is an SQLite file."""
        return self._file is not None

    @property
    def missing(self) -> bool:
        """Whether it is an SQLite file that does not exist."""
        return self._file is not None and not os.path.exists(self._file)

    def add(self, entries: Sequence[JournalEntry]) -> None:
        """Write *entries*, all or none."""
        with self._opened().begin() as connection:
            create_all(connection, _metadata)
            connection.execute(insert(journal), [_storable(plain(entry)) for entry in entries])
            _prune(connection, len(entries))

    def entries(self, *, since: float = 0.0, name: str | None = None) -> Iterator[JournalEntry]:
        """Yield the entries that started after *since* (wall clock), oldest first; with *name*, only those of that name."""
        wanted = _rows.where(journal.c.started_at >= since).order_by(journal.c.position)
        yield from self._read(wanted if name is None else wanted.where(journal.c.name == name))

    def find(self, id: str) -> list[JournalEntry]:
        """Return the entry with this id, or those of the turns of the execution with this id."""
        return list(self._read(_rows.where(or_(journal.c.id == id, journal.c.parent == id))))

    def close(self) -> None:
        """Close the connections. The store can be used again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _read(self, wanted: Any) -> Iterator[JournalEntry]:
        if self.missing:
            return  # a connection would create the file
        with self._opened().connect().execution_options(**READING) as connection:
            if inspect(connection).has_table(journal.name):
                for row in connection.execution_options(yield_per=_PAGE).execute(wanted):
                    try:
                        entry = _entry(row)
                    except ValueError:
                        self.unreadable += 1
                    else:
                        yield entry

    def _opened(self) -> Engine:
        engine = self._engine or self._make()
        self._engine = engine
        return engine


def _path_of(url: URL, option: str) -> str:
    """Return the absolute path of the SQLite file that *url* names."""
    if url.database in (None, "", ":memory:"):
        raise UsageError(f"{option} must be a database that outlives the process: sqlite:///journal.db, or PostgreSQL")
    assert url.database is not None
    if url.database.startswith("file:"):
        raise UsageError(f"{option} must be the path of an SQLite file (sqlite:///journal.db), not a file: URI")
    return os.path.abspath(url.database)


def _prune(connection: Connection, added: int) -> None:
    """Delete the oldest entries, each time that *added* entries pass a multiple of 500."""
    last = connection.execute(select(func.max(journal.c.position))).scalar() or 0
    if last // _PRUNE_EVERY != (last - added) // _PRUNE_EVERY:
        connection.execute(delete(journal).where(journal.c.position <= last - KEPT))


def _storable(values: dict[str, Any]) -> dict[str, Any]:
    """Return *values* without what a database refuses in text: NUL, and halves of surrogate pairs. JSON escapes both."""
    return {key: storable(value) if isinstance(value, str) else value for key, value in values.items()}


def _entry(row: Row[Any]) -> JournalEntry:
    values = dict(row._mapping)
    del values["position"]
    return entry_of({**values, **{name: json.loads(values[name]) for name in _JSON if isinstance(values[name], str)}})
