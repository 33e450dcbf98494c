"""The records of dispatches as plain data, and how a row of their tables is read. No statement runs here.

Times are wall clock, in seconds since 1970. They are labels: two records that differ in them only are equal.
"""

import contextlib
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from ..._core.clock import wall
from .status import ExecutionStatus, ResponseStatus, TurnStatus, read_reason

if TYPE_CHECKING:
    from sqlalchemy import Row

_Status = ExecutionStatus
TRANSITIONS: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    _Status.QUEUED: frozenset({_Status.RUNNING, _Status.FAILED, _Status.CANCELLED}),
    _Status.RUNNING: frozenset({_Status.SUCCEEDED, _Status.FAILED, _Status.CANCELLED}),
    _Status.FAILED: frozenset({_Status.RUNNING, _Status.CANCELLED}),
    _Status.SUCCEEDED: frozenset(),
    _Status.CANCELLED: frozenset(),
}
"""The allowed transitions of an execution: succeeded and cancelled are final, failed may be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """One dispatch, or one entry of a queue."""

    id: str
    conversation: str
    mode: str
    members: list[str]
    prompt: str = field(repr=False)
    options: dict[str, Any]
    status: ExecutionStatus | str
    reason: str | None = None
    outcomes: dict[str, str] | None = None
    """The status of each member, once it has ended."""
    after: str | None = None
    """The entry that must succeed first."""
    owner: str | None = None
    created_at: float = field(default_factory=wall, compare=False)
    started_at: float | None = field(default=None, compare=False)
    ended_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One member's run."""

    id: str
    execution_id: str
    conversation: str
    member: str
    status: TurnStatus | str = TurnStatus.RUNNING
    terminal_reason: str | None = None
    started_at: float = field(default_factory=wall, compare=False)
    ended_at: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """One member's answer."""

    turn_id: str
    execution_id: str
    conversation: str
    member: str
    status: ResponseStatus | str = ResponseStatus.PROCESSING
    reason: str | None = None
    text: str = ""
    metadata: dict[str, Any] | None = None
    created_at: float = field(default_factory=wall, compare=False)
    """The start of the turn."""
    ended_at: float | None = field(default=None, compare=False)


Record = TypeVar("Record", ExecutionRecord, TurnRecord, ResponseRecord)
_STATUSES: dict[type, type[StrEnum]] = {
    ExecutionRecord: ExecutionStatus,
    TurnRecord: TurnStatus,
    ResponseRecord: ResponseStatus,
}


def columns_of(record: ExecutionRecord | TurnRecord | ResponseRecord) -> dict[str, Any]:
    """Return the values of a record by column."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def record_of(kind: type[Record], row: "Row[Any]") -> Record:
    """Return the record of a row. Older words are read as current ones (R23), unknown words as they stand."""
    values = {field.name: row._mapping[field.name] for field in fields(kind)}
    for name in ("reason", "terminal_reason", "status"):
        if values.get(name) is not None:
            values[name] = read_reason(values[name])
    with contextlib.suppress(ValueError):  # a word of a later version
        values["status"] = _STATUSES[kind](values["status"])
    return kind(**values)
