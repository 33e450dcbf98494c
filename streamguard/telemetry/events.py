"""The events that hooks get: one frozen object for each thing that happened.

Nothing here holds a URL, a header, an argument, a body, or another program's error text: of errors only the type's name.
Ids tell two of a kind apart in a log or a trace; they are unbounded, so never make one the label of a metric. All that is
a constant in your program (names of runs, steps, members, pools) or one of a few words (outcome, phase, status, reason,
kind, error type) may be a label. Times are seconds.
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
"""For each bucket of `GAP_BOUNDS`, and one above them: how many gaps, and how long they were together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """What may be reported of a stream's server."""

    address: str
    """The host's name, without port, user or path."""
    port: int | None = None
    model: str | None = None
    """The payload's `"model"`, if it looks like the name of one: a short word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStarted:
    """A stream begins, in the thread and context of its consumer."""

    id: str
    name: str | None
    operation: str | None
    """`"chat"` for a call of a model (it decodes as one, or its payload names a model); None for any other stream."""
    upstream: Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """A stream's request is about to be sent. Entered as a hook's `scope` while the reader thread is made."""

    id: str
    """The stream's."""
    name: str | None
    attempt: int
    """Counted from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFinished:
    """One attempt of a stream is over, well or not."""

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
    """Whether the limit was used up, and the attempt stopped; False is the warning at half of it."""
    limit: float | None
    silence: float | None
    """None where requests' or the system's own timeout fired, which does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRetry:
    """Another attempt of a stream will be made, after a pause."""

    id: str
    name: str | None
    attempt: int
    """The one that failed."""
    error_type: str
    phase: str
    pause: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFinished:
    """A stream has ended, well or not. Its report is frozen.

    *Limits*: the report holds the server's own `request_id` and `usage`; `to_log()` is what a log may hold of it.
    """

    report: StreamReport
    operation: str | None
    upstream: Upstream
    gaps: Gaps
    """The times between two chunks that count."""
    deadline: str | None = None
    """The scope of the deadline that ended it: `"total"`, its own, or `"ambient"`, a surrounding one; None: none did."""
    total: float | None = None
    """The `total=` that fired, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A chain's run begins."""

    id: str
    run: str
    """The chain's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """A step is about to run. Entered as a hook's `scope` while the step's thread is made."""

    id: str
    """The run's."""
    run: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBudgetReduced:
    """A step got less time than its own limit, for the run's deadline is nearer."""

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
    """The one that failed."""
    error_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFallback:
    """A step's fallback was used in place of its result."""

    id: str
    run: str
    step: str
    reason: str
    """Why the step itself gave none."""
    fallback: str | None
    """The fallback's name."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What a log may hold of the step's report."""


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
    """What a log may hold of the step's report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A chain's run has ended."""

    id: str
    run: str
    status: str | None
    """completed, completed_with_fallback, waiting_external_service, cancelled (by Ctrl-C, too); None if a bug ended it."""
    seconds: float
    error_type: str | None = None
    """Of what the run raised, if it raised something."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What a log may hold of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """One member's turn in a dispatch has ended."""

    id: str
    """The turn's."""
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
    """Of the execution."""
    status: str
    members: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadAbandoned:
    """A thread could not be stopped and was abandoned."""

    kind: str
    """What it was for: reader, call, step, turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyChanged:
    """More or fewer places of a bounded pool are taken now."""

    pool: str
    in_use: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CloserFailed:
    """A closer of a `CancelToken`, or a hook at the end of a thread of this package, raised."""

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
"""Whatever a hook may be called with. More kinds may come: ignore those that you do not know."""


class Hook(Protocol):
    """What `set_hooks()` takes: any callable on events. Called in the thread where it happened; be quick.

    If it has an attribute `scope`, a `Callable[[Event], AbstractContextManager]`, that is entered on the submitting thread
    while the thread that does an attempt's or a step's work is made, which copies the context variables set there.
    """

    def __call__(self, event: Event, /) -> object:
        """Take note of *event*. What this raises is swallowed, and its type logged once."""


Scope = Callable[[Any], AbstractContextManager[object]]
"""A hook's `scope`."""
