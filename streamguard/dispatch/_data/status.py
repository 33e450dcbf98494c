"""What a turn's end amounts to, for everyone who asks. Pure.

A turn has one `TurnEnd`. The response, the turn's record, the queue and the routing signal are each a function of it, so
that one hang is never *failed* here, *completed* there and *cancelled* in the queue.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from .turn_events import STARTUP_TIMEOUT

__all__ = [
    "CANCEL_ALL",
    "ENDED_WITHOUT_DONE",
    "OUTPUT_COMMIT_REJECTED",
    "PREEMPTED",
    "PROCESS_RESTART",
    "TIMEOUT",
    "USER_CANCEL",
    "ExecutionStatus",
    "ResponseStatus",
    "Tally",
    "TurnEnd",
    "TurnStatus",
    "Verdict",
    "may_restart",
    "member_status",
    "read_reason",
    "response_verdict",
    "routing_signal",
    "timeout_sentence",
    "turn_verdict",
]

TIMEOUT = "timeout"
USER_CANCEL = "user_cancel"
CANCEL_ALL = "cancel_all"
PREEMPTED = "preempted"
PROCESS_RESTART = "process_restart"
OUTPUT_COMMIT_REJECTED = "output_commit_rejected"
ENDED_WITHOUT_DONE = "ended_without_done"

_BY_USER = frozenset({USER_CANCEL, CANCEL_ALL})
_OLD_REASONS = {"invocation_timeout": TIMEOUT, "canceled": "cancelled"}
_SIGNALS = {TIMEOUT: "provider_timeout"}


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


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended: what won its first-wins cell (T5). At most one of `done`, `stop` and `failed` holds."""

    done: bool = False
    """The member said `done`, with no error."""
    stop: str | None = None
    """Why it was stopped: `timeout`, `user_cancel`, `cancel_all`, `preempted`, or a caller's own word."""
    failed: bool = False
    error: str | None = None
    """The error's code, if the member failed and gave one."""
    message: str = ""
    """What the error said, for people."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A status and the reason for it, as they are recorded. Reasons are free strings: new ones need no new column."""

    status: StrEnum
    reason: str


def response_verdict(ending: TurnEnd, *, commit_refused: bool = False) -> Verdict:
    """Return what the response says (R15).

    One row is stricter than the design it comes from: a run that just ended, without `done`, stop or error, is
    `interrupted` and not `completed`, as it is in the turn's record.
    """
    if commit_refused:
        return Verdict(ResponseStatus.INTERRUPTED, OUTPUT_COMMIT_REJECTED)
    if ending.stop == TIMEOUT:
        return Verdict(ResponseStatus.FAILED, TIMEOUT)
    if ending.stop is not None:
        status = ResponseStatus.CANCELLED if ending.stop in _BY_USER else ResponseStatus.INTERRUPTED
        return Verdict(status, ending.error or ending.stop)
    if ending.failed:
        return Verdict(ResponseStatus.FAILED, ending.error or "provider_error")
    if not ending.done:
        return Verdict(ResponseStatus.INTERRUPTED, ENDED_WITHOUT_DONE)
    return Verdict(ResponseStatus.COMPLETED, ResponseStatus.COMPLETED.value)


def turn_verdict(ending: TurnEnd) -> Verdict:
    """Return what the turn's record says (R17)."""
    if ending.done and not ending.failed and ending.stop is None:
        return Verdict(TurnStatus.SUCCEEDED, TurnStatus.SUCCEEDED.value)
    if ending.stop == TIMEOUT:
        return Verdict(TurnStatus.FAILED, TIMEOUT)
    if ending.stop is not None:
        return Verdict(TurnStatus.CANCELLED, ending.stop)
    if ending.failed:
        return Verdict(TurnStatus.FAILED, ending.error or "provider_execution_failed")
    return Verdict(TurnStatus.INTERRUPTED, ENDED_WITHOUT_DONE)


def member_status(*, error: str | None, stop: str | None) -> ExecutionStatus:
    """Return what the queue counts for one `done` (R19): *error* is its code, *stop* the reason of the member's tombstone.

    A timeout is a failure, never a cancel.
    """
    if stop is not None and stop != TIMEOUT:
        return ExecutionStatus.CANCELLED
    return ExecutionStatus.SUCCEEDED if error is None and stop is None else ExecutionStatus.FAILED


@dataclass(slots=True)
class Tally:
    """Counts what became of each member of a dispatch, and sums it up (R19, R20)."""

    members: dict[str, ExecutionStatus] = field(default_factory=dict)
    error: str | None = None
    """The first error: a later one does not replace it."""

    def count(self, member: str, status: ExecutionStatus, reason: str) -> None:
        """Note what a turn of *member* came to. A later failure takes back a success; nothing takes back a failure."""
        if status is ExecutionStatus.FAILED and self.error is None:
            self.error = reason
        if self.members.get(member) is not ExecutionStatus.FAILED:
            self.members[member] = status

    def verdict(self, targets: Iterable[str], batch_stop: str | None = None) -> Verdict:
        """Return the status of the whole dispatch to *targets*; *batch_stop* is why all of it was stopped, if it was."""
        if batch_stop is not None:
            return Verdict(ExecutionStatus.CANCELLED, batch_stop)
        statuses = [self.members.get(target) for target in targets]
        if statuses and all(status is ExecutionStatus.CANCELLED for status in statuses):
            return Verdict(ExecutionStatus.CANCELLED, USER_CANCEL)
        if ExecutionStatus.FAILED in statuses or None in statuses:
            return Verdict(ExecutionStatus.FAILED, self.error or ENDED_WITHOUT_DONE)
        return Verdict(ExecutionStatus.SUCCEEDED, ExecutionStatus.SUCCEEDED.value)


def timeout_sentence(silence: float) -> str:
    """Return the one sentence that a person reads about *silence* seconds without output (R16)."""
    return f"Response timed out: no output for {_spelled(silence)}, stopped."


def _spelled(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:.1g} seconds"
    number, unit = _half_up(seconds), "second"
    if number >= 60:
        number, unit = _half_up(seconds / 60), "minute"
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _half_up(number: float) -> int:
    return math.floor(number + 0.5)


def read_reason(reason: str) -> str:
    """Return a recorded reason in today's words: older records say `invocation_timeout`, or `canceled` (R23)."""
    return _OLD_REASONS.get(reason, reason)


def routing_signal(reason: str) -> str:
    """Return what routing is told about a response's *reason*: `provider_timeout` for a timeout, old or new (R23).

    Reasons that nobody here knows pass through.
    """
    reason = read_reason(reason)
    return _SIGNALS.get(reason, reason)


def may_restart(*, error: str | None, frames: int, resumed: bool, attempt: int, stopped: bool) -> bool:
    """Say whether a turn is begun once more with a new session (R27).

    Only after a start-up timeout without a single frame, on a resumed session, once. Silence of a member that had begun is
    never run again.
    """
    return error == STARTUP_TIMEOUT and frames == 0 and resumed and attempt == 1 and not stopped
