"""The journal in a database: what is kept, by whom, and that no stream waits for it."""

import contextlib
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

import streamguard
from streamguard import UsageError, recent
from streamguard._core import NOT_GIVEN, monotonic
from streamguard.dispatch._records.records import RecordStore
from streamguard.journal import JournalEntry, settle
from streamguard.journal import store as store_module
from streamguard.journal.lifecycle import VARIABLE, open_store
from streamguard.journal.store import JournalStore
from streamguard.journal.writer import Writer

from ..core.helpers import wait_until
from .causes import failing_stream, good_stream, run_that_waits, stream_entry, turn_that_hangs
from .conftest import Read, reader

ROOT = Path(__file__).parent.parent.parent
FILE_URIS = ["sqlite:///file:x.db?uri=true", "sqlite:///file:x?mode=memory&uri=true"]

PROGRAM = """
import sys
from streamguard import guarded_stream
from streamguard.testing import Gateway
with Gateway("chat a\\ndone") as gateway:
    for number in range(int(sys.argv[1])):
        guarded_stream("POST", gateway.url, name=sys.argv[2], json={"stream": True}).read()
"""


class Broken:
    """A store that refuses everything until it is mended, or holds its writer up until it is released."""

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


def program(url: str, count: int, name: str) -> "subprocess.Popen[bytes]":
    """Start a process that ends after *count* streams, and is told of its journal by the environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: url}
    return subprocess.Popen([sys.executable, "-W", "error", "-c", PROGRAM, str(count), name], env=environment)


def test_streams_runs_and_turns_are_kept(kept: Read) -> None:
    """Well ended or not, in order, and as they are in memory where they failed."""
    good, bad, run = good_stream(), failing_stream(), run_that_waits()
    turn, execution = turn_that_hangs()
    entries = kept()
    assert [(e.kind, e.id, e.outcome) for e in entries] == [
        ("stream", good, "completed"),
        ("stream", bad, "timeout"),
        ("run", run, "waiting_external_service"),
        ("turn", turn, "failed"),
    ]
    assert entries[1:] == recent()[-3:]
    assert entries[3].parent == execution


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
    """`since` is the wall clock at the start of what is told."""
    first = stream_entry(id="a", name="x")
    with contextlib.closing(open_store(url)) as store:
        store.add([first, stream_entry(id="b", name="y")])
        began = first.started_at.timestamp()
        assert [e.id for e in store.entries(name="y")] == ["b"]
        assert [e.id for e in store.entries(since=began)] == ["a", "b"]
        assert list(store.entries(since=began + 1)) == []


def test_it_lives_beside_the_records_of_dispatches(url: str) -> None:
    """The same database may hold both, whichever comes first."""
    records = RecordStore(url)
    with contextlib.closing(open_store(url)) as store, contextlib.closing(records):
        assert list(store.entries()) == []
        store.add([stream_entry()])
        assert records.execution("none") is None
        assert list(store.entries()) == [stream_entry()]


def test_several_processes_write_at_once(url: str) -> None:
    """Four processes, ended as soon as their last stream: nothing is lost, not even the last entry."""
    running = [program(url, 25, f"p{number}") for number in range(4)]
    assert [process.wait(50) for process in running] == [0] * 4
    assert Counter(entry.name for entry in reader(url)()) == {f"p{number}": 25 for number in range(4)}


def test_several_threads_write_at_once(kept: Read) -> None:
    """Each stream is there once."""
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(good_stream())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.id for entry in kept()) == sorted(ids)


def test_a_forked_child_has_connections_of_its_own(kept: Read) -> None:
    """What child and parent write at once is all there, though the fork came while the parent was writing."""
    forks = 5
    for _ in range(forks):
        good_stream()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                good_stream(name="child")
                os._exit(0 if settle(10) else 1)
            os._exit(2)
        good_stream()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Counter(entry.name for entry in kept()) == {"chat": 2 * forks, "child": forks}


def test_a_pause_lets_nobody_write(sqlite_url: str) -> None:
    """Whether the writer is busy or not: in a pause nothing is written, and behind it all of it is."""
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


def test_the_environment_names_a_journal_and_configure_beats_it(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """configure(journal=None) keeps none; NOT_GIVEN gives the word back to the environment."""
    other = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setenv(VARIABLE, sqlite_url)
    first = good_stream()
    streamguard.configure(journal=other)
    second = good_stream()
    streamguard.configure(journal=None)
    good_stream()
    streamguard.configure(journal=NOT_GIVEN)
    last = good_stream()
    assert [entry.id for entry in reader(sqlite_url)()] == [first, last]
    assert [entry.id for entry in reader(other)()] == [second]


@pytest.mark.parametrize("configured", [True, False])
def test_a_relative_path_is_of_the_directory_where_it_was_chosen(
    configured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that changes its directory goes on in the same file, whoever named it."""
    monkeypatch.chdir(tmp_path)
    if configured:
        streamguard.configure(journal="sqlite:///here.db")
    else:
        monkeypatch.setenv(VARIABLE, f"sqlite:///here-{tmp_path.name}.db")
    first = run_that_waits()
    assert settle(10)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    wait_until(lambda: not any("journal" in thread.name for thread in threading.enumerate()))  # it closes the file
    second = run_that_waits()
    (file,) = tmp_path.rglob("*.db")
    assert [entry.id for entry in reader(f"sqlite:///{file}")()] == [first, second]
    assert file.parent == tmp_path


@pytest.mark.parametrize(
    "bad", ["mysql://user:hunter2@host/x", "no-url-hunter2", "sqlite://", "sqlite:///:memory:", *FILE_URIS]
)
def test_a_url_that_is_none_is_refused(bad: str) -> None:
    """configure() says so at once, without quoting it; nothing has changed."""
    with pytest.raises(UsageError, match="journal= takes") as refused:
        streamguard.configure(journal=bad, idle=5)
    assert "hunter2" not in str(refused.value)
    assert streamguard.Timeouts().source("idle") == "default"


def test_a_bad_url_in_the_environment_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning names the variable and not the URL; streams go on."""
    monkeypatch.setenv(VARIABLE, "mysql://user:hunter2@host/x")
    with caplog.at_level(logging.WARNING, "streamguard"):
        good_stream()
        good_stream()
    (message,) = [record.getMessage() for record in caplog.records if "journal" in record.getMessage()]
    assert VARIABLE in message
    assert "hunter2" not in caplog.text


def test_without_sqlalchemy_it_says_what_to_install() -> None:
    """configure(journal=...) needs the extra; nothing else does, and nothing else loads it."""
    source = (
        "import sys\n"
        "sys.modules['sqlalchemy'] = None\n"
        "import streamguard\n"
        "from streamguard.testing import Gateway\n"
        "with Gateway('chat a\\nreset') as gateway:\n"
        "    stream = streamguard.guarded_stream('GET', gateway.url)\n"
        "    try: stream.read()\n"
        "    except streamguard.TransportError: pass\n"
        "assert [entry.id for entry in streamguard.recent()] == [stream.report.id]\n"
        "try: streamguard.configure(journal='sqlite:///x.db')\n"
        "except streamguard.UsageError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=50, check=False, cwd=ROOT)
    assert done.stderr == ""
    assert done.stdout == "journal= needs the package sqlalchemy: pip install 'streamguard[dispatch]'\n"


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the write lock of an SQLite file."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.rollback()


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


def test_losses_are_counted_said_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_file_that_was_deleted_is_made_again(tmp_path: Path, sqlite_url: str) -> None:
    """Whoever deletes the file while the program runs begins a new journal."""
    streamguard.configure(journal=sqlite_url)
    with streamguard.testing.no_leaks():  # until the connection is closed
        good_stream()
        assert settle(10)
    (tmp_path / "journal.db").unlink()
    id = good_stream()
    assert [entry.id for entry in reader(sqlite_url)()] == [id]


def test_a_name_that_no_database_takes_is_kept_as_far_as_it_goes(kept: Read) -> None:
    """NUL and halves of surrogate pairs in your own name cost no entry."""
    good_stream(name="a\0b\ud800c")
    (entry,) = kept()
    assert entry.name == "a\ufffdb?c"


def test_the_oldest_entries_go(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal does not grow for ever: entries beyond the number kept are deleted, now and then."""
    monkeypatch.setattr(store_module, "KEPT", 700)
    with contextlib.closing(open_store(url)) as store:
        for first in range(0, 2000, 100):
            store.add([stream_entry(id=f"s{number}") for number in range(first, first + 100)])
            assert len(list(store.entries())) <= 1200
        assert [entry.id for entry in store.entries()] == [f"s{number}" for number in range(1300, 2000)]


def test_reading_makes_no_file(tmp_path: Path, sqlite_url: str) -> None:
    """A journal that does not exist has no entries, and does not exist behind that."""
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


def test_an_exit_waits_for_a_bounded_time_only(tmp_path: Path, sqlite_url: str) -> None:
    """A program whose journal is locked ends all the same, some two seconds late."""
    with contextlib.closing(JournalStore(sqlite_url)) as store:
        store.add([stream_entry()])
    with locked(tmp_path / "journal.db"):
        began = monotonic()
        assert program(sqlite_url, 1, "late").wait(40) == 0
        assert monotonic() - began >= 2
