"""Journals of each kind; the settings of a test are reset."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import streamguard
from streamguard._core import NOT_GIVEN
from streamguard.journal import JournalEntry, settle
from streamguard.journal.lifecycle import open_store

from ..dispatch.postgres import postgresql, postgresql_server  # noqa: F401 - fixtures

Read = Callable[[], list[JournalEntry]]


@pytest.fixture(autouse=True)
def _default_settings(_clean_environment: None) -> Iterator[None]:
    """Reset the settings of the test, after its entries are written."""
    yield
    settle()
    streamguard.configure(journal=NOT_GIVEN, recent=NOT_GIVEN)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of a file that does not exist yet."""
    return f"sqlite:///{tmp_path}/journal.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """The URL of an empty database, of each kind."""
    if request.param == "sqlite":
        return sqlite_url
    found: str = request.getfixturevalue("postgresql")
    return found


@pytest.fixture
def kept(url: str) -> Read:
    """Keep a journal there; call it for the entries so far."""
    streamguard.configure(journal=url)
    return reader(url)


def reader(url: str) -> Read:
    """Return a function that settles and reads the journal at *url*."""

    def read() -> list[JournalEntry]:
        assert settle(10)
        store = open_store(url)
        try:
            return list(store.entries())
        finally:
            store.close()

    return read


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the write lock of an SQLite file."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.rollback()
