"""The streaming events of the OpenAI Responses API (`response.created` … `response.completed`). Pure."""

from typing import Any, Final

from .chunk import writable
from .error_frames import FAILED_RESPONSES
from .event_stream.heartbeats import HEARTBEAT_NAMES
from .tool_calls import function_piece
from .typed import TypedAssembler, TypedDecoder, dict_of, index_in, text_of, type_of

_COMPLETED: Final = "response.completed"
_INCOMPLETE: Final = "response.incomplete"
_TEXT: Final = "response.output_text.delta"
_REFUSAL: Final = "response.refusal.delta"
_REASONING: Final = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ARGUMENTS: Final = {
    "response.function_call_arguments.delta": "function",
    "response.custom_tool_call_input.delta": "custom",
}
_ARGUMENTS_DONE: Final = {
    "response.function_call_arguments.done": "arguments",
    "response.custom_tool_call_input.done": "input",
}
_CALLS: Final = {
    "function_call": ("function", "arguments"),
    "custom_tool_call": ("custom", "input"),
    # The client is to answer these as well, in ways of their own.
    "computer_call": ("computer_call", "action"),
    "local_shell_call": ("local_shell_call", "action"),
    "shell_call": ("shell_call", "action"),
    "apply_patch_call": ("apply_patch_call", "operation"),
    "mcp_approval_request": ("mcp_approval_request", "arguments"),
}
"""The items that are calls for the client, with their kind and the field that holds the arguments."""
_WRITTEN: Final = (
    *("response.mcp_call_arguments.delta", "response.code_interpreter_call_code.delta"),
    *("response.output_audio.delta", "response.audio.delta"),
    *("response.output_audio_transcript.delta", "response.audio.transcript.delta"),
    *("response.image_generation_call.partial_image",),
)
"""Deltas of what the model writes for the server's own tools, and of other media."""
_ITEM_ADDED: Final = "response.output_item.added"
_ITEM_DONE: Final = "response.output_item.done"


class ResponseChunk(dict[str, Any]):
    """One event of a Responses stream: the decoded JSON object, with properties for what one mostly wants.

    null, a missing key or a value of the wrong type reads as nothing. The object is what the server sent, unchanged.
    """

    __slots__ = ()

    @property
    def type(self) -> str:
        """The event's type, such as `"response.output_text.delta"`."""
        return type_of(self)

    @property
    def text(self) -> str:
        """The text delta, `""` if this is none."""
        return writable(self._delta(_TEXT))

    @property
    def reasoning(self) -> str:
        """The delta of the reasoning or of its summary, `""` if this is none."""
        return writable(self._delta(*_REASONING))

    @property
    def refusal(self) -> str:
        """The delta of a refusal, `""` if this is none."""
        return self._delta(_REFUSAL)

    @property
    def tool_calls(self) -> list[Any]:
        """The piece of a function call, in the shape of a chat delta's; assembled ones are in the stream's message."""
        kind, item = self.type, dict_of(self.get("item"))
        index, item_id = index_in(self, "output_index"), text_of(self.get("item_id"))
        if kind in _ARGUMENTS:
            return [function_piece(index, arguments=self.get("delta"), item_id=item_id, kind=_ARGUMENTS[kind])]
        if kind == _ITEM_ADDED and item.get("type") in _CALLS:
            return [_call_of(index, item, begun=True)]
        return []

    @property
    def written(self) -> bool:
        """Whether the model writes something else in it: for the server's own tools, or audio and images."""
        return self.type in _WRITTEN and any(bool(self.get(key)) for key in ("delta", "partial_image_b64"))

    @property
    def finish_reason(self) -> str | None:
        """`"completed"`, or why the response is incomplete (`"max_output_tokens"`); None while it has not ended."""
        if self.type == _COMPLETED:
            return "completed"
        if self.type != _INCOMPLETE:
            return None
        return text_of(dict_of(self._response.get("incomplete_details")).get("reason")) or "incomplete"

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts of the last event, or None."""
        return dict_of(self._response.get("usage")) or None

    @property
    def _response(self) -> dict[str, Any]:
        return dict_of(self.get("response"))

    def _delta(self, *kinds: str) -> str:
        return text_of(self.get("delta")) if self.get("type") in kinds else ""


class ResponsesDecoder(TypedDecoder):
    """Turn the events of one Responses stream into chunks.

    `response.completed` and `response.incomplete` end it, `response.failed`, `response.cancelled` and `error` raise
    `InStreamError`. Keep-alives are not chunks. An object of an unknown type is handed over as it is.
    """

    __slots__ = ()

    own = "responses"
    expected = "expected an event of the OpenAI Responses API"
    pings = HEARTBEAT_NAMES | {"response.keep_alive", "response.keepalive"}

    def knows(self, kind: str) -> bool:
        """Return whether *kind* is a type of this API that reports no error."""
        return kind.startswith("response.") and kind not in FAILED_RESPONSES

    def chunk(self, kind: str, frame: dict[str, Any]) -> ResponseChunk:
        """Return the chunk of a good frame; the stream is done with the event that carries the whole response."""
        self.done = kind in (_COMPLETED, _INCOMPLETE)
        return ResponseChunk(frame)


class ResponsesAssembler(TypedAssembler):
    """Put the message of a Responses stream together: text, reasoning, refusal and calls.

    The whole items and the whole response at their end are final: they replace what the deltas said of a call, and give
    the text if there was none.
    """

    def add(self, chunk: dict[str, Any]) -> None:
        """Add a chunk."""
        event, draft = ResponseChunk(chunk), self._draft
        for pieces, text in (
            (draft.text, event._delta(_TEXT)),
            (draft.reasoning, event._delta(*_REASONING)),
            (draft.refusal, event.refusal),
        ):
            if text:
                pieces.append(text)
        for piece in event.tool_calls:
            draft.calls.add(piece)
        if event.type in _ARGUMENTS_DONE:
            whole = event.get(_ARGUMENTS_DONE[event.type])
            item_id = text_of(event.get("item_id"))
            draft.calls.complete(function_piece(index_in(event, "output_index"), arguments=whole, item_id=item_id))
        elif event.type == _ITEM_DONE:
            self._whole_call(index_in(event, "output_index"), event.get("item"))
        elif event.finish_reason:
            self._whole_response(event)

    def _whole_call(self, index: int | None, item: object) -> None:
        call = dict_of(item)
        if call.get("type") in _CALLS:
            self._draft.calls.complete(_call_of(index, call))

    def _whole_response(self, event: ResponseChunk) -> None:
        self._draft.finish_reason = event.finish_reason
        self._usage = event.usage
        output = event._response.get("output")
        items = output if isinstance(output, list) else []
        for index, item in enumerate(items):
            self._whole_call(index, item)
        if not self._draft.text:
            self._draft.text += [text for item in items for text in _texts(item)]


def _call_of(index: int | None, item: dict[str, Any], *, begun: bool = False) -> dict[str, Any]:
    """Return an item that is a call as a piece of one; *begun*: its arguments are still to come."""
    kind, field = _CALLS[text_of(item.get("type"))]
    name = item.get("name") or (kind if kind not in ("function", "custom") else None)
    given = None if begun and kind in ("function", "custom") else item.get(field)
    return function_piece(index, item.get("call_id"), name, given, item_id=text_of(item.get("id")), kind=kind)


def _texts(item: object) -> list[str]:
    content = dict_of(item).get("content")
    parts = [dict_of(part) for part in content] if isinstance(content, list) else []
    return [text_of(part.get("text")) for part in parts if part.get("type") == "output_text"]
