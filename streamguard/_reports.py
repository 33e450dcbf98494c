"""The report of a stream, as plain frozen data. Pure; the recorder in `_stream` fills it in."""

import datetime
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ._svg import Lane, Span, card, draw, format_seconds
from ._text import counted

Outcome = Literal["running", "completed", "incomplete", "timeout", "cancelled", "closed", "error"]

EndedBy = Literal["done", "eof", "end_grace", "idle", "closed", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class PhaseMark:
    """A phase began."""

    at: float
    """Seconds after the start of the call."""
    phase: str
    attempt: int
    """The attempt that it belongs to, from 1."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The course of a stream, for drawing. Times are seconds after the start of the call."""

    phases: tuple[PhaseMark, ...] = ()
    """In order: the first 128."""
    arrivals: tuple[float, ...] = ()
    """When chunks that count arrived, one for each block read: all of up to 512, above that an even selection."""
    gaps: tuple[tuple[float, float], ...] = ()
    """The longest gaps between such arrivals, at most 8, in order: the start of each, and its seconds."""


_FINISH_REASONS = frozenset(
    {
        *("stop", "length", "tool_calls", "function_call", "content_filter", "error"),
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "eos", "eos_token", "safety"),
        *("model_context_window_exceeded", "completed", "incomplete", "max_output_tokens"),
    }
)
"""The documented finish reasons. Any other word may be any text from the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """How a stream went. Frozen once the stream has ended; before that, a snapshot with outcome `"running"`.

    Durations are seconds on the monotonic clock; `started_at` is a time of the wall clock. What did not happen is None.
    """

    outcome: Outcome
    """completed, incomplete (accepted by `strict=False`), timeout, cancelled, closed (left early), error."""
    phase: str
    """The current or last phase: new, connect, response, first, idle, dead, retry, done."""
    attempts: int
    """Attempts started."""
    chunks: int
    """Chunks handed over."""
    bytes: int
    """Bytes of body received in all attempts, after decompression."""
    comments: int
    """SSE comments (heartbeats) received in all attempts."""
    time_to_headers: float | None
    """From the start of the call to the headers of the last attempt."""
    time_to_first_byte: float | None
    """From the start of the call to the first byte of body."""
    time_to_first_chunk: float | None
    """From the start of the call to the arrival of the first chunk that counts."""
    max_gap: float | None
    """The longest time between the arrivals of two chunks that count, or after the last one: the silence that ended it."""
    lifetime: float
    """From the start of the call to its end (or to now)."""
    finish_reason: str | None
    usage: dict[str, Any] | None
    """The server's token counts; None if it sent none. Never an estimate."""
    abandoned_threads: int
    """Reader threads that could not be woken and were abandoned."""
    error_type: str | None
    """Class name of the exception."""
    id: str
    """streamguard's own id of the call."""
    request_id: str | None
    """The server's id of the (last) request."""
    name: str | None
    """The caller's name for the stream."""
    host: str
    started_at: datetime.datetime
    status_code: int | None = None
    max_byte_gap: float | None = None
    """The longest time without a byte of body, heartbeats included, from the headers on; `dead` limits it."""
    ended_by: EndedBy | None = None
    """What ended it; None while it runs. A stream that is complete, or accepted: done (the protocol's own last event), eof
    (the end of the body), end_grace, or idle (silence after the finish reasons). Else closed, cancelled, or error."""
    trace: Trace = field(default=Trace(), repr=False)
    """When phases began and chunks arrived: a notebook draws it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the trace."""
        # Not `asdict`: its deep copies import, which an object that is finalized at the interpreter's exit cannot.
        values = {name: getattr(self, name) for name in self.__slots__ if name != "trace"}
        return {**values, "started_at": self.started_at.isoformat()}

    def to_log(self) -> dict[str, Any]:
        """Return the fields for a log line: no host, no text from the server (`_OTHER` for an unknown finish reason)."""
        fields = {key: value for key, value in self.to_dict().items() if key not in ("host", "usage", "request_id")}
        known = self.finish_reason is None or self.finish_reason in _FINISH_REASONS
        return fields if known else {**fields, "finish_reason": "_OTHER"}

    def _repr_html_(self) -> str:
        rows = [
            ("phase", self.phase),
            ("attempts", str(self.attempts)),
            ("chunks", f"{self.chunks} ({counted(self.bytes, 'byte')}, {counted(self.comments, 'heartbeat')})"),
            ("first chunk after", format_seconds(self.time_to_first_chunk)),
            ("longest gap", format_seconds(self.max_gap)),
            ("lifetime", format_seconds(self.lifetime)),
            ("finish reason", self.finish_reason or "-"),
        ]
        title = f"stream {self.name or self.id} from {self.host}"
        return card(title, self.outcome, self.error_type, rows, draw(_attempts(self), self.lifetime))

    def __str__(self) -> str:
        title = f"stream {self.name or self.id}{f' from {self.host}' if self.host else ''}: {self.outcome}"
        if self.error_type:
            title += f" ({self.error_type})"
        rows = [
            ("phase", self.phase),
            ("attempts", str(self.attempts)),
            ("chunks", f"{self.chunks} ({counted(self.bytes, 'byte')}, {counted(self.comments, 'comment')})"),
            ("headers after", format_seconds(self.time_to_headers)),
            ("first chunk after", format_seconds(self.time_to_first_chunk)),
            ("longest gap", format_seconds(self.max_gap)),
            ("lifetime", format_seconds(self.lifetime)),
            ("finish reason", self.finish_reason or "-"),
            ("abandoned threads", str(self.abandoned_threads)),
        ]
        return "\n".join([title, *(f"  {label:<18} {value}" for label, value in rows)])


def _attempts(report: StreamReport) -> list[Lane]:
    marks = report.trace.phases
    ends = (*(mark.at for mark in marks[1:]), report.lifetime)
    spans: dict[int, list[Span]] = {}
    for mark, end in zip(marks, ends, strict=False):
        spans.setdefault(mark.attempt, []).append(Span(mark.at, max(mark.at, end), mark.phase))
    lanes = [_attempt(number, tuple(bars), report.trace) for number, bars in spans.items()]
    if lanes and report.outcome == "timeout":
        lanes[-1] = _with_last_silence(lanes[-1], report.lifetime)
    return lanes


def _attempt(number: int, spans: tuple[Span, ...], trace: Trace) -> Lane:
    began, ended = spans[0].start, spans[-1].end
    ticks = tuple(at for at in trace.arrivals if began <= at <= ended)
    gaps = sorted((gap for gap in trace.gaps if began <= gap[0] <= ended), key=lambda gap: gap[1])
    return Lane(f"attempt {number}", spans, ticks, tuple(gaps[-1:]))


def _with_last_silence(lane: Lane, ended: float) -> Lane:
    """Mark the silence that ended it: it is not a gap, because no chunk followed."""
    began = max(lane.spans[-1].start, *lane.ticks[-1:], 0.0)
    return replace(lane, gaps=(*lane.gaps, (began, ended - began)))
