"""Did a model write something in this? Asked of whatever a stream hands over."""

import json
from typing import Any, Final

from .anthropic import AnthropicChunk
from .chunk import Chunk, chat_has_content
from .event_stream.event_parser import Event
from .event_stream.heartbeats import is_heartbeat_name, is_heartbeat_text
from .objects import api_of, frame_of
from .responses_api import ResponseChunk

_EMPTY_DATA: Final = ("", "{}", "null", "[]", "[DONE]")
_TYPED: Final = {"responses": ResponseChunk, "anthropic": AnthropicChunk}


def has_content(chunk: object) -> bool:
    """Return whether something that a model wrote is in *chunk*: text, reasoning, a refusal or a piece of a tool call.

    Heartbeats (`{}`), empty choices, role-only and empty deltas, usage, finish reasons, and what frames a message or a
    block of it, are not content. Made for `counts=`, so it takes all that a stream hands over, the objects of an SDK too:
    an event counts if it has data and is not a ping; any other object that is not a chat chunk counts if it is truthy.
    """
    if isinstance(chunk, Event):
        return _event_has_content(chunk)
    if isinstance(chunk, Chunk):
        return chat_has_content(chunk)
    frame = frame_of(chunk)
    return bool(chunk) if frame is None else _frame_has_content(frame)


def text_of(chunk: object) -> str | None:
    """Return the text that *chunk* adds to a model's answer, `""` if none; None for any other object.

    It takes the objects of an SDK as well as our own chunks.
    """
    frame = frame_of(chunk)
    api = None if frame is None else api_of(frame)
    if frame is None or api is None:
        return None
    return Chunk(frame).text if api == "chat" else _TYPED[api](frame).text


def _frame_has_content(frame: dict[str, Any]) -> bool:
    api = api_of(frame)
    if api == "chat" or "choices" in frame:
        return chat_has_content(frame)
    if api is None:
        kind = frame.get("type")
        return bool(frame) and not (isinstance(kind, str) and is_heartbeat_name(kind))
    typed = _TYPED[api](frame)
    written = typed.text or typed.reasoning or typed.written or getattr(typed, "refusal", "")
    return bool(written or any(_is_piece_of_a_call(piece) for piece in typed.tool_calls))


def _is_piece_of_a_call(piece: dict[str, Any]) -> bool:
    return bool(piece["id"] or piece["function"]["name"] or piece["function"]["arguments"])


def _event_has_content(event: Event) -> bool:
    data = event.data.strip()
    if data in _EMPTY_DATA or is_heartbeat_name(event.event) or is_heartbeat_text(data):
        return False
    frame = _object(data) if data.startswith("{") else None
    return True if frame is None else _frame_has_content(frame)


def _object(data: str) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
