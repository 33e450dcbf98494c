"""The events of a member, and the one rule of what counts as output.

One class with kinds: every format maps its lines to it, and every reader uses the same few fields.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

RAW_LIMIT = 4096
"""Characters of the original line that an event keeps."""

STARTUP_TIMEOUT = "startup_timeout"
"""The error code of a member without a single frame within its start-up limit (R26, R27)."""


class Kind(StrEnum):
    """The kind of an event. The first five are output; no other kind re-arms an output timeout."""

    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    THINKING = "thinking"
    RICH = "rich"
    """Any other output: a sub-agent's words, a table, an image."""
    STATUS = "status"
    SIGNAL = "signal"
    """A heartbeat of the provider or of the connection to it."""
    SESSION = "session"
    DIAGNOSTIC = "diagnostic"
    """Bookkeeping, and errors that do not end the turn."""
    ERROR = "error"
    """The error that ends the turn; `done` follows."""
    STDERR = "stderr"
    UNKNOWN = "unknown"
    """A line that the format does not know, or that is not JSON."""
    DONE = "done"


OUTPUT_KINDS = frozenset({Kind.TEXT, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.THINKING, Kind.RICH})
_WORDS = frozenset({Kind.TEXT, Kind.THINKING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a member. The texts of all `text` events, joined, are the answer: no text comes twice."""

    kind: Kind
    text: str = ""
    """Words, a tool's input or output, a message. A plain line keeps its line end."""
    delta: bool = False
    """Whether this is a piece of something larger."""
    tool: str | None = None
    """The tool's name, for `tool_call` and, if the format has it, `tool_result`."""
    tool_id: str | None = None
    """The id that a `tool_result` shares with its `tool_call`."""
    session_id: str | None = None
    """The session to resume, for `session`."""
    error_code: str | None = None
    """Why the turn failed, for `error` and `done`; None in a `done` is success."""
    data: dict[str, Any] = field(default_factory=dict)
    """Other data of the format (usage, model), or a diagnosis. Do not change it."""
    raw: str = ""
    """The source line, cut to `RAW_LIMIT` characters; empty if the text is the line."""

    @property
    def is_output(self) -> bool:
        """Whether the event re-arms an output timeout: it has one of the five output kinds and is not empty.

        An empty text, an empty thinking and an empty piece of a tool's input are not output; a tool call or result is.
        """
        return self.kind in OUTPUT_KINDS and (bool(self.text) or not (self.delta or self.kind in _WORDS))  # R3

    @classmethod
    def done(cls, error_code: str | None = None, **fields: Any) -> "Event":
        """Return the last event of a turn."""
        return cls(kind=Kind.DONE, error_code=error_code, **fields)

    @classmethod
    def failure(cls, text: str, error_code: str, **fields: Any) -> "Event":
        """Return the `error` event that precedes `done(error_code)`."""
        return cls(kind=Kind.ERROR, text=text, error_code=error_code, **fields)


def bounded(line: str, limit: int = RAW_LIMIT) -> str:
    """Return *line*, cut to *limit* characters with an ellipsis at the end if it is longer."""
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


@dataclass(frozen=True, slots=True)
class _Field:
    """The type of a field; *make* converts values of the types *near*, or raises ValueError."""

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
    """Return *event*, which a user's member may have made, with near types converted.

    A kind may be a string, a name a number, `data` any mapping. Raises TypeError for anything else, naming the field.
    """
    if not isinstance(event, Event):
        raise TypeError(f"a member must yield Events, got {type(event).__name__}")
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
        pass  # a string that is not a Kind
    raise TypeError(f"Event({name}=) must be {field.what}, got {type(value).__name__}")
