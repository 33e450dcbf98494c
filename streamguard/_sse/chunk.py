"""Read the chunks of an OpenAI-compatible chat stream, misshapen ones too: nothing here raises."""

from collections.abc import Iterable, Iterator
from typing import Any

_TEXT_PARTS = ("text", "output_text", None)


class Chunk(dict[str, Any]):
    """One chat chunk: the decoded JSON object, with properties for what one mostly wants.

    The properties speak of the choice with index 0 (a missing index counts as 0). null, a missing key or a value of the
    wrong type never raises: it reads as nothing. The object itself is what the server sent, unchanged.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """The delta's text, `""` if there is none. Lists of text parts are joined; a legacy `text` counts."""
        choice = _first_choice(self)
        return choice_text(choice, delta_of(choice))

    @property
    def reasoning(self) -> str:
        """The delta's reasoning text, `reasoning_content` before `reasoning`; `""` if there is none."""
        return reasoning_text(delta_of(_first_choice(self)))

    @property
    def tool_calls(self) -> list[Any]:
        """The delta's pieces of tool calls, as the server sent them; assembled ones are in the stream's message."""
        calls = delta_of(_first_choice(self)).get("tool_calls")
        return calls if isinstance(calls, list) else []

    @property
    def finish_reason(self) -> str | None:
        """Why the choice ended, or None while it has not."""
        return finish_reason_of(_first_choice(self))

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts, or None when this chunk has none (which means unknown, not zero)."""
        usage = self.get("usage")
        return usage if usage and isinstance(usage, dict) else None


def chat_has_content(chunk: dict[str, Any]) -> bool:
    """Return whether a choice of the chat chunk holds something that a model wrote."""
    return any(_choice_has_content(choice) for choice in choices_of(chunk))


def _choice_has_content(choice: dict[str, Any]) -> bool:
    delta = delta_of(choice)
    if choice_text(choice, delta) or reasoning_text(delta) or refusal_text(delta) or legacy_call(delta):
        return True
    calls = delta.get("tool_calls")
    return isinstance(calls, list) and any(calls)


def choices_of(chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the choices that are objects."""
    choices = chunk.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict):
                yield choice


def index_of(choice: dict[str, Any]) -> int:
    """Return the choice's index; 0 if it is missing or no number."""
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def delta_of(choice: dict[str, Any]) -> dict[str, Any]:
    """Return the choice's delta, or an empty dict."""
    delta = choice.get("delta")
    return delta if isinstance(delta, dict) else {}


def joined(pieces: Iterable[str]) -> str:
    """Put pieces of text together. A character that JSON wrote as a surrogate pair may have come in two of them."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def finish_reason_of(choice: dict[str, Any]) -> str | None:
    """Return the choice's finish reason; the empty string that some servers send in every chunk is none."""
    reason = choice.get("finish_reason")
    return reason if reason and isinstance(reason, str) else None


def choice_text(choice: dict[str, Any], delta: dict[str, Any]) -> str:
    """Return the text of a choice: its delta's content (a string, or a list of parts), else a legacy completion's."""
    content = delta.get("content")
    if isinstance(content, list):
        content = "".join(map(_part_text, content))
    return _text(content) or _text(choice.get("text"))


def reasoning_text(delta: dict[str, Any]) -> str:
    """Return the reasoning of a delta. Servers that send both keys repeat the same text, so only one is taken."""
    return _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))


def refusal_text(delta: dict[str, Any]) -> str:
    """Return the refusal of a delta."""
    return _text(delta.get("refusal"))


def legacy_call(delta: dict[str, Any]) -> dict[str, Any]:
    """Return the `function_call` of the time before `tool_calls`, or an empty dict."""
    call = delta.get("function_call")
    return call if isinstance(call, dict) else {}


def _first_choice(chunk: dict[str, Any]) -> dict[str, Any]:
    for choice in choices_of(chunk):
        if index_of(choice) == 0:
            return choice
    return {}


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
        return _text(part.get("text"))
    return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
