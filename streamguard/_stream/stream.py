"""`GuardedStream`: the iterator that a caller of `guarded_stream()` or `guard()` gets."""

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

import requests

from .._core.cancel import CancelToken, current_token
from .._core.forks import forks
from .._core.limits import Limit
from .._core.pump import forget_frames
from .._reports import StreamReport
from .._sse import Assembler, Message
from ..errors import StreamguardError, UsageError
from .end_rules import EndRules
from .hand_over import HandOver
from .heartbeat import HEARTBEAT
from .interfaces import CLOSED, Over, Source
from .options import StreamOptions, seconds_above_zero
from .ownership import HomeProcess, Ownership
from .recorder import Recorder
from .running_attempt import RunningAttempt
from .stream_notifier import StreamNotifier
from .upstream.decode import BytesDecoder

T = TypeVar("T")


class GuardedStream(Generic[T]):
    """An iterator over a stream's chunks that cannot hang. Made by `guarded_stream()`.

    It starts at the first `next()`, at `open()`, or at `with`. At its end, the socket is released and the reader thread has
    ended: when the stream ends, with `close()`, with the `with` block, or when the last reference to it is dropped.

    Limits
        Limits are enforced inside `next()`: a consumer that calls it late gets the error late. A forked child cannot use
        the parent's stream (`UsageError`), and does not affect it.
    """

    def __init__(self, source: Source, options: StreamOptions) -> None:
        parent = options.cancel if options.cancel is not None else current_token()
        self._token = token = CancelToken() if parent is None else parent.child()
        self._home = HomeProcess()
        self._assembler = options.assembler
        self._joins = options.make_decoder is BytesDecoder
        self._heartbeat = options.heartbeat
        self._recorder = recorder = Recorder(name=options.name, host=source.host, summary=_summary_of(options.assembler))
        self._notifier = notifier = StreamNotifier(
            recorder, source.upstream, chat=options.assembler is not None, every_chunk_counts=options.counts is None
        )
        self._attempt = attempt = RunningAttempt(source, options, token, recorder, notifier)
        rules = EndRules(options, attempt, recorder, notifier, token)
        self._hand_over = HandOver(options, attempt, rules, recorder, token, self._home)
        self._lock = threading.RLock()
        self._ownership = Ownership()
        self._finalizer = weakref.finalize(self, _abandon, token, recorder, notifier, self._home)
        self._finalizer.atexit = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if forks.count != self._home.forks:
            self._home.require()
        ownership = self._ownership
        if ownership.owner == get_ident():
            before, ownership.inside = ownership.inside, True
            try:
                if ownership.owner is not None:  # else another thread has come at this very moment
                    return self._hand_over.advance()  # type: ignore[no-any-return]
            except BaseException as exc:
                if not self._left(exc):
                    raise
            finally:
                ownership.inside = before
        return self._next_locked()

    def _next_locked(self) -> T:
        with self._lock:
            self._ownership.claim()
            try:
                return self._hand_over.advance()  # type: ignore[no-any-return]
            except BaseException as exc:
                if not self._left(exc):
                    raise
        raise StopIteration

    def open(self, *, until: Literal["headers", "first"] = "headers") -> "GuardedStream[T]":
        """Start now, and return when the response headers (`until="first"`: the first chunk) are here.

        Raises what `next()` would: a 401 is raised here, before a view has promised its client a stream. Does nothing if
        that point has passed. While it waits, heartbeats are not returned.
        """
        if until not in ("headers", "first"):
            raise UsageError(f"until= takes 'headers' or 'first', not {until!r}")
        self._home.require()
        with self._lock:
            self._ownership.end()
            try:
                self._hand_over.open(until == "first")
            except BaseException as exc:
                if not self._left(exc):
                    raise
        return self

    def close(self) -> None:
        """End the stream quietly, from any thread: a loop over it just ends. Idempotent; takes milliseconds."""
        if not self._home.is_here:
            return
        self._token.cancel(CLOSED)
        self._attempt.cut()
        self._settle()

    def cancel(self, reason: object = "cancelled") -> bool:
        """Make the loop over the stream raise `StreamCancelledError`, from any thread or a signal handler.

        Returns False if the stream was cancelled or closed before. After the end of the stream it changes nothing.
        """
        return self._token.cancel(reason)

    def read(self) -> Any:
        """Consume the rest; return the whole text (`decode="chat"`), the remaining bytes, or a list of the chunks."""
        chunks = [chunk for chunk in self if chunk is not HEARTBEAT]
        if self._assembler is not None and getattr(self._assembler, "known", True):
            return self._assembler.text
        if self._joins or (chunks and all(isinstance(chunk, bytes) for chunk in chunks)):
            return b"".join(chunks)  # type: ignore[arg-type]
        return chunks

    @property
    def heartbeat(self) -> float | None:
        """Seconds of silence after which `next()` returns `HEARTBEAT`; None: never. Can be set at any time."""
        return self._heartbeat

    @heartbeat.setter
    def heartbeat(self, seconds: Limit) -> None:
        with self._lock:
            self._ownership.end()
            self._heartbeat = seconds_above_zero("heartbeat", seconds)
            self._hand_over.beat(self._heartbeat)

    @property
    def response(self) -> requests.Response:
        """The response of the last attempt. Raises UsageError until there is one. Do not read its body."""
        if self._attempt.response is None:
            raise UsageError("there is no response yet: call next() or open(), or enter the stream with `with`")
        return self._attempt.response

    @property
    def text(self) -> str:
        """The text so far (`decode="chat"`); never blocks. After a cancel or a deadline, it has all that had arrived."""
        return "" if self._assembler is None else self._assembler.text

    @property
    def message(self) -> Message:
        """The message assembled so far. It has tool calls only when the stream is complete. `decode="chat"` only."""
        if self._assembler is None:
            raise UsageError('there is no message: pass decode="chat", "responses" or "anthropic"')
        final = self._recorder.final
        return self._assembler.message(complete=final is not None and final.outcome == "completed")

    @property
    def report(self) -> StreamReport:
        """What happened: a snapshot, frozen once the stream has ended."""
        self._settle()
        return self._recorder.final or self._recorder.snapshot()

    def __enter__(self) -> "GuardedStream[T]":
        return self.open()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        report = self._recorder.final or self._recorder.snapshot()
        return f"<GuardedStream {report.name or report.id} {report.outcome} chunks={report.chunks}>"

    def _left(self, exc: BaseException) -> bool:
        """End the stream after *exc*, whatever it is; return whether that is only the quiet end of the stream."""
        if not self._home.is_here or self._hand_over.over:
            return isinstance(exc, Over)
        self._hand_over.finish()
        if self._recorder.final is None:
            # Not an end that we decided: Ctrl-C, a signal handler's exception, a fault in the caller's counts= or decode=.
            outcome: Literal["error", "closed"] = "error" if isinstance(exc, Exception) else "closed"
            self._token.cancel(CLOSED)
            self._attempt.cut()
            self._recorder.conclude(outcome, ended_by=outcome, error_type=type(exc).__name__)
        self._token.detach()
        self._notifier.finished()
        if isinstance(exc, StreamguardError):
            forget_frames(exc)
        if isinstance(exc, StopIteration):
            raise RuntimeError("counts= or decode= raised StopIteration") from exc  # as PEP 479 has it
        return isinstance(exc, Over)

    def _settle(self) -> None:
        """Conclude a stream that was closed or cancelled, unless a thread is inside `next()`, which does it."""
        if not self._token.cancelled or not self._lock.acquire(blocking=False):
            return
        try:
            if not self._ownership.end_unless_inside():
                return
            closed = self._token.reason is CLOSED
            outcome: Literal["closed", "cancelled"] = "closed" if closed else "cancelled"
            if self._recorder.conclude(outcome, ended_by=outcome):
                self._notifier.finished()
            if closed:
                self._hand_over.finish()
                self._token.detach()
        finally:
            self._lock.release()


def _abandon(token: CancelToken, recorder: Recorder, notifier: StreamNotifier, home: HomeProcess) -> None:
    """Release what a collected stream held. It may run in any thread, so it calls no hook and waits for nothing."""
    if not home.is_here:
        return
    if recorder.started is None and not token.cancelled:
        warnings.warn(f"stream {recorder.name or recorder.id} was never started", ResourceWarning, stacklevel=2)
    token.cancel(CLOSED)
    token.detach()
    recorder.conclude("closed", ended_by="closed")
    notifier.collected()


def _summary_of(assembler: Assembler | None) -> Callable[[], tuple[str | None, dict[str, Any] | None]]:
    def summary() -> tuple[str | None, dict[str, Any] | None]:
        return (None, None) if assembler is None else (assembler.finish_reason, assembler.usage)

    return summary
