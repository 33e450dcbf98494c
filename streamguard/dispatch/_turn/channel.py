"""The queue that carries members' events to their reader, with room of its own for each member."""

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..._core import CancelToken
from ..._core.pump import Feed
from ..._core.waits import take
from .._data.turn_events import Event

if TYPE_CHECKING:
    from .._data.outcome import DispatchOutcome

_CAPACITY = 1 << 18
_OVERHEAD = 200


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """An event, and whose it is."""

    member: str
    turn_id: str
    event: Event


@dataclass(frozen=True, slots=True)
class _Item:
    value: MemberEvent
    feed: Feed
    size: int


def size_of(event: Event) -> int:
    """Return about how many bytes an event holds."""
    return len(event.text) + len(event.raw) + _OVERHEAD


class Channel:
    """All members' events in the order they came, for one reader.

    A member whose events are not read waits once a quarter of a megabyte is here; the others go on.
    """

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[_Item | DispatchOutcome | BaseException] = queue.SimpleQueue()

    def inlet(self, member: str, turn_id: str, gate: CancelToken) -> "Inlet":
        """Return one member's entrance; cancelling *gate* lets it wait for room no more."""
        return Inlet(self._items, member, turn_id, gate)

    def end(self, outcome: "DispatchOutcome | BaseException") -> None:
        """Say that nothing more comes."""
        self._items.put(outcome)

    def get(self) -> "MemberEvent | DispatchOutcome | BaseException":
        """Return the next event; at the end, always the outcome (or what went wrong with the dispatch itself)."""
        item = take(self._items, None)
        if not isinstance(item, _Item):
            self._items.put(item)
            return item
        item.feed.take(item.size)
        return item.value


class Inlet:
    """One member's entrance to a channel."""

    def __init__(
        self,
        items: "queue.SimpleQueue[_Item | DispatchOutcome | BaseException]",
        member: str,
        turn_id: str,
        gate: CancelToken,
    ) -> None:
        self._feed = Feed(gate, self._enter, _CAPACITY)
        self._items = items
        self._lock = threading.Lock()
        self._closed = False
        self._member = member
        self._turn_id = turn_id
        gate.on_cancel(self._feed.wake)

    def put(self, event: Event) -> None:
        """Hand *event* over, waiting while the reader is behind."""
        size = size_of(event)
        self._feed.put(_Item(MemberEvent(self._member, self._turn_id, event), self._feed, size), size)

    def put_last(self, event: Event) -> None:
        """Hand a closing event over without waiting for the reader; after it only closing events pass (T33)."""
        with self._lock:
            self._closed = True
            self._items.put(_Item(MemberEvent(self._member, self._turn_id, event), self._feed, 0))

    def _enter(self, item: object) -> None:
        with self._lock:
            if not self._closed:
                self._items.put(item)  # type: ignore[arg-type]
