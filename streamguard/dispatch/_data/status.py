"""What the end of a turn means for each reader. Pure.

A turn has one `TurnEnd`. The response, the turn's record, the queue and the routing signal are each a function of it, so
that one hang is never *failed* in one place, *completed* in another and *cancelled* in the queue. docs/dispatch_rules.md
lists the rules by their numbers.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from ..._text import counted
from .turn_events import STARTUP_TIMEOUT

TIMEOUT = "timeout"
USER_CANCEL = "user_cancel"
CANCEL_ALL = "cancel_all"
PREEMPTED = "preempted"
PROCESS_RESTART = "process_restart"
OUTPUT_COMMIT_REJECTED = "output_commit_rejected"
ENDED_WITHOUT_DONE = "ended_without_done"

_BY_USER = frozenset({USER_CANCEL, CANCEL_ALL})
_OLD_REASONS = {"invocation_timeout": TIMEOUT, "canceled": "cancelled"}
_PHASES = ("connect", "response", "first", "idle", "dead", "total", "step", "call")
_TIMEOUTS = frozenset(
    {TIMEOUT, STARTUP_TIMEOUT, "deadline_exceeded", "ETIMEDOUT", *(f"{phase}_timeout" for phase in _PHASES)}
)


class ResponseStatus(StrEnum):
    """Status of a member's durable answer."""

    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class TurnStatus(StrEnum):
    """Status of one member's run."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class ExecutionStatus(StrEnum):
    """Status of a dispatch, and of each member's part in it as the queue counts it."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


Status = TypeVar("Status", bound=StrEnum)


class StatusAndReason(NamedTuple, Generic[Status]):
    """A status and its reason, as recorded. Reasons are free strings: a new reason needs no new column (R24)."""

    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended: the decision that came first (T5). At most one of `done`, `stop` and `failed` is set."""

    done: bool = False
    """The member sent `done` without an error."""
    stop: str | None = None
    """Why it was stopped: `timeout`, `user_cancel`, `cancel_all`, `preempted`, or the caller's own word."""
    failed: bool = False
    error: str | None = None
    """The error code, if the member failed and gave one."""
    message: str = ""
    """The error's message, for people."""


def response_status(end: TurnEnd, *, commit_refused: bool = False) -> StatusAndReason[ResponseStatus]:
    """Return the status and reason of the response (R15).

    One row is stricter than the original design: a run that ended without `done`, stop or error is `interrupted`, as in
    the turn's record, and not `completed`.
    """
    if commit_refused:
        return StatusAndReason(ResponseStatus.INTERRUPTED, OUTPUT_COMMIT_REJECTED)
    if end.stop == TIMEOUT:
        return StatusAndReason(ResponseStatus.FAILED, TIMEOUT)
    if end.stop is not None:
        status = ResponseStatus.CANCELLED if end.stop in _BY_USER else ResponseStatus.INTERRUPTED
        return StatusAndReason(status, end.error or end.stop)
    if end.failed:
        return StatusAndReason(ResponseStatus.FAILED, end.error or "provider_error")
    if not end.done:
        return StatusAndReason(ResponseStatus.INTERRUPTED, ENDED_WITHOUT_DONE)
    return StatusAndReason(ResponseStatus.COMPLETED, ResponseStatus.COMPLETED.value)


def turn_status(end: TurnEnd) -> StatusAndReason[TurnStatus]:
    """Return the status and reason of the turn's record (R17)."""
    if end.done and not end.failed and end.stop is None:
        return StatusAndReason(TurnStatus.SUCCEEDED, TurnStatus.SUCCEEDED.value)
    if end.stop == TIMEOUT:
        return StatusAndReason(TurnStatus.FAILED, TIMEOUT)
    if end.stop is not None:
        return StatusAndReason(TurnStatus.CANCELLED, end.stop)
    if end.failed:
        return StatusAndReason(TurnStatus.FAILED, end.error or "provider_execution_failed")
    return StatusAndReason(TurnStatus.INTERRUPTED, ENDED_WITHOUT_DONE)


def member_status(*, error: str | None, stop: str | None) -> ExecutionStatus:
    """Return what the queue counts for one `done` event (R19). A timeout is a failure, never a cancel.

    error: the error code of the `done` event.
    stop:  the reason for which the member was stopped.
    """
    if stop is not None and stop != TIMEOUT:
        return ExecutionStatus.CANCELLED
    return ExecutionStatus.SUCCEEDED if error is None and stop is None else ExecutionStatus.FAILED


@dataclass(slots=True)
class Tally:
    """Counts the result of each member of a dispatch, and derives the status of the whole (R19, R20)."""

    members: dict[str, ExecutionStatus] = field(default_factory=dict)
    error: str | None = None
    """The first error: a later error does not replace it."""

    def count(self, member: str, status: ExecutionStatus, reason: str) -> None:
        """Record the result of a turn of *member*. A later failure replaces a success; nothing replaces a failure."""
        if status is ExecutionStatus.FAILED and self.error is None:
            self.error = reason
        if self.members.get(member) is not ExecutionStatus.FAILED:
            self.members[member] = status

    def status(self, targets: Iterable[str], batch_stop: str | None = None) -> StatusAndReason[ExecutionStatus]:
        """Return the status of a dispatch to *targets*; *batch_stop* is the reason if all of it was stopped."""
        if batch_stop is not None:
            return StatusAndReason(ExecutionStatus.CANCELLED, batch_stop)
        statuses = [self.members.get(target) for target in targets]
        if statuses and all(status is ExecutionStatus.CANCELLED for status in statuses):
            return StatusAndReason(ExecutionStatus.CANCELLED, USER_CANCEL)
        if ExecutionStatus.FAILED in statuses or None in statuses:
            return StatusAndReason(ExecutionStatus.FAILED, self.error or ENDED_WITHOUT_DONE)
        return StatusAndReason(ExecutionStatus.SUCCEEDED, ExecutionStatus.SUCCEEDED.value)


def silence_sentence(silence: float) -> str:
    """Return the sentence that a person reads about *silence* seconds without output (R16, T23)."""
    return f"Response timed out: no output for {_spelled(silence)}, stopped."


def _spelled(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.1g} seconds"
    number, unit = _half_up(seconds), "second"
    if number >= 60:
        number, unit = _half_up(seconds / 60), "minute"
    return counted(number, unit)


def _half_up(number: float) -> int:
    return math.floor(number + 0.5)


def read_reason(reason: str) -> str:
    """Return a recorded reason in current words: older records say `invocation_timeout` or `canceled` (R23)."""
    return _OLD_REASONS.get(reason, reason)


def routing_signal(reason: str) -> str:
    """Return the routing signal for a response's *reason*: `provider_timeout` for every timeout, else the reason itself."""
    reason = read_reason(reason)  # R23
    return "provider_timeout" if reason in _TIMEOUTS else reason


def may_restart(*, error: str | None, frames: int, resumed: bool, attempt: int, stopped: bool) -> bool:
    """Return whether a turn is started again with a new session (R27).

    Only after a start-up timeout without a single frame, on a resumed session, once. The silence of a member that began to
    answer never causes a second run.
    """
    return error == STARTUP_TIMEOUT and frames == 0 and resumed and attempt == 1 and not stopped
