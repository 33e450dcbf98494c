"""The consumer's side of a stream: what one `next()` does.

The order of one step is the contract: the caller's cancel first, then the deadline, then an item that is already here, and
only then a wait, for no longer than the nearest clock. Whoever fires records the reason, then cuts, then raises.
"""

import contextlib
import itertools
import os
import queue
from collections.abc import Iterator
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import requests

from .._core.bounded import GRACE_SECONDS, left_behind
from .._core.cancel import CancelToken
from .._core.clock import monotonic
from .._core.deadline import Deadline, current_deadline, deadline
from .._core.forks import forks
from .._core.pump import End, Pump
from .._http import not_event_stream, request_id
from .._reports import Outcome
from ..errors import StreamguardError, UsageError
from .failures import Failures
from .heartbeat import HEARTBEAT, Heartbeat
from .interfaces import CLOSED, Over, Settings, Source
from .recorder import Recorder
from .stream_notifier import Teller
from .timing.clocks import Alarm, Phase, StreamClocks
from .timing.waiting import Waiting
from .upstream.attempt import BAD_BODY_SECONDS, Block, Opened, Rejected
from .upstream.decode import Ending

__all__ = ["StreamLoop"]


_DRAIN_SECONDS = 0.05
"""How long a body may take to end after the end marker, where its connection could then serve others."""
_NONE_LEFT: Final = object()


class StreamLoop:
    """Hand over one stream's chunks, under its clocks. Not thread-safe: its owner locks."""

    def __init__(self, source: Source, settings: Settings, token: CancelToken, recorder: Recorder, teller: Teller) -> None:
        self.response: requests.Response | None = None
        self._source = source
        self._settings = settings
        self._token = token
        self._recorder = recorder
        self._teller = teller
        self._failures = Failures(recorder, settings.limits, settings.attempts.max_attempts)
        self._clocks = StreamClocks(settings.limits, settings.heartbeat)
        self._decoder = settings.make_decoder()
        self._chunks: Iterator[Any] = iter(())
        self._fresh = False
        """Whether the next chunk is more than one to return: the first of its block, or one that the caller looks at."""
        self._looks_at_each = settings.convert is not None or settings.counts is not None
        self._always_fresh = self._looks_at_each or settings.heartbeat is not None
        self._body_ended = False
        self._arrived = 0.0
        self._waiting = Waiting(self._clocks, token)
        self._opened = False
        self._gate_open = True
        self._stop = token._decision  # a property would cost more than the answer
        self._pid = os.getpid()
        self._forks = forks.count
        self.over = False
        self._careful = True
        """Whether a step has more to look at than the token: it has not started, has a deadline, or is over."""
        self._add = None if settings.assembler is None else settings.assembler.add
        self._rejected: StreamguardError | None = None
        self._scope = "total"

    def finish(self) -> None:
        """Let every further step raise Over."""
        self._careful = self.over = True

    def _start(self) -> None:
        """Capture the deadline and start the first attempt."""
        forks.watch()
        self._recorder.start()
        self._teller.started()
        total, ambient = self._settings.limits.total, current_deadline()
        own = None if total is None else Deadline.after(total)
        self._waiting.deadline = min((d for d in (own, ambient) if d is not None), default=None)
        self._scope = "total" if self._waiting.deadline is own else "ambient"
        self._careful = self._waiting.deadline is not None
        self._check_stopped()
        self._start_attempt()

    def open(self, until_first: bool) -> None:
        """Go on until the headers, or until the first chunk, are here."""
        self._check()
        while not (self._recorder.chunks or self._peek() if until_first else self._opened):
            if self._receive() is Alarm.HEARTBEAT:
                self._clocks.handed_over(self._waiting.now)  # not returned from here; without this the wait would spin
            self._check_stopped()

    def advance(self) -> Any:
        """Return the next chunk, or HEARTBEAT; raise Over at the end, or what else ended the stream."""
        while True:
            if self._stop or self._careful:
                self._check()
            try:
                chunk: Any = next(self._chunks, _NONE_LEFT)
            except StreamguardError as exc:
                self._attempt_failed("error", self._failures.from_reader(exc, self.text))
                continue
            if chunk is _NONE_LEFT:
                if self._receive() is Alarm.HEARTBEAT:
                    return self._heartbeat()
                continue
            if self._fresh and (chunk := self._hand_over(chunk)) is _NONE_LEFT:
                continue
            self._recorder.chunks += 1
            if self._add is not None:
                self._add(chunk)
            return chunk

    def beat(self, seconds: float | None) -> None:
        """Let `advance()` return HEARTBEAT after *seconds* of waiting for nothing; None: never."""
        self._always_fresh = self._looks_at_each or seconds is not None
        self._clocks.beat(seconds, self._waiting.now)

    def cut(self) -> None:
        """Stop the attempt that is running, if one is, and count its thread if it stays. From any thread."""
        pump, self._waiting.pump = self._waiting.pump, None
        if pump is not None and not pump.stop("cut", GRACE_SECONDS):
            self._recorder.left_behind.add(self._recorder.attempts)
            left_behind(pump)

    @property
    def text(self) -> str | None:
        """The text so far, of a chat stream."""
        return None if self._settings.assembler is None else self._settings.assembler.text

    def _peek(self) -> bool:
        """Return whether a chunk is here, and leave it there."""
        try:
            chunk = next(self._chunks, _NONE_LEFT)
        except StreamguardError as exc:
            self._attempt_failed("error", self._failures.from_reader(exc, self.text))
            return False
        if chunk is _NONE_LEFT:
            return False
        self._chunks = itertools.chain((chunk,), self._chunks)
        return True

    def _hand_over(self, chunk: Any) -> Any:
        """Convert a chunk as the caller asked, and see whether it counts; return _NONE_LEFT for one to skip."""
        settings = self._settings
        if settings.convert is not None:
            self._waiting.passed()
            chunk = settings.convert(chunk)
            self._waiting.go_on()
            if chunk is None:
                return _NONE_LEFT
        self._waiting.stop()
        if settings.counts is None:
            self._progressed()
            self._fresh = self._always_fresh
        elif settings.counts(chunk):
            self._progressed()
            self._gate_open = False
        self._clocks.handed_over(self._waiting.now)
        return chunk

    def _heartbeat(self) -> Heartbeat:
        self._clocks.handed_over(self._waiting.now)
        self._waiting.stop()
        HEARTBEAT.silence = self._clocks.silence(self._waiting.now)
        HEARTBEAT.phase = self._recorder.phase.value
        left = self._clocks.left(self._waiting.now)
        HEARTBEAT.left = left if self._waiting.deadline is None else self._waiting.deadline.clamp(left)
        return HEARTBEAT

    def _check(self) -> None:
        """Look at everything that may forbid a step; start the stream at its first."""
        if os.getpid() != self._pid:
            raise UsageError("this stream belongs to the parent process: make one in the forked child")
        if self.over:
            raise Over
        if self._recorder.started is None:
            self._start()
        self._check_stopped()

    def _check_stopped(self) -> None:
        if self._token.cancelled:
            self._stopped()
        if self._waiting.deadline is not None and self._waiting.deadline.expired:
            self._keep_what_arrived()
            if self._token.cancelled:
                self._stopped()
            limit = self._settings.limits.total if self._scope == "total" else None
            self._recorder.deadline_passed = (self._scope, limit)
            self._end("timeout", self._failures.deadline(self._scope, limit, self.text))

    def _stopped(self) -> NoReturn:
        self._keep_what_arrived()
        reason = self._token.reason
        if reason is CLOSED:
            self._end("closed", Over())
        self._end("cancelled", self._failures.cancelled(reason, self.text))

    def _keep_what_arrived(self) -> None:
        """Cut; then put the text of chunks that no `next()` will return into what the error can tell."""
        pump = self._waiting.pump
        self.cut()
        if self._add is not None:
            with contextlib.suppress(StreamguardError):
                for chunk in itertools.chain(self._chunks, self._queued(pump)):
                    self._add(chunk)
        self._chunks = iter(())

    def _queued(self, pump: Pump[None] | None) -> Iterator[Any]:
        while pump is not None:
            try:
                item = pump.get(0)
            except queue.Empty:
                return  # a thread that is just cancelling has yet to put the end there
            if isinstance(item, End):
                return
            if isinstance(item, Opened) and item.decoder is not None:
                self._decoder = item.decoder
            if isinstance(item, Block):
                yield from self._decoder.feed(item.data)

    def _end(self, outcome: Outcome, error: BaseException) -> NoReturn:
        """Conclude with *outcome* and raise *error*, unless a close or cancel from elsewhere came first."""
        failed = isinstance(error, Exception) and not isinstance(error, Over)
        told = error.phase if isinstance(error, StreamguardError) else None
        phase = Phase(told or self._recorder.phase) if failed else self._end_phase(outcome)
        self._recorder.conclude(outcome, phase=phase, error_type=type(error).__name__ if failed else None)
        final = self._recorder.final
        raise Over if final is not None and final.outcome == "closed" else error

    def _end_phase(self, outcome: Outcome) -> Phase:
        return Phase.DONE if outcome in ("completed", "incomplete") else self._recorder.phase

    def _start_attempt(self) -> None:
        self._recorder.attempt_starts()
        self.response = None
        self._opened = self._body_ended = self._fresh = False
        self._rejected = None
        self._decoder = self._settings.make_decoder()
        self._chunks = iter(())
        if self._settings.assembler is not None:
            self._settings.assembler.clear()  # chunks that did not count may be there, and this attempt repeats them
        self._settings.attempts.starting()
        if self._source.reports_phases:
            self._enter(Phase.CONNECT)
        else:
            connect, response = self._settings.limits.connect, self._settings.limits.response
            both = None if connect is None or response is None else connect + response
            self._recorder.phase = Phase.RESPONSE
            self._clocks.enter(Phase.RESPONSE, self._waiting.now, both)
        token = self._token.child()
        # The deadline is for what the reader calls in its turn: an auth that fetches a key, a header.
        with self._teller.attempt(), deadline(self._waiting.deadline):
            pump = self._waiting.pump = Pump(self._source.read, token, name=f"reader-{self._recorder.id}")
        token.on_cancel(token.detach)
        pump.start()  # not that of `_waiting`: a close() in another thread takes it away

    def _enter(self, phase: Phase) -> None:
        self._recorder.phase = phase
        self._clocks.enter(phase, self._waiting.now, getattr(self._settings.limits, phase.value))

    def _receive(self) -> Alarm | None:
        """Take what comes next from the reader, or wait for it; return what was due instead."""
        if forks.count != self._forks:  # a function of the caller's has forked in this very step
            self._check()
        self._block_used_up()
        item = self._waiting.receive()
        if not isinstance(item, Alarm):
            self._handle(item)
            return None
        if item is Alarm.WARNING:
            self._teller.half_silent(self._clocks.silence(self._waiting.now), self._clocks.limit)
        elif item is Alarm.LIMIT:
            self._expired()
        return item

    def _expired(self) -> None:
        firing = self._clocks.firing(self._waiting.now)
        if firing is None or (self._waiting.deadline is not None and self._waiting.deadline.expired):
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
            case Block():
                self._received(item)
            case Phase():
                self._enter(item)
            case Opened():
                if item.decoder is not None:
                    self._decoder = item.decoder
                self._headers(item)
                self._opened = item.judged
                if self._clocks.phase is not Phase.FIRST:  # else it runs since these headers came, not yet judged
                    self._recorder.phase = Phase.FIRST
                    self._clocks.opened(self._waiting.now)
            case Rejected():
                self._headers(item)
                self._rejected = item.error
                self._clocks.enter(Phase.RESPONSE, self._waiting.now, 2 * BAD_BODY_SECONDS)
            case End():
                self._ended(item)

    def _headers(self, item: Opened | Rejected) -> None:
        if item.response is None:
            return
        recorder, self.response = self._recorder, item.response
        recorder.headers_at = recorder.headers_at or item.at
        recorder.host = recorder.host or urlsplit(item.response.url or "").netloc.rpartition("@")[2]
        recorder.status_code = item.response.status_code
        recorder.request_id = request_id(item.response)

    def _received(self, block: Block) -> None:
        self._clocks.heard(self._waiting.now)
        pump = self._waiting.pump  # once: a close() in another thread takes it away
        if pump is not None:
            pump.feed.take(block.weight)
        known = self._decoder.comments
        try:
            self._chunks = self._decoder.feed(block.data)
        except StreamguardError as exc:
            self._attempt_failed("error", self._failures.from_reader(exc, self.text))
            return
        self._recorder.received(block.at, block.size, self._decoder.comments - known)
        self._fresh = True
        self._arrived = block.at

    def _progressed(self) -> None:
        self._recorder.progressed(self._arrived)
        self._recorder.phase = Phase.IDLE
        self._clocks.progressed(self._waiting.now)

    def _block_used_up(self) -> None:
        """Every chunk that is here has been taken: see whether the stream says that it is complete."""
        ending = self._decoder.ending
        if self._body_ended or ending is Ending.DONE:
            self._judge(ending)
        phase = self._clocks.phase
        if ending is Ending.FINISHED and phase in (Phase.FIRST, Phase.IDLE):
            self._clocks.finishing(self._waiting.now, self._settings.end_grace)
        elif ending is Ending.OPEN and phase is Phase.GRACE:
            self._clocks.resumed(self._waiting.now)

    def _judge(self, ending: Ending) -> None:
        """The stream is over: complete, or not."""
        pump = self._waiting.pump
        if pump is not None and not self._body_ended and self._source.keeps_connection:
            pump.join(_DRAIN_SECONDS)
        decoder = self._decoder
        vouched = ending is Ending.ANYWHERE or self._settings.assembler is None or self._recorder.chunks
        if decoder.is_foreign:
            error = not_event_stream(self.response, decoder.strays)
            self._attempt_failed("error", self._failures.from_reader(error, self.text))
        elif ending is not Ending.OPEN and vouched:
            self._completed()
        elif self._settings.strict:
            self._attempt_failed("error", self._failures.incomplete(decoder.missing, self.text, decoder.strays))
        else:
            self.cut()
            self._end("incomplete", Over())

    def _ended(self, end: End[None]) -> None:
        if self._token.cancelled:
            return
        if end.failure is not None:
            self._attempt_failed("error", self._failures.from_reader(end.failure, self.text))
            return
        self._body_ended = self._fresh = True
        self._arrived = monotonic()
        self._chunks = self._decoder.finish()

    def _completed(self) -> None:
        self.cut()
        self._end("completed", Over())

    def _attempt_failed(self, outcome: Outcome, error: BaseException) -> None:
        """Cut the attempt; then go into the pause before another one, or end the stream with *error*."""
        self.cut()
        if self._token.cancelled:
            self._stopped()
        self._teller.failed(error)
        pause = self._settings.attempts.pause_after(error) if self._before_first_chunk() else None
        if pause is None or (self._waiting.deadline is not None and pause >= self._waiting.deadline.remaining()):
            self._end("timeout" if isinstance(error, TimeoutError) else outcome, error)
        obstacle = self._source.why_not_replayable()
        if obstacle is not None:
            self._end("error", self._not_replayable(obstacle, error))
        self._settings.attempts.sleeping(pause)
        self._teller.retrying(error, pause)
        self._recorder.phase = Phase.RETRY
        self._clocks.enter(Phase.RETRY, self._waiting.now, pause)

    def _before_first_chunk(self) -> bool:
        return self._gate_open if self._settings.counts is not None else not self._recorder.chunks

    def _not_replayable(self, obstacle: str, error: BaseException) -> UsageError:
        refusal = UsageError(
            f"the request cannot be sent again: {obstacle}, which can be read only once. "
            "Pass bytes, or retry=None to get the original error."
        )
        refusal.__cause__ = error
        return refusal
