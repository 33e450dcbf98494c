"""Records to write, for the tests of stores."""

from typing import Any

from streamguard.dispatch._data.rows import ExecutionRecord, ResponseRecord, TurnRecord
from streamguard.dispatch._data.status import ExecutionStatus, ResponseStatus
from streamguard.dispatch._records.records import RecordStore

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
