"""What happened to a stream: the report that users read, and the recorder that fills it in."""

import datetime
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from .._core.clock import monotonic
from .timing.clocks import Phase
from .timing.gaps import GapCounts
from .timing.trace import Trace, TraceRecorder

__all__ = ["Outcome", "Recorder", "StreamReport"]

Outcome = Literal["running", "completed", "incomplete", "timeout", "cancelled", "closed", "error"]

Summary = tuple[str | None, dict[str, Any] | None]
"""Finish reason and usage, as the stream has told them so far."""

_FINISH_REASONS = frozenset(
    {
        *("stop", "length", "tool_calls", "function_call", "content_filter", "error"),
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "eos", "eos_token", "safety"),
        *("model_context_window_exceeded", "completed", "incomplete", "max_output_tokens"),
    }
)
"""The finish reasons in use: any other word may be any text of the server's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReport:
    """How a stream went. Frozen once the stream has ended; before that, a snapshot with outcome `"running"`.

    Durations are seconds on the monotonic clock; `started_at` is a label of the wall clock. What never happened is None.
    """

    outcome: Outcome
    """completed, incomplete (accepted by `strict=False`), timeout, cancelled, closed (left early), error."""
    phase: str
    """Where it stands or stopped: new, connect, response, first, idle, dead, retry, done."""
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
    """The longest time between the arrivals of two chunks that count."""
    lifetime: float
    """From the start of the call to its end (or to now)."""
    finish_reason: str | None
    usage: dict[str, Any] | None
    """The server's token counts; None if it sent none. Never a guess."""
    abandoned_threads: int
    """Reader threads that could not be woken, and were left behind."""
    error_type: str | None
    """Class name of what was raised."""
    id: str
    """streamguard's own id of the call."""
    request_id: str | None
    """The upstream's id of the (last) request."""
    name: str | None
    """The caller's name for the stream."""
    host: str
    started_at: datetime.datetime
    status_code: int | None = None
    max_byte_gap: float | None = None
    """The longest time without a byte of body, heartbeats included, from the headers on: what `dead` limits."""
    trace: Trace = field(default=Trace(), repr=False)
    """When phases began and chunks came: what a notebook draws."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the trace."""
        # Not `asdict`: its deep copies import, which an object that is finalized at the interpreter's exit cannot.
        values = {name: getattr(self, name) for name in self.__slots__ if name != "trace"}
        return {**values, "started_at": self.started_at.isoformat()}

    def to_log(self) -> dict[str, Any]:
        """Return what a log line may hold: no host, no text of the server's (`_OTHER` for an unknown finish reason)."""
        told = {key: value for key, value in self.to_dict().items() if key not in ("host", "usage", "request_id")}
        known = self.finish_reason is None or self.finish_reason in _FINISH_REASONS
        return told if known else {**told, "finish_reason": "_OTHER"}

    def _repr_html_(self) -> str:
        from ..timeline import stream_html  # where it is drawn, and nowhere else

        return stream_html(self)

    def __str__(self) -> str:
        title = f"stream {self.name or self.id}{f' from {self.host}' if self.host else ''}: {self.outcome}"
        if self.error_type:
            title += f" ({self.error_type})"
        rows = [
            ("phase", self.phase),
            ("attempts", str(self.attempts)),
            ("chunks", f"{self.chunks} ({self.bytes} bytes, {self.comments} comments)"),
            ("headers after", _seconds(self.time_to_headers)),
            ("first chunk after", _seconds(self.time_to_first_chunk)),
            ("longest gap", _seconds(self.max_gap)),
            ("lifetime", _seconds(self.lifetime)),
            ("finish reason", self.finish_reason or "-"),
            ("abandoned threads", str(self.abandoned_threads)),
        ]
        return "\n".join([title, *(f"  {label:<18} {value}" for label, value in rows)])


class Recorder:
    """Collect a stream's numbers, and decide its one outcome: the first `conclude()` wins."""

    def __init__(self, *, name: str | None, host: str, summary: Callable[[], Summary]) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = name
        self.host = host
        self.started: float | None = None
        self.started_at = datetime.datetime.now(datetime.UTC)
        self._phase = Phase.NEW
        self._trace = TraceRecorder()
        self.attempts = 0
        self.chunks = 0
        self.bytes = 0
        self.comments = 0
        self.headers_at: float | None = None
        self.first_byte_at: float | None = None
        self.first_chunk_at: float | None = None
        self.last_byte_at: float | None = None
        self.last_chunk_at: float | None = None
        self.max_gap: float | None = None
        self.max_byte_gap: float | None = None
        self.gaps = GapCounts()
        self._summary = summary
        self.left_behind: set[int] = set()
        """The attempts whose thread could not be woken."""
        self.request_id: str | None = None
        self.status_code: int | None = None
        self.deadline_passed: tuple[str, float | None] | None = None
        """Scope and limit of the deadline that ended it, if one did."""
        self._final: dict[str, StreamReport] = {}

    def start(self) -> None:
        """Note that the call starts now."""
        self.started = monotonic()
        self.started_at = datetime.datetime.now(datetime.UTC)

    def attempt_starts(self) -> None:
        """Count another attempt, and forget what only the one before can have told."""
        self.attempts += 1
        self.headers_at = self.last_byte_at = None
        self.status_code = self.request_id = None

    @property
    def phase(self) -> Phase:
        """Where the stream is."""
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        if phase is not self._phase:
            self._phase = phase
            self._trace.entered(self.lifetime, phase.value, self.attempts)

    def received(self, at: float, size: int, comments: int) -> None:
        """Note *size* bytes and *comments* heartbeats that arrived at *at*."""
        self.bytes += size
        self.comments += comments
        since = self.last_byte_at or self.headers_at
        if since:
            self.max_byte_gap = max(self.max_byte_gap or 0.0, at - since)
        self.last_byte_at = at
        if self.first_byte_at is None:
            self.first_byte_at = at

    def progressed(self, at: float) -> None:
        """Note the arrival of a chunk that counts."""
        if self.first_chunk_at is None:
            self.first_chunk_at = at
        elif self.last_chunk_at is not None:
            gap = at - self.last_chunk_at
            self.max_gap = max(self.max_gap or 0.0, gap)
            self.gaps.add(gap)
        self.last_chunk_at = at
        self._trace.arrived(at - self.started if self.started is not None else 0.0)

    @property
    def lifetime(self) -> float:
        """Seconds since the start; 0 before it."""
        return 0.0 if self.started is None else monotonic() - self.started

    @property
    def final(self) -> StreamReport | None:
        """The frozen report, once there is one."""
        return self._final.get("report")

    def conclude(self, outcome: Outcome, *, phase: Phase | None = None, error_type: str | None = None) -> bool:
        """Freeze the report with this outcome; return False if it was frozen already."""
        report = self.snapshot(outcome, phase=phase, error_type=error_type)
        return self._final.setdefault("report", report) is report

    def snapshot(
        self, outcome: Outcome = "running", *, phase: Phase | None = None, error_type: str | None = None
    ) -> StreamReport:
        """Return the numbers so far."""
        finish_reason, usage = self._summary()
        return StreamReport(
            outcome=outcome,
            phase=(phase or self.phase).value,
            attempts=self.attempts,
            chunks=self.chunks,
            bytes=self.bytes,
            comments=self.comments,
            time_to_headers=self._after(self.headers_at),
            time_to_first_byte=self._after(self.first_byte_at),
            time_to_first_chunk=self._after(self.first_chunk_at),
            max_gap=self.max_gap,
            lifetime=self.lifetime,
            finish_reason=finish_reason,
            usage=usage,
            abandoned_threads=len(self.left_behind),
            error_type=error_type,
            id=self.id,
            request_id=self.request_id,
            name=self.name,
            host=self.host,
            started_at=self.started_at,
            status_code=self.status_code,
            max_byte_gap=self.max_byte_gap,
            trace=self._trace.frozen(),
        )

    def _after(self, at: float | None) -> float | None:
        return None if at is None or self.started is None else at - self.started


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
