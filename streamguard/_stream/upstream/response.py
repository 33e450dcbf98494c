"""The response of an attempt, in the reader thread: judged, read, handed over.

Nothing here knows the consumer. The feed gets, in order: phases as they begin, `Rejected` (the response is bad, its body is
still being read) or `Opened`, then a `BodyBlock` for each block that is read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from ..._core.clock import monotonic
from ..._core.pump import Feed
from ..._http import (
    QUOTED_BYTES,
    SocketGuard,
    find_socket,
    not_event_stream,
    read_at_most,
    read_blocks,
    require_close_notify,
    require_decoder,
    status_error,
)
from ...errors import StreamguardError
from .cut_off import noting_cut_off
from .decode import Decoder

BAD_BODY_SECONDS = 1.0
"""How long the body of an error response may take."""
_BAD_BODY_BYTES = 65536
_ITEM_WEIGHT = 1024
_JUDGED_BY_BEGINNING = ("", "text/plain", "application/octet-stream", "binary/octet-stream", "application/json")
"""Types that gateways put on an event stream too."""
_FIELDS = (b"", b"data", b"event", b"id", b"retry")


@dataclass(frozen=True, slots=True)
class Opened:
    """The headers of the final response are here."""

    response: requests.Response | None
    """None: the source has no headers."""
    at: float
    judged: bool = True
    """Whether it is known to be what was asked for. False: that depends on how the body begins, and is reported later."""
    decoder: Decoder | None = None
    """What decodes the blocks, if only the source can choose it."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The response is not a stream; the full error follows when its body has been read, otherwise this one is raised."""

    response: requests.Response
    at: float
    error: StreamguardError


@dataclass(frozen=True, slots=True)
class BodyBlock:
    """A block of the body, as it was read."""

    data: Any = field(repr=False)
    """bytes, except in an `Item`."""
    at: float
    """When it arrived."""

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.data)

    @property
    def weight(self) -> int:
        """What it counts against the capacity between reader and consumer."""
        return len(self.data)


class Item(BodyBlock):
    """An object that a library has read and decoded."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """The number of its bytes; 0 for an object, whose bytes are not known."""
        return len(self.data) if isinstance(self.data, bytes) else 0

    @property
    def weight(self) -> int:
        """As much as a thousandth of the capacity, or as its bytes."""
        return max(self.size, _ITEM_WEIGHT)


def read_response(
    response: requests.Response, feed: Feed, guard: SocketGuard, *, event_stream: bool, asked_for_stream: bool = True
) -> None:
    """Judge a response whose body *guard* can cut, and read it to its end; *event_stream*: it must be an event stream."""
    guard.check()
    if response.status_code >= 400:
        _reject_status(response, feed)
    require_close_notify(response.headers, find_socket(response))
    blocks = read_blocks(response)
    with noting_cut_off(feed):
        if event_stream:
            require_decoder(response)
            blocks = _event_stream(asked_for_stream, response, blocks, feed)
        feed.put(Opened(response, monotonic()))
        for block in blocks:
            guard.check()
            feed.put(BodyBlock(block, monotonic()), len(block))
    guard.check()


def _event_stream(
    asked_for_stream: bool, response: requests.Response, blocks: Iterator[bytes], feed: Feed
) -> Iterator[bytes]:
    """Return the blocks if the response is an event stream, judged by its type, or by how its body begins."""
    kind = re.split("[;,]", response.headers.get("Content-Type", ""), maxsplit=1)[0].strip().lower()
    if kind == "text/event-stream":
        return blocks
    if kind not in _JUDGED_BY_BEGINNING:
        _reject_type(asked_for_stream, response, feed, b"")
    feed.put(Opened(response, monotonic(), judged=False))
    beginning = b""
    for block in blocks:
        beginning += block
        if len(beginning) >= QUOTED_BYTES or b"\n" in beginning or b"\r" in beginning:
            break
    if beginning and not begins_like_events(beginning):
        _reject_type(asked_for_stream, response, feed, beginning)
    return _chain(beginning, blocks)


def begins_like_events(beginning: bytes) -> bool:
    """Whether a body that begins like this can be an event stream: its first line is empty, a field or a comment."""
    line = re.split(rb"[\r\n]", beginning.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n"), maxsplit=1)[0]
    return line.partition(b":")[0] in _FIELDS


def _chain(beginning: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if beginning:
        yield beginning
    yield from blocks


def _reject_type(asked_for_stream: bool, response: requests.Response, feed: Feed, beginning: bytes) -> None:
    feed.put(Rejected(response, monotonic(), not_event_stream(response, beginning, asked_for_stream=asked_for_stream)))
    missing = max(0, QUOTED_BYTES - len(beginning))
    beginning += read_at_most(response, missing, BAD_BODY_SECONDS) if missing else b""
    raise not_event_stream(response, beginning, asked_for_stream=asked_for_stream)


def _reject_status(response: requests.Response, feed: Feed) -> None:
    feed.put(Rejected(response, monotonic(), status_error(response, b"")))
    raise status_error(response, read_at_most(response, _BAD_BODY_BYTES, BAD_BODY_SECONDS))
