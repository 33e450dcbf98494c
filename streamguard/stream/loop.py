"""The consumer's side of a stream: what one `next()` does.

The order of one step is the contract: the caller's cancel first, then the deadline, then an item that is already here, and
only then a wait, for no longer than the nearest clock. Whoever fires records the reason, then cuts, then raises.
"""

import logging
import queue
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import requests

from ..core.cancel import CancelToken
from ..core.clock import monotonic
from ..core.deadline import Deadline, current_deadline
from ..core.limits import Timeouts
from ..core.pump import End, Feed, Pump
from ..errors import StreamguardError, UsageError
from ..sse import MessageAssembler
from .attempt import BAD_BODY_SECONDS, Batch, Opened, Rejected, request_id
from .clocks import Alarm, Phase, StreamClocks
from .decode import Ending
from .failures import Failures
from .heartbeat import HEARTBEAT, Heartbeat
from .report import Outcome, Recorder
from .retry import Attempts

__all__ = ["CLOSED", "Over", "Settings", "Source", "StreamLoop"]

CLOSED = object()
"""The reason of a token that was cancelled by `close()` or by the collector, not by the caller's `cancel()`."""
JOIN_SECONDS = 0.1
"""How long the consumer waits for a cut reader to be gone before it counts it as abandoned."""

_log = logging.getLogger("streamguard")


class Over(Exception):
    """The stream has ended, and there is nothing to tell the consumer but that."""


class Source(Protocol):
    """Where a stream's chunks come from, attempt by attempt."""

    @property
    def host(self) -> str:
        """What messages may say about the upstream."""

    @property
    def reports_phases(self) -> bool:
        """Whether attempts put connect and response phases on the feed."""

    def read(self, feed: Feed) -> Ending:
        """Make one attempt, in the reader thread."""

    def why_not_replayable(self) -> str | None:
        """Say what prevents another attempt, or return None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the caller asked for, checked."""

    limits: Timeouts
    attempts: Attempts
    convert: Callable[[Any], Any] | None
    counts: Callable[[Any], object] | None
    assembler: MessageAssembler | None
    strict: bool
    end_grace: float | None
    heartbeat: float | None


class StreamLoop:
    """Hand over one stream's chunks, under its clocks. Not thread-safe: its owner locks."""

    def __init__(self, source: Source, settings: Settings, token: CancelToken, recorder: Recorder) -> None:
        self.response: requests.Response | None = None
        self._source = source
        self._settings = settings
        self._token = token
        self._recorder = recorder
        self._failures = Failures(recorder, settings.limits, settings.attempts.max_attempts)
        self._clocks = StreamClocks(settings.limits, settings.heartbeat)
        self._ready: deque[Any] = deque()
        self._arrived = 0.0
        self._waited = 0.0
        self._opened = False
        self._gate_open = True
        self._rejected: StreamguardError | None = None
        self._deadline: Deadline | None = None
        self._scope = "total"
        self._pump: Pump[Ending] | None = None

    def start(self) -> None:
        """Capture the deadline and start the first attempt."""
        self._recorder.start()
        total, ambient = self._settings.limits.total, current_deadline()
        own = None if total is None else Deadline.after(total)
        self._deadline = min((d for d in (own, ambient) if d is not None), default=None)
        self._scope = "total" if self._deadline is own else "ambient"
        self._check_stopped()
        self._start_attempt()

    def open(self, until_first: bool) -> None:
        """Go on until the headers, or until the first chunk, are here."""
        while not self._ready and (until_first or not self._opened):
            self._check_stopped()
            self._receive()

    def advance(self) -> Any:
        """Return the next chunk, or HEARTBEAT; raise Over at the end, or what else ended the stream."""
        while True:
            if self._token.cancelled or self._deadline is not None:
                self._check_stopped()
            if self._ready:
                chunk = self._hand_over(self._ready.popleft())
                if chunk is not None:
                    return chunk
            elif self._receive() is Alarm.HEARTBEAT:
                return self._heartbeat()

    def cut(self) -> None:
        """Stop the attempt that is running, if one is, and count its thread if it stays. From any thread."""
        pump, self._pump = self._pump, None
        if pump is not None and not pump.stop("cut", JOIN_SECONDS):
            self._recorder.left_behind.add(self._recorder.attempts)

    @property
    def text(self) -> str | None:
        """The text so far, of a chat stream."""
        return None if self._settings.assembler is None else self._settings.assembler.text

    def _hand_over(self, chunk: Any) -> Any:
        settings, recorder = self._settings, self._recorder
        if settings.convert is not None:
            chunk = settings.convert(chunk)
            if chunk is None:
                return None
        recorder.chunks += 1
        if settings.counts is None:
            self._gate_open = False
        elif settings.counts(chunk):
            self._progressed()
            self._gate_open = False
        if settings.assembler is not None:
            settings.assembler.add(chunk)
        self._clocks.handed_over(self._waited)
        return chunk

    def _heartbeat(self) -> Heartbeat:
        self._clocks.handed_over(self._waited)
        HEARTBEAT.silence = self._clocks.silence(self._waited)
        HEARTBEAT.phase = self._recorder.phase.value
        return HEARTBEAT

    def _check_stopped(self) -> None:
        if self._token.cancelled:
            self._stopped()
        if self._deadline is not None and self._deadline.expired:
            self._keep_what_arrived()
            if self._token.cancelled:
                self._stopped()
            limit = self._settings.limits.total if self._scope == "total" else None
            self._end("timeout", self._failures.deadline(self._scope, limit, self.text))

    def _stopped(self) -> NoReturn:
        self._keep_what_arrived()
        reason = self._token.reason
        if reason is CLOSED:
            self._end("closed", Over())
        self._end("cancelled", self._failures.cancelled(reason, self.text))

    def _keep_what_arrived(self) -> None:
        """Cut; then put the text of chunks that no `next()` will return into what the error can tell."""
        pump = self._pump
        self.cut()
        if self._settings.assembler is not None:
            for chunk in [*self._ready, *self._last_items(pump)]:
                self._settings.assembler.add(chunk)
        self._ready.clear()

    @staticmethod
    def _last_items(pump: Pump[Ending] | None) -> Iterator[Any]:
        while pump is not None:
            item = pump.get(0)
            if isinstance(item, End):
                return
            if isinstance(item, Batch):
                yield from item.chunks

    def _end(self, outcome: Outcome, error: BaseException) -> NoReturn:
        """Conclude with *outcome* and raise *error*, unless a close or cancel from elsewhere came first."""
        failed = isinstance(error, Exception) and not isinstance(error, Over)
        phase = Phase(getattr(error, "phase", None) or Phase.DONE) if failed else self._end_phase(outcome)
        self._recorder.conclude(outcome, phase=phase, error_type=type(error).__name__ if failed else None)
        final = self._recorder.final
        raise Over if final is not None and final.outcome == "closed" else error

    def _end_phase(self, outcome: Outcome) -> Phase:
        return Phase.DONE if outcome in ("completed", "incomplete") else self._recorder.phase

    def _start_attempt(self) -> None:
        self._recorder.attempts += 1
        self._recorder.headers_at = None
        self._opened = False
        self._rejected = None
        self._settings.attempts.starting()
        if self._source.reports_phases:
            self._enter(Phase.CONNECT)
        else:
            connect, response = self._settings.limits.connect, self._settings.limits.response
            both = None if connect is None or response is None else connect + response
            self._recorder.phase = Phase.RESPONSE
            self._clocks.enter(Phase.RESPONSE, self._waited, both)
        token = self._token.child()
        self._pump = Pump(self._source.read, token, name=f"reader-{self._recorder.id}")
        token.on_cancel(token.detach)
        self._pump.start()

    def _enter(self, phase: Phase) -> None:
        self._recorder.phase = phase
        self._clocks.enter(phase, self._waited, getattr(self._settings.limits, phase.value))

    def _receive(self) -> Alarm | None:
        """Take one item, or wait for one as long as the nearest clock allows; return what was due instead."""
        item = self._take(0)
        if item is None:
            item = self._wait_for_item()
        if item is None:
            return self._nothing_came()
        self._handle(item)
        return None

    def _take(self, seconds: float | None) -> object | None:
        try:
            if self._pump is not None:
                return self._pump.get(seconds)
        except queue.Empty:
            return None
        if seconds != 0:
            self._token.wait(seconds)
        return None

    def _wait_for_item(self) -> object | None:
        seconds = self._clocks.wait(self._waited)
        if self._deadline is not None:
            seconds = self._deadline.clamp(seconds)
        begun = monotonic()
        try:
            return self._take(seconds)
        finally:
            self._waited += monotonic() - begun

    def _nothing_came(self) -> Alarm | None:
        """Measured silence decides, never the mere end of a wait; and never while an item is already here."""
        if self._token.cancelled:
            return None
        alarm = self._clocks.alarm(self._waited)
        if alarm is Alarm.WARNING:
            _log.warning(
                "stream silent for half of its limit in phase %s (%.1f s so far)",
                self._recorder.phase.value,
                self._clocks.silence(self._waited),
            )
        elif alarm is Alarm.LIMIT:
            item = self._take(0)
            if item is None:
                self._expired()
            else:
                self._handle(item)
                return None
        return alarm

    def _expired(self) -> None:
        firing = self._clocks.firing(self._waited)
        if firing is None or (self._deadline is not None and self._deadline.expired):
            return  # at one instant, the deadline goes before a phase limit: the next step raises it
        if firing.phase is Phase.RETRY:
            self._start_attempt()
        elif firing.phase is Phase.GRACE:
            self._completed()
        elif self._rejected is not None:
            self._attempt_failed("error", self._failures.from_reader(self._rejected, self.text))
        else:
            self._attempt_failed("timeout", self._failures.limit(firing, monotonic(), self.text))

    def _handle(self, item: object) -> None:
        match item:
            case Batch():
                self._received(item)
            case Phase():
                self._enter(item)
            case Opened():
                self._headers(item)
                self._opened = True
                self._recorder.phase = Phase.FIRST
                self._clocks.opened(self._waited)
            case Rejected():
                self._headers(item)
                self._rejected = item.error
                self._clocks.enter(Phase.RESPONSE, self._waited, 2 * BAD_BODY_SECONDS)
            case End():
                self._ended(item)

    def _headers(self, item: Opened | Rejected) -> None:
        recorder, self.response = self._recorder, item.response
        recorder.headers_at = item.at
        recorder.status_code = item.response.status_code
        recorder.request_id = request_id(item.response)

    def _received(self, batch: Batch) -> None:
        if batch.size:
            self._recorder.received(batch.at, batch.size, batch.comments)
            self._clocks.heard(self._waited)
            if self._pump is not None:
                self._pump.feed.take(batch.size)
        if not batch.chunks:
            return
        self._ready.extend(batch.chunks)
        self._arrived = batch.at
        if self._settings.counts is None:
            self._progressed()
        if batch.ending is Ending.FINISHED:
            self._clocks.finishing(self._waited, self._settings.end_grace)

    def _progressed(self) -> None:
        self._recorder.progressed(self._arrived)
        if self._clocks.phase is not Phase.GRACE:
            self._recorder.phase = Phase.IDLE
            self._clocks.progressed(self._waited)

    def _ended(self, end: End[Ending]) -> None:
        if self._token.cancelled:
            return
        if end.failure is not None:
            self._attempt_failed("error", self._failures.from_reader(end.failure, self.text))
            return
        wanting = end.result is Ending.OPEN or (self._settings.assembler is not None and not self._recorder.chunks)
        if not wanting:
            self._completed()
        elif self._settings.strict:
            self._attempt_failed("error", self._failures.incomplete(self.text))
        else:
            self.cut()
            self._end("incomplete", Over())

    def _completed(self) -> None:
        self.cut()
        self._end("completed", Over())

    def _attempt_failed(self, outcome: Outcome, error: BaseException) -> None:
        """Cut the attempt; then go into the pause before another one, or end the stream with *error*."""
        self.cut()
        if self._token.cancelled:
            self._stopped()
        pause = self._settings.attempts.pause_after(error) if self._gate_open else None
        if pause is None or (self._deadline is not None and pause >= self._deadline.remaining()):
            self._end("timeout" if isinstance(error, TimeoutError) else outcome, error)
        obstacle = self._source.why_not_replayable()
        if obstacle is not None:
            self._end("error", self._not_replayable(obstacle, error))
        self._settings.attempts.sleeping(pause)
        self._recorder.phase = Phase.RETRY
        self._clocks.enter(Phase.RETRY, self._waited, pause)

    def _not_replayable(self, obstacle: str, error: BaseException) -> UsageError:
        refusal = UsageError(
            f"the request cannot be sent again: {obstacle}, which can be read only once. "
            "Pass bytes, or retry=None to get the original error."
        )
        refusal.__cause__ = error
        return refusal
