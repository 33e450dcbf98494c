"""Records that cannot be written: the dispatch goes on, names what was lost, and never hangs."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from streamguard._core.clock import monotonic
from streamguard.dispatch import Dispatcher
from streamguard.dispatch._records.records import RecordStore
from streamguard.dispatch._records.safe_writes import LOST, LostRecords, SafeWrites

from ...helpers import wait_until
from ..scripted import says
from ..stores import Line, Store
from .samples import answer, begun

pytestmark = pytest.mark.timeout(180)  # PostgreSQL may have to be installed first


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


@pytest.fixture
def lost_on(file: Path, open_store: Store) -> Any:
    """Run a dispatch on *file*, doing something while it runs; return its outcome and how long it took."""

    def run(meanwhile: Any, url: str | None = None) -> Any:
        store = open_store(url or f"sqlite:///{file}", timeout=0.2)
        with Dispatcher(store) as dispatcher:
            began = monotonic()
            with dispatcher.stream("c", [says("a", "x", "y", pause=0.2), says("b", "z")], "p") as stream:
                next(stream)
                meanwhile()
                outcome = stream.read()
            return outcome, monotonic() - began

    return run


def check_lost(outcome: Any, seconds: float) -> None:
    assert outcome.status == "succeeded"
    assert outcome["a"].text == "xy"
    assert outcome.lost_records
    assert seconds < 10


def test_a_locked_store(lost_on: Any, file: Path) -> None:
    """Another program holds the file's lock: the dispatch goes on, and names what it could not record."""
    locker = sqlite3.connect(file, isolation_level=None)
    try:
        outcome, seconds = lost_on(lambda: locker.execute("BEGIN EXCLUSIVE"))
        check_lost(outcome, seconds)
        assert {"response a", "turn a", "execution"} <= set(outcome.lost_records)
    finally:
        locker.close()


def test_a_store_that_is_locked_for_a_while_loses_only_that(
    open_store: Store, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once the lock is gone, what ends is recorded, even where its beginning was lost."""
    locker = sqlite3.connect(file, isolation_level=None)
    try:
        store = open_store(f"sqlite:///{file}", timeout=0.05)
        with Dispatcher(store) as dispatcher:
            dispatcher.dispatch("c", [says("a", "x")], "p")
            locker.execute("BEGIN EXCLUSIVE")
            with dispatcher.stream("c", [says("a", "x", pause=0.4)], "p") as stream:
                wait_until(lambda: "turn" in [record.__dict__["streamguard"].get("record") for record in caplog.records])
                locker.execute("ROLLBACK")
                outcome = stream.read()
            assert "response a" not in outcome.lost_records
            assert [record.text for record in store.responses(outcome.execution_id)] == ["x"]
            found = store.execution(outcome.execution_id)
            assert found is not None
            assert found.status == "succeeded"
    finally:
        locker.close()


def test_a_read_only_store(lost_on: Any, file: Path) -> None:
    """A store that cannot be written from the beginning costs the records, not the run."""
    RecordStore(f"sqlite:///{file}").close()
    begun(RecordStore(f"sqlite:///{file}")).close()
    outcome, seconds = lost_on(lambda: None, f"sqlite:///file:{file}?mode=ro&uri=true")
    check_lost(outcome, seconds)


def test_a_store_whose_folder_does_not_exist(lost_on: Any, tmp_path: Path) -> None:
    """A file that cannot be opened is noticed, and costs the records only."""
    outcome, seconds = lost_on(lambda: None, f"sqlite:///{tmp_path}/none/records.db")
    check_lost(outcome, seconds)


def test_a_file_that_is_deleted_mid_run(lost_on: Any, file: Path) -> None:
    """Writing on into a deleted file would lose records silently: it is noticed, and no empty file appears in its place."""
    outcome, seconds = lost_on(lambda: [path.unlink() for path in file.parent.glob("records.db*")])
    check_lost(outcome, seconds)
    assert not file.exists()


def test_a_file_that_another_process_has_made_again(open_store: Store, file: Path) -> None:
    """C239: the file is deleted, and another process creates it: later dispatches are recorded in the new one."""
    with Dispatcher(open_store(f"sqlite:///{file}", timeout=0.5)) as dispatcher:
        assert dispatcher.dispatch("c", [says("a", "x")], "p").lost_records == ()
        for path in file.parent.glob("records.db*"):
            path.unlink()
        other = begun(open_store(f"sqlite:///{file}"))
        outcome = dispatcher.dispatch("c", [says("a", "y")], "p")
        assert outcome.lost_records == ()
        assert [record.text for record in other.responses(outcome.execution_id)] == ["y"]
        assert other.execution("e") is not None


def test_an_empty_file_in_the_place_of_the_records(open_store: Store, file: Path) -> None:
    """C239: if the new file has no tables, they are created in it; at most one record is lost on the way."""
    with Dispatcher(open_store(f"sqlite:///{file}", timeout=0.5)) as dispatcher:
        dispatcher.dispatch("c", [says("a", "x")], "p")
        for path in file.parent.glob("records.db*"):
            path.unlink()
        file.touch()
        assert len(dispatcher.dispatch("c", [says("a", "y")], "p").lost_records) <= 1
        outcome = dispatcher.dispatch("c", [says("a", "z")], "p")
        assert outcome.lost_records == ()
        assert [record.text for record in dispatcher.records.responses(outcome.execution_id)] == ["z"]


def test_a_store_that_is_full_of_rubbish(lost_on: Any, file: Path) -> None:
    """A file that is not a database costs the records only."""
    file.write_bytes(b"not a database" * 1000)
    outcome, seconds = lost_on(lambda: None)
    check_lost(outcome, seconds)


def test_a_server_that_goes_away_mid_run(lost_on: Any, postgresql: str) -> None:
    """PostgreSQL ends the connections, and takes no new ones: the dispatch goes on without."""
    import psycopg

    server, name = postgresql.rsplit("/", 1)

    def leave() -> None:
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    outcome, seconds = lost_on(leave, postgresql)
    check_lost(outcome, seconds)


def test_a_line_on_which_nothing_comes_back(lost_on: Any, postgresql: str) -> None:
    """The line to the server goes silent without an end: each write is given up in bounded time, nothing hangs."""
    user, _, address = postgresql.removeprefix("postgresql://").partition("@")
    port, _, name = address.partition(":")[2].partition("/")
    line = Line(int(port))
    try:
        outcome, seconds = lost_on(line.silent.set, f"postgresql://{user}@127.0.0.1:{line.port}/{name}")
        check_lost(outcome, seconds)
    finally:
        line.close()


def test_the_loss_is_logged_by_type(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the record's kind and the error's type: no prompt, no path, no statement."""
    writes = SafeWrites(RecordStore(f"sqlite:///{file.parent}/none/secret.db", timeout=0.1))
    losses = LostRecords()
    assert writes.commit_response(answer(text="a secret answer"), losses) == LOST
    writes.close()
    assert losses.names == ["response a"]
    (record,) = caplog.records
    assert (record.getMessage(), record.__dict__["streamguard"]["error_type"]) == ("a record is lost", "OperationalError")
    assert "secret" not in str(record.__dict__)


def test_what_no_database_stores_is_made_storable(records_url: str | None, open_store: Store) -> None:
    """NUL and half of a surrogate pair become U+FFFD in an answer, a pair its character, and the rest is recorded."""
    writes, losses = SafeWrites(open_store(records_url)), LostRecords()
    assert writes.commit_response(answer(text="a\0b\ud800c\ud83d\ude00"), losses) is True
    assert losses.names == []
    assert [record.text for record in writes.store.responses("e")] == ["a\ufffdb\ufffdc😀"]
