"""The events that hooks receive: one frozen object for each.

No event holds a URL, a header, an argument, a body, or the text of an error: only the name of its type. Ids identify a
stream, run or turn in a log or a trace; they are unbounded, so never make one the label of a metric. Constants of your
program (names of runs, steps, members, pools) and fields with a few values (outcome, phase, status, reason, kind, error
type) may be labels. Times are seconds.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._reports import StreamReport

__all__ = [
    "GAP_BOUNDS",
    "AttemptFinished",
    "AttemptStarted",
    "CloserFailed",
    "ConcurrencyChanged",
    "DispatchFinished",
    "Event",
    "Gaps",
    "Hook",
    "RunFinished",
    "RunStarted",
    "StepBudgetReduced",
    "StepFallback",
    "StepFinished",
    "StepRetry",
    "StepStarted",
    "StreamFinished",
    "StreamRetry",
    "StreamStalled",
    "StreamStarted",
    "ThreadAbandoned",
    "TurnFinished",
    "Upstream",
]

GAP_BOUNDS = tuple(0.01 * 2**power for power in range(14))
"""Upper bounds, in seconds, of the buckets of `StreamFinished.gaps`: 0.01, doubled up to 81.92 (OpenTelemetry's GenAI)."""

Gaps = tuple[tuple[int, float], ...]
"""For each bucket of `GAP_BOUNDS`, and one above them: the number of gaps, and the sum of their seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A stream's server, without anything secret."""

    address: str
    """The host's name, without port, user or path."""
    port: int | None = None
    model: str | None = None
    """The payload's `"model"`, if it is one short word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStarted:
    """A stream starts, in the thread and context of its consumer."""

    id: str
    name: str | None
    operation: str | None
    """`"chat"` for a call of a model (its `decode=` or its payload's `"model"` shows it); None for any other stream."""
    upstream: Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A stream's request is about to be sent. A hook's `scope` gets it while the reader thread is made."""

    id: str
    """The stream's."""
    name: str | None
    attempt: int
    """Counted from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFinished:
    """One attempt of a stream has ended, with or without an error."""

    id: str
    name: str | None
    attempt: int
    error_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStalled:
    """A stream has been silent for half of a limit, or for all of it."""

    id: str
    name: str | None
    phase: str
    """connect, response, first, idle or dead."""
    fired: bool
    """True if the limit was used up and the attempt was stopped; False for the warning at half of the limit."""
    limit: float | None
    silence: float | None
    """None if a timeout of requests or of the system fired, which does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRetry:
    """Another attempt of a stream will be made, after a pause."""

    id: str
    name: str | None
    attempt: int
    """The attempt that failed."""
    error_type: str
    phase: str
    pause: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFinished:
    """A stream has ended, with any outcome. Its report is frozen.

    *Limits*: the report holds the server's own `request_id` and `usage`; write only `to_log()` of it to a log.
    """

    report: StreamReport
    operation: str | None
    upstream: Upstream
    gaps: Gaps
    """The times between two chunks that count."""
    deadline: str | None = None
    """The scope of the deadline that ended it: `"total"`, its own, or `"ambient"`, a surrounding one; else None."""
    total: float | None = None
    """The `total=` that fired, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A chain's run starts."""

    id: str
    run: str
    """The chain's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A step is about to run. A hook's `scope` gets it while the step's thread is made."""

    id: str
    """The run's."""
    run: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBudgetReduced:
    """A step gets less time than its own limit, because the run's deadline is nearer."""

    id: str
    run: str
    step: str
    limit: float
    budget: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetry:
    """A step failed and will be tried again."""

    id: str
    run: str
    step: str
    attempt: int
    """The attempt that failed."""
    error_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFallback:
    """A step's fallback was used in place of its result."""

    id: str
    run: str
    step: str
    reason: str
    """Why the step has no result."""
    fallback: str | None
    """The fallback's name."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the step's report that may be logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """A step has ended, or was skipped."""

    id: str
    run: str
    step: str
    status: str
    """ok, timeout, error, skipped, cancelled."""
    reason: str | None
    seconds: float
    error_type: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the step's report that may be logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A chain's run has ended."""

    id: str
    run: str
    status: str | None
    """completed, completed_with_fallback, waiting_external_service, cancelled (also by Ctrl-C); None if a bug ended it."""
    seconds: float
    error_type: str | None = None
    """The class name of the exception that the run raised; else None."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the result that may be logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """One member's turn in a dispatch has ended."""

    id: str
    """The turn's id."""
    execution_id: str
    member: str
    status: str
    """succeeded, failed, cancelled, interrupted."""
    reason: str | None
    seconds: float
    silence: float | None
    """The longest time without output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchFinished:
    """A dispatch has ended."""

    id: str
    """The execution's id."""
    status: str
    members: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadAbandoned:
    """A thread could not be stopped and was abandoned."""

    kind: str
    """What it ran: reader, call, step, turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyChanged:
    """The number of taken places of a bounded pool has changed."""

    pool: str
    in_use: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloserFailed:
    """A closer of a `CancelToken`, or a function that runs at the end of a thread of this package, raised."""

    error_type: str


Event = (
    StreamStarted
    | AttemptStarted
    | AttemptFinished
    | StreamStalled
    | StreamRetry
    | StreamFinished
    | RunStarted
    | StepStarted
    | StepBudgetReduced
    | StepRetry
    | StepFallback
    | StepFinished
    | RunFinished
    | TurnFinished
    | DispatchFinished
    | ThreadAbandoned
    | ConcurrencyChanged
    | CloserFailed
)
"""All events that a hook may receive. Later versions may add some: ignore those that you do not know."""


class Hook(Protocol):
    """The type of the hooks of `set_hooks()`: any callable with one event. It runs in the event's thread and must be quick.

    A hook may have an attribute `scope`, a `Callable[[Event], AbstractContextManager]`. Its context manager is entered
    while the thread of an attempt or a step is made, which copies the context variables that are set there.
    """

    def __call__(self, event: Event, /) -> object:
        """Handle *event*. Its exceptions are caught, and their type is logged once."""


Scope = Callable[[Any], AbstractContextManager[object]]
"""A hook's `scope`."""
