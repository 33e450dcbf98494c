"""What a member says, typed; and the one rule of what counts as output.

One class with kinds: every format maps its lines to it, every route reads the same few fields.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

RAW_LIMIT = 4096
"""Characters of the original line that an event keeps."""

STARTUP_TIMEOUT = "startup_timeout"
"""The error code of a member that said nothing at all within its start-up limit (R26, R27)."""


class Kind(StrEnum):
    """What an event is. The first five are output; nothing else re-arms an output timeout."""

    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    THINKING = "thinking"
    RICH = "rich"
    """Anything else that the member made: a sub-agent's words, a table, an image."""
    STATUS = "status"
    SIGNAL = "signal"
    """A sign of life of the provider, or of the line to it."""
    SESSION = "session"
    DIAGNOSTIC = "diagnostic"
    """Bookkeeping and complaints that do not end the turn."""
    ERROR = "error"
    """What ends the turn; `done` follows."""
    STDERR = "stderr"
    UNKNOWN = "unknown"
    """A line that the format does not know, or that is not even JSON."""
    DONE = "done"


OUTPUT_KINDS = frozenset({Kind.TEXT, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.THINKING, Kind.RICH})
_WORDS = frozenset({Kind.TEXT, Kind.THINKING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that a member said. The texts of all `text` events, put together, are the answer: nothing comes twice."""

    kind: Kind
    text: str = ""
    """Words, a tool's input or output, a message. A plain line keeps its line end."""
    delta: bool = False
    """Whether this is a piece of something larger."""
    tool: str | None = None
    """The tool's name, for `tool_call` and, if the format says it, `tool_result`."""
    tool_id: str | None = None
    """What ties a `tool_result` to its `tool_call`."""
    session_id: str | None = None
    """The session to resume, for `session`."""
    error_code: str | None = None
    """Why the turn failed, for `error` and `done`; None in a `done` is success."""
    data: dict[str, Any] = field(default_factory=dict)
    """What else the format tells (usage, model), or a diagnosis. Not to be changed."""
    raw: str = ""
    """The line that this came from, cut to `RAW_LIMIT` characters; empty where the text is the line."""

    @property
    def is_output(self) -> bool:
        """Whether this re-arms an output timeout (R3): output of one of the five kinds that is not empty.

        An empty text or thinking is none, nor is an empty piece of a tool's input; a tool call or result as such is.
        """
        return self.kind in OUTPUT_KINDS and (bool(self.text) or not (self.delta or self.kind in _WORDS))

    @classmethod
    def done(cls, error_code: str | None = None, **fields: Any) -> "Event":
        """Return the last event of a turn."""
        return cls(kind=Kind.DONE, error_code=error_code, **fields)

    @classmethod
    def failure(cls, text: str, error_code: str, **fields: Any) -> "Event":
        """Return the `error` event that stands before `done(error_code)`."""
        return cls(kind=Kind.ERROR, text=text, error_code=error_code, **fields)


def bounded(line: str, limit: int = RAW_LIMIT) -> str:
    """Return *line* cut to *limit* characters, the last of them an ellipsis if it was cut."""
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


@dataclass(frozen=True, slots=True)
class _Field:
    """What a field holds; *near* is what can be made that by *make*, which raises ValueError if it cannot."""

    kind: Any
    what: str
    near: Any = ()
    make: Callable[[Any], Any] = str


_TEXT, _NAME = _Field(str, "text"), _Field(str | None, "text or None", int | uuid.UUID)
_FIELDS: dict[str, _Field] = {
    "kind": _Field(Kind, "a Kind", str, Kind),
    **dict.fromkeys(("text", "raw"), _TEXT),
    **dict.fromkeys(("tool", "tool_id", "session_id", "error_code"), _NAME),
    "data": _Field(dict, "a dict", Mapping | None, lambda data: dict(data or {})),
}


def checked(event: object) -> Event:
    """Return *event*, which a member of the user's may have made, with what is near enough made right.

    A kind may be its word, a name a number, `data` any mapping. Raises TypeError for anything else, naming the field.
    """
    if not isinstance(event, Event):
        raise TypeError(f"a member yields Events, not {type(event).__name__}")
    made = {
        name: _made(name, field, value)
        for name, field in _FIELDS.items()
        if not isinstance(value := getattr(event, name), field.kind)
    }
    return replace(event, **made) if made else event


def _made(name: str, field: _Field, value: object) -> Any:
    try:
        if isinstance(value, field.near):
            return field.make(value)
    except ValueError:
        pass  # a word that is no Kind
    raise TypeError(f"an Event's {name}= takes {field.what}, not {type(value).__name__}")


def storable(text: str) -> str:
    """Return *text* as databases and UTF-8 take it: halves of surrogate pairs put together; lone ones, and NUL, U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
