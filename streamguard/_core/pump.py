"""A reader thread that fills a queue, and a consumer that never waits longer than it wants to.

The reader's function gets only a `Feed`, so that it never keeps the consumer's object alive. Items arrive in order; the
function's result or exception becomes the `End` marker. Cancelling the token puts an `End` at once, from the cancelling
thread: the consumer is free even if the reader cannot be woken.
"""

import functools
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..classify import walk
from ..errors import StreamguardError
from .cancel import CancelToken
from .cut_throttle import CUT_SECONDS, cut_throttle
from .tasks import Task
from .waits import take

R = TypeVar("R")

_CAPACITY = 1 << 20
"""Bytes that may wait for a slow consumer before the reader pauses (and the upstream is held back by TCP)."""


@dataclass(frozen=True, slots=True)
class End(Generic[R]):
    """The last item of the reader: its result, or its exception."""

    result: R | None = None
    failure: BaseException | None = None


class Feed:
    """The reader's side of a pump: put items, and pause while too much is waiting."""

    __slots__ = ("_capacity", "_given", "_pausing", "_put", "_room", "_taken", "token")

    def __init__(self, token: CancelToken, put: Callable[[object], None], capacity: int = _CAPACITY) -> None:
        self.token = token
        self._put = put
        self._capacity = capacity
        self._given = 0
        self._taken = 0
        self._pausing = False
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()

    def put(self, item: object, size: int = 0) -> None:
        """Hand *item* over; *size* bytes of it count against the capacity. Blocks while that much is unread."""
        self._given += size
        self._put(item)
        while self._given - self._taken > self._capacity and not self.token.cancelled:
            self._wait_for_room()

    def has_room(self, size: int) -> bool:
        """Whether `put()` of that size would not block."""
        return self._given + size - self._taken <= self._capacity

    def take(self, size: int) -> None:
        """Note, on the consumer's side, that *size* bytes have been taken."""
        self._taken += size
        if self._pausing:
            self.wake()

    def wake(self) -> None:
        """Wake a reader that waits for room, so that it looks again."""
        self._room.put(None)

    def _wait_for_room(self) -> None:
        self._pausing = True
        if self._given - self._taken > self._capacity and not self.token.cancelled:
            self._room.get()
        self._pausing = False


class Pump(Generic[R]):
    """Run *read* in a daemon thread of its own and pass its items to the consumer.

    The thread runs in a copy of the context in which the pump is made. *token* is the pump's own: cancelling it ends the
    pump.
    """

    def __init__(
        self, read: Callable[[Feed], R], token: CancelToken, *, name: str = "reader", capacity: int = _CAPACITY
    ) -> None:
        self.token = token
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.feed = Feed(token, self._queue.put, capacity)
        self._task = Task(functools.partial(_run, read, self.feed), name=name)
        self._forget = token.on_cancel(_stopper(self._queue, self.feed))

    def start(self) -> None:
        """Start the reader. Raises StreamguardError if the interpreter cannot start a thread."""
        try:
            self._task.start()
        except StreamguardError:
            self._forget()
            raise

    def get(self, seconds: float | None) -> object:
        """Return the next item, waiting at most *seconds* (None: without end; 0: not at all). Raises `queue.Empty`.

        An `End` stays: a second call gets it again.
        """
        item = take(self._queue, seconds) if seconds is None or seconds > 0 else self._queue.get_nowait()
        if isinstance(item, End):
            self._queue.put(item)
        return item

    def stop(self, reason: object, grace: float) -> bool:
        """Cancel, wait at most *grace* seconds for the thread, and return whether it is gone."""
        with cut_throttle:
            self.token.cancel(reason)
            gone = self.join(min(grace, CUT_SECONDS))
        return gone or self.join(grace)

    def join(self, grace: float) -> bool:
        """Wait at most *grace* seconds for the thread to end; return whether it is gone. Never waits for itself."""
        return self._task.join(grace)

    @property
    def thread(self) -> threading.Thread:
        """The reader thread."""
        return self._task.thread


def _stopper(items: "queue.SimpleQueue[Any]", feed: Feed) -> Callable[[], None]:
    def stop() -> None:
        items.put(End())
        feed.wake()

    return stop


def forget_frames(exc: BaseException) -> None:
    """Drop the local variables of the finished frames that *exc* and its causes came through.

    They hold queues and sockets, often the exception itself, and would keep them alive until the next garbage collection.
    """
    for cause in walk(exc, lambda inner: (inner.__cause__, inner.__context__)):
        traceback.clear_frames(cause.__traceback__)


def _run(read: Callable[[Feed], R], feed: Feed) -> None:
    try:
        _put_end(feed, End(read(feed)))
    except BaseException as exc:
        # The consumer raises it. After a cut it is only a consequence of the cut.
        if not feed.token.cancelled:
            forget_frames(exc)
            _put_end(feed, End(failure=exc))
    finally:
        del read, feed  # this frame is in the traceback


def _put_end(feed: Feed, end: End[R]) -> None:
    if not feed.token.cancelled:
        feed._put(end)
