"""Read the chunks of an OpenAI-compatible chat stream, misshapen ones too: nothing here raises."""

from collections.abc import Iterable, Iterator
from typing import Any

_TEXT_PARTS = ("text", "output_text", None)
_THINKING_PARTS = ("thinking", "reasoning", "reasoning_content")
_WRITTEN = ("audio", "images", "annotations", "citations", "reasoning_details")
"""Fields of a delta, besides text, reasoning, refusal and calls, that hold something a model wrote."""


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
        text = choice_text(choice, delta_of(choice))
        return text if text.isascii() else joined((text,))

    @property
    def reasoning(self) -> str:
        """The delta's reasoning text, whatever its server calls it; `""` if there is none."""
        return writable(reasoning_text(delta_of(_first_choice(self))))

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
        return usage_in(self)


def usage_in(chunk: dict[str, Any]) -> dict[str, Any] | None:
    """Return the token counts of a chunk: its own, those of its `x_groq`, or of a choice; None if there are none."""
    usage = chunk.get("usage")
    if usage and isinstance(usage, dict):
        return usage
    if "x_groq" in chunk:
        return _usage_of(chunk["x_groq"])
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return _usage_of(first) if isinstance(first, dict) and "usage" in first else None


def _usage_of(holder: object) -> dict[str, Any] | None:
    usage = holder.get("usage") if isinstance(holder, dict) else None
    return usage if usage and isinstance(usage, dict) else None


def chat_has_content(chunk: dict[str, Any]) -> bool:
    """Return whether a choice of the chat chunk holds something that a model wrote."""
    return any(_choice_has_content(choice) for choice in choices_of(chunk))


def _choice_has_content(choice: dict[str, Any]) -> bool:
    delta = delta_of(choice)
    if choice_text(choice, delta) or reasoning_text(delta) or refusal_text(delta) or legacy_call(delta):
        return True
    if any(_is_written(delta.get(key)) for key in _WRITTEN):
        return True
    calls = delta.get("tool_calls")
    return isinstance(calls, list) and any(calls)


def _is_written(value: object) -> bool:
    """Return whether a field of a delta holds something: audio with data or a transcript, images, citations."""
    if isinstance(value, dict):
        return any(value.get(key) for key in ("data", "transcript", "url", "text"))
    return bool(value) and isinstance(value, list | str)


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


def writable(text: str) -> str:
    """Return a piece of text that any encoding of Unicode can write: a lone half of a surrogate pair becomes U+FFFD."""
    return text if text.isascii() else joined((text,))


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
    """Return the reasoning of a delta. Servers that send it under several keys repeat the text, so only one is taken."""
    if len(delta) == 1 and "content" in delta and type(delta["content"]) is str:
        return ""
    for key in ("reasoning_content", "reasoning", "thinking"):
        value = delta.get(key)
        if text := _text(value) or (_parts(value) if isinstance(value, list | dict) else ""):
            return text
    return _parts(delta.get("reasoning_details")) or _thinking_parts(delta.get("content"))


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


def _parts(value: object) -> str:
    """Return the texts of parts of reasoning: strings, or objects with `text`, `summary`, `thinking` or `content`."""
    parts = value if isinstance(value, list) else [value]
    found = []
    for part in parts:
        if isinstance(part, dict):
            values = (part.get(key) for key in ("text", "summary", "thinking", "content"))
            found.append(next((text for text in values if isinstance(text, str) and text), ""))
        else:
            found.append(_text(part))
    return "".join(found)


def _thinking_parts(content: object) -> str:
    """Return the thinking in a list of content parts; some servers nest its text in parts of their own."""
    if not isinstance(content, list):
        return ""
    found = []
    for part in content:
        if isinstance(part, dict) and part.get("type") in _THINKING_PARTS:
            found.append(_parts(part) or _parts(part.get(part["type"])))
    return "".join(found)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
