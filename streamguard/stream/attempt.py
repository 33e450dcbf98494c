"""One attempt, as the reader thread lives it: send, look at the response, read, decode, hand over.

Nothing here knows the consumer. What is put on the feed, in order: phases as they begin, `Rejected` (a bad response is
here, its body is still being read) or `Opened`, then a `Batch` for each block that was read.
"""

import email.utils
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import requests

from ..core.cancel import current_token
from ..core.clock import monotonic
from ..core.pump import Feed
from ..errors import HTTPStatusError, NotEventStreamError, StreamguardError
from ..http import SocketGuard, current_guard, drain, find_socket, read_at_most, read_blocks
from .clocks import Phase
from .decode import Decoder, Ending
from .request import RequestPlan

__all__ = ["BAD_BODY_SECONDS", "Batch", "Opened", "Rejected", "read_attempt"]

BAD_BODY_SECONDS = 1.0
"""How long the body of an error response may take."""
_BAD_BODY_BYTES = 65536
_QUOTED_BYTES = 512
_DRAIN_SECONDS = 0.05
_FIELDS = (b"data", b"event", b"id", b"retry", b":")


@dataclass(frozen=True, slots=True)
class Opened:
    """The headers of the final response are here, and it is what was asked for."""

    response: requests.Response
    at: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """The response is no stream; the full error follows when its body has been read, or else this one stands."""

    response: requests.Response
    at: float
    error: StreamguardError


@dataclass(frozen=True, slots=True)
class Batch:
    """What one block of bytes held."""

    chunks: list[Any]
    at: float
    """When it arrived."""
    size: int
    comments: int
    ending: Ending


def read_attempt(plan: RequestPlan, make_decoder: Callable[[], Decoder], feed: Feed) -> Ending:
    """Make the request and read it to its end; return how complete the stream had said it was."""
    guard = SocketGuard(feed.token, lambda name: feed.put(_PHASES[name]))
    current_guard.set(guard)
    current_token.set(feed.token)
    session, own = plan.open()
    try:
        response = plan.send(session)
        try:
            return _read_response(plan, response, make_decoder(), feed, guard, own)
        finally:
            response.close()
    finally:
        if own:
            session.close()
        guard.release()


_PHASES = {"connect": Phase.CONNECT, "response": Phase.RESPONSE, "headers": Phase.RESPONSE}


def _read_response(
    plan: RequestPlan, response: requests.Response, decoder: Decoder, feed: Feed, guard: SocketGuard, own: bool
) -> Ending:
    _guard_foreign(plan, response, guard)
    guard.check()
    if response.status_code >= 400:
        _reject_status(response, feed)
    blocks = read_blocks(response)
    if decoder.sse:
        blocks = _event_stream(plan, response, blocks, feed)
    feed.put(Opened(response, monotonic()))
    _pour(blocks, decoder, feed, guard)
    if decoder.ending is Ending.DONE and not own:
        drain(response, _DRAIN_SECONDS)
    return decoder.ending


def _guard_foreign(plan: RequestPlan, response: requests.Response, guard: SocketGuard) -> None:
    """Make the body of a response cuttable that came through an adapter which is not ours."""
    if plan.reports_phases:
        return
    sock = find_socket(response)
    if sock is not None:
        guard.attach(response, sock)
        sock.settimeout(None)  # requests' read timeout was for the headers: the body is under the consumer's clocks


def _pour(blocks: Iterator[bytes], decoder: Decoder, feed: Feed, guard: SocketGuard) -> None:
    comments = 0
    for block in blocks:
        at = monotonic()
        guard.check()
        chunks: list[Any] = []
        try:
            decoder.feed(block, chunks)
        finally:
            size = len(block)
            feed.put(Batch(chunks, at, size, decoder.comments - comments, decoder.ending), size)
            comments = decoder.comments
        if decoder.ending is Ending.DONE:
            return
    guard.check()
    chunks = []
    try:
        decoder.finish(chunks)
    finally:
        feed.put(Batch(chunks, monotonic(), 0, 0, decoder.ending))


def _event_stream(
    plan: RequestPlan, response: requests.Response, blocks: Iterator[bytes], feed: Feed
) -> Iterator[bytes]:
    """Return the blocks if the response is an event stream, judged by its type or else by how its body begins."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return blocks
    if kind not in ("", "text/plain"):
        _reject_type(plan, response, feed, b"")
    beginning = b""
    for block in blocks:
        beginning += block
        if len(beginning) >= _QUOTED_BYTES or b"\n" in beginning or b"\r" in beginning:
            break
    if beginning and not begins_like_events(beginning):
        _reject_type(plan, response, feed, beginning)
    return _chain(beginning, blocks)


def begins_like_events(beginning: bytes) -> bool:
    """Whether a body that begins like this can be an event stream: its first line is empty, a field or a comment."""
    line = beginning.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    return not line or line.startswith(_FIELDS)


def _chain(beginning: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if beginning:
        yield beginning
    yield from blocks


def _reject_type(plan: RequestPlan, response: requests.Response, feed: Feed, beginning: bytes) -> None:
    feed.put(Rejected(response, monotonic(), _not_event_stream(plan, response, beginning)))
    missing = max(0, _QUOTED_BYTES - len(beginning))
    beginning += read_at_most(response, missing, BAD_BODY_SECONDS) if missing else b""
    raise _not_event_stream(plan, response, beginning)


def _not_event_stream(plan: RequestPlan, response: requests.Response, beginning: bytes) -> NotEventStreamError:
    kind = response.headers.get("Content-Type")
    body = beginning[:_QUOTED_BYTES].decode("utf-8", "replace")
    hint = ""
    if "json" in (kind or "") or body.lstrip()[:1] in ("{", "["):
        missing = "" if plan.asked_for_stream else " (it does not)"
        hint = f'; it looks like JSON: does the payload set "stream": true{missing}?'
    message = f"status {response.status_code}, but not an event stream: Content-Type {kind!r}{hint}; it begins {body!r}"
    return NotEventStreamError(message, content_type=kind, body=body)


def _reject_status(response: requests.Response, feed: Feed) -> None:
    feed.put(Rejected(response, monotonic(), _status_error(response, b"")))
    raise _status_error(response, read_at_most(response, _BAD_BODY_BYTES, BAD_BODY_SECONDS))


def _status_error(response: requests.Response, body: bytes) -> HTTPStatusError:
    text = body.decode("utf-8", "replace")
    said = _said(text)
    return HTTPStatusError(
        f"status {response.status_code} {response.reason or ''}".rstrip() + (f": {said}" if said else ""),
        response=response,
        status_code=response.status_code,
        headers=dict(response.headers),
        body=text,
        retry_after=retry_after(response.headers.get("Retry-After")),
        request_id=request_id(response),
    )


def _said(text: str) -> str:
    """Return the message in an error body: OpenAI's, FastAPI's and similar shapes, else the beginning of the text."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return text.strip()[:200]
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return found[:500] if isinstance(found, str) else json.dumps(found)[:200]


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a `Retry-After` header asks for: a number, or a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def request_id(response: requests.Response) -> str | None:
    """Return the upstream's id of the request, under the names in use."""
    for name in ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "cf-ray"):
        if name in response.headers:
            return str(response.headers[name])
    return None
