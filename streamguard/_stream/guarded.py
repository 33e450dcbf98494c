"""`guarded_stream`: requests' streaming call, with limits that cut."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, Unpack, overload

import requests
import sseclient

from .._sse import AnthropicChunk, Chunk, ResponseChunk
from .options import StreamKeywords, StreamOptions, refuse_unknown
from .stream import GuardedStream
from .upstream.decode import assembler_of
from .upstream.request import RequestKeywords, asked_choices, request_source
from .upstream.retry import before_first_chunk

T = TypeVar("T")

_RETRY_BY_DEFAULT = before_first_chunk()


class GuardedKeywords(StreamKeywords, RequestKeywords, total=False):
    """All keywords of `guarded_stream()` but `decode`."""

    session: requests.Session | None


@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["chat"] = "chat", **keywords: Unpack[GuardedKeywords]
) -> GuardedStream[Chunk]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["responses"], **keywords: Unpack[GuardedKeywords]
) -> GuardedStream[ResponseChunk]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["anthropic"], **keywords: Unpack[GuardedKeywords]
) -> GuardedStream[AnthropicChunk]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["events"], **keywords: Unpack[GuardedKeywords]
) -> GuardedStream[sseclient.Event]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["json"], **keywords: Unpack[GuardedKeywords]
) -> GuardedStream[Any]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Literal["bytes"], **keywords: Unpack[GuardedKeywords]
) -> GuardedStream[bytes]: ...
@overload
def guarded_stream(
    method: str, url: str, *, decode: Callable[[sseclient.Event], T | None], **keywords: Unpack[GuardedKeywords]
) -> GuardedStream[T]: ...
def guarded_stream(method: str, url: str, *, decode: Any = "chat", **keywords: Any) -> GuardedStream[Any]:
    """Request *url* with requests and return its chunks as an iterator that cannot hang.

    Nothing is sent until the first `next()`, `open()` or `with`. requests' own keywords (`json data params headers auth
    cookies files proxies verify cert allow_redirects hooks`) pass through; `timeout=` and `stream=` do not.

    decode:    `"chat"` (default: OpenAI-compatible chunks), `"responses"` (events of OpenAI's Responses API), `"anthropic"`
               (of the Messages API), `"events"` (`sseclient.Event`), `"json"` (each event's data), `"bytes"`, or a callable
               on events (its None is skipped).
    counts:    a function of a chunk: only chunks for which it is true count as progress; all are returned. Default: all.
    strict:    False accepts a stream that ends without an end marker. Default True.
    end_grace: seconds of silence that complete the stream once every choice has its finish reason and nothing but usage may
               follow: no content came with the finish reason, or after one. Default 3; None: off. Without it, an end of
               `idle` completes a stream in which every choice has its finish reason.
    heartbeat: seconds of silence after which `next()` returns `HEARTBEAT`. Default None: never.
    retry:     None, a number of retries, or a `tenacity.Retrying`. Default: `before_first_chunk(max_retries=2)`.
    cancel:    a token whose cancel raises `StreamCancelledError` in the loop.
    name:      your name for the stream, in its report, errors and logs.
    session:   a `requests.Session` to use; it is not changed. Default: a new one, with its own connection.
    timeouts, or `connect response first idle dead total`: the limits, see `Timeouts`; a short form overrides `timeouts`.

    Raises TypeError and UsageError at once for wrong arguments. Iterating raises
    `StreamInactivityTimeoutError` (silence), `TransportTimeoutError` (connect, response), `DeadlineExceededError` (total,
    or a surrounding `deadline()`), `StreamCancelledError`, `HTTPStatusError`, `NotEventStreamError`, `InStreamError`,
    `IncompleteStreamError`, `MalformedChunkError` or `TransportError`, once; then the iterator is exhausted.

    Limits
        With a session of yours, the phases before the headers can be cut only if `streamguard.Adapter` is mounted on it.
        Name resolution, and the wait for a slot of a blocking pool, cannot be cut: you get the error on time, the thread
        stays until the resolver gives up, and the report counts it.
    """
    refuse_unknown("guarded_stream", keywords, GuardedKeywords.__annotations__.keys())
    options = StreamOptions.of(
        keywords,  # type: ignore[arg-type]
        decode=decode,
        assembler=assembler_of(decode),
        default_retry=_RETRY_BY_DEFAULT,
        choices=asked_choices(keywords.get("json")),
    )
    source = request_source(
        method,
        url,
        {name: keywords[name] for name in RequestKeywords.__annotations__ if name in keywords},
        session=keywords.get("session"),
        limits=options.limits,
        repeatable=options.retry is not None,
        event_stream=decode != "bytes",
    )
    return GuardedStream(source, options)
