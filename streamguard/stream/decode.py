"""From bytes to what the caller asked for with `decode=`. Pure: no thread, no socket.

Decoders are lazy: a block is framed when it is fed, and each chunk is made when it is taken. So the chunk that the consumer
has finished with is gone before the next one exists; making them ahead, by the block, costs twice as much.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Protocol

import sseclient

from ..errors import MalformedChunkError, UsageError
from ..sse import ChatDecoder, EventClient

__all__ = ["Decoder", "Ending", "decoder_of"]


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

    @property
    def comments(self) -> int:
        """Heartbeat comments seen so far."""

    @property
    def ending(self) -> Ending:
        """How far the stream, as far as its chunks have been taken, has said that it is complete."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Take the next bytes; return the chunks that they complete. Take those before feeding more."""

    def finish(self) -> Iterator[Any]:
        """Return what may still be taken from an unfinished last block: the body has ended."""


class BytesDecoder:
    """`decode="bytes"`: the body's bytes as they come."""

    comments = 0
    ending = Ending.ANYWHERE

    def feed(self, data: bytes) -> Iterator[Any]:
        return iter((data,))

    def finish(self) -> Iterator[Any]:
        return iter(())


class EventDecoder:
    """`decode="events"`: `sseclient.Event` objects. An unfinished last block is discarded, as the WHATWG standard says."""

    ending = Ending.ANYWHERE

    def __init__(self) -> None:
        self._client = EventClient()

    @property
    def comments(self) -> int:
        return self._client.comments

    def feed(self, data: bytes) -> Iterator[Any]:
        return iter(self._client.feed(data))

    def finish(self) -> Iterator[Any]:
        return iter(())


class JSONDecoder(EventDecoder):
    """`decode="json"`: each event's data, parsed. `[DONE]` ends the stream; events without data are skipped."""

    def feed(self, data: bytes) -> Iterator[Any]:
        return self._parsed(self._client.feed(data))

    def finish(self) -> Iterator[Any]:
        event = self._client.finish()
        with contextlib.suppress(MalformedChunkError):  # a truncated payload is never delivered
            yield from self._parsed(() if event is None else (event,))

    def _parsed(self, events: Iterable[sseclient.Event]) -> Iterator[Any]:
        for event in events:
            text = event.data.strip()
            if text == "[DONE]":
                self.ending = Ending.DONE
            if self.ending is Ending.DONE:
                return
            if text:
                yield _json(text)


class ChatStreamDecoder:
    """`decode="chat"`: OpenAI-compatible chunks."""

    def __init__(self) -> None:
        self._client = EventClient()
        self._chat = ChatDecoder()

    @property
    def comments(self) -> int:
        return self._client.comments

    @property
    def ending(self) -> Ending:
        if self._chat.done:
            return Ending.DONE
        return Ending.FINISHED if self._chat.finished else Ending.OPEN

    def feed(self, data: bytes) -> Iterator[Any]:
        return self._decoded(self._client.feed(data))

    def finish(self) -> Iterator[Any]:
        event = self._client.finish()
        chunk = None if event is None else self._chat.decode_last(event)
        if chunk is not None:
            yield chunk

    def _decoded(self, events: Iterable[sseclient.Event]) -> Iterator[Any]:
        decode = self._chat.decode
        for event in events:
            chunk = decode(event)
            if chunk is not None:
                yield chunk


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "chat": ChatStreamDecoder,
    "events": EventDecoder,
    "json": JSONDecoder,
    "bytes": BytesDecoder,
}


def decoder_of(decode: object) -> Callable[[], Decoder]:
    """Return what makes the decoder for a caller's `decode=`. A callable works on events."""
    if isinstance(decode, str) and decode in _DECODERS:
        return _DECODERS[decode]
    if callable(decode):
        return EventDecoder
    raise UsageError(f"decode= takes {', '.join(map(repr, _DECODERS))} or a callable on events, not {decode!r}")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise MalformedChunkError(f"the event's data is not JSON: {repr(text[:200])[:200]}") from exc
