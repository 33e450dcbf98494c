"""What all decoders of JSON frames share: from an event to its object, and to the end marker."""

import json
from typing import Any, ClassVar, Final

from ..errors import MalformedChunkError
from .error_frames import in_stream_error, not_an_object
from .event_stream.event_parser import Event
from .event_stream.heartbeats import is_heartbeat_name, is_heartbeat_text

_END_MARKER: Final = "[DONE]"
_JSON_NAMES: Final[dict[type, str]] = {
    str: "a JSON string",
    list: "a JSON array",
    bool: "a JSON boolean",
    type(None): "null",
}


class FrameDecoder:
    """Turn the events of one stream into chunks; subclasses say what a frame means."""

    __slots__ = ("done",)

    expected: ClassVar[str] = "expected a chat chunk"
    """How an error about a foreign frame begins."""

    def __init__(self) -> None:
        self.done = False
        """The stream has said that it is complete: its last event, or the end marker `[DONE]`, was seen."""

    @property
    def finished(self) -> bool:
        """Whether only an end is missing: the end of the body, or of the silence that is allowed, completes the message."""
        return False

    @property
    def settled(self) -> bool:
        """Whether it has `finished` in such a way that only usage and the end can follow."""
        return self.finished

    def decode(self, event: Event) -> Any:
        """Return the event's chunk, or None if it holds nothing to hand over (no data, a ping, the end marker).

        Raises `InStreamError` for an error frame, and `MalformedChunkError`, quoting at most 200 characters, for data
        that is not a JSON object and for a frame of another API.
        """
        frame = None if self.done else self.object_of(event)
        return None if frame is None else self.take(frame, event.data, event.event)

    def decode_last(self, event: Event) -> Any:
        """Decode a last event whose blank line never came: its chunk if the JSON is whole, else None.

        Raises `InStreamError` for an error frame, as `decode()` does.
        """
        try:
            return self.decode(event)
        except MalformedChunkError:
            return None

    def take(self, frame: dict[str, Any], body: str, name: str = "message") -> Any:
        """Return the chunk of a decoded *frame*, and note what it says about the end.

        *body* is its text, for errors; *name* the event's. Raises as `decode()` does.
        """
        raise NotImplementedError

    def object_of(self, event: Event) -> dict[str, Any] | None:
        """Return the event's JSON object; None if it holds no data, the end marker, or is a heartbeat."""
        if event.event != "message" and is_heartbeat_name(event.event):
            return None
        try:
            value = json.loads(event.data)
        except (ValueError, RecursionError) as error:
            self._take_text(event, event.data, "not JSON", cause=error)
            return None
        if isinstance(value, dict):
            return value
        self._take_text(event, value, _JSON_NAMES.get(type(value), "a JSON number"))
        return None

    def _take_text(self, event: Event, value: object, kind: str, *, cause: Exception | None = None) -> None:
        if event.event == "error":
            raise in_stream_error(value, {}, event.data) from cause
        if isinstance(value, str) and value.strip() == _END_MARKER:
            self.done = True
        elif not is_heartbeat_text(event.data):
            raise not_an_object(event.data, kind, self.expected) from cause
