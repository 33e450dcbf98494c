"""The queue that carries members' events to their reader. Each member has a share of its room."""

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..._core import CancelToken
from ..._core.pump import Feed
from ..._core.waits import take
from .._data.turn_events import Event
from .timer import Timer

if TYPE_CHECKING:
    from .._data.outcome import DispatchOutcome

_CAPACITY = 1 << 18
_OVERHEAD = 200

_Items: TypeAlias = "queue.SimpleQueue[_Item | DispatchOutcome | BaseException]"


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """An event, with its member and turn."""

    member: str
    turn_id: str
    event: Event


@dataclass(frozen=True, slots=True)
class _Item:
    value: MemberEvent
    feed: Feed
    size: int


class Channel:
    """The events of all members, in the order in which they arrived, for one reader.

    A member waits while 256 KiB of its events are unread; the others go on.
    """

    def __init__(self) -> None:
        self._items: _Items = queue.SimpleQueue()

    def inlet(self, member: str, turn_id: str, gate: CancelToken, timer: Timer) -> "Inlet":
        """Return the inlet of one turn. Cancelling *gate* ends a wait for room; *timer* is paused during it."""
        return Inlet(self._items, member, turn_id, gate, timer)

    def end(self, outcome: "DispatchOutcome | BaseException") -> None:
        """Mark the end: the outcome, or the error of the dispatch itself."""
        self._items.put(outcome)

    def get(self) -> "MemberEvent | DispatchOutcome | BaseException":
        """Return the next event; at the end, on every call, what `end()` got."""
        item = take(self._items, None)
        if not isinstance(item, _Item):
            self._items.put(item)
            return item
        item.feed.take(item.size)
        return item.value


class Inlet:
    """Puts the events of one turn into a channel."""

    def __init__(self, items: _Items, member: str, turn_id: str, gate: CancelToken, timer: Timer) -> None:
        self._items = items
        self._member = member
        self._turn_id = turn_id
        self._timer = timer
        self._feed = Feed(gate, self._enter, _CAPACITY)
        self._lock = threading.Lock()
        self._closed = False
        gate.on_cancel(self._feed.wake)

    def put(self, event: Event) -> None:
        """Put *event*. Wait for room; that wait is not the member's silence (T1)."""
        size = len(event.text) + len(event.raw) + _OVERHEAD
        item = _Item(MemberEvent(self._member, self._turn_id, event), self._feed, size)
        if self._feed.has_room(size):
            self._feed.put(item, size)
            return
        self._timer.pause()
        self._feed.put(item, size)
        self._timer.resume()

    def put_last(self, event: Event) -> None:
        """Put a closing event without waiting; after it only closing events pass (T33)."""
        with self._lock:
            self._closed = True
            self._items.put(_Item(MemberEvent(self._member, self._turn_id, event), self._feed, 0))

    def _enter(self, item: object) -> None:
        with self._lock:
            if not self._closed:
                self._items.put(item)  # type: ignore[arg-type]
