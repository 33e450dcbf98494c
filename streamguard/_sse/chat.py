"""Decode the events of an OpenAI-compatible chat stream into chunks, and notice how the stream ends."""

import json
from typing import Any, Final

from .choice_ends import ChoiceEnds
from .chunk import Chunk, index_of
from .error_frames import choice_error, foreign_frame, frame_error, in_stream_error
from .event_stream.event_parser import Event
from .event_stream.heartbeats import is_heartbeat_name
from .frame_decoder import FrameDecoder

_decode_json: Final = json.JSONDecoder().raw_decode


class ChatDecoder(FrameDecoder):
    """Turn the events of one stream into chat chunks.

    A JSON object that is neither an error nor a known frame of another API is handed over as it is, choices or not.

    *Limits*: once `done`, nothing more is decoded; what a server sends after its end marker is dropped.
    """

    __slots__ = ("_ends",)

    def __init__(self, choices: int = 1) -> None:
        super().__init__()
        self._ends = ChoiceEnds(choices)

    @property
    def finished(self) -> bool:
        """Every choice that was asked for, and every other one seen, has a finish reason."""
        return self._ends.finished

    @property
    def settled(self) -> bool:
        """Every choice has finished without content, and none has gone on after a finish reason."""
        return self._ends.settled

    def decode(self, event: Event) -> Chunk | None:
        """Return the event's chunk, or None if it holds nothing to hand over (no data, the end marker).

        Raises `InStreamError` for an error frame, and `MalformedChunkError`, quoting at most 200 characters, for data
        that is not a JSON object and for a frame of another API.
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
            frame = self.object_of(event)
            if frame is None:
                return None
        elif event.event != "message" and is_heartbeat_name(event.event):
            return None
        return self.take(frame, data, event.event)

    def take(self, frame: dict[str, Any], body: str, name: str = "message") -> Chunk:
        """Return the chunk of a decoded *frame*, and note what it says about the end. Raises as `decode()` does."""
        choices = frame.get("choices")
        # One look at the text costs less than one for each key; a frame without its text may hold any of them.
        if not choices or "error" in body or "type" in frame or "base_resp" in frame or name == "error" or not body:
            _refuse(name, frame, body)
        if type(choices) is list:
            self._note(choices, frame, body)
        return Chunk(frame)

    def _note(self, choices: list[Any], frame: dict[str, Any], data: str) -> None:
        still_open = self._ends.still_open
        for choice in choices:
            if type(choice) is not dict:
                continue
            reason, index = choice.get("finish_reason"), choice.get("index")
            if not reason and type(index) is int and index in still_open and "error" not in choice:
                continue  # almost every piece
            if (reason == "error" or "error" in choice) and (error := choice_error(choice, frame, data)):
                raise error
            self._ends.note(choice, index_of(choice))


def _refuse(name: str, frame: dict[str, Any], body: str) -> None:
    error = frame_error(frame, body)
    if error is None and name == "error":
        error = in_stream_error(frame, frame, body)
    if error is not None:
        raise error
    if not frame.get("choices") and (foreign := foreign_frame(frame, body)) is not None:
        raise foreign
