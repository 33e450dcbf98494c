"""The output timeout: a state machine over the silence clock. Pure: the monotonic time is an argument (T8).

Only real output re-arms it (R3, R4). The measured silence decides, not the fact that a wait ended (R5). CPU use defers it,
up to twice the timeout since the last output (R6). It fires once.
"""

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ..._core.silence import SilenceClock
from ...errors import UsageError
from .turn_events import OUTPUT_KINDS, Event, Kind

_SAMPLE_LEAD = 2.0
_SHORTEST_WAIT = 0.05
_MOST_TOOLS = 256


class Activity(StrEnum):
    """CPU activity of a member's processes. Only `busy` defers the timeout."""

    BUSY = "busy"
    IDLE = "idle"
    DEAD = "dead"
    ABSENT = "absent"
    """The member has no process of ours."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The state of the turn when the timeout fired (R7). Instants are on the monotonic clock, durations in seconds."""

    timeout: float
    """The limit that was exceeded: the timeout, or the allowance of a running tool."""
    silence: float
    """Since the last output; without output, since the timer was made."""
    lifetime: float
    """Since the timer was made."""
    activity: Activity
    cpu_rate: float | None = None
    """Processors that the member's processes kept busy at the end; None if not measured."""
    deferrals: int = 0
    """Number of times that CPU use has deferred the firing since the last output."""
    deferred: float = 0.0
    """Total time of these deferrals."""
    first_output_at: float | None = None
    last_output_at: float | None = None
    last_output_kind: Kind | None = None
    last_signal_at: float | None = None
    last_signal_kind: Kind | None = None
    """The kind of the last event that was not output."""
    uncounted: dict[str, int] = field(default_factory=dict)
    """Number of events, by kind, that were not output."""
    tools: tuple[str, ...] = ()
    """Names of the tool calls without a result."""
    phase: str | None = None
    """Phase of the turn: custody (waiting for the session lock), starting, running."""
    turn_id: str | None = None
    stop_result: bool | None = None
    """Whether the stop took effect; False makes this diagnosis void (T7)."""

    @property
    def process_alive(self) -> bool:
        """Whether the member was alive: every activity but `dead`, so also a member without a process of ours."""
        return self.activity is not Activity.DEAD

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {**asdict(self), "tools": [*self.tools], "process_alive": self.process_alive}


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due; ask again after this many seconds (infinity: it cannot fire any more)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Defer:
    """The time is up, but the member uses CPU; ask again after this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fire:
    """Stop the member. Returned once."""

    diagnosis: Diagnosis


@dataclass(slots=True)
class _Seen:
    """The observations so far, for the diagnosis."""

    first_output_at: float | None = None
    last_output_at: float | None = None
    last_output_kind: Kind | None = None
    last_signal_at: float | None = None
    last_signal_kind: Kind | None = None
    uncounted: dict[str, int] = field(default_factory=dict)

    def output(self, now: float, kind: Kind) -> None:
        if self.first_output_at is None:
            self.first_output_at = now
        self.last_output_at, self.last_output_kind = now, kind

    def signal(self, now: float, kind: Kind) -> None:
        self.last_signal_at, self.last_signal_kind = now, kind
        self.uncounted[kind] = self.uncounted.get(kind, 0) + 1


LATE_SECONDS = 0.25
"""A wake-up later than this means that this process was itself stopped (^Z, a paused container) and read nothing."""
MOST_EXCUSES = 3
"""Number of late wake-ups in one silence that shorten it."""


class OutputTimeout:
    """The one timer of a turn.

    timeout:      seconds without output; 0 or less: it never fires.
    now:          the instant at which it starts: before the session lock and the process start (R1).
    tool_timeout: seconds without output while a tool call runs, if longer than *timeout*. Default: none.

    Raises UsageError for NaN.

    Limits
        It has no lock. If one thread observes and another asks, hold one lock around each call, so that no firing passes a
        `close()` (T4).
    """

    __slots__ = (
        "_armed",
        "_clock",
        "_deferral_since",
        "_deferrals",
        "_deferred_before",
        "_deferred_until",
        "_excuses",
        "_paused_at",
        "_seen",
        "_start",
        "_tool_timeout",
        "_tools",
        "timeout",
    )

    def __init__(self, timeout: float, now: float, *, tool_timeout: float | None = None) -> None:
        if math.isnan(timeout) or (tool_timeout is not None and math.isnan(tool_timeout)):
            raise UsageError("output_timeout= and tool_timeout= must be numbers of seconds, got nan")
        self.timeout = timeout
        self._tool_timeout = max(timeout, tool_timeout or 0.0)
        self._armed = timeout > 0
        self._clock = SilenceClock(timeout, now)
        self._start = now
        self._paused_at: float | None = None
        self._deferrals = 0
        self._deferred_before = 0.0
        self._deferral_since: float | None = None
        self._deferred_until: float | None = None
        self._excuses = 0
        self._seen = _Seen()
        self._tools: dict[str, str] = {}

    def observe(self, now: float, what: Event | Kind) -> bool:
        """Observe an event of the member at *now*; return whether it was output, which gives the full timeout again.

        Pass the event if there is one: a kind alone counts by its kind, and has no tool call. After the firing or
        `close()`, nothing is observed any more (T3).
        """
        if not self._armed:
            return False
        kind, counts = (what.kind, what.is_output) if isinstance(what, Event) else (what, what in OUTPUT_KINDS)
        if isinstance(what, Event):
            self._follow_tools(what)
        if counts:
            self.rearm(now, kind)
        else:
            self._seen.signal(now, kind)
        return counts

    def rearm(self, now: float, kind: Kind) -> None:
        """Give the full timeout again, for any *kind*: for callers that count more than output."""
        if self._armed:
            self._seen.output(now, kind)
            self._clock.observe(now)
            self._deferred_before = self.deferred(now)
            self._deferral_since = self._deferred_until = None
            self._deferrals = self._excuses = 0

    def pause(self, now: float) -> None:
        """Stop the clock at *now*, because the member is held back by us (T1). Idempotent."""
        if self._paused_at is None:
            self._paused_at = now

    def resume(self, now: float) -> None:
        """Continue the clock from the pause."""
        if self._paused_at is not None:
            shift = max(0.0, now - max(self._paused_at, self._clock.since))
            self._clock.observe(self._clock.since + shift)
            self._paused_at = None

    def excuse(self, now: float, late: float) -> float:
        """Report that the wake-up at *now* was *late* seconds late; return the seconds by which this shortens the silence.

        A lateness above `LATE_SECONDS` is subtracted, plus `LATE_SECONDS` to read what arrived meanwhile. This happens
        `MOST_EXCUSES` times in one silence, so that a machine that is always late cannot defer the limit for ever.
        """
        if late <= LATE_SECONDS or self._paused_at is not None or self._excuses >= MOST_EXCUSES:
            return 0.0
        taken = max(0.0, min(late + LATE_SECONDS, self._clock.silence(now)))
        self._excuses += taken > 0
        self._clock.observe(self._clock.since + taken)
        return taken

    def needs_sample(self, now: float) -> bool:
        """Return whether expiry is near enough to measure the member's CPU now, for `due()` (T11)."""
        return self._armed and self._paused_at is None and self._clock.silence(now) >= self._limit - self._lead

    def due(self, now: float, activity: Activity, cpu_rate: float | None = None) -> Wait | Defer | Fire:
        """Return what is due at *now*, given the CPU activity of the member. It may be asked early, and often.

        A `Wait` ends when the next CPU sample is to be taken; two are taken before it fires. While the clock is paused,
        nothing is due; ask again, as the pause may have ended.
        """
        if not self._armed:
            return Wait(math.inf)
        if self._paused_at is not None:
            return Wait(self._wait_in_pause(self._paused_at))
        silence = self._clock.silence(now)
        if silence < self._limit:
            return Wait(self._to_next_sample(self._limit - silence))
        if self._deferred_until is not None and now < self._deferred_until:
            return Defer(self._to_next_sample(self._deferred_until - now))
        if activity is Activity.BUSY and silence < self._cap:
            return self._defer(now, min(self.timeout, self._cap - silence))
        diagnosis = self.diagnosis(now, activity, cpu_rate)
        self._deferred_before, self._deferral_since = self.deferred(now), None
        self.close()
        return Fire(diagnosis)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tool calls without a result."""
        return tuple(self._tools.values())

    def deferred(self, now: float) -> float:
        """Return the seconds by which CPU use has deferred the firing, in total."""
        return self._deferred_before + self._deferral(now)

    def diagnosis(self, now: float, activity: Activity, cpu_rate: float | None = None) -> Diagnosis:
        """Return the diagnosis at *now*."""
        return Diagnosis(
            timeout=self._limit,
            silence=self._clock.silence(now),
            lifetime=now - self._start,
            activity=activity,
            cpu_rate=cpu_rate,
            deferrals=self._deferrals,
            deferred=self._deferral(now),
            tools=self.tools,
            **asdict(self._seen),
        )

    def close(self) -> None:
        """Stop for good: never fire, observe nothing (R8). Idempotent."""
        self._armed = False

    @property
    def _limit(self) -> float:
        return self._tool_timeout if self._tools else self.timeout

    @property
    def _cap(self) -> float:
        return max(2 * self.timeout, self._limit)

    @property
    def _lead(self) -> float:
        return min(_SAMPLE_LEAD, self.timeout / 2)

    def _deferral(self, now: float) -> float:
        return 0.0 if self._deferral_since is None else now - self._deferral_since

    def _to_next_sample(self, left: float) -> float:
        return left - self._lead if left > self._lead else left

    def _wait_in_pause(self, paused_at: float) -> float:
        # The end of a pause is not announced, and most are short. The time left at its start is also left at its end, so
        # nothing can be due earlier.
        left = self._limit - max(0.0, self._clock.silence(paused_at))
        return max(self._to_next_sample(left), _SHORTEST_WAIT)

    def _defer(self, now: float, seconds: float) -> Defer:
        self._deferrals += 1
        if self._deferral_since is None:
            self._deferral_since = now
        self._deferred_until = now + seconds
        return Defer(self._to_next_sample(seconds))

    def _follow_tools(self, event: Event) -> None:
        key = event.tool_id or event.tool or ""
        if event.kind is Kind.TOOL_CALL and not event.delta and len(self._tools) < _MOST_TOOLS:
            self._tools[key] = event.tool or "a tool"
        elif event.kind is Kind.TOOL_RESULT:
            self._tools.pop(key, None)
