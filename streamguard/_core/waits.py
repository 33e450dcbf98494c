"""Waits in which signal handlers run.

The handlers of signals run in the main thread. A signal that arrives just before that thread starts to wait does not end
the wait: CPython calls the handler when the wait is over, so that Ctrl-C would take effect only when the limit fires. So
the main thread waits half a second at a time.
"""

import queue
import threading
from typing import TypeVar

from .clock import longest_wait, monotonic

T = TypeVar("T")

_PART_SECONDS = 0.5


def take(items: "queue.SimpleQueue[T]", seconds: float | None) -> T:
    """Return the next of *items*; wait at most *seconds* for it (None: without end). Raises `queue.Empty`."""
    until, left = _end_of(seconds), seconds
    while True:
        try:
            return items.get(timeout=_part(left))
        except queue.Empty:
            if until is not None and (left := until - monotonic()) <= 0:
                raise


def happens(event: threading.Event, seconds: float | None) -> bool:
    """Wait at most *seconds* for *event* (None: without end); return whether it has happened."""
    until, left = _end_of(seconds), seconds
    while not event.wait(_part(left)):
        if until is not None and (left := until - monotonic()) <= 0:
            return False
    return True


def _end_of(seconds: float | None) -> float | None:
    return None if seconds is None else monotonic() + seconds


def _part(left: float | None) -> float | None:
    """Return the timeout of the next part of a wait with *left* seconds left."""
    if (left is None or left > _PART_SECONDS) and threading.current_thread() is threading.main_thread():
        return _PART_SECONDS
    return longest_wait(left)
