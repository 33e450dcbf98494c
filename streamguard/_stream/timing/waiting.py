"""Waiting for the upstream: an item that is here, or a wait for no longer than the nearest clock allows.

Time passes for the clocks while the consumer waits, and while it reads blocks that bring no chunk; not while the caller
has a chunk, nor inside a function of the caller's.
"""

from collections.abc import Callable

from ..._core.cancel import CancelToken
from ..._core.clock import monotonic
from ..._core.deadline import Deadline
from .clocks import Alarm, StreamClocks

_LATE_SECONDS = 0.1
"""A wait that overshot its limit by more than this says nothing about the upstream: this process was stopped or starved."""

_FLOOD_SECONDS = 0.5
"""How long blocks without a chunk may follow each other at once, after a limit is used up."""


class Waiting:
    """Take items with *take*, and count the time that is spent waiting for them.

    *take* gets the seconds to wait, at most (None: without end; 0: not at all), and returns an item or None.
    """

    def __init__(self, clocks: StreamClocks, token: CancelToken, take: Callable[[float | None], object | None]) -> None:
        self.deadline: Deadline | None = None
        """What bounds the whole call, from its start on."""
        self._clocks = clocks
        self._token = token
        self._take = take
        self._since: float | None = None
        """When the consumer last began to wait, or went on waiting; None while the caller has a chunk."""
        self._overdue_since: float | None = None

    def receive(self) -> object | Alarm | None:
        """Return the next item, or the alarm that is due instead; None: check again for a cancel and the deadline."""
        in_vain = self.passed()
        item = self._take(0)
        if item is None:
            item = self._wait_for_item()
        if item is None:
            return self._nothing_came()
        return (self._flooded() or item) if in_vain else item

    @property
    def left(self) -> float | None:
        """The seconds until a limit or the deadline ends the wait, if nothing comes."""
        left = self._clocks.left
        return left if self.deadline is None else self.deadline.clamp(left)

    def passed(self) -> bool:
        """Count what passed since the last wait, if it led to no chunk; return whether that is so."""
        since, self._since = self._since, monotonic()
        if since is not None:
            self._clocks.passed(self._since - since)
        return since is not None

    def go_on(self) -> None:
        """Wait from here on: the time since the last count was the caller's own."""
        self._since = monotonic()

    def stop(self) -> None:
        """Stop counting: the caller gets something."""
        self._since = None

    def _wait_for_item(self) -> object | None:
        seconds = self._clocks.wait()
        if seconds is None or seconds > 0:
            self._overdue_since = None
        if self.deadline is not None:
            seconds = self.deadline.clamp(seconds)
        try:
            return self._take(seconds)
        finally:
            self.passed()

    def _nothing_came(self) -> object | Alarm | None:
        """Measured silence decides, never the mere end of a wait; and never while an item is already here."""
        alarm = None if self._token.cancelled else self._clocks.alarm()
        if alarm is None or not alarm.is_final:
            return alarm
        item = self._take(self._second_look(alarm))
        return alarm if item is None else self._flooded() or item

    def _second_look(self, alarm: Alarm) -> float:
        """Return how long the reader may still take: if this thread was woken late (stopped, starved), so was the reader.

        Once for each limit: what arrives then may be comments, and waiting for more of them would never end.
        """
        late = alarm.elapsed - (alarm.limit or 0.0) > _LATE_SECONDS and self._overdue_since is None
        return 0 if not late else _LATE_SECONDS if self.deadline is None else self.deadline.clamp(_LATE_SECONDS)

    def _flooded(self) -> Alarm | None:
        """Return the alarm of a limit that is used up for good, though items keep coming faster than they are read."""
        alarm = self._clocks.fired()
        if alarm is None:
            self._overdue_since = None
            return None
        if self._overdue_since is None:
            self._overdue_since = self._clocks.now
        return alarm if self._clocks.now - self._overdue_since > _FLOOD_SECONDS else None
