"""`guarded_stream`: requests' streaming call, with limits that cut."""

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import get_ident
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

import requests
import sseclient

from .._core.cancel import CancelToken, current_token
from .._core.forks import forks
from .._core.limits import NOT_GIVEN, Limit, NotGiven, Timeouts, seconds_of
from .._core.pump import Feed, forget_frames
from .._reports import StreamReport
from .._sse import AnthropicChunk, Assembler, Chunk, Message, ResponseChunk
from ..errors import StreamguardError, UsageError
from ..telemetry.events import Upstream
from .heartbeat import HEARTBEAT
from .interfaces import CLOSED, Over, Settings, Source
from .loop import StreamLoop
from .ownership import Ownership
from .recorder import Recorder
from .stream_notifier import Teller
from .upstream.attempt import read_attempt
from .upstream.decode import BytesDecoder, assembler_of, decoder_of
from .upstream.request import RequestKeywords, RequestPlan, plan_request
from .upstream.retry import Attempts, before_first_chunk, policy_of

__all__ = ["GuardedStream", "check_options", "guarded_stream", "limits_of", "positive"]

T = TypeVar("T")


class _Keywords(RequestKeywords, total=False):
    counts: Callable[[Any], object] | None
    strict: bool
    end_grace: Limit
    heartbeat: Limit
    retry: Any
    cancel: CancelToken | None
    name: str | None
    session: requests.Session | None
    timeouts: Timeouts | None
    connect: Limit
    response: Limit
    first: Limit
    idle: Limit
    dead: Limit
    total: Limit


class GuardedStream(Generic[T]):
    """An iterator over a stream's chunks that cannot hang. Made by `guarded_stream()`.

    It starts at the first `next()`, at `open()`, or at `with`. However it ends, the socket is free and the reader thread
    gone: at its own end, with `close()`, with the `with` block, or when the last reference to it is dropped.

    Limits
        Limits are enforced inside `next()`: a consumer that comes back late gets the error late. In a forked child the
        parent's stream cannot be used (`UsageError`), nor is it harmed.
    """

    def __init__(
        self,
        source: Source,
        settings: Settings,
        *,
        cancel: CancelToken | None,
        name: str | None,
        upstream: Upstream | None = None,
    ) -> None:
        parent = cancel if cancel is not None else current_token.get()
        self._token = CancelToken() if parent is None else parent.child()
        self._assembler = settings.assembler
        self._joins = settings.make_decoder is BytesDecoder
        self._heartbeat = settings.heartbeat
        self._recorder = Recorder(name=name, host=source.host, summary=_summary_of(settings.assembler))
        self._teller = Teller(
            self._recorder,
            upstream or Upstream(address=source.host),
            chat=settings.assembler is not None,
            every_chunk_counts=settings.counts is None,
        )
        self._loop = StreamLoop(source, settings, self._token, self._recorder, self._teller)
        self._lock = threading.RLock()
        self._ownership = Ownership()
        self._pid = os.getpid()
        self._forks = forks.count
        self._finalizer = weakref.finalize(self, _abandon, self._token, self._recorder, self._teller, self._pid)
        self._finalizer.atexit = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if forks.count != self._forks:
            self._refuse_in_child()
        ownership = self._ownership
        if ownership.owner == get_ident():
            before, ownership.inside = ownership.inside, True
            try:
                if ownership.owner is not None:  # else another thread has come in this very moment
                    return self._loop.advance()  # type: ignore[no-any-return]
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
                return self._loop.advance()  # type: ignore[no-any-return]
            except BaseException as exc:
                if not self._left(exc):
                    raise
        raise StopIteration

    def open(self, *, until: Literal["headers", "first"] = "headers") -> "GuardedStream[T]":
        """Start now, and return when the response headers (or the first chunk) are here.

        Raises what `next()` would: a 401 is met here, before a view has promised its client a stream. Does nothing if that
        point is already passed. Heartbeats are not returned while it waits.
        """
        if until not in ("headers", "first"):
            raise UsageError(f"until= takes 'headers' or 'first', not {until!r}")
        self._refuse_in_child()
        with self._lock:
            self._ownership.end()
            try:
                self._loop.open(until == "first")
            except BaseException as exc:
                if not self._left(exc):
                    raise
        return self

    def close(self) -> None:
        """End the stream quietly, from any thread: a loop over it just ends. Idempotent; takes milliseconds."""
        if self._pid != os.getpid():
            return
        self._token.cancel(CLOSED)
        self._loop.cut()
        self._settle()

    def cancel(self, reason: object = "cancelled") -> bool:
        """Make the loop over the stream raise `StreamCancelledError`, from any thread or a signal handler.

        Returns False if the stream had been cancelled or closed already. After the end of the stream it changes nothing.
        """
        return self._token.cancel(reason)

    def read(self) -> Any:
        """Consume the rest, and return all of the text (`decode="chat"`), all bytes from here, or a list of the chunks."""
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
            self._heartbeat = positive("heartbeat", seconds)
            self._loop.beat(self._heartbeat)

    @property
    def response(self) -> requests.Response:
        """The response of the last attempt. Raises UsageError as long as there is none. Do not read its body."""
        if self._loop.response is None:
            raise UsageError("there is no response yet: the stream starts at next(), open() or with")
        return self._loop.response

    @property
    def text(self) -> str:
        """The text so far (`decode="chat"`); never blocks. A cancel or a deadline adds what had arrived besides."""
        return "" if self._assembler is None else self._assembler.text

    @property
    def message(self) -> Message:
        """The message assembled so far. Tool calls are in it only when the stream is complete. `decode="chat"` only."""
        if self._assembler is None:
            raise UsageError('a message is assembled by decode="chat", "responses" and "anthropic" only')
        final = self._recorder.final
        return self._assembler.message(complete=final is not None and final.outcome == "completed")

    @property
    def report(self) -> StreamReport:
        """What happened: frozen once the stream has ended, a snapshot before that."""
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

    def _refuse_in_child(self) -> None:
        # Before the lock: at the fork a thread that the child does not have may have held it.
        if os.getpid() != self._pid:
            raise UsageError("this stream belongs to the parent process: make one in the forked child")

    def _left(self, exc: BaseException) -> bool:
        """End the stream, whatever came out of the loop; return whether that was only its quiet end."""
        if os.getpid() != self._pid or self._loop.over:
            return isinstance(exc, Over)
        self._loop.finish()
        if self._recorder.final is None:
            # Not one of our endings: Ctrl-C, a signal handler's exception, a fault in the caller's counts= or decode=.
            outcome: Literal["error", "closed"] = "error" if isinstance(exc, Exception) else "closed"
            self._token.cancel(CLOSED)
            self._loop.cut()
            self._recorder.conclude(outcome, error_type=type(exc).__name__)
        self._token.detach()
        self._teller.finished()
        if isinstance(exc, StreamguardError):
            forget_frames(exc)
        if isinstance(exc, StopIteration):
            raise RuntimeError("a function of the caller's raised StopIteration") from exc  # as PEP 479 has it
        return isinstance(exc, Over)

    def _settle(self) -> None:
        """Conclude a stream that was closed or cancelled while nobody is in `next()`: else that one does it."""
        if not self._token.cancelled or not self._lock.acquire(blocking=False):
            return
        try:
            if not self._ownership.end_unless_inside():
                return
            closed = self._token.reason is CLOSED
            if self._recorder.conclude("closed" if closed else "cancelled"):
                self._teller.finished()
            if closed:
                self._loop.finish()
                self._token.detach()
        finally:
            self._lock.release()


def _abandon(token: CancelToken, recorder: Recorder, teller: Teller, pid: int) -> None:
    """Free what a collected stream held. It may run anywhere, so it calls no hook and waits for nobody."""
    if os.getpid() != pid:
        return
    if recorder.started is None and not token.cancelled:
        warnings.warn(f"stream {recorder.name or recorder.id} was never started", ResourceWarning, stacklevel=2)
    token.cancel(CLOSED)
    token.detach()
    recorder.conclude("closed")
    teller.collected()


def _summary_of(assembler: Assembler | None) -> Callable[[], tuple[str | None, dict[str, Any] | None]]:
    def summary() -> tuple[str | None, dict[str, Any] | None]:
        return (None, None) if assembler is None else (assembler.finish_reason, assembler.usage)

    return summary


@dataclass(frozen=True, slots=True)
class _Requests:
    """The source of `guarded_stream`: a request with requests."""

    plan: RequestPlan
    event_stream: bool

    @property
    def host(self) -> str:
        return self.plan.host

    @property
    def reports_phases(self) -> bool:
        return self.plan.reports_phases

    @property
    def keeps_connection(self) -> bool:
        return self.plan.session is not None

    def read(self, feed: Feed) -> None:
        read_attempt(self.plan, self.event_stream, feed)

    def why_not_replayable(self) -> str | None:
        return self.plan.why_not_replayable()


_RETRY_BY_DEFAULT = before_first_chunk()


@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["chat"] = "chat", **options: Unpack[_Keywords]
) -> GuardedStream[Chunk]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["responses"], **options: Unpack[_Keywords]
) -> GuardedStream[ResponseChunk]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["anthropic"], **options: Unpack[_Keywords]
) -> GuardedStream[AnthropicChunk]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["events"], **options: Unpack[_Keywords]
) -> GuardedStream[sseclient.Event]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["json"], **options: Unpack[_Keywords]
) -> GuardedStream[Any]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["bytes"], **options: Unpack[_Keywords]
) -> GuardedStream[bytes]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Callable[[sseclient.Event], T | None], **options: Unpack[_Keywords]
) -> GuardedStream[T]: ...
def guarded_stream(
    method: str,
    url: str,
    *,
    decode: Any = "chat",
    counts: Callable[[Any], object] | None = None,
    strict: bool = True,
    end_grace: Limit = 1.0,
    heartbeat: Limit = None,
    retry: Any = NOT_GIVEN,
    cancel: CancelToken | None = None,
    name: str | None = None,
    session: requests.Session | None = None,
    timeouts: Timeouts | None = None,
    connect: Limit | NotGiven = NOT_GIVEN,
    response: Limit | NotGiven = NOT_GIVEN,
    first: Limit | NotGiven = NOT_GIVEN,
    idle: Limit | NotGiven = NOT_GIVEN,
    dead: Limit | NotGiven = NOT_GIVEN,
    total: Limit | NotGiven = NOT_GIVEN,
    **options: Any,
) -> GuardedStream[Any]:
    """Request *url* with requests and return its chunks as an iterator that cannot hang.

    Nothing is sent until the first `next()`, `open()` or `with`. requests' own keywords (`json data params headers auth
    cookies files proxies verify cert allow_redirects hooks`) pass through; `timeout=` and `stream=` do not.

    decode:    `"chat"` (default: OpenAI-compatible chunks), `"responses"` (events of OpenAI's Responses API), `"anthropic"`
               (of the Messages API), `"events"` (`sseclient.Event`), `"json"` (each event's data), `"bytes"`, or a callable
               on events (whose None is skipped).
    counts:    predicate on chunks: only those count as progress; all are handed over. Default: every chunk counts.
    strict:    False accepts a stream that ends without saying that it is complete. Default True.
    end_grace: seconds of silence, after every choice has its finish reason, that complete the stream. Default 1; None: off.
    heartbeat: seconds of silence after which `next()` returns `HEARTBEAT`. Default None: never.
    retry:     None, a number of retries, or a `tenacity.Retrying`. Default: `before_first_chunk(max_retries=2)`.
    cancel:    a token whose cancel raises `StreamCancelledError` in the loop.
    name:      your name for it, in the report, in errors and logs.
    session:   a `requests.Session` to use, left as it is. Default: one of its own, on its own connection.
    timeouts, or `connect response first idle dead total`: the limits, see `Timeouts`; the short forms come first.

    Raises TypeError and UsageError at once for arguments that cannot be right. Iterating raises
    `StreamInactivityTimeoutError` (silence), `TransportTimeoutError` (connect, response), `DeadlineExceededError` (total,
    or a surrounding `deadline()`), `StreamCancelledError`, `HTTPStatusError`, `NotEventStreamError`, `InStreamError`,
    `IncompleteStreamError`, `MalformedChunkError` or `TransportError`; each once, then the iterator is at its end.

    Limits
        With a session of yours, the phases before the headers can be cut only if `streamguard.Adapter` is mounted on it.
        Name resolution, and waiting for a slot of a blocking pool, cannot be cut: you get the error on time, the thread
        stays until the resolver gives up, and the report counts it.
    """
    limits = limits_of(timeouts, connect=connect, response=response, first=first, idle=idle, dead=dead, total=total)
    policy = _RETRY_BY_DEFAULT if isinstance(retry, NotGiven) else policy_of(retry)
    check_options(counts=counts, cancel=cancel, name=name)
    make_decoder = decoder_of(decode)
    plan = plan_request(method, url, options, session=session, limits=limits, repeatable=policy is not None)
    settings = Settings(
        limits=limits,
        attempts=Attempts(policy),
        make_decoder=make_decoder,
        convert=decode if callable(decode) else None,
        counts=counts,
        assembler=assembler_of(decode),
        strict=bool(strict),
        end_grace=seconds_of("end_grace", end_grace),
        heartbeat=positive("heartbeat", heartbeat),
    )
    source = _Requests(plan, decode != "bytes")
    return GuardedStream(source, settings, cancel=cancel, name=name, upstream=plan.upstream)


def limits_of(timeouts: Timeouts | None, **short: Limit | NotGiven) -> Timeouts:
    """Return the limits of one call: the short forms come first."""
    if timeouts is None:
        return Timeouts(**short)
    if not isinstance(timeouts, Timeouts):
        raise TypeError(f"timeouts= takes a Timeouts, not {type(timeouts).__name__}")
    return timeouts.replace(**short)


def check_options(*, counts: object, cancel: object, name: object) -> None:
    """Raise TypeError for an option of the wrong type."""
    if counts is not None and not callable(counts):
        raise TypeError(f"counts= takes a predicate on chunks, not {type(counts).__name__}")
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise TypeError(f"cancel= takes a CancelToken, not {type(cancel).__name__}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name= takes a str, not {type(name).__name__}")


def positive(name: str, value: Limit) -> float | None:
    """Return the seconds, or None for what is off."""
    seconds = seconds_of(name, value)
    return seconds if seconds is not None and seconds > 0 else None
