"""Parse the blocks of an event stream into events: sseclient's client and type, the standard's rules."""

import logging
import re
from collections.abc import Callable, Generator, Iterable
from typing import Any, Final, cast

import sseclient
from sseclient import Event as Event

from .framing import Framer

# sseclient logs each client that is made, under the name of the class's module: below our own logger. A filter stays
# where `logging.config.dictConfig()` resets `disabled` and the level.
logging.getLogger(__name__).addFilter(lambda record: False)

_LF: Final = 10
_MAX_RETRY_DIGITS: Final = 100
_STRAY_BYTES: Final = 4096
_UNFRAMED_BYTES: Final = 65536
_MAY_BE_ERROR: Final = re.compile(rb"\s*(?:\{|errors?\s*:)", re.IGNORECASE)
# The library's type information leaves out the constructor.
new_event: Final = cast(Callable[[str, str, str, int | None], Event], Event)


class EventClient(sseclient.SSEClient):
    """Decode an event stream by the rules of WHATWG HTML, sections 9.2.5 and 9.2.6.

    Use it as sseclient's own client, `EventClient(response).events()`, or push pieces of any size into `feed()`. Lines
    are split as bytes and decoded as UTF-8; an invalid byte becomes U+FFFD and the stream goes on. An event's `id` is
    the last event id at that time, `event` is `"message"` unless named, `retry` is the int of this event's own valid
    `retry` line or None. A block without a `data` line is not an event, though its id and retry count.

    *event_source* is an iterable of bytes; leave it out to use `feed()`. *max_bytes* (default 16 MiB) caps one event.
    """

    def __init__(self, event_source: Iterable[bytes] = (), *, max_bytes: int = 16 * 1024 * 1024) -> None:
        super().__init__(cast(Any, event_source))
        self._source = event_source
        self._framer = Framer(max_bytes)
        self._comments = 0
        self.last_event_id = ""
        """The id of the latest complete block that had one; an empty `id` line resets it."""
        self.retry_ms: int | None = None
        """The server's wish for the pause before a reconnection, in milliseconds."""
        self.strays = b""
        """Lines that the standard ignores, neither field nor comment, joined by LF: their first 4 KiB or so."""
        self.unframed = b""
        """Those of them that look like an error, a JSON object or `error: ...`, until they are taken."""
        self._has_fields = False

    @property
    def is_foreign(self) -> bool:
        """Whether there are only lines that are neither fields nor comments: this is not an event stream."""
        return bool(self.strays) and not self._has_fields

    @property
    def is_amid_data(self) -> bool:
        """Whether what came ends in the middle of a data line."""
        return self._framer.open_line.startswith(b"data")

    @property
    def comments(self) -> int:
        """Comment lines seen so far, those of the unfinished block included."""
        return self._comments + self._framer.pending_comments

    def events(self) -> Generator[Event, None, None]:
        """Yield the events of the source. An unfinished block at its end is discarded, as the standard says.

        Raises `MalformedChunkError` when an event is above the cap, and whatever the source raises.
        """
        for data in self._source:
            yield from self.feed(data)
        self.finish()

    def feed(self, data: bytes) -> list[Event]:
        """Take the next piece of the stream and return the events that are complete by now.

        Raises `MalformedChunkError` when an event is above the cap, after those in front of it were returned.
        """
        events = []
        for block in self._framer.feed(data):
            if block.startswith(b"data: ") and _LF not in block:
                events.append(new_event(self.last_event_id, "message", block[6:].decode("utf-8", "replace"), None))
            elif (event := self._parse(block)) is not None:
                events.append(event)
        self._has_fields = self._has_fields or bool(events)
        return events

    def finish(self) -> Event | None:
        """Return the unfinished last block as if its blank line followed; None if it has no data.

        The standard discards that event, and never takes its id into `last_event_id`; its `retry` counts. Using the
        event is the caller's decision: that a server which forgot the last blank line meant it.
        """
        committed = self.last_event_id
        event = self._parse(self._framer.finish())
        self.last_event_id = committed
        return event

    def take_unframed(self) -> bytes:
        """Return the lines that look like an error, and forget them."""
        lines, self.unframed = self.unframed, b""
        return lines

    def _parse(self, block: bytes) -> Event | None:
        data: list[bytes] = []
        kind, retry = b"", None
        lines, strays = block.split(b"\n"), 0
        for line in lines:
            name, colon, value = line.partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                data.append(value)
            elif name == b"event":
                kind = value
            elif name == b"id":
                self._take_id(value)
            elif name == b"retry":
                retry = self._take_retry(value, retry)
            elif colon and not name:
                self._comments += 1
            else:
                strays += 1
                self._take_stray(line)
        self._has_fields = self._has_fields or strays < len(lines)
        if not data:
            return None
        text = b"\n".join(data).decode("utf-8", "replace")
        return new_event(self.last_event_id, kind.decode("utf-8", "replace") or "message", text, retry)

    def _take_stray(self, line: bytes) -> None:
        if line.strip() and len(self.strays) < _STRAY_BYTES:
            self.strays += line[:_STRAY_BYTES] + b"\n"
        if len(self.unframed) < _UNFRAMED_BYTES and _MAY_BE_ERROR.match(line):
            self.unframed += line[:_UNFRAMED_BYTES] + b"\n"

    def _take_id(self, value: bytes) -> None:
        if b"\0" not in value:
            self.last_event_id = value.decode("utf-8", "replace")

    def _take_retry(self, value: bytes, current: int | None) -> int | None:
        # bytes.isdigit() is true for ASCII digits only. Python itself refuses to convert thousands of them.
        if not value.isdigit() or len(value) > _MAX_RETRY_DIGITS:
            return current
        self.retry_ms = int(value)
        return self.retry_ms
