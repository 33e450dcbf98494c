"""Measure silence against a limit. Pure: the time is an argument."""

from enum import Enum
from typing import Final


class Fired(Enum):
    """The type of `FIRED`."""

    FIRED = "fired"

    def __repr__(self) -> str:
        return "FIRED"


FIRED: Final = Fired.FIRED


class SilenceClock:
    """Measure silence against a limit (seconds; None: never too long).

    The caller passes the time, on any clock that only runs forward. A stream passes the time that its consumer spent
    *waiting*, so that a consumer that pauses for a minute does not make the server look silent.

    The measurement decides, not the end of a wait: `due()` may be called early and at any rate.
    """

    __slots__ = ("limit", "since")

    def __init__(self, limit: float | None, now: float = 0.0) -> None:
        self.limit = limit
        self.since = now

    def observe(self, now: float) -> None:
        """Record an arrival at *now*."""
        self.since = now

    def silence(self, now: float) -> float:
        """Return the seconds since the last arrival."""
        return now - self.since

    def due(self, now: float) -> float | Fired | None:
        """Return the seconds left, None if there is no limit, or `FIRED` if it is used up."""
        if self.limit is None:
            return None
        left = self.limit - (now - self.since)
        return left if left > 0 else FIRED
