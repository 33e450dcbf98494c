"""The journal's table: what it keeps, finds and deletes."""

import contextlib
from pathlib import Path

import pytest
from sqlalchemy import text

import streamguard
from streamguard.dispatch._records.records import RecordStore
from streamguard.journal import settle
from streamguard.journal import store as store_module
from streamguard.journal.lifecycle import open_store

from .causes import failing_stream, good_stream, stream_entry, turn_that_hangs
from .conftest import Read, reader


def test_an_entry_is_found_by_its_id_and_a_turn_by_its_execution(kept: Read, url: str) -> None:
    """Nothing else is found."""
    bad = failing_stream()
    turn, execution = turn_that_hangs()
    kept()
    with contextlib.closing(open_store(url)) as store:
        assert [e.id for e in store.find(bad)] == [bad]
        assert [e.id for e in store.find(execution)] == [e.id for e in store.find(turn)] == [turn]
        assert store.find("x' OR '1'='1") == []


def test_entries_are_selected_by_time_and_name(url: str) -> None:
    """`since` is compared with the wall clock at the start of an entry."""
    first = stream_entry(id="a", name="x")
    with contextlib.closing(open_store(url)) as store:
        store.add([first, stream_entry(id="b", name="y")])
        began = first.started_at.timestamp()
        assert [e.id for e in store.entries(name="y")] == ["b"]
        assert [e.id for e in store.entries(since=began)] == ["a", "b"]
        assert list(store.entries(since=began + 1)) == []


def test_it_shares_a_database_with_the_records_of_dispatches(url: str) -> None:
    """The same database may hold both, whichever comes first."""
    records = RecordStore(url)
    with contextlib.closing(open_store(url)) as store, contextlib.closing(records):
        assert list(store.entries()) == []
        store.add([stream_entry()])
        assert records.execution("none") is None
        assert list(store.entries()) == [stream_entry()]


def test_a_file_that_was_deleted_is_made_again(tmp_path: Path, sqlite_url: str) -> None:
    """A file that is deleted while the program runs is created again."""
    streamguard.configure(journal=sqlite_url)
    with streamguard.testing.no_leaks():  # until the connection is closed
        good_stream()
        assert settle(10)
    (tmp_path / "journal.db").unlink()
    id = good_stream()
    assert [entry.id for entry in reader(sqlite_url)()] == [id]


def test_a_name_that_databases_refuse_is_cleaned(kept: Read) -> None:
    """NUL and a lone half of a surrogate pair become U+FFFD, a pair its character, as in the records; no entry is lost."""
    good_stream(name="a\0b\ud800c\ud83d\ude00")
    (entry,) = kept()
    assert entry.name == "a\ufffdb\ufffdc\U0001f600"


def test_the_oldest_entries_go(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal does not grow for ever: entries beyond the number kept are deleted, now and then."""
    monkeypatch.setattr(store_module, "KEPT", 700)
    with contextlib.closing(open_store(url)) as store:
        for first in range(0, 2000, 100):
            store.add([stream_entry(id=f"s{number}") for number in range(first, first + 100)])
            assert len(list(store.entries())) <= 1200
        assert [entry.id for entry in store.entries()] == [f"s{number}" for number in range(1300, 2000)]


def test_reading_makes_no_file(tmp_path: Path, sqlite_url: str) -> None:
    """A journal that does not exist has no entries, and still does not exist after it is read."""
    store = open_store(sqlite_url)
    assert store.missing
    assert list(store.entries()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_the_table_is_an_empty_journal(postgresql: str) -> None:
    """Reading creates no table."""
    with contextlib.closing(open_store(postgresql)) as store:
        assert list(store.entries()) == []
    records = RecordStore(postgresql)
    with contextlib.closing(records), records.engine.connect() as connection:
        assert connection.execute(text("SELECT to_regclass('streamguard_journal')")).scalar() is None
