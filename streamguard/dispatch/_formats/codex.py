"""Codex: `codex exec --json`. It prints items at their start and completion only (T21)."""

from collections.abc import Mapping
from typing import Any

from .._data.turn_events import Event, Kind
from .base import JsonLines, Reader, complaint, mapping, words

_TOOLS = {"command_execution", "mcp_tool_call", "file_change"}
_WORDS = {"agent_message": Kind.TEXT, "reasoning": Kind.THINKING}


class Codex(JsonLines):
    """`error` items are diagnostics and reconnects are status; `turn.failed` fails a turn.

    An exit code other than 0 after `turn.completed` is ignored.
    """

    name = "codex"
    result_line = "turn.completed"

    def _readers(self) -> Mapping[str, Reader]:
        return {
            "thread.started": self._thread,
            "turn.started": self._status,
            "item.started": self._started,
            "item.updated": self._updated,
            "item.completed": self._completed,
            "turn.completed": self._turn_completed,
            "turn.failed": self._turn_failed,
            "error": self._error,
        }

    def _thread(self, message: dict[str, Any]) -> list[Event]:
        return [Event(kind=Kind.SESSION, session_id=words(message.get("thread_id")) or None)]

    def _started(self, message: dict[str, Any]) -> list[Event]:
        item = mapping(message.get("item"))
        if words(item.get("type")) not in _TOOLS:
            return self._bookkeeping(item)
        return [Event(kind=Kind.TOOL_CALL, text=words(item.get("command")), **_tool(item))]

    def _updated(self, message: dict[str, Any]) -> list[Event]:
        item = mapping(message.get("item"))
        if words(item.get("type")) not in _TOOLS:
            return self._bookkeeping(item)
        return [Event(kind=Kind.TOOL_CALL, text=words(item.get("aggregated_output")), delta=True, **_tool(item))]

    def _completed(self, message: dict[str, Any]) -> list[Event]:
        item = mapping(message.get("item"))
        kind = words(item.get("type"))
        if kind in _WORDS:
            self._new_paragraph = True
            return [self._words(words(item.get("text")), kind=_WORDS[kind])]
        if kind in _TOOLS:
            return [Event(kind=Kind.TOOL_RESULT, text=words(item.get("aggregated_output")), **_tool(item))]
        if kind == "error":
            return [Event(kind=Kind.DIAGNOSTIC, text=words(item.get("message")))]
        return self._bookkeeping(item)

    def _bookkeeping(self, item: dict[str, Any]) -> list[Event]:
        return [Event(kind=Kind.STATUS, text=words(item.get("type")))]

    def _turn_completed(self, message: dict[str, Any]) -> list[Event]:
        return [Event.done(data={"usage": message.get("usage")})]

    def _turn_failed(self, message: dict[str, Any]) -> list[Event]:
        return self._failed(complaint(message.get("error")) or self._complaint)

    def _error(self, message: dict[str, Any]) -> list[Event]:
        text = complaint(message) or complaint(message.get("error"))
        if text.startswith("Reconnecting"):
            return [Event(kind=Kind.STATUS, text=text)]
        self._complaint = text
        return [Event(kind=Kind.DIAGNOSTIC, text=text)]


def _tool(item: dict[str, Any]) -> dict[str, Any]:
    return {"tool": words(item.get("tool")) or words(item.get("type")), "tool_id": words(item.get("id"))}
