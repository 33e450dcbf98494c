"""Collect the numbers of a stream as it runs, and decide its one outcome."""

import datetime
import uuid
from collections.abc import Callable
from typing import Any

from .._core.clock import monotonic
from .._core.once import Once
from .._reports import EndedBy, Outcome, StreamReport
from .timing.clocks import Phase
from .timing.gaps import GapCounts
from .timing.trace import TraceRecorder

Summary = tuple[str | None, dict[str, Any] | None]
"""Finish reason and usage that the stream has reported so far."""


class Recorder:
    """Collect a stream's numbers, and decide its one outcome: the first `conclude()` wins."""

    def __init__(self, *, name: str | None, host: str, summary: Callable[[], Summary]) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = name
        self.host = host
        self.started: float | None = None
        self.started_at = datetime.datetime.now(datetime.UTC)
        self.phase = Phase.NEW
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
        self.abandoned: set[int] = set()
        """The attempts whose thread could not be stopped."""
        self.request_id: str | None = None
        self.status_code: int | None = None
        self.deadline_passed: tuple[str, float | None] | None = None
        """Scope and limit of the deadline that ended the stream, if one did."""
        self._final: Once[StreamReport] = Once()

    def start(self) -> None:
        """Note that the call starts now."""
        self.started = monotonic()
        self.started_at = datetime.datetime.now(datetime.UTC)

    def attempt_starts(self) -> None:
        """Count another attempt, and forget what belongs to the one before."""
        self.attempts += 1
        self.headers_at = self.last_byte_at = None
        self.status_code = self.request_id = None

    def entered(self, phase: Phase) -> None:
        """Note that *phase* begins."""
        self.phase = phase
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

    def silent(self, seconds: float) -> None:
        """Note that *seconds* without a chunk that counts ended the stream."""
        if self.last_chunk_at is not None:
            self.max_gap = max(self.max_gap or 0.0, seconds)

    @property
    def lifetime(self) -> float:
        """Seconds since the start; 0 before it."""
        return 0.0 if self.started is None else monotonic() - self.started

    @property
    def final(self) -> StreamReport | None:
        """The frozen report, once there is one."""
        return self._final.value

    def conclude(
        self,
        outcome: Outcome,
        *,
        ended_by: EndedBy,
        phase: Phase | None = None,
        error_type: str | None = None,
    ) -> bool:
        """Freeze the report with this outcome; return False if it was frozen already."""
        return self._final.set(self.snapshot(outcome, ended_by=ended_by, phase=phase, error_type=error_type))

    def snapshot(
        self,
        outcome: Outcome = "running",
        *,
        ended_by: EndedBy | None = None,
        phase: Phase | None = None,
        error_type: str | None = None,
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
            abandoned_threads=len(self.abandoned),
            error_type=error_type,
            id=self.id,
            request_id=self.request_id,
            name=self.name,
            host=self.host,
            started_at=self.started_at,
            status_code=self.status_code,
            max_byte_gap=self.max_byte_gap,
            ended_by=ended_by,
            trace=self._trace.frozen(),
        )

    def _after(self, at: float | None) -> float | None:
        return None if at is None or self.started is None else at - self.started
