"""Waiting for the upstream: an item that is here, or a wait for no longer than the nearest clock allows.

Time passes for the clocks while the consumer waits, and while it works on blocks of which no chunk comes; not while it has
a chunk in its hands, nor inside a function of the caller's.
"""

import queue

from ..._core.cancel import CancelToken
from ..._core.clock import monotonic
from ..._core.deadline import Deadline
from ..._core.pump import Pump
from .clocks import Alarm, StreamClocks

__all__ = ["Waiting"]

_LATE_SECONDS = 0.1
"""A wait that overshot its limit by more than this says nothing about the upstream: this process stood still."""

_FLOOD_SECONDS = 0.5
"""How long blocks without a chunk may come, one right after the other, once a limit is used up."""


class Waiting:
    """Take items from the pump of the running attempt, and count the time that is spent waiting for them."""

    def __init__(self, clocks: StreamClocks, token: CancelToken) -> None:
        self.now = 0.0
        """Seconds waited so far: the time that the clocks go by."""
        self.deadline: Deadline | None = None
        self.pump: Pump[None] | None = None
        """That of the running attempt; None between attempts, and once it was cut."""
        self._clocks = clocks
        self._token = token
        self._since: float | None = None
        """When the consumer last began to wait, or went on waiting; None while it has something in its hands."""
        self._overdue_since: float | None = None

    def receive(self) -> object | Alarm | None:
        """Return the next item, or the alarm that was due instead; None: look again at what may have stopped us."""
        in_vain = self.passed()
        item = self._take(0)
        if item is None:
            item = self._wait_for_item()
        if item is None:
            return self._nothing_came()
        return Alarm.LIMIT if in_vain and self._is_flooded() else item

    def passed(self) -> bool:
        """Count what passed since the last wait, if no chunk came of it; return whether that is so."""
        since, self._since = self._since, monotonic()
        if since is not None:
            self.now += self._since - since
        return since is not None

    def go_on(self) -> None:
        """Wait from here on: what passed since the last count was the caller's own."""
        self._since = monotonic()

    def stop(self) -> None:
        """Stand still: the consumer gets something."""
        self._since = None

    def _take(self, seconds: float | None) -> object | None:
        pump = self.pump  # once: a close() in another thread takes it away
        try:
            if pump is not None:
                return pump.get(seconds)
        except queue.Empty:
            return None
        if seconds != 0:
            self._token.wait(seconds)
        return None

    def _wait_for_item(self) -> object | None:
        seconds = self._clocks.wait(self.now)
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
        if self._token.cancelled:
            return None
        alarm = self._clocks.alarm(self.now)
        item = self._take(self._second_look()) if alarm is Alarm.LIMIT else None
        return alarm if item is None or self._is_flooded() else item

    def _second_look(self) -> float:
        """Return how long the reader may still take: if we were woken late (stopped, starved), so was it.

        Once for each limit: what comes then need not be progress, and comments would be waited for without end.
        """
        firing = self._clocks.firing(self.now)
        late = firing is not None and firing.elapsed - firing.limit > _LATE_SECONDS and self._overdue_since is None
        return 0 if not late else _LATE_SECONDS if self.deadline is None else self.deadline.clamp(_LATE_SECONDS)

    def _is_flooded(self) -> bool:
        """Whether a limit is used up for good, though the queue is never empty: comments come faster than we read."""
        if self._clocks.firing(self.now) is None:
            self._overdue_since = None
            return False
        if self._overdue_since is None:
            self._overdue_since = self.now
        return self.now - self._overdue_since > _FLOOD_SECONDS
