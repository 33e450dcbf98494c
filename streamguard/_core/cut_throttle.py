"""Turns, for what takes far longer when all do it at once.

When a thousand limits fire in one instant, two thousand threads want the one interpreter. Each that waits for it wakes
every few milliseconds to ask, and its holder releases it at each system call: the machine is busy with little else.
So a few of them cut at a time, and the others sleep.
"""

import queue
from types import TracebackType

TURN_SECONDS = 0.002
"""How long a thread that is being stopped may make others wait that want to stop theirs."""
_STUCK_SECONDS = 0.5


class Turns:
    """A context manager that *count* threads at a time are in, and the others wait for.

    When no turn has come to its end for half a second, those that wait go in, one each: who has one may be stuck, or may
    have lost it to an exception of a signal handler's. No semaphore is in it: a handler that comes in while one is locked
    could not pass it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._ended = 0
        self._made: dict[str, queue.SimpleQueue[None]] = {}

    @property
    def _free(self) -> "queue.SimpleQueue[None]":
        """The free turns. Made when the first is taken: gevent may have patched queues by then."""
        try:
            return self._made["free"]
        except KeyError:
            return self._made.setdefault("free", self._filled())

    def _filled(self) -> "queue.SimpleQueue[None]":
        free: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(self._count):
            free.put(None)
        return free

    def __enter__(self) -> None:
        while True:
            ended = self._ended
            try:
                return self._free.get(timeout=_STUCK_SECONDS)
            except queue.Empty:
                if self._ended == ended:
                    return None

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended += 1  # not exact, between threads, but never the same as before
        self._free.put(None)


turns = Turns(2)
"""For cuts: more of them at a time were slower, with two cores and with one interpreter lock."""
