"""Qwen Code: `qwen -o stream-json [--include-partial-messages]`."""

import re
from collections.abc import Iterator
from typing import Any

from .._data.turn_events import Event, Kind
from .base import complaint, mapping, words
from .claude import Claude

_API_ERROR = re.compile(r"\[API Error: (.*)\]\s*", re.DOTALL)


class Qwen(Claude):
    """The frames of Claude Code, but for errors: a refused or failed request is text, and its result says `success`.

    Such text is `[API Error: ...]`, alone in its delta, and the message that holds it used no tokens. It is the run's
    failure then; in a message that used tokens it is the model's own text.
    """

    name = "qwen"

    def _delta(self, parent: str, delta: dict[str, Any]) -> Event:
        text = words(delta.get("text"))
        if not parent and _API_ERROR.fullmatch(text):
            return Event(kind=Kind.DIAGNOSTIC, text=text)
        return super()._delta(parent, delta)

    def _assistant(self, message: dict[str, Any]) -> Iterator[Event]:
        inner = mapping(message.get("message"))
        last = _last_text(inner)
        found = _API_ERROR.search(last)
        used = mapping(inner.get("usage")).get("output_tokens")
        self._complaint = found[1] if found and found.end() == len(last) and not used else ""
        if self._complaint and found and not found.start():
            yield Event(kind=Kind.DIAGNOSTIC, text=self._complaint)
            return
        yield from super()._assistant(message)

    def _result(self, message: dict[str, Any]) -> Iterator[Event]:
        failed = message.get("is_error") or words(message.get("subtype")).startswith("error")
        why = complaint(message.get("error")) or self._complaint
        if why:
            yield from self._failed(why, words(message.get("subtype")) if failed else "provider_error")
        else:
            yield from super()._result(message)


def _last_text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return words(content[-1:]) if isinstance(content, list) else words(content)
