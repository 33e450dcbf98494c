"""Cline: `cline --json PROMPT`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .._data.turn_events import Event, Kind
from .base import JsonLines, Patterns, Reader, complaint, mapping, words

_KINDS = {"text": Kind.TEXT, "reasoning": Kind.THINKING}


class Cline(JsonLines):
    """Deltas are `content_start` frames, and `run_result` ends the run. No frame names a session that can be resumed."""

    name = "cline"
    result_line = "its run_result line"

    def __init__(self, ignore: Patterns) -> None:
        super().__init__(ignore)
        self._begun = ""

    def _readers(self) -> Mapping[str, Reader]:
        return {
            "agent_event": self._agent_event,
            "hook_event": self._status,
            "run_result": self._run_result,
            "error": self._error,
        }

    def _agent_event(self, message: dict[str, Any]) -> Iterable[Event]:
        event = mapping(message.get("event"))
        kind = words(event.get("type"))
        if kind in ("content_start", "content_end") and event.get("contentType") == "tool":
            return [self._tool(kind, event)]
        if kind == "content_start" and event.get("contentType") in _KINDS:
            return [self._delta(words(event.get("contentType")), words(event.get("text")))]
        if kind == "error":
            return self._error(event)
        if kind == "iteration_start":
            self._begun = ""
        return [Event(kind=Kind.STATUS, text=kind)]

    def _delta(self, content: str, text: str) -> Event:
        self._new_paragraph = self._new_paragraph or (content == "text" and self._begun != "text")
        self._begun = content
        return self._words(text, delta=True, kind=_KINDS[content])

    def _tool(self, kind: str, event: dict[str, Any]) -> Event:
        name, key = words(event.get("toolName")), words(event.get("toolCallId"))
        self._begun = "tool"
        if kind == "content_start":
            return Event(kind=Kind.TOOL_CALL, tool=name, tool_id=key, data={"input": event.get("input")})
        text = complaint(event.get("error")) or _results(event.get("output"))
        return Event(kind=Kind.TOOL_RESULT, text=text, tool=name, tool_id=key)

    def _error(self, message: dict[str, Any]) -> list[Event]:
        self._complaint = complaint(message.get("error")) or words(message.get("message")) or self._complaint
        return [Event(kind=Kind.DIAGNOSTIC, text=self._complaint)]

    def _run_result(self, message: dict[str, Any]) -> Iterator[Event]:
        reason, text = words(message.get("finishReason")), words(message.get("text"))
        if reason != "completed":
            yield from self._failed(text or self._complaint or reason, "provider_error")
            return
        if text and not self._wrote:
            yield self._words(text)
        yield Event.done(data={"usage": message.get("usage"), "iterations": message.get("iterations")})


def _results(output: object) -> str:
    """Return the text of a tool's results: text itself, or the `result` of each command."""
    if not isinstance(output, list):
        return words(output)
    return "".join(words(mapping(element).get("result")) or words(element) for element in output)
