"""The streaming events of the Anthropic Messages API (`message_start` … `message_stop`). Pure."""

from typing import Any, Final

from .chunk import writable
from .error_frames import ANTHROPIC_TYPES
from .event_stream.heartbeats import HEARTBEAT_NAMES
from .tool_calls import function_piece
from .typed import TypedAssembler, TypedDecoder, dict_of, index_in, text_of, type_of

_BLOCK_START: Final = "content_block_start"
_BLOCK_DELTA: Final = "content_block_delta"
_OTHER_DELTAS: Final = ("citations_delta", "input_json_delta")
_OTHER_BLOCKS: Final = ("redacted_thinking", "server_tool_use", "mcp_tool_use", "web_search_tool_result", "mcp_tool_result")


class AnthropicChunk(dict[str, Any]):
    """One event of a Messages stream: the decoded JSON object, with properties for what one mostly wants.

    null, a missing key or a value of the wrong type reads as nothing. The object is what the server sent, unchanged.
    """

    __slots__ = ()

    @property
    def type(self) -> str:
        """The event's type, such as `"content_block_delta"`."""
        return type_of(self)

    @property
    def text(self) -> str:
        """The text of a delta, or that a text block begins with; `""` if there is none."""
        return writable(self._written("text_delta", "text"))

    @property
    def reasoning(self) -> str:
        """The thinking of a delta, or that a thinking block begins with; `""` if there is none."""
        return writable(self._written("thinking_delta", "thinking"))

    @property
    def tool_calls(self) -> list[Any]:
        """The piece of a tool call, in the shape of a chat delta's; assembled ones are in the stream's message.

        *Limits*: a piece of the arguments does not say whose they are: those of tools that the server runs come too.
        """
        block, delta = self._block, self._delta
        if block.get("type") == "tool_use":
            # `{}` stands for "to come"; who has the whole input already may send it here.
            given = block.get("input") or None
            return [function_piece(index_in(self, "index"), block.get("id"), block.get("name"), given)]
        if delta.get("type") == "input_json_delta":
            return [function_piece(index_in(self, "index"), arguments=delta.get("partial_json"))]
        return []

    @property
    def finish_reason(self) -> str | None:
        """The message's `stop_reason`, or None while there is none."""
        return text_of(dict_of(self.get("delta")).get("stop_reason")) or None if self.type == "message_delta" else None

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts in this event (of the input at the start, of the output at the end), or None."""
        source = dict_of(self.get("message")) if self.type == "message_start" else self
        return dict_of(source.get("usage")) or None

    @property
    def written(self) -> bool:
        """Whether the model writes something else in it: a citation, redacted thinking, the input of the server's tools."""
        delta, block = self._delta, self._block
        if delta.get("type") in _OTHER_DELTAS:
            return any(value for key, value in delta.items() if key != "type")
        return block.get("type") in _OTHER_BLOCKS

    @property
    def _block(self) -> dict[str, Any]:
        return dict_of(self.get("content_block")) if self.type == _BLOCK_START else {}

    @property
    def _delta(self) -> dict[str, Any]:
        return dict_of(self.get("delta")) if self.type == _BLOCK_DELTA else {}

    def _written(self, delta_type: str, key: str) -> str:
        for part, kind in ((self._delta, delta_type), (self._block, key)):
            if part.get("type") == kind:
                return text_of(part.get(key))
        return ""


class AnthropicDecoder(TypedDecoder):
    """Turn the events of one Messages stream into chunks.

    `message_stop` ends it, `error` raises `InStreamError`, `ping` is not a chunk. An object of an unknown type is handed
    over as it is.
    """

    __slots__ = ("_finished", "_resumed")

    own = "anthropic"
    expected = "expected an event of the Anthropic Messages API"
    pings = HEARTBEAT_NAMES

    def __init__(self) -> None:
        super().__init__()
        self._finished = self._resumed = False

    @property
    def finished(self) -> bool:
        """The message has its stop reason; only `message_stop` is missing."""
        return self._finished

    @property
    def settled(self) -> bool:
        """The message has its stop reason, and no block came after one."""
        return self._finished and not self._resumed

    def knows(self, kind: str) -> bool:
        """Return whether *kind* is a type of this API that reports no error."""
        return kind in ANTHROPIC_TYPES

    def chunk(self, kind: str, frame: dict[str, Any]) -> AnthropicChunk:
        """Return the chunk of a good frame, and note what it says about the end."""
        chunk = AnthropicChunk(frame)
        self.done = kind == "message_stop"
        if self._finished and kind in (_BLOCK_START, _BLOCK_DELTA):
            self._finished, self._resumed = False, True
        elif kind == "message_delta":
            self._finished = self._finished or chunk.finish_reason is not None
        return chunk


class AnthropicAssembler(TypedAssembler):
    """Put the message of a Messages stream together: text, thinking and tool calls.

    *Limits*: calls of tools that the server runs itself are none to make, and are left out.
    """

    def clear(self) -> None:
        """Forget everything: a new message begins."""
        super().clear()
        self._calls: set[int | None] = set()
        """The indexes of the blocks that are tool calls."""

    def add(self, chunk: dict[str, Any]) -> None:
        """Add a chunk."""
        event, draft = AnthropicChunk(chunk), self._draft
        if text := event._written("text_delta", "text"):
            draft.text.append(text)
        if reasoning := event._written("thinking_delta", "thinking"):
            draft.reasoning.append(reasoning)
        index = index_in(event, "index")
        if event._block.get("type") == "tool_use":
            self._calls.add(index)
        if index in self._calls:
            for piece in event.tool_calls:
                draft.calls.add(piece)
        draft.finish_reason = event.finish_reason or draft.finish_reason
        if usage := event.usage:
            known = {key: value for key, value in usage.items() if value is not None}
            self._usage = {**(self._usage or {}), **known}
