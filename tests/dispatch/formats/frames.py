"""Frames of agent programs, and how the tests read them."""

import json
from typing import Any

from streamguard.dispatch._data.turn_events import Event, Kind
from streamguard.dispatch._formats import FORMATS, make_format

JSON_FORMATS = sorted(set(FORMATS) - {"lines"})


def read(name: str, *lines: object, exit_code: int | None = 0, **options: Any) -> list[Event]:
    """Read *lines* (objects, or text as it is) in the format, and the end with *exit_code*."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    reader = make_format(name, **options)
    return [*reader.feed(text.encode()), *reader.close(exit_code)]


def brief(events: list[Event]) -> list[tuple[str, ...]]:
    """Return kind and text, tool, session or code, whichever is there."""
    return [tuple(filter(None, (e.kind, e.tool, e.tool_id, e.session_id, e.text, e.error_code))) for e in events]


def answer(events: list[Event]) -> str:
    return "".join(event.text for event in events if event.kind is Kind.TEXT)


def stream_event(event: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": parent, "session_id": "s1"}


def delta(kind: str, key: str, text: str, parent: str | None = None) -> dict[str, Any]:
    return stream_event({"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: text}}, parent)


def assistant(message_id: str, *blocks: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {"id": message_id, "role": "assistant", "content": [*blocks]},
        "parent_tool_use_id": parent,
    }


INIT = {"type": "system", "subtype": "init", "session_id": "s1", "model": "opus", "tools": []}


START = stream_event({"type": "message_start", "message": {"id": "m1"}})


BLOCK = stream_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})


STOP = stream_event({"type": "message_stop"})


SUCCESS = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Hello", "usage": {"x": 1}}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def item(kind: str, stage: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{stage}", "item": {"id": "i1", "type": kind, **fields}}


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": 1, "sessionID": "o1", "part": fields}
