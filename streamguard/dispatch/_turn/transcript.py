"""The text of a member's answer, and the diagnosis as it is recorded."""

from typing import Any

from .._data.output_timeout import Diagnosis
from .._data.turn_events import Event, Kind

_LONGEST = 1 << 22


class Transcript:
    """The text of all `text` events, put together, up to 4 Mi characters."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = _LONGEST

    def add(self, event: Event) -> None:
        """Add the event's text, if it is part of the answer."""
        if event.kind is Kind.TEXT and self._room:
            piece = event.text[: self._room]
            self._room -= len(piece)
            self._pieces.append(piece)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)


def diagnostics_of(diagnosis: Diagnosis, started: float) -> dict[str, Any]:
    """Return a diagnosis for the records: instants become seconds since the turn began."""
    plain = diagnosis.to_dict()
    return {key: value - started if key.endswith("_at") and value is not None else value for key, value in plain.items()}
