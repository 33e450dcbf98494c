"""The records, in memory, in an SQLite file, and on a PostgreSQL server."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text, update

from streamguard import UsageError
from streamguard._core.clock import wall
from streamguard.dispatch import Dispatcher
from streamguard.dispatch._data.rows import TRANSITIONS
from streamguard.dispatch._data.status import ExecutionStatus, ResponseStatus, StatusAndReason, TurnStatus
from streamguard.dispatch._records.queue_table import QueueTable
from streamguard.dispatch._records.records import RecordStore
from streamguard.dispatch._records.schema import executions, responses, turns

from ...helpers import ROOT
from ..scripted import says
from ..stores import Store
from .samples import RUNNING, answer, begun, execution, turn

pytestmark = pytest.mark.timeout(180)  # PostgreSQL may have to be installed first


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


def test_sqlite_writes_ahead(tmp_path: Path) -> None:
    """An SQLite file uses the write-ahead log, so that readers and a writer do not wait for each other."""
    store = RecordStore(f"sqlite:///{tmp_path}/records.db")
    with store.reading() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    store.close()


def test_start_times_are_those_of_the_start(records_url: str | None, open_store: Store) -> None:
    """C248: a turn of half a second, its response and its dispatch start and end half a second apart."""
    began = wall()
    with Dispatcher(open_store(records_url)) as dispatcher:
        outcome = dispatcher.dispatch("c", [says("a", "x", pause=0.5)], "p")
        (turn,) = dispatcher.records.turns(outcome.execution_id)
        (response,) = dispatcher.records.responses(outcome.execution_id)
        execution = dispatcher.records.execution(outcome.execution_id)
    assert execution is not None
    assert turn.started_at is not None
    for start, end in (
        (turn.started_at, turn.ended_at),
        (response.created_at, response.ended_at),
        (execution.started_at, execution.ended_at),
    ):
        assert end is not None
        assert began <= start < began + 0.5 <= end
        assert 0.5 <= end - start < 10


def test_a_turn_whose_start_was_lost_has_its_start(records_url: str | None, open_store: Store) -> None:
    """C248: a record that is written at the end only has the start all the same."""
    store = open_store(records_url)
    store.begin_execution(execution())
    begun = replace(turn(), started_at=wall() - 2)
    assert store.commit_turn(replace(begun, status=TurnStatus.SUCCEEDED))
    (found,) = store.turns("e")
    assert found.started_at == begun.started_at
    assert found.ended_at is not None
    assert found.ended_at - found.started_at >= 2


def test_unknown_words_are_read_as_they_stand(records_url: str | None, open_store: Store) -> None:
    """Rule 13: a status or reason of a later version is returned as it is: reading never raises ValueError."""
    store = begun(open_store(records_url))
    store.begin_execution(execution("other"))
    with store.writing() as connection:
        connection.execute(update(executions).where(executions.c.id == "e").values(status="parked", reason="moon_phase"))
        connection.execute(update(turns).values(status="parked", terminal_reason="moon_phase"))
        connection.execute(update(responses).values(status="parked", reason="moon_phase"))
    found = store.execution("e")
    assert found is not None
    records = [(found.status, found.reason)]
    records += [(record.status, record.terminal_reason) for record in store.turns("e")]
    records += [(record.status, record.reason) for record in store.responses("e")]
    assert records == [("parked", "moon_phase")] * 3
    assert {record.id: str(record.status) for record in QueueTable(store).in_order("c")} == {
        "e": "parked",
        "other": "running",
    }
    assert store.transition("e", StatusAndReason(ExecutionStatus.SUCCEEDED, "x")) is None
