"""Claude Code: `claude -p --output-format stream-json --verbose [--include-partial-messages]`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .._data.turn_events import Event, Kind
from .base import JsonLines, Patterns, Reader, mapping, words

_DELTAS = {
    "text_delta": (Kind.TEXT, "text"),
    "thinking_delta": (Kind.THINKING, "thinking"),
    "input_json_delta": (Kind.TOOL_CALL, "partial_json"),
}
_BLOCKS = {"text": Kind.TEXT, "thinking": Kind.THINKING, "tool_use": Kind.TOOL_CALL, "server_tool_use": Kind.TOOL_CALL}


class Claude(JsonLines):
    """With partial messages the text arrives twice, as deltas and in the whole message: it is yielded once, by message id.

    The text of a sub-agent is `rich`: output, but not part of the answer.
    """

    name = "claude"
    result_line = "its result line"

    def __init__(self, ignore: Patterns) -> None:
        super().__init__(ignore)
        self._message_ids: dict[str, str] = {}
        self._streamed: set[tuple[str, Kind]] = set()
        self._tool_names: dict[str, str] = {}
        self._current_tool: dict[str, str] = {}

    def _readers(self) -> Mapping[str, Reader]:
        return {
            "system": self._system,
            "stream_event": self._stream_event,
            "assistant": self._assistant,
            "user": self._user,
            "result": self._result,
            "rate_limit_event": self._status,
        }

    def _system(self, message: dict[str, Any]) -> list[Event]:
        if message.get("subtype") != "init":
            return self._status(message)
        model = {"model": message.get("model")}
        return [Event(kind=Kind.SESSION, session_id=words(message.get("session_id")) or None, data=model)]

    def _stream_event(self, message: dict[str, Any]) -> list[Event]:
        parent = words(message.get("parent_tool_use_id"))
        event = mapping(message.get("event"))
        kind = event.get("type")
        if kind == "content_block_delta":
            return [self._delta(parent, mapping(event.get("delta")))]
        if kind == "message_start":
            self._message_ids[parent] = words(mapping(event.get("message")).get("id"))
        elif kind == "content_block_start":
            self._new_paragraph = self._new_paragraph or not parent
            self._current_tool[parent] = words(mapping(event.get("content_block")).get("name"))
        return [Event(kind=Kind.SIGNAL if kind == "ping" else Kind.STATUS, text=words(kind))]

    def _delta(self, parent: str, delta: dict[str, Any]) -> Event:
        name = words(delta.get("type"))
        if name not in _DELTAS:
            return Event(kind=Kind.STATUS, text=name)
        kind, key = _DELTAS[name]
        text = words(delta.get(key))
        self._streamed.add((self._message_ids.get(parent, ""), kind))
        if kind is Kind.TOOL_CALL:
            return Event(kind=kind, text=text, delta=True, tool=self._current_tool.get(parent))
        return self._words(text, delta=True, kind=Kind.RICH if parent else kind)

    def _assistant(self, message: dict[str, Any]) -> Iterator[Event]:
        inner = mapping(message.get("message"))
        if inner.get("model") == "<synthetic>":  # Claude Code's own text about an error, not the model's
            yield Event(kind=Kind.DIAGNOSTIC, text=words(inner.get("content")))
            return
        sub_agent = bool(message.get("parent_tool_use_id"))
        for block in _blocks(inner):
            kind = _BLOCKS.get(words(block.get("type")), Kind.STATUS)
            if kind is Kind.TOOL_CALL:
                yield self._tool_call(block)
            elif kind is Kind.STATUS or (words(inner.get("id")), kind) in self._streamed:
                yield Event(kind=Kind.STATUS, text="assistant")
            else:
                self._new_paragraph = self._new_paragraph or not sub_agent
                yield self._words(words(block.get(words(block.get("type")))), kind=Kind.RICH if sub_agent else kind)

    def _tool_call(self, block: dict[str, Any]) -> Event:
        name, key = words(block.get("name")), words(block.get("id"))
        self._tool_names[key] = name
        return Event(kind=Kind.TOOL_CALL, tool=name, tool_id=key, data={"input": block.get("input")})

    def _user(self, message: dict[str, Any]) -> Iterable[Event]:
        results = [block for block in _blocks(mapping(message.get("message"))) if block.get("type") == "tool_result"]
        return [self._tool_result(block) for block in results] or self._status(message)

    def _tool_result(self, block: dict[str, Any]) -> Event:
        key = words(block.get("tool_use_id"))
        name = self._tool_names.pop(key, None)
        return Event(kind=Kind.TOOL_RESULT, text=words(block.get("content")), tool=name, tool_id=key)

    def _result(self, message: dict[str, Any]) -> Iterator[Event]:
        text, subtype = words(message.get("result")), words(message.get("subtype"))
        if message.get("is_error") or subtype.startswith("error"):
            yield from self._failed(text or subtype, subtype if subtype.startswith("error") else "provider_error")
            return
        if text and not self._wrote:
            yield self._words(text)
        yield Event.done(data={key: message.get(key) for key in ("num_turns", "usage", "total_cost_usd")})


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [mapping(block) for block in content] if isinstance(content, list) else []
