"""What is recorded, as plain data, and the rows of the tables that it stands for. No statement is run here."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
"""From which status an execution may go to which: succeeded and cancelled are final, failed may be retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """One dispatch, or one entry of a queue."""

    id: str
    conversation: str
    mode: str
    members: list[str]
    prompt: str = field(repr=False)
    options: dict[str, Any]
    status: ExecutionStatus
    reason: str | None = None
    outcomes: dict[str, str] | None = None
    """What became of each member, once it has ended."""
    after: str | None = None
    """The entry that must have succeeded first."""
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One member's run."""

    id: str
    execution_id: str
    conversation: str
    member: str
    status: TurnStatus = TurnStatus.RUNNING
    terminal_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """One member's answer."""

    turn_id: str
    execution_id: str
    conversation: str
    member: str
    status: ResponseStatus = ResponseStatus.PROCESSING
    reason: str | None = None
    text: str = ""
    metadata: dict[str, Any] | None = None


def execution_values(record: ExecutionRecord) -> dict[str, Any]:
    """Return the columns of a new execution."""
    return {
        "id": record.id,
        "conversation": record.conversation,
        "mode": record.mode,
        "members": record.members,
        "prompt": record.prompt,
        "options": record.options,
        "status": record.status,
        "after": record.after,
        "again": False,
        "created_at": wall(),
    }


def execution_of(row: "Row[Any]") -> ExecutionRecord:
    """Return the record of a row; older words are read as today's (R23)."""
    return ExecutionRecord(
        id=row.id,
        conversation=row.conversation,
        mode=row.mode,
        members=row.members,
        prompt=row.prompt,
        options=row.options,
        status=ExecutionStatus(read_reason(row.status)),
        reason=_read(row.reason),
        outcomes=row.outcomes,
        after=row.after,
        owner=row.owner,
    )


def turn_values(turn: TurnRecord) -> dict[str, Any]:
    """Return the columns of a new turn."""
    return {
        "id": turn.id,
        "execution_id": turn.execution_id,
        "conversation": turn.conversation,
        "member": turn.member,
        "status": turn.status,
        "terminal_reason": turn.terminal_reason,
        "started_at": wall(),
    }


def turn_of(row: "Row[Any]") -> TurnRecord:
    """Return the record of a row; older words are read as today's."""
    return TurnRecord(
        id=row.id,
        execution_id=row.execution_id,
        conversation=row.conversation,
        member=row.member,
        status=TurnStatus(read_reason(row.status)),
        terminal_reason=_read(row.terminal_reason),
    )


def response_values(response: ResponseRecord) -> dict[str, Any]:
    """Return the columns of a new response."""
    return {
        "turn_id": response.turn_id,
        "execution_id": response.execution_id,
        "conversation": response.conversation,
        "member": response.member,
        "status": response.status,
        "reason": response.reason,
        "text": response.text,
        "metadata": response.metadata,
        "created_at": wall(),
    }


def response_of(row: "Row[Any]") -> ResponseRecord:
    """Return the record of a row; older words are read as today's."""
    return ResponseRecord(
        turn_id=row.turn_id,
        execution_id=row.execution_id,
        conversation=row.conversation,
        member=row.member,
        status=ResponseStatus(read_reason(row.status)),
        reason=_read(row.reason),
        text=row.text,
        metadata=row._mapping["metadata"],
    )


def _read(reason: str | None) -> str | None:
    return None if reason is None else read_reason(reason)
