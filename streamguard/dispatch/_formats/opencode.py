"""OpenCode: `opencode run --format json`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._data.turn_events import Event, Kind
from .base import JsonLines, Patterns, Reader, complaint, mapping, words


class OpenCode(JsonLines):
    """No line ends the run: the program's exit does. Every line has the session id; a tool is printed with its result."""

    name = "opencode"

    def __init__(self, ignore: Patterns) -> None:
        super().__init__(ignore)
        self._session = ""

    def _readers(self) -> Mapping[str, Reader]:
        own = {"text": self._text, "reasoning": self._reasoning, "tool_use": self._tool_use, "error": self._error}
        steps = dict.fromkeys(("step_start", "step_finish"), self._status)
        return {kind: self._with_session(reader) for kind, reader in {**steps, **own}.items()}

    def _with_session(self, reader: Callable[[dict[str, Any]], list[Event]]) -> Reader:
        def read(message: dict[str, Any]) -> Iterator[Event]:
            session = words(message.get("sessionID"))
            if session and session != self._session:
                self._session = session
                yield Event(kind=Kind.SESSION, session_id=session)
            yield from reader(message)

        return read

    def _text(self, message: dict[str, Any]) -> list[Event]:
        self._new_paragraph = True
        return [self._words(words(message.get("part")))]

    def _reasoning(self, message: dict[str, Any]) -> list[Event]:
        return [self._words(words(message.get("part")), kind=Kind.THINKING)]

    def _tool_use(self, message: dict[str, Any]) -> list[Event]:
        part = mapping(message.get("part"))
        state = mapping(part.get("state"))
        name, key = words(part.get("tool")), words(part.get("callID")) or words(part.get("id"))
        if state.get("status") in ("pending", "running"):
            return [Event(kind=Kind.TOOL_CALL, tool=name, tool_id=key, data={"input": state.get("input")})]
        return [Event(kind=Kind.TOOL_RESULT, text=words(state.get("output")), tool=name, tool_id=key)]

    def _error(self, message: dict[str, Any]) -> list[Event]:
        error = mapping(message.get("error"))
        text = complaint(error.get("data")) or complaint(message.get("error")) or words(error.get("name"))
        self._complaint = text or "the program reported an error"
        return [Event(kind=Kind.DIAGNOSTIC, text=self._complaint)]
