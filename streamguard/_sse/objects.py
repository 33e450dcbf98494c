"""Chunks that a library has decoded already: an SDK's objects, seen as the frames that they were made of.

They are recognised by their shape, of whatever library they are; pydantic's `model_dump` is all that is asked of them.
"""

import contextlib
from typing import Any, Final, Literal, Protocol

from ..errors import MalformedChunkError
from .anthropic import AnthropicAssembler, AnthropicDecoder
from .chat import ChatDecoder
from .error_frames import ANTHROPIC_TYPES
from .frame_decoder import FrameDecoder
from .message import Message, MessageAssembler
from .responses_api import ResponsesAssembler, ResponsesDecoder
from .typed import type_of

API = Literal["chat", "responses", "anthropic"]


class Assembler(Protocol):
    """Puts the chunks of one stream together into its message."""

    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def usage(self) -> dict[str, Any] | None: ...
    def clear(self) -> None: ...
    def add(self, chunk: Any) -> None: ...
    def message(self, complete: bool) -> Message: ...


_DECODERS: Final[dict[API, type[FrameDecoder]]] = {
    "chat": ChatDecoder,
    "responses": ResponsesDecoder,
    "anthropic": AnthropicDecoder,
}
_ASSEMBLERS: Final[dict[API, type[Assembler]]] = {
    "chat": MessageAssembler,
    "responses": ResponsesAssembler,
    "anthropic": AnthropicAssembler,
}


def frame_of(item: object) -> dict[str, Any] | None:
    """Return the JSON object that *item* stands for: a dict is one, a pydantic model tells it; None for all else."""
    if isinstance(item, dict):
        return item
    dump = getattr(item, "model_dump", None)
    if not callable(dump):
        return None
    try:
        frame = dump(exclude_unset=True, warnings=False)
    except Exception:
        return None  # whatever it is, it is handed over: that we cannot look into it must not end the stream
    if not isinstance(frame, dict):
        return None
    inner = frame.get("chunk")  # the helper streams of openai wrap each chunk into an event of their own
    return inner if frame.get("type") == "chunk" and isinstance(inner, dict) else frame


def api_of(frame: dict[str, Any]) -> API | None:
    """Return whose streaming events look like *frame*."""
    if isinstance(frame.get("choices"), list):
        return "chat"
    kind = type_of(frame)
    if kind.startswith("response."):
        return "responses"
    return "anthropic" if kind in ANTHROPIC_TYPES else None


class ObjectWatcher:
    """Notice how a stream of decoded chunks says that it is complete, or has failed."""

    def __init__(self, choices: int = 1) -> None:
        """*choices*: how many choices of a chat the request asks for."""
        self._choices = choices
        self._decoder: FrameDecoder | None = None

    @property
    def known(self) -> bool:
        """Whether the chunks are of an API whose streams say when they are complete."""
        return self._decoder is not None

    @property
    def done(self) -> bool:
        """Whether the end has been said."""
        return self._decoder is not None and self._decoder.done

    @property
    def finished(self) -> bool:
        """Whether only the end is missing."""
        return self._decoder is not None and self._decoder.finished

    @property
    def settled(self) -> bool:
        """Whether it has `finished` in such a way that only usage and the end can follow."""
        return self._decoder is not None and self._decoder.settled

    def see(self, item: object) -> None:
        """Look at the next chunk. Raises InStreamError for one that reports an error."""
        frame = frame_of(item)
        if frame is None:
            return
        if self._decoder is None and (api := api_of(frame)) is not None:
            self._decoder = ChatDecoder(self._choices) if api == "chat" else _DECODERS[api]()
        if self._decoder is not None:
            with contextlib.suppress(MalformedChunkError):  # an event of the library's own, between those of the API
                self._decoder.take(frame, "")


class ObjectAssembler:
    """Put together what a stream hands over, whatever that is: the first chunk of a known API says how."""

    def __init__(self) -> None:
        self._assembler: Assembler | None = None

    @property
    def known(self) -> bool:
        """Whether there is a message to put together."""
        return self._assembler is not None

    @property
    def text(self) -> str:
        """The text so far. May be read from any thread."""
        return "" if self._assembler is None else self._assembler.text

    @property
    def finish_reason(self) -> str | None:
        """Why the message ended, if it has."""
        return None if self._assembler is None else self._assembler.finish_reason

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts as the server gave them last; None means unknown."""
        return None if self._assembler is None else self._assembler.usage

    def clear(self) -> None:
        """Forget everything: a new message begins."""
        self._assembler = None

    def add(self, chunk: object) -> None:
        """Add a chunk."""
        frame = frame_of(chunk)
        if frame is None:
            return
        if self._assembler is None and (api := api_of(frame)) is not None:
            self._assembler = _ASSEMBLERS[api]()
        if self._assembler is not None:
            self._assembler.add(frame)

    def message(self, complete: bool) -> Message:
        """Return the message so far; *complete* says whether the stream ended as it should."""
        return Message() if self._assembler is None else self._assembler.message(complete)
