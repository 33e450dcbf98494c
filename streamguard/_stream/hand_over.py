"""What one `next()` does: hand over a chunk that is here, or take the next item from the reader.

The order of one step is the contract: the caller's cancel first, then the deadline, then an item that is already here, and
only then a wait, for no longer than the nearest clock.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, Final

from .._core.cancel import CancelToken
from .._core.forks import forks
from .._core.pump import End
from ..errors import StreamguardError
from .end_rules import EndRules
from .heartbeat import HEARTBEAT, Heartbeat
from .interfaces import Over
from .options import StreamOptions
from .ownership import HomeProcess
from .recorder import Recorder
from .running_attempt import RunningAttempt
from .timing.clocks import Alarm, Due

_NONE_LEFT: Final = object()


class HandOver:
    """Hand over one stream's chunks, under its clocks. Not thread-safe: its owner locks."""

    def __init__(
        self,
        options: StreamOptions,
        attempt: RunningAttempt,
        rules: EndRules,
        recorder: Recorder,
        token: CancelToken,
        home: HomeProcess,
    ) -> None:
        self._convert = options.convert
        self._counts = options.counts
        self._attempt = attempt
        self._rules = rules
        self._waiting = rules.waiting
        self._clocks = attempt.clocks
        self._recorder = recorder
        self._home = home
        self._add = None if options.assembler is None else options.assembler.add
        self._chunks: Iterator[Any] = iter(())
        """Those that are here."""
        self._fresh = False
        """Whether the next chunk is more than one to return: the first of its block, or one that the caller looks at."""
        self._looks_at_each = options.convert is not None or options.counts is not None
        self._always_fresh = self._looks_at_each or options.heartbeat is not None
        self._stop = token._reason.decision  # a property would cost more than the answer
        self._careful = True
        """Whether a step has more to look at than the token: it has not started, has a deadline, or is over."""
        self.over = False

    def finish(self) -> None:
        """Let every further step raise Over."""
        self._careful = self.over = True

    def open(self, until_first: bool) -> None:
        """Go on until the headers, or until the first chunk, are here."""
        self._check()
        while not (self._recorder.chunks or self._peek() if until_first else self._attempt.is_open):
            alarm = self._receive()
            if alarm is not None and alarm.due is Due.HEARTBEAT:
                self._clocks.handed_over()  # not returned from here; without this the wait would spin
            self._check_stopped()

    def advance(self) -> Any:
        """Return the next chunk, or HEARTBEAT; raise Over at the end, or what else ended the stream."""
        while True:
            if self._stop or self._careful:
                self._check()
            try:
                chunk: Any = next(self._chunks, _NONE_LEFT)
            except StreamguardError as exc:
                self._rules.reading_failed(exc)
                continue
            if chunk is _NONE_LEFT:
                alarm = self._receive()
                if alarm is not None and alarm.due is Due.HEARTBEAT:
                    return self._heartbeat()
                continue
            if self._fresh and (chunk := self._look_at(chunk)) is _NONE_LEFT:
                continue
            self._recorder.chunks += 1
            if self._add is not None:
                self._add(chunk)
            return chunk

    def beat(self, seconds: float | None) -> None:
        """Let `advance()` return HEARTBEAT after *seconds* of waiting for nothing; None: never."""
        self._always_fresh = self._looks_at_each or seconds is not None
        self._clocks.beat(seconds)

    def _check(self) -> None:
        """Look at everything that may forbid a step; start the stream at its first."""
        self._home.require()
        if self.over:
            raise Over
        if self._recorder.started is None:
            self._rules.start()
            self._careful = self._waiting.deadline is not None
            self._check_stopped()
            self._rules.start_attempt()
        self._check_stopped()

    def _check_stopped(self) -> None:
        if self._rules.is_stopped:
            self._keep_what_arrived()
            self._rules.stop()

    def _keep_what_arrived(self) -> None:
        """Cut; then add the chunks that no `next()` will return to the text that the error carries."""
        arrived, self._chunks = itertools.chain(self._chunks, self._attempt.leave()), iter(())
        if self._add is not None:
            with contextlib.suppress(StreamguardError):
                for chunk in arrived:
                    self._add(chunk)

    def _receive(self) -> Alarm | None:
        """Take what comes next from the reader, or wait for it; return what was due instead."""
        if forks.count != self._home.forks:  # a function of the caller's forked in this very step
            self._check()
        self._rules.chunks_used_up()
        item = self._waiting.receive()
        if isinstance(item, Alarm):
            self._rules.alarmed(item)
            return item
        if isinstance(item, End) and item.failure is not None and not self._stop:
            self._rules.reading_failed(item.failure)
        else:
            self._take(item)
        return None

    def _take(self, item: object) -> None:
        try:
            chunks = self._attempt.handle(item)
        except StreamguardError as exc:
            self._rules.reading_failed(exc)
            return
        if chunks is not None:
            self._chunks, self._fresh = chunks, True

    def _peek(self) -> bool:
        """Return whether a chunk is here, and leave it there."""
        try:
            chunk = next(self._chunks, _NONE_LEFT)
        except StreamguardError as exc:
            self._rules.reading_failed(exc)
            return False
        if chunk is _NONE_LEFT:
            return False
        self._chunks = itertools.chain((chunk,), self._chunks)
        return True

    def _look_at(self, chunk: Any) -> Any:
        """Convert a chunk as the caller asked, and see whether it counts; return _NONE_LEFT for one to skip."""
        if self._convert is not None:
            self._waiting.passed()
            chunk = self._convert(chunk)
            self._waiting.go_on()
            if chunk is None:
                return _NONE_LEFT
        self._waiting.stop()
        if self._counts is None:
            self._progressed()
            self._fresh = self._always_fresh
        elif self._counts(chunk):
            self._progressed()
        self._clocks.handed_over()
        return chunk

    def _progressed(self) -> None:
        self._recorder.progressed(self._attempt.arrived)
        self._clocks.progressed()

    def _heartbeat(self) -> Heartbeat:
        self._clocks.handed_over()
        self._waiting.stop()
        HEARTBEAT.silence = self._clocks.silence
        HEARTBEAT.phase = self._clocks.phase.value
        HEARTBEAT.left = self._waiting.left
        return HEARTBEAT
