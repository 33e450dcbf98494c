"""The words for how a run and its steps ended, and the arithmetic of their budgets. Pure: times are arguments.

The words are public contract: they only grow. `docs/status.md` lists each of them once.
"""

from dataclasses import dataclass
from typing import Final, Literal

RunStatus = Literal["completed", "completed_with_fallback", "waiting_external_service", "cancelled"]
StepStatus = Literal["ok", "timeout", "error", "skipped", "cancelled"]
Limiter = Literal["step_limit", "deadline_exhausted"]
StopReason = Literal["critical_failed", "run_cancelled"]
"""Why no further step of a run may start."""

RUN_STATUSES: Final[dict[RunStatus, str]] = {
    "completed": "Every step succeeded.",
    "completed_with_fallback": "Every critical step succeeded; a fallback stands in for at least one optional step.",
    "waiting_external_service": "At least one step has no value. No decision was taken.",
    "cancelled": "The caller cancelled before the end. No decision was taken.",
}

STEP_STATUSES: Final[dict[StepStatus, str]] = {
    "ok": "It returned in time, or its `verify=` found that a write was done.",
    "timeout": "A limit fired while it ran.",
    "error": "It failed because of something outside the program.",
    "skipped": "It never started.",
    "cancelled": "It was stopped, or never started, for a reason outside the step.",
}

REASONS: Final[dict[str, str]] = {
    "verified": "ok: the step timed out, and its verify= found that the service had done it.",
    "step_limit": "Its own limit= fired; skipped: that limit was 0 or less.",
    "deadline_exhausted": "The deadline of the run, less the reserve, left it no (more) time.",
    "call_limit": "A limit that the step gave to one of its calls fired.",
    "transport_timeout": "No connection, or no response, within requests' timeout or the stream's connect= or response=.",
    "stream_inactive": "A stream that it read was silent for too long.",
    "unknown_outcome": "A write, or one of its attempts, timed out: the service may have done it, or may still do it.",
    "bulkhead_full": "Its bulkhead= had no free place.",
    "dependency_failed": "A step that it needs has no value.",
    "critical_failed": "A critical step failed, or any step had a bug, which ends the run.",
    "run_cancelled": "The caller's token was cancelled.",
    "fallback_failed": "The step failed, and then its fallback raised.",
    "http_error": "An HTTP error whose status is not known. If it is known: `http_500`.",
    "invalid_json": "The response was not JSON.",
    "validation_failed": "The response was JSON that validate= does not accept.",
    "connection_refused": "Nothing listens at that address.",
    "connection_reset": "The connection broke.",
    "name_resolution": "The host's name was not found.",
    "certificate_invalid": "The server's certificate was not accepted.",
    "too_many_redirects": "requests gave up following redirects.",
    "protocol_error": "The response was not valid HTTP, TLS or compression.",
    "transport_error": "The connection failed in some other way.",
    "invalid_request": "requests refused the URL, a header or the body.",
    "request_failed": "requests failed in some other way.",
    "os_error": "The operating system reported an error that is not of the network.",
    "incomplete_stream": "A stream ended without its end marker.",
    "empty_stream": "A stream ended without any chunk.",
    "in_stream_error": "The server reported an error inside a stream.",
    "malformed_chunk": "A stream contained data that could not be decoded.",
    "not_event_stream": "The response was not an event stream.",
    "stream_cancelled": "The step cancelled one of its own calls.",
    "step_failed": "A step of a chain inside this step failed.",
    "handled_error": "It raised an exception in its handles=.",
    "streamguard_error": "streamguard raised an error that has no reason of its own.",
}
"""Every reason with its meaning. `http_` followed by the status stands for all of its kind."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a step may take, and which limit decided that."""

    seconds: float | None
    """None: no limit."""
    limiter: Limiter

    @property
    def starts(self) -> bool:
        """Whether the step can start."""
        return self.seconds is None or self.seconds > 0


def plan_budget(limit: float | None, remaining: float | None, *, reserve: float = 0.0, min_budget: float = 0.0) -> Budget:
    """Return min(*limit*, *remaining* - *reserve*), all in seconds; None is off.

    If the deadline leaves less than *min_budget*, the budget is 0.
    """
    if remaining is None:
        return Budget(limit, "step_limit")
    left = remaining - reserve
    if left < min_budget:
        left = 0.0
    if limit is not None and limit <= left:
        return Budget(limit, "step_limit")
    return Budget(left, "deadline_exhausted")
