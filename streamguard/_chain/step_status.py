"""The words for how a run and its steps ended, and the arithmetic of their budgets. Pure: times are arguments.

The words are public contract: they only grow. `docs/status.md` lists each of them once.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

__all__ = [
    "REASONS",
    "RUN_STATUSES",
    "STEP_STATUSES",
    "Budget",
    "Ending",
    "Limiter",
    "RunStatus",
    "StepStatus",
    "plan_budget",
    "run_status",
]

RunStatus = Literal["completed", "completed_with_fallback", "waiting_external_service", "cancelled"]
StepStatus = Literal["ok", "timeout", "error", "skipped", "cancelled"]
Limiter = Literal["step_limit", "deadline_exhausted"]

RUN_STATUSES: Final[dict[RunStatus, str]] = {
    "completed": "Every step succeeded.",
    "completed_with_fallback": "Every critical step succeeded; a fallback stands in for at least one optional step.",
    "waiting_external_service": "At least one step has no value. No decision was taken.",
    "cancelled": "The caller cancelled before the end. No decision was taken.",
}

STEP_STATUSES: Final[dict[StepStatus, str]] = {
    "ok": "It returned in time, or its `verify=` found that a write was done.",
    "timeout": "A limit fired while it ran.",
    "error": "It failed by something outside of the program.",
    "skipped": "It never started.",
    "cancelled": "It was stopped, or never started, because of something else.",
}

REASONS: Final[dict[str, str]] = {
    "verified": "ok: the step timed out, and its verify= found that the service had done it.",
    "step_limit": "Its own limit= fired; skipped: that limit was 0 or less.",
    "deadline_exhausted": "The run's deadline, less the reserve, left it no (more) time.",
    "call_limit": "A limit that the step itself gave to a call fired.",
    "transport_timeout": "No connection, or no answer, within a limit of requests' or the stream's connect= or response=.",
    "stream_inactive": "A stream that it read went silent.",
    "unknown_outcome": "A write, or one of its attempts, timed out: the service may have done it, or may do it yet.",
    "dependency_failed": "A step that it needs has no value.",
    "critical_failed": "A critical step failed, or any step had a bug, which ends the run.",
    "run_cancelled": "The caller's token was cancelled.",
    "fallback_failed": "The step failed, and then its fallback raised.",
    "http_error": "An HTTP error whose status is not known; else the status: `http_500`.",
    "invalid_json": "The answer was not JSON.",
    "connection_refused": "Nobody listens there.",
    "connection_reset": "The connection broke.",
    "name_resolution": "The host's name was not found.",
    "certificate_invalid": "The server's certificate was not accepted.",
    "too_many_redirects": "requests gave up following redirects.",
    "protocol_error": "What came was no proper HTTP, TLS or compression.",
    "transport_error": "The connection failed in some other way.",
    "invalid_request": "requests refused the URL, a header or the body.",
    "request_failed": "requests failed in some other way.",
    "os_error": "The operating system reported an error that is not of the network.",
    "incomplete_stream": "A stream ended without saying that it was complete.",
    "empty_stream": "A stream ended without a single chunk.",
    "in_stream_error": "The server reported an error inside a stream.",
    "malformed_chunk": "A stream carried what could not be decoded.",
    "not_event_stream": "The answer was no event stream.",
    "stream_cancelled": "The step's own code cancelled a call of its own.",
    "step_failed": "A step of a chain inside of this step failed.",
    "handled_error": "It raised one of its handles=.",
    "streamguard_error": "streamguard raised an error that has no word of its own.",
}
"""Every reason with its meaning. `http_` followed by the status stands for all of its kind."""


class Ending(Protocol):
    """What of a step's report decides about the run."""

    @property
    def reason(self) -> str | None:
        """Return why the step ended as it did."""
        ...

    @property
    def fallback(self) -> str | None:
        """Return the name of the fallback that was used."""
        ...

    @property
    def has_value(self) -> bool:
        """Return whether the step has a value, its own or a fallback."""
        ...


def run_status(steps: Iterable[Ending]) -> RunStatus:
    """Fold the endings of all steps into the status of the run: a missing value is never a completion."""
    endings = list(steps)
    if any(step.reason == "run_cancelled" for step in endings):
        return "cancelled"
    if not all(step.has_value for step in endings):
        return "waiting_external_service"
    return "completed_with_fallback" if any(step.fallback is not None for step in endings) else "completed"


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a step may take, and which limit decided that."""

    seconds: float | None
    """None: without end."""
    limiter: Limiter

    @property
    def starts(self) -> bool:
        """Whether there is enough of it for the step to start."""
        return self.seconds is None or self.seconds > 0


def plan_budget(limit: float | None, remaining: float | None, *, reserve: float = 0.0, min_budget: float = 0.0) -> Budget:
    """Return min(*limit*, *remaining* - *reserve*), all in seconds; None is no limit.

    What the deadline leaves is nothing at all if it is less than *min_budget*.
    """
    if remaining is None:
        return Budget(limit, "step_limit")
    left = remaining - reserve
    if left < min_budget:
        left = 0.0
    if limit is not None and limit <= left:
        return Budget(limit, "step_limit")
    return Budget(left, "deadline_exhausted")
