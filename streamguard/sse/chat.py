"""Decode the events of an OpenAI-compatible chat stream into chunks, and notice how the stream ends."""

import json
from typing import Any, Final

from ..errors import MalformedChunkError
from .chunk import Chunk, index_of
from .events import Event
from .frames import choice_error, foreign_frame, frame_error, in_stream_error, not_an_object

__all__ = ["ChatDecoder"]

_END_MARKER: Final = "[DONE]"
_decode_json: Final = json.JSONDecoder().raw_decode
_JSON_NAMES: Final[dict[type, str]] = {
    str: "a JSON string",
    list: "a JSON array",
    bool: "a JSON boolean",
    type(None): "null",
}


class ChatDecoder:
    """Turn the events of one stream into chat chunks.

    A JSON object that is neither an error nor a known frame of another API is handed over as it is, choices or not.

    *Limits*: once `done`, nothing more is decoded; what a server sends behind its end marker is dropped.
    """

    __slots__ = ("_ended", "done")

    def __init__(self) -> None:
        self.done = False
        """The end marker `[DONE]` was seen, whatever the blanks around it."""
        self._ended: dict[int, bool] = {}

    @property
    def finished(self) -> bool:
        """Every choice seen so far has a finish reason, and there was at least one."""
        return bool(self._ended) and all(self._ended.values())

    def decode(self, event: Event) -> Chunk | None:
        """Return the event's chunk, or None if it holds nothing to hand over (no data, the end marker).

        Raises `InStreamError` for an error frame, and `MalformedChunkError`, quoting at most 200 characters, for data
        that is no JSON object and for a frame of another API.
        """
        if self.done:
            return None
        data = event.data
        try:
            # json.loads() costs half as much again for the blanks that are almost never there.
            frame, end = _decode_json(data)
        except (ValueError, RecursionError):
            end = -1
        if end != len(data) or type(frame) is not dict:
            frame = self._object_of(event)
            if frame is None:
                return None
        choices = frame.get("choices")
        if (
            not choices
            or "error" in frame
            or "errors" in frame
            or "type" in frame
            or frame.get("object") == "error"
            or event.event == "error"
        ):
            _refuse(event, frame)
        if type(choices) is list:
            self._note(choices, frame, data)
        return Chunk(frame)

    def decode_last(self, event: Event) -> Chunk | None:
        """Decode a last event whose blank line never came: its chunk if the JSON is whole, else None.

        Raises `InStreamError` for an error frame, as `decode()` does.
        """
        try:
            return self.decode(event)
        except MalformedChunkError:
            return None

    def _note(self, choices: list[Any], frame: dict[str, Any], data: str) -> None:
        for choice in choices:
            if type(choice) is not dict:
                continue
            reason = choice.get("finish_reason")
            if (reason == "error" or "error" in choice) and (error := choice_error(choice, frame, data)):
                raise error
            if reason and isinstance(reason, str):
                self._ended[index_of(choice)] = True
            else:
                self._ended.setdefault(index_of(choice), False)

    def _object_of(self, event: Event) -> dict[str, Any] | None:
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
        text = value.strip() if isinstance(value, str) else None
        if text == _END_MARKER:
            self.done = True
        elif text != "":
            raise not_an_object(event.data, kind) from cause


def _refuse(event: Event, frame: dict[str, Any]) -> None:
    error = frame_error(frame, event.data)
    if error is None and event.event == "error":
        error = in_stream_error(frame, frame, event.data)
    if error is not None:
        raise error
    if not frame.get("choices") and (foreign := foreign_frame(frame, event.data)) is not None:
        raise foreign
