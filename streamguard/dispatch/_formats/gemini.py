"""Gemini CLI: `gemini -o stream-json`."""

from collections.abc import Mapping
from typing import Any

from .._data.turn_events import Event, Kind
from .base import JsonLines, Reader, complaint, words


class Gemini(JsonLines):
    """An `error` line is not fatal; `result` has the end."""

    name = "gemini"
    result_line = "its result line"
    exit_codes: Mapping[int, str] = {
        41: "auth",
        42: "invalid_input",
        52: "invalid_config",
        53: "turn_limit",
        54: "tool_failed",
        130: "interrupted",
    }

    def _readers(self) -> Mapping[str, Reader]:
        return {
            "init": self._init,
            "message": self._message,
            "tool_use": self._tool_use,
            "tool_result": self._tool_result,
            "error": self._error,
            "result": self._result,
        }

    def _init(self, message: dict[str, Any]) -> list[Event]:
        session = words(message.get("session_id")) or None
        return [Event(kind=Kind.SESSION, session_id=session, data={"model": message.get("model")})]

    def _message(self, message: dict[str, Any]) -> list[Event]:
        if message.get("role") == "user":
            return self._status(message)
        return [self._words(words(message.get("content")), delta=bool(message.get("delta")))]

    def _tool_use(self, message: dict[str, Any]) -> list[Event]:
        self._new_paragraph = True
        name, key = words(message.get("tool_name")), words(message.get("tool_id"))
        return [Event(kind=Kind.TOOL_CALL, tool=name, tool_id=key, data={"input": message.get("parameters")})]

    def _tool_result(self, message: dict[str, Any]) -> list[Event]:
        return [Event(kind=Kind.TOOL_RESULT, text=words(message.get("output")), tool_id=words(message.get("tool_id")))]

    def _error(self, message: dict[str, Any]) -> list[Event]:
        return [Event(kind=Kind.DIAGNOSTIC, text=complaint(message) or complaint(message.get("error")))]

    def _result(self, message: dict[str, Any]) -> list[Event]:
        if message.get("status") in (None, "success"):
            return [Event.done(data={"stats": message.get("stats")})]
        return self._failed(complaint(message.get("error")) or words(message.get("status")))
