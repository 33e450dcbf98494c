"""The events of a stream for the hooks. It refers to the recorder, never to the stream, so that a finalizer can use it."""

from contextlib import AbstractContextManager

from .._core.once import Once
from .._reports import StreamReport
from ..errors import TransportTimeoutError
from ..telemetry.events import (
    AttemptFinished,
    AttemptStarted,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    StreamStarted,
    Upstream,
)
from ..telemetry.hooks import defer, emit, scope
from .recorder import Recorder
from .timing.clocks import Alarm, Phase


class StreamNotifier:
    """Emit the events of one stream."""

    def __init__(self, recorder: Recorder, upstream: Upstream, *, chat: bool, every_chunk_counts: bool) -> None:
        self._recorder = recorder
        self._upstream = upstream
        self._operation = "chat" if chat or upstream.model else None
        self._every_chunk_counts = every_chunk_counts
        self._finished: Once[StreamReport] = Once()
        """The report whose end was emitted."""

    def started(self) -> None:
        """The call begins."""
        r = self._recorder
        emit(StreamStarted(id=r.id, name=r.name, operation=self._operation, upstream=self._upstream))

    def attempt(self) -> AbstractContextManager[object]:
        """An attempt begins. Return the context in which to make its thread."""
        r = self._recorder
        event = AttemptStarted(id=r.id, name=r.name, attempt=r.attempts)
        emit(event)
        return scope(event)

    def half_silent(self, alarm: Alarm) -> None:
        """Half of the phase's limit is used up."""
        self._stalled(alarm.phase, fired=False, limit=alarm.limit, silence=alarm.elapsed)

    def failed(self, error: BaseException) -> None:
        """An attempt has failed: emit an event if silence was the reason."""
        if isinstance(error, TransportTimeoutError):
            phase = Phase(error.phase or self._recorder.phase)
            self._stalled(phase, fired=True, limit=error.limit, silence=error.elapsed)

    def retrying(self, error: BaseException, pause: float) -> None:
        """Another attempt follows, after *pause* seconds."""
        r, error_type = self._recorder, type(error).__name__
        self._attempt_finished(error_type)
        phase = getattr(error, "phase", None) or r.phase.value
        emit(StreamRetry(id=r.id, name=r.name, attempt=r.attempts, error_type=error_type, phase=phase, pause=pause))

    def finished(self) -> None:
        """The report is final. Only the first call emits the event."""
        report = self._claim()
        if report is None:
            return
        if report.attempts and report.phase != Phase.RETRY:
            self._attempt_finished(report.error_type)
        emit(self._end(report))

    def collected(self) -> None:
        """The stream has ended in a finalizer: the event waits until another one is emitted."""
        report = self._claim()
        if report is not None and report.attempts:
            defer(self._end(report))

    def _claim(self) -> StreamReport | None:
        report = self._recorder.final
        return report if report is not None and self._finished.set(report) else None

    def _stalled(self, phase: Phase, *, fired: bool, limit: float | None, silence: float | None) -> None:
        r = self._recorder
        emit(StreamStalled(id=r.id, name=r.name, phase=phase.value, fired=fired, limit=limit, silence=silence))

    def _attempt_finished(self, error_type: str | None) -> None:
        r = self._recorder
        emit(AttemptFinished(id=r.id, name=r.name, attempt=r.attempts, error_type=error_type))

    def _end(self, report: StreamReport) -> StreamFinished:
        gaps = self._recorder.gaps.frozen(report.chunks if self._every_chunk_counts else 0)
        scope, total = self._recorder.deadline_passed or (None, None)
        return StreamFinished(
            report=report,
            operation=self._operation,
            upstream=self._upstream,
            gaps=gaps,
            deadline=scope,
            total=total,
        )
