"""What a turn leaves on record beside its status: the answer's text, the diagnosis, the evidence."""

import logging
from collections.abc import Mapping
from typing import Any

from ..._core import Deadline
from ..._core.bounded import run_until
from ...errors import DeadlineExceededError
from ...telemetry.logs import log_line
from .._data.output_timeout import Diagnosis
from .._data.turn_events import Event, Kind
from .._process.cpu_activity import ActivityProbe
from .._process.snapshot import SnapshotProbe

_LONGEST = 1 << 22
_EVIDENCE_SECONDS = 2.0


class Answer:
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
        """What has come so far."""
        return "".join(self._pieces)


def diagnostics_of(diagnosis: Diagnosis, started: float) -> dict[str, Any]:
    """Return a diagnosis for the records: what is an instant there is here seconds since the turn began."""
    found = diagnosis.to_dict()
    return {key: value - started if key.endswith("_at") and value is not None else value for key, value in found.items()}


def evidence_of(probe: ActivityProbe | None) -> Mapping[str, Any] | None:
    """Return what is to be seen of a process that is about to be killed, if it can be seen within two seconds."""
    if not isinstance(probe, SnapshotProbe):
        return None
    try:
        return run_until(
            lambda: probe.snapshot().to_dict(),
            Deadline.after(_EVIDENCE_SECONDS),
            None,
            expired=lambda overran: DeadlineExceededError("no evidence in time", scope="step", overran=overran),
            grace=0,
            name="evidence",
        )
    except Exception as exc:  # it is an extra: whatever goes wrong with it must not cost the response
        log_line(logging.WARNING, "evidence_failed", "no evidence could be taken", error_type=type(exc).__name__)
        return None
