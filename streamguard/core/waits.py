"""Waits in which signals are heard.

The handlers of signals run in the main thread. A signal that comes in the instant before that thread begins to wait does
not end the wait: CPython calls the handler when the wait is over, and Ctrl-C would be heard when the limit fires. So the
main thread waits half a second at a time.
"""

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

from .clock import longest_wait, monotonic

__all__ = ["happens", "take"]

T = TypeVar("T")

_PART_SECONDS = 0.5


def take(items: "queue.SimpleQueue[T]", seconds: float | None) -> T:
    """Return the next of *items*; wait at most *seconds* for it (None: without end). Raises `queue.Empty`."""
    for part in _parts(seconds):
        try:
            return items.get(timeout=part)
        except queue.Empty:
            continue
    raise queue.Empty


def happens(event: threading.Event, seconds: float | None) -> bool:
    """Wait at most *seconds* for *event* (None: without end); return whether it has happened."""
    return any(event.wait(part) for part in _parts(seconds))


def _parts(seconds: float | None) -> Iterator[float | None]:
    """Return the timeouts of which a wait is made; the clock says when its time is up."""
    in_parts = threading.current_thread() is threading.main_thread()
    until, left = None if seconds is None else monotonic() + seconds, seconds
    while True:
        yield _PART_SECONDS if in_parts and (left is None or left > _PART_SECONDS) else longest_wait(left)
        if until is not None and (left := until - monotonic()) <= 0:
            return
