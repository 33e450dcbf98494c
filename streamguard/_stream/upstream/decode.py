"""From bytes to the chunks that the caller asked for with `decode=`. Pure: no thread, no socket.

Decoders are lazy: a block is framed when it is fed, and each chunk is made when it is taken. So the chunk that the consumer
has finished with is freed before the next one exists; making a block's chunks ahead costs twice as much.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Protocol

import sseclient

from ..._sse import (
    AnthropicAssembler,
    AnthropicDecoder,
    Assembler,
    ChatDecoder,
    EventClient,
    FrameDecoder,
    MessageAssembler,
    ObjectWatcher,
    ResponsesAssembler,
    ResponsesDecoder,
    in_stream_error,
    is_heartbeat_name,
    lone_error,
    unframed_error,
)
from ...errors import MalformedChunkError, UsageError


class Completion(Enum):
    """How far the stream has said that it is complete."""

    OPEN = "open"
    """It may go on; if the body ends here, something is missing."""
    FINISHED = "finished"
    """Every choice has its finish reason, but more content may follow: only the end shows that it does not."""
    SETTLED = "settled"
    """Every choice has its finish reason, and nothing but usage may follow."""
    DONE = "done"
    """The end marker came."""
    ANYWHERE = "anywhere"
    """There is no end marker: any well-framed end of the body is a complete one."""


class Decoder(Protocol):
    """Turn the body's bytes into chunks."""

    @property
    def comments(self) -> int:
        """Heartbeat comments seen so far."""

    @property
    def missing(self) -> str:
        """What is missing if the body ends and `completion` is still open."""

    @property
    def strays(self) -> bytes:
        """The beginning of lines that are not part of an event: a proxy's own text, an error without a frame."""

    @property
    def is_foreign(self) -> bool:
        """Whether there is nothing but strays: the body is not an event stream."""

    @property
    def completion(self) -> Completion:
        """How far the stream, as far as its chunks have been taken, has said that it is complete."""

    def feed(self, data: bytes) -> Iterator[Any]:
        """Add the next bytes; return the chunks that they complete. Take those before feeding more."""

    def finish(self) -> Iterator[Any]:
        """Return the chunks of an unfinished last block, when the body has ended."""


class BytesDecoder:
    """`decode="bytes"`: the body's bytes as they come."""

    comments = 0
    strays = b""
    is_foreign = False
    completion = Completion.ANYWHERE
    missing = ""

    def feed(self, data: bytes) -> Iterator[Any]:
        return iter((data,))

    def finish(self) -> Iterator[Any]:
        return iter(())


class _EventStreamDecoder:
    """What all decoders of events have in common."""

    missing = ""

    def __init__(self) -> None:
        self._client = EventClient()

    @property
    def comments(self) -> int:
        return self._client.comments

    @property
    def strays(self) -> bytes:
        return self._client.strays

    @property
    def is_foreign(self) -> bool:
        return self._client.is_foreign


class EventDecoder(_EventStreamDecoder):
    """`decode="events"`: `sseclient.Event` objects, by the WHATWG standard.

    It discards an unfinished last block, and ignores lines that are not fields: a body of nothing else has no events.
    """

    completion = Completion.ANYWHERE
    is_foreign = False

    def feed(self, data: bytes) -> Iterator[Any]:
        return iter(self._client.feed(data))

    def finish(self) -> Iterator[Any]:
        return iter(())


class JSONDecoder(_EventStreamDecoder):
    """`decode="json"`: each event's data, parsed. `[DONE]` ends the stream; events without data are skipped."""

    completion = Completion.ANYWHERE

    def feed(self, data: bytes) -> Iterator[Any]:
        return self._parsed(self._client.feed(data))

    def finish(self) -> Iterator[Any]:
        is_cut = self._client.is_amid_data
        event = self._client.finish()
        with contextlib.suppress(MalformedChunkError):  # a truncated payload is never delivered
            for value in self._parsed(() if event is None else (event,)):
                if not (is_cut and type(value) in (int, float)):  # 12 may be the beginning of 123
                    yield value

    def _parsed(self, events: Iterable[sseclient.Event]) -> Iterator[Any]:
        for event in events:
            text = event.data.strip()
            if text == "[DONE]":
                self.completion = Completion.DONE
            if self.completion is Completion.DONE:
                return
            if event.event == "error":
                raise in_stream_error(_any_json(text), {}, text)
            if text and not is_heartbeat_name(event.event):
                value = _json(text)
                if (error := lone_error(value, text)) is not None:
                    raise error
                yield value


class ChatStreamDecoder(_EventStreamDecoder):
    """`decode="chat"`: OpenAI-compatible chunks."""

    missing = "the stream ended with neither [DONE] nor a finish reason"
    _frames: Callable[[], FrameDecoder] = ChatDecoder

    def __init__(self, choices: int = 1) -> None:
        """*choices*: how many choices the request asks for."""
        super().__init__()
        if choices > 1:
            self.missing = f"the stream ended with neither [DONE] nor a finish reason of each of its {choices} choices"
            self._decoder: FrameDecoder = ChatDecoder(choices)
        else:
            self._decoder = self._frames()

    @property
    def completion(self) -> Completion:
        return _completion_of(self._decoder)

    def feed(self, data: bytes) -> Iterator[Any]:
        return self._decoded(self._client.feed(data))

    def finish(self) -> Iterator[Any]:
        event = self._client.finish()
        chunk = None if event is None else self._decoder.decode_last(event)
        if chunk is not None:
            yield chunk
        self._raise_unframed_error(self.strays)

    def _raise_unframed_error(self, lines: bytes) -> None:
        """Raise the error that the server put into the stream without a frame, if there is one."""
        for error in map(unframed_error, (lines, *lines.split(b"\n"))):
            if error is not None:
                raise error

    def _decoded(self, events: Iterable[sseclient.Event]) -> Iterator[Any]:
        decode = self._decoder.decode
        for event in events:
            if self._client.unframed and event.data.strip() == "[DONE]":
                self._raise_unframed_error(self._client.take_unframed())
            chunk = decode(event)
            if chunk is not None:
                yield chunk
        if self._client.unframed:
            self._raise_unframed_error(self._client.take_unframed())


class ResponsesStreamDecoder(ChatStreamDecoder):
    """`decode="responses"`: the events of the OpenAI Responses API."""

    missing = "the stream ended without response.completed"
    _frames = ResponsesDecoder


class AnthropicStreamDecoder(ChatStreamDecoder):
    """`decode="anthropic"`: the events of the Anthropic Messages API."""

    missing = "the stream ended with neither message_stop nor a stop reason"
    _frames = AnthropicDecoder


class EndWatcher(Protocol):
    """Notice how a stream of decoded items says that it is complete."""

    @property
    def known(self) -> bool: ...
    @property
    def done(self) -> bool: ...
    @property
    def finished(self) -> bool: ...
    @property
    def settled(self) -> bool: ...
    def see(self, item: object) -> None: ...


class ObjectDecoder:
    """Items that need no decoding. If their API is known, so is how the stream ends.

    *watcher* notices that end, by default for the model APIs. *may_be_empty*: whether an end without a single item is a
    complete one. *choices*: how many the request asks for.
    """

    comments = 0
    strays = b""
    is_foreign = False
    missing = "the stream ended before it said that it was complete"

    def __init__(self, watcher: EndWatcher | None = None, *, may_be_empty: bool = True, choices: int = 1) -> None:
        self._watcher = watcher or ObjectWatcher(choices)
        self._empty = not may_be_empty

    @property
    def completion(self) -> Completion:
        if self._watcher.known:
            return _completion_of(self._watcher)
        return Completion.OPEN if self._empty else Completion.ANYWHERE

    def feed(self, data: Any) -> Iterator[Any]:
        self._empty = False
        self._watcher.see(data)
        yield data

    def finish(self) -> Iterator[Any]:
        return iter(())


def _completion_of(decoder: FrameDecoder | EndWatcher) -> Completion:
    if decoder.done:
        return Completion.DONE
    if decoder.finished:
        return Completion.SETTLED if decoder.settled else Completion.FINISHED
    return Completion.OPEN


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "chat": ChatStreamDecoder,
    "responses": ResponsesStreamDecoder,
    "anthropic": AnthropicStreamDecoder,
    "events": EventDecoder,
    "json": JSONDecoder,
    "bytes": BytesDecoder,
}

_ASSEMBLERS: dict[str, Callable[[], Assembler]] = {
    "chat": MessageAssembler,
    "responses": ResponsesAssembler,
    "anthropic": AnthropicAssembler,
}


def assembler_of(decode: object) -> Assembler | None:
    """Return what puts the message together for a caller's `decode=`, or None if that makes no message."""
    make = _ASSEMBLERS.get(decode) if isinstance(decode, str) else None
    return None if make is None else make()


def decoder_of(decode: object, choices: int = 1) -> Callable[[], Decoder]:
    """Return a function that makes the decoder for a caller's `decode=`. A callable works on events.

    *choices*: how many choices of a chat the request asks for.
    """
    if decode == "chat" and choices > 1:
        return functools.partial(ChatStreamDecoder, choices)
    if isinstance(decode, str) and decode in _DECODERS:
        return _DECODERS[decode]
    if callable(decode):
        return EventDecoder
    raise UsageError(f"decode= takes {', '.join(map(repr, _DECODERS))} or a callable on events, not {decode!r}")


def _any_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise MalformedChunkError(f"the event's data is not JSON: {repr(text[:200])[:200]}") from exc
