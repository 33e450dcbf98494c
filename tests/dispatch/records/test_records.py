"""The records, in memory, in an SQLite file, and on a PostgreSQL server."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text, update

from streamguard import UsageError
from streamguard._core.clock import monotonic
from streamguard.dispatch import Dispatcher
from streamguard.dispatch._data.rows import TRANSITIONS, ExecutionRecord, ResponseRecord, TurnRecord
from streamguard.dispatch._data.status import ExecutionStatus, ResponseStatus, StatusAndReason, TurnStatus
from streamguard.dispatch._records.leases import Owner, end_owner
from streamguard.dispatch._records.records import RecordStore
from streamguard.dispatch._records.safe_writes import LOST, LostRecords, SafeWrites
from streamguard.dispatch._records.schema import executions, owners, responses

from ...helpers import ROOT, wait_until
from ..scripted import hangs, says
from ..stores import Line, Store

pytestmark = pytest.mark.timeout(180)  # PostgreSQL may have to be installed first

RUNNING = ExecutionStatus.RUNNING


def execution(name: str = "e", status: ExecutionStatus = RUNNING) -> ExecutionRecord:
    return ExecutionRecord(
        id=name, conversation="c", mode="serial", members=["a"], prompt="p", options={"first": None}, status=status
    )


def turn(name: str = "t") -> TurnRecord:
    return TurnRecord(id=name, execution_id="e", conversation="c", member="a")


def answer(name: str = "t", **fields: Any) -> ResponseRecord:
    status = fields.pop("status", ResponseStatus.COMPLETED)
    return ResponseRecord(turn_id=name, execution_id="e", conversation="c", member="a", status=status, **fields)


def begun(store: RecordStore) -> RecordStore:
    store.begin_execution(execution())
    store.begin_turn(turn())
    return store


def test_what_is_recorded_is_read_back(records_url: str | None, open_store: Store) -> None:
    """Executions, turns and responses come back as they were written, whatever characters are in them."""
    store = begun(open_store(records_url))
    words = "ünïcode 🦀 \u2028 'quotes' %s :name"
    assert store.commit_response(answer(text=words, reason="completed", metadata={"deep": [1, {"x": None}]}))
    assert store.commit_turn(replace(turn(), status=TurnStatus.SUCCEEDED, terminal_reason="succeeded"))
    assert store.execution("e") == replace(execution(), owner=store.owner.id)
    assert store.turns("e") == [replace(turn(), status=TurnStatus.SUCCEEDED, terminal_reason="succeeded")]
    (found,) = store.responses("e")
    assert (found.text, found.metadata) == (words, {"deep": [1, {"x": None}]})
    assert store.execution("none") is None


def test_a_response_is_committed_once(records_url: str | None, open_store: Store) -> None:
    """The second commit is refused, and changes nothing."""
    store = begun(open_store(records_url))
    assert store.commit_response(answer(text="first"))
    assert not store.commit_response(answer(text="second", status=ResponseStatus.FAILED))
    (found,) = store.responses("e")
    assert (found.status, found.text) == ("completed", "first")


def test_what_could_not_begin_is_recorded_at_its_end(records_url: str | None, open_store: Store) -> None:
    """A turn and a response whose beginning was lost are recorded whole when they end."""
    store = open_store(records_url)
    store.begin_execution(execution())
    assert store.commit_response(answer(text="x"))
    assert store.commit_turn(replace(turn(), status=TurnStatus.SUCCEEDED))
    assert [record.text for record in store.responses("e")] == ["x"]
    assert [record.status for record in store.turns("e")] == ["succeeded"]


@settings(max_examples=40)
@given(st.lists(st.sampled_from(list(ExecutionStatus)), max_size=8))
def test_transitions_are_compare_and_set(path: list[ExecutionStatus]) -> None:
    """An illegal transition returns None and changes nothing; what is over for good stays so."""
    store = RecordStore()
    try:
        store.begin_execution(execution(status=ExecutionStatus.QUEUED))
        now = ExecutionStatus.QUEUED
        for status in path:
            moved = store.transition("e", StatusAndReason(status, "why"))
            if status in TRANSITIONS[now]:
                assert moved is not None
                now = status
                assert (moved.status, moved.reason) == (status, "why")
            else:
                assert moved is None
            found = store.execution("e")
            assert found is not None
            assert found.status is now
    finally:
        store.close()


def test_final_is_final() -> None:
    """Succeeded and cancelled absorb; failed may be retried or cancelled."""
    assert TRANSITIONS[ExecutionStatus.SUCCEEDED] == TRANSITIONS[ExecutionStatus.CANCELLED] == frozenset()
    assert TRANSITIONS[ExecutionStatus.FAILED] == {RUNNING, ExecutionStatus.CANCELLED}


def test_of_many_threads_one_moves_it(records_url: str | None, open_store: Store) -> None:
    """Eight threads end one execution at once: exactly one of them gets the record."""
    store = open_store(records_url)
    store.begin_execution(execution())
    start = threading.Barrier(8)
    moved: list[str] = []

    def race(number: int) -> None:
        start.wait()
        record = store.transition("e", StatusAndReason(ExecutionStatus.SUCCEEDED, f"thread {number}"))
        if record is not None:
            moved.append(record.reason or "")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = store.execution("e")
    assert found is not None
    assert moved == [found.reason]


WRITER = """
import sys
from streamguard.dispatch._records.records import RecordStore
from streamguard.dispatch._data.rows import TurnRecord
store = RecordStore(sys.argv[1], timeout=20)
for number in range(12):
    store.begin_turn(TurnRecord(id=f"{sys.argv[2]}-{number}", execution_id="e", conversation="c", member="a"))
store.close()
"""


def test_several_processes_and_threads_write_at_once(shared_records: str, open_store: Store) -> None:
    """Two processes create the tables and write 12 turns each, beside two threads of ours: nothing is lost."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    commands = [[sys.executable, "-c", WRITER, shared_records, name] for name in ("p1", "p2")]
    writers = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for command in commands]
    store = open_store(shared_records, timeout=20)

    def write(name: str) -> None:
        for number in range(12):
            store.begin_turn(turn(f"{name}-{number}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in ("t1", "t2")]
    for thread in threads:
        thread.start()
    errors = [writer.communicate(timeout=60)[1] for writer in writers]
    for thread in threads:
        thread.join()
    assert errors == ["", ""]
    assert len(store.turns("e")) == 48


def test_a_session_is_remembered_and_forgotten(records_url: str | None, open_store: Store) -> None:
    """The session to resume belongs to one member of one conversation."""
    store = open_store(records_url)
    assert store.session("c", "a") is None
    store.set_session("c", "a", "s1")
    store.set_session("c", "b", "s2")
    store.set_session("c", "a", "s3")
    assert (store.session("c", "a"), store.session("c", "b"), store.session("d", "a")) == ("s3", "s2", None)
    store.set_session("c", "a", None)
    assert store.session("c", "a") is None


def expire(store: RecordStore) -> None:
    with store.writing() as connection:
        connection.execute(update(owners).where(owners.c.id == store.owner.id).values(lease_until=1.0))


def test_records_of_an_expired_owner_are_ended_once(shared_records: str, open_store: Store) -> None:
    """T32: running records whose owner's lease has run out become failed/process_restart; only the first call says so."""
    begun(open_store(shared_records))
    dead = open_store(shared_records)
    dead.begin_execution(execution("other"))
    expire(dead)
    store = open_store(shared_records)
    assert store.reconcile() == ["other"]
    assert store.reconcile() == []
    found = store.execution("other")
    assert found is not None
    assert (found.status, found.reason) == ("failed", "process_restart")


def test_turns_and_responses_are_ended_with_them(shared_records: str, open_store: Store) -> None:
    """T32: what was over before stays what it was."""
    dead = begun(open_store(shared_records))
    dead.begin_turn(turn("over"))
    dead.commit_turn(replace(turn("over"), status=TurnStatus.SUCCEEDED))
    dead.commit_response(answer("over", text="x"))
    expire(dead)
    store = open_store(shared_records)
    store.reconcile()
    assert {record.id: record.status for record in store.turns("e")} == {"t": "failed", "over": "succeeded"}
    assert {record.turn_id: record.reason for record in store.responses("e")} == {"t": "process_restart", "over": None}


def test_a_restart_beside_living_siblings_touches_nothing_of_theirs(shared_records: str, open_store: Store) -> None:
    """T32: three living owners on one store, one dead: of a fourth's start only the dead one's records notice anything."""
    living = [open_store(shared_records) for _ in range(3)]
    for number, store in enumerate(living):
        store.begin_execution(execution(f"living {number}"))
    dead = open_store(shared_records)
    dead.begin_execution(execution("dead"))
    expire(dead)
    assert open_store(shared_records).reconcile() == ["dead"]
    for number, store in enumerate(living):
        found = store.execution(f"living {number}")
        assert found is not None
        assert (found.status, found.owner) == ("running", store.owner.id)


def test_of_many_restarts_at_once_one_ends_it(shared_records: str, open_store: Store) -> None:
    """T32: six processes come up at once and look after the same dead owner: together they end it once."""
    dead = begun(open_store(shared_records))
    expire(dead)
    stores = [open_store(shared_records, timeout=20) for _ in range(6)]
    start = threading.Barrier(6)
    ended: list[str] = []

    def come_up(store: RecordStore) -> None:
        start.wait()
        ended.extend(store.reconcile())

    threads = [threading.Thread(target=come_up, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == ["e"]


def test_an_owner_that_renews_in_the_last_instant_is_left_alone(shared_records: str, open_store: Store) -> None:
    """T32: an owner was seen as expired, and renews its lease before its row is taken: nothing of it is ended."""
    late = begun(open_store(shared_records))
    expire(late)
    other = open_store(shared_records)
    with other.reading() as connection:
        seen = connection.execute(select(owners).where(owners.c.id == late.owner.id)).one()
    late.renew()
    with other.writing() as connection:
        assert end_owner(connection, seen) == []
    assert [record.status for record in late.turns("e")] == ["running"]


def test_an_owner_whose_process_is_gone_needs_no_lease_to_run_out(shared_records: str, open_store: Store) -> None:
    """On its own machine a dead process is known at once; another machine's lease is awaited."""
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    here = open_store(shared_records)
    here.owner = replace(here.owner, pid=int(gone.stdout))
    here.begin_execution(execution("here"))
    elsewhere = open_store(shared_records)
    elsewhere.owner = replace(elsewhere.owner, pid=int(gone.stdout), host="another machine")
    elsewhere.begin_execution(execution("elsewhere"))
    assert open_store(shared_records).reconcile() == ["here"]


def test_a_process_id_that_was_used_again_is_another_process() -> None:
    """An owner is its process id and that process's start: this one lives, one that started earlier is gone."""
    owner = Owner()
    assert not owner.gone()
    assert replace(owner, started=owner.started - 3600).gone()


def test_the_answer_of_an_owner_that_was_given_up_is_refused(shared_records: str, open_store: Store) -> None:
    """A laptop wakes up after its lease ran out, and after somebody ended its turn: the commit is refused."""
    slept = begun(open_store(shared_records))
    expire(slept)
    open_store(shared_records).reconcile()
    assert not slept.commit_response(answer(text="late"))
    (found,) = slept.responses("e")
    assert (found.status, found.reason, found.text) == ("failed", "process_restart", "")


def test_the_lease_is_renewed_while_something_runs(shared_records: str, open_store: Store) -> None:
    """A dispatch that outlives its lease several times is not ended by anybody who comes up meanwhile."""
    store = open_store(shared_records, lease=1.0)
    # As seen from another machine, where only the lease counts.
    store.owner = replace(store.owner, host="another machine")
    another = open_store(shared_records)
    with Dispatcher(store) as dispatcher, dispatcher.stream("c", [hangs("a", "x")], "p") as stream:
        next(stream)
        end = monotonic() + 2.2
        while monotonic() < end:
            assert another.reconcile() == []
            time.sleep(0.05)
        stream.cancel_all()
        assert stream.read()["a"].status == "cancelled"


def test_older_words_are_read_as_todays(records_url: str | None, open_store: Store) -> None:
    """R23: `canceled` and `invocation_timeout` in a record read as `cancelled` and `timeout`."""
    store = begun(open_store(records_url))
    with store.writing() as connection:
        connection.execute(update(executions).values(status="canceled"))
        connection.execute(update(responses).values(status="failed", reason="invocation_timeout"))
    found = store.execution("e")
    assert found is not None
    assert found.status is ExecutionStatus.CANCELLED
    assert store.responses("e")[0].reason == "timeout"


def test_in_memory_the_oldest_are_forgotten(open_store: Store) -> None:
    """A process that runs for a month does not keep every answer: what is over goes, what runs stays."""
    store = open_store(None)
    store.begin_execution(execution("runs"))
    for number in range(5):
        store.begin_execution(execution(str(number)))
        store.transition(str(number), StatusAndReason(ExecutionStatus.SUCCEEDED, "x"))
    store.forget_all_but(2)
    found = {name for name in ("runs", *map(str, range(5))) if store.execution(name)}
    assert found == {"runs", "3", "4"}


@pytest.mark.parametrize("bad", ["", "records.db", "nonsense://x", "mysql://h/d", "sqlite+nope:///x"])
def test_a_url_that_cannot_be_used_is_refused_at_once(bad: str) -> None:
    """Records that no URL names, or no known database, raise UsageError that says what is wanted."""
    with pytest.raises(UsageError, match="records="):
        RecordStore(bad)


# What follows is about records that fail. The dispatch goes on, says what was lost, and never hangs.


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


def test_a_store_that_is_locked_for_a_while_loses_only_that(open_store: Store, file: Path) -> None:
    """Once the lock is gone, what ends is recorded, even where its beginning was lost."""
    locker = sqlite3.connect(file, isolation_level=None)
    try:
        store = open_store(f"sqlite:///{file}", timeout=0.05)
        with Dispatcher(store) as dispatcher:
            dispatcher.dispatch("c", [says("a", "x")], "p")
            locker.execute("BEGIN EXCLUSIVE")
            with dispatcher.stream("c", [says("a", "x", pause=0.4)], "p") as stream:
                wait_until(lambda: stream._execution._losses.names.count("turn a"))
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


def test_a_store_that_is_full_of_rubbish(lost_on: Any, file: Path) -> None:
    """A file that is no database at all costs the records only."""
    file.write_bytes(b"this is no database" * 1000)
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


def test_sqlite_writes_ahead(file: Path) -> None:
    """An SQLite file uses the write-ahead log, so that readers and a writer do not wait for each other."""
    store = RecordStore(f"sqlite:///{file}")
    with store.reading() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    store.close()
