"""The thread that writes the journal: no stream waits for it, and losses are counted."""

import contextlib
import logging
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

import streamguard
from streamguard._core import monotonic
from streamguard.journal import JournalEntry, settle
from streamguard.journal.lifecycle import open_store
from streamguard.journal.store import JournalStore
from streamguard.journal.writer import Writer

from .causes import good_stream, stream_entry
from .conftest import Read, locked, reader


class Broken:
    """A store that refuses everything while it is broken, or blocks its writer until it is released."""

    def __init__(self, *, held: bool = False) -> None:
        self.broken = not held
        self.entries: list[JournalEntry] = []
        self.release = threading.Event()
        self.reached = threading.Event()
        if not held:
            self.release.set()

    def add(self, entries: list[JournalEntry]) -> None:
        self.reached.set()
        self.release.wait(30)
        if self.broken:
            raise OperationalError("", {}, OSError("no"))
        self.entries += entries

    def close(self) -> None:
        pass


def test_several_threads_write_at_once(kept: Read) -> None:
    """Each stream is there once."""
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(good_stream())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.id for entry in kept()) == sorted(ids)


def test_nothing_is_written_in_a_pause(sqlite_url: str) -> None:
    """Busy or not, the writer writes nothing in a pause, and everything after it."""
    with contextlib.closing(JournalStore(sqlite_url)) as store:
        writer = Writer(store)
        for busy in (False, True):
            if busy:
                writer.put(stream_entry())
            end_pause = writer.pause(5)
            before = len(list(store.entries()))
            writer.put(stream_entry())
            assert not writer.settle(0.2)
            assert len(list(store.entries())) == before
            store.close()
            end_pause()
            assert writer.settle(5)
        assert len(list(store.entries())) == 3


def test_a_locked_database_delays_no_stream(tmp_path: Path, sqlite_url: str) -> None:
    """Streams end while the writer waits for the lock; once it has it, all of them are there."""
    streamguard.configure(journal=sqlite_url)
    first = good_stream()
    assert settle(10)
    with locked(tmp_path / "journal.db"):
        began = monotonic()
        ids = [good_stream() for _ in range(3)]
        assert monotonic() - began < 3
        assert not settle(0.1)
        assert [entry.id for entry in open_store(sqlite_url).entries()] == [first]
    assert [entry.id for entry in reader(sqlite_url)()] == [first, *ids]


def test_losses_are_counted_logged_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    """While nothing can be written the log has one line; afterwards the journal holds how many are missing."""
    store: Any = Broken()
    writer = Writer(store)
    with caplog.at_level(logging.WARNING, "streamguard"):
        for _ in range(3):
            writer.put(stream_entry())
            assert writer.settle(5)
    assert [record.getMessage() for record in caplog.records] == ["the journal cannot be written; entries are lost"]
    assert caplog.records[0].streamguard["error_type"] == "OperationalError"  # type: ignore[attr-defined]
    store.broken = False
    writer.put(stream_entry(id="after"))
    assert writer.settle(5)
    gap, after = store.entries
    assert (gap.kind, gap.outcome, gap.numbers) == ("gap", "lost", {"entries": 3})
    assert after.id == "after"


def test_what_waits_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """While the writer is held up a thousand entries wait; what comes beyond that is lost and counted."""
    store: Any = Broken(held=True)
    writer = Writer(store)
    writer.put(stream_entry(id="held"))
    assert store.reached.wait(5)
    with caplog.at_level(logging.WARNING, "streamguard"):
        for number in range(1200):
            writer.put(stream_entry(id=f"s{number}"))
        store.release.set()
        assert writer.settle(10)
    kinds = Counter(entry.kind for entry in store.entries)
    lost = sum(entry.numbers["entries"] for entry in store.entries if entry.kind == "gap")
    assert (kinds["stream"], lost) == (1001, 200)
    assert len(caplog.records) == 1


def test_no_thread_stays_when_nothing_is_written(sqlite_url: str) -> None:
    """The writer's thread and its connection go a moment after the last entry, and come again with the next."""
    streamguard.configure(journal=sqlite_url)
    for _ in range(2):
        with streamguard.testing.no_leaks():
            good_stream()
            assert settle(10)
    assert len(reader(sqlite_url)()) == 2
