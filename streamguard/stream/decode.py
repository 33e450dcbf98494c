"""From bytes to what the caller asked for with `decode=`. Pure: no thread, no socket.

A decoder appends to a list rather than returning one, so that what came before a bad frame is not lost with it.
"""

import contextlib
import json
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

import sseclient

from ..errors import MalformedChunkError, UsageError
from ..sse import ChatDecoder, EventClient

__all__ = ["Decode", "Decoder", "Ending", "decoder_of"]

Decode = str | Callable[[sseclient.Event], Any]


class Ending(Enum):
    """How far the stream had said that it was complete."""

    OPEN = "open"
    """It may go on; if the body ends here, something is missing."""
    FINISHED = "finished"
    """Every choice has its finish reason; a usage chunk may still follow."""
    DONE = "done"
    """The end marker came."""
    ANYWHERE = "anywhere"
    """What is decoded has no end marker: any well-framed end of the body is a complete one."""


class Decoder(Protocol):
    """Turn the body's bytes into chunks."""

    sse: bool
    """Whether the response has to be an event stream."""

    @property
    def comments(self) -> int:
        """Heartbeat comments seen so far."""

    @property
    def ending(self) -> Ending:
        """How far the stream has said that it is complete."""

    def feed(self, data: bytes, out: list[Any]) -> None:
        """Append to *out* the chunks that *data* completes."""

    def finish(self, out: list[Any]) -> None:
        """Append what may still be taken from an unfinished last block: the body has ended."""


class BytesDecoder:
    """`decode="bytes"`: the body's bytes as they come."""

    comments = 0
    ending = Ending.ANYWHERE
    sse = False

    def feed(self, data: bytes, out: list[Any]) -> None:
        out.append(data)

    def finish(self, out: list[Any]) -> None:
        pass


class EventDecoder:
    """`decode="events"`: `sseclient.Event` objects, by the rules of the WHATWG standard.

    Any well-framed end of the body is a complete end. The standard discards an unfinished last block.
    """

    sse = True
    ending = Ending.ANYWHERE

    def __init__(self) -> None:
        self._client = EventClient(())

    @property
    def comments(self) -> int:
        return self._client.comments

    def feed(self, data: bytes, out: list[Any]) -> None:
        out.extend(self._client.feed(data))

    def finish(self, out: list[Any]) -> None:
        pass


class JSONDecoder(EventDecoder):
    """`decode="json"`: each event's data, parsed. `[DONE]` ends the stream; events without data are skipped."""

    def feed(self, data: bytes, out: list[Any]) -> None:
        for event in self._client.feed(data):
            if self.ending is Ending.DONE:
                return
            self._add(event.data, out)

    def finish(self, out: list[Any]) -> None:
        event = self._client.finish()
        if event is not None and self.ending is not Ending.DONE:
            with contextlib.suppress(MalformedChunkError):  # a truncated payload is never delivered
                self._add(event.data, out)

    def _add(self, data: str, out: list[Any]) -> None:
        text = data.strip()
        if text == "[DONE]":
            self.ending = Ending.DONE
        elif text:
            try:
                out.append(json.loads(text))
            except ValueError as exc:
                raise MalformedChunkError(f"the event's data is not JSON: {text[:200]!r}") from exc


class ChatStreamDecoder:
    """`decode="chat"`: OpenAI-compatible chunks."""

    sse = True

    def __init__(self) -> None:
        self._client = EventClient(())
        self._chat = ChatDecoder()

    @property
    def comments(self) -> int:
        return self._client.comments

    @property
    def ending(self) -> Ending:
        if self._chat.done:
            return Ending.DONE
        return Ending.FINISHED if self._chat.finished else Ending.OPEN

    def feed(self, data: bytes, out: list[Any]) -> None:
        chat = self._chat
        for event in self._client.feed(data):
            chunk = chat.decode(event)
            if chunk is not None:
                out.append(chunk)
            elif chat.done:
                return

    def finish(self, out: list[Any]) -> None:
        event = self._client.finish()
        if event is None or self._chat.done:
            return
        chunk = self._chat.decode_last(event)
        if chunk is not None:
            out.append(chunk)


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "chat": ChatStreamDecoder,
    "events": EventDecoder,
    "json": JSONDecoder,
    "bytes": BytesDecoder,
}


def decoder_of(decode: object) -> Callable[[], Decoder]:
    """Return what makes the decoder for a caller's `decode=`. A callable works on events, in the consumer's thread."""
    if isinstance(decode, str) and decode in _DECODERS:
        return _DECODERS[decode]
    if callable(decode):
        return EventDecoder
    raise UsageError(f"decode= takes {', '.join(map(repr, _DECODERS))} or a callable on events, not {decode!r}")
