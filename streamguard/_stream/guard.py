"""`guard`: the limits of `guarded_stream()`, on a stream that another library opens and reads."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack
from urllib.parse import urlsplit

from .._core.cancel import set_current_token
from .._core.clock import monotonic
from .._core.pump import Feed
from .._http import SocketGuard, current_guard
from .._sse import Assembler, ObjectAssembler
from ..errors import UsageError
from ..telemetry.events import Upstream
from .options import StreamKeywords, StreamOptions, refuse_unknown
from .sources.detect import url_of
from .sources.open_source import OpenSource, SourceHold, can_be_opened, check_source, gives_message, open_source
from .stream import GuardedStream
from .upstream.cut_off import noting_cut_off
from .upstream.decode import ObjectDecoder, assembler_of
from .upstream.response import BodyBlock, Item, Opened, read_response
from .upstream.retry import before_first_chunk


def guard(
    source: Any,
    *,
    decode: Any = None,
    interrupt: Callable[[], object] | None = None,
    abandon: bool = False,
    **keywords: Unpack[StreamKeywords],
) -> GuardedStream[Any]:
    """Return an iterator over the items of *source* that cannot hang: limits, errors and report of `guarded_stream()`.

    source:    a response of requests, urllib3, httpx, httpx2 or http.client; a stream of the openai or anthropic SDK, or of
               another one over httpx; a botocore event stream; a gRPC call; a pipe, a socket, or a binary file of one; any
               iterator, with *interrupt*. Or a function that opens one of these: only such a source can be retried.
    decode:    how bytes are decoded, as in `guarded_stream()`. Default: `"chat"` for an HTTP response, otherwise bytes are
               not decoded. A callable converts the objects of a source (its None is skipped).
    interrupt: a function that makes the blocked read return. It is called once, in a thread of its own.
    abandon:   True accepts a source whose read cannot be interrupted; its thread is left behind. Default False.
    retry:     for a function: as in `guarded_stream()`. None for any other source.

    `counts strict end_grace heartbeat cancel name timeouts connect response first idle dead total` are those of
    `guarded_stream()`. Raises TypeError and UsageError at once, also for an unknown source. Iterating raises what
    `guarded_stream()` raises, and the library's own exceptions unless they are transport errors.

    A response or a stream of an SDK is closed at the end; a descriptor, a file or a socket stays open. A socket that was
    cut is shut down.

    Limits
        While a function opens its stream, there is nothing to cut: you get the error on time, the thread stays until the
        library's own timeout, and the stream that it then opens is closed at once. `connect` and `response` are one limit
        there. Objects are timed when the library returns them: `dead` does not see heartbeats that it swallows. If a
        library hides the end marker, a finish reason, or the API's last event, shows that a stream is complete.
    """
    refuse_unknown("guard", keywords, StreamKeywords.__annotations__.keys())
    if interrupt is not None and not callable(interrupt):
        raise TypeError(f"interrupt= takes a function, not {type(interrupt).__name__}")
    given = _GivenSource(source, decode, interrupt, bool(abandon))
    check_source(source, may_stay_blocked=interrupt is not None or given.abandon)
    options = StreamOptions.of(
        keywords,
        decode="chat" if decode is None else decode,
        assembler=_assembler(source, decode),
        default_retry=before_first_chunk() if given.can_be_reopened else None,
    )
    if options.retry is not None and not given.can_be_reopened:
        raise UsageError("retry= needs a source that can be opened again: pass a function that opens it")
    return GuardedStream(given, options)


@dataclass(frozen=True, slots=True)
class _GivenSource:
    """The source of `guard`."""

    source: Any
    decode: Any
    interrupt: Callable[[], object] | None
    abandon: bool

    @property
    def host(self) -> str:
        return urlsplit(url_of(self.source)).netloc.rpartition("@")[2]

    @property
    def upstream(self) -> Upstream:
        parts = urlsplit(url_of(self.source))
        return Upstream(address=parts.hostname or "", port=parts.port)

    @property
    def reports_phases(self) -> bool:
        return False

    @property
    def keeps_connection(self) -> bool:
        return True

    @property
    def can_be_reopened(self) -> bool:
        return can_be_opened(self.source)

    def why_not_replayable(self) -> str | None:
        return None

    def read(self, feed: Feed) -> None:
        """Open the source and read it to its end, in the reader thread."""
        sockets, stack = SocketGuard(feed.token), contextlib.ExitStack()
        hold = SourceHold(sockets, feed.token, stack, self.interrupt, self.abandon)
        current_guard.set(sockets)  # for what connects through `streamguard.Adapter`
        set_current_token(feed.token)
        try:
            with stack:
                reading = open_source(self.source, hold)
                sockets.check()
                self._read(reading, feed, sockets)
        finally:
            sockets.release()

    def _read(self, reading: OpenSource, feed: Feed, sockets: SocketGuard) -> None:
        if reading.blocks is None and reading.response is not None:
            read_response(reading.response, feed, sockets, event_stream=self.decode != "bytes")
            return
        whole = self.decode is None or (reading.objects and callable(self.decode))
        decoder = ObjectDecoder(reading.watcher, may_be_empty=reading.may_be_empty) if whole else None
        feed.put(Opened(reading.response, monotonic(), decoder=decoder))
        with noting_cut_off(feed):
            for block in reading.blocks or ():
                sockets.check()
                self._put(feed, block, whole)
        sockets.check()

    def _put(self, feed: Feed, block: Any, whole: bool) -> None:
        if not whole and not isinstance(block, bytes):
            raise UsageError(
                f"decode= takes bytes, but this source yields {type(block).__name__} objects: leave decode= out"
            )
        item = Item(block, monotonic()) if whole else BodyBlock(block, monotonic())
        feed.put(item, item.weight)


def _assembler(source: Any, decode: Any) -> Assembler | None:
    """Return what puts the message together, if there is one."""
    if decode is None and gives_message(source):
        return ObjectAssembler()
    return assembler_of(decode)
